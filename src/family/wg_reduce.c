// SPDX-License-Identifier: Apache-2.0
//
// wg_reduce: tasks with reductions (softmax, normalisation, global pooling, ReduceX) by workgroups.
// `threads` threads share a row, a workgroup has `rows` rows. Each thread folds its elements, the
// threads of a row fold their results (gen/wg.c), and all of them continue with the result: the next
// reduction, or the outputs. Values computed for a reduction may stay in registers for the passes
// that follow. Row indices are clamped to the last row; clamped rows store nothing, so that no
// barrier is divergent.
//
// Neighbouring threads read neighbouring elements: along the row, or, where the innermost axis in
// memory is kept, across rows.
//
// With `split` a row is divided among several workgroups: each reduction stores one partial result
// per part in a TEMP array, a second grid folds these, and the outputs follow in grids of their
// own. So do reductions that cannot be fused.
//
// Fused axes (gen/space.c) are either reduced or kept; a row is one index of all kept ones.
#include "gen/wg.h"
#include "gen/row.h"
#include "gen/wg_cost.h"

#include <math.h>

// clang-format off
#define PARAMS(P)                                                                     \
    P(threads, "threads that share a row", 1, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  \
    P(rows, "rows, or vectors of rows, of a workgroup", 1, 2, 4, 8, 16, 32, 64, 128, 256) \
    P(lanes, "elements of a vector", 1, 2, 4, 8)                                      \
    P(unroll, "accumulators of a thread", 1, 4)                                       \
    P(keep, "1: what a reduction computed stays in registers", 0, 1)                  \
    P(split, "workgroups that share a row", 1, 8, 64, 512)              \
    P(sub, "1: threads of a subgroup fold among themselves", 0, 1)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)

enum {
    MAX_KEPT = 64,   /* elements of a row that a thread keeps of one reduction */
    KEPT_LOADS = 4,  /* of them on their way at the same time */
    LINE = 128       /* bytes */
};


struct rows {
    struct workgroup g;
    struct row_task x;
    struct params s;
    struct row_space sp;
    const struct reduction *first; /* its axes make the space */
    u32 lanes;
    u32 group[MAX_RANK], n_group; /* reduced fused axes */
    sym length;                   /* of a row */
    kval at[MAX_RANK];            /* per fused axis; a vector where lanes run */
    kval row;                     /* this thread's row, or vector of rows, and how many there are */
    kval n_rows;
    kval place, from, to; /* of the thread in its row; the elements of the row it shares */
    kval chunk;
    kval slot; /* register of the element at hand, when kept */
    kval kept[MAX_REDUCE], result[MAX_REDUCE], temp[MAX_REDUCE];
};

static struct emit *emit_of(const struct rows *r) { return r->g.m; }

/* The row at hand. */

static void find_space(struct rows *r, const struct reduction *red)
{
    const struct graph *g = r->x.g;
    struct symtab *st = g->sym;
    r->first = red;
    row_space_of(&r->sp, &r->x, red);
    const struct space *sp = &r->sp.sp;
    r->length = sym_const(st, 1);
    r->n_group = 0;
    for (u32 i = 0; i < sp->n; i++) {
        if (!r->sp.reduced[i]) continue;
        r->length = sym_mul(st, r->length, sp->g[i].extent);
        r->group[r->n_group++] = i;
    }
    u32 along = r->sp.across ? sp->n - 1 : r->sp.inner;
    r->lanes = along < sp->n && row_is_float_only(g) ? (u32)r->s.lanes : 1;
    while (r->lanes > 1 && !sym_divides(st, r->lanes, sp->g[along].extent)) r->lanes /= 2;
}

static sym row_count(const struct rows *r)
{
    struct symtab *st = r->x.g->sym;
    sym n = sym_const(st, 1);
    const struct space *sp = &r->sp.sp;
    for (u32 i = 0; i < sp->n; i++)
        if (!r->sp.reduced[i]) n = sym_mul(st, n, sp->g[i].extent);
    return r->sp.across && r->lanes > 1 ? sym_div(st, n, sym_const(st, r->lanes)) : n;
}

/* Opens the grid over rows and chunks; closed by two kir_end. */
static void open_rows(struct rows *r, i64 chunks)
{
    struct emit *m = emit_of(r);
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const struct space *sp = &r->sp.sp;
    u32 group[MAX_RANK], n = 0;
    i64 step = r->sp.across ? 1 : r->lanes;
    sym rows = row_count(r), part = sym_cdiv(st, r->length, sym_const(st, chunks * step));
    r->chunk = kir_grid(k, kir_int(k, chunks));
    kval at = kir_grid(k, emit_size(m, sym_cdiv(st, rows, sym_const(st, r->s.rows))));
    wg_enter(&r->g);
    kval t = r->g.t,
         own = r->sp.across ? kir_mod_i(k, t, r->s.rows) : kir_div_i(k, t, r->s.threads);
    r->place = r->sp.across ? kir_div_i(k, t, r->s.rows) : kir_mod_i(k, t, r->s.threads);
    r->n_rows = emit_size(m, rows);
    r->row = kir_add(k, kir_mul_i(k, at, r->s.rows), own);
    r->from = kir_mul_i(k, kir_mul(k, r->chunk, emit_size(m, part)), step);
    r->to = emit_size(m, r->length);
    if (chunks > 1) {
        kval end = kir_add(k, r->from, kir_mul_i(k, emit_size(m, part), step));
        r->to = kir_min(k, r->to, end);
    }
    kval row =
        sym_divides(st, r->s.rows, rows) ? r->row : kir_min(k, r->row, kir_add_i(k, r->n_rows, -1));
    for (u32 i = 0; i < sp->n; i++)
        if (!r->sp.reduced[i] && !(r->sp.across && i == sp->n - 1)) group[n++] = i;
    if (r->sp.across) {
        sym vectors = sym_div(st, sp->g[sp->n - 1].extent, sym_const(st, r->lanes));
        kval width = emit_size(m, vectors);
        kval c = n ? kir_mod(k, row, width) : row;
        r->at[sp->n - 1] = kir_ramp(k, kir_mul_i(k, c, r->lanes), 1, r->lanes);
        row = kir_div(k, row, width);
    }
    space_split(m, sp, group, n, row, r->at);
}

/* Only for rows that exist: opens an IF. */
static bool open_if_row(struct rows *r)
{
    struct kir *k = emit_of(r)->k;
    if (sym_divides(r->x.g->sym, r->s.rows, row_count(r))) return false;
    kir_if(k, kir_lt(k, r->row, r->n_rows));
    return true;
}

static void full_index(struct rows *r, kval idx[MAX_RANK])
{
    space_index(emit_of(r)->k, &r->sp.sp, r->at, idx);
}

static void less_index(struct rows *r, kval idx[MAX_RANK])
{
    kval full[MAX_RANK];
    full_index(r, full);
    row_less_index(emit_of(r), r->first, full, idx);
}

/* The elements of this thread. */

typedef void visit_fn(struct rows *r, const void *user, i64 u);

static i64 step_of(const struct rows *r) { return r->sp.across ? 1 : r->lanes; }

static void visit_at(struct rows *r, visit_fn *fn, const void *user, kval e, i64 u)
{
    struct emit *m = emit_of(r);
    space_split(m, &r->sp.sp, r->group, r->n_group, e, r->at);
    if (r->n_group && !r->sp.across)
        r->at[r->sp.inner] = kir_ramp(m->k, r->at[r->sp.inner], 1, r->lanes);
    fn(r, user, u);
}

/* Registers of one thread that hold its part of a row; 0: they cannot. */
static i64 kept_slots(const struct rows *r)
{
    i64 n = gen_static(r->x.g, r->length, -1);
    return n > 0 ? ceil_div(n, step_of(r) * r->s.threads) : 0;
}

static void visit_kept(struct rows *r, visit_fn *fn, const void *user)
{
    struct kir *k = emit_of(r)->k;
    i64 n = gen_static(r->x.g, r->length, 0), step = step_of(r);
    for (i64 i = 0; i < kept_slots(r); i++) {
        kval e = kir_mul_i(k, kir_add_i(k, r->place, i * r->s.threads), step);
        bool some = (i + 1) * r->s.threads * step > n;
        r->slot = kir_int(k, i);
        if (some) kir_if(k, kir_lt(k, e, kir_int(k, n)));
        visit_at(r, fn, user, e, i % r->s.unroll);
        if (some) kir_end(k);
    }
}

static void visit_row(struct rows *r, visit_fn *fn, const void *user)
{
    struct kir *k = emit_of(r)->k;
    i64 stride = step_of(r) * r->s.threads, unroll = r->s.unroll;
    if (r->s.keep) {
        visit_kept(r, fn, user);
        return;
    }
    kval first = kir_add(k, r->from, kir_mul_i(k, r->place, step_of(r)));
    if (unroll > 1) {
        kval left = kir_max(k, kir_sub(k, r->to, first), kir_int(k, 0));
        kval many = kir_mul_i(k, kir_div_i(k, left, stride * unroll), stride * unroll);
        kval end = kir_add(k, first, many);
        kval e = kir_loop(k, KL_SERIAL, first, end, stride * unroll);
        for (i64 u = 0; u < unroll; u++) visit_at(r, fn, user, kir_add_i(k, e, u * stride), u);
        kir_end(k);
        first = end;
    }
    kval e = kir_loop(k, KL_SERIAL, first, r->to, stride);
    visit_at(r, fn, user, e, 0);
    kir_end(k);
}

/* A reduction. */

struct pass {
    const struct reduction *red;
    kval acc, kept;
};

static void accumulate(struct rows *r, const void *user, i64 u)
{
    const struct pass *p = user;
    struct kir *k = emit_of(r)->k;
    kval idx[MAX_RANK], slot = kir_int(k, u);
    full_index(r, idx);
    kval val = kir_splat(k, emit_value(emit_of(r), p->red->in, idx), r->lanes);
    if (p->kept) kir_store(k, p->kept, r->slot, val);
    kir_store(k, p->acc, slot, emit_combine(k, p->red->r.combine, kir_load(k, p->acc, slot), val));
}

static kval fold_vector(struct kir *k, enum kir_op op, kval v)
{
    if (op == KI_ADD) return kir_un(k, KI_HADD, v);
    if (op == KI_MIN || op == KI_MAX) return kir_un(k, op == KI_MIN ? KI_HMIN : KI_HMAX, v);
    kval s = kir_lane(k, v, 0);
    for (u32 i = 1; i < kir_lanes(k, v); i++) s = kir_bin(k, op, s, kir_lane(k, v, i));
    return s;
}

static kval open_accumulators(struct rows *r, enum kir_op op, enum dtype t)
{
    struct kir *k = emit_of(r)->k;
    kval none = kir_splat(k, emit_neutral(emit_of(r), op, t), r->lanes);
    kval acc = kir_alloc(k, KS_REG, emit_type(t), r->lanes, kir_int(k, r->s.unroll));
    for (i64 u = 0; u < r->s.unroll; u++) kir_store(k, acc, kir_int(k, u), none);
    return acc;
}

/* Of all threads of the row. */
static kval fold_row(struct rows *r, enum kir_op op, kval acc)
{
    struct kir *k = emit_of(r)->k;
    kval v = kir_load(k, acc, kir_int(k, 0));
    for (i64 u = 1; u < r->s.unroll; u++) v = kir_bin(k, op, v, kir_load(k, acc, kir_int(k, u)));
    if (!r->sp.across) v = fold_vector(k, op, v);
    struct wg_fold f = {&r->g, op, r->s.threads, r->sp.across ? r->s.rows : 1, 0};
    if (r->s.threads > 1)
        f.shared =
            kir_alloc(k, KS_SHARED, kir_dtype(k, v), 1, kir_int(k, r->g.n * kir_lanes(k, v)));
    return wg_fold(&f, v);
}

static kval reduce_row(struct rows *r, const struct reduction *red, kval kept)
{
    enum kir_op op = red->r.combine;
    struct pass p = {.red = red, .kept = kept};
    p.acc = open_accumulators(r, op, graph_value(r->x.g, red->in)->dtype);
    visit_row(r, accumulate, &p);
    return fold_row(r, op, p.acc);
}

/* Everything at once. */

struct kept {
    struct rows *r;
    kval array;
};

static kval kept_value(struct emit *m, const void *user, const kval *idx)
{
    const struct kept *x = user;
    return kir_load(m->k, x->array, x->r->slot);
}

static void store_element(struct rows *r, const void *user, i64 u)
{
    value_id v = *(const value_id *)user;
    struct emit *m = emit_of(r);
    kval idx[MAX_RANK];
    full_index(r, idx);
    emit_store(m, v, idx, emit_value(m, v, idx));
}

/* By the first thread of the row. */
static void store_reduced(struct rows *r, value_id v)
{
    struct emit *m = emit_of(r);
    kval idx[MAX_RANK];
    if (r->s.threads > 1) kir_if(m->k, kir_lt(m->k, r->place, kir_int(m->k, 1)));
    less_index(r, idx);
    emit_store(m, v, idx, emit_value(m, v, idx));
    if (r->s.threads > 1) kir_end(m->k);
}

static void store_outputs(struct rows *r)
{
    struct emit *m = emit_of(r);
    bool some = open_if_row(r);
    const struct shape *less = &graph_value(m->g, r->first->out)->shape;
    for (u32 i = 0; i < m->g->output.n; i++) {
        value_id v = m->g->output.v[i];
        if (shape_equal(&graph_value(m->g, v)->shape, less)) store_reduced(r, v);
        else visit_row(r, store_element, &v);
    }
    if (some) kir_end(m->k);
}

static void do_rows(struct rows *r)
{
    struct emit *m = emit_of(r);
    struct kir *k = m->k;
    struct kept kept[MAX_REDUCE];
    find_space(r, &r->x.red[0]);
    open_rows(r, 1);
    for (u32 i = 0; i < r->x.n; i++) {
        const struct reduction *red = &r->x.red[i];
        enum dtype t = emit_type(graph_value(m->g, red->in)->dtype);
        bool keeps = r->s.keep && !m->bind[red->in].fn;
        kept[i] = (struct kept){r, 0};
        if (keeps) kept[i].array = kir_alloc(k, KS_REG, t, r->lanes, kir_int(k, kept_slots(r)));
        r->result[i] = reduce_row(r, red, kept[i].array);
        emit_bind(m, red->out, gen_given, &r->result[i]);
        if (keeps) emit_bind(m, red->in, kept_value, &kept[i]);
    }
    store_outputs(r);
    kir_end(k);
    kir_end(k);
}

/* One reduction after the other. */

static kval temp_index(struct rows *r, const struct reduction *red)
{
    kval idx[MAX_RANK];
    less_index(r, idx);
    return row_dense_index(emit_of(r), red->out, idx);
}

/* Where a row's result, or that of a chunk, goes: by its first thread. */
static void store_temp(struct rows *r, kval temp, kval at, kval v)
{
    struct kir *k = emit_of(r)->k;
    bool some = open_if_row(r);
    if (r->s.threads > 1) kir_if(k, kir_lt(k, r->place, kir_int(k, 1)));
    kir_store(k, temp, at, kir_splat(k, v, kir_lanes(k, at)));
    if (r->s.threads > 1) kir_end(k);
    if (some) kir_end(k);
}

/* What the chunks of a row have left. */
static kval fold_chunks(struct rows *r, const struct reduction *red, kval partial, kval count)
{
    struct kir *k = emit_of(r)->k;
    enum kir_op op = red->r.combine;
    kval acc = open_accumulators(r, op, graph_value(r->x.g, red->in)->dtype);
    kval at = temp_index(r, red), first = kir_int(k, 0);
    kval c = kir_loop(k, KL_SERIAL, r->place, kir_int(k, r->s.split), r->s.threads);
    kval v = kir_load(k, partial, kir_add(k, kir_mul(k, c, count), at));
    kir_store(k, acc, first, kir_bin(k, op, kir_load(k, acc, first), v));
    kir_end(k);
    return fold_row(r, op, acc);
}

static void do_reduction(struct rows *r, u32 number, kval partial)
{
    struct emit *m = emit_of(r);
    struct kir *k = m->k;
    const struct reduction *red = &r->x.red[number];
    kval count = emit_size(m, shape_count(m->g->sym, &graph_value(m->g, red->out)->shape));
    open_rows(r, r->s.split);
    kval v = reduce_row(r, red, 0), at = temp_index(r, red);
    if (r->s.split > 1) at = kir_add(k, kir_mul(k, r->chunk, count), at);
    store_temp(r, partial ? partial : r->temp[number], at, v);
    kir_end(k);
    kir_end(k);
    if (!partial) return;
    open_rows(r, 1);
    r->lanes = r->sp.across ? r->lanes : 1;
    v = fold_chunks(r, red, partial, count);
    store_temp(r, r->temp[number], temp_index(r, red), v);
    kir_end(k);
    kir_end(k);
}

struct temp_of {
    const struct rows *r;
    u32 number;
};

static kval temp_value(struct emit *m, const void *user, const kval *idx)
{
    const struct temp_of *x = user;
    value_id v = x->r->x.red[x->number].out;
    return emit_load(m, x->r->temp[x->number], row_dense_index(m, v, idx));
}

static void do_apart(struct rows *r, const struct task *t, const struct caps *c)
{
    struct emit *m = emit_of(r);
    struct symtab *st = m->g->sym;
    struct temp_of temp[MAX_REDUCE];
    kval partial[MAX_REDUCE] = {0};
    for (u32 i = 0; i < r->x.n; i++) {
        const struct value *o = graph_value(m->g, r->x.red[i].out);
        sym n = shape_count(st, &o->shape), all = sym_mul(st, n, sym_const(st, r->s.split));
        r->temp[i] = kir_alloc(m->k, KS_TEMP, emit_type(o->dtype), 1, emit_size(m, n));
        if (r->s.split > 1)
            partial[i] = kir_alloc(m->k, KS_TEMP, emit_type(o->dtype), 1, emit_size(m, all));
    }
    for (u32 i = 0; i < r->x.n; i++) {
        find_space(r, &r->x.red[i]);
        do_reduction(r, i, partial[i]);
        temp[i] = (struct temp_of){r, i};
        emit_bind(m, r->x.red[i].out, temp_value, &temp[i]);
    }
    gen_elementwise_rest(m, t, c, r->x.red[r->x.n - 1].out, temp_value, &temp[r->x.n - 1]);
}

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v)
{
    struct rows *r = arena_new(m->arena, struct rows);
    *r = (struct rows){.s = params_of(v)};
    row_of(&r->x, t);
    r->x.ordered = c->deterministic;
    i64 n = r->s.threads * r->s.rows;
    wg_init(&r->g, m, n, r->s.sub ? wg_subgroup(c, n) : 0);
    emit_args(m);
    if (r->s.split > 1) r->x.fused = false; /* results are addressed: axes must not be merged */
    if (r->x.fused) do_rows(r);
    else do_apart(r, t, c);
}

/* Choice. */

static bool has_f64(const struct graph *g)
{
    for (value_id v = 1; v < g->value.n; v++)
        if (graph_value(g, v)->dtype == DT_F64) return true;
    return false;
}

/* Rules of numbers alone: cheap. */
static bool fits(const struct caps *c, const struct params *s)
{
    i64 n = s->threads * s->rows;
    if (n < wg_least(c) || (s->sub && (s->threads == 1 || !wg_subgroup(c, n)))) return false;
    return wg_is_legal(c, n, 0) && !(s->keep && (s->split > 1 || s->unroll > 1));
}

/* Walks over a row: reductions, and outputs of the shape before reducing. */
static u32 pass_count(const struct rows *r)
{
    const struct graph *g = r->x.g;
    u32 n = r->x.n;
    for (u32 i = 0; i < g->output.n; i++)
        n += !shape_equal(&graph_value(g, g->output.v[i])->shape,
                          &graph_value(g, r->x.red[0].out)->shape);
    return n;
}

/* A partial sum (gen/row.h) is one thread's; where every reduction has fewer elements than partial sums each thread has one element. */
static bool is_ordered(const struct rows *r, const struct params *s)
{
    i64 n = r->x.fused || r->x.n == 1 ? gen_static(r->x.g, r->length, ROW_PARTS + 1) : ROW_PARTS + 1; /* else they differ in length */
    bool one_each = s->threads == ROW_PARTS || (n <= ROW_PARTS && s->threads >= n && s->threads <= ROW_PARTS);
    return one_each && s->lanes == 1 && s->unroll == 1 && s->split == 1 && !s->sub;
}

static bool is_legal(const struct rows *r, const struct caps *c, const struct params *s)
{
    double length = row_length(&r->x, NULL);
    const struct space *sp = &r->sp.sp;
    u32 along = r->sp.across ? sp->n - 1 : r->sp.inner;
    if (s->lanes > 1 && (along >= sp->n || !row_is_float_only(r->x.g) ||
                         !sym_divides(r->x.g->sym, s->lanes, sp->g[along].extent)))
        return false;
    if (s->sub && r->sp.across) return false;
    i64 shared = (i64)r->x.n * 8 * s->threads * s->rows * (r->sp.across ? s->lanes : 1);
    if (s->threads > 1 && shared > c->shared_bytes) return false;
    if (c->deterministic && !is_ordered(r, s)) return false;
    if (s->threads * s->rows > wg_least(c) && !c->deterministic) { /* not for nothing */
        double n = gen_count(r->x.g, r->x.red[0].out, NULL) / (double)(r->sp.across ? s->lanes : 1);
        if (s->threads > 1 && (double)(s->threads * s->lanes) >= 2 * length) return false;
        if (s->rows > 1 && (double)s->rows >= 2 * n) return false;
    }
    if (s->split > 1 && (double)(s->split * s->threads * 4) > length) return false;
    if (!s->keep) return true;
    if (pass_count(r) < 2) return false;
    i64 n = gen_static(r->x.g, r->length, -1), step = r->sp.across ? 1 : s->lanes;
    return r->x.fused && n > 0 &&
           ceil_div(n, step * s->threads) * s->lanes * (i64)r->x.n <= MAX_KEPT;
}

static bool analyze(const struct gen_problem *p)
{
    struct rows *r = p->facts;
    if (!p->c->is_gpu || (!p->c->has_f64 && has_f64(&p->t->g)) || !row_of(&r->x, p->t)) return false;
    r->x.ordered = p->c->deterministic;
    r->s = (struct params){.lanes = 1};
    find_space(r, &r->x.red[0]);
    return true;
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct params s = params_of(v);
    return fits(p->c, &s) && is_legal(p->facts, p->c, &s);
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct rows *r = p->facts;
    const struct params s = params_of(v);
    const struct graph *g = r->x.g;
    bool at_once = r->x.fused && s.split == 1;
    double full = gen_count(g, r->x.red[0].in, p->var), length = row_length(&r->x, p->var), passes = pass_count(r);
    double size = (double)dtype_size(graph_value(g, r->x.red[0].in)->dtype);
    double threads = (double)(s.threads * s.rows), lanes = (double)(r->sp.across ? s.lanes : 1);
    /* Neighbours in memory that threads read at the same time. */
    double run = (double)(r->sp.across ? s.rows : s.threads) * (double)s.lanes * size, all = full * size;
    struct wg_facts f = {.workgroups = fmax(1, full / fmax(1, length) / (double)s.rows / lanes) * (double)s.split, .threads = s.threads * s.rows};
    double elements = full / f.workgroups, at_a_time = s.keep ? KEPT_LOADS : (double)s.unroll;
    f.steps = fmax(1, passes * elements / threads / (double)s.lanes / at_a_time);
    f.step.instructions = passes * elements / f.steps * (double)g->node.n * (s.lanes > 1 ? 0.5 : 0.65);
    f.step.moved = (s.keep ? 1 : passes) * elements / f.steps * size;
    f.ilp = at_a_time * (double)s.lanes;
    f.rest.barriers = r->x.n * (s.sub ? 2 : 2 + 2 * (double)(63 - __builtin_clzll((u64)s.threads)));
    f.bytes = all * (wg_sectors(run, LINE) + passes - r->x.n + (at_once || s.keep ? 0 : passes - 1));
    f.requested = f.bytes + (at_once && !s.keep ? all * (passes - 1) : 0), f.misses = 0.3;
    f.n_later = at_once ? 0 : (u32)passes * (s.split > 1 ? 2 : 1);
    return wg_seconds(p, &f);
}

const struct gen gen_wg_reduce = {
    GEN_FAMILY("wg_reduce", 5), .sums = SUMS_OF_ROWS, .facts = sizeof(struct rows),
    .analyze = analyze, .legal = legal, .emit = emit, .predict = predict,
};
