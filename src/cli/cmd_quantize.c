// SPDX-License-Identifier: Apache-2.0
//
// quern quantize: a network in f32 to one of 8 bits, or with weights of few bits, with the error of each layer.
#include "cli.h"

#include <math.h>
#include <stdio.h>

enum { MAX_KEEP = 256 };

struct table {
    const struct cli *c;
    const char *type; /* of quantised layers */
    int n, n_float;   /* layers */
};

static void print_json(const struct table *t, const struct quern_quantized *x)
{
    printf("{\"%s\":", x->is_output ? "output" : "layer");
    json_text(x->name);
    if (!x->is_output) {
        printf(",\"op\":");
        json_text(x->op);
        printf(",\"type\":\"%s\"", x->is_quantized ? t->type : "f32");
        if (x->own >= 0 && isfinite(x->own)) printf(",\"own\":%.6g", x->own);
    }
    if (isfinite(x->total)) printf(",\"total\":%.6g", x->total);
    if (isfinite(x->max_abs)) printf(",\"max_abs\":%.6g", x->max_abs);
    printf("}\n");
}

static void print_row(void *user, const struct quern_quantized *x)
{
    struct table *t = user;
    char own[32] = "-", total[32] = "-", most[32] = "-";
    t->n += !x->is_output, t->n_float += !x->is_output && !x->is_quantized;
    if (opts_flag(t->c, "json", false)) {
        print_json(t, x);
        return;
    }
    if (x->own >= 0) snprintf(own, sizeof own, "%.5f", x->own);
    if (!isnan(x->total)) snprintf(total, sizeof total, "%.5f", x->total), snprintf(most, sizeof most, "%.4g", x->max_abs);
    printf("%-6s %10s %10s %12s  %s%s%s%s\n", x->is_output ? "output" : x->is_quantized ? t->type : "f32", own, total, most, x->name,
           x->is_output ? "" : " (", x->op, x->is_output ? "" : ")");
}

static int keep_list(const struct cli *c, const char **keep)
{
    int at = 0, n = 0;
    const char *v;
    while ((v = opts_next(c, "keep", &at))) {
        if (n == MAX_KEEP) return usage_error(c, "--keep is given more than %d times", MAX_KEEP);
        keep[n++] = v;
    }
    keep[n] = NULL;
    return EXIT_DONE;
}

static int quantize(struct cli *c, quern_model *m, struct samples *s)
{
    const char *keep[MAX_KEEP + 1], *out = opts_text(c, "output");
    const char *weights = opts_text(c, "weights");
    struct table t = {.c = c, .type = weights ? weights : "int8"};
    struct quern_quantize_opts o = QUERN_OPTS(quern_quantize_opts);
    quern_model *q = NULL;
    int code = keep_list(c, keep);
    if (code) return code;
    o.method = opts_text(c, "calibrate");
    o.percentile = opts_number(c, "percentile", 0);
    o.max_error = opts_number(c, "max-error", 0);
    o.keep = keep;
    o.activations = opts_text(c, "activations");
    o.no_bias_correction = !opts_flag(c, "bias-correction", true);
    o.full = opts_flag(c, "full", false);
    o.reduce_range = opts_flag(c, "reduce-range", false);
    o.weights = weights;
    o.block = (int)opts_count(c, "block", 0);
    o.gptq = opts_flag(c, "gptq", false);
    o.device = opts_text(c, "device");
    o.threads = (int)opts_count(c, "threads", 0);
    if (opts_flag(c, "report", true)) o.report = print_row, o.report_user = &t;
    bool json = opts_flag(c, "json", false);
    if (!json && o.report) printf("%-6s %10s %10s %12s  layer\n", "", "own error", "error", "max abs");
    bool has_samples = opts_text(c, "data") != NULL;
    quern_status st = quern_quantize(m, has_samples ? samples_read : NULL, s, &o, &q);
    if (!st) st = quern_model_save(q, out);
    code = s->code ? s->code : fail(c, st);
    if (!code && !json && o.report && has_samples) printf("%d of %d layers quantised with %d samples\n", t.n - t.n_float, t.n, s->n);
    else if (!code && !json && o.report) printf("%d of %d layers quantised\n", t.n - t.n_float, t.n);
    quern_model_close(q);
    return code;
}

static int run(struct cli *c)
{
    const char *data = opts_text(c, "data");
    quern_model *m = NULL;
    struct samples s = {0};
    if (!opts_text(c, "output")) return usage_error(c, "-o is missing");
    if (!data && (!opts_text(c, "weights") || opts_flag(c, "gptq", false))) return usage_error(c, "--data is missing: samples of the inputs, a folder or an .npz file");
    int code = fail(c, open_model(c, c->arg[0], &m));
    if (!code && data) code = samples_open(&s, c, m, data, opts_count(c, "samples", 0));
    if (!code) code = quantize(c, m, &s);
    samples_close(&s);
    quern_model_close(m);
    return code;
}

static const struct opt options[] = {
    {"data", 0, OPT_TEXT, "DIR|FILE.npz", "samples of the inputs: a folder of .npy .png .pfm .pb files (one for each input of several), or arrays by input"},
    OPT_OUTPUT("MODEL.onnx", "the quantised network"),
    {"weights", 0, OPT_TEXT, "TYPE", "quantise only the weights of MatMul and Gemm: int4 or int8; --data is not needed, and only used for errors"},
    {"block", 0, OPT_COUNT, "N", "with --weights: terms of a sum with one scale, 16 to 256 (default: 32)"},
    {"gptq", 0, OPT_FLAG, NULL, "with --weights and --data: later weights of a column make up for the rounding of earlier ones (Frantar et al. 2022)"},
    {"calibrate", 0, OPT_TEXT, "METHOD", "ranges of values: min-max (default), entropy or percentile"},
    {"percentile", 0, OPT_NUMBER, "P", "percentage of the values that a range holds at either end (default: 99.99)"},
    {"max-error", 0, OPT_NUMBER, "X", "leave layers with a larger relative error in f32 (default: none)"},
    {"keep", 0, OPT_TEXT, "GLOB", "leave layers of these names in f32; repeatable"},
    {"activations", 0, OPT_TEXT, "TYPE", "u8 (default) or i8"},
    {"full", 0, OPT_FLAG, NULL, "quantise from the inputs to the outputs, for devices that compute in 8 bits alone"},
    {"reduce-range", 0, OPT_FLAG, NULL, "weights of 7 bits, which processors without VNNI multiply faster"},
    {"bias-correction", 0, OPT_FLAG, NULL, "let biases compensate for the mean error of rounded weights (default; --no-bias-correction: do not)"},
    {"samples", 0, OPT_COUNT, "N", "use only the first N samples (default: all)"},
    {"report", 0, OPT_FLAG, NULL, "measure and print the error of each layer and output (default; --no-report: do not)"},
    OPT_SET,
    OPT_DEVICE,
    OPT_THREADS,
    OPT_INTERFACE,
    OPT_END,
};

const struct cmd cmd_quantize = {
    .name = "quantize",
    .summary = "quantise a network to 8 bits, calibrated on samples of its inputs, or its weights to few bits",
    .notes = "Writes ONNX in QDQ form. Errors are relative: of a layer alone, and in the quantised network (doc/quantize.md).",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
