// SPDX-License-Identifier: Apache-2.0
//
// Known contents of small tensors: size arithmetic as exported by frameworks must fold to the
// expected expressions, so that one program serves every H and W; unprovable signs must be kept.
// Errors of operators name operator and node.
#include "op/op.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Symbolic contents: size arithmetic as frameworks export it. */

struct net {
    struct arena a;
    struct symtab sym;
    struct graph g;
    struct err e;
};

static value_id net_op(struct net *t, const char *op, u32 n, const value_id *in)
{
    return op_node(&t->g, 0, op, n, in, 0);
}

static value_id net_int(struct net *t, i64 v) { return op_const_i(&t->g, DT_I64, &v, 1); }

static struct str content_text(struct net *t, value_id v)
{
    struct buf b = {0};
    const struct sym_data *d = graph_value(&t->g, v)->sdata;
    for (i64 i = 0; d && i < d->n; i++) {
        if (i) buf_char(&b, ' ');
        sym_print(&b, &t->sym, d->num[i]);
        if (d->den != 1) buf_printf(&b, "/%d", (int)d->den);
    }
    struct str s = str_dup(&t->a, buf_view(&b));
    buf_release(&b);
    return s;
}

static void net_init(struct net *t, value_id *h)
{
    *t = (struct net){0};
    symtab_init(&t->sym, &t->a);
    graph_init(&t->g, &t->a, &t->sym);
    *h = op_sym_scalar(&t->g, DT_I64, sym_var(&t->sym, S("H")));
}

static void check_content(struct net *t, value_id v, const char *want)
{
    *arr_push(&t->a, &t->g.output) = v;
    if (!op_infer_all(&t->g, &t->e)) fail_msg("%s", t->e.msg);
    assert_string_equal(content_text(t, v).p, want);
    arena_release(&t->a);
}

static void test_fold_floor_mul(void **state) /* Floor(Cast(H) * 0.5) */
{
    struct net t;
    value_id h;
    net_init(&t, &h);
    value_id f = net_op(&t, "Cast", 1, &h);
    attr_set_int(&t.g, graph_value(&t.g, f)->producer, "to", dtype_onnx(DT_F32));
    value_id half = net_op(&t, "Mul", 2, (value_id[]){f, op_const_f(&t.g, DT_F32, 0.5)});
    value_id floor = net_op(&t, "Floor", 1, &half);
    value_id i = net_op(&t, "Cast", 1, &floor);
    attr_set_int(&t.g, graph_value(&t.g, i)->producer, "to", dtype_onnx(DT_I64));
    check_content(&t, i, "H//2");
}

static void test_fold_scale(void **state) /* Cast(2*H) / Cast(H), a scale for Resize */
{
    struct net t;
    value_id h;
    net_init(&t, &h);
    value_id two = net_op(&t, "Mul", 2, (value_id[]){h, net_int(&t, 2)}), v[2] = {two, h};
    for (u32 i = 0; i < 2; i++) {
        v[i] = net_op(&t, "Cast", 1, &v[i]);
        attr_set_int(&t.g, graph_value(&t.g, v[i])->producer, "to", dtype_onnx(DT_F32));
    }
    check_content(&t, net_op(&t, "Div", 2, v), "2");
}

static void test_fold_div_signs(void **state) /* (H - 8) / 4 truncates: the floor of both signs */
{
    struct net t;
    value_id h;
    net_init(&t, &h);
    value_id d = net_op(&t, "Sub", 2, (value_id[]){h, net_int(&t, 8)});
    value_id q = net_op(&t, "Div", 2, (value_id[]){d, net_int(&t, 4)});
    *arr_push(&t.a, &t.g.output) = q;
    if (!op_infer_all(&t.g, &t.e)) fail_msg("%s", t.e.msg);
    const struct sym_data *c = graph_value(&t.g, q)->sdata;
    assert_non_null(c);
    for (i64 x = 0; x < 20; x++) {
        i64 got;
        assert_true(sym_eval(&t.sym, c->num[0], &x, &got));
        assert_int_equal(got, (x - 8) / 4);
    }
    arena_release(&t.a);
}

static void test_fold_div_near_zero(void **state) /* (H - 1) / 4 + 1, a convolution's output: never below 0 - 3, one sign is enough */
{
    struct net t;
    value_id h;
    net_init(&t, &h);
    value_id d = net_op(&t, "Sub", 2, (value_id[]){h, net_int(&t, 1)});
    value_id q = net_op(&t, "Div", 2, (value_id[]){d, net_int(&t, 4)});
    check_content(&t, net_op(&t, "Add", 2, (value_id[]){q, net_int(&t, 1)}), "(max(1,H)+3)//4");
}

static void test_fold_compare(void **state) /* Where(H + 1 > 0, H, 7) */
{
    struct net t;
    value_id h;
    net_init(&t, &h);
    value_id one = net_op(&t, "Add", 2, (value_id[]){h, net_int(&t, 1)});
    value_id c = net_op(&t, "Greater", 2, (value_id[]){one, net_int(&t, 0)});
    check_content(&t, net_op(&t, "Where", 3, (value_id[]){c, h, net_int(&t, 7)}), "H");
}

static void test_fold_max_reduce(void **state) /* Max(H, 3, H) and ReduceProd of constants */
{
    struct net t;
    value_id h;
    net_init(&t, &h);
    check_content(&t, net_op(&t, "Max", 3, (value_id[]){h, net_int(&t, 3), h}), "max(3,H)");
    net_init(&t, &h);
    value_id v = op_const_i(&t.g, DT_I64, (i64[]){2, 3, 4}, 3), p = net_op(&t, "ReduceProd", 1, &v);
    attr_set_int(&t.g, graph_value(&t.g, p)->producer, "keepdims", 0);
    check_content(&t, net_op(&t, "Mul", 2, (value_id[]){p, h}), "H*24");
}

static void test_fold_clip(void **state) /* paddings of TensorFlow's "same", which PyTorch computes as floats: stride 2, kernel 3 */
{
    struct net t;
    value_id h, f, v;
    net_init(&t, &h);
    f = net_op(&t, "Cast", 1, &h);
    attr_set_int(&t.g, graph_value(&t.g, f)->producer, "to", dtype_onnx(DT_F32));
    v = net_op(&t, "Div", 2, (value_id[]){f, op_const_f(&t.g, DT_F32, 2)});
    v = net_op(&t, "Ceil", 1, &v);
    v = net_op(&t, "Mul", 2, (value_id[]){v, op_const_f(&t.g, DT_F32, 2)});
    v = net_op(&t, "Add", 2, (value_id[]){v, op_const_f(&t.g, DT_F32, 1)});
    v = net_op(&t, "Sub", 2, (value_id[]){v, f});
    v = net_op(&t, "Clip", 3, (value_id[]){v, op_const_f(&t.g, DT_F32, 0), 0});
    check_content(&t, v, "-H+(H+1)//2*2+1");
    net_init(&t, &h);
    v = net_op(&t, "Clip", 1, &h);
    check_content(&t, net_op(&t, "Relu", 1, &v), "H");
    net_init(&t, &h);
    attr_set_float(&t.g, graph_value(&t.g, v = net_op(&t, "Clip", 1, &h))->producer, "min", 3);
    check_content(&t, v, "");
}

/* Random size arithmetic: folded results agree with the evaluation at every size. */

enum { N_STEPS = 12 };

/* One more value computed from two of those before. */
static value_id random_step(struct net *t, struct rng *r, const value_id *v, i64 n)
{
    static const char *const ints[] = {"Add", "Sub", "Mul", "Div", "Mod",
                                       "Max", "Min", "Neg", "Abs", "Relu", "Clip"};
    static const char *const floats[] = {"Add", "Sub", "Mul",   "Div",  "Max",  "Min",
                                         "Neg", "Abs", "Floor", "Ceil", "Round", "Relu", "Clip"};
    value_id a = v[rng_range(r, 0, n - 1)];
    bool is_float = graph_value(&t->g, a)->dtype == DT_F64;
    if (rng_range(r, 0, 3) == 0) {
        value_id c = net_op(t, "Cast", 1, &a);
        enum dtype to = is_float ? DT_I64 : DT_F64;
        attr_set_int(&t->g, graph_value(&t->g, c)->producer, "to", dtype_onnx(to));
        return c;
    }
    const char *op = is_float ? floats[rng_range(r, 0, countof(floats) - 1)]
                              : ints[rng_range(r, 0, countof(ints) - 1)];
    if (op_find(str_of(op))->max_in == 1) return net_op(t, op, 1, &a);
    static const double some[] = {1, 2, 3, 4, 0.5, 0.25, 1.5, 7};
    value_id b = is_float ? op_const_f(&t->g, DT_F64, some[rng_range(r, 0, countof(some) - 1)])
                          : op_const_f(&t->g, DT_I64, (double)rng_range(r, 1, 9));
    bool divides = op[0] == 'D' || !strcmp(op, "Mod"); /* not by zero */
    for (i64 i = 0; i < n && !divides && rng_range(r, 0, 2) == 0; i++)
        if (graph_value(&t->g, v[i])->dtype == graph_value(&t->g, a)->dtype) b = v[i];
    value_id c = is_float ? op_const_f(&t->g, DT_F64, (double)rng_range(r, -4, 20) / 2) : net_int(t, rng_range(r, -4, 20));
    if (!strcmp(op, "Clip") && rng_range(r, 0, 1)) return net_op(t, op, 3, (value_id[]){a, rng_range(r, 0, 1) ? b : 0, c});
    return net_op(t, op, 2, (value_id[]){a, b});
}

/* Compares every folded output with its evaluation for a vector of h elements. */
static int check_folds(struct net *t, i64 h)
{
    int n = 0;
    struct tensor *x = tensor_new(&t->a, DT_F32, 1, &h), *out[N_STEPS];
    if (!graph_eval(&t->g, &x, out, &t->a, NULL, &t->e)) fail_msg("%s", t->e.msg);
    for (u32 k = 0; k < t->g.output.n; k++) {
        const struct sym_data *d = graph_value(&t->g, t->g.output.v[k])->sdata;
        const struct tensor *o = out[k];
        i64 num;
        if (!d || !sym_eval(&t->sym, d->num[0], &h, &num)) continue;
        double got = (double)num / (double)d->den;
        double want = dtype_is_float(o->dtype) ? elem_f64(o->dtype, o->data, 0)
                                               : (double)elem_i64(o->dtype, o->data, 0);
        bool close = got - want < 1e-6 && want - got < 1e-6;
        if (!close && want < 1e6 && want > -1e6)
            fail_msg("output %u, H = %d: %g, expected %g (%s)", k, (int)h, got, want,
                     content_text(t, t->g.output.v[k]).p);
        n++;
    }
    return n;
}

static void test_fold_random(void **state)
{
    int n = 0;
    for (u64 seed = 1; seed <= 150; seed++) {
        struct net t;
        struct rng r = rng_seed(seed);
        value_id x, v[N_STEPS + 1];
        net_init(&t, &v[0]);
        random_input(&t.g, "x", DT_F32, 1, (i64[]){1}, &x);
        graph_value(&t.g, x)->shape.dim[0] = sym_var(&t.sym, S("H"));
        for (i64 k = 1; k <= N_STEPS; k++) {
            v[k] = random_step(&t, &r, v, k);
            *arr_push(&t.a, &t.g.output) = v[k];
            if (!op_infer(&t.g, graph_value(&t.g, v[k])->producer, &t.e)) fail_msg("%s", t.e.msg);
        }
        for (i64 h = 1; h < 14; h++) n += check_folds(&t, h * h - 1);
        arena_release(&t.a);
    }
    assert_true(n > 10000);
}

/* Errors name operator and node. */
static void test_errors(void **state)
{
    struct net t;
    value_id h;
    net_init(&t, &h);
    value_id a = op_const_i(&t.g, DT_I64, (i64[]){1, 2}, 2),
             b = op_const_i(&t.g, DT_I64, (i64[]){1, 2, 3}, 3);
    value_id v = net_op(&t, "Add", 2, (value_id[]){a, b});
    assert_false(op_infer(&t.g, graph_value(&t.g, v)->producer, &t.e));
    assert_int_equal(t.e.code, ERR_INPUT);
    assert_non_null(strstr(t.e.msg, "Add 'size/Add'"));
    v = net_op(&t, "NoSuchOperator", 1, &a);
    t.e = (struct err){0};
    assert_false(op_infer(&t.g, graph_value(&t.g, v)->producer, &t.e));
    assert_int_equal(t.e.code, ERR_UNSUPPORTED);
    v = net_op(&t, "Add", 1, &a);
    t.e = (struct err){0};
    assert_false(op_infer(&t.g, graph_value(&t.g, v)->producer, &t.e));
    arena_release(&t.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),       cmocka_unit_test(test_fold_floor_mul),
        cmocka_unit_test(test_fold_scale),   cmocka_unit_test(test_fold_div_signs),
        cmocka_unit_test(test_fold_compare), cmocka_unit_test(test_fold_max_reduce),
        cmocka_unit_test(test_fold_div_near_zero), cmocka_unit_test(test_fold_clip),    cmocka_unit_test(test_fold_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
