// SPDX-License-Identifier: Apache-2.0
//
// Private to export/: a program as nodes of vkdt's graph. export_vkdt_node.c turns a plan into
// struct vkdt_model (with single grids of SPIR-V modules, export_spirv.h), export_vkdt_image.c maps interface tensors to images, export_vkdt_code.c writes the header with
// the network, export_vkdt_main.c the rest of the module's directory, export_vkdt_name.c names.
//
// Limits of vkdt that all of them rely on (doc/export-vkdt.md):
//   - names of modules, kernels and connectors are tokens of at most 8 characters;
//   - connector i of a node is binding i of descriptor set 1, the entry point is "main";
//   - a node runs after those it is connected to, and nothing else orders nodes;
//   - one connector owns a buffer ("write", "source"), "read" and "modify" ones follow their
//     connections to it.
#ifndef QUERN_EXPORT_VKDT_H
#define QUERN_EXPORT_VKDT_H

#include "art/art.h"
#include "export/export.h"
#include "export/export_spirv.h"

enum {
    VKDT_TOKEN = 8,       /* characters of a name */
    VKDT_CONNECTORS = 30, /* of a node or a module */
    VKDT_PUSH = 256,      /* bytes of push constants of a node */
    VKDT_GROUPS = 65535,  /* of a dispatch, per dimension, supported by every device */
    VKDT_ALIGN = 256,     /* of a constant in the weights: devices require 16 to 256 */
    VKDT_PAD = 64,        /* buffers' sizes are multiples: kernels may read whole vectors */
};

/* export_vkdt_name.c */

/* The name as a token: unchanged, or without dashes and then
   without vowels, until it is short enough. False: impossible. */
bool vkdt_module_name(char out[VKDT_TOKEN + 1], struct str name, struct err *e);
bool vkdt_suffix(char out[VKDT_TOKEN + 1], struct str name, struct err *e); /* lower-case letters */
/* "prefix7", the prefix shortened so that all of n_kernels numbers fit a token */
struct str vkdt_kernel_name(struct arena *a, const char *prefix, u32 k, u32 n_kernels);

/* export_vkdt_node.c */

enum vkdt_type { VC_READ, VC_WRITE, VC_MODIFY };

struct vkdt_end { /* the other end of a connection */
    enum { END_NODE, END_WEIGHTS, END_INPUT } kind;
    u32 node, conn; /* END_NODE; END_INPUT: node is the number of the input */
};

struct vkdt_conn {
    enum vkdt_type type;
    u32 buf;             /* of the plan */
    struct vkdt_end end; /* VC_READ, VC_MODIFY */
    bool is_order;       /* bound but unused: orders this node after the other */
};

struct vkdt_node {
    u32 dispatch, grid;  /* of the plan */
    u32 kernel;          /* index into vkdt_model.kernel */
    struct vkdt_conn conn[VKDT_CONNECTORS];
    u32 n_conn;
    bool has_push;       /* the dispatch's parameters ... */
    bool has_base;       /* ... followed by three numbers that are added to the workgroup's number */
};

struct vkdt_image { /* an interface tensor as an image */
    enum dtype dtype;
    sym h, w;
    i64 c;
    enum { IMAGE_CHW, IMAGE_HWC, IMAGE_CHWC8 } layout;
};

struct vkdt_model {
    const struct plan *plan;
    const char *suffix;      /* "": the only one */
    struct { struct vkdt_node *v; u32 n, cap; } node;
    struct { struct spirv_grid *v; u32 n, cap; } kernel;
    struct vkdt_image *in, *out;  /* per interface value */
    struct vkdt_end *result; /* per output: its last writer */
    i64 *offset;             /* per buffer: offset of a constant in the weights, -1: unused */
    i64 weights;             /* bytes of all constants */
    u32 subgroup;            /* size required by some kernel, 0: none */
    bool needs_matrix;
    u8 *var_axis;            /* per variable: 'H', 'W' or 'N' (which is 1) ... */
    u32 *var_input;          /* ... of which input */
    struct str resource;     /* file of the weights, relative to vkdt */
    struct str file;         /* its name without folders */
    struct str prefix;       /* of the kernels' names */
};

bool vkdt_model_init(struct vkdt_model *m, const struct plan *p, struct arena *a, struct err *e);
/* The constants, each at its offset. */
void vkdt_model_weights(const struct vkdt_model *m, struct buf *out);

/* export_vkdt_image.c */

bool vkdt_image_of(struct vkdt_image *m, const struct plan *p, const struct plan_io *io,
                   struct err *e);
/* The axis of the image that gives each variable its value. */
bool vkdt_bind_vars(struct vkdt_model *m, struct arena *a, struct err *e);
const char *vkdt_format(enum dtype t); /* of a connector, NULL: none */
/* GLSL of the node that converts a picture to the input's tensor,
   and of the one that converts the output's tensor to a picture. */
void vkdt_input_shader(struct buf *b, const struct vkdt_image *m);
void vkdt_output_shader(struct buf *b, const struct vkdt_image *m);

/* export_vkdt_code.c */

struct vkdt_names { /* of a module */
    char module[VKDT_TOKEN + 1];
    struct str title;        /* as given */
};
void vkdt_print_model(struct buf *b, const struct vkdt_model *m, const struct vkdt_names *n);
/* "H, W", "uint64_t H, uint64_t W": with a type before each, and a comma after the last one if any */
void vkdt_print_vars(struct buf *b, const struct vkdt_model *m, const char *type);

/* export_vkdt_helpers.c */
extern const char vkdt_helpers[]; /* functions called by headers of networks */

/* export_vkdt_main.c */

struct vkdt_module {
    struct vkdt_names name;
    struct vkdt_model *model;
    u32 n_model;             /* with equal interfaces */
    bool has_weights;        /* in its folder */
    bool has_pre, has_post;  /* a shader was given: "input" for all inputs, "output" likewise */
};
/* Images of one kind share a shader, numbered by the first one. */
u32 vkdt_shader_of(const struct vkdt_image *v, u32 k);
void vkdt_print_main(struct buf *b, const struct vkdt_module *m);
void vkdt_print_connectors(struct buf *b, const struct vkdt_module *m);
void vkdt_print_params(struct buf *b, const struct vkdt_module *m);   /* empty for a single model */
void vkdt_print_params_ui(struct buf *b, const struct vkdt_module *m);
void vkdt_print_make(struct buf *b, const struct vkdt_module *m);
void vkdt_print_ignore(struct buf *b, const struct vkdt_module *m);
void vkdt_print_readme(struct buf *b, const struct vkdt_module *m);

#endif
