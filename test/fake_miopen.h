// SPDX-License-Identifier: Apache-2.0
//
// Part of fake_cuda.c: simulates MIOpen (QUERN_MIOPEN_LIBRARY), with the objects and convolutions
// of fake_cudnn.h. Its find step requires operands and the workspace it requested, and overwrites
// them. The fastest of its algorithms needs less workspace; if not all are measured, or for f16 if
// the alternative was not disabled, it finds others, which must not be run; nor may algorithms that
// were not found before with these descriptors.
#ifndef QUERN_TEST_FAKE_MIOPEN_H
#define QUERN_TEST_FAKE_MIOPEN_H

enum { MIO_INVALID = 3, MIO_F16 = 0, MIO_F32 = 1, MIO_BF16 = 5, MIO_FAST = 5, MIO_SLOW = 1, MIO_SEARCH = 1024, MIO_WORK = 512, MIO_NORMAL = 1 };

struct mio_perf {
    int32_t algorithm;
    float ms;
    size_t workspace;
};

FAKE const char *miopenGetErrorString(int32_t r);
const char *miopenGetErrorString(int32_t r) { return r == UNSUPPORTED ? "fakeStatusNotImplemented" : "fakeStatusBadParm"; }

FAKE int32_t miopenGetVersion(size_t *major, size_t *minor, size_t *patch);
int32_t miopenGetVersion(size_t *major, size_t *minor, size_t *patch)
{
    *major = 3, *minor = 4, *patch = 1;
    return OK;
}

/* The same as cuDNN's. */
FAKE int32_t miopenCreate(void **x) __attribute__((alias("cudnnCreate")));
FAKE int32_t miopenDestroy(void *x) __attribute__((alias("cudnnDestroy")));
FAKE int32_t miopenSetStream(void *h, void *s) __attribute__((alias("cudnnSetStream")));
FAKE int32_t miopenCreateTensorDescriptor(void **x) __attribute__((alias("cudnnCreateTensorDescriptor")));
FAKE int32_t miopenDestroyTensorDescriptor(void *x) __attribute__((alias("cudnnDestroyTensorDescriptor")));
FAKE int32_t miopenCreateConvolutionDescriptor(void **x) __attribute__((alias("cudnnCreateConvolutionDescriptor")));
FAKE int32_t miopenDestroyConvolutionDescriptor(void *x) __attribute__((alias("cudnnDestroyConvolutionDescriptor")));
FAKE int32_t miopenSetConvolutionGroupCount(void *d, int32_t groups) __attribute__((alias("cudnnSetConvolutionGroupCount")));

FAKE int32_t miopenSetTensorDescriptor(void *d, int32_t type, int32_t n, const int32_t *dim, const int32_t *stride);
int32_t miopenSetTensorDescriptor(void *d, int32_t type, int32_t n, const int32_t *dim, const int32_t *stride)
{
    int32_t t = type == MIO_F32 ? DNN_F32 : type == MIO_F16 ? DNN_F16 : type == MIO_BF16 ? DNN_BF16 : -1;
    return cudnnSetTensorNdDescriptor(d, t, n, dim, stride);
}

FAKE int32_t miopenInitConvolutionNdDescriptor(void *d, int32_t n, const int32_t *pad, const int32_t *stride, const int32_t *dilation, int32_t mode);
int32_t miopenInitConvolutionNdDescriptor(void *d, int32_t n, const int32_t *pad, const int32_t *stride, const int32_t *dilation, int32_t mode)
{
    struct object *x = there(d, WINDOW);
    x->mode = 0, x->no_alternative = 0, x->is_found = 0;
    return mode ? MIO_INVALID : cudnnSetConvolutionNdDescriptor(d, n, pad, stride, dilation, 1, DNN_F32);
}

FAKE int32_t miopenSetConvolutionAttribute(void *d, int32_t what, int32_t v);
int32_t miopenSetConvolutionAttribute(void *d, int32_t what, int32_t v)
{
    DNN_CALL;
    if (what != 0 || v < -1 || v > 1) return MIO_INVALID;
    there(d, WINDOW)->no_alternative = v == 0;
    return OK;
}

FAKE int32_t miopenSetConvolutionFindMode(void *d, int32_t mode);
int32_t miopenSetConvolutionFindMode(void *d, int32_t mode)
{
    DNN_CALL;
    if (mode < 1 || mode > 5 || mode == 4) return MIO_INVALID;
    there(d, WINDOW)->mode = mode;
    return OK;
}

/* wide: the tensor that the window slides over. */
static int mio_fits(void *h, void *wide, void *w, void *conv, void *small)
{
    there(h, CONVOLUTIONS);
    return fits(there(wide, TENSOR), there(w, TENSOR), there(conv, WINDOW), there(small, TENSOR));
}

static int32_t ask_work(int ok, size_t *n)
{
    READY;
    DNN_CALL;
    *n = MIO_SEARCH;
    return ok ? OK : MIO_INVALID;
}

FAKE int32_t miopenConvolutionForwardGetWorkSpaceSize(void *h, void *w, void *x, void *conv, void *y, size_t *n);
int32_t miopenConvolutionForwardGetWorkSpaceSize(void *h, void *w, void *x, void *conv, void *y, size_t *n)
{
    return ask_work(mio_fits(h, x, w, conv, y), n);
}
FAKE int32_t miopenConvolutionBackwardDataGetWorkSpaceSize(void *h, void *y, void *w, void *conv, void *x, size_t *n);
int32_t miopenConvolutionBackwardDataGetWorkSpaceSize(void *h, void *y, void *w, void *conv, void *x, size_t *n)
{
    return ask_work(mio_fits(h, x, w, conv, y), n);
}

/* All bytes from the first to the last element; they must be of one piece of memory. */
static char *extent(struct array a, size_t *n)
{
    int32_t last[DNN_DIMS];
    for (int32_t i = 0; i < a.d->n; i++) last[i] = a.d->list[0][i] - 1;
    *n = (size_t)(place_of(&a, last) + 1) * (a.d->type == DNN_F32 ? 4 : 2);
    return bytes(a.at, *n);
}

static int32_t search(int ok, const struct array a[3], struct object *conv, int32_t most, int32_t *n, struct mio_perf *p, uint64_t work,
                      size_t n_work, bool is_exhaustive)
{
    const int all_seen = conv->mode == MIO_NORMAL && (a[0].d->type != DNN_F16 || conv->no_alternative);
    const struct mio_perf all[] = {{MIO_SLOW, 3, MIO_SEARCH}, {all_seen ? MIO_FAST : 3, 0.5f, MIO_WORK}, {0, 2, 0}};
    READY;
    DNN_CALL;
    if (!ok || most < 3 || is_exhaustive || n_work < MIO_SEARCH || !bytes(work, n_work)) return MIO_INVALID;
    memset(bytes(work, n_work), 0xA5, n_work);
    for (int i = 0; i < 3; i++) {
        size_t size;
        char *at = extent(a[i], &size);
        if (!at) return MIO_INVALID;
        if (i == 2) memset(at, 0xA5, size);
    }
    memcpy(p, all, sizeof all);
    *n = 3, conv->is_found = 1;
    return OK;
}

FAKE int32_t miopenFindConvolutionForwardAlgorithm(void *h, void *xd, uint64_t x, void *wd, uint64_t w, void *conv, void *yd, uint64_t y,
                                                   int32_t most, int32_t *n, struct mio_perf *p, uint64_t work, size_t n_work, bool is_exhaustive);
int32_t miopenFindConvolutionForwardAlgorithm(void *h, void *xd, uint64_t x, void *wd, uint64_t w, void *conv, void *yd, uint64_t y, int32_t most,
                                              int32_t *n, struct mio_perf *p, uint64_t work, size_t n_work, bool is_exhaustive)
{
    const struct array a[] = {{there(xd, TENSOR), x}, {there(wd, TENSOR), w}, {there(yd, TENSOR), y}};
    return search(mio_fits(h, xd, wd, conv, yd), a, there(conv, WINDOW), most, n, p, work, n_work, is_exhaustive);
}
FAKE int32_t miopenFindConvolutionBackwardDataAlgorithm(void *h, void *yd, uint64_t y, void *wd, uint64_t w, void *conv, void *xd, uint64_t x,
                                                        int32_t most, int32_t *n, struct mio_perf *p, uint64_t work, size_t n_work,
                                                        bool is_exhaustive);
int32_t miopenFindConvolutionBackwardDataAlgorithm(void *h, void *yd, uint64_t y, void *wd, uint64_t w, void *conv, void *xd, uint64_t x,
                                                   int32_t most, int32_t *n, struct mio_perf *p, uint64_t work, size_t n_work, bool is_exhaustive)
{
    const struct array a[] = {{there(yd, TENSOR), y}, {there(wd, TENSOR), w}, {there(xd, TENSOR), x}};
    return search(mio_fits(h, xd, wd, conv, yd), a, there(conv, WINDOW), most, n, p, work, n_work, is_exhaustive);
}

static int mio_may_run(void *conv, int32_t algorithm, uint64_t work, size_t n_work, const void *alpha, const void *beta)
{
    return *(const float *)alpha == 1 && *(const float *)beta == 0 && there(conv, WINDOW)->is_found && algorithm == MIO_FAST && n_work >= MIO_WORK &&
           bytes(work, n_work);
}

FAKE int32_t miopenConvolutionForward(void *h, const void *alpha, void *xd, uint64_t x, void *wd, uint64_t w, void *conv, int32_t algorithm,
                                      const void *beta, void *yd, uint64_t y, uint64_t work, size_t n_work);
int32_t miopenConvolutionForward(void *h, const void *alpha, void *xd, uint64_t x, void *wd, uint64_t w, void *conv, int32_t algorithm,
                                 const void *beta, void *yd, uint64_t y, uint64_t work, size_t n_work)
{
    if (!mio_fits(h, xd, wd, conv, yd) || !mio_may_run(conv, algorithm, work, n_work, alpha, beta)) return MIO_INVALID;
    return convolve((struct array){there(xd, TENSOR), x}, (struct array){there(wd, TENSOR), w}, there(conv, WINDOW),
                    (struct array){there(yd, TENSOR), y}, 0);
}

FAKE int32_t miopenConvolutionBackwardData(void *h, const void *alpha, void *yd, uint64_t y, void *wd, uint64_t w, void *conv, int32_t algorithm,
                                           const void *beta, void *xd, uint64_t x, uint64_t work, size_t n_work);
int32_t miopenConvolutionBackwardData(void *h, const void *alpha, void *yd, uint64_t y, void *wd, uint64_t w, void *conv, int32_t algorithm,
                                      const void *beta, void *xd, uint64_t x, uint64_t work, size_t n_work)
{
    if (!mio_fits(h, xd, wd, conv, yd) || !mio_may_run(conv, algorithm, work, n_work, alpha, beta)) return MIO_INVALID;
    return convolve((struct array){there(yd, TENSOR), y}, (struct array){there(wd, TENSOR), w}, there(conv, WINDOW),
                    (struct array){there(xd, TENSOR), x}, 1);
}

#endif
