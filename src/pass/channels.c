// SPDX-License-Identifier: Apache-2.0
//
// channels: linear layers over axis 1, which frameworks write with that axis moved last and back
// (talking heads, token mixing), multiply from the left instead, where the axis is:
//
//   Transpose(.. MatMul(Transpose(x), W) + b ..)      Reshape(.. MatMul(W^T, Reshape(x)) + b^T ..)
//
// with x (b, c, spatial...) as (b, c, s). Between the transposes are matmuls by constants, sums and
// products with constants per channel, and functions of one element; nothing else reads the values
// in between. Behind convolutions, whose values have channels last anyway, they stay.
// requires: expanded, inferred. ensures: new nodes are inferred; W^T and b^T are nodes of constants,
// which constant folding evaluates.
#include "pass/pass.h"

enum { MAX_LAYERS = 16 };

struct layers {
    struct graph *g;
    const u32 *uses;          /* per value */
    value_id x;               /* (b, c, spatial...) */
    node_id node[MAX_LAYERS]; /* from the last one to the first */
    u32 n, n_matmuls;
};

/* Whether n moves axis 1 last, or the last axis to 1. */
static bool moves(const struct graph *g, node_id n, bool last)
{
    const struct node *x = graph_node(g, n);
    const i64 *perm;
    if (!str_is(x->op, "Transpose")) return false;
    u32 rank = graph_value(g, x->out.v[0])->shape.rank;
    if (rank < 3 || attr_ints(x, "perm", &perm) != rank || perm[0]) return false;
    for (u32 a = 1; a < rank; a++) {
        u32 from = last ? (a + 1 < rank ? a + 1 : 1) : (a == 1 ? rank - 1 : a - 1);
        if (perm[a] != from) return false;
    }
    return true;
}

/* Whether c is a constant that is the same for all elements, or one per element of the last axis. */
static bool is_per_channel(const struct value *c)
{
    if (!c->data) return false;
    for (u32 d = 0; d + 1 < c->data->rank; d++)
        if (c->data->dim[d] != 1) return false;
    return true;
}

/* The input of node n along which the layers continue; 0: it is no such layer. */
static value_id step(struct layers *l, node_id n)
{
    const struct node *x = graph_node(l->g, n);
    if (x->out.n != 1) return 0;
    const struct value *out = graph_value(l->g, x->out.v[0]);
    if (str_is(x->op, "MatMul")) {
        const struct value *w = graph_value(l->g, x->in.v[1]);
        l->n_matmuls++;
        return w->data && w->shape.rank == 2 && graph_value(l->g, x->in.v[0])->shape.rank == out->shape.rank ? x->in.v[0] : 0;
    }
    if (!(op_of(l->g, n)->props & OP_POINTWISE) || x->in.n < 1 || x->in.n > 2) return 0;
    if (x->in.n == 1) return x->in.v[0];
    for (u32 k = 0; k < 2; k++) {
        const struct value *v = graph_value(l->g, x->in.v[k]);
        if (is_per_channel(graph_value(l->g, x->in.v[1 - k])) && v->shape.rank == out->shape.rank) return x->in.v[k];
    }
    return 0;
}

/* Whether v is computed by a convolution or pool, up to views and functions of its elements. */
static bool is_near_convolution(const struct graph *g, value_id v)
{
    for (node_id n; (n = graph_value(g, v)->producer);) {
        u32 props = op_of(g, n)->props;
        if (props & (OP_CONV | OP_TRANSPOSED | OP_WINDOW)) return true;
        if (!(props & (OP_POINTWISE | OP_VIEW)) || !graph_node(g, n)->in.n) return false;
        v = graph_node(g, n)->in.v[0];
    }
    return false;
}

/* The layers between the transpose `back` and one that it reverses. */
static bool find(struct layers *l, node_id back)
{
    l->n = l->n_matmuls = 0;
    if (graph_node(l->g, back)->dead || !moves(l->g, back, false)) return false;
    for (value_id v = graph_node(l->g, back)->in.v[0];; l->n++) {
        node_id n = l->uses[v] == 1 ? graph_value(l->g, v)->producer : 0;
        if (!n || l->n == MAX_LAYERS) return false;
        if (moves(l->g, n, true)) {
            l->x = graph_node(l->g, n)->in.v[0];
            return l->n_matmuls > 0 && !is_near_convolution(l->g, l->x);
        }
        l->node[l->n] = n;
        if (!(v = step(l, n))) return false;
    }
}

/* The constant of a layer for channels on the axis before the last: of (c) or (1.., c) as (c, 1). */
static value_id column(struct graph *g, node_id like, value_id c)
{
    const struct tensor *t = graph_value(g, c)->data;
    const sym dim[] = {sym_const(g->sym, tensor_count(t)), sym_const(g->sym, 1)};
    return tensor_count(t) == 1 && t->rank < 3 ? c : op_node_reshape(g, like, c, 2, dim, 0);
}

/* Layer n of v, (b, channels, s). */
static value_id layer(struct graph *g, node_id n, value_id from, value_id v)
{
    const struct node x = *graph_node(g, n);
    if (str_is(x.op, "MatMul"))
        return op_node2(g, n, "MatMul", op_node_swap(g, n, x.in.v[1], 2, 0, 1, 0), v, 0);
    value_id in[2];
    for (u32 k = 0; k < x.in.n; k++) in[k] = x.in.v[k] == from ? v : column(g, n, x.in.v[k]);
    return op_node_same(g, n, op_of(g, n)->name, x.in.n, in, NULL, 0);
}

static void rewrite(struct layers *l, node_id back)
{
    struct graph *g = l->g;
    value_id y = graph_node(g, back)->out.v[0];
    const struct shape s = graph_value(g, l->x)->shape, to = graph_value(g, y)->shape;
    sym spatial = sym_const(g->sym, 1);
    for (u32 d = 2; d < s.rank; d++) spatial = sym_mul(g->sym, spatial, s.dim[d]);
    const sym flat[] = {s.dim[0], s.dim[1], spatial};
    graph_node(g, back)->dead = true;
    value_id v = op_node_reshape(g, back, l->x, 3, flat, 0), from = 0;
    for (u32 k = l->n; k-- > 0; from = graph_node(g, l->node[k])->out.v[0]) {
        node_id n = l->node[k];
        if (!from) from = step(l, n);
        v = layer(g, n, from, v);
    }
    op_node_reshape(g, back, v, to.rank, to.dim, y);
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    struct arena scratch = {0};
    struct layers l = {.g = g, .uses = graph_use_counts(g, &scratch)};
    bool changed = false;
    node_id first = g->node.n;
    for (node_id n = 1; n < first; n++) {
        if (!find(&l, n)) continue;
        rewrite(&l, n);
        changed = true;
    }
    *ok = op_infer_from(g, first, e);
    arena_release(&scratch);
    return changed;
}

const struct pass pass_channels = {
    .version = 1,
    .name = "channels",
    .summary = "linear layers over axis 1 multiply from the left instead of being transposed",
    .rank = 147,
    .run = run,
};
