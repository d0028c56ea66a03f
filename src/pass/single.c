// SPDX-License-Identifier: Apache-2.0
//
// single: a transposed convolution of one position, as generators of pictures begin with, is a matmul: each output is met by one tap.
//
//   y[n, m, o] = b[m] + sum over c of x[n, c, 0] * w[c, m, o + begin]
//
// The matmul's columns are ordered [o][m], which channels-last consumers read in place.
// requires: expanded, inferred; scales and offsets behind it are folded. Weights are constant, in one group and without dilation, and no output lies outside the window.
#include "pass/pass.h"

enum { DEEP = 16 /* nodes, one behind the other */ };

/* Computed from constants alone, so that folding makes it one. */
static bool is_settled(const struct graph *g, value_id v, u32 depth)
{
    const struct value *x = graph_value(g, v);
    if (!x->producer || !depth) return x->data != NULL;
    const struct node *n = graph_node(g, x->producer);
    for (u32 i = 0; i < n->in.n; i++)
        if (n->in.v[i] && !is_settled(g, n->in.v[i], depth - 1)) return false;
    return true;
}

/* Does a node read v whose other operand is about to become a constant? It may then fold into the weights (affine.c), first. */
static bool may_fold(const struct graph *g, value_id v)
{
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead || x->in.n != 2 || (x->in.v[0] != v && x->in.v[1] != v)) continue;
        value_id other = x->in.v[x->in.v[0] == v];
        if (graph_value(g, other)->producer && is_settled(g, other, DEEP)) return true;
    }
    return false;
}

struct single {
    struct op_window w;
    i64 x[MAX_RANK], wt[MAX_RANK], out[MAX_RANK], begin[MAX_RANK];
    u32 rank;
};

static bool is_single(const struct graph *g, node_id n, struct single *s)
{
    const struct node *x = graph_node(g, n);
    if (!(op_of(g, n)->props & OP_TRANSPOSED) || attr_int(x, "group", 1) != 1) return false;
    const struct value *in = graph_value(g, x->in.v[0]), *wt = graph_value(g, x->in.v[1]), *out = graph_value(g, x->out.v[0]);
    s->rank = in->shape.rank;
    if (!wt->data || !shape_is_static(g->sym, &wt->shape, s->wt) || s->wt[0] < 1 || s->wt[1] < 1) return false;
    op_window_get(g, x, &s->w);
    for (u32 a = 2; a < s->rank; a++) {
        if (!sym_is_const(g->sym, in->shape.dim[a], &s->x[a]) || s->x[a] != 1) return false;
        if (!sym_is_const(g->sym, out->shape.dim[a], &s->out[a]) || !sym_is_const(g->sym, s->w.begin[a - 2], &s->begin[a])) return false;
        if (s->w.dilation[a - 2] != 1 || s->begin[a] < 0 || s->begin[a] + s->out[a] > s->wt[a]) return false;
    }
    return true;
}

/* (c, m, taps ..) -> (c, outputs * m) */
static value_id columns(struct graph *g, node_id like, value_id w, const struct single *s)
{
    struct shape from = graph_value(g, w)->shape;
    i64 perm[MAX_RANK] = {0}, n = s->wt[1];
    for (u32 a = 2; a < s->rank; a++) {
        perm[a - 1] = a, n *= s->out[a];
        if (s->out[a] == s->wt[a]) continue;
        sym size = sym_const(g->sym, s->out[a]);
        w = op_node_slice(g, like, w, &from, a, sym_const(g->sym, s->begin[a]), size, 0);
        from.dim[a] = size;
    }
    perm[s->rank - 1] = 1;
    const sym flat[] = {from.dim[0], sym_const(g->sym, n)};
    return op_node_reshape(g, like, op_node_perm(g, like, w, s->rank, perm, 0), 2, flat, 0);
}

static void replace(struct graph *g, node_id n, const struct single *s)
{
    const struct node nd = *graph_node(g, n);
    const struct shape x = graph_value(g, nd.in.v[0])->shape;
    sym dim[MAX_RANK] = {x.dim[0]};
    i64 perm[MAX_RANK] = {0};
    for (u32 a = 2; a < s->rank; a++) dim[a - 1] = sym_const(g->sym, s->out[a]), perm[a] = a - 1;
    dim[s->rank - 1] = sym_const(g->sym, s->wt[1]), perm[1] = s->rank - 1;
    value_id rows = op_node_reshape(g, n, nd.in.v[0], 2, x.dim, 0);
    value_id y = op_node2(g, n, "MatMul", rows, columns(g, n, nd.in.v[1], s), 0);
    y = op_node_reshape(g, n, y, s->rank, dim, 0);
    if (nd.in.n > 2 && nd.in.v[2]) y = op_node2(g, n, "Add", y, nd.in.v[2], 0);
    graph_node(g, n)->dead = true;
    op_node_perm(g, n, y, s->rank, perm, nd.out.v[0]);
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    u32 first = g->node.n;
    for (node_id n = 1; n < first && *ok; n++) {
        struct single s;
        if (graph_node(g, n)->dead || !is_single(g, n, &s) || may_fold(g, graph_node(g, n)->out.v[0])) continue;
        u32 from = g->node.n;
        replace(g, n, &s);
        for (node_id k = from; k < g->node.n && *ok; k++) *ok = op_infer(g, k, e);
        changed = true;
    }
    return changed;
}

const struct pass pass_single = {
    .version = 1,
    .name = "single",
    .summary = "transposed convolutions of one position become matmuls",
    .rank = 143,
    .run = run,
};
