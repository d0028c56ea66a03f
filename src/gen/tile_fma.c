// SPDX-License-Identifier: Apache-2.0
//
// tile_fma: a step of one term: nr vectors of the right operand, and for every row an element that is spread to all lanes.
#include "gen/tile.h"

static kval left(const struct tile *t, const struct tile_in *a, kval at)
{
    struct kir *k = t->m->k;
    return kir_splat(k, kir_cast(k, t->type, kir_load(k, a->buf, at)), t->lanes);
}

static void step(const struct tile *t, const struct tile_in *a, kval b, kval b_at)
{
    struct kir *k = t->m->k;
    kval right[TILE_COLUMNS];
    for (i64 j = 0; j < t->nr; j++) {
        kval at = kir_ramp(k, kir_add_i(k, b_at, j * t->lanes), 1, t->lanes), limit = t->limit ? kir_add_i(k, t->limit, -j * t->lanes) : 0;
        right[j] = kir_cast(k, t->type, kir_load_n(k, b, at, limit));
    }
    for (i64 j = 0; t->ahead && j < t->nr; j++) kir_prefetch(k, b, kir_add_i(k, b_at, tile_ahead(t, j) * t->lanes));
    tile_add(t, a, right, left, kir_fma);
}

const struct tile_leaf tile_fma = {.step = step};
