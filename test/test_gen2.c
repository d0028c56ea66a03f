// SPDX-License-Identifier: Apache-2.0
//
// The generators `pool`, `conv_transpose`, `conv_grad`, `conv_dot`, `conv_dw`, `conv_igemm` and `gemm` (on convolutions of single pixels) on random tasks under random legal schedules, with things fused in front and behind,
// sizes known or symbolic, in rows or channels last: the interpreted kernel agrees with the reference evaluator.
#include "gen_tasks.h"
#include "lab/conv.h"

static void try_family(bool (*build)(struct fixture *b), u64 n_seeds)
{
    u32 n = 0, n_tasks = 0;
    for (u64 seed = first_seed(0, n_seeds); seed < last_seed(0, n_seeds); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (build(&b)) n_tasks++, n += try_task(&b, seed, 5);
        fixture_close(&b);
    }
    print_message("%u tasks, %u kernels\n", n_tasks, n);
    assert_true(is_enough(n, n_seeds));
}

static void test_pool(void **state) { try_family(random_pool, 60); }
static void test_transpose(void **state) { try_family(random_transpose, 60); }

/* Convolutions that a family can do, which are few among random ones. */
static void try_few(const char *family, bool (*build)(struct fixture *b), u64 n_seeds, u32 least)
{
    u32 n = 0, n_tasks = 0;
    for (u64 seed = first_seed(0, n_seeds); seed < last_seed(0, n_seeds); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.only = gen_find(str_of(family));
        if (build(&b) && gen_matches(b.only, &b.t, &b.caps)) n_tasks++, n += try_task(&b, seed, 4);
        fixture_close(&b);
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

/* Windows of far or very many taps: every family that takes the task has a legal schedule for it, with either layout. */
static void test_wide_windows(void **state)
{
    static const struct conv_row rows[] = {
        {.channels = 3, .out_channels = 8, .groups = 1, .kernel = {3, 3}, .dilation = {1000, 1000}},
        {.channels = 960, .out_channels = 256, .groups = 1, .kernel = {3, 3}, .dilation = {24, 24}},
        {.channels = 8, .out_channels = 16, .groups = 4, .kernel = {3, 3}, .dilation = {1000, 1000}},
        {.channels = 16, .out_channels = 16, .groups = 16, .kernel = {3, 3}, .dilation = {1000, 1000}},
        {.channels = 16, .out_channels = 16, .groups = 16, .kernel = {41, 41}, .dilation = {1, 1}},
        {.channels = 64, .out_channels = 2, .groups = 1, .kernel = {3, 3}, .dilation = {1000, 1000}},
        {.channels = 8, .out_channels = 8, .groups = 1, .kernel = {3, 3}, .dilation = {900, 900}, .is_transposed = true},
    };
    for (u32 i = 0; i < 2 * countof(rows); i++) {
        struct fixture b;
        struct candidate c;
        struct conv_row row = rows[i / 2];
        u32 n = 0;
        fixture_open(&b, i);
        row.axes = 2, row.batch = 1;
        for (u32 a = 0; a < 2; a++)
            row.size[a] = 80, row.stride[a] = 1, row.pad_begin[a] = row.pad_end[a] = row.dilation[a] * (row.kernel[a] - 1) / 2;
        if (!conv_row_task(&b.t, &b.arena, &b.sym, &row, DT_F32, i % 2 ? LAYOUT_CLAST : LAYOUT_ROWS, &b.e)) report(&b, NULL, i);
        for (i64 k = 0; gen_at(k); k++) {
            if (!gen_matches(gen_at(k), &b.t, &b.caps)) continue;
            c = gen_initial(gen_at(k), &b.t, &b.caps, NULL);
            if (!gen_legal(&c, &b.t, &b.caps)) report(&b, &c, i);
            n++;
        }
        assert_true(n > 0 && gen_default(&b.t, &b.caps, NULL, &c));
        fixture_close(&b);
    }
}

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
        cmocka_unit_test(test_wide_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
