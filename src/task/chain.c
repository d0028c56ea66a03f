// SPDX-License-Identifier: Apache-2.0
//
// Chains: consecutive convolutions with only pointwise nodes between them. In one kernel the
// intermediate values stay in the caches, at the price of computing halos twice and of
// smaller tiles; so a chain is offered only if moving the intermediate value takes a
// considerable part of the time of its two convolutions. Measurements decide whether it pays.
#include "task/grow.h"

enum {
    NOMINAL = 1024,         /* assumed value of an unknown size */
    MIN_BYTES = 128 << 10,  /* smaller values stay in the L2 cache from kernel to kernel */
    MAX_INTENSITY = 300,    /* flops per intermediate byte: beyond, memory takes less than 5 % of the time */
};

/* The only value that leaves the region, and only to `head`, as its data input. */
static bool feeds_only(const struct cutter *c, const struct node_set *up, node_id head)
{
    const struct node *x = graph_node(c->g, head);
    value_id out[1];
    if (set_live_outs(c, up, out, 1) != 1 || out[0] != x->in.v[0] || c->is_output[out[0]])
        return false;
    for (u32 i = 1; i < x->in.n; i++)
        if (x->in.v[i] == out[0]) return false;
    return c->users[out[0]].n == 1 && c->users[out[0]].v[0] == head;
}

/* After its anchor the region reads constants only. */
static bool is_closed(const struct cutter *c, const struct node_set *up)
{
    for (u32 i = 1; i < up->n; i++) {
        const struct node *x = graph_node(c->g, up->v[i]);
        for (u32 k = 0; k < x->in.n; k++) {
            if (!x->in.v[k] || graph_value(c->g, x->in.v[k])->is_const) continue;
            node_id p = graph_value(c->g, x->in.v[k])->producer;
            if (!p || !set_has(up, p)) return false;
        }
    }
    return true;
}

static bool may_pay(const struct cutter *c, node_id first, node_id second)
{
    const struct graph *g = c->g;
    const struct value *x = graph_value(g, graph_node(g, second)->in.v[0]);
    i64 *var = arena_array(c->a, i64, g->sym->var.n + 1), dim[MAX_RANK];
    for (u32 i = 0; i < g->sym->var.n; i++) var[i] = NOMINAL;
    if (!dtype_is_float(x->dtype) || !shape_eval(g->sym, &x->shape, var, dim)) return false; /* none is of bytes */
    double bytes = (double)dtype_size(x->dtype);
    for (u32 i = 0; i < x->shape.rank; i++) bytes *= (double)dim[i];
    double flops = op_flops(g, first, var) + op_flops(g, second, var);
    return bytes >= MIN_BYTES && flops < MAX_INTENSITY * bytes;
}

bool grow_chain(const struct cutter *c, struct node_set *s, node_id *head)
{
    const struct graph *g = c->g;
    if (!node_is(g, *head, OP_CONV)) return false;
    node_id p = graph_value(g, graph_node(g, *head)->in.v[0])->producer;
    if (!p || !c->owner[p] || set_has(s, p)) return false;
    const struct node_set *up = &c->anchored[c->owner[p] - 1];
    if (!node_is(g, up->v[0], OP_CONV) || s->n + up->n > MAX_REGION / 2) return false;
    if (!feeds_only(c, up, *head) || !is_closed(c, up) || !may_pay(c, up->v[0], *head))
        return false;
    for (u32 i = 0; i < up->n; i++) set_add(s, up->v[i]);
    *head = up->v[0];
    return true;
}
