// SPDX-License-Identifier: Apache-2.0
//
// quern gemm: a matrix multiplication in every configuration of a file, verified and timed. The arguments are those
// of similar tools; the database is beside the results unless named, so that a second run continues the first.
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARG_CONFIG, ARG_RESULT, ARG_START, ARG_MAX, ARG_TFLOPS, ARG_SPEEDUP, N_ARGS };

static const char *arg_at(const struct cli *c, int k) { return k < c->n_args ? c->arg[k] : NULL; }

static bool whole(const char *s, int64_t *v)
{
    char *end;
    if (!s) return true;
    errno = 0;
    long long x = strtoll(s, &end, 10);
    *v = x;
    return end != s && !*end && !errno && x >= 0;
}

static bool factor(const char *s, double *v)
{
    char *end;
    if (!s) return true;
    *v = strtod(s, &end);
    return end != s && !*end && *v >= 0 && *v < 1e9;
}

/* The exit code; 0: understood. */
static int read_args(struct cli *c, struct quern_gemm_opts *o, double *speedup)
{
    int64_t check = 0;
    o->result = arg_at(c, ARG_RESULT);
    if (!whole(arg_at(c, ARG_START), &o->start)) return usage_error(c, "START '%s' is not a number", c->arg[ARG_START]);
    if (!whole(arg_at(c, ARG_MAX), &o->max)) return usage_error(c, "MAX '%s' is not a number", c->arg[ARG_MAX]);
    if (!whole(arg_at(c, ARG_TFLOPS), &check) || check > 1)
        return usage_error(c, "CHECKTFLOPS '%s' is neither 0 nor 1", c->arg[ARG_TFLOPS]);
    if (!factor(arg_at(c, ARG_SPEEDUP), speedup)) return usage_error(c, "SPEEDUP '%s' is not a number", c->arg[ARG_SPEEDUP]);
    o->stop_at_tflops = (int)check;
    return 0;
}

static int run(struct cli *c)
{
    quern_db *db = NULL;
    struct quern_tune_opts t;
    struct quern_target_opts target;
    struct quern_gemm_opts o = QUERN_OPTS(quern_gemm_opts);
    struct quern_gemm_best best;
    tune_options(c, &t, &target);
    int code = read_args(c, &o, &t.stop_at_speedup);
    if (code) return code;
    o.rules = opts_text(c, "rules");
    o.type = opts_text(c, "dtype");
    o.baseline = opts_text(c, "baseline");
    o.search = opts_flag(c, "search", false);
    o.tune = &t;
    code = open_db(c, o.result, ".json", &db);
    if (!code) code = fail(c, quern_gemm(db, c->arg[ARG_CONFIG], &o, &best));
    if (!code) print_best(c, &best);
    quern_db_close(db);
    return code;
}

static const struct opt options[] = {
    {"rules", 0, OPT_TEXT, "RULES", "rules that prune the space: own (default), deepgen, deepgen-2025-06"},
    {"dtype", 0, OPT_TEXT, "TYPE", "float32, tf32, float16 or bfloat16 (default: of the file)"},
    {"baseline", 0, OPT_TEXT, "NAME", "baseline of speed-ups: vendor, the device's library, or reference, the default schedule (default: vendor if installed)"},
    {"search", 0, OPT_FLAG, NULL, "search among the candidates of all kernel families, instead of measuring the points in turn"},
    {"max-candidates", 0, OPT_COUNT, "N", "candidates of a search (default: 256)"},
    {"db", 0, OPT_TEXT, "DB", "database of measurements (default: RESULT.db, beside the results)"},
    OPT_TIMEOUT,
    OPT_SAMPLES,
    OPT_SEED,
    OPT_TARGET,
    OPT_THREADS,
    OPT_END,
};

const struct cmd cmd_gemm = {
    .name = "gemm",
    .summary = "measure a matrix multiplication in every configuration of a file (doc/gemm.md)",
    .args = "CONFIG.json RESULT.json [START] [MAX] [CHECKTFLOPS] [SPEEDUP]",
    .min_args = 2,
    .max_args = N_ARGS,
    .options = options,
    .run = run,
};
