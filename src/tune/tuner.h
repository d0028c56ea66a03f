// SPDX-License-Identifier: Apache-2.0
//
// Private to tune.c, batch.c, final.c, vendor.c and report.c: the state of a run.
#ifndef QUERN_TUNE_TUNER_H
#define QUERN_TUNE_TUNER_H

#include "tune/search.h"

enum {
    MAX_BATCH = 64,
    MAX_CHECKS = 6
};

struct batch { /* candidates that are built together and share a child process */
    struct arena arena; /* kernels, texts and code of these candidates; reset with the batch */
    struct candidate cand[MAX_BATCH];
    u32 trial[MAX_BATCH]; /* index in the search's known trials */
    struct subject subject[MAX_BATCH];
    struct str text[MAX_BATCH];
    struct building building;
    u32 n;
    struct trial_session session;
    bool is_final;
    struct trial_opts opts;
    const struct check *checks[MAX_CHECKS];
};

struct tuner {
    struct db *db;
    const struct tune_opts *o;
    struct arena arena; /* of the whole run; grows by a few hundred bytes per candidate */
    struct arena check_arena; /* lifetime of the checks */
    struct cache cache;
    struct builder builder;
    struct caps caps;
    i64 env;
    struct task_search *searches;
    u32 n;
    struct search search;
    double start, end; /* end 0: unlimited */
    struct tune_result *r;
    struct buf toolchain;
    struct check check[MAX_CHECKS]; /* of the search in checks_of */
    u32 n_checks;                    /* number of checks for verification */
    struct check *timing;            /* one of these, or the one after them */
    const struct task_search *checks_of;
    struct batch batch[2];             /* one is measured while the other is built */
    struct batch *ahead;              /* built for the current search; NULL: none */
    struct err *e;
};

/* batch.c */
enum batch_kind { BATCH_TRIALS, BATCH_FINAL, BATCH_FINAL_COLD /* with one sample after flushing caches */ };
bool tuner_is_late(const struct tuner *t); /* the time is over, or the run was stopped */
u32 tuner_min_samples(const struct tune_opts *o);
bool tuner_knows(const struct tuner *t); /* a verified candidate of any task */
double tuner_deadline(const struct tuner *t); /* by os_now; 0: none yet */
void batch_reset(struct batch *b); /* drops its candidates and abandons their builds */
/* adds the candidates to the database and emits their texts */
bool batch_emit(struct tuner *t, struct task_search *ts, struct batch *b);
/* starts building, with n_now processes */
bool batch_start(struct tuner *t, struct batch *b, u32 n_now);
/* emits and builds; candidates that cannot be emitted become rows and are dropped */
bool batch_build(struct tuner *t, struct task_search *ts, struct batch *b);
/* prepares for measuring; starts nothing */
void batch_open(struct tuner *t, struct task_search *ts, struct batch *b, enum batch_kind kind);
enum trial_status batch_measure(struct tuner *t, struct task_search *ts, struct batch *b, u32 i, struct buf *reason);
bool trial_set_status(struct tuner *t, struct task_search *ts, struct trial *x, enum trial_status st, struct str reason);

/* final.c: re-measures the best trials of a task on the current checks until decided or os_now
   reaches end (0: unlimited), then sets its best as programs choose it. false: the database failed. */
bool task_search_finals(struct tuner *t, struct task_search *ts, double end);

/* vendor.c: verifies and times the vendor baseline beside the base, which is ready, on the current
   checks. Its failure is a row like any other. false: the database failed. */
bool vendor_measure(struct tuner *t, struct task_search *ts);
bool vendor_measure_again(struct tuner *t, struct task_search *ts); /* beside finals: timed only, if it was verified */

/* report.c. */
double tune_speedup(const struct tuner *t);
/* sum over the program's tasks of their best times; 0: one has none yet */
double tune_seconds(const struct tuner *t);
void report_progress(struct tuner *t, const struct task_search *ts);
void report_trial(struct tuner *t, const struct task_search *ts, const struct trial *x, struct str reason);
void report_drift(struct tuner *t);
bool report_reach(struct tuner *t);
void report_others(const struct tuner *t, double all, double own); /* all, own: os_cpu_seconds at the start */
bool report_nothing(struct tuner *t); /* returns false, with counted reasons */

#endif
