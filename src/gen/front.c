// SPDX-License-Identifier: Apache-2.0
//
// front: the price of prologues. An operand that the task computes, instead of loading it, costs its prologue each time that a kernel
// evaluates an element: once where it is packed or copied for all that follows, again for every block of columns where each packs its
// own. Families count evaluations; the price of one is found here by emitting it, as the probes of space.c do.
#include "gen/gen.h"

enum { LANES = 8, PLAIN = 2 /* operations on an operand that is loaded: that, and a store */ };

/* Every function as arithmetic: an estimate of what the target's compiler makes of it. */
static bool wants(const void *user, const struct kir *k, kval v) { return true; }

/* Operations on vectors; a gather loads its lanes one by one. */
static double count_work(const struct kir *k)
{
    double n = 0;
    for (kval i = 1; i < k->ins.n; i++) {
        const struct kir_ins *x = kir_at(k, i);
        bool is_vector = x->op == KI_STORE || (x->lanes > 1 && x->op != KI_CONST && x->op != KI_RAMP && x->op != KI_SPLAT);
        if (is_vector) n += x->op == KI_LOAD && !kir_is_contiguous(k, x->b) ? x->lanes : 1;
    }
    return n;
}

/* To evaluate a vector of v along an axis, and to store it. */
static double work_along(const struct graph *g, value_id v, u32 axis)
{
    const struct value *x = graph_value(g, v);
    struct arena a = {0};
    struct kir k, plain;
    struct emit m;
    kval idx[MAX_RANK];
    kir_init(&k, &a, S("front"));
    emit_init(&m, &k, g, op_lower, &a);
    kval to = kir_alloc(&k, KS_TEMP, emit_type(x->dtype), 1, kir_int(&k, LANES));
    emit_args(&m);
    kir_grid(&k, kir_param(&k, S("front")));
    for (u32 i = 0; i < x->shape.rank; i++) {
        kval n = emit_dim(&m, v, i);
        idx[i] = kir_loop(&k, KL_SERIAL, kir_int(&k, 0), n, i == axis ? LANES : 1);
    }
    idx[axis] = kir_ramp(&k, idx[axis], 1, LANES);
    kval val = emit_value(&m, v, idx);
    kir_store(&k, to, kir_ramp(&k, kir_int(&k, 0), 1, LANES), kir_splat(&k, val, LANES));
    for (u32 i = 0; i < x->shape.rank + 1; i++) kir_end(&k);
    kir_expand_math(&plain, &a, &k, wants, NULL);
    double n = count_work(&plain);
    arena_release(&a);
    return n;
}

double gen_front(const struct graph *g, value_id v)
{
    const struct value *x = v ? graph_value(g, v) : NULL;
    double least = 0;
    bool any = false;
    for (u32 a = 0; x && x->producer && a < x->shape.rank; a++) {
        double n = gen_static(g, x->shape.dim[a], 0) == 1 ? 0 : work_along(g, v, a);
        if (n > 0 && (!any || n < least)) least = n, any = true;
    }
    return i64_max(0, (i64)least - PLAIN);
}
