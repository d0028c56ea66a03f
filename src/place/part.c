// SPDX-License-Identifier: Apache-2.0
//
// A sub-graph as a network of its own: its inputs and outputs, and its graph. Values that depend
// on nothing but constants and sizes of the network's inputs are computed again in each
// sub-graph that reads them.
//
// Sizes stay symbolic, with the names that they have in the network, and are found in the sizes
// of the sub-graph's inputs. Where these do not tell them (a sub-graph behind a layer of stride
// 2 sees H//2, but one of its operators needs H), the input of the network that does becomes an
// input of the sub-graph, though no operator of it reads its elements. A size that is found in
// data is one of the sub-graph's inputs' if it occurs in them; otherwise it is computed there
// from the same value, which becomes an input.
#include "place/part.h"

#include <string.h>

struct connector {
    struct place_parts *p;
    const struct place_net *x;
    struct arena *a; /* of the result */
    struct arena tmp;
    u32 *part_of;   /* per operator */
    bool *is_fixed; /* per value: is_param of its tensor, or made by a node of no operator */
};

/* --- values --- */

static bool is_fixed(const struct place_net *x, value_id v)
{
    const struct value *y = graph_value(&x->g, v);
    return y->is_const || (y->producer && x->op_of[y->producer] == UINT32_MAX);
}

static bool lists_sizes(const struct node *nd)
{
    return str_is(nd->op, "Shape") || str_is(nd->op, "Size");
}

static bool has_value(const value_id *v, u32 n, value_id want)
{
    for (u32 i = 0; i < n; i++)
        if (v[i] == want) return true;
    return false;
}

static void add_value(struct arena *a, struct place_part *p, value_id v, bool is_out)
{
    if (is_out) {
        if (!has_value(p->out.v, p->out.n, v)) *arr_push(a, &p->out) = v;
    } else if (!has_value(p->in.v, p->in.n, v)) *arr_push(a, &p->in) = v;
}

/* --- nodes of a part --- */

struct nodes {
    node_id *v;
    u32 n, cap;
};

struct gatherer {
    const struct place_net *x;
    const struct place_part *p;
    struct arena *a;
    bool *is_in;   /* per node */
    bool *is_made; /* per value: by an operator of the part, or its input */
};

/* Nodes of no operator that v is computed by. Sizes of what is not in the part are written down. */
static void gather_fixed(struct gatherer *t, value_id v)
{
    const struct graph *g = &t->x->g;
    node_id n = v ? graph_value(g, v)->producer : 0;
    if (!n || t->is_in[n] || t->x->op_of[n] != UINT32_MAX) return;
    const struct node *nd = graph_node(g, n);
    if (lists_sizes(nd) && !is_fixed(t->x, nd->in.v[0]) && !t->is_made[nd->in.v[0]]) return;
    t->is_in[n] = true;
    for (u32 i = 0; i < nd->in.n; i++) gather_fixed(t, nd->in.v[i]);
}

/* In topological order, those of no operator included. */
static void part_nodes(struct nodes *out, const struct place_net *x, const struct place_part *p,
                       struct arena *a)
{
    const struct graph *g = &x->g;
    struct gatherer t = {.x = x,
                         .p = p,
                         .a = a,
                         .is_in = arena_array(a, bool, g->node.n),
                         .is_made = arena_array(a, bool, g->value.n)};
    for (u32 i = 0; i < p->in.n; i++) t.is_made[p->in.v[i]] = true;
    for (u32 k = 0; k < p->op.n; k++) {
        const struct node *nd = graph_node(g, x->op.v[p->op.v[k]].node);
        t.is_in[x->op.v[p->op.v[k]].node] = true;
        for (u32 o = 0; o < nd->out.n; o++) t.is_made[nd->out.v[o]] = true;
    }
    for (u32 k = 0; k < p->op.n; k++) {
        const struct node *nd = graph_node(g, x->op.v[p->op.v[k]].node);
        for (u32 i = 0; i < nd->in.n; i++) gather_fixed(&t, nd->in.v[i]);
    }
    for (node_id n = 1; n < g->node.n; n++)
        if (t.is_in[n]) *arr_push(a, out) = n;
}

/* --- sizes --- */

enum { BOUND = 64 }; /* any size */

struct sizes {
    const struct graph *g;
    bool *is_needed; /* per variable */
    i64 *var;        /* per variable: INT64_MIN: not bound. The numbers themselves mean nothing */
    bool *seen;      /* per expression */
};

static void need_sym(struct sizes *z, sym s)
{
    if (!s || z->seen[s]) return;
    const struct sym_node *x = &z->g->sym->node.v[s];
    z->seen[s] = true;
    if (x->op == SYM_CONST) return;
    if (x->op == SYM_VAR) {
        z->is_needed[x->a] = true;
        return;
    }
    need_sym(z, x->a);
    need_sym(z, x->b);
}

static void need_value(struct sizes *z, const struct graph *g, value_id v)
{
    const struct value *x = v ? graph_value(g, v) : NULL;
    for (u32 d = 0; x && x->shape.known && d < x->shape.rank; d++) need_sym(z, x->shape.dim[d]);
    for (i64 i = 0; x && x->sdata && i < x->sdata->n; i++) need_sym(z, x->sdata->num[i]);
}

static void need_named(void *user, sym s) { need_sym(user, s); }

static void need_node(struct sizes *z, const struct graph *g, const struct node *nd);
static void bind_by(struct sizes *z, const struct graph *g, const value_id *in, u32 n);

/* What a body finds in data, or in the sizes of its own inputs, is its own. */
static void need_body(struct sizes *z, const struct graph *body)
{
    for (node_id n = 1; n < body->node.n; n++)
        if (!graph_node(body, n)->dead) need_node(z, body, graph_node(body, n));
    for (u32 k = 0; k < body->made.n; k++) {
        need_sym(z, body->made.v[k].expr);
        need_sym(z, body->made.v[k].most);
        z->var[body->made.v[k].var] = BOUND;
    }
    bind_by(z, body, body->input.v, body->input.n);
}

static void need_node(struct sizes *z, const struct graph *g, const struct node *nd)
{
    bool is_own = str_starts(nd->op, S("quern::")); /* operators with sizes as text */
    for (u32 k = 0; k < nd->in.n; k++) need_value(z, g, nd->in.v[k]);
    for (u32 k = 0; k < nd->out.n; k++) need_value(z, g, nd->out.v[k]);
    for (u32 k = 0; k < nd->attr.n; k++) {
        const struct attr *t = &nd->attr.v[k];
        if (is_own && t->kind == ATTR_STR) graph_text_sizes(g, t->s, need_named, z);
        for (i64 i = 0; is_own && t->kind == ATTR_STRS && i < t->n; i++)
            graph_text_sizes(g, t->strs[i], need_named, z);
        if (t->kind == ATTR_GRAPH) need_body(z, t->graph);
    }
}

/* What a run would bind by the sizes of these inputs (graph_bind). */
static void bind_by(struct sizes *z, const struct graph *g, const value_id *in, u32 n)
{
    bool more = true;
    for (u32 sums = 0; more; sums = 1) {
        more = !sums;
        for (u32 k = 0; k < n; k++) {
            struct shape s = value_given(z->g->sym, graph_value(g, in[k]));
            for (u32 d = 0; d < s.rank; d++)
                if (sums || z->g->sym->node.v[s.dim[d]].op == SYM_VAR)
                    more |= sym_solve(z->g->sym, s.dim[d], BOUND, z->var);
        }
    }
}

/* An input of the network that binds this variable, directly if one does. 0: none. */
static value_id input_with(const struct place_net *x, u32 var)
{
    value_id found = 0;
    for (u32 k = 0; k < x->g.input.n; k++) {
        struct shape s = value_given(x->g.sym, graph_value(&x->g, x->g.input.v[k]));
        for (u32 d = 0; d < s.rank; d++) {
            const struct sym_node *n = &x->g.sym->node.v[s.dim[d]];
            if (n->op == SYM_VAR && n->a == var) return x->g.input.v[k];
            if (!found && sym_has_var(x->g.sym, s.dim[d], var)) found = x->g.input.v[k];
        }
    }
    return found;
}

static bool no_size(const struct place_net *x, const struct place_part *p, u32 var, struct err *e)
{
    const struct str name = x->g.sym->var.v[var];
    return err_set(e, ERR_UNSUPPORTED,
                   "sub-graph from '%.*s' on needs size '%.*s', which none of its inputs tells; "
                   "leave it on the device of the operator that computes it",
                   STR_ARG(x->op.v[p->op.v[0]].name), STR_ARG(name));
}

struct connecting {
    struct connector *c;
    struct place_part *p;
    struct sizes z;
    struct err *e;
};

/* The value whose element is this size: made by the part or an input of it. */
static bool bind_made(struct connecting *t, const struct made_size *m)
{
    const struct graph *g = &t->c->x->g;
    if (!m->v) {
        need_sym(&t->z, m->expr); /* found in the next round */
    } else {
        node_id n = graph_value(g, m->v)->producer;
        bool is_inside = n && t->c->x->op_of[n] != UINT32_MAX &&
                         &t->c->p->v[t->c->part_of[t->c->x->op_of[n]]] == t->p;
        if (!is_inside && !is_fixed(t->c->x, m->v)) add_value(t->c->a, t->p, m->v, false);
    }
    t->z.var[m->var] = BOUND;
    return true;
}

/* Adds one input, or finds a size in data. */
static bool bind_one(struct connecting *t, u32 var)
{
    const struct made_size *m = graph_made(&t->c->x->g, var);
    if (m) return bind_made(t, m);
    value_id in = input_with(t->c->x, var);
    if (!in || has_value(t->p->in.v, t->p->in.n, in)) return no_size(t->c->x, t->p, var, t->e);
    add_value(t->c->a, t->p, in, false);
    return true;
}

static bool connect_sizes(struct connecting *t)
{
    const struct place_net *x = t->c->x;
    const struct graph *g = &x->g;
    u32 n_var = g->sym->var.n;
    struct nodes nodes = {0};
    if (!n_var) return true;
    t->z = (struct sizes){.g = g,
                          .is_needed = arena_array(&t->c->tmp, bool, n_var + 1),
                          .var = arena_array(&t->c->tmp, i64, n_var + 1)};
    t->z.seen = arena_array(&t->c->tmp, bool, g->sym->node.n + 1);
    part_nodes(&nodes, x, t->p, &t->c->tmp);
    for (u32 v = 0; v < n_var; v++) t->z.var[v] = INT64_MIN;
    for (u32 k = 0; k < nodes.n; k++) need_node(&t->z, g, graph_node(g, nodes.v[k]));
    for (bool more = true; more;) {
        more = false;
        for (u32 k = 0; k < t->p->in.n; k++) need_value(&t->z, g, t->p->in.v[k]);
        bind_by(&t->z, g, t->p->in.v, t->p->in.n);
        for (u32 v = 0; v < n_var && !more; v++) {
            if (!t->z.is_needed[v] || t->z.var[v] != INT64_MIN) continue;
            if (!bind_one(t, v)) return false;
            more = true;
        }
    }
    return true;
}

/* --- edges --- */

static void connect_in(struct connector *c, u32 i)
{
    struct place_part *p = &c->p->v[i];
    const struct graph *g = &c->x->g;
    for (u32 k = 0; k < p->op.n; k++) {
        const struct node *nd = graph_node(g, c->x->op.v[p->op.v[k]].node);
        for (u32 n = 0; n < nd->in.n; n++) {
            value_id v = nd->in.v[n];
            if (!v || is_fixed(c->x, v)) continue;
            node_id from = graph_value(g, v)->producer;
            if (!from || c->part_of[c->x->op_of[from]] != i) add_value(c->a, p, v, false);
        }
    }
}

static void add_after(struct arena *a, struct place_part *p, u32 part)
{
    u32 at = 0;
    while (at < p->after.n && p->after.v[at] < part) at++;
    if (at < p->after.n && p->after.v[at] == part) return;
    arr_push(a, &p->after);
    memmove(&p->after.v[at + 1], &p->after.v[at], sizeof p->after.v[0] * (p->after.n - 1 - at));
    p->after.v[at] = part;
}

/* What parts read from others; and what the network returns. */
static void connect_out(struct connector *c)
{
    const struct graph *g = &c->x->g;
    for (u32 i = 0; i < c->p->n; i++)
        for (u32 k = 0; k < c->p->v[i].in.n; k++) {
            value_id v = c->p->v[i].in.v[k];
            node_id from = graph_value(g, v)->producer;
            if (!from) continue;
            u32 part = c->part_of[c->x->op_of[from]];
            add_value(c->a, &c->p->v[part], v, true);
            add_after(c->a, &c->p->v[i], part);
        }
    for (u32 k = 0; k < g->output.n; k++) {
        node_id from = graph_value(g, g->output.v[k])->producer;
        if (from) add_value(c->a, &c->p->v[c->part_of[c->x->op_of[from]]], g->output.v[k], true);
    }
}

bool place_parts_connect(struct place_parts *p, const struct place_net *x, struct arena *a,
                         struct err *e)
{
    struct connector c = {.p = p, .x = x, .a = a};
    bool ok = true;
    c.part_of = arena_array(&c.tmp, u32, x->op.n + 1);
    for (u32 i = 0; i < p->n; i++)
        for (u32 k = 0; k < p->v[i].op.n; k++) c.part_of[p->v[i].op.v[k]] = i;
    for (u32 i = 0; i < p->n && ok; i++) {
        struct connecting t = {.c = &c, .p = &p->v[i], .e = e};
        connect_in(&c, i);
        ok = connect_sizes(&t) && mem_check(e, "dividing the network", S(""));
    }
    if (ok) connect_out(&c);
    arena_release(&c.tmp);
    return ok;
}

/* Whether a node that is not in the part, or the network's caller, needs v. */
static bool is_read_outside(const struct place_net *x, const bool *inside,
                            const struct value_list *users, value_id v)
{
    for (u32 k = 0; k < x->g.output.n; k++)
        if (x->g.output.v[k] == v) return true;
    for (u32 k = 0; k < x->g.made.n; k++)
        if (x->g.made.v[k].v == v) return true;
    for (u32 i = 0; i < users[v].n; i++)
        if (!inside[users[v].v[i]]) return true;
    return false;
}

void place_part_alone(struct place_part *p, const struct place_net *x, struct arena *a)
{
    const struct graph *g = &x->g;
    struct arena tmp = {0};
    bool *inside = arena_array(&tmp, bool, g->node.n);
    struct value_list *users = arena_array(&tmp, struct value_list, g->value.n);
    for (u32 k = 0; k < p->op.n; k++) inside[x->op.v[p->op.v[k]].node] = true;
    for (u32 k = 0; k < x->op.n; k++) {
        const struct node *nd = graph_node(g, x->op.v[k].node);
        for (u32 i = 0; i < nd->in.n; i++)
            if (nd->in.v[i]) *arr_push(&tmp, &users[nd->in.v[i]]) = x->op.v[k].node;
    }
    for (u32 k = 0; k < p->op.n; k++) {
        const struct node *nd = graph_node(g, x->op.v[p->op.v[k]].node);
        for (u32 i = 0; i < nd->in.n; i++)
            if (nd->in.v[i] && !is_fixed(x, nd->in.v[i]) &&
                !inside[graph_value(g, nd->in.v[i])->producer])
                add_value(a, p, nd->in.v[i], false);
        for (u32 i = 0; i < nd->out.n; i++)
            if (nd->out.v[i] && is_read_outside(x, inside, users, nd->out.v[i]))
                add_value(a, p, nd->out.v[i], true);
    }
    arena_release(&tmp);
}

/* --- graphs --- */

/* The sizes that a value lists, as a constant or as expressions. */
static value_id write_sizes(struct graph *g, value_id v)
{
    const struct sym_data *d = graph_value(g, v)->sdata;
    value_id part[MAX_RANK];
    i64 one = 1, zero = 0;
    assert(d && d->n <= MAX_RANK && d->den == 1);
    struct tensor *axes = tensor_new(g->arena, DT_I64, 1, &one);
    elem_set_i64(DT_I64, axes->data, 0, zero);
    const bool is_scalar = graph_value(g, v)->shape.rank == 0;
    for (i64 i = 0; i < d->n; i++) {
        part[i] = op_sym_scalar(g, DT_I64, d->num[i]);
        if (!is_scalar)
            part[i] = graph_op(g, "Unsqueeze", S(""), 2,
                               (value_id[]){part[i], graph_add_const(g, S("axes"), axes)});
    }
    if (is_scalar || d->n == 1) return part[0];
    value_id all = graph_op(g, "Concat", S(""), (u32)d->n, part);
    attr_set_int(g, graph_value(g, all)->producer, "axis", 0);
    return all;
}

/* Values of the part's graph by those of the network's. */
struct maker {
    struct graph *g;
    const struct place_net *x;
    const struct place_part *p;
    value_id *old, *now;
};

static void map_values(struct maker *m, const value_id *old, struct arena *a)
{
    m->now = arena_array(a, value_id, m->x->g.value.n);
    for (value_id v = 1; v < m->g->value.n; v++) m->now[old[v]] = v;
}

/* Inputs that no node reads. */
static value_id add_unread(struct graph *g, const struct value *from)
{
    value_id id = graph_add_value(g, from->name);
    struct value *v = graph_value(g, id);
    v->dtype = from->dtype, v->shape = from->shape;
    return id;
}

static void set_inputs(struct maker *m)
{
    struct graph *g = m->g;
    const struct value_list was = g->input;
    g->input = (struct value_list){0};
    for (u32 k = 0; k < m->p->in.n; k++) {
        value_id v = m->p->in.v[k];
        const struct value *from = graph_value(&m->x->g, v);
        if (!m->now[v]) m->now[v] = add_unread(g, from);
        struct shape given = value_given(g->sym, from);
        value_set_given(g, m->now[v], &given);
        *arr_push(g->arena, &g->input) = m->now[v];
    }
    for (u32 k = 0; k < was.n; k++)
        if (!has_value(g->input.v, g->input.n, was.v[k]))
            graph_replace(g, was.v[k], write_sizes(g, was.v[k]));
}

/* Whether a size found in data is found in this part: its value is here. Or it follows from others.
 */
static void set_made(struct maker *m)
{
    const struct graph *from = &m->x->g;
    struct sizes z = {.g = from, .var = arena_array(m->g->arena, i64, from->sym->var.n + 1)};
    for (u32 v = 0; v < from->sym->var.n; v++) z.var[v] = INT64_MIN;
    bind_by(&z, from, m->p->in.v, m->p->in.n);
    for (u32 k = 0; k < from->made.n; k++) {
        struct made_size s = from->made.v[k];
        i64 ignored;
        if (z.var[s.var] != INT64_MIN) continue;
        if (s.v ? !m->now[s.v] : !sym_eval(from->sym, s.expr, z.var, &ignored)) continue;
        if (s.v) s.v = m->now[s.v];
        z.var[s.var] = BOUND;
        graph_make_size(m->g, &s);
    }
}

void place_part_graph(struct graph *g, const struct place_net *x, const struct place_part *p,
                      struct arena *a)
{
    struct arena tmp = {0};
    struct nodes nodes = {0};
    struct maker m = {.g = g, .x = x, .p = p};
    struct err e = {0};
    value_id *back;
    part_nodes(&nodes, x, p, &tmp);
    graph_extract(g, &x->g, a, nodes.v, nodes.n, p->out.v, p->out.n, &back);
    map_values(&m, back, &tmp);
    const node_id n_copied = g->node.n; /* which have their types and shapes */
    set_inputs(&m);
    if (x->g.made.n) set_made(&m);
    bool ok = op_infer_from(g, n_copied, &e) && graph_sort(g, &e);
    assert(ok); /* sizes as constants, and an order that the network has */
    (void)ok;
    arena_release(&tmp);
}
