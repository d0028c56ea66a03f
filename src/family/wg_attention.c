// SPDX-License-Identifier: Apache-2.0
//
// wg_attention: two matmuls with a softmax between them, by workgroups, in one kernel (gen/wg_attention_emit.c); or the first one of them and the statistics of
// the softmax; or both products from given statistics; or sums of the probabilities along the rows (gen/wg_attention_columns.c), by themselves or beside one of
// these: which schedules there are, and which of them is good. Each rule is asked for as soon as the last parameter that it speaks of has a value.
#include "gen/wg_attention.h"

#include <math.h>

GEN_PARAMS(WG_ATTENTION_PARAMS)

enum {
    MAX_CODE = 8192,    /* multiply-adds written out */
    USUAL_CODE = 1024,
    MAX_COPIED = 128,   /* elements of a K block that a thread copies */
    MAX_TILE = 128,     /* of a thread */
    USUAL_THREADS = 512,
    WIDE = 16           /* bytes of a load */
};

static bool analyze(const struct gen_problem *p) { return wg_attention_analyze_parts(p, p->facts); }

static struct wg_attention_sched view_of(const struct wg_attention_facts *f, const struct sched *v) { return wg_attention_sched_of(v, f->e); }

/* What can be emitted. */

/* Sums, fragments, statistics, and what is on its way to shared memory. */
static i64 registers(const struct wg_attention_sched *s)
{
    i64 scores = (s->rpp + 1) * (s->ptr + s->ptc), output = (s->rpo + 1) * (s->otr + s->otc), copied = i64_max(s->sa * s->bc, s->sb * s->columns) / s->threads;
    i64 tiles = s->ptr * s->ptc + s->otr * s->otc + 3 * s->ptr;
    return tiles + (s->sp ? i64_max(scores, output) + copied : i64_max(i64_max(scores, output), copied));
}

/* Those of an output, where there is none. */
static bool is_of_output(u32 p)
{
    static const u32 own[] = {P_wlox, P_blox, P_sb, P_bswp, P_bswv, P_wswp, P_wswv, P_rpo, P_glwv, P_lco};
    for (u32 i = 0; i < countof(own); i++)
        if (p == own[i]) return true;
    return false;
}

static bool is_neutral(const struct wg_attention_sched *s, u32 p)
{
    switch (p) {
    case P_wlox: return s->wlox == 1;
    case P_blox: return s->blox == 1;
    case P_sb: return s->sb == param[P_sb].values[0];
    case P_bswp: return s->bswp == 1;
    case P_bswv: return s->bswv == 1;
    case P_wswp: return s->wswp == 1;
    case P_wswv: return s->wswv == 1;
    case P_rpo: return s->rpo == 0;
    case P_glwv: return s->glwv == 1;
    default: return s->lco == 1;
    }
}

static bool is_power(i64 x) { return (x & (x - 1)) == 0; }

static bool fits_tiles(const struct caps *c, const struct wg_attention_sched *s)
{
    if (!s->wloy || !s->bloy || !s->otr || !s->otc || s->otr * s->otc > MAX_TILE) return false;
    return wg_has_registers(c, s->threads, s->ptr * s->ptc + s->otr * s->otc + 3 * s->ptr + i64_max(s->ptr + s->ptc, s->otr + s->otc));
}

static i64 code_of(const struct wg_attention_facts *f, const struct wg_attention_sched *s)
{
    i64 keys = s->sp ? wg_attention_terms(&f->x, s) / s->sa : 1, values = s->sp ? s->bc / s->sb : 1;
    return s->ptr * s->ptc * i64_min(s->un, s->sa) * keys + s->otr * s->otc * i64_min(s->un, s->sb) * values;
}

static bool has_room(const struct wg_attention_facts *f, const struct caps *c, const struct wg_attention_sched *s)
{
    return wg_is_legal(c, s->threads, wg_attention_shared_bytes(&f->x, s));
}

static bool fits_output(const struct wg_attention_facts *f, const struct caps *c, const struct wg_attention_sched *s, u32 p)
{
    switch (p) {
    case P_blox: return fits_tiles(c, s);
    case P_sb: return s->bc % s->sb == 0;
    case P_bswp: return s->otr % s->bswp == 0;
    case P_bswv: return s->otc % s->bswv == 0;
    case P_wswp: return s->bswp % s->wswp == 0;
    case P_wswv: return s->bswv % s->wswv == 0;
    case P_glwv: return s->glwv * f->size <= WIDE;
    case P_lco: return s->lco || is_power(s->columns);
    default: return true;
    }
}

static bool fits(const struct wg_attention_facts *f, const struct caps *c, const struct wg_attention_sched *s, u32 p)
{
    const bool has_rows = attention_has_rows(&f->x);
    if (is_of_output(p) && !(attention_has_values(&f->x) ? fits_output(f, c, s, p) : is_neutral(s, p))) return false;
    switch (p) {
    case P_half: return !s->half || f->size == 2;
    case P_wlpx: return s->w <= c->max_group;
    case P_blpx: return s->threads <= c->max_group;
    case P_ptc: return wg_has_registers(c, s->threads, s->ptr * s->ptc + s->ptr + s->ptc);
    case P_sa: return s->sa == 4 || s->sa < 2 * f->d;
    case P_sb: return wg_attention_copied(f, s) <= MAX_COPIED && has_room(f, c, s);
    case P_bswq: return s->ptr % s->bswq == 0;
    case P_bswk: return s->ptc % s->bswk == 0;
    case P_wswq: return s->bswq % s->wswq == 0;
    case P_wswk: return s->bswk % s->wswk == 0;
    case P_rpo: return wg_has_registers(c, s->threads, registers(s));
    case P_un: return code_of(f, s) <= MAX_CODE;
    case P_pad: return has_room(f, c, s);
    case P_glwq: return s->glwq * f->size <= WIDE;
    case P_glwk: return s->glwk * f->size <= WIDE;
    case P_lcp: return s->lcp || is_power(wg_attention_terms(&f->x, s));
    case P_sub: return !s->sub || (f->x.rows.n && s->blpx == 1 && s->wlpx > 1 && wg_subgroup(c, s->threads) >= s->wlpx);
    case P_skip: return !s->skip || (f->x.has_mask && has_rows);
    case P_split: return wg_attention_fits_split(f, s) && (has_rows || !s->split) && has_room(f, c, s);
    default: return true;
    }
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct wg_attention_sched s = view_of(p->facts, v);
    for (u32 i = 0; i < N_PARAM; i++)
        if (!fits(p->facts, p->c, &s, i)) return false;
    return true;
}

/* One subgroup of several sizes: a row, or several with tiles. */
static bool least(const struct gen_problem *p, u32 number, struct sched *v)
{
    enum { SIZES = 4 };
    const bool has_values = attention_has_values(&((const struct wg_attention_facts *)p->facts)->x);
    const i32 w = 8 << number % SIZES, is_tile = number / SIZES == 1, wlpy = is_tile ? w / 8 : 1;
    if (number >= 2 * SIZES) return false;
    for (u32 i = 0; i < N_PARAM; i++) v->v[i] = param[i].values[0];
    v->v[P_wlpy] = wlpy, v->v[P_wlpx] = w / wlpy, v->v[P_wlox] = !has_values ? 1 : is_tile ? 8 : w;
    v->v[P_ptr] = is_tile ? 4 : 1, v->v[P_ptc] = is_tile ? 4 : 1;
    v->v[P_lcp] = v->v[P_lco] = 1;
    return p->c->is_gpu;
}

/* What is worth trying. */

static i64 usual_subgroup(const struct caps *c) { return c->subgroup ? i64_max(8, i64_min(c->subgroup, 64)) : 32; }

static bool are_tiles_worth(const struct wg_attention_facts *f, const struct wg_attention_sched *s)
{
    i64 tile = s->ptr * s->ptc;
    if (!blocking_fits_size(s->br, 1, f->m) || !blocking_fits_size(s->bc, 32, f->n)) return false;
    return s->br <= 128 && s->bc <= 256 && s->bc >= i64_min(16, f->n) && tile <= 64 && (tile >= 4 || f->m * f->n < 4096);
}

/* The largest value of a parameter that divides n. */
static i64 largest(u32 which, i64 n)
{
    i64 best = 1;
    for (u32 i = 0; i < param[which].n; i++)
        if (n % param[which].values[i] == 0) best = param[which].values[i];
    return best;
}

static bool is_load_worth(const struct wg_attention_facts *f, i64 wide, i64 extent)
{
    i64 most = WIDE / f->size;
    while (most > 1 && extent % most) most /= 2;
    return wide <= most && 2 * wide >= most;
}

static bool is_worth(const struct wg_attention_facts *f, const struct caps *c, const struct wg_attention_sched *s, u32 p)
{
    if (is_of_output(p) && !attention_has_values(&f->x)) return true;
    switch (p) {
    case P_wlpx: return s->w == usual_subgroup(c);
    case P_blpx: return s->threads <= USUAL_THREADS && s->threads >= wg_least(c) && (s->blpx == 1 || s->blpy == 1);
    case P_ptc: return are_tiles_worth(f, s);
    case P_blox: return s->otr * s->otc <= 64 && s->columns < 2 * i64_max(f->e, 8);
    case P_sa: return (s->sa >= 8 || f->d < 8) && s->sa <= 64;
    case P_sb: return s->sb >= i64_min(8, s->bc);
    case P_bswq: return s->bswq == largest(P_bswq, s->ptr);
    case P_bswk: return s->bswk == largest(P_bswk, s->ptc);
    case P_wswq: return s->wswq <= 4;
    case P_wswk: return s->wswk == largest(P_wswk, i64_min(4, s->bswk));
    case P_bswp: return s->bswp == largest(P_bswp, s->otr);
    case P_bswv: return s->bswv == largest(P_bswv, s->otc);
    case P_wswp: return s->wswp <= 4;
    case P_wswv: return s->wswv == largest(P_wswv, i64_min(4, s->bswv));
    case P_un: return s->un >= 4 && s->un <= i64_max(4, i64_max(s->sa, s->sb)) && code_of(f, s) <= USUAL_CODE;
    case P_glwq: return is_load_worth(f, s->glwq, f->d);
    case P_glwk: return is_load_worth(f, s->glwk, f->d);
    case P_glwv: return is_load_worth(f, s->glwv, f->e);
    case P_lcp: return s->lcp == 1;
    case P_lco: return s->lco == 1;
    case P_split: return wg_attention_is_split_worth(f, c, s) && are_tiles_worth(f, s) && code_of(f, s) <= USUAL_CODE; /* searches change single values, and ask this last */
    default: return true;
    }
}

static bool worth(const struct gen_problem *p, const struct sched *v, u32 n)
{
    const struct wg_attention_sched s = view_of(p->facts, v);
    return fits(p->facts, p->c, &s, n - 1) && is_worth(p->facts, p->c, &s, n - 1);
}

/* Prediction. */

/* Accesses to shared memory, of 32 words each, for one thread's part of a term, per subgroup of 32 threads: what several read at once counts once. A left
   operand has vectors of terms: rows in the same banks wait for each other. */
static double accesses(const struct fma_axis *row, const struct fma_axis *col, i64 pitch)
{
    i64 places = 8, step = row->near * pitch / 4;
    while (places > 1 && step % 2 == 0) step /= 2, places /= 2;
    double rows = (double)row->n / 4 * fmax((double)i64_min(row->threads, 32) / (double)places, 1);
    return rows + (double)col->n / (double)i64_min(4, col->near) * fmax((double)(i64_min(col->threads, 32) * col->near) / 32, 1);
}

/* Instructions of one thread for a term, without multiply-adds. */
static double others_of(const struct fma_axis *row, const struct fma_axis *col, i64 un)
{
    return (double)row->n / 4 + (double)col->n / (double)i64_min(4, col->near) + 4 / (double)un;
}

/* What the operands of a block of scores add. */
static void add_scores(struct wg_work *w, const struct wg_attention_facts *f, const struct wg_attention_sched *s)
{
    const struct fma_axis y = {s->ptr, s->wswq, s->bswq, s->wlpy, s->blpy}, x = {s->ptc, s->wswk, s->bswk, s->wlpx, s->blpx};
    double threads = (double)s->threads, d = (double)wg_attention_terms(&f->x, s);
    w->instructions += threads * d * others_of(&y, &x, i64_min(s->un, s->sa));
    w->moved += threads * 4 * d * accesses(&y, &x, (i64)d + s->pad);
}

/* Those of a block of values, and the probabilities in shared memory. */
static void add_output(struct wg_work *w, const struct wg_attention_sched *s)
{
    const struct fma_axis y = {s->otr, s->wswp, s->bswp, s->wloy, s->bloy}, x = {s->otc, s->wswv, s->bswv, s->wlox, s->blox};
    double threads = (double)s->threads, bc = (double)s->bc;
    w->instructions += threads * bc * others_of(&y, &x, i64_min(s->un, s->sb));
    w->moved += threads * 4 * bc * accesses(&y, &x, s->bc + s->pad) + 4 * (double)s->br * bc;
}

static double rows_seconds(const struct gen_problem *p, const struct wg_attention_facts *f, const struct wg_attention_sched *s)
{
    i64 ilp = s->ptr * s->ptc;
    struct wg_attention_step step = {.block = wg_attention_block_work(f, s), .regs = (double)registers(s)};
    add_scores(&step.block, f, s);
    if (attention_has_values(&f->x)) add_output(&step.block, s), ilp = i64_min(ilp, s->otr * s->otc);
    step.ilp = (double)ilp * (s->rpp && (s->rpo || !attention_has_values(&f->x)) ? 1.5 : 1);
    return wg_attention_seconds(p, f, s, &step);
}

static double columns_seconds(const struct gen_problem *p, const struct wg_attention_facts *f, const struct wg_attention_sched *s)
{
    struct wg_attention_step step = {.block = wg_attention_columns_work(f, s),
                                     .regs = (double)(registers(s) + s->ptc - s->otr * s->otc),
                                     .ilp = (double)(s->ptr * s->ptc) * (s->rpp ? 1.5 : 1)};
    add_scores(&step.block, f, s);
    return wg_attention_columns_seconds(p, f, s, &step);
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct wg_attention_facts *f = p->facts;
    const struct wg_attention_sched s = view_of(f, v);
    double t = attention_has_rows(&f->x) ? rows_seconds(p, f, &s) : 0;
    return f->x.columns.out ? t + columns_seconds(p, f, &s) : t;
}

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v)
{
    struct attention x;
    attention_of(&x, t);
    const struct wg_attention_sched s = wg_attention_sched_of(v, attention_has_values(&x) ? gen_static(&t->g, x.values.n, 1) : 0);
    wg_attention_emit(m, t, c, &s);
}

const struct gen gen_wg_attention = {
    .version = 1, .name = "wg_attention", .revision = 4, .param = param, .n_param = N_PARAM,
    .sums = SUMS_IN_PARTS, .chains = true, .singles = true, .facts = sizeof(struct wg_attention_facts),
    .analyze = analyze, .least = least, .legal = legal, .worth = worth, .emit = emit, .predict = predict,
};
