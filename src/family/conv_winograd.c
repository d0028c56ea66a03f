// SPDX-License-Identifier: Apache-2.0
//
// conv_winograd: 3x3 and 3x3x3 convolutions of stride 1 with fewer multiplications (gen/winograd.c). This file says which schedules there are,
// which make sense for a task, and predicts their time: products at the rate of the register tile, the transforms' arithmetic and
// traffic, weights that stream by once per iteration, and the balance between threads.
//
// Rounding errors grow with m (doc/winograd.md). Those of m = 2 and 4 stay well below the tolerance of the ordinary verification,
// so the initial schedule has one of them. Those of m = 6 come close to it, for short sums above it: few channels are refused.
//
// Sums of integers (bytes, and i16 that are bytes less zero points) are exact with m = 2, whose matrices are integers but for a factor: products of
// pairs of i16 (vpmaddwd), a 2.25th of those of conv_igemm, which is faster where one instruction adds four products of bytes (VNNI).
#include "gen/nest.h"
#include "gen/winograd.h"

enum { LARGE_LEAST_IC = 32, /* for m = 6 */ SURE_TILE = 4 /* m whose error is always small */ };

// clang-format off
#define PARAMS(P)                                                                      \
    P(m, "outputs of a tile along y and x", 2, 4, 6)                                   \
    P(mz, "outputs of a tile along z, 1 = without savings there", 1, 2)                \
    P(tx, "tiles of the register tile", 1, 2, 4, 6, 7, 8, 10, 12, 14, 28)              \
    P(nr, "vectors of output channels of the register tile", 1, 2, 3, 4, 6)            \
    P(tb, "register tiles per grid iteration", 1, 2, 3, 4, 6, 8, 12)                   \
    P(ob, "blocks of output channels per grid iteration, 0 = all", 0, 1, 2, 4, 8)      \
    P(ku, "input channels per step of the inner loop", 1, 2, 4)                        \
    P(ahead, "steps that weights are prefetched ahead, 0 = not", 0, 16, 64)            \
    P(far, "1: products ask for the next tiles' inputs and these ones' outputs", 0, 1) \
    P(nt, "outputs: 1 stored past the caches", 0, 1)
// clang-format on
GEN_PARAMS(PARAMS)

GEN_PARAM_READER(struct wino_sched, sched_of, PARAMS)

struct model {
    struct conv c;
    struct conv_tail tail;
    const struct nest_rates *rates;
    bool is_integer, exact[3]; /* exact: integers, by mz */
    i64 lanes, n_blocks, ob, parts, tiles, blocks; /* blocks: of tiles */
    i64 steps, size; /* of a product; bytes of a value at a point */
};

static void model_of(struct model *m, const struct caps *caps, const struct wino_sched *s, const i64 *var)
{
    const struct conv *c = &m->c;
    m->lanes = conv_lanes(c, caps);
    m->steps = wino_steps(c), m->size = wino_size(c);
    m->n_blocks = ceil_div(c->oc, s->nr * m->lanes);
    m->ob = s->ob ? i64_min(s->ob, m->n_blocks) : m->n_blocks;
    m->parts = ceil_div(m->n_blocks, m->ob);
    m->tiles = gen_eval(c->g, c->out[0], var) * ceil_div(gen_eval(c->g, c->out[c->ya], var), s->m) *
               ceil_div(gen_eval(c->g, c->out[c->xa], var), s->m);
    if (wino_z(c) >= 0) m->tiles *= ceil_div(gen_eval(c->g, c->out[wino_z(c)], var), s->mz);
    m->blocks = ceil_div(m->tiles, s->tb * s->tx);
}

static double scratch_bytes(const struct model *m, const struct wino_scratch *w) { return (double)(m->size * (w->v + w->strip) + 4 * w->m); }

static bool is_legal(const struct model *m, const struct caps *caps, const struct wino_sched *s)
{
    const struct conv *c = &m->c;
    i64 order, order_z;
    if (m->is_integer && (s->m != 2 || !m->exact[s->mz])) return false;
    if (caps->deterministic && !m->is_integer && !(gen_order_winograd(c, &order, &order_z) && s->m == order && s->mz == order_z)) return false;
    if (s->nr > 1 && (s->nr - 1) * m->lanes >= c->oc) return false;
    if (s->ob && s->ob >= m->n_blocks) return false;
    if (s->tb > 1 && (s->tb - 1) * s->tx >= m->tiles) return false;
    if (s->mz > 1 && wino_z_taps(c) < WINO_TAPS) return false;
    if ((s->ku > 1 && m->steps < 8) || (s->m == 6 && c->ic < LARGE_LEAST_IC)) return false;
    if (s->nt && (wino_pools(c, &m->tail, s) || !gen_may_nt(c->g, caps, conv_run(c, m->lanes)))) return false;
    struct wino_scratch w = wino_scratch(c, s, (u32)m->lanes);
    return scratch_bytes(m, &w) <= 4 * (double)caps->l2_bytes + 1e6;
}

static bool analyze(const struct gen_problem *p)
{
    struct model *m = p->facts;
    m->rates = p->nest;
    if (p->c->is_gpu || !wino_of(&m->c, &m->tail, p->t)) return false;
    m->is_integer = wino_is_integer(&m->c);
    for (i64 mz = 1; mz <= 2; mz++)
        m->exact[mz] = m->is_integer && (mz == 1 || wino_z_taps(&m->c) == WINO_TAPS) && wino_is_exact(&m->c, &(struct wino_sched){.m = 2, .mz = mz});
    return !m->is_integer || (m->exact[1] && wino_product(&m->c, p->c).leaf);
}

static bool match(const struct gen_problem *p)
{
    const struct model *x = p->facts;
    const struct conv *c = &x->c;
    i64 m, mz;
    if (p->c->no_winograd || p->c->vector_bytes < 8) return false;
    if (p->c->deterministic && !x->is_integer) return gen_order_winograd(c, &m, &mz);
    return !sym_is(c->g, c->out[c->ya], 1) && !sym_is(c->g, c->out[c->xa], 1); /* a tile of one row is mostly thrown away */
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct wino_sched s = sched_of(v);
    if (!tile_is_legal(p->c, s.tx, s.nr)) return false;
    model_of(p->facts, p->c, &s, NULL);
    return is_legal(p->facts, p->c, &s);
}

/* Additions and multiplications of a transform along one axis (gen/winograd.c), by m/2. */
static const double ops_in[] = {0, 4, 12, 24}, ops_out[] = {0, 4, 10, 20};

/* Cycles for one vector of channels of one tile: arithmetic, loads from and stores to the second cache, and what does not fit in
 * registers half way. Sums along z load two planes for each point, and all products of a point for each output. */
static double cycles_in(const struct wino_sched *s, i64 z_taps)
{
    double n = (double)(s->m + WINO_TAPS - 1), planes = (double)(s->mz + z_taps - 1);
    return planes * (ops_in[s->m / 2] * n + 2 * n * n + (n * n > 36 ? n * n : 0) + (s->mz > 1 ? n * n : 0));
}

static double cycles_out(const struct wino_sched *s, i64 z_taps, double per_pixel)
{
    double n = (double)(s->m + WINO_TAPS - 1), pixels = (double)(s->m * s->m), more = (double)(z_taps - 1);
    double plane = ops_out[s->m / 2] * (n + (double)s->m) / 2 + (1 + more) * n * n + pixels * per_pixel + (s->m > 4 ? n * n : 0);
    return (double)s->mz * plane;
}

/* Bytes of inputs and outputs that n tiles and one block of output channels touch. */
static double tile_bytes(const struct model *m, const struct wino_sched *s, i64 n)
{
    i64 in = (s->mz + wino_z_taps(&m->c) - 1) * (s->m + WINO_TAPS - 1) * m->c.ic, out = s->mz * s->m * s->nr * m->lanes;
    return (double)(m->size * n * s->m * (in + out));
}

/* Of integers, fitted on Zen 4 (AVX2, 16 to 512 channels): what is left of the cycles of transforms and of a tile's ends, which are additions of i16
 * and i32, on all units. */
static const double ease_words = 0.4;
static double ease(const struct model *m) { return m->is_integer ? ease_words : 1; }

/* Cycles of the inner loop's step. The addresses of lines that it asks for take instructions, which short vectors, and products of integers (vpmaddwd
 * and an addition), leave no time for. */
static double cycles_step(const struct model *m, const struct wino_sched *s)
{
    enum { ISSUED = 6, ASK = 60 }; /* instructions of a cycle, and of asking for inputs and outputs */
    const struct nest_rates *r = m->rates;
    double ku = (double)s->ku, products = (double)(s->tx * s->nr * (m->is_integer ? 2 : 1));
    double instructions = products + (double)(s->tx + s->nr) + (4 + (s->far ? ASK : 0)) / ku;
    double step = nest_both(nest_step(r, s->tx, s->nr), instructions / ISSUED * r->cycle) / r->work;
    /* Long bodies do not pay: lines are asked for in bursts, and the compiler has fewer registers. */
    return step + 0.3 / ku + (s->far ? 0.09 : 0.05) * ku + (s->ahead ? 0.1 * (double)s->nr : 0) + (s->nr > 3 ? 1 : 0);
}

/* Cycles of the products of one block of output channels. */
static double cycles_products(const struct model *m, const struct caps *caps, const struct wino_sched *s)
{
    const struct conv *c = &m->c;
    i64 tiles = i64_min(s->tb * s->tx, m->tiles), points = wino_points(c, s);
    struct wino_scratch w = wino_scratch(c, s, (u32)m->lanes);
    double one = (double)m->steps * cycles_step(m, s) + ease(m) * (1.5 * (double)(s->tx * s->nr) + 15);
    double product = one * (double)ceil_div(tiles, s->tx) * (double)points, scratch = scratch_bytes(m, &w);
    /* Weights stream by once; when all of them do not fit beside the scratch memory, they come from far. */
    double weights = (double)(points * c->ic * s->nr * m->lanes * m->size), all = weights * (double)m->ob;
    double l2 = (double)caps->l2_bytes, used = scratch + weights + (s->far ? tile_bytes(m, s, tiles) : 0);
    if (scratch > l2 * 0.6) product += scratch / 16;
    if (used > l2 / 2) product += scratch / 100 * (used < 1.5 * l2 ? used / l2 - 0.5 : 1);
    if (all + scratch < (double)caps->l2_bytes * 0.9) return product + weights / 100;
    bool is_far = weights * (double)m->n_blocks > (double)caps->l3_bytes / 4; /* those of other grid iterations, too */
    double rate = is_far ? (s->ahead > 16 ? 12 : s->ahead ? 9 : 6) : s->ahead ? 16 : 10;
    return (product > weights / rate ? product : weights / rate) + weights / (4 * rate);
}

/* The value whose elements are stored: sums of integers become shorter ones before. */
static value_id stored(const struct model *m, bool pools) { return pools ? m->tail.pool : m->is_integer && m->c.simple ? m->c.g->output.v[0] : m->c.y; }

/* Seconds of waiting for inputs and outputs that nothing asked for in time. Their first touch is latency, not the memory's rate. */
static double wait(const struct model *m, const struct caps *caps, const struct wino_sched *s, const i64 *var)
{
    const struct conv *c = &m->c;
    bool pools = wino_pools(c, &m->tail, s);
    double x = gen_bytes(c->g, c->x, var) * (double)m->parts, y = gen_bytes(c->g, stored(m, pools), var), all = x + y;
    double rate = all > (double)caps->l3_bytes / 4 ? 15e9 : 45e9;
    if (all < (double)caps->l2_bytes) return 0;
    if (s->far && c->plain) x = 0;
    if (s->nt || (s->far && (pools || (c->simple && !c->by_rows)))) y = 0;
    return (x + y) / rate / (double)i64_max(1, caps->n_threads);
}

static double seconds(const struct model *m, const struct gen_problem *p, const struct wino_sched *s)
{
    const struct conv *c = &m->c;
    const struct caps *caps = p->c;
    const i64 *var = p->var;
    i64 tiles = i64_min(s->tb * s->tx, m->tiles), points = wino_points(c, s);
    double vector = cycles_in(s, wino_z_taps(c)) + (double)points * (c->plain ? 0.4 : 1.5 + gen_problem_front(p, 0) / 2);
    double in = (double)tiles * ((double)ceil_div(c->ic, wino_wide(c, m->lanes)) * vector + 60);
    bool pools = wino_pools(c, &m->tail, s);
    double out = (double)tiles * ((double)s->nr * cycles_out(s, wino_z_taps(c), c->by_rows ? 3.0 * (double)m->lanes : 2) + 40);
    double iteration = ease(m) * in + (cycles_products(m, caps, s) + ease(m) * out) * (double)m->ob + 300;
    double per_thread = (double)ceil_div(m->parts * m->blocks, i64_max(1, caps->n_threads));
    double weights = (double)(m->size * points * c->ic * m->n_blocks * s->nr * m->lanes);
    double epilogue = c->simple || pools ? 0 : 12 * gen_count(c->g, c->y, var) * m->rates->line[RATE_DRAM];
    double bytes = gen_bytes(c->g, c->x, var) + gen_bytes(c->g, stored(m, pools), var);
    double far = (0.3 * weights + 0.05 * bytes) * m->rates->line[RATE_DRAM] / (double)i64_max(1, caps->n_threads);
    return 2e-6 + wait(m, caps, s, var) + iteration * per_thread * m->rates->work + far + epilogue;
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct wino_sched s = sched_of(v);
    model_of(p->facts, p->c, &s, p->var);
    double plain = seconds(p->facts, p, &s);
    return s.nt ? gen_nt_seconds(p, plain) : plain;
}

/* Tiles whose error is always small (see the top). */
static bool sure(const struct gen_problem *p, const struct sched *s) { return s->v[P_m] <= SURE_TILE; }

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *v)
{
    struct wino_sched s = sched_of(v);
    gen_winograd_emit(m, t, caps, &s);
}

static double growth(const struct sched *v)
{
    struct wino_sched s = sched_of(v);
    return wino_growth(s.m) * wino_growth(s.m) * (s.mz > 1 ? wino_growth(s.mz) : 1);
}

const struct gen gen_conv_winograd = {
    GEN_FAMILY("conv_winograd", 13), .sums = SUMS_WINOGRAD, .facts = sizeof(struct model),
    .analyze = analyze, .match = match, .sure = sure, .legal = legal, .emit = emit,
    .predict = predict, .growth = growth,
};
