// SPDX-License-Identifier: Apache-2.0
//
// export_c_arena.c: offsets of buffers with known sizes and lives in one memory, as few bytes as possible ("dynamic storage allocation", NP-hard).
//
// No placement is below the bytes alive at one time, the bound. Greedy placements by several orders (Sekiyama et al., Profile-guided memory optimization for
// deep neural networks, 2018; rt/memory.c has the first of them) reach it for most networks. Where they do not and the buffers are few, branch and bound decides:
// every placement can be pushed down until each buffer lies at 0 or on another one that is alive with it, so some order of placing buffers, each on
// the highest of those before that are alive with it, with offsets that do not decrease, yields a minimal one. A branch ends where the heights
// at some time, raised to the last offset, plus the buffers still to come there reach the best result so far.
#include "export/export_c.h"

#include <stdlib.h>

enum { MAX_STEPS = 4000000 }; /* of the search: about a second */

struct order { u32 at; i64 key, then; };

static int by_key(const void *x, const void *y)
{
    const struct order *a = x, *b = y;
    if (a->key != b->key) return a->key > b->key ? -1 : 1;
    if (a->then != b->then) return a->then > b->then ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

static bool meet(const struct c_piece *a, const struct c_piece *b) { return a->first <= b->last && b->first <= a->last; }

/* Bytes alive at the same time, at most. false: too many. */
static bool find_bound(const struct c_piece *v, u32 n, i64 *bound)
{
    i64 all = 0;
    *bound = 0;
    for (u32 i = 0; i < n; i++)
        if (v[i].size < 0 || __builtin_add_overflow(all, v[i].size, &all)) return false;
    for (u32 i = 0; i < n; i++) {
        i64 sum = 0;
        for (u32 k = 0; k < n; k++)
            if (v[k].first <= v[i].first && v[i].first <= v[k].last) sum += v[k].size;
        *bound = i64_max(*bound, sum);
    }
    return true;
}

/* Greedy placement: the lowest gap that is large enough, in the given order. Returns the bytes. */
static i64 place_in_order(const struct c_piece *v, const struct order *o, u32 n, i64 *at)
{
    i64 total = 0;
    for (u32 i = 0; i < n; i++) {
        const struct c_piece *x = &v[o[i].at];
        i64 to = 0;
        bool moved = true;
        while (moved) {
            moved = false;
            for (u32 k = 0; k < i; k++) {
                u32 y = o[k].at;
                bool hits = meet(x, &v[y]) && v[y].size && to < at[y] + v[y].size && at[y] < to + x->size;
                if (hits) to = at[y] + v[y].size, moved = true;
            }
        }
        at[o[i].at] = to;
        total = i64_max(total, to + x->size);
    }
    return total;
}

/* The k-th order; false: there are no more. */
static bool order_of(const struct c_piece *v, u32 n, u32 k, struct order *o)
{
    for (u32 i = 0; i < n; i++) {
        i64 life = (i64)v[i].last - v[i].first + 1, first = v[i].first;
        o[i] = (struct order){.at = i};
        switch (k) {
        case 0: o[i].key = v[i].size; break;
        case 1: o[i].key = life, o[i].then = v[i].size; break;
        case 2: o[i].key = v[i].size / 64 * life, o[i].then = v[i].size; break;
        case 3: o[i].key = -first, o[i].then = v[i].size; break;
        case 4: o[i].key = (i64)v[i].last, o[i].then = v[i].size; break;
        default: return false;
        }
    }
    qsort(o, n, sizeof *o, by_key);
    return true;
}

/* The exhaustive search. */

struct search {
    const struct c_piece *v;
    const struct order *order; /* candidates, in the order of trying */
    u32 n, n_times;
    i64 *height, *rest;        /* per dispatch: of what is placed, bytes to come */
    bool *is_placed;
    i64 *at, *best_at;
    i64 best, bound;
    i64 steps;
};

/* Can the rest be placed below `best` if no offset is below `from`? */
static bool may_improve(const struct search *s, i64 from)
{
    for (u32 t = 0; t < s->n_times; t++)
        if (s->rest[t] && i64_max(s->height[t], from) + s->rest[t] >= s->best) return false;
    return true;
}

static void keep_best(struct search *s)
{
    i64 top = 0;
    for (u32 t = 0; t < s->n_times; t++) top = i64_max(top, s->height[t]);
    if (top >= s->best) return;
    s->best = top;
    for (u32 i = 0; i < s->n; i++) s->best_at[i] = s->at[i];
}

/* Places the rest; the last one was number `last` of the order, at `from`. false: out of steps, or the bound is reached. */
static bool search_from(struct search *s, u32 n_placed, i64 from, u32 last)
{
    enum { MAX_LIFE = 1 << 10 };
    i64 saved[MAX_LIFE];
    if (n_placed == s->n) return keep_best(s), s->best > s->bound;
    if (s->steps++ > MAX_STEPS) return false;
    if (!may_improve(s, from)) return true;
    for (u32 k = 0; k < s->n; k++) {
        u32 i = s->order[k].at;
        const struct c_piece *x = &s->v[i];
        i64 to = 0;
        if (s->is_placed[i]) continue;
        for (u32 t = x->first; t <= x->last; t++) to = i64_max(to, s->height[t]);
        bool again = to == from && n_placed && k < last; /* in the other order, it is the same placement */
        if (to < from || again || to + x->size >= s->best || x->last - x->first >= MAX_LIFE) continue;
        for (u32 t = x->first; t <= x->last; t++) saved[t - x->first] = s->height[t], s->height[t] = to + x->size, s->rest[t] -= x->size;
        s->at[i] = to, s->is_placed[i] = true;
        bool goes_on = search_from(s, n_placed + 1, to, k);
        s->is_placed[i] = false;
        for (u32 t = x->first; t <= x->last; t++) s->height[t] = saved[t - x->first], s->rest[t] += x->size;
        if (!goes_on) return false;
    }
    return true;
}

static bool search(const struct c_piece *v, u32 n, const struct order *o, i64 *at, struct c_arena *out, struct arena *tmp)
{
    struct search s = {.v = v, .order = o, .n = n, .best = out->bytes, .best_at = at, .bound = out->bound};
    for (u32 i = 0; i < n; i++) s.n_times = v[i].last + 1 > s.n_times ? v[i].last + 1 : s.n_times;
    s.height = arena_array(tmp, i64, s.n_times + 1);
    s.rest = arena_array(tmp, i64, s.n_times + 1);
    s.is_placed = arena_array(tmp, bool, n + 1);
    s.at = arena_array(tmp, i64, n + 1);
    for (u32 i = 0; i < n; i++)
        for (u32 t = v[i].first; t <= v[i].last; t++) s.rest[t] += v[i].size;
    bool is_whole = search_from(&s, 0, 0, 0);
    out->bytes = s.best;
    return is_whole;
}

bool c_arena_place(struct c_piece *v, u32 n, struct c_arena *out, struct arena *tmp, struct err *e)
{
    struct order *o = arena_array(tmp, struct order, n + 1);
    i64 *at = arena_array(tmp, i64, n + 1), *best = arena_array(tmp, i64, n + 1);
    *out = (struct c_arena){.bytes = INT64_MAX};
    if (!find_bound(v, n, &out->bound)) return err_set(e, ERR_FAILED, "temporary buffers are too large");
    for (u32 k = 0; order_of(v, n, k, o) && out->bytes > out->bound; k++) {
        i64 bytes = place_in_order(v, o, n, at);
        if (bytes >= out->bytes) continue;
        out->bytes = bytes;
        for (u32 i = 0; i < n; i++) best[i] = at[i];
    }
    out->is_minimal = out->bytes == out->bound;
    if (!out->is_minimal && n <= C_EXACT_PIECES) {
        order_of(v, n, 0, o);
        out->is_minimal = search(v, n, o, best, out, tmp) || out->bytes == out->bound;
    }
    for (u32 i = 0; i < n; i++) v[i].at = best[i];
    return true;
}
