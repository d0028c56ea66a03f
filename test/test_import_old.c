// SPDX-License-Identifier: Apache-2.0
//
// Operators in the forms of opsets 1 to 6, experimental operators, and Scan of opset 8.
// test/onnx_versions.py compares every version of every operator with ONNX Runtime and ONNX's
// reference; this test covers, without packages, the forms that differ from today's.
#include "onnx_fixture.h"

static const i64 x_dim[] = {1, 2, 2}, c_dim[] = {2}, open_dim[] = {-1, 2, 2};
static const double x_data[] = {1, -2, 3, -4}, c_data[] = {10, 100};

static void add_floats(struct onnx_model *x, const char *name, u32 rank, const i64 *dim, const double *v)
{
    *arr_push(&x->a, &x->init) = make_tensor(x, name, floats(x, rank, dim, v));
}

static Onnx__NodeProto *open_old(struct onnx_model *x, i64 opset, const char *op, const char *in, const char *out)
{
    onnx_model_open(x);
    x->opset = opset;
    add_input(x, "x", 3, x_dim);
    add_floats(x, "c", 1, c_dim, c_data);
    add_output(x, "y");
    return add_node(x, op, in, out);
}

static void gives(struct onnx_model *x, const double *want, i64 n)
{
    struct tensor *in = floats(x, 3, x_dim, x_data);
    onnx_model_gives(x, &in, want, n);
    onnx_model_close(x);
}

static void set_ints(struct onnx_model *x, Onnx__NodeProto *n, const char *name, i64 count, const i64 *v)
{
    Onnx__AttributeProto *a = add_attr(x, n, name);
    a->has_type = true, a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
    a->n_ints = (size_t)count, a->ints = arena_array(&x->a, i64, count);
    for (i64 k = 0; k < count; k++) a->ints[k] = v[k];
}

static void set_string(struct onnx_model *x, Onnx__NodeProto *n, const char *name, const char *v)
{
    Onnx__AttributeProto *a = add_attr(x, n, name);
    a->has_type = true, a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
    a->has_s = true, a->s = (ProtobufCBinaryData){strlen(v), (u8 *)text_of(x, str_of(v))};
}

static void test_broadcast(void **state)
{
    struct onnx_model x;
    Onnx__NodeProto *n = open_old(&x, 6, "Add", "x c", "y"); /* no axis: the last ones */
    set_int(&x, n, "broadcast", 1);
    gives(&x, (double[]){11, 98, 13, 96}, 4);
    for (int axis = -2; axis < 2; axis += 3) { /* -2 and 1 are the same one */
        n = open_old(&x, 6, "Add", "x c", "y");
        set_int(&x, n, "broadcast", 1);
        set_int(&x, n, "axis", axis);
        gives(&x, (double[]){11, 8, 103, 96}, 4);
    }
    n = open_old(&x, 1, "Mul", "x c", "y");
    set_int(&x, n, "axis", 1), set_int(&x, n, "broadcast", 1);
    set_ints(&x, n, "consumed_inputs", 2, (i64[]){0, 0});
    x.in.n = 0;
    add_input(&x, "x", 3, open_dim); /* the rank alone is known */
    gives(&x, (double[]){10, -20, 300, -400}, 4);
    n = open_old(&x, 6, "Add", "x c", "y");
    set_int(&x, n, "axis", INT64_MIN);
    onnx_model_fails(&x, ERR_INPUT, "axis -9223372036854775808 does not exist");
    onnx_model_close(&x);
    open_old(&x, 6, "PRelu", "x c", "y");
    gives(&x, (double[]){1, -20, 3, -400}, 4);
}

/* Scale 2, shift 1, mean 1, variance 4; epsilon is far below the tolerance. */
static void open_norm(struct onnx_model *x, i64 opset, i64 test, i64 spatial, const char *out)
{
    static const i64 all_dim[] = {2, 2};
    Onnx__NodeProto *n = open_old(x, opset, "BatchNormalization", "x s b m v", out);
    u32 rank = spatial ? 1 : 2;
    const char *const name[] = {"s", "b", "m", "v"};
    for (int k = 0; k < 4; k++) {
        double v = k == 0 ? 2 : k == 3 ? 4 : 1;
        add_floats(x, name[k], rank, spatial ? c_dim : all_dim, (double[]){v, v, v, v});
    }
    set_float(x, n, "epsilon", 1e-9);
    if (test >= 0) set_int(x, n, "is_test", test);
    if (!spatial) set_int(x, n, "spatial", 0);
}

static void test_norm(void **state)
{
    struct onnx_model x;
    open_norm(&x, 6, 1, 1, "y");
    gives(&x, (double[]){1, -2, 3, -4}, 4);
    open_norm(&x, 1, 1, 0, "y");
    gives(&x, (double[]){1, -2, 3, -4}, 4);
    open_norm(&x, 6, 0, 1, "y"); /* the batch's own statistics: means -0.5, deviations 1.5 and 3.5 */
    gives(&x, (double[]){3, -1, 3, -1}, 4);
    open_norm(&x, 9, -1, 1, "y mean var saved more"); /* training, unused saved statistics */
    add_output(&x, "mean");
    gives(&x, (double[]){3, -1, 3, -1, 0.85, 0.85}, 6);
    open_norm(&x, 6, 0, 1, "y mean var saved more");
    add_output(&x, "saved");
    onnx_model_fails(&x, ERR_UNSUPPORTED, "output 3, statistics that are saved for a gradient");
    onnx_model_close(&x);
    open_norm(&x, 6, 0, 0, "y");
    onnx_model_fails(&x, ERR_UNSUPPORTED, "'spatial' = 0");
    onnx_model_close(&x);
}

static void test_dropout(void **state)
{
    struct onnx_model x;
    Onnx__NodeProto *n = open_old(&x, 6, "Dropout", "x", "y");
    set_int(&x, n, "is_test", 1);
    gives(&x, x_data, 4);
    n = open_old(&x, 6, "Dropout", "x", "y mask"); /* in training; the mask has the type of x */
    set_float(&x, n, "ratio", 0);
    add_node(&x, "Add", "mask x", "z");
    add_output(&x, "z");
    gives(&x, (double[]){1, -2, 3, -4, 2, -1, 4, -3}, 8);
}

static void test_attributes(void **state)
{
    struct onnx_model x;
    Onnx__NodeProto *n = open_old(&x, 1, "Cast", "x", "y");
    set_string(&x, n, "to", "BOOL");
    gives(&x, (double[]){1, 1, 1, 1}, 4);
    n = open_old(&x, 5, "Cast", "x", "y");
    set_string(&x, n, "to", "STRING");
    onnx_model_fails(&x, ERR_UNSUPPORTED, "attribute 'to' is 'STRING'");
    onnx_model_close(&x);
    n = open_old(&x, 1, "Reshape", "x", "y");
    set_ints(&x, n, "shape", 2, (i64[]){-1, 1});
    gives(&x, x_data, 4);
    open_old(&x, 3, "Concat", "x x", "y"); /* axis 1 */
    gives(&x, (double[]){1, -2, 3, -4, 1, -2, 3, -4}, 8);
    n = open_old(&x, 1, "Pad", "x", "y");
    set_ints(&x, n, "paddings", 6, (i64[]){0, 0, 1, 0, 0, 0});
    gives(&x, (double[]){0, 1, -2, 0, 3, -4}, 6);
    n = open_old(&x, 1, "GlobalLpPool", "x", "y");
    set_float(&x, n, "p", 1);
    gives(&x, (double[]){3, 7}, 2);
    n = open_old(&x, 1, "GlobalLpPool", "x", "y");
    set_float(&x, n, "p", 1.5);
    onnx_model_fails(&x, ERR_UNSUPPORTED, "attribute 'p' is 1.5, expected an integer");
    onnx_model_close(&x);
    n = open_old(&x, 1, "Upsample", "u", "y");
    set_float(&x, n, "height_scale", 1), set_float(&x, n, "width_scale", 2);
    n = add_node(&x, "Unsqueeze", "x", "u");
    set_ints(&x, n, "axes", 1, (i64[]){0});
    gives(&x, (double[]){1, 1, -2, -2, 3, 3, -4, -4}, 8);
}

static void test_inputs(void **state)
{
    struct onnx_model x;
    open_old(&x, 1, "Tile", "x times axis", "y");
    add_floats(&x, "times", 0, NULL, (double[]){2});
    add_floats(&x, "axis", 0, NULL, (double[]){1});
    gives(&x, (double[]){1, -2, 3, -4, 1, -2, 3, -4}, 8);
    Onnx__NodeProto *n = open_old(&x, 1, "Split", "x parts", "y z");
    add_floats(&x, "parts", 1, c_dim, (double[]){1, 1});
    set_int(&x, n, "axis", 2);
    gives(&x, (double[]){1, 3}, 2);
}

static void test_experimental(void **state)
{
    struct onnx_model x;
    Onnx__NodeProto *n = open_old(&x, 1, "Affine", "x", "y");
    set_float(&x, n, "alpha", 2), set_float(&x, n, "beta", 1);
    gives(&x, (double[]){3, -3, 7, -7}, 4);
    n = open_old(&x, 9, "ScaledTanh", "x", "y");
    set_float(&x, n, "alpha", 3), set_float(&x, n, "beta", 0);
    gives(&x, (double[]){0, 0, 0, 0}, 4);
    n = open_old(&x, 1, "ConstantFill", "x", "y");
    set_float(&x, n, "value", 2);
    set_ints(&x, n, "extra_shape", 1, (i64[]){2});
    gives(&x, (double[]){2, 2, 2, 2, 2, 2, 2, 2}, 8);
    open_old(&x, 1, "GRUUnit", "x", "y");
    onnx_model_fails(&x, ERR_UNSUPPORTED, "operator is not supported");
    onnx_model_close(&x);
}

/* Sums along the sequences of a batch of two, the second one reversed or of one element. */
static void open_scan(struct onnx_model *x, struct onnx_model *body, const char *in)
{
    onnx_model_open(body);
    add_output(body, "t"), add_output(body, "e");
    add_input(body, "s", 0, NULL), add_input(body, "v", 0, NULL);
    add_node(body, "Add", "s v", "t");
    add_node(body, "Identity", "t", "e");
    onnx_model_open(x);
    x->opset = 8;
    static const i64 dim[] = {2, 2};
    add_input(x, "x", 2, dim);
    add_floats(x, "s0", 1, c_dim, c_data);
    Onnx__NodeProto *n = add_node(x, "Scan", in, "last y");
    set_int(x, n, "num_scan_inputs", 1);
    set_body(x, n, "body", body);
    add_output(x, "last"), add_output(x, "y");
}

static void test_scan(void **state)
{
    struct onnx_model x, body;
    static const i64 dim[] = {2, 2};
    for (int k = 0; k < 3; k++) {
        open_scan(&x, &body, k == 1 ? "lens s0 x" : "_ s0 x");
        if (k == 1) add_ints(&x, "lens", 2, (i64[]){2, 1});
        if (k == 2) set_ints(&x, x.node.v[0], "directions", 1, (i64[]){1});
        const double want[3][6] = {{9, 99, 11, 9, 103, 99}, {9, 103, 11, 9, 103, 0}, {9, 99, 8, 9, 96, 99}};
        struct tensor *in = floats(&x, 2, dim, x_data);
        onnx_model_gives(&x, &in, want[k], 6);
        onnx_model_close(&x);
        onnx_model_close(&body);
    }
    open_scan(&x, &body, "x s0 x");
    onnx_model_fails(&x, ERR_UNSUPPORTED, "'sequence_lens'");
    onnx_model_close(&x);
    onnx_model_close(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broadcast), cmocka_unit_test(test_norm),         cmocka_unit_test(test_dropout), cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_inputs),    cmocka_unit_test(test_experimental), cmocka_unit_test(test_scan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
