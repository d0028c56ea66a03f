// SPDX-License-Identifier: Apache-2.0
//
// quern run: runs a network on files, or times it on
// random inputs. A model is compiled in memory first.
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_SAMPLES = 100000 };

struct net {
    quern_model *m;
    quern_db *db;
    quern_program *p;
    struct tensors in, out;
    bool is_random; /* inputs are created after compiling */
};

static bool wants_profile(const struct cli *c) { return opts_flag(c, "profile", false) || opts_text(c, "breakdown"); }

/* A model is compiled for the sizes of its input files, unless others are requested. */
static int read_inputs(struct cli *c, struct net *net)
{
    struct wants w;
    int code = net->m ? wants_of_model(c, net->m, &w) : wants_of_program(c, net->p, &w);
    if (code) return code;
    if (net->is_random) {
        if (w.n == 0 || opts_flag(c, "bench", false) || wants_profile(c))
            return EXIT_DONE;
        return usage_error(c, "no input: give -i FILE, or --bench for random inputs");
    }
    code = tensors_read(c, &w, &net->in);
    if (code || !net->m || opts_text(c, "optimize-for")) return code;
    const char *sizes = tensors_sizes(c, &w, &net->in);
    return *sizes ? fail(c, quern_model_optimize_for(net->m, sizes)) : EXIT_DONE;
}

static quern_status compile_net(struct cli *c, struct net *net)
{
    const char *db_path = opts_text(c, "db");
    quern_status s = db_path ? quern_db_open(c->q, db_path, &net->db) : QUERN_OK;
    return s ? s : compile_model(c, net->m, net->db, TO_RUN, &net->p);
}

static int open_net(struct cli *c, const char *path, struct net *net)
{
    struct quern_run_opts o = QUERN_OPTS(quern_run_opts);
    o.threads = (int)opts_count(c, "threads", 0);
    o.device = opts_text(c, "device");
    o.isa = opts_text(c, "isa");
    int at = 0;
    net->is_random = !opts_next(c, "input", &at);
    if (!is_dnx(path) && refuse_unsigned(c, path)) return EXIT_USAGE;
    quern_status s =
        is_dnx(path) ? quern_program_open(c->q, path, &o, &net->p) : open_model(c, path, &net->m);
    int code = s ? fail(c, s) : read_inputs(c, net);
    return code || !net->m ? code : fail(c, compile_net(c, net));
}

/* --bench */

/* 95 % interval of the median of n sorted times, by order statistics */
static void interval(const double *ms, int n, double *low, double *high)
{
    int a = (int)floor(n / 2.0 - 0.98 * sqrt(n)), b = (int)ceil(n / 2.0 + 0.98 * sqrt(n));
    *low = ms[a < 0 ? 0 : a];
    *high = ms[b > n - 1 ? n - 1 : b];
}

/* ms: whole runs; on_device: time on the device, without transfers */
static void print_bench(const struct cli *c, double *ms, double *on_device, int n)
{
    double low, high, median = median_of(ms, n), device = median_of(on_device, n);
    interval(ms, n, &low, &high);
    if (opts_flag(c, "json", false))
        printf("{\"median_ms\":%.6f,\"min_ms\":%.6f,\"samples\":%d,\"low_ms\":%.6f,\"high_ms\":%."
               "6f,\"device_ms\":%.6f}\n",
               median, ms[0], n, low, high, device);
    else
        printf("median %.4f ms (95 %%: %.4f to %.4f), min %.4f ms, %d samples, on the device %.4f "
               "ms\n",
               median, low, high, ms[0], n, device);
}

/* Whether the median is certain enough. Checked only occasionally, because it sorts. */
static bool is_certain(const struct cli *c, double *ms, int n)
{
    double share = opts_number(c, "relative-error", 0), low, high;
    if (share <= 0 || n % 8) return false;
    double median = median_of(ms, n);
    interval(ms, n, &low, &high);
    return high - low <= share * median;
}

static quern_status bench(struct cli *c, quern_program *p, struct tensors *in, struct tensors *out)
{
    int64_t least = opts_count(c, "min-samples", 10);
    double budget = opts_number(c, "timeout", 3), start = now();
    quern_status s = QUERN_OK;
    for (int k = 0; k < 3 && !s && (k == 0 || now() - start < budget / 4); k++)
        s = quern_run(p, in->v, in->n, out->v, out->n);
    double *ms = s ? NULL : calloc(2 * MAX_SAMPLES, sizeof *ms);
    double *on_device = ms ? ms + MAX_SAMPLES : NULL;
    int n = 0;
    start = now();
    while (ms && !s && !stop_signal() && n < MAX_SAMPLES && (n < least || n == 0 || now() - start < budget)) {
        if (n >= least && is_certain(c, ms, n)) break;
        double t = now();
        s = quern_run(p, in->v, in->n, out->v, out->n);
        on_device[n] = quern_program_seconds(p) * 1e3;
        ms[n++] = (now() - t) * 1e3;
    }
    if (s == QUERN_STOPPED && n > 1) s = QUERN_OK, n--; /* the interrupted run has no result */
    if (ms && !s && n) print_bench(c, ms, on_device, n);
    free(ms);
    return s;
}

/* the whole */

static quern_status random_inputs(struct cli *c, quern_program *p, struct tensors *in)
{
    const char *s = opts_words(c, "set");
    if (!s) s = opts_words(c, "optimize-for");
    return quern_program_random_inputs(p, s, (uint64_t)opts_count(c, "seed", 0), in->v, MAX_IO,
                                       &in->n);
}

static int run_net(struct cli *c, struct net *net)
{
    struct tensors *in = &net->in, *out = &net->out;
    quern_program *p = net->p;
    bool is_bench = opts_flag(c, "bench", false), is_profile = wants_profile(c);
    out->n = quern_program_outputs(p);
    if (out->n > MAX_IO) return usage_error(c, "the network has more than %d outputs", MAX_IO);
    quern_status s = net->is_random ? random_inputs(c, p, in) : QUERN_OK;
    if (!s && is_bench) s = bench(c, p, in, out);
    if (!s && (is_profile || !is_bench)) s = quern_run(p, in->v, in->n, out->v, out->n);
    if (!s && is_profile) s = profile_net(c, p, in, out);
    return s ? fail(c, s) : tensors_write(c, p, out);
}

static int run(struct cli *c)
{
    struct net net = {0};
    if (quern_is_deployment(c->arg[0])) return deployment_run(c, c->arg[0]);
    for (int k = 0; k < 4; k++) {
        static const char *const only[] = {"place", "fallback", "trace", "requests"};
        if (opts_given(c, only[k])) return usage_error(c, "--%s is for deployments, and '%s' is none", only[k], c->arg[0]);
    }
    int code = open_net(c, c->arg[0], &net);
    if (!code) code = run_net(c, &net);
    tensors_release(&net.in);
    tensors_release(&net.out);
    quern_program_close(net.p);
    quern_db_close(net.db);
    quern_model_close(net.m);
    return code;
}

static const struct opt options[] = {
    {"input", 'i', OPT_TEXT, "[NAME=]FILE", "input: .npy .png .pfm .pb .raw, one per input"},
    {"output", 'o', OPT_TEXT, "[NAME=]FILE", "output, likewise"},
    OPT_THREADS,
    {"bench", 0, OPT_FLAG, NULL, "time the program, on random inputs without -i"},
    {"profile", 0, OPT_FLAG, NULL, "time each dispatch, medians of several runs, on random inputs without -i"},
    {"breakdown", 0, OPT_TEXT, "DIR", "like --profile, and write DIR/breakdown.csv for quern plot DIR"},
    {"place", 0, OPT_TEXT, "X64:0=cpu", "deployments: which device here an instance is; repeatable (default: that which it was made for)"},
    {"fallback", 0, OPT_FLAG, NULL, "deployments: on the CPU what cannot run on its device"},
    {"trace", 0, OPT_TEXT, "FILE", "deployments: write what ran when: JSON for Perfetto and Chrome, or a chart, FILE.svg"},
    {"requests", 0, OPT_COUNT, "N", "deployments, --bench: number of requests at once (default: 3)"},
    OPT_SET,
    {"min-samples", 0, OPT_COUNT, "N", "--bench: minimal number of samples (default: 10)"},
    {"timeout", 0, OPT_TIME, "TIME", "--bench: time limit (default: 3s)"},
    {"relative-error", 0, OPT_NUMBER, "X",
     "--bench: also stop at this relative confidence interval of the median"},
    OPT_SEED,
    OPT_TARGET,
    OPT_INTERFACE,
    OPT_DB,
    OPT_UNTUNED,
    OPT_FUSION,
    OPT_SIGNATURE,
    OPT_END,
};

const struct cmd cmd_run = {
    .name = "run",
    .summary = "run a program, a deployment, or a model compiled in memory",
    .notes = "A program (.dnx) is code: one for the CPU runs with your rights. Run only programs that you made or trust, or\n"
             "require a signature; quern show lists the kinds of code in a program.",
    .args = "MODEL.onnx|NET.dnx|DEPLOYMENT",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
