// SPDX-License-Identifier: Apache-2.0
//
// math_trig.c: trigonometric functions and their inverses.
//
// An argument is reduced to r in -pi/4 .. pi/4 and the number of its quadrant. Up to a
// bound a few subtractions suffice; beyond it, in a rarely taken branch, the digits of 2/pi
// that matter for the argument's exponent are multiplied with its significand in integers.
#include "kir/math.h"

struct reduced {
    kval r;
    kval quadrant; /* i32; modulo 4 */
};

static struct reduced reduce_small(const struct math *m, kval a)
{
    struct kir *k = m->k;
    kval n = kir_un(k, KI_RINT, kir_mul(k, a, math_const(m, 0.6366197723675814)));
    kval minus = kir_un(k, KI_NEG, n);
    kval first = kir_fma(k, minus, math_const(m, m->t->reduce[0]), a);
    kval part = kir_mul(k, n, math_const(m, m->t->reduce[1])), r = kir_sub(k, first, part);
    kval rest = kir_sub(k, kir_sub(k, first, r), part); /* rounding error of r */
    rest = kir_fma(k, minus, math_const(m, m->t->reduce[2]), rest);
    rest = kir_fma(k, minus, math_const(m, m->t->reduce[3]), rest);
    return (struct reduced){.r = kir_add(k, r, rest), .quadrant = kir_cast(k, DT_I32, n)};
}

/* Words of type bits, w binary digits each. */

static kval word_op(const struct math *m, enum kir_op op, kval a, u64 b)
{
    return kir_bin(m->k, op, a, math_word(m, b));
}

/* The upper word of a product, by halves. */
static kval mul_high(const struct math *m, kval a, kval b)
{
    struct kir *k = m->k;
    u32 half = (u32)dtype_size(m->t->bits) * 4;
    u64 mask = ((u64)1 << half) - 1;
    kval al = word_op(m, KI_AND, a, mask), ah = word_op(m, KI_SHR, a, half);
    kval bl = word_op(m, KI_AND, b, mask), bh = word_op(m, KI_SHR, b, half);
    kval p = kir_add(k, kir_mul(k, ah, bl), word_op(m, KI_SHR, kir_mul(k, al, bl), half));
    kval q = kir_add(k, kir_mul(k, al, bh), word_op(m, KI_AND, p, mask));
    kval r = kir_add(k, kir_mul(k, ah, bh), word_op(m, KI_SHR, p, half));
    return kir_add(k, r, word_op(m, KI_SHR, q, half));
}

/* w digits of a pair of words, from digit `shift` of the first one on; shift < w. A sum, since no
   digit is in both: compilers merge two shifts and an OR into an operation that some drivers lack. */
static kval digits_from(const struct math *m, kval hi, kval lo, kval shift)
{
    struct kir *k = m->k;
    u64 w = (u64)dtype_size(m->t->bits) * 8;
    kval rest = kir_sub(k, math_word(m, w - 1), shift);
    lo = kir_bin(k, KI_SHR, word_op(m, KI_SHR, lo, 1), rest);
    return kir_add(k, kir_bin(k, KI_SHL, hi, shift), lo);
}

/* 3 w digits of 2/pi for a = significand * 2^e, from the first one that contributes more than
   multiples of four. The table has w zeros before the point, so that no exponent needs earlier
   digits. */
static void find_digits(const struct math *m, kval a, kval digits[3])
{
    struct kir *k = m->k;
    const struct math_type *t = m->t;
    i64 w = dtype_size(t->bits) * 8, last = t->n_two_by_pi - 4;
    kval table = kir_alloc(k, KS_REG, t->bits, 1, kir_int(k, t->n_two_by_pi));
    for (u32 i = 0; i < t->n_two_by_pi; i++)
        kir_store(k, table, kir_int(k, i), kir_const_i(k, t->bits, 1, (i64)t->two_by_pi[i]));
    kval e = word_op(m, KI_SHR, kir_bits(k, t->bits, a), t->digits);
    e = word_op(m, KI_SUB, word_op(m, KI_MAX, e, (u64)t->bias + 1), (u64)t->bias + 1);
    e = word_op(m, KI_MIN, e, (u64)(last * w + w - 1)); /* infinities need a correction */
    kval shift = word_op(m, KI_AND, e, (u64)w - 1);
    kval at = kir_cast(k, DT_I64, kir_bin(k, KI_DIV, e, math_word(m, (u64)w))), word[4];
    for (i64 i = 0; i < 4; i++)
        word[i] = kir_load(k, table, kir_add(k, at, kir_const_i(k, DT_I64, m->lanes, i)));
    for (i64 i = 0; i < 3; i++) digits[i] = digits_from(m, word[i], word[i + 1], shift);
}

/* pi/2 times a fraction below one half, given as two words, the first of which has two digits
   before the point. The part that a float represents exactly is multiplied separately. */
static kval quarter_turns(const struct math *m, kval high, kval low)
{
    struct kir *k = m->k;
    const struct math_type *t = m->t;
    u32 w = (u32)dtype_size(t->bits) * 8;
    u64 mask = ((u64)1 << (w - 4 - t->digits)) - 1;
    double below = w == 32 ? 0x1p-32 : 0x1p-64, unit = 4 * below;
    kval head = kir_cast(k, t->type, word_op(m, KI_AND, high, ~mask));
    kval tail = kir_cast(k, t->type, word_op(m, KI_AND, high, mask));
    tail = kir_fma(k, kir_cast(k, t->type, low), math_const(m, below), tail);
    kval angle = math_const(m, t->pi_2[0] * unit);
    kval rest = kir_mul(k, head, math_const(m, t->pi_2[1] * unit));
    return kir_fma(k, head, angle, kir_fma(k, tail, angle, rest));
}

static struct reduced reduce_large(const struct math *m, kval a)
{
    struct kir *k = m->k;
    const struct math_type *t = m->t;
    u32 w = (u32)dtype_size(t->bits) * 8;
    kval digits[3];
    find_digits(m, a, digits);
    /* The significand in the upper end of a word; two words of the product modulo four. */
    kval s = word_op(m, KI_SHL, kir_bits(k, t->bits, a), w - 1 - t->digits);
    s = word_op(m, KI_OR, s, (u64)1 << (w - 1));
    kval low = kir_mul(k, s, digits[1]), carry;
    low = kir_add(k, low, mul_high(m, s, digits[2]));
    carry = kir_lt(k, low, kir_mul(k, s, digits[1]));
    kval high = kir_add(k, kir_mul(k, s, digits[0]), mul_high(m, s, digits[1]));
    high = kir_add(k, high, kir_select(k, carry, math_word(m, 1), math_word(m, 0)));
    /* The nearest quadrant; the remaining fraction is negative from one half on. */
    u64 fraction = ((u64)1 << (w - 2)) - 1;
    kval q = word_op(m, KI_SHR, word_op(m, KI_ADD, high, (u64)1 << (w - 3)), w - 2);
    kval left = word_op(m, KI_AND, high, fraction);
    kval is_neg = kir_bin(k, KI_LE, math_word(m, (u64)1 << (w - 3)), left);
    left = kir_select(k, is_neg, word_op(m, KI_XOR, left, fraction), left);
    low = kir_select(k, is_neg, kir_un(k, KI_NOT, low), low);
    kval r = quarter_turns(m, left, low);
    r = kir_select(k, is_neg, kir_un(k, KI_NEG, r), r);
    return (struct reduced){.r = r, .quadrant = kir_cast(k, DT_I32, q)};
}

static kval any(const struct math *m, kval cond)
{
    struct kir *k = m->k;
    if (m->lanes == 1) return cond;
    kval x = kir_select(k, cond, math_const(m, 1), math_const(m, 0));
    return kir_lt(k, kir_const_f(k, m->t->type, 1, 0), kir_un(k, KI_HMAX, x));
}

/* a >= 0 */
static struct reduced reduce(const struct math *m, kval a)
{
    struct kir *k = m->k;
    kval zero = kir_int(k, 0), one = kir_int(k, 1);
    struct reduced s = reduce_small(m, a), r;
    kval value = kir_alloc(k, KS_REG, m->t->type, m->lanes, one);
    kval quadrant = kir_alloc(k, KS_REG, DT_I32, m->lanes, one);
    kir_store(k, value, zero, s.r);
    kir_store(k, quadrant, zero, s.quadrant);
    kval is_large = kir_lt(k, math_const(m, m->t->reduce_max), a);
    kir_if(k, any(m, is_large));
    struct reduced l = reduce_large(m, a);
    kir_store(k, value, zero, kir_select(k, is_large, l.r, s.r));
    kir_store(k, quadrant, zero, kir_select(k, is_large, l.quadrant, s.quadrant));
    kir_end(k);
    r.r = kir_load(k, value, zero);
    r.quadrant = kir_load(k, quadrant, zero);
    kval is_finite = kir_lt(k, a, math_const(m, __builtin_inf()));
    r.r = kir_select(k, is_finite, r.r, math_const(m, __builtin_nan("")));
    return r;
}

static kval sin_poly(const struct math *m, kval r)
{
    kval z = kir_mul(m->k, r, r);
    return kir_fma(m->k, kir_mul(m->k, r, z), math_poly(m, &m->t->sin, z), r);
}

static kval cos_poly(const struct math *m, kval r)
{
    struct kir *k = m->k;
    kval z = kir_mul(k, r, r), h = kir_fma(k, z, math_const(m, -0.5), math_const(m, 1));
    return kir_fma(k, kir_mul(k, z, z), math_poly(m, &m->t->cos, z), h);
}

/* The sign bit from bit 1 of an i32. */
static kval bit1_as_sign(const struct math *m, kval i)
{
    struct kir *k = m->k;
    kval two = kir_const_i(k, DT_I32, m->lanes, 2);
    kval bit = kir_cast(k, m->t->bits, kir_bin(k, KI_AND, i, two));
    return word_op(m, KI_SHL, bit, (u64)dtype_size(m->t->bits) * 8 - 2);
}

kval math_trig(const struct math *m, enum kir_op op, kval x)
{
    struct kir *k = m->k;
    struct reduced a = reduce(m, math_abs(m, x));
    kval s = sin_poly(m, a.r), c = cos_poly(m, a.r), sign = math_sign(m, x);
    kval one = kir_const_i(k, DT_I32, m->lanes, 1);
    kval odd = kir_bin(k, KI_EQ, kir_bin(k, KI_AND, a.quadrant, one), one);
    if (op == KI_TAN) {
        kval t = kir_select(k, odd, kir_un(k, KI_NEG, c), s);
        return math_flip(m, kir_div(k, t, kir_select(k, odd, s, c)), sign);
    }
    if (op == KI_COS)
        return math_flip(m, kir_select(k, odd, s, c), bit1_as_sign(m, kir_add(k, a.quadrant, one)));
    assert(op == KI_SIN);
    kval r = math_flip(m, kir_select(k, odd, c, s), bit1_as_sign(m, a.quadrant));
    return math_flip(m, r, sign);
}

/* Inverses. */

static kval atan_of(const struct math *m, kval x)
{
    struct kir *k = m->k;
    kval a = math_abs(m, x), one = math_const(m, 1), zero = math_const(m, 0);
    kval is_high = kir_lt(k, math_const(m, 2.414213562373095), a); /* tan(3 pi / 8) */
    kval is_low = kir_lt(k, a, math_const(m, 0.4142135623730950)); /* tan(pi / 8) */
    kval num = kir_select(k, is_low, a, kir_sub(k, a, one));
    kval den = kir_select(k, is_low, one, kir_add(k, a, one));
    num = kir_select(k, is_high, math_const(m, -1), num);
    kval t = kir_div(k, num, kir_select(k, is_high, a, den)), z = kir_mul(k, t, t), base[2];
    for (i64 i = 0; i < 2; i++) {
        kval quarter = math_const(m, m->t->pi_2[i] / 2);
        base[i] = kir_select(k, is_low, zero, quarter);
        base[i] = kir_select(k, is_high, math_const(m, m->t->pi_2[i]), base[i]);
    }
    kval r = kir_fma(k, kir_mul(k, t, z), math_poly(m, &m->t->atan, z), t);
    r = kir_add(k, base[0], kir_add(k, r, base[1]));
    return math_flip(m, r, math_sign(m, x));
}

/* pi/2 - x */
static kval right_angle_less(const struct math *m, kval x)
{
    struct kir *k = m->k;
    return kir_sub(k, math_const(m, m->t->pi_2[0]), kir_sub(k, x, math_const(m, m->t->pi_2[1])));
}

/* asin(a) up to 1/2; beyond it asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)). */
static kval asin_acos(const struct math *m, enum kir_op op, kval x)
{
    struct kir *k = m->k;
    kval a = math_abs(m, x), one = math_const(m, 1), half = math_const(m, 0.5);
    kval is_large = kir_lt(k, half, a), sign = math_sign(m, x), r;
    kval z = kir_select(k, is_large, kir_mul(k, kir_sub(k, one, a), half), kir_mul(k, a, a));
    kval s = kir_select(k, is_large, kir_un(k, KI_SQRT, z), a);
    kval p = kir_fma(k, kir_mul(k, s, z), math_poly(m, &m->t->asin, z), s);
    kval twice = kir_add(k, p, p);
    if (op == KI_ASIN) {
        r = math_flip(m, kir_select(k, is_large, right_angle_less(m, twice), p), sign);
    } else {
        kval far = right_angle_less(m, p); /* half of pi - 2 p */
        far = kir_select(k, kir_lt(k, x, math_const(m, 0)), kir_add(k, far, far), twice);
        r = kir_select(k, is_large, far, right_angle_less(m, math_flip(m, p, sign)));
    }
    return kir_select(k, kir_bin(k, KI_LE, a, one), r, math_const(m, __builtin_nan("")));
}

kval math_arc(const struct math *m, enum kir_op op, kval a)
{
    return op == KI_ATAN ? atan_of(m, a) : asin_acos(m, op, a);
}
