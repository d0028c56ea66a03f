// SPDX-License-Identifier: Apache-2.0
//
// null.c: a device that accepts all launches and computes nothing. It measures the
// overhead around kernels, and permits making and running plans without their device.
#include "dev/dev.h"

struct dev_kernel {
    u32 n_grid;
};

static u32 count(void) { return 1; }

static struct dev *null_open(const struct dev_opts *o, struct err *e)
{
    extern const struct dev_driver dev_null;
    struct dev *d = mem_alloc((i64)sizeof *d);
    d->driver = &dev_null;
    return d;
}

static void null_close(struct dev *d) { mem_free(d); }

static void caps(struct dev *d, struct caps *c)
{
    *c = (struct caps){.arch = "generic", .vector_bytes = 16, .n_vector_regs = 16, .n_threads = 1, .isa.family = isa_here().family};
}

static void fingerprint(struct dev *d, struct buf *out) { buf_z(out, "null"); }

static struct dev_kernel *load(struct dev *d, struct str binary, struct str entry, u32 n_grid,
                               struct err *e)
{
    struct dev_kernel *k = mem_alloc((i64)sizeof *k);
    k->n_grid = n_grid;
    return k;
}

static void unload(struct dev *d, struct dev_kernel *k) { mem_free(k); }

static bool launch(struct dev *d, const struct dev_launch *l, struct err *e) { return true; }

const struct dev_driver dev_null = {
    .version = 1,
    .name = "null",
    .lang = "c",
    .count = count,
    .open = null_open,
    .close = null_close,
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
