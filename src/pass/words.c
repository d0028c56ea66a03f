// SPDX-License-Identifier: Apache-2.0
//
// words: products of bytes become products of i16, for devices that multiply pairs of those exactly (vpmaddwd), but not bytes: their products of bytes
// saturate (vpmaddubsw). Those whose sums are proven not to saturate (acc16) stay products of bytes. Values that products read are stored as i16 less their zero point, so that pads are zeros and no sum has to be corrected; everything
// else reads that form, too. requires: expanded, inferred. ensures: new nodes are inferred.
#include "pass/pass_acc16.h"
#include "pass/pass_linear.h"

struct widener {
    struct graph *g;
    struct err *e;
    bool *ok;
};

static value_id inferred(struct widener *w, value_id v)
{
    *w->ok = *w->ok && op_infer(w->g, op_made(w->g, v), w->e);
    return v;
}

static value_id cast(struct widener *w, node_id like, value_id v, enum dtype t) { return inferred(w, op_node_cast(w->g, like, v, t, 0)); }

static value_id plus(struct widener *w, node_id like, value_id v, enum dtype t, i64 c)
{
    return c ? inferred(w, op_node_binf(w->g, like, "Add", v, t, (double)c, 0)) : v;
}

/* The input of a node of that operator that makes v, with a constant as its other one, if any; 0: v is not made by one. */
static value_id made_by(const struct graph *g, value_id v, const char *op, double *constant)
{
    node_id n = graph_value(g, v)->producer;
    if (!n || !str_is(graph_node(g, n)->op, op)) return 0;
    return op_has_in(graph_node(g, n), 1) && !linear_number(g, graph_node(g, n)->in.v[1], constant) ? 0 : graph_node(g, n)->in.v[0];
}

/* Where v, bytes, is the result of a quantisation (requantise.c): its rounded value, to which *rest is to be added to have v less `zero`. 0: it is none. */
static value_id unclipped(const struct graph *g, value_id v, i64 zero, i64 *rest)
{
    double least = graph_value(g, v)->dtype == DT_U8 ? 0 : -128, added = 0, most = 0, low = 0, none;
    value_id x = made_by(g, v, "Cast", &none), sum = x ? made_by(g, x, "Add", &added) : 0, whole = sum ? sum : x;
    value_id y = whole ? made_by(g, whole, "Round", &none) : 0;
    y = y ? made_by(g, y, "quern::Min", &most) : 0;
    if (!y || !made_by(g, y, "quern::Max", &low) || low != least - added || most != low + 255) return 0;
    *rest = (i64)added - zero;
    return whole;
}

/* v, bytes, as i16 less `zero`. */
static value_id word(struct widener *w, node_id like, value_id v, i64 zero)
{
    i64 rest = -zero;
    value_id x = unclipped(w->g, v, zero, &rest);
    return plus(w, like, cast(w, like, x ? x : v, DT_I16), DT_I16, rest);
}

/* Casts of v to other types read its form as words. */
static void redirect(struct widener *w, value_id v, value_id as_word, i64 zero, node_id end)
{
    struct graph *g = w->g;
    for (node_id n = 1; n < end; n++) {
        const struct node x = *graph_node(g, n);
        if (x.dead || !str_is(x.op, "Cast") || x.in.v[0] != v || graph_is_output(g, x.out.v[0])) continue;
        enum dtype t = graph_value(g, x.out.v[0])->dtype;
        if (t != DT_I32 && t != DT_F32) continue;
        value_id y = cast(w, n, as_word, t);
        for (node_id i = 1; i < end && zero && t == DT_I32; i++) { /* which take the zero point off */
            const struct node s = *graph_node(g, i);
            double c;
            if (s.dead || !str_is(s.op, "Sub") || s.in.v[0] != x.out.v[0] || !linear_number(g, s.in.v[1], &c) || c != (double)zero) continue;
            if (graph_is_output(g, s.out.v[0])) continue;
            graph_replace(g, s.out.v[0], y);
            graph_node(g, i)->dead = true;
        }
        graph_replace(g, x.out.v[0], plus(w, n, y, t, zero));
        graph_node(g, n)->dead = true;
    }
}

static bool is_bytes(const struct graph *g, value_id v) { return graph_value(g, v)->dtype == DT_U8 || graph_value(g, v)->dtype == DT_I8; }

enum { X, W, BIAS, PAD };

/* The bias of a convolution whose input loses its zero point, which its pads hold: plus that times the sums of the weights. */
static value_id whole_bias(struct widener *w, node_id n, i64 zero)
{
    struct graph *g = w->g;
    const struct node x = *graph_node(g, n);
    u32 rank = graph_value(g, x.in.v[W])->shape.rank;
    value_id bias = op_node_input(&x, BIAS);
    i64 axes[MAX_RANK];
    if (!zero) return bias;
    for (u32 i = 0; i + 1 < rank; i++) axes[i] = 1 + i;
    node_id first = g->node.n;
    value_id sums = op_node_axes(g, n, "ReduceSum", op_node_cast(g, n, x.in.v[W], DT_I32, 0), axes, rank - 1, 0);
    attr_set_int(g, op_made(g, sums), "keepdims", 0);
    sums = op_node_binf(g, n, "Mul", sums, DT_I32, (double)zero, 0);
    if (bias) sums = op_node2(g, n, "Add", bias, sums, 0);
    for (node_id i = first; i < g->node.n && *w->ok; i++) *w->ok = op_infer(g, i, w->e);
    return sums;
}

static bool is_product(const struct graph *g, node_id n) { return op_of(g, n)->props & (OP_CONV | OP_MATMUL); }

/* May all products that read v be of bytes? A value is stored in one form. */
static bool all_short(const struct graph *g, value_id v)
{
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        if (!x->dead && is_product(g, n) && x->in.v[X] == v && !acc16_of(g, n)) return false;
    }
    return true;
}

/* A product that stays one of bytes: its attribute says what is proven. */
static bool stays(struct widener *w, node_id n, bool *changed)
{
    i64 most = acc16_of(w->g, n);
    if (!most || !all_short(w->g, graph_node(w->g, n)->in.v[X])) return false;
    *changed |= op_acc16(graph_node(w->g, n)) != most;
    attr_set_int(w->g, n, "acc16", most);
    return true;
}

static bool widen(struct widener *w, node_id n)
{
    struct graph *g = w->g;
    const struct node x = *graph_node(g, n);
    bool conv = op_of(g, n)->props & OP_CONV, changed = false;
    double zero = 0;
    if (!is_product(g, n)) return false;
    if (!is_bytes(g, x.in.v[X]) || !is_bytes(g, x.in.v[W])) return false;
    if (conv && op_has_in(&x, PAD) && !linear_number(g, x.in.v[PAD], &zero)) return false;
    if (stays(w, n, &changed)) return changed;
    node_id end = g->node.n;
    value_id in[3] = {word(w, n, x.in.v[X], (i64)zero), word(w, n, x.in.v[W], 0), conv ? whole_bias(w, n, (i64)zero) : 0};
    i64 most[2] = {linear_most(graph_value(g, x.in.v[X])->dtype, (i64)zero), linear_most(graph_value(g, x.in.v[W])->dtype, 0)};
    graph_node(g, n)->dead = true;
    if (*w->ok) {
        value_id y = op_node_same(g, n, conv ? "Conv" : "MatMul", 3, in, NULL, x.out.v[0]);
        if (conv) attr_set_ints(g, op_made(g, y), "most", most, 2);
        inferred(w, y);
    }
    if (*w->ok && !graph_value(g, x.in.v[X])->is_const) redirect(w, x.in.v[X], in[X], (i64)zero, end);
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    struct widener w = {g, e, ok};
    bool changed = false;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++)
        if (!graph_node(g, n)->dead) changed |= widen(&w, n);
    return changed;
}

const struct pass pass_words = {
    .version = 3,
    .name = "words",
    .summary = "products of bytes become products of i16, where sums of bytes may saturate",
    .when = PASS_WORDS,
    .rank = 160,
    .run = run,
};
