// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda_conv.h: convolutions by the vendors' libraries. dev_cuda_conv.c is common to all,
// dev_cuda_cudnn.c and dev_cuda_miopen.c implement one each (struct dnn_kind). Private to these
// files.
#ifndef QUERN_DEV_CUDA_CONV_H
#define QUERN_DEV_CUDA_CONV_H

#include "dev/dev_cuda.h"

enum { DNN_AXES = DEV_CONV_AXES, DNN_DIMS = 2 + DNN_AXES, DNN_ALGORITHMS = 16 };

struct cudnn_measured { /* an algorithm */
    i32 algorithm, status;
    float ms;
    size_t workspace;
    i32 determinism, math, reserved[3];
};

struct cudnn_calls {
    size_t (*GetVersion)(void);
    i32 (*CreateFilterDescriptor)(void **d);
    i32 (*DestroyFilterDescriptor)(void *d);
    i32 (*SetFilterNdDescriptor)(void *d, i32 type, i32 format, i32 n, const i32 *dim);
    i32 (*SetConvolutionNdDescriptor)(void *d, i32 n, const i32 *pad, const i32 *stride, const i32 *dilation, i32 mode, i32 type);
    i32 (*SetConvolutionMathType)(void *d, i32 math);
    i32 (*FindConvolutionForwardAlgorithm)(void *handle, void *x, void *w, void *conv, void *y, i32 most, i32 *n, struct cudnn_measured *m);
    i32 (*FindConvolutionBackwardDataAlgorithm)(void *handle, void *w, void *y, void *conv, void *x, i32 most, i32 *n, struct cudnn_measured *m);
    i32 (*ConvolutionForward)(void *handle, const void *alpha, void *xd, u64 x, void *wd, u64 w, void *conv, i32 algorithm, u64 work,
                              size_t n_work, const void *beta, void *yd, u64 y);
    i32 (*ConvolutionBackwardData)(void *handle, const void *alpha, void *wd, u64 w, void *yd, u64 y, void *conv, i32 algorithm, u64 work,
                                   size_t n_work, const void *beta, void *xd, u64 x);
};

struct miopen_measured { /* an algorithm */
    i32 algorithm;
    float ms;
    size_t workspace;
};

struct miopen_calls {
    i32 (*GetVersion)(size_t *major, size_t *minor, size_t *patch);
    i32 (*InitConvolutionNdDescriptor)(void *d, i32 n, const i32 *pad, const i32 *stride, const i32 *dilation, i32 mode);
    i32 (*SetConvolutionAttribute)(void *d, i32 what, i32 v); /* both NULL in older versions */
    i32 (*SetConvolutionFindMode)(void *d, i32 mode);
    i32 (*ForwardGetWorkSpaceSize)(void *handle, void *w, void *x, void *conv, void *y, size_t *n);
    i32 (*BackwardDataGetWorkSpaceSize)(void *handle, void *y, void *w, void *conv, void *x, size_t *n);
    i32 (*FindForward)(void *handle, void *xd, u64 x, void *wd, u64 w, void *conv, void *yd, u64 y, i32 most, i32 *n,
                       struct miopen_measured *m, u64 work, size_t n_work, bool exhaustive);
    i32 (*FindBackwardData)(void *handle, void *yd, u64 y, void *wd, u64 w, void *conv, void *xd, u64 x, i32 most, i32 *n,
                            struct miopen_measured *m, u64 work, size_t n_work, bool exhaustive);
    i32 (*Forward)(void *handle, const void *alpha, void *xd, u64 x, void *wd, u64 w, void *conv, i32 algorithm, const void *beta, void *yd,
                   u64 y, u64 work, size_t n_work);
    i32 (*BackwardData)(void *handle, const void *alpha, void *yd, u64 y, void *wd, u64 w, void *conv, i32 algorithm, const void *beta,
                        void *xd, u64 x, u64 work, size_t n_work);
};

struct dnn_calls {
    /* Common to all. */
    const char *(*GetErrorString)(i32 r);
    i32 (*Create)(void **handle);
    i32 (*Destroy)(void *handle);
    i32 (*SetStream)(void *handle, void *stream);
    i32 (*CreateTensorDescriptor)(void **d);
    i32 (*DestroyTensorDescriptor)(void *d);
    i32 (*SetTensorDescriptor)(void *d, i32 type, i32 n, const i32 *dim, const i32 *stride);
    i32 (*CreateConvolutionDescriptor)(void **d);
    i32 (*DestroyConvolutionDescriptor)(void *d);
    i32 (*SetConvolutionGroupCount)(void *d, i32 groups);
    /* Operations of one library. */
    struct cudnn_calls cudnn;
    struct miopen_calls miopen;
};

/* Entries of a library's list of functions: the common ones, under names that begin with the
   library's prefix. */
#define DNN_CALL(name, field) {name, offsetof(struct dnn_calls, field), false}
#define DNN_COMMON(prefix, set_tensor)                                                                                                          \
    DNN_CALL(prefix "GetErrorString", GetErrorString), DNN_CALL(prefix "Create", Create), DNN_CALL(prefix "Destroy", Destroy),                 \
        DNN_CALL(prefix "SetStream", SetStream), DNN_CALL(prefix "CreateTensorDescriptor", CreateTensorDescriptor),                            \
        DNN_CALL(prefix "DestroyTensorDescriptor", DestroyTensorDescriptor), DNN_CALL(prefix set_tensor, SetTensorDescriptor),                 \
        DNN_CALL(prefix "CreateConvolutionDescriptor", CreateConvolutionDescriptor),                                                           \
        DNN_CALL(prefix "DestroyConvolutionDescriptor", DestroyConvolutionDescriptor),                                                         \
        DNN_CALL(prefix "SetConvolutionGroupCount", SetConvolutionGroupCount)

/* A convolution in the libraries' terms: one axis becomes two, the second with one element. */
struct dnn_sizes {
    u32 axes;
    i32 x[DNN_DIMS], w[DNN_DIMS], y[DNN_DIMS]; /* images or output channels, channels, axes */
    i32 pad[DNN_AXES], stride[DNN_AXES], dilation[DNN_AXES], groups;
};

struct cuda_conv {
    struct dev_conv c;
    struct dnn_sizes size;
    void *x, *w, *y, *conv; /* descriptors */
    i32 algorithm;
    u64 work;               /* 0: none */
    size_t n_work;
};

struct dnn_operands { u64 x, w, y; }; /* addresses */

/* A library; functions that fail set the error. */
struct dnn_kind {
    struct dev_library library;
    i32 (*type)(enum dtype t); /* the library's number; < 0: unsupported */
    void (*put_name)(const struct cuda *c, struct buf *name);
    bool (*describe_weights)(struct cuda *c, struct cuda_conv *k, struct err *e);
    i32 (*forget_weights)(const struct cuda *c, void *w);
    bool (*describe_window)(struct cuda *c, struct cuda_conv *k, struct err *e);
    bool (*find)(struct cuda *c, struct cuda_conv *k, struct err *e); /* sets algorithm and n_work */
    i32 (*run)(const struct cuda *c, const struct cuda_conv *k, struct dnn_operands at);
};

struct cuda_dnn { const struct dnn_kind *kind; void *lib, *handle; struct dnn_calls f; };

extern const struct dnn_kind dnn_cudnn, dnn_miopen;

/* dev_cuda_conv.c */

bool dnn_ok(const struct cuda *c, i32 r, const char *call, struct err *e);
/* A tensor of these sizes in the convolution's layout. */
bool dnn_describe(struct cuda *c, const struct cuda_conv *k, void **d, const i32 *dim, struct err *e);

#endif
