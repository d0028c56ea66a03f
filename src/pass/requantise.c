// SPDX-License-Identifier: Apache-2.0
//
// requantise: QuantizeLinear behind a computation multiplies by the reciprocal of its scale instead of dividing, and such factors are folded into those
// in front of them (rescale.c). For devices that multiply integers. requires: inferred, integer products found, not yet expanded. ensures: new nodes are
// inferred.
//
//   round(x / scale) + zero, clamped to least .. most        round(x * (1 / scale), clamped to least - zero .. most - zero) + zero
//
// The bounds are integers and rounding is monotone: clamping before it has the same result. Without a zero point, rounding and conversion to an integer
// are then neighbours, for which processors have one instruction.
//
// The quotient may differ by its rounding, as intermediate values of kernels may; inputs of the network, of which nothing in front is rounded, are divided
// as ever.
#include "pass/pass_linear.h"

/* Its input is computed from inputs of the network. */
static bool is_computed(const struct graph *g, node_id n) { return graph_value(g, graph_node(g, n)->in.v[0])->producer != 0; }

static bool quantise(struct graph *g, node_id n)
{
    struct linear q;
    if (!linear_find(g, n, "QuantizeLinear", &q) || !is_computed(g, n)) return false;
    const struct node x = *graph_node(g, n);
    graph_node(g, n)->dead = true;
    double least = q.type == DT_U8 ? 0 : -128, zero = (double)q.zero;
    value_id y = op_node_binf(g, n, "Mul", x.in.v[0], DT_F32, 1 / q.scale, 0);
    y = op_node_binf(g, n, "Max", y, DT_F32, least - zero, 0);
    y = op_node_binf(g, n, "Min", y, DT_F32, least + 255 - zero, 0);
    y = op_node1(g, n, "Round", y, 0);
    if (q.zero) y = op_node_binf(g, n, "Add", y, DT_F32, zero, 0);
    op_node_cast(g, n, y, q.type, x.out.v[0]);
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    node_id first = g->node.n;
    for (node_id n = 1; n < first; n++) changed |= quantise(g, n);
    *ok = op_infer_from(g, first, e);
    return changed;
}

const struct pass pass_requantise = {
    .version = 2,
    .name = "requantise",
    .summary = "QuantizeLinear behind a computation multiplies by the reciprocal of its scale",
    .when = PASS_INTEGER,
    .rank = 107,
    .run = run,
};
