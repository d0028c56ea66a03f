// SPDX-License-Identifier: Apache-2.0
//
// row_emit: reductions of rows: for a row its reductions in order, each with several accumulators, their results bound. What a reduction had to compute
// per element may be kept for the passes that follow. Vectors run along the row; where the innermost axis in memory is not reduced, across it, one row
// per lane.
#include "gen/row_emit.h"

/* Vectors along a row hold neighbouring partial sums, if all vectors begin at multiples of their lanes. */
void rows_find_parts(struct rows *r)
{
    u32 n_groups = 0;
    for (u32 g = 0; g < r->s.sp.n; g++) n_groups += r->s.reduced[g];
    bool whole = n_groups <= 1 || gen_static(r->x.g, r->s.sp.g[r->s.inner].extent, 1) % ROW_PARTS == 0;
    if (!r->s.across && !whole) r->lanes = 1;
    bool along = !r->s.across && r->lanes > 1;
    r->unroll = along ? ROW_PARTS / r->lanes : 1;
    r->parts = along ? 0 : ROW_PARTS;
}

void rows_index(struct rows *r, kval idx[MAX_RANK])
{
    space_index(r->m->k, &r->s.sp, r->at, idx);
}

void rows_less_index(struct rows *r, kval idx[MAX_RANK])
{
    kval full[MAX_RANK];
    rows_index(r, full);
    row_less_index(r->m, r->first, full, idx);
}

static kval group_size(struct rows *r, u32 g) { return emit_size(r->m, r->s.sp.g[g].extent); }

/* One element, or a vector of them, at e along the innermost reduced group. */
void rows_visit_at(struct rows *r, rows_visit_fn *fn, const void *user, kval e, i64 u, kval limit)
{
    struct kir *k = r->m->k;
    kval pos = kir_int(k, 0);
    kval element = r->count ? kir_add(k, r->from, e) : e;
    if (r->s.inner < r->s.sp.n) r->at[r->s.inner] = r->s.across ? element : kir_ramp(k, element, 1, r->lanes);
    for (u32 g = 0; g < r->s.sp.n; g++)
        if (r->s.reduced[g])
            pos = kir_add(k, kir_mul(k, pos, group_size(r, g)), g == r->s.inner ? e : r->at[g]);
    r->number = pos;
    if (r->base) pos = kir_add(k, pos, r->base);
    r->pos = r->s.across ? kir_ramp(k, kir_mul_i(k, pos, r->lanes), 1, r->lanes)
                       : kir_ramp(k, pos, 1, r->lanes);
    emit_limit(r->m, limit);
    fn(r, user, u, limit);
    emit_limit(r->m, 0);
}

/* Vectors behind the last full round of accumulators, each to its own one. */
static void visit_ordered(struct rows *r, rows_visit_fn *fn, const void *user)
{
    struct kir *k = r->m->k;
    i64 lanes = r->lanes, many = lanes * r->unroll, d;
    kval n = r->count ? r->count : group_size(r, r->s.inner), zero = kir_int(k, 0), end = kir_mul_i(k, kir_div_i(k, n, many), many);
    kval e = kir_loop(k, KL_SERIAL, zero, end, many);
    for (i64 u = 0; u < r->unroll; u++) rows_visit_at(r, fn, user, kir_add_i(k, e, u * lanes), u, 0);
    kir_end(k);
    for (i64 u = 0; u < r->unroll; u++) {
        kval at = kir_add_i(k, end, u * lanes), left = kir_sub(k, n, at);
        bool is_known = kir_is_const(k, left, &d);
        if (is_known && d <= 0) return;
        if (!is_known) kir_if(k, kir_lt(k, zero, left));
        rows_visit_at(r, fn, user, at, u, is_known && d >= lanes ? 0 : kir_min(k, left, kir_int(k, lanes)));
        if (!is_known) kir_end(k);
    }
}

static void visit_inner(struct rows *r, rows_visit_fn *fn, const void *user)
{
    struct kir *k = r->m->k;
    if (r->s.inner == r->s.sp.n) {
        rows_visit_at(r, fn, user, kir_int(k, 0), 0, r->s.across ? r->limit : 0);
        return;
    }
    i64 step = r->s.across ? 1 : r->lanes, many = step * r->unroll, d;
    if (r->ordered && r->unroll > 1) {
        visit_ordered(r, fn, user);
        return;
    }
    kval n = r->count ? r->count : group_size(r, r->s.inner), zero = kir_int(k, 0), lim = r->s.across ? r->limit : 0;
    kval first = kir_mul_i(k, kir_div_i(k, n, many), many),
         second = kir_mul_i(k, kir_div_i(k, n, step), step);
    if (r->unroll > 1) {
        kval e = kir_loop(k, KL_SERIAL, zero, first, many);
        for (i64 u = 0; u < r->unroll; u++)
            rows_visit_at(r, fn, user, kir_add_i(k, e, u * step), u, lim);
        kir_end(k);
    }
    kval from = r->unroll > 1 ? first : zero;
    if (!(kir_is_const(k, kir_sub(k, second, from), &d) && d <= 0)) {
        kval e = kir_loop(k, KL_SERIAL, from, second, step);
        rows_visit_at(r, fn, user, e, 0, lim);
        kir_end(k);
    }
    kval rest = kir_sub(k, n, second);
    if (r->s.across || step == 1 || (kir_is_const(k, rest, &d) && d <= 0)) return;
    kir_if(k, kir_lt(k, zero, rest));
    rows_visit_at(r, fn, user, second, 0, rest);
    kir_end(k);
}

/* All elements of the current row. */
void rows_visit(struct rows *r, rows_visit_fn *fn, const void *user)
{
    struct kir *k = r->m->k;
    u32 open = 0;
    for (u32 g = 0; g < r->s.sp.n; g++)
        if (r->s.reduced[g] && g != r->s.inner) {
            r->at[g] = kir_loop(k, KL_SERIAL, kir_int(k, 0), group_size(r, g), 1);
            open++;
        }
    visit_inner(r, fn, user);
    while (open--) kir_end(k);
}

/* A pass of a reduction. */

struct pass {
    const struct reduction *red;
    kval acc, neutral;
    u32 lanes;
};

static void accumulate(struct rows *r, const void *user, i64 u, kval limit)
{
    const struct pass *p = user;
    struct kir *k = r->m->k;
    kval idx[MAX_RANK], slot = r->parts ? kir_mod_i(k, r->number, r->parts) : kir_int(k, u);
    rows_index(r, idx);
    kval val = kir_splat(k, emit_value(r->m, p->red->in, idx), p->lanes);
    if (r->room && r->is_last) emit_store_n(r->m, r->room, idx, val, limit);
    else if (r->store) kir_store_n(k, r->store, r->pos, val, limit);
    if (limit && !r->s.across) {
        kval valid = kir_lt(k, kir_ramp(k, kir_int(k, 0), 1, p->lanes), limit);
        val = kir_select(k, valid, val, p->neutral);
    }
    kir_store(k, p->acc, slot, emit_combine(k, p->red->r.combine, kir_load(k, p->acc, slot), val));
}

static kval across_lanes(const struct rows *r, enum kir_op op, kval v)
{
    struct kir *k = r->m->k;
    u32 n = kir_lanes(k, v);
    if (op == KI_ADD) return kir_un(k, KI_HADD, v);
    if (op == KI_MIN || op == KI_MAX) return kir_un(k, op == KI_MIN ? KI_HMIN : KI_HMAX, v);
    kval lane[ROW_PARTS * 2] = {0};
    for (u32 i = 0; i < n; i++) lane[i] = kir_lane(k, v, i);
    for (u32 i = 1; i < n && !r->ordered; i++) lane[0] = kir_bin(k, op, lane[0], lane[i]);
    for (u32 half = n / 2; half && r->ordered; half /= 2)
        for (u32 i = 0; i < half; i++) lane[i] = kir_bin(k, op, lane[i], lane[i + half]);
    return lane[0];
}

static kval fold_accumulators(struct rows *r, enum kir_op op, kval acc, i64 n)
{
    struct kir *k = r->m->k;
    kval v[ROW_PARTS] = {0};
    for (i64 u = 0; u < n; u++) v[u] = kir_load(k, acc, kir_int(k, u));
    for (i64 u = 1; u < n && !r->ordered; u++) v[0] = kir_bin(k, op, v[0], v[u]);
    for (i64 half = n / 2; half && r->ordered; half /= 2)
        for (i64 u = 0; u < half; u++) v[u] = kir_bin(k, op, v[u], v[u + half]);
    return v[0];
}

kval rows_reduce(struct rows *r, const struct reduction *red)
{
    struct kir *k = r->m->k;
    enum dtype t = emit_type(graph_value(r->x.g, red->in)->dtype);
    struct pass p = {.red = red, .lanes = r->lanes};
    p.neutral = kir_splat(k, emit_neutral(r->m, red->r.combine, t), p.lanes);
    i64 n = r->parts ? r->parts : r->unroll;
    p.acc = kir_alloc(k, KS_REG, t, p.lanes, kir_int(k, n));
    for (i64 u = 0; u < n; u++) kir_store(k, p.acc, kir_int(k, u), p.neutral);
    rows_visit(r, accumulate, &p);
    kval v = fold_accumulators(r, red->r.combine, p.acc, n);
    return r->s.across ? v : across_lanes(r, red->r.combine, v);
}

kval rows_kept(struct emit *m, const void *user, const kval *idx)
{
    const struct kept *x = user;
    if (!x->array) return emit_load(m, m->out[x->r->room], emit_offset(m, x->r->room, idx));
    return emit_load(m, x->array, x->r->pos);
}

void rows_reduce_all(struct rows *r)
{
    struct emit *m = r->m;
    for (u32 i = 0; i < r->x.n; i++) {
        const struct reduction *red = &r->x.red[i];
        bool bound = m->bind[red->in].fn != NULL;
        r->store = r->kept[i] && !bound ? r->kept[i] : 0;
        r->is_last = i + 1 == r->x.n;
        r->result[i] = rows_reduce(r, red);
        emit_bind(m, red->out, gen_given, &r->result[i]);
        if (r->store || (r->room && r->is_last)) {
            r->waiting[i] = (struct kept){r, r->kept[i]};
            emit_bind(m, red->in, rows_kept, &r->waiting[i]);
        }
        r->store = 0;
    }
}

void rows_forget(struct rows *r)
{
    for (u32 i = 0; i < r->x.n; i++) {
        emit_bind(r->m, r->x.red[i].out, NULL, NULL);
        emit_bind(r->m, r->x.red[i].in, NULL, NULL);
    }
}
