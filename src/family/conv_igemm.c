// SPDX-License-Identifier: Apache-2.0
//
// conv_igemm: convolution as a GEMM whose rows are the output pixels numbered through (gen/cpu_addr_igemm.c): the schedules and
// which of them is good.
#include "gen/conv_cost.h"
#include "gen/cpu.h"

#include <math.h>

// clang-format off
#define PARAMS(P)                                                                              \
    P(tx, "output pixels of the register tile", 1, 2, 4, 6, 7, 8, 10, 12, 14, 16, 28)          \
    P(nr, "vectors of output channels of the register tile", 1, 2, 3, 4, 6)                    \
    P(tb, "tiles of pixels per grid iteration, 0 = all", 0, 1, 2, 4, 8, 32)                    \
    P(ob, "blocks of output channels per grid iteration, 0 = all", 0, 1, 2, 4, 8)              \
    P(bk, "input channels that are gone through inside of the taps, 0 = all", 0, 1, 4, 16, 64) \
    P(split_k, "grid iterations that share the terms of a result", 1, 2, 4, 8)                 \
    P(copy, "input: 1 elements of a tap are copied to scratch first", 0, 1)                    \
    P(order, "0: weights stay, pixels change fastest; 1: pixels stay", 0, 1)                   \
    P(ku, "input channels per step of the inner loop", 1, 2, 4)                                \
    P(ahead, "steps that weights are prefetched ahead, 0 = not", 0, 16, 64)                    \
    P(nt, "outputs: 1 stored past the caches", 0, 1)
// clang-format on
GEN_PARAMS(PARAMS)

GEN_PARAM_READER(struct conv_sched, read_sched, PARAMS)

static struct conv_sched sched_of(const struct sched *v)
{
    struct conv_sched s = read_sched(v);
    s.ty = 1, s.th = 1, s.tw = s.tb, s.stage = STAGE_DIRECT, s.merged = true;
    return s;
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *v)
{
    struct conv_sched s = sched_of(v);
    igemm_emit(m, t, caps, &s);
}

struct facts {
    struct igemm x;
    struct conv_tiles known, real; /* for sizes that legality is about, and those that time is */
};

static bool is_sensible(const struct igemm *x, const struct caps *caps, const struct conv_sched *s)
{
    const struct conv *c = &x->c;
    i64 channels = igemm_channels(x, s), ks = s->split_k;
    const struct tile_product p = igemm_product(x, caps, s);
    if (!tile_is_legal_by(caps, p, s->tx, s->nr) || s->tx > IGEMM_ROWS || (tile_is_matrix(p) && s->ahead)) return false;
    if (!x->space.n && (s->tx > 1 || s->tb != 1)) return false;
    if (s->bk && c->ic > 1 && (channels >= c->ic || c->ic % channels)) return false;
    if (channels > c->ic || (s->copy && 4 * channels * s->tx > caps->l2_bytes)) return false;
    if (s->ku > 1 && channels < 8) return false;
    if (caps->deterministic && (ks > 1 || s->bk)) return false;
    return ks == 1 || (ks <= igemm_slices(x, s) && !s->nt);
}

static bool analyze(const struct gen_problem *p)
{
    struct facts *f = p->facts;
    if (p->c->is_gpu || p->c->vector_bytes < 8 || !igemm_of(&f->x, p->t)) return false;
    conv_tiles_open(&f->known, &f->x.c, p->c, true, NULL);
    f->known.lanes = conv_column_lanes(&f->x.c, p->c);
    conv_tiles_open(&f->real, &f->x.c, p->c, true, p->var);
    f->real.lanes = conv_column_lanes(&f->x.c, p->c);
    return true;
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct conv_sched s = sched_of(v);
    struct facts *f = p->facts;
    if (!is_sensible(&f->x, p->c, &s)) return false;
    conv_tiles_multiply_by(&f->known, igemm_product(&f->x, p->c, &s));
    conv_tiles_set(&f->known, &s);
    return conv_tiles_fit(&f->known, p->c, &s);
}

/* Elements that are copied, or converted one by one, lines of planes, and pads left out, beside the multiply-adds. Aside: addresses, which may not
   fit in registers, and where a row's window and its taps lie. */
static struct conv_others other_cycles(const struct igemm *x, struct tile_product p, double steps, const struct conv_sched *s)
{
    const struct conv *c = &x->c;
    double rows = (double)s->tx, ku = (double)s->ku, axes = (double)(c->rank - 2), taps = steps * (double)p.terms / (double)igemm_channels(x, s);
    bool converts = !s->copy && p.terms == 1 && graph_value(c->g, c->x)->dtype != c->type;
    struct conv_others o = {.iteration = 300};
    if (s->copy) o.tile += steps * (rows + 1) + taps * 20;
    if (converts) o.tile += steps * rows;
    if (!x->is_last) o.tile += steps * 0.2 * rows;
    if (!x->is_inside) o.tile += steps * (s->copy ? 0.5 : 0.1) * rows; /* most tiles are inside at most taps */
    if (!s->copy) o.tile += steps * 0.02 * rows; /* each row has an address of its own */
    o.aside = steps * ((rows > 10 && !s->copy ? (rows - 10) * 0.5 / ku : 0) + 0.5 / ku) + taps * 12 + rows * axes * 3 + 20;
    if (!x->is_inside) o.aside += taps * 2 * axes * rows;
    if (!s->copy && rows > 10 && ceil_div(igemm_channels(x, s), p.terms) % s->ku) o.aside += taps * (rows - 10) * 16; /* addresses for the steps that are left are loaded anew */
    o.tile /= (double)s->split_k, o.aside /= (double)s->split_k;
    return o;
}

/* Outputs of an axis from *first on that meet the input at tap k; their number. */
static i64 count_inside(const struct conv *c, u32 a, i64 k, const i64 *var, i64 *first)
{
    i64 in = gen_eval(c->g, c->in[a], var), out = gen_eval(c->g, c->out[a], var), at = k * c->dil[a] - gen_eval(c->g, c->pad[a], var);
    *first = at < 0 ? ceil_div(-at, c->stride[a]) : 0;
    return i64_max(0, i64_min(out, ceil_div(in - at, c->stride[a])) - *first);
}

/* Share of an axis's taps that meet the input, over all outputs. */
static double share_inside(const struct conv *c, u32 a, const i64 *var)
{
    i64 out = gen_eval(c->g, c->out[a], var), n = 0, first;
    for (i64 k = 0; k < c->k[a]; k++) n += count_inside(c, a, k, var, &first);
    return out > 0 ? (double)n / (double)(out * c->k[a]) : 1;
}

/* Share of the last axis's taps at which some of the tx neighbours of a tile meet the input. Tiles begin anywhere in a row, unless they divide it. */
static double share_of_tiles(const struct conv *c, u32 a, i64 tx, const i64 *var)
{
    i64 out = gen_eval(c->g, c->out[a], var), first;
    double sum = 0;
    if (out <= 0) return 1;
    for (i64 k = 0; k < c->k[a]; k++) {
        i64 n = count_inside(c, a, k, var, &first);
        if (n) sum += out % tx ? fmin(1, (double)(n + tx - 1) / (double)out) : (double)((first + n - 1) / tx - first / tx + 1) / (double)(out / tx);
    }
    return sum / (double)c->k[a];
}

/* Share of the taps that tiles go through: those that meet no input are skipped, of other axes than the last where a tile is in one row. */
static double present_taps(const struct igemm *x, i64 tx, const i64 *var)
{
    const struct conv *c = &x->c;
    double width = (double)i64_max(1, gen_eval(c->g, c->out[c->rank - 1], var)), share = c->present;
    double alone = fmod(width, (double)tx) == 0 ? 1 : fmax(0, 1 - (double)(tx - 1) / width); /* tiles within a row */
    if (x->up || x->is_inside || c->fill) return share;
    for (u32 a = 2; a + 1 < c->rank; a++) share *= 1 - (1 - share_inside(c, a, var)) * alone;
    return share * share_of_tiles(c, c->rank - 1, tx, var);
}

/* Shares of the terms are whole slices: how much longer the longest one is than their mean, relative to that. */
static double uneven_shares(const struct igemm *x, const struct conv_sched *s)
{
    i64 slices = igemm_slices(x, s), shares = i64_max(1, s->split_k);
    return (double)(ceil_div(slices, shares) * shares) / (double)slices - 1;
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    struct facts *f = p->facts;
    const struct conv_sched s = sched_of(v);
    const struct tile_product product = igemm_product(&f->x, p->c, &s);
    conv_tiles_multiply_by(&f->real, product);
    f->real.present = present_taps(&f->x, s.tx, p->var), f->real.uneven = uneven_shares(&f->x, &s);
    double steps = f->real.steps * f->real.present;
    conv_tiles_multiply_by(&f->known, product);
    conv_tiles_set(&f->known, &s), conv_tiles_set(&f->real, &s);
    f->real.widens = conv_tiles_widen(&f->known, p->c, &s);
    struct conv_others others = other_cycles(&f->x, product, steps, &s);
    if (f->x.up && f->x.c.by_rows) {
        enum { ALONE = 16 /* cycles to find and store an output */ };
        double outputs = (double)s.tx * fmin((double)(s.nr * f->real.lanes), (double)f->x.c.oc);
        others.tile += outputs * (ALONE + gen_problem_back(p) * p->nest->work / 2 / p->nest->cycle);
    }
    double plain = conv_tiles_seconds(&f->real, p->nest, p->c, &s, others);
    return s.nt ? gen_nt_seconds(p, plain) : plain;
}

const struct gen gen_conv_igemm = {
    GEN_FAMILY("conv_igemm", 7), .facts = sizeof(struct facts), .analyze = analyze, .legal = legal,
    .emit = emit, .predict = predict,
};
