// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda_conv.c: convolutions by the vendor's library, on the device's own stream: code shared by cuDNN and MIOpen. When a
// convolution is opened, the library measures all of its algorithms for it, and the fastest that works is used, with any workspace.
//
// Libraries support one padding for both ends of an axis. The padding at the beginning is used: with the one at the end the same outputs
// read the same inputs, as long as their number stays the same. Transposed convolutions are their gradients with respect to the input.
#include "dev/dev_cuda_conv.h"

enum { MIN_AXES = 2 };

bool dnn_ok(const struct cuda *c, i32 r, const char *call, struct err *e)
{
    const struct cuda_dnn *l = c->dnn;
    return r == 0 || err_set(e, ERR_SYSTEM, "'%s': %s: %s: %s (%d)", c->facts.name, l->kind->library.what, call, l->f.GetErrorString(r), r);
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
    struct cuda_dnn *l = c->dnn = mem_alloc((i64)sizeof *l);
    l->kind = c->api->has_gfx ? &dnn_miopen : &dnn_cudnn;
    l->lib = dev_library_open(&l->kind->library, &l->f, e);
    if (l->lib && dnn_ok(c, l->f.Create(&l->handle), "Create", e) && dnn_ok(c, l->f.SetStream(l->handle, c->stream), "SetStream", e)) return true;
    cuda_dnn_close(c);
    return false;
}

/* Descriptors. */

static bool narrow(i32 *to, i64 v, struct err *e)
{
    *to = (i32)v;
    return (v >= 0 && v <= INT32_MAX) || err_set(e, ERR_UNSUPPORTED, "sizes that exceed the library's range");
}

/* Axes of a convolution; further ones are `rest`. */
static bool narrow_axes(i32 *to, const struct dev_conv *c, const i64 *v, i64 rest, u32 axes, struct err *e)
{
    for (u32 i = 0; i < axes; i++)
        if (!narrow(&to[i], i < c->axes ? v[i] : rest, e)) return false;
    return true;
}

static bool narrow_dims(i32 *to, const struct dev_conv *c, i64 first, i64 second, const i64 *v, u32 axes, struct err *e)
{
    return narrow(&to[0], first, e) && narrow(&to[1], second, e) && narrow_axes(to + 2, c, v, 1, axes, e);
}

static bool size_up(struct dnn_sizes *s, const struct dev_conv *c, struct err *e)
{
    i64 to = c->is_transposed ? c->channels : c->out_channels, from = c->is_transposed ? c->out_channels : c->channels;
    u32 n = s->axes = c->axes < MIN_AXES ? MIN_AXES : c->axes;
    return narrow_dims(s->x, c, c->batch, c->channels, c->size, n, e) && narrow_dims(s->y, c, c->batch, c->out_channels, c->outputs, n, e) &&
           narrow_dims(s->w, c, to, from / c->groups, c->kernel, n, e) && narrow_axes(s->pad, c, c->pad_begin, 0, n, e) &&
           narrow_axes(s->stride, c, c->stride, 1, n, e) && narrow_axes(s->dilation, c, c->dilation, 1, n, e) && narrow(&s->groups, c->groups, e);
}

/* Whether one padding for both ends yields the same number of outputs. */
static bool check_pads(const struct dev_conv *s, const char *what, struct err *e)
{
    for (u32 i = 0; i < s->axes; i++) {
        i64 wide = s->is_transposed ? s->outputs[i] : s->size[i], small = s->is_transposed ? s->size[i] : s->outputs[i];
        i64 room = wide + 2 * s->pad_begin[i] - ((s->kernel[i] - 1) * s->dilation[i] + 1);
        if (room < 0 || room / s->stride[i] + 1 != small)
            return err_set(e, ERR_UNSUPPORTED, "%s has no convolutions with other pads at the end than at the beginning", what);
    }
    return true;
}

bool dnn_describe(struct cuda *c, const struct cuda_conv *k, void **d, const i32 *dim, struct err *e)
{
    const struct dnn_calls *f = &c->dnn->f;
    enum { MOST = 48 }; /* bits of the number of elements */
    i64 wide[DNN_DIMS] = {0}, step[DNN_DIMS];
    i32 stride[DNN_DIMS];
    u32 n = k->size.axes + 2;
    for (u32 i = 0; i < n; i++) wide[i] = dim[i];
    dev_conv_steps(step, n, wide, 1, k->c.channels_last);
    for (u32 i = 0; i < n; i++)
        if (!narrow(&stride[i], wide[0] > ((i64)1 << MOST) / step[0] ? -1 : step[i], e)) return false;
    return dnn_ok(c, f->CreateTensorDescriptor(d), "CreateTensorDescriptor", e) &&
           dnn_ok(c, f->SetTensorDescriptor(*d, c->dnn->kind->type(k->c.type), (i32)n, dim, stride), "SetTensorDescriptor", e);
}

static bool describe_conv(struct cuda *c, struct cuda_conv *k, struct err *e)
{
    const struct dnn_calls *f = &c->dnn->f;
    return dnn_describe(c, k, &k->x, k->size.x, e) && dnn_describe(c, k, &k->y, k->size.y, e) && c->dnn->kind->describe_weights(c, k, e) &&
           dnn_ok(c, f->CreateConvolutionDescriptor(&k->conv), "CreateConvolutionDescriptor", e) && c->dnn->kind->describe_window(c, k, e) &&
           dnn_ok(c, f->SetConvolutionGroupCount(k->conv, k->size.groups), "SetConvolutionGroupCount", e);
}

/* A convolution. */

static bool start(struct cuda *c, struct cuda_conv *k, struct err *e)
{
    const struct dnn_kind *kind = c->dnn->kind;
    return check_pads(&k->c, kind->library.what, e) && size_up(&k->size, &k->c, e) && describe_conv(c, k, e) && kind->find(c, k, e) &&
           (!k->n_work || cuda_ok(c, c->cu.MemAlloc(&k->work, k->n_work), "MemAlloc", e));
}

struct cuda_conv *cuda_conv_open(struct cuda *c, const struct dev_conv *s, struct buf *name, struct err *e)
{
    if (!open_library(c, e)) return NULL;
    if (c->dnn->kind->type(s->type) < 0) {
        err_set(e, ERR_UNSUPPORTED, "%s has no convolutions of '%s'", c->dnn->kind->library.what, dtype_name(s->type));
        return NULL;
    }
    if (s->of_weights) {
        err_set(e, ERR_UNSUPPORTED, "%s is not used for gradients of weights", c->dnn->kind->library.what);
        return NULL;
    }
    struct cuda_conv *k = mem_alloc((i64)sizeof *k);
    k->c = *s;
    if (start(c, k, e)) {
        c->dnn->kind->put_name(c, name);
        return k;
    }
    cuda_conv_close(c, k);
    return NULL;
}

void cuda_conv_close(struct cuda *c, struct cuda_conv *k)
{
    if (!k) return;
    const struct dnn_calls *f = &c->dnn->f;
    if (k->work) c->cu.MemFree(k->work);
    if (k->conv) f->DestroyConvolutionDescriptor(k->conv);
    if (k->w) c->dnn->kind->forget_weights(c, k->w);
    if (k->x) f->DestroyTensorDescriptor(k->x);
    if (k->y) f->DestroyTensorDescriptor(k->y);
    mem_free(k);
}

bool cuda_conv_launch(struct cuda *c, const struct cuda_conv *k, const struct dev_launch *l, struct err *e)
{
    if (!dev_conv_check(&k->c, l, e) || !cuda_start_clock(c, e)) return false;
    const struct dnn_operands at = {cuda_address(&l->buf[0]), cuda_address(&l->buf[1]), cuda_address(&l->buf[2])};
    return dnn_ok(c, c->dnn->kind->run(c, k, at), k->c.is_transposed ? "ConvolutionBackwardData" : "ConvolutionForward", e);
}
