// SPDX-License-Identifier: Apache-2.0
//
// The vendor baseline: the task's GEMM by the device's own library, verified and timed beside the
// base like every candidate, so that both are on one scale. It is a trial "vendor NAME" of the
// database. No kernel family has that name, so it is never selected. Another version of the library
// is another baseline.
#include "tune/tuner.h"

#include <math.h>

enum { DEFAULT_SAMPLES = 10 };
static const double run_timeout = 20;

struct watch { /* collects the samples */
    struct tuner *t;
    i64 trial;
    double *ratio, *seconds;
    u32 n, want;
};

static bool on_sample(void *user, const struct sample *s, u32 n)
{
    struct watch *w = user;
    if (!db_sample(w->t->db, w->trial, s, w->t->e)) return false;
    if (s->is_cold || s->base <= 0 || w->n == w->want) return n < w->want;
    w->seconds[w->n] = s->seconds;
    w->ratio[w->n++] = s->seconds / s->base;
    return n < w->want;
}

static struct str text_of(struct arena *a, struct str name) { return str_fmt(a, "vendor %.*s", STR_ARG(name)); }

static struct subject subject_of(struct tuner *t, const struct task_search *ts)
{
    const struct tune_vendor *r = t->o->vendor;
    struct subject s = {.gemm = &r->gemm};
    subject_take_operands(&s, (value_id[]){r->a, r->b, ts->t->task->g.output.v[0]}, &t->arena);
    return s;
}

static enum trial_status try(struct tuner *t, struct task_search *ts, struct watch *w, bool verify, struct buf *why)
{
    const struct check *checks[MAX_CHECKS];
    struct subject s = subject_of(t, ts);
    struct trial_opts o = {.driver = t->o->driver,
                           .dev = t->o->dev,
                           .timeout = fmax(run_timeout, 20 * ts->base_time.median),
                           .max_samples = w->want,
                           .base = &ts->base,
                           .deadline = t->end};
    for (u32 i = 0; i < t->n_checks; i++) checks[i] = &t->check[i];
    return trial_run(&s, checks, verify ? t->n_checks : 0, t->timing, &o, on_sample, w, why);
}

static void report(struct tuner *t, const struct task_search *ts, const struct watch *w)
{
    struct str name = t->o->vendor->name;
    if (t->r->vendor != TRIAL_OK)
        log_printf(t->o->log, 1, "%.*s: %s: %.*s", STR_ARG(name), trial_status_name(t->r->vendor), STR_ARG(buf_view(&t->r->vendor_reason)));
    else if (w->n)
        log_printf(t->o->log, 2, "%.*s: %.4f ms, %.3f times as fast as the reference", STR_ARG(name),
                   stats_of(w->seconds, w->n).median * 1e3, 1 / ts->vendor_ratio);
}

static bool measure(struct tuner *t, struct task_search *ts, bool verify)
{
    u32 want = t->o->min_samples ? t->o->min_samples : DEFAULT_SAMPLES;
    struct buf why = {0};
    struct watch w = {.t = t, .want = want};
    w.ratio = arena_array(&t->arena, double, want), w.seconds = arena_array(&t->arena, double, want);
    w.trial = db_trial(t->db, t->env, ts->db_task, ts->sizes, text_of(&t->arena, t->o->vendor->name), t->e);
    if (!w.trial) return false;
    enum trial_status st = try(t, ts, &w, verify, &why);
    if (t->e->code) return false;
    bool ok = st == TRIAL_NEW || db_trial_status(t->db, w.trial, st, buf_view(&why), t->e);
    if (st == TRIAL_OK && w.n) ts->vendor_ratio = stats_of(w.ratio, w.n).median;
    if (st != TRIAL_NEW) {
        t->r->vendor = st;
        buf_reset(&t->r->vendor_reason);
        buf_str(&t->r->vendor_reason, buf_view(&why));
        report(t, ts, &w);
    }
    buf_release(&why);
    return ok;
}

bool vendor_measure(struct tuner *t, struct task_search *ts) { return !t->o->vendor || measure(t, ts, true); }

bool vendor_measure_again(struct tuner *t, struct task_search *ts) { return ts->vendor_ratio <= 0 || measure(t, ts, false); }

bool tune_vendor_row(struct db *d, i64 env, const struct task *t, const i64 *var, struct str name, struct arena *a, struct trial_row *row,
                    struct err *e)
{
    *row = (struct trial_row){0};
    i64 task = db_task(d, t, e);
    i64 id = task ? db_trial(d, env, task, sizes_text(a, t->g.sym, var, t), text_of(a, name), e) : 0;
    return id && db_trial_row(d, id, a, row, e);
}
