// SPDX-License-Identifier: Apache-2.0
//
// conv_chain: two or three convolutions in one kernel, the values in between never in memory as a
// whole. A grid iteration takes a band of the last one's output and works backwards to what each of
// the others has to deliver for it, halo included; then they run one after the other, each writing
// its part through the pointwise nodes behind it into the next one's band in scratch memory, which
// is what gen/cpu_band.c would have copied there from memory. Rows at the seam of two bands are
// computed twice; larger bands do so less often and need more scratch.
//
//   dense -> dense                 3x3 -> 3x3, 1x1 -> 3x3
//   depthwise -> dense             the end of a separable convolution
//   dense -> depthwise             the beginning of one, mirrored
//   dense -> depthwise -> dense    an inverted residual (Sandler et al. 2018, "MobileNetV2", 3.3)
//
// With a depthwise one the channels in the middle go in blocks of mn vectors: the first computes
// one block, the depthwise one reads it while it is in the nearest cache, and only its results,
// which are what the last one sums over, are kept for all channels.
//
// Dims: n, y, x; channels as in gen/cpu_conv.c and gen/cpu_addr_dw.c, whose loops these are.
#include "gen/cpu_band.h"
#include "gen/nest.h"

#include <string.h>

enum { MAX_CHAIN = 3, X_AXIS = 3, Y_AXIS = 2 };

// clang-format off
#define PARAMS(P)                                                               \
    P(ty, "last, if dense: rows of the register tile, else 0", 0, 1, 2, 4)      \
    P(tx, "last, if dense: pixels of a row of it, else 0", 0, 4, 7, 8, 14)      \
    P(nr, "last, if dense: vectors of channels of it, else 0", 0, 1, 2, 3, 4)   \
    P(th, "last: tiles per band in y, 0 = all", 0, 1, 2, 4, 7, 8, 14)           \
    P(tw, "last: tiles per band in x, 0 = all", 0, 1, 2, 4, 8)                  \
    P(fy, "first, if dense: rows of the register tile, else 0", 0, 1, 2, 4)     \
    P(fx, "first, if dense: pixels of a row of it, else 0", 0, 4, 7, 8, 14)     \
    P(dy, "depthwise: rows of the register tile, 0: there is none", 0, 1, 2, 4) \
    P(dx, "depthwise: pixels of a row of it, 0: there is none", 0, 2, 4, 7, 8)  \
    P(mn, "vectors of channels of the other tiles", 1, 2, 4)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)

/* The task taken apart. */

struct chain {
    u32 n;
    struct conv c[MAX_CHAIN];
    i32 dw; /* number of the depthwise one, -1: none */
};

/* A constant that is the same for all pixels: it may be read for those that do not exist. */
static bool is_per_channel(const struct graph *g, value_id v)
{
    const struct value *x = graph_value(g, v);
    for (u32 a = 0; a < x->shape.rank; a++)
        if (a + 3 != x->shape.rank && !sym_is(g, x->shape.dim[a], 1)) return false;
    return x->is_const;
}

/* Is v one of the values from y to x? */
static bool is_between(const struct graph *g, value_id v, value_id y, value_id x)
{
    return v && gen_depends(g, v, y) && gen_depends(g, x, v);
}

/* Does n read values between y and x only if it makes some of them? */
static bool keeps_between(const struct graph *g, node_id n, value_id y, value_id x)
{
    const struct node *k = graph_node(g, n);
    bool makes = is_between(g, k->out.v[0], y, x) && k->out.v[0] != y;
    for (u32 i = 0; i < k->in.n; i++) {
        value_id v = k->in.v[i];
        bool inside = is_between(g, v, y, x);
        if (makes ? v && !inside && !is_per_channel(g, v) : inside) return false;
    }
    return true;
}

/* From y only pointwise nodes lead to x, and nothing of it is needed but x, by node `to`. */
static bool is_private(const struct graph *g, value_id y, value_id x, node_id to)
{
    if (!gen_depends(g, x, y) || !gen_pointwise_tail(g, x, y)) return false;
    for (node_id n = 1; n < g->node.n; n++)
        if (n != to && !keeps_between(g, n, y, x)) return false;
    for (u32 i = 1; i < graph_node(g, to)->in.n; i++)
        if (is_between(g, graph_node(g, to)->in.v[i], y, x)) return false;
    for (u32 i = 0; i < g->output.n; i++)
        if (is_between(g, g->output.v[i], y, x)) return false;
    return true;
}

static bool chain_of(struct chain *h, const struct task *t)
{
    const struct graph *g = &t->g;
    node_id heavy[MAX_CHAIN];
    *h = (struct chain){.dw = -1};
    if (t->n_heavy < 2 || t->n_heavy > MAX_CHAIN) return false;
    for (node_id n = 1; n < g->node.n; n++)
        if (op_of(g, n)->props & (OP_CONV | OP_MATMUL | OP_HEAVY)) heavy[h->n++] = n;
    for (u32 i = 0; i < h->n; i++) {
        struct conv *c = &h->c[i];
        if (!conv_take(c, g, heavy[i]) || c->rank != 4) return false;
        if (c->xa != X_AXIS || c->ya != Y_AXIS) return false;
        if (c->groups > 1 && c->ic == 1 && c->oc == 1) h->dw = h->dw < 0 ? (i32)i : MAX_CHAIN;
        else if (c->groups > 1) return false;
        if (i && !is_private(g, h->c[i - 1].y, c->x, heavy[i])) return false;
    }
    struct conv *last = &h->c[h->n - 1];
    return (h->n == 2 ? h->dw < MAX_CHAIN : h->dw == 1) && conv_fit(last, t) && last->simple;
}

/* Schedules of the links. */
static struct conv_sched sched_of(const struct chain *h, u32 i, const struct sched *s)
{
    const struct params v = params_of(s);
    const struct conv *c = &h->c[i];
    bool is_last = i + 1 == h->n, is_dw = (i32)i == h->dw;
    struct conv_sched r = {.ty = v.fy, .tx = v.fx, .nr = v.mn};
    if (is_last) r.ty = v.ty, r.tx = v.tx, r.nr = v.nr;
    if (is_dw) r.ty = v.dy, r.tx = v.dx, r.nr = v.mn;
    if (is_last) r.th = v.th, r.tw = v.tw;
    r.stage = STAGE_PIXELS;
    if (i == 0 && !is_dw && conv_input_layout(c) != LAYOUT_CLAST) r.stage = STAGE_PLANES;
    if (i == 0 && !is_dw && c->plain && c->point) r.stage = STAGE_DIRECT;
    r.ku = c->ic >= 8 ? 2 : 1;
    return r;
}

/* Emission. */

struct link {
    struct band b;
    struct scratch to;
};

/* Rows (or columns) of input that so many of output need. */
static sym span(struct symtab *t, const struct conv *c, u32 a, sym out)
{
    sym steps = sym_mul(t, sym_sub(t, out, sym_const(t, 1)), sym_const(t, c->stride[a]));
    return sym_add(t, steps, sym_const(t, (c->k[a] - 1) * c->dil[a] + 1));
}

static sym whole_tiles(struct symtab *t, sym n, i64 tile)
{
    return sym_mul(t, sym_cdiv(t, n, sym_const(t, tile)), sym_const(t, tile));
}

/* The largest band of link i, which link i + 1 reads. */
static void size_band(struct link *l)
{
    struct band *b = &l->b, *next = &l[1].b;
    struct symtab *t = b->m->g->sym;
    b->y_tile = whole_tiles(t, span(t, &next->c, Y_AXIS, next->y_tile), b->s.ty);
    b->x_tile = whole_tiles(t, span(t, &next->c, X_AXIS, next->x_tile), b->s.tx);
    next->spare_y = b->s.ty - 1, next->spare_x = b->s.tx - 1;
    next->is_inner = true;
}

/* Along one axis: what the next link's tiles from..to-1 read, as far as it exists. Returns the
 * index of the first element of its band. */
static kval range(const struct band *next, u32 a, i64 tile, kval *from, kval *to)
{
    struct kir *k = next->m->k;
    const struct conv *c = &next->c;
    kval n = kir_add_i(k, kir_sub(k, *to, *from), tile - 1);
    n = kir_mul_i(k, kir_div_i(k, n, tile), tile);
    kval first = kir_sub(k, kir_mul_i(k, *from, c->stride[a]), emit_size(next->m, c->pad[a]));
    n = kir_add_i(k, kir_mul_i(k, kir_add_i(k, n, -1), c->stride[a]), (c->k[a] - 1) * c->dil[a] + 1);
    *from = kir_max(k, first, kir_int(k, 0));
    *to = kir_min(k, kir_add(k, first, n), emit_size(next->m, c->in[a]));
    return first;
}

/* What link i computes in this iteration, and where it goes. */
static void open_link(struct link *l)
{
    struct band *b = &l->b, *next = &l[1].b;
    struct kir *k = b->m->k;
    memcpy(b->pos, next->pos, sizeof b->pos);
    b->y0 = next->y0, b->y1 = next->y1, b->x0 = next->x0, b->x1 = next->x1;
    l->to = (struct scratch){.v = next->c.x, .buf = next->work};
    l->to.origin[1] = kir_int(k, 0), l->to.step[1] = kir_int(k, 1);
    l->to.origin[Y_AXIS] = range(next, Y_AXIS, next->s.ty, &b->y0, &b->y1);
    l->to.origin[X_AXIS] = range(next, X_AXIS, next->s.tx, &b->x0, &b->x1);
    l->to.step[Y_AXIS] = next->step[Y_AXIS], l->to.step[X_AXIS] = next->step[X_AXIS];
    b->to = &l->to;
    b->group = kir_int(k, 0);
    band_alloc(b);
}

static void walk_all(struct band *b)
{
    if (b->s.stage != STAGE_DIRECT) band_fill(b);
    conv_walk(b, kir_int(b->m->k, 0), kir_int(b->m->k, b->n_blocks));
}

/* The depthwise link, and what stands in front of it, block by block. */
static void walk_blocks(const struct chain *h, struct link *l)
{
    struct kir *k = l->b.m->k;
    kval none = kir_int(k, 0);
    struct band *dw = &l[h->dw].b;
    if (h->dw == 1 && l->b.s.stage != STAGE_DIRECT) band_fill(&l->b);
    kval block = kir_loop(k, KL_SERIAL, none, kir_int(k, dw->c.groups), 1);
    if (h->dw == 1) {
        l->to.origin[1] = kir_mul_i(k, block, dw->width), l->to.whole = true;
        conv_walk(&l->b, block, kir_add_i(k, block, 1));
    }
    dw_enter(dw, block);
    band_fill(dw);
    dw_walk(dw);
    kir_end(k);
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps,
                 const struct sched *v)
{
    struct link *l = arena_array(m->arena, struct link, MAX_CHAIN);
    struct chain h;
    chain_of(&h, t);
    for (u32 i = 0; i < h.n; i++) {
        struct conv_sched s = sched_of(&h, i, v);
        band_init(&l[i].b, m, &h.c[i], caps, &s);
        if ((i32)i == h.dw) dw_init(&l[i].b, caps);
        else l[i].b.wbuf = conv_pack(&l[i].b);
    }
    emit_args(m);
    for (u32 i = h.n - 1; i-- > 0;) size_band(&l[i]);
    for (u32 i = 0; i < h.n; i++) {
        if (l[i].b.s.stage == STAGE_DIRECT) conv_in_place(&l[i].b);
        else band_layout(&l[i].b);
    }
    struct band *last = &l[h.n - 1].b;
    last->group = band_open(last, 1);
    for (u32 i = h.n - 1; i-- > 0;) open_link(&l[i]);
    if (h.dw >= 0) walk_blocks(&h, l);
    else walk_all(&l[0].b);
    if (h.dw < (i32)h.n - 1) walk_all(last);
    for (u32 i = 0; i < 3; i++) kir_end(m->k);
}

/* Choice. */

struct link_size {
    i64 y, x;       /* pixels that an iteration computes, in whole tiles */
    i64 steps;      /* taps times input channels */
    i64 blocks;     /* of output channels */
    double band;    /* elements of its band, of one block if depthwise; 0: reads in place */
};

struct model {
    const struct chain *h;
    struct link_size l[MAX_CHAIN];
    i64 lanes, iterations;
    double bytes;   /* of scratch */
};

/* Pixels that the next link's so many need, not more than there are, in whole tiles. */
static i64 pixels(const struct conv *next, u32 a, i64 n, i64 tile, const i64 *var)
{
    n = (n - 1) * next->stride[a] + (next->k[a] - 1) * next->dil[a] + 1;
    return round_up(i64_max(1, i64_min(n, gen_eval(next->g, next->in[a], var))), tile);
}

static double band_of(const struct model *m, u32 i, i64 nr)
{
    const struct conv *c = &m->h->c[i];
    const struct link_size *z = &m->l[i];
    double y = (double)(z->y * c->stride[Y_AXIS] + (c->k[Y_AXIS] - 1) * c->dil[Y_AXIS] + 4);
    double x = (double)(z->x * c->stride[X_AXIS] + (c->k[X_AXIS] - 1) * c->dil[X_AXIS] + 14);
    return y * x * (double)((i32)i == m->h->dw ? nr * m->lanes : c->ic);
}

static void model_of(struct model *m, const struct chain *h, const struct caps *caps,
                     const struct sched *v, const i64 *var)
{
    const struct conv *last = &h->c[h->n - 1];
    *m = (struct model){.h = h};
    m->lanes = conv_lanes(last, caps);
    for (u32 i = h->n; i-- > 0;) {
        const struct conv *c = &h->c[i];
        struct conv_sched s = sched_of(h, i, v);
        struct link_size *z = &m->l[i];
        if (i + 1 == h->n) {
            i64 y = ceil_div(i64_max(1, gen_eval(c->g, c->out[Y_AXIS], var)), s.ty);
            i64 x = ceil_div(i64_max(1, gen_eval(c->g, c->out[X_AXIS], var)), s.tx);
            i64 th = s.th ? i64_min(s.th, y) : y, tw = s.tw ? i64_min(s.tw, x) : x;
            z->y = th * s.ty, z->x = tw * s.tx;
            m->iterations = gen_eval(c->g, c->out[0], var) * ceil_div(y, th) * ceil_div(x, tw);
        } else {
            z->y = pixels(&h->c[i + 1], Y_AXIS, m->l[i + 1].y, s.ty, var);
            z->x = pixels(&h->c[i + 1], X_AXIS, m->l[i + 1].x, s.tx, var);
        }
        z->steps = c->k[Y_AXIS] * c->k[X_AXIS] * c->ic;
        z->blocks = ceil_div(c->oc * c->groups, s.nr * m->lanes);
        z->band = s.stage == STAGE_DIRECT ? 0 : band_of(m, i, s.nr);
        m->bytes += 4 * z->band;
    }
}

static bool tiles_fit(const struct chain *h, const struct caps *caps, const struct sched *s)
{
    const struct params v = params_of(s);
    bool first = h->dw != 0, dw = h->dw >= 0, last = h->dw < (i32)h->n - 1;
    if (last != (v.ty > 0) || last != (v.tx > 0) || last != (v.nr > 0)) return false;
    if (last && !tile_is_legal(caps, v.ty * v.tx, v.nr)) return false;
    if (first != (v.fy > 0) || first != (v.fx > 0)) return false;
    if (dw != (v.dy > 0) || dw != (v.dx > 0)) return false;
    if (first && !tile_is_legal(caps, v.fy * v.fx, v.mn)) return false;
    return !dw || (u32)(v.dy * v.dx * v.mn + v.mn + 2) <= caps->n_vector_regs;
}

static bool legal(const struct gen_problem *p, const struct sched *s)
{
    const struct chain *h = p->facts;
    const struct caps *caps = p->c;
    struct model m;
    const struct params v = params_of(s);
    const struct conv *last = &h->c[h->n - 1];
    if (!tiles_fit(h, caps, s)) return false;
    model_of(&m, h, caps, s, NULL);
    for (u32 i = 0; i < h->n; i++) {
        const struct conv *c = &h->c[i];
        i64 nr = sched_of(h, i, s).nr;
        if (nr > 1 && (nr - 1) * m.lanes >= c->oc * c->groups) return false;
    }
    if (h->dw >= 0 && m.l[h->dw].steps * v.dy * v.dx * v.mn > 1500) return false;
    i64 y = gen_eval(last->g, last->out[Y_AXIS], NULL);
    i64 x = gen_eval(last->g, last->out[X_AXIS], NULL);
    struct conv_sched r = sched_of(h, h->n - 1, s);
    if ((r.th > 1 && (r.th - 1) * r.ty >= y) || (r.tw > 1 && (r.tw - 1) * r.tx >= x)) return false;
    return m.bytes <= 2 * (double)caps->l2_bytes;
}

static bool analyze(const struct gen_problem *p) { return !p->c->is_gpu && p->c->vector_bytes >= 8 && chain_of(p->facts, p->t); }

static bool least(const struct gen_problem *p, u32 k, struct sched *s)
{
    const struct chain *h = p->facts;
    bool first = h->dw != 0, dw = h->dw >= 0, last = h->dw < (i32)h->n - 1;
    *s = (struct sched){.v = {[P_ty] = last, [P_nr] = last, [P_th] = 1, [P_tw] = 1, [P_fy] = first, [P_dy] = dw, [P_mn] = 1}};
    s->v[P_tx] = param[P_tx].values[last], s->v[P_fx] = param[P_fx].values[first], s->v[P_dx] = param[P_dx].values[dw];
    return k == 0;
}

/* Cycles that copying the first link's band takes: vectors of each block, or elements. front: of a vector's prologue. */
static double fill_cycles(const struct model *m, const struct conv_sched *s, double front)
{
    const struct conv *c = &m->h->c[0];
    const struct link_size *z = &m->l[0];
    double each = front / (double)m->lanes;
    if (m->h->dw == 0) return (2.5 / (double)m->lanes + each) * z->band * (double)z->blocks;
    if (s->stage == STAGE_PLANES) return (0.4 + each) * z->band;
    return z->band * ((c->plain ? 0.2 : c->ic < 16 ? 1.5 : 0.5) + each);
}

/* Cycles of a register tile of link i, stores included. */
static double tile_cycles(const struct model *m, u32 i, const struct conv_sched *s, const struct gen_problem *p)
{
    const struct conv *c = &m->h->c[i];
    double acc = (double)(s->ty * s->tx * s->nr), steps = (double)m->l[i].steps;
    if ((i32)i == m->h->dw) {
        double footprint = (double)(((s->tx - 1) * c->stride[X_AXIS] + c->k[X_AXIS]) *
                               ((s->ty - 1) * c->stride[Y_AXIS] + c->k[Y_AXIS]) * s->nr);
        double fma = steps * acc / 2, load = (footprint + steps * acc * 0.7) / 2;
        return (fma > load ? fma : load) + 4 * acc + 20;
    }
    double weights = steps * (double)(s->nr * m->lanes) * 4;
    double stream = weights <= (double)p->c->l1_bytes / 2 ? 0 : weights / 40;
    return steps * (nest_step(p->nest, s->ty * s->tx, s->nr) / p->nest->work + 0.5 / (double)s->ku) +
           12.0 * (double)c->k[Y_AXIS] + acc * (c->by_rows ? 3.0 * (double)m->lanes : 3) + stream;
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct chain *h = p->facts;
    const struct caps *caps = p->c;
    const i64 *var = p->var;
    struct model m;
    model_of(&m, h, caps, v, var);
    const struct conv *first = &h->c[0], *last = &h->c[h->n - 1];
    double cycles = 300;
    double bytes = 4 * (gen_count(first->g, first->x, var) + gen_count(last->g, last->y, var));
    for (u32 i = 0; i < h->n; i++) {
        const struct link_size *z = &m.l[i];
        struct conv_sched s = sched_of(h, i, v);
        double tiles = (double)(z->y / s.ty * (z->x / s.tx) * z->blocks);
        cycles += tiles * tile_cycles(&m, i, &s, p);
        if (i == 0) cycles += fill_cycles(&m, &s, gen_problem_front(p, 0) / 2);
        bytes += 4 * gen_count(h->c[i].g, h->c[i].w, var);
    }
    if (m.bytes > 0.7 * (double)caps->l2_bytes) cycles += m.bytes / 8;
    double per_thread = (double)ceil_div(m.iterations, i64_max(1, caps->n_threads));
    return 2e-6 + cycles * per_thread * p->nest->work + 0.3 * bytes * p->nest->line[RATE_DRAM];
}

const struct gen gen_conv_chain = {
    GEN_FAMILY("conv_chain", 7), .chains = true, .facts = sizeof(struct chain), .analyze = analyze,
    .least = least, .legal = legal, .emit = emit, .predict = predict,
};
