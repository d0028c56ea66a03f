// SPDX-License-Identifier: Apache-2.0
//
// wg_elementwise: any task by workgroups, every output computed element by element in a grid of
// its own, everything inlined (gen/wg_elementwise.c). It is the fallback that makes every graph run, and
// the right family for pointwise tasks, views, layout changes, resizing and small windows.
// Reductions and products are recomputed per element by their operators' own loops. What is not
// computed element by element (scatter, top-k) is left to `elementwise`.
#include "gen/wg_cost.h"

#include <math.h>

enum {
    MAX_PIECE = 32, /* bytes */
};

static const double instructions = 2.5; /* for an operation: most of them are none of the arithmetic */

// clang-format off
#define WALK_PARAMS(P)                                                                                                         \
    P(axis, "fused axes that threads run along, counted from the innermost in memory", 0, 1, 2)                            \
    P(vec, "elements of a thread's piece", 1, 2, 4, 8)                                                                         \
    P(row, "threads along these axes, the others in further rows, 0 = without gaps", 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512) \
    P(rep, "pieces per thread", 1, 2, 4, 8)                                                                                    \
    P(stage, "1: stored along the innermost axes, through shared memory", 0, 1)
// clang-format on
#define PARAMS(P) P(threads, "threads of a workgroup", 32, 64, 128, 256, 512) WALK_PARAMS(P)
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)
GEN_PARAM_READER(struct wg_elementwise, walk_of, WALK_PARAMS)

static bool match(const struct gen_problem *p)
{
    for (node_id n = 1; n < p->t->g.node.n; n++)
        if (op_of(&p->t->g, n)->props & OP_WHOLE) return false;
    return p->c->is_gpu && p->t->g.output.n > 0;
}

/* The output with the most runs of fused axes and their number; 0: all are blocked, which has one walk
   only. size: of the widest element. */
static u32 most_groups(const struct task *t, value_id *v, i64 *size)
{
    u32 most = 0;
    *size = 1;
    *v = t->g.output.v[0];
    for (u32 i = 0; i < t->g.output.n; i++) {
        const struct value *x = graph_value(&t->g, t->g.output.v[i]);
        struct space s;
        space_of(&s, &t->g, t->g.output.v[i], NULL, 0);
        *size = i64_max(*size, dtype_size(x->dtype));
        if (layout_block(x->layout) > 1 || s.n <= most) continue;
        most = s.n;
        *v = t->g.output.v[i];
    }
    return most;
}

static void initial(const struct gen_problem *p, struct sched *s)
{
    const struct task *t = p->t;
    i64 size, threads = i64_min(256, i64_max(32, p->c->max_group));
    value_id v;
    struct wg_elementwise d = {.vec = 1, .rep = 1};
    if (most_groups(t, &v, &size)) gen_wg_elementwise_default(t, v, threads, &d);
    const i64 want[N_PARAM] = {threads, d.axis, i64_min(d.vec, MAX_PIECE / size),
                               d.row,   d.rep,  d.stage};
    for (u32 i = 0; i < N_PARAM; i++) s->v[i] = gen_nearest(&param[i], want[i]);
}

/* Parameters without effect have one value only. */
static bool legal(const struct gen_problem *p, const struct sched *s)
{
    const struct task *t = p->t;
    const struct caps *c = p->c;
    const struct params v = params_of(s);
    value_id widest;
    i64 size, n = most_groups(t, &widest, &size), threads = v.threads, row = v.row;
    if (threads > i64_max(32, c->max_group) || v.vec * size > MAX_PIECE) return false;
    if (v.axis >= i64_max(n, 1) || row > threads) return false;
    if (!n && (v.vec != 1 || v.rep != 1 || row)) return false;
    if (n == 1 && row != threads) return false;
    if (!v.stage) return true;
    i64 tile = wg_elementwise_pitch(row * v.vec, DT_F32) * (row ? threads / row : 0) * v.rep;
    return v.axis && row && tile * size <= c->shared_bytes && tile <= 8192;
}

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *s)
{
    const struct wg_elementwise x = walk_of(s);
    m->k->group[0] = (u32)s->v[P_threads];
    emit_args(m);
    for (u32 i = 0; i < t->g.output.n; i++) gen_wg_elementwise_grid(m, t->g.output.v[i], &x, NULL);
}

/* Share of the threads and of the memory's width that an output's walk uses. */
static double efficiency(const struct task *t, value_id out, struct params v, const i64 *var)
{
    const struct graph *g = &t->g;
    struct space sp;
    struct probe p;
    space_of(&sp, g, out, NULL, 0);
    u32 axis = (u32)i64_min(v.axis, sp.n - 1), e = sp.n - 1 - axis;
    space_probe(&p, t, &sp, out, e, 4);
    double reads = p.n_dense + p.n_gather + 0.2 * p.n_scalar + 1;
    double cost = gen_wg_reads(&p) + (axis && !v.stage ? 4 : 1);
    i64 n = gen_eval(g, sp.g[e].extent, var), step = (v.row ? v.row : 1) * v.vec;
    double used = (double)n / (double)round_up(i64_max(n, 1), step);
    double width = p.n_gather && v.vec > 1 ? 0.5 : 1; /* pieces that are not read as a whole */
    return reads / cost * width * (used > 0 ? used : 1) * (v.row ? 1 : 0.9);
}

static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct task *t = p->t;
    const i64 *var = p->var;
    const struct graph *g = &t->g;
    const struct params w = params_of(s);
    double bytes = 0, seconds = 0;
    for (u32 i = 0; i < g->input.n; i++) bytes += gen_bytes(g, g->input.v[i], var);
    for (u32 i = 0; i < g->output.n; i++) {
        value_id v = g->output.v[i];
        double n = gen_count(g, v, var), all = bytes + gen_bytes(g, v, var), each = (double)(w.vec * w.rep * w.threads);
        struct wg_facts f = {.workgroups = fmax(1, ceil(n / each)), .threads = w.threads, .ilp = (double)(w.vec * w.rep)};
        f.step = (struct wg_work){.instructions = n / f.workgroups * instructions * gen_work(t, v, var), .moved = all / f.workgroups, .barriers = w.stage};
        f.bytes = all / efficiency(t, v, w, var);
        seconds += wg_seconds(p, &f);
        bytes = 0;
    }
    return seconds;
}

const struct gen gen_wg_elementwise = {
    GEN_FAMILY("wg_elementwise", 5), .sums = SUMS_BY_ELEMENT, .match = match, .initial = initial,
    .legal = legal, .emit = emit, .predict = predict,
};
