// SPDX-License-Identifier: Apache-2.0
//
// attention_split: keys divided among grid iterations, where few rows of queries have many keys, or threads (Dao, Haziza, Massa & Sizov, Flash-Decoding for
// long-context inference, 2023). An iteration leaves, of its part of the keys, each row's greatest score, and the sums relative to it (attention_online.c).
// A grid behind brings the sums to the greatest score of all parts and adds them up. Rows that have no key in a part have sums of zero of it, and -infinity
// as their greatest score.
#include "gen/attention.h"

#include <math.h>

sym attention_parts(const struct attention *x, const struct attention_sched *s)
{
    struct symtab *st = x->scores.g->sym;
    return sym_cdiv(st, x->scores.n, sym_const(st, s->split));
}

void attention_split_open(struct attention_kernel *a)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    sym parts = attention_parts(&a->x, &a->s), rows = sym_mul(st, attention_rows(&a->x), parts);
    a->n_parts = emit_size(m, parts);
    if (a->x.is_softmax) {
        a->parts.most = kir_alloc(k, KS_TEMP, DT_F32, 1, emit_size(m, rows));
        a->parts.sum = kir_alloc(k, KS_TEMP, DT_F32, 1, emit_size(m, rows));
    }
    if (!attention_has_values(&a->x)) return;
    sym width = sym_const(st, a->second.width), pitch = sym_mul(st, sym_cdiv(st, a->x.values.n, width), width);
    a->parts.pitch = emit_size(m, pitch);
    a->parts.out = kir_alloc(k, KS_TEMP, DT_F32, 1, emit_size(m, sym_mul(st, rows, pitch)));
}

/* Parts are of equal size, as far as blocks allow. */
void attention_split_keys(struct attention_kernel *a)
{
    struct kir *k = a->m->k;
    i64 width = attention_width(&a->s, a->first.lanes);
    kval parts = kir_max(k, a->n_parts, kir_int(k, 1)), each = kir_div(k, kir_add(k, a->first.n, kir_add_i(k, parts, -1)), parts);
    each = kir_mul_i(k, kir_div_i(k, kir_add_i(k, each, width - 1), width), width);
    kval begin = kir_mul(k, a->part, each);
    a->from = kir_max(k, a->from, begin);
    a->to = kir_min(k, a->to, kir_add(k, begin, each));
}

/* The number of a row's sums of a part. */
static kval sums_of(struct attention_kernel *a, kval row, kval part)
{
    struct kir *k = a->m->k;
    kval rows = kir_add(k, kir_mul(k, a->batch, emit_size(a->m, a->x.scores.m)), row);
    return kir_add(k, kir_mul(k, rows, a->n_parts), part);
}

void attention_split_store(struct attention_kernel *a)
{
    struct kir *k = a->m->k;
    const struct attention_sums *o = &a->sums, *to = &a->parts;
    const u32 lanes = a->second.lanes;
    kval row = kir_loop(k, KL_SERIAL, a->first.m0, a->first.m1, 1), own = attention_own(a, row), at = sums_of(a, row, a->part);
    if (a->x.is_softmax) {
        kir_store(k, to->most, at, kir_load(k, o->most, own));
        kir_store(k, to->sum, at, kir_load(k, o->sum, own));
    }
    if (attention_has_values(&a->x)) {
        kval c = kir_loop(k, KL_SERIAL, kir_int(k, 0), o->pitch, lanes);
        kval sums = kir_load(k, o->out, kir_ramp(k, kir_add(k, kir_mul(k, own, o->pitch), c), 1, lanes));
        kir_store(k, to->out, kir_ramp(k, kir_add(k, kir_mul(k, at, to->pitch), c), 1, lanes), sums);
        kir_end(k);
    }
    kir_end(k);
}

/* The greatest score of all parts. */
static void find_most(struct attention_kernel *a, kval row)
{
    struct kir *k = a->m->k;
    kval zero = kir_int(k, 0), part = kir_loop(k, KL_SERIAL, zero, a->n_parts, 1);
    kval most = kir_load(k, a->parts.most, sums_of(a, row, part));
    kir_store(k, a->sums.most, zero, kir_max(k, most, kir_load(k, a->sums.most, zero)));
    kir_end(k);
}

static void add_parts(struct attention_kernel *a, kval row)
{
    struct kir *k = a->m->k;
    const struct attention_sums *o = &a->sums, *from = &a->parts;
    const u32 lanes = a->second.lanes;
    kval zero = kir_int(k, 0), most = 0, factor = kir_const_f(k, DT_F32, 1, 1);
    if (a->x.is_softmax) {
        most = kir_load(k, o->most, zero);
        most = kir_select(k, kir_bin(k, KI_EQ, most, kir_const_f(k, DT_F32, 1, -INFINITY)), kir_const_f(k, DT_F32, 1, 0), most);
    }
    kval part = kir_loop(k, KL_SERIAL, zero, a->n_parts, 1), at = sums_of(a, row, part);
    if (a->x.is_softmax) {
        factor = kir_un(k, KI_EXP, kir_sub(k, kir_load(k, from->most, at), most));
        kir_store(k, o->sum, zero, kir_fma(k, factor, kir_load(k, from->sum, at), kir_load(k, o->sum, zero)));
    }
    if (attention_has_values(&a->x)) {
        kval c = kir_loop(k, KL_SERIAL, zero, o->pitch, lanes), to = kir_ramp(k, c, 1, lanes);
        kval sums = kir_load(k, from->out, kir_ramp(k, kir_add(k, kir_mul(k, at, from->pitch), c), 1, lanes));
        kir_store(k, o->out, to, kir_fma(k, kir_splat(k, factor, lanes), sums, kir_load(k, o->out, to)));
        kir_end(k);
    }
    kir_end(k);
}

void attention_split_merge(struct attention_kernel *a)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const struct gemm *x = &a->x.scores;
    a->batch = kir_grid(k, emit_size(m, space_count(&x->outer, st, 0, x->outer.n)));
    kval row = kir_grid(k, emit_size(m, x->m));
    space_at(m, &x->outer, a->batch, a->first.pos);
    for (u32 i = 0; i < MAX_RANK; i++) a->second.pos[i] = a->first.pos[i];
    attention_open_sums(a, sym_const(st, 1));
    attention_clear_sums(a, kir_int(k, 1));
    if (a->x.is_softmax) find_most(a, row);
    add_parts(a, row);
    attention_finish_row(a, row, kir_int(k, 0));
    for (u32 i = 0; i < 2; i++) kir_end(k);
}
