// SPDX-License-Identifier: Apache-2.0
//
// Winograd convolutions: random tasks under random legal schedules, interpreted; their rounding
// errors, which must stay below the ordinary tolerance without a margin; those of integers, which have
// none, up to the largest sums; and packing by small matrices, which transforms weights.
#include "gen_kinds.h"

static void test_random(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 100); seed < last_seed(0, 100); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.only = gen_find(S("conv_winograd"));
        if (random_conv_like(&b, true)) n += try_task(&b, seed, 6);
        fixture_close(&b);
    }
    assert_true(n > 0);
}

static void test_compiled(void **state)
{
    for (u64 seed = first_seed(1000, 1004); seed < last_seed(1000, 1004); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.only = gen_find(S("conv_winograd"));
        if (random_conv_like(&b, true)) try_device(&b, "cpu", seed);
        fixture_close(&b);
    }
}

/* Pooling. */

/* A convolution, a pointwise epilogue, and pooling with adjacent windows; now and then the unpooled
   value is an output, too. */
static bool make_pooled(struct fixture *b)
{
    static const i64 channels[] = {3, 8, 16, 20, 33};
    u32 axes = (u32)pick(b, 2, 3);
    i64 ic = channels[pick(b, 0, 4)], oc = channels[pick(b, 0, 4)], win[] = {2, 2, 2}, ones[] = {1, 1, 1, 1, 1, 1};
    sym dim[MAX_RANK] = {sym_const(&b->sym, pick(b, 1, 2)), sym_const(&b->sym, ic)};
    for (u32 i = 0; i < axes; i++) {
        bool symbolic = pick(b, 0, 1);
        dim[2 + i] = size_of(b, pick(b, 2, axes == 3 ? 7 : 11), symbolic);
    }
    if (axes == 3 && pick(b, 0, 1)) win[0] = 1;
    value_id x = add_input(b, "x", 2 + axes, dim), w = add_weights(b, 2 + axes, (i64[]){oc, ic, 3, 3, 3});
    value_id y = add_op(b, "Conv", x, w, add_const(b, "b", 1, &oc));
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "pads", ones, 2 * axes);
    if (pick(b, 0, 1)) y = add_op(b, "LeakyRelu", y, 0, 0);
    if (pick(b, 0, 2) == 0) *arr_push(&b->arena, &b->g.output) = y;
    y = add_op(b, pick(b, 0, 1) ? "MaxPool" : "AveragePool", y, 0, 0);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "kernel_shape", win, axes);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "strides", win, axes);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

/* Whether the initial schedule pools without a temporary array. */
static bool pools_at_once(struct fixture *b)
{
    struct candidate c = gen_initial(b->only, &b->t, &b->caps, b->var);
    struct kernel k;
    assert_true(gen_kernel(&k, &b->arena, &c, &b->t, &b->caps, &b->e));
    return k.n_temp == 0;
}

static void test_pooled(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(2000, 2050); seed < last_seed(2000, 2050); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.only = gen_find(S("conv_winograd"));
        if (make_pooled(&b) && gen_matches(b.only, &b.t, &b.caps)) n += try_task(&b, seed, 4) && pools_at_once(&b);
        fixture_close(&b);
    }
    assert_true(n > 0);
}

/* Integers. */

static const char pairs[] = "i16,i16,i32";

struct integers { enum dtype x, w; i64 ic, oc, bias, pad; u32 axes; i64 size; }; /* size: of the picture at most, 0: random */

static struct integers draw_integers(struct fixture *b)
{
    static const enum dtype types[][2] = {{DT_U8, DT_I8}, {DT_I8, DT_I8}, {DT_U8, DT_U8}, {DT_I8, DT_U8}, {DT_I16, DT_I16}, {DT_I16, DT_I16}};
    static const i64 channels[] = {1, 2, 3, 7, 8, 16, 17, 20, 24, 32, 33, 40, 64, 67};
    const enum dtype *t = types[pick(b, 0, countof(types) - 1)];
    struct integers x = {.x = t[0], .w = t[1]};
    x.axes = (u32)pick(b, 2, 3);
    x.ic = channels[pick(b, 0, countof(channels) - 1)], x.oc = channels[pick(b, 0, countof(channels) - 1)];
    x.bias = pick(b, 0, 1), x.pad = t[0] != DT_I16 && pick(b, 0, 1);
    return x;
}

/* A convolution of 3x3 or 3x3x3 of them, not yet a task. */
static value_id add_integers(struct fixture *b, const struct integers *x)
{
    u32 rank = 2 + x->axes;
    i64 w[MAX_RANK] = {x->oc, x->ic, 3, 3, 3}, pads[6];
    sym dim[MAX_RANK] = {sym_const(&b->sym, pick(b, 1, 2)), sym_const(&b->sym, x->ic)};
    value_id in[4] = {0};
    for (u32 i = 0; i < x->axes; i++) {
        bool symbolic = pick(b, 0, 1);
        pads[i] = pick(b, 0, 2), pads[x->axes + i] = pick(b, 0, 2);
        dim[2 + i] = size_of(b, pick(b, 3, x->size ? x->size : i + 1 < x->axes ? 7 : 14), symbolic);
    }
    b->type = x->x;
    in[0] = add_input(b, "x", rank, dim);
    if (x->x != DT_I16 && pick(b, 0, 3) == 0) in[0] = cast_to(b, x->x, add_op(b, "Relu", cast_to(b, DT_I32, in[0]), 0, 0)); /* computed */
    in[1] = const_ints(b, "w", x->w, rank, w);
    if (x->bias) in[2] = const_ints(b, "bias", DT_I32, 1, w);
    if (x->pad) in[3] = const_ints(b, "pad", x->x, 0, NULL);
    value_id y = graph_op(&b->g, "Conv", S("conv"), x->pad ? 4 : x->bias ? 3 : 2, in);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, n, "pads", pads, 2 * x->axes);
    if (x->x == DT_I16) attr_set_ints(&b->g, n, "most", (i64[]){255, 255}, 2);
    return y;
}

/* As between the layers of quantised networks, perhaps with pooling. */
static value_id add_quantisation(struct fixture *b, value_id y, const struct integers *x)
{
    static const i64 two[] = {2, 2, 2};
    if (pick(b, 0, 1)) return y;
    y = requantised(b, y, 2 + x->axes, x->oc);
    y = cast_to(b, pick(b, 0, 1) ? DT_U8 : DT_I16, add_op(b, "Round", add_op(b, "Relu", y, 0, 0), 0, 0));
    if (pick(b, 0, 2)) return y;
    y = add_op(b, "MaxPool", y, 0, 0);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "kernel_shape", two, x->axes);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "strides", two, x->axes);
    return y;
}

static bool make_integers(struct fixture *b)
{
    struct integers x = draw_integers(b);
    value_id y = add_integers(b, &x);
    *arr_push(&b->arena, &b->g.output) = add_quantisation(b, y, &x);
    return make_task(b);
}

/* A target without products of pairs has no such kernels. */
static void test_integers(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(3000, 3100); seed < last_seed(3000, 3100); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.only = gen_find(S("conv_winograd"));
        bool has = pick(&b, 0, 4) > 0;
        if (has) memcpy(b.caps.dot, pairs, sizeof pairs);
        if (make_integers(&b)) {
            assert_true(has || !gen_takes(b.only, &b.t, &b.caps));
            n += try_task(&b, seed, 5);
        }
        fixture_close(&b);
    }
    assert_true(is_enough(n, 60));
}

static void test_integers_compiled(void **state)
{
    for (u64 seed = first_seed(4000, 4006); seed < last_seed(4000, 4006); seed++) {
        struct fixture b;
        struct dev_opts o = {.n_threads = 2};
        fixture_open(&b, seed);
        b.only = gen_find(S("conv_winograd"));
        assert_true(dev_ask(dev_find(S("cpu")), &o, &b.caps, NULL, &b.e));
        if (make_integers(&b) && gen_takes(b.only, &b.t, &b.caps)) try_device(&b, "cpu", seed);
        fixture_close(&b);
    }
}

/* The extremes of a type, and 0; i16 are bytes less a zero point. */
static i64 extreme(enum dtype t, i64 choice)
{
    i64 least = t == DT_U8 ? 0 : t == DT_I8 ? -128 : -255, most = t == DT_I8 ? 127 : 255;
    return choice == 0 ? least : choice == 1 ? most : 0;
}

/* All equal, or each drawn from the extremes. */
static void fill_extreme(struct fixture *b, struct tensor *t)
{
    i64 all = pick(b, 0, 3);
    for (i64 i = 0, n = tensor_count(t); i < n; i++) elem_set_i64(t->dtype, t->data, i, extreme(t->dtype, all < 2 ? all : pick(b, 0, 2)));
}

/* Random schedules of the family against the definition, whose inputs and weights are extremes. */
static u32 try_extremes(struct fixture *b, u64 seed)
{
    struct graph g;
    struct check k;
    struct tensor *in[4];
    u32 n = 0;
    if (!gen_takes(b->only, &b->t, &b->caps) || !check_init(&k, &b->t, b->var, seed, false, &b->e)) return 0;
    graph_clone(&g, &b->t.g, &k.arena);
    for (value_id v = 1; v < g.value.n; v++) {
        if (graph_value(&g, v)->producer) continue;
        if (graph_value(&g, v)->dtype != DT_I32 && !graph_value(&g, v)->data) fill_extreme(b, &k.value[v]);
        if (graph_value(&g, v)->is_const) graph_value(&g, v)->data = &k.value[v];
    }
    for (u32 i = 0; i < g.input.n; i++) in[i] = &k.value[g.input.v[i]];
    k.want = arena_array(&k.arena, struct tensor *, g.output.n);
    check_expect_integers(&k);
    if (!graph_eval(&g, in, k.want, &k.arena, &(struct graph_eval_opts){.var = b->var}, &b->e)) report(b, NULL, seed);
    for (; n < 3; n++) {
        struct candidate c = n ? fixture_schedule(b, b->only) : gen_initial(b->only, &b->t, &b->caps, b->var);
        if (!run(b, &c, &k)) report(b, &c, seed);
    }
    check_release(&k);
    return n;
}

static void extremes_of(u64 seed, const struct integers *given, bool fits, u32 *n)
{
    struct fixture b;
    fixture_open(&b, seed);
    b.only = gen_find(S("conv_winograd"));
    memcpy(b.caps.dot, pairs, sizeof pairs);
    b.caps.l2_bytes = 32 << 20; /* scratch memory of any size is legal */
    struct integers x = given ? *given : draw_integers(&b);
    value_id y = add_integers(&b, &x);
    for (value_id v = 1; v < b.g.value.n; v++) /* contents that tasks keep */
        if (graph_value(&b.g, v)->data && graph_value(&b.g, v)->dtype != DT_I32) fill_extreme(&b, graph_value(&b.g, v)->data);
    *arr_push(&b.arena, &b.g.output) = y;
    if (make_task(&b)) {
        if (!fits) assert_false(gen_takes(b.only, &b.t, &b.caps));
        *n += try_extremes(&b, seed);
    }
    fixture_close(&b);
}

static void test_extremes(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(5000, 5080); seed < last_seed(5000, 5080); seed++) extremes_of(seed, NULL, true, &n);
    assert_true(is_enough(n, 60));
}

/* The most channels of which every sum is exact, and one more, which is refused. */
static void test_most_channels(void **state)
{
    static const struct integers most[] = {{DT_U8, DT_I8, 1827, 4, .axes = 2, .size = 4}, {DT_I8, DT_I8, 3640, 4, .axes = 2, .size = 4},
                                            {DT_I16, DT_I16, 917, 4, .axes = 2, .size = 4}};
    for (u64 seed = 0; seed < countof(most); seed++) {
        struct integers x = most[seed];
        u32 n = 0;
        extremes_of(seed, &x, true, &n);
        assert_true(n > 0);
        x.ic++;
        extremes_of(seed, &x, false, &n);
    }
}

/* i16 of any values have no bounds. */
static void test_no_promise(void **state)
{
    struct fixture b;
    fixture_open(&b, 1);
    b.only = gen_find(S("conv_winograd"));
    memcpy(b.caps.dot, pairs, sizeof pairs);
    value_id y = add_integers(&b, &(struct integers){DT_I16, DT_I16, 16, 16, .axes = 2});
    attr_remove(&b.g, graph_value(&b.g, y)->producer, "most");
    *arr_push(&b.arena, &b.g.output) = y;
    assert_true(make_task(&b));
    assert_false(gen_takes(b.only, &b.t, &b.caps));
    fixture_close(&b);
}

/* Rounding errors. */

/* (1, ic, 12, 12) -> (1, 8, 12, 12), of some type in memory, channels last; of volumes (1, ic, 6, 12, 12). */
static bool make_conv(struct fixture *b, enum dtype type, i64 ic, bool volume)
{
    u32 axes = volume ? 3 : 2;
    sym dim[5] = {sym_const(&b->sym, 1), sym_const(&b->sym, ic)};
    for (u32 i = 0; i < axes; i++) dim[2 + i] = sym_const(&b->sym, volume && i == 0 ? 6 : 12);
    b->type = type;
    b->caps.vector_bytes = 32;
    value_id x = add_input(b, "x", 2 + axes, dim), w = add_const(b, "w", 2 + axes, (i64[]){8, ic, 3, 3, 3}), y = add_op(b, "Conv", x, w, 0);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "pads", (i64[]){1, 1, 1, 1, 1, 1}, 2 * axes);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

/* Says mean and largest error as parts of the largest output. */
static void say_error(const struct fixture *b, const char *text, const struct check *c, const void *got)
{
    const struct tensor *want = c->want[0];
    struct place at;
    i64 n = place_of(&at, &c->task->g, c->task->g.output.v[0], c->var) ? tensor_count(want) : 0;
    double mean = 0, largest = 0, scale = 0;
    for (i64 i = 0; i < n; i++) {
        double w = elem_f64(want->dtype, want->data, i), d = fabs(elem_f64(want->dtype, got, place_flat(&at, want, i)) - w);
        largest = fmax(largest, d), scale = fmax(scale, fabs(w)), mean += d * d / (double)n;
    }
    printf("%s depth %5.0f  %.23s: square mean %.1e, largest %.1e, tolerance %.1e\n", dtype_name(b->type),
           graph_numerics(&b->t.g, DT_F32, b->var).terms, text, sqrt(mean) / scale, largest / scale, c->atol);
}

/* text: a candidate without its family's revision. */
static bool parse_candidate(struct fixture *b, const char *text, struct candidate *c)
{
    struct str name, rest;
    const struct gen *g = str_cut(str_of(text), ' ', &name, &rest) ? gen_find(name) : NULL;
    return g && candidate_parse(c, str_fmt(&b->arena, "%s.%u %.*s", g->name, g->revision, STR_ARG(rest)), &b->e);
}

static void run_error(struct fixture *b, const char *text, const struct check *k)
{
    struct candidate c;
    struct kernel kernel;
    struct bound args;
    struct buf why = {0};
    assert_true(parse_candidate(b, text, &c));
    if (!gen_legal(&c, &b->t, &b->caps)) return; /* large tiles for few channels */
    assert_true(gen_kernel(&kernel, &b->arena, &c, &b->t, &b->caps, &b->e));
    assert_true(bind_arguments(&args, &kernel, k, &b->arena, &b->e));
    assert_true(kir_eval(&kernel.kir, args.arg, args.param, NULL, &b->e));
    const void *got = args.arg[kernel.n_arg - 1].p;
    bool ok = check_output(k, 0, got, &why);
    if (getenv("VERBOSE")) say_error(b, text, k, got);
    if (!ok) fail_msg("%s: %.*s", text, (int)why.n, why.p);
    buf_release(&why);
}

static void run_errors(enum dtype type, i64 ic, bool volume, const char *const *text)
{
    struct fixture b;
    struct check k;
    fixture_open(&b, (u64)ic);
    assert_true(make_conv(&b, type, ic, volume));
    assert_true(check_init(&k, &b.t, b.var, 1, true, &b.e));
    for (; *text; text++) run_error(&b, *text, &k);
    check_release(&k);
    fixture_close(&b);
}

/* Errors pass the ordinary verification: legal schedules of all sizes of tiles, beside the plain sum. */
static void test_error(void **state)
{
    static const char *const flat[] = {
        "conv_gemm ty=1 tx=4 nr=1 th=1 tw=0 ob=0 stage=1 order=0 ku=1 ahead=0 nt=0",
        "conv_winograd m=2 mz=1 tx=4 nr=1 tb=2 ob=0 ku=1 ahead=0 far=0 nt=0",
        "conv_winograd m=4 mz=1 tx=4 nr=1 tb=2 ob=0 ku=1 ahead=0 far=0 nt=0",
        "conv_winograd m=6 mz=1 tx=4 nr=1 tb=1 ob=0 ku=1 ahead=0 far=0 nt=0",
        NULL,
    };
    static const char *const deep[] = {
        "conv_gemm ty=1 tx=4 nr=1 th=1 tw=0 ob=0 stage=1 order=0 ku=1 ahead=0 nt=0",
        "conv_winograd m=2 mz=1 tx=4 nr=1 tb=2 ob=0 ku=1 ahead=0 far=0 nt=0",
        "conv_winograd m=2 mz=2 tx=4 nr=1 tb=2 ob=0 ku=1 ahead=0 far=0 nt=0",
        "conv_winograd m=4 mz=1 tx=4 nr=1 tb=2 ob=0 ku=1 ahead=0 far=0 nt=0",
        "conv_winograd m=4 mz=2 tx=4 nr=1 tb=2 ob=0 ku=1 ahead=0 far=0 nt=0",
        "conv_winograd m=6 mz=2 tx=4 nr=1 tb=1 ob=0 ku=1 ahead=0 far=0 nt=0",
        NULL,
    };
    i64 most = getenv("VERBOSE") ? 1024 : 128;
    for (i64 type = 0; type < 2; type++)
        for (i64 ic = 4; ic <= most; ic *= type ? 8 : 4) {
            run_errors(type ? DT_F16 : DT_F32, ic, false, flat);
            if (ic <= most / 2) run_errors(type ? DT_F16 : DT_F32, ic, true, deep);
        }
}

/* Packing. */

/* The definition of struct pack, element by element. */
static double packed_by_hand(const struct pack *p, const struct tensor *t, const i64 *at)
{
    i64 index[MAX_RANK] = {0}, stride[MAX_RANK], s = 1;
    for (u32 k = 0; k < p->n; k++) index[p->dim[k].axis] += at[k] * p->dim[k].stride;
    for (u32 a = t->rank; a-- > 0; s *= t->dim[a]) stride[a] = s;
    const struct pack_mat *y = &p->mat[0], *x = &p->mat[1];
    double sum = 0;
    for (u32 a = 0; a < t->rank; a++)
        if (index[a] < 0 || index[a] >= (a == y->axis ? y->rows : a == x->axis ? x->rows : t->dim[a])) return 0;
    i64 base = 0;
    for (u32 a = 0; a < t->rank; a++) base += a == y->axis || a == x->axis ? 0 : index[a] * stride[a];
    for (i64 i = 0; i < t->dim[y->axis]; i++)
        for (i64 j = 0; j < t->dim[x->axis]; j++)
            sum += y->v[index[y->axis] * t->dim[y->axis] + i] * x->v[index[x->axis] * t->dim[x->axis] + j] *
                   elem_f64(t->dtype, t->data, base + i * stride[y->axis] + j * stride[x->axis]);
    return sum;
}

static void test_pack(void **state)
{
    for (u64 seed = 0; seed < 20; seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.type = pick(&b, 0, 1) ? DT_F16 : DT_F32;
        i64 dim[3] = {pick(&b, 1, 7), pick(&b, 1, 4), pick(&b, 1, 4)}, rows[2] = {pick(&b, 1, 6), pick(&b, 1, 6)};
        const struct tensor *t = graph_value(&b.g, add_const(&b, "w", 3, dim))->data;
        double v[2][24];
        for (i64 i = 0; i < 48; i++) v[i / 24][i % 24] = rng_f64(&b.rng) * 2 - 1;
        struct pack p = {.n = 4, .n_mat = 2, .dtype = DT_F32, .mat = {{1, (u32)rows[0], v[0]}, {2, (u32)rows[1], v[1]}}};
        i64 width = pick(&b, 1, 4), extent[4] = {ceil_div(dim[0], width), rows[1], rows[0] + pick(&b, 0, 1), width}, at[4] = {0}, flat = 0;
        static const u32 axis[4] = {0, 2, 1, 0};
        for (u32 k = 0; k < 4; k++)
            p.dim[k].extent = sym_const(&b.sym, extent[k]), p.dim[k].axis = axis[k], p.dim[k].stride = k ? 1 : width;
        const struct tensor *r = pack_apply(&p, t, &b.sym, &b.arena, NULL);
        assert_int_equal(r->dtype, DT_F32);
        assert_int_equal(tensor_count(r), extent[0] * extent[1] * extent[2] * extent[3]);
        do assert_true(fabs(elem_f64(DT_F32, r->data, flat++) - packed_by_hand(&p, t, at)) < 1e-6);
        while (op_next(4, extent, at));
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_compiled),
        cmocka_unit_test(test_pooled),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_integers_compiled),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_most_channels),
        cmocka_unit_test(test_no_promise),
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_pack),
    };
    select_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
