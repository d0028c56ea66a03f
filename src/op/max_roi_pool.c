// SPDX-License-Identifier: Apache-2.0
//
// MaxRoiPool, a composite: the maximum of each bin of each region. x (n, c, h, w), rois (r, 5) = number in the batch, x1 y1 x2 y2 ->
// y (r, c, p0, p1). A region's corners are scaled and rounded (halves away from zero) to elements, both belong to it; bin i of p covers
// its elements floor(i * size / p) to below ceil((i + 1) * size / p), which are computed with integers. An empty bin is 0.
// One axis after the other: the maximum over rows of a bin, then over columns.
#include "op/op.h"

#include <math.h>

enum { MAX_BINS = 1000, FAR = 1 << 20 /* coordinates are clamped to it, so that products stay below 2^31 */ };

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const i64 *bins;
    i64 c;
    if (!op_check_float(g, n, 0, e) || !op_check_rank(g, n, 0, 4, 4, e) || !op_check_rank(g, n, 1, 2, 2, e)) return false;
    if (op_in_dtype(g, nd, 1) != op_in_dtype(g, nd, 0)) return op_invalid(e, g, n, "rois have another type than the input");
    if (!sym_is_const(g->sym, op_in_shape(g, nd, 1)->dim[1], &c) || c != 5) return op_invalid(e, g, n, "rois must be (n, 5)");
    if (attr_ints(nd, "pooled_shape", &bins) != 2) return op_invalid(e, g, n, "attribute 'pooled_shape' has not 2 elements");
    for (u32 i = 0; i < 2; i++)
        if (bins[i] < 1 || bins[i] > MAX_BINS) return op_unsupported(e, g, n, "pooled_shape %lld, expected 1 to %d", (long long)bins[i], MAX_BINS);
    return op_infer_expanded(g, n, e);
}

/* Column k of the regions, (r). */
static value_id column(struct graph *g, node_id n, u32 k)
{
    const struct shape rois = *op_in_shape(g, graph_node(g, n), 1);
    value_id v = op_node_slice(g, n, graph_node(g, n)->in.v[1], &rois, 1, sym_const(g->sym, k), sym_const(g->sym, 1), 0);
    return op_node_reshape(g, n, v, 1, rois.dim, 0);
}

/* A coordinate as the number of an element, (r, 1). */
static value_id corner(struct graph *g, node_id n, u32 k)
{
    enum dtype t = op_in_dtype(g, graph_node(g, n), 1), f = t == DT_F64 ? t : DT_F32;
    sym dim[2] = {op_in_shape(g, graph_node(g, n), 1)->dim[0], sym_const(g->sym, 1)};
    value_id x = op_node_binf(g, n, "Mul", op_as(g, n, column(g, n, k), f), f, attr_float(graph_node(g, n), "spatial_scale", 1), 0);
    value_id size = op_node1(g, n, "Floor", op_node_binf(g, n, "Add", op_node1(g, n, "Abs", x, 0), f, 0.5, 0), 0);
    x = op_node2(g, n, "Mul", op_node1(g, n, "Sign", x, 0), size, 0);
    x = op_node(g, n, "Clip", 3, (value_id[]){x, op_const_f(g, f, -FAR), op_const_f(g, f, FAR)}, 0);
    return op_node_reshape(g, n, op_node_cast(g, n, x, DT_I32, 0), 2, dim, 0);
}

/* Which elements of an axis of x (2: rows, 3: columns) each bin covers, (r, p, size). */
static value_id covered(struct graph *g, node_id n, u32 axis)
{
    const i64 *bins;
    attr_ints(graph_node(g, n), "pooled_shape", &bins);
    i64 p = bins[axis - 2];
    sym r = op_in_shape(g, graph_node(g, n), 1)->dim[0], size = op_in_shape(g, graph_node(g, n), 0)->dim[axis], one = sym_const(g->sym, 1);
    sym of_bin[3] = {r, sym_const(g->sym, p), one}, of_axis[3] = {one, one, size};
    value_id first = corner(g, n, axis == 2 ? 2 : 1), last = corner(g, n, axis == 2 ? 4 : 3);
    value_id length = op_node_binf(g, n, "Add", op_node2(g, n, "Sub", last, first, 0), DT_I32, 1, 0);
    length = op_node2(g, n, "Max", length, op_const_f(g, DT_I32, 1), 0);
    value_id bin = op_node_range(g, n, DT_I32, sym_const(g->sym, p), 0), next = op_node_binf(g, n, "Add", bin, DT_I32, 1, 0);
    value_id from = op_node_binf(g, n, "Div", op_node2(g, n, "Mul", length, bin, 0), DT_I32, (double)p, 0);
    value_id to = op_node_binf(g, n, "Add", op_node2(g, n, "Mul", length, next, 0), DT_I32, (double)(p - 1), 0);
    to = op_node_binf(g, n, "Div", to, DT_I32, (double)p, 0);
    from = op_node_reshape(g, n, op_node2(g, n, "Add", from, first, 0), 3, of_bin, 0);
    to = op_node_reshape(g, n, op_node2(g, n, "Add", to, first, 0), 3, of_bin, 0);
    value_id at = op_node_reshape(g, n, op_node_range(g, n, DT_I32, size, 0), 3, of_axis, 0);
    value_id before = op_node2(g, n, "Less", at, to, 0), behind = op_node2(g, n, "GreaterOrEqual", at, from, 0);
    return op_node2(g, n, "And", behind, before, 0);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const struct shape x = *op_in_shape(g, &nd, 0);
    enum dtype t = op_in_dtype(g, &nd, 0);
    const i64 *bins, axis3 = 3, axis4 = 4;
    attr_ints(&nd, "pooled_shape", &bins);
    struct symtab *st = g->sym;
    sym one = sym_const(st, 1), r = op_in_shape(g, &nd, 1)->dim[0], p[2] = {sym_const(st, bins[0]), sym_const(st, bins[1])};
    value_id batch = op_node_cast(g, n, column(g, n, 0), DT_I64, 0), none = op_const_f(g, t, -INFINITY);
    value_id v = op_node_gather(g, n, nd.in.v[0], batch, 0, 0);
    v = op_node_reshape(g, n, v, 5, (sym[]){r, x.dim[1], one, x.dim[2], x.dim[3]}, 0);
    value_id rows = op_node_reshape(g, n, covered(g, n, 2), 5, (sym[]){r, one, p[0], x.dim[2], one}, 0);
    v = op_node_axes(g, n, "ReduceMax", op_node_where(g, n, rows, v, none, 0), &axis3, 1, 0);
    v = op_node_reshape(g, n, v, 5, (sym[]){r, x.dim[1], p[0], one, x.dim[3]}, 0);
    value_id columns = op_node_reshape(g, n, covered(g, n, 3), 5, (sym[]){r, one, one, p[1], x.dim[3]}, 0);
    v = op_node_axes(g, n, "ReduceMax", op_node_where(g, n, columns, v, none, 0), &axis4, 1, 0);
    v = op_node_reshape(g, n, v, 4, (sym[]){r, x.dim[1], p[0], p[1]}, 0);
    value_id zero = op_const_f(g, t, 0), is_none = op_node2(g, n, "Equal", v, none, 0);
    op_node_where(g, n, is_none, zero, v, nd.out.v[0]);
    return true;
}

static void random_roi(const struct op *self, struct graph *g, struct rng *r)
{
    i64 x[4] = {rng_range(r, 1, 3), rng_range(r, 1, 3), rng_range(r, 1, 6), rng_range(r, 1, 6)}, rois[2] = {rng_range(r, 1, 4), 5};
    i64 bins[2] = {rng_range(r, 1, 4), rng_range(r, 1, 4)};
    enum dtype t = random_float_type(r);
    value_id in[2];
    struct tensor *at = tensor_new(g->arena, t, 2, rois);
    for (i64 k = 0; k < 5 * rois[0]; k++) elem_set_f64(t, at->data, k, k % 5 ? 0.25 * (double)rng_range(r, -4, 30) : (double)rng_range(r, 0, x[0] - 1));
    random_input(g, "x", t, 4, x, &in[0]);
    in[1] = graph_add_const(g, S("rois"), at);
    node_id n = random_node(g, self, 2, in, 1);
    attr_set_ints(g, n, "pooled_shape", bins, 2);
    if (rng_range(r, 0, 1)) attr_set_float(g, n, "spatial_scale", 0.5);
}

static const struct op ops[] = {
    {.name = "MaxRoiPool", .min_in = 2, .max_in = 2, .min_out = 1, .max_out = 1, .infer = infer, .expand = expand, .random = random_roi},
};

const struct op_family op_max_roi_pool = {ops, countof(ops)};
