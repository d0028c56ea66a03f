// SPDX-License-Identifier: Apache-2.0
//
// What several commands need: ends, time, kinds of files, models as the options say.
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

int exit_code(quern_status s)
{
    switch (s) {
    case QUERN_OK: return EXIT_DONE;
    case QUERN_USAGE: return EXIT_USAGE;
    case QUERN_NOTHING: return EXIT_NOTHING;
    case QUERN_FAILED:
    case QUERN_UNSUPPORTED:
    case QUERN_INPUT:
    case QUERN_SYSTEM:
    default: return EXIT_FAILED;
    }
}

int fail(struct cli *c, quern_status s)
{
    if (!s) return EXIT_DONE;
    const char *msg = quern_error(c->q);
    progress_event(c->progress, &(struct quern_event){
                                    .kind = QUERN_LOG, .level = 0, .text = *msg ? msg : "failed"});
    return exit_code(s);
}

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool has_suffix(const char *path, const char *suffix)
{
    size_t n = strlen(path), k = strlen(suffix);
    return n >= k && !strcmp(path + n - k, suffix);
}

bool is_dnx(const char *path)
{
    unsigned char head[9] = {0};
    if (has_suffix(path, ".dnx")) return true;
    FILE *f = has_suffix(path, ".onnx") ? NULL : fopen(path, "rb");
    if (!f) return false;
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    return n == sizeof head && head[8] == '{' && !head[6] && !head[7];
}

void json_text(const char *s)
{
    putchar('"');
    for (; *s; s++) {
        unsigned char ch = (unsigned char)*s;
        if (ch == '"' || ch == '\\') printf("\\%c", ch);
        else if (ch < 32) printf("\\u%04x", ch);
        else putchar(ch);
    }
    putchar('"');
}

quern_status open_model(struct cli *c, const char *path, quern_model **m)
{
    char sizes[512];
    struct quern_model_opts o = QUERN_OPTS(quern_model_opts);
    o.optimize_for = opts_text(c, "optimize-for");
    if (!o.optimize_for) o.optimize_for = opts_words(c, "set", sizes, sizeof sizes);
    *m = NULL;
    return quern_model_open(c->q, path, &o, m);
}

quern_status compile_model(struct cli *c, quern_model *m, quern_db *db, quern_program **p)
{
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    o.device = opts_text(c, "device");
    o.threads = (int)opts_count(c, "threads", 0);
    o.no_fusion = !opts_flag(c, "fusion", true);
    o.untuned = opts_flag(c, "untuned", false);
    *p = NULL;
    return quern_compile(m, db, &o, p);
}

void tune_options(const struct cli *c, struct quern_tune_opts *o)
{
    *o = QUERN_OPTS(quern_tune_opts);
    o->device = opts_text(c, "device");
    o->threads = (int)opts_count(c, "threads", 0);
    o->timeout = opts_number(c, "timeout", 0);
    o->min_samples = (int)opts_count(c, "min-samples", 0);
    o->max_candidates = (int)opts_count(c, "max-candidates", 0);
    o->stop_at_speedup = opts_number(c, "stop-at-speedup", 0);
    o->seed = (uint64_t)opts_count(c, "seed", 0);
}
