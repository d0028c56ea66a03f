// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft: matrix products of quantised operands, composites around ai.onnx's exact ones of bytes.
//
//   MatMulIntegerToFloat   (a - za)(b - zb) * (sa * sb) + bias, in f32
//   DynamicQuantizeMatMul  likewise with a quantised to u8 by its own extremes first
//   QGemm                  alpha * a x b + c of bytes, c of i32 with the product's scale; quantised if a scale says how
//   DynamicQuantizeLSTM    LSTM of the dequantised weights: ONNX Runtime quantises each step's input, too, which only
//                          loses accuracy
//   MatMulInteger16        products of i16 and u16 with sums of i32
#include "op/op.h"

static bool is_8bit(enum dtype t) { return t == DT_U8 || t == DT_I8; }

static bool check_8bit(const struct graph *g, node_id n, u32 k, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    return is_8bit(op_in_dtype(g, nd, k)) || op_unsupported(e, g, n, "input %u of type %s, only 8-bit ones are supported",
                                                            k, dtype_name(op_in_dtype(g, nd, k)));
}

static bool is_single(const struct graph *g, const struct node *nd, u32 k)
{
    i64 c;
    const struct shape *s = op_in_shape(g, nd, k);
    return s->rank == 0 || (s->rank == 1 && sym_is_const(g->sym, s->dim[0], &c) && c == 1);
}

static bool check_single(const struct graph *g, node_id n, u32 k, const char *what, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    return !op_has_in(nd, k) || is_single(g, nd, k) || op_unsupported(e, g, n, "%s (input %u) is not one number", what, k);
}

/* Input k, a one-element vector as a scalar. */
static value_id flat(struct graph *g, node_id n, u32 k)
{
    const struct node nd = *graph_node(g, n);
    if (!op_has_in(&nd, k)) return 0;
    bool vector = op_in_shape(g, &nd, k)->rank && is_single(g, &nd, k);
    return vector ? op_node_reshape(g, n, nd.in.v[k], 0, NULL, 0) : nd.in.v[k];
}

/* A scale for each column of b, inputs k and 1, or a single one. */
static bool check_columns(struct graph *g, node_id n, u32 k, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape b = *op_in_shape(g, nd, 1), *s = op_in_shape(g, nd, k);
    return is_single(g, nd, k) || s->rank != 1 || b.rank < 2 ||
           op_require_equal(g, n, s->dim[0], b.dim[b.rank - 1], e, "the scales of input %u and the columns of B", k);
}

/* The product of bytes as i32; zero points may be 0. */
static value_id product(struct graph *g, node_id n, value_id a, value_id b, value_id za, value_id zb, enum dtype ta)
{
    if (zb && !za) za = op_const_f(g, ta, 0);
    value_id in[] = {a, b, za, zb};
    return op_node(g, n, "MatMulInteger", zb ? 4 : za ? 3 : 2, in, 0);
}

/* i32 x * scale + bias, of type t, into out */
static void scaled(struct graph *g, node_id n, value_id x, value_id scale, value_id bias, enum dtype t, value_id out)
{
    x = op_node2(g, n, "Mul", op_node_cast(g, n, x, t, 0), scale, bias ? 0 : out);
    if (bias) op_node2(g, n, "Add", x, bias, out);
}

/* MatMulIntegerToFloat: a, b, scales of a and b [, zeros of a and b [, bias]] */

static bool to_float_infer(struct graph *g, node_id n, struct err *e)
{
    return check_8bit(g, n, 0, e) && check_8bit(g, n, 1, e) && op_check_float(g, n, 2, e) && op_check_float(g, n, 3, e) &&
           check_single(g, n, 2, "the scale of A", e) && check_single(g, n, 4, "the zero point of A", e) &&
           check_columns(g, n, 3, e) && op_infer_expanded(g, n, e);
}

static bool to_float_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    value_id zb = flat(g, n, 5), za = flat(g, n, 4), y = product(g, n, nd.in.v[0], nd.in.v[1], za, zb, op_in_dtype(g, &nd, 0));
    value_id sb = flat(g, n, 3), sa = flat(g, n, 2), scale = op_node2(g, n, "Mul", sa, sb, 0);
    scaled(g, n, y, scale, op_node_input(&nd, 6), op_in_dtype(g, &nd, 2), nd.out.v[0]);
    return true;
}

static value_id scales(struct graph *g, i64 n, struct rng *r)
{
    struct tensor *t = tensor_new(g->arena, DT_F32, n > 0, &n);
    for (i64 i = 0; i < tensor_count(t); i++) elem_set_f64(DT_F32, t->data, i, rng_range(r, 0, 1) ? 0.25 : 0.5);
    return graph_add_const(g, S("scale"), t);
}

static void random_to_float(const struct op *self, struct graph *g, struct rng *r)
{
    i64 i = rng_range(r, 1, 4), j = rng_range(r, 1, 5), k = rng_range(r, 1, 6), per = rng_range(r, 0, 1) ? j : 0;
    enum dtype ta = rng_range(r, 0, 1) ? DT_U8 : DT_I8, tb = rng_range(r, 0, 1) ? DT_U8 : DT_I8;
    value_id in[7];
    random_input(g, "a", ta, 2, (i64[]){i, k}, &in[0]);
    random_input(g, "b", tb, 2, (i64[]){k, j}, &in[1]);
    in[2] = scales(g, 0, r), in[3] = scales(g, per, r);
    in[4] = random_const(g, ta, 0, NULL, 0, 9, r), in[5] = random_const(g, tb, per > 0, &per, 0, 9, r);
    random_input(g, "bias", DT_F32, 1, &j, &in[6]);
    random_node(g, self, (u32)rng_range(r, 4, 7), in, 1);
}

/* DynamicQuantizeMatMul: a, b, scale of b [, zero of b [, bias]] */

static bool dynamic_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (op_in_dtype(g, nd, 0) != DT_F32) return op_unsupported(e, g, n, "type %s", dtype_name(op_in_dtype(g, nd, 0)));
    return check_8bit(g, n, 1, e) && op_check_float(g, n, 2, e) && check_columns(g, n, 2, e) && op_infer_expanded(g, n, e);
}

static bool dynamic_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    value_id scale = graph_add_value(g, S("scale")), zero = graph_add_value(g, S("zero_point"));
    value_id a = op_node1(g, n, "DynamicQuantizeLinear", nd.in.v[0], 0);
    node_set_out(g, op_made(g, a), 1, scale);
    node_set_out(g, op_made(g, a), 2, zero);
    value_id y = product(g, n, a, nd.in.v[1], zero, flat(g, n, 3), DT_U8);
    scaled(g, n, y, op_node2(g, n, "Mul", scale, flat(g, n, 2), 0), op_node_input(&nd, 4), DT_F32, nd.out.v[0]);
    return true;
}

static void random_dynamic(const struct op *self, struct graph *g, struct rng *r)
{
    i64 i = rng_range(r, 1, 4), j = rng_range(r, 1, 5), k = rng_range(r, 1, 6), per = rng_range(r, 0, 1) ? j : 0;
    enum dtype tb = rng_range(r, 0, 1) ? DT_U8 : DT_I8;
    value_id in[5];
    struct tensor *t = tensor_new(g->arena, DT_F32, 2, (i64[]){i, k});
    for (i64 c = 0; c < tensor_count(t); c++) elem_set_f64(DT_F32, t->data, c, (double)rng_range(r, 0, 200) / 4);
    elem_set_f64(DT_F32, t->data, 0, 63.75); /* scale 1/4 */
    in[0] = graph_add_const(g, S("a"), t);
    random_input(g, "b", tb, 2, (i64[]){k, j}, &in[1]);
    in[2] = scales(g, per, r);
    in[3] = random_const(g, tb, per > 0, &per, 0, 9, r);
    random_input(g, "bias", DT_F32, 1, &j, &in[4]);
    random_node(g, self, (u32)rng_range(r, 3, 5), in, 1);
}

/* QGemm */

enum { GA, GA_SCALE, GA_ZERO, GB, GB_SCALE, GB_ZERO, GC, GY_SCALE, GY_ZERO };

static bool gemm_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!check_8bit(g, n, GA, e) || !check_8bit(g, n, GB, e)) return false;
    if (!op_check_rank(g, n, GA, 2, 2, e) || !op_check_rank(g, n, GB, 2, 2, e)) return false;
    if (op_has_in(nd, GC) && op_in_dtype(g, nd, GC) != DT_I32) return op_invalid(e, g, n, "C is not i32");
    if (op_has_in(nd, GY_SCALE) != op_has_in(nd, GY_ZERO))
        return op_invalid(e, g, n, "a scale of the output without a zero point, or the other way round");
    return check_single(g, n, GA_SCALE, "the scale of A", e) && check_single(g, n, GA_ZERO, "the zero point of A", e) &&
           check_single(g, n, GY_SCALE, "the scale of the output", e) && op_infer_expanded(g, n, e);
}

static bool gemm_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    value_id a = nd.in.v[GA], b = nd.in.v[GB], out = nd.out.v[0];
    double alpha = attr_float(&nd, "alpha", 1);
    bool quantised = op_has_in(&nd, GY_SCALE);
    if (attr_int(&nd, "transA", 0)) a = op_node_swap(g, n, a, 2, 0, 1, 0);
    if (attr_int(&nd, "transB", 0)) b = op_node_swap(g, n, b, 2, 0, 1, 0);
    value_id zb = flat(g, n, GB_ZERO), za = flat(g, n, GA_ZERO), y = product(g, n, a, b, za, zb, op_in_dtype(g, &nd, GA));
    if (op_has_in(&nd, GC)) y = op_node2(g, n, "Add", y, nd.in.v[GC], 0);
    value_id sb = flat(g, n, GB_SCALE), sa = flat(g, n, GA_SCALE), scale = op_node2(g, n, "Mul", sa, sb, 0);
    if (alpha != 1) scale = op_node_binf(g, n, "Mul", scale, DT_F32, alpha, 0);
    value_id f = quantised ? graph_add_value(g, S("product")) : out;
    scaled(g, n, y, scale, 0, DT_F32, f);
    if (quantised) op_node(g, n, "QuantizeLinear", 3, (value_id[]){f, flat(g, n, GY_SCALE), flat(g, n, GY_ZERO)}, out);
    return true;
}

static void random_gemm(const struct op *self, struct graph *g, struct rng *r)
{
    i64 i = rng_range(r, 1, 4), j = rng_range(r, 1, 5), k = rng_range(r, 1, 6), per = rng_range(r, 0, 1) ? j : 0;
    bool ta = rng_range(r, 0, 1), tb = rng_range(r, 0, 1);
    value_id in[9] = {0};
    random_input(g, "a", DT_U8, 2, ta ? (i64[]){k, i} : (i64[]){i, k}, &in[GA]);
    random_input(g, "b", DT_I8, 2, tb ? (i64[]){j, k} : (i64[]){k, j}, &in[GB]);
    in[GA_SCALE] = scales(g, 0, r), in[GB_SCALE] = scales(g, per, r), in[GY_SCALE] = op_const_f(g, DT_F32, 4);
    in[GA_ZERO] = random_const(g, DT_U8, 0, NULL, 0, 9, r), in[GB_ZERO] = random_const(g, DT_I8, per > 0, &per, 0, 9, r);
    in[GY_ZERO] = random_const(g, DT_U8, 0, NULL, 0, 90, r);
    if (rng_range(r, 0, 1)) random_input(g, "c", DT_I32, 1, &j, &in[GC]);
    random_node(g, self, rng_range(r, 0, 1) ? 9 : in[GC] ? 7 : 6, in, 1);
    attr_set_int(g, g->node.n - 1, "transA", ta);
    attr_set_int(g, g->node.n - 1, "transB", tb);
}

/* DynamicQuantizeLSTM: LSTM's inputs with w (d, i, 4h) and r (d, h, 4h) quantised, then their scales and zero points */

enum { LX, LW, LR, LB, L_LENS, LH, LC, LP, LW_SCALE, LW_ZERO, LR_SCALE, LR_ZERO };

static bool lstm_infer(struct graph *g, node_id n, struct err *e)
{
    for (u32 k = LW_SCALE; k <= LR_ZERO; k++)
        if (!op_check_present(g, n, k, e) || !op_check_rank(g, n, k, 1, 2, e)) return false;
    return check_8bit(g, n, LW, e) && check_8bit(g, n, LR, e) && op_check_rank(g, n, LW, 3, 3, e) &&
           op_check_rank(g, n, LR, 3, 3, e) && op_infer_expanded(g, n, e);
}

/* (d) or (d, 4h), laid along a (d, i, 4h) */
static value_id gates(struct graph *g, node_id n, u32 k)
{
    const struct node nd = *graph_node(g, n);
    i64 axes[] = {1, 2};
    return op_node_axes(g, n, "Unsqueeze", nd.in.v[k], axes, op_in_shape(g, &nd, k)->rank == 1 ? 2 : 1, 0);
}

static value_id weights(struct graph *g, node_id n, u32 k, u32 scale)
{
    const struct node nd = *graph_node(g, n);
    value_id zero = op_node_cast(g, n, gates(g, n, scale + 1), DT_I32, 0);
    value_id w = op_node2(g, n, "Sub", op_node_cast(g, n, nd.in.v[k], DT_I32, 0), zero, 0), factor = gates(g, n, scale);
    w = op_node2(g, n, "Mul", op_node_cast(g, n, w, DT_F32, 0), factor, 0);
    return op_node_swap(g, n, w, 3, 1, 2, 0);
}

static bool lstm_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    value_id in[8], first = nd.out.v[0];
    for (u32 k = 0; k < 8; k++) in[k] = op_node_input(&nd, k);
    in[LW] = weights(g, n, LW, LW_SCALE), in[LR] = weights(g, n, LR, LR_SCALE);
    value_id y = op_node_same(g, n, "LSTM", 8, in, NULL, first ? first : graph_add_value(g, S("y")));
    for (u32 k = 1; k < nd.out.n; k++)
        if (nd.out.v[k]) node_set_out(g, op_made(g, y), k, nd.out.v[k]);
    return true;
}

static void random_lstm(const struct op *self, struct graph *g, struct rng *r)
{
    i64 s = rng_range(r, 1, 3), b = rng_range(r, 1, 2), i = rng_range(r, 1, 4), h = rng_range(r, 1, 3), four = 4 * h, one = 1;
    bool per = rng_range(r, 0, 1);
    i64 scale_dim[] = {1, four};
    value_id in[12] = {0};
    random_input(g, "x", DT_F32, 3, (i64[]){s, b, i}, &in[LX]);
    in[LW] = random_const(g, DT_I8, 3, (i64[]){1, i, four}, -60, 60, r);
    in[LR] = random_const(g, DT_I8, 3, (i64[]){1, h, four}, -60, 60, r);
    if (rng_range(r, 0, 1)) random_input(g, "b", DT_F32, 2, (i64[]){1, 2 * four}, &in[LB]);
    for (u32 k = LW_SCALE; k <= LR_SCALE; k += 2) {
        in[k] = random_const(g, DT_F32, per ? 2 : 1, per ? scale_dim : &one, 0.01, 0.02, r);
        in[k + 1] = random_const(g, DT_I8, per ? 2 : 1, per ? scale_dim : &one, -3, 3, r);
    }
    random_node(g, self, 12, in, 3);
    attr_set_int(g, g->node.n - 1, "hidden_size", h);
}

/* MatMulInteger16 */

static bool wide_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    for (u32 k = 0; k < 2; k++)
        if (op_in_dtype(g, nd, k) != DT_I16 && op_in_dtype(g, nd, k) != DT_U16)
            return op_unsupported(e, g, n, "input %u of type %s", k, dtype_name(op_in_dtype(g, nd, k)));
    return op_infer_expanded(g, n, e);
}

static bool wide_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    bool is_signed = op_in_dtype(g, &nd, 0) == DT_I16 || op_in_dtype(g, &nd, 1) == DT_I16;
    value_id b = op_node_cast(g, n, nd.in.v[1], DT_I32, 0), y = op_node2(g, n, "MatMul", op_node_cast(g, n, nd.in.v[0], DT_I32, 0), b, 0);
    op_node_into(g, n, y, DT_I32, is_signed ? DT_I32 : DT_U32, nd.out.v[0]);
    return true;
}

static void random_wide(const struct op *self, struct graph *g, struct rng *r)
{
    i64 i = rng_range(r, 1, 4), j = rng_range(r, 1, 5), k = rng_range(r, 1, 6);
    value_id in[2];
    random_input(g, "a", rng_range(r, 0, 1) ? DT_I16 : DT_U16, 2, (i64[]){i, k}, &in[0]);
    random_input(g, "b", rng_range(r, 0, 1) ? DT_I16 : DT_U16, 2, (i64[]){k, j}, &in[1]);
    random_node(g, self, 2, in, 1);
}

static const struct op ops[] = {
    OP_COMPOSITE("com.microsoft::MatMulIntegerToFloat", 4, 7, 1, to_float),
    OP_COMPOSITE("com.microsoft::DynamicQuantizeMatMul", 3, 5, 1, dynamic),
    OP_COMPOSITE("com.microsoft::QGemm", 6, 9, 1, gemm),
    OP_COMPOSITE("com.microsoft::DynamicQuantizeLSTM", 3, 12, 3, lstm),
    OP_COMPOSITE("com.microsoft::MatMulInteger16", 2, 2, 1, wide),
};

const struct op_family op_ms_qmatmul = {ops, countof(ops)};
