// SPDX-License-Identifier: Apache-2.0
//
// Which candidate to try next. Small spaces are tried exhaustively in the order of the model's
// prediction. Larger ones: the best predicted first, then mutations of the best measured (one or
// two parameters moved to neighbouring values), every third from the rest of the pool so that the
// model's mistakes are found. Seeded; the same database and seed propose the same.
#include "tune/search.h"

#include <stdlib.h>
#include <string.h>

enum {
    POOL_MAX = 2048,    /* candidates of all families together */
    LOOKED_AT = 400000, /* schedules of a family, legal or not: what a fraction of a second allows */
    MAX_FAMILIES = 64,
    FIRST_BY_MODEL = 12,
    MUTATION_TRIES = 40
};

struct entrants { struct entrant *v; u32 n, cap; };

/* One family's part of the pool, while its schedules come by. */
struct family {
    const struct gen *gen;
    struct entrants best; /* predicted, POOL_MAX of them and up to as many more */
    struct entrants fair; /* a uniform sample of all */
    u64 n;                /* schedules that came by */
};

struct gather {
    const struct contest *c;
    const struct caps *caps;
    struct arena *a;
    struct rng rng;
    struct family family[MAX_FAMILIES];
    u32 n;
};

/* Ties are broken, so that the order does not depend on the sorting. */
static int by_prediction(const void *a, const void *b)
{
    const struct entrant *x = a, *y = b;
    if (x->predicted != y->predicted) return x->predicted < y->predicted ? -1 : 1;
    int families = strcmp(x->cand.gen->name, y->cand.gen->name);
    for (int i = 0; i < MAX_SCHED && !families; i++)
        if (x->cand.sched.v[i] != y->cand.sched.v[i])
            return x->cand.sched.v[i] < y->cand.sched.v[i] ? -1 : 1;
    return families;
}

static void sort_by_prediction(struct entrants *e)
{
    if (e->n) qsort(e->v, e->n, sizeof *e->v, by_prediction);
}

static struct family *family_of(struct gather *g, const struct gen *gen)
{
    u32 i = 0;
    while (i < g->n && g->family[i].gen != gen) i++;
    if (i == MAX_FAMILIES) return NULL;
    if (i == g->n) g->family[g->n++] = (struct family){.gen = gen};
    return &g->family[i];
}

/* Reservoir sampling (Knuth, The Art of Computer Programming 2, section 3.4.2, algorithm R). */
static void sample_one(struct gather *g, struct family *f, const struct entrant *x)
{
    i64 at = rng_range(&g->rng, 0, (i64)f->n++);
    if (f->fair.n < POOL_MAX) {
        struct entrant *end = arr_push(g->a, &f->fair);
        *end = f->fair.v[at];
        f->fair.v[at] = *x;
    } else if (at < POOL_MAX) f->fair.v[at] = *x;
}

static bool gather_one(void *user, const struct candidate *cand)
{
    struct gather *g = user;
    struct family *f = family_of(g, cand->gen);
    if (!f) return true;
    struct entrant x = {
        .cand = *cand, .predicted = gen_predict(cand, g->c->t->task, g->caps, g->c->t->var)};
    sample_one(g, f, &x);
    *arr_push(g->a, &f->best) = x;
    if (f->best.n < 2 * POOL_MAX) return true;
    sort_by_prediction(&f->best);
    f->best.n = POOL_MAX;
    return true;
}

/* Every family has the same share: one half its best predicted, the other a fair sample. */
void contest_fill_pool(struct contest *c, const struct caps *caps, u64 seed, struct arena *a)
{
    struct arena tmp = {0};
    struct gather g = {.c = c, .caps = caps, .a = &tmp, .rng = rng_seed(seed)};
    struct entrants all = {0};
    gen_scatter(c->t->task, caps, LOOKED_AT, seed, gather_one, &g);
    for (u32 i = 0; i < g.n; i++) {
        struct family *f = &g.family[i];
        u32 half = POOL_MAX / g.n / 2;
        sort_by_prediction(&f->best);
        for (u32 k = 0; k < f->best.n && k < half; k++) *arr_push(&tmp, &all) = f->best.v[k];
        for (u32 k = 0; k < f->fair.n && k < half; k++) *arr_push(&tmp, &all) = f->fair.v[k];
    }
    sort_by_prediction(&all);
    for (u32 i = 0; i < all.n; i++)
        if (i == 0 || by_prediction(&all.v[i - 1], &all.v[i]))
            *(arr_push(a, &c->pool)) = all.v[i];
    arena_release(&tmp);
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
