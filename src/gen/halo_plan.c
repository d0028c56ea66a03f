// SPDX-License-Identifier: Apache-2.0
//
// halo_plan: the sizes that follow from a task and the work of a workgroup on a spatial tile. Of a grouped convolution a tile may hold several
// conv groups, side by side as they are in memory; then all of their input channels are one block.
#include "gen/halo.h"

enum { MAX_REACH = 1 << 20 /* of an input tile along an axis: larger ones fit nowhere */ };

static i64 gcd(i64 a, i64 b) { return b ? gcd(b, a % b) : a; }

static bool is_tiled(const struct conv *c, u32 a) { return (i32)a == c->xa || (i32)a == c->ya; }

/* Positions of the input tile along a tiled axis, for n outputs. Only multiples of the unit are met. */
static i64 reach(struct halo_plan *p, i32 axis, i64 n)
{
    const struct conv *c = &p->q->c;
    if (axis < 0) return 1;
    i64 s = c->stride[axis], d = c->dil[axis], k = c->k[axis];
    p->unit[axis] = k == 1 ? s : gcd(s, d);
    if (p->q->up) return i64_min(n + p->q->span[axis], MAX_REACH);
    return i64_min(((n - 1) * s + (k - 1) * d) / p->unit[axis] + 1, MAX_REACH);
}

/* Readers whose words fall on the same bank, at most. Words of 16 bytes, eight of them at a time.
 */
static i64 conflicts(const struct halo_plan *p, i64 pixel)
{
    i64 n[8] = {0}, worst = 0, x = p->q->c.xa;
    i64 step = p->s.apart * (x < 0 ? 1 : p->q->c.stride[x] / p->unit[x]) * pixel * dtype_size(p->cell);
    for (i64 i = 0; i < i64_min(p->s.readers, 8); i++)
        worst = i64_max(worst, ++n[i * step / 16 % 8]);
    return worst;
}

/* Elements of a pixel, padded where that spreads them over the banks. */
static i64 padded(const struct halo_plan *p, i64 n)
{
    i64 vec = i64_max(1, 16 / dtype_size(p->cell));
    return n % vec == 0 && conflicts(p, n + vec) < conflicts(p, n) ? n + vec : n;
}

static void plan_axes(struct halo_plan *p)
{
    const struct conv *c = &p->q->c;
    p->planes = p->taps = 1, p->n_order = 0;
    for (u32 a = 2; a < c->rank; a++) {
        if (is_tiled(c, a)) continue;
        p->order[p->n_order++] = a;
        p->plane[a] = p->q->up ? p->q->span[a] + 1 : c->k[a];
        p->planes *= p->plane[a];
    }
    if (c->ya >= 2) p->order[p->n_order++] = (u32)c->ya;
    if (c->xa >= 2) p->order[p->n_order++] = (u32)c->xa;
    i64 plane = p->rows * p->cols * p->pixel;
    for (u32 i = p->n_order; i-- > 0;) {
        u32 a = p->order[i];
        i64 next = (i32)a == c->xa ? p->pixel : p->cols * p->pixel;
        p->w_tap[a] = p->taps * p->terms * p->tile_oc;
        p->taps *= c->k[a];
        p->place[a] = is_tiled(c, a) ? next : plane;
        p->tap[a] = is_tiled(c, a) ? c->dil[a] / p->unit[a] * next : plane;
        if (p->q->up) p->tap[a] = -c->dil[a] * p->place[a];
        if (!is_tiled(c, a)) plane *= p->plane[a];
    }
    if (c->xa >= 0) p->step[c->xa] = c->stride[c->xa] / p->unit[c->xa] * p->pixel;
    if (c->ya >= 0) p->step[c->ya] = c->stride[c->ya] / p->unit[c->ya] * p->cols * p->pixel;
}

/* Channels as the tile sees them, and blocks of them. */
static void plan_channels(struct halo_plan *p)
{
    const struct conv *c = &p->q->c;
    i64 side = i64_max(1, p->s.groups);
    bool many = side > 1;
    p->groups = many ? 1 : c->groups;
    p->ic = many ? c->ic * c->groups : c->ic, p->oc = many ? c->oc * c->groups : c->oc;
    p->terms = p->s.bk / side;
    p->n_in = many ? 1 : ceil_div(c->ic, p->s.bk);
    halo_up_plan(p);
}

static void plan_copies(struct halo_plan *p)
{
    const struct halo_work *s = &p->s;
    enum dtype w = p->q->c.w ? graph_value(p->q->c.g, p->q->c.w)->dtype : p->type;
    i64 pixels = p->planes * p->rows * p->cols;
    p->n_input = s->input ? pixels * p->pixel : 0;
    p->n_weights = p->q->c.w ? p->taps * p->terms * p->tile_oc : 0;
    p->w_vec = wg_power_dividing(16 / dtype_size(w), p->n_weights);
    p->result = p->tile_oc + (p->tile_oc % 2 ? 0 : i64_max(1, 16 / dtype_size(p->cell)));
    p->n_result = s->store_shared ? p->ty * p->tx * p->result : 0;
    p->buffers = s->pipe == PIPE_DOUBLE ? 2 : 1;
    p->input_copies = s->input ? ceil_div(pixels * (s->bk / p->vec), s->threads) : 0;
    p->weight_copies = s->weights ? ceil_div(p->n_weights / p->w_vec, s->threads) : 0;
}

struct halo_work halo_work_of_threads(i64 threads, i64 tc, i64 px, i64 rc, i64 rx, i64 ry)
{
    return (struct halo_work){.threads = threads,
                              .tc = tc,
                              .px = px,
                              .py = threads / (tc * px),
                              .rc = rc,
                              .rx = rx,
                              .ry = ry,
                              .near = 1,
                              .bk = tc * rc,
                              .groups = tc * rc,
                              .run = rc,
                              .readers = i64_max(1, 8 / tc),
                              .apart = rx};
}

void halo_plan_init(struct halo_plan *p, const struct halo_task *q, const struct halo_work *s)
{
    const struct conv *c = &q->c;
    enum dtype x = graph_value(c->g, c->x)->dtype;
    p->q = q, p->s = *s;
    p->ty = s->py * s->ry, p->tx = s->px * s->rx, p->tile_oc = s->tc * s->rc;
    p->type = emit_type(x);
    p->cell = s->wide ? p->type : x;
    p->by_pixel = conv_input_layout(c) != LAYOUT_ROWS;
    p->vec = p->by_pixel ? wg_power_dividing(16 / dtype_size(x), s->bk) : 1;
    p->rows = reach(p, c->ya, p->ty), p->cols = reach(p, c->xa, p->tx);
    p->pixel = padded(p, s->bk);
    plan_channels(p);
    plan_axes(p);
    plan_copies(p);
}

i64 halo_plan_shared(const struct halo_plan *p)
{
    i64 input = i64_max(p->n_input * p->buffers, p->n_result) * dtype_size(p->cell);
    if (p->s.split_k > 1)
        input = p->n_input * p->buffers * dtype_size(p->cell) + p->n_result * dtype_size(p->type);
    if (!p->s.weights) return input;
    i64 weights = p->n_weights * p->buffers;
    return input + weights * dtype_size(graph_value(p->q->c.g, p->q->c.w)->dtype);
}

i64 halo_plan_copies(const struct halo_plan *p) { return p->input_copies + p->weight_copies; }

bool halo_plan_by_registers(const struct halo_plan *p) { return halo_plan_copies(p) <= HALO_COPIES; }

/* Weights of transposed convolutions lie as [input channel][output]: those behind a group are the next one's. */
static bool groups_overlap(const struct halo_plan *p)
{
    return p->groups > 1 && p->ic % p->s.bk;
}

/* Parts of threads hold whole windows of the pooling. */
static bool holds_windows(const struct halo_plan *p)
{
    const struct conv *c = &p->q->c;
    return p->s.ry % halo_task_window(p->q, c->ya) == 0 && p->s.rx % halo_task_window(p->q, c->xa) == 0;
}

bool halo_plan_fits(const struct halo_plan *p, const struct caps *c)
{
    const struct halo_task *q = p->q;
    const struct halo_work *s = &p->s;
    i32 ya = q->c.ya, xa = q->c.xa;
    bool staged = s->input || s->weights;
    if (s->threads > c->max_group || halo_plan_shared(p) > c->shared_bytes) return false;
    if ((ya < 0 && p->ty > 1) || (xa < 0 && p->tx > 1)) return false;
    if (s->pipe != PIPE_NONE && (p->n_in == 1 || !staged || !halo_plan_by_registers(p))) return false;
    if (s->wide && p->type == graph_value(q->c.g, q->c.x)->dtype) return false;
    if (!s->store_shared && (q->tail.ragged || !holds_windows(p))) return false;
    if (q->up && (s->groups > 1 || groups_overlap(p))) return false;
    if (s->split_k > 1 && (p->n_in % s->split_k || p->n_in / s->split_k < 2)) return false;
    return p->ty % halo_task_window(q, ya) == 0 && p->tx % halo_task_window(q, xa) == 0;
}

double halo_plan_overlap(const struct halo_plan *p)
{
    const struct conv *c = &p->q->c;
    double n = (double)(p->rows * p->cols);
    if (c->ya >= 0) n *= (double)p->unit[c->ya] / (double)(p->ty * c->stride[c->ya]);
    if (c->xa >= 0) n *= (double)p->unit[c->xa] / (double)(p->tx * c->stride[c->xa]);
    return n;
}
