// SPDX-License-Identifier: Apache-2.0
//
// Operators of TFLite: their names, and the versions of them that a model needs.
#include "export/export_tflite.h"

/* Versions that introduced what is written: of f32, and of i8. */
static const struct version {
    enum tfl_code code;
    const char *name;
    i8 real, stored;
} versions[] = {
    {TFL_ADD, "ADD", 1, 2},
    {TFL_AVERAGE_POOL_2D, "AVERAGE_POOL_2D", 1, 2},
    {TFL_CONCATENATION, "CONCATENATION", 1, 2},
    {TFL_CONV_2D, "CONV_2D", 1, 3},
    {TFL_DEPTHWISE_CONV_2D, "DEPTHWISE_CONV_2D", 1, 3},
    {TFL_DEPTH_TO_SPACE, "DEPTH_TO_SPACE", 1, 1},
    {TFL_DEQUANTIZE, "DEQUANTIZE", 1, 2},
    {TFL_FLOOR, "FLOOR", 1, 1},
    {TFL_FULLY_CONNECTED, "FULLY_CONNECTED", 1, 4},
    {TFL_LOGISTIC, "LOGISTIC", 1, 2},
    {TFL_MAX_POOL_2D, "MAX_POOL_2D", 1, 2},
    {TFL_MUL, "MUL", 1, 2},
    {TFL_RELU, "RELU", 1, 2},
    {TFL_RELU_N1_TO_1, "RELU_N1_TO_1", 1, 1},
    {TFL_RELU6, "RELU6", 1, 2},
    {TFL_RESHAPE, "RESHAPE", 1, 1},
    {TFL_RESIZE_BILINEAR, "RESIZE_BILINEAR", 3, 3},
    {TFL_SOFTMAX, "SOFTMAX", 1, 2},
    {TFL_SPACE_TO_DEPTH, "SPACE_TO_DEPTH", 1, 2},
    {TFL_TANH, "TANH", 1, 2},
    {TFL_PAD, "PAD", 1, 2},
    {TFL_GATHER, "GATHER", 1, 2},
    {TFL_TRANSPOSE, "TRANSPOSE", 1, 2},
    {TFL_MEAN, "MEAN", 1, 2},
    {TFL_SUB, "SUB", 1, 2},
    {TFL_DIV, "DIV", 1, 1},
    {TFL_STRIDED_SLICE, "STRIDED_SLICE", 1, 2},
    {TFL_EXP, "EXP", 1, 2},
    {TFL_SPLIT, "SPLIT", 1, 2},
    {TFL_LOG_SOFTMAX, "LOG_SOFTMAX", 1, 2},
    {TFL_CAST, "CAST", 1, 1},
    {TFL_PRELU, "PRELU", 1, 1},
    {TFL_MAXIMUM, "MAXIMUM", 1, 2},
    {TFL_ARG_MAX, "ARG_MAX", 1, 2},
    {TFL_MINIMUM, "MINIMUM", 1, 2},
    {TFL_LESS, "LESS", 1, 2},
    {TFL_NEG, "NEG", 1, 1},
    {TFL_PADV2, "PADV2", 1, 2},
    {TFL_GREATER, "GREATER", 1, 2},
    {TFL_GREATER_EQUAL, "GREATER_EQUAL", 1, 2},
    {TFL_LESS_EQUAL, "LESS_EQUAL", 1, 2},
    {TFL_SLICE, "SLICE", 1, 2},
    {TFL_SIN, "SIN", 1, 1},
    {TFL_TRANSPOSE_CONV, "TRANSPOSE_CONV", 3, 3},
    {TFL_TILE, "TILE", 1, 2},
    {TFL_EQUAL, "EQUAL", 1, 2},
    {TFL_NOT_EQUAL, "NOT_EQUAL", 1, 2},
    {TFL_LOG, "LOG", 1, 1},
    {TFL_SUM, "SUM", 1, 2},
    {TFL_SQRT, "SQRT", 1, 1},
    {TFL_RSQRT, "RSQRT", 1, 2},
    {TFL_POW, "POW", 1, 1},
    {TFL_ARG_MIN, "ARG_MIN", 1, 2},
    {TFL_REDUCE_PROD, "REDUCE_PROD", 1, 1},
    {TFL_REDUCE_MAX, "REDUCE_MAX", 1, 2},
    {TFL_LOGICAL_OR, "LOGICAL_OR", 1, 1},
    {TFL_LOGICAL_AND, "LOGICAL_AND", 1, 1},
    {TFL_LOGICAL_NOT, "LOGICAL_NOT", 1, 1},
    {TFL_REDUCE_MIN, "REDUCE_MIN", 1, 2},
    {TFL_RESIZE_NEAREST_NEIGHBOR, "RESIZE_NEAREST_NEIGHBOR", 3, 3},
    {TFL_LEAKY_RELU, "LEAKY_RELU", 1, 2},
    {TFL_SQUARED_DIFFERENCE, "SQUARED_DIFFERENCE", 1, 2},
    {TFL_MIRROR_PAD, "MIRROR_PAD", 1, 2},
    {TFL_ABS, "ABS", 1, 2},
    {TFL_CEIL, "CEIL", 1, 1},
    {TFL_COS, "COS", 1, 1},
    {TFL_ELU, "ELU", 1, 1},
    {TFL_QUANTIZE, "QUANTIZE", 1, 1},
    {TFL_ROUND, "ROUND", 1, 1},
    {TFL_HARD_SWISH, "HARD_SWISH", 1, 1},
    {TFL_SELECT_V2, "SELECT_V2", 1, 1},
    {TFL_BATCH_MATMUL, "BATCH_MATMUL", 1, 2},
    {TFL_CUMSUM, "CUMSUM", 1, 1},
    {TFL_BROADCAST_TO, "BROADCAST_TO", 2, 2},
    {TFL_GELU, "GELU", 1, 2},
    {TFL_SIGN, "SIGN", 1, 1},
};

static const struct version *version_of(enum tfl_code c)
{
    for (i64 k = 0; k < countof(versions); k++)
        if (versions[k].code == c) return &versions[k];
    unreachable();
}

const char *tfl_code_name(enum tfl_code c) { return version_of(c)->name; }

i32 tfl_version(const struct tfl_model *m, const struct tfl_operator *o)
{
    enum { PER_CHANNEL = 5 }; /* of DEQUANTIZE */
    const struct version *v = version_of(o->code);
    for (u32 k = 0; k < o->in.n; k++) {
        const struct tfl_tensor *x = &m->tensor.v[o->in.v[k]];
        if (!o->in.v[k] || x->type != TFL_I8) continue;
        return o->code == TFL_DEQUANTIZE && x->q.n > 1 ? PER_CHANNEL : v->stored;
    }
    return v->real;
}
