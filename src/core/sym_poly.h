// SPDX-License-Identifier: Apache-2.0
//
// Inside of symbolic sizes (sym_node.c, sym.c, sym_poly.c, sym_div.c, sym_bound.c): polynomials in scratch
// memory.
//
// A value is a polynomial: a sum of coefficient * monomial, a monomial being a sorted product of
// atoms, an atom a variable, a floor division, a min or a max, whose operands are polynomials
// again. Sums are ordered by degree and then by atoms (graded lexicographic), compared by structure
// and never by id, so that the form does not depend on what was built before.
//
// Shape of the nodes: SUM = TERM | ADD(SUM, TERM); TERM = CONST | MONO | MUL(MONO, CONST);
// MONO = ATOM | MUL(MONO, ATOM). The constant comes last in a sum.
#ifndef QUERN_SYM_POLY_H
#define QUERN_SYM_POLY_H

#include "core/core.h"

struct term {
    i64 coef;        /* never 0 in a polynomial, never INT64_MIN */
    u32 n;           /* atoms; 0: the constant term */
    const sym *atom; /* sorted by sym_cmp */
};

struct poly { /* terms in order, no two with the same atoms */
    struct term *v;
    u32 n, cap;
    bool bad; /* undefined: overflow, division by zero, too large */
};

/* One operation: the table, and memory for its polynomials. */
struct work {
    struct symtab *t;
    struct arena mem;
};

/* sym_node.c */
sym sym_cons(struct symtab *t, enum sym_op op, sym a, sym b, i64 value);
sym sym_undefined(struct symtab *t);
sym sym_var_at(struct symtab *t, u32 k); /* variable k, with facts */
/* A floor, min or max, simplified by facts: not always an atom. */
sym sym_atom(struct symtab *t, enum sym_op op, sym a, sym b);
/* By structure: variables, then floors, then min and max. */
int sym_cmp(const struct symtab *t, sym a, sym b);

/* sym_poly.c: arithmetic; the results share atoms with their operands */
struct poly poly_of(struct work *w, sym s);
sym poly_build(struct work *w, const struct poly *p); /* the undefined expression if it is bad */
void poly_add_term(struct work *w, struct poly *p, struct term x);
void poly_add_const(struct work *w, struct poly *p, i64 c);
void poly_add_scaled(struct work *w, struct poly *p, const struct poly *x, i64 c); /* p += c * x */
struct poly poly_mul(struct work *w, const struct poly *x, const struct poly *y);
/* p / g: multiples of g, but the constant rounded down. */
struct poly poly_exact(struct work *w, const struct poly *p, i64 g);
i64 poly_gcd(const struct poly *p, i64 g, bool with_const); /* of g and the coefficients */
i64 poly_const(const struct poly *p);                       /* the constant term */
bool poly_is_const(const struct poly *p);
i64 poly_size(const struct symtab *t, const struct poly *p); /* the nodes it needs, or a few more */
int term_cmp(const struct symtab *t, const struct term *x, const struct term *y);
i64 floor_div(i64 a, i64 b); /* b != 0, a != INT64_MIN */

/* sym_div.c */
sym poly_div(struct work *w, struct poly n, struct poly d);
bool sym_is_floor(const struct symtab *t, sym s, i64 *c); /* floor(polynomial / c), c > 0 */

/* sym_bound.c */
sym poly_extreme(struct work *w, enum sym_op op, struct poly x, struct poly y); /* min or max */
bool poly_lower(struct work *w, const struct poly *p, i64 *lo);                 /* proven */
bool poly_not_negative(struct work *w, const struct poly *p);                   /* proven */

#endif
