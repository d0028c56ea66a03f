// SPDX-License-Identifier: Apache-2.0
//
// meta: a deployment as data, and its files. A deployment is a network divided into sub-graphs, each for one device: a folder with model.meta
// and a folder per sub-graph, or all of them in one packed file. model.meta and the sub-graphs' meta files are protobuf messages
// (doc/meta.proto is normative; doc/deployment.md). Files are untrusted: every index, size and path is checked before use, and every file is
// compared with its SHA-512 (by libcrypto, without which no deployment is read).
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
    META_SCRIPT,      /* commands that make the blob where the vendor's tools are installed; executable in a folder */
    META_FALLBACK,    /* as META_PROGRAM, for the CPU: runs if the sub-graph's device is absent or fails. By convention in <sub-graph>/fallback */
    N_META_ROLES
};
struct meta_file {
    struct str path;          /* relative to the deployment's folder, parts separated by '/', see meta_path_is_valid */
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
    struct { u32 *v; u32 n, cap; } after;        /* sub-graphs before it that it waits for, ascending */
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

/* meta_model.c. Same deployment, same bytes. Writing verifies, too. */
bool meta_write_model(struct buf *out, const struct meta_model *m, struct err *e);
bool meta_read_model(struct meta_model *m, struct arena *a, struct str bytes, struct err *e);
bool meta_is_model(struct str bytes);   /* by the first bytes */
bool meta_is_program(struct str bytes);
/* For people: the whole description; the files and ranges of <sub-graph>.meta, and its plan. */
void meta_print_model(struct buf *b, const struct meta_model *m);
bool meta_print_program(struct buf *b, struct str bytes, struct err *e);
const char *meta_role_name(enum meta_role r); /* "program" "kernel" ... */
/* meta_verify.c. Indices, order, names, paths; every tensor has one producer: the caller, or one sub-graph. */
bool meta_verify_model(const struct meta_model *m, struct err *e);
/* Parts of letters, digits and "_-+.,=@", none of them "." or "..", at most 500 bytes. */
bool meta_path_is_valid(struct str path);

/* meta_program.c: a program as files: <folder>/<name>.meta, a file per binary, named after its kernel, and <folder>/<name>.weights if it has
   constants. */
struct meta_program_files {
    struct str folder;        /* "Subgraph_0", "Subgraph_0/fallback" */
    struct str name;          /* "net_0": the sub-graph's meta file is <folder>/<name>.meta */
    enum meta_role role;      /* of that file: META_PROGRAM or META_FALLBACK */
};
/* A file to be written; its content is in the arena or in the plan. */
struct meta_content { struct meta_file file; struct str *piece; i64 n_piece; };
struct meta_contents { struct meta_content *v; u32 n, cap; };
/* A file of one piece: size and digest are computed. */
bool meta_add_content(struct meta_contents *out, struct str path, enum meta_role role, struct str bytes, struct arena *a, struct err *e);
/* Adds the program's files with sizes and digests, for struct meta_subgraph: the meta file first. All variants of the plan. */
bool meta_program_write(struct meta_contents *out, const struct plan *p, const struct meta_program_files *to, struct arena *a, struct err *e);
/* Reads a file of the deployment, after its size and digest were compared. */
typedef bool meta_read_fn(void *user, const struct meta_file *f, struct str *bytes, struct err *e);
struct meta_reader {
    meta_read_fn *read;
    void *user;
    dnx_choose_fn *choose; /* of several variants, as dnx_read_variant; NULL: all are read */
    void *chooser;
};
/* The plan of a sub-graph's file of this role, META_PROGRAM or META_FALLBACK, of which there is one; bytes must stay valid as long as the plan. Inputs and
   outputs are those of the sub-graph in number, type and rank (NULL m: not compared). */
bool meta_program_read(struct plan *p, struct arena *a, const struct meta_model *m, const struct meta_subgraph *s, enum meta_role role,
                       const struct meta_reader *r, struct err *e);
const struct meta_file *meta_file_of(const struct meta_subgraph *s, enum meta_role role); /* the first; NULL: none */

/* meta_store.c: a deployment's files: a folder, or a packed file. */
struct meta_store;
struct meta_opts {
    bool is_private;          /* files are read into memory; else large ones are mapped */
    /* Called with model.meta and the file of its signatures (empty: there is none) before anything in them is parsed; false: rejected. NULL: none */
    bool (*check)(void *user, struct str meta, struct str signatures, struct err *e);
    void *user;
};
/* path: the folder, its model.meta, or the packed file. NULL: error. model.meta is read and verified. o may be NULL. */
struct meta_store *meta_open(const char *path, const struct meta_opts *o, struct err *e);
void meta_close(struct meta_store *s);                /* NULL: nothing */
const struct meta_model *meta_model_of(const struct meta_store *s);
struct str meta_model_bytes(const struct meta_store *s);      /* model.meta */
struct str meta_signature_bytes(const struct meta_store *s);  /* empty: not signed */
meta_read_fn meta_store_read; /* user: struct meta_store; bytes are valid until meta_close */
bool meta_is_store(const char *path);       /* whether it is a folder with model.meta, such a file, or a packed file */
bool meta_is_packed(struct str bytes);      /* by the first bytes */
/* Writes all files to a folder that does not exist yet, or to one packed file: under a temporary name, renamed when it is complete. files are those that
   the model lists, each with its size and digest. */
bool meta_write_folder(const char *path, const struct meta_model *m, const struct meta_contents *files, struct err *e);
bool meta_write_packed(const char *path, const struct meta_model *m, const struct meta_contents *files, struct err *e);
/* Writes a deployment again as the other form, with its signatures. */
bool meta_pack(struct meta_store *s, const char *path, struct err *e);
/* Adds a signature of model.meta, which has the digests of all files, after they were compared; only: removes others. out: the packed file with it; NULL: in
   place. */
bool meta_sign(const char *path, const u8 secret[SIGN_KEY_BYTES], bool only, const char *out, struct err *e);

#endif
