// SPDX-License-Identifier: Apache-2.0
//
// quern allocate: which device runs which operator: a template to be edited, a check of what was
// edited, or the best allocation, with what is expected of it.
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_time(const char *label, double seconds)
{
    printf("%-12s %10.4f ms\n", label, seconds * 1e3);
}

static void print_parts(const struct quern_placement *x)
{
    printf("\n%-4s %-16s %5s %10s %10s  %s\n", "", "device", "ops", "start ms", "ms", "operators");
    for (int i = 0; i < x->n_subgraphs; i++) {
        const struct quern_subgraph_time *p = &x->subgraph[i];
        printf("%-4d %-16s %5d %10.4f %10.4f  %s", i, p->device, p->n_ops, p->start * 1e3,
               p->seconds * 1e3, p->first);
        if (p->n_ops > 1) printf(" .. %s", p->last);
        printf("\n");
    }
}

static void print_report(const struct quern_placement *x)
{
    print_time("latency", x->latency);
    print_time("period", x->period);
    if (x->joules > 0) printf("%-12s %10.4f mJ\n", "energy", x->joules * 1e3);
    if (x->single)
        printf("%-12s %10.4f %s, %s for everything\n", "one device", x->single_value * 1e3,
               strcmp(x->aim, "energy") ? "ms" : "mJ", x->single);
    if (x->bound > 0)
        printf("%-12s %10.4f %s, %s\n", "lower bound", x->bound * 1e3,
               strcmp(x->aim, "energy") ? "ms" : "mJ", x->aim);
    printf("%-12s %10d%s\n", "sub-graphs", x->n_subgraphs,
           x->is_minimal ? "" : " (fewer may be possible)");
    if (x->n_tried)
        printf("%-12s %10lld allocations, %lld sub-graphs compiled%s\n", "compared",
               (long long)x->n_tried, (long long)x->n_compiled,
               x->is_cut_short ? ", ended by the time limit" : "");
    printf("\n%-16s %5s %10s %10s\n", "device", "ops", "sub-graphs", "busy ms");
    for (int k = 0; k < x->n_devices; k++)
        printf("%-16s %5d %10d %10.4f\n", x->device[k].device, x->device[k].n_ops,
               x->device[k].n_subgraphs, x->device[k].busy * 1e3);
    print_parts(x);
}

static void json_number(const char *name, double v)
{
    if (isfinite(v)) printf(",\"%s\":%.9g", name, v);
}

static void print_json(const struct quern_placement *x)
{
    printf("{\"aim\":\"%s\"", x->aim);
    json_number("value", x->value), json_number("latency", x->latency),
        json_number("period", x->period);
    if (x->joules > 0) json_number("joules", x->joules);
    if (x->bound > 0) json_number("bound", x->bound);
    if (x->single)
        printf(",\"single\":\"%s\"", x->single), json_number("single_value", x->single_value);
    printf(",\"tried\":%lld,\"compiled\":%lld,\"cut_short\":%s,\"devices\":[",
           (long long)x->n_tried, (long long)x->n_compiled, x->is_cut_short ? "true" : "false");
    for (int k = 0; k < x->n_devices; k++) {
        printf("%s{\"device\":\"%s\",\"ops\":%d,\"subgraphs\":%d", k ? "," : "",
               x->device[k].device, x->device[k].n_ops, x->device[k].n_subgraphs);
        json_number("busy", x->device[k].busy);
        printf("}");
    }
    printf("],\"minimal\":%s,\"subgraphs\":[", x->is_minimal ? "true" : "false");
    for (int i = 0; i < x->n_subgraphs; i++) {
        const struct quern_subgraph_time *p = &x->subgraph[i];
        printf("%s{\"device\":\"%s\",\"ops\":%d,\"first\":\"%s\",\"last\":\"%s\",\"inputs\":%d,"
               "\"outputs\":%d",
               i ? "," : "", p->device, p->n_ops, p->first, p->last, p->n_inputs, p->n_outputs);
        json_number("start", p->start), json_number("seconds", p->seconds);
        printf("}");
    }
    printf("]}\n");
}

static void see(void *user, const struct quern_placement *x)
{
    const struct cli *c = user;
    if (opts_flag(c, "json", false)) print_json(x);
    else print_report(x);
}

static int write_text(struct cli *c, const char *path, const char *text)
{
    FILE *f = path ? fopen(path, "wb") : stdout;
    bool ok = f && fputs(text, f) >= 0;
    if (path && f) ok = fclose(f) == 0 && ok;
    if (!ok) fprintf(stderr, "quern: '%s' cannot be written\n", path ? path : "standard output");
    return ok ? EXIT_DONE : EXIT_FAILED;
}

static int allocate(struct cli *c, quern_model *m, quern_db *db)
{
    const char *list[MAX_PLACES + 1], *words = opts_words(c, "devices"),
                                      *out = opts_text(c, "output"), *check = opts_text(c, "check");
    struct quern_allocate_opts o = QUERN_OPTS(quern_allocate_opts);
    char *text = words ? strdup(words) : NULL, *json = NULL;
    int code = split_devices(c, text, list);
    o.devices = list, o.check_file = check, o.on = opts_text(c, "template");
    o.minimise = opts_text(c, "minimise"), o.seconds = opts_number(c, "timeout", 0);
    if (opts_flag(c, "report", out && !check && !o.on)) o.report = see, o.report_user = c;
    if (!code) code = fail(c, quern_allocate(m, db, &o, &json));
    if (!code && (out || !check)) code = write_text(c, out, json);
    quern_text_free(json);
    free(text);
    return code;
}

static int run(struct cli *c)
{
    const char *path = opts_text(c, "check");
    quern_model *m = NULL;
    quern_db *db = NULL;
    if (path && opts_text(c, "template"))
        return usage_error(c, "--template and --check exclude each other");
    if (opts_flag(c, "auto", false) && (path || opts_text(c, "template")))
        return usage_error(c, "--auto excludes --template and --check");
    if (!path && !opts_words(c, "devices") && !opts_text(c, "template"))
        return usage_error(c, "--devices is missing: --devices X64:0,NVIDIA:0 (doc/allocation.md)");
    int code = fail(c, open_model(c, c->arg[0], &m));
    if (!code && opts_text(c, "db")) code = open_db(c, c->arg[0], ".onnx", &db);
    if (!code) code = allocate(c, m, db);
    quern_db_close(db);
    quern_model_close(m);
    return code;
}

static const struct opt options[] = {
    OPT_OUTPUT("FILE.json", "the allocation (default: standard output)"),
    {"devices", 0, OPT_WORDS, "X64:0,..",
     "devices with settings, NAME:N=KEY:VALUE;KEY:VALUE (doc/allocation.md)"},
    {"template", 0, OPT_TEXT, "X64:0", "every operator on this device, to be edited"},
    {"auto", 0, OPT_FLAG, NULL, "search for the best allocation (default)"},
    {"minimise", 0, OPT_TEXT, "AIM",
     "latency of a request (default), throughput of a stream, or energy"},
    {"check", 0, OPT_TEXT, "FILE.json", "check an allocation; with -o write it again in order"},
    {"report", 0, OPT_FLAG, NULL,
     "print what is expected of the allocation (default for --auto with -o)"},
    {"timeout", 0, OPT_TIME, "TIME",
     "of the search: 90, 60s, 15min (default: until it has converged)"},
    OPT_DB,
    OPT_INTERFACE,
    OPT_END,
};

const struct cmd cmd_allocate = {
    .name = "allocate",
    .summary = "choose the device of each operator of a network",
    .notes = "Devices, the file and the model of time are described in doc/allocation.md; quern "
             "graph draws the result, quern deploy builds it.",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
