// SPDX-License-Identifier: Apache-2.0
//
// Matrix products whose sums are by groups of neighbours (DOT): bytes to i32, exactly, and bf16 to f32, of random sizes under
// random legal schedules, against the reference evaluator: interpreted for targets that have such instructions and for some
// that have not, and compiled for this processor.
#include "gen_tasks.h"

extern const struct gen gen_gemm;

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

/* Bytes x bytes, of any signs, the left ones from memory or computed, and what quantised networks do behind. */
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
    if (is_computed) {
        value_id shift = const_ints(b, "shift", DT_I32, 0, NULL);
        elem_set_i64(DT_I32, graph_value(&b->g, shift)->data->data, 0, 128);
        x = cast_to(b, DT_U8, add_op(b, "Add", cast_to(b, DT_I32, x), shift, 0));
    }
    value_id y = add_op(b, "MatMul", x, const_ints(b, "w", t[1], 2, (i64[]){k, n}), 0);
    if (pick(b, 0, 1)) y = add_op(b, "Sub", y, const_ints(b, "sums", DT_I32, 1, &n), 0);
    b->type = DT_F32;
    if (pick(b, 0, 1)) y = add_op(b, "Mul", cast_to(b, DT_F32, y), add_const(b, "scale", 1, &n), 0);
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

static void check_tasks(bool (*make)(struct bed *))
{
    u32 n_tried = 0, n_dots = 0;
    for (u64 seed = first_seed(0); seed < last_seed(120); seed++) {
        struct bed b;
        struct candidate c;
        struct kernel k;
        bed_open(&b, seed);
        bool has = seed % 4 != 0;
        if (has) memcpy(b.caps.dot, dots, sizeof dots);
        if (make(&b)) {
            n_tried += try_task(&b, seed, 5);
            c = (struct candidate){.gen = &gen_gemm};
            bool fits = gen_gemm.match(&b.t, &b.caps);
            if (fits) gen_gemm.initial(&b.t, &b.caps, b.var, &c.sched);
            if (fits && gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e)) {
                n_dots += count_dots(&k.kir) > 0;
                assert_true(has || !count_dots(&k.kir));
            }
        }
        bed_close(&b);
    }
    assert_true(n_tried > 100 && n_dots > 10);
}

static void test_bytes(void **state) { check_tasks(random_bytes); }
static void test_halves(void **state) { check_tasks(random_halves); }

/* Compiled for this processor. */
static void test_compiled(void **state)
{
    static bool (*const make[])(struct bed *) = {random_bytes, random_halves};
    for (u64 seed = first_seed(1000); seed < last_seed(1012); seed++) {
        struct bed b;
        bed_open(&b, seed);
        b.only = &gen_gemm;
        if (make[seed % 2](&b)) try_device(&b, "cpu", seed);
        bed_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_compiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
