// SPDX-License-Identifier: Apache-2.0
//
// tile_channels: a step of one term where every column has rows of its own (depthwise): vectors of both operands run along the columns.
#include "gen/tile.h"

static void step(const struct tile *t, const struct tile_in *a, kval b, kval b_at)
{
    struct kir *k = t->m->k;
    for (i64 j = 0; j < t->nr; j++) {
        kval to = kir_ramp(k, kir_add_i(k, b_at, j * t->lanes), 1, t->lanes), limit = t->limit ? kir_add_i(k, t->limit, -j * t->lanes) : 0;
        kval y = kir_cast(k, t->type, kir_load_n(k, b, to, limit));
        for (i64 p = 0; p < t->ty * t->tx; p++) {
            kval from = kir_ramp(k, kir_add_i(k, kir_add(k, a->at, a->px[p]), j * t->lanes), 1, t->lanes), at = tile_acc(t, p, j);
            kval x = kir_cast(k, t->type, kir_load_n(k, a->buf, from, limit));
            kir_store(k, t->acc, at, kir_fma(k, x, y, kir_load(k, t->acc, at)));
        }
    }
}

const struct tile_leaf tile_channels = {.step = step};
