// SPDX-License-Identifier: Apache-2.0
//
// Symbolic sizes in normal form (text form and evaluation: sym_text.c).
//
// A value is a polynomial: a sum of coefficient * monomial, a monomial being a sorted product of atoms,
// an atom a variable, a floor division, a min or a max, whose operands are polynomials again. Sums are
// ordered by degree and then by atoms (graded lexicographic), compared by structure and never by id, so
// that the form does not depend on what was built before. Nodes are hash-consed: equal forms, equal ids.
//
// Shape of the nodes: SUM = TERM | ADD(SUM, TERM); TERM = CONST | MONO | MUL(MONO, CONST);
// MONO = ATOM | MUL(MONO, ATOM). Constants come last in sums.
//
// Rules for floor(n / c), c a positive constant, each of them exact for all integers:
//   1. coefficients are brought into (-c/2, c/2] and the constant into [0, c): the rest leaves the floor;
//   2. the leading coefficient is made positive: floor(-n / c) = -floor((n + c - 1) / c);
//   3. common factors cancel: floor((g*n + k) / (g*c)) = floor((n + floor(k/g)) / c);
//   4. a floor inside is merged: floor((floor(m / a) + r) / c) = floor((m + a*r) / (a*c)).
// Every operation works on polynomials in scratch memory and builds nodes at the end.
#include "core/core.h"

#include <string.h>

struct term {
    i64 coef;
    u32 n;           /* atoms; 0: the constant term */
    const sym *atom; /* sorted */
};

struct poly { /* terms sorted by term_cmp, no two with the same atoms, no zero coefficient */
    struct term *v;
    u32 n, cap;
    bool bad; /* undefined: overflow, division by zero, too large */
};

/* One operation: the table, and memory for its polynomials. */
struct work {
    struct symtab *t;
    struct arena mem;
};

static sym div_poly(struct work *w, struct poly n, i64 c);

/* Nodes. */

static sym cons(struct symtab *t, enum sym_op op, sym a, sym b, i64 value)
{
    i64 size = 1;
    struct sym_node x;
    memset(&x, 0, sizeof x); /* padding is part of the key */
    x.op = (u8)op, x.a = a, x.b = b, x.value = value;
    if (op != SYM_CONST && op != SYM_VAR) size += t->node.v[a].size + t->node.v[b].size;
    assert(size <= 2 * SYM_MAX_SIZE + 1);
    x.size = (u16)size;
    struct str key = {(const char *)&x, sizeof x};
    u64 *known = map_get(&t->cons, key);
    if (known) return (sym)*known;
    sym id = t->node.n;
    *arr_push(t->arena, &t->node) = x;
    map_put(&t->cons, key, id);
    return id;
}

void symtab_init(struct symtab *t, struct arena *a)
{
    *t = (struct symtab){.arena = a};
    map_init(&t->cons, a);
    map_init(&t->names, a);
    (void)arr_push(a, &t->node); /* id 0 is none */
}

static sym undefined(struct symtab *t)
{
    return cons(t, SYM_DIV, sym_const(t, 1), sym_const(t, 0), 0);
}

sym sym_const(struct symtab *t, i64 v)
{
    return v == INT64_MIN ? undefined(t) : cons(t, SYM_CONST, 0, 0, v);
}

sym sym_var(struct symtab *t, struct str name)
{
    u64 *known = map_get(&t->names, name);
    if (known) return (sym)*known;
    *arr_push(t->arena, &t->var) = str_dup(t->arena, name);
    sym s = cons(t, SYM_VAR, t->var.n - 1, 0, 0);
    map_put(&t->names, name, s);
    return s;
}

bool sym_is_const(const struct symtab *t, sym s, i64 *v)
{
    if (t->node.v[s].op != SYM_CONST || s == 0) return false;
    if (v) *v = t->node.v[s].value;
    return true;
}

bool sym_is_defined(const struct symtab *t, sym s)
{
    i64 v;
    const struct sym_node *x = &t->node.v[s];
    return s != 0 && !(x->op == SYM_DIV && sym_is_const(t, x->b, &v) && v == 0);
}

/* Order of atoms, and below them of everything: by kind, then by content, never by id. Distinct ids
   differ somewhere, so only one operand is ever followed: linear in the depth. */
static int node_cmp(const struct symtab *t, sym a, sym b)
{
    if (a == b) return 0;
    const struct sym_node *x = &t->node.v[a], *y = &t->node.v[b];
    if (x->op != y->op) return x->op < y->op ? -1 : 1;
    if (x->op == SYM_CONST) return x->value < y->value ? -1 : 1;
    if (x->op == SYM_VAR) return str_cmp(t->var.v[x->a], t->var.v[y->a]);
    return x->a != y->a ? node_cmp(t, x->a, y->a) : node_cmp(t, x->b, y->b);
}

/* Polynomials. */

/* Order of terms: higher degree first, then by the first atom that differs. */
static int term_cmp(const struct symtab *t, const struct term *x, const struct term *y)
{
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    for (u32 i = 0; i < x->n; i++)
        if (x->atom[i] != y->atom[i]) return node_cmp(t, x->atom[i], y->atom[i]);
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
static void poly_add_term(struct work *w, struct poly *p, struct term x)
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
static void poly_add_scaled(struct work *w, struct poly *p, const struct poly *x, i64 c)
{
    p->bad |= x->bad;
    for (u32 i = 0; i < x->n && !p->bad; i++) {
        struct term y = x->v[i];
        if (__builtin_mul_overflow(y.coef, c, &y.coef)) p->bad = true;
        else poly_add_term(w, p, y);
    }
}

static void poly_add_const(struct work *w, struct poly *p, i64 c)
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

static struct poly poly_of(struct work *w, sym s)
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
static i64 poly_size(const struct symtab *t, const struct poly *p)
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
    for (u32 i = 0; i < x->n; i++) m = m ? cons(t, SYM_MUL, m, x->atom[i], 0) : x->atom[i];
    if (m == 0) return c;
    return x->coef == 1 ? m : cons(t, SYM_MUL, m, c, 0);
}

static sym build(struct work *w, const struct poly *p)
{
    bool bad = p->bad || poly_size(w->t, p) > SYM_MAX_SIZE;
    if (bad) return undefined(w->t);
    if (p->n == 0) return sym_const(w->t, 0);
    sym s = build_term(w->t, &p->v[0]);
    for (u32 i = 1; i < p->n; i++) s = cons(w->t, SYM_ADD, s, build_term(w->t, &p->v[i]), 0);
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
        bool left = j == y->n || (i < x->n && node_cmp(w->t, x->atom[i], y->atom[j]) <= 0);
        atom[i + j] = left ? x->atom[i] : y->atom[j];
        if (left) i++;
        else j++;
    }
    z.atom = atom;
    return z;
}

static struct poly poly_mul(struct work *w, const struct poly *x, const struct poly *y)
{
    struct poly p = {.bad = x->bad || y->bad || (u64)x->n * y->n > 4 * SYM_MAX_SIZE};
    for (u32 i = 0; i < x->n && !p.bad; i++)
        for (u32 j = 0; j < y->n && !p.bad; j++) {
            struct term z = term_mul(w, &x->v[i], &y->v[j], &p.bad);
            if (!p.bad) poly_add_term(w, &p, z);
        }
    return p;
}

static i64 floor_div(i64 a, i64 b) /* b != 0, a != INT64_MIN */
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
static i64 poly_gcd(const struct poly *p, i64 g, bool with_const)
{
    for (u32 i = 0; i < p->n; i++)
        if (p->v[i].n || with_const) g = gcd(g, p->v[i].coef);
    return g;
}

static i64 poly_const(const struct poly *p)
{
    return p->n && p->v[p->n - 1].n == 0 ? p->v[p->n - 1].coef : 0;
}

static bool poly_is_const(const struct poly *p)
{
    return p->n == 0 || (p->n == 1 && p->v[0].n == 0);
}

/* Divides by a constant, with the constant term rounded down and the others known to be multiples. */
static struct poly poly_exact(struct work *w, const struct poly *p, i64 g)
{
    struct poly q = {.bad = p->bad};
    for (u32 i = 0; i < p->n; i++) {
        struct term x = p->v[i];
        x.coef = floor_div(x.coef, g);
        poly_add_term(w, &q, x);
    }
    return q;
}

/* Division by a positive constant. */

/* Rule 1: moves the multiples of c from n to q. A leading -c/2 stays for rule 2, which makes of it the
   rounding up that people write: -floor(-n/2) = floor((n + 1)/2). */
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
static bool is_floor(const struct symtab *t, sym s, i64 *c)
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
        if (x->n != 1 || (x->coef != 1 && x->coef != -1) || !is_floor(t, x->atom[0], &c)) continue;
        if (at < n->n) return n->n;
        at = i;
        *a = c;
    }
    return at;
}

/* Rule 4; -floor(m / a) is floor((-m + a - 1) / a). False: not applicable, or the numbers get too large. */
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
    *out = div_poly(w, sum, ac);
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
    sym a = build(w, &n);
    if (!sym_is_defined(w->t, a)) return a;
    return cons(w->t, SYM_DIV, a, sym_const(w->t, c), 0);
}

/* floor(n / c), c > 0. A floor inside is merged before rule 1 can change its coefficient, and again
   in div_rest when only rule 1 made its coefficient 1. */
static sym div_poly(struct work *w, struct poly n, i64 c)
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
    return build(w, &q);
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

/* Exact long division n = q * d. The order of terms is a monomial order, so leading terms decide. */
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

/* floor((q*d + r) / d) = q + floor(r / d) for a divisor of one term: moves the multiples from n to q. */
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
    if (poly_divide(w, n, &d, &q)) return build(w, &q);
    q = (struct poly){0};
    split_terms(w, &n, &d, &q);
    q.bad |= n.bad || d.bad;
    sym a = build(w, &n), b = build(w, &d);
    if (q.bad || !sym_is_defined(w->t, a) || !sym_is_defined(w->t, b)) return undefined(w->t);
    struct poly rest = poly_of(w, cons(w->t, SYM_DIV, a, b, 0));
    poly_add_scaled(w, &q, &rest, 1);
    return build(w, &q);
}

static sym div_any(struct work *w, struct poly n, struct poly d)
{
    if (n.bad || d.bad || d.n == 0) return undefined(w->t);
    if (!poly_is_const(&d)) return n.n ? div_symbolic(w, n, d) : sym_const(w->t, 0);
    i64 c = poly_const(&d);
    struct poly m = {0};
    poly_add_scaled(w, &m, &n, c < 0 ? -1 : 1);
    return div_poly(w, m, c < 0 ? -c : c);
}

/* Smaller and larger. */

static bool lower_bound(const struct symtab *t, sym s, i64 *lo);

/* Of an atom. Variables are not negative. */
static bool atom_bound(const struct symtab *t, const struct sym_node *x, i64 *lo)
{
    i64 a = 0, b = 0, c;
    bool has_a, has_b;
    *lo = 0;
    switch ((enum sym_op)x->op) {
    case SYM_VAR: return true;
    case SYM_DIV:
        if (!lower_bound(t, x->a, &a)) return false;
        if (sym_is_const(t, x->b, &c)) return c > 0 && (*lo = floor_div(a, c), true);
        return a >= 0 && lower_bound(t, x->b, &b) && b >= 0;
    case SYM_MIN:
        has_a = lower_bound(t, x->a, &a), has_b = lower_bound(t, x->b, &b);
        *lo = i64_min(a, b);
        return has_a && has_b;
    case SYM_MAX:
        has_a = lower_bound(t, x->a, &a), has_b = lower_bound(t, x->b, &b);
        *lo = has_a && has_b ? i64_max(a, b) : has_a ? a : b;
        return has_a || has_b;
    case SYM_CONST: case SYM_ADD: case SYM_MUL: break;
    }
    unreachable();
}

/* The least value s is known to have. */
static bool lower_bound(const struct symtab *t, sym s, i64 *lo)
{
    const struct sym_node *x = &t->node.v[s];
    i64 a, b;
    if (sym_is_const(t, s, lo)) return true;
    if (x->op == SYM_ADD)
        return lower_bound(t, x->a, &a) && lower_bound(t, x->b, &b) && !__builtin_add_overflow(a, b, lo)
               && *lo != INT64_MIN;
    if (x->op == SYM_MUL)
        return lower_bound(t, x->a, &a) && lower_bound(t, x->b, &b) && a >= 0 && b >= 0
               && !__builtin_mul_overflow(a, b, lo);
    return atom_bound(t, x, lo);
}

static bool poly_not_negative(struct work *w, const struct poly *p)
{
    i64 lo;
    sym s = build(w, p);
    return sym_is_defined(w->t, s) && lower_bound(w->t, s, &lo) && lo >= 0;
}

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
    if (!sym_is_defined(t, a) || !sym_is_defined(t, b)) return undefined(t);
    if (absorbs(t, op, a, b)) return b;
    if (absorbs(t, op, b, a)) return a;
    return node_cmp(t, a, b) <= 0 ? cons(t, op, a, b, 0) : cons(t, op, b, a, 0);
}

static sym extreme(struct work *w, enum sym_op op, struct poly x, struct poly y)
{
    struct poly d = {0}, back = {0}, sum;
    poly_add_scaled(w, &d, &x, 1);
    poly_add_scaled(w, &d, &y, -1);
    poly_add_scaled(w, &back, &d, -1);
    if (d.bad || back.bad) return undefined(w->t);
    if (poly_not_negative(w, &d)) return build(w, op == SYM_MAX ? &x : &y);
    if (poly_not_negative(w, &back)) return build(w, op == SYM_MAX ? &y : &x);
    sum = poly_common(w, &x, &y);
    struct poly x2 = {0}, y2 = {0};
    poly_add_scaled(w, &x2, &x, 1), poly_add_scaled(w, &x2, &sum, -1);
    poly_add_scaled(w, &y2, &y, 1), poly_add_scaled(w, &y2, &sum, -1);
    if (x2.bad || y2.bad || sum.bad) return undefined(w->t);
    i64 g = poly_gcd(&y2, poly_gcd(&x2, 0, true), true);
    x2 = poly_exact(w, &x2, g), y2 = poly_exact(w, &y2, g);
    struct poly m = poly_of(w, extreme_node(w->t, op, build(w, &x2), build(w, &y2)));
    poly_add_scaled(w, &sum, &m, g);
    return build(w, &sum);
}

/* The operations. */

static sym operate(struct symtab *t, enum sym_op op, sym a, sym b, i64 scale)
{
    if (a == 0 || b == 0) return 0;
    struct work w = {.t = t};
    struct poly x = poly_of(&w, a), y = poly_of(&w, b), p = {0};
    sym s = 0;
    switch (op) {
    case SYM_ADD:
        poly_add_scaled(&w, &x, &y, scale);
        s = build(&w, &x);
        break;
    case SYM_MUL:
        p = poly_mul(&w, &x, &y);
        s = build(&w, &p);
        break;
    case SYM_DIV: s = div_any(&w, x, y); break;
    case SYM_MIN: case SYM_MAX: s = x.bad || y.bad ? undefined(t) : extreme(&w, op, x, y); break;
    case SYM_CONST: case SYM_VAR: unreachable();
    }
    arena_release(&w.mem);
    return s;
}

sym sym_add(struct symtab *t, sym a, sym b) { return operate(t, SYM_ADD, a, b, 1); }
sym sym_sub(struct symtab *t, sym a, sym b) { return operate(t, SYM_ADD, a, b, -1); }
sym sym_mul(struct symtab *t, sym a, sym b) { return operate(t, SYM_MUL, a, b, 0); }
sym sym_div(struct symtab *t, sym a, sym b) { return operate(t, SYM_DIV, a, b, 0); }
sym sym_min(struct symtab *t, sym a, sym b) { return operate(t, SYM_MIN, a, b, 0); }
sym sym_max(struct symtab *t, sym a, sym b) { return operate(t, SYM_MAX, a, b, 0); }

sym sym_mod(struct symtab *t, sym a, sym b)
{
    return sym_sub(t, a, sym_mul(t, b, sym_div(t, a, b)));
}

sym sym_cdiv(struct symtab *t, sym a, sym b)
{
    sym zero = sym_const(t, 0);
    return sym_sub(t, zero, sym_div(t, sym_sub(t, zero, a), b));
}

bool sym_divides(struct symtab *t, i64 c, sym s)
{
    if (s == 0 || c == 0 || c == INT64_MIN) return false;
    struct work w = {.t = t};
    struct poly p = poly_of(&w, s);
    bool yes = !p.bad && poly_gcd(&p, c, true) == (c < 0 ? -c : c);
    arena_release(&w.mem);
    return yes;
}
