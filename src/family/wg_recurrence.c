// SPDX-License-Identifier: Apache-2.0
//
// wg_recurrence: recurrent layers by workgroups (family/recurrence.c). A workgroup takes some sequences of one direction
// through all steps; its threads are side by side along the hidden units, so that they read neighbouring weights, and share the states
// in shared memory. There is one barrier per matmul.
#include "gen/wg.h"
#include "gen/wg_cost.h"
#include "gen/recurrence.h"

// clang-format off
#define PARAMS(P)                                                   \
    P(threads, "threads of a workgroup", 32, 64, 128, 256, 512, 1024)   \
    P(rows, "sequences of a workgroup", 1, 2, 4, 8)                     \
    P(nr, "hidden units of a thread at once", 1, 2, 4)              \
    P(ku, "terms of the sum per iteration of its loop", 1, 2, 4, 8)
// clang-format on
GEN_PARAMS(PARAMS)

enum { MAX_REGS = 128, MAX_WRITTEN = 128 };

GEN_PARAM_READER(struct recurrence_sched, read_sched, PARAMS)

static struct recurrence_sched sched_of(const struct recurrence *q, const struct caps *c, const struct sched *v)
{
    struct recurrence_sched s = read_sched(v);
    s.lanes = 1, s.split = 1;
    return s;
}

static bool is_legal(const struct recurrence *q, const struct caps *c, const struct recurrence_sched *s)
{
    i64 acc = recurrence_accumulators(q, s), batch = gen_static(q->g, q->batch, 64), least = wg_least(c);
    if (s->rows > 1 && s->rows >= 2 * batch) return false;
    if (s->threads > least && s->threads >= 2 * q->c.hidden) return false;
    if (s->nr > 1 && (s->nr - 1) * s->threads >= q->c.hidden) return false;
    if (s->ku > 1 && (s->ku > q->c.hidden || acc * s->ku > MAX_WRITTEN)) return false;
    return s->threads >= least && acc + q->c.n_gates * s->nr + s->rows <= MAX_REGS && wg_is_legal(c, s->threads, recurrence_state_bytes(q, s));
}

static bool least(const struct gen_problem *p, u32 k, struct sched *s)
{
    *s = (struct sched){.v = {[P_threads] = gen_nearest(&param[P_threads], wg_least(p->c)), [P_rows] = 1, [P_nr] = 1, [P_ku] = 1}};
    return k == 0;
}

static bool analyze(const struct gen_problem *p)
{
    struct recurrence *q = p->facts;
    return p->c->is_gpu && recurrence_of(q, p->t) && (q->type != DT_F64 || p->c->has_f64);
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct recurrence_sched s = sched_of(p->facts, p->c, v);
    return is_legal(p->facts, p->c, &s);
}

/* A thread waits for its weights, as many at once as an iteration of the loop over terms holds, which stay in the cache from step to step. */
static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct recurrence *q = p->facts;
    const struct recurrence_sched s = sched_of(q, p->c, v);
    double steps = (double)gen_eval(q->g, q->steps, p->var), panels = (double)recurrence_panels(q, &s), size = (double)dtype_size(op_in_dtype(q->g, q->n, 1));
    double weights = panels * (double)recurrence_width(&s) * (double)q->c.hidden * q->c.n_gates;
    struct wg_facts f = {.workgroups = (double)(ceil_div(gen_eval(q->g, q->batch, p->var), s.rows) * q->c.n_dirs), .threads = s.threads};
    f.steps = steps * panels * (double)q->c.hidden / (double)(s.ku * s.nr);
    f.step = (struct wg_work){.fmas = steps * weights * (double)s.rows / f.steps, .moved = steps * weights * size / f.steps};
    f.ilp = (double)recurrence_accumulators(q, &s), f.shared_bytes = recurrence_state_bytes(q, &s);
    f.rest.barriers = steps * (op_cell_has_two_stages(&q->c) ? 2 : 1);
    f.requested = f.workgroups * steps * weights * size, f.bytes = f.requested / 16;
    return wg_seconds(p, &f);
}

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v)
{
    struct recurrence_sched s = sched_of(NULL, c, v);
    m->k->group[0] = (u32)s.threads;
    recurrence_emit(m, t, &s);
}

const struct gen gen_wg_recurrence = {
    GEN_FAMILY("wg_recurrence", 1), .facts = sizeof(struct recurrence), .analyze = analyze,
    .least = least, .legal = legal, .emit = emit, .predict = predict,
};
