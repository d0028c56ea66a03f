// SPDX-License-Identifier: Apache-2.0
//
// conv_dw: depthwise convolution (one input and one output channel per group), channels vectorised.
// A grid iteration takes a block of nr vectors of channels and a band of rows, copied to scratch
// with its zeros (gen_band.c), and runs register tiles of ty x tx pixels over it: every element of
// the tile's footprint is loaded once and added to all accumulators that it meets. Weights are
// packed [block][taps][channel].
#include "gen/gen_conv.h"

enum { P_TY, P_TX, P_NR, P_TH, P_TW, N_PARAM };

static const i32 v_ty[] = {1, 2, 3, 4};
static const i32 v_tx[] = {1, 2, 4, 6, 7, 8, 14};
static const i32 v_nr[] = {1, 2, 3, 4};
static const i32 v_th[] = {0, 1, 2, 4, 7, 8, 16, 28};
static const i32 v_tw[] = {0, 1, 2, 4, 8, 16};

static const struct gen_param param[N_PARAM] = {
    [P_TY] = {"ty", "rows of the register tile", v_ty, countof(v_ty)},
    [P_TX] = {"tx", "pixels of a row of the register tile", v_tx, countof(v_tx)},
    [P_NR] = {"nr", "vectors of channels of the register tile", v_nr, countof(v_nr)},
    [P_TH] = {"th", "tiles per band in y, 0 = all", v_th, countof(v_th)},
    [P_TW] = {"tw", "tiles per band in x, 0 = all", v_tw, countof(v_tw)},
};

static struct conv_sched sched_of(const struct sched *s)
{
    const i32 *v = s->v;
    return (struct conv_sched){.ty = v[P_TY],
                               .tx = v[P_TX],
                               .nr = v[P_NR],
                               .th = v[P_TH],
                               .tw = v[P_TW],
                               .stage = STAGE_PIXELS,
                               .ku = 1};
}

static bool match(const struct task *t, const struct caps *caps)
{
    struct conv c;
    return !caps->is_gpu && caps->vector_bytes >= 8 && conv_of(&c, t) && c.groups > 1 &&
           c.ic == 1 && c.oc == 1 && c.simple;
}

static kval pack_weights(struct band *b)
{
    struct symtab *t = b->m->g->sym;
    struct pack *p = arena_new(b->m->arena, struct pack);
    p->dim[p->n].extent = sym_const(t, b->c.groups), p->dim[p->n].axis = 0,
    p->dim[p->n++].stride = b->width;
    for (u32 a = 2; a < b->c.rank; a++)
        p->dim[p->n].extent = sym_const(t, b->c.k[a]), p->dim[p->n].axis = a,
        p->dim[p->n++].stride = 1;
    p->dim[p->n].extent = sym_const(t, b->width), p->dim[p->n].axis = 0, p->dim[p->n++].stride = 1;
    return emit_pack(b->m, b->c.w, p);
}

/* Which tap joins input position `in` with output pixel `out` of the tile along an axis? -1: none.
 */
static i64 tap_between(const struct conv *c, i32 axis, i64 in, i64 out)
{
    i64 d = in - out * c->stride[axis];
    return d >= 0 && d % c->dil[axis] == 0 && d / c->dil[axis] < c->k[axis] ? d / c->dil[axis] : -1;
}

struct taps {
    struct band *b;
    kval at, w_at;
    i64 w_step[MAX_RANK];
};

/* The element at (r, q) of the footprint to all accumulators. */
static void add_element(const struct taps *x, i64 r, i64 q, i64 j)
{
    struct band *b = x->b;
    struct kir *k = b->m->k;
    kval in = 0;
    for (i64 dy = 0; dy < b->s.ty; dy++)
        for (i64 dx = 0; dx < b->s.tx; dx++) {
            i64 ky = b->ya >= 0 ? tap_between(&b->c, b->ya, r, dy) : 0,
                kx = b->xa >= 0 ? tap_between(&b->c, b->xa, q, dx) : 0;
            if (ky < 0 || kx < 0) continue;
            if (!in) {
                kval at = kir_add_i(k, x->at, j * b->lanes);
                if (b->ya >= 0) at = kir_add(k, at, kir_mul_i(k, b->step[b->ya], r));
                if (b->xa >= 0) at = kir_add(k, at, kir_mul_i(k, b->step[b->xa], q));
                in = kir_load(k, b->work, kir_ramp(k, at, 1, b->lanes));
            }
            i64 off =
                (b->ya >= 0 ? ky * x->w_step[b->ya] : 0) + (b->xa >= 0 ? kx * x->w_step[b->xa] : 0);
            kval w = kir_load(k, b->wbuf,
                              kir_ramp(k, kir_add_i(k, x->w_at, off + j * b->lanes), 1, b->lanes));
            kval slot = kir_int(k, (dy * b->s.tx + dx) * b->s.nr + j);
            kir_store(k, b->t.acc, slot,
                      kir_fma(k, in, kir_cast(k, b->type, w), kir_load(k, b->t.acc, slot)));
        }
}

static void product(struct band *b, kval at, kval w_at)
{
    struct kir *k = b->m->k;
    struct conv *c = &b->c;
    struct taps x = {.b = b};
    i64 size = b->width;
    u32 loops = 0;
    for (u32 a = c->rank; a-- > 2;) {
        x.w_step[a] = size;
        size *= c->k[a];
    }
    for (u32 a = 2; a < c->rank; a++) {
        if ((i32)a == b->xa || (i32)a == b->ya || c->k[a] == 1) continue;
        kval tap = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, c->k[a]), 1);
        at = kir_add(k, at, kir_mul(k, tap, b->step[a]));
        w_at = kir_add(k, w_at, kir_mul_i(k, tap, x.w_step[a]));
        loops++;
    }
    x.at = at, x.w_at = w_at;
    i64 rows =
        b->ya >= 0 ? (b->s.ty - 1) * c->stride[b->ya] + (c->k[b->ya] - 1) * c->dil[b->ya] + 1 : 1;
    i64 cols =
        b->xa >= 0 ? (b->s.tx - 1) * c->stride[b->xa] + (c->k[b->xa] - 1) * c->dil[b->xa] + 1 : 1;
    for (i64 r = 0; r < rows; r++)
        for (i64 q = 0; q < cols; q++)
            for (i64 j = 0; j < b->s.nr; j++) add_element(&x, r, q, j);
    while (loops--) kir_end(k);
}

static void tile_at(struct band *b, kval y, kval x)
{
    struct emit *m = b->m;
    struct kir *k = m->k;
    struct conv *c = &b->c;
    kval init[8], ch = kir_mul_i(k, b->group, b->width), at = kir_int(k, 0);
    kval end = b->channels ? kir_add(k, ch, b->channels) : 0;
    i64 taps = b->width;
    for (u32 a = 2; a < c->rank; a++) taps *= c->k[a];
    for (i64 j = 0; c->b && j < b->s.nr; j++) {
        kval i = kir_add_i(k, ch, j * b->lanes), idx = kir_ramp(k, i, 1, b->lanes);
        emit_limit(m, end ? kir_sub(k, end, i) : 0);
        init[j] = kir_splat(k, kir_cast(k, b->type, emit_value(m, c->b, &idx)), b->lanes);
    }
    emit_limit(m, 0);
    tile_clear(&b->t, c->b ? init : NULL);
    if (b->ya >= 0)
        at = kir_mul(k, kir_mul_i(k, kir_sub(k, y, b->y0), c->stride[b->ya]), b->step[b->ya]);
    if (b->xa >= 0)
        at = kir_add(
            k, at,
            kir_mul(k, kir_mul_i(k, kir_sub(k, x, b->x0), c->stride[b->xa]), b->step[b->xa]));
    product(b, at, kir_mul_i(k, b->group, taps));
    struct tile_out o = band_target(b, y, x);
    o.c = ch, o.c_end = end;
    tile_store(&b->t, &o);
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps,
                 const struct sched *v)
{
    struct band *b = arena_new(m->arena, struct band);
    struct conv_sched s = sched_of(v);
    struct kir *k = m->k;
    band_init(b, m, t, caps, &s);
    i64 channels = b->c.groups;
    b->c.ic = b->width; /* the band holds a block of channels */
    b->c.groups = ceil_div(channels, b->width);
    b->wbuf = pack_weights(b);
    emit_args(m);
    band_layout(b);
    b->group = band_open(b, b->c.groups);
    if (channels % b->width)
        b->channels = kir_sub(k, kir_int(k, channels), kir_mul_i(k, b->group, b->width));
    band_fill(b);
    kval y = b->ya >= 0 ? kir_loop(k, KL_SERIAL, b->y0, b->y1, s.ty) : kir_int(k, 0);
    kval x = b->xa >= 0 ? kir_loop(k, KL_SERIAL, b->x0, b->x1, s.tx) : kir_int(k, 0);
    tile_at(b, y, x);
    for (u32 i = 0; i < 3u + (b->ya >= 0) + (b->xa >= 0); i++) kir_end(k);
}

/* Choice. */

struct model {
    struct conv c;
    i64 x, y, outer, taps;
};

static void model_of(struct model *m, const struct task *t, const i64 *var)
{
    conv_of(&m->c, t);
    const struct conv *c = &m->c;
    m->x = c->xa >= 0 ? gen_eval(c->g, c->out[c->xa], var) : 1;
    m->y = c->ya >= 0 ? gen_eval(c->g, c->out[c->ya], var) : 1;
    m->outer = m->taps = 1;
    for (u32 a = 0; a < c->rank; a++) {
        m->taps *= c->k[a];
        if (a != 1 && (i32)a != c->xa && (i32)a != c->ya)
            m->outer *= gen_eval(c->g, c->out[a], var);
    }
}

static bool is_legal(const struct model *m, const struct caps *caps, const struct conv_sched *s)
{
    const struct conv *c = &m->c;
    i64 lanes = gen_lanes(caps, emit_type(graph_value(c->g, c->x)->dtype));
    if (s->ty * s->tx * s->nr + s->nr + 2 > caps->n_vector_regs ||
        m->taps * s->ty * s->tx * s->nr > 1500)
        return false;
    if ((c->ya < 0 && (s->ty > 1 || s->th != 1)) || (c->xa < 0 && (s->tx > 1 || s->tw != 1)))
        return false;
    if (s->nr > 1 && (s->nr - 1) * lanes >= c->groups) return false;
    i64 tx = ceil_div(m->x, s->tx), ty = ceil_div(m->y, s->ty);
    if ((s->th > 1 && s->th > ty) || (s->tw > 1 && s->tw > tx)) return false;
    double w = (double)((s->tw ? s->tw : tx) * s->tx), h = (double)((s->th ? s->th : ty) * s->ty);
    for (u32 a = 2; a < c->rank; a++) { /* rough: halo as large as the kernel */
        if ((i32)a == c->xa) w = w * (double)c->stride[a] + (double)(c->k[a] * c->dil[a]);
        else h = h * (double)c->stride[a] + (double)(c->k[a] * c->dil[a]);
    }
    return w * h * (double)(s->nr * lanes) * 4 <= 4 * (double)caps->l2_bytes + 1e6;
}

static bool legal(const struct task *t, const struct caps *caps, const struct sched *v)
{
    struct conv_sched s = sched_of(v);
    struct model m;
    if (!match(t, caps)) return false;
    model_of(&m, t, NULL);
    return is_legal(&m, caps, &s);
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
    double foot = (double)(((s->tx - 1) * sx + kx) * ((s->ty - 1) * sy + ky) * s->nr),
           acc = (double)(s->tx * s->ty * s->nr);
    double fma = (double)m->taps * acc / 2, load = (foot + (double)m->taps * acc * 0.7) / 2;
    double tile = (fma > load ? fma : load) + 4 * acc + 20;
    double band = (double)((tw * s->tx - 1) * sx + kx) * (double)((th * s->ty - 1) * sy + ky) *
                  (double)s->nr * 2.5;
    double n = (double)(blocks * m->outer * ceil_div(tx, tw) * ceil_div(ty, th));
    double rounds = (double)ceil_div((i64)n, i64_max(1, caps->n_threads));
    if (band * 4 * lanes > (double)caps->l2_bytes / 2) band *= 2;
    double bytes = 4 * (gen_count(c->g, c->x, var) + gen_count(c->g, c->y, var));
    return 2e-6 + ((double)(tw * th) * tile + band + 300) * rounds / hz +
           0.3 * bytes / gen_byte_rate(caps);
}

static double predict(const struct task *t, const struct caps *caps, const struct sched *v,
                      const i64 *var)
{
    struct conv_sched s = sched_of(v);
    struct model m;
    model_of(&m, t, var);
    return seconds(&m, caps, &s, var);
}

static void initial(const struct task *t, const struct caps *caps, const i64 *var,
                    struct sched *out)
{
    struct model m;
    u32 n[N_PARAM] = {countof(v_ty), countof(v_tx), countof(v_nr), countof(v_th), countof(v_tw)},
        at[N_PARAM] = {0};
    double best = 0;
    struct model real;
    model_of(&m, t, NULL);
    model_of(&real, t, var);
    for (;;) {
        struct sched v = {0};
        for (u32 i = 0; i < N_PARAM; i++) v.v[i] = param[i].values[at[i]];
        struct conv_sched s = sched_of(&v);
        double sec = is_legal(&m, caps, &s) ? seconds(&real, caps, &s, var) : 0;
        if (sec > 0 && (best == 0 || sec < best)) best = sec, *out = v;
        u32 i = 0;
        while (i < N_PARAM && ++at[i] == n[i]) at[i++] = 0;
        if (i == N_PARAM) break;
    }
    assert(best > 0);
}

const struct gen gen_conv_dw = {
    .version = 1,
    .name = "conv_dw",
    .revision = 1,
    .param = param,
    .n_param = N_PARAM,
    .match = match,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
