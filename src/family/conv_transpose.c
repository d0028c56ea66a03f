// SPDX-License-Identifier: Apache-2.0
//
// conv_transpose: transposed convolution phase by phase (gen/cpu_addr_phases.c): the schedules and which of them is good.
#include "gen/cpu.h"

// clang-format off
#define PARAMS(P)                                                                   \
    P(tx, "pixels of one phase of the register tile", 1, 2, 4, 6, 7, 8, 12, 14, 28) \
    P(nr, "vectors of output channels of the register tile", 1, 2, 3, 4, 6)         \
    P(th, "rows of input positions per grid iteration", 1, 2, 4, 8, 16)             \
    P(tw, "tiles per grid iteration along x, 0 = all", 0, 1, 2, 4, 8)               \
    P(ob, "blocks of output channels per grid iteration, 0 = all", 0, 1, 2, 4)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct phases_sched, params_of, PARAMS)

static bool analyze(const struct gen_problem *p) { return !p->c->is_gpu && p->c->vector_bytes >= 8 && phases_of(p->facts, p->t); }

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    const struct phases_sched v = params_of(s);
    phases_emit(m, t, caps, &v);
}

static double band_bytes(const struct trans *c, struct phases_sched v, const i64 *var)
{
    const struct trans_axis *x = &c->ax[c->rank - 1];
    double n = (double)(c->ic * (v.tw ? v.tw * v.tx : gen_eval(c->g, x->n_q, var)) +
                        v.tx + x->hi - x->lo);
    for (u32 a = 2; a + 1 < c->rank; a++)
        n *= (double)((a + 2 == c->rank ? v.th : 1) + c->ax[a].hi - c->ax[a].lo);
    return n * (double)dtype_size(c->type);
}

static bool is_legal(const struct trans *c, const struct caps *caps, struct phases_sched v)
{
    i64 lanes = gen_lanes(caps, c->type), blocks = ceil_div(c->oc, v.nr * lanes);
    const struct trans_axis *x = &c->ax[c->rank - 1];
    if (!tile_is_legal(caps, v.tx, v.nr) || (v.nr > 1 && (v.nr - 1) * lanes >= c->oc))
        return false;
    if ((v.ob && v.ob >= blocks) || (c->rank == 3 && v.th > 1)) return false;
    if (v.tx > 1 && v.tx / 2 >= gen_static(c->g, x->n_q, 1 << 20)) return false;
    return v.tx * v.tw * v.th == v.tx ||
           band_bytes(c, v, NULL) <= 4 * (double)caps->l2_bytes + 1e6;
}

static bool legal(const struct gen_problem *p, const struct sched *s) { return is_legal(p->facts, p->c, params_of(s)); }

static double seconds(const struct trans *c, const struct caps *caps, struct phases_sched v, const i64 *var)
{
    double lanes = gen_lanes(caps, c->type),
           hz = gen_flop_rate(caps) / (4 * gen_lanes(caps, DT_F32));
    const struct trans_axis *x = &c->ax[c->rank - 1];
    i64 nx = i64_max(1, gen_eval(c->g, x->n_q, var)), tiles = ceil_div(nx, v.tx),
        tw = v.tw ? i64_min(v.tw, tiles) : tiles;
    i64 blocks = ceil_div(c->oc, v.nr * (i64)lanes), ob = v.ob ? v.ob : blocks;
    double taps = 1, phases = 1,
           n = (double)(c->groups * ceil_div(blocks, ob) * ceil_div(tiles, tw));
    n *= (double)gen_eval(c->g, graph_value(c->g, c->x)->shape.dim[0], var);
    for (u32 a = 2; a < c->rank; a++) {
        i64 nq = i64_max(1, gen_eval(c->g, c->ax[a].n_q, var));
        taps *= (double)c->ax[a].k, phases *= (double)c->ax[a].s;
        n *= a + 1 == c->rank ? 1 : a + 2 == c->rank ? (double)ceil_div(nq, v.th) : (double)nq;
    }
    double rows = c->rank > 3 ? (double)v.th : 1, acc = (double)(v.tx * v.nr);
    double per_tile = taps * (double)c->ic * (tile_step_cycles(v.tx, v.nr) + 0.3) +
                      phases * (4 * acc * (c->clast ? 1 : 6) + 30);
    double weights = taps * (double)(c->ic * v.nr) * 4 * lanes; /* bytes of a block, all phases: streamed for each tile */
    if (weights / phases > (double)caps->l1_bytes / 2)
        per_tile += weights / (weights / phases > (double)caps->l2_bytes * 0.7 ? 12 : 40);
    double band = band_bytes(c, v, var) / (4 * lanes) * 3 * (phases_read_clast(c) ? 1 : 6);
    if (band_bytes(c, v, var) > (double)caps->l2_bytes / 2) per_tile *= 1.3;
    double rounds = (double)ceil_div((i64)n, i64_max(1, caps->n_threads));
    double bytes = 4 * (gen_count(c->g, c->y, var) +
                        gen_count(c->g, c->x, var) * (double)ceil_div(blocks, ob));
    return 2e-6 + ((double)(tw * ob) * rows * per_tile + band + 300) * rounds / hz +
           0.3 * bytes / gen_byte_rate(caps);
}

static double predict(const struct gen_problem *p, const struct sched *s) { return seconds(p->facts, p->c, params_of(s), p->var); }

const struct gen gen_conv_transpose = {
    .version = 1,
    .name = "conv_transpose",
    .revision = 3,
    .param = param,
    .n_param = N_PARAM,
    .facts = sizeof(struct trans),
    .analyze = analyze,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
