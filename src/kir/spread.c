// SPDX-License-Identifier: Apache-2.0
//
// spread.c: maps a kernel without workgroups to devices with workgroups. The
// iterations of each grid are numbered, innermost dimension fastest, and
// distributed to workgroups of `threads`: adjacent memory goes to adjacent threads.
//
// Small scratch memory of an iteration becomes registers of a thread. Large scratch memory is
// one slice of a TEMP array per thread; then at most SLICES threads are launched and each takes
// several iterations, which bounds the memory. Workgroups of one thread need no barriers.
#include "kir/legal.h"

enum { SLICES = 1024, SMALL = 1024 /* bytes */ };

/* The extent of a grid or the size of an array: a constant, or the text of a parameter. */
struct size {
    bool is_const;
    i64 n;
    struct str text;
};

struct spreader {
    struct kir_copy copy;
    struct arena *arena;
    struct err *e;
    i64 threads;
    kval *slice;    /* per WORK or SHARED array of the old kernel: its TEMP array, 0: none */
    kval slot;      /* number of this thread among all */
    u32 n_close;    /* structures to close at the end of the current grid */
    kval end;       /* the innermost END of the current grid */
    bool is_sliced; /* the current grid */
};

/* Sizes. */

static struct size size_of(const struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->op == KI_CONST) return (struct size){.is_const = true, .n = x->imm.i};
    return (struct size){.text = k->param.v[x->imm.i]};
}

static struct size size_const(i64 n) { return (struct size){.is_const = true, .n = n}; }

static struct str size_text(struct spreader *s, struct size a)
{
    return a.is_const ? str_fmt(s->arena, "%lld", (long long)a.n) : a.text;
}

static struct size size_mul(struct spreader *s, struct size a, struct size b)
{
    struct size r = {.is_const = a.is_const && b.is_const};
    if (a.is_const && a.n == 1) return b;
    if (b.is_const && b.n == 1) return a;
    struct str x = size_text(s, a), y = size_text(s, b);
    if (!r.is_const) r.text = str_fmt(s->arena, "(%.*s)*(%.*s)", STR_ARG(x), STR_ARG(y));
    else if (__builtin_mul_overflow(a.n, b.n, &r.n))
        err_set(s->e, ERR_FAILED, "kernel '%.*s': grid or array too large",
                STR_ARG(s->copy.in->name));
    return r;
}

/* Workgroups for n iterations, at most `most` (0: any number). */
static struct size size_groups(struct spreader *s, struct size n, i64 most)
{
    i64 t = s->threads;
    if (n.is_const) {
        i64 g = i64_max(n.n, 0) / t + (n.n > 0 && n.n % t != 0);
        return size_const(most ? i64_min(g, most) : g);
    }
    struct str g =
        str_fmt(s->arena, "((%.*s) + %lld)//%lld", STR_ARG(n.text), (long long)t - 1, (long long)t);
    if (most) g = str_fmt(s->arena, "min(%.*s, %lld)", STR_ARG(g), (long long)most);
    return (struct size){.text = g};
}

static kval size_value(struct spreader *s, struct size a)
{
    return a.is_const ? kir_int(s->copy.out, a.n) : kir_param(s->copy.out, a.text);
}

/* Arrays. */

static bool is_scratch(const struct kir_ins *x)
{
    return x->op == KI_ALLOC && (x->aux == KS_WORK || x->aux == KS_SHARED);
}

static bool is_large(const struct kir *k, const struct kir_ins *x)
{
    i64 n;
    return !kir_is_const(k, x->a, &n) || n > SMALL / dtype_size(x->dtype);
}

static void copy_scratch(struct spreader *s, kval v)
{
    const struct kir_ins *x = kir_at(s->copy.in, v);
    if (s->slice[v]) return;
    kval n = kir_copy_get(&s->copy, x->a, 0);
    kir_copy_set(&s->copy, v, kir_alloc(s->copy.out, KS_REG, x->dtype, 1, n));
}

/* Grids. */

struct grid {
    struct size extent[3], n; /* n: iterations */
    kval index[3];            /* of the old kernel */
    u32 rank;
};

/* The GRIDs that start at v, and the end of their body. */
static struct grid grid_read(struct spreader *s, kval v)
{
    const struct kir *k = s->copy.in;
    struct grid g = {.n = size_const(1)};
    u32 depth = 0;
    s->is_sliced = false;
    for (s->end = 0; !s->end; v++) {
        const struct kir_ins *x = kir_at(k, v);
        if (x->op == KI_GRID) {
            g.index[g.rank] = v;
            g.extent[g.rank++] = size_of(k, x->a);
            g.n = size_mul(s, g.n, g.extent[g.rank - 1]);
        } else if (is_scratch(x) && is_large(k, x)) {
            s->is_sliced = true;
        } else if (kir_opens(x->op)) {
            depth++;
        } else if (x->op == KI_END && depth-- == 0) {
            s->end = v;
        }
    }
    return g;
}

/* TEMP arrays for the large scratch arrays from v to the end of the grid. */
static void slices_alloc(struct spreader *s, kval v, struct size slots)
{
    const struct kir *k = s->copy.in;
    for (; v < s->end; v++) {
        const struct kir_ins *x = kir_at(k, v);
        if (!is_scratch(x) || !is_large(k, x)) continue;
        kval n = size_value(s, size_mul(s, slots, size_of(k, x->a)));
        s->slice[v] = kir_alloc(s->copy.out, KS_TEMP, x->dtype, 1, n);
    }
}

/* The indices of iteration `at`. */
static void grid_split(struct spreader *s, const struct grid *g, kval at)
{
    struct kir *k = s->copy.out;
    for (u32 i = g->rank; i-- > 0;) {
        kval extent = size_value(s, g->extent[i]), index = at;
        if (i) index = kir_mod(k, at, extent);
        else if (g->extent[0].is_const && kir_range(k, at).hi >= g->extent[0].n)
            index = kir_min(k, at, kir_int(k, i64_max(g->extent[0].n - 1, 0))); /* to bound its range */
        kir_copy_set(&s->copy, g->index[i], index);
        if (i) at = kir_div(k, at, extent);
    }
}

static void grid_open(struct spreader *s, kval v)
{
    struct kir *k = s->copy.out;
    struct grid g = grid_read(s, v);
    struct size groups = size_groups(s, g.n, s->is_sliced ? SLICES / s->threads : 0);
    struct size slots = size_mul(s, groups, size_const(s->threads));
    slices_alloc(s, v, slots);
    kval extent = size_value(s, groups), n = size_value(s, g.n);
    kval at = kir_mul_i(k, kir_grid(k, extent), s->threads);
    s->slot = at = kir_add(k, at, kir_thread(k, 0));
    s->n_close = 2;
    if (s->is_sliced) { /* several iterations per thread */
        kval all = kir_mul_i(k, extent, s->threads);
        kval trips = kir_div(k, kir_add(k, n, kir_add_i(k, all, -1)), all);
        kval r = kir_loop(k, KL_SERIAL, kir_int(k, 0), trips, 1);
        at = kir_add(k, kir_mul(k, r, all), at);
        s->n_close = 3;
    }
    kir_if(k, kir_lt(k, at, n));
    grid_split(s, &g, at);
}

static void spread_ins(struct spreader *s, kval v)
{
    const struct kir_ins *x = kir_at(s->copy.in, v);
    bool is_access = x->op == KI_LOAD || x->op == KI_STORE;
    if (x->op == KI_GRID) {
        if (!s->end) grid_open(s, v);
    } else if (v == s->end) {
        for (u32 i = 0; i < s->n_close; i++) kir_end(s->copy.out);
    } else if (x->op == KI_END && s->end && v > s->end) {
        return; /* of an outer dimension */
    } else if (is_scratch(x)) {
        copy_scratch(s, v);
    } else if (is_access && s->slice[x->a]) {
        /* An access to this thread's slice. */
        struct kir *k = s->copy.out;
        kval count = kir_copy_get(&s->copy, kir_at(s->copy.in, x->a)->a, 0);
        kval at = kir_add(k, kir_copy_get(&s->copy, x->b, 0), kir_mul(k, s->slot, count));
        kval c = kir_copy_get(&s->copy, x->c, 0), d = kir_copy_get(&s->copy, x->d, 0);
        if (x->op == KI_LOAD) kir_copy_set(&s->copy, v, kir_load_n(k, s->slice[x->a], at, c));
        else kir_store_n(k, s->slice[x->a], at, c, d);
    } else if (x->op == KI_THREAD) {
        kir_copy_set(&s->copy, v, kir_int(s->copy.out, 0));
    } else if (x->op != KI_BARRIER && x->op != KI_AWAIT) {
        kir_copy_ins(&s->copy, v);
    }
}

/* No grid is current outside of grids; the next GRID opens one. */
static void spread_all(struct spreader *s)
{
    const struct kir *k = s->copy.in;
    u32 depth = 0;
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        spread_ins(s, v);
        depth += kir_opens(x->op);
        depth -= x->op == KI_END;
        if (!depth) s->end = 0;
    }
}

static bool check(const struct kir *k, struct err *e)
{
    for (kval v = 1; v < k->ins.n; v++)
        if (kir_is_collective(k, v) || kir_at(k, v)->op == KI_SUBGROUP)
            return err_set(e, ERR_FAILED, "kernel '%.*s' has subgroups already", STR_ARG(k->name));
        else if (kir_at(k, v)->op == KI_TILE) return err_set(e, ERR_FAILED, "kernel '%.*s' has workgroups already", STR_ARG(k->name));
    return true;
}

bool kir_spread(struct kir *out, struct arena *a, const struct kir *in, u32 threads, struct err *e)
{
    struct arena scratch = {0};
    struct err err = {0};
    struct spreader s = {
        .copy = {.in = in, .out = out}, .arena = &scratch, .e = &err, .threads = threads};
    assert(kir_threads(in) == 1 && threads >= 1 && threads <= SLICES);
    if (!check(in, e)) return false;
    kir_init(out, a, in->name);
    kir_copy_init(&s.copy, &scratch);
    out->group[0] = threads;
    s.slice = arena_array(&scratch, kval, in->ins.n);
    spread_all(&s);
    arena_release(&scratch);
    if (err.code != ERR_NONE) *e = err;
    return err.code == ERR_NONE;
}
