// SPDX-License-Identifier: Apache-2.0
//
// wg_attention_walk: a product of a block of scores, or of the output, from one operand that is in shared memory as a whole and one that is copied there K block by
// K block, behind or ahead of the multiply-adds; and with it the scores of a block.
#include "gen/wg_attention.h"

kval wg_attention_whole_at(const struct operand *s, const struct contract_term *t, kval i)
{
    const struct contraction *p = s->p;
    struct kir *k = p->m->k;
    kval term = kir_add(k, kir_mul_i(k, p->now, p->s.bk), t->at);
    return kir_add(k, kir_mul_i(k, term, s->term_step), kir_mul_i(k, i, s->step));
}

kval wg_attention_whole_copied_at(void *user, kval row, kval col)
{
    struct operand *s = user;
    struct kir *k = s->p->m->k;
    kval term = s->along_k ? col : row, i = s->along_k ? row : col;
    return kir_add(k, kir_mul_i(k, term, s->term_step), kir_mul_i(k, i, s->step));
}

void wg_attention_multiply(struct contraction *p, kval number)
{
    p->now = number;
    p->leaf->multiply(p);
}

/* Values are those of the block of keys; of scores all K blocks are numbered. */
void wg_attention_fetch(const struct wg_attention *a, const struct wg_attention_walk *w, kval number)
{
    struct contraction *p = w->p;
    const i64 own = p->s.bk;
    bool is_scores = p == &a->first;
    p->now = number;
    p->k_block = is_scores ? number : w->block;
    if (!is_scores) p->s.bk = a->s.bc;
    wg_copy_fetch(&w->from->copy);
    p->s.bk = own;
}

/* Behind a condition, if there may be no block: what it would have lies outside of the operand. */
void wg_attention_fetch_first(const struct wg_attention *a, const struct wg_attention_walk *w, const struct attention_span *blocks)
{
    struct kir *k = a->m->k;
    if (!a->s.sp) return;
    kval zero = kir_int(k, 0), exists = kir_lt(k, blocks->from, blocks->to);
    i64 is_known = 0;
    kir_is_const(k, exists, &is_known);
    if (!is_known) kir_if(k, exists);
    wg_attention_fetch(a, w, zero);
    if (!is_known) kir_end(k);
}

static void put(const struct wg_attention_walk *w)
{
    struct kir *k = w->p->m->k;
    kir_barrier(k);
    wg_copy_put(&w->from->copy, w->array);
    kir_barrier(k);
}

/* A K block is fetched before the one in front of it is multiplied. */
static void walk_ahead(struct wg_attention *a, const struct wg_attention_walk *w, void (*behind)(struct wg_attention *a))
{
    for (i64 i = 0; i < w->n; i++) {
        put(w);
        if (i == 0 && behind) behind(a);
        if (i + 1 < w->n) wg_attention_fetch(a, w, kir_int(a->m->k, i + 1));
        wg_attention_multiply(w->p, kir_int(a->m->k, i));
    }
}

/* One after the other. */
static void walk_behind(struct wg_attention *a, const struct wg_attention_walk *w, void (*behind)(struct wg_attention *a))
{
    struct kir *k = a->m->k;
    bool is_one = w->n == 1;
    if (behind && !is_one) kir_barrier(k), behind(a);
    kval number = is_one ? kir_int(k, 0) : kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, w->n), 1);
    wg_attention_fetch(a, w, number);
    put(w);
    if (behind && is_one) behind(a);
    wg_attention_multiply(w->p, number);
    if (!is_one) kir_end(k);
}

void wg_attention_walk(struct wg_attention *a, const struct wg_attention_walk *w, void (*behind)(struct wg_attention *a))
{
    (a->s.sp ? walk_ahead : walk_behind)(a, w, behind);
}

void wg_attention_clear_scores(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const struct fma_leaf *l = &a->scores;
    if (a->s.by_units) {
        mma_clear(&a->s.units[0].t, k);
        return;
    }
    for (i64 i = 0; i < l->row.n * fma_vectors(l); i++) kir_store(k, l->acc, kir_int(k, i), kir_const_f(k, DT_F32, l->lanes, 0));
}

void wg_attention_scores(struct wg_attention *a, const struct wg_attention_walk *w)
{
    wg_attention_clear_scores(a);
    wg_attention_walk(a, w, NULL);
    if (!a->s.by_units) return;
    wg_attention_units_put_scores(a);
    kir_barrier(a->m->k);
    wg_attention_units_take_scores(a);
}
