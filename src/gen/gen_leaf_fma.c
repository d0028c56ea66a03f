// SPDX-License-Identifier: Apache-2.0
//
// gen_leaf_fma: the leaf of multiply-adds, for contractions by a workgroup on any device. Each thread has a tile of sums in registers
// (gen_group_tile.c) and adds the products of one term, or of a few, in a step. Terms of a staged operand are read from shared memory; operands
// that are not staged are read through the addressing.
//
// With several teams each has its share of the terms of a K block (split-K inside the workgroup). At the end all of them store
// their sums to SHARED: [team][bm][bn], and all threads add these up.
#include "gen/gen_leaf.h"

enum { MAX_CODE = 512 /* multiply-adds written out where the schedule does not say */, VECTOR = 4 };

static i64 teams_of(const struct fma_leaf *l) { return i64_max(1, l->teams); }

i64 fma_unroll(const struct group_tile *t, i64 terms)
{
    i64 n = 1, most = MAX_CODE / (t->row.n * t->col.n);
    while (n < terms && 2 * n <= most) n *= 2;
    return n;
}

/* Vectors of terms where they lie side by side in the left operand, else of rows. */
static void find_vectors(struct product *p, struct fma_leaf *l)
{
    bool by_terms = p->a_near || (p->a_as_is && p->a.term_step == 1);
    l->t.run = by_terms ? 1 : (u32)i64_min(VECTOR, l->t.row.near);
    l->t.deep = 1;
    if (p->a_near) l->t.deep = p->form->near_run;
    else if (by_terms) l->t.deep = i64_min(VECTOR, p->bk / teams_of(l));
}

static void open(struct product *p)
{
    struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    i64 team = p->g.n / teams_of(l); /* threads */
    l->t.g = &p->g, l->t.type = p->type, l->t.keeps = l->ahead;
    find_vectors(p, l);
    l->team = kir_div_i(k, p->g.t, team);
    group_tile_open(&l->t, kir_mod_i(k, p->g.t, team));
    product_begin_tile(p, &l->t);
    for (i64 i = 0; p->a_near && i < l->t.row.n; i++) p->form->enter_row(p, group_tile_row(&l->t, i));
}

/* Steps. */

static kval near_a(void *user, kval term, kval row)
{
    const struct product *p = user;
    const struct fma_leaf *l = p->own;
    return p->form->near_a(p, &l->term, row, (u32)l->t.deep);
}

static kval near_b(void *user, kval term, kval col)
{
    const struct product *p = user;
    const struct fma_leaf *l = p->own;
    struct product_term t = {.at = term};
    return p->form->near_b(p, &t, col, l->t.lanes);
}

static struct group_terms terms_of(struct product *p)
{
    return (struct group_terms){.a = p->a_near ? 0 : p->array,
                                .b = p->b_near ? 0 : p->array,
                                .a_at = p->a_near ? near_a : side_at,
                                .b_at = p->b_near ? near_b : side_at,
                                .a_user = p->a_near ? (void *)p : &p->a,
                                .b_user = p->b_near ? (void *)p : &p->b};
}

static void fetch(struct product *p, kval term, struct group_frag *f)
{
    struct fma_leaf *l = p->own;
    struct group_terms from = terms_of(p);
    if (p->a_near) p->form->term(p, p->now, term, &l->term);
    group_tile_fetch(&l->t, &from, term, f);
}

static void step(struct product *p, kval term)
{
    struct fma_leaf *l = p->own;
    struct group_frag f;
    fetch(p, term, &f);
    group_tile_multiply(&l->t, &f);
}

static void fetch_to(struct product *p, kval term, i64 slot)
{
    struct fma_leaf *l = p->own;
    struct group_frag f;
    fetch(p, term, &f);
    group_tile_keep(&l->t, slot, &f);
}

struct steps { /* of a team in a K block */
    i64 unit;     /* terms of all teams in a step */
    i64 count;    /* what the loop counts on from step to step: steps, or terms where the addressing takes these apart */
    i64 n, many;  /* steps; of them written out at once */
    kval first;   /* of those, as the loop counts */
};

static struct steps steps_of(const struct product *p, const struct fma_leaf *l)
{
    i64 unit = teams_of(l) * l->t.deep, n = p->bk / unit;
    return (struct steps){.unit = unit, .count = p->a_near ? unit : 1, .n = n, .many = i64_max(1, i64_min(l->unroll / l->t.deep, n))};
}

/* The team's first term of the step that is so many behind `first`. */
static kval term_of(const struct product *p, kval first, i64 step)
{
    const struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    struct steps s = steps_of(p, l);
    kval term = kir_add(k, kir_mul_i(k, first, s.unit / s.count), kir_mul_i(k, l->team, l->t.deep));
    return kir_add_i(k, term, step * s.unit);
}

/* Step i of those written out, whose fragments are kept; the next step's are fetched. The last step of the K block has none behind it:
   its own are fetched again. */
static void step_ahead(struct product *p, const struct steps *s, i64 i)
{
    struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    struct group_frag f;
    bool is_last = i + 1 == s->many, is_alone = s->many == 1 && s->n > 1;
    kval last = kir_int(k, (s->n - 1) * s->count);
    if (!is_last) fetch_to(p, term_of(p, s->first, i + 1), (i + 1) % 2);
    else if (s->many < s->n) fetch_to(p, term_of(p, kir_min(k, kir_add_i(k, s->first, (i + 1) * s->count), last), 0), 1 - i % 2);
    group_tile_kept(&l->t, i % 2, &f);
    group_tile_multiply(&l->t, &f);
    if (!is_alone) return;
    group_tile_kept(&l->t, 1, &f);
    group_tile_keep(&l->t, 0, &f);
}

static void multiply_counted(struct product *p)
{
    struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    kval zero = kir_int(k, 0);
    struct steps s = steps_of(p, l);
    if (l->ahead) fetch_to(p, term_of(p, zero, 0), 0);
    s.first = s.many < s.n ? kir_loop(k, KL_SERIAL, zero, kir_int(k, s.n * s.count), s.many * s.count) : zero;
    for (i64 i = 0; i < s.many; i++)
        if (l->ahead) step_ahead(p, &s, i);
        else step(p, term_of(p, s.first, i));
    if (s.many < s.n) kir_end(k);
}

static void multiply(struct product *p)
{
    struct fma_leaf *l = p->own;
    if (!p->form->loops) {
        multiply_counted(p);
        return;
    }
    u32 n = p->form->loops(p, p->now, l->unroll, &l->term);
    struct group_frag f;
    struct group_terms from = terms_of(p);
    group_tile_fetch(&l->t, &from, l->term.at, &f);
    group_tile_multiply(&l->t, &f);
    for (u32 i = 0; i < n; i++) kir_end(p->m->k);
}

/* Storing. */

/* Where the sums of a team begin: [row][column]. */
static kval sum_at(const struct product *p, kval team, kval row, kval col, u32 lanes)
{
    struct kir *k = p->m->k;
    kval at = kir_add(k, kir_mul_i(k, kir_add(k, kir_mul_i(k, team, p->bm), row), p->bn), col);
    return kir_ramp(k, at, 1, lanes);
}

/* All teams leave their sums, then all threads add them up, a share of the block each. */
static void store_teams(struct product *p)
{
    struct fma_leaf *l = p->own;
    struct kir *k = p->m->k;
    struct group_share all = {&p->g, p->bm, p->bn, l->store_lanes, l->store_by_rows};
    kval array = p->n_out ? p->out : p->array;
    kir_barrier(k);
    for (i64 i = 0; i < l->t.row.n; i++)
        for (i64 j = 0; j < l->t.col.n / l->t.lanes; j++)
            kir_store(k, array, sum_at(p, l->team, group_tile_row(&l->t, i), group_tile_col(&l->t, j), l->t.lanes), group_tile_get(&l->t, i, j));
    kir_barrier(k);
    for (i64 i = 0; i < group_share_turns(&all); i++) {
        kval row, col, sum = 0;
        bool some = group_share_at(&all, i, &row, &col);
        for (i64 u = 0; u < l->teams; u++) {
            kval one = kir_load(k, array, sum_at(p, kir_int(k, u), row, col, all.lanes));
            sum = u ? kir_add(k, sum, one) : one;
        }
        product_store(p, row, col, sum);
        if (some) kir_end(k);
    }
}

static void store(struct product *p)
{
    struct fma_leaf *l = p->own;
    if (teams_of(l) > 1) {
        store_teams(p);
        return;
    }
    for (i64 j = 0; j < l->t.col.n / l->t.lanes; j++)
        for (i64 i = 0; i < l->t.row.n; i++)
            product_store(p, group_tile_row(&l->t, i), group_tile_col(&l->t, j), group_tile_get(&l->t, i, j));
}

const struct leaf leaf_fma = {open, multiply, store};
