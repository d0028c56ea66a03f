// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft: operators on quantised elements, u8 or i8, composites: the inputs are dequantised, the operator of ai.onnx
// is done in f32 and the result quantised, all pointwise around it, so that kernels read and write bytes. Missing zero
// points are 0. With attribute channels_last the axis of channels is the last one.
//
//   real = (quantised - zero_point) * scale
//
// QLinearConv of this domain is ai.onnx's but for channels_last. What is already quantised as the result of a concatenation
// or choice is passed on as it is.
#include "op/op.h"

#include <string.h>

static bool is_8bit(enum dtype t) { return t == DT_U8 || t == DT_I8; }

static bool check_8bit(const struct graph *g, node_id n, u32 k, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!op_has_in(nd, k)) return op_invalid(e, g, n, "input %u is missing", k);
    return is_8bit(op_in_dtype(g, nd, k)) || op_unsupported(e, g, n, "input %u of type %s, only 8-bit ones are supported",
                                                            k, dtype_name(op_in_dtype(g, nd, k)));
}

/* Scale k and zero point k + 1, for one tensor. */
static bool check_scale(const struct graph *g, node_id n, u32 k, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 c;
    if (!op_has_in(nd, k) || op_in_dtype(g, nd, k) != DT_F32) return op_invalid(e, g, n, "scale %u is not f32", k);
    for (u32 i = k; i < k + 2; i++) {
        const struct shape *s = op_has_in(nd, i) ? op_in_shape(g, nd, i) : NULL;
        if (!s || s->rank == 0 || (s->rank == 1 && sym_is_const(g->sym, s->dim[0], &c) && c == 1)) continue;
        return op_unsupported(e, g, n, "input %u (scale or zero point) is not one number", i);
    }
    return !op_has_in(nd, k + 1) || check_8bit(g, n, k + 1, e);
}

/* A one-element vector as a scalar. */
static value_id one(struct graph *g, node_id n, u32 k)
{
    const struct node nd = *graph_node(g, n);
    if (!op_has_in(&nd, k)) return 0;
    return op_in_shape(g, &nd, k)->rank ? op_node_reshape(g, n, nd.in.v[k], 0, NULL, 0) : nd.in.v[k];
}

/* Input x as f32, by scale k and zero point k + 1. */
static value_id real(struct graph *g, node_id n, u32 x, u32 k)
{
    const struct node nd = *graph_node(g, n);
    value_id in[] = {nd.in.v[x], one(g, n, k), one(g, n, k + 1)};
    return op_node(g, n, "DequantizeLinear", in[2] ? 3 : 2, in, 0);
}

/* v, f32, quantised to type t by scale k and zero point k + 1. */
static void quantised(struct graph *g, node_id n, value_id v, u32 k, enum dtype t, value_id out)
{
    value_id zero = one(g, n, k + 1);
    value_id in[] = {v, one(g, n, k), zero ? zero : op_const_f(g, t, 0)};
    op_node(g, n, "QuantizeLinear", 3, in, out);
}

static bool is_last(const struct node *nd) { return attr_int(nd, "channels_last", 0) != 0; }

static value_id channels(struct graph *g, node_id n, value_id v, u32 rank, bool to_last, value_id out)
{
    i64 perm[MAX_RANK] = {0};
    for (u32 i = 1; i < rank; i++) perm[i] = to_last ? (i + 1 < rank ? i + 1 : 1) : (i == 1 ? rank - 1 : i - 1);
    return op_node_perm(g, n, v, rank, perm, out);
}

/* Of one input: x, scale, zero, scale and zero of y. */

enum { Y_SCALE = 3 };

static bool unary_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!check_8bit(g, n, 0, e) || !check_scale(g, n, 1, e) || !check_scale(g, n, Y_SCALE, e)) return false;
    if (is_last(nd) && op_in_shape(g, nd, 0)->rank < 3) return op_invalid(e, g, n, "input of rank %u", op_in_shape(g, nd, 0)->rank);
    return op_infer_expanded(g, n, e);
}

static value_id softmax(struct graph *g, node_id n, value_id x)
{
    const struct node nd = *graph_node(g, n);
    const struct shape s = *op_in_shape(g, &nd, 0);
    bool old = attr_int(&nd, "opset", 13) < 13;
    u32 axis = 0;
    if (!op_axis(attr_int(&nd, "axis", old ? 1 : -1), s.rank, &axis) || !old || axis + 1 == s.rank)
        return op_node_softmax(g, n, x, attr_int(&nd, "axis", old ? 1 : -1), 0);
    /* before opset 13: rows of all axes from `axis` on */
    sym flat[2] = {sym_const(g->sym, 1), sym_const(g->sym, 1)};
    for (u32 i = 0; i < s.rank; i++) flat[i >= axis] = sym_mul(g->sym, flat[i >= axis], s.dim[i]);
    x = op_node_softmax(g, n, op_node_reshape(g, n, x, 2, flat, 0), 1, 0);
    return op_node_reshape(g, n, x, s.rank, s.dim, 0);
}

static value_id mean(struct graph *g, node_id n, value_id x)
{
    const struct node nd = *graph_node(g, n);
    const i64 *axes;
    i64 count = attr_ints(&nd, "axes", &axes);
    value_id y = count ? op_node_axes(g, n, "ReduceMean", x, axes, (u32)count, 0) : op_node1(g, n, "ReduceMean", x, 0);
    attr_set_int(g, op_made(g, y), "keepdims", attr_int(&nd, "keepdims", 1));
    return y;
}

static bool unary_expand(struct graph *g, node_id n, struct err *e)
{
    static const char *const without[] = {"channels_last", NULL};
    const struct node nd = *graph_node(g, n);
    const char *op = op_of(g, n)->row;
    u32 rank = op_in_shape(g, &nd, 0)->rank;
    value_id x = real(g, n, 0, 1);
    if (is_last(&nd)) x = channels(g, n, x, rank, false, 0);
    if (str_is(str_of(op), "Softmax")) x = softmax(g, n, x);
    else if (str_is(str_of(op), "ReduceMean")) x = mean(g, n, x);
    else x = op_node_same(g, n, op, 1, &x, without, 0);
    if (is_last(&nd)) x = channels(g, n, x, rank, true, 0);
    quantised(g, n, x, Y_SCALE, op_in_dtype(g, &nd, 0), nd.out.v[0]);
    return true;
}

static value_id scale(struct graph *g, struct rng *r)
{
    return op_const_f(g, DT_F32, rng_range(r, 0, 1) ? 0.25 : 0.125);
}

static value_id zero(struct graph *g, enum dtype t, struct rng *r) { return op_const_f(g, t, (double)rng_range(r, 0, 9)); }

static void random_unary(const struct op *self, struct graph *g, struct rng *r)
{
    const char *op = self->row;
    bool pool = str_is(str_of(op), "AveragePool"), global = str_is(str_of(op), "GlobalAveragePool");
    enum dtype t = rng_range(r, 0, 1) ? DT_U8 : DT_I8;
    i64 dim[] = {1, 4, 2 * rng_range(r, 1, 2), 4};
    value_id in[5];
    random_input(g, "x", t, 4, dim, &in[0]);
    in[1] = scale(g, r), in[2] = zero(g, t, r), in[3] = op_const_f(g, DT_F32, 0.0625), in[4] = zero(g, t, r);
    node_id n = random_node(g, self, 5, in, 1);
    if (pool) attr_set_ints(g, n, "kernel_shape", (i64[]){2, 2}, 2);
    if (pool || global) attr_set_int(g, n, "channels_last", rng_range(r, 0, 1));
    if (str_is(str_of(op), "ReduceMean")) attr_set_ints(g, n, "axes", (i64[]){2, 3}, 2);
    if (str_is(str_of(op), "Softmax")) attr_set_int(g, n, "opset", rng_range(r, 12, 13));
}

/* QLinearAdd, QLinearMul: a, scale, zero, b, scale, zero, scale and zero of y */

static bool binary_infer(struct graph *g, node_id n, struct err *e)
{
    return check_8bit(g, n, 0, e) && check_8bit(g, n, 3, e) && check_scale(g, n, 1, e) && check_scale(g, n, 4, e) &&
           check_scale(g, n, 6, e) && op_infer_expanded(g, n, e);
}

static bool binary_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    value_id b = real(g, n, 3, 4), y = op_node2(g, n, op_of(g, n)->row, real(g, n, 0, 1), b, 0);
    quantised(g, n, y, 6, op_in_dtype(g, &nd, 0), nd.out.v[0]);
    return true;
}

static void random_binary(const struct op *self, struct graph *g, struct rng *r)
{
    enum dtype t = rng_range(r, 0, 1) ? DT_U8 : DT_I8;
    i64 dim[] = {rng_range(r, 1, 3), rng_range(r, 1, 4)};
    value_id in[8];
    random_input(g, "a", t, 2, dim, &in[0]);
    u32 rank = (u32)rng_range(r, 1, 2);
    random_input(g, "b", t, rank, dim + 2 - rank, &in[3]);
    in[1] = scale(g, r), in[4] = scale(g, r), in[6] = scale(g, r);
    in[2] = zero(g, t, r), in[5] = zero(g, t, r), in[7] = zero(g, t, r);
    random_node(g, self, (u32)rng_range(r, 7, 8), in, 1);
}

/* QLinearConcat: scale and zero of y, then x, scale, zero of every input */

static bool same_content(const struct graph *g, const struct node *nd, u32 a, u32 b)
{
    const struct tensor *x = op_has_in(nd, a) ? graph_value(g, nd->in.v[a])->data : NULL,
                        *y = op_has_in(nd, b) ? graph_value(g, nd->in.v[b])->data : NULL;
    if (op_has_in(nd, a) && op_has_in(nd, b) && nd->in.v[a] == nd->in.v[b]) return true;
    return x && y && x->dtype == y->dtype && tensor_count(x) == 1 && tensor_count(y) == 1 &&
           elem_f64(x->dtype, x->data, 0) == elem_f64(y->dtype, y->data, 0);
}

/* Input x with its scale, as quantised by scale `to`. */
static value_id requantised(struct graph *g, node_id n, u32 x, u32 to)
{
    const struct node nd = *graph_node(g, n);
    if (same_content(g, &nd, x + 1, to) && same_content(g, &nd, x + 2, to + 1)) return nd.in.v[x];
    value_id y = graph_add_value(g, S("requantised"));
    quantised(g, n, real(g, n, x, x + 1), to, op_in_dtype(g, &nd, x), y);
    return y;
}

static bool concat_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (nd->in.n < 5 || (nd->in.n - 2) % 3) return op_invalid(e, g, n, "%u inputs", nd->in.n);
    if (!check_scale(g, n, 0, e)) return false;
    for (u32 k = 2; k < nd->in.n; k += 3) {
        if (!check_8bit(g, n, k, e) || !check_scale(g, n, k + 1, e)) return false;
        if (op_in_dtype(g, nd, k) != op_in_dtype(g, nd, 2)) return op_invalid(e, g, n, "inputs of different types");
    }
    return op_infer_expanded(g, n, e);
}

static bool concat_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    u32 parts = (nd.in.n - 2) / 3;
    value_id *v = arena_array(g->arena, value_id, parts);
    for (u32 i = 0; i < parts; i++) v[i] = requantised(g, n, 2 + 3 * i, 0);
    op_node_concat(g, n, parts, v, attr_int(&nd, "axis", 0), nd.out.v[0]);
    return true;
}

static void random_concat(const struct op *self, struct graph *g, struct rng *r)
{
    enum dtype t = rng_range(r, 0, 1) ? DT_U8 : DT_I8;
    i64 rows = rng_range(r, 1, 3);
    value_id in[8];
    in[0] = scale(g, r), in[1] = zero(g, t, r);
    for (u32 k = 2; k < 8; k += 3) {
        random_input(g, "x", t, 2, (i64[]){rows, rng_range(r, 1, 4)}, &in[k]);
        bool same = rng_range(r, 0, 1);
        in[k + 1] = same ? in[0] : scale(g, r), in[k + 2] = same ? in[1] : zero(g, t, r);
    }
    random_node(g, self, 8, in, 1);
    attr_set_int(g, g->node.n - 1, "axis", 1);
}

/* QLinearWhere: condition, x, scale, zero, y, scale, zero, scale and zero of z */

static bool where_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (op_in_dtype(g, nd, 0) != DT_BOOL) return op_invalid(e, g, n, "the condition is not bool");
    return check_8bit(g, n, 1, e) && check_8bit(g, n, 4, e) && check_scale(g, n, 2, e) && check_scale(g, n, 5, e) &&
           check_scale(g, n, 7, e) && op_infer_expanded(g, n, e);
}

static bool where_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    value_id otherwise = requantised(g, n, 4, 7), then = requantised(g, n, 1, 7);
    op_node_where(g, n, nd.in.v[0], then, otherwise, nd.out.v[0]);
    return true;
}

static void random_where(const struct op *self, struct graph *g, struct rng *r)
{
    enum dtype t = rng_range(r, 0, 1) ? DT_U8 : DT_I8;
    i64 dim[] = {rng_range(r, 1, 3), rng_range(r, 1, 4)};
    value_id in[9];
    random_input(g, "c", DT_BOOL, 2, dim, &in[0]);
    random_input(g, "x", t, 2, dim, &in[1]);
    random_input(g, "y", t, 2, dim, &in[4]);
    in[2] = scale(g, r), in[5] = scale(g, r), in[7] = scale(g, r);
    in[3] = zero(g, t, r), in[6] = zero(g, t, r), in[8] = zero(g, t, r);
    random_node(g, self, 9, in, 1);
}

/* QLinearConv with channels last: x, scale, zero, w, scale, zero, scale and zero of y [, bias] */

static bool conv_infer(struct graph *g, node_id n, struct err *e)
{
    return check_8bit(g, n, 0, e) && check_8bit(g, n, 3, e) && op_check_rank(g, n, 0, 3, MAX_RANK, e) &&
           op_infer_expanded(g, n, e);
}

static bool conv_expand(struct graph *g, node_id n, struct err *e)
{
    static const char *const without[] = {"channels_last", NULL};
    const struct node nd = *graph_node(g, n);
    u32 rank = op_in_shape(g, &nd, 0)->rank;
    bool last = is_last(&nd);
    value_id in[9];
    for (u32 k = 0; k < 9; k++) in[k] = op_node_input(&nd, k);
    if (last) in[0] = channels(g, n, in[0], rank, false, 0);
    value_id y = op_node_same(g, n, "QLinearConv", 9, in, without, last ? 0 : nd.out.v[0]);
    if (last) channels(g, n, y, rank, true, nd.out.v[0]);
    return true;
}

static void random_conv(const struct op *self, struct graph *g, struct rng *r)
{
    i64 c = rng_range(r, 1, 3), m = rng_range(r, 1, 4), h = rng_range(r, 3, 5), w = rng_range(r, 3, 5);
    bool last = rng_range(r, 0, 1);
    value_id in[9];
    random_input(g, "x", DT_U8, 4, last ? (i64[]){1, h, w, c} : (i64[]){1, c, h, w}, &in[0]);
    in[3] = random_const(g, DT_I8, 4, (i64[]){m, c, 2, 3}, -20, 20, r);
    in[1] = scale(g, r), in[4] = scale(g, r), in[6] = op_const_f(g, DT_F32, 4);
    in[2] = zero(g, DT_U8, r), in[5] = op_const_f(g, DT_I8, 0), in[7] = zero(g, DT_U8, r);
    random_input(g, "bias", DT_I32, 1, &m, &in[8]);
    random_node(g, self, (u32)rng_range(r, 8, 9), in, 1);
    attr_set_int(g, g->node.n - 1, "channels_last", last);
}

#define OP(op, least, most, what, par)                                                                                 \
    {.name = "com.microsoft::" op, .min_in = least, .max_in = most, .min_out = 1, .max_out = 1,                         \
     .infer = what##_infer, .expand = what##_expand, .random = random_##what, .row = par}

static const struct op ops[] = {
    /* The zero point of x may be omitted before the scale of y. */
    OP("QLinearAveragePool", 2, 5, unary, "AveragePool"),
    OP("QLinearGlobalAveragePool", 2, 5, unary, "GlobalAveragePool"),
    OP("QLinearLeakyRelu", 2, 5, unary, "LeakyRelu"),
    OP("QLinearSigmoid", 2, 5, unary, "Sigmoid"),
    OP("QLinearSoftmax", 2, 5, unary, "Softmax"),
    OP("QLinearReduceMean", 2, 5, unary, "ReduceMean"),
    OP("QLinearAdd", 2, 8, binary, "Add"),
    OP("QLinearMul", 2, 8, binary, "Mul"),
    OP("QLinearConcat", 5, 255, concat, NULL),
    OP("QLinearWhere", 9, 9, where, NULL),
    OP("QLinearConv", 8, 9, conv, NULL),
};

const struct op_family op_ms_qlinear = {ops, countof(ops)};
