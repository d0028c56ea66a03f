// SPDX-License-Identifier: Apache-2.0
//
// Private to pass/: products of bytes whose sums are proven to fit i16.
#ifndef QUERN_PASS_ACC16_H
#define QUERN_PASS_ACC16_H

#include "pass/pass.h"

/* What attribute acc16 of node n, a Conv or MatMul, may be (op_acc16): of u8 by constant i8, from the weights and the largest value that the left
   operand, and what lies in its pads, may have. 0: nothing is proven, or n has other types. */
i64 acc16_of(const struct graph *g, node_id n);

#endif
