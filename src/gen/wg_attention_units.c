// SPDX-License-Identifier: Apache-2.0
//
// wg_attention_units: attention whose products are those of matrix units (leaf_mma.c). Which element of a fragment a thread holds is the target's own
// matter. Scores therefore go through shared memory to threads, which have parts of rows (wg_attention_row.c), and probabilities through shared memory to
// operands. The sums of the output stay in fragments from the first block of keys to the last: a factor of each row becomes a fragment, all of whose
// columns are the same line of memory, and multiplies them element by element.
#include "gen/wg_attention.h"

static void put_fragments(const struct wg_attention *a, const struct mma_leaf *l, i64 pitch)
{
    struct kir *k = a->m->k;
    const struct mma_tile *t = &l->t;
    kval at = kir_add(k, kir_mul_i(k, l->row, pitch), l->col);
    for (i64 i = 0; i < t->wm; i++)
        for (i64 j = 0; j < t->wn; j++)
            kir_frag_store(k, a->held, kir_add_i(k, at, i * t->c.rows * pitch + j * t->c.cols), mma_get(t, k, i, j), kir_int(k, pitch), false);
}

static void take_tile(const struct wg_attention *a, const struct fma_leaf *l, i64 pitch)
{
    struct kir *k = a->m->k;
    for (i64 i = 0; i < l->row.n; i++)
        for (i64 j = 0; j < fma_vectors(l); j++) {
            kval at = kir_add(k, kir_mul_i(k, fma_row(k, l, i), pitch), fma_col(k, l, j));
            kir_store(k, l->acc, fma_slot(k, l, i, j), kir_load(k, a->held, kir_ramp(k, at, 1, l->lanes)));
        }
}

void wg_attention_units_put_scores(struct wg_attention *a) { put_fragments(a, &a->s.units[0], a->pitch); }

void wg_attention_units_take_scores(struct wg_attention *a) { take_tile(a, &a->scores, a->pitch); }

void wg_attention_units_scale(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const struct mma_leaf *l = &a->s.units[1];
    const struct mma_tile *t = &l->t;
    for (i64 i = 0; i < t->wm; i++) {
        kval factor = kir_frag_load(k, &t->c, a->factors, kir_add_i(k, l->row, i * t->c.rows), kir_int(k, 0), true);
        for (i64 j = 0; j < t->wn; j++) mma_set(t, k, i, j, kir_mul(k, mma_get(t, k, i, j), factor));
    }
}

void wg_attention_units_sums(struct wg_attention *a)
{
    const i64 pitch = a->s.columns + a->s.pad;
    put_fragments(a, &a->s.units[1], pitch);
    kir_barrier(a->m->k);
    fma_open(&a->sums, &a->second.g, DT_F32);
    take_tile(a, &a->sums, pitch);
}
