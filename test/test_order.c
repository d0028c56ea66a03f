// SPDX-License-Identifier: Apache-2.0
//
// The order of sums: kernels of convolutions and matmuls whose schedules neither split a sum nor
// state another order round like their definitions (tune/exact_conv.c), for any tiles, copies and
// threads.
#include "gen_tasks.h"
#include "tune/exact.h"

/* Families of that order, with the values of parameters that keep it: "a=1 b<2"; "": all schedules do. */
static const struct { const char *family, *keeps; } ordered[] = {
    {"gemm", "split_k=1 right<3"},
    {"conv_gemm", ""},
    {"conv_blocked", ""},
    {"conv_dw", ""},
    {"conv_igemm", "split_k=1 bk=0"},
    {"conv_transpose", ""},
    {"elementwise", ""},
    {"wg_gemm", "split_k_local=1 split_k=1 stream_k=0 half=0"},
    {"wg_igemm", "order=0 split_k=1"},
    {"wg_conv_dw", ""},
    {"wg_elementwise", ""},
};

static bool keeps(const char *rule, const struct candidate *c)
{
    char name[32], is[2];
    int value, used;
    for (; sscanf(rule, " %31[a-z_]%1[=<]%d%n", name, is, &value, &used) == 3; rule += used)
        if (*is == '=' ? value_of(c, name) != value : value_of(c, name) >= value) return false;
    return true;
}

/* Long enough for several passes. */
static bool long_gemm(struct fixture *b)
{
    static const i64 sizes[] = {1, 2, 5, 8, 16, 17, 33}, lengths[] = {30, 64, 100, 140, 300, 530};
    bool symbolic = pick(b, 0, 3) == 0;
    sym m = size_of(b, sizes[pick(b, 0, 6)], symbolic), n = size_of(b, sizes[pick(b, 0, 6)], symbolic), k = size_of(b, lengths[pick(b, 0, 5)], symbolic);
    value_id right = operand(b, "b", 2, (sym[]){k, n}, pick(b, 0, 1)), left = operand(b, "a", 2, (sym[]){m, k}, false);
    value_id y = add_op(b, "MatMul", left, right, 0);
    if (!infer_nodes(b)) return false;
    if (pick(b, 0, 1)) y = add_op(b, "Add", y, operand(b, "c", 1, &n, true), 0);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static bool three(struct fixture *b) { return random_conv_like(b, true); }

/* Where the last axis has one output, the tile's x, whose taps are the innermost, is another. */
static bool has_last_axis(const struct fixture *b)
{
    i64 dim[MAX_RANK];
    for (node_id n = 1; n < b->t.g.node.n; n++) {
        const struct value *y = graph_value(&b->t.g, graph_node(&b->t.g, n)->out.v[0]);
        if (op_of(&b->t.g, n)->props & OP_CONV && shape_eval(b->t.g.sym, &y->shape, b->var, dim) && dim[y->shape.rank - 1] == 1) return false;
    }
    return true;
}

static bool rounds_alike(struct fixture *b, const struct kernel *k, u64 seed)
{
    struct exact_result r = {0};
    struct err e = {0};
    struct caps plain = b->caps;
    plain.no_winograd = true;
    if (!exact_compare(&r, &b->t, k, b->var, &(struct exact_opts){.seed = seed, .ordered = &plain}, &e)) fail_msg("%s", e.msg);
    bool same = r.verdict == EXACT_YES;
    if (!same) err_set(&b->e, ERR_FAILED, "%.*s", (int)r.why.n, r.why.p);
    exact_result_release(&r);
    return same;
}

static u32 try_family(struct fixture *b, u32 f, u64 seed)
{
    const struct gen *g = gen_find(str_of(ordered[f].family));
    u32 n = 0;
    if (!gen_matches(g, &b->t, &b->caps)) return 0;
    for (u32 i = 0; i < 2; i++) {
        struct candidate c = i ? fixture_schedule(b, g) : gen_initial(g, &b->t, &b->caps, b->var);
        struct kernel k;
        if (!keeps(ordered[f].keeps, &c)) continue;
        if (!gen_kernel(&k, &b->arena, &c, &b->t, &b->caps, &b->e) || !rounds_alike(b, &k, seed)) report(b, &c, seed);
        n++;
    }
    return n;
}

static void test_order(void **state)
{
    static bool (*const make[])(struct fixture *) = {random_conv, long_gemm, random_point, random_transpose, random_depthwise, three, random_gemm};
    u32 n[countof(ordered)] = {0};
    for (u64 seed = first_seed(0, 210); seed < last_seed(0, 210); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (seed / countof(make) % 2) fixture_use_workgroups(&b);
        b.in_blocks = pick(&b, 0, 3) == 0;
        if (make[seed % countof(make)](&b) && has_last_axis(&b))
            for (u32 f = 0; f < countof(ordered); f++) n[f] += try_family(&b, f, seed);
        fixture_close(&b);
    }
    for (u32 f = 0; f < countof(ordered); f++) {
        print_message("%s: %u kernels\n", ordered[f].family, n[f]);
        assert_true(is_enough(n[f], 3));
    }
}

/* Schedules that split sums are distinguished from others. */
static void test_split(void **state)
{
    struct fixture b;
    struct candidate c;
    struct kernel k;
    struct err e = {0};
    fixture_open(&b, 1);
    sym m = sym_const(&b.sym, 4), n = sym_const(&b.sym, 16), t = sym_const(&b.sym, 64);
    value_id left = add_input(&b, "a", 2, (sym[]){m, t}), right = add_input(&b, "b", 2, (sym[]){t, n});
    value_id y = add_op(&b, "MatMul", left, right, 0);
    *arr_push(&b.arena, &b.g.output) = y;
    assert_true(make_task(&b));
    c = gen_initial(gen_find(S("gemm")), &b.t, &b.caps, b.var);
    for (i32 parts = 1; parts <= 2; parts++) {
        set_value(&c, "split_k", parts);
        if (!gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &e)) fail_msg("%s", e.msg);
        assert_int_equal(rounds_alike(&b, &k, 1), parts == 1);
    }
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
