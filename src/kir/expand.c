// SPDX-License-Identifier: Apache-2.0
//
// expand.c: replaces transcendental operators by arithmetic, for languages whose target
// lacks them or computes them inaccurately (math.h states the requirements of the
// result), and dot products by multiply-adds, for targets without such an instruction.
#include "kir/legal.h"
#include "kir/math.h"

bool kir_can_expand(enum kir_op op, enum dtype t)
{
    switch (op) {
    case KIR_TRANSCENDENTAL:
    case KI_POW: return math_type(t) != NULL;
    case KIR_DOTS: return true;
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KIR_CONVERSIONS: case KI_NEG:
    case KI_ABS: case KI_NOT: case KI_SQRT: case KIR_ROUNDING: case KIR_CLASSIFYING:
    case KI_ADD: case KI_SUB: case KI_MUL: case KI_DIV: case KI_MOD: case KI_MIN: case KI_MAX:
    case KIR_LOGIC: case KIR_SHIFTS: case KIR_COMPARISONS: case KI_FMA: case KI_SELECT:
    case KIR_STRUCTURE: case KIR_COLLECTIVES: return false;
    default: unreachable();
    }
}

static kval expand(struct kir *k, enum kir_op op, kval a, kval b)
{
    const struct math m = {.k = k, .t = math_type(kir_dtype(k, a)), .lanes = kir_lanes(k, a)};
    switch (op) {
    case KIR_TRIGONOMETRIC: return math_trig(&m, op, a);
    case KIR_ARCS: return math_arc(&m, op, a);
    case KI_POW: return math_pow(&m, a, b);
    case KIR_EXPONENTIALS: return math_exp(&m, op, a);
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KI_NEG: case KI_ABS: case KI_NOT:
    case KI_SQRT: case KIR_ROUNDING: case KIR_CLASSIFYING: case KI_ADD:
    case KI_SUB: case KI_MUL: case KI_DIV: case KI_MOD: case KI_MIN: case KI_MAX:
    case KIR_LOGIC: case KIR_SHIFTS: case KIR_COMPARISONS: case KI_FMA: case KI_SELECT:
    default: unreachable();
    }
}

static kval expand_dot(struct kir *k, kval a, kval b, kval c)
{
    enum dtype t = kir_dtype(k, c);
    u32 lanes = kir_lanes(k, c);
    for (u32 i = 0, n = kir_lanes(k, a) / lanes; i < n; i++)
        c = kir_fma(k, kir_cast(k, t, kir_every(k, a, i, lanes)), kir_cast(k, t, kir_every(k, b, i, lanes)), c);
    return c;
}

/* Term by term: the rows' elements twice each, and the columns' alternately. */
static kval expand_mmla(struct kir *k, kval a, kval b, kval c)
{
    enum dtype t = kir_dtype(k, c);
    for (u32 i = 0, n = kir_lanes(k, a) / 2; i < n; i++) {
        kval rows = kir_halves(k, kir_splat(k, kir_lane(k, a, i), 4), kir_splat(k, kir_lane(k, a, n + i), 4), 0);
        kval columns = kir_repeat(k, kir_every(k, b, i, 2), 4);
        c = kir_fma(k, kir_cast(k, t, rows), kir_cast(k, t, columns), c);
    }
    return c;
}

static bool is_wanted(const struct kir *k, kval v, kir_wants *wants, const void *user)
{
    const struct kir_ins *x = kir_at(k, v);
    return kir_can_expand(x->op, x->dtype) && wants(user, k, v);
}

/* true: something was expanded */
static bool expand_all(struct kir *out, const struct kir *in, kir_wants *wants, const void *user)
{
    struct arena scratch = {0};
    struct kir_copy c = {.in = in, .out = out};
    bool any = false;
    kir_copy_init(&c, &scratch);
    for (kval v = 1; v < in->ins.n; v++) {
        const struct kir_ins *x = kir_at(in, v);
        if (!is_wanted(in, v, wants, user)) {
            kir_copy_ins(&c, v);
            continue;
        }
        kval p = kir_copy_get(&c, x->a, 0), q = kir_copy_get(&c, x->b, 0), r = kir_copy_get(&c, x->c, 0);
        kir_copy_set(&c, v, x->op == KI_DOT ? expand_dot(out, p, q, r) : x->op == KI_MMLA ? expand_mmla(out, p, q, r) : expand(out, x->op, p, q));
        any = true;
    }
    arena_release(&scratch);
    return any;
}

void kir_expand_math(struct kir *out, struct arena *a, const struct kir *in, kir_wants *wants,
                     const void *user)
{
    struct kir any;
    kir_init(out, a, in->name);
    if (!expand_all(out, in, wants, user)) return;
    any = *out;
    kir_order(out, a, &any, true);
}
