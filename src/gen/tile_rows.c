// SPDX-License-Identifier: Apache-2.0
//
// tile_rows: a step of one term for few columns: vectors of rows along x, and for every column an element that is spread to all lanes, so that three
// columns do not leave thirteen lanes idle.
#include "gen/tile.h"

static void clear(const struct tile *t, value_id bias, kval c)
{
    struct kir *k = t->m->k;
    for (i64 j = 0; j < t->nr; j++) {
        kval init = kir_const_f(k, t->type, t->lanes, 0), at = kir_add_i(k, c, j);
        if (bias) init = kir_splat(k, kir_cast(k, t->type, emit_value(t->m, bias, &at)), t->lanes);
        for (i64 p = 0; p < t->ty * t->tx; p++) kir_store(k, t->acc, tile_acc(t, p, j), init);
    }
}

static kval left(const struct tile *t, const struct tile_in *a, kval at)
{
    return kir_load(t->m->k, a->buf, kir_ramp(t->m->k, at, 1, t->lanes));
}

static void step(const struct tile *t, const struct tile_in *a, kval b, kval b_at)
{
    struct kir *k = t->m->k;
    kval right[TILE_COLUMNS];
    for (i64 j = 0; j < t->nr; j++) right[j] = kir_splat(k, kir_cast(k, t->type, kir_load(k, b, kir_add_i(k, b_at, j))), t->lanes);
    tile_add(t, a, right, left, kir_fma);
}

static void store(const struct tile *t, const struct tile_out *o)
{
    struct kir *k = t->m->k;
    for (i64 dy = 0; dy < t->ty; dy++) {
        bool guarded = tile_open_row(t, o, dy);
        for (i64 v = 0; v < t->tx; v++) {
            if (v > 0) kir_if(k, kir_lt(k, kir_add_i(k, o->idx[o->x_axis], v * t->lanes), o->x_end));
            for (i64 j = 0; j < t->nr; j++) tile_store_along(t, o, dy, v * t->lanes, j, kir_load(k, t->acc, tile_acc(t, dy * t->tx + v, j)));
            if (v > 0) kir_end(k);
        }
        if (guarded) kir_end(k);
    }
}

const struct tile_leaf tile_rows = {.step = step, .clear = clear, .store = store};
