// SPDX-License-Identifier: Apache-2.0
//
// What a device can do at most, as far as kernels of quern reach it (lab/ceiling.c): the denominators of
// other measurements, and proofs that its special features work here.
//
//   build/bench/device [GLOB]        default: vulkan
//
// Measured, each the best of several tries: copying memory, f32 multiply-adds in registers, products
// of matrix units for every shape that the device lists, launches. Checked: a small product of every
// shape against the processor, sums over subgroups of every size. What the device or the kernel IR
// does not have is said. The last line, "limits key=value ...", is for programs.
#include "lab/ceiling.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TRIES = 28 };

struct bench {
    struct rig rig;
    struct err e;
    double gbps, gflops, matrix_gflops;
    u32 n_wrong;
};

static void say_failed(struct bench *b, const char *what)
{
    printf("%-28s %s\n", what, b->e.msg);
}

static void copy_rate(struct bench *b)
{
    b->e = (struct err){0};
    b->gbps = ceiling_copy(&b->rig, &b->e);
    if (b->gbps > 0) printf("%-28s %10.1f GB/s\n", "copy, read and written", b->gbps);
    else say_failed(b, "copy");
}

static void fma_rate(struct bench *b)
{
    b->e = (struct err){0};
    b->gflops = ceiling_fma(&b->rig, &b->e);
    if (b->gflops > 0) printf("%-28s %10.1f GFLOP/s\n", "f32 multiply-adds", b->gflops);
    else say_failed(b, "f32 multiply-adds");
}

static void launch_rate(struct bench *b)
{
    static const char text[] = "kernel k(x: in f32, y: out f32; p0 = \"G\")\n"
                               "grid %1 = p0\n"
                               "  %2: f32 = load x[%1]\n"
                               "  store y[%1] = %2\n"
                               "end\n";
    struct rig_kernel k = {.groups = 1, .launches = 1, .size = {64, 64}};
    double one = INFINITY, many = INFINITY;
    b->e = (struct err){0};
    bool ok = rig_open(&k, &b->rig, str_of(text), &b->e);
    for (u32 i = 0; ok && i < TRIES; i++) {
        double start = os_now();
        k.launches = i % 2 ? 1000 : 1;
        ok = rig_launch(&k, &b->rig, &b->e);
        if (i % 2) many = fmin(many, (os_now() - start) / 1000);
        else one = fmin(one, os_now() - start);
    }
    if (!ok) say_failed(b, "launches");
    else printf("%-28s %10.2f us alone, %.2f us among many\n", "a launch, host's clock", one * 1e6, many * 1e6);
    rig_close(&k, &b->rig);
}

/* Subgroups: every size that can be asked for. */

static bool download(struct bench *b, struct dev_mem m, void *to, i64 n)
{
    return b->rig.dev->driver->download(b->rig.dev, m, to, n, &b->e);
}

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
    struct rig_kernel k = {.groups = 1, .launches = 1, .size = {sizeof got}};
    b->e = (struct err){0};
    bool ok = rig_open(&k, &b->rig, buf_view(&t), &b->e) && rig_launch(&k, &b->rig, &b->e) && download(b, k.buf[0], got, sizeof got);
    for (int i = 0; i < 128 && ok; i++) bad += got[i] != (i32)(size * (size - 1) / 2);
    if (!ok) say_failed(b, what);
    else printf("%-28s %s\n", what, bad ? "WRONG" : "right");
    b->n_wrong += ok && bad;
    rig_close(&k, &b->rig);
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
    return b->rig.dev->driver->upload(b->rig.dev, m, data, m.size, &b->e);
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
    struct rig_kernel k = {.groups = 1, .launches = 1};
    ceiling_product_sizes(k.size, s, 1);
    ceiling_product_text(&t, s, b->rig.caps.subgroup, 1);
    bool ok = rig_open(&k, &b->rig, buf_view(&t), &b->e) && fill(b, k.buf[0], s->a, 3) && fill(b, k.buf[1], s->b, 7) &&
              rig_launch(&k, &b->rig, &b->e) && download(b, k.buf[2], got, s->m * s->n * dtype_size(s->c));
    *right = ok && n_wrong(s, got) == 0;
    rig_close(&k, &b->rig);
    buf_release(&t);
    return ok;
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
    double gflops = ceiling_product(&b->rig, &s, &b->e);
    if (gflops > 0) printf("%-28s %10.1f GFLOP/s, %s\n", what, gflops, right ? "right" : "WRONG");
    else say_failed(b, what);
    if (s.a == DT_F16) b->matrix_gflops = fmax(b->matrix_gflops, gflops);
}

static void matrix_rates(struct bench *b)
{
    struct str rest = str_of(b->rig.caps.matrix), word;
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
    if (!b->rig.caps.has_subgroup) puts("no subgroup operations");
    for (u32 n = b->rig.caps.subgroup_min; b->rig.caps.has_subgroup && n && n <= b->rig.caps.subgroup_max; n *= 2)
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
    if (dev_select(argc > 1 ? argv[1] : "vulkan", &v, &o, &b.e)) b.rig.dev = v->open(&o, &b.e);
    if (!b.rig.dev) {
        fprintf(stderr, "device: %s\n", b.e.msg);
        return 1;
    }
    v->caps(b.rig.dev, &b.rig.caps);
    v->fingerprint(b.rig.dev, &fp);
    buf_char(&fp, '\n');
    caps_print(&fp, &b.rig.caps);
    printf("%.*s\n", STR_ARG(buf_view(&fp)));
    measure_all(&b);
    v->close(b.rig.dev);
    buf_release(&fp);
    return b.n_wrong > 0;
}
