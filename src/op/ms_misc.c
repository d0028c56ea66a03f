// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft: small operators of older exporters and optimisers, composites.
//
//   ExpandDims      Unsqueeze at an axis given as input     TorchEmbedding  rows of a table
//   CDist           distances between the rows of a and b   Pad             ai.onnx's, pads also (1, 2r)
//   MulInteger      (a - za)(b - zb) of bytes, as i32       ReduceSumInteger  sums of bytes, as i32 or u32
//   ComplexMul      of pairs in the last axis, ComplexMulConj with b conjugated
//   ConvTransposeWithDynamicPads   pads given as input, which must be constant
//   NhwcMaxPool     MaxPool with channels last
#include "op/op.h"

static bool infer(struct graph *g, node_id n, struct err *e) { return op_infer_expanded(g, n, e); }

/* ExpandDims: x, axis */

static bool dims_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    i64 axis;
    if (op_const_ints(g, nd.in.v[1], &axis, 1) != 1) return op_unsupported(e, g, n, "the axis is only known at run time");
    op_node_axes(g, n, "Unsqueeze", nd.in.v[0], &axis, 1, nd.out.v[0]);
    return true;
}

static void random_dims(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 3), rng_range(r, 1, 4)}, axis = rng_range(r, -3, 2);
    value_id in[2];
    random_input(g, "x", DT_F32, 2, dim, &in[0]);
    in[1] = op_const_i(g, DT_I32, &axis, 1);
    random_node(g, self, 2, in, 1);
}

/* TorchEmbedding: weight, indices [, padding [, scale of gradients]] */

static bool embedding_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    op_node_gather(g, n, nd.in.v[0], nd.in.v[1], 0, nd.out.v[0]);
    return true;
}

static void random_embedding(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 5), rng_range(r, 1, 4)}, at[] = {rng_range(r, 1, 3), rng_range(r, 1, 2)};
    value_id in[2];
    random_input(g, "w", DT_F32, 2, dim, &in[0]);
    in[1] = random_const(g, DT_I64, 2, at, 0, (double)dim[0] - 1, r);
    random_node(g, self, 2, in, 1);
}

/* CDist: a (m, n), b (k, n) */

static bool cdist_infer(struct graph *g, node_id n, struct err *e)
{
    return op_check_float(g, n, 0, e) && op_same_types(g, n, 0, e) && op_check_rank(g, n, 0, 2, 2, e) &&
           op_check_rank(g, n, 1, 2, 2, e) && op_infer_expanded(g, n, e);
}

static bool cdist_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const i64 middle = 1, last = -1;
    struct str metric = attr_str(&nd, "metric", "sqeuclidean");
    bool root = str_is(metric, "euclidean");
    if (!root && !str_is(metric, "sqeuclidean")) return op_unsupported(e, g, n, "metric '%.*s'", STR_ARG(metric));
    value_id d = op_node2(g, n, "Sub", op_node_axes(g, n, "Unsqueeze", nd.in.v[0], &middle, 1, 0), nd.in.v[1], 0);
    value_id sum = op_node_axes(g, n, "ReduceSum", op_node2(g, n, "Mul", d, d, 0), &last, 1, root ? 0 : nd.out.v[0]);
    attr_set_int(g, op_made(g, sum), "keepdims", 0);
    if (root) op_node1(g, n, "Sqrt", sum, nd.out.v[0]);
    return true;
}

static void random_cdist(const struct op *self, struct graph *g, struct rng *r)
{
    i64 c = rng_range(r, 1, 4);
    value_id in[2];
    random_input(g, "a", DT_F32, 2, (i64[]){rng_range(r, 1, 4), c}, &in[0]);
    random_input(g, "b", DT_F32, 2, (i64[]){rng_range(r, 1, 4), c}, &in[1]);
    attr_set_str(g, random_node(g, self, 2, in, 1), "metric", rng_range(r, 0, 1) ? S("euclidean") : S("sqeuclidean"));
}

/* Pad: x, pads [, value] */

static bool pad_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    i64 pads[2 * MAX_RANK], count = op_const_ints(g, nd.in.v[1], pads, countof(pads));
    if (count < 0) return op_unsupported(e, g, n, "the pads are only known at run time");
    value_id in[] = {nd.in.v[0], op_const_i(g, DT_I64, pads, count), op_node_input(&nd, 2)};
    if (in[2] && op_in_shape(g, &nd, 2)->rank) in[2] = op_node_reshape(g, n, in[2], 0, NULL, 0);
    op_node_same(g, n, "Pad", 3, in, NULL, nd.out.v[0]);
    return true;
}

static void random_pad(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 2, 3), rng_range(r, 2, 4)}, pads[] = {1, 0, 0, 1}, wide[] = {1, 4};
    struct tensor *p = tensor_new(g->arena, DT_I64, 2, wide);
    for (i64 i = 0; i < 4; i++) elem_set_i64(DT_I64, p->data, i, pads[i]);
    value_id in[3];
    random_input(g, "x", DT_F32, 2, dim, &in[0]);
    in[1] = graph_add_const(g, S("pads"), p), in[2] = op_const_f(g, DT_F32, 0.5);
    struct str mode = rng_range(r, 0, 1) ? S("edge") : S("constant");
    attr_set_str(g, random_node(g, self, (u32)rng_range(r, 2, 3), in, 1), "mode", mode);
}

/* MulInteger: a, zero of a, b [, zero of b] */

static value_id centred(struct graph *g, node_id n, u32 k, u32 zero)
{
    const struct node nd = *graph_node(g, n);
    value_id x = op_node_cast(g, n, nd.in.v[k], DT_I32, 0);
    if (!op_has_in(&nd, zero)) return x;
    value_id z = op_in_shape(g, &nd, zero)->rank ? op_node_reshape(g, n, nd.in.v[zero], 0, NULL, 0) : nd.in.v[zero];
    return op_node2(g, n, "Sub", x, op_node_cast(g, n, z, DT_I32, 0), 0);
}

static bool mul_infer(struct graph *g, node_id n, struct err *e)
{
    return op_check_present(g, n, 2, e) && op_infer_expanded(g, n, e);
}

static bool mul_expand(struct graph *g, node_id n, struct err *e)
{
    value_id b = centred(g, n, 2, 3), a = centred(g, n, 0, 1);
    op_node2(g, n, "Mul", a, b, graph_node(g, n)->out.v[0]);
    return true;
}

static void random_mul(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 3), rng_range(r, 1, 4)};
    enum dtype t = rng_range(r, 0, 1) ? DT_U8 : DT_I8;
    value_id in[4];
    random_input(g, "a", t, 2, dim, &in[0]);
    random_input(g, "b", t, 2, dim, &in[2]);
    in[1] = random_const(g, t, 0, NULL, 0, 9, r), in[3] = random_const(g, t, 0, NULL, 0, 9, r);
    random_node(g, self, (u32)rng_range(r, 3, 4), in, 1);
}

/* ReduceSumInteger */

static bool sum_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const i64 *axes;
    i64 count = attr_ints(&nd, "axes", &axes);
    enum dtype t = dtype_kind(op_in_dtype(g, &nd, 0)) == DK_UINT ? DT_U32 : DT_I32;
    value_id x = op_node_cast(g, n, nd.in.v[0], t, 0), y;
    y = count ? op_node_axes(g, n, "ReduceSum", x, axes, (u32)count, nd.out.v[0]) : op_node1(g, n, "ReduceSum", x, nd.out.v[0]);
    attr_set_int(g, op_made(g, y), "keepdims", attr_int(&nd, "keepdims", 1));
    return true;
}

static void random_sum(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 3), rng_range(r, 1, 4)}, axis = rng_range(r, -2, 1);
    value_id x;
    random_input(g, "x", rng_range(r, 0, 1) ? DT_U8 : DT_I8, 2, dim, &x);
    node_id n = random_node(g, self, 1, &x, 1);
    attr_set_ints(g, n, "axes", &axis, 1), attr_set_int(g, n, "keepdims", rng_range(r, 0, 1));
}

/* ComplexMul, ComplexMulConj: a (.., 2), b (.., 2) */

static bool complex_infer(struct graph *g, node_id n, struct err *e)
{
    for (u32 k = 0; k < 2; k++)
        if (!op_check_float(g, n, k, e) || !op_check_rank(g, n, k, 1, MAX_RANK, e)) return false;
    for (u32 k = 0; k < 2; k++) {
        const struct shape *s = op_in_shape(g, graph_node(g, n), k);
        if (!op_require_equal(g, n, s->dim[s->rank - 1], sym_const(g->sym, 2), e, "the last axis of input %u, of pairs, and 2", k)) return false;
    }
    return op_infer_expanded(g, n, e);
}

static value_id half(struct graph *g, node_id n, u32 k, i64 i)
{
    const struct node nd = *graph_node(g, n);
    const struct shape s = *op_in_shape(g, &nd, k);
    return op_node_slice(g, n, nd.in.v[k], &s, s.rank - 1, sym_const(g->sym, i), sym_const(g->sym, 1), 0);
}

static bool complex_expand(struct graph *g, node_id n, struct err *e)
{
    bool conj = str_is(graph_node(g, n)->op, "com.microsoft::ComplexMulConj");
    value_id ar = half(g, n, 0, 0), ai = half(g, n, 0, 1), br = half(g, n, 1, 0), bi = half(g, n, 1, 1);
    value_id ii = op_node2(g, n, "Mul", ai, bi, 0), rr = op_node2(g, n, "Mul", ar, br, 0);
    value_id re = op_node2(g, n, conj ? "Add" : "Sub", rr, ii, 0);
    value_id x = op_node2(g, n, "Mul", ai, br, 0), y = op_node2(g, n, "Mul", ar, bi, 0);
    value_id im = op_node2(g, n, conj ? "Sub" : "Add", x, y, 0);
    op_node_concat(g, n, 2, (value_id[]){re, im}, -1, graph_node(g, n)->out.v[0]);
    return true;
}

static void random_complex(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 3), 2};
    value_id in[2];
    random_input(g, "a", DT_F32, 2, dim, &in[0]);
    random_input(g, "b", DT_F32, 2, dim, &in[1]);
    random_node(g, self, 2, in, 1);
}

/* ConvTransposeWithDynamicPads: x, w [, pads [, bias]] */

static bool transpose_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    i64 pads[2 * MAX_RANK], count = 0;
    if (op_has_in(&nd, 2) && (count = op_const_ints(g, nd.in.v[2], pads, countof(pads))) < 0)
        return op_unsupported(e, g, n, "the pads are only known at run time");
    value_id in[] = {nd.in.v[0], nd.in.v[1], op_node_input(&nd, 3)};
    value_id y = op_node_same(g, n, "ConvTranspose", 3, in, NULL, nd.out.v[0]);
    if (count) attr_set_ints(g, op_made(g, y), "pads", pads, count);
    return true;
}

static void random_transpose(const struct op *self, struct graph *g, struct rng *r)
{
    i64 c = rng_range(r, 1, 3), m = rng_range(r, 1, 3), pads[] = {1, 0, 0, 1};
    value_id in[4] = {0};
    random_input(g, "x", DT_F32, 4, (i64[]){1, c, rng_range(r, 2, 4), rng_range(r, 2, 4)}, &in[0]);
    random_input(g, "w", DT_F32, 4, (i64[]){c, m, 2, 3}, &in[1]);
    if (rng_range(r, 0, 1)) in[2] = op_const_i(g, DT_I64, pads, 4);
    random_input(g, "b", DT_F32, 1, &m, &in[3]);
    random_node(g, self, in[2] ? (u32)rng_range(r, 3, 4) : 4, in, 1);
}

/* NhwcMaxPool */

static bool pool_infer(struct graph *g, node_id n, struct err *e)
{
    return op_check_rank(g, n, 0, 3, MAX_RANK, e) && op_infer_expanded(g, n, e);
}

static bool pool_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    u32 rank = op_in_shape(g, &nd, 0)->rank;
    i64 first[MAX_RANK] = {0}, last[MAX_RANK] = {0};
    for (u32 i = 1; i < rank; i++) first[i] = i == 1 ? rank - 1 : i - 1, last[i] = i + 1 < rank ? i + 1 : 1;
    value_id x = op_node_perm(g, n, nd.in.v[0], rank, first, 0);
    op_node_perm(g, n, op_node_same(g, n, "MaxPool", 1, &x, NULL, 0), rank, last, nd.out.v[0]);
    return true;
}

static void random_pool(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {1, rng_range(r, 2, 4), rng_range(r, 2, 4), 3};
    value_id x;
    random_input(g, "x", rng_range(r, 0, 1) ? DT_U8 : DT_I8, 4, dim, &x);
    attr_set_ints(g, random_node(g, self, 1, &x, 1), "kernel_shape", (i64[]){2, 2}, 2);
}

#define OP(op, least, most, i, x, rnd)                                                                                 \
    {.name = "com.microsoft::" op, .min_in = least, .max_in = most, .min_out = 1, .max_out = 1, .infer = i, .expand = x, \
     .random = rnd}

static const struct op ops[] = {
    OP("ExpandDims", 2, 2, infer, dims_expand, random_dims),
    OP("TorchEmbedding", 2, 4, infer, embedding_expand, random_embedding),
    OP("CDist", 2, 2, cdist_infer, cdist_expand, random_cdist),
    OP("Pad", 2, 3, infer, pad_expand, random_pad),
    OP("MulInteger", 1, 4, mul_infer, mul_expand, random_mul),
    OP("ReduceSumInteger", 1, 1, infer, sum_expand, random_sum),
    OP("ComplexMul", 2, 2, complex_infer, complex_expand, random_complex),
    OP("ComplexMulConj", 2, 2, complex_infer, complex_expand, random_complex),
    OP("ConvTransposeWithDynamicPads", 2, 4, infer, transpose_expand, random_transpose),
    OP("NhwcMaxPool", 1, 1, pool_infer, pool_expand, random_pool),
};

const struct op_family op_ms_misc = {ops, countof(ops)};
