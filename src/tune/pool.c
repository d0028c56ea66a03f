// SPDX-License-Identifier: Apache-2.0
//
// The pool of candidates that a search chooses from. A space may hold millions of schedules, and
// that of one family thousands of times as many as another's. Each family that matches the task
// therefore gets an equal share of a pool of fixed size: one half for its best predicted schedules,
// the other half for a uniform sample. The same task and seed yield the same pool.
#include "tune/search.h"

#include <stdlib.h>
#include <string.h>

enum {
    POOL_MAX = 1024,    /* candidates of all families together */
    MAX_SAMPLED = 400000, /* schedules per family, legal or not, that can be enumerated in a fraction of a second */
    MAX_FAMILIES = 64
};

/* One family's share of the pool during enumeration. */
struct family {
    struct gen_problem problem;
    struct trials best; /* predicted best, truncated to POOL_MAX when twice as many are present */
    struct trials fair; /* a uniform sample of all */
    u64 n;                /* schedules enumerated so far */
};

struct gather {
    const struct task_search *ts;
    const struct caps *caps;
    struct arena *a;
    struct rng rng;
    struct family family[MAX_FAMILIES];
    u32 n;
};

/* Ties are broken, so that the order is independent of the sorting algorithm. */
static int by_prediction(const void *a, const void *b)
{
    const struct trial *x = a, *y = b;
    if (x->predicted != y->predicted) return x->predicted < y->predicted ? -1 : 1;
    int families = strcmp(x->cand.gen->name, y->cand.gen->name);
    for (int i = 0; i < MAX_SCHED && !families; i++)
        if (x->cand.sched.v[i] != y->cand.sched.v[i])
            return x->cand.sched.v[i] < y->cand.sched.v[i] ? -1 : 1;
    return families;
}

static void sort_by_prediction(struct trials *e)
{
    if (e->n) qsort(e->v, e->n, sizeof *e->v, by_prediction);
}

static struct family *family_of(struct gather *g, const struct gen *gen)
{
    u32 i = 0;
    while (i < g->n && g->family[i].problem.gen != gen) i++;
    if (i == MAX_FAMILIES) return NULL;
    if (i < g->n) return &g->family[i];
    struct family *f = &g->family[g->n++];
    *f = (struct family){0};
    bool ok = gen_problem_open(&f->problem, gen, g->ts->t->task, g->caps, g->ts->t->var);
    assert(ok);
    (void)ok;
    return f;
}

/* Reservoir sampling (Knuth, The Art of Computer Programming 2, section 3.4.2, algorithm R). */
static void sample_one(struct gather *g, struct family *f, const struct trial *x)
{
    i64 at = rng_range(&g->rng, 0, (i64)f->n++);
    if (f->fair.n < POOL_MAX) {
        struct trial *end = arr_push(g->a, &f->fair);
        *end = f->fair.v[at];
        f->fair.v[at] = *x;
    } else if (at < POOL_MAX) f->fair.v[at] = *x;
}

static bool gather_one(void *user, const struct candidate *cand)
{
    struct gather *g = user;
    struct family *f = family_of(g, cand->gen);
    if (!f) return true;
    struct trial x = {.cand = *cand, .predicted = gen_problem_seconds(&f->problem, &cand->sched)};
    sample_one(g, f, &x);
    *arr_push(g->a, &f->best) = x;
    if (f->best.n < 2 * POOL_MAX) return true;
    sort_by_prediction(&f->best);
    f->best.n = POOL_MAX;
    return true;
}

/* Every family gets the same share: half of it its best predicted, half a uniform sample. */
void task_search_fill_pool(struct task_search *ts, const struct caps *caps, u64 seed, struct arena *a)
{
    struct arena tmp = {0};
    struct gather g = {.ts = ts, .caps = caps, .a = &tmp, .rng = rng_seed(seed)};
    struct trials all = {0};
    gen_scatter(ts->t->task, caps, MAX_SAMPLED, seed, gather_one, &g);
    for (u32 i = 0; i < g.n; i++) {
        struct family *f = &g.family[i];
        u32 half = POOL_MAX / g.n / 2;
        gen_problem_close(&f->problem);
        sort_by_prediction(&f->best);
        for (u32 k = 0; k < f->best.n && k < half; k++) *arr_push(&tmp, &all) = f->best.v[k];
        for (u32 k = 0; k < f->fair.n && k < half; k++) *arr_push(&tmp, &all) = f->fair.v[k];
    }
    sort_by_prediction(&all);
    for (u32 i = 0; i < all.n; i++)
        if (i == 0 || by_prediction(&all.v[i - 1], &all.v[i]))
            *(arr_push(a, &ts->pool)) = all.v[i];
    arena_release(&tmp);
}

bool task_search_has_seen(const struct task_search *ts, const struct candidate *cand)
{
    struct buf b = {0};
    candidate_print(&b, cand);
    bool seen = map_get(&ts->seen, buf_view(&b)) != NULL;
    buf_release(&b);
    return seen;
}

bool task_search_mark(struct task_search *ts, const struct candidate *cand)
{
    struct buf b = {0};
    candidate_print(&b, cand);
    bool is_new = !map_get(&ts->seen, buf_view(&b));
    if (is_new) map_put(&ts->seen, buf_view(&b), 1);
    buf_release(&b);
    return is_new;
}
