// SPDX-License-Identifier: Apache-2.0
//
// Element types: names, sizes and kinds from the rows of dtype.inc, and access to single elements.
//
// Conversions are total: storing a NaN in an integer yields 0, storing a number outside i64 (for
// u64: outside u64) saturates, then the value wraps to the width of the type. Storing anything but
// 0 in a bool yields 1. f64 to f16 and bf16 rounds once, to nearest even, not twice through f32.
#include "core/core.h"

#include <math.h>
#include <string.h>

struct dtype_row {
    const char *name;
    int size;
    enum dtype_kind kind;
    int onnx;
};

static const struct dtype_row rows[DT_TF32 + 1] = {
    [DT_NONE] = {"none", 0, DK_NONE, 0},
#define X(id, name, size, kind, onnx) [DT_##id] = {name, size, kind, onnx},
#include "core/dtype.inc"
#undef X
    [DT_TF32] = {"tf32", 4, DK_FLOAT, 0},
};

static const struct dtype_row *row(enum dtype t)
{
    assert((unsigned)t <= DT_TF32 && rows[t].name);
    return &rows[t];
}

const char *dtype_name(enum dtype t) { return row(t)->name; }
i64 dtype_size(enum dtype t) { return row(t)->size; }
enum dtype_kind dtype_kind(enum dtype t) { return row(t)->kind; }
int dtype_onnx(enum dtype t) { return row(t)->onnx; }
bool dtype_is_float(enum dtype t) { return row(t)->kind == DK_FLOAT; }
bool dtype_is_int(enum dtype t) { return row(t)->kind == DK_INT || row(t)->kind == DK_UINT; }

i64 dtype_int_extreme(enum dtype t, bool largest)
{
    i64 bits = 8 * dtype_size(t);
    switch (dtype_kind(t)) {
    case DK_NONE:
    case DK_FLOAT: return 0;
    case DK_BOOL: return largest;
    case DK_UINT: return !largest ? 0 : bits == 64 ? -1 : ((i64)1 << bits) - 1;
    case DK_INT:
        return largest ? (i64)(~(u64)0 >> (65 - bits)) : -(i64)(~(u64)0 >> (65 - bits)) - 1;
    }
    unreachable();
}

enum dtype dtype_parse(struct str s)
{
    for (int t = 1; t < N_DTYPES; t++)
        if (str_is(s, rows[t].name)) return (enum dtype)t;
    return DT_NONE;
}

enum dtype dtype_parse_operand(struct str s)
{
    enum dtype t = str_is(s, rows[DT_TF32].name) ? DT_TF32 : dtype_parse(s);
    return dtype_is_small(t) ? DT_NONE : t;
}

enum dtype dtype_from_onnx(int onnx)
{
    for (int t = 1; t < N_DTYPES; t++)
        if (rows[t].onnx == onnx) return (enum dtype)t;
    return DT_NONE;
}

const char *dtype_onnx_name(int onnx)
{
    static const char *const other[] = {[8] = "string", [14] = "complex64", [15] = "complex128"};
    enum dtype t = dtype_from_onnx(onnx);
    if (t != DT_NONE) return dtype_name(t);
    return onnx > 0 && onnx < countof(other) && other[onnx] ? other[onnx] : onnx ? "that is unknown" : "that is not given";
}

float f32_to_odd(double v)
{
    float f = (float)v;
    if (isnan(v) || isinf(v) || (double)f == v) return f;
    if (isinf(f))
        return f; /* too large for f16; bf16 has the exponents of f32, and rounds up, too */
    u32 bits;
    memcpy(&bits, &f, sizeof bits);
    if (!(bits & 1)) f = nextafterf(f, v > (double)f ? INFINITY : -INFINITY);
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
