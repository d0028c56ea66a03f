// SPDX-License-Identifier: Apache-2.0
//
// ONNX's own operators in older opsets, where attributes and inputs have other places, or where a few older operators
// compute the same: shorter than the operator's expansion, and still a form that converters recognise.
#include "export/export_opset.h"

static const struct node *node_of(const struct opset_job *j) { return graph_node(j->g, j->n); }
static enum dtype type_of(const struct opset_job *j) { return op_in_dtype(j->g, node_of(j), 0); }
static value_id unary(struct opset_job *j, const char *op, value_id x, value_id out) { return op_node1(j->g, j->n, op, x, out); }
static value_id binary(struct opset_job *j, const char *op, value_id a, value_id b, value_id out) { return op_node2(j->g, j->n, op, a, b, out); }
static value_id by(struct opset_job *j, const char *op, value_id a, double b, value_id out)
{
    return op_node_binf(j->g, j->n, op, a, type_of(j), b, out);
}

static bool is_refused(struct opset_job *j, const char *what)
{
    return op_unsupported(j->e, j->g, j->n, "%s in opset %lld", what, (long long)j->opset);
}

/* Axes as an attribute. */
static enum opset_result axes_attribute(struct opset_job *j)
{
    i64 axes[MAX_RANK], n = 0;
    if (op_has_in(node_of(j), 1)) n = op_const_ints(j->g, node_of(j)->in.v[1], axes, MAX_RANK);
    if (n < 0) return is_refused(j, "axes are an attribute, and cannot be computed,"), OPSET_FAILED;
    if (n == 0 && attr_int(node_of(j), "noop_with_empty_axes", 0)) return OPSET_NO; /* its expansion is a copy */
    graph_node(j->g, j->n)->in.n = 1;
    attr_remove(j->g, j->n, "noop_with_empty_axes");
    if (n) attr_set_ints(j->g, j->n, "axes", axes, n);
    return OPSET_NO;
}

/* Parts of equal size need no sizes, others have them as an input. */
static enum opset_result split(struct opset_job *j)
{
    const struct node *x = node_of(j);
    i64 size[256], n = x->out.n, axis = attr_int(x, "axis", 0);
    u32 at;
    bool same = true;
    if (!node_attr(x, "num_outputs")) return OPSET_NO;
    if (op_has_in(x, 1) || n > countof(size) || !op_axis(axis, op_in_shape(j->g, x, 0)->rank, &at)) return OPSET_NO;
    for (i64 k = 0; k < n; k++) {
        if (!x->out.v[k] || !sym_is_const(j->g->sym, graph_value(j->g, x->out.v[k])->shape.dim[at], &size[k])) return OPSET_NO;
        same &= size[k] == size[0];
    }
    attr_remove(j->g, j->n, "num_outputs");
    graph_node(j->g, j->n)->in.n = 1;
    if (!same) node_add_in(j->g, j->n, op_const_i(j->g, DT_I64, size, n));
    return OPSET_NO;
}

static enum opset_result cast_like(struct opset_job *j)
{
    value_id out = node_of(j)->out.v[0], x = node_of(j)->in.v[0];
    node_id first = j->g->node.n;
    op_node_cast(j->g, j->n, x, graph_value(j->g, out)->dtype, out);
    return opset_replaced(j, first);
}

/* A range of the shape. */
static enum opset_result shape_range(struct opset_job *j)
{
    const struct node *x = node_of(j);
    i64 start = attr_int(x, "start", 0), end = attr_int(x, "end", INT64_MAX), axis = 0;
    value_id in = x->in.v[0], out = x->out.v[0];
    node_id first = j->g->node.n;
    if (!node_attr(x, "start") && !node_attr(x, "end")) return OPSET_NO;
    value_id whole = unary(j, "Shape", in, 0), from = op_const_i(j->g, DT_I64, &start, 1), to = op_const_i(j->g, DT_I64, &end, 1);
    op_node(j->g, j->n, "Slice", 4, (value_id[]){whole, from, to, op_const_i(j->g, DT_I64, &axis, 1)}, out);
    return opset_replaced(j, first);
}

/* Without the attribute older opsets place samples as output_half_pixel does now. */
static enum opset_result roi_align(struct opset_job *j)
{
    if (!str_is(attr_str(node_of(j), "coordinate_transformation_mode", "half_pixel"), "output_half_pixel"))
        return is_refused(j, "samples are not placed as by coordinate_transformation_mode 'half_pixel'"), OPSET_FAILED;
    attr_remove(j->g, j->n, "coordinate_transformation_mode");
    return OPSET_NO;
}

/* x * (1 + erf(x / sqrt 2)) / 2, or the same with tanh(sqrt(2 / pi) * (x + 0.044715 x^3)) */
static enum opset_result gelu(struct opset_job *j)
{
    value_id x = node_of(j)->in.v[0], out = node_of(j)->out.v[0], f;
    bool is_tanh = str_is(attr_str(node_of(j), "approximate", "none"), "tanh");
    node_id first = j->g->node.n;
    if (is_tanh) {
        f = by(j, "Mul", binary(j, "Mul", binary(j, "Mul", x, x, 0), x, 0), 0.044715, 0);
        f = unary(j, "Tanh", by(j, "Mul", binary(j, "Add", x, f, 0), 0.7978845608028654, 0), 0);
    } else {
        f = unary(j, "Erf", by(j, "Div", x, 1.4142135623730951, 0), 0);
    }
    f = by(j, "Add", f, 1, 0);
    by(j, "Mul", binary(j, "Mul", x, f, 0), 0.5, out);
    return opset_replaced(j, first);
}

/* x * tanh(log(1 + exp x)) */
static enum opset_result mish(struct opset_job *j)
{
    value_id x = node_of(j)->in.v[0], out = node_of(j)->out.v[0];
    node_id first = j->g->node.n;
    value_id f = unary(j, "Tanh", unary(j, "Softplus", x, 0), 0);
    binary(j, "Mul", x, f, out);
    return opset_replaced(j, first);
}

/* x * sigmoid(alpha x) */
static enum opset_result swish(struct opset_job *j)
{
    value_id x = node_of(j)->in.v[0], out = node_of(j)->out.v[0], f = x;
    double alpha = attr_float(node_of(j), "alpha", 1);
    node_id first = j->g->node.n;
    if (alpha != 1) f = by(j, "Mul", x, alpha, 0);
    f = unary(j, "Sigmoid", f, 0);
    binary(j, "Mul", x, f, out);
    return opset_replaced(j, first);
}

/* x * clip(x / 6 + 1/2, 0, 1) */
static enum opset_result hard_swish(struct opset_job *j)
{
    value_id x = node_of(j)->in.v[0], out = node_of(j)->out.v[0];
    node_id first = j->g->node.n;
    value_id f = unary(j, "HardSigmoid", x, 0);
    attr_set_float(j->g, op_made(j->g, f), "alpha", 1.0 / 6);
    attr_set_float(j->g, op_made(j->g, f), "beta", 0.5);
    binary(j, "Mul", x, f, out);
    return opset_replaced(j, first);
}

/* Recurrent layers with the batch first: the same between transpositions. Inputs and outputs have the axes (sequence, batch, ..), (batch, direction, ..), and
   the first output (batch, sequence, direction, ..). */
static value_id swapped(struct opset_job *j, value_id x, u32 rank, value_id out)
{
    return op_node_swap(j->g, j->n, x, rank, 0, 1, out);
}

static void outputs_batch_first(struct opset_job *j, node_id made)
{
    static const i64 perm[] = {2, 0, 1, 3};
    for (u32 k = 0; k < node_of(j)->out.n; k++) {
        value_id out = node_of(j)->out.v[k];
        if (!out) continue;
        value_id plain = graph_add_value(j->g, graph_value(j->g, out)->name);
        node_set_out(j->g, made, k, plain);
        if (k) swapped(j, plain, 3, out);
        else op_node_perm(j->g, j->n, plain, 4, perm, out);
    }
}

static enum opset_result batch_first(struct opset_job *j)
{
    static const u32 states[] = {0, 5, 6}; /* of all inputs those with a batch: X, initial_h, initial_c */
    const struct node *x = node_of(j);
    node_id first = j->g->node.n;
    value_id in[8] = {0};
    u32 n = x->in.n;
    if (attr_int(x, "layout", 0) != 1 || n > countof(in)) return OPSET_NO;
    for (u32 k = 0; k < n; k++) in[k] = node_of(j)->in.v[k];
    for (i64 k = 0; k < countof(states); k++)
        if (states[k] < n && in[states[k]]) in[states[k]] = swapped(j, in[states[k]], 3, 0);
    node_id made = graph_add_node(j->g, node_of(j)->op, node_of(j)->name);
    for (u32 k = 0; k < n; k++) node_add_in(j->g, made, in[k]);
    for (u32 k = 0; k < node_of(j)->attr.n; k++) {
        struct attr a = node_of(j)->attr.v[k];
        if (!str_is(a.name, "layout")) attr_copy(j->g, made, &a);
    }
    outputs_batch_first(j, made);
    return opset_replaced(j, first);
}

/* ceil_mode: opsets before 22 do not say that a last window in the pads alone does not count. Pads at
   the end as long as the windows need, and sizes that are rounded down, mean the same: the maximum,
   and a mean without pads, does not know them. A mean that counts pads keeps its own, if no window
   reaches beyond them. */
static enum opset_result pool_ceil(struct opset_job *j)
{
    const struct node *x = node_of(j);
    const struct shape *in = op_in_shape(j->g, x, 0), *out = &graph_value(j->g, x->out.v[0])->shape;
    const i64 *kernel, *stride, *dilation, *pads;
    i64 n = attr_ints(x, "kernel_shape", &kernel), to[2 * MAX_RANK], a, b;
    bool ones = attr_ints(x, "dilations", &dilation) != n, counts = attr_int(x, "count_include_pad", 0);
    if (!attr_int(x, "ceil_mode", 0) || n > MAX_RANK || attr_ints(x, "pads", &pads) != 2 * n ||
        attr_ints(x, "strides", &stride) != n)
        return OPSET_NO;
    for (i64 k = 0; k < n; k++) {
        if (!sym_is_const(j->g->sym, in->dim[k + 2], &a) || !sym_is_const(j->g->sym, out->dim[k + 2], &b)) return OPSET_NO;
        i64 reach = (b - 1) * stride[k] + (kernel[k] - 1) * (ones ? 1 : dilation[k]) + 1;
        to[k] = pads[k], to[k + n] = counts ? pads[k + n] : i64_max(reach - a - pads[k], 0);
        i64 rest = a + to[k] + to[k + n] - reach;
        if (rest < 0 || rest >= stride[k] || to[k + n] >= kernel[k]) return OPSET_NO;
    }
    attr_set_ints(j->g, j->n, "pads", to, 2 * n);
    attr_remove(j->g, j->n, "ceil_mode");
    return OPSET_NO;
}

/* Its axis has no axes. */
static enum opset_result cum_sum(struct opset_job *j)
{
    i64 axis;
    if (op_in_shape(j->g, node_of(j), 1)->rank == 0 || op_const_ints(j->g, node_of(j)->in.v[1], &axis, 1) != 1) return OPSET_NO;
    value_id scalar = op_const_f(j->g, DT_I64, (double)axis);
    graph_node(j->g, j->n)->in.v[1] = scalar;
    return OPSET_NO;
}

/* Rows concern opsets before `end`. */
static const struct { const char *op; i64 end; enum opset_result (*bring)(struct opset_job *j); } rows[] = {
    {"ReduceMean", 18, axes_attribute},  {"ReduceMax", 18, axes_attribute},       {"ReduceMin", 18, axes_attribute},
    {"ReduceProd", 18, axes_attribute},  {"ReduceL1", 18, axes_attribute},        {"ReduceL2", 18, axes_attribute},
    {"ReduceLogSum", 18, axes_attribute}, {"ReduceLogSumExp", 18, axes_attribute}, {"ReduceSumSquare", 18, axes_attribute},
    {"Split", 18, split},                {"CastLike", 15, cast_like},             {"Shape", 15, shape_range},
    {"RoiAlign", 16, roi_align},         {"Gelu", 20, gelu},                      {"Mish", 18, mish},
    {"Swish", 24, swish},                {"HardSwish", 14, hard_swish},           {"RNN", 14, batch_first},
    {"GRU", 14, batch_first},            {"LSTM", 14, batch_first},             {"MaxPool", 22, pool_ceil},
    {"AveragePool", 22, pool_ceil},      {"CumSum", 99, cum_sum},
};

enum opset_result opset_form(struct opset_job *j)
{
    for (i64 k = 0; k < countof(rows); k++)
        if (j->opset < rows[k].end && str_is(node_of(j)->op, rows[k].op)) return rows[k].bring(j);
    return OPSET_NO;
}
