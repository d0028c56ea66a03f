// SPDX-License-Identifier: Apache-2.0
//
// tile_matrix: a step of a matrix unit that a thread has to itself (AMX): blocks of 16 rows are multiplied with vectors of 16 columns, of 64 bytes of terms
// each. Both operands are read by the unit from where they lie: rows of terms that are equally far apart, and columns in groups of a DOT. Rows that lie
// anywhere, or of which a tile has fewer than whole blocks, are copied to scratch memory first, zeros for those that do not exist. Sums are fragments
// while terms are added; before and after, they are vectors of columns in memory.
#include "gen/tile.h"

enum { SIDE = 16 };

static i64 terms(const struct caps *c, const struct tile_operands *o)
{
    struct str list = str_of(c->matrix);
    struct caps_matrix m;
    if (c->is_gpu || o->n <= 0 || (c->deterministic && dtype_is_float(o->sum))) return 0;
    while (caps_matrix_next(&list, &m)) {
        bool is_known = m.m == SIDE && m.n == SIDE && gen_lanes(c, o->sum) == SIDE && m.a == o->a && m.b == o->b && m.c == o->sum && m.d == o->sum;
        if (is_known && round_up(o->n, m.k) <= 2 * o->n) return m.k;
    }
    return 0;
}

static i64 rows_of(const struct tile *t) { return t->ty * t->tx; }
static i64 blocks_of(const struct tile *t) { return ceil_div(rows_of(t), SIDE); }

static struct kir_frag sums_of(const struct tile *t) { return (struct kir_frag){KR_ACC, t->type, SIDE, SIDE}; }

static void open(struct tile *t)
{
    struct kir *k = t->m->k;
    const struct kir_frag f = sums_of(t);
    k->subgroup = 1;
    t->acc = kir_alloc_frag(k, &f, kir_int(k, blocks_of(t) * t->nr));
    t->spill = kir_alloc(k, KS_WORK, t->type, 1, kir_int(k, blocks_of(t) * t->nr * SIDE * SIDE));
    t->rows = kir_alloc(k, KS_WORK, t->left, 1, kir_int(k, blocks_of(t) * SIDE * t->dot_k));
}

/* Where the sums of a block and a vector lie, and how far apart those of its rows. */
static kval place(const struct tile *t, i64 i, i64 j) { return kir_int(t->m->k, (i * SIDE * t->nr + j) * SIDE); }
static kval pitch(const struct tile *t) { return kir_int(t->m->k, t->nr * SIDE); }

static void load(const struct tile *t, bool has_one_row)
{
    struct kir *k = t->m->k;
    const struct kir_frag f = sums_of(t);
    for (i64 i = 0; i < blocks_of(t); i++)
        for (i64 j = 0; j < t->nr; j++)
            kir_store(k, t->acc, tile_acc(t, i, j), kir_frag_load(k, &f, t->spill, place(t, has_one_row ? 0 : i, j), has_one_row ? kir_int(k, 0) : pitch(t), false));
}

static void fill(const struct tile *t, const kval *init, bool is_zero)
{
    struct kir *k = t->m->k;
    const struct kir_frag f = sums_of(t);
    if (is_zero)
        for (i64 i = 0; i < blocks_of(t) * t->nr; i++) kir_store(k, t->acc, kir_int(k, i), kir_frag_fill(k, &f, kir_const_f(k, t->type, 1, 0)));
    else {
        for (i64 j = 0; j < t->nr; j++) kir_store(k, t->spill, kir_ramp(k, place(t, 0, j), 1, SIDE), init[j]);
        load(t, true);
    }
}

/* Zeros for the rows of an array that no whole block has. */
static void clear_rest(const struct tile *t, kval array, i64 row)
{
    struct kir *k = t->m->k;
    for (i64 p = rows_of(t); p < blocks_of(t) * SIDE; p++)
        for (i64 i = 0; i < row; i += SIDE) kir_store(k, array, kir_ramp(k, kir_int(k, p * row + i), 1, SIDE), kir_const_f(k, kir_dtype(k, array), SIDE, 0));
}

static void resume(const struct tile *t)
{
    clear_rest(t, t->spill, t->nr * SIDE);
    load(t, false);
}

static void begin(const struct tile *t) { clear_rest(t, t->rows, t->dot_k); }

static void end(const struct tile *t)
{
    struct kir *k = t->m->k;
    for (i64 i = 0; i < blocks_of(t); i++)
        for (i64 j = 0; j < t->nr; j++) kir_frag_store(k, t->spill, place(t, i, j), kir_load(k, t->acc, tile_acc(t, i, j)), pitch(t), false);
}

static void copy_row(const struct tile *t, const struct tile_in *a, i64 p)
{
    struct kir *k = t->m->k;
    kval x = kir_const_f(k, t->left, (u32)t->dot_k, 0);
    if (tile_takes_part(a, p)) x = kir_load(k, a->buf, kir_ramp(k, tile_row_at(t, a, p), 1, (u32)t->dot_k));
    if (tile_takes_part(a, p) && a->inside) x = kir_select(k, a->inside[p], x, tile_outside(k, a, t->left));
    kir_store(k, t->rows, kir_ramp(k, kir_int(k, p * t->dot_k), 1, (u32)t->dot_k), x);
}

/* A block of rows: in place, or copied. */
static kval left(const struct tile *t, const struct tile_in *a, i64 i)
{
    struct kir *k = t->m->k;
    const struct kir_frag f = {KR_A, t->left, SIDE, (u16)t->dot_k};
    i64 first = i * SIDE, n = i64_min(SIDE, rows_of(t) - first);
    bool is_even = !a->px && !a->inside && (t->ty == 1 || t->tx % SIDE == 0);
    if (is_even && n == SIDE) return kir_frag_load(k, &f, a->buf, tile_row_at(t, a, first), a->x_step, false);
    for (i64 p = first; p < first + n; p++) copy_row(t, a, p);
    return kir_frag_load(k, &f, t->rows, kir_int(k, first * t->dot_k), kir_int(k, t->dot_k), false);
}

static void step(const struct tile *t, const struct tile_in *a, kval b, kval b_at)
{
    struct kir *k = t->m->k;
    const i64 group = kir_frag_group(kir_dtype(k, b)), line = (t->pitch ? t->pitch : t->nr) * SIDE * group;
    const struct kir_frag f = {KR_B, kir_dtype(k, b), (u16)t->dot_k, SIDE};
    kval right[TILE_COLUMNS];
    assert(!t->limit && !t->ahead && t->lanes == SIDE);
    for (i64 j = 0; j < t->nr; j++)
        right[j] = kir_frag_load_at(k, &f, &(struct kir_frag_place){b, kir_add_i(k, b_at, j * SIDE * group), kir_int(k, line), 0, KF_GROUPS});
    for (i64 i = 0; i < blocks_of(t); i++) {
        kval x = left(t, a, i);
        for (i64 j = 0; j < t->nr; j++) kir_store(k, t->acc, tile_acc(t, i, j), kir_frag_mma(k, x, right[j], kir_load(k, t->acc, tile_acc(t, i, j))));
    }
}

const struct tile_leaf tile_matrix = {
    .terms = terms, .rows = SIDE, .in_groups = true, .open = open, .fill = fill, .resume = resume, .begin = begin, .step = step, .end = end,
};
