// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_pair.c: 64-bit integers on targets without them (most mobile GPUs): a lane is a vector of two words in memory order,
// the lower one first. Most i64 are not affected: values that provably fit are single words (spv_find_wide). Bitwise operations
// are those on vectors; the others are composed of words, with the semantics of kir.inc: sums wrap, quotients truncate.
#include "lang/lang_spirv.h"

#include <math.h>

enum { GLSL_FABS = 4, GLSL_TRUNC = 3, GLSL_FIND_U_MSB = 75 };

struct pair {
    u32 lo, hi;
};

static u32 w_bin(struct spv *s, enum spirv_op op, u32 a, u32 b) { return SPV_OP2(s, op, SR_U32, a, b); }
static u32 w_test(struct spv *s, enum spirv_op op, u32 a, u32 b) { return SPV_OP2(s, op, SR_BOOL, a, b); }
static u32 w_choose(struct spv *s, u32 cond, u32 a, u32 b) { return SPV_SELECT_OF(s, SR_U32, cond, a, b); }
static u32 w_bit(struct spv *s, u32 cond) { return w_choose(s, cond, spv_u32(s, 1), spv_u32(s, 0)); }
static u32 b_and(struct spv *s, u32 a, u32 b) { return SPV_OP2(s, SPV_LOGICAL_AND, SR_BOOL, a, b); }
static u32 b_or(struct spv *s, u32 a, u32 b) { return SPV_OP2(s, SPV_LOGICAL_OR, SR_BOOL, a, b); }

static u32 extract(struct spv *s, u32 from, u32 i)
{
    u32 type = spv_type_reg(s, SR_U32), id = spv_id(s);
    SPV_PUT(&s->code, SPV_COMPOSITE_EXTRACT, type, id, from, i);
    return id;
}

static struct pair open_pair(struct spv *s, u32 x)
{
    struct pair p;
    p.lo = extract(s, x, 0);
    p.hi = extract(s, x, 1);
    return p;
}

static u32 close_pair(struct spv *s, struct pair p)
{
    return SPV_INS(s, SPV_COMPOSITE_CONSTRUCT, spv_type_reg(s, SR_U64), p.lo, p.hi, 0);
}

u32 spv_low(struct spv *s, u32 x) { return extract(s, x, 0); }

/* Arithmetic. */

static struct pair add(struct spv *s, struct pair a, struct pair b)
{
    struct pair r;
    r.lo = w_bin(s, SPV_I_ADD, a.lo, b.lo);
    u32 carry = w_bit(s, w_test(s, SPV_U_LESS_THAN, r.lo, a.lo));
    r.hi = w_bin(s, SPV_I_ADD, a.hi, b.hi);
    r.hi = w_bin(s, SPV_I_ADD, r.hi, carry);
    return r;
}

static struct pair sub(struct spv *s, struct pair a, struct pair b)
{
    struct pair r;
    u32 borrow = w_bit(s, w_test(s, SPV_U_LESS_THAN, a.lo, b.lo));
    r.lo = w_bin(s, SPV_I_SUB, a.lo, b.lo);
    r.hi = w_bin(s, SPV_I_SUB, a.hi, b.hi);
    r.hi = w_bin(s, SPV_I_SUB, r.hi, borrow);
    return r;
}

static struct pair negate(struct spv *s, struct pair a)
{
    struct pair zero = {spv_u32(s, 0), spv_u32(s, 0)};
    return sub(s, zero, a);
}

static struct pair mul(struct spv *s, struct pair a, struct pair b)
{
    u32 word = spv_type_reg(s, SR_U32), both = SPV_TYPE(s, SPV_TYPE_STRUCT, word, word);
    u32 wide = SPV_INS(s, SPV_U_MUL_EXTENDED, both, a.lo, b.lo, 0);
    struct pair r = open_pair(s, wide);
    u32 left = w_bin(s, SPV_I_MUL, a.hi, b.lo), right = w_bin(s, SPV_I_MUL, a.lo, b.hi);
    r.hi = w_bin(s, SPV_I_ADD, r.hi, left);
    r.hi = w_bin(s, SPV_I_ADD, r.hi, right);
    return r;
}

/* By n < 64. Bits that cross words are shifted in two steps: a shift by 32 is undefined. */
static struct pair shift(struct spv *s, enum spirv_op op, struct pair a, u32 n)
{
    bool left = op == SPV_SHIFT_LEFT_LOGICAL;
    u32 one = spv_u32(s, 1), by = w_bin(s, SPV_BITWISE_AND, n, spv_u32(s, 31)), rest = w_bin(s, SPV_I_SUB, spv_u32(s, 31), by);
    u32 half = w_bin(s, SPV_BITWISE_AND, n, spv_u32(s, 32)), is_far = w_test(s, SPV_I_NOT_EQUAL, half, spv_u32(s, 0));
    u32 from = left ? a.lo : a.hi, to = left ? a.hi : a.lo;
    enum spirv_op back = left ? SPV_SHIFT_RIGHT_LOGICAL : SPV_SHIFT_LEFT_LOGICAL, inner = left ? SPV_SHIFT_LEFT_LOGICAL : SPV_SHIFT_RIGHT_LOGICAL;
    u32 moved = w_bin(s, op, from, by), over = w_bin(s, back, from, one);
    over = w_bin(s, back, over, rest);
    u32 own = w_bin(s, inner, to, by), mixed = w_bin(s, SPV_BITWISE_OR, own, over);
    u32 fill = op == SPV_SHIFT_RIGHT_ARITHMETIC ? w_bin(s, op, a.hi, spv_u32(s, 31)) : spv_u32(s, 0);
    u32 near = w_choose(s, is_far, fill, moved), far = w_choose(s, is_far, moved, mixed);
    return left ? (struct pair){near, far} : (struct pair){far, near};
}

/* Tests. */

static u32 less(struct spv *s, bool is_signed, struct pair a, struct pair b)
{
    u32 high = w_test(s, is_signed ? SPV_S_LESS_THAN : SPV_U_LESS_THAN, a.hi, b.hi), same = w_test(s, SPV_I_EQUAL, a.hi, b.hi);
    u32 low = w_test(s, SPV_U_LESS_THAN, a.lo, b.lo);
    low = b_and(s, same, low);
    return b_or(s, high, low);
}

static u32 equal(struct spv *s, struct pair a, struct pair b)
{
    u32 low = w_test(s, SPV_I_EQUAL, a.lo, b.lo), high = w_test(s, SPV_I_EQUAL, a.hi, b.hi);
    return b_and(s, low, high);
}

static u32 b_not(struct spv *s, u32 a) { return SPV_OP2(s, SPV_LOGICAL_NOT, SR_BOOL, a, 0); }

u32 spv_pair_test(struct spv *s, enum spirv_op op, u32 x, u32 y)
{
    struct pair a = open_pair(s, x), b = open_pair(s, y);
    switch ((int)op) { /* some of SPIR-V's opcodes */
    case SPV_I_EQUAL: return equal(s, a, b);
    case SPV_I_NOT_EQUAL: return b_not(s, equal(s, a, b));
    case SPV_U_LESS_THAN: return less(s, false, a, b);
    case SPV_S_LESS_THAN: return less(s, true, a, b);
    case SPV_U_LESS_THAN_EQUAL: return b_not(s, less(s, false, b, a));
    case SPV_S_LESS_THAN_EQUAL: return b_not(s, less(s, true, b, a));
    default: unreachable();
    }
}

/* Before SPIR-V 1.4, selects of vectors need a vector condition. */
u32 spv_pair_choose(struct spv *s, u32 cond, u32 a, u32 b)
{
    u32 bools = spv_type_vec(s, spv_type_reg(s, SR_BOOL), 2), both = SPV_INS(s, SPV_COMPOSITE_CONSTRUCT, bools, cond, cond, 0);
    return SPV_INS(s, SPV_SELECT, spv_type_reg(s, SR_U64), both, a, b);
}

static struct pair choose(struct spv *s, u32 cond, struct pair a, struct pair b)
{
    struct pair r;
    r.lo = w_choose(s, cond, a.lo, b.lo);
    r.hi = w_choose(s, cond, a.hi, b.hi);
    return r;
}

static struct pair magnitude(struct spv *s, struct pair a, u32 *is_negative)
{
    *is_negative = w_test(s, SPV_S_LESS_THAN, a.hi, spv_u32(s, 0));
    return choose(s, *is_negative, negate(s, a), a);
}

/* Division: one bit of the quotient per iteration. */

static u32 phi(struct spv *s, u32 id, u32 first, u32 before, u32 later, u32 next)
{
    SPV_PUT(&s->code, SPV_PHI, spv_type_reg(s, SR_U32), id, first, before, later, next);
    return id;
}

/* Shifts the remainder left by the next bit of the dividend; if the divisor fits it is subtracted,
   and a bit is shifted into the quotient, which replaces the dividend. */
static void divide_round(struct spv *s, struct pair *rest, struct pair *n, struct pair d)
{
    u32 one = spv_u32(s, 1), top = w_bin(s, SPV_SHIFT_RIGHT_LOGICAL, rest->hi, spv_u32(s, 31));
    u32 next = w_bin(s, SPV_SHIFT_RIGHT_LOGICAL, n->hi, spv_u32(s, 31));
    struct pair up = shift(s, SPV_SHIFT_LEFT_LOGICAL, *rest, one), moved = shift(s, SPV_SHIFT_LEFT_LOGICAL, *n, one);
    up.lo = w_bin(s, SPV_BITWISE_OR, up.lo, next);
    u32 is_over = w_test(s, SPV_I_NOT_EQUAL, top, spv_u32(s, 0)), fits = b_not(s, less(s, false, up, d));
    fits = b_or(s, is_over, fits);
    *rest = choose(s, fits, sub(s, up, d), up);
    *n = moved;
    n->lo = w_bin(s, SPV_BITWISE_OR, moved.lo, w_bit(s, fits));
}

static struct pair quotient(struct spv *s, struct pair a, struct pair d, struct pair *rest_out)
{
    u32 before = s->label, header = spv_id(s), body = spv_id(s), next = spv_id(s), merge = spv_id(s), id[5], later[5];
    for (u32 i = 0; i < 5; i++) id[i] = spv_id(s), later[i] = spv_id(s);
    const u32 zero = spv_u32(s, 0), first[5] = {zero, zero, a.lo, a.hi, zero};
    spv_branch(s, header);
    spv_label(s, header);
    for (u32 i = 0; i < 5; i++) phi(s, id[i], first[i], before, later[i], next);
    u32 goes_on = w_test(s, SPV_U_LESS_THAN, id[4], spv_u32(s, 64));
    SPV_PUT(&s->code, SPV_LOOP_MERGE, merge, next, 0);
    SPV_PUT(&s->code, SPV_BRANCH_CONDITIONAL, goes_on, body, merge);
    spv_label(s, body);
    spv_branch(s, next);
    spv_label(s, next);
    struct pair rest = {id[0], id[1]}, n = {id[2], id[3]};
    divide_round(s, &rest, &n, d);
    const u32 value[5] = {rest.lo, rest.hi, n.lo, n.hi, w_bin(s, SPV_I_ADD, id[4], spv_u32(s, 1))};
    for (u32 i = 0; i < 5; i++) SPV_PUT(&s->code, SPV_COPY_OBJECT, spv_type_reg(s, SR_U32), later[i], value[i]);
    spv_branch(s, header);
    spv_label(s, merge);
    *rest_out = (struct pair){id[0], id[1]};
    return (struct pair){id[2], id[3]};
}

static struct pair divide(struct spv *s, struct pair a, struct pair b)
{
    u32 minus_a, minus_b;
    struct pair rest, x = magnitude(s, a, &minus_a), y = magnitude(s, b, &minus_b), q = quotient(s, x, y, &rest);
    u32 is_minus = SPV_OP2(s, SPV_LOGICAL_NOT_EQUAL, SR_BOOL, minus_a, minus_b);
    return choose(s, is_minus, negate(s, q), q);
}

static struct pair remainder_of(struct spv *s, struct pair a, struct pair b)
{
    struct pair rest;
    quotient(s, a, b, &rest);
    return rest;
}

u32 spv_pair_abs(struct spv *s, u32 x)
{
    u32 minus;
    return close_pair(s, magnitude(s, open_pair(s, x), &minus));
}

/* Conversions. */

static u32 f_bin(struct spv *s, enum spirv_op op, enum spv_reg r, u32 a, u32 b) { return SPV_OP2(s, op, r, a, b); }

/* To f32: the upper 32 significant bits, the last one set if any lower bit is, then scaled by a
   power of two: one rounding. */
static u32 to_f32(struct spv *s, struct pair a)
{
    u32 word = spv_type_reg(s, SR_U32), is_small = w_test(s, SPV_I_EQUAL, a.hi, spv_u32(s, 0));
    u32 msb = SPV_EXT(s, GLSL_FIND_U_MSB, word, w_choose(s, is_small, spv_u32(s, 1), a.hi), 0, 0), by = w_bin(s, SPV_I_SUB, spv_u32(s, 31), msb);
    struct pair up = shift(s, SPV_SHIFT_LEFT_LOGICAL, a, by);
    u32 rest = w_bit(s, w_test(s, SPV_I_NOT_EQUAL, up.lo, spv_u32(s, 0))), top = w_bin(s, SPV_BITWISE_OR, up.hi, rest);
    u32 exponent = w_bin(s, SPV_I_SUB, spv_u32(s, 127 + 32), by), scale = w_bin(s, SPV_SHIFT_LEFT_LOGICAL, exponent, spv_u32(s, 23));
    scale = SPV_OP2(s, SPV_BITCAST, SR_F32, scale, 0);
    u32 large = f_bin(s, SPV_F_MUL, SR_F32, SPV_OP2(s, SPV_CONVERT_U_TO_F, SR_F32, top, 0), scale);
    return SPV_SELECT_OF(s, SR_F32, is_small, SPV_OP2(s, SPV_CONVERT_U_TO_F, SR_F32, a.lo, 0), large);
}

static u32 to_f64(struct spv *s, struct pair a)
{
    u32 hi = SPV_OP2(s, SPV_CONVERT_U_TO_F, SR_F64, a.hi, 0), lo = SPV_OP2(s, SPV_CONVERT_U_TO_F, SR_F64, a.lo, 0);
    hi = f_bin(s, SPV_F_MUL, SR_F64, hi, spv_const_f(s, SR_F64, 0x1p32));
    return f_bin(s, SPV_F_ADD, SR_F64, hi, lo);
}

u32 spv_pair_to_float(struct spv *s, bool is_signed, enum spv_reg to, u32 x)
{
    struct pair a = open_pair(s, x);
    u32 minus = 0;
    if (is_signed) a = magnitude(s, a, &minus);
    u32 f = to == SR_F64 ? to_f64(s, a) : to_f32(s, a);
    return is_signed ? SPV_SELECT_OF(s, to, minus, SPV_OP2(s, SPV_F_NEGATE, to, f, 0), f) : f;
}

/* Exact: the upper word is the quotient by 2^32, and the remainder has no more digits than the
   float. */
u32 spv_pair_from_float(struct spv *s, enum spv_reg from, u32 x)
{
    u32 type = spv_type_reg(s, from), a = SPV_EXT(s, GLSL_FABS, type, x, 0, 0);
    u32 minus = SPV_OP2(s, SPV_F_ORD_LESS_THAN, SR_BOOL, x, spv_const_f(s, from, 0));
    u32 high = SPV_EXT(s, GLSL_TRUNC, type, f_bin(s, SPV_F_MUL, from, a, spv_const_f(s, from, 0x1p-32)), 0, 0);
    u32 low = f_bin(s, SPV_F_SUB, from, a, f_bin(s, SPV_F_MUL, from, high, spv_const_f(s, from, 0x1p32)));
    struct pair p;
    p.lo = SPV_OP2(s, SPV_CONVERT_F_TO_U, SR_U32, low, 0);
    p.hi = SPV_OP2(s, SPV_CONVERT_F_TO_U, SR_U32, high, 0);
    return close_pair(s, choose(s, minus, negate(s, p), p));
}

static struct pair extended(struct spv *s, u32 x, bool is_signed)
{
    return (struct pair){x, is_signed ? w_bin(s, SPV_SHIFT_RIGHT_ARITHMETIC, x, spv_u32(s, 31)) : spv_u32(s, 0)};
}

u32 spv_pair_bin(struct spv *s, enum spirv_op op, const u32 arg[2])
{
    switch ((int)op) { /* likewise */
    case SPV_BITWISE_AND:
    case SPV_BITWISE_OR:
    case SPV_BITWISE_XOR:
    case SPV_NOT: /* of vectors */
    case SPV_BITCAST: return SPV_INS(s, op, spv_type_reg(s, SR_U64), arg[0], arg[1], 0);
    case SPV_U_CONVERT: return close_pair(s, extended(s, arg[0], false));
    case SPV_S_CONVERT: return close_pair(s, extended(s, arg[0], true));
    default: break;
    }
    struct pair a = open_pair(s, arg[0]), b = {0, 0}, rest;
    if (arg[1]) b = open_pair(s, arg[1]);
    switch ((int)op) { /* likewise */
    case SPV_S_NEGATE: return close_pair(s, negate(s, a));
    case SPV_I_ADD: return close_pair(s, add(s, a, b));
    case SPV_I_SUB: return close_pair(s, sub(s, a, b));
    case SPV_I_MUL: return close_pair(s, mul(s, a, b));
    case SPV_SHIFT_LEFT_LOGICAL:
    case SPV_SHIFT_RIGHT_LOGICAL:
    case SPV_SHIFT_RIGHT_ARITHMETIC: return close_pair(s, shift(s, op, a, b.lo));
    case SPV_U_DIV: return close_pair(s, quotient(s, a, b, &rest));
    case SPV_U_MOD: return close_pair(s, remainder_of(s, a, b));
    case SPV_S_DIV: return close_pair(s, divide(s, a, b));
    default: break;
    }
    spv_fail(s, "needs an operation of 64-bit integers, which the target lacks");
    return arg[0];
}
