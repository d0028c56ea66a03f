// SPDX-License-Identifier: Apache-2.0
//
// eval.c: the interpreter. Runs a kernel on host memory, one grid iteration after the other,
// and checks every access. This file initialises the machine and iterates over the grids.
#include "kir/eval.h"

#include <string.h>

/* Grids. */

static void shared_reset(struct machine *m)
{
    for (u32 i = 1; i < m->code.array.n; i++) {
        const struct kir_ins *x = kir_at(m->k, m->code.array.v[i]);
        const struct eval_array *a = &m->array[i];
        if (x->op == KI_ALLOC && x->aux == KS_SHARED)
            memset(a->shadow, 0, sizeof *a->shadow * (size_t)a->n);
    }
}

/* A permutation of 0..n-1: i * factor + shift mod n, factor prime to n. */
struct order {
    u64 n, factor, shift;
};

static struct order order_init(u64 seed, i64 n)
{
    struct rng r = rng_seed(seed);
    struct order o = {.n = (u64)n, .factor = 1};
    if (!seed || n < 2) return o;
    o.shift = rng_u64(&r) % o.n;
    for (;;) {
        o.factor = 1 + rng_u64(&r) % (o.n - 1);
        u64 a = o.factor, b = o.n;
        while (b) {
            u64 t = a % b;
            a = b;
            b = t;
        }
        if (a == 1) return o;
    }
}

/* (x + y) % n and x * y % n of numbers below n. */
static u64 add_mod(u64 x, u64 y, u64 n) { return x >= n - y ? x - (n - y) : x + y; }

static u64 multiply_mod(u64 x, u64 y, u64 n)
{
    u64 z = 0;
    if (n <= UINT32_MAX) return x * y % n;
    for (; y; y >>= 1, x = add_mod(x, x, n))
        if (y & 1) z = add_mod(z, x, n);
    return z;
}

static i64 order_at(const struct order *o, i64 i)
{
    return (i64)add_mod(multiply_mod((u64)i, (u64)o->factor, (u64)o->n), (u64)o->shift, (u64)o->n);
}

static bool grid_size(struct machine *m, i64 extent[3], i64 *total)
{
    *total = 1;
    for (u32 d = 0; d < m->grid->n_dims; d++) {
        extent[d] = i64_max(m->cell[m->grid->extent[d]].i, 0);
        if (__builtin_mul_overflow(*total, extent[d], total))
            return err_set(m->e, ERR_FAILED, "kernel '%.*s': grid too large", STR_ARG(m->k->name));
    }
    return true;
}

static bool grid_run(struct machine *m, u64 seed)
{
    i64 extent[3], total;
    if (!grid_size(m, extent, &total)) return false;
    struct order order = order_init(seed, total);
    m->first_of_grid = m->first_of_epoch;
    for (i64 i = 0; i < total; i++) {
        i64 at = order_at(&order, i);
        for (u32 d = m->grid->n_dims; d-- > 0; at /= extent[d]) m->index[d] = at % extent[d];
        shared_reset(m);
        if (!eval_iteration(m)) return false;
    }
    return true;
}

/* Setting up. */

static bool heap_get(struct machine *m, i64 n, i64 size, void *out)
{
    i64 bytes;
    if (n < 0 || __builtin_mul_overflow(n, size, &bytes) || bytes > m->heap_left)
        return err_set(m->e, ERR_FAILED, "kernel '%.*s': invalid amount of memory",
                       STR_ARG(m->k->name));
    void *p = mem_aligned(bytes + 8);
    if (!p) return err_set(m->e, ERR_SYSTEM, "kernel '%.*s': not enough memory for %lld bytes", STR_ARG(m->k->name), (long long)bytes);
    m->heap_left -= bytes;
    *arr_push(&m->arena, &m->heap) = p;
    memcpy(out, &p, sizeof p);
    return true;
}

static bool buf_open(struct machine *m, const struct kir_ins *x, const struct kir_arg *arg,
                     struct eval_array *a)
{
    if (m->arithmetic) a->cell = arg->p;
    else a->host = arg->p;
    a->n = arg->n;
    if (!arg->p && a->n)
        return err_set(m->e, ERR_FAILED, "kernel '%.*s': no memory for a buffer",
                       STR_ARG(m->k->name));
    a->must_write = x->aux == KA_OUT;
    return x->aux == KA_IN || heap_get(m, a->n, sizeof *a->shadow, &a->shadow);
}

static bool alloc_open(struct machine *m, const struct kir_ins *x, struct eval_array *a)
{
    bool is_private = x->aux == KS_REG || x->aux == KS_WORK;
    i64 elements;
    a->n = m->cell[m->code.cell[x->a]].i;
    a->must_write = !is_private;
    if (x->role) a->lanes = (u32)x->rows * x->cols;
    if (is_private) a->copies = x->role ? m->code.n_holders : m->n_threads;
    if (__builtin_mul_overflow(a->n, is_private ? a->copies : 1, &elements)) elements = -1;
    if (!heap_get(m, elements, (i64)sizeof *a->cell * a->lanes, &a->cell)) return false;
    return is_private ? heap_get(m, elements, 1, &a->known)
                      : heap_get(m, elements, sizeof *a->shadow, &a->shadow);
}

static bool arrays_open(struct machine *m, const struct kir_arg *arg)
{
    m->array = arena_array(&m->arena, struct eval_array, m->code.array.n);
    for (u32 i = 1; i < m->code.array.n; i++) {
        const struct kir_ins *x = kir_at(m->k, m->code.array.v[i]);
        struct eval_array *a = &m->array[i];
        *a = (struct eval_array){.dtype = x->dtype, .lanes = x->lanes};
        if (!(x->op == KI_BUF ? buf_open(m, x, &arg[x->imm.i], a) : alloc_open(m, x, a)))
            return false;
    }
    return true;
}

static i64 thread_index(const struct kir *k, u32 t, i64 dim)
{
    i64 x = i64_max(k->group[0], 1), y = i64_max(k->group[1], 1);
    return dim == 0 ? t % x : dim == 1 ? t / x % y : t / (x * y);
}

static void const_fill(struct machine *m, const struct kir_ins *x, union kir_cell *cell)
{
    bool is_float = dtype_is_float(x->dtype);
    union kir_cell v = {0};
    if (!is_float) v.i = x->imm.i;
    else v = kir_number(m->arithmetic, x->imm.f);
    for (u32 i = 0; i < x->lanes * m->n_threads; i++) cell[i] = v;
}

/* Cells of values that never change. */
static void cells_fill(struct machine *m, const i64 *param)
{
    for (kval v = 1; v < m->k->ins.n; v++) {
        const struct kir_ins *x = kir_at(m->k, v);
        union kir_cell *cell = m->cell + m->code.cell[v];
        if (x->op == KI_CONST) const_fill(m, x, cell);
        for (u32 t = 0; t < m->n_threads; t++) {
            if (x->op == KI_PARAM) cell[t].i = param[x->imm.i];
            if (x->op == KI_THREAD) cell[t].i = thread_index(m->k, t, x->imm.i);
            if (x->op == KI_SUBGROUP) cell[t].i = x->imm.i ? t % m->subgroup : t / m->subgroup;
        }
    }
}

/* A power of two from 4 to 64, at most the workgroup, if the kernel requires none. */
static u32 subgroup_size(const struct kir *k, u64 seed)
{
    struct rng r = rng_seed(seed);
    if (k->subgroup) return k->subgroup;
    u32 n = seed ? 4u << rng_range(&r, 0, 4) : 32;
    while (n > kir_threads(k)) n /= 2;
    return n;
}

static bool machine_open(struct machine *m, const struct kir_arg *arg, const i64 *param, u64 seed)
{
    m->n_threads = kir_threads(m->k);
    m->subgroup = subgroup_size(m->k, seed);
    m->several = m->first_of_epoch + m->n_threads;
    if (m->n_threads > 1024)
        return err_set(m->e, ERR_FAILED, "kernel '%.*s': workgroup too large", STR_ARG(m->k->name));
    m->code.n_threads = m->n_threads;
    m->code.arithmetic = m->arithmetic;
    m->frag_threads = m->subgroup * kir_warpgroup(m->k);
    assert(m->n_threads > 0 && m->subgroup > 0);
    m->code.n_holders = (m->n_threads - 1) / m->frag_threads + 1;
    if (!eval_decode(&m->code, m->k, &m->arena))
        return err_set(m->e, ERR_FAILED, "kernel '%.*s' too large", STR_ARG(m->k->name));
    m->n_groups = arena_array(&m->arena, u64, m->n_threads);
    for (i64 i = 0; i < countof(m->mask); i++) m->mask[i].on = arena_alloc(&m->arena, m->n_threads);
    m->mask[0].n = m->mask[0].hi = m->n_threads;
    memset(m->mask[0].on, 1, m->n_threads);
    if (!heap_get(m, m->code.n_cells, sizeof *m->cell, &m->cell)) return false;
    if (!heap_get(m, m->code.n_frag_cells, sizeof *m->frag, &m->frag)) return false;
    cells_fill(m, param);
    return arrays_open(m, arg);
}

static void machine_close(struct machine *m)
{
    for (u32 i = 0; i < m->heap.n; i++) mem_free(m->heap.v[i]);
    arena_release(&m->arena);
}

static bool check_written(struct machine *m)
{
    for (u32 i = 1; i < m->code.array.n; i++) {
        const struct eval_array *a = &m->array[i];
        if (kir_at(m->k, m->code.array.v[i])->op != KI_BUF || !a->must_write) continue;
        for (i64 j = 0; j < a->n; j++)
            if (!a->shadow[j].writer)
                return err_set(m->e, ERR_FAILED,
                               "kernel '%.*s': element %lld of '%.*s' was never written",
                               STR_ARG(m->k->name), (long long)j,
                               STR_ARG(m->k->buf.v[kir_at(m->k, m->code.array.v[i])->imm.i].name));
    }
    return true;
}

bool kir_eval(const struct kir *k, const struct kir_arg *arg, const i64 *param,
              const struct kir_eval_opts *o, struct err *e)
{
    if (!kir_verify(k, e)) return false;
    struct machine m = {.k = k, .e = e, .first_of_epoch = 1, .arithmetic = o ? o->arithmetic : KIR_FLOATS};
    u64 seed = o ? o->seed : 0;
    i64 max_steps = o && o->max_steps ? o->max_steps : (i64)1e10;
    m.steps = max_steps;
    m.heap_left = o && o->max_bytes ? o->max_bytes : (i64)1 << 33;
    bool ok = machine_open(&m, arg, param, seed);
    for (u32 i = 0; ok && i < m.code.grid.n; i++) {
        m.grid = &m.code.grid.v[i];
        ok = grid_run(&m, seed);
    }
    if (ok && !(o && o->allow_unwritten)) ok = check_written(&m);
    if (o && o->n_steps) *o->n_steps += max_steps - m.steps;
    machine_close(&m);
    return ok;
}
