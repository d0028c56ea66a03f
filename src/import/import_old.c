// SPDX-License-Identifier: Apache-2.0
//
// Converts ONNX operators in forms from before opset 7, and the experimental operators that ONNX withdrew,
// to those of opset 7 and later. Each form has a row in a table: the operator, the first opset in which
// the form is no longer valid, the conversion. If the new form depends on a rank, which is unknown before
// sizes are inferred, the node is written with operators on shapes, which the inference folds.
//
// `consumed_inputs` (of opsets below 6) permits a backend to compute in place; it has no effect on the result.
#include "import/import.h"
#include "op/op.h"

enum { NO_END = 1000 /* experimental: no opset defines it any more */ };

struct old { struct graph *g; node_id n; i64 opset; struct err *e; };

static struct node *node_of(const struct old *o) { return graph_node(o->g, o->n); }
static value_id in_of(const struct old *o, u32 k) { return op_node_input(node_of(o), k); }
static value_id ints(const struct old *o, const i64 *v, i64 n) { return op_const_i(o->g, DT_I64, v, n); }
static value_id one(const struct old *o, i64 v) { return ints(o, &v, 1); }
static value_id unary(const struct old *o, const char *op, value_id x) { return op_node1(o->g, o->n, op, x, 0); }
static value_id binary(const struct old *o, const char *op, value_id a, value_id b) { return op_node2(o->g, o->n, op, a, b, 0); }

/* A scalar of the type that `like` has. */
static value_id scalar_like(const struct old *o, double v, value_id like)
{
    return binary(o, "CastLike", op_const_f(o->g, DT_F32, v), like);
}

/* Replaces the node by those that compute y, its first output. */
static bool replace(const struct old *o, value_id y)
{
    value_id out = node_of(o)->out.n ? node_of(o)->out.v[0] : 0;
    node_of(o)->dead = true;
    if (out) op_node1(o->g, o->n, "Identity", y, out);
    return true;
}

static value_id join(const struct old *o, value_id a, value_id b)
{
    return a && b ? op_node_concat(o->g, o->n, 2, (value_id[]){a, b}, 0, 0) : a ? a : b;
}

/* [rank of x] */
static value_id rank_of(const struct old *o, value_id x) { return unary(o, "Shape", unary(o, "Shape", x)); }

/* Old explicit broadcasting: b extends from the given axis of a, or from the axis that makes both
   end together. */
static value_id aligned(const struct old *o, value_id a, value_id b, i64 axis)
{
    value_id rank = rank_of(o, b), from = one(o, axis < 0 ? -axis : axis);
    if (axis >= 0) from = binary(o, "Sub", rank_of(o, a), from);
    value_id behind = binary(o, "Sub", from, rank);
    value_id ones = unary(o, "ConstantOfShape", unary(o, "Relu", behind));
    i64 dim = 1;
    struct tensor *t = tensor_new(o->g->arena, DT_I64, 1, &dim);
    elem_set_i64(DT_I64, t->data, 0, 1);
    attr_set_tensor(o->g, op_made(o->g, ones), "value", t);
    return binary(o, "Reshape", b, join(o, unary(o, "Shape", b), ones));
}

static bool old_broadcast(const struct old *o)
{
    i64 axis = attr_int(node_of(o), "axis", 0);
    if (axis < -MAX_RANK || axis > MAX_RANK) return op_invalid(o->e, o->g, o->n, "axis %lld does not exist", (long long)axis);
    if (node_attr(node_of(o), "axis") && node_of(o)->in.n == 2 && in_of(o, 0) && in_of(o, 1)) {
        value_id b = aligned(o, in_of(o, 0), in_of(o, 1), axis);
        node_of(o)->in.v[1] = b;
    }
    attr_remove(o->g, o->n, "axis");
    attr_remove(o->g, o->n, "broadcast");
    return true;
}

/* One slope for each channel, which is axis 1. */
static bool old_prelu(const struct old *o)
{
    if (node_of(o)->in.n != 2 || !in_of(o, 0) || !in_of(o, 1)) return true;
    value_id slope = aligned(o, in_of(o, 0), in_of(o, 1), 1);
    node_of(o)->in.v[1] = slope;
    return true;
}

/* Without is_test, statistics are those of the batch, as in today's training mode. */
static bool old_batch_norm(const struct old *o)
{
    bool training = !attr_int(node_of(o), "is_test", 0);
    attr_remove(o->g, o->n, "is_test");
    if (training) attr_set_int(o->g, o->n, "training_mode", 1);
    return true;
}

static bool old_dropout(const struct old *o)
{
    bool training = !attr_int(node_of(o), "is_test", 0);
    double ratio = attr_float(node_of(o), "ratio", 0.5);
    attr_remove(o->g, o->n, "is_test");
    attr_remove(o->g, o->n, "ratio");
    if (!training || node_of(o)->in.n != 1) return true;
    node_add_in(o->g, o->n, op_const_f(o->g, DT_F32, ratio));
    node_add_in(o->g, o->n, op_const_i(o->g, DT_BOOL, (i64[]){1}, 1));
    return true;
}

/* The type with a name of TensorProto. */
static enum dtype type_named(struct str name)
{
    static const struct { const char *name; enum dtype t; } all[] = {
        {"FLOAT", DT_F32}, {"UINT8", DT_U8},     {"INT8", DT_I8},    {"UINT16", DT_U16}, {"INT16", DT_I16}, {"INT32", DT_I32},
        {"INT64", DT_I64}, {"FLOAT16", DT_F16}, {"BOOL", DT_BOOL}, {"DOUBLE", DT_F64}, {"UINT32", DT_U32}, {"UINT64", DT_U64},
    };
    for (i64 k = 0; k < countof(all); k++)
        if (str_is(name, all[k].name)) return all[k].t;
    return DT_NONE;
}

static bool old_cast(const struct old *o)
{
    const struct attr *to = node_attr(node_of(o), "to");
    if (!to || to->kind != ATTR_STR) return true;
    enum dtype t = type_named(to->s);
    if (t == DT_NONE) return op_unsupported(o->e, o->g, o->n, "attribute 'to' is '%.*s'", STR_ARG(to->s));
    attr_remove(o->g, o->n, "to");
    attr_set_int(o->g, o->n, "to", dtype_onnx(t));
    return true;
}

static bool old_concat(const struct old *o)
{
    attr_set_int(o->g, o->n, "axis", attr_int(node_of(o), "axis", 1));
    return true;
}

static bool old_gemm(const struct old *o)
{
    attr_remove(o->g, o->n, "broadcast");
    return true;
}

static bool old_recurrent(const struct old *o)
{
    attr_remove(o->g, o->n, "output_sequence");
    return true;
}

/* p was a float. */
static bool old_lp(const struct old *o)
{
    double p = attr_float(node_of(o), "p", 2);
    if (!(p >= 1 && p <= 1000) || p != (double)(i64)p) return op_unsupported(o->e, o->g, o->n, "attribute 'p' is %g, expected an integer", p);
    attr_remove(o->g, o->n, "p");
    attr_set_int(o->g, o->n, "p", (i64)p);
    return true;
}

static bool old_pad(const struct old *o)
{
    const i64 *v;
    i64 n = attr_ints(node_of(o), "paddings", &v);
    if (!node_attr(node_of(o), "paddings")) return true;
    attr_set_ints(o->g, o->n, "pads", v, n);
    attr_remove(o->g, o->n, "paddings");
    return true;
}

static bool old_reshape(const struct old *o)
{
    const i64 *v = NULL;
    i64 n = attr_ints(node_of(o), "shape", &v);
    if (node_of(o)->in.n != 1) return true;
    node_add_in(o->g, o->n, ints(o, v, n));
    attr_remove(o->g, o->n, "shape");
    return true;
}

static bool old_selu(const struct old *o)
{
    attr_set_float(o->g, o->n, "alpha", attr_float(node_of(o), "alpha", 1.6732));
    attr_set_float(o->g, o->n, "gamma", attr_float(node_of(o), "gamma", 1.0507));
    return true;
}

/* Sizes of the parts may be an input with the type of the data. */
static bool old_split(const struct old *o)
{
    if (node_of(o)->in.n < 2 || !in_of(o, 1)) return true;
    value_id sizes = op_node_cast(o->g, o->n, in_of(o, 1), DT_I64, 0);
    node_of(o)->in.v[1] = sizes;
    return true;
}

/* Repeats along one axis. */
static bool old_tile(const struct old *o)
{
    if (node_of(o)->in.n != 3 || !in_of(o, 0) || !in_of(o, 1) || !in_of(o, 2)) return true;
    value_id axis = op_node_cast(o->g, o->n, in_of(o, 2), DT_I64, 0), times = op_node_cast(o->g, o->n, in_of(o, 1), DT_I64, 0);
    value_id rank = unary(o, "Squeeze", rank_of(o, in_of(o, 0)));
    value_id axes = op_node(o->g, o->n, "Range", 3, (value_id[]){op_sym_scalar(o->g, DT_I64, sym_const(o->g->sym, 0)), rank,
                                                                 op_sym_scalar(o->g, DT_I64, sym_const(o->g->sym, 1))}, 0);
    value_id repeats = op_node(o->g, o->n, "Where", 3, (value_id[]){binary(o, "Equal", axes, axis), times, one(o, 1)}, 0);
    node_of(o)->in.n = 2;
    node_of(o)->in.v[1] = repeats;
    return true;
}

static bool old_upsample(const struct old *o)
{
    const struct attr *h = node_attr(node_of(o), "height_scale"), *w = node_attr(node_of(o), "width_scale");
    if (!h || !w || node_of(o)->in.n != 1 || !node_of(o)->out.n) return op_invalid(o->e, o->g, o->n, "no 'height_scale' or 'width_scale'");
    i64 dim = 4;
    struct tensor *t = tensor_new(o->g->arena, DT_F32, 1, &dim);
    for (i64 k = 0; k < dim; k++) elem_set_f64(DT_F32, t->data, k, k < 2 ? 1 : attr_float(node_of(o), k == 2 ? "height_scale" : "width_scale", 1));
    bool linear = str_is(attr_str(node_of(o), "mode", "nearest"), "bilinear");
    value_id x = in_of(o, 0), out = node_of(o)->out.v[0];
    node_of(o)->dead = true;
    out = op_node(o->g, o->n, "Resize", 3, (value_id[]){x, 0, graph_add_const(o->g, S("scales"), t)}, out);
    attr_set_str(o->g, op_made(o->g, out), "mode", linear ? S("linear") : S("nearest"));
    attr_set_str(o->g, op_made(o->g, out), "coordinate_transformation_mode", S("asymmetric"));
    attr_set_str(o->g, op_made(o->g, out), "nearest_mode", S("floor"));
    return true;
}

/* Every state and sequence has the batch first; the importer splits such a node (import_control.c). */
static bool old_scan(const struct old *o)
{
    const i64 *v;
    i64 n = attr_ints(node_of(o), "directions", &v);
    if (n) attr_set_ints(o->g, o->n, "scan_input_directions", v, n);
    attr_remove(o->g, o->n, "directions");
    attr_set_int(o->g, o->n, "batched", 1);
    return true;
}

/* Experimental operators. */

/* scale * x + shift */
static bool scaled(const struct old *o, value_id scale, value_id shift)
{
    value_id y = binary(o, "Mul", in_of(o, 0), scale);
    return replace(o, shift ? binary(o, "Add", y, shift) : y);
}

static bool has_one_input(const struct old *o)
{
    return (node_of(o)->in.n == 1 && in_of(o, 0)) || op_invalid(o->e, o->g, o->n, "one input is expected");
}

static bool exp_affine(const struct old *o)
{
    if (!has_one_input(o)) return false;
    value_id x = in_of(o, 0), alpha = scalar_like(o, attr_float(node_of(o), "alpha", 1), x);
    return scaled(o, alpha, scalar_like(o, attr_float(node_of(o), "beta", 0), x));
}

static bool exp_scale(const struct old *o)
{
    return has_one_input(o) && scaled(o, scalar_like(o, attr_float(node_of(o), "scale", 1), in_of(o, 0)), 0);
}

/* alpha * f(beta * x) */
static bool exp_around(const struct old *o, const char *op)
{
    if (!has_one_input(o)) return false;
    value_id x = in_of(o, 0), alpha = scalar_like(o, attr_float(node_of(o), "alpha", 1), x);
    value_id inner = binary(o, "Mul", x, scalar_like(o, attr_float(node_of(o), "beta", 1), x));
    return replace(o, binary(o, "Mul", alpha, unary(o, op, inner)));
}

static bool exp_softplus(const struct old *o) { return exp_around(o, "Softplus"); }
static bool exp_tanh(const struct old *o) { return exp_around(o, "Tanh"); }

/* Pictures (n, c, h, w), one bias for each channel */
static bool exp_image_scaler(const struct old *o)
{
    if (!has_one_input(o)) return false;
    const struct attr *bias = node_attr(node_of(o), "bias");
    if (!bias || bias->kind != ATTR_FLOATS) return op_invalid(o->e, o->g, o->n, "attribute 'bias' is missing");
    i64 dim[3] = {bias->n, 1, 1};
    struct tensor *t = tensor_new(o->g->arena, DT_F32, 3, dim);
    for (i64 k = 0; k < bias->n; k++) elem_set_f64(DT_F32, t->data, k, bias->floats[k]);
    value_id x = in_of(o, 0), scale = scalar_like(o, attr_float(node_of(o), "scale", 1), x);
    return scaled(o, scale, binary(o, "CastLike", graph_add_const(o->g, S("bias"), t), x));
}

/* border: rows and columns removed left, above, right, below; scale: height and width of the
   remaining part, starting at the border */
static bool exp_crop(const struct old *o)
{
    const i64 *border, *scale;
    if (!has_one_input(o)) return false;
    if (attr_ints(node_of(o), "border", &border) != 4) return op_invalid(o->e, o->g, o->n, "attribute 'border' has not 4 elements");
    i64 n_scale = attr_ints(node_of(o), "scale", &scale), from[2] = {border[1], border[0]}, to[2] = {-border[3], -border[2]}, axes[2] = {2, 3};
    for (i64 k = 0; k < 4; k++)
        if (border[k] < 0 || border[k] > INT32_MAX) return op_invalid(o->e, o->g, o->n, "border %lld", (long long)border[k]);
    for (i64 k = 0; k < 2; k++) {
        if (n_scale == 2 && (scale[k] < 1 || scale[k] > INT32_MAX)) return op_invalid(o->e, o->g, o->n, "scale %lld", (long long)scale[k]);
        to[k] = n_scale == 2 ? from[k] + scale[k] : to[k] ? to[k] : INT64_MAX;
    }
    value_id in[4] = {in_of(o, 0), ints(o, from, 2), ints(o, to, 2), ints(o, axes, 2)};
    return replace(o, op_node(o->g, o->n, "Slice", 4, in, 0));
}

static bool exp_slice(const struct old *o)
{
    node_of(o)->op = S("Slice");
    return true;
}

/* Without the variance: x - mean. */
static bool exp_mean_variance(const struct old *o)
{
    static const i64 axes[] = {0, 2, 3, 1};
    if (!has_one_input(o)) return false;
    i64 n = attr_int(node_of(o), "across_channels", 0) ? 4 : 3;
    if (!attr_int(node_of(o), "normalize_variance", 1))
        return replace(o, binary(o, "Sub", in_of(o, 0), op_node_axes(o->g, o->n, "ReduceMean", in_of(o, 0), axes, (u32)n, 0)));
    attr_set_ints(o->g, o->n, "axes", axes, n);
    attr_remove(o->g, o->n, "across_channels");
    attr_remove(o->g, o->n, "normalize_variance");
    return true;
}

/* The shape is an attribute, the input's, or the input's content; extra_shape follows it. */
static bool exp_fill(const struct old *o)
{
    const struct node *x = node_of(o);
    const i64 *v;
    enum dtype t = dtype_from_onnx((int)attr_int(x, "dtype", 1));
    i64 n = attr_ints(x, "shape", &v), dim = 1;
    if (t == DT_NONE) return op_unsupported(o->e, o->g, o->n, "attribute 'dtype'");
    value_id shape = !op_has_in(x, 0) ? ints(o, v, n) : attr_int(x, "input_as_shape", 0) ? in_of(o, 0) : unary(o, "Shape", in_of(o, 0));
    n = attr_ints(node_of(o), "extra_shape", &v);
    if (n) shape = join(o, shape, ints(o, v, n));
    struct tensor *value = tensor_new(o->g->arena, t, 1, &dim);
    double fill = attr_float(node_of(o), "value", 0);
    if (dtype_is_float(t)) elem_set_f64(t, value->data, 0, fill);
    else elem_set_i64(t, value->data, 0, fill > -9e18 && fill < 9e18 ? (i64)fill : 0);
    value_id y = unary(o, "ConstantOfShape", shape);
    attr_set_tensor(o->g, op_made(o->g, y), "value", value);
    return replace(o, y);
}

static const struct form { const char *op; i64 end; bool (*bring)(const struct old *o); } forms[] = {
    {"Add", 7, old_broadcast},        {"Sub", 7, old_broadcast},     {"Mul", 7, old_broadcast},       {"Div", 7, old_broadcast},
    {"Pow", 7, old_broadcast},        {"And", 7, old_broadcast},     {"Or", 7, old_broadcast},        {"Xor", 7, old_broadcast},
    {"Greater", 7, old_broadcast},    {"Less", 7, old_broadcast},    {"Equal", 7, old_broadcast},     {"PRelu", 7, old_prelu},
    {"BatchNormalization", 7, old_batch_norm},                       {"Dropout", 7, old_dropout},     {"Cast", 6, old_cast},
    {"Concat", 4, old_concat},        {"Gemm", 7, old_gemm},         {"GRU", 7, old_recurrent},       {"LSTM", 7, old_recurrent},
    {"RNN", 7, old_recurrent},        {"LpPool", 2, old_lp},         {"GlobalLpPool", 2, old_lp},     {"Pad", 2, old_pad},
    {"Reshape", 5, old_reshape},      {"Selu", 6, old_selu},         {"Split", 2, old_split},         {"Tile", 6, old_tile},
    {"Upsample", 7, old_upsample},    {"Scan", 9, old_scan},         {"MeanVarianceNormalization", 9, exp_mean_variance},
    {"Affine", NO_END, exp_affine},   {"Scale", NO_END, exp_scale},  {"ParametricSoftplus", NO_END, exp_softplus},
    {"ScaledTanh", NO_END, exp_tanh}, {"ImageScaler", NO_END, exp_image_scaler},                      {"Crop", NO_END, exp_crop},
    {"DynamicSlice", NO_END, exp_slice},                             {"ConstantFill", NO_END, exp_fill},
};

bool import_old(struct graph *g, node_id n, i64 opset, struct err *e)
{
    struct old o = {.g = g, .n = n, .opset = opset, .e = e};
    if (opset < 6) attr_remove(g, n, "consumed_inputs");
    for (i64 k = 0; k < countof(forms); k++)
        if (opset < forms[k].end && str_is(graph_node(g, n)->op, forms[k].op)) return forms[k].bring(&o);
    return true;
}
