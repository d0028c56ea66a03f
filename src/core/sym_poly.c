// SPDX-License-Identifier: Apache-2.0
//
// Polynomials over atoms: to and from nodes, sums, products.
//
// A polynomial that overflows or grows too large becomes bad and stays so; poly_build turns it
// into the undefined expression, so nothing in between has to be checked. Terms are found by
// bisection, and adding one moves those after it: sums have a few terms, a few hundred at most.
#include "core/sym_poly.h"

#include <string.h>

/* Order of terms: higher degree first, then by the first atom that differs. */
int term_cmp(const struct symtab *t, const struct term *x, const struct term *y)
{
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    for (u32 i = 0; i < x->n; i++)
        if (x->atom[i] != y->atom[i]) return sym_cmp(t, x->atom[i], y->atom[i]);
    return 0;
}

/* Where the term with x's atoms is or belongs. */
static u32 poly_find(const struct symtab *t, const struct poly *p, const struct term *x)
{
    u32 lo = 0, hi = p->n;
    while (lo < hi) {
        u32 mid = (lo + hi) / 2;
        if (term_cmp(t, &p->v[mid], x) < 0) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

/* p += coef * atoms. */
void poly_add_term(struct work *w, struct poly *p, struct term x)
{
    u32 at = poly_find(w->t, p, &x);
    bool found = at < p->n && term_cmp(w->t, &p->v[at], &x) == 0;
    if (found && __builtin_add_overflow(p->v[at].coef, x.coef, &x.coef)) p->bad = true;
    if (x.coef == INT64_MIN || p->n >= SYM_MAX_SIZE) p->bad = true;
    if (p->bad) return;
    if (found && x.coef == 0) {
        p->n--;
        memmove(p->v + at, p->v + at + 1, sizeof x * (p->n - at));
    } else if (x.coef != 0) {
        if (!found) {
            (void)arr_push(&w->mem, p);
            memmove(p->v + at + 1, p->v + at, sizeof x * (p->n - 1 - at));
        }
        p->v[at] = x;
    }
}

/* p += c * x */
void poly_add_scaled(struct work *w, struct poly *p, const struct poly *x, i64 c)
{
    p->bad |= x->bad;
    for (u32 i = 0; i < x->n && !p->bad; i++) {
        struct term y = x->v[i];
        if (__builtin_mul_overflow(y.coef, c, &y.coef)) p->bad = true;
        else poly_add_term(w, p, y);
    }
}

void poly_add_const(struct work *w, struct poly *p, i64 c)
{
    poly_add_term(w, p, (struct term){.coef = c});
}

/* The atoms of a product of atoms, in order. */
static struct term mono_of(struct work *w, sym s)
{
    struct term x = {.coef = 1};
    const struct sym_node *v = w->t->node.v;
    sym m = s;
    for (x.n = 1; v[m].op == SYM_MUL; m = v[m].a) x.n++;
    sym *atom = arena_array(&w->mem, sym, x.n);
    u32 i = x.n;
    for (m = s; v[m].op == SYM_MUL; m = v[m].a) atom[--i] = v[m].b;
    atom[0] = m;
    x.atom = atom;
    return x;
}

struct poly poly_of(struct work *w, sym s)
{
    struct poly p = {.bad = !sym_is_defined(w->t, s)};
    if (p.bad) return p;
    const struct sym_node *v = w->t->node.v;
    for (bool more = true; more;) {
        more = v[s].op == SYM_ADD;
        sym one = more ? v[s].b : s;
        i64 c = 1;
        if (v[one].op == SYM_MUL && sym_is_const(w->t, v[one].b, &c)) one = v[one].a;
        struct term x = {0};
        if (!sym_is_const(w->t, one, &x.coef)) {
            x = mono_of(w, one);
            x.coef = c;
        }
        poly_add_term(w, &p, x);
        if (more) s = v[s].a;
    }
    return p;
}

/* The nodes a polynomial needs when all atoms are there. */
i64 poly_size(const struct symtab *t, const struct poly *p)
{
    i64 size = 1;
    for (u32 i = 0; i < p->n; i++) {
        size += 3;
        for (u32 j = 0; j < p->v[i].n; j++) size += t->node.v[p->v[i].atom[j]].size + 1;
    }
    return size;
}

static sym build_term(struct symtab *t, const struct term *x)
{
    sym c = sym_const(t, x->coef), m = 0;
    for (u32 i = 0; i < x->n; i++) m = m ? sym_cons(t, SYM_MUL, m, x->atom[i], 0) : x->atom[i];
    if (m == 0) return c;
    return x->coef == 1 ? m : sym_cons(t, SYM_MUL, m, c, 0);
}

sym poly_build(struct work *w, const struct poly *p)
{
    bool bad = p->bad || poly_size(w->t, p) > SYM_MAX_SIZE;
    if (bad) return sym_undefined(w->t);
    if (p->n == 0) return sym_const(w->t, 0);
    sym s = build_term(w->t, &p->v[0]);
    for (u32 i = 1; i < p->n; i++) s = sym_cons(w->t, SYM_ADD, s, build_term(w->t, &p->v[i]), 0);
    return s;
}

/* The product of two products of atoms. */
static struct term term_mul(struct work *w, const struct term *x, const struct term *y, bool *bad)
{
    struct term z = {.n = x->n + y->n};
    if (z.n > SYM_MAX_SIZE || __builtin_mul_overflow(x->coef, y->coef, &z.coef)) *bad = true;
    if (*bad) return z;
    sym *atom = arena_array(&w->mem, sym, z.n);
    for (u32 i = 0, j = 0; i + j < z.n;) {
        bool left = j == y->n || (i < x->n && sym_cmp(w->t, x->atom[i], y->atom[j]) <= 0);
        atom[i + j] = left ? x->atom[i] : y->atom[j];
        if (left) i++;
        else j++;
    }
    z.atom = atom;
    return z;
}

struct poly poly_mul(struct work *w, const struct poly *x, const struct poly *y)
{
    struct poly p = {.bad = x->bad || y->bad || (u64)x->n * y->n > 4 * SYM_MAX_SIZE};
    for (u32 i = 0; i < x->n && !p.bad; i++)
        for (u32 j = 0; j < y->n && !p.bad; j++) {
            struct term z = term_mul(w, &x->v[i], &y->v[j], &p.bad);
            if (!p.bad) poly_add_term(w, &p, z);
        }
    return p;
}

i64 floor_div(i64 a, i64 b) /* b != 0, a != INT64_MIN */
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static i64 gcd(i64 a, i64 b)
{
    while (b) {
        i64 r = a % b;
        a = b;
        b = r;
    }
    return a < 0 ? -a : a;
}

/* Greatest common divisor of g and the coefficients, of the constant too if asked. */
i64 poly_gcd(const struct poly *p, i64 g, bool with_const)
{
    for (u32 i = 0; i < p->n; i++)
        if (p->v[i].n || with_const) g = gcd(g, p->v[i].coef);
    return g;
}

i64 poly_const(const struct poly *p)
{
    return p->n && p->v[p->n - 1].n == 0 ? p->v[p->n - 1].coef : 0;
}

bool poly_is_const(const struct poly *p) { return p->n == 0 || (p->n == 1 && p->v[0].n == 0); }

/* Divided by g: the constant term is rounded down, the others are multiples. */
struct poly poly_exact(struct work *w, const struct poly *p, i64 g)
{
    struct poly q = {.bad = p->bad};
    for (u32 i = 0; i < p->n; i++) {
        struct term x = p->v[i];
        x.coef = floor_div(x.coef, g);
        poly_add_term(w, &q, x);
    }
    return q;
}
