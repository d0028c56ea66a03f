// SPDX-License-Identifier: Apache-2.0
//
// Nodes that hand their input on unchanged: pointwise nodes with one input and no effect (Identity,
// Dropout in inference, Cast to the same type), and Reshape and Expand to the shape that is there
// already: equal shapes mean equal elements. requires: inferred. Graph outputs keep their values,
// so an Identity that feeds an output from an input or constant stays.
#include "pass/pass.h"

static bool hands_on(const struct graph *g, node_id n)
{
    const struct node *x = graph_node(g, n);
    static const char *const ops[] = {"Identity", "Cast", "Reshape", "quern::Reshape",
                                      "quern::Expand"};
    i64 k = 0;
    while (k < countof(ops) && !str_is(x->op, ops[k])) k++;
    if (k == countof(ops)) return false;
    if (x->out.n != 1 || x->in.n < 1 || !x->in.v[0] || !x->out.v[0]) return false;
    const struct value *in = graph_value(g, x->in.v[0]), *out = graph_value(g, x->out.v[0]);
    return in->dtype == out->dtype && shape_equal(&in->shape, &out->shape);
}

/* The input's producer delivers the output's value directly; all other users of the input follow.
 */
static void rename_input(struct graph *g, node_id n)
{
    struct node *x = graph_node(g, n);
    value_id in = x->in.v[0], out = x->out.v[0];
    node_id p = graph_value(g, in)->producer;
    u32 k = graph_value(g, in)->out_index;
    x->dead = true;
    graph_replace(g, in, out);
    node_set_out(g, p, k, out);
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
            rename_input(g, n);
            changed = true;
        }
    }
    return changed;
}
