// SPDX-License-Identifier: Apache-2.0
//
// simplify.c: the builder's rules for pure operators: constant folding, splats and
// ramps pushed outward, and identities that shorten index expressions. The normal
// form of an i64 sum is (variable part) + constant, of a product (variable part) *
// constant, so that the addresses of unrolled copies differ in a constant only.
//
// Every rule is exact: for wrapping integers, and for floats including NaN, infinities and the sign
// of zero. The exceptions are rules of division, comparison and ranges for i64, which assume that
// index arithmetic does not overflow (kir.h) and leave data alone (kir_wraps), and pow with
// exponents 2 and 3, whose products are rounded one by one.
#include "kir/build.h"

#include <math.h>

/* Operand b of v when v is op(x, constant). */
static bool has_const(const struct kir *k, enum kir_op op, kval v, kval *x, i64 *c)
{
    const struct kir_ins *p = kir_at(k, v);
    if (p->op != op || !kir_is_const(k, p->b, c)) return false;
    *x = p->a;
    return true;
}

static kval int_like(struct kir *k, kval v, i64 c)
{
    return kir_const_i(k, kir_dtype(k, v), kir_lanes(k, v), c);
}

static kval bool_like(struct kir *k, kval v, bool c)
{
    return kir_const_i(k, DT_BOOL, kir_lanes(k, v), c);
}

static kval add_const(struct kir *k, kval v, i64 c) { return kir_add(k, v, int_like(k, v, c)); }

static kval mul_const(struct kir *k, kval v, i64 c) { return kir_mul(k, v, int_like(k, v, c)); }

static i64 wrap_add(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }

static i64 wrap_mul(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }

/* Constants. */

static bool cell_of(const struct kir *k, kval v, union kir_cell *c)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->op != KI_CONST) return false;
    if (dtype_is_float(x->dtype)) c->f = x->imm.f;
    else c->i = x->imm.i;
    return true;
}

static kval fold(struct kir *k, enum kir_op op, enum dtype to, const kval v[3])
{
    union kir_cell x[3] = {{0}}, r = {0};
    for (u32 i = 0; i < kir_op_info(op)->n_args; i++)
        if (!cell_of(k, v[i], &x[i])) return 0;
    enum dtype t = kir_dtype(k, op == KI_SELECT ? v[1] : v[0]);
    if (!kir_scalar(op, t, to, x, &r)) return 0;
    u32 lanes = kir_lanes(k, v[0]);
    return dtype_is_float(to) ? kir_const_f(k, to, lanes, r.f) : kir_const_i(k, to, lanes, r.i);
}

/* Unary. */

static kval simplify_not(struct kir *k, const struct kir_ins *x)
{
    if (x->op == KI_NOT) return x->a;
    if (x->op == KI_EQ) return kir_bin(k, KI_NE, x->a, x->b);
    if (x->op == KI_NE) return kir_bin(k, KI_EQ, x->a, x->b);
    bool is_order = x->op == KI_LT || x->op == KI_LE;
    if (!is_order || dtype_is_float(kir_dtype(k, x->a))) return 0;
    return kir_bin(k, x->op == KI_LT ? KI_LE : KI_LT, x->b, x->a);
}

static kval simplify_un(struct kir *k, enum kir_op op, kval a)
{
    struct kir_ins x = *kir_at(k, a);
    enum dtype to = kir_op_info(op)->rule == 'B' ? DT_BOOL : (enum dtype)x.dtype;
    kval r = fold(k, op, to, (kval[3]){a});
    if (r) return r;
    if (x.op == KI_SPLAT) return kir_repeat(k, kir_un(k, op, x.a), x.lanes);
    if (op == KI_NEG && x.op == KI_NEG) return x.a;
    if (op == KI_NEG && !dtype_is_float(x.dtype)) return mul_const(k, a, -1);
    if (op == KI_ABS && x.op == KI_ABS) return a;
    if (op == KI_ABS && x.op == KI_NEG && dtype_is_float(x.dtype)) return kir_un(k, KI_ABS, x.a);
    if (op == KI_ABS && kir_range(k, a).lo >= 0) return a;
    return op == KI_NOT ? simplify_not(k, &x) : 0;
}

/* Integer sums and products. */

/* v = x * c, with c = 1 for anything but a product with a constant. */
static kval mul_parts(const struct kir *k, kval v, i64 *c)
{
    kval x;
    if (has_const(k, KI_MUL, v, &x, c)) return x;
    *c = 1;
    return v;
}

static kval simplify_add(struct kir *k, kval a, kval b)
{
    kval p;
    i64 c, d;
    const struct kir_ins *x = kir_at(k, a), *y = kir_at(k, b);
    if (kir_is_const(k, b, &d)) {
        if (d == 0) return a;
        return has_const(k, KI_ADD, a, &p, &c) ? add_const(k, p, wrap_add(c, d)) : 0;
    }
    if (has_const(k, KI_ADD, a, &p, &c)) return add_const(k, kir_add(k, p, b), c);
    if (has_const(k, KI_ADD, b, &p, &c)) return add_const(k, kir_add(k, a, p), c);
    if (x->op == KI_SUB && x->b == b) return x->a;
    if (y->op == KI_SUB && y->b == a) return y->a;
    p = mul_parts(k, a, &c);
    return p == mul_parts(k, b, &d) ? mul_const(k, p, wrap_add(c, d)) : 0;
}

static kval simplify_sub(struct kir *k, kval a, kval b)
{
    kval p;
    i64 c, d;
    const struct kir_ins *x = kir_at(k, a), *y = kir_at(k, b);
    if (kir_is_const(k, b, &d)) return add_const(k, a, wrap_mul(d, -1));
    if (has_const(k, KI_ADD, a, &p, &c)) return add_const(k, kir_sub(k, p, b), c);
    if (has_const(k, KI_ADD, b, &p, &c)) return add_const(k, kir_sub(k, a, p), wrap_mul(c, -1));
    if (x->op == KI_ADD && (x->a == b || x->b == b)) return x->a == b ? x->b : x->a;
    if (y->op == KI_SUB && y->a == a) return y->b;
    p = mul_parts(k, a, &c);
    return p == mul_parts(k, b, &d) ? mul_const(k, p, wrap_add(c, wrap_mul(d, -1))) : 0;
}

static kval simplify_mul(struct kir *k, kval a, kval b)
{
    kval p;
    i64 c, d;
    if (!kir_is_const(k, b, &d)) {
        if (has_const(k, KI_MUL, a, &p, &c)) return mul_const(k, kir_mul(k, p, b), c);
        return has_const(k, KI_MUL, b, &p, &c) ? mul_const(k, kir_mul(k, a, p), c) : 0;
    }
    if (d == 0 || d == 1) return d ? a : b;
    /* whole steps */
    if (has_const(k, KI_DIV, a, &p, &c) && c == d && d > 0 && kir_dtype(k, a) == DT_I64 && kir_multiple(k, p) % d == 0) return p;
    if (has_const(k, KI_MUL, a, &p, &c)) return mul_const(k, p, wrap_mul(c, d));
    return has_const(k, KI_ADD, a, &p, &c) ? add_const(k, mul_const(k, p, d), wrap_mul(c, d)) : 0;
}

/* Division of i64 by a constant: terms known to be multiples of it are separated. */

enum { MAX_DEPTH = 6 };

static bool is_multiple(const struct kir *k, kval v, i64 c, int depth)
{
    const struct kir_ins *x = kir_at(k, v);
    i64 d;
    kval p;
    if (kir_is_const(k, v, &d)) return d % c == 0;
    if (kir_wraps(k, v)) return false; /* wrapped values are not multiples */
    if (has_const(k, KI_MUL, v, &p, &d)) return d % c == 0;
    if (depth == MAX_DEPTH || (x->op != KI_ADD && x->op != KI_SUB)) return false;
    return is_multiple(k, x->a, c, depth + 1) && is_multiple(k, x->b, c, depth + 1);
}

/* v / c for v with is_multiple(v, c). */
static kval divide_exact(struct kir *k, kval v, i64 c)
{
    i64 d;
    kval p;
    if (kir_is_const(k, v, &d)) return int_like(k, v, d / c);
    if (has_const(k, KI_MUL, v, &p, &d)) return mul_const(k, p, d / c);
    enum kir_op op = kir_at(k, v)->op;
    kval b = kir_at(k, v)->b;
    kval l = divide_exact(k, kir_at(k, v)->a, c);
    return kir_bin(k, op, l, divide_exact(k, b, c));
}

/* Splits the non-negative sum v into a multiple of c and a rest, both non-negative. */
static bool split_multiple(const struct kir *k, kval v, i64 c, kval part[2])
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->op != KI_ADD || kir_wraps(k, v) || kir_range(k, x->a).lo < 0 || kir_range(k, x->b).lo < 0) return false;
    bool is_a = is_multiple(k, x->a, c, 0);
    part[0] = is_a ? x->a : x->b;
    part[1] = is_a ? x->b : x->a;
    return is_a || is_multiple(k, x->b, c, 0);
}

/* v = x + d with x, d >= 0 and d >= c: the constant contains whole multiples of c. */
static bool has_whole(const struct kir *k, kval v, i64 c, kval *x, i64 *d)
{
    return !kir_wraps(k, v) && has_const(k, KI_ADD, v, x, d) && *d >= c && kir_range(k, *x).lo >= 0;
}

static bool is_below(struct kir_range r, i64 c) { return r.lo > -c && r.hi < c; }

/* A ramp between two adjacent multiples of c, so all lanes have the same quotient: it starts at a
   multiple of a divisor of c that it does not reach the next one of. */
static bool is_short_ramp(const struct kir *k, kval v, i64 c)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->op != KI_RAMP || x->imm.i < 0 || x->imm.i >= c) return false;
    i64 step = is_multiple(k, x->a, c, 0) ? c : i64_min(kir_multiple(k, x->a), c & -c);
    return x->imm.i * (x->lanes - 1) < step && !kir_wraps(k, v) && kir_range(k, x->a).lo >= 0;
}

static kval simplify_div(struct kir *k, kval a, i64 c)
{
    kval p, part[2];
    i64 d;
    if (c == 1) return a;
    if (c <= 0) return 0;
    if (is_below(kir_range(k, a), c)) return int_like(k, a, 0);
    if (is_multiple(k, a, c, 0)) return divide_exact(k, a, c);
    if (is_short_ramp(k, a, c)) {
        const struct kir_ins x = *kir_at(k, a);
        return kir_splat(k, kir_div_i(k, x.a, c), x.lanes);
    }
    if (has_const(k, KI_DIV, a, &p, &d) && d > 0 && !__builtin_mul_overflow(c, d, &d))
        return kir_div(k, p, int_like(k, a, d));
    if (split_multiple(k, a, c, part)) {
        kval q = kir_div(k, part[1], int_like(k, a, c));
        return kir_add(k, divide_exact(k, part[0], c), q);
    }
    if (has_whole(k, a, c, &p, &d))
        return add_const(k, kir_div(k, add_const(k, p, d % c), int_like(k, a, c)), d / c);
    return 0;
}

static kval simplify_mod(struct kir *k, kval a, i64 c)
{
    kval p, part[2];
    i64 d;
    if (c <= 0) return 0;
    if (c == 1 || is_multiple(k, a, c, 0)) return int_like(k, a, 0);
    if (is_below(kir_range(k, a), c)) return a;
    if (is_short_ramp(k, a, c)) {
        const struct kir_ins x = *kir_at(k, a);
        return kir_ramp(k, kir_mod_i(k, x.a, c), x.imm.i, x.lanes);
    }
    if (has_const(k, KI_MOD, a, &p, &d) && d > 0 && d % c == 0)
        return kir_mod(k, p, int_like(k, a, c));
    if (split_multiple(k, a, c, part)) return kir_mod(k, part[1], int_like(k, a, c));
    if (has_whole(k, a, c, &p, &d)) return kir_mod(k, add_const(k, p, d % c), int_like(k, a, c));
    return 0;
}

/* Minimum, maximum and comparisons of integers. */

static kval simplify_min_max(struct kir *k, enum kir_op op, kval a, kval b)
{
    kval p;
    i64 c, d;
    if (a == b) return a;
    if (kir_dtype(k, a) != DT_I64) return 0;
    struct kir_range r = kir_diff_range(k, a, b);
    if (r.hi <= 0) return op == KI_MIN ? a : b;
    if (r.lo >= 0) return op == KI_MIN ? b : a;
    if (!kir_is_const(k, b, &d) || !has_const(k, op, a, &p, &c)) return 0;
    return kir_bin(k, op, p, int_like(k, a, op == KI_MIN ? i64_min(c, d) : i64_max(c, d)));
}

/* By the range of a - b. */
static int decide(enum kir_op op, struct kir_range r)
{
    bool is_apart = r.lo > 0 || r.hi < 0, is_equal = r.lo == 0 && r.hi == 0;
    switch (op) {
    case KI_EQ: return is_apart ? 0 : is_equal ? 1 : -1;
    case KI_NE: return is_apart ? 1 : is_equal ? 0 : -1;
    case KI_LT: return r.hi < 0 ? 1 : r.lo >= 0 ? 0 : -1;
    case KI_LE: return r.hi <= 0 ? 1 : r.lo > 0 ? 0 : -1;
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KIR_UNARY: case KIR_ARITHMETIC:
    case KIR_LOGIC: case KIR_SHIFTS: case KI_FMA: case KI_SELECT: return -1;
    default: unreachable();
    }
}

/* One form for each comparison with a constant: x < c, c < x, constants on one side only. */
static kval compare_consts(struct kir *k, enum kir_op op, kval a, kval b)
{
    kval p, q;
    i64 c, d, r;
    bool wraps = kir_wraps(k, a) || kir_wraps(k, b);
    if (kir_is_const(k, b, &d)) {
        if (op == KI_LE && d < INT64_MAX) return kir_lt(k, a, int_like(k, a, d + 1));
        if (!wraps && has_const(k, KI_ADD, a, &p, &c) && !__builtin_sub_overflow(d, c, &r))
            return kir_bin(k, op, p, int_like(k, a, r));
        return 0;
    }
    if (kir_is_const(k, a, &c)) {
        if (op == KI_LE && c > INT64_MIN) return kir_lt(k, int_like(k, a, c - 1), b);
        if (!wraps && has_const(k, KI_ADD, b, &p, &d) && !__builtin_sub_overflow(c, d, &r))
            return kir_bin(k, op, int_like(k, a, r), p);
        return 0;
    }
    bool is_both = !wraps && has_const(k, KI_ADD, a, &p, &c) && has_const(k, KI_ADD, b, &q, &d);
    if (is_both && !__builtin_sub_overflow(d, c, &r) && r > INT64_MIN)
        return r >= 0 ? kir_bin(k, op, p, add_const(k, q, r))
                      : kir_bin(k, op, add_const(k, p, -r), q);
    return 0;
}

static kval simplify_compare(struct kir *k, enum kir_op op, kval a, kval b)
{
    if (a == b) return bool_like(k, a, op == KI_EQ || op == KI_LE);
    if (kir_dtype(k, a) != DT_I64) return 0;
    int known = decide(op, kir_diff_range(k, a, b));
    if (known >= 0) return bool_like(k, a, known);
    return compare_consts(k, op, a, b);
}

/* Bits and truth. */

static kval simplify_logic(struct kir *k, enum kir_op op, kval a, kval b)
{
    i64 c;
    if (a == b) return op == KI_XOR ? int_like(k, a, 0) : a;
    if (!kir_is_const(k, b, &c)) return 0;
    i64 ones = kir_wrap(kir_dtype(k, a), -1);
    if (c == 0) return op == KI_AND ? b : a;
    if (c == ones && op == KI_XOR) return kir_un(k, KI_NOT, a);
    return c == ones ? (op == KI_AND ? a : b) : 0;
}

static kval simplify_int(struct kir *k, enum kir_op op, kval a, kval b)
{
    i64 c = 0;
    bool is_const = kir_is_const(k, b, &c), is_i64 = kir_dtype(k, a) == DT_I64;
    switch (op) {
    case KI_ADD: return simplify_add(k, a, b);
    case KI_SUB: return simplify_sub(k, a, b);
    case KI_MUL: return simplify_mul(k, a, b);
    case KI_DIV: return is_const && (is_i64 || c == 1) ? simplify_div(k, a, c) : 0;
    case KI_MOD: return is_const && (is_i64 || c == 1) ? simplify_mod(k, a, c) : 0;
    case KI_MIN:
    case KI_MAX: return simplify_min_max(k, op, a, b);
    case KIR_LOGIC: return simplify_logic(k, op, a, b);
    case KIR_SHIFTS: return is_const && c == 0 ? a : 0;
    case KIR_COMPARISONS: return simplify_compare(k, op, a, b);
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KIR_UNARY: case KI_POW: case KI_FMA:
    case KI_SELECT: return 0;
    default: unreachable();
    }
}

/* Floats. */

static bool is_value(const struct kir *k, kval v, double want)
{
    double f;
    return kir_is_float(k, v, &f) && f == want && signbit(f) == signbit(want);
}

static kval float_pow(struct kir *k, kval a, kval b)
{
    if (is_value(k, b, 1)) return a;
    if (is_value(k, b, 2)) return kir_mul(k, a, a);
    if (is_value(k, b, 3)) return kir_mul(k, kir_mul(k, a, a), a);
    if (is_value(k, b, 0)) return kir_const_f(k, kir_dtype(k, a), kir_lanes(k, a), 1);
    return 0;
}

/* Division by a power of two is an exact multiplication. */
static kval float_div(struct kir *k, kval a, kval b)
{
    double f;
    int e;
    if (!kir_is_float(k, b, &f) || fabs(frexp(f, &e)) != 0.5 || e < -100 || e > 100) return 0;
    return kir_mul(k, a, kir_const_f(k, kir_dtype(k, a), kir_lanes(k, a), 1 / f));
}

static kval simplify_float(struct kir *k, enum kir_op op, kval a, kval b)
{
    const struct kir_ins *x = kir_at(k, a), *y = kir_at(k, b);
    switch (op) {
    case KI_ADD:
        if (is_value(k, b, -0.0)) return a;
        if (x->op == KI_NEG) return kir_sub(k, b, x->a);
        return y->op == KI_NEG ? kir_sub(k, a, y->a) : 0;
    case KI_SUB:
        if (is_value(k, b, 0)) return a;
        if (is_value(k, a, -0.0)) return kir_un(k, KI_NEG, b);
        return y->op == KI_NEG ? kir_add(k, a, y->a) : 0;
    case KI_MUL:
        if (is_value(k, b, -1)) return kir_un(k, KI_NEG, a);
        return is_value(k, b, 1) ? a : 0;
    case KI_DIV: return float_div(k, a, b);
    case KI_POW: return float_pow(k, a, b);
    case KI_MIN:
    case KI_MAX: return a == b ? a : 0;
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KIR_UNARY: case KI_MOD: case KIR_LOGIC:
    case KIR_SHIFTS: case KIR_COMPARISONS: case KI_FMA: case KI_SELECT: return 0;
    default: unreachable();
    }
}

/* Vectors of a known shape. */

static bool is_vector(const struct kir_ins *x, enum kir_op op)
{
    return x->op == op && x->lanes > 1;
}

/* A ramp with a ramp or with equal lanes. */
static kval simplify_ramp(struct kir *k, enum kir_op op, kval a, kval b)
{
    struct kir_ins x = *kir_at(k, a), y = *kir_at(k, b);
    bool is_a = is_vector(&x, KI_RAMP), is_b = is_vector(&y, KI_RAMP);
    if (op == KI_MUL) {
        kval r = is_a ? a : b, s = is_a ? b : a;
        i64 c;
        if (!kir_is_const(k, s, &c)) return 0;
        struct kir_ins z = *kir_at(k, r);
        return kir_ramp(k, kir_mul_i(k, z.a, c), wrap_mul(z.imm.i, c), z.lanes);
    }
    if (op != KI_ADD && op != KI_SUB) return 0;
    kval p = is_a ? x.a : kir_scalar_of(k, a), q = is_b ? y.a : kir_scalar_of(k, b);
    if (!p || !q) return 0;
    i64 s = is_a ? x.imm.i : 0, t = is_b ? y.imm.i : 0;
    t = op == KI_SUB ? wrap_mul(t, -1) : t;
    return kir_ramp(k, kir_bin(k, op, p, q), wrap_add(s, t), x.lanes);
}

static kval simplify_vector(struct kir *k, enum kir_op op, kval a, kval b)
{
    const struct kir_ins *x = kir_at(k, a), *y = kir_at(k, b);
    u32 lanes = x->lanes;
    if (is_vector(x, KI_RAMP) || is_vector(y, KI_RAMP)) return simplify_ramp(k, op, a, b);
    if (!is_vector(x, KI_SPLAT) && !is_vector(y, KI_SPLAT)) return 0;
    kval p = kir_scalar_of(k, a), q = kir_scalar_of(k, b);
    return p && q ? kir_splat(k, kir_bin(k, op, p, q), lanes) : 0;
}

bool kir_commutes(enum kir_op op, bool is_float)
{
    switch (op) {
    case KI_ADD:
    case KI_MUL:
    case KIR_LOGIC:
    case KI_EQ:
    case KI_NE: return true;
    case KI_MIN:
    case KI_MAX: return !is_float; /* NaN and signed zeros distinguish the operands */
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KIR_UNARY: case KI_SUB: case KI_DIV:
    case KI_MOD: case KI_POW: case KIR_SHIFTS: case KI_LT: case KI_LE: case KI_FMA:
    case KI_SELECT: return false;
    default: unreachable();
    }
}

static kval simplify_bin(struct kir *k, enum kir_op op, kval a, kval b)
{
    bool is_float = dtype_is_float(kir_dtype(k, a));
    enum dtype to = kir_op_info(op)->rule == 'B' ? DT_BOOL : kir_dtype(k, a);
    kval r = fold(k, op, to, (kval[3]){a, b});
    if (r) return r;
    bool is_a = kir_at(k, a)->op == KI_CONST, is_b = kir_at(k, b)->op == KI_CONST;
    if (kir_commutes(op, is_float) && (is_a || (!is_b && a > b))) return kir_bin(k, op, b, a);
    r = simplify_vector(k, op, a, b);
    if (r) return r;
    return is_float ? simplify_float(k, op, a, b) : simplify_int(k, op, a, b);
}

static kval simplify_fma(struct kir *k, kval a, kval b, kval c)
{
    struct kir_ins x = *kir_at(k, a);
    kval r = fold(k, KI_FMA, x.dtype, (kval[3]){a, b, c});
    if (r) return r;
    bool is_float = dtype_is_float(x.dtype);
    if (!is_float || is_value(k, a, 1) || is_value(k, b, 1) || is_value(k, c, -0.0))
        return kir_add(k, kir_mul(k, a, b), c);
    if (x.op == KI_CONST || (kir_at(k, b)->op != KI_CONST && a > b))
        return x.op == KI_CONST && kir_at(k, b)->op == KI_CONST ? 0 : kir_fma(k, b, a, c);
    if (x.lanes == 1) return 0;
    kval p = kir_scalar_of(k, a), q = kir_scalar_of(k, b), s = kir_scalar_of(k, c);
    return p && q && s ? kir_splat(k, kir_fma(k, p, q, s), x.lanes) : 0;
}

static kval simplify_dot(struct kir *k, kval a, kval b, kval c)
{
    enum dtype t = kir_dtype(k, c);
    u32 lanes = kir_lanes(k, c), n = kir_lanes(k, a) / lanes;
    union kir_cell x, y, sum;
    bool is_a = cell_of(k, a, &x), is_b = cell_of(k, b, &y);
    if (t == DT_I32 && ((is_a && !x.i) || (is_b && !y.i))) return c;
    if (!is_a || !is_b || !cell_of(k, c, &sum)) return 0;
    assert(n <= 4);
    sum = kir_dot_cell(t, (union kir_cell[4]){x, x, x, x}, (union kir_cell[4]){y, y, y, y}, n, sum);
    return t == DT_I32 ? kir_const_i(k, t, lanes, sum.i) : kir_const_f(k, t, lanes, sum.f);
}

static kval simplify_select(struct kir *k, kval cond, kval a, kval b)
{
    struct kir_ins x = *kir_at(k, cond);
    i64 c, d, e;
    if (kir_is_const(k, cond, &c)) return c ? a : b;
    if (a == b) return a;
    if (x.op == KI_NOT) return kir_select(k, x.a, b, a);
    bool is_bool = kir_dtype(k, a) == DT_BOOL && kir_is_const(k, a, &d) && kir_is_const(k, b, &e);
    if (is_bool && d != e) return d ? cond : kir_un(k, KI_NOT, cond);
    if (x.op != KI_SPLAT || kir_lanes(k, x.a) > 1) return 0;
    kval p = kir_scalar_of(k, a), q = kir_scalar_of(k, b);
    return p && q ? kir_splat(k, kir_select(k, x.a, p, q), x.lanes) : 0;
}

/* Whether every value of `from` has its own in `to` that converts back to it. */
static bool is_widening(enum dtype from, enum dtype to)
{
    if (dtype_is_float(from)) return dtype_is_float(to) && dtype_size(to) > dtype_size(from);
    if (from == DT_BOOL) return true;
    if (dtype_is_int(to))
        return dtype_size(to) > dtype_size(from) &&
               (dtype_kind(from) == DK_UINT || dtype_kind(to) == DK_INT);
    return (to == DT_F32 && dtype_size(from) <= 2) || (to == DT_F64 && dtype_size(from) <= 4);
}

/* Casts of rounded values, whose bounds are known: a quantised value that is dequantised in the same kernel need not become a byte in between, and its
   zero point is added to integers. Integers have no negative zero, so that values may become integers earlier, but not later. */
static kval cast_whole(struct kir *k, enum dtype t, kval a)
{
    const struct kir_ins x = *kir_at(k, a);
    const enum dtype from = x.a ? kir_dtype(k, x.a) : DT_NONE;
    i64 whole;
    if (x.op == KI_CAST && dtype_is_int(x.dtype) && !(dtype_is_float(from) && dtype_is_float(t)) && kir_whole_in(k, x.a, x.dtype) && kir_whole_in(k, x.a, t))
        return kir_cast(k, t, x.a);
    if (x.op != KI_ADD || x.dtype != DT_F32 || !dtype_is_int(t)) return 0;
    const struct kir_ins *c = kir_at(k, kir_at(k, x.b)->op == KI_SPLAT ? kir_at(k, x.b)->a : x.b);
    if (c->op != KI_CONST || !kir_whole_in(k, x.a, DT_I32) || !kir_whole_in(k, a, t)) return 0;
    whole = (i64)c->imm.f;
    if ((double)whole != c->imm.f) return 0;
    return kir_cast(k, t, kir_add(k, kir_cast(k, DT_I32, x.a), kir_const_i(k, DT_I32, x.lanes, whole)));
}

static kval simplify_cast(struct kir *k, enum dtype t, kval a)
{
    struct kir_ins x = *kir_at(k, a);
    if (x.dtype == t) return a;
    kval r = fold(k, KI_CAST, t, (kval[3]){a});
    if (r) return r;
    if (x.op == KI_SPLAT) return kir_repeat(k, kir_cast(k, t, x.a), x.lanes);
    if (x.op == KI_CAST && kir_dtype(k, x.a) == t && is_widening(t, x.dtype)) return x.a;
    return cast_whole(k, t, a);
}

const struct kir_rules kir_rules = {
    .un = simplify_un, .bin = simplify_bin, .dot = simplify_dot, .select = simplify_select, .fma = simplify_fma, .cast = simplify_cast};
