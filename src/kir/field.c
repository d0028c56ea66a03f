// SPDX-License-Identifier: Apache-2.0
//
// field.c: see field.h. Rare cases of the arithmetic (NO_Q: an element without a
// residue modulo Q; infinities; NaN), constants, functions, comparisons, conversions.
#include "kir/field.h"

#include <math.h>

static const u32 P = FIELD_P, Q = FIELD_Q, NO_Q = UINT32_MAX, INF = 0xfffffffd, MINUS_INF = 0xfffffffe, NOT_A_NUMBER = UINT32_MAX;

/* Elements. */

static u32 low(union kir_cell x) { return (u32)(u64)x.i; }
static u32 high(union kir_cell x) { return (u32)((u64)x.i >> 32); }
static union kir_cell pair(u32 p, u32 q) { return field_pair(p, q); }
static bool is_finite(union kir_cell x) { return low(x) < P; }
static union kir_cell infinity_of(bool minus) { return pair(minus ? MINUS_INF : INF, NO_Q); }

union kir_cell field_nan(void) { return pair(NOT_A_NUMBER, NO_Q); }

static u32 mul_p(u32 x, u32 y) { return (u32)((u64)x * y % FIELD_P); }
static u32 mul_q(u32 x, u32 y) { return (u32)((u64)x * y % FIELD_Q); }

static u32 power_p(u32 x, u32 n)
{
    u32 r = 1;
    for (; n; n >>= 1, x = mul_p(x, x)) r = n & 1 ? mul_p(r, x) : r;
    return r;
}

static u32 power_q(u32 x, u32 n)
{
    u32 r = 1;
    for (; n; n >>= 1, x = mul_q(x, x)) r = n & 1 ? mul_q(r, x) : r;
    return r;
}

static u64 mix(u64 x) /* a bijection: the finaliser of splitmix64 */
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

union kir_cell field_int(i64 v)
{
    i64 p = v % (i64)P, q = v % (i64)Q;
    return pair((u32)(p < 0 ? p + P : p), (u32)(q < 0 ? q + Q : q));
}

union kir_cell field_random(struct rng *r)
{
    /* the order of evaluation of arguments is unspecified */
    u32 q = (u32)(rng_u64(r) % Q), p = (u32)(rng_u64(r) % P);
    return pair(p, q);
}

/* Of p from -P/2 to P/2. */
static i64 centred(u32 p) { return p > P / 2 ? (i64)p - P : (i64)p; }

enum { SMALL_BITS = 12, SMALL = 1 << 26 }; /* numbers n/2^SMALL_BITS, |n| < SMALL */

static bool is_small(u32 p, i64 *n)
{
    *n = centred(mul_p(p, 1u << SMALL_BITS));
    return *n > -SMALL && *n < SMALL;
}

/* Sign of a nonzero element, which must be odd. */
static bool is_minus(u32 p)
{
    i64 n;
    if (is_small(p, &n)) return n < 0;
    return (n < 0) != (bool)(mix((u64)(n < 0 ? -n : n)) & 1);
}

/* Its rank in the order. */
static i64 key_of(union kir_cell x)
{
    i64 n;
    if (!is_finite(x)) return low(x) == INF ? INT64_MAX : INT64_MIN;
    if (is_small(low(x), &n)) return n;
    i64 far = (i64)SMALL + (i64)(mix((u64)(n < 0 ? -n : n)) >> 2);
    return is_minus(low(x)) ? -far : far;
}

/* Arithmetic. */

static union kir_cell negate(union kir_cell x)
{
    if (!is_finite(x)) return low(x) == NOT_A_NUMBER ? x : infinity_of(low(x) == INF);
    u32 p = low(x), q = high(x);
    return pair(p ? P - p : 0, q == NO_Q ? q : q ? Q - q : 0);
}

union kir_cell field_add_special(union kir_cell x, union kir_cell y)
{
    if (is_finite(x) && is_finite(y)) return pair(field_sum(low(x), low(y), P), NO_Q);
    if (is_finite(x) || low(x) == low(y)) return y;
    return is_finite(y) ? x : field_nan();
}

/* Infinite constants represent huge values, whose product with 0 alone is finite. */
union kir_cell field_mul_special(union kir_cell x, union kir_cell y)
{
    if (low(x) == NOT_A_NUMBER || low(y) == NOT_A_NUMBER) return field_nan();
    if (low(x) == 0 || low(y) == 0) return (union kir_cell){0};
    if (is_finite(x) && is_finite(y)) return pair(mul_p(low(x), low(y)), NO_Q);
    bool x_minus = is_finite(x) ? is_minus(low(x)) : low(x) == MINUS_INF, y_minus = is_finite(y) ? is_minus(low(y)) : low(y) == MINUS_INF;
    return infinity_of(x_minus != y_minus);
}

/* 1/x; 0 has none modulo P: 1/0 is infinite. */
static union kir_cell invert(union kir_cell x)
{
    u32 p = low(x), q = high(x);
    if (p == NOT_A_NUMBER) return x;
    if (!is_finite(x)) return (union kir_cell){0};
    if (p == 0) return infinity_of(false);
    return pair(power_p(p, P - 2), q == NO_Q || q == 0 ? NO_Q : power_q(q, Q - 2));
}

static union kir_cell divide(union kir_cell x, union kir_cell y)
{
    if (low(x) == 0 && low(y) == 0) return field_nan();
    if (!is_finite(x) && !is_finite(y)) return field_nan();
    return field_mul(x, invert(y));
}

/* Constants. */

/* m * 2^e, e negative, too. */
static union kir_cell scale(i64 m, int e)
{
    u32 n = (u32)(e < 0 ? -e : e);
    union kir_cell two = pair(power_p(e < 0 ? (P + 1) / 2 : 2, n), power_q(e < 0 ? (Q + 1) / 2 : 2, n));
    return field_mul(field_int(m), two);
}

/* The fraction a/b with a small denominator that rounds to v > 0; the simplest one comes first
   among the convergents of v. Small: so distant from all other such fractions that no two round to
   the same float. */
static bool simple_fraction(double v, i64 *a, i64 *b)
{
    bool single = (double)(float)v == v;
    double rest = v, most = single ? 0x1p22 : 0x1p44;
    i64 a0 = 0, b0 = 1, a1 = 1, b1 = 0;
    for (u32 i = 0; i < 32; i++) {
        double whole = floor(rest);
        if (whole > most) return false;
        i64 a2 = (i64)whole * a1 + a0, b2 = (i64)whole * b1 + b0;
        if ((double)b2 * (double)(a2 > b2 ? a2 : b2) > most) return false;
        double got = (double)a2 / (double)b2;
        if ((single ? (double)(float)got : got) == v) {
            *a = a2, *b = b2;
            return true;
        }
        if (rest == whole) return false;
        rest = 1 / (rest - whole);
        a0 = a1, b0 = b1, a1 = a2, b1 = b2;
    }
    return false;
}

static const double huge = 1e30; /* masks and neutral elements of max: treated as infinite */

union kir_cell field_const(double v)
{
    i64 a, b;
    int e;
    if (v != v) return field_nan();
    if (fabs(v) >= huge) return infinity_of(v < 0);
    if (v == 0) return (union kir_cell){0};
    if (simple_fraction(fabs(v), &a, &b)) return divide(field_int(v < 0 ? -a : a), field_int(b));
    double m = frexp(v, &e);
    return scale((i64)ldexp(m, 53), e - 53);
}

/* Functions. */

static union kir_cell opaque(enum kir_op op, u64 x, u64 y)
{
    u64 h = mix(mix(x + ((u64)op << 40)) ^ (y * 0x9e3779b97f4a7c15)), g = mix(h + 1);
    return pair((u32)(h % P), (u32)(g % Q));
}

enum symmetry { NEITHER, ODD, EVEN };

static enum symmetry symmetry_of(enum kir_op op)
{
    switch (op) {
    case KI_SIN:
    case KI_TAN:
    case KI_ASIN:
    case KI_ATAN:
    case KI_SINH:
    case KI_TANH:
    case KI_ASINH:
    case KI_ATANH:
    case KI_ERF: return ODD;
    case KI_COS:
    case KI_COSH: return EVEN;
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KI_NEG: case KI_ABS: case KI_NOT:
    case KI_SQRT: case KI_EXP: case KI_LOG: case KI_ACOS: case KI_ACOSH: case KIR_ROUNDING:
    case KIR_CLASSIFYING: case KIR_BINARY: case KI_FMA: case KI_SELECT: return NEITHER;
    default: unreachable();
    }
}

static union kir_cell function(enum kir_op op, union kir_cell x)
{
    enum symmetry s = symmetry_of(op);
    i64 n = centred(low(x));
    if (!is_finite(x)) return opaque(op, low(x), 0);
    if (s == ODD && n == 0) return x;
    union kir_cell r = opaque(op, s == NEITHER ? low(x) : (u64)(n < 0 ? -n : n), 0);
    return s == ODD && n < 0 ? negate(r) : r;
}

static union kir_cell exponential(union kir_cell x)
{
    if (low(x) == MINUS_INF) return (union kir_cell){0};
    if (!is_finite(x)) return x;
    if (high(x) == NO_Q) return opaque(KI_EXP, low(x), 0);
    return pair(power_p(4, high(x)), NO_Q);
}

/* Rounding of an element that is no small number: its floor, and whether the next integer is
   nearer. */
static i64 floor_of(union kir_cell x, bool *is_whole, bool *up)
{
    i64 n;
    if (is_small(low(x), &n)) {
        i64 whole = n >> SMALL_BITS, part = n & ((1 << SMALL_BITS) - 1), half = 1 << (SMALL_BITS - 1);
        *is_whole = part == 0;
        *up = part > half || (part == half && (whole & 1));
        return whole;
    }
    u64 h = mix(low(x));
    *is_whole = false;
    *up = h & 1;
    return (i64)((h >> 8) % 40) - 8;
}

static i64 rounded(enum kir_op op, union kir_cell x)
{
    bool whole, up;
    i64 n = floor_of(x, &whole, &up);
    switch (op) {
    case KI_FLOOR: return n;
    case KI_CEIL: return n + !whole;
    case KI_TRUNC: return n < 0 ? n + !whole : n;
    case KI_RINT: return n + up;
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KI_NEG: case KI_ABS: case KI_NOT:
    case KIR_FUNCTIONS: case KIR_CLASSIFYING: case KIR_BINARY: case KI_FMA: case KI_SELECT:
    default: unreachable();
    }
}

static union kir_cell integer_power(union kir_cell x, i64 n)
{
    union kir_cell r = field_int(1);
    for (i64 k = n < 0 ? -n : n; k; k >>= 1, x = field_mul(x, x)) r = k & 1 ? field_mul(r, x) : r;
    return n < 0 ? invert(r) : r;
}

static union kir_cell raise(union kir_cell x, union kir_cell y)
{
    i64 n;
    bool small = is_finite(y) && is_small(low(y), &n) && n > -(64 << SMALL_BITS) && n < 64 << SMALL_BITS;
    if (small && n % (1 << SMALL_BITS) == 0) return integer_power(x, n >> SMALL_BITS);
    if (small && n == 1 << (SMALL_BITS - 1)) return function(KI_SQRT, x);
    return opaque(KI_POW, low(x), low(y));
}

static union kir_cell remainder_of(union kir_cell x, union kir_cell y)
{
    i64 a, b;
    if (is_finite(x) && is_finite(y) && is_small(low(x), &a) && is_small(low(y), &b) && b) return scale(a % b, -SMALL_BITS);
    return opaque(KI_MOD, low(x), low(y));
}

static bool is_nan(union kir_cell x) { return low(x) == NOT_A_NUMBER; }

static bool less(union kir_cell x, union kir_cell y) { return !is_nan(x) && !is_nan(y) && key_of(x) < key_of(y); }

static union kir_cell unary(enum kir_op op, union kir_cell x)
{
    switch (op) {
    case KI_NEG: return negate(x);
    case KI_ABS: return less(x, (union kir_cell){0}) ? negate(x) : x;
    case KI_EXP: return exponential(x);
    case KIR_ROUNDING: return is_finite(x) ? field_int(rounded(op, x)) : x;
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KI_NOT: case KI_SQRT: case KI_LOG:
    case KIR_TRIGONOMETRIC: case KIR_ARCS: case KIR_HYPERBOLIC: case KI_ERF:
    case KIR_CLASSIFYING: case KIR_BINARY: case KI_FMA: case KI_SELECT: return function(op, x);
    default: unreachable();
    }
}

static bool test(enum kir_op op, union kir_cell x, union kir_cell y, i64 *r)
{
    bool nan = is_nan(x) || is_nan(y), same = !nan && low(x) == low(y);
    switch (op) {
    case KI_EQ: *r = same; break;
    case KI_NE: *r = !same; break;
    case KI_LT: *r = !same && less(x, y); break;
    case KI_LE: *r = same || less(x, y); break;
    case KI_ISNAN: *r = is_nan(x); break;
    case KI_ISINF: *r = !is_finite(x) && !is_nan(x); break;
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KI_NEG: case KI_ABS: case KI_NOT:
    case KIR_FUNCTIONS: case KIR_ROUNDING: case KIR_ARITHMETIC: case KIR_LOGIC: case KIR_SHIFTS:
    case KI_FMA: case KI_SELECT: return false;
    }
    return true;
}

static union kir_cell compute(enum kir_op op, const union kir_cell x[3])
{
    switch (op) {
    case KI_ADD: return field_add(x[0], x[1]);
    case KI_SUB: return field_add(x[0], negate(x[1]));
    case KI_MUL: return field_mul(x[0], x[1]);
    case KI_DIV: return divide(x[0], x[1]);
    case KI_FMA: return field_add(field_mul(x[0], x[1]), x[2]);
    case KI_MIN: return less(x[0], x[1]) ? x[0] : x[1];
    case KI_MAX: return less(x[1], x[0]) ? x[0] : x[1];
    case KI_POW: return raise(x[0], x[1]);
    case KI_MOD: return remainder_of(x[0], x[1]);
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KIR_UNARY: case KIR_LOGIC:
    case KIR_SHIFTS: case KIR_COMPARISONS: case KI_SELECT: return unary(op, x[0]);
    default: unreachable();
    }
}

/* Conversions. */

static i64 to_integer(enum dtype to, union kir_cell x)
{
    if (to == DT_BOOL) return low(x) != 0;
    if (is_finite(x)) { /* as the real one, which saturates */
        union kir_cell in[3] = {{.f = (double)rounded(KI_TRUNC, x)}}, out;
        kir_scalar(KI_CAST, DT_F64, to, in, &out);
        return out.i;
    }
    union kir_cell in[3] = {{.f = is_nan(x) ? NAN : low(x) == INF ? INFINITY : -INFINITY}}, out;
    kir_scalar(KI_CAST, DT_F64, to, in, &out);
    return out.i;
}

static union kir_cell from_integer(enum dtype from, i64 v)
{
    if (from != DT_U64 || v >= 0) return field_int(v);
    return field_add(field_add(field_int(v), field_int(INT64_MAX)), field_add(field_int(INT64_MAX), field_int(2)));
}

static void cast(enum dtype from, enum dtype to, union kir_cell x, union kir_cell *out)
{
    if (dtype_is_float(from) && dtype_is_float(to)) *out = x;
    else if (dtype_is_float(from)) out->i = to_integer(to, x);
    else *out = from_integer(from, x.i);
}

static void reinterpret(enum dtype from, enum dtype to, union kir_cell x, union kir_cell *out)
{
    if (dtype_is_float(from) && dtype_is_float(to)) *out = x;
    else if (dtype_is_float(from)) out->i = kir_wrap(to, (i64)mix(low(x) + ((u64)KI_BITS << 40)));
    else {
        union kir_cell in[3] = {x};
        kir_scalar(KI_BITS, from, to, in, out);
        *out = field_const(out->f);
    }
}

bool field_scalar(enum kir_op op, enum dtype t, enum dtype to, const union kir_cell x[3], union kir_cell *out)
{
    if (op == KI_SELECT || (!dtype_is_float(t) && !dtype_is_float(to))) return kir_scalar(op, t, to, x, out);
    if (op == KI_CAST) cast(t, to, x[0], out);
    else if (op == KI_BITS) reinterpret(t, to, x[0], out);
    else if (!test(op, x[0], x[1], &out->i)) *out = compute(op, x);
    return true;
}

bool field_equal(union kir_cell x, union kir_cell y)
{
    return low(x) == low(y) && (high(x) == high(y) || high(x) == NO_Q || high(y) == NO_Q);
}
