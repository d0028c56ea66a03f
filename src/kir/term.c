// SPDX-License-Identifier: Apache-2.0
//
// term.c: see term.h.
#include "kir/term.h"

#include <math.h>

/* Terms. A quiet NaN with bit 50 set is a term; without it, the result of arithmetic on known values. */

static const u64 SIGN = 1ull << 63, QUIET = 0xfffull << 51, IS_TERM = 1ull << 50, HASH = (1ull << 46) - 1;
enum { TYPE_SHIFT = 46 /* 4 bits */ };
enum holder { IN_F64, IN_F32, IN_TF32, IN_BF16, IN_F16 };

static u64 bits(union kir_cell x) { return (u64)x.i; }
static union kir_cell cell(u64 b) { return (union kir_cell){.i = (i64)b}; }
static bool is_term(union kir_cell x) { return (bits(x) & (QUIET | IS_TERM)) == (QUIET | IS_TERM); }
static bool is_number(union kir_cell x, double v) { return !is_term(x) && x.f == v; }
static union kir_cell number(double v) { return (union kir_cell){.f = v}; }

static u64 mix(u64 x) /* a bijection: the finaliser of splitmix64 */
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static enum holder holder_of(enum dtype t)
{
    return t == DT_F16 ? IN_F16 : t == DT_BF16 ? IN_BF16 : t == DT_TF32 ? IN_TF32 : t == DT_F32 ? IN_F32 : IN_F64;
}

/* Whether all numbers of one type fit the other. */
static bool holds(enum holder to, enum holder from)
{
    return to == from || to == IN_F64 || (to == IN_F32 && from > IN_F32) || (to == IN_TF32 && from > IN_TF32);
}

static union kir_cell make(u64 h, enum dtype t) { return cell(QUIET | IS_TERM | (u64)holder_of(t) << TYPE_SHIFT | (h & HASH)); }

union kir_cell term_new(enum dtype t, struct rng *r) { return make(mix(rng_u64(r)), t); }

static union kir_cell negate(union kir_cell x) { return is_number(x, 0) ? number(0) : cell(bits(x) ^ SIGN); }
static bool is_negated(union kir_cell x) { return bits(x) & SIGN; }
static union kir_cell without_sign(union kir_cell x) { return cell(bits(x) & ~SIGN); }
static union kir_cell with_sign(union kir_cell x, bool minus) { return minus ? negate(x) : x; }

/* Both zeros are one value. */
static u64 name(union kir_cell x) { return is_number(x, 0) ? 0 : bits(x); }

static u64 hash(u64 op, u64 x, u64 y, u64 z) { return mix((mix((mix(mix(op + 1) ^ x) + 0x9e3779b97f4a7c15) ^ y) + 0xd1b54a32d192ed03) ^ z); }

static union kir_cell opaque(enum kir_op op, enum dtype t, union kir_cell x, union kir_cell y, union kir_cell z)
{
    return make(hash((u64)op << 8 | (u64)t, name(x), name(y), name(z)), t);
}

union kir_cell term_step(enum kir_op op, enum dtype t, union kir_cell x, union kir_cell y, union kir_cell sum) { return opaque(op, t, x, y, sum); }

bool term_equal(union kir_cell x, union kir_cell y) { return name(x) == name(y) || (!is_term(x) && !is_term(y) && isnan(x.f) && isnan(y.f)); }

/* The order: known numbers numerically; terms by their hashes, above all finite numbers, or below
   if negated. */

static bool less(union kir_cell x, union kir_cell y)
{
    if (!is_term(x) && !is_term(y)) return x.f < y.f;
    if (!is_term(x)) return isfinite(x.f) ? !is_negated(y) : x.f < 0;
    if (!is_term(y)) return isfinite(y.f) ? is_negated(x) : y.f > 0;
    if (is_negated(x) != is_negated(y)) return is_negated(x);
    return is_negated(x) ? bits(y) < bits(x) : bits(x) < bits(y);
}

/* Arithmetic. */

static void sort(union kir_cell *x, union kir_cell *y)
{
    union kir_cell t = *x;
    if (bits(without_sign(*x)) <= bits(without_sign(*y))) return;
    *x = *y, *y = t;
}

static union kir_cell multiply(enum dtype t, union kir_cell x, union kir_cell y)
{
    bool minus = is_negated(x) != is_negated(y);
    x = without_sign(x), y = without_sign(y);
    if (is_number(x, 0) || is_number(y, 0)) return number(0);
    if (is_number(x, 1)) return with_sign(y, minus);
    if (is_number(y, 1)) return with_sign(x, minus);
    sort(&x, &y);
    return with_sign(opaque(KI_MUL, t, x, y, number(0)), minus);
}

static union kir_cell add(enum dtype t, union kir_cell x, union kir_cell y)
{
    if (is_number(x, 0)) return y;
    if (is_number(y, 0)) return x;
    if (bits(x) == (bits(y) ^ SIGN)) return number(0);
    sort(&x, &y);
    bool minus = is_negated(x);
    return with_sign(opaque(KI_ADD, t, with_sign(x, minus), with_sign(y, minus), number(0)), minus);
}

static union kir_cell multiply_add(enum dtype t, union kir_cell x, union kir_cell y, union kir_cell z)
{
    bool minus = is_negated(x) != is_negated(y);
    x = without_sign(x), y = without_sign(y);
    if (is_number(x, 0) || is_number(y, 0)) return z;
    if (is_number(z, 0)) return with_sign(multiply(t, x, y), minus);
    if (is_number(x, 1)) return add(t, with_sign(y, minus), z);
    if (is_number(y, 1)) return add(t, with_sign(x, minus), z);
    sort(&x, &y);
    return with_sign(opaque(KI_FMA, t, x, y, with_sign(z, minus)), minus);
}

/* Whether multiplying by 1/y rounds as dividing by y does, see kir/simplify.c. */
static bool is_power_of_two(union kir_cell y)
{
    int e;
    return !is_term(y) && fabs(frexp(y.f, &e)) == 0.5 && e >= -100 && e <= 100;
}

static union kir_cell divide(enum dtype t, union kir_cell x, union kir_cell y)
{
    if (is_power_of_two(y)) return multiply(t, x, number(1 / y.f));
    bool minus = is_negated(x) != is_negated(y);
    x = without_sign(x), y = without_sign(y);
    if (is_number(x, 0)) return number(0);
    return with_sign(opaque(KI_DIV, t, x, y, number(0)), minus);
}

static bool is_odd(enum kir_op op)
{
    switch (op) {
    case KI_SIN: case KI_TAN: case KI_ASIN: case KI_ATAN: case KI_SINH: case KI_TANH: case KI_ASINH: case KI_ATANH: case KI_ERF: case KI_TRUNC:
    case KI_RINT: return true;
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KI_NEG: case KI_ABS: case KI_NOT:
    case KI_SQRT: case KI_EXP: case KI_LOG: case KI_COS: case KI_ACOS: case KI_COSH:
    case KI_ACOSH: case KI_FLOOR: case KI_CEIL: case KIR_CLASSIFYING: case KIR_BINARY:
    case KI_FMA: case KI_SELECT: return false;
    default: unreachable();
    }
}

static union kir_cell unary(enum kir_op op, enum dtype t, union kir_cell x)
{
    if (op == KI_NEG) return negate(x);
    if (op == KI_ABS || op == KI_COS || op == KI_COSH) x = without_sign(x);
    bool minus = is_odd(op) && is_negated(x);
    return with_sign(opaque(op, t, with_sign(x, minus), number(0), number(0)), minus);
}

static bool test(enum kir_op op, union kir_cell x, union kir_cell y, i64 *r)
{
    switch (op) {
    case KI_EQ: *r = term_equal(x, y); return true;
    case KI_NE: *r = !term_equal(x, y); return true;
    case KI_LT: *r = less(x, y); return true;
    case KI_LE: *r = less(x, y) || term_equal(x, y); return true;
    case KIR_CLASSIFYING: *r = 0; return true;
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KI_NEG: case KI_ABS: case KI_NOT:
    case KIR_FUNCTIONS: case KIR_ROUNDING: case KIR_ARITHMETIC: case KIR_LOGIC: case KIR_SHIFTS:
    case KI_FMA: case KI_SELECT: return false;
    default: unreachable();
    }
}

/* Conversions. */

static union kir_cell narrow(enum dtype to, union kir_cell x)
{
    enum holder from = (enum holder)(bits(x) >> TYPE_SHIFT & 15);
    if (holds(holder_of(to), from)) return x;
    bool minus = is_negated(x);
    return with_sign(opaque(KI_CAST, to, without_sign(x), number(0), number(0)), minus);
}

/* A small integer derived from the term. */
static i64 some_integer(enum dtype to, union kir_cell x)
{
    if (to == DT_BOOL) return 1;
    i64 v = (i64)(mix(bits(without_sign(x))) % 40);
    return kir_wrap(to, is_negated(x) ? -v : v);
}

static union kir_cell compute(enum kir_op op, enum dtype t, enum dtype to, const union kir_cell x[3])
{
    switch (op) {
    case KI_ADD: return add(t, x[0], x[1]);
    case KI_SUB: return add(t, x[0], negate(x[1]));
    case KI_MUL: return multiply(t, x[0], x[1]);
    case KI_DIV: return divide(t, x[0], x[1]);
    case KI_FMA: return multiply_add(t, x[0], x[1], x[2]);
    case KI_MIN: return less(x[0], x[1]) ? x[0] : x[1];
    case KI_MAX: return less(x[1], x[0]) ? x[0] : x[1];
    case KI_POW:
    case KI_MOD: return opaque(op, t, x[0], x[1], number(0));
    case KI_CAST: return dtype_is_float(to) ? narrow(to, x[0]) : (union kir_cell){.i = some_integer(to, x[0])};
    case KI_BITS: return dtype_is_float(to) ? x[0] : (union kir_cell){.i = kir_wrap(to, (i64)mix(name(x[0])))};
    case KIR_NOT_LANEWISE: case KIR_UNARY: case KIR_LOGIC: case KIR_SHIFTS:
    case KIR_COMPARISONS: case KI_SELECT: return unary(op, t, x[0]);
    default: unreachable();
    }
}

bool term_scalar(enum kir_op op, enum dtype t, enum dtype to, const union kir_cell x[3], union kir_cell *out)
{
    u32 n = kir_op_info(op)->n_args;
    bool known = op == KI_SELECT || !dtype_is_float(t);
    for (u32 i = 0; i < n && !known && !is_term(x[i]); i++) known = i + 1 == n;
    if (known) return kir_scalar(op, t, to, x, out);
    if (!test(op, x[0], x[1], &out->i)) *out = compute(op, t, to, x);
    return true;
}
