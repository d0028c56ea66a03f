// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda_miopen.c: convolutions by MIOpen (miopen/miopen.h of ROCm 5 and later; its "find" step, which its manual recommends for performance,
// not the immediate mode, whose choice may be a guess). Measuring needs operands: zeros in memory that is released afterwards. Kernels that are
// not in the library's cache are compiled meanwhile, which may take a minute. Its default excludes algorithms that are not dynamic; here all are
// measured unless MIOPEN_FIND_MODE is set. Weights are tensors in the layout of input and output. QUERN_MIOPEN_LIBRARY names another library.
#include "dev/dev_cuda_conv.h"

/* of the library's interface */
enum { F16 = 0, F32 = 1, BF16 = 5, CROSS_CORRELATION = 0, ALTERNATIVE_F16 = 0, MEASURE_ALL = 1 };

#define CONVOLUTION(field) DNN_CALL("miopenConvolution" #field, miopen.field)
static const struct dev_call entries[] = {
    DNN_COMMON("miopen", "SetTensorDescriptor"),
    DNN_CALL("miopenGetVersion", miopen.GetVersion),
    DNN_CALL("miopenInitConvolutionNdDescriptor", miopen.InitConvolutionNdDescriptor),
    {"miopenSetConvolutionAttribute", offsetof(struct dnn_calls, miopen.SetConvolutionAttribute), true},
    {"miopenSetConvolutionFindMode", offsetof(struct dnn_calls, miopen.SetConvolutionFindMode), true},
    DNN_CALL("miopenFindConvolutionForwardAlgorithm", miopen.FindForward),
    DNN_CALL("miopenFindConvolutionBackwardDataAlgorithm", miopen.FindBackwardData),
    CONVOLUTION(ForwardGetWorkSpaceSize), CONVOLUTION(BackwardDataGetWorkSpaceSize), CONVOLUTION(Forward), CONVOLUTION(BackwardData),
};

static i32 type_of(enum dtype t) { return t == DT_F32 ? F32 : t == DT_F16 ? F16 : t == DT_BF16 ? BF16 : -1; }

static void put_name(const struct cuda *c, struct buf *name)
{
    size_t v[3] = {0};
    c->dnn->f.miopen.GetVersion(&v[0], &v[1], &v[2]);
    buf_printf(name, "MIOpen %zu.%zu.%zu", v[0], v[1], v[2]);
}

static bool describe_weights(struct cuda *c, struct cuda_conv *k, struct err *e) { return dnn_describe(c, k, &k->w, k->size.w, e); }
static i32 forget_weights(const struct cuda *c, void *w) { return c->dnn->f.DestroyTensorDescriptor(w); }

static bool describe_window(struct cuda *c, struct cuda_conv *k, struct err *e)
{
    const struct dnn_sizes *s = &k->size;
    const struct miopen_calls *f = &c->dnn->f.miopen;
    i32 r = f->InitConvolutionNdDescriptor(k->conv, (i32)s->axes, s->pad, s->stride, s->dilation, CROSS_CORRELATION);
    if (!dnn_ok(c, r, "InitConvolutionNdDescriptor", e)) return false;
    /* gfx90a: gradients in bf16 */
    if (k->c.type == DT_F16 && f->SetConvolutionAttribute) r = f->SetConvolutionAttribute(k->conv, ALTERNATIVE_F16, 0);
    if (!dnn_ok(c, r, "SetConvolutionAttribute", e)) return false;
    return !f->SetConvolutionFindMode || dnn_ok(c, f->SetConvolutionFindMode(k->conv, MEASURE_ALL), "SetConvolutionFindMode", e);
}

/* Memory for measurements: operands and workspace, in one allocation. */
struct room { struct dnn_operands at; u64 work; size_t n_work; };

static bool make_room(struct cuda *c, const struct cuda_conv *k, struct room *r, struct err *e)
{
    const struct miopen_calls *f = &c->dnn->f.miopen;
    void *h = c->dnn->handle;
    i32 s = k->c.is_transposed ? f->BackwardDataGetWorkSpaceSize(h, k->x, k->w, k->conv, k->y, &r->n_work)
                               : f->ForwardGetWorkSpaceSize(h, k->w, k->x, k->conv, k->y, &r->n_work);
    i64 size[3];
    dev_conv_bytes(&k->c, size);
    size_t x = (size_t)round_up(size[0], 256), w = (size_t)round_up(size[1], 256), y = (size_t)round_up(size[2], 256);
    if (!dnn_ok(c, s, "GetWorkSpaceSize", e) || !cuda_ok(c, c->cu.MemAlloc(&r->at.x, x + w + y + r->n_work), "MemAlloc", e)) return false;
    r->at.w = r->at.x + x, r->at.y = r->at.w + w, r->work = r->n_work ? r->at.y + y : 0;
    return cuda_ok(c, c->cu.MemsetAsync(r->at.x, 0, x + w + y, c->stream), "Memset", e);
}

static bool find(struct cuda *c, struct cuda_conv *k, struct err *e)
{
    const struct miopen_calls *f = &c->dnn->f.miopen;
    void *h = c->dnn->handle;
    struct miopen_measured m[DNN_ALGORITHMS] = {{0}}, *best = NULL;
    struct room r = {0};
    i32 n = 0, status = 0;
    bool ok = make_room(c, k, &r, e);
    if (ok)
        status = k->c.is_transposed
                     ? f->FindBackwardData(h, k->x, r.at.x, k->w, r.at.w, k->conv, k->y, r.at.y, DNN_ALGORITHMS, &n, m, r.work, r.n_work, false)
                     : f->FindForward(h, k->x, r.at.x, k->w, r.at.w, k->conv, k->y, r.at.y, DNN_ALGORITHMS, &n, m, r.work, r.n_work, false);
    if (r.at.x) ok = cuda_ok(c, c->cu.MemFree(r.at.x), "MemFree", e) && ok;
    if (!ok || !dnn_ok(c, status, "FindConvolutionAlgorithm", e)) return false;
    for (i32 i = 0; i < n && i < DNN_ALGORITHMS; i++)
        if (!best || m[i].ms < best->ms) best = &m[i];
    if (!best) return err_set(e, ERR_UNSUPPORTED, "MIOpen has no algorithm for this convolution");
    k->algorithm = best->algorithm, k->n_work = best->workspace;
    return true;
}

static i32 run(const struct cuda *c, const struct cuda_conv *k, struct dnn_operands at)
{
    static const float one = 1, zero = 0;
    const struct miopen_calls *f = &c->dnn->f.miopen;
    return (k->c.is_transposed ? f->BackwardData : f->Forward)(c->dnn->handle, &one, k->x, at.x, k->w, at.w, k->conv, k->algorithm, &zero, k->y,
                                                               at.y, k->work, k->n_work);
}

const struct dnn_kind dnn_miopen = {
    .library = {"MIOpen", "QUERN_MIOPEN_LIBRARY", "libMIOpen.so.1 libMIOpen.so /opt/rocm/lib/libMIOpen.so", entries, countof(entries)},
    .type = type_of,
    .put_name = put_name,
    .describe_weights = describe_weights,
    .forget_weights = forget_weights,
    .describe_window = describe_window,
    .find = find,
    .run = run,
};
