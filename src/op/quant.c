// SPDX-License-Identifier: Apache-2.0
//
// The quantised operators, all composites with exact integers. Convolutions and matrix products are Conv and MatMul
// of u8 and i8, minus the contribution of the zero points (or Conv of i32 over values minus their zero points, if
// weights minus theirs do not fit into bytes). Scales are applied in f32; rounding is to nearest even, with
// saturation.
//
//   real = (quantised - zero_point) * scale
#include "op/op.h"

/* Inputs of QLinearConv and QLinearMatMul. */
enum { QA, QA_SCALE, QA_ZERO, QB, QB_SCALE, QB_ZERO, QY_SCALE, QY_ZERO, Q_BIAS, NO_INPUT };

static bool is_8bit(enum dtype t) { return t == DT_U8 || t == DT_I8; }

/* Scales, zero points: scalars, or one element per index of some axis. */
static bool is_vector(const struct graph *g, const struct node *nd, u32 k)
{
    i64 c;
    if (!op_has_in(nd, k)) return false;
    const struct shape *s = op_in_shape(g, nd, k);
    return s->rank == 1 && !(sym_is_const(g->sym, s->dim[0], &c) && c == 1);
}

static bool check_params(const struct graph *g, node_id n, u32 first, u32 end, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    for (u32 k = first; k < end; k++)
        if (op_has_in(nd, k) && op_in_shape(g, nd, k)->rank > 1)
            return op_unsupported(e, g, n, "input %u of rank %u", k, op_in_shape(g, nd, k)->rank);
    return true;
}

/* A vector along an axis that is followed by `behind` axes: (c) -> (c, 1, 1 ...). */
static value_id along(struct graph *g, node_id n, value_id v, u32 behind)
{
    i64 axes[MAX_RANK];
    for (u32 i = 0; i < behind; i++) axes[i] = 1 + i;
    return behind ? op_node_axes(g, n, "Unsqueeze", v, axes, behind, 0) : v;
}

/* Input k, as a vector along an axis. 0: omitted. */
static value_id param(struct graph *g, node_id n, u32 k, u32 behind)
{
    const struct node nd = *graph_node(g, n);
    if (!op_has_in(&nd, k)) return 0;
    return is_vector(g, &nd, k) ? along(g, n, nd.in.v[k], behind) : nd.in.v[k];
}

/* A one-element vector as a scalar, so that it never adds an axis. */
static value_id scalar_if_single(struct graph *g, node_id n, value_id v)
{
    const struct value *x = v ? graph_value(g, v) : NULL;
    i64 c, zero = 0;
    if (!x || !x->shape.known || x->shape.rank != 1 || !sym_is_const(g->sym, x->shape.dim[0], &c) ||
        c != 1)
        return v;
    return op_node_axes(g, n, "Squeeze", v, &zero, 1, 0);
}

/* Input k as i32 less the zero point of input z. */
static value_id centred(struct graph *g, node_id n, u32 k, u32 z, u32 behind)
{
    const struct node nd = *graph_node(g, n);
    value_id x = op_as(g, n, nd.in.v[k], DT_I32);
    if (!op_has_in(&nd, z)) return x;
    value_id zero = op_node_cast(g, n, scalar_if_single(g, n, param(g, n, z, behind)), DT_I32, 0);
    return op_node2(g, n, "Sub", x, zero, 0);
}

/* Range of an integer type of up to 16 bits. */
static double least(enum dtype t) { return dtype_kind(t) == DK_UINT ? 0 : -(double)(1 << (dtype_bits(t) - 1)); }
static double most(enum dtype t) { return (double)(1 << (dtype_bits(t) - (dtype_kind(t) == DK_INT))) - 1; }

/* round(x) + zero point, saturated to type t. x: f32 */
static void saturate(struct graph *g, node_id n, value_id x, value_id zero, enum dtype t,
                     value_id out)
{
    x = op_node1(g, n, "Round", x, 0);
    if (zero) x = op_node2(g, n, "Add", x, op_node_cast(g, n, zero, DT_F32, 0), 0);
    x = op_node_binf(g, n, "Max", x, DT_F32, least(t), 0);
    x = op_node_binf(g, n, "Min", x, DT_F32, most(t), 0);
    op_node_cast(g, n, x, t, out);
}

/* What QuantizeLinear and DequantizeLinear share: input, scale [, zero point], which are one number, a vector along
   attribute `axis`, or have a number for each block of `block_size` indices of it. */
enum { X, SCALE, ZERO };

static bool is_quantised(enum dtype t)
{
    if (dtype_is_small(t)) return t != DT_F8E8M0;
    return t == DT_U8 || t == DT_I8 || t == DT_U16 || t == DT_I16;
}

static bool blocks_ok(struct graph *g, node_id n, u32 axis, i64 size, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *x = op_in_shape(g, nd, X);
    for (u32 k = SCALE; k <= ZERO; k++) {
        if (!op_has_in(nd, k)) continue;
        const struct shape *s = op_in_shape(g, nd, k);
        if (s->rank != x->rank)
            return op_invalid(e, g, n, "input %u of rank %u has no blocks of an input of rank %u", k, s->rank, x->rank);
        for (u32 a = 0; a < x->rank; a++) {
            sym want = a == axis ? sym_cdiv(g->sym, x->dim[a], sym_const(g->sym, size)) : x->dim[a];
            if (!op_sizes_agree(g, s->dim[a], want))
                return op_invalid(e, g, n, "axis %u of input %u does not fit blocks of %lld", a, k, (long long)size);
        }
    }
    return true;
}

static bool scaled_ok(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    enum dtype s = op_in_dtype(g, nd, SCALE);
    i64 size = attr_int(nd, "block_size", 0), at = attr_int(nd, "axis", 1);
    u32 axis;
    bool is_known = s == DT_I32 || (dtype_is_float(s) && (!dtype_is_small(s) || s == DT_F8E8M0));
    if (!is_known) return op_unsupported(e, g, n, "scale of type %s", dtype_name(s));
    if (size < 0) return op_invalid(e, g, n, "attribute 'block_size' = %lld", (long long)size);
    if (!size && !check_params(g, n, SCALE, ZERO + 1, e)) return false;
    if (!size && !is_vector(g, nd, SCALE)) return true;
    if (!op_axis(at, op_in_shape(g, nd, X)->rank, &axis))
        return op_invalid(e, g, n, "axis %lld does not exist", (long long)at);
    return !size || blocks_ok(g, n, axis, size, e);
}

/* Axes after attribute `axis`. */
static u32 axes_behind(const struct graph *g, const struct node *nd)
{
    u32 rank = op_in_shape(g, nd, 0)->rank, axis = 0;
    if (!op_axis(attr_int(nd, "axis", 1), rank, &axis)) return 0; /* scalars: not needed */
    return rank - axis - 1;
}

/* Scale or zero point, input k, such that it broadcasts with the input. */
static value_id laid(struct graph *g, node_id n, u32 k)
{
    const struct node nd = *graph_node(g, n);
    i64 size = attr_int(&nd, "block_size", 0);
    u32 behind = axes_behind(g, &nd), axis = op_in_shape(g, &nd, X)->rank - behind - 1;
    if (!op_has_in(&nd, k)) return 0;
    if (!size) return scalar_if_single(g, n, param(g, n, k, behind));
    if (size == 1) return nd.in.v[k];
    value_id v = op_node1(g, n, "quern::Repeat", nd.in.v[k], 0);
    sym length = op_in_shape(g, &nd, X)->dim[axis];
    attr_set_int(g, op_made(g, v), "axis", axis);
    attr_set_int(g, op_made(g, v), "times", size);
    op_set_syms(g, op_made(g, v), "size", &length, 1);
    return v;
}

/* The element type that attribute `name` gives, `def` without it. */
static bool type_attr(const struct graph *g, node_id n, const char *name, enum dtype *t, struct err *e)
{
    i64 v = attr_int(graph_node(g, n), name, 0);
    if (v) *t = dtype_from_onnx((int)i64_max(0, i64_min(v, 255)));
    return *t != DT_NONE || op_unsupported(e, g, n, "attribute '%s' = %lld", name, (long long)v);
}

/* QuantizeLinear */

static bool quantised_type(const struct graph *g, node_id n, enum dtype *t, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    enum dtype zero = op_has_in(nd, ZERO) ? op_in_dtype(g, nd, ZERO) : DT_NONE;
    *t = zero ? zero : DT_U8;
    if (!type_attr(g, n, "output_dtype", t, e)) return false;
    return !zero || zero == *t || op_invalid(e, g, n, "attribute 'output_dtype' is %s, the zero point %s", dtype_name(*t), dtype_name(zero));
}

/* In which the input is divided by the scale. */
static bool division_type(const struct graph *g, node_id n, enum dtype *t, struct err *e)
{
    enum dtype s = op_in_dtype(g, graph_node(g, n), SCALE);
    *t = dtype_is_small(s) || s == DT_I32 ? DT_F32 : s;
    if (!type_attr(g, n, "precision", t, e)) return false;
    return (dtype_is_float(*t) && !dtype_is_small(*t)) || op_unsupported(e, g, n, "attribute 'precision': %s", dtype_name(*t));
}

static bool quantize_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    enum dtype x = op_in_dtype(g, nd, X), t, by;
    struct shape s = *op_in_shape(g, nd, X);
    if ((!dtype_is_float(x) || dtype_is_small(x)) && x != DT_I32) return op_unsupported(e, g, n, "type %s", dtype_name(x));
    if (!quantised_type(g, n, &t, e) || !division_type(g, n, &by, e)) return false;
    if (!is_quantised(t)) return op_unsupported(e, g, n, "zero point of type %s", dtype_name(t));
    if (!scaled_ok(g, n, e)) return false;
    op_set_out(g, n, 0, t, &s);
    return true;
}

static bool quantize_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t, by;
    if (!quantised_type(g, n, &t, e) || !division_type(g, n, &by, e)) return false;
    enum dtype in = by == DT_F64 ? DT_F64 : DT_F32; /* rounded to a shorter one explicitly */
    value_id x = op_as(g, n, op_as(g, n, nd.in.v[X], by), in), zero = laid(g, n, ZERO);
    x = op_node2(g, n, "Div", x, op_as(g, n, op_as(g, n, laid(g, n, SCALE), by), in), 0);
    if (by != in) x = op_node_cast(g, n, x, by, 0);
    if (by != DT_F32) x = op_node_cast(g, n, x, DT_F32, 0);
    if (!dtype_is_float(t)) {
        saturate(g, n, x, zero, t, nd.out.v[0]);
        return true;
    }
    if (zero) x = op_node2(g, n, "Add", x, op_node_cast(g, n, zero, DT_F32, 0), 0);
    value_id y = op_node_cast(g, n, x, t, nd.out.v[0]);
    attr_set_int(g, op_made(g, y), "saturate", attr_int(&nd, "saturate", 1));
    return true;
}

/* DequantizeLinear: to the scale's type, if no attribute says another one */

static bool real_type(const struct graph *g, node_id n, enum dtype *t, struct err *e)
{
    *t = op_in_dtype(g, graph_node(g, n), SCALE);
    if (!type_attr(g, n, "output_dtype", t, e)) return false;
    return (dtype_is_float(*t) && !dtype_is_small(*t)) ||
           op_unsupported(e, g, n, "real numbers of type %s; attribute 'output_dtype' gives another", dtype_name(*t));
}

static bool dequantize_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    enum dtype x = op_in_dtype(g, nd, X), t;
    struct shape s = *op_in_shape(g, nd, X);
    if (!is_quantised(x) && x != DT_I32) return op_unsupported(e, g, n, "type %s", dtype_name(x));
    if (op_has_in(nd, ZERO) && op_in_dtype(g, nd, ZERO) != x) return op_invalid(e, g, n, "zero point of another type");
    if (!scaled_ok(g, n, e) || !real_type(g, n, &t, e)) return false;
    op_set_out(g, n, 0, t, &s);
    return true;
}

static bool dequantize_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t;
    if (!real_type(g, n, &t, e)) return false;
    enum dtype by = t == DT_F64 || op_in_dtype(g, &nd, SCALE) == DT_F64 ? DT_F64 : DT_F32;
    enum dtype exact = dtype_is_float(op_in_dtype(g, &nd, X)) ? by : DT_I32;
    value_id x = op_as(g, n, nd.in.v[X], exact), zero = laid(g, n, ZERO);
    if (zero) x = op_node2(g, n, "Sub", x, op_node_cast(g, n, zero, exact, 0), 0);
    if (exact != by) x = op_node_cast(g, n, x, by, 0);
    value_id y = op_node2(g, n, "Mul", x, op_as(g, n, laid(g, n, SCALE), by), t == by ? nd.out.v[0] : 0);
    if (t != by) op_node_cast(g, n, y, t, nd.out.v[0]);
    return true;
}

/* DynamicQuantizeLinear: x -> y, scale, zero point */

static bool dynamic_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct shape s = *op_in_shape(g, nd, 0), scalar = {.known = true};
    if (op_in_dtype(g, nd, 0) != DT_F32)
        return op_unsupported(e, g, n, "type %s", dtype_name(op_in_dtype(g, nd, 0)));
    op_set_out(g, n, 0, DT_U8, &s);
    op_set_out(g, n, 1, DT_F32, &scalar);
    op_set_out(g, n, 2, DT_U8, &scalar);
    return true;
}

static value_id extreme(struct graph *g, node_id n, const char *reduce, const char *with_zero)
{
    value_id v = op_node1(g, n, reduce, graph_node(g, n)->in.v[0], 0);
    attr_set_int(g, op_made(g, v), "keepdims", 0);
    return op_node_binf(g, n, with_zero, v, DT_F32, 0, 0);
}

static bool dynamic_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    value_id max = extreme(g, n, "ReduceMax", "Max"), min = extreme(g, n, "ReduceMin", "Min");
    value_id range = op_node2(g, n, "Sub", max, min, 0);
    value_id scale = op_node_binf(g, n, "Div", range, DT_F32, 255, nd.out.n > 1 ? nd.out.v[1] : 0);
    value_id is_zero =
        op_node_binf(g, n, "Equal", scale, DT_F32, 0, 0); /* all of x is 0: any divisor does */
    value_id div =
        op_node(g, n, "Where", 3, (value_id[]){is_zero, op_const_f(g, DT_F32, 1), scale}, 0);
    value_id zero = op_node2(g, n, "Div", op_node1(g, n, "Neg", min, 0), div, 0);
    value_id zp = nd.out.n > 2 && nd.out.v[2] ? nd.out.v[2] : graph_add_value(g, S("zero_point"));
    saturate(g, n, zero, 0, DT_U8, zp);
    saturate(g, n, op_node2(g, n, "Div", nd.in.v[0], div, 0), zp, DT_U8, nd.out.v[0]);
    return true;
}

/* Products. */

struct operands { /* inputs: left and right operand and their zero points */
    u32 a, za, b, zb;
};
static const struct operands of_integer = {.a = 0, .b = 1, .za = 2, .zb = 3}, /* ConvInteger, MatMulInteger */
    /* QLinearConv, QLinearMatMul. The latter takes and gives floats of 8 bits, too, whose
       products are sums of f32. */
    of_linear = {.a = QA, .za = QA_ZERO, .b = QB, .zb = QB_ZERO};

static bool is_f8(enum dtype t) { return dtype_is_small(t) && dtype_bits(t) == 8 && t != DT_F8E8M0; }

static bool is_float_product(const struct graph *g, const struct node *nd)
{
    return str_is(nd->op, "QLinearMatMul") && (is_f8(op_in_dtype(g, nd, QA)) || is_f8(op_in_dtype(g, nd, QB)));
}

/* Operand k less its zero point z, in f32. */
static value_id centred_float(struct graph *g, node_id n, u32 k, u32 z, u32 behind)
{
    const struct node nd = *graph_node(g, n);
    value_id x = op_as(g, n, nd.in.v[k], DT_F32);
    if (!op_has_in(&nd, z)) return x;
    return op_node2(g, n, "Sub", x, op_node_cast(g, n, scalar_if_single(g, n, param(g, n, z, behind)), DT_F32, 0), 0);
}
enum { BIAS = 2, PAD }; /* inputs of Conv */

static bool types_8bit(const struct graph *g, node_id n, u32 a, u32 b, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (is_8bit(op_in_dtype(g, nd, a)) && is_8bit(op_in_dtype(g, nd, b))) return true;
    return op_unsupported(e, g, n, "types %s and %s", dtype_name(op_in_dtype(g, nd, a)),
                          dtype_name(op_in_dtype(g, nd, b)));
}

static bool product_shape(struct graph *g, node_id n, u32 b, struct shape *out, struct err *e)
{
    struct str op = graph_node(g, n)->op;
    bool conv = str_is(op, "ConvInteger") || str_is(op, "QLinearConv");
    return conv ? op_conv_shape(g, n, b, b == QB ? Q_BIAS : NO_INPUT, out, e)
                : op_matmul_shape(g, n, 0, b, out, e);
}

/* Whether input k, if it has one number per index of an axis, has as many numbers as the axis has
   indices. */
static bool fits_axis(struct graph *g, node_id n, u32 k, sym size, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    return !is_vector(g, nd, k) || op_require_equal(g, n, op_in_shape(g, nd, k)->dim[0], size, e, "the numbers of input %u and the axis that they are for", k);
}

/* Zero points or scales, inputs `left` and `right`, of a product's operands 0 and b. */
static bool params_fit(struct graph *g, node_id n, u32 left, u32 right, u32 b, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct str op = nd->op;
    const struct shape a = *op_in_shape(g, nd, 0), w = *op_in_shape(g, nd, b);
    if (str_is(op, "ConvInteger") || str_is(op, "QLinearConv"))
        return fits_axis(g, n, left, sym_const(g->sym, 1), e) && fits_axis(g, n, right, w.dim[0], e);
    return (a.rank < 2 || fits_axis(g, n, left, a.dim[a.rank - 2], e)) && (w.rank < 2 || fits_axis(g, n, right, w.dim[w.rank - 1], e));
}

/* 8-bit v as type t, with the same values plus *shift. */
static value_id as_bytes(struct graph *g, node_id n, value_id v, enum dtype t, i64 *shift)
{
    *shift = 0;
    if (graph_value(g, v)->dtype == t) return v;
    *shift = t == DT_U8 ? 128 : -128;
    value_id wide = op_node_cast(g, n, v, DT_I32, 0);
    return op_node_cast(g, n, op_node_binf(g, n, "Add", wide, DT_I32, (double)*shift, 0), t, 0);
}

static bool is_zero(const struct graph *g, value_id v)
{
    const struct tensor *t = graph_value(g, v)->is_const ? graph_value(g, v)->data : NULL;
    for (i64 i = 0; t && i < tensor_count(t); i++)
        if (elem_i64(t->dtype, t->data, i)) return false;
    return t != NULL;
}

/* Zero point z plus shift, i32; 0: there is none. */
static value_id shifted_zero(struct graph *g, node_id n, u32 z, u32 behind, i64 shift)
{
    const struct node nd = *graph_node(g, n);
    if (!op_has_in(&nd, z) || is_zero(g, nd.in.v[z]))
        return shift ? op_const_f(g, DT_I32, (double)shift) : 0;
    value_id zero = op_node_cast(g, n, scalar_if_single(g, n, param(g, n, z, behind)), DT_I32, 0);
    return shift ? op_node_binf(g, n, "Add", zero, DT_I32, (double)shift, 0) : zero;
}

/* y - zero * (sum of v, i32, over an axis counted from the end) */
static value_id less_sums(struct graph *g, node_id n, value_id y, value_id zero, value_id v, i64 axis)
{
    value_id sums = op_node_axes(g, n, "ReduceSum", v, &axis, 1, 0);
    return op_node2(g, n, "Sub", y, op_node2(g, n, "Mul", sums, zero, 0), 0);
}

/* Constant weights w of a convolution minus their zero points, as i8 if they fit; else 0. */
static value_id centred_bytes(struct graph *g, node_id n, u32 b, u32 z)
{
    const struct node nd = *graph_node(g, n);
    const struct tensor *w = graph_value(g, nd.in.v[b])->data, *zero = NULL;
    if (!w) return 0;
    if (op_has_in(&nd, z) && !(zero = graph_value(g, nd.in.v[z])->data)) return 0;
    i64 count = tensor_count(w), n_zero = zero ? tensor_count(zero) : 0, per = w->dim[0] ? count / w->dim[0] : 0;
    struct tensor *t = tensor_try(g->arena, DT_I8, w->rank, w->dim, NULL, "weights", S(""));
    for (i64 i = 0; t && i < count; i++) {
        i64 less = n_zero ? elem_i64(zero->dtype, zero->data, n_zero > 1 ? i / per : 0) : 0;
        i64 x = elem_i64(w->dtype, w->data, i) - less;
        if (x < -128 || x > 127) return 0;
        elem_set_i64(DT_I8, t->data, i, x);
    }
    return t ? graph_add_const(g, graph_value(g, nd.in.v[b])->name, t) : 0;
}

/* A convolution of inputs a and b, each less its zero point, inputs za and zb. The pads of bytes hold a's zero point,
   so that every sum of products has the same terms: it is that of bytes, less a's zero point times the sum of weights. */
static value_id conv_product(struct graph *g, node_id n, struct operands o, value_id bias, value_id out)
{
    const struct node nd = *graph_node(g, n);
    u32 rank = op_in_shape(g, &nd, o.b)->rank;
    i64 up, axes[MAX_RANK];
    value_id w = centred_bytes(g, n, o.b, o.zb), in[4] = {0, w, bias, 0};
    if (w) {
        in[0] = as_bytes(g, n, nd.in.v[o.a], DT_U8, &up);
        value_id zero = shifted_zero(g, n, o.za, 0, up);
        for (u32 i = 0; i + 1 < rank; i++) axes[i] = 1 + i;
        if (zero) {
            value_id sums = op_node_axes(g, n, "ReduceSum", op_node_cast(g, n, w, DT_I32, 0), axes, rank - 1, 0);
            sums = op_node2(g, n, "Mul", op_node_axes(g, n, "Squeeze", sums, axes, rank - 1, 0), zero, 0);
            in[BIAS] = bias ? op_node2(g, n, "Sub", bias, sums, 0) : op_node1(g, n, "Neg", sums, 0);
            in[PAD] = op_node_cast(g, n, zero, DT_U8, 0);
        }
    } else {
        in[0] = centred(g, n, o.a, o.za, 0), in[1] = centred(g, n, o.b, o.zb, rank - 1);
    }
    value_id y = op_node(g, n, "Conv", in[PAD] ? 4 : in[BIAS] ? 3 : 2, in, out);
    for (u32 i = 0; i < nd.attr.n; i++) attr_copy(g, op_made(g, y), &nd.attr.v[i]);
    return y;
}

/* The matrix product of inputs a and b, each less its zero point, inputs za and zb:
   the sum of (a - za) * (b - zb) is that of a*b, less za times that of b, less zb times that of a - za. */
static value_id matrix_product(struct graph *g, node_id n, struct operands o)
{
    const struct node nd = *graph_node(g, n);
    const u32 a = o.a, za = o.za, b = o.b, zb = o.zb;
    i64 up, down;
    if (op_in_shape(g, &nd, a)->rank < 2 || op_in_shape(g, &nd, b)->rank < 2) {
        value_id right = centred(g, n, b, zb, 0);
        return op_node2(g, n, "MatMul", centred(g, n, a, za, 1), right, 0);
    }
    value_id x = as_bytes(g, n, nd.in.v[a], DT_U8, &up), w = as_bytes(g, n, nd.in.v[b], DT_I8, &down);
    value_id zx = shifted_zero(g, n, za, 1, up), zw = shifted_zero(g, n, zb, 0, down);
    value_id y = op_node2(g, n, "MatMul", x, w, 0);
    if (zx) y = less_sums(g, n, y, zx, op_node_cast(g, n, w, DT_I32, 0), -2);
    if (zw) y = less_sums(g, n, y, zw, centred(g, n, a, za, 1), -1);
    return y;
}

static bool integer_infer(struct graph *g, node_id n, struct err *e)
{
    struct shape out;
    if (!types_8bit(g, n, 0, 1, e) || !check_params(g, n, 2, 4, e)) return false;
    if (!product_shape(g, n, 1, &out, e) || !params_fit(g, n, 2, 3, 1, e)) return false;
    op_set_out(g, n, 0, DT_I32, &out);
    return true;
}

static bool integer_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    bool conv = str_is(nd.op, "ConvInteger");
    if (conv) conv_product(g, n, of_integer, 0, nd.out.v[0]);
    else op_node1(g, n, "Identity", matrix_product(g, n, of_integer), nd.out.v[0]);
    return true;
}

/* QLinearConv, QLinearMatMul */

static bool linear_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct shape out;
    if (!is_float_product(g, nd) && !types_8bit(g, n, QA, QB, e)) return false;
    if (!check_params(g, n, QA_SCALE, QB, e) || !check_params(g, n, QB_SCALE, Q_BIAS, e)) return false;
    enum dtype t = op_in_dtype(g, nd, QY_ZERO);
    if (!is_8bit(t) && !(is_f8(t) && str_is(nd->op, "QLinearMatMul"))) return op_unsupported(e, g, n, "zero point of type %s", dtype_name(t));
    if (op_has_in(nd, Q_BIAS) && op_in_dtype(g, nd, Q_BIAS) != DT_I32)
        return op_invalid(e, g, n, "bias is not i32");
    if (is_vector(g, nd, QY_SCALE) || is_vector(g, nd, QY_ZERO))
        return op_unsupported(e, g, n, "output scale per channel");
    if (!product_shape(g, n, QB, &out, e) || !params_fit(g, n, QA_SCALE, QB_SCALE, QB, e) || !params_fit(g, n, QA_ZERO, QB_ZERO, QB, e))
        return false;
    op_set_out(g, n, 0, t, &out);
    return true;
}

/* A scale of input k, given as v, in f32. */
static value_id scale_f32(struct graph *g, node_id n, u32 k, value_id v)
{
    v = scalar_if_single(g, n, v);
    return op_in_dtype(g, graph_node(g, n), k) == DT_F32 ? v : op_node_cast(g, n, v, DT_F32, 0);
}

static bool linear_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    bool conv = str_is(nd.op, "QLinearConv");
    u32 out_behind = op_in_shape(g, &nd, QA)->rank - 2;
    value_id bias = conv && op_has_in(&nd, Q_BIAS) ? nd.in.v[Q_BIAS] : 0, y;
    if (is_float_product(g, &nd)) {
        value_id right = centred_float(g, n, QB, QB_ZERO, 0);
        y = op_node2(g, n, "MatMul", centred_float(g, n, QA, QA_ZERO, 1), right, 0);
    } else {
        y = conv ? conv_product(g, n, of_linear, bias, 0) : matrix_product(g, n, of_linear);
        y = op_node_cast(g, n, y, DT_F32, 0);
    }
    value_id sa = scale_f32(g, n, QA_SCALE, param(g, n, QA_SCALE, conv ? 0 : 1));
    value_id sb = scale_f32(g, n, QB_SCALE, param(g, n, QB_SCALE, conv ? out_behind : 0));
    value_id scale = op_node2(g, n, "Mul", sa, sb, 0);
    scale = op_node2(g, n, "Div", scale, scale_f32(g, n, QY_SCALE, nd.in.v[QY_SCALE]), 0);
    y = op_node2(g, n, "Mul", y, scale, 0);
    enum dtype t = op_in_dtype(g, &nd, QY_ZERO);
    value_id zero = scalar_if_single(g, n, nd.in.v[QY_ZERO]);
    if (is_f8(t)) op_node_cast(g, n, op_node2(g, n, "Add", y, op_node_cast(g, n, zero, DT_F32, 0), 0), t, nd.out.v[0]);
    else saturate(g, n, y, zero, t, nd.out.v[0]);
    return true;
}

/* Random instances. Scales are powers of two, so that no rounding differs. */

static value_id scales(struct graph *g, i64 n, struct rng *r)
{
    struct tensor *t = tensor_new(g->arena, DT_F32, n > 0, &n);
    for (i64 i = 0; i < tensor_count(t); i++)
        elem_set_f64(DT_F32, t->data, i, rng_range(r, 0, 1) ? 0.25 : 0.5);
    return graph_add_const(g, S("scale"), t);
}

static value_id zeros(struct graph *g, enum dtype t, i64 n, struct rng *r)
{
    struct tensor *x = tensor_new(g->arena, t, n > 0, &n);
    for (i64 i = 0; i < tensor_count(x); i++) elem_set_i64(t, x->data, i, rng_range(r, 0, 9));
    return graph_add_const(g, S("zero"), x);
}

/* One scale, one for each index of an axis, or one for each block of it. */
static void random_scaled(const struct op *self, struct graph *g, struct rng *r)
{
    static const enum dtype types[] = {DT_U8, DT_I8, DT_U8, DT_I8, DT_I4, DT_U4, DT_U2, DT_I2, DT_U16, DT_I16,
                                       DT_F8E4M3FN, DT_F8E5M2, DT_F8E4M3FNUZ, DT_F8E5M2FNUZ, DT_F4E2M1};
    bool back = str_is(str_of(self->name), "DequantizeLinear");
    enum dtype t = types[rng_range(r, 0, countof(types) - 1)];
    i64 dim[4], size[4], block = rng_range(r, 0, 2) ? 0 : rng_range(r, 1, 3);
    u32 rank = (u32)rng_range(r, 1, 4), axis = (u32)rng_range(r, 0, rank - 1), s_rank = block ? rank : (u32)rng_range(r, 0, 1);
    for (u32 i = 0; i < rank; i++) dim[i] = size[i] = rng_range(r, 1, 5);
    if (block) size[axis] = ceil_div(dim[axis], block);
    else size[0] = dim[axis];
    value_id in[3];
    random_input(g, "x", back ? t : DT_F32, rank, dim, &in[0]);
    struct tensor *s = tensor_new(g->arena, DT_F32, s_rank, size), *z = tensor_new(g->arena, t, s_rank, size);
    for (i64 i = 0; i < tensor_count(s); i++) elem_set_f64(DT_F32, s->data, i, rng_range(r, 0, 1) ? 0.25 : 0.5);
    for (i64 i = 0; i < tensor_count(z) && !dtype_is_float(t); i++) elem_set_i64(t, z->data, i, rng_range(r, 0, 9));
    in[1] = graph_add_const(g, S("scale"), s), in[2] = graph_add_const(g, S("zero"), z);
    random_node(g, self, (u32)rng_range(r, t != DT_U8 && !back ? 3 : 2, 3), in, 1);
    attr_set_int(g, g->node.n - 1, "axis", axis);
    if (block) attr_set_int(g, g->node.n - 1, "block_size", block);
}

static void random_dynamic(const struct op *self, struct graph *g, struct rng *r)
{
    struct tensor *t = tensor_new(g->arena, DT_F32, 1, (i64[]){rng_range(r, 1, 9)});
    for (i64 i = 0; i < tensor_count(t); i++)
        elem_set_f64(DT_F32, t->data, i, (double)rng_range(r, 0, 200) / 4);
    elem_set_f64(DT_F32, t->data, 0, 63.75); /* scale 1/4 */
    value_id x = graph_add_const(g, S("x"), t);
    random_node(g, self, 1, &x, 3);
}

/* Operands a and b of a convolution or a matrix product. */
static void random_operands(struct graph *g, bool conv, value_id in[2], i64 *channels,
                            struct rng *r)
{
    i64 c = rng_range(r, 1, 3), a[4] = {1, c, rng_range(r, 3, 6), rng_range(r, 3, 6)},
        b[4] = {rng_range(r, 1, 3), c, 2, 3};
    if (!conv) a[0] = rng_range(r, 1, 3), b[0] = c, b[1] = rng_range(r, 1, 5);
    *channels = conv ? b[0] : b[1];
    random_input(g, "a", rng_range(r, 0, 1) ? DT_U8 : DT_I8, conv ? 4 : 2, a, &in[0]);
    enum dtype t = rng_range(r, 0, 1) ? DT_U8 : DT_I8;
    if (!conv || rng_range(r, 0, 3) == 0) {
        random_input(g, "b", t, conv ? 4 : 2, b, &in[1]);
        return;
    }
    struct tensor *w = tensor_new(g->arena, t, 4, b); /* bytes less zero points may be bytes or not */
    i64 most = rng_range(r, 0, 1) ? 127 : 20, base = t == DT_I8 ? -most : 0;
    for (i64 i = 0; i < tensor_count(w); i++) elem_set_i64(t, w->data, i, rng_range(r, base, most));
    in[1] = graph_add_const(g, S("b"), w);
}

static void random_integer(const struct op *self, struct graph *g, struct rng *r)
{
    bool conv = str_is(str_of(self->name), "ConvInteger");
    value_id in[4];
    i64 channels;
    random_operands(g, conv, in, &channels, r);
    in[2] = zeros(g, graph_value(g, in[0])->dtype, 0, r);
    in[3] = zeros(g, graph_value(g, in[1])->dtype, rng_range(r, 0, 1) ? channels : 0, r);
    random_node(g, self, (u32)rng_range(r, 2, 4), in, 1);
    if (conv) attr_set_ints(g, g->node.n - 1, "pads", (i64[]){1, 0, 1, 2}, 4);
}

static void random_linear(const struct op *self, struct graph *g, struct rng *r)
{
    bool conv = str_is(str_of(self->name), "QLinearConv");
    value_id in[9], ab[2];
    i64 channels, per;
    random_operands(g, conv, ab, &channels, r);
    per = rng_range(r, 0, 1) ? channels : 0;
    in[QA] = ab[0], in[QB] = ab[1];
    in[QA_SCALE] = scales(g, 0, r), in[QA_ZERO] = zeros(g, graph_value(g, ab[0])->dtype, 0, r);
    in[QB_SCALE] = scales(g, per, r), in[QB_ZERO] = zeros(g, graph_value(g, ab[1])->dtype, per, r);
    in[QY_SCALE] = scales(g, 0, r), in[QY_ZERO] = zeros(g, DT_U8, 0, r);
    if (conv) random_input(g, "bias", DT_I32, 1, &channels, &in[Q_BIAS]);
    random_node(g, self, conv ? (u32)rng_range(r, 8, 9) : 8, in, 1);
}

static const struct op ops[] = {
    {.name = "QuantizeLinear",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .props = OP_SMALL,
     .infer = quantize_infer,
     .expand = quantize_expand,
     .random = random_scaled},
    {.name = "DequantizeLinear",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .props = OP_SMALL,
     .infer = dequantize_infer,
     .expand = dequantize_expand,
     .random = random_scaled},
    {.name = "DynamicQuantizeLinear",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 3,
     .infer = dynamic_infer,
     .expand = dynamic_expand,
     .random = random_dynamic},
    {.name = "ConvInteger",
     .min_in = 2,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = integer_infer,
     .expand = integer_expand,
     .random = random_integer},
    {.name = "MatMulInteger",
     .min_in = 2,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = integer_infer,
     .expand = integer_expand,
     .random = random_integer},
    {.name = "QLinearConv",
     .min_in = 8,
     .max_in = 9,
     .min_out = 1,
     .max_out = 1,
     .infer = linear_infer,
     .expand = linear_expand,
     .random = random_linear},
    {.name = "QLinearMatMul",
     .props = OP_SMALL,
     .min_in = 8,
     .max_in = 8,
     .min_out = 1,
     .max_out = 1,
     .infer = linear_infer,
     .expand = linear_expand,
     .random = random_linear},
};

const struct op_family op_quant = {ops, countof(ops)};
