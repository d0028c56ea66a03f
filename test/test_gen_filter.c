// SPDX-License-Identifier: Apache-2.0
//
// weighted_filter, weighted_grad, wg_filter, wg_filter_grad: random filters with weights per pixel and gradients of such weights (gathered, splatted, normalised, by softmax, of even
// and odd kernels, dilated, of images smaller than the kernel, something in front and behind, all layouts, known and unknown sizes) under random
// legal schedules give in the interpreter what the reference gives; some do compiled for this processor, those that transpose weights among them, and on devices. Every way to go through the taps must have been input.
#include "gen_kinds.h"
#include "vulkan_fixture.h"

struct seen { u32 n, grouped, registers, transposed, splat, normalized, softmax, grad, rows, padded; };

static bool is_padded(const struct fixture *b, value_id input)
{
    sym from, to;
    return op_pad_inner(&b->t.g, input, 3, &from, &to);
}

static void tally(const struct fixture *b, const struct candidate *c, struct seen *s)
{
    const struct node *n = graph_node(&b->t.g, b->t.anchor);
    bool grad = op_of(&b->t.g, b->t.anchor)->props & OP_FILTER_GRAD;
    s->n++, s->grad += grad, s->padded += is_padded(b, n->in.v[grad]);
    s->splat += attr_int(n, "splat", 0) != 0, s->normalized += attr_int(n, "normalize", 0) != 0;
    s->softmax += attr_int(n, "softmax", 0) != 0;
    s->rows += graph_value(&b->t.g, b->t.g.output.v[0])->layout == LAYOUT_ROWS;
    if (grad) return;
    s->grouped += value_of(c, "rows") > 0, s->registers += value_of(c, "rows") == 0;
    s->transposed += value_of(c, "transpose") > 0;
}

static const struct gen *family(bool grad) { return gen_find(grad ? S("weighted_grad") : S("weighted_filter")); }

static void try_tasks(u64 from, u64 to, enum dtype type, struct seen *seen)
{
    for (u64 seed = first_seed(from, to); seed < last_seed(from, to); seed++) {
        struct fixture b;
        struct check k;
        fixture_open(&b, seed);
        b.type = type;
        bool grad = seed % 3 == 0, ok = random_filter(&b, grad);
        if (!ok) fail_msg("seed %llu: %s", (unsigned long long)seed, b.e.msg);
        const struct gen *g = family(grad);
        assert_true(gen_matches(g, &b.t, &b.caps));
        if (!check_init(&k, &b.t, b.var, seed, true, &b.e)) fail_msg("seed %llu: %s", (unsigned long long)seed, b.e.msg);
        for (u32 i = 0; i < 4; i++) {
            struct candidate c = i ? fixture_schedule(&b, g) : gen_initial(g, &b.t, &b.caps, b.var);
            if (!run(&b, &c, &k)) report(&b, &c, seed);
            tally(&b, &c, seen);
        }
        check_release(&k);
        fixture_close(&b);
    }
}

static void test_interpreted(void **state)
{
    struct seen s = {0};
    try_tasks(0, 150, DT_F32, &s);
    try_tasks(1000, 1030, DT_F16, &s);
    try_tasks(2000, 2020, DT_BF16, &s);
    try_tasks(3000, 3015, DT_F64, &s);
    print_message("%u kernels: %u of gradients, %u with sums in memory, %u in registers, %u of transposed weights, %u splatted, %u normalised, %u by softmax, %u to rows, %u in pads\n",
                  s.n, s.grad, s.grouped, s.registers, s.transposed, s.splat, s.normalized, s.softmax, s.rows, s.padded);
    assert_true(is_enough(s.grad, 50) && is_enough(s.grouped, 50) && is_enough(s.registers, 50) && is_enough(s.transposed, 20) && is_enough(s.splat, 50));
    assert_true(is_enough(s.normalized, 30) && is_enough(s.softmax, 30) && is_enough(s.rows, 50) && is_enough(s.padded, 50));
}

struct ways { u32 n, grad, halo, bare, rows, wide, split, staged, staged_grad; };

static void tally_ways(const struct candidate *c, struct ways *w)
{
    bool grad = c->gen == gen_find(S("wg_filter_grad"));
    w->n++, w->grad += grad, w->halo += value_of(c, "halo"), w->bare += !value_of(c, "halo");
    w->rows += value_of(c, "ry") > 1 && value_of(c, "iu") > 1, w->wide += value_of(c, "vec") > 1;
    w->split += grad && value_of(c, "split");
    w->staged += !grad && value_of(c, "stage"), w->staged_grad += grad && value_of(c, "stage");
}

/* Random legal schedules, because the enumeration of a small task finds only a few. */
static void try_schedules(struct fixture *b, u64 seed, struct ways *w)
{
    struct check k;
    if (!check_init(&k, &b->t, b->var, seed, true, &b->e)) fail_msg("seed %llu: %s", (unsigned long long)seed, b->e.msg);
    for (u32 i = 0; i < 3; i++) {
        struct candidate c = i ? fixture_schedule(b, b->only) : gen_initial(b->only, &b->t, &b->caps, b->var);
        if (!run(b, &c, &k)) report(b, &c, seed);
        tally_ways(&c, w);
    }
    check_release(&k);
}

static const struct gen *by_groups(bool grad) { return gen_find(grad ? S("wg_filter_grad") : S("wg_filter")); }

static void test_groups(void **state)
{
    static const enum dtype type[] = {DT_F32, DT_F16, DT_F32, DT_BF16, DT_F64};
    struct ways w = {0};
    for (u64 seed = first_seed(7000, 7150); seed < last_seed(7000, 7150); seed++) {
        struct fixture b;
        bool grad = seed % 2;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.only = by_groups(grad);
        b.type = type[seed % 5];
        if (!random_filter(&b, grad)) fail_msg("seed %llu: %s", (unsigned long long)seed, b.e.msg);
        assert_true(gen_matches(b.only, &b.t, &b.caps));
        try_schedules(&b, seed, &w);
        fixture_close(&b);
    }
    print_message("%u kernels of workgroups: %u of gradients, %u with a halo, %u without, %u whose rows share, %u of vectors, %u split, %u and %u staged\n", w.n,
                  w.grad, w.halo, w.bare, w.rows, w.wide, w.split, w.staged, w.staged_grad);
    assert_true(is_enough(w.grad, 150) && is_enough(w.halo, 80) && is_enough(w.bare, 80) && is_enough(w.rows, 40) && is_enough(w.wide, 20));
    assert_true(is_enough(w.split, 20) && is_enough(w.staged, 10) && is_enough(w.staged_grad, 10));
}

static void test_devices(void **state)
{
    struct gpus g = find_gpus();
    u32 n = 0;
    for (u64 seed = first_seed(9000, 9016); seed < last_seed(9000, 9016); seed++) {
        struct fixture b;
        bool grad = seed / 4 % 2;
        fixture_open(&b, seed);
        b.only = by_groups(grad);
        if (random_filter(&b, grad)) n += try_gpu(&b, &g, seed);
        fixture_close(&b);
    }
    assert_true(is_enough(n, 8));
}

/* Every kernel is emitted for a target; some are built if a compiler is installed. */
static void build_for(const char *name, const char *arch, u64 first, u32 step)
{
    const struct lang *l = lang_find(str_of(name));
    struct buf tool = {0};
    struct err none = {0};
    bool builds = l->toolchain(&tool, NULL, &none);
    u32 n = 0, n_built = 0;
    for (u64 seed = first_seed(first, first + 24); seed < last_seed(first, first + 24); seed++) {
        struct fixture b;
        bool grad = seed % 2;
        fixture_open(&b, seed);
        assert_true(dev_target(&b.caps, name, str_of(arch)));
        b.type = seed % 3 ? DT_F32 : DT_F16, b.only = by_groups(grad);
        if (!random_filter(&b, grad)) fail_msg("seed %llu: %s", (unsigned long long)seed, b.e.msg);
        assert_true(gen_matches(b.only, &b.t, &b.caps));
        for (u32 i = 0; i < 2; i++, n++) {
            struct candidate c = i ? fixture_schedule(&b, b.only) : gen_initial(b.only, &b.t, &b.caps, b.var);
            struct kernel k;
            struct buf text = {0}, binary = {0};
            bool ok = gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e) && lang_render(&text, l, &k.kir, &b.caps, &b.arena, &b.e);
            if (ok && builds && n % step == 1) ok = l->build(&binary, buf_view(&text), &b.caps, 120, &b.e), n_built++;
            if (!ok) report(&b, &c, seed);
            buf_release(&text), buf_release(&binary);
        }
        fixture_close(&b);
    }
    buf_release(&tool);
    print_message("%s %s: %u kernels, %u built%s%s\n", name, arch, n, n_built, builds ? "" : ", others not: ", none.msg);
    assert_true(is_enough(n, 47));
}

static void test_cuda(void **state)
{
    build_for("cuda", "sm_80", 10000, 5);
    build_for("cuda", "sm_90", 11000, 5);
}

static void test_hip(void **state) { build_for("hip", "gfx906", 12000, 11); }

/* x: channels, rows, columns, size of the kernel, taps innermost, distance of taps. */
static void make_picture(struct fixture *b, const i64 *x, bool grad)
{
    struct symtab *t = &b->sym;
    sym batch = sym_const(t, 1), size[2] = {sym_const(t, x[1]), sym_const(t, x[2])}, c = sym_const(t, x[0]), taps = sym_const(t, x[3] * x[3]);
    value_id input = add_input(b, "x", 4, (sym[]){batch, c, size[0], size[1]});
    value_id side = add_input(b, "side", 4, (sym[]){batch, grad ? c : taps, size[0], size[1]});
    value_id y = add_op(b, grad ? "quern::FilterOuter" : "quern::Filter", grad ? side : input, grad ? input : side, 0);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, n, "kernel_shape", (i64[]){x[3], x[3]}, 2);
    attr_set_ints(&b->g, n, "dilations", (i64[]){x[5], x[5]}, 2);
    attr_set_ints(&b->g, n, "begins", (i64[]){x[3] / 2 * x[5], x[3] / 2 * x[5]}, 2);
    *arr_push(&b->arena, &b->g.output) = y;
    assert_true(op_infer_all(&b->g, &b->e));
    enum layout *of = arena_array(&b->arena, enum layout, b->g.value.n);
    if (x[4]) of[grad ? y : side] = LAYOUT_CLAST;
    assert_true(task_make(&b->t, &b->g, &b->arena, &n, 1, b->g.output.v, 1, of, NULL, &b->e));
}

/* Spaces that a search can walk, of pictures as in networks. */
static void test_choice(void **state)
{
    static const i64 picture[][6] = {{3, 1080, 1920, 5, 0, 1}, {3, 540, 960, 17, 0, 1}, {3, 540, 960, 17, 1, 1}, {1, 8, 8, 3, 0, 1}, {64, 33, 70, 5, 0, 1},
                                     {1, 1, 1, 1, 0, 1},       {2, 500, 1, 21, 0, 1},   {4, 4096, 4096, 1, 0, 1}};
    for (u32 i = 0; i < 2 * countof(picture); i++) {
        struct fixture b;
        fixture_open(&b, 1);
        fixture_use_workgroups(&b);
        b.caps.max_group = 1024, b.caps.shared_bytes = 48 << 10;
        make_picture(&b, picture[i / 2], i & 1);
        u32 n = fixture_count(&b, by_groups(i & 1));
        if (n < 1 || n > 10000) fail_msg("picture %u: %u schedules", i, n);
        fixture_close(&b);
    }
}

static void test_compiled(void **state)
{
    for (u64 seed = first_seed(5000, 5012); seed < last_seed(5000, 5012); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.only = family(seed % 3 == 0);
        if (!random_filter(&b, seed % 3 == 0)) fail_msg("seed %llu: %s", (unsigned long long)seed, b.e.msg);
        try_device(&b, "cpu", seed);
        fixture_close(&b);
    }
}

/* Taps further apart than any input tile is large, or any loop over rows long. */
static void test_far_taps(void **state)
{
    struct ways w = {0};
    for (u32 i = 0; i < 8; i++) {
        struct fixture b;
        fixture_open(&b, i);
        fixture_use_workgroups(&b);
        b.only = by_groups(i & 1);
        make_picture(&b, (i64[]){3, 9, 20, 3, i / 2 & 1, i & 4 ? 1 << 20 : 7}, i & 1);
        try_schedules(&b, i, &w);
        fixture_close(&b);
    }
    assert_true(w.n == 24);
}

/* Verifies a schedule that transposes weights, of a random filter that has one. */
static u32 try_transposed(u64 seed)
{
    struct dev_opts o = {.n_threads = 2};
    struct candidate c;
    struct fixture b;
    u32 n = 0;
    fixture_open(&b, seed);
    b.type = seed % 3 == 0 ? DT_F16 : DT_F32;
    assert_true(dev_ask(dev_find(S("cpu")), &o, &b.caps, NULL, &b.e));
    if (!random_filter(&b, false)) fail_msg("seed %llu: %s", (unsigned long long)seed, b.e.msg);
    for (u32 try = 0; try < 10 && !n; try++) {
        struct check k;
        c = fixture_schedule(&b, family(false));
        if (!value_of(&c, "transpose")) continue;
        open_device_check(&b, &k, seed);
        if (!verify_on(&b, "cpu", &c, &k)) report(&b, &c, seed);
        check_release(&k);
        n++;
    }
    fixture_close(&b);
    return n;
}

static void test_transposed(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(6000, 6200); seed < last_seed(6000, 6200) && n < 3; seed++) n += try_transposed(seed);
    assert_true(is_enough(n, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interpreted), cmocka_unit_test(test_groups), cmocka_unit_test(test_far_taps), cmocka_unit_test(test_choice),
        cmocka_unit_test(test_compiled),    cmocka_unit_test(test_transposed), cmocka_unit_test(test_devices),  cmocka_unit_test(test_cuda),
        cmocka_unit_test(test_hip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
