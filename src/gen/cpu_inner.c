// SPDX-License-Identifier: Apache-2.0
//
// cpu_inner: GEMM of operands whose terms are both neighbours in memory, such as weights (n, k): they are read in place, by vectors of terms. An
// accumulator has partial sums of one result, so that a tile of rows and columns takes rows + columns loads for rows * columns multiply-adds, as
// tiles of packed operands do, and a single row reads every element of the right operand once, in order.
//
// The engine's tile is rows times one vector of columns. Its columns are taken in groups: of 4 of 16, every 4th one. The partial sums of a group become one
// vector, and those of all groups a vector of columns, by additions of interleaved halves: as many pairs of permutations as there are results. Bias,
// passes, epilogue and stores are those of any tile.
//
// Columns behind the last are the last again: they are computed, and not stored.
#include "gen/cpu_gemm.h"

enum { CHAINS = 8 }; /* sums that keep the multipliers busy */

bool gemm_inner_suits(struct tile_product p) { return p.leaf == &tile_fma || p.leaf == &tile_dot; }

/* Results of a step, and the vectors that it loads. The fewer rows or columns stay in registers, the others are loaded one by one. */
bool gemm_inner_is_legal(const struct caps *c, i64 rows, i64 columns)
{
    return columns <= TILE_COLUMNS && rows * columns + i64_min(rows, columns) + 1 <= c->n_vector_regs;
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

i64 gemm_inner_columns(const struct gemm_sched *s, i64 lanes, i64 rows)
{
    i64 n = s->columns;
    while (2 * n <= i64_min(lanes, TILE_COLUMNS) && 2 * n * rows <= s->mr * s->columns) n *= 2;
    return n;
}

/* Vectors of terms of each column that are summed apart: multiply-adds of small tiles would wait for each other. */
static i64 depth_of(i64 rows, i64 columns) { return i64_max(1, CHAINS / (rows * columns)); }

void gemm_open_inner(struct gemm_kernel *p)
{
    struct kir *k = p->m->k;
    p->partial = kir_alloc(k, KS_REG, p->type, p->lanes, kir_int(k, i64_max(2 * CHAINS, p->s.mr * p->s.columns)));
    p->collected = kir_alloc(k, KS_WORK, p->type, 1, kir_int(k, p->s.mr * p->lanes * p->lanes / p->s.columns));
}

struct inner { /* a tile's products with some of its columns */
    struct gemm_kernel *p;
    const struct tile *t;
    i64 columns, groups;       /* that are computed at once, of so many groups */
    i64 depth;                 /* sums of each result */
    kval column[TILE_COLUMNS]; /* of the right operand */
};

static kval partial(const struct inner *x, i64 row, i64 j, i64 d) { return kir_int(x->p->m->k, (row * x->columns + j) * x->depth + d); }

static u32 terms_of_vector(const struct inner *x) { return x->p->lanes * (u32)x->p->dot_k; }

/* A vector of a row's terms, from the pass' term `term` on; `limit` exist, 0: all. */
static kval left_terms(const struct inner *x, i64 row, kval term, kval limit)
{
    struct kir *k = x->p->m->k;
    const struct tile_in *a = &x->p->run.a;
    kval at = kir_add(k, tile_row_at(x->t, a, row), term);
    return kir_cast(k, x->p->left_type, kir_load_n(k, a->buf, kir_ramp(k, at, 1, terms_of_vector(x)), limit));
}

static kval right_terms(const struct inner *x, i64 j, kval term, kval limit)
{
    struct gemm_kernel *p = x->p;
    struct kir *k = p->m->k;
    const u32 n = terms_of_vector(x);
    kval idx[MAX_RANK], ramp = kir_ramp(k, kir_add(k, p->c.at, term), 1, n);
    if (p->x.pixels) {
        for (u32 i = 0; i < MAX_RANK; i++) idx[i] = kir_int(k, 0);
        idx[0] = x->column[j], idx[1] = ramp;
    } else gemm_index(p->m, &p->x, p->x.b, p->pos, ramp, x->column[j], idx);
    emit_limit(p->m, limit);
    kval v = kir_splat(k, kir_cast(k, p->right_type, emit_value(p->m, p->x.b, idx)), n);
    emit_limit(p->m, 0);
    if (!limit) return v;
    return kir_select(k, kir_lt(k, kir_ramp(k, kir_int(k, 0), 1, n), kir_splat(k, limit, n)), v, kir_const_f(k, p->right_type, n, 0)); /* a prologue of zeros may be infinite */
}

static void multiply(const struct inner *x, i64 row, i64 j, i64 d, kval a, kval b)
{
    struct kir *k = x->p->m->k;
    kval at = partial(x, row, j, d);
    kval sum = kir_load(k, x->p->partial, at);
    kir_store(k, x->p->partial, at, x->p->dot_k > 1 ? kir_dot(k, a, b, sum) : kir_fma(k, a, b, sum));
}

/* A vector of terms of all rows and columns, to the sums number d. */
static void step(const struct inner *x, i64 d, kval term, kval limit)
{
    const i64 rows = x->t->tx, columns = x->columns, few = i64_min(rows, columns), many = i64_max(rows, columns);
    kval kept[TILE_COLUMNS];
    for (i64 i = 0; i < few; i++) kept[i] = rows < columns ? left_terms(x, i, term, limit) : right_terms(x, i, term, limit);
    for (i64 i = 0; i < many; i++) {
        kval v = rows < columns ? right_terms(x, i, term, limit) : left_terms(x, i, term, limit);
        for (i64 j = 0; j < few; j++) rows < columns ? multiply(x, j, i, d, kept[j], v) : multiply(x, i, j, d, v, kept[j]);
    }
}

/* A vector of a row's and a group's partial sums: [row][group][lane]. */
static kval collected(const struct inner *x, i64 row, kval group)
{
    struct kir *k = x->p->m->k;
    kval at = kir_mul_i(k, kir_add_i(k, group, row * x->groups), x->p->lanes);
    return kir_ramp(k, at, 1, x->p->lanes);
}

/* Sums of pairs of lanes of two vectors, a's and b's in turn. */
static kval add_zipped(struct kir *k, kval a, kval b, u32 lanes)
{
    return kir_add(k, kir_zip(k, a, b, 0, lanes), kir_zip(k, a, b, lanes, lanes));
}

/* One of the passes that add up the lanes of as many vectors as they have: lanes of a and of b that a sum is left in are halved, and those of the first pass
   decide about the highest bit of a lane's number. Interleaving does that; vectors of two registers of 16 bytes, as AVX2 has them, are
   halved by exchanging registers first, then each in itself. */
static kval halve(const struct inner *x, kval a, kval b, bool is_first)
{
    struct kir *k = x->p->m->k;
    const u32 lanes = x->p->lanes;
    if (lanes * dtype_size(x->p->type) != 32) return add_zipped(k, a, b, lanes);
    kval low = is_first ? a : kir_zip(k, a, b, 0, lanes), high = is_first ? b : kir_zip(k, a, b, lanes, lanes);
    return kir_add(k, kir_halves(k, low, high, 0), kir_halves(k, low, high, 1));
}

/* Passes over n vectors, the first ones or those behind them. */
static kval halve_all(const struct inner *x, kval *v, i64 n, bool are_first)
{
    bool is_first = are_first;
    for (i64 half = n / 2; half; half /= 2, is_first = false)
        for (i64 i = 0; i < half; i++) v[i] = halve(x, v[i], v[i + half], is_first);
    return v[0];
}

/* All terms of the pass. */
static void add_terms(const struct inner *x)
{
    struct gemm_kernel *p = x->p;
    struct kir *k = p->m->k;
    const i64 terms = terms_of_vector(x), all = terms * x->depth;
    kval from = kir_int(k, 0);
    if (x->depth > 1) {
        kval whole = kir_mul_i(k, kir_div_i(k, p->c.len, all), all), term = kir_loop(k, KL_SERIAL, from, whole, all);
        for (i64 d = 0; d < x->depth; d++) step(x, d, kir_add_i(k, term, d * terms), 0);
        kir_end(k);
        from = whole;
    }
    struct vectors v = vectors_over(k, from, p->c.len, terms);
    while (vectors_next(&v)) step(x, 0, v.at, v.limit);
}

static kval whole_sum(const struct inner *x, i64 row, i64 column)
{
    struct kir *k = x->p->m->k;
    kval sum = kir_load(k, x->p->partial, partial(x, row, column, 0));
    for (i64 d = 1; d < x->depth; d++) sum = kir_add(k, sum, kir_load(k, x->p->partial, partial(x, row, column, d)));
    return sum;
}

/* A group: every groups-th column of the tile, from `first` on. Its partial sums become a vector for each row. */
static void add_columns(struct inner *x, const struct cpu_piece *e, kval first)
{
    struct gemm_kernel *p = x->p;
    struct kir *k = p->m->k;
    const i64 rows = x->t->tx, columns = x->columns;
    kval v[TILE_COLUMNS];
    for (i64 j = 0; j < columns; j++) {
        x->column[j] = kir_add_i(k, kir_add(k, kir_mul_i(k, e->at[CPU_BLOCK], p->width), first), j * x->groups);
        if (!e->is_full) x->column[j] = kir_min(k, x->column[j], kir_add_i(k, p->n, -1));
    }
    for (i64 i = 0; i < rows * columns * x->depth; i++) kir_store(k, p->partial, kir_int(k, i), kir_const_f(k, p->type, p->lanes, 0));
    add_terms(x);
    for (i64 i = 0; i < rows; i++) {
        for (i64 j = 0; j < columns; j++) v[j] = whole_sum(x, i, j);
        kir_store(k, p->collected, collected(x, i, first), halve_all(x, v, columns, true));
    }
}

void gemm_multiply_inner(struct gemm_kernel *p, const struct tile *t, const struct cpu_piece *e)
{
    struct kir *k = p->m->k;
    const i64 columns = gemm_inner_columns(&p->s, p->lanes, t->tx), groups = p->lanes / columns;
    struct inner x = {.p = p, .t = t, .columns = columns, .groups = groups, .depth = depth_of(t->tx, columns)};
    kval v[64], first = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, groups), 1);
    assert(groups <= countof(v));
    add_columns(&x, e, first);
    kir_end(k);
    for (i64 i = 0; i < t->tx; i++) {
        kval at = tile_acc(t, i, 0);
        for (i64 j = 0; j < groups; j++) v[j] = kir_load(k, p->collected, collected(&x, i, kir_int(k, j)));
        kir_store(k, t->acc, at, kir_add(k, kir_load(k, t->acc, at), halve_all(&x, v, groups, columns == 1)));
    }
}
