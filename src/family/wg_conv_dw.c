// SPDX-License-Identifier: Apache-2.0
//
// wg_conv_dw: depthwise convolution (one input and one output channel per group) of any rank, strides
// and dilations by workgroups. A thread has a vector of rc neighbouring channels, on ry rows
// of rx pixels. Taps along the tile's axes are written out: every element of the footprint is
// loaded once, straight from the input, and added to all sums that use it, with the weights in
// registers (gen/halo_window.h). Kernels too large for that, and axes outside the tile, are loops over taps.
//
// Neighbours share the footprint's elements through the caches; shared memory would only add
// barriers to what memory limits. Threads count channels first, then x, then y.
#include "gen/halo_window.h"

enum { MAX_WRITTEN = 512 /* multiply-adds */, MAX_TAPS = 64 };

#define PARAMS(P) WINDOW_TILE(P) P(rx, "pixels of a row of a thread", 1, 2, 4, 8) P(ry, "rows of a thread", 1, 2, 4) WINDOW_REUSE(P) WINDOW_STORE(P)
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct window_params, params_of, PARAMS)

struct facts { struct halo_task q; struct window_plan w; };

static bool dw_of(struct halo_task *q, const struct task *t)
{
    return halo_task_of(q, t) && !q->up && q->c.groups > 1 && q->c.ic == 1 && q->c.oc == 1;
}

/* Emission. */

/* Adds the element (y, x) to all sums that use it, by the weights of the written taps [y][x]. */
static void add_element(const struct footprint *f, const kval *w, i64 y, i64 x)
{
    const struct window_plan *p = f->w;
    struct kir *k = f->h->m->k;
    kval in = 0;
    for (i64 i = 0; i < p->y.n * p->x.n; i++) {
        i64 ky = window_side_tap(&p->y, y, i / p->x.n), kx = window_side_tap(&p->x, x, i % p->x.n);
        if (ky < 0 || kx < 0) continue;
        if (!in) in = footprint_read(f, y, x);
        kval slot = kir_int(k, i), sum = kir_load(k, f->acc, slot);
        kir_store(k, f->acc, slot, kir_fma(k, in, w[ky * p->x.taps + kx], sum));
    }
}

/* The packed weights are [block][taps][channel]. */
static void load_weights(const struct footprint *f, kval from, kval *w)
{
    const struct halo *h = f->h;
    const struct window_side *y = &f->w->y, *x = &f->w->x;
    struct kir *k = h->m->k;
    for (i64 i = 0; i < y->taps * x->taps; i++) {
        kval at = from;
        if (y->taps > 1) at = kir_add_i(k, at, i / x->taps * h->p->w_tap[y->axis]);
        if (x->taps > 1) at = kir_add_i(k, at, i % x->taps * h->p->w_tap[x->axis]);
        at = kir_ramp(k, at, 1, (u32)h->p->s.rc);
        w[i] = kir_cast(k, h->p->type, kir_load(k, h->packed, at));
    }
}

static void add_up(void *user, struct footprint *f)
{
    const struct halo *h = user;
    struct kir *k = h->m->k;
    kval w[MAX_TAPS], at = kir_add(k, halo_weights_at(h, h->c->now), h->at[AT_C]);
    footprint_open_loops(f);
    for (u32 a = 2; a < h->q->c.rank; a++)
        if (f->tap[a]) at = kir_add(k, at, kir_mul_i(k, f->tap[a], h->p->w_tap[a]));
    load_weights(f, at, w);
    for (i64 y = 0; y < f->w->y.size; y++)
        for (i64 x = 0; x < f->w->x.size; x++) add_element(f, w, y, x);
    footprint_close_loops(f);
}

struct dw { const struct window_plan *w; struct footprint f; };

static void open(struct contraction *c)
{
    struct dw *d = c->own;
    footprint_open(&d->f, d->w, halo_of(c), 0);
}

static void multiply(struct contraction *c)
{
    struct dw *d = c->own;
    footprint_each(&d->f, add_up, halo_of(c));
}

static void store(struct contraction *c)
{
    const struct dw *d = c->own;
    halo_store_sums(halo_of(c), d->f.acc);
}

static const struct leaf leaf = {open, multiply, store};

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    struct facts x = {0};
    const struct window_params v = params_of(s);
    struct halo h = {.q = &x.q, .p = &x.w.p, .m = m};
    struct dw own = {.w = &x.w};
    struct contraction c = {.leaf = &leaf, .own = &own};
    dw_of(&x.q, t);
    window_plan_init(&x.w, &x.q, caps, &v);
    halo_emit(&h, &c, 0, t, caps);
}

/* Choosing. */

static bool analyze(const struct gen_problem *p)
{
    struct facts *x = p->facts;
    return p->c->is_gpu && dw_of(&x->q, p->t);
}

static bool view(const struct gen_problem *p, const struct sched *s)
{
    struct facts *x = p->facts;
    const struct window_params v = params_of(s);
    return window_plan_init(&x->w, &x->q, p->c, &v);
}

static bool is_possible(const struct window_plan *w, const struct caps *caps)
{
    i64 taps = w->y.taps * w->x.taps;
    return taps <= MAX_TAPS && taps * w->v.ry * w->v.rx <= MAX_WRITTEN && halo_plan_fits(&w->p, caps);
}

static struct window_limits limits_of(const struct halo_task *q)
{
    return (struct window_limits){.ty = 16, .tx = 64, .taps = MAX_TAPS, .rows = conv_input_layout(&q->c) == LAYOUT_ROWS};
}

static bool is_worth_trying(const struct window_plan *w)
{
    const struct conv *c = &w->p.q->c;
    i64 taps = window_taps(c, c->xa) * window_taps(c, c->ya);
    struct window_limits l = limits_of(w->p.q);
    l.small = taps <= MAX_TAPS && taps * w->v.rx * w->v.ry <= MAX_WRITTEN;
    if (!w->v.inner && !c->no_pad && taps > 9) return false; /* tests at every element */
    return window_plan_is_useful(w, &l);
}

static bool legal(const struct gen_problem *p, const struct sched *s)
{
    const struct window_plan *w = &((const struct facts *)p->facts)->w;
    return (window_plan_is_least(w) || is_worth_trying(w)) && is_possible(w, p->c);
}

static bool least(const struct gen_problem *p, u32 k, struct sched *s)
{
    const struct facts *x = p->facts;
    *s = WINDOW_LEAST_SCHED(&x->q);
    return k == 0;
}

static bool begins(const struct gen_problem *p, const struct sched *s, u32 n)
{
    const struct facts *x = p->facts;
    const struct window_params v = params_of(s);
    const struct window_limits l = limits_of(&x->q);
    return window_begins(&x->q, p->c, &v, &l, n);
}

static double predict(const struct gen_problem *q, const struct sched *s)
{
    const struct facts *x = q->facts;
    const struct window_plan *w = &x->w;
    const struct halo_plan *p = &w->p;
    double taps = (double)p->taps, cells = (double)(w->v.ry * w->v.rx), rc = (double)w->v.rc, written = (double)(w->y.taps * w->x.taps);
    double bytes = rc * (double)dtype_size(graph_value(p->q->c.g, p->q->c.x)->dtype), loads = taps / written * (double)(w->y.size * w->x.size);
    struct wg_work thread = {.fmas = taps * cells * rc, .moved = (loads + taps + cells) * bytes};
    thread.instructions = loads * (w->v.inner ? 6 : 10) + taps * 3 + cells * (w->v.out ? 10 : 6) + 4 * taps / written + 20; /* a load with its tests */
    return window_plan_seconds(q, w, &thread, cells * rc + written * rc + WG_ADDRESSES);
}

const struct gen gen_wg_conv_dw = {
    GEN_FAMILY("wg_conv_dw", 5), .facts = sizeof(struct facts), .analyze = analyze, .view = view,
    .least = least, .begins = begins, .legal = legal, .emit = emit, .predict = predict,
};
