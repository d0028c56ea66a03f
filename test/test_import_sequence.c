// SPDX-License-Identifier: Apache-2.0
//
// Sequences and optional values dissolve: positions, pieces of equal and of given sizes, also along sizes that are not known, sequences as
// outputs, and what is refused.
#include "onnx_bed.h"

static const double numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

static void open_rows(struct model *x, i64 rows)
{
    model_open(x);
    add_input(x, "x", 2, (i64[]){rows, 2});
}

static struct tensor *rows(struct model *x, i64 n) { return floats(x, 2, (i64[]){n, 2}, numbers); }

static void position_of(struct model *x, const char *name, i64 v) { add_ints(x, name, 1, &v); }

static void test_pieces(void **state)
{
    struct model x;
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
    model_gives(&x, (struct tensor *[]){rows(&x, 5)}, (double[]){8, 9, 4, 5, 6, 7, 8, 9, 2}, 9);
    model_close(&x);
}

/* Rows of their own without the axis, put together along a new one. */
static void test_single(void **state)
{
    struct model x;
    open_rows(&x, 2);
    set_int(&x, add_node(&x, "SplitToSequence", "x", "s"), "keepdims", 0);
    Onnx__NodeProto *c = add_node(&x, "ConcatFromSequence", "s", "y");
    set_int(&x, c, "axis", 1);
    set_int(&x, c, "new_axis", 1);
    add_output(&x, "y");
    model_gives(&x, (struct tensor *[]){rows(&x, 2)}, (double[]){0, 2, 1, 3}, 4);
    model_close(&x);
}

/* Given sizes along an axis whose size is not known. */
static void test_symbolic(void **state)
{
    struct model x;
    open_rows(&x, -1);
    position_of(&x, "one", 1);
    add_ints(&x, "ones", 2, (i64[]){1, 1});
    set_int(&x, add_node(&x, "SplitToSequence", "x ones", "s"), "axis", 1);
    add_node(&x, "Identity", "s", "t");
    add_node(&x, "SequenceInsert", "t x one", "u");
    add_output(&x, "u");
    model_gives(&x, (struct tensor *[]){rows(&x, 2)}, (double[]){0, 2, 0, 1, 2, 3, 1, 3}, 8);
    assert_string_equal(graph_value(&x.g, x.g.output.v[1])->name.p, "u[1]");
    model_close(&x);
    open_rows(&x, -1);
    add_node(&x, "SplitToSequence", "x", "s");
    add_output(&x, "s");
    model_fails(&x, ERR_UNSUPPORTED, "the number of pieces depends on axis 0");
    model_close(&x);
}

static void test_optional(void **state)
{
    struct model x;
    open_rows(&x, 1);
    add_node(&x, "Optional", "x", "o");
    add_node(&x, "Optional", "_", "none");
    add_node(&x, "OptionalHasElement", "o", "has");
    add_node(&x, "OptionalHasElement", "none", "hasnt");
    add_node(&x, "OptionalGetElement", "o", "y");
    add_output(&x, "y");
    add_output(&x, "has");
    add_output(&x, "hasnt");
    model_gives(&x, (struct tensor *[]){rows(&x, 1)}, (double[]){0, 1, 1, 0}, 4);
    model_close(&x);
    open_rows(&x, 1);
    add_node(&x, "Optional", "_", "none");
    add_node(&x, "OptionalGetElement", "none", "y");
    add_output(&x, "y");
    model_fails(&x, ERR_INPUT, "there is no element");
    model_close(&x);
}

static void test_order(void **state)
{
    struct model x;
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
    model_gives(&x, (struct tensor *[]){rows(&x, 1)}, (double[]){0, -1}, 2);
    model_close(&x);
}

static void test_refused(void **state)
{
    struct model x;
    open_rows(&x, 1);
    position_of(&x, "one", 1);
    add_node(&x, "SequenceConstruct", "x", "s");
    add_node(&x, "SequenceAt", "s one", "y");
    add_output(&x, "y");
    model_fails(&x, ERR_INPUT, "position 1 of 1 elements");
    model_close(&x);
    open_rows(&x, 1);
    add_node(&x, "SequenceConstruct", "x", "s");
    add_node(&x, "Shape", "x", "n");
    add_node(&x, "Relu", "s", "y");
    add_output(&x, "y");
    model_fails(&x, ERR_UNSUPPORTED, "an input that is a sequence");
    model_close(&x);
    open_rows(&x, 1);
    add_node(&x, "SplitToSequence", "_", "s");
    add_output(&x, "s");
    model_fails(&x, ERR_INPUT, "input 0 is no tensor");
    model_close(&x);
    open_rows(&x, 1);
    add_node(&x, "SequenceAt", "x x", "y");
    add_output(&x, "y");
    model_fails(&x, ERR_INPUT, "input 0 is no sequence");
    model_close(&x);
    open_rows(&x, 1);
    add_node(&x, "SequenceConstruct", "x", "s");
    add_node(&x, "ArgMax", "x", "i");
    add_node(&x, "SequenceAt", "s i", "y");
    add_output(&x, "y");
    model_fails(&x, ERR_UNSUPPORTED, "only known at run time");
    model_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces), cmocka_unit_test(test_single), cmocka_unit_test(test_symbolic),
        cmocka_unit_test(test_optional), cmocka_unit_test(test_order), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
