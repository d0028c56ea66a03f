// SPDX-License-Identifier: Apache-2.0
//
// A batch: candidates of one task that are built together and measured one after the other.
// Candidates that cannot win are abandoned early.
#include "tune/tuner.h"

#include <math.h>

enum {
    DEFAULT_SAMPLES = 10,
    ROUND_SAMPLES = 4 /* per finalist */
};
static const double default_run_timeout = 20, settled_spread = 1.03;
/* A candidate is abandoned after n samples if the best of them exceeds the best known ratio by this
   factor: one sample suffices for a slow one. */
static const double lost_ratio[] = {2, 1.4, 1.15};

bool tuner_is_late(const struct tuner *t) { return stop_is_set(t->o->stop) || (t->end > 0 && os_now() >= t->end); }
bool tuner_knows(const struct tuner *t)
{
    for (u32 i = 0; i < t->n; i++)
        if (t->searches[i].best_at >= 0) return true;
    return false;
}

/* A run without known results lasts until one candidate was measured, however short its time. 0: no
   deadline yet. */
double tuner_deadline(const struct tuner *t)
{
    return t->r->n_measured > 0 || tuner_knows(t) ? t->end : 0;
}

u32 tuner_min_samples(const struct tune_opts *o)
{
    return o->min_samples ? o->min_samples : DEFAULT_SAMPLES;
}

struct watch { /* decides after each sample whether to continue */
    struct tuner *t;
    struct task_search *ts;
    i64 trial;
    double *v, *q, *base; /* seconds, ratios, seconds of the base, in this run */
    u32 n, want;
    bool may_settle; /* while searching, a few consistent samples suffice */
    bool is_final;   /* takes all samples, so that earlier luck does not decide */
    bool gave_up, failed;
};

static bool on_sample(void *user, const struct sample *s, u32 n)
{
    struct watch *w = user;
    struct sample kept = *s;
    kept.is_final = w->is_final;
    if (!db_sample(w->t->db, w->trial, &kept, w->t->e)) {
        w->failed = true;
        return false;
    }
    if (s->is_cold) return true;
    w->n = n - 1;
    if (s->base > 0) {
        if (w->ts->n_beside < DRIFT_SAMPLES) w->ts->early[w->ts->n_beside] = s->base;
        w->ts->late[w->ts->n_beside++ % DRIFT_SAMPLES] = s->base;
    }
    w->v[w->n] = s->seconds;
    w->base[w->n] = s->base;
    w->q[w->n++] = s->base > 0 ? s->seconds / s->base : 1;
    if (s->base <= 0 || w->ts->best_at < 0 || w->is_final) return n < w->want;
    double least = w->q[0], most = w->q[0];
    for (u32 i = 1; i < w->n; i++) least = fmin(least, w->q[i]), most = fmax(most, w->q[i]);
    w->gave_up = least > w->ts->best_ratio * lost_ratio[i64_min(w->n, countof(lost_ratio)) - 1];
    double spread = fmax(w->may_settle ? settled_spread : 1, 1 + w->t->o->relative_error);
    bool settled = w->n >= 3 && spread > 1 && most < least * spread;
    return n < w->want && !w->gave_up && !settled;
}

void batch_open(struct tuner *t, struct task_search *ts, struct batch *b, enum batch_kind kind)
{
    bool verify = kind == BATCH_TRIALS;
    b->is_final = !verify;
    for (u32 i = 0; i < b->n; i++) b->subject[i].code = b->building.out[i].code;
    for (u32 i = 0; i < t->n_checks; i++) b->checks[i] = &t->check[i];
    b->opts = (struct trial_opts){
        .driver = t->o->driver,
        .dev = t->o->dev,
        .timeout = ts->is_ready ? fmax(2, 20 * ts->base_time.median) : default_run_timeout,
        .max_samples = verify ? tuner_min_samples(t->o) : ROUND_SAMPLES,
        .base = ts->is_ready ? &ts->base : NULL,
        .cold = kind == BATCH_FINAL_COLD || !ts->is_ready, /* expensive, so only for the base and finalists */
        .lost = verify && ts->is_ready ? ts->best_ratio * lost_ratio[0] : 0,
        .deadline = tuner_deadline(t),
        .stop = t->o->stop};
    b->session = (struct trial_session){.subject = b->subject,
                                        .n_subjects = b->n,
                                        .checks = b->checks,
                                        .n_checks = verify ? t->n_checks : 0,
                                        .timing = t->timing,
                                        .o = &b->opts};
}

enum trial_status batch_measure(struct tuner *t, struct task_search *ts, struct batch *b, u32 i, struct buf *reason)
{
    u32 want = b->opts.max_samples;
    struct trial *x = &ts->known.v[b->trial[i]];
    struct arena tmp = {0};
    struct watch w = {.t = t, .ts = ts, .trial = x->id, .want = want, .is_final = b->is_final, .may_settle = t->o->add_candidates};
    w.v = arena_array(&tmp, double, want + 1), w.q = arena_array(&tmp, double, want + 1);
    w.base = arena_array(&tmp, double, want + 1);
    enum trial_status st = trial_next(&b->session, i, on_sample, &w, reason);
    if (st == TRIAL_OK && w.gave_up) st = TRIAL_SLOW;
    if (w.n && !b->is_final) { /* results of finals are read from the database after each round */
        struct stats q = stats_of(w.q, w.n);
        x->n += w.n;
        x->median = stats_of(w.v, w.n).median;
        x->ratio = q.median, x->ratio_low = q.low, x->ratio_high = q.high;
        x->reference = stats_of(w.base, w.n).median;
    }
    arena_release(&tmp);
    return st;
}

bool trial_set_status(struct tuner *t, struct task_search *ts, struct trial *x, enum trial_status st, struct str reason)
{
    x->status = st;
    if (!db_trial_status(t->db, x->id, st, reason, t->e)) return false;
    report_trial(t, ts, x, reason);
    return true;
}

/* Returns its index in known; -1: the database failed. */
static i64 insert_trial(struct tuner *t, struct task_search *ts, const struct candidate *cand)
{
    struct buf text = {0};
    candidate_print(&text, cand);
    i64 id = db_trial(t->db, t->env, ts->db_task, ts->sizes, buf_view(&text), t->e);
    buf_release(&text);
    if (!id) return -1;
    const u64 *at = task_search_find(ts, id);
    return at ? (i64)*at : (i64)task_search_add(ts, &t->arena, &(struct trial){.cand = *cand, .id = id});
}

/* Generates the kernel of a candidate and emits its text; false: the row has the reason. */
static bool emit_text(struct tuner *t, const struct task_search *ts, struct batch *batch, u32 i, struct buf *reason)
{
    struct err e = {0};
    struct buf b = {0};
    struct arena tmp = {0};
    struct subject *s = &batch->subject[i];
    *s = (struct subject){0};
    bool ok = gen_kernel(&s->kernel, &batch->arena, &batch->cand[i], ts->t->task, &t->caps, &e) &&
              lang_render(&b, t->builder.lang, &s->kernel.kir, &t->caps, &tmp, &e);
    if (ok) batch->text[i] = str_dup(&batch->arena, buf_view(&b));
    else buf_z(reason, e.msg);
    buf_release(&b);
    arena_release(&tmp);
    return ok;
}

void batch_reset(struct batch *b)
{
    build_abandon(&b->building);
    arena_release(&b->arena);
    b->n = 0;
}

/* Adds the candidates to the database and emits their texts; those that fail become rows and are
   dropped. */
bool batch_emit(struct tuner *t, struct task_search *ts, struct batch *b)
{
    u32 n = 0;
    for (u32 i = 0; i < b->n; i++) {
        struct buf why = {0};
        if (!mem_check(t->e, "tuning", S(""))) return false;
        b->cand[n] = b->cand[i];
        i64 at = insert_trial(t, ts, &b->cand[n]);
        if (at < 0) return false;
        struct trial *x = &ts->known.v[at];
        b->trial[n] = (u32)at;
        bool ok = emit_text(t, ts, b, n, &why);
        bool fine =
            ok ? db_trial_kernel(t->db, x->id, hash_bytes(b->text[n].p, b->text[n].n), t->e)
               : trial_set_status(t, ts, x, TRIAL_EMIT, buf_view(&why));
        buf_release(&why);
        if (!fine) return false;
        task_search_queue(ts, x, ok);
        n += ok;
    }
    b->n = n;
    return true;
}

/* Builds while others are measured, on processors that the timed kernels do not use. */
bool batch_start(struct tuner *t, struct batch *b, u32 n_now)
{
    return build_start(&b->building, &t->builder, b->text, b->n, n_now, &b->arena, t->e);
}

bool batch_build(struct tuner *t, struct task_search *ts, struct batch *b)
{
    if (!batch_emit(t, ts, b)) return false;
    bool ok = batch_start(t, b, 0) && build_finish(&b->building, &b->arena, t->e);
    build_abandon(&b->building);
    return ok;
}
