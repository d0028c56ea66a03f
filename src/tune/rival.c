// SPDX-License-Identifier: Apache-2.0
//
// The rival: the task's product by the library that the device brings, verified and timed beside the base as every candidate is, so
// that both are on one scale, whichever of them speed-ups are told over. It is a trial of the database, "vendor NAME"; because no
// generator is called that, nothing ever chooses it. Libraries of another version are other rivals.
#include "tune/tuner.h"

#include <math.h>

enum { DEFAULT_SAMPLES = 10 };
static const double rival_timeout = 20;

struct watch { /* keeps the samples */
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

static struct subject subject_of(struct tuner *t, const struct contest *c)
{
    const struct tune_rival *r = t->o->rival;
    struct subject s = {.product = &r->product};
    subject_take_operands(&s, (value_id[]){r->a, r->b, c->t->task->g.output.v[0]}, &t->arena);
    return s;
}

static enum trial_status try(struct tuner *t, struct contest *c, struct watch *w, bool verify, struct buf *why)
{
    const struct check *checks[MAX_CHECKS];
    struct subject s = subject_of(t, c);
    struct trial_opts o = {.driver = t->o->driver,
                           .dev = t->o->dev,
                           .timeout = fmax(rival_timeout, 20 * c->base_time.median),
                           .max_samples = w->want,
                           .base = &c->base,
                           .deadline = t->end};
    for (u32 i = 0; i < t->n_checks; i++) checks[i] = &t->check[i];
    return trial_run(&s, checks, verify ? t->n_checks : 0, t->timing, &o, on_sample, w, why);
}

static void tell(struct tuner *t, const struct contest *c, const struct watch *w)
{
    struct str name = t->o->rival->name;
    if (t->r->rival != TRIAL_OK)
        log_printf(t->o->log, 1, "%.*s: %s: %.*s", STR_ARG(name), trial_status_name(t->r->rival), STR_ARG(buf_view(&t->r->rival_reason)));
    else if (w->n)
        log_printf(t->o->log, 2, "%.*s: %.4f ms, %.3f times as fast as the reference", STR_ARG(name),
                   stats_of(w->seconds, w->n).median * 1e3, 1 / c->rival_ratio);
}

static bool measure(struct tuner *t, struct contest *c, bool verify)
{
    u32 want = t->o->min_samples ? t->o->min_samples : DEFAULT_SAMPLES;
    struct buf why = {0};
    struct watch w = {.t = t, .want = want};
    w.ratio = arena_array(&t->arena, double, want), w.seconds = arena_array(&t->arena, double, want);
    w.trial = db_trial(t->db, t->env, c->db_task, c->sizes, text_of(&t->arena, t->o->rival->name), t->e);
    if (!w.trial) return false;
    enum trial_status st = try(t, c, &w, verify, &why);
    if (t->e->code) return false;
    bool ok = st == TRIAL_NEW || db_trial_status(t->db, w.trial, st, buf_view(&why), t->e);
    if (st == TRIAL_OK && w.n) c->rival_ratio = stats_of(w.ratio, w.n).median;
    if (st != TRIAL_NEW) {
        t->r->rival = st;
        buf_reset(&t->r->rival_reason);
        buf_str(&t->r->rival_reason, buf_view(&why));
        tell(t, c, &w);
    }
    buf_release(&why);
    return ok;
}

bool rival_measure(struct tuner *t, struct contest *c) { return !t->o->rival || measure(t, c, true); }

bool rival_again(struct tuner *t, struct contest *c) { return c->rival_ratio <= 0 || measure(t, c, false); }

bool tune_rival_row(struct db *d, i64 env, const struct task *t, const i64 *var, struct str name, struct arena *a, struct trial_row *row,
                    struct err *e)
{
    *row = (struct trial_row){0};
    i64 task = db_task(d, t, e);
    i64 id = task ? db_trial(d, env, task, sizes_text(a, t->g.sym, var, t), text_of(a, name), e) : 0;
    return id && db_trial_row(d, id, a, row, e);
}
