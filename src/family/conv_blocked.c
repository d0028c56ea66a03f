// SPDX-License-Identifier: Apache-2.0
//
// conv_blocked: direct convolution of an input whose channels lie in blocks (gen/cpu_addr_blocked.c): the schedules and which of them is good.
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

struct model {
    struct conv c;
    i64 lanes, x, y, outer, taps; /* output pixels along the tile's axes, and others; taps of a tile */
    i64 blocks, ob, tw, th, tiles_x; /* blocks of output channels, the rest as conv_sched */
    i64 iterations;
};

static void model_of(struct model *m, const struct caps *caps, const struct conv_sched *s, const i64 *var)
{
    const struct conv *c = &m->c;
    m->lanes = conv_lanes(c, caps);
    m->x = c->xa >= 0 ? gen_eval(c->g, c->out[c->xa], var) : 1;
    m->y = c->ya >= 0 ? gen_eval(c->g, c->out[c->ya], var) : 1;
    m->outer = m->taps = 1;
    for (u32 a = 0; a < c->rank; a++) {
        m->taps *= c->k[a];
        if (a != 1 && (i32)a != c->xa && (i32)a != c->ya) m->outer *= gen_eval(c->g, c->out[a], var);
    }
    if (conv_is_flat(c, s)) {
        struct space sp = conv_space(c);
        m->outer = m->x = m->y = 1;
        for (u32 i = 0; i < sp.n; i++)
            *(i + 1 == sp.n ? &m->x : &m->outer) *= gen_eval(c->g, sp.g[i].extent, var);
    }
    m->blocks = ceil_div(c->oc, s->nr * m->lanes);
    m->ob = s->ob ? i64_min(s->ob, m->blocks) : m->blocks;
    m->tiles_x = ceil_div(i64_max(1, m->x), s->tx);
    m->tw = s->tw ? i64_min(s->tw, m->tiles_x) : m->tiles_x;
    m->th = s->th ? i64_min(s->th, i64_max(1, m->y)) : i64_max(1, m->y);
    m->iterations = c->groups * ceil_div(m->blocks, m->ob) * m->outer * ceil_div(m->tiles_x, m->tw) *
                    ceil_div(i64_max(1, m->y), m->th);
}

static bool is_sensible(const struct conv *c, const struct caps *caps, const struct conv_sched *s)
{
    i64 kx = c->xa >= 0 ? c->k[c->xa] : 1, block = conv_in_block(c);
    if (!tile_is_legal(caps, s->tx, s->nr)) return false;
    if ((c->ya < 0 || conv_is_flat(c, s)) && s->th != 1) return false;
    if (c->xa < 0 && (s->tx > 1 || s->tw != 1)) return false;
    if (s->ku > block || (s->ku > 1 && s->ku > c->ic)) return false;
    return s->tx * s->nr * s->ku * (2 * kx + 1) <= MAX_CODE;
}

static bool is_legal(const struct model *m, const struct conv_sched *s)
{
    const struct conv *c = &m->c;
    if (s->nr > 1 && (s->nr - 1) * m->lanes >= c->oc) return false;
    if (m->blocks == 1 ? s->ob != 0 || s->order != 0 : s->ob >= m->blocks) return false;
    if (s->order == 1 && m->ob == 1) return false;
    return (s->th <= 1 || s->th <= m->y) && (s->tw <= 1 || s->tw <= m->tiles_x);
}

static bool analyze(const struct gen_problem *p)
{
    struct model *m = p->facts;
    return !p->c->is_gpu && p->c->vector_bytes >= 8 && blocked_of(&m->c, p->t);
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct conv_sched s = sched_of(v);
    struct model *m = p->facts;
    if (!is_sensible(&m->c, p->c, &s)) return false;
    model_of(m, p->c, &s, NULL);
    return is_legal(m, &s);
}

static double seconds(const struct model *m, const struct caps *caps, const struct conv_sched *s, const i64 *var)
{
    const struct conv *c = &m->c;
    double hz = gen_flop_rate(caps) / (4.0 * (double)i64_max(1, caps->vector_bytes / 4));
    double steps = (double)(m->taps * c->ic), rows = (double)(m->taps / (c->xa >= 0 ? c->k[c->xa] : 1)),
           tile = steps * (tile_step_cycles(s->tx, s->nr) + 0.5 / (double)s->ku);
    double weights = steps * (double)(s->nr * m->lanes) * 4, kept = s->order == 1 ? weights * (double)m->ob : weights;
    tile += s->ahead ? 0.3 * steps * (double)s->nr : 0;
    tile += 12.0 * rows * (double)ceil_div(c->ic, conv_in_block(c)); /* loops */
    tile += (double)(s->tx * s->nr) * (c->by_rows ? 3.0 * (double)m->lanes : 3) + 30;
    if (kept > (double)caps->l1_bytes / 2) tile += weights / (kept > (double)caps->l2_bytes * 0.7 ? 8 : 40);
    double iteration = tile * (double)(m->tw * m->th * m->ob) + 300;
    double rounds = (double)ceil_div(m->iterations, i64_max(1, caps->n_threads));
    double parts = (double)ceil_div(m->blocks, m->ob), y = gen_count(c->g, c->y, var);
    double bytes = 4 * (y + gen_count(c->g, c->x, var) * parts + gen_count(c->g, c->w, var) * (s->ahead ? 1 : 4));
    double epilogue = c->simple ? 0 : 12 * y / gen_byte_rate(caps);
    return 2e-6 + iteration * rounds / hz + 0.3 * bytes / gen_byte_rate(caps) + epilogue;
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct conv_sched s = sched_of(v);
    model_of(p->facts, p->c, &s, p->var);
    return seconds(p->facts, p->c, &s, p->var);
}

/* One step at a time, or four. */
static double cost_of(const void *problem, const struct sched *s) { return s->v[P_ku] != 1 && s->v[P_ku] != 4 ? 0 : gen_cost(problem, s); }

static void initial(const struct gen_problem *p, struct sched *out)
{
    bool any = gen_best(&(struct gen_search){param, 0, N_PARAM, cost_of, p}, out);
    assert(any), (void)any;
}

const struct gen gen_conv_blocked = {
    .version = 1,
    .name = "conv_blocked",
    .revision = 3,
    .param = param,
    .n_param = N_PARAM,
    .facts = sizeof(struct model),
    .analyze = analyze,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
