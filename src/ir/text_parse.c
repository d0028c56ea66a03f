// SPDX-License-Identifier: Apache-2.0
//
// Reading of graphs from text, the inverse of text.c; doc/graph-ir.md is the normative description.
//
// The parser works on characters, without a token list, and is sticky: after the first error every step
// fails and the caller checks once. Values may be referred to before their statement; graph_verify at the
// end finds those without one. The text is untrusted: allocations are bounded by the length of the text.
#include <string.h>

#include "ir/ir.h"

enum { MAX_BODIES = 16 };   /* within each other */
enum { MAX_ATTRS = 1000 }; /* of a node: they are searched one by one */

struct parser {
    struct graph *g;
    struct arena *a;
    struct str s;
    i64 at;
    struct err *e;
    bool failed;
    u32 depth; /* in bodies */
};

static bool fail(struct parser *p, const char *what)
{
    i64 line = 1;
    if (p->failed) return false;
    p->failed = true;
    for (i64 k = 0; k < p->at && k < p->s.n; k++) line += p->s.p[k] == '\n';
    return err_set(p->e, ERR_INPUT, "graph text line %lld: %s", (long long)line, what);
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* White space and comments from '#' to the end of the line. */
static void skip_space(struct parser *p)
{
    bool comment = false;
    for (; p->at < p->s.n; p->at++) {
        char c = p->s.p[p->at];
        if (c == '#') comment = true;
        if (c == '\n') comment = false;
        if (!comment && !is_space(c)) return;
    }
}

/* The next character that is not white space, 0 at the end or after an error. */
static char peek(struct parser *p)
{
    skip_space(p);
    return p->at < p->s.n && !p->failed ? p->s.p[p->at] : 0;
}

static bool accept(struct parser *p, char c)
{
    if (peek(p) != c) return false;
    p->at++;
    return true;
}

static bool expect(struct parser *p, char c)
{
    char what[] = "expected ' '";
    what[10] = c;
    return accept(p, c) || fail(p, what);
}

static bool is_word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '/' || c == '-' || c == '+';
}

/* The word that starts here; also_colon: with ':' inside, as in operator names. May be empty. */
static struct str scan_word(struct parser *p, bool also_colon)
{
    skip_space(p);
    i64 from = p->at;
    while (p->at < p->s.n && (is_word_char(p->s.p[p->at]) || (also_colon && p->s.p[p->at] == ':'))) p->at++;
    return str_sub(p->s, from, p->at);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* One escape after the backslash: \" \\ \xHH. */
static char parse_escape(struct parser *p)
{
    char c = p->at < p->s.n ? p->s.p[p->at++] : 0;
    if (c == '"' || c == '\\') return c;
    if (c == 'x' && p->s.n - p->at >= 2) {
        int hi = hex_digit(p->s.p[p->at]), lo = hex_digit(p->s.p[p->at + 1]);
        p->at += 2;
        if (hi >= 0 && lo >= 0) return (char)(hi << 4 | lo);
    }
    fail(p, "invalid escape in string");
    return 0;
}

static struct str parse_quoted(struct parser *p)
{
    if (!expect(p, '"')) return (struct str){0};
    i64 from = p->at, n = 0;
    while (p->at < p->s.n && p->s.p[p->at] != '"') p->at += p->s.p[p->at] == '\\' ? 2 : 1;
    if (p->at >= p->s.n) return fail(p, "string without end"), (struct str){0};
    i64 end = p->at;
    char *out = arena_alloc(p->a, end - from + 1);
    for (p->at = from; p->at < end && !p->failed;) {
        char c = p->s.p[p->at++];
        out[n++] = c == '\\' ? parse_escape(p) : c;
    }
    p->at = end + 1;
    return (struct str){out, n};
}

/* A word or a string; empty only after an error. */
static struct str parse_word(struct parser *p, const char *what)
{
    struct str s = peek(p) == '"' ? parse_quoted(p) : scan_word(p, false);
    if (s.n == 0) fail(p, what);
    return s;
}

static i64 parse_int(struct parser *p)
{
    i64 v = 0;
    if (!str_to_i64(scan_word(p, false), &v)) fail(p, "expected an integer");
    return v;
}

static double parse_float(struct parser *p)
{
    double v = 0;
    if (!str_to_f64(scan_word(p, false), &v)) fail(p, "expected a number");
    return v;
}

/* '%' name, or '_' for none. */
static value_id parse_name(struct parser *p)
{
    if (accept(p, '_')) return 0;
    if (!expect(p, '%')) return 0;
    struct str name = parse_word(p, "expected a value's name");
    if (p->failed) return 0;
    value_id v = graph_find(p->g, name);
    return v ? v : graph_add_value(p->g, name);
}

/* A size: the text up to the next ',' or closing bracket outside of parentheses and quotes. */
static struct str scan_size(struct parser *p)
{
    skip_space(p);
    i64 from = p->at, depth = 0;
    bool quoted = false;
    for (; p->at < p->s.n; p->at++) {
        char c = p->s.p[p->at];
        if (c == '\'') quoted = !quoted;
        if (quoted && c == '\\') p->at++;
        if (quoted) continue;
        if (depth == 0 && (c == ',' || c == ']' || c == ')')) break;
        depth += (c == '(') - (c == ')');
    }
    return str_sub(p->s, from, p->at);
}

static sym parse_number(struct parser *p)
{
    struct str text = str_trim(scan_size(p));
    if (p->failed) return 0;
    struct err why = {0};
    sym s = sym_parse(p->g->sym, text, &why);
    if (!s) return fail(p, why.msg), 0;
    return s;
}

static sym parse_sym(struct parser *p)
{
    sym s = parse_number(p);
    i64 v;
    if (s && sym_is_const(p->g->sym, s, &v) && v < 0) return fail(p, "negative size"), 0;
    return s;
}

static enum dtype parse_dtype(struct parser *p)
{
    struct str s = scan_word(p, false);
    if (str_is(s, "none")) return DT_NONE;
    enum dtype t = dtype_parse(s);
    if (t == DT_NONE) fail(p, "unknown dtype");
    return t;
}

static struct shape parse_shape(struct parser *p)
{
    struct shape s = {0};
    if (!expect(p, '[')) return s;
    if (accept(p, '?')) return expect(p, ']'), s;
    s.known = true;
    if (accept(p, ']')) return s;
    do {
        if (s.rank == MAX_RANK) return fail(p, "rank too large"), s;
        s.dim[s.rank++] = parse_sym(p);
    } while (accept(p, ','));
    expect(p, ']');
    return s;
}

/* Symbolic content after "sym(". */
static const struct sym_data *parse_sdata(struct parser *p)
{
    struct { sym *v; u32 n, cap; } list = {0};
    struct sym_data *d = arena_new(p->a, struct sym_data);
    d->den = 1;
    if (!accept(p, ')')) {
        do {
            sym s = parse_number(p);
            *arr_push(p->a, &list) = s;
        } while (!p->failed && accept(p, ','));
        expect(p, ')');
    }
    if (accept(p, '/')) d->den = parse_int(p);
    if (d->den <= 0) fail(p, "symbolic content over a denominator that is not positive");
    d->num = list.v;
    d->n = list.n;
    return d;
}

/* After "part(": axis, first index, elements of the axis. */
static void parse_part(struct parser *p, struct part *t)
{
    i64 axis = parse_int(p);
    if (axis < 0 || axis >= MAX_RANK) fail(p, "axis of a part out of range");
    t->axis = p->failed ? 0 : (u32)axis;
    if (!expect(p, ',')) return;
    t->from = parse_sym(p);
    if (!expect(p, ',')) return;
    t->whole = parse_sym(p);
    expect(p, ')');
}

/* The word and a bracket, or nothing. */
static bool accept_word(struct parser *p, const char *word)
{
    i64 at = p->at;
    if (peek(p) == word[0] && str_is(scan_word(p, false), word)) return expect(p, '(');
    p->at = at;
    return false;
}

/* ": dtype[shape] @layout part(...) shares(...) sym(...)" of a value. */
static void parse_type(struct parser *p, value_id id)
{
    if (!expect(p, ':')) return;
    struct value *v = graph_value(p->g, id);
    if (v->dtype != DT_NONE || v->shape.known) fail(p, "value is defined twice");
    v->dtype = parse_dtype(p);
    v->shape = parse_shape(p);
    if (accept(p, '@')) {
        bool ok;
        v->layout = layout_parse(scan_word(p, false), &ok);
        if (!ok) fail(p, "unknown layout");
    }
    if (accept_word(p, "part")) parse_part(p, &v->part);
    if (accept_word(p, "shares")) {
        value_id with = parse_name(p);
        v = graph_value(p->g, id);
        v->shares = with;
        expect(p, ')');
    }
    if (accept_word(p, "sym")) v->sdata = parse_sdata(p);
}

static void parse_hex(struct parser *p, u8 *out, i64 n)
{
    if (!expect(p, '"')) return;
    for (i64 k = 0; k < n; k++, p->at += 2) {
        if (p->s.n - p->at < 2) return (void)fail(p, "content too short");
        int hi = hex_digit(p->s.p[p->at]), lo = hex_digit(p->s.p[p->at + 1]);
        if (hi < 0 || lo < 0) return (void)fail(p, "content too short or not hexadecimal");
        out[k] = (u8)(hi << 4 | lo);
    }
    expect(p, '"');
}

static void parse_numbers(struct parser *p, struct tensor *t)
{
    i64 n = tensor_count(t);
    if (!expect(p, '[')) return;
    for (i64 k = 0; k < n && !p->failed; k++) {
        if (k) expect(p, ',');
        if (dtype_is_float(t->dtype)) elem_set_f64(t->dtype, t->data, k, parse_float(p));
        else elem_set_i64(t->dtype, t->data, k, parse_int(p));
    }
    expect(p, ']');
}

/* The content of a constant: numbers in brackets or hex "...". */
static struct tensor *parse_content(struct parser *p, enum dtype t, const struct shape *s)
{
    i64 dim[MAX_RANK], bytes;
    if (p->failed || !shape_is_static(p->g->sym, s, dim)) return fail(p, "content needs a fixed shape"), NULL;
    if (t == DT_NONE || !tensor_size_ok(t, s->rank, dim, &bytes)) return fail(p, "invalid tensor size"), NULL;
    if (bytes / dtype_size(t) > p->s.n - p->at) return fail(p, "content too short"), NULL;
    struct tensor *out = tensor_new(p->a, t, s->rank, dim);
    if (peek(p) == '[') parse_numbers(p, out);
    else if (str_is(scan_word(p, false), "hex")) parse_hex(p, out->data, bytes);
    else fail(p, "expected '[' or hex");
    return out;
}

static void parse_const(struct parser *p)
{
    value_id id = parse_name(p);
    if (!id) return (void)fail(p, "constant without a name");
    parse_type(p, id);
    struct tensor *t = NULL;
    if (accept(p, '=')) {
        struct value *v = graph_value(p->g, id);
        t = parse_content(p, v->dtype, &v->shape);
    }
    if (p->failed) return;
    graph_value(p->g, id)->data = t;
    graph_value(p->g, id)->is_const = true;
}

static void parse_floats(struct parser *p, struct attr *a)
{
    struct { double *v; u32 n, cap; } list = {0};
    while (!p->failed && peek(p) != ']') {
        if (list.n) expect(p, ',');
        double v = parse_float(p);
        *arr_push(p->a, &list) = v;
    }
    a->kind = ATTR_FLOATS;
    a->floats = list.v;
    a->n = list.n;
}

static void parse_strs(struct parser *p, struct attr *a)
{
    struct { struct str *v; u32 n, cap; } list = {0};
    while (!p->failed && peek(p) != ']') {
        if (list.n) expect(p, ',');
        struct str v = parse_quoted(p);
        *arr_push(p->a, &list) = v;
    }
    a->kind = ATTR_STRS;
    a->strs = list.v;
    a->n = list.n;
}

static void parse_ints(struct parser *p, struct attr *a)
{
    struct { i64 *v; u32 n, cap; } list = {0};
    while (!p->failed && peek(p) != ']') {
        if (list.n) expect(p, ',');
        i64 v = parse_int(p);
        *arr_push(p->a, &list) = v;
    }
    a->kind = ATTR_INTS;
    a->ints = list.v;
    a->n = list.n;
}

static void parse_graph(struct parser *p);

/* After the word "graph". */
static void parse_body(struct parser *p, struct attr *a)
{
    struct graph *outer = p->g;
    a->kind = ATTR_GRAPH;
    a->graph = arena_new(p->a, struct graph);
    graph_init(a->graph, p->a, outer->sym);
    if (p->depth == MAX_BODIES) return (void)fail(p, "bodies are nested too deeply");
    p->g = a->graph;
    p->depth++;
    parse_graph(p);
    p->depth--;
    p->g = outer;
}

/* An attribute that starts with a word: an integer, a float, or the kind of what follows. */
static void parse_attr_word(struct parser *p, struct attr *a)
{
    struct str w = scan_word(p, false);
    if (str_is(w, "tensor")) {
        enum dtype t = parse_dtype(p);
        struct shape s = parse_shape(p);
        a->kind = ATTR_TENSOR;
        if (expect(p, '=')) a->t = parse_content(p, t, &s);
    } else if (str_is(w, "floats") || str_is(w, "strs")) {
        if (!expect(p, '[')) return;
        if (w.p[0] == 'f') parse_floats(p, a);
        else parse_strs(p, a);
        expect(p, ']');
    } else if (str_is(w, "graph")) {
        parse_body(p, a);
    } else if (str_to_i64(w, &a->i)) {
        a->kind = ATTR_INT;
    } else if (str_to_f64(w, &a->f)) {
        a->kind = ATTR_FLOAT;
    } else {
        fail(p, "expected an attribute's content");
    }
}

static void parse_attr(struct parser *p, node_id n)
{
    struct attr a = {.name = parse_word(p, "expected an attribute's name")};
    if (!expect(p, '=')) return;
    if (graph_node(p->g, n)->attr.n >= MAX_ATTRS) fail(p, "too many attributes");
    for (u32 k = 0; k < graph_node(p->g, n)->attr.n; k++)
        if (str_eq(graph_node(p->g, n)->attr.v[k].name, a.name)) fail(p, "attribute is given twice");
    if (peek(p) == '"') {
        a.kind = ATTR_STR;
        a.s = parse_quoted(p);
    } else if (accept(p, '[')) {
        parse_ints(p, &a);
        expect(p, ']');
    } else {
        parse_attr_word(p, &a);
    }
    if (!p->failed) attr_copy(p->g, n, &a);
}

/* "op "name" (in, in) {attributes}" after the results. */
static void parse_operation(struct parser *p, const struct value_list *out)
{
    struct str op = peek(p) == '"' ? parse_quoted(p) : scan_word(p, true);
    struct str name = peek(p) == '"' ? parse_quoted(p) : (struct str){0};
    if (op.n == 0) return (void)fail(p, "expected an operator");
    if (!expect(p, '(')) return;
    node_id n = graph_add_node(p->g, op, name);
    while (!p->failed && peek(p) != ')') {
        if (graph_node(p->g, n)->in.n) expect(p, ',');
        value_id v = parse_name(p);
        node_add_in(p->g, n, v);
    }
    expect(p, ')');
    for (u32 k = 0; k < out->n && !p->failed; k++) node_set_out(p->g, n, k, out->v[k]);
    if (!accept(p, '{')) return;
    do parse_attr(p, n);
    while (!p->failed && accept(p, ','));
    expect(p, '}');
}

static void parse_node(struct parser *p)
{
    struct value_list out = {0};
    while (!p->failed && peek(p) != '=') {
        if (out.n) expect(p, ',');
        value_id v = parse_name(p);
        *arr_push(p->a, &out) = v;
        if (v) parse_type(p, v);
        if (v && !p->failed && graph_value(p->g, v)->is_const) fail(p, "constant as a result");
        if (v && !p->failed && graph_value(p->g, v)->producer) fail(p, "value is made twice");
    }
    if (expect(p, '=')) parse_operation(p, &out);
}

static sym parse_bracketed(struct parser *p)
{
    sym s = expect(p, '(') ? parse_sym(p) : 0;
    expect(p, ')');
    return s;
}

static sym parse_fact_size(struct parser *p)
{
    struct err why = {0};
    struct str text = str_trim(scan_size(p));
    sym s = p->failed ? 0 : sym_parse_raw(p->g->sym, text, &why);
    if (!s && !p->failed) fail(p, why.msg);
    return s;
}

/* "(a, b)" after the kind, then the node that requires it. */
static struct sym_fact parse_fact_of(struct parser *p, enum sym_fact_kind kind)
{
    struct sym_fact f = {.kind = (u8)kind};
    expect(p, '(');
    f.a = parse_fact_size(p);
    expect(p, ',');
    f.b = parse_fact_size(p);
    expect(p, ')');
    if (!p->failed) f.origin = parse_quoted(p);
    return f;
}

/* After "by": see print_need. */
static struct sym_fact parse_need(struct parser *p)
{
    enum sym_fact_kind kind = FACT_EQUAL;
    if (peek(p) == '"') return (struct sym_fact){.origin = parse_quoted(p)};
    if (!sym_fact_parse_name(scan_word(p, false), &kind)) fail(p, "unknown kind of fact");
    return parse_fact_of(p, kind);
}

/* After "size": see print_made. */
static void parse_made(struct parser *p)
{
    struct made_size m = {0};
    bool raw = p->g->sym->raw;
    p->g->sym->raw = true;
    sym name = parse_bracketed(p);
    p->g->sym->raw = raw;
    if (p->failed || p->g->sym->node.v[name].op != SYM_VAR) return (void)fail(p, "expected the name of a size");
    m.var = p->g->sym->node.v[name].a;
    if (!expect(p, '=')) return;
    if (peek(p) == '(') {
        m.expr = parse_bracketed(p);
    } else {
        struct str w = peek(p) == '%' ? (struct str){0} : scan_word(p, false);
        m.take = str_is(w, "plus") ? SIZE_PLUS : str_is(w, "minus") ? SIZE_MINUS : SIZE_TAKE;
        if (w.n && m.take == SIZE_TAKE) return (void)fail(p, "expected plus, minus or a value");
        m.v = parse_name(p);
        if (!m.v || !expect(p, '[')) return (void)fail(p, "expected an element of a value");
        m.at = parse_int(p);
        expect(p, ']');
    }
    if (peek(p) == 'm') {
        if (!str_is(scan_word(p, false), "most")) return (void)fail(p, "expected most");
        m.most = parse_bracketed(p);
    }
    if (peek(p) == 'k') {
        if (!str_is(scan_word(p, false), "kept")) return (void)fail(p, "expected kept");
        m.is_kept = true;
    }
    if (peek(p) == 'b') {
        if (!str_is(scan_word(p, false), "by")) return (void)fail(p, "expected by");
        m.need = parse_need(p);
    }
    if (p->failed) return;
    if (graph_made(p->g, m.var)) return (void)fail(p, "size is made twice");
    graph_make_size(p->g, &m);
}

static void parse_fact(struct parser *p)
{
    enum sym_fact_kind kind = FACT_EQUAL;
    if (!sym_fact_parse_name(scan_word(p, false), &kind)) fail(p, "unknown kind of fact");
    struct sym_fact f = parse_fact_of(p, kind);
    if (!p->failed && !sym_require(p->g->sym, kind, f.a, f.b, f.origin)) fail(p, "fact that cannot hold");
}

/* Sizes of an input as named; the value's shape has the facts applied. */
static void parse_given(struct parser *p, value_id v)
{
    bool raw = p->g->sym->raw;
    p->g->sym->raw = true;
    parse_type(p, v);
    p->g->sym->raw = raw;
    struct shape s = graph_value(p->g, v)->shape;
    if (p->failed || !s.known || !p->g->sym->fact.n) return;
    value_set_given(p->g, v, &s);
    for (u32 k = 0; k < s.rank; k++) s.dim[k] = sym_current(p->g->sym, s.dim[k]);
    graph_value(p->g, v)->shape = s;
}

static void parse_statement(struct parser *p)
{
    char c = peek(p);
    if (c == '%' || c == '_' || c == '=') return parse_node(p);
    struct str w = scan_word(p, false);
    if (str_is(w, "const")) return parse_const(p);
    if (str_is(w, "size")) return parse_made(p);
    if (str_is(w, "fact")) return parse_fact(p);
    if (!str_is(w, "input") && !str_is(w, "output")) return (void)fail(p, "expected a statement");
    value_id v = parse_name(p);
    if (!v) return (void)fail(p, "expected a value");
    *arr_push(p->a, w.p[0] == 'i' ? &p->g->input : &p->g->output) = v;
    if (w.p[0] == 'i') parse_given(p, v);
}

static void parse_graph(struct parser *p)
{
    expect(p, '{');
    while (!p->failed && peek(p) != '}') parse_statement(p);
    expect(p, '}');
}

bool graph_parse(struct graph *g, struct arena *a, struct symtab *st, struct str text, struct err *e)
{
    struct parser p = {.g = g, .a = a, .s = text, .e = e};
    graph_init(g, a, st);
    if (!str_is(scan_word(&p, false), "graph")) return fail(&p, "expected 'graph'");
    parse_graph(&p);
    if (peek(&p)) fail(&p, "text after the end");
    return !p.failed && graph_verify(g, e);
}
