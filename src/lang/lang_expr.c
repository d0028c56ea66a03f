// SPDX-License-Identifier: Apache-2.0
//
// lang_expr.c: expressions and statements of the shared text emitter (see lang_text.c).
//
// Language-specific parts - memory access, arrays, hints - are functions of its style.
#include "lang/lang_text.h"

#include <math.h>

enum { CHOICES = 6 }; /* see is_exact_bf16 */

/* Lanes that are emitted at once. */
static u32 width(const struct text *t, u32 lanes) { return t->style->has_vectors ? lanes : 1; }

/* Literals. */

static struct str float_text(struct text *t, enum dtype d, double v)
{
    const char *f = d == DT_F64 ? "" : "f";
    if (isnan(v) || isinf(v)) t->has_math = true;
    if (isnan(v)) return str_of(t->style->nan[d == DT_F64]);
    if (isinf(v)) return text_fmt(t, "%s%s", v < 0 ? "-" : "", t->style->infinity[d == DT_F64]);
    struct buf b = {0};
    buf_f64(&b, d == DT_F64 ? v : (float)v);
    struct str s = buf_view(&b);
    bool has_point = false;
    for (i64 i = 0; i < s.n; i++) has_point |= s.p[i] == '.' || s.p[i] == 'e';
    s = text_fmt(t, "%.*s%s%s", STR_ARG(s), has_point ? "" : ".0", f);
    buf_release(&b);
    return s;
}

static struct str int_text(struct text *t, enum dtype d, i64 v)
{
    if (d == DT_U64) return text_fmt(t, "%lluu", (unsigned long long)v);
    if (d == DT_U32) return text_fmt(t, "%uu", (u32)v);
    if (v == INT64_MIN) return S("(-9223372036854775807 - 1)");
    return text_fmt(t, "%lld", (long long)v);
}

static struct str literal(struct text *t, const struct kir_ins *x)
{
    switch (dtype_kind(x->dtype)) {
    case DK_BOOL: return text_fmt(t, "%d", x->imm.i != 0);
    case DK_INT:
    case DK_UINT: return int_text(t, x->dtype, x->imm.i);
    case DK_FLOAT:
        if (x->dtype == DT_F16) return text_fmt(t, "0x%04x", f16_from_f32((float)x->imm.f));
        if (x->dtype == DT_BF16) return text_fmt(t, "0x%04x", bf16_from_f32((float)x->imm.f));
        return float_text(t, x->dtype, x->imm.f);
    case DK_NONE:
    default: unreachable();
    }
}

static struct str call(struct text *t, const char *name, enum dtype d, u32 lanes, struct str args)
{
    struct str f = text_helper(t, name, d, lanes, DT_NONE);
    return text_fmt(t, "%.*s(%.*s)", STR_ARG(f), STR_ARG(args));
}

static enum dtype mask_type(u8 bytes)
{
    assert(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
    return bytes == 1 ? DT_I8 : bytes == 2 ? DT_I16 : bytes == 4 ? DT_I32 : DT_I64;
}

struct str text_mask(struct text *t, kval v, u32 bytes)
{
    if (t->val[v].mask == bytes) return text_value(t, v);
    struct str s = text_bare(t, v), type = text_type(t, mask_type((u8)bytes), kir_lanes(t->k, v));
    return text_fmt(t, "__builtin_convertvector(%.*s, %.*s)", STR_ARG(s), STR_ARG(type));
}

/* Conversions. */

static bool is_half(enum dtype d) { return d == DT_F16 || d == DT_BF16; }

static struct str half_to_f32(struct text *t, enum dtype d, u32 lanes, struct str s)
{
    struct str f = text_helper(t, d == DT_F16 ? "from_f16" : "from_bf16", DT_F32, lanes, DT_NONE);
    return text_fmt(t, "%.*s(%.*s)", STR_ARG(f), STR_ARG(s));
}

static struct str half_from_f32(struct text *t, enum dtype d, u32 lanes, struct str s)
{
    struct str f = text_helper(t, d == DT_F16 ? "to_f16" : "to_bf16", DT_F32, lanes, DT_NONE);
    return text_fmt(t, "%.*s(%.*s)", STR_ARG(f), STR_ARG(s));
}

static struct str convert(struct text *t, enum dtype to, u32 lanes, struct str s)
{
    struct str type = text_type(t, to, lanes);
    if (lanes == 1) return text_fmt(t, "((%.*s)%.*s)", STR_ARG(type), STR_ARG(s));
    return text_fmt(t, "__builtin_convertvector(%.*s, %.*s)", STR_ARG(s), STR_ARG(type));
}

static struct str cast_bool(struct text *t, const struct kir_ins *x)
{
    enum dtype to = is_half(x->dtype) ? DT_F32 : x->dtype;
    if (width(t, x->lanes) == 1) return convert(t, to, 1, text_value(t, x->a));
    struct str type = text_type(t, to, x->lanes), m = text_mask(t, x->a, (u32)dtype_size(to));
    if (dtype_is_float(to))
        return text_fmt(t, "__builtin_convertvector(-%.*s, %.*s)", STR_ARG(m), STR_ARG(type));
    return text_fmt(t, "((%.*s)-%.*s)", STR_ARG(type), STR_ARG(m));
}

/* Vectors of integers of one and two bytes to longer ones, which some compilers convert in parts, use a helper. */
static struct str widened(struct text *t, enum dtype *from, enum dtype to, u32 lanes, struct str s)
{
    const char *const name[] = {[DT_U8] = "widen_u8", [DT_I8] = "widen_i8", [DT_U16] = "widen_u16", [DT_I16] = "widen_i16"};
    const enum dtype d = dtype_size(to) == 2 ? DT_I16 : DT_I32;
    struct str f = text_helper(t, name[*from], d, lanes, *from);
    *from = d;
    return text_fmt(t, "%.*s(%.*s)", STR_ARG(f), STR_ARG(s));
}

/* Vectors of i32 or u32 to shorter integers likewise. fits: all elements fit; else they wrap. */
static struct str shortened(struct text *t, enum dtype from, enum dtype to, u32 lanes, struct str s, bool fits)
{
    if (lanes == 1 || dtype_size(from) != 4 || dtype_size(to) >= 4) return convert(t, to, lanes, s);
    struct str f = text_helper(t, fits ? "shorten_fit" : "shorten", to, lanes, from);
    return text_fmt(t, "%.*s(%.*s)", STR_ARG(f), STR_ARG(s));
}

/* Conversions to integers narrower than the machine's go through a wide signed one, and wrap. */
static struct str cast_float_to_int(struct text *t, enum dtype to, u32 lanes, struct str s)
{
    if (dtype_size(to) < 4) return shortened(t, DT_I32, to, lanes, convert(t, DT_I32, lanes, s), false);
    if (to == DT_U32) s = convert(t, DT_I64, lanes, s);
    return convert(t, to, lanes, s);
}

/* Whether an f32 is exactly a bf16, because it was one: chosen among, or negated, by at most `depth` instructions. Its narrowing then needs no
   rounding. */
static bool is_exact_bf16(const struct text *t, kval v, u32 depth)
{
    const struct kir_ins *x = kir_at(t->k, v);
    u32 op = x->op;
    if (op == KI_CAST) return kir_dtype(t->k, x->a) == DT_BF16;
    if (op == KI_CONST) return x->imm.f == kir_round(DT_BF16, x->imm.f);
    if (!depth--) return false;
    if (op == KI_SELECT) return is_exact_bf16(t, x->b, depth) && is_exact_bf16(t, x->c, depth);
    if (op == KI_MIN || op == KI_MAX) return is_exact_bf16(t, x->a, depth) && is_exact_bf16(t, x->b, depth);
    return (op == KI_SPLAT || op == KI_LANE || op == KI_NEG || op == KI_ABS) && is_exact_bf16(t, x->a, depth);
}

/* Whether a vector is rounded only to become integers, which the i32 nearest to its elements are or wrap to. */
static bool is_rounding_cast(const struct text *t, const struct kir_ins *x)
{
    enum dtype to = x->dtype;
    return t->style->has_vectors && x->lanes > 1 && kir_at(t->k, x->a)->op == KI_RINT && kir_dtype(t->k, x->a) == DT_F32 && t->val[x->a].nested &&
           dtype_is_int(to) && to != DT_U32 && dtype_size(to) <= 4;
}

static struct str rounding_cast(struct text *t, const struct kir_ins *x)
{
    const kval v = kir_at(t->k, x->a)->a;
    struct str s = call(t, "round_i32", DT_F32, x->lanes, text_bare(t, v));
    return x->dtype == DT_I32 ? s : shortened(t, DT_I32, x->dtype, x->lanes, s, kir_whole_in(t->k, x->a, x->dtype));
}

static struct str cast(struct text *t, const struct kir_ins *x)
{
    enum dtype from = kir_dtype(t->k, x->a), to = x->dtype;
    u32 lanes = width(t, x->lanes);
    if (from == to) return text_value(t, x->a);
    if (is_rounding_cast(t, x)) return rounding_cast(t, x);
    struct str s;
    if (from == DT_BOOL) s = cast_bool(t, x);
    else if (is_half(from)) s = half_to_f32(t, from, lanes, text_bare(t, x->a));
    else s = text_value(t, x->a);
    if (from == DT_BOOL || is_half(from)) from = is_half(to) || is_half(from) ? DT_F32 : to;
    if (to == DT_BOOL) return text_fmt(t, "(%.*s != 0)", STR_ARG(s));
    if (is_half(to)) {
        if (from != DT_F32) s = convert(t, DT_F32, lanes, s);
        else if (to == DT_BF16 && kir_dtype(t->k, x->a) == DT_F32 && is_exact_bf16(t, x->a, CHOICES)) return call(t, "bf16_of_exact", DT_F32, lanes, s);
        return half_from_f32(t, to, lanes, s);
    }
    const bool is_longer = dtype_size(to) > dtype_size(from) && (dtype_size(to) == 4 || (dtype_size(to) == 2 && dtype_is_int(to)));
    if (lanes > 1 && dtype_is_int(from) && dtype_size(from) < 4 && is_longer) s = widened(t, &from, to, lanes, s);
    if (from == to) return s;
    if (dtype_is_float(from) && dtype_is_int(to)) return cast_float_to_int(t, to, lanes, s);
    return dtype_is_int(from) && dtype_is_int(to) ? shortened(t, from, to, lanes, s, kir_whole_in(t->k, x->a, to)) : convert(t, to, lanes, s);
}

static struct str bits(struct text *t, const struct kir_ins *x)
{
    enum dtype from = text_rep(kir_dtype(t->k, x->a)), to = text_rep(x->dtype);
    u32 lanes = width(t, x->lanes);
    struct str s = text_value(t, x->a), type = text_type(t, to, lanes);
    if (from == to) return s;
    if (lanes > 1 || (dtype_is_int(from) && dtype_is_int(to)))
        return text_fmt(t, "((%.*s)%.*s)", STR_ARG(type), STR_ARG(s));
    struct str f = text_helper(t, "bits", to, 1, from);
    return text_fmt(t, "%.*s(%.*s)", STR_ARG(f), STR_ARG(s));
}

/* Operators. */

static const char *infix(enum kir_op op)
{
    static const char *const of[N_KIR_OPS] = {
        [KI_ADD] = "+", [KI_SUB] = "-", [KI_MUL] = "*", [KI_DIV] = "/",
        [KI_MOD] = "%", [KI_AND] = "&", [KI_OR] = "|",  [KI_XOR] = "^",
        [KI_EQ] = "==", [KI_NE] = "!=", [KI_LT] = "<",  [KI_LE] = "<=",
    };
    return of[op];
}

static bool is_bitwise(u32 op) { return op == KI_AND || op == KI_OR || op == KI_XOR; }

/* Whether the operator may be written infix. Integers from memory must wrap, which C's signed ones
   do not. */
static bool is_plain(const struct text *t, const struct kir_ins *x, enum dtype d)
{
    if (!infix(x->op)) return false;
    if ((x->op == KI_EQ || x->op == KI_NE || x->op == KI_LT || x->op == KI_LE) || is_bitwise(x->op)) return true;
    if (dtype_is_float(d)) return x->op != KI_MOD;
    return x->dtype == DT_I64 && !t->val[x->a].is_data && !t->val[x->b].is_data;
}

static struct str operand(struct text *t, kval v, bool bare)
{
    enum dtype d = kir_dtype(t->k, v);
    if (is_half(d)) return half_to_f32(t, d, width(t, kir_lanes(t->k, v)), text_bare(t, v));
    return bare ? text_bare(t, v) : text_value(t, v);
}

static struct str select_text(struct text *t, const struct kir_ins *x)
{
    if (width(t, x->lanes) == 1) {
        struct str c = text_value(t, x->a), a = text_value(t, x->b), b = text_value(t, x->c);
        return text_fmt(t, "(%.*s ? %.*s : %.*s)", STR_ARG(c), STR_ARG(a), STR_ARG(b));
    }
    bool is_bool = x->dtype == DT_BOOL;
    enum dtype d = is_bool ? mask_type(t->val[x->b].mask) : text_rep(x->dtype);
    u32 width = (u32)dtype_size(d);
    struct str m = text_mask(t, x->a, width);
    struct str a = is_bool ? text_mask(t, x->b, width) : text_bare(t, x->b);
    struct str b = is_bool ? text_mask(t, x->c, width) : text_bare(t, x->c);
    return call(t, "select", d, x->lanes,
                text_fmt(t, "%.*s, %.*s, %.*s", STR_ARG(m), STR_ARG(a), STR_ARG(b)));
}

/* Operators whose operands are vectors of bool. */
static struct str mask_op(struct text *t, const struct kir_ins *x)
{
    if (x->op == KI_NOT) return text_fmt(t, "(~%.*s)", STR_ARG(text_value(t, x->a)));
    u32 w = (u32)i64_max(t->val[x->a].mask, t->val[x->b].mask);
    bool swaps = x->op == KI_LT || x->op == KI_LE; /* true is -1 */
    struct str a = text_mask(t, swaps ? x->b : x->a, w), b = text_mask(t, swaps ? x->a : x->b, w);
    assert(infix(x->op));
    return text_fmt(t, "(%.*s %s %.*s)", STR_ARG(a), infix(x->op), STR_ARG(b));
}

static struct str call_op(struct text *t, const struct kir_ins *x, enum dtype d)
{
    const struct kir_op_info *info = kir_op_info(x->op);
    const kval arg[] = {x->a, x->b, x->c};
    struct str args = {0};
    for (u32 i = 0; i < info->n_args; i++) {
        struct str s = operand(t, arg[i], true);
        args = text_fmt(t, "%.*s%s%.*s", STR_ARG(args), i ? ", " : "", STR_ARG(s));
    }
    return call(t, info->name, d, width(t, kir_lanes(t->k, x->a)), args);
}

/* Non-negative i64 divided by a power of two, or its remainder; compilers divide vectors lane by
   lane. Empty: not applicable. */
static struct str by_power_of_two(struct text *t, const struct kir_ins *x)
{
    i64 d, shift = 0;
    bool is_div = x->op == KI_DIV;
    if ((!is_div && x->op != KI_MOD) || x->dtype != DT_I64 || !kir_is_const(t->k, x->b, &d)) return (struct str){0};
    if (d < 1 || (d & (d - 1)) || kir_range(t->k, x->a).lo < 0) return (struct str){0};
    struct str a = operand(t, x->a, false);
    while (d >> (shift + 1)) shift++;
    if (is_div) return text_fmt(t, "(%.*s >> %lld)", STR_ARG(a), (long long)shift);
    return text_fmt(t, "(%.*s & %lld)", STR_ARG(a), (long long)(d - 1));
}

/* The type of an operation: i64 if a result or an operand requires it. */
static enum dtype type_of_arithmetic(const struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    enum dtype d = text_dtype(t, x->a);
    for (u32 i = 1; i < kir_op_info(x->op)->n_args; i++)
        if (kir_dtype(t->k, kir_operand(x, i)) == DT_I64 && t->val[kir_operand(x, i)].is_wide) d = DT_I64;
    if (t->val[v].is_wide) d = DT_I64;
    return is_half(d) ? DT_F32 : d;
}

/* A scalar index converted to the type of the operation. */
static struct str widened_to(struct text *t, kval v, enum dtype d)
{
    bool is_narrow = d == DT_I64 && kir_dtype(t->k, v) == DT_I64 && text_dtype(t, v) != d;
    return is_narrow ? convert(t, d, 1, text_value(t, v)) : operand(t, v, false);
}

/* Multiplications, FMA and negations that round as written are calls of helpers (c.c). */
static bool is_as_written(const struct text *t, const struct kir_ins *x, enum dtype d)
{
    return t->k->as_written && t->style->has_vectors && dtype_is_float(d) && (x->op == KI_MUL || x->op == KI_FMA || x->op == KI_NEG);
}

/* Whether v is one element for all lanes, which an instruction takes from a register (c.c). */
static bool is_element(const struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    return x->op == KI_SPLAT && kir_lanes(t->k, x->a) == 1 && kir_at(t->k, x->a)->op != KI_CONST;
}

/* A multiply-add by an element; empty: it is none, or the target has no such instruction. */
static struct str multiply_by_element(struct text *t, const struct kir_ins *x, enum dtype d)
{
    bool is_b = is_element(t, x->b), has = t->style->has_vectors && t->caps && t->caps->isa.family == ISA_AARCH64;
    if (x->op != KI_FMA || !has || x->lanes * dtype_size(d) != 16 || (d != DT_F32 && d != DT_F64) || is_half(x->dtype)) return (struct str){0};
    if (!is_b && !is_element(t, x->a)) return (struct str){0};
    kval spread = kir_at(t->k, is_b ? x->b : x->a)->a;
    const struct kir_ins *lane = kir_at(t->k, spread);
    bool is_lane = lane->op == KI_LANE && !t->val[lane->a].nested && kir_lanes(t->k, lane->a) == x->lanes && kir_dtype(t->k, lane->a) == d;
    struct str one = text_bare(t, is_lane ? lane->a : spread), y = text_bare(t, is_b ? x->a : x->b);
    const char *name = is_lane ? text_fmt(t, "fma_lane%lld", (long long)lane->imm.i).p : "fma_element";
    return call(t, name, d, x->lanes, text_fmt(t, "%.*s, %.*s, %.*s", STR_ARG(one), STR_ARG(y), STR_ARG(text_bare(t, x->c))));
}

/* Multiply-adds by SVE are calls, too: of an expression gcc makes as many that replace a factor, and copies accumulators. */
static bool is_sve_fma(const struct text *t, const struct kir_ins *x, enum dtype d)
{
    bool has = t->style->has_vectors && t->caps && t->caps->isa.family == ISA_AARCH64 && t->caps->vector_bytes > 16;
    return has && x->op == KI_FMA && (d == DT_F32 || d == DT_F64) && !is_half(x->dtype) && x->lanes * dtype_size(d) == t->caps->vector_bytes;
}

static struct str arithmetic(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    enum dtype d = type_of_arithmetic(t, v);
    if (d == DT_BOOL && width(t, kir_lanes(t->k, x->a)) > 1) return mask_op(t, x);
    struct str s = by_power_of_two(t, x);
    if (!s.n) s = multiply_by_element(t, x, d);
    if (s.n) return s;
    bool is_called = is_as_written(t, x, d) || is_sve_fma(t, x, d);
    if (is_plain(t, x, d) && !is_called && dtype_kind(d) != DK_NONE) {
        struct str a = widened_to(t, x->a, d), b = operand(t, x->b, false);
        s = text_fmt(t, "(%.*s %s %.*s)", STR_ARG(a), infix(x->op), STR_ARG(b));
    } else if (x->op == KI_NEG && dtype_is_float(d) && !is_called) {
        s = text_fmt(t, "(-%.*s)", STR_ARG(operand(t, x->a, false)));
    } else if (x->op == KI_FMA && dtype_is_float(d) && t->style->has_vectors && !is_called) {
        struct str a = operand(t, x->a, false), b = operand(t, x->b, false),
                   c = operand(t, x->c, false);
        s = text_fmt(t, "(%.*s * %.*s + %.*s)", STR_ARG(a), STR_ARG(b), STR_ARG(c));
    } else if (x->op == KI_NOT && d == DT_BOOL) {
        s = text_fmt(t, "(!%.*s)", STR_ARG(text_value(t, x->a)));
    } else if (x->op == KI_ISNAN && dtype_is_float(d)) {
        struct str a = operand(t, x->a, false);
        s = text_fmt(t, "(%.*s != %.*s)", STR_ARG(a), STR_ARG(a));
    } else {
        s = call_op(t, x, d);
    }
    return is_half(x->dtype) ? half_from_f32(t, x->dtype, width(t, x->lanes), s) : s;
}

static struct str splat_text(struct text *t, const struct kir_ins *x, struct str s)
{
    enum dtype d = text_rep(x->dtype);
    if (d != DT_BOOL) return call(t, "splat", d, x->lanes, s);
    return call(t, "splat", DT_I8, x->lanes, text_fmt(t, "-%.*s", STR_ARG(s)));
}

/* An f16 in all lanes of f32: repeated, then converted, by instructions of vectors alone. Empty: v is none. */
static struct str splat_half(struct text *t, const struct kir_ins *x)
{
    const struct kir_ins *a = kir_at(t->k, x->a);
    bool is_half = a->op == KI_CAST && t->val[x->a].nested && a->dtype == DT_F32 && kir_dtype(t->k, a->a) == DT_F16;
    if (!is_half) return (struct str){0};
    return half_to_f32(t, DT_F16, x->lanes, call(t, "splat", DT_U16, x->lanes, text_bare(t, a->a)));
}

static struct str splat_value(struct text *t, const struct kir_ins *x)
{
    if (t->val[x->a].is_spread) return text_name(t, x->a);
    struct str s = splat_half(t, x);
    return s.n ? s : splat_text(t, x, x->dtype == DT_BOOL ? text_value(t, x->a) : text_bare(t, x->a));
}

/* The lanes of a vector, repeated: as one word of that many bytes, or lane by lane. */
static struct str repeat_text(struct text *t, const struct kir_ins *x)
{
    const struct kir_ins *a = kir_at(t->k, x->a);
    u32 bytes = a->lanes * (u32)dtype_size(a->dtype);
    struct str type = text_type(t, x->dtype, x->lanes), v = text_value(t, x->a);
    if (bytes <= 8) {
        enum dtype word = bytes == 2 ? DT_U16 : bytes == 4 ? DT_U32 : DT_U64;
        u32 n = x->lanes / a->lanes;
        struct str s = call(t, "splat", word, n, text_fmt(t, "(%s)%.*s", dtype_name(word), STR_ARG(v)));
        return text_fmt(t, "((%.*s)%.*s)", STR_ARG(type), STR_ARG(s));
    }
    struct str s = text_fmt(t, "__builtin_shufflevector(%.*s, %.*s", STR_ARG(v), STR_ARG(v));
    for (u32 i = 0; i < x->lanes; i++) s = text_fmt(t, "%.*s, %u", STR_ARG(s), i % a->lanes);
    return text_fmt(t, "%.*s)", STR_ARG(s));
}

/* Lanes with a stride. */
static struct str every_text(struct text *t, const struct kir_ins *x)
{
    u32 step = kir_lanes(t->k, x->a) / x->lanes;
    struct str v = text_value(t, x->a);
    struct str s = text_fmt(t, "__builtin_shufflevector(%.*s, %.*s", STR_ARG(v), STR_ARG(v));
    for (u32 i = 0; i < x->lanes; i++) s = text_fmt(t, "%.*s, %u", STR_ARG(s), (u32)x->imm.i + i * step);
    return text_fmt(t, "%.*s)", STR_ARG(s));
}

/* Instructions with an unsigned and a signed operand take the signed one second. */
static bool dot_turns(enum dtype a, enum dtype b) { return a == DT_I8 && b == DT_U8; }

bool text_has_dot(const struct caps *c, const struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    u32 bytes = (u32)dtype_size(x->dtype) * x->lanes;
    enum dtype a = kir_dtype(k, x->a), b = kir_dtype(k, x->b);
    if (x->op == KI_MMLA) return caps_has_mmla(c, a, b, x->dtype);
    return bytes >= 16 && bytes <= c->vector_bytes &&
           (dot_turns(a, b) ? caps_has_dot(c, b, a, x->dtype) : caps_has_dot(c, a, b, x->dtype));
}

/* The helper operates on words. */
static struct str dot_text(struct text *t, const struct kir_ins *x)
{
    enum dtype a = kir_dtype(t->k, x->a), b = kir_dtype(t->k, x->b);
    bool turns = x->op == KI_DOT && dot_turns(a, b);
    struct str p = text_value(t, turns ? x->b : x->a), q = text_value(t, turns ? x->a : x->b);
    struct str word = text_type(t, x->dtype == DT_I16 ? DT_I16 : DT_I32, x->lanes), sum = text_bare(t, x->c);
    struct str of = text_fmt(t, "%s_%s_%s", kir_op_info(x->op)->name, dtype_name(turns ? b : a), dtype_name(turns ? a : b));
    return call(t, str_z(t->arena, of), x->dtype, x->lanes,
                text_fmt(t, "%.*s, (%.*s)%.*s, (%.*s)%.*s", STR_ARG(sum), STR_ARG(word), STR_ARG(p), STR_ARG(word),
                         STR_ARG(q)));
}

/* Without vectors: an operand's lane. */
static struct str value_at(struct text *t, kval v, u32 lane)
{
    u32 was = t->lane;
    t->lane = lane;
    struct str s = text_value(t, v);
    t->lane = was;
    return s;
}

/* Lanes from..from+n-1 with a stride, folded in halves. */
static struct str fold_text(struct text *t, const struct kir_ins *x, u32 from, u32 step)
{
    enum dtype d = text_rep(kir_dtype(t->k, x->a));
    if (step == kir_lanes(t->k, x->a)) return value_at(t, x->a, from);
    struct str a = fold_text(t, x, from, 2 * step), b = fold_text(t, x, from + step, 2 * step);
    if (x->op == KI_HADD && dtype_is_float(d)) return text_fmt(t, "(%.*s + %.*s)", STR_ARG(a), STR_ARG(b));
    return call(t, x->op == KI_HADD ? "add" : x->op == KI_HMIN ? "min" : "max", d, 1,
                text_fmt(t, "%.*s, %.*s", STR_ARG(a), STR_ARG(b)));
}

static struct str lane_text(struct text *t, const struct kir_ins *x)
{
    if (!t->style->has_vectors)
        return value_at(t, x->a, (u32)x->imm.i + (x->lanes > 1 ? t->lane * (kir_lanes(t->k, x->a) / x->lanes) : 0));
    if (x->lanes > 1) return every_text(t, x);
    struct str v = text_value(t, x->a);
    return text_fmt(t, x->dtype == DT_BOOL ? "(%.*s[%lld] != 0)" : "%.*s[%lld]", STR_ARG(v),
                    (long long)x->imm.i);
}

static u32 zip_lane(const struct kir_ins *zip, u32 lanes, u32 i)
{
    const u32 at = (u32)zip->imm.i + i;
    return at / 2 + (at % 2 ? lanes : 0);
}

/* Halves of two interleavings of the same vectors: one permutation. Of 32 bytes it is one instruction of AVX2, unlike either of them. */
static bool are_zips(const struct text *t, const struct kir_ins *x)
{
    const struct kir_ins *a = kir_at(t->k, x->a), *b = kir_at(t->k, x->b);
    return a->op == KI_ZIP && b->op == KI_ZIP && a->a == b->a && a->b == b->b && a->lanes == x->lanes && kir_lanes(t->k, a->a) == x->lanes;
}

static struct str halves_text(struct text *t, const struct kir_ins *x)
{
    u32 half = x->lanes / 2u, from = (u32)x->imm.i * half;
    if (!t->style->has_vectors) return value_at(t, t->lane < half ? x->a : x->b, from + t->lane % half);
    const struct kir_ins *a = kir_at(t->k, x->a), *b = kir_at(t->k, x->b);
    const bool zips = are_zips(t, x);
    struct str s = text_fmt(t, "__builtin_shufflevector(%.*s, %.*s", STR_ARG(text_value(t, zips ? a->a : x->a)), STR_ARG(text_value(t, zips ? a->b : x->b)));
    for (u32 i = 0; i < x->lanes; i++) {
        const u32 lane = from + i % half;
        s = text_fmt(t, "%.*s, %u", STR_ARG(s), zips ? zip_lane(i < half ? a : b, x->lanes, lane) : lane + (i < half ? 0 : x->lanes));
    }
    return text_fmt(t, "%.*s)", STR_ARG(s));
}

static struct str zip_text(struct text *t, const struct kir_ins *x)
{
    u32 at = (u32)x->imm.i, lanes = kir_lanes(t->k, x->a);
    if (!t->style->has_vectors) return at += t->lane, value_at(t, at % 2 ? x->b : x->a, at / 2);
    struct str s = text_fmt(t, "__builtin_shufflevector(%.*s, %.*s", STR_ARG(text_value(t, x->a)), STR_ARG(text_value(t, x->b)));
    for (u32 i = 0; i < x->lanes; i++) s = text_fmt(t, "%.*s, %u", STR_ARG(s), zip_lane(x, lanes, i));
    return text_fmt(t, "%.*s)", STR_ARG(s));
}

static struct str ramp_text(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (!t->style->has_vectors) {
        struct str base = widened_to(t, x->a, text_dtype(t, v));
        i64 far = x->imm.i * t->lane;
        return far ? text_fmt(t, "(%.*s + %lld)", STR_ARG(base), (long long)far) : base;
    }
    return call(t, "ramp", DT_I64, x->lanes,
                text_fmt(t, "%.*s, %lld", STR_ARG(text_bare(t, x->a)), (long long)x->imm.i));
}

static struct str expression(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (x->role) return t->style->frag(t, v);
    switch (x->op) {
    case KI_CONST: return width(t, x->lanes) > 1 ? splat_text(t, x, literal(t, x)) : literal(t, x);
    case KI_PARAM: t->param_used[x->imm.i] = true; return text_fmt(t, "p%lld", (long long)x->imm.i);
    case KI_THREAD: return t->style->thread ? t->style->thread(t, v) : S("0");
    case KI_RAMP: return ramp_text(t, v);
    case KI_SPLAT:
        if (!t->style->has_vectors) return value_at(t, x->a, t->lane % kir_lanes(t->k, x->a));
        if (kir_lanes(t->k, x->a) > 1) return repeat_text(t, x);
        return splat_value(t, x);
    case KI_LANE: return lane_text(t, x);
    case KI_HALVES: return halves_text(t, x);
    case KI_ZIP: return zip_text(t, x);
    case KIR_DOTS: return t->style->dot ? t->style->dot(t, v) : dot_text(t, x);
    case KI_CAST: return cast(t, x);
    case KI_BITS: return bits(t, x);
    case KI_SELECT: return select_text(t, x);
    case KI_LOAD: return t->style->load(t, v);
    // clang-format off
    case KIR_UNARY: case KIR_BINARY: case KI_FMA: return arithmetic(t, v);
    case KIR_HORIZONTAL:
        return t->style->has_vectors ? arithmetic(t, v) : fold_text(t, x, 0, 1);
    case KI_SUBGROUP: case KIR_SG_REDUCTIONS: case KI_SHUFFLE:
        return t->style->thread(t, v);
    case KIR_NO_OP: case KIR_ARRAYS: case KI_STORE: case KI_TILE: case KI_PREFETCH: case KIR_CONTROL:
    case KIR_SYNC: case KIR_FRAGMENTS:
    // clang-format on
    default: unreachable();
    }
}

struct str text_name(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (x->op == KI_LOOP) return text_fmt(t, "k%u", v);
    if (x->op == KI_GRID) return text_fmt(t, "g%u", v);
    return x->lanes > width(t, x->lanes) ? text_fmt(t, "v%u_%u", v, t->lane) : text_fmt(t, "v%u", v);
}

struct str text_value(struct text *t, kval v)
{
    return t->val[v].nested ? expression(t, v) : text_name(t, v);
}

/* Without outer parentheses, if they match each other. */
static struct str strip(struct str s)
{
    if (s.n < 2 || s.p[0] != '(' || s.p[s.n - 1] != ')') return s;
    i32 depth = 0;
    for (i64 i = 0; i < s.n - 1; i++) {
        depth += (s.p[i] == '(') - (s.p[i] == ')');
        if (depth == 0) return s;
    }
    return str_sub(s, 1, s.n - 1);
}

struct str text_bare(struct text *t, kval v) { return strip(text_value(t, v)); }

/* After a comparison: operators of lower precedence keep their parentheses. */
static struct str compared(struct text *t, kval v)
{
    u32 op = kir_at(t->k, v)->op;
    return op == KI_SELECT || is_bitwise(op) ? text_value(t, v) : text_bare(t, v);
}

/* Statements. */

static void open_loop(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    struct str from = text_bare(t, x->a), to = compared(t, x->b), step = text_bare(t, x->c);
    if (t->style->loop_hint) t->style->loop_hint(t, x);
    text_line(t, "for (%s k%u = %.*s; k%u < %.*s; k%u += %.*s) {", dtype_name(text_dtype(t, v)), v, STR_ARG(from), v,
              STR_ARG(to), v, STR_ARG(step));
    t->depth++;
}

static void name_value(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (t->val[v].nested || t->val[v].uses == 0) return;
    if (x->op == KI_LOAD && t->style->load_lanes && t->style->load_lanes(t, v)) return;
    struct str type = text_value_type(t, v);
    u32 n = x->lanes / width(t, x->lanes);
    for (t->lane = 0; t->lane < n; t->lane++) {
        struct str name = text_name(t, v), s = strip(expression(t, v));
        text_line(t, "const %.*s %.*s = %.*s;", STR_ARG(type), STR_ARG(name), STR_ARG(s));
    }
    t->lane = 0;
}

static void statement(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (t->style->statement && t->style->statement(t, v)) return;
    switch (x->op) {
    case KI_LOOP: open_loop(t, v); break;
    case KI_IF:
        text_line(t, "if (%.*s) {", STR_ARG(text_bare(t, x->a)));
        t->depth++;
        break;
    case KI_ELSE:
        t->depth--;
        text_line(t, "} else {");
        t->depth++;
        break;
    case KI_END:
        t->depth--;
        text_line(t, "}");
        break;
    case KI_STORE: t->style->store(t, v); break;
    case KI_FSTORE: t->style->frag_store(t, v); break;
    case KI_PREFETCH: t->style->prefetch(t, v); break;
    case KI_ALLOC: t->style->alloc(t, v); break;
    case KI_BARRIER:
        if (t->style->barrier) t->style->barrier(t);
        break;
    case KI_TILE: t->style->tile(t, v); break;
    case KI_AWAIT:
        if (t->style->await) t->style->await(t, v);
        break;
    case KI_GRID:
    case KI_BUF:
    case KIR_NO_OP: break;
    case KIR_LEAVES: case KIR_LANES: case KIR_LANEWISE: case KIR_DOTS: case KI_LOAD:
    case KIR_SG_REDUCTIONS: case KI_SHUFFLE: case KI_FILL: case KI_FLOAD: case KI_FMMA: name_value(t, v); break;
    }
}

void text_body(struct text *t, kval from, kval to)
{
    for (kval v = from; v < to; v++) statement(t, v);
}
