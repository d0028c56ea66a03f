// SPDX-License-Identifier: Apache-2.0
//
// Typed attributes of nodes. A node has few attributes, so they are a small array searched from the front,
// kept in the order in which they were first set: printing is deterministic. Setters replace an attribute of
// the same name, whatever its kind. Contents are copied into the graph's arena; tensors are not.
#include <string.h>

#include "ir/ir.h"

static struct attr *find(const struct node *n, struct str name)
{
    for (u32 k = 0; k < n->attr.n; k++)
        if (str_eq(n->attr.v[k].name, name)) return &n->attr.v[k];
    return NULL;
}

static const struct attr *find_kind(const struct node *n, const char *name, enum attr_kind kind)
{
    const struct attr *a = node_attr(n, name);
    return a && a->kind == kind ? a : NULL;
}

/* The slot for `name`, empty except for name and kind. */
static struct attr *slot(struct graph *g, node_id id, struct str name, enum attr_kind kind)
{
    struct node *n = graph_node(g, id);
    struct attr *a = find(n, name);
    struct str key = a ? a->name : str_dup(g->arena, name);
    if (!a) a = arr_push(g->arena, &n->attr);
    *a = (struct attr){.name = key, .kind = kind};
    return a;
}

/* A copy, so that callers may pass memory of any lifetime; NULL only if empty. */
static void *copy_array(struct arena *a, const void *v, i64 size)
{
    if (size == 0) return NULL;
    return memcpy(arena_alloc(a, size), v, (size_t)size);
}

const struct attr *node_attr(const struct node *n, const char *name)
{
    return find(n, str_of(name));
}

i64 attr_int(const struct node *n, const char *name, i64 def)
{
    const struct attr *a = find_kind(n, name, ATTR_INT);
    return a ? a->i : def;
}

double attr_float(const struct node *n, const char *name, double def)
{
    const struct attr *a = find_kind(n, name, ATTR_FLOAT);
    return a ? a->f : def;
}

struct str attr_str(const struct node *n, const char *name, const char *def)
{
    const struct attr *a = find_kind(n, name, ATTR_STR);
    return a ? a->s : str_of(def);
}

i64 attr_ints(const struct node *n, const char *name, const i64 **v)
{
    const struct attr *a = find_kind(n, name, ATTR_INTS);
    if (v) *v = a ? a->ints : NULL;
    return a ? a->n : 0;
}

void attr_set_int(struct graph *g, node_id n, const char *name, i64 v)
{
    slot(g, n, str_of(name), ATTR_INT)->i = v;
}

void attr_set_float(struct graph *g, node_id n, const char *name, double v)
{
    slot(g, n, str_of(name), ATTR_FLOAT)->f = v;
}

void attr_set_str(struct graph *g, node_id n, const char *name, struct str v)
{
    struct str s = str_dup(g->arena, v);
    slot(g, n, str_of(name), ATTR_STR)->s = s;
}

void attr_set_ints(struct graph *g, node_id n, const char *name, const i64 *v, i64 count)
{
    assert(count >= 0);
    i64 *ints = copy_array(g->arena, v, count * (i64)sizeof *v);
    struct attr *a = slot(g, n, str_of(name), ATTR_INTS);
    a->ints = ints;
    a->n = count;
}

void attr_set_tensor(struct graph *g, node_id n, const char *name, struct tensor *t)
{
    assert(t);
    slot(g, n, str_of(name), ATTR_TENSOR)->t = t;
}

struct graph *attr_graph(const struct node *n, const char *name)
{
    const struct attr *a = find_kind(n, name, ATTR_GRAPH);
    return a ? a->graph : NULL;
}

void attr_set_graph(struct graph *g, node_id n, const char *name, struct graph *body)
{
    assert(body && body->sym == g->sym);
    slot(g, n, str_of(name), ATTR_GRAPH)->graph = body;
}

void attr_copy(struct graph *g, node_id to, const struct attr *from)
{
    struct attr c = *from; /* `from` may be in the array that is about to move */
    c.s = str_dup(g->arena, c.s);
    if (c.kind == ATTR_INTS) c.ints = copy_array(g->arena, c.ints, c.n * (i64)sizeof *c.ints);
    if (c.kind == ATTR_FLOATS) c.floats = copy_array(g->arena, c.floats, c.n * (i64)sizeof *c.floats);
    if (c.kind == ATTR_STRS) {
        c.strs = copy_array(g->arena, c.strs, c.n * (i64)sizeof *c.strs);
        for (i64 k = 0; k < c.n; k++) c.strs[k] = str_dup(g->arena, c.strs[k]);
    }
    struct attr *a = slot(g, to, c.name, c.kind);
    c.name = a->name;
    *a = c;
}

void attr_remove(struct graph *g, node_id n, const char *name)
{
    struct node *nd = graph_node(g, n);
    struct attr *a = find(nd, str_of(name));
    if (!a) return;
    struct attr *end = nd->attr.v + nd->attr.n;
    memmove(a, a + 1, (size_t)(end - (a + 1)) * sizeof *a);
    nd->attr.n--;
}
