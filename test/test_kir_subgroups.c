// SPDX-License-Identifier: Apache-2.0
//
// Random kernels for workgroups: subgroup operations, shuffles, fragments, shared arrays between
// barriers, loops and branches taken by whole subgroups. They run without error, print and parse,
// and compute the same when legalised.
#include "kir/kir.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { GROUP = 32, ITERS = 2, OUTS = 8, MAX_POOL = 24, SIDE = 4, N_IN = 256 };

static const struct kir_frag left = {KR_A, DT_F16, SIDE, SIDE}, right = {KR_B, DT_F16, SIDE, SIDE},
                             sum = {KR_ACC, DT_F32, SIDE, SIDE};

struct pool {
    kval v[MAX_POOL];
    u32 n;
};

struct gen {
    struct kir k;
    struct rng r;
    struct pool i, f, s; /* i64 from 0 to N_IN - 1, f32, accumulators */
    kval x, h, y, z, w;  /* arguments: f32, f16 in; f32, i64 per thread, f32 per subgroup out */
    kval it, thread, subgroup, warpgroup, lane, reg, regs, copies;
    u32 depth;
    bool divided; /* in a branch that some subgroups take */
};

static i64 pick(struct gen *g, i64 n) { return rng_range(&g->r, 0, n - 1); }

static kval choose(struct gen *g, const struct pool *p) { return p->v[pick(g, p->n)]; }

static void keep(struct gen *g, struct pool *p, kval v)
{
    p->v[p->n < MAX_POOL ? p->n++ : pick(g, MAX_POOL)] = v;
}

static void keep_int(struct gen *g, kval v)
{
    v = kir_mod_i(&g->k, v, N_IN);
    keep(g, &g->i, kir_mod_i(&g->k, kir_add_i(&g->k, v, N_IN), N_IN));
}

static void step_arithmetic(struct gen *g)
{
    static const enum kir_op ops[] = {KI_ADD, KI_SUB, KI_MUL, KI_MIN, KI_MAX};
    enum kir_op op = ops[pick(g, countof(ops))];
    bool is_int = pick(g, 2);
    const struct pool *p = is_int ? &g->i : &g->f;
    /* arguments are evaluated in any order, so they are chosen before */
    kval b = choose(g, p), a = choose(g, p), v = kir_bin(&g->k, op, a, b);
    if (is_int) keep_int(g, v);
    else keep(g, &g->f, v);
}

static void step_subgroup(struct gen *g)
{
    static const enum kir_op ops[] = {KI_SGADD, KI_SGMIN, KI_SGMAX};
    enum kir_op op = ops[pick(g, countof(ops))];
    if (pick(g, 2)) keep_int(g, kir_sg(&g->k, op, choose(g, &g->i)));
    else keep(g, &g->f, kir_sg(&g->k, op, choose(g, &g->f)));
}

static void step_shuffle(struct gen *g)
{
    kval at = kir_mod_i(&g->k, kir_add(&g->k, g->lane, choose(g, &g->i)), g->k.subgroup);
    keep(g, &g->f, kir_shuffle(&g->k, choose(g, &g->f), at));
}

/* An index that is the same in all threads that hold a fragment, and where a fragment may begin. */
static kval holder_index(struct gen *g, i64 most)
{
    kval v = kir_warpgroup(&g->k) == 1 && pick(g, 2) ? kir_sg(&g->k, KI_SGMAX, choose(g, &g->i)) : g->warpgroup;
    return kir_mul_i(&g->k, kir_mod_i(&g->k, v, most / SIDE), SIDE);
}

/* A fragment of a buffer whose rows are so many times a fragment's apart; 0: once or twice. */
static kval some_fragment(struct gen *g, const struct kir_frag *f, kval buf, i64 apart)
{
    i64 room = N_IN - SIDE * SIDE * 2; /* rows as far apart as two */
    bool is_turned = pick(g, 2);
    kval pitch = kir_int(&g->k, SIDE * (apart ? apart : 1 + pick(g, 2)));
    return kir_frag_load(&g->k, f, buf, holder_index(g, room), pitch, is_turned);
}

static void step_fragment(struct gen *g)
{
    struct kir *k = &g->k;
    switch (pick(g, 5)) {
    case 0: {
        kval b = choose(g, &g->s), a = choose(g, &g->s);
        keep(g, &g->s, kir_add(k, a, b));
        break;
    }
    case 1: keep(g, &g->s, kir_cast(k, DT_F32, kir_cast(k, DT_F16, choose(g, &g->s)))); break;
    case 2: keep(g, &g->s, some_fragment(g, &sum, g->x, 0)); break;
    default: {
        kval a = some_fragment(g, &left, g->h, 1), b = some_fragment(g, &right, g->h, 2);
        keep(g, &g->s, kir_frag_mma(k, a, b, choose(g, &g->s)));
    }
    }
}

/* Every thread reads a value that another one has written. */
static void step_stage(struct gen *g, kval shared)
{
    struct kir *k = &g->k;
    kval at = kir_mod_i(k, kir_add(k, kir_mul_i(k, g->thread, 2 * pick(g, 4) + 1), g->it), GROUP);
    kir_store(k, shared, g->thread, choose(g, &g->f));
    kir_barrier(k);
    keep(g, &g->f, kir_load(k, shared, at));
    kir_barrier(k);
}

/* The same by copies, two groups of them under way at once. */
static void step_copy(struct gen *g)
{
    struct kir *k = &g->k;
    kval at = kir_mod_i(k, kir_add(k, g->thread, choose(g, &g->i)), GROUP), next = kir_add_i(k, g->thread, GROUP);
    kir_store_async(k, g->copies, g->thread, kir_load(k, g->x, choose(g, &g->i)));
    kir_await(k, 1 + pick(g, 3));
    kir_store_async(k, g->copies, next, kir_load(k, g->x, choose(g, &g->i)));
    kir_await(k, pick(g, 2));
    kir_barrier(k);
    keep(g, &g->f, kir_load(k, g->copies, at));
    kir_await(k, 0);
    kir_barrier(k);
    keep(g, &g->f, kir_load(k, g->copies, kir_add_i(k, at, GROUP)));
    kir_barrier(k);
}

static void block(struct gen *g, kval shared, i64 n);

static void step_loop(struct gen *g, kval shared)
{
    struct kir *k = &g->k;
    const struct pool save[3] = {g->i, g->f, g->s};
    enum kir_loop kind = pick(g, 2) ? KL_UNROLL : KL_SERIAL;
    kval i = kir_loop(k, kind, kir_int(k, 0), kir_int(k, pick(g, 4)), 1);
    keep_int(g, i);
    block(g, shared, 1 + pick(g, 4));
    kval at = kind == KL_UNROLL ? kir_mod_i(k, i, 2) : kir_int(k, 0);
    kir_store(k, g->reg, at, choose(g, &g->f));
    kir_store(k, g->regs, at, choose(g, &g->s));
    kir_end(k);
    g->i = save[0];
    g->f = save[1];
    g->s = save[2];
}

static void step_if(struct gen *g, kval shared)
{
    struct kir *k = &g->k;
    const struct pool save[3] = {g->i, g->f, g->s};
    bool before = g->divided;
    g->divided = true;
    kir_if(k, kir_lt(k, g->warpgroup, kir_int(k, 1 + pick(g, 3))));
    block(g, shared, 1 + pick(g, 3));
    kir_store(k, g->reg, kir_int(k, 1), choose(g, &g->f));
    kir_store(k, g->regs, kir_int(k, 1), choose(g, &g->s));
    kir_end(k);
    g->divided = before;
    g->i = save[0];
    g->f = save[1];
    g->s = save[2];
}

static void block(struct gen *g, kval shared, i64 n)
{
    g->depth++;
    for (; n > 0; n--) {
        switch (pick(g, 10)) {
        case 0: step_subgroup(g); break;
        case 1: step_shuffle(g); break;
        case 2: step_fragment(g); break;
        case 3:
            if (!g->divided) step_stage(g, shared);
            break;
        case 4:
            if (g->depth < 4) step_loop(g, shared);
            break;
        case 5:
            if (g->depth < 4) step_if(g, shared);
            break;
        case 6: keep(g, &g->f, kir_load(&g->k, g->reg, kir_int(&g->k, pick(g, 2)))); break;
        case 8:
            if (!g->divided) step_copy(g);
            break;
        case 7: keep(g, &g->s, kir_load(&g->k, g->regs, kir_int(&g->k, pick(g, 2)))); break;
        default: step_arithmetic(g); break;
        }
    }
    g->depth--;
}

static void begin(struct gen *g, struct arena *a, u64 seed)
{
    struct kir *k = &g->k;
    *g = (struct gen){.r = rng_seed(seed)};
    kir_init(k, a, S("random"));
    k->group[0] = GROUP;
    k->subgroup = 4u << pick(g, 4);
    k->warpgroup = 1u << pick(g, 3);
    while (k->subgroup * k->warpgroup > GROUP) k->warpgroup /= 2;
    g->x = kir_buf(k, S("x"), DT_F32, KA_IN);
    g->h = kir_buf(k, S("h"), DT_F16, KA_IN);
    g->y = kir_buf(k, S("y"), DT_F32, KA_OUT);
    g->z = kir_buf(k, S("z"), DT_I64, KA_OUT);
    g->w = kir_buf(k, S("w"), DT_F32, KA_INOUT);
    g->it = kir_grid(k, kir_int(k, ITERS));
    g->thread = kir_thread(k, 0);
    g->subgroup = kir_subgroup(k, 0);
    g->warpgroup = kir_div_i(k, g->subgroup, k->warpgroup);
    g->lane = kir_subgroup(k, 1);
    keep_int(g, g->thread);
    keep_int(g, kir_add(k, kir_mul_i(k, g->it, 40), g->lane));
    keep(g, &g->f, kir_load(k, g->x, g->i.v[1]));
    keep(g, &g->f, kir_const_f(k, DT_F32, 1, 0.5));
    keep(g, &g->s, kir_frag_fill(k, &sum, kir_const_f(k, DT_F32, 1, 1)));
    g->reg = kir_alloc(k, KS_REG, DT_F32, 1, kir_int(k, 2));
    g->regs = kir_alloc_frag(k, &sum, kir_int(k, 2));
    for (i64 i = 0; i < 2; i++) {
        kir_store(k, g->reg, kir_int(k, i), g->f.v[i]);
        kir_store(k, g->regs, kir_int(k, i), g->s.v[0]);
    }
}

static void make(struct gen *g, struct arena *a, u64 seed)
{
    begin(g, a, seed);
    struct kir *k = &g->k;
    kval shared = kir_alloc(k, KS_SHARED, DT_F32, 1, kir_int(k, GROUP));
    g->copies = pick(g, 2) ? kir_alloc_swizzled(k, DT_F32, kir_int(k, 2 * GROUP))
                           : kir_alloc(k, KS_SHARED, DT_F32, 1, kir_int(k, 2 * GROUP));
    block(g, shared, 3 + pick(g, 14));
    kval at = kir_mul_i(k, kir_add(k, kir_mul_i(k, g->it, GROUP), g->thread), OUTS);
    for (u32 i = 0; i < OUTS; i++) {
        kir_store(k, g->y, kir_add_i(k, at, i), choose(g, &g->f));
        kir_store(k, g->z, kir_add_i(k, at, i), choose(g, &g->i));
    }
    kval warpgroup = kir_add(k, kir_mul_i(k, g->it, GROUP / k->subgroup / k->warpgroup), g->warpgroup);
    bool is_turned = pick(g, 2);
    kir_frag_store(k, g->w, kir_mul_i(k, warpgroup, SIDE * SIDE), choose(g, &g->s), kir_int(k, SIDE), is_turned);
    kir_end(k);
}

struct results {
    float y[ITERS * GROUP * OUTS];
    i64 z[ITERS * GROUP * OUTS];
    float w[ITERS * GROUP / 4 * SIDE * SIDE];
};

static void run(const struct kir *k, struct results *r, u64 seed)
{
    float x[N_IN];
    u16 h[N_IN];
    struct rng g = rng_seed(seed);
    for (i64 i = 0; i < N_IN; i++) x[i] = (float)rng_normal(&g);
    for (i64 i = 0; i < N_IN; i++) h[i] = f16_from_f32((float)rng_normal(&g));
    memset(r, 0, sizeof *r);
    const struct kir_arg arg[] = {
        {x, N_IN}, {h, N_IN}, {r->y, countof(r->y)}, {r->z, countof(r->z)}, {r->w, countof(r->w)}};
    const struct kir_eval_opts o = {.seed = seed};
    struct err e = {0};
    struct buf b = {0};
    if (kir_eval(k, arg, NULL, &o, &e)) return;
    kir_print(&b, k);
    fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, e.msg, b.p);
}

static void check_text(const struct kir *k, struct arena *a, u64 seed)
{
    struct buf one = {0}, two = {0};
    struct kir again;
    struct err e = {0};
    kir_print(&one, k);
    if (!kir_parse(&again, a, buf_view(&one), &e))
        fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, e.msg, one.p);
    kir_print(&two, &again);
    assert_true(str_eq(buf_view(&one), buf_view(&two)));
    buf_release(&one);
    buf_release(&two);
}

static void test_random(void **state)
{
    static struct results want, got;
    u32 n_collective = 0;
    for (u64 seed = 1; seed <= 600; seed++) {
        struct arena a = {0};
        struct gen g;
        struct kir out;
        struct err e = {0};
        const struct kir_limits l = {.max_lanes_bytes = 16};
        make(&g, &a, seed);
        check_text(&g.k, &a, seed);
        run(&g.k, &want, seed);
        if (!kir_legalise(&out, &a, &g.k, &l, &e))
            fail_msg("seed %llu: %s", (unsigned long long)seed, e.msg);
        run(&out, &got, seed);
        for (kval v = 1; v < out.ins.n; v++) n_collective += kir_is_collective(&out, v);
        if (memcmp(&want, &got, sizeof want)) {
            struct buf b = {0};
            kir_print(&b, &g.k);
            fail_msg("seed %llu: results differ\n%s", (unsigned long long)seed, b.p);
        }
        arena_release(&a);
    }
    assert_true(n_collective > 600 * 3);
}

/* Fragments of arrays in panels: element by element, also as legalised and parsed again; the last element that exists is the last. */
static void test_panels(void **state)
{
    enum { ROWS = 16, COLS = 32, SIZE = 4096 };
    static float x[SIZE], y[ROWS * COLS];
    for (i64 i = 0; i < SIZE; i++) x[i] = (float)i;
    for (u64 seed = 1; seed <= 200; seed++) {
        struct arena a = {0};
        struct rng r = rng_seed(seed);
        struct kir k, out;
        struct err e = {0};
        struct kir_frag f = {KR_ACC, DT_F32, ROWS, COLS};
        bool columns = rng_range(&r, 0, 1);
        i64 pitch = 4 << rng_range(&r, 0, 3), panels = 4 * rng_range(&r, 0, 60), at = 4 * rng_range(&r, 0, 60);
        i64 line = columns ? ROWS : COLS, lines = columns ? COLS : ROWS, last = 0;
        for (i64 i = 0; i < line; i++) last = i64_max(last, at + (lines - 1) * pitch + i % pitch + i / pitch * panels);
        kir_init(&k, &a, S("panels"));
        k.group[0] = 32, k.subgroup = 8, k.warpgroup = 4;
        kval from = kir_buf(&k, S("x"), DT_F32, KA_IN), to = kir_buf(&k, S("y"), DT_F32, KA_OUT);
        kir_grid(&k, kir_int(&k, 1));
        struct kir_frag_place p = {from, kir_int(&k, at), kir_int(&k, pitch), kir_int(&k, panels), columns};
        kir_frag_store(&k, to, kir_int(&k, 0), kir_frag_load_at(&k, &f, &p), kir_int(&k, COLS), false);
        kir_end(&k);
        check_text(&k, &a, seed);
        assert_true(kir_legalise(&out, &a, &k, &(struct kir_limits){0}, &e));
        struct kir_arg arg[] = {{x, last + 1}, {y, ROWS * COLS}};
        if (!kir_eval(&out, arg, NULL, &(struct kir_eval_opts){.seed = seed}, &e)) fail_msg("seed %llu: %s", (unsigned long long)seed, e.msg);
        for (i64 i = 0; i < ROWS * COLS; i++) {
            i64 row = i / COLS, col = i % COLS, n = columns ? col : row, j = columns ? row : col;
            assert_true(y[i] == (float)(at + n * pitch + j % pitch + j / pitch * panels));
        }
        arg[0].n = last;
        assert_false(kir_eval(&out, arg, NULL, &(struct kir_eval_opts){.seed = seed}, &e));
        assert_non_null(strstr(e.msg, "out of bounds"));
        arena_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_panels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
