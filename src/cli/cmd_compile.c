// SPDX-License-Identifier: Apache-2.0
//
// quern compile: chooses a program by what a database knows (default schedules without one) and
// writes it.
#include "cli.h"

#include <stdio.h>

static int run(struct cli *c)
{
    const char *out = opts_text(c, "output"), *db_path = opts_text(c, "db");
    quern_db *db = NULL;
    quern_model *m;
    quern_program *p = NULL;
    if (!out) return usage_error(c, "-o is missing");
    quern_status s = open_model(c, c->arg[0], &m);
    if (!s && db_path) s = quern_db_open(c->q, db_path, &db);
    if (!s) s = compile_model(c, m, db, &p);
    if (!s) s = quern_program_save(p, out);
    int code = fail(c, s);
    quern_program_close(p);
    quern_db_close(db);
    quern_model_close(m);
    return code;
}

static const struct opt options[] = {
    OPT_OUTPUT("NET.dnx", "the program"),
    OPT_DB,
    OPT_TARGET,
    OPT_INTERFACE,
    OPT_THREADS,
    OPT_UNTUNED,
    OPT_FUSION,
    OPT_END,
};

const struct cmd cmd_compile = {
    .name = "compile",
    .summary = "choose the fastest program by a database and write it",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
