// SPDX-License-Identifier: Apache-2.0
//
// quern conv: the convolutions of a data set by a named implementation, verified
// and timed beside a baseline. Option names are those of similar tools.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "2:5", "2:", ":5", "2"; false: invalid. last 0: all. */
static bool read_layers(const char *s, int *first, int *last)
{
    char *end;
    const char *colon = strchr(s, ':');
    long a = strtol(s, &end, 10), b = 0;
    if (s[0] == '-' || (colon ? end != colon : *end || end == s)) return false;
    if (!colon) b = a + 1;
    else if (colon[1]) {
        b = strtol(colon + 1, &end, 10);
        if (*end || colon[1] == '-' || b <= a) return false;
    }
    if (a > 1 << 20 || b > 1 << 20) return false;
    *first = (int)a, *last = (int)b;
    return true;
}

static int read_options(struct cli *c, struct quern_conv_opts *o)
{
    const char *layers = opts_text(c, "layers");
    o->data = c->n_args ? c->arg[0] : opts_text(c, "paramscsv");
    if (c->n_args && opts_text(c, "paramscsv")) return usage_error(c, "two data sets, '%s' and '%s'", c->arg[0], opts_text(c, "paramscsv"));
    o->first = (int)opts_count(c, "currlayer", 0), o->last = (int)opts_count(c, "lastlayer", 0);
    if (layers && !read_layers(layers, &o->first, &o->last)) return usage_error(c, "--layers is '%s', expected A:B or A", layers);
    o->batch = opts_count(c, "batch", 0);
    o->type = opts_text(c, "dtype");
    o->pass = opts_text(c, "pass");
    o->bias = opts_flag(c, "bias", false);
    o->activation = opts_text(c, "activation");
    o->implementation = opts_text(c, "implementation");
    o->verify = opts_flag(c, "verify", false), o->compare = opts_flag(c, "compareprof", false);
    o->no_build = opts_flag(c, "loadprecompiled", false);
    o->launch_wait = opts_flag(c, "setlaunchwait", false);
    o->warm_up = (int)opts_count(c, "warmupiter", 10), o->total = (int)opts_count(c, "totaliter", 100);
    o->seconds = opts_number(c, "seconds", 0);
    o->baseline = opts_text(c, "baseline");
    o->out = opts_text(c, "out");
    o->plots = opts_flag(c, "enableplots", false);
    if (o->plots && !o->compare) return usage_error(c, "--enableplots needs --compareprof, which measures the times");
    return 0;
}

static void print_times(const char *name, const struct quern_conv_times *t)
{
    printf("  %-32s %10.4f %10.4f %10.4f %10.4f %10.4f   %.4f .. %.4f\n", name, t->min, t->mean, t->median, t->deviation, t->max, t->low,
           t->high);
}

static void print_layer(const struct quern_conv_layer *l)
{
    printf("layer %d: %s\n", l->layer, l->name);
    if (l->candidate[0]) printf("  %s: %s\n", l->implementation, l->candidate);
    for (const char *s = l->report, *end; *s; s = end + (*end != 0)) {
        end = s + strcspn(s, "\n");
        printf("  %.*s\n", (int)(end - s), s);
    }
    if (!l->n) return;
    printf("  %-32s %10s %10s %10s %10s %10s   %s\n", "ms", "min", "mean", "median", "stdev", "max", "median, 95 %");
    print_times(l->implementation, &l->times);
    if (!l->baseline[0]) return;
    print_times(l->baseline, &l->base_times);
    printf("  %.3f times as fast (%.3f .. %.3f), %.1f GFLOP/s\n", l->ratio, l->ratio_low, l->ratio_high,
           l->gflop / (l->times.median * 1e-3));
}

static void print_json_times(const char *key, const struct quern_conv_times *t)
{
    printf(",\"%s\":{\"median\":%.6f,\"low\":%.6f,\"high\":%.6f,\"min\":%.6f,\"mean\":%.6f,\"stdev\":%.6f,\"max\":%.6f}", key, t->median,
           t->low, t->high, t->min, t->mean, t->deviation, t->max);
}

static void print_json(const struct quern_conv_layer *l)
{
    printf("{\"event\":\"layer\",\"layer\":%d,\"name\":", l->layer);
    json_text(l->name);
    printf(",\"implementation\":");
    json_text(l->implementation);
    printf(",\"candidate\":");
    json_text(l->candidate);
    printf(",\"baseline\":");
    json_text(l->baseline);
    printf(",\"ok\":%s,\"report\":", l->ok ? "true" : "false");
    json_text(l->report);
    printf(",\"iterations\":%d", l->n);
    if (l->n) print_json_times("ms", &l->times);
    if (l->n && l->baseline[0]) {
        print_json_times("baseline_ms", &l->base_times);
        printf(",\"ratio\":%.6f,\"ratio_low\":%.6f,\"ratio_high\":%.6f", l->ratio, l->ratio_low, l->ratio_high);
    }
    printf(",\"gflop\":%.6f,\"gbytes\":%.6f}\n", l->gflop, l->gbytes);
}

static void on_layer(void *user, const struct quern_conv_layer *l)
{
    const struct cli *c = user;
    if (opts_flag(c, "json", false)) print_json(l);
    else print_layer(l);
    fflush(stdout);
}

static int list_all(void)
{
    const char *name, *what;
    printf("implementations:\n  %-28s %s\n", "tuned", "the fastest known schedule of any kind (default)");
    for (int k = 0; (name = quern_conv_implementation(k, &what)); k++) printf("  %-28s %s\n", name, what);
    printf("data sets:\n ");
    for (int k = 0; (name = quern_conv_data(k)); k++) printf(" %s", name);
    printf("\n");
    return EXIT_DONE;
}

static int run(struct cli *c)
{
    quern_db *db = NULL;
    struct quern_tune_opts t;
    struct quern_target_opts target;
    struct quern_conv_opts o = QUERN_OPTS(quern_conv_opts);
    if (opts_flag(c, "list", false)) return list_all();
    tune_options(c, &t, &target);
    o.tune = &t;
    int code = read_options(c, &o);
    if (code) return code;
    code = open_db(c, o.data ? o.data : "cosmoflow", ".csv", &db);
    if (!code) code = fail(c, quern_conv(db, &o, on_layer, c));
    quern_db_close(db);
    return code;
}

static const struct opt options[] = {
    {"paramscsv", 0, OPT_TEXT, "NAME|FILE", "the data set, if not an argument (default: cosmoflow)"},
    {"currlayer", 0, OPT_COUNT, "N", "first row (default: 0)"},
    {"lastlayer", 0, OPT_COUNT, "N", "end of the rows, exclusive (default: all)"},
    {"layers", 0, OPT_TEXT, "A:B", "rows A to B, exclusive; A alone: one row"},
    {"implementation", 0, OPT_TEXT, "NAME", "named implementation, see --list (default: tuned)"},
    {"pass", 0, OPT_TEXT, "PASS", "forward, or the gradient with respect to input or weights (default: forward)"},
    {"bias", 0, OPT_FLAG, NULL, "add a bias per output channel"},
    {"activation", 0, OPT_TEXT, "NAME", "none, relu or leakyrelu after each convolution (default: none)"},
    {"verify", 0, OPT_FLAG, NULL, "verify against the definition in double precision"},
    {"compareprof", 0, OPT_FLAG, NULL, "time the implementation and the baseline in turn"},
    {"baseline", 0, OPT_TEXT, "NAME", "vendor, the device's library, or reference, the default schedule (default: vendor if installed)"},
    {"warmupiter", 0, OPT_COUNT, "N", "warm-up rounds (default: 10)"},
    {"totaliter", 0, OPT_COUNT, "N", "measured rounds (default: 100)"},
    {"setlaunchwait", 0, OPT_FLAG, NULL, "exclude launch latency, on devices with a clock"},
    {"enableplots", 0, OPT_FLAG, NULL, "plot the times, like quern plot"},
    {"loadprecompiled", 0, OPT_FLAG, NULL, "use only kernels that were built before"},
    {"seconds", 0, OPT_TIME, "TIME", "tune each row for this time first (default: not at all)"},
    {"max-candidates", 0, OPT_COUNT, "N", "candidates of such tuning (default: 256)"},
    {"batch", 0, OPT_COUNT, "N", "images (default: of the row)"},
    {"dtype", 0, OPT_TEXT, "TYPE", "float32, float16 or bfloat16 (default: float32)"},
    {"out", 0, OPT_TEXT, "DIR", "folder for the files of the run (default: outputplots/out_NAME_BATCH)"},
    {"list", 0, OPT_FLAG, NULL, "list implementations and data sets"},
    {"db", 0, OPT_TEXT, "DB", "database of measurements (default: the data set's name with .db)"},
    OPT_SAMPLES,
    OPT_SEED,
    OPT_TARGET,
    OPT_THREADS,
    OPT_END,
};

const struct cmd cmd_conv = {
    .name = "conv",
    .summary = "verify and time the convolutions of a data set (doc/conv.md)",
    .args = "[NAME|PARAMS.csv]",
    .min_args = 0,
    .max_args = 1,
    .options = options,
    .run = run,
};
