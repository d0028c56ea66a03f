// SPDX-License-Identifier: Apache-2.0
//
// reduce_row: tasks with reductions (softmax, normalisation, global pooling, ReduceX). When all of them
// run over the same axes a grid iteration takes some rows and does everything for a row at once:
// the reductions in order, each with several accumulators, their results bound, then the outputs.
// What a reduction had to compute per element may be kept in scratch for the passes that follow, of the
// last one in the output: then lines of the output come into the cache while the reduction computes.
// Vectors run along the row; where the innermost axis in memory is not reduced, across it, one row
// per lane.
//
// Reductions that do not fit together go one by one, each through a grid that leaves its result in
// a temporary array.
//
// Groups of axes (gen/space.c) are either reduced or kept; a row is one index of all kept groups.
#include "gen/nest.h"
#include "gen/row_emit.h"

// clang-format off
#define PARAMS(P)                                                                    \
    P(lanes, "lanes of a vector", 1, 4, 8, 16, 32, 64)                               \
    P(unroll, "accumulators of a reduction", 1, 2, 4, 8)                             \
    P(rows, "rows, or vectors of rows, per grid iteration", 1, 2, 4, 8, 16, 64, 256) \
    P(keep, "what a reduction computed is kept for the next pass: 1 in scratch memory, 2 of the last one in the output", 0, 1, 2)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)

enum { KEEP_OUTPUT = 2 };

/* Emission. */

static void find_space(struct rows *r)
{
    row_space_of(&r->s, &r->x, r->first);
    bool one = r->s.inner == r->s.sp.n || gen_static(r->x.g, r->s.sp.g[r->s.inner].extent, 0) == 1;
    if (!r->s.across && one) r->lanes = 1; /* a row is one element: there is no axis to be a vector */
    if (r->ordered) rows_find_parts(r);
}

static void store_output(struct rows *r, const void *user, i64 u, kval limit)
{
    value_id v = *(const value_id *)user;
    kval idx[MAX_RANK];
    rows_index(r, idx);
    emit_store_n(r->m, v, idx, emit_value(r->m, v, idx), limit);
}

static void finish_row(struct rows *r)
{
    struct emit *m = r->m;
    for (u32 i = 0; i < m->g->output.n; i++) {
        value_id v = m->g->output.v[i];
        kval idx[MAX_RANK];
        const struct shape *of = &graph_value(m->g, v)->shape;
        /* Where all axes reduced over are of size 1 it may read what the reductions read, kept or not. */
        bool is_full = shape_equal(of, &graph_value(m->g, r->first->in)->shape);
        if (is_full || !shape_equal(of, &graph_value(m->g, r->first->out)->shape)) {
            rows_visit(r, store_output, &v);
            continue;
        }
        rows_less_index(r, idx);
        emit_limit(m, r->s.across ? r->limit : 0);
        emit_store_n(m, v, idx, emit_value(m, v, idx), r->s.across ? r->limit : 0);
        emit_limit(m, 0);
    }
}

static void do_row(struct rows *r)
{
    rows_reduce_all(r);
    finish_row(r);
    rows_forget(r);
}

static void do_row_apart(struct rows *r, u32 number)
{
    struct emit *m = r->m;
    struct kir *k = m->k;
    const struct reduction *red = &r->x.red[number];
    kval idx[MAX_RANK], v = rows_reduce(r, red);
    rows_less_index(r, idx);
    kval at = row_dense_index(m, red->out, idx);
    v = kir_splat(k, v, kir_lanes(k, at));
    if (r->s.across && r->limit && kir_at(k, at)->op == KI_RAMP) {
        kir_store_n(k, r->temp[number], at, v, r->limit);
        return;
    }
    u32 lanes = kir_lanes(k, at);
    for (u32 l = 0; l < lanes; l++) { /* an address that is no ramp: lane by lane */
        if (r->s.across && r->limit) kir_if(k, kir_lt(k, kir_int(k, l), r->limit));
        kir_store(k, r->temp[number], kir_lane(k, at, l), kir_lane(k, v, l));
        if (r->s.across && r->limit) kir_end(k);
    }
}

struct temp_of {
    const struct rows *r;
    u32 number;
};

static kval temp_value(struct emit *m, const void *user, const kval *idx)
{
    const struct temp_of *x = user;
    return emit_load(m, x->r->temp[x->number], row_dense_index(m, x->r->x.red[x->number].out, idx));
}

/* The grid over rows. number: the reduction, or -1: everything at once. */
static void row_grid(struct rows *r, i64 rows_per, i64 number)
{
    struct emit *m = r->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    u32 group[MAX_RANK], n = 0;
    sym one = sym_const(st, 1), rows = one, vectors = one;
    for (u32 g = 0; g < r->s.sp.n; g++) {
        if (r->s.reduced[g] || (r->s.across && g == r->s.sp.n - 1)) continue;
        group[n++] = g;
        rows = sym_mul(st, rows, r->s.sp.g[g].extent);
    }
    sym width = r->s.across ? r->s.sp.g[r->s.sp.n - 1].extent : one;
    if (r->s.across) vectors = sym_cdiv(st, width, sym_const(st, r->lanes));
    sym all = sym_mul(st, rows, vectors);
    kval grid = kir_grid(k, emit_size(m, sym_cdiv(st, all, sym_const(st, rows_per))));
    kval from = kir_mul_i(k, grid, rows_per),
         to = kir_min(k, kir_add_i(k, from, rows_per), emit_size(m, all));
    for (u32 i = 0; number < 0 && i < r->x.n; i++) {
        sym size = one;
        for (u32 g = 0; g < r->s.sp.n; g++)
            if (r->s.reduced[g]) size = sym_mul(st, size, r->s.sp.g[g].extent);
        if (r->s.across) size = sym_mul(st, size, sym_const(st, r->lanes));
        enum dtype t = emit_type(graph_value(m->g, r->x.red[i].in)->dtype);
        bool in_scratch = r->keep && row_is_worth_keeping(&r->x, i) && !(r->room && i + 1 == r->x.n);
        r->kept[i] = in_scratch ? kir_alloc(k, KS_WORK, t, 1, emit_size(m, size))
                         : 0;
    }
    kval row = kir_loop(k, KL_SERIAL, from, to, 1);
    r->limit = 0;
    if (r->s.across) {
        kval nv = emit_size(m, vectors), c = kir_mul_i(k, kir_mod(k, row, nv), r->lanes);
        row = kir_div(k, row, nv);
        r->at[r->s.sp.n - 1] = kir_ramp(k, c, 1, r->lanes);
        bool exact = sym_divides(st, r->lanes, width);
        r->limit = exact || r->lanes == 1 ? 0 : kir_sub(k, emit_size(m, width), c);
    }
    space_split(m, &r->s.sp, group, n, row, r->at);
    if (number < 0) do_row(r);
    else do_row_apart(r, (u32)number);
    kir_end(k);
    kir_end(k);
}

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *s)
{
    struct rows *r = arena_new(m->arena, struct rows);
    struct temp_of temp[MAX_REDUCE];
    const struct params v = params_of(s);
    *r = (struct rows){.m = m,
                       .lanes = (u32)v.lanes,
                       .unroll = v.unroll,
                       .keep = v.keep != 0,
                       .ordered = c->deterministic};
    row_of(&r->x, t);
    if (!row_may_be_vector(&r->x)) r->lanes = 1;
    r->x.ordered = r->ordered;
    emit_args(m);
    r->first = &r->x.red[0];
    if (r->x.fused) {
        find_space(r);
        r->room = v.keep == KEEP_OUTPUT ? row_waiting_room(&r->x) : 0;
        row_grid(r, v.rows, -1);
        return;
    }
    for (u32 i = 0; i < r->x.n; i++) {
        const struct value *o = graph_value(&t->g, r->x.red[i].out);
        r->temp[i] = kir_alloc(m->k, KS_TEMP, emit_type(o->dtype), 1,
                               emit_size(m, shape_count(t->g.sym, &o->shape)));
    }
    for (u32 i = 0; i < r->x.n; i++) {
        r->first = &r->x.red[i];
        find_space(r);
        row_grid(r, v.rows, i);
        temp[i] = (struct temp_of){r, i};
        emit_bind(m, r->x.red[i].out, temp_value, &temp[i]);
    }
    gen_elementwise_rest(m, t, c, r->x.red[r->x.n - 1].out, temp_value, &temp[r->x.n - 1]);
}

/* Choice. */

static bool analyze(const struct gen_problem *p) { return !p->c->is_gpu && row_of(p->facts, p->t); }

static bool legal(const struct gen_problem *p, const struct sched *s)
{
    const struct row_task *x = p->facts;
    const struct caps *c = p->c;
    const struct params v = params_of(s);
    u32 widest = gen_lanes(c, DT_F32);
    if (c->deterministic && (v.unroll > 1 || v.lanes > ROW_PARTS)) return false;
    if (v.lanes != 1 && ((u32)v.lanes > widest || !row_may_be_vector(x))) return false;
    if (v.keep && (!x->fused || row_length(x, NULL) * 64 > 4 * (double)c->l2_bytes + 65536))
        return false;
    return v.keep != KEEP_OUTPUT || row_waiting_room(x);
}

static void initial(const struct gen_problem *p, struct sched *s)
{
    const struct row_task *x = p->facts;
    const struct caps *c = p->c;
    double len = row_length(x, NULL);
    u32 lanes = gen_lanes(c, graph_value(x->g, x->red[0].in)->dtype);
    s->v[P_lanes] = row_may_be_vector(x) ? gen_nearest(&param[P_lanes], lanes) : 1;
    s->v[P_unroll] = len >= 256 && !c->deterministic ? 4 : 1;
    s->v[P_rows] = gen_nearest(&param[P_rows], (i64)(4096 / (len + 1)));
    s->v[P_keep] = row_waiting_room(x) ? KEEP_OUTPUT : 1;
    if (!row_computes(x) || !legal(p, s)) s->v[P_keep] = 0;
}

static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct row_task *x = p->facts;
    const struct caps *c = p->c;
    const i64 *var = p->var;
    double full = gen_count(x->g, x->red[0].in, var), rows = gen_count(x->g, x->red[0].out, var),
           passes = x->n + p->t->g.output.n;
    double ops = 2 + (double)p->t->g.node.n * (s->v[P_keep] || !row_computes(x) ? 0.6 : 1);
    double work = full * passes * ops / s->v[P_lanes] * (s->v[P_unroll] > 1 ? 1 : 1.6) * p->nest->cycle;
    double threads = rows / s->v[P_rows] > 1 ? i64_max(1, c->n_threads) : 1;
    return 1e-6 + (work + 4 * full * (x->fused ? 2 : 4) * p->nest->line[RATE_DRAM]) / threads;
}

const struct gen gen_reduce_row = {
    GEN_FAMILY("reduce_row", 5), .sums = SUMS_OF_ROWS, .facts = sizeof(struct row_task),
    .analyze = analyze, .initial = initial, .legal = legal, .emit = emit, .predict = predict,
};
