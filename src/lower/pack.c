// SPDX-License-Identifier: Apache-2.0
//
// Rearranging constants when a program is compiled, as struct pack says: a strided walk over the source with zeros where it leaves
// the source. Done once per constant, so plain loops will do; the innermost dimension is copied in a tight one. Where matrices come
// first, the source of the walk is a product in f64, rounded once when it is copied.
#include "lower/lower.h"

#include <string.h>

struct walk {
    u32 n;
    i64 extent[PACK_DIMS];
    const struct pack *p;
    const struct tensor *src;
    i64 stride[MAX_RANK]; /* of the source's axes, elements */
    enum dtype type;      /* of dst */
    char *dst;
    i64 size;             /* bytes of an element of dst */
};

/* Elements at, at + step ... of the source to the row from `to` on. */
static void copy_elements(const struct walk *w, i64 to, i64 n, i64 at, i64 step)
{
    const struct tensor *s = w->src;
    if (w->type != s->dtype)
        for (i64 i = 0; i < n; i++) elem_set_f64(w->type, w->dst, to + i, elem_f64(s->dtype, s->data, at + i * step));
    else if (step == 1) memcpy(w->dst + to * w->size, (const char *)s->data + at * w->size, (size_t)(n * w->size));
    else if (w->size == 4)
        for (i64 i = 0; i < n; i++) ((u32 *)(void *)w->dst)[to + i] = ((const u32 *)s->data)[at + i * step];
    else if (w->size == 2)
        for (i64 i = 0; i < n; i++) ((u16 *)(void *)w->dst)[to + i] = ((const u16 *)s->data)[at + i * step];
    else
        for (i64 i = 0; i < n; i++)
            memcpy(w->dst + (to + i) * w->size, (const char *)s->data + (at + i * step) * w->size, (size_t)w->size);
}

/* The i below n for which 0 <= at + i * step < hi are *from .. *to - 1. */
static void clip(i64 at, i64 step, i64 hi, i64 n, i64 *from, i64 *to)
{
    for (*from = 0; *from < n && (at < 0 || at >= hi); ++*from) at += step;
    for (*to = *from; *to < n && at >= 0 && at < hi; ++*to) at += step;
}

/* Fills the innermost dimension at source position pos. */
static void fill_row(struct walk *w, const i64 *pos)
{
    u32 last = w->n - 1, axis = w->p->dim[last].axis;
    i64 step = w->p->dim[last].stride, base = 0;
    bool inside = true;
    for (u32 d = 0; d < w->src->rank; d++) {
        if (d != axis && (pos[d] < 0 || pos[d] >= w->src->dim[d])) inside = false;
        base += (d == axis ? 0 : pos[d]) * w->stride[d];
    }
    i64 n = w->extent[last], from = 0, to = 0;
    if (inside) clip(pos[axis], step, w->src->dim[axis], n, &from, &to);
    if (to > from) copy_elements(w, from, to - from, base + (pos[axis] + from * step) * w->stride[axis], step * w->stride[axis]);
    w->dst += n * w->size;
}

static void walk_dim(struct walk *w, u32 k, i64 *pos)
{
    if (k == w->n - 1) {
        fill_row(w, pos);
        return;
    }
    u32 axis = w->p->dim[k].axis;
    i64 start = pos[axis];
    for (i64 i = 0; i < w->extent[k]; i++) {
        pos[axis] = start + i * w->p->dim[k].stride;
        walk_dim(w, k + 1, pos);
    }
    pos[axis] = start;
}

void pack_dim(struct pack *p, sym extent, u32 axis, i64 stride)
{
    assert(p->n < countof(p->dim));
    p->dim[p->n].extent = extent, p->dim[p->n].axis = axis, p->dim[p->n++].stride = stride;
}

void pack_dim_i(struct pack *p, struct symtab *st, i64 extent, u32 axis, i64 stride) { pack_dim(p, sym_const(st, extent), axis, stride); }

enum dtype pack_dtype(const struct pack *p, enum dtype t) { return p->dtype ? p->dtype : t; }

i64 pack_per_word(const struct pack *p) { return p->bits ? 8 * dtype_size(p->dtype) / p->bits : 1; }

void pack_print(struct buf *b, const struct pack *p, const struct symtab *st, const struct tensor *t)
{
    for (u32 k = 0; k < p->n; k++) {
        buf_char(b, '/');
        sym_print(b, st, p->dim[k].extent);
        buf_printf(b, ",%u,%lld", p->dim[k].axis, (long long)p->dim[k].stride);
    }
    for (u32 i = 0; i < p->n_mat; i++) {
        const struct pack_mat *m = &p->mat[i];
        buf_printf(b, "*%u,%u", m->axis, m->rows);
        for (i64 k = 0; k < m->rows * t->dim[m->axis]; k++) buf_char(b, ','), buf_f64(b, m->v[k]);
    }
    if (p->dtype) buf_printf(b, ":%s", dtype_name(p->dtype));
    if (p->bits) buf_printf(b, "/%u", p->bits);
}

/* The source times a matrix along an axis; NULL: it does not fit in memory. */
static struct tensor *multiply(const struct pack_mat *m, const struct tensor *t, struct arena *a, struct err *e)
{
    i64 dim[MAX_RANK], bytes, n = t->dim[m->axis];
    memcpy(dim, t->dim, sizeof dim);
    dim[m->axis] = m->rows;
    if (!tensor_size_ok(DT_F64, t->rank, dim, &bytes)) return NULL;
    struct tensor *r = tensor_try(a, DT_F64, t->rank, dim, e, "a transformed constant", S(""));
    if (!r) return NULL;
    i64 outer = i64_product(m->axis, dim), inner = i64_product(t->rank - m->axis - 1, dim + m->axis + 1);
    double *row = arena_try(a, n * inner * (i64)sizeof *row, e, "a transformed constant"), *to = r->data;
    if (!row) return NULL;
    for (i64 o = 0; o < outer; o++) {
        elems_f64(t->dtype, t->data, o * n * inner, n * inner, row);
        for (u32 i = 0; i < m->rows; i++, to += inner)
            for (i64 k = 0; k < n; k++)
                for (i64 x = 0; x < inner; x++) to[x] += m->v[i * n + k] * row[k * inner + x];
    }
    return r;
}

static struct tensor *rearrange(const struct pack *p, const struct tensor *t, enum dtype type, struct symtab *st, struct arena *a,
                                struct err *e)
{
    struct walk w = {.n = p->n, .p = p, .src = t, .type = type, .size = dtype_size(type)};
    assert(p->n > 0 && p->n <= PACK_DIMS && t->rank > 0);
    assert(type == t->dtype || p->n_mat || dtype_is_float(type) == dtype_is_float(t->dtype)); /* products by matrices are f64, of integers, too */
    i64 count = 1, s = 1, bytes;
    for (u32 k = 0; k < p->n; k++) {
        if (!sym_is_const(st, p->dim[k].extent, &w.extent[k])) return NULL;
        if (__builtin_mul_overflow(count, w.extent[k], &count)) return NULL;
    }
    if (!tensor_size_ok(type, 1, &count, &bytes)) return NULL;
    for (u32 d = t->rank; d-- > 0; s *= t->dim[d]) w.stride[d] = s;
    struct tensor *r = tensor_try(a, type, 1, &count, e, "a rearranged constant", S(""));
    if (!r) return NULL;
    w.dst = r->data;
    i64 pos[MAX_RANK] = {0};
    walk_dim(&w, 0, pos);
    return r;
}

/* Elements of a byte each as words. */
static struct tensor *join(const struct pack *p, const struct tensor *t, struct arena *a, struct err *e)
{
    i64 per = pack_per_word(p), n = tensor_count(t) / per;
    assert(dtype_size(t->dtype) == 1 && tensor_count(t) % per == 0 && (p->dtype == DT_U32 || p->dtype == DT_U8));
    struct tensor *r = tensor_try(a, p->dtype, 1, &n, e, "a rearranged constant", S(""));
    const u8 *from = t->data;
    for (i64 i = 0; r && i < n; i++) {
        u32 word = 0;
        for (i64 k = per; k-- > 0;) word = word << p->bits | (from[i * per + k] & ((1u << p->bits) - 1));
        if (p->dtype == DT_U8) ((u8 *)r->data)[i] = (u8)word;
        else ((u32 *)r->data)[i] = word;
    }
    return r;
}

struct tensor *pack_apply(const struct pack *p, const struct tensor *t, struct symtab *st, struct arena *a, struct err *e)
{
    struct arena tmp = {0};
    const struct tensor *src = t;
    for (u32 i = 0; i < p->n_mat && src; i++) src = multiply(&p->mat[i], src, &tmp, e);
    struct tensor *r = NULL;
    if (src && p->bits) src = rearrange(p, src, t->dtype, st, &tmp, e), r = src ? join(p, src, a, e) : NULL;
    else if (src) r = rearrange(p, src, pack_dtype(p, t->dtype), st, a, e);
    arena_release(&tmp);
    return r;
}
