// SPDX-License-Identifier: Apache-2.0
//
// wg_gemv: matrix products with few rows or few columns, by workgroups. Each element of
// the long operand is needed once or a few times, so it goes from memory straight to registers,
// read along the axis in which it is dense: along the terms, with neighbouring threads on
// neighbouring terms of a line, or along its lines (the rows or columns of the result), with
// neighbouring threads on neighbouring lines. `tk` threads share the terms of a line and add up at
// the end (gen/wg.c); the short operand is read through the caches.
//
// Lines behind the last are copies of the last ones that store nothing.
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n); short: m or n, at most MAX_SHORT.
#include "gen/contract.h"

#include <math.h>

// clang-format off
#define PARAMS(P)                                                                  \
    P(tk, "threads that share the terms of a line", 1, 4, 8, 16, 32, 64, 128, 256) \
    P(tl, "threads of a workgroup along lines", 1, 2, 4, 8, 16, 32, 64, 128, 256)      \
    P(lines, "lines, or vectors of lines, of a thread", 1, 2, 4)                   \
    P(lanes, "elements of a vector", 1, 2, 4, 8)                                   \
    P(unroll, "vectors of a line on their way at the same time", 1, 2, 4)          \
    P(sub, "1: threads of a subgroup add up among themselves", 0, 1)
// clang-format on
GEN_PARAMS(PARAMS)

enum { MAX_SHORT = 16, MAX_REGS = 160, LINE = 128 /* bytes */ };

GEN_PARAM_READER(struct params, params_of, PARAMS)

struct lines { /* the product seen from its long operand */
    struct gemm x;
    bool long_b; /* lines are columns of y, else rows */
    i64 n_short; /* rows or columns of the short operand */
    sym n_lines;
    bool along_k; /* the long operand is dense along the terms, else across lines */
};

static bool lines_of(struct lines *l, const struct task *t)
{
    *l = (struct lines){0};
    if (!gemm_of(&l->x, t)) return false;
    i64 m = gen_static(&t->g, l->x.m, INT64_MAX), n = gen_static(&t->g, l->x.n, INT64_MAX);
    l->long_b = m <= n;
    l->n_short = i64_min(m, n);
    l->n_lines = l->long_b ? l->x.n : l->x.m;
    l->along_k = gemm_is_dense_along_last(t, l->long_b ? l->x.b : l->x.a, 4) != l->long_b;
    return l->n_short >= 1 && l->n_short <= MAX_SHORT;
}

struct worker {
    struct contraction p; /* of the whole result, without K blocks */
    struct lines l;
    struct params s;
    u32 k_lanes, l_lanes; /* of vectors along terms, along lines; one of them is 1 */
    kval place, own;      /* of the thread among those of its line, and along lines */
    kval line[4];         /* first line of the thread's vectors, not clamped */
    kval acc;             /* [lines][short] */
};

static i64 block_of(const struct worker *w) { return w->s.tl * w->s.lines * w->l_lanes; }

static kval acc_at(const struct worker *w, i64 i, i64 j)
{
    return kir_int(w->p.m->k, i * w->l.n_short + j);
}

/* Elements of an operand as sums are, at a line, or number in the short one, and term. */
static kval read_operand(const struct worker *w, bool is_b, kval across, kval term)
{
    return kir_cast(w->p.m->k, w->p.type, w->p.address->element(&w->p, is_b, across, term));
}

static kval last_line(struct worker *w, kval line)
{
    struct kir *k = w->p.m->k;
    if (sym_divides(w->p.m->g->sym, block_of(w), w->l.n_lines)) return line;
    return kir_min(k, line, kir_add_i(k, emit_size(w->p.m, w->l.n_lines), -(i64)w->l_lanes));
}

/* Adds the products of a vector of terms, or of one term. */
static void step(struct worker *w, kval term)
{
    struct kir *k = w->p.m->k;
    u32 lanes = w->k_lanes * w->l_lanes;
    kval to = kir_ramp(k, term, 1, w->k_lanes), few[MAX_SHORT];
    for (i64 j = 0; j < w->l.n_short; j++)
        few[j] = kir_splat(k, read_operand(w, !w->l.long_b, kir_int(k, j), to), lanes);
    for (i64 i = 0; i < w->s.lines; i++) {
        kval line = kir_ramp(k, last_line(w, w->line[i]), 1, w->l_lanes);
        kval x = kir_splat(k, read_operand(w, w->l.long_b, line, to), lanes);
        for (i64 j = 0; j < w->l.n_short; j++)
            kir_store(k, w->acc, acc_at(w, i, j),
                      kir_fma(k, x, few[j], kir_load(k, w->acc, acc_at(w, i, j))));
    }
}

static void all_terms(struct worker *w)
{
    struct kir *k = w->p.m->k;
    i64 stride = w->s.tk * w->k_lanes, many = stride * w->s.unroll;
    kval from = kir_mul_i(k, w->place, w->k_lanes), n = emit_size(w->p.m, w->l.x.k);
    if (w->s.unroll > 1) {
        kval left = kir_max(k, kir_sub(k, n, from), kir_int(k, 0));
        kval end = kir_add(k, from, kir_mul_i(k, kir_div_i(k, left, many), many));
        kval t = kir_loop(k, KL_SERIAL, from, end, many);
        for (i64 u = 0; u < w->s.unroll; u++) step(w, kir_add_i(k, t, u * stride));
        kir_end(k);
        from = end;
    }
    step(w, kir_loop(k, KL_SERIAL, from, n, stride));
    kir_end(k);
}

static void fold_all(struct worker *w)
{
    struct kir *k = w->p.m->k;
    struct wg_fold f = {&w->p.g, KI_ADD, w->s.tk, w->l.along_k ? 1 : w->s.tl, 0};
    if (w->s.tk > 1)
        f.shared = kir_alloc(k, KS_SHARED, w->p.type, 1, kir_int(k, w->p.g.n * (i64)w->l_lanes));
    for (i64 i = 0; i < w->s.lines * w->l.n_short; i++) {
        kval v = kir_load(k, w->acc, kir_int(k, i));
        if (w->l.along_k) v = kir_un(k, KI_HADD, v);
        v = wg_fold(&f, v);
        kir_store(k, w->acc, kir_int(k, i), kir_splat(k, v, w->k_lanes * w->l_lanes));
    }
}

/* Storing. */

/* The threads of a line know its results, the first one stores them. */
static void store_lines(struct worker *w)
{
    const struct contraction *p = &w->p;
    struct kir *k = p->m->k;
    bool exact = sym_divides(p->m->g->sym, block_of(w), w->l.n_lines);
    if (w->s.tk > 1) kir_if(k, kir_lt(k, w->place, kir_int(k, 1)));
    for (i64 i = 0; i < w->s.lines; i++) {
        if (!exact) kir_if(k, kir_lt(k, w->line[i], emit_size(p->m, w->l.n_lines)));
        kval line = kir_ramp(k, w->line[i], 1, w->l_lanes), idx[MAX_RANK];
        for (i64 j = 0; j < w->l.n_short; j++) {
            kval v = kir_load(k, w->acc, acc_at(w, i, j)), few = kir_int(k, j);
            if (w->l.along_k) v = kir_lane(k, v, 0);
            p->address->index(p, w->l.long_b ? few : line, w->l.long_b ? line : few, idx);
            result_store(p->m, &p->y, idx, v, 0);
        }
        if (!exact) kir_end(k);
    }
    if (w->s.tk > 1) kir_end(k);
}

/* The grid. */

static void open_grid(struct worker *w)
{
    struct emit *m = w->p.m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    kval batch = kir_grid(k, emit_size(m, contract_batch_count(&w->p))), zero = kir_int(k, 0);
    kval block = kir_grid(k, emit_size(m, sym_cdiv(st, w->l.n_lines, sym_const(st, block_of(w)))));
    wg_enter(&w->p.g);
    contract_place_at(&w->p, batch, w->l.long_b ? zero : block, w->l.long_b ? block : zero);
    kval t = w->p.g.t;
    w->place = w->l.along_k ? kir_mod_i(k, t, w->s.tk) : kir_div_i(k, t, w->s.tl);
    w->own = w->l.along_k ? kir_div_i(k, t, w->s.tk) : kir_mod_i(k, t, w->s.tl);
    for (i64 i = 0; i < w->s.lines; i++) {
        kval n = kir_add_i(k, kir_mul_i(k, block, w->s.lines), i);
        w->line[i] = kir_mul_i(k, kir_add(k, kir_mul_i(k, n, w->s.tl), w->own), w->l_lanes);
    }
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *v)
{
    struct worker w = {.s = params_of(v), .p = {.m = m}};
    struct contraction *p = &w.p;
    lines_of(&w.l, t);
    i64 threads = w.s.tk * w.s.tl;
    p->x = w.l.x, p->type = emit_type(graph_value(m->g, p->x.a)->dtype);
    p->a.p = p->b.p = p;
    contract_matrices_in_place(p);
    w.k_lanes = w.l.along_k ? (u32)w.s.lanes : 1;
    w.l_lanes = w.l.along_k ? 1 : (u32)w.s.lanes;
    wg_init(&p->g, m, threads, w.s.sub ? wg_subgroup(caps, threads) : 0);
    emit_args(m);
    p->y = (struct result){.v = p->x.y, .inner = p->x.n_axis};
    if (!p->x.simple) result_open(m, &p->y, p->type);
    open_grid(&w);
    struct kir *k = w.p.m->k;
    u32 lanes = w.k_lanes * w.l_lanes;
    i64 n = w.s.lines * w.l.n_short;
    w.acc = kir_alloc(k, KS_REG, w.p.type, lanes, kir_int(k, n));
    for (i64 i = 0; i < n; i++) kir_store(k, w.acc, kir_int(k, i), kir_const_f(k, w.p.type, lanes, 0));
    all_terms(&w);
    fold_all(&w);
    store_lines(&w);
    kir_end(m->k);
    kir_end(m->k);
    if (!p->x.simple) gen_elementwise_rest(m, t, caps, p->x.y, contract_whole_sum, p);
}

/* Choice. */

static bool analyze(const struct gen_problem *p)
{
    struct lines *l = p->facts;
    return p->c->is_gpu && lines_of(l, p->t) && (p->c->has_f64 || graph_value(&p->t->g, l->x.a)->dtype != DT_F64);
}

static bool fits(const struct caps *c, const struct params *s)
{
    i64 n = s->tk * s->tl;
    return n >= wg_least(c) && wg_is_legal(c, n, 8 * n * s->lanes * (s->tk > 1)) &&
           !(s->sub && (s->tk == 1 || !wg_subgroup(c, n)));
}

static bool is_legal(const struct lines *l, const struct caps *c, const struct params *s)
{
    const struct gemm *x = &l->x;
    sym dense = l->along_k ? x->k : l->n_lines;
    i64 lines = gen_eval(x->g, l->n_lines, NULL), k = gen_eval(x->g, x->k, NULL);
    if (!sym_divides(x->g->sym, s->lanes, dense) || (s->sub && !l->along_k)) return false;
    if (s->lines * s->lanes * (l->n_short + 1) + l->n_short * s->lanes > MAX_REGS) return false;
    if (s->tk * s->tl > wg_least(c)) { /* not for nothing */
        i64 wide = s->tl * (l->along_k ? 1 : s->lanes), deep = s->tk * (l->along_k ? s->lanes : 1);
        if ((s->tl > 1 && wide >= 2 * lines) || (s->tk > 1 && deep >= 2 * k)) return false;
    }
    return (s->lines == 1 || s->tl * s->lines < lines) && (s->unroll == 1 || s->tk < k);
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct params s = params_of(v);
    return fits(p->c, &s) && is_legal(p->facts, p->c, &s);
}

/* Bound by the stream of the long operand, and by how long a thread waits for its part of it. */
static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct lines *l = p->facts;
    const struct params s = params_of(v);
    const struct gemm *x = &l->x;
    double lines = (double)gen_eval(x->g, l->n_lines, p->var), k = (double)gen_eval(x->g, x->k, p->var), batch = 1, n_short = (double)l->n_short;
    double size = (double)dtype_size(graph_value(x->g, x->a)->dtype), lanes = (double)s.lanes, threads = (double)(s.tk * s.tl);
    for (u32 i = 0; i < x->outer.n; i++) batch *= (double)gen_eval(x->g, x->outer.g[i].extent, p->var);
    /* Neighbours in memory that threads read at the same time. */
    double run = (double)(l->along_k ? s.tk : s.tl) * lanes * size;
    i64 wide = s.tl * s.lines * (l->along_k ? 1 : s.lanes);
    struct wg_facts f = {.workgroups = batch * (double)ceil_div((i64)lines, wide), .threads = s.tk * s.tl};
    f.steps = fmax(1, k / (double)(s.tk * s.unroll * (l->along_k ? s.lanes : 1)));
    double vectors = threads * (double)(s.unroll * s.lines); /* of a step */
    f.step = (struct wg_work){.fmas = vectors * lanes * n_short, .instructions = vectors * (1 + n_short), .moved = vectors * lanes * size};
    f.step.moved += threads * (double)s.unroll * n_short * (l->along_k ? lanes : 1) * size;
    f.ilp = (double)(s.unroll * s.lines) * lanes, f.regs = (double)(s.lines * s.lanes) * (n_short + 1) + n_short * lanes + WG_ADDRESSES;
    f.rest.barriers = s.tk > 1 && !s.sub ? n_short * (double)s.lines * (3 + log2((double)s.tk)) : 0; /* a tree for every sum */
    f.bytes = batch * size * (lines * k * wg_sectors(run, LINE) + (lines + k) * n_short);
    f.n_later = !x->simple;
    return wg_seconds(p, &f);
}

const struct gen gen_wg_gemv = {
    GEN_FAMILY("wg_gemv", 2), .sums = SUMS_IN_PARTS, .facts = sizeof(struct lines),
    .analyze = analyze, .legal = legal, .emit = emit, .predict = predict,
};
