// SPDX-License-Identifier: Apache-2.0
//
// quern check: lists every unsupported part of networks, with node, operator and a way out.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A reason, and the number of nodes rejected for it. */
struct reason {
    char *op, *why, *help, *node; /* node: the first of them */
    int count;
};

struct reasons {
    struct cli *c;
    const char *file;
    struct reason *v;
    int n, cap;
};

static void put_json(const struct reasons *r, const struct quern_problem *p)
{
    printf("{\"model\":");
    json_text(r->file);
    printf(",\"node\":");
    json_text(p->node);
    printf(",\"operator\":");
    json_text(p->op);
    printf(",\"why\":");
    json_text(p->why);
    printf(",\"help\":");
    json_text(p->help);
    puts("}");
}

static void add(void *user, const struct quern_problem *p)
{
    struct reasons *r = user;
    if (opts_flag(r->c, "json", false)) {
        put_json(r, p);
        return;
    }
    for (int k = 0; k < r->n; k++)
        if (!strcmp(r->v[k].op, p->op) && !strcmp(r->v[k].why, p->why)) {
            r->v[k].count++;
            return;
        }
    if (r->n == r->cap) {
        int cap = r->cap ? 2 * r->cap : 16;
        struct reason *more = realloc(r->v, (size_t)cap * sizeof *more);
        if (!more) return;
        r->v = more, r->cap = cap;
    }
    r->v[r->n++] = (struct reason){strdup(p->op), strdup(p->why), strdup(p->help), strdup(p->node), 1};
}

static void put_reasons(const struct reasons *r)
{
    for (int k = 0; k < r->n; k++) {
        const struct reason *x = &r->v[k];
        if (*x->op) printf("  %s '%s'", x->op, x->node);
        else printf("  the model");
        if (x->count > 1) printf(" and %d more", x->count - 1);
        printf(": %s\n", x->why);
        if (*x->help) printf("      %s\n", x->help);
    }
}

static void release(struct reasons *r)
{
    for (int k = 0; k < r->n; k++) {
        free(r->v[k].op);
        free(r->v[k].why);
        free(r->v[k].help);
        free(r->v[k].node);
    }
    free(r->v);
}

static void put_summary(const struct reasons *r, const struct quern_report *x)
{
    if (!x->n_problems) {
        printf("%s: %d nodes, all supported\n", r->file, x->n_nodes);
        return;
    }
    printf("%s: %d of %d nodes unsupported", r->file, x->n_problems, x->n_nodes);
    if (x->n_unchecked) printf("; %d later ones were not checked, because their sizes are unknown", x->n_unchecked);
    printf("\n");
    put_reasons(r);
}

/* The exit code of one file. */
static int check(struct cli *c, const char *file)
{
    struct reasons r = {.c = c, .file = file};
    struct quern_report x = QUERN_OPTS(quern_report);
    quern_status s = check_model(c, file, add, &r, &x);
    if (!s && !opts_flag(c, "json", false)) put_summary(&r, &x);
    release(&r);
    if (s) return fail(c, s);
    return x.n_problems ? EXIT_FAILED : EXIT_DONE;
}

static int run(struct cli *c)
{
    int code = EXIT_DONE;
    for (int k = 0; k < c->n_args; k++) {
        int one = check(c, c->arg[k]);
        if (one) code = EXIT_FAILED;
    }
    return code;
}

static const struct opt options[] = {OPT_INTERFACE, OPT_END};

const struct cmd cmd_check = {
    .name = "check",
    .summary = "list every unsupported part of networks, with node, operator and a way out; fails if there is any",
    .args = "MODEL...",
    .min_args = 1,
    .max_args = 64,
    .options = options,
    .run = run,
};
