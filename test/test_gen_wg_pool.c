// SPDX-License-Identifier: Apache-2.0
//
// Pooling by workgroups: random tasks on random devices under random legal schedules, in the interpreter, which finds races
// and accesses outside, and on a device where one is present. All kinds of pooling, both ways to read and all extents of reuse must
// have occurred; layers as in networks of images must find few schedules and prefer this family.
#include "gen_tasks.h"
#include "vulkan_fixture.h"

static const struct gen *family(void) { return gen_find(S("wg_pool")); }

struct seen {
    u32 n, reuse[3], stage[2], inner, shared, kind[3];
};

static u32 kind_of(const struct fixture *b)
{
    struct op_pool p = {0};
    const struct graph *g = &b->t.g;
    node_id n = gen_pool_node(&b->t);
    op_of(g, n)->pool(g, graph_node(g, n), &p);
    return p.combine == KI_MAX ? 0 : p.mean ? 1 : 2;
}

static void try_pool(struct fixture *b, u64 seed, struct seen *seen)
{
    struct check k;
    if (!gen_takes(family(), &b->t, &b->caps) || !check_init(&k, &b->t, b->var, seed, true, &b->e)) return;
    for (u32 i = 0; i < 5; i++) {
        struct candidate c = i ? fixture_schedule(b, family()) : gen_initial(family(), &b->t, &b->caps, b->var);
        if (!run(b, &c, &k)) report(b, &c, seed);
        seen->n++;
        seen->reuse[value_of(&c, "reuse")]++;
        seen->stage[value_of(&c, "stage")]++;
        seen->inner += value_of(&c, "inner") == 1;
        seen->shared += value_of(&c, "out") == 1;
        seen->kind[kind_of(b)]++;
    }
    check_release(&k);
}

static void try_tasks(u64 from, u64 to, enum dtype type, struct seen *x)
{
    for (u64 seed = first_seed(from, to); seed < last_seed(from, to); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.type = type;
        if (random_pool(&b)) try_pool(&b, seed, x);
        fixture_close(&b);
    }
}

static void test_tasks(void **state)
{
    struct seen x = {0};
    try_tasks(0, 75, DT_F32, &x);
    try_tasks(1000, 1075, DT_F16, &x);
    if (getenv("VERBOSE"))
        print_message("%u: reuse %u %u %u, stage %u %u, inner %u, shared %u, kinds %u %u %u\n", x.n, x.reuse[0], x.reuse[1], x.reuse[2],
                      x.stage[0], x.stage[1], x.inner, x.shared, x.kind[0], x.kind[1], x.kind[2]);
    assert_true(is_enough(x.n, 300) && is_enough(x.reuse[0], 20) && is_enough(x.reuse[1], 0) && is_enough(x.reuse[2], 100) && is_enough(x.stage[0], 100) && is_enough(x.stage[1], 10));
    assert_true(is_enough(x.inner, 60) && is_enough(x.shared, 6) && is_enough(x.kind[0], 60) && is_enough(x.kind[1], 60) && is_enough(x.kind[2], 60));
}

static void test_device(void **state)
{
    struct gpus g = find_gpus();
    u32 n = 0;
    for (u64 seed = first_seed(2000, 2012); seed < last_seed(2000, 2012); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.type = pick(&b, 0, 1) ? DT_F16 : DT_F32;
        b.only = family();
        if (random_pool(&b)) n += try_gpu(&b, &g, seed);
        fixture_close(&b);
    }
    assert_true(is_enough(n, 4));
}

struct layer {
    const char *op;
    i64 channels, size, k, stride;
};

static void pool_layer(struct fixture *b, const struct layer *x, enum dtype type, enum layout l)
{
    i64 p = x->k / 2;
    fixture_open(b, 1);
    fixture_use_workgroups(b);
    b->type = type;
    sym size = size_of(b, x->size, false), dim[4] = {sym_const(&b->sym, 1), sym_const(&b->sym, x->channels), size, size};
    value_id y = add_op(b, x->op, add_input(b, "x", 4, dim), 0, 0);
    node_id pool = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, pool, "kernel_shape", (i64[]){x->k, x->k}, 2);
    attr_set_ints(&b->g, pool, "pads", (i64[]){p, p, p, p}, 4);
    attr_set_ints(&b->g, pool, "strides", (i64[]){x->stride, x->stride}, 2);
    *arr_push(&b->arena, &b->g.output) = y;
    assert_true(op_infer_all(&b->g, &b->e));
    enum layout *of = arena_array(&b->arena, enum layout, b->g.value.n);
    of[b->g.input.v[0]] = of[y] = l;
    assert_true(task_make(&b->t, &b->g, &b->arena, &pool, 1, b->g.output.v, 1, of, NULL, &b->e));
}

/* Layers of ResNet, Inception and of pyramids of pooling. */
static void test_choice(void **state)
{
    static const struct layer layer[] = {{"MaxPool", 64, 112, 3, 2}, {"AveragePool", 192, 35, 3, 1}, {"MaxPool", 256, 20, 5, 1},
                                         {"MaxPool", 512, 13, 13, 1}, {"AveragePool", 24, 56, 3, 2}};
    for (u32 i = 0; i < 4 * countof(layer); i++) {
        struct fixture b;
        struct candidate c;
        pool_layer(&b, &layer[i / 4], i & 1 ? DT_F16 : DT_F32, i & 2 ? LAYOUT_ROWS : LAYOUT_CLAST);
        u32 n = fixture_count(&b, family());
        assert_true(gen_default(&b.t, &b.caps, b.var, &c));
        assert_in_range(n, 2, 3000);
        assert_ptr_equal(c.gen, family());
        assert_true(value_of(&c, "threads") >= 64 && value_of(&c, "reuse") > 0);
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tasks),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_device),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
