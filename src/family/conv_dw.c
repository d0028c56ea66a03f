// SPDX-License-Identifier: Apache-2.0
//
// conv_dw: depthwise convolution (one input and one output channel per group), channels vectorised.
// A grid iteration takes a block of nr vectors of channels and a band of rows, copied to scratch
// with its zeros (gen/cpu_band.h), and runs register tiles of ty x tx pixels over it
// (gen/cpu_addr_dw.c). Or the input is read in place with channels last, by some or all blocks
// of channels: nothing is copied, and with all blocks a pixel's channels are read in one piece, so
// that large images stream.
#include "gen/conv_cost.h"
#include "gen/cpu_band.h"

#include <math.h>

// clang-format off
#define PARAMS(P)                                                                      \
    P(ty, "rows of the register tile", 1, 2, 3, 4)                                     \
    P(tx, "pixels of a row of the register tile", 1, 2, 4, 6, 7, 8, 14)                \
    P(nr, "vectors of channels of the register tile", 1, 2, 3, 4)                      \
    P(th, "tiles per band in y, 0 = all", 0, 1, 2, 4, 7, 8, 16, 28)                    \
    P(tw, "tiles per band in x, 0 = all", 0, 1, 2, 4, 8, 16)                           \
    P(stage, "input: 0 in place, 1 copied as pixels", STAGE_DIRECT, STAGE_PIXELS) \
    P(ob, "in place: blocks of channels per grid iteration, 0 = all", 0, 1, 2, 4, 8, 16, 32)
// clang-format on
GEN_PARAMS(PARAMS)

GEN_PARAM_READER(struct conv_sched, read_sched, PARAMS)

static struct conv_sched sched_of(const struct sched *v)
{
    struct conv_sched s = read_sched(v);
    s.ku = 1;
    return s;
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps,
                 const struct sched *v)
{
    struct band *b = arena_new(m->arena, struct band);
    struct conv_sched s = sched_of(v);
    struct conv c;
    conv_of_any(&c, t);
    band_init(b, m, &c, caps, &s);
    dw_init(b, caps);
    emit_args(m);
    if (s.stage == STAGE_DIRECT) {
        struct kir *k = b->m->k;
        i64 ob = b->s.ob ? b->s.ob : b->c.groups;
        conv_in_place(b);
        kval from = kir_mul_i(k, band_open(b, ceil_div(b->c.groups, ob)), ob);
        dw_walk_in_place(b, from, kir_min(k, kir_add_i(k, from, ob), kir_int(k, b->c.groups)));
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
    struct dw_product product;
    i64 x, y, outer, taps;
};

struct facts {
    struct model least, real; /* sizes that legality is about, and those that time is */
};

static void model_of(struct model *m, const struct conv *c, const struct caps *caps, const i64 *var)
{
    m->c = *c, c = &m->c;
    m->product = dw_product_of(c, caps);
    m->x = c->xa >= 0 ? gen_eval(c->g, c->out[c->xa], var) : 1;
    m->y = c->ya >= 0 ? gen_eval(c->g, c->out[c->ya], var) : 1;
    m->outer = m->taps = 1;
    for (u32 a = 0; a < c->rank; a++) {
        m->taps *= c->k[a];
        if (a != 1 && (i32)a != c->xa && (i32)a != c->ya)
            m->outer *= gen_eval(c->g, c->out[a], var);
    }
    m->outer = i64_max(1, m->outer); /* a batch may be empty */
}

/* Taps on other axes than the tile's would need tests of their own. */
static bool fits_in_place(const struct model *m, const struct conv_sched *s, i64 lanes)
{
    const struct conv *c = &m->c;
    for (u32 a = 2; a < c->rank; a++)
        if ((i32)a != c->xa && (i32)a != c->ya && (c->k[a] > 1 || !c->free[a])) return false;
    if (c->fill && !c->no_pad && m->product.terms == 1) return false;
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
    model_of(&f->least, &c, p->c, NULL);
    model_of(&f->real, &c, p->c, p->var);
    return true;
}

/* Windows of very many or very far taps are for other families. */
static bool least(const struct gen_problem *p, u32 k, struct sched *s)
{
    *s = (struct sched){.v = {[P_ty] = 1, [P_tx] = 1, [P_nr] = 1, [P_th] = 1, [P_tw] = 1, [P_stage] = STAGE_PIXELS}};
    return k == 0;
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct facts *f = p->facts;
    const struct conv_sched s = sched_of(v);
    return is_legal(&f->least, p->c, &s);
}

/* Bytes of an element of an operand; floats are counted as f32. */
static double size_of(const struct graph *g, value_id v)
{
    enum dtype t = graph_value(g, v)->dtype;
    return dtype_is_float(t) ? 4 : (double)dtype_size(t);
}

/* Whether a tile's weights stay in registers from one row of the input to the next; otherwise multiply-adds load them. */
static bool keeps_weights(const struct model *m, const struct caps *caps, const struct conv_sched *s)
{
    return m->taps * s->nr + s->ty * s->tx * s->nr + 2 <= caps->n_vector_regs;
}

/* Of a tile's arithmetic. Integers: multiplying vectors of i32 takes several instructions; a DOT of i16 may be two. Interleaving vectors of fewer channels
   than the instruction reads takes longer. */
static double tile_seconds(const struct model *m, const struct caps *caps, const struct nest_rates *r, const struct conv_sched *s, double footprint)
{
    const double cells = (double)(s->tx * s->ty * s->nr), taps = (double)m->taps, nr = (double)s->nr, terms = (double)m->product.terms;
    if (dtype_is_float(m->c.type)) return taps * nest_tap(r, cells, footprint / taps + (keeps_weights(m, caps, s) ? nr : cells));
    if (m->product.terms == 1) return taps * nest_tap(r, 4 * cells, footprint / taps + nr);
    const struct dw_work w = dw_work_of(&m->c, &m->product, s->ty, s->tx);
    const double others = taps / (double)((m->c.xa >= 0 ? m->c.k[m->c.xa] : 1) * (m->c.ya >= 0 ? m->c.k[m->c.ya] : 1));
    const bool is_wide = s->nr % m->product.terms == 0, is_cast = m->product.type != graph_value(m->c.g, m->c.x)->dtype;
    const double dots = (double)w.dots * nr * (m->product.type == DT_I16 ? 1.5 : 1);
    const double zips = (double)w.groups * nr * (terms * (is_wide ? 1 : 2) + is_cast), loads = (double)(w.groups + w.dots) * nr;
    return others * nest_tap(r, dots + zips, loads);
}

/* Of a grid iteration, from the inside: in place all blocks of channels of a tile, whose weights stay, then tiles; a band holds one block, and its
   rows are copied first. */
static double seconds(const struct facts *f, const struct gen_problem *p, const struct conv_sched *s)
{
    const struct model *m = &f->real;
    const struct caps *caps = p->c;
    const struct nest_rates *r = p->nest;
    const struct conv *c = &m->c;
    bool in_place = s->stage == STAGE_DIRECT;
    double lanes = (double)conv_lanes(c, caps), threads = (double)i64_max(1, caps->n_threads), nr = (double)s->nr, taps = (double)m->taps;
    double vectors = ceil((double)c->groups / lanes), blocks = ceil(vectors / nr), own = in_place ? s->ob ? (double)s->ob : vectors / nr : 1;
    double nx = ceil(fmax(1, (double)m->x) / (double)s->tx), ny = ceil(fmax(1, (double)m->y) / (double)s->ty);
    double tw = s->tw ? fmin((double)s->tw, nx) : nx, th = s->th ? fmin((double)s->th, ny) : ny;
    double footprint = conv_reach(c, c->xa, (double)s->tx) * conv_reach(c, c->ya, (double)s->ty) * nr, cells = (double)(s->tx * s->ty) * nr;
    double fx = conv_fresh(c, c->xa, (double)s->tx), fy = conv_fresh(c, c->ya, (double)s->ty), moved = in_place ? 1 : 0;
    /* What lies outside the input is left out in place. */
    double used = in_place ? fmax(1, (double)m->x) / (nx * (double)s->tx) * fmax(1, (double)m->y) / (ny * (double)s->ty) : 1;
    double parts = ceil(blocks / ceil(own)) * ceil(nx / tw) * ceil(ny / th) * (double)m->outer;
    double sx = size_of(c->g, c->x), sw = size_of(c->g, c->w), sy = size_of(c->g, c->g->output.v[0]);
    struct nest n = {.bytes = {sx * lanes * footprint, sw * lanes * taps * nr, sy * lanes * cells}};
    if (m->product.terms > 1) n.bytes[NEST_RIGHT] = sw * lanes * nr * (double)(m->product.terms * dw_work_of(c, &m->product, s->ty, s->tx).weights);
    n.seconds = used * tile_seconds(m, caps, r, s, footprint) + nest_ends(r, cells, 0);
    if (!in_place) {
        double band = conv_reach(c, c->xa, tw * (double)s->tx) * conv_reach(c, c->ya, th * (double)s->ty) * nr;
        n.seconds += band * (2 * r->load + 2 * r->cycle + gen_problem_front(p, 0) * r->work / 2) / (tw * th);
    }
    n.seconds += 300 * r->cycle / (own * tw * th);
    const struct nest_rows row = {sx * fmin((double)c->groups, own * nr * lanes), sx * (double)c->groups, 0};
    n.rows[NEST_SUMS] = (struct nest_rows){sy * fmin((double)c->groups, own * nr * lanes), sy * (double)c->groups, 0};
    if (in_place) n.rows[NEST_LEFT] = row;
    nest_loop(&n, own, 1, 1, 1);
    nest_loop(&n, tw, fx, 0, 1);
    nest_loop(&n, th, fy, 0, 1);
    nest_loop(&n, ceil(nx / tw) * ceil(ny / th), moved, 0, 1);
    nest_loop(&n, (double)m->outer, moved, 0, 1);
    nest_loop(&n, ceil(blocks / ceil(own)), 1, 1, 1);
    double bytes = gen_bytes(c->g, c->x, p->var), band = in_place ? 0 : nest_read(r, bytes, bytes, &row) / threads;
    return r->launch + nest_seconds(&n, r) * ceil(parts / threads) / parts + band;
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct facts *f = p->facts;
    const struct conv_sched s = sched_of(v);
    return seconds(f, p, &s);
}

const struct gen gen_conv_dw = {
    GEN_FAMILY("conv_dw", 6), .facts = sizeof(struct facts), .analyze = analyze, .least = least,
    .legal = legal, .emit = emit, .predict = predict,
};
