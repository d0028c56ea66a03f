// SPDX-License-Identifier: Apache-2.0
//
// What a device can do at most, as far as kernels of quern reach it (tune/rates.h): the denominators of
// other measurements, and checks that its special features work here.
//
//   build/bench/device [GLOB]        default: vulkan
//
// Measured: all rates, and matrix units for every shape that the device lists. Checked: a small product of every
// shape against the processor, sums over subgroups of every size. What the device or the kernel IR
// does not have is said. The last line, "limits key=value ...", is for programs.
#include "target.h"
#include "tune/rates.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TRIES = 7 };

struct bench {
    struct micro m;
    struct err e;
    double matrix_gflops;
    u32 n_wrong;
};

static void say_failed(struct bench *b, const char *what)
{
    printf("%-28s %s\n", what, b->e.msg);
}

/* Subgroups: every size that can be asked for. */

static bool download(struct bench *b, struct dev_mem m, void *to, i64 n)
{
    return b->m.dev->driver->download(b->m.dev, m, to, n, &b->e);
}

static void check_subgroup(struct bench *b, u32 size)
{
    struct buf t = {0};
    i32 got[128], bad = 0;
    char what[64];
    snprintf(what, sizeof what, "subgroups of %u", size);
    buf_printf(&t,
               "kernel k(y: out i32; p0 = \"G\", p1 = \"R\", p2 = \"S\")\ngroup 128 1 1 subgroup %u\ngrid %%1 = p0\n"
               "  %%2 = thread 0\n  %%3 = subgroup 1\n  %%4: i32 = cast %%3\n  %%5: i32 = sgadd %%4\n"
               "  store y[%%2] = %%5\nend\n",
               size);
    struct micro_kernel k = {.groups = 1, .size = {sizeof got}};
    b->e = (struct err){0};
    bool ok = micro_open(&k, &b->m, buf_view(&t), &b->e) && micro_launch(&k, &b->m, &b->e) && download(b, k.buf[0], got, sizeof got);
    for (int i = 0; i < 128 && ok; i++) bad += got[i] != (i32)(size * (size - 1) / 2);
    if (!ok) say_failed(b, what);
    else printf("%-28s %s\n", what, bad ? "WRONG" : "right");
    b->n_wrong += ok && bad;
    micro_close(&k, &b->m);
    buf_release(&t);
}

/* Matrix units. */

static bool read_shape(struct str word, struct caps_matrix *s)
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
    *s = (struct caps_matrix){n[0], n[1], n[2], t[0], t[1], t[2], t[3]};
    return t[0] && t[1] && t[2] && t[2] == t[3];
}

/* Small integers, exact in every type. */
static bool fill(struct bench *b, struct dev_mem m, enum dtype t, u32 step)
{
    u8 data[255 * 255 * 8];
    for (i64 i = 0; i < m.size / dtype_size(t); i++) elem_set_i64(t, data, i, (i * step) % 5);
    return b->m.dev->driver->upload(b->m.dev, m, data, m.size, &b->e);
}

static i64 n_wrong(const struct caps_matrix *s, const void *got)
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
static bool check_product(struct bench *b, const struct caps_matrix *s, bool *right)
{
    u8 got[255 * 255 * 8];
    struct buf t = {0};
    struct micro_kernel k = {.groups = 1, .rounds = 1};
    micro_mma_sizes(k.size, &b->m.caps, s, 1);
    micro_mma_text(&t, &b->m.caps, s);
    bool ok = micro_open(&k, &b->m, buf_view(&t), &b->e) && fill(b, k.buf[0], s->a, 3) && fill(b, k.buf[1], s->b, 7) &&
              micro_launch(&k, &b->m, &b->e) && download(b, k.buf[2], got, s->m * s->n * dtype_size(s->c));
    *right = ok && n_wrong(s, got) == 0;
    micro_close(&k, &b->m);
    buf_release(&t);
    return ok;
}

/* GFLOP/s, the best of several tries; 0: it cannot be measured, b->e says why. */
static double product_rate(struct bench *b, const struct caps_matrix *s)
{
    struct buf t = {0};
    struct micro_kernel k = {.groups = (i64)b->m.caps.n_threads * 8, .rounds = 64};
    double work = micro_mma_text(&t, &b->m.caps, s), least = INFINITY;
    micro_mma_sizes(k.size, &b->m.caps, s, k.groups);
    bool ok = micro_open(&k, &b->m, buf_view(&t), &b->e) && micro_fill(&b->m, k.buf[0], &b->e) && micro_fill(&b->m, k.buf[1], &b->e) &&
              micro_grow(&k, &b->m, 5e-3, &b->e);
    for (u32 i = 0; i < TRIES && ok; i++) {
        double seconds = micro_seconds(&k, &b->m, &b->e);
        ok = seconds >= 0;
        least = fmin(least, seconds);
    }
    double flops = work * (double)k.groups * (double)k.rounds;
    micro_close(&k, &b->m);
    buf_release(&t);
    return ok ? flops / least * 1e-9 : 0;
}

static void try_shape(struct bench *b, struct str word)
{
    struct caps_matrix s;
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
    double gflops = product_rate(b, &s);
    if (gflops > 0) printf("%-28s %10.1f GFLOP/s, %s\n", what, gflops, right ? "right" : "WRONG");
    else say_failed(b, what);
    if (s.a == DT_F16) b->matrix_gflops = fmax(b->matrix_gflops, gflops);
}

static void matrix_rates(struct bench *b)
{
    struct str rest = str_of(b->m.caps.matrix), word;
    if (!rest.n) puts("no matrix units");
    while (rest.n) {
        str_cut(rest, ' ', &word, &rest);
        try_shape(b, word);
    }
}

static void measure_all(struct bench *b, const struct rates *r)
{
    if (!b->m.caps.has_subgroup) puts("no subgroup operations");
    for (u32 n = b->m.caps.subgroup_min; b->m.caps.has_subgroup && n && n <= b->m.caps.subgroup_max; n *= 2)
        check_subgroup(b, n);
    matrix_rates(b);
    printf("limits gbps=%.1f gflops=%.1f matrix_gflops=%.1f wrong=%u\n", rates_bandwidth(r) * 1e-9, r->ops[RATE_FMA_F32].all * 1e-9,
           b->matrix_gflops, b->n_wrong);
}

/* Before this process opens the device: rates are measured in a child. */
static bool measure_rates(struct rates *r, const struct bench_target *t, struct err *e)
{
    struct buf text = {0};
    struct device_target target = {
        .driver = t->driver, .opts = &t->dev, .lang = t->lang, .caps = &t->caps, .fingerprint = buf_view(&t->fingerprint),
        .toolchain = buf_view(&t->toolchain)};
    bool ok = rates_measure(r, &target, e);
    if (ok) rates_print(&text, r);
    if (ok) printf("rates %.*s\n%-28s %10.1f GFLOP/s\n", STR_ARG(buf_view(&text)), "f32 multiply-adds", r->ops[RATE_FMA_F32].all * 1e-9);
    buf_release(&text);
    return ok;
}

int main(int argc, char **argv)
{
    struct bench b = {.e = {0}};
    struct bench_target t = {.driver = NULL};
    struct rates r = {.launch = 0};
    struct buf caps = {0};
    if (!bench_target_open(&t, argc > 1 ? argv[1] : "vulkan", &b.e)) {
        fprintf(stderr, "device: %s\n", b.e.msg);
        return 1;
    }
    caps_print(&caps, &t.caps);
    printf("%.*s\n%.*s\n", STR_ARG(buf_view(&t.fingerprint)), STR_ARG(buf_view(&caps)));
    bool ok = measure_rates(&r, &t, &b.e);
    if (!ok) printf("no rates: %s\n", b.e.msg);
    b.m = (struct micro){.dev = t.driver->open(&t.dev, &b.e), .caps = t.caps};
    if (b.m.dev) {
        measure_all(&b, &r);
        t.driver->close(b.m.dev);
    } else fprintf(stderr, "device: %s\n", b.e.msg);
    bench_target_release(&t);
    buf_release(&caps);
    return !b.m.dev || b.n_wrong > 0;
}
