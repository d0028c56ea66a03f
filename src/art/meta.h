// SPDX-License-Identifier: Apache-2.0
//
// meta: a deployment as data, and its files. A deployment is a network divided into sub-graphs, each for one device: a folder with model.meta and a
// folder per sub-graph, or all of them in one packed file. model.meta and the sub-graphs' meta files are protobuf messages (doc/meta.proto is
// normative; doc/deployment.md). Files are untrusted: every index, size and path is checked before use.
#ifndef QUERN_ART_META_H
#define QUERN_ART_META_H

#include "art/art.h"

enum { META_VERSION = 1 };

struct meta_tensor {
    struct str name;          /* "tensor_4", unique in the deployment */
    struct str origin;        /* name in the network that it was made of */
    enum dtype dtype;
    u32 rank;
    struct str dim[MAX_RANK]; /* "32", "H", "2*floor(H/2)" */
};

enum meta_role {
    META_PROGRAM,     /* <sub-graph>.meta: a program whose kernels and weights are files of their own */
    META_KERNEL,      /* .so, .spv, .cubin, .hsaco ... */
    META_WEIGHTS,
    META_BLOB,        /* what another runtime loads as a whole: .blob, .dlc, .tflite, .bin */
    META_NETWORK,     /* the sub-graph as ONNX */
    META_CALIBRATION, /* samples of its inputs, and their list */
    META_SCRIPT,      /* commands that make the blob where the vendor's tools are installed */
    N_META_ROLES
};
struct meta_file {
    struct str path;          /* relative to the deployment's folder, parts separated by '/', none of them ".." */
    enum meta_role role;
    i64 size;
    u8 digest[SIGN_DIGEST_BYTES]; /* SHA-512 */
};

struct meta_subgraph {
    struct str name;          /* "Subgraph_0": its folder */
    struct str device;        /* "X64:0" */
    struct str framework;     /* what runs it: "native" "vulkan" "opencl" "cuda" "hip" "openvino" "snpe" ... */
    struct str target;        /* what it was made for: instruction set, architecture, device of the framework */
    struct { struct str *v; u32 n, cap; } op;    /* names of its operators */
    struct { u32 *v; u32 n, cap; } in, out;      /* tensors, in the order of its program */
    struct { u32 *v; u32 n, cap; } after;        /* sub-graphs before it that it waits for */
    struct { struct meta_file *v; u32 n, cap; } file;
    double seconds;           /* expected; 0: unknown */
    struct str missing;       /* empty: complete; else what has to be done before it can run, "run Subgraph_1/convert.sh, which needs snpe-onnx-to-dlc" */
};

struct meta_model {
    struct str name;
    struct { struct meta_tensor *v; u32 n, cap; } tensor;
    struct { u32 *v; u32 n, cap; } input, output; /* tensors, in the network's order */
    struct { struct meta_subgraph *v; u32 n, cap; } subgraph; /* in an order in which they can run */
};

/* Same deployment, same bytes. */
bool meta_write_model(struct buf *out, const struct meta_model *m, struct err *e);
bool meta_read_model(struct meta_model *m, struct arena *a, struct str bytes, struct err *e);
bool meta_verify_model(const struct meta_model *m, struct err *e); /* indices, order, names, paths; every tensor has one producer */

/* A program as files: its kernels' code in kernel_path[k] for p->bin.v[k], its constants in one file. Writes the message that refers to them by paths, sizes
   and digests. files: receives those written, for struct meta_subgraph. */
struct meta_program_files {
    struct str folder;        /* "Subgraph_0" */
    struct str name;          /* "net_0": the sub-graph's meta file is <folder>/<name>.meta */
};
/* The files of a plan: <name>.meta, one file per binary named after its kernel, <name>.weights if it has constants. Their content is in the arena or in the plan. */
struct meta_content { struct meta_file file; struct str *piece; i64 n_piece; };
struct meta_contents { struct meta_content *v; u32 n, cap; };
bool meta_program_write(struct meta_contents *out, const struct plan *p, const struct meta_program_files *to, struct arena *a, struct err *e);
/* Reads a file of the deployment, after its size and digest were compared. */
typedef bool meta_read_fn(void *user, const struct meta_file *f, struct str *bytes, struct err *e);
/* The plan of a sub-graph from its files; bytes must stay valid as long as the plan. */
bool meta_program_read(struct plan *p, struct arena *a, const struct meta_subgraph *s, meta_read_fn *read, void *user, struct err *e);

/* A deployment's files: a folder, or a packed file. */
struct meta_store;
struct meta_store *meta_open(const char *path, struct err *e); /* NULL: error. model.meta is read and verified */
void meta_close(struct meta_store *s);
const struct meta_model *meta_model_of(const struct meta_store *s);
meta_read_fn meta_store_read; /* user: struct meta_store; bytes are valid until meta_close */
/* Writes all files to a folder that does not exist yet, or to one packed file: under a temporary name, renamed when it is complete. */
bool meta_write_folder(const char *path, const struct meta_model *m, const struct meta_contents *files, struct err *e);
bool meta_write_packed(const char *path, const struct meta_model *m, const struct meta_contents *files, struct err *e);

#endif
