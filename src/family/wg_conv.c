// SPDX-License-Identifier: Apache-2.0
//
// wg_conv: convolution of any rank, groups, strides and dilations, transposed or not, by groups
// of threads, each with a tile of outputs in registers: ry rows by rx pixels by rc channels. A
// thread reads some input channels of its pixels at a time and multiplies them with a vector of
// weights for rc channels; sums are kept in the type of the arithmetic whatever the inputs' type.
// Copying, storing and pooling are gen/wg_patch.c and gen/wg_store.c.
//
// Where a group of channels has few outputs, a tile holds several, and a thread reads its own's
// inputs. Few tiles of many input channels are computed in chunks, which another grid adds up.
//
// Threads count channels first, then x, then y: threads side by side read the same pixels and
// neighbouring weights, and write neighbouring channels.
#include "gen/wg_conv.h"

#include <string.h>

enum { STAGE_NONE, STAGE_INPUT, STAGE_ALL };
enum { MAX_CELLS = 64, MAX_READ = 4, MAX_UNROLLED = 128, LEAST = 16 /* threads */ };

// clang-format off
#define PARAMS(P)                                                                                                \
    P(threads, "threads of a workgroup", LEAST, 32, 64, 128, 256)                                                \
    P(tc, "threads along output channels", 1, 2, 4, 8, 16)                                                       \
    P(px, "threads along x, the others along y", 1, 4, 8, 16, 32)                                                \
    P(rc, "output channels of a thread", 1, 2, 4, 8)                                                             \
    P(rx, "pixels of a row of a thread", 1, 2, 4, 8)                                                             \
    P(ry, "rows of a thread", 1, 2, 4)                                                                           \
    P(bk, "input channels per block", 1, 4, 8, 16, 32)                                                           \
    P(stage, "in shared memory: 0 nothing, 1 the input, 2 the weights, too", STAGE_NONE, STAGE_INPUT, STAGE_ALL) \
    P(pipe, "0 blocks in turn, 1 loads ahead, 2 and two buffers", PIPE_NONE, PIPE_AHEAD, PIPE_DOUBLE)            \
    P(wide, "1: shared memory holds f32 though the input is shorter", 0, 1)                                      \
    P(out, "outputs leave 0 from registers, 1 through shared memory", 0, 1)                                      \
    P(unroll, "1: taps along x are written out", 0, 1)                                                           \
    P(split_k, "workgroups that share the input channels of a tile", 1, 2, 4, 8)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)

struct thread_conv {
    struct wg_conv g;
    struct params v;
    i64 py;       /* threads along y */
    i64 cv;       /* input channels read at a time */
    kval acc;     /* vectors of rc channels: [ry][rx] */
    kval y, x, c; /* the thread's first place in the tile */
};

/* Groups of channels in a tile of that many: where a group has fewer, whole ones. */
static i64 groups_of(const struct wg_conv *g, i64 channels, i64 run)
{
    const struct conv *c = &g->c;
    bool many = c->groups > 1 && !g->up.is && c->ic * c->oc > 1 && channels > c->oc;
    return many && channels % c->oc == 0 && c->oc % run == 0 ? channels / c->oc : 1;
}

static void take(struct thread_conv *t, const struct sched *s)
{
    const struct params v = t->v = params_of(s);
    t->py = v.threads / (v.tc * v.px);
    i64 groups = groups_of(&t->g, v.tc * v.rc, v.rc);
    t->cv = groups > 1 ? wg_power_dividing(MAX_READ, t->g.c.ic) : i64_min(v.bk, MAX_READ);
    struct wg_work w = {.threads = v.threads,
                           .ty = t->py * v.ry,
                           .tx = v.px * v.rx,
                           .oc = v.tc * v.rc,
                           .bk = groups > 1 ? groups * t->g.c.ic : v.bk,
                           .groups = groups,
                           .run = v.rc,
                           .split_k = v.split_k,
                           .readers = i64_max(1, 8 / v.tc),
                           .apart = v.rx,
                           .patch = v.stage != STAGE_NONE,
                           .weights = v.stage == STAGE_ALL,
                           .wide = v.wide,
                           .store_shared = v.out,
                           .pipe = (enum wg_pipe)v.pipe};
    wg_conv_plan(&t->g, &w);
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
    struct wg_conv *g = &t->g;
    struct kir *k = g->m->k;
    kval at[MAX_RANK];
    for (u32 a = 0; a < g->c.rank; a++) {
        kval o = g->pos[a];
        if ((i32)a == g->c.ya) o = kir_add(k, g->y0, kir_add_i(k, t->y, pixel / t->v.rx));
        if ((i32)a == g->c.xa) o = kir_add(k, g->x0, kir_add_i(k, t->x, pixel % t->v.rx));
        at[a] = wg_conv_input_at(g, a, o, tap[a]);
    }
    struct wg_source s;
    wg_conv_source(g, &s, at, c, t->cv);
    if (!s.ok) return wg_conv_value(g, &s);
    kval reg = kir_alloc(k, KS_REG, g->type, (u32)t->cv, kir_int(k, 1)), zero = kir_int(k, 0);
    kir_store(k, reg, zero, kir_const_f(k, g->type, (u32)t->cv, 0));
    kir_if(k, s.ok);
    kir_store(k, reg, zero, wg_conv_value(g, &s));
    kir_end(k);
    return kir_load(k, reg, zero);
}

static kval read_shared(struct thread_conv *t, kval at, i64 pixel)
{
    struct wg_conv *g = &t->g;
    struct kir *k = g->m->k;
    i64 y = g->c.ya < 0 ? 0 : g->step[g->c.ya], x = g->c.xa < 0 ? 0 : g->step[g->c.xa];
    at = kir_add_i(k, at, pixel / t->v.rx * y + pixel % t->v.rx * x);
    return kir_cast(k, g->type, kir_load(k, g->patch, kir_ramp(k, at, 1, (u32)t->cv)));
}

/* p: where the thread is, under a tap. c: channel of the block. */
static void multiply(struct thread_conv *t, const struct wg_block *b, const struct wg_taps *p,
                     kval c)
{
    struct wg_conv *g = &t->g;
    struct kir *k = g->m->k;
    kval x[MAX_CELLS], from = g->s.weights ? g->weights : g->packed;
    kval in = kir_add(k, p->at, c), w = kir_add(k, p->w, kir_mul_i(k, c, g->s.oc));
    c = kir_add(k, kir_add(k, b->first, first_term(t)), c);
    for (i64 i = 0; i < t->v.ry * t->v.rx; i++)
        x[i] = g->s.patch ? read_shared(t, in, i) : read_global(t, p->tap, c, i);
    for (i64 u = 0; u < t->cv; u++) {
        kval at = kir_ramp(k, kir_add_i(k, w, u * g->s.oc), 1, (u32)t->v.rc);
        kval v = kir_cast(k, g->type, kir_load(k, from, at));
        for (i64 i = 0; i < t->v.ry * t->v.rx; i++) {
            kval n = kir_int(k, i), s = kir_splat(k, kir_lane(k, x[i], u), (u32)t->v.rc);
            kir_store(k, t->acc, n, kir_fma(k, s, v, kir_load(k, t->acc, n)));
        }
    }
}

static void step(struct wg_conv *g, void *user, const struct wg_block *b)
{
    struct thread_conv *t = user;
    struct kir *k = g->m->k;
    struct wg_taps p = {.w = kir_add(k, b->weights, t->c),
                           .at = kir_add(k, b->patch, first_term(t))};
    if (g->c.ya >= 0) p.at = kir_add(k, p.at, kir_mul_i(k, t->y, g->step[g->c.ya]));
    if (g->c.xa >= 0) p.at = kir_add(k, p.at, kir_mul_i(k, t->x, g->step[g->c.xa]));
    wg_conv_taps(g, &p, t->v.unroll);
    bool few = g->terms * t->v.rx * t->v.ry <= MAX_UNROLLED;
    kval n = kir_int(k, g->terms);
    kval c = kir_loop(k, few ? KL_UNROLL : KL_SERIAL, kir_int(k, 0), n, t->cv);
    multiply(t, b, &p, c);
    for (u32 i = 0; i < p.n_loops + 1; i++) kir_end(k);
}

static void emit(struct emit *m, const struct task *task, const struct caps *caps,
                 const struct sched *s)
{
    struct thread_conv *t = arena_new(m->arena, struct thread_conv);
    wg_conv_of(&t->g, task);
    take(t, s);
    wg_conv_open(&t->g, m);
    struct wg_cells cells = {t->v.tc, t->v.px, t->v.ry, t->v.rx, t->v.rc, {0}, 0};
    wg_cells_open(&t->g, &cells, 0);
    t->acc = cells.acc, t->y = cells.at[AT_Y], t->x = cells.at[AT_X], t->c = cells.at[AT_C];
    wg_conv_blocks(&t->g, step, t);
    wg_cells_store(&t->g, &cells);
    wg_conv_close(&t->g, task, caps);
}

/* Choosing. */

static bool analyze(const struct gen_problem *p)
{
    struct thread_conv *t = p->facts;
    return p->c->is_gpu && wg_conv_of(&t->g, p->t);
}

/* What depends on the schedule alone: first of all enough threads with enough to do for each, but
 * see least_sched. */
static bool is_sensible(const struct caps *caps, struct params v)
{
    i64 pixels = v.rx * v.ry;
    bool is_small = v.threads < i64_min(64, caps->max_group) || pixels * v.rc < 8;
    if (is_small && (v.threads != LEAST || v.rc > 1 || v.bk > 1)) return false;
    if (v.threads > caps->max_group || v.threads % (v.tc * v.px)) return false;
    if (pixels * v.rc > MAX_CELLS) return false;
    return v.stage != STAGE_NONE || (pixels <= 8 && !v.pipe && !v.wide);
}

/* More than the convolution has, by half of a tile. */
static bool is_wasteful(i64 tile, i64 least, i64 size) { return tile > least && tile / 2 >= size; }

static bool is_possible(const struct thread_conv *t, const struct caps *caps)
{
    const struct conv *c = &t->g.c;
    bool store_shared = t->g.s.store_shared;
    if (c->ya < 0 && (t->py > 1 || t->v.ry > 1)) return false;
    if (c->xa < 0 && (t->v.px > 1 || t->v.rx > 1)) return false;
    if (c->oc * c->groups == 1 && t->v.rc > 1) return false; /* no axis to have vectors on */
    if (t->v.unroll && (c->xa < 2 || c->k[c->xa] == 1 || c->k[c->xa] > 7)) return false;
    if (t->v.unroll && t->g.up.is && t->g.up.tile == 1) return false; /* how many, only the kernel knows */
    if (t->v.ry % wg_conv_window(&t->g, c->ya) && !store_shared) return false;
    if (t->v.rx % wg_conv_window(&t->g, c->xa) && !store_shared) return false;
    return wg_conv_fits(&t->g, caps);
}

/* Tiles not much larger than the convolution, and parameters that matter. */
static bool is_worth_trying(const struct thread_conv *t)
{
    const struct conv *c = &t->g.c;
    const struct wg_work *s = &t->g.s;
    i64 x = wg_conv_size(&t->g, c->xa), y = wg_conv_size(&t->g, c->ya);
    i64 ic = t->g.ic, oc = t->g.oc;
    if (t->v.rc < i64_min(4, c->oc) || s->oc < i64_min(16, oc)) return false;
    if (s->bk < i64_min(8, ic) && !(s->bk == MAX_READ && ic < 8)) return false;
    if (s->split_k > 1 && wg_conv_tiles(&t->g, NULL) * (double)s->split_k > 512) return false;
    if (!s->patch && t->g.taps > 1) return false;
    if (s->patch && !s->weights && t->g.n_weights <= 2048) return false; /* copied in no time */
    bool rows = wg_conv_has_rows(&t->g), pool = t->g.tail.pool != 0;
    if (s->store_shared ? !rows && !pool : rows && c->oc >= 16)
        return false; /* rows: stores side by side */
    if (s->tx < i64_min(8, x) || s->tx > 64 || s->ty > 32) return false;
    if (s->tx < x && s->ty < y && wg_conv_halo(&t->g) > 1.75) return false;
    bool large = (double)x * (double)y * (double)c->oc > 1 << 18;
    if (large && t->v.rx * t->v.ry * t->v.rc < 16 && c->oc >= 8) return false;
    return !is_wasteful(t->g.width, 4, oc) && !is_wasteful(s->bk, MAX_READ, ic) &&
           !is_wasteful(s->tx, 8, x) && !is_wasteful(s->ty, 4, y);
}

/* The smallest groups, along the axis of one of three parameters. One of them can do any
 * convolution that matches. */
static struct sched least_sched(const struct wg_conv *g, u32 along)
{
    struct sched s = {.v = {[P_threads] = LEAST, [P_tc] = 1, [P_px] = 1, [P_rc] = 1, [P_bk] = 1, [P_split_k] = 1}};
    s.v[P_rx] = (i32)wg_conv_window(g, g->c.xa), s.v[P_ry] = (i32)wg_conv_window(g, g->c.ya);
    s.v[P_out] = g->tail.pool != 0;
    if (along == P_tc || along == P_px) s.v[along] = LEAST;
    return s;
}

static bool is_least(const struct wg_conv *g, const struct sched *s)
{
    static const u32 along[] = {P_tc, P_px, P_ry};
    for (u32 i = 0; i < countof(along); i++) {
        struct sched least = least_sched(g, along[i]);
        if (!memcmp(&least, s, sizeof least)) return true;
    }
    return false;
}

static bool view(const struct gen_problem *p, const struct sched *s)
{
    if (!is_sensible(p->c, params_of(s))) return false;
    take(p->facts, s);
    return true;
}

static bool legal(const struct gen_problem *p, const struct sched *s)
{
    const struct thread_conv *t = p->facts;
    if (t->g.s.groups > 1 && t->v.bk != param[P_bk].values[0]) return false; /* all input channels are one block */
    return (is_worth_trying(t) || is_least(&t->g, s)) && is_possible(t, p->c);
}

/* Loads of a thread per multiply-add, in multiply-adds: a load of 16 bytes that threads share costs
   about six, a conversion to the type of the arithmetic one. */
static double loads_of(const struct thread_conv *t)
{
    const struct wg_conv *g = &t->g;
    enum dtype type = graph_value(g->c.g, g->c.w)->dtype;
    double pixels = (double)(t->v.rx * t->v.ry), cv = (double)t->cv, rc = (double)t->v.rc;
    double w = cv * (double)ceil_div(t->v.rc * dtype_size(type), 16) * (g->s.weights ? 1 : 1.5);
    double x = pixels * (double)ceil_div(t->cv * dtype_size(g->cell), 16) * (g->s.patch ? 1 : 12);
    double casts = (type == g->type ? 0 : rc * cv) + (g->cell == g->type ? 0 : pixels * cv);
    return (6 * (w + x) + casts) / (pixels * rc * cv);
}

static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct thread_conv *t = p->facts;
    double pixels = (double)(t->v.rx * t->v.ry), rc = (double)t->v.rc;
    struct wg_cost x = {.loads = loads_of(t), .rate = 1, .chains = pixels * rc};
    x.regs = pixels * (rc + (double)t->cv) + rc + 30;
    if (t->g.s.pipe != PIPE_NONE) x.regs += 4 * (double)wg_conv_copies(&t->g);
    if (x.regs > 220) x.rate = 0.4; /* spilled */
    if (!t->v.unroll) x.loads += 0.1;
    return wg_conv_seconds(&t->g, p->c, &x, p->var);
}

/* Chunks where all is copied, which few tiles of many channels want. */
static void try_chunks(const struct gen_problem *p, struct sched s, double *best, struct sched *out)
{
    for (u32 i = 0; i < (s.v[P_stage] == STAGE_ALL ? param[P_split_k].n : 1); i++) {
        s.v[P_split_k] = param[P_split_k].values[i];
        gen_try(p, &s, best, out);
    }
}

/* Register tiles: channels, pixels of a row, rows. */
static const i32 tiles[][3] = {{8, 4, 2}, {8, 2, 2}, {4, 4, 2}, {4, 2, 2}, {8, 4, 1}, {4, 4, 1},
                               {8, 1, 1}, {4, 2, 1}, {4, 1, 1}, {2, 2, 1}, {1, 4, 2}, {1, 1, 1}};

static void initial(const struct gen_problem *p, struct sched *out)
{
    const struct thread_conv *t = p->facts;
    double best = 0;
    for (u32 i = 0; i < countof(tiles) * param[P_threads].n * param[P_tc].n * param[P_px].n; i++) {
        u32 j = i / countof(tiles), shape = i % countof(tiles);
        struct sched s = {.v = {[P_threads] = param[P_threads].values[j % param[P_threads].n],
                                [P_rc] = tiles[shape][0],
                                [P_rx] = tiles[shape][1],
                                [P_ry] = tiles[shape][2],
                                [P_split_k] = 1}};
        j /= param[P_threads].n;
        s.v[P_tc] = param[P_tc].values[j % param[P_tc].n], s.v[P_px] = param[P_px].values[j / param[P_tc].n];
        for (u32 cb = 0; cb < param[P_bk].n; cb++)
            for (u32 k = 0; k < 8; k++) {
                s.v[P_bk] = param[P_bk].values[cb], s.v[P_out] = k & 1, s.v[P_pipe] = k >> 1 & 1;
                s.v[P_stage] = k >> 2 & 1 ? STAGE_ALL : STAGE_INPUT;
                try_chunks(p, s, &best, out);
            }
    }
    static const u32 along[] = {P_tc, P_px, P_ry};
    for (u32 i = 0; !best && i < countof(along); i++) {
        struct sched s = least_sched(&t->g, along[i]);
        gen_try(p, &s, &best, out);
    }
    assert(best > 0);
}

const struct gen gen_wg_conv = {
    .version = 1,
    .name = "wg_conv",
    .revision = 4,
    .param = param,
    .n_param = N_PARAM,
    .sums = SUMS_IN_PARTS,
    .facts = sizeof(struct thread_conv),
    .analyze = analyze,
    .view = view,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
