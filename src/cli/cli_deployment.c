// SPDX-License-Identifier: Apache-2.0
//
// quern run DEPLOYMENT: one request on files or random inputs, or --bench: several requests at once, against one at a time.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_OVERRIDES = 64, MAX_REQUESTS = 256, WARM_UP = 3 };

struct job {
    quern_deployment *d;
    quern_request *r;
    struct tensors in, out;
};

static int request_fail(struct cli *c, const quern_request *r, quern_status s)
{
    if (!s) return EXIT_DONE;
    fprintf(stderr, "quern %s: %s\n", c->cmd->name, quern_request_error(r));
    return exit_code(s);
}

int deployment_open(struct cli *c, const char *path, quern_deployment **d)
{
    const char *place[MAX_OVERRIDES + 1] = {0};
    struct quern_deployment_opts o = QUERN_OPTS(quern_deployment_opts);
    int at = 0, n = 0;
    while (n < MAX_OVERRIDES && (place[n] = opts_next(c, "place", &at))) n++;
    o.devices = place;
    o.threads = (int)opts_count(c, "threads", 0);
    o.fallback = opts_flag(c, "fallback", false);
    o.profile = opts_text(c, "trace") ? opts_flag(c, "profile", false) ? 2 : 1 : 0;
    return fail(c, quern_deployment_open(c->q, path, &o, d));
}

static const char *sizes_of(struct cli *c) { return opts_words(c, "set"); }

static int give_inputs(struct cli *c, struct job *j)
{
    struct wants w;
    int at = 0, code = wants_of_deployment(c, j->d, &w);
    if (code) return code;
    if (!opts_next(c, "input", &at)) {
        if (w.n && !opts_flag(c, "bench", false)) return usage_error(c, "no input: give -i FILE, or --bench for random inputs");
        return request_fail(c, j->r, quern_request_random_inputs(j->r, sizes_of(c), (uint64_t)opts_count(c, "seed", 0)));
    }
    code = tensors_read(c, &w, &j->in);
    for (int k = 0; k < j->in.n && !code; k++) code = request_fail(c, j->r, quern_request_set_input(j->r, k, j->in.v[k]));
    return code;
}

/* Outputs are copied: files of pictures need other tensors. */
static int write_outputs(struct cli *c, struct job *j)
{
    int code = EXIT_DONE;
    j->out.n = quern_deployment_outputs(j->d);
    if (j->out.n > MAX_IO) return usage_error(c, "the network has more than %d outputs", MAX_IO);
    for (int k = 0; k < j->out.n && !code; k++) {
        quern_tensor *t = NULL;
        code = request_fail(c, j->r, quern_request_output(j->r, k, &t));
        if (!code) code = fail(c, quern_tensor_new(c->q, quern_tensor_dtype(t), quern_tensor_rank(t), quern_tensor_dims(t), quern_tensor_data(t), &j->out.v[k]));
    }
    return code ? code : tensors_write_deployment(c, j->d, &j->out);
}

/* --bench */

/* Milliseconds per run with n requests at once, until the time is up; negative: failed, *code says how. */
static double time_requests(struct cli *c, quern_deployment *d, int n, double seconds, int *code)
{
    quern_request *r[MAX_REQUESTS] = {0};
    int64_t runs = 0;
    for (int k = 0; k < n && !*code; k++) {
        *code = fail(c, quern_request_create(d, &r[k]));
        if (!*code) *code = request_fail(c, r[k], quern_request_random_inputs(r[k], sizes_of(c), (uint64_t)k));
        for (int i = 0; i < WARM_UP && !*code; i++) *code = request_fail(c, r[k], quern_request_run(r[k]));
    }
    double begin = now(), end = begin;
    for (int k = 0; k < n && !*code; k++) *code = request_fail(c, r[k], quern_request_start(r[k]));
    for (int k = 0; !*code && (end - begin < seconds || k) && !stop_signal(); k = (k + 1) % n) {
        *code = request_fail(c, r[k], quern_request_wait(r[k], -1, NULL));
        runs++, end = now();
        if (!*code) *code = request_fail(c, r[k], quern_request_start(r[k]));
    }
    for (int k = 0; k < n; k++) quern_request_destroy(r[k]);
    return *code || !runs ? -1 : (end - begin) * 1e3 / (double)runs;
}

static int bench(struct cli *c, quern_deployment *d)
{
    int64_t n = opts_count(c, "requests", 3);
    double seconds = opts_number(c, "timeout", 3) / 2;
    int code = EXIT_DONE;
    if (n < 1 || n > MAX_REQUESTS) return usage_error(c, "--requests %lld: 1 to %d are possible", (long long)n, MAX_REQUESTS);
    double one = time_requests(c, d, 1, seconds, &code), all = code ? -1 : time_requests(c, d, (int)n, seconds, &code);
    if (code || one < 0 || all < 0) return code;
    if (opts_flag(c, "json", false)) printf("{\"one_ms\":%.6f,\"requests\":%lld,\"overlapped_ms\":%.6f}\n", one, (long long)n, all);
    else printf("%.4f ms per run one by one, %.4f ms with %lld requests at once: %.2f times the throughput\n", one, all, (long long)n, one / all);
    return EXIT_DONE;
}

static void print_subgraphs(quern_deployment *d)
{
    struct quern_subgraph s = QUERN_OPTS(quern_subgraph);
    for (int k = 0; quern_deployment_subgraph(d, k, &s); k++)
        fprintf(stderr, "  %-14s %-12s %-9s %8.4f ms%s%s\n", s.name, s.device, s.framework, s.seconds * 1e3, s.state == QUERN_SUBGRAPH_FALLBACK ? " on the CPU: " : "",
                s.state == QUERN_SUBGRAPH_FALLBACK ? s.why : "");
}

static int run(struct cli *c, struct job *j)
{
    int code = fail(c, quern_request_create(j->d, &j->r));
    bool is_bench = opts_flag(c, "bench", false);
    if (!code) code = give_inputs(c, j);
    if (!code) code = request_fail(c, j->r, quern_request_run(j->r));
    if (!code && is_bench) code = bench(c, j->d);
    if (!code && is_bench) print_subgraphs(j->d);
    return code ? code : write_outputs(c, j);
}

/* Options of models and single devices. */
static int check_options(const struct cli *c, const char *path)
{
    static const char *const other[] = {"device", "devices", "isa", "db", "breakdown", "untuned", "fusion", "optimize-for", "assume", "relative-error"};
    for (size_t k = 0; k < sizeof other / sizeof *other; k++)
        if (opts_given(c, other[k])) return usage_error(c, "--%s does not apply to '%s', a deployment%s", other[k], path, k ? "" : ": --place X64:0=GLOB does");
    if (opts_flag(c, "profile", false) && !opts_text(c, "trace")) return usage_error(c, "--profile of a deployment is written by --trace FILE");
    return EXIT_DONE;
}

int deployment_run(struct cli *c, const char *path)
{
    struct job j = {0};
    if (check_options(c, path)) return EXIT_USAGE;
    const char *trace = opts_text(c, "trace");
    int code = deployment_open(c, path, &j.d);
    if (!code) code = run(c, &j);
    if (!code && trace) code = fail(c, quern_deployment_trace(j.d, trace));
    quern_request_destroy(j.r);
    tensors_release(&j.in);
    tensors_release(&j.out);
    quern_deployment_close(j.d);
    return code;
}
