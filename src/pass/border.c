// SPDX-License-Identifier: Apache-2.0
//
// border: gives every output of the graph a node of its own, so that no
// output is an input or a constant in later stages. An Identity is
// inserted where needed. ensures: outputs are distinct and have producers.
#include "pass/pass.h"

static bool listed_before(const struct graph *g, u32 k)
{
    for (u32 i = 0; i < k; i++)
        if (g->output.v[i] == g->output.v[k]) return true;
    return false;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    for (u32 k = 0; k < g->output.n && *ok; k++) {
        value_id v = g->output.v[k];
        if (graph_value(g, v)->producer && !listed_before(g, k)) continue;
        value_id copy = graph_op(g, "Identity", graph_value(g, v)->name, 1, &v);
        *ok = op_infer(g, graph_value(g, copy)->producer, e);
        g->output.v[k] = copy;
        if (graph_value(g, v)->is_const) graph_swap_names(g, v, copy); /* it belongs to the interface */
        changed = true;
    }
    return changed;
}

const struct pass pass_border = {
    .version = 1,
    .name = "border",
    .summary = "gives every output a node of its own",
    .rank = 900,
    .run = run,
};
