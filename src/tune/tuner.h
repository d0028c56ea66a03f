// SPDX-License-Identifier: Apache-2.0
//
// Private to tune.c and report.c: the state of a run.
#ifndef QUERN_TUNE_TUNER_H
#define QUERN_TUNE_TUNER_H

#include "tune/search.h"

enum {
    MAX_HEAT = 64,
    MAX_CHECKS = 4
};

struct heat { /* candidates that are built together and share a child process */
    struct arena arena; /* kernels, texts and code of these candidates: gone with the next ones */
    struct candidate cand[MAX_HEAT];
    u32 entrant[MAX_HEAT]; /* index in the contest's known */
    struct subject subject[MAX_HEAT];
    struct str text[MAX_HEAT];
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
    struct arena arena; /* the whole run: what grows with the candidates is what is known of each, a few hundred bytes */
    struct arena check_arena; /* as long as the checks */
    struct cache cache;
    struct builder builder;
    struct caps caps;
    i64 env;
    struct contest *contest;
    u32 n;
    struct search search;
    double start, end; /* end 0: no limit */
    struct tune_result *r;
    struct buf toolchain;
    struct check check[MAX_CHECKS]; /* of the contest whose turn it is */
    u32 n_checks;                    /* those that candidates are verified on */
    struct check *timing;            /* one of these, or the one behind them */
    const struct contest *checks_of;
    struct heat heat[2];             /* one is measured, the other built */
    struct heat *ahead;              /* built for the contest whose turn it is; NULL: none */
    struct err *e;
};

/* heat.c */
enum heat_kind { HEAT_TRIALS, HEAT_FINAL, HEAT_FINAL_COLD /* with a sample of empty caches */ };
bool tuner_is_late(const struct tuner *t); /* the run's time is over, or it is to stop */
u32 tuner_min_samples(const struct tune_opts *o);
bool tuner_knows(const struct tuner *t); /* the best of some task */
double tuner_deadline(const struct tuner *t); /* by os_now; 0: none yet */
void heat_reset(struct heat *h); /* forgets its candidates, and gives up what is being built */
bool heat_spell(struct tuner *t, struct contest *c, struct heat *h);       /* the first half: enters and spells */
bool heat_start(struct tuner *t, struct heat *h, u32 n_now);              /* starts building, by n_now processes */
bool heat_build(struct tuner *t, struct contest *c, struct heat *h); /* enters, spells and builds; those that cannot be spelt are rows and drop out */
void heat_open(struct tuner *t, struct contest *c, struct heat *h, enum heat_kind kind); /* ready to be measured; nothing starts yet */
enum trial_status heat_measure(struct tuner *t, struct contest *c, struct heat *h, u32 i, struct buf *reason);
bool entrant_set_status(struct tuner *t, struct contest *c, struct entrant *x, enum trial_status st, struct str reason);

/* final.c: compares the best of a contest again, on the checks of the contest whose turn it is, until that is decided, or by os_now the
   end has come (0: none); the contest's best is then what programs choose. false: the database failed. */
bool contest_finals(struct tuner *t, struct contest *c, double end);

/* rival.c: verifies and times the rival beside the base, which is ready, on the checks of the contest whose turn it is. A rival that
   fails is a row like any other. false: the database failed. */
bool rival_measure(struct tuner *t, struct contest *c);
bool rival_again(struct tuner *t, struct contest *c); /* when finalists are: timed only, if it was verified */

/* report.c: what callers are told. */
double tune_speedup(const struct tuner *t);
double tune_seconds(const struct tuner *t); /* of the program's tasks by their best candidates; 0: one has none yet */
void report_progress(struct tuner *t, const struct contest *c);
void report_trial(struct tuner *t, const struct contest *c, const struct entrant *x, struct str reason);
void report_drift(struct tuner *t);
bool report_reach(struct tuner *t);
void report_others(const struct tuner *t, double all, double own); /* all, own: os_cpu_seconds at the start */
bool report_nothing(struct tuner *t); /* false, with the reasons counted */

#endif
