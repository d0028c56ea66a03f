// SPDX-License-Identifier: Apache-2.0
//
// opencl.c: GPUs, and CPU implementations, through OpenCL 1.2 to 3.0. Binaries are
// OpenCL C, which the driver builds. The library is opened at run time; a machine
// without it has no devices of this kind, which is an error only if one is requested.
//
// After an unrecoverable failure a device stays lost until it
// is opened again. One thread at a time. doc/device-opencl.md
#include "dev/dev_opencl.h"

/* Opening. */

static void opencl_close(struct dev *d)
{
    struct opencl *o = d->priv;
    struct err e = {0};
    if (o->queue) opencl_fence(o, &e);
    opencl_kernels_destroy(o);
    opencl_blas_close(o);
    opencl_memory_destroy(o);
    if (o->queue) o->cl.ReleaseCommandQueue(o->queue);
    if (o->context) o->cl.ReleaseContext(o->context);
    opencl_loader_close(&o->loader);
    mem_free(o);
    mem_free(d);
}

/* The device at this index among those whose names match. */
static bool choose(struct opencl *o, const struct dev_opts *opts, struct arena *a,
                   struct opencl_device *out, struct err *e)
{
    struct opencl_device *v;
    u32 n, k = 0;
    if (!opencl_list(&o->loader, a, &v, &n, e)) return false;
    for (u32 i = 0; i < n; i++) {
        if (opts->name.n && !str_glob(opts->name, v[i].name)) continue;
        if (k++ != opts->index) continue;
        *out = v[i];
        return true;
    }
    if (n == 0) return err_set(e, ERR_USAGE, "OpenCL lists no devices");
    return err_set(e, ERR_USAGE, "OpenCL has %u devices, none of which matches '%.*s'", n,
                   STR_ARG(opts->name));
}

static bool make_queue(struct opencl *o, cl_platform platform, struct err *e)
{
    const intptr_t properties[] = {CL_CONTEXT_PLATFORM, (intptr_t)platform, 0};
    i32 r = CL_SUCCESS;
    o->context = o->cl.CreateContext(properties, 1, &o->id, NULL, NULL, &r);
    if (r < 0) o->context = NULL;
    if (!opencl_ok(o, r, "clCreateContext", e)) return false;
    o->queue = o->cl.CreateCommandQueue(o->context, o->id, CL_QUEUE_PROFILING_ENABLE, &r);
    if (r < 0) o->queue = NULL;
    return opencl_ok(o, r, "clCreateCommandQueue", e);
}

static struct dev *opencl_open(const struct dev_opts *opts, struct err *e)
{
    extern const struct dev_driver dev_opencl;
    struct opencl *o = mem_alloc((i64)sizeof *o);
    struct dev *d = mem_alloc((i64)sizeof *d);
    struct arena a = {0};
    struct opencl_device chosen;
    *d = (struct dev){.driver = &dev_opencl, .priv = o};
    bool ok = opencl_loader_open(&o->loader, e) && choose(o, opts, &a, &chosen, e) &&
              opencl_facts_init(&o->facts, &o->loader, &chosen, e);
    o->cl = o->loader.cl;
    if (ok) o->id = chosen.id;
    ok = ok && make_queue(o, chosen.platform, e);
    arena_release(&a);
    if (ok) return d;
    opencl_close(d);
    return NULL;
}

/* Devices that are present. */

static u32 list(struct buf *out)
{
    struct opencl_loader l;
    struct arena a = {0};
    struct err e = {0};
    struct opencl_device *v;
    u32 n = 0;
    if (!opencl_loader_open(&l, &e)) return 0;
    if (!opencl_list(&l, &a, &v, &n, &e)) n = 0;
    for (u32 i = 0; i < n && out; i++) buf_printf(out, "%.*s\n", STR_ARG(v[i].name));
    opencl_loader_close(&l);
    arena_release(&a);
    return n;
}

static void names(struct buf *out) { list(out); }

static u32 count(void) { return list(NULL); }

/* Using it. */

static bool ready(const struct dev *d, struct err *e)
{
    const struct opencl *o = d->priv;
    return !o->is_lost ||
           err_set(e, ERR_SYSTEM, "'%s' was lost by an earlier failure, it has to be opened again", o->facts.name);
}

static void caps(struct dev *d, struct caps *c)
{
    const struct opencl *o = d->priv;
    opencl_caps(&o->facts, c);
}

static void fingerprint(struct dev *d, struct buf *out)
{
    const struct opencl *o = d->priv;
    opencl_fingerprint(&o->facts, out);
}

static bool alloc(struct dev *d, i64 size, struct dev_mem *m, struct err *e)
{
    return ready(d, e) && opencl_alloc(d->priv, size, m, e);
}

static void release(struct dev *d, struct dev_mem *m) { opencl_release(d->priv, m); }

static bool upload(struct dev *d, struct dev_mem m, const void *p, i64 n, struct err *e)
{
    return ready(d, e) && opencl_upload(d->priv, m, p, n, e);
}

static bool download(struct dev *d, struct dev_mem m, void *p, i64 n, struct err *e)
{
    return ready(d, e) && opencl_download(d->priv, m, p, n, e);
}

static struct dev_kernel *load(struct dev *d, struct str binary, struct str entry, u32 n_grid,
                               struct err *e)
{
    return ready(d, e) ? opencl_kernel_load(d->priv, binary, entry, n_grid, e) : NULL;
}

static struct dev_kernel *gemm(struct dev *d, const struct dev_gemm *p, struct buf *name, struct err *e)
{
    return ready(d, e) ? opencl_kernel_gemm(d->priv, p, name, e) : NULL;
}

static void unload(struct dev *d, struct dev_kernel *k) { opencl_kernel_unload(d->priv, k); }

static bool launch(struct dev *d, const struct dev_launch *l, struct err *e)
{
    return ready(d, e) && opencl_launch(d->priv, l, e);
}

static bool fence(struct dev *d, struct err *e)
{
    return ready(d, e) && opencl_fence(d->priv, e);
}

static double elapsed(struct dev *d)
{
    const struct opencl *o = d->priv;
    return o->last;
}

const struct dev_driver dev_opencl = {
    .version = 1,
    .name = "opencl",
    .lang = "opencl",
    .is_foreign = true,
    .is_loaded = opencl_is_loaded,
    .count = count,
    .names = names,
    .open = opencl_open,
    .close = opencl_close,
    .caps = caps,
    .fingerprint = fingerprint,
    .alloc = alloc,
    .release = release,
    .upload = upload,
    .download = download,
    .load = load,
    .unload = unload,
    .launch = launch,
    .fence = fence,
    .elapsed = elapsed,
    .gemm = gemm,
};
