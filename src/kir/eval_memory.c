// SPDX-License-Identifier: Apache-2.0
//
// eval_memory.c: accesses to arrays by the active
// threads, one after the other, and their errors.
//
// Races. Each (grid iteration, interval between barriers, thread) is an agent with a number that
// increases with intervals and iterations. An element records its last writer, its first reader
// in this grid, and its reader since the last barrier, or that there were several. Another
// access conflicts if its agent belongs to this grid and either to another iteration, or to
// another thread since the last barrier. This finds races for any execution order of iterations
// and threads. Joint accesses of a subgroup count as those of an unknown thread of it.
//
// Undefined elements. OUT, TEMP and SHARED elements without a writer are undefined; REG and WORK
// arrays, which belong to one thread, have one byte per element, cleared when their ALLOC is
// executed.
//
// Asynchronous copies. A stored copy is in a list until its thread awaits
// it: any access to such an element before, by any thread, is an error.
#include "kir/eval.h"

#include <string.h>

/* Messages: "read of undefined element 5 of %3 at %14 (iteration 2, 0)". */

static void put_array(struct buf *b, const struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->op == KI_BUF) buf_printf(b, "'%.*s'", STR_ARG(k->buf.v[x->imm.i].name));
    else buf_printf(b, "%s array %%%u", kir_space_name(x->aux), kir_text_id(k, v));
}

static bool is_access(enum kir_op op)
{
    return op == KI_LOAD || op == KI_STORE || op == KI_FLOAD || op == KI_FSTORE || op == KI_TILE;
}

bool eval_complain(struct machine *m, const struct eval_op *o, const char *what, i64 at)
{
    struct buf b = {0};
    const struct kir_ins *x = kir_at(m->k, o->src);
    buf_printf(&b, "kernel '%.*s': %s", STR_ARG(m->k->name), what);
    if (is_access(x->op)) {
        buf_printf(&b, " element %lld of ", (long long)at);
        put_array(&b, m->k, x->a);
    }
    u32 id = kir_text_id(m->k, o->src);
    buf_printf(&b, " at instruction %u (%s", o->src, kir_op_info(x->op)->name);
    if (id) buf_printf(&b, " %%%u", id);
    buf_z(&b, ") in iteration");
    for (u32 i = 0; i < m->grid->n_dims; i++) buf_printf(&b, " %lld", (long long)m->index[i]);
    if (m->n_threads > 1) buf_printf(&b, " thread %u", m->thread);
    err_set(m->e, ERR_FAILED, "%s", b.p);
    buf_release(&b);
    return false;
}

/* Races. */

static bool is_conflict(const struct machine *m, u32 other)
{
    if (other < m->first_of_grid) return false;
    if (other < m->first_of_iteration) return true;
    return other >= m->first_of_epoch && (other != m->agent || other == m->several);
}

static const char *shadow_read(const struct machine *m, const struct eval_array *a, i64 i)
{
    struct eval_shadow *s = &a->shadow[i];
    if (s->is_coming) return "read before its copy was awaited of";
    if (is_conflict(m, s->writer))
        return "race: read, after a write by another iteration or thread, of";
    if (!s->writer && a->must_write) return "read of undefined";
    if (s->reader < m->first_of_grid) s->reader = m->agent;
    if (s->late < m->first_of_epoch) s->late = m->agent;
    else if (s->late != m->agent) s->late = m->several;
    return NULL;
}

static const char *shadow_write(const struct machine *m, const struct eval_array *a, i64 i)
{
    struct eval_shadow *s = &a->shadow[i];
    if (s->is_coming) return "write before a copy was awaited to";
    if (is_conflict(m, s->writer)) return "race: second write by another iteration or thread to";
    if (is_conflict(m, s->reader) || is_conflict(m, s->late))
        return "race: write, after a read by another iteration or thread, to";
    s->writer = m->agent;
    return NULL;
}

/* Elements. */

static void host_get(const struct eval_array *a, i64 i, union kir_cell *c)
{
    if (a->dtype == DT_F32) c->f = ((const float *)a->host)[i];
    else if (a->dtype == DT_I64) c->i = ((const i64 *)a->host)[i];
    else if (dtype_is_float(a->dtype)) c->f = elem_f64(a->dtype, a->host, i);
    else c->i = elem_i64(a->dtype, a->host, i);
}

static void host_set(const struct eval_array *a, i64 i, const union kir_cell *c)
{
    if (a->dtype == DT_F32) ((float *)a->host)[i] = (float)c->f;
    else if (a->dtype == DT_I64) ((i64 *)a->host)[i] = c->i;
    else if (dtype_is_float(a->dtype)) elem_set_f64(a->dtype, a->host, i, c->f);
    else elem_set_i64(a->dtype, a->host, i, c->i);
}

/* Of the current thread; the lanes of an element of an array of vectors are consecutive. */

static const char *private_get(const struct machine *m, const struct eval_array *a, i64 i,
                               union kir_cell *r)
{
    if ((u64)i >= (u64)a->n) return "read out of bounds:";
    if (!a->known[i * a->copies + m->thread]) return "read of undefined";
    const union kir_cell *from = a->cell + i * a->lanes * a->copies + m->thread;
    for (u32 l = 0; l < a->lanes; l++) r[l * a->copies] = from[l * a->copies];
    return NULL;
}

static const char *private_set(const struct machine *m, const struct eval_array *a, i64 i,
                               const union kir_cell *c)
{
    if ((u64)i >= (u64)a->n) return "write out of bounds:";
    a->known[i * a->copies + m->thread] = 1;
    union kir_cell *to = a->cell + i * a->lanes * a->copies + m->thread;
    for (u32 l = 0; l < a->lanes; l++) to[l * a->copies] = c[l * a->copies];
    return NULL;
}

const char *eval_get(const struct machine *m, const struct eval_array *a, i64 i, union kir_cell *c)
{
    if (a->copies) return private_get(m, a, i, c);
    if ((u64)i >= (u64)a->n) return "read out of bounds:";
    const char *bad = a->shadow ? shadow_read(m, a, i) : NULL;
    if (bad) return bad;
    if (a->host) host_get(a, i, c);
    else *c = a->cell[i];
    return NULL;
}

const char *eval_set(const struct machine *m, const struct eval_array *a, i64 i,
                     const union kir_cell *c)
{
    if (a->copies) return private_set(m, a, i, c);
    if ((u64)i >= (u64)a->n) return "write out of bounds:";
    const char *bad = a->shadow ? shadow_write(m, a, i) : NULL;
    if (bad) return bad;
    if (a->host) host_set(a, i, c);
    else a->cell[i] = *c;
    return NULL;
}

/* Threads. */

static bool load_one(struct machine *m, const struct eval_array *a, const struct eval_op *o)
{
    const union kir_cell *c = m->cell + m->thread;
    i64 n = o->c ? c[o->c].i : o->lanes;
    for (u32 l = 0; l < o->lanes; l++) {
        union kir_cell *r = m->cell + m->thread + o->r + l * o->threads;
        r->i = 0; /* all bits zero is 0.0 too */
        if (l >= n) continue;
        i64 i = c[o->b + l * o->threads].i;
        const char *bad = a->copies ? private_get(m, a, i, r) : eval_get(m, a, i, r);
        if (bad) return eval_complain(m, o, bad, i);
    }
    return true;
}

static bool store_one(struct machine *m, const struct eval_array *a, const struct eval_op *o)
{
    const union kir_cell *c = m->cell + m->thread;
    i64 n = o->d ? i64_min(c[o->d].i, o->lanes) : o->lanes;
    for (i64 l = 0; l < n; l++) {
        const union kir_cell *v = c + o->c + l * o->threads;
        i64 i = c[o->b + l * o->threads].i;
        const char *bad = a->copies ? private_set(m, a, i, v) : eval_set(m, a, i, v);
        if (bad) return eval_complain(m, o, bad, i);
    }
    return true;
}

bool eval_load(struct machine *m, const struct eval_op *o)
{
    const struct eval_array *a = &m->array[o->a];
    for (u32 t = m->on->lo; t < m->on->hi; t++) {
        if (!m->on->on[t]) continue;
        m->thread = t;
        m->agent = m->first_of_epoch + t;
        if (!load_one(m, a, o)) return false;
    }
    return true;
}

bool eval_store(struct machine *m, const struct eval_op *o)
{
    const struct eval_array *a = &m->array[o->a];
    for (u32 t = m->on->lo; t < m->on->hi; t++) {
        if (!m->on->on[t]) continue;
        m->thread = t;
        m->agent = m->first_of_epoch + t;
        if (!store_one(m, a, o)) return false;
    }
    return true;
}

/* Copies. */

/* Starts a copy of v to element i. */
static bool send(struct machine *m, const struct eval_op *o, i64 i, union kir_cell v)
{
    const struct eval_array *a = &m->array[o->a];
    const char *bad = (u64)i >= (u64)a->n ? "write out of bounds:" : shadow_write(m, a, i);
    if (bad) return eval_complain(m, o, bad, i);
    a->shadow[i].is_coming = true;
    *arr_push(&m->arena, &m->copy) = (struct eval_copy){.array = o->a,
                                                        .thread = m->thread,
                                                        .index = i,
                                                        .value = v,
                                                        .group = m->n_groups[m->thread]};
    return true;
}

static bool copy_one(struct machine *m, const struct eval_op *o)
{
    const union kir_cell *c = m->cell + m->thread;
    for (u32 l = 0; l < o->lanes; l++)
        if (!send(m, o, c[o->b + l * o->threads].i, c[o->c + l * o->threads])) return false;
    return true;
}

/* Of a matrix at (row, col): zero outside. */
static bool map_get_at(struct machine *m, const struct eval_op *o, i64 row, i64 col, union kir_cell *v)
{
    const struct kir_map *p = &m->k->map.v[o->imm];
    const struct eval_array *from = &m->array[m->code.cell[m->k->buf.v[p->buf].id]];
    v->i = 0;
    if (row < 0 || row >= p->rows || col < 0 || col >= p->cols) return true;
    const char *bad = eval_get(m, from, row * p->pitch + col, v);
    return !bad || eval_complain(m, o, "matrix beyond its buffer, to", row * p->pitch + col);
}

static bool tile_one(struct machine *m, const struct eval_op *o)
{
    const struct kir_map *p = &m->k->map.v[o->imm];
    const struct kir_ins *array = kir_at(m->k, kir_at(m->k, o->src)->a);
    const union kir_cell *c = m->cell + m->thread;
    i64 at = c[o->b].i, row = c[o->c].i, col = c[o->d].i, unit = (array->imm.i ? 1024 : 128) / dtype_size(array->dtype);
    if (at % unit) return eval_complain(m, o, "misaligned tile at", at);
    if (row != (i32)row || col != (i32)col) return eval_complain(m, o, "place beyond 32 bits of a tile at", at);
    for (i64 i = 0; i < p->box_rows; i++)
        for (i64 j = 0; j < p->box_cols; j++) {
            union kir_cell v;
            if (!map_get_at(m, o, row + i, col + j, &v) || !send(m, o, at + i * p->box_cols + j, v)) return false;
        }
    return true;
}

/* Done by the workgroup's first thread only. */
bool eval_tile(struct machine *m, const struct eval_op *o)
{
    for (u32 t = m->on->lo; t < m->on->hi; t++) {
        if (!m->on->on[t]) continue;
        m->thread = t;
        m->agent = m->first_of_epoch + t;
        if (t) return eval_complain(m, o, "tile by another thread than the first, at", m->cell[o->b + t].i);
        if (!tile_one(m, o)) return false;
    }
    return true;
}

bool eval_copy(struct machine *m, const struct eval_op *o)
{
    for (u32 t = m->on->lo; t < m->on->hi; t++) {
        if (!m->on->on[t]) continue;
        m->thread = t;
        m->agent = m->first_of_epoch + t;
        if (!copy_one(m, o)) return false;
    }
    return true;
}

void eval_await(struct machine *m, const struct eval_op *o)
{
    u32 left = 0;
    for (u32 t = m->on->lo; t < m->on->hi; t++) m->n_groups[t] += m->on->on[t];
    for (u32 i = 0; i < m->copy.n; i++) {
        const struct eval_copy *x = &m->copy.v[i];
        struct eval_array *a = &m->array[x->array];
        if (!eval_is_on(m, x->thread) || x->group + (u64)o->imm >= m->n_groups[x->thread]) {
            m->copy.v[left++] = *x;
            continue;
        }
        a->cell[x->index] = x->value;
        a->shadow[x->index].writer = m->first_of_epoch + x->thread;
        a->shadow[x->index].is_coming = false;
    }
    m->copy.n = left;
}

/* Arrays of fragments: their subgroup clears them with any of its threads. */
void eval_alloc(struct machine *m, const struct eval_op *o)
{
    const struct eval_array *a = &m->array[o->a];
    u32 share = kir_is_frag(m->k, o->src) ? m->frag_threads : 1;
    if (!a->known) return;
    if (m->on->n == m->n_threads) {
        memset(a->known, 0, (size_t)a->n * a->copies);
        return;
    }
    for (u32 t = m->on->lo; t < m->on->hi; t++)
        for (i64 i = 0; m->on->on[t] && i < a->n; i++) a->known[i * a->copies + t / share] = 0;
}
