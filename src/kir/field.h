// SPDX-License-Identifier: Apache-2.0
//
// field: the interpreter's second arithmetic, without rounding. A floating-point value is a pair of
// residues: modulo the prime P = 2^31 - 69 and modulo the prime Q = (P - 1)/2 = 2^30 - 35. Sums,
// products and quotients are those of the two fields, so any rearrangement that is correct for real
// numbers is correct to the last bit. Two different rational functions of total degree d agree at
// random arguments with a probability of at most d/P (Schwartz, Fast probabilistic algorithms for
// verification of polynomial identities, JACM 27, 1980; Zippel, EUROSAM 1979; for matrix products
// Freivalds, IFIP 1977).
//
// exp(x) is 4^x mod P, x taken modulo Q: 4 generates the subgroup of order Q, so that exp(x + y) =
// exp(x) exp(y) (Wu et al., A multi-level superoptimizer for tensor programs, arXiv:2405.05751,
// section 5). The result has no residue modulo Q: an exp of it is opaque.
//
// All other functions are opaque: keyed hashes of operator and arguments, with the symmetry of odd
// and even functions. min, max and comparisons use one total order of the residues modulo P, which
// for numbers n/4096 with |n| < 2^26 is the order of numbers, and which negation reverses. Rounding
// to integers is that of numbers in this range, otherwise a small integer derived from the residue.
//
// A constant is an exact fraction: the one with a small denominator that rounds to it (1/9, 32/45),
// if there is one, else the float itself.
#ifndef QUERN_KIR_FIELD_H
#define QUERN_KIR_FIELD_H

#include "kir/kir.h"

union kir_cell field_const(double v);
union kir_cell field_int(i64 v);
union kir_cell field_random(struct rng *r);

/* A cell holds the residue modulo P in its low half, that modulo Q in its high half; 0 is 0. Halves with their highest bit set are no
   residues: infinities and NaN below, none above. */
enum { FIELD_P = 2147483579, FIELD_Q = 1073741789 };
static const u64 FIELD_SPECIAL = 0x8000000080000000;

static inline union kir_cell field_pair(u32 p, u32 q) { return (union kir_cell){.i = (i64)((u64)q << 32 | p)}; }
static inline u32 field_sum(u32 x, u32 y, u32 m) { return x + y >= m ? x + y - m : x + y; }
union kir_cell field_add_special(union kir_cell x, union kir_cell y);
union kir_cell field_mul_special(union kir_cell x, union kir_cell y);

static inline union kir_cell field_add(union kir_cell x, union kir_cell y)
{
    u64 a = (u64)x.i, b = (u64)y.i;
    if ((a | b) & FIELD_SPECIAL) return field_add_special(x, y);
    return field_pair(field_sum((u32)a, (u32)b, FIELD_P), field_sum((u32)(a >> 32), (u32)(b >> 32), FIELD_Q));
}

static inline union kir_cell field_mul(union kir_cell x, union kir_cell y)
{
    u64 a = (u64)x.i, b = (u64)y.i;
    if ((a | b) & FIELD_SPECIAL) return field_mul_special(x, y);
    return field_pair((u32)((a & UINT32_MAX) * (b & UINT32_MAX) % FIELD_P), (u32)((a >> 32) * (b >> 32) % FIELD_Q));
}

/* x * y + z, with one reduction instead of two. */
static inline union kir_cell field_fma(union kir_cell x, union kir_cell y, union kir_cell z)
{
    u64 a = (u64)x.i, b = (u64)y.i, c = (u64)z.i;
    if ((a | b | c) & FIELD_SPECIAL) return field_add(field_mul(x, y), z);
    return field_pair((u32)(((a & UINT32_MAX) * (b & UINT32_MAX) + (c & UINT32_MAX)) % FIELD_P), (u32)(((a >> 32) * (b >> 32) + (c >> 32)) % FIELD_Q));
}

/* A sum of fewer than 2^31 products that is reduced once, at its end: sums of their low and of their high halves. */
struct field_dot {
    u64 p[2], q[2]; /* low, high */
    u64 seen;       /* all bits of all operands */
};

static inline struct field_dot field_dot_from(union kir_cell x)
{
    return (struct field_dot){{(u32)(u64)x.i}, {(u64)x.i >> 32}, (u64)x.i};
}

static inline void field_dot_add(struct field_dot *d, const union kir_cell *x, const union kir_cell *y, i64 n)
{
    for (i64 i = 0; i < n; i++) {
        u64 a = (u64)x[i].i, b = (u64)y[i].i;
        u64 p = (a & UINT32_MAX) * (b & UINT32_MAX), q = (a >> 32) * (b >> 32);
        d->seen |= a | b;
        d->p[0] += p & UINT32_MAX, d->p[1] += p >> 32;
        d->q[0] += q & UINT32_MAX, d->q[1] += q >> 32;
    }
}

/* false: some operand was infinite, NaN, or had no residue modulo Q: the terms must be added one by
   one. */
static inline bool field_dot_end(const struct field_dot *d, union kir_cell *out)
{
    const u64 unit = (u64)1 << 32; /* of the high halves */
    u64 p = d->p[1] % FIELD_P * (unit % FIELD_P) % FIELD_P, q = d->q[1] % FIELD_Q * (unit % FIELD_Q) % FIELD_Q;
    *out = field_pair((u32)((p + d->p[0]) % FIELD_P), (u32)((q + d->q[0]) % FIELD_Q));
    return !(d->seen & FIELD_SPECIAL);
}

/* kir_scalar over the field: cells of float types are elements, others integers. */
bool field_scalar(enum kir_op op, enum dtype t, enum dtype to, const union kir_cell x[3], union kir_cell *out);
/* Whether the residues that both have are equal. */
bool field_equal(union kir_cell x, union kir_cell y);
union kir_cell field_nan(void);

#endif
