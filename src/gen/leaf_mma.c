// SPDX-License-Identifier: Apache-2.0
//
// leaf_mma: the leaf of matrix instructions. A unit, a subgroup or several that work as one, holds a tile of fragments of sums in its registers
// and nothing else of the operands for longer than a step. Fragments are loaded from shared memory by rows or by columns, as the staged operand lies.
//
// Results pass through shared memory, where every thread gets vectors of them for the epilogue: with mma a row of fragments of all units at a time;
// with wgmma a fragment of some units at a time, which all threads store.
#include "gen/leaf.h"

enum { PAD = 8 /* elements behind a line of results */, VECTOR = 4 };

/* The tile. */

void mma_shape(struct mma_tile *t, enum dtype operand, enum dtype sum, i64 m, i64 n, i64 k)
{
    t->a = (struct kir_frag){KR_A, operand, (u16)m, (u16)k};
    t->b = (struct kir_frag){KR_B, operand, (u16)k, (u16)n};
    t->c = (struct kir_frag){KR_ACC, sum, (u16)m, (u16)n};
}

static kval slot(const struct mma_tile *t, struct kir *k, i64 i, i64 j) { return kir_int(k, i * t->wn + j); }

void mma_open(struct mma_tile *t, struct kir *k)
{
    t->acc = kir_alloc_frag(k, &t->c, kir_int(k, t->wm * t->wn));
    mma_clear(t, k);
}

void mma_clear(const struct mma_tile *t, struct kir *k)
{
    kval zero = kir_frag_fill(k, &t->c, kir_const_f(k, t->c.dtype, 1, 0));
    for (i64 i = 0; i < t->wm * t->wn; i++) kir_store(k, t->acc, kir_int(k, i), zero);
}

kval mma_get(const struct mma_tile *t, struct kir *k, i64 i, i64 j) { return kir_load(k, t->acc, slot(t, k, i, j)); }

void mma_set(const struct mma_tile *t, struct kir *k, i64 i, i64 j, kval sums) { kir_store(k, t->acc, slot(t, k, i, j), sums); }

bool mma_is_listed(const struct mma_tile *t, const struct caps *c)
{
    struct str list = str_of(c->matrix);
    struct caps_matrix x;
    while (caps_matrix_next(&list, &x))
        if (x.m == t->c.rows && x.n == t->c.cols && x.k == t->a.cols && x.a == t->a.dtype && x.b == t->b.dtype && x.c == t->c.dtype && x.d == t->c.dtype)
            return true;
    return false;
}

/* Adds a column of fragments' products. */
static void multiply_column(const struct mma_tile *t, struct kir *k, const kval *a, kval b, i64 j)
{
    for (i64 i = 0; i < t->wm; i++) mma_set(t, k, i, j, kir_frag_mma(k, a[i], b, mma_get(t, k, i, j)));
}

struct step { kval a[MMA_MAX], b[MMA_MAX]; };

static void load_rows(const struct mma_tile *t, const struct mma_source *s, i64 term, kval *a)
{
    for (i64 i = 0; i < t->wm; i++) a[i] = s->a(s->user, term, i);
}

static struct step load_step(const struct mma_tile *t, const struct mma_source *s, i64 term)
{
    struct step x;
    load_rows(t, s, term, x.a);
    for (i64 j = 0; j < t->wn; j++) x.b[j] = s->b(s->user, term, j);
    return x;
}

void mma_multiply(const struct mma_tile *t, struct kir *k, const struct mma_source *s, i64 terms, bool ahead)
{
    assert(t->wm <= MMA_MAX && t->wn <= MMA_MAX && terms % t->a.cols == 0);
    if (ahead) {
        /* The order is kept: loads do not go down across the stores of sums. */
        struct step now = load_step(t, s, 0), next = now;
        for (i64 term = 0; term < terms; term += t->a.cols) {
            if (term + t->a.cols < terms) next = load_step(t, s, term + t->a.cols);
            for (i64 j = 0; j < t->wn; j++) multiply_column(t, k, now.a, now.b[j], j);
            now = next;
        }
        return;
    }
    for (i64 term = 0; term < terms; term += t->a.cols) {
        kval a[MMA_MAX];
        load_rows(t, s, term, a);
        for (i64 j = 0; j < t->wn; j++) multiply_column(t, k, a, s->b(s->user, term, j), j);
    }
}

/* In a contraction. */

static void open(struct contraction *p)
{
    struct mma_leaf *l = p->own;
    struct kir *k = p->m->k;
    l->unit = kir_div_i(k, p->g.sg, l->subgroups);
    kval row = l->rows_first ? kir_mod_i(k, l->unit, l->gm) : kir_div_i(k, l->unit, l->gn);
    kval col = l->rows_first ? kir_div_i(k, l->unit, l->gm) : kir_mod_i(k, l->unit, l->gn);
    l->row = kir_mul_i(k, row, l->t.wm * l->t.c.rows);
    l->col = kir_mul_i(k, col, l->t.wn * l->t.c.cols);
    l->term = (struct contract_term){.at = kir_int(k, 0)};
    mma_open(&l->t, k);
}

/* A fragment of an operand, by columns where its own rows are the inner ones in the staged array. */
static kval load(const struct contraction *p, struct operand *s, const struct kir_frag *f, i64 term, kval i)
{
    struct kir *k = p->m->k;
    bool is_a = s == &p->a, terms_inside = s->term_step == 1;
    bool is_long = p->st.panel && !terms_inside && (is_a ? f->rows : f->cols) > p->st.panel;
    i64 pitch = p->st.panel ? p->st.panel : terms_inside ? s->step : s->term_step;
    const struct mma_leaf *l = p->own;
    struct contract_term t = l->term;
    t.at = kir_add_i(k, t.at, term);
    struct kir_frag_place at = {.array = s->array,
                                .at = s->at(s, &t, i),
                                .pitch = kir_int(k, pitch),
                                .panels = is_long ? kir_int(k, s->panel_step) : 0,
                                .order = terms_inside != is_a ? KF_COLUMNS : KF_ROWS};
    return kir_frag_load_at(k, f, &at);
}

static kval load_a(void *user, i64 term, i64 i)
{
    struct contraction *p = user;
    const struct mma_leaf *l = p->own;
    return load(p, &p->a, &l->t.a, term, kir_add_i(p->m->k, l->row, i * l->t.c.rows));
}

kval mma_right(void *user, i64 term, i64 j)
{
    struct contraction *p = user;
    const struct mma_leaf *l = p->own;
    return load(p, &p->b, &l->t.b, term, kir_add_i(p->m->k, l->col, j * l->t.c.cols));
}

static void multiply(struct contraction *p)
{
    struct mma_leaf *l = p->own;
    struct mma_source s = {p, load_a, mma_right};
    u32 n = p->address->loops ? p->address->loops(p, p->now, 0, &l->term) : 0;
    mma_multiply(&l->t, p->m->k, &s, n ? l->t.a.cols : p->s.bk, l->ahead);
    for (u32 i = 0; i < n; i++) kir_end(p->m->k);
}

/* Storing, mma: row i of each subgroup's fragments stands in its part of contraction.out. */

static i64 out_line(const struct mma_leaf *l) { return l->t.wn * l->t.c.cols + PAD; }

static i64 out_part(const struct mma_leaf *l) { return l->t.c.rows * out_line(l); }

i64 mma_out_size(const struct mma_leaf *l) { return l->gm * l->gn * out_part(l); }

static void store_row(struct contraction *p, kval at, i64 i)
{
    const struct mma_leaf *l = p->own;
    struct kir *k = p->m->k;
    u32 lanes = gen_static(p->m->g, p->x.n, 0) == 1 ? 1 : VECTOR;
    i64 per_line = l->t.wn * l->t.c.cols / lanes, vectors = l->t.c.rows * per_line, threads = p->g.subgroup;
    for (i64 u = 0; u < vectors; u += threads) {
        kval v = kir_add_i(k, p->g.lane, u);
        bool some = u + threads > vectors;
        if (some) kir_if(k, kir_lt(k, v, kir_int(k, vectors)));
        kval row = kir_div_i(k, v, per_line), col = kir_mul_i(k, kir_mod_i(k, v, per_line), lanes);
        kval from = kir_add(k, at, kir_add(k, kir_mul_i(k, row, out_line(l)), col));
        kval val = kir_load(k, p->out, kir_ramp(k, from, 1, lanes));
        row = kir_add_i(k, kir_add(k, l->row, row), i * l->t.c.rows);
        contract_store(p, row, kir_add(k, l->col, col), kir_cast(k, p->type, val));
        if (some) kir_end(k);
    }
}

static void store_subgroups(struct contraction *p)
{
    const struct mma_leaf *l = p->own;
    struct kir *k = p->m->k;
    kval pitch = kir_int(k, out_line(l)), at = kir_mul_i(k, p->g.sg, out_part(l));
    for (i64 i = 0; i < l->t.wm; i++) {
        if (i) kir_barrier(k);
        for (i64 j = 0; j < l->t.wn; j++)
            kir_frag_store(k, p->out, kir_add_i(k, at, j * l->t.c.cols), mma_get(&l->t, k, i, j), pitch, false);
        kir_barrier(k);
        store_row(p, at, i);
    }
}

const struct leaf leaf_mma = {open, multiply, store_subgroups};

/* Storing, wgmma: a fragment of a unit at a time, of as many units at once as there is room for; all threads take part. */

static i64 unit_line(const struct mma_leaf *l) { return l->t.c.cols + PAD; }

i64 wgmma_out_size(const struct mma_leaf *l) { return l->t.c.rows * unit_line(l); }

bool wgmma_stores_whole(const struct mma_leaf *l, i64 threads)
{
    i64 per_line = l->t.c.cols / VECTOR;
    return threads % per_line == 0 && l->t.c.rows % (threads / per_line) == 0;
}

/* The threads that share a fragment: its thread t stores vectors of rows. unit: whose it is. */
static void store_fragment(struct contraction *p, kval at, kval unit, kval t, i64 threads, i64 i, i64 j)
{
    const struct mma_leaf *l = p->own;
    struct kir *k = p->m->k;
    i64 m = l->t.c.rows, n = l->t.c.cols, per_line = n / VECTOR, rows = threads / per_line;
    kval row = kir_div_i(k, t, per_line), col = kir_mul_i(k, kir_mod_i(k, t, per_line), VECTOR);
    bool some = rows > m;
    if (some) kir_if(k, kir_lt(k, row, kir_int(k, m)));
    at = kir_add(k, at, kir_add(k, kir_mul_i(k, row, unit_line(l)), col));
    row = kir_add(k, row, kir_mul_i(k, kir_div_i(k, unit, l->gn), l->t.wm * m));
    col = kir_add(k, col, kir_mul_i(k, kir_mod_i(k, unit, l->gn), l->t.wn * n));
    for (i64 r = 0; r < m; r += rows) {
        kval val = kir_load(k, p->out, kir_ramp(k, kir_add_i(k, at, r * unit_line(l)), 1, VECTOR));
        contract_store(p, kir_add_i(k, row, i * m + r), kir_add_i(k, col, j * n), kir_cast(k, p->type, val));
    }
    if (some) kir_end(k);
}

/* Fragments (i, j) of the units from `first` on. */
static void store_some(struct contraction *p, i64 first, i64 i, i64 j)
{
    const struct mma_leaf *l = p->own;
    struct kir *k = p->m->k;
    i64 part = wgmma_out_size(l), threads = p->g.n / l->at_once;
    bool is_some = l->at_once < l->gm * l->gn;
    kir_barrier(k);
    if (is_some) kir_if(k, kir_bin(k, KI_EQ, kir_div_i(k, l->unit, l->at_once), kir_int(k, first / l->at_once)));
    kir_frag_store(k, p->out, kir_mul_i(k, kir_mod_i(k, l->unit, l->at_once), part), mma_get(&l->t, k, i, j), kir_int(k, unit_line(l)), false);
    if (is_some) kir_end(k);
    kir_barrier(k);
    kval own = kir_div_i(k, p->g.t, threads);
    store_fragment(p, kir_mul_i(k, own, part), kir_add_i(k, own, first), kir_mod_i(k, p->g.t, threads), threads, i, j);
}

static void store_units(struct contraction *p)
{
    const struct mma_leaf *l = p->own;
    struct kir *k = p->m->k;
    p->out = kir_alloc(k, KS_SHARED, l->t.c.dtype, 1, kir_int(k, l->at_once * wgmma_out_size(l)));
    for (i64 i = 0; i < l->t.wm; i++)
        for (i64 j = 0; j < l->t.wn; j++)
            for (i64 first = 0; first < l->gm * l->gn; first += l->at_once) store_some(p, first, i, j);
}

const struct leaf leaf_wgmma = {open, multiply, store_units};
