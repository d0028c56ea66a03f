// SPDX-License-Identifier: Apache-2.0
//
// import: untrusted bytes to graphs. A plug-in file src/import/NAME.c describes one file format and exports one
// `const struct importer import_NAME`. What comes out is verified, in the vocabulary of opset 18, sorted, and every
// value has its dtype and (possibly symbolic) sizes.
#ifndef QUERN_IMPORT_H
#define QUERN_IMPORT_H

#include "ir/ir.h"

struct import_job {
    struct graph *g;       /* initialised; filled by the importer */
    struct str bytes;      /* the file's content; valid until the end of the import */
    const char *dir;       /* its folder, for files beside it; NULL: there is none */
};

struct importer {
    const char *name;      /* "onnx" */
    const char *suffix;    /* ".onnx" */
    bool (*match)(struct str bytes);                           /* by content: cheap and safe on any bytes */
    bool (*read)(const struct import_job *j, struct err *e);   /* builds and infers */
};

/* import.c: by content, else by the suffix of the path. Content of constants lives in the arena. */
bool import_graph(struct graph *g, struct arena *a, struct symtab *st, const char *path, struct err *e);
/* The same from memory; files beside the model are refused. */
bool import_bytes(struct graph *g, struct arena *a, struct symtab *st, struct str bytes, struct err *e);

/* import_freeze.c: an ONNX model with inputs made constants: content[i] is that of input i, NULL leaves it an input. */
bool import_freeze(struct str *out, struct arena *a, struct str model, struct tensor *const *content, i64 n,
                   struct err *e);

/* import_function.c: nodes of an ONNX model that call functions of the model become the functions' nodes. */
struct Onnx__ModelProto;
bool import_inline(struct Onnx__ModelProto *m, struct arena *a, struct err *e);

/* import_types.c: op_infer_all, and constants of floats have the type of the values beside them. */
bool import_infer(struct graph *g, struct err *e);

/* import_sparse.c: a sparse tensor of ONNX, dense. */
struct Onnx__SparseTensorProto;
bool import_sparse(struct tensor *out, struct arena *a, struct Onnx__SparseTensorProto *p, const char *dir, struct err *e);

/* import_sequence.c: sequences and optional values dissolve into the tensors that they hold. Before the graph is inferred. */
bool import_sequences(struct graph *g, struct err *e);
bool import_is_sequence_op(struct str op);

#endif
