// SPDX-License-Identifier: Apache-2.0
//
// Convolutions by workgroups: random tasks on random devices under random legal schedules. The interpreter finds races,
// barriers that not all threads reach and accesses outside; the result is compared with the reference. Every family must have
// been used, with f16 and f32, and with pooling behind the convolution.
#include "gen_tasks.h"
#include "vulkan_fixture.h"

struct seen {
    u32 n_group, n_matrix, n_pool;
    u32 n_up;    /* transposed */
    u32 n_side;  /* tiles of several groups of channels */
    u32 n_chunks;
};

static const struct gen *family(u32 i)
{
    return gen_find(i ? S("mma_conv") : S("wg_conv"));
}

/* Properties of a schedule's kernel. */
static void tally_kinds(struct fixture *b, const struct candidate *c, struct seen *seen)
{
    const struct node *n = graph_node(&b->t.g, b->t.anchor);
    const struct shape *w = &graph_value(&b->t.g, n->in.v[1])->shape;
    i64 groups = attr_int(n, "group", 1), oc = 1;
    bool up = op_of(&b->t.g, b->t.anchor)->props & OP_TRANSPOSED;
    sym_is_const(&b->sym, w->dim[0], &oc);
    seen->n_chunks += value_of(c, "split_k") > 1;
    if (c->gen != family(0)) return;
    i64 tile = value_of(c, "tc") * value_of(c, "rc");
    if (up) seen->n_up++;
    else seen->n_side += groups > 1 && tile >= 2 * (oc / groups) && tile % (oc / groups) == 0;
}

static void try_family(struct fixture *b, const struct gen *g, u64 seed, struct seen *seen)
{
    struct check k;
    bool pool = false;
    for (node_id n = 1; n < b->t.g.node.n; n++) pool |= op_of(&b->t.g, n)->props & OP_WINDOW;
    if (!gen_takes(g, &b->t, &b->caps) || !check_init(&k, &b->t, b->var, seed, true, &b->e)) return;
    for (u32 i = 0; i < 4; i++) {
        struct candidate c = i ? fixture_schedule(b, g) : gen_initial(g, &b->t, &b->caps, b->var);
        if (getenv("VERBOSE")) {
            struct buf text = {0};
            candidate_print(&text, &c);
            fprintf(stderr, "seed %llu %.*s\n", (unsigned long long)seed, (int)text.n, text.p);
            buf_release(&text);
        }
        if (!run(b, &c, &k)) report(b, &c, seed);
        *(g == family(0) ? &seen->n_group : &seen->n_matrix) += 1;
        seen->n_pool += pool;
        tally_kinds(b, &c, seen);
    }
    check_release(&k);
}

typedef bool builder(struct fixture *b);

static struct seen try_tasks(builder *build, u64 from, u64 to, enum dtype type)
{
    struct seen seen = {0};
    for (u64 seed = first_seed(from, to); seed < last_seed(from, to); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.type = type;
        if (build(&b))
            for (u32 i = 0; i < 2; i++) try_family(&b, family(i), seed, &seen);
        fixture_close(&b);
    }
    if (getenv("VERBOSE"))
        print_message("%u %u, pool %u, up %u, side %u, chunks %u\n", seen.n_group, seen.n_matrix, seen.n_pool, seen.n_up,
                      seen.n_side, seen.n_chunks);
    return seen;
}

/* A layer as in networks of images: upsampling and a concatenation in front, pooling behind, the unpooled output wanted, too. */
static value_id upsampled(struct fixture *b, value_id x)
{
    i64 four = 4;
    struct tensor *t = tensor_new(&b->arena, DT_F32, 1, &four);
    for (i64 i = 0; i < 4; i++) elem_set_f64(DT_F32, t->data, i, i < 2 ? 1 : 2);
    value_id in[3] = {x, 0, graph_add_const(&b->g, S("scales"), t)};
    value_id y = graph_op(&b->g, "Resize", S("up"), 3, in);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_str(&b->g, n, "mode", S("nearest"));
    attr_set_str(&b->g, n, "coordinate_transformation_mode", S("asymmetric"));
    attr_set_str(&b->g, n, "nearest_mode", S("floor"));
    return y;
}

static value_id pooled(struct fixture *b, value_id y)
{
    y = add_op(b, pick(b, 0, 1) ? "MaxPool" : "AveragePool", y, 0, 0);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, n, "kernel_shape", (i64[]){2, 2}, 2);
    attr_set_ints(&b->g, n, "strides", (i64[]){2, 2}, 2);
    if (pick(b, 0, 3) == 0) attr_set_int(&b->g, n, "ceil_mode", 1);
    return y;
}

static bool image_layer(struct fixture *b)
{
    static const i64 channels[] = {3, 8, 12, 16, 32};
    bool symbolic = pick(b, 0, 1), up = pick(b, 0, 1), joined = up && pick(b, 0, 1);
    i64 scale = up ? 2 : 1, ic = channels[pick(b, 0, 4)], oc = channels[pick(b, 0, 4)];
    sym one = sym_const(&b->sym, 1), h = size_of(b, pick(b, 1, 9), symbolic), w = size_of(b, pick(b, 1, 9), symbolic);
    sym s = sym_const(&b->sym, scale);
    value_id x = add_input(b, "x", 4, (sym[]){one, sym_const(&b->sym, ic), h, w});
    if (up) x = upsampled(b, x);
    if (joined) {
        i64 more = channels[pick(b, 0, 4)];
        value_id skip = add_input(b, "skip", 4, (sym[]){one, sym_const(&b->sym, more), sym_mul(&b->sym, h, s), sym_mul(&b->sym, w, s)});
        x = add_op(b, "Concat", x, skip, 0);
        attr_set_int(&b->g, graph_value(&b->g, x)->producer, "axis", 1);
        ic += more;
    }
    value_id y = add_weighted(b, "Conv", x, 4, (i64[]){oc, ic, 3, 3}, &oc);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "pads", (i64[]){1, 1, 1, 1}, 4);
    if (pick(b, 0, 1)) y = add_op(b, "Relu", y, 0, 0);
    if (pick(b, 0, 2)) {
        if (pick(b, 0, 1)) *arr_push(&b->arena, &b->g.output) = y;
        y = pooled(b, y);
        if (pick(b, 0, 1)) y = add_op(b, "Relu", y, 0, 0);
    }
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

/* Few pixels of many channels, in groups or not; transposed by a multiple of the stride now and then. */
static bool wide_layer(struct fixture *b)
{
    static const i64 each[] = {2, 4, 8, 12, 16};
    bool up = pick(b, 0, 3) == 0;
    i64 groups = !up && pick(b, 0, 1) ? pick(b, 2, 20) : 1, k = up ? 2 * pick(b, 1, 2) : pick(b, 0, 1) ? 1 : 3;
    i64 ic = groups > 1 ? each[pick(b, 0, 4)] : 64 * pick(b, 1, 4), oc = groups > 1 ? each[pick(b, 0, 4)] : pick(b, 3, 24);
    sym dim[MAX_RANK] = {sym_const(&b->sym, 1), sym_const(&b->sym, groups * ic), draw_size(b, 1, 7, 4), draw_size(b, 1, 9, 4)};
    i64 w[4] = {groups * oc, ic, k, k}, n = groups * oc;
    if (up) w[0] = ic, w[1] = oc;
    value_id x = random_prologue(b, add_input(b, "x", 4, dim), 4, dim);
    if (graph_value(&b->g, x)->producer) {
        i64 c;
        if (!infer_last(b, x) || !sym_is_const(&b->sym, graph_value(&b->g, x)->shape.dim[1], &c) || c != groups * ic) return false;
    }
    value_id y = add_weighted(b, up ? "ConvTranspose" : "Conv", x, 4, w, &n);
    node_id node = graph_value(&b->g, y)->producer;
    i64 p = up ? k / 2 - 1 : k / 2;
    attr_set_ints(&b->g, node, "pads", (i64[]){p, p, p, p}, 4);
    attr_set_ints(&b->g, node, "strides", up ? (i64[]){2, 2} : (i64[]){1, 1}, 2);
    attr_set_int(&b->g, node, "group", groups);
    y = random_epilogue(b, y);
    if (!up && pick(b, 0, 3) == 0) y = pooled(b, y);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static void test_f32(void **state)
{
    struct seen a = try_tasks(random_conv, 0, 40, DT_F32), b = try_tasks(image_layer, 0, 30, DT_F32);
    struct seen t = try_tasks(random_transpose, 0, 25, DT_F32), w = try_tasks(wide_layer, 0, 40, DT_F32);
    assert_true(is_enough(t.n_up, 50) && is_enough(w.n_up, 10) && is_enough(w.n_chunks, 5) && is_enough(w.n_side, 5));
    assert_true(is_enough(a.n_group, 70) && is_enough(b.n_group, 60) && is_enough(b.n_pool, 20));
}

static void test_f16(void **state)
{
    struct seen a = try_tasks(random_conv, 100, 140, DT_F16), b = try_tasks(image_layer, 100, 130, DT_F16);
    struct seen t = try_tasks(random_transpose, 100, 125, DT_F16), w = try_tasks(wide_layer, 100, 140, DT_F16);
    assert_true(is_enough(t.n_up, 50) && is_enough(t.n_matrix, 20) && is_enough(w.n_chunks, 5) && is_enough(w.n_side, 5));
    assert_true(is_enough(a.n_group, 70) && is_enough(b.n_group, 60) && is_enough(b.n_pool, 20) && is_enough(a.n_matrix + b.n_matrix, 60));
}

static void test_device(void **state)
{
    struct gpus g = find_gpus();
    for (u64 seed = first_seed(1000, 1012); seed < last_seed(1000, 1012); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.type = pick(&b, 0, 1) ? DT_F16 : DT_F32;
        b.only = family(0);
        if ((seed % 2 ? random_conv : image_layer)(&b)) try_gpu(&b, &g, seed);
        fixture_close(&b);
    }
}

/* Spaces that tuning can walk through, and defaults that need no measurement to be right. */

static void large_layer(struct fixture *b, i64 ic, i64 oc, enum dtype type)
{
    fixture_open(b, 1);
    fixture_use_workgroups(b);
    b->caps.subgroup = b->caps.subgroup_min = b->caps.subgroup_max = 32;
    b->caps.max_group = 1024, b->caps.shared_bytes = 48 << 10;
    snprintf(b->caps.matrix, sizeof b->caps.matrix, "16x16x16:f16,f16,f32,f32 16x8x8:f16,f16,f16,f16");
    b->type = type;
    sym dim[4] = {sym_const(&b->sym, 1), sym_const(&b->sym, ic), size_of(b, 256, true), size_of(b, 256, true)};
    value_id y = add_weighted(b, "Conv", add_input(b, "x", 4, dim), 4, (i64[]){oc, ic, 3, 3}, NULL);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "pads", (i64[]){1, 1, 1, 1}, 4);
    *arr_push(&b->arena, &b->g.output) = y;
    assert_true(make_task(b));
}

static void test_choice(void **state)
{
    static const i64 channels[][2] = {{3, 32}, {32, 32}, {96, 64}, {32, 3}, {256, 256}};
    for (u64 i = first_seed(0, 2 * countof(channels)); i < last_seed(0, 2 * countof(channels)); i++) {
        struct fixture b;
        struct candidate c;
        bool half = i & 1;
        large_layer(&b, channels[i / 2][0], channels[i / 2][1], half ? DT_F16 : DT_F32);
        for (u32 f = 0; f < 1u + half; f++) {
            u32 n = fixture_count(&b, family(f));
            if (n < 100 || n > 20000) fail_msg("%lld to %lld channels: %u schedules of %s", (long long)channels[i / 2][0], (long long)channels[i / 2][1], n, family(f)->name);
        }
        assert_true(gen_default(&b.t, &b.caps, b.var, &c));
        bool few = channels[i / 2][0] < 16 || channels[i / 2][1] < 16, matrix = c.gen == family(1);
        assert_true(matrix || c.gen == family(0));
        if (!few) assert_int_equal(matrix, half); /* matrix units where they take the type and have enough to do */
        if (matrix) assert_int_equal(value_of(&c, "acc"), 32);
        else assert_true(value_of(&c, "stage") > 0 && value_of(&c, "threads") >= 64);
        fixture_close(&b);
    }
}

struct layer {
    const char *op;
    i64 ic, oc, size, k, stride, groups;
};

static void known_layer(struct fixture *b, const struct layer *x, enum dtype type)
{
    bool up = !strcmp(x->op, "ConvTranspose");
    i64 n = x->oc, p = up ? (x->k - x->stride) / 2 : x->k / 2, w[4] = {x->oc, x->ic / x->groups, x->k, x->k};
    fixture_open(b, 1);
    fixture_use_workgroups(b);
    b->caps.subgroup = b->caps.subgroup_min = b->caps.subgroup_max = 32;
    b->caps.max_group = 1024, b->caps.shared_bytes = 48 << 10;
    if (x->size < 14) b->caps.gflops = 60000, b->caps.gbps = 3000; /* too few tiles for so large a device */
    snprintf(b->caps.matrix, sizeof b->caps.matrix, "16x16x16:f16,f16,f32,f32");
    b->type = type;
    if (up) w[0] = x->ic, w[1] = x->oc / x->groups;
    sym size = size_of(b, x->size, false), dim[4] = {sym_const(&b->sym, 1), sym_const(&b->sym, x->ic), size, size};
    value_id y = add_weighted(b, x->op, add_input(b, "x", 4, dim), 4, w, &n);
    node_id node = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, node, "pads", (i64[]){p, p, p, p}, 4);
    attr_set_ints(&b->g, node, "strides", (i64[]){x->stride, x->stride}, 2);
    attr_set_int(&b->g, node, "group", x->groups);
    *arr_push(&b->arena, &b->g.output) = y;
    assert_true(op_infer_all(&b->g, &b->e));
    enum layout *of = arena_array(&b->arena, enum layout, b->g.value.n);
    of[b->g.input.v[0]] = of[y] = LAYOUT_CLAST;
    assert_true(task_make(&b->t, &b->g, &b->arena, &node, 1, b->g.output.v, 1, of, NULL, &b->e));
}

/* Layers that are transposed, grouped, or have few pixels of many channels. */
static void test_layers(void **state)
{
    static const struct layer layer[] = {{"ConvTranspose", 64, 32, 64, 2, 2, 1}, {"ConvTranspose", 128, 64, 32, 4, 2, 1},
                                         {"ConvTranspose", 64, 64, 56, 3, 2, 1}, {"Conv", 128, 128, 56, 3, 1, 32},
                                         {"Conv", 512, 512, 7, 3, 1, 1},         {"Conv", 2048, 512, 7, 1, 1, 1}};
    for (u32 i = 0; i < 2 * countof(layer); i++) {
        const struct layer *x = &layer[i / 2];
        struct fixture b;
        struct candidate c;
        known_layer(&b, x, i & 1 ? DT_F16 : DT_F32);
        assert_true(gen_default(&b.t, &b.caps, b.var, &c));
        if (getenv("VERBOSE")) {
            struct buf text = {0};
            candidate_print(&text, &c);
            fprintf(stderr, "%s %lld to %lld: %.*s\n", x->op, (long long)x->ic, (long long)x->oc, (int)text.n, text.p);
            buf_release(&text);
        }
        assert_true(c.gen == family(0) || c.gen == family(1) || x->k == 1); /* without taps, an implicit GEMM reads no more */
        if (x->groups > 1) assert_true(c.gen == family(0) && value_of(&c, "tc") * value_of(&c, "rc") > x->oc / x->groups);
        if (x->size == 7 && x->k == 3 && c.gen == family(0)) assert_true(value_of(&c, "split_k") > 1);
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_device),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
