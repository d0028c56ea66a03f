// SPDX-License-Identifier: Apache-2.0
//
// interp.c: interprets kernel IR's text with all checks (kir/kir.h).
// Errors that it finds - access out of bounds, reads of undefined
// elements, races - are errors of the launch. Slow, but exact.
//
// The interpreter allocates TEMP and WORK arrays itself, and
// takes grid extents from the kernel, not from the launch.
#include "dev/dev.h"
#include "kir/kir.h"

struct dev_kernel {
    struct arena arena;
    struct kir kir;
};

static u32 count(void) { return 1; }

static struct dev *interp_open(const struct dev_opts *o, struct err *e)
{
    extern const struct dev_driver dev_interp;
    struct dev *d = mem_alloc((i64)sizeof *d);
    d->driver = &dev_interp;
    return d;
}

static void interp_close(struct dev *d) { mem_free(d); }

static void caps(struct dev *d, struct caps *c)
{
    *c = (struct caps){.arch = "generic", .vector_bytes = 16, .n_vector_regs = 16, .n_threads = 1};
    c->l1_bytes = 32 << 10;
    c->l2_bytes = 512 << 10;
    c->l3_bytes = 8 << 20;
}

static void fingerprint(struct dev *d, struct buf *out) { buf_z(out, "interp 1"); }

static struct dev_kernel *load(struct dev *d, struct str binary, struct str entry, u32 n_grid,
                               struct err *e)
{
    struct dev_kernel *k = mem_alloc((i64)sizeof *k);
    if (kir_parse(&k->kir, &k->arena, binary, e)) {
        if (str_eq(k->kir.name, entry)) return k;
        err_set(e, ERR_INPUT, "kernel is named '%.*s', not '%.*s'", STR_ARG(k->kir.name),
                STR_ARG(entry));
    }
    arena_release(&k->arena);
    mem_free(k);
    return NULL;
}

static void unload(struct dev *d, struct dev_kernel *k)
{
    arena_release(&k->arena);
    mem_free(k);
}

static bool launch(struct dev *d, const struct dev_launch *l, struct err *e)
{
    const struct kir *k = &l->kernel->kir;
    if (l->n_buf < k->buf.n || l->n_param < k->param.n)
        return err_set(e, ERR_USAGE,
                       "kernel '%.*s' needs %u buffers and %u parameters, not %u and %u",
                       STR_ARG(k->name), k->buf.n, k->param.n, l->n_buf, l->n_param);
    struct arena a = {0};
    struct kir_arg *arg = arena_array(&a, struct kir_arg, k->buf.n + 1);
    for (u32 i = 0; i < k->buf.n; i++) {
        i64 size = dtype_size(kir_dtype(k, k->buf.v[i].id));
        arg[i] = (struct kir_arg){.p = l->buf[i].host, .n = l->buf[i].size / size};
    }
    bool ok = kir_eval(k, arg, l->param, &(struct kir_eval_opts){.seed = 1}, e);
    arena_release(&a);
    return ok;
}

const struct dev_driver dev_interp = {
    .version = 1,
    .name = "interp",
    .lang = "kir",
    .count = count,
    .open = interp_open,
    .close = interp_close,
    .caps = caps,
    .fingerprint = fingerprint,
    .alloc = dev_host_alloc,
    .release = dev_host_release,
    .upload = dev_host_upload,
    .download = dev_host_download,
    .load = load,
    .unload = unload,
    .launch = launch,
    .fence = dev_host_fence,
};
