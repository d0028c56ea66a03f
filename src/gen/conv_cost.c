// SPDX-License-Identifier: Apache-2.0
//
// conv_cost: what convolutions by register tiles cost. The loops of one thread (nest.h) are, from the inside: the register tile with all its
// terms; tiles along x, along y, and blocks of output channels, in the schedule's order; and the grid's: bands, images and other axes, groups
// of blocks. A tile's input is its window, of which neighbouring tiles share what strides leave.
#include "gen/conv_cost.h"

#include <math.h>

void conv_tiles_open(struct conv_tiles *t, const struct conv *c, const struct caps *caps, bool is_flat, const i64 *var)
{
    *t = (struct conv_tiles){.c = c, .lanes = conv_lanes(c, caps), .x = 1, .y = 1, .outer = i64_max(1, c->phases), .size = 4,
                             .present = c->present};
    t->n_x = gen_count(c->g, c->x, var), t->n_y = gen_count(c->g, c->y, var);
    conv_tiles_multiply_by(t, tile_multiply_add);
    if (is_flat) {
        const struct space s = conv_space(c);
        for (u32 i = 0; i < s.n; i++) *(i + 1 == s.n ? &t->x : &t->outer) *= gen_eval(c->g, s.g[i].extent, var);
    }
    for (u32 a = 0; !is_flat && a < c->rank; a++)
        if (a != 1) *((i32)a == c->xa ? &t->x : (i32)a == c->ya ? &t->y : &t->outer) *= gen_eval(c->g, c->out[a], var);
    t->outer = i64_max(1, t->outer); /* a batch may be empty */
}

/* Of an element in memory: 16-bit floats are half of those that other operands are computed as. */
static double size_of(const struct conv_tiles *t, value_id v, double size)
{
    enum dtype d = graph_value(t->c->g, v)->dtype;
    return dtype_is_float(d) && dtype_size(d) == 2 ? 2 : size;
}

void conv_tiles_multiply_by(struct conv_tiles *t, struct tile_product p)
{
    t->steps = (double)ceil_div(t->c->ic, p.terms);
    for (u32 a = 2; a < t->c->rank; a++) t->steps *= (double)t->c->k[a];
    t->product = p, t->is_fma = p.terms == 1;
    t->size = t->is_fma ? 4 : (double)dtype_size(graph_value(t->c->g, t->c->x)->dtype);
    t->x_size = size_of(t, t->c->x, t->size), t->w_size = size_of(t, t->c->w, t->size), t->y_size = size_of(t, t->c->y, 4);
}

void conv_tiles_set(struct conv_tiles *t, const struct conv_sched *s)
{
    t->blocks = ceil_div(t->c->oc, s->nr * t->lanes);
    t->ob = s->ob ? i64_min(s->ob, t->blocks) : t->blocks;
    t->tiles_x = ceil_div(i64_max(1, t->x), s->tx), t->tiles_y = ceil_div(i64_max(1, t->y), s->ty);
    t->tw = s->tw ? i64_min(s->tw, t->tiles_x) : t->tiles_x;
    t->th = s->th ? i64_min(s->th, t->tiles_y) : t->tiles_y;
    t->iterations = t->c->groups * ceil_div(t->blocks, t->ob) * t->outer * ceil_div(t->tiles_x, t->tw) * ceil_div(t->tiles_y, t->th) *
                    i64_max(1, s->split_k);
}

/* Does a tile convert vectors of weights before it multiplies them? */
static bool converts_weights(const struct conv_tiles *t) { return t->is_fma && t->w_size < t->size; }

/* Writing a block and reading it again takes longer than some tiles' conversions. */
bool conv_tiles_widen(const struct conv_tiles *t, const struct caps *caps, const struct conv_sched *s)
{
    enum { TILES = 8 };
    double block = t->size * t->steps * (double)(s->nr * t->lanes);
    return converts_weights(t) && s->order == 0 && !s->ahead && s->split_k <= 1 && t->c->phases == 0 && t->tw * t->th >= TILES && 2 * block <= (double)caps->l2_bytes;
}

/* Two shuffles each, for which there is one unit besides those that multiply (Zen 4). */
double conv_tiles_spread(const struct conv_tiles *t, const struct conv_sched *s)
{
    bool converts = s->stage == STAGE_DIRECT && t->is_fma && graph_value(t->c->g, t->c->x)->dtype != t->c->type;
    return converts ? 2 * t->steps * (double)(s->tx * s->ty) : 0;
}

bool conv_tiles_fit(const struct conv_tiles *t, const struct caps *caps, const struct conv_sched *s)
{
    const struct conv *c = t->c;
    if (s->nr > 1 && (s->nr - 1) * t->lanes >= c->oc) return false;
    if (t->blocks == 1 ? s->ob != 0 || s->order != 0 : s->ob >= t->blocks) return false;
    if (s->order == 1 && t->ob == 1) return false;
    if (s->nt && !gen_may_nt(c->g, caps, conv_run(c, s->nr * t->lanes))) return false;
    return (s->th <= 1 || s->th <= t->tiles_y) && (s->tw <= 1 || s->tw <= t->tiles_x);
}

double conv_reach(const struct conv *c, i32 axis, double n)
{
    if (axis < 0) return 1;
    return (n - 1) * (double)c->stride[axis] + (double)((c->k[axis] - 1) * c->dil[axis]) + 1;
}

/* Taps of the axes that are not the tile's. */
static double rest_taps(const struct conv *c)
{
    double n = 1;
    for (u32 a = 2; a < c->rank; a++)
        if ((i32)a != c->xa && (i32)a != c->ya) n *= (double)c->k[a];
    return n;
}

static double window(const struct conv *c, double x, double y) { return rest_taps(c) * conv_reach(c, c->xa, x) * conv_reach(c, c->ya, y) * (double)c->ic; }

/* Of n outputs side by side: inputs that they read along the axis, of which dilated windows leave some out. */
static double touched(const struct conv *c, i32 axis, double n)
{
    double reach = conv_reach(c, axis, n);
    return axis >= 0 && c->dil[axis] > 1 ? fmin(reach, n * (double)c->k[axis]) : reach;
}

double conv_tiles_band(const struct conv_tiles *t, const struct conv_sched *s)
{
    return window(t->c, (double)(t->tw * s->tx), (double)(t->th * s->ty));
}

double conv_fresh(const struct conv *c, i32 axis, double n)
{
    return axis < 0 ? 0 : fmin(1, n * (double)c->stride[axis] / touched(c, axis, n));
}

/* Likewise, of one step along the axes that are not the tile's. */
static double fresh_outside(const struct conv *c)
{
    double n = rest_taps(c);
    return n > 1 ? 1 / sqrt(n) : 1;
}

/* One step of a tile. A matrix unit reads pixels one after the other, others are copied for it. */
static double step_seconds(const struct conv_tiles *t, const struct nest_rates *r, const struct conv_sched *s, i64 nr)
{
    const i64 pixels = s->ty * s->tx, unit = tile_unit(t->product);
    double seconds = nest_unit_seconds(r, t->product, graph_value(t->c->g, t->c->x)->dtype);
    if (seconds <= 0) return nest_step_by(r, t->product, pixels, nr);
    bool is_even = s->copy || (!s->merged && (s->ty == 1 || s->tx % unit == 0));
    return nest_unit(r, seconds, pixels, nr, is_even ? pixels % unit : pixels);
}

/* A register tile with all its terms: the nest's body. */
static struct nest body_of(const struct conv_tiles *t, const struct nest_rates *r, const struct caps *caps, const struct conv_sched *s,
                           struct conv_others others)
{
    const struct conv *c = t->c;
    double steps = t->steps * t->present / (double)i64_max(1, s->split_k), tiles = (double)(t->tw * t->th * t->ob);
    double pixels = (double)(s->tx * s->ty), cells = pixels * (double)s->nr, width = (double)(s->nr * t->lanes);
    bool has_masks = c->oc % t->lanes && caps->vector_bytes < 64; /* of the last vector of channels; slow but for AVX-512's */
    i64 vectors = ceil_div(c->oc, t->lanes), last = vectors - (t->blocks - 1) * s->nr; /* of all blocks, of the last one */
    double step = ((double)(t->blocks - 1) * step_seconds(t, r, s, s->nr) + step_seconds(t, r, s, last)) / (double)t->blocks;
    double x_size = s->stage == STAGE_DIRECT ? t->x_size : t->size, w_step = (t->widens ? t->size : t->w_size) * (double)t->product.terms;
    double inputs = t->present * rest_taps(c) * touched(c, c->xa, (double)s->tx) * touched(c, c->ya, (double)s->ty) * (double)c->ic;
    struct nest n = {.bytes = {x_size * inputs, w_step * steps * width, t->y_size * pixels * width}};
    double multiplies = steps * step + (others.tile + (s->ahead ? 0.1 * steps * (double)s->nr : 0)) * r->cycle;
    if (t->widens) others.iteration += (double)(t->ob * s->nr) * steps * (2 * r->load / r->cycle + 1);
    else if (converts_weights(t)) multiplies += steps * (double)s->nr * nest_conversion(r);
    n.seconds = nest_both(multiplies, others.aside * r->cycle) + nest_ends(r, cells, c->by_rows ? (double)t->lanes : 0);
    n.seconds += (others.iteration / tiles + (has_masks ? 8 * pixels / (double)t->blocks : 0)) * r->cycle;
    n.asked[NEST_RIGHT] = s->ahead > 0 ? 1 : 0;
    if (s->stage == STAGE_DIRECT && graph_value(c->g, c->x)->layout == LAYOUT_CLAST) {
        double pixel = x_size * (double)(c->ic * c->groups) * (c->xa >= 0 ? (double)c->stride[c->xa] : 1);
        n.rows[NEST_LEFT] = (struct nest_rows){x_size * (double)c->ic, pixel, pixels};
    }
    if (t->blocks == 1 && c->groups == 1 && !c->by_rows && s->ty > 1) { /* all channels of a row's pixels are one piece */
        double pixel = t->y_size * (double)c->oc;
        n.rows[NEST_SUMS] = (struct nest_rows){pixel * (double)s->tx, pixel * (double)t->x, (double)s->ty};
    }
    return n;
}

double conv_tiles_seconds(const struct conv_tiles *t, const struct nest_rates *r, const struct caps *caps, const struct conv_sched *s,
                          struct conv_others others)
{
    double share = (double)i64_max(1, s->split_k), threads = (double)i64_max(1, caps->n_threads), all = (double)t->iterations;
    struct nest n = body_of(t, r, caps, s, others);
    const struct conv *c = t->c;
    double band = s->stage == STAGE_DIRECT ? 1 : 0; /* the scratch memory of a band is the next one's, too */
    if (s->order == 1) nest_loop(&n, (double)t->ob, 0, 1, 1);
    nest_loop(&n, (double)t->tw, conv_fresh(c, c->xa, (double)s->tx), 0, 1);
    nest_loop(&n, (double)t->th, conv_fresh(c, c->ya, (double)s->ty), 0, 1);
    if (s->order == 0) nest_loop(&n, (double)t->ob, 0, 1, 1);
    double phases = (double)i64_max(1, c->phases); /* of a transposed one, each with weights of its own */
    nest_loop(&n, phases, 0, 1, 1);
    nest_loop(&n, (double)ceil_div(t->tiles_x, t->tw), band, 0, 1);
    nest_loop(&n, (double)ceil_div(t->tiles_y, t->th), band, 0, 1);
    nest_loop(&n, (double)t->outer / phases, band * fresh_outside(c), 0, 1);
    nest_loop(&n, (double)ceil_div(t->blocks, t->ob), 0, 1, 1);
    nest_loop(&n, (double)(c->groups * i64_max(1, s->split_k)), 1, 1, 1);
    double late = threads > 1 ? t->uneven : 0; /* threads take the iterations in turn: only the last one of them is waited for */
    double seconds = nest_seconds(&n, r) * (ceil(all / threads) + late) / all + r->launch;
    if (s->stage != STAGE_DIRECT) { /* each group of blocks fills its bands, half of the time while others compute */
        double bytes = size_of(t, c->x, 4) * t->n_x;
        seconds += 0.5 * nest_read(r, bytes * (double)ceil_div(t->blocks, t->ob), bytes, &(struct nest_rows){0}) / threads;
    }
    if (!t->c->simple || share > 1) seconds += r->launch * (threads > 1) + 4 * (1 + 2 * share) * t->n_y * r->line[RATE_DRAM] / threads;
    return seconds;
}
