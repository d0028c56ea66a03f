// SPDX-License-Identifier: Apache-2.0
//
// math_exp.c: exponential, logarithm, and functions derived from them:
// hyperbolic functions and their inverses, error function. Small arguments keep
// their relative precision because all are based on e^x - 1 and log(1 + x).
#include "kir/math.h"

/* x = n ln2 + r with |r| <= ln2 / 2; the result is e^r - 1. */
kval math_exp_parts(const struct math *m, kval x, kval y, kval *n)
{
    struct kir *k = m->k;
    *n = kir_un(k, KI_RINT, kir_mul(k, x, math_const(m, 1.4426950408889634)));
    kval minus = kir_un(k, KI_NEG, *n);
    kval r = kir_fma(k, minus, math_const(m, m->t->ln2[0]), x);
    r = kir_fma(k, minus, math_const(m, m->t->ln2[1]), r);
    if (y) r = kir_add(k, r, y);
    return kir_fma(k, kir_mul(k, r, r), math_poly(m, &m->t->expm1, r), r);
}

/* Keeps NaN. */
static kval clamp(const struct math *m, kval x, double lo, double hi)
{
    x = kir_min(m->k, math_const(m, hi), x);
    return kir_max(m->k, math_const(m, lo), x);
}

static kval exp_of(const struct math *m, kval x)
{
    kval n, p = math_exp_parts(m, clamp(m, x, m->t->exp_lo, m->t->exp_hi), 0, &n);
    return math_scale(m, kir_add(m->k, p, math_const(m, 1)), n);
}

/* log(1 + f) = f - f^2/2 + s (f^2/2 + s^2 ...) with s = f / (2 + f) */
static kval log_of(const struct math *m, kval x)
{
    struct kir *k = m->k;
    kval n, f = kir_sub(k, math_split(m, x, &n), math_const(m, 1));
    kval s = kir_div(k, f, kir_add(k, f, math_const(m, 2))), z = kir_mul(k, s, s);
    kval h = kir_mul(k, kir_mul(k, f, f), math_const(m, 0.5));
    kval r = kir_fma(k, z, math_poly(m, &m->t->log, z), h);
    r = kir_fma(k, s, r, kir_mul(k, n, math_const(m, m->t->ln2[1])));
    r = kir_sub(k, f, kir_sub(k, h, r));
    r = kir_fma(k, n, math_const(m, m->t->ln2[0]), r);
    kval zero = math_const(m, 0), inf = math_const(m, __builtin_inf());
    r = kir_select(k, kir_lt(k, x, inf), r, x);
    r = kir_select(k, kir_bin(k, KI_EQ, x, zero), math_const(m, -__builtin_inf()), r);
    return kir_select(k, kir_bin(k, KI_LE, zero, x), r, math_const(m, __builtin_nan("")));
}

/* log(1 + x) for x >= 0, with a first-order correction for the rounding of 1 + x. */
static kval log1p_of(const struct math *m, kval x)
{
    struct kir *k = m->k;
    kval one = math_const(m, 1), u = kir_add(k, x, one);
    kval lost = kir_div(k, kir_sub(k, x, kir_sub(k, u, one)), u);
    kval is_finite = kir_lt(k, x, math_const(m, __builtin_inf()));
    return kir_select(k, is_finite, kir_add(k, log_of(m, u), lost), x);
}

/* Hyperbolic functions, of a = |x|. */

/* e^a - 1 for 0 <= a <= 2 tanh_max */
static kval expm1_of(const struct math *m, kval a)
{
    kval n, p = math_exp_parts(m, a, 0, &n), two_n = math_power_of_two(m, n);
    return kir_fma(m->k, two_n, p, kir_sub(m->k, two_n, math_const(m, 1)));
}

/* e^a / 2 */
static kval half_exp(const struct math *m, kval a)
{
    kval n, p = math_exp_parts(m, clamp(m, a, 0, m->t->exp_hi + 1), 0, &n);
    p = kir_add(m->k, p, math_const(m, 1));
    return math_scale(m, p, kir_sub(m->k, n, math_const(m, 1)));
}

static kval sinh_of(const struct math *m, kval x)
{
    struct kir *k = m->k;
    kval a = math_abs(m, x), one = math_const(m, 1), half = math_const(m, 0.5);
    kval is_small = kir_lt(k, a, one);
    kval e = expm1_of(m, kir_min(k, one, a));
    kval small = kir_mul(k, kir_add(k, e, kir_div(k, e, kir_add(k, e, one))), half);
    kval h = half_exp(m, a), large = kir_sub(k, h, kir_div(k, math_const(m, 0.25), h));
    return math_flip(m, kir_select(k, is_small, small, large), math_sign(m, x));
}

static kval cosh_of(const struct math *m, kval x)
{
    kval h = half_exp(m, math_abs(m, x));
    return kir_add(m->k, h, kir_div(m->k, math_const(m, 0.25), h));
}

static kval tanh_of(const struct math *m, kval x)
{
    struct kir *k = m->k;
    kval a = kir_min(k, math_const(m, m->t->tanh_max), math_abs(m, x));
    kval e = expm1_of(m, kir_add(k, a, a));
    return math_flip(m, kir_div(k, e, kir_add(k, e, math_const(m, 2))), math_sign(m, x));
}

/* Their inverses. Where 1 + a is a, a suffices, and log(2 a) is log(a) + log(2). */

static kval log1p_or_log2a(const struct math *m, kval y, kval a)
{
    struct kir *k = m->k;
    kval is_huge = kir_lt(k, math_const(m, m->t->huge), a);
    kval r = log1p_of(m, kir_select(k, is_huge, a, y));
    kval more = kir_select(k, is_huge, math_const(m, 0.6931471805599453), math_const(m, 0));
    return kir_add(k, r, more);
}

/* log(a + sqrt(a^2 + 1)) */
static kval asinh_of(const struct math *m, kval x)
{
    struct kir *k = m->k;
    kval a = math_abs(m, x), one = math_const(m, 1), s = kir_mul(k, a, a);
    kval root = kir_un(k, KI_SQRT, kir_add(k, s, one));
    kval y = kir_add(k, a, kir_div(k, s, kir_add(k, root, one)));
    return math_flip(m, log1p_or_log2a(m, y, a), math_sign(m, x));
}

/* log(x + sqrt(x^2 - 1)) */
static kval acosh_of(const struct math *m, kval x)
{
    struct kir *k = m->k;
    kval one = math_const(m, 1), t = kir_sub(k, x, one);
    kval root = kir_un(k, KI_SQRT, kir_fma(k, t, t, kir_add(k, t, t)));
    kval r = log1p_or_log2a(m, kir_add(k, t, root), x);
    return kir_select(k, kir_bin(k, KI_LE, one, x), r, math_const(m, __builtin_nan("")));
}

/* log((1 + a) / (1 - a)) / 2 */
static kval atanh_of(const struct math *m, kval x)
{
    struct kir *k = m->k;
    kval a = math_abs(m, x), one = math_const(m, 1), twice = kir_add(k, a, a);
    kval y = kir_div(k, twice, kir_sub(k, one, a));
    kval is_small = kir_lt(k, a, math_const(m, 0.5)); /* a division less precise than its result */
    y = kir_select(k, is_small, kir_fma(k, y, a, twice), y);
    kval r = kir_mul(k, log1p_of(m, y), math_const(m, 0.5));
    r = kir_select(k, kir_bin(k, KI_LE, a, one), r, math_const(m, __builtin_nan("")));
    return math_flip(m, r, math_sign(m, x));
}

/* erf(a) where it is close to 1, so the precision of 1 - erf(a) is absolute: that of f32 suffices
   for a power of a short polynomial, that of f64 needs the exponential. */
static kval erf_large(const struct math *m, kval a)
{
    struct kir *k = m->k;
    const struct math_type *t = m->t;
    kval one = math_const(m, 1);
    if (t->erfc_root.n) {
        kval root = math_poly(m, &t->erfc_root, a), square = kir_mul(k, root, root);
        return kir_fma(k, kir_un(k, KI_NEG, square), square, one);
    }
    kval u = kir_mul(k, kir_sub(k, a, math_const(m, t->erfc_mid)), math_const(m, 1 / t->erfc_half));
    kval e = exp_of(m, kir_un(k, KI_NEG, kir_mul(k, a, a)));
    return kir_sub(k, one, kir_mul(k, e, math_poly(m, &t->erfc, u)));
}

static kval erf_of(const struct math *m, kval x)
{
    struct kir *k = m->k;
    const struct math_type *t = m->t;
    kval a = math_abs(m, x), small = kir_fma(k, a, math_poly(m, &t->erf, kir_mul(k, a, a)), a);
    kval large = erf_large(m, kir_min(k, math_const(m, t->erf_max), a));
    kval is_small = kir_lt(k, a, math_const(m, t->erf_small));
    return math_flip(m, kir_select(k, is_small, small, large), math_sign(m, x));
}

kval math_exp(const struct math *m, enum kir_op op, kval a)
{
    switch (op) {
    case KI_EXP: return exp_of(m, a);
    case KI_LOG: return log_of(m, a);
    case KI_SINH: return sinh_of(m, a);
    case KI_COSH: return cosh_of(m, a);
    case KI_TANH: return tanh_of(m, a);
    case KI_ASINH: return asinh_of(m, a);
    case KI_ACOSH: return acosh_of(m, a);
    case KI_ATANH: return atanh_of(m, a);
    case KI_ERF: return erf_of(m, a);
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KI_NEG: case KI_ABS: case KI_NOT:
    case KI_SQRT: case KIR_TRIGONOMETRIC: case KIR_ARCS: case KIR_ROUNDING:
    case KIR_CLASSIFYING: case KIR_BINARY: case KI_FMA: case KI_SELECT:
    default: unreachable();
    }
}
