// SPDX-License-Identifier: Apache-2.0
//
// Private to tune/: the search for one task, and the selection of candidates.
#ifndef QUERN_TUNE_SEARCH_H
#define QUERN_TUNE_SEARCH_H

#include "tune/tune.h"

enum { N_FACTS = 10 };

struct trial {            /* one candidate of a task */
    struct candidate cand;
    double predicted;       /* seconds, by its family; 0: not computed yet */
    i64 id;                 /* row id; 0: not in the database yet */
    enum trial_status status;
    u32 n;                  /* samples taken */
    bool is_queued;         /* being built, or waiting to be measured */
    bool was_final;         /* was a finalist in this run */
    u32 n_final;            /* samples taken as a finalist */
    double median, ratio;   /* as in its row, earlier runs included */
    double ratio_low, ratio_high, reference;
    enum { FACTS_NOT_YET, FACTS_KNOWN, FACTS_NONE } facts; /* NONE: its kernel cannot be generated */
    float fact[N_FACTS];    /* facts_of */
};

struct trials { struct trial *v; u32 n, cap; };

enum { DRIFT_SAMPLES = 10 };

struct task_search {            /* the search for one task at its sizes */
    const struct tune_task *t;
    i64 db_task;
    struct str sizes;
    struct str label;       /* for messages */
    struct trials known;  /* in the database, in insertion order */
    struct map place;       /* row id, as bytes -> index in known */
    u32 n_queued;           /* number of queued ones */
    struct trials pool;   /* candidates to choose from, best predicted first */
    bool is_filled;         /* whether the pool was filled; done on demand */
    const struct map *only; /* texts of the admissible candidates; NULL: all legal ones */
    struct map seen;        /* candidate text -> 1 */
    double predicted;       /* predicted seconds of the default */
    bool is_ready;          /* the base is built and measured */
    bool is_excluded;       /* cannot be measured: not even the default works, or it has no valid sizes or checks */
    bool is_done;           /* no candidates left */
    struct subject base; struct arena base_arena; /* owns the base's memory */
    i64 base_trial;         /* the base's row id */
    struct stats base_time;
    double early[DRIFT_SAMPLES], late[DRIFT_SAMPLES]; /* times of the base beside candidates: the first ones,
                                                         and a ring of the last ones */
    u32 n_beside;           /* number of these samples */
    double best;            /* seconds of the best verified candidate */
    double best_ratio;      /* its ratio to the base */
    i32 best_at;            /* index in known, -1: none */
    double typical;         /* usual reference time, as of the last full update */
    u32 n_tried, n_idle;    /* trials; trials since the last improvement */
    double vendor_ratio;     /* ratio of the vendor baseline to the base; 0: none, or it failed */
    double expected_gain;            /* expected relative gain of the next trial, by the model */
};

/* Common to all searches on a device. */
struct search {
    const struct caps *caps;
    struct rng rng;
    struct task_search *const *past; u32 n_past; /* searches of other tasks, for transfer */
};

/* task_search.c */
/* where searches are loaded from */
struct search_env { struct db *db; i64 env; const struct caps *caps; struct arena *arena; struct err *e; };
/* with all known results */
bool task_search_load(struct task_search *ts, const struct tune_task *task, const struct search_env *env);
/* The tasks to transfer from: n searches, and all other tasks of the database. */
bool search_load_past(struct search *to, struct task_search *v, u32 n, const struct search_env *env);
const u64 *task_search_find(const struct task_search *ts, i64 trial); /* index in known; NULL: missing */
u32 task_search_add(struct task_search *ts, struct arena *a, const struct trial *x); /* index of the added trial */
void task_search_queue(struct task_search *ts, struct trial *x, bool is_queued);
void trial_take_row(struct trial *x, const struct trial_row *row); /* copies statistics of its row */
/* rereads all statistics, and selects the best as programs do */
bool task_search_reread(struct task_search *ts, const struct search_env *env);
bool tune_read_todo(struct tune_task *to, const struct db_todo *todo, struct arena *a, struct err *e);

/* pool.c: fills the pool with an equal share for each matching family. */
void task_search_fill_pool(struct task_search *ts, const struct caps *caps, u64 seed, struct arena *a);
bool task_search_has_seen(const struct task_search *ts, const struct candidate *cand);
bool task_search_mark(struct task_search *ts, const struct candidate *cand); /* true: newly marked */

/* search.c: up to max untried candidates. */
u32 task_search_propose(struct task_search *ts, struct search *s, struct candidate *out, u32 max);
void task_search_update_best(struct task_search *ts);
/* updates the best after a trial of x; with very many trials, all are scanned only now and then */
void task_search_consider(struct task_search *ts, struct trial *x);
/* Verified, and timed while the reference took its usual time, or in finals. */
bool trial_is_trusted(const struct trial *x, double typical);
double task_search_typical(const struct task_search *ts); /* usual reference time beside its trials */
double task_search_seconds(const struct task_search *ts, const struct trial *x); /* of a measured one */

/* near.c: transfer between tasks. */
/* INFINITY: not comparable */
double task_distance(const struct task *a, const i64 *var_a, const struct task *b, const i64 *var_b);
/* 1: equal; 0: unrelated */
double task_nearness(const struct task *a, const i64 *var_a, const struct task *b, const i64 *var_b);
/* moves n parameters by up to two values; the result may be illegal */
void candidate_move(struct candidate *c, struct rng *r, i64 n);
/* The best schedules of the nearest tasks, adapted to be legal for this one; returns their number. */
u32 transfer(const struct task_search *ts, const struct search *s, struct candidate *out, u32 max);
struct neighbour { const struct task_search *ts; double near; };
/* tasks with measurements, nearest first */
u32 nearest(const struct task_search *ts, const struct search *s, struct neighbour *out, u32 max);

/* model.c */
struct point {              /* a schedule in the model's representation */
    const struct gen *gen;
    u32 task;               /* 0: the tuned one */
    float near;             /* weight of its task, 0 to 1 */
    float fact[N_FACTS], param[MAX_SCHED];
};
struct model {
    u32 n, max;
    struct point *p;
    double *y;              /* log(measured / predicted) */
    double *l;              /* Cholesky factor, rows of the lower triangle */
    double *weight;
    double variance;        /* of y */
    double level;           /* mean of y of the tuned task, subtracted from its rows */
};
/* Features of a candidate's kernel: logarithms of counts per operation of the task; false: the
   kernel cannot be generated. */
bool facts_of(float fact[N_FACTS], const struct candidate *c, const struct task *t, const struct caps *caps, const i64 *var,
              double predicted);
void point_of(struct point *p, const struct candidate *c, const float fact[N_FACTS], u32 task, double near);
void model_init(struct model *m, struct arena *a, u32 max);
void model_add(struct model *m, const struct point *p, double y); /* ignored beyond max */
void model_fit(struct model *m);                    /* after all rows are added */
double model_mean(const struct model *m, const struct point *p);
/* standard deviation; v has room for m->n numbers */
double model_deviation(const struct model *m, const struct point *p, double *v);
/* after one more row was added; updates v */
double model_deviation_after(const struct model *m, const struct point *p, double *v);

#endif
