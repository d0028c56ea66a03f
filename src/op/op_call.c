// SPDX-License-Identifier: Apache-2.0
//
// Nodes that run graphs (while.c): common access to their bodies.
#include "op/op.h"

bool op_call_get(const struct graph *g, const struct node *x, struct op_call *c)
{
    const char *trip_count = node_attr(x, "rounds") ? "rounds" : "trip_count"; /* the first in texts of earlier versions */
    *c = (struct op_call){.is_loop = str_is(x->op, "quern::Loop")};
    i64 carried = c->is_loop ? attr_int(x, "carried", -1) : 0;
    c->body[0] = attr_graph(x, c->is_loop ? "body" : "else");
    c->body[1] = c->is_loop ? NULL : attr_graph(x, "then");
    c->n_body = c->is_loop ? 1 : 2;
    if (!c->body[0] || (!c->is_loop && !c->body[1]) || carried < 0 || x->in.n < 1 || carried > x->in.n - 1) return false;
    c->n_carried = (u32)carried;
    c->n_captured = x->in.n - 1 - c->n_carried;
    c->is_conditional = c->is_loop && attr_int(x, "conditional", 0) != 0;
    u32 first = c->is_conditional + c->n_carried;
    for (u32 b = 0; b < c->n_body; b++)
        if (c->body[b]->input.n != x->in.n - 1 || c->body[b]->output.n < first || c->body[b]->output.n != c->body[0]->output.n) return false;
    c->n_out = c->body[0]->output.n - c->is_conditional;
    c->n_scan = c->n_out - c->n_carried;
    if (!c->is_loop) c->n_scan = 0;
    if (c->is_loop && (!node_attr(x, trip_count) || op_get_syms(g, x, trip_count, &c->trip_count, 1) != 1)) return false;
    c->n_size = attr_ints(x, "sizes", &c->size) / 2;
    for (i64 k = 0; k < c->n_size; k++)
        if (c->size[2 * k] < 0 || c->size[2 * k] >= c->n_out || c->size[2 * k + 1] < 0 || c->size[2 * k + 1] >= MAX_RANK) return false;
    return x->out.n <= c->n_out + 1;
}

bool op_call_varies(const struct node *x, struct str name)
{
    const struct attr *a = node_attr(x, "varies");
    for (i64 k = 0; a && a->kind == ATTR_STRS && k < a->n; k++)
        if (str_eq(a->strs[k], name)) return true;
    return false;
}
