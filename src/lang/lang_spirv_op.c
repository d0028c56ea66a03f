// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_op.c: pure operators on one lane, with the exact semantics of kir.inc.
// Small integers are words that hold a value of their type: operations that may leave
// that range are followed by a truncation. Nothing relies on a driver's treatment of
// NaN: min and max are comparisons, isnan examines the bits. Remainders are computed
// from quotients, because Vulkan leaves OpSRem of negative operands undefined.
#include "lang/lang_spirv.h"

#include <math.h>

/* Instructions of GLSL.std.450 with bounded errors. */
enum {
    GLSL_ROUND_EVEN = 2,
    GLSL_TRUNC = 3,
    GLSL_FABS = 4,
    GLSL_SABS = 5,
    GLSL_FLOOR = 8,
    GLSL_CEIL = 9,
    GLSL_SQRT = 31,
    GLSL_FMA = 50,
};

static bool is_signed(enum dtype t) { return dtype_kind(t) == DK_INT; }

/* Small integers. */

u32 spv_wrap(struct spv *s, enum dtype t, u32 x)
{
    u32 bits = (u32)dtype_size(t) * 8;
    if (!dtype_is_int(t) || bits >= 32) return x;
    enum spirv_op op = is_signed(t) ? SPV_BIT_FIELD_S_EXTRACT : SPV_BIT_FIELD_U_EXTRACT;
    return SPV_INS(s, op, spv_type_reg(s, SR_U32), x, spv_u32(s, 0), spv_u32(s, bits));
}

/* Operators with a single instruction. */

struct opcodes { /* for floats, signed and unsigned integers, bool; 0: more than one instruction */
    u16 f, s, u, b;
    bool leaves_range; /* the result of a small integer may leave its range */
};

static const struct opcodes opcode_table[N_KIR_OPS] = {
    [KI_NEG] = {SPV_F_NEGATE, SPV_S_NEGATE, SPV_S_NEGATE, 0, true},
    [KI_NOT] = {0, SPV_NOT, SPV_NOT, SPV_LOGICAL_NOT, true},
    [KI_ADD] = {SPV_F_ADD, SPV_I_ADD, SPV_I_ADD, 0, true},
    [KI_SUB] = {SPV_F_SUB, SPV_I_SUB, SPV_I_SUB, 0, true},
    [KI_MUL] = {SPV_F_MUL, SPV_I_MUL, SPV_I_MUL, 0, true},
    [KI_DIV] = {SPV_F_DIV, 0, SPV_U_DIV, 0, false},
    [KI_MOD] = {0, 0, SPV_U_MOD, 0, false},
    [KI_AND] = {0, SPV_BITWISE_AND, SPV_BITWISE_AND, SPV_LOGICAL_AND, false},
    [KI_OR] = {0, SPV_BITWISE_OR, SPV_BITWISE_OR, SPV_LOGICAL_OR, false},
    [KI_XOR] = {0, SPV_BITWISE_XOR, SPV_BITWISE_XOR, SPV_LOGICAL_NOT_EQUAL, false},
    [KI_SHL] = {0, SPV_SHIFT_LEFT_LOGICAL, SPV_SHIFT_LEFT_LOGICAL, 0, true},
    [KI_SHR] = {0, SPV_SHIFT_RIGHT_ARITHMETIC, SPV_SHIFT_RIGHT_LOGICAL, 0, false},
    [KI_EQ] = {SPV_F_ORD_EQUAL, SPV_I_EQUAL, SPV_I_EQUAL, SPV_LOGICAL_EQUAL, false},
    [KI_NE] = {SPV_F_UNORD_NOT_EQUAL, SPV_I_NOT_EQUAL, SPV_I_NOT_EQUAL, SPV_LOGICAL_NOT_EQUAL,
               false},
    [KI_LT] = {SPV_F_ORD_LESS_THAN, SPV_S_LESS_THAN, SPV_U_LESS_THAN, 0, false},
    [KI_LE] = {SPV_F_ORD_LESS_THAN_EQUAL, SPV_S_LESS_THAN_EQUAL, SPV_U_LESS_THAN_EQUAL, 0, false},
};

static enum spirv_op opcodes_of(enum kir_op op, enum dtype t)
{
    const struct opcodes *p = &opcode_table[op];
    if (t == DT_BOOL) return p->b;
    if (dtype_is_float(t)) return p->f;
    return is_signed(t) ? p->s : p->u;
}

static u32 by_opcode(struct spv *s, enum kir_op op, enum dtype t, enum spv_reg r, const u32 *x)
{
    bool is_test = kir_op_info(op)->rule == 'B', is_unary = kir_op_info(op)->n_args == 1;
    const u32 arg[2] = {x[0], is_unary ? 0 : x[1]};
    u32 id = is_test ? spv_test(s, opcodes_of(op, t), r, arg) : spv_bin(s, opcodes_of(op, t), r, arg);
    bool rounds = op == KI_ADD || op == KI_SUB || op == KI_MUL || op == KI_DIV;
    if (rounds && dtype_is_float(t))
        SPV_PUT(&s->decorations, SPV_DECORATE, id, SPV_DEC_NO_CONTRACTION);
    return opcode_table[op].leaves_range ? spv_wrap(s, t, id) : id;
}

/* Operators with several instructions. */

static u32 less(struct spv *s, enum dtype t, enum spv_reg r, u32 a, u32 b)
{
    return SPV_TEST(s, opcodes_of(KI_LT, t), r, a, b);
}

static u32 extreme(struct spv *s, enum kir_op op, enum dtype t, enum spv_reg r, const u32 *x)
{
    u32 first = op == KI_MIN ? less(s, t, r, x[0], x[1]) : less(s, t, r, x[1], x[0]);
    return SPV_CHOOSE(s, r, first, x[0], x[1]);
}

/* The quotient truncated to zero. The least value divided by -1 must wrap, which OpSDiv does not
   guarantee: needed only if the type is as wide as the word, and not for indices. */
static u32 quotient(struct spv *s, enum dtype t, enum spv_reg r, const u32 *x)
{
    bool may_overflow = t == DT_I32 || (t == DT_I64 && r == SR_U64 && !spv_is_pair(s, r));
    if (!may_overflow) return spv_wrap(s, t, SPV_BIN(s, SPV_S_DIV, r, x[0], x[1]));
    u32 is_minus = SPV_TEST(s, SPV_I_EQUAL, r, x[1], spv_const_i(s, r, -1));
    u32 by = SPV_CHOOSE(s, r, is_minus, spv_const_i(s, r, 1), x[1]);
    u32 q = SPV_BIN(s, SPV_S_DIV, r, x[0], by);
    return SPV_CHOOSE(s, r, is_minus, SPV_BIN(s, SPV_S_NEGATE, r, x[0], 0), q);
}

static u32 remainder_int(struct spv *s, enum dtype t, enum spv_reg r, const u32 *x)
{
    u32 back = SPV_BIN(s, SPV_I_MUL, r, quotient(s, t, r, x), x[1]);
    return spv_wrap(s, t, SPV_BIN(s, SPV_I_SUB, r, x[0], back));
}

/* Mesa 22 miscompiles a select between x and -x by x < 0 if x was just extended from 32 bits to 64. */
static u32 magnitude(struct spv *s, enum dtype t, enum spv_reg r, u32 x)
{
    if (spv_is_pair(s, r)) return is_signed(t) ? spv_pair_abs(s, x) : x;
    return is_signed(t) ? spv_wrap(s, t, SPV_EXT(s, GLSL_SABS, spv_type_reg(s, r), x, 0, 0)) : x;
}

/* Loops. Vulkan's float remainder is only as precise as x - y*trunc(x/y), and there is no integer
   power. */

struct loop {
    u32 before, header, body, next, merge;
};

static struct loop loop_open(struct spv *s)
{
    struct loop l = {s->label, spv_id(s), spv_id(s), spv_id(s), spv_id(s)};
    spv_branch(s, l.header);
    spv_label(s, l.header);
    return l;
}

/* A value that is `first` in the first iteration and `later` afterwards. */
static void loop_value(struct spv *s, const struct loop *l, enum spv_reg r, u32 id, u32 first,
                       u32 later)
{
    SPV_PUT(&s->code, SPV_PHI, spv_type_reg(s, r), id, first, l->before, later, l->next);
}

static void loop_while(struct spv *s, const struct loop *l, u32 cond)
{
    SPV_PUT(&s->code, SPV_LOOP_MERGE, l->merge, l->next, 0);
    SPV_PUT(&s->code, SPV_BRANCH_CONDITIONAL, cond, l->body, l->merge);
    spv_label(s, l->body);
}

/* Called before the values of the next iteration are created. */
static void loop_next(struct spv *s, const struct loop *l)
{
    spv_branch(s, l->next);
    spv_label(s, l->next);
}

static void loop_close(struct spv *s, const struct loop *l)
{
    spv_branch(s, l->header);
    spv_label(s, l->merge);
}

static void put_as(struct spv *s, enum spirv_op op, enum spv_reg r, u32 id, u32 a, u32 b)
{
    if (spv_is_pair(s, r)) SPV_PUT(&s->code, SPV_COPY_OBJECT, spv_type_reg(s, r), id, SPV_BIN(s, op, r, a, b));
    else SPV_PUT(&s->code, op, spv_type_reg(s, r), id, a, b);
}

/* By squaring, like kir's int_pow; negative exponents yield 0. */
static u32 power_int(struct spv *s, enum dtype t, enum spv_reg r, const u32 *x)
{
    u32 base = spv_id(s), n = spv_id(s), result = spv_id(s), base2 = spv_id(s), n2 = spv_id(s),
        result2 = spv_id(s);
    u32 zero = spv_const_i(s, r, 0), one = spv_const_i(s, r, 1), type = spv_type_reg(s, r);
    bool has_sign = is_signed(t) || t == DT_U64;
    struct loop l = loop_open(s);
    loop_value(s, &l, r, base, x[0], base2);
    loop_value(s, &l, r, n, x[1], n2);
    loop_value(s, &l, r, result, one, result2);
    loop_while(s, &l, SPV_TEST(s, has_sign ? SPV_S_LESS_THAN : SPV_U_LESS_THAN, r, zero, n));
    loop_next(s, &l);
    u32 odd = SPV_TEST(s, SPV_I_NOT_EQUAL, r, SPV_BIN(s, SPV_BITWISE_AND, r, n, one), zero);
    u32 more = SPV_BIN(s, SPV_I_MUL, r, result, base);
    if (spv_is_pair(s, r)) SPV_PUT(&s->code, SPV_COPY_OBJECT, type, result2, SPV_CHOOSE(s, r, odd, more, result));
    else SPV_PUT(&s->code, SPV_SELECT, type, result2, odd, more, result);
    put_as(s, SPV_I_MUL, r, base2, base, base);
    put_as(s, SPV_SHIFT_RIGHT_LOGICAL, r, n2, n, one);
    loop_close(s, &l);
    if (is_signed(t)) result = SPV_CHOOSE(s, r, less(s, t, r, x[1], zero), zero, result);
    return spv_wrap(s, t, result);
}

struct format {
    u64 exponent, mantissa, sign;
    enum spv_reg bits;
    double tiny;
};

static struct format format_of(enum spv_reg r)
{
    if (r == SR_F32) return (struct format){0x7f800000, 0x7fffff, 0x80000000, SR_U32, 0x1p-126};
    return (struct format){0x7ffull << 52, (1ull << 52) - 1, 1ull << 63, SR_U64, 0x1p-1022};
}

/* d times the power of two that makes it the largest such product up to r, where 0 < d <= r. */
static u32 largest_multiple(struct spv *s, const struct format *f, enum spv_reg r, u32 d, u32 rest)
{
    u32 exponent = SPV_BIN(s, SPV_BITWISE_AND, f->bits, SPV_BIN(s, SPV_BITCAST, f->bits, rest, 0),
                           spv_const_i(s, f->bits, (i64)f->exponent));
    u32 mantissa = SPV_BIN(s, SPV_BITWISE_AND, f->bits, SPV_BIN(s, SPV_BITCAST, f->bits, d, 0),
                           spv_const_i(s, f->bits, (i64)f->mantissa));
    u32 u = SPV_BIN(s, SPV_BITWISE_OR, f->bits, exponent, mantissa);
    u32 half = SPV_BIN(s, SPV_I_SUB, f->bits, u, spv_const_i(s, f->bits, (i64)(f->mantissa + 1)));
    u32 is_over = SPV_BIN(s, SPV_F_ORD_LESS_THAN, SR_BOOL, rest, SPV_BIN(s, SPV_BITCAST, r, u, 0));
    return SPV_BIN(s, SPV_BITCAST, r, SPV_CHOOSE(s, f->bits, is_over, half, u), 0);
}

/* Exact, as fmod: one subtraction for every bit of the quotient that is 1. Denormal divisors count
   as zero. */
static u32 remainder_float(struct spv *s, enum spv_reg r, const u32 *x)
{
    struct format f = format_of(r);
    u32 type = spv_type_reg(s, r), rest = spv_id(s), rest2 = spv_id(s);
    u32 a = SPV_EXT(s, GLSL_FABS, type, x[0], 0, 0), d = SPV_EXT(s, GLSL_FABS, type, x[1], 0, 0);
    u32 is_finite =
        SPV_BIN(s, SPV_F_ORD_LESS_THAN, SR_BOOL, a, spv_const_f(s, r, (double)INFINITY));
    u32 is_divisor = SPV_BIN(s, SPV_F_ORD_LESS_THAN_EQUAL, SR_BOOL, spv_const_f(s, r, f.tiny), d);
    u32 is_valid = SPV_BIN(s, SPV_LOGICAL_AND, SR_BOOL, is_finite, is_divisor);
    a = SPV_CHOOSE(s, r, is_valid, a, spv_const_f(s, r, 0));
    d = SPV_CHOOSE(s, r, is_valid, d, spv_const_f(s, r, 1));
    struct loop l = loop_open(s);
    loop_value(s, &l, r, rest, a, rest2);
    loop_while(s, &l, SPV_BIN(s, SPV_F_ORD_LESS_THAN_EQUAL, SR_BOOL, d, rest));
    loop_next(s, &l);
    put_as(s, SPV_F_SUB, r, rest2, rest, largest_multiple(s, &f, r, d, rest));
    loop_close(s, &l);
    u32 sign = SPV_BIN(s, SPV_BITWISE_AND, f.bits, SPV_BIN(s, SPV_BITCAST, f.bits, x[0], 0),
                       spv_const_i(s, f.bits, (i64)f.sign));
    u32 u = SPV_BIN(s, SPV_BITWISE_OR, f.bits, SPV_BIN(s, SPV_BITCAST, f.bits, rest, 0), sign);
    return SPV_CHOOSE(s, r, is_valid, SPV_BIN(s, SPV_BITCAST, r, u, 0),
                      spv_const_f(s, r, (double)NAN));
}

/* The upper word of an f64's magnitude with its last bit set if the lower word is not 0: compares
   with infinity as the whole value does. */
static u32 high_word(struct spv *s, u32 x)
{
    u32 type = spv_type_reg(s, SR_U32), part[2] = {spv_id(s), spv_id(s)};
    u32 pair = SPV_INS(s, SPV_BITCAST, spv_type_vec(s, type, 2), x);
    for (u32 i = 0; i < 2; i++) SPV_PUT(&s->code, SPV_COMPOSITE_EXTRACT, type, part[i], pair, i);
    u32 has_rest = SPV_BIN(s, SPV_I_NOT_EQUAL, SR_BOOL, part[0], spv_u32(s, 0));
    u32 rest = SPV_CHOOSE(s, SR_U32, has_rest, spv_u32(s, 1), spv_u32(s, 0));
    u32 high = SPV_BIN(s, SPV_BITWISE_AND, SR_U32, part[1], spv_u32(s, 0x7fffffff));
    return SPV_BIN(s, SPV_BITWISE_OR, SR_U32, high, rest);
}

static u32 is_special(struct spv *s, enum kir_op op, enum spv_reg r, u32 x)
{
    u32 u, inf = spv_u32(s, r == SR_F64 ? 0x7ff00000 : 0x7f800000);
    if (r == SR_F64) {
        u = high_word(s, x);
    } else {
        u = SPV_BIN(s, SPV_BITCAST, SR_U32, x);
        u = SPV_BIN(s, SPV_BITWISE_AND, SR_U32, u, spv_u32(s, 0x7fffffff));
    }
    if (op == KI_ISINF) return SPV_BIN(s, SPV_I_EQUAL, SR_BOOL, u, inf);
    return SPV_BIN(s, SPV_U_LESS_THAN, SR_BOOL, inf, u);
}

/* In kernels that round as written FMAs are neither split nor contracted. */
static u32 rounded(struct spv *s, u32 id)
{
    if (s->k->as_written) SPV_PUT(&s->decorations, SPV_DECORATE, id, SPV_DEC_NO_CONTRACTION);
    return id;
}

static u32 multiply_add(struct spv *s, enum dtype t, enum spv_reg r, const u32 *x)
{
    u32 type = spv_type_reg(s, r);
    if (!dtype_is_float(t)) {
        u32 product = SPV_BIN(s, SPV_I_MUL, r, x[0], x[1]);
        return spv_wrap(s, t, SPV_BIN(s, SPV_I_ADD, r, product, x[2]));
    }
    if (s->caps->has_fma) return rounded(s, SPV_EXT(s, GLSL_FMA, type, x[0], x[1], x[2]));
    u32 product = rounded(s, SPV_INS(s, SPV_F_MUL, type, x[0], x[1], 0));
    return rounded(s, SPV_INS(s, SPV_F_ADD, type, product, x[2], 0));
}

/* Functions of GLSL.std.450 for all floats, exact or as precise as the target's division.
   Transcendental ones were expanded before. */
static u32 function_of(struct spv *s, enum kir_op op, enum spv_reg r, const u32 *x)
{
    static const u8 glsl[N_KIR_OPS] = {
        [KI_ABS] = GLSL_FABS,  [KI_SQRT] = GLSL_SQRT,   [KI_FLOOR] = GLSL_FLOOR,
        [KI_CEIL] = GLSL_CEIL, [KI_TRUNC] = GLSL_TRUNC, [KI_RINT] = GLSL_ROUND_EVEN,
    };
    if (glsl[op]) return SPV_EXT(s, glsl[op], spv_type_reg(s, r), x[0], 0, 0);
    err_set(s->err, ERR_UNSUPPORTED, "kernel '%.*s' holds '%s', which must be expanded first",
            STR_ARG(s->k->name), kir_op_info(op)->name);
    return x[0];
}

u32 spv_scalar(struct spv *s, enum kir_op op, enum dtype t, enum spv_reg r, const u32 *x)
{
    bool is_float = dtype_is_float(t);
    if (opcodes_of(op, t)) return by_opcode(s, op, t, r, x);
    switch (op) {
    case KI_MIN:
    case KI_MAX: return extreme(s, op, t, r, x);
    case KI_DIV: return quotient(s, t, r, x);
    case KI_MOD: return is_float ? remainder_float(s, r, x) : remainder_int(s, t, r, x);
    case KI_POW:
        if (!is_float) return power_int(s, t, r, x);
        break;
    case KI_ABS:
        if (!is_float) return magnitude(s, t, r, x[0]);
        break;
    case KIR_CLASSIFYING: return is_special(s, op, r, x[0]);
    case KI_FMA: return multiply_add(s, t, r, x);
    case KI_SELECT: return SPV_CHOOSE(s, r, x[0], x[1], x[2]);
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KI_NEG: case KI_NOT: case KIR_FUNCTIONS:
    case KIR_ROUNDING: case KI_ADD: case KI_SUB: case KI_MUL: case KIR_LOGIC: case KIR_SHIFTS:
    case KIR_COMPARISONS: break;
    }
    return function_of(s, op, r, x);
}

/* Conversions. */

static u32 cast_to_bool(struct spv *s, enum dtype from, enum spv_reg r, u32 x)
{
    if (from == DT_BOOL) return x;
    if (spv_is_half(from)) x = spv_from_half(s, from, x), r = SR_F32;
    bool is_float = r == SR_F32 || r == SR_F64;
    if (is_float) return SPV_BIN(s, SPV_F_UNORD_NOT_EQUAL, SR_BOOL, x, spv_const_f(s, r, 0));
    return SPV_TEST(s, SPV_I_NOT_EQUAL, r, x, spv_const_i(s, r, 0));
}

static u32 cast_from_bool(struct spv *s, enum dtype to, enum spv_reg r, u32 x)
{
    if (r == SR_F32 || r == SR_F64)
        return SPV_CHOOSE(s, r, x, spv_const_f(s, r, 1), spv_const_f(s, r, 0));
    i64 one = to == DT_F16 ? f16_from_f32(1) : to == DT_BF16 ? bf16_from_f32(1) : 1;
    return SPV_CHOOSE(s, r, x, spv_const_i(s, r, one), spv_const_i(s, r, 0));
}

static u32 int_to_int(struct spv *s, enum dtype from, enum dtype to, const enum spv_reg r[2], u32 x)
{
    bool extends = is_signed(from) && r[0] != r[1] && r[1] == SR_U64;
    if (r[0] != r[1] && spv_is_pair(s, r[0])) x = spv_low(s, x);
    else if (r[0] != r[1]) x = SPV_BIN(s, extends ? SPV_S_CONVERT : SPV_U_CONVERT, r[1], x, 0);
    bool fits = dtype_size(from) < dtype_size(to) && (is_signed(to) || !is_signed(from));
    return from == to || fits ? x : spv_wrap(s, to, x);
}

/* Values out of range are unspecified, but must be in the range of a small type. */
static u32 float_to_int(struct spv *s, enum dtype to, enum spv_reg from, enum spv_reg r, u32 x)
{
    bool is_unsigned = to == DT_U32 || to == DT_U64;
    if (spv_is_pair(s, r)) return spv_pair_from_float(s, from, x);
    return spv_wrap(s, to,
                    SPV_BIN(s, is_unsigned ? SPV_CONVERT_F_TO_U : SPV_CONVERT_F_TO_S, r, x, 0));
}

u32 spv_cast(struct spv *s, kval v, u32 x)
{
    kval a = kir_at(s->k, v)->a;
    enum dtype from = kir_dtype(s->k, a), to = kir_dtype(s->k, v);
    enum spv_reg r[2] = {spv_reg(s, a), spv_reg(s, v)};
    if (to == DT_BOOL) return cast_to_bool(s, from, r[0], x);
    if (from == DT_BOOL) return cast_from_bool(s, to, r[1], x);
    if (from == to) return x;
    if (spv_is_half(from)) x = spv_from_half(s, from, x), from = DT_F32, r[0] = SR_F32;
    if (dtype_is_int(from) && dtype_is_int(to)) return int_to_int(s, from, to, r, x);
    if (dtype_is_int(to)) return float_to_int(s, to, r[0], r[1], x);
    enum spv_reg target = to == DT_F64 ? SR_F64 : SR_F32;
    if (dtype_is_int(from) && spv_is_pair(s, r[0])) x = spv_pair_to_float(s, is_signed(from), target, x);
    else if (dtype_is_int(from))
        x = SPV_BIN(s, is_signed(from) ? SPV_CONVERT_S_TO_F : SPV_CONVERT_U_TO_F, target, x, 0);
    else if (r[0] != target) x = SPV_BIN(s, SPV_F_CONVERT, target, x, 0);
    return spv_is_half(to) ? spv_to_half(s, to, x) : x;
}

u32 spv_bits(struct spv *s, enum dtype from, enum dtype to, u32 x)
{
    bool was_float = from == DT_F32 || from == DT_F64, is_float = to == DT_F32 || to == DT_F64;
    if (was_float != is_float) {
        enum spv_reg r = dtype_size(to) == 8 ? is_float ? SR_F64 : SR_U64
                         : is_float          ? SR_F32
                                             : SR_U32;
        return SPV_BIN(s, SPV_BITCAST, r, x, 0);
    }
    return spv_wrap(s, to, x); /* from other small types: their low bits, re-extended */
}
