// SPDX-License-Identifier: Apache-2.0
//
// wg_conv: convolution of any rank, groups, strides and dilations, transposed or not, by groups
// of threads, each with a tile of outputs in registers: ry rows by rx pixels by rc channels. A
// thread reads some input channels of its pixels at a time and multiplies them with a vector of
// weights for rc channels; sums are kept in the type of the arithmetic whatever the inputs' type.
// Copying, storing and pooling are the tile's (gen/halo.h), the multiply-adds gen/leaf_fma.c's.
//
// Where a group of channels has few outputs, a tile holds several, and a thread reads its own's
// inputs. Few tiles of many input channels are shared by workgroups, whose sums another grid adds up.
//
// Threads count channels first, then x, then y: threads side by side read the same pixels and
// neighbouring weights, and write neighbouring channels.
#include "gen/halo.h"
#include "gen/leaf.h"

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

/* The task, and a schedule's view. */
struct view {
    struct halo_task q;
    struct halo_plan p;
    struct params v;
};

/* Conv groups in a tile of so many channels; more than one only if a conv group has fewer, and whole ones. */
static i64 groups_of(const struct halo_task *q, i64 channels, i64 run)
{
    const struct conv *c = &q->c;
    bool many = c->groups > 1 && !q->up && c->ic * c->oc > 1 && channels > c->oc;
    return many && channels % c->oc == 0 && c->oc % run == 0 ? channels / c->oc : 1;
}

static void look_at(struct view *w, const struct sched *s)
{
    const struct params v = w->v = params_of(s);
    const struct conv *c = &w->q.c;
    struct halo_work x = halo_work_of_threads(v.threads, v.tc, v.px, v.rc, v.rx, v.ry);
    x.groups = groups_of(&w->q, v.tc * v.rc, v.rc);
    x.bk = x.groups > 1 ? x.groups * c->ic : v.bk;
    x.deep = x.groups > 1 ? wg_power_dividing(MAX_READ, c->ic) : i64_min(v.bk, MAX_READ);
    x.unroll_taps = v.unroll, x.unroll_channels = x.bk / x.groups * v.rx * v.ry <= MAX_UNROLLED;
    x.split_k = v.split_k, x.pipe = (enum wg_pipe)v.pipe;
    x.input = v.stage != STAGE_NONE, x.weights = v.stage == STAGE_ALL;
    x.wide = v.wide, x.store_shared = v.out;
    halo_plan_init(&w->p, &w->q, &x);
}

/* Emission. */

static void open(struct contraction *c)
{
    struct fma_leaf *l = c->own;
    l->acc = halo_sums_open(halo_of(c), 0);
    leaf_fma.open(c);
}

static void store(struct contraction *c)
{
    const struct fma_leaf *l = c->own;
    halo_store_sums(halo_of(c), l->acc);
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    struct view w = {0};
    halo_task_of(&w.q, t);
    look_at(&w, s);
    const struct params *v = &w.v;
    struct leaf leaf = leaf_fma;
    leaf.open = open, leaf.store = store;
    struct fma_leaf l = {.row = {v->rx * v->ry, 1, 1, v->threads / v->tc, 1}, .col = {v->rc, v->rc, v->rc, v->tc, 1}, .lanes = (u32)v->rc};
    struct contraction c = {.leaf = &leaf, .own = &l};
    struct halo h = {.q = &w.q, .p = &w.p, .m = m};
    halo_emit(&h, &c, 0, t, caps);
}

/* Choosing. */

static bool analyze(const struct gen_problem *p)
{
    struct view *w = p->facts;
    return p->c->is_gpu && halo_task_of(&w->q, p->t);
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

static bool is_possible(const struct view *w, const struct caps *caps)
{
    const struct conv *c = &w->q.c;
    if (c->oc * c->groups == 1 && w->v.rc > 1) return false; /* no axis to have vectors on */
    if (w->v.unroll && (c->xa < 2 || c->k[c->xa] == 1 || c->k[c->xa] > 7)) return false;
    if (w->v.unroll && w->q.up && w->p.phases == 1) return false; /* how many, only the kernel knows */
    return halo_plan_fits(&w->p, caps);
}

/* Tiles not much larger than the convolution, and parameters that matter. */
static bool is_worth_trying(const struct view *w)
{
    const struct conv *c = &w->q.c;
    const struct halo_work *s = &w->p.s;
    i64 x = halo_task_size(&w->q, c->xa), y = halo_task_size(&w->q, c->ya);
    i64 ic = w->p.ic, oc = w->p.oc;
    if (w->v.rc < i64_min(4, c->oc) || w->p.tile_oc < i64_min(16, oc)) return false;
    if (s->bk < i64_min(8, ic) && !(s->bk == MAX_READ && ic < 8)) return false;
    if (s->split_k > 1 && halo_plan_tiles(&w->p, NULL) * (double)s->split_k > 512) return false;
    if (!s->input && w->p.taps > 1) return false;
    if (s->input && !s->weights && w->p.n_weights <= 2048) return false; /* copied in no time */
    bool rows = halo_task_has_rows(&w->q), pool = w->q.tail.pool != 0;
    if (s->store_shared ? !rows && !pool : rows && c->oc >= 16)
        return false; /* rows: stores side by side */
    if (w->p.tx < i64_min(8, x) || w->p.tx > 64 || w->p.ty > 32) return false;
    if (w->p.tx < x && w->p.ty < y && halo_plan_overlap(&w->p) > 1.75) return false;
    bool large = (double)x * (double)y * (double)c->oc > 1 << 18;
    if (large && w->v.rx * w->v.ry * w->v.rc < 16 && c->oc >= 8) return false;
    return !is_wasteful(w->p.width, 4, oc) && !is_wasteful(s->bk, MAX_READ, ic) &&
           !is_wasteful(w->p.tx, 8, x) && !is_wasteful(w->p.ty, 4, y);
}

/* The smallest groups, along the axis of one of three parameters. One of them can do any
 * convolution that matches. */
static struct sched least_sched(const struct halo_task *q, u32 along)
{
    struct sched s = {.v = {[P_threads] = LEAST, [P_tc] = 1, [P_px] = 1, [P_rc] = 1, [P_bk] = 1, [P_split_k] = 1}};
    s.v[P_rx] = (i32)halo_task_window(q, q->c.xa), s.v[P_ry] = (i32)halo_task_window(q, q->c.ya);
    s.v[P_out] = q->tail.pool != 0;
    if (along == P_tc || along == P_px) s.v[along] = LEAST;
    return s;
}

static bool is_least(const struct halo_task *q, const struct sched *s)
{
    static const u32 along[] = {P_tc, P_px, P_ry};
    for (u32 i = 0; i < countof(along); i++) {
        struct sched least = least_sched(q, along[i]);
        if (!memcmp(&least, s, sizeof least)) return true;
    }
    return false;
}

static bool view(const struct gen_problem *p, const struct sched *s)
{
    if (!is_sensible(p->c, params_of(s))) return false;
    look_at(p->facts, s);
    return true;
}

static bool legal(const struct gen_problem *p, const struct sched *s)
{
    const struct view *w = p->facts;
    if (w->p.s.groups > 1 && w->v.bk != param[P_bk].values[0]) return false; /* all input channels are one block */
    return (is_worth_trying(w) || is_least(&w->q, s)) && is_possible(w, p->c);
}

/* Loads of a thread per multiply-add, in multiply-adds: a load of 16 bytes that threads share costs
   about six, a conversion to the type of the arithmetic one. */
static double loads_of(const struct view *w)
{
    enum dtype type = graph_value(w->q.c.g, w->q.c.w)->dtype;
    double pixels = (double)(w->v.rx * w->v.ry), cv = (double)w->p.s.deep, rc = (double)w->v.rc;
    double weights = cv * (double)ceil_div(w->v.rc * dtype_size(type), 16) * (w->p.s.weights ? 1 : 1.5);
    double x = pixels * (double)ceil_div(w->p.s.deep * dtype_size(w->p.cell), 16) * (w->p.s.input ? 1 : 12);
    double casts = (type == w->p.type ? 0 : rc * cv) + (w->p.cell == w->p.type ? 0 : pixels * cv);
    return (6 * (weights + x) + casts) / (pixels * rc * cv);
}

static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct view *w = p->facts;
    double pixels = (double)(w->v.rx * w->v.ry), rc = (double)w->v.rc;
    struct halo_cost x = {.loads = loads_of(w), .rate = 1, .chains = pixels * rc};
    x.regs = pixels * (rc + (double)w->p.s.deep) + rc + 30;
    if (w->p.s.pipe != PIPE_NONE) x.regs += 4 * (double)halo_plan_copies(&w->p);
    if (x.regs > 220) x.rate = 0.4; /* spilled */
    if (!w->v.unroll) x.loads += 0.1;
    return halo_plan_seconds(&w->p, p->c, &x, p->var);
}

/* Splits of K where all is copied, which few tiles of many channels want. */
static void try_splits(const struct gen_problem *p, struct sched s, double *best, struct sched *out)
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
    const struct view *w = p->facts;
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
        for (u32 b = 0; b < param[P_bk].n; b++)
            for (u32 k = 0; k < 8; k++) {
                s.v[P_bk] = param[P_bk].values[b], s.v[P_out] = k & 1, s.v[P_pipe] = k >> 1 & 1;
                s.v[P_stage] = k >> 2 & 1 ? STAGE_ALL : STAGE_INPUT;
                try_splits(p, s, &best, out);
            }
    }
    static const u32 along[] = {P_tc, P_px, P_ry};
    for (u32 i = 0; !best && i < countof(along); i++) {
        struct sched s = least_sched(&w->q, along[i]);
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
    .facts = sizeof(struct view),
    .analyze = analyze,
    .view = view,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
