// SPDX-License-Identifier: Apache-2.0
//
// The cost model of loops on a processor: more work takes no less time, larger caches and prefetching no more; what the first cache holds costs
// arithmetic alone; a loop that replaces an operand fetches it again; rows in one set of a cache are not kept.
#include "gen/nest.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { COUNT = 3000 };

static struct caps processor(i64 l1, i64 l2, i64 l3)
{
    return (struct caps){.vector_bytes = 32, .n_vector_regs = 16, .n_threads = 1, .has_fma = true, .l1_bytes = l1, .l2_bytes = l2, .l3_bytes = l3};
}

static struct nest_rates rates_for(const struct caps *c)
{
    const struct rates r = caps_rates(c);
    return nest_rates_of(c, &r);
}

static struct nest_rates usual(void)
{
    const struct caps c = processor(32 << 10, 1 << 20, 32 << 20);
    return rates_for(&c);
}

static double draw(struct rng *r, i64 most) { return (double)rng_range(r, 1, most); }

static struct nest random_nest(struct rng *r)
{
    struct nest n = {.seconds = draw(r, 1000) * 1e-8};
    for (u32 o = 0; o < N_NEST_OPERANDS; o++) n.bytes[o] = draw(r, 1 << rng_range(r, 6, 18));
    for (i64 k = rng_range(r, 0, 5); k > 0; k--) {
        double grow[N_NEST_OPERANDS];
        for (u32 o = 0; o < N_NEST_OPERANDS; o++) grow[o] = (double)rng_range(r, 0, 4) / 4;
        nest_loop(&n, draw(r, 30), grow[0], grow[1], grow[2]);
    }
    return n;
}

static double trips_of(const struct nest *n)
{
    double all = 1;
    for (u32 i = 0; i < n->n; i++) all *= n->loop[i].trips;
    return all;
}

static void test_bounds(void **state)
{
    const struct nest_rates r = usual();
    struct rng rng = rng_seed(1);
    for (u32 i = 0; i < COUNT; i++) {
        const struct nest n = random_nest(&rng);
        double least = n.seconds * trips_of(&n), got = nest_seconds(&n, &r);
        assert_true(isfinite(got) && got >= least * (1 - 1e-9));
    }
}

static void test_more_arithmetic(void **state)
{
    const struct nest_rates r = usual();
    struct rng rng = rng_seed(2);
    for (u32 i = 0; i < COUNT; i++) {
        struct nest n = random_nest(&rng), more = n;
        more.seconds *= 1 + draw(&rng, 100) / 50;
        assert_true(nest_seconds(&more, &r) >= nest_seconds(&n, &r) * (1 - 1e-9));
    }
}

static void test_more_of_the_outermost_loop(void **state)
{
    const struct nest_rates r = usual();
    struct rng rng = rng_seed(3);
    for (u32 i = 0; i < COUNT; i++) {
        struct nest n = random_nest(&rng);
        if (n.n == 0) continue;
        struct nest more = n;
        more.loop[n.n - 1].trips *= 2;
        assert_true(nest_seconds(&more, &r) >= nest_seconds(&n, &r) * (1 - 1e-9));
    }
}

/* Nothing leaves the first cache, and it is there from the run before. */
static void test_all_near(void **state)
{
    const struct nest_rates r = usual();
    struct nest n = {.seconds = 1e-6, .bytes = {1000, 1000, 1000}};
    nest_loop(&n, 5, 1, 0, 0);
    nest_loop(&n, 10, 0, 0, 0);
    assert_true(fabs(nest_seconds(&n, &r) / 50e-6 - 1) < 1e-9);
}

/* 100 panels of the right operand, each used by 100 bodies while it stays; then in the other order, where none does. */
static void test_order_of_loops(void **state)
{
    const struct nest_rates r = usual();
    struct nest stays = {.seconds = 1e-7, .bytes = {64, 4096, 64}}, leaves = stays;
    nest_loop(&stays, 100, 1, 0, 1), nest_loop(&stays, 100, 0, 1, 0);
    nest_loop(&leaves, 100, 0, 1, 0), nest_loop(&leaves, 100, 1, 0, 1);
    assert_true(nest_seconds(&leaves, &r) > nest_seconds(&stays, &r));
}

/* A panel larger than the first cache streams by for every body, one in a larger cache does not. */
static void test_larger_cache(void **state)
{
    const struct caps small = processor(32 << 10, 1 << 20, 32 << 20), large = processor(256 << 10, 1 << 20, 32 << 20);
    const struct nest_rates few = rates_for(&small), many = rates_for(&large);
    struct nest n = {.seconds = 1e-7, .bytes = {64, 48 << 10, 64}};
    nest_loop(&n, 100, 1, 0, 1);
    assert_true(nest_seconds(&n, &few) > nest_seconds(&n, &many) * 2);
}

static void test_prefetching(void **state)
{
    const struct nest_rates r = usual();
    struct nest n = {.seconds = 1e-6, .bytes = {64, 64 << 10, 64}}, asked = n;
    asked.asked[NEST_RIGHT] = 1;
    nest_loop(&n, 1000, 0, 1, 0), nest_loop(&asked, 1000, 0, 1, 0);
    assert_true(nest_seconds(&asked, &r) < nest_seconds(&n, &r));
}

/* 16 rows whose lines share a set of eight ways leave before they are read again; a line more between them, and they stay. */
static void test_rows_in_one_set(void **state)
{
    const struct nest_rates r = usual();
    struct nest meet = {.seconds = 1e-8, .bytes = {16 * 256, 64, 64}}, apart = meet;
    meet.rows[NEST_LEFT] = (struct nest_rows){256, 4096, 16};
    apart.rows[NEST_LEFT] = (struct nest_rows){256, 4096 + 64, 16};
    nest_loop(&meet, 1000, 0, 1, 1), nest_loop(&apart, 1000, 0, 1, 1);
    assert_true(nest_seconds(&meet, &r) > nest_seconds(&apart, &r) * 1.5);
}

/* What streams by from the third cache takes as long as that needs, although the whole stays there from run to run. */
static void test_stream(void **state)
{
    const struct nest_rates r = usual();
    for (u32 o = NEST_LEFT; o <= NEST_RIGHT; o++) {
        struct nest n = {.seconds = 1e-9, .bytes = {64, 64, 64}};
        n.bytes[o] = 4096;
        nest_loop(&n, 1000, o == NEST_LEFT, o == NEST_RIGHT, 0);
        assert_true(nest_seconds(&n, &r) > 4096 * 1000 * r.line[RATE_L3] * 0.99);
    }
}

/* The more lines a step waits for, the less of a stream is hidden behind arithmetic; two are few. */
static void test_burst(void **state)
{
    const struct nest_rates r = usual();
    struct nest n = {.seconds = 4096 * r.line[RATE_DRAM], .bytes = {64, 4096, 64}, .asked = {0, 1, 0}};
    nest_loop(&n, 1 << 16, 0, 1, 0);
    const double few = nest_seconds(&n, &r);
    double last = few;
    for (n.burst = 64; n.burst <= 2048; n.burst *= 2) {
        const double t = nest_seconds(&n, &r);
        assert_true(n.burst <= 128 ? t == few : n.burst <= 512 ? t > last : t == last);
        last = t;
    }
    assert_true(few < 0.9 * last);
}

/* Short rows with others between them take longer than rows in one piece; a value in the second cache need not be fetched. */
static void test_short_rows(void **state)
{
    const struct nest_rates r = usual();
    const struct nest_rows whole = {576, 576, 0}, part = {64, 576, 0}, half_a_line = {32, 576, 0};
    const double size = 4 << 20;
    assert_true(nest_read(&r, 4096, 64 << 10, &whole) == 0);
    assert_true(nest_read(&r, size, size, &whole) >= size * r.line[RATE_L3] * 0.99);
    assert_true(nest_read(&r, size, size, &part) > nest_read(&r, size, size, &whole));
    assert_true(nest_read(&r, size, size, &half_a_line) > 2 * nest_read(&r, size, size, &part) * 0.99);
    assert_true(nest_read(&r, size, 64 << 20, &whole) > nest_read(&r, size, size, &whole));
}

/* A step takes as long as its multiply-adds and its loads at least, and as the latency of a sum; no longer than one after the other. */
static void test_step(void **state)
{
    const struct nest_rates r = usual();
    for (i64 pixels = 1; pixels <= 28; pixels++)
        for (i64 nr = 1; nr <= 6; nr++) {
            double fmas = (double)(pixels * nr) * r.fma, loads = (double)(pixels + nr) * r.load, got = nest_step(&r, pixels, nr);
            assert_true(got >= fmas && got >= 4 * r.cycle && got <= fmax(fmas + loads, 4 * r.cycle));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),         cmocka_unit_test(test_more_arithmetic), cmocka_unit_test(test_more_of_the_outermost_loop),
        cmocka_unit_test(test_all_near),       cmocka_unit_test(test_order_of_loops),  cmocka_unit_test(test_larger_cache),
        cmocka_unit_test(test_prefetching),    cmocka_unit_test(test_rows_in_one_set), cmocka_unit_test(test_step),
        cmocka_unit_test(test_stream),         cmocka_unit_test(test_burst),   cmocka_unit_test(test_short_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
