// SPDX-License-Identifier: Apache-2.0
//
// weighted_grad: gradient of the weights of a filter with weights of its own for every pixel (quern::FilterOuter), on processors:
// the products over channels of a pixel with the inputs of its taps. Time is what it takes to store them, each once, in vectors along x,
// past the caches where they are more than those hold. Strips and bands are gen/filter.c's; some taps of a row go through a strip together, so that
// few places of memory are written side by side.
#include "gen/filter.h"
#include "gen/nest.h"

#include <math.h>

enum { MAX_WRITTEN = 400 /* multiply-adds */, FEW_CHANNELS = 8 /* written out */ };

// clang-format off
#define PARAMS(P)                                                                  \
    P(th, "rows of a strip", 1, 2, 4, 8, 16, 32)                                   \
    P(tw, "columns of a strip, 0 = all", 0, 128, 256, 512, 1024)                   \
    P(nr, "vectors of pixels in registers", 1, 2, 4)                               \
    P(ju, "taps of a row that go through the strip together", 1, 2, 3, 4, 5, 7, 8) \
    P(nt, "1: stored past the caches", 0, 1)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)

struct work {
    struct emit *m;
    struct filtering q;
    struct strip s;
    struct result r;
    i64 nr, ju;
    kval acc; /* REG array [tap][vector] */
};

/* Taps j .. j+n-1 of row i, of nr vectors of the pixels (y, x ...), of the last the first `limit` lanes. */
struct piece {
    kval i, j, y, x, limit;
    i64 n, nr;
};

static kval vector_x(const struct work *w, const struct piece *p, i64 v) { return kir_add_i(w->m->k, p->x, v * w->s.lanes); }

static kval limit_of(const struct piece *p, i64 v) { return v == p->nr - 1 ? p->limit : 0; }

static kval slot(const struct work *w, i64 u, i64 v) { return kir_int(w->m->k, u * w->nr + v); }

static void add_channel(const struct work *w, const struct piece *p, kval c)
{
    struct kir *k = w->m->k;
    for (i64 v = 0; v < p->nr; v++) {
        kval x = vector_x(w, p, v);
        emit_limit(w->m, limit_of(p, v));
        kval a = emit_value(w->m, w->q.side, (kval[]){w->s.n, c, p->y, kir_ramp(k, x, 1, w->s.lanes)});
        a = kir_splat(k, kir_cast(k, w->q.type, a), w->s.lanes);
        for (i64 u = 0; u < p->n; u++) {
            kval at = strip_at(&w->s, c, p->y, x, p->i, kir_add_i(k, p->j, u));
            kval b = kir_load(k, w->s.band, kir_ramp(k, at, 1, w->s.lanes));
            kir_store(k, w->acc, slot(w, u, v), kir_fma(k, a, b, kir_load(k, w->acc, slot(w, u, v))));
        }
    }
    emit_limit(w->m, 0);
}

static void do_piece(const struct work *w, const struct piece *p)
{
    struct kir *k = w->m->k;
    for (i64 u = 0; u < p->n; u++)
        for (i64 v = 0; v < p->nr; v++) kir_store(k, w->acc, slot(w, u, v), kir_const_f(k, w->q.type, w->s.lanes, 0));
    enum kir_loop kind = w->q.channels <= FEW_CHANNELS ? KL_UNROLL : KL_SERIAL;
    add_channel(w, p, kir_loop(k, kind, kir_int(k, 0), kir_int(k, w->q.channels), 1));
    kir_end(k);
    for (i64 u = 0; u < p->n; u++)
        for (i64 v = 0; v < p->nr; v++) {
            kval tap = kir_add(k, kir_mul_i(k, p->i, w->q.f.kernel[1]), kir_add_i(k, p->j, u));
            kval idx[MAX_RANK] = {w->s.n, tap, p->y, kir_ramp(k, vector_x(w, p, v), 1, w->s.lanes)};
            emit_limit(w->m, limit_of(p, v));
            result_store(w->m, &w->r, idx, kir_load(k, w->acc, slot(w, u, v)), limit_of(p, v));
        }
    emit_limit(w->m, 0);
}

static void do_taps(const struct work *w, struct piece p)
{
    struct kir *k = w->m->k;
    i64 step = w->nr * w->s.lanes;
    p.y = kir_loop(k, KL_SERIAL, w->s.y0, w->s.y1, 1);
    kval n = kir_sub(k, w->s.x1, w->s.x0), whole = kir_mul_i(k, kir_div_i(k, n, step), step);
    p.x = kir_add(k, w->s.x0, kir_loop(k, KL_SERIAL, kir_int(k, 0), whole, step)), p.nr = w->nr;
    do_piece(w, &p);
    kir_end(k);
    kval x = kir_loop(k, KL_SERIAL, whole, n, w->s.lanes);
    p.x = kir_add(k, w->s.x0, x), p.nr = 1, p.limit = kir_min(k, kir_sub(k, n, x), kir_int(k, w->s.lanes));
    do_piece(w, &p);
    kir_end(k);
    kir_end(k);
}

static void do_strip(const struct work *w)
{
    struct kir *k = w->m->k;
    i64 kw = w->q.f.kernel[1], whole = kw / w->ju * w->ju;
    struct piece p = {.i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, w->q.f.kernel[0]), 1), .n = w->ju};
    p.j = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), w->ju);
    do_taps(w, p);
    kir_end(k);
    p.j = kir_int(k, whole), p.n = kw - whole;
    if (p.n) do_taps(w, p);
    kir_end(k);
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    struct work *w = arena_new(m->arena, struct work);
    const struct params v = params_of(s);
    filtering_of(&w->q, t, OP_FILTER_GRAD);
    w->m = m, w->nr = v.nr, w->ju = v.ju;
    w->s = (struct strip){.m = m, .q = &w->q, .lanes = filtering_lanes(&w->q, caps), .th = v.th, .tw = v.tw, .planes = w->q.channels};
    emit_args(m);
    w->r = (struct result){.v = w->q.out, .inner = 3};
    if (!w->q.simple) result_open(m, &w->r, w->q.type);
    strip_open(&w->s);
    w->acc = kir_alloc(m->k, KS_REG, w->q.type, w->s.lanes, kir_int(m->k, w->ju * w->nr));
    emit_stream(m, v.nt);
    do_strip(w);
    emit_stream(m, false);
    strip_close(&w->s);
    if (w->r.temp) gen_elementwise_rest(m, t, caps, w->q.out, result_load, &w->r);
}

/* Choice. */

static bool is_legal(const struct filtering *q, const struct caps *caps, struct params v)
{
    i64 lanes = filtering_lanes(q, caps);
    if (v.ju > q->f.kernel[1] || v.ju * v.nr + v.nr + 2 > (i64)caps->n_vector_regs) return false;
    if (v.ju * v.nr * (q->channels <= FEW_CHANNELS ? q->channels : 1) > MAX_WRITTEN) return false;
    if (v.tw && v.tw >= filtering_size(q, 1, NULL)) return false;
    if (v.nr > 1 && v.nr * lanes > (v.tw ? v.tw : filtering_size(q, 1, NULL))) return false;
    if (v.th > 1 && v.th >= 2 * filtering_size(q, 0, NULL)) return false;
    if (v.nt && !filtering_may_stream(q, caps, v.nr)) return false;
    return (v.th == 1 && v.nr == 1) || strip_band_bytes(q, q->channels, v.th, v.tw, NULL) <= (double)caps->l2_bytes;
}

static bool analyze(const struct gen_problem *p)
{
    return !p->c->is_gpu && p->c->vector_bytes >= 8 && filtering_of(p->facts, p->t, OP_FILTER_GRAD);
}

static bool legal(const struct gen_problem *p, const struct sched *s) { return is_legal(p->facts, p->c, params_of(s)); }

/* Stored at the memory's rate, half of it where lines are read to be overwritten; best a few maps side by side. */
static double predict(const struct gen_problem *p, const struct sched *s)
{
    const struct filtering *q = p->facts;
    const struct caps *caps = p->c;
    const struct params v = params_of(s);
    const i64 *var = p->var;
    double lanes = filtering_lanes(q, caps);
    double c = (double)q->channels, h = (double)filtering_size(q, 0, var), w = (double)filtering_size(q, 1, var), ju = v.ju, nr = v.nr;
    double images = (double)i64_max(1, gen_eval(q->g, q->batch, var)), taps = (double)q->taps;
    double tw = v.tw ? fmin(v.tw, w) : w, th = fmin(v.th, h), n = images * h * ceil(w / lanes);
    double used = (double)q->f.kernel[1] / (ju * ceil((double)q->f.kernel[1] / ju));
    double piece = taps * (0.5 * c * (1 + 1 / ju) + 1 + (c > FEW_CHANNELS ? 0.5 * c : 0) / (ju * nr) + 3 / (nr * ju)) / (0.7 + 0.3 * used);
    double band = (th + (double)(q->f.kernel[0] - 1) * (double)q->f.dilation[0]) / th * (1 + 40 / tw) * c * 3;
    if (graph_value(q->g, q->g->output.v[0])->layout != LAYOUT_ROWS) piece += taps * lanes;
    double threads = fmin(i64_max(1, caps->n_threads), ceil(h / th) * images * ceil(w / tw));
    double memory = gen_bytes(q->g, q->out, var) * p->nest->line[RATE_DRAM] * (1 + 0.01 * ju + 0.12 / ju), work = n * (piece + band) * p->nest->cycle / threads;
    double plain = 2e-6 + fmax(work, memory) + 0.2 * work;
    return v.nt ? gen_nt_seconds(p, plain) : plain;
}

const struct gen gen_weighted_grad = {
    GEN_FAMILY("weighted_grad", 2), .facts = sizeof(struct filtering), .analyze = analyze,
    .legal = legal, .emit = emit, .predict = predict,
};
