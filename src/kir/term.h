// SPDX-License-Identifier: Apache-2.0
//
// term: the interpreter's third arithmetic, in which only the same sequence of roundings yields the
// same value. A known float (a constant, or computed from constants and integers) is itself; any
// other is a term: a hash of its operator and operands. Sums of the same terms in another order, or
// in other blocks, are different terms. So two kernels with equal results here produce the same
// bytes for all contents, provided that their compiler rounds at the same places (no contraction of
// products and sums), up to signs of zeros and payloads of NaN.
//
// Identities that hold in IEEE 754 rounding to nearest are applied: commuted operands of sums,
// products, min and max; x + 0, x * 1, x * 0 (of finite x), fma(x, y, 0) and x * y; x / 2^n and x *
// 2^-n; -x taken out of odd functions, products and sums; conversions to a type that holds the
// value. min, max and comparisons use one total order of terms, which negation reverses.
//
// A term is a NaN: its payload is 46 bits of hash and the type that holds it, its sign bit the
// negation. Of n terms two different ones collide with a probability of at most n^2 / 2^47.
#ifndef QUERN_KIR_TERM_H
#define QUERN_KIR_TERM_H

#include "kir/kir.h"

union kir_cell term_new(enum dtype t, struct rng *r); /* an unknown value of that type */
/* kir_scalar over terms. */
bool term_scalar(enum kir_op op, enum dtype t, enum dtype to, const union kir_cell x[3], union kir_cell *out);
/* A step of an operation whose order of sums, or rounding, is defined by the device (fragments,
   subgroups, dot products). */
union kir_cell term_step(enum kir_op op, enum dtype t, union kir_cell x, union kir_cell y, union kir_cell sum);
bool term_equal(union kir_cell x, union kir_cell y);

#endif
