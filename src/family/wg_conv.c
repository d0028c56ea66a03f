// SPDX-License-Identifier: Apache-2.0
//
// wg_conv: convolution of any rank, groups, strides and dilations, transposed or not, by groups
// of threads, each with a tile of outputs in registers: ry rows by rx pixels by rc channels. A
// thread reads some input channels of its pixels at a time and multiplies them with a vector of
// weights for rc channels; sums are kept in the type of the arithmetic whatever the inputs' type.
// Copying, storing and pooling are the tile's (gen/halo.h), the multiply-adds gen/leaf_fma.c's.
//
// Where a conv group has few outputs, a tile holds several, and a thread reads its own's
// inputs. Few tiles of many input channels are shared by workgroups, whose sums another grid adds up.
//
// Threads count channels first, then x, then y: threads side by side read the same pixels and
// neighbouring weights, and write neighbouring channels.
#include "gen/halo.h"
#include "gen/leaf.h"

#include <string.h>

enum { STAGE_NONE, STAGE_INPUT, STAGE_ALL };
enum { MAX_CELLS = 64, MAX_READ = 4, MAX_UNROLLED = 128, LEAST = 16 /* threads */, LOAD = 6 /* bytes that a load of 16 bytes moves, which some threads share */ };

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

/* Enough threads with enough to do for each, but see least. */
static bool are_threads_sensible(const struct caps *caps, struct params v)
{
    i64 cells = v.rx * v.ry * v.rc;
    bool is_small = v.threads < i64_min(64, caps->max_group) || cells < 8;
    if (is_small && (v.threads != LEAST || v.rc > 1 || v.bk > 1)) return false;
    return v.threads <= caps->max_group && v.threads % (v.tc * v.px) == 0 && cells <= MAX_CELLS;
}

/* What depends on the schedule alone. */
static bool is_sensible(const struct caps *caps, struct params v)
{
    return are_threads_sensible(caps, v) && (v.stage != STAGE_NONE || (v.rx * v.ry <= 8 && !v.pipe && !v.wide));
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

/* Tiles not much larger than the convolution. */
static bool is_tile_worth(const struct halo_task *q, struct params v)
{
    const struct conv *c = &q->c;
    i64 x = halo_task_size(q, c->xa), y = halo_task_size(q, c->ya), width = v.tc * v.rc, tx = v.px * v.rx, ty = v.threads / (v.tc * v.px) * v.ry;
    i64 oc = groups_of(q, width, v.rc) > 1 ? c->oc * c->groups : c->oc;
    bool large = (double)x * (double)y * (double)c->oc > 1 << 18;
    if (v.rc < i64_min(4, c->oc) || width < i64_min(16, oc)) return false;
    if (tx < i64_min(8, x) || tx > 64 || ty > 32) return false;
    if (large && v.rx * v.ry * v.rc < 16 && c->oc >= 8) return false;
    return (q->up || !is_wasteful(width, 4, oc)) && !is_wasteful(tx, 8, x) && !is_wasteful(ty, 4, y);
}

/* Blocks and copies that matter; the parameters behind `stage` may be missing. */
static bool is_stage_worth(const struct view *w, const struct caps *caps)
{
    const struct halo_plan *p = &w->p;
    const struct halo_work *s = &p->s;
    if ((s->bk < i64_min(8, p->ic) && !(s->bk == MAX_READ && p->ic < 8)) || is_wasteful(s->bk, MAX_READ, p->ic)) return false;
    if (is_wasteful(p->width, 4, p->oc)) return false;
    if (!s->input && (p->taps > 1 || w->v.rx * w->v.ry > 8)) return false;
    if (s->input && !s->weights && p->n_weights <= 2048) return false; /* copied in no time */
    if (p->tx < halo_task_size(&w->q, w->q.c.xa) && p->ty < halo_task_size(&w->q, w->q.c.ya) && halo_plan_overlap(p) > 1.75) return false;
    return halo_plan_shared(p) <= caps->shared_bytes;
}

static bool is_worth_trying(const struct view *w, const struct caps *caps)
{
    const struct halo_work *s = &w->p.s;
    bool rows = halo_task_has_rows(&w->q), pool = w->q.tail.pool != 0;
    if (!is_tile_worth(&w->q, w->v) || !is_stage_worth(w, caps)) return false;
    if (s->split_k > 1 && halo_plan_tiles(&w->p, NULL) * (double)s->split_k > 512) return false;
    return s->store_shared ? rows || pool : !rows || w->q.c.oc < 16; /* rows: stores side by side */
}

/* The smallest workgroups, along the axis of one of three parameters. */
static bool least(const struct gen_problem *p, u32 k, struct sched *s)
{
    static const u32 along[] = {P_tc, P_px, P_ry};
    const struct halo_task *q = &((const struct view *)p->facts)->q;
    if (k >= countof(along)) return false;
    *s = (struct sched){.v = {[P_threads] = LEAST, [P_tc] = 1, [P_px] = 1, [P_rc] = 1, [P_bk] = 1, [P_split_k] = 1}};
    s->v[P_rx] = (i32)halo_task_window(q, q->c.xa), s->v[P_ry] = (i32)halo_task_window(q, q->c.ya);
    s->v[P_out] = q->tail.pool != 0;
    if (along[k] != P_ry) s->v[along[k]] = LEAST;
    return true;
}

static bool is_least(const struct gen_problem *p, const struct sched *s)
{
    struct sched x;
    for (u32 k = 0; least(p, k, &x); k++)
        if (!memcmp(&x, s, sizeof x)) return true;
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
    return (is_worth_trying(w, p->c) || is_least(p, s)) && is_possible(w, p->c);
}

static bool begins(const struct gen_problem *p, const struct sched *s, u32 n)
{
    struct view *w = p->facts;
    const struct params v = params_of(s);
    if (n == P_px + 1) return v.threads % (v.tc * v.px) == 0;
    if (n == P_ry + 1) return are_threads_sensible(p->c, v) && is_tile_worth(&w->q, v);
    if (n != P_stage + 1) return true;
    look_at(w, s);
    return is_stage_worth(w, p->c);
}

/* Of a thread per multiply-add: loads of 16 bytes that threads share, conversions to the type of the arithmetic, loops over taps. */
static struct wg_work loads_of(const struct view *w)
{
    enum dtype type = graph_value(w->q.c.g, w->q.c.w)->dtype;
    double pixels = (double)(w->v.rx * w->v.ry), cv = (double)w->p.s.deep, rc = (double)w->v.rc, fmas = pixels * rc * cv;
    double weights = cv * (double)ceil_div(w->v.rc * dtype_size(type), 16) * (w->p.s.weights ? 1 : 1.5);
    double x = pixels * (double)ceil_div(w->p.s.deep * dtype_size(w->p.cell), 16) * (w->p.s.input ? 1 : 12);
    double casts = (type == w->p.type ? 0 : rc * cv) + (w->p.cell == w->p.type ? 0 : pixels * cv);
    return (struct wg_work){.instructions = (weights + x + casts) / fmas + (w->v.unroll ? 0 : 0.1), .moved = LOAD * (weights + x) / fmas};
}

static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct view *w = p->facts;
    double pixels = (double)(w->v.rx * w->v.ry), rc = (double)w->v.rc;
    const struct wg_work loads = loads_of(w);
    struct wg_facts f = halo_plan_facts(&w->p, p->var);
    f.regs = pixels * (rc + (double)w->p.s.deep) + rc + (w->p.s.pipe != PIPE_NONE ? 4 * (double)halo_plan_copies(&w->p) : 0) + WG_ADDRESSES;
    f.ilp = pixels * rc;
    f.step.instructions += f.step.fmas * loads.instructions, f.step.moved += f.step.fmas * loads.moved;
    return wg_seconds(p, &f);
}

const struct gen gen_wg_conv = {
    GEN_FAMILY("wg_conv", 4), .sums = SUMS_IN_PARTS, .facts = sizeof(struct view),
    .analyze = analyze, .view = view, .least = least, .begins = begins, .legal = legal,
    .emit = emit, .predict = predict,
};
