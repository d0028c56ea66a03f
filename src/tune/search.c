// SPDX-License-Identifier: Apache-2.0
//
// Selection of the next candidates. A model fitted to measurements of this task and the nearest
// ones (model.c) corrects the families' predictions. The candidate with the lowest confidence bound
// (predicted time minus a multiple of the standard deviation) comes first, among the pool (pool.c)
// and the offspring of the best measured schedules: mutations (one or two parameters moved to
// neighbouring values) and crossovers of two schedules of one family. A batch is selected greedily;
// each selected candidate reduces the deviation of similar ones. The best schedules of near tasks
// (near.c) are tried early. The same database and seed yield the same proposals.
#include "tune/search.h"

#include <math.h>
#include <stdlib.h>

enum {
    MAX_ROWS = 512,     /* of the model: fitting takes a fraction of a trial */
    OWN_ROWS = 288,
    NEAR_TASKS = 6,
    ROWS_OF_EACH = 36,  /* per near task */
    EARLY = 12,         /* trials; every second one is a schedule of a near task */
    PARENTS = 6,
    N_MUTANTS = 40,
    N_CROSSED = 24,
    N_BEST = 48,        /* candidates with the best predicted time whose deviation is computed */
    N_RANDOM = 16           /* and random ones besides */
};
static const double exploration = 0.7; /* standard deviations subtracted from the mean */
static const double failed_ratio = 4; /* assumed ratio of measured to predicted time of a failed candidate */

double task_search_typical(const struct task_search *ts)
{
    struct arena tmp = {0};
    double *v = arena_array(&tmp, double, ts->known.n + 1);
    for (u32 i = 0; i < ts->known.n; i++) v[i] = ts->known.v[i].reference;
    double typical = tune_typical(v, ts->known.n);
    arena_release(&tmp);
    return typical;
}

bool trial_is_trusted(const struct trial *x, double typical)
{
    return x->status == TRIAL_OK && x->n > 0 && (x->n_final > 0 || tune_is_typical(x->reference, typical));
}

/* Candidates that looked fast while another load was running are no yardstick. */
void task_search_update_best(struct task_search *ts)
{
    i32 was = ts->best_at;
    double typical = ts->typical = task_search_typical(ts);
    ts->best_at = -1;
    for (u32 i = 0; i < ts->known.n; i++) {
        const struct trial *x = &ts->known.v[i];
        if (!trial_is_trusted(x, typical)) continue;
        double s = task_search_seconds(ts, x);
        if (ts->best_at < 0 || s < ts->best)
            ts->best = s, ts->best_at = (i32)i, ts->best_ratio = x->ratio;
    }
    ts->n_idle = ts->best_at == was ? ts->n_idle + 1 : 0;
}

void task_search_consider(struct task_search *ts, struct trial *x)
{
    enum { MANY = 2048, EVERY = 256 };
    if (ts->known.n < MANY || ts->known.n % EVERY == 0) {
        task_search_update_best(ts);
        return;
    }
    bool is_best = trial_is_trusted(x, ts->typical) && (ts->best_at < 0 || task_search_seconds(ts, x) < ts->best);
    if (is_best) ts->best = task_search_seconds(ts, x), ts->best_at = (i32)(x - ts->known.v), ts->best_ratio = x->ratio;
    ts->n_idle = is_best ? 0 : ts->n_idle + 1;
}

/* Rows of the model. */

static bool learn_facts(struct trial *x, const struct task_search *ts, const struct search *s)
{
    if (x->facts == FACTS_NOT_YET) {
        if (x->predicted <= 0) x->predicted = gen_predict(&x->cand, ts->t->task, s->caps, ts->t->var);
        bool ok = x->predicted > 0 && facts_of(x->fact, &x->cand, ts->t->task, s->caps, ts->t->var, x->predicted);
        x->facts = ok ? FACTS_KNOWN : FACTS_NONE;
    }
    return x->facts == FACTS_KNOWN;
}

static bool residual(const struct task_search *ts, const struct trial *x, double *y)
{
    bool failed = x->status > TRIAL_SLOW;
    if (x->n == 0 && !failed) return false;
    *y = failed ? log(failed_ratio) : log(task_search_seconds(ts, x) / x->predicted);
    return isfinite(*y);
}

struct row { struct trial *x; double y; };

static int by_time(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    double p = x->y + log(x->x->predicted), q = y->y + log(y->x->predicted);
    return p != q ? (p > q) - (p < q) : (x->x > y->x) - (x->x < y->x);
}

/* Adds a task's rows relative to their median, which is returned. Of too many rows, the best third
   and an even selection of the rest. */
static double add_rows(struct model *m, const struct task_search *ts, const struct search *s, u32 task, double near, u32 max)
{
    struct arena a = {0};
    struct row *row = arena_array(&a, struct row, ts->known.n + 1);
    double *y = arena_array(&a, double, ts->known.n + 1);
    u32 n = 0;
    for (u32 i = 0; i < ts->known.n; i++) {
        struct trial *x = &ts->known.v[i];
        if (learn_facts(x, ts, s) && residual(ts, x, &row[n].y)) row[n].x = x, y[n] = row[n].y, n++;
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

static void fit(struct model *m, const struct task_search *ts, const struct search *s)
{
    struct neighbour near[NEAR_TASKS];
    u32 n = nearest(ts, s, near, NEAR_TASKS);
    m->level = add_rows(m, ts, s, 0, 1, OWN_ROWS);
    for (u32 k = 0; k < n; k++) add_rows(m, near[k].ts, s, k + 1, near[k].near, ROWS_OF_EACH);
    model_fit(m);
}

/* Offspring. */

static void cross(struct candidate *c, const struct candidate *other, struct rng *r)
{
    for (u32 i = 0; i < c->gen->n_param; i++)
        if (rng_u64(r) & 1) c->sched.v[i] = other->sched.v[i];
}

/* The best measured candidates, best first. */
static u32 parents(const struct task_search *ts, const struct candidate **out)
{
    double at[PARENTS];
    u32 n = 0;
    for (u32 i = 0; i < ts->known.n; i++) {
        const struct trial *x = &ts->known.v[i];
        if (x->status != TRIAL_OK || x->n == 0) continue;
        double t = task_search_seconds(ts, x);
        u32 k = n < PARENTS ? n++ : PARENTS;
        for (; k > 0 && at[k - 1] > t; k--)
            if (k < PARENTS) at[k] = at[k - 1], out[k] = out[k - 1];
        if (k < PARENTS) at[k] = t, out[k] = &x->cand;
    }
    return n;
}

static void add_offspring(struct trials *e, const struct task_search *ts, struct search *s, struct arena *a)
{
    const struct candidate *p[PARENTS];
    i64 n = parents(ts, p);
    for (u32 i = 0; i < N_MUTANTS + N_CROSSED && n > 0; i++) {
        struct candidate x = *p[rng_range(&s->rng, 0, n - 1)];
        const struct candidate *q = p[rng_range(&s->rng, 0, n - 1)];
        if (i < N_MUTANTS) candidate_move(&x, &s->rng, rng_range(&s->rng, 1, 2));
        else if (q->gen == x.gen) cross(&x, q, &s->rng);
        if (gen_repair(&x, ts->t->task, s->caps)) *arr_push(a, e) = (struct trial){.cand = x};
    }
}

/* Selection. */

struct choice {
    struct trial *x;
    struct point p;
    double log_time, deviation; /* predicted time; standard deviation */
    double *v;              /* scratch of model_deviation */
};
struct choices { struct choice *v; u32 n, cap; };

static bool may_propose(const struct task_search *ts, const struct candidate *cand)
{
    struct buf b = {0};
    candidate_print(&b, cand);
    bool ok = !map_get(&ts->seen, buf_view(&b)) && (!ts->only || map_get(ts->only, buf_view(&b)));
    buf_release(&b);
    return ok;
}

static void add_choices(struct choices *to, struct trials *e, const struct task_search *ts, const struct search *s,
                        const struct model *m, struct arena *a)
{
    for (u32 i = 0; i < e->n; i++) {
        struct trial *x = &e->v[i];
        if (!may_propose(ts, &x->cand) || !learn_facts(x, ts, s)) continue;
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

/* Moves the best predicted and some random choices to the front and computes their deviations;
   returns their number. */
static u32 estimate_deviations(struct choices *k, const struct model *m, struct rng *r, u32 spare, struct arena *a)
{
    u32 n = k->n < N_BEST + N_RANDOM ? k->n : N_BEST + N_RANDOM;
    if (k->n) qsort(k->v, k->n, sizeof *k->v, by_log_time);
    for (u32 i = N_BEST; i < n; i++) {
        i64 j = rng_range(r, i, (i64)k->n - 1);
        struct choice x = k->v[i];
        k->v[i] = k->v[j], k->v[j] = x;
    }
    for (u32 i = 0; i < n; i++) {
        k->v[i].v = arena_array(a, double, m->n + spare + 1);
        k->v[i].deviation = model_deviation(m, &k->v[i].p, k->v[i].v);
    }
    return n;
}

static double lower_bound(const struct choice *k) { return k->log_time - exploration * k->deviation; }

static const double min_expected_gain = 0.01, max_expected_gain = 0.5;

/* Selects a batch greedily: each selected choice reduces the deviation of similar ones, as if it
   had been measured with the expected result. */
static u32 choose(struct task_search *ts, struct choice *k, u32 n, struct model *m, struct candidate *out, u32 max)
{
    u32 chosen = 0, first = m->n;
    while (chosen < max) {
        struct choice *best = NULL;
        for (u32 i = 0; i < n; i++)
            if (k[i].x && (!best || lower_bound(&k[i]) < lower_bound(best))) best = &k[i];
        if (!best) break;
        if (task_search_mark(ts, &best->x->cand)) {
            out[chosen++] = best->x->cand;
            u32 row = m->n;
            model_add(m, &best->p, 0);
            for (u32 i = 0; i < n && m->n > row; i++) k[i].deviation = model_deviation_after(m, &k[i].p, k[i].v);
        }
        best->x = NULL;
    }
    m->n = first;
    return chosen;
}

/* Provides every second one of the first trials. */
static u32 propose_near(struct task_search *ts, const struct search *s, struct candidate *out, u32 max)
{
    struct candidate from[EARLY];
    u32 n = 0;
    if (ts->n_tried >= EARLY) return 0;
    u32 n_from = transfer(ts, s, from, EARLY);
    for (u32 i = 0; i < n_from && n < (max + 1) / 2; i++)
        if (may_propose(ts, &from[i]) && task_search_mark(ts, &from[i])) out[n++] = from[i];
    return n;
}

u32 task_search_propose(struct task_search *ts, struct search *s, struct candidate *out, u32 max)
{
    struct arena a = {0};
    struct model m;
    struct choices k = {0};
    struct trials young = {0};
    u32 n = propose_near(ts, s, out, max);
    model_init(&m, &a, MAX_ROWS + max);
    fit(&m, ts, s);
    add_offspring(&young, ts, s, &a);
    add_choices(&k, &ts->pool, ts, s, &m, &a);
    add_choices(&k, &young, ts, s, &m, &a);
    u32 n_front = estimate_deviations(&k, &m, &s->rng, max, &a);
    /* The expected gain of the most promising choices, limited from below because the model may be
       wrong. */
    double least = INFINITY;
    for (u32 i = 0; i < n_front; i++) least = fmin(least, lower_bound(&k.v[i]));
    if (n_front && ts->best_at >= 0) ts->expected_gain = fmin(fmax(1 - exp(least) / ts->best, min_expected_gain), max_expected_gain);
    n += choose(ts, k.v, n_front, &m, out + n, max - n);
    ts->is_done = n == 0;
    arena_release(&a);
    return n;
}
