// SPDX-License-Identifier: Apache-2.0
//
// Convolution, pooling, matmul and resizing against independent facts: a convolution of an
// explicitly padded input; the adjoint identity <conv(x), y> = <x, conv_transpose(y)>; linearity;
// gradients against the same identity, in one to three dimensions, and against differences; pooling
// of known images; identities between resize modes; shapes with symbolic sizes; rejections and
// their messages; sampling of points; speed of the reference.
#include "op/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N_TRIES = 60 };

/* A network of one node. */
struct net {
    struct arena a;
    struct symtab sym;
    struct graph g;
    struct err e;
    struct tensor *in[8];
    u32 n_in;
};

static void net_open(struct net *t)
{
    *t = (struct net){0};
    symtab_init(&t->sym, &t->a);
    graph_init(&t->g, &t->a, &t->sym);
}

static value_id net_input(struct net *t, struct tensor *x)
{
    value_id v;
    random_input(&t->g, "x", x->dtype, x->rank, x->dim, &v);
    t->in[t->n_in++] = x;
    return v;
}

static node_id net_node(struct net *t, const char *op, u32 n, const value_id *in)
{
    value_id y = op_node(&t->g, 0, op, n, in, 0);
    *arr_push(&t->a, &t->g.output) = y;
    return op_made(&t->g, y);
}

static struct tensor *net_run(struct net *t)
{
    struct tensor *y = NULL;
    if (!op_infer_all(&t->g, &t->e) || !graph_eval(&t->g, t->in, &y, &t->a, NULL, &t->e))
        fail_msg("%s", t->e.msg);
    return y;
}

static struct tensor *random_tensor(struct arena *a, u32 rank, const i64 *dim, struct rng *r)
{
    struct tensor *t = tensor_new(a, DT_F64, rank, dim);
    for (i64 i = 0, n = tensor_count(t); i < n; i++)
        elem_set_f64(DT_F64, t->data, i, rng_normal(r));
    return t;
}

static double at(const struct tensor *t, i64 i) { return elem_f64(t->dtype, t->data, i); }

static double inner(const struct tensor *a, const struct tensor *b)
{
    double sum = 0;
    assert_int_equal(tensor_count(a), tensor_count(b));
    for (i64 i = 0, n = tensor_count(a); i < n; i++) sum += at(a, i) * at(b, i);
    return sum;
}

static void assert_close(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * (1 + fabs(a) + fabs(b)))) fail_msg("%.17g is not %.17g", a, b);
}

static void assert_same(const struct tensor *a, const struct tensor *b)
{
    assert_int_equal(a->rank, b->rank);
    for (u32 i = 0; i < a->rank; i++) assert_int_equal(a->dim[i], b->dim[i]);
    for (i64 i = 0, n = tensor_count(a); i < n; i++) assert_close(at(a, i), at(b, i));
}

/* A random convolution. */

struct shape2 {
    i64 x[4], w[4], pads[4], strides[2], dil[2], group;
};

static struct shape2 random_shape(struct rng *r)
{
    struct shape2 s = {.group = rng_range(r, 1, 3)};
    i64 c = rng_range(r, 1, 3);
    s.x[0] = rng_range(r, 1, 2), s.x[1] = s.group * c;
    s.w[0] = s.group * rng_range(r, 1, 3), s.w[1] = c;
    for (u32 i = 0; i < 2; i++) {
        s.w[2 + i] = rng_range(r, 1, 4), s.dil[i] = rng_range(r, 1, 3),
                s.strides[i] = rng_range(r, 1, 4);
        s.pads[i] = rng_range(r, 0, 5), s.pads[2 + i] = rng_range(r, 0, 3);
        i64 need = (s.w[2 + i] - 1) * s.dil[i] + 1 - s.pads[i] - s.pads[2 + i];
        s.x[2 + i] = i64_max(need, 1) + rng_range(r, 0, 5);
    }
    return s;
}

static struct tensor *run_conv(struct net *t, const char *op, const struct shape2 *s,
                               struct tensor *x, struct tensor *w, const i64 *extra)
{
    value_id in[2] = {net_input(t, x), net_input(t, w)};
    node_id n = net_node(t, op, 2, in);
    attr_set_int(&t->g, n, "group", s->group);
    attr_set_ints(&t->g, n, "pads", s->pads, 4);
    attr_set_ints(&t->g, n, "strides", s->strides, 2);
    attr_set_ints(&t->g, n, "dilations", s->dil, 2);
    if (extra) attr_set_ints(&t->g, n, "output_padding", extra, 2);
    return net_run(t);
}

/* The definition: pads are zeros in memory, all loops go over everything. */
static struct tensor *direct(struct arena *a, const struct shape2 *s, const struct tensor *x,
                             const struct tensor *w)
{
    i64 h = s->x[2] + s->pads[0] + s->pads[2], v = s->x[3] + s->pads[1] + s->pads[3];
    i64 oh = (h - (s->w[2] - 1) * s->dil[0] - 1) / s->strides[0] + 1,
        ow = (v - (s->w[3] - 1) * s->dil[1] - 1) / s->strides[1] + 1;
    struct tensor *p = tensor_new(a, DT_F64, 4, (i64[]){s->x[0], s->x[1], h, v});
    for (i64 i = 0, n = tensor_count(x); i < n; i++) {
        i64 c = i % s->x[3], r = i / s->x[3] % s->x[2], nc = i / s->x[3] / s->x[2];
        elem_set_f64(DT_F64, p->data, (nc * h + r + s->pads[0]) * v + c + s->pads[1], at(x, i));
    }
    struct tensor *y = tensor_new(a, DT_F64, 4, (i64[]){s->x[0], s->w[0], oh, ow});
    for (i64 i = 0, n = tensor_count(y); i < n; i++) {
        i64 c = i % ow, r = i / ow % oh, m = i / ow / oh % s->w[0], b = i / ow / oh / s->w[0];
        double sum = 0;
        for (i64 j = 0; j < s->w[1] * s->w[2] * s->w[3]; j++) {
            i64 kc = j % s->w[3], kr = j / s->w[3] % s->w[2], ch = j / s->w[3] / s->w[2];
            i64 from = m / (s->w[0] / s->group) * s->w[1] + ch;
            i64 pr = r * s->strides[0] + kr * s->dil[0], pc = c * s->strides[1] + kc * s->dil[1];
            sum += at(p, ((b * s->x[1] + from) * h + pr) * v + pc) *
                   at(w, m * s->w[1] * s->w[2] * s->w[3] + j);
        }
        elem_set_f64(DT_F64, y->data, i, sum);
    }
    return y;
}

static void test_direct(void **state)
{
    struct rng r = rng_seed(1);
    for (int k = 0; k < N_TRIES; k++) {
        struct net t;
        net_open(&t);
        struct shape2 s = random_shape(&r);
        struct tensor *x = random_tensor(&t.a, 4, s.x, &r), *w = random_tensor(&t.a, 4, s.w, &r);
        assert_same(run_conv(&t, "Conv", &s, x, w, NULL), direct(&t.a, &s, x, w));
        arena_release(&t.a);
    }
}

/* <conv(x), y> = <x, conv_transpose(y)>: output_padding restores the rows that a stride did not
 * reach. */
static void test_adjoint(void **state)
{
    struct rng r = rng_seed(2);
    for (int k = 0; k < N_TRIES; k++) {
        struct net t, u;
        net_open(&t);
        net_open(&u);
        struct shape2 s = random_shape(&r);
        i64 extra[2];
        struct tensor *x = random_tensor(&t.a, 4, s.x, &r), *w = random_tensor(&t.a, 4, s.w, &r);
        struct tensor *cx = run_conv(&t, "Conv", &s, x, w, NULL),
                      *y = random_tensor(&t.a, 4, cx->dim, &r);
        for (u32 i = 0; i < 2; i++) {
            i64 back = (cx->dim[2 + i] - 1) * s.strides[i] + (s.w[2 + i] - 1) * s.dil[i] + 1 -
                       s.pads[i] - s.pads[2 + i];
            extra[i] = s.x[2 + i] - back;
        }
        assert_close(inner(cx, y), inner(x, run_conv(&u, "ConvTranspose", &s, y, w, extra)));
        arena_release(&t.a);
        arena_release(&u.a);
    }
}

static void test_linear(void **state) /* conv(x + 2 y) = conv(x) + 2 conv(y) */
{
    struct rng r = rng_seed(3);
    struct net t[3];
    struct shape2 s = random_shape(&r);
    for (u32 i = 0; i < 3; i++) net_open(&t[i]);
    struct tensor *x = random_tensor(&t[0].a, 4, s.x, &r), *y = random_tensor(&t[0].a, 4, s.x, &r);
    struct tensor *z = tensor_new(&t[0].a, DT_F64, 4, s.x), *w = random_tensor(&t[0].a, 4, s.w, &r);
    for (i64 i = 0; i < tensor_count(z); i++)
        elem_set_f64(DT_F64, z->data, i, at(x, i) + 2 * at(y, i));
    struct tensor *cx = run_conv(&t[0], "Conv", &s, x, w, NULL),
                  *cy = run_conv(&t[1], "Conv", &s, y, w, NULL);
    struct tensor *cz = run_conv(&t[2], "Conv", &s, z, w, NULL);
    for (i64 i = 0; i < tensor_count(cz); i++) assert_close(at(cz, i), at(cx, i) + 2 * at(cy, i));
    for (u32 i = 0; i < 3; i++) arena_release(&t[i].a);
}

/* Gradients. */

struct window { /* of a convolution in one to three dimensions: of y = conv(x, w) */
    u32 n;
    i64 x[5], w[5], y[5], pads[6], strides[3], dil[3], group;
};

static struct window random_window(struct rng *r)
{
    struct window s = {.n = (u32)rng_range(r, 1, 3), .group = rng_range(r, 1, 3)};
    s.w[1] = rng_range(r, 1, 3), s.w[0] = s.y[1] = s.group * rng_range(r, 1, 3);
    s.x[0] = s.y[0] = rng_range(r, 1, 3), s.x[1] = s.group * s.w[1];
    for (u32 i = 0; i < s.n; i++) {
        s.w[2 + i] = rng_range(r, 1, 4), s.dil[i] = rng_range(r, 1, 3), s.strides[i] = rng_range(r, 1, 4);
        s.pads[i] = rng_range(r, 0, 5), s.pads[s.n + i] = rng_range(r, 0, 3);
        i64 pad = s.pads[i] + s.pads[s.n + i], span = (s.w[2 + i] - 1) * s.dil[i] + 1;
        s.x[2 + i] = i64_max(span - pad, 1) + rng_range(r, 0, 5);
        s.y[2 + i] = (s.x[2 + i] + pad - span) / s.strides[i] + 1;
    }
    return s;
}

static struct tensor *run_window(struct net *t, const char *op, const struct window *s, struct tensor *a, struct tensor *b)
{
    net_open(t);
    value_id in[2] = {net_input(t, a), net_input(t, b)};
    node_id n = net_node(t, op, 2, in);
    attr_set_int(&t->g, n, "group", s->group);
    attr_set_ints(&t->g, n, "pads", s->pads, 2 * s->n);
    attr_set_ints(&t->g, n, "strides", s->strides, s->n);
    attr_set_ints(&t->g, n, "dilations", s->dil, s->n);
    attr_set_ints(&t->g, n, "kernel_shape", s->w + 2, s->n);
    if (strstr(op, "GradInput")) attr_set_ints(&t->g, n, "input_shape", s->x + 2, s->n);
    return net_run(t);
}

static void assert_dims(const struct tensor *t, u32 rank, const i64 *dim)
{
    assert_int_equal(t->rank, rank);
    for (u32 i = 0; i < rank; i++) assert_int_equal(t->dim[i], dim[i]);
}

/* <dy, conv(x, w)> = <dx, x> = <dw, w>, since the convolution is linear in either. */
static void test_gradients(void **state)
{
    struct rng r = rng_seed(11);
    for (int k = 0; k < 3 * N_TRIES; k++) {
        struct arena a = {0};
        struct net t[3];
        struct window s = random_window(&r);
        u32 rank = s.n + 2;
        struct tensor *x = random_tensor(&a, rank, s.x, &r), *w = random_tensor(&a, rank, s.w, &r),
                      *dy = random_tensor(&a, rank, s.y, &r);
        double want = inner(run_window(&t[0], "Conv", &s, x, w), dy);
        struct tensor *dx = run_window(&t[1], "quern::ConvGradInput", &s, dy, w),
                      *dw = run_window(&t[2], "quern::ConvGradWeight", &s, x, dy);
        assert_dims(dx, rank, s.x);
        assert_dims(dw, rank, s.w);
        assert_close(inner(dx, x), want);
        assert_close(inner(dw, w), want);
        for (u32 i = 0; i < 3; i++) arena_release(&t[i].a);
        arena_release(&a);
    }
}

/* For each element: the change of <dy, conv(x, w)> with it. The function is linear in x and in w,
   so differences are exact but for rounding. */
static void test_differences(void **state)
{
    struct rng r = rng_seed(12);
    for (int k = 0; k < N_TRIES; k++) {
        struct arena a = {0};
        struct net t, u;
        struct window s = random_window(&r);
        u32 rank = s.n + 2;
        bool of_weight = k % 2;
        struct tensor *x = random_tensor(&a, rank, s.x, &r), *w = random_tensor(&a, rank, s.w, &r),
                      *dy = random_tensor(&a, rank, s.y, &r), *of = of_weight ? w : x;
        struct tensor *d = of_weight ? run_window(&u, "quern::ConvGradWeight", &s, x, dy)
                                     : run_window(&u, "quern::ConvGradInput", &s, dy, w);
        for (int j = 0; j < 4; j++) {
            i64 i = rng_range(&r, 0, tensor_count(of) - 1);
            double f[2], old = at(of, i);
            for (int side = 0; side < 2; side++) {
                elem_set_f64(DT_F64, of->data, i, old + (side ? 0.5 : -0.5));
                f[side] = inner(run_window(&t, "Conv", &s, x, w), dy);
                arena_release(&t.a);
            }
            elem_set_f64(DT_F64, of->data, i, old);
            if (!(fabs(f[1] - f[0] - at(d, i)) <= 1e-9 * (1 + fabs(f[0]) + fabs(f[1]))))
                fail_msg("element %d: %.17g is not %.17g", (int)i, at(d, i), f[1] - f[0]);
        }
        arena_release(&u.a);
        arena_release(&a);
    }
}

/* Symbolic sizes give the same results as known sizes, also if the stride does not divide them. */
static void test_symbolic_gradient(void **state)
{
    static const char *const text[] = {
        "graph {\n  input %dy: f64[2,4,(H-1)//3+1]\n  input %w: f64[4,3,3]\n  %dx: f64[] = quern::ConvGradInput "
        "(%dy, %w) {strides=[3], pads=[1,1], input_shape=strs[\"H\"]}\n  output %dx\n}\n",
        "graph {\n  input %dy: f64[2,4,D]\n  input %w: f64[4,3,3]\n  %dx: f64[] = quern::ConvGradInput "
        "(%dy, %w) {strides=[3], pads=[1,1]}\n  output %dx\n}\n",
    };
    struct rng r = rng_seed(13);
    for (i64 size = 3; size < 12; size++) {
        struct window s = {.n = 1, .x = {2, 3, size}, .w = {4, 3, 3}, .y = {2, 4, (size - 1) / 3 + 1}, .pads = {1, 1}, .strides = {3},
                           .dil = {1}, .group = 1};
        struct arena a = {0};
        struct net t[2], u;
        struct tensor *in[2] = {random_tensor(&a, 3, s.y, &r), random_tensor(&a, 3, s.w, &r)}, *dx[2];
        for (u32 i = 0; i < 2; i++) {
            i64 var = i ? s.y[2] : size;
            struct graph_eval_opts o = {.var = &var};
            net_open(&t[i]);
            if (!graph_parse(&t[i].g, &t[i].a, &t[i].sym, str_of(text[i]), &t[i].e) || !op_infer_all(&t[i].g, &t[i].e) ||
                !graph_eval(&t[i].g, in, &dx[i], &t[i].a, &o, &t[i].e))
                fail_msg("%s", t[i].e.msg);
        }
        assert_same(dx[0], run_window(&u, "quern::ConvGradInput", &s, in[0], in[1]));
        arena_release(&u.a);
        s.x[2] = 3 * s.y[2] - 2; /* the part that is read, without padding */
        assert_same(dx[1], run_window(&u, "quern::ConvGradInput", &s, in[0], in[1]));
        arena_release(&u.a);
        for (u32 i = 0; i < 2; i++) arena_release(&t[i].a);
        arena_release(&a);
    }
}

/* Sampling: the chosen elements alone. */
static void test_points(void **state)
{
    struct rng r = rng_seed(4);
    for (int k = 0; k < 2 * N_TRIES; k++) {
        struct net t;
        net_open(&t);
        struct shape2 s = random_shape(&r);
        bool conv = k % 2;
        i64 b[3] = {s.x[0], s.x[3], 7};
        value_id in[2] = {net_input(&t, random_tensor(&t.a, 4, s.x, &r))};
        in[1] = net_input(&t, conv ? random_tensor(&t.a, 4, s.w, &r)
                                   : random_tensor(&t.a, 2, b + 1, &r));
        node_id n = net_node(&t, conv ? "Conv" : "MatMul", 2, in);
        if (conv) attr_set_int(&t.g, n, "group", s.group);
        if (conv) attr_set_ints(&t.g, n, "pads", s.pads, 4);
        if (conv) attr_set_ints(&t.g, n, "dilations", s.dil, 2);
        struct tensor *all = net_run(&t), *some;
        i64 point[5];
        for (u32 i = 0; i < 5; i++) point[i] = rng_range(&r, 0, tensor_count(all) - 1);
        struct graph_eval_opts o = {.points = point, .n_points = 5};
        assert_true(graph_eval(&t.g, t.in, &some, &t.a, &o, &t.e));
        for (u32 i = 0; i < 5; i++) assert_close(at(all, point[i]), at(some, point[i]));
        arena_release(&t.a);
    }
}

/* Pooling. */

static struct tensor *image(struct arena *a, i64 h, i64 w, const double *v)
{
    struct tensor *t = tensor_new(a, DT_F64, 4, (i64[]){1, 1, h, w});
    for (i64 i = 0; i < h * w; i++) elem_set_f64(DT_F64, t->data, i, v ? v[i] : (double)i);
    return t;
}

static void expect(const struct tensor *t, i64 h, i64 w, const double *v)
{
    assert_int_equal(t->dim[t->rank - 2], h);
    assert_int_equal(t->dim[t->rank - 1], w);
    for (i64 i = 0; i < h * w; i++) assert_close(at(t, i), v[i]);
}

static struct tensor *pool(struct net *t, const char *op, i64 h, i64 w, i64 k, i64 stride,
                           const i64 pads[4], bool ceil_mode)
{
    net_open(t);
    value_id x = net_input(t, image(&t->a, h, w, NULL));
    node_id n = net_node(t, op, 1, &x);
    attr_set_ints(&t->g, n, "kernel_shape", (i64[]){k, k}, 2);
    attr_set_ints(&t->g, n, "strides", (i64[]){stride, stride}, 2);
    attr_set_ints(&t->g, n, "pads", pads, 4);
    attr_set_int(&t->g, n, "ceil_mode", ceil_mode);
    return net_run(t);
}

static void test_pool(void **state)
{
    struct net t;
    const i64 none[4] = {0}, one[4] = {1, 1, 1, 1};
    expect(pool(&t, "MaxPool", 5, 5, 2, 2, none, false), 2, 2, (double[]){6, 8, 16, 18});
    arena_release(&t.a);
    expect(pool(&t, "MaxPool", 5, 5, 2, 2, none, true), 3, 3,
           (double[]){6, 8, 9, 16, 18, 19, 21, 23, 24});
    arena_release(&t.a);
    expect(pool(&t, "AveragePool", 3, 3, 3, 2, one, false), 2, 2, (double[]){2, 3, 5, 6});
    arena_release(&t.a);
    /* A window that would start in the end padding is omitted: two windows, not three. */
    expect(pool(&t, "AveragePool", 3, 3, 2, 2, one, true), 2, 2, (double[]){0, 1.5, 4.5, 6});
    arena_release(&t.a);
}

/* Resize. */

static struct tensor *resize(struct net *t, struct tensor *x, const char *mode, const char *coord,
                             const double scale[2])
{
    struct tensor *s = tensor_new(&t->a, DT_F32, 1, (i64[]){4});
    for (u32 i = 0; i < 4; i++) elem_set_f64(DT_F32, s->data, i, i < 2 ? 1 : scale[i - 2]);
    value_id in[3] = {net_input(t, x), 0, graph_add_const(&t->g, S("scales"), s)};
    node_id n = net_node(t, "Resize", 3, in);
    attr_set_str(&t->g, n, "mode", str_of(mode));
    attr_set_str(&t->g, n, "coordinate_transformation_mode", str_of(coord));
    attr_set_float(&t->g, n, "cubic_coeff_a", -0.5); /* the value that keeps lines straight */
    return net_run(t);
}

static void test_resize(void **state)
{
    struct net t;
    net_open(&t);
    struct tensor *y =
        resize(&t, image(&t.a, 1, 2, NULL), "nearest", "half_pixel", (double[]){1, 3});
    expect(y, 1, 6, (double[]){0, 0, 0, 1, 1, 1});
    arena_release(&t.a);
    net_open(&t);
    y = resize(&t, image(&t.a, 1, 2, NULL), "linear", "half_pixel", (double[]){1, 2});
    expect(y, 1, 4, (double[]){0, 0.25, 0.75, 1});
    arena_release(&t.a);
    net_open(&t);
    y = resize(&t, image(&t.a, 1, 3, NULL), "linear", "align_corners", (double[]){1, 5.0 / 3});
    expect(y, 1, 5, (double[]){0, 0.5, 1, 1.5, 2});
    arena_release(&t.a);
    net_open(&t); /* 10 * 0.7f is below 7 in exact arithmetic */
    y = resize(&t, image(&t.a, 1, 10, NULL), "nearest", "asymmetric", (double[]){1, 0.7});
    assert_int_equal(y->dim[3], 7);
    arena_release(&t.a);
}

/* A cubic reproduces a straight line away from the borders. */
static void test_cubic_line(void **state)
{
    struct net t;
    net_open(&t);
    struct tensor *y =
        resize(&t, image(&t.a, 1, 12, NULL), "cubic", "half_pixel", (double[]){1, 2.5});
    for (i64 i = 5; i < 24; i++) assert_close(at(y, i), ((double)i + 0.5) / 2.5 - 0.5);
    arena_release(&t.a);
}

/* Symbolic shapes. */

static struct str symbolic_shape(struct net *t, const char *op, const i64 *kernel, i64 stride,
                                 const char *pad)
{
    net_open(t);
    value_id in[2];
    random_input(&t->g, "x", DT_F32, 4, (i64[]){1, 3, 8, 8}, &in[0]);
    graph_value(&t->g, in[0])->shape.dim[2] = sym_var(&t->sym, S("H"));
    random_input(&t->g, "w", DT_F32, 4, (i64[]){3, 3, kernel[0], kernel[1]}, &in[1]);
    bool pooling = strstr(op, "Pool") != NULL;
    node_id n = net_node(t, op, pooling ? 1 : 2, in);
    if (pooling) attr_set_ints(&t->g, n, "kernel_shape", kernel, 2);
    attr_set_ints(&t->g, n, "strides", (i64[]){stride, stride}, 2);
    if (pad[0] == 'S') attr_set_str(&t->g, n, "auto_pad", str_of(pad));
    else if (pad[0]) attr_set_ints(&t->g, n, "pads", (i64[]){1, 1, 1, 1}, 4);
    if (!op_infer_all(&t->g, &t->e)) fail_msg("%s", t->e.msg);
    struct buf b = {0};
    sym_print(&b, &t->sym, graph_value(&t->g, graph_node(&t->g, n)->out.v[0])->shape.dim[2]);
    struct str s = str_dup(&t->a, buf_view(&b));
    buf_release(&b);
    return s;
}

static void test_symbolic(void **state)
{
    static const struct {
        const char *op;
        i64 k, stride;
        const char *pad, *want;
    } rows[] = {
        {"Conv", 3, 1, "1", "H"},
        {"Conv", 3, 2, "1", "(H+1)//2"},
        {"Conv", 3, 1, "", "H-2"},
        {"Conv", 5, 1, "SAME_UPPER", "H"},
        {"Conv", 3, 2, "SAME_LOWER", "(H+1)//2"},
        {"MaxPool", 2, 2, "", "H//2"},
        {"ConvTranspose", 2, 2, "", "2*H"},
        {"ConvTranspose", 4, 2, "1", "2*H"},
        {"ConvTranspose", 3, 2, "SAME_UPPER", "2*H"},
    };
    for (i64 i = 0; i < countof(rows); i++) {
        struct net t;
        struct str s = symbolic_shape(&t, rows[i].op, (i64[]){rows[i].k, rows[i].k}, rows[i].stride,
                                      rows[i].pad);
        sym want = sym_parse(&t.sym, str_of(rows[i].want), &t.e);
        if (sym_parse(&t.sym, s, &t.e) != want)
            fail_msg("%s, kernel %d: %s, expected %s", rows[i].op, (int)rows[i].k, s.p,
                     rows[i].want);
        arena_release(&t.a);
    }
}

/* After infer, kernel families find everything explicit. */
static void test_explicit(void **state)
{
    struct net t;
    symbolic_shape(&t, "Conv", (i64[]){4, 3}, 1, "SAME_LOWER");
    const struct node *n = graph_node(&t.g, 1);
    const i64 *pads;
    assert_int_equal(attr_ints(n, "pads", &pads), 4);
    const i64 want[4] = {2, 1, 1, 1};
    for (u32 i = 0; i < 4; i++) assert_int_equal(pads[i], want[i]);
    assert_null(node_attr(n, "auto_pad"));
    assert_int_equal(attr_int(n, "group", 0), 1);
    assert_int_equal(attr_ints(n, "dilations", &pads), 2);
    arena_release(&t.a);
}

/* Nearest upsampling by whole factors becomes a view, also when it is written as sizes. */
static void test_upsample_view(void **state)
{
    struct net t;
    net_open(&t);
    value_id in[4] = {0}, shape[4];
    random_input(&t.g, "x", DT_F32, 4, (i64[]){1, 3, 8, 8}, &in[0]);
    sym h = sym_var(&t.sym, S("H"));
    graph_value(&t.g, in[0])->shape.dim[2] = h;
    for (u32 i = 0; i < 4; i++) {
        sym d = i == 2 ? sym_mul(&t.sym, h, sym_const(&t.sym, 2))
                       : sym_const(&t.sym, i == 3 ? 24
                                           : i    ? 3
                                                  : 1);
        shape[i] =
            op_node_axes(&t.g, 0, "Unsqueeze", op_sym_scalar(&t.g, DT_I64, d), (i64[]){0}, 1, 0);
    }
    in[3] = op_node(&t.g, 0, "Concat", 4, shape, 0);
    attr_set_int(&t.g, op_made(&t.g, in[3]), "axis", 0);
    node_id n = net_node(&t, "Resize", 4, in);
    value_id y = graph_node(&t.g, n)->out.v[0];
    if (!op_infer_all(&t.g, &t.e) || !op_expand_all(&t.g, &t.e)) fail_msg("%s", t.e.msg);
    assert_true(str_is(graph_node(&t.g, op_made(&t.g, y))->op, "quern::Upsample"));
    assert_true(op_of(&t.g, op_made(&t.g, y))->props & OP_VIEW);
    arena_release(&t.a);
}

/* Refusals. */

static void refuse(const char *text, const char *want)
{
    struct net t;
    net_open(&t);
    if (!graph_parse(&t.g, &t.a, &t.sym, str_of(text), &t.e)) fail_msg("%s", t.e.msg);
    assert_false(op_infer_all(&t.g, &t.e));
    if (!strstr(t.e.msg, want) || !strstr(t.e.msg, "'bad'")) fail_msg("%s: no '%s'", t.e.msg, want);
    arena_release(&t.a);
}

#define CONV(x, w, attr)                                                                           \
    "graph {\n  input %x: f32[" x "]\n  input %w: f32[" w                                          \
    "]\n  %y: f32[] = Conv \"bad\"(%x, %w)" attr "\n  output %y\n}\n"
#define ONE(op, x, attr)                                                                           \
    "graph {\n  input %x: " x "\n  %y: f32[] = " op " \"bad\"(%x)" attr "\n  output %y\n}\n"

#define GRADIENT(op, a, b, attr)                                                                   \
    "graph {\n  input %a: f32[" a "]\n  input %b: f32[" b "]\n  %y: f32[] = quern::ConvGrad" op     \
    " \"bad\"(%a, %b) {" attr "}\n  output %y\n}\n"

static void test_gradient_refusals(void **state)
{
    refuse(GRADIENT("Input", "1,2,4,4", "2,3,3,3", "input_shape=[6]"), "'input_shape' does not have 2 sizes");
    refuse(GRADIENT("Input", "1,2,4,4", "2,3,3,3", "input_shape=[6,7]"), "the gradient's size on axis 3");
    refuse(GRADIENT("Input", "1,2,4,4", "2,3,3,3", "input_shape=[6,0]"), "input of size 0 on axis 3");
    refuse(GRADIENT("Input", "1,2,4,4", "2,3,3,3", "input_shape=[6,1]"), "kernel larger than the padded input");
    refuse(GRADIENT("Input", "1,2,4,H", "2,3,3,3", "input_shape=[6,9]"), "not known to lead to");
    refuse(GRADIENT("Input", "1,3,4,4", "2,3,3,3", "group=1"), "gradient of 3 channels in 1 groups, weight for 2");
    refuse(GRADIENT("Input", "1,2,4", "2,3,3,3", "group=1"), "weight of rank 4");
    refuse(GRADIENT("Input", "1,2,4,4", "2,3,3,3", "group=3"), "in 3 groups");
    refuse(GRADIENT("Input", "1,2,1,1", "2,3,1,1", "pads=[1,0,0,0]"), "input of size 0 on axis 2");
    refuse(GRADIENT("Input", "1,2,4,4", "2,3,3,3", "auto_pad=\"SAME_UPPER\""), "auto_pad 'SAME_UPPER'");
    refuse(GRADIENT("Weight", "1,3,4,4", "1,2,2,2", "group=1"), "'kernel_shape' is missing");
    refuse(GRADIENT("Weight", "1,3,4,4", "1,2,3,2", "kernel_shape=[3,3]"), "output's size on axis 2");
    refuse(GRADIENT("Weight", "1,3,4,4", "2,2,2,2", "kernel_shape=[3,3]"), "batch sizes differ");
    refuse(GRADIENT("Weight", "1,3,4,4", "1,2,2,2", "kernel_shape=[3,3], group=2"), "group 2 for 3 input");
    refuse(GRADIENT("Weight", "1,3,4,4", "1,2,2,2", "kernel_shape=[5,5]"), "kernel larger than the padded input");
    refuse(GRADIENT("Weight", "1,3,4,4", "1,2,2", "kernel_shape=[3,3]"), "gradient of rank 3");
    refuse(GRADIENT("Weight", "1,3,4,4", "1,C,2,2", "kernel_shape=[3,3]"), "number of channels is not known");
}

static void test_refusals(void **state)
{
    refuse(CONV("1,3,4,4", "2,3,5,5", ""), "kernel larger than the padded input");
    refuse(CONV("1,3,4,4", "2,2,3,3", ""), "3 input channels in 1 groups");
    refuse(CONV("1,3,4,4", "2,1,3,3", " {group=3}"), "group 3 for 2 output channels");
    refuse(CONV("1,3,4,4", "2,3,3,3", " {group=0}"), "group 0");
    refuse(CONV("1,3,4,4", "2,3,3", ""), "weight of rank 3");
    refuse(CONV("1,3", "2,3", ""), "rank 2");
    refuse(CONV("1,3,4,4", "2,3,3,3", " {strides=[0,1]}"), "'strides' contains 0");
    refuse(CONV("1,3,4,4", "2,3,3,3", " {dilations=[1]}"),
           "'dilations' has 1 entries instead of 2");
    refuse(CONV("1,3,4,4", "2,3,3,3", " {pads=[-1,0,0,0]}"), "'pads' contains -1");
    refuse(CONV("1,3,4,4", "2,3,3,3", " {kernel_shape=[3,2]}"), "kernel_shape differs");
    refuse(CONV("1,3,4,4", "2,3,3,3", " {auto_pad=\"FULL\"}"), "auto_pad 'FULL'");
    refuse(ONE("MaxPool", "f32[1,1,4,4]", ""), "'kernel_shape' is missing");
    refuse(ONE("MaxPool", "i64[1,1,4,4]", " {kernel_shape=[2,2]}"), "type i64");
    refuse(ONE("Softmax", "f32[2,3]", " {axis=2}"), "axis 2 does not exist");
    refuse(ONE("LRN", "f32[1,3,4,4]", " {size=0}"), "size 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_direct),     cmocka_unit_test(test_adjoint),
        cmocka_unit_test(test_linear),     cmocka_unit_test(test_points),
        cmocka_unit_test(test_pool),       cmocka_unit_test(test_resize),
        cmocka_unit_test(test_cubic_line), cmocka_unit_test(test_symbolic),
        cmocka_unit_test(test_explicit),   cmocka_unit_test(test_upsample_view),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_gradients),  cmocka_unit_test(test_differences),
        cmocka_unit_test(test_symbolic_gradient), cmocka_unit_test(test_gradient_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
