// SPDX-License-Identifier: Apache-2.0
//
// Sizes as text in models and options: names that are expressions, ranges written by exporters,
// assumptions. All of it may be hostile.
#include "onnx_fixture.h"

#include "api/api_model.h"
#include "seeds.h"

static const i64 open_2[] = {-1, -1};

/* names */

struct fixture {
    struct arena a;
    struct symtab t;
    struct map dims;
};

static void fixture_open(struct fixture *b)
{
    static const char *const names[] = {"s0", "s1", "H", "past", "sequence_length"};
    *b = (struct fixture){0};
    symtab_init(&b->t, &b->a);
    map_init(&b->dims, &b->a);
    for (int k = 0; k < (int)countof(names); k++) map_put(&b->dims, str_of(names[k]), 1);
}

static void names_are_read(void **state)
{
    static const char *const rows[][2] = {
        {"4*Hq", "Hq*4"},
        {"s0 + 1", "s0+1"},
        {"floor(s1/2)", "s1//2"},
        {"s1//2", "s1//2"},
        {"2*((s1//2))", "s1//2*2"},
        {"Max(1, s0)", "max(1,s0)"},
        {"past + sequence_length", "past+sequence_length"},
        {"(s0 + 3)//4*4", "(s0+3)//4*4"},
        {"s0**2", "s0*s0"},
        {"Mod(s0, 4)", "s0-s0//4*4"},
        {"s0 % 4", "s0-s0//4*4"},
        {"ceiling(s0/3)", "(s0+2)//3"},
        {"FloorDiv(s0 - 1, 2) + 1", "(s0+1)//2"},
        {"s0/2 + s0/2", "s0"}, /* exact until it is rounded, to a name that is one already: see below */
        {"floor(s0/2 + 1/2)", "(s0+1)//2"},
        {"Min(s0, s1, 3)", "min(3,min(s0,s1))"},
        {"s0*s1", "s0*s1"},
    };
    for (int k = 0; k < (int)countof(rows); k++) {
        struct fixture b;
        struct buf text = {0};
        struct err e = {0};
        sym s = 0;
        fixture_open(&b);
        if (!import_dim(&b.t, str_of(rows[k][0]), &b.dims, &s)) {
            assert_string_equal(rows[k][1], "s0"); /* a plain name is none */
        } else {
            sym_print(&text, &b.t, s);
            if (s != sym_parse(&b.t, str_of(rows[k][1]), &e)) fail_msg("'%s' is '%s', expected '%s'", rows[k][0], text.p, rows[k][1]);
        }
        buf_release(&text);
        arena_release(&b.a);
    }
}

/* Leaves no variables in the table. */
static void stays_a_name(struct fixture *b, struct str text)
{
    sym s;
    u32 n = b->t.var.n;
    if (import_dim(&b->t, text, &b->dims, &s)) fail_msg("'%.*s' is an expression", STR_ARG(text));
    assert_int_equal(b->t.var.n, n);
}

static void other_names_stay(void **state)
{
    static const char *const rows[] = {
        "", " ", "H", "s0", "batch size", "a.b", "N:0", "h\xc3\xb6he", "h\xc3\xb6he + 1", "\xff\xfe", "1+1", "7", "s0/0", "s0//0", "s0 % 0", "s0+",
        "+", "(", ")", "()", "(s0", "s0)", "Max(", "Max()", "Max(s0", "Max(s0,)", "Foo(s0)", "floor()", "floor(s0, s1)", "s0 s1", "2s0", "4*a*b",
        "s0 + unknown_1 + unknown_2", "99999999999999999999*s0", "9223372036854775807*s0*s0*9223372036854775807", "s0**9", "s0**-1", "s0**s1",
        "s0***2", "--", "s0//", "//s0", ",", "Mod(s0)", "s0==s1", "Eq(s0,s1)", "None", "?", "-1", "unk__42", "'", "''", "s0;s1", "s0\ns1",
    };
    struct fixture b;
    fixture_open(&b);
    for (int k = 0; k < (int)countof(rows); k++) stays_a_name(&b, str_of(rows[k]));
    arena_release(&b.a);
}

static struct str repeat(struct arena *a, const char *what, i64 n)
{
    struct buf t = {0};
    for (i64 k = 0; k < n; k++) buf_z(&t, what);
    struct str s = str_dup(a, buf_view(&t));
    buf_release(&t);
    return s;
}

static void deep_and_long_names_stay(void **state)
{
    static const char *const part[] = {"(", "-", "floor(", "Max(1,", "s0+", "s0*", "s0**2*", "1/", "(s0+1)*", "s0//2//", "Min(s0, Max(s1, "};
    struct fixture b;
    fixture_open(&b);
    for (int k = 0; k < (int)countof(part); k++)
        for (i64 n = 30; n <= 300000; n *= 100) {
            struct str open = repeat(&b.a, part[k], n);
            stays_a_name(&b, open);
            struct str closed = str_fmt(&b.a, "%.*ss0%.*s", STR_ARG(open), STR_ARG(repeat(&b.a, ")", n)));
            u32 vars = b.t.var.n;
            sym s;
            if (n > 30) stays_a_name(&b, closed);
            else if (import_dim(&b.t, closed, &b.dims, &s)) assert_true(sym_is_defined(&b.t, s) && b.t.var.n <= 5);
            else assert_int_equal(b.t.var.n, vars);
        }
    arena_release(&b.a);
}

/* Text over the grammar's characters: never more than a name or a defined expression over known sizes. */
static void any_text_is_safe(void **state)
{
    static const char *const part[] = {"s0", "s1", "H", "1", "2", "7", "+", "-", "*", "/", "//", "%", "**", "(", ")", ",", " ", "Max(", "floor(", "Mod("};
    for (u64 seed = first_seed(1, 4000); seed < last_seed(1, 4000); seed++) {
        struct rng r = rng_seed(seed);
        struct fixture b;
        struct buf t = {0};
        i64 var[8] = {5, 4, 3, 2, 1}, v;
        sym s = 0;
        fixture_open(&b);
        for (i64 n = rng_range(&r, 1, 12); n > 0; n--) buf_z(&t, part[rng_range(&r, 0, countof(part) - 1)]);
        if (import_dim(&b.t, buf_view(&t), &b.dims, &s)) {
            assert_true(sym_is_defined(&b.t, s) && b.t.var.n <= 3);
            (void)sym_eval(&b.t, s, var, &v);
        } else {
            assert_int_equal(b.t.var.n, 0);
        }
        buf_release(&t);
        arena_release(&b.a);
    }
}

/* ranges */

static void open_named(struct onnx_model *x, const char *h, const char *w)
{
    onnx_model_open(x);
    add_input(x, "x", 2, open_2);
    Onnx__TensorShapeProto *s = x->in.v[0]->type->tensor_type->shape;
    s->dim[0]->dim_param = text_of(x, str_of(h)), s->dim[1]->dim_param = text_of(x, str_of(w));
    add_node(x, "Relu", "x", "y");
    add_output(x, "y");
}

/* The model with the ranges that torch.export writes into a field of the graph that ONNX 1.12 does
   not define. */
static struct str with_ranges(struct onnx_model *x, const char *ranges)
{
    Onnx__StringStringEntryProto p;
    (void)onnx_model_bytes(x);
    onnx__string_string_entry_proto__init(&p);
    p.key = text_of(x, S("pkg.torch.export.ExportedProgram.range_constraints")), p.value = text_of(x, str_of(ranges));
    size_t n = onnx__string_string_entry_proto__get_packed_size(&p), at = 0;
    u8 *data = arena_alloc(&x->a, (i64)n + 8);
    for (size_t rest = n; at == 0 || rest; rest >>= 7) data[at++] = (u8)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
    onnx__string_string_entry_proto__pack(&p, data + at);
    ProtobufCMessageUnknownField *f = arena_new(&x->a, ProtobufCMessageUnknownField);
    *f = (ProtobufCMessageUnknownField){.tag = 16, .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, .len = n + at, .data = data};
    x->m.graph->base.unknown_fields = f, x->m.graph->base.n_unknown_fields = 1;
    i64 size = (i64)onnx__model_proto__get_packed_size(&x->m);
    u8 *bytes = arena_alloc(&x->a, size + 1);
    onnx__model_proto__pack(&x->m, bytes);
    return (struct str){(const char *)bytes, size};
}

static void check_facts(struct onnx_model *x, const char *want)
{
    struct buf b = {0};
    for (u32 k = 0; k < x->st.fact.n; k++) {
        buf_z(&b, k ? "; " : "");
        sym_fact_print(&b, &x->st, &x->st.fact.v[k]);
    }
    if (!str_is(buf_view(&b), want)) fail_msg("facts '%s', expected '%s'", b.n ? b.p : "", want);
    buf_release(&b);
}

static void ranges_are_facts(void **state)
{
    static const char *const rows[][2] = {
        {"{s0: VR[4, 128], s1: VR[2, int_oo]}", "s0 to be at most 128"},
        {"{s0: VR[0, 64], s1: VR[7, 9223372036854775806]}", "s0 to be at most 64"},
        {"{2*s0: VR[8, 10], s99: VR[3, 4], 2*s98: VR[3, 4]}", "s0 to be at most 5"},
        {"{s0: VR[5, 3]}", "s0 to be at most 3"},
        {"{s0: VR[4, 128]", "s0 to be at most 128"},
        {"{s0: VR[-7, -3], 3: VR[1, 2], s0/0: VR[3, 4]}", ""},
        {"{s0: VR[", ""},
        {"{s0: VR[4", ""},
        {"{s0: VR[]}", ""},
        {"{: VR[3, 4]}", ""},
        {"{s0, : VR[3, 4]}", ""},
        {"{s0: VR[99999999999999999999, 3.5]}", ""},
        {"{(((((s0: VR[3, 4]}", ""},
        {"", ""},
        {"{", ""},
        {"None", ""},
        {"{: VR[: VR[: VR[]]]", ""},
    };
    for (int k = 0; k < (int)countof(rows); k++) {
        struct onnx_model x;
        open_named(&x, "s0", "s1");
        if (!import_bytes(&x.g, &x.a, &x.st, with_ranges(&x, rows[k][0]), &x.e)) fail_msg("%s: %s", rows[k][0], x.e.msg);
        check_facts(&x, rows[k][1]);
        onnx_model_close(&x);
    }
}

static void assumptions_come_before_ranges(void **state)
{
    struct onnx_model x;
    open_named(&x, "s0", "s1");
    assert_true(model_assume(&x.st, "s0:200", &x.e));
    assert_true(import_bytes(&x.g, &x.a, &x.st, with_ranges(&x, "{s0: VR[4, 128], s1: VR[3, 9]}"), &x.e));
    check_facts(&x, "s0 to be 200; s1 to be at most 9");
    onnx_model_close(&x);
}

/* assumptions */

static void assumptions_are_read(void **state)
{
    static const char *const rows[][2] = {
        {"s0:1,s1%16", "s0 to be 1; s1 to be a multiple of 16"},
        {" s0 = 3 , ,s1:1..4096", "s0 to be 3; s1 to be at least 1; s1 to be at most 4096"},
        {"s0:..5", "s0 to be at most 5"},
        {"s0:5..", "s0 to be at least 5"},
        {"s0:5..5", "s0 to be at least 5; s0 to be at most 5"},
        {"", ""},
        {",,,", ""},
        {"s0%1", ""},
    };
    for (int k = 0; k < (int)countof(rows); k++) {
        struct onnx_model x;
        open_named(&x, "s0", "s1");
        if (!model_assume(&x.st, rows[k][0], &x.e)) fail_msg("%s: %s", rows[k][0], x.e.msg);
        if (!onnx_model_import(&x) || !model_assume_check(&x.g, &x.e)) fail_msg("%s", x.e.msg);
        check_facts(&x, rows[k][1]);
        onnx_model_close(&x);
    }
}

static void bad_assumptions_are_refused(void **state)
{
    static const char *const rows[][2] = {
        {"s0", "of the form"},        {"s0:", "of the form"},          {":3", "of the form"},         {"s0:x", "of the form"},
        {"s0:..", "of the form"},     {"s0:-1", "of the form"},        {"s0%0", "of the form"},       {"s0%-4", "of the form"},
        {"s0%", "of the form"},       {"s0:1..x", "of the form"},      {"%16", "of the form"},        {"s0:1...4", "of the form"},
        {"s0:9999999999999999999999", "of the form"},                  {"s0%9999999999999999999999", "of the form"},
        {"s0:3,s0:4", "contradicts"}, {"s0:3..2", "contradicts"},      {"s0:5,s0:..4", "contradicts"}, {"s0:5,s0%2", "contradicts"},
        {"h\xc3\xb6he:3", "there are s0, s1"}, {"s2:3", "there are s0, s1"},
    };
    for (int k = 0; k < (int)countof(rows); k++) {
        struct onnx_model x;
        open_named(&x, "s0", "s1");
        bool ok = model_assume(&x.st, rows[k][0], &x.e) && onnx_model_import(&x) && model_assume_check(&x.g, &x.e);
        if (ok || !strstr(x.e.msg, rows[k][1])) fail_msg("%s: '%s'", rows[k][0], x.e.msg);
        onnx_model_close(&x);
    }
}

static void any_assumption_is_safe(void **state)
{
    static const char *const part[] = {"s0", "s1", "x", ":", "=", "%", "..", ",", "-", "1", "16", "9223372036854775807", " ", "'", "\xff"};
    for (u64 seed = first_seed(1, 2000); seed < last_seed(1, 2000); seed++) {
        struct rng r = rng_seed(seed);
        struct onnx_model x;
        struct buf t = {0};
        open_named(&x, "s0", "s1");
        buf_z(&t, "");
        for (i64 n = rng_range(&r, 1, 10); n > 0; n--) buf_z(&t, part[rng_range(&r, 0, countof(part) - 1)]);
        bool ok = model_assume(&x.st, t.p ? t.p : "", &x.e);
        if (ok && !onnx_model_import(&x)) fail_msg("'%s': %s", t.p, x.e.msg);
        if (!ok) assert_true(x.e.code == ERR_USAGE);
        buf_release(&t);
        onnx_model_close(&x);
    }
}

/* Sizes of a run decide cases that symbolic sizes leave open. */
static void sizes_to_run_at_are_assumed(void **state)
{
    static const struct { const char *at; int ok; i64 rows; } rows[] = {{"B:1,C:3", 1, 3}, {"B:3,C:1", 1, 3}, {"B:3,C:3", 1, 3}, {"B:2,C:3", 0, 0}, {NULL, 1, 8}};
    quern *q = quern_open(NULL);
    assert_non_null(q);
    for (int k = 0; k < (int)countof(rows); k++) {
        struct onnx_model x;
        quern_model *m = NULL;
        quern_tensor *in[2], *out[1];
        struct quern_model_opts o = QUERN_OPTS(quern_model_opts);
        int n = 0;
        o.run_at = rows[k].at;
        open_named(&x, "B", "w");
        add_input(&x, "z", 2, open_2);
        Onnx__TensorShapeProto *s = x.in.v[1]->type->tensor_type->shape;
        s->dim[0]->dim_param = text_of(&x, S("C")), s->dim[1]->dim_param = text_of(&x, S("w"));
        x.node.n = 0, add_node(&x, "Add", "x z", "y");
        struct str bytes = onnx_model_bytes(&x);
        assert_int_equal(quern_model_read(q, bytes.p, (size_t)bytes.n, "add", &o, &m), QUERN_OK);
        assert_int_equal(quern_model_random_inputs(m, rows[k].at ? rows[k].at : "B:8", 1, in, 2, &n), QUERN_OK);
        int ok = quern_model_eval(m, in, n, out, 1) == QUERN_OK;
        assert_int_equal(ok, rows[k].ok);
        if (ok) assert_int_equal(quern_tensor_dims(out[0])[0], rows[k].rows), quern_tensor_free(out[0]);
        else if (!strstr(quern_error(q), "input 'x': B = 2, C = 3, but Add 'y' needs C to be B")) fail_msg("%s", quern_error(q));
        for (int i = 0; i < n; i++) quern_tensor_free(in[i]);
        quern_model_close(m);
        onnx_model_close(&x);
    }
    quern_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read),
        cmocka_unit_test(other_names_stay),
        cmocka_unit_test(deep_and_long_names_stay),
        cmocka_unit_test(any_text_is_safe),
        cmocka_unit_test(ranges_are_facts),
        cmocka_unit_test(assumptions_come_before_ranges),
        cmocka_unit_test(assumptions_are_read),
        cmocka_unit_test(bad_assumptions_are_refused),
        cmocka_unit_test(any_assumption_is_safe),
        cmocka_unit_test(sizes_to_run_at_are_assumed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
