// SPDX-License-Identifier: Apache-2.0
//
// Printing of graphs (text_parse.c reads them back; doc/graph-ir.md is the normative description).
// One statement per line; constants precede the node that first uses them. Everything is printed in
// the order of the interface and of the nodes, never in hash order, so equal graphs print alike.
//
// With `keys` the text identifies a computation: value names become numbers in order of appearance, node
// names and the content of large constants are omitted. Names of size variables stay: times depend on sizes.
#include "ir/ir.h"

enum { KEYS_MAX_CONTENT = 64 }; /* constants of at most this many elements keep their content in keys */

struct printer {
    struct buf *b;
    const struct graph *g;
    bool keys;
    u32 *number;     /* per value: 1 + its number in keys, 0 = has not appeared */
    u32 n_numbers;
    u8 *const_done;  /* per value: its statement is printed */
    u32 depth;       /* in bodies */
};

static bool is_word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '/' || c == '-';
}

static bool is_word(struct str s)
{
    for (i64 k = 0; k < s.n; k++)
        if (!is_word_char(s.p[k])) return false;
    return s.n > 0;
}

/* An operator's name: a word that may hold the "::" of its domain. */
static bool is_op_word(struct str s)
{
    for (i64 k = 0; k < s.n; k++)
        if (!is_word_char(s.p[k]) && s.p[k] != ':') return false;
    return s.n > 0;
}

/* Quoted; bytes that are not printable ASCII as \xHH, so that any name survives. */
static void print_quoted(struct buf *b, struct str s)
{
    buf_char(b, '"');
    for (i64 k = 0; k < s.n; k++) {
        u8 c = (u8)s.p[k];
        if (c == '"' || c == '\\') buf_printf(b, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f) buf_printf(b, "\\x%02x", c);
        else buf_char(b, (char)c);
    }
    buf_char(b, '"');
}

static void print_word(struct buf *b, struct str s)
{
    if (is_word(s)) buf_str(b, s);
    else print_quoted(b, s);
}

static void print_name(struct printer *p, value_id v)
{
    if (!v) {
        buf_char(p->b, '_');
        return;
    }
    buf_char(p->b, '%');
    if (!p->keys) {
        print_word(p->b, graph_value(p->g, v)->name);
        return;
    }
    if (!p->number[v]) p->number[v] = ++p->n_numbers;
    buf_printf(p->b, "%u", p->number[v] - 1);
}

static void print_dtype(struct buf *b, enum dtype t)
{
    buf_z(b, t == DT_NONE ? "none" : dtype_name(t));
}

static void print_float(struct buf *b, double v)
{
    i64 at = b->n;
    buf_f64(b, v);
    for (; at < b->n; at++) /* a float always shows that it is one */
        if (b->p[at] == '.' || b->p[at] == 'e' || b->p[at] == 'n') return;
    buf_z(b, ".0");
}

/* Readable text uses the names, which are equivalent given the facts; keys use the expressions. */
static void print_size(struct printer *p, sym s)
{
    sym_print(p->b, p->g->sym, p->keys ? s : sym_plain(p->g->sym, s));
}

static void print_sdata(struct printer *p, const struct sym_data *d)
{
    buf_z(p->b, " sym(");
    for (i64 k = 0; k < d->n; k++) {
        if (k) buf_z(p->b, ", ");
        print_size(p, d->num[k]);
    }
    buf_char(p->b, ')');
    if (d->den != 1) buf_printf(p->b, "/%lld", (long long)d->den);
}

static void print_part(struct printer *p, const struct part *t)
{
    buf_printf(p->b, " part(%u, ", t->axis);
    sym_print(p->b, p->g->sym, t->from);
    buf_z(p->b, ", ");
    sym_print(p->b, p->g->sym, t->whole);
    buf_char(p->b, ')');
}

/* "equal(n, 5) " */
static void print_fact_sizes(struct printer *p, const struct sym_fact *f)
{
    buf_printf(p->b, "%s(", sym_fact_name(f->kind));
    sym_print(p->b, p->g->sym, f->a);
    buf_z(p->b, ", ");
    sym_print(p->b, p->g->sym, f->b);
    buf_z(p->b, ") ");
}

static void print_fact(struct printer *p, const struct sym_fact *f)
{
    buf_z(p->b, "  fact ");
    print_fact_sizes(p, f);
    print_quoted(p->b, f->origin);
    buf_char(p->b, '\n');
}

static void print_value(struct printer *p, value_id id)
{
    print_name(p, id);
    if (!id) return;
    const struct value *v = graph_value(p->g, id);
    buf_z(p->b, ": ");
    print_dtype(p->b, v->dtype);
    buf_char(p->b, '[');
    if (!v->shape.known) buf_char(p->b, '?');
    for (u32 k = 0; v->shape.known && k < v->shape.rank; k++) {
        if (k) buf_char(p->b, ',');
        if (v->given && !p->keys) sym_print(p->b, p->g->sym, v->given->dim[k]);
        else print_size(p, v->shape.dim[k]);
    }
    buf_char(p->b, ']');
    if (v->layout != LAYOUT_ROWS) buf_printf(p->b, " @%s", layout_name(v->layout));
    if (v->part.whole) print_part(p, &v->part);
    if (v->shares) {
        buf_z(p->b, " shares(");
        print_name(p, v->shares);
        buf_char(p->b, ')');
    }
    if (v->sdata) print_sdata(p, v->sdata);
}

static bool has_nan(const struct tensor *t)
{
    i64 n = tensor_count(t);
    if (!dtype_is_float(t->dtype)) return false;
    for (i64 k = 0; k < n; k++) {
        double v = elem_f64(t->dtype, t->data, k);
        if (v != v) return true;
    }
    return false;
}

static void print_hex(struct buf *b, const struct tensor *t)
{
    static const char digit[] = "0123456789abcdef";
    const u8 *p = t->data;
    i64 n = tensor_bytes(t);
    buf_z(b, "hex \"");
    for (i64 k = 0; k < n; k++) {
        buf_char(b, digit[p[k] >> 4]);
        buf_char(b, digit[p[k] & 15]);
    }
    buf_char(b, '"');
}

/* Few elements as numbers; many, or NaNs (whose bits numbers lose), as little-endian bytes. */
static void print_content(struct buf *b, const struct tensor *t)
{
    i64 n = tensor_count(t);
    if (n > KEYS_MAX_CONTENT || has_nan(t)) {
        print_hex(b, t);
        return;
    }
    buf_char(b, '[');
    for (i64 k = 0; k < n; k++) {
        if (k) buf_z(b, ", ");
        if (dtype_is_float(t->dtype)) print_float(b, elem_f64(t->dtype, t->data, k));
        else buf_printf(b, "%lld", (long long)elem_i64(t->dtype, t->data, k));
    }
    buf_char(b, ']');
}

static void print_list(struct buf *b, const struct attr *a)
{
    buf_z(b, a->kind == ATTR_FLOATS ? "floats[" : a->kind == ATTR_STRS ? "strs[" : "[");
    for (i64 k = 0; k < a->n; k++) {
        if (k) buf_char(b, ',');
        if (a->kind == ATTR_INTS) buf_printf(b, "%lld", (long long)a->ints[k]);
        else if (a->kind == ATTR_FLOATS) print_float(b, a->floats[k]);
        else print_quoted(b, a->strs[k]);
    }
    buf_char(b, ']');
}

static void print_graph(const struct printer *outer, const struct graph *g);

static void print_attr(struct printer *p, const struct attr *a)
{
    struct buf *b = p->b;
    print_word(b, a->name);
    buf_char(b, '=');
    switch (a->kind) {
    case ATTR_INT: buf_printf(b, "%lld", (long long)a->i); return;
    case ATTR_FLOAT: print_float(b, a->f); return;
    case ATTR_STR: print_quoted(b, a->s); return;
    case ATTR_INTS:
    case ATTR_FLOATS:
    case ATTR_STRS: print_list(b, a); return;
    case ATTR_TENSOR:
        buf_z(b, "tensor ");
        print_dtype(b, a->t->dtype);
        buf_char(b, '[');
        for (u32 k = 0; k < a->t->rank; k++) buf_printf(b, k ? ",%lld" : "%lld", (long long)a->t->dim[k]);
        buf_z(b, "] = ");
        print_content(b, a->t);
        return;
    case ATTR_GRAPH: print_graph(p, a->graph); return;
    }
    unreachable();
}

/* Keys list attributes by name: the order in which a front end set them means nothing. */
static void print_attrs(struct printer *p, const struct node *n)
{
    struct arena scratch = {0};
    const struct attr **order = arena_array(&scratch, const struct attr *, n->attr.n + 1);
    for (u32 k = 0; k < n->attr.n; k++) {
        u32 at = k;
        for (; p->keys && at > 0 && str_cmp(order[at - 1]->name, n->attr.v[k].name) > 0; at--)
            order[at] = order[at - 1];
        order[at] = &n->attr.v[k];
    }
    for (u32 k = 0; k < n->attr.n; k++) {
        if (k) buf_z(p->b, ", ");
        print_attr(p, order[k]);
    }
    arena_release(&scratch);
}

/* Bodies are indented; facts belong to the whole. */
static void print_indent(const struct printer *p, const char *text)
{
    for (u32 k = 0; k < p->depth; k++) buf_z(p->b, "  ");
    buf_z(p->b, text);
}

static void print_const(struct printer *p, value_id id)
{
    if (!id || !graph_value(p->g, id)->is_const || p->const_done[id]) return;
    const struct tensor *t = graph_value(p->g, id)->data;
    p->const_done[id] = 1;
    print_indent(p, "  const ");
    print_value(p, id);
    if (t && !(p->keys && tensor_count(t) > KEYS_MAX_CONTENT)) {
        buf_z(p->b, " = ");
        print_content(p->b, t);
    }
    buf_char(p->b, '\n');
}

static void print_node(struct printer *p, const struct node *n)
{
    for (u32 k = 0; k < n->in.n; k++) print_const(p, n->in.v[k]);
    print_indent(p, "  ");
    for (u32 k = 0; k < n->out.n; k++) {
        if (k) buf_z(p->b, ", ");
        print_value(p, n->out.v[k]);
    }
    buf_z(p->b, n->out.n ? " = " : "= ");
    if (is_op_word(n->op)) buf_str(p->b, n->op);
    else print_quoted(p->b, n->op);
    if (n->name.n && !p->keys) {
        buf_char(p->b, ' ');
        print_quoted(p->b, n->name);
    }
    buf_char(p->b, '(');
    for (u32 k = 0; k < n->in.n; k++) {
        if (k) buf_z(p->b, ", ");
        print_name(p, n->in.v[k]);
    }
    buf_char(p->b, ')');
    if (n->attr.n) buf_z(p->b, " {");
    print_attrs(p, n);
    if (n->attr.n) buf_char(p->b, '}');
    buf_char(p->b, '\n');
}

/* ' by "Add 'y'"', ' by equal(n, 5) "Add 'y'"' */
static void print_need(struct printer *p, const struct sym_fact *f)
{
    if (p->keys || !f->origin.n) return;
    buf_z(p->b, " by ");
    if (f->a) print_fact_sizes(p, f);
    print_quoted(p->b, f->origin);
}

/* "size H = %v[2]" "size P = plus %v[0] most 4*N" "size T = (N+1)" */
static void print_made(struct printer *p, const struct made_size *m)
{
    static const char *const take[] = {"", "plus ", "minus "};
    bool raw = p->g->sym->raw;
    if (m->v) print_const(p, m->v);
    print_indent(p, "  size (");
    p->g->sym->raw = true; /* its name, without facts applied */
    sym_print(p->b, p->g->sym, sym_var(p->g->sym, p->g->sym->var.v[m->var]));
    p->g->sym->raw = raw;
    buf_z(p->b, ") = ");
    if (m->v) {
        buf_z(p->b, take[m->take]);
        print_name(p, m->v);
        buf_printf(p->b, "[%lld]", (long long)m->at);
    } else {
        buf_char(p->b, '(');
        sym_print(p->b, p->g->sym, m->expr);
        buf_char(p->b, ')');
    }
    if (m->most) {
        buf_z(p->b, " most (");
        sym_print(p->b, p->g->sym, m->most);
        buf_char(p->b, ')');
    }
    if (m->is_kept) buf_z(p->b, " kept");
    print_need(p, &m->need);
    buf_char(p->b, '\n');
}

static void print_all(struct printer *p)
{
    const struct graph *g = p->g;
    buf_z(p->b, "graph {\n");
    for (u32 k = 0; k < g->sym->fact.n && !p->keys && !p->depth; k++) print_fact(p, &g->sym->fact.v[k]);
    for (u32 k = 0; k < g->input.n; k++) {
        print_indent(p, "  input ");
        print_value(p, g->input.v[k]);
        buf_char(p->b, '\n');
    }
    for (node_id n = 1; n < g->node.n; n++)
        if (!graph_node(g, n)->dead) print_node(p, graph_node(g, n));
    for (u32 k = 0; k < g->made.n; k++) print_made(p, &g->made.v[k]);
    for (u32 k = 0; k < g->output.n; k++) print_const(p, g->output.v[k]);
    for (u32 k = 0; k < g->output.n; k++) {
        print_indent(p, "  output ");
        print_name(p, g->output.v[k]);
        buf_char(p->b, '\n');
    }
    print_indent(p, "}");
}

static void print_with(struct printer *p, const struct graph *g)
{
    struct arena scratch = {0};
    p->g = g;
    p->number = arena_array(&scratch, u32, g->value.n);
    p->const_done = arena_array(&scratch, u8, g->value.n);
    print_all(p);
    arena_release(&scratch);
}

static void print_graph(const struct printer *outer, const struct graph *g)
{
    struct printer p = {.b = outer->b, .keys = outer->keys, .depth = outer->depth + 1};
    print_with(&p, g);
}

void graph_print(struct buf *b, const struct graph *g, const struct graph_text_opts *o)
{
    struct printer p = {.b = b, .keys = o && o->keys};
    print_with(&p, g);
    buf_char(b, '\n');
}

void node_print_attrs(struct buf *b, const struct graph *g, node_id n)
{
    struct printer p = {.b = b, .g = g};
    print_attrs(&p, graph_node(g, n));
}
