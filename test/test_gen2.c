// SPDX-License-Identifier: Apache-2.0
//
// The generators `pool`, `conv_transpose` and `conv_dot` on random tasks under random legal schedules, with things fused in front and behind,
// sizes known or symbolic, in rows or channels last: the interpreted kernel gives what the reference evaluator gives.
#include "gen_tasks.h"

static value_id in_front(struct bed *b, value_id x, u32 rank, const sym *dim)
{
    i64 one[MAX_RANK] = {1, gen_static(&b->g, dim[1], 1), 1, 1, 1};
    switch (pick(b, 0, 3)) {
    case 0: return add_op(b, "Relu", x, 0, 0);
    case 1: return add_op(b, "Mul", x, add_const(b, "scale", rank, one), 0);
    default: return x;
    }
}

static value_id behind(struct bed *b, value_id y)
{
    switch (pick(b, 0, 4)) {
    case 0: return add_op(b, "Sigmoid", y, 0, 0);
    case 1: return op_infer_all(&b->g, &b->e) ? add_op(b, "Add", y, add_input(b, "other", graph_value(&b->g, y)->shape.rank,
                                                                   graph_value(&b->g, y)->shape.dim), 0) : y;
    default: return y;
    }
}

/* n, channels, spatial axes of at least `least` */
static value_id picture(struct bed *b, u32 rank, i64 channels, const i64 *least, sym *dim)
{
    dim[0] = sym_const(&b->sym, pick(b, 1, 2));
    dim[1] = sym_const(&b->sym, channels);
    for (u32 i = 2; i < rank; i++) dim[i] = size_of(b, least[i] + pick(b, 0, rank > 4 ? 2 : 14), pick(b, 0, 1));
    return add_input(b, "x", rank, dim);
}

static bool random_pool(struct bed *b)
{
    static const char *const ops[] = {"MaxPool", "AveragePool", "LpPool"};
    static const i64 channels[] = {1, 3, 8, 16, 17, 37};
    u32 rank = (u32)pick(b, 3, 5), n = rank - 2, kind = (u32)pick(b, 0, 2);
    i64 kernel[MAX_RANK], stride[MAX_RANK], dil[MAX_RANK], pads[2 * MAX_RANK], least[MAX_RANK];
    sym dim[MAX_RANK];
    for (u32 i = 0; i < n; i++) {
        kernel[i] = pick(b, 1, pick(b, 0, 5) ? 3 : 11), stride[i] = pick(b, 1, 3), dil[i] = pick(b, 0, 3) ? 1 : 2;
        pads[i] = pick(b, 0, kernel[i] - 1), pads[n + i] = pick(b, 0, kernel[i] - 1);
        if (pick(b, 0, 2) == 0) pads[i] = pads[n + i] = 0;
        least[2 + i] = (kernel[i] - 1) * dil[i] + 1;
    }
    value_id x = picture(b, rank, channels[pick(b, 0, 5)], least, dim);
    value_id y = add_op(b, ops[kind], in_front(b, x, rank, dim), 0, 0);
    node_id p = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, p, "kernel_shape", kernel, n);
    attr_set_ints(&b->g, p, "strides", stride, n);
    attr_set_ints(&b->g, p, "dilations", dil, n);
    attr_set_ints(&b->g, p, "pads", pads, 2 * n);
    if (kind == 1) attr_set_int(&b->g, p, "count_include_pad", pick(b, 0, 1));
    if (kind == 2) attr_set_int(&b->g, p, "p", pick(b, 1, 3));
    if (pick(b, 0, 3) == 0) attr_set_int(&b->g, p, "ceil_mode", 1);
    *arr_push(&b->arena, &b->g.output) = behind(b, y);
    return make_task(b);
}

static bool random_transpose(struct bed *b)
{
    static const i64 channels[] = {1, 2, 3, 5, 8, 19};
    u32 rank = (u32)pick(b, 3, 5), n = rank - 2;
    i64 group = pick(b, 0, 3) ? 1 : pick(b, 2, 3), ic = channels[pick(b, 0, 4)], oc = channels[pick(b, 0, 5)];
    i64 wdim[MAX_RANK] = {ic * group, oc}, stride[MAX_RANK], dil[MAX_RANK], pads[2 * MAX_RANK], extra[MAX_RANK];
    i64 least[MAX_RANK];
    sym dim[MAX_RANK];
    for (u32 i = 0; i < n; i++) {
        wdim[2 + i] = pick(b, 1, rank > 4 ? 3 : 5), stride[i] = pick(b, 1, 3), dil[i] = pick(b, 0, 5) ? 1 : 2;
        i64 span = (wdim[2 + i] - 1) * dil[i] + 1;
        pads[i] = pick(b, 0, span / 2), pads[n + i] = pick(b, 0, span / 2);
        extra[i] = pick(b, 0, stride[i] - 1);
        least[2 + i] = 2;
    }
    value_id x = picture(b, rank, ic * group, least, dim), w = add_const(b, "w", rank, wdim), bias = 0;
    if (pick(b, 0, 1)) bias = add_const(b, "b", 1, (i64[]){oc * group});
    value_id y = add_op(b, "ConvTranspose", in_front(b, x, rank, dim), w, bias);
    node_id p = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, p, "strides", stride, n);
    attr_set_ints(&b->g, p, "dilations", dil, n);
    attr_set_ints(&b->g, p, "pads", pads, 2 * n);
    attr_set_ints(&b->g, p, "output_padding", extra, n);
    attr_set_int(&b->g, p, "group", group);
    *arr_push(&b->arena, &b->g.output) = behind(b, y);
    return make_task(b);
}

static void try_family(bool (*build)(struct bed *b), u64 n_seeds)
{
    u32 n = 0, n_tasks = 0;
    for (u64 seed = first_seed(0); seed < last_seed(n_seeds); seed++) {
        struct bed b;
        bed_open(&b, seed);
        if (build(&b)) n_tasks++, n += try_task(&b, seed, 5);
        bed_close(&b);
    }
    print_message("%u tasks, %u kernels\n", n_tasks, n);
    assert_true(n > n_seeds || getenv("SEED") || getenv("GEN"));
}

static void test_pool(void **state) { try_family(random_pool, 60); }
static void test_transpose(void **state) { try_family(random_transpose, 60); }

/* Convolutions that the family can do, which are few among random ones. */
static void test_dot(void **state)
{
    u32 n = 0, n_tasks = 0;
    for (u64 seed = first_seed(0); seed < last_seed(900); seed++) {
        struct bed b;
        bed_open(&b, seed);
        b.only = gen_find(S("conv_dot"));
        if (random_conv(&b) && b.only->match(&b.t, &b.caps)) n_tasks++, n += try_task(&b, seed, 4);
        bed_close(&b);
    }
    print_message("%u tasks, %u kernels\n", n_tasks, n);
    assert_true(n_tasks > 25 || getenv("SEED"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_dot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
