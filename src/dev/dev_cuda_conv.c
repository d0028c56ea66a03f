// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda_conv.c: convolutions by cuDNN 8 and 9 (cudnn_cnn.h, the interface of descriptors), on the device's own stream. All algorithms that
// the library has for the convolution are measured by it when it is opened, and the fastest that works is taken, with the workspace that
// it wants. Sums are f32 and operands are not rounded. QUERN_CUDNN_LIBRARY names another library.
//
// The library knows one pad for both ends of an axis. That at the beginning is what counts: with that at the end the same outputs see the
// same inputs, as long as their number stays the same. Transposed convolutions are its gradients with respect to the input.
#include "dev/dev_cuda.h"

enum { /* of the library's interface */
    F32 = 0, F16 = 2, BF16 = 9, ROWS = 0, CHANNELS_LAST = 1, CROSS_CORRELATION = 1, DEFAULT_MATH = 0, TENSOR_MATH = 1, FMA_MATH = 3, MAX_ALGORITHMS = 16,
    MAX_DIMS = 2 + DEV_CONV_AXES, MIN_AXES = 2
};

struct measured { /* an algorithm */
    i32 algorithm, status;
    float ms;
    size_t workspace;
    i32 determinism, math, reserved[3];
};

struct cudnn_calls {
    size_t (*GetVersion)(void);
    const char *(*GetErrorString)(i32 r);
    i32 (*Create)(void **handle);
    i32 (*Destroy)(void *handle);
    i32 (*SetStream)(void *handle, void *stream);
    i32 (*CreateTensorDescriptor)(void **d);
    i32 (*DestroyTensorDescriptor)(void *d);
    i32 (*SetTensorNdDescriptor)(void *d, i32 type, i32 n, const i32 *dim, const i32 *stride);
    i32 (*CreateFilterDescriptor)(void **d);
    i32 (*DestroyFilterDescriptor)(void *d);
    i32 (*SetFilterNdDescriptor)(void *d, i32 type, i32 format, i32 n, const i32 *dim);
    i32 (*CreateConvolutionDescriptor)(void **d);
    i32 (*DestroyConvolutionDescriptor)(void *d);
    i32 (*SetConvolutionNdDescriptor)(void *d, i32 n, const i32 *pad, const i32 *stride, const i32 *dilation, i32 mode, i32 type);
    i32 (*SetConvolutionGroupCount)(void *d, i32 groups);
    i32 (*SetConvolutionMathType)(void *d, i32 math);
    i32 (*FindConvolutionForwardAlgorithm)(void *handle, void *x, void *w, void *conv, void *y, i32 most, i32 *n, struct measured *m);
    i32 (*FindConvolutionBackwardDataAlgorithm)(void *handle, void *w, void *y, void *conv, void *x, i32 most, i32 *n, struct measured *m);
    i32 (*ConvolutionForward)(void *handle, const void *alpha, void *xd, u64 x, void *wd, u64 w, void *conv, i32 algorithm, u64 work,
                              size_t n_work, const void *beta, void *yd, u64 y);
    i32 (*ConvolutionBackwardData)(void *handle, const void *alpha, void *wd, u64 w, void *yd, u64 y, void *conv, i32 algorithm, u64 work,
                                   size_t n_work, const void *beta, void *xd, u64 x);
};

#define CUDNN(field) {"cudnn" #field, offsetof(struct cudnn_calls, field), false}
static const struct dev_call entries[] = {
    CUDNN(GetVersion), CUDNN(GetErrorString), CUDNN(Create), CUDNN(Destroy), CUDNN(SetStream), CUDNN(CreateTensorDescriptor),
    CUDNN(DestroyTensorDescriptor), CUDNN(SetTensorNdDescriptor), CUDNN(CreateFilterDescriptor), CUDNN(DestroyFilterDescriptor),
    CUDNN(SetFilterNdDescriptor), CUDNN(CreateConvolutionDescriptor), CUDNN(DestroyConvolutionDescriptor),
    CUDNN(SetConvolutionNdDescriptor), CUDNN(SetConvolutionGroupCount), CUDNN(SetConvolutionMathType),
    CUDNN(FindConvolutionForwardAlgorithm), CUDNN(FindConvolutionBackwardDataAlgorithm), CUDNN(ConvolutionForward),
    CUDNN(ConvolutionBackwardData),
};
static const struct dev_library library = {"cuDNN", "QUERN_CUDNN_LIBRARY", "libcudnn.so.9 libcudnn.so.8 libcudnn.so", entries, countof(entries)};

struct cuda_dnn { void *lib, *handle; struct cudnn_calls f; };

struct cuda_conv {
    struct dev_conv c;
    void *x, *w, *y, *conv; /* descriptors */
    i32 algorithm;
    u64 work;               /* 0: none */
    size_t n_work;
};

static bool fine(const struct cuda *c, i32 r, const char *call, struct err *e)
{
    return r == 0 || err_set(e, ERR_SYSTEM, "'%s': cuDNN: %s: %s (%d)", c->facts.name, call, c->dnn->f.GetErrorString(r), r);
}

/* The library. */

void cuda_dnn_close(struct cuda *c)
{
    struct cuda_dnn *l = c->dnn;
    if (!l) return;
    if (l->handle) l->f.Destroy(l->handle);
    if (l->lib) os_dlclose(l->lib);
    mem_free(l);
    c->dnn = NULL;
}

static bool open_library(struct cuda *c, struct err *e)
{
    if (c->dnn) return true;
    if (c->api->has_gfx) return err_set(e, ERR_UNSUPPORTED, "device '%s' knows no library with convolutions", c->api->name);
    struct cuda_dnn *l = c->dnn = mem_alloc((i64)sizeof *l);
    l->lib = dev_library_open(&library, &l->f, e);
    if (l->lib && fine(c, l->f.Create(&l->handle), "Create", e) && fine(c, l->f.SetStream(l->handle, c->stream), "SetStream", e)) return true;
    cuda_dnn_close(c);
    return false;
}

static void put_name(const struct cuda *c, struct buf *name)
{
    size_t v = c->dnn->f.GetVersion(), major = v >= 90000 ? 10000 : 1000; /* 9.1.2 is 90102, 8.1.2 is 8102 */
    buf_printf(name, "cuDNN %zu.%zu.%zu", v / major, v % major / 100, v % 100);
}

/* Descriptors. */

static i32 type_of(enum dtype t) { return t == DT_F32 ? F32 : t == DT_F16 ? F16 : t == DT_BF16 ? BF16 : -1; }
static u32 axes_of(const struct dev_conv *c) { return c->axes < MIN_AXES ? MIN_AXES : c->axes; } /* a line is an image of one column */

static bool narrow(i32 *to, i64 v, struct err *e)
{
    *to = (i32)v;
    return (v >= 0 && v <= INT32_MAX) || err_set(e, ERR_UNSUPPORTED, "sizes that cuDNN cannot be told");
}

/* Axes of a convolution, further ones are `rest`. */
static bool narrow_axes(i32 *to, const struct dev_conv *c, const i64 *v, i64 rest, struct err *e)
{
    for (u32 i = 0; i < axes_of(c); i++)
        if (!narrow(&to[i], i < c->axes ? v[i] : rest, e)) return false;
    return true;
}

/* (n, c, axes ..) in the convolution's layout. */
static bool describe(struct cuda *c, const struct dev_conv *s, void **d, i64 channels, const i64 *axes, struct err *e)
{
    i32 dim[MAX_DIMS], stride[MAX_DIMS];
    u32 n = axes_of(s) + 2;
    if (!narrow(&dim[0], s->batch, e) || !narrow(&dim[1], channels, e) || !narrow_axes(dim + 2, s, axes, 1, e)) return false;
    i64 step = 1;
    for (u32 k = 0; k < n; k++) { /* innermost first */
        u32 at = s->channels_last ? (k == 0 ? 1 : k + 1 == n ? 0 : n - k) : n - 1 - k;
        if (!narrow(&stride[at], step, e)) return false;
        step *= dim[at];
    }
    return fine(c, c->dnn->f.CreateTensorDescriptor(d), "CreateTensorDescriptor", e) &&
           fine(c, c->dnn->f.SetTensorNdDescriptor(*d, type_of(s->type), (i32)n, dim, stride), "SetTensorNdDescriptor", e);
}

static bool describe_weights(struct cuda *c, struct cuda_conv *k, struct err *e)
{
    const struct dev_conv *s = &k->c;
    i64 to = s->is_transposed ? s->channels : s->out_channels, from = s->is_transposed ? s->out_channels : s->channels;
    i32 dim[MAX_DIMS];
    if (!narrow(&dim[0], to, e) || !narrow(&dim[1], from / s->groups, e) || !narrow_axes(dim + 2, s, s->kernel, 1, e)) return false;
    return fine(c, c->dnn->f.CreateFilterDescriptor(&k->w), "CreateFilterDescriptor", e) &&
           fine(c, c->dnn->f.SetFilterNdDescriptor(k->w, type_of(s->type), s->channels_last ? CHANNELS_LAST : ROWS, (i32)axes_of(s) + 2, dim),
                "SetFilterNdDescriptor", e);
}

/* One pad for both ends gives as many outputs. */
static bool check_pads(const struct dev_conv *s, struct err *e)
{
    for (u32 i = 0; i < s->axes; i++) {
        i64 wide = s->is_transposed ? s->outputs[i] : s->size[i], small = s->is_transposed ? s->size[i] : s->outputs[i];
        i64 room = wide + 2 * s->pad_begin[i] - ((s->kernel[i] - 1) * s->dilation[i] + 1);
        if (room < 0 || room / s->stride[i] + 1 != small)
            return err_set(e, ERR_UNSUPPORTED, "cuDNN has no convolutions with other pads at the end than at the beginning");
    }
    return true;
}

static bool describe_conv(struct cuda *c, struct cuda_conv *k, struct err *e)
{
    const struct cudnn_calls *f = &c->dnn->f;
    const struct dev_conv *s = &k->c;
    i32 pad[DEV_CONV_AXES], stride[DEV_CONV_AXES], dilation[DEV_CONV_AXES], groups;
    bool ok = narrow_axes(pad, s, s->pad_begin, 0, e) && narrow_axes(stride, s, s->stride, 1, e) &&
              narrow_axes(dilation, s, s->dilation, 1, e) && narrow(&groups, s->groups, e);
    return ok && fine(c, f->CreateConvolutionDescriptor(&k->conv), "CreateConvolutionDescriptor", e) &&
           fine(c, f->SetConvolutionNdDescriptor(k->conv, (i32)axes_of(s), pad, stride, dilation, CROSS_CORRELATION, F32),
                "SetConvolutionNdDescriptor", e) &&
           fine(c, f->SetConvolutionGroupCount(k->conv, groups), "SetConvolutionGroupCount", e) &&
           fine(c, f->SetConvolutionMathType(k->conv, s->type == DT_F32 ? FMA_MATH : TENSOR_MATH), "SetConvolutionMathType", e);
}

/* The algorithm. */

/* Operands of f32 stay as they are: what runs keeps FMA_MATH. */
static bool may_use(const struct cuda_conv *k, const struct measured *m)
{
    return m->status == 0 && (k->c.type != DT_F32 || m->math == FMA_MATH || m->math == DEFAULT_MATH);
}

static bool find_algorithm(struct cuda *c, struct cuda_conv *k, struct err *e)
{
    const struct cudnn_calls *f = &c->dnn->f;
    struct measured m[MAX_ALGORITHMS] = {{0}}, *best = NULL;
    i32 n = 0;
    i32 r = k->c.is_transposed
                ? f->FindConvolutionBackwardDataAlgorithm(c->dnn->handle, k->w, k->x, k->conv, k->y, MAX_ALGORITHMS, &n, m)
                : f->FindConvolutionForwardAlgorithm(c->dnn->handle, k->x, k->w, k->conv, k->y, MAX_ALGORITHMS, &n, m);
    if (!fine(c, r, "FindConvolutionAlgorithm", e)) return false;
    for (i32 i = 0; i < n && i < MAX_ALGORITHMS; i++)
        if (may_use(k, &m[i]) && (!best || m[i].ms < best->ms)) best = &m[i];
    if (!best) return err_set(e, ERR_UNSUPPORTED, "cuDNN has no algorithm for this convolution");
    k->algorithm = best->algorithm, k->n_work = best->workspace;
    bool has_math = k->c.type == DT_F32 || fine(c, f->SetConvolutionMathType(k->conv, best->math), "SetConvolutionMathType", e);
    return has_math && (!k->n_work || cuda_ok(c, c->cu.MemAlloc(&k->work, k->n_work), "MemAlloc", e));
}

struct cuda_conv *cuda_conv_open(struct cuda *c, const struct dev_conv *s, struct buf *name, struct err *e)
{
    if (!open_library(c, e)) return NULL;
    if (type_of(s->type) < 0) {
        err_set(e, ERR_UNSUPPORTED, "cuDNN has no convolutions of '%s'", dtype_name(s->type));
        return NULL;
    }
    struct cuda_conv *k = mem_alloc((i64)sizeof *k);
    k->c = *s;
    bool ok = check_pads(s, e) && describe(c, s, &k->x, s->channels, s->size, e) && describe(c, s, &k->y, s->out_channels, s->outputs, e) &&
              describe_weights(c, k, e) && describe_conv(c, k, e) && find_algorithm(c, k, e);
    if (ok) {
        put_name(c, name);
        return k;
    }
    cuda_conv_close(c, k);
    return NULL;
}

void cuda_conv_close(struct cuda *c, struct cuda_conv *k)
{
    if (!k) return;
    const struct cudnn_calls *f = &c->dnn->f;
    if (k->work) c->cu.MemFree(k->work);
    if (k->conv) f->DestroyConvolutionDescriptor(k->conv);
    if (k->w) f->DestroyFilterDescriptor(k->w);
    if (k->x) f->DestroyTensorDescriptor(k->x);
    if (k->y) f->DestroyTensorDescriptor(k->y);
    mem_free(k);
}

bool cuda_conv_launch(struct cuda *c, const struct cuda_conv *k, const struct dev_launch *l, struct err *e)
{
    static const float one = 1, zero = 0;
    const struct cudnn_calls *f = &c->dnn->f;
    if (!dev_conv_check(&k->c, l, e) || !cuda_start_clock(c, e)) return false;
    u64 x = cuda_address(&l->buf[0]), w = cuda_address(&l->buf[1]), y = cuda_address(&l->buf[2]);
    if (k->c.is_transposed)
        return fine(c, f->ConvolutionBackwardData(c->dnn->handle, &one, k->w, w, k->x, x, k->conv, k->algorithm, k->work, k->n_work, &zero, k->y, y),
                    "ConvolutionBackwardData", e);
    return fine(c, f->ConvolutionForward(c->dnn->handle, &one, k->x, x, k->w, w, k->conv, k->algorithm, k->work, k->n_work, &zero, k->y, y),
                "ConvolutionForward", e);
}
