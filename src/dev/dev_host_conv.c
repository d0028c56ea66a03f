// SPDX-License-Identifier: Apache-2.0
//
// dev_host_conv.c: convolutions by oneDNN on the CPU, with as many threads as the device, through its C interface of
// versions 2 and 3 (oneapi-src.github.io/oneDNN), opened at run time. QUERN_ONEDNN_LIBRARY names another library.
//
// Input and output have the caller's layout; weights may have the library's preferred layout, because
// they are constant in a network: they are packed at first use, and again after an upload to the
// device, never while nothing has changed. Gradients of weights are unpacked at every run. In version 2
// descriptors are structs of the caller, which are only passed on here: space for the largest suffices.
#include "dev/dev.h"

#include <string.h>

enum { /* of the library's interface */
    CPU = 1, IN_ORDER = 1, TRAINING = 64, INFERENCE = 96, CONV_DIRECT = 1, CONV_AUTO = 3, DECONV_DIRECT = 10, ANY = 1, WEIGHTS_MD = 131, DIFF_WEIGHTS_MD = 132, ARG_SRC = 1,
    ARG_DST = 17, ARG_DIFF_DST = 145, ARG_DIFF_WEIGHTS = 161, ARG_WEIGHTS = 33, ARG_FROM = 1, ARG_TO = 17, MAX_DIMS = 12
};
enum { MD_ROOM = 4096, OP_ROOM = 32768 };

struct handle; /* any of the library's */
typedef i64 dims[MAX_DIMS];
struct exec_arg { int arg; struct handle *memory; };
struct version { int major, minor, patch; };

struct desc { /* of memory */
    struct handle *of;  /* version 3: created by the library, to be destroyed; version 2: in room */
    struct desc_room { _Alignas(16) char p[MD_ROOM]; } *room;
};

struct onednn { /* one library's functions */
    const struct version *(*version)(void);
    int (*engine_create)(struct handle **out, int kind, size_t index);
    int (*engine_destroy)(struct handle *e);
    int (*stream_create)(struct handle **out, struct handle *engine, unsigned flags);
    int (*stream_destroy)(struct handle *s);
    int (*stream_wait)(struct handle *s);
    int (*primitive_create)(struct handle **out, const struct handle *desc);
    int (*primitive_destroy)(struct handle *p);
    int (*primitive_desc_destroy)(struct handle *p);
    int (*execute)(const struct handle *p, struct handle *stream, int n, const struct exec_arg *arg);
    const void *(*query_md)(const struct handle *desc, int what, int index);
    int (*memory_create)(struct handle **out, const void *md, struct handle *engine, void *p);
    int (*memory_destroy)(struct handle *m);
    int (*memory_set)(struct handle *m, void *p);
    size_t (*md_size)(const void *md);
    int (*reorder_create)(struct handle **out, const void *from, struct handle *from_engine, const void *to, struct handle *to_engine,
                          const struct handle *attr);
    /* Version 2. */
    int (*md_init_strides)(void *md, int n, const i64 *dim, int type, const i64 *stride);
    int (*md_init_tag)(void *md, int n, const i64 *dim, int type, int tag);
    int (*conv_init)(void *op, int kind, int algorithm, const void *x, const void *w, const void *bias, const void *y, const i64 *stride,
                     const i64 *dilation, const i64 *begin, const i64 *end);
    int (*deconv_init)(void *op, int kind, int algorithm, const void *x, const void *w, const void *bias, const void *y, const i64 *stride,
                       const i64 *dilation, const i64 *begin, const i64 *end);
    int (*back_init)(void *op, int algorithm, const void *x, const void *dw, const void *dbias, const void *dy, const i64 *stride,
                     const i64 *dilation, const i64 *begin, const i64 *end);
    int (*primitive_desc_create)(struct handle **out, const void *op, const void *attr, struct handle *engine, const void *hint);
    /* Version 3. */
    int (*md_create_strides)(struct handle **md, int n, const i64 *dim, int type, const i64 *stride);
    int (*md_create_tag)(struct handle **md, int n, const i64 *dim, int type, int tag);
    int (*md_destroy)(struct handle *md);
    int (*conv_create)(struct handle **out, struct handle *engine, int kind, int algorithm, const void *x, const void *w, const void *bias,
                       const void *y, const i64 *stride, const i64 *dilation, const i64 *begin, const i64 *end, const void *attr);
    int (*deconv_create)(struct handle **out, struct handle *engine, int kind, int algorithm, const void *x, const void *w,
                         const void *bias, const void *y, const i64 *stride, const i64 *dilation, const i64 *begin, const i64 *end,
                         const void *attr);
    int (*back_create)(struct handle **out, struct handle *engine, int algorithm, const void *x, const void *dw, const void *dbias,
                       const void *dy, const i64 *stride, const i64 *dilation, const i64 *begin, const i64 *end, const struct handle *hint,
                       const void *attr);
    void (*omp_threads)(int n);
};

#define CALL(field, name, may_lack) {name, offsetof(struct onednn, field), may_lack}
static const struct dev_call calls[] = {
    CALL(version, "dnnl_version", false),
    CALL(engine_create, "dnnl_engine_create", false),
    CALL(engine_destroy, "dnnl_engine_destroy", false),
    CALL(stream_create, "dnnl_stream_create", false),
    CALL(stream_destroy, "dnnl_stream_destroy", false),
    CALL(stream_wait, "dnnl_stream_wait", false),
    CALL(primitive_create, "dnnl_primitive_create", false),
    CALL(primitive_destroy, "dnnl_primitive_destroy", false),
    CALL(primitive_desc_destroy, "dnnl_primitive_desc_destroy", false),
    CALL(execute, "dnnl_primitive_execute", false),
    CALL(query_md, "dnnl_primitive_desc_query_md", false),
    CALL(memory_create, "dnnl_memory_create", false),
    CALL(memory_destroy, "dnnl_memory_destroy", false),
    CALL(memory_set, "dnnl_memory_set_data_handle", false),
    CALL(md_size, "dnnl_memory_desc_get_size", false),
    CALL(reorder_create, "dnnl_reorder_primitive_desc_create", false),
    CALL(md_init_strides, "dnnl_memory_desc_init_by_strides", true),
    CALL(md_init_tag, "dnnl_memory_desc_init_by_tag", true),
    CALL(conv_init, "dnnl_dilated_convolution_forward_desc_init", true),
    CALL(deconv_init, "dnnl_dilated_deconvolution_forward_desc_init", true),
    CALL(primitive_desc_create, "dnnl_primitive_desc_create", true),
    CALL(md_create_strides, "dnnl_memory_desc_create_with_strides", true),
    CALL(md_create_tag, "dnnl_memory_desc_create_with_tag", true),
    CALL(md_destroy, "dnnl_memory_desc_destroy", true),
    CALL(conv_create, "dnnl_convolution_forward_primitive_desc_create", true),
    CALL(deconv_create, "dnnl_deconvolution_forward_primitive_desc_create", true),
    CALL(back_init, "dnnl_dilated_convolution_backward_weights_desc_init", true),
    CALL(back_create, "dnnl_convolution_backward_weights_primitive_desc_create", true),
    CALL(omp_threads, "omp_set_num_threads", true),
};
static const struct dev_library library = {"oneDNN", "QUERN_ONEDNN_LIBRARY", "libdnnl.so.3 libdnnl.so.2", calls, countof(calls)};

struct host_conv {
    struct onednn f;
    struct dev_conv c;
    bool is_old;                  /* version 2 */
    struct handle *engine, *stream, *desc, *primitive, *reorder_desc, *reorder;
    struct desc x, w, any, y;     /* w: weights in the caller's layout; any: in the library's */
    struct handle *mem_x, *mem_w, *mem_y, *mem_own; /* own: weights in the library's layout */
    void *own;                    /* their memory; NULL: the caller's layout */
    const void *known;            /* source of own, and its number of uploads */
    u64 known_at;
};

static bool fine(int status, const char *what, struct err *e)
{
    return status == 0 || err_set(e, status == 3 ? ERR_UNSUPPORTED : ERR_FAILED, "oneDNN: %s: %s (%d)", what,
                                  status == 3 ? "not implemented" : "it failed", status);
}

/* Descriptors. */

static const void *md(const struct host_conv *h, const struct desc *d) { return h->is_old ? (const void *)d->room : d->of; }

static int type_of(enum dtype t) { return t == DT_F16 ? 1 : t == DT_BF16 ? 2 : t == DT_F32 ? 3 : 0; }

/* stride NULL: chosen by the library */
static bool describe(struct host_conv *h, struct desc *d, u32 n, const i64 *dim, const i64 *stride, struct err *e)
{
    const struct onednn *f = &h->f;
    int t = type_of(h->c.type), status;
    if (h->is_old) {
        d->room = mem_alloc((i64)sizeof *d->room);
        status = stride ? f->md_init_strides(d->room, (int)n, dim, t, stride) : f->md_init_tag(d->room, (int)n, dim, t, ANY);
    } else
        status = stride ? f->md_create_strides(&d->of, (int)n, dim, t, stride) : f->md_create_tag(&d->of, (int)n, dim, t, ANY);
    return fine(status, "a tensor's description", e);
}

static void forget(struct host_conv *h, struct desc *d)
{
    if (d->of) h->f.md_destroy(d->of);
    mem_free(d->room);
}

/* x or y: (n, c, axes ..) */
static bool describe_tensor(struct host_conv *h, struct desc *d, i64 channels, const i64 *axes, struct err *e)
{
    dims dim = {h->c.batch, channels}, stride;
    u32 n = h->c.axes + 2;
    for (u32 i = 0; i < h->c.axes; i++) dim[2 + i] = axes[i];
    dev_conv_steps(stride, n, dim, 1, h->c.channels_last);
    return describe(h, d, n, dim, stride, e);
}

static void swap(i64 *a, i64 *b)
{
    i64 t = *a;
    *a = *b, *b = t;
}

/* The library's weights are (group, m, c, kernel ..), without groups (m, c, kernel ..); those of transposed convolutions are (group, c, m, ..). */
static bool describe_weights(struct host_conv *h, struct err *e)
{
    const struct dev_conv *c = &h->c;
    dims dim = {c->groups, c->out_channels / c->groups, c->channels / c->groups}, stride;
    u32 n = c->axes + 3, skip = c->groups == 1;
    for (u32 i = 0; i < c->axes; i++) dim[3 + i] = c->kernel[i];
    if (c->is_transposed) swap(&dim[1], &dim[2]);
    dev_conv_steps(stride, n, dim, 2, c->channels_last && !c->of_weights);
    if (c->is_transposed) swap(&dim[1], &dim[2]), swap(&stride[1], &stride[2]);
    return describe(h, &h->w, n - skip, dim + skip, stride + skip, e) && describe(h, &h->any, n - skip, dim + skip, NULL, e);
}

/* The convolution. */

/* The gradient of its weights; hint: the convolution. */
static int make_back_desc(struct host_conv *h, int algorithm, const i64 *dilation, const struct handle *hint)
{
    const struct onednn *f = &h->f;
    const struct dev_conv *c = &h->c;
    const void *x = md(h, &h->x), *w = md(h, &h->any), *y = md(h, &h->y);
    if (!h->is_old)
        return f->back_create(&h->desc, h->engine, algorithm, x, w, NULL, y, c->stride, dilation, c->pad_begin, c->pad_end, hint, NULL);
    void *op = mem_alloc(OP_ROOM);
    int status = f->back_init(op, algorithm, x, w, NULL, y, c->stride, dilation, c->pad_begin, c->pad_end);
    if (!status) status = f->primitive_desc_create(&h->desc, op, NULL, h->engine, hint);
    mem_free(op);
    return status;
}

static int make_desc(struct host_conv *h, int algorithm)
{
    const struct onednn *f = &h->f;
    const struct dev_conv *c = &h->c;
    bool t = c->is_transposed;
    const void *x = md(h, &h->x), *w = md(h, &h->any), *y = md(h, &h->y);
    struct handle *desc = NULL;
    dims dilation;
    int kind = c->of_weights ? TRAINING : INFERENCE, status;
    for (u32 i = 0; i < c->axes; i++) dilation[i] = c->dilation[i] - 1;
    if (h->is_old) {
        void *op = mem_alloc(OP_ROOM);
        status = (t ? f->deconv_init : f->conv_init)(op, kind, algorithm, x, w, NULL, y, c->stride, dilation, c->pad_begin, c->pad_end);
        if (!status) status = f->primitive_desc_create(&desc, op, NULL, h->engine, NULL);
        mem_free(op);
    } else
        status = (t ? f->deconv_create : f->conv_create)(&desc, h->engine, kind, algorithm, x, w, NULL, y, c->stride, dilation,
                                                         c->pad_begin, c->pad_end, NULL);
    if (status || !c->of_weights) {
        h->desc = desc;
        return status;
    }
    status = make_back_desc(h, algorithm, dilation, desc);
    f->primitive_desc_destroy(desc);
    return status;
}

static bool make_conv(struct host_conv *h, struct err *e)
{
    int status = make_desc(h, h->c.is_transposed ? DECONV_DIRECT : CONV_AUTO);
    if (status && !h->c.is_transposed) status = make_desc(h, CONV_DIRECT);
    return fine(status, "this convolution", e) && fine(h->f.primitive_create(&h->primitive, h->desc), "this convolution", e);
}

static bool make_memory(struct host_conv *h, struct err *e)
{
    const struct onednn *f = &h->f;
    bool back = h->c.of_weights;
    const void *own = f->query_md(h->desc, back ? DIFF_WEIGHTS_MD : WEIGHTS_MD, 0), *w = md(h, &h->w);
    i64 size = own ? (i64)f->md_size(own) : 0;
    h->own = size ? mem_aligned(size) : NULL;
    if (!h->own) return err_set(e, ERR_SYSTEM, "oneDNN: no memory for weights");
    return fine(f->memory_create(&h->mem_x, md(h, &h->x), h->engine, NULL), "memory", e) &&
           fine(f->memory_create(&h->mem_w, w, h->engine, NULL), "memory", e) &&
           fine(f->memory_create(&h->mem_y, md(h, &h->y), h->engine, NULL), "memory", e) &&
           fine(f->memory_create(&h->mem_own, own, h->engine, h->own), "memory", e) &&
           fine(f->reorder_create(&h->reorder_desc, back ? own : w, h->engine, back ? w : own, h->engine, NULL), "order of weights", e) &&
           fine(f->primitive_create(&h->reorder, h->reorder_desc), "order of weights", e);
}

static bool open_library(struct host_conv *h, u32 n_threads, struct buf *name, struct err *e)
{
    const struct onednn *f = &h->f;
    if (!dev_library_open(&library, &h->f, e)) return false;
    const struct version *v = f->version();
    h->is_old = v->major < 3;
    bool has = h->is_old
                   ? f->md_init_strides && f->md_init_tag && f->conv_init && f->deconv_init && f->back_init && f->primitive_desc_create
                   : f->md_create_strides && f->md_create_tag && f->md_destroy && f->conv_create && f->deconv_create && f->back_create;
    if (!has || v->major < 2) return err_set(e, ERR_UNSUPPORTED, "oneDNN %d.%d has another interface", v->major, v->minor);
    if (f->omp_threads) f->omp_threads((int)n_threads);
    buf_printf(name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return fine(f->engine_create(&h->engine, CPU, 0), "engine", e) && fine(f->stream_create(&h->stream, h->engine, IN_ORDER), "stream", e);
}

struct host_conv *host_conv_open(const struct dev_conv *c, u32 n_threads, struct buf *name, struct err *e)
{
    struct host_conv *h = mem_alloc((i64)sizeof *h);
    h->c = *c;
    bool ok = type_of(c->type) || err_set(e, ERR_UNSUPPORTED, "oneDNN has no convolutions of '%s'", dtype_name(c->type));
    ok = ok && open_library(h, n_threads, name, e) && describe_tensor(h, &h->x, c->channels, c->size, e) &&
         describe_tensor(h, &h->y, c->out_channels, c->outputs, e) && describe_weights(h, e) && make_conv(h, e) && make_memory(h, e);
    if (ok) return h;
    host_conv_close(h);
    return NULL;
}

static bool order_weights(struct host_conv *h, void *w, u64 n_uploads, struct err *e)
{
    if (h->known == w && h->known_at == n_uploads) return true;
    const struct exec_arg arg[] = {{ARG_FROM, h->mem_w}, {ARG_TO, h->mem_own}};
    if (!fine(h->f.memory_set(h->mem_w, w), "memory", e) || !fine(h->f.execute(h->reorder, h->stream, countof(arg), arg), "weights", e) ||
        !fine(h->f.stream_wait(h->stream), "weights", e))
        return false;
    h->known = w, h->known_at = n_uploads;
    return true;
}

/* Gradients of weights are in the library's layout, and are reordered to the caller's each time. */
static bool run_back(struct host_conv *h, const struct dev_launch *l, struct err *e)
{
    const struct onednn *f = &h->f;
    const struct exec_arg arg[] = {{ARG_SRC, h->mem_x}, {ARG_DIFF_DST, h->mem_y}, {ARG_DIFF_WEIGHTS, h->mem_own}};
    const struct exec_arg order[] = {{ARG_FROM, h->mem_own}, {ARG_TO, h->mem_w}};
    return fine(f->memory_set(h->mem_x, l->buf[0].host), "memory", e) && fine(f->memory_set(h->mem_y, l->buf[1].host), "memory", e) &&
           fine(f->memory_set(h->mem_w, l->buf[2].host), "memory", e) &&
           fine(f->execute(h->primitive, h->stream, countof(arg), arg), "run", e) &&
           fine(f->execute(h->reorder, h->stream, countof(order), order), "weights", e) && fine(f->stream_wait(h->stream), "run", e);
}

bool host_conv_run(struct host_conv *h, const struct dev_launch *l, u64 n_uploads, struct err *e)
{
    if (h->c.of_weights) return dev_conv_check(&h->c, l, e) && run_back(h, l, e);
    const struct exec_arg arg[] = {{ARG_SRC, h->mem_x}, {ARG_WEIGHTS, h->mem_own}, {ARG_DST, h->mem_y}};
    return dev_conv_check(&h->c, l, e) && order_weights(h, l->buf[1].host, n_uploads, e) &&
           fine(h->f.memory_set(h->mem_x, l->buf[0].host), "memory", e) && fine(h->f.memory_set(h->mem_y, l->buf[2].host), "memory", e) &&
           fine(h->f.execute(h->primitive, h->stream, countof(arg), arg), "run", e) && fine(h->f.stream_wait(h->stream), "run", e);
}

void host_conv_close(struct host_conv *h)
{
    if (!h) return;
    struct handle *const memory[] = {h->mem_x, h->mem_w, h->mem_y, h->mem_own}, *const primitive[] = {h->reorder, h->primitive},
                         *const desc[] = {h->reorder_desc, h->desc};
    for (i64 i = 0; i < countof(memory); i++)
        if (memory[i]) h->f.memory_destroy(memory[i]);
    for (i64 i = 0; i < countof(primitive); i++)
        if (primitive[i]) h->f.primitive_destroy(primitive[i]);
    for (i64 i = 0; i < countof(desc); i++)
        if (desc[i]) h->f.primitive_desc_destroy(desc[i]);
    forget(h, &h->x), forget(h, &h->w), forget(h, &h->any), forget(h, &h->y);
    if (h->stream) h->f.stream_destroy(h->stream);
    if (h->engine) h->f.engine_destroy(h->engine);
    mem_free(h->own);
    mem_free(h);
}
