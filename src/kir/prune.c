// SPDX-License-Identifier: Apache-2.0
//
// prune.c: the last stages of legalisation. REG arrays that are only indexed by constants become one
// array per element, which a language declares as plain variables, so that the target's compiler keeps
// them in registers; those that hold a thread's elements of fragments stay whole. Then dead code is removed: unused pure values and loads, stores to arrays that
// are never read, empty loops and branches. Arguments and TEMP arrays stay: a launch passes them.
#include "kir/legal.h"

/* Arrays. */

static bool is_access(const struct kir_ins *x) { return x->op == KI_LOAD || x->op == KI_STORE; }

static bool is_splittable(const struct kir *k, const struct kir_ins *x, kval array)
{
    i64 at, count = kir_at(k, kir_at(k, array)->a)->imm.i;
    return kir_lanes(k, x->b) == 1 && kir_is_const(k, x->b, &at) && at >= 0 && at < count;
}

/* Per ALLOC to be split: its number of elements, else 0. */
static u32 *find_splittable(const struct kir *k, struct arena *a)
{
    u32 *n = arena_array(a, u32, k->ins.n);
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        i64 count;
        if (x->op == KI_ALLOC && x->aux == KS_REG && kir_is_const(k, x->a, &count) && count > 1 &&
            count <= 4096)
            n[v] = (u32)count;
        if (is_access(x) && n[x->a] && !is_splittable(k, x, x->a)) n[x->a] = 0;
        if (kir_is_own(k, x)) n[x->a] = 0;
    }
    return n;
}

struct splitter {
    struct kir_copy copy;
    struct arena *arena;
    u32 *n;         /* per ALLOC: elements, 0 = not split */
    kval **element; /* per ALLOC: the new arrays */
};

static void split_alloc(struct splitter *s, kval v)
{
    const struct kir_ins *x = kir_at(s->copy.in, v);
    struct kir *k = s->copy.out;
    s->element[v] = arena_array(s->arena, kval, s->n[v]);
    struct kir_frag f = kir_frag_of(x);
    for (u32 i = 0; i < s->n[v]; i++)
        s->element[v][i] = f.role ? kir_alloc_frag(k, &f, kir_int(k, 1))
                                  : kir_alloc(k, x->aux, x->dtype, x->lanes, kir_int(k, 1));
}

static void split_access(struct splitter *s, kval v)
{
    const struct kir_ins *x = kir_at(s->copy.in, v);
    struct kir *k = s->copy.out;
    i64 at = kir_at(s->copy.in, x->b)->imm.i;
    assert(at >= 0 && at < s->n[x->a]); /* find_splittable */
    kval array = s->element[x->a][at], zero = kir_int(k, 0);
    if (x->op == KI_LOAD)
        kir_copy_set(&s->copy, v, kir_load_n(k, array, zero, kir_copy_get(&s->copy, x->c, 0)));
    else
        kir_store_n(k, array, zero, kir_copy_get(&s->copy, x->c, 0),
                    kir_copy_get(&s->copy, x->d, 0));
}

void kir_split_arrays(struct kir *out, struct arena *scratch, const struct kir *in)
{
    struct splitter s = {
        .copy = {.in = in, .out = out}, .arena = scratch, .n = find_splittable(in, scratch)};
    s.element = arena_array(scratch, kval *, in->ins.n);
    kir_copy_init(&s.copy, scratch);
    for (kval v = 1; v < in->ins.n; v++) {
        const struct kir_ins *x = kir_at(in, v);
        if (x->op == KI_ALLOC && s.n[v]) split_alloc(&s, v);
        else if (is_access(x) && s.n[x->a]) split_access(&s, v);
        else kir_copy_ins(&s.copy, v);
    }
}

/* Dead code. An instruction lives when its effect is seen outside, or when something living needs
   it: its operands, and the structures around it; a load makes its array live, which makes the
   array's stores live. */

struct pruner {
    const struct kir *k;
    u8 *live;
    kval *parent; /* innermost structure around each instruction: GRID, LOOP, IF or ELSE; of an
                     ELSE: its IF */
    kval *begin;  /* of an ELSE: its IF; of an END: the structure it closes */
    bool changed;
};

static void mark(struct pruner *p, kval v)
{
    if (!v || p->live[v]) return;
    p->live[v] = 1;
    p->changed = true;
}

static void find_parents(struct pruner *p, struct arena *a)
{
    kval open[65] = {0};
    u32 n = 0;
    p->parent = arena_array(a, kval, p->k->ins.n);
    p->begin = arena_array(a, kval, p->k->ins.n);
    for (kval v = 1; v < p->k->ins.n; v++) {
        enum kir_op op = kir_at(p->k, v)->op;
        if (op == KI_END || op == KI_ELSE) {
            p->begin[v] = open[n--];
            p->parent[v] = op == KI_ELSE ? p->begin[v] : open[n];
        } else {
            p->parent[v] = open[n];
        }
        if (kir_opens(op) || op == KI_ELSE) open[++n] = v;
    }
}

static bool is_root(const struct pruner *p, kval v)
{
    const struct kir_ins *x = kir_at(p->k, v);
    if (x->op == KI_STORE || x->op == KI_FSTORE || x->op == KI_TILE)
        return kir_at(p->k, x->a)->op == KI_BUF || p->live[x->a];
    if (x->op == KI_ALLOC && x->aux == KS_TEMP) return true; /* passed by launchers of the kernel */
    return x->op == KI_GRID || x->op == KI_BARRIER || x->op == KI_AWAIT || x->op == KI_BUF || x->op == KI_PREFETCH;
}

/* Backwards, so that uses come before definitions; repeated while a loop's load makes an array
   live. */
static void mark_live(struct pruner *p)
{
    do {
        p->changed = false;
        for (kval v = p->k->ins.n - 1; v; v--) {
            const struct kir_ins *x = kir_at(p->k, v);
            if (!p->live[v] && !is_root(p, v)) continue;
            mark(p, v);
            mark(p, p->parent[v]);
            for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) mark(p, kir_operand(x, i));
        }
    } while (p->changed);
}

static bool ends_live(const struct pruner *p, kval v)
{
    kval b = p->begin[v];
    while (kir_at(p->k, b)->op == KI_ELSE) b = p->begin[b];
    return p->live[b];
}

void kir_drop_dead(struct kir *out, struct arena *scratch, const struct kir *in)
{
    struct pruner p = {.k = in, .live = arena_alloc(scratch, in->ins.n)};
    find_parents(&p, scratch);
    mark_live(&p);
    struct kir_copy c = {.in = in, .out = out};
    kir_copy_init(&c, scratch);
    for (kval v = 1; v < in->ins.n; v++)
        if (kir_at(in, v)->op == KI_END ? ends_live(&p, v) : p.live[v]) kir_copy_ins(&c, v);
}
