// SPDX-License-Identifier: Apache-2.0
//
// leaf_fma: the leaf of multiply-adds, for contractions by a workgroup on any device. Each thread has a tile of sums in registers, in vectors along
// columns. A step reads a fragment of both operands, of one term or of a few, and adds their products: from shared memory where an operand is
// staged, else through the addressing. The fragment of the next step may be read before this one's is multiplied; both are in registers then.
//
// With split-K inside the workgroup each slice of the threads has its share of the terms of a K block. At the end all of them store
// their sums to SHARED: [slice][bm][bn], and all threads add these up.
#include "gen/leaf.h"

enum {
    MAX_CODE = 512,                 /* multiply-adds written out where the schedule does not say */
    VECTOR = 4,
    MAX_ROWS = 64, MAX_COLS = 64,   /* vectors of a fragment */
};

/* Elements of both operands that a step multiplies: vectors of `run` rows or of `deep` terms; vectors of `lanes` columns, for each term. */
struct fragment { kval row[MAX_ROWS], col[MAX_COLS]; };

/* The tile. */

/* From the thread's first element of an axis to its i-th. */
static i64 element_at(const struct fma_axis *x, i64 i)
{
    i64 block = i / x->within, part = i % x->within / x->near;
    return block * x->subgroups * x->threads * x->within + part * x->threads * x->near + i % x->near;
}

static kval first_of(struct kir *k, const struct fma_axis *x, kval sg, kval lane)
{
    return kir_add(k, kir_mul_i(k, sg, x->threads * x->within), kir_mul_i(k, lane, x->near));
}

static i64 vectors(const struct fma_leaf *l) { return l->col.n / l->lanes; }

kval fma_slot(struct kir *k, const struct fma_leaf *l, i64 i, i64 j) { return kir_int(k, i * vectors(l) + j); }

kval fma_row(struct kir *k, const struct fma_leaf *l, i64 i) { return kir_add_i(k, l->row0, element_at(&l->row, i)); }

kval fma_col(struct kir *k, const struct fma_leaf *l, i64 j) { return kir_add_i(k, l->col0, element_at(&l->col, j * l->lanes)); }

/* In the block: the thread's i-th row, the first column of its j-th vector. */
static kval row_at(const struct contraction *p, i64 i) { return fma_row(p->m->k, p->own, i); }
static kval col_at(const struct contraction *p, i64 j) { return fma_col(p->m->k, p->own, j); }
static kval slot(const struct contraction *p, i64 i, i64 j) { return fma_slot(p->m->k, p->own, i, j); }

static kval sum_of(const struct contraction *p, i64 i, i64 j)
{
    const struct fma_leaf *l = p->own;
    return kir_load(p->m->k, l->acc, slot(p, i, j));
}

/* Vectors of rows of a fragment, and lanes of one. */
static i64 row_vectors(const struct fma_leaf *l) { return l->deep > 1 ? l->row.n : l->row.n / l->run; }
static u32 row_lanes(const struct fma_leaf *l) { return l->deep > 1 ? (u32)l->deep : l->run; }
static i64 col_vectors(const struct fma_leaf *l) { return l->deep * vectors(l); }

static i64 slices_of(const struct fma_leaf *l) { return i64_max(1, l->split_k_local); }

i64 fma_unroll(const struct fma_leaf *l, i64 terms)
{
    i64 n = 1, most = MAX_CODE / (l->row.n * l->col.n);
    while (n < terms && 2 * n <= most) n *= 2;
    return n;
}

/* Fragments have vectors of terms where these lie side by side in the left operand, else of rows. */
static void find_vectors(struct contraction *p)
{
    struct fma_leaf *l = p->own;
    bool by_terms = p->st.a_direct || p->a.term_step == 1;
    l->run = by_terms ? 1 : (u32)i64_min(VECTOR, l->row.near);
    l->deep = 1;
    if (p->st.a_direct || p->address->loops) l->deep = p->address->direct_run; /* as far as these loops go in a step */
    else if (by_terms) l->deep = wg_power_dividing(VECTOR, p->s.bk / slices_of(l));
    assert(l->col.near % l->lanes == 0 && l->row.near % l->run == 0);
    assert(row_vectors(l) <= MAX_ROWS && col_vectors(l) <= MAX_COLS);
}

static void place_thread(struct fma_leaf *l, const struct workgroup *g)
{
    struct kir *k = g->m->k;
    i64 slice = g->n / slices_of(l), subgroup = l->row.threads * l->col.threads;
    l->slice = kir_div_i(k, g->t, slice);
    kval t = kir_mod_i(k, g->t, slice), sg = kir_div_i(k, t, subgroup), lane = kir_mod_i(k, t, subgroup);
    l->row0 = first_of(k, &l->row, kir_div_i(k, sg, l->col.subgroups), kir_div_i(k, lane, l->col.threads));
    l->col0 = first_of(k, &l->col, kir_mod_i(k, sg, l->col.subgroups), kir_mod_i(k, lane, l->col.threads));
}

static void clear_sums(struct fma_leaf *l, struct kir *k, enum dtype type)
{
    i64 n = l->row.n * vectors(l);
    l->acc = kir_alloc(k, KS_REG, type, l->lanes, kir_int(k, n));
    for (i64 i = 0; i < n; i++) kir_store(k, l->acc, kir_int(k, i), kir_const_f(k, type, l->lanes, 0));
}

void fma_open(struct fma_leaf *l, const struct workgroup *g, enum dtype type)
{
    place_thread(l, g);
    clear_sums(l, g->m->k, type);
}

static void open_sums(struct contraction *p)
{
    struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    if (l->acc) return;
    clear_sums(l, k, p->type);
    if (l->ahead) {
        l->rows = kir_alloc(k, KS_REG, p->type, row_lanes(l), kir_int(k, 2 * row_vectors(l)));
        l->cols = kir_alloc(k, KS_REG, p->type, l->lanes, kir_int(k, 2 * col_vectors(l)));
    }
    if (!contract_begins_with_bias(p)) return;
    for (i64 j = 0; j < vectors(l); j++) {
        kval v = contract_bias(p, col_at(p, j), l->lanes);
        for (i64 i = 0; i < l->row.n; i++) kir_store(k, l->acc, slot(p, i, j), v);
    }
}

static void open(struct contraction *p)
{
    struct fma_leaf *l = p->own;
    find_vectors(p);
    place_thread(l, &p->g);
    open_sums(p);
    bool enters = p->st.a_direct && p->address->enter_row;
    for (i64 i = 0; enters && i < l->row.n; i++) p->address->enter_row(p, row_at(p, i));
}

/* Steps. */

/* A vector of an operand: from the array of staged ones, or what the addressing reads. */
static kval staged(struct contraction *p, struct operand *s, const struct contract_term *t, kval i, u32 lanes)
{
    struct kir *k = p->m->k;
    return kir_load(k, s->array, kir_ramp(k, s->at(s, t, i), 1, lanes));
}

static kval read_row(struct contraction *p, kval row)
{
    const struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    u32 lanes = row_lanes(l);
    if (!p->st.a_direct) return kir_cast(k, p->type, staged(p, &p->a, &l->term, row, lanes));
    return kir_cast(k, p->type, kir_splat(k, p->address->direct_a(p, &l->term, row, (u32)l->deep), lanes));
}

static kval read_col(struct contraction *p, const struct contract_term *t, kval col)
{
    const struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    if (!p->st.b_direct) return kir_cast(k, p->type, staged(p, &p->b, t, col, l->lanes));
    return kir_cast(k, p->type, kir_splat(k, p->address->direct_b(p, t, col, l->lanes), l->lanes));
}

/* Of the step that begins with l->term. */
static void read_rows(struct contraction *p, struct fragment *f)
{
    const struct fma_leaf *l = p->own;
    for (i64 i = 0; i < row_vectors(l); i++) f->row[i] = read_row(p, row_at(p, l->deep > 1 ? i : i * l->run));
}

/* Columns of the step's term u. */
static void read_cols(struct contraction *p, i64 u, struct fragment *f)
{
    const struct fma_leaf *l = p->own;
    struct contract_term t = l->term;
    t.at = kir_add_i(p->m->k, t.at, u);
    for (i64 j = 0; j < vectors(l); j++) f->col[u * vectors(l) + j] = read_col(p, &t, col_at(p, j));
}

static void multiply_term(struct contraction *p, i64 u, const struct fragment *f)
{
    const struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    for (i64 i = 0; i < l->row.n; i++) {
        kval own = l->deep > 1 ? kir_lane(k, f->row[i], u) : kir_lane(k, f->row[i / l->run], i % l->run), row = kir_splat(k, own, l->lanes);
        for (i64 j = 0; j < vectors(l); j++)
            kir_store(k, l->acc, slot(p, i, j), kir_fma(k, row, f->col[u * vectors(l) + j], sum_of(p, i, j)));
    }
}

static void multiply_fragment(struct contraction *p, const struct fragment *f)
{
    const struct fma_leaf *l = p->own;
    for (i64 u = 0; u < l->deep; u++) multiply_term(p, u, f);
}

static void fetch(struct contraction *p, kval term, struct fragment *f)
{
    struct fma_leaf *l = p->own;
    l->term = (struct contract_term){.at = term};
    if (p->st.a_direct) p->address->term(p, p->now, term, &l->term);
    read_rows(p, f);
    for (i64 u = 0; u < l->deep; u++) read_cols(p, u, f);
}

/* Fragments of two steps in registers. */

static void fetch_to(struct contraction *p, kval term, i64 to)
{
    struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    struct fragment f;
    i64 n = row_vectors(l), m = col_vectors(l);
    fetch(p, term, &f);
    for (i64 i = 0; i < n; i++) kir_store(k, l->rows, kir_int(k, to * n + i), f.row[i]);
    for (i64 j = 0; j < m; j++) kir_store(k, l->cols, kir_int(k, to * m + j), f.col[j]);
}

static void load_kept(struct contraction *p, i64 from, struct fragment *f)
{
    const struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    i64 n = row_vectors(l), m = col_vectors(l);
    for (i64 i = 0; i < n; i++) f->row[i] = kir_load(k, l->rows, kir_int(k, from * n + i));
    for (i64 j = 0; j < m; j++) f->col[j] = kir_load(k, l->cols, kir_int(k, from * m + j));
}

static void store_kept(struct contraction *p, i64 to, const struct fragment *f)
{
    const struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    i64 n = row_vectors(l), m = col_vectors(l);
    for (i64 i = 0; i < n; i++) kir_store(k, l->rows, kir_int(k, to * n + i), f->row[i]);
    for (i64 j = 0; j < m; j++) kir_store(k, l->cols, kir_int(k, to * m + j), f->col[j]);
}

struct steps { /* of a slice in a K block */
    i64 unit;     /* terms of all slices in a step */
    i64 count;    /* what the loop counts on from step to step: steps, or terms where the addressing takes these apart */
    i64 n, many;  /* steps; of them unrolled */
    kval first;   /* of those, as the loop counts */
};

static struct steps steps_of(const struct contraction *p)
{
    const struct fma_leaf *l = p->own;
    i64 unit = slices_of(l) * l->deep, n = p->s.bk / unit;
    return (struct steps){.unit = unit, .count = p->st.a_direct ? unit : 1, .n = n, .many = i64_max(1, i64_min(l->unroll / l->deep, n))};
}

/* The slice's first term of the step that is so many behind `first`. */
static kval term_of(const struct contraction *p, const struct steps *s, kval first, i64 step)
{
    const struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    kval term = kir_add(k, kir_mul_i(k, first, s->unit / s->count), kir_mul_i(k, l->slice, l->deep));
    return kir_add_i(k, term, step * s->unit);
}

/* Step i of the unrolled ones, whose fragment is in registers, and the fragment of the next one. The last step of the K block has none behind it:
   its own is fetched again. */
static void step_ahead(struct contraction *p, const struct steps *s, i64 i)
{
    struct kir *k = p->m->k;
    struct fragment f;
    bool is_last = i + 1 == s->many, is_alone = s->many == 1 && s->n > 1;
    kval last = kir_int(k, (s->n - 1) * s->count);
    if (!is_last) fetch_to(p, term_of(p, s, s->first, i + 1), (i + 1) % 2);
    else if (s->many < s->n) fetch_to(p, term_of(p, s, kir_min(k, kir_add_i(k, s->first, (i + 1) * s->count), last), 0), 1 - i % 2);
    load_kept(p, i % 2, &f);
    multiply_fragment(p, &f);
    if (!is_alone) return;
    load_kept(p, 1, &f);
    store_kept(p, 0, &f);
}

static void step(struct contraction *p, kval term)
{
    struct fragment f;
    fetch(p, term, &f);
    multiply_fragment(p, &f);
}

static void multiply_counted(struct contraction *p)
{
    const struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    kval zero = kir_int(k, 0);
    struct steps s = steps_of(p);
    if (l->ahead) fetch_to(p, term_of(p, &s, zero, 0), 0);
    s.first = s.many < s.n ? kir_loop(k, KL_SERIAL, zero, kir_int(k, s.n * s.count), s.many * s.count) : zero;
    for (i64 i = 0; i < s.many; i++)
        if (l->ahead) step_ahead(p, &s, i);
        else step(p, term_of(p, &s, s.first, i));
    if (s.many < s.n) kir_end(k);
}

static void multiply(struct contraction *p)
{
    struct fma_leaf *l = p->own;
    struct fragment f;
    if (!p->address->loops) {
        multiply_counted(p);
        return;
    }
    l->term = (struct contract_term){.row = l->row0, .col = l->col0};
    u32 n = p->address->loops(p, p->now, l->unroll, &l->term);
    read_rows(p, &f);
    for (i64 u = 0; u < l->deep; u++) {
        read_cols(p, u, &f);
        multiply_term(p, u, &f);
    }
    for (u32 i = 0; i < n; i++) kir_end(p->m->k);
}

/* Storing. */

/* Address of the sums of a slice: [row][column]. */
static kval slice_sum_at(const struct contraction *p, kval slice, kval row, kval col, u32 lanes)
{
    struct kir *k = p->m->k;
    kval at = kir_add(k, kir_mul_i(k, kir_add(k, kir_mul_i(k, slice, p->s.bm), row), p->s.bn), col);
    return kir_ramp(k, at, 1, lanes);
}

/* All slices store their sums, then all threads add them up, a share of the block each. */
static void store_slices(struct contraction *p)
{
    const struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    struct wg_share all = {&p->g, p->s.bm, p->s.bn, l->store_lanes, l->store_by_rows};
    kval array = p->n_out ? p->out : p->array;
    kir_barrier(k);
    for (i64 i = 0; i < l->row.n; i++)
        for (i64 j = 0; j < vectors(l); j++)
            kir_store(k, array, slice_sum_at(p, l->slice, row_at(p, i), col_at(p, j), l->lanes), sum_of(p, i, j));
    kir_barrier(k);
    for (i64 i = 0; i < wg_share_turns(&all); i++) {
        kval row, col, sum = 0;
        bool some = wg_share_at(&all, i, &row, &col);
        for (i64 u = 0; u < l->split_k_local; u++) {
            kval one = kir_load(k, array, slice_sum_at(p, kir_int(k, u), row, col, all.lanes));
            sum = u ? kir_add(k, sum, one) : one;
        }
        contract_store(p, row, col, sum);
        if (some) kir_end(k);
    }
}

static void store(struct contraction *p)
{
    const struct fma_leaf *l = p->own;
    if (slices_of(l) > 1) {
        store_slices(p);
        return;
    }
    for (i64 j = 0; j < vectors(l); j++)
        for (i64 i = 0; i < l->row.n; i++) contract_store(p, row_at(p, i), col_at(p, j), sum_of(p, i, j));
}

const struct leaf leaf_fma = {open, multiply, store};

i64 fma_vectors(const struct fma_leaf *l) { return vectors(l); }
