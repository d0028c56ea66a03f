// SPDX-License-Identifier: Apache-2.0
//
// filter IN OUT [SIGMA]: one operator on arrays of one's own. A bilateral filter: each pixel of a picture has a kernel of 5 x 5 weights,
// the softmax of - |difference of colours|^2 / (2 SIGMA^2), made of what it borders on. The pixels lie with their channels last, the
// weights with their pixels last; strides say so, and nothing is copied.
//     cc -o filter filter.c $(pkg-config --cflags --libs quern)
#include <stdio.h>
#include <stdlib.h>

#include "quern.h"

enum { SIDE = 5, TAPS = SIDE * SIDE };

struct picture { /* f32, channel c of pixel (y, x) is v[(y * w + x) * n + c] */
    int64_t h, w, n;
    float *v;
};

static int64_t clamp(int64_t p, int64_t n) { return p < 0 ? 0 : p < n ? p : n - 1; }

/* Channels next to each other, as a camera or a renderer has them. */
static struct picture interleave(const quern_tensor *t) /* (1, n, h, w) */
{
    const int64_t *d = quern_tensor_dims(t);
    const float *from = quern_tensor_data(t);
    struct picture p = {.n = d[1], .h = d[2], .w = d[3], .v = malloc(sizeof(float) * (size_t)quern_tensor_count(t))};
    for (int64_t c = 0; p.v && c < p.n; c++)
        for (int64_t i = 0; i < p.h * p.w; i++) p.v[i * p.n + c] = from[c * p.h * p.w + i];
    return p;
}

static struct quern_array array_of(const struct picture *p)
{
    return (struct quern_array){.type = QUERN_F32, .rank = 4, .data = p->v, .dim = {1, p->n, p->h, p->w},
                                .stride = {p->h * p->w * p->n, 1, p->w * p->n, p->n}};
}

/* (TAPS, h, w), before the softmax */
static float *make_weights(const struct picture *p, double sigma)
{
    float *w = malloc(sizeof *w * TAPS * (size_t)(p->h * p->w)), *to = w;
    for (int64_t t = 0; w && t < TAPS; t++)
        for (int64_t y = 0; y < p->h; y++)
            for (int64_t x = 0; x < p->w; x++, to++) {
                int64_t ty = clamp(y + t / SIDE - SIDE / 2, p->h), tx = clamp(x + t % SIDE - SIDE / 2, p->w);
                const float *a = p->v + (y * p->w + x) * p->n, *b = p->v + (ty * p->w + tx) * p->n;
                double sum = 0;
                for (int64_t c = 0; c < p->n; c++) sum += (double)(a[c] - b[c]) * (double)(a[c] - b[c]);
                *to = (float)(-sum / (2 * sigma * sigma));
            }
    return w;
}

static quern_status apply(quern *q, const struct picture *p, float *weights, quern_tensor **y)
{
    quern_op *op = NULL;
    struct quern_array out = {0}, in[2] = {array_of(p), {.type = QUERN_F32, .rank = 4, .data = weights, .dim = {1, TAPS, p->h, p->w},
                                                   .stride = {TAPS * p->h * p->w, p->h * p->w, p->w, 1}}};
    quern_status s = quern_op_open(q, "quern::WeightedFilter", "kernel_shape=[5,5], padding=\"replicate\", transform=\"softmax\"", NULL, &op);
    if (!s) s = quern_op_shape(op, in, 2, &out, 1);
    if (!s) s = quern_tensor_new(q, out.type, out.rank, out.dim, NULL, y);
    if (!s) out.data = quern_tensor_data(*y), s = quern_op_run(op, in, 2, &out, 1);
    quern_op_close(op);
    return s;
}

int main(int argc, char **argv)
{
    quern *q = quern_open(NULL);
    quern_tensor *x = NULL, *y = NULL;
    struct picture p = {0};
    float *weights = NULL;
    double sigma = argc == 4 ? atof(argv[3]) : 0.1;
    if (argc < 3 || argc > 4 || !(sigma > 0)) return fprintf(stderr, "usage: filter IN.png|.pfm OUT.png|.pfm [SIGMA]\n"), 2;
    quern_status s = quern_tensor_read(q, argv[1], &x);
    if (!s && (quern_tensor_rank(x) != 4 || quern_tensor_dtype(x) != QUERN_F32)) return fprintf(stderr, "filter: '%s' is no picture\n", argv[1]), 1;
    if (!s) p = interleave(x);
    if (p.v) weights = make_weights(&p, sigma);
    if (!s && !weights) return fprintf(stderr, "filter: not enough memory\n"), 1;
    if (!s) s = apply(q, &p, weights, &y);
    if (!s) s = quern_tensor_write(q, argv[2], y);
    if (s) fprintf(stderr, "filter: %s\n", quern_error(q));
    free(weights);
    free(p.v);
    quern_tensor_free(x);
    quern_tensor_free(y);
    quern_close(q);
    return s != QUERN_OK;
}
