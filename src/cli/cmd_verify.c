// SPDX-License-Identifier: Apache-2.0
//
// quern verify: a program against the reference evaluator on
// random inputs, or a folder of ONNX test cases (cli_suite.c).
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool print_check(const struct cli *c, const struct quern_check *k)
{
    bool pass = k->n_bad == 0 && k->ulp <= opts_number(c, "max-ulp", INFINITY);
    if (opts_flag(c, "json", false)) {
        printf("{\"output\":");
        json_text(k->output);
        printf(",\"max_abs\":%.6g,\"max_rel\":%.6g,\"ulp\":%.6g,\"bound_ulp\":%.6g,\"bad\":%lld,\"count\":%lld,\"pass\":%s}\n",
               k->max_abs, k->max_rel, k->ulp, k->bound, (long long)k->n_bad, (long long)k->count, pass ? "true" : "false");
    } else {
        printf("%-6s %-24s %11.4g %11.4g %12.4g %11.4g %11.4g %10lld of %lld\n", pass ? "ok" : "WRONG", k->output, k->max_abs, k->max_rel,
               k->tolerance, k->ulp, k->bound, (long long)k->n_bad, (long long)k->count);
    }
    return pass;
}

static void print_head(const struct cli *c)
{
    if (!opts_flag(c, "json", false))
        printf("%-6s %-24s %11s %11s %12s %11s %11s %10s\n", "", "output", "max abs", "max rel", "tolerance", "error (ulp)", "bound (ulp)", "outside");
}

static quern_status get_program(struct cli *c, quern_model *m, quern_db **db, quern_program **p)
{
    const char *path = opts_text(c, "program"), *db_path = opts_text(c, "db");
    struct quern_run_opts o = QUERN_OPTS(quern_run_opts);
    o.threads = (int)opts_count(c, "threads", 0);
    o.device = opts_text(c, "device");
    o.isa = opts_text(c, "isa");
    if (path) return quern_program_open(c->q, path, &o, p);
    quern_status s = db_path ? quern_db_open(c->q, db_path, db) : QUERN_OK;
    return s ? s : compile_model(c, m, *db, TO_CHECK, p);
}

static int verify(struct cli *c, quern_model *m, quern_program *p)
{
    struct quern_check k[MAX_IO];
    int n = 0, bad = 0;
    const char *sizes = opts_words(c, "set");
    quern_status s = quern_verify(m, p, sizes, (uint64_t)opts_count(c, "seed", 0), k, MAX_IO, &n);
    if (s) return fail(c, s);
    print_head(c);
    for (int i = 0; i < n; i++) bad += !print_check(c, &k[i]);
    return bad ? EXIT_FAILED : EXIT_DONE;
}

struct table { struct cli *c; int bad; };

static void print_tensor(void *user, const char *subgraph, const struct quern_check *k)
{
    struct table *t = user;
    struct quern_check named = *k;
    named.output = cli_text(t->c, "%s%s%s", subgraph ? subgraph : "", subgraph ? "/" : "", k->output);
    t->bad += !print_check(t->c, &named);
}

static int verify_deployment(struct cli *c, quern_model *m, const char *path)
{
    quern_deployment *d = NULL;
    struct table t = {.c = c};
    int code = deployment_open(c, path, &d);
    if (!code) {
        print_head(c);
        code = fail(c, quern_verify_deployment(m, d, opts_words(c, "set"), (uint64_t)opts_count(c, "seed", 0), print_tensor, &t));
    }
    quern_deployment_close(d);
    return code ? code : t.bad ? EXIT_FAILED : EXIT_DONE;
}

/* Programs are not run for it: selected kernels need not be built. */
static int verify_exact(struct cli *c, quern_model *m)
{
    const char *db_path = opts_text(c, "db");
    quern_db *db = NULL;
    quern_status s = db_path ? quern_db_open(c->q, db_path, &db) : QUERN_OK;
    int code = s ? fail(c, s) : exact_run(c, m, db);
    quern_db_close(db);
    return code;
}

static int run(struct cli *c)
{
    quern_db *db = NULL;
    quern_model *m = NULL;
    quern_program *p = NULL;
    const char *suite = opts_text(c, "suite"), *path = opts_text(c, "program");
    if (suite && c->n_args) return usage_error(c, "unexpected model: --suite runs the models of a folder");
    if (suite) return suite_run(c, suite);
    if (c->n_args < 1) return usage_error(c, "the model is missing");
    if (is_dnx(c->arg[0]))
        return usage_error(
            c, "a program has no reference of its own, use quern verify MODEL --program %s",
            c->arg[0]);
    quern_status s = open_model(c, c->arg[0], &m);
    if (!s && opts_flag(c, "exact", false)) {
        int code = verify_exact(c, m);
        quern_model_close(m);
        return code;
    }
    if (!s && path && quern_is_deployment(path)) {
        int code = verify_deployment(c, m, path);
        quern_model_close(m);
        return code;
    }
    if (!s) s = get_program(c, m, &db, &p);
    int code = s ? fail(c, s) : opts_flag(c, "per-layer", false) ? layers_run(c, m, p) : verify(c, m, p);
    quern_program_close(p);
    quern_db_close(db);
    quern_model_close(m);
    return code;
}

static const struct opt options[] = {
    OPT_SET,
    {"program", 0, OPT_TEXT, "NET.dnx|DEPLOYMENT", "verify this program or deployment of the model instead of compiling it"},
    {"place", 0, OPT_TEXT, "X64:0=cpu", "deployments: which device here an instance is; repeatable"},
    {"fallback", 0, OPT_FLAG, NULL, "deployments: on the CPU what cannot run on its device"},
    {"per-layer", 0, OPT_FLAG, NULL, "verify each kernel separately, on the reference's values; names the first beyond its bound"},
    {"exact", 0, OPT_FLAG, NULL, "verify each kernel in exact arithmetic, in an interpreter"},
    OPT_DB,
    OPT_UNTUNED,
    OPT_FUSION,
    OPT_TARGET,
    OPT_INTERFACE,
    OPT_THREADS,
    OPT_SEED,
    OPT_SIGNATURE,
    {"max-ulp", 0, OPT_NUMBER, "N", "also fail outputs with an error above N units in the last place of the largest value"},
    {"suite", 0, OPT_TEXT, "DIR",
     "ONNX test cases: */model.onnx, test_data_set_N/{input,output}_K.pb"},
    {"filter", 0, OPT_TEXT, "GLOB", "--suite: only cases with matching names"},
    {"jobs", 'j', OPT_COUNT, "N", "--suite: parallel processes (default: 2)"},
    {"limit", 0, OPT_TIME, "TIME", "--suite: time limit per case (default: 60s)"},
    {"rtol", 0, OPT_NUMBER, "X",
     "--suite: relative tolerance (default: 1e-3, 16-bit floats 1e-2)"},
    {"atol", 0, OPT_NUMBER, "X",
     "--suite: absolute tolerance, relative to the largest value (default: 1e-6, 16-bit floats 1e-3)"},
    OPT_END,
};

const struct cmd cmd_verify = {
    .name = "verify",
    .summary = "verify a program against the reference evaluator, or run a folder of test cases",
    .args = "MODEL",
    .min_args = 0,
    .max_args = 1,
    .options = options,
    .run = run,
};
