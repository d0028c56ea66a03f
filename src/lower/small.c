// SPDX-License-Identifier: Apache-2.0
//
// small: elements of types that exist in memory only (core/small.c) as values of kernels. Kernel IR
// does not know these types: their arrays are u8 or i8, and the conversion between an element and a
// value is integer arithmetic of kernel IR, per lane, so that no language and no device needs to
// know them either. The formulas are those of small_from_f32 and small_to_f32 with both sides of
// each branch computed.
#include "lower/lower.h"

/* Constants with as many lanes as the values at hand: the builder splats. */
struct arith {
    struct kir *k;
    const struct small_float *f;
};

static kval word(const struct arith *a, u32 v) { return kir_const_i(a->k, DT_U32, 1, v); }
static kval real(const struct arith *a, double v) { return kir_const_f(a->k, DT_F32, 1, v); }
static kval op(const struct arith *a, enum kir_op o, kval x, kval y) { return kir_bin(a->k, o, x, y); }

static bool has_sign_of_zero(const struct small_float *f) { return f->bits < 8 || f->nan != 0x80; }

/* 2^n */
static double power(int n)
{
    double p = 1;
    for (; n > 0; n--) p *= 2;
    for (; n < 0; n++) p /= 2;
    return p;
}

/* f8e8m0: the exponent of an f32, that of 0 in its highest bit of mantissa. */
static kval widen_power(const struct arith *a, kval code)
{
    kval bits = op(a, KI_SHL, code, word(a, 23));
    bits = kir_select(a->k, op(a, KI_EQ, code, word(a, 0)), word(a, 0x400000), bits);
    return kir_select(a->k, op(a, KI_EQ, code, word(a, 255)), word(a, 0x7fc00000), bits);
}

static kval widen_float(const struct arith *a, kval code)
{
    struct kir *k = a->k;
    const struct small_float *f = a->f;
    u32 top = 1u << (f->bits - 1);
    kval sign = op(a, KI_SHL, op(a, KI_AND, code, word(a, top)), word(a, 32u - f->bits));
    kval low = op(a, KI_AND, code, word(a, top - 1));
    kval normal = op(a, KI_ADD, op(a, KI_SHL, low, word(a, 23u - f->mantissa)), word(a, (u32)(127 - f->bias) << 23));
    kval tiny = op(a, KI_MUL, kir_cast(k, DT_F32, low), real(a, power(1 - f->bias - f->mantissa)));
    kval bits = kir_select(k, op(a, KI_LT, low, word(a, 1u << f->mantissa)), kir_bits(k, DT_U32, tiny), normal);
    if (f->bits == 8 && has_sign_of_zero(f)) {
        if (f->over != f->nan) bits = kir_select(k, op(a, KI_EQ, low, word(a, f->over)), word(a, 0x7f800000), bits);
        u32 first = f->over == f->nan ? f->max : f->over; /* NaN is above */
        bits = kir_select(k, op(a, KI_LT, word(a, first), low), word(a, 0x7fc00000), bits);
    }
    bits = op(a, KI_OR, sign, bits);
    if (has_sign_of_zero(f)) return bits;
    return kir_select(k, op(a, KI_EQ, code, word(a, top)), word(a, 0x7fc00000), bits);
}

enum dtype emit_type(enum dtype t)
{
    if (dtype_is_small(t) && dtype_is_float(t)) return DT_F32;
    return t == DT_F16 || t == DT_BF16 ? DT_F32 : dtype_stored(t);
}

kval emit_widen(struct emit *m, enum dtype t, kval element)
{
    struct kir *k = m->k;
    if (!dtype_is_small(t)) return kir_cast(k, emit_type(t), element);
    if (!dtype_is_float(t)) return emit_wrap(m, t, element); /* callers may leave anything in the bits above */
    struct arith a = {k, small_float_of(t)};
    kval code = kir_cast(k, DT_U32, element);
    return kir_bits(k, DT_F32, a.f->mantissa ? widen_float(&a, code) : widen_power(&a, code));
}

static kval narrow_power(const struct arith *a, kval bits, struct small_rule r)
{
    struct kir *k = a->k;
    kval low = op(a, KI_AND, bits, word(a, 0x7fffffff));
    u32 up = r.round == SMALL_UP ? 0x7fffff : r.round == SMALL_DOWN ? 0 : 0x400000;
    u32 half = r.round == SMALL_UP ? 0x400000 : r.round == SMALL_DOWN ? 0x7fffff : 0x5fffff;
    kval q = op(a, KI_SHR, op(a, KI_ADD, low, word(a, up)), word(a, 23));
    kval tiny = kir_select(k, op(a, KI_LT, word(a, half), low), word(a, 1), word(a, 0));
    q = kir_select(k, op(a, KI_LT, low, word(a, 0x800000)), tiny, q);
    q = kir_select(k, op(a, KI_LT, low, word(a, 0x400000)), word(a, r.saturate ? 0 : 255), q);
    q = op(a, KI_MIN, q, word(a, r.saturate ? 254 : 255));
    kval is_nan = op(a, KI_LT, word(a, 0x7f800000), low); /* or below 0 */
    is_nan = op(a, KI_OR, is_nan, op(a, KI_LT, word(a, 0x80000000), bits));
    return kir_select(k, is_nan, word(a, 255), q);
}

static kval narrow_float(const struct arith *a, kval bits, struct small_rule r)
{
    struct kir *k = a->k;
    const struct small_float *f = a->f;
    u32 top = 1u << (f->bits - 1), s = 23u - f->mantissa, least = (u32)(128 - f->bias) << 23;
    kval low = op(a, KI_AND, bits, word(a, 0x7fffffff));
    kval sign = op(a, KI_AND, op(a, KI_SHR, bits, word(a, 32u - f->bits)), word(a, top));
    double one = power(24 - f->bias - f->mantissa); /* whose last bit is the smallest subnormal number */
    u32 one_bits = (u32)(151 - f->bias - f->mantissa) << 23;
    kval tiny = kir_bits(k, DT_U32, op(a, KI_ADD, kir_bits(k, DT_F32, low), real(a, one)));
    tiny = op(a, KI_SUB, tiny, word(a, one_bits));
    kval n = op(a, KI_SUB, low, word(a, (u32)(127 - f->bias) << 23));
    kval odd = op(a, KI_AND, op(a, KI_SHR, n, word(a, s)), word(a, 1));
    n = op(a, KI_SHR, op(a, KI_ADD, op(a, KI_ADD, n, word(a, (1u << (s - 1)) - 1)), odd), word(a, s));
    kval q = kir_select(k, op(a, KI_LT, low, word(a, least)), tiny, n);
    q = kir_select(k, op(a, KI_LT, word(a, f->max), q), word(a, r.saturate ? f->max : f->over), q);
    kval is_nan = op(a, KI_LT, word(a, 0x7f800000), low);
    if (!(f->nan & top)) q = kir_select(k, is_nan, word(a, f->nan), q);
    kval code = op(a, KI_OR, sign, q);
    if (!has_sign_of_zero(f)) code = kir_select(k, op(a, KI_EQ, q, word(a, 0)), q, code);
    return f->nan & top ? kir_select(k, is_nan, word(a, f->nan), code) : code;
}

kval emit_narrow_by(struct emit *m, enum dtype t, kval val, struct small_rule r)
{
    struct kir *k = m->k;
    struct arith a = {k, small_float_of(t)};
    kval bits = kir_bits(k, DT_U32, kir_cast(k, DT_F32, val));
    return kir_cast(k, DT_U8, a.f->mantissa ? narrow_float(&a, bits, r) : narrow_power(&a, bits, r));
}

kval emit_narrow(struct emit *m, enum dtype t, kval val)
{
    if (!dtype_is_small(t)) return kir_cast(m->k, t, val);
    if (!dtype_is_float(t)) return kir_cast(m->k, dtype_stored(t), val);
    return emit_narrow_by(m, t, val, (struct small_rule){.saturate = t == DT_F8E8M0});
}

kval emit_wrap(struct emit *m, enum dtype t, kval val)
{
    struct kir *k = m->k;
    u32 bits = (u32)dtype_bits(t);
    kval v = kir_cast(k, DT_I32, val);
    if (dtype_kind(t) == DK_UINT) return kir_cast(k, DT_U8, kir_bin(k, KI_AND, v, kir_const_i(k, DT_I32, 1, (1 << bits) - 1)));
    kval by = kir_const_i(k, DT_I32, 1, 32 - bits);
    return kir_cast(k, DT_I8, kir_bin(k, KI_SHR, kir_bin(k, KI_SHL, v, by), by));
}
