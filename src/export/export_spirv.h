// SPDX-License-Identifier: Apache-2.0
//
// Private to export/: one grid of a kernel in a SPIR-V module, for exporters of programs for
// Vulkan: the buffers that it reads and writes, its requirements, and, for readers of files with
// one entry point, a module of its own (export_spirv.c).
#ifndef QUERN_EXPORT_SPIRV_H
#define QUERN_EXPORT_SPIRV_H

#include "core/spirv.h"

enum { USE_READ = 1, USE_WRITE = 2 };

enum { SPIRV_MAX_FLOATS = 16 };

struct spirv_grid {
    struct str code;   /* SPIR-V, in the arena: one entry point, "main"; empty: only read */
    u8 *use;           /* per binding of descriptor set 0: USE_ bits */
    u32 n_use;         /* bindings that the module declares */
    i64 push_bytes;    /* of the push constants that the module declares, even if this grid does not
                          read them */
    u32 local[3];      /* threads of a workgroup */
    u32 subgroup;      /* required size, 0: any */
    bool needs_matrix; /* cooperative matrices */
    struct spirv_floats {
        u32 mode, width;
    } floats[SPIRV_MAX_FLOATS]; /* execution modes that control floats of so many bits */
    u32 n_floats;
};
/* What is known about this entry point. */
bool spirv_grid_read(struct spirv_grid *k, struct str module, struct str entry, struct arena *a,
                     struct err *e);
/* Likewise, and the module with this entry point only. */
bool spirv_grid_take(struct spirv_grid *k, struct str module, struct str entry, struct arena *a,
                     struct err *e);
/* Into descriptor set 1, binding i becoming binding[i]. */
void spirv_grid_rebind(struct spirv_grid *k, const u32 *binding);

#endif
