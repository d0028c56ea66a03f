// SPDX-License-Identifier: Apache-2.0
//
// What other tasks tell of one. Tasks are near when the same operator works on operands of similar extents: every factor of two in
// one of them counts one, another type or another number of fused operators some more. The best schedules of near tasks are good
// starting points; where they are not legal, legal ones near them are.
#include "tune/search.h"

#include <math.h>

enum { NEAR_MAX = 4, BEST_OF_EACH = 3, ADAPT_TRIES = 60, MOVE_TRIES = 8 };
static const double near_least = 0.15, near_most = 0.8, near_length = 8, type_differs = 2, node_differs = 0.5;

/* Distance of two values; INFINITY: of different rank. */
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

static u32 n_measured(const struct contest *c)
{
    u32 n = 0;
    for (u32 i = 0; i < c->known.n; i++) n += c->known.v[i].n > 0;
    return n;
}

u32 nearest(const struct contest *c, const struct search *s, struct near *out, u32 max)
{
    u32 n = 0;
    for (u32 k = 0; k < s->n_past; k++) {
        const struct contest *o = s->past[k];
        if (o == c || n_measured(o) == 0) continue;
        double near = task_nearness(c->t->task, c->t->var, o->t->task, o->t->var);
        u32 at = n < max ? n++ : max;
        for (; at > 0 && out[at - 1].near < near; at--)
            if (at < max) out[at] = out[at - 1];
        if (at < max) out[at] = (struct near){o, near};
    }
    return n;
}

/* legal schedules near others */

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

/* The same schedule where it is legal, else one a few steps away, fewest first. */
static bool adapt(struct candidate *c, const struct contest *to, const struct search *s, struct rng *r)
{
    const struct candidate from = *c;
    if (!gen_matches(c->gen, to->t->task, s->caps)) return false;
    for (i64 i = 0; i < ADAPT_TRIES; i++) {
        *c = from;
        if (i) candidate_move(c, r, 1 + i / (ADAPT_TRIES / 4));
        if (gen_repair(c, to->t->task, s->caps) && !contest_has_seen(to, c)) return true;
    }
    return false;
}

/* The best of a contest, but for those that were taken. */
static const struct entrant *best_but(const struct contest *c, const struct entrant *const *taken, u32 n_taken)
{
    const struct entrant *best = NULL;
    for (u32 i = 0; i < c->known.n; i++) {
        const struct entrant *x = &c->known.v[i];
        bool again = x->status != TRIAL_OK || x->n == 0;
        for (u32 k = 0; k < n_taken; k++) again |= taken[k] == x;
        if (!again && (!best || contest_seconds(c, x) < contest_seconds(c, best))) best = x;
    }
    return best;
}

u32 transfer(const struct contest *c, const struct search *s, struct candidate *out, u32 max)
{
    struct near near[NEAR_MAX];
    const struct entrant *taken[NEAR_MAX][BEST_OF_EACH];
    struct rng r = rng_seed(c->t->task->key.lo);
    u32 n_near = nearest(c, s, near, NEAR_MAX), n = 0;
    for (u32 place = 0; place < BEST_OF_EACH; place++)
        for (u32 k = 0; k < n_near && n < max; k++) {
            if (place && !taken[k][place - 1]) {
                taken[k][place] = NULL;
                continue;
            }
            const struct entrant *x = taken[k][place] = best_but(near[k].c, taken[k], place);
            if (!x) continue;
            out[n] = x->cand;
            n += adapt(&out[n], c, s, &r);
        }
    return n;
}
