// SPDX-License-Identifier: Apache-2.0
//
// conv_direct: convolution with few output channels: a vector holds pixels of a row (gen/tile_rows.c). The schedules and which of them is good.
#include "gen/cpu.h"
#include "gen/nest.h"

// clang-format off
#define PARAMS(P)                                                       \
    P(ty, "rows of the register tile", 1, 2, 3, 4, 7)                   \
    P(xv, "vectors of pixels along x of the register tile", 1, 2, 3, 4) \
    P(th, "tiles per band in y, 0 = all", 0, 1, 2, 4, 8, 16)            \
    P(tw, "tiles per band in x, 0 = all", 0, 1, 2, 4, 8)
// clang-format on
GEN_PARAMS(PARAMS)

GEN_PARAM_READER(struct conv_sched, read_sched, PARAMS)

static struct conv_sched sched_of(const struct sched *v, i64 lanes)
{
    struct conv_sched s = read_sched(v);
    s.tx = s.xv * lanes, s.nr = 1, s.stage = STAGE_PLANES, s.ku = 1;
    return s;
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *v)
{
    const struct conv_sched s = read_sched(v);
    conv_emit_planes(m, t, caps, &s);
}

/* Elements of the band of one grid iteration. */
static double band_size(const struct conv *c, const struct conv_sched *s, const i64 *var)
{
    i64 x = gen_eval(c->g, c->out[c->xa], var),
        y = c->ya >= 0 ? gen_eval(c->g, c->out[c->ya], var) : 1;
    double w = (double)(s->tw ? s->tw * s->tx : round_up(i64_max(1, x), s->tx));
    double rows = (double)(s->th ? s->th * s->ty : round_up(i64_max(1, y), s->ty));
    if (c->ya >= 0) rows = rows * (double)c->stride[c->ya] + (double)(c->k[c->ya] * c->dil[c->ya]);
    for (u32 a = 2; a < c->rank; a++)
        if ((i32)a != c->xa && (i32)a != c->ya) rows *= (double)c->k[a];
    return rows * (w + (double)(c->k[c->xa] * c->dil[c->xa])) * (double)c->ic;
}

static bool analyze(const struct gen_problem *p)
{
    struct conv *c = p->facts;
    if (p->c->is_gpu || p->c->vector_bytes < 8 || !conv_of(c, p->t)) return false;
    return c->simple && c->groups == 1 && c->oc <= TILE_COLUMNS && c->xa >= 2 && c->stride[c->xa] == 1;
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct conv *c = p->facts;
    const struct conv_sched s = sched_of(v, conv_lanes(c, p->c));
    if (band_size(c, &s, NULL) * 4 > 4 * (double)p->c->l2_bytes + 1e6) return false;
    i64 cells = s.ty * s.xv * c->oc;
    return cells + c->oc + 1 <= p->c->n_vector_regs && c->k[c->xa] * cells <= 400 && (c->ya >= 0 || (s.ty == 1 && s.th == 1));
}

/* Some schedule must do. */
static bool least(const struct gen_problem *p, u32 k, struct sched *s)
{
    *s = (struct sched){.v = {[P_ty] = 1, [P_xv] = 1, [P_th] = 1, [P_tw] = 1}};
    return k == 0;
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct conv *c = p->facts;
    const struct caps *caps = p->c;
    const i64 *var = p->var;
    const struct conv_sched s = sched_of(v, conv_lanes(c, caps));
    double lanes = (double)conv_lanes(c, caps);
    i64 ty = s.ty, xv = s.xv, taps = 1, outer = 1;
    i64 x = gen_eval(c->g, c->out[c->xa], var), y = c->ya >= 0 ? gen_eval(c->g, c->out[c->ya], var) : 1;
    for (u32 a = 0; a < c->rank; a++) {
        taps *= c->k[a];
        if (a != 1 && (i32)a != c->xa && (i32)a != c->ya) outer *= gen_eval(c->g, c->out[a], var);
    }
    i64 nx = i64_max(1, ceil_div(x, xv * (i64)lanes)),
        ny = i64_max(1, ceil_div(y, ty)); /* empty images, too */
    i64 tw = s.tw ? i64_min(s.tw, nx) : nx, th = s.th ? i64_min(s.th, ny) : ny;
    double fma = (double)(ty * xv * c->oc) / 2, load = (double)(ty * xv + c->oc) / 2,
           one = fma > load ? fma : load;
    double tile =
        (double)(taps * c->ic) * ((one > 4 ? one : 4) + 0.5) + 12.0 * (double)(ty * xv * c->oc) + 30;
    double band = band_size(c, &s, var);
    bool transposes = conv_input_layout(c) == LAYOUT_CLAST; /* element by element into planes */
    double front = gen_problem_front(p, 0) / 2 / lanes;
    double iteration = tile * (double)(tw * th) + band * ((transposes ? 4 : 1) + front) + 300;
    if (band * 4 > (double)caps->l2_bytes / 2) iteration += band / 2;
    double n = (double)(outer * ceil_div(nx, tw) * ceil_div(ny, th)),
           per_thread = (double)ceil_div((i64)n, i64_max(1, caps->n_threads));
    double bytes = 4 * (gen_count(c->g, c->x, var) + gen_count(c->g, c->y, var));
    return 2e-6 + iteration * per_thread * p->nest->work + 0.3 * bytes * p->nest->line[RATE_DRAM];
}

const struct gen gen_conv_direct = {
    GEN_FAMILY("conv_direct", 2), .sums = SUMS_IN_PARTS, .facts = sizeof(struct conv),
    .analyze = analyze, .least = least, .legal = legal, .emit = emit, .predict = predict,
};
