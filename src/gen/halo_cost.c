// SPDX-License-Identifier: Apache-2.0
//
// halo_cost: the facts of spatial tiles for the cost model.
#include "gen/halo.h"

static const double copying = 40; /* instructions of a piece on its way to shared memory: address, tests, store */
static const double storing = 3;  /* of an output; twice as many through shared memory */

enum { SECTOR_BYTES = 32 /* of memory, moved as a whole */ };

static double at_least(double x, double least) { return x > least ? x : least; }

/* Likewise, of a value that a tile reads, or writes. */
static double waste_of(const struct halo_plan *p, const struct value *v, bool is_out)
{
    if (v->layout == LAYOUT_ROWS || v->shape.rank < 3) return 1;
    i64 channels = p->oc * p->groups, n = is_out ? i64_min(p->width, channels) : p->s.bk;
    return wg_sectors((double)(i64_max(1, n) * dtype_size(v->dtype)), SECTOR_BYTES);
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

/* Of inputs and outputs, each once, with what else the sectors of memory hold. */
static double memory_bytes(const struct halo_plan *p, const i64 *var)
{
    const struct graph *t = p->q->c.g;
    double bytes = 0;
    for (u32 i = 0; i < t->input.n + t->output.n; i++) {
        value_id v = i < t->input.n ? t->input.v[i] : t->output.v[i - t->input.n];
        double waste = v == p->q->c.x || i >= t->input.n ? waste_of(p, graph_value(t, v), i >= t->input.n) : 1;
        bytes += waste * gen_bytes(t, v, var);
    }
    return bytes;
}

double halo_plan_bytes(const struct halo_plan *p, const i64 *var)
{
    const struct graph *c = p->q->c.g;
    double bytes = 0;
    for (u32 i = 0; i < c->input.n + c->output.n; i++) {
        bool in = i < c->input.n;
        value_id v = in ? c->input.v[i] : c->output.v[i - c->input.n];
        const struct value *x = graph_value(c, v);
        double run = (double)(p->tile_oc * dtype_size(x->dtype)), waste = wg_sectors(run, SECTOR_BYTES);
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

/* Of a K block. */
static struct wg_work copies_of(const struct halo_plan *p, double *bytes)
{
    const struct halo_work *s = &p->s;
    const struct graph *g = p->q->c.g;
    double pixels = (double)(p->planes * p->rows * p->cols), pieces = 0;
    *bytes = 0;
    if (s->input) {
        pieces += pixels * (double)(s->bk / p->vec);
        *bytes += pixels * (double)(s->bk * dtype_size(graph_value(g, p->q->c.x)->dtype));
    }
    if (s->weights) {
        pieces += (double)(p->n_weights / p->w_vec);
        *bytes += (double)(p->n_weights * dtype_size(graph_value(g, p->q->c.w)->dtype));
    }
    return (struct wg_work){.instructions = pieces * copying, .moved = 2 * *bytes, .barriers = pieces > 0 ? s->pipe == PIPE_DOUBLE ? 1 : 2 : 0};
}

struct wg_facts halo_plan_facts(const struct halo_plan *p, const i64 *var)
{
    const struct halo_work *s = &p->s;
    const struct conv *c = &p->q->c;
    double fmas = (double)(p->ty * p->tx * p->tile_oc * p->terms * p->taps) * taps_there(p), out = (double)(p->ty * p->tx * p->tile_oc), copied;
    double splits = (double)i64_max(1, s->split_k), sums = splits > 1 ? (splits + 1) * gen_count(c->g, c->y, var) : 0;
    struct wg_facts f = {.workgroups = halo_plan_tiles(p, var) * splits,
                         .threads = s->threads,
                         .shared_bytes = halo_plan_shared(p),
                         .steps = at_least((double)p->n_in / splits, 1),
                         .step = copies_of(p, &copied),
                         .rest = {.instructions = out * storing * (s->store_shared ? 2 : 1)},
                         .ahead = s->pipe != PIPE_NONE,
                         .bytes = memory_bytes(p, var),
                         .later = 2 * sums * (double)dtype_size(p->type),
                         .n_later = sums > 0};
    f.step.fmas = fmas;
    f.requested = f.workgroups * f.steps * copied;
    return f;
}
