// SPDX-License-Identifier: Apache-2.0
//
// Single elements of arrays of any type, as numbers.
//
// Conversions are total: storing a NaN in an integer yields 0, storing a number outside i64 (for
// u64: outside u64) saturates, then the value wraps to the width of the type. Storing anything but
// 0 in a bool yields 1. f64 to f16 and bf16 rounds once, to nearest even, not twice through f32.
#include "core/core.h"

#include <math.h>
#include <string.h>

float f32_to_odd(double v)
{
    float f = (float)v;
    if (isnan(v) || isinf(v) || (double)f == v) return f;
    if (isinf(f))
        return f; /* too large for f16; bf16 has the exponents of f32, and rounds up, too */
    if (!(f32_bits(f) & 1)) f = nextafterf(f, v > (double)f ? INFINITY : -INFINITY);
    return f;
}

/* Truncated to i64; modulo 2^64 for values that only u64 holds. */
static i64 f64_to_int(double v, bool to_u64)
{
    if (isnan(v)) return 0;
    if (to_u64 && v >= 0x1p63) return v >= 0x1p64 ? -1 : (i64)(u64)v;
    if (v >= 0x1p63) return INT64_MAX;
    return v < -0x1p63 ? INT64_MIN : (i64)v;
}

/* clang-format off */
double elem_f64(enum dtype t, const void *p, i64 i)
{
    switch (t) {
    case DT_F32: case DT_TF32: return (double)((const float *)p)[i];
    case DT_F64: return ((const double *)p)[i];
    case DT_F16: return (double)f16_to_f32(((const u16 *)p)[i]);
    case DT_BF16: return (double)bf16_to_f32(((const u16 *)p)[i]);
    case DT_U64: return (double)((const u64 *)p)[i];
    case DT_F8E4M3FN: case DT_F8E4M3FNUZ: case DT_F8E5M2: case DT_F8E5M2FNUZ: case DT_F8E8M0:
    case DT_F6E2M3: case DT_F6E3M2: case DT_F4E2M1: return (double)small_to_f32(t, ((const u8 *)p)[i]);
    case DT_U8: case DT_I8: case DT_U16: case DT_I16: case DT_U32: case DT_I32: case DT_I64:
    case DT_U4: case DT_I4: case DT_U2: case DT_I2:
    case DT_BOOL: return (double)elem_i64(t, p, i);
    case DT_NONE: case N_DTYPES: break;
    }
    unreachable();
}

i64 elem_i64(enum dtype t, const void *p, i64 i)
{
    switch (t) {
    case DT_U8: return ((const u8 *)p)[i];
    case DT_I8: return ((const i8 *)p)[i];
    case DT_U16: return ((const u16 *)p)[i];
    case DT_I16: return ((const i16 *)p)[i];
    case DT_U32: return ((const u32 *)p)[i];
    case DT_I32: return ((const i32 *)p)[i];
    case DT_U64: return (i64)((const u64 *)p)[i];
    case DT_I64: return ((const i64 *)p)[i];
    case DT_BOOL: return ((const u8 *)p)[i] != 0;
    case DT_U4: case DT_I4: case DT_U2: case DT_I2: return small_wrap(t, ((const u8 *)p)[i]);
    case DT_F8E4M3FN: case DT_F8E4M3FNUZ: case DT_F8E5M2: case DT_F8E5M2FNUZ: case DT_F8E8M0:
    case DT_F6E2M3: case DT_F6E3M2: case DT_F4E2M1:
    case DT_F32: case DT_F64: case DT_F16: case DT_BF16: case DT_TF32:
        return f64_to_int(elem_f64(t, p, i), false);
    case DT_NONE: case N_DTYPES: break;
    }
    unreachable();
}

void elem_set_f64(enum dtype t, void *p, i64 i, double v)
{
    switch (t) {
    case DT_F32: ((float *)p)[i] = (float)v; return;
    case DT_TF32: ((float *)p)[i] = tf32_from_f32(f32_to_odd(v)); return;
    case DT_F64: ((double *)p)[i] = v; return;
    case DT_F16: ((u16 *)p)[i] = f16_from_f32(f32_to_odd(v)); return;
    case DT_BF16: ((u16 *)p)[i] = bf16_from_f32(f32_to_odd(v)); return;
    case DT_BOOL: ((u8 *)p)[i] = v != 0; return;
    case DT_F8E4M3FN: case DT_F8E4M3FNUZ: case DT_F8E5M2: case DT_F8E5M2FNUZ: case DT_F8E8M0:
    case DT_F6E2M3: case DT_F6E3M2: case DT_F4E2M1:
        ((u8 *)p)[i] = small_from_f32(t, f32_to_odd(v), (struct small_rule){.saturate = t == DT_F8E8M0});
        return;
    case DT_U4: case DT_I4: case DT_U2: case DT_I2:
    case DT_U8: case DT_I8: case DT_U16: case DT_I16: case DT_U32: case DT_I32: case DT_U64:
    case DT_I64: elem_set_i64(t, p, i, f64_to_int(v, t == DT_U64)); return;
    case DT_NONE: case N_DTYPES: break;
    }
    unreachable();
}

void elems_f64(enum dtype t, const void *p, i64 first, i64 n, double *out)
{
    if (t == DT_F32)
        for (i64 i = 0; i < n; i++) out[i] = (double)((const float *)p)[first + i];
    else
        for (i64 i = 0; i < n; i++) out[i] = elem_f64(t, p, first + i);
}

void elems_set_f64(enum dtype t, void *p, i64 first, i64 n, const double *v)
{
    if (t == DT_F32)
        for (i64 i = 0; i < n; i++) ((float *)p)[first + i] = (float)v[i];
    else
        for (i64 i = 0; i < n; i++) elem_set_f64(t, p, first + i, v[i]);
}

void elem_set_i64(enum dtype t, void *p, i64 i, i64 v)
{
    switch (t) {
    case DT_U8: case DT_I8: ((u8 *)p)[i] = (u8)v; return;
    case DT_U16: case DT_I16: ((u16 *)p)[i] = (u16)v; return;
    case DT_U32: case DT_I32: ((u32 *)p)[i] = (u32)v; return;
    case DT_U64: case DT_I64: ((u64 *)p)[i] = (u64)v; return;
    case DT_BOOL: ((u8 *)p)[i] = v != 0; return;
    case DT_U4: case DT_I4: case DT_U2: case DT_I2: ((u8 *)p)[i] = (u8)small_wrap(t, v); return;
    case DT_F32: ((float *)p)[i] = (float)v; return; /* not through f64: one rounding */
    case DT_F8E4M3FN: case DT_F8E4M3FNUZ: case DT_F8E5M2: case DT_F8E5M2FNUZ: case DT_F8E8M0:
    case DT_F6E2M3: case DT_F6E3M2: case DT_F4E2M1:
    case DT_F64: case DT_F16: case DT_BF16: case DT_TF32: elem_set_f64(t, p, i, (double)v); return;
    case DT_NONE: case N_DTYPES: break;
    }
    unreachable();
}
/* clang-format on */
