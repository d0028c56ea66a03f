// SPDX-License-Identifier: Apache-2.0
//
// Which candidate to try next. Small spaces are tried exhaustively in the order of the model's
// prediction. Larger ones: the best predicted first, then mutations of the best measured (one or
// two parameters moved to neighbouring values), every third from the rest of the pool so that the
// model's mistakes are found. Seeded; the same database and seed propose the same.
#include "tune/search.h"

#include <stdlib.h>

enum { POOL_MAX = 1 << 15, FIRST_BY_MODEL = 12, MUTATION_TRIES = 40 };

struct gather {
    struct contest *c;
    const struct caps *caps;
    struct arena *a;
};

static bool gather_one(void *user, const struct candidate *cand)
{
    struct gather *g = user;
    *(arr_push(g->a, &g->c->pool)) = (struct entrant){
        .cand = *cand, .predicted = gen_predict(cand, g->c->t->task, g->caps, g->c->t->var)};
    return g->c->pool.n < POOL_MAX;
}

static int by_prediction(const void *a, const void *b)
{
    const struct entrant *x = a, *y = b;
    if (x->predicted != y->predicted) return x->predicted < y->predicted ? -1 : 1;
    for (int i = 0; i < MAX_SCHED; i++)
        if (x->cand.sched.v[i] != y->cand.sched.v[i])
            return x->cand.sched.v[i] < y->cand.sched.v[i] ? -1 : 1;
    return 0;
}

void contest_fill_pool(struct contest *c, const struct caps *caps, u32 max, struct arena *a)
{
    struct gather g = {c, caps, a};
    gen_each(c->t->task, caps, gather_one, &g);
    qsort(c->pool.v, c->pool.n, sizeof *c->pool.v, by_prediction);
    if (c->pool.n > max) c->pool.n = max;
}

bool contest_mark(struct contest *c, const struct candidate *cand)
{
    struct buf b = {0};
    candidate_print(&b, cand);
    bool is_new = !map_get(&c->seen, buf_view(&b));
    if (is_new) map_put(&c->seen, buf_view(&b), 1);
    buf_release(&b);
    return is_new;
}

static u32 value_index(const struct gen_param *p, i32 v)
{
    for (u32 i = 0; i < p->n; i++)
        if (p->values[i] == v) return i;
    return 0;
}

static bool mutate(const struct contest *c, const struct caps *caps, struct rng *r,
                   struct candidate *out)
{
    if (c->best_at < 0) return false;
    for (int i = 0; i < MUTATION_TRIES; i++) {
        *out = c->known.v[c->best_at].cand;
        if (out->gen->n_param == 0) return false;
        i64 n = rng_range(r, 1, 2);
        for (i64 k = 0; k < n; k++) {
            i64 p = rng_range(r, 0, out->gen->n_param - 1);
            const struct gen_param *q = &out->gen->param[p];
            i64 at = value_index(q, out->sched.v[p]) + rng_range(r, -2, 2);
            out->sched.v[p] = q->values[i64_max(0, i64_min(at, (i64)q->n - 1))];
        }
        struct buf b = {0};
        candidate_print(&b, out);
        bool seen = map_get(&c->seen, buf_view(&b)) != NULL;
        buf_release(&b);
        if (!seen && out->gen->legal(c->t->task, caps, &out->sched)) return true;
    }
    return false;
}

static bool from_pool(struct contest *c, struct candidate *out)
{
    while (c->next < c->pool.n) {
        *out = c->pool.v[c->next++].cand;
        struct buf b = {0};
        candidate_print(&b, out);
        bool seen = map_get(&c->seen, buf_view(&b)) != NULL;
        buf_release(&b);
        if (!seen) return true;
    }
    return false;
}

u32 contest_propose(struct contest *c, const struct caps *caps, struct rng *r,
                    struct candidate *out, u32 max)
{
    u32 n = 0;
    while (n < max) {
        u32 k = c->n_tried + n;
        bool by_model = k < FIRST_BY_MODEL || k % 3 == 2;
        bool got = by_model ? from_pool(c, &out[n]) || mutate(c, caps, r, &out[n])
                            : mutate(c, caps, r, &out[n]) || from_pool(c, &out[n]);
        if (!got) {
            c->is_done = n == 0;
            break;
        }
        contest_mark(c, &out[n++]);
    }
    return n;
}

/* Ratios to the base beside it, not seconds: what else the machine was doing at the time cancels
 * out. */
static double score(const struct contest *c, const struct entrant *x)
{
    return x->ratio > 0 && c->base_time.median > 0 ? x->ratio * c->base_time.median : x->median;
}

void contest_update_best(struct contest *c)
{
    i32 was = c->best_at;
    for (u32 i = 0; i < c->known.n; i++) {
        const struct entrant *x = &c->known.v[i];
        if (x->status != TRIAL_OK || x->n == 0) continue;
        double s = score(c, x);
        if (c->best_at < 0 || s < c->best)
            c->best = s, c->best_at = (i32)i, c->best_ratio = x->ratio;
    }
    c->n_idle = c->best_at == was ? c->n_idle + 1 : 0;
}
