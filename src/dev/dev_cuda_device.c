// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda_device.c: opening and closing of a device, and its memory. CUDA's primary context is used, which the vendor's own
// libraries share; HIP has a current device instead. Either is current for the thread during every operation (dev_cuda_share.c).
//
// After an error that leaves the process unusable (such as an illegal address) the device stays
// lost: CUDA's documentation requires a new process. One thread at a time. doc/device-cuda.md
#include "dev/dev_cuda.h"

#include <string.h>

struct cuda_memory { /* allocations, released at the latest with the device */
    struct cuda_memory *next;
    u64 at;
    i64 size;
    bool is_borrowed;
};

/* Opening and closing. */

static void drop_all(struct cuda *c)
{
    if (c->stream && !c->is_lost) c->cu.StreamSynchronize(c->stream);
    while (c->kernels) cuda_unload(c, c->kernels);
    cuda_blas_close(c);
    cuda_dnn_close(c);
    while (c->memory) {
        struct cuda_memory *m = c->memory;
        c->memory = m->next;
        if (!m->is_borrowed) c->cu.MemFree(m->at);
        mem_free(m);
    }
    if (c->order) c->cu.EventDestroy(c->order);
    if (c->start) c->cu.EventDestroy(c->start);
    if (c->stop) c->cu.EventDestroy(c->stop);
    if (c->stream) c->cu.StreamDestroy(c->stream);
}

void cuda_device_close(struct dev *d)
{
    struct cuda *c = d->priv;
    struct err e = {0};
    bool is_entered = c->has_context && cuda_enter(c, &e);
    if (c->has_context) drop_all(c);
    if (is_entered) cuda_leave(c, true);
    if (c->has_context && c->cu.CtxRelease) c->cu.CtxRelease(c->device);
    if (c->lib) os_dlclose(c->lib);
    mem_free(c);
    mem_free(d);
}

static i32 name_of(const struct cuda_calls *cu, i32 ordinal, char *name, i32 size)
{
    i32 d, r = cu->DeviceGet(&d, ordinal);
    memset(name, 0, (size_t)size);
    return r ? r : cu->DeviceGetName(name, size - 1, d);
}

/* The index-th of the devices whose names match. */
static bool choose(struct cuda *c, const struct dev_opts *o, i32 *ordinal, struct err *e)
{
    enum { NO_DEVICE = 100 };
    i32 n = 0, r = c->cu.DeviceGetCount(&n);
    u32 k = 0;
    char name[256];
    if (r == NO_DEVICE) r = 0, n = 0;
    if (!cuda_ok(c, r, "DeviceGetCount", e)) return false;
    for (*ordinal = 0; *ordinal < n; ++*ordinal) {
        if (!cuda_ok(c, name_of(&c->cu, *ordinal, name, sizeof name), "DeviceGetName", e)) return false;
        if (o->name.n && !str_glob(o->name, str_of(name))) continue;
        if (k++ == o->index) return true;
    }
    if (n == 0) return err_set(e, ERR_USAGE, "%s lists no devices", c->api->what);
    if (!o->name.n) return err_set(e, ERR_USAGE, "%s has %d devices, no number %u (the first is 0)", c->api->what, n, o->index);
    return err_set(e, ERR_USAGE, "%s has %d devices, none of which matches '%.*s'", c->api->what, n, STR_ARG(o->name));
}

static bool make_stream(struct cuda *c, struct err *e)
{
    enum { NON_BLOCKING = 1, NO_TIMING = 2 };
    return cuda_ok(c, c->cu.StreamCreate(&c->stream, NON_BLOCKING), "StreamCreate", e) &&
           cuda_ok(c, c->cu.EventCreate(&c->start, 0), "EventCreate", e) &&
           cuda_ok(c, c->cu.EventCreate(&c->stop, 0), "EventCreate", e) &&
           cuda_ok(c, c->cu.EventCreate(&c->order, NO_TIMING), "EventCreate", e);
}

static bool make_context(struct cuda *c, struct err *e)
{
    if (c->cu.CtxRetain && !cuda_ok(c, c->cu.CtxRetain(&c->context, c->device), "DevicePrimaryCtxRetain", e))
        return false;
    c->has_context = true;
    return cuda_enter(c, e) && cuda_leave(c, make_stream(c, e));
}

struct dev *cuda_open(const struct cuda_api *api, const struct dev_driver *driver, const struct dev_opts *o, struct err *e)
{
    struct cuda *c = mem_alloc((i64)sizeof *c);
    struct dev *d = mem_alloc((i64)sizeof *d);
    i32 ordinal = 0;
    *d = (struct dev){.driver = driver, .priv = c};
    if (o->target.n)
        err_set(e, ERR_USAGE, "'%s:%.*s' is only described: kernels can be compiled for it, but not run", api->name, STR_ARG(o->target));
    else if (cuda_start(c, api, e) && choose(c, o, &ordinal, e) && cuda_facts_init(c, ordinal, e) && make_context(c, e))
        return d;
    cuda_device_close(d);
    return NULL;
}

u32 cuda_names(const struct cuda_api *api, struct buf *out)
{
    struct cuda c;
    struct err e = {0};
    i32 n = 0, found = 0;
    char name[256];
    if (cuda_start(&c, api, &e) && c.cu.DeviceGetCount(&n) == 0)
        for (i32 i = 0; i < n; i++) {
            if (name_of(&c.cu, i, name, sizeof name)) continue;
            if (out) buf_printf(out, "%s\n", name);
            found++;
        }
    if (c.lib) os_dlclose(c.lib);
    return (u32)found;
}

/* Queries. */

void cuda_device_caps(struct dev *d, struct caps *c) { cuda_caps(d->priv, c); }

void cuda_device_fingerprint(struct dev *d, struct buf *out) { cuda_fingerprint(d->priv, out); }

double cuda_device_elapsed(struct dev *d)
{
    const struct cuda *c = d->priv;
    return c->last;
}

/* Memory. */

static void keep(struct cuda *c, u64 at, i64 size, bool is_borrowed)
{
    struct cuda_memory *x = mem_alloc((i64)sizeof *x);
    *x = (struct cuda_memory){c->memory, at, size, is_borrowed};
    c->memory = x;
}

static bool allocate(struct cuda *c, i64 size, struct dev_mem *m, struct err *e)
{
    u64 at = 0;
    if (size < 0 || (u64)size > c->facts.memory)
        return err_set(e, ERR_UNSUPPORTED, "cannot allocate %lld bytes on '%s', which has %llu", (long long)size,
                       c->facts.name, (unsigned long long)c->facts.memory);
    i64 n = round_up(i64_max(size, 1), 256);
    if (!cuda_ok(c, c->cu.MemAlloc(&at, (size_t)n), "MemAlloc", e))
        return err_prefix(e, "cannot allocate %lld bytes", (long long)size);
    if (!cuda_ok(c, c->cu.MemsetAsync(at, 0, (size_t)n, c->stream), "MemsetD8Async", e)) {
        c->cu.MemFree(at);
        return false;
    }
    keep(c, at, n, false);
    *m = (struct dev_mem){.handle = at, .size = size};
    return true;
}

bool cuda_device_alloc(struct dev *d, i64 size, struct dev_mem *m, struct err *e)
{
    *m = (struct dev_mem){0};
    return cuda_enter(d->priv, e) && cuda_leave(d->priv, allocate(d->priv, size, m, e));
}

void cuda_device_release(struct dev *d, struct dev_mem *m)
{
    struct cuda *c = d->priv;
    struct err e = {0};
    for (struct cuda_memory **at = &c->memory, *x; (x = *at); at = &x->next) {
        if (x->at != m->handle || x->is_borrowed) continue;
        *at = x->next;
        bool is_entered = cuda_enter(c, &e);
        if (is_entered) c->cu.StreamSynchronize(c->stream); /* launches may still use it */
        c->cu.MemFree(x->at);
        if (is_entered) cuda_leave(c, true);
        mem_free(x);
        break;
    }
    *m = (struct dev_mem){0};
}

static bool is_inside(const struct cuda *c, const struct dev_mem *m, i64 n)
{
    const struct cuda_memory *x = c->memory;
    while (x && (x->at != m->handle || n < 0 || m->offset < 0 || n > x->size || m->offset > x->size - n)) x = x->next;
    return x != NULL;
}

static bool copy_in(struct cuda *c, const struct dev_mem *m, const void *p, i64 n, struct err *e)
{
    if (!cuda_pause(c, e)) return false;
    assert(is_inside(c, m, n));
    return cuda_ok(c, c->cu.CopyIn(cuda_address(m), p, (size_t)n, c->stream), "MemcpyHtoDAsync", e) &&
           cuda_ok(c, c->cu.StreamSynchronize(c->stream), "StreamSynchronize", e);
}

bool cuda_device_upload(struct dev *d, struct dev_mem m, const void *p, i64 n, struct err *e)
{
    return n == 0 || (cuda_enter(d->priv, e) && cuda_leave(d->priv, copy_in(d->priv, &m, p, n, e)));
}

static bool copy_out(struct cuda *c, const struct dev_mem *m, void *p, i64 n, struct err *e)
{
    if (!cuda_pause(c, e)) return false;
    assert(is_inside(c, m, n));
    return cuda_ok(c, c->cu.CopyOut(p, cuda_address(m), (size_t)n, c->stream), "MemcpyDtoHAsync", e) &&
           cuda_ok(c, c->cu.StreamSynchronize(c->stream), "StreamSynchronize", e);
}

bool cuda_device_download(struct dev *d, struct dev_mem m, void *p, i64 n, struct err *e)
{
    return n == 0 || (cuda_enter(d->priv, e) && cuda_leave(d->priv, copy_out(d->priv, &m, p, n, e)));
}

/* Foreign memory and streams. */

bool cuda_device_borrow(struct dev *d, const void *at, i64 size, struct dev_mem *m, struct err *e)
{
    u64 address = (u64)(uintptr_t)at;
    *m = (struct dev_mem){.handle = address, .size = size};
    if (size && address % DEV_BORROW_ALIGN)
        return err_set(e, ERR_USAGE, "address 0x%llx is no multiple of %d",
                       (unsigned long long)address, DEV_BORROW_ALIGN);
    if (!cuda_enter(d->priv, e) || !cuda_leave(d->priv, size == 0 || cuda_check_pointer(d->priv, address, size, e))) return false;
    keep(d->priv, address, size, true);
    return true;
}

bool cuda_device_follow(struct dev *d, void *stream, struct err *e)
{
    return cuda_enter(d->priv, e) && cuda_leave(d->priv, cuda_follow(d->priv, stream, e));
}

bool cuda_device_lead(struct dev *d, void *stream, struct err *e)
{
    struct cuda *c = d->priv;
    for (struct cuda_memory **at = &c->memory, *x; (x = *at);) {
        if (!x->is_borrowed) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        mem_free(x);
    }
    return cuda_enter(c, e) && cuda_leave(c, cuda_lead(c, stream, e));
}

/* Kernels. */

struct dev_kernel *cuda_device_load(struct dev *d, struct str binary, struct str entry, u32 n_grid, struct err *e)
{
    struct dev_kernel *k = NULL;
    return cuda_enter(d->priv, e) && cuda_leave(d->priv, (k = cuda_load(d->priv, binary, entry, n_grid, e)) != NULL) ? k : NULL;
}

struct dev_kernel *cuda_device_gemm(struct dev *d, const struct dev_gemm *p, struct buf *name, struct err *e)
{
    struct dev_kernel *k = NULL;
    return cuda_enter(d->priv, e) && cuda_leave(d->priv, (k = cuda_load_gemm(d->priv, p, name, e)) != NULL) ? k : NULL;
}

struct dev_kernel *cuda_device_conv(struct dev *d, const struct dev_conv *s, struct buf *name, struct err *e)
{
    struct dev_kernel *k = NULL;
    return cuda_enter(d->priv, e) && cuda_leave(d->priv, (k = cuda_load_conv(d->priv, s, name, e)) != NULL) ? k : NULL;
}

void cuda_device_unload(struct dev *d, struct dev_kernel *k)
{
    struct err e = {0};
    bool is_entered = cuda_enter(d->priv, &e);
    cuda_unload(d->priv, k);
    if (is_entered) cuda_leave(d->priv, true);
}

/* Every buffer must be allocated: a wrong address makes the device unusable for the whole process. */
static bool launch(struct cuda *c, const struct dev_launch *l, struct err *e)
{
    for (u32 i = 0; i < l->n_buf; i++)
        if (!is_inside(c, &l->buf[i], l->buf[i].size))
            return err_set(e, ERR_USAGE, "buffer %u: a launch uses memory that was not allocated", i);
    return cuda_launch(c, l, e);
}

bool cuda_device_launch(struct dev *d, const struct dev_launch *l, struct err *e)
{
    return cuda_enter(d->priv, e) && cuda_leave(d->priv, launch(d->priv, l, e));
}

bool cuda_device_fence(struct dev *d, struct err *e) { return cuda_enter(d->priv, e) && cuda_leave(d->priv, cuda_fence(d->priv, e)); }
