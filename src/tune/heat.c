// SPDX-License-Identifier: Apache-2.0
//
// Candidates of a task that are built together and measured one after the other. What cannot win is given up early.
#include "tune/tuner.h"

#include <math.h>

enum {
    DEFAULT_SAMPLES = 10,
    ROUND_SAMPLES = 4 /* of each finalist */
};
static const double default_run_timeout = 20, settled_spread = 1.03;
/* A candidate is given up after n samples when the best of them is so many times the best known:
   one sample is enough against what is far off. */
static const double lost_ratio[] = {2, 1.4, 1.15};

bool tuner_is_late(const struct tuner *t) { return stop_is_set(t->o->stop) || (t->end > 0 && os_now() >= t->end); }
bool tuner_knows(const struct tuner *t)
{
    for (u32 i = 0; i < t->n; i++)
        if (t->contest[i].best_at >= 0) return true;
    return false;
}

/* However short the time, a run does not end before one candidate has been tried, unless something is known. 0: not yet. */
double tuner_deadline(const struct tuner *t)
{
    return t->r->n_measured > 0 || tuner_knows(t) ? t->end : 0;
}

u32 tuner_min_samples(const struct tune_opts *o)
{
    return o->min_samples ? o->min_samples : DEFAULT_SAMPLES;
}

struct watch { /* decides after each sample whether to go on */
    struct tuner *t;
    struct contest *c;
    i64 trial;
    double *v, *q, *base; /* seconds, ratios, seconds of the base, of this run */
    u32 n, want;
    bool may_settle; /* searching: a few samples that agree are enough */
    bool is_final;   /* all samples are taken, whatever they say: who was lucky before must not keep that */
    bool gave_up, failed;
};

static void watch_base(struct contest *c, double seconds)
{
    if (c->n_beside < DRIFT_SAMPLES) c->early[c->n_beside] = seconds;
    c->late[c->n_beside++ % DRIFT_SAMPLES] = seconds;
}

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
    if (s->base > 0) watch_base(w->c, s->base);
    w->v[w->n] = s->seconds;
    w->base[w->n] = s->base;
    w->q[w->n++] = s->base > 0 ? s->seconds / s->base : 1;
    if (s->base <= 0 || w->c->best_at < 0 || w->is_final) return n < w->want;
    double least = w->q[0], most = w->q[0];
    for (u32 i = 1; i < w->n; i++) least = fmin(least, w->q[i]), most = fmax(most, w->q[i]);
    w->gave_up = least > w->c->best_ratio * lost_ratio[i64_min(w->n, countof(lost_ratio)) - 1];
    double spread = fmax(w->may_settle ? settled_spread : 1, 1 + w->t->o->relative_error);
    bool settled = w->n >= 3 && spread > 1 && most < least * spread;
    return n < w->want && !w->gave_up && !settled;
}

void heat_open(struct tuner *t, struct contest *c, struct heat *h, enum heat_kind kind)
{
    bool verify = kind == HEAT_TRIALS;
    h->is_final = !verify;
    for (u32 i = 0; i < h->n; i++) h->subject[i].code = h->building.out[i].code;
    for (u32 i = 0; i < t->n_checks; i++) h->checks[i] = &t->check[i];
    h->opts = (struct trial_opts){
        .driver = t->o->driver,
        .dev = t->o->dev,
        .timeout = c->is_ready ? fmax(2, 20 * c->base_time.median) : default_run_timeout,
        .max_samples = verify ? tuner_min_samples(t->o) : ROUND_SAMPLES,
        .base = c->is_ready ? &c->base : NULL,
        .cold = kind == HEAT_FINAL_COLD || !c->is_ready, /* costs more than all the rest: of the base and of finalists */
        .lost = verify && c->is_ready ? c->best_ratio * lost_ratio[0] : 0,
        .deadline = tuner_deadline(t),
        .stop = t->o->stop};
    h->session = (struct trial_session){.subject = h->subject,
                                        .n_subjects = h->n,
                                        .checks = h->checks,
                                        .n_checks = verify ? t->n_checks : 0,
                                        .timing = t->timing,
                                        .o = &h->opts};
}

enum trial_status heat_measure(struct tuner *t, struct contest *c, struct heat *h, u32 i, struct buf *reason)
{
    u32 want = h->opts.max_samples;
    struct entrant *x = &c->known.v[h->entrant[i]];
    struct arena tmp = {0};
    struct watch w = {.t = t, .c = c, .trial = x->trial, .want = want, .is_final = h->is_final, .may_settle = t->o->add_candidates};
    w.v = arena_array(&tmp, double, want + 1), w.q = arena_array(&tmp, double, want + 1);
    w.base = arena_array(&tmp, double, want + 1);
    enum trial_status st = trial_next(&h->session, i, on_sample, &w, reason);
    if (st == TRIAL_OK && w.gave_up) st = TRIAL_SLOW;
    if (w.n && !h->is_final) { /* what finals say is read when a round is over */
        struct stats q = stats_of(w.q, w.n);
        x->n += w.n;
        x->median = stats_of(w.v, w.n).median;
        x->ratio = q.median, x->ratio_low = q.low, x->ratio_high = q.high;
        x->reference = stats_of(w.base, w.n).median;
    }
    arena_release(&tmp);
    return st;
}

bool entrant_set_status(struct tuner *t, struct contest *c, struct entrant *x, enum trial_status st, struct str reason)
{
    x->status = st;
    if (!db_trial_status(t->db, x->trial, st, reason, t->e)) return false;
    report_trial(t, c, x, reason);
    return true;
}

/* Its place in known; -1: the database failed. */
static i64 enter(struct tuner *t, struct contest *c, const struct candidate *cand)
{
    struct buf text = {0};
    candidate_print(&text, cand);
    i64 id = db_trial(t->db, t->env, c->db_task, c->sizes, buf_view(&text), t->e);
    buf_release(&text);
    if (!id) return -1;
    const u64 *at = contest_find(c, id);
    return at ? (i64)*at : (i64)contest_add(c, &t->arena, &(struct entrant){.cand = *cand, .trial = id});
}

/* Kernel and text of a candidate; false: the row says why. */
static bool spell(struct tuner *t, const struct contest *c, struct heat *h, u32 i, struct buf *reason)
{
    struct err e = {0};
    struct buf b = {0};
    struct arena tmp = {0};
    struct subject *s = &h->subject[i];
    *s = (struct subject){0};
    bool ok = gen_kernel(&s->kernel, &h->arena, &h->cand[i], c->t->task, &t->caps, &e) &&
              lang_render(&b, t->builder.lang, &s->kernel.kir, &t->caps, &tmp, &e);
    if (ok) h->text[i] = str_dup(&h->arena, buf_view(&b));
    else buf_z(reason, e.msg);
    buf_release(&b);
    arena_release(&tmp);
    return ok;
}

void heat_reset(struct heat *h)
{
    build_abandon(&h->building);
    arena_release(&h->arena);
    h->n = 0;
}

/* Enters and spells; those that fail are rows and drop out. */
bool heat_spell(struct tuner *t, struct contest *c, struct heat *h)
{
    u32 n = 0;
    for (u32 i = 0; i < h->n; i++) {
        struct buf why = {0};
        if (!mem_check(t->e, "tuning", S(""))) return false;
        h->cand[n] = h->cand[i];
        i64 at = enter(t, c, &h->cand[n]);
        if (at < 0) return false;
        struct entrant *x = &c->known.v[at];
        h->entrant[n] = (u32)at;
        bool ok = spell(t, c, h, n, &why);
        bool fine =
            ok ? db_trial_kernel(t->db, x->trial, hash_bytes(h->text[n].p, h->text[n].n), t->e)
               : entrant_set_status(t, c, x, TRIAL_EMIT, buf_view(&why));
        buf_release(&why);
        if (!fine) return false;
        contest_queue(c, x, ok);
        n += ok;
    }
    h->n = n;
    return true;
}

/* Builds while others are measured, where the kernels that are timed leave a processor alone. */
bool heat_start(struct tuner *t, struct heat *h, u32 n_now)
{
    return build_start(&h->building, &t->builder, h->text, h->n, n_now, &h->arena, t->e);
}

bool heat_build(struct tuner *t, struct contest *c, struct heat *h)
{
    if (!heat_spell(t, c, h)) return false;
    bool ok = heat_start(t, h, 0) && build_finish(&h->building, &h->arena, t->e);
    build_abandon(&h->building);
    return ok;
}
