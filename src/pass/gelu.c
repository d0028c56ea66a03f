// SPDX-License-Identifier: Apache-2.0
//
// gelu: the Gaussian error linear unit, which exporters write as five to nine nodes, becomes Gelu:
//
//   x 1/2 (1 + erf(x / sqrt(2)))
//   x 1/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))      also as x (1 + 0.044715 x^2)
//
// requires: inferred, constants folded. ensures: new nodes are inferred. Products are matched as
// sets of factors, whatever their order, with the constants multiplied; the nodes in between have
// no other user. The kernel of Gelu has neither the division nor pow (both slower than erf
// itself), and the results differ by roundings, as those of kernels may.
#include "pass/pass_linear.h"
#include "pass/pass_match.h"

#include <math.h>

enum { MAX_FACTORS = 4 };

static const double sqrt_half = 0.70710678118654752440, sqrt_2_by_pi = 0.79788456080286535588, cube = 0.044715;

struct product {
    double constant;
    value_id factor[MAX_FACTORS];
    u32 n;
};

static bool add_factors(const struct matcher *m, value_id v, struct product *p);

/* Those of the product, quotient or power n. false: none of these, or too many. */
static bool split(const struct matcher *m, node_id n, struct product *p)
{
    const struct node *x = graph_node(m->g, n);
    double c;
    if (str_is(x->op, "Mul")) return add_factors(m, x->in.v[0], p) && add_factors(m, x->in.v[1], p);
    if (str_is(x->op, "Div") && linear_number(m->g, x->in.v[1], &c)) {
        p->constant /= c;
        return add_factors(m, x->in.v[0], p);
    }
    bool is_power = str_is(x->op, "Pow") && linear_number(m->g, x->in.v[1], &c) && (c == 2 || c == 3);
    if (!is_power || p->n + c > MAX_FACTORS) return false;
    for (u32 i = 0; i < c; i++) p->factor[p->n++] = x->in.v[0];
    return true;
}

/* Multiplies p by v. false: too many factors. */
static bool add_factors(const struct matcher *m, value_id v, struct product *p)
{
    double c;
    if (linear_number(m->g, v, &c)) {
        p->constant *= c;
        return true;
    }
    struct product with = *p;
    node_id n = m->uses[v] == 1 ? graph_value(m->g, v)->producer : 0;
    if (n && split(m, n, &with)) {
        *p = with;
        return true;
    }
    if (p->n == MAX_FACTORS) return false;
    p->factor[p->n++] = v;
    return true;
}

/* Whether v is that constant, up to rounding, times n factors. */
static bool is_product(const struct matcher *m, value_id v, double constant, u32 n, struct product *p)
{
    *p = (struct product){.constant = 1};
    return add_factors(m, v, p) && p->n == n && fabs(p->constant / constant - 1) < 1e-6;
}

static bool is_power(const struct product *p, value_id x)
{
    for (u32 i = 0; i < p->n; i++)
        if (p->factor[i] != x) return false;
    return true;
}

/* The other term if v is a sum with `term`, or with 1 if term is 0; else 0. */
static value_id other_term(const struct matcher *m, value_id v, value_id term)
{
    node_id n = match_only(m, v, "Add");
    for (u32 k = 0; n && k < 2; k++) {
        const struct node *x = graph_node(m->g, n);
        double c;
        if (term ? x->in.v[k] == term : linear_number(m->g, x->in.v[k], &c) && c == 1) return x->in.v[1 - k];
    }
    return 0;
}

/* Whether v is sqrt(2/pi) (x + 0.044715 x^3). */
static bool is_tanh_argument(const struct matcher *m, value_id v, value_id x)
{
    struct product p, q;
    value_id rest;
    if (is_product(m, v, sqrt_2_by_pi, 1, &p)) {
        rest = other_term(m, p.factor[0], x);
        return rest && is_product(m, rest, cube, 3, &q) && is_power(&q, x);
    }
    if (!is_product(m, v, sqrt_2_by_pi, 2, &p)) return false;
    u32 k = p.factor[0] == x;
    rest = p.factor[1 - k] == x ? other_term(m, p.factor[k], 0) : 0;
    return rest && is_product(m, rest, cube, 2, &q) && is_power(&q, x);
}

/* Whether v is 1 + erf(..) or 1 + tanh(..) of the function's argument for x. */
static bool is_gate(const struct matcher *m, value_id v, value_id x, bool *by_tanh)
{
    struct product p;
    value_id f = other_term(m, v, 0);
    if (!f) return false;
    node_id erf = match_only(m, f, "Erf"), tanh = match_only(m, f, "Tanh");
    *by_tanh = tanh != 0;
    if (tanh) return is_tanh_argument(m, graph_node(m->g, tanh)->in.v[0], x);
    return erf && is_product(m, graph_node(m->g, erf)->in.v[0], sqrt_half, 1, &p) && p.factor[0] == x;
}

/* The x whose Gelu the product n is; 0: it is none. */
static value_id find(const struct matcher *m, node_id n, bool *by_tanh)
{
    const struct node *nd = graph_node(m->g, n);
    struct product p = {.constant = 1};
    if (nd->dead || (!str_is(nd->op, "Mul") && !str_is(nd->op, "Div"))) return 0;
    const struct value *out = graph_value(m->g, nd->out.v[0]);
    if ((out->dtype != DT_F32 && out->dtype != DT_F64) || !split(m, n, &p) || p.n != 2 || p.constant != 0.5) return 0;
    for (u32 k = 0; k < 2; k++) {
        const struct value *x = graph_value(m->g, p.factor[k]);
        if (x->dtype == out->dtype && shape_equal(&x->shape, &out->shape) &&
            is_gate(m, p.factor[1 - k], p.factor[k], by_tanh))
            return p.factor[k];
    }
    return 0;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    struct arena scratch = {0};
    const struct matcher m = matcher_of(g, &scratch);
    bool changed = false, by_tanh;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++) {
        value_id x = find(&m, n, &by_tanh);
        if (!x) continue;
        value_id y = graph_node(g, n)->out.v[0];
        graph_node(g, n)->dead = true;
        op_node1(g, n, "Gelu", x, y);
        if (by_tanh) attr_set_str(g, op_made(g, y), "approximate", S("tanh"));
        *ok = op_infer(g, op_made(g, y), e);
        changed = true;
    }
    arena_release(&scratch);
    return changed;
}

const struct pass pass_gelu = {
    .version = 1,
    .name = "gelu",
    .summary = "nodes that compute the Gaussian error linear unit become Gelu",
    .rank = 125,
    .run = run,
};
