// SPDX-License-Identifier: Apache-2.0
//
// gen_group_tile: the register tile of matrix products by groups of threads. A step reads fragments
// of both operands, of one term or of a few, and adds their products to the accumulators. The
// fragments of the next step may be read before those of this one are multiplied: they are kept in
// registers, two steps of them.
#include "gen/gen_group.h"

/* Axes. */

i64 group_axis_size(const struct group_axis *x) { return x->n * x->threads * x->subgroups; }

i64 group_axis_at(const struct group_axis *x, i64 i)
{
    i64 block = i / x->within, part = i % x->within / x->near;
    return block * x->subgroups * x->threads * x->within + part * x->threads * x->near + i % x->near;
}

static kval first_of(struct kir *k, const struct group_axis *x, kval sg, kval lane)
{
    return kir_add(k, kir_mul_i(k, sg, x->threads * x->within), kir_mul_i(k, lane, x->near));
}

/* The tile. */

static i64 vectors(const struct group_tile *t) { return t->col.n / t->lanes; }

i64 group_tile_count(const struct group_tile *t) { return t->row.n * vectors(t); }

static kval acc_at(const struct group_tile *t, i64 i, i64 j)
{
    return kir_int(t->g->m->k, i * vectors(t) + j);
}

/* Vectors of rows of a fragment, and lanes of one. */
static i64 row_vectors(const struct group_tile *t) { return t->deep > 1 ? t->row.n : t->row.n / t->run; }
static u32 row_lanes(const struct group_tile *t) { return t->deep > 1 ? (u32)t->deep : t->run; }

void group_tile_open(struct group_tile *t, kval thread)
{
    struct kir *k = t->g->m->k;
    i64 size = t->row.threads * t->col.threads, n = t->deep * vectors(t);
    kval sg = kir_div_i(k, thread, size), lane = kir_mod_i(k, thread, size);
    assert(t->col.near % t->lanes == 0 && t->row.near % t->run == 0);
    assert(row_vectors(t) <= GROUP_FRAG_ROWS && n <= GROUP_FRAG_COLS);
    t->row0 = first_of(k, &t->row, kir_div_i(k, sg, t->col.subgroups), kir_div_i(k, lane, t->col.threads));
    t->col0 = first_of(k, &t->col, kir_mod_i(k, sg, t->col.subgroups), kir_mod_i(k, lane, t->col.threads));
    t->acc = kir_alloc(k, KS_REG, t->type, t->lanes, kir_int(k, group_tile_count(t)));
    for (i64 i = 0; i < group_tile_count(t); i++)
        kir_store(k, t->acc, kir_int(k, i), kir_const_f(k, t->type, t->lanes, 0));
    if (!t->keeps) return;
    t->rows = kir_alloc(k, KS_REG, t->type, row_lanes(t), kir_int(k, 2 * row_vectors(t)));
    t->cols = kir_alloc(k, KS_REG, t->type, t->lanes, kir_int(k, 2 * n));
}

kval group_tile_row(const struct group_tile *t, i64 i)
{
    return kir_add_i(t->g->m->k, t->row0, group_axis_at(&t->row, i));
}

kval group_tile_col(const struct group_tile *t, i64 j)
{
    return kir_add_i(t->g->m->k, t->col0, group_axis_at(&t->col, j * t->lanes));
}

kval group_tile_get(const struct group_tile *t, i64 i, i64 j)
{
    return kir_load(t->g->m->k, t->acc, acc_at(t, i, j));
}

void group_tile_set(const struct group_tile *t, i64 i, i64 j, kval v) { kir_store(t->g->m->k, t->acc, acc_at(t, i, j), v); }

/* Steps. */

static kval element(const struct group_tile *t, kval array, kval at, u32 lanes)
{
    struct kir *k = t->g->m->k;
    return kir_cast(k, t->type, array ? kir_load(k, array, kir_ramp(k, at, 1, lanes)) : kir_splat(k, at, lanes));
}

void group_tile_fetch(const struct group_tile *t, const struct group_terms *x, kval term, struct group_frag *f)
{
    struct kir *k = t->g->m->k;
    for (i64 i = 0; i < row_vectors(t); i++) {
        kval row = group_tile_row(t, t->deep > 1 ? i : i * t->run);
        f->row[i] = element(t, x->a, x->a_at(x->a_user, term, row), row_lanes(t));
    }
    for (i64 u = 0; u < t->deep; u++)
        for (i64 j = 0; j < vectors(t); j++) {
            kval at = x->b_at(x->b_user, kir_add_i(k, term, u), group_tile_col(t, j));
            f->col[u * vectors(t) + j] = element(t, x->b, at, t->lanes);
        }
}

void group_tile_keep(const struct group_tile *t, i64 slot, const struct group_frag *f)
{
    struct kir *k = t->g->m->k;
    i64 n = row_vectors(t), m = t->deep * vectors(t);
    for (i64 i = 0; i < n; i++) kir_store(k, t->rows, kir_int(k, slot * n + i), f->row[i]);
    for (i64 j = 0; j < m; j++) kir_store(k, t->cols, kir_int(k, slot * m + j), f->col[j]);
}

void group_tile_kept(const struct group_tile *t, i64 slot, struct group_frag *f)
{
    struct kir *k = t->g->m->k;
    i64 n = row_vectors(t), m = t->deep * vectors(t);
    for (i64 i = 0; i < n; i++) f->row[i] = kir_load(k, t->rows, kir_int(k, slot * n + i));
    for (i64 j = 0; j < m; j++) f->col[j] = kir_load(k, t->cols, kir_int(k, slot * m + j));
}

void group_tile_multiply(const struct group_tile *t, const struct group_frag *f)
{
    struct kir *k = t->g->m->k;
    for (i64 u = 0; u < t->deep; u++)
        for (i64 i = 0; i < t->row.n; i++) {
            kval own = t->deep > 1 ? kir_lane(k, f->row[i], u) : kir_lane(k, f->row[i / t->run], i % t->run);
            kval row = kir_splat(k, own, t->lanes);
            for (i64 j = 0; j < vectors(t); j++)
                kir_store(k, t->acc, acc_at(t, i, j),
                          kir_fma(k, row, f->col[u * vectors(t) + j], group_tile_get(t, i, j)));
        }
}
