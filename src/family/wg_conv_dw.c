// SPDX-License-Identifier: Apache-2.0
//
// wg_conv_dw: depthwise convolution (one input and one output channel per group) of any rank, strides
// and dilations by workgroups. A thread has a vector of rc neighbouring channels, on ry rows
// of rx pixels. Taps along the tile's axes are written out: every element of the footprint is
// loaded once, straight from the input, and added to all sums that it meets, with the weights in
// registers. Kernels too large for that, and axes outside the tile, are loops over taps.
//
// Neighbours share the footprint's elements through the caches; shared memory would only add
// barriers to what memory limits. Threads count channels first, then x, then y.
//
// To the functions shared with the other convolutions (gen/wg_conv.c), a tile holds as many
// groups as channels.
#include "gen/wg.h"
#include "gen/wg_conv.h"

#include <string.h>

enum { MAX_WRITTEN = 512 /* multiply-adds */, MAX_TAPS = 64, MAX_CELLS = 64, LEAST = 16 };

// clang-format off
#define PARAMS(P)                                                                                                 \
    P(threads, "threads of a workgroup", LEAST, 64, 128, 256)                                                         \
    P(tc, "threads along channels", 1, 2, 4, 8, 16, 32)                                                           \
    P(px, "threads along x, the others along y", 1, 2, 4, 8, 16, 32)                                              \
    P(rc, "channels of a thread", 1, 2, 4, 8)                                                                     \
    P(rx, "pixels of a row of a thread", 1, 2, 4, 8)                                                              \
    P(ry, "rows of a thread", 1, 2, 4)                                                                            \
    P(reuse, "elements loaded once for all taps: 0 of none, 1 of x, 2 of y, too", REUSE_NONE, REUSE_X, REUSE_ALL) \
    P(inner, "1: threads away from the edges have code of their own", 0, 1)                                       \
    P(out, "outputs leave 0 from registers, 1 through shared memory", 0, 1)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)

struct thread_dw {
    struct wg_conv g;
    struct params v;
    i64 py; /* threads along y */
    struct wg_cells cells;
    struct wg_footprint foot;
};

static void take(struct thread_dw *t, const struct sched *s)
{
    const struct params v = t->v = params_of(s);
    struct wg_conv *g = &t->g;
    struct wg_cells *c = &t->cells;
    *c = (struct wg_cells){v.tc, v.px, v.ry, v.rx, v.rc, {0}, 0};
    t->py = v.threads / (v.tc * v.px);
    struct wg_work w = {.threads = v.threads,
                           .ty = t->py * c->ry,
                           .tx = c->px * c->rx,
                           .oc = c->tc * c->rc,
                           .bk = c->tc * c->rc,
                           .groups = c->tc * c->rc,
                           .readers = 1,
                           .apart = 1,
                           .store_shared = v.out};
    wg_conv_plan(g, &w);
    wg_footprint_of(&t->foot, g, c, (enum wg_reuse)v.reuse);
}

/* Emission. */

/* The element (y, x) to all sums that it meets, by the weights of the written taps [y][x]. */
static void add_element(const struct thread_dw *t, const kval *w, i64 y, i64 x)
{
    const struct wg_footprint *f = &t->foot;
    struct kir *k = t->g.m->k;
    kval in = 0;
    for (i64 i = 0; i < f->y.n * f->x.n; i++) {
        i64 ky = wg_side_tap(&f->y, y, i / f->x.n), kx = wg_side_tap(&f->x, x, i % f->x.n);
        if (ky < 0 || kx < 0) continue;
        if (!in) in = wg_footprint_read(f, y, x);
        kval slot = kir_int(k, i), sum = kir_load(k, t->cells.acc, slot);
        kir_store(k, t->cells.acc, slot, kir_fma(k, in, w[ky * f->x.taps + kx], sum));
    }
}

/* The packed weights are [block][taps][channel]. */
static void load_weights(const struct thread_dw *t, kval from, kval *w)
{
    const struct wg_conv *g = &t->g;
    const struct wg_side *y = &t->foot.y, *x = &t->foot.x;
    struct kir *k = g->m->k;
    for (i64 i = 0; i < y->taps * x->taps; i++) {
        kval at = from;
        if (y->taps > 1) at = kir_add_i(k, at, i / x->taps * g->w_tap[y->axis]);
        if (x->taps > 1) at = kir_add_i(k, at, i % x->taps * g->w_tap[x->axis]);
        at = kir_ramp(k, at, 1, (u32)t->cells.rc);
        w[i] = kir_cast(k, g->type, kir_load(k, g->packed, at));
    }
}

static void add_up(struct thread_dw *t, bool inside)
{
    const struct wg_conv *g = &t->g;
    struct wg_footprint *f = &t->foot;
    struct kir *k = g->m->k;
    kval w[MAX_TAPS], at = kir_add(k, wg_conv_weights(g, kir_int(k, 0)), t->cells.at[AT_C]);
    f->inside = inside;
    wg_footprint_open(f);
    for (u32 a = 2; a < g->c.rank; a++)
        if (f->tap[a]) at = kir_add(k, at, kir_mul_i(k, f->tap[a], g->w_tap[a]));
    load_weights(t, at, w);
    for (i64 y = 0; y < f->y.size; y++)
        for (i64 x = 0; x < f->x.size; x++) add_element(t, w, y, x);
    wg_footprint_close(f);
}

static bool dw_of(struct wg_conv *g, const struct task *t)
{
    return wg_conv_of(g, t) && !g->up.is && g->c.groups > 1 && g->c.ic == 1 && g->c.oc == 1;
}

static void emit(struct emit *m, const struct task *task, const struct caps *caps,
                 const struct sched *s)
{
    struct thread_dw *t = arena_new(m->arena, struct thread_dw);
    struct kir *k = m->k;
    dw_of(&t->g, task);
    take(t, s);
    wg_conv_open(&t->g, m);
    wg_cells_open(&t->g, &t->cells, 0);
    kval inside = t->v.inner ? wg_footprint_inside(&t->foot) : 0;
    if (inside) {
        kir_if(k, inside);
        add_up(t, true);
        kir_else(k);
    }
    add_up(t, false);
    if (inside) kir_end(k);
    wg_cells_store(&t->g, &t->cells);
    wg_conv_close(&t->g, task, caps);
}

/* Choosing. */

static bool analyze(const struct gen_problem *p)
{
    struct thread_dw *t = p->facts;
    return p->c->is_gpu && dw_of(&t->g, p->t);
}

static bool is_possible(const struct thread_dw *t, const struct caps *caps)
{
    const struct conv *c = &t->g.c;
    const struct wg_cells *r = &t->cells;
    bool store_shared = t->g.s.store_shared;
    i64 taps = t->foot.y.taps * t->foot.x.taps;
    if (c->ya < 0 && (t->py > 1 || r->ry > 1)) return false;
    if (c->xa < 0 && (t->cells.px > 1 || r->rx > 1)) return false;
    if (taps > MAX_TAPS || taps * r->ry * r->rx > MAX_WRITTEN) return false;
    if (r->ry % wg_conv_window(&t->g, c->ya) && !store_shared) return false;
    if (r->rx % wg_conv_window(&t->g, c->xa) && !store_shared) return false;
    return wg_conv_fits(&t->g, caps);
}

/* The smallest groups: they can do any convolution that matches. */
static struct sched least_sched(const struct wg_conv *g)
{
    struct sched s = {.v = {[P_threads] = LEAST, [P_tc] = LEAST, [P_px] = 1, [P_rc] = 1}};
    s.v[P_rx] = (i32)wg_conv_window(g, g->c.xa), s.v[P_ry] = (i32)wg_conv_window(g, g->c.ya);
    s.v[P_out] = g->tail.pool != 0;
    return s;
}

/* Threads side by side touch neighbours in memory; as many taps written out as may be. */
static bool is_worth_trying(const struct thread_dw *t)
{
    const struct conv *c = &t->g.c;
    const struct wg_work *s = &t->g.s;
    const struct wg_cells *r = &t->cells;
    bool rows = conv_input_layout(c) == LAYOUT_ROWS;
    i64 x = wg_conv_size(&t->g, c->xa), y = wg_conv_size(&t->g, c->ya);
    i64 kx = c->xa < 2 ? 1 : c->k[c->xa], ky = c->ya < 2 ? 1 : c->k[c->ya];
    if (rows ? t->cells.tc > 1 || r->rc > 1 : s->oc < i64_min(32, c->groups) || r->rc < i64_min(4, c->groups))
        return false;
    if (s->tx > 64 || s->ty > 16 || (rows && s->tx < i64_min(32, x))) return false;
    if (s->store_shared && !wg_conv_has_rows(&t->g) && !t->g.tail.pool) return false;
    if (s->store_shared && rows && !t->g.tail.pool && r->rx == 1) return false;
    if (!t->v.inner && !c->no_pad && kx * ky > 9) return false; /* tests at every element */
    bool small = kx * ky <= MAX_TAPS && kx * ky * r->rx * r->ry <= MAX_WRITTEN;
    if (t->v.reuse == REUSE_NONE && kx > 1 && kx <= MAX_TAPS) return false;
    if (t->v.reuse == REUSE_X && (kx == 1 || (ky <= 3 && small))) return false;
    if (t->v.reuse == REUSE_ALL && ky * kx == 1) return false;
    bool wide = s->tx > r->rx && s->tx / 2 >= x, high = s->ty > r->ry && s->ty / 2 >= y;
    return !wide && !high && !(s->oc > r->rc && s->oc / 2 >= c->groups);
}

/* What depends on the schedule alone. */
static bool is_sensible(const struct caps *caps, struct params v)
{
    if (v.threads > caps->max_group || v.threads % (v.tc * v.px)) return false;
    return v.rc * v.rx * v.ry <= MAX_CELLS;
}

static bool view(const struct gen_problem *p, const struct sched *s)
{
    if (!is_sensible(p->c, params_of(s))) return false;
    take(p->facts, s);
    return true;
}

static bool legal(const struct gen_problem *p, const struct sched *s)
{
    const struct thread_dw *t = p->facts;
    struct sched least = least_sched(&t->g);
    bool is_least = !memcmp(&least, s, sizeof least);
    return (is_least || (t->v.threads != LEAST && is_worth_trying(t))) && is_possible(t, p->c);
}

/* What a thread does, in multiply-adds: a load with its tests about eight, four without. */
static double thread_work(const struct thread_dw *t)
{
    const struct wg_conv *g = &t->g;
    const struct wg_cells *r = &t->cells;
    double taps = (double)g->taps, cells = (double)(r->ry * r->rx), rc = (double)r->rc;
    double loops = taps / (double)(t->foot.y.taps * t->foot.x.taps);
    double vec = (double)ceil_div(r->rc * dtype_size(graph_value(g->c.g, g->c.x)->dtype), 16);
    double loads = loops * (double)(t->foot.y.size * t->foot.x.size) * ((t->v.inner ? 4 : 8) + 2 * vec);
    double weights = taps * (2 + vec), out = cells * (vec * (g->s.store_shared ? 8 : 4) + 2);
    double work = taps * cells * rc + loads + weights + out + 4 * loops + 20;
    double regs = cells * rc + (double)(t->foot.y.taps * t->foot.x.taps) * rc + 30;
    return regs > 200 ? 2.5 * work : work;
}

static double seconds(const struct thread_dw *t, const struct caps *caps, const i64 *var)
{
    struct wg_load l = {.groups = wg_conv_tiles(&t->g, var), .threads = t->g.s.threads};
    l.flops = 2 * l.groups * (double)l.threads * thread_work(t);
    l.bytes = wg_cells_bytes(&t->g, &t->cells, var);
    l.barriers = t->g.s.store_shared;
    if (l.threads < 32) l.flops *= 4; /* subgroups that are not full */
    return wg_seconds(caps, &l) + 0.3 * l.flops / gen_flop_rate(caps);
}

static double predict(const struct gen_problem *p, const struct sched *s) { return seconds(p->facts, p->c, p->var); }

const struct gen gen_wg_conv_dw = {
    .version = 1,
    .name = "wg_conv_dw",
    .revision = 5,
    .param = param,
    .n_param = N_PARAM,
    .facts = sizeof(struct thread_dw),
    .analyze = analyze,
    .view = view,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
