// SPDX-License-Identifier: Apache-2.0
//
// The generators `pool`, `conv_transpose`, `conv_grad`, `conv_dot`, `conv_dw`, `conv_igemm` and `gemm` (on convolutions of single pixels) on random tasks under random legal schedules, with things fused in front and behind,
// sizes known or symbolic, in rows or channels last: the interpreted kernel gives what the reference evaluator gives.
#include "gen_tasks.h"

static void try_family(bool (*build)(struct bed *b), u64 n_seeds)
{
    u32 n = 0, n_tasks = 0;
    for (u64 seed = first_seed(0, n_seeds); seed < last_seed(0, n_seeds); seed++) {
        struct bed b;
        bed_open(&b, seed);
        if (build(&b)) n_tasks++, n += try_task(&b, seed, 5);
        bed_close(&b);
    }
    print_message("%u tasks, %u kernels\n", n_tasks, n);
    assert_true(is_enough(n, n_seeds));
}

static void test_pool(void **state) { try_family(random_pool, 60); }
static void test_transpose(void **state) { try_family(random_transpose, 60); }

/* Convolutions that a family can do, which are few among random ones. */
static void try_few(const char *family, bool (*build)(struct bed *b), u64 n_seeds, u32 least)
{
    u32 n = 0, n_tasks = 0;
    for (u64 seed = first_seed(0, n_seeds); seed < last_seed(0, n_seeds); seed++) {
        struct bed b;
        bed_open(&b, seed);
        b.only = gen_find(str_of(family));
        if (build(&b) && gen_matches(b.only, &b.t, &b.caps)) n_tasks++, n += try_task(&b, seed, 4);
        bed_close(&b);
    }
    print_message("%u tasks, %u kernels\n", n_tasks, n);
    assert_true(is_enough(n_tasks, least) && is_enough(n, n_tasks - 1));
}

static void test_dot(void **state) { try_few("conv_dot", random_conv, 900, 25); }
static void test_depthwise(void **state) { try_few("conv_dw", random_depthwise, 300, 100); }
static void test_grad(void **state) { try_few("conv_grad", random_grad, 250, 150); }
static void test_merged(void **state)
{
    try_few("conv_igemm", random_conv, 400, 150);
    try_few("conv_igemm", random_transpose, 300, 60);
}
static void test_point(void **state) { try_few("gemm", random_point, 400, 60); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_dot),
        cmocka_unit_test(test_depthwise),
        cmocka_unit_test(test_grad),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
