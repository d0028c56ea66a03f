// SPDX-License-Identifier: Apache-2.0
//
// Which candidate to try next. The generators' predictions are corrected by a model fitted to what was measured, of this task and of
// the nearest others (model.c); the lowest of predicted time less doubt comes first, of the pool (pool.c) and of offspring of the best
// measured: mutations (one or two parameters moved to neighbouring values) and crossings of two of one family. A batch is chosen one
// by one: what is like a candidate already in it is in less doubt. The best schedules of near tasks (near.c) are tried early. Seeded;
// the same database and seed propose the same.
#include "tune/search.h"

#include <math.h>
#include <stdlib.h>

enum {
    MAX_ROWS = 512,     /* of the model: a fraction of a trial to fit */
    OWN_ROWS = 288,
    NEAR_TASKS = 6,
    ROWS_OF_EACH = 36,  /* of a near task */
    EARLY = 12,         /* trials; every second is a schedule of a near task */
    PARENTS = 6,
    N_MUTANTS = 40,
    N_CROSSED = 24,
    FRINGE = 48,        /* candidates whose doubt is asked for */
    DARK = 16           /* and so many taken from anywhere */
};
static const double boldness = 0.7; /* standard deviations */
static const double failed_ratio = 4; /* what failed counts as so many times slower than predicted */

double contest_typical(const struct contest *c)
{
    struct arena tmp = {0};
    double *v = arena_array(&tmp, double, c->known.n + 1);
    for (u32 i = 0; i < c->known.n; i++) v[i] = c->known.v[i].reference;
    double typical = tune_typical(v, c->known.n);
    arena_release(&tmp);
    return typical;
}

bool contest_trusts(const struct entrant *x, double typical)
{
    return x->status == TRIAL_OK && x->n > 0 && (x->n_final > 0 || tune_is_typical(x->reference, typical));
}

/* Who looked fast while the machine did something else is no yardstick for others. */
void contest_update_best(struct contest *c)
{
    i32 was = c->best_at;
    double typical = c->typical = contest_typical(c);
    c->best_at = -1;
    for (u32 i = 0; i < c->known.n; i++) {
        const struct entrant *x = &c->known.v[i];
        if (!contest_trusts(x, typical)) continue;
        double s = contest_seconds(c, x);
        if (c->best_at < 0 || s < c->best)
            c->best = s, c->best_at = (i32)i, c->best_ratio = x->ratio;
    }
    c->n_idle = c->best_at == was ? c->n_idle + 1 : 0;
}

void contest_consider(struct contest *c, struct entrant *x)
{
    enum { MANY = 2048, EVERY = 256 };
    if (c->known.n < MANY || c->known.n % EVERY == 0) {
        contest_update_best(c);
        return;
    }
    bool is_best = contest_trusts(x, c->typical) && (c->best_at < 0 || contest_seconds(c, x) < c->best);
    if (is_best) c->best = contest_seconds(c, x), c->best_at = (i32)(x - c->known.v), c->best_ratio = x->ratio;
    c->n_idle = is_best ? 0 : c->n_idle + 1;
}

/* rows of the model */

static bool learn_facts(struct entrant *x, const struct contest *c, const struct search *s)
{
    if (x->facts == FACTS_NOT_YET) {
        if (x->predicted <= 0) x->predicted = gen_predict(&x->cand, c->t->task, s->caps, c->t->var);
        bool ok = x->predicted > 0 && facts_of(x->fact, &x->cand, c->t->task, s->caps, c->t->var, x->predicted);
        x->facts = ok ? FACTS_KNOWN : FACTS_NONE;
    }
    return x->facts == FACTS_KNOWN;
}

static bool residual(const struct contest *c, const struct entrant *x, double *y)
{
    bool failed = x->status > TRIAL_SLOW;
    if (x->n == 0 && !failed) return false;
    *y = failed ? log(failed_ratio) : log(contest_seconds(c, x) / x->predicted);
    return isfinite(*y);
}

struct row { struct entrant *x; double y; };

static int by_time(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    double p = x->y + log(x->x->predicted), q = y->y + log(y->x->predicted);
    return p != q ? (p > q) - (p < q) : (x->x > y->x) - (x->x < y->x);
}

/* A task's rows, less their median, which it returns; of many, the best third and every so manieth of the rest. */
static double add_rows(struct model *m, const struct contest *c, const struct search *s, u32 task, double near, u32 max)
{
    struct arena a = {0};
    struct row *row = arena_array(&a, struct row, c->known.n + 1);
    double *y = arena_array(&a, double, c->known.n + 1);
    u32 n = 0;
    for (u32 i = 0; i < c->known.n; i++) {
        struct entrant *x = &c->known.v[i];
        if (learn_facts(x, c, s) && residual(c, x, &row[n].y)) row[n].x = x, y[n] = row[n].y, n++;
    }
    double median = stats_of(y, n).median;
    u32 best = n > max ? max / 3 : n, rest = max - best;
    if (n) qsort(row, n, sizeof *row, by_time);
    for (u32 k = 0; k < n && k < max; k++) {
        const struct row *r = &row[k < best ? k : best + (u32)((u64)(k - best) * (n - best) / rest)];
        struct point p;
        point_of(&p, &r->x->cand, r->x->fact, task, near);
        model_add(m, &p, r->y - median);
    }
    arena_release(&a);
    return median;
}

static void fit(struct model *m, const struct contest *c, const struct search *s)
{
    struct near near[NEAR_TASKS];
    u32 n = nearest(c, s, near, NEAR_TASKS);
    m->level = add_rows(m, c, s, 0, 1, OWN_ROWS);
    for (u32 k = 0; k < n; k++) add_rows(m, near[k].c, s, k + 1, near[k].near, ROWS_OF_EACH);
    model_fit(m);
}

/* offspring */

static void cross(struct candidate *c, const struct candidate *other, struct rng *r)
{
    for (u32 i = 0; i < c->gen->n_param; i++)
        if (rng_u64(r) & 1) c->sched.v[i] = other->sched.v[i];
}

/* The best measured, best first. */
static u32 parents(const struct contest *c, const struct candidate **out)
{
    double at[PARENTS];
    u32 n = 0;
    for (u32 i = 0; i < c->known.n; i++) {
        const struct entrant *x = &c->known.v[i];
        if (x->status != TRIAL_OK || x->n == 0) continue;
        double t = contest_seconds(c, x);
        u32 k = n < PARENTS ? n++ : PARENTS;
        for (; k > 0 && at[k - 1] > t; k--)
            if (k < PARENTS) at[k] = at[k - 1], out[k] = out[k - 1];
        if (k < PARENTS) at[k] = t, out[k] = &x->cand;
    }
    return n;
}

static void add_offspring(struct entrants *e, const struct contest *c, struct search *s, struct arena *a)
{
    const struct candidate *p[PARENTS];
    i64 n = parents(c, p);
    for (u32 i = 0; i < N_MUTANTS + N_CROSSED && n > 0; i++) {
        struct candidate x = *p[rng_range(&s->rng, 0, n - 1)];
        const struct candidate *q = p[rng_range(&s->rng, 0, n - 1)];
        if (i < N_MUTANTS) candidate_move(&x, &s->rng, rng_range(&s->rng, 1, 2));
        else if (q->gen == x.gen) cross(&x, q, &s->rng);
        if (gen_repair(&x, c->t->task, s->caps)) *arr_push(a, e) = (struct entrant){.cand = x};
    }
}

/* choosing */

struct choice {
    struct entrant *x;
    struct point p;
    double log_time, doubt; /* predicted; standard deviation */
    double *v;              /* model_doubt */
};
struct choices { struct choice *v; u32 n, cap; };

static bool may_propose(const struct contest *c, const struct candidate *cand)
{
    struct buf b = {0};
    candidate_print(&b, cand);
    bool ok = !map_get(&c->seen, buf_view(&b)) && (!c->only || map_get(c->only, buf_view(&b)));
    buf_release(&b);
    return ok;
}

static void add_choices(struct choices *to, struct entrants *e, const struct contest *c, const struct search *s,
                        const struct model *m, struct arena *a)
{
    for (u32 i = 0; i < e->n; i++) {
        struct entrant *x = &e->v[i];
        if (!may_propose(c, &x->cand) || !learn_facts(x, c, s)) continue;
        struct choice k = {.x = x};
        point_of(&k.p, &x->cand, x->fact, 0, 1);
        k.log_time = log(x->predicted) + m->level + model_mean(m, &k.p);
        *arr_push(a, to) = k;
    }
}

static int by_log_time(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;
    if (x->log_time != y->log_time) return x->log_time < y->log_time ? -1 : 1;
    for (int i = 0; i < MAX_SCHED; i++)
        if (x->x->cand.sched.v[i] != y->x->cand.sched.v[i]) return x->x->cand.sched.v[i] < y->x->cand.sched.v[i] ? -1 : 1;
    return 0;
}

/* The most promising and some from anywhere come to the front, with their doubt; how many. */
static u32 ask_doubt(struct choices *k, const struct model *m, struct rng *r, u32 spare, struct arena *a)
{
    u32 n = k->n < FRINGE + DARK ? k->n : FRINGE + DARK;
    if (k->n) qsort(k->v, k->n, sizeof *k->v, by_log_time);
    for (u32 i = FRINGE; i < n; i++) {
        i64 j = rng_range(r, i, (i64)k->n - 1);
        struct choice x = k->v[i];
        k->v[i] = k->v[j], k->v[j] = x;
    }
    for (u32 i = 0; i < n; i++) {
        k->v[i].v = arena_array(a, double, m->n + spare + 1);
        k->v[i].doubt = model_doubt(m, &k->v[i].p, k->v[i].v);
    }
    return n;
}

static double promise(const struct choice *k) { return k->log_time - boldness * k->doubt; }

static const double least_hope = 0.01, most_hope = 0.5;

/* What the most promising may save. The model is not sure of itself: never nothing. */
static void update_hope(struct contest *c, const struct choice *k, u32 n)
{
    double least = INFINITY;
    for (u32 i = 0; i < n; i++) least = fmin(least, promise(&k[i]));
    if (n && c->best_at >= 0) c->hope = fmin(fmax(1 - exp(least) / c->best, least_hope), most_hope);
}

/* The batch, one by one: each that is chosen takes doubt from those like it, as if it had been
 * measured where it is expected. */
static u32 choose(struct contest *c, struct choice *k, u32 n, struct model *m, struct candidate *out, u32 max)
{
    u32 chosen = 0, first = m->n;
    while (chosen < max) {
        struct choice *best = NULL;
        for (u32 i = 0; i < n; i++)
            if (k[i].x && (!best || promise(&k[i]) < promise(best))) best = &k[i];
        if (!best) break;
        if (contest_mark(c, &best->x->cand)) {
            out[chosen++] = best->x->cand;
            u32 row = m->n;
            model_add(m, &best->p, 0);
            for (u32 i = 0; i < n && m->n > row; i++) k[i].doubt = model_doubt_less(m, &k[i].p, k[i].v);
        }
        best->x = NULL;
    }
    m->n = first;
    return chosen;
}

/* Every second of the first trials. */
static u32 propose_near(struct contest *c, const struct search *s, struct candidate *out, u32 max)
{
    struct candidate from[EARLY];
    u32 n = 0;
    if (c->n_tried >= EARLY) return 0;
    u32 n_from = transfer(c, s, from, EARLY);
    for (u32 i = 0; i < n_from && n < (max + 1) / 2; i++)
        if (may_propose(c, &from[i]) && contest_mark(c, &from[i])) out[n++] = from[i];
    return n;
}

u32 contest_propose(struct contest *c, struct search *s, struct candidate *out, u32 max)
{
    struct arena a = {0};
    struct model m;
    struct choices k = {0};
    struct entrants young = {0};
    u32 n = propose_near(c, s, out, max);
    model_init(&m, &a, MAX_ROWS + max);
    fit(&m, c, s);
    add_offspring(&young, c, s, &a);
    add_choices(&k, &c->pool, c, s, &m, &a);
    add_choices(&k, &young, c, s, &m, &a);
    u32 n_fringe = ask_doubt(&k, &m, &s->rng, max, &a);
    update_hope(c, k.v, n_fringe);
    n += choose(c, k.v, n_fringe, &m, out + n, max - n);
    c->is_done = n == 0;
    arena_release(&a);
    return n;
}
