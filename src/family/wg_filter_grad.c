// SPDX-License-Identifier: Apache-2.0
//
// wg_filter_grad: gradient of the weights of a filter with weights of its own for every pixel (quern::FilterOuter) by workgroups: the
// products over channels of a pixel with what its taps meet. A thread has some rows of a vector of neighbouring pixels and goes through the taps, or, where groups
// share them out, through a few rows of these; each gradient is stored once, side by side with those of the thread's neighbours. Channels of the
// thread's pixels stay in registers where they fit; what taps meet is read once for all rows of taps that are written out and meet it (gen/wg_filter.h).
#include "gen/wg_filter.h"

enum { FEW_CHANNELS = 8 /* written out */, MAX_KEPT = 48 /* of a thread's pixels */, MAX_SUMS = 40, MAX_WRITTEN = 400 /* multiply-adds */ };


#define PARAMS(P) FILTER_PARAMS(P) P(split, "1: a group has but the rows of taps that are written out", 0, 1)
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct filter_tile, tile_of, FILTER_PARAMS)

struct work {
    struct filtering q;
    struct filter_tile t;
    struct result r;
    bool split, kept;                   /* kept: all channels of the thread's pixels are in registers */
    kval own[MAX_KEPT];                 /* [channel][row] */
    kval acc;                           /* REG array [row of taps][row] */
};

static void take(struct work *w, const struct sched *s)
{
    const struct filtering *q = &w->q;
    w->t = tile_of(s);
    filter_tile_init(&w->t, q, q->channels);
    w->t.ones = false;
    w->split = s->v[P_split], w->kept = q->channels <= FEW_CHANNELS && q->channels * w->t.ry * w->t.vec <= MAX_KEPT;
    if (w->split) w->t.span = w->t.iu;
}

/* Emission. */

/* The thread's pixels of row a, the last one of the image again behind the end. */
static kval own_row(const struct work *w, kval c, i64 a)
{
    struct emit *m = w->t.m;
    struct kir *k = m->k;
    kval y = kir_add_i(k, w->t.y, a);
    if (filter_tile_has_row(&w->t, a)) y = kir_min(k, y, kir_add_i(k, emit_size(m, w->q.size[0]), -1));
    kval v = emit_value(m, w->q.side, (kval[]){w->t.n, c, y, filter_tile_pixels(&w->t)});
    return kir_splat(k, kir_cast(k, w->q.type, v), (u32)w->t.vec);
}

static kval slot(const struct work *w, i64 tap, i64 a) { return kir_int(w->t.m->k, tap * w->t.ry + a); }

static void add_channel(const struct work *w, const struct filter_taps *p, kval c)
{
    struct kir *k = w->t.m->k;
    i64 number, row[FILTER_ROWS];
    bool known = kir_is_const(k, c, &number) && w->kept;
    u32 n = filter_taps_rows(&w->t, p, row);
    for (u32 r = 0; r < n; r++) {
        kval met = filter_taps_meet(&w->t, p, row[r], c, c);
        for (i64 a = 0; a < w->t.ry; a++) {
            i64 tap = filter_taps_tap(&w->t, p, a, row[r]);
            if (tap < 0) continue;
            kval own = known ? w->own[number * w->t.ry + a] : own_row(w, c, a), at = slot(w, tap, a);
            kir_store(k, w->acc, at, kir_fma(k, own, met, kir_load(k, w->acc, at)));
        }
    }
}

static void store(const struct work *w, const struct filter_taps *p, i64 a)
{
    struct emit *m = w->t.m;
    struct kir *k = m->k;
    kval has = w->t.stage ? 0 : filter_tile_has_row(&w->t, a);
    if (has) kir_if(k, has);
    for (i64 i = 0; i < p->n; i++) {
        kval tap = kir_add(k, kir_mul_i(k, kir_add_i(k, p->i, i), w->q.f.kernel[1]), p->j), v = kir_load(k, w->acc, slot(w, i, a));
        if (w->t.stage) kir_store(k, w->t.staged, filter_stage_at(&w->t, p, i, a), v);
        else result_store(m, &w->r, (kval[]){w->t.n, tap, kir_add_i(k, w->t.y, a), filter_tile_pixels(&w->t)}, v, 0);
    }
    if (has) kir_end(k);
}

static void do_taps(const void *user, const struct filter_taps *p)
{
    const struct work *w = user;
    struct kir *k = w->t.m->k;
    for (i64 i = 0; i < p->n * w->t.ry; i++) kir_store(k, w->acc, kir_int(k, i), kir_const_f(k, w->q.type, (u32)w->t.vec, 0));
    if (w->kept) {
        for (i64 c = 0; c < w->q.channels; c++) add_channel(w, p, kir_int(k, c));
    } else {
        add_channel(w, p, kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, w->q.channels), 1));
        kir_end(k);
    }
    for (i64 a = 0; a < w->t.ry; a++) store(w, p, a);
}

/* The rows of taps of a group that has but a few; the last group may have fewer. */
static void do_share(const struct work *w, bool inside)
{
    struct kir *k = w->t.m->k;
    i64 kh = w->q.f.kernel[0], rest = kh % w->t.iu;
    struct filter_taps p = {.i = w->t.first, .n = w->t.iu, .inside = inside};
    if (rest) kir_if(k, kir_lt(k, p.i, kir_int(k, kh - rest)));
    filter_taps_columns(&w->t, p, do_taps, w);
    if (!rest) return;
    kir_else(k);
    p.i = kir_int(k, kh - rest), p.n = rest;
    filter_taps_columns(&w->t, p, do_taps, w);
    kir_end(k);
}

/* All rows of taps of the group, or some, of a thread that has pixels. */
static void do_here(const struct work *w, const struct filter_taps *some)
{
    struct kir *k = w->t.m->k;
    if (!w->t.halo) kir_if(k, filter_tile_is_inside(&w->t));
    for (u32 i = 0; i < 2 - (u32)w->t.halo; i++) {
        struct filter_taps p = some ? *some : (struct filter_taps){0};
        p.inside = !i;
        if (i) kir_else(k);
        if (some) filter_taps_columns(&w->t, p, do_taps, w);
        else if (w->split) do_share(w, p.inside);
        else filter_taps_all(&w->t, p.inside, do_taps, w);
    }
    if (!w->t.halo) kir_end(k);
}

static void store_staged(const void *user, const struct filter_stage *x)
{
    const struct work *w = user;
    struct kir *k = w->t.m->k;
    kir_if(k, x->exists);
    result_store(w->t.m, &w->r, x->idx, kir_load(k, w->t.staged, x->at), 0);
    kir_end(k);
}

/* Of a thread that has pixels. */
static void keep_pixels(struct work *w)
{
    for (i64 i = 0; w->kept && i < w->q.channels * w->t.ry; i++)
        w->own[i] = own_row(w, kir_int(w->t.m->k, i / w->t.ry), i % w->t.ry);
}

/* Some rows of taps, stored by all threads together. */
static void do_staged(const void *user, const struct filter_taps *p)
{
    struct work w = *(const struct work *)user;
    struct kir *k = w.t.m->k;
    kir_barrier(k);
    kir_if(k, filter_tile_exists(&w.t));
    keep_pixels(&w);
    do_here(&w, p);
    kir_end(k);
    kir_barrier(k);
    filter_stage_each(&w.t, p, store_staged, &w);
}

static void do_tile(struct work *w)
{
    struct filter_tile *t = &w->t;
    struct kir *k = t->m->k;
    w->acc = kir_alloc(k, KS_REG, w->q.type, (u32)t->vec, kir_int(k, t->iu * t->ry));
    filter_tile_fill(t, kir_int(k, 0), w->q.channels, false);
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

static i64 shares(const struct work *w) { return w->split ? ceil_div(w->q.f.kernel[0], w->t.iu) : 1; }

static void grid(struct work *w)
{
    struct filter_tile *t = &w->t;
    struct emit *m = t->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    i64 n = shares(w);
    kval image = kir_grid(k, emit_size(m, sym_mul(st, w->q.batch, sym_const(st, n))));
    kval down = kir_grid(k, emit_size(m, filter_tile_parts(t, 0))), across = kir_grid(k, emit_size(m, filter_tile_parts(t, 1)));
    wg_enter(&t->g);
    t->n = kir_div_i(k, image, n), t->first = kir_mul_i(k, kir_mod_i(k, image, n), w->t.iu);
    filter_tile_enter(t, down, across);
    do_tile(w);
    for (u32 i = 0; i < 3; i++) kir_end(k);
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    struct work *w = arena_new(m->arena, struct work);
    filtering_of(&w->q, t, OP_FILTER_GRAD);
    take(w, s);
    w->t.m = m;
    wg_init(&w->t.g, m, w->t.threads, 0);
    emit_args(m);
    w->r = (struct result){.v = w->q.out, .inner = 3};
    if (!w->q.simple) result_open(m, &w->r, w->q.type);
    grid(w);
    if (w->r.temp) gen_elementwise_rest(m, t, caps, w->q.out, result_load, &w->r);
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
    const struct filtering *q = &w->q;
    if (!filter_tile_is_legal(&w->t, filter_weights(q), caps) || (w->split && w->t.iu == q->f.kernel[0])) return false;
    if (w->t.stage && (!q->simple || (w->split && q->f.kernel[0] % w->t.iu))) return false; /* barriers, and the loop over rows, are all threads' */
    i64 sums = w->t.iu * w->t.ry * w->t.vec, kept = w->kept ? q->channels * w->t.ry * w->t.vec : 0;
    if (sums > MAX_SUMS || (sums * w->t.ju > 1 && sums * w->t.ju * (w->kept ? q->channels : 1) > MAX_WRITTEN)) return false;
    return sums == 1 || wg_has_registers(caps, w->t.threads, sums + kept);
}

static bool analyze(const struct gen_problem *p)
{
    struct work *w = p->facts;
    return p->c->is_gpu && filtering_of(&w->q, p->t, OP_FILTER_GRAD) && wg_is_legal(p->c, param[P_threads].values[0], 0);
}

/* Gradients once to memory. */
static double seconds(const struct work *w, const struct caps *caps, const i64 *var)
{
    const struct filtering *q = &w->q;
    const struct filter_tile *t = &w->t;
    double c = (double)q->channels, ry = (double)t->ry, n = (double)shares(w), own = filter_tile_moving(t, q->side);
    struct wg_load l = {.threads = t->threads, .groups = filter_tile_groups(t, var) * n, .barriers = t->halo};
    double tap = 1 + filter_tile_moving(t, filter_weights(q)) + c * (double)t->vec + (w->kept ? 0 : c * own / (double)w->t.iu);
    tap += (c * filter_tile_meeting(t) * (double)(t->ry + w->t.iu - 1) + 4 / (double)w->t.ju) / (ry * (double)w->t.iu);
    l.flops = 2 * l.groups * filter_tile_slots(t) * ((double)q->taps / n * ry * tap + filter_tile_copying(t) + filter_tile_staging(t) + c * ry * own);
    l.bytes = gen_bytes(q->g, q->out, var) / filter_tile_dense(t, filter_weights(q), caps);
    l.bytes += gen_bytes(q->g, q->met, var) + gen_bytes(q->g, q->side, var);
    return wg_seconds(caps, &l) + 0.2 * l.flops / gen_flop_rate(caps);
}

static double predict(const struct gen_problem *p, const struct sched *s) { return seconds(p->facts, p->c, p->var); }

const struct gen gen_wg_filter_grad = {
    .version = 1,
    .name = "wg_filter_grad",
    .revision = 1,
    .param = param,
    .n_param = N_PARAM,
    .sums = SUMS_IN_PARTS,
    .facts = sizeof(struct work),
    .analyze = analyze,
    .view = view,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
