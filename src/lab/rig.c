// SPDX-License-Identifier: Apache-2.0
//
// Kernels given as text on an open device: built, fed, launched, timed. Times are the best of several tries, by the device's clock where it
// has one; the first try also wakes the device.
#include "lab/ceiling.h"

#include <math.h>

enum { TRIES = 7, BUILD_SECONDS = 60 };
static const double long_seconds = 0.05;

static struct dev_kernel *compile(const struct rig *r, struct str text, struct err *e)
{
    struct arena a = {0};
    struct kir k;
    struct buf source = {0}, code = {0};
    struct dev_kernel *x = NULL;
    const struct lang *l = lang_find(str_of(r->dev->driver->lang));
    if (!l) err_set(e, ERR_FAILED, "language '%s' is not built in", r->dev->driver->lang);
    else if (kir_parse(&k, &a, text, e) && lang_render(&source, l, &k, &r->caps, &a, e) &&
             l->build(&code, buf_view(&source), &r->caps, BUILD_SECONDS, e))
        x = r->dev->driver->load(r->dev, buf_view(&code), S("k"), 1, e);
    buf_release(&source);
    buf_release(&code);
    arena_release(&a);
    return x;
}

bool rig_open(struct rig_kernel *k, const struct rig *r, struct str text, struct err *e)
{
    if (!(k->kernel = compile(r, text, e))) return false;
    for (; k->n_buf < RIG_BUFFERS && k->size[k->n_buf]; k->n_buf++)
        if (!r->dev->driver->alloc(r->dev, k->size[k->n_buf], &k->buf[k->n_buf], e)) return false;
    return true;
}

void rig_close(struct rig_kernel *k, const struct rig *r)
{
    for (u32 i = 0; i < k->n_buf; i++) r->dev->driver->release(r->dev, &k->buf[i]);
    if (k->kernel) r->dev->driver->unload(r->dev, k->kernel);
    *k = (struct rig_kernel){0};
}

bool rig_launch(const struct rig_kernel *k, const struct rig *r, struct err *e)
{
    i64 grid[1][3] = {{k->groups, 1, 1}};
    struct dev_launch l = {.kernel = k->kernel,
                           .buf = k->buf,
                           .n_buf = k->n_buf,
                           .param = &k->groups,
                           .n_param = 1,
                           .grid = (const i64(*)[3])grid,
                           .n_grid = 1};
    for (u32 i = 0; i < k->launches; i++)
        if (!r->dev->driver->launch(r->dev, &l, e)) return false;
    return r->dev->driver->fence(r->dev, e);
}

double rig_seconds(const struct rig_kernel *k, const struct rig *r, struct err *e)
{
    double least = INFINITY;
    for (u32 i = 0; i < TRIES; i++) {
        double start = os_now();
        if (!rig_launch(k, r, e)) return -1;
        least = fmin(least, dev_elapsed(r->dev, os_now() - start) / k->launches);
    }
    return least;
}

bool rig_grow(struct rig_kernel *k, const struct rig *r, struct err *e)
{
    i64 most = k->groups;
    double seconds = 0;
    for (k->groups = i64_min(r->caps.n_threads, most); seconds < long_seconds; k->groups = i64_min(2 * k->groups, most)) {
        double start = os_now();
        if (!rig_launch(k, r, e)) return false;
        seconds = (os_now() - start) / k->launches;
        if (k->groups == most) return true;
    }
    return true;
}

bool rig_fill(const struct rig *r, struct dev_mem m, struct err *e)
{
    static const char zeros[1 << 16];
    for (i64 at = 0; at < m.size; at += (i64)sizeof zeros) {
        struct dev_mem part = m;
        part.offset += at;
        if (part.host) part.host = (char *)part.host + at;
        part.size = i64_min(m.size - at, (i64)sizeof zeros);
        if (!r->dev->driver->upload(r->dev, part, zeros, part.size, e)) return false;
    }
    return true;
}
