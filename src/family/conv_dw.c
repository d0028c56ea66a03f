// SPDX-License-Identifier: Apache-2.0
//
// conv_dw: depthwise convolution (one input and one output channel per group), channels vectorised.
// A grid iteration takes a block of nr vectors of channels and a band of rows, copied to scratch
// with its zeros (gen/band.c), and runs register tiles of ty x tx pixels over it (gen/dw.c). Or the
// input is read where it lies with channels last, by some or all blocks of channels: nothing is
// copied, and with all blocks a pixel's channels are read in one piece, so that large images
// stream.
#include "gen/conv.h"

// clang-format off
#define PARAMS(P)                                                                      \
    P(ty, "rows of the register tile", 1, 2, 3, 4)                                     \
    P(tx, "pixels of a row of the register tile", 1, 2, 4, 6, 7, 8, 14)                \
    P(nr, "vectors of channels of the register tile", 1, 2, 3, 4)                      \
    P(th, "tiles per band in y, 0 = all", 0, 1, 2, 4, 7, 8, 16, 28)                    \
    P(tw, "tiles per band in x, 0 = all", 0, 1, 2, 4, 8, 16)                           \
    P(stage, "input: 0 where it lies, 1 copied as pixels", STAGE_DIRECT, STAGE_PIXELS) \
    P(ob, "where it lies: blocks of channels per grid iteration, 0 = all", 0, 1, 2, 4)
// clang-format on
GEN_PARAMS(PARAMS)

GEN_PARAM_READER(struct conv_sched, read_sched, PARAMS)

static struct conv_sched sched_of(const struct sched *v)
{
    struct conv_sched s = read_sched(v);
    s.ku = 1;
    return s;
}

static void walk_in_place(struct band *b)
{
    struct kir *k = b->m->k;
    i64 ob = b->s.ob ? b->s.ob : b->c.groups;
    conv_in_place(b);
    kval from = kir_mul_i(k, band_open(b, ceil_div(b->c.groups, ob)), ob);
    dw_walk_in_place(b, from, kir_min(k, kir_add_i(k, from, ob), kir_int(k, b->c.groups)));
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps,
                 const struct sched *v)
{
    struct band *b = arena_new(m->arena, struct band);
    struct conv_sched s = sched_of(v);
    struct conv c;
    conv_of_any(&c, t);
    band_init(b, m, &c, caps, &s);
    dw_init(b);
    emit_args(m);
    if (s.stage == STAGE_DIRECT) {
        walk_in_place(b);
    } else {
        band_layout(b);
        dw_enter(b, band_open(b, b->c.groups));
        band_fill(b);
        dw_walk(b);
    }
    for (u32 i = 0; i < 3; i++) kir_end(m->k);
}

/* Choice. */

struct model {
    struct conv c;
    i64 x, y, outer, taps;
};

struct facts {
    struct model least, real; /* sizes that legality is about, and those that time is */
};

static void model_of(struct model *m, const struct conv *c, const i64 *var)
{
    m->c = *c, c = &m->c;
    m->x = c->xa >= 0 ? gen_eval(c->g, c->out[c->xa], var) : 1;
    m->y = c->ya >= 0 ? gen_eval(c->g, c->out[c->ya], var) : 1;
    m->outer = m->taps = 1;
    for (u32 a = 0; a < c->rank; a++) {
        m->taps *= c->k[a];
        if (a != 1 && (i32)a != c->xa && (i32)a != c->ya)
            m->outer *= gen_eval(c->g, c->out[a], var);
    }
}

/* Taps on other axes than the tile's would need tests of their own. */
static bool fits_in_place(const struct model *m, const struct conv_sched *s, i64 lanes)
{
    const struct conv *c = &m->c;
    for (u32 a = 2; a < c->rank; a++)
        if ((i32)a != c->xa && (i32)a != c->ya && (c->k[a] > 1 || !c->free[a])) return false;
    if (c->fill && !c->no_pad) return false;
    return c->plain && !c->point && s->tw == 0 && s->ob < ceil_div(c->groups, s->nr * lanes) &&
           m->taps * s->ty * s->tx * s->nr <= 400;
}

static bool is_legal(const struct model *m, const struct caps *caps, const struct conv_sched *s)
{
    const struct conv *c = &m->c;
    i64 lanes = conv_lanes(c, caps);
    if (s->ty * s->tx * s->nr + s->nr + 2 > caps->n_vector_regs ||
        m->taps * s->ty * s->tx * s->nr > 1500)
        return false;
    if ((c->ya < 0 && (s->ty > 1 || s->th != 1)) || (c->xa < 0 && (s->tx > 1 || s->tw != 1)))
        return false;
    if (s->nr > 1 && (s->nr - 1) * lanes >= c->groups) return false;
    if (s->stage == STAGE_DIRECT ? !fits_in_place(m, s, lanes) : s->ob != 0) return false;
    i64 tx = ceil_div(m->x, s->tx), ty = ceil_div(m->y, s->ty);
    if ((s->th > 1 && s->th > ty) || (s->tw > 1 && s->tw > tx)) return false;
    if (s->stage == STAGE_DIRECT) return true;
    double w = (double)((s->tw ? s->tw : tx) * s->tx), h = (double)((s->th ? s->th : ty) * s->ty);
    for (u32 a = 2; a < c->rank; a++) { /* rough: halo as large as the kernel */
        if ((i32)a == c->xa) w = w * (double)c->stride[a] + (double)(c->k[a] * c->dil[a]);
        else h = h * (double)c->stride[a] + (double)(c->k[a] * c->dil[a]);
    }
    return w * h * (double)(s->nr * lanes) * 4 <= 4 * (double)caps->l2_bytes + 1e6;
}

static bool analyze(const struct gen_problem *p)
{
    struct facts *f = p->facts;
    struct conv c;
    if (p->c->is_gpu || p->c->vector_bytes < 8 || !conv_of_any(&c, p->t)) return false;
    if (c.groups < 2 || c.ic != 1 || c.oc != 1 || !c.simple) return false;
    model_of(&f->least, &c, NULL);
    model_of(&f->real, &c, p->var);
    return true;
}

/* Some schedule must do: windows of very many or very far taps are for other families. */
static bool match(const struct gen_problem *p)
{
    const struct facts *f = p->facts;
    return is_legal(&f->least, p->c, &(struct conv_sched){.ty = 1, .tx = 1, .nr = 1, .th = 1, .tw = 1, .stage = STAGE_PIXELS});
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct facts *f = p->facts;
    const struct conv_sched s = sched_of(v);
    return is_legal(&f->least, p->c, &s);
}

/* Loads of a tile, where the input lies: every element of its footprint once, every weight once.
 * They come from the second cache where the rows of a band with all their channels fill the first;
 * one block of channels after the other lets the input stream by in small pieces. */
static double loads_in_place(const struct model *m, const struct caps *caps,
                             const struct conv_sched *s, double foot, i64 rows, const i64 *var)
{
    const struct conv *c = &m->c;
    double row = (double)m->x * (double)(c->xa >= 0 ? c->stride[c->xa] : 1) * 4,
           all = 4 * gen_count(c->g, c->x, var);
    double l1 = (double)caps->l1_bytes,
           channels = s->ob ? (double)(s->ob * s->nr * conv_lanes(c, caps)) : (double)c->groups;
    double loads = foot + (double)(m->taps * s->nr);
    if (row * channels * (double)rows > l1 / 2) loads += 0.15 * foot;
    if (s->ob && all > (double)caps->l2_bytes / 2) loads += 0.2 * foot;
    return 0.6 * loads;
}

static double seconds(const struct model *m, const struct caps *caps, const struct conv_sched *s,
                      const i64 *var)
{
    const struct conv *c = &m->c;
    double lanes = gen_lanes(caps, DT_F32), hz = gen_flop_rate(caps) / (4 * lanes),
           width = lanes * (double)s->nr;
    i64 tx = ceil_div(i64_max(1, m->x), s->tx), ty = ceil_div(i64_max(1, m->y), s->ty),
        blocks = ceil_div(c->groups, (i64)width);
    i64 tw = s->tw ? i64_min(s->tw, tx) : tx, th = s->th ? i64_min(s->th, ty) : ty;
    i64 sx = c->xa >= 0 ? c->stride[c->xa] : 1, sy = c->ya >= 0 ? c->stride[c->ya] : 1;
    i64 kx = c->xa >= 0 ? c->k[c->xa] * c->dil[c->xa] : 1,
        ky = c->ya >= 0 ? c->k[c->ya] * c->dil[c->ya] : 1;
    i64 rows = (s->ty - 1) * sy + ky;
    double foot = (double)(((s->tx - 1) * sx + kx) * rows * s->nr),
           acc = (double)(s->tx * s->ty * s->nr);
    bool in_place = s->stage == STAGE_DIRECT;
    double fma = (double)m->taps * acc / 2, load = (foot + (double)m->taps * acc * 0.7) / 2;
    if (in_place) load = loads_in_place(m, caps, s, foot, rows, var);
    double tile = (fma > load ? fma : load) + (in_place ? 1.5 : 4) * acc + 20, band = 0;
    if (!in_place) {
        band = (double)((tw * s->tx - 1) * sx + kx) * (double)((th * s->ty - 1) * sy + ky) *
               (double)s->nr * 2.5;
        if (band * 4 * lanes > (double)caps->l2_bytes / 2) band *= 2;
    } else { /* the last block is as small as it can be */
        i64 ob = s->ob ? s->ob : blocks;
        double vectors = (double)ceil_div(c->groups, (i64)lanes) / (double)s->nr;
        tile *= s->ob ? (double)ob : vectors;
        blocks = ceil_div(blocks, ob);
    }
    double n = (double)(blocks * m->outer * ceil_div(tx, tw) * ceil_div(ty, th));
    double rounds = (double)ceil_div((i64)n, i64_max(1, caps->n_threads));
    double bytes = 4 * (gen_count(c->g, c->x, var) + gen_count(c->g, c->y, var));
    /* Nothing is copied: what a cache holds flows while tiles are computed. */
    double open = !in_place || bytes > (double)caps->l3_bytes / 2 ? 0.3
                  : bytes > (double)caps->l2_bytes / 2            ? 0.1
                                                                  : 0.05;
    return 2e-6 + ((double)(tw * th) * tile + band + 300) * rounds / hz +
           open * bytes / gen_byte_rate(caps);
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct facts *f = p->facts;
    const struct conv_sched s = sched_of(v);
    return seconds(&f->real, p->c, &s, p->var);
}

const struct gen gen_conv_dw = {
    .version = 1,
    .name = "conv_dw",
    .revision = 4,
    .param = param,
    .n_param = N_PARAM,
    .facts = sizeof(struct facts),
    .analyze = analyze,
    .match = match,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
