// SPDX-License-Identifier: Apache-2.0
//
// legal.c: legalises a kernel for a language. One traversal emits the kernel
// again through the builder (copy.c): unrolled loops as copies of their body with a
// constant index, branches with a known condition and loops of at most one
// iteration without their structure, and vectors wider than the target's as
// several narrower ones. Then prune.c splits arrays and removes unused ones.
#include "kir/legal.h"

/* Unrolling. */

struct unroller {
    struct kir_copy copy;
    kval *end; /* of each GRID, LOOP, IF: its END; of an IF with two branches: its ELSE */
    u32 max;
    struct err *e;
};

static void find_ends(struct unroller *u, struct arena *a)
{
    const struct kir *k = u->copy.in;
    kval open[64];
    u32 n = 0;
    u->end = arena_array(a, kval, k->ins.n);
    for (kval v = 1; v < k->ins.n; v++) {
        enum kir_op op = kir_at(k, v)->op;
        if (op == KI_END || op == KI_ELSE) u->end[open[--n]] = v;
        if (kir_opens(op) || op == KI_ELSE) open[n++] = v;
    }
}

static bool copy_range(struct unroller *u, kval from, kval to);

static bool check_size(struct unroller *u)
{
    if (u->copy.out->ins.n <= u->max) return true;
    return err_set(u->e, ERR_FAILED, "kernel '%.*s' grows beyond %u instructions when unrolled",
                   STR_ARG(u->copy.in->name), u->max);
}

static bool copy_iterations(struct unroller *u, kval v, i64 n)
{
    const struct kir_ins *x = kir_at(u->copy.in, v);
    kval from = kir_copy_get(&u->copy, x->a, 0);
    i64 step = kir_at(u->copy.in, x->c)->imm.i;
    if (n > u->max)
        return err_set(u->e, ERR_FAILED, "kernel '%.*s': loop %%%u has too many iterations to unroll",
                       STR_ARG(u->copy.in->name), kir_text_id(u->copy.in, v));
    for (i64 i = 0; i < n; i++) {
        kir_copy_set(&u->copy, v, kir_add_i(u->copy.out, from, i * step));
        if (!copy_range(u, v + 1, u->end[v]) || !check_size(u)) return false;
    }
    return true;
}

/* Number of iterations of loop v, -1: unknown. */
static i64 trip_count(struct unroller *u, kval v)
{
    const struct kir_ins *x = kir_at(u->copy.in, v);
    i64 step = kir_at(u->copy.in, x->c)->imm.i;
    struct kir_range size = kir_diff_range(u->copy.out, kir_copy_get(&u->copy, x->b, 0), kir_copy_get(&u->copy, x->a, 0));
    if (size.hi <= 0) return 0;
    i64 n = (size.hi - 1) / step + 1;
    return size.lo > 0 && (size.lo - 1) / step + 1 == n ? n : -1;
}

static bool copy_loop(struct unroller *u, kval v)
{
    const struct kir_ins *x = kir_at(u->copy.in, v);
    i64 n = trip_count(u, v);
    if (x->aux == KL_UNROLL && n < 0)
        return err_set(
            u->e, ERR_FAILED,
            "kernel '%.*s': loop %%%u must be unrolled, but its number of iterations is not constant",
            STR_ARG(u->copy.in->name), kir_text_id(u->copy.in, v));
    if (x->aux == KL_UNROLL || n == 0 || n == 1) return copy_iterations(u, v, n);
    kir_copy_ins(&u->copy, v);
    if (!copy_range(u, v + 1, u->end[v])) return false;
    kir_end(u->copy.out);
    return true;
}

static bool copy_if(struct unroller *u, kval v)
{
    kval mid = u->end[v], end = mid;
    bool has_else = kir_at(u->copy.in, mid)->op == KI_ELSE;
    if (has_else) end = u->end[mid];
    i64 cond;
    if (kir_is_const(u->copy.out, kir_copy_get(&u->copy, kir_at(u->copy.in, v)->a, 0), &cond)) {
        if (cond) return copy_range(u, v + 1, mid);
        return !has_else || copy_range(u, mid + 1, end);
    }
    kir_copy_ins(&u->copy, v);
    if (!copy_range(u, v + 1, mid)) return false;
    if (has_else) {
        kir_else(u->copy.out);
        if (!copy_range(u, mid + 1, end)) return false;
    }
    kir_end(u->copy.out);
    return true;
}

static bool copy_range(struct unroller *u, kval from, kval to)
{
    for (kval v = from; v < to;) {
        enum kir_op op = kir_at(u->copy.in, v)->op;
        if (op == KI_LOOP || op == KI_IF) {
            if (!(op == KI_LOOP ? copy_loop(u, v) : copy_if(u, v))) return false;
            kval end = u->end[v];
            v = 1 + (kir_at(u->copy.in, end)->op == KI_ELSE ? u->end[end] : end);
            continue;
        }
        kir_copy_ins(&u->copy, v++);
    }
    return check_size(u);
}

/* Width. */

static void limit_type(struct kir_copy *c, const struct kir_ins *x, u32 max_bytes)
{
    bool is_shapeless = x->op == KI_CONST || x->op == KI_SPLAT || x->op == KI_RAMP;
    if (x->lanes <= 1 || is_shapeless || x->dtype == DT_I64 || x->dtype == DT_BOOL) return;
    u32 n = x->lanes;
    while (n > 1 && n * (u32)dtype_size(x->dtype) > max_bytes) n /= 2;
    if (n < c->narrow[x->lanes]) c->narrow[x->lanes] = (u8)n;
}

/* Makes *a at most b. True: it was more. */
static bool lower(u8 *a, u32 b)
{
    if (*a <= b) return false;
    *a = (u8)b;
    return true;
}

/* Pieces of vectors of `many` and of `few` lanes, of which each stands for many / few: equally many, or
   single lanes of the latter. */
static bool couple(struct kir_copy *c, u32 many, u32 few)
{
    u32 g = many / few;
    if (c->narrow[many] < g) return lower(&c->narrow[few], 1);
    bool less = lower(&c->narrow[many], g * c->narrow[few]);
    return lower(&c->narrow[few], c->narrow[many] / g) || less;
}

/* Pieces of a vector that repeats another: whole copies of it, or as wide as its pieces. */
static bool couple_repeat(struct kir_copy *c, u32 many, u32 few)
{
    if (c->narrow[many] >= few && c->narrow[few] >= few) return false;
    bool less = lower(&c->narrow[few], c->narrow[many]);
    return lower(&c->narrow[many], c->narrow[few]) || less;
}

/* Pieces of a ZIP, `many` lanes of vectors of `few`: no more than what a pair of the operands' pieces has. */
static bool couple_zip(struct kir_copy *c, u32 many, u32 few)
{
    return lower(&c->narrow[many], c->narrow[few] > 1 ? 2u * c->narrow[few] : 1);
}

static bool couple_widths(struct kir_copy *c)
{
    bool changed = false;
    for (kval v = 1; v < c->in->ins.n; v++) {
        const struct kir_ins *x = kir_at(c->in, v);
        u32 a = kir_lanes(c->in, x->a);
        if (x->op == KI_DOT || (x->op == KI_LANE && x->lanes > 1)) changed |= couple(c, a, x->lanes);
        if (x->op == KI_MMLA) changed |= couple(c, a, x->lanes) || (c->narrow[x->lanes] < x->lanes && lower(&c->narrow[x->lanes], 1));
        if (x->op == KI_ZIP) changed |= couple_zip(c, x->lanes, a);
        if (x->op == KI_SPLAT && a > 1) changed |= couple_repeat(c, x->lanes, a);
    }
    return changed;
}

/* Types of the pieces of vectors. */
static void limit_widths(struct kir_copy *c, u32 max_bytes)
{
    if (!max_bytes) return;
    for (kval v = 1; v < c->in->ins.n; v++) limit_type(c, kir_at(c->in, v), max_bytes);
    while (couple_widths(c)) {}
}

bool kir_legalise(struct kir *out, struct arena *a, const struct kir *in,
                  const struct kir_limits *l, struct err *e)
{
    struct arena scratch = {0};
    struct kir flat, split;
    struct unroller u = {
        .copy = {.in = in, .out = &flat}, .max = l->max_unroll ? l->max_unroll : 1 << 20, .e = e};
    kir_init(&flat, &scratch, in->name);
    kir_copy_init(&u.copy, &scratch);
    find_ends(&u, &scratch);
    limit_widths(&u.copy, l->max_lanes_bytes);
    bool ok = copy_range(&u, 1, in->ins.n);
    if (ok) {
        kir_init(&split, &scratch, in->name);
        kir_split_arrays(&split, &scratch, &flat);
        kir_init(out, a, in->name);
        kir_drop_dead(out, &scratch, &split);
    }
    arena_release(&scratch);
    return ok;
}
