// SPDX-License-Identifier: Apache-2.0
//
// Laying out temporary buffers once sizes are known: largest first, each at the lowest offset where
// it meets no buffer that is alive at the same time ("greedy by size", Pisarchyk and Lee, Efficient
// Memory Management for Deep Neural Net Inference, 2020, section 5). Within a few percent of the
// best possible for networks with skip connections.
#include "rt/rt_private.h"

enum { MEM_ALIGN = DEV_ALIGN };

struct piece {
    u32 buf;
    i64 size;
};

static void sort_pieces(struct piece *v, u32 n)
{
    for (u32 i = 1; i < n; i++) /* insertion sort: stable, n is small */
        for (u32 j = i; j > 0 && v[j - 1].size < v[j].size; j--) {
            struct piece t = v[j];
            v[j] = v[j - 1], v[j - 1] = t;
        }
}

static bool alive_together(const struct plan_buf *a, const struct plan_buf *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest offset at which piece k fits beside the k pieces placed before. */
static i64 find_place(const struct plan *p, const struct piece *v, u32 k, const i64 *offset)
{
    i64 at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (u32 j = 0; j < k; j++) {
            i64 o = offset[v[j].buf];
            if (!alive_together(&p->buf.v[v[j].buf], &p->buf.v[v[k].buf])) continue;
            if (at < o + v[j].size && o < at + v[k].size) at = o + v[j].size, moved = true;
        }
    }
    return at;
}

static bool buf_size(const struct plan *p, u32 k, const i64 *var, i64 *size, struct err *e)
{
    const struct plan_buf *b = &p->buf.v[k];
    if (!sym_eval(&p->sym, b->size, var, size) || *size < 0 || *size > INT64_MAX / 4)
        return err_set(e, ERR_FAILED,
                       "size of buffer '%.*s' is negative or too large for these inputs",
                       STR_ARG(b->name));
    *size = round_up(*size, MEM_ALIGN);
    return true;
}

static bool is_part(const struct plan *p, const struct memory_part *part, u32 k)
{
    return p->buf.v[k].kind == PB_TEMP && (!part || part->phase_of[k] == part->phase);
}

static bool lay_out(const struct plan *p, const i64 *var, const struct memory_part *part, struct piece *v, struct rt_memory *m,
                    struct err *e)
{
    u32 n = 0;
    for (u32 k = 0; k < p->buf.n; k++) {
        if (!is_part(p, part, k)) continue;
        v[n].buf = k;
        if (!buf_size(p, k, var, &v[n].size, e)) return false;
        if (__builtin_add_overflow(m->unshared, v[n].size, &m->unshared))
            return err_set(e, ERR_FAILED, "temporary buffers are too large for these inputs");
        n++;
    }
    sort_pieces(v, n);
    for (u32 k = 0; k < n; k++) {
        m->offset[v[k].buf] = find_place(p, v, k, m->offset);
        m->total = i64_max(m->total, m->offset[v[k].buf] + v[k].size);
    }
    return true;
}

bool rt_plan_memory(const struct plan *p, const i64 *var, struct arena *a, struct rt_memory *m,
                    struct err *e)
{
    *m = (struct rt_memory){.offset = arena_array(a, i64, p->buf.n)};
    return lay_out(p, var, NULL, arena_array(a, struct piece, p->buf.n), m, e);
}

bool memory_lay_out(const struct plan *p, const i64 *var, const struct memory_part *part, i64 *offset, i64 *total, struct err *e)
{
    struct arena tmp = {0};
    struct rt_memory m = {.offset = offset};
    bool ok = lay_out(p, var, part, arena_array(&tmp, struct piece, p->buf.n + 1), &m, e);
    *total = m.total;
    arena_release(&tmp);
    return ok;
}
