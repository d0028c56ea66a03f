// SPDX-License-Identifier: Apache-2.0
//
// wg: copying and reductions by workgroups.
//
// Where a thread stands in its subgroup is asked for (SUBGROUP), never worked out from its number:
// a target may number them as it likes. When subgroups are used, the number in the workgroup is made of
// the two, so that a subgroup's threads are neighbours in it.
#include "gen/wg.h"

void wg_init(struct workgroup *g, struct emit *m, i64 n, u32 subgroup)
{
    assert(n > 0 && (n & (n - 1)) == 0 && subgroup <= n);
    *g = (struct workgroup){.m = m, .n = n, .subgroup = subgroup};
    m->k->group[0] = (u32)n;
    m->k->group[1] = m->k->group[2] = 1;
    m->k->subgroup = subgroup;
}

void wg_enter(struct workgroup *g)
{
    struct kir *k = g->m->k;
    if (!g->subgroup) {
        g->t = kir_thread(k, 0);
        return;
    }
    g->sg = g->subgroup == g->n ? kir_int(k, 0) : kir_subgroup(k, 0);
    g->lane = kir_subgroup(k, 1);
    g->t = kir_add(k, kir_mul_i(k, g->sg, g->subgroup), g->lane);
}

/* Limits. */

bool wg_is_legal(const struct caps *c, i64 n, i64 shared_bytes)
{
    return n <= c->max_group && shared_bytes <= c->shared_bytes;
}

/* Compilers keep some addresses, and spill the rest: where one workgroup needs all registers of a processor, few. */
bool wg_has_registers(const struct caps *c, i64 n, i64 regs)
{
    enum { USUAL = 255, ADDRESSES = 55, FEW = 24 };
    i64 most = c->thread_regs ? c->thread_regs : USUAL;
    return regs + ADDRESSES <= most && (!c->unit_regs || (regs + FEW) * n <= c->unit_regs);
}

i64 wg_least(const struct caps *c)
{
    return i64_min(i64_max(8, c->subgroup_min), i64_min(64, c->max_group));
}

u32 wg_subgroup(const struct caps *c, i64 n)
{
    return c->has_subgroup && c->subgroup > 1 && c->subgroup <= n ? c->subgroup : 0;
}

u32 wg_lanes(const struct graph *g, sym extent, enum dtype t, u32 most)
{
    i64 lanes = i64_min(most, 16 / i64_max(1, dtype_size(t)));
    while (lanes > 1 && ((lanes & (lanes - 1)) || !sym_divides(g->sym, lanes, extent))) lanes--;
    return (u32)i64_max(1, lanes);
}

i64 wg_power_dividing(i64 most, i64 n)
{
    i64 v = 1;
    while (v * 2 <= most && n % (v * 2) == 0) v *= 2;
    return v;
}

/* Sharing a tile, copying. */

/* Threads side by side in a row, where threads stay in rows. */
static i64 row_threads(const struct wg_share *s)
{
    return i64_min(s->cols / s->lanes, i64_max(1, s->g->n / s->rows));
}

i64 wg_share_turns(const struct wg_share *s)
{
    i64 units = s->cols / s->lanes;
    if (!s->by_rows) return ceil_div(s->rows * units, s->g->n);
    return ceil_div(s->rows, s->g->n / row_threads(s)) * (units / row_threads(s));
}

static bool share_by_rows(const struct wg_share *s, i64 turn, kval *row, kval *col)
{
    struct kir *k = s->g->m->k;
    i64 n = row_threads(s), at_once = s->g->n / n, per_row = s->cols / s->lanes / n;
    i64 r = turn / per_row * at_once, c = turn % per_row * n;
    *row = kir_add_i(k, kir_div_i(k, s->g->t, n), r);
    *col = kir_mul_i(k, kir_add_i(k, kir_mod_i(k, s->g->t, n), c), s->lanes);
    bool some = r + at_once > s->rows;
    if (some) kir_if(k, kir_lt(k, *row, kir_int(k, s->rows)));
    return some;
}

bool wg_share_at(const struct wg_share *s, i64 turn, kval *row, kval *col)
{
    struct kir *k = s->g->m->k;
    assert(s->cols % s->lanes == 0);
    if (s->by_rows) return share_by_rows(s, turn, row, col);
    i64 per_row = s->cols / s->lanes, all = s->rows * per_row;
    kval unit = kir_add_i(k, s->g->t, turn * s->g->n);
    bool some = (turn + 1) * s->g->n > all;
    if (some) kir_if(k, kir_lt(k, unit, kir_int(k, all)));
    *row = kir_div_i(k, unit, per_row);
    *col = kir_mul_i(k, kir_mod_i(k, unit, per_row), s->lanes);
    return some;
}

void wg_copy_open(struct wg_copy *c)
{
    struct kir *k = c->share.g->m->k;
    c->reg = kir_alloc(k, KS_REG, c->type, c->share.lanes, kir_int(k, wg_share_turns(&c->share)));
}

void wg_copy_fetch(const struct wg_copy *c)
{
    struct kir *k = c->share.g->m->k;
    for (i64 i = 0; i < wg_share_turns(&c->share); i++) {
        kval row, col;
        bool some = wg_share_at(&c->share, i, &row, &col);
        kir_store(k, c->reg, kir_int(k, i), c->read(c->user, row, col));
        if (some) kir_end(k);
    }
}

static kval place_of_vector(const struct wg_copy *c, kval row, kval col)
{
    return kir_ramp(c->share.g->m->k, c->at(c->user, row, col), c->col_step, c->share.lanes);
}

void wg_copy_put(const struct wg_copy *c, kval array)
{
    struct kir *k = c->share.g->m->k;
    for (i64 i = 0; i < wg_share_turns(&c->share); i++) {
        kval row, col;
        bool some = wg_share_at(&c->share, i, &row, &col);
        kir_store(k, array, place_of_vector(c, row, col), kir_load(k, c->reg, kir_int(k, i)));
        if (some) kir_end(k);
    }
}

void wg_copy_async(const struct wg_copy *c, kval array)
{
    struct kir *k = c->share.g->m->k;
    for (i64 i = 0; i < wg_share_turns(&c->share); i++) {
        kval row, col;
        bool some = wg_share_at(&c->share, i, &row, &col);
        kir_store_async(k, array, place_of_vector(c, row, col), c->read(c->user, row, col));
        if (some) kir_end(k);
    }
}

/* Reductions. */

/* Over `width` neighbours of one subgroup. */
static kval fold_lanes(const struct wg_fold *f, kval v, i64 width)
{
    struct kir *k = f->g->m->k;
    if (width == (i64)f->g->subgroup) {
        if (f->op == KI_ADD) return kir_sg(k, KI_SGADD, v);
        if (f->op == KI_MIN) return kir_sg(k, KI_SGMIN, v);
        if (f->op == KI_MAX) return kir_sg(k, KI_SGMAX, v);
    }
    for (i64 d = 1; d < width; d *= 2) {
        kval other = kir_bin(k, KI_XOR, f->g->lane, kir_int(k, d));
        v = kir_bin(k, f->op, v, kir_shuffle(k, v, other));
    }
    return v;
}

/* Each subgroup by itself, then every thread adds up what the subgroups of its row have left. */
static kval fold_subgroups(const struct wg_fold *f, kval v)
{
    struct kir *k = f->g->m->k;
    i64 size = f->g->subgroup;
    if (f->width <= size) return fold_lanes(f, v, f->width);
    i64 n = f->width / size;
    v = fold_lanes(f, v, size);
    kir_barrier(k);
    kir_if(k, kir_bin(k, KI_EQ, f->g->lane, kir_int(k, 0)));
    kir_store(k, f->shared, f->g->sg, v);
    kir_end(k);
    kir_barrier(k);
    kval first = kir_mul_i(k, kir_div_i(k, f->g->sg, n), n), sum = kir_load(k, f->shared, first);
    for (i64 i = 1; i < n; i++)
        sum = kir_bin(k, f->op, sum, kir_load(k, f->shared, kir_add_i(k, first, i)));
    return sum;
}

static kval fold_shared(const struct wg_fold *f, kval v)
{
    struct kir *k = f->g->m->k;
    u32 lanes = kir_lanes(k, v);
    kval t = f->g->t, place = kir_mod_i(k, kir_div_i(k, t, f->step), f->width);
    kval mine = kir_ramp(k, kir_mul_i(k, t, lanes), 1, lanes);
    kir_barrier(k);
    kir_store(k, f->shared, mine, v);
    for (i64 d = f->width / 2; d > 0; d /= 2) {
        kir_barrier(k);
        kir_if(k, kir_lt(k, place, kir_int(k, d)));
        kval other = kir_ramp(k, kir_mul_i(k, kir_add_i(k, t, d * f->step), lanes), 1, lanes);
        kval both = kir_bin(k, f->op, kir_load(k, f->shared, mine), kir_load(k, f->shared, other));
        kir_store(k, f->shared, mine, both);
        kir_end(k);
    }
    kir_barrier(k);
    kval first = kir_sub(k, t, kir_mul_i(k, place, f->step));
    return kir_load(k, f->shared, kir_ramp(k, kir_mul_i(k, first, lanes), 1, lanes));
}

kval wg_fold(const struct wg_fold *f, kval v)
{
    struct kir *k = f->g->m->k;
    assert(f->g->n % (f->width * f->step) == 0);
    if (f->width == 1) return v;
    bool is_near = f->g->subgroup && f->step == 1 && kir_lanes(k, v) == 1;
    return is_near && dtype_size(kir_dtype(k, v)) == 4 ? fold_subgroups(f, v) : fold_shared(f, v);
}
