// SPDX-License-Identifier: Apache-2.0
//
// tile_dot: a step of dot_k terms, which one instruction adds (DOT): groups of terms, neighbours in both operands, lie column by column in the right
// one; a row's group is repeated for all lanes. Bytes (VNNI, sdot, udot), pairs of bf16 and of f16 (fmlal).
#include "gen/tile.h"

static i64 terms(const struct caps *c, const struct tile_operands *o)
{
    i64 group = c->vector_bytes >= 16 ? kir_dot_terms(o->a, o->b, o->sum) : 0;
    return group && caps_has_dot(c, o->a, o->b, o->sum) ? group : 0;
}

static kval left(const struct tile *t, const struct tile_in *a, kval at)
{
    struct kir *k = t->m->k;
    return kir_repeat(k, kir_load(k, a->buf, kir_ramp(k, at, 1, (u32)t->dot_k)), t->lanes * (u32)t->dot_k);
}

static void step(const struct tile *t, const struct tile_in *a, kval b, kval b_at)
{
    struct kir *k = t->m->k;
    i64 lanes = t->lanes * t->dot_k;
    kval right[TILE_COLUMNS];
    assert(!t->limit);
    for (i64 j = 0; j < t->nr; j++) right[j] = kir_load(k, b, kir_ramp(k, kir_add_i(k, b_at, j * lanes), 1, (u32)lanes));
    for (i64 j = 0; t->ahead && j < t->nr; j++) kir_prefetch(k, b, kir_add_i(k, b_at, tile_ahead(t, j) * lanes));
    tile_add(t, a, right, left, kir_dot);
}

const struct tile_leaf tile_dot = {.terms = terms, .step = step};
