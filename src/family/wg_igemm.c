// SPDX-License-Identifier: Apache-2.0
//
// wg_igemm: convolution of any rank, layout, stride, padding, dilation and groups, transposed or not, by workgroups, as a GEMM whose
// rows are all outputs of a channel merged to one axis, so that the work is divided evenly whatever the sizes of the axes are
// (gen/addr_igemm.c). A workgroup computes bm = tr*tm outputs by bn = tc*tn channels in K blocks, each thread a tile of tm
// by tn in registers; K blocks, copies and split K are those of GEMMs (gen/contract_emit.c), the tile is wg_gemm's.
//
// The input, or the input and the weights, may be read from memory where they are multiplied instead: then the taps are
// loops and nothing is taken apart. Where wg_conv copies the input tile with its halo once for all taps, this family reads an
// element once per tap, but has no halo, and its tiles do not exceed the ends of rows.
//
// Dims: y (m, n) of a conv group, m = batch and pixels, n = its output channels; terms k = taps x input channels.
#include "gen/addr_igemm.h"
#include "gen/leaf.h"

#include <math.h>

enum { STAGE_NONE, STAGE_WEIGHTS, STAGE_ALL };
enum {
    MAX_COPIED = 64, /* elements of one operand that a thread copies per K block */
    MAX_CODE = 512,  /* multiply-adds written out */
    MAX_ROW = 7,     /* taps written out */
    STAGES = 3       /* of PIPE_ASYNC */
};

/* In the order in which a choice of one narrows down the next ones. */
// clang-format off
#define PARAMS(P)                                                                                                                              \
    P(tr, "threads along outputs", 1, 2, 4, 8, 16, 32, 64, 128)                                                                                \
    P(tc, "threads along output channels", 1, 2, 4, 8, 16, 32)                                                                                 \
    P(tm, "outputs of a thread, of a channel", 1, 2, 4, 8)                                                                                     \
    P(tn, "output channels of a thread", 1, 2, 4, 8, 16)                                                                                       \
    P(near, "neighbouring outputs of a thread", 1, 2, 4, 8)                                                                                    \
    P(order, "terms: 0 input channels innermost, 1 taps innermost, 2 likewise in K blocks of all taps", IGEMM_CHANNELS, IGEMM_TAPS, IGEMM_LOOPS) \
    P(bk, "terms of a K block; order 2: input channels", 1, 2, 4, 8, 16, 32)                                                                   \
    P(stage, "in shared memory: 0 nothing, 1 the weights, 2 the input, too", STAGE_NONE, STAGE_WEIGHTS, STAGE_ALL)                             \
    P(pipe, "0 K blocks in turn, 1 loads ahead, 2 and two buffers, 3 copies ahead without registers",                                          \
            PIPE_NONE, PIPE_AHEAD, PIPE_DOUBLE, PIPE_ASYNC)                                                                                    \
    P(split_k, "workgroups that share the terms of a block", 1, 2, 4, 8, 16)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)

/* The task and a schedule, as far as they are known. */
struct view {
    struct igemm_address g;
    struct gemm x;
    i64 m, n, k, size; /* m of the whole batch; size: bytes of an operand's element */
    struct params v;
    i64 bm, bn, bk, threads;
};

static bool view_of(struct view *w, const struct task *t, const i64 *var)
{
    if (!igemm_address_of(&w->g, &w->x, t)) return false;
    w->m = gen_eval(&t->g, w->x.m, var), w->n = w->g.c.oc, w->k = igemm_terms(&w->g);
    w->size = dtype_size(graph_value(&t->g, w->x.a)->dtype);
    return true;
}

static void look_at(struct view *w, const struct sched *s)
{
    const struct params *v = &w->v;
    w->v = params_of(s);
    w->bm = v->tr * v->tm, w->bn = v->tc * v->tn;
    w->threads = v->tr * v->tc;
    w->bk = igemm_k_block(&w->g, (enum igemm_order)v->order, v->bk);
}

static i64 stages_of(const struct params *v)
{
    return v->pipe == PIPE_DOUBLE ? 2 : v->pipe == PIPE_ASYNC ? STAGES : 1;
}

/* Elements behind a line of shared memory: rows of contiguous terms are transposed by the copy. */
static i64 pad_of(const struct igemm_address *g, const struct params *v)
{
    return v->stage == STAGE_ALL && igemm_is_dense(g, (enum igemm_order)v->order) ? 4 : 0;
}

/* Terms that a thread reads at a time from the input. */
static i64 deep_of(const struct igemm_address *g, const struct params *v)
{
    return v->stage == STAGE_ALL ? 1 : igemm_direct_run(g, (enum igemm_order)v->order, v->bk);
}

static u32 lanes_of(const struct igemm_address *g, const struct params *v) { return g->c.oc == 1 ? 1 : (u32)i64_min(4, v->tn); }

static struct blocking blocking_of(const struct params *v)
{
    return (struct blocking){.bm = v->tr * v->tm,
                             .bn = v->tc * v->tn,
                             .threads = v->tr * v->tc,
                             .pipe = (enum wg_pipe)v->pipe,
                             .stages = stages_of(v),
                             .raster = 1,
                             .split_k = v->split_k};
}

/* Emission. */

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    const struct params v = params_of(s);
    struct igemm_address g;
    struct contraction p = {.m = m,
                            .s = blocking_of(&v),
                            .st = {.a_direct = v.stage != STAGE_ALL, .b_direct = v.stage == STAGE_NONE, .a_wide = 8, .b_wide = 8},
                            .leaf = &leaf_fma};
    igemm_address_of(&g, &p.x, t);
    u32 lanes = lanes_of(&g, &v);
    struct fma_leaf l = {.row = {v.tm, v.near, v.tm, v.tr, 1}, .col = {v.tn, lanes, v.tn, v.tc, 1}, .lanes = lanes};
    p.own = &l;
    p.type = p.out_type = p.x.type;
    p.st.pad = pad_of(&g, &v);
    p.st.type = graph_value(&t->g, p.x.a)->dtype;
    wg_init(&p.g, m, p.s.threads, 0);
    igemm_address_open(&g, &p, (enum igemm_order)v.order, v.bk);
    l.unroll = fma_unroll(&l, p.s.bk);
    if (p.address->loops) l.unroll = i64_min(MAX_ROW, l.unroll);
    contract_emit(&p, t, caps);
}

/* Choice: rules about a parameter and those before it. */

static i64 copied(const struct view *w, i64 block) { return ceil_div(block * w->bk, w->threads); }

static i64 shared_bytes(const struct view *w)
{
    i64 pad = pad_of(&w->g, &w->v), lines = 0;
    if (w->v.stage == STAGE_ALL) lines += w->bm + pad;
    if (w->v.stage != STAGE_NONE) lines += w->bn + pad;
    return stages_of(&w->v) * w->bk * lines * w->size;
}

static bool fits_stage(const struct view *w, const struct caps *c)
{
    i64 stage = w->v.stage;
    if (stage != STAGE_NONE && copied(w, w->bn) > MAX_COPIED) return false;
    if (stage == STAGE_ALL && copied(w, w->bm) > MAX_COPIED) return false;
    return shared_bytes(w) <= c->shared_bytes;
}

/* Of a thread, with the copies that are under way during the arithmetic. */
static i64 registers_of(const struct view *w)
{
    const struct params *v = &w->v;
    i64 n = v->tm * v->tn + v->tm + v->tn;
    if (v->pipe != PIPE_AHEAD && v->pipe != PIPE_DOUBLE) return n;
    if (v->stage == STAGE_ALL) n += copied(w, w->bm);
    return v->stage != STAGE_NONE ? n + copied(w, w->bn) : n;
}

static bool fits_pipe(const struct view *w, const struct caps *c)
{
    const struct params *v = &w->v;
    if (v->pipe != PIPE_NONE && v->stage == STAGE_NONE) return false;
    return shared_bytes(w) <= c->shared_bytes && wg_has_registers(c, w->threads, registers_of(w));
}

static bool fits(const struct view *w, const struct caps *c, u32 p)
{
    const struct params *v = &w->v;
    if (c->deterministic && ((p == P_order && v->order) || (p == P_split_k && v->split_k > 1))) return false;
    switch (p) {
    case P_tc: return w->threads > 1 && w->threads <= c->max_group; /* a workgroup of one thread is none */
    case P_tn: return wg_has_registers(c, w->threads, v->tm * v->tn + v->tm + v->tn);
    case P_near: return v->near <= v->tm;
    case P_stage: return fits_stage(w, c);
    case P_pipe: return fits_pipe(w, c);
    default: return true;
    }
}

static i64 block_count(const struct view *w) { return w->g.phases * w->g.c.groups * ceil_div(w->m, w->bm) * ceil_div(w->n, w->bn); }

static bool is_tile_worth(const struct view *w)
{
    i64 sums = w->v.tm * w->v.tn;
    if (!blocking_fits_size(w->bn, 4, w->n) || w->bn > 256 || sums > 64) return false;
    if (w->n == 1 && w->bn > 1) return false;
    if (w->m * w->n < 4096) return sums == 2 || sums == 4 || (w->m * w->n < 64 && sums == 1);
    return sums >= 8 || (sums >= 4 && w->n < 8);
}

/* Taps innermost where channels are few, or planes. */
static bool is_order_worth(const struct view *w)
{
    i64 order = w->v.order;
    if (order == IGEMM_CHANNELS) return true;
    return w->g.taps > 1 && (!w->g.by_channel || w->g.c.ic < 4) && (order == IGEMM_LOOPS || w->g.taps * w->g.c.ic < 64);
}

static bool is_block_k_worth(const struct view *w)
{
    i64 bk = w->v.bk;
    if (w->v.order == IGEMM_LOOPS) return (bk == 1 || bk < 2 * w->g.c.ic) && (bk == 1 || w->bk <= 64);
    return blocking_fits_size(bk, 4, w->k) && (bk >= (w->k < 256 ? 8 : 16) || bk >= w->k);
}

/* Reading straight from the input pays where few threads want the same element. */
static bool is_stage_worth(const struct view *w)
{
    if (w->v.stage == STAGE_ALL) return w->bn > 1;
    return w->v.tn >= i64_min(w->n, 8) || deep_of(&w->g, &w->v) > 1;
}

static bool is_worth(const struct view *w, const struct caps *c, u32 p)
{
    const struct params *v = &w->v;
    i64 blocks_k = ceil_div(w->k, w->bk ? w->bk : 1);
    switch (p) {
    case P_tc: return w->threads >= wg_least(c) && w->threads <= 256 && blocking_fits_size(v->tc, 1, w->n);
    case P_tm: return blocking_fits_size(w->bm, 16, w->m) && w->bm <= 256;
    case P_tn: return is_tile_worth(w);
    case P_near: return v->near == 1 || v->near == i64_min(4, v->tm);
    case P_order: return is_order_worth(w);
    case P_bk: return is_block_k_worth(w);
    case P_stage: return is_stage_worth(w);
    case P_pipe: return v->pipe == PIPE_NONE || (blocks_k > 1 && v->pipe != PIPE_AHEAD);
    case P_split_k: return v->split_k == 1 || (blocks_k >= 4 * v->split_k && block_count(w) * v->split_k <= 512);
    default: return true;
    }
}

static bool analyze(const struct gen_problem *p)
{
    const struct caps *c = p->c;
    struct view *w = p->facts;
    return c->is_gpu && wg_least(c) > 1 && view_of(w, p->t, p->var) && (c->has_f64 || w->x.type != DT_F64);
}

static bool view(const struct gen_problem *p, const struct sched *s)
{
    look_at(p->facts, s);
    return true;
}

static bool legal(const struct gen_problem *p, const struct sched *s)
{
    for (u32 i = 0; i < N_PARAM; i++)
        if (!fits(p->facts, p->c, i)) return false;
    return true;
}

static bool worth(const struct gen_problem *p, const struct sched *s, u32 n)
{
    look_at(p->facts, s);
    return fits(p->facts, p->c, n - 1) && is_worth(p->facts, p->c, n - 1);
}

/* Prediction: instructions of all threads in multiply-adds, bytes, barriers. */

/* Of a thread, to read what a term multiplies: from shared memory in vectors, or from caches with the place to find. */
static struct wg_work reads_of(const struct view *w)
{
    const struct params *v = &w->v;
    double tm = (double)v->tm, cols = (double)v->tn / (double)lanes_of(&w->g, v), rows = tm / (double)i64_min(4, v->near), size = (double)w->size;
    struct wg_work r = {.instructions = cols * (v->stage == STAGE_NONE ? 4 : 1), .moved = 4 * cols};
    if (v->stage == STAGE_ALL) r.instructions += rows, r.moved += 4 * rows;
    else r.instructions += tm * (w->g.c.no_pad ? 12 : 18) / (double)deep_of(&w->g, v), r.moved += tm * size;
    return r;
}

/* Of a workgroup, to copy a K block. */
static struct wg_work copies_of(const struct view *w)
{
    const struct params *v = &w->v;
    double bk = (double)w->bk, a = v->stage == STAGE_ALL ? bk * (double)w->bm : 0, b = v->stage != STAGE_NONE ? bk * (double)w->bn : 0;
    bool dense = igemm_is_dense(&w->g, (enum igemm_order)v->order) && w->g.c.ic % 4 == 0;
    return (struct wg_work){.instructions = a * (dense ? 8 : 20) + b * 2, .moved = 2 * (a + b) * (double)w->size};
}

static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct view *w = p->facts;
    const struct params *v = &w->v;
    double own = (double)(v->tm * v->tn), bk = (double)w->bk, groups = (double)(w->g.c.groups * w->g.phases), n = (double)w->n;
    struct blocking b = blocking_of(v);
    b.bk = w->bk;
    const struct wg_work reads = reads_of(w), copies = copies_of(w);
    struct wg_facts f = blocking_facts(p, &w->x, &b, 0, 0);
    f.workgroups = (double)(block_count(w) * v->split_k), f.regs = (double)registers_of(w) + WG_ADDRESSES, f.shared_bytes = shared_bytes(w);
    f.steps = (double)ceil_div(ceil_div(w->k, w->bk), v->split_k);
    f.step.instructions = (double)w->threads * bk * (0.2 * own + reads.instructions) + copies.instructions;
    f.step.moved = (double)w->threads * bk * reads.moved + copies.moved;
    if (v->stage == STAGE_NONE) f.step.barriers = 0;
    f.bytes = (double)w->size * groups * ((double)w->m * ((double)w->g.c.ic + n) + (double)w->k * n);
    f.requested = f.workgroups * f.steps * bk * (double)((w->bm + w->bn) * w->size);
    return wg_seconds(p, &f);
}

static bool least(const struct gen_problem *p, u32 k, struct sched *s)
{
    *s = (struct sched){.v = {[P_tc] = 1, [P_tm] = 1, [P_tn] = 1, [P_near] = 1, [P_bk] = 1, [P_split_k] = 1}};
    s->v[P_tr] = gen_nearest(&param[P_tr], wg_least(p->c));
    return k == 0;
}

const struct gen gen_wg_igemm = {
    GEN_FAMILY("wg_igemm", 3), .facts = sizeof(struct view), .analyze = analyze, .view = view,
    .least = least, .legal = legal, .worth = worth, .emit = emit, .predict = predict,
};
