// SPDX-License-Identifier: Apache-2.0
//
// range.c: bounds of i64 values. One step of interval arithmetic per instruction, done when it is
// appended, so that asking costs nothing. The range of a vector covers all of its lanes. Index
// arithmetic is assumed not to overflow (kir.h); where a bound itself would overflow, the range is
// the full one.
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
    return (struct kir_range){a.hi == INT64_MAX ? INT64_MIN : -a.hi,
                              a.lo == INT64_MIN ? INT64_MAX : -a.lo};
}

/* An end of the type's range stands for "unknown" and stays there. */
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
    switch ((int)op) {
    case KI_ADD: return range_add(a, b);
    case KI_SUB: return range_add(a, range_neg(b));
    case KI_MUL: return range_mul(a, b);
    case KI_DIV: return range_div(a, b);
    case KI_MOD: return range_mod(a, b);
    case KI_MIN: return (struct kir_range){i64_min(a.lo, b.lo), i64_min(a.hi, b.hi)};
    case KI_MAX: return (struct kir_range){i64_max(a.lo, b.lo), i64_max(a.hi, b.hi)};
    case KI_AND: return a.lo >= 0 && b.lo >= 0 ? (struct kir_range){0, i64_min(a.hi, b.hi)} : full;
    default: return full;
    }
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

/* Of a text that is not verified yet, dim may be anything. */
static i64 thread_count(const struct kir *k, i64 dim)
{
    return dim >= 0 && dim < 3 && k->group[dim] ? k->group[dim] : 1;
}

struct kir_range kir_range_of(const struct kir *k, const struct kir_ins *x)
{
    if (x->dtype != DT_I64) return full;
    struct kir_range a = kir_range(k, x->a), b = kir_range(k, x->b), c = kir_range(k, x->c);
    switch ((int)x->op) {
    case KI_CONST: return (struct kir_range){x->imm.i, x->imm.i};
    case KI_SPLAT:
    case KI_LANE:
    case KI_HMIN:
    case KI_HMAX: return a;
    case KI_RAMP: return range_ramp(a, x->imm.i, x->lanes);
    case KI_CAST: return type_range(kir_dtype(k, x->a));
    case KI_NEG: return range_neg(a);
    case KI_ABS: return range_abs(a);
    case KI_SELECT: return (struct kir_range){i64_min(b.lo, c.lo), i64_max(b.hi, c.hi)};
    case KI_GRID: return (struct kir_range){0, a.hi == INT64_MAX ? a.hi : i64_max(a.hi - 1, 0)};
    case KI_LOOP:
        return (struct kir_range){a.lo, b.hi == INT64_MAX ? b.hi : i64_max(b.hi - 1, a.lo)};
    case KI_THREAD: return (struct kir_range){0, thread_count(k, x->imm.i) - 1};
    default: return range_bin(x->op, a, b);
    }
}
