// SPDX-License-Identifier: Apache-2.0
//
// Requested interfaces (pass_interface.c): sizes by name and number, types, layouts. A network
// yields the same results through any interface, after conversion by this test; storage in f16
// changes results only by rounding.
#include "pass/pass.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char net[] = "graph {\n"
                          "  input %x: f32[N,3,H,W]\n"
                          "  const %w: f32[10,3,1,1] = [0.5, -0.25, 1, 0.125, 2, -1, 0.5, 0.25, 3, 1, 1, 1, 0.5, 2,"
                          " -1, 0.3, 0.1, 0.7, 0.2, 0.9, -2, 0.4, 0.6, 0.8, 1, -1, 0.5, -0.5, 0.25, 0.75]\n"
                          "  %c: f32[N,10,H,W] = Conv \"c\"(%x, %w) {kernel_shape=[1,1]}\n"
                          "  %y: f32[N,10,H,W] = Relu(%c)\n"
                          "  output %y\n"
                          "}\n";

struct fixture {
    struct arena a;
    struct symtab st;
    struct graph g;
    struct io_view view[2]; /* of x and y */
    struct interface f;
    struct err e;
};

static void read_net(struct fixture *b, struct symtab *st)
{
    struct err e = {0};
    if (!graph_parse(&b->g, &b->a, st, str_of(net), &e) || !op_infer_all(&b->g, &e)) fail_msg("%s", e.msg);
}

/* shapes NULL: nothing is requested */
static bool open_fixture(struct fixture *b, const char *x, const char *y, enum io_layout lx, enum io_layout ly)
{
    struct symtab first;
    *b = (struct fixture){.f = {b->view, 2}};
    symtab_init(&b->st, &b->a);
    symtab_init(&first, &b->a);
    read_net(b, &first);
    bool ok = (!x || io_shape_parse(&b->view[0].shape, &b->a, str_of(x), &b->e)) &&
              (!y || io_shape_parse(&b->view[1].shape, &b->a, str_of(y), &b->e));
    b->view[0].layout = lx, b->view[1].layout = ly;
    ok = ok && interface_sizes(&b->f, &b->g, &b->st, &b->e);
    if (!ok) return false;
    read_net(b, &b->st);
    sym_undefine(&b->st);
    return interface_check(&b->f, &b->g, &b->e);
}

static void close_fixture(struct fixture *b) { arena_release(&b->a); }

static void assert_shape(const struct fixture *b, value_id v, const char *want)
{
    struct buf t = {0};
    const struct shape *s = &graph_value(&b->g, v)->shape;
    for (u32 k = 0; k < s->rank; k++) {
        if (k) buf_char(&t, ',');
        sym_print(&t, &b->st, s->dim[k]);
    }
    if (!str_is(buf_view(&t), want)) fail_msg("%.*s instead of %s", STR_ARG(buf_view(&t)), want);
    buf_release(&t);
}

static void test_sizes(void **state)
{
    static const struct {
        const char *x, *y, *shape, *error;
    } row[] = {
        {"H:W:C", NULL, "1,3,H,W", NULL},
        {"h:w:?", NULL, "1,3,h,w", NULL},
        {"W:H:C", NULL, "1,3,W,H", NULL},
        {"X:X:3", NULL, "1,3,X,X", NULL},
        {"H=17:W:C", NULL, "1,3,17,W", NULL},
        {"17:H:C", NULL, "1,3,17,H", NULL},
        {"?:?:?", NULL, "1,3,H,W", NULL},
        {"a:3:b:c", NULL, "a,3,b,c", NULL},
        {NULL, "p:q:10", "1,3,p,q", NULL},
        {"H:W:C", "h:w:D", "1,3,H,W", NULL},
        {"H:W:C", "H:W:C", NULL, "axis C: 'C' is 3, the network has 10"},
        {"H=5:W:C", "H=6:W:?", NULL, "axis H: 'H' is 6, the network has 5"},
        {"X=4:X=5:C", NULL, NULL, "'X' is 5, the network has 4"},
        {"H:W:4", NULL, NULL, "input 'x', axis C: 4 was given, the network has 3"},
        {"H:W", NULL, NULL, "has 4 axes, 2 extents were given"},
        {"H:W:C:D:E", NULL, NULL, "5 extents"},
        {"H::C", NULL, NULL, "extent ''"},
        {"H:3W:C", NULL, NULL, "extent '3W'"},
        {"H:W=:C", NULL, NULL, "extent 'W='"},
        {"H:-1:C", NULL, NULL, "extent '-1'"},
        {"1:2:3:4:5:6:7:8:9", NULL, NULL, "more than 8"},
    };
    for (i64 k = 0; k < countof(row); k++) {
        struct fixture b;
        bool ok = open_fixture(&b, row[k].x, row[k].y, IO_AS_IS, IO_AS_IS);
        if (ok != !row[k].error) fail_msg("row %d: %s", (int)k, b.e.msg);
        if (ok) assert_shape(&b, b.g.input.v[0], row[k].shape);
        else if (!strstr(b.e.msg, row[k].error)) fail_msg("row %d: %s", (int)k, b.e.msg);
        close_fixture(&b);
    }
}

/* Exchanged names: each variable is found by its new name, also in expressions. */
static void test_names(void **state)
{
    struct fixture b;
    assert_true(open_fixture(&b, "W:H:C", NULL, IO_AS_IS, IO_AS_IS));
    sym h = graph_value(&b.g, b.g.input.v[0])->shape.dim[2];
    assert_true(h == sym_var(&b.st, S("W")));
    assert_true(sym_parse(&b.st, S("2*W+H"), &b.e) ==
                sym_add(&b.st, sym_mul(&b.st, sym_const(&b.st, 2), h), sym_var(&b.st, S("H"))));
    close_fixture(&b);
}

/* The address of element (c, y, x) of a picture. */
static i64 place(enum io_layout l, i64 n, i64 h, i64 w, const i64 at[3])
{
    i64 c = at[0], y = at[1], x = at[2];
    switch (l) {
    case IO_HWC:
    case IO_NHWC: return (y * w + x) * n + c;
    case IO_CHWC8: return ((c / 8 * h + y) * w + x) * 8 + c % 8;
    case IO_AS_IS:
    case IO_CHW: break;
    case IO_NWC:
    case IO_NDHWC: unreachable();
    }
    return (c * h + y) * w + x;
}

/* From one layout to another, dst is zero. */
static void move(enum io_layout from, enum io_layout to, const struct tensor *src, struct tensor *dst, const i64 size[3])
{
    i64 at[3];
    for (at[0] = 0; at[0] < size[0]; at[0]++)
        for (at[1] = 0; at[1] < size[1]; at[1]++)
            for (at[2] = 0; at[2] < size[2]; at[2]++)
                elem_set_f64(dst->dtype, dst->data, place(to, size[0], size[1], size[2], at),
                             elem_f64(src->dtype, src->data, place(from, size[0], size[1], size[2], at)));
}

enum { HEIGHT = 3, WIDTH = 5 };

static struct tensor *picture(struct arena *a, enum dtype t, enum io_layout l, i64 c)
{
    switch (l) {
    case IO_AS_IS: return tensor_new(a, t, 4, (i64[]){1, c, HEIGHT, WIDTH});
    case IO_HWC: return tensor_new(a, t, 3, (i64[]){HEIGHT, WIDTH, c});
    case IO_CHW: return tensor_new(a, t, 3, (i64[]){c, HEIGHT, WIDTH});
    case IO_CHWC8: return tensor_new(a, t, 4, (i64[]){(c + 7) / 8, HEIGHT, WIDTH, 8});
    case IO_NHWC: return tensor_new(a, t, 4, (i64[]){1, HEIGHT, WIDTH, c});
    case IO_NWC:
    case IO_NDHWC: break;
    }
    unreachable();
}

static struct tensor *evaluate(struct fixture *b, const struct graph *g, struct tensor *x)
{
    struct tensor *y = NULL;
    if (!graph_eval(g, &x, &y, &b->a, NULL, &b->e)) fail_msg("%s", b->e.msg);
    return y;
}

static void test_layouts(void **state)
{
    static const enum io_layout layouts[] = {IO_AS_IS, IO_HWC, IO_CHW, IO_CHWC8, IO_NHWC};
    for (int k = 0; k < countof(layouts) * countof(layouts); k++) {
        enum io_layout lx = layouts[k / countof(layouts)], ly = layouts[k % countof(layouts)];
        const i64 in[3] = {3, HEIGHT, WIDTH}, out[3] = {10, HEIGHT, WIDTH};
        struct fixture b;
        struct rng r = rng_seed((u64)k);
        if (!open_fixture(&b, "H:W:C", "?:?:?", lx, ly)) fail_msg("%s", b.e.msg);
        struct tensor *x = picture(&b.a, DT_F32, IO_AS_IS, 3), *moved = picture(&b.a, DT_F32, lx, 3);
        for (i64 i = 0; i < tensor_count(x); i++) elem_set_f64(DT_F32, x->data, i, rng_f64(&r) * 2 - 1);
        for (i64 i = 0; i < tensor_count(moved); i++) elem_set_f64(DT_F32, moved->data, i, 7); /* in the pads, too */
        move(IO_AS_IS, lx, x, moved, in);
        struct tensor *y = evaluate(&b, &b.g, x), *want = picture(&b.a, DT_F32, ly, 10);
        move(IO_AS_IS, ly, y, want, out);
        assert_true(interface_types(&b.g, &b.f, &b.e) && interface_show(&b.g, &b.f, &b.e));
        struct tensor *got = evaluate(&b, &b.g, moved);
        assert_int_equal(got->rank, want->rank);
        assert_memory_equal(got->dim, want->dim, sizeof got->dim[0] * got->rank);
        assert_memory_equal(got->data, want->data, (size_t)tensor_bytes(want));
        assert_true(str_is(graph_value(&b.g, b.g.input.v[0])->name, "x"));
        assert_true(str_is(graph_value(&b.g, b.g.output.v[0])->name, "y"));
        close_fixture(&b);
    }
}

static void test_types(void **state)
{
    struct fixture b;
    assert_true(open_fixture(&b, "H:W:C", NULL, IO_HWC, IO_AS_IS));
    b.view[0].dtype = DT_U8, b.view[1].dtype = DT_I8;
    assert_true(interface_types(&b.g, &b.f, &b.e) && interface_show(&b.g, &b.f, &b.e));
    struct tensor *x = picture(&b.a, DT_U8, IO_HWC, 3);
    for (i64 i = 0; i < tensor_count(x); i++) elem_set_i64(DT_U8, x->data, i, i * 5);
    struct tensor *y = evaluate(&b, &b.g, x);
    assert_int_equal(y->dtype, DT_I8);
    /* channel 0 at the first pixel: 0.5*0 - 0.25*5 + 10 = 8.75; channel 2 at the last: 215*0.5 + 220*0.25 + 225*3 */
    assert_int_equal(elem_i64(DT_I8, y->data, 0), 9);
    assert_int_equal(elem_i64(DT_I8, y->data, 3 * HEIGHT * WIDTH - 1), 127);
    close_fixture(&b);
}

static void test_refused(void **state)
{
    struct fixture b;
    assert_true(open_fixture(&b, "?:?:?:?", NULL, IO_AS_IS, IO_AS_IS));
    b.view[0].layout = IO_HWC; /* requested after the batch size could have been fixed */
    assert_false(interface_check(&b.f, &b.g, &b.e));
    assert_non_null(strstr(b.e.msg, "more than one picture"));
    b.view[0].layout = IO_NDHWC, b.e = (struct err){0};
    assert_false(interface_check(&b.f, &b.g, &b.e));
    assert_non_null(strstr(b.e.msg, "has 4 axes, layout NDHWC has 5"));
    b.view[0].layout = IO_NHWC, b.e = (struct err){0}; /* of any number */
    assert_true(interface_check(&b.f, &b.g, &b.e));
    close_fixture(&b);
}

/* Every rank with a named layout: channels last on one side, first on the other. */
static void test_all_axes(void **state)
{
    static const struct {
        const char *text;
        enum io_layout layout;
        u32 rank;
    } row[] = {{"graph { input %x: f32[2,3,4]\n %y: f32[2,3,4] = Neg(%x)\n output %y }", IO_NWC, 3},
               {"graph { input %x: f32[2,3,4,5]\n %y: f32[2,3,4,5] = Neg(%x)\n output %y }", IO_NHWC, 4},
               {"graph { input %x: f32[2,3,2,4,5]\n %y: f32[2,3,2,4,5] = Neg(%x)\n output %y }", IO_NDHWC, 5}};
    for (int k = 0; k < 2 * countof(row); k++) {
        bool is_output = k % 2;
        struct fixture b = {.f = {b.view, 2}};
        symtab_init(&b.st, &b.a);
        if (!graph_parse(&b.g, &b.a, &b.st, str_of(row[k / 2].text), &b.e) || !op_infer_all(&b.g, &b.e)) fail_msg("%s", b.e.msg);
        b.view[is_output].layout = row[k / 2].layout;
        i64 dim[MAX_RANK], last[MAX_RANK], pixels = 1;
        assert_true(shape_is_static(&b.st, &graph_value(&b.g, b.g.input.v[0])->shape, dim));
        u32 rank = row[k / 2].rank;
        for (u32 a = 2; a < rank; a++) pixels *= last[a - 1] = dim[a];
        last[0] = dim[0], last[rank - 1] = dim[1];
        assert_true(interface_check(&b.f, &b.g, &b.e) && interface_types(&b.g, &b.f, &b.e) && interface_show(&b.g, &b.f, &b.e));
        struct tensor *x = tensor_new(&b.a, DT_F32, rank, is_output ? dim : last);
        for (i64 i = 0; i < tensor_count(x); i++) elem_set_f64(DT_F32, x->data, i, (double)i + 1);
        struct tensor *y = evaluate(&b, &b.g, x);
        assert_memory_equal(y->dim, is_output ? last : dim, sizeof dim[0] * rank);
        for (i64 n = 0; n < dim[0]; n++)
            for (i64 c = 0; c < dim[1]; c++)
                for (i64 p = 0; p < pixels; p++) {
                    i64 rows = (n * dim[1] + c) * pixels + p, back = (n * pixels + p) * dim[1] + c;
                    assert_true(elem_f64(DT_F32, y->data, is_output ? back : rows) == -(double)(is_output ? rows : back) - 1);
                }
        close_fixture(&b);
    }
}

/* Behind an f16 interface every value is f16, and the result is right up to rounding. */
static void test_f16(void **state)
{
    struct fixture b;
    assert_true(open_fixture(&b, "H:W:C", NULL, IO_AS_IS, IO_AS_IS));
    struct tensor *x = picture(&b.a, DT_F32, IO_AS_IS, 3), *half = picture(&b.a, DT_F16, IO_AS_IS, 3);
    for (i64 i = 0; i < tensor_count(x); i++) {
        elem_set_f64(DT_F16, half->data, i, sin((double)i));
        elem_set_f64(DT_F32, x->data, i, elem_f64(DT_F16, half->data, i));
    }
    struct tensor *want = evaluate(&b, &b.g, x);
    b.view[0].dtype = DT_F16;
    assert_true(interface_types(&b.g, &b.f, &b.e));
    assert_true(pass_run_all(&b.g, &(struct pass_env){.flags = PASS_F16}, &b.e));
    for (node_id n = 1; n < b.g.node.n; n++)
        for (u32 k = 0; k < graph_node(&b.g, n)->in.n; k++)
            assert_int_equal(graph_value(&b.g, graph_node(&b.g, n)->in.v[k])->dtype, DT_F16);
    struct tensor *got = evaluate(&b, &b.g, half);
    assert_int_equal(got->dtype, DT_F32); /* no other request for the output */
    assert_int_equal(tensor_compare(got, want, 4e-3, 4e-3).n_bad, 0);
    close_fixture(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_names),   cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_types), cmocka_unit_test(test_refused), cmocka_unit_test(test_f16),
        cmocka_unit_test(test_all_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
