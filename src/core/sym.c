// SPDX-License-Identifier: Apache-2.0
//
// Symbolic sizes: the table of nodes and the operations. (Normal form: sym_poly.h; polynomials:
// sym_poly.c; floors: sym_div.c; min, max and bounds: sym_bound.c; text, evaluation: sym_text.c.)
//
// Nodes are hash-consed: equal forms have equal ids. Every operation works on polynomials in scratch
// memory and builds nodes at the end, so its cost is that of the two sums, not of the table. An
// expression has a bounded number of nodes: expressions of a hostile model become undefined early
// instead of exhausting memory, and every recursion over an expression is bounded with it.
#include "core/sym_poly.h"

#include <string.h>

/* Nodes. */

sym sym_cons(struct symtab *t, enum sym_op op, sym a, sym b, i64 value)
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

sym sym_undefined(struct symtab *t)
{
    return sym_cons(t, SYM_DIV, sym_const(t, 1), sym_const(t, 0), 0);
}

sym sym_const(struct symtab *t, i64 v)
{
    return v == INT64_MIN ? sym_undefined(t) : sym_cons(t, SYM_CONST, 0, 0, v);
}

/* A variable by its number, or its value by facts. */
sym sym_var_at(struct symtab *t, u32 k)
{
    if (!t->raw && k < t->def.n && t->def.v[k]) return t->def.v[k];
    return sym_cons(t, SYM_VAR, k, 0, 0);
}

sym sym_atom(struct symtab *t, enum sym_op op, sym a, sym b)
{
    sym s = sym_cons(t, op, a, b, 0);
    for (u32 k = 0; k < t->alias.n && !t->raw; k++)
        if (t->alias.v[k].from == s) return t->alias.v[k].to;
    return s;
}

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

void sym_define(struct symtab *t, struct str name, sym value)
{
    assert(value > 0 && value < t->node.n);
    map_put(&t->names, name, value);
}

void sym_undefine(struct symtab *t)
{
    for (u32 k = 0; k < t->var.n; k++)
        map_put(&t->names, t->var.v[k], sym_cons(t, SYM_VAR, k, 0, 0));
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
int sym_cmp(const struct symtab *t, sym a, sym b)
{
    if (a == b) return 0;
    const struct sym_node *x = &t->node.v[a], *y = &t->node.v[b];
    if (x->op != y->op) return x->op < y->op ? -1 : 1;
    if (x->op == SYM_CONST) return x->value < y->value ? -1 : 1;
    if (x->op == SYM_VAR) return str_cmp(t->var.v[x->a], t->var.v[y->a]);
    return x->a != y->a ? sym_cmp(t, x->a, y->a) : sym_cmp(t, x->b, y->b);
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
