// SPDX-License-Identifier: Apache-2.0
//
// Element types of imported networks: constants that exporters leave in f32 beside 16-bit values
// are converted, computed values are not; normalisations with a scale of another type; unsupported
// types are rejected by name.
#include "export/export.h"
#include "onnx_fixture.h"

static const i64 two[] = {2};

static void add_cast(struct onnx_model *x, const char *in, const char *out, enum dtype t)
{
    set_int(x, add_node(x, "Cast", in, out), "to", dtype_onnx(t));
}

static void open_half(struct onnx_model *x, enum dtype t)
{
    onnx_model_open(x);
    add_input(x, "x", 1, two);
    add_cast(x, "x", "h", t);
}

static void add_floats(struct onnx_model *x, const char *name, double a, double b)
{
    *arr_push(&x->a, &x->init) = make_tensor(x, name, floats(x, 1, two, (double[]){a, b}));
}

static void test_constants(void **state)
{
    struct onnx_model x;
    open_half(&x, DT_BF16);
    add_floats(&x, "c", 1.001, 3); /* 1.001 is 1 in bf16 */
    add_node(&x, "Mul", "h c", "y");
    add_node(&x, "Sub", "c h", "z");
    add_node(&x, "Max", "h c", "m");
    add_output(&x, "y");
    add_output(&x, "z");
    add_output(&x, "m");
    onnx_model_gives(&x, (struct tensor *[]){floats(&x, 1, two, (double[]){2, -4})}, (double[]){2, -12, -1, 7, 2, 3}, 6);
    for (u32 k = 0; k < 3; k++) assert_int_equal(graph_value(&x.g, x.g.output.v[k])->dtype, DT_BF16);
    onnx_model_close(&x);
    onnx_model_open(&x); /* and where the constant is the shorter one */
    add_input(&x, "x", 1, two);
    struct tensor *c = tensor_new(&x.a, DT_F16, 1, two);
    elem_set_f64(DT_F16, c->data, 0, 0.5), elem_set_f64(DT_F16, c->data, 1, 2);
    *arr_push(&x.a, &x.init) = make_tensor(&x, "c", c);
    add_node(&x, "Div", "x c", "y");
    add_output(&x, "y");
    onnx_model_gives(&x, (struct tensor *[]){floats(&x, 1, two, (double[]){1.001, 3})}, (double[]){2.002, 1.5}, 2);
    onnx_model_close(&x);
}

static void test_computed(void **state)
{
    struct onnx_model x;
    open_half(&x, DT_F16);
    add_node(&x, "Add", "h x", "y");
    add_output(&x, "y");
    onnx_model_fails(&x, ERR_INPUT, "input 1 has type f32, expected f16");
    onnx_model_close(&x);
}

/* The result has the type of the values, of RMSNormalization that of the scale. */
static void test_norms(void **state)
{
    static const char *const op[] = {"LayerNormalization", "RMSNormalization"};
    for (int k = 0; k < 2; k++) {
        struct onnx_model x;
        open_half(&x, DT_F16);
        add_cast(&x, "x", "s", DT_F32);
        add_node(&x, op[k], "h s", "y");
        add_output(&x, "y");
        struct tensor *in = floats(&x, 1, two, (double[]){3, 3});
        onnx_model_gives(&x, &in, k ? (double[]){2.9999995, 2.9999995} : (double[]){0, 0}, 2);
        assert_int_equal(graph_value(&x.g, x.g.output.v[0])->dtype, k ? DT_F32 : DT_F16);
        onnx_model_close(&x);
    }
}

static void test_names(void **state)
{
    static const struct { int type; const char *name; } rows[] = {{8, "string"}, {14, "complex64"}, {15, "complex128"}, {99, "that is unknown"}};
    for (i64 k = 0; k < countof(rows); k++) {
        struct onnx_model x;
        onnx_model_open(&x);
        Onnx__ValueInfoProto *p = make_value(&x, "x", 1, two);
        p->type->tensor_type->elem_type = rows[k].type;
        *arr_push(&x.a, &x.in) = p;
        add_node(&x, "Identity", "x", "y");
        add_output(&x, "y");
        onnx_model_fails(&x, ERR_UNSUPPORTED, rows[k].name);
        assert_non_null(strstr(x.e.msg, "graph input 'x'"));
        onnx_model_close(&x);
    }
}

/* Nothing computes with storage-only types; views and casts accept them. */
static void test_small(void **state)
{
    struct onnx_model x;
    open_half(&x, DT_F8E4M3FN);
    add_node(&x, "Add", "h h", "y");
    add_output(&x, "y");
    onnx_model_fails(&x, ERR_UNSUPPORTED, "elements of type f8e4m3fn ('h'): only moved, cast, quantised and dequantised");
    onnx_model_close(&x);
    open_half(&x, DT_I4);
    add_node(&x, "Dropout", "h", "d");
    add_node(&x, "Concat", "d h", "c");
    set_int(&x, x.node.v[x.node.n - 1], "axis", 0); /* of Concat */
    add_cast(&x, "c", "y", DT_F32);
    add_output(&x, "y");
    onnx_model_gives(&x, (struct tensor *[]){floats(&x, 1, two, (double[]){-8, 9})}, (double[]){-8, -7, -8, -7}, 4);
    onnx_model_close(&x);
}

/* Exported networks declare versions of ONNX that have their types. */
static void test_versions(void **state)
{
    static const struct { enum dtype t; i64 opset, ir; } rows[] = {
        {DT_BF16, 18, 8},    {DT_F8E5M2, 19, 9}, {DT_U4, 21, 10}, {DT_F4E2M1, 23, 11},
        {DT_F8E8M0, 24, 12}, {DT_I2, 25, 13},    {DT_F6E3M2, 28, 14},
    };
    for (i64 k = 0; k < countof(rows); k++) {
        struct onnx_model x;
        struct buf b = {0};
        open_half(&x, rows[k].t);
        add_output(&x, "h");
        assert_true(onnx_model_import(&x) && export_onnx_bytes(&x.g, &b, &x.e));
        Onnx__ModelProto *m = io_onnx_unpack(&onnx__model_proto__descriptor, &x.a, buf_view(&b), &x.e);
        assert_non_null(m);
        assert_int_equal(m->opset_import[0]->version, rows[k].opset);
        assert_int_equal(m->ir_version, rows[k].ir);
        buf_release(&b);
        onnx_model_close(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constants), cmocka_unit_test(test_computed), cmocka_unit_test(test_norms),
        cmocka_unit_test(test_names),     cmocka_unit_test(test_small),    cmocka_unit_test(test_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
