// SPDX-License-Identifier: Apache-2.0
//
// The candidates that a search chooses from. A space may hold millions of schedules, and the space of one family thousands of times as
// many as another's: each family that can do the task gets the same share of a pool of fixed size, one half for its best predicted
// schedules, the other a fair sample of all. Seeded: the same task and seed make the same pool.
#include "tune/search.h"

#include <stdlib.h>
#include <string.h>

enum {
    POOL_MAX = 1024,    /* candidates of all families together */
    LOOKED_AT = 400000, /* schedules of a family, legal or not: what a fraction of a second allows */
    MAX_FAMILIES = 64
};

/* One family's part of the pool, while its schedules come by. */
struct family {
    struct gen_problem problem;
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
    while (i < g->n && g->family[i].problem.gen != gen) i++;
    if (i == MAX_FAMILIES) return NULL;
    if (i < g->n) return &g->family[i];
    struct family *f = &g->family[g->n++];
    *f = (struct family){0};
    bool ok = gen_problem_open(&f->problem, gen, g->c->t->task, g->caps, g->c->t->var);
    assert(ok);
    (void)ok;
    return f;
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
    struct entrant x = {.cand = *cand, .predicted = gen_problem_seconds(&f->problem, &cand->sched)};
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
        gen_problem_close(&f->problem);
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

bool contest_has_seen(const struct contest *c, const struct candidate *cand)
{
    struct buf b = {0};
    candidate_print(&b, cand);
    bool seen = map_get(&c->seen, buf_view(&b)) != NULL;
    buf_release(&b);
    return seen;
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
