// SPDX-License-Identifier: Apache-2.0
//
// Memory by lifetime: allocations come from chunks and are freed together.
//
// Chunks double up to 1 MiB; a larger request gets a chunk of its own size. Every allocation
// is zeroed, so all-zero structs need no init. When memory is exhausted, small allocations
// come from the reserve (reserve.c), so no caller has to check them; large data uses
// arena_try, whose failure is reported. Invariant: top is the newest chunk; its bytes from
// `at` on were never allocated or were rewound (they are zeroed at allocation, not before).
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

struct arena_chunk {
    struct arena_chunk *below; /* older chunk */
    i64 size, at;              /* bytes of data, bytes allocated */
    i64 fresh;                 /* bytes from here on were never allocated: still zero */
    _Alignas(16) char data[];
};

enum { CHUNK_MIN = 4096, CHUNK_MAX = 1 << 20 };

static struct arena_chunk *chunk_push(struct arena *a, i64 need, bool may_fail)
{
    i64 size = a->top ? i64_min(a->top->size * 2, CHUNK_MAX) : CHUNK_MIN;
    if (size < need) size = need;
    i64 total = (i64)sizeof(struct arena_chunk) + size;
    struct arena_chunk *c = may_fail && size > CHUNK_MAX ? mem_request(NULL, total) : mem_request_small(NULL, total);
    if (!c && may_fail) return NULL;
    if (!c) abort();
    mem_prefer_huge(c, total);
    c->below = a->top;
    c->size = size;
    a->top = c;
    a->held += size;
    return c;
}

static void *piece(struct arena *a, i64 size, bool may_fail)
{
    size = round_up(size + !size, 16);
    struct arena_chunk *c = a->top;
    if (!c || c->size - c->at < size) c = chunk_push(a, size, may_fail);
    if (!c) return NULL;
    char *p = c->data + c->at;
    if (c->at < c->fresh) memset(p, 0, (size_t)i64_min(size, c->fresh - c->at));
    c->at += size;
    c->fresh = i64_max(c->fresh, c->at);
    a->used += size;
    return p;
}

void *arena_alloc(struct arena *a, i64 size)
{
    if (size < 0 || size > INT64_MAX / 2) abort();
    return piece(a, size, false);
}

void *arena_try(struct arena *a, i64 size, struct err *e, const char *fmt, ...)
{
    bool fits = size >= 0 && (size <= CHUNK_MAX || size <= mem_of_machine() - a->held);
    void *p = fits ? piece(a, size, true) : NULL;
    if (p) return p;
    char what[200];
    va_list ap;
    va_start(ap, fmt);
    if (fmt_va(what, sizeof what, fmt, ap) < 0) what[0] = 0;
    va_end(ap);
    err_set(e, ERR_SYSTEM, "not enough memory for %s: %lld bytes beside %lld that are in use", what, (long long)size, (long long)a->held);
    return NULL;
}

void *arena_budget_alloc(void *user, size_t size)
{
    enum { OVERHEAD = 16 /* bytes of an allocation */ };
    struct arena_budget *b = user;
    const u64 wanted = size;
    if (wanted > INT64_MAX / 2 || (i64)size > b->left - OVERHEAD) return NULL;
    b->left -= (i64)size + OVERHEAD;
    return arena_try(b->a, (i64)size, b->e, "%s", b->what);
}

void arena_budget_free(void *user, void *p) {} /* released with the arena */

void *arena_grow(struct arena *a, void *old, i64 old_size, i64 new_size)
{
    void *p = arena_alloc(a, new_size);
    i64 n = i64_min(old_size, new_size);
    if (n > 0) memcpy(p, old, (size_t)n);
    return p;
}

struct arena_mark arena_mark(struct arena *a)
{
    return (struct arena_mark){a->top, a->top ? a->top->at : 0};
}

void arena_rewind(struct arena *a, struct arena_mark m)
{
    while (a->top != m.chunk) {
        struct arena_chunk *c = a->top;
        assert(c && "mark of another arena");
        a->top = c->below;
        a->held -= c->size;
        free(c);
    }
    if (a->top) a->top->at = m.at;
}

void arena_release(struct arena *a)
{
    arena_rewind(a, (struct arena_mark){0});
    *a = (struct arena){0};
}

void arena_reset(struct arena *a)
{
    struct arena_chunk *c = a->top;
    if (!c) return;
    if (c->below) { /* several: one with room for twice as much, because the next use may need a little more */
        i64 all = 2 * a->held;
        arena_release(a);
        c = chunk_push(a, all, true);
        if (!c) return;
    }
    c->at = 0;
    a->used = 0;
}

void *arr_more(struct arena *a, void *v, u32 *cap, size_t elem_size)
{
    u32 old = *cap;
    if (old > UINT32_MAX / 2) abort();
    *cap = old ? old * 2 : 8;
    return arena_grow(a, v, (i64)elem_size * old, (i64)elem_size * *cap);
}
