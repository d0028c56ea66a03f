// SPDX-License-Identifier: Apache-2.0
//
// eval.c: the interpreter. Runs a kernel on host memory, one grid iteration after the other, and
// checks every access.
//
// Races. Each (grid iteration, stretch between barriers, thread) is an agent with an ascending
// number. An element remembers its last writer, its first reader in this grid and its first reader
// since the last barrier. As agents run in ascending order this is enough: another access conflicts
// when its agent belongs to this grid and either to another iteration, or to another thread since
// the last barrier. So races are found in whatever order the iterations run.
//
// Undefined elements. OUT, TEMP and SHARED elements without a writer are undefined; REG and WORK
// arrays, which belong to one thread, have one byte per element, cleared when their ALLOC is
// executed.
#include "kir/eval.h"

#include <string.h>

struct shadow {
    u32 writer; /* agent, 0 = never written */
    u32 reader; /* first of this grid */
    u32 late;   /* first since the last barrier */
};

struct array {
    u8 *host;              /* BUF: the caller's memory */
    union kir_cell *cell;  /* ALLOC */
    u8 *known;             /* REG, WORK: element was written */
    struct shadow *shadow; /* OUT, INOUT, TEMP, SHARED */
    i64 n;                 /* elements */
    u8 dtype, lanes;
    bool must_write; /* an element without a writer is undefined */
};

struct thread {
    union kir_cell *cell;
    struct array *array;
    u32 pc;
    bool is_done;
};

struct machine {
    const struct kir *k;
    struct arena arena; /* small things */
    struct {
        void **v;
        u32 n, cap;
    } heap; /* large things */
    i64 heap_bytes;
    struct eval_code_list code;
    struct err *e;
    i64 steps;     /* left */
    u32 n_threads; /* of a group */
    struct thread *thread;
    const struct eval_grid *grid;
    i64 index[3]; /* of the iteration at work */
    u32 agent, first_of_grid, first_of_iteration, first_of_epoch;
};

static const i64 MAX_HEAP = (i64)1 << 33;

/* Messages: "read of undefined element 5 of %3 at %14 (iteration 2, 0)". */

static void put_array(struct buf *b, const struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->op == KI_BUF) buf_printf(b, "'%.*s'", STR_ARG(k->buf.v[x->imm.i].name));
    else buf_printf(b, "%s array %%%u", kir_space_name(x->aux), kir_text_id(k, v));
}

static bool complain(struct machine *m, const struct eval_op *o, const char *what, i64 at)
{
    struct buf b = {0};
    const struct kir_ins *x = kir_at(m->k, o->src);
    buf_printf(&b, "kernel '%.*s': %s", STR_ARG(m->k->name), what);
    if (x->op == KI_LOAD || x->op == KI_STORE) {
        buf_printf(&b, " element %lld of ", (long long)at);
        put_array(&b, m->k, x->a);
    }
    u32 id = kir_text_id(m->k, o->src);
    buf_printf(&b, " at instruction %u (%s", o->src, kir_op_info(x->op)->name);
    if (id) buf_printf(&b, " %%%u", id);
    buf_z(&b, ") in iteration");
    for (u32 i = 0; i < m->grid->n_dims; i++) buf_printf(&b, " %lld", (long long)m->index[i]);
    err_set(m->e, ERR_FAILED, "%s", b.p);
    buf_release(&b);
    return false;
}

/* Races. */

static bool is_conflict(const struct machine *m, u32 other)
{
    if (other < m->first_of_grid) return false;
    return other < m->first_of_iteration || (other >= m->first_of_epoch && other != m->agent);
}

static const char *shadow_read(const struct machine *m, const struct array *a, i64 i)
{
    struct shadow *s = &a->shadow[i];
    if (is_conflict(m, s->writer))
        return "race: read, after a write by another iteration or thread, of";
    if (!s->writer && a->must_write) return "read of undefined";
    if (s->reader < m->first_of_grid) s->reader = m->agent;
    if (s->late < m->first_of_epoch) s->late = m->agent;
    return NULL;
}

static const char *shadow_write(const struct machine *m, const struct array *a, i64 i)
{
    struct shadow *s = &a->shadow[i];
    if (is_conflict(m, s->writer)) return "race: second write by another iteration or thread to";
    if (is_conflict(m, s->reader) || is_conflict(m, s->late))
        return "race: write, after a read by another iteration or thread, to";
    s->writer = m->agent;
    return NULL;
}

/* Memory. */

static void host_get(const struct array *a, i64 i, union kir_cell *c)
{
    if (a->dtype == DT_F32) c->f = ((const float *)a->host)[i];
    else if (a->dtype == DT_I64) c->i = ((const i64 *)a->host)[i];
    else if (dtype_is_float(a->dtype)) c->f = elem_f64(a->dtype, a->host, i);
    else c->i = elem_i64(a->dtype, a->host, i);
}

static void host_set(const struct array *a, i64 i, const union kir_cell *c)
{
    if (a->dtype == DT_F32) ((float *)a->host)[i] = (float)c->f;
    else if (a->dtype == DT_I64) ((i64 *)a->host)[i] = c->i;
    else if (dtype_is_float(a->dtype)) elem_set_f64(a->dtype, a->host, i, c->f);
    else elem_set_i64(a->dtype, a->host, i, c->i);
}

static const char *get(const struct machine *m, const struct array *a, i64 i, union kir_cell *c)
{
    if ((u64)i >= (u64)a->n) return "read out of bounds:";
    const char *bad = a->shadow ? shadow_read(m, a, i) : NULL;
    if (bad) return bad;
    if (a->known && !a->known[i]) return "read of undefined";
    if (a->host) host_get(a, i, c);
    else memcpy(c, a->cell + i * a->lanes, sizeof *c * a->lanes);
    return NULL;
}

static const char *set(const struct machine *m, const struct array *a, i64 i,
                       const union kir_cell *c)
{
    if ((u64)i >= (u64)a->n) return "write out of bounds:";
    const char *bad = a->shadow ? shadow_write(m, a, i) : NULL;
    if (bad) return bad;
    if (a->known) a->known[i] = 1;
    if (a->host) host_set(a, i, c);
    else memcpy(a->cell + i * a->lanes, c, sizeof *c * a->lanes);
    return NULL;
}

static bool do_load(struct machine *m, struct thread *t, const struct eval_op *o)
{
    const struct array *a = &t->array[o->a];
    i64 n = o->c ? t->cell[o->c].i : o->lanes;
    for (u32 l = 0; l < o->lanes; l++) {
        union kir_cell *r = &t->cell[o->r + l];
        r->i = 0; /* all bits zero is 0.0 too */
        i64 i = t->cell[o->b + l].i;
        const char *bad = l < n ? get(m, a, i, r) : NULL;
        if (bad) return complain(m, o, bad, i);
    }
    return true;
}

static bool do_store(struct machine *m, struct thread *t, const struct eval_op *o)
{
    const struct array *a = &t->array[o->a];
    i64 n = o->d ? i64_min(t->cell[o->d].i, o->lanes) : o->lanes;
    for (i64 l = 0; l < n; l++) {
        i64 i = t->cell[o->b + l].i;
        const char *bad = set(m, a, i, &t->cell[o->c + l]);
        if (bad) return complain(m, o, bad, i);
    }
    return true;
}

static void do_alloc(struct thread *t, const struct eval_op *o)
{
    struct array *a = &t->array[o->a];
    if (a->known) memset(a->known, 0, (size_t)a->n);
}

/* The machine: runs one thread until a barrier or the end of the grid's body. */

static bool thread_run(struct machine *m, struct thread *t)
{
    const struct eval_op *code = m->code.op.v, *o;
    union kir_cell *c = t->cell;
    for (u32 pc = t->pc;;) {
        o = &code[pc++];
        if (m->steps-- <= 0) return complain(m, o, "too many steps", 0);
        switch ((enum eval_code)o->code) {
        case EC_PURE:
            if (!o->fn(c, o)) return complain(m, o, "division by zero", 0);
            break;
        case EC_LOAD:
            if (!do_load(m, t, o)) return false;
            break;
        case EC_STORE:
            if (!do_store(m, t, o)) return false;
            break;
        case EC_ALLOC: do_alloc(t, o); break;
        case EC_LOOP:
            c[o->r] = c[o->a];
            if (c[o->r].i >= c[o->b].i) pc = o->jump;
            break;
        case EC_NEXT:
            if (!__builtin_add_overflow(c[o->r].i, o->imm, &c[o->r].i) && c[o->r].i < c[o->b].i)
                pc = o->jump;
            break;
        case EC_IF:
            if (!c[o->a].i) pc = o->jump;
            break;
        case EC_JUMP: pc = o->jump; break;
        case EC_BARRIER: t->pc = pc; return true;
        case EC_STOP: t->is_done = true; return true;
        }
    }
}

/* One grid iteration: all threads to the next barrier, again and again. */
static bool iteration_run(struct machine *m)
{
    for (u32 i = 0; i < m->n_threads; i++) {
        struct thread *t = &m->thread[i];
        t->pc = m->grid->begin;
        t->is_done = false;
        for (u32 d = 0; d < m->grid->n_dims; d++) t->cell[m->grid->index[d]].i = m->index[d];
    }
    for (;;) {
        if (m->first_of_epoch > UINT32_MAX - 2 * m->n_threads - 2)
            return err_set(m->e, ERR_FAILED, "kernel '%.*s': too many iterations to check",
                           STR_ARG(m->k->name));
        for (u32 i = 0; i < m->n_threads; i++) {
            m->agent = m->first_of_epoch + i;
            if (!thread_run(m, &m->thread[i])) return false;
        }
        const struct thread *t = m->thread;
        for (u32 i = 1; i < m->n_threads; i++)
            if (t[i].is_done != t->is_done || (!t->is_done && t[i].pc != t->pc))
                return err_set(m->e, ERR_FAILED, "kernel '%.*s': barrier in divergent flow",
                               STR_ARG(m->k->name));
        m->first_of_epoch += m->n_threads;
        if (t->is_done) return true;
    }
}

static void shared_reset(struct machine *m)
{
    for (u32 i = 1; i < m->code.array.n; i++) {
        const struct kir_ins *x = kir_at(m->k, m->code.array.v[i]);
        const struct array *a = &m->thread[0].array[i];
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

static i64 order_at(const struct order *o, i64 i)
{
    return (i64)(((unsigned __int128)i * o->factor + o->shift) % o->n);
}

static bool grid_size(struct machine *m, i64 extent[3], i64 *total)
{
    *total = 1;
    for (u32 d = 0; d < m->grid->n_dims; d++) {
        extent[d] = i64_max(m->thread[0].cell[m->grid->extent[d]].i, 0);
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
        m->first_of_iteration = m->first_of_epoch;
        shared_reset(m);
        if (!iteration_run(m)) return false;
    }
    return true;
}

/* Setting up. */

static bool heap_get(struct machine *m, i64 n, i64 size, void *out)
{
    i64 bytes;
    if (n < 0 || __builtin_mul_overflow(n, size, &bytes) || bytes > MAX_HEAP - m->heap_bytes)
        return err_set(m->e, ERR_FAILED, "kernel '%.*s': impossible amount of memory",
                       STR_ARG(m->k->name));
    void *p = mem_alloc(bytes + 8);
    m->heap_bytes += bytes;
    *arr_push(&m->arena, &m->heap) = p;
    memcpy(out, &p, sizeof p);
    return true;
}

static bool buf_open(struct machine *m, const struct kir_ins *x, const struct kir_arg *arg,
                     struct array *a)
{
    a->host = arg->p;
    a->n = arg->n;
    if (!a->host && a->n)
        return err_set(m->e, ERR_FAILED, "kernel '%.*s': no memory for a buffer",
                       STR_ARG(m->k->name));
    a->must_write = x->aux == KA_OUT;
    return x->aux == KA_IN || heap_get(m, a->n, sizeof *a->shadow, &a->shadow);
}

static bool alloc_open(struct machine *m, const struct kir_ins *x, struct array *a)
{
    a->n = m->thread[0].cell[m->code.cell[x->a]].i;
    bool is_private = x->aux == KS_REG || x->aux == KS_WORK;
    a->must_write = !is_private;
    if (!heap_get(m, a->n, (i64)sizeof *a->cell * x->lanes, &a->cell)) return false;
    return is_private ? heap_get(m, a->n, 1, &a->known)
                      : heap_get(m, a->n, sizeof *a->shadow, &a->shadow);
}

/* Arrays of thread t; what is not private is that of thread 0. */
static bool arrays_open(struct machine *m, u32 t, const struct kir_arg *arg)
{
    struct array *list = arena_array(&m->arena, struct array, m->code.array.n);
    m->thread[t].array = list;
    for (u32 i = 1; i < m->code.array.n; i++) {
        const struct kir_ins *x = kir_at(m->k, m->code.array.v[i]);
        bool is_private = x->op == KI_ALLOC && (x->aux == KS_REG || x->aux == KS_WORK);
        if (t && !is_private) {
            list[i] = m->thread[0].array[i];
            continue;
        }
        list[i] = (struct array){.dtype = x->dtype, .lanes = x->lanes};
        if (!(x->op == KI_BUF ? buf_open(m, x, &arg[x->imm.i], &list[i])
                              : alloc_open(m, x, &list[i])))
            return false;
    }
    return true;
}

static i64 thread_index(const struct kir *k, u32 t, i64 dim)
{
    i64 x = i64_max(k->group[0], 1), y = i64_max(k->group[1], 1);
    return dim == 0 ? t % x : dim == 1 ? t / x % y : t / (x * y);
}

/* Cells of values that never change. */
static void cells_fill(struct machine *m, u32 t, const i64 *param)
{
    union kir_cell *cell = m->thread[t].cell;
    for (kval v = 1; v < m->k->ins.n; v++) {
        const struct kir_ins *x = kir_at(m->k, v);
        u32 at = m->code.cell[v];
        for (u32 l = 0; x->op == KI_CONST && l < x->lanes; l++) {
            if (dtype_is_float(x->dtype)) cell[at + l].f = x->imm.f;
            else cell[at + l].i = x->imm.i;
        }
        if (x->op == KI_PARAM) cell[at].i = param[x->imm.i];
        if (x->op == KI_THREAD) cell[at].i = thread_index(m->k, t, x->imm.i);
    }
}

static bool machine_open(struct machine *m, const struct kir_arg *arg, const i64 *param)
{
    eval_decode(&m->code, m->k, &m->arena);
    u64 n = 1; /* at most 2^48 after kir_verify */
    for (u32 i = 0; i < 3; i++) n *= m->k->group[i] ? m->k->group[i] : 1;
    m->n_threads = (u32)n;
    if (n > 1024)
        return err_set(m->e, ERR_FAILED, "kernel '%.*s': group too large", STR_ARG(m->k->name));
    m->thread = arena_array(&m->arena, struct thread, m->n_threads);
    for (u32 t = 0; t < m->n_threads; t++) {
        if (!heap_get(m, m->code.n_cells, sizeof *m->thread->cell, &m->thread[t].cell))
            return false;
        cells_fill(m, t, param);
        if (!arrays_open(m, t, arg)) return false;
    }
    return true;
}

static void machine_close(struct machine *m)
{
    for (u32 i = 0; i < m->heap.n; i++) mem_free(m->heap.v[i]);
    arena_release(&m->arena);
}

static bool check_written(struct machine *m)
{
    for (u32 i = 1; i < m->code.array.n; i++) {
        const struct array *a = &m->thread[0].array[i];
        if (!a->host || !a->must_write) continue;
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
    for (kval v = 1; v < k->ins.n; v++)
        if (kir_is_collective(k, v) || kir_at(k, v)->op == KI_SUBGROUP)
            return err_set(e, ERR_UNSUPPORTED, "kernel '%.*s': subgroups are not interpreted",
                           STR_ARG(k->name));
    struct machine m = {.k = k, .e = e, .first_of_epoch = 1};
    m.steps = o && o->max_steps ? o->max_steps : (i64)1e10;
    bool ok = machine_open(&m, arg, param);
    for (u32 i = 0; ok && i < m.code.grid.n; i++) {
        m.grid = &m.code.grid.v[i];
        ok = grid_run(&m, o ? o->seed : 0);
    }
    if (ok && !(o && o->allow_unwritten)) ok = check_written(&m);
    machine_close(&m);
    return ok;
}
