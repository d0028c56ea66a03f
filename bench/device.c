// SPDX-License-Identifier: Apache-2.0
//
// What a GPU can do at most, as far as kernels of quern reach it: the denominators of other
// measurements, and proofs that its special features work here.
//
//   build/bench/device [GLOB]        default: vulkan
//
// Measured, each the best of several tries: copying memory, f32 multiply-adds in registers, products
// of matrix units for every shape that the device lists, launches. Checked: a small product of every
// shape against the processor, sums over subgroups of every size. What the device or the kernel IR
// does not have is said. The last line, "limits key=value ...", is for programs.
#include "dev/dev.h"
#include "lang/lang.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TRIES = 7, ROUNDS = 1024, FRAGMENTS = 4 };

struct bench {
    struct dev *dev;
    struct caps caps;
    struct err e;
    double gbps, gflops, matrix_gflops;
    u32 n_wrong;
};

static struct dev_kernel *compile(struct bench *b, struct str text)
{
    struct arena a = {0};
    struct kir k;
    struct buf source = {0}, code = {0};
    struct dev_kernel *x = NULL;
    const struct lang *l = lang_find(str_of(b->dev->driver->lang));
    b->e = (struct err){0};
    if (kir_parse(&k, &a, text, &b->e) && lang_render(&source, l, &k, &b->caps, &a, &b->e) &&
        l->build(&code, buf_view(&source), &b->caps, 60, &b->e))
        x = b->dev->driver->load(b->dev, buf_view(&code), S("k"), 1, &b->e);
    buf_release(&source);
    buf_release(&code);
    arena_release(&a);
    return x;
}

struct run { /* a kernel of one parameter on a grid of so many groups */
    struct dev_kernel *kernel;
    struct dev_mem buf[3];
    u32 n_buf;
    i64 groups;
    u32 launches; /* per try */
};

static bool launch(struct bench *b, const struct run *r)
{
    i64 grid[1][3] = {{r->groups, 1, 1}};
    struct dev_launch l = {.kernel = r->kernel,
                           .buf = r->buf,
                           .n_buf = r->n_buf,
                           .param = &r->groups,
                           .n_param = 1,
                           .grid = (const i64(*)[3])grid,
                           .n_grid = 1};
    for (u32 i = 0; i < r->launches; i++)
        if (!b->dev->driver->launch(b->dev, &l, &b->e)) return false;
    return b->dev->driver->fence(b->dev, &b->e);
}

/* Seconds of a launch, the best of the tries; negative: failed. The first try also wakes the device. */
static double best(struct bench *b, const struct run *r)
{
    double least = INFINITY;
    for (u32 i = 0; i < TRIES; i++) {
        double start = os_now();
        if (!launch(b, r)) return -1;
        least = fmin(least, dev_elapsed(b->dev, os_now() - start) / r->launches);
    }
    return least;
}

static bool make_buffers(struct bench *b, struct run *r, const i64 *size, u32 n)
{
    r->n_buf = n;
    for (u32 i = 0; i < n; i++)
        if (!b->dev->driver->alloc(b->dev, size[i], &r->buf[i], &b->e)) return false;
    return true;
}

static void close_run(struct bench *b, struct run *r)
{
    for (u32 i = 0; i < r->n_buf; i++) b->dev->driver->release(b->dev, &r->buf[i]);
    if (r->kernel) b->dev->driver->unload(b->dev, r->kernel);
    *r = (struct run){0};
}

static void say_failed(struct bench *b, const char *what)
{
    printf("%-28s %s\n", what, b->e.msg);
}

/* Memory: y = x, 16 bytes a thread and access. */
static void copy_rate(struct bench *b)
{
    static const char text[] = "kernel k(x: in f32, y: out f32; p0 = \"G\")\n"
                               "group 256 1 1\n"
                               "grid %1 = p0\n"
                               "  %2 = thread 0\n"
                               "  %3 = mul %1, 1024\n"
                               "  %4 = mul %2, 4\n"
                               "  %5 = add %3, %4\n"
                               "  %6: i64x4 = ramp %5, 1\n"
                               "  %7: f32x4 = load x[%6]\n"
                               "  store y[%6] = %7\n"
                               "end\n";
    i64 bytes = i64_min(b->caps.max_buffer ? b->caps.max_buffer : INT32_MAX, (i64)512 << 20);
    struct run r = {.kernel = compile(b, str_of(text)), .groups = bytes / 4096, .launches = 2};
    bytes = r.groups * 4096;
    double t = r.kernel && make_buffers(b, &r, (const i64[]){bytes, bytes}, 2) ? best(b, &r) : -1;
    if (t <= 0) say_failed(b, "copy");
    else b->gbps = 2 * (double)bytes / t * 1e-9;
    if (t > 0) printf("%-28s %10.1f GB/s\n", "copy, read and written", b->gbps);
    close_run(b, &r);
}

/* Multiply-adds: sixteen chains a thread. */
static void fma_rate(struct bench *b)
{
    struct buf t = {0};
    enum { CHAINS = 16 };
    buf_z(&t, "kernel k(x: in f32, y: out f32; p0 = \"G\")\ngroup 256 1 1\ngrid %1 = p0\n"
              "  %2 = thread 0\n  %3: f32 = load x[%2]\n  reg %4: f32[16]\n");
    for (u32 i = 0; i < CHAINS; i++)
        buf_printf(&t, "  %%%u: f32 = add %%3, f32(%u)\n  store %%4[%u] = %%%u\n", 10 + i, i, i, 10 + i);
    buf_printf(&t, "  loop %%5 = 0..%u step 1\n", ROUNDS);
    for (u32 i = 0; i < CHAINS; i++)
        buf_printf(&t,
                   "    %%%u: f32 = load %%4[%u]\n    %%%u: f32 = fma %%%u, %%3, %%3\n"
                   "    store %%4[%u] = %%%u\n",
                   100 + 2 * i, i, 101 + 2 * i, 100 + 2 * i, i, 101 + 2 * i);
    buf_z(&t, "  end\n");
    for (u32 i = 0; i < CHAINS; i++) {
        buf_printf(&t, "  %%%u: f32 = load %%4[%u]\n", 200 + i, i);
        if (i) buf_printf(&t, "  %%%u: f32 = add %%%u, %%%u\n", 300 + i, i > 1 ? 299 + i : 200, 200 + i);
    }
    buf_z(&t, "  %6 = mul %1, 256\n  %7 = add %6, %2\n  store y[%7] = %315\nend\n");
    struct run r = {.kernel = compile(b, buf_view(&t)),
                    .groups = b->caps.n_threads * 64,
                    .launches = b->caps.gflops > 500 ? 4 : 1};
    double s = r.kernel && make_buffers(b, &r, (const i64[]){1024, r.groups * 1024}, 2) ? best(b, &r) : -1;
    double flops = 2.0 * CHAINS * ROUNDS * 256 * (double)r.groups;
    if (s <= 0) say_failed(b, "f32 multiply-adds");
    else b->gflops = flops / s * 1e-9;
    if (s > 0) printf("%-28s %10.1f GFLOP/s\n", "f32 multiply-adds", b->gflops);
    close_run(b, &r);
    buf_release(&t);
}

static void launch_rate(struct bench *b)
{
    static const char text[] = "kernel k(x: in f32, y: out f32; p0 = \"G\")\n"
                               "grid %1 = p0\n"
                               "  %2: f32 = load x[%1]\n"
                               "  store y[%1] = %2\n"
                               "end\n";
    struct run r = {.kernel = compile(b, str_of(text)), .groups = 1, .launches = 1};
    double one = INFINITY, many = INFINITY;
    if (!r.kernel || !make_buffers(b, &r, (const i64[]){64, 64}, 2)) {
        say_failed(b, "launches");
        close_run(b, &r);
        return;
    }
    for (u32 i = 0; i < TRIES * 4; i++) {
        double start = os_now();
        r.launches = i % 2 ? 1000 : 1;
        if (!launch(b, &r)) break;
        if (i % 2) many = fmin(many, (os_now() - start) / 1000);
        else one = fmin(one, os_now() - start);
    }
    printf("%-28s %10.2f us alone, %.2f us among many\n", "a launch, host's clock", one * 1e6,
           many * 1e6);
    close_run(b, &r);
}

/* Subgroups: every size that can be asked for. */

static void check_subgroup(struct bench *b, u32 size)
{
    struct buf t = {0};
    i32 got[128], bad = 0;
    char what[64];
    snprintf(what, sizeof what, "subgroups of %u", size);
    buf_printf(&t,
               "kernel k(y: out i32; p0 = \"G\")\ngroup 128 1 1 subgroup %u\ngrid %%1 = p0\n"
               "  %%2 = thread 0\n  %%3 = subgroup 1\n  %%4: i32 = cast %%3\n  %%5: i32 = sgadd %%4\n"
               "  store y[%%2] = %%5\nend\n",
               size);
    struct run r = {.kernel = compile(b, buf_view(&t)), .groups = 1, .launches = 1};
    bool ok = r.kernel && make_buffers(b, &r, (const i64[]){sizeof got}, 1) && launch(b, &r) &&
              b->dev->driver->download(b->dev, r.buf[0], got, sizeof got, &b->e);
    for (int i = 0; i < 128 && ok; i++) bad += got[i] != (i32)(size * (size - 1) / 2);
    if (!ok) say_failed(b, what);
    else printf("%-28s %s\n", what, bad ? "WRONG" : "right");
    b->n_wrong += ok && bad;
    close_run(b, &r);
    buf_release(&t);
}

/* Matrix units. */

struct shape {
    u32 m, n, k;
    enum dtype a, b, c;
};

static bool read_shape(struct str word, struct shape *s)
{
    struct str size, types, part;
    i64 n[3];
    if (!str_cut(word, ':', &size, &types)) return false;
    for (int i = 0; i < 3; i++) {
        str_cut(size, 'x', &part, &size);
        if (!str_to_i64(part, &n[i]) || n[i] < 1 || n[i] > 255) return false;
    }
    enum dtype t[4];
    for (int i = 0; i < 4; i++) {
        str_cut(types, ',', &part, &types);
        t[i] = dtype_parse_operand(part);
    }
    *s = (struct shape){(u32)n[0], (u32)n[1], (u32)n[2], t[0], t[1], t[2]};
    return t[0] && t[1] && t[2] && t[2] == t[3];
}

/* c = a * b + 0 for each subgroup, FRAGMENTS accumulators, this many rounds. */
static void product_text(struct buf *t, const struct shape *s, u32 subgroup, u32 rounds)
{
    buf_printf(t, "kernel k(a: in %s, b: in %s, c: out %s; p0 = \"G\")\ngroup %u 1 1 subgroup %u\n"
                  "grid %%1 = p0\n",
               dtype_name(kir_frag_stored(s->a)), dtype_name(kir_frag_stored(s->b)), dtype_name(s->c), subgroup, subgroup);
    buf_printf(t, "  %%2: %s_a%ux%u = fload a[0] pitch %u\n", dtype_name(s->a), s->m, s->k, s->k);
    buf_printf(t, "  %%3: %s_b%ux%u = fload b[0] pitch %u\n", dtype_name(s->b), s->k, s->n, s->n);
    char acc[48];
    snprintf(acc, sizeof acc, "%s_acc%ux%u", dtype_name(s->c), s->m, s->n);
    buf_printf(t, "  reg %%4: %s[%u]\n  %%5: %s = fill %s(0)\n", acc, FRAGMENTS, acc, dtype_name(s->c));
    for (u32 i = 0; i < FRAGMENTS; i++) buf_printf(t, "  store %%4[%u] = %%5\n", i);
    buf_printf(t, "  loop %%6 = 0..%u step 1\n", rounds);
    for (u32 i = 0; i < FRAGMENTS; i++)
        buf_printf(t,
                   "    %%%u: %s = load %%4[%u]\n    %%%u: %s = fmma %%2, %%3, %%%u\n"
                   "    store %%4[%u] = %%%u\n",
                   10 + 2 * i, acc, i, 11 + 2 * i, acc, 10 + 2 * i, i, 11 + 2 * i);
    buf_printf(t, "  end\n  %%7 = mul %%1, %u\n", s->m * s->n * FRAGMENTS);
    for (u32 i = 0; i < FRAGMENTS; i++)
        buf_printf(t,
                   "  %%%u: %s = load %%4[%u]\n  %%%u = add %%7, %u\n"
                   "  fstore c[%%%u] = %%%u pitch %u\n",
                   30 + 2 * i, acc, i, 31 + 2 * i, i * s->m * s->n, 31 + 2 * i, 30 + 2 * i, s->n);
    buf_z(t, "end\n");
}

static struct run open_product(struct bench *b, const struct shape *s, u32 rounds, i64 groups)
{
    struct buf t = {0};
    product_text(&t, s, b->caps.subgroup, rounds);
    struct run r = {.kernel = compile(b, buf_view(&t)), .groups = groups, .launches = 1};
    i64 size[3] = {s->m * s->k * dtype_size(s->a), s->k * s->n * dtype_size(s->b),
                   groups * FRAGMENTS * s->m * s->n * dtype_size(s->c)};
    if (r.kernel && !make_buffers(b, &r, size, 3)) close_run(b, &r);
    buf_release(&t);
    return r;
}

/* Small integers, exact in every type. */
static bool fill(struct bench *b, struct dev_mem m, enum dtype t, u32 step)
{
    u8 data[255 * 255 * 8];
    for (i64 i = 0; i < m.size / dtype_size(t); i++) elem_set_i64(t, data, i, (i * step) % 5);
    return b->dev->driver->upload(b->dev, m, data, m.size, &b->e);
}

static i64 n_wrong(const struct shape *s, const void *got)
{
    i64 bad = 0;
    for (i64 i = 0; i < s->m; i++)
        for (i64 j = 0; j < s->n; j++) {
            i64 sum = 0;
            for (i64 k = 0; k < s->k; k++) sum += (i * s->k + k) * 3 % 5 * ((k * s->n + j) * 7 % 5);
            bad += elem_f64(s->c, got, i * s->n + j) != (double)sum;
        }
    return bad;
}

/* false: the kernel IR or the device cannot do it, err says why */
static bool check_product(struct bench *b, const struct shape *s, bool *right)
{
    u8 got[255 * 255 * 8];
    struct run r = open_product(b, s, 1, 1);
    i64 size = s->m * s->n * dtype_size(s->c);
    bool ok = r.kernel && fill(b, r.buf[0], s->a, 3) && fill(b, r.buf[1], s->b, 7) && launch(b, &r) &&
              b->dev->driver->download(b->dev, r.buf[2], got, size, &b->e);
    *right = ok && n_wrong(s, got) == 0;
    close_run(b, &r);
    return ok;
}

static void try_shape(struct bench *b, struct str word)
{
    struct shape s;
    char what[64];
    bool right;
    snprintf(what, sizeof what, "%.*s", STR_ARG(word));
    b->e = (struct err){0};
    if (!read_shape(word, &s)) {
        printf("%-28s not a shape of the kernel IR\n", what);
        return;
    }
    if (!check_product(b, &s, &right)) {
        say_failed(b, what);
        return;
    }
    b->n_wrong += !right;
    struct run r = open_product(b, &s, ROUNDS, (i64)b->caps.n_threads * 64);
    double t = r.kernel ? best(b, &r) : -1;
    double flops = 2.0 * s.m * s.n * s.k * FRAGMENTS * ROUNDS * (double)r.groups;
    if (t > 0) printf("%-28s %10.1f GFLOP/s, %s\n", what, flops / t * 1e-9, right ? "right" : "WRONG");
    else say_failed(b, what);
    if (t > 0 && s.a == DT_F16) b->matrix_gflops = fmax(b->matrix_gflops, flops / t * 1e-9);
    close_run(b, &r);
}

static void matrix_rates(struct bench *b)
{
    struct str rest = str_of(b->caps.matrix), word;
    if (!rest.n) puts("no matrix units");
    while (rest.n) {
        str_cut(rest, ' ', &word, &rest);
        try_shape(b, word);
    }
}

static void measure_all(struct bench *b)
{
    copy_rate(b);
    fma_rate(b);
    launch_rate(b);
    if (!b->caps.has_subgroup) puts("no subgroup operations");
    for (u32 n = b->caps.subgroup_min; b->caps.has_subgroup && n && n <= b->caps.subgroup_max; n *= 2)
        check_subgroup(b, n);
    matrix_rates(b);
    printf("limits gbps=%.1f gflops=%.1f matrix_gflops=%.1f wrong=%u\n", b->gbps, b->gflops,
           b->matrix_gflops, b->n_wrong);
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    const struct dev_driver *v;
    struct dev_opts o = {0};
    struct buf fp = {0};
    if (dev_select(argc > 1 ? argv[1] : "vulkan", &v, &o, &b.e)) b.dev = v->open(&o, &b.e);
    if (!b.dev) {
        fprintf(stderr, "device: %s\n", b.e.msg);
        return 1;
    }
    v->caps(b.dev, &b.caps);
    v->fingerprint(b.dev, &fp);
    buf_char(&fp, '\n');
    caps_print(&fp, &b.caps);
    printf("%.*s\n", STR_ARG(buf_view(&fp)));
    measure_all(&b);
    v->close(b.dev);
    buf_release(&fp);
    return b.n_wrong > 0;
}
