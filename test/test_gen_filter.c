// SPDX-License-Identifier: Apache-2.0
//
// weighted_filter, weighted_grad, group_filter: random filters with weights per pixel and gradients of such weights (gathered, splatted, normalised, of even
// and odd kernels, dilated, of images smaller than the kernel, something in front and behind, all layouts, known and unknown sizes) under random
// legal schedules give in the interpreter what the reference gives; some do compiled for this processor and on devices. Every way to go through the taps must have been met.
#include "gen_tasks.h"
#include "vulkan_bed.h"

struct seen { u32 n, grouped, registers, splat, normalized, grad, rows; };

static value_id map_of(struct bed *b, const char *name, i64 channels, const sym *size, sym batch)
{
    sym dim[4] = {batch, sym_const(&b->sym, channels), size[0], size[1]};
    return in_front(b, add_input(b, name, 4, dim), 4, dim);
}

static bool random_filter(struct bed *b, bool grad)
{
    static const i64 channels[] = {1, 2, 3, 3, 4, 5, 8, 19, 40};
    struct symtab *t = &b->sym;
    i64 kernel[2], dilation[2], begin[2], c = channels[pick(b, 0, 8)];
    bool splat = !grad && pick(b, 0, 1), large = pick(b, 0, 5) == 0, normalize = !grad && pick(b, 0, 3) == 0;
    sym near[2], far[2], batch = size_of(b, pick(b, 1, 2), pick(b, 0, 3) == 0);
    for (u32 i = 0; i < 2; i++) {
        kernel[i] = large ? pick(b, 5, 11) : pick(b, 1, 5), dilation[i] = pick(b, 0, 3) ? 1 : 2;
        begin[i] = pick(b, 0, 3) ? (kernel[i] - 1) * dilation[i] / 2 : pick(b, 0, 4);
        near[i] = far[i] = size_of(b, pick(b, 0, 7) ? pick(b, 1, i ? 70 : 12) : 1, pick(b, 0, 2) == 0);
        if (pick(b, 0, 3) == 0) far[i] = sym_add(t, near[i], sym_const(t, pick(b, 0, 6)));
    }
    value_id side = map_of(b, "side", grad || splat ? c : kernel[0] * kernel[1], near, batch);
    value_id met = splat ? map_of(b, "w", kernel[0] * kernel[1], near, batch) : map_of(b, "met", c, far, batch);
    value_id in[2] = {grad || splat ? side : met, grad || splat ? met : side};
    value_id y = add_op(b, grad ? "quern::FilterOuter" : "quern::Filter", in[0], in[1], 0);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, n, "kernel_shape", kernel, 2);
    attr_set_ints(&b->g, n, "dilations", dilation, 2);
    attr_set_ints(&b->g, n, "begins", begin, 2);
    if (splat) attr_set_int(&b->g, n, "splat", 1), op_set_syms(&b->g, n, "out", far, 2);
    if (normalize) attr_set_int(&b->g, n, "normalize", 1), attr_set_float(&b->g, n, "epsilon", 8 * (double)(kernel[0] * kernel[1]));
    if (!infer_nodes(b)) return false;
    *arr_push(&b->arena, &b->g.output) = behind(b, y);
    return make_task(b);
}

static void tally(const struct bed *b, const struct candidate *c, struct seen *s)
{
    const struct node *n = graph_node(&b->t.g, b->t.anchor);
    bool grad = op_of(&b->t.g, b->t.anchor)->props & OP_FILTER_GRAD;
    s->n++, s->grad += grad;
    s->splat += attr_int(n, "splat", 0) != 0, s->normalized += attr_int(n, "normalize", 0) != 0;
    s->rows += graph_value(&b->t.g, b->t.g.output.v[0])->layout == LAYOUT_ROWS;
    if (grad) return;
    s->grouped += value_of(c, "group") > 0, s->registers += value_of(c, "group") == 0;
}

static const struct gen *family(bool grad) { return gen_find(grad ? S("weighted_grad") : S("weighted_filter")); }

static void try_tasks(u64 from, u64 to, enum dtype type, struct seen *seen)
{
    for (u64 seed = first_seed(from); seed < last_seed(to); seed++) {
        struct bed b;
        struct check k;
        bed_open(&b, seed);
        b.type = type;
        bool grad = seed % 3 == 0, ok = random_filter(&b, grad);
        if (!ok) fail_msg("seed %llu: %s", (unsigned long long)seed, b.e.msg);
        const struct gen *g = family(grad);
        assert_true(gen_matches(g, &b.t, &b.caps));
        if (!check_init(&k, &b.t, b.var, seed, true, &b.e)) fail_msg("seed %llu: %s", (unsigned long long)seed, b.e.msg);
        for (u32 i = 0; i < 4; i++) {
            struct candidate c = i ? bed_schedule(&b, g) : gen_initial(g, &b.t, &b.caps, b.var);
            if (!run(&b, &c, &k)) report(&b, &c, seed);
            tally(&b, &c, seen);
        }
        check_release(&k);
        bed_close(&b);
    }
}

static void test_interpreted(void **state)
{
    struct seen s = {0};
    try_tasks(0, 150, DT_F32, &s);
    try_tasks(1000, 1030, DT_F16, &s);
    try_tasks(2000, 2020, DT_BF16, &s);
    try_tasks(3000, 3015, DT_F64, &s);
    print_message("%u kernels: %u of gradients, %u with sums in memory, %u in registers, %u splatted, %u normalised, %u to rows\n", s.n, s.grad,
                  s.grouped, s.registers, s.splat, s.normalized, s.rows);
    if (getenv("SEED")) return;
    assert_true(s.grad > 50 && s.grouped > 50 && s.registers > 50 && s.splat > 50 && s.normalized > 30 && s.rows > 50);
}

static void test_groups(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(7000); seed < last_seed(7100); seed++) {
        struct bed b;
        bed_open(&b, seed);
        bed_use_groups(&b);
        b.only = gen_find(S("group_filter"));
        b.type = seed % 5 ? DT_F32 : DT_F16;
        if (!random_filter(&b, false)) fail_msg("seed %llu: %s", (unsigned long long)seed, b.e.msg);
        n += try_task(&b, seed, 3);
        bed_close(&b);
    }
    assert_true(n > 200 || getenv("SEED"));
}

static void test_devices(void **state)
{
    struct gpus g = find_gpus();
    u32 n = 0;
    for (u64 seed = first_seed(9000); seed < last_seed(9010); seed++) {
        struct bed b;
        bed_open(&b, seed);
        b.only = gen_find(S("group_filter"));
        if (random_filter(&b, false)) n += try_gpu(&b, &g, seed);
        bed_close(&b);
    }
    assert_true(n > 4 || getenv("SEED"));
}

static void test_compiled(void **state)
{
    for (u64 seed = first_seed(5000); seed < last_seed(5012); seed++) {
        struct bed b;
        bed_open(&b, seed);
        b.only = family(seed % 3 == 0);
        if (!random_filter(&b, seed % 3 == 0)) fail_msg("seed %llu: %s", (unsigned long long)seed, b.e.msg);
        try_device(&b, "cpu", seed);
        bed_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_interpreted), cmocka_unit_test(test_groups), cmocka_unit_test(test_compiled),
                                       cmocka_unit_test(test_devices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
