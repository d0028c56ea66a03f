// SPDX-License-Identifier: Apache-2.0
//
// quern bench: measures the candidates of a database; continues earlier runs.
#include "cli.h"

#include <stdio.h>

static int run(struct cli *c)
{
    quern_db *db = NULL;
    struct quern_tune_opts o;
    struct quern_target_opts t;
    FILE *f = fopen(c->arg[0], "rb");
    if (!f) {
        fprintf(stderr, "quern: cannot open '%s': create a database by quern populate\n", c->arg[0]);
        return EXIT_FAILED;
    }
    fclose(f);
    tune_options(c, &o, &t);
    quern_status s = quern_db_open(c->q, c->arg[0], &db);
    if (!s) s = quern_bench(db, &o);
    int code = fail(c, s);
    quern_db_close(db);
    return code;
}

static const struct opt options[] = {
    OPT_TIMEOUT,
    OPT_SAMPLES,
    {"relative-error", 0, OPT_NUMBER, "X",
     "also stop after three or more samples that differ by at most this fraction"},
    OPT_TARGET,
    OPT_THREADS,
    OPT_SEED,
    OPT_END,
};

const struct cmd cmd_bench = {
    .name = "bench",
    .summary = "measure the candidates of a database, within limits of time and confidence",
    .args = "DB",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
