// SPDX-License-Identifier: Apache-2.0
//
// WeightedFilter and its gradients in f64, against independent facts: a direct scatter and gather
// written from the formula; the adjoint identity <filter(x), g> = <x, dx(g)>; differences of the
// loss for the weights' gradient, which is bilinear for plain weights; kernels that shift and that
// average. Kernels of 1 to 21 rows and columns, including even sizes, 1 to 8 channels, images
// smaller than the kernel, every padding. Rejections and their messages.
#include "op/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N_TRIES = 400 };

static const char *const modes[] = {"gather", "splat"}, *const pads[] = {"zero", "reflect", "replicate", "valid"},
                         *const transforms[] = {"none", "exp", "softmax"};

struct filter {
    i64 k[2], d[2], begin[2], batch, channels, near[2], far[2]; /* sizes: of the weights' map, of the other map */
    u32 splat, pad, transform;
    bool normalize;
    double epsilon;
};

static i64 taps(const struct filter *f) { return f->k[0] * f->k[1]; }

static struct filter random_filter(struct rng *r)
{
    struct filter f = {.batch = rng_range(r, 1, 2), .channels = rng_range(r, 1, 8), .splat = (u32)rng_range(r, 0, 1),
                       .pad = (u32)rng_range(r, 0, 3), .transform = (u32)rng_range(r, 0, 2)};
    i64 largest = rng_range(r, 0, 7) ? 5 : 21;
    f.normalize = f.transform && rng_range(r, 0, 1);
    bool is_covered = f.pad != 3; /* every pixel, by the tap at its own position */
    for (u32 i = 0; i < 2; i++) {
        f.k[i] = rng_range(r, 1, largest), f.d[i] = rng_range(r, 1, 3), f.near[i] = rng_range(r, 1, 9);
        f.begin[i] = f.pad == 3 ? 0 : (f.k[i] - 1) * f.d[i] / 2;
        f.far[i] = f.near[i] + (f.pad == 3 ? (f.k[i] - 1) * f.d[i] : 0);
        is_covered &= f.k[i] % 2;
    }
    f.epsilon = !is_covered || rng_range(r, 0, 1) ? 0.25 : 0;
    return f;
}

/* One operator as a network. */

static struct tensor *random_tensor(struct arena *a, const i64 *dim, struct rng *r)
{
    struct tensor *t = tensor_new(a, DT_F64, 4, dim);
    for (i64 i = 0; i < tensor_count(t); i++) elem_set_f64(DT_F64, t->data, i, rng_f64(r) * 2 - 1);
    return t;
}

static struct tensor *map_of(struct arena *a, const struct filter *f, i64 channels, bool far, struct rng *r)
{
    const i64 *size = far ? f->far : f->near;
    return random_tensor(a, (i64[]){f->batch, channels, size[0], size[1]}, r);
}

static struct tensor *run(struct arena *a, const struct filter *f, const char *op, u32 n, struct tensor *const *in)
{
    struct symtab st;
    struct graph g;
    struct err e = {0};
    struct tensor *y = NULL;
    value_id v[3];
    symtab_init(&st, a);
    graph_init(&g, a, &st);
    for (u32 i = 0; i < n; i++) random_input(&g, "x", in[i]->dtype, in[i]->rank, in[i]->dim, &v[i]);
    value_id out = op_node(&g, 0, op, n, v, 0);
    node_id node = op_made(&g, out);
    attr_set_ints(&g, node, "kernel_shape", f->k, 2);
    attr_set_ints(&g, node, "dilations", f->d, 2);
    attr_set_str(&g, node, "mode", str_of(modes[f->splat]));
    attr_set_str(&g, node, "padding", str_of(pads[f->pad]));
    attr_set_str(&g, node, "transform", str_of(transforms[f->transform]));
    attr_set_str(&g, node, "normalize", f->normalize ? S("sum") : S("none"));
    attr_set_float(&g, node, "epsilon", f->epsilon);
    *arr_push(a, &g.output) = out;
    if (!op_infer_all(&g, &e) || !graph_eval(&g, in, &y, a, NULL, &e)) fail_msg("%s", e.msg);
    return y;
}

static struct tensor *forward(struct arena *a, const struct filter *f, struct tensor *x, struct tensor *w)
{
    return run(a, f, "quern::WeightedFilter", 2, (struct tensor *[]){x, w});
}

/* The formula. */

static double *cell(struct tensor *t, i64 n, i64 c, i64 y, i64 x)
{
    return (double *)t->data + ((n * t->dim[1] + c) * t->dim[2] + y) * t->dim[3] + x;
}

static void transform(const struct filter *f, struct tensor *w)
{
    i64 plane = w->dim[2] * w->dim[3];
    for (i64 i = 0; i < f->batch * plane; i++) {
        double *v = (double *)w->data + i / plane * taps(f) * plane + i % plane, sum = 0;
        for (i64 t = 0; t < taps(f); t++) sum += f->transform ? v[t * plane] = exp(v[t * plane]) : 0;
        for (i64 t = 0; t < taps(f) && f->transform == 2; t++) v[t * plane] /= sum;
    }
}

/* Position i of an axis in the image; -1: outside. */
static i64 place(const struct filter *f, i64 i, i64 size)
{
    if (f->pad == 2) return i64_max(0, i64_min(i, size - 1));
    while (f->pad == 1 && size > 1 && (i < 0 || i >= size)) i = i < 0 ? -i : 2 * (size - 1) - i;
    if (f->pad == 1 && size == 1) return 0;
    return i >= 0 && i < size ? i : -1;
}

/* For every weight and the element its tap reads: out += w * x. */
static void apply(const struct filter *f, struct tensor *x, struct tensor *w, struct tensor *out)
{
    for (i64 n = 0; n < f->batch; n++)
        for (i64 t = 0; t < taps(f); t++)
            for (i64 p = 0; p < f->near[0] * f->near[1]; p++) {
                i64 y = p / f->near[1], c = p % f->near[1];
                i64 qy = place(f, y + t / f->k[1] * f->d[0] - f->begin[0], f->far[0]);
                i64 qx = place(f, c + t % f->k[1] * f->d[1] - f->begin[1], f->far[1]);
                for (i64 k = 0; k < x->dim[1] && qy >= 0 && qx >= 0; k++) {
                    if (f->splat) *cell(out, n, k, qy, qx) += *cell(w, n, t, y, c) * *cell(x, n, k, y, c);
                    else *cell(out, n, k, y, c) += *cell(w, n, t, y, c) * *cell(x, n, k, qy, qx);
                }
            }
}

static struct tensor *formula(struct arena *a, const struct filter *f, struct tensor *x, struct tensor *given)
{
    const i64 *to = f->splat ? f->far : f->near;
    struct tensor *w = tensor_new(a, DT_F64, 4, given->dim), *ones = tensor_new(a, DT_F64, 4, x->dim);
    struct tensor *y = tensor_new(a, DT_F64, 4, (i64[]){f->batch, f->channels, to[0], to[1]}), *sum = tensor_new(a, DT_F64, 4, y->dim);
    memcpy(w->data, given->data, (size_t)tensor_count(w) * sizeof(double));
    for (i64 i = 0; i < tensor_count(x); i++) ((double *)ones->data)[i] = 1;
    transform(f, w);
    apply(f, x, w, y);
    apply(f, ones, w, sum);
    for (i64 i = 0; i < tensor_count(y) && f->normalize; i++) ((double *)y->data)[i] /= ((double *)sum->data)[i] + f->epsilon;
    return y;
}

static void assert_close(const struct tensor *got, const struct tensor *want)
{
    assert_int_equal(got->rank, want->rank);
    for (u32 i = 0; i < got->rank; i++) assert_int_equal(got->dim[i], want->dim[i]);
    struct tensor_diff d = tensor_compare(got, want, 1e-11, 1e-11);
    if (d.n_bad) fail_msg("%lld wrong elements, first %lld: %.17g, expected %.17g", (long long)d.n_bad, (long long)d.first_bad, d.got, d.want);
}

static double dot(const struct tensor *a, const struct tensor *b)
{
    double sum = 0;
    assert_int_equal(tensor_count(a), tensor_count(b));
    for (i64 i = 0; i < tensor_count(a); i++) sum += ((double *)a->data)[i] * ((double *)b->data)[i];
    return sum;
}

static void assert_near(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance * (1 + fabs(a) + fabs(b)))) fail_msg("%.17g and %.17g", a, b);
}

static void test_formula(void **state)
{
    struct rng r = rng_seed(1);
    u32 seen[2][4] = {{0}}, sides[22] = {0}, channels[9] = {0};
    for (u32 i = 0; i < N_TRIES; i++) {
        struct arena a = {0};
        struct filter f = random_filter(&r);
        sides[f.k[0]]++, sides[f.k[1]]++, channels[f.channels]++;
        struct tensor *x = map_of(&a, &f, f.channels, !f.splat, &r), *w = map_of(&a, &f, taps(&f), false, &r);
        assert_close(forward(&a, &f, x, w), formula(&a, &f, x, w));
        seen[f.splat][f.pad]++;
        arena_release(&a);
    }
    for (u32 i = 0; i < 8; i++) assert_true(seen[i / 4][i % 4] > 10 && channels[i + 1]);
    for (u32 i = 1; i <= 21; i++) assert_true(sides[i]);
}

/* <filter(x), g> = <x, dx(g)>; bilinear: = <w, dw(g, x)>, too. */
static void test_adjoint(void **state)
{
    struct rng r = rng_seed(2);
    for (u32 i = 0; i < N_TRIES; i++) {
        struct arena a = {0};
        struct filter f = random_filter(&r);
        struct tensor *x = map_of(&a, &f, f.channels, !f.splat, &r), *w = map_of(&a, &f, taps(&f), false, &r);
        struct tensor *g = map_of(&a, &f, f.channels, f.splat, &r);
        double want = dot(forward(&a, &f, x, w), g);
        assert_near(dot(run(&a, &f, "quern::WeightedFilterGradInput", 2, (struct tensor *[]){g, w}), x), want, 1e-11);
        if (!f.transform && !f.normalize)
            assert_near(dot(run(&a, &f, "quern::WeightedFilterGradWeights", 2, (struct tensor *[]){g, x}), w), want, 1e-11);
        arena_release(&a);
    }
}

/* w + h*v */
static struct tensor *moved(struct arena *a, struct tensor *w, const struct tensor *v, double h)
{
    struct tensor *t = tensor_new(a, DT_F64, 4, w->dim);
    for (i64 i = 0; i < tensor_count(t); i++) ((double *)t->data)[i] = ((double *)w->data)[i] + h * ((double *)v->data)[i];
    return t;
}

static void test_differences(void **state)
{
    struct rng r = rng_seed(3);
    for (u32 i = 0; i < N_TRIES; i++) {
        struct arena a = {0};
        struct filter f = random_filter(&r);
        const double h = 1e-4;
        struct tensor *x = map_of(&a, &f, f.channels, !f.splat, &r), *w = map_of(&a, &f, taps(&f), false, &r);
        struct tensor *g = map_of(&a, &f, f.channels, f.splat, &r), *v = map_of(&a, &f, taps(&f), false, &r);
        struct tensor *dw = run(&a, &f, "quern::WeightedFilterGradWeights", 3, (struct tensor *[]){g, x, w});
        double up = dot(forward(&a, &f, x, moved(&a, w, v, h)), g), down = dot(forward(&a, &f, x, moved(&a, w, v, -h)), g);
        assert_near(dot(dw, v), (up - down) / (2 * h), 1e-6);
        arena_release(&a);
    }
}

/* A kernel with a one at tap t shifts; the seed's order of taps: rows first. */
static void test_shift(void **state)
{
    struct rng r = rng_seed(4);
    struct arena a = {0};
    struct filter f = {.k = {3, 5}, .d = {1, 1}, .begin = {1, 2}, .batch = 1, .channels = 2, .near = {6, 7}, .far = {6, 7}};
    struct tensor *x = map_of(&a, &f, 2, false, &r), *w = tensor_new(&a, DT_F64, 4, (i64[]){1, 15, 6, 7});
    for (i64 p = 0; p < 42; p++) *cell(w, 0, 2 * 5 + 1, p / 7, p % 7) = 1; /* one row down, one column to the left */
    for (f.splat = 0; f.splat < 2; f.splat++) {
        struct tensor *y = forward(&a, &f, x, w);
        for (i64 p = 0; p < 42; p++) {
            i64 row = p / 7 + (f.splat ? -1 : 1), col = p % 7 + (f.splat ? 1 : -1);
            double want = row >= 0 && row < 6 && col >= 0 && col < 7 ? *cell(x, 0, 1, row, col) : 0;
            assert_true(*cell(y, 0, 1, p / 7, p % 7) == want);
        }
    }
    arena_release(&a);
}

/* Equal weights, normalised by the sum of those inside, preserve a constant image; the bias is
   added afterwards. */
static void test_mean(void **state)
{
    struct arena a = {0};
    struct filter f = {.k = {5, 5}, .d = {2, 2}, .batch = 1, .channels = 2, .near = {4, 3}, .far = {4, 3}, .normalize = true};
    struct tensor *x = tensor_new(&a, DT_F64, 4, (i64[]){1, 2, 4, 3}), *w = tensor_new(&a, DT_F64, 4, (i64[]){1, 25, 4, 3});
    struct tensor *b = tensor_new(&a, DT_F64, 1, (i64[]){2});
    for (i64 i = 0; i < 24; i++) ((double *)x->data)[i] = 3;
    for (i64 i = 0; i < 300; i++) ((double *)w->data)[i] = 0.5;
    ((double *)b->data)[1] = 10;
    struct tensor *y = run(&a, &f, "quern::WeightedFilter", 3, (struct tensor *[]){x, w, b});
    for (i64 i = 0; i < 24; i++) assert_true(((double *)y->data)[i] == (i < 12 ? 3 : 13));
    arena_release(&a);
}

#define NET(x, w, rest) "graph {\n  input %x: f32[" x "]\n  input %w: f32[" w "]\n  %y: f32[] = quern::WeightedFilter (%x, %w) {" rest "}\n  output %y\n}\n"
#define APPLY(inputs) "  %y: f32[] = quern::WeightedFilter (" inputs ") {kernel_shape=[3,3]}\n  output %y\n}\n"

static void assert_refused(const char *text, const char *words)
{
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err e = {0};
    symtab_init(&st, &a);
    bool ok = graph_parse(&g, &a, &st, str_of(text), &e);
    if (!ok) fail_msg("%s", e.msg);
    assert_false(op_infer_all(&g, &e));
    if (!strstr(e.msg, words)) fail_msg("'%s' without '%s'", e.msg, words);
    arena_release(&a);
}

static void test_refusals(void **state)
{
    assert_refused(NET("1,3,8,8", "1,9,8,8", "kernel_shape=[3]"), "length of attribute 'kernel_shape' is 1, expected 2");
    assert_refused(NET("1,3,8,8", "1,8,8,8", "kernel_shape=[3,3]"), "8 weights per pixel, expected 9 for a kernel of 3 x 3");
    assert_refused(NET("1,3,8,8", "2,9,8,8", "kernel_shape=[3,3]"), "batch size of the image is 1, expected 2");
    assert_refused(NET("1,3,8,8", "1,9,7,8", "kernel_shape=[3,3]"), "height of the image is 8, expected 7");
    assert_refused(NET("1,3,8,8", "1,9,6,8", "kernel_shape=[3,3], padding=\"valid\""), "width of the image is 8, expected 10");
    assert_refused(NET("3,8,8", "1,9,8,8", "kernel_shape=[3,3]"), "input of rank 3, expected 4");
    assert_refused(NET("1,3,8,8", "1,9,8,8", "kernel_shape=[3,3], mode=\"both\""), "attribute 'mode' = 'both', expected 'gather' or 'splat'");
    assert_refused(NET("1,3,8,8", "1,9,8,8", "kernel_shape=[3,3], padding=\"wrap\""), "attribute 'padding' = 'wrap'");
    assert_refused(NET("1,3,8,8", "1,9,8,8", "kernel_shape=[0,3]"), "kernel of 0 elements");
    assert_refused(NET("1,3,H,8", "1,9,H+1,8", "kernel_shape=[3,3]"), "height of the image is H, expected H+1");
    assert_refused("graph {\n  input %x: i32[1,3,8,8]\n  input %w: f32[1,9,8,8]\n" APPLY("%x, %w"), "type i32, expected f16, bf16, f32 or f64");
    assert_refused("graph {\n  input %x: f32[1,3,8,8]\n  input %w: f16[1,9,8,8]\n  input %b: f32[2]\n" APPLY("%x, %w, %b"),
                   "number of elements of the bias is 2, expected 3");
    assert_refused("graph {\n  input %x: f32[1,3,8,8]\n  input %w: f16[1,9,8,8]\n  input %b: f16[3]\n" APPLY("%x, %w, %b"),
                   "bias of type f16, expected f32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula), cmocka_unit_test(test_adjoint), cmocka_unit_test(test_differences),
        cmocka_unit_test(test_shift),   cmocka_unit_test(test_mean),    cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
