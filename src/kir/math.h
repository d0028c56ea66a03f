// SPDX-License-Identifier: Apache-2.0
//
// Private to expand.c and math*.c: transcendental functions as arithmetic in kernel IR, with one
// text for f32 and f64. Differences between the types (constants, lengths of polynomials) are in a
// table (math.c). All lanes are computed alike; branches are selects.
//
// A language must not reassociate. Products that are summands may be rounded or fused, except in
// POW. Infinities, NaN, signed zeros and denormals are those of the C library.
#ifndef QUERN_KIR_MATH_H
#define QUERN_KIR_MATH_H

#include "kir/kir.h"

struct math_poly { /* c[0] + c[1] x + ... */
    const double *c;
    u32 n;
};

struct math_type {
    enum dtype type, bits; /* itself, and unsigned integers of its size */
    u32 digits;            /* of the significand after the point */
    i64 bias;              /* of the exponent */
    u64 sqrt_half;         /* bits of sqrt(1/2) */
    u64 head;              /* mask of the upper half of the significand, and all above */
    double least, lift;    /* smallest normal number; a power of two that makes denormals normal */
    i64 n_lift;            /* its exponent */
    double huge;           /* 1 + huge == huge, huge * huge is finite */
    double exp_lo, exp_hi; /* the exponential of anything beyond is infinite or 0: one of whose factors
                              is 0 then (math_scale), as underflow is slow and masks are common */
    double ln2[2];         /* sums, exact enough: n * ln2[0] is exact for exponents n */
    double pi_2[2];        /* pi/2 rounded, and the rest */
    double reduce[4];      /* pi/2 as a sum: n times the first three is exact for small n */
    double reduce_max;     /* limit of arguments reduced this way */
    const u64 *two_by_pi;  /* words of its binary digits, one empty word before them */
    u32 n_two_by_pi;
    double two_thirds[2];
    double tanh_max, erf_max;   /* 1 from here on */
    double erf_small;           /* end of the interval of `erf` */
    double erfc_mid, erfc_half; /* of the interval of `erfc` */
    struct math_poly expm1;     /* (e^x - 1 - x) / x^2 */
    struct math_poly log;       /* (2 atanh(s) / s - 2) / s^2 in s^2 */
    struct math_poly log5;      /* (what `log` is - 2/3) / s^2 */
    struct math_poly sin;       /* (sin(x) / x - 1) / x^2 in x^2, up to pi/4 */
    struct math_poly cos;       /* (cos(x) - 1 + x^2 / 2) / x^4 in x^2 */
    struct math_poly atan;      /* (atan(x) / x - 1) / x^2 in x^2, up to tan(pi/8) */
    struct math_poly asin;      /* (asin(x) / x - 1) / x^2 in x^2, up to 1/2 */
    struct math_poly erf;       /* erf(x) / x - 1 in x^2, up to erf_small */
    struct math_poly erfc_root; /* (1 - erf(x))^(1/4) from erf_small on; none: */
    struct math_poly erfc;      /* e^(x^2) (1 - erf(x)) in (x - erfc_mid) / erfc_half, from there on */
};

struct math {
    struct kir *k;
    const struct math_type *t;
    u32 lanes;
};

/* math.c */
const struct math_type *math_type(enum dtype t); /* NULL: none */
kval math_const(const struct math *m, double v);
kval math_word(const struct math *m, u64 v); /* of type bits */
kval math_poly(const struct math *m, const struct math_poly *p, kval x);
kval math_abs(const struct math *m, kval x);
kval math_sign(const struct math *m, kval x);            /* its sign bit, of type bits */
kval math_flip(const struct math *m, kval x, kval sign); /* x with its sign changed by such a bit */
kval math_power_of_two(const struct math *m, kval n);    /* 2^n, a normal number; n an integer as float */
kval math_scale(const struct math *m, kval x, kval n);   /* x * 2^n, n an integer as float */
kval math_split(const struct math *m, kval x,
                kval *n); /* x > 0 as r * 2^n, sqrt(1/2) <= r < sqrt(2) */

/* math_trig.c, math_exp.c, math_pow.c; b is the second operand of POW, else 0 */
kval math_trig(const struct math *m, enum kir_op op, kval a);
kval math_arc(const struct math *m, enum kir_op op, kval a);
kval math_exp(const struct math *m, enum kir_op op, kval a); /* EXP, LOG, hyperbolic, ERF */
kval math_pow(const struct math *m, kval a, kval b);
/* e^(x + y) - 1 = 2^n * (1 + result) - 1; y is small against x, 0: none */
kval math_exp_parts(const struct math *m, kval x, kval y, kval *n);

#endif
