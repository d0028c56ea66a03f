// SPDX-License-Identifier: Apache-2.0
//
// conv_transpose: transposed convolution phase by phase (gen/cpu_addr_phases.c): the schedules and which of them is good.
#include "gen/cpu.h"
#include "gen/nest.h"

#include <math.h>

// clang-format off
#define PARAMS(P)                                                                   \
    P(tx, "pixels of one phase of the register tile", 1, 2, 4, 6, 7, 8, 12, 14, 28) \
    P(nr, "vectors of output channels of the register tile, 0 = of input channels", \
      0, 1, 2, 3, 4, 6)                                                             \
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
    i64 lanes = gen_lanes(caps, c->type), columns = v.nr ? v.nr : c->oc, blocks = v.nr ? ceil_div(c->oc, v.nr * lanes) : 1;
    const struct trans_axis *x = &c->ax[c->rank - 1];
    if (!v.nr && (caps->deterministic || !phases_by_terms(c, caps))) return false;
    if (!tile_is_legal(caps, v.tx, columns) || (v.nr > 1 && (v.nr - 1) * lanes >= c->oc)) return false;
    if ((v.ob && v.ob >= blocks) || (c->rank == 3 && v.th > 1)) return false;
    if (v.tx > 1 && v.tx / 2 >= gen_static(c->g, x->n_q, 1 << 20)) return false;
    return v.tx * v.tw * v.th == v.tx ||
           band_bytes(c, v, NULL) <= 4 * (double)caps->l2_bytes + 1e6;
}

static bool legal(const struct gen_problem *p, const struct sched *s) { return is_legal(p->facts, p->c, params_of(s)); }

/* One step of a tile of so many pixels. */
static double step_seconds(const struct nest_rates *r, const struct trans *c, struct phases_sched v, i64 pixels)
{
    double columns = (double)c->oc, n = (double)pixels;
    return v.nr ? nest_step(r, pixels, v.nr) : nest_tap(r, n * columns, n + columns);
}

/* Positions of a phase whose outputs exist, the mean of all phases: as many as all positions or one less. */
static double positions(const struct trans *c, u32 a, const i64 *var)
{
    return fmax(1, (double)gen_eval(c->g, c->ax[a].out, var) / (double)c->ax[a].s);
}

/* A row of n positions in tiles, of which the last one may be smaller: their number, and the mean of their steps. */
struct row_tiles { double n, step; };

static struct row_tiles row_tiles_of(const struct nest_rates *r, const struct trans *c, struct phases_sched v, double n)
{
    i64 whole = (i64)n / v.tx, rest = (i64)ceil(n) - whole * v.tx;
    struct row_tiles t = {(double)whole, (double)whole * step_seconds(r, c, v, v.tx)};
    if (rest > 0) t.n++, t.step += step_seconds(r, c, v, rest);
    t.step /= t.n;
    return t;
}

/* Of a tile of one phase. Stored along x, lanes go to memory one by one, those of an accumulator that holds partial sums are added up first, and the epilogue
   sees whole vectors; else it sees a vector of channels of each pixel, those included that do not exist. */
static double ends_seconds(const struct gen_problem *p, struct phases_sched v, double lanes)
{
    enum { HADD = 8 /* cycles */ };
    const struct trans *c = p->facts;
    const struct nest_rates *r = p->nest;
    double columns = v.nr ? v.nr * lanes : (double)c->oc, cells = v.nr ? v.tx * v.nr : v.tx * columns;
    double exist = fmin(columns, (double)c->oc), vectors = c->clast ? cells : v.tx * exist / lanes;
    return nest_ends(r, cells, c->clast ? 0 : v.nr ? exist / v.nr / 2 : HADD / 3.0) + vectors * gen_problem_back(p) * r->work / 2;
}

/* All phases read the same input, which a band holds, and each its own taps. An iteration has a position more than most
   phases have of it; tiles that leave rows of outputs run over all of them. */
static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct trans *c = p->facts;
    const struct nest_rates *r = p->nest;
    const struct phases_sched v = params_of(s);
    const i64 *var = p->var;
    const u32 xa = c->rank - 1;
    const struct trans_axis *x = &c->ax[xa];
    double lanes = gen_lanes(p->c, c->type), threads = (double)i64_max(1, p->c->n_threads), size = (double)dtype_size(c->type);
    i64 n_x = i64_max(1, gen_eval(c->g, x->n_q, var));
    double parts = v.tw ? (double)ceil_div(n_x, v.tw * v.tx) : 1;
    const struct row_tiles row = row_tiles_of(r, c, v, c->clast ? positions(c, xa, var) : (double)n_x);
    double columns = v.nr ? v.nr * lanes : (double)c->oc, blocks = ceil((double)c->oc / columns), ob = v.ob ? v.ob : blocks, rows = 1;
    double outer = (double)i64_max(1, gen_eval(c->g, graph_value(c->g, c->x)->shape.dim[0], var)), taps = 1, phases = 1, near = 1;
    for (u32 a = 2; a < c->rank; a++) {
        double reach = (double)(c->ax[a].hi - c->ax[a].lo);
        taps *= (double)c->ax[a].k, phases *= (double)c->ax[a].s;
        near *= (a == xa ? v.tx : 1) + reach;
        if (a == xa) continue;
        double bands = a + 1 == xa ? (double)ceil_div(i64_max(1, gen_eval(c->g, c->ax[a].n_q, var)), v.th) : positions(c, a, var);
        if (a + 1 == xa) rows = positions(c, a, var) / bands;
        outer *= bands;
    }
    double group = v.nr ? (double)phases_product(c, p->c).terms : lanes, band = band_bytes(c, v, var);
    double steps = taps / phases * ceil((double)c->ic / group), weights = v.nr ? columns : columns * lanes;
    double iterations = (double)c->groups * ceil(blocks / ob) * parts * outer, tw = row.n / parts;
    struct nest n = {.bytes = {near * (double)c->ic * size, steps * weights * size, v.tx * columns * size}};
    n.seconds = steps * (row.step + 0.3 * r->cycle) + ends_seconds(p, v, lanes) + 20 * r->cycle;
    double vector = (phases_read_clast(c) ? 3 : 10) * r->cycle + gen_problem_front(p, 0) * r->work / 2;
    n.seconds += (band / (size * lanes) * vector + 300 * r->cycle) / (phases * tw * ob * rows);
    double inner = c->clast ? 1 : (double)x->s; /* phases that are gone through at each tile */
    nest_loop(&n, inner, 0, 1, 1);
    nest_loop(&n, tw, v.tx / (v.tx + (double)(x->hi - x->lo)), 0, 1);
    nest_loop(&n, rows, 0.5, 0, 1);
    nest_loop(&n, phases / inner, 0, 1, 1);
    nest_loop(&n, ob, 0, 1, 1);
    nest_loop(&n, parts * outer, 0, 0, 1); /* the scratch memory of a band is the next one's, too */
    nest_loop(&n, ceil(blocks / ob) * (double)c->groups, 0, 1, 1);
    return r->launch + nest_seconds(&n, r) * ceil(iterations / threads) / iterations;
}

const struct gen gen_conv_transpose = {
    GEN_FAMILY("conv_transpose", 7), .facts = sizeof(struct trans), .analyze = analyze,
    .legal = legal, .emit = emit, .predict = predict,
};
