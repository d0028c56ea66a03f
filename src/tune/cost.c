// SPDX-License-Identifier: Apache-2.0
//
// Queries about a task's results in one environment: its best verified candidate, and the number of
// trials to find it.
#include "tune/tune.h"

static bool is_timed(const struct trial_row *r) { return r->status == TRIAL_OK && r->n > 0; }

static bool any_final(const struct trial_row *rows, u32 n)
{
    for (u32 i = 0; i < n; i++)
        if (is_timed(&rows[i]) && rows[i].n_final > 0) return true;
    return false;
}

double tune_reference_seconds(const struct trial_row *rows, u32 n)
{
    struct arena tmp = {0};
    double *v = arena_array(&tmp, double, n + 1);
    bool finals = any_final(rows, n);
    u32 k = 0;
    for (u32 i = 0; i < n; i++)
        if (rows[i].reference > 0 && !rows[i].is_odd && (!finals || rows[i].n_final > 0)) v[k++] = rows[i].reference;
    double median = stats_of(v, k).median;
    arena_release(&tmp);
    return median;
}

double tune_row_seconds(const struct trial_row *r, double reference)
{
    if (reference <= 0) return r->median;
    return r->ratio > 0 ? r->ratio * reference : reference;
}

/* The latest reference; NULL: none. */
static const struct trial_row *last_reference(const struct trial_row *rows, u32 n)
{
    const struct trial_row *last = NULL;
    for (u32 i = 0; i < n; i++)
        if (is_timed(&rows[i]) && rows[i].alone > 0 && (!last || rows[i].alone > last->alone)) last = &rows[i];
    return last;
}

const struct trial_row *tune_choice(const struct trial_row *rows, u32 n)
{
    const struct trial_row *base = last_reference(rows, n), *best = NULL;
    bool finals = any_final(rows, n);
    for (u32 i = 0; i < n; i++) {
        const struct trial_row *r = &rows[i];
        if (r == base || !is_timed(r) || r->is_odd || r->ratio <= 0) continue;
        if ((finals && r->n_final == 0) || (base && r->ratio_high >= 1)) continue;
        if (!best || r->ratio_high < best->ratio_high) best = r;
    }
    return best ? best : base;
}

/* The reference itself has no ratio. */
static double ratio_of(const struct trial_row *r)
{
    if (r->status != TRIAL_OK || r->n == 0) return 0;
    return r->ratio > 0 ? r->ratio : 1;
}

double best_ratio(const struct trial_row *rows, u32 n)
{
    double best = 0;
    for (u32 i = 0; i < n; i++) {
        double r = ratio_of(&rows[i]);
        if (r > 0 && (best <= 0 || r < best)) best = r;
    }
    return best;
}

u32 trials_to(const struct trial_row *rows, u32 n, double ratio)
{
    u32 tried = 0;
    for (u32 i = 0; i < n; i++) {
        double r = ratio_of(&rows[i]);
        tried += rows[i].status != TRIAL_NEW;
        if (r > 0 && r <= ratio) return tried;
    }
    return 0;
}

static const double near_best = 0.95;

bool tune_reach(struct db *d, i64 env, i64 task, struct str sizes, struct reach *r, struct err *e)
{
    struct arena tmp = {0};
    struct trial_row *rows = NULL;
    u32 n = 0;
    *r = (struct reach){0};
    bool ok = db_trials(d, env, task, sizes, &tmp, &rows, &n, e);
    for (u32 i = 0; i < n && ok; i++) r->n_trials += rows[i].status != TRIAL_NEW;
    if (ok) r->to_near = trials_to(rows, n, best_ratio(rows, n) / near_best);
    arena_release(&tmp);
    return ok;
}

struct reaches reaches_of(const struct reach *r, u32 n)
{
    struct arena tmp = {0};
    struct reaches all = {0};
    double *to = arena_array(&tmp, double, n + 1);
    for (u32 i = 0; i < n; i++) {
        if (r[i].n_trials < 2 || r[i].to_near == 0) continue;
        to[all.n_tasks++] = r[i].to_near;
        all.n_trials += r[i].n_trials;
        if (r[i].to_near > all.most) all.most = r[i].to_near;
    }
    all.median = stats_of(to, all.n_tasks).median;
    arena_release(&tmp);
    return all;
}

/* The reference's time is the one measured beside other candidates. */
static double choice_seconds(const struct trial_row *r, const struct trial_row *rows, u32 n)
{
    double reference = tune_reference_seconds(rows, n);
    if (r != last_reference(rows, n)) return tune_row_seconds(r, reference);
    return reference > 0 ? reference : r->median;
}

bool tune_best(struct db *d, i64 env, const struct task *t, const i64 *var, struct task_known *k,
               struct err *e)
{
    struct arena tmp = {0};
    struct trial_row *rows = NULL;
    u32 n = 0;
    *k = (struct task_known){0};
    i64 id = db_task(d, t, e);
    bool ok =
        id != 0 && db_trials(d, env, id, sizes_text(&tmp, t->g.sym, var, t), &tmp, &rows, &n, e);
    const struct trial_row *r = ok ? tune_choice(rows, n) : NULL;
    for (u32 i = 0; i < n && ok; i++) k->n_trials += rows[i].n > 0;
    if (r) {
        k->measured = true;
        k->best = r->cand;
        k->seconds = choice_seconds(r, rows, n);
    }
    arena_release(&tmp);
    return ok;
}
