// SPDX-License-Identifier: Apache-2.0
//
// wg_igemm: random convolutions of one to three axes (strides, padding, dilation, groups, transposed ones, bias, prologues and epilogues,
// all layouts, known and unknown sizes) on random devices under random legal schedules give in the interpreter, which finds races
// and accesses outside, what the reference gives; some do on devices, and some are built for targets that are not here. Every way to stage, order of terms, way to copy and number of
// splits must have occurred, in f32 and in 16 bits.
#include "gen_tasks.h"
#include "vulkan_fixture.h"

enum { N_STAGES = 3, N_ORDERS = 3, N_PIPES = 4 };

struct seen {
    u32 n, stage[N_STAGES], order[N_ORDERS], one_row[N_ORDERS], pipe[N_PIPES], splits, near, groups, dense, up, axes[4];
};

static const struct gen *family(void) { return gen_find(S("wg_igemm")); }

static void tally(struct fixture *b, const struct candidate *c, struct seen *s)
{
    const struct node *n = graph_node(&b->t.g, b->t.anchor);
    const struct value *x = graph_value(&b->t.g, n->in.v[0]);
    s->n++;
    s->stage[value_of(c, "stage")]++;
    s->order[value_of(c, "order")]++;
    s->pipe[value_of(c, "pipe")]++;
    s->splits += value_of(c, "split_k") > 1;
    s->near += value_of(c, "near") > 1;
    s->groups += attr_int(n, "group", 1) > 1;
    s->up += op_of(&b->t.g, b->t.anchor)->props & OP_TRANSPOSED ? 1 : 0;
    s->dense += !x->producer && x->layout == LAYOUT_CLAST && value_of(c, "order") == 0;
    s->axes[x->shape.rank - 2]++;
}

/* Blocks of a single row, contiguous along K in shared memory: legal for every task, but tried for few. */
static bool has_one_row(struct fixture *b, struct candidate *c, i32 order)
{
    const struct { const char *name; i32 value; } to[] = {{"tr", 1}, {"tm", 1}, {"near", 1}, {"order", order}, {"stage", 2}, {"tc", 32}};
    for (u32 i = 0; i < countof(to); i++) set_value(c, to[i].name, to[i].value);
    return gen_legal(c, &b->t, &b->caps);
}

static void try_conv(struct fixture *b, u64 seed, struct seen *seen)
{
    struct check k;
    if (!gen_takes(family(), &b->t, &b->caps) || !check_init(&k, &b->t, b->var, seed, true, &b->e)) return;
    for (u32 i = 0; i < 5; i++) {
        struct candidate c = i ? fixture_schedule(b, family()) : gen_initial(family(), &b->t, &b->caps, b->var);
        if (!run(b, &c, &k)) report(b, &c, seed);
        tally(b, &c, seen);
        if (!has_one_row(b, &c, (i32)i % N_ORDERS)) continue;
        seen->one_row[i % N_ORDERS]++;
        if (!run(b, &c, &k)) report(b, &c, seed);
    }
    check_release(&k);
}

static void try_tasks(u64 from, u64 to, enum dtype type, struct seen *seen)
{
    for (u64 seed = first_seed(from, to); seed < last_seed(from, to); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.type = type;
        if ((seed % 4 == 3 ? random_transpose : seed % 2 ? random_conv : random_plain_conv)(&b)) try_conv(&b, seed, seen);
        fixture_close(&b);
    }
}

static void all_seen(const struct seen *s)
{
    if (getenv("VERBOSE"))
        print_message("%u: stage %u %u %u, order %u %u %u, pipe %u %u %u %u, splits %u, near %u, groups %u, dense %u, up %u, axes %u %u %u\n", s->n,
                      s->stage[0], s->stage[1], s->stage[2], s->order[0], s->order[1], s->order[2], s->pipe[0], s->pipe[1],
                      s->pipe[2], s->pipe[3], s->splits, s->near, s->groups, s->dense, s->up, s->axes[1], s->axes[2], s->axes[3]);
    for (u32 i = 0; i < N_STAGES; i++) assert_true(is_enough(s->stage[i], 20));
    for (u32 i = 0; i < N_ORDERS; i++) assert_true(is_enough(s->order[i], 20) && is_enough(s->one_row[i], 10));
    for (u32 i = 0; i < N_PIPES; i++) assert_true(is_enough(s->pipe[i], 10));
    for (u32 i = 1; i < countof(s->axes); i++) assert_true(is_enough(s->axes[i], 20));
    assert_true(is_enough(s->splits, 50) && is_enough(s->near, 50) && is_enough(s->groups, 20) && is_enough(s->dense, 10) && is_enough(s->up, 30));
}

static void test_f32(void **state)
{
    struct seen s = {0};
    try_tasks(0, 80, DT_F32, &s);
    all_seen(&s);
}

static void test_16_bits(void **state)
{
    struct seen s = {0};
    try_tasks(200, 240, DT_F16, &s);
    try_tasks(300, 340, DT_BF16, &s);
    all_seen(&s);
}

static void test_f64(void **state)
{
    struct seen s = {0};
    try_tasks(400, 410, DT_F64, &s);
}

static void test_device(void **state)
{
    struct gpus g = find_gpus();
    u32 n = 0;
    for (u64 seed = first_seed(1000, 1016); seed < last_seed(1000, 1016); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.type = pick(&b, 0, 1) ? DT_F16 : DT_F32;
        b.only = family();
        if ((seed % 4 == 3 ? random_transpose : seed % 2 ? random_conv : random_plain_conv)(&b)) n += try_gpu(&b, &g, seed);
        fixture_close(&b);
    }
    assert_true(is_enough(n, 8));
}

/* Every kernel is emitted for a target; some are built if a compiler is installed. */
static void build_for(const char *name, const char *arch, u32 step)
{
    const struct lang *l = lang_find(str_of(name));
    struct buf tool = {0};
    struct err none = {0};
    bool builds = l->toolchain(&tool, NULL, &none);
    u32 n = 0, n_built = 0;
    for (u64 seed = first_seed(2000, 2024); seed < last_seed(2000, 2024); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        assert_true(dev_target(&b.caps, name, str_of(arch)));
        b.type = pick(&b, 0, 1) ? DT_F16 : DT_F32;
        if (!(seed % 4 == 3 ? random_transpose : seed % 2 ? random_conv : random_plain_conv)(&b) || !gen_takes(family(), &b.t, &b.caps)) {
            fixture_close(&b);
            continue;
        }
        for (u32 i = 0; i < 2; i++, n++) {
            struct candidate c = i ? fixture_schedule(&b, family()) : gen_initial(family(), &b.t, &b.caps, b.var);
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
    print_message("%s: %u kernels, %u built%s%s\n", name, n, n_built, builds ? "" : ", others not: ", none.msg);
    assert_true(is_enough(n, 30));
}

static void test_cuda(void **state) { build_for("cuda", "sm_80", 3); }
static void test_hip(void **state) { build_for("hip", "gfx90a", 12); }

/* Spaces that a search can walk, of layers as in networks. */
static void test_choice(void **state)
{
    static const i64 layer[][5] = {{1, 16, 128, 1, 4}, {16, 32, 64, 0, 1}, {128, 256, 4, 0, 1}, {3, 32, 64, 1, 1}, {256, 256, 2, 1, 4}};
    for (u32 i = 0; i < 2 * countof(layer); i++) {
        const i64 *x = layer[i / 2];
        struct fixture b;
        fixture_open(&b, 1);
        fixture_use_workgroups(&b);
        b.caps.subgroup = b.caps.subgroup_min = b.caps.subgroup_max = 32;
        b.caps.max_group = 1024, b.caps.shared_bytes = 48 << 10;
        sym size = sym_const(&b.sym, x[2]), dim[5] = {sym_const(&b.sym, x[4]), sym_const(&b.sym, x[0]), size, size, size};
        value_id y = add_weighted(&b, "Conv", add_input(&b, "x", 5, dim), 5, (i64[]){x[1], x[0], 3, 3, 3}, NULL);
        if (x[3]) attr_set_ints(&b.g, graph_value(&b.g, y)->producer, "pads", (i64[]){1, 1, 1, 1, 1, 1}, 6);
        *arr_push(&b.arena, &b.g.output) = y;
        node_id node = graph_value(&b.g, y)->producer;
        assert_true(op_infer_all(&b.g, &b.e));
        enum layout *of = arena_array(&b.arena, enum layout, b.g.value.n);
        if (i & 1) of[b.g.input.v[0]] = of[y] = LAYOUT_CLAST;
        assert_true(task_make(&b.t, &b.g, &b.arena, &node, 1, b.g.output.v, 1, of, NULL, &b.e));
        u32 n = fixture_count(&b, family());
        if (n < 50 || n > 20000) fail_msg("layer %u: %u schedules", i, n);
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),    cmocka_unit_test(test_16_bits), cmocka_unit_test(test_f64),
        cmocka_unit_test(test_choice), cmocka_unit_test(test_device),  cmocka_unit_test(test_cuda),
        cmocka_unit_test(test_hip),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
