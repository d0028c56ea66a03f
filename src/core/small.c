// SPDX-License-Identifier: Apache-2.0
//
// Storage-only element types (dtype_small.inc): floats of 4, 6 and 8 bits, powers
// of two (f8e8m0), integers of 2 and 4 bits. Computations use f32, or integers.
//
// In memory each element has a byte: a float its code, an integer its value (i2 and i4 sign-extended). Bits above those of the type
// are written so, but ignored when read, because other libraries write other bits. Tensors and kernels thus need no addresses within
// bytes. Files pack them: small_pack and small_unpack are the only functions for that, and dtype_bits the only indicator of packing.
//
// A float with a sign of m bits of mantissa is, as its code, an f32 whose mantissa is 23 - m bits shorter and whose
// exponent has another bias; without an infinity all codes up to the largest number's continue. f8e8m0 is the exponent
// of an f32: no sign, no zero, 255 is NaN.
#include "core/core.h"

#include <string.h>

static const struct small_float rows[N_DTYPES] = {
#define Y(id, name, kind, onnx, bits, mantissa, bias, max, over, nan) [DT_##id] = {bits, mantissa, bias, max, over, nan},
#include "core/dtype_small.inc"
#undef Y
};

bool dtype_is_small(enum dtype t) { return (unsigned)t < N_DTYPES && rows[t].bits; }
i64 dtype_bits(enum dtype t) { return dtype_is_small(t) ? rows[t].bits : 8 * dtype_size(t); }

enum dtype dtype_stored(enum dtype t)
{
    if (!dtype_is_small(t)) return t;
    return dtype_kind(t) == DK_INT ? DT_I8 : DT_U8;
}

const struct small_float *small_float_of(enum dtype t)
{
    assert(dtype_is_small(t) && dtype_is_float(t));
    return &rows[t];
}

i64 small_wrap(enum dtype t, i64 v)
{
    assert(dtype_is_small(t) && dtype_is_int(t));
    u32 drop = 64 - rows[t].bits;
    u64 up = (u64)v << drop;
    return dtype_kind(t) == DK_INT ? (i64)up >> drop : (i64)(up >> drop);
}

/* Floats. */

/* Where not, the code of -0 is NaN. */
static bool has_sign_of_zero(const struct small_float *f) { return f->bits < 8 || f->nan != 0x80; }

float small_to_f32(enum dtype t, u8 code)
{
    const struct small_float *f = small_float_of(t);
    if (!f->mantissa) return f32_of_bits(code == 255 ? 0x7fc00000 : code ? (u32)code << 23 : 0x400000);
    u32 top = 1u << (f->bits - 1), sign = code & top ? 0x80000000 : 0, a = code & (top - 1);
    bool is_nan = has_sign_of_zero(f) ? a > f->max && (a != f->over || f->over == f->nan) : code == top;
    if (is_nan) return f32_of_bits(sign | 0x7fc00000);
    if (a > f->max) return f32_of_bits(sign | 0x7f800000);
    u32 lift = (u32)(127 - f->bias) << 23;
    if (a >> f->mantissa) return f32_of_bits(sign | ((a << (23 - f->mantissa)) + lift));
    /* a * 2^(1 - bias - mantissa) */
    return f32_of_bits(sign | f32_bits((float)a * f32_of_bits((u32)(128 - f->bias - f->mantissa) << 23)));
}

/* To a neighbouring power of two as the rule says; the middle between two is rounded up. */
static u8 to_power(float x, struct small_rule r)
{
    u32 u = f32_bits(x), low = r.saturate ? 0 : 255;
    if ((u & 0x7fffffff) > 0x7f800000 || (u >> 31 && u != 0x80000000)) return 255; /* NaN; no sign */
    u32 a = u & 0x7fffffff, q;
    if (a < 0x400000) return (u8)low;
    if (a < 0x800000) q = a > (r.round == SMALL_UP ? 0x400000 : r.round == SMALL_DOWN ? 0x7fffff : 0x5fffff);
    else q = (a + (r.round == SMALL_UP ? 0x7fffff : r.round == SMALL_DOWN ? 0 : 0x400000)) >> 23;
    return (u8)(q < 255 ? q : r.saturate ? 254 : 255);
}

u8 small_from_f32(enum dtype t, float x, struct small_rule r)
{
    const struct small_float *f = small_float_of(t);
    if (!f->mantissa) return to_power(x, r);
    u32 u = f32_bits(x), a = u & 0x7fffffff, top = 1u << (f->bits - 1), sign = u >> 31 ? top : 0, s = 23u - f->mantissa, q;
    if (a > 0x7f800000) return (u8)(f->nan & top ? f->nan : sign | f->nan);
    u32 least = (u32)(128 - f->bias) << 23; /* the smallest normal number */
    if (a < least) { /* a sum whose last bit is the smallest subnormal number is rounded to it */
        float one = f32_of_bits((u32)(151 - f->bias - f->mantissa) << 23);
        q = f32_bits(f32_of_bits(a) + one) - f32_bits(one);
    } else {
        a -= (u32)(127 - f->bias) << 23;
        q = (a + (1u << (s - 1)) - 1 + (a >> s & 1)) >> s;
    }
    if (q > f->max) q = r.saturate ? f->max : f->over;
    return (u8)(q == 0 && !has_sign_of_zero(f) ? 0 : sign | q);
}

/* Files: elements follow each other from the lowest bit of the first byte on. */

i64 small_packed_size(enum dtype t, i64 n)
{
    i64 bits = dtype_bits(t);
    return bits >= 8 ? n * (bits / 8) : n / 8 * bits + (n % 8 * bits + 7) / 8;
}

void small_pack(enum dtype t, const u8 *from, i64 n, u8 *to)
{
    u32 bits = (u32)dtype_bits(t), mask = (1u << bits) - 1;
    memset(to, 0, (size_t)small_packed_size(t, n));
    for (i64 i = 0; i < n; i++) {
        i64 at = i / 8 * bits + i % 8 * bits / 8;
        u32 shift = (u32)(i % 8) * bits % 8, v = (from[i] & mask) << shift;
        to[at] = (u8)(to[at] | v);
        if (v >> 8) to[at + 1] = (u8)(v >> 8);
    }
}

void small_unpack(enum dtype t, const u8 *from, i64 n, u8 *to)
{
    u32 bits = (u32)dtype_bits(t), mask = (1u << bits) - 1;
    for (i64 i = 0; i < n; i++) {
        i64 at = i / 8 * bits + i % 8 * bits / 8;
        u32 shift = (u32)(i % 8) * bits % 8, v = (u32)from[at] >> shift;
        if (shift + bits > 8) v |= (u32)from[at + 1] << (8 - shift);
        to[i] = small_clean(t, (u8)(v & mask));
    }
}

u8 small_clean(enum dtype t, u8 v)
{
    if (!dtype_is_small(t) || rows[t].bits == 8) return v;
    return dtype_is_int(t) ? (u8)small_wrap(t, v) : (u8)(v & ((1u << rows[t].bits) - 1));
}

enum dtype dtype_parse_operand(struct str s)
{
    enum dtype t = str_is(s, dtype_name(DT_TF32)) ? DT_TF32 : dtype_parse(s);
    return dtype_is_small(t) ? DT_NONE : t;
}
