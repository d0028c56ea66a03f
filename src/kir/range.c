// SPDX-License-Identifier: Apache-2.0
//
// range.c: bounds of i64 values. One step of interval arithmetic per
// instruction when it is appended, so queries are free. The range of a vector
// covers all of its lanes. Index arithmetic is assumed not to overflow
// (kir.h); where a bound itself would overflow, that end is the type's.
//
// Data may overflow: values that are loaded, or cast from floats, may be any i64, and values
// computed from them wrap. Bounds from both sides, by constants or by an index, end that.
#include "kir/kir.h"

static const struct kir_range full = {INT64_MIN, INT64_MAX};

static struct kir_range type_range(enum dtype t)
{
    switch (t) {
    case DT_U8: return (struct kir_range){0, UINT8_MAX};
    case DT_I8: return (struct kir_range){INT8_MIN, INT8_MAX};
    case DT_U16: return (struct kir_range){0, UINT16_MAX};
    case DT_I16: return (struct kir_range){INT16_MIN, INT16_MAX};
    case DT_I32: return (struct kir_range){INT32_MIN, INT32_MAX};
    case DT_U32: return (struct kir_range){0, UINT32_MAX};
    case DT_BOOL: return (struct kir_range){0, 1};
    case DT_NONE:
    case DT_I64:
    case DT_U64:
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
    return full;
}

static struct kir_range range_add(struct kir_range a, struct kir_range b)
{
    struct kir_range r;
    if (__builtin_add_overflow(a.lo, b.lo, &r.lo) || a.lo == INT64_MIN || b.lo == INT64_MIN)
        r.lo = INT64_MIN;
    if (__builtin_add_overflow(a.hi, b.hi, &r.hi) || a.hi == INT64_MAX || b.hi == INT64_MAX)
        r.hi = INT64_MAX;
    return r;
}

static struct kir_range range_neg(struct kir_range a)
{
    return (struct kir_range){a.hi == INT64_MAX ? INT64_MIN : a.hi == INT64_MIN ? INT64_MAX : -a.hi,
                              a.lo == INT64_MIN ? INT64_MAX : -a.lo};
}

/* An end of the type's range means "unknown" and stays there. */
static i64 mul_end(i64 a, i64 b)
{
    i64 r;
    if (!a || !b) return 0;
    bool is_neg = (a < 0) != (b < 0);
    bool is_end = a == INT64_MIN || a == INT64_MAX || b == INT64_MIN || b == INT64_MAX;
    if (is_end || __builtin_mul_overflow(a, b, &r)) return is_neg ? INT64_MIN : INT64_MAX;
    return r;
}

static struct kir_range range_mul(struct kir_range a, struct kir_range b)
{
    const i64 e[4] = {mul_end(a.lo, b.lo), mul_end(a.lo, b.hi), mul_end(a.hi, b.lo),
                      mul_end(a.hi, b.hi)};
    struct kir_range r = {e[0], e[0]};
    for (i64 i = 1; i < countof(e); i++) {
        r.lo = i64_min(r.lo, e[i]);
        r.hi = i64_max(r.hi, e[i]);
    }
    return r;
}

static struct kir_range range_div(struct kir_range a, struct kir_range b)
{
    if (b.lo <= 0) return full;
    if (b.lo == b.hi)
        return (struct kir_range){a.lo == INT64_MIN ? a.lo : a.lo / b.lo,
                                  a.hi == INT64_MAX ? a.hi : a.hi / b.lo};
    return (struct kir_range){i64_min(a.lo, 0), i64_max(a.hi, 0)};
}

static struct kir_range range_mod(struct kir_range a, struct kir_range b)
{
    if (b.lo <= 0) return full;
    i64 m = b.hi == INT64_MAX ? b.hi : b.hi - 1;
    return (struct kir_range){a.lo >= 0 ? 0 : -m, a.hi <= 0 ? 0 : i64_min(a.hi, m)};
}

static struct kir_range range_bin(enum kir_op op, struct kir_range a, struct kir_range b)
{
    switch (op) {
    case KI_DIV: return range_div(a, b);
    case KI_MOD: return range_mod(a, b);
    case KI_MIN: return (struct kir_range){i64_min(a.lo, b.lo), i64_min(a.hi, b.hi)};
    case KI_MAX: return (struct kir_range){i64_max(a.lo, b.lo), i64_max(a.hi, b.hi)};
    case KI_AND: return a.lo >= 0 && b.lo >= 0 ? (struct kir_range){0, i64_min(a.hi, b.hi)} : full;
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KIR_UNARY: case KI_ADD: case KI_SUB:
    case KI_MUL: case KI_POW: case KI_OR: case KI_XOR: case KIR_SHIFTS: case KIR_COMPARISONS:
    case KI_FMA: case KI_SELECT: return full;
    default: unreachable();
    }
}

/* Data: loaded or cast values, and values computed from them. Their ends are wild if they may lie beyond SMALL and no index bounds them. */

enum { WILD_LO = 1, WILD_HI = 2, WILD = WILD_LO | WILD_HI, IS_DATA = 4 };

static const i64 SMALL = (i64)1 << 40;

static u32 ends_of(struct kir_range r) { return (r.lo < -SMALL ? WILD_LO : 0u) | (r.hi > SMALL ? WILD_HI : 0u); }

/* No data; its magnitude depends on sizes only. */
static bool is_index(const struct kir *k, kval v)
{
    return v && kir_dtype(k, v) == DT_I64 && !kir_is_const(k, v, NULL) && !kir_data(k, v) && ends_of(kir_range(k, v));
}

static u32 operands_data(const struct kir *k, const struct kir_ins *x) { return kir_data(k, x->a) | kir_data(k, x->b) | kir_data(k, x->c); }

/* Small numbers from data beside an index: the result is an index, which does not overflow. */
static bool becomes_index(const struct kir *k, const struct kir_ins *x)
{
    return !(operands_data(k, x) & WILD) && (is_index(k, x->a) || is_index(k, x->b) || is_index(k, x->c));
}

/* Whether an operand is data beyond SMALL; an index never is. */
static u32 wild_of(const struct kir *k, kval v) { return kir_is_const(k, v, NULL) ? ends_of(kir_range(k, v)) : kir_data(k, v) & WILD; }

/* Minimum or maximum of two: an end that one operand bounds is bounded. If an index bounds the only
   wild operand, the result is an index. */
static u32 data_bounded(const struct kir *k, const struct kir_ins *x, u32 by_one)
{
    u32 a = wild_of(k, x->a), b = wild_of(k, x->b), wild = (a & b & by_one) | ((a | b) & (WILD ^ by_one));
    if (!operands_data(k, x)) return 0;
    return wild || !(is_index(k, x->a) || is_index(k, x->b)) ? IS_DATA | wild : 0;
}

static u32 data_mod(const struct kir *k, const struct kir_ins *x, struct kir_range r)
{
    if (!operands_data(k, x)) return 0;
    return is_index(k, x->b) && kir_range(k, x->b).lo > 0 ? 0 : IS_DATA | ends_of(r);
}

static u32 data_by_op(const struct kir *k, const struct kir_ins *x, struct kir_range r)
{
    u32 a = kir_data(k, x->a), b = kir_data(k, x->b), all = operands_data(k, x);
    switch (x->op) {
    case KI_HALVES:
    case KI_ZIP: return a | b;
    case KI_LOAD:
    case KI_BITS:
    case KI_CAST: return IS_DATA | ends_of(r);
    case KI_SPLAT:
    case KI_LANE:
    case KI_HMIN:
    case KI_HMAX:
    case KI_SGMIN:
    case KI_SGMAX:
    case KI_SHUFFLE: return a;
    case KI_MIN: return data_bounded(k, x, WILD_HI);
    case KI_MAX: return data_bounded(k, x, WILD_LO);
    case KI_MOD: return data_mod(k, x, r);
    case KI_LOOP: return all & WILD ? IS_DATA | (a & WILD_LO) | (b & WILD_HI) : 0;
    case KI_SELECT: return becomes_index(k, x) ? 0 : all;
    case KIR_NO_OP: case KIR_LEAVES: case KI_RAMP: case KI_HADD: case KIR_UNARY: case KI_ADD:
    case KI_SUB: case KI_MUL: case KI_DIV: case KI_POW: case KIR_LOGIC: case KIR_SHIFTS:
    case KIR_COMPARISONS: case KI_FMA: case KIR_DOTS: case KIR_ARRAYS: case KI_STORE:
    case KI_TILE: case KI_PREFETCH: case KI_GRID: case KI_IF: case KI_ELSE: case KI_END:
    case KIR_SYNC: case KI_SGADD: case KIR_FRAGMENTS:
        return !all || becomes_index(k, x) ? 0 : IS_DATA | ends_of(r);
    default: unreachable();
    }
}

u32 kir_data_of(const struct kir *k, const struct kir_ins *x, struct kir_range r)
{
    bool is_value = x->dtype == DT_I64 && !x->role && x->op != KI_BUF && x->op != KI_ALLOC;
    return is_value ? data_by_op(k, x, r) : 0;
}

bool kir_wraps(const struct kir *k, kval v) { return kir_data(k, v) & WILD; }

/* Of a sum, difference or product: the exact range is also the wrapped one if it is inside the
   type. */
static struct kir_range wrapped(const struct kir *k, const struct kir_ins *x, struct kir_range r)
{
    bool is_exact = r.lo > INT64_MIN && r.hi < INT64_MAX;
    return is_exact || !operands_data(k, x) || becomes_index(k, x) ? r : full;
}

static struct kir_range range_ramp(struct kir_range base, i64 stride, u32 lanes)
{
    i64 reach = mul_end(stride, (i64)lanes - 1);
    return range_add(base, (struct kir_range){i64_min(reach, 0), i64_max(reach, 0)});
}

static struct kir_range range_abs(struct kir_range a)
{
    struct kir_range n = range_neg(a);
    return (struct kir_range){a.lo >= 0 ? a.lo : a.hi <= 0 ? n.lo : 0, i64_max(a.hi, n.hi)};
}

/* Sums. Interval arithmetic forgets that (x + 4) - x is 4; so sums of scalars
   are also split into terms, equal terms cancel, and the rest is bounded. A loop
   index from an unknown start is its start plus something from 0 to its extent. */

enum { MAX_TERMS = 8, MAX_NEST = 6 };

struct linear {
    kval term[MAX_TERMS];
    i64 coef[MAX_TERMS];
    u32 n;
    struct kir_range rest; /* the rest, which is no term */
    bool is_lost;          /* too many terms or too large coefficients: unknown */
};

static struct kir_range range_scale(struct kir_range a, i64 c)
{
    return range_mul(a, (struct kir_range){c, c});
}

static void add_opaque(struct linear *s, kval v, i64 coef)
{
    u32 i = 0;
    while (i < s->n && s->term[i] != v) i++;
    s->is_lost |= i == MAX_TERMS;
    if (s->is_lost) return;
    s->coef[i] = i == s->n ? coef : s->coef[i] + coef;
    s->term[i] = v;
    s->n += i == s->n;
}

static void add_term(const struct kir *k, struct linear *s, kval v, i64 coef, int nest)
{
    const struct kir_ins *x = kir_at(k, v);
    const i64 huge = (i64)1 << 40;
    i64 c = coef;
    bool is_product = x->op == KI_MUL && kir_is_const(k, x->b, &c) && c > -huge && c < huge;
    is_product = is_product && !__builtin_mul_overflow(c, coef, &c);
    s->is_lost |= coef <= -huge || coef >= huge;
    if (s->is_lost) return;
    if (x->op == KI_CONST && x->imm.i > -huge && x->imm.i < huge) {
        s->rest = range_add(s->rest, range_scale((struct kir_range){x->imm.i, x->imm.i}, coef));
    } else if (nest < MAX_NEST && (x->op == KI_ADD || x->op == KI_SUB)) {
        add_term(k, s, x->a, coef, nest + 1);
        add_term(k, s, x->b, x->op == KI_SUB ? -coef : coef, nest + 1);
    } else if (nest < MAX_NEST && is_product) {
        add_term(k, s, x->a, c, nest + 1);
    } else {
        add_opaque(s, v, coef);
    }
}

static struct kir_range linear_range(const struct kir *k, const struct linear *s)
{
    struct kir_range r = s->rest;
    for (u32 i = 0; i < s->n && !s->is_lost; i++)
        if (s->coef[i]) r = range_add(r, range_scale(kir_range(k, s->term[i]), s->coef[i]));
    return s->is_lost ? full : r;
}

static i64 loop_step(const struct kir *k, const struct kir_ins *x)
{
    i64 step; /* of an unverified text, may have any value */
    return kir_is_const(k, x->c, &step) && step > 0 ? step : 1;
}

/* The largest multiple of the step that is below size. */
static i64 loop_reach(const struct kir *k, const struct kir_ins *x, i64 size)
{
    i64 step = loop_step(k, x);
    return size == INT64_MAX ? size : i64_max(size - 1, 0) / step * step;
}

static void expand_loop(const struct kir *k, struct linear *s, u32 i)
{
    const struct kir_ins *x = kir_at(k, s->term[i]);
    struct linear size = {.n = 0};
    add_term(k, &size, x->b, 1, 0);
    add_term(k, &size, x->a, -1, 0);
    i64 coef = s->coef[i], reach = loop_reach(k, x, linear_range(k, &size).hi);
    s->coef[i] = 0;
    s->rest = range_add(s->rest, range_scale((struct kir_range){0, reach}, coef));
    add_term(k, s, x->a, coef, 0);
}

/* The innermost loop index with a non-constant start, which may contain outer ones. n: none. */
static u32 latest_loop(const struct kir *k, const struct linear *s)
{
    u32 best = s->n;
    for (u32 i = 0; i < s->n; i++) {
        const struct kir_ins *x = kir_at(k, s->term[i]);
        bool is_open = s->coef[i] && x->op == KI_LOOP && kir_at(k, x->a)->op != KI_CONST;
        if (is_open && (best == s->n || s->term[i] > s->term[best])) best = i;
    }
    return best;
}

static struct kir_range intersect(struct kir_range a, struct kir_range b)
{
    struct kir_range r = {i64_max(a.lo, b.lo), i64_min(a.hi, b.hi)};
    return r.lo <= r.hi ? r : a; /* empty: unreachable code */
}

/* a + sign * b */
static struct kir_range sum_range(const struct kir *k, kval a, kval b, i64 sign)
{
    struct linear s = {.n = 0};
    if (kir_lanes(k, a) > 1) return full;
    add_term(k, &s, a, 1, 0);
    add_term(k, &s, b, sign, 0);
    struct kir_range r = linear_range(k, &s);
    for (u32 i; (i = latest_loop(k, &s)) < s.n && !s.is_lost;) expand_loop(k, &s, i);
    return intersect(r, linear_range(k, &s));
}

struct kir_range kir_diff_range(const struct kir *k, kval a, kval b)
{
    struct kir_range x = kir_range(k, a), y = kir_range(k, b), r = range_add(x, range_neg(y));
    /* wrapped sums are not ordered */
    return kir_wraps(k, a) || kir_wraps(k, b) ? r : intersect(r, sum_range(k, a, b, -1));
}

static struct kir_range range_sum(const struct kir *k, const struct kir_ins *x, i64 sign)
{
    struct kir_range a = kir_range(k, x->a), b = kir_range(k, x->b);
    return intersect(wrapped(k, x, range_add(a, sign < 0 ? range_neg(b) : b)), wrapped(k, x, sum_range(k, x->a, x->b, sign)));
}

static struct kir_range range_loop(const struct kir *k, const struct kir_ins *x)
{
    struct kir_range a = kir_range(k, x->a), b = kir_range(k, x->b);
    if (b.hi == INT64_MAX) return (struct kir_range){a.lo, b.hi};
    i64 size;
    if (a.lo != a.hi || __builtin_sub_overflow(b.hi, a.lo, &size))
        return (struct kir_range){a.lo, i64_max(b.hi - 1, a.lo)};
    return (struct kir_range){a.lo, a.lo + loop_reach(k, x, size)};
}

/* In an unverified text dim may have any value. */
static i64 thread_count(const struct kir *k, i64 dim)
{
    return dim >= 0 && dim < 3 && k->group[dim] ? k->group[dim] : 1;
}

/* Maximal subgroups of a workgroup, maximal threads of a subgroup. */
static i64 subgroup_count(const struct kir *k, i64 which)
{
    i64 n = 1;
    for (i64 i = 0; i < 3; i++) n = i64_min(n * thread_count(k, i), (i64)1 << 40);
    if (which == 0) return k->subgroup ? (n - 1) / k->subgroup + 1 : n;
    return k->subgroup ? k->subgroup : i64_min(n, 128);
}

struct kir_range kir_range_of(const struct kir *k, const struct kir_ins *x)
{
    if (x->dtype != DT_I64 || x->role) return full;
    struct kir_range a = kir_range(k, x->a), b = kir_range(k, x->b), c = kir_range(k, x->c);
    switch (x->op) {
    case KI_CONST: return (struct kir_range){x->imm.i, x->imm.i};
    case KI_SPLAT:
    case KI_LANE:
    case KI_HMIN:
    case KI_HMAX: return a;
    case KI_HALVES:
    case KI_ZIP: return (struct kir_range){i64_min(a.lo, b.lo), i64_max(a.hi, b.hi)};
    case KI_RAMP: return wrapped(k, x, range_ramp(a, x->imm.i, x->lanes));
    case KI_CAST: return type_range(kir_dtype(k, x->a));
    case KI_NEG: return wrapped(k, x, range_neg(a));
    case KI_ABS: return wrapped(k, x, range_abs(a));
    case KI_SELECT: return (struct kir_range){i64_min(b.lo, c.lo), i64_max(b.hi, c.hi)};
    case KI_GRID: return (struct kir_range){0, a.hi == INT64_MAX ? a.hi : i64_max(a.hi - 1, 0)};
    case KI_LOOP: return range_loop(k, x);
    case KI_ADD: return range_sum(k, x, 1);
    case KI_SUB: return range_sum(k, x, -1);
    case KI_MUL: return wrapped(k, x, range_mul(a, b));
    case KI_SUBGROUP: return (struct kir_range){0, subgroup_count(k, x->imm.i) - 1};
    case KI_SGMIN:
    case KI_SGMAX:
    case KI_SHUFFLE: return a;
    case KI_THREAD: return (struct kir_range){0, thread_count(k, x->imm.i) - 1};
    case KIR_NO_OP: case KI_PARAM: case KI_HADD: case KI_BITS: case KI_NOT: case KIR_FUNCTIONS:
    case KIR_ROUNDING: case KIR_CLASSIFYING: case KI_DIV: case KI_MOD: case KI_MIN: case KI_MAX:
    case KI_POW: case KIR_LOGIC: case KIR_SHIFTS: case KIR_COMPARISONS: case KI_FMA:
    case KIR_DOTS: case KIR_ARRAYS: case KIR_MEMORY: case KI_IF: case KI_ELSE: case KI_END:
    case KIR_SYNC: case KI_SGADD: case KIR_FRAGMENTS: return range_bin(x->op, a, b);
    default: unreachable();
    }
}
