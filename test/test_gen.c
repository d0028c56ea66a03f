// SPDX-License-Identifier: Apache-2.0
//
// Every kernel family on random tasks under random legal schedules: the interpreted kernel agrees
// with the reference evaluator and accesses only its own memory. Tasks are random instances of all
// operators, and convolutions, matmuls and reductions with fused prologues and epilogues, sizes
// known or symbolic, in all layouts. Some are compiled and run, too.
#include "gen_kinds.h"

static u32 n_kernels; /* run so far */

/* A family that GEN names may have no tasks of the kind. */
static void count_kernels(u32 n)
{
    n_kernels += n;
    assert_true(n > 0 || getenv("GEN"));
}

/* Random instances of every operator. */
static void test_operators(void **state)
{
    for (u64 seed = first_seed(0, 3); seed < last_seed(0, 3); seed++)
        for (i64 i = 0; op_all(i); i++) {
            struct fixture b;
            if (getenv("OP") && strcmp(getenv("OP"), op_all(i)->name)) continue;
            if (!op_all(i)->random || op_all(i)->props & OP_CALL) continue;
            fixture_open(&b, seed * 1000 + (u64)i);
            op_all(i)->random(op_all(i), &b.g, &b.rng);
            if (make_single(&b)) n_kernels += try_task(&b, seed, 3);
            fixture_close(&b);
        }
}

static void test_conv(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 120); seed < last_seed(0, 120); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (random_conv(&b)) n += try_task(&b, seed, 6);
        fixture_close(&b);
    }
    count_kernels(n);
}

static void test_gemm(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 150); seed < last_seed(0, 150); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (seed % 2) b.caps.l2_bytes = 1 << 10; /* operands that it does not keep */
        if (random_gemm(&b)) n += try_task(&b, seed, 6);
        fixture_close(&b);
    }
    count_kernels(n);
}

static void test_row(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 120); seed < last_seed(0, 120); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (random_row(&b)) n += try_task(&b, seed, 5);
        fixture_close(&b);
    }
    count_kernels(n);
}

static void test_quantised_row(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 120); seed < last_seed(0, 120); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (random_quantised_row(&b)) n += try_task(&b, seed, 5);
        fixture_close(&b);
    }
    count_kernels(n);
}

/* Channel shuffles: whatever is interleaved in registers. */
static void test_shuffle(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 150); seed < last_seed(0, 150); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (random_shuffle(&b)) n += try_task(&b, seed, 5);
        fixture_close(&b);
    }
    count_kernels(n);
}

/* Compiled for this processor. */
static void test_compiled(void **state)
{
    static bool (*const make[])(struct fixture *) = {random_conv, random_gemm, random_row, random_shuffle, random_quantised_row};
    for (u64 seed = first_seed(1000, 1015); seed < last_seed(1000, 1015); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (make[seed % 5](&b)) try_device(&b, "cpu", seed);
        fixture_close(&b);
    }
}

/* Sizes of any proportions, known or not, too large to be run: there is a schedule, it is emitted, and its time is a number. */
static void test_large_gemm(void **state)
{
    for (u64 seed = first_seed(0, 150); seed < last_seed(0, 150); seed++) {
        struct fixture b;
        struct candidate c;
        struct kernel k;
        sym n[4];
        fixture_open(&b, seed);
        b.caps.n_threads = 1u << pick(&b, 0, 7), b.caps.n_vector_regs = 16u << pick(&b, 0, 1);
        b.caps.l2_bytes = (i64)64 << (10 + pick(&b, 0, 6));
        i64 twos = 30; /* of all sizes together */
        for (u32 j = 0, first = (u32)pick(&b, 0, 3); j < 4; j++) {
            i64 own = pick(&b, 0, i64_min(twos, 19));
            n[(first + j) % 4] = draw_size(&b, (i64)1 << own, ((i64)1 << own) + 3, 5);
            twos -= own;
        }
        value_id x = operand(&b, "a", 3, (sym[]){n[3], n[0], n[2]}, false), w = operand(&b, "b", 2, (sym[]){n[2], n[1]}, false);
        *arr_push(&b.arena, &b.g.output) = add_op(&b, "MatMul", x, w, 0);
        assert_true(make_task(&b));
        assert_true(gen_default(&b.t, &b.caps, NULL, &c));
        assert_true(gen_predict(&c, &b.t, &b.caps, NULL) > 0);
        if (!gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e)) fail_msg("seed %llu: %s", (unsigned long long)seed, b.e.msg);
        fixture_close(&b);
    }
}

static void test_named(void **state)
{
    const char *only = getenv("GEN");
    if (only && !gen_find(str_of(only))) fail_msg("no family '%s'", only);
    if (only && !n_kernels) fail_msg("family '%s' matched none of the tasks", only);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_large_gemm),
        cmocka_unit_test(test_row),
        cmocka_unit_test(test_quantised_row),
        cmocka_unit_test(test_shuffle),
        cmocka_unit_test(test_compiled),
        cmocka_unit_test(test_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
