// SPDX-License-Identifier: Apache-2.0
//
// attention_online: softmax by blocks of keys, so that scratch memory does not grow with them (Milakov & Gimelshein, Online normalizer calculation for
// softmax, 2018, algorithm 3; Dao, FlashAttention-2, 2023, algorithm 1). A row has the maximum of its scores so far, and the sums, of exponentials and of
// their products with values, relative to it. A block with a larger maximum first multiplies the sums by the exponential of the difference. Behind the last
// block the sums of products are divided.
//
// Rows whose scores so far are all -infinity have sums of zero, relative to zero; where that is so to the end the sum is NaN, as it is of the definition.
//
// Where the rows' statistics are given, a block's p is final: only sums of products wait. Without values there are none of these.
#include "gen/attention.h"

#include <math.h>

void attention_open_sums(struct attention_kernel *a, sym rows)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    struct attention_sums *o = &a->sums;
    if (a->x.is_softmax) {
        o->most = kir_alloc(k, KS_WORK, DT_F32, 1, emit_size(m, rows));
        o->sum = kir_alloc(k, KS_WORK, DT_F32, 1, emit_size(m, rows));
    }
    if (!attention_has_values(&a->x)) return;
    sym width = sym_const(st, a->second.width), pitch = sym_mul(st, sym_cdiv(st, a->x.values.n, width), width);
    o->pitch = emit_size(m, pitch);
    o->out = kir_alloc(k, KS_WORK, DT_F32, 1, emit_size(m, sym_mul(st, rows, pitch)));
    a->second.to = o->out, a->second.to_pitch = o->pitch;
}

void attention_clear_sums(struct attention_kernel *a, kval rows)
{
    struct kir *k = a->m->k;
    const struct attention_sums *o = &a->sums;
    const u32 lanes = a->second.lanes;
    kval row = kir_loop(k, KL_SERIAL, kir_int(k, 0), rows, 1);
    if (a->x.is_softmax) {
        kir_store(k, o->most, row, kir_const_f(k, DT_F32, 1, -INFINITY));
        kir_store(k, o->sum, row, kir_const_f(k, DT_F32, 1, 0));
    }
    if (attention_has_values(&a->x)) {
        kval at = kir_mul(k, row, o->pitch), c = kir_loop(k, KL_SERIAL, kir_int(k, 0), o->pitch, lanes);
        kir_store(k, o->out, kir_ramp(k, kir_add(k, at, c), 1, lanes), kir_const_f(k, DT_F32, lanes, 0));
        kir_end(k);
    }
    kir_end(k);
}

/* A tile of products with this block's values is added to the sums. */
static void add_sums(struct cpu_contraction *c, const struct tile *t, const struct cpu_piece *e)
{
    struct gemm_kernel *p = c->own;
    struct kir *k = p->m->k;
    kval row = kir_sub(k, e->at[CPU_X], p->m0);
    kval first = kir_add(k, kir_mul(k, p->to_row ? kir_add(k, p->to_row, row) : row, p->to_pitch), kir_mul_i(k, e->at[CPU_BLOCK], p->width));
    for (i64 i = 0; i < t->tx; i++)
        for (i64 j = 0; j < t->nr; j++) {
            kval at = kir_ramp(k, kir_add_i(k, kir_add(k, first, kir_mul_i(k, p->to_pitch, i)), j * p->lanes), 1, p->lanes);
            kir_store(k, p->to, at, kir_add(k, kir_load(k, p->to, at), kir_load(k, t->acc, tile_acc(t, i, j))));
        }
}

const struct cpu_addressing attention_sum_tiles = {.find = gemm_find, .multiply = gemm_multiply, .take = add_sums};
const struct cpu_addressing attention_sum_rows = {.find = gemm_find, .multiply = attention_multiply_values, .take = add_sums};

/* row: the number of its sums */
static void scale_sums(struct attention_kernel *a, kval row, kval factor)
{
    struct kir *k = a->m->k;
    const struct attention_sums *o = &a->sums;
    const u32 lanes = a->second.lanes;
    kir_store(k, o->sum, row, kir_mul(k, kir_load(k, o->sum, row), factor));
    if (!attention_has_values(&a->x)) return;
    kval at = kir_mul(k, row, o->pitch), c = kir_loop(k, KL_SERIAL, kir_int(k, 0), o->pitch, lanes);
    kval to = kir_ramp(k, kir_add(k, at, c), 1, lanes);
    kir_store(k, o->out, to, kir_mul(k, kir_load(k, o->out, to), kir_splat(k, factor, lanes)));
    kir_end(k);
}

/* A row of this block's scores becomes exponentials, relative to the greatest one so far. */
static void do_row(struct attention_kernel *a, kval row)
{
    const struct attention_sums *o = &a->sums;
    struct emit *m = a->m;
    struct kir *k = m->k;
    struct rows *r = &a->rows;
    const struct reduction *red = r->x.red;
    const struct kept kept = {r, a->scores};
    kval own = attention_own(a, row), none = kir_const_f(k, DT_F32, 1, -INFINITY);
    attention_find_row(a, row);
    r->base = kir_mul(k, kir_sub(k, row, a->first.m0), a->pitch);
    emit_bind(m, a->x.scores.y, rows_kept, &kept);
    r->store = m->bind[red[0].in].fn ? 0 : a->scores;
    kval before = kir_load(k, o->most, own), own_most = rows_reduce(r, &red[0]), most = kir_max(k, own_most, before);
    emit_bind(m, red[0].in, rows_kept, &kept);
    kir_store(k, o->most, own, most);
    kval to = kir_select(k, kir_bin(k, KI_EQ, most, none), kir_const_f(k, DT_F32, 1, 0), most);
    emit_bind(m, red[0].out, gen_given, &to);
    scale_sums(a, own, kir_un(k, KI_EXP, kir_sub(k, before, to)));
    r->store = attention_has_values(&a->x) ? a->scores : 0;
    kval sum = rows_reduce(r, &red[1]);
    kir_store(k, o->sum, own, kir_add(k, kir_load(k, o->sum, own), sum));
    r->store = 0;
    rows_forget(r);
    emit_bind(m, a->x.scores.y, NULL, NULL);
}

/* Keys from..to-1. */
static void do_block(struct attention_kernel *a, kval from, kval to)
{
    struct kir *k = a->m->k;
    struct gemm_kernel *first = &a->first;
    first->to_first = from;
    if (a->s.keys == KEYS_PLACE) attention_dot_keys(a, from, to);
    else attention_product(first, kir_div_i(k, from, first->width), kir_div_i(k, kir_add_i(k, to, first->width - 1), first->width));
    a->rows.from = from, a->rows.count = kir_sub(k, to, from);
    kval row = kir_loop(k, KL_SERIAL, first->m0, first->m1, 1);
    if (a->x.is_softmax) do_row(a, row);
    else attention_do_row(a, row, kir_int(k, 0));
    kir_end(k);
    if (attention_has_values(&a->x)) attention_sum_values(a, from, to);
}

/* What a row's sums are multiplied by, if its statistics are given: nothing. */
static kval factor_of(struct attention_kernel *a, kval row, kval own)
{
    struct emit *m = a->m;
    if (!a->x.is_softmax) return 0;
    kval most = kir_load(m->k, a->sums.most, own), sum = kir_load(m->k, a->sums.sum, own), factor = attention_factor(m, &a->x, a->p, &most, &sum);
    attention_store_statistics(a, row);
    attention_forget(m, &a->x);
    return factor;
}

/* Sums of products by the factor. Rows that are selected to be zero are so whatever their sums are. */
void attention_finish_row(struct attention_kernel *a, kval row, kval own)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    const struct gemm *x = &a->x.values;
    const struct result to = {.v = x->y, .inner = x->n_axis};
    const u32 lanes = a->second.lanes;
    kval idx[MAX_RANK];
    attention_find_row(a, row);
    kval factor = factor_of(a, row, own), is_zero = factor ? kir_bin(k, KI_EQ, factor, kir_const_f(k, DT_F32, 1, 0)) : 0;
    if (!attention_has_values(&a->x)) return;
    kval at = kir_mul(k, own, a->sums.pitch);
    struct vectors v = vectors_over(k, kir_int(k, 0), emit_size(m, x->n), lanes);
    while (vectors_next(&v)) {
        kval sum = kir_load_n(k, a->sums.out, kir_ramp(k, kir_add(k, at, v.at), 1, lanes), v.limit);
        kval all = factor ? kir_mul(k, sum, kir_splat(k, factor, lanes)) : sum;
        for (u32 i = 0; i < MAX_RANK; i++) idx[i] = a->second.pos[i];
        if (x->m_axis >= 0) idx[x->m_axis] = row;
        idx[x->n_axis] = kir_ramp(k, v.at, 1, lanes);
        if (factor) all = kir_select(k, kir_splat(k, is_zero, lanes), kir_const_f(k, DT_F32, lanes, 0), all);
        emit_limit(m, v.limit);
        result_store(m, &to, idx, all, v.limit);
        emit_limit(m, 0);
    }
}

void attention_online(struct attention_kernel *a)
{
    struct kir *k = a->m->k;
    const i64 width = attention_width(&a->s, a->first.lanes), size = a->s.nb ? a->s.nb * width : round_up(a->s.split, width);
    bool is_aligned = a->s.keys == KEYS_PLACE || !(a->x.has_band || a->x.has_mask);
    kval begin = is_aligned ? a->from : kir_mul_i(k, kir_div_i(k, a->from, width), width);
    attention_clear_sums(a, a->heads ? kir_mul(k, a->n_rows, a->heads) : a->n_rows);
    if (a->heads) a->first.until = a->second.until = a->to, a->first.apart = a->second.apart = size;
    kval from = kir_loop(k, KL_SERIAL, begin, a->to, size);
    attention_open_head(a);
    if (a->heads) gemm_pack_left(&a->first);
    do_block(a, from, kir_min(k, kir_add_i(k, from, size), a->to));
    attention_close_head(a);
    kir_end(k);
}
