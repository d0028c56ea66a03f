// SPDX-License-Identifier: Apache-2.0
//
// fold.c: the semantics of every pure operator on one lane. The builder
// folds constants with it and the interpreter falls back to it, so both
// agree by construction; languages must agree with it as well.
//
// Floats are held as double; the result of every operation is rounded to its type. For
// f32 add, sub, mul, div and sqrt this yields the correctly rounded f32 result (double
// has more than twice the digits); fma is computed in its own type. Conversions of
// values out of range of an integer saturate, NaN becomes 0: defined results here, but
// languages may yield others, so kernel families must not rely on them.
#include "kir/kir.h"

#include <math.h>

i64 kir_wrap(enum dtype t, i64 v)
{
    switch (t) {
    case DT_U8: return (u8)v;
    case DT_I8: return (i8)v;
    case DT_U16: return (u16)v;
    case DT_I16: return (i16)v;
    case DT_I32: return (i32)v;
    case DT_U32: return (u32)v;
    case DT_I64:
    case DT_U64: return v;
    case DT_BOOL: return v != 0;
    case DT_NONE:
    case DT_F32:
    case DT_F16:
    case DT_F64:
    case DT_BF16:
    case DT_TF32:
#define Y(id, ...) case DT_##id:
#include "core/dtype_small.inc"
#undef Y
    case N_DTYPES: break;
    }
    unreachable();
}

double kir_round(enum dtype t, double v)
{
    if (t == DT_F64) return v;
    if (t == DT_F32) return (float)v;
    float f = f32_to_odd(v); /* so that narrower types are rounded once */
    if (t == DT_TF32) return tf32_from_f32(f);
    return t == DT_F16 ? f16_to_f32(f16_from_f32(f)) : bf16_to_f32(bf16_from_f32(f));
}

static bool float_un(enum kir_op op, double x, double *r)
{
    switch (op) {
    case KI_NEG: *r = -x; break;
    case KI_ABS: *r = fabs(x); break;
    case KI_SQRT: *r = sqrt(x); break;
    case KI_EXP: *r = exp(x); break;
    case KI_LOG: *r = log(x); break;
    case KI_SIN: *r = sin(x); break;
    case KI_COS: *r = cos(x); break;
    case KI_TAN: *r = tan(x); break;
    case KI_ASIN: *r = asin(x); break;
    case KI_ACOS: *r = acos(x); break;
    case KI_ATAN: *r = atan(x); break;
    case KI_SINH: *r = sinh(x); break;
    case KI_COSH: *r = cosh(x); break;
    case KI_TANH: *r = tanh(x); break;
    case KI_ASINH: *r = asinh(x); break;
    case KI_ACOSH: *r = acosh(x); break;
    case KI_ATANH: *r = atanh(x); break;
    case KI_ERF: *r = erf(x); break;
    case KI_FLOOR: *r = floor(x); break;
    case KI_CEIL: *r = ceil(x); break;
    case KI_TRUNC: *r = trunc(x); break;
    case KI_RINT: *r = rint(x); break;
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KI_NOT: case KIR_CLASSIFYING:
    case KIR_BINARY: case KI_FMA: case KI_SELECT: return false;
    }
    return true;
}

static bool float_bin(enum kir_op op, double x, double y, double *r)
{
    switch (op) {
    case KI_ADD: *r = x + y; break;
    case KI_SUB: *r = x - y; break;
    case KI_MUL: *r = x * y; break;
    case KI_DIV: *r = x / y; break;
    case KI_MOD: *r = fmod(x, y); break;
    case KI_MIN: *r = x < y ? x : y; break;
    case KI_MAX: *r = x > y ? x : y; break;
    case KI_POW: *r = pow(x, y); break;
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KIR_UNARY: case KIR_LOGIC:
    case KIR_SHIFTS: case KIR_COMPARISONS: case KI_FMA: case KI_SELECT: return false;
    }
    return true;
}

static bool float_test(enum kir_op op, double x, double y, i64 *r)
{
    switch (op) {
    case KI_EQ: *r = x == y; break;
    case KI_NE: *r = x != y; break;
    case KI_LT: *r = x < y; break;
    case KI_LE: *r = x <= y; break;
    case KI_ISNAN: *r = x != x; break;
    case KI_ISINF: *r = isinf(x) != 0; break;
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KI_NEG: case KI_ABS: case KI_NOT:
    case KIR_FUNCTIONS: case KIR_ROUNDING: case KIR_ARITHMETIC: case KIR_LOGIC: case KIR_SHIFTS:
    case KI_FMA: case KI_SELECT: return false;
    }
    return true;
}

static bool scalar_float(enum kir_op op, enum dtype t, const union kir_cell x[3],
                         union kir_cell *out)
{
    double r;
    if (op == KI_FMA)
        r = t == DT_F32 ? fmaf((float)x[0].f, (float)x[1].f, (float)x[2].f)
                        : fma(x[0].f, x[1].f, x[2].f);
    else if (!float_un(op, x[0].f, &r) && !float_bin(op, x[0].f, x[1].f, &r))
        return float_test(op, x[0].f, x[1].f, &out->i);
    out->f = kir_round(t, r);
    return true;
}

static bool is_unsigned(enum dtype t)
{
    enum dtype_kind kind = dtype_kind(t);
    return kind == DK_UINT || kind == DK_BOOL;
}

/* Operands fit t, so only u64 needs operations other than those of i64. */
static i64 int_div(enum kir_op op, bool is_u, i64 a, i64 b)
{
    if (is_u) return (i64)(op == KI_DIV ? (u64)a / (u64)b : (u64)a % (u64)b);
    if (b == -1) /* INT64_MIN / -1 would trap */
        return op == KI_DIV ? (i64)(0 - (u64)a) : 0;
    return op == KI_DIV ? a / b : a % b;
}

static bool int_less(bool is_u, i64 a, i64 b) { return is_u ? (u64)a < (u64)b : a < b; }

static i64 int_pow(u64 x, i64 n)
{
    u64 r = 1;
    for (; n > 0; n >>= 1, x *= x) r = n & 1 ? r * x : r;
    return (i64)r;
}

static bool scalar_int(enum kir_op op, enum dtype t, const union kir_cell x[3], i64 *r)
{
    i64 a = x[0].i, b = x[1].i;
    bool is_u = is_unsigned(t);
    i64 bits = dtype_size(t) * 8;
    switch (op) {
    case KI_NEG: *r = (i64)(0 - (u64)a); break;
    case KI_ABS: *r = !is_u && a < 0 ? (i64)(0 - (u64)a) : a; break;
    case KI_NOT: *r = t == DT_BOOL ? !a : ~a; break;
    case KI_ADD: *r = (i64)((u64)a + (u64)b); break;
    case KI_SUB: *r = (i64)((u64)a - (u64)b); break;
    case KI_MUL: *r = (i64)((u64)a * (u64)b); break;
    case KI_FMA: *r = (i64)((u64)a * (u64)b + (u64)x[2].i); break;
    case KI_DIV:
    case KI_MOD:
        if (!b) return false;
        *r = int_div(op, is_u, a, b);
        break;
    case KI_MIN: *r = int_less(is_u, a, b) ? a : b; break;
    case KI_MAX: *r = int_less(is_u, b, a) ? a : b; break;
    case KI_POW: *r = !is_u && b < 0 ? 0 : int_pow((u64)a, b); break;
    case KI_AND: *r = a & b; break;
    case KI_OR: *r = a | b; break;
    case KI_XOR: *r = a ^ b; break;
    case KI_SHL: *r = (i64)((u64)a << (b & (bits - 1))); break;
    case KI_SHR: *r = is_u ? (i64)((u64)a >> (b & (bits - 1))) : a >> (b & (bits - 1)); break;
    case KI_EQ: *r = a == b; return true;
    case KI_NE: *r = a != b; return true;
    case KI_LT: *r = int_less(is_u, a, b); return true;
    case KI_LE: *r = !int_less(is_u, b, a); return true;
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KIR_FUNCTIONS: case KIR_ROUNDING:
    case KIR_CLASSIFYING: case KI_SELECT: return false;
    }
    *r = kir_wrap(t, *r);
    return true;
}

union kir_cell kir_dot_cell(enum dtype t, const union kir_cell *a, const union kir_cell *b, u32 n_terms,
                            union kir_cell sum)
{
    for (u32 i = 0; i < n_terms; i++)
        kir_scalar(KI_FMA, t, t, (union kir_cell[3]){a[i], b[i], sum}, &sum);
    return sum;
}

static i64 float_to_int(enum dtype to, double v)
{
    if (to == DT_BOOL) return v != 0;
    i64 bits = dtype_size(to) * 8;
    bool is_u = is_unsigned(to);
    double lo = is_u ? 0 : -ldexp(1, (int)bits - 1), hi = ldexp(1, (int)bits - !is_u);
    if (v != v) return 0;
    if (v < lo) /* the least value may compare lower: both give lo */
        return is_u ? 0 : kir_wrap(to, (i64)((u64)-1 << (bits - 1)));
    if (v >= hi) return kir_wrap(to, is_u ? -1 : (i64)(((u64)1 << (bits - 1)) - 1));
    return is_u && bits == 64 ? (i64)(u64)v : kir_wrap(to, (i64)v);
}

static double int_to_float(enum dtype from, enum dtype to, i64 v)
{
    if (to == DT_F64) return from == DT_U64 ? (double)(u64)v : (double)v;
    float f = from == DT_U64 ? (float)(u64)v : (float)v; /* one rounding */
    return kir_round(to, f);
}

bool kir_scalar(enum kir_op op, enum dtype t, enum dtype to, const union kir_cell x[3],
                union kir_cell *out)
{
    if (op == KI_CAST) {
        if (dtype_is_float(t) && dtype_is_float(to)) out->f = kir_round(to, x[0].f);
        else if (dtype_is_float(t)) out->i = float_to_int(to, x[0].f);
        else if (dtype_is_float(to)) out->f = int_to_float(t, to, x[0].i);
        else out->i = kir_wrap(to, x[0].i);
        return true;
    }
    if (op == KI_BITS) {
        u64 raw = 0;
        if (dtype_is_float(t)) elem_set_f64(t, &raw, 0, x[0].f);
        else elem_set_i64(t, &raw, 0, x[0].i);
        if (dtype_is_float(to)) out->f = elem_f64(to, &raw, 0);
        else out->i = elem_i64(to, &raw, 0);
        return true;
    }
    if (op == KI_SELECT) {
        *out = x[0].i ? x[1] : x[2];
        return true;
    }
    return dtype_is_float(t) ? scalar_float(op, t, x, out) : scalar_int(op, t, x, &out->i);
}
