// SPDX-License-Identifier: Apache-2.0
//
// What the Edge TPU's compiler maps to the device, by Coral's documentation of edgetpu_compiler 16:
// a list of operators with conditions, tensors of 8 bits whose sizes are more than 1 along the last
// three axes only. The compiler leaves the first operator that it does not map, and all that
// depends on it, to the processor; a model that is exported for the device is refused instead,
// naming that node. QUANTIZE of inputs in f32 and DEQUANTIZE of outputs are left to the processor
// in any case.
#include "export/export_tflite.h"

#include "export/export.h"

enum { MAX_SOFTMAX = 16000, INNER_AXES = 3 };

static bool refuse(struct tfl *t, const struct tfl_operator *o, const char *fmt, ...)
    QUERN_PRINTF(3, 4);
static bool refuse(struct tfl *t, const struct tfl_operator *o, const char *fmt, ...)
{
    struct buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    err_set(t->e, ERR_UNSUPPORTED, "the Edge TPU's compiler does not map %s: %.*s",
            tfl_code_name(o->code), STR_ARG(buf_view(&b)));
    buf_release(&b);
    return o->node ? op_blame(t->e, &t->g, o->node) : false;
}

static const struct tfl_tensor *in(const struct tfl *t, const struct tfl_operator *o, u32 k)
{
    return tfl_at(t, o->in.v[k]);
}
static const struct tfl_tensor *out(const struct tfl *t, const struct tfl_operator *o)
{
    return tfl_at(t, o->out.v[0]);
}

static bool is_listed(enum tfl_code c)
{
    static const enum tfl_code codes[] = {
        TFL_ADD,
        TFL_AVERAGE_POOL_2D,
        TFL_CONCATENATION,
        TFL_CONV_2D,
        TFL_DEPTHWISE_CONV_2D,
        TFL_FULLY_CONNECTED,
        TFL_LOGISTIC,
        TFL_MAXIMUM,
        TFL_MAX_POOL_2D,
        TFL_MEAN,
        TFL_MINIMUM,
        TFL_MUL,
        TFL_PAD,
        TFL_PRELU,
        TFL_QUANTIZE,
        TFL_REDUCE_MAX,
        TFL_REDUCE_MIN,
        TFL_RELU,
        TFL_RELU6,
        TFL_RELU_N1_TO_1,
        TFL_RESHAPE,
        TFL_RESIZE_BILINEAR,
        TFL_RESIZE_NEAREST_NEIGHBOR,
        TFL_RSQRT,
        TFL_SLICE,
        TFL_SOFTMAX,
        TFL_SPACE_TO_DEPTH,
        TFL_SPLIT,
        TFL_SQUARED_DIFFERENCE,
        TFL_STRIDED_SLICE,
        TFL_SUB,
        TFL_SUM,
        TFL_TANH,
        TFL_TRANSPOSE,
        TFL_TRANSPOSE_CONV,
    };
    for (i64 k = 0; k < countof(codes); k++)
        if (codes[k] == c) return true;
    return false;
}

/* On the processor: conversion of the network's inputs and outputs. */
static bool is_border(const struct tfl *t, const struct tfl_operator *o)
{
    for (u32 k = 0; k < t->m.input.n && o->code == TFL_QUANTIZE; k++)
        if (t->m.input.v[k] == o->in.v[0]) return true;
    for (u32 k = 0; k < t->m.output.n && (o->code == TFL_DEQUANTIZE || o->code == TFL_QUANTIZE);
         k++)
        if (t->m.output.v[k] == o->out.v[0]) return true;
    return false;
}

static bool check_tensor(struct tfl *t, const struct tfl_operator *o, tfl_id id)
{
    const struct tfl_tensor *x = tfl_at(t, id);
    if (!id || (x->type == TFL_I32 && x->data)) return true;
    if (x->type == TFL_F32)
        return refuse(t, o, "'%.*s' is f32; quantise all of the network (quern quantize --full)",
                      STR_ARG(x->name));
    if (x->type != TFL_I8 && x->type != TFL_U8)
        return refuse(t, o, "'%.*s' is neither i8 nor u8", STR_ARG(x->name));
    for (u32 k = 0; k + INNER_AXES < x->rank && !x->data; k++)
        if (x->dim[k] != 1)
            return refuse(t, o,
                          "axis %u of '%.*s' has %lld elements; only the last three axes may have "
                          "more than 1",
                          k, STR_ARG(x->name), (long long)x->dim[k]);
    return true;
}

/* Text of an option: the model keeps them printed. */
static bool has_option(const struct tfl_operator *o, const char *text)
{
    struct str want = str_of(text);
    for (i64 k = 0; k + want.n <= o->fields.n; k++)
        if (str_eq(str_sub(o->fields, k, k + want.n), want)) return true;
    return false;
}

static bool reduces_batch(const struct tfl *t, const struct tfl_operator *o)
{
    const struct tfl_tensor *axes = in(t, o, 1);
    for (i64 k = 0; k < axes->dim[0]; k++)
        if (((const i32 *)axes->data)[k] == 0 && in(t, o, 0)->rank > 1) return true;
    return false;
}

static bool check_conv(struct tfl *t, const struct tfl_operator *o)
{
    const struct tfl_tensor *x = in(t, o, 0), *w = in(t, o, 1);
    bool is_dilated = !has_option(o, "\"dilation_w\":1,") && has_option(o, "dilation_w");
    if (o->code == TFL_CONV_2D && w->dim[3] != x->dim[3]) return refuse(t, o, "groups");
    if (o->code == TFL_DEPTHWISE_CONV_2D && is_dilated) return refuse(t, o, "dilations");
    return true;
}

static bool check_prelu(struct tfl *t, const struct tfl_operator *o)
{
    const struct tfl_tensor *slope = in(t, o, 1);
    for (u32 k = 0; k + 1 < slope->rank; k++)
        if (slope->dim[k] != 1)
            return refuse(t, o, "slopes that differ along other axes than that of channels");
    return true;
}

static bool check_concat(struct tfl *t, const struct tfl_operator *o)
{
    for (u32 k = 0; k < o->in.n; k++) {
        const struct tfl_tensor *x = in(t, o, k);
        if (!x->data) continue;
        if (o->in.n != 2) return refuse(t, o, "a constant among more than two operands");
        for (i64 i = 0; i < x->size; i++)
            if (((const i8 *)x->data)[i] != x->q.zero[0])
                return refuse(t, o, "a constant that is not zero");
    }
    return true;
}

static bool check_conditions(struct tfl *t, const struct tfl_operator *o)
{
    const struct tfl_tensor *x = in(t, o, 0);
    i64 n = 1;
    for (u32 k = 0; k < x->rank; k++) n *= x->dim[k];
    switch ((int)o->code) {
    case TFL_CONV_2D:
    case TFL_DEPTHWISE_CONV_2D: return check_conv(t, o);
    case TFL_AVERAGE_POOL_2D:
    case TFL_MAX_POOL_2D:
        return has_option(o, "\"activation\":\"NONE\"") || refuse(t, o, "a fused activation");
    case TFL_MEAN:
    case TFL_SUM: return !reduces_batch(t, o) || refuse(t, o, "reduction of the first axis");
    case TFL_PAD: return out(t, o)->dim[0] == x->dim[0] || refuse(t, o, "pads of the first axis");
    case TFL_PRELU: return check_prelu(t, o);
    case TFL_CONCATENATION: return check_concat(t, o);
    case TFL_SOFTMAX:
        if (n != x->dim[x->rank - 1]) return refuse(t, o, "more than one row");
        return n <= MAX_SOFTMAX ||
               refuse(t, o, "%lld elements, more than %d", (long long)n, MAX_SOFTMAX);
    case TFL_STRIDED_SLICE:
        for (u32 k = 0; k < x->rank; k++)
            if (((const i32 *)in(t, o, 3)->data)[k] != 1) return refuse(t, o, "steps");
        return true;
    default: return true;
    }
}

static bool check_operator(struct tfl *t, const struct tfl_operator *o)
{
    if (is_border(t, o)) return true;
    for (u32 k = 0; k < o->in.n; k++)
        if (!check_tensor(t, o, o->in.v[k])) return false;
    for (u32 k = 0; k < o->out.n; k++)
        if (!check_tensor(t, o, o->out.v[k])) return false;
    if (!is_listed(o->code)) return refuse(t, o, "no such operator on the device");
    return check_conditions(t, o);
}

bool tfl_edgetpu_check(struct tfl *t)
{
    for (u32 k = 0; k < t->m.op.n; k++)
        if (!check_operator(t, &t->m.op.v[k])) return false;
    return true;
}

/* A word of shell. */
static void put_quoted(struct buf *b, const char *word)
{
    buf_char(b, '\'');
    for (; *word; word++)
        if (*word == '\'') buf_z(b, "'\\''");
        else buf_char(b, *word);
    buf_char(b, '\'');
}

void export_edgetpu_command(struct buf *b, const char *model, const char *folder)
{
    buf_z(b, "edgetpu_compiler -s -o ");
    put_quoted(b, folder);
    buf_char(b, ' ');
    put_quoted(b, model);
}
