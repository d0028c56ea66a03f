// SPDX-License-Identifier: Apache-2.0
//
// Weights in few bits that compensate for each other's rounding (Frantar, Ashkboos, Hoefler & Alistarh 2022, GPTQ: Accurate post-training quantization
// for generative pre-trained transformers, Algorithm 1). Terms of a layer's sums are rounded one after the other; what rounding a term changes in the
// layer's results for the samples is undone, as far as they allow, by changing the terms behind it. With H the sum of x x' over the rows x of the layer's
// input, and U the upper triangular matrix with U'U = inverse of H, the error e of term j, divided by U[j][j], changes each later term t by -e U[j][t].
//
// U is the inverse of the upper triangular N with N N' = H, which Cholesky's algorithm gives from the last row backwards. A hundredth of the mean of the
// diagonal is added to it first. Later terms are changed BATCH terms at a time, so that they pass through the caches less often.
#include "quant/quant.h"

#include <math.h>

enum { BATCH = 256 }; /* a multiple of all blocks */
static const double damping = 0.01;

static i64 terms_of(const struct quant *t, const struct quant_layer *l)
{
    const struct tensor *w = graph_value(&t->g, l->w)->data;
    return w->dim[quant_terms_axis(l)];
}

bool quant_gptq_open(struct quant *t, struct err *e)
{
    for (u32 k = 0; k < t->layer.n; k++) {
        struct quant_layer *l = &t->layer.v[k];
        i64 n = terms_of(t, l);
        if (l->is_float || attr_int(graph_node(&t->g, graph_value(&t->g, l->out)->producer), "transA", 0)) continue;
        l->squares = arena_try(t->arena, n * n * (i64)sizeof(double), e, "products of a layer's inputs");
        if (!l->squares) return false;
    }
    return true;
}

void quant_gptq_see(const struct quant_layer *l, const struct tensor *x)
{
    i64 n = x->dim[x->rank - 1];
    const float *v = x->data;
    assert(x->dtype == DT_F32);
    for (i64 row = 0; row < tensor_count(x) / i64_max(1, n); row++, v += n)
        for (i64 i = 0; i < n; i++) {
            double a = (double)v[i], *to = l->squares + i * n;
            for (i64 j = i; a != 0 && j < n; j++) to[j] += a * (double)v[j]; /* the upper triangle */
        }
}

/* h, of which the upper triangle is known, becomes N. */
static void factorise(double *h, i64 n)
{
    double mean = 0;
    for (i64 i = 0; i < n; i++) mean += h[i * n + i] / (double)n;
    for (i64 i = 0; i < n; i++) h[i * n + i] += mean > 0 ? damping * mean : 1;
    for (i64 j = n; j-- > 0;) {
        double *row = h + j * n, sum = row[j];
        for (i64 t = j + 1; t < n; t++) sum -= row[t] * row[t];
        row[j] = sqrt(fmax(sum, 1e-12 * mean + 1e-300));
        for (i64 i = 0; i < j; i++) {
            double *above = h + i * n, x = above[j];
            for (i64 t = j + 1; t < n; t++) x -= above[t] * row[t];
            above[j] = x / row[j];
        }
    }
}

/* N becomes U, its inverse: row by row from the last one on, each a combination of those below. */
static void invert(double *h, i64 n, double *sum)
{
    for (i64 i = n; i-- > 0;) {
        double *row = h + i * n, own = row[i];
        for (i64 j = i; j < n; j++) sum[j] = 0;
        for (i64 t = i + 1; t < n; t++)
            for (i64 j = t; j < n; j++) sum[j] += row[t] * h[t * n + j];
        for (i64 j = i + 1; j < n; j++) row[j] = -sum[j] / own;
        row[i] = 1 / own;
    }
}

struct rounding {
    const double *u;       /* (terms, terms) */
    float *w, *errors;     /* (terms, columns); (BATCH, columns) */
    i64 terms, columns;
};

static void subtract(const struct rounding *r, i64 term, double factor, const float *errors)
{
    float *w = r->w + term * r->columns, f = (float)factor;
    for (i64 n = 0; n < r->columns; n++) w[n] -= f * errors[n];
}

/* Rounds terms from .. end-1; later ones are changed by all of them. */
static void round_batch(struct quant_layer *l, const struct rounding *r, i64 block, i64 from, i64 end)
{
    for (i64 j = from; j < end; j++) {
        float *errors = r->errors + (j - from) * r->columns;
        if (j % block == 0) quant_weights_scale(l, r->w, j, block, r->columns);
        for (i64 n = 0; n < r->columns; n++)
            errors[n] = (float)((double)(r->w[j * r->columns + n] - quant_weights_round(l, r->w, j, n, block, r->columns)) / r->u[j * r->terms + j]);
        for (i64 t = j + 1; t < end; t++) subtract(r, t, r->u[j * r->terms + t], errors);
    }
    for (i64 t = end; t < r->terms; t++)
        for (i64 j = from; j < end; j++) subtract(r, t, r->u[j * r->terms + t], r->errors + (j - from) * r->columns);
}

bool quant_gptq_round(const struct quant *t, struct quant_layer *l, float *w, i64 terms, i64 columns, struct err *e)
{
    struct arena a = {0};
    struct rounding r = {.u = l->squares, .w = w, .terms = terms, .columns = columns};
    double *sum = arena_array(&a, double, terms);
    r.errors = arena_try(&a, BATCH * columns * (i64)sizeof(float), e, "errors of weights");
    if (r.errors) {
        factorise(l->squares, terms);
        invert(l->squares, terms, sum);
        for (i64 from = 0; from < terms; from += BATCH) round_batch(l, &r, t->opts.block, from, i64_min(from + BATCH, terms));
    }
    arena_release(&a);
    return r.errors != NULL;
}
