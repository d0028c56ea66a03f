// SPDX-License-Identifier: Apache-2.0
//
// attention_mask: keys that a mask excludes for all rows of an iteration, as the later ones of causal masks, or padding. What a mask is follows from the
// expression of a score: Where(mask, x, -infinity), x + bias with a bias of -infinity, or of the lowest number where it comes from memory, and any number of
// these. The mask is read once before the scores; the products, and the exponentials, are those of the range of keys that is left. A row whose keys are all
// masked has the result of the definition, for which all its keys are needed.
#include "gen/attention.h"

#include <float.h>
#include <math.h>

bool attention_depends(const struct kir *k, kval v, kval on)
{
    const struct kir_ins *x = kir_at(k, v);
    if (v == on) return true;
    if (x->op == KI_LOOP || x->op == KI_GRID || x->op == KI_ALLOC || x->op == KI_BUF) return false;
    for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++)
        if (kir_operand(x, i) && attention_depends(k, kir_operand(x, i), on)) return true;
    return false;
}

static bool is_masked(const struct kir *k, kval v)
{
    double f;
    return kir_is_float(k, v, &f) && f == -INFINITY;
}

/* Is a bias none that masks? Lowest numbers, which spare a fully masked row a NaN, are told from others only where they were stored. */
static kval is_open_bias(struct kir *k, kval bias)
{
    const u32 lanes = kir_lanes(k, bias);
    kval open = kir_bin(k, KI_NE, bias, kir_const_f(k, DT_F32, lanes, -INFINITY));
    if (kir_at(k, bias)->op != KI_LOAD) return open;
    return kir_and(k, open, kir_bin(k, KI_NE, bias, kir_const_f(k, DT_F32, lanes, -FLT_MAX)));
}

kval attention_open(struct kir *k, kval score, kval raw)
{
    const struct kir_ins x = *kir_at(k, score);
    if (x.op == KI_SELECT && !attention_depends(k, x.a, raw)) {
        kval is_not = is_masked(k, x.b) ? kir_un(k, KI_NOT, x.a) : 0;
        if (is_not) return kir_and(k, is_not, attention_open(k, x.c, raw));
        return is_masked(k, x.c) ? kir_and(k, x.a, attention_open(k, x.b, raw)) : 0;
    }
    if (x.op != KI_ADD || x.dtype != DT_F32) return 0;
    bool first = attention_depends(k, x.a, raw), second = attention_depends(k, x.b, raw);
    kval bias = first ? x.b : x.a, rest = first ? x.a : x.b;
    if (first && second) return 0;
    return kir_and(k, is_open_bias(k, bias), attention_open(k, rest, raw));
}

/* The first and the last key that a row sees, as vectors of numbers of keys. */
struct seen { kval first, last; };

struct scan {
    struct attention_kernel *a;
    struct seen row, all; /* REG arrays: vectors; numbers */
    kval number;          /* of the row */
};

static void see(struct rows *r, const void *user, i64 u, kval limit)
{
    const struct scan *s = user;
    struct emit *m = r->m;
    struct kir *k = m->k;
    kval idx[MAX_RANK], zero = kir_int(k, 0), raw = kir_load(k, s->a->scores, r->pos), key = r->at[r->s.inner];
    const u32 lanes = r->lanes;
    rows_index(r, idx);
    emit_bind(m, s->a->x.scores.y, gen_given, &raw);
    kval open = attention_open(k, emit_value(m, r->x.red[0].in, idx), raw);
    emit_bind(m, s->a->x.scores.y, NULL, NULL);
    open = kir_splat(k, open ? open : kir_const_i(k, DT_BOOL, 1, 1), lanes);
    if (limit) open = kir_bin(k, KI_AND, open, kir_lt(k, kir_ramp(k, zero, 1, lanes), limit));
    key = kir_splat(k, kir_cast(k, DT_I32, key), lanes);
    kval none[2] = {kir_const_i(k, DT_I32, lanes, INT32_MAX), kir_const_i(k, DT_I32, lanes, -1)};
    kir_store(k, s->row.first, zero, kir_min(k, kir_load(k, s->row.first, zero), kir_select(k, open, key, none[0])));
    kir_store(k, s->row.last, zero, kir_max(k, kir_load(k, s->row.last, zero), kir_select(k, open, key, none[1])));
}

static kval folded(struct kir *k, enum kir_op op, kval v) { return kir_cast(k, DT_I64, kir_lanes(k, v) > 1 ? kir_un(k, op, v) : v); }

/* What a row sees is added to what all do: everything, if it is nothing. */
static void scan_row(struct scan *s)
{
    struct attention_kernel *a = s->a;
    struct kir *k = a->m->k;
    const u32 lanes = a->rows.lanes;
    kval zero = kir_int(k, 0), end = kir_add_i(k, a->first.n, -1);
    attention_find_row(a, s->number);
    a->rows.base = kir_mul(k, kir_sub(k, s->number, a->first.m0), a->pitch);
    kir_store(k, s->row.first, zero, kir_const_i(k, DT_I32, lanes, INT32_MAX));
    kir_store(k, s->row.last, zero, kir_const_i(k, DT_I32, lanes, -1));
    rows_visit(&a->rows, see, s);
    kval first = folded(k, KI_HMIN, kir_load(k, s->row.first, zero)), last = folded(k, KI_HMAX, kir_load(k, s->row.last, zero)), none = kir_lt(k, last, zero);
    kir_store(k, s->all.first, zero, kir_min(k, kir_load(k, s->all.first, zero), kir_select(k, none, zero, first)));
    kir_store(k, s->all.last, zero, kir_max(k, kir_load(k, s->all.last, zero), kir_select(k, none, end, last)));
}

void attention_find_unmasked(struct attention_kernel *a)
{
    struct kir *k = a->m->k;
    struct scan s = {.a = a};
    kval zero = kir_int(k, 0);
    s.row = (struct seen){kir_alloc(k, KS_REG, DT_I32, a->rows.lanes, kir_int(k, 1)), kir_alloc(k, KS_REG, DT_I32, a->rows.lanes, kir_int(k, 1))};
    s.all = (struct seen){kir_alloc(k, KS_REG, DT_I64, 1, kir_int(k, 1)), kir_alloc(k, KS_REG, DT_I64, 1, kir_int(k, 1))};
    kir_store(k, s.all.first, zero, kir_add_i(k, a->first.n, -1));
    kir_store(k, s.all.last, zero, zero);
    s.number = kir_loop(k, KL_SERIAL, a->first.m0, a->x.is_masked_by_row ? a->first.m1 : kir_add_i(k, a->first.m0, 1), 1);
    scan_row(&s);
    kir_end(k);
    a->from = kir_max(k, kir_min(k, kir_load(k, s.all.first, zero), kir_add_i(k, a->first.n, -1)), zero);
    a->to = kir_max(k, kir_min(k, kir_add_i(k, kir_load(k, s.all.last, zero), 1), a->first.n), kir_add_i(k, a->from, 1));
}
