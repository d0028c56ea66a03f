// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda_cudnn.c: convolutions by cuDNN 8 and 9 (cudnn_cnn.h, the descriptor interface).
// Sums are f32 and operands are not rounded. QUERN_CUDNN_LIBRARY names another library.
#include "dev/dev_cuda_conv.h"

enum { /* of the library's interface */
    F32 = 0, F16 = 2, BF16 = 9, ROWS = 0, CHANNELS_LAST = 1, CROSS_CORRELATION = 1, DEFAULT_MATH = 0, TENSOR_MATH = 1, FMA_MATH = 3
};

#define CUDNN(field) DNN_CALL("cudnn" #field, cudnn.field)
static const struct dev_call entries[] = {
    DNN_COMMON("cudnn", "SetTensorNdDescriptor"),
    CUDNN(GetVersion), CUDNN(CreateFilterDescriptor), CUDNN(DestroyFilterDescriptor), CUDNN(SetFilterNdDescriptor),
    CUDNN(SetConvolutionNdDescriptor), CUDNN(SetConvolutionMathType), CUDNN(FindConvolutionForwardAlgorithm),
    CUDNN(FindConvolutionBackwardDataAlgorithm), CUDNN(ConvolutionForward), CUDNN(ConvolutionBackwardData),
};

static i32 type_of(enum dtype t) { return t == DT_F32 ? F32 : t == DT_F16 ? F16 : t == DT_BF16 ? BF16 : -1; }

static void put_name(const struct cuda *c, struct buf *name)
{
    size_t v = c->dnn->f.cudnn.GetVersion(), major = v >= 90000 ? 10000 : 1000; /* 9.1.2 is 90102, 8.1.2 is 8102 */
    buf_printf(name, "cuDNN %zu.%zu.%zu", v / major, v % major / 100, v % 100);
}

static bool describe_weights(struct cuda *c, struct cuda_conv *k, struct err *e)
{
    const struct cudnn_calls *f = &c->dnn->f.cudnn;
    i32 n = (i32)k->size.axes + 2, format = k->c.channels_last ? CHANNELS_LAST : ROWS;
    return dnn_ok(c, f->CreateFilterDescriptor(&k->w), "CreateFilterDescriptor", e) &&
           dnn_ok(c, f->SetFilterNdDescriptor(k->w, type_of(k->c.type), format, n, k->size.w), "SetFilterNdDescriptor", e);
}

static i32 forget_weights(const struct cuda *c, void *w) { return c->dnn->f.cudnn.DestroyFilterDescriptor(w); }

static bool describe_window(struct cuda *c, struct cuda_conv *k, struct err *e)
{
    const struct cudnn_calls *f = &c->dnn->f.cudnn;
    const struct dnn_sizes *s = &k->size;
    i32 r = f->SetConvolutionNdDescriptor(k->conv, (i32)s->axes, s->pad, s->stride, s->dilation, CROSS_CORRELATION, F32);
    return dnn_ok(c, r, "SetConvolutionNdDescriptor", e) &&
           dnn_ok(c, f->SetConvolutionMathType(k->conv, k->c.type == DT_F32 ? FMA_MATH : TENSOR_MATH), "SetConvolutionMathType", e);
}

/* f32 operands must not be rounded: the algorithm keeps FMA_MATH. */
static bool may_use(const struct cuda_conv *k, const struct cudnn_measured *m)
{
    return m->status == 0 && (k->c.type != DT_F32 || m->math == FMA_MATH || m->math == DEFAULT_MATH);
}

static bool find(struct cuda *c, struct cuda_conv *k, struct err *e)
{
    const struct cudnn_calls *f = &c->dnn->f.cudnn;
    void *h = c->dnn->handle;
    struct cudnn_measured m[DNN_ALGORITHMS] = {{0}}, *best = NULL;
    i32 n = 0;
    i32 r = k->c.is_transposed ? f->FindConvolutionBackwardDataAlgorithm(h, k->w, k->x, k->conv, k->y, DNN_ALGORITHMS, &n, m)
                               : f->FindConvolutionForwardAlgorithm(h, k->x, k->w, k->conv, k->y, DNN_ALGORITHMS, &n, m);
    if (!dnn_ok(c, r, "FindConvolutionAlgorithm", e)) return false;
    for (i32 i = 0; i < n && i < DNN_ALGORITHMS; i++)
        if (may_use(k, &m[i]) && (!best || m[i].ms < best->ms)) best = &m[i];
    if (!best) return err_set(e, ERR_UNSUPPORTED, "cuDNN has no algorithm for this convolution");
    k->algorithm = best->algorithm, k->n_work = best->workspace;
    return k->c.type == DT_F32 || dnn_ok(c, f->SetConvolutionMathType(k->conv, best->math), "SetConvolutionMathType", e);
}

static i32 run(const struct cuda *c, const struct cuda_conv *k, struct dnn_operands at)
{
    static const float one = 1, zero = 0;
    const struct cudnn_calls *f = &c->dnn->f.cudnn;
    void *h = c->dnn->handle;
    if (k->c.is_transposed)
        return f->ConvolutionBackwardData(h, &one, k->w, at.w, k->x, at.x, k->conv, k->algorithm, k->work, k->n_work, &zero, k->y, at.y);
    return f->ConvolutionForward(h, &one, k->x, at.x, k->w, at.w, k->conv, k->algorithm, k->work, k->n_work, &zero, k->y, at.y);
}

const struct dnn_kind dnn_cudnn = {
    .library = {"cuDNN", "QUERN_CUDNN_LIBRARY", "libcudnn.so.9 libcudnn.so.8 libcudnn.so", entries, countof(entries)},
    .type = type_of,
    .put_name = put_name,
    .describe_weights = describe_weights,
    .forget_weights = forget_weights,
    .describe_window = describe_window,
    .find = find,
    .run = run,
};
