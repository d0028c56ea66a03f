// SPDX-License-Identifier: Apache-2.0
//
// import: untrusted bytes to graphs. A plug-in file src/import/NAME.c describes one file format and exports one
// `const struct importer import_NAME`. What comes out is verified, in the vocabulary of opset 18, sorted, and every
// value has its dtype and (possibly symbolic) sizes.
#ifndef QUERN_IMPORT_H
#define QUERN_IMPORT_H

#include "io/io.h"
#include "ir/ir.h"

/* One reason why a model is refused. */
struct import_problem {
    struct str node, op;   /* empty: it is about the whole model */
    struct str why, help;
};

struct import_problems {
    struct import_problem *v;
    u32 n, cap;
    u32 n_nodes;           /* of the model */
    u32 n_unchecked;       /* nodes that read what a refused node makes, of which the model says no shape */
};

struct import_job {
    struct graph *g;       /* initialised; filled by the importer */
    struct str bytes;      /* the file's content; valid until the end of the import */
    const struct os_reader *file; /* beside bytes, for importers that read files: bytes are the first ones then; else NULL */
    const struct os_beside *beside; /* where files beside it are; NULL: there are none, or import_run finds out */
    bool follow_links;     /* of files beside it: symbolic links may lead anywhere */
    struct import_problems *all; /* collects what nodes are refused for, and the import goes on; NULL: it ends at the first */
    bool interface_only;   /* inputs and outputs as the model declares them, without nodes, if the format can */
};

struct importer {
    const char *name;      /* "onnx" */
    const char *suffix;    /* ".onnx" */
    bool (*match)(struct str bytes);                           /* by content: cheap and safe on any bytes */
    bool (*read)(const struct import_job *j, struct err *e);   /* builds and infers */
    bool reads_files;      /* takes job->file */
};

/* import.c: fills the job's graph, which it initialises, from job->bytes or, where there are none, from the file at path. The format
   goes by the content, else by the suffix of the path (NULL: none), which errors name. Content of constants lives in the arena. With
   `all`: false if the file cannot be read at all, and what is left in the graph is of no use unless there are no problems. */
bool import_run(struct import_job *j, struct arena *a, struct symtab *st, const char *path, struct err *e);
bool import_graph(struct graph *g, struct arena *a, struct symtab *st, const char *path, struct err *e);
/* The same from memory; files beside the model are refused. */
bool import_bytes(struct graph *g, struct arena *a, struct symtab *st, struct str bytes, struct err *e);

/* import_check.c: adds what err says about a node and clears it. op, node: empty where the message names them, or it is about the
   model. Text is kept in the arena. */
void import_note(struct import_problems *all, struct arena *a, struct str op, struct str node, struct err *e);
/* Adds the types and shapes of the inputs of node n to an error about it. Always returns false. */
bool import_blame_inputs(struct graph *g, node_id n, struct err *e);
/* Adds what would help, unless the message says so. Always returns false. */
bool import_advise(struct err *e);

/* An operator that importing replaces, so that graphs have none of its name. */
bool import_replaces(struct str op);

/* import_freeze.c: an ONNX model with inputs made constants: content[i] is that of input i, NULL leaves it an input. */
bool import_freeze(struct str *out, struct arena *a, struct str model, struct tensor *const *content, i64 n,
                   struct err *e);

/* import_elements.c: an ONNX model whose inputs that are sequences or optional values have a known number of elements, and become tensors:
   "x:3,o:none" makes x the inputs x[0], x[1], x[2], and o an optional value without content. */
bool import_elements(struct str *out, struct arena *a, struct str model, const char *text, struct err *e);
/* What the k-th input or output of the file is; its elements' type. */
struct Onnx__TypeProto;
enum io_list_kind import_kind(const struct Onnx__TypeProto *t, const struct Onnx__TypeProto **elem);
bool import_describe(struct str model, bool is_output, i64 k, struct str *name, enum io_list_kind *kind, struct arena *a,
                     struct err *e);

/* import_function.c: nodes of an ONNX model that call functions of the model become the functions' nodes. */
struct Onnx__ModelProto;
bool import_inline(struct Onnx__ModelProto *m, struct arena *a, struct err *e);

/* import_old.c: brings node n of a model of this opset to the form of opset 7, if it has an older one. New nodes have the form of
   opset 18; the node may be dead then. */
bool import_old(struct graph *g, node_id n, i64 opset, struct err *e);

/* import_types.c: constants of floats get the type of the values beside them at node n, before it is inferred. false: memory ends. */
bool import_fit_types(struct graph *g, node_id n, struct err *e);

/* import_flex.c: FlexAttention of ai.onnx.preview, with its subgraphs, becomes nodes of the graph. */
struct Onnx__GraphProto;
bool import_flex(struct Onnx__GraphProto *g, struct arena *a, struct err *e);

/* import_dim.c: the name of a size that is an expression over sizes, "floor(s1/2)"; dims holds the names of all sizes. false: it is
   a name. */
bool import_dim(struct symtab *t, struct str text, const struct map *dims, sym *out);

/* import_range.c: ranges of sizes that the exporter wrote beside the graph become facts. */
void import_ranges(struct graph *g, const struct Onnx__GraphProto *p, const struct map *dims);

/* import_sparse.c: a sparse tensor of ONNX, dense. */
struct Onnx__SparseTensorProto;
bool import_sparse(struct tensor *out, struct arena *a, struct Onnx__SparseTensorProto *p, const struct os_beside *beside, struct err *e);

/* import_sequence.c: sequences and optional values dissolve into the tensors that they hold, node by node in topological order, while
   the graph is inferred: what a node reads has been dissolved or inferred before. */
struct import_lists;
struct import_lists *import_lists_begin(struct graph *g, struct err *e); /* in the graph's arena */
bool import_lists_takes(struct import_lists *d, node_id n);              /* a node that import_lists_dissolve is for */
bool import_lists_dissolve(struct import_lists *d, node_id n);           /* what it adds is inferred */
bool import_lists_sort(struct import_lists *d);                          /* graph_sort that drops no elements */
bool import_lists_end(struct import_lists *d);                           /* outputs that are sequences become tensors */
i64 import_list_get(struct import_lists *d, value_id v, const value_id **elem); /* number of elements; -1: v is no sequence */
bool import_list_set(struct import_lists *d, node_id n, u32 out, const value_id *elem, i64 count); /* output `out` of n */
bool import_sequences(struct graph *g, struct err *e); /* all of a graph of which nothing is inferred yet, but what takes control flow */
bool import_is_sequence_op(struct str op);

/* import_control.c: infers all; If, Loop, Scan and SequenceMap dissolve into the nodes of their bodies on the way, and sequences into
   their elements. */
struct import_bodies { struct graph **v; u32 n, cap; };
bool import_control(struct graph *g, const struct import_bodies *bodies, struct err *e);
bool import_is_control_op(struct str op);
/* The scalar content of v, where it follows from constants. */
bool import_known(const struct graph *g, value_id v, i64 *out);

#endif
