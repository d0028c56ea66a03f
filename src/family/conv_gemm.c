// SPDX-License-Identifier: Apache-2.0
//
// conv_gemm: convolution of any rank, groups, strides and dilations as an implicit matrix product
// (gen/conv.c). This file says which schedules there are, which make sense for a task, and predicts
// their time: multiply-adds at the rate that the tile's loads allow, waste of tiles that hang over,
// filling the band, the epilogue, memory traffic, and the balance between threads. The initial
// schedule is the best predicted one of a short list.
#include "gen/cpu.h"

// clang-format off
#define PARAMS(P)                                                                                                        \
    P(ty, "rows of the register tile", 1, 2, 4, 7)                                                                       \
    P(tx, "pixels of a row of the register tile", 1, 2, 4, 6, 7, 8, 10, 12, 14, 28)                                      \
    P(nr, "vectors of output channels of the register tile", 1, 2, 3, 4, 6)                                              \
    P(th, "tiles per band in y, 0 = all", 0, 1, 2, 3, 4, 7, 8, 14, 16, 28)                                               \
    P(tw, "tiles per band in x, 0 = all", 0, 1, 2, 4, 8, 16)                                                             \
    P(ob, "blocks of output channels per grid iteration, 0 = all", 0, 1, 2, 4, 8)                                        \
    P(stage, "input: 0 where it lies, 1 copied as pixels, 2 copied as planes", STAGE_DIRECT, STAGE_PIXELS, STAGE_PLANES) \
    P(order, "0: weights stay, pixels change fastest; 1: pixels stay", 0, 1)                                             \
    P(ku, "input channels per step of the inner loop", 1, 2, 4)                                                          \
    P(ahead, "steps that weights are prefetched ahead, 0 = not", 0, 16, 64)                                              \
    P(nt, "outputs: 1 stored past the caches", 0, 1)
// clang-format on
GEN_PARAMS(PARAMS)

GEN_PARAM_READER(struct conv_sched, sched_of, PARAMS)

/* Sizes for given variables. */
struct model {
    struct conv c;
    u32 lanes;
    i64 x, y, outer; /* output pixels along the tile's axes, and others */
    i64 taps, terms; /* terms: steps per tap */
    double n_x, n_y, n_w; /* elements of input, output and weights */
    double size;     /* bytes of an element of the band */
    i64 n_blocks, ob, parts;
    i64 tx_all, ty_all, tw, th; /* tiles in all, and per iteration */
    double band;                /* elements of the band */
    i64 iterations;
};

static void model_axes(struct model *m, bool is_flat, const i64 *var)
{
    const struct conv *c = &m->c;
    i32 xa = c->xa, ya = c->ya;
    m->x = xa >= 0 ? gen_eval(c->g, c->out[xa], var) : 1;
    m->y = ya >= 0 ? gen_eval(c->g, c->out[ya], var) : 1;
    m->outer = 1, m->taps = 1;
    for (u32 a = 0; a < c->rank; a++) {
        m->taps *= c->k[a];
        if (a != 1 && (i32)a != xa && (i32)a != ya) m->outer *= gen_eval(c->g, c->out[a], var);
    }
    if (!is_flat) return;
    struct space sp = conv_space(c);
    m->outer = m->x = m->y = 1;
    for (u32 i = 0; i < sp.n; i++)
        *(i + 1 == sp.n ? &m->x : &m->outer) *= gen_eval(c->g, sp.g[i].extent, var);
}

/* What does not depend on the schedule, but for whether pixels are numbered through. */
static void model_init(struct model *m, const struct caps *caps, bool is_flat, const i64 *var)
{
    const struct conv *c = &m->c;
    i64 group = conv_dot_terms(c, caps);
    m->lanes = conv_lanes(c, caps);
    m->terms = ceil_div(c->ic, group);
    m->size = group > 1 ? 1 : 4;
    m->n_x = gen_count(c->g, c->x, var), m->n_y = gen_count(c->g, c->y, var), m->n_w = gen_count(c->g, c->w, var);
    model_axes(m, is_flat, var);
}

static void model_tiles(struct model *m, const struct conv_sched *s)
{
    const struct conv *c = &m->c;
    m->n_blocks = ceil_div(c->oc, s->nr * m->lanes);
    m->ob = s->ob ? i64_min(s->ob, m->n_blocks) : m->n_blocks;
    m->parts = ceil_div(m->n_blocks, m->ob);
    m->tx_all = ceil_div(i64_max(1, m->x), s->tx), m->ty_all = ceil_div(i64_max(1, m->y), s->ty);
    m->tw = s->tw ? i64_min(s->tw, m->tx_all) : m->tx_all;
    m->th = s->th ? i64_min(s->th, m->ty_all) : m->ty_all;
    m->iterations =
        c->groups * m->parts * m->outer * ceil_div(m->tx_all, m->tw) * ceil_div(m->ty_all, m->th);
    double rest = 1;
    for (u32 a = 2; a < c->rank; a++)
        if ((i32)a != c->xa && (i32)a != c->ya) rest *= (double)c->k[a];
    i64 kx = c->xa >= 0 ? (c->k[c->xa] - 1) * c->dil[c->xa] + 1 : 1,
        sx = c->xa >= 0 ? c->stride[c->xa] : 1;
    i64 ky = c->ya >= 0 ? (c->k[c->ya] - 1) * c->dil[c->ya] + 1 : 1,
        sy = c->ya >= 0 ? c->stride[c->ya] : 1;
    m->band = rest * (double)((m->tw * s->tx - 1) * sx + kx) *
              (double)((m->th * s->ty - 1) * sy + ky) * (double)c->ic;
}

static void model_of(struct model *m, const struct caps *caps, const struct conv_sched *s, const i64 *var)
{
    model_init(m, caps, conv_is_flat(&m->c, s), var);
    model_tiles(m, s);
}

/* Pixels read where they lie may fall on the same few cache sets: a line is gone before its next
 * channel is read. */
static double set_conflicts(const struct conv *c, const struct conv_sched *s)
{
    i64 bytes = dtype_size(graph_value(c->g, c->x)->dtype), step = c->ic * c->groups * bytes * (c->xa >= 0 ? c->stride[c->xa] : 1), pixels = s->tx * s->ty;
    if (step % 1024 || pixels <= 8) return 1;
    if (step % 2048) return 1.1;
    i64 sets = step % 4096 ? 2 : 1;
    return pixels <= 10 * sets ? 1.15 : 1.15 + 0.1 * (double)(pixels / sets - 10);
}

/* Those of a block flow through the first cache once per iteration, or for every tile where they do
 * not fit; far ones cost more. */
static double weights_cycles(const struct model *m, const struct caps *caps,
                             const struct conv_sched *s, double block)
{
    double all = block * (double)m->ob, again = s->order == 1 ? all : block;
    double far = (double)caps->l2_bytes * 0.7, near = (double)caps->l1_bytes / 2;
    if (again > near) return all * (double)(m->tw * m->th) / (again > far ? 12 : 150);
    return all > near ? all / (all > far ? 12 : 40) : 0;
}

/* Of one input channel neighbouring taps of a row are written out together and share pixels: compilers keep each in a register
 * until its last use, and spill accumulators where there are not enough; cycles per step. */
static double shared_cycles(const struct conv *c, const struct caps *caps, const struct conv_sched *s)
{
    if (c->ic > 1 || c->groups > 1 || c->xa < 0 || c->k[c->xa] == 1 || s->stage == STAGE_PLANES) return 0;
    i64 used = s->ty * s->tx * s->nr + s->tx + 2 * c->k[c->xa] - 1, over = used - caps->n_vector_regs - 1;
    return 1.2 * (double)i64_max(0, i64_min(over, 8));
}

static bool band_fits(const struct model *m, const struct caps *caps)
{
    return m->band * m->size <= 4 * (double)caps->l2_bytes + 1e6;
}

static double seconds(const struct model *m, const struct caps *caps, const struct conv_sched *s)
{
    const struct conv *c = &m->c;
    double hz = gen_flop_rate(caps) / (4.0 * i64_max(1, caps->vector_bytes / 4));
    double steps = (double)(m->taps * m->terms),
           tile = steps * (tile_step_cycles(s->ty * s->tx, s->nr) + 0.5 / (double)s->ku + shared_cycles(c, caps, s));
    double weights = steps * (double)(s->nr * m->lanes) * 4; /* bytes of one block */
    tile += s->ahead ? 0.3 * steps * (double)s->nr : 0;
    tile += 12.0 * (double)(m->taps / (c->xa >= 0 ? c->k[c->xa] : 1)); /* loops */
    /* A run of few taps per channel; compilers unroll loops over few channels, too, and spill accumulators. */
    if (s->stage == STAGE_PLANES && c->xa >= 0) tile += (c->ic <= 8 ? 50.0 : 10.0) * steps / (double)c->k[c->xa];
    tile += (double)(s->ty * s->tx * s->nr) * (c->by_rows ? 3.0 * m->lanes : 3);
    i64 tiles = m->tw * m->th;
    double iteration = tile * (double)(tiles * m->ob) + weights_cycles(m, caps, s, weights);
    double band_bytes = m->band * m->size;
    if (s->stage != STAGE_DIRECT) {
        bool last = conv_input_layout(c) == LAYOUT_CLAST;
        double per = s->stage == STAGE_PLANES ? (last ? 2 : 0.4) : !last ? 2 : c->plain ? 0.2 : 0.5;
        bool few = c->ic < m->lanes && s->stage == STAGE_PIXELS && !c->plain;
        iteration += m->band * (few ? 1.5 : per); /* few channels one by one */
        if (band_bytes > (double)caps->l2_bytes * 0.6)
            iteration += band_bytes / 8 * (s->order == 0 ? (double)m->ob : 1);
    } else {
        iteration *= set_conflicts(c, s);
    }
    if (m->n_x * 4 > (double)caps->l2_bytes / 2) /* read from afar */
        iteration += 0.4 * m->band;
    double rounds = (double)ceil_div(m->iterations, i64_max(1, caps->n_threads));
    double y = m->n_y,
           bytes =
               4 * (y + m->n_x * (double)m->parts + m->n_w);
    double compute = (iteration + 300) * rounds / hz, memory = bytes / gen_byte_rate(caps);
    if (!s->ahead) /* weights come from far the first time */
        memory += 3 * 4 * m->n_w / gen_byte_rate(caps);
    double epilogue = c->simple ? 0 : 3 * y * 4 / gen_byte_rate(caps);
    double open = m->taps > 1 ? 0.15 : 0.3; /* long sums hide more of it */
    return 2e-6 + compute + memory * open + epilogue;
}

/* Of the input's elements that a tile of one pixel needs: far taps of a dilated window may be more than any cache holds. */
static bool has_small_window(const struct conv *c, const struct caps *caps)
{
    struct conv_sched one = {.ty = 1, .tx = 1, .nr = 1, .ku = 1, .th = 1, .tw = 1, .stage = STAGE_PIXELS};
    struct model m = {.c = *c};
    model_of(&m, caps, &one, NULL);
    return band_fits(&m, caps);
}

/* For sizes that legality is about, and those that time is; [1]: pixels are numbered through, if any schedule may. */
struct facts { struct model known[2], real[2]; };

static bool analyze(const struct gen_problem *p)
{
    struct facts *f = p->facts;
    struct conv c;
    if (p->c->is_gpu || p->c->vector_bytes < 8 || !conv_of_any(&c, p->t)) return false;
    for (u32 i = 0; i < (c.point && c.simple ? 2 : 1); i++) {
        f->known[i].c = f->real[i].c = c;
        model_init(&f->known[i], p->c, i, NULL);
        model_init(&f->real[i], p->c, i, p->var);
    }
    return true;
}

static bool match(const struct gen_problem *p)
{
    const struct facts *f = p->facts;
    const struct conv *c = &f->known[0].c;
    return (c->plain && c->no_pad) || has_small_window(c, p->c);
}

/* What depends on the schedule and few facts only. */
static bool is_sensible(const struct conv *c, const struct caps *caps, const struct conv_sched *s)
{
    if (!tile_is_legal(caps, s->ty * s->tx, s->nr)) return false;
    bool flat = conv_is_flat(c, s);
    if ((c->ya < 0 || flat) && (s->ty > 1 || s->th != 1)) return false;
    if (c->xa < 0 && (s->tx > 1 || s->tw != 1)) return false;
    if (s->stage == STAGE_DIRECT && !(c->plain && c->no_pad)) return false;
    if (s->stage == STAGE_PLANES && (c->xa < 2 || conv_dot_terms(c, caps) > 1)) return false;
    if (s->stage == STAGE_DIRECT && c->ic % conv_dot_terms(c, caps)) return false;
    return s->ku == 1 || c->ic >= 8;
}

static bool may_stream(const struct conv *c, const struct caps *caps, const struct conv_sched *s)
{
    return !s->nt || gen_may_nt(c->g, caps, conv_run(c, s->nr * conv_lanes(c, caps)));
}

static bool is_legal(const struct model *m, const struct caps *caps, const struct conv_sched *s)
{
    const struct conv *c = &m->c;
    if (s->nr > 1 && (s->nr - 1) * m->lanes >= c->oc) return false;
    if ((s->ob && s->ob >= m->n_blocks && m->n_blocks > 1) ||
        (m->n_blocks == 1 && (s->ob != 0 || s->order != 0)))
        return false;
    if (s->order == 1 && m->ob == 1) return false;
    if (s->stage != STAGE_DIRECT && !band_fits(m, caps)) return false;
    return (s->th <= 1 || s->th <= m->ty_all) && (s->tw <= 1 || s->tw <= m->tx_all);
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    struct facts *f = p->facts;
    const struct conv_sched s = sched_of(v);
    const struct conv *c = &f->known[0].c;
    if (!is_sensible(c, p->c, &s)) return false;
    struct model *m = &f->known[conv_is_flat(c, &s)];
    model_tiles(m, &s);
    return is_legal(m, p->c, &s) && may_stream(c, p->c, &s);
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    struct facts *f = p->facts;
    const struct conv_sched s = sched_of(v);
    struct model *m = &f->real[conv_is_flat(&f->real[0].c, &s)];
    model_tiles(m, &s);
    double plain = seconds(m, p->c, &s);
    return s.nt ? gen_nt_seconds(&p->t->g, p->c, p->var, plain) : plain;
}

static void try_bands(const struct gen_problem *p, struct sched v, double *best, struct sched *out)
{
    static const i32 ob[] = {0, 1, 2, 4};
    const struct facts *f = p->facts;
    v.v[P_ahead] = 4 * f->real[0].n_w > (double)p->c->l2_bytes / 4 ? 64 : 0;
    for (u32 th = 0; th < param[P_th].n; th++)
        for (u32 tw = 0; tw < param[P_tw].n; tw++)
            for (u32 o = 0; o < countof(ob); o++)
                for (i32 order = 0; order < 2; order++) {
                    v.v[P_th] = param[P_th].values[th], v.v[P_tw] = param[P_tw].values[tw], v.v[P_ob] = ob[o],
                    v.v[P_order] = order;
                    gen_try(p, &v, best, out);
                }
}

static void initial(const struct gen_problem *p, struct sched *out)
{
    static const i32 tiles[][3] = {
        {1, 14, 2}, {1, 12, 2}, {1, 7, 4}, {1, 6, 4}, {2, 7, 2}, {4, 7, 1}, {1, 28, 1},
        {1, 8, 3},  {1, 4, 6},  {1, 6, 2}, {1, 7, 2}, {1, 7, 3}, {1, 4, 2}, {1, 12, 1},
        {1, 4, 1},  {1, 1, 1},  {1, 1, 6}, {1, 1, 4}, {2, 6, 2}, {2, 2, 6}, {4, 4, 1}, {2, 8, 1},
        {1, 8, 2},  {2, 4, 2}};
    const struct facts *f = p->facts;
    double best = 0;
    for (u32 i = 0; i < countof(tiles); i++)
        for (i32 stage = 0; stage < 3; stage++) {
            struct sched v = {.v = {[P_ty] = tiles[i][0],
                                    [P_tx] = tiles[i][1],
                                    [P_nr] = tiles[i][2],
                                    [P_stage] = stage}};
            v.v[P_ku] = f->known[0].c.ic >= 8 ? 2 : 1;
            if (tile_is_legal(p->c, tiles[i][0] * tiles[i][1], tiles[i][2])) try_bands(p, v, &best, out);
        }
    assert(best > 0);
    gen_set_nt(p, P_nt, out);
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps,
                 const struct sched *v)
{
    struct conv_sched s = sched_of(v);
    gen_conv_emit(m, t, caps, &s);
}

const struct gen gen_conv_gemm = {
    .version = 1,
    .name = "conv_gemm",
    .revision = 9,
    .param = param,
    .n_param = N_PARAM,
    .facts = sizeof(struct facts),
    .analyze = analyze,
    .match = match,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
