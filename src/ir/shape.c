// SPDX-License-Identifier: Apache-2.0
//
// Shapes and layouts: queries about sizes that need no graph. Sizes are symbolic; "static" means
// every dim is a constant. Equality is decided by the normal form of symbolic sizes: equal ids are
// proven equal, different ids may still be equal for some sizes, so shape_equal answers "proven".
#include "ir/ir.h"

static const char *const layout_names[N_LAYOUTS] = {
    [LAYOUT_ROWS] = "rows",
    [LAYOUT_CLAST] = "clast",
    [LAYOUT_C8] = "c8",
    [LAYOUT_C16] = "c16",
};

const char *layout_name(enum layout l)
{
    assert(l >= 0 && l < N_LAYOUTS);
    return layout_names[l];
}

enum layout layout_parse(struct str s, bool *ok)
{
    for (int l = 0; l < N_LAYOUTS; l++) {
        if (!str_is(s, layout_names[l])) continue;
        *ok = true;
        return (enum layout)l;
    }
    *ok = false;
    return LAYOUT_ROWS;
}

sym shape_count(struct symtab *t, const struct shape *s)
{
    assert(s->known);
    sym n = sym_const(t, 1);
    for (u32 k = 0; k < s->rank; k++) n = sym_mul(t, n, s->dim[k]);
    return n;
}

bool shape_is_static(const struct symtab *t, const struct shape *s, i64 dim[MAX_RANK])
{
    if (!s->known) return false;
    for (u32 k = 0; k < s->rank; k++) {
        i64 v;
        if (!sym_is_const(t, s->dim[k], &v)) return false;
        if (dim) dim[k] = v;
    }
    return true;
}

struct shape value_given(struct symtab *t, const struct value *v)
{
    if (v->given) return *v->given;
    struct shape s = v->shape;
    for (u32 k = 0; k < s.rank && s.known; k++) s.dim[k] = sym_plain(t, s.dim[k]);
    return s;
}

void value_set_given(struct graph *g, value_id v, const struct shape *s)
{
    struct shape *copy = arena_new(g->arena, struct shape);
    *copy = *s;
    graph_value(g, v)->given = copy;
}

/* The constant dims alone must form a valid tensor; symbolic dims count as one. */
bool shape_size_ok(const struct symtab *t, const struct shape *s, enum dtype d)
{
    i64 dim[MAX_RANK];
    if (!s->known || s->rank > MAX_RANK) return false;
    for (u32 k = 0; k < s->rank; k++)
        if (!sym_is_const(t, s->dim[k], &dim[k])) dim[k] = 1;
    return tensor_size_ok(d, s->rank, dim, NULL);
}

bool shape_equal(const struct shape *a, const struct shape *b)
{
    if (!a->known || !b->known || a->rank != b->rank) return false;
    for (u32 k = 0; k < a->rank; k++)
        if (a->dim[k] != b->dim[k]) return false;
    return true;
}

bool shape_eval(const struct symtab *t, const struct shape *s, const i64 *var, i64 dim[MAX_RANK])
{
    if (!s->known) return false;
    for (u32 k = 0; k < s->rank; k++)
        if (!sym_eval(t, s->dim[k], var, &dim[k])) return false;
    return true;
}

i64 layout_block(enum layout l)
{
    switch (l) {
    case LAYOUT_ROWS:
    case LAYOUT_CLAST: return 1;
    case LAYOUT_C8: return 8;
    case LAYOUT_C16: return 16;
    case N_LAYOUTS: break;
    }
    unreachable();
}

sym layout_count(struct symtab *t, const struct shape *s, enum layout l)
{
    i64 block = layout_block(l);
    struct shape padded = *s;
    assert(s->known && (l == LAYOUT_ROWS || s->rank >= 3));
    if (block > 1) {
        sym b = sym_const(t, block);
        padded.dim[1] = sym_mul(t, sym_cdiv(t, s->dim[1], b), b);
    }
    return shape_count(t, &padded);
}

struct shape value_room(const struct value *v)
{
    struct shape s = v->shape;
    if (v->part.whole) s.dim[v->part.axis] = v->part.whole;
    return s;
}

sym value_storage(struct symtab *t, const struct value *v)
{
    struct shape room = value_room(v);
    return layout_count(t, &room, v->layout);
}
