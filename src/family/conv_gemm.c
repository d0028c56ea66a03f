// SPDX-License-Identifier: Apache-2.0
//
// conv_gemm: convolution of any rank, groups, strides and dilations as an implicit GEMM
// (gen/cpu_addr_band.c): which schedules there are, which make sense for a task, and what is theirs of the time
// (gen/conv_cost.c): loops over taps, filling the band.
#include "gen/conv_cost.h"
#include "gen/cpu.h"

#include <math.h>

// clang-format off
#define PARAMS(P)                                                                                                        \
    P(ty, "rows of the register tile", 1, 2, 4, 7)                                                                       \
    P(tx, "pixels of a row of the register tile", 1, 2, 4, 6, 7, 8, 10, 12, 14, 28)                                      \
    P(nr, "vectors of output channels of the register tile", 1, 2, 3, 4, 6)                                              \
    P(th, "tiles per band in y, 0 = all", 0, 1, 2, 3, 4, 7, 8, 14, 16, 28)                                               \
    P(tw, "tiles per band in x, 0 = all", 0, 1, 2, 4, 8, 16)                                                             \
    P(ob, "blocks of output channels per grid iteration, 0 = all", 0, 1, 2, 4, 8)                                        \
    P(stage, "input: 0 in place, 1 copied as pixels, 2 copied as planes", STAGE_DIRECT, STAGE_PIXELS, STAGE_PLANES) \
    P(order, "0: weights stay, pixels change fastest; 1: pixels stay", 0, 1)                                             \
    P(ku, "input channels per step of the inner loop", 1, 2, 4)                                                          \
    P(ahead, "steps that weights are prefetched ahead, 0 = not", 0, 16, 64)                                              \
    P(nt, "outputs: 1 stored past the caches", 0, 1)
// clang-format on
GEN_PARAMS(PARAMS)

GEN_PARAM_READER(struct conv_sched, sched_of, PARAMS)

/* Of one input channel neighbouring taps of a row are written out together and share pixels: compilers keep each in a register
 * until its last use, and spill accumulators where there are not enough; cycles per step. */
static double shared_cycles(const struct conv *c, const struct caps *caps, const struct conv_sched *s)
{
    if (c->ic > 1 || c->groups > 1 || c->xa < 0 || c->k[c->xa] == 1 || s->stage == STAGE_PLANES) return 0;
    i64 used = s->ty * s->tx * s->nr + s->tx + 2 * c->k[c->xa] - 1, over = used - caps->n_vector_regs - 1;
    return 1.2 * (double)i64_max(0, i64_min(over, 8));
}

/* For sizes that legality is about, and those that time is; [1]: pixels are numbered through, if any schedule may. */
struct facts {
    struct conv c;
    struct conv_tiles known[2], real[2];
    double along_rows; /* operations of the prologue on an element, of vectors along a row */
};

static bool band_fits(const struct conv_tiles *t, const struct caps *caps, const struct conv_sched *s)
{
    return conv_tiles_band(t, s) * t->size <= 4 * (double)caps->l2_bytes + 1e6;
}

static bool analyze(const struct gen_problem *p)
{
    struct facts *f = p->facts;
    const struct conv *c = &f->c;
    if (p->c->is_gpu || p->c->vector_bytes < 8 || !conv_of_any(&f->c, p->t)) return false;
    for (u32 i = 0; i < (c->point && c->simple ? 2 : 1); i++) {
        conv_tiles_open(&f->known[i], c, p->c, i, NULL);
        f->known[i].lanes = conv_column_lanes(c, p->c);
        conv_tiles_open(&f->real[i], c, p->c, i, p->var);
        f->real[i].lanes = conv_column_lanes(c, p->c);
        conv_tiles_multiply_by(&f->known[i], conv_product_of_rows(c, p->c));
        conv_tiles_multiply_by(&f->real[i], conv_product_of_rows(c, p->c));
    }
    if (c->xa >= 2 && !c->plain) f->along_rows = front_along(c->g, c->x, (u32)c->xa);
    return true;
}

/* Far taps of a dilated window may be more than any cache holds, even for one pixel. */
static bool match(const struct gen_problem *p)
{
    static const struct conv_sched one = {.ty = 1, .tx = 1, .nr = 1, .ku = 1, .th = 1, .tw = 1, .stage = STAGE_PIXELS};
    struct facts *f = p->facts;
    conv_tiles_set(&f->known[0], &one);
    return (f->c.plain && f->c.no_pad) || band_fits(&f->known[0], p->c, &one);
}

/* What depends on the schedule and few facts only. */
static bool is_sensible(const struct conv *c, const struct caps *caps, const struct conv_sched *s)
{
    const struct tile_product p = conv_product_of_rows(c, caps);
    if (!tile_is_legal_by(caps, p, s->ty * s->tx, s->nr) || (tile_is_matrix(p) && s->ahead)) return false;
    bool flat = conv_is_flat(c, s);
    if ((c->ya < 0 || flat) && (s->ty > 1 || s->th != 1)) return false;
    if (c->xa < 0 && (s->tx > 1 || s->tw != 1)) return false;
    if (s->stage == STAGE_DIRECT && !(c->plain && c->no_pad)) return false;
    if (s->stage == STAGE_PLANES && (c->xa < 2 || p.terms > 1)) return false;
    if (s->stage == STAGE_DIRECT && c->ic % p.terms) return false;
    return s->ku == 1 || c->ic >= 8;
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    struct facts *f = p->facts;
    const struct conv_sched s = sched_of(v);
    if (!is_sensible(&f->c, p->c, &s)) return false;
    struct conv_tiles *t = &f->known[conv_is_flat(&f->c, &s)];
    conv_tiles_set(t, &s);
    return conv_tiles_fit(t, p->c, &s) && (s.stage == STAGE_DIRECT || band_fits(t, p->c, &s));
}

/* Loops over taps; where planes have few channels, compilers unroll loops over them, too, and spill accumulators. */
static double loop_cycles(const struct facts *f, const struct caps *caps, const struct conv_tiles *t, const struct conv_sched *s)
{
    const struct conv *c = &f->c;
    double kx = c->xa >= 0 ? (double)c->k[c->xa] : 1, channels = (double)ceil_div(c->ic, conv_product_of_rows(c, caps).terms);
    double cycles = t->steps * 0.5 / (double)s->ku + 12 * t->steps / channels / kx;
    if (s->stage == STAGE_PLANES) cycles += (c->ic <= 8 ? 50 : 10) * t->steps / kx;
    return cycles;
}

/* To copy an element to the band. */
static double copy_cycles(const struct facts *f, const struct conv_tiles *t, const struct conv_sched *s)
{
    bool is_last = conv_input_layout(&f->c) == LAYOUT_CLAST;
    if (s->stage == STAGE_DIRECT) return 0;
    if (f->c.ic < t->lanes && s->stage == STAGE_PIXELS && !f->c.plain) return 1.5; /* one by one */
    if (s->stage == STAGE_PLANES) return is_last ? 2 : 0.4;
    return !is_last ? 2 : f->c.plain ? 0.2 : 0.5;
}

/* To evaluate an element of the prologue. Planes are copied along rows, even if channels are neighbours in memory. */
static double front_cycles(const struct gen_problem *p, const struct conv_tiles *t, const struct conv_sched *s)
{
    const struct facts *f = p->facts;
    double each = s->stage == STAGE_PLANES ? f->along_rows : gen_problem_front(p, 0) / (double)t->lanes;
    return each * p->nest->work / 2 / p->nest->cycle;
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    struct facts *f = p->facts;
    const struct conv_sched s = sched_of(v);
    struct conv_tiles *t = &f->real[conv_is_flat(&f->c, &s)], *known = &f->known[conv_is_flat(&f->c, &s)];
    conv_tiles_set(t, &s), conv_tiles_set(known, &s);
    t->widens = conv_tiles_widen(known, p->c, &s);
    double front = front_cycles(p, t, &s), band = conv_tiles_band(t, &s);
    const struct conv_others others = {t->steps * shared_cycles(&f->c, p->c, &s), loop_cycles(f, p->c, t, &s) + conv_tiles_spread(t, &s), 300 + (copy_cycles(f, t, &s) + front) * band};
    double plain = conv_tiles_seconds(t, p->nest, p->c, &s, others);
    return s.nt ? gen_nt_seconds(p, plain) : plain;
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps,
                 const struct sched *v)
{
    struct conv_sched s = sched_of(v);
    gen_conv_emit(m, t, caps, &s);
}

const struct gen gen_conv_gemm = {
    GEN_FAMILY("conv_gemm", 13), .facts = sizeof(struct facts), .analyze = analyze, .match = match,
    .legal = legal, .emit = emit, .predict = predict,
};
