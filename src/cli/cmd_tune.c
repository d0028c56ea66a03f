// SPDX-License-Identifier: Apache-2.0
//
// quern tune: populate, guided measuring and compile in one step. The database
// is beside the program unless named, so that a second run continues the first.
#include "cli.h"

#include <stdio.h>
#include <string.h>

static void print_end(const struct cli *c, const char *out)
{
    double best = progress_best(c->progress);
    if (opts_flag(c, "json", false)) {
        printf("{\"event\":\"done\",\"best\":%.4f,\"output\":", best);
        json_text(out);
        puts("}");
    } else if (best > 0 && !opts_flag(c, "quiet", false)) {
        printf("%s: %.2f times as fast as untuned, by the times of its kernels\n", out, best);
    }
}

/* Only tuning is stopped; the best program so far is written nevertheless. */
static quern_status write_program(struct cli *c, quern_model *m, quern_db *db, quern_program **p)
{
    if (stop_signal()) quern_resume(c->q);
    quern_status s = compile_model(c, m, db, TO_SHIP, p);
    if (s == QUERN_STOPPED) { /* the signal arrived only now */
        quern_resume(c->q);
        s = compile_model(c, m, db, TO_SHIP, p);
    }
    return s ? s : quern_program_save(*p, opts_text(c, "output"));
}

static void note_stop(const struct cli *c, const char *db)
{
    char text[4200];
    snprintf(text, sizeof text, "stopped: the measurements are in '%s', and the same command continues from there", db);
    progress_event(c->progress, &(struct quern_event){.kind = QUERN_LOG, .level = 2, .text = text});
}

static int run(struct cli *c)
{
    char path[4096];
    const char *out = opts_text(c, "output"), *db_path = opts_text(c, "db");
    quern_db *db = NULL;
    quern_model *m;
    quern_program *p = NULL;
    struct quern_tune_opts o;
    struct quern_target_opts t;
    if (!out) return usage_error(c, "-o is missing");
    int refused = db_path ? EXIT_DONE : default_db(c, out, ".dnx", path, sizeof path);
    if (refused) return refused;
    if (!db_path) db_path = path;
    tune_options(c, &o, &t);
    quern_status s = open_model(c, c->arg[0], &m);
    if (!s) s = quern_db_open(c->q, db_path, &db);
    if (!s) s = quern_tune(db, m, &o);
    if (!s) s = write_program(c, m, db, &p);
    int code = fail(c, s);
    if (!s) print_end(c, out);
    if (!s && stop_signal()) note_stop(c, db_path);
    quern_program_close(p);
    quern_db_close(db);
    quern_model_close(m);
    return code;
}

static const struct opt options[] = {
    OPT_OUTPUT("NET.dnx", "the program"),
    {"db", 0, OPT_TEXT, "DB", "database of measurements (default: NET.db, beside the program)"},
    OPT_TIMEOUT,
    OPT_SAMPLES,
    {"max-candidates", 0, OPT_COUNT, "N", "candidates per task (default: as many as time permits)"},
    {"stop-at-speedup", 0, OPT_NUMBER, "X", "stop when the program is X times as fast as the untuned one"},
    OPT_SEED,
    OPT_TARGET,
    OPT_INTERFACE,
    OPT_THREADS,
    OPT_FUSION,
    OPT_PROVE,
    OPT_END,
};

const struct cmd cmd_tune = {
    .name = "tune",
    .summary = "populate, bench and compile in one step",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
