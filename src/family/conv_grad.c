// SPDX-License-Identifier: Apache-2.0
//
// conv_grad: the gradient of a convolution with respect to its weights, on processors with caches: the schedules and which of them is
// good. gen/cpu_addr_grad.c emits them.
//
// Dims: m channels of y, c channels of x (both of one group), taps k.., positions o...
#include "gen/grad.h"
#include "gen/nest.h"
#include "gen/tile.h"

#include <math.h>

/* In the order in which a choice of one narrows down the next ones. */
// clang-format off
#define PARAMS(P)                                                                                                                      \
    P(dy, "gradient of the output: 0 in place, 1 copied in blocks, 2 in place, in rows, which vectors run along",             \
          GRAD_PLACE, GRAD_BLOCKS, GRAD_ROWS)                                                                                          \
    P(tx, "input channels of the register tile", 1, 2, 3, 4, 6, 8, 12, 14, 28)                                                         \
    P(taps, "axes, innermost first, whose taps are all in the register tile", 0, 1, 2, 3)                                              \
    P(nr, "vectors of output channels of the register tile; dy 2: channels", 1, 2, 3, 4, 6)                                            \
    P(stage, "input: 0 in place, 1 copied with channels innermost, 2 copied in planes", STAGE_DIRECT, STAGE_PIXELS, STAGE_PLANES) \
    P(th, "rows of positions of a band, 0 = all", 0, 1, 2, 4, 8, 16, 32)                                                               \
    P(tw, "columns of positions of a band, 0 = all", 0, 16, 64, 256)                                                                   \
    P(mb, "blocks of output channels per grid iteration, 0 = all", 0, 1, 2, 4, 8)                                                      \
    P(split_k, "summands of a result: shares of the bands", 1, 2, 4, 8, 16, 32, 64)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct grad_sched, grad_sched_of, PARAMS)

static bool take_apart(struct grad *q, const struct task *t)
{
    if (!grad_of(q, t)) return false;
    grad_join_groups(q);
    return true;
}

static bool analyze(const struct gen_problem *p) { return !p->c->is_gpu && p->c->vector_bytes >= 8 && take_apart(p->facts, p->t); }

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    const struct grad_sched x = grad_sched_of(s);
    grad_emit(m, t, caps, &x);
}

struct sizes { /* behind a schedule, for given sizes */
    double combos, taps, terms;   /* of the tile, of the kernel; positions of a band */
    double columns;               /* of those, side by side */
    double bands, blocks, tiles;  /* in all; of output channels; of taps and input channels */
    double x_band, y_band, sums;  /* elements in scratch memory */
};

/* Output channels in a vector. */
static i64 lanes_of(const struct grad *q, const struct caps *caps, struct grad_sched v)
{
    return v.dy == GRAD_ROWS ? 1 : (i64)gen_lanes(caps, q->x.type);
}

static i64 extent(const struct grad *q, i32 a, const i64 *var) { return a < 0 ? 1 : i64_max(1, gen_eval(q->g, q->x.out[a], var)); }

static struct sizes sizes_of(const struct grad *q, const struct caps *caps, struct grad_sched v, const i64 *var)
{
    i64 nx = extent(q, q->x.xa, var), ny = extent(q, q->x.ya, var);
    i64 tw = v.tw ? i64_min(v.tw, nx) : nx, th = v.th ? i64_min(v.th, ny) : ny;
    i64 width = v.nr * lanes_of(q, caps, v);
    struct sizes z = {.combos = (double)grad_combos(q, v.taps), .taps = (double)grad_combos(q, q->n_taps), .terms = (double)(tw * th)};
    z.columns = (double)tw;
    z.bands = (double)(ceil_div(nx, tw) * ceil_div(ny, th));
    z.x_band = (double)q->x.ic;
    for (u32 i = 0; i < q->outer.n; i++) z.bands *= (double)i64_max(1, gen_eval(q->g, q->outer.g[i].extent, var));
    for (u32 a = 2; a < q->x.rank; a++) {
        const struct conv *c = &q->x;
        i64 n = (i32)a == c->xa ? tw : (i32)a == c->ya ? th : 0;
        z.x_band *= n ? (double)((n - 1) * c->stride[a] + (c->k[a] - 1) * c->dil[a] + 1) : (double)c->k[a];
    }
    z.blocks = (double)ceil_div(q->oc, width), z.tiles = z.taps / z.combos * (double)ceil_div(q->ic, v.tx);
    double channels = (v.mb ? fmin(v.mb, z.blocks) : z.blocks) * (double)width;
    z.y_band = z.terms * channels, z.sums = channels * z.taps * (double)q->ic;
    return z;
}

/* Choice: rules about a parameter and those before it. */

static i64 pixels_of(const struct grad *q, struct grad_sched v) { return grad_combos(q, v.taps) * v.tx; }

static i64 blocks_of(const struct grad *q, const struct caps *caps, struct grad_sched v)
{
    return ceil_div(q->oc, v.nr * lanes_of(q, caps, v));
}

static bool fits_tile(const struct grad *q, const struct caps *caps, struct grad_sched v)
{
    i64 pixels = pixels_of(q, v);
    return pixels <= GRAD_PIXELS && tile_is_legal(caps, pixels, v.nr) && (v.nr - 1) * lanes_of(q, caps, v) < q->oc;
}

static bool fits_gradient(const struct grad *q, struct grad_sched v)
{
    i32 xa = q->x.xa;
    switch (v.dy) {
    case GRAD_PLACE: return q->y.plain;
    case GRAD_BLOCKS: return true;
    case GRAD_ROWS: return q->y_in_rows && !q->depthwise && xa >= 2 && xa + 1 == (i32)q->x.rank && q->x.stride[xa] == 1;
    }
    unreachable();
}

static bool fits_stage(const struct grad *q, struct grad_sched v)
{
    if (v.dy == GRAD_ROWS && v.stage != STAGE_PLANES) return false;
    switch ((enum conv_stage)v.stage) {
    case STAGE_DIRECT: return q->x.plain && q->x.no_pad && q->exact;
    case STAGE_PIXELS: return true;
    case STAGE_PLANES: return !q->depthwise && q->x.xa >= 2 && !(q->ic == 1 && q->x.plain);
    }
    unreachable();
}

/* The least band there is may be of any size. */
static bool is_least(const struct grad *q, struct grad_sched v)
{
    return (v.th == 1 || extent(q, q->x.ya, NULL) == 1) && (v.tw == param[P_tw].values[1] || extent(q, q->x.xa, NULL) <= param[P_tw].values[1]);
}

/* Bytes of the sums of an iteration. */
static double sums_bytes(const struct grad *q, const struct caps *caps, struct grad_sched v, const struct sizes *z)
{
    return 4 * z->sums * (v.dy == GRAD_ROWS ? (double)gen_lanes(caps, q->x.type) : 1);
}

static bool fits_scratch(const struct grad *q, const struct caps *caps, struct grad_sched v)
{
    struct sizes z = sizes_of(q, caps, v, NULL);
    double l2 = (double)caps->l2_bytes;
    if (v.mb != 1 && z.blocks > 1 && sums_bytes(q, caps, v, &z) > 16 * l2) return false;
    return is_least(q, v) || 4 * (z.x_band + z.y_band) <= 2 * l2 + 1e5;
}

/* As many groups of mb as of no smaller number. */
static bool fits_blocks(i64 mb, i64 blocks)
{
    return !mb || (mb < blocks && (mb == 1 || ceil_div(blocks, mb / 2) > ceil_div(blocks, mb)));
}

static bool fits(const struct grad *q, const struct caps *caps, struct grad_sched v, u32 p)
{
    switch (p) {
    case P_dy: return fits_gradient(q, v);
    case P_tx: return v.tx <= q->ic;
    case P_taps: return v.taps <= (i64)q->n_taps;
    case P_nr: return fits_tile(q, caps, v);
    case P_stage: return fits_stage(q, v);
    case P_th: return v.th < extent(q, q->x.ya, NULL);
    case P_tw: return v.tw < extent(q, q->x.xa, NULL);
    case P_mb: return fits_blocks(v.mb, blocks_of(q, caps, v)) && fits_scratch(q, caps, v);
    case P_split_k: return v.split_k == 1 || v.split_k <= i64_min((i64)sizes_of(q, caps, v, NULL).bands, 8 * i64_max(1, caps->n_threads));
    default: unreachable();
    }
}

static bool is_legal(const struct grad *q, const struct caps *caps, struct grad_sched v)
{
    for (u32 p = 0; p < N_PARAM; p++)
        if (!fits(q, caps, v, p)) return false;
    return true;
}

/* Accumulators of the largest tile. */
static i64 most_cells(const struct grad *q, const struct caps *caps, enum grad_y dy)
{
    i64 most = 0;
    struct grad_sched v = {.dy = dy};
    for (u32 i = 0; i < param[P_tx].n && param[P_tx].values[i] <= q->ic; i++)
        for (u32 j = 0; j < param[P_taps].n && param[P_taps].values[j] <= (i64)q->n_taps; j++)
            for (u32 n = 0; n < param[P_nr].n; n++) {
                v.tx = param[P_tx].values[i], v.taps = param[P_taps].values[j], v.nr = param[P_nr].values[n];
                if (fits_tile(q, caps, v)) most = i64_max(most, pixels_of(q, v) * v.nr);
            }
    return most;
}

/* Accumulators that keep the multipliers busy, or half of what there can be. */
static bool is_tile_worth(const struct grad *q, const struct caps *caps, struct grad_sched v)
{
    i64 cells = pixels_of(q, v) * v.nr;
    return 8 * cells >= 3 * (i64)caps->n_vector_regs || 2 * cells > most_cells(q, caps, v.dy);
}

static bool is_stage_worth(const struct grad *q, struct grad_sched v)
{
    bool planes = conv_input_layout(&q->x) == LAYOUT_ROWS && q->ic > 1 && q->x.xa >= 2;
    return v.stage == STAGE_DIRECT || v.dy == GRAD_ROWS || (v.stage == STAGE_PLANES) == planes;
}

/* Enough positions to be worth the copying, no more of the gradient than caches keep. */
static bool is_band_worth(const struct grad *q, const struct caps *caps, struct grad_sched v)
{
    i64 nx = extent(q, q->x.xa, NULL), ny = extent(q, q->x.ya, NULL), width = v.nr * lanes_of(q, caps, v);
    i64 tw = v.tw ? v.tw : nx, th = v.th ? v.th : ny;
    if (is_least(q, v)) return true;
    if (tw < 64 && tw < nx && conv_input_layout(&q->y) == LAYOUT_ROWS) return false; /* short pieces of rows */
    return (tw * th >= 64 || tw * th == nx * ny) && tw * th * width * 4 <= 4 * caps->l1_bytes;
}

/* Sums that the second cache keeps. */
static bool are_blocks_worth(const struct grad *q, const struct caps *caps, struct grad_sched v)
{
    struct sizes z = sizes_of(q, caps, v, NULL);
    return v.mb == 1 || z.blocks < 2 || sums_bytes(q, caps, v, &z) <= 2 * (double)caps->l2_bytes;
}

/* Work for all threads, and no more shares than that takes. */
static bool are_parts_worth(const struct grad *q, const struct caps *caps, struct grad_sched v)
{
    i64 pieces = q->groups * (v.mb ? ceil_div(blocks_of(q, caps, v), v.mb) : 1), threads = i64_max(1, caps->n_threads);
    return v.split_k == 1 || (pieces < 2 * threads && pieces * v.split_k <= 8 * threads);
}

static bool is_worth(const struct grad *q, const struct caps *caps, struct grad_sched v, u32 p)
{
    switch (p) {
    case P_dy: return v.dy != GRAD_ROWS || extent(q, q->x.xa, NULL) >= (i64)gen_lanes(caps, q->x.type);
    case P_nr: return is_tile_worth(q, caps, v);
    case P_stage: return is_stage_worth(q, v);
    case P_tw: return is_band_worth(q, caps, v);
    case P_mb: return are_blocks_worth(q, caps, v);
    case P_split_k: return are_parts_worth(q, caps, v);
    default: return true;
    }
}

static bool legal(const struct gen_problem *p, const struct sched *s) { return is_legal(p->facts, p->c, grad_sched_of(s)); }

static bool worth(const struct gen_problem *p, const struct sched *s, u32 n)
{
    const struct grad_sched v = grad_sched_of(s);
    return fits(p->facts, p->c, v, n - 1) && is_worth(p->facts, p->c, v, n - 1);
}

/* Prediction. */

/* Cycles to copy an element to a band. */
static double copy_cycles(const struct conv *c, i64 stage)
{
    bool clast = conv_input_layout(c) == LAYOUT_CLAST;
    if (stage == STAGE_DIRECT) return 0;
    if (stage == STAGE_PLANES) return clast ? 2 : 0.2;
    return clast || c->ic == 1 ? 0.3 : 1.6;
}

/* In blocks; contiguous columns are scattered, short rows of them come from many pages. */
static double block_cycles(const struct grad *q, struct grad_sched v, const i64 *var)
{
    if (v.dy != GRAD_BLOCKS) return 0;
    if (conv_input_layout(&q->y) == LAYOUT_CLAST) return 0.3;
    return v.tw && v.tw * 4 < 256 && extent(q, q->x.xa, var) >= 64 ? 5 : 2.6;
}

/* Of a tile's products: step by step, where inputs are repeated to all lanes, or loaded for each. */
static double tile_cycles(const struct grad *q, const struct gen_problem *p, struct grad_sched v, const struct sizes *z)
{
    double pixels = z->combos * v.tx, nr = v.nr, lanes = gen_lanes(p->c, q->x.type);
    if (q->depthwise) return z->terms * (fmax(4, (pixels + 1) * nr / 2) + 0.7);
    double one = nest_step(p->nest, (i64)pixels, v.nr) / p->nest->work + 0.4;
    if (v.dy != GRAD_ROWS) return z->terms * one;
    return z->terms / z->columns * (ceil(z->columns / lanes) * 1.7 * one + 2); /* loads are not aligned, the last of a row has a mask */
}

static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct grad *q = p->facts;
    const struct caps *caps = p->c;
    const struct grad_sched v = grad_sched_of(s);
    const i64 *var = p->var;
    double lanes = (double)lanes_of(q, caps, v);
    struct sizes z = sizes_of(q, caps, v, var);
    double pixels = z.combos * v.tx, pieces = v.mb ? ceil(z.blocks / v.mb) : 1, parts = v.split_k;
    double share = ceil(z.bands / parts), blocks = fmin(z.blocks, v.mb ? v.mb : z.blocks);
    double tile = tile_cycles(q, p, v, &z) + pixels * v.nr * 2 + 40;
    double ic_waste = (double)q->ic / ((double)v.tx * ceil((double)q->ic / v.tx));
    double y_bytes = z.terms * v.nr * lanes * 4, l1 = (double)caps->l1_bytes;
    if (v.dy == GRAD_PLACE && q->oc * q->groups * 4 % 512 == 0) l1 /= (double)i64_min(q->oc * q->groups, 1024) / 128; /* few sets */
    if (y_bytes > l1 * 0.6) tile *= 1.15;
    if (4 * (z.x_band + z.y_band) + sums_bytes(q, caps, v, &z) > (double)caps->l2_bytes * 0.7) tile *= 1.2;
    double band = blocks * z.tiles * tile * (0.3 + 0.7 * ic_waste) + z.x_band * copy_cycles(&q->x, v.stage) +
                  z.y_band * block_cycles(q, v, var) + 300;
    double stored = parts > 1 ? 0.5 : z.combos > 9 ? 6 : 1.6; /* tiles of few channels and many taps store to lines far apart */
    if (v.dy == GRAD_ROWS) stored += 7; /* partial sums are added */
    double ends = z.sums * stored + 500, per_thread = ceil(parts * pieces * (double)q->groups / i64_max(1, caps->n_threads));
    double rest = parts > 1 || !q->simple ? (parts * 0.3 + 1.6) * z.sums * pieces * (double)q->groups / i64_max(1, caps->n_threads) : 0;
    return 2e-6 + (per_thread * (share * band + ends) + rest) * p->nest->work;
}

const struct gen gen_conv_grad = {
    GEN_FAMILY("conv_grad", 5), .sums = SUMS_IN_PARTS, .facts = sizeof(struct grad),
    .analyze = analyze, .legal = legal, .worth = worth, .emit = emit, .predict = predict,
};
