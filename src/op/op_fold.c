// SPDX-License-Identifier: Apache-2.0
//
// op_fold: arithmetic on known contents. Networks compute sizes with ordinary operators (Shape,
// Gather, Mul, Floor, Concat
// ...); folding these symbolically is what lets one program serve every H and W. Contents are
// num/den with one common denominator, exact. Where a result is not exactly expressible, or a sign
// that matters is not provable, the content is simply unknown. Elements combine when counts are
// equal or one side is a single element.
//
// Sizes are assumed below 2^24, where float32 arithmetic on them is exact.
#include "op/op.h"

#include <math.h>

enum { MAX_CONTENT = 256 };

/* Proven for all values of the variables. */
static bool at_least(struct symtab *t, sym s, i64 least)
{
    i64 lo;
    return sym_lower_bound(t, s, &lo) && lo >= least;
}

static sym num(struct symtab *t, i64 v) { return sym_const(t, v); }
static sym neg(struct symtab *t, sym a) { return sym_sub(t, num(t, 0), a); }

/* a/b towards zero for b > 0: floor if a >= 0 is provable, else from the floors of both signs. */
static sym trunc_div(struct symtab *t, sym a, sym b)
{
    if (at_least(t, a, 0)) return sym_div(t, a, b);
    i64 c; /* values just below 0, such as H - 1 for H = 0, round to 0 */
    if (sym_is_const(t, b, &c) && c > 1 && at_least(t, a, 1 - c)) return sym_div(t, sym_max(t, a, num(t, 0)), b);
    sym up = sym_div(t, sym_max(t, a, num(t, 0)), b),
        down = sym_div(t, sym_max(t, neg(t, a), num(t, 0)), b);
    return sym_sub(t, up, down);
}

/* num/den to nearest, ties to even. */
static sym round_div(struct symtab *t, sym a, i64 den)
{
    sym d2 = num(t, 2 * den), x = sym_add(t, sym_mul(t, a, num(t, 2)), num(t, den));
    sym r = sym_div(t, x, d2);
    if (den % 2) return r;
    sym tie = sym_sub(t, num(t, 1), sym_min(t, num(t, 1), sym_mod(t, x, d2)));
    return sym_sub(t, r, sym_mul(t, tie, sym_mod(t, r, num(t, 2))));
}

/* 1: always a < b (or a <= b when or_equal), 0: never, -1: not provable */
static int decide_less(struct symtab *t, sym a, sym b, bool or_equal)
{
    if (at_least(t, sym_sub(t, b, a), !or_equal)) return 1;
    return at_least(t, sym_sub(t, a, b), or_equal) ? 0 : -1;
}

static int decide_equal(struct symtab *t, sym a, sym b)
{
    i64 c;
    if (sym_is_const(t, sym_sub(t, a, b), &c)) return c == 0;
    return at_least(t, sym_sub(t, a, b), 1) || at_least(t, sym_sub(t, b, a), 1) ? 0 : -1;
}

static sym truth(struct symtab *t, int decided) { return decided < 0 ? 0 : num(t, decided); }

static sym logic(struct symtab *t, enum op_fold f, sym a, sym b)
{
    i64 x, y;
    if (!sym_is_const(t, a, &x) || !sym_is_const(t, b, &y)) return 0;
    return num(t, f == FOLD_AND ? x && y : x || y);
}

/* a / b as a rational: how often b fits into a, when that is a known constant. */
static bool ratio(struct symtab *t, sym a, sym b, i64 *n, i64 *d)
{
    i64 c;
    for (i64 k = 1; k <= 16; k++) {
        if (sym_is_const(t, sym_sub(t, a, sym_mul(t, b, num(t, k))), &c) && c == 0)
            return *n = k, *d = 1, true;
        if (sym_is_const(t, sym_sub(t, b, sym_mul(t, a, num(t, k))), &c) && c == 0)
            return *n = 1, *d = k, true;
    }
    return false;
}

/* One element: operands over the common denominator den (integers: 1). Result over den; 0: unknown.
 */
static sym fold_common(struct symtab *t, enum op_fold f, sym a, sym b)
{
    switch (f) {
    case FOLD_ADD: return sym_add(t, a, b);
    case FOLD_SUB: return sym_sub(t, a, b);
    case FOLD_MIN: return sym_min(t, a, b);
    case FOLD_MAX: return sym_max(t, a, b);
    case FOLD_EQ: return truth(t, decide_equal(t, a, b));
    case FOLD_LT: return truth(t, decide_less(t, a, b, false));
    case FOLD_LE: return truth(t, decide_less(t, a, b, true));
    case FOLD_GT: return truth(t, decide_less(t, b, a, false));
    case FOLD_GE: return truth(t, decide_less(t, b, a, true));
    case FOLD_AND:
    case FOLD_OR: return logic(t, f, a, b);
    case FOLD_NONE:
    case FOLD_MUL:
    case FOLD_DIV:
    case FOLD_MOD:
    case FOLD_NEG:
    case FOLD_ABS:
    case FOLD_FLOOR:
    case FOLD_CEIL:
    case FOLD_ROUND:
    case FOLD_NOT:
    case FOLD_RELU:
    case FOLD_CLIP:
    case FOLD_WHERE: break;
    }
    unreachable();
}

static i64 gcd(i64 a, i64 b) { return b ? gcd(b, a % b) : a; }

/* Divides out common factors of numerators and denominator. */
static void reduce(struct symtab *t, struct sym_data *x)
{
    for (i64 p = 2; p <= 97 && x->den > 1; p++) {
        for (bool all = true; all && x->den % p == 0;) {
            for (i64 i = 0; i < x->n; i++) all = all && sym_divides(t, p, x->num[i]);
            for (i64 i = 0; all && i < x->n; i++) x->num[i] = sym_div(t, x->num[i], num(t, p));
            if (all) x->den /= p;
        }
    }
}

static sym at(const struct sym_data *x, i64 i) { return x->num[x->n == 1 ? 0 : i]; }

static bool scaled(struct symtab *t, enum op_fold f, const struct sym_data *a,
                   const struct sym_data *b, struct sym_data *r)
{
    i64 den = a->den / gcd(a->den, b->den) * b->den;
    if (den > 1 << 20) return false;
    for (i64 i = 0; i < r->n; i++) {
        sym x = sym_mul(t, at(a, i), num(t, den / a->den)),
            y = sym_mul(t, at(b, i), num(t, den / b->den));
        if (!(r->num[i] = fold_common(t, f, x, y))) return false;
    }
    bool is_number = f == FOLD_ADD || f == FOLD_SUB || f == FOLD_MIN || f == FOLD_MAX;
    r->den = is_number ? den : 1;
    return true;
}

static bool product(struct symtab *t, const struct sym_data *a, const struct sym_data *b,
                    struct sym_data *r)
{
    if (a->den > 1 << 10 || b->den > 1 << 10) return false;
    for (i64 i = 0; i < r->n; i++) r->num[i] = sym_mul(t, at(a, i), at(b, i));
    r->den = a->den * b->den;
    return true;
}

/* Element by element a quotient n/d of its own; brought to one denominator. */
static bool quotient(struct symtab *t, const struct sym_data *a, const struct sym_data *b,
                     struct sym_data *r)
{
    r->den = 1;
    for (i64 i = 0; i < r->n; i++) {
        i64 n = 1, d = 1;
        sym x = sym_mul(t, at(a, i), num(t, b->den)), y = sym_mul(t, at(b, i), num(t, a->den));
        if (sym_is_const(t, y, &d) && d != 0 && d > -(1 << 20) && d < 1 << 20) {
            if (d < 0) x = neg(t, x), d = -d;
        } else if (ratio(t, x, y, &n, &d)) {
            x = num(t, n);
        } else {
            return false;
        }
        i64 den = r->den / gcd(r->den, d) * d;
        if (den > 1 << 20) return false;
        for (i64 j = 0; j < i; j++) r->num[j] = sym_mul(t, r->num[j], num(t, den / r->den));
        r->num[i] = sym_mul(t, x, num(t, den / d));
        r->den = den;
    }
    return true;
}

/* Division and remainder of integers; the divisor must not be negative. c_sign: remainder has the
 * dividend's sign. */
static bool int_div(struct symtab *t, const struct sym_data *a, const struct sym_data *b,
                    bool remainder, bool c_sign, struct sym_data *r)
{
    i64 c;
    for (i64 i = 0; i < r->n; i++) {
        sym x = at(a, i), y = at(b, i);
        if (!at_least(t, y, 0) || (sym_is_const(t, y, &c) && c == 0)) return false;
        if (!remainder) r->num[i] = trunc_div(t, x, y);
        else if (!c_sign) r->num[i] = sym_mod(t, x, y);
        else r->num[i] = sym_sub(t, x, sym_mul(t, trunc_div(t, x, y), y));
    }
    r->den = 1;
    return true;
}

static bool unary(struct symtab *t, enum op_fold f, const struct sym_data *a, struct sym_data *r)
{
    i64 c;
    r->den = f == FOLD_NEG || f == FOLD_ABS || f == FOLD_RELU ? a->den : 1;
    for (i64 i = 0; i < r->n; i++) {
        sym x = a->num[i], d = num(t, a->den);
        if (f == FOLD_NEG) r->num[i] = neg(t, x);
        else if (f == FOLD_ABS) r->num[i] = sym_max(t, x, neg(t, x));
        else if (f == FOLD_RELU) r->num[i] = sym_max(t, x, num(t, 0));
        else if (f == FOLD_FLOOR) r->num[i] = sym_div(t, x, d);
        else if (f == FOLD_CEIL) r->num[i] = neg(t, sym_div(t, neg(t, x), d));
        else if (f == FOLD_ROUND) r->num[i] = a->den == 1 ? x : round_div(t, x, a->den);
        else if (f == FOLD_NOT && sym_is_const(t, x, &c)) r->num[i] = num(t, !c);
        else return false;
    }
    return true;
}

bool op_fold_two(struct graph *g, enum op_fold f, const struct sym_data *a,
                 const struct sym_data *b, struct sym_data *r)
{
    if (a->n != b->n && a->n != 1 && b->n != 1) return false;
    *r = (struct sym_data){.n = a->n == 1 ? b->n : a->n, .den = 1};
    r->num = arena_array(g->arena, sym, r->n + 1);
    bool ok = f == FOLD_MUL ? product(g->sym, a, b, r) : scaled(g->sym, f, a, b, r);
    if (ok) reduce(g->sym, r);
    return ok;
}

static bool where(struct symtab *t, const struct sym_data in[3], struct sym_data *r)
{
    i64 c, den = in[1].den / gcd(in[1].den, in[2].den) * in[2].den;
    if (den > 1 << 20) return false;
    for (i64 i = 0; i < r->n; i++) {
        if (!sym_is_const(t, at(&in[0], i), &c)) return false;
        const struct sym_data *x = &in[c ? 1 : 2];
        r->num[i] = sym_mul(t, at(x, i), num(t, den / x->den));
    }
    r->den = den;
    return true;
}

/* Missing bounds have no numbers. If they cross, the upper one holds. */
static bool clip(struct graph *g, const struct node *x, const struct sym_data in[3],
                 struct sym_data *r)
{
    static const char *const attr[] = {"", "min", "max"};
    struct sym_data y = in[0];
    bool ok = true;
    for (u32 i = 1; i < 3 && ok; i++) {
        struct sym_data bounded;
        if (!in[i].num) ok = isinf(attr_float(x, attr[i], INFINITY));
        else if ((ok = op_fold_two(g, i == 1 ? FOLD_MAX : FOLD_MIN, &y, &in[i], &bounded)))
            y = bounded;
    }
    for (i64 i = 0; i < r->n && ok; i++) r->num[i] = at(&y, i);
    r->den = y.den;
    return ok;
}

static bool fold(struct graph *g, const struct node *x, enum op_fold f, const struct sym_data in[3],
                 struct sym_data *r)
{
    struct symtab *t = g->sym;
    bool is_float = dtype_is_float(graph_value(g, x->in.v[0])->dtype);
    switch (f) {
    case FOLD_NONE: return false;
    case FOLD_NEG:
    case FOLD_ABS:
    case FOLD_FLOOR:
    case FOLD_CEIL:
    case FOLD_ROUND:
    case FOLD_RELU:
    case FOLD_NOT: return unary(t, f, &in[0], r);
    case FOLD_CLIP: return clip(g, x, in, r);
    case FOLD_WHERE: return where(t, in, r);
    case FOLD_MUL: return product(t, &in[0], &in[1], r);
    case FOLD_DIV:
        return is_float ? quotient(t, &in[0], &in[1], r)
                        : int_div(t, &in[0], &in[1], false, false, r);
    case FOLD_MOD: return !is_float && int_div(t, &in[0], &in[1], true, attr_int(x, "fmod", 0), r);
    case FOLD_ADD:
    case FOLD_SUB:
    case FOLD_MIN:
    case FOLD_MAX:
    case FOLD_EQ:
    case FOLD_LT:
    case FOLD_LE:
    case FOLD_GT:
    case FOLD_GE:
    case FOLD_AND:
    case FOLD_OR: return scaled(t, f, &in[0], &in[1], r);
    }
    unreachable();
}

void op_fold(struct graph *g, node_id n, enum op_fold f)
{
    const struct node *x = graph_node(g, n);
    struct sym_data in[3] = {{0}}, r = {.n = 1, .den = 1};
    if (f == FOLD_NONE || x->in.n > 3 || !x->out.v[0]) return;
    for (u32 i = 0; i < x->in.n; i++) {
        if (i && !x->in.v[i] && f == FOLD_CLIP) continue;
        if (!op_sym_content(g, x->in.v[i], MAX_CONTENT, &in[i])) return;
        if (r.n != 1 && in[i].n != 1 && in[i].n != r.n) return;
        if (in[i].n != 1) r.n = in[i].n;
    }
    const struct shape *s = &graph_value(g, x->out.v[0])->shape;
    i64 count;
    if (!sym_is_const(g->sym, shape_count(g->sym, s), &count) || count != r.n)
        return; /* outer products */
    r.num = arena_array(g->arena, sym, r.n + 1);
    if (!fold(g, x, f, in, &r)) return;
    reduce(g->sym, &r);
    op_set_sdata(g, x->out.v[0], r.num, r.n, r.den);
}

void op_fold_cast(struct graph *g, node_id n, enum dtype to)
{
    const struct node *x = graph_node(g, n);
    struct sym_data a;
    if (!x->out.v[0] || !op_sym_content(g, x->in.v[0], MAX_CONTENT, &a)) return;
    bool exact = dtype_is_float(to) ? dtype_size(to) >= 4 : dtype_is_int(to) && dtype_size(to) >= 4;
    sym *v = arena_array(g->arena, sym, a.n + 1);
    for (i64 i = 0; i < a.n; i++) {
        i64 c;
        v[i] = a.num[i];
        if (to == DT_BOOL) {
            if (!sym_is_const(g->sym, v[i], &c)) return;
            v[i] = num(g->sym, c != 0);
        } else if (!dtype_is_float(to)) {
            v[i] = trunc_div(g->sym, v[i], num(g->sym, a.den));
        }
    }
    if (exact || to == DT_BOOL)
        op_set_sdata(g, x->out.v[0], v, a.n, dtype_is_float(to) ? a.den : 1);
}
