// SPDX-License-Identifier: Apache-2.0
//
// The order of nodes: producers before consumers. Drops what is dead or does not reach an output, and renumbers nodes.
//
// Nothing here recurses: graphs come from untrusted files and may be thousands of nodes deep.
#include "ir/ir.h"

#include <string.h>

/* Sorting: depth-first from each wanted node in the old order; producers first, including those of
   values that the node's run-time sizes are computed from. A sorted graph keeps its order. */

enum mark { UNSEEN, WANTED, OPEN, PLACED };

struct sorter {
    struct graph *g;
    u8 *mark;                                  /* enum mark per node */
    u32 *next;                                 /* per open node: the next input to look at, then source of a size */
    const struct value_list *size;             /* per node: producers of the elements of its sizes */
    node_id *order;                            /* placed nodes */
    u32 n_order;
    struct { node_id *v; u32 n, cap; } stack;
    struct arena scratch;
};

/* The live node that makes v, 0: none. */
static node_id live_producer(const struct graph *g, value_id v)
{
    node_id p = v ? graph_value(g, v)->producer : 0;
    return p && !graph_node(g, p)->dead ? p : 0;
}

static void sort_want_node(struct sorter *s, node_id p)
{
    if (!p || s->mark[p] != UNSEEN) return;
    s->mark[p] = WANTED;
    *arr_push(&s->scratch, &s->stack) = p;
}

static void sort_want(struct sorter *s, value_id v) { sort_want_node(s, live_producer(s->g, v)); }

static bool sort_open(struct sorter *s, node_id n, struct err *e)
{
    const struct node *nd = graph_node(s->g, n);
    if (s->mark[n] == OPEN)
        return err_set(e, ERR_INPUT, "graph has a cycle through node '%.*s' (%.*s)",
                       STR_ARG(nd->name), STR_ARG(nd->op));
    if (s->mark[n] == PLACED) return true;
    assert(s->mark[n] == WANTED);
    s->mark[n] = OPEN;
    *arr_push(&s->scratch, &s->stack) = n;
    return true;
}

/* Places n and all it needs. */
static bool sort_place(struct sorter *s, node_id n, struct err *e)
{
    if (!sort_open(s, n, e)) return false;
    while (s->stack.n > 0) {
        node_id top = s->stack.v[s->stack.n - 1];
        const struct node *nd = graph_node(s->g, top);
        if (s->next[top] < nd->in.n) {
            node_id p = live_producer(s->g, nd->in.v[s->next[top]++]);
            if (p && !sort_open(s, p, e)) return false;
        } else if (s->next[top] < nd->in.n + s->size[top].n) {
            if (!sort_open(s, s->size[top].v[s->next[top]++ - nd->in.n], e)) return false;
        } else {
            s->mark[top] = PLACED;
            s->order[s->n_order++] = top;
            s->stack.n--;
        }
    }
    return true;
}

static void sort_apply(struct sorter *s)
{
    struct graph *g = s->g;
    struct node *old = arena_array(&s->scratch, struct node, g->node.n);
    memcpy(old, g->node.v, g->node.n * sizeof *old);
    bool *made_by_node = arena_array(&s->scratch, bool, g->value.n);
    for (value_id v = 1; v < g->value.n; v++) {
        made_by_node[v] = g->value.v[v].producer != 0;
        g->value.v[v].producer = 0;
    }
    assert(s->n_order < g->node.n);
    for (u32 k = 0; k < s->n_order; k++) {
        struct node *nd = &g->node.v[k + 1];
        *nd = old[s->order[k]];
        assert(!nd->dead);
        for (u32 o = 0; o < nd->out.n; o++)
            if (nd->out.v[o]) node_set_out(g, k + 1, o, nd->out.v[o]);
    }
    g->node.n = s->n_order + 1;
    memset(g->node.v + g->node.n, 0, (g->node.cap - g->node.n) * sizeof *g->node.v);
    /* Unused data-dependent sizes: their elements have no producer now. */
    u32 n = 0;
    for (u32 k = 0; k < g->made.n; k++) {
        value_id v = g->made.v[k].v;
        if (v && made_by_node[v] && !graph_value(g, v)->producer) continue;
        g->made.v[n++] = g->made.v[k];
    }
    g->made.n = n;
}

bool graph_sort(struct graph *g, struct err *e)
{
    struct sorter s = {.g = g};
    s.mark = arena_array(&s.scratch, u8, g->node.n);
    s.next = arena_array(&s.scratch, u32, g->node.n);
    s.order = arena_array(&s.scratch, node_id, g->node.n);
    s.size = graph_size_sources(g, &s.scratch);
    for (u32 k = 0; k < s.g->output.n; k++) sort_want(&s, s.g->output.v[k]);
    for (u32 k = 0; k < g->made.n; k++)
        if (g->made.v[k].is_kept) sort_want(&s, g->made.v[k].v);
    while (s.stack.n > 0) {
        node_id n = s.stack.v[--s.stack.n];
        const struct node *nd = graph_node(s.g, n);
        for (u32 k = 0; k < nd->in.n; k++) sort_want(&s, nd->in.v[k]);
        for (u32 k = 0; k < s.size[n].n; k++) sort_want_node(&s, s.size[n].v[k]);
    }
    bool ok = true;
    for (node_id n = 1; ok && n < g->node.n; n++)
        if (s.mark[n] == WANTED) ok = sort_place(&s, n, e);
    if (ok) sort_apply(&s);
    arena_release(&s.scratch);
    return ok;
}
