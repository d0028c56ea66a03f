// SPDX-License-Identifier: Apache-2.0
//
// Names of sizes that are expressions, as written by exporters: "4*Hq", "s0 + 1", "floor(s1/2)", "s77//2",
// "Max(1, s0)", "past_sequence_length + sequence_length". Anything else is a name, whatever characters it has.
//
//   sum = product { ("+" | "-") product }     product = power { ("*" | "/" | "//" | "%") power }     power = unary [ "**" number ]
//   unary = "-" unary | number | name | function "(" sum { "," sum } ")" | "(" sum ")"
//
// A quotient is exact until floor or ceiling rounds it, so values are fractions; a final fraction rounds down.
#include "import/import.h"

enum { MAX_TEXT = 300, MAX_DEPTH = 40, MAX_POWER = 4, MAX_ARGS = 8 };

struct fraction { sym num, den; };

struct parser {
    struct symtab *t;
    struct str rest;
    int depth;
    bool failed;
};

static struct fraction parse_sum(struct parser *p);

static struct fraction whole(struct parser *p, sym s) { return (struct fraction){s, sym_const(p->t, 1)}; }

static struct fraction fail(struct parser *p)
{
    p->failed = true;
    return whole(p, sym_const(p->t, 0));
}

static void skip(struct parser *p, i64 n)
{
    p->rest = str_trim(str_sub(p->rest, n, p->rest.n));
}

static bool take(struct parser *p, const char *token)
{
    if (!str_starts(p->rest, str_of(token))) return false;
    skip(p, str_of(token).n);
    return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static struct str scan(struct parser *p, bool letters)
{
    i64 n = 0;
    while (n < p->rest.n && (is_digit(p->rest.p[n]) || (letters && is_letter(p->rest.p[n])))) n++;
    struct str s = str_sub(p->rest, 0, n);
    skip(p, n);
    return s;
}

static struct fraction quotient(struct parser *p, struct fraction a, struct fraction b)
{
    return (struct fraction){sym_mul(p->t, a.num, b.den), sym_mul(p->t, a.den, b.num)};
}

static sym round_down(struct parser *p, struct fraction a) { return sym_div(p->t, a.num, a.den); }

static bool is_any(struct str s, const char *a, const char *b, const char *c)
{
    return str_is(s, a) || str_is(s, b) || str_is(s, c);
}

static struct fraction call(struct parser *p, struct str name, const struct fraction *arg, int n)
{
    struct symtab *t = p->t;
    bool largest = is_any(name, "Max", "max", "Maximum");
    if (n == 1 && is_any(name, "floor", "Floor", "FloorToInt")) return whole(p, round_down(p, arg[0]));
    if (n == 1 && is_any(name, "ceiling", "ceil", "CeilToInt")) return whole(p, sym_cdiv(t, arg[0].num, arg[0].den));
    if (n == 1 && is_any(name, "ToFloat", "Identity", "int")) return arg[0];
    if (n == 2 && is_any(name, "FloorDiv", "floordiv", "CleanDiv"))
        return whole(p, round_down(p, quotient(p, arg[0], arg[1])));
    if (n == 2 && is_any(name, "Mod", "PythonMod", "mod")) return whole(p, sym_mod(t, round_down(p, arg[0]), round_down(p, arg[1])));
    if (!largest && !is_any(name, "Min", "min", "Minimum")) return fail(p);
    sym s = round_down(p, arg[0]);
    for (int k = 1; k < n; k++) {
        sym b = round_down(p, arg[k]);
        s = largest ? sym_max(t, s, b) : sym_min(t, s, b);
    }
    return whole(p, s);
}

static struct fraction parse_call(struct parser *p, struct str name)
{
    struct fraction arg[MAX_ARGS];
    int n = 0;
    do {
        if (n == MAX_ARGS) return fail(p);
        arg[n++] = parse_sum(p);
    } while (!p->failed && take(p, ","));
    return p->failed || !take(p, ")") ? fail(p) : call(p, name, arg, n);
}

static struct fraction parse_inner(struct parser *p)
{
    i64 v;
    if (take(p, "-")) {
        struct fraction x = parse_inner(p);
        x.num = sym_sub(p->t, sym_const(p->t, 0), x.num);
        return x;
    }
    if (take(p, "(")) {
        struct fraction x = parse_sum(p);
        return take(p, ")") ? x : fail(p);
    }
    if (p->rest.n && is_digit(p->rest.p[0]))
        return str_to_i64(scan(p, true), &v) ? whole(p, sym_const(p->t, v)) : fail(p);
    struct str name = scan(p, true);
    if (!name.n) return fail(p);
    return take(p, "(") ? parse_call(p, name) : whole(p, sym_var(p->t, name));
}

static struct fraction parse_unary(struct parser *p)
{
    if (p->failed || ++p->depth > MAX_DEPTH) return fail(p);
    struct fraction x = parse_inner(p);
    p->depth--;
    return x;
}

static struct fraction parse_power(struct parser *p)
{
    struct fraction x = parse_unary(p), y = x;
    i64 n = 1;
    if (take(p, "**") && (!str_to_i64(scan(p, false), &n) || n < 1 || n > MAX_POWER)) return fail(p);
    for (; n > 1; n--) y = (struct fraction){sym_mul(p->t, y.num, x.num), sym_mul(p->t, y.den, x.den)};
    return y;
}

static struct fraction parse_product(struct parser *p)
{
    struct fraction x = parse_power(p);
    while (!p->failed) {
        if (take(p, "//")) {
            x = whole(p, round_down(p, quotient(p, x, parse_power(p))));
        } else if (take(p, "/")) {
            x = quotient(p, x, parse_power(p));
        } else if (take(p, "%")) {
            sym b = round_down(p, parse_power(p));
            x = whole(p, sym_mod(p->t, round_down(p, x), b));
        } else if (take(p, "*")) {
            struct fraction y = parse_power(p);
            x = (struct fraction){sym_mul(p->t, x.num, y.num), sym_mul(p->t, x.den, y.den)};
        } else {
            break;
        }
    }
    return x;
}

static struct fraction parse_sum(struct parser *p)
{
    if (p->failed || ++p->depth > MAX_DEPTH) return fail(p);
    struct fraction x = parse_product(p);
    for (bool minus; !p->failed && ((minus = take(p, "-")) || take(p, "+"));) {
        struct fraction y = parse_product(p);
        sym a = sym_mul(p->t, x.num, y.den), b = sym_mul(p->t, y.num, x.den);
        x = (struct fraction){minus ? sym_sub(p->t, a, b) : sym_add(p->t, a, b), sym_mul(p->t, x.den, y.den)};
    }
    p->depth--;
    return x;
}

/* In a table of its own: a name that is not an expression leaves no variables behind. */
static sym parse_in(struct symtab *t, struct str text)
{
    struct parser p = {.t = t, .rest = str_trim(text)};
    if (text.n > MAX_TEXT) return 0;
    struct fraction x = parse_sum(&p);
    sym s = p.failed || p.rest.n ? 0 : round_down(&p, x);
    return s && sym_is_defined(t, s) ? s : 0;
}

/* Whether its variables are sizes of inputs, except for one that follows from it. */
static bool is_bound(const struct symtab *t, sym s, const struct map *dims, struct arena *a)
{
    i64 *var = arena_array(a, i64, t->var.n + 1);
    bool all = true;
    for (u32 k = 0; k < t->var.n; k++) {
        var[k] = map_get(dims, t->var.v[k]) ? 0 : INT64_MIN;
        all = all && var[k] == 0;
    }
    return all || sym_solve(t, s, 0, var);
}

bool import_dim(struct symtab *t, struct str text, const struct map *dims, sym *out)
{
    struct arena a = {0};
    struct symtab own;
    symtab_init(&own, &a);
    sym s = parse_in(&own, text);
    bool ok = s && own.node.v[s].op != SYM_VAR && own.node.v[s].op != SYM_CONST && is_bound(&own, s, dims, &a);
    if (ok) *out = sym_copy(t, &own, s);
    arena_release(&a);
    return ok && sym_is_defined(t, *out);
}
