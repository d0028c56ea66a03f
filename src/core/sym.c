// SPDX-License-Identifier: Apache-2.0
//
// Symbolic sizes: the operations. From the bottom: nodes sym_node.c; polynomials sym_poly.c (normal
// form: sym_poly.h); floors sym_div.c; min, max and bounds sym_bound.c; this file; text and evaluation
// sym_text.c; facts sym_fact.c.
//
// Every operation works on polynomials in scratch memory and builds nodes at the end, so its cost is
// that of the two sums, not of the table.
#include "core/sym_poly.h"

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
        s = poly_build(&w, &x);
        break;
    case SYM_MUL:
        p = poly_mul(&w, &x, &y);
        s = poly_build(&w, &p);
        break;
    case SYM_DIV: s = poly_div(&w, x, y); break;
    case SYM_MIN:
    case SYM_MAX: s = x.bad || y.bad ? sym_undefined(t) : poly_extreme(&w, op, x, y); break;
    case SYM_CONST:
    case SYM_VAR: unreachable();
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

bool sym_lower_bound(struct symtab *t, sym s, i64 *lo)
{
    if (s == 0) return false;
    struct work w = {.t = t};
    struct poly p = poly_of(&w, s);
    bool yes = poly_lower(&w, &p, lo);
    arena_release(&w.mem);
    return yes;
}

/* Within one table the variable itself is meant, whatever its name denotes by facts. */
sym sym_copy(struct symtab *to, const struct symtab *from, sym s)
{
    if (s == 0) return 0;
    const struct sym_node x = from->node.v[s]; /* the table may move */
    if (x.op == SYM_CONST) return sym_const(to, x.value);
    if (x.op == SYM_VAR) return to == from ? sym_var_at(to, x.a) : sym_var(to, from->var.v[x.a]);
    sym a = sym_copy(to, from, x.a), b = sym_copy(to, from, x.b);
    switch (x.op) {
    case SYM_ADD: return sym_add(to, a, b);
    case SYM_MUL: return sym_mul(to, a, b);
    case SYM_DIV: return sym_div(to, a, b);
    case SYM_MIN: return sym_min(to, a, b);
    case SYM_MAX: return sym_max(to, a, b);
    case SYM_CONST:
    case SYM_VAR: break;
    }
    unreachable();
}

sym sym_current(struct symtab *t, sym s) { return t->fact.n && s ? sym_copy(t, t, s) : s; }

sym sym_var(struct symtab *t, struct str name)
{
    u64 *known = map_get(&t->names, name);
    if (known) {
        sym s = (sym)*known;
        return t->node.v[s].op == SYM_VAR ? sym_var_at(t, t->node.v[s].a) : sym_current(t, s);
    }
    *arr_push(t->arena, &t->var) = str_dup(t->arena, name);
    sym s = sym_cons(t, SYM_VAR, t->var.n - 1, 0, 0);
    map_put(&t->names, name, s);
    return s;
}
