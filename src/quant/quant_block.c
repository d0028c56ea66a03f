// SPDX-License-Identifier: Apache-2.0
//
// Blocks of weights in few bits: symmetric codes of i4 or i8, with a scale per block of terms of a sum and column. The scale of a block is the one with the
// least squared error among some around that which maps the largest weight to the end of the range (as in llama.cpp's Q4_0, make_qx_quants: for codes q of
// weights w the best scale is sum of wq / sum of qq). Scales are rounded to f16, where its precision is whole, so that they may be stored so.
#include "quant/quant.h"

#include <math.h>

u32 quant_terms_axis(const struct quant_layer *l) { return l->axis == 0 ? 1 : 0; }

static i64 most_of(const struct quant_layer *l) { return (i64)1 << (dtype_bits(l->qw->dtype) - 1); }

/* In a tensor of terms, or blocks of them, and columns as they are stored. */
static i64 stored_at(const struct quant_layer *l, const struct tensor *t, i64 term, i64 column)
{
    return quant_terms_axis(l) ? column * t->dim[1] + term : term * t->dim[1] + column;
}

i64 quant_weight_at(const struct quant_layer *l, i64 term, i64 column) { return stored_at(l, l->qw, term, column); }

float *quant_scale_at(const struct quant_layer *l, i64 block, i64 column) { return (float *)l->scale->data + stored_at(l, l->scale, block, column); }

static i64 code_of(float w, double inverse, i64 most) { return i64_max(-most, i64_min((i64)rint((double)w * inverse), most - 1)); }

struct block { /* of a column */
    const float *w;
    i64 n, step;
};

/* The best scale for the codes that 1 / inverse gives; *gain: the larger, the less error. */
static double scale_of(const struct block *b, double inverse, i64 most, double *gain)
{
    double wq = 0, qq = 0;
    for (i64 i = 0; i < b->n; i++) {
        double w = (double)b->w[i * b->step], q = (double)code_of(b->w[i * b->step], inverse, most);
        wq += w * q, qq += q * q;
    }
    *gain = qq > 0 ? wq * wq / qq : 0;
    return qq > 0 ? wq / qq : 0;
}

static float rounded(double scale)
{
    double x = fabs(scale);
    return x >= 0x1p-14 && x <= 65504 ? f16_to_f32(f16_from_f32((float)scale)) : (float)scale;
}

static float best_scale(const struct block *b, i64 most)
{
    enum { STEPS = 9 };
    double largest = 0, best = 0, best_gain = 0;
    for (i64 i = 0; i < b->n; i++)
        if (fabs((double)b->w[i * b->step]) > fabs(largest)) largest = (double)b->w[i * b->step];
    for (i64 i = -STEPS; largest != 0 && i <= STEPS; i++) {
        double gain, scale = scale_of(b, -((double)most + 0.1 * (double)i) / largest, most, &gain);
        if (gain > best_gain) best_gain = gain, best = scale;
    }
    return rounded(best);
}

void quant_weights_scale(struct quant_layer *l, const float *w, i64 term, i64 block, i64 columns)
{
    i64 terms = l->qw->dim[quant_terms_axis(l)];
    for (i64 n = 0; n < columns; n++) {
        const struct block b = {w + term * columns + n, i64_min(block, terms - term), columns};
        *quant_scale_at(l, term / block, n) = best_scale(&b, most_of(l));
    }
}

float quant_weights_round(struct quant_layer *l, const float *w, i64 term, i64 column, i64 block, i64 columns)
{
    float scale = *quant_scale_at(l, term / block, column);
    i64 q = scale != 0 ? code_of(w[term * columns + column], 1 / (double)scale, most_of(l)) : 0;
    elem_set_i64(l->qw->dtype, l->qw->data, quant_weight_at(l, term, column), q);
    return (float)q * scale;
}
