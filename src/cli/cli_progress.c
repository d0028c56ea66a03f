// SPDX-License-Identifier: Apache-2.0
//
// Output of events for people and programs: on a terminal one live line,
// rewritten in place; otherwise a plain line every few seconds; with --json one
// object per event on standard output, and errors as text on standard error, too. Messages are printed
// above the live line.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct progress {
    bool is_json, is_live, is_quiet;
    bool has_line; /* the live line is visible */
    double last;   /* time of its last update */
    double best;
};

struct progress *progress_open(const struct cli *c)
{
    struct progress *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->is_json = opts_flag(c, "json", false);
    p->is_quiet = opts_flag(c, "quiet", false);
    p->is_live = !p->is_json && isatty(STDERR_FILENO);
    return p;
}

static void clear_line(struct progress *p)
{
    if (p->has_line) fputs("\r\033[K", stderr);
    p->has_line = false;
}

static void put_time(double s)
{
    if (s < 100) fprintf(stderr, ", %.0f s left", s);
    else if (s < 6000) fprintf(stderr, ", %.0f min left", s / 60);
    else fprintf(stderr, ", %.1f h left", s / 3600);
}

/* What is known. */
static void put_progress(struct progress *p, const struct quern_event *e)
{
    double t = now();
    if (p->is_quiet || t - p->last < (p->is_live ? 0.2 : 5)) return;
    p->last = t;
    clear_line(p);
    fprintf(stderr, "%lld", (long long)e->done);
    if (e->total >= 0) fprintf(stderr, " of %lld", (long long)e->total);
    fputs(" done", stderr);
    if (e->best > 0) fprintf(stderr, ", %.2fx as fast", e->best);
    if (e->failures > 0) fprintf(stderr, ", %lld failed", (long long)e->failures);
    if (e->seconds_left >= 0) put_time(e->seconds_left);
    fprintf(stderr, "  %.60s", e->text ? e->text : "");
    if (p->is_live) p->has_line = true;
    else fputc('\n', stderr);
    fflush(stderr);
}

static void put_json_progress(const struct quern_event *e)
{
    printf("{\"event\":\"progress\",\"done\":%lld,\"total\":%lld,\"failures\":%lld,\"best\":%.4f,"
           "\"seconds_left\":%.1f,\"what\":",
           (long long)e->done, (long long)e->total, (long long)e->failures, e->best,
           e->seconds_left);
    json_text(e->text ? e->text : "");
    puts("}");
    fflush(stdout);
}

static void put_log(struct progress *p, const struct quern_event *e)
{
    static const char *const word[] = {"error: ", "warning: ", "", ""};
    if (!strncmp(e->text, "--- ", 4)) { /* a dump */
        clear_line(p);
        printf("%s\n", e->text);
        return;
    }
    if (p->is_json) {
        printf("{\"event\":\"message\",\"level\":%d,\"text\":", e->level);
        json_text(e->text);
        puts("}");
        fflush(stdout);
        if (e->level > 0) return;
    }
    clear_line(p);
    fprintf(stderr, "quern: %s%s\n", word[e->level >= 0 && e->level < 4 ? e->level : 3], e->text);
}

void progress_event(void *user, const struct quern_event *e)
{
    struct progress *p = user;
    switch (e->kind) {
    case QUERN_LOG: put_log(p, e); break;
    case QUERN_PROGRESS:
        if (e->best > 0) p->best = e->best;
        if (p->is_json) put_json_progress(e);
        else put_progress(p, e);
        break;
    case QUERN_RESULT:
        if (p->is_json) {
            printf("{\"event\":\"result\",\"result\":%s}\n", e->text);
            fflush(stdout);
        }
        break;
    default: break;
    }
}

void progress_close(struct progress *p)
{
    if (!p) return;
    clear_line(p);
    fflush(stderr);
    free(p);
}

double progress_best(const struct progress *p) { return p->best; }
