// SPDX-License-Identifier: Apache-2.0
//
// wg_filter_grad: gradient of the weights of a filter with weights of its own for every pixel (quern::FilterOuter) by workgroups: the
// products over channels of a pixel with the inputs of its taps. A thread has some rows of a vector of neighbouring pixels and goes through the taps, or, where groups
// share them out, through a few rows of these; each gradient is stored once, side by side with those of the thread's neighbours. Channels of the
// thread's pixels stay in registers where they fit; what taps meet is read once for all rows of taps that are written out and meet it (gen/wg_filter.h).
#include "gen/wg_filter.h"

enum { FEW_CHANNELS = 8 /* written out */, MAX_KEPT = 48 /* of a thread's pixels */, MAX_SUMS = 40, MAX_WRITTEN = 400 /* multiply-adds */ };


#define PARAMS(P) FILTER_PARAMS(P) P(split, "1: a workgroup has only the unrolled rows of taps", 0, 1)
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct filter_tile, tile_of, FILTER_PARAMS)

struct work {
    struct filter_work f; /* first */
    bool split, kept;                   /* kept: all channels of the thread's pixels are in registers */
    kval own[MAX_KEPT];                 /* [channel][row] */
    kval acc;                           /* REG array [row of taps][row] */
};

static void take(struct work *w, const struct sched *s)
{
    const struct filtering *q = &w->f.q;
    w->f.t = tile_of(s);
    filter_tile_init(&w->f.t, q, q->channels);
    w->f.t.ones = false;
    w->split = s->v[P_split], w->kept = q->channels <= FEW_CHANNELS && q->channels * w->f.t.ry * w->f.t.vec <= MAX_KEPT;
    if (w->split) w->f.t.span = w->f.t.iu;
}

/* Emission. */

/* The thread's pixels of row a, the last one of the image again behind the end. */
static kval own_row(const struct work *w, kval c, i64 a)
{
    struct kir *k = w->f.t.m->k;
    kval v = emit_value(w->f.t.m, w->f.q.side, (kval[]){w->f.t.n, c, filter_tile_own_row(&w->f.t, a), filter_tile_pixels(&w->f.t)});
    return kir_splat(k, kir_cast(k, w->f.q.type, v), (u32)w->f.t.vec);
}

static kval slot(const struct work *w, i64 tap, i64 a) { return kir_int(w->f.t.m->k, tap * w->f.t.ry + a); }

static void add_channel(const struct work *w, const struct filter_taps *p, kval c)
{
    struct kir *k = w->f.t.m->k;
    i64 number, row[FILTER_ROWS];
    bool known = kir_is_const(k, c, &number) && w->kept;
    u32 n = filter_taps_rows(&w->f.t, p, row);
    for (u32 r = 0; r < n; r++) {
        kval met = filter_taps_meet(&w->f.t, p, row[r], c, c);
        for (i64 a = 0; a < w->f.t.ry; a++) {
            i64 tap = filter_taps_tap(&w->f.t, p, a, row[r]);
            if (tap < 0) continue;
            kval own = known ? w->own[number * w->f.t.ry + a] : own_row(w, c, a), at = slot(w, tap, a);
            kir_store(k, w->acc, at, kir_fma(k, own, met, kir_load(k, w->acc, at)));
        }
    }
}

static void store(const struct work *w, const struct filter_taps *p, i64 a)
{
    struct emit *m = w->f.t.m;
    struct kir *k = m->k;
    kval has = w->f.t.stage ? 0 : filter_tile_has_row(&w->f.t, a);
    if (has) kir_if(k, has);
    for (i64 i = 0; i < p->n; i++) {
        kval tap = kir_add(k, kir_mul_i(k, kir_add_i(k, p->i, i), w->f.q.f.kernel[1]), p->j), v = kir_load(k, w->acc, slot(w, i, a));
        if (w->f.t.stage) kir_store(k, w->f.t.staged, filter_stage_at(&w->f.t, p, i, a), v);
        else result_store(m, &w->f.r, (kval[]){w->f.t.n, tap, kir_add_i(k, w->f.t.y, a), filter_tile_pixels(&w->f.t)}, v, 0);
    }
    if (has) kir_end(k);
}

static void do_taps(const void *user, const struct filter_taps *p)
{
    const struct work *w = user;
    struct kir *k = w->f.t.m->k;
    for (i64 i = 0; i < p->n * w->f.t.ry; i++) kir_store(k, w->acc, kir_int(k, i), kir_const_f(k, w->f.q.type, (u32)w->f.t.vec, 0));
    if (w->kept) {
        for (i64 c = 0; c < w->f.q.channels; c++) add_channel(w, p, kir_int(k, c));
    } else {
        add_channel(w, p, kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, w->f.q.channels), 1));
        kir_end(k);
    }
    for (i64 a = 0; a < w->f.t.ry; a++) store(w, p, a);
}

/* The rows of taps of a workgroup that has only a few; the last workgroup may have fewer. */
static void do_share(const struct work *w, bool inside)
{
    struct kir *k = w->f.t.m->k;
    i64 kh = w->f.q.f.kernel[0], rest = kh % w->f.t.iu;
    struct filter_taps p = {.i = w->f.t.first, .n = w->f.t.iu, .inside = inside};
    if (rest) kir_if(k, kir_lt(k, p.i, kir_int(k, kh - rest)));
    filter_taps_columns(&w->f.t, p, do_taps, w);
    if (!rest) return;
    kir_else(k);
    p.i = kir_int(k, kh - rest), p.n = rest;
    filter_taps_columns(&w->f.t, p, do_taps, w);
    kir_end(k);
}

/* All rows of taps of the workgroup, or some, of a thread that has pixels. */
static void do_here(const struct work *w, const struct filter_taps *some)
{
    struct kir *k = w->f.t.m->k;
    if (!w->f.t.halo) kir_if(k, filter_tile_is_inside(&w->f.t));
    for (u32 i = 0; i < 2 - (u32)w->f.t.halo; i++) {
        struct filter_taps p = some ? *some : (struct filter_taps){0};
        p.inside = !i;
        if (i) kir_else(k);
        if (some) filter_taps_columns(&w->f.t, p, do_taps, w);
        else if (w->split) do_share(w, p.inside);
        else filter_taps_all(&w->f.t, p.inside, do_taps, w);
    }
    if (!w->f.t.halo) kir_end(k);
}

static void store_staged(const void *user, const struct filter_stage *x)
{
    const struct work *w = user;
    struct kir *k = w->f.t.m->k;
    kir_if(k, x->exists);
    result_store(w->f.t.m, &w->f.r, x->idx, kir_load(k, w->f.t.staged, x->at), 0);
    kir_end(k);
}

/* Of a thread that has pixels. */
static void keep_pixels(struct work *w)
{
    for (i64 i = 0; w->kept && i < w->f.q.channels * w->f.t.ry; i++)
        w->own[i] = own_row(w, kir_int(w->f.t.m->k, i / w->f.t.ry), i % w->f.t.ry);
}

/* Some rows of taps, stored by all threads together. */
static void do_staged(const void *user, const struct filter_taps *p)
{
    struct work w = *(const struct work *)user;
    struct kir *k = w.f.t.m->k;
    kir_barrier(k);
    kir_if(k, filter_tile_exists(&w.f.t));
    keep_pixels(&w);
    do_here(&w, p);
    kir_end(k);
    kir_barrier(k);
    filter_stage_each(&w.f.t, p, store_staged, &w);
}

static void do_tile(struct filter_work *f)
{
    struct work *w = (struct work *)f;
    struct filter_tile *t = &f->t;
    struct kir *k = t->m->k;
    w->acc = kir_alloc(k, KS_REG, w->f.q.type, (u32)t->vec, kir_int(k, t->iu * t->ry));
    filter_tile_fill(t, kir_int(k, 0), w->f.q.channels, false);
    if (t->stage) {
        if (w->split) do_staged(w, &(struct filter_taps){.i = t->first, .n = t->iu});
        else filter_taps_blocks(t, do_staged, w);
        return;
    }
    kir_if(k, filter_tile_exists(t));
    keep_pixels(w);
    do_here(w, NULL);
    kir_end(k);
}

static i64 shares(const struct work *w) { return w->split ? ceil_div(w->f.q.f.kernel[0], w->f.t.iu) : 1; }

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    struct work w = {0};
    filtering_of(&w.f.q, t, OP_FILTER_GRAD);
    take(&w, s);
    w.f.t.m = m;
    filter_work_emit(&w.f, t, caps, shares(&w), do_tile);
}

/* Choice. */

static bool view(const struct gen_problem *p, const struct sched *s)
{
    take(p->facts, s);
    return true;
}

static bool legal(const struct gen_problem *p, const struct sched *s)
{
    const struct work *w = p->facts;
    const struct caps *caps = p->c;
    const struct filtering *q = &w->f.q;
    if (!filter_tile_is_legal(&w->f.t, filter_weights(q), caps) || (w->split && w->f.t.iu == q->f.kernel[0])) return false;
    if (w->f.t.stage && (!q->simple || (w->split && q->f.kernel[0] % w->f.t.iu))) return false; /* barriers, and the loop over rows, are all threads' */
    i64 sums = w->f.t.iu * w->f.t.ry * w->f.t.vec, kept = w->kept ? q->channels * w->f.t.ry * w->f.t.vec : 0;
    if (sums > MAX_SUMS || (sums * w->f.t.ju > 1 && sums * w->f.t.ju * (w->kept ? q->channels : 1) > MAX_WRITTEN)) return false;
    return sums == 1 || wg_has_registers(caps, w->f.t.threads, sums + kept);
}

static bool analyze(const struct gen_problem *p) { return filter_work_analyze(p, OP_FILTER_GRAD); }

/* Gradients once to memory. */
static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct work *w = p->facts;
    const struct filtering *q = &w->f.q;
    const struct filter_tile *t = &w->f.t;
    double c = (double)q->channels, ry = (double)t->ry, n = (double)shares(w), own = filter_tile_moving(t, q->side);
    struct wg_facts f = {.threads = t->threads, .workgroups = filter_tile_groups(t, p->var) * n, .step = {.barriers = t->halo}};
    double tap = 1 + filter_tile_moving(t, filter_weights(q)) + c * (double)t->vec + (w->kept ? 0 : c * own / (double)w->f.t.iu);
    tap += (c * filter_tile_meeting(t) * (double)(t->ry + w->f.t.iu - 1) + 4 / (double)w->f.t.ju) / (ry * (double)w->f.t.iu);
    f.step.instructions = filter_tile_slots(t) * ((double)q->taps / n * ry * tap + filter_tile_copying(t) + filter_tile_staging(t) + c * ry * own);
    f.bytes = gen_bytes(q->g, q->out, p->var) / filter_tile_dense(t, filter_weights(q), p->c);
    f.bytes += gen_bytes(q->g, q->met, p->var) + gen_bytes(q->g, q->side, p->var);
    f.shared_bytes = filter_tile_bytes(t), f.ilp = ry * (double)t->vec;
    return wg_seconds(p, &f);
}

const struct gen gen_wg_filter_grad = {
    GEN_FAMILY("wg_filter_grad", 1), .sums = SUMS_IN_PARTS, .facts = sizeof(struct work),
    .analyze = analyze, .view = view, .legal = legal, .emit = emit, .predict = predict,
};
