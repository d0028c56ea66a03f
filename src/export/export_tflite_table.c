// SPDX-License-Identifier: Apache-2.0
//
// Which nodes of a network become operators of TFLite, and by which functions. Nodes without a row
// are expanded into simpler ones, as for compiling.
#include "export/export_tflite.h"

#define SPATIAL(name, f, q, c) \
    {.op = name, .write = f, .place = TFL_SPATIAL, .ability = q, .can = c}
#define ROW_MAJOR(name, f, q, c) \
    {.op = name, .write = f, .place = TFL_ROW_MAJOR, .ability = q, .can = c}
#define ANYWHERE(name, f, q, c) {.op = name, .write = f, .ability = q, .can = c}
#define OPERANDS(name, f, number) \
    {.op = name, .write = f, .ability = TFL_ANY_Q, .can = tfl_operands_can, .code = number}
#define POINT(name, f, q, number) {.op = name, .write = f, .ability = q, .code = number}

static const struct tfl_row rows[] = {
    SPATIAL("Conv", tfl_conv, TFL_ANY_Q, tfl_conv_can),
    SPATIAL("ConvTranspose", tfl_conv_transpose, TFL_ANY_Q, tfl_conv_can),
    SPATIAL("MaxPool", tfl_pool, TFL_SAME_Q, tfl_pool_can),
    SPATIAL("AveragePool", tfl_pool, TFL_SAME_Q, tfl_pool_can),
    SPATIAL("GlobalAveragePool", tfl_global_pool, TFL_ANY_Q, NULL),
    SPATIAL("GlobalMaxPool", tfl_global_pool, TFL_SAME_Q, NULL),
    SPATIAL("quern::Upsample", tfl_resize, TFL_SAME_Q, NULL),
    SPATIAL("quern::ResizeNearest", tfl_resize, TFL_SAME_Q, NULL),
    SPATIAL("quern::Resize", tfl_resize, TFL_SAME_Q, NULL),
    SPATIAL("DepthToSpace", tfl_blocks, TFL_SAME_Q, NULL),
    SPATIAL("SpaceToDepth", tfl_blocks, TFL_SAME_Q, NULL),
    ROW_MAJOR("Gemm", tfl_gemm, TFL_ANY_Q, tfl_gemm_can),
    ROW_MAJOR("MatMul", tfl_matmul, TFL_ANY_Q, tfl_matmul_can),
    POINT("Relu", tfl_unary, TFL_ANY_Q, TFL_RELU),
    POINT("Sigmoid", tfl_unary, TFL_ANY_Q, TFL_LOGISTIC),
    POINT("Tanh", tfl_unary, TFL_ANY_Q, TFL_TANH),
    POINT("Exp", tfl_unary, TFL_NO_Q, TFL_EXP),
    POINT("Log", tfl_unary, TFL_NO_Q, TFL_LOG),
    POINT("Sqrt", tfl_unary, TFL_NO_Q, TFL_SQRT),
    POINT("Abs", tfl_unary, TFL_NO_Q, TFL_ABS),
    POINT("Neg", tfl_unary, TFL_NO_Q, TFL_NEG),
    POINT("Floor", tfl_unary, TFL_NO_Q, TFL_FLOOR),
    POINT("Ceil", tfl_unary, TFL_NO_Q, TFL_CEIL),
    POINT("Round", tfl_unary, TFL_NO_Q, TFL_ROUND),
    POINT("Sin", tfl_unary, TFL_NO_Q, TFL_SIN),
    POINT("Cos", tfl_unary, TFL_NO_Q, TFL_COS),
    POINT("Sign", tfl_unary, TFL_NO_Q, TFL_SIGN),
    POINT("Elu", tfl_unary, TFL_ANY_Q, TFL_ELU),
    POINT("LeakyRelu", tfl_unary, TFL_ANY_Q, TFL_LEAKY_RELU),
    POINT("HardSwish", tfl_unary, TFL_ANY_Q, TFL_HARD_SWISH),
    POINT("Gelu", tfl_unary, TFL_ANY_Q, TFL_GELU),
    POINT("Not", tfl_unary, TFL_NO_Q, TFL_LOGICAL_NOT),
    OPERANDS("Add", tfl_binary, TFL_ADD),
    OPERANDS("Sub", tfl_binary, TFL_SUB),
    OPERANDS("Mul", tfl_binary, TFL_MUL),
    POINT("Div", tfl_binary, TFL_NO_Q, TFL_DIV),
    POINT("Pow", tfl_binary, TFL_NO_Q, TFL_POW),
    POINT("quern::Max", tfl_binary, TFL_NO_Q, TFL_MAXIMUM),
    POINT("quern::Min", tfl_binary, TFL_NO_Q, TFL_MINIMUM),
    POINT("And", tfl_binary, TFL_NO_Q, TFL_LOGICAL_AND),
    POINT("Or", tfl_binary, TFL_NO_Q, TFL_LOGICAL_OR),
    POINT("Equal", tfl_compare, TFL_NO_Q, TFL_EQUAL),
    POINT("Greater", tfl_compare, TFL_NO_Q, TFL_GREATER),
    POINT("GreaterOrEqual", tfl_compare, TFL_NO_Q, TFL_GREATER_EQUAL),
    POINT("Less", tfl_compare, TFL_NO_Q, TFL_LESS),
    POINT("LessOrEqual", tfl_compare, TFL_NO_Q, TFL_LESS_EQUAL),
    ANYWHERE("Clip", tfl_clip, TFL_ANY_Q, NULL),
    OPERANDS("PRelu", tfl_prelu, TFL_PRELU),
    ANYWHERE("Reciprocal", tfl_reciprocal, TFL_NO_Q, NULL),
    ANYWHERE("HardSigmoid", tfl_hard_sigmoid, TFL_ANY_Q, tfl_hard_sigmoid_can),
    ANYWHERE("Swish", tfl_swish, TFL_ANY_Q, tfl_swish_can),
    ANYWHERE("Where", tfl_where, TFL_NO_Q, NULL),
    ANYWHERE("Cast", tfl_cast, TFL_NO_Q, NULL),
    ANYWHERE("Softmax", tfl_softmax, TFL_ANY_Q, NULL),
    ANYWHERE("LogSoftmax", tfl_softmax, TFL_ANY_Q, NULL),
    ANYWHERE("Transpose", tfl_transposed, TFL_SAME_Q, NULL),
    ROW_MAJOR("quern::Reshape", tfl_reshaped, TFL_SAME_Q, NULL),
    ROW_MAJOR("Identity", tfl_reshaped, TFL_SAME_Q, NULL),
    ANYWHERE("Concat", tfl_concat, TFL_SAME_Q, NULL),
    ANYWHERE("quern::Pad", tfl_padded, TFL_SAME_Q, tfl_padded_can),
    ANYWHERE("quern::Slice", tfl_slice, TFL_SAME_Q, NULL),
    ROW_MAJOR("Gather", tfl_gather, TFL_SAME_Q, NULL),
    ANYWHERE("quern::Tile", tfl_tile, TFL_SAME_Q, NULL),
    ROW_MAJOR("quern::Expand", tfl_expand, TFL_SAME_Q, NULL),
    {.op = "ReduceMean", .write = tfl_reduce, .ability = TFL_ANY_Q, .code = TFL_MEAN},
    {.op = "quern::ReduceSum", .write = tfl_reduce, .ability = TFL_NO_Q, .code = TFL_SUM},
    {.op = "quern::ReduceMax", .write = tfl_reduce, .ability = TFL_SAME_Q, .code = TFL_REDUCE_MAX},
    {.op = "quern::ReduceMin", .write = tfl_reduce, .ability = TFL_SAME_Q, .code = TFL_REDUCE_MIN},
    {.op = "quern::ReduceProd", .write = tfl_reduce, .ability = TFL_NO_Q, .code = TFL_REDUCE_PROD},
    {.op = "ArgMax", .write = tfl_arg, .place = TFL_ROW_MAJOR, .code = TFL_ARG_MAX},
    {.op = "ArgMin", .write = tfl_arg, .place = TFL_ROW_MAJOR, .code = TFL_ARG_MIN},
    ANYWHERE("quern::CumSum", tfl_cumsum, TFL_NO_Q, NULL),
    {.op = "QuantizeLinear"}, /* represented by forms of values */
    {.op = "DequantizeLinear"},
};

const struct tfl_row *tfl_row_find(struct str op)
{
    for (i64 k = 0; k < countof(rows); k++)
        if (str_is(op, rows[k].op)) return &rows[k];
    return NULL;
}
