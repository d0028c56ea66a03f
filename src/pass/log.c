// SPDX-License-Identifier: Apache-2.0
//
// log: logarithms of numbers that underflow, without these numbers: Log(Sigmoid(x)) is -Softplus(-x), and Log(Softmax(x)) is LogSoftmax(x). PyTorch's
// exporter writes logsigmoid so, which would be -infinity for x < -104 in f32. Other users keep the sigmoid or the softmax; what the latter has in common
// with LogSoftmax is computed once (common).
//
// requires: inferred, not expanded. ensures: new nodes are inferred.
#include "pass/pass_match.h"

/* Adds the nodes that make y = Log(v); false: none are known. */
static bool add_log_of(struct graph *g, node_id n, value_id v, value_id y)
{
    node_id inner = match_any(g, v, "Sigmoid");
    if (inner) {
        value_id less = op_node1(g, n, "Neg", graph_node(g, inner)->in.v[0], 0);
        op_node1(g, n, "Neg", op_node1(g, n, "Softplus", less, 0), y);
        return true;
    }
    inner = match_any(g, v, "Softmax");
    if (inner) op_node_same(g, inner, "LogSoftmax", 1, &(value_id){graph_node(g, inner)->in.v[0]}, NULL, y);
    return inner != 0;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++) {
        const struct node x = *graph_node(g, n);
        node_id first = g->node.n;
        if (x.dead || !str_is(x.op, "Log") || !add_log_of(g, n, x.in.v[0], x.out.v[0])) continue;
        graph_node(g, n)->dead = true;
        for (node_id i = first; i < g->node.n && *ok; i++) *ok = op_infer(g, i, e);
        changed = true;
    }
    return changed;
}

const struct pass pass_log = {
    .version = 1,
    .name = "log",
    .summary = "logarithms of a sigmoid or a softmax do not underflow",
    .rank = 127,
    .run = run,
};
