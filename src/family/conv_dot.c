// SPDX-License-Identifier: Apache-2.0
//
// conv_dot: convolution with few output channels whose input lies with channels last: a vector holds input channels (gen/tile_terms.c).
// The schedules and which of them is good.
#include "gen/cpu.h"
#include "gen/nest.h"

// clang-format off
#define PARAMS(P)                                                        \
    P(ty, "rows of the register tile", 1, 2, 3, 4)                       \
    P(tx, "pixels of a row of the register tile", 1, 2, 4, 8)            \
    P(th, "tiles per band in y, 0 = all", 0, 1, 2, 4, 8, 16)             \
    P(tw, "vectors of pixels per band in x, 0 = all", 0, 1, 2, 4, 8, 16)
// clang-format on
GEN_PARAMS(PARAMS)

GEN_PARAM_READER(struct conv_sched, read_sched, PARAMS)

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *v)
{
    const struct conv_sched s = read_sched(v);
    conv_emit_vectors(m, t, caps, &s);
}

struct sizes { i64 lanes, nx, ny, tw, th, taps, outer; double rows, band; }; /* of the band: rows, elements */

static struct sizes sizes_of(const struct conv *c, const struct caps *caps, const struct conv_sched *v, const i64 *var)
{
    struct sizes s = {.lanes = conv_lanes(c, caps), .taps = 1, .outer = 1};
    double rest = 1;
    for (u32 a = 0; a < c->rank; a++) {
        s.taps *= c->k[a];
        if (a == 1 || (i32)a == c->xa || (i32)a == c->ya) continue;
        s.outer *= gen_eval(c->g, c->out[a], var);
        rest *= (double)c->k[a];
    }
    i64 y = c->ya >= 0 ? gen_eval(c->g, c->out[c->ya], var) : 1, ty = v->ty;
    s.nx = i64_max(1, ceil_div(gen_eval(c->g, c->out[c->xa], var), s.lanes));
    s.ny = i64_max(1, ceil_div(y, ty)); /* empty images, too */
    s.tw = v->tw ? i64_min(v->tw, s.nx) : s.nx;
    s.th = v->th ? i64_min(v->th, s.ny) : s.ny;
    s.rows = rest;
    if (c->ya >= 0)
        s.rows *= (double)(s.th * ty * c->stride[c->ya] + c->k[c->ya] * c->dil[c->ya]);
    s.band = s.rows * (double)c->ic *
             (double)(s.tw * s.lanes * c->stride[c->xa] + c->k[c->xa] * c->dil[c->xa]);
    return s;
}

static bool analyze(const struct gen_problem *p)
{
    struct conv *c = p->facts;
    if (p->c->is_gpu || p->c->vector_bytes < 16 || !conv_of(c, p->t)) return false;
    return c->simple && c->groups == 1 && c->oc <= TILE_COLUMNS && c->xa >= 2 && 2 * c->ic >= conv_lanes(c, p->c) &&
           conv_input_layout(c) == LAYOUT_CLAST;
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct conv *c = p->facts;
    const struct caps *caps = p->c;
    const struct conv_sched s = read_sched(v);
    i64 pixels = s.ty * s.tx, n_vec = ceil_div(c->ic, conv_lanes(c, caps));
    if (s.tx > conv_lanes(c, caps) || pixels * c->oc + c->oc + 1 > caps->n_vector_regs)
        return false;
    if (n_vec <= CONV_VECTORS && n_vec * pixels * c->oc > 600) return false;
    if (sizes_of(c, caps, &s, NULL).band * 4 > 4 * (double)caps->l2_bytes + 1e6) return false;
    return c->ya >= 0 || (s.ty == 1 && s.th == 1);
}

/* Some schedule must do. */
static bool least(const struct gen_problem *p, u32 k, struct sched *s)
{
    *s = (struct sched){.v = {[P_ty] = 1, [P_tx] = 1, [P_th] = 1, [P_tw] = 1}};
    return k == 0;
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct conv *c = p->facts;
    const struct caps *caps = p->c;
    const i64 *var = p->var;
    const struct conv_sched own = read_sched(v);
    struct sizes s = sizes_of(c, caps, &own, var);
    double lanes = (double)s.lanes;
    i64 pixels = own.ty * own.tx, acc = pixels * c->oc;
    double fma = (double)acc / 2, load = (double)(pixels + c->oc) / 2, one = fma > load ? fma : load;
    double steps = (double)(s.taps * ceil_div(c->ic, s.lanes));
    double tile = steps * ((one > 4 ? one : 4) + 0.5) + 4 * (double)acc + 10;
    double group = tile * lanes / (double)own.tx + 10 * (double)(own.ty * c->oc) + 20;
    double front = gen_problem_front(p, 0) / 2 / lanes;
    double iteration = group * (double)(s.tw * s.th) + s.band * ((c->plain ? 0.2 : 0.6) + front) + 150 * s.rows + 300;
    if (s.band * 4 > (double)caps->l2_bytes * 0.6) iteration += s.band / 8; /* written and read once each, in a row */
    double n = (double)(s.outer * ceil_div(s.nx, s.tw) * ceil_div(s.ny, s.th));
    double per_thread = (double)ceil_div((i64)n, i64_max(1, caps->n_threads));
    double bytes = 4 * (gen_count(c->g, c->x, var) + gen_count(c->g, c->y, var));
    return 2e-6 + iteration * per_thread * p->nest->work + 0.3 * bytes * p->nest->line[RATE_DRAM];
}

const struct gen gen_conv_dot = {
    GEN_FAMILY("conv_dot", 4), .sums = SUMS_IN_PARTS, .facts = sizeof(struct conv),
    .analyze = analyze, .least = least, .legal = legal, .emit = emit, .predict = predict,
};
