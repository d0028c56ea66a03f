// SPDX-License-Identifier: Apache-2.0
//
// Rearranging constants when a program is compiled, as struct pack says: a strided walk over the source with zeros where it leaves
// the source. Done once per constant, so plain loops will do; the innermost dimension is copied in a tight one.
#include "op/op.h"

#include <string.h>

enum { MAX_DIMS = 12 };

struct walk {
    u32 n;
    i64 extent[MAX_DIMS];
    const struct pack *p;
    const struct tensor *src;
    i64 stride[MAX_RANK]; /* of the source's axes, elements */
    char *dst;
    i64 size;             /* bytes of an element */
};

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
    for (i64 i = 0; i < w->extent[last]; i++, w->dst += w->size) {
        i64 x = pos[axis] + i * step;
        if (inside && x >= 0 && x < w->src->dim[axis])
            memcpy(w->dst, (const char *)w->src->data + (base + x * w->stride[axis]) * w->size, (size_t)w->size);
    }
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

struct tensor *pack_apply(const struct pack *p, const struct tensor *t, struct symtab *st, struct arena *a)
{
    struct walk w = {.n = p->n, .p = p, .src = t, .size = dtype_size(t->dtype)};
    assert(p->n > 0 && p->n <= MAX_DIMS && t->rank > 0);
    i64 count = 1, s = 1, bytes;
    for (u32 k = 0; k < p->n; k++) {
        if (!sym_is_const(st, p->dim[k].extent, &w.extent[k])) return NULL;
        if (__builtin_mul_overflow(count, w.extent[k], &count)) return NULL;
    }
    if (!tensor_size_ok(t->dtype, 1, &count, &bytes)) return NULL;
    for (u32 d = t->rank; d-- > 0; s *= t->dim[d]) w.stride[d] = s;
    struct tensor *r = tensor_new(a, t->dtype, 1, &count);
    w.dst = r->data;
    i64 pos[MAX_RANK] = {0};
    walk_dim(&w, 0, pos);
    return r;
}
