// SPDX-License-Identifier: Apache-2.0
//
// One operator on a caller's arrays: random arrays in any memory order, reversed, with gaps or
// channels last yield the reference's result for dense ones, and no memory beside them is written;
// named sizes change between calls; errors name the argument.
#include "core/core.h"
#include "quern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 1 << 16 };
static const float untouched = 12345;

struct block { /* memory that contains one array */
    float v[ROOM];
    bool used[ROOM];
    struct quern_array a;
};

static i64 place_of(const struct quern_array *a, i64 k)
{
    i64 at = 0;
    for (int d = a->rank; d-- > 0; k /= a->dim[d]) at += k % a->dim[d] * a->stride[d];
    return at;
}

static i64 count_of(const struct quern_array *a) { return i64_product((u32)a->rank, a->dim); }

/* Axes in random order, some backwards, with gaps; way 0 rows, 1 channels last, 2 anything. */
static void lay_out(struct block *b, struct rng *r, int rank, const i64 *dim, int way)
{
    int order[8];
    i64 step = 1, first = 0;
    b->a = (struct quern_array){.type = QUERN_F32, .rank = rank};
    memcpy(b->a.dim, dim, sizeof *dim * (size_t)rank);
    for (int d = 0; d < rank; d++) order[d] = rank - 1 - d;
    if (way == 1 && rank > 2)
        for (int d = 0; d < rank; d++) order[d] = d == 0 ? 1 : d == rank - 1 ? 0 : rank - d;
    for (int d = 0; d < rank && way == 2; d++) {
        int other = (int)rng_range(r, 0, rank - 1), t = order[d];
        order[d] = order[other], order[other] = t;
    }
    for (int k = 0; k < rank; k++) {
        int d = order[k];
        bool back = way == 2 && rng_range(r, 0, 2) == 0;
        if (way == 2) step *= rng_range(r, 1, 2);
        b->a.stride[d] = back ? -step : step;
        if (back) first += step * (dim[d] - 1);
        step *= dim[d];
    }
    assert_true(step <= ROOM);
    b->a.data = b->v + first;
    memset(b->used, 0, sizeof b->used);
    for (i64 i = 0; i < ROOM; i++) b->v[i] = untouched;
    for (i64 k = 0; k < count_of(&b->a); k++) {
        i64 at = first + place_of(&b->a, k);
        b->used[at] = true, b->v[at] = (float)rng_range(r, -8, 8);
    }
}

static quern_tensor *dense_of(quern *q, const struct block *b)
{
    quern_tensor *t;
    assert_int_equal(quern_tensor_new(q, QUERN_F32, b->a.rank, b->a.dim, NULL, &t), 0);
    for (i64 k = 0; k < count_of(&b->a); k++) ((float *)quern_tensor_data(t))[k] = ((float *)b->a.data)[place_of(&b->a, k)];
    return t;
}

/* Small integers: sums are exact in any order. */
static void check_output(const struct block *b, quern_tensor *want)
{
    const float *w = quern_tensor_data(want);
    assert_int_equal(count_of(&b->a), quern_tensor_count(want));
    for (i64 k = 0; k < count_of(&b->a); k++) assert_true(((float *)b->a.data)[place_of(&b->a, k)] == w[k]);
    for (i64 i = 0; i < ROOM; i++) assert_true(b->used[i] || b->v[i] == untouched);
}

static struct block in[2], out;

static void run_and_compare(quern *q, quern_op *op, int n_in, struct rng *r, bool any_way)
{
    struct quern_array x[2] = {in[0].a, in[1].a}, y = {0};
    quern_tensor *t[2] = {0}, *want = NULL;
    quern_model *m;
    if (quern_op_shape(op, x, n_in, &y, 1)) fail_msg("%s", quern_error(q));
    lay_out(&out, r, y.rank, y.dim, any_way ? (int)rng_range(r, 0, 2) : 0);
    if (quern_op_run(op, x, n_in, &out.a, 1)) fail_msg("%s", quern_error(q));
    if (quern_op_model(op, x, n_in, NULL, 1, &m)) fail_msg("%s", quern_error(q));
    for (int k = 0; k < n_in; k++) {
        struct quern_array a = in[k].a;
        if (quern_model_input_layout(m, k)[0]) { /* the model's own shape is that of channels last */
            for (int d = 1; d + 1 < a.rank; d++) in[k].a.dim[d] = a.dim[d + 1], in[k].a.stride[d] = a.stride[d + 1];
            in[k].a.dim[a.rank - 1] = a.dim[1], in[k].a.stride[a.rank - 1] = a.stride[1];
        }
        t[k] = dense_of(q, &in[k]);
    }
    if (quern_model_eval(m, t, n_in, &want, 1)) fail_msg("%s", quern_error(q));
    check_output(&out, want);
    for (int k = 0; k < n_in; k++) quern_tensor_free(t[k]);
    quern_tensor_free(want);
    quern_model_close(m);
}

static void test_strides(void **state)
{
    quern *q = quern_open(NULL);
    quern_db *db;
    assert_int_equal(quern_db_open(q, ":memory:", &db), 0);
    struct rng r = rng_seed(7);
    for (int i = 0; i < 24; i++) {
        struct quern_op_opts o = QUERN_OPTS(quern_op_opts);
        quern_op *op;
        bool is_conv = i % 2;
        int rank = is_conv ? (int)rng_range(&r, 3, 5) : (int)rng_range(&r, 0, 5);
        i64 dim[8], w[8];
        o.db = db;
        for (int d = 0; d < rank; d++) dim[d] = rng_range(&r, 1, 5), w[d] = d > 1 ? rng_range(&r, 1, dim[d]) : dim[d];
        w[0] = is_conv ? 3 : w[0];
        assert_int_equal(quern_op_open(q, is_conv ? "Conv" : "Add", NULL, &o, &op), 0);
        for (int again = 0; again < 3; again++) {
            lay_out(&in[0], &r, rank, dim, (int)rng_range(&r, 0, 2));
            lay_out(&in[1], &r, rank, is_conv ? w : dim, is_conv ? 0 : (int)rng_range(&r, 0, 2));
            run_and_compare(q, op, 2, &r, true);
        }
        quern_op_close(op);
    }
    quern_db_close(db);
    quern_close(q);
}

static void test_named_sizes(void **state)
{
    quern *q = quern_open(NULL);
    quern_op *op;
    struct quern_op_opts o = QUERN_OPTS(quern_op_opts);
    struct rng r = rng_seed(3);
    o.sizes = "N:?:H:W,N:?:H:W";
    assert_int_equal(quern_op_open(q, "Concat", "axis=1", &o, &op), 0);
    for (int i = 0; i < 8; i++) {
        i64 a[4] = {rng_range(&r, 1, 3), 3, rng_range(&r, 1, 9), rng_range(&r, 1, 9)}, b[4] = {a[0], 2, a[2], a[3]};
        lay_out(&in[0], &r, 4, a, 0);
        lay_out(&in[1], &r, 4, b, 2);
        run_and_compare(q, op, 2, &r, false);
    }
    struct quern_array x[2] = {in[0].a, in[1].a};
    x[1].dim[3]++;
    assert_int_equal(quern_op_run(op, x, 2, &out.a, 1), QUERN_INPUT);
    assert_non_null(strstr(quern_error(q), "'Concat': input 1 has size"));
    x[1].rank = 3;
    assert_int_equal(quern_op_run(op, x, 2, &out.a, 1), QUERN_INPUT);
    assert_non_null(strstr(quern_error(q), "input 1 has rank 3, expected 4"));
    quern_op_close(op);
    quern_close(q);
}

static void expect(quern *q, quern_op *op, const struct quern_array *x, int n, const struct quern_array *y, const char *message)
{
    quern_status s = quern_op_run(op, x, n, y, 1);
    if (!s || !strstr(quern_error(q), message)) fail_msg("status %d, '%s', expected '%s'", (int)s, quern_error(q), message);
}

/* The mean without the output in front of it. */
static void test_omitted_output(void **state)
{
    quern *q = quern_open(NULL);
    quern_op *op;
    struct rng r = rng_seed(7);
    assert_int_equal(quern_op_open(q, "LayerNormalization", NULL, NULL, &op), 0);
    lay_out(&in[0], &r, 2, (const i64[]){3, 4}, 0);
    lay_out(&in[1], &r, 1, (const i64[]){4}, 0);
    lay_out(&out, &r, 2, (const i64[]){3, 1}, 2);
    struct quern_array x[2] = {in[0].a, in[1].a}, y[2] = {{0}, out.a};
    if (quern_op_run(op, x, 2, y, 2)) fail_msg("%s", quern_error(q));
    for (i64 k = 0; k < 3; k++) {
        float sum = 0;
        for (i64 i = 0; i < 4; i++) sum += ((float *)in[0].a.data)[place_of(&in[0].a, 4 * k + i)];
        assert_true(((float *)out.a.data)[place_of(&out.a, k)] == sum / 4);
    }
    for (i64 i = 0; i < ROOM; i++) assert_true(out.used[i] || out.v[i] == untouched);
    quern_op_close(op);
    quern_close(q);
}

/* Of one whose sizes are of data. */
static void test_omitted_first(void **state)
{
    const char *const text = "graph {\n  input %x: i64[6]\n  _, %at: i64[?] = Unique(%x)\n  output %at\n}\n";
    const int64_t v[6] = {4, 2, 4, 3, 2, 9}, want[4] = {1, 3, 0, 5};
    quern *q = quern_open(NULL);
    quern_model *m = NULL;
    quern_tensor *x = NULL, *y = NULL;
    assert_int_equal(quern_model_read(q, text, strlen(text), "unique", NULL, &m), 0);
    assert_int_equal(quern_tensor_new(q, QUERN_I64, 1, (int64_t[]){6}, v, &x), 0);
    if (quern_model_eval(m, &x, 1, &y, 1)) fail_msg("%s", quern_error(q));
    assert_int_equal(quern_tensor_count(y), 4);
    assert_memory_equal(quern_tensor_data(y), want, sizeof want);
    quern_tensor_free(x), quern_tensor_free(y);
    quern_model_close(m);
    quern_close(q);
}

/* Shapes of any outputs of several. */
static void test_omitted_shape(void **state)
{
    quern *q = quern_open(NULL);
    quern_op *op;
    struct rng r = rng_seed(5);
    lay_out(&in[0], &r, 3, (const i64[]){2, 3, 4}, 0);
    lay_out(&in[1], &r, 1, (const i64[]){4}, 0);
    struct quern_array x[2] = {in[0].a, in[1].a};
    assert_int_equal(quern_op_open(q, "LayerNormalization", NULL, NULL, &op), 0);
    for (int omitted = 0; omitted < 8; omitted++) {
        struct quern_array y[3] = {{0}};
        for (int k = 0; k < 3; k++) y[k].rank = omitted >> k & 1 ? -1 : 0;
        quern_status s = quern_op_shape(op, x, 2, y, 3);
        assert_int_equal(s, omitted == 7 ? QUERN_USAGE : QUERN_OK);
        for (int k = 0; k < 3 && omitted < 7; k++) {
            const int64_t last = k ? 1 : 4;
            if (omitted >> k & 1) assert_true(y[k].rank == -1 && !y[k].type);
            else assert_true(y[k].rank == 3 && y[k].type == QUERN_F32 && y[k].dim[0] == 2 && y[k].dim[1] == 3 && y[k].dim[2] == last && y[k].stride[1] == last);
        }
    }
    assert_non_null(strstr(quern_error(q), "all 3 outputs are omitted"));
    quern_op_close(op);
    quern_close(q);
}

static void test_errors(void **state)
{
    quern *q = quern_open(NULL);
    quern_op *op;
    struct rng r = rng_seed(4);
    struct quern_op_opts o = QUERN_OPTS(quern_op_opts);
    o.sizes = "N:?:H!";
    assert_int_equal(quern_op_open(q, "Add", NULL, &o, &op), QUERN_USAGE);
    assert_non_null(strstr(quern_error(q), "size 'H!' of input 0"));
    assert_int_equal(quern_op_open(q, "Conv", "pads=[1,1]", NULL, &op), 0);
    lay_out(&in[0], &r, 3, (const i64[]){1, 2, 6}, 2);
    lay_out(&in[1], &r, 3, (const i64[]){2, 2, 3}, 0);
    lay_out(&out, &r, 3, (const i64[]){1, 2, 6}, 0);
    struct quern_array x[2] = {in[0].a, in[1].a}, y = out.a;
    assert_int_equal(quern_op_run(op, x, 2, &y, 1), 0);
    y.dim[2] = 5;
    expect(q, op, x, 2, &y, "output");
    y = out.a, y.stride[1] = 0;
    expect(q, op, x, 2, &y, "output 0 has stride 0 on axis 1");
    y = out.a, y.data = NULL;
    expect(q, op, x, 2, &y, "'o0' has no memory");
    y = out.a, y.type = 0;
    expect(q, op, x, 2, &y, "all 1 outputs are omitted");
    y = out.a, y.rank = 9;
    expect(q, op, x, 2, &y, "output 0: rank 9 is not in 0..8");
    y = out.a, x[1].dim[1] = 3;
    expect(q, op, x, 2, &y, "Conv");
    x[1] = in[1].a, x[0].type = 77;
    expect(q, op, x, 2, &y, "input 0: no element type has number 77");
    x[0] = in[0].a, x[0].dim[0] = -1;
    expect(q, op, x, 2, &y, "negative");
    x[0] = in[0].a;
    expect(q, op, x, -1, &y, "-1 inputs");
    quern_op_close(op);
    quern_close(q);
}

static void test_read(void **state)
{
    static const char text[] = "graph { input %x: f32[H]\n %y: f32[H] = Neg(%x)\n output %y }";
    quern *q = quern_open(NULL);
    quern_model *m;
    quern_tensor *x, *y = NULL;
    assert_int_equal(quern_model_read(q, text, strlen(text), "negative", NULL, &m), 0);
    assert_int_equal(quern_tensor_new(q, QUERN_F32, 1, (const i64[]){2}, (const float[]){3, -4}, &x), 0);
    assert_int_equal(quern_model_eval(m, &x, 1, &y, 1), 0);
    assert_true(((float *)quern_tensor_data(y))[0] == -3 && ((float *)quern_tensor_data(y))[1] == 4);
    quern_tensor_free(x);
    quern_tensor_free(y);
    quern_model_close(m);
    assert_int_equal(quern_model_read(q, text, strlen(text) / 2, "half", NULL, &m), QUERN_INPUT);
    assert_non_null(strstr(quern_error(q), "half"));
    assert_true(quern_model_read(q, NULL, 0, "nothing", NULL, &m) != QUERN_OK);
    quern_close(q);
}

/* Constants that no kernel rearranges are the program's own, too. */
static void test_program_alone(void **state)
{
    struct buf b = {0};
    quern *q = quern_open(NULL);
    quern_model *m;
    quern_program *p;
    quern_tensor *x, *y = NULL;
    buf_z(&b, "graph { input %x: f32[100]\n const %c: f32[100] = [0");
    for (int i = 1; i < 100; i++) buf_printf(&b, ", %d", i);
    buf_z(&b, "]\n %y: f32[100] = Add(%x, %c)\n output %y }");
    assert_int_equal(quern_model_read(q, b.p, (size_t)b.n, "counted", NULL, &m), 0);
    assert_int_equal(quern_compile(m, NULL, NULL, &p), 0);
    quern_model_close(m);
    buf_release(&b);
    assert_int_equal(quern_tensor_new(q, QUERN_F32, 1, (const i64[]){100}, NULL, &x), 0);
    assert_int_equal(quern_run(p, &x, 1, &y, 1), 0);
    for (int i = 0; i < 100; i++) assert_true(((float *)quern_tensor_data(y))[i] == (float)i);
    quern_tensor_free(x);
    quern_tensor_free(y);
    quern_program_close(p);
    quern_close(q);
}

/* Attributes are those of the operator's definition; integers are floats where it has floats. */
static void test_attributes(void **state)
{
    static const struct { const char *op, *attributes, *says; } bad[] = {
        {"Concat", "axsi=1", "'Concat': no attribute 'axsi', expected one of axis"},
        {"Conv", "pads=\"x\"", "'Conv': attribute 'pads' is a string, expected integers"},
        {"Conv", "group=1.0", "'Conv': attribute 'group' is a float, expected an integer"},
        {"Conv", "group=[1]", "'Conv': attribute 'group' is integers, expected an integer"},
        {"Conv", "auto_pad=\"VALID\", quern_appends=1", "'Conv': no attribute 'quern_appends'"},
        {"Neg", "axis=0", "'Neg': no attribute 'axis', the operator has none"},
        {"ReduceSum", "axis=0", "'ReduceSum': no attribute 'axis', expected one of keepdims, noop_with_empty_axes"},
        {"quern::WeightedFilter", "mode=1", "'quern::WeightedFilter': attribute 'mode' is an integer, expected a string"},
        {"quern::ConvGradInput", "input_shape=2", "attribute 'input_shape' is an integer, expected integers or strings"},
        {"Concat", "axis=", "'Concat': attributes 'axis=' are not of the form"},
        {"Concat", "axis=1} output %x {", "are not of the form"},
        {"NoSuch", NULL, "'NoSuch': no such operator"},
        {"Con cat", NULL, "'Con cat': no such operator"},
    };
    static const struct { const char *op, *attributes; } good[] = {
        {"Conv", ""}, {"Conv", NULL}, {"Conv", "pads=[], strides=[1,1]"}, {"Elu", "alpha=2"}, {"Elu", "alpha=2.5"}, {"quern::Sym", "value=\"1\""},
        {"quern::ConvGradInput", "input_shape=[4,4]"}, {"quern::ConvGradInput", "input_shape=strs[\"4\", \"4\"]"}, {"com.microsoft::FusedConv", NULL},
        {"ai.onnx.ml::Scaler", "offset=[1,2], scale=floats[1,2.5]"},
    };
    quern *q = quern_open(NULL);
    quern_op *op = NULL;
    for (u32 k = 0; k < countof(bad); k++) {
        assert_int_not_equal(quern_op_open(q, bad[k].op, bad[k].attributes, NULL, &op), QUERN_OK);
        if (!strstr(quern_error(q), bad[k].says)) fail_msg("'%s', expected '%s'", quern_error(q), bad[k].says);
    }
    for (u32 k = 0; k < countof(good); k++) {
        if (quern_op_open(q, good[k].op, good[k].attributes, NULL, &op)) fail_msg("%s {%s}: %s", good[k].op, good[k].attributes, quern_error(q));
        quern_op_close(op);
    }
    float x[2] = {-1, 3}, y[2];
    struct quern_array from = {QUERN_F32, 1, {2}, {1}, x}, to = {QUERN_F32, 1, {2}, {1}, y};
    assert_int_equal(quern_op_open(q, "LeakyRelu", "alpha=2", NULL, &op), 0);
    assert_int_equal(quern_op_run(op, &from, 1, &to, 1), 0);
    assert_true(y[0] == -2 && y[1] == 3);
    quern_op_close(op);
    quern_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_strides), cmocka_unit_test(test_named_sizes), cmocka_unit_test(test_omitted_output),
                                       cmocka_unit_test(test_omitted_first), cmocka_unit_test(test_omitted_shape),
                                       cmocka_unit_test(test_errors), cmocka_unit_test(test_attributes),
                                       cmocka_unit_test(test_read), cmocka_unit_test(test_program_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
