// SPDX-License-Identifier: Apache-2.0
//
// whole: bounds of data that is an integer whatever its operands are: rounded values that were clamped to constants, quantised values, and what is
// computed from them by additions, bounds and conversions. NaN counts as a number within the bounds, because conversions of NaN to integers have no
// defined result.
#include "kir/kir.h"

#include <math.h>

enum { DEPTH = 8 }; /* instructions that are followed */

static bool find(const struct kir *k, kval v, u32 depth, struct kir_range *r);

/* The constant of v, a scalar or a vector of equal lanes. */
static bool number_of(const struct kir *k, kval v, double *number)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->op == KI_SPLAT) x = kir_at(k, x->a);
    if (x->op != KI_CONST) return false;
    *number = dtype_is_float(x->dtype) ? x->imm.f : (double)x->imm.i;
    return true;
}

/* The operand of v besides a constant; 0: v has another operator, or no constant. */
static kval beside_constant(const struct kir *k, kval v, enum kir_op op, double *number)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->op != (u32)op) return 0;
    return number_of(k, x->b, number) ? x->a : number_of(k, x->a, number) ? x->b : 0;
}

/* A float between two constants, rounded. */
static bool find_rounded(const struct kir *k, kval v, struct kir_range *r)
{
    double low, high;
    kval rest = beside_constant(k, v, KI_MIN, &high);
    const bool is_clamped = rest ? beside_constant(k, rest, KI_MAX, &low) != 0
                                 : (rest = beside_constant(k, v, KI_MAX, &low)) && beside_constant(k, rest, KI_MIN, &high);
    if (!is_clamped || !(low <= high) || low < -KIR_WHOLE || high > KIR_WHOLE) return false;
    *r = (struct kir_range){(i64)rint(low), (i64)rint(high)};
    return true;
}

static bool holds(enum dtype t, struct kir_range r)
{
    if (dtype_is_float(t)) return dtype_size(t) >= 4;
    const i64 bits = 8 * dtype_size(t);
    const bool is_unsigned = dtype_kind(t) == DK_UINT;
    if (t == DT_BOOL || (is_unsigned && r.lo < 0)) return false;
    if (bits == 64) return true;
    const i64 low = is_unsigned ? 0 : -((i64)1 << (bits - 1));
    return r.lo >= low && r.hi < low + ((i64)1 << bits);
}

static bool find_both(const struct kir *k, const struct kir_ins *x, u32 depth, struct kir_range *r)
{
    struct kir_range a, b;
    if (!find(k, x->a, depth, &a) || !find(k, x->b, depth, &b)) return false;
    *r = x->op == KI_ADD ? (struct kir_range){a.lo + b.lo, a.hi + b.hi}
         : x->op == KI_SUB ? (struct kir_range){a.lo - b.hi, a.hi - b.lo}
         : x->op == KI_MIN ? (struct kir_range){i64_min(a.lo, b.lo), i64_min(a.hi, b.hi)}
                           : (struct kir_range){i64_max(a.lo, b.lo), i64_max(a.hi, b.hi)};
    return holds((enum dtype)x->dtype, *r);
}

static bool find(const struct kir *k, kval v, u32 depth, struct kir_range *r)
{
    const struct kir_ins *x = kir_at(k, v);
    double number;
    if (!depth--) return false;
    bool ok = true;
    if (number_of(k, v, &number)) ok = fabs(number) <= KIR_WHOLE && number == floor(number), *r = (struct kir_range){ok ? (i64)number : 0, ok ? (i64)number : 0};
    else if (x->op == KI_SPLAT) ok = find(k, x->a, depth, r);
    else if (x->op == KI_RINT) ok = find_rounded(k, x->a, r);
    else if (x->op == KI_ADD || x->op == KI_SUB || x->op == KI_MIN || x->op == KI_MAX) ok = find_both(k, x, depth, r);
    else if (x->op == KI_CAST) ok = find(k, x->a, depth, r) && holds((enum dtype)x->dtype, *r);
    else if (x->op == KI_LOAD && dtype_is_int(x->dtype) && dtype_size(x->dtype) <= 2) {
        const i64 size = (i64)1 << (8 * dtype_size(x->dtype)), low = dtype_kind(x->dtype) == DK_UINT ? 0 : -size / 2;
        *r = (struct kir_range){low, low + size - 1};
    } else ok = false;
    return ok && r->lo >= -KIR_WHOLE && r->hi <= KIR_WHOLE;
}

bool kir_whole(const struct kir *k, kval v, struct kir_range *r) { return find(k, v, DEPTH, r); }

bool kir_whole_in(const struct kir *k, kval v, enum dtype t)
{
    struct kir_range r;
    return kir_whole(k, v, &r) && holds(t, r);
}
