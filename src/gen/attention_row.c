// SPDX-License-Identifier: Apache-2.0
//
// attention_row: what all ways to go through the keys share: where a row of scores lies in the values that are computed from it, the keys that a band leaves,
// the factor of a row's sums, and a product of the iteration's rows with some blocks of columns.
#include "gen/attention.h"

#include <math.h>

/* The index at which an element of p asks for elements of the reductions, of the same row. */
kval attention_note_index(struct emit *m, const void *user, const kval *idx)
{
    struct attention_asked *a = (struct attention_asked *)user;
    for (u32 i = 0; i < a->rank; i++) a->idx[i] = idx[i];
    return kir_const_f(m->k, DT_F32, 1, 0);
}

static kval some_number(struct emit *m, const void *user, const kval *idx) { return kir_const_f(m->k, DT_F32, 1, 1); }

void attention_forget(struct emit *m, const struct attention *x)
{
    for (u32 i = 0; i < x->rows.n; i++) {
        emit_bind(m, x->rows.red[i].out, NULL, NULL);
        emit_bind(m, x->rows.red[i].in, NULL, NULL);
    }
    emit_bind(m, x->score, NULL, NULL);
    emit_bind(m, x->scores.y, NULL, NULL);
}

/* The index in v, of as many rows as the scores, at key 0. */
static void index_rows(struct emit *m, const struct attention *x, value_id v, const kval *pos, kval row, kval idx[MAX_RANK])
{
    struct kir *k = m->k;
    const struct shape *from = x->scores.ys, *to = &graph_value(m->g, v)->shape;
    const u32 last = to->rank - 1;
    kval at = 0;
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = kir_int(k, 0);
    if (shape_equal(from, to)) {
        for (u32 i = 0; i + 1 < last; i++) idx[i] = pos[i];
        idx[last - 1] = row;
        return;
    }
    for (u32 i = 0; i + 1 < from->rank; i++) {
        kval own = i + 2 == from->rank ? row : pos[i];
        at = at ? kir_add(k, kir_mul(k, at, emit_size(m, from->dim[i])), own) : own;
    }
    for (u32 i = last; i-- > 0;) {
        idx[i] = i ? kir_mod(k, at, emit_size(m, to->dim[i])) : at;
        if (i) at = kir_div(k, at, emit_size(m, to->dim[i]));
    }
}

void attention_index_row(struct emit *m, const struct attention *x, const kval *pos, kval row, struct attention_row *to)
{
    struct attention_asked asked = {.rank = graph_value(m->g, x->score)->shape.rank};
    if (attention_has_values(x)) gemm_index(m, &x->values, x->p, pos, row, kir_int(m->k, 0), to->p);
    else index_rows(m, x, x->p, pos, row, to->p);
    for (u32 i = 0; i < MAX_RANK; i++) asked.idx[i] = kir_int(m->k, 0);
    for (u32 i = 0; i < x->rows.n; i++) {
        emit_bind(m, x->rows.red[i].in, attention_note_index, &asked);
        emit_bind(m, x->rows.red[i].out, some_number, NULL);
    }
    emit_bind(m, x->scores.y, attention_note_index, &asked);
    emit_bind(m, x->score, attention_note_index, &asked);
    emit_value(m, x->p, to->p);
    attention_forget(m, x);
    for (u32 i = 0; i < MAX_RANK; i++) to->scores[i] = asked.idx[i];
}

void attention_find_row(struct attention_kernel *a, kval row)
{
    struct rows *r = &a->rows;
    struct attention_row at;
    attention_index_row(a->m, &a->x, a->first.pos, row, &at);
    for (u32 i = 0; i < MAX_RANK; i++) a->p[i] = at.p[i];
    for (u32 g = 0; g < r->s.sp.n; g++)
        if (!r->s.reduced[g]) r->at[g] = at.scores[r->s.sp.g[g].axis];
}

void attention_band_keys(struct emit *m, const struct attention *x, const struct attention_span *rows, struct attention_span *keys)
{
    struct kir *k = m->k;
    const struct shape *s = &graph_value(m->g, x->score)->shape;
    const struct op_band *b = &x->band;
    kval zero = kir_int(k, 0), n = keys->to, first = rows->from, last = kir_add_i(k, rows->to, -1);
    if (s->dim[s->rank - 2] != x->scores.m) {
        kval queries = emit_size(m, s->dim[s->rank - 2]);
        kval same = kir_bin(k, KI_EQ, kir_div(k, first, queries), kir_div(k, last, queries));
        first = kir_select(k, same, kir_mod(k, first, queries), zero);
        last = kir_select(k, same, kir_mod(k, last, queries), kir_add_i(k, queries, -1));
    }
    kval offset = emit_size(m, b->offset);
    if (b->left >= 0) keys->from = kir_max(k, kir_min(k, kir_add_i(k, kir_add(k, first, offset), -b->left), kir_add_i(k, n, -1)), zero);
    if (b->right >= 0) keys->to = kir_min(k, kir_max(k, kir_add_i(k, kir_add(k, last, offset), b->right + 1), kir_add_i(k, keys->from, 1)), n); /* at least one */
}

static kval given_one(struct emit *m, const void *user, const kval *idx) { return kir_const_f(m->k, DT_F32, 1, 1); }

/* A number before it was rounded to another type of floats, as p may be. */
static kval unrounded(const struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    return x->op == KI_CAST && dtype_is_float(kir_dtype(k, x->a)) ? unrounded(k, x->a) : v;
}

kval attention_factor(struct emit *m, const struct attention *x, const kval *p, const kval *most, kval *sum)
{
    struct kir *k = m->k;
    kval has_keys = kir_lt(k, kir_int(k, 0), emit_size(m, x->scores.n)), masked = kir_bin(k, KI_EQ, *most, kir_const_f(k, DT_F32, 1, -INFINITY));
    *sum = kir_select(k, kir_and(k, masked, has_keys), kir_const_f(k, DT_F32, 1, NAN), *sum);
    emit_bind(m, x->rows.red[1].in, given_one, NULL);
    emit_bind(m, x->rows.red[0].out, gen_given, most);
    emit_bind(m, x->rows.red[1].out, gen_given, sum);
    return kir_select(k, has_keys, kir_cast(k, DT_F32, unrounded(k, emit_value(m, x->p, p))), kir_const_f(k, DT_F32, 1, 0));
}

void attention_store_statistics_at(struct emit *m, const struct attention *x, const kval *at)
{
    for (u32 i = 0; i < x->n_statistics; i++) emit_store(m, x->statistic[i], at, emit_value(m, x->statistic[i], at));
}

void attention_store_statistics(struct attention_kernel *a, kval row)
{
    const struct row_space *s = &a->rows.s;
    kval idx[MAX_RANK];
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = kir_int(a->m->k, 0);
    for (u32 g = 0; g < s->sp.n; g++)
        if (!s->reduced[g]) idx[s->sp.g[g].axis] = a->rows.at[g];
    attention_store_statistics_at(a->m, &a->x, idx);
    for (u32 i = 0; a->x.columns.out && i < a->x.rows.n; i++) {
        kval at = kir_add(a->m->k, kir_mul(a->m->k, a->batch, emit_size(a->m, a->x.scores.m)), row);
        kir_store(a->m->k, a->reduced[i], at, emit_value(a->m, a->x.rows.red[i].out, idx));
    }
}

/* Heads of an iteration, one after the other. */

void attention_open_head(struct attention_kernel *a)
{
    struct kir *k = a->m->k;
    if (!a->heads) return;
    kval head = kir_loop(k, KL_SERIAL, kir_int(k, 0), a->heads, 1);
    a->first.pos[a->head_axis] = a->second.pos[a->head_axis] = head;
    a->batch = kir_add(k, kir_mul(k, a->batches, a->heads), head);
    a->second.to_row = kir_mul(k, head, a->n_rows);
}

void attention_close_head(struct attention_kernel *a)
{
    if (a->heads) kir_end(a->m->k);
}

kval attention_own(const struct attention_kernel *a, kval row)
{
    struct kir *k = a->m->k;
    kval own = kir_sub(k, row, a->first.m0);
    return a->second.to_row ? kir_add(k, a->second.to_row, own) : own;
}

void attention_product(struct gemm_kernel *p, kval from, kval to)
{
    p->c.n_levels = 0;
    gemm_set_levels(p, from, to);
    cpu_nest(&p->c, NULL, cpu_tile);
}
