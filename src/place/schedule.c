// SPDX-License-Identifier: Apache-2.0
//
// Expected times of an allocation: a simulation of the runtime's policy (src/request). Each
// device instance has a thread, which runs one sub-graph at a time: it copies the inputs to the
// device's memory, runs, and copies the outputs back to the host's, where all values are that
// pass from one sub-graph to another. A sub-graph is ready when those that it reads from have
// ended; of those that are ready the first one is run. In a stream of requests the next one
// starts while others run, so requests follow each other as fast as the busiest device allows.
#include "place/cost.h"

#include <math.h>
#include <string.h>

enum { SMALL = 64, FEW_STATES = 300 }; /* of the division into sub-graphs */
static const double cut_seconds =
    3e-6; /* what a sub-graph costs more than the share of its operators, roughly */

static bool is_param(const struct place_net *x, value_id v)
{
    const struct value *y = graph_value(&x->g, v);
    return y->is_const || (y->producer && x->op_of[y->producer] == UINT32_MAX);
}

/* Part that makes a value; UINT32_MAX: the network's caller. */
static u32 maker(const struct place_net *x, const struct schedule *s, value_id v)
{
    const node_id n = graph_value(&x->g, v)->producer;
    return n ? s->of[x->op_of[n]] : UINT32_MAX;
}

/* Copies of the values that each part reads and makes for others, once per part. */
static void add_copies(struct schedule *s, const struct place_costs *c, struct arena *a)
{
    const struct place_net *x = c->x;
    u32 *seen =
        arena_array(a, u32, x->g.value.n); /* per value: 1 + the last part that it was copied for */
    bool *is_out = arena_array(a, bool, x->g.value.n);
    struct place_ops *op = arena_array(a, struct place_ops, s->n_parts + 1);
    for (u32 k = 0; k < x->op.n; k++) *arr_push(a, &op[s->of[k]]) = k;
    for (u32 k = 0; k < x->g.output.n; k++) is_out[x->g.output.v[k]] = true;
    for (u32 p = 0; p < s->n_parts; p++)
        for (u32 i = 0; i < op[p].n; i++) {
            const struct node *nd = graph_node(&x->g, x->op.v[op[p].v[i]].node);
            for (u32 k = 0; k < nd->in.n; k++) {
                const value_id v = nd->in.v[k];
                if (!v || seen[v] == p + 1 || is_param(x, v) || maker(x, s, v) == p) continue;
                seen[v] = p + 1, is_out[v] = true;
                s->seconds[p] += place_copy_seconds(c, v, UINT32_MAX, s->device[p]);
            }
        }
    for (value_id v = 1; v < x->g.value.n; v++) {
        const u32 p = is_out[v] && !is_param(x, v) ? maker(x, s, v) : UINT32_MAX;
        if (p != UINT32_MAX) s->seconds[p] += place_copy_seconds(c, v, s->device[p], UINT32_MAX);
    }
}

static bool time_parts(struct schedule *s, struct place_costs *c, const u32 *device,
                       enum schedule_how how, struct arena *a, struct err *e)
{
    const u32 n = c->x->op.n;
    u64 *ops = arena_array(a, u64, (i64)c->n_words * (s->n_parts + 1));
    for (u32 k = 0; k < n; k++) {
        const u32 p = s->of[k];
        s->device[p] = device[k];
        ops[(i64)p * c->n_words + k / 64] |= (u64)1 << k % 64;
        if (how == SCHEDULE_ROUGH) s->seconds[p] += c->alone[device[k]][k];
    }
    for (u32 p = 0; p < s->n_parts; p++) {
        const struct place_device *d = &c->d->v[s->device[p]];
        const bool is_described = c->class_of[s->device[p]] == UINT32_MAX;
        if (how == SCHEDULE_ROUGH) s->seconds[p] += d->start + (is_described ? 0 : cut_seconds);
        else if (!place_part_seconds(c, s->device[p], ops + (i64)p * c->n_words, &s->seconds[p], e))
            return false;
    }
    return true;
}

struct simulation {
    struct schedule *s;
    const struct place_costs *c;
    u32 *left;     /* per part: operators in others that it waits for, still to be scheduled */
    double *ready; /* per part */
    double *free;  /* per device */
    struct place_ops *op; /* per part */
    bool *done;           /* per part */
};

static void prepare(struct simulation *m, struct arena *a)
{
    m->left = arena_array(a, u32, m->s->n_parts + 1);
    m->ready = arena_array(a, double, m->s->n_parts + 1);
    m->free = arena_array(a, double, m->c->d->n + 1);
    m->done = arena_array(a, bool, m->s->n_parts + 1);
    m->op = arena_array(a, struct place_ops, m->s->n_parts + 1);
    for (u32 k = 0; k < m->c->x->op.n; k++) {
        const u32 p = m->s->of[k];
        *arr_push(a, &m->op[p]) = k;
        for (u32 i = 0; i < m->c->dag.before[k].n; i++)
            m->left[p] += m->s->of[m->c->dag.before[k].v[i]] != p;
    }
}

/* The part that starts next: of those whose inputs are being made or there, the first. */
static u32 next_part(const struct simulation *m)
{
    u32 best = UINT32_MAX;
    double least = INFINITY;
    for (u32 p = 0; p < m->s->n_parts; p++) {
        if (m->done[p] || m->left[p]) continue;
        double start = fmax(m->ready[p], m->free[m->s->device[p]]);
        if (best == UINT32_MAX || start < least) best = p, least = start;
    }
    return best;
}

static void deliver(struct simulation *m, u32 p, double end)
{
    for (u32 i = 0; i < m->op[p].n; i++) {
        const struct place_ops *behind = &m->c->dag.behind[m->op[p].v[i]];
        for (u32 b = 0; b < behind->n; b++) {
            const u32 q = m->s->of[behind->v[b]];
            if (q == p) continue;
            m->left[q]--;
            m->ready[q] = fmax(m->ready[q], end);
        }
    }
}

static void simulate(struct schedule *s, const struct place_costs *c, struct arena *a)
{
    struct simulation m = {.s = s, .c = c};
    prepare(&m, a);
    for (u32 n = 0; n < s->n_parts; n++) {
        const u32 p = next_part(&m), d = s->device[p];
        s->start[p] = fmax(m.ready[p], m.free[d]);
        m.free[d] = s->start[p] + s->seconds[p];
        m.done[p] = true;
        s->busy[d] += s->seconds[p];
        deliver(&m, p, m.free[d]);
        s->latency = fmax(s->latency, m.free[d]);
        s->joules += s->seconds[p] * c->d->v[d].watts;
        s->sum += s->seconds[p];
    }
    for (u32 d = 0; d < c->d->n; d++) s->period = fmax(s->period, s->busy[d]);
}

bool schedule_make(struct schedule *s, struct place_costs *c, const u32 *device,
                   enum schedule_how how, struct arena *a, struct err *e)
{
    struct place_runs r;
    const bool is_full = how == SCHEDULE_FINAL || c->x->op.n <= SMALL;
    const u32 most = how == SCHEDULE_ROUGH ? 0 : is_full ? PLACE_MAX_STATES : FEW_STATES;
    place_runs(&r, &c->dag, device, c->d->n, most, a);
    *s =
        (struct schedule){.n_parts = r.n, .least = r.least, .is_minimal = r.is_minimal, .of = r.of};
    s->device = arena_array(a, u32, r.n + 1);
    s->seconds = arena_array(a, double, r.n + 1);
    s->start = arena_array(a, double, r.n + 1);
    s->busy = arena_array(a, double, c->d->n + 1);
    if (!time_parts(s, c, device, how, a, e)) return false;
    add_copies(s, c, a);
    for (u32 p = 0; p < r.n; p++)
        if (isinf(s->seconds[p])) {
            s->latency = s->period = s->joules = s->sum = INFINITY;
            return true;
        }
    simulate(s, c, a);
    return true;
}
