// SPDX-License-Identifier: Apache-2.0
//
// Convolutions whose weights are computed while running: every family that packs constant weights takes them, too, and packs them by a
// grid of its kernel. Random tasks of one to three axes, with groups, strides, dilations, transposed and depthwise, of known and unknown
// sizes, with a prologue before the weights now and then, under random schedules: the interpreted kernel agrees with the reference
// evaluator.
#include "gen_tasks.h"
#include "lab/conv.h"

static bool random_three(struct fixture *b) { return random_conv_like(b, true); }
static bool random_blocks(struct fixture *b)
{
    b->in_blocks = true;
    return random_conv(b);
}
static bool random_halves_conv(struct fixture *b)
{
    b->type = DT_F16;
    return random_conv(b);
}

/* least: tasks among n_seeds that the family takes. */
static const struct { const char *family; bool (*build)(struct fixture *b); u64 n_seeds; u32 least; bool is_gpu; } kind[] = {
    {"conv_gemm", random_conv, 60, 30, false},
    {"conv_igemm", random_conv, 120, 30, false},
    {"conv_igemm", random_transpose, 100, 15, false},
    {"conv_winograd", random_three, 60, 20, false},
    {"conv_dw", random_depthwise, 80, 30, false},
    {"conv_direct", random_conv, 300, 8, false},
    {"conv_dot", random_conv, 300, 8, false},
    {"conv_blocked", random_blocks, 200, 20, false},
    {"conv_transpose", random_transpose, 60, 20, false},
    {"gemm", random_point, 150, 20, false},
    {"wg_conv", random_conv, 60, 20, true},
    {"wg_conv", random_transpose, 60, 20, true},
    {"wg_igemm", random_conv, 60, 20, true},
    {"wg_conv_dw", random_depthwise, 80, 20, true},
    {"mma_conv", random_halves_conv, 200, 8, true},
    {"mma_igemm", random_halves_conv, 200, 8, true},
};

static void test_families(void **state)
{
    for (u32 i = 0; i < countof(kind); i++) {
        u32 n = 0, n_tasks = 0;
        for (u64 seed = first_seed(0, kind[i].n_seeds); seed < last_seed(0, kind[i].n_seeds); seed++) {
            struct fixture b;
            fixture_open(&b, seed);
            if (kind[i].is_gpu) fixture_use_workgroups(&b);
            b.only = gen_find(str_of(kind[i].family)), b.gives_weights = true;
            if (kind[i].build(&b) && gen_matches(b.only, &b.t, &b.caps)) n_tasks++, n += try_task(&b, seed, 3);
            fixture_close(&b);
        }
        print_message("%s: %u tasks, %u kernels\n", kind[i].family, n_tasks, n);
        assert_true(is_enough(n_tasks, kind[i].least) && is_enough(n, kind[i].least));
    }
}

/* Without a database the fallback, which evaluates the whole sum of each element by itself, is never taken for a large convolution. */
static void test_default(void **state)
{
    static const i64 rows[][4] = {{1, 64, 64, 32}, {1, 512, 512, 8}, {4, 32, 48, 28}, {1, 3, 64, 64}}; /* groups, channels in and out of a group, size */
    for (u32 i = 0; i < 4 * countof(rows); i++) {
        struct fixture b;
        struct candidate c;
        const i64 *r = rows[i / 4], w[] = {r[0] * r[2], r[1], 3, 3}, up[] = {r[0] * r[1], r[2], 3, 3};
        bool is_gpu = i & 1, is_up = i & 2;
        fixture_open(&b, i);
        if (is_gpu) fixture_use_workgroups(&b);
        b.gives_weights = true;
        sym dim[] = {sym_const(&b.sym, 1), sym_const(&b.sym, r[0] * r[1]), sym_const(&b.sym, r[3]), sym_const(&b.sym, r[3])};
        value_id x = add_input(&b, "x", 4, dim), y = add_weighted(&b, is_up ? "ConvTranspose" : "Conv", x, 4, is_up ? up : w, NULL);
        attr_set_int(&b.g, graph_value(&b.g, y)->producer, "group", r[0]);
        *arr_push(&b.arena, &b.g.output) = y;
        assert_true(make_task(&b) && gen_default(&b.t, &b.caps, NULL, &c));
        assert_true(c.gen->sums != SUMS_BY_ELEMENT);
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
