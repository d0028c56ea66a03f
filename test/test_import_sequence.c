// SPDX-License-Identifier: Apache-2.0
//
// Sequences and optional values are replaced by their elements: positions, pieces of equal and of
// given sizes, also along unknown sizes, sequences as outputs, rejections. Through loops, branches
// and maps. As inputs with given numbers of elements; files of their content.
#include "onnx_fixture.h"

static const double numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

static void open_rows(struct onnx_model *x, i64 rows)
{
    onnx_model_open(x);
    add_input(x, "x", 2, (i64[]){rows, 2});
}

static struct tensor *rows(struct onnx_model *x, i64 n) { return floats(x, 2, (i64[]){n, 2}, numbers); }

static void position_of(struct onnx_model *x, const char *name, i64 v) { add_ints(x, name, 1, &v); }

static void test_pieces(void **state)
{
    struct onnx_model x;
    open_rows(&x, 5);
    struct tensor *two = tensor_new(&x.a, DT_I64, 0, NULL);
    elem_set_i64(DT_I64, two->data, 0, 2);
    *arr_push(&x.a, &x.init) = make_tensor(&x, "two", two);
    position_of(&x, "last", -1);
    position_of(&x, "first", 0);
    add_node(&x, "SplitToSequence", "x two", "s");
    add_node(&x, "SequenceAt", "s last", "y");
    add_node(&x, "SequenceErase", "s first", "r");
    set_int(&x, add_node(&x, "ConcatFromSequence", "r", "z"), "axis", 0);
    add_node(&x, "SequenceLength", "r", "n");
    add_output(&x, "y");
    add_output(&x, "z");
    add_output(&x, "n");
    onnx_model_gives(&x, (struct tensor *[]){rows(&x, 5)}, (double[]){8, 9, 4, 5, 6, 7, 8, 9, 2}, 9);
    onnx_model_close(&x);
}

/* Rows of their own without the axis, put together along a new one. */
static void test_single(void **state)
{
    struct onnx_model x;
    open_rows(&x, 2);
    set_int(&x, add_node(&x, "SplitToSequence", "x", "s"), "keepdims", 0);
    Onnx__NodeProto *c = add_node(&x, "ConcatFromSequence", "s", "y");
    set_int(&x, c, "axis", 1);
    set_int(&x, c, "new_axis", 1);
    add_output(&x, "y");
    onnx_model_gives(&x, (struct tensor *[]){rows(&x, 2)}, (double[]){0, 2, 1, 3}, 4);
    onnx_model_close(&x);
}

/* Given sizes along an axis whose size is not known. */
static void test_symbolic(void **state)
{
    struct onnx_model x;
    open_rows(&x, -1);
    position_of(&x, "one", 1);
    add_ints(&x, "ones", 2, (i64[]){1, 1});
    set_int(&x, add_node(&x, "SplitToSequence", "x ones", "s"), "axis", 1);
    add_node(&x, "Identity", "s", "t");
    add_node(&x, "SequenceInsert", "t x one", "u");
    add_output(&x, "u");
    onnx_model_gives(&x, (struct tensor *[]){rows(&x, 2)}, (double[]){0, 2, 0, 1, 2, 3, 1, 3}, 8);
    assert_string_equal(graph_value(&x.g, x.g.output.v[1])->name.p, "u[1]");
    onnx_model_close(&x);
    open_rows(&x, -1);
    add_node(&x, "SplitToSequence", "x", "s");
    add_output(&x, "s");
    onnx_model_fails(&x, ERR_UNSUPPORTED, "the number of pieces depends on axis 0");
    onnx_model_close(&x);
}

static void test_optional(void **state)
{
    struct onnx_model x;
    open_rows(&x, 1);
    add_node(&x, "Optional", "x", "o");
    add_node(&x, "Optional", "_", "none");
    add_node(&x, "OptionalHasElement", "o", "has");
    add_node(&x, "OptionalHasElement", "none", "hasnt");
    add_node(&x, "OptionalGetElement", "o", "y");
    add_output(&x, "y");
    add_output(&x, "has");
    add_output(&x, "hasnt");
    onnx_model_gives(&x, (struct tensor *[]){rows(&x, 1)}, (double[]){0, 1, 1, 0}, 4);
    onnx_model_close(&x);
    open_rows(&x, 1);
    add_node(&x, "Optional", "_", "none");
    add_node(&x, "OptionalGetElement", "none", "y");
    add_output(&x, "y");
    onnx_model_fails(&x, ERR_INPUT, "the element does not exist");
    onnx_model_close(&x);
}

static void test_order(void **state)
{
    struct onnx_model x;
    open_rows(&x, 1);
    position_of(&x, "first", 0);
    position_of(&x, "before", -1);
    add_node(&x, "Neg", "x", "m");
    add_node(&x, "Exp", "x", "e");
    add_node(&x, "SequenceEmpty", "", "a");
    add_node(&x, "SequenceInsert", "a x", "b");
    add_node(&x, "SequenceInsert", "b m first", "c");
    add_node(&x, "SequenceInsert", "c e before", "d"); /* m, e, x */
    add_node(&x, "SequenceErase", "d before", "f");    /* m, e */
    add_node(&x, "SequenceErase", "f", "h");
    add_output(&x, "h");
    onnx_model_gives(&x, (struct tensor *[]){rows(&x, 1)}, (double[]){0, -1}, 2);
    onnx_model_close(&x);
}

static void test_refused(void **state)
{
    struct onnx_model x;
    open_rows(&x, 1);
    position_of(&x, "one", 1);
    add_node(&x, "SequenceConstruct", "x", "s");
    add_node(&x, "SequenceAt", "s one", "y");
    add_output(&x, "y");
    onnx_model_fails(&x, ERR_INPUT, "position 1 of 1 elements");
    onnx_model_close(&x);
    open_rows(&x, 1);
    add_node(&x, "SequenceConstruct", "x", "s");
    add_node(&x, "Shape", "x", "n");
    add_node(&x, "Relu", "s", "y");
    add_output(&x, "y");
    onnx_model_fails(&x, ERR_UNSUPPORTED, "an input that is a sequence");
    onnx_model_close(&x);
    open_rows(&x, 1);
    add_node(&x, "SplitToSequence", "_", "s");
    add_output(&x, "s");
    onnx_model_fails(&x, ERR_INPUT, "input 0 is not a tensor");
    onnx_model_close(&x);
    open_rows(&x, 1);
    add_node(&x, "SequenceAt", "x x", "y");
    add_output(&x, "y");
    onnx_model_fails(&x, ERR_INPUT, "input 0 is not a sequence");
    onnx_model_close(&x);
    open_rows(&x, 1);
    add_node(&x, "SequenceConstruct", "x", "s");
    add_node(&x, "ArgMax", "x", "i");
    add_node(&x, "SequenceAt", "s i", "y");
    add_output(&x, "y");
    onnx_model_fails(&x, ERR_UNSUPPORTED, "only known at run time");
    onnx_model_close(&x);
}

static void add_scalar(struct onnx_model *x, const char *name, i64 v)
{
    struct tensor *t = tensor_new(&x->a, DT_I64, 0, NULL);
    elem_set_i64(DT_I64, t->data, 0, v);
    *arr_push(&x->a, &x->init) = make_tensor(x, name, t);
}

/* Each iteration takes an element and appends a result to another sequence, which was an optional
   value without content: s is read at a position that the body computes. */
static void test_loop(void **state)
{
    struct onnx_model x, body, yes, no;
    open_rows(&x, 3);
    onnx_model_open(&body), onnx_model_open(&yes), onnx_model_open(&no);
    add_scalar(&x, "rounds", 3);
    add_node(&x, "SplitToSequence", "x", "s");
    add_node(&x, "Optional", "_", "none");
    add_input(&body, "i", 0, NULL);
    add_input(&body, "go", 0, NULL);
    add_input(&body, "before", 0, NULL);
    add_scalar(&body, "last", 2);
    add_node(&body, "OptionalHasElement", "before", "has");
    add_node(&yes, "OptionalGetElement", "before", "begun");
    add_output(&yes, "begun");
    add_node(&no, "SequenceEmpty", "", "begun");
    add_output(&no, "begun");
    Onnx__NodeProto *branch = add_node(&body, "If", "has", "list");
    set_body(&body, branch, "then_branch", &yes);
    set_body(&body, branch, "else_branch", &no);
    add_node(&body, "Sub", "last i", "at");
    add_node(&body, "SequenceAt", "s at", "row");
    add_node(&body, "Neg", "row", "neg");
    add_node(&body, "SequenceInsert", "list neg", "after");
    add_node(&body, "Identity", "go", "on");
    add_output(&body, "on");
    add_output(&body, "after");
    set_body(&x, add_node(&x, "Loop", "rounds _ none", "out"), "body", &body);
    add_output(&x, "out");
    onnx_model_gives(&x, (struct tensor *[]){rows(&x, 3)}, (double[]){-4, -5, -2, -3, 0, -1}, 6);
    assert_int_equal(x.g.output.n, 3);
    onnx_model_close(&body), onnx_model_close(&yes), onnx_model_close(&no), onnx_model_close(&x);
}

/* The list is selected at run time. */
static void open_branches(struct onnx_model *x, struct onnx_model *yes, struct onnx_model *no)
{
    open_rows(x, 1);
    onnx_model_open(yes), onnx_model_open(no);
    add_node(x, "ReduceSum", "x", "sum");
    add_node(x, "Cast", "sum", "cond");
    set_int(x, x->node.v[x->node.n - 1], "to", 9);
    add_node(x, "Neg", "x", "m");
    add_node(yes, "SequenceConstruct", "x m", "list");
    add_output(yes, "list");
    add_output(no, "list");
    Onnx__NodeProto *branch = add_node(x, "If", "cond", "out");
    set_body(x, branch, "then_branch", yes);
    add_output(x, "out");
}

static void test_branches(void **state)
{
    struct onnx_model x, yes, no;
    for (int k = 0; k < 2; k++) {
        open_branches(&x, &yes, &no);
        add_node(&no, "SequenceConstruct", "m x", "list");
        set_body(&x, x.node.v[x.node.n - 1], "else_branch", &no);
        struct tensor *in = floats(&x, 2, (i64[]){1, 2}, k ? (double[]){1, 2} : (double[]){-1, 1});
        onnx_model_gives(&x, &in, k ? (double[]){1, 2, -1, -2} : (double[]){1, -1, -1, 1}, 4);
        onnx_model_close(&yes), onnx_model_close(&no), onnx_model_close(&x);
    }
    open_branches(&x, &yes, &no);
    add_node(&no, "SequenceConstruct", "m", "list");
    set_body(&x, x.node.v[x.node.n - 1], "else_branch", &no);
    onnx_model_fails(&x, ERR_UNSUPPORTED, "between two sequences of different lengths");
    onnx_model_close(&yes), onnx_model_close(&no), onnx_model_close(&x);
}

/* Over two sequences, with a tensor that each element sees and one from around the body. */
static void test_map(void **state)
{
    struct onnx_model x, body;
    for (int k = 0; k < 3; k++) {
        open_rows(&x, 2);
        onnx_model_open(&body);
        add_node(&x, "SplitToSequence", "x", "s");
        add_node(&x, "Neg", "x", "m");
        add_node(&x, "SequenceConstruct", k == 1 ? "m" : "m x", "t");
        for (int i = 0; i < 3; i++) add_input(&body, ((const char *[]){"a", "b", "c"})[i], 0, NULL);
        add_node(&body, "Add", "a b", "ab");
        add_node(&body, "Add", "ab c", "abc");
        add_node(&body, "Sub", "abc m", "u");
        add_node(&body, "Identity", "a", "v");
        add_output(&body, "u");
        add_output(&body, "v");
        set_body(&x, add_node(&x, "SequenceMap", k == 2 ? "x t x" : "s t x", "p q"), "body", &body);
        add_output(&x, "p");
        add_output(&x, "q");
        if (k == 1) onnx_model_fails(&x, ERR_INPUT, "sequences of different numbers of elements");
        else if (k == 2) onnx_model_fails(&x, ERR_INPUT, "input 0 is not a sequence");
        else onnx_model_gives(&x, (struct tensor *[]){rows(&x, 2)}, (double[]){0, 2, 2, 4, 2, 6, 8, 12, 0, 1, 2, 3}, 12);
        onnx_model_close(&body), onnx_model_close(&x);
    }
}

/* An input that is a sequence (or, optional, of that) of tensors like this. */
static void add_list_input(struct onnx_model *x, const char *name, enum io_list_kind kind, u32 rank, const i64 *dim)
{
    Onnx__ValueInfoProto *p = make_value(x, name, rank, dim);
    if (kind == IO_SEQUENCE || kind == IO_OPTIONAL_SEQUENCE) {
        Onnx__TypeProto *t = arena_new(&x->a, Onnx__TypeProto);
        onnx__type_proto__init(t);
        t->value_case = ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE, t->sequence_type = arena_new(&x->a, Onnx__TypeProto__Sequence);
        onnx__type_proto__sequence__init(t->sequence_type);
        t->sequence_type->elem_type = p->type;
        p->type = t;
    }
    if (kind == IO_OPTIONAL || kind == IO_OPTIONAL_SEQUENCE) {
        Onnx__TypeProto *t = arena_new(&x->a, Onnx__TypeProto);
        onnx__type_proto__init(t);
        t->value_case = ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE, t->optional_type = arena_new(&x->a, Onnx__TypeProto__Optional);
        onnx__type_proto__optional__init(t->optional_type);
        t->optional_type->elem_type = p->type;
        p->type = t;
    }
    *arr_push(&x->a, &x->in) = p;
}

static bool import_with(struct onnx_model *x, const char *elements)
{
    struct str bytes;
    return import_elements(&bytes, &x->a, onnx_model_bytes(x), elements, &x->e) && import_bytes(&x->g, &x->a, &x->st, bytes, &x->e);
}

static void open_lists(struct onnx_model *x)
{
    onnx_model_open(x);
    add_list_input(x, "s", IO_SEQUENCE, 1, (i64[]){-1});
    add_list_input(x, "o", IO_OPTIONAL, 1, (i64[]){2});
    add_list_input(x, "l", IO_OPTIONAL_SEQUENCE, 1, (i64[]){1});
    set_int(x, add_node(x, "ConcatFromSequence", "s", "y"), "axis", 0);
    add_node(x, "SequenceLength", "s", "n");
    add_node(x, "OptionalHasElement", "o", "ho");
    add_node(x, "OptionalHasElement", "l", "hl");
    for (int k = 0; k < 4; k++) add_output(x, ((const char *[]){"y", "n", "ho", "hl"})[k]);
}

/* The elements of a sequence have sizes of their own, whatever their names. */
static void test_inputs(void **state)
{
    struct onnx_model x;
    struct tensor *out[4];
    open_lists(&x);
    if (!import_with(&x, "s:2,o:1,l:none")) fail_msg("%s", x.e.msg);
    assert_int_equal(x.g.input.n, 3);
    assert_string_equal(graph_value(&x.g, x.g.input.v[1])->name.p, "s[1]");
    struct tensor *in[] = {floats(&x, 1, (i64[]){3}, numbers), floats(&x, 1, (i64[]){2}, numbers + 5), floats(&x, 1, (i64[]){2}, numbers)};
    if (!graph_eval(&x.g, in, out, &x.a, NULL, &x.e)) fail_msg("%s", x.e.msg);
    assert_int_equal(tensor_count(out[0]), 5);
    assert_true(elem_f64(DT_F32, out[0]->data, 4) == 6);
    assert_int_equal(elem_i64(DT_I64, out[1]->data, 0), 2);
    assert_int_equal(elem_i64(DT_BOOL, out[2]->data, 0), 1);
    assert_int_equal(elem_i64(DT_BOOL, out[3]->data, 0), 0);
    onnx_model_close(&x);
}

static void elements_fail(const char *elements, enum err_code code, const char *part)
{
    struct onnx_model x;
    open_lists(&x);
    if (import_with(&x, elements)) fail_msg("imported, expected '%s'", part);
    if (!strstr(x.e.msg, part)) fail_msg("'%s' has no '%s'", x.e.msg, part);
    assert_int_equal(x.e.code, code);
    onnx_model_close(&x);
}

static void test_inputs_refused(void **state)
{
    elements_fail("o:1,l:2", ERR_UNSUPPORTED, "graph input 's' is a sequence: say how many elements it has (--elements s=2)");
    elements_fail("s:2,l:2", ERR_UNSUPPORTED, "'o' is an optional value: say how many elements it has (--elements o=1 or none)");
    elements_fail("s:none", ERR_USAGE, "a sequence has 0 or more");
    elements_fail("o:2", ERR_USAGE, "an optional tensor has 1 or none");
    elements_fail("q:2", ERR_USAGE, "has no input 'q'");
    elements_fail("s:-1", ERR_USAGE, "is not of the form");
    elements_fail("s:9999999", ERR_USAGE, "is not of the form");
    elements_fail(":1", ERR_USAGE, "is not of the form");
    elements_fail("s:0,o:1,l:1", ERR_UNSUPPORTED, "concatenation of a sequence without elements");
}

/* Files of lists: a SequenceProto has its tensors in field 3, an OptionalProto its tensor in field 3 or its sequence in field 5. */
static bool reads(struct onnx_model *x, struct io_list *l, enum io_list_kind kind, struct str bytes)
{
    x->e = (struct err){0};
    return io_onnx_list(l, &x->a, kind, bytes, &x->e);
}

static void test_files(void **state)
{
    struct onnx_model x;
    struct io_list l;
    onnx_model_open(&x);
    const u8 raw[] = {0x08, 1, 0x10, 7, 0x3a, 1, 5}; /* dims 1, type i64, one number in int64_data */
    struct str one = {(const char *)raw, sizeof raw};
    u8 *f = arena_alloc(&x.a, 64);
    f[0] = 3 << 3 | 2, f[1] = sizeof raw, memcpy(f + 2, raw, sizeof raw);
    memcpy(f + 2 + sizeof raw, f, 2 + sizeof raw);
    struct str single = {(const char *)f, 2 + sizeof raw}, pair = {(const char *)f, 2 * (2 + sizeof raw)};
    u8 *s = arena_alloc(&x.a, 64);
    s[0] = 5 << 3 | 2, s[1] = (u8)pair.n, memcpy(s + 2, pair.p, (size_t)pair.n);
    struct str nested = {(const char *)s, 2 + pair.n};
    assert_true(reads(&x, &l, IO_SEQUENCE, pair) && l.n == 2 && !l.is_none && elem_i64(DT_I64, l.v[1].data, 0) == 5);
    assert_true(reads(&x, &l, IO_SEQUENCE, S("")) && l.n == 0 && !l.is_none);
    assert_true(reads(&x, &l, IO_OPTIONAL, S("")) && l.n == 0 && l.is_none);
    assert_true(reads(&x, &l, IO_OPTIONAL, single) && l.n == 1 && !l.is_none);
    assert_true(reads(&x, &l, IO_OPTIONAL_SEQUENCE, nested) && l.n == 2 && !l.is_none);
    assert_false(reads(&x, &l, IO_OPTIONAL, pair));
    assert_false(reads(&x, &l, IO_OPTIONAL, nested));
    assert_non_null(strstr(x.e.msg, "another type than the network declares"));
    assert_false(reads(&x, &l, IO_SEQUENCE, one)); /* of a tensor itself */
    for (i64 n = 1; n < pair.n; n++)
        if (n != single.n) assert_false(reads(&x, &l, IO_SEQUENCE, str_sub(pair, 0, n)));
    onnx_model_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces), cmocka_unit_test(test_single), cmocka_unit_test(test_symbolic),
        cmocka_unit_test(test_optional), cmocka_unit_test(test_order), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_loop), cmocka_unit_test(test_branches), cmocka_unit_test(test_map),
        cmocka_unit_test(test_inputs), cmocka_unit_test(test_inputs_refused), cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
