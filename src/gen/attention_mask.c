// SPDX-License-Identifier: Apache-2.0
//
// attention_mask: keys that a mask excludes for all rows of an iteration, as the later ones of causal masks, or padding. What a mask is follows from the
// expression of a score: Where(mask, x, -infinity), x + bias with a bias of -infinity, or of the lowest number where it comes from memory or is chosen by a
// condition, and any number of these. The mask is read before the scores, from both ends of every row up to a key that is not excluded; the products, and the
// exponentials, are those of the range of keys that is left. Where a band is a part of the mask, the ends are its own. A row whose keys are all masked has the
// result of the definition, for which all its keys are needed. Of few keys none are looked for: it would take longer than it could save.
#include "gen/attention.h"

#include <float.h>
#include <math.h>

/* Values are numbered behind those that they are computed from. seen: per value behind `on`; with several users each, they would be walked exponentially often. */
static bool depends(const struct kir *k, kval v, kval on, bool *seen)
{
    const struct kir_ins *x = kir_at(k, v);
    if (v <= on || seen[v - on]) return v == on;
    seen[v - on] = true;
    if (x->op == KI_LOOP || x->op == KI_GRID || x->op == KI_ALLOC || x->op == KI_BUF) return false;
    for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++)
        if (kir_operand(x, i) && depends(k, kir_operand(x, i), on, seen)) return true;
    return false;
}

bool attention_depends(const struct kir *k, kval v, kval on)
{
    struct arena a = {0};
    bool yes = v > on ? depends(k, v, on, arena_array(&a, bool, v - on + 1)) : v == on;
    arena_release(&a);
    return yes;
}

bool attention_is_masked(const struct kir *k, kval v)
{
    double f;
    return kir_is_float(k, v, &f) && f == -INFINITY;
}

/* Numbers that excluded scores become by addition: nothing of the score is left, nor of the exponential. */
static const double lowest = -1e38;

/* A condition for one of two that each may always or never hold. */
static kval choose(struct kir *k, kval condition, kval yes, kval no)
{
    i64 y, n;
    if (kir_is_const(k, yes, &y) && kir_is_const(k, no, &n)) return y == n ? yes : y ? condition : kir_un(k, KI_NOT, condition);
    return kir_bin(k, KI_OR, kir_bin(k, KI_AND, condition, yes), kir_bin(k, KI_AND, kir_un(k, KI_NOT, condition), no));
}

/* Is a bias none that masks? Lowest numbers, which spare a fully masked row a NaN, are told from others where they were stored, or, if `lowest_too`, are
   constants. */
static kval is_open_bias(struct kir *k, kval bias, bool lowest_too)
{
    const u32 lanes = kir_lanes(k, bias);
    const struct kir_ins x = *kir_at(k, bias);
    double f;
    if (kir_is_float(k, bias, &f)) return kir_const_i(k, DT_BOOL, lanes, f > (lowest_too ? lowest : -INFINITY) || isnan(f));
    if (x.op == KI_SELECT && lanes == kir_lanes(k, x.a)) return choose(k, x.a, is_open_bias(k, x.b, lowest_too), is_open_bias(k, x.c, lowest_too));
    kval open = kir_bin(k, KI_NE, bias, kir_const_f(k, DT_F32, lanes, -INFINITY));
    if (x.op != KI_LOAD) return open;
    return kir_and(k, open, kir_bin(k, KI_NE, bias, kir_const_f(k, DT_F32, lanes, -FLT_MAX)));
}

/* Is a bias a constant, loaded, or one of these? */
static bool is_known_bias(const struct kir *k, kval bias)
{
    const struct kir_ins *x = kir_at(k, bias);
    double f;
    if (x->op == KI_SELECT && kir_lanes(k, bias) == kir_lanes(k, x->a)) return is_known_bias(k, x->b) && is_known_bias(k, x->c);
    return x->op == KI_LOAD || kir_is_float(k, bias, &f);
}

/* seen: per value behind raw, as above. */
static bool is_all_known(const struct kir *k, kval score, kval raw, bool *seen)
{
    const struct kir_ins *x = kir_at(k, score);
    if (score <= raw || seen[score - raw] || !attention_depends(k, score, raw)) return true;
    seen[score - raw] = true;
    if (x->op == KI_SELECT && !attention_depends(k, x->a, raw))
        return attention_is_masked(k, x->b) ? is_all_known(k, x->c, raw, seen) : attention_is_masked(k, x->c) && is_all_known(k, x->b, raw, seen);
    if (x->op == KI_ADD) {
        const bool first = attention_depends(k, x->a, raw);
        return is_known_bias(k, first ? x->b : x->a) && is_all_known(k, first ? x->a : x->b, raw, seen);
    }
    if (x->op != KI_MUL && x->op != KI_DIV && x->op != KI_TANH && x->op != KI_CAST) return false;
    return is_all_known(k, x->a, raw, seen) && (!x->b || is_all_known(k, x->b, raw, seen));
}

/* Is every mask in a score known? One that is not, of lowest numbers, may give all keys of a row nearly the same score, whether another one excludes them
   or not. */
static bool is_known(const struct kir *k, kval score, kval raw)
{
    struct arena a = {0};
    bool yes = score <= raw || is_all_known(k, score, raw, arena_array(&a, bool, score - raw + 1));
    arena_release(&a);
    return yes;
}

static kval open_at(struct kir *k, kval score, kval raw, bool lowest_too)
{
    const struct kir_ins x = *kir_at(k, score);
    if (x.op == KI_SELECT && !attention_depends(k, x.a, raw)) {
        kval is_not = attention_is_masked(k, x.b) ? kir_un(k, KI_NOT, x.a) : 0;
        if (is_not) return kir_and(k, is_not, open_at(k, x.c, raw, lowest_too));
        return attention_is_masked(k, x.c) ? kir_and(k, x.a, open_at(k, x.b, raw, lowest_too)) : 0;
    }
    if (x.op != KI_ADD || x.dtype != DT_F32) return 0;
    bool first = attention_depends(k, x.a, raw), second = attention_depends(k, x.b, raw);
    kval bias = first ? x.b : x.a, rest = first ? x.a : x.b;
    if (first && second) return 0;
    return kir_and(k, is_open_bias(k, bias, lowest_too), open_at(k, rest, raw, lowest_too));
}

kval attention_open(struct kir *k, kval score, kval raw) { return open_at(k, score, raw, is_known(k, score, raw)); }

/* Of the current row, vectors are looked at in the order of keys until one has a key that is seen, then in the opposite order: two, of most rows. */
struct scan {
    struct attention_kernel *a;
    kval first, last;         /* REG arrays: keys that all rows see so far */
    kval row_first, row_last; /* of a row; n and -1: none so far */
    struct attention_span reach; /* keys of the row that are looked at */
    bool is_backward;
};

/* The least or greatest key of a vector that is seen. */
static void see(struct rows *r, const void *user, i64 u, kval limit)
{
    const struct scan *s = user;
    struct emit *m = r->m;
    struct kir *k = m->k;
    kval idx[MAX_RANK], zero = kir_int(k, 0), raw = kir_load(k, s->a->scores, r->pos), key = r->at[r->s.inner];
    const u32 lanes = r->lanes;
    rows_index(r, idx);
    emit_bind(m, s->a->x.scores.y, gen_given, &raw);
    kval open = attention_open(k, emit_value(m, s->a->x.score, idx), raw);
    emit_bind(m, s->a->x.scores.y, NULL, NULL);
    open = kir_splat(k, open ? open : kir_const_i(k, DT_BOOL, 1, 1), lanes);
    open = kir_bin(k, KI_AND, open, kir_lt(k, kir_ramp(k, zero, 1, lanes), limit));
    key = kir_splat(k, kir_cast(k, DT_I32, key), lanes);
    kval none = kir_splat(k, kir_cast(k, DT_I32, s->is_backward ? kir_int(k, -1) : s->a->first.n), lanes), v = kir_select(k, open, key, none);
    v = kir_cast(k, DT_I64, lanes > 1 ? kir_un(k, s->is_backward ? KI_HMAX : KI_HMIN, v) : v);
    kir_store(k, s->is_backward ? s->row_last : s->row_first, zero, v);
}

/* Vectors of a row until one is seen. */
static void look(struct scan *s, bool is_backward)
{
    struct attention_kernel *a = s->a;
    struct kir *k = a->m->k;
    const i64 lanes = a->rows.lanes;
    kval zero = kir_int(k, 0), n = kir_sub(k, s->reach.to, s->reach.from), n_vectors = kir_div_i(k, kir_add_i(k, n, lanes - 1), lanes);
    s->is_backward = is_backward;
    kval i = kir_loop(k, KL_SERIAL, zero, n_vectors, 1), at = kir_mul_i(k, is_backward ? kir_add_i(k, kir_sub(k, n_vectors, i), -1) : i, lanes);
    kir_if(k, is_backward ? kir_lt(k, kir_load(k, s->row_last, zero), zero) : kir_lt(k, kir_add_i(k, a->first.n, -1), kir_load(k, s->row_first, zero)));
    rows_visit_at(&a->rows, see, s, kir_add(k, s->reach.from, at), 0, kir_min(k, kir_sub(k, n, at), kir_int(k, lanes)));
    kir_end(k);
    kir_end(k);
}

/* The keys of a row are added to those of all: everything, if there are none. */
static void scan_row(struct scan *s, kval row)
{
    struct attention_kernel *a = s->a;
    struct kir *k = a->m->k;
    kval zero = kir_int(k, 0), last = kir_add_i(k, a->first.n, -1);
    attention_find_row(a, row);
    a->rows.base = kir_mul(k, kir_sub(k, row, a->first.m0), a->pitch);
    kir_store(k, s->row_first, zero, a->first.n);
    kir_store(k, s->row_last, zero, kir_int(k, -1));
    s->reach = (struct attention_span){zero, a->first.n};
    if (a->x.has_reach) attention_band_keys(a->m, &a->x, &(struct attention_span){row, kir_add_i(k, row, 1)}, &s->reach);
    look(s, false);
    look(s, true);
    kval from = kir_load(k, s->row_first, zero), to = kir_load(k, s->row_last, zero), none = kir_lt(k, to, zero);
    kir_store(k, s->first, zero, kir_min(k, kir_load(k, s->first, zero), kir_select(k, none, zero, from)));
    kir_store(k, s->last, zero, kir_max(k, kir_load(k, s->last, zero), kir_select(k, none, last, to)));
}

static kval new_number(struct kir *k) { return kir_alloc(k, KS_REG, DT_I64, 1, kir_int(k, 1)); }

void attention_find_unmasked(struct attention_kernel *a)
{
    struct kir *k = a->m->k;
    struct scan s = {.a = a, .first = new_number(k), .last = new_number(k), .row_first = new_number(k), .row_last = new_number(k)};
    kval zero = kir_int(k, 0), last = kir_add_i(k, a->first.n, -1);
    bool is_known = a->first.static_n > 0; /* and they are not few */
    kir_store(k, s.first, zero, is_known ? last : zero);
    kir_store(k, s.last, zero, is_known ? zero : last);
    if (!is_known) {
        kir_if(k, kir_lt(k, kir_int(k, ATTENTION_FEW), a->first.n));
        kir_store(k, s.first, zero, last);
        kir_store(k, s.last, zero, zero);
    }
    scan_row(&s, kir_loop(k, KL_SERIAL, a->first.m0, a->x.is_masked_by_row ? a->first.m1 : kir_add_i(k, a->first.m0, 1), 1));
    kir_end(k);
    if (!is_known) kir_end(k);
    a->from = kir_max(k, kir_min(k, kir_load(k, s.first, zero), last), zero);
    a->to = kir_min(k, kir_max(k, kir_add_i(k, kir_load(k, s.last, zero), 1), kir_add_i(k, a->from, 1)), a->first.n);
}
