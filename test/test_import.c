// SPDX-License-Identifier: Apache-2.0
//
// Models in and out: a graph exported to ONNX and imported again is the same graph; every form of
// tensor, constant and size of ONNX; invalid or unsupported models are rejected with a reason;
// truncation and flipped bytes never crash.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <onnx.pb-c.h>

#include "export/export.h"
#include "import/import.h"
#include "io/io.h"
#include "op/op.h"

struct fixture {
    struct arena a;
    struct symtab st;
    struct graph g;
    struct err e;
};

static void start(struct fixture *f)
{
    *f = (struct fixture){0};
    symtab_init(&f->st, &f->a);
    graph_init(&f->g, &f->a, &f->st);
}

static void stop(struct fixture *f) { arena_release(&f->a); }

static struct str print(struct fixture *f, const struct graph *g)
{
    struct buf b = {0};
    graph_print(&b, g, NULL);
    struct str s = str_dup(&f->a, buf_view(&b));
    buf_release(&b);
    return s;
}

static const char rich[] =
    "graph {\n"
    "  input %x: f32[1,3,H,W]\n"
    "  input %\"odd name\": f16[2,input_d2]\n"
    "  const %c: f32[1,3,1,1] = [0.5, -inf, 3.0]\n"
    "  %y: f32[?] = Concat \"cat\"(%x, %x, %c2) {axis=2}\n"
    "  const %c2: f32[1,3,0,0] = []\n"
    "  %z: f32[?] = Transpose \"turn\"(%y2) {perm=[0,2,3,1]}\n"
    "  %y2: f32[?] = Concat(%x, %x) {axis=1}\n"
    "  %t: f16[?] = Transpose(%\"odd name\")\n"
    "  output %z\n"
    "  output %t\n"
    "  output %c\n"
    "}\n";

/* Text -> graph -> ONNX bytes -> graph -> the same bytes (and text, but for attributes that are no f32). */
static void check_round_trip(struct str text, const char *part)
{
    struct fixture f, h;
    struct buf b = {0}, again = {0};
    start(&f);
    start(&h);
    if (!import_bytes(&f.g, &f.a, &f.st, text, &f.e)) fail_msg("%s in\n%.*s", f.e.msg, STR_ARG(text));
    if (!export_onnx_bytes(&f.g, &b, &f.e)) fail_msg("%s in\n%.*s", f.e.msg, STR_ARG(text));
    if (!import_bytes(&h.g, &h.a, &h.st, buf_view(&b), &h.e)) fail_msg("%s in\n%.*s", h.e.msg, STR_ARG(text));
    assert_true(export_onnx_bytes(&h.g, &again, &h.e));
    assert_true(str_eq(buf_view(&b), buf_view(&again)));
    if (part) assert_string_equal(print(&h, &h.g).p, print(&f, &f.g).p);
    if (part) assert_non_null(strstr(print(&h, &h.g).p, part));
    buf_release(&b);
    buf_release(&again);
    stop(&f);
    stop(&h);
}

/* Axes as attributes, as older opsets have them, are inputs in a file of opset 18. */
static void test_axes(void **state)
{
    static const char text[] = "graph {\n  input %x: f32[2,3,1,4]\n  %y: f32[?] = ReduceL2(%x) {axes=[1], keepdims=0}\n"
                               "  %s: f32[?] = Squeeze(%y) {axes=[1]}\n  %u: f32[?] = Unsqueeze(%s) {axes=[0]}\n  output %u\n}\n";
    struct fixture f, h;
    struct buf b = {0};
    start(&f);
    start(&h);
    assert_true(import_bytes(&f.g, &f.a, &f.st, str_of(text), &f.e) && export_onnx_bytes(&f.g, &b, &f.e));
    if (!import_bytes(&h.g, &h.a, &h.st, buf_view(&b), &h.e)) fail_msg("%s", h.e.msg);
    assert_int_equal(h.g.node.n, 4);
    for (node_id n = 1; n < h.g.node.n; n++) assert_true(graph_node(&h.g, n)->in.n == 2 && !node_attr(graph_node(&h.g, n), "axes"));
    assert_non_null(strstr(print(&h, &h.g).p, "%u: f32[1,2,4]"));
    buf_release(&b);
    stop(&f);
    stop(&h);
}

static void test_round_trip(void **state) { check_round_trip(str_of(rich), "%z: f32[1,H,W,6]"); }

/* Random instances of every operator there is in opset 18 (Upsample ended with 9). */
static void test_round_trip_ops(void **state)
{
    struct rng r = rng_seed(5);
    for (i64 k = 0; op_all(k); k++) {
        if (strcmp(op_all(k)->name, "Upsample") == 0 || op_all(k)->props & OP_CALL) continue;
        for (int round = 0; op_all(k)->random && round < 5; round++) {
            struct fixture f;
            start(&f);
            op_all(k)->random(op_all(k), &f.g, &r);
            check_round_trip(print(&f, &f.g), NULL);
            stop(&f);
        }
    }
}

/* Building of protobufs by hand: m is y = Concat(x, c). */

struct proto {
    struct arena a;
    Onnx__ModelProto m;
    Onnx__GraphProto g;
    Onnx__OperatorSetIdProto opset;
    Onnx__OperatorSetIdProto *opset_list[1];
    Onnx__NodeProto node[3], *node_list[3];
    Onnx__AttributeProto attr[2], *attr_list[2];
    Onnx__ValueInfoProto in[2], out, *in_list[2], *out_list[1];
    Onnx__TypeProto type;
    Onnx__TypeProto__Tensor tensor_type;
    Onnx__TensorShapeProto shape;
    Onnx__TensorShapeProto__Dimension dim[3], *dim_list[3];
    Onnx__TensorProto init, *init_list[1];
    char *names[4];
};

static char *z(const char *s) { return (char *)(uintptr_t)s; }

static void proto_type(struct proto *p)
{
    onnx__type_proto__init(&p->type);
    onnx__type_proto__tensor__init(&p->tensor_type);
    onnx__tensor_shape_proto__init(&p->shape);
    p->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    p->type.tensor_type = &p->tensor_type;
    p->tensor_type.has_elem_type = 1;
    p->tensor_type.elem_type = 1;
    p->tensor_type.shape = &p->shape;
    p->shape.n_dim = 3;
    p->shape.dim = p->dim_list;
    for (int k = 0; k < 3; k++) {
        p->dim_list[k] = &p->dim[k];
        onnx__tensor_shape_proto__dimension__init(&p->dim[k]);
    }
    p->dim[1].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    p->dim[1].dim_param = z("N");
    p->dim[2].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    p->dim[2].dim_value = 4;
}

static void proto_node(struct proto *p, int k, const char *op, const char *out)
{
    Onnx__NodeProto *n = &p->node[k];
    onnx__node_proto__init(n);
    n->op_type = z(op);
    n->name = z("the_node");
    n->output = &p->names[k];
    n->output[0] = z(out);
    n->n_output = 1;
    p->node_list[k] = n;
    p->g.n_node = (size_t)k + 1;
}

/* One input x: f32[?, N, 4], one node y = Transpose(x), output y. */
static void proto_init(struct proto *p)
{
    *p = (struct proto){0};
    onnx__model_proto__init(&p->m);
    onnx__graph_proto__init(&p->g);
    onnx__operator_set_id_proto__init(&p->opset);
    p->m.has_ir_version = 1;
    p->m.ir_version = 8;
    p->m.graph = &p->g;
    p->m.n_opset_import = 1;
    p->m.opset_import = p->opset_list;
    p->opset_list[0] = &p->opset;
    p->opset.has_version = 1;
    p->opset.version = 13;
    proto_type(p);
    for (int k = 0; k < 2; k++) onnx__value_info_proto__init(&p->in[k]), p->in_list[k] = &p->in[k];
    p->in[0].name = z("x");
    p->in[0].type = &p->type;
    p->g.n_input = 1;
    p->g.input = p->in_list;
    onnx__value_info_proto__init(&p->out);
    p->out.name = z("y");
    p->out_list[0] = &p->out;
    p->g.n_output = 1;
    p->g.output = p->out_list;
    p->g.node = p->node_list;
    proto_node(p, 0, "Transpose", "y");
    p->node[0].n_input = 1;
    p->node[0].input = &p->names[3];
    p->names[3] = z("x");
    onnx__tensor_proto__init(&p->init);
    p->init.name = z("c");
    p->init_list[0] = &p->init;
    p->g.initializer = p->init_list;
    for (int k = 0; k < 2; k++) onnx__attribute_proto__init(&p->attr[k]), p->attr_list[k] = &p->attr[k];
}

static struct str proto_bytes(struct proto *p)
{
    size_t n = onnx__model_proto__get_packed_size(&p->m);
    u8 *out = arena_alloc(&p->a, (i64)n + 1);
    onnx__model_proto__pack(&p->m, out);
    return (struct str){(char *)out, (i64)n};
}

static bool import_proto(struct fixture *f, struct proto *p)
{
    start(f);
    bool ok = import_bytes(&f->g, &f->a, &f->st, proto_bytes(p), &f->e);
    assert_int_equal(ok, f->e.code == ERR_NONE);
    return ok;
}

static void check_fails(struct proto *p, enum err_code code, const char *part)
{
    struct fixture f;
    if (import_proto(&f, p)) fail_msg("accepted: wanted '%s'", part);
    if (!strstr(f.e.msg, part)) fail_msg("'%s' is not about '%s'", f.e.msg, part);
    assert_int_equal(f.e.code, code);
    stop(&f);
    arena_release(&p->a);
}

static void test_dims(void **state)
{
    struct proto p;
    struct fixture f;
    proto_init(&p);
    assert_true(import_proto(&f, &p));
    assert_non_null(strstr(print(&f, &f.g).p, "input %x: f32[x_d0,N,4]"));
    assert_non_null(strstr(print(&f, &f.g).p, "%y: f32[4,N,x_d0]"));
    stop(&f);
    p.dim[1].dim_param = z("x_d0"); /* a given name like the fresh one */
    p.dim[2].dim_value = -1;
    assert_true(import_proto(&f, &p));
    assert_non_null(strstr(print(&f, &f.g).p, "input %x: f32[x_d0_2,x_d0,x_d2]"));
    stop(&f);
    p.dim[2] = p.dim[1]; /* the same name twice is the same size */
    assert_true(import_proto(&f, &p));
    assert_non_null(strstr(print(&f, &f.g).p, "input %x: f32[x_d0_2,x_d0,x_d0]"));
    stop(&f);
    arena_release(&p.a);
}

/* All encodings of the three numbers 1, 0, 2, or their equivalents in the type (bool: 1, 0, 1; i2:
   1, 0, -2). */
static void check_init(struct proto *p, enum dtype t)
{
    struct fixture f;
    int64_t dim = 3;
    p->g.n_initializer = 1;
    p->init.n_dims = 1;
    p->init.dims = &dim;
    p->init.has_data_type = 1;
    p->init.data_type = dtype_onnx(t);
    p->out.name = z("c");
    if (!import_proto(&f, p)) fail_msg("%s: %s", dtype_name(t), f.e.msg);
    const struct value *v = graph_value(&f.g, f.g.output.v[0]);
    assert_true(v->is_const);
    assert_int_equal(v->dtype, t);
    for (int k = 0; k < 3; k++) {
        u64 x;
        elem_set_f64(t, &x, 0, (double[]){1, 0, 2}[k]);
        assert_true(elem_f64(t, v->data->data, k) == elem_f64(t, &x, 0));
    }
    assert_true(elem_f64(t, v->data->data, 0) == 1);
    stop(&f);
    arena_release(&p->a);
}

/* Of 1, 0, 2 as integers: those of 2 and 4 bits as bytes of several. */
static size_t small_codes(enum dtype t, int32_t *out)
{
    u8 code[3], byte[3];
    i64 n = 3;
    for (int k = 0; k < 3; k++) elem_set_f64(t, code, k, (double[]){1, 0, 2}[k]), byte[k] = code[k];
    if (8 % dtype_bits(t) == 0 && dtype_bits(t) < 8) n = small_packed_size(t, 3), small_pack(t, code, 3, byte);
    for (i64 k = 0; k < n; k++) out[k] = byte[k];
    return (size_t)n;
}

static void test_tensor_forms(void **state)
{
    float fl[] = {1, 0, 2};
    double db[] = {1, 0, 2};
    int32_t i32s[] = {1, 0, 2}, f16s[] = {0x3c00, 0, 0x4000}, bf16s[] = {0x3f80, 0, 0x4000};
    int64_t i64s[] = {1, 0, 2};
    uint64_t u64s[] = {1, 0, 2};
    for (int t = 1; t < N_DTYPES; t++) {
        struct proto p;
        proto_init(&p);
        Onnx__TensorProto *i = &p.init;
        if (t == DT_F32) i->float_data = fl, i->n_float_data = 3;
        else if (t == DT_F64) i->double_data = db, i->n_double_data = 3;
        else if (t == DT_I64) i->int64_data = i64s, i->n_int64_data = 3;
        else if (t == DT_U64 || t == DT_U32) i->uint64_data = u64s, i->n_uint64_data = 3;
        else i->int32_data = t == DT_F16 ? f16s : t == DT_BF16 ? bf16s : i32s, i->n_int32_data = 3;
        int32_t codes[3];
        if (dtype_is_small((enum dtype)t)) i->int32_data = codes, i->n_int32_data = small_codes((enum dtype)t, codes);
        check_init(&p, (enum dtype)t);
        proto_init(&p);
        u64 raw[3];
        u8 packed[3];
        for (int k = 0; k < 3; k++) elem_set_f64((enum dtype)t, raw, k, fl[k]);
        p.init.has_raw_data = 1;
        p.init.raw_data = (ProtobufCBinaryData){.len = (size_t)small_packed_size((enum dtype)t, 3), .data = (u8 *)raw};
        if (dtype_bits((enum dtype)t) < 8) small_pack((enum dtype)t, (u8 *)raw, 3, p.init.raw_data.data = packed);
        check_init(&p, (enum dtype)t);
    }
}

/* Constant nodes in all their forms. */
static void check_constant(Onnx__AttributeProto *a, const char *content)
{
    struct proto p;
    struct fixture f;
    proto_init(&p);
    p.attr_list[0] = a;
    proto_node(&p, 0, "Constant", "y");
    p.node[0].attribute = p.attr_list;
    p.node[0].n_attribute = 1;
    if (content) {
        if (!import_proto(&f, &p)) fail_msg("%s", f.e.msg);
        if (!strstr(print(&f, &f.g).p, content)) fail_msg("no %s in %s", content, print(&f, &f.g).p);
        stop(&f);
        arena_release(&p.a);
    } else {
        check_fails(&p, ERR_UNSUPPORTED, "the_node");
    }
}

static void test_constants(void **state)
{
    Onnx__AttributeProto a;
    Onnx__TensorProto t;
    float floats[] = {1, 2.5};
    int64_t ints[] = {3, -4};
    struct tensor src = {.dtype = DT_I32, .rank = 0, .data = (i32[]){7}};
    onnx__attribute_proto__init(&a);
    a.name = z("value_float"), a.has_f = 1, a.f = 1.5f; /* no type, as old models */
    check_constant(&a, "f32[] = [1.5]");
    onnx__attribute_proto__init(&a);
    a.name = z("value_int"), a.has_i = 1, a.i = -3;
    check_constant(&a, "i64[] = [-3]");
    onnx__attribute_proto__init(&a);
    a.name = z("value_floats"), a.floats = floats, a.n_floats = 2;
    check_constant(&a, "f32[2] = [1.0, 2.5]");
    onnx__attribute_proto__init(&a);
    a.name = z("value_ints"), a.ints = ints, a.n_ints = 2;
    check_constant(&a, "i64[2] = [3, -4]");
    onnx__attribute_proto__init(&a);
    io_onnx_fill(&t, &src, NULL);
    a.name = z("value"), a.t = &t;
    check_constant(&a, "i32[] = [7]");
    onnx__attribute_proto__init(&a);
    a.name = z("value_string"), a.has_s = 1;
    check_constant(&a, NULL);
    a.name = z("value_int");
    check_constant(&a, NULL);
}

/* An initializer that is listed as an input is a constant, not an input. */
static void test_initializer_input(void **state)
{
    struct proto p;
    struct fixture f;
    proto_init(&p);
    int64_t dims[] = {1};
    float one = 1;
    p.in[1].name = z("c");
    p.in[1].type = &p.type;
    p.g.n_input = 2;
    p.g.n_initializer = 1;
    p.init.n_dims = 1, p.init.dims = dims, p.init.has_data_type = 1, p.init.data_type = 1;
    p.init.float_data = &one, p.init.n_float_data = 1;
    p.names[3] = z("c");
    assert_true(import_proto(&f, &p));
    assert_int_equal(f.g.input.n, 1);
    assert_true(graph_value(&f.g, graph_find(&f.g, S("c")))->is_const);
    stop(&f);
    arena_release(&p.a);
}

static void test_order(void **state)
{
    struct proto p;
    struct fixture f;
    proto_init(&p);
    proto_node(&p, 1, "Transpose", "w"); /* the producer follows its user */
    p.names[3] = z("w");
    char *x = z("x");
    p.node[1].input = &x;
    p.node[1].n_input = 1;
    assert_true(import_proto(&f, &p));
    assert_non_null(strstr(print(&f, &f.g).p, "%y: f32[x_d0,N,4]"));
    stop(&f);
    x = z("y"); /* a cycle */
    check_fails(&p, ERR_INPUT, "cycle");
}

static void test_unsupported(void **state)
{
    struct proto p;
    Onnx__GraphProto sub;
    Onnx__SparseTensorProto sparse, *sparse_list[] = {&sparse};
    proto_init(&p);
    p.opset.version = 0;
    check_fails(&p, ERR_UNSUPPORTED, "opset 0");
    proto_init(&p);
    p.opset.version = 29;
    check_fails(&p, ERR_UNSUPPORTED, "opset 29");
    proto_init(&p);
    p.m.n_opset_import = 0;
    check_fails(&p, ERR_UNSUPPORTED, "opset");
    proto_init(&p);
    p.node[0].op_type = z("NoSuchOperator");
    check_fails(&p, ERR_UNSUPPORTED, "NoSuchOperator");
    proto_init(&p);
    p.node[0].domain = z("com.example");
    check_fails(&p, ERR_UNSUPPORTED, "com.example::Transpose");
    proto_init(&p);
    p.node[0].domain = z("ai.onnx.ml"), p.node[0].op_type = z("ZipMap");
    check_fails(&p, ERR_UNSUPPORTED, "zipmap=False");
    proto_init(&p);
    p.node[0].domain = z("com.microsoft.nchwc");
    check_fails(&p, ERR_UNSUPPORTED, "ORT_ENABLE_EXTENDED");
    proto_init(&p);
    onnx__graph_proto__init(&sub);
    p.attr[0].name = z("then_branch"), p.attr[0].g = &sub;
    p.node[0].op_type = z("If"), p.node[0].attribute = p.attr_list, p.node[0].n_attribute = 1;
    check_fails(&p, ERR_INPUT, "body 'then_branch': graph has no outputs");
    check_fails(&p, ERR_INPUT, "'If', node 'the_node'");
    proto_init(&p);
    onnx__sparse_tensor_proto__init(&sparse);
    p.g.n_sparse_initializer = 1, p.g.sparse_initializer = sparse_list;
    check_fails(&p, ERR_INPUT, "sparse tensor '': without values or indices");
    proto_init(&p);
    p.tensor_type.elem_type = 8;
    check_fails(&p, ERR_UNSUPPORTED, "'x'");
    proto_init(&p);
    p.type.value_case = ONNX__TYPE_PROTO__VALUE__NOT_SET;
    check_fails(&p, ERR_UNSUPPORTED, "'x'");
}

/* Bounds that only passes prove: a model that had false ones would get wrong results. */
static void test_promises(void **state)
{
    static const char *const names[] = {"acc16", "most"};
    for (int k = 0; k < 2; k++) {
        struct proto p;
        struct fixture f;
        proto_init(&p);
        p.node[0].n_attribute = 1, p.node[0].attribute = p.attr_list;
        p.attr[0].name = z(names[k]), p.attr[0].has_type = 1, p.attr[0].type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, p.attr[0].has_i = 1, p.attr[0].i = 8;
        check_fails(&p, ERR_INPUT, str_fmt(&p.a, "has proven: '%s'", names[k]).p);
        start(&f);
        const struct str text = str_fmt(&f.a, "graph {\n  input %%x: u8[4,4]\n  const %%w: i8[4,1] = [127, 127, 127, 127]\n  %%y: i32[?] = MatMul(%%x, %%w) {%s=8}\n  output %%y\n}\n", names[k]);
        assert_false(import_bytes(&f.g, &f.a, &f.st, text, &f.e));
        if (!strstr(f.e.msg, "has proven")) fail_msg("%s", f.e.msg);
        stop(&f);
    }
}

static void test_invalid(void **state)
{
    struct proto p;
    int64_t huge[] = {INT64_MAX, INT64_MAX}, nine[9] = {0}, negative[] = {-1};
    proto_init(&p);
    p.names[3] = z("nowhere");
    check_fails(&p, ERR_INPUT, "'nowhere'");
    proto_init(&p);
    p.out.name = z("nothing");
    check_fails(&p, ERR_INPUT, "'nothing'");
    proto_init(&p);
    p.node[0].output[0] = z("x");
    check_fails(&p, ERR_INPUT, "produced twice");
    proto_init(&p);
    p.in[1] = p.in[0], p.g.n_input = 2;
    check_fails(&p, ERR_INPUT, "produced twice");
    proto_init(&p);
    p.g.n_output = 0;
    check_fails(&p, ERR_INPUT, "no outputs");
    proto_init(&p);
    p.m.graph = NULL;
    check_fails(&p, ERR_INPUT, "without a graph");
    for (int k = 0; k < 4; k++) {
        proto_init(&p);
        p.g.n_initializer = 1;
        p.init.has_data_type = 1, p.init.data_type = 1;
        p.init.dims = k == 0 ? huge : k == 1 ? nine : negative;
        p.init.n_dims = k == 0 ? 2 : k == 1 ? 9 : k == 2 ? 1 : 0; /* the last: a scalar without content */
        check_fails(&p, ERR_INPUT, "tensor 'c'");
    }
}

/* Content in a file beside the model. */
static bool import_external(const char *location, const char *offset, const char *length, bool follow_links, struct err *e)
{
    struct fixture f;
    struct proto p;
    struct str dir;
    Onnx__StringStringEntryProto entry[3], *list[3];
    const char *keys[] = {"location", "offset", "length"}, *values[] = {location, offset, length};
    int64_t dim = 2;
    start(&f);
    proto_init(&p);
    assert_true(os_temp_dir(&f.a, &dir, &f.e));
    for (int k = 0; k < 3; k++) {
        onnx__string_string_entry_proto__init(&entry[k]);
        entry[k].key = z(keys[k]), entry[k].value = z(values[k]), list[k] = &entry[k];
    }
    p.g.n_initializer = 1, p.out.name = z("c");
    p.init.n_dims = 1, p.init.dims = &dim, p.init.has_data_type = 1, p.init.data_type = 1;
    p.init.has_data_location = 1, p.init.data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    p.init.n_external_data = 3, p.init.external_data = list;
    struct str model = str_fmt(&f.a, "%.*s/sub/m.onnx", STR_ARG(dir)), bytes = proto_bytes(&p);
    assert_true(os_mkdirs(str_fmt(&f.a, "%.*s/sub/deep", STR_ARG(dir)).p, &f.e));
    assert_true(os_write(model.p, bytes.p, bytes.n, &f.e));
    float content[] = {9, 1, 2};
    assert_true(os_write(str_fmt(&f.a, "%.*s/sub/deep/w.bin", STR_ARG(dir)).p, content, 12, &f.e));
    assert_true(os_write(str_fmt(&f.a, "%.*s/out.bin", STR_ARG(dir)).p, content, 12, &f.e));
    assert_int_equal(symlink("w.bin", str_fmt(&f.a, "%.*s/sub/deep/link.bin", STR_ARG(dir)).p), 0);
    assert_int_equal(symlink("../out.bin", str_fmt(&f.a, "%.*s/sub/outside.bin", STR_ARG(dir)).p), 0);
    assert_int_equal(symlink("..", str_fmt(&f.a, "%.*s/sub/up", STR_ARG(dir)).p), 0);
    assert_int_equal(mkfifo(str_fmt(&f.a, "%.*s/sub/pipe", STR_ARG(dir)).p, 0600), 0);
    bool ok = import_run(&(struct import_job){.g = &f.g, .follow_links = follow_links}, &f.a, &f.st, model.p, e);
    if (ok) assert_non_null(strstr(print(&f, &f.g).p, "f32[2] = [1.0, 2.0]"));
    struct err no = {0};
    assert_false(import_bytes(&f.g, &f.a, &f.st, bytes, &no));
    os_remove_tree(dir.p);
    stop(&f);
    arena_release(&p.a);
    return ok;
}

static void test_external(void **state)
{
    static const char *const bad[][3] = {
        {"../out.bin", "4", "8"},          {"/etc/passwd", "0", "8"},      {"deep/../../out.bin", "4", "8"},
        {"deep/w.bin", "5", "8"},          {"deep/w.bin", "-4", "8"},      {"deep/w.bin", "4", "4"},
        {"deep/w.bin", "4", "x"},          {"deep/none.bin", "4", "8"},    {"", "4", "8"},
        {"deep/w.bin", "9223372036854775807", "8"}, {"..", "4", "8"},      {"deep", "4", "8"},
        {"pipe", "4", "8"},                {"deep/link.bin", "4", "8"},    {"outside.bin", "4", "8"},
        {"up/out.bin", "4", "8"},
    };
    struct err e = {0};
    if (!import_external("deep/w.bin", "4", "8", false, &e)) fail_msg("%s", e.msg);
    if (!import_external("outside.bin", "4", "8", true, &e)) fail_msg("%s", e.msg);
    for (i64 k = 0; k < countof(bad); k++) {
        e = (struct err){0};
        if (import_external(bad[k][0], bad[k][1], bad[k][2], false, &e)) fail_msg("accepted %s", bad[k][0]);
        assert_non_null(strstr(e.msg, "m.onnx"));
    }
}

/* Large contents are read past protobuf-c, from memory and from files: of an initializer, and of a Constant's attribute. */

static struct str large_model(struct proto *p, i64 n, bool *flags, i64 n_flags)
{
    int64_t *dim = arena_array(&p->a, int64_t, 2);
    static u8 index = 0;
    ProtobufCMessageUnknownField *strange = arena_new(&p->a, ProtobufCMessageUnknownField);
    Onnx__TensorProto *t = arena_new(&p->a, Onnx__TensorProto);
    float *v = arena_array(&p->a, float, n);
    for (i64 i = 0; i < n; i++) v[i] = (float)(i % 1000);
    dim[0] = n, dim[1] = n_flags;
    *strange = (ProtobufCMessageUnknownField){.tag = (1 << 29) - 1, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = 1, .data = &index};
    p->g.n_initializer = 1;
    p->init.n_dims = 1, p->init.dims = dim, p->init.has_data_type = 1, p->init.data_type = 1, p->init.has_raw_data = 1;
    p->init.raw_data = (ProtobufCBinaryData){(size_t)n * 4, (u8 *)v};
    onnx__tensor_proto__init(t);
    t->n_dims = 1, t->dims = dim + 1, t->has_data_type = 1, t->data_type = dtype_onnx(DT_BOOL), t->has_raw_data = 1;
    t->raw_data = (ProtobufCBinaryData){(size_t)n_flags, (u8 *)flags};
    t->base.n_unknown_fields = 1, t->base.unknown_fields = strange; /* the importer's own mark, in a file */
    proto_node(p, 1, "Constant", "flags");
    p->node[1].attribute = p->attr_list, p->node[1].n_attribute = 1;
    p->attr[0].name = z("value"), p->attr[0].has_type = 1, p->attr[0].type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR, p->attr[0].t = t;
    return proto_bytes(p);
}

static void check_large(const struct fixture *f, i64 n, i64 n_flags)
{
    const struct tensor *c = graph_value(&f->g, graph_find(&f->g, S("c")))->data, *b = graph_value(&f->g, graph_find(&f->g, S("flags")))->data;
    assert_int_equal(tensor_count(c), n);
    assert_int_equal((uintptr_t)c->data % 16, 0);
    for (i64 i = 0; i < n; i++)
        if (((float *)c->data)[i] != (float)(i % 1000)) fail_msg("element %lld is %g", (long long)i, (double)((float *)c->data)[i]);
    assert_int_equal(tensor_count(b), n_flags);
    for (i64 i = 0; i < n_flags; i++) assert_int_equal(((u8 *)b->data)[i], i % 3 != 0);
}

static void test_large(void **state)
{
    static const i64 sizes[] = {1100, 5000011}; /* the second by several threads */
    bool flags[4099];
    memset(flags, 0, sizeof flags);
    for (int i = 0; i < (int)countof(flags); i++) ((u8 *)flags)[i] = (u8)(i % 3 ? 2 : 0);
    for (int k = 0; k < 2; k++) {
        struct arena a = {0};
        struct fixture f;
        struct proto p;
        struct str dir;
        struct err e = {0};
        proto_init(&p);
        struct str bytes = large_model(&p, sizes[k], flags, countof(flags));
        start(&f);
        if (!import_bytes(&f.g, &f.a, &f.st, bytes, &f.e)) fail_msg("%s", f.e.msg);
        check_large(&f, sizes[k], countof(flags));
        stop(&f);
        assert_true(os_temp_dir(&a, &dir, &e));
        const char *path = str_fmt(&a, "%.*s/m.onnx", STR_ARG(dir)).p;
        assert_true(os_write(path, bytes.p, bytes.n, &e));
        start(&f);
        if (!import_graph(&f.g, &f.a, &f.st, path, &f.e)) fail_msg("%s", f.e.msg);
        check_large(&f, sizes[k], countof(flags));
        stop(&f);
        for (i64 n = 1; n < bytes.n; n += k ? bytes.n / 5 : 37) { /* cut anywhere */
            assert_true(os_write(path, bytes.p, n, &e));
            start(&f);
            bool ok = import_graph(&f.g, &f.a, &f.st, path, &f.e);
            if (ok && n < bytes.n / 2) fail_msg("%lld bytes are accepted", (long long)n); /* only an opset follows the graph */
            stop(&f);
        }
        os_remove_tree(dir.p);
        arena_release(&a);
        arena_release(&p.a);
    }
}

/* Nesting thousands deep: graph in attribute in node in graph. */
static void test_deep(void **state)
{
    struct buf b = {0}, up = {0};
    struct arena a = {0};
    struct err e = {0};
    for (int k = 0; k < 20000; k++) {
        u8 key = (u8)((u8[]){1, 5, 6}[k % 3] << 3 | 2);
        buf_reset(&up);
        buf_char(&up, (char)key);
        i64 n = b.n;
        for (; n >= 128; n >>= 7) buf_char(&up, (char)(u8)(n | 128));
        buf_char(&up, (char)n);
        if (b.n + up.n > 60000) break;
        buf_str(&up, buf_view(&b));
        struct buf t = b;
        b = up;
        up = t;
    }
    buf_reset(&up);
    buf_put(&up, (u8[]){0x08, 8, 0x3a, 0xe0, 0xd4, 3}, 6);
    while (b.n < 60000) buf_char(&b, 0);
    buf_str(&up, buf_view(&b));
    assert_null(io_onnx_unpack(&onnx__model_proto__descriptor, &a, buf_view(&up), &e));
    assert_int_equal(e.code, ERR_INPUT);
    arena_release(&a);
    buf_release(&b);
    buf_release(&up);
}

static void import_any(struct str bytes)
{
    struct fixture f;
    start(&f);
    if (!import_bytes(&f.g, &f.a, &f.st, bytes, &f.e)) assert_true(f.e.code != ERR_NONE && f.e.msg[0]);
    else assert_true(graph_verify(&f.g, &f.e));
    stop(&f);
}

static void test_broken(void **state)
{
    struct fixture f;
    struct buf b = {0};
    struct rng r = rng_seed(4);
    start(&f);
    assert_true(import_bytes(&f.g, &f.a, &f.st, str_of(rich), &f.e));
    assert_true(export_onnx_bytes(&f.g, &b, &f.e));
    for (i64 n = 0; n < b.n; n++) import_any(str_dup(&f.a, str_sub(buf_view(&b), 0, n)));
    for (int round = 0; round < 5000; round++) {
        struct str s = str_dup(&f.a, buf_view(&b));
        for (i64 m = rng_range(&r, 1, 4); m > 0; m--) {
            char bit = (char)(1 << rng_range(&r, 0, 7));
            ((char *)(uintptr_t)s.p)[rng_range(&r, 0, s.n - 1)] ^= bit;
        }
        import_any(s);
    }
    buf_release(&b);
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_ops), cmocka_unit_test(test_round_trip), cmocka_unit_test(test_axes),  cmocka_unit_test(test_dims),      cmocka_unit_test(test_tensor_forms),
        cmocka_unit_test(test_constants),   cmocka_unit_test(test_order),     cmocka_unit_test(test_initializer_input),
        cmocka_unit_test(test_unsupported), cmocka_unit_test(test_promises), cmocka_unit_test(test_invalid),   cmocka_unit_test(test_external), cmocka_unit_test(test_large),
        cmocka_unit_test(test_deep),        cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
