// SPDX-License-Identifier: Apache-2.0
//
// recurrence: recurrent layers on processors (family/recurrence.c). A thread takes some sequences of one direction through all
// steps, with vectors of hidden units. Several sequences at once use a weight that was loaded for each of them: what
// bounds a layer of few sequences is how fast its weights come from the cache that holds them. Or a workgroup of
// threads does (`split`): each has hidden units of its own, and so a part of the weights, which may fit its own cache. There are one or
// two barriers per step.
#include "gen/recurrence.h"

#include <math.h>

// clang-format off
#define PARAMS(P)                                                                            \
    P(rows, "sequences at once", 1, 2, 3, 4, 5, 6, 8, 12)                                    \
    P(nr, "vectors of hidden units at once", 1, 2, 3, 4)                                     \
    P(gates, "gates of a unit that are summed at once, 0 = all", 0, 1, 2)                    \
    P(ku, "terms of the sum per iteration of its loop", 1, 2, 4, 8)                          \
    P(split, "threads that divide the hidden units", 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
// clang-format on
GEN_PARAMS(PARAMS)

enum { MAX_WRITTEN = 300 /* multiply-adds in an iteration */ };

GEN_PARAM_READER(struct recurrence_sched, read_sched, PARAMS)

static struct recurrence_sched sched_of(const struct recurrence *q, const struct caps *c, const struct sched *v)
{
    struct recurrence_sched s = read_sched(v);
    s.lanes = gen_lanes(c, q->type), s.threads = 1;
    while (s.lanes > 1 && s.lanes / 2 >= q->c.hidden) s.lanes /= 2;
    return s;
}

static bool analyze(const struct gen_problem *p) { return !p->c->is_gpu && recurrence_of(p->facts, p->t); }

static i64 at_once(const struct recurrence *q, const struct recurrence_sched *s) { return recurrence_accumulators(q, s) / (s->rows * s->nr); }

/* Seconds to read the weights of one direction once: from the cache that they fit. */
static double weight_seconds(const struct caps *c, double bytes)
{
    double per_cycle = bytes <= 0.5 * (double)c->l1_bytes ? 64 : bytes <= 0.75 * (double)c->l2_bytes ? 36 : bytes <= 0.5 * (double)c->l3_bytes ? 12 : 4;
    return bytes / per_cycle / 3e9;
}

static double seconds(const struct recurrence *q, const struct caps *c, const struct recurrence_sched *s, const i64 *var)
{
    double steps = (double)gen_eval(q->g, q->steps, var), units = (double)(recurrence_panels(q, s) * recurrence_width(s));
    i64 batch = gen_eval(q->g, q->batch, var), runs = ceil_div(batch, s->rows) * q->c.n_dirs;
    i64 own = ceil_div(recurrence_panels(q, s), s->split); /* panels of a thread, at most */
    units = (double)(own * recurrence_width(s));
    double weights = units * (double)q->c.hidden * q->c.n_gates, acc = (double)recurrence_accumulators(q, s);
    /* Multiply-adds per cycle: two, or as many as wait for each other, or for loads of weights and states. */
    double adds = weights * (double)s->rows / s->lanes, per_load = acc / ((double)(at_once(q, s) * s->nr) + (double)s->rows);
    double pace = fmin(acc < 8 ? acc / 4 : 2, 2 * per_load);
    double product = fmax(adds / pace / 3e9, weight_seconds(c, weights * (double)dtype_size(op_in_dtype(q->g, q->n, 1))));
    double cell = units / s->lanes * (double)s->rows * 40 * q->c.n_gates / 3e9;
    double loop = (double)q->c.hidden / (double)s->ku * (double)own * 0.5 / 3e9;
    double barriers = s->split > 1 ? 4e-7 * (op_cell_has_two_stages(&q->c) ? 2 : 1) : 0;
    double wake = c->n_threads > 1 && (s->split > 1 || runs > 1) ? 8e-6 : 0; /* the other threads */
    return 1e-6 + wake + steps * (product + cell + loop + barriers) * (double)(s->split > 1 ? runs : ceil_div(runs, i64_max(1, c->n_threads)));
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct recurrence_sched s = sched_of(p->facts, p->c, v);
    const struct recurrence *q = p->facts;
    i64 acc = recurrence_accumulators(q, &s), batch = gen_static(q->g, q->batch, 64), gates = at_once(q, &s);
    if (!recurrence_has_gates(q, s.gates) || (s.rows > 1 && s.rows >= 2 * batch)) return false;
    if (s.nr > 1 && (s.nr - 1) * s.lanes >= q->c.hidden) return false;
    if (s.split > p->c->n_threads || (s.split > 1 && s.split > recurrence_panels(q, &s))) return false;
    if (s.ku > q->c.hidden || acc * s.ku > MAX_WRITTEN) return false;
    return acc == gates || acc + i64_min(gates * s.nr, 4) <= p->c->n_vector_regs;
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct recurrence_sched s = sched_of(p->facts, p->c, v);
    return seconds(p->facts, p->c, &s, p->var);
}

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v)
{
    struct recurrence q;
    recurrence_of(&q, t);
    struct recurrence_sched s = sched_of(&q, c, v);
    m->k->group[0] = s.split > 1 ? (u32)s.split : 0;
    recurrence_emit(m, t, &s);
}

const struct gen gen_recurrence = {
    GEN_FAMILY("recurrence", 3), .facts = sizeof(struct recurrence), .analyze = analyze,
    .legal = legal, .emit = emit, .predict = predict,
};
