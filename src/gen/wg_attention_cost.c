// SPDX-License-Identifier: Apache-2.0
//
// wg_attention_cost: what families of attention by workgroups know of a task, whatever multiplies: sizes, keys that are left out, parts of the keys, and
// the seconds of a schedule of which a step's work is known.
#include "gen/wg_attention.h"

#include <math.h>

enum {
    MAX_PARTS = 16, /* of the keys, of several blocks of rows */
    LOOK = 8        /* instructions that look at a key of a mask */
};

/* Of the scores' operands, and of the values, if there are any. */
static void find_types(struct wg_attention_facts *f, const struct graph *g, const value_id *in, u32 n)
{
    const enum dtype type = graph_value(g, in[0])->dtype;
    const struct gemm *s = &f->x.scores, *v = &f->x.values;
    bool is_same = true;
    for (u32 i = 1; i < n; i++) is_same = is_same && type == graph_value(g, in[i])->dtype;
    f->size = is_same ? dtype_size(type) : 4;
    if (is_same) f->operand = n > 2 && s->tf32 != v->tf32 ? DT_NONE : s->tf32 ? DT_TF32 : type;
}

bool wg_attention_analyze_parts(const struct gen_problem *p, struct wg_attention_facts *f)
{
    const struct graph *g = &p->t->g;
    const struct gemm *s = &f->x.scores, *v = &f->x.values;
    if (!p->c->is_gpu || !attention_of(&f->x, p->t)) return false;
    const bool has_values = attention_has_values(&f->x);
    attention_form(&f->x, p->t, p->c);
    const value_id in[3] = {s->a, s->b, v->b};
    const u32 n_in = has_values ? 3 : 2;
    const struct space *outer = &wg_attention_rows_of(&f->x)->outer;
    f->m = gen_eval(g, s->m, p->var), f->n = gen_eval(g, s->n, p->var), f->d = gen_eval(g, s->k, p->var), f->e = has_values ? gen_eval(g, v->n, p->var) : 0;
    f->static_m = gen_static(g, s->m, -1), f->static_n = gen_static(g, s->n, -1), f->batch = 1;
    for (u32 i = 0; i < outer->n; i++) f->batch *= gen_eval(g, outer->g[i].extent, p->var);
    find_types(f, g, in, n_in);
    const struct shape *x = &graph_value(g, f->x.score)->shape;
    f->queries = x->rank > 1 ? x->dim[x->rank - 2] : sym_const(g->sym, 1);
    for (u32 i = 0; i < g->input.n; i++) f->others += gen_bytes(g, g->input.v[i], p->var);
    for (u32 i = 0; i < n_in; i++) f->front[i] = gen_front(g, in[i]), f->others = fmax(0, f->others - gen_bytes(g, in[i], p->var));
    return (f->x.is_softmax || !f->x.rows.n) && (!has_values || gen_static(g, v->n, -1) > 0);
}

bool wg_attention_analyze(const struct gen_problem *p, struct wg_attention_facts *f)
{
    return wg_attention_analyze_parts(p, f) && attention_has_values(&f->x) && f->x.rows.n && !f->x.columns.out;
}

/* Choices. */

i64 wg_attention_copied(const struct wg_attention_facts *f, const struct wg_attention_sched *s)
{
    const i64 terms = wg_attention_terms(&f->x, s);
    i64 most = 0;
    if (attention_has_rows(&f->x)) most = i64_max(s->br * terms, i64_max(s->sa * s->bc, s->sb * s->columns));
    if (f->x.columns.out) most = i64_max(most, i64_max(s->bc * terms, s->sa * s->br));
    return most / s->threads;
}

/* What parts leave in memory grows with rows times parts: one block has all rows that share them, or they are few. */
bool wg_attention_fits_split(const struct wg_attention_facts *f, const struct wg_attention_sched *s)
{
    bool is_bounded = (f->static_m >= 0 && s->br >= f->static_m) || (f->static_n >= 0 && f->static_n <= MAX_PARTS * s->split);
    return !s->split || (s->split % s->bc == 0 && is_bounded && (f->static_n < 0 || s->split < f->static_n));
}

static i64 block_count(const struct wg_attention_facts *f, const struct wg_attention_sched *s) { return f->batch * ceil_div(f->m, s->br); }

bool wg_attention_is_split_worth(const struct wg_attention_facts *f, const struct caps *c, const struct wg_attention_sched *s)
{
    return !s->split || (f->n >= 2 * s->split && block_count(f, s) <= 2 * (i64)c->n_threads);
}

/* Prediction. */

/* Blocks of keys that a band leaves, or a mask that rows have of their own, which is taken to be causal: an average over blocks of rows. */
static double shown_blocks(const struct wg_attention_facts *f, const struct wg_attention_sched *s, const i64 *var)
{
    enum { MOST = 64 }; /* blocks of rows that are looked at */
    double rows = (double)ceil_div(f->m, s->br), n = fmin(rows, MOST), sum = 0;
    for (i64 i = 0; i < (i64)n; i++) {
        double from = floor(((double)i + 0.5) * rows / n) * (double)s->br, to = fmin((double)f->m, from + (double)s->br);
        const struct attention_reach keys = attention_keys_of_rows(&f->x, f->queries, (double)f->n, from, to, var);
        sum += ceil((keys.end - keys.begin) / (double)s->bc) / n;
    }
    return sum;
}

/* Blocks of keys of a workgroup. Masks that are alike for all rows mostly leave all keys. */
static double key_blocks(const struct wg_attention_facts *f, const struct wg_attention_sched *s, const i64 *var)
{
    const double unmasked = 0.9;
    const bool is_scanned = f->x.has_mask && s->skip;
    double all = (double)ceil_div(f->n, s->bc) * (is_scanned ? unmasked : 1);
    if (f->x.has_band || (is_scanned && f->x.is_masked_by_row)) all = shown_blocks(f, s, var);
    return fmax(s->split ? all / ceil((double)f->n / (double)s->split) : all, 1);
}

static struct wg_work share_of(const struct wg_work *w, double n)
{
    return (struct wg_work){.fmas = w->fmas / n, .instructions = w->instructions / n, .moved = w->moved / n, .barriers = w->barriers / n};
}

struct wg_work wg_attention_block_work(const struct wg_attention_facts *f, const struct wg_attention_sched *s)
{
    enum { EXPONENTIAL = 14, OTHERS = 8 };
    double br = (double)s->br, bc = (double)s->bc, d = (double)wg_attention_terms(&f->x, s), e = (double)s->columns;
    double row_threads = (double)(s->wlpx * s->blpx);
    struct wg_work w = {.fmas = br * bc * (d + e)};
    w.instructions = bc * d * (wg_copy_instructions((double)s->glwk) + f->front[1]) + bc * e * (wg_copy_instructions((double)s->glwv) + f->front[2]);
    w.instructions += br * bc * (EXPONENTIAL + OTHERS + (double)f->x.n_between) + br * e;
    w.instructions += (double)(s->threads * s->ptr) * (EXPONENTIAL + (s->sub ? 2 * log2(row_threads) : row_threads / 2 + 4));
    w.moved = (s->half ? 2 : 4) * 2 * bc * (d + e);
    if (attention_has_values(&f->x)) w.barriers = 2 * (bc / (double)s->sb) + (!s->sp && s->bc > s->sb);
    w.barriers += 2 * ceil(d / (double)s->sa) + (f->x.rows.n && !s->sub);
    return w;
}

struct wg_work wg_attention_columns_work(const struct wg_attention_facts *f, const struct wg_attention_sched *s)
{
    enum { EXPONENTIAL = 14, OTHERS = 8 };
    double br = (double)s->br, bc = (double)s->bc, d = (double)wg_attention_terms(&f->x, s);
    struct wg_work w = {.fmas = br * bc * d};
    w.instructions = br * d * (wg_copy_instructions((double)s->glwq) + f->front[0]) + br * bc * (EXPONENTIAL + OTHERS + (double)f->x.n_between);
    w.moved = (s->half ? 2 : 4) * 2 * br * d;
    w.barriers = 2 * ceil(d / (double)s->sa);
    return w;
}

double wg_attention_seconds(const struct gen_problem *p, const struct wg_attention_facts *f, const struct wg_attention_sched *s, const struct wg_attention_step *step)
{
    double parts = s->split ? ceil((double)f->n / (double)s->split) : 1, blocks = key_blocks(f, s, p->var), size = (double)f->size;
    double br = (double)s->br, d = (double)f->d, e = (double)f->e, m = (double)f->m, n = (double)f->n, batch = (double)f->batch;
    double walks = step->ahead > 0 ? 1 : ceil((double)wg_attention_terms(&f->x, s) / (double)s->sa) + (attention_has_values(&f->x) ? (double)(s->bc / s->sb) : 0);
    struct wg_facts w = {.workgroups = (double)block_count(f, s) * parts, .threads = s->threads};
    w.op = step->op, w.op_rate = step->op_rate, w.regs = step->regs + WG_ADDRESSES, w.shared_bytes = wg_attention_shared_bytes(&f->x, s);
    w.steps = blocks * walks, w.step = share_of(&step->block, walks), w.ahead = step->ahead > 0 ? step->ahead : s->sp, w.ilp = step->ilp;
    w.rest = (struct wg_work){.instructions = br * d * (wg_copy_instructions((double)s->glwq) + f->front[0]) + 10 * br * e, .moved = 8 * br * d, .barriers = 4};
    if (s->skip) w.rest.instructions += (f->x.is_masked_by_row ? br : (double)s->threads / (double)(s->wlpx * s->blpx)) * n * LOOK;
    w.bytes = size * batch * (m * (d + e) + n * (d + e)) + f->others;
    w.requested = w.workgroups * (size * (br * (d + e) + blocks * (double)s->bc * (d + e)) + f->others / fmax(w.workgroups, 1));
    if (s->split) w.later = 2 * 4 * batch * m * parts * (e + 2), w.n_later = 1;
    return wg_seconds(p, &w);
}

double wg_attention_columns_seconds(const struct gen_problem *p, const struct wg_attention_facts *f, const struct wg_attention_sched *s, const struct wg_attention_step *step)
{
    struct wg_attention_sched all = *s;
    all.split = all.skip = 0;
    double own = (double)i64_max(1, gen_eval(f->x.scores.g, f->queries, p->var)), heads = (double)(f->batch * f->m) / own, size = (double)f->size;
    double br = (double)s->br, bc = (double)s->bc, d = (double)f->d, n = (double)f->n, blocks = ceil(n / bc);
    double visited = fmax(1, ceil(own / br) * key_blocks(f, &all, p->var) / blocks), walks = ceil((double)wg_attention_terms(&f->x, s) / (double)s->sa);
    struct wg_facts w = {.workgroups = heads * blocks, .threads = s->threads};
    w.op = step->op, w.op_rate = step->op_rate, w.regs = step->regs + WG_ADDRESSES, w.shared_bytes = wg_attention_columns_bytes(&f->x, s);
    w.steps = visited * walks, w.step = share_of(&step->block, walks), w.ahead = s->sp, w.ilp = step->ilp;
    w.rest = (struct wg_work){.instructions = bc * d * (wg_copy_instructions((double)s->glwk) + f->front[1]) + bc * (double)(s->wlpy * s->blpy), .moved = 8 * bc * d, .barriers = 4};
    w.bytes = size * (double)f->batch * ((double)f->m + n) * d + 4 * heads * n + f->others;
    w.requested = w.workgroups * (size * (bc + visited * br) * d + 4 * bc + f->others / w.workgroups);
    return wg_seconds(p, &w);
}
