// SPDX-License-Identifier: Apache-2.0
//
// Part of fake_cuda.c: simulates cuDNN (QUERN_CUDNN_LIBRARY). Convolutions of f32, f16 and bf16 and
// their gradients with respect to the input, by their definitions. It has four algorithms: one
// never works, one rounds operands of f32, and the fastest of the others needs a workspace; running
// another one than expected, or without its workspace, is refused. QUERN_FAKE_CUDA=dnn=N: the N-th
// call fails.
#ifndef QUERN_TEST_FAKE_CUDNN_H
#define QUERN_TEST_FAKE_CUDNN_H

enum { DNN_F32 = 0, DNN_F16 = 2, DNN_BF16 = 9, SLOW = 1, LARGE = 2, ROUNDS = 5, WORK = 256, TENSOR_MATH = 1, FMA_MATH = 3, UNSUPPORTED = 3000 };

struct dnn_perf {
    int32_t algorithm, status;
    float ms;
    size_t workspace;
    int32_t determinism, math, reserved[3];
};

FAKE size_t cudnnGetVersion(void);
size_t cudnnGetVersion(void) { return 92600; }
FAKE const char *cudnnGetErrorString(int32_t r);
const char *cudnnGetErrorString(int32_t r) { return r == UNSUPPORTED ? "FAKE_NOT_SUPPORTED" : "FAKE_BAD_PARAM"; }

#define DNN_CALL                                                                                                                     \
    if (++n_dnn == option("dnn", 0)) return UNSUPPORTED

#define OBJECT(create, remove, what)                                                                                                 \
    FAKE int32_t create(void **x);                                                                                                   \
    int32_t create(void **x)                                                                                                         \
    {                                                                                                                                \
        DNN_CALL;                                                                                                                    \
        *x = make(what);                                                                                                             \
        return OK;                                                                                                                   \
    }                                                                                                                                \
    FAKE int32_t remove(void *x);                                                                                                    \
    int32_t remove(void *x) { return destroy(x, what); }
OBJECT(cudnnCreate, cudnnDestroy, CONVOLUTIONS)
OBJECT(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor, TENSOR)
OBJECT(cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor, FILTER)
OBJECT(cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor, WINDOW)
#undef OBJECT

FAKE int32_t cudnnSetStream(void *h, void *s);
int32_t cudnnSetStream(void *h, void *s)
{
    there(h, CONVOLUTIONS), there(s, STREAM);
    DNN_CALL;
    return OK;
}

static void keep_list(struct object *x, int list, int32_t n, const int32_t *v)
{
    if (n < 2 || n > DNN_DIMS) abort();
    memcpy(x->list[list], v, (size_t)n * sizeof *v);
    x->n = n;
}

static int has_type(int32_t t) { return t == DNN_F32 || t == DNN_F16 || t == DNN_BF16; }

FAKE int32_t cudnnSetTensorNdDescriptor(void *d, int32_t type, int32_t n, const int32_t *dim, const int32_t *stride);
int32_t cudnnSetTensorNdDescriptor(void *d, int32_t type, int32_t n, const int32_t *dim, const int32_t *stride)
{
    struct object *x = there(d, TENSOR);
    DNN_CALL;
    if (n < 4) return INVALID;
    keep_list(x, 0, n, dim), keep_list(x, 1, n, stride);
    x->type = type;
    return has_type(type) ? OK : INVALID;
}

FAKE int32_t cudnnSetFilterNdDescriptor(void *d, int32_t type, int32_t format, int32_t n, const int32_t *dim);
int32_t cudnnSetFilterNdDescriptor(void *d, int32_t type, int32_t format, int32_t n, const int32_t *dim)
{
    struct object *x = there(d, FILTER);
    int32_t step = 1;
    DNN_CALL;
    if (format < 0 || format > 1 || n < 4 || !has_type(type)) return INVALID;
    keep_list(x, 0, n, dim);
    if (format) x->list[1][1] = 1, step = dim[1];
    for (int32_t i = n - 1; i >= 0; i--) {
        if (format && i == 1) continue;
        x->list[1][i] = step;
        step *= dim[i];
    }
    x->type = type;
    return OK;
}

FAKE int32_t cudnnSetConvolutionNdDescriptor(void *d, int32_t n, const int32_t *pad, const int32_t *stride, const int32_t *dilation,
                                             int32_t mode, int32_t type);
int32_t cudnnSetConvolutionNdDescriptor(void *d, int32_t n, const int32_t *pad, const int32_t *stride, const int32_t *dilation, int32_t mode,
                                        int32_t type)
{
    struct object *x = there(d, WINDOW);
    DNN_CALL;
    keep_list(x, 0, n, pad), keep_list(x, 1, n, stride), keep_list(x, 2, n, dilation);
    return mode == 1 && type == DNN_F32 ? OK : INVALID;
}

FAKE int32_t cudnnSetConvolutionGroupCount(void *d, int32_t groups);
int32_t cudnnSetConvolutionGroupCount(void *d, int32_t groups)
{
    there(d, WINDOW)->groups = groups;
    DNN_CALL;
    return groups > 0 ? OK : INVALID;
}
FAKE int32_t cudnnSetConvolutionMathType(void *d, int32_t math);
int32_t cudnnSetConvolutionMathType(void *d, int32_t math)
{
    there(d, WINDOW)->math = math;
    DNN_CALL;
    return math >= 0 && math <= FMA_MATH ? OK : INVALID;
}

/* Whether `small` has the size of the convolution of `wide`, and the channels fit. small's are the
   filter's first axis. */
static int fits(const struct object *wide, const struct object *w, const struct object *conv, const struct object *small)
{
    int ok = wide->type == w->type && wide->type == small->type && wide->n == w->n && wide->n == small->n && conv->n == wide->n - 2;
    ok = ok && wide->list[0][0] == small->list[0][0] && small->list[0][1] == w->list[0][0] && wide->list[0][1] == w->list[0][1] * conv->groups;
    for (int32_t i = 0; ok && i < conv->n; i++) {
        int32_t room = wide->list[0][2 + i] + 2 * conv->list[0][i] - (w->list[0][2 + i] - 1) * conv->list[2][i] - 1;
        ok = room >= 0 && room / conv->list[1][i] + 1 == small->list[0][2 + i];
    }
    return ok;
}

static int32_t find(const struct object *conv, int ok, int32_t most, int32_t *n, struct dnn_perf *p)
{
    const struct dnn_perf all[] = {{ROUNDS, OK, 0.5f, 0, 1, TENSOR_MATH, {0}}, {LARGE, OK, 1, WORK, 1, conv->math, {0}},
                                   {SLOW, OK, 2, 0, 1, conv->math, {0}}, {0, UNSUPPORTED, -1, 0, 0, 0, {0}}};
    READY;
    DNN_CALL;
    if (!ok || most < 4) return INVALID;
    memcpy(p, all, sizeof all);
    *n = 4;
    return OK;
}

FAKE int32_t cudnnFindConvolutionForwardAlgorithm(void *h, void *x, void *w, void *conv, void *y, int32_t most, int32_t *n, struct dnn_perf *p);
int32_t cudnnFindConvolutionForwardAlgorithm(void *h, void *x, void *w, void *conv, void *y, int32_t most, int32_t *n, struct dnn_perf *p)
{
    there(h, CONVOLUTIONS);
    const struct object *c = there(conv, WINDOW);
    return find(c, fits(there(x, TENSOR), there(w, FILTER), c, there(y, TENSOR)), most, n, p);
}
FAKE int32_t cudnnFindConvolutionBackwardDataAlgorithm(void *h, void *w, void *y, void *conv, void *x, int32_t most, int32_t *n,
                                                       struct dnn_perf *p);
int32_t cudnnFindConvolutionBackwardDataAlgorithm(void *h, void *w, void *y, void *conv, void *x, int32_t most, int32_t *n, struct dnn_perf *p)
{
    there(h, CONVOLUTIONS);
    const struct object *c = there(conv, WINDOW);
    return find(c, fits(there(x, TENSOR), there(w, FILTER), c, there(y, TENSOR)), most, n, p);
}

struct array { const struct object *d; uint64_t at; };

static int element_type(const struct array *a) { return a->d->type == DNN_BF16 ? BF16 : a->d->type == DNN_F16 ? F16 : F32; }

static int64_t place_of(const struct array *a, const int32_t *idx)
{
    int64_t at = 0;
    for (int32_t i = 0; i < a->d->n; i++) at += (int64_t)idx[i] * a->d->list[1][i];
    return at;
}

/* The next index of an array of these sizes; 0: there is none. */
static int step(int32_t *idx, const int32_t *dim, int32_t n)
{
    for (int32_t i = n - 1; i >= 0; i--) {
        if (++idx[i] < dim[i]) return 1;
        idx[i] = 0;
    }
    return 0;
}

/* The element of the other tensor that an output reads under a tap; 0: none. */
static int input_of(const struct object *c, int is_gradient, const int32_t *out, const int32_t *tap, const int32_t *size, int32_t *in)
{
    for (int32_t i = 0; i < c->n; i++) {
        int32_t pad = c->list[0][i], stride = c->list[1][i], at = tap[i] * c->list[2][i];
        int32_t v = is_gradient ? out[i] + pad - at : out[i] * stride + at - pad;
        if (is_gradient && (v < 0 || v % stride)) return 0;
        in[i] = is_gradient ? v / stride : v;
        if (in[i] < 0 || in[i] >= size[i]) return 0;
    }
    return 1;
}

static double sum_at(struct array from, struct array w, const struct object *c, int is_gradient, const int32_t *out, const int32_t *out_dim)
{
    int32_t in[DNN_DIMS] = {out[0]}, tap[DNN_DIMS] = {0}, per = out_dim[1] / c->groups, group = out[1] / per;
    int32_t n_in = from.d->list[0][1] / c->groups;
    double sum = 0;
    do {
        if (!input_of(c, is_gradient, out + 2, tap, from.d->list[0] + 2, in + 2)) continue;
        for (int32_t k = 0; k < n_in; k++) {
            int32_t at[DNN_DIMS] = {is_gradient ? group * n_in + k : out[1], is_gradient ? out[1] % per : k};
            memcpy(at + 2, tap, (size_t)c->n * sizeof *tap);
            in[1] = group * n_in + k;
            sum += element(from.at, element_type(&from), place_of(&from, in)) * element(w.at, element_type(&w), place_of(&w, at));
        }
    } while (step(tap, w.d->list[0] + 2, c->n));
    return sum;
}

static int32_t convolve(struct array from, struct array w, const struct object *c, struct array to, int is_gradient)
{
    int32_t out[DNN_DIMS] = {0};
    READY;
    DNN_CALL;
    n_launches++;
    do put(to.at, element_type(&to), place_of(&to, out), sum_at(from, w, c, is_gradient, out, to.d->list[0]));
    while (step(out, to.d->list[0], to.d->n));
    return OK;
}

static int may_run(const struct object *x, const struct object *conv, int32_t algorithm, uint64_t work, size_t n_work, const void *alpha,
                   const void *beta)
{
    if (*(const float *)alpha != 1 || *(const float *)beta != 0) return 0;
    if (x->type != DNN_F32) return algorithm == ROUNDS && conv->math == TENSOR_MATH;
    return algorithm == LARGE && conv->math == FMA_MATH && n_work >= WORK && bytes(work, WORK);
}

FAKE int32_t cudnnConvolutionForward(void *h, const void *alpha, void *xd, uint64_t x, void *wd, uint64_t w, void *conv, int32_t algorithm,
                                     uint64_t work, size_t n_work, const void *beta, void *yd, uint64_t y);
int32_t cudnnConvolutionForward(void *h, const void *alpha, void *xd, uint64_t x, void *wd, uint64_t w, void *conv, int32_t algorithm,
                                uint64_t work, size_t n_work, const void *beta, void *yd, uint64_t y)
{
    const struct object *c = there(conv, WINDOW);
    there(h, CONVOLUTIONS);
    if (!may_run(there(xd, TENSOR), c, algorithm, work, n_work, alpha, beta)) return UNSUPPORTED;
    return convolve((struct array){there(xd, TENSOR), x}, (struct array){there(wd, FILTER), w}, c, (struct array){there(yd, TENSOR), y}, 0);
}

FAKE int32_t cudnnConvolutionBackwardData(void *h, const void *alpha, void *wd, uint64_t w, void *yd, uint64_t y, void *conv,
                                          int32_t algorithm, uint64_t work, size_t n_work, const void *beta, void *xd, uint64_t x);
int32_t cudnnConvolutionBackwardData(void *h, const void *alpha, void *wd, uint64_t w, void *yd, uint64_t y, void *conv, int32_t algorithm,
                                     uint64_t work, size_t n_work, const void *beta, void *xd, uint64_t x)
{
    const struct object *c = there(conv, WINDOW);
    there(h, CONVOLUTIONS);
    if (!may_run(there(xd, TENSOR), c, algorithm, work, n_work, alpha, beta)) return UNSUPPORTED;
    return convolve((struct array){there(yd, TENSOR), y}, (struct array){there(wd, FILTER), w}, c, (struct array){there(xd, TENSOR), x}, 1);
}

#endif
