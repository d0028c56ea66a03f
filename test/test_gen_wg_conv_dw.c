// SPDX-License-Identifier: Apache-2.0
//
// Depthwise convolutions by workgroups: random tasks on random devices under random legal schedules, in the interpreter,
// which finds races and accesses outside, and on a device where one is present. Both ways to read, all extents of reuse and pooling
// behind the convolution must have occurred; layers as in networks of images must find few schedules and prefer this family.
#include "gen_tasks.h"
#include "vulkan_fixture.h"

static const struct gen *family(void) { return gen_find(S("wg_conv_dw")); }

struct seen {
    u32 n, reuse[3], inner[2], shared, pool;
};

static void try_depthwise(struct fixture *b, u64 seed, struct seen *seen)
{
    struct check k;
    bool pool = false;
    for (node_id n = 1; n < b->t.g.node.n; n++) pool |= op_of(&b->t.g, n)->props & OP_WINDOW;
    if (!gen_takes(family(), &b->t, &b->caps) || !check_init(&k, &b->t, b->var, seed, true, &b->e)) return;
    for (u32 i = 0; i < 5; i++) {
        struct candidate c = i ? fixture_schedule(b, family()) : gen_initial(family(), &b->t, &b->caps, b->var);
        if (!run(b, &c, &k)) report(b, &c, seed);
        seen->n++;
        seen->reuse[value_of(&c, "reuse")]++;
        seen->inner[value_of(&c, "inner")]++;
        seen->shared += value_of(&c, "out") == 1;
        seen->pool += pool;
    }
    check_release(&k);
}

static void random_axes(struct fixture *b, u32 s, i64 *w, i64 *strides, i64 *dil, i64 *pads)
{
    bool large = pick(b, 0, 7) == 0;
    for (u32 i = 0; i < s; i++) {
        w[i] = large && i + 1 == s ? pick(b, 8, 70) : pick(b, 1, s == 3 ? 3 : 5);
        strides[i] = pick(b, 0, 1) ? 1 : pick(b, 1, 3);
        dil[i] = pick(b, 0, 3) ? 1 : pick(b, 2, 3);
        pads[i] = pick(b, 0, 2), pads[s + i] = pick(b, 0, 2);
    }
}

static bool depthwise(struct fixture *b)
{
    u32 s = (u32)pick(b, 1, 3), rank = s + 2;
    i64 channels = pick(b, 0, 2) ? pick(b, 2, 70) : 16 * pick(b, 1, 4), w[MAX_RANK] = {channels, 1};
    i64 strides[3], dil[3], pads[6];
    bool symbolic = pick(b, 0, 1), point = pick(b, 0, 7) == 0;
    random_axes(b, s, w + 2, strides, dil, pads);
    sym dim[MAX_RANK] = {draw_size(b, 1, 2, 4), sym_const(&b->sym, channels)};
    for (u32 i = 0; i < s; i++) {
        if (point) w[2 + i] = strides[i] = 1, pads[i] = pads[s + i] = 0;
        i64 need = (w[2 + i] - 1) * dil[i] + 1 - pads[i] - pads[s + i];
        dim[2 + i] = size_of(b, i64_max(need, 1) + pick(b, 0, s == 1 ? 60 : i + 1 == s ? 20 : 6), symbolic);
    }
    value_id x = add_input(b, "x", rank, dim);
    if (pick(b, 0, 2) == 0) x = add_op(b, "Relu", x, 0, 0);
    value_id y = add_weighted(b, "Conv", x, rank, w, pick(b, 0, 1) ? w : NULL);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_int(&b->g, n, "group", channels);
    attr_set_ints(&b->g, n, "strides", strides, s);
    attr_set_ints(&b->g, n, "dilations", dil, s);
    attr_set_ints(&b->g, n, "pads", pads, 2 * s);
    if (pick(b, 0, 5) == 0) crop_conv(b, y);
    y = random_epilogue(b, y);
    if (s == 2 && pick(b, 0, 2) == 0) {
        if (pick(b, 0, 1)) *arr_push(&b->arena, &b->g.output) = y;
        y = add_op(b, "MaxPool", y, 0, 0);
        attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "kernel_shape", (i64[]){2, 2}, 2);
        attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "strides", (i64[]){2, 2}, 2);
    }
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static void try_tasks(u64 from, u64 to, enum dtype type)
{
    struct seen x = {0};
    for (u64 seed = first_seed(from, to); seed < last_seed(from, to); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.type = type;
        if (depthwise(&b)) try_depthwise(&b, seed, &x);
        fixture_close(&b);
    }
    if (getenv("VERBOSE")) print_message("%u %u %u %u, %u %u, %u %u\n", x.n, x.reuse[0], x.reuse[1], x.reuse[2], x.inner[0], x.inner[1], x.shared, x.pool);
    assert_true(is_enough(x.n, 150) && is_enough(x.reuse[0], 10) && is_enough(x.reuse[1], 3) && is_enough(x.reuse[2], 50));
    assert_true(is_enough(x.inner[0], 30) && is_enough(x.inner[1], 30) && is_enough(x.shared, 10) && is_enough(x.pool, 5));
}

static void test_f32(void **state) { try_tasks(0, 70, DT_F32); }

static void test_f16(void **state) { try_tasks(1000, 1070, DT_F16); }

static void test_device(void **state)
{
    struct gpus g = find_gpus();
    u32 n = 0;
    for (u64 seed = first_seed(2000, 2010); seed < last_seed(2000, 2010); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.type = pick(&b, 0, 1) ? DT_F16 : DT_F32;
        b.only = family();
        if (depthwise(&b)) n += try_gpu(&b, &g, seed);
        fixture_close(&b);
    }
    assert_true(is_enough(n, 4));
}

struct layer {
    i64 channels, size, k, stride;
};

static void depthwise_layer(struct fixture *b, const struct layer *x, enum dtype type, enum layout l)
{
    i64 n = x->channels, s = x->stride, p = x->k / 2, w[4] = {n, 1, x->k, x->k};
    fixture_open(b, 1);
    fixture_use_workgroups(b);
    b->type = type;
    sym size = size_of(b, x->size, false), dim[4] = {sym_const(&b->sym, 1), sym_const(&b->sym, n), size, size};
    value_id y = add_weighted(b, "Conv", add_input(b, "x", 4, dim), 4, w, &n);
    node_id conv = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, conv, "pads", (i64[]){p, p, p, p}, 4);
    attr_set_ints(&b->g, conv, "strides", (i64[]){s, s}, 2);
    attr_set_int(&b->g, conv, "group", n);
    y = add_op(b, "Relu", y, 0, 0);
    *arr_push(&b->arena, &b->g.output) = y;
    assert_true(op_infer_all(&b->g, &b->e));
    enum layout *of = arena_array(&b->arena, enum layout, b->g.value.n);
    of[b->g.input.v[0]] = of[y] = l;
    node_id nodes[2] = {conv, graph_value(&b->g, y)->producer};
    assert_true(task_make(&b->t, &b->g, &b->arena, nodes, 2, b->g.output.v, 1, of, NULL, &b->e));
}

/* Layers of MobileNetV2 and of networks with larger kernels: no other family is predicted to be faster by more than a tenth. */
static void test_choice(void **state)
{
    static const struct layer layer[] = {{32, 112, 3, 1}, {96, 112, 3, 2}, {144, 56, 3, 1}, {192, 28, 3, 2},
                                         {384, 14, 3, 1}, {960, 7, 3, 1},  {96, 56, 7, 1}};
    for (u32 i = 0; i < 4 * countof(layer); i++) {
        struct fixture b;
        struct candidate c, own;
        depthwise_layer(&b, &layer[i / 4], i & 1 ? DT_F16 : DT_F32, i & 2 ? LAYOUT_ROWS : LAYOUT_CLAST);
        u32 n = fixture_count(&b, family());
        assert_true(gen_default(&b.t, &b.caps, b.var, &c));
        assert_in_range(n, 2, 2000);
        own = gen_initial(family(), &b.t, &b.caps, b.var);
        assert_true(gen_predict(&own, &b.t, &b.caps, b.var) <= 1.1 * gen_predict(&c, &b.t, &b.caps, b.var));
        assert_true(value_of(&own, "threads") >= 64 && value_of(&own, "reuse") > 0);
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_device),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
