// SPDX-License-Identifier: Apache-2.0
//
// For the tests of language spirv: a target that has everything, and SPIRV-Tools' programs run on a
// module.
#ifndef QUERN_TEST_SPIRV_TOOLS_H
#define QUERN_TEST_SPIRV_TOOLS_H

#include "core/spirv.h"

#include <setjmp.h>

#include <cmocka.h>

/* A target that has everything. */
static inline struct caps gpu_caps(void)
{
    return (struct caps){.arch = "test",
                         .vector_bytes = 16,
                         .is_gpu = true,
                         .has_fma = true,
                         .max_group = 1024,
                         .subgroup = 32,
                         .subgroup_min = 8,
                         .subgroup_max = 64,
                         .shared_bytes = 32 << 10,
                         .max_push = 128,
                         .has_subgroup = true,
                         .has_f16 = true,
                         .has_f64 = true,
                         .has_i8 = true,
                         .has_i16 = true,
                         .has_i64 = true,
                         .spirv = 16};
}

static inline const char *target_env(const struct caps *c)
{
    return c->spirv >= 16   ? "vulkan1.3"
           : c->spirv >= 15 ? "vulkan1.2"
           : c->spirv >= 13 ? "vulkan1.1"
                            : "vulkan1.0";
}

/* Runs a program of SPIRV-Tools on a module; false: it complains, or is not there. */
static inline bool run_tool(const char *tool, const char *const *option, struct str module,
                            struct buf *out)
{
    struct arena a = {0};
    struct err e = {0};
    struct str dir;
    const char *argv[8] = {tool};
    u32 n = 1;
    assert_true(os_temp_dir(&a, &dir, &e));
    const char *path = str_fmt(&a, "%.*s/k.spv", STR_ARG(dir)).p;
    assert_true(os_write(path, module.p, module.n, &e));
    while (option && *option) argv[n++] = *option++;
    argv[n] = path;
    struct os_status s = os_run(&(struct os_proc_opts){.argv = argv, .timeout = 20, .out = out});
    os_remove_tree(str_z(&a, dir));
    arena_release(&a);
    return s.how == OS_EXITED && s.code == 0;
}

#endif
