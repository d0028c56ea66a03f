// SPDX-License-Identifier: Apache-2.0
//
// Expected times of an allocation: a simulation of the runtime's policy. Sub-graphs start as soon
// as their inputs are there and their device is free, each device runs one at a time, the one that
// is ready first. A value is copied when it is made, beside whatever the devices do. In a stream of
// requests the next one starts while others run, so requests follow each other as fast as the
// busiest device allows.
#include "place/cost.h"

#include <math.h>
#include <string.h>

enum { SMALL = 64, FEW_STATES = 300 }; /* of the division into sub-graphs */
static const double cut_seconds = 3e-6; /* what a sub-graph costs more than the share of its operators, roughly */

/* An input of an operator. */
struct edge {
    value_id v;
    u32 from; /* operator, UINT32_MAX: the network's caller */
};

static bool is_param(const struct place_net *x, value_id v)
{
    const struct value *y = graph_value(&x->g, v);
    return y->is_const || (y->producer && x->op_of[y->producer] == UINT32_MAX);
}

/* The k-th input that is no parameter. */
static bool next_edge(const struct place_net *x, u32 op, u32 *at, struct edge *to)
{
    const struct node *nd = graph_node(&x->g, x->op.v[op].node);
    while (*at < nd->in.n) {
        const value_id v = nd->in.v[(*at)++];
        if (!v || is_param(x, v)) continue;
        const node_id p = graph_value(&x->g, v)->producer;
        *to = (struct edge){v, p ? x->op_of[p] : UINT32_MAX};
        return true;
    }
    return false;
}

static bool time_parts(struct schedule *s, struct place_costs *c, const u32 *device, enum schedule_how how, struct arena *a, struct err *e)
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
        else if (!place_part_seconds(c, s->device[p], ops + (i64)p * c->n_words, &s->seconds[p], e)) return false;
    }
    return true;
}

struct simulation {
    struct schedule *s;
    const struct place_costs *c;
    u32 *left;       /* per part: operators in others that it waits for, still to be scheduled */
    double *ready;   /* per part */
    double *free;    /* per device */
    struct place_ops *op; /* per part */
    bool *done;      /* per part */
};

static void prepare(struct simulation *m, struct arena *a)
{
    const struct place_net *x = m->c->x;
    m->left = arena_array(a, u32, m->s->n_parts + 1);
    m->ready = arena_array(a, double, m->s->n_parts + 1);
    m->free = arena_array(a, double, m->c->d->n + 1);
    m->done = arena_array(a, bool, m->s->n_parts + 1);
    m->op = arena_array(a, struct place_ops, m->s->n_parts + 1);
    for (u32 k = 0; k < x->op.n; k++) {
        const u32 p = m->s->of[k];
        struct edge in;
        *arr_push(a, &m->op[p]) = k;
        for (u32 i = 0; i < m->c->dag.before[k].n; i++) m->left[p] += m->s->of[m->c->dag.before[k].v[i]] != p;
        for (u32 at = 0; next_edge(x, k, &at, &in);)
            if (in.from == UINT32_MAX) m->ready[p] = fmax(m->ready[p], place_copy_seconds(m->c, in.v, UINT32_MAX, m->s->device[p]));
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

static double deliver(struct simulation *m, u32 p, double end)
{
    const struct place_net *x = m->c->x;
    double last = end;
    for (u32 i = 0; i < m->op[p].n; i++) {
        const u32 k = m->op[p].v[i];
        const struct node *nd = graph_node(&x->g, x->op.v[k].node);
        for (u32 b = 0; b < m->c->dag.behind[k].n; b++) {
            const u32 q = m->s->of[m->c->dag.behind[k].v[b]];
            struct edge in;
            if (q == p) continue;
            m->left[q]--;
            m->ready[q] = fmax(m->ready[q], end);
            for (u32 at = 0; next_edge(x, m->c->dag.behind[k].v[b], &at, &in);)
                if (in.from == k) m->ready[q] = fmax(m->ready[q], end + place_copy_seconds(m->c, in.v, m->s->device[p], m->s->device[q]));
        }
        for (u32 o = 0; o < nd->out.n; o++)
            for (u32 g = 0; g < x->g.output.n && nd->out.v[o]; g++)
                if (x->g.output.v[g] == nd->out.v[o])
                    last = fmax(last, end + place_copy_seconds(m->c, nd->out.v[o], m->s->device[p], UINT32_MAX));
    }
    return last;
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
        s->latency = fmax(s->latency, deliver(&m, p, m.free[d]));
        s->joules += s->seconds[p] * c->d->v[d].watts;
        s->sum += s->seconds[p];
    }
    for (u32 d = 0; d < c->d->n; d++) s->period = fmax(s->period, s->busy[d]);
}

bool schedule_make(struct schedule *s, struct place_costs *c, const u32 *device, enum schedule_how how, struct arena *a, struct err *e)
{
    struct place_runs r;
    const bool is_full = how == SCHEDULE_FINAL || c->x->op.n <= SMALL;
    const u32 most = how == SCHEDULE_ROUGH ? 0 : is_full ? PLACE_MAX_STATES : FEW_STATES;
    place_runs(&r, &c->dag, device, c->d->n, most, a);
    *s = (struct schedule){.n_parts = r.n, .least = r.least, .is_minimal = r.is_minimal, .of = r.of};
    s->device = arena_array(a, u32, r.n + 1);
    s->seconds = arena_array(a, double, r.n + 1);
    s->start = arena_array(a, double, r.n + 1);
    s->busy = arena_array(a, double, c->d->n + 1);
    if (!time_parts(s, c, device, how, a, e)) return false;
    for (u32 p = 0; p < r.n; p++)
        if (isinf(s->seconds[p])) {
            s->latency = s->period = s->joules = s->sum = INFINITY;
            return true;
        }
    simulate(s, c, a);
    return true;
}
