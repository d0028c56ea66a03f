// SPDX-License-Identifier: Apache-2.0
//
// Fixture for tests of convolutions by rows: random rows, and the requested computation.
#ifndef QUERN_TEST_CONV_FIXTURE_H
#define QUERN_TEST_CONV_FIXTURE_H

#include "lab/conv.h"

/* A valid row of small sizes; choices are repeated until one fits. most: channels of a group. */
static inline struct conv_row any_row(struct rng *r, i64 most)
{
    struct conv_row x;
    do {
        x = (struct conv_row){.axes = (u32)rng_range(r, 1, CONV_AXES), .batch = rng_range(r, 1, 3), .groups = rng_range(r, 1, 3)};
        x.is_transposed = rng_range(r, 0, 2) == 0;
        x.channels = x.groups * rng_range(r, 1, most), x.out_channels = x.groups * rng_range(r, 1, most);
        for (u32 i = 0; i < x.axes; i++) {
            x.size[i] = rng_range(r, 1, 12), x.kernel[i] = rng_range(r, 1, 4), x.stride[i] = rng_range(r, 1, 3);
            x.dilation[i] = rng_range(r, 1, 2), x.pad_begin[i] = rng_range(r, 0, 2), x.pad_end[i] = rng_range(r, 0, 2);
            if (x.is_transposed) x.output_pad[i] = rng_range(r, 0, x.stride[i] - 1);
        }
    } while (!conv_row_check(&x, &(struct err){0}));
    return x;
}

/* A random epilogue, or none. */
static inline void any_fusion(struct rng *r, struct conv_row *x)
{
    x->has_bias = rng_range(r, 0, 1) != 0;
    x->act = (enum conv_act)rng_range(r, 0, N_CONV_ACTS - 1);
}

/* The computation of a row or of a gradient: a row that conv_row_computed leaves unchanged. */
static inline struct conv_row any_pass(struct rng *r, i64 most)
{
    struct conv_row x, to;
    do {
        x = any_row(r, most);
        x.pass = (enum conv_pass)rng_range(r, 0, N_CONV_PASSES - 1);
    } while (!conv_row_computed(&to, &x, &(struct err){0}));
    return to;
}

#endif
