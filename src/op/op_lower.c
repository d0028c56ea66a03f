// SPDX-License-Identifier: Apache-2.0
//
// The operators' part of kernels: lower/ requests elements of a node's outputs here.
#include "op/op.h"

kval op_lower(struct emit *m, node_id n, u32 out, const kval *idx)
{
    const struct op *op = op_of(m->g, n);
    assert(op && op->lower);
    return op->lower(m, graph_node(m->g, n), out, idx);
}

/* The graph's nodes can be one kernel; whole: the node that emits all of it, 0: none. */
static bool is_one_kernel(const struct graph *g, node_id *whole)
{
    u32 n_nodes = 0;
    *whole = 0;
    for (node_id n = 1; n < g->node.n; n++) {
        if (graph_node(g, n)->dead) continue;
        n_nodes++;
        if (op_of(g, n)->whole) *whole = n;
        else if (!op_of(g, n)->lower) return false;
    }
    return !*whole || n_nodes == 1;
}

bool op_copies(const struct graph *g, const struct node *n, u32 k, value_id *from)
{
    const struct op *op = op_find(n->op);
    u32 in;
    if (!n->out.v[k] || !op->base || !op->base(g, n, k, &in) || graph_value(g, n->out.v[k])->shares) return false;
    *from = n->in.v[in];
    return true;
}

void op_emit_whole(struct emit *m, const struct node *n)
{
    value_id from;
    for (u32 k = 0; k < n->out.n; k++)
        if (op_copies(m->g, n, k, &from)) emit_output_from(m, n->out.v[k], from);
    op_find(n->op)->whole(m, n);
}

bool op_plain_kernel(struct emit *m, struct kir *k, const struct graph *g, struct arena *a)
{
    node_id whole;
    if (!is_one_kernel(g, &whole)) return false;
    kir_init(k, a, S("plain"));
    emit_init(m, k, g, op_lower, a);
    emit_args(m);
    if (whole) op_emit_whole(m, graph_node(g, whole));
    for (u32 i = 0; !whole && i < g->output.n; i++) emit_output(m, g->output.v[i]);
    return true;
}
