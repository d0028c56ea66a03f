// SPDX-License-Identifier: Apache-2.0
//
// reach: GatherElements by constant indices that reach a part of the axis only, as those of relative positions of short texts do,
// reads that part:
//
//   GatherElements(x, i)               GatherElements(Slice(x), i - first), indices of i32
//   .. of MatMul(a, b), columns        .. of MatMul(a, Slice(b))
//
// so that the others are neither moved nor, if nothing else reads the product, computed. The part is a whole number of vectors.
// requires: expanded, inferred, constants folded. ensures: new nodes are inferred. The axis has a known size.
#include "pass/pass.h"

enum { STEP = 16 /* elements: the part begins and ends at multiples */, KEPT = 16 /* indices that several nodes share */ };

struct moved { value_id index, to; i64 first, size; }; /* size: of the axis */

struct reach {
    struct graph *g;
    const u32 *uses;         /* per value */
    struct moved kept[KEPT]; /* constants made before */
    u32 n_kept;
};

/* The part of an axis of `size` elements that the indices reach: first..end-1. */
static void range_of(const struct tensor *t, i64 size, i64 *first, i64 *end)
{
    *first = size, *end = 0;
    for (i64 i = 0, n = tensor_count(t); i < n; i++) {
        i64 at = elem_i64(t->dtype, t->data, i);
        at += at < 0 ? size : 0;
        *first = i64_min(*first, at), *end = i64_max(*end, at + 1);
    }
    *first = *first / STEP * STEP, *end = i64_min(size, ceil_div(*end, STEP) * STEP);
}

/* The indices counted from `first`; 0: not enough memory. */
static value_id index_from(struct reach *r, value_id index, i64 size, i64 first)
{
    struct graph *g = r->g;
    struct err e = {0};
    for (u32 i = 0; i < r->n_kept; i++)
        if (r->kept[i].index == index && r->kept[i].first == first && r->kept[i].size == size) return r->kept[i].to;
    const struct tensor *from = graph_value(g, index)->data;
    struct tensor *t = tensor_try(g->arena, DT_I32, from->rank, from->dim, &e, "indices", graph_value(g, index)->name);
    if (!t) return 0;
    for (i64 i = 0, n = tensor_count(t); i < n; i++) {
        i64 at = elem_i64(from->dtype, from->data, i);
        elem_set_i64(DT_I32, t->data, i, at + (at < 0 ? size : 0) - first);
    }
    value_id to = graph_add_const(g, graph_value(g, index)->name, t);
    if (r->n_kept < KEPT) r->kept[r->n_kept++] = (struct moved){index, to, first, size};
    return to;
}

/* size elements of an axis of v, from `first` on: columns of a product are those of its right operand. */
static value_id part_of(struct reach *r, node_id like, value_id v, u32 axis, i64 first, i64 size)
{
    struct graph *g = r->g;
    const struct shape s = graph_value(g, v)->shape;
    node_id p = r->uses[v] == 1 ? graph_value(g, v)->producer : 0;
    sym from = sym_const(g->sym, first), n = sym_const(g->sym, size);
    bool is_product = p && str_is(graph_node(g, p)->op, "MatMul") && axis + 1 == s.rank;
    value_id b = is_product ? graph_node(g, p)->in.v[1] : 0;
    if (!b || graph_value(g, b)->shape.rank < 2) return op_node_slice(g, like, v, &s, axis, from, n, 0);
    const struct shape bs = graph_value(g, b)->shape;
    value_id a = graph_node(g, p)->in.v[0], part = op_node_slice(g, like, b, &bs, bs.rank - 1, from, n, 0);
    const value_id in[] = {a, part};
    return op_node_same(g, p, "MatMul", 2, in, NULL, 0);
}

static bool narrow(struct reach *r, node_id n)
{
    struct graph *g = r->g;
    const struct node nd = *graph_node(g, n);
    u32 axis;
    i64 size, first, end;
    if (nd.dead || !str_is(nd.op, "GatherElements")) return false;
    const struct shape *s = &graph_value(g, nd.in.v[0])->shape;
    const struct tensor *t = graph_value(g, nd.in.v[1])->data;
    if (!t || !tensor_count(t) || !op_axis(attr_int(&nd, "axis", 0), s->rank, &axis)) return false;
    if (graph_value(g, nd.in.v[0])->is_const || !sym_is_const(g->sym, s->dim[axis], &size) || size > INT32_MAX) return false;
    range_of(t, size, &first, &end);
    value_id index = end - first < size ? index_from(r, nd.in.v[1], size, first) : 0;
    if (!index) return false;
    const value_id in[] = {part_of(r, n, nd.in.v[0], axis, first, end - first), index};
    graph_node(g, n)->dead = true;
    op_node_same(g, n, "GatherElements", 2, in, NULL, nd.out.v[0]);
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    struct arena scratch = {0};
    struct reach r = {.g = g, .uses = graph_use_counts(g, &scratch)};
    bool changed = false;
    node_id first = g->node.n;
    for (node_id n = 1; n < first; n++) changed |= narrow(&r, n);
    *ok = op_infer_from(g, first, e);
    arena_release(&scratch);
    return changed;
}

const struct pass pass_reach = {
    .version = 1,
    .name = "reach",
    .summary = "reads and computes the part only that constant indices of GatherElements reach",
    .rank = 141,
    .run = run,
};
