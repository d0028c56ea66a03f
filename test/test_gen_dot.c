// SPDX-License-Identifier: Apache-2.0
//
// Matrix products and convolutions whose sums are by groups of neighbours (DOT): bytes to i32, exactly, and bf16 to f32, of random sizes under
// random legal schedules, against the reference evaluator: interpreted for targets that have such instructions and for some
// that have not, and compiled for this processor.
#include "gen_tasks.h"

extern const struct gen gen_gemm, gen_conv_gemm;

static const char dots[] = "u8,i8,i32 bf16,bf16,f32";

static value_id const_ints(struct bed *b, const char *name, enum dtype t, u32 rank, const i64 *dim)
{
    struct tensor *x = tensor_new(&b->arena, t, rank, dim);
    i64 lo = t == DT_U8 ? 0 : t == DT_I8 ? -128 : -100000, hi = t == DT_U8 ? 255 : t == DT_I8 ? 127 : 100000;
    for (i64 i = 0, n = tensor_count(x); i < n; i++) elem_set_i64(t, x->data, i, pick(b, 0, 9) ? pick(b, lo, hi) : lo);
    return graph_add_const(&b->g, str_of(name), x);
}

static value_id cast_to(struct bed *b, enum dtype t, value_id v)
{
    value_id y = add_op(b, "Cast", v, 0, 0);
    attr_set_int(&b->g, graph_value(&b->g, y)->producer, "to", dtype_onnx(t));
    return y;
}

/* x, i8, as u8 of values 128 larger. */
static value_id shifted(struct bed *b, value_id x)
{
    value_id shift = const_ints(b, "shift", DT_I32, 0, NULL);
    elem_set_i64(DT_I32, graph_value(&b->g, shift)->data->data, 0, 128);
    return cast_to(b, DT_U8, add_op(b, "Add", cast_to(b, DT_I32, x), shift, 0));
}

/* (k, n), as it is or transposed. */
static value_id right_input(struct bed *b, enum dtype t, i64 k, i64 n)
{
    bool turned = pick(b, 0, 1);
    sym dim[2] = {size_of(b, turned ? n : k, false), size_of(b, turned ? k : n, false)};
    b->type = t;
    value_id w = add_input(b, "right", 2, dim);
    if (!turned) return w;
    w = add_op(b, "Transpose", w, 0, 0);
    attr_set_ints(&b->g, graph_value(&b->g, w)->producer, "perm", (i64[]){1, 0}, 2);
    return w;
}

/* Bytes x bytes, of any signs, the operands from memory or computed, and what quantised networks do behind. */
static bool random_bytes(struct bed *b)
{
    static const i64 sizes[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 40, 64, 65};
    static const enum dtype types[][2] = {{DT_U8, DT_I8}, {DT_U8, DT_I8}, {DT_I8, DT_U8}, {DT_I8, DT_I8}};
    const enum dtype *t = types[pick(b, 0, countof(types) - 1)];
    i64 m = sizes[pick(b, 0, countof(sizes) - 1)], n = sizes[pick(b, 0, countof(sizes) - 1)],
        k = sizes[pick(b, 0, countof(sizes) - 1)];
    bool is_computed = t[0] == DT_U8 && pick(b, 0, 1);
    sym dim[3] = {size_of(b, pick(b, 1, 2), false), size_of(b, m, pick(b, 0, 3) == 0), size_of(b, k, pick(b, 0, 5) == 0)};
    i64 size;
    if (!sym_is_const(&b->sym, dim[2], &size)) dim[2] = size_of(b, k, false);
    u32 rank = (u32)pick(b, 2, 3);
    b->type = is_computed ? DT_I8 : t[0];
    value_id x = add_input(b, "x", rank, dim + 3 - rank);
    if (is_computed) x = shifted(b, x);
    value_id y = add_op(b, "MatMul", x, pick(b, 0, 2) ? const_ints(b, "w", t[1], 2, (i64[]){k, n}) : right_input(b, t[1], k, n), 0);
    if (pick(b, 0, 1)) y = add_op(b, "Sub", y, const_ints(b, "sums", DT_I32, 1, &n), 0);
    b->type = DT_F32;
    if (pick(b, 0, 1)) y = add_op(b, "Mul", cast_to(b, DT_F32, y), add_const(b, "scale", 1, &n), 0);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

/* What a quantised network does behind a product of c channels: scale, residual, back to bytes. */
static value_id requantised(struct bed *b, value_id y, u32 rank, i64 c)
{
    i64 dim[MAX_RANK] = {1, c, 1, 1, 1};
    if (!infer_last(b, y)) return y;
    struct shape s = graph_value(&b->g, y)->shape;
    b->type = DT_F32;
    y = add_op(b, "Mul", cast_to(b, DT_F32, y), add_const(b, "scale", rank, dim), 0);
    if (pick(b, 0, 2) == 0) y = add_op(b, "Add", y, add_input(b, "residual", rank, s.dim), 0);
    if (pick(b, 0, 1)) y = add_op(b, "Relu", y, 0, 0);
    return y;
}

/* Convolutions of bytes and of i32, of any rank, grouped, depthwise, with something in the pads. */
static bool random_conv_bytes(struct bed *b)
{
    static const i64 some[] = {1, 2, 3, 4, 5, 8, 16, 17, 32, 33, 64, 70};
    static const enum dtype types[][2] = {{DT_U8, DT_I8}, {DT_U8, DT_I8}, {DT_U8, DT_I8}, {DT_I8, DT_U8}, {DT_I8, DT_I8}, {DT_I32, DT_I32}};
    const enum dtype *t = types[pick(b, 0, countof(types) - 1)];
    u32 s = (u32)pick(b, 1, 3), rank = s + 2, kind = (u32)pick(b, 0, 5); /* 0: depthwise, 1: grouped, 2: pixels */
    i64 groups = kind == 0 ? pick(b, 2, 40) : kind == 1 ? 2 : 1, ic = kind == 0 ? 1 : some[pick(b, 0, countof(some) - 1)];
    i64 w[MAX_RANK] = {groups * (kind == 0 ? 1 : some[pick(b, 0, countof(some) - 1)]), ic};
    i64 pads[2 * MAX_RANK] = {0}, strides[MAX_RANK], dil[MAX_RANK];
    sym dim[MAX_RANK] = {size_of(b, pick(b, 1, 2), pick(b, 0, 5) == 0), size_of(b, groups * ic, false)};
    bool symbolic = pick(b, 0, 3) == 0;
    for (u32 i = 0; i < s; i++) {
        w[2 + i] = kind == 2 ? 1 : pick(b, 1, 3), dil[i] = pick(b, 0, 3) ? 1 : 2;
        strides[i] = pick(b, 0, 2) ? 1 : 2;
        if (kind != 2) pads[i] = pick(b, 0, 2), pads[s + i] = pick(b, 0, 2);
        dim[2 + i] = size_of(b, (w[2 + i] - 1) * dil[i] + 1 + pick(b, 0, i + 1 == s ? 16 : 3), symbolic);
    }
    bool is_computed = t[0] == DT_U8 && pick(b, 0, 3) == 0, pads_hold = t[0] != DT_I32 && pick(b, 0, 1);
    b->type = is_computed ? DT_I8 : t[0];
    value_id x = add_input(b, "x", rank, dim), in[4] = {is_computed ? shifted(b, x) : x, const_ints(b, "w", t[1], rank, w)};
    if (pick(b, 0, 1)) in[2] = const_ints(b, "bias", DT_I32, 1, w);
    if (pads_hold) in[3] = const_ints(b, "pad", t[0], 0, NULL);
    value_id y = graph_op(&b->g, "Conv", S("conv"), pads_hold ? 4 : in[2] ? 3 : 2, in);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_int(&b->g, n, "group", groups);
    attr_set_ints(&b->g, n, "strides", strides, s);
    attr_set_ints(&b->g, n, "dilations", dil, s);
    attr_set_ints(&b->g, n, "pads", pads, 2 * s);
    if (pick(b, 0, 1)) y = requantised(b, y, rank, w[0]);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static bool random_halves(struct bed *b)
{
    b->type = DT_BF16;
    return random_gemm(b);
}

static u32 count_dots(const struct kir *k)
{
    u32 n = 0;
    for (kval v = 1; v < k->ins.n; v++) n += kir_at(k, v)->op == KI_DOT;
    return n;
}

static void check_tasks(bool (*make)(struct bed *), const struct gen *gen)
{
    u32 n_tried = 0, n_dots = 0;
    for (u64 seed = first_seed(0, 120); seed < last_seed(0, 120); seed++) {
        struct bed b;
        struct candidate c;
        struct kernel k;
        bed_open(&b, seed);
        bool has = seed % 4 != 0;
        if (has) memcpy(b.caps.dot, dots, sizeof dots);
        if (make(&b)) {
            n_tried += try_task(&b, seed, 5);
            c = (struct candidate){.gen = gen};
            bool fits = gen->match(&b.t, &b.caps);
            if (fits) gen->initial(&b.t, &b.caps, b.var, &c.sched);
            if (fits && gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e)) {
                n_dots += count_dots(&k.kir) > 0;
                assert_true(has || !count_dots(&k.kir));
            }
        }
        bed_close(&b);
    }
    assert_true(is_enough(n_tried, 100) && is_enough(n_dots, 10));
}

static void test_bytes(void **state) { check_tasks(random_bytes, &gen_gemm); }
static void test_halves(void **state) { check_tasks(random_halves, &gen_gemm); }
static void test_conv_bytes(void **state) { check_tasks(random_conv_bytes, &gen_conv_gemm); }

/* Compiled for this processor. */
static void test_compiled(void **state)
{
    static bool (*const make[])(struct bed *) = {random_bytes, random_conv_bytes, random_halves, random_conv_bytes};
    for (u64 seed = first_seed(1000, 1024); seed < last_seed(1000, 1024); seed++) {
        struct bed b;
        bed_open(&b, seed);
        if (seed % 4 != 1) b.only = seed % 2 ? &gen_conv_gemm : &gen_gemm;
        if (make[seed % 4](&b)) try_device(&b, "cpu", seed);
        bed_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_conv_bytes),
        cmocka_unit_test(test_compiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
