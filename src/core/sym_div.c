// SPDX-License-Identifier: Apache-2.0
//
// Symbolic sizes: division, rounded down.
//
// Rules for floor(n / c), c a positive constant, each of them exact for all integers:
//   1. coefficients are brought into (-c/2, c/2] and the constant into [0, c): multiples of c go
//   out;
//   2. the leading coefficient is made positive: floor(-n / c) = -floor((n + c - 1) / c);
//   3. common factors cancel: floor((g*n + k) / (g*c)) = floor((n + floor(k/g)) / c);
//   4. a floor inside is merged: floor((floor(m / a) + r) / c) = floor((m + a*r) / (a*c)).
// For other divisors: exact polynomial division, or the terms that are multiples of a one-term
// divisor.
#include "core/sym_poly.h"

static sym div_const(struct work *w, struct poly n, i64 c);

/* Division by a positive constant. */

/* Rule 1: moves the multiples of c from n to q. A leading -c/2 stays for rule 2, which makes of it
   the rounding up that people write: -floor(-n/2) = floor((n + 1)/2). */
static void split_multiples(struct work *w, struct poly *n, struct poly *q, i64 c)
{
    struct poly rest = {.bad = n->bad};
    for (u32 i = 0; i < n->n; i++) {
        struct term in = n->v[i], out = in;
        out.coef = floor_div(in.coef, c);
        in.coef = in.coef % c + (in.coef % c < 0 ? c : 0);
        bool tie = rest.n == 0 && n->v[i].coef < 0 && in.coef == c - c / 2;
        if (in.n && (in.coef > c / 2 || tie)) in.coef -= c, out.coef++;
        poly_add_term(w, q, out);
        poly_add_term(w, &rest, in);
    }
    *n = rest;
}

/* A floor of a polynomial over a positive constant. */
bool sym_is_floor(const struct symtab *t, sym s, i64 *c)
{
    const struct sym_node *x = &t->node.v[s];
    return x->op == SYM_DIV && sym_is_const(t, x->b, c) && *c > 0;
}

/* The only term of n that is plus or minus a floor; n->n if there is none or more than one. */
static u32 find_floor(const struct symtab *t, const struct poly *n, i64 *a)
{
    u32 at = n->n;
    for (u32 i = 0; i < n->n; i++) {
        const struct term *x = &n->v[i];
        i64 c;
        if (x->n != 1 || (x->coef != 1 && x->coef != -1) || !sym_is_floor(t, x->atom[0], &c))
            continue;
        if (at < n->n) return n->n;
        at = i;
        *a = c;
    }
    return at;
}

/* Rule 4; -floor(m / a) is floor((-m + a - 1) / a). False: not applicable, or too large numbers. */
static bool merge_floor(struct work *w, const struct poly *n, i64 c, sym *out)
{
    i64 a = 1, ac;
    u32 at = find_floor(w->t, n, &a);
    if (at == n->n || __builtin_mul_overflow(a, c, &ac)) return false;
    struct poly sum = {0}, rest = {0};
    struct poly inner = poly_of(w, w->t->node.v[n->v[at].atom[0]].a);
    poly_add_scaled(w, &sum, &inner, n->v[at].coef);
    if (n->v[at].coef < 0) poly_add_const(w, &sum, a - 1);
    for (u32 i = 0; i < n->n; i++)
        if (i != at) poly_add_term(w, &rest, n->v[i]);
    poly_add_scaled(w, &sum, &rest, a);
    if (sum.bad || poly_size(w->t, &sum) > SYM_MAX_SIZE / 4) return false;
    *out = div_const(w, sum, ac);
    return true;
}

/* Rules 3 and 4 for a numerator that rules 1 and 2 left; it is not constant. */
static sym div_rest(struct work *w, struct poly n, i64 c)
{
    sym merged;
    i64 g = poly_gcd(&n, c, false);
    n = poly_exact(w, &n, g);
    c /= g;
    if (merge_floor(w, &n, c, &merged)) return merged;
    sym a = poly_build(w, &n);
    if (!sym_is_defined(w->t, a)) return a;
    return sym_atom(w->t, SYM_DIV, a, sym_const(w->t, c));
}

/* floor(n / c), c > 0. A floor inside is merged before rule 1 can change its coefficient, and again
   in div_rest when only rule 1 made its coefficient 1. */
static sym div_const(struct work *w, struct poly n, i64 c)
{
    struct poly q = {0}, flipped = {0};
    sym merged;
    if (!n.bad && c > 1 && merge_floor(w, &n, c, &merged)) return merged;
    split_multiples(w, &n, &q, c);
    i64 sign = 1;
    if (n.n && n.v[0].n && n.v[0].coef < 0) {
        sign = -1;
        poly_add_scaled(w, &flipped, &n, -1);
        poly_add_const(w, &flipped, c - 1);
        struct poly q2 = {0};
        split_multiples(w, &flipped, &q2, c);
        poly_add_scaled(w, &q, &q2, -1);
        n = flipped;
    }
    if (n.bad) q.bad = true;
    if (!q.bad && !poly_is_const(&n)) {
        struct poly rest = poly_of(w, div_rest(w, n, c));
        poly_add_scaled(w, &q, &rest, sign);
    }
    return poly_build(w, &q);
}

/* Division by a polynomial. */

/* x / y when y's atoms are among x's and the coefficient divides. */
static bool term_div(struct work *w, const struct term *x, const struct term *y, struct term *out)
{
    if (y->n > x->n || x->coef % y->coef) return false;
    sym *atom = arena_array(&w->mem, sym, x->n);
    u32 n = 0, j = 0;
    for (u32 i = 0; i < x->n; i++) {
        if (j < y->n && x->atom[i] == y->atom[j]) j++;
        else atom[n++] = x->atom[i];
    }
    *out = (struct term){x->coef / y->coef, n, atom};
    return j == y->n;
}

/* Exact long division n = q * d. Terms are in a monomial order: leading terms decide. */
static bool poly_divide(struct work *w, struct poly n, const struct poly *d, struct poly *q)
{
    *q = (struct poly){0};
    for (int step = 0; n.n && step < SYM_MAX_SIZE; step++) {
        struct poly one = {0};
        struct term x;
        if (!term_div(w, &n.v[0], &d->v[0], &x)) return false;
        poly_add_term(w, &one, x);
        poly_add_term(w, q, x);
        struct poly part = poly_mul(w, &one, d), rest = {0};
        poly_add_scaled(w, &rest, &n, 1);
        poly_add_scaled(w, &rest, &part, -1);
        if (rest.bad || q->bad) return false;
        n = rest;
    }
    return n.n == 0;
}

/* floor((q*d + r) / d) = q + floor(r / d) for d of one term: moves the multiples from n to q. */
static void split_terms(struct work *w, struct poly *n, const struct poly *d, struct poly *q)
{
    struct poly rest = {0};
    if (d->n != 1) return;
    for (u32 i = 0; i < n->n; i++) {
        struct term x;
        bool divides = term_div(w, &n->v[i], &d->v[0], &x);
        poly_add_term(w, divides ? q : &rest, divides ? x : n->v[i]);
    }
    *n = rest;
}

/* The divisor is positive in its leading term, and has no constant factor in common with n. */
static void reduce(struct work *w, struct poly *n, struct poly *d)
{
    i64 g = poly_gcd(d, poly_gcd(n, 0, true), true);
    if (g > 1) {
        *n = poly_exact(w, n, g);
        *d = poly_exact(w, d, g);
    }
    if (d->v[0].coef > 0) return;
    struct poly n2 = {0}, d2 = {0};
    poly_add_scaled(w, &n2, n, -1);
    poly_add_scaled(w, &d2, d, -1);
    *n = n2;
    *d = d2;
}

static sym div_symbolic(struct work *w, struct poly n, struct poly d)
{
    struct poly q = {0};
    reduce(w, &n, &d);
    if (poly_divide(w, n, &d, &q)) return poly_build(w, &q);
    q = (struct poly){0};
    split_terms(w, &n, &d, &q);
    q.bad |= n.bad || d.bad;
    sym a = poly_build(w, &n), b = poly_build(w, &d);
    if (q.bad || !sym_is_defined(w->t, a) || !sym_is_defined(w->t, b)) return sym_undefined(w->t);
    struct poly rest = poly_of(w, sym_atom(w->t, SYM_DIV, a, b));
    poly_add_scaled(w, &q, &rest, 1);
    return poly_build(w, &q);
}

sym poly_div(struct work *w, struct poly n, struct poly d)
{
    if (n.bad || d.bad || d.n == 0) return sym_undefined(w->t);
    if (!poly_is_const(&d)) return n.n ? div_symbolic(w, n, d) : sym_const(w->t, 0);
    i64 c = poly_const(&d);
    struct poly m = {0};
    poly_add_scaled(w, &m, &n, c < 0 ? -1 : 1);
    return div_const(w, m, c < 0 ? -c : c);
}
