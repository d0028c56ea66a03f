// SPDX-License-Identifier: Apache-2.0
//
// tile_terms: a step of a vector of terms, for few columns: an accumulator holds partial sums of one result, whose lanes are added up at the end. So that
// the epilogue runs along x, the sums of as many rows as a vector has lanes are collected first.
#include "gen/tile.h"

static kval left(const struct tile *t, const struct tile_in *a, kval at)
{
    struct kir *k = t->m->k;
    return kir_cast(k, t->type, kir_load_n(k, a->buf, kir_ramp(k, at, 1, t->lanes), a->limit));
}

static void step(const struct tile *t, const struct tile_in *a, kval b, kval b_at)
{
    struct kir *k = t->m->k;
    kval right[TILE_COLUMNS];
    for (i64 j = 0; j < t->nr; j++) {
        kval at = t->next ? kir_add(k, b_at, kir_mul_i(k, t->next, j)) : kir_add_i(k, b_at, j * t->lanes);
        right[j] = kir_cast(k, t->type, kir_load_n(k, b, kir_ramp(k, at, 1, t->lanes), t->limit));
    }
    tile_add(t, a, right, left, kir_fma);
}

/* [dy][column][row] */
i64 tile_collected_size(const struct tile *t) { return t->ty * t->nr * t->lanes; }

void tile_collect(const struct tile *t, kval x)
{
    struct kir *k = t->m->k;
    for (i64 p = 0; p < t->ty * t->tx; p++)
        for (i64 j = 0; j < t->nr; j++) {
            kval sum = kir_un(k, KI_HADD, kir_load(k, t->acc, tile_acc(t, p, j)));
            kir_store(k, t->collected, kir_add_i(k, x, (p / t->tx * t->nr + j) * t->lanes + p % t->tx), sum);
        }
}

static void store(const struct tile *t, const struct tile_out *o)
{
    struct kir *k = t->m->k;
    for (i64 dy = 0; dy < t->ty; dy++) {
        bool guarded = tile_open_row(t, o, dy);
        for (i64 j = 0; j < t->nr; j++) {
            kval sum = kir_load(k, t->collected, kir_ramp(k, kir_int(k, (dy * t->nr + j) * t->lanes), 1, t->lanes)), c = kir_add_i(k, o->c, j);
            if (t->bias) sum = kir_add(k, sum, kir_splat(k, kir_cast(k, t->type, emit_value(t->m, t->bias, &c)), t->lanes));
            tile_store_along(t, o, dy, 0, j, sum);
        }
        if (guarded) kir_end(k);
    }
}

const struct tile_leaf tile_terms = {.step = step, .store = store};
