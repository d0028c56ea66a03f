// SPDX-License-Identifier: Apache-2.0
//
// expand: expands composites to primitives (Softmax -> ReduceMax, Sub, Exp, ReduceSum,
// Div). requires: inferred. ensures: every operator has eval and lower (or whole).
#include "pass/pass.h"

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    for (node_id n = 1; n < g->node.n; n++)
        if (!graph_node(g, n)->dead && op_of(g, n)->expand) changed = true;
    if (changed) *ok = op_expand_all(g, e);
    return changed;
}

const struct pass pass_expand = {
    .version = 1,
    .name = "expand",
    .summary = "expands composite operators to primitives",
    .rank = 130,
    .run = run,
};
