// SPDX-License-Identifier: Apache-2.0
//
// A denoiser with analytic weights: every 8x8 block of the picture, at every position, is
// transformed by the discrete cosine transform; coefficients below a threshold are set to zero as
// noise, larger ones shrunk; the inverse transforms of the 64 blocks that contain a pixel are
// averaged. As a network: a convolution with the 64 basis pictures, soft thresholding, and a
// convolution with their mirror images. The border is replicated, so any H and W work.
//
// Before that, single pixels that are far brighter than their neighbours (rare bright paths of a
// path tracer) are clipped, and RGB is rotated to brightness and two differences, because path
// tracing noise is mostly brightness: the differences have a threshold of their own. Thresholds
// suit pictures in sRGB encoding, values 0..1, with about 8 paths per pixel.
#include "zoo/zoo.h"

#include <math.h>

enum { B = 8, N_BASIS = B * B };

static const double THRESHOLD[3] = {
    0.20, 0.07,
    0.07}; /* of brightness and the two differences; coefficients of an orthonormal basis */
static const double SPIKE_FACTOR = 1.5,
                    SPIKE_OFFSET =
                        0.08; /* maximal brightness of a pixel relative to the mean of its eight neighbours */

static double cosine(i64 k, i64 x)
{
    return (k ? sqrt(2.0 / B) : sqrt(1.0 / B)) *
           cos((2 * (double)x + 1) * (double)k * 3.14159265358979323846 / (2 * B));
}

/* (64, 1, 8, 8); mirrored and weighted: (1, 64, 8, 8) */
static value_id basis(struct net *n, const char *name, bool inverse)
{
    i64 dim[] = {inverse ? 1 : N_BASIS, inverse ? N_BASIS : 1, B, B};
    struct tensor *t = net_floats(n, 4, dim);
    for (i64 k = 0; k < N_BASIS; k++)
        for (i64 i = 0; i < N_BASIS; i++) {
            i64 y = inverse ? B - 1 - i / B : i / B, x = inverse ? B - 1 - i % B : i % B;
            elem_set_f64(DT_F32, t->data, k * N_BASIS + i,
                         cosine(k / B, y) * cosine(k % B, x) * (inverse ? 1.0 / N_BASIS : 1));
        }
    return graph_add_const(n->g, str_of(name), t);
}

/* An orthonormal rotation of RGB: rows brightness, red - blue, green - magenta. Its transpose is
   the inverse. */
static value_id rotation(struct net *n, const char *name, bool back)
{
    const double m[3][3] = {{sqrt(1.0 / 3), sqrt(1.0 / 3), sqrt(1.0 / 3)},
                            {sqrt(0.5), 0, -sqrt(0.5)},
                            {sqrt(1.0 / 6), -sqrt(2.0 / 3), sqrt(1.0 / 6)}};
    struct tensor *t = net_floats(n, 4, (i64[]){3, 3, 1, 1});
    for (i64 i = 0; i < 9; i++)
        elem_set_f64(DT_F32, t->data, i, back ? m[i % 3][i / 3] : m[i / 3][i % 3]);
    return graph_add_const(n->g, str_of(name), t);
}

/* The mean is preserved: basis picture 0 has no threshold. */
static value_id thresholds(struct net *n)
{
    struct tensor *t = net_floats(n, 4, (i64[]){3, N_BASIS, 1, 1});
    for (i64 i = 0; i < 3 * N_BASIS; i++)
        elem_set_f64(DT_F32, t->data, i, i % N_BASIS ? THRESHOLD[i / N_BASIS] : 0);
    return graph_add_const(n->g, S("threshold"), t);
}

static value_id scalar(struct net *n, const char *name, double v)
{
    struct tensor *t = net_floats(n, 0, NULL);
    elem_set_f64(DT_F32, t->data, 0, v);
    return graph_add_const(n->g, str_of(name), t);
}

static value_id pad(struct net *n, value_id x, i64 size)
{
    value_id v = net_op(n, "Pad", "pad", x,
                        net_ints(n, "pads", (i64[]){0, 0, size, size, 0, 0, size, size}, 8));
    attr_set_str(n->g, graph_value(n->g, v)->producer, "mode", S("edge"));
    return v;
}

/* (1, 3, h + 2, w + 2) to (1, 3, h, w) */
static value_id cut_spikes(struct net *n, value_id x)
{
    struct tensor *t = net_floats(n, 4, (i64[]){3, 1, 3, 3});
    for (i64 i = 0; i < 27; i++)
        elem_set_f64(DT_F32, t->data, i, i % 9 == 4 ? 0 : SPIKE_FACTOR / 8);
    value_id limit =
        net_op(n, "Conv", "neighbours", x, graph_add_const(n->g, S("neighbours.weight"), t));
    attr_set_int(n->g, graph_value(n->g, limit)->producer, "group", 3);
    limit = net_op(n, "Add", "limit", limit, scalar(n, "limit.offset", SPIKE_OFFSET));
    value_id in[] = {x, net_ints(n, "inner.from", (i64[]){1, 1}, 2),
                     net_ints(n, "inner.to", (i64[]){-1, -1}, 2),
                     net_ints(n, "inner.axes", (i64[]){2, 3}, 2)};
    return net_op(n, "Min", "despiked", graph_op(n->g, "Slice", S("inner"), 4, in), limit);
}

static value_id reshape(struct net *n, value_id x, const char *name, i64 batch, i64 channels)
{
    const char *shape = str_fmt(n->g->arena, "%s.shape", name).p;
    return net_op(n, "Reshape", name, x, net_ints(n, shape, (i64[]){batch, channels, 0, 0}, 4));
}

/* sign(c) * max(|c| - threshold, 0) */
static value_id shrink(struct net *n, value_id c)
{
    value_id least = thresholds(n), size = net_op(n, "Sub", "minus", net_op(n, "Abs", "size", c, 0), least);
    size = net_op(n, "Relu", "excess", size, 0);
    return net_op(n, "Mul", "shrunk", net_op(n, "Sign", "sign", c, 0), size);
}

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    struct net n = net_start(g, 0);
    value_id x = pad(&n, net_input(&n, "input", "1 3 H W"), B);
    value_id w = rotation(&n, "rotation", false);
    x = net_op(&n, "Conv", "rotated", cut_spikes(&n, x), w);
    x = reshape(&n, x, "planes", 3, 1);                          /* (3, 1, h + 14, w + 14) */
    x = net_op(&n, "Conv", "dct", x, basis(&n, "basis", false)); /* (3, 64, h + 7, w + 7) */
    w = basis(&n, "inverse.weight", true);
    x = net_op(&n, "Conv", "inverse", shrink(&n, x), w); /* (3, 1, h, w) */
    x = reshape(&n, x, "channels", 1, 3);
    x = net_op(&n, "Conv", "colours", x, rotation(&n, "rotation.back", true));
    net_output(&n, net_op(&n, "Relu", "positive", x, 0), "output");
    return true;
}

const struct zoo zoo_dct_denoise = {
    .version = 2,
    .name = "dct-denoise",
    .summary = "analytic denoiser for path traced pictures: 8x8 cosine frame, soft threshold; no "
               "random weights",
    .build = build,
};
