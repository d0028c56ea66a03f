// SPDX-License-Identifier: Apache-2.0
//
// Part of fake_cuda.c: what looks like MIOpen (QUERN_MIOPEN_LIBRARY); it computes what fake_cudnn.h does. An algorithm is found with operands and
// workspace in memory that is there, and nothing runs that was not found for these descriptors before, as its manual demands.
#ifndef QUERN_TEST_FAKE_MIOPEN_H
#define QUERN_TEST_FAKE_MIOPEN_H

enum { MIO_F32 = 1, MIO_BF16 = 5, MIO_DIRECT = 1, MIO_IGEMM = 5, FOUND = 77 };

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

#define SAME(mine, theirs, parameters) FAKE int32_t mine parameters __attribute__((alias(#theirs)))
SAME(miopenCreate, cudnnCreate, (void **h));
SAME(miopenDestroy, cudnnDestroy, (void *h));
SAME(miopenSetStream, cudnnSetStream, (void *h, void *s));
SAME(miopenCreateTensorDescriptor, cudnnCreateTensorDescriptor, (void **d));
SAME(miopenDestroyTensorDescriptor, cudnnDestroyTensorDescriptor, (void *d));
SAME(miopenCreateConvolutionDescriptor, cudnnCreateConvolutionDescriptor, (void **d));
SAME(miopenDestroyConvolutionDescriptor, cudnnDestroyConvolutionDescriptor, (void *d));
SAME(miopenSetConvolutionGroupCount, cudnnSetConvolutionGroupCount, (void *d, int32_t groups));
#undef SAME

FAKE int32_t miopenSetTensorDescriptor(void *d, int32_t type, int32_t n, const int32_t *dim, const int32_t *stride);
int32_t miopenSetTensorDescriptor(void *d, int32_t type, int32_t n, const int32_t *dim, const int32_t *stride)
{
    return cudnnSetTensorNdDescriptor(d, type == MIO_F32 ? DNN_F32 : type == MIO_BF16 ? DNN_BF16 : -1, n, dim, stride);
}

FAKE int32_t miopenInitConvolutionNdDescriptor(void *d, int32_t n, const int32_t *pad, const int32_t *stride, const int32_t *dilation,
                                               int32_t mode);
int32_t miopenInitConvolutionNdDescriptor(void *d, int32_t n, const int32_t *pad, const int32_t *stride, const int32_t *dilation, int32_t mode)
{
    return mode == 0 ? cudnnSetConvolutionNdDescriptor(d, n, pad, stride, dilation, 1, DNN_F32) : INVALID;
}

struct mio_problem { void *wide, *w, *conv, *small; }; /* descriptors; small's channels are the weights' first axis */

static int mio_fits(struct mio_problem p)
{
    return fits(there(p.wide, TENSOR), there(p.w, TENSOR), there(p.conv, WINDOW), there(p.small, TENSOR));
}

static int32_t mio_size(void *h, struct mio_problem p, size_t *n)
{
    there(h, CONVOLUTIONS);
    *n = WORK + 64;
    return mio_fits(p) ? OK : INVALID;
}

FAKE int32_t miopenConvolutionForwardGetWorkSpaceSize(void *h, void *w, void *x, void *conv, void *y, size_t *n);
int32_t miopenConvolutionForwardGetWorkSpaceSize(void *h, void *w, void *x, void *conv, void *y, size_t *n)
{
    return mio_size(h, (struct mio_problem){x, w, conv, y}, n);
}
FAKE int32_t miopenConvolutionBackwardDataGetWorkSpaceSize(void *h, void *y, void *w, void *conv, void *x, size_t *n);
int32_t miopenConvolutionBackwardDataGetWorkSpaceSize(void *h, void *y, void *w, void *conv, void *x, size_t *n)
{
    return mio_size(h, (struct mio_problem){x, w, conv, y}, n);
}

/* Is all of a tensor in memory? */
static int mio_there(void *d, uint64_t at)
{
    const struct object *t = there(d, TENSOR);
    size_t n = t->type == DNN_BF16 ? 2 : 4;
    for (int32_t i = 0; i < t->n; i++) n *= (size_t)t->list[0][i];
    return bytes(at, n) != NULL;
}

struct mio_search { int32_t most, *n; struct mio_perf *m; uint64_t work; size_t n_work; bool exhaustive; };

static int32_t mio_find(void *h, struct mio_problem p, int operands, struct mio_search s)
{
    const struct mio_perf all[] = {{MIO_DIRECT, 2, 0}, {MIO_IGEMM, 1, WORK}};
    READY;
    there(h, CONVOLUTIONS);
    if (!mio_fits(p) || !operands || s.most < 2 || s.exhaustive || s.n_work < WORK + 64 || !bytes(s.work, s.n_work)) return INVALID;
    memcpy(s.m, all, sizeof all);
    *s.n = 2;
    there(p.conv, WINDOW)->math = FOUND;
    return OK;
}

FAKE int32_t miopenFindConvolutionForwardAlgorithm(void *h, void *xd, uint64_t x, void *wd, uint64_t w, void *conv, void *yd, uint64_t y,
                                                   int32_t most, int32_t *n, struct mio_perf *m, uint64_t work, size_t n_work, bool exhaustive);
int32_t miopenFindConvolutionForwardAlgorithm(void *h, void *xd, uint64_t x, void *wd, uint64_t w, void *conv, void *yd, uint64_t y,
                                              int32_t most, int32_t *n, struct mio_perf *m, uint64_t work, size_t n_work, bool exhaustive)
{
    return mio_find(h, (struct mio_problem){xd, wd, conv, yd}, mio_there(xd, x) && mio_there(wd, w) && mio_there(yd, y),
                    (struct mio_search){most, n, m, work, n_work, exhaustive});
}
FAKE int32_t miopenFindConvolutionBackwardDataAlgorithm(void *h, void *yd, uint64_t y, void *wd, uint64_t w, void *conv, void *xd, uint64_t x,
                                                        int32_t most, int32_t *n, struct mio_perf *m, uint64_t work, size_t n_work,
                                                        bool exhaustive);
int32_t miopenFindConvolutionBackwardDataAlgorithm(void *h, void *yd, uint64_t y, void *wd, uint64_t w, void *conv, void *xd, uint64_t x,
                                                   int32_t most, int32_t *n, struct mio_perf *m, uint64_t work, size_t n_work, bool exhaustive)
{
    return mio_find(h, (struct mio_problem){xd, wd, conv, yd}, mio_there(xd, x) && mio_there(wd, w) && mio_there(yd, y),
                    (struct mio_search){most, n, m, work, n_work, exhaustive});
}

static int mio_may_run(void *h, void *conv, int32_t algorithm, uint64_t work, size_t n_work, const void *alpha, const void *beta)
{
    there(h, CONVOLUTIONS);
    return *(const float *)alpha == 1 && *(const float *)beta == 0 && there(conv, WINDOW)->math == FOUND && algorithm == MIO_IGEMM &&
           n_work >= WORK && bytes(work, WORK);
}

FAKE int32_t miopenConvolutionForward(void *h, const void *alpha, void *xd, uint64_t x, void *wd, uint64_t w, void *conv, int32_t algorithm,
                                      const void *beta, void *yd, uint64_t y, uint64_t work, size_t n_work);
int32_t miopenConvolutionForward(void *h, const void *alpha, void *xd, uint64_t x, void *wd, uint64_t w, void *conv, int32_t algorithm,
                                 const void *beta, void *yd, uint64_t y, uint64_t work, size_t n_work)
{
    if (!mio_may_run(h, conv, algorithm, work, n_work, alpha, beta)) return UNSUPPORTED;
    return convolve((struct array){there(xd, TENSOR), x}, (struct array){there(wd, TENSOR), w}, there(conv, WINDOW),
                    (struct array){there(yd, TENSOR), y}, 0);
}

FAKE int32_t miopenConvolutionBackwardData(void *h, const void *alpha, void *yd, uint64_t y, void *wd, uint64_t w, void *conv,
                                           int32_t algorithm, const void *beta, void *xd, uint64_t x, uint64_t work, size_t n_work);
int32_t miopenConvolutionBackwardData(void *h, const void *alpha, void *yd, uint64_t y, void *wd, uint64_t w, void *conv, int32_t algorithm,
                                      const void *beta, void *xd, uint64_t x, uint64_t work, size_t n_work)
{
    if (!mio_may_run(h, conv, algorithm, work, n_work, alpha, beta)) return UNSUPPORTED;
    return convolve((struct array){there(yd, TENSOR), y}, (struct array){there(wd, TENSOR), w}, there(conv, WINDOW),
                    (struct array){there(xd, TENSOR), x}, 1);
}

#endif
