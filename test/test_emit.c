// SPDX-License-Identifier: Apache-2.0
//
// Values inside kernels: addresses in every layout, scalar and vector, against an independent
// formula; accesses that must stay contiguous; literals and sizes that need no buffer; sharing of
// values with several users.
#include "op/op.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "seeds.h"

struct fixture {
    struct arena a;
    struct symtab sym;
    struct graph g;
    struct kir k;
    struct emit m;
    struct err e;
};

static void start(struct fixture *f)
{
    *f = (struct fixture){0};
    symtab_init(&f->sym, &f->a);
    graph_init(&f->g, &f->a, &f->sym);
}

static void ready(struct fixture *f)
{
    if (!op_infer_all(&f->g, &f->e)) fail_msg("%s", f->e.msg);
    kir_init(&f->k, &f->a, S("test"));
    emit_init(&f->m, &f->k, &f->g, op_lower, &f->a);
    emit_args(&f->m);
}

/* x -> Identity -> y */
static value_id copy_graph(struct fixture *f, u32 rank, const i64 *dim, enum layout from,
                           enum layout to)
{
    value_id x;
    start(f);
    random_input(&f->g, "x", DT_F32, rank, dim, &x);
    graph_value(&f->g, x)->layout = from;
    node_id n = random_node(&f->g, op_find(S("Identity")), 1, &x, 1);
    value_id y = graph_node(&f->g, n)->out.v[0];
    graph_value(&f->g, y)->layout = to;
    ready(f);
    return y;
}

/* The address of an element, by the definition of the layouts. */
static i64 place(enum layout l, u32 rank, const i64 *d, const i64 *i)
{
    i64 block = l == LAYOUT_C8 ? 8 : l == LAYOUT_C16 ? 16 : 1, at = i[0];
    bool channels_inside = l != LAYOUT_ROWS;
    if (l != LAYOUT_CLAST) at = at * ((d[1] + block - 1) / block) + i[1] / block;
    for (u32 k = 2; k < rank; k++) at = at * d[k] + i[k];
    if (l == LAYOUT_CLAST) return at * d[1] + i[1];
    return channels_inside ? at * block + i[1] % block : at;
}

static i64 storage(struct fixture *f, value_id v)
{
    i64 n;
    const struct value *x = graph_value(&f->g, v);
    assert_true(sym_is_const(&f->sym, layout_count(&f->sym, &x->shape, x->layout), &n));
    return n;
}

/* One grid dimension per axis but `vector`, which is walked in steps of `lanes`. */
static void emit_copy(struct fixture *f, value_id y, u32 vector, u32 lanes)
{
    kval idx[MAX_RANK];
    const struct shape *s = &graph_value(&f->g, y)->shape;
    kval flat = kir_grid(&f->k, kir_int(&f->k, 1));
    (void)flat;
    for (u32 i = 0; i < s->rank; i++) {
        idx[i] = kir_loop(&f->k, KL_SERIAL, kir_int(&f->k, 0), emit_size(&f->m, s->dim[i]),
                          i == vector ? lanes : 1);
        if (i == vector && lanes > 1) idx[i] = kir_ramp(&f->k, idx[i], 1, lanes);
    }
    emit_store(&f->m, y, idx, emit_value(&f->m, y, idx));
    for (u32 i = 0; i <= s->rank; i++) kir_end(&f->k);
}

static void check_copy(const i64 *dim, u32 rank, enum layout from, enum layout to, u32 vector,
                       u32 lanes)
{
    struct fixture f;
    value_id y = copy_graph(&f, rank, dim, from, to), x = f.g.input.v[0];
    emit_copy(&f, y, vector, lanes);
    if (!kir_verify(&f.k, &f.e)) fail_msg("%s", f.e.msg);
    i64 nx = storage(&f, x), ny = storage(&f, y), idx[MAX_RANK] = {0};
    float *in = arena_array(&f.a, float, nx), *out = arena_array(&f.a, float, ny);
    for (i64 i = 0; i < nx; i++) in[i] = (float)i;
    struct kir_arg arg[2] = {{in, nx}, {out, ny}};
    struct kir_eval_opts o = {.allow_unwritten = true}; /* the padding of blocks */
    if (!kir_eval(&f.k, arg, NULL, &o, &f.e)) fail_msg("%s", f.e.msg);
    do assert_true(out[place(to, rank, dim, idx)] == (float)place(from, rank, dim, idx));
    while (op_next(rank, dim, idx));
    arena_release(&f.a);
}

static void test_layouts(void **state)
{
    static const i64 dim[3][4] = {{2, 19, 3, 5}, {1, 8, 4, 1}, {3, 33, 1, 2}};
    for (int d = 0; d < 3; d++)
        for (enum layout from = 0; from < N_LAYOUTS; from++)
            for (enum layout to = 0; to < N_LAYOUTS; to++) check_copy(dim[d], 4, from, to, 0, 1);
    check_copy((i64[]){2, 9, 7}, 3, LAYOUT_C8, LAYOUT_CLAST, 0, 1);
    check_copy((i64[]){2, 9, 2, 3, 2}, 5, LAYOUT_CLAST, LAYOUT_C16, 0, 1);
}

static void test_layouts_vector(void **state)
{
    static const i64 dim[4] = {2, 32, 3, 16};
    for (enum layout from = 0; from < N_LAYOUTS; from++)
        for (enum layout to = 0; to < N_LAYOUTS; to++)
            for (u32 lanes = 4; lanes <= 16; lanes *= 2) {
                check_copy(dim, 4, from, to, 1, lanes);
                check_copy(dim, 4, from, to, 3, lanes);
            }
}

/* Number of loads and stores that are neither contiguous nor of one element. */
static int scattered(const struct kir *k)
{
    int n = 0;
    for (kval i = 1; i < k->ins.n; i++) {
        const struct kir_ins *x = kir_at(k, i), *at = kir_at(k, x->b);
        bool access = x->op == KI_LOAD || x->op == KI_STORE;
        if (access && at->lanes > 1 && !(at->op == KI_RAMP && at->imm.i == 1)) n++;
    }
    return n;
}

static void test_contiguous(void **state)
{
    static const struct {
        enum layout from, to;
        u32 axis;
        int scattered;
    } want[] = {
        {LAYOUT_ROWS, LAYOUT_ROWS, 3, 0},  {LAYOUT_CLAST, LAYOUT_CLAST, 1, 0},
        {LAYOUT_C8, LAYOUT_C8, 1, 0},      {LAYOUT_C16, LAYOUT_CLAST, 1, 0},
        {LAYOUT_ROWS, LAYOUT_CLAST, 1, 1}, {LAYOUT_CLAST, LAYOUT_ROWS, 3, 1},
    };
    for (i64 i = 0; i < countof(want); i++) {
        struct fixture f;
        value_id y = copy_graph(&f, 4, (i64[]){2, 32, 4, 16}, want[i].from, want[i].to);
        emit_copy(&f, y, want[i].axis, 8);
        assert_int_equal(scattered(&f.k), want[i].scattered);
        arena_release(&f.a);
    }
}

/* A row of symbolic length is contiguous, too. */
static void test_contiguous_symbolic(void **state)
{
    struct fixture f;
    value_id x;
    start(&f);
    random_input(&f.g, "x", DT_F32, 4, (i64[]){1, 3, 1, 1}, &x);
    graph_value(&f.g, x)->shape.dim[2] = sym_var(&f.sym, S("H"));
    graph_value(&f.g, x)->shape.dim[3] = sym_var(&f.sym, S("W"));
    node_id n = random_node(&f.g, op_find(S("Relu")), 1, &x, 1);
    ready(&f);
    emit_copy(&f, graph_node(&f.g, n)->out.v[0], 3, 8);
    assert_int_equal(scattered(&f.k), 0);
    assert_true(kir_verify(&f.k, &f.e));
    arena_release(&f.a);
}

/* Scalars and sizes need no argument. */
static void test_literals(void **state)
{
    struct fixture f;
    value_id x;
    start(&f);
    random_input(&f.g, "x", DT_F32, 1, (i64[]){5}, &x);
    value_id h = op_sym_scalar(&f.g, DT_F32, sym_var(&f.sym, S("H")));
    value_id half = op_node(&f.g, 0, "Mul", 2, (value_id[]){h, op_const_f(&f.g, DT_F32, 0.5)}, 0);
    node_id n = random_node(&f.g, op_find(S("Mul")), 2, (value_id[]){x, half}, 1);
    ready(&f);
    assert_int_equal(f.m.arg.n, 2); /* x and the output */
    emit_copy(&f, graph_node(&f.g, n)->out.v[0], 0, 1);
    assert_int_equal(f.k.param.n, 1);
    float in[5] = {1, 2, 3, 4, 5}, out[5];
    struct kir_arg arg[2] = {{in, 5}, {out, 5}};
    struct kir_eval_opts o = {0};
    i64 seven = 7;
    if (!kir_eval(&f.k, arg, &seven, &o, &f.e)) fail_msg("%s", f.e.msg);
    for (int i = 0; i < 5; i++) assert_true(out[i] == 3.5f * in[i]);
    arena_release(&f.a);
}

/* A chain of diamonds around reductions is emitted once per node, not once per path. */
static void test_diamonds(void **state)
{
    struct fixture f;
    value_id x;
    start(&f);
    random_input(&f.g, "x", DT_F32, 2, (i64[]){4, 3}, &x);
    value_id v = x;
    for (int i = 0; i < 24; i++) {
        value_id e = op_node(&f.g, 0, "Exp", 1, &v, 0);
        v = op_node(&f.g, 0, "Add", 2, (value_id[]){op_node(&f.g, 0, "Sin", 1, &e, 0), e}, 0);
    }
    value_id s = op_node(&f.g, 0, "quern::ReduceSum", 1, &x, 0);
    attr_set_ints(&f.g, graph_value(&f.g, s)->producer, "axes", (i64[]){1}, 1);
    value_id both = op_node(&f.g, 0, "Mul", 2, (value_id[]){s, s}, 0);
    node_id n = random_node(&f.g, op_find(S("Add")), 2, (value_id[]){v, both}, 1);
    ready(&f);
    emit_copy(&f, graph_node(&f.g, n)->out.v[0], 0, 1);
    int loops = 0;
    for (kval i = 1; i < f.k.ins.n; i++) loops += kir_at(&f.k, i)->op == KI_LOOP;
    assert_int_equal(loops, 3); /* two of the test, one reduction */
    assert_true(f.k.ins.n < 200);
    arena_release(&f.a);
}

/* x + content with known content, selected by the index. Returns the number of instructions. */
static u32 check_content(const i64 *content, i64 n, u32 lanes)
{
    struct fixture f;
    value_id x;
    start(&f);
    random_input(&f.g, "x", DT_I64, 1, &n, &x);
    value_id c = op_node(&f.g, 0, "Identity", 1, &x, 0);
    node_id sum = random_node(&f.g, op_find(S("Add")), 2, (value_id[]){x, c}, 1);
    ready(&f);
    sym *num = arena_array(&f.a, sym, n);
    for (i64 i = 0; i < n; i++) num[i] = sym_const(&f.sym, content[i]);
    op_set_sdata(&f.g, c, num, n, 1);
    assert_int_equal(f.m.arg.n, 2);
    emit_copy(&f, graph_node(&f.g, sum)->out.v[0], 0, lanes);
    if (!kir_verify(&f.k, &f.e)) fail_msg("%s", f.e.msg);
    i64 *in = arena_array(&f.a, i64, n), *out = arena_array(&f.a, i64, n);
    for (i64 i = 0; i < n; i++) in[i] = 1000 * i;
    struct kir_arg arg[2] = {{in, n}, {out, n}};
    struct kir_eval_opts o = {0};
    if (!kir_eval(&f.k, arg, NULL, &o, &f.e)) fail_msg("%s", f.e.msg);
    for (i64 i = 0; i < n; i++) assert_int_equal(out[i], 1000 * i + content[i]);
    u32 count = f.k.ins.n;
    arena_release(&f.a);
    return count;
}

static void test_contents(void **state)
{
    i64 v[128];
    struct rng r;
    for (i64 i = 0; i < 128; i++) v[i] = i;
    assert_true(check_content(v, 128, 1) < 40 && check_content(v, 128, 16) < 40); /* no choice at all */
    for (i64 i = 0; i < 128; i++) v[i] = i < 40 ? 7 : 3 * i - 5;
    assert_true(check_content(v, 128, 4) < 60);
    check_content((i64[]){INT64_MAX / 2, 0, INT64_MIN / 2, -INT64_MAX, 5}, 5, 1);
    check_content((i64[]){5}, 1, 1);
    for (u64 seed = first_seed(0, 50); seed < last_seed(0, 50); seed++) {
        r = rng_seed(seed);
        i64 step = rng_range(&r, -3, 3), n = 4 * rng_range(&r, 1, 9);
        v[0] = rng_range(&r, -9, 9);
        for (i64 i = 1; i < n; i++) {
            if (!rng_range(&r, 0, 4)) step = rng_range(&r, -2, 2);
            v[i] = v[i - 1] + step;
        }
        check_content(v, n, seed % 2 ? 1 : 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),    cmocka_unit_test(test_layouts_vector),
        cmocka_unit_test(test_contiguous), cmocka_unit_test(test_contiguous_symbolic),
        cmocka_unit_test(test_literals),   cmocka_unit_test(test_diamonds),
        cmocka_unit_test(test_contents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
