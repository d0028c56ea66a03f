// SPDX-License-Identifier: Apache-2.0
//
// Ties: how far outputs of a network with quantised values may be from the reference's.
//
// Such networks are not continuous: where a value is within its rounding error of a tie, program and reference may round it to
// neighbouring integers, and both are right. Layers behind it amplify that step like any other change of their inputs, in deep
// networks until all values carry noise. How far outputs then are apart depends on the network and on the inputs. Monte Carlo
// arithmetic measures it (Parker 1997, Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic): the
// reference is evaluated again, each rounding to an integer moved by a random amount within the tolerance of a kernel
// (tolerance.c). The differences to the first evaluation are a sample of those that correct programs show.
#include "tune/tune.h"

#include <math.h>

enum { N_RUNS = 3 };
static const double probability = 1e-6; /* that a correct program exceeds the spread, if differences are normal */

struct jitter {
    double rtol, atol; /* of a kernel's results */
    struct rng rng;
};

/* Rounds again what may be a tie. */
static void round_either_way(void *user, const struct node *n, struct tensor *const *in, struct tensor *const *out)
{
    struct jitter *j = user;
    if (!str_is(n->op, "Round")) return;
    double scale = tensor_largest(in[0]);
    for (i64 i = 0, count = tensor_count(in[0]); i < count; i++) {
        double x = elem_f64(in[0]->dtype, in[0]->data, i), by = j->rtol * fabs(x) + j->atol * scale;
        if (isfinite(x)) elem_set_f64(out[0]->dtype, out[0]->data, i, rint(x + by * (2 * rng_f64(&j->rng) - 1)));
    }
}

struct differences { /* of an output */
    double most, squares; /* the largest one, sum of the squares */
    double n;
};

static void add_differences(struct differences *d, const struct tensor *got, const struct tensor *want)
{
    d->n += (double)tensor_count(want);
    for (i64 i = 0, n = tensor_count(want); i < n; i++) {
        double by = fabs(elem_f64(got->dtype, got->data, i) - elem_f64(want->dtype, want->data, i));
        if (!isfinite(by)) continue;
        d->most = fmax(d->most, by);
        d->squares += by * by;
    }
}

/* Few differences (a step each) are far from normal: then twice the largest one. Of normal ones, the largest of n exceeds
   sigma * sqrt(2 log(2 n / p)) with a probability of at most p. */
static double spread_of(const struct differences *d)
{
    double count = d->n / N_RUNS;
    if (!(d->n > 0)) return 0;
    return fmax(2 * d->most, sqrt(d->squares / d->n) * sqrt(2 * log(2 * count / probability)));
}

static bool has_rounding(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++)
        if (!graph_node(g, n)->dead && str_is(graph_node(g, n)->op, "Round")) return true;
    return false;
}

static bool run_once(const struct rounding *r, struct jitter *j, struct differences *d, struct err *e)
{
    struct arena a = {0};
    struct tensor **got = arena_array(&a, struct tensor *, r->g->output.n + 1);
    bool ok = graph_eval(r->g, r->in, got, &a, &(struct graph_eval_opts){.computed = round_either_way, .user = j}, e);
    for (u32 k = 0; k < r->g->output.n && ok; k++)
        if (tensor_count(got[k]) == tensor_count(r->want[k])) add_differences(&d[k], got[k], r->want[k]);
    arena_release(&a);
    return ok;
}

bool network_rounding(const struct rounding *r, double *spread, struct err *e)
{
    struct arena a = {0};
    u32 n_out = r->g->output.n;
    struct differences *d = arena_array(&a, struct differences, n_out + 1);
    struct jitter j = {.rng = rng_seed(r->seed)};
    bool ok = true;
    const struct numerics x = graph_numerics(r->primitives, DT_F32, r->var);
    check_tolerance(&x, &j.rtol, &j.atol);
    for (u32 i = 0; i < N_RUNS && ok && has_rounding(r->primitives); i++) ok = run_once(r, &j, d, e);
    for (u32 k = 0; k < n_out; k++) spread[k] = spread_of(&d[k]);
    arena_release(&a);
    return ok;
}
