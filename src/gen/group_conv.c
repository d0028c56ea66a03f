// SPDX-License-Identifier: Apache-2.0
//
// group_conv: convolution of any rank, groups, strides and dilations, transposed or not, by groups
// of threads, each with a tile of outputs in registers: ry rows by rx pixels by rc channels. A
// thread reads some input channels of its pixels at a time and multiplies them with a vector of
// weights for rc channels; sums are kept in the type of the arithmetic whatever the inputs' type.
// Copying, storing and pooling are gen_group_patch.c and gen_group_store.c.
//
// Where a group of channels has few outputs, a tile holds several, and a thread reads its own's
// inputs. Few tiles of many input channels are computed in chunks, which another grid adds up.
//
// Threads count channels first, then x, then y: threads side by side read the same pixels and
// neighbouring weights, and write neighbouring channels.
#include "gen/gen_group_conv.h"

#include <string.h>

enum {
    P_THREADS,
    P_TC,
    P_PX,
    P_RC,
    P_RX,
    P_RY,
    P_CB,
    P_STAGE,
    P_PIPE,
    P_WIDE,
    P_OUT,
    P_UNROLL,
    P_CHUNKS,
    N_PARAM
};
enum { STAGE_NONE, STAGE_INPUT, STAGE_ALL };
enum { MAX_CELLS = 64, MAX_READ = 4, MAX_UNROLLED = 128, LEAST = 16 /* threads */ };

static const i32 v_threads[] = {LEAST, 32, 64, 128, 256};
static const i32 v_tc[] = {1, 2, 4, 8, 16};
static const i32 v_px[] = {1, 4, 8, 16, 32};
static const i32 v_rc[] = {1, 2, 4, 8};
static const i32 v_rx[] = {1, 2, 4, 8};
static const i32 v_ry[] = {1, 2, 4};
static const i32 v_cb[] = {1, 4, 8, 16, 32};
static const i32 v_stage[] = {STAGE_NONE, STAGE_INPUT, STAGE_ALL};
static const i32 v_pipe[] = {PIPE_NONE, PIPE_AHEAD, PIPE_DOUBLE};
static const i32 v_bool[] = {0, 1};
static const i32 v_chunks[] = {1, 2, 4, 8};

static const struct gen_param param[N_PARAM] = {
    [P_THREADS] = {"threads", "threads of a group", v_threads, countof(v_threads)},
    [P_TC] = {"tc", "threads along output channels", v_tc, countof(v_tc)},
    [P_PX] = {"px", "threads along x, the others along y", v_px, countof(v_px)},
    [P_RC] = {"rc", "output channels of a thread", v_rc, countof(v_rc)},
    [P_RX] = {"rx", "pixels of a row of a thread", v_rx, countof(v_rx)},
    [P_RY] = {"ry", "rows of a thread", v_ry, countof(v_ry)},
    [P_CB] = {"cb", "input channels per block", v_cb, countof(v_cb)},
    [P_STAGE] = {"stage", "in shared memory: 0 nothing, 1 the input, 2 the weights, too", v_stage,
                 countof(v_stage)},
    [P_PIPE] = {"pipe", "0 blocks in turn, 1 loads ahead, 2 and two buffers", v_pipe,
                countof(v_pipe)},
    [P_WIDE] = {"wide", "1: shared memory holds f32 though the input is shorter", v_bool,
                countof(v_bool)},
    [P_OUT] = {"out", "outputs leave 0 from registers, 1 through shared memory", v_bool,
               countof(v_bool)},
    [P_UNROLL] = {"unroll", "1: taps along x are written out", v_bool, countof(v_bool)},
    [P_CHUNKS] = {"chunks", "groups that share the input channels of a tile", v_chunks,
                  countof(v_chunks)},
};

struct thread_conv {
    struct group_conv g;
    i64 tc, px, py, rc, rx, ry, unroll;
    i64 cv;       /* input channels read at a time */
    kval acc;     /* vectors of rc channels: [ry][rx] */
    kval y, x, c; /* the thread's first place in the tile */
};

/* Groups of channels in a tile of that many: where a group has fewer, whole ones. */
static i64 groups_of(const struct group_conv *g, i64 channels, i64 run)
{
    const struct conv *c = &g->c;
    bool many = c->groups > 1 && !g->up.is && c->ic * c->oc > 1 && channels > c->oc;
    return many && channels % c->oc == 0 && c->oc % run == 0 ? channels / c->oc : 1;
}

static void take(struct thread_conv *t, const struct sched *s)
{
    const i32 *v = s->v;
    t->tc = v[P_TC], t->px = v[P_PX], t->py = v[P_THREADS] / (v[P_TC] * v[P_PX]);
    t->rc = v[P_RC], t->rx = v[P_RX], t->ry = v[P_RY], t->unroll = v[P_UNROLL];
    i64 groups = groups_of(&t->g, v[P_TC] * v[P_RC], v[P_RC]);
    t->cv = groups > 1 ? group_power_dividing(MAX_READ, t->g.c.ic) : i64_min(v[P_CB], MAX_READ);
    struct group_work w = {.threads = v[P_THREADS],
                           .ty = t->py * t->ry,
                           .tx = t->px * t->rx,
                           .oc = t->tc * t->rc,
                           .cb = groups > 1 ? groups * t->g.c.ic : v[P_CB],
                           .groups = groups,
                           .run = t->rc,
                           .chunks = v[P_CHUNKS],
                           .readers = i64_max(1, 8 / t->tc),
                           .apart = t->rx,
                           .patch = v[P_STAGE] != STAGE_NONE,
                           .weights = v[P_STAGE] == STAGE_ALL,
                           .wide = v[P_WIDE],
                           .by_shared = v[P_OUT],
                           .pipe = (enum group_pipe)v[P_PIPE]};
    group_conv_plan(&t->g, &w);
}

/* Emission. */

/* Where the input channels of the thread's group begin, among those of the tile's groups. */
static kval first_term(const struct thread_conv *t)
{
    struct kir *k = t->g.m->k;
    if (t->g.s.groups <= 1) return kir_int(k, 0);
    return kir_mul_i(k, kir_div_i(k, t->c, t->g.c.oc), t->g.terms);
}

/* cv channels of the pixels of the thread, from c on, under the taps tap[]. */
static kval read_global(struct thread_conv *t, const kval *tap, kval c, i64 pixel)
{
    struct group_conv *g = &t->g;
    struct kir *k = g->m->k;
    kval at[MAX_RANK];
    for (u32 a = 0; a < g->c.rank; a++) {
        kval o = g->pos[a];
        if ((i32)a == g->c.ya) o = kir_add(k, g->y0, kir_add_i(k, t->y, pixel / t->rx));
        if ((i32)a == g->c.xa) o = kir_add(k, g->x0, kir_add_i(k, t->x, pixel % t->rx));
        at[a] = group_conv_meets(g, a, o, tap[a]);
    }
    struct group_source s;
    group_conv_source(g, &s, at, c, t->cv);
    if (!s.ok) return group_conv_value(g, &s);
    kval reg = kir_alloc(k, KS_REG, g->type, (u32)t->cv, kir_int(k, 1)), zero = kir_int(k, 0);
    kir_store(k, reg, zero, kir_const_f(k, g->type, (u32)t->cv, 0));
    kir_if(k, s.ok);
    kir_store(k, reg, zero, group_conv_value(g, &s));
    kir_end(k);
    return kir_load(k, reg, zero);
}

static kval read_shared(struct thread_conv *t, kval at, i64 pixel)
{
    struct group_conv *g = &t->g;
    struct kir *k = g->m->k;
    i64 y = g->c.ya < 0 ? 0 : g->step[g->c.ya], x = g->c.xa < 0 ? 0 : g->step[g->c.xa];
    at = kir_add_i(k, at, pixel / t->rx * y + pixel % t->rx * x);
    return kir_cast(k, g->type, kir_load(k, g->patch, kir_ramp(k, at, 1, (u32)t->cv)));
}

/* p: where the thread is, under a tap. c: channel of the block. */
static void multiply(struct thread_conv *t, const struct group_block *b, const struct group_taps *p,
                     kval c)
{
    struct group_conv *g = &t->g;
    struct kir *k = g->m->k;
    kval x[MAX_CELLS], from = g->s.weights ? g->weights : g->packed;
    kval in = kir_add(k, p->at, c), w = kir_add(k, p->w, kir_mul_i(k, c, g->s.oc));
    c = kir_add(k, kir_add(k, b->first, first_term(t)), c);
    for (i64 i = 0; i < t->ry * t->rx; i++)
        x[i] = g->s.patch ? read_shared(t, in, i) : read_global(t, p->tap, c, i);
    for (i64 u = 0; u < t->cv; u++) {
        kval at = kir_ramp(k, kir_add_i(k, w, u * g->s.oc), 1, (u32)t->rc);
        kval v = kir_cast(k, g->type, kir_load(k, from, at));
        for (i64 i = 0; i < t->ry * t->rx; i++) {
            kval n = kir_int(k, i), s = kir_splat(k, kir_lane(k, x[i], u), (u32)t->rc);
            kir_store(k, t->acc, n, kir_fma(k, s, v, kir_load(k, t->acc, n)));
        }
    }
}

static void step(struct group_conv *g, void *user, const struct group_block *b)
{
    struct thread_conv *t = user;
    struct kir *k = g->m->k;
    struct group_taps p = {.w = kir_add(k, b->weights, t->c),
                           .at = kir_add(k, b->patch, first_term(t))};
    if (g->c.ya >= 0) p.at = kir_add(k, p.at, kir_mul_i(k, t->y, g->step[g->c.ya]));
    if (g->c.xa >= 0) p.at = kir_add(k, p.at, kir_mul_i(k, t->x, g->step[g->c.xa]));
    group_conv_taps(g, &p, t->unroll);
    bool few = g->terms * t->rx * t->ry <= MAX_UNROLLED;
    kval n = kir_int(k, g->terms);
    kval c = kir_loop(k, few ? KL_UNROLL : KL_SERIAL, kir_int(k, 0), n, t->cv);
    multiply(t, b, &p, c);
    for (u32 i = 0; i < p.n_loops + 1; i++) kir_end(k);
}

static void emit(struct emit *m, const struct task *task, const struct caps *caps,
                 const struct sched *s)
{
    struct thread_conv *t = arena_new(m->arena, struct thread_conv);
    group_conv_of(&t->g, task);
    take(t, s);
    group_conv_open(&t->g, m);
    struct group_cells cells = {t->tc, t->px, t->ry, t->rx, t->rc, {0}, 0};
    group_cells_open(&t->g, &cells, 0);
    t->acc = cells.acc, t->y = cells.at[AT_Y], t->x = cells.at[AT_X], t->c = cells.at[AT_C];
    group_conv_blocks(&t->g, step, t);
    group_cells_store(&t->g, &cells);
    group_conv_close(&t->g, task, caps);
}

/* Choosing. */

static bool match(const struct task *t, const struct caps *caps)
{
    struct group_conv g;
    return caps->is_gpu && group_conv_of(&g, t);
}

/* What depends on the schedule alone: first of all enough threads with enough to do for each, but
 * see least_sched. */
static bool is_sensible(const struct caps *caps, const i32 *v)
{
    i64 pixels = v[P_RX] * v[P_RY];
    bool is_small = v[P_THREADS] < i64_min(64, caps->max_group) || pixels * v[P_RC] < 8;
    if (is_small && (v[P_THREADS] != LEAST || v[P_RC] > 1 || v[P_CB] > 1)) return false;
    if ((u32)v[P_THREADS] > caps->max_group || v[P_THREADS] % (v[P_TC] * v[P_PX])) return false;
    if (pixels * v[P_RC] > MAX_CELLS) return false;
    return v[P_STAGE] != STAGE_NONE || (pixels <= 8 && !v[P_PIPE] && !v[P_WIDE]);
}

/* More than the convolution has, by half of a tile. */
static bool is_wasteful(i64 tile, i64 least, i64 size) { return tile > least && tile / 2 >= size; }

static bool is_possible(const struct thread_conv *t, const struct caps *caps)
{
    const struct conv *c = &t->g.c;
    bool by_shared = t->g.s.by_shared;
    if (c->ya < 0 && (t->py > 1 || t->ry > 1)) return false;
    if (c->xa < 0 && (t->px > 1 || t->rx > 1)) return false;
    if (c->oc * c->groups == 1 && t->rc > 1) return false; /* no axis to have vectors on */
    if (t->unroll && (c->xa < 2 || c->k[c->xa] == 1 || c->k[c->xa] > 7)) return false;
    if (t->unroll && t->g.up.is && t->g.up.tile == 1) return false; /* how many, only the kernel knows */
    if (t->ry % group_conv_window(&t->g, c->ya) && !by_shared) return false;
    if (t->rx % group_conv_window(&t->g, c->xa) && !by_shared) return false;
    return group_conv_fits(&t->g, caps);
}

/* Tiles not much larger than the convolution, and parameters that matter. */
static bool is_worth_trying(const struct thread_conv *t)
{
    const struct conv *c = &t->g.c;
    const struct group_work *s = &t->g.s;
    i64 x = group_conv_size(&t->g, c->xa), y = group_conv_size(&t->g, c->ya);
    i64 ic = t->g.ic, oc = t->g.oc;
    if (t->rc < i64_min(4, c->oc) || s->oc < i64_min(16, oc)) return false;
    if (s->cb < i64_min(8, ic) && !(s->cb == MAX_READ && ic < 8)) return false;
    if (s->chunks > 1 && group_conv_tiles(&t->g, NULL) * (double)s->chunks > 512) return false;
    if (!s->patch && t->g.taps > 1) return false;
    if (s->patch && !s->weights && t->g.n_weights <= 2048) return false; /* copied in no time */
    bool rows = group_conv_has_rows(&t->g), pool = t->g.tail.pool != 0;
    if (s->by_shared ? !rows && !pool : rows && c->oc >= 16)
        return false; /* rows: stores side by side */
    if (s->tx < i64_min(8, x) || s->tx > 64 || s->ty > 32) return false;
    if (s->tx < x && s->ty < y && group_conv_halo(&t->g) > 1.75) return false;
    bool large = (double)x * (double)y * (double)c->oc > 1 << 18;
    if (large && t->rx * t->ry * t->rc < 16 && c->oc >= 8) return false;
    return !is_wasteful(t->g.width, 4, oc) && !is_wasteful(s->cb, MAX_READ, ic) &&
           !is_wasteful(s->tx, 8, x) && !is_wasteful(s->ty, 4, y);
}

/* The smallest groups, along the axis of one of three parameters. One of them can do any
 * convolution that matches. */
static struct sched least_sched(const struct group_conv *g, u32 along)
{
    struct sched s = {.v = {[P_THREADS] = LEAST, [P_TC] = 1, [P_PX] = 1, [P_RC] = 1, [P_CB] = 1, [P_CHUNKS] = 1}};
    s.v[P_RX] = (i32)group_conv_window(g, g->c.xa), s.v[P_RY] = (i32)group_conv_window(g, g->c.ya);
    s.v[P_OUT] = g->tail.pool != 0;
    if (along == P_TC || along == P_PX) s.v[along] = LEAST;
    return s;
}

static bool is_least(const struct group_conv *g, const struct sched *s)
{
    static const u32 along[] = {P_TC, P_PX, P_RY};
    for (u32 i = 0; i < countof(along); i++) {
        struct sched least = least_sched(g, along[i]);
        if (!memcmp(&least, s, sizeof least)) return true;
    }
    return false;
}

static bool is_legal(struct thread_conv *t, const struct caps *caps, const struct sched *s)
{
    if (!is_sensible(caps, s->v)) return false;
    take(t, s);
    if (t->g.s.groups > 1 && s->v[P_CB] != v_cb[0]) return false; /* all input channels are one block */
    return (is_worth_trying(t) || is_least(&t->g, s)) && is_possible(t, caps);
}

static bool legal(const struct task *task, const struct caps *caps, const struct sched *s)
{
    struct thread_conv t;
    return is_sensible(caps, s->v) && group_conv_of(&t.g, task) && is_legal(&t, caps, s);
}

/* Loads of a thread per multiply-add, in multiply-adds: a load of 16 bytes that threads share costs
   about six, a conversion to the type of the arithmetic one. */
static double loads_of(const struct thread_conv *t)
{
    const struct group_conv *g = &t->g;
    enum dtype type = graph_value(g->c.g, g->c.w)->dtype;
    double pixels = (double)(t->rx * t->ry), cv = (double)t->cv, rc = (double)t->rc;
    double w = cv * (double)ceil_div(t->rc * dtype_size(type), 16) * (g->s.weights ? 1 : 1.5);
    double x = pixels * (double)ceil_div(t->cv * dtype_size(g->cell), 16) * (g->s.patch ? 1 : 12);
    double casts = (type == g->type ? 0 : rc * cv) + (g->cell == g->type ? 0 : pixels * cv);
    return (6 * (w + x) + casts) / (pixels * rc * cv);
}

static double seconds(struct thread_conv *t, const struct caps *caps, const i64 *var)
{
    double pixels = (double)(t->rx * t->ry), rc = (double)t->rc;
    struct group_cost x = {.loads = loads_of(t), .rate = 1, .chains = pixels * rc};
    x.regs = pixels * (rc + (double)t->cv) + rc + 30;
    if (t->g.s.pipe != PIPE_NONE) x.regs += 4 * (double)group_conv_copies(&t->g);
    if (x.regs > 220) x.rate = 0.4; /* spilled */
    if (!t->unroll) x.loads += 0.1;
    return group_conv_seconds(&t->g, caps, &x, var);
}

static double predict(const struct task *task, const struct caps *caps, const struct sched *s,
                      const i64 *var)
{
    struct thread_conv t;
    if (!group_conv_of(&t.g, task)) return 1e9;
    take(&t, s);
    return seconds(&t, caps, var);
}

struct choice {
    struct thread_conv t;
    const struct caps *caps;
    const i64 *var;
    double best;
    struct sched *out;
};

static void try_one(struct choice *c, const struct sched *s)
{
    if (is_legal(&c->t, c->caps, s))
        gen_keep(seconds(&c->t, c->caps, c->var), s, &c->best, c->out);
}

/* Chunks where all is copied, which few tiles of many channels want. */
static void try_chunks(struct choice *c, struct sched s)
{
    for (u32 i = 0; i < (s.v[P_STAGE] == STAGE_ALL ? countof(v_chunks) : 1); i++) {
        s.v[P_CHUNKS] = v_chunks[i];
        try_one(c, &s);
    }
}

/* Register tiles: channels, pixels of a row, rows. */
static const i32 tiles[][3] = {{8, 4, 2}, {8, 2, 2}, {4, 4, 2}, {4, 2, 2}, {8, 4, 1}, {4, 4, 1},
                               {8, 1, 1}, {4, 2, 1}, {4, 1, 1}, {2, 2, 1}, {1, 4, 2}, {1, 1, 1}};

static void initial(const struct task *task, const struct caps *caps, const i64 *var,
                    struct sched *out)
{
    struct choice c = {.caps = caps, .var = var, .out = out};
    group_conv_of(&c.t.g, task);
    for (u32 i = 0; i < countof(tiles) * countof(v_threads) * countof(v_tc) * countof(v_px); i++) {
        u32 j = i / countof(tiles), shape = i % countof(tiles);
        struct sched s = {.v = {[P_THREADS] = v_threads[j % countof(v_threads)],
                                [P_RC] = tiles[shape][0],
                                [P_RX] = tiles[shape][1],
                                [P_RY] = tiles[shape][2],
                                [P_CHUNKS] = 1}};
        j /= countof(v_threads);
        s.v[P_TC] = v_tc[j % countof(v_tc)], s.v[P_PX] = v_px[j / countof(v_tc)];
        for (u32 cb = 0; cb < countof(v_cb); cb++)
            for (u32 k = 0; k < 8; k++) {
                s.v[P_CB] = v_cb[cb], s.v[P_OUT] = k & 1, s.v[P_PIPE] = k >> 1 & 1;
                s.v[P_STAGE] = k >> 2 & 1 ? STAGE_ALL : STAGE_INPUT;
                try_chunks(&c, s);
            }
    }
    static const u32 along[] = {P_TC, P_PX, P_RY};
    for (u32 i = 0; !c.best && i < countof(along); i++) {
        struct sched s = least_sched(&c.t.g, along[i]);
        try_one(&c, &s);
    }
    assert(c.best > 0);
}

const struct gen gen_group_conv = {
    .version = 1,
    .name = "group_conv",
    .revision = 4,
    .param = param,
    .n_param = N_PARAM,
    .sums = SUMS_IN_PARTS,
    .match = match,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
