// SPDX-License-Identifier: Apache-2.0
//
// tile_mmla: a step of two groups of a DOT, of which one instruction multiplies two rows with two columns (MMLA: smmla, ummla, usmmla, bfmmla). Groups
// lie column by column in the right operand. While terms are added, the accumulators of two rows hold 2x2 sums: of a vector of four columns, that of the
// first row those of columns 0 and 1, that of the second row those of 2 and 3. An odd last row is a pair with zeros, whose sums nobody reads.
#include "gen/tile.h"

static i64 terms(const struct caps *c, const struct tile_operands *o)
{
    i64 group = c->vector_bytes == 16 ? kir_dot_terms(o->a, o->b, o->sum) : 0;
    return !group || (o->n >= 0 && o->n <= group) || !caps_has_mmla(c, o->a, o->b, o->sum) ? 0 : 2 * group;
}

static i64 rows_of(const struct tile *t) { return t->ty * t->tx; }

/* Rows of columns become 2x2 sums, and these rows again. */
static void turn(const struct tile *t)
{
    struct kir *k = t->m->k;
    for (i64 p = 0; p < rows_of(t); p += 2)
        for (i64 j = 0; j < t->nr; j++) {
            kval to[2] = {tile_acc(t, p, j), tile_acc(t, p + 1, j)}, x[2] = {kir_load(k, t->acc, to[0])};
            x[1] = kir_load(k, t->acc, to[1]);
            for (i64 i = 0; i < 2; i++) kir_store(k, t->acc, to[i], kir_halves(k, x[0], x[1], i));
        }
}

static void begin(const struct tile *t)
{
    struct kir *k = t->m->k;
    for (i64 j = 0; rows_of(t) % 2 && j < t->nr; j++) kir_store(k, t->acc, tile_acc(t, rows_of(t), j), kir_const_f(k, t->type, t->lanes, 0));
    turn(t);
}

/* A row's groups, twice. */
static kval row(const struct tile *t, const struct tile_in *a, i64 p)
{
    struct kir *k = t->m->k;
    kval none = kir_const_f(k, kir_dtype(k, a->buf), 2 * (u32)t->dot_k, 0);
    if (p == rows_of(t) || !tile_takes_part(a, p)) return none;
    kval x = kir_repeat(k, kir_load(k, a->buf, kir_ramp(k, tile_row_at(t, a, p), 1, (u32)t->dot_k)), 2 * (u32)t->dot_k);
    return a->inside ? kir_select(k, a->inside[p], x, tile_outside(k, a, kir_dtype(k, x))) : x;
}

static void step(const struct tile *t, const struct tile_in *a, kval b, kval b_at)
{
    struct kir *k = t->m->k;
    i64 lanes = 2 * t->dot_k;
    kval right[2 * TILE_COLUMNS];
    assert(!t->limit && t->lanes == 4);
    for (i64 j = 0; j < 2 * t->nr; j++) right[j] = kir_load(k, b, kir_ramp(k, kir_add_i(k, b_at, j * lanes), 1, (u32)lanes));
    for (i64 j = 0; t->ahead && j < t->nr; j++) kir_prefetch(k, b, kir_add_i(k, b_at, 2 * tile_ahead(t, j) * lanes));
    for (i64 p = 0; p < rows_of(t); p += 2) {
        bool second = p + 1 < rows_of(t) && tile_takes_part(a, p + 1);
        if (!tile_takes_part(a, p) && !second) continue;
        kval left = kir_halves(k, row(t, a, p), row(t, a, p + 1), 0);
        for (i64 j = 0; j < 2 * t->nr; j++) {
            kval at = tile_acc(t, p + j % 2, j / 2);
            kir_store(k, t->acc, at, kir_mmla(k, left, right[j], kir_load(k, t->acc, at)));
        }
    }
}

const struct tile_leaf tile_mmla = {.terms = terms, .rows = 2, .step = step, .begin = begin, .end = turn};
