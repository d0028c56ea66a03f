// SPDX-License-Identifier: Apache-2.0
//
// conv_blocked: direct convolution of an input whose channels lie in blocks (gen/cpu_addr_blocked.c): the schedules and which of them is good.
#include "gen/conv_cost.h"
#include "gen/cpu.h"

enum { MAX_CODE = 3000 /* multiply-adds that are written out */ };

// clang-format off
#define PARAMS(P)                                                                 \
    P(tx, "pixels of the register tile", 1, 2, 4, 6, 7, 8, 10, 12, 14, 28)        \
    P(nr, "vectors of output channels of the register tile", 1, 2, 3, 4, 6)       \
    P(th, "rows per grid iteration, 0 = all", 0, 1, 2, 4, 7, 8, 14, 28)           \
    P(tw, "tiles per grid iteration in x, 0 = all", 0, 1, 2, 4, 8, 16)            \
    P(ob, "blocks of output channels per grid iteration, 0 = all", 0, 1, 2, 4, 8) \
    P(order, "0: weights stay, pixels change fastest; 1: pixels stay", 0, 1)      \
    P(ku, "input channels per step of the inner loop", 1, 2, 4, 8, 16)            \
    P(ahead, "steps that weights are prefetched ahead, 0 = not", 0, 16, 64)
// clang-format on
GEN_PARAMS(PARAMS)

GEN_PARAM_READER(struct conv_sched, read_sched, PARAMS)

static struct conv_sched sched_of(const struct sched *v)
{
    struct conv_sched s = read_sched(v);
    s.ty = 1, s.stage = STAGE_DIRECT;
    return s;
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *v)
{
    struct conv_sched s = sched_of(v);
    blocked_emit(m, t, caps, &s);
}

/* The tiles for sizes that legality is about, and those that time is. */
struct facts {
    struct conv c;
    struct conv_tiles known, real;
};

static bool is_sensible(const struct conv *c, const struct caps *caps, const struct conv_sched *s)
{
    i64 kx = c->xa >= 0 ? c->k[c->xa] : 1, block = conv_in_block(c);
    if (!tile_is_legal(caps, s->tx, s->nr)) return false;
    if ((c->ya < 0 || conv_is_flat(c, s)) && s->th != 1) return false;
    if (c->xa < 0 && (s->tx > 1 || s->tw != 1)) return false;
    if (s->ku > block || (s->ku > 1 && s->ku > c->ic)) return false;
    return s->tx * s->nr * s->ku * (2 * kx + 1) <= MAX_CODE;
}

static bool analyze(const struct gen_problem *p)
{
    struct facts *f = p->facts;
    const struct conv_sched direct = {.stage = STAGE_DIRECT};
    if (p->c->is_gpu || p->c->vector_bytes < 8 || !blocked_of(&f->c, p->t)) return false;
    bool is_flat = conv_is_flat(&f->c, &direct);
    conv_tiles_open(&f->known, &f->c, p->c, is_flat, NULL);
    conv_tiles_open(&f->real, &f->c, p->c, is_flat, p->var);
    conv_tiles_multiply_by(&f->known, blocked_product(&f->c, p->c));
    conv_tiles_multiply_by(&f->real, blocked_product(&f->c, p->c));
    return true;
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct conv_sched s = sched_of(v);
    struct facts *f = p->facts;
    if (!is_sensible(&f->c, p->c, &s)) return false;
    conv_tiles_set(&f->known, &s);
    return conv_tiles_fit(&f->known, p->c, &s);
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    struct facts *f = p->facts;
    const struct conv_sched s = sched_of(v);
    const struct conv *c = &f->c;
    double runs = f->real.steps / (double)(ceil_div(c->ic, blocked_product(c, p->c).terms) * (c->xa >= 0 ? c->k[c->xa] : 1)) * (double)ceil_div(c->ic, conv_in_block(c));
    conv_tiles_set(&f->known, &s), conv_tiles_set(&f->real, &s);
    f->real.widens = conv_tiles_widen(&f->known, p->c, &s);
    const struct conv_others others = {0, 0.5 * f->real.steps / (double)s.ku + 12 * runs + 30 + conv_tiles_spread(&f->real, &s), 300};
    return conv_tiles_seconds(&f->real, p->nest, p->c, &s, others);
}

const struct gen gen_conv_blocked = {
    GEN_FAMILY("conv_blocked", 5), .facts = sizeof(struct facts), .analyze = analyze,
    .legal = legal, .emit = emit, .predict = predict,
};
