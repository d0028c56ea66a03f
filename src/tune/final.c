// SPDX-License-Identifier: Apache-2.0
//
// Finals: the best candidates of a search are re-measured. Of many candidates with a few samples
// each, the best-looking one was also lucky, or was measured while another load slowed the
// reference more (selection bias: Thaler, The winner's curse, 1988). Finalists are therefore timed
// again beside the reference, and only these samples decide (cost.c). They are taken in rounds,
// each in a new child process and in another order, because the addresses of memory and the
// placement of threads may favour one candidate for as long as a process lives. A finalist that is
// significantly slower than the leader or the reference is eliminated. Finals end when they are
// decided or their share of the time is used up.
#include "tune/tuner.h"

#include <math.h>

enum {
    FINALISTS = 4,
    MOST_ROUNDS = 10,
    MOST_TRIES = 30,  /* rounds in total: those on a slowed machine yield no samples */
    MAX_FINALS = 3 /* with new finalists, if earlier ones turn out slower than these had looked */
};
static const double near_best = 1.08;

bool finals_are_open(struct finalist *f, u32 n, u32 least)
{
    const struct finalist *lead = NULL;
    u32 n_in = 0;
    for (u32 i = 0; i < n; i++)
        if (!f[i].is_out && f[i].n > 0 && (!lead || f[i].ratio.median < lead->ratio.median)) lead = &f[i];
    for (u32 i = 0; i < n; i++) {
        bool is_slow = lead && f[i].n >= least && (f[i].ratio.low >= 1 || f[i].ratio.low > lead->ratio.high);
        f[i].is_out |= is_slow;
        n_in += !f[i].is_out;
    }
    if (n_in == 0) return false;
    return n_in > 1 || !lead || lead->is_out || lead->n < least || lead->ratio.high >= 1;
}

struct final { /* of one task */
    struct tuner *t;
    struct task_search *ts;
    struct batch *b;               /* the finalists */
    struct finalist f[FINALISTS];
    double end;                   /* of its time; 0: none */
};

static struct trial *finalist_trial(const struct final *x, u32 i)
{
    return &x->ts->known.v[x->b->trial[i]];
}

/* Reads the finalists' statistics; returns the number of usable samples. */
static u32 read_stats(struct final *x)
{
    u32 n = 0;
    for (u32 i = 0; i < x->b->n; i++) {
        const struct trial *y = finalist_trial(x, i);
        n += x->f[i].n = y->n_final;
        x->f[i].ratio = (struct stats){y->ratio, y->ratio_low, y->ratio_high};
    }
    return n;
}

/* Measures one finalist. One that fails now is no longer selectable. */
static bool measure_finalist(struct final *x, u32 i)
{
    struct buf why = {0};
    enum trial_status st = batch_measure(x->t, x->ts, x->b, i, &why);
    bool failed = st != TRIAL_OK && st != TRIAL_NEW;
    x->f[i].is_out |= failed;
    bool ok = !x->t->e->code && (!failed || trial_set_status(x->t, x->ts, finalist_trial(x, i), st, buf_view(&why)));
    buf_release(&why);
    return ok;
}

static bool reread(struct tuner *t, struct task_search *ts)
{
    return task_search_reread(ts, &(struct search_env){t->db, t->env, &t->caps, &t->arena, t->e});
}

/* Each round starts with another finalist. */
static bool run_round(struct final *x, u32 round)
{
    bool ok = true;
    batch_open(x->t, x->ts, x->b, round == 0 ? BATCH_FINAL_COLD : BATCH_FINAL);
    for (u32 k = 0; k < x->b->n && ok; k++) {
        u32 i = (k + round) % x->b->n;
        if (!x->f[i].is_out && (k == 0 || !tuner_is_late(x->t))) ok = measure_finalist(x, i);
    }
    trial_close(&x->b->session);
    return ok && reread(x->t, x->ts);
}

static bool run_rounds(struct final *x)
{
    double most = 0;
    u32 n = 0, had = read_stats(x); /* may be decided by earlier runs */
    for (u32 round = 0; round < MOST_TRIES && n < MOST_ROUNDS && !tuner_is_late(x->t); round++) {
        double start = os_now();
        if (!finals_are_open(x->f, x->b->n, tuner_min_samples(x->t->o))) break;
        if (x->end > 0 && round > 0 && start + most > x->end) break;
        if (!run_round(x, round)) return false;
        u32 has = read_stats(x);
        n += has > had;
        had = has;
        most = fmax(most, os_now() - start);
        report_progress(x->t, x->ts);
    }
    return true;
}

/* Selects the best candidates below a limit that were not finalists in this run, best first. */
static void pick(struct final *x, double limit)
{
    struct task_search *ts = x->ts;
    double typical = task_search_typical(ts);
    x->b->n = 0;
    while (x->b->n < FINALISTS) {
        struct trial *best = NULL;
        for (u32 i = 0; i < ts->known.n; i++) {
            struct trial *y = &ts->known.v[i];
            if (y->was_final || y->id == ts->base_trial || !trial_is_trusted(y, typical) || y->ratio > limit) continue;
            if (!best || y->ratio < best->ratio) best = y;
        }
        if (!best) break;
        best->was_final = true;
        x->b->cand[x->b->n++] = best->cand;
    }
}

/* Builds finalists as they would be kept: without other kernels in their programs. */
static bool build_alone(struct final *x)
{
    struct tuner *t = x->t;
    bool may_join = t->builder.may_join;
    t->builder.may_join = false;
    bool ok = batch_build(t, x->ts, x->b);
    t->builder.may_join = may_join;
    for (u32 i = 0; i < x->b->n && ok; i++) x->f[i] = (struct finalist){.is_out = !x->b->building.out[i].ok};
    return ok;
}

bool task_search_finals(struct tuner *t, struct task_search *ts, double end)
{
    struct batch *b = &t->batch[0];
    struct final x = {.t = t, .ts = ts, .b = b, .end = end};
    double limit = fmin(1, ts->best_ratio) * near_best;
    bool ok = true;
    for (u32 n = 0; n < MAX_FINALS && ok && !tuner_is_late(t) && (end <= 0 || os_now() < end); n++) {
        batch_reset(b);
        pick(&x, limit);
        if (b->n == 0) break;
        ok = build_alone(&x) && run_rounds(&x);
        limit = fmin(1, ts->best_ratio);
    }
    batch_reset(b);
    return ok && reread(t, ts);
}
