// SPDX-License-Identifier: Apache-2.0
//
// mma_attention: two matmuls with a softmax between them, or parts of that as wg_attention has them, by workgroups, in one kernel, all products by matrix
// units (gen/wg_attention_emit.c, gen/wg_attention_units.c): which schedules there are, and which of them is good. Queries, keys and values have one type, which the units multiply with
// sums of f32; maxima, exponentials and sums of rows are f32, and probabilities are rounded to the operands' type, as they are in the graph.
#include "gen/mma_attention.h"

#include <math.h>

GEN_PARAMS(MMA_ATTENTION_PARAMS)

enum {
    MAX_CODE = 512,     /* fragments' products written out */
    USUAL_CODE = 256,
    MAX_COPIED = 128,   /* elements of a K block that a thread copies */
    MAX_TILE = 128,     /* of a thread */
    MAX_FRAGMENTS = 64, /* of a subgroup */
    USUAL_THREADS = 256
};

static bool analyze(const struct gen_problem *p)
{
    const struct wg_attention_facts *f = p->facts;
    return p->c->has_subgroup && p->c->subgroup >= 2 && wg_attention_analyze_parts(p, p->facts) && f->operand != DT_NONE && gen_static(f->x.scores.g, f->x.scores.k, 1) > 0;
}

static struct mma_attention_sched view_of(const struct gen_problem *p, const struct sched *v)
{
    const struct wg_attention_facts *f = p->facts;
    return mma_attention_sched_of(v, f->operand, f->e, p->c->subgroup);
}

/* What can be emitted. */

struct registers { i64 sums, between, copied; }; /* of a thread: of the output; in either product or in rows of scores; on their way to shared memory meanwhile */

static i64 operands_of(const struct mma_attention_sched *s, i64 size, i64 columns)
{
    return (s->wm * s->m + (s->rp ? columns : 1) * s->n) * s->k * size / 4 / s->w.w * (1 + s->rp);
}

static struct registers registers_of(const struct wg_attention_facts *f, const struct mma_attention_sched *s)
{
    const struct wg_attention_sched *w = &s->w;
    i64 fragment = s->m * s->n / w->w, columns = w->units[1].t.wn, scores = s->wm * s->wn * fragment;
    i64 products = i64_max(scores + operands_of(s, f->size, s->wn), operands_of(s, f->size, columns));
    return (struct registers){.sums = s->wm * columns * fragment + 2 * w->ptr,
                              .between = i64_max(products, w->ptr * w->ptc + w->ptr),
                              .copied = w->sp ? i64_max(w->sa * w->bc, w->sb * w->columns) / w->threads * f->size / 4 : 0};
}

static bool has_registers(const struct wg_attention_facts *f, const struct caps *c, const struct mma_attention_sched *s)
{
    const struct registers r = registers_of(f, s);
    return wg_has_registers(c, s->w.threads, r.sums + r.between + r.copied);
}

static bool fits_tiles(const struct wg_attention_sched *w)
{
    if (!w->ptr || !w->ptc || !w->wswk || w->ptr > WG_ATTENTION_ROWS || w->ptr * w->ptc > MAX_TILE) return false;
    return !w->columns || (w->wlox && w->blox && w->wloy && w->bloy && w->otr && w->otc && w->otr * w->otc <= MAX_TILE);
}

static bool fits_fragments(const struct mma_attention_sched *s)
{
    i64 columns = s->w.units[1].t.wn;
    return columns <= MMA_MAX && s->wm * i64_max(s->wn, columns) <= MAX_FRAGMENTS;
}

/* Products of fragments that are written out. */
static i64 code_of(const struct wg_attention_facts *f, const struct mma_attention_sched *s)
{
    const struct wg_attention_sched *w = &s->w;
    i64 keys = w->sp ? wg_attention_terms(&f->x, w) : w->sa, values = w->sp ? w->bc : w->sb;
    return s->wm * (s->wn * keys + w->units[1].t.wn * values) / s->k;
}

static bool has_room(const struct wg_attention_facts *f, const struct caps *c, const struct wg_attention_sched *w)
{
    return wg_attention_copied(f, w) <= MAX_COPIED && wg_is_legal(c, w->threads, wg_attention_shared_bytes(&f->x, w));
}

/* K blocks of the values, and arrays of their own; where there are no values, the first ones of both parameters. */
static bool fits_values(const struct wg_attention_facts *f, const struct caps *c, const struct mma_attention_sched *s, u32 p)
{
    const struct wg_attention_sched *w = &s->w;
    if (!attention_has_values(&f->x)) return p == P_kv ? s->kv == 1 : s->sb == param[P_sb].values[0] && has_room(f, c, w);
    if (p == P_sb) return w->sb % s->k == 0 && w->bc % w->sb == 0 && has_room(f, c, w);
    return s->kv == 1 || (w->sa == wg_attention_terms(&f->x, w) && w->sb == w->bc && has_room(f, c, w));
}

static bool fits(const struct wg_attention_facts *f, const struct caps *c, const struct mma_attention_sched *s, u32 p)
{
    const struct wg_attention_sched *w = &s->w;
    const bool has_rows = attention_has_rows(&f->x);
    switch (p) {
    case P_k: return mma_is_listed(&w->units[0].t, c);
    case P_gn: return w->threads <= c->max_group;
    case P_wn: return fits_fragments(s);
    case P_wlpx: return fits_tiles(w) && has_registers(f, c, s);
    case P_sa: return w->sa % s->k == 0 && (w->sa < 2 * f->d || w->sa <= i64_max(s->k, 16));
    case P_sb: case P_kv: return fits_values(f, c, s, p);
    case P_sp: return code_of(f, s) <= MAX_CODE;
    case P_rp: return has_registers(f, c, s);
    case P_skip: return !s->skip || (f->x.has_mask && has_rows);
    case P_split: return wg_attention_fits_split(f, w) && (has_rows || !s->split) && has_room(f, c, w);
    default: return true;
    }
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct mma_attention_sched s = view_of(p, v);
    for (u32 i = 0; i < N_PARAM; i++)
        if (!fits(p->facts, p->c, &s, i)) return false;
    return true;
}

/* A listed shape's smallest schedule, of so many subgroups along rows and columns. */
static bool least_sched(const struct gen_problem *p, const struct caps_matrix *x, i64 gm, i64 gn, struct sched *v)
{
    *v = (struct sched){.v = {[P_m] = (i32)x->m, [P_n] = (i32)x->n, [P_k] = (i32)x->k, [P_gm] = (i32)gm, [P_gn] = (i32)gn, [P_wm] = 1, [P_wn] = 1, [P_kv] = 1}};
    while (v->v[P_wn] < MMA_MAX && gn * v->v[P_wn] * x->n < i64_max(x->k, 8)) v->v[P_wn] *= 2;
    v->v[P_sa] = (i32)i64_max(16, x->k), v->v[P_sb] = attention_has_values(&((const struct wg_attention_facts *)p->facts)->x) ? (i32)i64_max(8, x->k) : (i32)param[P_sb].values[0];
    for (u32 i = 0; i < param[P_wlpx].n; i++) {
        v->v[P_wlpx] = (i32)param[P_wlpx].values[i];
        if (gm * gn * p->c->subgroup >= wg_least(p->c) && legal(p, v)) return true;
    }
    return false;
}

static bool least(const struct gen_problem *p, u32 number, struct sched *v)
{
    struct str list = str_of(p->c->matrix);
    struct caps_matrix shape;
    while (caps_matrix_next(&list, &shape)) {
        bool found = false;
        for (i64 gm = 1; gm <= 8 && !found; gm *= 2)
            for (i64 gn = 1; gn <= 4 && !found; gn *= 2) found = least_sched(p, &shape, gm, gn, v);
        if (found && number-- == 0) return true;
    }
    return false;
}

/* What is worth trying. */

/* Searches change single values, and ask the last parameter's rule: that is all of them. */
static bool is_worth(const struct wg_attention_facts *f, const struct caps *c, const struct mma_attention_sched *s, u32 p)
{
    const struct wg_attention_sched *w = &s->w;
    if (p == P_split)
        for (u32 i = 0; i < P_split; i++)
            if (!is_worth(f, c, s, i)) return false;
    switch (p) {
    case P_gn: return w->threads <= USUAL_THREADS && w->threads >= wg_least(c) && s->gn <= s->gm;
    case P_wm: return blocking_fits_size(w->br, s->m, f->m) && w->br <= 256;
    case P_wn: return blocking_fits_size(w->bc, 32, f->n) && w->bc <= 256 && w->bc >= i64_min(32, f->n);
    case P_wlpx: return w->ptc >= i64_min(4, w->bc) && w->ptr <= 8;
    case P_sb: return w->sb >= i64_min(32, w->bc) || !attention_has_values(&f->x);
    case P_sp: return code_of(f, s) <= USUAL_CODE;
    case P_split: return wg_attention_is_split_worth(f, c, w);
    default: return true;
    }
}

static bool worth(const struct gen_problem *p, const struct sched *v, u32 n)
{
    const struct mma_attention_sched s = view_of(p, v);
    return fits(p->facts, p->c, &s, n - 1) && is_worth(p->facts, p->c, &s, n - 1);
}

/* Every subgroup loads its fragments of both operands from shared memory, and scores pass through it. */
static void add_scores(struct wg_work *x, const struct wg_attention_facts *f, const struct mma_attention_sched *s)
{
    const struct wg_attention_sched *w = &s->w;
    double fragments = (double)(s->wm * s->m + s->wn * s->n), pairs = (double)(w->br * w->bc);
    x->moved += (double)f->size * (double)(s->gm * s->gn) * (double)wg_attention_terms(&f->x, w) * fragments + 8 * pairs;
    x->instructions += pairs / 2;
    x->barriers += 1;
}

/* Likewise of probabilities and values. */
static void add_output(struct wg_work *x, const struct wg_attention_facts *f, const struct mma_attention_sched *s)
{
    const struct wg_attention_sched *w = &s->w;
    double fragments = (double)(s->wm * s->m) + (double)(w->columns / s->gn);
    x->moved += (double)f->size * ((double)(s->gm * s->gn) * (double)w->bc * fragments + (double)(w->br * w->bc));
    if (w->apart) x->barriers = 3;
}

static double regs_of(const struct wg_attention_facts *f, const struct mma_attention_sched *s)
{
    const struct registers r = registers_of(f, s);
    return (double)(r.sums + r.between + r.copied);
}

static double rows_seconds(const struct gen_problem *p, const struct wg_attention_facts *f, const struct mma_attention_sched *s)
{
    const struct wg_attention_sched *w = &s->w;
    const bool has_values = attention_has_values(&f->x);
    struct wg_attention_step step = {.block = wg_attention_block_work(f, w), .regs = regs_of(f, s), .op = rate_op_mma(f->operand)};
    step.ilp = (double)(has_values ? i64_min(w->ptr * w->ptc, w->otr * w->otc) : w->ptr * w->ptc);
    add_scores(&step.block, f, s);
    if (has_values) add_output(&step.block, f, s);
    return wg_attention_seconds(p, f, w, &step);
}

static double columns_seconds(const struct gen_problem *p, const struct wg_attention_facts *f, const struct mma_attention_sched *s)
{
    const struct wg_attention_sched *w = &s->w;
    struct wg_attention_step step = {.block = wg_attention_columns_work(f, w), .regs = regs_of(f, s), .ilp = (double)(w->ptr * w->ptc), .op = rate_op_mma(f->operand)};
    add_scores(&step.block, f, s);
    return wg_attention_columns_seconds(p, f, w, &step);
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct wg_attention_facts *f = p->facts;
    const struct mma_attention_sched s = view_of(p, v);
    double t = attention_has_rows(&f->x) ? rows_seconds(p, f, &s) : 0;
    return f->x.columns.out ? t + columns_seconds(p, f, &s) : t;
}

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v)
{
    struct attention x;
    attention_of(&x, t);
    const enum dtype operand = x.scores.tf32 ? DT_TF32 : graph_value(&t->g, x.scores.a)->dtype;
    const struct mma_attention_sched s = mma_attention_sched_of(v, operand, attention_has_values(&x) ? gen_static(&t->g, x.values.n, 1) : 0, c->subgroup);
    wg_attention_emit(m, t, c, &s.w);
}

const struct gen gen_mma_attention = {
    .version = 1, .name = "mma_attention", .revision = 3, .param = param, .n_param = N_PARAM,
    .sums = SUMS_IN_PARTS, .chains = true, .singles = true, .facts = sizeof(struct wg_attention_facts),
    .analyze = analyze, .least = least, .legal = legal, .worth = worth, .emit = emit, .predict = predict,
};
