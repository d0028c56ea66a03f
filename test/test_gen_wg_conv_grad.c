// SPDX-License-Identifier: Apache-2.0
//
// wg_conv_grad: random gradients of convolutions' weights (one to three axes, strides, padding, dilation, groups, something in front and
// behind, all layouts, known and unknown sizes) on random devices under random legal schedules give in the interpreter, which finds
// races and accesses outside, what the reference gives; some do on devices. Every way to copy and split of K must have occurred.
// Of layers as in networks, its space and that of conv_grad can be walked, and hold the default schedule.
#include "gen_tasks.h"
#include "vulkan_fixture.h"

enum { N_PIPES = 3 };

struct seen { u32 n, pipe[N_PIPES], chunks, groups, axes[4]; };

static const struct gen *family(void) { return gen_find(S("wg_conv_grad")); }

static void tally(struct fixture *b, const struct candidate *c, struct seen *s)
{
    const struct node *n = graph_node(&b->t.g, b->t.anchor);
    s->n++;
    s->pipe[value_of(c, "pipe")]++;
    s->chunks += value_of(c, "split_k") > 1;
    s->groups += attr_int(n, "group", 1) > 1;
    s->axes[graph_value(&b->t.g, n->in.v[0])->shape.rank - 2]++;
}

static void try_tasks(u64 from, u64 to, enum dtype type, struct seen *seen)
{
    for (u64 seed = first_seed(from, to); seed < last_seed(from, to); seed++) {
        struct fixture b;
        struct check k;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.type = type;
        bool ok = random_grad(&b) && gen_takes(family(), &b.t, &b.caps) && check_init(&k, &b.t, b.var, seed, true, &b.e);
        for (u32 i = 0; ok && i < 4; i++) {
            struct candidate c = i ? fixture_schedule(&b, family()) : gen_initial(family(), &b.t, &b.caps, b.var);
            if (!run(&b, &c, &k)) report(&b, &c, seed);
            tally(&b, &c, seen);
        }
        if (ok) check_release(&k);
        fixture_close(&b);
    }
}

static void test_interpreted(void **state)
{
    struct seen s = {0};
    try_tasks(0, 60, DT_F32, &s);
    try_tasks(1000, 1015, DT_F16, &s);
    try_tasks(2000, 2010, DT_BF16, &s);
    print_message("%u kernels, %u with chunks, %u with groups of channels\n", s.n, s.chunks, s.groups);
    for (u32 i = 0; i < N_PIPES; i++) assert_true(is_enough(s.pipe[i], 10));
    for (u32 i = 1; i < 4; i++) assert_true(is_enough(s.axes[i], 10));
    assert_true(is_enough(s.chunks, 20) && is_enough(s.groups, 10));
}

static void test_devices(void **state)
{
    struct gpus g = find_gpus();
    u32 n = 0;
    for (u64 seed = first_seed(5000, 5010); seed < last_seed(5000, 5010); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.only = family();
        if (random_grad(&b)) n += try_gpu(&b, &g, seed);
        fixture_close(&b);
    }
    assert_true(is_enough(n, 4));
}

struct layer { i64 batch, in, out, size, kernel, group; };

static bool make_layer(struct fixture *b, const struct layer *x, bool clast)
{
    i64 p = x->kernel / 2;
    sym size = sym_const(&b->sym, x->size), n = sym_const(&b->sym, x->batch);
    value_id v = add_input(b, "x", 5, (sym[]){n, sym_const(&b->sym, x->in), size, size, size});
    value_id dy = add_input(b, "dy", 5, (sym[]){n, sym_const(&b->sym, x->out), size, size, size});
    value_id dw = add_op(b, "quern::ConvGradWeight", v, dy, 0);
    node_id node = graph_value(&b->g, dw)->producer;
    attr_set_ints(&b->g, node, "kernel_shape", (i64[]){x->kernel, x->kernel, x->kernel}, 3);
    attr_set_ints(&b->g, node, "pads", (i64[]){p, p, p, p, p, p}, 6);
    attr_set_int(&b->g, node, "group", x->group);
    *arr_push(&b->arena, &b->g.output) = dw;
    if (!op_infer_all(&b->g, &b->e)) return false;
    enum layout *of = arena_array(&b->arena, enum layout, b->g.value.n);
    if (clast) of[v] = of[dy] = LAYOUT_CLAST;
    return task_make(&b->t, &b->g, &b->arena, &node, 1, b->g.output.v, 1, of, NULL, &b->e);
}

static void test_choice(void **state)
{
    static const struct layer layers[] = {{4, 4, 16, 128, 3, 1},   {1, 1, 16, 128, 3, 1},    {1, 16, 32, 64, 3, 1},  {4, 256, 256, 4, 3, 1},
                                          {1, 1, 512, 32, 1, 1},   {2, 2048, 512, 7, 1, 1},  {1, 96, 96, 56, 3, 96}, {8, 3, 64, 32, 7, 1},
                                          {1, 640, 640, 8, 1, 640}, {1, 512, 1, 32, 1, 1},   {1, 64, 96, 30, 3, 2},  {1, 1, 1, 1, 1, 1}};
    for (u32 i = 0; i < 4 * countof(layers); i++) {
        struct fixture b;
        fixture_open(&b, 2);
        b.caps.vector_bytes = 64;
        if (i & 1) fixture_use_workgroups(&b);
        if (i & 1) b.caps.max_group = 1024, b.caps.shared_bytes = 48 << 10, b.caps.subgroup = b.caps.subgroup_min = b.caps.subgroup_max = 32;
        assert_true(make_layer(&b, &layers[i / 4], i & 2));
        u32 n = fixture_count(&b, i & 1 ? family() : gen_find(S("conv_grad")));
        if (n < 1 || n > 20000) fail_msg("layer %u: %u schedules", i, n);
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_interpreted), cmocka_unit_test(test_devices), cmocka_unit_test(test_choice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
