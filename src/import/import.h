// SPDX-License-Identifier: Apache-2.0
//
// import: untrusted bytes to graphs. A plug-in file src/import/NAME.c describes one file
// format and exports one `const struct importer import_NAME`. The result is verified, in the
// vocabulary of opset 18, sorted, and every value has its dtype and (possibly symbolic) sizes.
#ifndef QUERN_IMPORT_H
#define QUERN_IMPORT_H

#include "io/io.h"
#include "ir/ir.h"

/* One reason why a model is rejected. */
struct import_problem {
    struct str node, op;   /* empty: concerns the whole model */
    struct str why, help;
};

struct import_problems {
    struct import_problem *v;
    u32 n, cap;
    u32 n_nodes;           /* of the model */
    u32 n_unchecked;       /* nodes that depend on a rejected node whose shapes the model does not declare */
};

struct import_job {
    struct graph *g;       /* initialised; filled by the importer */
    struct str bytes;      /* the file's content; valid until the end of the import */
    const struct os_reader *file; /* the file, for importers that read files: bytes are its first ones then; else NULL */
    const struct os_beside *beside; /* folder of external data; NULL: none, or determined by import_run */
    bool follow_links;     /* follow symbolic links to external data */
    struct import_problems *all; /* collects rejected nodes, and the import continues; NULL: it ends at the first */
    struct tensor *const *given; i64 n_given; /* content of the k-th input, which becomes a constant in this memory; NULL: it stays an input. The memory must
                                                outlive the graph */
    bool interface_only;   /* inputs and outputs as the model declares them, without nodes, if the format can */
};

struct importer {
    const char *name;      /* "onnx" */
    const char *suffix;    /* ".onnx" */
    bool (*match)(struct str bytes);                           /* by content: cheap and safe on any bytes */
    bool (*read)(const struct import_job *j, struct err *e);   /* builds and infers */
    bool reads_files;      /* takes job->file */
};

/* import.c: fills the job's graph, which it initialises, from job->bytes or, without these, from the file at path. The
   format is recognised by the content, else by the suffix of the path (NULL: none), which errors name. Content of constants
   is in the arena. With `all`: false if the file cannot be read at all; the graph is unusable if there are problems. */
bool import_run(struct import_job *j, struct arena *a, struct symtab *st, const char *path, struct err *e);
bool import_graph(struct graph *g, struct arena *a, struct symtab *st, const char *path, struct err *e);
/* Likewise from memory; external data is rejected. */
bool import_bytes(struct graph *g, struct arena *a, struct symtab *st, struct str bytes, struct err *e);

/* import_check.c: adds the error about a node to the list and clears it. op, node:
   empty if the message names them, or for the whole model. Text is kept in the arena. */
void import_note(struct import_problems *all, struct arena *a, struct str op, struct str node, struct err *e);
/* Appends the types and shapes of the inputs of node n to an error about it. Always returns false. */
bool import_blame_inputs(struct graph *g, node_id n, struct err *e);
/* Appends a way out, unless the message has one. Always returns false. */
bool import_advise(struct err *e);

/* Whether the importer replaces an operator, so that graphs contain none of that name. */
bool import_replaces(struct str op);

/* import_freeze.c: an ONNX model with inputs replaced by constants: content[i] is that of input i, NULL: stays an input. */
bool import_freeze(struct str *out, struct arena *a, struct str model, struct tensor *const *content, i64 n,
                   struct err *e);

/* import_elements.c: an ONNX model whose sequence and optional inputs have a given number of elements,
   as tensors: "x:3,o:none" makes x the inputs x[0], x[1], x[2], and o an optional value without content. */
bool import_elements(struct str *out, struct arena *a, struct str model, const char *text, struct err *e);
/* The kind of the k-th input or output of the file; its elements' type. */
struct Onnx__TypeProto;
enum io_list_kind import_kind(const struct Onnx__TypeProto *t, const struct Onnx__TypeProto **elem);
bool import_describe(struct str model, bool is_output, i64 k, struct str *name, enum io_list_kind *kind, struct arena *a,
                     struct err *e);

/* import_function.c: inlines the model's functions into the nodes of an ONNX model. */
struct Onnx__ModelProto;
bool import_inline(struct Onnx__ModelProto *m, struct arena *a, struct err *e);

/* import_old.c: converts node n of a model of this opset to the form of opset 7, if it
   has an older one. New nodes have the form of opset 18; the node may be dead afterwards. */
bool import_old(struct graph *g, node_id n, i64 opset, struct err *e);

/* import_types.c: converts floating-point constants to the type of the values beside them at node n, before it is inferred. false: out of memory. */
bool import_fit_types(struct graph *g, node_id n, struct err *e);

/* import_flex.c: expands FlexAttention of ai.onnx.preview, with its subgraphs, to nodes of the graph. */
struct Onnx__GraphProto;
bool import_flex(struct Onnx__GraphProto *g, struct arena *a, struct err *e);

/* import_dim.c: parses the name of a size that is an expression over sizes,
   "floor(s1/2)"; dims holds the names of all sizes. false: it is a name. */
bool import_dim(struct symtab *t, struct str text, const struct map *dims, sym *out);

/* import_range.c: turns ranges of sizes that the exporter wrote beside the graph into facts. */
void import_ranges(struct graph *g, const struct Onnx__GraphProto *p, const struct map *dims);

/* import_sparse.c: converts a sparse tensor of ONNX to a dense one. */
struct Onnx__SparseTensorProto;
bool import_sparse(struct tensor *out, struct arena *a, struct Onnx__SparseTensorProto *p, const struct os_beside *beside, struct err *e);

/* import_sequence.c: replaces sequences and optional values by the tensors that they hold, node by node in
   topological order, while the graph is inferred: the inputs of a node have been replaced or inferred before. */
struct import_lists;
struct import_lists *import_lists_begin(struct graph *g, struct err *e); /* in the graph's arena */
bool import_lists_takes(struct import_lists *d, node_id n);              /* a node for import_lists_dissolve */
bool import_lists_dissolve(struct import_lists *d, node_id n);           /* nodes that it adds are inferred */
bool import_lists_sort(struct import_lists *d);                          /* graph_sort that keeps elements */
bool import_lists_end(struct import_lists *d);                           /* outputs that are sequences become tensors */
i64 import_list_get(struct import_lists *d, value_id v, const value_id **elem); /* number of elements; -1: v is not a sequence */
bool import_list_set(struct import_lists *d, node_id n, u32 out, const value_id *elem, i64 count); /* output `out` of n */
bool import_sequences(struct graph *g, struct err *e); /* all nodes of a graph without inference, except those that use control flow */
bool import_is_sequence_op(struct str op);

/* import_control.c: infers all; replaces If, Loop, Scan and SequenceMap by
   the nodes of their bodies on the way, and sequences by their elements. */
struct import_bodies { struct graph **v; u32 n, cap; };
bool import_control(struct graph *g, const struct import_bodies *bodies, struct err *e);
bool import_is_control_op(struct str op);
/* The scalar content of v, if it follows from constants. */
bool import_known(const struct graph *g, value_id v, i64 *out);

#endif
