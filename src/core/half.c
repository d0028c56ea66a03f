// SPDX-License-Identifier: Apache-2.0
//
// Half floats by integer arithmetic: the same bits on every machine, with or without instructions
// for them. Rounding is to nearest even; subnormals, infinities and NaN are kept (a NaN becomes
// a quiet one).
//
// For data preparation and the reference evaluators; kernels convert in registers.
#include "core/core.h"

#include <string.h>

u32 f32_bits(float f)
{
    u32 u;
    memcpy(&u, &f, sizeof u);
    return u;
}

float f32_of_bits(u32 bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* v / 2^n rounded to nearest even, 0 < n < 32. */
static u32 shift_round(u32 v, u32 n)
{
    u32 half = 1u << (n - 1), rest = v & (2 * half - 1), q = v >> n;
    return q + (rest > half || (rest == half && (q & 1)));
}

u16 f16_from_f32(float f)
{
    u32 u = f32_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return (u16)(sign | 0x7e00 | (a >> 13 & 0x3ff)); /* NaN */
    if (a >= 0x477ff000) return (u16)(sign | 0x7c00); /* 65520 and more: infinity */
    if (a >= 0x38800000) return (u16)(sign | shift_round(a - 0x38000000, 13));
    if (a < 0x33000000) return (u16)sign; /* under half of the smallest subnormal */
    u32 mantissa = (a & 0x7fffff) | 0x800000;
    return (u16)(sign | shift_round(mantissa, 126 - (a >> 23)));
}

enum { QUIET = 1 << 22 /* of a NaN of f32: as instructions convert, which make signalling ones quiet */ };

float f16_to_f32(u16 h)
{
    u32 sign = (u32)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return f32_of_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa ? QUIET : 0));
    if (exponent) return f32_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float f = (float)mantissa * 0x1p-24f;
    return sign ? -f : f;
}

u16 bf16_from_f32(float f)
{
    u32 u = f32_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (u16)(u >> 16 | 0x40);
    return (u16)shift_round(u, 16);
}

float bf16_to_f32(u16 h) { return f32_of_bits((u32)h << 16 | ((h & 0x7fff) > 0x7f80 ? QUIET : 0)); }

void halves_to_f32(enum dtype t, const u16 *from, i64 n, float *to)
{
    assert(t == DT_F16 || t == DT_BF16);
    if (t == DT_F16)
        for (i64 i = 0; i < n; i++) to[i] = f16_to_f32(from[i]);
    else
        for (i64 i = 0; i < n; i++) to[i] = bf16_to_f32(from[i]);
}

/* A carry into the exponent is right, up to infinity; so NaN is left alone. */
float tf32_from_f32(float f)
{
    u32 u = f32_bits(f);
    if ((u & 0x7f800000) == 0x7f800000) return f;
    return f32_of_bits((u + 0x1000) & ~0x1fffu);
}
