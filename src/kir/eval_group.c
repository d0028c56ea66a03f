// SPDX-License-Identifier: Apache-2.0
//
// eval_group.c: joint operations of a subgroup or a warpgroup. All of its threads arrive or
// none, with the same indices and pitches. Memory accesses count as those of an unknown thread
// of the subgroup, since the distribution of a fragment's elements over threads is unspecified.
#include "kir/eval.h"
#include "kir/field.h"
#include "kir/term.h"

#include <string.h>

struct lanes { /* of the active subgroup or warpgroup */
    u32 number, first, n;
};

/* A cell that must be equal in all threads. */
static bool agree(struct machine *m, const struct eval_op *o, const struct lanes *g, u32 cell)
{
    const union kir_cell *c = m->cell + cell + g->first;
    for (u32 i = 1; i < g->n; i++) {
        m->thread = g->first + i;
        if (memcmp(&c[i], &c[0], sizeof *c))
            return eval_complain(m, o, "threads of a subgroup disagree on an operand for", c[i].i);
    }
    return true;
}

/* Fragments. */

static i64 frag_cells(const struct kir_ins *x) { return (i64)x->rows * x->cols; }

/* The fragment produced by instruction v. */
static union kir_cell *frag(const struct machine *m, const struct lanes *g, kval v)
{
    return m->frag + m->code.cell[v] + frag_cells(kir_at(m->k, v)) * g->number;
}

static bool do_fill(struct machine *m, const struct eval_op *o, const struct lanes *g)
{
    const struct kir_ins *x = kir_at(m->k, o->src);
    union kir_cell *r = frag(m, g, o->src);
    if (!agree(m, o, g, o->a)) return false;
    for (i64 i = 0; i < frag_cells(x); i++) r[i] = m->cell[o->a + g->first];
    return true;
}

/* Matrix units of subgroups move up to 16 bytes of a row (by columns: a column) at a time. */
static bool is_aligned(const struct kir *k, const struct kir_ins *x, const struct kir_ins *f, i64 at, i64 pitch)
{
    if (kir_is_alone(k)) return true;
    i64 size = dtype_size(f->dtype), line = x->aux ? f->rows : f->cols;
    i64 unit = i64_min(line, 16 / size);
    return at % unit == 0 && pitch % unit == 0;
}

/* Of a fragment's element from the first one: see enum kir_frag_order. */
static i64 in_groups(i64 row, i64 col, i64 pitch, i64 group)
{
    i64 step;
    return __builtin_mul_overflow(row / group, pitch, &step) ? INT64_MIN / 2 : (i64)((u64)step + (u64)(col * group + row % group));
}

/* Offset of element `at` of a line from the first element; overflow is out of bounds. */
static i64 distance(i64 line, i64 at, i64 pitch, const i64 *panels)
{
    i64 step, panel = 0;
    if (panels && pitch > 0 && __builtin_mul_overflow(at / pitch, *panels, &panel)) return INT64_MIN / 2;
    if (panels && pitch > 0) at %= pitch;
    if (__builtin_mul_overflow(line, pitch, &step)) return INT64_MIN / 2;
    return (i64)((u64)step + (u64)panel + (u64)at);
}

/* Every thread's own elements, which are in arrays of its own. */
static bool do_own(struct machine *m, const struct eval_op *o, const struct lanes *g)
{
    const struct kir_ins *x = kir_at(m->k, o->src);
    const bool is_load = x->op == KI_FLOAD;
    const kval value = is_load ? o->src : x->c;
    const struct kir_ins *f = kir_at(m->k, value);
    const struct eval_array *a = &m->array[o->a];
    const u32 pitch = is_load ? o->c : o->d;
    union kir_cell *c = frag(m, g, value);
    if (!agree(m, o, g, o->b) || !agree(m, o, g, pitch)) return false;
    const i64 at = m->cell[o->b + g->first].i, p = m->cell[pitch + g->first].i;
    for (i64 i = 0; i < frag_cells(f); i++) {
        const struct kir_own own = kir_own_of(i / f->cols, i % f->cols);
        const i64 from = x->aux == KF_COLUMNS ? distance(own.col, own.row, p, NULL) : distance(own.row, own.col / a->lanes, p, NULL);
        const i64 e = (i64)((u64)at + (u64)from);
        m->thread = g->first + own.thread;
        if ((u64)e >= (u64)a->n) return eval_complain(m, o, is_load ? "read out of bounds:" : "write out of bounds:", e);
        u8 *known = &a->known[e * a->copies + m->thread];
        union kir_cell *cell = &a->cell[(e * a->lanes + own.col % a->lanes) * a->copies + m->thread];
        if (is_load && !*known) return eval_complain(m, o, "read of undefined", e);
        *known = 1;
        if (is_load) c[i] = *cell;
        else *cell = c[i];
    }
    return true;
}

/* FLOAD, FSTORE */
static bool do_access(struct machine *m, const struct eval_op *o, const struct lanes *g)
{
    const struct kir_ins *x = kir_at(m->k, o->src);
    bool is_load = x->op == KI_FLOAD;
    kval value = is_load ? o->src : x->c;
    const struct kir_ins *f = kir_at(m->k, value);
    const struct eval_array *a = &m->array[o->a];
    u32 pitch = is_load ? o->c : o->d;
    union kir_cell *c = frag(m, g, value);
    const i64 *panels = is_load && x->d ? &m->cell[o->d + g->first].i : NULL;
    if (!agree(m, o, g, o->b) || !agree(m, o, g, pitch) || (panels && !agree(m, o, g, o->d))) return false;
    i64 at = m->cell[o->b + g->first].i, p = m->cell[pitch + g->first].i;
    if (!is_aligned(m->k, x, f, at, p) || (panels && *panels % i64_max(1, 16 / dtype_size(f->dtype)))) return eval_complain(m, o, "misaligned fragment at", at);
    m->agent = m->several;
    for (i64 i = 0; i < frag_cells(f); i++, c++) {
        i64 row = i / f->cols, col = i % f->cols;
        bool by_columns = x->aux == KF_COLUMNS;
        i64 by = x->aux == KF_GROUPS ? in_groups(row, col, p, kir_frag_group(f->dtype)) : distance(by_columns ? col : row, by_columns ? row : col, p, panels);
        i64 e = (i64)((u64)at + (u64)by);
        const char *bad = is_load ? eval_get(m, a, e, c) : eval_set(m, a, e, c);
        if (bad) return eval_complain(m, o, bad, e);
        if (is_load && f->dtype == DT_TF32 && !m->arithmetic) c->f = kir_round(DT_TF32, c->f);
    }
    return true;
}

/* One element of a matmul; sums are at least as precise as the accumulator. */
static union kir_cell dot(const struct kir_ins *x, const union kir_cell *a, const union kir_cell *b,
                          union kir_cell c)
{
    if (!dtype_is_float(x->dtype)) {
        u64 s = (u64)c.i;
        for (u32 i = 0; i < x->rows; i++) s += (u64)a[i].i * (u64)b[(i64)i * x->cols].i;
        return (union kir_cell){.i = kir_wrap(x->dtype, (i64)s)};
    }
    double s = c.f;
    for (u32 i = 0; i < x->rows; i++) s += a[i].f * b[(i64)i * x->cols].f;
    return (union kir_cell){.f = kir_round(x->dtype, s)};
}

static union kir_cell other_dot(enum kir_arithmetic k, const struct kir_ins *x, const union kir_cell *a, const union kir_cell *b, union kir_cell c)
{
    for (u32 i = 0; i < x->rows; i++) {
        const union kir_cell y = b[(i64)i * x->cols];
        c = k == KIR_TERMS ? term_step(KI_FMMA, x->dtype, a[i], y, c) : field_add(c, field_mul(a[i], y));
    }
    return c;
}

static bool do_mma(struct machine *m, const struct eval_op *o, const struct lanes *g)
{
    const struct kir_ins *x = kir_at(m->k, o->src);
    const union kir_cell *a = frag(m, g, x->a), *b = frag(m, g, x->b), *c = frag(m, g, x->c);
    union kir_cell *r = frag(m, g, o->src);
    struct kir_ins right = *kir_at(m->k, x->b); /* the shape of b, the type of the result */
    right.dtype = x->dtype;
    enum kir_arithmetic k = dtype_is_float(x->dtype) ? m->arithmetic : KIR_FLOATS;
    for (i64 i = 0; i < x->rows; i++)
        for (i64 j = 0; j < x->cols; j++)
            r[i * x->cols + j] = k ? other_dot(k, &right, a + i * right.rows, b + j, c[i * x->cols + j])
                                   : dot(&right, a + i * right.rows, b + j, c[i * x->cols + j]);
    return true;
}

/* ADD, MUL, CAST */
static bool do_elements(struct machine *m, const struct eval_op *o, const struct lanes *g)
{
    const struct kir_ins *x = kir_at(m->k, o->src);
    const union kir_cell *a = frag(m, g, x->a), *b = x->op == KI_CAST ? a : frag(m, g, x->b);
    union kir_cell *r = frag(m, g, o->src);
    for (i64 i = 0; i < frag_cells(x); i++)
        kir_scalar_in(m->arithmetic)(x->op, o->from, o->to, (union kir_cell[3]){a[i], b[i]}, &r[i]);
    return true;
}

/* LOAD, STORE of an array of fragments */
static bool do_array(struct machine *m, const struct eval_op *o, const struct lanes *g)
{
    const struct kir_ins *x = kir_at(m->k, o->src);
    const struct eval_array *a = &m->array[o->a];
    bool is_load = x->op == KI_LOAD;
    i64 i = m->cell[o->b + g->first].i;
    if (!agree(m, o, g, o->b)) return false;
    if ((u64)i >= (u64)a->n)
        return eval_complain(m, o, is_load ? "read out of bounds:" : "write out of bounds:", i);
    i64 at = i * a->copies + g->number;
    union kir_cell *c = a->cell + at * a->lanes;
    if (is_load && !a->known[at]) return eval_complain(m, o, "read of undefined", i);
    a->known[at] = 1;
    if (is_load) memcpy(frag(m, g, o->src), c, sizeof *c * a->lanes);
    else memcpy(c, frag(m, g, x->c), sizeof *c * a->lanes);
    return true;
}

/* Scalars. */

static bool do_reduce(struct machine *m, const struct eval_op *o, const struct lanes *g)
{
    enum kir_op op = o->op == KI_SGADD ? KI_ADD : o->op == KI_SGMIN ? KI_MIN : KI_MAX;
    const union kir_cell *a = m->cell + o->a + g->first;
    union kir_cell *r = m->cell + o->r + g->first, s = a[0];
    bool unordered = m->arithmetic == KIR_TERMS && op == KI_ADD && dtype_is_float(o->from);
    for (u32 i = 1; i < g->n; i++) {
        if (unordered) s = term_step(o->op, o->from, s, a[i], (union kir_cell){0});
        else kir_scalar_in(m->arithmetic)(op, o->from, o->to, (union kir_cell[3]){s, a[i]}, &s);
    }
    for (u32 i = 0; i < g->n; i++) r[i] = s;
    return true;
}

static bool do_shuffle(struct machine *m, const struct eval_op *o, const struct lanes *g)
{
    const union kir_cell *a = m->cell + o->a + g->first, *b = m->cell + o->b + g->first;
    union kir_cell *r = m->cell + o->r + g->first;
    for (u32 i = 0; i < g->n; i++) {
        m->thread = g->first + i;
        if ((u64)b[i].i >= g->n)
            return eval_complain(m, o, "no such thread in the subgroup", b[i].i);
        r[i] = a[b[i].i];
    }
    return true;
}

static bool run_joint(struct machine *m, const struct eval_op *o, const struct lanes *g)
{
    switch (o->op) {
    case KIR_SG_REDUCTIONS: return do_reduce(m, o, g);
    case KI_SHUFFLE: return do_shuffle(m, o, g);
    case KI_FILL: return do_fill(m, o, g);
    case KI_FLOAD:
    case KI_FSTORE: return kir_is_own(m->k, kir_at(m->k, o->src)) ? do_own(m, o, g) : do_access(m, o, g);
    case KI_FMMA: return do_mma(m, o, g);
    case KI_LOAD:
    case KI_STORE: return do_array(m, o, g);
    case KI_ADD:
    case KI_MUL:
    case KI_CAST: return do_elements(m, o, g);
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KI_BITS: case KIR_UNARY: case KI_SUB:
    case KI_DIV: case KI_MOD: case KI_MIN: case KI_MAX: case KI_POW:
    case KIR_LOGIC: case KIR_SHIFTS: case KIR_COMPARISONS: case KI_FMA: case KIR_DOTS:
    case KI_SELECT: case KIR_ARRAYS: case KI_TILE: case KI_PREFETCH: case KIR_CONTROL:
    case KIR_SYNC:
    default: unreachable();
    }
}

static bool is_of_subgroup(enum kir_op op)
{
    return op == KI_SGADD || op == KI_SGMIN || op == KI_SGMAX || op == KI_SHUFFLE;
}

bool eval_group(struct machine *m, const struct eval_op *o)
{
    struct lanes g = {0};
    u32 size = is_of_subgroup((enum kir_op)o->op) ? m->subgroup : m->frag_threads;
    for (; g.first < m->n_threads; g.number++, g.first += size) {
        u32 active = 0, away = 0;
        g.n = (u32)i64_min(size, m->n_threads - g.first);
        for (u32 i = 0; i < g.n; i++) {
            if (eval_is_on(m, g.first + i)) active++;
            else away = g.first + i;
        }
        if (!active) continue;
        m->thread = active < g.n ? away : g.first;
        if (active < g.n) return eval_complain(m, o, "threads of a subgroup in divergent flow", 0);
        if (!run_joint(m, o, &g)) return false;
    }
    return true;
}
