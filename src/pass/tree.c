// SPDX-License-Identifier: Apache-2.0
//
// tree: splits a concatenation of many values into a tree of small ones, because
// devices limit the number of buffers of a kernel. Without such a limit its nodes end
// up in one kernel again: views are always fused with their users. requires: inferred.
#include "pass/pass.h"

enum { MAX_INPUTS = 16 };

/* `count` inputs of node n from the first-th on, joined; a single one is itself. */
static value_id join(struct graph *g, node_id n, u32 first, u32 count, struct err *e)
{
    value_id in[MAX_INPUTS], out;
    for (u32 i = 0; i < count; i++) in[i] = graph_node(g, n)->in.v[first + i];
    if (count == 1) return in[0];
    out = op_node(g, n, "Concat", count, in, 0);
    attr_set_int(g, op_made(g, out), "axis", attr_int(graph_node(g, n), "axis", 1));
    return op_infer(g, op_made(g, out), e) ? out : 0;
}

/* Replaces groups of inputs by one each; a node that
 *still has too many is split again in the next iteration. */
static bool split(struct graph *g, node_id n, struct err *e)
{
    u32 old = graph_node(g, n)->in.n, kept = 0;
    for (u32 first = 0; first < old; first += MAX_INPUTS) {
        u32 left = old - first;
        value_id v = join(g, n, first, left < MAX_INPUTS ? left : MAX_INPUTS, e);
        if (!v) return false;
        graph_node(g, n)->in.v[kept++] = v;
    }
    graph_node(g, n)->in.n = kept;
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead || !str_is(x->op, "Concat") || x->in.n <= MAX_INPUTS) continue;
        *ok = split(g, n, e);
        changed = true;
    }
    return changed;
}

const struct pass pass_tree = {
    .version = 1,
    .name = "tree",
    .summary = "splits concatenations of many values into trees",
    .rank = 148,
    .run = run,
};
