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
//
// A single task is evaluated twice more, all roundings moved down by that tolerance, then up. Behind pointwise operators alone
// each element has one rounding, and what it may be lies between these results. Behind sums of rounded values it may be
// further away; the largest difference, twice, is added to every element's bound.
#include "tune/tune.h"

#include <math.h>

enum { N_RUNS = 3 };
static const double probability = 1e-6; /* that a correct program exceeds the spread, if differences are normal */

struct jitter {
    double rtol, atol; /* of a kernel's results */
    double side;       /* -1, 1: all values are moved down or up by as much as possible; 0: by random amounts */
    const struct graph *task; /* with side: values that it does not compute are exact, and not moved */
    struct rng rng;
};

/* Rounds again what may be a tie. */
static void round_either_way(void *user, const struct node *n, struct tensor *const *in, struct tensor *const *out)
{
    struct jitter *j = user;
    if (!str_is(n->op, "Round") || (j->task && n->in.v[0] < j->task->value.n && !graph_value(j->task, n->in.v[0])->producer)) return;
    double scale = tensor_largest(in[0]);
    for (i64 i = 0, count = tensor_count(in[0]); i < count; i++) {
        double x = elem_f64(in[0]->dtype, in[0]->data, i), by = j->rtol * fabs(x) + j->atol * scale;
        double part = j->side != 0 ? j->side : 2 * rng_f64(&j->rng) - 1;
        if (isfinite(x)) elem_set_f64(out[0]->dtype, out[0]->data, i, rint(x + by * part));
    }
}

struct differences { /* of an output */
    double most, squares; /* the largest one, sum of the squares */
    double n;
};

/* o: of the evaluation; NULL: all elements are known */
static void add_differences(struct differences *d, const struct tensor *got, const struct tensor *want, const struct graph_eval_opts *o)
{
    const i64 n = o && o->points ? o->n_points : tensor_count(want);
    d->n += (double)n;
    for (i64 k = 0; k < n; k++) {
        const i64 i = o && o->points ? o->points[k] : k;
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
        if (tensor_count(got[k]) == tensor_count(r->want[k])) add_differences(&d[k], got[k], r->want[k], NULL);
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

/* Whether some of the values that an output is computed from are rounded ones, added up or chosen among; false: it has at most pointwise
   operators and views behind a rounding. */
static bool adds_rounded(const struct graph *g, value_id out)
{
    enum { NONE, ROUNDED, ADDED };
    struct arena a = {0};
    u8 *is = arena_array(&a, u8, g->value.n);
    for (node_id n = 1; n < g->node.n; n++) { /* sorted */
        const struct node *x = graph_node(g, n);
        u8 most = str_is(x->op, "Round") ? ROUNDED : NONE;
        if (x->dead) continue;
        for (u32 k = 0; k < x->in.n; k++)
            if (is[x->in.v[k]] > most) most = is[x->in.v[k]];
        if (most && !(op_of(g, n)->props & (OP_POINTWISE | OP_VIEW | OP_MOVES))) most = ADDED;
        for (u32 k = 0; k < x->out.n; k++) is[x->out.v[k]] = most;
    }
    bool adds = is[out] == ADDED;
    arena_release(&a);
    return adds;
}

bool task_ties(struct ties *t, const struct graph *g, struct tensor *const *in, struct tensor *const *want, const struct graph_eval_opts *o,
               struct arena *a, struct err *e)
{
    struct graph_eval_opts again = *o;
    *t = (struct ties){0};
    if (!has_rounding(g)) return true;
    for (u32 side = 0; side < 2; side++) {
        struct jitter j = {.side = side ? 1 : -1, .task = g};
        const struct numerics x = graph_numerics(g, DT_F32, o->var);
        check_tolerance(&x, &j.rtol, &j.atol);
        again.computed = round_either_way, again.user = &j;
        t->side[side] = arena_array(a, struct tensor *, g->output.n);
        if (!graph_eval(g, in, t->side[side], a, &again, e)) return false;
    }
    t->spread = arena_array(a, double, g->output.n);
    for (u32 k = 0; k < g->output.n; k++) {
        struct differences d = {0};
        for (u32 side = 0; side < 2 && adds_rounded(g, g->output.v[k]); side++) add_differences(&d, t->side[side][k], want[k], o);
        t->spread[k] = 2 * d.most;
    }
    return true;
}
