// SPDX-License-Identifier: Apache-2.0
//
// conv_igemm: convolution as a matrix product whose rows are the output pixels numbered through (gen/cpu_addr_igemm.c): the schedules and
// which of them is good.
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

struct model {
    struct igemm x;
    double taps;         /* transposed: of a phase, on average */
    i64 lanes, rows, outer; /* rows: output pixels that are numbered through; outer: images and phases outside */
    i64 blocks, ob, tiles, tb, iterations;
};

static void model_of(struct model *m, const struct caps *caps, const struct conv_sched *s, const i64 *var)
{
    const struct conv *c = &m->x.c;
    m->lanes = conv_lanes(c, caps);
    m->rows = 1, m->outer = i64_max(1, c->phases);
    m->taps = 1 / (double)m->outer;
    for (u32 a = 2; a < c->rank; a++) m->taps *= (double)(m->x.up ? m->x.trans.ax[a].k : c->k[a]);
    for (u32 i = 0; i < m->x.space.n; i++)
        *(i + 1 == m->x.space.n ? &m->rows : &m->outer) *= gen_eval(c->g, m->x.space.g[i].extent, var);
    m->blocks = ceil_div(c->oc, s->nr * m->lanes);
    m->ob = s->ob ? i64_min(s->ob, m->blocks) : m->blocks;
    m->tiles = ceil_div(i64_max(1, m->rows), s->tx);
    m->tb = s->tw ? i64_min(s->tw, m->tiles) : m->tiles;
    m->iterations = c->groups * ceil_div(m->blocks, m->ob) * m->outer * ceil_div(m->tiles, m->tb) * s->split_k;
}

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

static bool is_legal(const struct model *m, const struct caps *caps, const struct conv_sched *s)
{
    const struct conv *c = &m->x.c;
    if (s->nr > 1 && (s->nr - 1) * m->lanes >= c->oc) return false;
    if (m->blocks == 1 ? s->ob != 0 || s->order != 0 : s->ob >= m->blocks) return false;
    if (s->order == 1 && m->ob == 1) return false;
    if (s->nt && !gen_may_nt(c->g, caps, conv_run(c, s->nr * m->lanes))) return false;
    return s->tw <= 1 || s->tw <= m->tiles;
}

static bool analyze(const struct gen_problem *p)
{
    struct model *m = p->facts;
    return !p->c->is_gpu && p->c->vector_bytes >= 8 && igemm_of(&m->x, p->t);
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct conv_sched s = sched_of(v);
    struct model *m = p->facts;
    if (!is_sensible(&m->x, p->c, &s)) return false;
    model_of(m, p->c, &s, NULL);
    return is_legal(m, p->c, &s);
}

/* Cycles of a tile beside its multiply-adds: addresses that do not fit in registers, pads asked for and left out, lines of planes. */
static double other_cycles(const struct model *m, const struct conv_sched *s)
{
    const struct conv *c = &m->x.c;
    double rows = (double)s->tx, steps = m->taps * (double)c->ic, ku = (double)s->ku;
    double axes = (double)(c->rank - 2), taps = m->taps * (double)ceil_div(c->ic, igemm_channels(&m->x, s));
    bool copies = s->copy;
    double cycles = steps * ((rows > 10 && !copies ? (rows - 10) * 0.5 / ku : 0) + 0.5 / ku);
    if (copies) cycles += steps * (rows + 1) + taps * 20;
    if (!m->x.is_last) cycles += steps * 0.2 * rows;
    if (!copies && graph_value(c->g, c->x)->dtype != c->type) cycles += steps * rows; /* converted one by one */
    if (!m->x.is_inside) cycles += steps * (copies ? 0.5 : 1.5) * rows + taps * 2 * axes * rows;
    return cycles + taps * 12 + rows * axes * 6 + 60;
}

static double seconds(const struct model *m, const struct caps *caps, const struct conv_sched *s, const i64 *var)
{
    const struct conv *c = &m->x.c;
    double hz = gen_flop_rate(caps) / (4.0 * (double)i64_max(1, caps->vector_bytes / 4)), ks = (double)s->split_k;
    double steps = m->taps * (double)c->ic, tile = (steps * (tile_step_cycles(s->tx, s->nr) + (s->ahead ? 0.1 * (double)s->nr : 0)) + other_cycles(m, s)) / ks;
    double weights = steps * (double)(s->nr * m->lanes) * 4 / ks, kept = s->order == 1 ? weights * (double)m->ob : weights;
    tile += (double)(s->tx * s->nr) * (c->by_rows ? 3.0 * (double)m->lanes : 3);
    if (kept > (double)caps->l1_bytes / 2) tile += weights / (kept > (double)caps->l2_bytes * 0.7 ? 12 : 40);
    double iteration = tile * (double)(m->tb * m->ob) + 300;
    double rounds = (double)ceil_div(m->iterations, i64_max(1, caps->n_threads));
    double parts = (double)ceil_div(m->blocks, m->ob), y = gen_count(c->g, c->y, var);
    double bytes = 4 * (y + gen_count(c->g, c->x, var) * parts + gen_count(c->g, c->w, var) * (s->ahead ? 1 : 4));
    double rest = c->simple && s->split_k == 1 ? 0 : 2e-6 + 4 * (1 + 2 * ks) * y / gen_byte_rate(caps);
    return 2e-6 + iteration * rounds / hz + 0.3 * bytes / gen_byte_rate(caps) + rest;
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct conv_sched s = sched_of(v);
    model_of(p->facts, p->c, &s, p->var);
    double plain = seconds(p->facts, p->c, &s, p->var);
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
    .facts = sizeof(struct model),
    .analyze = analyze,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
