// SPDX-License-Identifier: Apache-2.0
//
// op_ml: shared by the operators of domain ai.onnx.ml: lists of numbers in attributes as constants, the transformations
// of scores, labels of classes.
//
// The transformations are ONNX Runtime's, as documented in its sources and confirmed by measurement: PROBIT approximates
// the inverse of the error function by Winitzki's formula, SOFTMAX_ZERO excludes scores of (nearly) zero.
#include "op/op.h"

#include <math.h>

i64 op_ml_floats(const struct graph *g, const struct node *nd, const char *name, const double **v)
{
    const struct attr *a = node_attr(nd, name);
    if (!a) return 0;
    if (a->kind == ATTR_FLOATS) return *v = a->floats, a->n;
    if (a->kind != ATTR_TENSOR || !dtype_is_float(a->t->dtype)) return 0;
    i64 n = tensor_count(a->t);
    double *x = arena_array(g->arena, double, n + 1);
    for (i64 i = 0; i < n; i++) x[i] = elem_f64(a->t->dtype, a->t->data, i);
    return *v = x, n;
}

value_id op_ml_const(struct graph *g, enum dtype t, const double *v, u32 rank, const i64 *dim)
{
    struct tensor *x = tensor_new(g->arena, t, rank, dim);
    for (i64 i = 0; i < tensor_count(x); i++) elem_set_f64(t, x->data, i, v[i]);
    return graph_add_const(g, S("ml"), x);
}

bool op_ml_check_transform(const struct graph *g, node_id n, struct err *e)
{
    static const char *const known[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    struct str s = attr_str(graph_node(g, n), "post_transform", "NONE");
    for (u32 i = 0; i < countof(known); i++)
        if (str_is(s, known[i])) return true;
    return op_unsupported(e, g, n, "post_transform '%.*s'", STR_ARG(s));
}

/* exp(x - max) of elements that are not nearly zero, x * exp(-max) of the others, divided by the
   sum */
static value_id softmax_zero(struct graph *g, node_id n, value_id x, enum dtype t)
{
    const i64 last = -1;
    value_id max = op_node_axes(g, n, "ReduceMax", x, &last, 1, 0);
    value_id other = op_node2(g, n, "Mul", x, op_node1(g, n, "Exp", op_node1(g, n, "Neg", max, 0), 0), 0);
    value_id ex = op_node1(g, n, "Exp", op_node2(g, n, "Sub", x, max, 0), 0);
    value_id far = op_node_binf(g, n, "Greater", op_node1(g, n, "Abs", x, 0), t, 1e-7, 0);
    ex = op_node_where(g, n, far, ex, other, 0);
    return op_node2(g, n, "Div", ex, op_node_axes(g, n, "ReduceSum", ex, &last, 1, 0), 0);
}

/* sqrt(2) * erfinv(2x - 1) */
static value_id probit(struct graph *g, node_id n, value_id x, enum dtype t)
{
    value_id y = op_node_binf(g, n, "Sub", op_node_binf(g, n, "Mul", x, t, 2, 0), t, 1, 0);
    value_id more = op_node_binf(g, n, "Add", y, t, 1, 0), less = op_node2(g, n, "Sub", op_const_f(g, t, 1), y, 0);
    value_id square = op_node2(g, n, "Mul", less, more, 0);
    value_id log = op_node1(g, n, "Log", square, 0);
    value_id v = op_node_binf(g, n, "Add", op_node_binf(g, n, "Mul", log, t, 0.5, 0), t, 2 / (3.14159 * 0.147), 0);
    value_id w = op_node_binf(g, n, "Mul", log, t, 1 / 0.147, 0);
    value_id root = op_node1(g, n, "Sqrt", op_node2(g, n, "Sub", op_node2(g, n, "Mul", v, v, 0), w, 0), 0);
    root = op_node1(g, n, "Sqrt", op_node2(g, n, "Sub", root, v, 0), 0);
    value_id plus = op_const_f(g, t, sqrt(2)), minus = op_const_f(g, t, -sqrt(2));
    value_id sign = op_node_where(g, n, op_node_binf(g, n, "Less", y, t, 0, 0), minus, plus, 0);
    return op_node2(g, n, "Mul", sign, root, 0);
}

value_id op_ml_transform(struct graph *g, node_id n, value_id x, enum dtype t)
{
    struct str s = attr_str(graph_node(g, n), "post_transform", "NONE");
    if (str_is(s, "SOFTMAX")) return op_node_softmax(g, n, x, -1, 0);
    if (str_is(s, "LOGISTIC")) return op_node1(g, n, "Sigmoid", x, 0);
    if (str_is(s, "SOFTMAX_ZERO")) return softmax_zero(g, n, x, t);
    if (str_is(s, "PROBIT")) return probit(g, n, x, t);
    return x;
}

bool op_ml_check_labels(const struct graph *g, node_id n, const char *ints, const char *strings, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const i64 *v;
    if (!nd->out.v[0] || attr_ints(nd, ints, &v) > 0) return true;
    if (node_attr(nd, strings))
        return op_unsupported(e, g, n, "labels that are strings (attribute '%s'): convert the model with labels that are "
                              "integers, or without output 0", strings);
    return op_invalid(e, g, n, "attribute '%s' is missing", ints);
}

value_id op_ml_labels(struct graph *g, node_id n, value_id at, const char *ints, value_id out)
{
    const i64 *v;
    i64 count = attr_ints(graph_node(g, n), ints, &v);
    return op_node_gather(g, n, op_const_i(g, DT_I64, v, count), at, 0, out);
}

value_id op_ml_best(struct graph *g, node_id n, value_id scores)
{
    value_id at = op_node1(g, n, "ArgMax", scores, 0);
    attr_set_int(g, op_made(g, at), "axis", -1);
    attr_set_int(g, op_made(g, at), "keepdims", 0);
    return at;
}

value_id op_ml_pair(struct graph *g, node_id n, value_id a, value_id b)
{
    return op_node_concat(g, n, 2, (value_id[]){a, b}, 1, 0);
}

value_id op_ml_two(struct graph *g, node_id n, value_id s, bool complement)
{
    bool logistic = str_is(attr_str(graph_node(g, n), "post_transform", "NONE"), "LOGISTIC");
    value_id minus = op_node1(g, n, "Neg", s, 0);
    if (logistic) {
        value_id two = op_node1(g, n, "Sigmoid", s, 0);
        return op_ml_pair(g, n, op_node1(g, n, "Sigmoid", minus, 0), two);
    }
    return op_ml_pair(g, n, complement ? op_node_binf(g, n, "Add", minus, DT_F32, 1, 0) : minus, s);
}
