// SPDX-License-Identifier: Apache-2.0
//
// Loads ahead of their users (kir_ahead): loops of a matrix product's register tile, of any number of iterations, give the same results without an
// access out of bounds, load neighbouring scalars together, and load vectors some multiply-adds before these are needed.
#include "kir/kir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 4, COLUMNS = 3, LANES = 4, WIDTH = COLUMNS * LANES, STEPS = 4, MOST = 32 };

struct tile { struct arena arena; struct kir k, ahead; float a[ROWS * MOST], b[MOST * WIDTH], c[ROWS * WIDTH]; };

/* c = a (ROWS x n) * b (n x WIDTH), four terms an iteration; n is a multiple of four, the distance of rows is MOST. */
static void make_tile(struct tile *t, bool reads_sums)
{
    struct kir *k = &t->k, whole;
    struct err e = {0};
    kval acc[ROWS * COLUMNS];
    kir_init(&whole, &t->arena, S("k"));
    kval a = kir_buf(&whole, S("a"), DT_F32, KA_IN), b = kir_buf(&whole, S("b"), DT_F32, KA_IN), c = kir_buf(&whole, S("c"), DT_F32, reads_sums ? KA_INOUT : KA_OUT);
    kir_grid(&whole, kir_int(&whole, 1));
    kval sums = kir_alloc(&whole, KS_REG, DT_F32, LANES, kir_int(&whole, ROWS * COLUMNS));
    for (i64 i = 0; i < ROWS * COLUMNS; i++) {
        acc[i] = kir_int(&whole, i);
        kval at = kir_ramp(&whole, kir_int(&whole, i * LANES), 1, LANES);
        kir_store(&whole, sums, acc[i], reads_sums ? kir_load(&whole, c, at) : kir_const_f(&whole, DT_F32, LANES, 0));
    }
    kval i = kir_loop(&whole, KL_SERIAL, kir_int(&whole, 0), kir_param(&whole, S("n")), STEPS);
    for (i64 s = 0; s < STEPS; s++) {
        kval term = kir_add_i(&whole, i, s), right[COLUMNS];
        for (i64 j = 0; j < COLUMNS; j++) right[j] = kir_load(&whole, b, kir_ramp(&whole, kir_add_i(&whole, kir_mul_i(&whole, term, WIDTH), j * LANES), 1, LANES));
        for (i64 r = 0; r < ROWS; r++) {
            kval left = kir_splat(&whole, kir_load(&whole, a, kir_add_i(&whole, term, r * MOST)), LANES);
            for (i64 j = 0; j < COLUMNS; j++) kir_store(&whole, sums, acc[r * COLUMNS + j], kir_fma(&whole, left, right[j], kir_load(&whole, sums, acc[r * COLUMNS + j])));
        }
    }
    kir_end(&whole);
    for (i64 j = 0; j < ROWS * COLUMNS; j++) kir_store(&whole, c, kir_ramp(&whole, kir_int(&whole, j * LANES), 1, LANES), kir_load(&whole, sums, acc[j]));
    kir_end(&whole);
    struct kir_limits limits = {.max_lanes_bytes = 16};
    struct kir ordered;
    kir_order(&ordered, &t->arena, &whole, true);
    if (!kir_legalise(k, &t->arena, &ordered, &limits, &e)) fail_msg("%s", e.msg);
    kir_ahead(&t->ahead, &t->arena, k, 32);
    if (!kir_verify(&t->ahead, &e)) fail_msg("%s", e.msg);
}

static void run(struct tile *t, const struct kir *k, i64 n, float c[ROWS * WIDTH])
{
    struct err e = {0};
    struct rng r = rng_seed((u64)n);
    for (u32 i = 0; i < countof(t->a); i++) t->a[i] = (float)rng_range(&r, -8, 8);
    for (u32 i = 0; i < countof(t->b); i++) t->b[i] = (float)rng_range(&r, -8, 8);
    for (u32 i = 0; i < ROWS * WIDTH; i++) c[i] = (float)i;
    const struct kir_arg arg[] = {{t->a, (ROWS - 1) * MOST + n}, {t->b, n * WIDTH}, {c, ROWS * WIDTH}}; /* no element more than there is */
    if (!kir_eval(k, arg, &n, NULL, &e)) fail_msg("%lld terms: %s", (long long)n, e.msg);
}

static void test_loops(void **state)
{
    for (u32 reads = 0; reads < 2; reads++) {
        struct tile t = {0};
        float want[ROWS * WIDTH], got[ROWS * WIDTH];
        make_tile(&t, reads);
        for (i64 n = 0; n <= MOST; n += STEPS) {
            run(&t, &t.k, n, want);
            run(&t, &t.ahead, n, got);
            assert_memory_equal(want, got, sizeof want);
        }
        arena_release(&t.arena);
    }
}

/* In the innermost loop: vectors loaded from memory, scalars, and multiply-adds between a load and its first user. */
static void test_distances(void **state)
{
    struct tile t = {0};
    u32 vectors = 0, scalars = 0, fma = 0, least = UINT32_MAX;
    make_tile(&t, false);
    const struct kir *k = &t.ahead;
    kval loop = 1;
    while (kir_at(k, loop)->op != KI_LOOP) loop++;
    for (kval v = loop; kir_at(k, v)->op != KI_END; v++) {
        const struct kir_ins *x = kir_at(k, v);
        fma += x->op == KI_FMA;
        if (x->op != KI_LOAD || kir_at(k, x->a)->op != KI_BUF) continue;
        vectors += x->lanes == LANES, scalars += x->lanes == 1;
        u32 n = 0;
        for (kval u = v + 1; kir_at(k, u)->op != KI_END; u++) {
            const struct kir_ins *y = kir_at(k, u);
            const struct kir_ins *left = kir_at(k, y->a), *right = kir_at(k, y->b);
            bool uses = y->a == v || y->b == v || (left->op == KI_SPLAT && kir_at(k, left->a)->a == v) || (right->op == KI_SPLAT && kir_at(k, right->a)->a == v);
            if (y->op == KI_FMA && uses) {
                least = n < least ? n : least;
                break;
            }
            n += y->op == KI_FMA;
        }
    }
    assert_int_equal(fma, STEPS * ROWS * COLUMNS);
    assert_int_equal(scalars, 0);
    assert_int_equal(vectors, STEPS * COLUMNS + ROWS);
    assert_true(least >= 4);
    arena_release(&t.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loops), cmocka_unit_test(test_distances)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
