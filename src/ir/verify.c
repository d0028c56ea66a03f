// SPDX-License-Identifier: Apache-2.0
//
// graph_verify: the invariants of ir.h as code. Run after import, after parsing and after every
// pass in debug builds. Topological order of nodes is not required (only graph_sort guarantees it);
// absence of cycles is. Values without a live producer or user may exist: passes leave them behind.
#include "ir/ir.h"

struct checker {
    const struct graph *g;
    struct err *e;
    u32 depth; /* nesting depth of bodies */
};

enum { MAX_BODIES = 16 };

static bool bad_value(const struct checker *c, value_id v, const char *what)
{
    return err_set(c->e, ERR_INPUT, "%s: value '%.*s'", what, STR_ARG(graph_value(c->g, v)->name));
}

static bool bad_node(const struct checker *c, node_id n, const char *what)
{
    const struct node *nd = graph_node(c->g, n);
    return err_set(c->e, ERR_INPUT, "%s: node '%.*s' (%.*s)", what, STR_ARG(nd->name), STR_ARG(nd->op));
}

static bool check_shape(const struct checker *c, value_id id)
{
    const struct value *v = graph_value(c->g, id);
    if ((unsigned)v->dtype >= N_DTYPES) return bad_value(c, id, "invalid dtype");
    if ((unsigned)v->layout >= N_LAYOUTS) return bad_value(c, id, "invalid layout");
    if (!v->shape.known) return true;
    if (v->shape.rank > MAX_RANK) return bad_value(c, id, "rank too large");
    for (u32 k = 0; k < v->shape.rank; k++)
        if (!v->shape.dim[k] || v->shape.dim[k] >= c->g->sym->node.n)
            return bad_value(c, id, "invalid size");
    if (v->layout != LAYOUT_ROWS && v->shape.rank < 3)
        return bad_value(c, id, "layout needs rank 3");
    return true;
}

static bool check_part(const struct checker *c, value_id id)
{
    const struct value *v = graph_value(c->g, id);
    const struct symtab *t = c->g->sym;
    u32 n = t->node.n;
    i64 whole, from, own;
    if (!v->part.whole) return true;
    bool fits = v->shape.known && v->part.axis < v->shape.rank && v->part.whole < n &&
                v->part.from && v->part.from < n;
    if (!fits || v->is_const || (v->layout != LAYOUT_ROWS && v->layout != LAYOUT_CLAST))
        return bad_value(c, id, "invalid part of another value");
    bool known = sym_is_const(t, v->part.whole, &whole) && sym_is_const(t, v->part.from, &from) &&
                 sym_is_const(t, v->shape.dim[v->part.axis], &own);
    if (known && (from < 0 || from > whole - own))
        return bad_value(c, id, "part lies outside the whole");
    return true;
}

static bool check_shares(const struct checker *c, value_id id)
{
    const struct value *v = graph_value(c->g, id);
    if (!v->shares) return true;
    const struct value *with = v->shares < c->g->value.n ? graph_value(c->g, v->shares) : NULL;
    bool fits = with && v->shares != id && !with->producer && !with->is_const && with->dtype == v->dtype && with->shape.known && v->shape.known && with->shape.rank == v->shape.rank;
    return fits || bad_value(c, id, "shares the memory of no input of its type");
}

static bool check_const(const struct checker *c, value_id id)
{
    const struct value *v = graph_value(c->g, id);
    if (v->data && !v->is_const) return bad_value(c, id, "content without being a constant");
    if (!v->is_const) return true;
    if (v->producer) return bad_value(c, id, "constant has a producer");
    if (!v->data) return true;
    i64 dim[MAX_RANK];
    if (v->data->dtype != v->dtype) return bad_value(c, id, "constant's dtype disagrees");
    if (!shape_is_static(c->g->sym, &v->shape, dim) || v->shape.rank != v->data->rank)
        return bad_value(c, id, "constant's shape disagrees");
    for (u32 k = 0; k < v->shape.rank; k++)
        if (dim[k] != v->data->dim[k]) return bad_value(c, id, "constant's shape disagrees");
    return true;
}

static bool check_sdata(const struct checker *c, value_id id)
{
    const struct sym_data *d = graph_value(c->g, id)->sdata;
    if (!d) return true;
    if (d->n < 0 || d->den <= 0) return bad_value(c, id, "invalid symbolic content");
    for (i64 k = 0; k < d->n; k++)
        if (!d->num[k] || d->num[k] >= c->g->sym->node.n)
            return bad_value(c, id, "invalid symbolic content");
    return true;
}

static bool check_value(const struct checker *c, value_id id)
{
    const struct value *v = graph_value(c->g, id);
    if (v->name.n <= 0) return err_set(c->e, ERR_INPUT, "value %u has no name", id);
    if (graph_find(c->g, v->name) != id) return bad_value(c, id, "name is not unique");
    if (v->producer >= c->g->node.n) return bad_value(c, id, "producer out of range");
    if (v->producer) {
        const struct node *p = graph_node(c->g, v->producer);
        if (!p->dead && (v->out_index >= p->out.n || p->out.v[v->out_index] != id))
            return bad_value(c, id, "producer does not list it");
    }
    return check_shape(c, id) && check_part(c, id) && check_shares(c, id) && check_const(c, id) && check_sdata(c, id);
}

static bool verify(const struct graph *g, u32 depth, struct err *e);

static bool check_body(const struct checker *c, node_id id, const struct graph *body)
{
    if (!body || body->sym != c->g->sym) return bad_node(c, id, "a body with sizes of its own");
    if (c->depth == MAX_BODIES) return bad_node(c, id, "bodies are nested too deeply");
    return verify(body, c->depth + 1, c->e) || err_prefix(c->e, "in a body of node '%.*s'", STR_ARG(graph_node(c->g, id)->name));
}

static bool check_node(const struct checker *c, node_id id)
{
    const struct node *n = graph_node(c->g, id);
    if (n->dead) return true;
    if (n->op.n <= 0) return bad_node(c, id, "no operator");
    for (u32 k = 0; k < n->in.n; k++)
        if (n->in.v[k] >= c->g->value.n) return bad_node(c, id, "input out of range");
    for (u32 k = 0; k < n->out.n; k++) {
        if (n->out.v[k] >= c->g->value.n) return bad_node(c, id, "output out of range");
        if (!n->out.v[k]) continue;
        const struct value *v = graph_value(c->g, n->out.v[k]);
        if (v->producer != id || v->out_index != k)
            return bad_value(c, n->out.v[k], "more than one producer");
    }
    for (u32 k = 0; k < n->attr.n; k++)
        if (n->attr.v[k].name.n <= 0 || n->attr.v[k].n < 0) return bad_node(c, id, "invalid attribute");
    for (u32 k = 0; k < n->attr.n; k++)
        if (n->attr.v[k].kind == ATTR_GRAPH && !check_body(c, id, n->attr.v[k].graph)) return false;
    return true;
}

/* Interface lists hold distinct ids in range; inputs have neither producer nor content. */
static bool check_interface(const struct checker *c, u8 *is_input)
{
    const struct graph *g = c->g;
    for (u32 k = 0; k < g->input.n; k++) {
        value_id v = g->input.v[k];
        if (!v || v >= g->value.n) return err_set(c->e, ERR_INPUT, "graph input %u out of range", k);
        if (is_input[v]) return bad_value(c, v, "listed twice as graph input");
        if (graph_value(g, v)->producer) return bad_value(c, v, "graph input has a producer");
        if (graph_value(g, v)->is_const) return bad_value(c, v, "graph input is a constant");
        is_input[v] = 1;
    }
    for (u32 k = 0; k < g->output.n; k++)
        if (!g->output.v[k] || g->output.v[k] >= g->value.n)
            return err_set(c->e, ERR_INPUT, "graph output %u out of range", k);
    return true;
}

/* Used values must be defined. */
static bool check_source(const struct checker *c, value_id v, const u8 *is_input)
{
    if (!v || is_input[v]) return true;
    const struct value *val = graph_value(c->g, v);
    if (val->is_const) return true;
    if (val->producer && !graph_node(c->g, val->producer)->dead) return true;
    return bad_value(c, v, "no producer");
}

static bool check_sources(const struct checker *c, const u8 *is_input)
{
    for (node_id n = 1; n < c->g->node.n; n++) {
        const struct node *nd = graph_node(c->g, n);
        for (u32 k = 0; !nd->dead && k < nd->in.n; k++)
            if (!check_source(c, nd->in.v[k], is_input)) return false;
    }
    for (u32 k = 0; k < c->g->output.n; k++)
        if (!check_source(c, c->g->output.v[k], is_input)) return false;
    for (u32 k = 0; k < c->g->made.n; k++)
        if (!check_source(c, c->g->made.v[k].v, is_input)) return false;
    return true;
}

static bool check_made(const struct checker *c)
{
    const struct graph *g = c->g;
    for (u32 k = 0; k < g->made.n; k++) {
        const struct made_size *m = &g->made.v[k];
        i64 n;
        if (m->var >= g->sym->var.n || m->expr >= g->sym->node.n || m->most >= g->sym->node.n || (m->v != 0) == (m->expr != 0) ||
            m->v >= g->value.n || (unsigned)m->take >= N_SIZE_TAKES)
            return err_set(c->e, ERR_INPUT, "invalid data-dependent size %u", k);
        if (!m->v || !graph_value(g, m->v)->shape.known) continue;
        if (!sym_is_const(g->sym, shape_count(g->sym, &graph_value(g, m->v)->shape), &n) || m->at < 0 || m->at >= n)
            return bad_value(c, m->v, "a data-dependent size refers to a missing element");
        if (dtype_kind(graph_value(g, m->v)->dtype) == DK_FLOAT) return bad_value(c, m->v, "a data-dependent size refers to an element that is no integer");
    }
    return true;
}

/* Peels off nodes all of whose inputs are made, until none is left (a cycle would remain). The users of each
   value are chained: next[] links uses, head[] starts the chain of a value. */
struct peel {
    u32 *missing;             /* per node: inputs not made yet */
    u32 *head;                /* per node: 1 + index of the first use of its outputs */
    struct { struct { node_id user; u32 next; } *v; u32 n, cap; } use;
    struct { node_id *v; u32 n, cap; } ready;
};

static void peel_uses(struct peel *p, const struct graph *g, struct arena *a)
{
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *nd = graph_node(g, n);
        if (nd->dead) continue;
        for (u32 k = 0; k < nd->in.n; k++) {
            node_id from = nd->in.v[k] ? graph_value(g, nd->in.v[k])->producer : 0;
            if (!from) continue;
            arr_push(a, &p->use);
            p->use.v[p->use.n - 1].user = n;
            p->use.v[p->use.n - 1].next = p->head[from];
            p->head[from] = p->use.n;
            p->missing[n]++;
        }
        if (!p->missing[n]) *arr_push(a, &p->ready) = n;
    }
}

static bool check_acyclic(const struct checker *c, struct arena *a)
{
    const struct graph *g = c->g;
    struct peel p = {.missing = arena_array(a, u32, g->node.n), .head = arena_array(a, u32, g->node.n)};
    peel_uses(&p, g, a);
    while (p.ready.n > 0) {
        node_id n = p.ready.v[--p.ready.n];
        for (u32 u = p.head[n]; u; u = p.use.v[u - 1].next)
            if (--p.missing[p.use.v[u - 1].user] == 0) *arr_push(a, &p.ready) = p.use.v[u - 1].user;
    }
    for (node_id n = 1; n < g->node.n; n++)
        if (p.missing[n]) return bad_node(c, n, "graph has a cycle");
    return true;
}

static bool check_all(const struct checker *c, struct arena *scratch)
{
    u8 *is_input = arena_array(scratch, u8, c->g->value.n);
    for (value_id v = 1; v < c->g->value.n; v++)
        if (!check_value(c, v)) return false;
    for (node_id n = 1; n < c->g->node.n; n++)
        if (!check_node(c, n)) return false;
    return check_interface(c, is_input) && check_sources(c, is_input) && check_made(c) && check_acyclic(c, scratch);
}

static bool verify(const struct graph *g, u32 depth, struct err *e)
{
    struct checker c = {.g = g, .e = e, .depth = depth};
    struct arena scratch = {0};
    assert(g->value.n > 0 && g->node.n > 0 && g->sym);
    bool ok = check_all(&c, &scratch);
    arena_release(&scratch);
    return ok;
}

bool graph_verify(const struct graph *g, struct err *e) { return verify(g, 0, e); }
