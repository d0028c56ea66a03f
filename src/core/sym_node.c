// SPDX-License-Identifier: Apache-2.0
//
// Symbolic sizes: the table of nodes. Nodes are hash-consed: equal forms have equal ids. An
// expression has a bounded number of nodes: expressions of a hostile model become undefined early
// instead of exhausting memory, and every recursion over an expression is bounded with it.
#include "core/sym_poly.h"

#include <string.h>

sym sym_cons(struct symtab *t, enum sym_op op, sym a, sym b, i64 value)
{
    i64 size = 1;
    struct sym_node x;
    memset(&x, 0, sizeof x); /* padding is part of the key */
    x.op = op, x.a = a, x.b = b, x.value = value;
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
