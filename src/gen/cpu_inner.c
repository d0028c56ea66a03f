// SPDX-License-Identifier: Apache-2.0
//
// cpu_inner: GEMM of operands whose terms are both neighbours in memory, such as weights (n, k): they are read in place, by vectors of terms. An
// accumulator has partial sums of one result, so that a tile of rows and columns takes rows + columns loads for rows * columns multiply-adds, as
// tiles of packed operands do, and a single row reads every element of the right operand once, in order.
//
// The engine's tile is rows times one vector of columns. Its columns are taken some at a time; their partial sums wait in scratch memory until all are
// there, and become vectors of columns by additions of interleaved halves: lanes - 1 pairs of permutations for as many results as a vector has
// lanes. Bias, passes, epilogue and stores are those of any tile.
//
// Columns behind the last are the last again: they are computed, and not stored.
#include "gen/cpu_gemm.h"

/* Results of a step, and the vectors that it loads. The fewer rows or columns stay in registers, the others are loaded one by one. */
bool gemm_inner_is_legal(const struct caps *c, i64 rows, i64 columns)
{
    return columns <= TILE_COLUMNS && rows * columns + i64_min(rows, columns) + 1 < c->n_vector_regs; /* one is free: compilers spill otherwise */
}

bool gemm_has_dense_terms(const struct task *t, const struct gemm *x, u32 lanes)
{
    const u32 rank = x->pixels ? graph_value(&t->g, x->b)->shape.rank : x->bs->rank;
    struct space s = {.rank = rank};
    struct probe p;
    for (u32 i = 0; i < rank; i++) s.g[s.n++] = (struct axis_run){graph_value(&t->g, x->b)->shape.dim[i], i};
    space_probe(&p, t, &s, x->b, x->pixels ? 1 : rank - 2, lanes);
    return p.n_dense == 1 && !p.n_gather && !p.n_scalar;
}

void gemm_open_inner(struct gemm_kernel *p)
{
    struct kir *k = p->m->k;
    p->partial = kir_alloc(k, KS_REG, p->type, p->lanes, kir_int(k, p->s.mr * p->s.columns));
    p->collected = kir_alloc(k, KS_WORK, p->type, 1, kir_int(k, p->s.mr * p->lanes * p->lanes));
}

struct inner { /* a tile's products with some of its columns */
    struct gemm_kernel *p;
    const struct tile *t;
    kval column[TILE_COLUMNS]; /* of the right operand */
};

static kval partial(const struct inner *x, i64 row, i64 j) { return kir_int(x->p->m->k, row * x->p->s.columns + j); }

/* A vector of a row's terms, from the pass' term `term` on. */
static kval left_terms(const struct inner *x, i64 row, kval term, kval limit)
{
    struct kir *k = x->p->m->k;
    const struct tile_in *a = &x->p->run.a;
    kval at = kir_add(k, tile_row_at(x->t, a, row), term);
    return kir_cast(k, x->p->type, kir_load_n(k, a->buf, kir_ramp(k, at, 1, x->p->lanes), limit));
}

static kval right_terms(const struct inner *x, i64 j, kval term, kval limit)
{
    struct gemm_kernel *p = x->p;
    struct kir *k = p->m->k;
    kval idx[MAX_RANK], ramp = kir_ramp(k, kir_add(k, p->c.at, term), 1, p->lanes);
    if (p->x.pixels) {
        for (u32 i = 0; i < MAX_RANK; i++) idx[i] = kir_int(k, 0);
        idx[0] = x->column[j], idx[1] = ramp;
    } else gemm_index(p->m, &p->x, p->x.b, p->pos, ramp, x->column[j], idx);
    emit_limit(p->m, limit);
    kval v = kir_cast(k, p->type, emit_value(p->m, p->x.b, idx));
    emit_limit(p->m, 0);
    return v;
}

static void multiply(const struct inner *x, i64 row, i64 j, kval a, kval b)
{
    struct kir *k = x->p->m->k;
    kval at = partial(x, row, j);
    kir_store(k, x->p->partial, at, kir_fma(k, a, b, kir_load(k, x->p->partial, at)));
}

/* A vector of terms of all rows and columns. */
static void step(const struct inner *x, kval term, kval limit)
{
    const i64 rows = x->t->tx, columns = x->p->s.columns, few = i64_min(rows, columns), many = i64_max(rows, columns);
    kval kept[TILE_COLUMNS];
    for (i64 i = 0; i < few; i++) kept[i] = rows < columns ? left_terms(x, i, term, limit) : right_terms(x, i, term, limit);
    for (i64 i = 0; i < many; i++) {
        kval v = rows < columns ? right_terms(x, i, term, limit) : left_terms(x, i, term, limit);
        for (i64 j = 0; j < few; j++) rows < columns ? multiply(x, j, i, kept[j], v) : multiply(x, i, j, v, kept[j]);
    }
}

/* Partial sums of a row and column: [row][column][lane]. */
static kval collected(const struct inner *x, i64 row, kval column)
{
    struct kir *k = x->p->m->k;
    kval at = kir_mul_i(k, kir_add_i(k, column, row * x->p->lanes), x->p->lanes);
    return kir_ramp(k, at, 1, x->p->lanes);
}

/* The partial sums of columns first .. first + columns - 1 of the tile. */
static void add_columns(struct inner *x, const struct cpu_piece *e, kval first)
{
    struct gemm_kernel *p = x->p;
    struct kir *k = p->m->k;
    const i64 rows = x->t->tx, columns = p->s.columns;
    for (i64 j = 0; j < columns; j++) {
        x->column[j] = kir_add_i(k, kir_add(k, kir_mul_i(k, e->at[CPU_BLOCK], p->width), first), j);
        if (!e->is_full) x->column[j] = kir_min(k, x->column[j], kir_add_i(k, p->n, -1));
    }
    for (i64 i = 0; i < rows * columns; i++) kir_store(k, p->partial, partial(x, i / columns, i % columns), kir_const_f(k, p->type, p->lanes, 0));
    struct vectors v = vectors_over(k, kir_int(k, 0), p->c.len, p->lanes);
    while (vectors_next(&v)) step(x, v.at, v.limit);
    for (i64 i = 0; i < rows; i++)
        for (i64 j = 0; j < columns; j++) kir_store(k, p->collected, collected(x, i, kir_add_i(k, first, j)), kir_load(k, p->partial, partial(x, i, j)));
}

/* The lanes of every column's vector added up, in the order of columns: interleaving vectors i and i + n/2 halves what is left of each (transpose_vectors). */
static kval add_lanes(const struct inner *x, i64 row)
{
    struct kir *k = x->p->m->k;
    const u32 lanes = x->p->lanes;
    kval v[64];
    assert(lanes <= countof(v));
    for (u32 i = 0; i < lanes; i++) v[i] = kir_load(k, x->p->collected, collected(x, row, kir_int(k, i)));
    for (u32 n = lanes / 2; n; n /= 2)
        for (u32 i = 0; i < n; i++) {
            kval low = kir_zip(k, v[i], v[i + n], 0, lanes), high = kir_zip(k, v[i], v[i + n], lanes, lanes);
            v[i] = kir_add(k, low, high);
        }
    return v[0];
}

void gemm_multiply_inner(struct gemm_kernel *p, const struct tile *t, const struct cpu_piece *e)
{
    struct kir *k = p->m->k;
    struct inner x = {.p = p, .t = t};
    kval first = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, p->lanes), p->s.columns);
    add_columns(&x, e, first);
    kir_end(k);
    for (i64 i = 0; i < t->tx; i++) {
        kval at = tile_acc(t, i, 0);
        kir_store(k, t->acc, at, kir_add(k, kir_load(k, t->acc, at), add_lanes(&x, i)));
    }
}
