// SPDX-License-Identifier: Apache-2.0
//
// Which operators the converters of other vendors accept, as their manuals tell it: the
// sub-graph is handed to a tool that is not here, so a node is accepted only if its operator,
// its types, its sizes and the attributes that matter are ones that the tool is documented to
// take. A node that is refused here may work there; one that is accepted and fails there is a
// bug of this file. Sources: Qualcomm's "Supported ONNX Ops" (SNPE 1.68), Coral's "TensorFlow
// models on the Edge TPU", OpenVINO 2022.3's "Supported Framework Layers" and "VPU devices",
// Ambarella's CNNGen as used by public converters. Of ARA-1 only convolutional networks are
// public.
#include "place/accepts.h"

enum {
    HEX = 1 << ACCEPTS_HEXAGON,
    MYR = 1 << ACCEPTS_MYRIAD,
    ARA = 1 << ACCEPTS_ARA1,
    TPU = 1 << ACCEPTS_TPU,
    CV = 1 << ACCEPTS_CV22,
    OV = 1 << ACCEPTS_OPENVINO,
    NPU = 1 << ACCEPTS_NPU,
    INTEL = MYR | OV | NPU,
    NETS = HEX | INTEL | ARA | TPU | CV
};

static const struct accepted {
    const char *op;
    u32 by;
} accepted[] = {
    {"Add", NETS},
    {"Sub", NETS},
    {"Mul", NETS},
    {"Max", HEX | INTEL | TPU | CV},
    {"Min", HEX | INTEL | TPU | CV},
    {"Div", HEX | INTEL | CV},
    {"Pow", HEX | INTEL},
    {"Sum", HEX | INTEL | CV},
    {"Mean", INTEL},
    {"Mod", OV},
    {"Conv", NETS},
    {"ConvTranspose", NETS},
    {"MatMul", NETS},
    {"Gemm", NETS},
    {"MaxPool", NETS},
    {"AveragePool", NETS},
    {"GlobalAveragePool", NETS},
    {"GlobalMaxPool", HEX | INTEL | TPU},

    {"BatchNormalization", NETS},
    {"InstanceNormalization", HEX | INTEL},
    {"LayerNormalization", HEX | OV | NPU},
    {"LRN", HEX | INTEL},
    {"GroupNormalization", OV},
    {"LpNormalization", OV},
    {"MeanVarianceNormalization", INTEL},
    {"Relu", NETS},
    {"Clip", NETS},
    {"Sigmoid", NETS},
    {"Tanh", NETS},
    {"LeakyRelu", HEX | INTEL | ARA | CV},
    {"PRelu", NETS},
    {"Elu", HEX | INTEL | CV},
    {"HardSigmoid", HEX | INTEL | CV},
    {"HardSwish", HEX | INTEL | ARA | CV},
    {"Softplus", HEX | INTEL | CV},
    {"Selu", INTEL},
    {"Mish", OV | NPU},
    {"Gelu", OV | NPU},
    {"Softsign", INTEL},
    {"ThresholdedRelu", INTEL},
    {"Celu", OV},
    {"Shrink", OV},
    {"Softmax", NETS},
    {"LogSoftmax", HEX | INTEL},
    {"Hardmax", OV},
    {"Abs", HEX | INTEL | CV},
    {"Neg", HEX | INTEL | CV},
    {"Exp", HEX | INTEL | CV},
    {"Log", HEX | INTEL | CV},
    {"Sqrt", HEX | INTEL | CV},
    {"Erf", HEX | INTEL},
    {"Floor", HEX | INTEL},
    {"Ceil", HEX | INTEL},
    {"Round", HEX | INTEL},
    {"Reciprocal", INTEL},
    {"Sign", HEX | INTEL},
    {"Sin", HEX | INTEL},
    {"Cos", HEX | INTEL},
    {"Tan", OV},
    {"Asin", OV},
    {"Acos", OV},
    {"Atan", OV},
    {"Sinh", OV},
    {"Cosh", OV},
    {"Asinh", OV},
    {"Acosh", OV},
    {"Atanh", OV},
    {"IsNaN", OV},
    {"IsInf", OV},
    {"Not", HEX | INTEL},
    {"And", HEX | INTEL},
    {"Or", HEX | INTEL},
    {"Xor", INTEL},
    {"Equal", HEX | INTEL},
    {"Greater", HEX | INTEL},
    {"GreaterOrEqual", HEX | INTEL},
    {"Less", HEX | INTEL},
    {"LessOrEqual", HEX | INTEL},
    {"Where", HEX | INTEL},
    {"Concat", NETS},
    {"Split", HEX | INTEL | TPU | CV},
    {"Slice", HEX | INTEL | TPU | CV},
    {"Pad", HEX | INTEL | TPU | CV},
    {"Transpose", HEX | INTEL | ARA | TPU | CV},
    {"Reshape", NETS},
    {"Flatten", NETS},
    {"Squeeze", HEX | INTEL | TPU | CV},
    {"Unsqueeze", HEX | INTEL | TPU | CV},
    {"Expand", HEX | INTEL},
    {"Tile", HEX | INTEL},
    {"Identity", NETS},
    {"Dropout", NETS},
    {"Cast", HEX | INTEL},
    {"Resize", NETS},
    {"Upsample", NETS},
    {"DepthToSpace", HEX | INTEL | ARA | CV},
    {"SpaceToDepth", HEX | INTEL | TPU | CV},
    {"GridSample", OV},
    {"RoiAlign", HEX | OV},
    {"MaxRoiPool", OV},
    {"DeformConv", OV},
    {"Gather", HEX | INTEL},
    {"GatherElements", HEX | INTEL},
    {"GatherND", HEX | INTEL},
    {"ScatterElements", INTEL},
    {"ScatterND", HEX | INTEL},
    {"OneHot", HEX | INTEL},
    {"TopK", HEX | INTEL},
    {"ArgMax", HEX | INTEL},
    {"ArgMin", HEX | INTEL},
    {"NonMaxSuppression", OV},
    {"NonZero", OV},
    {"CumSum", OV},
    {"Trilu", OV},
    {"Einsum", OV},
    {"Compress", OV},
    {"ReverseSequence", INTEL},
    {"Range", OV},
    {"ConstantOfShape", OV},
    {"Shape", OV},
    {"Size", OV},
    {"EyeLike", OV},
    {"DFT", OV},
    {"ReduceMean", HEX | INTEL | TPU | CV},
    {"ReduceSum", HEX | INTEL | TPU | CV},
    {"ReduceMax", HEX | INTEL | TPU},
    {"ReduceMin", HEX | INTEL | TPU},
    {"ReduceProd", INTEL},
    {"ReduceL1", INTEL},
    {"ReduceL2", INTEL},
    {"ReduceLogSum", INTEL},
    {"ReduceLogSumExp", INTEL},
    {"ReduceSumSquare", INTEL},
    {"LSTM", HEX | INTEL},
    {"GRU", HEX | INTEL},
    {"RNN", INTEL},
    {"QuantizeLinear", OV | NPU},
    {"DequantizeLinear", OV | NPU},
    {"DynamicQuantizeLinear", OV},
};

/* Limits of a converter. */
static const struct limits {
    const char *who; /* for messages */
    bool is_static, is_batch_1;
    u32 max_rank;
    i64 opset;        /* newest; 0: ONNX is not read, operators are translated */
    bool only_floats; /* values are floats, which the tool quantises */
} limits[N_ACCEPTS] = {
    [ACCEPTS_HEXAGON] = {"snpe-onnx-to-dlc", true, true, 5, 17, false},
    [ACCEPTS_MYRIAD] = {"OpenVINO 2022.3 for Myriad", true, true, 5, 17, false},
    [ACCEPTS_ARA1] = {"Kinara's converter", true, true, 4, 17, true},
    [ACCEPTS_TPU] = {"edgetpu_compiler", true, true, 4, 0, true},
    [ACCEPTS_CV22] = {"Ambarella's onnxparser", true, true, 4, 17, true},
    [ACCEPTS_OPENVINO] = {"OpenVINO", false, false, 8, 0, false},
    [ACCEPTS_NPU] = {"OpenVINO for NPUs", true, false, 8, 0, false},
};

static bool refuse(struct err *e, const struct limits *l, const char *fmt, ...) QUERN_PRINTF(3, 4);
static bool refuse(struct err *e, const struct limits *l, const char *fmt, ...)
{
    char why[400];
    va_list ap;
    va_start(ap, fmt);
    fmt_va(why, sizeof why, fmt, ap);
    va_end(ap);
    return err_set(e, ERR_UNSUPPORTED, "%s %s", l->who, why);
}

static bool knows(enum accepts by, struct str op)
{
    for (i64 k = 0; k < countof(accepted); k++)
        if (str_is(op, accepted[k].op)) return accepted[k].by & 1u << by;
    return false;
}

static bool operator_fits(enum accepts by, const struct node *x, struct err *e)
{
    const struct op_onnx *o = op_onnx_find(x->op);
    const struct limits *l = &limits[by];
    if (!o)
        return refuse(e, l, "does not take '%.*s', which is no operator of ONNX", STR_ARG(x->op));
    if (l->opset && o->first > l->opset)
        return refuse(e, l, "reads ONNX up to opset %lld; '%.*s' came with opset %u",
                      (long long)l->opset, STR_ARG(x->op), o->first);
    return knows(by, x->op) || refuse(e, l, "does not take operator '%.*s'", STR_ARG(x->op));
}

/* Images and their like, of which the first axis is the batch. */
static bool has_batch(const struct graph *g, const struct node *x, const struct shape *s)
{
    return s->rank > 3 || (s->rank == 3 && op_find(x->op)->props & (OP_CONV | OP_WINDOW));
}

static bool type_fits(const struct limits *l, enum dtype t)
{
    if (t == DT_F32 || t == DT_F16) return true;
    return !l->only_floats &&
           (t == DT_I64 || t == DT_I32 || t == DT_BOOL || t == DT_U8 || t == DT_I8);
}

static bool value_fits(const struct limits *l, const struct graph *g, const struct node *x,
                       value_id v, struct err *e)
{
    const struct value *y = graph_value(g, v);
    const char *name = y->name.p;
    int n = (int)y->name.n;
    i64 dim[MAX_RANK];
    if (!y->shape.known)
        return refuse(e, l, "needs sizes that are known; '%.*s' has none", n, name);
    bool is_static = shape_is_static(g->sym, &y->shape, dim);
    if (l->is_static && !is_static)
        return refuse(e, l,
                      "needs fixed sizes (--assume, --input-shape); those of '%.*s' depend on "
                      "the input",
                      n, name);
    if (y->shape.rank > l->max_rank)
        return refuse(e, l, "takes tensors of %u axes; '%.*s' has %u", l->max_rank, n, name,
                      y->shape.rank);
    if (y->is_const) return true; /* parameters are converted */
    if (!type_fits(l, y->dtype))
        return refuse(e, l, "does not compute in %s, the type of '%.*s'", dtype_name(y->dtype), n,
                      name);
    if (l->is_batch_1 && has_batch(g, x, &y->shape) && dim[0] != 1)
        return refuse(e, l, "takes one sample at a time; '%.*s' has %lld", n, name,
                      (long long)dim[0]);
    return true;
}

static bool is_const_in(const struct graph *g, const struct node *x, u32 k)
{
    return k >= x->in.n || !x->in.v[k] || graph_value(g, x->in.v[k])->is_const;
}

/* Operands that tell what to do: weights, sizes, axes. From input `from` on. */
static bool rest_is_const(const struct limits *l, const struct graph *g, const struct node *x,
                          u32 from, struct err *e)
{
    for (u32 k = from; k < x->in.n; k++)
        if (!is_const_in(g, x, k) && !graph_value(g, x->in.v[k])->sdata)
            return refuse(e, l, "needs operand %u of '%.*s' to be constant", k, STR_ARG(x->op));
    return true;
}

static bool is_one_of(struct str s, const char *words)
{
    struct str rest = str_of(words), word;
    while (rest.n) {
        str_cut(rest, ' ', &word, &rest);
        if (str_eq(word, s)) return true;
    }
    return false;
}

/* The TFLite operators are CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED, whose weights are constant,
 * and windows over images. */
static bool fits_tpu(const struct limits *l, const struct graph *g, const struct node *x,
                     struct err *e)
{
    const u32 props = op_find(x->op)->props;
    const struct shape *s = op_in_shape(g, x, 0);
    const bool is_image = props & (OP_CONV | OP_TRANSPOSED | OP_WINDOW) ||
                          is_one_of(x->op, "Resize Upsample GlobalAveragePool GlobalMaxPool "
                                           "MaxPool AveragePool Conv ConvTranspose");
    if (is_image && s->rank != 4)
        return refuse(e, l, "takes '%.*s' of images (n, c, h, w)", STR_ARG(x->op));
    if (is_one_of(x->op, "Conv ConvTranspose MatMul Gemm") && !rest_is_const(l, g, x, 1, e))
        return false;
    if (is_one_of(x->op, "MatMul Gemm") && op_in_shape(g, x, 1)->rank != 2)
        return refuse(e, l, "takes '%.*s' by a matrix", STR_ARG(x->op));
    i64 groups = attr_int(x, "group", 1), channels = 0;
    if (is_one_of(x->op, "Conv ConvTranspose") && groups != 1 &&
        (str_is(x->op, "ConvTranspose") || !sym_is_const(g->sym, s->dim[1], &channels) ||
         channels != groups))
        return refuse(e, l, "has no convolutions of groups but depthwise ones");
    if (str_is(x->op, "Pad") && !is_one_of(attr_str(x, "mode", "constant"), "constant"))
        return refuse(e, l, "pads with a constant only");
    if (is_one_of(x->op, "Resize Upsample") &&
        !is_one_of(attr_str(x, "mode", "nearest"), "nearest linear"))
        return refuse(e, l, "resizes by the nearest neighbour or bilinearly");
    return true;
}

static bool fits_images(const struct limits *l, const struct graph *g, const struct node *x,
                        struct err *e)
{
    if (is_one_of(x->op, "Conv ConvTranspose") &&
        (!rest_is_const(l, g, x, 1, e) || op_in_shape(g, x, 0)->rank > 4))
        return e->code ? false : refuse(e, l, "takes convolutions of images");
    return true;
}

bool place_accepts(enum accepts by, const struct graph *g, node_id n, struct err *e)
{
    static const char described[] =
        "Reshape Expand Tile Pad Slice Split Squeeze Unsqueeze Resize Upsample Clip TopK "
        "ReduceMean ReduceSum ReduceMax ReduceMin "
        "OneHot ConstantOfShape PRelu BatchNormalization InstanceNormalization LayerNormalization";
    const struct node *x = graph_node(g, n);
    const struct limits *l = &limits[by];
    if (!operator_fits(by, x, e)) return false;
    for (u32 k = 0; k < x->in.n; k++)
        if (x->in.v[k] && !(k && graph_value(g, x->in.v[k])->sdata) &&
            !value_fits(l, g, x, x->in.v[k], e))
            return false;
    for (u32 k = 0; k < x->out.n; k++)
        if (x->out.v[k] && !value_fits(l, g, x, x->out.v[k], e)) return false;
    if (l->is_static && is_one_of(x->op, described) && !rest_is_const(l, g, x, 1, e)) return false;
    if (by == ACCEPTS_TPU) return fits_tpu(l, g, x, e);
    return by == ACCEPTS_OPENVINO || by == ACCEPTS_NPU || fits_images(l, g, x, e);
}
