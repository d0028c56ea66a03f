// SPDX-License-Identifier: Apache-2.0
//
// tile_short: a step of 4, 8 or 16 terms of bytes, for processors whose products of bytes are summed in i16, with saturation (vpmaddubsw). The graph says
// of how many products the sums fit (op_acc16), so that none saturates: the pairs of a step's groups of 4 terms are added in i16, and these sums, two
// per lane, then to i32 (vpmaddwd by ones). Groups lie as those of tile_dot: [group][column][term].
#include "gen/tile.h"

enum { GROUP = 4, MOST = 16 /* terms of a step */ };

/* A sum in i16 has half the terms of a step. Steps of more terms than there are add zeros. */
static i64 terms(const struct caps *c, const struct tile_operands *o)
{
    if (c->vector_bytes < 16 || o->n < 0 || o->a != DT_U8 || o->b != DT_I8 || o->sum != DT_I32) return 0;
    if (!caps_has_dot(c, DT_U8, DT_I8, DT_I16) || !caps_has_dot(c, DT_I16, DT_I16, DT_I32)) return 0;
    for (i64 n = MOST; n >= GROUP; n /= 2)
        if (n <= 2 * o->acc16 && (n == GROUP || round_up(o->n, n) == round_up(o->n, GROUP))) return n;
    return 0;
}

/* A row's groups, each in all lanes. */
static void load_row(const struct tile *t, const struct tile_in *a, i64 row, kval *group)
{
    struct kir *k = t->m->k;
    kval at = tile_row_at(t, a, row);
    for (i64 i = 0; i < t->dot_k / GROUP; i++) {
        group[i] = kir_repeat(k, kir_load(k, a->buf, kir_ramp(k, kir_add_i(k, at, i * GROUP), 1, GROUP)), t->lanes * GROUP);
        if (a->inside) group[i] = kir_select(k, a->inside[row], group[i], tile_outside(k, a, kir_dtype(k, group[i])));
    }
}

static void step(const struct tile *t, const struct tile_in *a, kval b, kval b_at)
{
    struct kir *k = t->m->k;
    const i64 lanes = t->lanes * GROUP, n = t->dot_k / GROUP, pitch = t->pitch ? t->pitch : t->nr;
    kval right[MOST / GROUP][TILE_COLUMNS], left[MOST / GROUP], one = kir_const_i(k, DT_I16, 2 * t->lanes, 1);
    assert(!t->limit);
    for (i64 i = 0; i < n; i++)
        for (i64 j = 0; j < t->nr; j++) right[i][j] = kir_load(k, b, kir_ramp(k, kir_add_i(k, b_at, (i * pitch + j) * lanes), 1, (u32)lanes));
    for (i64 j = 0; t->ahead && j < t->nr; j++) kir_prefetch(k, b, kir_add_i(k, b_at, n * tile_ahead(t, j) * lanes));
    for (i64 p = 0; p < t->ty * t->tx; p++) {
        if (!tile_takes_part(a, p)) continue;
        load_row(t, a, p, left);
        for (i64 j = 0; j < t->nr; j++) {
            kval sum = kir_const_i(k, DT_I16, 2 * t->lanes, 0), at = tile_acc(t, p, j);
            for (i64 i = 0; i < n; i++) sum = kir_dot(k, left[i], right[i][j], sum);
            kir_store(k, t->acc, at, kir_dot(k, sum, one, kir_load(k, t->acc, at)));
        }
    }
}

const struct tile_leaf tile_short = {.terms = terms, .in_groups = true, .step = step};
