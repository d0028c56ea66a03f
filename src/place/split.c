// SPDX-License-Identifier: Apache-2.0
//
// Division of a network into sub-graphs, each of one device, as few as the allocation allows.
//
// Sub-graphs that wait for each other in no circle can be put in an order; then the operators,
// too, are in an order in which each sub-graph is one run of operators of one device.
// Conversely, the runs of any topological order are convex sub-graphs without circles. So the
// fewest sub-graphs are the fewest runs of a topological order. Within one order it never hurts
// to extend a run as far as possible: what is done early is not in the way of what follows.
// Hence a division is a word of devices, and its state the set of operators that are done: a
// shortest path, found by A*. The estimate of what is still needed is the largest number of runs
// on a path of the rest, and the number of devices in it; both are lower bounds and shrink by at
// most one per run, so the first complete state is minimal. The problem is NP-hard (shortest
// common supersequence, where the network consists of chains); beyond a number of states a beam
// search takes over, and the estimate at the start remains as the bound.
#include "place/place.h"

#include <string.h>

#include "place/part.h"

enum { MAX_BEAM = 16 };

/* --- dependencies --- */

static void add_edge(struct place_dag *d, struct arena *a, u32 from, u32 to)
{
    if (from == UINT32_MAX || from == to) return;
    for (u32 i = 0; i < d->before[to].n; i++)
        if (d->before[to].v[i] == from) return;
    *arr_push(a, &d->before[to]) = from;
    *arr_push(a, &d->behind[from]) = to;
}

void place_dag_make(struct place_dag *d, const struct place_net *x, struct arena *a)
{
    const struct graph *g = &x->g;
    const struct value_list *sizes = graph_size_sources(g, a);
    *d = (struct place_dag){.n = x->op.n};
    d->before = arena_alloc(a, (i64)sizeof *d->before * (d->n + 1));
    d->behind = arena_alloc(a, (i64)sizeof *d->behind * (d->n + 1));
    for (u32 k = 0; k < d->n; k++) {
        const struct node *nd = graph_node(g, x->op.v[k].node);
        for (u32 i = 0; i < nd->in.n; i++)
            if (nd->in.v[i] && graph_value(g, nd->in.v[i])->producer)
                add_edge(d, a, x->op_of[graph_value(g, nd->in.v[i])->producer], k);
        for (u32 i = 0; i < sizes[x->op.v[k].node].n; i++)
            add_edge(d, a, x->op_of[sizes[x->op.v[k].node].v[i]], k);
    }
}

/* --- runs --- */

struct state {
    u64 *done;              /* bits: operators */
    u32 n_done, runs, rest; /* rest: at least so many more runs */
    u32 parent, device;     /* index of the state before, and the device of the run in between */
};

struct divider {
    const struct place_dag *d;
    const u32 *device; /* per operator */
    u32 n_devices, n_words;
    u32 *height; /* per operator: the most runs of a path from it on */
    u32 *seen;   /* per device: stamp */
    u32 stamp;
    struct arena a;
    struct map known; /* bits -> fewest runs so far */
    struct {
        struct state *v;
        u32 n, cap;
    } state;
};

static bool is_done(const u64 *done, u32 k) { return done[k / 64] >> k % 64 & 1; }

static bool is_ready(const struct divider *x, const u64 *done, u32 k)
{
    for (u32 i = 0; i < x->d->before[k].n; i++)
        if (!is_done(done, x->d->before[k].v[i])) return false;
    return true;
}

/* Operators are in topological order: one pass completes a run. */
static u32 extend(const struct divider *x, u64 *done, u32 device)
{
    u32 n = 0;
    for (u32 k = 0; k < x->d->n; k++) {
        if (x->device[k] != device || is_done(done, k) || !is_ready(x, done, k)) continue;
        done[k / 64] |= (u64)1 << k % 64;
        n++;
    }
    return n;
}

static u32 estimate(struct divider *x, const u64 *done)
{
    u32 most = 0, devices = 0;
    x->stamp++;
    for (u32 k = 0; k < x->d->n; k++) {
        if (is_done(done, k)) continue;
        if (x->height[k] > most) most = x->height[k];
        if (x->seen[x->device[k]] != x->stamp) x->seen[x->device[k]] = x->stamp, devices++;
    }
    return most > devices ? most : devices;
}

static void heights(struct divider *x)
{
    x->height = arena_array(&x->a, u32, x->d->n + 1);
    for (u32 k = x->d->n; k-- > 0;) {
        x->height[k] = 1;
        for (u32 i = 0; i < x->d->behind[k].n; i++) {
            u32 s = x->d->behind[k].v[i], h = x->height[s] + (x->device[s] != x->device[k]);
            if (h > x->height[k]) x->height[k] = h;
        }
    }
}

static struct str bits_of(const struct divider *x, const u64 *done)
{
    return (struct str){(const char *)done, (i64)sizeof *done * x->n_words};
}

/* The state after one more run; its number, UINT32_MAX: no operator can be done, or the same ones
 * are done by as few runs already. */
static u32 follow(struct divider *x, u32 from, u32 device)
{
    struct arena_mark m = arena_mark(&x->a);
    struct state s = {.parent = from, .device = device, .runs = x->state.v[from].runs + 1};
    s.done = arena_array(&x->a, u64, x->n_words);
    memcpy(s.done, x->state.v[from].done, sizeof *s.done * x->n_words);
    u32 n = extend(x, s.done, device);
    const u64 *was = n ? map_get(&x->known, bits_of(x, s.done)) : NULL;
    if (!n || (was && *was <= s.runs)) {
        arena_rewind(&x->a, m);
        return UINT32_MAX;
    }
    s.n_done = x->state.v[from].n_done + n;
    s.rest = estimate(x, s.done);
    map_put(&x->known, bits_of(x, s.done), s.runs);
    *arr_push(&x->a, &x->state) = s;
    return x->state.n - 1;
}

static u32 first_state(struct divider *x)
{
    u64 *none = arena_array(&x->a, u64, x->n_words);
    x->state.n = 0;
    map_init(&x->known, &x->a);
    *arr_push(&x->a, &x->state) = (struct state){.done = none, .rest = estimate(x, none)};
    return x->state.v[0].rest;
}

/* States by the runs of a whole division that they allow at least, the last one first. */
struct shelf {
    u32 *v;
    u32 n, cap;
};

/* UINT32_MAX: too many states. */
static u32 shortest(struct divider *x, u32 most_states)
{
    struct shelf *by = arena_array(&x->a, struct shelf, x->d->n + 2);
    u32 at = first_state(x);
    *arr_push(&x->a, &by[at]) = 0;
    while (x->state.n <= most_states) {
        while (!by[at].n) at++;
        u32 s = by[at].v[--by[at].n];
        if (x->state.v[s].n_done == x->d->n) return s;
        for (u32 v = x->n_devices; v-- > 0;) {
            u32 next = follow(x, s, v);
            if (next == UINT32_MAX) continue;
            u32 least = x->state.v[next].runs + x->state.v[next].rest;
            *arr_push(&x->a, &by[least]) = next;
        }
    }
    return UINT32_MAX;
}

static bool is_better(const struct divider *x, u32 s, u32 t)
{
    const struct state *a = &x->state.v[s], *b = &x->state.v[t];
    if (a->rest != b->rest) return a->rest < b->rest;
    return a->n_done > b->n_done;
}

/* Keeps the best `width` states of each number of runs. */
static u32 beam(struct divider *x, u32 width)
{
    u32 now[MAX_BEAM] = {0}, n = 1;
    first_state(x);
    for (;;) {
        u32 next[MAX_BEAM], m = 0;
        for (u32 i = 0; i < n; i++)
            for (u32 v = 0; v < x->n_devices; v++) {
                u32 s = follow(x, now[i], v), k;
                if (s == UINT32_MAX) continue;
                if (x->state.v[s].n_done == x->d->n) return s;
                for (k = m < width ? m++ : width; k > 0 && is_better(x, s, next[k - 1]); k--)
                    if (k < width) next[k] = next[k - 1];
                if (k < width) next[k] = s;
            }
        memcpy(now, next, sizeof now[0] * m);
        n = m;
        assert(n); /* some operator is ready */
    }
}

void place_runs(struct place_runs *r, const struct place_dag *d, const u32 *device, u32 n_devices,
                u32 most_states, struct arena *a)
{
    struct divider x = {.d = d, .device = device, .n_devices = n_devices, .n_words = d->n / 64 + 1};
    *r = (struct place_runs){.of = arena_array(a, u32, d->n + 1), .is_minimal = true};
    if (!d->n) return;
    heights(&x);
    x.seen = arena_array(&x.a, u32, n_devices + 1);
    u32 last = most_states ? shortest(&x, most_states) : UINT32_MAX;
    const bool is_exact = last != UINT32_MAX;
    if (!is_exact) last = beam(&x, most_states ? MAX_BEAM : 2);
    r->n = x.state.v[last].runs, r->least = x.state.v[0].rest;
    r->is_minimal = is_exact || r->n == r->least;
    for (u32 s = last; s; s = x.state.v[s].parent) {
        const struct state *after = &x.state.v[s], *before = &x.state.v[after->parent];
        for (u32 k = 0; k < d->n; k++)
            if (is_done(after->done, k) && !is_done(before->done, k)) r->of[k] = after->runs - 1;
    }
    arena_release(&x.a);
}

bool place_parts_of(struct place_parts *p, const struct place_net *x,
                    const struct place_allocation *y, const u32 *of, u32 n, struct arena *a,
                    struct err *e)
{
    *p = (struct place_parts){.n = 0};
    for (u32 i = 0; i < n; i++) *arr_push(a, p) = (struct place_part){0};
    for (u32 k = 0; k < x->op.n; k++) {
        struct place_part *part = &p->v[of[k]];
        part->device = y->device[k];
        *arr_push(a, &part->op) = k;
    }
    return place_parts_connect(p, x, a, e);
}

bool place_split(struct place_parts *p, const struct place_net *x, const struct place_allocation *y,
                 struct arena *a, struct err *e)
{
    struct arena scratch = {0};
    struct place_dag d;
    struct place_runs r;
    u32 n_devices = 0;
    for (u32 k = 0; k < x->op.n; k++)
        if (y->device[k] >= n_devices) n_devices = y->device[k] + 1;
    place_dag_make(&d, x, &scratch);
    place_runs(&r, &d, y->device, n_devices, PLACE_MAX_STATES, &scratch);
    bool ok = place_parts_of(p, x, y, r.of, r.n, a, e);
    p->least = r.least, p->is_minimal = r.is_minimal;
    arena_release(&scratch);
    return ok;
}
