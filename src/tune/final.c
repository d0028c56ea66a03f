// SPDX-License-Identifier: Apache-2.0
//
// Finals. Of many candidates with a few samples each the one that looks best was lucky, too, or measured while the machine did something
// else that met the reference harder (Thaler, The winner's curse, 1988). So what looks best when a search ends is timed again beside
// the reference, and these samples alone tell what to take (cost.c): nothing was picked by them. They are taken in rounds, each in a
// new child process, because where memory and threads come to lie may favour one for as long as a process lives, and in another order
// each time. A finalist is out when it is shown to be slower than the leader or than the reference; a contest is over when it is
// decided, or its share of the time is used up.
#include "tune/tuner.h"

#include <math.h>

enum {
    FINALISTS = 4,
    MOST_ROUNDS = 10,
    MOST_TRIES = 30,  /* at rounds: those that met the machine while it was slower than usual tell nothing */
    MOST_CONTESTS = 3 /* of new finalists, should those before them turn out to be no better than these looked */
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

struct final { /* one contest's */
    struct tuner *t;
    struct contest *c;
    struct heat *h;               /* who takes part */
    struct finalist f[FINALISTS];
    double end;                   /* of its time; 0: none */
};

static struct entrant *entrant_of(const struct final *x, u32 i)
{
    return &x->c->known.v[x->h->entrant[i]];
}

/* How many samples there are that tell something. */
static u32 look(struct final *x)
{
    u32 n = 0;
    for (u32 i = 0; i < x->h->n; i++) {
        const struct entrant *y = entrant_of(x, i);
        n += x->f[i].n = y->n_final;
        x->f[i].ratio = (struct stats){y->ratio, y->ratio_low, y->ratio_high};
    }
    return n;
}

/* One that fails now is no more to be chosen. */
static bool take_part(struct final *x, u32 i)
{
    struct buf why = {0};
    enum trial_status st = heat_measure(x->t, x->c, x->h, i, &why);
    bool failed = st != TRIAL_OK && st != TRIAL_NEW;
    x->f[i].is_out |= failed;
    bool ok = !x->t->e->code && (!failed || entrant_set_status(x->t, x->c, entrant_of(x, i), st, buf_view(&why)));
    buf_release(&why);
    return ok;
}

static bool reread(struct tuner *t, struct contest *c)
{
    return contest_reread(c, &(struct shelf){t->db, t->env, &t->caps, &t->arena, t->e});
}

/* Each begins with another one. */
static bool run_round(struct final *x, u32 round)
{
    bool ok = true;
    heat_open(x->t, x->c, x->h, round == 0 ? HEAT_FINAL_COLD : HEAT_FINAL);
    for (u32 k = 0; k < x->h->n && ok; k++) {
        u32 i = (k + round) % x->h->n;
        if (!x->f[i].is_out && (k == 0 || !tuner_is_late(x->t))) ok = take_part(x, i);
    }
    trial_close(&x->h->session);
    return ok && reread(x->t, x->c);
}

static bool run_rounds(struct final *x)
{
    double most = 0;
    u32 n = 0, had = look(x); /* earlier runs may have decided it */
    for (u32 round = 0; round < MOST_TRIES && n < MOST_ROUNDS && !tuner_is_late(x->t); round++) {
        double start = os_now();
        if (!finals_are_open(x->f, x->h->n, tuner_min_samples(x->t->o))) break;
        if (x->end > 0 && round > 0 && start + most > x->end) break;
        if (!run_round(x, round)) return false;
        u32 has = look(x);
        n += has > had;
        had = has;
        most = fmax(most, os_now() - start);
        report_progress(x->t, x->c);
    }
    return true;
}

/* Candidates of the best looks below a limit that were not in finals of this run yet; the best first. */
static void pick(struct final *x, double limit)
{
    struct contest *c = x->c;
    double typical = contest_typical(c);
    x->h->n = 0;
    while (x->h->n < FINALISTS) {
        struct entrant *best = NULL;
        for (u32 i = 0; i < c->known.n; i++) {
            struct entrant *y = &c->known.v[i];
            if (y->was_final || y->trial == c->base_trial || !contest_trusts(y, typical) || y->ratio > limit) continue;
            if (!best || y->ratio < best->ratio) best = y;
        }
        if (!best) break;
        best->was_final = true;
        x->h->cand[x->h->n++] = best->cand;
    }
}

/* What may be kept is measured as it is kept, without others in its program. */
static bool build_alone(struct final *x)
{
    struct tuner *t = x->t;
    bool may_join = t->builder.may_join;
    t->builder.may_join = false;
    bool ok = heat_build(t, x->c, x->h);
    t->builder.may_join = may_join;
    for (u32 i = 0; i < x->h->n && ok; i++) x->f[i] = (struct finalist){.is_out = !x->h->building.out[i].ok};
    return ok;
}

bool contest_finals(struct tuner *t, struct contest *c, double end)
{
    struct heat *h = &t->heat[0];
    struct final x = {.t = t, .c = c, .h = h, .end = end};
    double limit = fmin(1, c->best_ratio) * near_best;
    bool ok = true;
    for (u32 n = 0; n < MOST_CONTESTS && ok && !tuner_is_late(t) && (end <= 0 || os_now() < end); n++) {
        heat_reset(h);
        pick(&x, limit);
        if (h->n == 0) break;
        ok = build_alone(&x) && run_rounds(&x);
        limit = fmin(1, c->best_ratio);
    }
    heat_reset(h);
    return ok && reread(t, c);
}
