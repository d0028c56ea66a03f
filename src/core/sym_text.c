// SPDX-License-Identifier: Apache-2.0
//
// Symbolic sizes: evaluation, text form, copying between tables.
//
//   sum  = ["-"] term { ("+" | "-") term }
//   term = unary { ("*" | "//" | "%") unary }         from left to right; "//" and "%" round down
//   unary = "-" unary | number | name | "'" quoted "'" | "(" sum ")"
//         | ("min" | "max") "(" sum "," sum ")"
//
// A name that is no identifier is quoted; inside quotes \' \\ and \xHH denote the byte.
// Printed text parses to the same expression; in the same table that is the same id. Sizes
// of expressions are bounded (SYM_MAX_SIZE), so these functions may recurse over them.
#include "core/sym_poly.h"

/* Evaluation. */

static bool floor_div_ok(i64 a, i64 b, i64 *out)
{
    if (b == 0) return false;
    *out = a / b - (a % b != 0 && (a < 0) != (b < 0));
    return true;
}

bool sym_eval(const struct symtab *t, sym s, const i64 *var, i64 *out)
{
    const struct sym_node *x = &t->node.v[s];
    i64 a = 0, b = 0;
    bool leaf = x->op == SYM_CONST || x->op == SYM_VAR, ok = false;
    if (s == 0) return false;
    if (!leaf && !(sym_eval(t, x->a, var, &a) && sym_eval(t, x->b, var, &b))) return false;
    switch (x->op) {
    case SYM_CONST: ok = true, *out = x->value; break;
    case SYM_VAR: ok = true, *out = var[x->a]; break;
    case SYM_ADD: ok = !__builtin_add_overflow(a, b, out); break;
    case SYM_MUL: ok = !__builtin_mul_overflow(a, b, out); break;
    case SYM_DIV: ok = floor_div_ok(a, b, out); break;
    case SYM_MIN: ok = true, *out = i64_min(a, b); break;
    case SYM_MAX: ok = true, *out = i64_max(a, b); break;
    }
    return ok && *out != INT64_MIN;
}

/* Sums, products, quotients by non-zero divisors: all are monotonic in each operand as long as the
   other one keeps its sign, so the extremes are at the corners. */
static bool bounds_of_corners(enum sym_op op, struct sym_bounds a, struct sym_bounds b, struct sym_bounds *out)
{
    *out = (struct sym_bounds){INT64_MAX, INT64_MIN};
    if (op == SYM_DIV && b.least <= 0 && b.most >= 0) return false;
    for (u32 k = 0; k < 4; k++) {
        i64 x = k & 1 ? a.most : a.least, y = k & 2 ? b.most : b.least, v;
        bool ok = op == SYM_ADD ? !__builtin_add_overflow(x, y, &v) : op == SYM_MUL ? !__builtin_mul_overflow(x, y, &v) : floor_div_ok(x, y, &v);
        if (!ok || v == INT64_MIN) return false;
        out->least = i64_min(out->least, v), out->most = i64_max(out->most, v);
    }
    return true;
}

bool sym_eval_bounds(const struct symtab *t, sym s, const struct sym_bounds *var, struct sym_bounds *out)
{
    const struct sym_node *x = &t->node.v[s];
    struct sym_bounds a, b;
    if (s == 0) return false;
    if (x->op == SYM_CONST) return *out = (struct sym_bounds){x->value, x->value}, true;
    if (x->op == SYM_VAR) return *out = var[x->a], out->least != INT64_MIN;
    if (!sym_eval_bounds(t, x->a, var, &a) || !sym_eval_bounds(t, x->b, var, &b)) return false;
    if (x->op == SYM_MIN) *out = (struct sym_bounds){i64_min(a.least, b.least), i64_min(a.most, b.most)};
    else if (x->op == SYM_MAX) *out = (struct sym_bounds){i64_max(a.least, b.least), i64_max(a.most, b.most)};
    else return bounds_of_corners(x->op, a, b, out);
    return true;
}

/* Printing. */

static bool is_name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

static bool is_function(struct str s) { return str_is(s, "min") || str_is(s, "max"); }

static void print_name(struct buf *b, struct str s)
{
    bool plain = s.n > 0 && !is_function(s);
    for (i64 i = 0; i < s.n; i++) plain = plain && is_name_char(s.p[i], i == 0);
    if (plain) {
        buf_str(b, s);
        return;
    }
    buf_char(b, '\'');
    for (i64 i = 0; i < s.n; i++) {
        u8 c = (u8)s.p[i];
        if (c == '\'' || c == '\\') buf_printf(b, "\\%c", c);
        else if (c < ' ' || c == 0x7f) buf_printf(b, "\\x%02x", c);
        else buf_char(b, (char)c);
    }
    buf_char(b, '\'');
}

static void print_term(struct buf *b, const struct symtab *t, sym s, bool first);

static void print_parens(struct buf *b, const struct symtab *t, sym s)
{
    buf_char(b, '(');
    sym_print(b, t, s);
    buf_char(b, ')');
}

static void print_floor(struct buf *b, const struct symtab *t, const struct sym_node *x)
{
    u8 op = t->node.v[x->b].op;
    if (t->node.v[x->a].op == SYM_ADD) print_parens(b, t, x->a);
    else print_term(b, t, x->a, true);
    buf_z(b, "//");
    if (op == SYM_ADD || op == SYM_MUL || op == SYM_DIV) print_parens(b, t, x->b);
    else print_term(b, t, x->b, true);
}

/* A product of atoms. A floor may be printed without parentheses only
   at the front, without a sign of its own: -H//2 is the floor of -H/2. */
static void print_mono(struct buf *b, const struct symtab *t, sym s, bool front)
{
    const struct sym_node *x = &t->node.v[s];
    switch (x->op) {
    case SYM_MUL:
        print_mono(b, t, x->a, front);
        buf_char(b, '*');
        print_mono(b, t, x->b, false);
        break;
    case SYM_VAR: print_name(b, t->var.v[x->a]); break;
    case SYM_DIV:
        if (front) print_floor(b, t, x);
        else print_parens(b, t, s);
        break;
    case SYM_MIN:
    case SYM_MAX:
        buf_z(b, x->op == SYM_MIN ? "min(" : "max(");
        sym_print(b, t, x->a);
        buf_char(b, ',');
        sym_print(b, t, x->b);
        buf_char(b, ')');
        break;
    case SYM_CONST:
    case SYM_ADD: unreachable();
    }
}

static void print_term(struct buf *b, const struct symtab *t, sym s, bool first)
{
    const struct sym_node *x = &t->node.v[s];
    i64 c = 1;
    sym mono = s;
    if (sym_is_const(t, s, &c)) mono = 0;
    else if (x->op == SYM_MUL && sym_is_const(t, x->b, &c)) mono = x->a;
    if (c < 0 || !first) buf_char(b, c < 0 ? '-' : '+');
    if (mono) print_mono(b, t, mono, c > 0 || !first);
    if (c < 0) c = -c;
    if (mono == 0 || c != 1) buf_printf(b, mono ? "*%lld" : "%lld", (long long)c);
}

void sym_print(struct buf *b, const struct symtab *t, sym s)
{
    const struct sym_node *x = &t->node.v[s];
    if (s == 0) {
        buf_char(b, '?');
    } else if (x->op == SYM_ADD) {
        sym_print(b, t, x->a);
        print_term(b, t, x->b, false);
    } else {
        print_term(b, t, s, true);
    }
}

/* Parsing. */

struct parser {
    struct symtab *t;
    struct str text, rest; /* rest: the unread text, without leading white space */
    struct err *err;
    int depth;
};

enum { DEPTH_MAX = 200 };

static sym parse_sum(struct parser *p);

static sym parse_error(struct parser *p, const char *what)
{
    i64 at = p->text.n - p->rest.n;
    err_set(p->err, ERR_INPUT, "%s in size expression '%.*s' at column %lld", what,
            STR_ARG(str_sub(p->text, 0, 300)), (long long)at + 1);
    return 0;
}

static void skip(struct parser *p, i64 n)
{
    p->rest = str_sub(p->rest, n, p->rest.n);
    while (p->rest.n && (p->rest.p[0] == ' ' || p->rest.p[0] == '\t'))
        p->rest = str_sub(p->rest, 1, p->rest.n);
}

static bool take(struct parser *p, const char *token)
{
    struct str s = str_of(token);
    if (!str_starts(p->rest, s)) return false;
    skip(p, s.n);
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of a quoted name; its length in the text, 0 if it is broken. */
static i64 quoted_byte(struct str s, char *out)
{
    if (s.n == 0 || s.p[0] != '\\') return s.n && (*out = s.p[0], true);
    if (s.n >= 2 && (s.p[1] == '\'' || s.p[1] == '\\')) return *out = s.p[1], 2;
    if (s.n < 4 || s.p[1] != 'x' || hex_digit(s.p[2]) < 0 || hex_digit(s.p[3]) < 0) return 0;
    *out = (char)(hex_digit(s.p[2]) * 16 + hex_digit(s.p[3]));
    return 4;
}

static sym parse_quoted(struct parser *p)
{
    struct buf name = {0};
    i64 at = 1, n = 1;
    char c;
    while (n && at < p->rest.n && p->rest.p[at] != '\'') {
        n = quoted_byte(str_sub(p->rest, at, p->rest.n), &c);
        if (n) buf_char(&name, c);
        at += n;
    }
    sym s = n && at < p->rest.n ? sym_var(p->t, buf_view(&name)) : parse_error(p, "broken name");
    buf_release(&name);
    skip(p, at + 1);
    return s;
}

static sym parse_number(struct parser *p)
{
    i64 n = 0, v;
    while (n < p->rest.n && p->rest.p[n] >= '0' && p->rest.p[n] <= '9') n++;
    if (!str_to_i64(str_sub(p->rest, 0, n), &v)) return parse_error(p, "number too large");
    skip(p, n);
    return sym_const(p->t, v);
}

static sym parse_call(struct parser *p, bool is_min)
{
    if (!take(p, "(")) return parse_error(p, "missing '('");
    sym a = parse_sum(p);
    if (a && !take(p, ",")) return parse_error(p, "missing ','");
    sym b = a ? parse_sum(p) : 0;
    if (b && !take(p, ")")) return parse_error(p, "missing ')'");
    return is_min ? sym_min(p->t, a, b) : sym_max(p->t, a, b);
}

static sym parse_name(struct parser *p)
{
    i64 n = 0;
    while (n < p->rest.n && is_name_char(p->rest.p[n], n == 0)) n++;
    struct str name = str_sub(p->rest, 0, n);
    skip(p, n);
    return is_function(name) ? parse_call(p, str_is(name, "min")) : sym_var(p->t, name);
}

static sym parse_unary(struct parser *p)
{
    char c = p->rest.n ? p->rest.p[0] : 0;
    if (c >= '0' && c <= '9') return parse_number(p);
    if (c == '\'') return parse_quoted(p);
    if (is_name_char(c, true)) return parse_name(p);
    if (++p->depth > DEPTH_MAX) return parse_error(p, "too deep nesting");
    sym s = 0;
    if (take(p, "-")) {
        s = sym_sub(p->t, sym_const(p->t, 0), parse_unary(p));
    } else if (take(p, "(")) {
        s = parse_sum(p);
        if (s && !take(p, ")")) s = parse_error(p, "missing ')'");
    } else {
        parse_error(p, "missing operand");
    }
    p->depth--;
    return s;
}

static sym parse_term(struct parser *p)
{
    sym s = parse_unary(p);
    while (s) {
        if (take(p, "*")) s = sym_mul(p->t, s, parse_unary(p));
        else if (take(p, "//")) s = sym_div(p->t, s, parse_unary(p));
        else if (take(p, "%")) s = sym_mod(p->t, s, parse_unary(p));
        else break;
    }
    return s;
}

static sym parse_sum(struct parser *p)
{
    if (++p->depth > DEPTH_MAX) return parse_error(p, "too deep nesting");
    sym s = parse_term(p);
    while (s) {
        if (take(p, "+")) s = sym_add(p->t, s, parse_term(p));
        else if (take(p, "-")) s = sym_sub(p->t, s, parse_term(p));
        else break;
    }
    p->depth--;
    return s;
}

sym sym_parse(struct symtab *t, struct str text, struct err *e)
{
    struct parser p = {.t = t, .text = text, .rest = text, .err = e};
    skip(&p, 0);
    sym s = parse_sum(&p);
    return s && p.rest.n ? parse_error(&p, "unexpected text") : s;
}

static const i64 max_size = (i64)1 << 40;

bool sym_parse_sizes(const struct symtab *st, const char *text, i64 *var, struct err *e)
{
    struct str rest = str_of(text), item, name, value;
    while (rest.n) {
        str_cut(rest, ',', &item, &rest);
        item = str_trim(item);
        i64 x;
        if (!(str_cut(item, '=', &name, &value) || str_cut(item, ':', &name, &value)) ||
            !str_to_i64(str_trim(value), &x) || x < 0)
            return err_set(e, ERR_USAGE, "size '%.*s' is not of the form NAME=NUMBER",
                           STR_ARG(item));
        if (x > max_size)
            return err_set(e, ERR_USAGE, "size '%.*s' is larger than %lld", STR_ARG(item), (long long)max_size);
        u32 v = 0;
        while (v < st->var.n && !str_eq(st->var.v[v], str_trim(name))) v++;
        if (v == st->var.n)
            return err_set(e, ERR_USAGE, "the model has no size named '%.*s'", STR_ARG(name));
        var[v] = x;
    }
    return true;
}
