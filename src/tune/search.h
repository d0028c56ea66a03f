// SPDX-License-Identifier: Apache-2.0
//
// Private to tune/: one task's state while it is tuned, and who is tried next.
#ifndef QUERN_TUNE_SEARCH_H
#define QUERN_TUNE_SEARCH_H

#include "tune/tune.h"

enum { N_FACTS = 10 };

struct entrant {            /* one candidate of a task */
    struct candidate cand;
    double predicted;       /* seconds, by its generator; 0: not asked yet */
    i64 trial;              /* row id; 0: not in the database yet */
    enum trial_status status;
    u32 n;                  /* samples taken */
    bool is_queued;         /* being built, or waiting for its turn */
    bool was_final;         /* in finals of this run */
    u32 n_final;            /* of them */
    double median, ratio;   /* as in its row, also by earlier runs' samples */
    double ratio_low, ratio_high, reference;
    enum { FACTS_NOT_YET, FACTS_KNOWN, FACTS_NONE } facts; /* NONE: its kernel cannot be made */
    float fact[N_FACTS];    /* facts_of */
};

struct entrants { struct entrant *v; u32 n, cap; };

enum { DRIFT_SAMPLES = 10 };

struct contest {            /* one task at its sizes */
    const struct tune_task *t;
    i64 db_task;
    struct str sizes;
    struct str label;       /* for people */
    struct entrants known;  /* in the database, in order of adding */
    struct map place;       /* row id, as bytes -> index in known */
    u32 n_queued;           /* of known */
    struct entrants pool;   /* candidates to choose from, best predicted first */
    bool is_filled;         /* the pool: made when it is first asked for */
    const struct map *only; /* texts of the candidates that may be proposed; NULL: all that are legal */
    struct map seen;        /* candidate text -> 1 */
    double predicted;       /* seconds of the default, by the model */
    bool is_ready;          /* base is built and measured */
    bool is_hopeless;       /* not even the default works */
    bool is_done;           /* nothing new to try */
    struct subject base; struct arena base_arena; /* and all that it refers to */
    i64 base_trial;         /* its row */
    struct stats base_time;
    double early[DRIFT_SAMPLES], late[DRIFT_SAMPLES]; /* the base's first samples beside candidates, and its last, a ring */
    u32 n_beside;           /* samples of the base beside candidates */
    double best;            /* seconds, of the best verified candidate */
    double best_ratio;      /* of its time and the base's */
    i32 best_at;            /* in known, -1: none */
    double typical;         /* reference time beside its trials, when the best was looked for in all of them */
    u32 n_tried, n_idle;    /* trials; trials since the last improvement */
    double rival_ratio;     /* of the rival's time and the base's; 0: there is none, or it failed */
    double hope;            /* share of the best time that the next trial may save, as the model has it */
};

/* What is common to all contests on a device. */
struct search {
    const struct caps *caps;
    struct rng rng;
    struct contest *const *past; u32 n_past; /* contests that others may learn from */
};

/* contest.c */
struct shelf { struct db *db; i64 env; const struct caps *caps; struct arena *arena; struct err *e; }; /* where contests come from */
bool contest_load(struct contest *c, const struct tune_task *task, const struct shelf *s); /* with all that is known */
/* What may be learnt from: n contests, and all other tasks that the database knows. */
bool contests_past(struct search *to, struct contest *v, u32 n, const struct shelf *s);
const u64 *contest_find(const struct contest *c, i64 trial); /* its place in known; NULL: it is not there */
u32 contest_add(struct contest *c, struct arena *a, const struct entrant *x); /* the place of what was not there */
void contest_queue(struct contest *c, struct entrant *x, bool is_queued);
void entrant_take(struct entrant *x, const struct trial_row *row); /* what its samples say */
bool contest_reread(struct contest *c, const struct shelf *s); /* what all samples say, and the best as programs choose it */
bool tune_read_todo(struct tune_task *to, const struct db_todo *todo, struct arena *a, struct err *e);

/* pool.c: fills the pool, the same share for each family that can do the task. */
void contest_fill_pool(struct contest *c, const struct caps *caps, u64 seed, struct arena *a);
bool contest_has_seen(const struct contest *c, const struct candidate *cand);
bool contest_mark(struct contest *c, const struct candidate *cand); /* true: was not seen before */

/* search.c: up to max candidates not tried yet. */
u32 contest_propose(struct contest *c, struct search *s, struct candidate *out, u32 max);
void contest_update_best(struct contest *c);
void contest_consider(struct contest *c, struct entrant *x); /* likewise, after a trial of x; of very many trials all are looked at now and then */
/* Verified, and timed while the reference took no longer than usual, or in finals, whatever it took. */
bool contest_trusts(const struct entrant *x, double typical);
double contest_typical(const struct contest *c); /* reference time beside its trials */
double contest_seconds(const struct contest *c, const struct entrant *x); /* of one that was measured */

/* near.c: what other tasks tell. */
double task_distance(const struct task *a, const i64 *var_a, const struct task *b, const i64 *var_b); /* INFINITY: not of the same kind */
double task_nearness(const struct task *a, const i64 *var_a, const struct task *b, const i64 *var_b); /* 1: the same; 0: nothing */
void candidate_move(struct candidate *c, struct rng *r, i64 n); /* n parameters, by up to two values; may not be legal then */
/* The best schedules of the nearest tasks, made legal for this one; how many. */
u32 transfer(const struct contest *c, const struct search *s, struct candidate *out, u32 max);
struct near { const struct contest *c; double near; };
u32 nearest(const struct contest *c, const struct search *s, struct near *out, u32 max); /* those with measurements, nearest first */

/* model.c */
struct point {              /* a schedule as the model sees it */
    const struct gen *gen;
    u32 task;               /* 0: the one that is tuned */
    float near;             /* how much its task tells of the one that is tuned, 0 to 1 */
    float fact[N_FACTS], param[MAX_SCHED];
};
struct model {
    u32 n, max;
    struct point *p;
    double *y;              /* log(measured / predicted) */
    double *l;              /* Cholesky factor, rows of the lower triangle */
    double *weight;
    double variance;        /* of y */
    double level;           /* what was taken off all y of the task that is tuned */
};
/* What a candidate's kernel does, logarithms per operation of the task; false: there is no kernel. */
bool facts_of(float fact[N_FACTS], const struct candidate *c, const struct task *t, const struct caps *caps, const i64 *var,
              double predicted);
void point_of(struct point *p, const struct candidate *c, const float fact[N_FACTS], u32 task, double near);
void model_init(struct model *m, struct arena *a, u32 max);
void model_add(struct model *m, const struct point *p, double y); /* beyond max: nothing */
void model_fit(struct model *m);                    /* after the last is added */
double model_mean(const struct model *m, const struct point *p);
double model_doubt(const struct model *m, const struct point *p, double *v); /* standard deviation; v: room for m->n numbers */
double model_doubt_less(const struct model *m, const struct point *p, double *v); /* after one more row; v as it was left */

#endif
