// SPDX-License-Identifier: Apache-2.0
//
// halo_cost: predicted seconds of convolutions by workgroups. A device is some units of
// about the same size; groups share a unit as long as registers, shared memory and threads last.
// A group copies and computes; more groups, or loads ahead, hide one behind the other. The last
// round of groups leaves units idle. Memory is a second limit. All constants are rough: what counts
// is the order of candidates.
#include "gen/halo.h"

#include <math.h>

static const double unit_rate = 500e9; /* flops per second of a unit */
static const double unit_regs = 65536; /* 32-bit registers */
static const double unit_threads = 1536;
static const double unit_shared = 100 << 10; /* bytes */
static const double copy_cost = 40;      /* of a piece, in multiply-adds: addresses, tests, store */
static const double barrier_cost = 12e3; /* of a unit waiting, in multiply-adds */
static const double bytes_per_fma = 0.5; /* a unit's share of the cache between units and memory */
static const double latency = 1024;      /* multiply-adds under way that keep a unit going */
static const double launch = 3e-6;       /* seconds */

static double at_least(double x, double least) { return x > least ? x : least; }

static double at_most(double x, double most) { return x < most ? x : most; }

/* Groups on one unit at the same time. */
static double residents(const struct halo_plan *p, const struct halo_cost *x)
{
    double threads = (double)p->s.threads, shared = (double)halo_plan_shared(p);
    double n = at_most(unit_threads / threads, unit_regs / (threads * at_least(x->regs, 32)));
    if (shared > 0) n = at_most(n, unit_shared / shared);
    return at_least(at_most(floor(n), 16), 1);
}

/* Memory moves 32 bytes at a time: how often those of a run of n elements are moved. */
static double sectors(i64 n, enum dtype t) { return at_least(32 / (double)(n * dtype_size(t)), 1); }

/* Likewise, of a value that a tile reads, or writes. */
static double waste_of(const struct halo_plan *p, const struct value *v, bool is_out)
{
    if (v->layout == LAYOUT_ROWS || v->shape.rank < 3) return 1;
    i64 channels = p->oc * p->groups, n = is_out ? i64_min(p->width, channels) : p->s.bk;
    return sectors(i64_max(1, n), v->dtype);
}

/* Multiply-adds that copying takes as long as. */
static double copying(const struct halo_plan *p)
{
    const struct halo_work *s = &p->s;
    double pixels = (double)(p->planes * p->rows * p->cols), n = 0, bytes = 0;
    if (s->input) {
        n += pixels * (double)(s->bk / p->vec);
        bytes += pixels * (double)s->bk * (double)dtype_size(graph_value(p->q->c.g, p->q->c.x)->dtype);
    }
    if (s->weights) {
        n += (double)(p->n_weights / p->w_vec);
        bytes += (double)(p->n_weights * dtype_size(graph_value(p->q->c.g, p->q->c.w)->dtype));
    }
    return n * copy_cost + bytes / bytes_per_fma;
}

double halo_plan_tiles(const struct halo_plan *p, const i64 *var)
{
    const struct conv *c = &p->q->c;
    double n = (double)(p->groups * p->n_out);
    for (u32 a = 0; a < c->rank; a++) {
        i64 size = gen_eval(c->g, c->out[a], var);
        if ((i32)a == c->xa) size = ceil_div(size, p->tx);
        if ((i32)a == c->ya) size = ceil_div(size, p->ty);
        if (a != 1) n *= (double)size;
    }
    return n;
}

static double memory_seconds(const struct halo_plan *p, const struct caps *caps, const i64 *var)
{
    const struct graph *t = p->q->c.g;
    double bytes = 0;
    for (u32 i = 0; i < t->input.n + t->output.n; i++) {
        value_id v = i < t->input.n ? t->input.v[i] : t->output.v[i - t->input.n];
        double waste = v == p->q->c.x || i >= t->input.n ? waste_of(p, graph_value(t, v), i >= t->input.n) : 1;
        bytes += waste * gen_count(t, v, var) * (double)dtype_size(graph_value(t, v)->dtype);
    }
    return bytes / gen_byte_rate(caps);
}

double halo_plan_bytes(const struct halo_plan *p, const i64 *var)
{
    const struct graph *c = p->q->c.g;
    double bytes = 0;
    for (u32 i = 0; i < c->input.n + c->output.n; i++) {
        bool in = i < c->input.n;
        value_id v = in ? c->input.v[i] : c->output.v[i - c->input.n];
        const struct value *x = graph_value(c, v);
        double run = (double)(p->tile_oc * dtype_size(x->dtype)), waste = run < 32 ? 32 / run : 1;
        if (x->layout == LAYOUT_ROWS) waste = (p->s.tc > 1 ? 4 : 1) + 0.1 * (double)(p->s.rx - 1);
        if (in ? p->s.input : p->s.store_shared) waste = 1;
        bytes += waste * gen_bytes(c, v, var);
    }
    return bytes;
}

/* Of the taps that the tile's loops would have at most. */
static double taps_there(const struct halo_plan *p)
{
    double n = 1;
    for (u32 a = 2; p->q->up && a < p->q->c.rank; a++)
        n *= (double)p->q->trans.ax[a].k / (double)(p->q->trans.ax[a].s * p->q->c.k[a]);
    return n;
}

/* Another grid that adds up the shares of a split K. */
static double adding(const struct halo_plan *p, const struct caps *caps, const i64 *var)
{
    if (p->s.split_k <= 1) return 0;
    double bytes = gen_count(p->q->c.g, p->q->c.y, var) * (double)((p->s.split_k + 1) * dtype_size(p->type));
    return 2 * launch + 2 * bytes / gen_byte_rate(caps);
}

double halo_plan_seconds(const struct halo_plan *p, const struct caps *caps,
                          const struct halo_cost *x, const i64 *var)
{
    const struct halo_work *s = &p->s;
    double units = at_least(gen_flop_rate(caps) / unit_rate, 1);
    double rate = gen_flop_rate(caps) / 2 / units; /* multiply-adds per second of a unit */
    double fma = (double)(p->ty * p->tx * p->tile_oc * p->terms * p->taps) * taps_there(p), n = residents(p, x);
    double pure = fma / x->rate, loads = fma * x->loads, copies = copying(p);
    double arithmetic = at_least(pure, loads) + 0.3 * at_most(pure, loads);
    double hidden = at_most((s->pipe == PIPE_NONE ? 0 : 0.6) + 0.2 * (n - 1), 0.9);
    double block = at_least(arithmetic, copies) + (1 - hidden) * at_most(arithmetic, copies);
    if (copies > 0) block += (s->pipe == PIPE_DOUBLE ? 1 : 2) * barrier_cost / n / 4;
    double out = (double)(p->ty * p->tx * p->tile_oc) * (s->store_shared ? 6 : 3);
    double shares = (double)i64_max(1, s->split_k), group = block * (double)p->n_in / shares + out + 4e3;
    double busy = n * (double)s->threads * x->chains; /* what hides latencies */
    double rounds = at_least(halo_plan_tiles(p, var) * shares / units, 1);
    if (rounds < 8 * n) rounds = ceil(rounds);
    return launch + adding(p, caps, var) +
           at_least(rounds * group * (1 + latency / busy) / rate, memory_seconds(p, caps, var));
}
