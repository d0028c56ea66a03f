// SPDX-License-Identifier: Apache-2.0
//
// Building and editing of graphs. Nodes and values are only appended, so ids stay
// valid; removing a node means marking it dead. graph_sort (sort.c) is the only function that renumbers
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
    assert(op.n > 0);
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
    assert(v < g->value.n);
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
    assert(a != b);
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
    assert(old > 0 && old < g->value.n && with > 0 && with < g->value.n);
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
