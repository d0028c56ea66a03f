// SPDX-License-Identifier: Apache-2.0
//
// Private to api/, compiler half: models and databases behind their handles, and how a model becomes a program.
#ifndef QUERN_API_MODEL_H
#define QUERN_API_MODEL_H

#include "api/api.h"
#include "plan/plan.h"
#include "task/task.h"
#include "tune/tune.h"

struct quern_model {
    quern *q;
    struct arena arena;
    struct symtab sym;
    struct graph graph;    /* as imported, inferred */
    struct graph lowered;  /* after the passes: primitives */
    i64 *var;              /* sizes that times refer to, per variable */
    struct str name;       /* file name without folder and suffix */
};

struct quern_db {
    quern *q;
    struct db db;
};

/* Where a program is meant to run: opened once to ask, then closed. */
struct api_target {
    const struct dev_driver *driver;
    struct dev_opts dev;
    struct caps caps;
    const struct lang *lang;
    struct buf fingerprint, toolchain;
};
bool api_target_open(struct api_target *t, const char *device, int threads, struct err *e);
bool api_target_ask(struct api_target *t, struct err *e); /* the same when driver and dev are known */
void api_target_close(struct api_target *t);

/* Costs for the selector: measured where db (may be NULL) knows, else predicted, scaled to agree with what was measured. */
struct api_costs {
    struct db *db;
    i64 env;
    const struct caps *caps;
    double scale;          /* measured / predicted, median over the tasks known; 1 without any */
};
bool api_costs_init(struct api_costs *k, struct db *db, const struct api_target *t, const struct cover *c, const i64 *var, struct err *e);
plan_cost_fn api_cost;

void api_dump(quern *q, const char *stage, struct str text); /* when the options ask for it */
bool api_wants_dump(const quern *q, const char *stage);

#endif
