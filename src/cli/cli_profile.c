// SPDX-License-Identifier: Apache-2.0
//
// Profiles of a program: its steps, medians of several runs, then totals by operators.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROUNDS = 25, N_KINDS = 3 };
static const double profile_seconds = 2; /* no further round is started after that */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median_of(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, compare);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Steps, with the medians of their times; seconds: n times MAX_ROUNDS. */
static quern_status measure(quern_program *p, struct tensors *in, struct tensors *out, struct quern_step *step, double *seconds, int n)
{
    quern_status s = QUERN_OK;
    int rounds = 0;
    for (double start = now(); !s && rounds < MAX_ROUNDS && (!rounds || now() - start < profile_seconds); rounds++) {
        quern_profile(p, 1);
        s = quern_run(p, in->v, in->n, out->v, out->n);
        quern_profile_steps(p, step, n);
        for (int i = 0; i < n; i++) seconds[i * MAX_ROUNDS + rounds] = step[i].seconds;
    }
    for (int i = 0; i < n; i++) step[i].seconds = median_of(&seconds[i * MAX_ROUNDS], rounds);
    return s;
}

static void print_line(double seconds, double total)
{
    printf("%10.4f %6.2f", seconds * 1e3, total > 0 ? 100 * seconds / total : 0);
}

static void print_step(const struct quern_step *st, double total)
{
    print_line(st->seconds, total);
    if (st->flops > 0 && st->seconds > 0) printf(" %9.2f", st->flops / st->seconds * 1e-9);
    else printf(" %9s", "");
    printf("  %s  %s\n", st->kernel, st->label);
}

static void print_json_step(const struct quern_step *st)
{
    printf("{\"ms\":%.6f,\"kernel\":", st->seconds * 1e3);
    json_text(st->kernel);
    printf(",\"label\":");
    json_text(st->label);
    printf(",\"layer\":");
    json_text(st->layer);
    printf(",\"operators\":");
    json_text(st->operators);
    if (st->flops > 0 && st->seconds > 0) printf(",\"gflops\":%.3f", st->flops / st->seconds * 1e-9);
    printf(",\"flops\":%.0f,\"bytes\":%.0f", st->flops, st->bytes);
    printf("}\n");
}

/* By operators. */

struct share { const char *name; double seconds; int steps; };

static int compare_shares(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    return x->seconds != y->seconds ? (x->seconds < y->seconds) - (x->seconds > y->seconds) : strcmp(x->name, y->name);
}

/* A step that contains a convolution counts as one, whatever is fused with it. */
static int kind_of(const char *operators) { return strstr(operators, "Conv") ? 0 : strstr(operators, "Pool") ? 1 : 2; }

static void print_kinds(const struct quern_step *st, int n, double total)
{
    struct share kind[N_KINDS] = {{"convolutions", 0, 0}, {"pools", 0, 0}, {"others", 0, 0}};
    for (int i = 0; i < n; i++) {
        struct share *k = &kind[kind_of(st[i].operators)];
        k->seconds += st[i].seconds, k->steps++;
    }
    for (int k = 0; k < N_KINDS; k++) {
        print_line(kind[k].seconds, total);
        printf(" %9d  %s\n", kind[k].steps, kind[k].name);
    }
}

static void print_operators(const struct quern_step *st, int n, double total)
{
    struct share *share = calloc((size_t)n + 1, sizeof *share);
    int n_shares = 0;
    if (!share) return;
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < n_shares && strcmp(share[k].name, st[i].operators)) k++;
        if (k == n_shares) share[n_shares++].name = st[i].operators;
        share[k].seconds += st[i].seconds, share[k].steps++;
    }
    qsort(share, (size_t)n_shares, sizeof *share, compare_shares);
    printf("\n%10s %6s %9s  %s\n", "ms", "%", "steps", "operators");
    for (int k = 0; k < n_shares; k++) {
        print_line(share[k].seconds, total);
        printf(" %9d  %s\n", share[k].steps, *share[k].name ? share[k].name : "(not known)");
    }
    printf("\n");
    print_kinds(st, n, total);
    free(share);
}

static void print_profile(const struct cli *c, const quern_program *p, const struct quern_step *st, int n)
{
    double total = 0;
    bool is_json = opts_flag(c, "json", false);
    for (int i = 0; i < n; i++) total += st[i].seconds;
    if (!is_json) printf("%10s %6s %9s  %s\n", "ms", "%", "GFLOP/s", "kernel, nodes");
    for (int i = 0; i < n; i++) {
        if (is_json) print_json_step(&st[i]);
        else print_step(&st[i], total);
    }
    if (is_json) return;
    printf("%10.4f ms in %d dispatches, %.1f MB of temporary memory\n", total * 1e3, n, (double)quern_program_memory(p) * 1e-6);
    print_operators(st, n, total);
}

quern_status profile_steps(quern_program *p, struct tensors *in, struct tensors *out, struct quern_step **steps, int *n)
{
    *n = quern_profile_steps(p, NULL, 0);
    struct quern_step *step = calloc((size_t)*n + 1, sizeof *step);
    double *seconds = calloc((size_t)*n * MAX_ROUNDS + 1, sizeof *seconds);
    quern_status s = step && seconds ? measure(p, in, out, step, seconds, *n) : QUERN_SYSTEM;
    free(seconds);
    *steps = step;
    return s;
}

quern_status profile_net(struct cli *c, quern_program *p, struct tensors *in, struct tensors *out)
{
    struct quern_step *step;
    int n;
    const char *dir = opts_text(c, "breakdown");
    quern_status s = profile_steps(p, in, out, &step, &n);
    if (!s) print_profile(c, p, step, n);
    if (!s && dir) s = quern_breakdown_write(p, step, n, dir);
    free(step);
    return s;
}
