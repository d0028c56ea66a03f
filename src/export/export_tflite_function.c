// SPDX-License-Identifier: Apache-2.0
//
// Functions that TFLite lacks, and that kernels of quern compute directly, as nodes that TFLite
// has.
#include "export/export_tflite.h"

/* A node being replaced: x is its input. */
struct place {
    struct graph *g;
    node_id n;
    value_id x;
    enum dtype d;
};

static value_id one(const struct place *p, const char *op, value_id a)
{
    return op_node1(p->g, p->n, op, a, 0);
}

static value_id two(const struct place *p, const char *op, value_id a, value_id b)
{
    return op_node2(p->g, p->n, op, a, b, 0);
}

static value_id with(const struct place *p, const char *op, value_id a, double b)
{
    return op_node_binf(p->g, p->n, op, a, p->d, b, 0);
}

/* By formula 7.1.26 of Abramowitz and Stegun, Handbook of Mathematical Functions: sign(x)
   (1 - (a1 t + ... + a5 t^5) exp(-x^2)) with t = 1 / (1 + p |x|), off by 1.5e-7. */
static value_id erf_of(const struct place *p)
{
    const double a[] = {1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592};
    value_id scaled = with(p, "Mul", one(p, "Abs", p->x), 0.3275911);
    value_id t = one(p, "Reciprocal", with(p, "Add", scaled, 1));
    value_id sum = with(p, "Mul", t, a[0]);
    for (i64 k = 1; k < countof(a); k++) {
        sum = with(p, "Add", sum, a[k]);
        sum = two(p, "Mul", sum, t);
    }
    value_id square = two(p, "Mul", p->x, p->x), bell = one(p, "Exp", one(p, "Neg", square));
    value_id positive = with(p, "Add", one(p, "Neg", two(p, "Mul", sum, bell)), 1);
    return two(p, "Mul", positive, one(p, "Sign", p->x));
}

/* log(1 + exp(x)) without overflow */
static value_id softplus_of(const struct place *p)
{
    value_id bell = one(p, "Exp", one(p, "Neg", one(p, "Abs", p->x)));
    value_id rest = one(p, "Log", with(p, "Add", bell, 1));
    return two(p, "Add", one(p, "Relu", p->x), rest);
}

/* gain x for x > 0, else gain alpha (exp(x / width) - 1) */
static value_id exponential_of(const struct place *p, double alpha, double width, double gain)
{
    value_id negative = with(p, "quern::Min", p->x, 0);
    value_id power = one(p, "Exp", with(p, "Mul", negative, 1 / width));
    value_id left = with(p, "Mul", with(p, "Sub", power, 1), gain * alpha);
    return two(p, "Add", with(p, "Mul", one(p, "Relu", p->x), gain), left);
}

static value_id function_of(const struct place *p, const struct node *n)
{
    double alpha = attr_float(n, "alpha", 1);
    if (str_is(n->op, "Erf")) return erf_of(p);
    if (str_is(n->op, "Softplus")) return softplus_of(p);
    if (str_is(n->op, "Mish")) return two(p, "Mul", p->x, one(p, "Tanh", softplus_of(p)));
    if (str_is(n->op, "Softsign"))
        return two(p, "Div", p->x, with(p, "Add", one(p, "Abs", p->x), 1));
    if (str_is(n->op, "Tan")) return two(p, "Div", one(p, "Sin", p->x), one(p, "Cos", p->x));
    if (str_is(n->op, "Celu")) return exponential_of(p, alpha, alpha, 1);
    if (str_is(n->op, "Elu")) return exponential_of(p, alpha, 1, 1);
    if (str_is(n->op, "Selu"))
        return exponential_of(p, attr_float(n, "alpha", 1.67326319217681884765625), 1,
                              attr_float(n, "gamma", 1.05070102214813232421875));
    return 0;
}

bool tfl_expand_function(struct graph *g, node_id n, struct err *e)
{
    const struct node x = *graph_node(g, n);
    node_id first = g->node.n;
    if (!x.in.n || !x.in.v[0]) return false;
    struct place p = {g, n, x.in.v[0], graph_value(g, x.in.v[0])->dtype};
    value_id y = function_of(&p, &x);
    if (!y) return false;
    node_id last = graph_value(g, y)->producer;
    graph_node(g, n)->dead = true;
    graph_value(g, y)->producer = 0;
    node_set_out(g, last, 0, x.out.v[0]);
    return op_infer_from(g, first, e);
}
