// SPDX-License-Identifier: Apache-2.0
//
// quern populate: generates and builds the candidates
// of a model into a database, for quern bench.
#include "cli.h"

#include <stdio.h>

static int run(struct cli *c)
{
    const char *path = opts_text(c, "db"), *model = c->arg[c->n_args - 1];
    quern_db *db = NULL;
    quern_model *m;
    struct quern_tune_opts o;
    struct quern_target_opts t;
    if (path && c->n_args > 1) return usage_error(c, "unexpected argument '%s': --db names the database already", c->arg[0]);
    if (c->n_args > 1) path = c->arg[0];
    if (!path) return usage_error(c, "--db is missing");
    tune_options(c, &o, &t);
    quern_status s = open_model(c, model, &m);
    if (!s) s = quern_db_open(c->q, path, &db);
    if (!s) s = quern_populate(db, m, &o);
    int code = fail(c, s);
    quern_db_close(db);
    quern_model_close(m);
    return code;
}

static const struct opt options[] = {
    OPT_DB,
    OPT_TARGET,
    OPT_INTERFACE,
    OPT_THREADS,
    {"max-candidates", 0, OPT_COUNT, "N", "candidates per task (default: as many as the search adds)"},
    OPT_SEED,
    OPT_EFFORT,
    OPT_SETS,
    OPT_FUSION,
    OPT_END,
};

const struct cmd cmd_populate = {
    .name = "populate",
    .summary = "generate and build the candidates of a model into a database",
    .args = "[DB] MODEL",
    .min_args = 1,
    .max_args = 2,
    .options = options,
    .run = run,
};
