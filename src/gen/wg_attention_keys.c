// SPDX-License-Identifier: Apache-2.0
//
// wg_attention_keys: the keys that some row of a workgroup may attend to. What a band leaves follows from the numbers of the rows. Of a mask that is read
// while running the threads of each row find the first and the last key that it sees (attention_mask.c says how a mask is known). A row whose keys are all
// masked has the result of the definition, for which all its keys are needed.
#include "gen/wg_attention.h"

#include <math.h>

struct seen { kval first, last; }; /* REG */

/* Whether row i sees a key. */
static kval is_open(struct wg_attention *a, i64 i, kval key)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    const value_id in = a->x.score;
    kval idx[MAX_RANK], raw = kir_load(k, a->scores.acc, kir_int(k, 0));
    if (a->scores.lanes > 1) raw = kir_lane(k, raw, 0);
    for (u32 d = 0; d < MAX_RANK; d++) idx[d] = a->row[i].scores[d];
    idx[graph_value(m->g, in)->shape.rank - 1] = key;
    emit_bind(m, a->x.scores.y, gen_given, &raw);
    kval open = attention_open(k, emit_value(m, in, idx), raw);
    emit_bind(m, a->x.scores.y, NULL, NULL);
    return open ? open : kir_const_i(k, DT_BOOL, 1, 1);
}

/* Each thread of a row looks at every so many keys. */
static void scan_row(struct wg_attention *a, i64 i, const struct seen *to)
{
    struct kir *k = a->m->k;
    kval zero = kir_int(k, 0);
    kir_store(k, to->first, zero, kir_const_i(k, DT_I32, 1, INT32_MAX));
    kir_store(k, to->last, zero, kir_const_i(k, DT_I32, 1, -1));
    kval key = kir_loop(k, KL_SERIAL, a->place, emit_size(a->m, a->x.scores.n), a->s.wlpx * a->s.blpx);
    kval number = kir_cast(k, DT_I32, key), open = is_open(a, i, key);
    kval first = kir_load(k, to->first, zero), last = kir_load(k, to->last, zero);
    kir_store(k, to->first, zero, kir_min(k, first, kir_select(k, open, number, first)));
    kir_store(k, to->last, zero, kir_max(k, last, kir_select(k, open, number, last)));
    kir_end(k);
}

/* The smallest or greatest of all rows' numbers, of which each thread has those of its own, through an array of them. */
static kval fold_rows(struct wg_attention *a, enum kir_op op, kval array, const kval *own, i64 n)
{
    struct kir *k = a->m->k;
    kir_barrier(k);
    kir_if(k, kir_bin(k, KI_EQ, a->place, kir_int(k, 0)));
    for (i64 i = 0; i < n; i++) kir_store(k, array, fma_row(k, &a->scores, i), own[i]);
    kir_end(k);
    kir_barrier(k);
    if (n < a->scores.row.n) return kir_load(k, array, kir_int(k, 0)); /* all rows are alike */
    kval most = kir_alloc(k, KS_REG, DT_I32, 1, kir_int(k, 1)), zero = kir_int(k, 0);
    kir_store(k, most, zero, kir_load(k, array, zero));
    kval row = kir_loop(k, KL_SERIAL, kir_int(k, 1), kir_int(k, a->s.br), 1);
    kir_store(k, most, zero, kir_bin(k, op, kir_load(k, most, zero), kir_load(k, array, row)));
    kir_end(k);
    return kir_load(k, most, zero);
}

static void find_unmasked(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const i64 n = a->x.is_masked_by_row ? a->scores.row.n : 1;
    struct seen to = {kir_alloc(k, KS_REG, DT_I32, 1, kir_int(k, 1)), kir_alloc(k, KS_REG, DT_I32, 1, kir_int(k, 1))};
    kval first[WG_ATTENTION_ROWS] = {0}, last[WG_ATTENTION_ROWS] = {0}, zero = kir_int(k, 0), end = kir_cast(k, DT_I32, kir_add_i(k, emit_size(a->m, a->x.scores.n), -1));
    for (i64 i = 0; i < n; i++) {
        scan_row(a, i, &to);
        first[i] = kir_load(k, to.first, zero), last[i] = kir_load(k, to.last, zero);
    }
    wg_attention_fold(a, KI_MIN, a->seen, first, n);
    kir_barrier(k);
    wg_attention_fold(a, KI_MAX, a->seen, last, n);
    for (i64 i = 0; i < n; i++) {
        kval none = kir_lt(k, last[i], kir_const_i(k, DT_I32, 1, 0));
        first[i] = kir_select(k, none, kir_const_i(k, DT_I32, 1, 0), first[i]), last[i] = kir_select(k, none, end, last[i]);
    }
    kval all = a->keys.to, from = kir_cast(k, DT_I64, fold_rows(a, KI_MIN, a->seen, first, n));
    kval to_last = kir_cast(k, DT_I64, fold_rows(a, KI_MAX, a->seen, last, n));
    a->keys.from = kir_max(k, kir_min(k, from, kir_add_i(k, all, -1)), zero);
    a->keys.to = kir_min(k, kir_max(k, kir_add_i(k, to_last, 1), kir_add_i(k, a->keys.from, 1)), all);
}

/* All keys, if masked scores of some row make anything else than zeros of p: its statistics were given, and are of no score. */
static void check_rows(struct wg_attention *a)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    const i64 n = a->scores.row.n;
    kval needs_all[WG_ATTENTION_ROWS] = {0}, masked = kir_const_f(k, DT_F32, 1, -INFINITY);
    for (i64 i = 0; i < n; i++) {
        emit_bind(m, a->x.score, gen_given, &masked);
        kval is_zero = kir_bin(k, KI_EQ, kir_cast(k, DT_F32, emit_value(m, a->x.p, a->row[i].p)), kir_const_f(k, DT_F32, 1, 0));
        attention_forget(m, &a->x);
        needs_all[i] = kir_select(k, is_zero, kir_const_i(k, DT_I32, 1, 0), kir_const_i(k, DT_I32, 1, 1));
    }
    kval all = kir_lt(k, kir_const_i(k, DT_I32, 1, 0), fold_rows(a, KI_MAX, a->checks, needs_all, n));
    a->keys.from = kir_select(k, all, kir_int(k, 0), a->keys.from);
    a->keys.to = kir_select(k, all, emit_size(m, a->x.scores.n), a->keys.to);
}

void wg_attention_find_keys(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    kval end = kir_add_i(k, a->m0, a->s.br);
    a->keys = (struct attention_span){kir_int(k, 0), emit_size(a->m, a->x.scores.n)};
    if (a->x.has_mask && a->s.skip) find_unmasked(a);
    if (a->x.has_band) attention_band_keys(a->m, &a->x, &(struct attention_span){a->m0, kir_min(k, end, emit_size(a->m, a->x.scores.m))}, &a->keys);
    if (a->checks) check_rows(a);
}
