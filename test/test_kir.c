// SPDX-License-Identifier: Apache-2.0
//
// Kernel IR: properties over random expressions and random kernels.
//   - the builder's folding gives what unfolded evaluation gives, bit for bit, and what it claims
//     of integers (bounds, divisors) holds;
//   - printing and parsing are inverse; mutated texts never crash;
//   - legalised kernels compute what the original computes.
// Random kernels come from one generator that emits either through the builder or unfolded (`raw`).
// Examples of faults, refusals and folding are in test_kir_checks.c.
#include "kir/kir.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N_ELEMS = 256, MAX_POOL = 48 };

struct pool {
    kval v[MAX_POOL];
    i64 bound[MAX_POOL]; /* of integers: largest possible magnitude */
    u32 n;
};

struct gen {
    struct kir k;
    struct rng r;
    bool raw;            /* no folding, no sharing */
    u32 lanes;           /* of float vectors */
    struct pool f, i, b; /* f32 vectors, i64 scalars, bool vectors */
    kval x, y, z;        /* in f32, out f32, out i64 */
    kval reg[2];         /* arrays of 4 vectors, written from the start */
    kval out_f, out_i;   /* next free element of this iteration */
    u32 depth;
};

static i64 pick(struct gen *g, i64 n) { return rng_range(&g->r, 0, n - 1); }

static kval choose(struct gen *g, const struct pool *p) { return p->v[pick(g, p->n)]; }

static void keep(struct gen *g, struct pool *p, kval v)
{
    p->v[p->n < MAX_POOL ? p->n++ : pick(g, MAX_POOL)] = v;
}

static void keep_int(struct gen *g, kval v, i64 bound)
{
    u32 at = g->i.n < MAX_POOL ? g->i.n++ : (u32)pick(g, MAX_POOL);
    g->i.v[at] = v;
    g->i.bound[at] = bound;
}

/* Emission, folded or raw. */

static kval emit(struct gen *g, struct kir_ins x) { return kir_push(&g->k, x); }

static kval g_splat(struct gen *g, kval a, u32 lanes)
{
    const struct kir_ins *x = kir_at(&g->k, a);
    if (!g->raw) return kir_splat(&g->k, a, lanes);
    if (x->lanes == lanes) return a;
    return emit(g, (struct kir_ins){.op = KI_SPLAT, .dtype = x->dtype, .lanes = (u8)lanes, .a = a});
}

static kval g_op(struct gen *g, enum kir_op op, kval a, kval b, kval c)
{
    struct kir *k = &g->k;
    if (g->raw) {
        const struct kir_ins *t = kir_at(k, op == KI_SELECT ? b : a);
        bool is_bool = kir_op_info(op)->rule == 'B';
        return emit(g, (struct kir_ins){.op = (u8)op,
                                        .dtype = is_bool ? DT_BOOL : t->dtype,
                                        .lanes = t->lanes,
                                        .a = a,
                                        .b = b,
                                        .c = c});
    }
    if (op == KI_SELECT) return kir_select(k, a, b, c);
    if (op == KI_FMA) return kir_fma(k, a, b, c);
    return b ? kir_bin(k, op, a, b) : kir_un(k, op, a);
}

static kval g_cast(struct gen *g, enum dtype t, kval a)
{
    if (!g->raw) return kir_cast(&g->k, t, a);
    return emit(g, (struct kir_ins){
                       .op = KI_CAST, .dtype = (u8)t, .lanes = kir_at(&g->k, a)->lanes, .a = a});
}

static kval g_int(struct gen *g, i64 v)
{
    if (!g->raw) return kir_int(&g->k, v);
    return emit(g, (struct kir_ins){.op = KI_CONST, .dtype = DT_I64, .lanes = 1, .imm.i = v});
}

static kval g_float(struct gen *g, double v)
{
    if (!g->raw) return kir_const_f(&g->k, DT_F32, g->lanes, v);
    return emit(g, (struct kir_ins){
                       .op = KI_CONST, .dtype = DT_F32, .lanes = (u8)g->lanes, .imm.f = (float)v});
}

static kval g_ramp(struct gen *g, kval base, i64 stride)
{
    if (!g->raw || g->lanes == 1)
        return g->lanes == 1 ? base : kir_ramp(&g->k, base, stride, g->lanes);
    return emit(
        g, (struct kir_ins){
               .op = KI_RAMP, .dtype = DT_I64, .lanes = (u8)g->lanes, .a = base, .imm.i = stride});
}

static kval g_load(struct gen *g, kval array, kval idx)
{
    if (!g->raw) return kir_load(&g->k, array, idx);
    const struct kir_ins *p = kir_at(&g->k, array);
    u32 lanes = (u32)p->lanes * kir_lanes(&g->k, idx);
    return emit(g, (struct kir_ins){
                       .op = KI_LOAD, .dtype = p->dtype, .lanes = (u8)lanes, .a = array, .b = idx});
}

/* Random values. Integers stay small enough never to overflow: products have one small factor. */

static i64 some_int(struct gen *g)
{
    static const i64 list[] = {0, 1, -1, 2, 3, 4, 8, 16, 7, -5, 12, 64};
    return list[pick(g, countof(list))];
}

static double some_float(struct gen *g)
{
    static const double list[] = {
        0.0, -0.0, 1, -1, 2, 0.5, -3.75, 1e30, 0.25, __builtin_inf(), __builtin_nan("")};
    return list[pick(g, countof(list))];
}

static void step_int(struct gen *g)
{
    static const enum kir_op ops[] = {KI_ADD, KI_SUB, KI_MUL, KI_DIV, KI_MOD,
                                      KI_MIN, KI_MAX, KI_ADD, KI_MUL};
    enum kir_op op = ops[pick(g, countof(ops))];
    u32 x = (u32)pick(g, g->i.n), y = (u32)pick(g, g->i.n);
    kval a = g->i.v[x], b = g->i.v[y];
    i64 c = some_int(g), bound_a = g->i.bound[x], bound_b = g->i.bound[y];
    bool is_div = op == KI_DIV || op == KI_MOD;
    c = is_div && !c ? 6 : c;
    if (op == KI_MUL || is_div || pick(g, 3) == 0) {
        b = g_int(g, c);
        bound_b = 64;
    }
    i64 bound = op == KI_MUL ? bound_a * 64 : is_div ? bound_a : bound_a + bound_b;
    if (bound >> 40) return;
    bool is_swapped = !is_div && pick(g, 8) == 0;
    keep_int(g, is_swapped ? g_op(g, op, b, a, 0) : g_op(g, op, a, b, 0), bound);
}

static void step_float(struct gen *g)
{
    static const enum kir_op bin[] = {KI_ADD, KI_SUB, KI_MUL, KI_DIV,
                                      KI_MIN, KI_MAX, KI_ADD, KI_MUL};
    static const enum kir_op un[] = {KI_NEG,   KI_ABS, KI_SQRT, KI_FLOOR,
                                     KI_TRUNC, KI_EXP, KI_RINT, KI_NEG};
    kval a = choose(g, &g->f), b = pick(g, 3) ? choose(g, &g->f) : g_float(g, some_float(g));
    kval v;
    switch (pick(g, 6)) {
    case 0: v = g_op(g, un[pick(g, countof(un))], a, 0, 0); break;
    case 1: v = g_op(g, KI_FMA, a, b, choose(g, &g->f)); break;
    case 2: v = g_op(g, KI_SELECT, choose(g, &g->b), a, b); break;
    case 3: v = g_op(g, bin[pick(g, countof(bin))], b, a, 0); break;
    default: v = g_op(g, bin[pick(g, countof(bin))], a, b, 0); break;
    }
    keep(g, &g->f, v);
}

/* Choices have a statement of their own, because compilers evaluate arguments in different orders. */
static kval op_of_two(struct gen *g, enum kir_op op, const struct pool *p)
{
    kval b = choose(g, p), a = choose(g, p);
    return g_op(g, op, a, b, 0);
}

static void store_some(struct gen *g, kval reg, i64 n)
{
    kval v = choose(g, &g->f);
    kir_store(&g->k, reg, kir_int(&g->k, pick(g, n)), v);
}

static kval compare_ramp(struct gen *g, enum kir_op op)
{
    kval base = choose(g, &g->i), ramp = g_ramp(g, base, 1 + pick(g, 3)), all = choose(g, &g->i);
    all = g_splat(g, all, g->lanes);
    const bool is_left = pick(g, 2);
    kval a = is_left ? ramp : all, b = is_left ? all : ramp;
    return g->raw || (op != KI_LT && op != KI_LE) ? g_op(g, op, a, b, 0) : kir_compare_index(&g->k, op, a, b);
}

static void step_bool(struct gen *g)
{
    static const enum kir_op test[] = {KI_EQ, KI_NE, KI_LT, KI_LE};
    static const enum kir_op logic[] = {KI_AND, KI_OR, KI_XOR};
    enum kir_op op = test[pick(g, countof(test))];
    kval v;
    switch (pick(g, 5)) {
    case 0: v = op_of_two(g, op, &g->f); break;
    case 1: v = op_of_two(g, logic[pick(g, 3)], &g->b); break;
    case 2: v = g_op(g, KI_NOT, choose(g, &g->b), 0, 0); break;
    case 3: v = compare_ramp(g, op); break;
    default: v = g_splat(g, op_of_two(g, op, &g->i), g->lanes); break;
    }
    keep(g, &g->b, v);
}

/* Vector indices: a ramp through integer operations, then a gather. */
static void step_gather(struct gen *g)
{
    i64 step = pick(g, 2) ? 1 : -3;
    kval idx = g_ramp(g, choose(g, &g->i), step);
    kval s = g_splat(g, g_int(g, some_int(g)), g->lanes);
    static const enum kir_op ops[] = {KI_ADD, KI_SUB, KI_MUL};
    if (pick(g, 2)) { /* a base that is a multiple of the divisor below, or of a divisor of that */
        kval by16 = g_int(g, 16), base = g_op(g, KI_MUL, choose(g, &g->i), by16, 0);
        kval ramp = g_ramp(g, base, 1), by = g_splat(g, g_int(g, (1 + 2 * pick(g, 2)) << (2 + pick(g, 4))), g->lanes);
        idx = g_op(g, pick(g, 2) ? KI_DIV : KI_MOD, ramp, by, 0);
    }
    idx = g_op(g, ops[pick(g, 3)], idx, s, 0);
    if (pick(g, 2)) idx = g_op(g, KI_ADD, idx, g_splat(g, choose(g, &g->i), g->lanes), 0);
    kval n = g_splat(g, g_int(g, N_ELEMS), g->lanes);
    idx = g_op(g, KI_MOD, idx, n, 0);
    idx = g_op(g, KI_MOD, g_op(g, KI_ADD, idx, n, 0), n, 0);
    keep(g, &g->f, g_load(g, g->x, idx));
}

static void step_lane(struct gen *g)
{
    kval a = choose(g, &g->f), v;
    static const enum kir_op ops[] = {KI_HADD, KI_HMIN, KI_HMAX};
    if (g->lanes == 1) return;
    if (!g->raw)
        v = pick(g, 2) ? kir_lane(&g->k, a, pick(g, g->lanes)) : kir_un(&g->k, ops[pick(g, 3)], a);
    else if (pick(g, 2))
        v = emit(
            g, (struct kir_ins){
                   .op = KI_LANE, .dtype = DT_F32, .lanes = 1, .a = a, .imm.i = pick(g, g->lanes)});
    else
        v = emit(g,
                 (struct kir_ins){.op = (u8)ops[pick(g, 3)], .dtype = DT_F32, .lanes = 1, .a = a});
    keep(g, &g->f, g_splat(g, v, g->lanes));
}

static kval g_typed(struct gen *g, struct kir_ins x, enum dtype t, u32 lanes)
{
    x.dtype = (u8)t;
    x.lanes = (u8)lanes;
    return emit(g, x);
}

/* Lanes of x, or a pool's value again and again. */
static kval g_wide(struct gen *g, enum dtype t, u32 lanes)
{
    struct kir *k = &g->k;
    if (pick(g, 3)) {
        kval at = kir_ramp(k, kir_int(k, pick(g, N_ELEMS - 64)), 1, lanes);
        return g_cast(g, t, g_load(g, g->x, at));
    }
    kval a = g_cast(g, t, choose(g, &g->f));
    if (!g->raw || lanes == kir_lanes(k, a)) return kir_repeat(k, a, lanes);
    return g_typed(g, (struct kir_ins){.op = KI_SPLAT, .a = a}, t, lanes);
}

static kval g_every(struct gen *g, kval a, i64 from, u32 lanes)
{
    if (!g->raw || lanes == kir_lanes(&g->k, a)) return kir_every(&g->k, a, from, lanes);
    return g_typed(g, (struct kir_ins){.op = KI_LANE, .a = a, .imm.i = from}, kir_dtype(&g->k, a), lanes);
}

static void step_dot(struct gen *g)
{
    static const enum dtype of[][3] = {{DT_U8, DT_I8, DT_I32},   {DT_I8, DT_I8, DT_I32},
                                       {DT_I16, DT_U16, DT_I32}, {DT_BF16, DT_BF16, DT_F32},
                                       {DT_F16, DT_F16, DT_F32}};
    const enum dtype *t = of[pick(g, countof(of))];
    u32 terms = kir_dot_terms(t[0], t[1], t[2]), lanes = terms * g->lanes;
    kval a = g_wide(g, t[0], lanes), b = g_wide(g, t[1], lanes), sum = g_cast(g, t[2], choose(g, &g->f)), v;
    if (g->raw) v = g_typed(g, (struct kir_ins){.op = KI_DOT, .a = a, .b = b, .c = sum}, t[2], g->lanes);
    else v = kir_dot(&g->k, a, b, sum);
    keep(g, &g->f, g_cast(g, DT_F32, v));
    keep(g, &g->f, g_cast(g, DT_F32, g_every(g, a, pick(g, terms), g->lanes)));
}

/* Lanes of two values in turn: a part of them, as many as each has, or all. */
static void step_zip(struct gen *g)
{
    static const enum dtype of[] = {DT_U8, DT_I16, DT_F32};
    enum dtype t = of[pick(g, countof(of))];
    if (g->lanes == 1) return;
    u32 lanes = g->lanes << pick(g, 2), own = pick(g, 2) ? lanes : lanes > 2 ? lanes / 2 : lanes, from = pick(g, 2 * lanes / own) * own;
    kval a = g_wide(g, t, lanes), b = g_wide(g, t, lanes), v;
    if (g->raw) v = g_typed(g, (struct kir_ins){.op = KI_ZIP, .a = a, .b = b, .imm.i = from}, t, own);
    else v = kir_zip(&g->k, a, b, from, own);
    keep(g, &g->f, g_cast(g, DT_F32, own >= g->lanes ? g_every(g, v, pick(g, own / g->lanes), g->lanes) : g_splat(g, kir_lane(&g->k, v, pick(g, own)), g->lanes)));
    if (own < g->lanes) return;
    v = kir_zip(&g->k, a, b, 0, 2 * lanes); /* the whole sequence */
    keep(g, &g->f, g_cast(g, DT_F32, g_every(g, v, pick(g, 2 * lanes / g->lanes), g->lanes)));
}

/* Of the first four lanes' worth, and halves of two values. */
static void step_mmla(struct gen *g)
{
    static const enum dtype of[][3] = {{DT_U8, DT_I8, DT_I32}, {DT_U8, DT_U8, DT_I32}, {DT_I16, DT_U16, DT_I32}, {DT_BF16, DT_BF16, DT_F32}};
    const enum dtype *t = of[pick(g, countof(of))];
    u32 lanes = 4 * kir_dot_terms(t[0], t[1], t[2]), half = pick(g, 2);
    if (g->lanes == 1) return;
    kval x = choose(g, &g->f), y = choose(g, &g->f);
    if (!g->raw) keep(g, &g->f, kir_halves(&g->k, x, y, half));
    else keep(g, &g->f, g_typed(g, (struct kir_ins){.op = KI_HALVES, .a = x, .b = y, .imm.i = half}, DT_F32, g->lanes));
    if (g->lanes != 4) return;
    kval a = g_wide(g, t[0], lanes), b = g_wide(g, t[1], lanes), sum = g_cast(g, t[2], choose(g, &g->f)), v;
    if (g->raw) v = g_typed(g, (struct kir_ins){.op = KI_MMLA, .a = a, .b = b, .c = sum}, t[2], 4);
    else v = kir_mmla(&g->k, a, b, sum);
    keep(g, &g->f, g_cast(g, DT_F32, v));
}

static void step_cast(struct gen *g)
{
    static const enum dtype list[] = {DT_I32, DT_U8, DT_F16, DT_F64, DT_BF16, DT_BOOL, DT_I16};
    enum dtype t = list[pick(g, countof(list))];
    kval i = g_splat(g, choose(g, &g->i), g->lanes);
    const kval from[3] = {i, choose(g, &g->b), choose(g, &g->f)};
    keep(g, &g->f, g_cast(g, DT_F32, g_cast(g, t, from[pick(g, 3)])));
}

static void step_value(struct gen *g)
{
    switch (pick(g, 10)) {
    case 0:
    case 1:
    case 2: step_int(g); break;
    case 3: step_bool(g); break;
    case 4: step_gather(g); break;
    case 5: step_lane(g); break;
    case 6: step_cast(g); break;
    case 7:
        switch (pick(g, 3)) {
        case 0: step_dot(g); break;
        case 1: step_mmla(g); break;
        default: step_zip(g); break;
        }
        break;
    default: step_float(g); break;
    }
}

/* Structure. Pools shrink to their size before when a structure closes. */

static void block(struct gen *g, i64 n);

static void leave(struct gen *g, const struct pool save[3])
{
    g->f = save[0];
    g->i = save[1];
    g->b = save[2];
}

static void step_loop(struct gen *g)
{
    const struct pool save[3] = {g->f, g->i, g->b};
    i64 from = pick(g, 3), to = pick(g, 6);
    enum kir_loop kind = pick(g, 2) ? KL_UNROLL : KL_SERIAL;
    u32 any = (u32)pick(g, g->i.n); /* half of the loops start anywhere */
    kval base = pick(g, 2) && g->i.bound[any] < 1 << 20 ? g->i.v[any] : kir_int(&g->k, 0);
    kval lo = kir_add_i(&g->k, base, from), hi = kir_add_i(&g->k, base, to);
    kval i = kir_loop(&g->k, kind, lo, hi, 1 + pick(g, 2));
    keep_int(g, i, 1 << 21);
    kval reg = g->reg[pick(g, 2)];
    kval at = kir_mod(&g->k, kir_sub(&g->k, i, base), kir_int(&g->k, 4));
    block(g, 1 + pick(g, 4));
    kir_store(&g->k, reg, at, kir_add(&g->k, kir_load(&g->k, reg, at), choose(g, &g->f)));
    kir_end(&g->k);
    leave(g, save);
}

static void step_if(struct gen *g)
{
    const struct pool save[3] = {g->f, g->i, g->b};
    kval right = choose(g, &g->i), left = choose(g, &g->i);
    kir_if(&g->k, kir_lt(&g->k, left, right));
    block(g, 1 + pick(g, 3));
    store_some(g, g->reg[0], 4);
    leave(g, save);
    if (pick(g, 2)) {
        kir_else(&g->k);
        block(g, pick(g, 3));
        store_some(g, g->reg[1], 4);
        leave(g, save);
    }
    kir_end(&g->k);
}

static void step_fresh_array(struct gen *g)
{
    kval r = kir_alloc(&g->k, KS_REG, DT_F32, g->lanes, kir_int(&g->k, 2));
    store_some(g, r, 2); /* mostly dead */
}

static void step_load(struct gen *g)
{
    kval at = kir_int(&g->k, pick(g, 4));
    keep(g, &g->f, kir_load(&g->k, g->reg[pick(g, 2)], at));
}

static void block(struct gen *g, i64 n)
{
    g->depth++;
    for (i64 i = 0; i < n; i++) {
        i64 what = g->raw ? 9 : pick(g, 12);
        if (what == 0 && g->depth < 4) step_loop(g);
        else if (what == 1 && g->depth < 4) step_if(g);
        else if (what == 2) step_fresh_array(g);
        else if (what == 3) step_load(g);
        else step_value(g);
    }
    g->depth--;
}

/* The frame: iteration i of the grid owns the elements i*64 .. i*64+63 of y and i*16 .. of z. */

enum { N_ITERS = 3, F_PER = 256, I_PER = 16 };

static void frame_begin(struct gen *g, struct arena *a, u64 seed, bool raw)
{
    struct kir *k = &g->k;
    *g = (struct gen){.r = rng_seed(seed), .raw = raw};
    kir_init(k, a, S("random"));
    g->lanes = 1u << pick(g, 5);
    g->x = kir_buf(k, S("x"), DT_F32, KA_IN);
    g->y = kir_buf(k, S("y"), DT_F32, KA_OUT);
    g->z = kir_buf(k, S("z"), DT_I64, KA_OUT);
    kval p = kir_param(k, S("H*W"));
    kval at = kir_grid(k, kir_int(k, N_ITERS));
    g->out_f = kir_mul_i(k, at, F_PER);
    g->out_i = kir_mul_i(k, at, I_PER);
    keep_int(g, at, N_ITERS);
    keep_int(g, kir_min(k, p, kir_int(k, 100)), 100);
    keep_int(g, g_int(g, some_int(g)), 64);
    for (u32 i = 0; i < 3; i++) {
        kval idx = g_ramp(g, kir_add_i(k, kir_mul_i(k, at, 16), i), 1 + (i == 2));
        keep(g, &g->f, g_load(g, g->x, idx));
    }
    keep(g, &g->f, g_splat(g, g_load(g, g->x, at), g->lanes));
    keep(g, &g->f, g_float(g, some_float(g)));
    keep(g, &g->b, g_op(g, KI_LT, g->f.v[0], g->f.v[1], 0));
    if (raw) return;
    for (u32 i = 0; i < 2; i++) {
        g->reg[i] = kir_alloc(k, KS_REG, DT_F32, g->lanes, kir_int(k, 4));
        for (i64 j = 0; j < 4; j++) kir_store(k, g->reg[i], kir_int(k, j), g->f.v[i]);
    }
}

/* Stores the values of the pools; the rest of this iteration's elements by a loop. */
static void frame_end(struct gen *g)
{
    struct kir *k = &g->k;
    i64 n = i64_min(g->f.n, F_PER / g->lanes);
    for (i64 i = 0; i < n; i++) {
        kval idx = kir_ramp(k, kir_add_i(k, g->out_f, i * g->lanes), 1, g->lanes);
        kval v = g->f.v[g->f.n - n + i];
        if (i % 2) kir_stream(k, g->y, idx, v, 0);
        else kir_store(k, g->y, idx, v);
    }
    kval j = kir_loop(k, KL_SERIAL, kir_int(k, n * g->lanes), kir_int(k, F_PER), 1);
    kir_store(k, g->y, kir_add(k, g->out_f, j), kir_const_f(k, DT_F32, 1, 0));
    kir_end(k);
    for (u32 i = 0; i < I_PER; i++)
        kir_store(k, g->z, kir_add_i(k, g->out_i, i),
                  i < g->i.n ? g->i.v[g->i.n - 1 - i] : kir_int(k, 0));
    kir_end(k);
}

static void make_random(struct gen *g, struct arena *a, u64 seed)
{
    frame_begin(g, a, seed, false);
    block(g, 4 + pick(g, 20));
    if (pick(g, 2)) keep(g, &g->f, kir_load(&g->k, g->reg[1], kir_int(&g->k, 3)));
    frame_end(g);
}

/* Running. */

struct results {
    float y[N_ITERS * F_PER];
    i64 z[N_ITERS * I_PER];
};

static void run(const struct kir *k, struct results *r, u64 seed)
{
    float x[N_ELEMS];
    struct rng g = rng_seed(seed);
    for (int i = 0; i < N_ELEMS; i++) x[i] = (float)(rng_normal(&g) * 3);
    memset(r, 0xee, sizeof *r);
    const struct kir_arg arg[3] = {{x, N_ELEMS}, {r->y, countof(r->y)}, {r->z, countof(r->z)}};
    const i64 param[1] = {(i64)(seed % 40)};
    struct kir_eval_opts o = {.seed = seed};
    struct err e = {0};
    if (!kir_eval(k, arg, param, &o, &e)) {
        struct buf b = {0};
        kir_print(&b, k);
        fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, e.msg, b.p);
    }
}

static void same(const struct results *a, const struct results *b, const struct kir *k, u64 seed)
{
    i64 bad = -1;
    for (i64 i = 0; i < countof(a->z); i++)
        if (a->z[i] != b->z[i]) bad = i;
    for (i64 i = 0; i < countof(a->y); i++) {
        bool is_nan = a->y[i] != a->y[i] && b->y[i] != b->y[i];
        if (!is_nan && memcmp(&a->y[i], &b->y[i], 4)) bad = 1000 + i;
    }
    if (bad < 0) return;
    struct buf t = {0};
    kir_print(&t, k);
    fail_msg("seed %llu: results differ at %lld\n%s", (unsigned long long)seed, (long long)bad,
             t.p);
}

/* The builder's facts about the integers stored by all iterations. */
static void check_claims(const struct gen *g, const struct results *r, u64 seed)
{
    for (u32 i = 0; i < I_PER && i < g->i.n; i++)
        for (u32 at = 0; at < N_ITERS; at++) {
            kval v = g->i.v[g->i.n - 1 - i];
            i64 x = r->z[at * I_PER + i];
            struct kir_range range = kir_range(&g->k, v);
            if (x < range.lo || x > range.hi || x % kir_multiple(&g->k, v))
                fail_msg("seed %llu: %lld is not in %lld..%lld or no multiple of %lld",
                         (unsigned long long)seed, (long long)x, (long long)range.lo,
                         (long long)range.hi, (long long)kir_multiple(&g->k, v));
        }
}

static void test_folding(void **state)
{
    struct results want, got;
    u64 n_raw = 0, n_folded = 0;
    for (u64 seed = 1; seed <= 3000; seed++) {
        struct arena a = {0};
        struct gen raw, g;
        frame_begin(&raw, &a, seed, true);
        frame_begin(&g, &a, seed, false);
        g.r = raw.r;
        for (int i = 0; i < 20; i++) {
            struct rng r = raw.r;
            step_value(&raw);
            g.r = r;
            step_value(&g);
        }
        frame_end(&raw);
        frame_end(&g);
        run(&raw.k, &want, seed);
        run(&g.k, &got, seed);
        same(&want, &got, &raw.k, seed);
        check_claims(&raw, &want, seed);
        check_claims(&g, &got, seed);
        n_raw += raw.k.ins.n;
        n_folded += g.k.ins.n;
        arena_release(&a);
    }
    assert_true(n_folded < n_raw);
}

/* Integers that are data wrap: nothing that holds of indices alone is used of them. */

static i64 some_wide_int(struct gen *g)
{
    static const i64 list[] = {INT64_MIN, INT64_MAX, INT64_MIN + 1, (i64)1 << 62, -((i64)1 << 62), (i64)1 << 40, (i64)1 << 33, 3, -1, 4};
    return pick(g, 2) ? some_int(g) : list[pick(g, countof(list))];
}

static kval data_operand(struct gen *g, bool is_divisor)
{
    i64 c = some_wide_int(g);
    if (is_divisor || pick(g, 2)) return g_int(g, is_divisor && !c ? 8 : c);
    return choose(g, &g->i);
}

static void step_data(struct gen *g)
{
    static const enum kir_op ops[] = {KI_ADD, KI_SUB, KI_MUL, KI_DIV, KI_MOD, KI_MIN, KI_MAX, KI_ADD, KI_MUL, KI_DIV, KI_AND, KI_XOR};
    static const enum kir_op tests[] = {KI_EQ, KI_NE, KI_LT, KI_LE};
    static const enum dtype types[] = {DT_I32, DT_U32, DT_I8, DT_U64, DT_I16};
    enum kir_op op = ops[pick(g, countof(ops))], test = tests[pick(g, countof(tests))];
    kval a = choose(g, &g->i), b = data_operand(g, op == KI_DIV || op == KI_MOD), v;
    switch (pick(g, 8)) {
    case 0: v = g_op(g, pick(g, 2) ? KI_NEG : KI_ABS, a, 0, 0); break;
    case 1: v = choose(g, &g->i), v = g_op(g, KI_SELECT, g_op(g, test, a, b, 0), v, a); break;
    case 2: v = g_cast(g, DT_I64, g_cast(g, types[pick(g, countof(types))], a)); break;
    case 3: v = op == KI_DIV || op == KI_MOD ? a : g_op(g, op, b, a, 0); break;
    default: v = g_op(g, op, a, b, 0); break;
    }
    keep_int(g, v, 0);
}

static void data_begin(struct gen *g, struct arena *a, u64 seed, bool raw)
{
    struct kir *k = &g->k;
    *g = (struct gen){.r = rng_seed(seed), .raw = raw, .lanes = 1};
    kir_init(k, a, S("data"));
    g->x = kir_buf(k, S("x"), DT_I64, KA_IN);
    g->z = kir_buf(k, S("z"), DT_I64, KA_OUT);
    kval at = kir_grid(k, kir_int(k, N_ITERS));
    g->out_i = kir_mul_i(k, at, I_PER);
    for (u32 i = 0; i < 4; i++) keep_int(g, g_load(g, g->x, kir_add_i(k, kir_mul_i(k, at, 4), i)), 0);
}

static void data_run(struct gen *g, struct results *r, u64 seed)
{
    struct kir *k = &g->k;
    i64 x[4 * N_ITERS];
    struct gen numbers = {.r = rng_seed(seed + 1)};
    struct err e = {0};
    for (int i = 0; i < (int)countof(x); i++) x[i] = some_wide_int(&numbers);
    for (u32 i = 0; i < I_PER; i++) kir_store(k, g->z, kir_add_i(k, g->out_i, i), i < g->i.n ? g->i.v[g->i.n - 1 - i] : kir_int(k, 0));
    kir_end(k);
    memset(r, 0, sizeof *r);
    const struct kir_arg arg[2] = {{x, countof(x)}, {r->z, countof(r->z)}};
    if (!kir_eval(k, arg, NULL, &(struct kir_eval_opts){.seed = seed}, &e)) fail_msg("seed %llu: %s", (unsigned long long)seed, e.msg);
}

static void test_data(void **state)
{
    struct results want, got;
    for (u64 seed = 1; seed <= 4000; seed++) {
        struct arena a = {0};
        struct gen raw, g;
        data_begin(&raw, &a, seed, true);
        data_begin(&g, &a, seed, false);
        for (int i = 0; i < 14; i++) {
            g.r = raw.r;
            step_data(&raw);
            step_data(&g);
        }
        data_run(&raw, &want, seed);
        data_run(&g, &got, seed);
        same(&want, &got, &raw.k, seed);
        check_claims(&raw, &want, seed);
        check_claims(&g, &got, seed);
        arena_release(&a);
    }
}

/* A ramp of indices with data of any size, in both orders. */
static void test_compared_ramps(void **state)
{
    static const i64 data[] = {INT64_MIN, INT64_MIN + 1, -((i64)1 << 32), -9, -8, -7, -1, 0, 1, 5, 6, 7, 8, 20, (i64)1 << 32, INT64_MAX - 1, INT64_MAX};
    enum { LANES = 8, N = countof(data), CASES = 4 };
    for (i64 stride = 1; stride < 4; stride++) {
        struct arena a = {0};
        struct kir k;
        struct err e = {0};
        i64 z[N][N][CASES][LANES], first = -8;
        kir_init(&k, &a, S("ramps"));
        kval x = kir_buf(&k, S("x"), DT_I64, KA_IN), to = kir_buf(&k, S("z"), DT_I64, KA_OUT), n = kir_int(&k, N), gi = kir_grid(&k, n), gj = kir_grid(&k, n);
        kval ramp = kir_ramp(&k, kir_add_i(&k, gi, first), stride, LANES), v = kir_splat(&k, kir_load(&k, x, gj), LANES);
        kval yes[CASES] = {kir_compare_index(&k, KI_LT, ramp, v), kir_compare_index(&k, KI_LE, ramp, v), kir_compare_index(&k, KI_LT, v, ramp), kir_compare_index(&k, KI_LE, v, ramp)};
        for (i64 c = 0; c < CASES; c++) {
            kval at = kir_mul_i(&k, kir_add_i(&k, kir_mul_i(&k, kir_add(&k, kir_mul(&k, gi, n), gj), CASES), c), LANES);
            kir_store(&k, to, kir_ramp(&k, at, 1, LANES), kir_cast(&k, DT_I64, yes[c]));
        }
        kir_end(&k);
        kir_end(&k);
        const struct kir_arg arg[2] = {{(void *)data, N}, {z, sizeof z / sizeof(i64)}};
        if (!kir_eval(&k, arg, NULL, &(struct kir_eval_opts){0}, &e)) fail_msg("%s", e.msg);
        for (i64 i = 0; i < N; i++)
            for (i64 j = 0; j < N; j++)
                for (i64 l = 0; l < LANES; l++) {
                    i64 r = first + i + l * stride, d = data[j];
                    const i64 want[CASES] = {r < d, r <= d, d < r, d <= r};
                    for (i64 c = 0; c < CASES; c++) assert_int_equal(z[i][j][c][l], want[c]);
                }
        arena_release(&a);
    }
}

/* (x*4)/4 of data is no x; of an index, or of data that an index bounds from both sides, it is. */
static void test_clamped_data(void **state)
{
    struct arena a = {0};
    struct kir k;
    kir_init(&k, &a, S("clamped"));
    kval x = kir_buf(&k, S("x"), DT_I64, KA_IN), n = kir_param(&k, S("N")), at = kir_grid(&k, n);
    kval v = kir_load(&k, x, at), low = kir_max(&k, v, kir_int(&k, 0)), last = kir_add_i(&k, n, -1), in = kir_min(&k, low, last);
    kval small = kir_cast(&k, DT_I64, kir_cast(&k, DT_I32, v));
    const struct { kval of; bool is_whole; } rows[] = {{v, false}, {low, false}, {in, true}, {at, true}, {small, true}, {kir_mul_i(&k, small, (i64)1 << 33), false}};
    for (int i = 0; i < (int)countof(rows); i++) {
        kval y = kir_div_i(&k, kir_mul_i(&k, rows[i].of, 4), 4);
        if ((y == rows[i].of) != rows[i].is_whole) fail_msg("row %d", i);
    }
    assert_true(kir_lt(&k, at, kir_add_i(&k, at, 1)) == kir_const_i(&k, DT_BOOL, 1, 1));
    assert_true(kir_lt(&k, v, kir_add_i(&k, v, 1)) != kir_const_i(&k, DT_BOOL, 1, 1));
    kir_end(&k);
    arena_release(&a);
}

/* A value that is quantised and dequantised in one kernel does not become a byte in between, if its bounds are those of the bytes. It is the same number,
   also at ties and bounds, and never a negative zero. */
static void check_quantised(enum dtype t, double zero, double low, double high, u32 lanes, bool is_dropped)
{
    enum { COUNT = 4096 };
    static float x[COUNT], got[COUNT];
    struct arena a = {0};
    struct kir k;
    struct err e = {0};
    u32 n_bytes = 0;
    for (i64 i = 0; i < COUNT; i++) x[i] = i % 8 == 7 ? -0.0f : i % 4 == 3 ? nextafterf((float)i / 4 - 512, 0) : (float)i / 4 - 512;
    kir_init(&k, &a, S("quantised"));
    kval from = kir_buf(&k, S("x"), DT_F32, KA_IN), to = kir_buf(&k, S("y"), DT_F32, KA_OUT);
    kval at = kir_ramp(&k, kir_mul_i(&k, kir_grid(&k, kir_int(&k, COUNT / lanes)), lanes), 1, lanes), v = kir_load(&k, from, at);
    v = kir_bin(&k, KI_MAX, v, kir_const_f(&k, DT_F32, lanes, low));
    v = kir_un(&k, KI_RINT, kir_bin(&k, KI_MIN, v, kir_const_f(&k, DT_F32, lanes, high)));
    if (zero != 0) v = kir_add(&k, v, kir_const_f(&k, DT_F32, lanes, zero));
    v = kir_cast(&k, DT_I32, kir_cast(&k, t, v));
    v = kir_cast(&k, DT_F32, kir_add(&k, v, kir_const_i(&k, DT_I32, lanes, -(i64)zero)));
    kir_store(&k, to, at, v);
    kir_end(&k);
    for (kval i = v; kir_at(&k, i)->op != KI_LOAD; i = kir_at(&k, i)->a) n_bytes += kir_at(&k, i)->op == KI_CAST && kir_at(&k, i)->dtype == (u32)t;
    if ((n_bytes == 0) != is_dropped) fail_msg("%s, zero point %g: %u casts to bytes", dtype_name(t), zero, n_bytes);
    const struct kir_arg arg[2] = {{x, COUNT}, {got, COUNT}};
    if (!kir_eval(&k, arg, NULL, NULL, &e)) fail_msg("%s", e.msg);
    for (i64 i = 0; is_dropped && i < COUNT; i++) {
        const float want = (float)(int)rint(fmin(fmax((double)x[i], low), high));
        if (memcmp(&want, &got[i], sizeof want)) fail_msg("%s, zero point %g: %.9g becomes %.9g instead of %.9g", dtype_name(t), zero, (double)x[i], (double)got[i], (double)want);
    }
    arena_release(&a);
}

static void test_quantised(void **state)
{
    static const double zeros[2][3] = {{0, 128, 255}, {-128, 0, 127}};
    for (u32 i = 0; i < 12; i++) {
        const enum dtype t = i / 3 % 2 ? DT_I8 : DT_U8;
        const double zero = zeros[t == DT_I8][i % 3], least = (t == DT_I8 ? -128 : 0) - zero;
        const u32 lanes = i < 6 ? 1 : 8;
        check_quantised(t, zero, least, least + 255, lanes, true);
        check_quantised(t, zero, least + 1.5, least + 254.25, lanes, true);
        check_quantised(t, zero, least - 1, least + 255, lanes, false);
        check_quantised(t, zero, least, least + 255.75, lanes, false);
        check_quantised(t, zero, least, 1e30, lanes, false);
    }
}

/* Text. */

static struct str text_of(struct buf *b, const struct kir *k)
{
    buf_reset(b);
    kir_print(b, k);
    return buf_view(b);
}

/* Steps of 16 over a multiple of 16 leave no remainder, and no code for one. */
static void test_whole_steps(void **state)
{
    static const struct { const char *size; i64 step; bool whole; } rows[] = {
        {"H//16*16", 16, true}, {"H//16*(W//64)*1024", 64, true}, {"H//16*16", 32, false}, {"H", 16, false}, {"H//6*6", 6, false}, {"H//16*16+8", 8, true},
    };
    for (int i = 0; i < (int)countof(rows); i++) {
        struct arena a = {0};
        struct kir k;
        kir_init(&k, &a, S("k"));
        kval n = kir_param(&k, str_of(rows[i].size)), end = kir_min(&k, n, kir_int(&k, 4096));
        kval q = kir_bin(&k, KI_DIV, end, kir_int(&k, rows[i].step)), whole = kir_bin(&k, KI_MUL, q, kir_int(&k, rows[i].step));
        assert_int_equal(whole == end, rows[i].whole);
        arena_release(&a);
    }
}

static void test_round_trip(void **state)
{
    struct buf one = {0}, two = {0};
    struct results want, got;
    for (u64 seed = 1; seed <= 500; seed++) {
        struct arena a = {0};
        struct gen g;
        struct kir k;
        struct err e = {0};
        make_random(&g, &a, seed);
        struct str t = text_of(&one, &g.k);
        if (!kir_parse(&k, &a, t, &e))
            fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, e.msg, t.p);
        assert_string_equal(t.p, text_of(&two, &k).p);
        run(&g.k, &want, seed);
        run(&k, &got, seed);
        same(&want, &got, &k, seed);
        arena_release(&a);
    }
    buf_release(&one);
    buf_release(&two);
}

static void mutate(struct rng *r, char *p, i64 *n)
{
    static const char chars[] = "%0123456789 ()[],.:;=xp-\n\"abcdefilnrstu#";
    for (i64 i = rng_range(r, 1, 4); i > 0 && *n > 8; i--) {
        i64 at = rng_range(r, 0, *n - 1), m = rng_range(r, 1, i64_min(*n - at, 12));
        bool is_digit = p[at] >= '0' && p[at] <= '9';
        if (is_digit) { /* stays a text, often a valid one */
            p[at] = (char)('0' + rng_range(r, 0, 9));
        } else if (rng_range(r, 0, 2) == 0) {
            memmove(p + at, p + at + m, (size_t)(*n - at - m));
            *n -= m;
        } else {
            p[at] = rng_range(r, 0, 3) ? chars[rng_range(r, 0, (i64)sizeof chars - 2)]
                                       : (char)rng_u64(r);
        }
    }
}

static void test_garbage(void **state)
{
    struct buf b = {0};
    i64 n_good = 0;
    for (u64 seed = 1; seed <= 4000; seed++) {
        struct arena a = {0};
        struct gen g;
        struct kir k, out;
        struct err e = {0};
        struct rng r = rng_seed(seed);
        make_random(&g, &a, seed % 40);
        struct str t = text_of(&b, &g.k);
        char *copy = mem_alloc(t.n); /* exact size: sanitizers detect reads past its end */
        i64 n = t.n;
        memcpy(copy, t.p, (size_t)t.n);
        mutate(&r, copy, &n);
        if (kir_parse(&k, &a, (struct str){copy, n}, &e)) {
            n_good++;
            struct kir_limits l = {16, 5000};
            struct kir_cost cost;
            kir_count(&k, (const i64[8]){10, 10, 10}, &cost);
            if (kir_legalise(&out, &a, &k, &l, &e)) assert_true(kir_verify(&out, &e));
        } else {
            assert_true(e.code != ERR_NONE && e.msg[0]);
        }
        mem_free(copy);
        arena_release(&a);
    }
    assert_true(n_good > 100);
    buf_release(&b);
}

static void test_grammar(void **state)
{
    static const char text[] =
        "# a comment\n"
        "kernel f(x: in f16, y: out f32, t: inout i64; p0 = \"H*W\", p1 = \"W\")\n"
        "group 4 1 1\n"
        "temp %1: f32[p1]\n"
        "grid %2 = p0\n"
        "  grid %3 = 8\n"
        "    shared %4: f32[4]\n"
        "    work %5: f32[p1]\n"
        "    reg %6: f32x8[3]\n"
        "    %7 = thread 0\n"
        "    %8 = add %2, 3\n"
        "    %9: i64x8 = ramp %8, 1\n"
        "    prefetch x[%8]\n"
        "    prefetch x[%8] second\n"
        "    %10: f16x8 = load x[%9] first p1\n"
        "    %11: f32x8 = cast %10\n"
        "    %12: f32x8 = max f32x8(0), %11\n"
        "    loop unroll %13 = 0..3\n"
        "      store %6[%13] = %12\n"
        "    end\n"
        "    loop vector %14 = 0..p0 step 8\n"
        "      %15: bool = lt %14, 16\n"
        "      if %15\n"
        "        store t[0] = i64(7)\n"
        "      else\n"
        "        %16: f32 = hadd %12\n"
        "        store %4[%7] = %16\n"
        "      end\n"
        "    end\n"
        "    barrier\n"
        "    store y[%9] = %12 first 5\n"
        "  end\n"
        "end\n";
    struct arena a = {0};
    struct kir k;
    struct err e = {0};
    struct buf b = {0};
    if (!kir_parse(&k, &a, S(text), &e)) fail_msg("%s", e.msg);
    struct str t = text_of(&b, &k);
    const char *tail = strchr(text, '\n') + 1;
    char *plain = (char *)str_z(&a, str_of(tail));
    char *lit = strstr(plain, "i64(7)"); /* the plain form of an i64 constant */
    memmove(lit, "7", 1);
    memmove(lit + 1, lit + 6, strlen(lit + 6) + 1);
    assert_string_equal(t.p, plain);
    buf_release(&b);
    arena_release(&a);
}

/* Legalisation. */

static i64 widest(const struct kir *k)
{
    i64 n = 0;
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        bool counts =
            x->op != KI_CONST && x->op != KI_SPLAT && x->dtype != DT_NONE && x->dtype != DT_I64;
        if (counts && x->dtype != DT_BOOL && x->lanes > 1)
            n = i64_max(n, x->lanes * dtype_size(x->dtype));
        assert_false(x->op == KI_LOOP && x->aux == KL_UNROLL);
    }
    return n;
}

/* A way to write a kernel anew that leaves its results as they are. */
typedef bool rewrite_fn(struct kir *out, struct arena *a, const struct kir *k, u64 seed, struct err *e);

static void check_rewritten(rewrite_fn *rewrite, u64 n_seeds)
{
    struct results want, got;
    for (u64 seed = 1; seed <= n_seeds; seed++) {
        struct arena a = {0};
        struct gen g;
        struct kir out;
        struct err e = {0};
        make_random(&g, &a, seed);
        run(&g.k, &want, seed);
        if (!rewrite(&out, &a, &g.k, seed, &e) || !kir_verify(&out, &e)) fail_msg("seed %llu: %s", (unsigned long long)seed, e.msg);
        run(&out, &got, seed);
        same(&want, &got, &g.k, seed);
        arena_release(&a);
    }
}

static bool legalise(struct kir *out, struct arena *a, const struct kir *k, u64 seed, struct err *e)
{
    static const u32 widths[] = {0, 64, 32, 16, 8, 4};
    struct kir_limits l = {.max_lanes_bytes = widths[seed % countof(widths)]};
    if (!kir_legalise(out, a, k, &l, e)) return false;
    assert_true(!l.max_lanes_bytes || widest(out) <= i64_max(l.max_lanes_bytes, 4));
    return true;
}

/* Threads instead of iterations. */
static bool spread(struct kir *out, struct arena *a, const struct kir *k, u64 seed, struct err *e)
{
    static const u32 threads[] = {1, 2, 3, 4, 64};
    return kir_spread(out, a, k, threads[seed % countof(threads)], e);
}

/* Loads ahead of their users, with many registers and with few. */
static bool ahead(struct kir *out, struct arena *a, const struct kir *k, u64 seed, struct err *e)
{
    static const u32 registers[] = {1, 8, 32};
    kir_ahead(out, a, k, registers[seed % countof(registers)]);
    return true;
}

static void test_legalise(void **state) { check_rewritten(legalise, 1200); }
static void test_spread(void **state) { check_rewritten(spread, 500); }
static void test_ahead(void **state) { check_rewritten(ahead, 500); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_steps),
        cmocka_unit_test(test_folding), cmocka_unit_test(test_data), cmocka_unit_test(test_clamped_data), cmocka_unit_test(test_compared_ramps),
        cmocka_unit_test(test_quantised), cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_garbage),  cmocka_unit_test(test_grammar),
        cmocka_unit_test(test_legalise), cmocka_unit_test(test_spread), cmocka_unit_test(test_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
