// SPDX-License-Identifier: Apache-2.0
//
// common: merges equal nodes (same operator, inputs, attributes; equal small constants
// count as the same input). requires: sorted. Outputs of the graph keep their values.
#include "pass/pass.h"

enum { MAX_CONST_BYTES = 256 }; /* larger constants are compared by identity */

static void key_attr(struct buf *b, const struct attr *a)
{
    buf_str(b, a->name);
    buf_printf(b, "=%d:%lld:", (int)a->kind, (long long)a->n);
    buf_put(b, &a->i, sizeof a->i);
    buf_put(b, &a->f, sizeof a->f);
    buf_str(b, a->s);
    if (a->ints) buf_put(b, a->ints, (i64)sizeof(i64) * a->n);
    if (a->floats) buf_put(b, a->floats, (i64)sizeof(double) * a->n);
    for (i64 i = 0; a->strs && i < a->n; i++)
        buf_printf(b, "%lld:%.*s", (long long)a->strs[i].n, STR_ARG(a->strs[i]));
    buf_put(b, &a->t, sizeof a->t);
    buf_put(b, &a->graph, sizeof a->graph);
}

static void key_input(struct buf *b, const struct graph *g, value_id v)
{
    const struct value *x = v ? graph_value(g, v) : NULL; /* 0: left out */
    if (x && x->data && tensor_bytes(x->data) <= MAX_CONST_BYTES) {
        buf_printf(b, "c%d:%u:", (int)x->dtype, x->data->rank);
        buf_put(b, x->data->dim, (i64)sizeof(i64) * x->data->rank);
        buf_put(b, x->data->data, tensor_bytes(x->data));
    } else {
        buf_printf(b, "v%u,", v);
    }
}

static void key_node(struct buf *b, const struct graph *g, const struct node *x)
{
    buf_str(b, x->op);
    buf_printf(b, "(%u,%u)", x->in.n, x->out.n);
    for (u32 k = 0; k < x->in.n; k++) key_input(b, g, x->in.v[k]);
    for (u32 k = 0; k < x->out.n; k++) buf_char(b, x->out.v[k] ? '1' : '0');
    for (u32 k = 0; k < x->attr.n; k++) key_attr(b, &x->attr.v[k]);
}

static bool merge(struct graph *g, node_id n, node_id first)
{
    struct node *x = graph_node(g, n);
    assert(first < n && x->out.n == graph_node(g, first)->out.n); /* parts of the key */
    for (u32 k = 0; k < x->out.n; k++)
        if (x->out.v[k] && graph_is_output(g, x->out.v[k])) return false;
    for (u32 k = 0; k < x->out.n; k++)
        if (x->out.v[k]) graph_replace(g, x->out.v[k], graph_node(g, first)->out.v[k]);
    x->dead = true;
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    struct arena tmp = {0};
    struct map seen;
    struct buf key = {0};
    map_init(&seen, &tmp);
    for (node_id n = 1; n < g->node.n; n++) {
        if (graph_node(g, n)->dead) continue;
        buf_reset(&key);
        key_node(&key, g, graph_node(g, n));
        u64 *first = map_get(&seen, buf_view(&key));
        if (first) changed |= merge(g, n, (node_id)*first);
        else map_put(&seen, buf_view(&key), n);
    }
    buf_release(&key);
    arena_release(&tmp);
    return changed;
}

const struct pass pass_common = {
    .version = 1,
    .name = "common",
    .summary = "merges equal nodes (common subexpressions)",
    .rank = 150,
    .run = run,
};
