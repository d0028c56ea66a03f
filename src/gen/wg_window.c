// SPDX-License-Identifier: Apache-2.0
//
// wg_window: what a thread reads for its outputs where every channel is by itself (depthwise
// convolutions, pooling). Taps along the axes of the tile may be written out: then the thread's
// windows overlap to a footprint, each of whose elements is read once for all of them. Taps that
// are not, and axes outside the tile, are loops.
//
// Elements come straight from the input, or from the patch in shared memory.
#include "gen/wg_conv.h"

static struct wg_side side_of(const struct conv *c, i32 axis, i64 n, bool written)
{
    struct wg_side s = {.axis = axis, .n = n, .taps = 1, .unit = 1, .size = n, .step = 1};
    if (axis < 0) return s;
    s.unit = c->stride[axis];
    if (!written || c->k[axis] == 1) return s;
    s.taps = c->k[axis];
    while (c->stride[axis] % s.unit || c->dil[axis] % s.unit) s.unit--;
    s.step = c->stride[axis] / s.unit, s.tap = c->dil[axis] / s.unit;
    s.size = (n - 1) * s.step + (s.taps - 1) * s.tap + 1;
    return s;
}

void wg_footprint_of(struct wg_footprint *f, const struct wg_conv *g, const struct wg_cells *t,
                   enum wg_reuse reuse)
{
    *f = (struct wg_footprint){.g = g, .cells = t};
    f->y = side_of(&g->c, g->c.ya, t->ry, reuse == REUSE_ALL);
    f->x = side_of(&g->c, g->c.xa, t->rx, reuse != REUSE_NONE);
}

i64 wg_side_tap(const struct wg_side *s, i64 element, i64 output)
{
    i64 d = element - output * s->step;
    if (s->taps == 1) return d == 0 ? 0 : -1;
    return d >= 0 && d % s->tap == 0 && d / s->tap < s->taps ? d / s->tap : -1;
}

static bool is_written(const struct wg_footprint *f, u32 axis)
{
    return ((i32)axis == f->y.axis && f->y.taps > 1) || ((i32)axis == f->x.axis && f->x.taps > 1);
}

void wg_footprint_open(struct wg_footprint *f)
{
    const struct wg_conv *g = f->g;
    struct kir *k = g->m->k;
    for (u32 i = 0; i < g->n_order; i++) {
        u32 a = g->order[i];
        f->tap[a] = 0;
        if (g->c.k[a] == 1 || is_written(f, a)) continue;
        f->tap[a] = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, g->c.k[a]), 1);
        f->n_loops++;
    }
}

void wg_footprint_close(struct wg_footprint *f)
{
    for (; f->n_loops; f->n_loops--) kir_end(f->g->m->k);
}

/* Straight from the input. */

/* Position in the padded input, along one axis, of element i of the footprint. */
static kval position(const struct wg_footprint *f, u32 axis, const struct wg_side *s, i64 i)
{
    struct kir *k = f->g->m->k;
    bool is_y = s == &f->y;
    kval first = kir_add(k, is_y ? f->g->y0 : f->g->x0, f->cells->at[is_y ? AT_Y : AT_X]);
    return kir_add_i(k, kir_mul_i(k, first, f->g->c.stride[axis]), i * s->unit);
}

static void source(const struct wg_footprint *f, i64 y, i64 x, struct wg_source *s)
{
    const struct wg_conv *g = f->g;
    struct kir *k = g->m->k;
    kval pos[MAX_RANK];
    for (u32 a = 0; a < g->c.rank; a++) {
        if ((i32)a == f->y.axis) pos[a] = position(f, a, &f->y, y);
        else if ((i32)a == f->x.axis) pos[a] = position(f, a, &f->x, x);
        else pos[a] = kir_mul_i(k, g->pos[a], g->c.stride[a]);
        if (f->tap[a]) pos[a] = kir_add(k, pos[a], kir_mul_i(k, f->tap[a], g->c.dil[a]));
    }
    kval c = kir_add(k, kir_mul_i(k, g->block, g->s.oc), f->cells->at[AT_C]);
    wg_conv_source(g, s, pos, c, f->cells->rc);
}

kval wg_footprint_inside(const struct wg_footprint *f)
{
    struct kir *k = f->g->m->k;
    const struct conv *c = &f->g->c;
    struct wg_footprint first = *f, last = *f;
    struct wg_source a, b;
    for (u32 i = 2; i < c->rank; i++) {
        first.tap[i] = 0;
        last.tap[i] = c->k[i] > 1 && !is_written(f, i) ? kir_int(k, c->k[i] - 1) : 0;
    }
    source(&first, 0, 0, &a);
    source(&last, f->y.size - 1, f->x.size - 1, &b);
    return a.ok && b.ok ? kir_bin(k, KI_AND, a.ok, b.ok) : a.ok ? a.ok : b.ok;
}

static kval read_input(const struct wg_footprint *f, i64 y, i64 x)
{
    const struct wg_conv *g = f->g;
    struct kir *k = g->m->k;
    u32 lanes = (u32)f->cells->rc;
    struct wg_source s;
    source(f, y, x, &s);
    if (!s.ok || f->inside) return kir_cast(k, g->type, wg_conv_value(g, &s));
    kval reg = kir_alloc(k, KS_REG, g->type, lanes, kir_int(k, 1)), zero = kir_int(k, 0);
    kir_store(k, reg, zero, wg_conv_outside(g, g->type, lanes));
    kir_if(k, s.ok);
    kir_store(k, reg, zero, kir_cast(k, g->type, wg_conv_value(g, &s)));
    kir_end(k);
    return kir_load(k, reg, zero);
}

/* From the patch. */

static kval read_patch(const struct wg_footprint *f, i64 y, i64 x)
{
    const struct wg_conv *g = f->g;
    struct kir *k = g->m->k;
    i32 ya = f->y.axis, xa = f->x.axis;
    kval at = kir_add(k, f->patch, f->cells->at[AT_C]);
    if (ya >= 0) at = kir_add(k, at, kir_mul_i(k, f->cells->at[AT_Y], g->step[ya]));
    if (xa >= 0) at = kir_add(k, at, kir_mul_i(k, f->cells->at[AT_X], g->step[xa]));
    for (u32 a = 2; a < g->c.rank; a++)
        if (f->tap[a]) at = kir_add(k, at, kir_mul_i(k, f->tap[a], g->tap[a]));
    if (ya >= 0) at = kir_add_i(k, at, y * (f->y.unit / g->unit[ya]) * g->cols * g->pixel);
    if (xa >= 0) at = kir_add_i(k, at, x * (f->x.unit / g->unit[xa]) * g->pixel);
    at = kir_ramp(k, at, 1, (u32)f->cells->rc);
    return kir_cast(k, g->type, kir_load(k, g->patch, at));
}

kval wg_footprint_read(const struct wg_footprint *f, i64 y, i64 x)
{
    return f->g->s.patch ? read_patch(f, y, x) : read_input(f, y, x);
}
