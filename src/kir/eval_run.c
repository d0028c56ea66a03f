// SPDX-License-Identifier: Apache-2.0
//
// eval_run.c: the machine. All threads of a workgroup are at the same operation;
// a stack of masks holds the active threads: a branch and a loop push the
// threads that take them. Where threads diverge both branches are run, each for
// its threads, and a loop until its last thread leaves it. A barrier, or an
// operation of a subgroup, that only some of its threads reach is divergence.
#include "kir/eval.h"

static void mask_count(struct eval_mask *x, u32 lo, u32 hi)
{
    x->n = 0;
    x->lo = hi;
    x->hi = lo;
    for (u32 t = lo; t < hi; t++) {
        if (!x->on[t]) continue;
        if (!x->n++) x->lo = t;
        x->hi = t + 1;
    }
}

/* The active threads for which a condition is `want`; `of` is the enclosing mask. */
static void mask_choose(struct eval_mask *x, const struct eval_mask *of, const union kir_cell *cond,
                        bool want)
{
    for (u32 t = of->lo; t < of->hi; t++) x->on[t] = of->on[t] && (cond[t].i != 0) == want;
    mask_count(x, of->lo, of->hi);
}

static bool do_pure(struct machine *m, const struct eval_op *o)
{
    const struct eval_mask *on = m->on;
    u32 n = on->hi - on->lo, threads = m->n_threads;
    bool ok = true;
    if (o->code == EC_SHAPE) return o->fn(m->cell, o, on->lo, n);
    if (n == threads) ok = o->fn(m->cell, o, 0, o->lanes * threads);
    else
        for (u32 l = 0; l < o->lanes; l++) ok &= o->fn(m->cell, o, l * threads + on->lo, n);
    if (ok) return true;
    for (u32 t = on->lo; t < on->hi; t++) /* again, for the threads concerned */
        for (u32 l = 0; on->on[t] && l < o->lanes; l++) {
            m->thread = t;
            if (!o->fn(m->cell, o, l * threads + t, 1))
                return eval_complain(m, o, "division by zero", 0);
        }
    return true;
}

static void do_loop(struct machine *m, const struct eval_op *o, u32 *pc)
{
    const struct eval_mask *of = m->on++;
    struct eval_mask *x = m->on;
    union kir_cell *index = m->cell + o->r;
    const union kir_cell *from = m->cell + o->a, *to = m->cell + o->b;
    for (u32 t = of->lo; t < of->hi; t++) {
        index[t] = from[t];
        x->on[t] = of->on[t] && from[t].i < to[t].i;
    }
    mask_count(x, of->lo, of->hi);
    if (x->n) return;
    m->on--;
    *pc = o->jump;
}

static void do_next(struct machine *m, const struct eval_op *o, u32 *pc)
{
    struct eval_mask *x = m->on;
    union kir_cell *index = m->cell + o->r;
    const union kir_cell *to = m->cell + o->b;
    for (u32 t = x->lo; t < x->hi; t++)
        x->on[t] = x->on[t] && !__builtin_add_overflow(index[t].i, o->imm, &index[t].i) &&
                   index[t].i < to[t].i;
    mask_count(x, x->lo, x->hi);
    if (x->n) *pc = o->jump;
    else m->on--;
}

/* A new interval of agents. */
static bool epoch_next(struct machine *m)
{
    if (m->first_of_epoch > UINT32_MAX - 2 * (m->n_threads + 1))
        return err_set(m->e, ERR_FAILED, "kernel '%.*s': too many iterations to check",
                       STR_ARG(m->k->name));
    m->first_of_epoch += m->n_threads + 1;
    m->several = m->first_of_epoch + m->n_threads;
    return true;
}

static bool do_barrier(struct machine *m)
{
    if (m->on->n < m->n_threads)
        return err_set(m->e, ERR_FAILED, "kernel '%.*s': barrier in divergent flow",
                       STR_ARG(m->k->name));
    return epoch_next(m);
}

static bool run(struct machine *m)
{
    const struct eval_op *code = m->code.op.v, *o;
    for (u32 pc = m->grid->begin;;) {
        bool ok = true;
        o = &code[pc++];
        m->steps -= m->on->n;
        if (m->steps < 0) return eval_complain(m, o, "too many steps", 0);
        switch (o->code) {
        case EC_PURE:
        case EC_SHAPE: ok = do_pure(m, o); break;
        case EC_GROUP: ok = eval_group(m, o); break;
        case EC_LOAD: ok = eval_load(m, o); break;
        case EC_STORE: ok = eval_store(m, o); break;
        case EC_COPY: ok = eval_copy(m, o); break;
        case EC_TILE: ok = eval_tile(m, o); break;
        case EC_AWAIT: eval_await(m, o); break;
        case EC_ALLOC: eval_alloc(m, o); break;
        case EC_LOOP: do_loop(m, o, &pc); break;
        case EC_NEXT: do_next(m, o, &pc); break;
        case EC_IF:
            m->on++;
            mask_choose(m->on, m->on - 1, m->cell + o->a, true);
            if (!m->on->n) pc = o->jump;
            break;
        case EC_ELSE:
            mask_choose(m->on, m->on - 1, m->cell + o->a, false);
            if (!m->on->n) pc = o->jump;
            break;
        case EC_ENDIF: m->on--; break;
        case EC_BARRIER: ok = do_barrier(m); break;
        case EC_STOP: return true;
        }
        if (!ok) return false;
    }
}

bool eval_iteration(struct machine *m)
{
    m->on = m->mask;
    m->first_of_iteration = m->first_of_epoch;
    m->copy.n = 0;
    for (u32 d = 0; d < m->grid->n_dims; d++)
        for (u32 t = 0; t < m->n_threads; t++) m->cell[m->grid->index[d] + t].i = m->index[d];
    return run(m) && epoch_next(m);
}
