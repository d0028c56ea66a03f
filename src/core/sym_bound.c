// SPDX-License-Identifier: Apache-2.0
//
// Symbolic sizes: provable lower bounds, and min and max, which need them.
//
// A sum with positive coefficients is at least its constant, because
// variables are not negative. For a negative coefficient, one atom
// is replaced by something simpler that bounds the sum from below:
//   u*c*floor(n/c) >= u*n for u < 0, and >= u*(n - c + 1) for u > 0 (both sides times c);
//   u*min(a, b) for u < 0 and u*max(a, b) for u > 0 are at least u*a and at least u*b.
// This proves that rounding H up to a multiple of 64 yields no less than H: the crop after a
// padded network is min(H, (H+63)//64*64) = H. The search is limited to a fixed number of steps.
#include "core/sym_poly.h"

/* Steps of one proof: terms replaced, and operands examined. */
enum { BOUND_STEPS = 100, BOUND_DEPTH = 8 };

struct proof {
    struct work *w;
    int steps; /* left */
    int depth; /* terms replaced on this path, atoms entered */
};

static bool bound_poly(struct proof *k, const struct poly *p, i64 *lo);

static bool bound_sym(struct proof *k, sym s, i64 *lo)
{
    struct poly p = poly_of(k->w, s);
    return bound_poly(k, &p, lo);
}

/* By facts. */
static struct sym_bounds bounds_of(const struct symtab *t, u32 var)
{
    return !t->raw && var < t->bound.n ? t->bound.v[var] : (struct sym_bounds){0, INT64_MAX};
}

static bool bound_floor(struct proof *k, const struct sym_node *x, i64 *lo)
{
    i64 a, b, c;
    if (!bound_sym(k, x->a, &a)) return false;
    *lo = 0;
    if (sym_is_const(k->w->t, x->b, &c)) return c > 0 && (*lo = floor_div(a, c), true);
    return a >= 0 && bound_sym(k, x->b, &b) && b >= 0;
}

static bool bound_atom(struct proof *k, sym s, i64 *lo)
{
    struct sym_node x = k->w->t->node.v[s];
    i64 a = 0, b = 0;
    *lo = 0;
    if (x.op == SYM_VAR) return *lo = bounds_of(k->w->t, x.a).least, true;
    if (x.op == SYM_DIV) return bound_floor(k, &x, lo);
    bool has_a = bound_sym(k, x.a, &a), has_b = bound_sym(k, x.b, &b);
    if (x.op == SYM_MIN) return *lo = i64_min(a, b), has_a && has_b;
    assert(x.op == SYM_MAX);
    *lo = has_a && has_b ? i64_max(a, b) : has_a ? a : b;
    return has_a || has_b;
}

/* A product of atoms that are all proven not negative. */
static bool bound_mono(struct proof *k, const struct term *x, i64 *lo)
{
    *lo = 1;
    for (u32 i = 0; i < x->n; i++) {
        i64 a;
        if (!bound_atom(k, x->atom[i], &a)) return false;
        if (a < 0 && x->n > 1) return false;
        if (__builtin_mul_overflow(*lo, a, lo)) return false;
    }
    return true;
}

/* Every coefficient positive, or the monomial a constant. */
static bool bound_plain(struct proof *k, const struct poly *p, i64 *lo)
{
    *lo = 0;
    for (u32 i = 0; i < p->n; i++) {
        i64 a;
        if (p->v[i].n && p->v[i].coef < 0) return false;
        if (!bound_mono(k, &p->v[i], &a)) return false;
        if (__builtin_mul_overflow(a, p->v[i].coef, &a) || __builtin_add_overflow(*lo, a, lo))
            return false;
    }
    return *lo != INT64_MIN;
}

/* c * p, but term `at` replaced. */
static struct poly poly_replace(struct work *w, const struct poly *p, u32 at, struct poly by, i64 c)
{
    struct poly q = {0}, rest = {0};
    for (u32 i = 0; i < p->n; i++)
        if (i != at) poly_add_term(w, &rest, p->v[i]);
    poly_add_scaled(w, &q, &rest, c);
    poly_add_scaled(w, &q, &by, 1);
    return q;
}

/* The term without its atom j, if the rest is not negative. */
static bool cofactor(struct proof *k, const struct term *x, u32 j, struct poly *out)
{
    i64 lo;
    struct term y = {.coef = x->coef, .n = x->n - 1};
    sym *atom = arena_array(&k->w->mem, sym, x->n);
    for (u32 i = 0, n = 0; i < x->n; i++)
        if (i != j) atom[n++] = x->atom[i];
    y.atom = atom;
    if (!bound_mono(k, &y, &lo) || lo < 0) return false;
    *out = (struct poly){0};
    poly_add_term(k->w, out, y);
    return true;
}

/* Bounds p with atom j of term i given up for operand `by`, all other terms times c. */
static bool bound_replaced(struct proof *k, const struct poly *p, u32 i, u32 j,
                           const struct poly *by, i64 c, i64 *lo)
{
    struct poly m;
    if (k->depth >= BOUND_DEPTH || !cofactor(k, &p->v[i], j, &m)) return false;
    struct poly q = poly_replace(k->w, p, i, poly_mul(k->w, &m, by), c);
    k->depth++;
    bool ok = bound_poly(k, &q, lo);
    k->depth--;
    if (ok) *lo = -floor_div(-*lo, c); /* c*p >= lo, and p is an integer */
    return ok;
}

/* Replaces atom j of term i. */
static bool bound_without(struct proof *k, const struct poly *p, u32 i, u32 j, i64 *lo)
{
    struct sym_node x = k->w->t->node.v[p->v[i].atom[j]];
    bool negative = p->v[i].coef < 0;
    i64 c;
    if (x.op == SYM_VAR) {
        struct poly most = {0};
        i64 v = bounds_of(k->w->t, x.a).most;
        if (!negative || v == INT64_MAX) return false;
        poly_add_const(k->w, &most, v);
        return bound_replaced(k, p, i, j, &most, 1, lo);
    }
    if (x.op != SYM_DIV && (x.op == SYM_MIN) != negative) return false;
    if (x.op == SYM_DIV && !sym_is_floor(k->w->t, p->v[i].atom[j], &c)) return false;
    struct poly a = poly_of(k->w, x.a);
    if (x.op == SYM_DIV) {
        if (!negative) poly_add_const(k->w, &a, 1 - c);
        return bound_replaced(k, p, i, j, &a, c, lo);
    }
    i64 lo_b;
    struct poly b = poly_of(k->w, x.b);
    bool has_a = bound_replaced(k, p, i, j, &a, 1, lo),
         has_b = bound_replaced(k, p, i, j, &b, 1, &lo_b);
    if (has_b) *lo = has_a ? i64_max(*lo, lo_b) : lo_b;
    return has_a || has_b;
}

/* The best bound found by giving up one atom after the other, negative terms first. */
static bool bound_search(struct proof *k, const struct poly *p, i64 *lo)
{
    bool found = false;
    for (int positive = 0; positive < 2 && !found; positive++)
        for (u32 i = 0; i < p->n; i++)
            for (u32 j = 0; j < p->v[i].n; j++) {
                i64 one;
                if ((p->v[i].coef > 0) != positive || !bound_without(k, p, i, j, &one)) continue;
                *lo = found ? i64_max(*lo, one) : one;
                found = true;
            }
    return found;
}

static bool bound_poly(struct proof *k, const struct poly *p, i64 *lo)
{
    if (p->bad || k->steps-- <= 0) return false;
    return bound_plain(k, p, lo) || bound_search(k, p, lo);
}

/* Factor of a fact that cancels the first term of p. */
static i64 times_in(const struct symtab *t, const struct poly *f, const struct poly *p)
{
    for (u32 i = 0; i < p->n && f->n && f->v[0].n; i++)
        if (term_cmp(t, &f->v[0], &p->v[i]) == 0) return i64_max(p->v[i].coef / f->v[0].coef, 1);
    return 1;
}

/* What is left of p after an inequality that is a fact: f >= 0, so p >= p - m*f. Common factors are taken out of f: 2*x - 1 >= 0
   says x - 1 >= 0. */
static bool bound_by_fact(struct work *w, const struct poly *p, const struct sym_fact *f, i64 *lo)
{
    struct proof k = {w, BOUND_STEPS, 0};
    struct poly rest = {0}, known = {0}, given;
    if (f->kind != FACT_AT_LEAST && f->kind != FACT_AT_MOST) return false;
    given = poly_of(w, f->rest);
    poly_add_scaled(w, &known, &given, f->kind == FACT_AT_LEAST ? 1 : -1);
    i64 g = poly_gcd(&known, 0, false);
    if (g > 1) known = poly_exact(w, &known, g);
    poly_add_scaled(w, &rest, p, 1);
    poly_add_scaled(w, &rest, &known, -times_in(w->t, &known, p));
    return bound_poly(&k, &rest, lo);
}

bool poly_lower(struct work *w, const struct poly *p, i64 *lo)
{
    struct proof k = {w, BOUND_STEPS, 0};
    bool found = bound_poly(&k, p, lo);
    for (u32 i = 0; i < w->t->fact.n && !w->t->raw && !p->bad; i++) {
        i64 one;
        if (!bound_by_fact(w, p, &w->t->fact.v[i], &one)) continue;
        *lo = found ? i64_max(*lo, one) : one;
        found = true;
    }
    return found;
}

/* g*n + k >= 0 is n + floor(k/g) >= 0 for integers: the smaller form is easier to prove, and the
   answer does not depend on common factors, which min and max take out. */
bool poly_not_negative(struct work *w, const struct poly *p)
{
    i64 lo, g = poly_gcd(p, 0, false);
    if (p->bad || g == 0) return !p->bad && poly_const(p) >= 0;
    struct poly n = poly_exact(w, p, g);
    return poly_lower(w, &n, &lo) && lo >= 0;
}

/* Smaller and larger. */

/* What two sums have in common: min(x + s, y + s) = min(x, y) + s. */
static struct poly poly_common(struct work *w, const struct poly *x, const struct poly *y)
{
    struct poly p = {0};
    for (u32 i = 0, j = 0; i < x->n && j < y->n;) {
        int c = term_cmp(w->t, &x->v[i], &y->v[j]);
        struct term z = x->v[i];
        i64 other = y->v[j].coef;
        if (c == 0 && z.n && (z.coef < 0) == (other < 0)) {
            z.coef = z.coef < 0 ? i64_max(z.coef, other) : i64_min(z.coef, other);
            poly_add_term(w, &p, z);
        }
        i += c <= 0;
        j += c >= 0;
    }
    poly_add_const(w, &p, i64_min(poly_const(x), poly_const(y)));
    return p;
}

/* min(min(x, y), x) = min(x, y): is a an operand of b's own min or max? */
static bool absorbs(const struct symtab *t, enum sym_op op, sym a, sym b)
{
    return t->node.v[b].op == op && (t->node.v[b].a == a || t->node.v[b].b == a);
}

static sym extreme_node(struct symtab *t, enum sym_op op, sym a, sym b)
{
    if (!sym_is_defined(t, a) || !sym_is_defined(t, b)) return sym_undefined(t);
    if (absorbs(t, op, a, b)) return b;
    if (absorbs(t, op, b, a)) return a;
    return sym_cmp(t, a, b) <= 0 ? sym_atom(t, op, a, b) : sym_atom(t, op, b, a);
}

sym poly_extreme(struct work *w, enum sym_op op, struct poly x, struct poly y)
{
    struct poly d = {0}, back = {0}, sum;
    poly_add_scaled(w, &d, &x, 1);
    poly_add_scaled(w, &d, &y, -1);
    poly_add_scaled(w, &back, &d, -1);
    if (d.bad || back.bad) return sym_undefined(w->t);
    if (poly_not_negative(w, &d)) return poly_build(w, op == SYM_MAX ? &x : &y);
    if (poly_not_negative(w, &back)) return poly_build(w, op == SYM_MAX ? &y : &x);
    sum = poly_common(w, &x, &y);
    struct poly x2 = {0}, y2 = {0};
    poly_add_scaled(w, &x2, &x, 1), poly_add_scaled(w, &x2, &sum, -1);
    poly_add_scaled(w, &y2, &y, 1), poly_add_scaled(w, &y2, &sum, -1);
    if (x2.bad || y2.bad || sum.bad) return sym_undefined(w->t);
    i64 g = poly_gcd(&y2, poly_gcd(&x2, 0, true), true);
    x2 = poly_exact(w, &x2, g), y2 = poly_exact(w, &y2, g);
    struct poly m = poly_of(w, extreme_node(w->t, op, poly_build(w, &x2), poly_build(w, &y2)));
    poly_add_scaled(w, &sum, &m, g);
    return poly_build(w, &sum);
}
