// SPDX-License-Identifier: Apache-2.0
//
// quern verify --exact and --per-layer: a line per kernel, and the totals.
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct table {
    const struct cli *c;
    int kernels[3], dispatches;
    double seconds;
};

static void print_json(const struct quern_exact *x, const char *verdict)
{
    printf("{\"verdict\":\"%s\",\"layer\":", verdict);
    json_text(x->layer);
    printf(",\"kernel\":");
    json_text(x->kernel);
    printf(",\"sizes\":");
    json_text(x->sizes);
    printf(",\"why\":");
    json_text(x->why);
    printf(",\"dispatches\":%d,\"seconds\":%.3f}\n", x->dispatches, x->seconds);
}

static void print_kernel(void *user, const struct quern_exact *x)
{
    static const char *const name[] = {"exact", "by tolerance", "DIFFERS"};
    struct table *t = user;
    t->kernels[x->verdict]++;
    t->dispatches += x->dispatches;
    t->seconds += x->seconds;
    if (opts_flag(t->c, "json", false)) print_json(x, name[x->verdict]);
    else {
        printf("%-12s %6.2f s  %s: %s%s%s", name[x->verdict], x->seconds, x->layer, x->kernel, *x->sizes ? ", at " : "", x->sizes);
        printf(*x->why ? " (%s)\n" : "\n", x->why);
    }
    fflush(stdout);
}

int exact_run(struct cli *c, quern_model *m, quern_db *db)
{
    struct table t = {.c = c};
    struct quern_target_opts target;
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    compile_options(c, &o, &target);
    quern_status s = quern_verify_exact(m, opts_text(c, "program"), db, &o, (uint64_t)opts_count(c, "seed", 0), print_kernel, &t);
    if (s) return fail(c, s);
    int n = t.kernels[0] + t.kernels[1] + t.kernels[2];
    if (!opts_flag(c, "json", false))
        printf("%d kernels of %d dispatches: %d exact, %d by tolerance, %d differ; %.1f s\n", n, t.dispatches, t.kernels[QUERN_EXACT],
               t.kernels[QUERN_BY_TOLERANCE], t.kernels[QUERN_DIFFERS], t.seconds);
    return t.kernels[QUERN_DIFFERS] ? EXIT_FAILED : EXIT_DONE;
}

/* Per layer. */

struct layers {
    const struct cli *c;
    int n, bad;
    char first[1024]; /* the first one beyond its bound */
    double most;      /* largest loss, */
    char loser[512];  /* and its layer */
};

static void print_layer_json(const struct quern_layer *l)
{
    printf("{\"layer\":");
    json_text(l->layer);
    printf(",\"ops\":");
    json_text(l->ops);
    printf(",\"value\":");
    json_text(l->value);
    printf(",\"kernel\":");
    json_text(l->kernel);
    printf(",\"type\":\"%s\"", l->type);
    if (isfinite(l->loss)) printf(",\"loss\":%.6g", l->loss);
    printf(",\"ulp\":%.6g,\"bound\":%.6g,\"bad\":%lld,\"count\":%lld,\"at\":%lld,\"got\":\"%.9g\",\"want\":\"%.9g\"}\n", l->ulp, l->bound,
           (long long)l->n_bad, (long long)l->count, (long long)l->at, l->got, l->want);
}

static void print_layer(void *user, const struct quern_layer *l)
{
    struct layers *x = user;
    bool is_first = l->n_bad && !x->bad;
    x->n++, x->bad += l->n_bad > 0;
    if (is_first)
        snprintf(x->first, sizeof x->first, "%s (%s), output %s: %.4g units in the last place, bound %.4g; element %lld is %.9g, expected %.9g; %s", l->layer,
                 l->ops, l->value, l->ulp, l->bound, (long long)l->at, l->got, l->want, l->kernel);
    if (l->loss > x->most) {
        x->most = l->loss;
        snprintf(x->loser, sizeof x->loser, "%s", l->layer);
    }
    if (opts_flag(x->c, "json", false)) {
        print_layer_json(l);
        return;
    }
    char loss[32] = "-";
    if (isfinite(l->loss)) snprintf(loss, sizeof loss, "%.3g", l->loss);
    printf("%-6s %12.4g %12.4g %-5s %9s  %s (%s)\n", l->n_bad ? "WRONG" : "ok", l->ulp, l->bound, l->type, loss, l->layer, l->ops);
}

int layers_run(struct cli *c, quern_model *m, quern_program *p)
{
    struct layers x = {.c = c};
    bool json = opts_flag(c, "json", false);
    if (!json) printf("%-6s %12s %12s %-5s %9s  layer\n", "", "error (ulp)", "bound (ulp)", "type", "loss");
    quern_status s = quern_verify_layers(m, p, opts_words(c, "set"), (uint64_t)opts_count(c, "seed", 0), print_layer, &x);
    if (s) return fail(c, s);
    if (!json && x.bad) printf("%d of %d beyond their bounds, the first: %s\n", x.bad, x.n, x.first);
    else if (!json) printf("%d kernel outputs, all within their bounds\n", x.n);
    if (!json && x.most > 0) printf("the largest loss, %.3g: %s\n", x.most, x.loser);
    return x.bad ? EXIT_FAILED : EXIT_DONE;
}
