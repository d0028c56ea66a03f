// SPDX-License-Identifier: Apache-2.0
//
// Private to export/: a program as C sources that record it into a command buffer of Vulkan
// (doc/export-vulkan-c.md). export_vulkan_c_model.c turns a plan into struct vkc_model,
// export_vulkan_c_tables.c prints it as C tables, export_vulkan_c_features.c the features that a
// device needs, export_vulkan_c_text.c what people read and choose; vulkan_c.c puts them into the
// code that is the same for every network, the files vulkan_c*.in.
#ifndef QUERN_EXPORT_VULKAN_C_H
#define QUERN_EXPORT_VULKAN_C_H

#include "art/art.h"
#include "export/export.h"
#include "export/export_spirv.h"

enum {
    VKC_PREFIX = 40, /* characters of a prefix */
    VKC_ALIGN = 256, /* of constants in the weights; the largest alignment that Vulkan lets a device
                        require */
    VKC_CAPABILITIES = 64, /* of all modules */
    VKC_BASE = 3, /* numbers behind the parameters: the first workgroup of a part of a grid */
};

enum vkc_form {
    VKC_NONE,
    VKC_PUSHED,
    VKC_PUSHED_WITH_BASE,
    VKC_IN_MEMORY
}; /* parameters of a step */

struct vkc_kernel { /* a pipeline */
    u32 module;
    struct str entry;
    u32 n_binding, push_bytes, subgroup, local[3];
};

struct vkc_step { /* a grid of a dispatch */
    u32 dispatch, grid, kernel;
    bool waits; /* for the steps before it */
    enum vkc_form form;
    u32 n_buffer; /* of the dispatch's, the first ones: those that the kernel binds */
};

struct vkc_buffer { /* of the plan that steps use, or the interface */
    u32 buf;
    i64 at;          /* PB_CONST: offset in the weights */
    u32 first, last; /* PB_TEMP: used between barriers of these numbers */
};

struct vkc_model {
    const struct plan *plan;
    struct str prefix, upper; /* "net", "NET" */
    bool has_weights_array, has_kernel_files;
    struct {
        struct vkc_step *v;
        u32 n, cap;
    } step;
    struct {
        struct vkc_kernel *v;
        u32 n, cap;
    } kernel; /* those of a module are in a row */
    struct {
        u32 *v;
        u32 n, cap;
    } module; /* binaries of the plan */
    struct {
        struct vkc_buffer *v;
        u32 n, cap;
    } buffer;
    u32 *number; /* per buffer of the plan: index into buffer, UINT32_MAX: none */
    u32 *size;   /* per expression of the plan: 1 + its number; 0: not needed */
    u32 n_size;
    struct str *var; /* per variable its name in C */
    i64 weights;     /* bytes */
    u64 weights_digest;
    u32 version; /* minor version of Vulkan 1 */
    u32 capability[VKC_CAPABILITIES], n_capability;
    struct spirv_floats floats[SPIRV_MAX_FLOATS];
    u32 n_floats;
    i64 shared_bytes; /* the most of a kernel */
    bool needs_subgroup_size;
};

/* export_vulkan_c_model.c */
bool vkc_model_init(struct vkc_model *m, const struct plan *p, struct arena *a, struct err *e);
void vkc_model_weights(const struct vkc_model *m,
                       struct buf *out); /* the constants, each at its offset */
u64 vkc_digest(struct str bytes);        /* as the exported code computes it */
bool vkc_has_capability(const struct vkc_model *m, u32 capability);

/* export_vulkan_c_tables.c: blocks of the template for NAME.c */
void vkc_print_tables(struct buf *b, const struct vkc_model *m);
void vkc_print_data(struct buf *b, const struct vkc_model *m); /* NAME_vk_data.c */
void vkc_put_string(struct buf *b, struct str s);              /* a literal */
i64 vkc_module_bytes(const struct vkc_model *m, u32 k);

/* export_vulkan_c_features.c */
bool vkc_check_features(const struct vkc_model *m,
                        struct err *e);              /* false: a capability is not known */
u32 vkc_count_extensions(const struct vkc_model *m); /* at most */
void vkc_print_members(struct buf *b, const struct vkc_model *m);  /* structures of features */
void vkc_print_features(struct buf *b, const struct vkc_model *m); /* tables */
void vkc_print_needs(struct buf *b, const struct vkc_model *m);    /* for people */

/* export_vulkan_c_text.c: blocks of all templates by their names; false: no such block. file: the
 * template, "h", "c" or "main" */
bool vkc_print_block(struct buf *b, const struct vkc_model *m, struct str file, struct str name);

#endif
