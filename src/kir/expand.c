// SPDX-License-Identifier: Apache-2.0
//
// expand.c: replaces transcendental operators by arithmetic, for languages whose target computes
// them not at all or not well enough. math.h says what the result relies on.
#include "kir/legal.h"
#include "kir/math.h"

bool kir_can_expand(enum kir_op op, enum dtype t)
{
    switch ((int)op) {
    case KI_EXP:
    case KI_LOG:
    case KI_SIN:
    case KI_COS:
    case KI_TAN:
    case KI_ASIN:
    case KI_ACOS:
    case KI_ATAN:
    case KI_SINH:
    case KI_COSH:
    case KI_TANH:
    case KI_ASINH:
    case KI_ACOSH:
    case KI_ATANH:
    case KI_ERF:
    case KI_POW: return math_type(t) != NULL;
    default: return false;
    }
}

static kval expand(struct kir *k, enum kir_op op, kval a, kval b)
{
    const struct math m = {.k = k, .t = math_type(kir_dtype(k, a)), .lanes = kir_lanes(k, a)};
    switch ((int)op) {
    case KI_SIN:
    case KI_COS:
    case KI_TAN: return math_trig(&m, op, a);
    case KI_ASIN:
    case KI_ACOS:
    case KI_ATAN: return math_arc(&m, op, a);
    case KI_POW: return math_pow(&m, a, b);
    default: return math_exp(&m, op, a);
    }
}

static bool is_wanted(const struct kir *k, kval v, kir_wants *wants, const void *user)
{
    const struct kir_ins *x = kir_at(k, v);
    return kir_can_expand(x->op, x->dtype) && wants(user, x);
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
        kval p = kir_copy_get(&c, x->a, 0), q = kir_copy_get(&c, x->b, 0);
        kir_copy_set(&c, v, expand(out, x->op, p, q));
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
