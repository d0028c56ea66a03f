// SPDX-License-Identifier: Apache-2.0
//
// Fixture for tests of languages: random kernels over all operators, types and access patterns,
// kernels with every structure, float functions with their accuracy; running a binary on a device
// and comparing with the interpreter.
#ifndef QUERN_TEST_LANG_FIXTURE_H
#define QUERN_TEST_LANG_FIXTURE_H

#include "dev/dev.h"
#include "lang/lang.h"
#include "seeds.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "skip.h"

enum { N = 203, MAX_ARGS = 12 };

struct run { /* a kernel, the bytes of its arguments, and its target */
    struct arena arena;
    struct kir kir;
    struct kir_arg arg[MAX_ARGS];
    u32 n_arg;
    i64 param[8];
    i64 grid[2][3];
    u32 n_grid;
    i64 work_size;
    i64 shift; /* offset in elements of arguments in host memory from an aligned address */
};

static inline void fail_with(const struct run *r, const char *what, const struct err *e)
{
    struct buf b = {0};
    kir_print(&b, &r->kir);
    printf("%s: %s\n%s\n", what, e->msg, b.p ? b.p : "");
    buf_release(&b);
    fail();
}

/* Selects a compiler for texts of C, if it is installed. */
static inline bool has_compiler(const char *name)
{
    struct buf b = {0};
    struct err e = {0};
    setenv("QUERN_CC", name, 1);
    bool ok = lang_find(S("c"))->toolchain(&b, NULL, &e);
    buf_release(&b);
    return ok;
}

/* Bytes of a TEMP array. */
static inline i64 temp_size(const struct run *r, kval array)
{
    const struct kir_ins *x = kir_at(&r->kir, array), *n = kir_at(&r->kir, x->a);
    return (n->op == KI_PARAM ? r->param[n->imm.i] : n->imm.i) * dtype_size(x->dtype);
}

/* Runs on a device with copies of the arguments, which come back in out. */
static inline void run_native(struct run *r, struct dev *d, struct str binary, void *out[MAX_ARGS])
{
    struct err e = {0};
    struct kir_memory arrays;
    struct dev_mem mem[MAX_ARGS + 16], whole[MAX_ARGS + 16];
    assert_true(kir_memory(&r->kir, &arrays, &e));
    struct dev_kernel *k = d->driver->load(d, binary, r->kir.name, r->n_grid, &e);
    if (!k) fail_with(r, "load", &e);
    for (u32 i = 0; i < r->n_arg; i++) {
        i64 size = r->arg[i].n * dtype_size(kir_dtype(&r->kir, r->kir.buf.v[i].id));
        i64 shift = r->shift * dtype_size(kir_dtype(&r->kir, r->kir.buf.v[i].id));
        assert_true(d->driver->alloc(d, size + shift, &whole[i], &e));
        mem[i] = whole[i];
        if (mem[i].host) mem[i].host = (char *)mem[i].host + shift, mem[i].size = size;
        assert_true(d->driver->upload(d, mem[i], r->arg[i].p, size, &e));
    }
    for (u32 i = 0; i < arrays.temp.n; i++)
        assert_true(d->driver->alloc(d, temp_size(r, arrays.temp.v[i]), &whole[r->n_arg + i], &e));
    for (u32 i = r->n_arg; i < r->n_arg + arrays.temp.n; i++) mem[i] = whole[i];
    struct dev_launch l = {.kernel = k,
                           .buf = mem,
                           .n_buf = r->n_arg + arrays.temp.n,
                           .param = r->param,
                           .n_param = r->kir.param.n,
                           .grid = (const i64(*)[3])r->grid,
                           .n_grid = r->n_grid,
                           .work_size = r->work_size};
    if (!d->driver->launch(d, &l, &e)) fail_with(r, "launch", &e);
    if (!d->driver->fence(d, &e)) fail_with(r, "fence", &e);
    for (u32 i = 0; i < r->n_arg; i++) {
        out[i] = arena_alloc(&r->arena, mem[i].size);
        assert_true(d->driver->download(d, mem[i], out[i], mem[i].size, &e));
    }
    for (u32 i = 0; i < l.n_buf; i++) d->driver->release(d, &whole[i]);
    d->driver->unload(d, k);
}

static inline void build_as(struct run *r, const char *lang, const struct caps *c,
                            struct buf *binary)
{
    struct err e = {0};
    struct buf text = {0};
    const struct lang *l = lang_find(str_of(lang));
    if (!kir_verify(&r->kir, &e)) fail_with(r, "verify", &e);
    if (!lang_render(&text, l, &r->kir, c, &r->arena, &e)) fail_with(r, "render", &e);
    if (!l->build(binary, buf_view(&text), c, 60, &e)) {
        puts(text.p);
        fail_with(r, "build", &e);
    }
    if (os_env("QUERN_TEST_TEXT")) puts(text.p);
    buf_release(&text);
}

static inline void interpret(struct run *r)
{
    struct err e = {0};
    struct kir_eval_opts o = {.seed = 7};
    if (!kir_eval(&r->kir, r->arg, r->param, &o, &e)) fail_with(r, "interpreter", &e);
}

/* Values to compute with: small ones, large ones, zeros, infinities, NaN. */

static inline double random_value(struct rng *g, enum dtype t)
{
    static const double special[] = {0,         -0.0, 1,     -1,   0.5,  INFINITY,
                                     -INFINITY, NAN,  65504, 1e-7, 3e38, 2147483647.0};
    if (!dtype_is_float(t)) return (double)rng_range(g, -300, 300);
    if (rng_range(g, 0, 9) == 0) return special[rng_range(g, 0, countof(special) - 1)];
    return rng_normal(g) * pow(10, (double)rng_range(g, -2, 2));
}

static inline void add_arg(struct run *r, struct rng *g, const char *name, enum dtype t,
                    enum kir_access access, i64 n)
{
    kir_buf(&r->kir, str_of(name), t, access);
    struct kir_arg a = {.p = arena_alloc(&r->arena, n * dtype_size(t) + 64), .n = n};
    for (i64 i = 0; i < n; i++) {
        double v = random_value(g, t);
        if (dtype_is_float(t)) elem_set_f64(t, a.p, i, v);
        else
            elem_set_i64(t, a.p, i,
                         t == DT_BOOL ? v > 0 : (i64)v * ((i64)1 << rng_range(g, 0, 40)));
    }
    r->arg[r->n_arg++] = a;
}

/* Random pure expressions. */

struct pool {
    struct run *r;
    struct rng *g;
    kval v[64];
    u32 n, lanes;
};

static inline kval pool_any(struct pool *p) { return p->v[rng_range(p->g, 0, p->n - 1)]; }

static inline void pool_add(struct pool *p, kval v)
{
    if (p->n < countof(p->v)) p->v[p->n++] = v;
}

/* Conversions of floats out of an integer's range differ between languages: clamps first. */
static inline kval pool_cast(struct pool *p, enum dtype to, kval v)
{
    struct kir *k = &p->r->kir;
    enum dtype from = kir_dtype(k, v);
    if (from == to) return v;
    if (dtype_is_float(from) && dtype_is_int(to)) {
        if (dtype_size(from) == 2) v = kir_cast(k, from = DT_F32, v);
        kval lo = kir_const_f(k, from, p->lanes, dtype_kind(to) == DK_UINT ? 0 : -100);
        v = kir_bin(k, KI_MIN, kir_const_f(k, from, p->lanes, 100), kir_bin(k, KI_MAX, lo, v));
        v = kir_select(k, kir_un(k, KI_ISNAN, v), lo, v);
    }
    return kir_cast(k, to, v);
}

static inline enum dtype random_dtype(struct rng *g)
{
    enum dtype t;
    do t = (enum dtype)rng_range(g, 1, N_DTYPES - 1);
    while (dtype_is_small(t)); /* those only exist in memory, kernels use their bytes */
    return t;
}

static inline kval pool_as(struct pool *p, enum dtype t) { return pool_cast(p, t, pool_any(p)); }

static inline kval random_float_op(struct pool *p, kval a, kval b)
{
    static const enum kir_op un[] = {KI_NEG,   KI_ABS,  KI_SQRT,  KI_FLOOR, KI_CEIL,
                                     KI_TRUNC, KI_RINT, KI_ISNAN, KI_ISINF};
    static const enum kir_op bin[] = {KI_ADD, KI_SUB, KI_MUL, KI_DIV, KI_MIN,
                                      KI_MAX, KI_EQ,  KI_NE,  KI_LT,  KI_LE};
    if (rng_range(p->g, 0, 2) == 0)
        return kir_un(&p->r->kir, un[rng_range(p->g, 0, countof(un) - 1)], a);
    return kir_bin(&p->r->kir, bin[rng_range(p->g, 0, countof(bin) - 1)], a, b);
}

static inline kval random_int_op(struct pool *p, enum dtype t, kval a, kval b)
{
    static const enum kir_op un[] = {KI_NEG, KI_ABS, KI_NOT};
    static const enum kir_op bin[] = {KI_ADD, KI_SUB, KI_MUL, KI_DIV, KI_MOD, KI_MIN,
                                      KI_MAX, KI_AND, KI_OR,  KI_XOR, KI_SHL, KI_SHR,
                                      KI_EQ,  KI_NE,  KI_LT,  KI_LE};
    struct kir *k = &p->r->kir;
    if (rng_range(p->g, 0, 5) == 0) return kir_un(k, un[rng_range(p->g, 0, countof(un) - 1)], a);
    enum kir_op op = bin[rng_range(p->g, 0, countof(bin) - 1)];
    if (op == KI_DIV || op == KI_MOD) b = kir_bin(k, KI_OR, b, kir_const_i(k, t, p->lanes, 1));
    if (op == KI_SHL || op == KI_SHR) b = kir_bin(k, KI_AND, b, kir_const_i(k, t, p->lanes, 7));
    return kir_bin(k, op, a, b);
}

static inline kval random_bool_op(struct pool *p, kval a, kval b)
{
    static const enum kir_op bin[] = {KI_AND, KI_OR, KI_XOR, KI_EQ, KI_NE};
    if (rng_range(p->g, 0, 3) == 0) return kir_un(&p->r->kir, KI_NOT, a);
    return kir_bin(&p->r->kir, bin[rng_range(p->g, 0, countof(bin) - 1)], a, b);
}

static inline kval random_reduction(struct pool *p, kval a)
{
    static const enum kir_op op[] = {KI_HADD, KI_HMIN, KI_HMAX};
    struct kir *k = &p->r->kir;
    kval s = rng_range(p->g, 0, 1) ? kir_un(k, op[rng_range(p->g, 0, 2)], a)
                                   : kir_lane(k, a, rng_range(p->g, 0, p->lanes - 1));
    return kir_splat(k, s, p->lanes);
}

/* `lanes` values of type t, small integers if t is a float: repeated values of the pool, or
   neighbours from memory. */
static inline kval wide_value(struct pool *p, enum dtype t, u32 lanes)
{
    struct kir *k = &p->r->kir;
    struct pool wide = *p;
    enum dtype via = dtype_is_float(t) ? DT_I8 : t;
    if (rng_range(p->g, 0, 2) == 0) return kir_cast(k, t, kir_repeat(k, pool_as(p, via), lanes));
    wide.lanes = lanes;
    kval at = kir_ramp(k, kir_int(k, rng_range(p->g, 0, N - 64)), 1, lanes);
    return kir_cast(k, t, pool_cast(&wide, via, kir_load(k, k->buf.v[rng_range(p->g, 0, 3)].id, at)));
}

static inline void random_dot(struct pool *p)
{
    static const enum dtype of[][3] = {{DT_U8, DT_I8, DT_I32},     {DT_I8, DT_U8, DT_I32},
                                       {DT_I8, DT_I8, DT_I32},     {DT_U16, DT_I16, DT_I32},
                                       {DT_I16, DT_I16, DT_I32},   {DT_BF16, DT_BF16, DT_F32},
                                       {DT_F16, DT_F16, DT_F32}};
    struct kir *k = &p->r->kir;
    const enum dtype *t = of[rng_range(p->g, 0, countof(of) - 1)];
    u32 terms = kir_dot_terms(t[0], t[1], t[2]), lanes = terms * p->lanes;
    if (lanes > 64) return;
    kval a = wide_value(p, t[0], lanes), b = wide_value(p, t[1], lanes);
    kval sum = kir_cast(k, t[2], pool_as(p, t[2] == DT_F32 ? DT_I8 : DT_I32));
    pool_add(p, kir_dot(k, a, b, sum));
    pool_add(p, kir_every(k, a, rng_range(p->g, 0, terms - 1), p->lanes));
}

static inline void random_mmla(struct pool *p)
{
    static const enum dtype of[][3] = {{DT_U8, DT_I8, DT_I32}, {DT_I8, DT_U8, DT_I32}, {DT_I8, DT_I8, DT_I32}, {DT_U8, DT_U8, DT_I32}, {DT_BF16, DT_BF16, DT_F32}};
    struct kir *k = &p->r->kir;
    const enum dtype *t = of[rng_range(p->g, 0, countof(of) - 1)];
    u32 lanes = 4 * kir_dot_terms(t[0], t[1], t[2]);
    if (p->lanes != 4) return;
    kval a = wide_value(p, t[0], lanes), b = wide_value(p, t[1], lanes);
    kval sum = kir_cast(k, t[2], pool_as(p, t[2] == DT_F32 ? DT_I8 : DT_I32));
    pool_add(p, kir_mmla(k, kir_halves(k, a, wide_value(p, t[0], lanes), rng_range(p->g, 0, 1)), b, sum));
}

static inline void pool_step(struct pool *p)
{
    struct kir *k = &p->r->kir;
    enum dtype t = random_dtype(p->g), half = dtype_size(t) == 2 && dtype_is_float(t) ? t : DT_NONE;
    if (half) t = DT_F32; /* half types are for storage only */
    kval a = pool_as(p, t), b = pool_as(p, t);
    i64 what = rng_range(p->g, 0, 9);
    if (what == 2) rng_range(p->g, 0, 1) ? random_dot(p) : random_mmla(p);
    else if (what == 0) pool_add(p, kir_select(k, pool_as(p, DT_BOOL), a, b));
    else if (what == 1 && p->lanes > 1 && t != DT_BOOL) pool_add(p, random_reduction(p, a));
    else if (dtype_is_float(t)) pool_add(p, random_float_op(p, a, b));
    else if (t == DT_BOOL) pool_add(p, random_bool_op(p, a, b));
    else pool_add(p, random_int_op(p, t, a, b));
    if (half && kir_dtype(k, p->v[p->n - 1]) == DT_F32)
        pool_add(p, kir_cast(k, half, p->v[p->n - 1]));
}

/* Loads: contiguous, partial, strided, gathered, scalar. */

static inline kval random_load(struct pool *p, u32 arg, kval base, kval n)
{
    struct kir *k = &p->r->kir;
    kval b = k->buf.v[arg].id;
    switch (rng_range(p->g, 0, 4)) {
    case 0: return kir_load_n(k, b, kir_ramp(k, base, 1, p->lanes), n);
    case 1: return kir_load(k, b, kir_ramp(k, kir_mod_i(k, base, 64), 1, p->lanes));
    case 2: return kir_load(k, b, kir_ramp(k, kir_mod_i(k, base, 32), 2, p->lanes));
    case 3: return kir_splat(k, kir_load(k, b, kir_mod_i(k, kir_add_i(k, base, 17), N)), p->lanes);
    default: {
        kval i = pool_as(p, DT_U8);
        i = kir_bin(k, KI_MOD, kir_cast(k, DT_I64, i), kir_const_i(k, DT_I64, p->lanes, N));
        return kir_load(k, b, i);
    }
    }
}

static inline void random_inputs(struct run *r, struct rng *g)
{
    static const char *const names[] = {"in0", "in1", "in2", "in3"};
    for (i64 i = 0; i < countof(names); i++) add_arg(r, g, names[i], random_dtype(g), KA_IN, N);
}

/* Every iteration of the grid computes `lanes` elements of every output. */
static inline void random_kernel(struct run *r, struct rng *g)
{
    struct kir *k = &r->kir;
    static const char *const names[] = {"out0", "out1", "out2"};
    enum dtype t[countof(names)];
    u32 lanes = 1u << rng_range(g, 0, 5);
    kir_init(k, &r->arena, S("random"));
    random_inputs(r, g);
    for (i64 i = 0; i < countof(names); i++)
        add_arg(r, g, names[i], t[i] = random_dtype(g), KA_OUT, N);
    r->grid[0][0] = ceil_div(N, lanes);
    r->grid[0][1] = r->grid[0][2] = 1;
    r->n_grid = 1;
    r->param[0] = r->grid[0][0];
    r->param[1] = N;
    kval at = kir_grid(k, kir_param(k, S("rows")));
    kval base = kir_mul_i(k, at, lanes);
    kval n = kir_min(k, kir_int(k, lanes), kir_sub(k, kir_param(k, S("n")), base));
    struct pool p = {.r = r, .g = g, .lanes = lanes};
    pool_add(&p, kir_load_n(k, k->buf.v[0].id, kir_ramp(k, base, 1, lanes), n));
    for (u32 i = 0; i < 4; i++) pool_add(&p, random_load(&p, i, base, n));
    for (i64 i = rng_range(g, 5, 30); i > 0; i--) pool_step(&p);
    for (u32 i = 0; i < countof(names); i++) {
        kval v = i ? pool_as(&p, t[i]) : pool_cast(&p, t[i], p.v[p.n - 1]);
        kval to = k->buf.v[4 + i].id, idx = kir_ramp(k, base, 1, lanes);
        if (rng_range(g, 0, 2) == 0) kir_stream(k, to, idx, v, n);
        else kir_store_n(k, to, idx, v, n);
    }
    kir_end(k);
}

static inline bool same(enum dtype t, const void *a, const void *b, i64 i)
{
    if (!dtype_is_float(t)) return elem_i64(t, a, i) == elem_i64(t, b, i);
    double x = elem_f64(t, a, i), y = elem_f64(t, b, i);
    return x == y || (isnan(x) && isnan(y));
}

static inline void compare(struct run *r, void *out[MAX_ARGS], const char *what)
{
    for (u32 i = 0; i < r->n_arg; i++) {
        enum dtype t = kir_dtype(&r->kir, r->kir.buf.v[i].id);
        for (i64 j = 0; j < r->arg[i].n; j++) {
            if (same(t, r->arg[i].p, out[i], j)) continue;
            struct err e = {0};
            err_set(&e, ERR_FAILED, "%.*s[%lld] is %.9g, not %.9g", STR_ARG(r->kir.buf.v[i].name),
                    (long long)j, elem_f64(t, out[i], j), elem_f64(t, r->arg[i].p, j));
            fail_with(r, what, &e);
        }
    }
}

/* Structure: loops of every kind, branches, arrays of every space, two grids. */

/* size: the texts of its two parameters, 3 and N */
static inline void structured_kernel(struct run *r, struct rng *g, const char *const size[2])
{
    struct kir *k = &r->kir;
    u32 lanes = 1u << rng_range(g, 1, 4);
    i64 rows = 12, depth = rng_range(g, 1, 5);
    kir_init(k, &r->arena, S("structured"));
    add_arg(r, g, "x", DT_F32, KA_IN, rows * N);
    add_arg(r, g, "y", DT_F32, KA_OUT, rows * lanes);
    add_arg(r, g, "z", DT_I32, KA_OUT, rows * depth);
    i64 grid[2][3] = {{3, 2, 2}, {rows, depth, 1}};
    memcpy(r->grid, grid, sizeof grid);
    r->n_grid = 2;
    r->param[0] = 3;
    r->param[1] = N;
    r->work_size = round_up(N * 4, 64) + round_up(lanes * 8, 64);
    kval n = kir_int(k, N), p0 = kir_param(k, str_of(size[0])), p1 = kir_param(k, str_of(size[1]));
    kval temp = kir_alloc(k, KS_TEMP, DT_F32, 1, kir_int(k, rows * lanes));
    kval a = kir_grid(k, p0), b = kir_grid(k, kir_int(k, 2)), c = kir_grid(k, kir_int(k, 2));
    kval row = kir_add(k, kir_mul_i(k, kir_add(k, kir_mul_i(k, a, 2), b), 2), c);
    kval from = kir_mul_i(k, row, N);
    kval work = kir_alloc(k, KS_WORK, DT_F32, 1, p1),
         wide = kir_alloc(k, KS_WORK, DT_F64, 1, kir_int(k, lanes));
    kval i = kir_loop(k, KL_VECTOR, kir_int(k, 0), n, 1);
    kval x = kir_load(k, k->buf.v[0].id, kir_add(k, from, i));
    x = kir_select(k, kir_un(k, KI_ISINF, x), kir_const_f(k, DT_F32, 1, 2), x);
    kir_store(k, work, i, kir_max(k, x, kir_const_f(k, DT_F32, 1, -1)));
    kir_end(k);
    kval acc = kir_alloc(k, KS_REG, DT_F32, lanes, kir_int(k, 2));
    for (i64 j = 0; j < 2; j++)
        kir_store(k, acc, kir_int(k, j), kir_const_f(k, DT_F32, lanes, (double)j));
    i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_sub(k, n, kir_int(k, lanes * 2)), 3);
    kval u = kir_loop(k, KL_UNROLL, kir_int(k, 0), kir_int(k, 2), 1);
    kval v = kir_load(k, work, kir_ramp(k, kir_add(k, i, kir_mul_i(k, u, lanes)), 1, lanes));
    kir_if(k, kir_lt(k, kir_mod_i(k, i, 5), kir_int(k, 2)));
    kir_store(k, acc, u, kir_add(k, kir_load(k, acc, u), v));
    kir_else(k);
    kir_store(k, acc, u, kir_bin(k, KI_MIN, kir_load(k, acc, u), v));
    kir_end(k);
    kir_end(k);
    kir_end(k);
    kval sum = kir_add(k, kir_load(k, acc, kir_int(k, 0)), kir_load(k, acc, kir_int(k, 1)));
    kir_store(k, wide, kir_ramp(k, kir_int(k, 0), 1, lanes), kir_cast(k, DT_F64, sum));
    sum = kir_cast(k, DT_F32, kir_load(k, wide, kir_ramp(k, kir_int(k, 0), 1, lanes)));
    kir_stream(k, temp, kir_ramp(k, kir_mul_i(k, row, lanes), 1, lanes), sum, 0);
    for (int j = 0; j < 3; j++) kir_end(k);
    a = kir_grid(k, kir_int(k, rows));
    b = kir_grid(k, kir_int(k, depth));
    kval s = kir_load(k, temp, kir_ramp(k, kir_mul_i(k, a, lanes), 1, lanes));
    kir_if(k, kir_bin(k, KI_EQ, b, kir_int(k, 0)));
    kir_store(k, k->buf.v[1].id, kir_ramp(k, kir_mul_i(k, a, lanes), 1, lanes), s);
    kir_end(k);
    kval least = kir_min(k, kir_max(k, kir_un(k, KI_HMIN, s), kir_const_f(k, DT_F32, 1, -9)),
                         kir_const_f(k, DT_F32, 1, 9));
    least = kir_select(k, kir_un(k, KI_ISNAN, least), kir_const_f(k, DT_F32, 1, 0), least);
    /* loops whose bounds are selects and bit operations */
    kval count = kir_alloc(k, KS_REG, DT_F32, 1, kir_int(k, 1));
    kir_store(k, count, kir_int(k, 0), least);
    kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_select(k, kir_lt(k, a, kir_int(k, 5)), kir_int(k, 2), kir_int(k, 3)), 1);
    kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_bin(k, KI_AND, a, kir_int(k, 3)), 1);
    kir_store(k, count, kir_int(k, 0), kir_add(k, kir_load(k, count, kir_int(k, 0)), kir_const_f(k, DT_F32, 1, 1)));
    kir_end(k);
    kir_end(k);
    least = kir_load(k, count, kir_int(k, 0));
    kir_store(k, k->buf.v[2].id, kir_add(k, kir_mul_i(k, a, depth), b), kir_cast(k, DT_I32, least));
    kir_end(k);
    kir_end(k);
}

/* Functions of floats, against the C library in double. */

struct function {
    enum kir_op op;
    double (*exact)(double);
    double lo, hi; /* range in which accuracy is measured */
    double ulp;    /* maximal error */
};

static const struct function functions[] = {
    {KI_EXP, exp, -104, 90, 2},       {KI_LOG, log, 1e-45, 3.4e38, 2}, {KI_TANH, tanh, -12, 12, 4},
    {KI_ERF, erf, -5, 5, 4},          {KI_SIN, sin, -1e4, 1e4, 2.5},   {KI_COS, cos, -1e4, 1e4, 2.5},
    {KI_TAN, tan, -1e3, 1e3, 4},      {KI_ASIN, asin, -1, 1, 2.5},     {KI_ACOS, acos, -1, 1, 2},
    {KI_ATAN, atan, -1e3, 1e3, 2},    {KI_SINH, sinh, -89, 89, 3},     {KI_COSH, cosh, -89, 89, 3},
    {KI_ASINH, asinh, -1e9, 1e9, 3},  {KI_ACOSH, acosh, 1, 1e9, 3},    {KI_ATANH, atanh, -1, 1, 3},
    {KI_SQRT, sqrt, 0, 3e38, 0.5001},
};

static inline double ulp_of(double v) /* spacing of f32 at v */
{
    int e;
    frexp(v, &e);
    return ldexp(1, (e < -125 ? -125 : e) - 24);
}

/* A third of the values uniform, a third of random magnitude, a third near zero; then special ones. */
static inline void fill_function(const struct function *f, float *x, i64 n)
{
    static const float special[] = {0.0f,    -0.0f, INFINITY, -INFINITY, NAN,     1e-40f,
                                    -1e-40f, 1.0f,  -1.0f,    3.4e38f,   -3.4e38f};
    struct rng g = rng_seed(f->op);
    for (i64 i = 0; i < n; i++) {
        double u = rng_f64(&g), v = f->lo + (f->hi - f->lo) * u;
        if (i % 3 == 1) v = copysign(pow(10, -40 + 78 * u), f->lo < 0 && i % 2 ? -1 : 1);
        if (i % 3 == 2) v = f->lo < 0 ? 4 * u - 2 : u * 4;
        if (v < f->lo || v > f->hi) v = f->lo + (f->hi - f->lo) * u;
        x[i] = (float)v;
    }
    for (i64 i = 0; i < countof(special); i++) x[i] = special[i];
}

static inline void function_kernel(struct run *r, enum kir_op op, u32 lanes, i64 n)
{
    struct kir *k = &r->kir;
    kir_init(k, &r->arena, S("function"));
    kval x = kir_buf(k, S("x"), DT_F32, KA_IN), y = kir_buf(k, S("y"), DT_F32, KA_OUT);
    kval at = kir_mul_i(k, kir_grid(k, kir_int(k, n / 64)), 64);
    kval i = kir_loop(k, KL_VECTOR, kir_int(k, 0), kir_int(k, 64), lanes);
    kval idx = kir_ramp(k, kir_add(k, at, i), 1, lanes);
    kir_store(k, y, idx, kir_un(k, op, kir_load(k, x, idx)));
    kir_end(k);
    kir_end(k);
    r->n_grid = 1;
    r->grid[0][0] = n / 64;
    r->grid[0][1] = r->grid[0][2] = 1;
    r->n_arg = 2;
}

/* The largest error of n results in units in the last place, and its position. */
static inline double function_error(const struct function *f, const float *x, const float *got,
                                    i64 n, double *at)
{
    double worst = 0;
    *at = 0;
    for (i64 i = 0; i < n; i++) {
        double want = f->exact(x[i]);
        if ((isnan(want) && isnan(got[i])) || (float)want == got[i]) continue;
        if (f->op == KI_EXP && want < 0x1.7p-126 && got[i] == 0) continue; /* no subnormal numbers */
        bool is_off = isnan(want) || isnan(got[i]) || isinf(got[i]);
        double bad = is_off ? (double)INFINITY : fabs(got[i] - want) / ulp_of(want);
        if (bad > worst) worst = bad, *at = x[i];
    }
    return worst;
}

#endif
