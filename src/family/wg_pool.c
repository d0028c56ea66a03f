// SPDX-License-Identifier: Apache-2.0
//
// wg_pool: windows that slide over an input (max, mean and power pooling) by workgroups.
// A thread has a vector of rc neighbouring channels, on ry rows of rx pixels. Taps along the tile's
// axes are written out: every element of the thread's footprint is loaded once. Rows of it are
// combined along x first, once for each pixel, and the results to all rows of outputs that meet
// them, so that windows of k x k cost 2k rather than k*k operations where they overlap.
//
// Elements come straight from the input, or from a patch in shared memory, which pays once for what
// stands in front and reads dense rows where the input has x innermost. Around the input stands
// what changes nothing; a mean is divided by the number of taps that count, per output.
//
// To the functions shared with convolutions, every channel is a group of its own.
#include "gen/wg.h"
#include "gen/wg_conv.h"

#include <string.h>

enum { MAX_READS = 256 /* of a thread, written out */, MAX_TAPS = 32, MAX_CELLS = 64, LEAST = 16 };

// clang-format off
#define PARAMS(P)                                                                                                 \
    P(threads, "threads of a workgroup", LEAST, 64, 128, 256)                                                         \
    P(tc, "threads along channels", 1, 2, 4, 8, 16, 32)                                                           \
    P(px, "threads along x, the others along y", 1, 2, 4, 8, 16, 32)                                              \
    P(rc, "channels of a thread", 1, 2, 4, 8)                                                                     \
    P(rx, "pixels of a row of a thread", 1, 2, 4)                                                                 \
    P(ry, "rows of a thread", 1, 2, 4, 8)                                                                         \
    P(reuse, "elements loaded once for all taps: 0 of none, 1 of x, 2 of y, too", REUSE_NONE, REUSE_X, REUSE_ALL) \
    P(stage, "1: the input passes through shared memory", 0, 1)                                                   \
    P(inner, "1: threads away from the edges have code of their own", 0, 1)                                       \
    P(out, "outputs leave 0 from registers, 1 through shared memory", 0, 1)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)

struct thread_pool {
    struct wg_conv g;
    struct op_pool op;
    struct op_window w;
    struct params v;
    i64 py; /* threads along y */
    struct wg_cells cells;
    struct wg_footprint foot;
    kval none; /* what a window begins with */
    bool ordered; /* the sums and means of the definition: tap by tap, divided */
};

static bool pool_of(struct thread_pool *t, const struct task *task)
{
    const struct graph *g = &task->g;
    node_id node = gen_pool_node(task);
    struct wg_conv *c = &t->g;
    i64 channels;
    *t = (struct thread_pool){0};
    if (!node) return false;
    const struct node *n = graph_node(g, node);
    const struct value *x = graph_value(g, n->in.v[0]);
    if (!dtype_is_float(x->dtype) || !sym_is_const(g->sym, x->shape.dim[1], &channels)) return false;
    conv_window(&c->c, g, n);
    c->c.groups = channels, c->c.ic = c->c.oc = 1;
    op_window_get(g, n, &t->w);
    op_of(g, node)->pool(g, n, &t->op);
    return channels > 0 && wg_conv_takes(c, task);
}

static void take(struct thread_pool *t, const struct sched *s)
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
                           .readers = i64_max(1, 8 / c->tc),
                           .apart = c->rx,
                           .patch = v.stage,
                           .store_shared = v.out};
    wg_conv_plan(g, &w);
    wg_footprint_of(&t->foot, g, c, (enum wg_reuse)v.reuse);
}

/* Emission. */

static kval read_element(const struct thread_pool *t, i64 y, i64 x)
{
    kval v = wg_footprint_read(&t->foot, y, x);
    return t->op.tap ? t->op.tap(t->g.m->k, v, t->op.p) : v;
}

static bool is_met(const struct wg_side *s, i64 element)
{
    for (i64 i = 0; i < s->n; i++)
        if (wg_side_tap(s, element, i) >= 0) return true;
    return false;
}

static void add_to(const struct thread_pool *t, i64 pixel, kval v)
{
    struct kir *k = t->g.m->k;
    kval slot = kir_int(k, pixel), old = kir_load(k, t->cells.acc, slot);
    kir_store(k, t->cells.acc, slot, emit_combine(k, t->op.combine, old, v));
}

/* Row y of the footprint to all results that it meets, tap by tap. */
static void add_taps(const struct thread_pool *t, i64 y)
{
    const struct wg_footprint *f = &t->foot;
    for (i64 x = 0; x < f->x.size; x++) {
        kval v = is_met(&f->x, x) ? read_element(t, y, x) : 0;
        for (i64 i = 0; i < f->y.n * f->x.n; i++)
            if (wg_side_tap(&f->y, y, i / f->x.n) >= 0 && wg_side_tap(&f->x, x, i % f->x.n) >= 0) add_to(t, i, v);
    }
}

/* Row y of the footprint to all results that it meets: along x first, per pixel. */
static void add_row(const struct thread_pool *t, i64 y)
{
    const struct wg_footprint *f = &t->foot;
    struct kir *k = t->g.m->k;
    kval row[MAX_CELLS] = {0};
    bool is_max = t->op.combine == KI_MAX; /* a NaN must not be what a row begins with */
    for (i64 x = 0; x < f->x.size; x++) {
        kval v = is_met(&f->x, x) ? read_element(t, y, x) : 0;
        for (i64 i = 0; i < f->x.n; i++)
            if (wg_side_tap(&f->x, x, i) >= 0)
                row[i] = row[i] || is_max ? emit_combine(k, t->op.combine, row[i] ? row[i] : t->none, v) : v;
    }
    for (i64 i = 0; i < f->y.n * f->x.n; i++)
        if (wg_side_tap(&f->y, y, i / f->x.n) >= 0) add_to(t, i, row[i % f->x.n]);
}

static void add_up(struct thread_pool *t, bool inside)
{
    struct wg_footprint *f = &t->foot;
    f->inside = inside;
    wg_footprint_open(f);
    for (i64 y = 0; y < f->y.size; y++)
        if (is_met(&f->y, y)) t->ordered ? add_taps(t, y) : add_row(t, y);
    wg_footprint_close(f);
}

static void step(struct wg_conv *g, void *user, const struct wg_block *b)
{
    struct thread_pool *t = user;
    t->foot.patch = b->patch;
    kval inside = t->v.inner ? wg_footprint_inside(&t->foot) : 0;
    if (inside) {
        kir_if(g->m->k, inside);
        add_up(t, true);
        kir_else(g->m->k);
    }
    add_up(t, false);
    if (inside) kir_end(g->m->k);
}

/* Taps that count along an axis, for the output at o. */
static kval count_of(const struct thread_pool *t, u32 axis, kval o)
{
    struct emit *m = t->g.m;
    kval r[2];
    op_taps_range(m, &t->w, &graph_value(m->g, t->g.c.x)->shape, axis - 2, o, t->op.count_pad, r);
    return kir_sub(m->k, r[1], r[0]);
}

/* What the sum of the pixel (y, x) is divided by, at least 1. */
static kval divisor(const struct thread_pool *t, i64 y, i64 x)
{
    const struct wg_conv *g = &t->g;
    struct kir *k = g->m->k;
    kval n = kir_int(k, 1);
    for (u32 a = 2; a < g->c.rank; a++) {
        kval o = g->pos[a];
        if ((i32)a == g->c.ya) o = kir_add(k, g->y0, kir_add_i(k, t->cells.at[AT_Y], y));
        if ((i32)a == g->c.xa) o = kir_add(k, g->x0, kir_add_i(k, t->cells.at[AT_X], x));
        n = kir_mul(k, n, count_of(t, a, o));
    }
    return kir_cast(k, g->type, kir_max(k, n, kir_int(k, 1)));
}

static void finish(const struct thread_pool *t)
{
    struct kir *k = t->g.m->k;
    const struct wg_cells *c = &t->cells;
    for (i64 i = 0; i < c->ry * c->rx; i++) {
        kval v = kir_load(k, c->acc, kir_int(k, i));
        if (t->op.mean) {
            kval n = divisor(t, i / c->rx, i % c->rx);
            kval by = t->ordered ? n : kir_bin(k, KI_DIV, kir_const_f(k, t->g.type, 1, 1), n);
            v = kir_bin(k, t->ordered ? KI_DIV : KI_MUL, v, kir_splat(k, by, (u32)c->rc));
        }
        if (t->op.finish) v = t->op.finish(k, v, t->op.p);
        kir_store(k, c->acc, kir_int(k, i), v);
    }
}

static void emit(struct emit *m, const struct task *task, const struct caps *caps,
                 const struct sched *s)
{
    struct thread_pool *t = arena_new(m->arena, struct thread_pool);
    struct wg_conv *g = &t->g;
    pool_of(t, task);
    take(t, s);
    t->ordered = caps->deterministic;
    wg_conv_open(g, m);
    t->none = emit_neutral(m, t->op.combine, g->type);
    if (t->op.combine != KI_ADD) g->outside = t->none;
    wg_cells_open(g, &t->cells, t->none);
    wg_conv_blocks(g, step, t);
    if (t->op.mean || t->op.finish) finish(t);
    wg_cells_store(g, &t->cells);
    wg_conv_close(&t->g, task, caps);
}

/* Choosing. */

static bool analyze(const struct gen_problem *p)
{
    struct thread_pool *t = p->facts;
    return p->c->is_gpu && pool_of(t, p->t);
}

static i64 taps_of(const struct conv *c, i32 axis) { return axis < 2 ? 1 : c->k[axis]; }

static bool is_possible(const struct thread_pool *t, const struct caps *caps)
{
    const struct conv *c = &t->g.c;
    const struct wg_cells *r = &t->cells;
    const struct wg_side *y = &t->foot.y, *x = &t->foot.x;
    bool store_shared = t->g.s.store_shared;
    if (c->ya < 0 && (t->py > 1 || r->ry > 1)) return false;
    if (c->xa < 0 && (r->px > 1 || r->rx > 1)) return false;
    if (c->groups == 1 && r->rc > 1) return false; /* no axis to have vectors on */
    if (y->taps > MAX_TAPS || x->taps > MAX_TAPS || y->size * x->size > MAX_READS) return false;
    if (r->ry % wg_conv_window(&t->g, c->ya) && !store_shared) return false;
    if (r->rx % wg_conv_window(&t->g, c->xa) && !store_shared) return false;
    return wg_conv_fits(&t->g, caps);
}

/* The smallest groups: they can do any pooling that matches. */
static struct sched least_sched(const struct wg_conv *g)
{
    struct sched s = {.v = {[P_threads] = LEAST, [P_tc] = LEAST, [P_px] = 1, [P_rc] = 1}};
    s.v[P_rx] = (i32)wg_conv_window(g, g->c.xa), s.v[P_ry] = (i32)wg_conv_window(g, g->c.ya);
    s.v[P_out] = g->tail.pool != 0;
    return s;
}

/* Is an element read by several threads? */
static bool is_shared(const struct conv *c)
{
    for (u32 a = 2; a < c->rank; a++)
        if (((i32)a == c->xa || (i32)a == c->ya) && c->k[a] > c->stride[a]) return true;
    return false;
}

/* Threads side by side touch neighbours in memory; as many taps written out as may be. */
static bool is_worth_trying(const struct thread_pool *t)
{
    const struct conv *c = &t->g.c;
    const struct wg_work *s = &t->g.s;
    const struct wg_cells *r = &t->cells;
    bool rows = conv_input_layout(c) == LAYOUT_ROWS, out_rows = wg_conv_has_rows(&t->g);
    i64 x = wg_conv_size(&t->g, c->xa), y = wg_conv_size(&t->g, c->ya);
    i64 kx = taps_of(c, c->xa), ky = taps_of(c, c->ya), lanes = r->rc;
    if (rows && out_rows ? r->tc > 1 || lanes > 1
                         : s->oc < i64_min(32, c->groups) || lanes < i64_min(4, c->groups))
        return false;
    if (lanes > 1 && c->groups % lanes) return false;
    if (s->tx > 128 || s->ty > 32 || (rows && out_rows && s->tx < i64_min(32, x))) return false;
    if (s->store_shared && !out_rows && !t->g.tail.pool) return false;
    if (s->store_shared && rows && !t->g.tail.pool && r->rx == 1) return false;
    if (s->patch ? t->v.inner || (!is_shared(c) && !rows) : !t->v.inner && !c->no_pad) return false;
    bool small = t->foot.y.size * t->foot.x.size <= MAX_READS;
    if (t->v.reuse == REUSE_NONE && kx > 1 && kx <= MAX_TAPS) return false;
    if (t->v.reuse == REUSE_X && (kx == 1 || (ky <= 3 && small))) return false;
    if (t->v.reuse == REUSE_ALL && ky * kx == 1) return false;
    bool wide = s->tx > r->rx && s->tx / 2 >= x, high = s->ty > r->ry && s->ty / 2 >= y;
    return !wide && !high && !(s->oc > lanes && s->oc / 2 >= c->groups);
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
    const struct thread_pool *t = p->facts;
    struct sched least = least_sched(&t->g);
    bool is_least = !memcmp(&least, s, sizeof least);
    return (is_least || (t->v.threads != LEAST && is_worth_trying(t))) && is_possible(t, p->c);
}

/* What a thread does, in operations: a load with its tests about eight, four without, two from
   shared memory; a piece that is copied there about twenty. */
static double thread_work(const struct thread_pool *t)
{
    const struct wg_conv *g = &t->g;
    const struct wg_cells *r = &t->cells;
    const struct wg_side *y = &t->foot.y, *x = &t->foot.x;
    double taps = (double)g->taps, cells = (double)(r->ry * r->rx), rc = (double)r->rc;
    double loops = taps / (double)(y->taps * x->taps), reads = loops * (double)(y->size * x->size);
    double vec = (double)ceil_div(r->rc * dtype_size(graph_value(g->c.g, g->c.x)->dtype), 16);
    double test = g->s.patch ? 2 : t->v.inner || g->c.no_pad ? 4 : 8;
    double along = (double)(y->size * r->rx * x->taps), down = cells * (double)y->taps;
    double out = cells * (vec * (g->s.store_shared ? 8 : 4) + 2 + (t->op.mean ? 10 : 0));
    double copies = 20 * (double)g->patch_copies;
    double regs = cells * rc + (double)r->rx * rc + 30;
    double work = reads * (test + 2 * vec) + loops * (along + down) * rc + out + copies + 4 * loops + 20;
    return regs > 200 ? 2.5 * work : work;
}

static double seconds(const struct thread_pool *t, const struct caps *caps, const i64 *var)
{
    const struct wg_conv *g = &t->g;
    struct wg_load l = {.groups = wg_conv_tiles(g, var), .threads = g->s.threads};
    l.flops = 2 * l.groups * (double)l.threads * thread_work(t);
    l.bytes = wg_cells_bytes(g, &t->cells, var) * (g->s.patch ? 0.5 + 0.5 * wg_conv_halo(g) : 1);
    l.barriers = g->s.store_shared + 2 * g->s.patch;
    if (l.threads < 32) l.flops *= 4; /* subgroups that are not full */
    return wg_seconds(caps, &l) + 0.3 * l.flops / gen_flop_rate(caps);
}

static double predict(const struct gen_problem *p, const struct sched *s) { return seconds(p->facts, p->c, p->var); }

const struct gen gen_wg_pool = {
    .version = 1,
    .name = "wg_pool",
    .revision = 4,
    .param = param,
    .n_param = N_PARAM,
    .facts = sizeof(struct thread_pool),
    .analyze = analyze,
    .view = view,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
