// SPDX-License-Identifier: Apache-2.0
//
// weighted_filter: filters with weights of their own for every pixel (quern::Filter), on processors. Time is what it takes to read
// the weights: each is read once, in vectors along x, for all channels. Strips of the output with the band of input that they
// meet are gen/filter.c's. Within a strip either a piece of a row goes through all taps with its sums in registers, or some rows of
// taps go through all of the strip, with sums in scratch memory, so that fewer places of memory are read side by side and longer.
// Weights that lie side by side for a pixel are read in vectors of taps, and the pieces' are transposed in scratch memory. For softmax a piece goes
// through its weights twice, for the largest one first, the second time from the caches.
#include "gen/filter.h"
#include "gen/nest.h"

#include <math.h>

enum { MAX_WRITTEN = 400 /* multiply-adds */, MAX_BLOCKS = 8 /* transposed at a time */, MANY_MAPS = 40, MAX_NR = 4 };

// clang-format off
#define PARAMS(P)                                                                                      \
    P(th, "rows of a strip", 1, 2, 4, 8, 16, 32)                                                       \
    P(tw, "columns of a strip, 0 = all", 0, 128, 256, 512, 1024)                                       \
    P(nr, "vectors of pixels in registers", 1, 2, 3, 4)                                                \
    P(rows, "rows of taps that go through the strip together, 0 = all, sums in registers", 0, 1, 2, 4) \
    P(ju, "taps of a row written out, 0 = all", 0, 1, 2, 4, 8)                                         \
    P(ahead, "vectors that weights are asked for ahead, 0 = not", 0, 2, 4, 8, 16)                      \
    P(nt, "1: outputs are stored past the caches", 0, 1)                                               \
    P(transpose, "1: weights are read in vectors along taps and transposed", 0, 1)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)

struct work {
    struct emit *m;
    struct filtering q;
    struct strip s;
    struct result r;
    i64 nr, group, ju, ahead;
    i64 block;     /* channels that have sums in registers at once */
    kval acc;      /* REG array: [channel of the block, the ones', or the weights', behind them][vector] */
    kval peak;     /* REG array [vector]: the largest weight of a pixel, for softmax */
    kval sums;     /* WORK array [row][plane][column]; 0: sums are in registers from the first to the last tap */
    kval weights;  /* WORK array [tap][pixel of a piece]: transposed weights; 0: read in place */
    struct transpose t;
};

/* Pieces of a row: nr vectors, of the last the first `limit` lanes (0: all), of `channels` channels from c on. */
struct piece {
    kval c, y, x, limit;
    i64 channels, nr;
    bool inside;   /* splat: all weights that taps ask for exist */
};

static i64 planes_of(const struct work *w, const struct piece *p) { return p->channels + (w->q.f.normalize ? 1 : 0); }

/* With sums, too, of what divides them. */
static i64 sums_of(const struct filtering *q, i64 channels) { return channels + (q->f.normalize || q->f.softmax ? 1 : 0); }

static kval plane(const struct work *w, const struct piece *p, i64 i)
{
    struct kir *k = w->m->k;
    return i < p->channels ? kir_add_i(k, p->c, i) : kir_int(k, w->q.channels);
}

static kval slot(const struct work *w, i64 plane, i64 v) { return kir_int(w->m->k, plane * w->nr + v); }

static kval vector_x(const struct work *w, const struct piece *p, i64 v) { return kir_add_i(w->m->k, p->x, v * w->s.lanes); }

/* Weights. */

/* Column of the weights of tap column j at the piece's vector v. */
static kval weight_x(const struct work *w, const struct piece *p, i64 v, kval j)
{
    struct kir *k = w->m->k;
    kval x = vector_x(w, p, v);
    if (!w->q.f.splat) return kir_ramp(k, x, 1, w->s.lanes);
    x = kir_sub(k, kir_add_i(k, x, w->q.f.begin[1]), kir_mul_i(k, j, w->q.f.dilation[1]));
    x = kir_ramp(k, x, 1, w->s.lanes);
    return p->inside ? x : emit_clamp(w->m, x, graph_value(w->q.g, w->q.side)->shape.dim[3]);
}

static kval weight_y(const struct work *w, const struct piece *p, kval i)
{
    struct kir *k = w->m->k;
    if (!w->q.f.splat) return p->y;
    return kir_sub(k, kir_add_i(k, p->y, w->q.f.begin[0]), kir_mul_i(k, i, w->q.f.dilation[0]));
}

/* Element of the transposed weights of a tap, of vector v. */
static kval transposed_at(const struct work *w, kval tap, kval v)
{
    struct kir *k = w->m->k;
    return kir_mul_i(k, kir_add(k, kir_mul_i(k, tap, w->nr), v), w->s.lanes);
}

/* Taps of a pixel come in parts of a vector, the last of which may repeat some of the one before. */
static i64 part_of(const struct work *w) { return i64_min(w->q.taps, w->s.lanes); }
static i64 parts_of(const struct work *w) { return ceil_div(w->q.taps, w->s.lanes); }

/* Of block b of a piece, a part of a vector's taps: number of the vector, first tap. */
static void block_at(const struct work *w, kval b, kval *v, kval *tap)
{
    struct kir *k = w->m->k;
    *v = kir_div_i(k, b, parts_of(w));
    *tap = kir_min(k, kir_mul_i(k, kir_mod_i(k, b, parts_of(w)), w->s.lanes), kir_int(k, w->q.taps - part_of(w)));
}

static kval some_weights(const struct work *w, const struct piece *p, kval tap, kval x)
{
    struct emit *m = w->m;
    struct kir *k = m->k;
    if (p->limit) x = emit_clamp(m, x, graph_value(w->q.g, w->q.side)->shape.dim[3]);
    if (w->ahead && m->buf[w->q.side] && !graph_value(w->q.g, w->q.side)->part.whole) {
        kval next[] = {w->s.n, tap, p->y, kir_add_i(k, x, w->ahead * w->s.lanes)};
        kir_prefetch(k, m->buf[w->q.side], emit_offset(m, w->q.side, next));
    }
    emit_limit(m, part_of(w) < w->s.lanes ? kir_int(k, part_of(w)) : 0);
    kval some = emit_value(m, w->q.side, (kval[]){w->s.n, kir_ramp(k, tap, 1, w->s.lanes), p->y, x});
    emit_limit(m, 0);
    return kir_splat(k, kir_cast(k, w->q.type, some), w->s.lanes);
}

/* The piece's weights go pixel by pixel to blocks that are transposed. */
static void transpose_weights(const struct work *w, const struct piece *p)
{
    struct kir *k = w->m->k;
    i64 n = w->s.lanes, all = p->nr * parts_of(w);
    kval zero = kir_int(k, 0), v, tap, from = kir_loop(k, KL_SERIAL, zero, kir_int(k, all), MAX_BLOCKS);
    kval blocks = kir_min(k, kir_sub(k, kir_int(k, all), from), kir_int(k, MAX_BLOCKS));
    kval i = kir_loop(k, KL_SERIAL, zero, kir_int(k, n), 1), b = kir_loop(k, KL_SERIAL, zero, blocks, 1);
    block_at(w, kir_add(k, from, b), &v, &tap);
    transpose_row(&w->t, b, i, some_weights(w, p, tap, kir_add(k, p->x, kir_add(k, kir_mul_i(k, v, n), i))));
    kir_end(k);
    kir_end(k);
    u32 done = transpose_blocks(&w->t, blocks);
    b = kir_loop(k, KL_SERIAL, zero, blocks, 1);
    block_at(w, kir_add(k, from, b), &v, &tap);
    transpose_store(&w->t, done, b, &(struct transpose_to){w->weights, transposed_at(w, tap, v), w->nr * n, part_of(w)});
    kir_end(k);
    kir_end(k);
}

/* again: they were read before. With softmax the later ones are asked for then, beside what is computed. */
static kval weights(const struct work *w, const struct piece *p, i64 v, kval i, kval j, bool again)
{
    struct emit *m = w->m;
    struct kir *k = m->k;
    kval tap = kir_add(k, kir_mul_i(k, i, w->q.f.kernel[1]), j);
    if (w->weights) return kir_load(k, w->weights, kir_ramp(k, transposed_at(w, tap, kir_int(k, v)), 1, w->s.lanes));
    kval x = weight_x(w, p, v, j), y = weight_y(w, p, i);
    if (w->ahead && again == w->q.f.softmax && emit_is_stored(m, w->q.side) && (!w->q.f.splat || p->inside)) {
        kval next = kir_add_i(k, kir_lane(k, x, 0), w->ahead * w->s.lanes);
        kir_prefetch(k, m->buf[w->q.side], emit_offset(m, w->q.side, (kval[]){w->s.n, tap, y, next}));
    }
    return kir_splat(k, kir_cast(k, w->q.type, emit_value(m, w->q.side, (kval[]){w->s.n, tap, y, x})), w->s.lanes);
}

/* Sums. */

static void add_tap(const struct work *w, const struct piece *p, kval i, kval j)
{
    struct kir *k = w->m->k;
    for (i64 v = 0; v < p->nr; v++) {
        emit_limit(w->m, v == p->nr - 1 ? p->limit : 0);
        kval weight = weights(w, p, v, i, j, w->q.f.softmax);
        if (w->q.f.softmax) {
            kval all = slot(w, p->channels, v);
            weight = kir_un(k, KI_EXP, kir_sub(k, weight, kir_load(k, w->peak, kir_int(k, v))));
            kir_store(k, w->acc, all, kir_add(k, kir_load(k, w->acc, all), weight));
        }
        for (i64 c = 0; c < planes_of(w, p); c++) {
            kval at = strip_at(&w->s, plane(w, p, c), p->y, vector_x(w, p, v), i, j);
            kval x = kir_load(k, w->s.band, kir_ramp(k, at, 1, w->s.lanes));
            kir_store(k, w->acc, slot(w, c, v), kir_fma(k, weight, x, kir_load(k, w->acc, slot(w, c, v))));
        }
    }
    emit_limit(w->m, 0);
}

typedef void tap_fn(const struct work *w, const struct piece *p, kval i, kval j);

static void each_tap(const struct work *w, const struct piece *p, kval i, tap_fn *fn)
{
    struct kir *k = w->m->k;
    i64 kw = w->q.f.kernel[1], ju = w->ju ? i64_min(w->ju, kw) : kw, whole = kw / ju * ju;
    kval j = whole > ju ? kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), ju) : kir_int(k, 0);
    for (i64 u = 0; u < ju; u++) fn(w, p, i, kir_add_i(k, j, u));
    if (whole > ju) kir_end(k);
    for (i64 u = whole; u < kw; u++) fn(w, p, i, kir_int(k, u));
}

/* Rows of taps from .. to-1, as far as there are weights. */
static void add_rows(const struct work *w, const struct piece *p, kval from, kval to)
{
    struct kir *k = w->m->k;
    if (w->q.f.splat) {
        i64 d = w->q.f.dilation[0];
        kval y = kir_add_i(k, p->y, w->q.f.begin[0]), last = kir_add_i(k, emit_dim(w->m, w->q.side, 2), -1);
        kval beyond = kir_max(k, kir_sub(k, y, last), kir_int(k, 0));
        from = kir_max(k, from, kir_div_i(k, kir_add_i(k, beyond, d - 1), d));
        to = kir_min(k, to, kir_add_i(k, kir_div_i(k, y, d), 1));
    }
    each_tap(w, p, kir_loop(k, KL_SERIAL, from, to, 1), add_tap);
    kir_end(k);
}

static void raise_peak(const struct work *w, const struct piece *p, kval i, kval j)
{
    struct kir *k = w->m->k;
    for (i64 v = 0; v < p->nr; v++) {
        emit_limit(w->m, v == p->nr - 1 ? p->limit : 0);
        kval weight = weights(w, p, v, i, j, false);
        kir_store(k, w->peak, kir_int(k, v), kir_max(k, kir_load(k, w->peak, kir_int(k, v)), weight));
    }
    emit_limit(w->m, 0);
}

static void find_peaks(const struct work *w, const struct piece *p)
{
    struct kir *k = w->m->k;
    for (i64 v = 0; v < p->nr; v++) kir_store(k, w->peak, kir_int(k, v), kir_const_f(k, w->q.type, w->s.lanes, -INFINITY));
    each_tap(w, p, kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, w->q.f.kernel[0]), 1), raise_peak);
    kir_end(k);
}

static kval sum_at(const struct work *w, const struct piece *p, i64 c, i64 v)
{
    struct kir *k = w->m->k;
    kval line = kir_add(k, kir_mul_i(k, kir_sub(k, p->y, w->s.y0), w->s.planes), plane(w, p, c));
    kval at = kir_add(k, kir_mul(k, line, emit_size(w->m, w->s.width)), kir_sub(k, vector_x(w, p, v), w->s.x0));
    return kir_ramp(k, at, 1, w->s.lanes);
}

static void keep_sums(const struct work *w, const struct piece *p)
{
    struct kir *k = w->m->k;
    for (i64 c = 0; c < planes_of(w, p); c++)
        for (i64 v = 0; v < p->nr; v++) kir_store(k, w->sums, sum_at(w, p, c, v), kir_load(k, w->acc, slot(w, c, v)));
}

/* What divides the sums of vector v, 0: nothing. */
static kval divisor(const struct work *w, const struct piece *p, i64 v)
{
    struct kir *k = w->m->k;
    if (!w->q.f.normalize && !w->q.f.softmax) return 0;
    return kir_load(k, w->acc, slot(w, p->channels, v));
}

/* A channel's vectors are stored behind each other: whole lines of memory. */
static void finish(const struct work *w, const struct piece *p)
{
    struct kir *k = w->m->k;
    kval all[MAX_NR];
    for (i64 v = 0; v < p->nr; v++) all[v] = divisor(w, p, v);
    for (i64 c = 0; c < p->channels; c++)
        for (i64 v = 0; v < p->nr; v++) {
            kval x = kir_ramp(k, vector_x(w, p, v), 1, w->s.lanes), limit = v == p->nr - 1 ? p->limit : 0, sum = kir_load(k, w->acc, slot(w, c, v));
            if (all[v]) sum = kir_bin(k, KI_DIV, sum, all[v]);
            emit_limit(w->m, limit);
            result_store(w->m, &w->r, (kval[]){w->s.n, plane(w, p, c), p->y, x}, sum, limit);
            emit_limit(w->m, 0);
        }
}

/* A strip. */

struct tap_rows {
    kval from, to;     /* rows of taps */
    bool first, last;  /* sums begin with it, end with it */
};

static void do_piece(const struct work *w, const struct piece *p, const struct tap_rows *r)
{
    if (w->weights) transpose_weights(w, p);
    if (w->q.f.softmax) find_peaks(w, p);
    struct kir *k = w->m->k;
    for (i64 c = 0; c < sums_of(&w->q, p->channels); c++)
        for (i64 v = 0; v < p->nr; v++)
            kir_store(k, w->acc, slot(w, c, v),
                      r->first ? kir_const_f(k, w->q.type, w->s.lanes, c == p->channels ? w->q.f.epsilon : 0) : kir_load(k, w->sums, sum_at(w, p, c, v)));
    if (r->from) add_rows(w, p, r->from, r->to);
    if (r->last) finish(w, p);
    else keep_sums(w, p);
}

/* Splatted: do the taps of nr vectors from x on find all their weights? */
static kval is_inside(const struct work *w, const struct piece *p)
{
    struct kir *k = w->m->k;
    const struct op_filter *f = &w->q.f;
    kval from = kir_add_i(k, p->x, f->begin[1] - (f->kernel[1] - 1) * f->dilation[1]);
    kval to = kir_add_i(k, p->x, f->begin[1] + p->nr * w->s.lanes);
    kval end = emit_dim(w->m, w->q.side, 3);
    return kir_bin(k, KI_AND, kir_bin(k, KI_LE, kir_int(k, 0), from), kir_bin(k, KI_LE, to, end));
}

static void whole_piece(const struct work *w, struct piece *p, const struct tap_rows *r)
{
    struct kir *k = w->m->k;
    p->inside = w->q.f.splat;
    if (p->inside && r->from) kir_if(k, is_inside(w, p));
    do_piece(w, p, r);
    if (!p->inside || !r->from) return;
    kir_else(k);
    p->inside = false;
    do_piece(w, p, r);
    kir_end(k);
}

/* All pieces of row y; the last ones have one vector. */
static void do_row(const struct work *w, struct piece p, const struct tap_rows *r)
{
    struct kir *k = w->m->k;
    i64 step = w->nr * w->s.lanes;
    kval n = kir_sub(k, w->s.x1, w->s.x0), whole = kir_mul_i(k, kir_div_i(k, n, step), step);
    p.nr = w->nr;
    p.x = kir_add(k, w->s.x0, kir_loop(k, KL_SERIAL, kir_int(k, 0), whole, step));
    whole_piece(w, &p, r);
    kir_end(k);
    kval i = kir_loop(k, KL_SERIAL, whole, n, w->s.lanes);
    p.x = kir_add(k, w->s.x0, i), p.nr = 1, p.inside = false;
    p.limit = kir_min(k, kir_sub(k, n, i), kir_int(k, w->s.lanes));
    do_piece(w, &p, r);
    kir_end(k);
}

static void do_rows(const struct work *w, const struct tap_rows *r)
{
    struct kir *k = w->m->k;
    i64 whole = w->q.channels / w->block * w->block;
    struct piece p = {.y = kir_loop(k, KL_SERIAL, w->s.y0, w->s.y1, 1), .channels = w->block};
    p.c = whole > w->block ? kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), w->block) : kir_int(k, 0);
    do_row(w, p, r);
    if (whole > w->block) kir_end(k);
    if (whole < w->q.channels) {
        p.c = kir_int(k, whole), p.channels = w->q.channels - whole;
        do_row(w, p, r);
    }
    kir_end(k);
}

static void do_strip(struct work *w)
{
    struct kir *k = w->m->k;
    kval zero = kir_int(k, 0), rows = kir_int(k, w->q.f.kernel[0]);
    if (!w->group) {
        do_rows(w, &(struct tap_rows){zero, rows, true, true});
        return;
    }
    do_rows(w, &(struct tap_rows){zero, kir_int(k, w->group), true, false});
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, w->group), rows, w->group);
    do_rows(w, &(struct tap_rows){i, kir_min(k, kir_add_i(k, i, w->group), rows), false, false});
    kir_end(k);
    do_rows(w, &(struct tap_rows){0, 0, false, true});
}

/* Channels of a pass: as many as have registers, all passes alike. */
static i64 block_of(const struct filtering *q, const struct caps *caps, i64 nr)
{
    i64 most = ((i64)caps->n_vector_regs - 2 - nr * (1 + q->f.softmax)) / nr - sums_of(q, 0);
    if (most < 1) return 0;
    return ceil_div(q->channels, ceil_div(q->channels, most));
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    struct work *w = arena_new(m->arena, struct work);
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const struct params v = params_of(s);
    filtering_of(&w->q, t, OP_FILTER);
    w->m = m, w->nr = v.nr, w->group = v.rows, w->ju = v.ju, w->ahead = v.ahead;
    w->block = block_of(&w->q, caps, w->nr);
    w->s = (struct strip){.m = m, .q = &w->q, .lanes = filtering_lanes(&w->q, caps), .th = v.th, .tw = v.tw,
                          .planes = w->q.channels + (w->q.f.normalize ? 1 : 0)};
    emit_args(m);
    w->r = (struct result){.v = w->q.out, .inner = 3};
    if (!w->q.simple) result_open(m, &w->r, w->q.type);
    strip_open(&w->s);
    w->acc = kir_alloc(k, KS_REG, w->q.type, w->s.lanes, kir_int(k, (w->block + 1) * w->nr));
    if (w->q.f.softmax) w->peak = kir_alloc(k, KS_REG, w->q.type, w->s.lanes, kir_int(k, w->nr));
    sym n = sym_mul(st, w->s.width, sym_const(st, w->s.th * w->s.planes));
    if (w->group) w->sums = kir_alloc(k, KS_WORK, w->q.type, 1, emit_size(m, n));
    if (v.transpose) {
        transpose_open(&w->t, k, w->q.type, w->s.lanes, i64_min(MAX_BLOCKS, w->nr * parts_of(w)));
        w->weights = kir_alloc(k, KS_WORK, w->q.type, 1, kir_int(k, w->q.taps * w->nr * w->s.lanes));
    }
    emit_stream(m, v.nt);
    do_strip(w);
    emit_stream(m, false);
    strip_close(&w->s);
    if (w->r.temp) gen_elementwise_rest(m, t, caps, w->q.out, result_load, &w->r);
}

/* Choice. */

/* Of a vector, in multiply-adds. */
static double exp_cost(const struct filtering *q) { return q->f.softmax ? 16 : 0; }

static double transposed_bytes(const struct filtering *q, const struct caps *caps, struct params v)
{
    return (double)(v.nr * q->taps * filtering_lanes(q, caps) * dtype_size(q->type));
}

static bool is_legal(const struct filtering *q, const struct caps *caps, struct params v)
{
    i64 lanes = filtering_lanes(q, caps), block = block_of(q, caps, v.nr), kw = q->f.kernel[1];
    i64 ju = v.ju ? v.ju : kw, planes = q->channels + q->f.normalize;
    if (!block || (v.nr > 1 && block < q->channels) || ju > kw || (v.ju == kw)) return false;
    if (ju * ((i64)exp_cost(q) + sums_of(q, block)) * v.nr > MAX_WRITTEN && ju > 1) return false;
    if (v.rows && q->f.softmax) return false; /* its largest weight comes first */
    if (v.rows && q->f.normalize && block < q->channels) return false; /* passes would share the kept sum of weights */
    if (v.rows >= q->f.kernel[0] || (v.ahead && !v.transpose && graph_value(q->g, q->side)->layout != LAYOUT_ROWS)) return false;
    if (v.transpose && (!q->by_taps || q->f.splat || v.rows)) return false;
    if (v.transpose && v.nr > 1 && transposed_bytes(q, caps, v) > (double)caps->l2_bytes / 2) return false;
    if (v.tw && v.tw >= filtering_size(q, 1, NULL)) return false;
    if (v.nt && !filtering_may_stream(q, caps, v.nr)) return false;
    if (v.nr > 1 && v.nr * lanes > (v.tw ? v.tw : filtering_size(q, 1, NULL))) return false;
    if (v.th > 1 && v.th >= 2 * filtering_size(q, 0, NULL)) return false;
    double bytes = strip_band_bytes(q, planes, v.th, v.tw, NULL) * (v.rows ? 2 : 1);
    return (v.th == 1 && v.nr == 1 && !v.rows) || bytes <= (double)caps->l2_bytes;
}

/* Tells, too, how weights are read. */
static bool analyze(const struct gen_problem *p)
{
    struct filtering *q = p->facts;
    if (p->c->is_gpu || p->c->vector_bytes < 8 || !filtering_of(q, p->t, OP_FILTER)) return false;
    filtering_reads(q, p->c);
    return block_of(q, p->c, 1) > 0;
}

static bool legal(const struct gen_problem *p, const struct sched *s) { return is_legal(p->facts, p->c, params_of(s)); }

/* Share of the time of reading, by how many lines weights are asked for ahead: too few come late, too many push each other out. */
static double lateness(struct params v, double lines)
{
    double ahead = v.ahead * lines;
    return v.ahead ? 0.3 / ahead + 0.008 * ahead : 0.4;
}

/* By what reading takes longer than the memory's rate allows: many maps read side by side, several lines of each, short runs, nothing asked for in
   time. lines: of a vector */
static double rate_loss(struct params v, double live, double kw, double lines)
{
    double written = v.ju ? v.ju : kw, runs = v.tw ? 128.0 / v.tw : 0;
    double maps = 1.5 + 0.04 * fmax(0, fmin(live, MANY_MAPS) - 8);
    return maps * (1 + lateness(v, lines) + runs) * (1 + 0.01 * written) * (1 + 0.08 * fmax(0, v.nr * lines - 1));
}

/* Cycles to transpose the weights of a vector of pixels, whole blocks of them; few blocks at a time wait for what was just stored. */
static double turning(const struct filtering *q, const struct caps *caps, struct params v)
{
    i64 lanes = filtering_lanes(q, caps);
    double each = transposed_bytes(q, caps, v) > (double)caps->l1_bytes / 2 ? 16 : 11;
    return (double)(ceil_div(q->taps, lanes) * lanes) * each * (v.nr > 1 ? 1 : 1.15);
}

/* Weights arrive at the memory's rate, less where many places are read side by side; meanwhile vectors of them meet every plane.
   step, piece and band are cycles. */
static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct filtering *q = p->facts;
    const struct caps *caps = p->c;
    const struct params v = params_of(s);
    const i64 *var = p->var;
    const struct nest_rates *r = p->nest;
    double lanes = filtering_lanes(q, caps), nr = v.nr, lines = lanes * (double)dtype_size(q->type) / 64;
    double planes = (double)(q->channels + q->f.normalize), h = (double)filtering_size(q, 0, var), w = (double)filtering_size(q, 1, var);
    double images = (double)i64_max(1, gen_eval(q->g, q->batch, var)), taps = (double)q->taps, kw = (double)q->f.kernel[1];
    double tw = v.tw ? fmin(v.tw, w) : w, th = fmin(v.th, h), n = images * h * ceil(w / lanes);
    double passes = ceil((double)q->channels / (double)block_of(q, caps, v.nr));
    double step = nest_tap(r, planes * nr, (planes + passes) * nr) / nr / r->cycle + 0.3 + (v.ju == 1 ? 0.5 : 0) + (v.ahead ? 0.5 : 0);
    if (q->f.softmax) step += passes * (0.5 * exp_cost(q) + 1);
    double sweeps = v.rows ? ceil((double)q->f.kernel[0] / v.rows) : 1, live = taps / sweeps;
    double piece = taps * step + sweeps * (planes + 4 / nr + kw / nr);
    double band = (th + (double)(q->f.kernel[0] - 1) * (double)q->f.dilation[0]) / th * (1 + 40 / tw) * planes * 3;
    bool rows = graph_value(q->g, q->side)->layout == LAYOUT_ROWS;
    if (v.transpose) piece += turning(q, caps, v), live = 1;
    else if (!rows || q->by_taps) piece += taps * lanes;
    double threads = fmin(i64_max(1, caps->n_threads), ceil(h / th) * images * ceil(w / tw));
    double bytes = gen_bytes(q->g, q->side, var), far = bytes > (double)caps->l3_bytes / 2 ? 1 : 0.3;
    double out = gen_bytes(q->g, q->out, var); /* its lines are read to be overwritten, too, or, streamed, by the kernel that reads it next */
    bytes += (v.nt ? (bytes > (double)caps->l3_bytes ? 1.2 : 3) : 2) * out;
    double memory = far * bytes * r->line[RATE_DRAM] * rate_loss(v, live, kw, lines), work = n * (piece + band) * r->cycle / threads;
    return r->launch + nest_both(work, memory) + lateness(v, lines) * memory; /* nothing is computed before a late weight */
}

const struct gen gen_weighted_filter = {
    GEN_FAMILY("weighted_filter", 6), .facts = sizeof(struct filtering), .analyze = analyze,
    .legal = legal, .emit = emit, .predict = predict,
};
