// SPDX-License-Identifier: Apache-2.0
//
// elementwise: any task, every output computed element by element in a grid of its own, everything inlined.
// It is the fallback that makes every graph compile, and the right family for pointwise tasks,
// views, layout conversions, resizing. Reductions and products are recomputed per element by their
// operators' own loops: slow, but correct. Operators that are not computed element by element emit
// the whole kernel themselves.
#include "gen/nest.h"

// clang-format off
#define PARAMS(P)                                                                                                             \
    P(axis, "group of axes that is a vector, counted from the innermost in memory", 0, 1, 2)                                  \
    P(lanes, "lanes of a vector", 1, 4, 8, 16, 32, 64)                                                                        \
    P(unroll, "vectors per step", 1, 2, 4)                                                                                    \
    P(ec, "elements per grid iteration along the vector axis, 0 = all", 0, 8, 16, 32, 64, 128, 512, 1024, 4096, 16384, 65536) \
    P(pb, "indices per grid iteration along the next axis, 0 = all", 0, 1, 4, 8, 16, 32, 64, 256)                             \
    P(ob, "rows of all other axes per grid iteration", 1, 4, 16, 64, 256)                                                     \
    P(edge, "elements at both ends of a row that are done one by one", 0, 1, 2, 4)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct elementwise_sched, sched_of, PARAMS)

static u32 max_groups(const struct task *t)
{
    u32 n = 0;
    for (u32 i = 0; i < t->g.output.n; i++) {
        struct space s;
        space_of(&s, &t->g, t->g.output.v[i], NULL, 0);
        n = s.n > n ? s.n : n;
    }
    return n;
}

static bool is_whole(const struct graph *g, value_id v)
{
    node_id n = graph_value(g, v)->producer;
    return n && (op_of(g, n)->props & OP_WHOLE);
}

/* Operators that emit a kernel themselves do it for outputs of the task only. Devices with groups of
   threads need this family for them alone (see wg_elementwise). */
static bool match(const struct gen_problem *p)
{
    const struct task *t = p->t;
    bool any_whole = false;
    for (node_id n = 1; n < t->g.node.n; n++) {
        if (!(op_of(&t->g, n)->props & OP_WHOLE)) continue;
        any_whole = true;
        const struct node *x = graph_node(&t->g, n);
        for (u32 i = 0; i < x->out.n; i++) {
            bool is_out = !x->out.v[i];
            for (u32 j = 0; j < t->g.output.n; j++)
                is_out = is_out || t->g.output.v[j] == x->out.v[i];
            if (!is_out) return false;
        }
    }
    return (!p->c->is_gpu || any_whole) && t->g.output.n > 0;
}

static void initial(const struct gen_problem *p, struct sched *s)
{
    const struct task *t = p->t;
    struct elementwise_sched d = {.axis = 0, .lanes = 1, .unroll = 1, .ec = 0, .pb = 1, .ob = 1};
    value_id v = t->g.output.v[0];
    if (!is_whole(&t->g, v) && !p->c->is_gpu) gen_elementwise_default(t, p->c, v, NULL, &d);
    const i64 want[N_PARAM] = {d.axis, d.lanes, d.unroll, d.ec, d.pb, d.ob, d.edge};
    for (u32 i = 0; i < N_PARAM; i++) s->v[i] = gen_nearest(&param[i], want[i]);
    if (max_groups(t) < 2) s->v[P_pb] = 1;
    if (s->v[P_pb]) s->v[P_ob] = 1;
}

/* Parameters without effect have one value only. */
static bool legal(const struct gen_problem *p, const struct sched *s)
{
    const struct task *t = p->t;
    const struct caps *c = p->c;
    u32 n = max_groups(t), widest = gen_lanes(c, DT_F32);
    const struct elementwise_sched v = sched_of(s);
    bool scalar = c->is_gpu || is_whole(&t->g, t->g.output.v[0]);
    if (scalar && (v.lanes != 1 || v.ec)) return false;
    if (v.lanes != 1 && v.lanes > widest) return false;
    if (v.axis >= n || (v.lanes == 1 && v.unroll != 1)) return false;
    if (v.edge && (2 * v.edge >= v.lanes || v.ec)) return false;
    if (v.ec && v.ec % (v.lanes * v.unroll)) return false;
    if ((n < 2 && v.pb != 1) || (n < 3 && v.ob != 1)) return false;
    return v.ob == 1 || v.pb == 0; /* rows of all axes are whole rows */
}

enum { PIECE = 256 /* elements of a slice, which vectors and several threads share */ };

static void emit_whole(struct emit *m, const struct task *t, const struct caps *c, const struct node *n)
{
    value_id from;
    for (u32 k = 0; k < n->out.n; k++)
        if (op_copies(m->g, n, k, &from)) gen_elementwise_copy(m, t, c, from, n->out.v[k]);
    m->piece = c->is_gpu ? 1 : PIECE;
    op_find(n->op)->whole(m, n);
}

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *s)
{
    const struct elementwise_sched x = sched_of(s);
    node_id done = 0;
    emit_args(m);
    for (u32 i = 0; i < t->g.output.n; i++) {
        value_id out = t->g.output.v[i];
        node_id n = graph_value(&t->g, out)->producer;
        if (!is_whole(&t->g, out)) {
            gen_elementwise_grid(m, out, &x, NULL);
            continue;
        }
        if (n != done) emit_whole(m, t, c, graph_node(&t->g, n));
        emit_padding(m, out);
        done = n;
    }
}

static double all_bytes(const struct gen_problem *p)
{
    const struct graph *g = &p->t->g;
    double bytes = 0;
    for (u32 i = 0; i < g->input.n; i++) bytes += gen_bytes(g, g->input.v[i], p->var);
    for (u32 i = 0; i < g->output.n; i++) bytes += gen_bytes(g, g->output.v[i], p->var);
    return bytes;
}

/* Seconds of the bytes that the task reads and writes, all in the cache that keeps them. */
static double moving(const struct gen_problem *p)
{
    double bytes = all_bytes(p);
    u32 level = RATE_L2;
    while (level < RATE_DRAM && bytes > 2 * p->nest->near[level]) level++;
    return bytes * p->nest->line[level];
}

struct facts { double work; /* operations on all elements of the outputs; 0: not counted yet */ };

/* Whether nothing is summed over, so that what is emitted for an element is all that it takes. */
static bool is_plain(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++)
        if (!(op_of(g, n)->props & (OP_POINTWISE | OP_VIEW)) || op_of(g, n)->props & (OP_WHOLE | OP_HEAVY | OP_REDUCE | OP_WINDOW)) return false;
    return true;
}

/* Small processors may have no better family for a convolution, whose inputs are then evaluated for each term. */
static double work_of(const struct gen_problem *p, value_id v)
{
    enum { ADDRESS = 3 }; /* operations of a term there: both addresses, and the loads */
    if (!p->c->fixed_point) return gen_work(p->t, v, p->var);
    return ADDRESS * gen_work_repeated(p->t, v, p->var, OP_REDUCE | OP_WINDOW | OP_CONV | OP_MATMUL);
}

enum { PLAIN = 2, /* a load and a store, which gen_front leaves out */ UPDATE = 4 /* of an element of any other input, by scalars */ };

/* The node that writes to a copy of a value, which vectors make; 0: the task has none. */
static node_id copying_node(const struct graph *g, value_id *from)
{
    for (node_id n = 1; n < g->node.n; n++)
        if (op_of(g, n)->props & OP_WHOLE && op_copies(g, graph_node(g, n), 0, from)) return n;
    return 0;
}

/* Of the copy and the updates, in operations on vectors, as an elementwise kernel's. */
static double work_of_copy(const struct gen_problem *p, node_id n, value_id from)
{
    const struct graph *g = &p->t->g;
    const struct node *x = graph_node(g, n);
    double lanes = gen_lanes(p->c, graph_value(g, from)->dtype), work = gen_count(g, from, p->var) * (PLAIN + gen_front(g, from)) / lanes;
    for (u32 i = 0; i < x->in.n; i++)
        if (x->in.v[i] && x->in.v[i] != from) work += gen_count(g, x->in.v[i], p->var) * (UPDATE + gen_front(g, x->in.v[i]));
    return work;
}

/* Counted once. */
static double all_work(const struct gen_problem *p)
{
    const struct graph *g = &p->t->g;
    struct facts *f = p->facts;
    for (u32 i = 0, n = f->work == 0 ? g->output.n : 0; i < n; i++) {
        value_id v = g->output.v[i];
        f->work += gen_count(g, v, p->var) * (is_plain(g) && p->nest ? PLAIN + gen_front(g, v) : work_of(p, v));
    }
    return f->work;
}

static double predict(const struct gen_problem *p, const struct sched *s)
{
    double work = all_work(p);
    double grain =
        (double)(s->v[P_ec] ? s->v[P_ec] : 256) * (s->v[P_pb] ? s->v[P_pb] : 64) * s->v[P_ob];
    double threads = grain > 32768 ? 1 : p->c->n_threads, share = (1 + 200 / grain) / i64_max(1, (i64)threads);
    value_id from;
    const node_id copying = p->nest ? copying_node(&p->t->g, &from) : 0;
    if (copying) return 2 * p->nest->launch + nest_both(work_of_copy(p, copying, from) * p->nest->work / 2, moving(p));
    if (p->nest && is_plain(&p->t->g)) return p->nest->launch + nest_both(work / s->v[P_lanes] * p->nest->work / 2, moving(p)) * share;
    double rate = 1e9 * (s->v[P_lanes] > 1 ? 3 : 1);
    return 1e-6 + (work / rate + all_bytes(p) / p->rates.memory[RATE_DRAM].read.one) * share;
}

const struct gen gen_elementwise = {
    GEN_FAMILY("elementwise", 8), .sums = SUMS_BY_ELEMENT, .facts = sizeof(struct facts), .match = match, .initial = initial,
    .legal = legal, .emit = emit, .predict = predict,
};
