// SPDX-License-Identifier: Apache-2.0
//
// Nodes without effect: pointwise nodes with one input and no effect
// (Identity, Dropout in inference, Cast to the same type), Reshape and Expand
// to the same shape (equal shapes mean equal elements), Concat of one input, and
// Pad and Slice that add and remove nothing, as in networks that pad pictures to a multiple, for
// sizes that are one. requires: inferred. Graph outputs keep their values, so
// an Identity that feeds an output from an input or constant stays.
#include "pass/pass.h"

/* Whether the sizes of an attribute are all 0. */
static bool is_nothing(const struct graph *g, const struct node *x, const char *attr)
{
    sym v[MAX_RANK];
    i64 n = op_get_syms(g, x, attr, v, MAX_RANK), c = 0;
    for (i64 a = 0; a < n; a++)
        if (!sym_is_const(g->sym, v[a], &c) || c) return false;
    return n >= 0;
}

/* Of a Slice whose output has its input's shape: whether it starts at the front and goes forwards. */
static bool takes_all(const struct graph *g, const struct node *x)
{
    const i64 *step;
    i64 n = attr_ints(x, "step", &step);
    for (i64 a = 0; a < n; a++)
        if (step[a] != 1) return false;
    return is_nothing(g, x, "start");
}

static bool has_no_effect(const struct graph *g, const struct node *x)
{
    static const char *const ops[] = {"Identity", "Cast", "Reshape", "quern::Reshape",
                                      "quern::Expand"};
    for (u32 k = 0; k < countof(ops); k++)
        if (str_is(x->op, ops[k])) return true;
    if (str_is(x->op, "Concat")) return x->in.n == 1;
    if (str_is(x->op, "quern::Slice")) return takes_all(g, x);
    return str_is(x->op, "quern::Pad") && is_nothing(g, x, "before") && is_nothing(g, x, "after");
}

static bool hands_on(const struct graph *g, node_id n)
{
    const struct node *x = graph_node(g, n);
    if (!has_no_effect(g, x)) return false;
    if (x->out.n != 1 || x->in.n < 1 || !x->in.v[0] || !x->out.v[0]) return false;
    const struct value *in = graph_value(g, x->in.v[0]), *out = graph_value(g, x->out.v[0]);
    return in->dtype == out->dtype && shape_equal(&in->shape, &out->shape);
}

bool pass_drop_same(struct graph *g)
{
    bool changed = false;
    for (node_id n = 1; n < g->node.n; n++) {
        struct node *x = graph_node(g, n);
        if (x->dead || !hands_on(g, n)) continue;
        value_id in = x->in.v[0], out = x->out.v[0];
        if (!graph_is_output(g, out)) {
            graph_replace(g, out, in);
            x->dead = true;
            changed = true;
        } else if (graph_value(g, in)->producer && !graph_is_output(g, in)) {
            /* The input's producer produces the output's value directly; all other users of the input follow. */
            node_id p = graph_value(g, in)->producer;
            assert(!graph_node(g, p)->dead);
            u32 k = graph_value(g, in)->out_index;
            x->dead = true;
            graph_replace(g, in, out);
            node_set_out(g, p, k, out);
            changed = true;
        }
    }
    return changed;
}
