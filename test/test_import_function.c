// SPDX-License-Identifier: Apache-2.0
//
// Functions of ONNX models: nested calls, attributes by reference with and without defaults,
// omitted inputs, outputs that are inputs, rejections. Sparse tensors as initializers and
// constants.
#include "onnx_fixture.h"

static const i64 two[] = {2};

static Onnx__FunctionProto *add_function(struct onnx_model *x, const char *name, const char *in, const char *out, u32 n, Onnx__NodeProto **nodes)
{
    Onnx__FunctionProto *f = arena_new(&x->a, Onnx__FunctionProto);
    onnx__function_proto__init(f);
    f->name = text_of(x, str_of(name)), f->domain = text_of(x, S("own"));
    f->n_input = words(x, in, &f->input), f->n_output = words(x, out, &f->output);
    f->node = arena_array(&x->a, Onnx__NodeProto *, n), f->n_node = n;
    for (u32 i = 0; i < n; i++) f->node[i] = nodes[i];
    *arr_push(&x->a, &x->function) = f;
    return f;
}

/* f(u) = leaky(u) + 1, its slope an attribute. */
static Onnx__FunctionProto *add_leaky(struct onnx_model *x)
{
    Onnx__NodeProto *leaky = make_node(x, "LeakyRelu", "u", "t"), *one = make_node(x, "Constant", "", "one");
    set_ref(x, leaky, "alpha", "slope");
    set_float(x, one, "value_float", 1);
    return add_function(x, "leaky", "u", "v", 3, (Onnx__NodeProto *[]){leaky, one, make_node(x, "Add", "t one", "v")});
}

static struct tensor *input(struct onnx_model *x) { return floats(x, 1, two, (double[]){-2, 3}); }

static void open_one_input(struct onnx_model *x)
{
    onnx_model_open(x);
    add_input(x, "x", 1, two);
}

static void test_nested(void **state)
{
    struct onnx_model x;
    open_one_input(&x);
    add_leaky(&x);
    Onnx__NodeProto *first = make_node(&x, "own:leaky", "u", "t");
    set_float(&x, first, "slope", 0.5);
    add_function(&x, "twice", "u", "t w", 2, (Onnx__NodeProto *[]){first, make_node(&x, "own:leaky", "t", "w")});
    set_float(&x, add_node(&x, "own:leaky", "x", "t"), "slope", 0.25); /* t: the function's own name, too */
    add_node(&x, "own:twice", "t", "_ y");
    add_output(&x, "t");
    add_output(&x, "y");
    /* t = (0.5, 4); leaky 0.5: (1.5, 5); 0.01: (2.5, 6) */
    onnx_model_gives(&x, (struct tensor *[]){input(&x)}, (double[]){0.5, 4, 2.5, 6}, 4);
    onnx_model_close(&x);
}

/* A default is in a field that old versions of ONNX do not have: bytes of an AttributeProto. */
static void test_default(void **state)
{
    struct onnx_model x;
    open_one_input(&x);
    Onnx__FunctionProto *f = add_leaky(&x);
    Onnx__AttributeProto a;
    onnx__attribute_proto__init(&a);
    a.name = text_of(&x, S("slope")), a.has_f = true, a.f = 0.5f;
    ProtobufCMessageUnknownField field = {.tag = 11, .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED};
    u8 bytes[64];
    bytes[0] = (u8)onnx__attribute_proto__pack(&a, bytes + 1);
    field.len = bytes[0] + 1u, field.data = bytes;
    f->base.n_unknown_fields = 1, f->base.unknown_fields = &field;
    add_node(&x, "own:leaky", "x", "y");
    add_output(&x, "y");
    onnx_model_gives(&x, (struct tensor *[]){input(&x)}, (double[]){0, 4}, 2);
    onnx_model_close(&x);
}

static void test_edges(void **state)
{
    struct onnx_model x;
    open_one_input(&x);
    add_function(&x, "f", "u low", "u v", 1, (Onnx__NodeProto *[]){make_node(&x, "Clip", "u low", "v")});
    add_node(&x, "own:f", "x", "y z");
    add_output(&x, "y");
    add_output(&x, "z");
    onnx_model_gives(&x, (struct tensor *[]){input(&x)}, (double[]){-2, 3, -2, 3}, 4);
    onnx_model_close(&x);
}

static void test_refused(void **state)
{
    struct onnx_model x;
    open_one_input(&x);
    add_function(&x, "f", "u", "v", 1, (Onnx__NodeProto *[]){make_node(&x, "own:g", "u", "v")});
    add_function(&x, "g", "u", "v", 1, (Onnx__NodeProto *[]){make_node(&x, "own:f", "u", "v")});
    add_node(&x, "own:f", "x", "y");
    add_output(&x, "y");
    onnx_model_fails(&x, ERR_UNSUPPORTED, "'f' of the model calls itself");
    onnx_model_close(&x);
    open_one_input(&x);
    add_leaky(&x);
    add_node(&x, "own:leaky", "x x", "y");
    add_output(&x, "y");
    onnx_model_fails(&x, ERR_INPUT, "more inputs or outputs than its function");
    onnx_model_close(&x);
    open_one_input(&x);
    add_leaky(&x);
    add_leaky(&x);
    add_output(&x, "x");
    onnx_model_fails(&x, ERR_INPUT, "defined twice");
    onnx_model_close(&x);
}

/* Each calls the one before ten times. */
static void test_growth(void **state)
{
    struct onnx_model x;
    open_one_input(&x);
    add_leaky(&x);
    for (u32 k = 0; k < 12; k++) {
        Onnx__NodeProto *calls[10];
        const char *below = k ? str_z(&x.a, str_fmt(&x.a, "own:f%u", k - 1)) : "own:leaky";
        for (u32 i = 0; i < 10; i++)
            calls[i] = make_node(&x, below, str_z(&x.a, str_fmt(&x.a, "v%u", i)), str_z(&x.a, str_fmt(&x.a, "v%u", i + 1)));
        add_function(&x, str_z(&x.a, str_fmt(&x.a, "f%u", k)), "v0", "v10", 10, calls);
    }
    add_node(&x, "own:f11", "x", "y");
    add_output(&x, "y");
    onnx_model_fails(&x, ERR_UNSUPPORTED, "too many nodes");
    onnx_model_close(&x);
}

static Onnx__SparseTensorProto *make_sparse(struct onnx_model *x, const char *name, const struct tensor *indices)
{
    Onnx__SparseTensorProto *p = arena_new(&x->a, Onnx__SparseTensorProto);
    onnx__sparse_tensor_proto__init(p);
    p->values = make_tensor(x, name, floats(x, 1, two, (double[]){5, 7}));
    p->indices = make_tensor(x, "", indices);
    p->n_dims = 2, p->dims = arena_array(&x->a, i64, 2);
    p->dims[0] = 2, p->dims[1] = 3;
    return p;
}

static void test_sparse(void **state)
{
    struct onnx_model x;
    open_one_input(&x);
    struct tensor *pairs = ints(&x, 4, (i64[]){0, 1, 1, 2});
    pairs->rank = 2, pairs->dim[0] = pairs->dim[1] = 2;
    *arr_push(&x.a, &x.sparse) = make_sparse(&x, "s", pairs);
    Onnx__NodeProto *c = add_node(&x, "Constant", "", "c");
    Onnx__AttributeProto *a = add_attr(&x, c, "sparse_value");
    a->has_type = true, a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__SPARSE_TENSOR;
    a->sparse_tensor = make_sparse(&x, "", ints(&x, 2, (i64[]){0, 5}));
    add_output(&x, "s");
    add_output(&x, "c");
    onnx_model_gives(&x, (struct tensor *[]){input(&x)}, (double[]){0, 5, 0, 0, 0, 7, 5, 0, 0, 0, 0, 7}, 12);
    onnx_model_close(&x);
    open_one_input(&x);
    *arr_push(&x.a, &x.sparse) = make_sparse(&x, "s", ints(&x, 2, (i64[]){0, 6}));
    add_output(&x, "s");
    onnx_model_fails(&x, ERR_INPUT, "sparse tensor 's': an index is outside");
    onnx_model_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_sparse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
