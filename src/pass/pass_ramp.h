// SPDX-License-Identifier: Apache-2.0
//
// Private to pass/: values that follow from the index of an element, as positions and masks of positions do, in any spelling.
#ifndef QUERN_PASS_RAMP_H
#define QUERN_PASS_RAMP_H

#include "pass/pass.h"

/* An integer value whose element at an index is base + the sum of step[a] * index[a]; step 0 along axes of size 1. */
struct ramp { sym base; i64 step[MAX_RANK]; };
bool ramp_of(struct graph *g, value_id v, struct ramp *r);
/* Likewise the elements number k along the last axis, over the other axes. */
bool ramp_of_part(struct graph *g, value_id v, u32 k, struct ramp *r);
/* A comparison of such values: right - left, over the axes of the result, plus what makes the comparison right - left >= 0. */
bool ramp_compared(struct graph *g, const struct node *n, struct ramp *r);
/* All elements have one value that is known: a constant, or moved from one, or a comparison that always has the same result. */
bool ramp_is_uniform(struct graph *g, value_id v, double *number);

bool ramp_is_one(const struct graph *g, sym s); /* a size that is 1 */
/* Positions start .. start + size - 1 exist on an axis of size dim, for certain. */
bool ramp_is_inside(struct graph *g, sym start, sym size, sym dim);
/* Where the axes of a value with ones inserted or left out are: from[a] of axis a of `to`, or -1 of size 1. false: it is not of that form. */
bool ramp_same_axes(const struct graph *g, const struct shape *from, const struct shape *to, i32 at[MAX_RANK]);

#endif
