// SPDX-License-Identifier: Apache-2.0
//
// conv_igemm: convolution as a matrix product whose rows are the output pixels numbered through (gen/cpu_addr_igemm.c): the schedules and
// which of them is good.
#include "gen/conv_cost.h"
#include "gen/cpu.h"

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
    struct nest_rates rates;
};

static bool is_sensible(const struct igemm *x, const struct caps *caps, const struct conv_sched *s)
{
    const struct conv *c = &x->c;
    i64 channels = igemm_channels(x, s), ks = s->split_k;
    if (!tile_is_legal(caps, s->tx, s->nr) || s->tx > IGEMM_ROWS) return false;
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
    conv_tiles_open(&f->real, &f->x.c, p->c, true, p->var);
    f->rates = nest_rates_of(p->c);
    return true;
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct conv_sched s = sched_of(v);
    struct facts *f = p->facts;
    if (!is_sensible(&f->x, p->c, &s)) return false;
    conv_tiles_set(&f->known, &s);
    return conv_tiles_fit(&f->known, p->c, &s);
}

/* Cycles of a tile beside its multiply-adds: addresses that do not fit in registers, pads asked for and left out, lines of planes. */
static double other_cycles(const struct igemm *x, double steps, const struct conv_sched *s)
{
    const struct conv *c = &x->c;
    double rows = (double)s->tx, ku = (double)s->ku;
    double axes = (double)(c->rank - 2), taps = steps / (double)igemm_channels(x, s);
    bool copies = s->copy;
    double cycles = steps * ((rows > 10 && !copies ? (rows - 10) * 0.5 / ku : 0) + 0.5 / ku);
    if (copies) cycles += steps * (rows + 1) + taps * 20;
    if (!x->is_last) cycles += steps * 0.2 * rows;
    if (!copies && graph_value(c->g, c->x)->dtype != c->type) cycles += steps * rows; /* converted one by one */
    if (!x->is_inside) cycles += steps * (copies ? 0.5 : 1.5) * rows + taps * 2 * axes * rows;
    return cycles + taps * 12 + rows * axes * 6 + 60;
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    struct facts *f = p->facts;
    const struct conv_sched s = sched_of(v);
    double steps = f->real.steps / (double)i64_max(1, f->x.c.phases);
    conv_tiles_set(&f->real, &s);
    double plain = conv_tiles_seconds(&f->real, &f->rates, p->c, &s, (struct conv_others){other_cycles(&f->x, steps, &s) / (double)s.split_k, 300});
    return s.nt ? gen_nt_seconds(&p->t->g, p->c, p->var, plain) : plain;
}

/* The best tile alone, then all else from there. */
static void initial(const struct gen_problem *p, struct sched *out)
{
    double best = 0;
    for (u32 x = 0; x < param[P_tx].n; x++)
        for (u32 n = 0; n < param[P_nr].n; n++)
            for (u32 b = 0; b < param[P_tb].n; b++)
                for (u32 o = 0; o < param[P_ob].n; o++) {
                    const struct sched s = {.v = {[P_tx] = param[P_tx].values[x], [P_nr] = param[P_nr].values[n], [P_tb] = param[P_tb].values[b],
                                                  [P_ob] = param[P_ob].values[o], [P_split_k] = 1, [P_ku] = 1}};
                    gen_try(p, &s, &best, out);
                }
    assert(best > 0);
    gen_descend(&(struct gen_search){param, 0, P_nt, gen_cost, p}, out);
    gen_set_nt(p, P_nt, out);
}

const struct gen gen_conv_igemm = {
    .version = 1,
    .name = "conv_igemm",
    .revision = 5,
    .param = param,
    .n_param = N_PARAM,
    .facts = sizeof(struct facts),
    .analyze = analyze,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
