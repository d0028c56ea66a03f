// SPDX-License-Identifier: Apache-2.0
//
// group_dw: depthwise convolution (one input and one output channel per group) of any rank, strides
// and dilations by groups of threads. A thread has a vector of rc neighbouring channels, on ry rows
// of rx pixels. Taps along the tile's axes are written out: every element of the footprint is
// loaded once, straight from the input, and added to all sums that it meets, with the weights in
// registers. Kernels too large for that, and axes outside the tile, are loops over taps.
//
// Neighbours share the footprint's elements through the caches; shared memory would only add
// barriers to what memory limits. Threads count channels first, then x, then y.
//
// To the functions shared with the other convolutions (gen_group_conv.c), a tile holds as many
// groups as channels.
#include "gen/gen_group.h"
#include "gen/gen_group_conv.h"

#include <string.h>

enum { P_THREADS, P_TC, P_PX, P_RC, P_RX, P_RY, P_REUSE, P_INNER, P_OUT, N_PARAM };
enum { REUSE_NONE, REUSE_X, REUSE_ALL }; /* the axes whose taps are written out */
enum { MAX_WRITTEN = 512 /* multiply-adds */, MAX_TAPS = 64, MAX_CELLS = 64, LEAST = 16 };

static const i32 v_threads[] = {LEAST, 64, 128, 256};
static const i32 v_tc[] = {1, 2, 4, 8, 16, 32};
static const i32 v_px[] = {1, 2, 4, 8, 16, 32};
static const i32 v_rc[] = {1, 2, 4, 8};
static const i32 v_rx[] = {1, 2, 4, 8};
static const i32 v_ry[] = {1, 2, 4};
static const i32 v_reuse[] = {REUSE_NONE, REUSE_X, REUSE_ALL};
static const i32 v_bool[] = {0, 1};

static const struct gen_param param[N_PARAM] = {
    [P_THREADS] = {"threads", "threads of a group", v_threads, countof(v_threads)},
    [P_TC] = {"tc", "threads along channels", v_tc, countof(v_tc)},
    [P_PX] = {"px", "threads along x, the others along y", v_px, countof(v_px)},
    [P_RC] = {"rc", "channels of a thread", v_rc, countof(v_rc)},
    [P_RX] = {"rx", "pixels of a row of a thread", v_rx, countof(v_rx)},
    [P_RY] = {"ry", "rows of a thread", v_ry, countof(v_ry)},
    [P_REUSE] = {"reuse", "elements loaded once for all taps: 0 of none, 1 of x, 2 of y, too",
                 v_reuse, countof(v_reuse)},
    [P_INNER] = {"inner", "1: threads away from the edges have code of their own", v_bool,
                 countof(v_bool)},
    [P_OUT] = {"out", "outputs leave 0 from registers, 1 through shared memory", v_bool,
               countof(v_bool)},
};

/* An axis of the tile as one thread sees it. */
struct side {
    i32 axis;      /* -1: none */
    i64 n;         /* outputs */
    i64 taps;      /* written out; 1: they are a loop, or there is one only */
    i64 unit;      /* input positions from one element of the footprint to the next */
    i64 size;      /* elements of the footprint */
    i64 step, tap; /* elements from one output, one tap to the next */
};

struct thread_dw {
    struct group_conv g;
    i64 tc, px, py, reuse, inner;
    struct side y, x;
    struct group_cells cells;
};

static struct side side_of(const struct conv *c, i32 axis, i64 n, bool written)
{
    struct side s = {.axis = axis, .n = n, .taps = 1, .unit = 1, .size = n, .step = 1};
    if (axis < 0) return s;
    s.unit = c->stride[axis];
    if (!written || c->k[axis] == 1) return s;
    s.taps = c->k[axis];
    while (c->stride[axis] % s.unit || c->dil[axis] % s.unit) s.unit--;
    s.step = c->stride[axis] / s.unit, s.tap = c->dil[axis] / s.unit;
    s.size = (n - 1) * s.step + (s.taps - 1) * s.tap + 1;
    return s;
}

static void take(struct thread_dw *t, const struct sched *s)
{
    const i32 *v = s->v;
    struct group_conv *g = &t->g;
    t->tc = v[P_TC], t->px = v[P_PX], t->py = v[P_THREADS] / (v[P_TC] * v[P_PX]);
    t->reuse = v[P_REUSE], t->inner = v[P_INNER];
    t->cells = (struct group_cells){.ry = v[P_RY], .rx = v[P_RX], .rc = v[P_RC]};
    t->y = side_of(&g->c, g->c.ya, v[P_RY], t->reuse == REUSE_ALL);
    t->x = side_of(&g->c, g->c.xa, v[P_RX], t->reuse != REUSE_NONE);
    struct group_work w = {.threads = v[P_THREADS],
                           .ty = t->py * v[P_RY],
                           .tx = t->px * v[P_RX],
                           .oc = t->tc * v[P_RC],
                           .cb = t->tc * v[P_RC],
                           .groups = t->tc * v[P_RC],
                           .readers = 1,
                           .apart = 1,
                           .by_shared = v[P_OUT]};
    group_conv_plan(g, &w);
}

/* Emission. */

/* Where taps that are loops stand, and the weights of those that are written out. */
struct walk {
    kval tap[MAX_RANK]; /* 0: written out, or no such axis */
    kval w[MAX_TAPS];   /* [y][x] */
    bool inside;        /* all elements are known to exist */
};

/* Position in the padded input, along one axis, of element i of the footprint. */
static kval position(const struct thread_dw *t, u32 axis, const struct side *s, i64 i)
{
    struct kir *k = t->g.m->k;
    bool is_y = s == &t->y;
    kval first = kir_add(k, is_y ? t->g.y0 : t->g.x0, t->cells.at[is_y ? AT_Y : AT_X]);
    return kir_add_i(k, kir_mul_i(k, first, t->g.c.stride[axis]), i * s->unit);
}

static kval channel(const struct thread_dw *t)
{
    const struct group_conv *g = &t->g;
    return kir_add(g->m->k, kir_mul_i(g->m->k, g->block, g->s.oc), t->cells.at[AT_C]);
}

static void source(const struct thread_dw *t, const struct walk *p, const i64 *at,
                   struct group_source *s)
{
    const struct group_conv *g = &t->g;
    struct kir *k = g->m->k;
    kval pos[MAX_RANK];
    for (u32 a = 0; a < g->c.rank; a++) {
        if ((i32)a == t->y.axis) pos[a] = position(t, a, &t->y, at[AT_Y]);
        else if ((i32)a == t->x.axis) pos[a] = position(t, a, &t->x, at[AT_X]);
        else pos[a] = kir_mul_i(k, g->pos[a], g->c.stride[a]);
        if (p->tap[a]) pos[a] = kir_add(k, pos[a], kir_mul_i(k, p->tap[a], g->c.dil[a]));
    }
    group_conv_source(g, s, pos, channel(t), t->cells.rc);
}

static kval read_element(const struct thread_dw *t, const struct walk *p, i64 y, i64 x)
{
    const struct group_conv *g = &t->g;
    struct kir *k = g->m->k;
    struct group_source s;
    source(t, p, (i64[N_AT]){[AT_Y] = y, [AT_X] = x}, &s);
    if (!s.ok || p->inside) return kir_cast(k, g->type, group_conv_value(g, &s));
    kval reg = kir_alloc(k, KS_REG, g->type, (u32)t->cells.rc, kir_int(k, 1)), zero = kir_int(k, 0);
    kir_store(k, reg, zero, kir_const_f(k, g->type, (u32)t->cells.rc, 0));
    kir_if(k, s.ok);
    kir_store(k, reg, zero, kir_cast(k, g->type, group_conv_value(g, &s)));
    kir_end(k);
    return kir_load(k, reg, zero);
}

/* Which tap joins an element of the footprint with an output? -1: none. */
static i64 tap_between(const struct side *s, i64 element, i64 output)
{
    i64 d = element - output * s->step;
    if (s->taps == 1) return d == 0 ? 0 : -1;
    return d >= 0 && d % s->tap == 0 && d / s->tap < s->taps ? d / s->tap : -1;
}

/* The element (y, x) to all sums that it meets. */
static void add_element(const struct thread_dw *t, const struct walk *p, i64 y, i64 x)
{
    struct kir *k = t->g.m->k;
    kval in = 0;
    for (i64 i = 0; i < t->y.n * t->x.n; i++) {
        i64 ky = tap_between(&t->y, y, i / t->x.n), kx = tap_between(&t->x, x, i % t->x.n);
        if (ky < 0 || kx < 0) continue;
        if (!in) in = read_element(t, p, y, x);
        kval slot = kir_int(k, i), sum = kir_load(k, t->cells.acc, slot);
        kir_store(k, t->cells.acc, slot, kir_fma(k, in, p->w[ky * t->x.taps + kx], sum));
    }
}

static bool is_written(const struct thread_dw *t, u32 axis)
{
    return ((i32)axis == t->y.axis && t->y.taps > 1) || ((i32)axis == t->x.axis && t->x.taps > 1);
}

/* The packed weights are [block][taps][channel]. */
static void load_weights(const struct thread_dw *t, struct walk *p, kval from)
{
    const struct group_conv *g = &t->g;
    struct kir *k = g->m->k;
    for (i64 i = 0; i < t->y.taps * t->x.taps; i++) {
        kval at = from;
        if (t->y.taps > 1) at = kir_add_i(k, at, i / t->x.taps * g->w_tap[t->y.axis]);
        if (t->x.taps > 1) at = kir_add_i(k, at, i % t->x.taps * g->w_tap[t->x.axis]);
        p->w[i] =
            kir_cast(k, g->type, kir_load(k, g->packed, kir_ramp(k, at, 1, (u32)t->cells.rc)));
    }
}

static void add_up(const struct thread_dw *t, bool inside)
{
    const struct group_conv *g = &t->g;
    struct kir *k = g->m->k;
    struct walk p = {.inside = inside};
    u32 n_loops = 0;
    kval w = kir_add(k, group_conv_weights(g, kir_int(k, 0)), t->cells.at[AT_C]);
    for (u32 i = 0; i < g->n_order; i++) {
        u32 a = g->order[i];
        if (g->c.k[a] == 1 || is_written(t, a)) continue;
        p.tap[a] = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, g->c.k[a]), 1);
        w = kir_add(k, w, kir_mul_i(k, p.tap[a], g->w_tap[a]));
        n_loops++;
    }
    load_weights(t, &p, w);
    for (i64 y = 0; y < t->y.size; y++)
        for (i64 x = 0; x < t->x.size; x++) add_element(t, &p, y, x);
    while (n_loops--) kir_end(k);
}

/* Do the first and the last element exist, and so all? 0: certainly. */
static kval is_inside(const struct thread_dw *t)
{
    struct kir *k = t->g.m->k;
    const struct conv *c = &t->g.c;
    struct walk first = {0}, last = {0};
    struct group_source a, b;
    for (u32 i = 2; i < c->rank; i++)
        if (c->k[i] > 1 && !is_written(t, i)) last.tap[i] = kir_int(k, c->k[i] - 1);
    source(t, &first, (i64[N_AT]){0}, &a);
    source(t, &last, (i64[N_AT]){[AT_Y] = t->y.size - 1, [AT_X] = t->x.size - 1}, &b);
    return a.ok && b.ok ? kir_bin(k, KI_AND, a.ok, b.ok) : a.ok ? a.ok : b.ok;
}

static void place_thread(struct thread_dw *t)
{
    struct kir *k = t->g.m->k;
    kval n = t->g.thread, rest = kir_div_i(k, n, t->tc);
    t->cells.at[AT_C] = kir_mul_i(k, kir_mod_i(k, n, t->tc), t->cells.rc);
    t->cells.at[AT_X] = kir_mul_i(k, kir_mod_i(k, rest, t->px), t->cells.rx);
    t->cells.at[AT_Y] = kir_mul_i(k, kir_div_i(k, rest, t->px), t->cells.ry);
}

static bool dw_of(struct group_conv *g, const struct task *t)
{
    return group_conv_of(g, t) && g->c.groups > 1 && g->c.ic == 1 && g->c.oc == 1;
}

static void emit(struct emit *m, const struct task *task, const struct caps *caps,
                 const struct sched *s)
{
    struct thread_dw *t = arena_new(m->arena, struct thread_dw);
    struct kir *k = m->k;
    dw_of(&t->g, task);
    take(t, s);
    group_conv_open(&t->g, m);
    place_thread(t);
    group_cells_open(&t->g, &t->cells);
    kval inside = t->inner ? is_inside(t) : 0;
    if (inside) {
        kir_if(k, inside);
        add_up(t, true);
        kir_else(k);
    }
    add_up(t, false);
    if (inside) kir_end(k);
    group_cells_store(&t->g, &t->cells);
    for (u32 i = 0; i < 3; i++) kir_end(k);
}

/* Choosing. */

static bool match(const struct task *t, const struct caps *caps)
{
    struct group_conv g;
    return caps->is_gpu && dw_of(&g, t);
}

static bool is_possible(const struct thread_dw *t, const struct caps *caps)
{
    const struct conv *c = &t->g.c;
    const struct group_cells *r = &t->cells;
    bool by_shared = t->g.s.by_shared;
    i64 taps = t->y.taps * t->x.taps;
    if (c->ya < 0 && (t->py > 1 || r->ry > 1)) return false;
    if (c->xa < 0 && (t->px > 1 || r->rx > 1)) return false;
    if (taps > MAX_TAPS || taps * r->ry * r->rx > MAX_WRITTEN) return false;
    if (r->ry % group_conv_window(&t->g, c->ya) && !by_shared) return false;
    if (r->rx % group_conv_window(&t->g, c->xa) && !by_shared) return false;
    return group_conv_fits(&t->g, caps);
}

/* The smallest groups: they can do any convolution that matches. */
static struct sched least_sched(const struct group_conv *g)
{
    struct sched s = {.v = {[P_THREADS] = LEAST, [P_TC] = LEAST, [P_PX] = 1, [P_RC] = 1}};
    s.v[P_RX] = (i32)group_conv_window(g, g->c.xa), s.v[P_RY] = (i32)group_conv_window(g, g->c.ya);
    s.v[P_OUT] = g->tail.pool != 0;
    return s;
}

static bool has_rows(const struct graph *g)
{
    for (u32 i = 0; i < g->output.n; i++)
        if (graph_value(g, g->output.v[i])->layout == LAYOUT_ROWS) return true;
    return false;
}

/* Threads side by side touch neighbours in memory; as many taps written out as may be. */
static bool is_worth_trying(const struct thread_dw *t)
{
    const struct conv *c = &t->g.c;
    const struct group_work *s = &t->g.s;
    const struct group_cells *r = &t->cells;
    bool rows = conv_input_layout(c) == LAYOUT_ROWS;
    i64 x = group_conv_size(&t->g, c->xa), y = group_conv_size(&t->g, c->ya);
    i64 kx = c->xa < 2 ? 1 : c->k[c->xa], ky = c->ya < 2 ? 1 : c->k[c->ya];
    if (rows ? t->tc > 1 || r->rc > 1 : s->oc < i64_min(32, c->groups) || r->rc < i64_min(4, c->groups))
        return false;
    if (s->tx > 64 || s->ty > 16 || (rows && s->tx < i64_min(32, x))) return false;
    if (s->by_shared && !has_rows(c->g) && !t->g.tail.pool) return false;
    if (s->by_shared && rows && !t->g.tail.pool && r->rx == 1) return false;
    if (!t->inner && !c->no_pad && kx * ky > 9) return false; /* tests at every element */
    bool small = kx * ky <= MAX_TAPS && kx * ky * r->rx * r->ry <= MAX_WRITTEN;
    if (t->reuse == REUSE_NONE && kx > 1 && kx <= MAX_TAPS) return false;
    if (t->reuse == REUSE_X && (kx == 1 || (ky <= 3 && small))) return false;
    if (t->reuse == REUSE_ALL && ky * kx == 1) return false;
    bool wide = s->tx > r->rx && s->tx / 2 >= x, high = s->ty > r->ry && s->ty / 2 >= y;
    return !wide && !high && !(s->oc > r->rc && s->oc / 2 >= c->groups);
}

/* What depends on the schedule alone. */
static bool is_sensible(const struct caps *caps, const i32 *v)
{
    if ((u32)v[P_THREADS] > caps->max_group || v[P_THREADS] % (v[P_TC] * v[P_PX])) return false;
    return v[P_RC] * v[P_RX] * v[P_RY] <= MAX_CELLS;
}

static bool is_legal(struct thread_dw *t, const struct caps *caps, const struct sched *s)
{
    struct sched least = least_sched(&t->g);
    bool is_least = !memcmp(&least, s, sizeof least);
    if (!is_sensible(caps, s->v) || (s->v[P_THREADS] == LEAST && !is_least)) return false;
    take(t, s);
    return (is_least || is_worth_trying(t)) && is_possible(t, caps);
}

static bool legal(const struct task *task, const struct caps *caps, const struct sched *s)
{
    struct thread_dw t;
    return is_sensible(caps, s->v) && dw_of(&t.g, task) && is_legal(&t, caps, s);
}

/* What a thread does, in multiply-adds: a load with its tests about eight, four without. */
static double thread_work(const struct thread_dw *t)
{
    const struct group_conv *g = &t->g;
    const struct group_cells *r = &t->cells;
    double taps = (double)g->taps, cells = (double)(r->ry * r->rx), rc = (double)r->rc;
    double loops = taps / (double)(t->y.taps * t->x.taps);
    double vec = (double)ceil_div(r->rc * dtype_size(graph_value(g->c.g, g->c.x)->dtype), 16);
    double loads = loops * (double)(t->y.size * t->x.size) * ((t->inner ? 4 : 8) + 2 * vec);
    double weights = taps * (2 + vec), out = cells * (vec * (g->s.by_shared ? 8 : 4) + 2);
    double work = taps * cells * rc + loads + weights + out + 4 * loops + 20;
    double regs = cells * rc + (double)(t->y.taps * t->x.taps) * rc + 30;
    return regs > 200 ? 2.5 * work : work;
}

/* Bytes moved, those that threads side by side leave unused included. */
static double bytes_of(const struct thread_dw *t, const i64 *var)
{
    const struct graph *g = t->g.c.g;
    const struct group_cells *r = &t->cells;
    double bytes = 0;
    for (u32 i = 0; i < g->input.n + g->output.n; i++) {
        bool in = i < g->input.n;
        const struct value *x;
        value_id v = in ? g->input.v[i] : g->output.v[i - g->input.n];
        x = graph_value(g, v);
        double run = (double)(t->g.s.oc * dtype_size(x->dtype)), waste = run < 32 ? 32 / run : 1;
        if (x->layout == LAYOUT_ROWS)
            waste = t->g.s.by_shared && !in ? 1 : (t->tc > 1 ? 4 : 1) + 0.1 * (double)(r->rx - 1);
        bytes += waste * gen_bytes(g, v, var);
    }
    return bytes;
}

static double seconds(const struct thread_dw *t, const struct caps *caps, const i64 *var)
{
    const struct conv *c = &t->g.c;
    struct group_load l = {.groups = (double)(t->g.groups * t->g.n_out), .threads = t->g.s.threads};
    for (u32 a = 0; a < c->rank; a++) {
        i64 n = gen_eval(c->g, c->out[a], var);
        if ((i32)a == c->xa) n = ceil_div(n, t->g.s.tx);
        if ((i32)a == c->ya) n = ceil_div(n, t->g.s.ty);
        if (a != 1) l.groups *= (double)n;
    }
    l.flops = 2 * l.groups * (double)l.threads * thread_work(t);
    l.bytes = bytes_of(t, var);
    l.barriers = t->g.s.by_shared;
    if (l.threads < 32) l.flops *= 4; /* subgroups that are not full */
    return group_seconds(caps, &l) + 0.3 * l.flops / gen_flop_rate(caps);
}

static double predict(const struct task *task, const struct caps *caps, const struct sched *s,
                      const i64 *var)
{
    struct thread_dw t;
    if (!dw_of(&t.g, task)) return 1e9;
    take(&t, s);
    return seconds(&t, caps, var);
}

struct choice {
    struct thread_dw t;
    const struct caps *caps;
    const i64 *var;
};

static double cost(const void *user, const struct sched *s)
{
    const struct choice *c = user;
    struct thread_dw t = c->t;
    return is_legal(&t, c->caps, s) ? seconds(&t, c->caps, c->var) : 0;
}

static void initial(const struct task *task, const struct caps *caps, const i64 *var,
                    struct sched *out)
{
    struct choice c = {.caps = caps, .var = var};
    dw_of(&c.t.g, task);
    *out = least_sched(&c.t.g);
    struct gen_search q = {.param = param, .n = N_PARAM, .cost = cost, .user = &c};
    bool found = gen_best(&q, out);
    assert(found);
    (void)found;
}

const struct gen gen_group_dw = {
    .version = 1,
    .name = "group_dw",
    .revision = 2,
    .param = param,
    .n_param = N_PARAM,
    .match = match,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
