// SPDX-License-Identifier: Apache-2.0
//
// Microbenchmarks on an open device: kernels given as text are built, fed, launched and timed, by the device's clock where it has one.
#include "tune/rates.h"

#include <math.h>

enum { BUILD_SECONDS = 60, FILL_BYTES = 4 << 20, MOST_ROUNDS = 1 << 28, TRIES = 3, MANY = 30 };

static struct dev_kernel *build(const struct micro *m, struct str text, struct err *e)
{
    struct arena a = {0};
    struct kir k;
    struct buf source = {0}, code = {0};
    struct dev_kernel *x = NULL;
    const struct lang *l = lang_for(str_of(m->dev->driver->lang), e);
    if (l && kir_parse(&k, &a, text, e) && lang_render(&source, l, &k, &m->caps, &a, e) &&
             l->build(&code, buf_view(&source), &m->caps, BUILD_SECONDS, e))
        x = m->dev->driver->load(m->dev, buf_view(&code), S("k"), 1, e);
    buf_release(&source);
    buf_release(&code);
    arena_release(&a);
    return x;
}

bool micro_open(struct micro_kernel *k, const struct micro *m, struct str text, struct err *e)
{
    if (!(k->kernel = build(m, text, e))) return false;
    for (; k->n_buf < MICRO_BUFFERS && k->size[k->n_buf]; k->n_buf++)
        if (!m->dev->driver->alloc(m->dev, k->size[k->n_buf], &k->buf[k->n_buf], e)) return false;
    return true;
}

void micro_close(struct micro_kernel *k, const struct micro *m)
{
    for (u32 i = 0; i < k->n_buf && !k->borrows; i++) m->dev->driver->release(m->dev, &k->buf[i]);
    if (k->kernel) m->dev->driver->unload(m->dev, k->kernel);
    *k = (struct micro_kernel){0};
}

bool micro_launch(const struct micro_kernel *k, const struct micro *m, struct err *e)
{
    i64 grid[1][3] = {{k->groups, 1, 1}}, param[] = {k->groups, k->rounds, k->slice};
    struct dev_launch l = {.kernel = k->kernel,
                           .buf = k->buf,
                           .n_buf = k->n_buf,
                           .param = param,
                           .n_param = countof(param),
                           .grid = (const i64(*)[3])grid,
                           .n_grid = 1};
    for (u32 i = 0; i == 0 || i < k->launches; i++)
        if (!m->dev->driver->launch(m->dev, &l, e)) return false;
    return m->dev->driver->fence(m->dev, e);
}

double micro_seconds(const struct micro_kernel *k, const struct micro *m, struct err *e)
{
    double start = os_now();
    if (!micro_launch(k, m, e)) return -1;
    return dev_elapsed(m->dev, os_now() - start);
}

bool micro_grow(struct micro_kernel *k, const struct micro *m, double seconds, struct err *e)
{
    if (!micro_launch(k, m, e)) return false; /* the first one wakes the device */
    for (;;) {
        double s = INFINITY;
        for (u32 i = 0; i < TRIES && s >= seconds && (i == 0 || s < MANY * seconds); i++) s = fmin(s, micro_seconds(k, m, e)); /* one may be disturbed */
        if (s < 0) return false;
        if (s >= seconds || k->rounds >= MOST_ROUNDS || k->launches >= MOST_ROUNDS) return true;
        if (k->launches) k->launches *= 2;
        else k->rounds *= 2;
    }
}

bool micro_fill(const struct micro *m, struct dev_mem buffer, struct err *e)
{
    i64 n = i64_min(buffer.size, FILL_BYTES);
    char *zeros = mem_alloc(n);
    bool ok = true;
    for (i64 at = 0; at < buffer.size && ok; at += n) {
        struct dev_mem part = buffer;
        part.offset += at;
        if (part.host) part.host = (char *)part.host + at;
        part.size = i64_min(buffer.size - at, n);
        ok = m->dev->driver->upload(m->dev, part, zeros, part.size, e);
    }
    mem_free(zeros);
    return ok;
}
