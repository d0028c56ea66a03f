// SPDX-License-Identifier: Apache-2.0
//
// wg_filter: filters with weights of their own for every pixel (quern::Filter) by workgroups. A thread has sums of some rows of a vector of
// neighbouring pixels for all channels, or as many as have registers, so that each weight is read once, side by side with those of the
// thread's neighbours. An element of the input is read once for all unrolled rows of taps that use it, from an input tile in shared memory or through
// the caches (gen/wg_filter.h). Without the tile, taps may lie outside; threads away from the borders have code without tests.
#include "gen/wg_filter.h"

#include <math.h>

enum { MAX_SUMS = 48, MAX_WRITTEN = 400 /* multiply-adds */, MAX_LOADS = 40 /* weights of a thread under way */ };


GEN_PARAMS(FILTER_PARAMS)
GEN_PARAM_READER(struct filter_tile, tile_of, FILTER_PARAMS)

struct work {
    struct filter_work f; /* first */
    i64 block; /* channels that have sums at once */
    kval acc;  /* REG array [row][channel of the block, the sum of weights behind them] */
    kval peak; /* REG array [row]: the largest weight of a pixel, for softmax */
};

static i64 divides(const struct filtering *q) { return q->f.normalize || q->f.softmax; }

static i64 sums_of_row(const struct work *w) { return w->block + divides(&w->f.q); }

static void take(struct work *w, const struct sched *s)
{
    const struct filtering *q = &w->f.q;
    w->f.t = tile_of(s);
    i64 most = i64_max(1, MAX_SUMS / (w->f.t.vec * w->f.t.ry) - divides(q) - q->f.softmax);
    w->block = ceil_div(q->channels, ceil_div(q->channels, most));
    filter_tile_init(&w->f.t, q, w->block + q->f.normalize);
}

/* Emission. */

/* Channels c .. c+n-1. */
struct pass {
    const struct work *w;
    kval c;
    i64 n;
    bool tested; /* weights may be outside where they are met */
};

static void add_to(const struct work *w, i64 row, i64 c, kval a, kval b)
{
    struct kir *k = w->f.t.m->k;
    kval at = kir_int(k, row * sums_of_row(w) + c);
    kir_store(k, w->acc, at, kir_fma(k, a, b, kir_load(k, w->acc, at)));
}

/* The weight of row a for the tap of p that reads row r. */
static kval weight(const struct pass *s, const struct filter_taps *p, i64 a, i64 r, i64 tap)
{
    const struct work *w = s->w;
    struct emit *m = w->f.t.m;
    struct kir *k = m->k;
    kval at[2] = {0}, ok, i = kir_add_i(k, p->i, tap), number = kir_add(k, kir_mul_i(k, i, w->f.q.f.kernel[1]), p->j);
    if (w->f.t.stage) return kir_load(k, w->f.t.staged, filter_stage_at(&w->f.t, p, tap, a));
    struct filter_taps place = *p;
    place.inside = !s->tested;
    if (w->f.q.f.splat) filter_taps_place(&w->f.t, &place, r, at, &ok);
    else at[0] = filter_tile_own_row(&w->f.t, a), at[1] = filter_tile_pixels(&w->f.t);
    kval v = emit_value(m, w->f.q.side, (kval[]){w->f.t.n, number, at[0], at[1]});
    return kir_splat(k, kir_cast(k, w->f.q.type, v), (u32)w->f.t.vec);
}

/* Before anything is added: the largest weight of each of the thread's pixels. */
static void find_peaks(const struct work *w)
{
    struct emit *m = w->f.t.m;
    struct kir *k = m->k;
    u32 vec = (u32)w->f.t.vec;
    for (i64 a = 0; a < w->f.t.ry; a++) kir_store(k, w->peak, kir_int(k, a), kir_const_f(k, w->f.q.type, vec, -INFINITY));
    kval tap = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, w->f.q.taps), 1);
    for (i64 a = 0; a < w->f.t.ry; a++) {
        kval v = emit_value(m, w->f.q.side, (kval[]){w->f.t.n, tap, filter_tile_own_row(&w->f.t, a), filter_tile_pixels(&w->f.t)});
        v = kir_splat(k, kir_cast(k, w->f.q.type, v), vec);
        kir_store(k, w->peak, kir_int(k, a), kir_max(k, kir_load(k, w->peak, kir_int(k, a)), v));
    }
    kir_end(k);
}

/* The weight as softmax has it before division; adds it to what will divide. */
static kval by_softmax(const struct pass *s, i64 a, kval v)
{
    const struct work *w = s->w;
    struct kir *k = w->f.t.m->k;
    v = kir_un(k, KI_EXP, kir_sub(k, v, kir_load(k, w->peak, kir_int(k, a))));
    kval at = kir_int(k, a * sums_of_row(w) + s->n);
    kir_store(k, w->acc, at, kir_add(k, kir_load(k, w->acc, at), v));
    return v;
}

static void add_row(const struct pass *s, const struct filter_taps *p, i64 r)
{
    const struct work *w = s->w;
    struct kir *k = w->f.t.m->k;
    kval met[MAX_SUMS + 1];
    for (i64 c = 0; c < s->n; c++) met[c] = filter_taps_meet(&w->f.t, p, r, kir_add_i(k, s->c, c), kir_int(k, c));
    if (w->f.q.f.normalize) met[s->n] = filter_taps_one(&w->f.t, p, r);
    for (i64 a = 0; a < w->f.t.ry; a++) {
        i64 tap = filter_taps_tap(&w->f.t, p, a, r);
        if (tap < 0) continue;
        kval v = weight(s, p, a, r, tap);
        if (w->f.q.f.softmax) v = by_softmax(s, a, v);
        for (i64 c = 0; c < s->n + w->f.q.f.normalize; c++) add_to(w, a, c, v, met[c]);
    }
}

static void add_taps(const void *user, const struct filter_taps *p)
{
    const struct pass *s = user;
    i64 row[FILTER_ROWS];
    u32 n = filter_taps_rows(&s->w->f.t, p, row);
    for (u32 i = 0; i < n; i++) add_row(s, p, row[i]);
}

static void store_row(const struct pass *s, i64 a)
{
    const struct work *w = s->w;
    struct emit *m = w->f.t.m;
    struct kir *k = m->k;
    kval all = 0, has = filter_tile_has_row(&w->f.t, a), sums = kir_int(k, a * sums_of_row(w));
    if (has) kir_if(k, has);
    if (divides(&w->f.q)) all = kir_load(k, w->acc, kir_add_i(k, sums, s->n));
    for (i64 c = 0; c < s->n; c++) {
        kval sum = kir_load(k, w->acc, kir_add_i(k, sums, c));
        if (all) sum = kir_bin(k, KI_DIV, sum, all);
        result_store(m, &w->f.r, (kval[]){w->f.t.n, kir_add_i(k, s->c, c), kir_add_i(k, w->f.t.y, a), filter_tile_pixels(&w->f.t)}, sum, 0);
    }
    if (has) kir_end(k);
}

/* All taps, or those of some rows, of a thread that has pixels. */
static void add_here(const struct pass *s, const struct filter_taps *some)
{
    const struct work *w = s->w;
    struct kir *k = w->f.t.m->k;
    bool alike = w->f.t.halo && !w->f.q.f.splat;
    if (!alike) kir_if(k, filter_tile_is_inside(&w->f.t));
    for (u32 i = 0; i < 2 - (u32)alike; i++) {
        struct pass own = *s;
        struct filter_taps p = some ? *some : (struct filter_taps){0};
        own.tested = i, p.inside = !i;
        if (i) kir_else(k);
        if (some) filter_taps_columns(&w->f.t, p, add_taps, &own);
        else filter_taps_all(&w->f.t, p.inside, add_taps, &own);
    }
    if (!alike) kir_end(k);
}

static void stage_weight(const void *user, const struct filter_stage *x)
{
    const struct work *w = user;
    struct kir *k = w->f.t.m->k;
    kir_store(k, w->f.t.staged, x->at, kir_cast(k, w->f.q.type, emit_value(w->f.t.m, w->f.q.side, x->idx)));
}

/* Some rows of taps, by staged weights. */
static void add_staged(const void *user, const struct filter_taps *p)
{
    const struct pass *s = user;
    struct kir *k = s->w->f.t.m->k;
    kir_barrier(k);
    filter_stage_each(&s->w->f.t, p, stage_weight, s->w);
    kir_barrier(k);
    kir_if(k, filter_tile_exists(&s->w->f.t));
    add_here(s, p);
    kir_end(k);
}

static void do_pass(const struct work *w, kval c, i64 n, bool again)
{
    struct kir *k = w->f.t.m->k;
    struct pass s = {w, c, n, false};
    filter_tile_fill(&w->f.t, c, n, again);
    for (i64 i = 0; i < w->f.t.ry * sums_of_row(w); i++)
        kir_store(k, w->acc, kir_int(k, i), kir_const_f(k, w->f.q.type, (u32)w->f.t.vec, i % sums_of_row(w) == n ? w->f.q.f.epsilon : 0));
    if (w->f.t.stage) filter_taps_blocks(&w->f.t, add_staged, &s);
    kir_if(k, filter_tile_exists(&w->f.t));
    if (w->f.q.f.softmax) find_peaks(w);
    if (!w->f.t.stage) add_here(&s, NULL);
    for (i64 a = 0; a < w->f.t.ry; a++) store_row(&s, a);
    kir_end(k);
}

static void do_tile(struct filter_work *f)
{
    struct work *w = (struct work *)f;
    struct kir *k = f->t.m->k;
    i64 whole = f->q.channels / w->block * w->block;
    bool many = whole > w->block;
    w->acc = kir_alloc(k, KS_REG, f->q.type, (u32)f->t.vec, kir_int(k, f->t.ry * sums_of_row(w)));
    if (f->q.f.softmax) w->peak = kir_alloc(k, KS_REG, f->q.type, (u32)f->t.vec, kir_int(k, f->t.ry));
    do_pass(w, many ? kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), w->block) : kir_int(k, 0), w->block, many);
    if (many) kir_end(k);
    if (whole < f->q.channels) do_pass(w, kir_int(k, whole), f->q.channels - whole, true);
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    struct work w = {0};
    filtering_of(&w.f.q, t, OP_FILTER);
    take(&w, s);
    w.f.t.m = m;
    filter_work_emit(&w.f, t, caps, 1, do_tile);
}

/* Choice. */

/* Of softmax, in multiply-adds per weight. */
static i64 exp_cost(const struct work *w) { return w->f.q.f.softmax ? 8 : 0; }

static bool view(const struct gen_problem *p, const struct sched *s)
{
    take(p->facts, s);
    return true;
}

static bool legal(const struct gen_problem *p, const struct sched *s)
{
    const struct work *w = p->facts;
    const struct caps *caps = p->c;
    if (!filter_tile_is_legal(&w->f.t, filter_weights(&w->f.q), caps)) return false;
    i64 own = w->f.t.ry * w->f.t.vec, loads = w->f.t.iu * own, sums = own * (sums_of_row(w) + w->f.q.f.softmax);
    if (w->f.t.stage && w->f.q.f.softmax) return false; /* all weights are wanted before the first is added */
    if (caps->deterministic && w->f.t.iu > 1) return false; /* rows of taps that are written out are added column by column */
    if (loads * w->f.t.ju > 1 && (loads > MAX_LOADS || loads * w->f.t.ju * (sums_of_row(w) + exp_cost(w)) > MAX_WRITTEN)) return false;
    return own == 1 || wg_has_registers(caps, w->f.t.threads, sums + loads);
}

static bool analyze(const struct gen_problem *p) { return filter_work_analyze(p, OP_FILTER); }

/* Weights once from memory, for every block of channels again. */
static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct work *w = p->facts;
    const struct filtering *q = &w->f.q;
    const struct filter_tile *t = &w->f.t;
    double passes = (double)ceil_div(q->channels, w->block), c = (double)q->channels + passes * (double)t->ones, ry = (double)t->ry;
    double addresses = q->f.splat ? 4 : 1, tap = passes * (addresses + filter_tile_moving(t, q->side)) + c * (double)t->vec;
    struct wg_facts f = {.threads = t->threads, .workgroups = filter_tile_groups(t, p->var), .step = {.barriers = t->halo ? 2 : 0}};
    tap += passes * (double)(t->vec * exp_cost(w)) + (q->f.softmax ? passes * filter_tile_moving(t, q->side) : 0);
    tap += (c * filter_tile_meeting(t) * (double)(t->ry + w->f.t.iu - 1) + 4 / (double)w->f.t.ju) / (ry * (double)w->f.t.iu);
    f.step.instructions = filter_tile_slots(t) * ((double)q->taps * ry * tap + passes * (filter_tile_copying(t) + filter_tile_staging(t)));
    f.bytes = gen_bytes(q->g, q->side, p->var) * passes / filter_tile_dense(t, filter_weights(q), p->c);
    f.bytes += gen_bytes(q->g, q->met, p->var) + gen_bytes(q->g, q->out, p->var);
    f.shared_bytes = filter_tile_bytes(t), f.ilp = ry * (double)t->vec;
    return wg_seconds(p, &f);
}

const struct gen gen_wg_filter = {
    GEN_FAMILY("wg_filter", 4), .facts = sizeof(struct work), .analyze = analyze, .view = view,
    .legal = legal, .emit = emit, .predict = predict,
};
