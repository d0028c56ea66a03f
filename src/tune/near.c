// SPDX-License-Identifier: Apache-2.0
//
// Transfer between tasks. The distance of two tasks with the same operator is the sum of |log2| of
// the ratios of their operands' extents, plus penalties for different types and numbers of fused
// operators. The best schedules of near tasks are good starting points; illegal ones are replaced
// by legal neighbours.
#include "tune/search.h"

#include <math.h>

enum { NEAR_MAX = 4, BEST_OF_EACH = 3, ADAPT_TRIES = 60, MOVE_TRIES = 8 };
static const double near_least = 0.15, near_most = 0.8, near_length = 8, type_differs = 2, node_differs = 0.5;

/* Distance of two values; INFINITY: different ranks. */
static double value_distance(const struct graph *a, value_id x, const i64 *var_a, const struct graph *b, value_id y,
                             const i64 *var_b)
{
    const struct value *v = graph_value(a, x), *w = graph_value(b, y);
    i64 p[MAX_RANK], q[MAX_RANK];
    if (v->shape.rank != w->shape.rank || !shape_eval(a->sym, &v->shape, var_a, p) || !shape_eval(b->sym, &w->shape, var_b, q))
        return INFINITY;
    double d = v->dtype == w->dtype ? 0 : type_differs;
    for (u32 i = 0; i < v->shape.rank; i++) d += fabs(log2((double)i64_max(p[i], 1) / (double)i64_max(q[i], 1)));
    return d;
}

double task_distance(const struct task *a, const i64 *var_a, const struct task *b, const i64 *var_b)
{
    if (!a->anchor != !b->anchor || a->n_heavy != b->n_heavy) return INFINITY;
    double d = value_distance(&a->g, a->g.output.v[0], var_a, &b->g, b->g.output.v[0], var_b) +
               node_differs * fabs((double)a->g.node.n - b->g.node.n);
    if (!a->anchor) return d;
    const struct node *m = graph_node(&a->g, a->anchor), *n = graph_node(&b->g, b->anchor);
    if (!str_eq(m->op, n->op) || m->in.n < 2 || n->in.n < 2) return INFINITY;
    for (u32 i = 0; i < 2; i++) d += value_distance(&a->g, m->in.v[i], var_a, &b->g, n->in.v[i], var_b);
    return d;
}

double task_nearness(const struct task *a, const i64 *var_a, const struct task *b, const i64 *var_b)
{
    return near_least + (near_most - near_least) * exp(-task_distance(a, var_a, b, var_b) / near_length);
}

static u32 n_measured(const struct task_search *ts)
{
    u32 n = 0;
    for (u32 i = 0; i < ts->known.n; i++) n += ts->known.v[i].n > 0;
    return n;
}

u32 nearest(const struct task_search *ts, const struct search *s, struct neighbour *out, u32 max)
{
    u32 n = 0;
    for (u32 k = 0; k < s->n_past; k++) {
        const struct task_search *o = s->past[k];
        if (o == ts || n_measured(o) == 0) continue;
        double near = task_nearness(ts->t->task, ts->t->var, o->t->task, o->t->var);
        u32 at = n < max ? n++ : max;
        for (; at > 0 && out[at - 1].near < near; at--)
            if (at < max) out[at] = out[at - 1];
        if (at < max) out[at] = (struct neighbour){o, near};
    }
    return n;
}

/* legal neighbours of schedules */

static u32 value_index(const struct gen_param *p, i32 v)
{
    for (u32 i = 0; i < p->n; i++)
        if (p->values[i] == v) return i;
    return 0;
}

void candidate_move(struct candidate *c, struct rng *r, i64 n)
{
    for (i64 k = 0; k < n && c->gen->n_param; k++) {
        i64 p = rng_range(r, 0, c->gen->n_param - 1);
        const struct gen_param *q = &c->gen->param[p];
        i64 at = value_index(q, c->sched.v[p]) + rng_range(r, -2, 2);
        c->sched.v[p] = q->values[i64_max(0, i64_min(at, (i64)q->n - 1))];
    }
}

/* The same schedule if it is legal, otherwise a legal one with as few moves as possible. */
static bool adapt(struct candidate *c, const struct task_search *to, const struct search *s, struct rng *r)
{
    const struct candidate from = *c;
    if (!gen_matches(c->gen, to->t->task, s->caps)) return false;
    for (i64 i = 0; i < ADAPT_TRIES; i++) {
        *c = from;
        if (i) candidate_move(c, r, 1 + i / (ADAPT_TRIES / 4));
        if (gen_repair(c, to->t->task, s->caps) && !task_search_has_seen(to, c)) return true;
    }
    return false;
}

/* The best candidate of a task except those already taken. */
static const struct trial *best_but(const struct task_search *ts, const struct trial *const *taken, u32 n_taken)
{
    const struct trial *best = NULL;
    for (u32 i = 0; i < ts->known.n; i++) {
        const struct trial *x = &ts->known.v[i];
        bool again = x->status != TRIAL_OK || x->n == 0;
        for (u32 k = 0; k < n_taken; k++) again |= taken[k] == x;
        if (!again && (!best || task_search_seconds(ts, x) < task_search_seconds(ts, best))) best = x;
    }
    return best;
}

u32 transfer(const struct task_search *ts, const struct search *s, struct candidate *out, u32 max)
{
    struct neighbour near[NEAR_MAX];
    const struct trial *taken[NEAR_MAX][BEST_OF_EACH];
    struct rng r = rng_seed(ts->t->task->key.lo);
    u32 n_near = nearest(ts, s, near, NEAR_MAX), n = 0;
    for (u32 place = 0; place < BEST_OF_EACH; place++)
        for (u32 k = 0; k < n_near && n < max; k++) {
            if (place && !taken[k][place - 1]) {
                taken[k][place] = NULL;
                continue;
            }
            const struct trial *x = taken[k][place] = best_but(near[k].ts, taken[k], place);
            if (!x) continue;
            out[n] = x->cand;
            n += adapt(&out[n], ts, s, &r);
        }
    return n;
}
