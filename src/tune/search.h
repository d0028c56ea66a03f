// SPDX-License-Identifier: Apache-2.0
//
// Private to tune/: one task's state while it is tuned, and who is tried next.
#ifndef QUERN_TUNE_SEARCH_H
#define QUERN_TUNE_SEARCH_H

#include "tune/tune.h"

struct entrant {            /* one candidate of a task */
    struct candidate cand;
    double predicted;       /* seconds, by the model */
    i64 trial;              /* row id; 0: not in the database yet */
    enum trial_status status;
    u32 n;                  /* samples taken */
    double median, ratio;   /* of all samples, also earlier runs' */
};

enum { DRIFT_SAMPLES = 10 };

struct contest {            /* one task at its sizes */
    const struct tune_task *t;
    i64 db_task;
    struct str sizes;
    struct str label;       /* for people */
    struct { struct entrant *v; u32 n, cap; } known; /* in the database, in order of adding; [0] is the default once measured */
    struct { struct entrant *v; u32 n, cap; } pool;  /* not tried yet, best predicted first */
    u32 next;               /* in the pool */
    bool is_filled;         /* the pool: made when it is first asked for */
    struct map seen;        /* candidate text -> 1 */
    double predicted;       /* seconds of the default, by the model */
    bool is_ready;          /* base is built and measured */
    bool is_hopeless;       /* not even the default works */
    bool is_done;           /* nothing new to try */
    struct subject base;
    struct stats base_time;
    double early[DRIFT_SAMPLES], late[DRIFT_SAMPLES]; /* the base's first samples beside candidates, and its last, a ring */
    u32 n_beside;           /* samples of the base beside candidates */
    double best;            /* seconds, of the best verified candidate */
    double best_ratio;      /* of its time and the base's */
    i32 best_at;            /* in known, -1: none */
    u32 n_tried, n_idle;    /* trials; trials since the last improvement */
};

void contest_fill_pool(struct contest *c, const struct caps *caps, u64 seed, struct arena *a);
/* Up to max candidates not tried yet: the best predicted, then variations of the best measured, in turn with the rest of the pool. */
u32 contest_propose(struct contest *c, const struct caps *caps, struct rng *r, struct candidate *out, u32 max);
bool contest_mark(struct contest *c, const struct candidate *cand); /* true: was not seen before */
void contest_update_best(struct contest *c);

#endif
