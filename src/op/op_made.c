// SPDX-License-Identifier: Apache-2.0
//
// Data-dependent sizes. An operator with sizes as an input (Reshape, Slice, Range ...) requests its
// content by op_data_ints. If that is symbolically unknown, each unknown element becomes a made
// size: the difference of two variables, because an element may be negative and a variable is not.
// Certain sizes are named by a variable of their own (op_let), so that shapes stay simple; its
// expression is evaluated on the host, once per run.
#include "op/op.h"

#include <string.h>

enum { MAX_ELEMS = 64, MAX_STEPS = 32 };

static bool mentions_made(const struct graph *g, sym s)
{
    const struct sym_node *x = &g->sym->node.v[s];
    if (s == 0 || x->op == SYM_CONST) return false;
    if (x->op == SYM_VAR) return graph_made(g, x->a) != NULL;
    return mentions_made(g, x->a) || mentions_made(g, x->b);
}

bool op_is_made(const struct graph *g, sym s) { return g->made.n && mentions_made(g, s); }

/* A new variable named after a value: letters, digits and _ of its name. */
static sym new_var(struct graph *g, value_id like, const char *what)
{
    struct buf b = {0};
    struct str from = like ? graph_value(g, like)->name : S("size");
    for (i64 i = 0; i < from.n; i++) {
        char c = from.p[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (i == 0 && c >= '0' && c <= '9') buf_char(&b, '_');
        buf_char(&b, word ? c : '_');
    }
    if (b.n == 0) buf_z(&b, "size");
    struct str base = str_dup(g->arena, buf_view(&b)), name = str_fmt(g->arena, "%.*s_%s", STR_ARG(base), what);
    for (i64 k = 2; map_get(&g->sym->names, name) != NULL; k++) name = str_fmt(g->arena, "%.*s_%s%lld", STR_ARG(base), what, (long long)k);
    buf_release(&b);
    return sym_var(g->sym, name);
}

static u32 var_index(const struct graph *g, sym v) { return g->sym->node.v[v].a; }

/* The node that is being inferred needs it, or n. */
static struct sym_fact need_of(struct graph *g, node_id n) { return (struct sym_fact){.origin = op_owner(g, g->at ? g->at : n)}; }

sym op_size_of(struct graph *g, value_id v, i64 at, value_id like, sym most)
{
    sym s = new_var(g, like, "n");
    node_id n = graph_value(g, like)->producer;
    graph_make_size(g, &(struct made_size){.var = var_index(g, s), .v = v, .at = at, .take = SIZE_TAKE, .most = most, .need = need_of(g, n)});
    return s;
}

void op_size_usual(struct graph *g, sym size, sym usual)
{
    for (u32 k = 0; k < g->made.n; k++)
        if (g->made.v[k].var == var_index(g, size)) g->made.v[k].usual = usual;
}

void op_size_keep(struct graph *g, sym size)
{
    for (u32 k = 0; k < g->made.n; k++)
        if (g->made.v[k].var == var_index(g, size)) g->made.v[k].is_kept = true;
}

sym op_size_plus(struct graph *g, value_id v, value_id like)
{
    sym s = new_var(g, like, "n");
    graph_make_size(g, &(struct made_size){.var = var_index(g, s), .v = v, .take = SIZE_PLUS, .need = need_of(g, 0)});
    return s;
}

sym op_let(struct graph *g, node_id n, sym expr, sym most) { return op_let_if(g, n, expr, most, 0, 0); }

sym op_let_if(struct graph *g, node_id n, sym expr, sym most, sym at_least, sym least)
{
    if (!op_is_made(g, expr) || g->sym->node.v[expr].op == SYM_VAR || !sym_is_defined(g->sym, expr)) return expr;
    for (u32 k = 0; k < g->made.n; k++)
        if (g->made.v[k].expr == expr) return sym_var(g->sym, g->sym->var.v[g->made.v[k].var]);
    value_id like = 0;
    for (u32 k = 0; k < graph_node(g, n)->out.n && !like; k++) like = graph_node(g, n)->out.v[k];
    sym s = new_var(g, like, "n");
    struct sym_fact need = need_of(g, n);
    if (at_least) need.kind = FACT_AT_LEAST, need.a = sym_plain(g->sym, at_least), need.b = sym_plain(g->sym, least);
    graph_make_size(g, &(struct made_size){.var = var_index(g, s), .expr = expr, .most = most, .need = need});
    return s;
}

/* The part of a - b that must vanish for the fact. */
static sym must_vanish(struct symtab *t, enum sym_fact_kind kind, sym a, sym b)
{
    if (kind == FACT_MULTIPLE) b = sym_mul(t, b, sym_div(t, a, b));
    if (kind == FACT_AT_LEAST) b = sym_max(t, a, b);
    if (kind == FACT_AT_MOST) b = sym_min(t, a, b);
    return sym_sub(t, a, b);
}

bool op_must(struct graph *g, node_id n, enum sym_fact_kind kind, sym a, sym b)
{
    i64 c;
    sym d = must_vanish(g->sym, kind, a, b);
    if (sym_is_const(g->sym, d, &c)) return c == 0;
    for (u32 k = 0; k < g->made.n; k++)
        if (g->made.v[k].expr == d) return true;
    if (!n) return true;
    struct sym_fact need = {.kind = (u8)kind, .a = sym_plain(g->sym, a), .b = sym_plain(g->sym, b), .origin = op_owner(g, n)};
    sym s = new_var(g, node_first_out(graph_node(g, n)), "difference");
    graph_make_size(g, &(struct made_size){.var = var_index(g, s), .expr = d, .most = sym_const(g->sym, 0), .need = need});
    return true;
}

void op_must_equal(struct graph *g, node_id n, sym a, sym b)
{
    if (op_is_made(g, a) || op_is_made(g, b)) (void)op_must(g, n, FACT_EQUAL, a, b);
}

/* content of values */

static bool content_of(struct graph *g, value_id v, u32 steps);

static bool is_same_elements(const struct graph *g, const struct node *x)
{
    static const char *const ops[] = {"Unsqueeze", "Squeeze", "Reshape", "quern::Reshape", "Flatten", "Identity", "Cast"};
    for (u32 k = 0; k < countof(ops); k++)
        if (str_is(x->op, ops[k])) return x->in.n && x->in.v[0] && dtype_is_int(graph_value(g, x->in.v[0])->dtype);
    return false;
}

static i64 count_of(const struct graph *g, value_id v)
{
    i64 n;
    return sym_is_const(g->sym, shape_count(g->sym, &graph_value(g, v)->shape), &n) ? n : -1;
}

/* The content of a concatenation of vectors from those of its parts. */
static bool content_of_parts(struct graph *g, value_id v, u32 steps)
{
    node_id p = graph_value(g, v)->producer;
    sym all[MAX_ELEMS];
    i64 n = 0;
    for (u32 k = 0; k < graph_node(g, p)->in.n; k++) {
        struct sym_data d;
        value_id in = graph_node(g, p)->in.v[k];
        if (!in || !content_of(g, in, steps) || !op_sym_content(g, in, MAX_ELEMS, &d) || d.den != 1 || n + d.n > MAX_ELEMS) return false;
        memcpy(all + n, d.num, (size_t)d.n * sizeof *all);
        n += d.n;
    }
    op_set_sdata(g, v, all, n, 1);
    return true;
}

enum { MAX_CONST_NODES = 64, MAX_CONST_ELEMS = 4096 };

struct const_nodes { node_id v[MAX_CONST_NODES]; u32 n; };

/* Adds the nodes that compute v in topological order. false: not from constants alone, or too many. */
static bool add_const_nodes(const struct graph *g, value_id v, struct const_nodes *c, u32 steps)
{
    const struct value *x = graph_value(g, v);
    if (x->data) return true;
    i64 n = x->producer && steps && x->shape.known ? count_of(g, v) : -1;
    if (n < 0 || n > MAX_CONST_ELEMS) return false;
    for (u32 k = 0; k < c->n; k++)
        if (c->v[k] == x->producer) return true;
    const struct node *p = graph_node(g, x->producer);
    if (op_of(g, x->producer) && op_of(g, x->producer)->props & OP_CALL) return false;
    for (u32 k = 0; k < p->in.n; k++)
        if (p->in.v[k] && !add_const_nodes(g, p->in.v[k], c, steps - 1)) return false;
    if (p->in.n == 0 || c->n == MAX_CONST_NODES) return false;
    c->v[c->n++] = x->producer;
    return true;
}

/* Values computed from constants alone are known, even without symbols: 16**0.5, the side of a
   square in some exporters. */
static bool content_of_constants(struct graph *g, value_id v)
{
    struct const_nodes c = {.n = 0};
    struct graph one;
    struct tensor *t = NULL;
    struct err unknown = {0};
    value_id *back;
    sym all[MAX_ELEMS];
    if (!add_const_nodes(g, v, &c, MAX_CONST_NODES) || c.n == 0) return false;
    graph_extract(&one, g, g->arena, c.v, c.n, &v, 1, &back);
    if (!graph_eval(&one, NULL, &t, g->arena, NULL, &unknown) || tensor_count(t) > MAX_ELEMS) return false;
    for (i64 i = 0; i < tensor_count(t); i++) all[i] = sym_const(g->sym, elem_i64(t->dtype, t->data, i));
    op_set_sdata(g, v, all, tensor_count(t), 1);
    return true;
}

static void make_content(struct graph *g, value_id v, i64 n)
{
    sym all[MAX_ELEMS];
    bool is_unsigned = dtype_kind(graph_value(g, v)->dtype) == DK_UINT;
    for (i64 i = 0; i < n; i++) {
        sym plus = new_var(g, v, "v"), minus = is_unsigned ? 0 : new_var(g, v, "m");
        struct made_size m = {.var = var_index(g, plus), .v = v, .at = i, .take = SIZE_PLUS, .need = need_of(g, 0)};
        graph_make_size(g, &m);
        m.var = minus ? var_index(g, minus) : 0, m.take = SIZE_MINUS;
        if (minus) graph_make_size(g, &m);
        all[i] = minus ? sym_sub(g->sym, plus, minus) : plus;
    }
    op_set_sdata(g, v, all, n, 1);
}

/* Gives v symbolic content if it has none. */
static bool content_of(struct graph *g, value_id v, u32 steps)
{
    struct sym_data d;
    if (op_sym_content(g, v, MAX_ELEMS, &d)) return d.den == 1;
    const struct value *x = graph_value(g, v);
    i64 n = x->shape.known ? count_of(g, v) : -1;
    if (n < 0 || n > MAX_ELEMS || !dtype_is_int(x->dtype)) return false;
    const struct node *p = x->producer && steps ? graph_node(g, x->producer) : NULL;
    if (p && str_is(p->op, "Concat") && x->shape.rank == 1 && content_of_parts(g, v, steps - 1)) return true;
    if (p && is_same_elements(g, p)) {
        value_id in = p->in.v[0];
        if (count_of(g, in) == n && content_of(g, in, steps - 1) && op_sym_content(g, in, MAX_ELEMS, &d) && d.n == n) {
            op_set_sdata(g, v, d.num, n, d.den);
            return true;
        }
    }
    if (!content_of_constants(g, v)) make_content(g, v, n);
    return true;
}

bool op_data_ints(struct graph *g, value_id v, sym out[], i64 max, i64 *n)
{
    if (op_sym_ints(g, v, out, max, n)) return true;
    return v && content_of(g, v, MAX_STEPS) && op_sym_ints(g, v, out, max, n);
}

bool op_data_sizes(struct graph *g, node_id n, value_id v, sym out[], i64 max, i64 *count)
{
    if (!op_data_ints(g, v, out, max, count)) return false;
    for (i64 i = 0; i < *count; i++) out[i] = op_let(g, n, out[i], 0);
    return true;
}

sym op_sym_equals(struct symtab *t, sym a, i64 c)
{
    sym d = sym_sub(t, a, sym_const(t, c)), zero = sym_const(t, 0), one = sym_const(t, 1);
    return sym_sub(t, one, sym_min(t, one, sym_max(t, d, sym_sub(t, zero, d))));
}
