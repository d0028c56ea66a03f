// SPDX-License-Identifier: Apache-2.0
//
// Reports of a tuning run: progress, each trial, drift and background load of the machine, and
// trials needed to find the best kernel.
#include "tune/tuner.h"

#include <math.h>

static const double max_drift = 0.1, max_others = 0.1;

/* Relative to the vendor baseline, if there is one. */
double tune_speedup(const struct tuner *t)
{
    double vendor = t->n == 1 && t->searches[0].vendor_ratio > 0 ? t->searches[0].vendor_ratio : 1;
    double base = 0, best = 0;
    for (u32 i = 0; i < t->n; i++) {
        const struct task_search *ts = &t->searches[i];
        if (!ts->is_ready || ts->best_at < 0 || ts->t->weight <= 0) continue;
        base += ts->t->weight * ts->base_time.median;
        best += ts->t->weight * ts->base_time.median * fmin(1, ts->best_ratio > 0 ? ts->best_ratio : 1);
    }
    return best > 0 ? vendor * base / best : 1;
}

double tune_seconds(const struct tuner *t)
{
    double best = 0;
    for (u32 i = 0; i < t->n; i++) {
        const struct task_search *ts = &t->searches[i];
        if (ts->t->weight <= 0) continue;
        if (!ts->is_ready || ts->best_at < 0) return 0;
        best += ts->t->weight * ts->base_time.median * fmin(1, ts->best_ratio);
    }
    return best;
}

void report_progress(struct tuner *t, const struct task_search *ts)
{
    if (!t->o->progress) return;
    struct tune_progress p = {.done = t->o->measure ? t->r->n_measured : t->r->n_built,
                              .total = -1,
                              .failures = t->r->n_failed,
                              .best = tune_speedup(t)};
    p.seconds_left = t->end > 0 ? fmax(0, t->end - os_now()) : -1;
    p.what = ts ? ts->label : (struct str){0};
    t->o->progress(t->o->user, &p);
}

void report_trial(struct tuner *t, const struct task_search *ts, const struct trial *x,
                         struct str reason)
{
    t->r->n_measured++;
    t->r->n_by_status[x->status]++;
    if (x->status == TRIAL_OK || x->status == TRIAL_SLOW) t->r->n_ok++;
    else t->r->n_failed++;
    if (t->o->event) {
        struct buf b = {0};
        char hex[33];
        hash_hex(ts->t->task->key, hex);
        buf_printf(&b, "{\"task\":\"%s\",\"candidate\":", hex);
        struct buf text = {0};
        candidate_print(&text, &x->cand);
        buf_json_str(&b, buf_view(&text));
        buf_release(&text);
        buf_printf(&b,
                   ",\"status\":\"%s\",\"samples\":%u,\"median_ms\":", trial_status_name(x->status),
                   x->n);
        if (x->n) buf_f64(&b, x->median * 1e3);
        else buf_z(&b, "null");
        buf_z(&b, ",\"ratio\":");
        if (x->ratio > 0) buf_f64(&b, x->ratio);
        else buf_z(&b, "null");
        buf_z(&b, ",\"reason\":");
        buf_json_str(&b, reason);
        buf_char(&b, '}');
        t->o->event(t->o->user, buf_view(&b));
        buf_release(&b);
    }
    report_progress(t, ts);
}

/* Compares the base's times at the start and at the end of the run, to detect a change of the
   machine. */
void report_drift(struct tuner *t)
{
    double *change = arena_array(&t->arena, double, t->n + 1);
    u32 n = 0;
    for (u32 i = 0; i < t->n; i++) {
        struct task_search *ts = &t->searches[i];
        if (ts->n_beside < 2 * DRIFT_SAMPLES) continue;
        change[n++] =
            stats_of(ts->late, DRIFT_SAMPLES).median / stats_of(ts->early, DRIFT_SAMPLES).median;
    }
    t->r->drift = n ? stats_of(change, n).median : 1;
    if (fabs(t->r->drift - 1) <= max_drift) return;
    log_printf(t->o->log, 1,
               "the machine changed while measuring: the same kernels took %.2f times as long at "
               "the end as at the start",
               t->r->drift);
    if (!t->o->event) return;
    struct buf b = {0};
    buf_z(&b, "{\"drift\":");
    buf_f64(&b, t->r->drift);
    buf_char(&b, '}');
    t->o->event(t->o->user, buf_view(&b));
    buf_release(&b);
}

static void report_task_reach(const struct tuner *t, const struct task_search *ts, const struct reach *r)
{
    log_printf(t->o->log, 3, "%.*s: 95 %% of the best after %u of %u trials", STR_ARG(ts->label),
               r->to_near, r->n_trials);
    if (!t->o->event) return;
    struct buf b = {0};
    char hex[33];
    hash_hex(ts->t->task->key, hex);
    buf_printf(&b, "{\"task\":\"%s\",\"sizes\":", hex);
    buf_json_str(&b, ts->sizes);
    buf_printf(&b, ",\"trials\":%u,\"trials_to_95_percent\":%u}", r->n_trials, r->to_near);
    t->o->event(t->o->user, buf_view(&b));
    buf_release(&b);
}

/* Trials until each search came near its best candidate, earlier runs included. */
bool report_reach(struct tuner *t)
{
    struct reach *r = arena_array(&t->arena, struct reach, t->n + 1);
    for (u32 i = 0; i < t->n; i++) {
        const struct task_search *ts = &t->searches[i];
        if (!tune_reach(t->db, t->env, ts->db_task, ts->sizes, &r[i], t->e)) return false;
        if (r[i].to_near && r[i].n_trials > 1) report_task_reach(t, ts, &r[i]);
    }
    struct reaches all = reaches_of(r, t->n);
    if (all.n_tasks == 0) return true;
    log_printf(t->o->log, 2,
               "95 %% of the best kernel was reached after %g trials, at most %u (median of %u "
               "tasks, %u trials)",
               all.median, all.most, all.n_tasks, all.n_trials);
    if (!t->o->event) return true;
    struct buf b = {0};
    buf_printf(&b, "{\"tasks\":%u,\"trials\":%u,\"trials_to_95_percent\":{\"median\":", all.n_tasks,
               all.n_trials);
    buf_f64(&b, all.median);
    buf_printf(&b, ",\"most\":%u}}", all.most);
    t->o->event(t->o->user, buf_view(&b));
    buf_release(&b);
    return true;
}

bool report_nothing(struct tuner *t)
{
    struct buf b = {0};
    if (t->r->was_stopped) return err_set(t->e, ERR_STOPPED, "stopped before anything was measured");
    for (int s = 0; s < N_TRIAL_STATUS; s++)
        if (t->r->n_by_status[s])
            buf_printf(&b, "%s%lld %s", b.n ? ", " : "", (long long)t->r->n_by_status[s],
                       trial_status_name((enum trial_status)s));
    err_set(t->e, ERR_NOTHING, "nothing was measured: %s",
            b.n ? b.p : "no task has a candidate that can be verified");
    buf_release(&b);
    return false;
}

/* Multithreaded kernels wait milliseconds for a processor that another process uses; ratios do not
   cancel this. */
void report_others(const struct tuner *t, double all, double own)
{
    double all_now, own_now, share;
    if (!os_cpu_seconds(&all_now, &own_now)) return;
    share = (all_now - all - (own_now - own)) / ((os_now() - t->start) * os_n_cpus() + 1e-9);
    t->r->others = fmax(0, share);
    if (share <= max_others) return;
    log_printf(t->o->log, 1,
               "other processes used %.0f %% of the processors meanwhile: results are less certain, "
               "above all on several threads; measure again when the machine is quiet",
               100 * share);
}
