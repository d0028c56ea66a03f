// SPDX-License-Identifier: Apache-2.0
//
// wg_attention_row: rows of scores in the registers of several threads each: what the graph computes from a score, the greatest one of a row, and the
// exponentials relative to it. A thread has the sum of its own exponentials; those of a row are added up behind the last block. Or, from given statistics,
// probabilities.
#include "gen/wg_attention.h"

#include <math.h>

kval wg_attention_row(const struct wg_attention *a, kval row)
{
    struct kir *k = a->m->k;
    row = kir_add(k, a->m0, row);
    if (sym_divides(a->m->g->sym, a->s.br, a->x.scores.m)) return row;
    return kir_min(k, row, kir_add_i(k, emit_size(a->m, a->x.scores.m), -1));
}

kval wg_attention_is_row(const struct wg_attention *a, kval row) { return kir_lt(a->m->k, row, emit_size(a->m, a->x.scores.m)); }

static void fold_shuffled(struct wg_attention *a, enum kir_op op, kval *own, i64 n)
{
    const struct wg_fold f = {.g = &a->first.g, .op = op, .width = a->s.wlpx, .step = 1};
    for (i64 i = 0; i < n; i++) own[i] = wg_fold(&f, own[i]);
}

/* The numbers that the threads of a row have left, one vector after the other. */
static kval fold_line(const struct wg_attention *a, enum kir_op op, kval array, kval from)
{
    struct kir *k = a->m->k;
    const i64 threads = a->s.wlpx * a->s.blpx, lanes = i64_min(4, threads);
    kval all = 0;
    for (i64 i = 0; i < threads; i += lanes) {
        kval v = kir_load(k, array, kir_ramp(k, kir_add_i(k, from, i), 1, (u32)lanes));
        all = all ? kir_bin(k, op, all, v) : v;
    }
    if (lanes == 1) return all;
    return kir_un(k, op == KI_ADD ? KI_HADD : op == KI_MAX ? KI_HMAX : KI_HMIN, all);
}

void wg_attention_fold(struct wg_attention *a, enum kir_op op, kval array, kval *own, i64 n)
{
    struct kir *k = a->m->k;
    const i64 threads = a->s.wlpx * a->s.blpx;
    if (threads == 1) return;
    if (!array) {
        fold_shuffled(a, op, own, n);
        return;
    }
    for (i64 i = 0; i < n; i++) kir_store(k, array, kir_add(k, kir_mul_i(k, fma_row(k, &a->scores, i), threads), a->place), own[i]);
    kir_barrier(k);
    for (i64 i = 0; i < n; i++) own[i] = fold_line(a, op, array, kir_mul_i(k, fma_row(k, &a->scores, i), threads));
}

kval wg_attention_value(const struct wg_attention *a, value_id v, const kval *idx, kval key, kval raw, double beyond)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    const struct attention *x = &a->x;
    const u32 lanes = kir_lanes(k, raw);
    const bool is_whole = sym_divides(m->g->sym, a->s.bc, x->scores.n), has_vectors = sym_divides(m->g->sym, lanes, x->scores.n);
    kval own[MAX_RANK], n = emit_size(m, x->scores.n), at = is_whole ? key : kir_min(k, key, kir_add_i(k, n, has_vectors ? -(i64)lanes : -1));
    for (u32 d = 0; d < MAX_RANK; d++) own[d] = idx[d];
    own[graph_value(m->g, v)->shape.rank - 1] = kir_ramp(k, at, 1, lanes);
    emit_bind(m, x->scores.y, gen_given, &raw);
    emit_limit(m, has_vectors ? 0 : kir_sub(k, n, at));
    kval all = kir_splat(k, kir_cast(k, DT_F32, emit_value(m, v, own)), lanes);
    emit_limit(m, 0);
    emit_bind(m, x->scores.y, NULL, NULL);
    return is_whole ? all : kir_select(k, kir_lt(k, kir_ramp(k, key, 1, lanes), kir_splat(k, n, lanes)), all, kir_const_f(k, DT_F32, lanes, beyond));
}

/* The row's exponentials, of which the maximum is bound. */
static kval exponential(struct wg_attention *a, i64 i, kval key, kval score)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    const struct reduction *red = a->x.rows.red;
    kval idx[MAX_RANK];
    for (u32 d = 0; d < MAX_RANK; d++) idx[d] = a->row[i].scores[d];
    idx[graph_value(m->g, red[0].in)->shape.rank - 1] = key;
    emit_bind(m, red[0].in, gen_given, &score);
    kval v = kir_splat(k, kir_cast(k, DT_F32, emit_value(m, red[1].in, idx)), kir_lanes(k, score));
    emit_bind(m, red[0].in, NULL, NULL);
    return v;
}

/* The greatest score of a row so far, in the thread; its scores replace the products. */
static kval find_most(struct wg_attention *a, kval block, i64 i)
{
    struct kir *k = a->m->k;
    const struct fma_leaf *l = &a->scores;
    kval most = 0;
    for (i64 j = 0; j < fma_vectors(l); j++) {
        kval slot = fma_slot(k, &a->scores, i, j), key = kir_add(k, kir_mul_i(k, block, a->s.bc), fma_col(k, &a->scores, j));
        kval v = wg_attention_value(a, a->x.rows.red[0].in, a->row[i].scores, key, kir_load(k, l->acc, slot), -INFINITY);
        kir_store(k, l->acc, slot, v);
        most = most ? kir_max(k, most, v) : v;
    }
    return kir_lanes(k, most) > 1 ? kir_un(k, KI_HMAX, most) : most;
}

/* Exponentials or probabilities of the thread's row i and vector j, to where the second product reads them. */
static void put_weights(const struct wg_attention *a, i64 i, i64 j, kval e)
{
    struct kir *k = a->m->k;
    kval v = kir_cast(k, kir_dtype(k, a->p), e), row = kir_mul_i(k, fma_row(k, &a->scores, i), a->pitch);
    if (a->s.by_warpgroups) kir_store(k, a->p, fma_slot(k, &a->scores, i, j), v);
    else kir_store(k, a->p, kir_ramp(k, kir_add(k, row, fma_col(k, &a->scores, j)), 1, a->scores.lanes), v);
}

/* Exponentials relative to the new maximum, 0 where there is none yet. Returns the factor of the row's sums so far. */
static kval do_row(struct wg_attention *a, kval block, i64 i, kval most)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    const struct fma_leaf *l = &a->scores;
    kval slot = kir_int(k, i), before = kir_load(k, a->most, slot), all = 0;
    most = kir_max(k, most, before);
    kir_store(k, a->most, slot, most);
    kval to = kir_select(k, kir_bin(k, KI_EQ, most, kir_const_f(k, DT_F32, 1, -INFINITY)), kir_const_f(k, DT_F32, 1, 0), most);
    kval factor = kir_un(k, KI_EXP, kir_sub(k, before, to));
    emit_bind(m, a->x.rows.red[0].out, gen_given, &to);
    for (i64 j = 0; j < fma_vectors(l); j++) {
        kval col = fma_col(k, &a->scores, j), score = kir_load(k, l->acc, fma_slot(k, &a->scores, i, j));
        kval e = exponential(a, i, kir_ramp(k, kir_add(k, kir_mul_i(k, block, a->s.bc), col), 1, l->lanes), score);
        if (a->p) put_weights(a, i, j, e);
        all = all ? kir_add(k, all, e) : e;
    }
    emit_bind(m, a->x.rows.red[0].out, NULL, NULL);
    all = kir_lanes(k, all) > 1 ? kir_un(k, KI_HADD, all) : all;
    kir_store(k, a->sum, slot, kir_fma(k, kir_load(k, a->sum, slot), factor, all));
    return factor;
}

void wg_attention_softmax(struct wg_attention *a, kval block)
{
    struct kir *k = a->m->k;
    const i64 n = a->scores.row.n;
    kval most[WG_ATTENTION_ROWS] = {0}, factor[WG_ATTENTION_ROWS] = {0};
    for (i64 i = 0; i < n; i++) most[i] = find_most(a, block, i);
    wg_attention_fold(a, KI_MAX, a->folds, most, n);
    for (i64 i = 0; i < n; i++) factor[i] = do_row(a, block, i, most[i]);
    for (i64 i = 0; i < n && a->s.by_warpgroups; i++) kir_store(k, a->factors, kir_int(k, i), factor[i]);
    if (!a->factors || a->s.by_warpgroups) return;
    kir_if(k, kir_bin(k, KI_EQ, a->place, kir_int(k, 0)));
    for (i64 i = 0; i < n; i++) kir_store(k, a->factors, fma_row(k, &a->scores, i), factor[i]);
    kir_end(k);
}

void wg_attention_given(struct wg_attention *a, kval block)
{
    struct kir *k = a->m->k;
    const struct fma_leaf *l = &a->scores;
    for (i64 i = 0; i < l->row.n; i++)
        for (i64 j = 0; j < fma_vectors(l); j++) {
            kval key = kir_add(k, kir_mul_i(k, block, a->s.bc), fma_col(k, l, j));
            put_weights(a, i, j, wg_attention_value(a, a->x.p, a->row[i].p, key, kir_load(k, l->acc, fma_slot(k, l, i, j)), 0));
        }
}

void wg_attention_store(struct wg_attention *a, kval row, kval col, kval sums, kval factor)
{
    struct kir *k = a->m->k;
    const u32 lanes = kir_lanes(k, sums);
    kval is_zero = kir_bin(k, KI_EQ, factor, kir_const_f(k, DT_F32, 1, 0)), all = kir_mul(k, sums, kir_splat(k, factor, lanes));
    contract_store_whole(&a->second, row, col, kir_select(k, kir_splat(k, is_zero, lanes), kir_const_f(k, DT_F32, lanes, 0), all));
}
