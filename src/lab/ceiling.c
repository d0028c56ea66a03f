// SPDX-License-Identifier: Apache-2.0
//
// Ceilings of a device: memory is copied, chains of multiply-adds run in registers, matrix units multiply fragments that never leave them.
// GPUs run groups of 256 threads, processors vectors of their widest kind, with enough chains to hide the latency of each.
#include "lab/ceiling.h"

#include <math.h>
#include <string.h>

enum {
    ROUNDS = 1024,
    GROUP = 256,           /* threads */
    PIECE = 1024,          /* elements that a group copies */
    GROUP_CHAINS = 16, VECTOR_CHAINS = 12,
    MOST_COPIED = 512 << 20, LEAST_COPIED = 128 << 20, /* bytes */
    CHILD_SECONDS = 120
};

static u32 lanes_of(const struct caps *c) { return c->is_gpu ? 1 : c->vector_bytes / 4; }

/* "f32", "i64x16" */
struct type_name { char z[16]; };
static struct type_name type_of(const char *type, u32 lanes)
{
    struct buf b = {0};
    struct type_name t = {{0}};
    buf_z(&b, type);
    if (lanes > 1) buf_printf(&b, "x%u", lanes);
    for (i64 i = 0; i < b.n && i + 1 < countof(t.z); i++) t.z[i] = b.p[i];
    buf_release(&b);
    return t;
}

/* Memory. */

static void copy_text(struct buf *t, const struct caps *c)
{
    u32 n = lanes_of(c);
    struct type_name f = type_of("f32", n), i = type_of("i64", n);
    buf_z(t, "kernel k(x: in f32, y: out f32; p0 = \"G\")\n");
    if (c->is_gpu) {
        buf_printf(t, "group %d 1 1\ngrid %%1 = p0\n  %%2 = thread 0\n  %%3 = mul %%1, %d\n  %%4 = mul %%2, 4\n  %%5 = add %%3, %%4\n", GROUP, PIECE);
        buf_z(t, "  %6: i64x4 = ramp %5, 1\n  %7: f32x4 = load x[%6]\n  store y[%6] = %7\nend\n");
        return;
    }
    buf_printf(t, "grid %%1 = p0\n  %%2 = mul %%1, %d\n  loop %%3 = 0..%d step %u\n    %%4 = add %%2, %%3\n", PIECE, PIECE, n);
    buf_printf(t, "    %%5: %s = ramp %%4, 1\n    %%6: %s = load x[%%5]\n    stream y[%%5] = %%6\n  end\nend\n", i.z, f.z);
}

double ceiling_copy(const struct rig *r, struct err *e)
{
    const struct caps *c = &r->caps;
    struct buf t = {0};
    i64 bytes = c->is_gpu ? MOST_COPIED : i64_min(i64_max(4 * c->l3_bytes, LEAST_COPIED), MOST_COPIED);
    if (c->max_buffer) bytes = i64_min(bytes, c->max_buffer);
    struct rig_kernel k = {.groups = bytes / (4 * PIECE), .launches = 2};
    k.size[0] = k.size[1] = k.groups * 4 * PIECE;
    copy_text(&t, c);
    bool ok = rig_open(&k, r, buf_view(&t), e) && rig_fill(r, k.buf[0], e) && rig_fill(r, k.buf[1], e) && rig_grow(&k, r, e);
    double s = ok ? rig_seconds(&k, r, e) : -1, moved = 2.0 * 4 * PIECE * (double)k.groups;
    rig_close(&k, r);
    buf_release(&t);
    return s > 0 ? moved / s * 1e-9 : 0;
}

/* Multiply-adds. */

static void fma_text(struct buf *t, const struct caps *c, u32 chains)
{
    u32 n = lanes_of(c);
    struct type_name f = type_of("f32", n), i64s = type_of("i64", n);
    buf_z(t, "kernel k(x: in f32, y: out f32; p0 = \"G\")\n");
    if (c->is_gpu) buf_printf(t, "group %d 1 1\ngrid %%1 = p0\n  %%2 = thread 0\n", GROUP);
    else buf_printf(t, "grid %%1 = p0\n  %%2: %s = ramp 0, 1\n", i64s.z);
    buf_printf(t, "  %%3: %s = load x[%%2]\n  reg %%4: %s[%u]\n", f.z, f.z, chains);
    for (u32 i = 0; i < chains; i++)
        buf_printf(t, "  %%%u: %s = add %%3, %s(%u)\n  store %%4[%u] = %%%u\n", 10 + i, f.z, f.z, i, i, 10 + i);
    buf_printf(t, "  loop %%5 = 0..%d step 1\n", ROUNDS);
    for (u32 i = 0; i < chains; i++)
        buf_printf(t, "    %%%u: %s = load %%4[%u]\n    %%%u: %s = fma %%%u, %%3, %%3\n    store %%4[%u] = %%%u\n", 100 + 2 * i, f.z, i,
                   101 + 2 * i, f.z, 100 + 2 * i, i, 101 + 2 * i);
    buf_z(t, "  end\n");
    for (u32 i = 0; i < chains; i++) {
        buf_printf(t, "  %%%u: %s = load %%4[%u]\n", 200 + i, f.z, i);
        if (i) buf_printf(t, "  %%%u: %s = add %%%u, %%%u\n", 300 + i, f.z, i > 1 ? 299 + i : 200, 200 + i);
    }
    if (c->is_gpu) buf_printf(t, "  %%6 = mul %%1, %d\n  %%7 = add %%6, %%2\n", GROUP);
    else buf_printf(t, "  %%6 = mul %%1, %u\n  %%7: %s = ramp %%6, 1\n", n, i64s.z);
    buf_printf(t, "  store y[%%7] = %%%u\nend\n", 299 + chains);
}

double ceiling_fma(const struct rig *r, struct err *e)
{
    const struct caps *c = &r->caps;
    struct buf t = {0};
    u32 chains = c->is_gpu ? GROUP_CHAINS : VECTOR_CHAINS, width = c->is_gpu ? GROUP : lanes_of(c);
    struct rig_kernel k = {.groups = (i64)c->n_threads * (c->is_gpu ? 64 : 512), .launches = c->is_gpu && c->gflops > 500 ? 4 : 1};
    k.size[0] = 4 * width, k.size[1] = 4 * width * k.groups;
    fma_text(&t, c, chains);
    bool ok = rig_open(&k, r, buf_view(&t), e) && rig_fill(r, k.buf[0], e) && rig_grow(&k, r, e);
    double s = ok ? rig_seconds(&k, r, e) : -1, flops = 2.0 * chains * ROUNDS * width * (double)k.groups;
    rig_close(&k, r);
    buf_release(&t);
    return s > 0 ? flops / s * 1e-9 : 0;
}

/* Matrix units. */

void ceiling_product_sizes(i64 size[RIG_BUFFERS], const struct caps_matrix *s, i64 groups)
{
    size[0] = s->m * s->k * dtype_size(kir_frag_stored(s->a));
    size[1] = s->k * s->n * dtype_size(kir_frag_stored(s->b));
    size[2] = groups * CEILING_FRAGMENTS * s->m * s->n * dtype_size(s->c);
}

void ceiling_product_text(struct buf *t, const struct caps_matrix *s, u32 subgroup, u32 rounds)
{
    u32 m = (u32)s->m, n = (u32)s->n, k = (u32)s->k;
    struct buf acc = {0};
    buf_printf(t, "kernel k(a: in %s, b: in %s, c: out %s; p0 = \"G\")\ngroup %u 1 1 subgroup %u\n"
                  "grid %%1 = p0\n",
               dtype_name(kir_frag_stored(s->a)), dtype_name(kir_frag_stored(s->b)), dtype_name(s->c), subgroup, subgroup);
    buf_printf(t, "  %%2: %s_a%ux%u = fload a[0] pitch %u\n", dtype_name(s->a), m, k, k);
    buf_printf(t, "  %%3: %s_b%ux%u = fload b[0] pitch %u\n", dtype_name(s->b), k, n, n);
    buf_printf(&acc, "%s_acc%ux%u", dtype_name(s->c), m, n);
    buf_printf(t, "  reg %%4: %s[%u]\n  %%5: %s = fill %s(0)\n", acc.p, CEILING_FRAGMENTS, acc.p, dtype_name(s->c));
    for (u32 i = 0; i < CEILING_FRAGMENTS; i++) buf_printf(t, "  store %%4[%u] = %%5\n", i);
    buf_printf(t, "  loop %%6 = 0..%u step 1\n", rounds);
    for (u32 i = 0; i < CEILING_FRAGMENTS; i++)
        buf_printf(t,
                   "    %%%u: %s = load %%4[%u]\n    %%%u: %s = fmma %%2, %%3, %%%u\n"
                   "    store %%4[%u] = %%%u\n",
                   10 + 2 * i, acc.p, i, 11 + 2 * i, acc.p, 10 + 2 * i, i, 11 + 2 * i);
    buf_printf(t, "  end\n  %%7 = mul %%1, %u\n", m * n * CEILING_FRAGMENTS);
    for (u32 i = 0; i < CEILING_FRAGMENTS; i++)
        buf_printf(t,
                   "  %%%u: %s = load %%4[%u]\n  %%%u = add %%7, %u\n"
                   "  fstore c[%%%u] = %%%u pitch %u\n",
                   30 + 2 * i, acc.p, i, 31 + 2 * i, i * m * n, 31 + 2 * i, 30 + 2 * i, n);
    buf_z(t, "end\n");
    buf_release(&acc);
}

double ceiling_product(const struct rig *r, const struct caps_matrix *s, struct err *e)
{
    struct buf t = {0};
    struct rig_kernel k = {.groups = (i64)r->caps.n_threads * 64, .launches = 1};
    ceiling_product_sizes(k.size, s, k.groups);
    ceiling_product_text(&t, s, r->caps.subgroup, ROUNDS);
    bool ok = rig_open(&k, r, buf_view(&t), e) && rig_fill(r, k.buf[0], e) && rig_fill(r, k.buf[1], e) && rig_grow(&k, r, e);
    double seconds = ok ? rig_seconds(&k, r, e) : -1;
    double flops = 2.0 * (double)(s->m * s->n * s->k) * CEILING_FRAGMENTS * ROUNDS * (double)k.groups;
    rig_close(&k, r);
    buf_release(&t);
    return seconds > 0 ? flops / seconds * 1e-9 : 0;
}

/* All of them. */

struct question { const struct dev_driver *driver; const struct dev_opts *opts; enum dtype type; };

static void measure(struct ceilings *c, const struct rig *r, enum dtype t)
{
    struct str rest = str_of(r->caps.matrix);
    struct caps_matrix s;
    c->gbps = ceiling_copy(r, &(struct err){0});
    c->gflops = ceiling_fma(r, &(struct err){0});
    while (caps_matrix_next(&rest, &s))
        if (s.a == t && s.b == t && s.c == s.d) c->matrix_gflops = fmax(c->matrix_gflops, ceiling_product(r, &s, &(struct err){0}));
}

struct answer { struct ceilings c; struct err e; };

static void child_main(void *user, int fd)
{
    const struct question *q = user;
    struct answer a;
    memset(&a, 0, sizeof a); /* padding, too: it goes through the pipe */
    struct rig r = {.dev = q->driver->open(q->opts, &a.e)};
    if (r.dev) {
        q->driver->caps(r.dev, &r.caps);
        measure(&a.c, &r, q->type);
        q->driver->close(r.dev);
    }
    os_child_put(fd, &a, sizeof a);
}

bool ceilings_ask(struct ceilings *c, const struct dev_driver *v, const struct dev_opts *o, enum dtype t, struct err *e)
{
    struct question q = {v, o, t};
    struct answer a = {.e = {0}};
    struct os_child child;
    *c = (struct ceilings){0};
    if (!os_child_start(&child, child_main, &q, e)) return false;
    child.runs_programs = true;
    enum os_exit how = os_child_get(&child, &a, sizeof a, CHILD_SECONDS);
    os_child_end(&child);
    if (how != OS_EXITED) return err_set(e, ERR_FAILED, "the limits of device '%s' could not be measured", v->name);
    *c = a.c;
    return a.e.code == ERR_NONE || err_set(e, a.e.code, "%s", a.e.msg);
}
