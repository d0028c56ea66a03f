// SPDX-License-Identifier: Apache-2.0
//
// swish: x Sigmoid(x) and x Sigmoid(a x), as exporters write SiLU and QuickGelu, become Swish.
//
// requires: inferred, constants folded. ensures: new nodes are inferred. The sigmoid and its argument
// have no other user. The kernel of Swish divides x instead of 1, and the results differ by
// roundings, as those of kernels may.
#include "pass/pass_linear.h"
#include "pass/pass_match.h"

/* Whether v is Sigmoid(alpha x). */
static bool is_gate(const struct matcher *m, value_id v, value_id x, double *alpha)
{
    node_id gate = match_only(m, v, "Sigmoid");
    if (!gate) return false;
    value_id a = graph_node(m->g, gate)->in.v[0];
    *alpha = 1;
    if (a == x) return true;
    node_id n = match_only(m, a, "Mul");
    for (u32 k = 0; n && k < 2; k++) {
        const struct node *nd = graph_node(m->g, n);
        if (nd->in.v[k] == x && linear_number(m->g, nd->in.v[1 - k], alpha)) return true;
    }
    return false;
}

/* The x whose Swish the product n is; 0: it is none. */
static value_id find(const struct matcher *m, node_id n, double *alpha)
{
    const struct node *nd = graph_node(m->g, n);
    if (nd->dead || !str_is(nd->op, "Mul")) return 0;
    const struct value *out = graph_value(m->g, nd->out.v[0]);
    if (out->dtype != DT_F32 && out->dtype != DT_F64) return 0;
    for (u32 k = 0; k < 2; k++) {
        value_id x = nd->in.v[k];
        if (is_gate(m, nd->in.v[1 - k], x, alpha) && shape_equal(&graph_value(m->g, x)->shape, &out->shape)) return x;
    }
    return 0;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    struct arena scratch = {0};
    const struct matcher m = matcher_of(g, &scratch);
    bool changed = false;
    double alpha;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++) {
        value_id x = find(&m, n, &alpha);
        if (!x) continue;
        value_id y = graph_node(g, n)->out.v[0];
        graph_node(g, n)->dead = true;
        op_node1(g, n, "Swish", x, y);
        if (alpha != 1) attr_set_float(g, op_made(g, y), "alpha", alpha);
        *ok = op_infer(g, op_made(g, y), e);
        changed = true;
    }
    arena_release(&scratch);
    return changed;
}

const struct pass pass_swish = {
    .version = 1,
    .name = "swish",
    .summary = "products with a sigmoid of the other factor become Swish",
    .rank = 126,
    .run = run,
};
