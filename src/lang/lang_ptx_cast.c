// SPDX-License-Identifier: Apache-2.0
//
// lang_ptx_cast.c: conversions between types, and halves as bits. A float out of an integer's range is
// unspecified; the others are those of C, halves rounded to nearest even.
#include "lang/lang_ptx.h"

static bool is_unsigned(enum dtype t) { return dtype_kind(t) == DK_UINT; }
static bool is_half(enum dtype t) { return t == DT_F16 || t == DT_BF16; }

/* Halves. */

pval ptx_from_half(struct ptx *s, enum dtype t, pval x)
{
    i64 v;
    if (ptx_is_int(s, x, &v)) {
        float f = t == DT_F16 ? f16_to_f32((u16)v) : bf16_to_f32((u16)v);
        union { float f; u32 u; } bits = {f};
        return ptx_imm(s, PC_FLOAT, bits.u);
    }
    if (t == DT_F16) return PTX_INS(s, PC_FLOAT, "cvt.f32.f16", PTX_INS(s, PC_HALF, "cvt.u16.u32", x));
    return PTX_INS(s, PC_FLOAT, "mov.b32", PTX_INS(s, PC_WORD, "shl.b32", x, ptx_int(s, PC_WORD, 16)));
}

pval ptx_half_of(struct ptx *s, enum dtype t, pval word, u32 i)
{
    if (t == DT_BF16 && i) return PTX_INS(s, PC_FLOAT, "mov.b32", PTX_INS(s, PC_WORD, "and.b32", word, ptx_int(s, PC_WORD, -65536)));
    return ptx_from_half(s, t, i ? ptx_shr(s, word, 16) : word);
}

/* To nearest even by integers, for targets without the instruction; NaN stays one. */
static pval to_bf16(struct ptx *s, pval x)
{
    pval u = PTX_INS(s, PC_WORD, "mov.b32", x), odd = ptx_mask(s, ptx_shr(s, u, 16), 1);
    pval r = ptx_add(s, ptx_add(s, u, odd), ptx_int(s, PC_WORD, 0x7fff));
    pval quiet = PTX_INS(s, PC_WORD, "or.b32", u, ptx_int(s, PC_WORD, 0x400000));
    pval is_nan = PTX_INS(s, PC_PRED, "setp.nan.f32", x, x);
    return ptx_shr(s, PTX_INS(s, PC_WORD, "selp.b32", quiet, r, is_nan), 16);
}

pval ptx_to_half(struct ptx *s, enum dtype t, pval x)
{
    if (t == DT_F16) return PTX_INS(s, PC_WORD, "cvt.u32.u16", PTX_INS(s, PC_HALF, "cvt.rn.f16.f32", x));
    if (s->arch < 80) return to_bf16(s, ptx_reg(s, x));
    return PTX_INS(s, PC_WORD, "cvt.u32.u16", PTX_INS(s, PC_HALF, "cvt.rn.bf16.f32", x));
}

pval ptx_to_halves(struct ptx *s, enum dtype t, pval lo, pval hi)
{
    if (s->arch >= 80) return PTX_INS(s, PC_WORD, t == DT_F16 ? "cvt.rn.f16x2.f32" : "cvt.rn.bf16x2.f32", hi, lo);
    pval a = ptx_to_half(s, t, lo), b = ptx_to_half(s, t, hi);
    return PTX_INS(s, PC_WORD, "prmt.b32", a, b, ptx_int(s, PC_WORD, 0x5410));
}

/* Casts. */

static pval to_bool(struct ptx *s, pval x)
{
    enum ptx_class c = ptx_class(s, x);
    static const char *const test[N_PTX_CLASSES] = {
        [PC_WORD] = "setp.ne.s32", [PC_LONG] = "setp.ne.s64", [PC_FLOAT] = "setp.neu.f32", [PC_DOUBLE] = "setp.neu.f64"};
    return c == PC_PRED ? x : PTX_INS(s, PC_PRED, test[c], ptx_reg(s, x), ptx_imm(s, c, 0));
}

static pval from_bool(struct ptx *s, enum dtype to, enum ptx_class c, pval x)
{
    static const char *const name[N_PTX_CLASSES] = {
        [PC_WORD] = "selp.b32", [PC_LONG] = "selp.b64", [PC_FLOAT] = "selp.f32", [PC_DOUBLE] = "selp.f64"};
    static const u64 ones[N_PTX_CLASSES] = {[PC_WORD] = 1, [PC_LONG] = 1, [PC_FLOAT] = 0x3f800000, [PC_DOUBLE] = 0x3ff0000000000000};
    u64 one = to == DT_F16 ? f16_from_f32(1) : to == DT_BF16 ? bf16_from_f32(1) : ones[c];
    return PTX_INS(s, c, name[c], ptx_imm(s, c, one), ptx_imm(s, c, 0), x);
}

static pval int_to_int(struct ptx *s, enum dtype from, enum dtype to, enum ptx_class c, pval x)
{
    i64 v;
    bool fits = dtype_size(from) < dtype_size(to) && (is_unsigned(from) || !is_unsigned(to));
    if (ptx_is_int(s, x, &v) && ptx_class(s, x) == c) return ptx_wrap(s, to, x);
    if (ptx_class(s, x) == PC_WORD && c == PC_LONG) x = PTX_INS(s, c, is_unsigned(from) ? "cvt.u64.u32" : "cvt.s64.s32", x);
    else if (ptx_class(s, x) == PC_LONG && c == PC_WORD) x = PTX_INS(s, c, "cvt.u32.u64", x);
    return fits || c == PC_LONG ? x : ptx_wrap(s, to, x);
}

/* Small unsigned types are taken by way of a wide signed one, and wrap. */
static pval float_to_int(struct ptx *s, enum dtype to, enum ptx_class c, pval x)
{
    bool is_f32 = ptx_class(s, x) == PC_FLOAT;
    if (to == DT_U64) return PTX_INS(s, c, is_f32 ? "cvt.rzi.u64.f32" : "cvt.rzi.u64.f64", x);
    if (c == PC_LONG) return PTX_INS(s, c, is_f32 ? "cvt.rzi.s64.f32" : "cvt.rzi.s64.f64", x);
    if (to == DT_U32) return PTX_INS(s, c, "cvt.u32.u64", PTX_INS(s, PC_LONG, is_f32 ? "cvt.rzi.s64.f32" : "cvt.rzi.s64.f64", x));
    return ptx_wrap(s, to, PTX_INS(s, c, is_f32 ? "cvt.rzi.s32.f32" : "cvt.rzi.s32.f64", x));
}

static pval int_to_float(struct ptx *s, enum dtype from, enum ptx_class c, pval x)
{
    bool is_long = ptx_class(s, x) == PC_LONG, is_f32 = c == PC_FLOAT;
    if (is_long && is_unsigned(from)) return PTX_INS(s, c, is_f32 ? "cvt.rn.f32.u64" : "cvt.rn.f64.u64", x);
    if (is_long) return PTX_INS(s, c, is_f32 ? "cvt.rn.f32.s64" : "cvt.rn.f64.s64", x);
    if (from == DT_U32) return PTX_INS(s, c, is_f32 ? "cvt.rn.f32.u32" : "cvt.rn.f64.u32", x);
    return PTX_INS(s, c, is_f32 ? "cvt.rn.f32.s32" : "cvt.rn.f64.s32", x);
}

static pval float_to_float(struct ptx *s, enum ptx_class c, pval x)
{
    if (ptx_class(s, x) == c) return x;
    return PTX_INS(s, c, c == PC_FLOAT ? "cvt.rn.f32.f64" : "cvt.f64.f32", x);
}

pval ptx_cast(struct ptx *s, enum dtype from, enum dtype to, pval x, enum ptx_class c)
{
    if (to == DT_BOOL) return to_bool(s, is_half(from) ? ptx_from_half(s, from, x) : x);
    if (from == DT_BOOL) return from_bool(s, to, c, x);
    if (from == to) return dtype_is_int(to) ? ptx_resize(s, x, c) : x;
    if (is_half(from)) x = ptx_from_half(s, from, x), from = DT_F32;
    x = ptx_reg(s, x);
    if (dtype_is_int(from) && dtype_is_int(to)) return int_to_int(s, from, to, c, x);
    if (dtype_is_int(to)) return float_to_int(s, to, c, x);
    enum ptx_class target = to == DT_F64 ? PC_DOUBLE : PC_FLOAT;
    x = dtype_is_int(from) ? int_to_float(s, from, target, x) : float_to_float(s, target, x);
    return is_half(to) ? ptx_to_half(s, to, x) : x;
}

pval ptx_bits(struct ptx *s, enum dtype from, enum dtype to, pval x)
{
    enum ptx_class c = ptx_class(s, x);
    bool was_float = c == PC_FLOAT || c == PC_DOUBLE, is_float = to == DT_F32 || to == DT_F64;
    if (from == DT_I64 && c == PC_WORD) x = ptx_resize(s, x, PC_LONG), c = PC_LONG;
    if (was_float != is_float) {
        bool is_long = c == PC_LONG || c == PC_DOUBLE;
        enum ptx_class r = is_float ? is_long ? PC_DOUBLE : PC_FLOAT : is_long ? PC_LONG : PC_WORD;
        return PTX_INS(s, r, is_long ? "mov.b64" : "mov.b32", ptx_reg(s, x));
    }
    bool is_bits = is_half(to) || is_half(from);
    enum dtype t = is_half(to) ? DT_U16 : to;
    return c == PC_WORD && (dtype_size(t) < 4 || is_bits) ? ptx_wrap(s, t, x) : x;
}
