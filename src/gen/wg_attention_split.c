// SPDX-License-Identifier: Apache-2.0
//
// wg_attention_split: keys divided among workgroups, where few rows of queries have many keys (as attention_split.c on processors). A workgroup leaves, of
// its part of the keys, each row's greatest score, and the sums relative to it. A grid behind brings the sums to the greatest score of all parts and adds
// them up: a thread has a vector of columns of a row.
#include "gen/wg_attention.h"

#include <math.h>

sym wg_attention_parts(const struct wg_attention *a)
{
    struct symtab *st = a->m->g->sym;
    return sym_cdiv(st, a->x.scores.n, sym_const(st, round_up(a->s.split, a->s.bc)));
}

void wg_attention_split_open(struct wg_attention *a)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const struct gemm *x = wg_attention_rows_of(&a->x);
    sym parts = wg_attention_parts(a), rows = sym_mul(st, sym_mul(st, space_count(&x->outer, st, 0, x->outer.n), x->m), parts);
    a->n_parts = emit_size(m, parts);
    a->parts.pitch = kir_int(k, a->s.columns);
    if (a->x.rows.n) {
        a->parts.most = kir_alloc(k, KS_TEMP, DT_F32, 1, emit_size(m, rows));
        a->parts.sum = kir_alloc(k, KS_TEMP, DT_F32, 1, emit_size(m, rows));
    }
    if (attention_has_values(&a->x)) a->parts.out = kir_alloc(k, KS_TEMP, DT_F32, 1, emit_size(m, sym_mul(st, rows, sym_const(st, a->s.columns))));
}

void wg_attention_split_keys(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const i64 each = round_up(a->s.split, a->s.bc);
    kval begin = kir_mul_i(k, a->part, each);
    a->keys.from = kir_max(k, a->keys.from, begin);
    a->keys.to = kir_min(k, a->keys.to, kir_add_i(k, begin, each));
}

/* The number of a row's sums of a part. */
static kval sums_of(const struct wg_attention *a, kval row, kval part)
{
    struct kir *k = a->m->k;
    kval rows = kir_add(k, kir_mul(k, a->batch, emit_size(a->m, a->x.scores.m)), row);
    return kir_add(k, kir_mul(k, rows, a->n_parts), part);
}

static void store_statistics(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const struct attention_sums *to = &a->parts;
    for (i64 i = 0; i < a->scores.row.n; i++) {
        kval own = fma_row(k, &a->scores, i), row = kir_add(k, a->m0, own), at = sums_of(a, row, a->part);
        kir_if(k, kir_bin(k, KI_AND, kir_bin(k, KI_EQ, a->place, kir_int(k, 0)), wg_attention_is_row(a, row)));
        kir_store(k, to->most, at, kir_load(k, a->most_of, own));
        kir_store(k, to->sum, at, kir_load(k, a->sum_of, own));
        kir_end(k);
    }
}

static void store_sums(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const struct fma_leaf *l = &a->sums;
    const struct attention_sums *to = &a->parts;
    for (i64 i = 0; i < l->row.n; i++) {
        kval row = kir_add(k, a->m0, fma_row(k, &a->sums, i)), at = kir_mul(k, sums_of(a, row, a->part), to->pitch);
        kir_if(k, wg_attention_is_row(a, row));
        for (i64 j = 0; j < fma_vectors(l); j++)
            kir_store(k, to->out, kir_ramp(k, kir_add(k, at, fma_col(k, &a->sums, j)), 1, l->lanes), kir_load(k, l->acc, fma_slot(k, &a->sums, i, j)));
        kir_end(k);
    }
}

void wg_attention_split_store(struct wg_attention *a)
{
    if (a->x.rows.n) store_statistics(a);
    if (attention_has_values(&a->x)) store_sums(a);
}

/* Of a row: the greatest score of all parts, and the sum of exponentials relative to it. */
struct merged { kval most, sum, relative; };

static struct merged merge_statistics(struct wg_attention *a, kval row)
{
    struct kir *k = a->m->k;
    const struct attention_sums *from = &a->parts;
    struct merged r = {kir_alloc(k, KS_REG, DT_F32, 1, kir_int(k, 1)), kir_alloc(k, KS_REG, DT_F32, 1, kir_int(k, 1)), 0};
    kval zero = kir_int(k, 0), none = kir_const_f(k, DT_F32, 1, -INFINITY);
    kir_store(k, r.most, zero, none), kir_store(k, r.sum, zero, kir_const_f(k, DT_F32, 1, 0));
    kval part = kir_loop(k, KL_SERIAL, zero, a->n_parts, 1);
    kir_store(k, r.most, zero, kir_max(k, kir_load(k, r.most, zero), kir_load(k, from->most, sums_of(a, row, part))));
    kir_end(k);
    kval most = kir_load(k, r.most, zero);
    r.relative = kir_select(k, kir_bin(k, KI_EQ, most, none), kir_const_f(k, DT_F32, 1, 0), most);
    part = kir_loop(k, KL_SERIAL, zero, a->n_parts, 1);
    kval at = sums_of(a, row, part), factor = kir_un(k, KI_EXP, kir_sub(k, kir_load(k, from->most, at), r.relative));
    kir_store(k, r.sum, zero, kir_fma(k, factor, kir_load(k, from->sum, at), kir_load(k, r.sum, zero)));
    kir_end(k);
    r.most = most, r.sum = kir_load(k, r.sum, zero);
    return r;
}

static kval merge_sums(struct wg_attention *a, const struct merged *r, kval row, kval col)
{
    struct kir *k = a->m->k;
    const struct attention_sums *from = &a->parts;
    const u32 lanes = a->sums.lanes;
    kval sum = kir_alloc(k, KS_REG, DT_F32, lanes, kir_int(k, 1)), zero = kir_int(k, 0);
    kir_store(k, sum, zero, kir_const_f(k, DT_F32, lanes, 0));
    kval part = kir_loop(k, KL_SERIAL, zero, a->n_parts, 1), at = sums_of(a, row, part);
    kval factor = r->relative ? kir_un(k, KI_EXP, kir_sub(k, kir_load(k, from->most, at), r->relative)) : kir_const_f(k, DT_F32, 1, 1);
    kval v = kir_load(k, from->out, kir_ramp(k, kir_add(k, kir_mul(k, at, from->pitch), col), 1, lanes));
    kir_store(k, sum, zero, kir_fma(k, kir_splat(k, factor, lanes), v, kir_load(k, sum, zero)));
    kir_end(k);
    return kir_load(k, sum, zero);
}

/* Of a row, whose statistics are stored by its thread of column 0. Returns the factor of its sums. */
static kval merge_row(struct wg_attention *a, kval row, kval col, struct merged *r)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    struct attention_row at;
    if (!a->x.rows.n) return kir_const_f(k, DT_F32, 1, 1);
    attention_index_row(m, &a->x, a->first.pos, row, &at);
    *r = merge_statistics(a, row);
    kval sum = r->sum, factor = attention_factor(m, &a->x, at.p, &r->most, &sum);
    if (a->x.n_statistics || a->x.columns.out) {
        kir_if(k, kir_bin(k, KI_EQ, col, kir_int(k, 0)));
        attention_store_statistics_at(m, &a->x, at.scores);
        if (a->x.columns.out) wg_attention_keep_reduced(a, row, at.scores);
        kir_end(k);
    }
    attention_forget(m, &a->x);
    return factor;
}

void wg_attention_split_merge(struct wg_attention *a)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const struct gemm *x = wg_attention_rows_of(&a->x);
    const i64 vectors = attention_has_values(&a->x) ? a->s.columns / a->sums.lanes : 0, each = i64_max(1, vectors);
    const i64 rows = i64_max(1, a->s.threads / each), across = i64_min(each, a->s.threads);
    struct merged r = {0};
    a->batch = kir_grid(k, emit_size(m, space_count(&x->outer, st, 0, x->outer.n)));
    kval block = kir_grid(k, emit_size(m, sym_cdiv(st, x->m, sym_const(st, rows))));
    wg_enter(&a->first.g);
    a->second.g = a->first.g;
    a->n_parts = emit_size(m, wg_attention_parts(a));
    space_at(m, &x->outer, a->batch, a->first.pos);
    space_at(m, &x->outer, a->batch, a->second.pos);
    kval own = kir_div_i(k, a->first.g.t, across), col = kir_mod_i(k, a->first.g.t, across);
    a->second.a.first = kir_mul_i(k, block, rows), a->second.s.bm = rows;
    kval row = kir_add(k, a->second.a.first, own);
    kir_if(k, kir_bin(k, KI_AND, kir_lt(k, own, kir_int(k, rows)), wg_attention_is_row(a, row)));
    kval factor = merge_row(a, row, col, &r);
    for (i64 i = 0; i < ceil_div(vectors, across); i++) {
        kval c = kir_mul_i(k, kir_add_i(k, col, i * across), a->sums.lanes);
        bool some = (i + 1) * across > vectors;
        if (some) kir_if(k, kir_lt(k, c, kir_int(k, a->s.columns)));
        wg_attention_store(a, own, c, merge_sums(a, &r, row, c), factor);
        if (some) kir_end(k);
    }
    kir_end(k);
    for (u32 i = 0; i < 2; i++) kir_end(k);
}
