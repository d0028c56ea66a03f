// SPDX-License-Identifier: Apache-2.0
//
// Private to pass/: QuantizeLinear and DequantizeLinear with one constant scale and zero point for the whole tensor.
#ifndef QUERN_PASS_LINEAR_H
#define QUERN_PASS_LINEAR_H

#include "pass/pass.h"

enum {
    LINEAR_SCALE = 1, LINEAR_ZERO = 2,         /* inputs */
    LINEAR_TERMS = INT32_MAX / (255 * 255)     /* products of bytes that i32 holds the sum of, whatever they are */
};

struct linear {
    double scale;    /* of f32, positive, neither tiny nor huge: products with bytes and reciprocals are normal numbers */
    i64 zero;        /* 0 without a zero point */
    enum dtype type; /* of the quantised values: u8 or i8 */
};

/* Whether n is that operator (between f32 and bytes), alive, with such parameters. n may be 0. */
bool linear_find(const struct graph *g, node_id n, const char *op, struct linear *l);
/* Whether b, i32 by output channel, can be added to sums of that many products of bytes without overflow. */
bool linear_bias_fits(const struct tensor *b, i64 terms);
/* Inputs of n, from the first on, whose elements, or the largest of some of them, are all that the result has: of Concat all, of others 1; 0: n computes
   something else. Such operators may move bytes as well as what those stand for. */
u32 linear_n_moved(const struct node *n);
i64 linear_most(enum dtype t, i64 zero); /* largest magnitude of bytes of that type less a zero point */
bool linear_number(const struct graph *g, value_id v, double *number); /* of a constant of one element */

#endif
