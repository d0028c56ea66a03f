// SPDX-License-Identifier: Apache-2.0
//
// search: schedules of least cost, and the family's schedule for an empty database. Small products of values are gone through; of trees (worth)
// what may be worth trying; of large products a sample is taken, spread evenly, and from its best points each schedule is improved by one
// parameter, or two neighbouring ones, at a time (iterated coordinate descent with several starts).
#include "gen/gen.h"

static i64 gcd(i64 x, i64 y)
{
    while (y) {
        i64 r = x % y;
        x = y, y = r;
    }
    return x;
}

/* In the mixed radix of the parameters' numbers of values, the first one's digit is the lowest. */
static void to_digits(const struct gen *g, i64 x, u32 digit[MAX_SCHED])
{
    for (u32 i = 0; i < g->n_param; x /= g->param[i++].n) digit[i] = (u32)(x % g->param[i].n);
}

struct gen_walk gen_walk_start(const struct gen *g, bool scattered, u64 seed)
{
    struct gen_walk w = {.gen = g, .total = 1};
    i64 step = 1;
    for (u32 i = 0; i < g->n_param; i++) w.total *= g->param[i].n;
    assert(w.total > 0 && w.total < INT64_MAX / 2);
    if (scattered) {
        step = i64_max((i64)((double)w.total * 0.6180339887498949), 1);
        while (gcd(w.total, step) != 1) step++;
        to_digits(g, (i64)(seed % (u64)w.total), w.at);
    }
    to_digits(g, step, w.step);
    return w;
}

struct sched gen_walk_next(struct gen_walk *w)
{
    struct sched s = {0};
    u32 carry = 0;
    for (u32 i = 0; i < w->gen->n_param; i++) {
        const struct gen_param *p = &w->gen->param[i];
        s.v[i] = p->values[w->at[i]];
        u32 sum = w->at[i] + w->step[i] + carry;
        carry = sum >= (u32)p->n;
        w->at[i] = carry ? sum - (u32)p->n : sum;
    }
    return s;
}

void gen_keep(double cost, const struct sched *s, double *best, struct sched *out)
{
    if (cost > 0 && (*best == 0 || cost < *best)) *best = cost, *out = *s;
}

/* All that begin with the first n values of v. */
static void go_down(const struct gen_search *q, gen_may_begin *may, struct sched *v, u32 n, double *best, struct sched *out)
{
    if (n == q->n) {
        gen_keep(q->cost(q->user, v), v, best, out);
        return;
    }
    for (u32 i = 0; i < q->param[n].n; i++) {
        v->v[n] = q->param[n].values[i];
        if (may(q->user, v, n + 1)) go_down(q, may, v, n + 1, best, out);
        v->v[n] = 0;
    }
}

bool gen_best_below(const struct gen_search *q, gen_may_begin *may, struct sched *s)
{
    struct sched v = *s;
    double best = 0;
    go_down(q, may, &v, q->first, &best, s);
    return best > 0;
}

bool gen_best(const struct gen_search *q, struct sched *s)
{
    u32 at[MAX_SCHED] = {0}, i;
    struct sched v = *s;
    double best = 0;
    do {
        for (i = q->first; i < q->n; i++) v.v[i] = q->param[i].values[at[i]];
        gen_keep(q->cost(q->user, &v), &v, &best, s);
        for (i = q->first; i < q->n && ++at[i] == q->param[i].n; i++) at[i] = 0;
    } while (i < q->n);
    return best > 0;
}

/* One pass over a schedule's changes, each of which stays if it is better. */
typedef void improve(const struct gen_search *q, struct sched *s, double *best);

static void repeat(const struct gen_search *q, improve *pass, struct sched *s, double *best)
{
    double before;
    do before = *best, pass(q, s, best);
    while (*best < before);
}

static void improve_each(const struct gen_search *q, struct sched *s, double *best)
{
    for (u32 i = q->first; i < q->n; i++)
        for (u32 j = 0; j < q->param[i].n; j++) {
            struct sched v = *s;
            v.v[i] = q->param[i].values[j];
            gen_keep(q->cost(q->user, &v), &v, best, s);
        }
}

/* All values of parameters i and j. */
static void improve_pair(const struct gen_search *q, u32 i, u32 j, struct sched *s, double *best)
{
    struct sched v = *s;
    for (u32 a = 0; a < q->param[i].n; a++)
        for (u32 b = 0; b < q->param[j].n; b++) {
            v.v[i] = q->param[i].values[a], v.v[j] = q->param[j].values[b];
            gen_keep(q->cost(q->user, &v), &v, best, s);
        }
}

static void improve_pairs(const struct gen_search *q, struct sched *s, double *best)
{
    for (u32 i = q->first; i < q->n; i++)
        for (u32 j = q->first; j < i; j++) improve_pair(q, i, j, s, best);
}

static void descend(const struct gen_search *q, improve *pass, struct sched *s)
{
    double best = q->cost(q->user, s);
    assert(best > 0);
    repeat(q, pass, s, &best);
}

void gen_descend(const struct gen_search *q, struct sched *s) { descend(q, improve_each, s); }

void gen_descend_pairs(const struct gen_search *q, struct sched *s) { descend(q, improve_pairs, s); }

/* Choice. */

static double leaf_cost(const void *problem, const struct sched *s) { return gen_problem_seconds(problem, s); }

static bool may_begin(const void *problem, const struct sched *s, u32 n)
{
    const struct gen_problem *p = problem;
    return p->gen->worth(p, s, n);
}

enum { STARTS = 12, LEGAL = 256, LOOKS = 1 << 16 }; /* of a sample: schedules that are improved, legal ones, all */

struct starts { struct { double cost; struct sched s; } v[STARTS]; u32 n; }; /* cheapest first */

static void keep_start(struct starts *x, double cost, const struct sched *s)
{
    u32 i = x->n < STARTS ? x->n++ : STARTS - 1;
    if (i == STARTS - 1 && x->n == STARTS && x->v[i].cost > 0 && x->v[i].cost <= cost) return;
    for (; i > 0 && x->v[i - 1].cost > cost; i--) x->v[i] = x->v[i - 1];
    x->v[i].cost = cost, x->v[i].s = *s;
}

static bool choose_from_sample(const struct gen_search *q, const struct gen *g, struct sched *out)
{
    struct starts x = {0};
    struct gen_walk w = gen_walk_start(g, true, 0);
    double best = 0;
    for (i64 i = 0, n = 0; i < w.total && n < LEGAL && (i < LOOKS || n == 0); i++) {
        const struct sched s = gen_walk_next(&w);
        double cost = q->cost(q->user, &s);
        if (cost > 0) keep_start(&x, cost, &s), n++;
    }
    for (u32 i = 0; i < x.n; i++) {
        double cost = x.v[i].cost, before;
        do {
            repeat(q, improve_each, &x.v[i].s, &cost);
            before = cost;
            for (u32 p = q->first; p + 1 < q->n; p++) improve_pair(q, p, p + 1, &x.v[i].s, &cost);
        } while (cost < before);
        gen_keep(cost, &x.v[i].s, &best, out);
    }
    return best > 0;
}

bool gen_choose_by(const struct gen_problem *p, double (*cost)(const void *problem, const struct sched *s), struct sched *out)
{
    enum { FEW = 1 << 15 };
    const struct gen *g = p->gen;
    const struct gen_search q = {g->param, 0, g->n_param, cost, p};
    *out = (struct sched){0};
    if (g->worth) return gen_best_below(&q, may_begin, out);
    return gen_walk_start(g, false, 0).total <= FEW ? gen_best(&q, out) : choose_from_sample(&q, g, out);
}

bool gen_choose(const struct gen_problem *p, struct sched *out) { return gen_choose_by(p, p->gen->worth ? leaf_cost : gen_cost, out); }

void gen_try(const struct gen_problem *p, const struct sched *s, double *best, struct sched *out) { gen_keep(gen_cost(p, s), s, best, out); }

void gen_problem_initial(const struct gen_problem *p, struct sched *out)
{
    *out = (struct sched){0};
    if (p->gen->initial) {
        p->gen->initial(p, out);
        return;
    }
    bool found = gen_choose(p, out);
    assert(found);
    (void)found;
}
