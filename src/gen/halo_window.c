// SPDX-License-Identifier: Apache-2.0
//
// halo_window: what a thread reads for its outputs where every channel is by itself (depthwise convolutions, pooling), straight from the input or from
// the input tile in shared memory, and the schedules of both families.
#include "gen/halo_window.h"

#include <string.h>

/* Schedules. */

static struct window_side side_of(const struct conv *c, i32 axis, i64 n, bool written)
{
    struct window_side s = {.axis = axis, .n = n, .taps = 1, .unit = 1, .size = n, .step = 1};
    if (axis < 0) return s;
    s.unit = c->stride[axis];
    if (!written || c->k[axis] == 1) return s;
    s.taps = c->k[axis];
    while (c->stride[axis] % s.unit || c->dil[axis] % s.unit) s.unit--;
    s.step = c->stride[axis] / s.unit, s.tap = c->dil[axis] / s.unit;
    s.size = (n - 1) * s.step + (s.taps - 1) * s.tap + 1;
    return s;
}

static bool are_threads_possible(const struct caps *c, const struct window_params *v)
{
    return v->threads <= c->max_group && v->threads % (v->tc * v->px) == 0 && v->rc * v->rx * v->ry <= WINDOW_CELLS;
}

bool window_plan_init(struct window_plan *w, const struct halo_task *q, const struct caps *c, const struct window_params *v)
{
    if (!are_threads_possible(c, v)) return false;
    struct halo_work s = halo_work_of_threads(v->threads, v->tc, v->px, v->rc, v->rx, v->ry);
    s.input = v->stage, s.store_shared = v->out;
    halo_plan_init(&w->p, q, &s);
    w->v = *v;
    w->y = side_of(&q->c, q->c.ya, v->ry, v->reuse == REUSE_ALL);
    w->x = side_of(&q->c, q->c.xa, v->rx, v->reuse != REUSE_NONE);
    return true;
}

bool window_plan_is_least(const struct window_plan *w)
{
    const struct halo_task *q = w->p.q;
    struct window_params least = {.threads = WINDOW_LEAST,
                                  .tc = WINDOW_LEAST,
                                  .px = 1,
                                  .rc = 1,
                                  .rx = halo_task_window(q, q->c.xa),
                                  .ry = halo_task_window(q, q->c.ya),
                                  .out = q->tail.pool != 0};
    return !memcmp(&least, &w->v, sizeof least);
}

i64 window_taps(const struct conv *c, i32 axis) { return axis < 2 ? 1 : c->k[axis]; }

/* Do neighbouring threads access neighbours in memory, in tiles that are not much larger than the output? */
static bool is_tile_useful(const struct halo_task *q, const struct window_params *v, const struct window_limits *l)
{
    const struct conv *c = &q->c;
    i64 x = halo_task_size(q, c->xa), y = halo_task_size(q, c->ya), oc = v->tc * v->rc, tx = v->px * v->rx, ty = v->threads / (v->tc * v->px) * v->ry;
    if (l->rows ? v->tc > 1 || v->rc > 1 : oc < i64_min(32, c->groups) || v->rc < i64_min(4, c->groups)) return false;
    if (tx > l->tx || ty > l->ty || (l->rows && tx < i64_min(32, x))) return false;
    bool wide = tx > v->rx && tx / 2 >= x, high = ty > v->ry && ty / 2 >= y;
    return !wide && !high && !(oc > v->rc && oc / 2 >= c->groups);
}

bool window_begins(const struct halo_task *q, const struct caps *caps, const struct window_params *v, const struct window_limits *l, u32 n)
{
    if (n == 3) return v->threads != WINDOW_LEAST && v->threads % (v->tc * v->px) == 0; /* of WINDOW_TILE all but rc */
    return n != 6 || (are_threads_possible(caps, v) && is_tile_useful(q, v, l));
}

bool window_plan_is_useful(const struct window_plan *w, const struct window_limits *l)
{
    const struct window_params *v = &w->v;
    const struct conv *c = &w->p.q->c;
    i64 kx = window_taps(c, c->xa), ky = window_taps(c, c->ya);
    if (v->threads == WINDOW_LEAST) return false;
    if (v->out && !w->p.q->tail.pool && (!halo_task_has_rows(w->p.q) || (conv_input_layout(c) == LAYOUT_ROWS && v->rx == 1))) return false;
    if (v->reuse == REUSE_NONE && kx > 1 && kx <= l->taps) return false;
    if (v->reuse == REUSE_X && (kx == 1 || (ky <= 3 && l->small))) return false;
    if (v->reuse == REUSE_ALL && ky * kx == 1) return false;
    return is_tile_useful(w->p.q, v, l);
}

double window_plan_seconds(const struct gen_problem *p, const struct window_plan *w, const struct wg_work *thread, double regs)
{
    const struct halo_plan *h = &w->p;
    double threads = (double)h->s.threads;
    struct wg_facts f = {.workgroups = halo_plan_tiles(h, p->var), .threads = h->s.threads, .shared_bytes = halo_plan_shared(h), .regs = regs};
    f.ilp = (double)(w->v.rx * w->v.ry * w->v.rc);
    f.step = (struct wg_work){.fmas = threads * thread->fmas,
                              .instructions = threads * thread->instructions,
                              .moved = threads * thread->moved,
                              .barriers = h->s.store_shared + 2 * h->s.input};
    f.bytes = halo_plan_bytes(h, p->var) * (h->s.input ? 0.5 + 0.5 * halo_plan_overlap(h) : 1);
    return wg_seconds(p, &f);
}

i64 window_side_tap(const struct window_side *s, i64 element, i64 output)
{
    i64 d = element - output * s->step;
    if (s->taps == 1) return d == 0 ? 0 : -1;
    return d >= 0 && d % s->tap == 0 && d / s->tap < s->taps ? d / s->tap : -1;
}

/* Taps that are loops. */

void footprint_open(struct footprint *f, const struct window_plan *w, struct halo *h, kval init)
{
    *f = (struct footprint){.w = w, .h = h};
    f->acc = halo_sums_open(h, init);
}

static bool is_written(const struct footprint *f, u32 axis)
{
    return ((i32)axis == f->w->y.axis && f->w->y.taps > 1) || ((i32)axis == f->w->x.axis && f->w->x.taps > 1);
}

void footprint_open_loops(struct footprint *f)
{
    const struct halo *h = f->h;
    struct kir *k = h->m->k;
    for (u32 i = 0; i < h->p->n_order; i++) {
        u32 a = h->p->order[i];
        f->tap[a] = 0;
        if (h->q->c.k[a] == 1 || is_written(f, a)) continue;
        f->tap[a] = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, h->q->c.k[a]), 1);
        f->n_loops++;
    }
}

void footprint_close_loops(struct footprint *f)
{
    for (; f->n_loops; f->n_loops--) kir_end(f->h->m->k);
}

/* Straight from the input. */

/* Position in the padded input, along one axis, of element i of the footprint. */
static kval position(const struct footprint *f, u32 axis, const struct window_side *s, i64 i)
{
    struct kir *k = f->h->m->k;
    bool is_y = s == &f->w->y;
    kval first = kir_add(k, is_y ? f->h->y0 : f->h->x0, f->h->at[is_y ? AT_Y : AT_X]);
    return kir_add_i(k, kir_mul_i(k, first, f->h->q->c.stride[axis]), i * s->unit);
}

static void source(const struct footprint *f, i64 y, i64 x, struct halo_source *s)
{
    const struct halo *h = f->h;
    struct kir *k = h->m->k;
    kval pos[MAX_RANK];
    for (u32 a = 0; a < h->q->c.rank; a++) {
        if ((i32)a == f->w->y.axis) pos[a] = position(f, a, &f->w->y, y);
        else if ((i32)a == f->w->x.axis) pos[a] = position(f, a, &f->w->x, x);
        else pos[a] = kir_mul_i(k, h->pos[a], h->q->c.stride[a]);
        if (f->tap[a]) pos[a] = kir_add(k, pos[a], kir_mul_i(k, f->tap[a], h->q->c.dil[a]));
    }
    kval c = kir_add(k, kir_mul_i(k, h->block, h->p->tile_oc), h->at[AT_C]);
    halo_source(h, s, pos, c, h->p->s.rc);
}

/* Do all elements exist? 0: always. */
static kval is_inside(const struct footprint *f)
{
    struct kir *k = f->h->m->k;
    const struct conv *c = &f->h->q->c;
    struct footprint first = *f, last = *f;
    struct halo_source a, b;
    for (u32 i = 2; i < c->rank; i++) {
        first.tap[i] = 0;
        last.tap[i] = c->k[i] > 1 && !is_written(f, i) ? kir_int(k, c->k[i] - 1) : 0;
    }
    source(&first, 0, 0, &a);
    source(&last, f->w->y.size - 1, f->w->x.size - 1, &b);
    return kir_and(k, a.ok, b.ok);
}

static kval read_input(const struct footprint *f, i64 y, i64 x)
{
    struct halo_source s;
    source(f, y, x, &s);
    if (f->inside) s.ok = 0;
    return halo_read(f->h, &s);
}

/* From the input tile in shared memory. */

static kval read_tile(const struct footprint *f, i64 y, i64 x)
{
    const struct halo *h = f->h;
    struct kir *k = h->m->k;
    i32 ya = f->w->y.axis, xa = f->w->x.axis;
    kval at = kir_add(k, halo_tile_at(h, h->c->now), h->at[AT_C]);
    if (ya >= 0) at = kir_add(k, at, kir_mul_i(k, h->at[AT_Y], h->p->step[ya]));
    if (xa >= 0) at = kir_add(k, at, kir_mul_i(k, h->at[AT_X], h->p->step[xa]));
    for (u32 a = 2; a < h->q->c.rank; a++)
        if (f->tap[a]) at = kir_add(k, at, kir_mul_i(k, f->tap[a], h->p->tap[a]));
    if (ya >= 0) at = kir_add_i(k, at, y * (f->w->y.unit / h->p->unit[ya]) * h->p->cols * h->p->pixel);
    if (xa >= 0) at = kir_add_i(k, at, x * (f->w->x.unit / h->p->unit[xa]) * h->p->pixel);
    at = kir_ramp(k, at, 1, (u32)h->p->s.rc);
    return kir_cast(k, h->p->type, kir_load(k, h->input, at));
}

kval footprint_read(const struct footprint *f, i64 y, i64 x)
{
    return f->h->p->s.input ? read_tile(f, y, x) : read_input(f, y, x);
}

void footprint_each(struct footprint *f, footprint_fn *fn, void *user)
{
    struct kir *k = f->h->m->k;
    kval inside = f->w->v.inner ? is_inside(f) : 0;
    if (inside) {
        f->inside = true;
        kir_if(k, inside);
        fn(user, f);
        kir_else(k);
    }
    f->inside = false;
    fn(user, f);
    if (inside) kir_end(k);
}
