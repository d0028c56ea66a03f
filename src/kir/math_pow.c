// SPDX-License-Identifier: Apache-2.0
//
// math_pow.c: x^y = e^(y log x). The logarithm needs as many additional digits as the
// result's exponent has before its point, so it is computed as the sum of two numbers,
// by multiplications and additions with error terms. No fused operation is required,
// factors are split into halves; and multiplications must not be fused with additions.
#include "kir/math.h"

struct two { /* h + l, l small against h */
    kval h, l;
};

/* |a| >= |b|, or a = 0 */
static struct two sum_of(const struct math *m, kval a, kval b)
{
    kval s = kir_add(m->k, a, b);
    return (struct two){s, kir_sub(m->k, b, kir_sub(m->k, s, a))};
}

static kval head_of(const struct math *m, kval a)
{
    kval u = kir_bin(m->k, KI_AND, kir_bits(m->k, m->t->bits, a), math_word(m, m->t->head));
    return kir_bits(m->k, m->t->type, u);
}

static struct two product_of(const struct math *m, kval a, kval b)
{
    struct kir *k = m->k;
    kval p = kir_mul(k, a, b), ah = head_of(m, a), bh = head_of(m, b);
    kval al = kir_sub(k, a, ah), bl = kir_sub(k, b, bh);
    kval e = kir_sub(k, kir_mul(k, ah, bh), p);
    e = kir_add(k, e, kir_mul(k, ah, bl));
    e = kir_add(k, e, kir_mul(k, al, bh));
    return (struct two){p, kir_add(k, e, kir_mul(k, al, bl))};
}

static struct two mul(const struct math *m, struct two a, struct two b)
{
    struct kir *k = m->k;
    struct two p = product_of(m, a.h, b.h);
    kval cross = kir_add(k, kir_mul(k, a.h, b.l), kir_mul(k, a.l, b.h));
    return sum_of(m, p.h, kir_add(k, p.l, cross));
}

/* f / (2 + f) for f = r - 1: the quotient and the quotient of its remainder. */
static struct two quotient(const struct math *m, kval r)
{
    struct kir *k = m->k;
    kval one = math_const(m, 1), f = kir_sub(k, r, one), d = kir_add(k, r, one);
    kval rest = kir_sub(k, r, kir_sub(k, d, one)), s = kir_div(k, f, d);
    struct two p = product_of(m, s, d);
    kval left = kir_sub(k, kir_sub(k, f, p.h), p.l);
    left = kir_sub(k, left, kir_mul(k, s, rest));
    return (struct two){s, kir_div(k, left, d)};
}

/* log(r 2^n) = n log(2) + 2 s + s^3 (2/3 + s^2 ...) */
static struct two log_of(const struct math *m, kval x)
{
    struct kir *k = m->k;
    const struct math_type *t = m->t;
    kval n, r = math_split(m, x, &n);
    struct two s = quotient(m, r), z = mul(m, s, s), q, c;
    q = sum_of(m, math_const(m, t->two_thirds[0]), kir_mul(k, z.h, math_poly(m, &t->log5, z.h)));
    q.l = kir_add(k, q.l, math_const(m, t->two_thirds[1]));
    c = mul(m, mul(m, z, q), s);
    struct two l = sum_of(m, kir_add(k, s.h, s.h), c.h);
    l.l = kir_add(k, kir_add(k, l.l, c.l), kir_add(k, s.l, s.l));
    struct two a = sum_of(m, kir_mul(k, n, math_const(m, t->ln2[0])), l.h);
    a.l = kir_add(k, a.l, kir_fma(k, n, math_const(m, t->ln2[1]), l.l));
    return sum_of(m, a.h, a.l);
}

/* e^(y (l.h + l.l)) */
static kval exp_of(const struct math *m, kval y, struct two l)
{
    struct kir *k = m->k;
    struct two p = product_of(m, y, l.h);
    kval lo = math_const(m, m->t->exp_lo), hi = math_const(m, m->t->exp_hi), n;
    kval rest = kir_add(k, p.l, kir_mul(k, y, l.l));
    kval fits = kir_lt(k, math_abs(m, p.h), math_const(m, -m->t->exp_lo));
    rest = kir_select(k, fits, rest, math_const(m, 0)); /* may be NaN beside an infinity */
    kval x = kir_max(k, lo, kir_min(k, hi, p.h));
    kval e = math_exp_parts(m, x, rest, &n);
    return math_scale(m, kir_add(k, e, math_const(m, 1)), n);
}

static kval is(const struct math *m, kval x, double v)
{
    return kir_bin(m->k, KI_EQ, x, math_const(m, v));
}

static kval is_whole(const struct math *m, kval x)
{
    return kir_bin(m->k, KI_EQ, kir_un(m->k, KI_FLOOR, x), x);
}

/* Signs for negative x; 1 if the exponent or the base alone determines the result. */
static kval finish(const struct math *m, kval x, kval y, kval r)
{
    struct kir *k = m->k;
    kval one = math_const(m, 1), inf = math_const(m, __builtin_inf());
    kval half_y = kir_mul(k, y, math_const(m, 0.5)), whole = is_whole(m, y);
    kval odd = kir_bin(k, KI_AND, whole, kir_un(k, KI_NOT, is_whole(m, half_y)));
    r = math_flip(m, r, kir_select(k, odd, math_sign(m, x), math_word(m, 0)));
    kval below = kir_bin(k, KI_AND, kir_lt(k, x, math_const(m, 0)),
                         kir_lt(k, math_const(m, -__builtin_inf()), x));
    kval broken = kir_bin(k, KI_AND, below, kir_un(k, KI_NOT, whole));
    r = kir_select(k, broken, math_const(m, __builtin_nan("")), r);
    kval unit = kir_bin(k, KI_AND, is(m, x, -1), kir_bin(k, KI_EQ, math_abs(m, y), inf));
    unit = kir_bin(k, KI_OR, unit, kir_bin(k, KI_OR, is(m, x, 1), is(m, y, 0)));
    return kir_select(k, unit, one, r);
}

kval math_pow(const struct math *m, kval x, kval y)
{
    struct kir *k = m->k;
    kval a = math_abs(m, x), zero = math_const(m, 0);
    struct two l = log_of(m, a);
    kval is_finite = kir_lt(k, a, math_const(m, __builtin_inf())), is_zero = is(m, a, 0);
    l.h = kir_select(k, is_finite, l.h, a);
    l.h = kir_select(k, is_zero, math_const(m, -__builtin_inf()), l.h);
    l.l = kir_select(k, kir_bin(k, KI_AND, is_finite, kir_un(k, KI_NOT, is_zero)), l.l, zero);
    return finish(m, x, y, exp_of(m, y, l));
}
