// SPDX-License-Identifier: Apache-2.0
//
// For tests of language spirv: a target with all features, and programs of SPIRV-Tools run on a
// module.
#ifndef QUERN_TEST_SPIRV_TOOLS_H
#define QUERN_TEST_SPIRV_TOOLS_H

#include "core/spirv.h"

#include <setjmp.h>
#include <string.h>

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

/* Runs a program of SPIRV-Tools on a module; false: it reports an error, or is missing. */
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

/* SPIRV-Tools of Debian do not know SPV_KHR_cooperative_matrix yet, but its predecessor, whose
   types have no use (A, B, accumulator) and whose layout is a constant bool. A module is rewritten
   for it, so that all the rest is judged, too. Types that differ in their use only are kept apart
   by constants of the same value. */
struct to_nv {
    struct buf *out;
    u32 n_ids, uint, scope[3]; /* constants of the scope, one for each use */
    u32 bool_type, is[2];      /* false, true */
    u32 *value;                /* of constants, by id */
    bool *is_matrix;           /* types, by id */
};

static inline void nv_put(struct to_nv *t, u32 op, const u32 *w, u32 n)
{
    u32 first = (n + 1) << 16 | op;
    buf_put(t->out, &first, sizeof first);
    buf_put(t->out, w, (i64)sizeof *w * n);
}

static inline void nv_type(struct to_nv *t, const u32 *w)
{
    enum { OP_TYPE_NV = 5358 };
    if (!t->scope[0])
        for (u32 i = 0; i < 3; i++) {
            t->scope[i] = t->n_ids++;
            nv_put(t, SPV_CONSTANT, (u32[]){t->uint, t->scope[i], t->value[w[3]]}, 3);
        }
    t->is_matrix[w[1]] = true;
    nv_put(t, OP_TYPE_NV, (u32[]){w[1], w[2], t->scope[t->value[w[6]]], w[4], w[5]}, 5);
}

static inline void nv_bools(struct to_nv *t)
{
    if (!t->bool_type) nv_put(t, SPV_TYPE_BOOL, (u32[]){t->bool_type = t->n_ids++}, 1);
    for (u32 i = 0; i < 2; i++) {
        t->is[i] = t->n_ids++;
        nv_put(t, i ? SPV_CONSTANT_TRUE : SPV_CONSTANT_FALSE, (u32[]){t->bool_type, t->is[i]}, 2);
    }
}

static inline void nv_ins(struct to_nv *t, const u32 *w)
{
    enum { CAP_NV = 5357, OP_LOAD_NV = 5359, OP_STORE_NV = 5360, OP_MULADD_NV = 5361 };
    u32 op = w[0] & 0xffff, n = (w[0] >> 16) - 1;
    if (op == SPV_TYPE_INT && w[2] == 32) t->uint = w[1];
    if (op == SPV_TYPE_BOOL) t->bool_type = w[1];
    if (op == SPV_CONSTANT) t->value[w[2]] = w[3];
    if (op == SPV_FUNCTION && !t->is[0]) nv_bools(t);
    switch (op) {
    case SPV_CAPABILITY: nv_put(t, op, (u32[]){w[1] == SPV_CAP_MATRIX ? CAP_NV : w[1]}, 1); break;
    case SPV_TYPE_MATRIX: nv_type(t, w); break;
    case SPV_MATRIX_LOAD:
        nv_put(t, OP_LOAD_NV, (u32[]){w[1], w[2], w[3], w[5], t->is[t->value[w[4]]], w[6]}, n);
        break;
    case SPV_MATRIX_STORE:
        nv_put(t, OP_STORE_NV, (u32[]){w[1], w[2], w[4], t->is[t->value[w[3]]], w[5]}, n);
        break;
    case SPV_F_MUL: nv_put(t, t->is_matrix[w[1]] ? SPV_F_DIV : op, w + 1, n); break; /* the older extension lacks it */
    case SPV_MATRIX_MULADD: nv_put(t, OP_MULADD_NV, w + 1, 5); break;
    default: nv_put(t, op, w + 1, n); break;
    }
}

static inline void matrices_to_nv(struct str module, struct buf *out)
{
    struct arena a = {0};
    u32 n_words = (u32)(module.n / 4), *w = arena_array(&a, u32, n_words);
    memcpy(w, module.p, (size_t)module.n);
    struct to_nv t = {.out = out, .n_ids = w[3], .value = arena_array(&a, u32, w[3]), .is_matrix = arena_array(&a, bool, w[3])};
    const char khr[] = "SPV_KHR_cooperative_matrix", nv[] = "SPV_NV_cooperative_matrix\0";
    buf_put(out, w, SPIRV_HEADER * 4);
    for (u32 i = SPIRV_HEADER; i < n_words; i += w[i] >> 16) {
        bool is_name = (w[i] & 0xffff) == SPV_EXTENSION && !memcmp(w + i + 1, khr, sizeof khr);
        if (is_name) memcpy(w + i + 1, nv, sizeof khr);
        nv_ins(&t, w + i);
    }
    memcpy(out->p + 3 * 4, &t.n_ids, sizeof t.n_ids);
    arena_release(&a);
}

#endif
