// SPDX-License-Identifier: Apache-2.0
//
// Building, editing and sorting of graphs. Nodes and values are only appended, so ids stay
// valid; removing a node means marking it dead. graph_sort is the only function that renumbers
// nodes (values keep their ids): it drops dead nodes and those that reach no output.
//
// Nothing here recurses: graphs come from untrusted files and may be thousands of nodes deep.
#include <string.h>

#include "ir/ir.h"

void graph_init(struct graph *g, struct arena *a, struct symtab *st)
{
    *g = (struct graph){.arena = a, .sym = st};
    arr_push(a, &g->value); /* id 0 means none */
    arr_push(a, &g->node);
    map_init(&g->names, a);
}

struct value *graph_value(const struct graph *g, value_id v)
{
    assert(v > 0 && v < g->value.n);
    return &g->value.v[v];
}

struct node *graph_node(const struct graph *g, node_id n)
{
    assert(n > 0 && n < g->node.n);
    return &g->node.v[n];
}

value_id node_first_out(const struct node *n)
{
    for (u32 k = 0; k < n->out.n; k++)
        if (n->out.v[k]) return n->out.v[k];
    return 0;
}

value_id graph_find(const struct graph *g, struct str name)
{
    const u64 *id = map_get(&g->names, name);
    return id ? (value_id)*id : 0;
}

/* A free name: the wished one, or with the first free of the suffixes _2 .. _9, then with one counted from
   the number of values, which is nearly always free at once. */
static struct str unique_name(const struct graph *g, struct str wish)
{
    if (wish.n > 0 && !graph_find(g, wish)) return str_dup(g->arena, wish);
    struct str base = wish.n > 0 ? wish : S("v");
    for (i64 k = wish.n > 0 ? 2 : g->value.n;; k = k == 9 ? i64_max(10, g->value.n) : k + 1) {
        struct str s = str_fmt(g->arena, "%.*s_%lld", STR_ARG(base), (long long)k);
        if (!graph_find(g, s)) return s;
    }
}

value_id graph_add_value(struct graph *g, struct str name)
{
    struct str s = unique_name(g, name);
    value_id id = g->value.n;
    struct value *v = arr_push(g->arena, &g->value);
    v->name = s;
    map_put(&g->names, s, id);
    return id;
}

value_id graph_add_const(struct graph *g, struct str name, struct tensor *t)
{
    assert(t && t->rank <= MAX_RANK);
    value_id id = graph_add_value(g, name);
    struct value *v = graph_value(g, id);
    v->dtype = t->dtype;
    v->data = t;
    v->is_const = true;
    v->shape.known = true;
    v->shape.rank = t->rank;
    for (u32 k = 0; k < t->rank; k++) v->shape.dim[k] = sym_const(g->sym, t->dim[k]);
    return id;
}

node_id graph_add_node(struct graph *g, struct str op, struct str name)
{
    struct str own_op = str_dup(g->arena, op), own_name = str_dup(g->arena, name);
    node_id id = g->node.n;
    struct node *n = arr_push(g->arena, &g->node);
    n->op = own_op;
    n->name = own_name;
    return id;
}

void node_add_in(struct graph *g, node_id n, value_id v)
{
    assert(v < g->value.n);
    struct node *nd = graph_node(g, n);
    *arr_push(g->arena, &nd->in) = v;
}

void node_set_out(struct graph *g, node_id n, u32 k, value_id v)
{
    struct node *nd = graph_node(g, n);
    while (nd->out.n <= k) arr_push(g->arena, &nd->out);
    nd->out.v[k] = v;
    if (!v) return;
    struct value *val = graph_value(g, v);
    assert(!val->is_const);
    val->producer = n;
    val->out_index = k;
}

value_id graph_op(struct graph *g, const char *op, struct str name, u32 n_in, const value_id *in)
{
    node_id n = graph_add_node(g, str_of(op), name);
    for (u32 k = 0; k < n_in; k++) node_add_in(g, n, in[k]);
    value_id v = graph_add_value(g, name.n > 0 ? name : str_of(op));
    node_set_out(g, n, 0, v);
    return v;
}

void graph_swap_names(struct graph *g, value_id a, value_id b)
{
    struct value *x = graph_value(g, a), *y = graph_value(g, b);
    struct str name = x->name;
    x->name = y->name, y->name = name;
    map_put(&g->names, x->name, a);
    map_put(&g->names, y->name, b);
}

bool graph_is_output(const struct graph *g, value_id v)
{
    for (u32 k = 0; k < g->output.n; k++)
        if (g->output.v[k] == v) return true;
    for (u32 k = 0; k < g->made.n; k++)
        if (g->made.v[k].v == v) return true;
    return false;
}

bool graph_is_read(const struct graph *g, value_id v)
{
    for (node_id n = 1; n < g->node.n; n++)
        for (u32 k = 0; !graph_node(g, n)->dead && k < graph_node(g, n)->in.n; k++)
            if (graph_node(g, n)->in.v[k] == v) return true;
    return false;
}

void graph_replace(struct graph *g, value_id old, value_id with)
{
    assert(old > 0 && with > 0 && with < g->value.n);
    for (node_id n = 1; n < g->node.n; n++) {
        struct node *nd = graph_node(g, n);
        for (u32 k = 0; k < nd->in.n; k++)
            if (nd->in.v[k] == old) nd->in.v[k] = with;
    }
    for (u32 k = 0; k < g->output.n; k++)
        if (g->output.v[k] == old) g->output.v[k] = with;
    for (u32 k = 0; k < g->made.n; k++)
        if (g->made.v[k].v == old) g->made.v[k].v = with;
}

u32 *graph_use_counts(const struct graph *g, struct arena *a)
{
    u32 *uses = arena_array(a, u32, g->value.n);
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *nd = graph_node(g, n);
        if (nd->dead) continue;
        for (u32 k = 0; k < nd->in.n; k++)
            if (nd->in.v[k]) uses[nd->in.v[k]]++;
    }
    for (u32 k = 0; k < g->output.n; k++) uses[g->output.v[k]]++;
    for (u32 k = 0; k < g->made.n; k++) uses[g->made.v[k].v] += g->made.v[k].v != 0;
    return uses;
}

/* Sorting: depth-first from each wanted node in the old order, producers first, and those of values that the sizes are made of
   which the node mentions. A graph that is in order already keeps its order. */

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

static void sort_mark_wanted(struct sorter *s)
{
    for (u32 k = 0; k < s->g->output.n; k++) sort_want(s, s->g->output.v[k]);
    while (s->stack.n > 0) {
        node_id n = s->stack.v[--s->stack.n];
        const struct node *nd = graph_node(s->g, n);
        for (u32 k = 0; k < nd->in.n; k++) sort_want(s, nd->in.v[k]);
        for (u32 k = 0; k < s->size[n].n; k++) sort_want_node(s, s->size[n].v[k]);
    }
}

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

/* Unused data-dependent sizes: their elements have no producer now. */
static void drop_made(struct graph *g, const bool *made_by_node)
{
    u32 n = 0;
    for (u32 k = 0; k < g->made.n; k++) {
        value_id v = g->made.v[k].v;
        if (v && made_by_node[v] && !graph_value(g, v)->producer) continue;
        g->made.v[n++] = g->made.v[k];
    }
    g->made.n = n;
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
    for (u32 k = 0; k < s->n_order; k++) {
        struct node *nd = &g->node.v[k + 1];
        *nd = old[s->order[k]];
        for (u32 o = 0; o < nd->out.n; o++)
            if (nd->out.v[o]) node_set_out(g, k + 1, o, nd->out.v[o]);
    }
    g->node.n = s->n_order + 1;
    memset(g->node.v + g->node.n, 0, (g->node.cap - g->node.n) * sizeof *g->node.v);
    drop_made(g, made_by_node);
}

bool graph_sort(struct graph *g, struct err *e)
{
    struct sorter s = {.g = g};
    s.mark = arena_array(&s.scratch, u8, g->node.n);
    s.next = arena_array(&s.scratch, u32, g->node.n);
    s.order = arena_array(&s.scratch, node_id, g->node.n);
    s.size = graph_size_sources(g, &s.scratch);
    sort_mark_wanted(&s);
    bool ok = true;
    for (node_id n = 1; ok && n < g->node.n; n++)
        if (s.mark[n] == WANTED) ok = sort_place(&s, n, e);
    if (ok) sort_apply(&s);
    arena_release(&s.scratch);
    return ok;
}
