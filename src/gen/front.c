// SPDX-License-Identifier: Apache-2.0
//
// front: the price of prologues and epilogues. An operand that the task computes, instead of loading it, costs its prologue each time that a kernel
// evaluates an element: once where it is packed or copied for all that follows, again for every block of columns where each packs its
// own. Families count evaluations; the price of one is found here by emitting it, as the probes of space.c do.
#include "gen/nest.h"

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

/* To evaluate a vector of v along an axis, and to store it. bound: a value that is known, 0: none. */
static double work_along(const struct graph *g, value_id v, u32 axis, value_id bound)
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
    kval sums = bound ? kir_alloc(&k, KS_REG, emit_type(graph_value(g, bound)->dtype), LANES, kir_int(&k, 1)) : 0;
    kir_grid(&k, kir_param(&k, S("front")));
    for (u32 i = 0; i < x->shape.rank; i++) {
        kval n = emit_dim(&m, v, i);
        if (i == axis && gen_static(g, x->shape.dim[i], 0) >= LANES) n = kir_mul_i(&k, kir_div_i(&k, n, LANES), LANES); /* whole vectors */
        idx[i] = kir_loop(&k, KL_SERIAL, kir_int(&k, 0), n, i == axis ? LANES : 1);
    }
    idx[axis] = kir_ramp(&k, idx[axis], 1, LANES);
    kval given = bound ? kir_load(&k, sums, kir_int(&k, 0)) : 0;
    if (bound) emit_bind(&m, bound, gen_given, &given);
    kval val = emit_value(&m, v, idx);
    kir_store(&k, to, kir_ramp(&k, kir_int(&k, 0), 1, LANES), kir_splat(&k, val, LANES));
    for (u32 i = 0; i < x->shape.rank + 1; i++) kir_end(&k);
    kir_expand_math(&plain, &a, &k, wants, NULL);
    double n = count_work(&plain);
    arena_release(&a);
    return n;
}

/* Of the best axis, beyond a load and a store. */
static double work_of(const struct graph *g, value_id v, value_id bound)
{
    const struct value *x = graph_value(g, v);
    double least = 0;
    bool any = false;
    for (u32 a = 0; a < x->shape.rank; a++) {
        double n = gen_static(g, x->shape.dim[a], 0) == 1 ? 0 : work_along(g, v, a, bound);
        if (n > 0 && (!any || n < least)) least = n, any = true;
    }
    return i64_max(0, (i64)least - PLAIN);
}

double gen_front(const struct graph *g, value_id v) { return v && graph_value(g, v)->producer ? work_of(g, v, 0) : 0; }

double front_along(const struct graph *g, value_id v, u32 axis)
{
    double n = graph_value(g, v)->producer ? work_along(g, v, axis, 0) - PLAIN : 0;
    return n > 0 ? n / LANES : 0;
}

double gen_back(const struct graph *g, value_id v)
{
    double n = 0;
    for (u32 i = 0; i < g->output.n; i++)
        if (g->output.v[i] != v && gen_depends(g, g->output.v[i], v)) n += work_of(g, g->output.v[i], v);
    return n;
}
