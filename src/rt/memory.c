// SPDX-License-Identifier: Apache-2.0
//
// Placement of temporary buffers once sizes are known: largest first, each at the lowest
// offset without overlap with buffers that are alive at the same time ("greedy by size",
// Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020,
// section 5). Within a few percent of the optimum for networks with skip connections.
//
// Occupied memory is kept in a segment tree over the dispatches, as sorted ranges of addresses: a buffer's range
// is in the O(log n) nodes that make up its life, and in the summaries of their ancestors. Adjacent ranges are
// merged, so that lists stay short for any number of buffers, and a place is found without visiting them.
#include "rt/rt_private.h"

#include <stdlib.h>
#include <string.h>

enum { MEM_ALIGN = DEV_ALIGN, MAX_LISTS = 128 /* two for each level of the tree */ };

struct piece {
    u32 buf;
    i64 size;
};

struct range { i64 from, end; };

struct ranges { /* sorted, not adjacent */
    struct range *v;
    u32 n, cap;
};

struct span {
    struct ranges own;   /* of buffers that live at least as long */
    struct ranges below; /* of all that live at some of its dispatches only, or are its own */
};

struct spans {
    struct arena *arena;
    struct span *v; /* the root is 1, node k has 2k and 2k + 1 below it */
    u32 n;          /* leaves */
};

/* Larger ones first, then by index. */
static int piece_cmp(const void *x, const void *y)
{
    const struct piece *a = x, *b = y;
    if (a->size != b->size) return a->size > b->size ? -1 : 1;
    return a->buf < b->buf ? -1 : a->buf > b->buf;
}

/* The first range that ends after `at`, or touches it and can be merged. */
static u32 ranges_find(const struct ranges *r, i64 at)
{
    u32 low = 0, high = r->n;
    while (low < high) {
        u32 mid = low + (high - low) / 2;
        if (r->v[mid].end < at) low = mid + 1;
        else high = mid;
    }
    return low;
}

static void ranges_add(struct ranges *r, struct range x, struct arena *a)
{
    u32 k = ranges_find(r, x.from), end = k;
    for (; end < r->n && r->v[end].from <= x.end; end++) {
        x.from = i64_min(x.from, r->v[end].from);
        x.end = i64_max(x.end, r->v[end].end);
    }
    if (end == k) arr_push(a, r);
    else r->n -= end - k - 1;
    memmove(r->v + k + 1, r->v + end, (r->n - 1 - k) * sizeof *r->v);
    r->v[k] = x;
    assert((k == 0 || r->v[k - 1].end < x.from) && (k + 1 == r->n || x.end < r->v[k + 1].from)); /* sorted, apart */
}

/* The first offset from `at` on with `size` free bytes. */
static i64 ranges_free(const struct ranges *r, i64 at, i64 size)
{
    for (u32 k = ranges_find(r, at + 1); k < r->n && r->v[k].from < at + size; k++) at = r->v[k].end;
    return at;
}

/* Node k represents the dispatches from..end-1. */
static void spans_add(struct spans *s, u32 k, u32 from, u32 end, u32 first, u32 last, struct range x)
{
    if (last < from || first >= end) return;
    assert(k < 2 * s->n);
    ranges_add(&s->v[k].below, x, s->arena);
    if (first <= from && end - 1 <= last) {
        ranges_add(&s->v[k].own, x, s->arena);
        return;
    }
    u32 mid = from + (end - from) / 2;
    spans_add(s, 2 * k, from, mid, first, last, x);
    spans_add(s, 2 * k + 1, mid, end, first, last, x);
}

/* All lists with buffers alive at some dispatch of first..last. */
static u32 spans_lists(const struct spans *s, u32 k, u32 from, u32 end, u32 first, u32 last, const struct ranges **list)
{
    if (last < from || first >= end) return 0;
    bool is_whole = first <= from && end - 1 <= last;
    const struct ranges *r = is_whole ? &s->v[k].below : &s->v[k].own;
    u32 n = 0, mid = from + (end - from) / 2;
    if (r->n) list[n++] = r;
    if (is_whole) return n;
    n += spans_lists(s, 2 * k, from, mid, first, last, list + n);
    return n + spans_lists(s, 2 * k + 1, mid, end, first, last, list + n);
}

/* The lowest offset of `size` bytes that are free from dispatch first to last. */
static i64 find_place(const struct spans *s, u32 first, u32 last, i64 size)
{
    const struct ranges *list[MAX_LISTS];
    u32 n = spans_lists(s, 1, 0, s->n, first, last, list), since = 0;
    i64 at = 0;
    assert(n <= MAX_LISTS);
    for (u32 k = 0; n && since < n; k = (k + 1) % n) { /* until none of them moves it */
        i64 to = ranges_free(list[k], at, size);
        since = to == at ? since + 1 : 1;
        at = to;
    }
    return at;
}

bool memory_buf_size(const struct plan *p, u32 k, const i64 *var, i64 *size, struct err *e)
{
    const struct plan_buf *b = &p->buf.v[k];
    if (sym_eval(&p->sym, b->size, var, size) && *size >= 0 && *size <= INT64_MAX / 4) return true;
    struct buf why = {0};
    sym_print(&why, &p->sym, b->size);
    buf_z(&why, " bytes, is negative or too large for ");
    sym_print_vars(&why, &p->sym, b->size, 0, var);
    err_set(e, ERR_FAILED, "size of buffer '%.*s', %.*s", STR_ARG(b->name), STR_ARG(buf_view(&why)));
    buf_release(&why);
    return false;
}

static bool lay_out(const struct plan *p, const i64 *size, struct arena *a, struct rt_memory *m, struct err *e)
{
    struct piece *v = arena_array(a, struct piece, p->buf.n + 1);
    u32 n = 0;
    for (u32 k = 0; k < p->buf.n; k++) {
        if (p->buf.v[k].kind != PB_TEMP || size[k] < 0) continue;
        if (size[k] > INT64_MAX / 4 || __builtin_add_overflow(m->unshared, round_up(size[k], MEM_ALIGN), &m->unshared))
            return err_set(e, ERR_FAILED, "temporary buffers are too large for these inputs");
        v[n++] = (struct piece){k, round_up(size[k], MEM_ALIGN)};
    }
    if (n) qsort(v, n, sizeof *v, piece_cmp);
    struct spans spans = {.arena = a, .n = 1};
    while (spans.n < p->dispatch.n) spans.n *= 2;
    spans.v = arena_alloc(a, (i64)sizeof *spans.v * 2 * spans.n);
    for (u32 k = 0; k < n; k++) {
        const struct plan_buf *b = &p->buf.v[v[k].buf];
        m->offset[v[k].buf] = 0;
        if (!v[k].size) continue;
        u32 first = b->first < spans.n ? b->first : spans.n - 1, last = b->last < spans.n ? b->last : spans.n - 1;
        assert(first <= last && last < p->dispatch.n);
        i64 at = find_place(&spans, first, last, v[k].size);
        assert(at >= 0 && at % MEM_ALIGN == 0);
        spans_add(&spans, 1, 0, spans.n, first, last, (struct range){at, at + v[k].size});
        m->offset[v[k].buf] = at;
        m->total = i64_max(m->total, at + v[k].size);
    }
    assert(m->total <= m->unshared); /* sharing never takes more */
    return true;
}

bool rt_plan_memory(const struct plan *p, const i64 *var, struct arena *a, struct rt_memory *m,
                    struct err *e)
{
    i64 *size = arena_array(a, i64, p->buf.n + 1);
    *m = (struct rt_memory){.offset = arena_array(a, i64, p->buf.n)};
    for (u32 k = 0; k < p->buf.n; k++)
        if (p->buf.v[k].kind == PB_TEMP && !memory_buf_size(p, k, var, &size[k], e)) return false;
    return lay_out(p, size, a, m, e);
}

bool memory_lay_out(const struct plan *p, const i64 *size, i64 *offset, i64 *total, struct arena *tmp, struct err *e)
{
    struct rt_memory m = {.offset = offset};
    bool ok = lay_out(p, size, tmp, &m, e);
    *total = m.total;
    return ok;
}
