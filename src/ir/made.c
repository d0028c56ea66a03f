// SPDX-License-Identifier: Apache-2.0
//
// Data-dependent sizes: a variable is computed from an element of some value (a count, the second number of a target shape),
// or follows from other sizes. No node has such a variable as an input, its name occurs in shapes and in attributes; so the
// order is defined here: a node that uses a variable follows those that compute the elements which the variable depends on.
//
// These divide a run into phases. Phase 0 needs sizes of inputs only; a node that uses
// a size computed in phase p, or has an input of phase p + 1, belongs to phase p + 1.
#include "ir/ir.h"

#include <string.h>

enum { FAR_BITS = 40 }; /* starts and ends of slices are written as the largest integer */

const struct made_size *graph_made(const struct graph *g, u32 var)
{
    for (u32 k = 0; k < g->made.n; k++)
        if (g->made.v[k].var == var) return &g->made.v[k];
    return NULL;
}

void graph_make_size(struct graph *g, const struct made_size *m)
{
    assert(m->var < g->sym->var.n && (m->v != 0) != (m->expr != 0));
    if (graph_made(g, m->var)) return;
    *arr_push(g->arena, &g->made) = *m;
    if (m->expr) return;
    u32 at = g->made.n - 1; /* derived sizes follow those computed from elements */
    for (; at > 0 && g->made.v[at - 1].expr; at--) g->made.v[at] = g->made.v[at - 1];
    g->made.v[at] = *m;
}

/* Sets of nodes, one per made size: bit rows would be as large, lists are simple. */

static void add_source(struct arena *a, struct value_list *to, node_id p)
{
    for (u32 k = 0; k < to->n; k++)
        if (to->v[k] == p) return;
    *arr_push(a, to) = p;
}

struct mentions {
    const struct graph *g;
    struct arena *a;
    struct value_list *of_made; /* per made size */
    u32 *made;                  /* per variable: 1 + index into g->made, 0: an input's */
    u32 *seen;                  /* per expression: stamp of the last walk that met it */
    u32 stamp;
};

static void mention_var(struct mentions *m, u32 var, struct value_list *to)
{
    if (!m->made[var]) return;
    const struct value_list *from = &m->of_made[m->made[var] - 1];
    for (u32 k = 0; k < from->n; k++) add_source(m->a, to, from->v[k]);
}

static void mention_sym(struct mentions *m, sym s, struct value_list *to)
{
    if (!s || m->seen[s] == m->stamp) return;
    m->seen[s] = m->stamp;
    const struct sym_node *x = &m->g->sym->node.v[s];
    if (x->op == SYM_CONST) return;
    if (x->op == SYM_VAR) return mention_var(m, x->a, to);
    mention_sym(m, x->a, to);
    mention_sym(m, x->b, to);
}

static bool is_name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

/* Expressions in attributes are text: any name in it that is a variable's counts. */
void graph_text_sizes(const struct graph *g, struct str s, void (*see)(void *user, sym s), void *user)
{
    for (i64 i = 0; i < s.n;) {
        i64 from = i, end;
        if (s.p[i] == '\'') {
            for (from = ++i; i < s.n && s.p[i] != '\''; i++) {}
            end = i++;
        } else if (is_name_char(s.p[i], true)) {
            while (i < s.n && is_name_char(s.p[i], false)) i++;
            end = i;
        } else {
            i++;
            continue;
        }
        const u64 *known = map_get(&g->sym->names, str_sub(s, from, end));
        if (known) see(user, (sym)*known);
    }
}

struct mention_in_text { struct mentions *m; struct value_list *to; };

static void mention_named(void *user, sym s)
{
    const struct mention_in_text *x = user;
    mention_sym(x->m, s, x->to);
}

static void mention_text(struct mentions *m, struct str s, struct value_list *to)
{
    graph_text_sizes(m->g, s, mention_named, &(struct mention_in_text){m, to});
}

/* Content that consists of sizes is not read from memory. */
static void mention_value(struct mentions *m, const struct graph *g, value_id id, struct value_list *to)
{
    const struct value *v = id ? graph_value(g, id) : NULL;
    for (u32 d = 0; v && v->shape.known && d < v->shape.rank; d++) mention_sym(m, v->shape.dim[d], to);
    for (i64 i = 0; v && v->sdata && i < v->sdata->n; i++) mention_sym(m, v->sdata->num[i], to);
}

static void mention_in(struct mentions *m, const struct graph *g, const struct node *x, struct value_list *to);

static void mention_body(struct mentions *m, const struct graph *body, struct value_list *to)
{
    for (u32 k = 0; k < body->input.n; k++) mention_value(m, body, body->input.v[k], to);
    for (node_id n = 1; n < body->node.n; n++)
        if (!graph_node(body, n)->dead) mention_in(m, body, graph_node(body, n), to);
    for (u32 k = 0; k < body->made.n; k++) mention_sym(m, body->made.v[k].expr, to), mention_sym(m, body->made.v[k].most, to);
}

/* Inputs count, too: a node that makes values and their sizes at once mentions the sizes no earlier
   than their readers. */
static void mention_in(struct mentions *m, const struct graph *g, const struct node *x, struct value_list *to)
{
    for (u32 k = 0; k < x->in.n; k++) mention_value(m, g, x->in.v[k], to);
    for (u32 k = 0; k < x->out.n; k++) mention_value(m, g, x->out.v[k], to);
    for (u32 k = 0; k < x->attr.n; k++) {
        const struct attr *t = &x->attr.v[k];
        if (t->kind == ATTR_STR) mention_text(m, t->s, to);
        for (i64 i = 0; t->kind == ATTR_STRS && i < t->n; i++) mention_text(m, t->strs[i], to);
        if (t->kind == ATTR_GRAPH) mention_body(m, t->graph, to);
    }
}

static void mention_node(struct mentions *m, node_id n, struct value_list *to)
{
    u32 kept = 0;
    m->stamp++;
    mention_in(m, m->g, graph_node(m->g, n), to);
    for (u32 k = 0; k < to->n; k++)
        if (to->v[k] != n) to->v[kept++] = to->v[k];
    to->n = kept;
}

static void mentions_init(struct mentions *m, const struct graph *g, struct arena *a)
{
    *m = (struct mentions){.g = g, .a = a};
    m->of_made = arena_array(a, struct value_list, g->made.n + 1);
    m->made = arena_array(a, u32, g->sym->var.n + 1);
    m->seen = arena_array(a, u32, g->sym->node.n + 1);
    for (u32 k = 0; k < g->made.n; k++) {
        const struct made_size *s = &g->made.v[k];
        node_id p = s->v ? graph_value(g, s->v)->producer : 0;
        m->stamp++;
        if (p && !graph_node(g, p)->dead) add_source(a, &m->of_made[k], p);
        mention_sym(m, s->expr, &m->of_made[k]);
        m->made[s->var] = k + 1;
    }
}

struct value_list *graph_size_sources(const struct graph *g, struct arena *a)
{
    struct value_list *of = arena_array(a, struct value_list, g->node.n + 1);
    struct mentions m;
    if (g->made.n == 0) return of;
    mentions_init(&m, g, a);
    for (node_id n = 1; n < g->node.n; n++)
        if (!graph_node(g, n)->dead) mention_node(&m, n, &of[n]);
    return of;
}

u32 *graph_phases(const struct graph *g, struct arena *a)
{
    u32 *phase = arena_array(a, u32, g->node.n + 1);
    const struct value_list *from = graph_size_sources(g, a);
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead) continue;
        for (u32 k = 0; k < x->in.n; k++) {
            node_id p = x->in.v[k] ? graph_value(g, x->in.v[k])->producer : 0;
            if (phase[p] > phase[n]) phase[n] = phase[p];
        }
        for (u32 k = 0; k < from[n].n; k++)
            if (phase[from[n].v[k]] + 1 > phase[n]) phase[n] = phase[from[n].v[k]] + 1;
    }
    return phase;
}

i64 made_size_take(const struct made_size *m, i64 x)
{
    const i64 far = (i64)1 << FAR_BITS;
    x = i64_max(-far, i64_min(x, far));
    if (m->take == SIZE_PLUS) return i64_max(x, 0);
    if (m->take == SIZE_MINUS) return i64_max(-x, 0);
    return x < 0 ? INT64_MIN : x;
}

bool made_size_fails(const struct graph *g, u32 k, const i64 *var, struct err *e)
{
    struct arena tmp = {0};
    struct buf b = {0};
    struct sym_made *all = arena_array(&tmp, struct sym_made, g->made.n + 1);
    for (u32 i = 0; i < g->made.n; i++) {
        const struct made_size *m = &g->made.v[i];
        all[i] = (struct sym_made){.var = m->var, .expr = m->expr, .most = m->most, .at = m->at, .is_negated = m->take == SIZE_MINUS, .need = m->need};
        if (m->v) all[i].value = graph_value(g, m->v)->name;
    }
    sym_made_explain(&b, g->sym, all, g->made.n, k, var);
    err_set(e, ERR_INPUT, "%.*s", STR_ARG(buf_view(&b)));
    buf_release(&b);
    arena_release(&tmp);
    return false;
}

static bool is_size(const struct graph *g, const struct made_size *m, const i64 *var)
{
    i64 most, x = var[m->var];
    return x >= 0 && (!m->most || !sym_eval(g->sym, m->most, var, &most) || x <= most);
}

bool graph_make_sizes(const struct graph *g, i64 *var, struct err *e)
{
    for (u32 k = 0; k < g->made.n; k++) {
        const struct made_size *m = &g->made.v[k];
        if (var[m->var] == INT64_MIN && m->expr && !sym_eval(g->sym, m->expr, var, &var[m->var])) var[m->var] = INT64_MIN;
        if (var[m->var] != INT64_MIN && !is_size(g, m, var)) return made_size_fails(g, k, var, e);
    }
    return true;
}

static void guess(const struct graph *g, const struct made_size *m, i64 *var, i64 def)
{
    i64 x = def, most;
    if (m->expr && (!sym_eval(g->sym, m->expr, var, &x) || x < 0)) x = def;
    if (m->take == SIZE_MINUS) x = 0;
    if (m->most && sym_eval(g->sym, m->most, var, &most) && most >= 0 && (!m->expr || x > most)) x = most;
    if (m->usual && sym_eval(g->sym, m->usual, var, &most) && most >= 0) x = i64_min(x, most);
    var[m->var] = x;
}

static void adjust(const struct symtab *t, const struct sym_fact *f, i64 *var, const bool *fixed)
{
    struct sym_fact other = {.kind = f->kind, .a = f->b, .b = f->a};
    sym_fact_adjust_one(t, f, var, fixed);
    if (f->kind == FACT_EQUAL) sym_fact_adjust_one(t, &other, var, fixed);
}

/* Guesses run-time sizes from the sizes that they are compared with at run time. */
void graph_guess_sizes(const struct graph *g, i64 *var, i64 def)
{
    enum { MAX_PASSES = 3 };
    struct arena tmp = {0};
    if (!g->made.n) return;
    bool *fixed = arena_array(&tmp, bool, g->sym->var.n + 1);
    for (u32 v = 0; v < g->sym->var.n; v++) fixed[v] = true;
    for (u32 k = 0; k < g->made.n; k++) guess(g, &g->made.v[k], var, def), fixed[g->made.v[k].var] = !g->made.v[k].v;
    for (int pass = 0; pass < MAX_PASSES; pass++)
        for (u32 k = 0; k < g->made.n; k++) { /* elements first */
            const struct made_size *m = &g->made.v[k];
            if (m->need.a) adjust(g->sym, &m->need, var, fixed);
            if (m->expr) guess(g, m, var, def);
        }
    arena_release(&tmp);
}
