// SPDX-License-Identifier: Apache-2.0
//
// wg_pool: windows that slide over an input (max, mean and power pooling) by workgroups.
// A thread has a vector of rc neighbouring channels, on ry rows of rx pixels (gen/halo_window.h). Rows of
// the footprint are combined along x first, once for each pixel, and the results to all rows of outputs that meet
// them, so that windows of k x k cost 2k rather than k*k operations where they overlap.
//
// Elements come straight from the input, or from the input tile in shared memory, which pays once for the
// prologue and reads dense rows where the input has x innermost. Around the input stands
// the neutral element; a mean is divided by the number of taps that count, per output.
#include "gen/halo_window.h"

enum { MAX_READS = 256 /* of a thread, written out */, MAX_TAPS = 32 /* of an axis */ };

// clang-format off
#define PARAMS(P)                                                                                           \
    WINDOW_TILE(P)                                                                                          \
    P(rx, "pixels of a row of a thread", 1, 2, 4)                                                           \
    P(ry, "rows of a thread", 1, 2, 4, 8)                                                                   \
    WINDOW_REUSE(P)                                                                                         \
    P(stage, "1: the input passes through shared memory", 0, 1)                                             \
    WINDOW_STORE(P)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct window_params, params_of, PARAMS)

struct pooling {
    struct halo_task q;
    struct op_pool op;
    struct op_window w;
};

struct facts { struct pooling pool; struct window_plan w; };

static bool pool_of(struct pooling *p, const struct task *task)
{
    const struct graph *g = &task->g;
    node_id node = gen_pool_node(task);
    struct conv *c = &p->q.c;
    i64 channels;
    *p = (struct pooling){0};
    if (!node) return false;
    const struct node *n = graph_node(g, node);
    const struct value *x = graph_value(g, n->in.v[0]);
    if (!dtype_is_float(x->dtype) || !sym_is_const(g->sym, x->shape.dim[1], &channels)) return false;
    conv_window(c, g, n);
    c->groups = channels, c->ic = c->oc = 1;
    op_window_get(g, n, &p->w);
    op_of(g, node)->pool(g, n, &p->op);
    return channels > 0 && halo_task_takes(&p->q, task);
}

/* Emission. */

struct work {
    const struct facts *x;
    struct footprint f;
    kval none;    /* the neutral element, with which a window begins */
    bool ordered; /* the sums and means of the definition: tap by tap, divided */
};

static kval read_element(const struct work *t, i64 y, i64 x)
{
    const struct op_pool *op = &t->x->pool.op;
    kval v = footprint_read(&t->f, y, x);
    return op->tap ? op->tap(t->f.h->m->k, v, op->p) : v;
}

static bool is_met(const struct window_side *s, i64 element)
{
    for (i64 i = 0; i < s->n; i++)
        if (window_side_tap(s, element, i) >= 0) return true;
    return false;
}

static void add_to(const struct work *t, i64 pixel, kval v)
{
    struct kir *k = t->f.h->m->k;
    kval slot = kir_int(k, pixel), old = kir_load(k, t->f.acc, slot);
    kir_store(k, t->f.acc, slot, emit_combine(k, t->x->pool.op.combine, old, v));
}

/* Folds row y of the footprint into all results that use it, tap by tap. */
static void add_taps(const struct work *t, i64 y)
{
    const struct window_side *sy = &t->f.w->y, *sx = &t->f.w->x;
    for (i64 x = 0; x < sx->size; x++) {
        kval v = is_met(sx, x) ? read_element(t, y, x) : 0;
        for (i64 i = 0; i < sy->n * sx->n; i++)
            if (window_side_tap(sy, y, i / sx->n) >= 0 && window_side_tap(sx, x, i % sx->n) >= 0) add_to(t, i, v);
    }
}

/* Likewise, along x first, per pixel. */
static void add_row(const struct work *t, i64 y)
{
    const struct window_side *sy = &t->f.w->y, *sx = &t->f.w->x;
    struct kir *k = t->f.h->m->k;
    enum kir_op combine = t->x->pool.op.combine;
    kval row[WINDOW_CELLS] = {0};
    bool is_max = combine == KI_MAX; /* a NaN must not be what a row begins with */
    for (i64 x = 0; x < sx->size; x++) {
        kval v = is_met(sx, x) ? read_element(t, y, x) : 0;
        for (i64 i = 0; i < sx->n; i++)
            if (window_side_tap(sx, x, i) >= 0)
                row[i] = row[i] || is_max ? emit_combine(k, combine, row[i] ? row[i] : t->none, v) : v;
    }
    for (i64 i = 0; i < sy->n * sx->n; i++)
        if (window_side_tap(sy, y, i / sx->n) >= 0) add_to(t, i, row[i % sx->n]);
}

static void add_up(void *user, struct footprint *f)
{
    const struct work *t = user;
    footprint_open_loops(f);
    for (i64 y = 0; y < f->w->y.size; y++)
        if (is_met(&f->w->y, y)) t->ordered ? add_taps(t, y) : add_row(t, y);
    footprint_close_loops(f);
}

/* Taps that count along an axis, for the output at o. */
static kval count_of(const struct work *t, u32 axis, kval o)
{
    const struct pooling *p = &t->x->pool;
    struct emit *m = t->f.h->m;
    kval r[2];
    op_taps_range(m, &p->w, &graph_value(m->g, p->q.c.x)->shape, axis - 2, o, p->op.count_pad, r);
    return kir_sub(m->k, r[1], r[0]);
}

/* What the sum of the pixel (y, x) is divided by, at least 1. */
static kval divisor(const struct work *t, i64 y, i64 x)
{
    const struct halo *h = t->f.h;
    const struct conv *c = &h->q->c;
    struct kir *k = h->m->k;
    kval n = kir_int(k, 1);
    for (u32 a = 2; a < c->rank; a++) {
        kval o = h->pos[a];
        if ((i32)a == c->ya) o = kir_add(k, h->y0, kir_add_i(k, h->at[AT_Y], y));
        if ((i32)a == c->xa) o = kir_add(k, h->x0, kir_add_i(k, h->at[AT_X], x));
        n = kir_mul(k, n, count_of(t, a, o));
    }
    return kir_cast(k, h->p->type, kir_max(k, n, kir_int(k, 1)));
}

static void finish(const struct work *t)
{
    const struct op_pool *op = &t->x->pool.op;
    const struct window_params *p = &t->x->w.v;
    struct kir *k = t->f.h->m->k;
    for (i64 i = 0; i < p->ry * p->rx; i++) {
        kval v = kir_load(k, t->f.acc, kir_int(k, i));
        if (op->mean) {
            kval n = divisor(t, i / p->rx, i % p->rx);
            kval by = t->ordered ? n : kir_bin(k, KI_DIV, kir_const_f(k, t->f.h->p->type, 1, 1), n);
            v = kir_bin(k, t->ordered ? KI_DIV : KI_MUL, v, kir_splat(k, by, (u32)p->rc));
        }
        if (op->finish) v = op->finish(k, v, op->p);
        kir_store(k, t->f.acc, kir_int(k, i), v);
    }
}

static void open(struct contraction *c)
{
    struct work *t = c->own;
    struct halo *h = halo_of(c);
    const struct op_pool *op = &t->x->pool.op;
    t->none = emit_neutral(h->m, op->combine, h->p->type);
    if (op->combine != KI_ADD) h->outside = t->none;
    footprint_open(&t->f, &t->x->w, h, t->none);
}

static void multiply(struct contraction *c)
{
    struct work *t = c->own;
    halo_first_channel(t->f.h, c->now); /* once for all taps: the builder finds it again within their loops */
    footprint_each(&t->f, add_up, t);
}

static void store(struct contraction *c)
{
    const struct work *t = c->own;
    if (t->x->pool.op.mean || t->x->pool.op.finish) finish(t);
    halo_store_sums(t->f.h, t->f.acc);
}

static const struct leaf leaf = {open, multiply, store};

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    struct facts x = {0};
    const struct window_params v = params_of(s);
    struct halo h = {.q = &x.pool.q, .p = &x.w.p, .m = m};
    struct work own = {.x = &x, .ordered = caps->deterministic};
    struct contraction c = {.leaf = &leaf, .own = &own};
    pool_of(&x.pool, t);
    window_plan_init(&x.w, &x.pool.q, caps, &v);
    halo_emit(&h, &c, 0, t, caps);
}

/* Choosing. */

static bool analyze(const struct gen_problem *p)
{
    struct facts *x = p->facts;
    return p->c->is_gpu && pool_of(&x->pool, p->t);
}

static bool view(const struct gen_problem *p, const struct sched *s)
{
    struct facts *x = p->facts;
    const struct window_params v = params_of(s);
    return window_plan_init(&x->w, &x->pool.q, p->c, &v);
}

static bool is_small(const struct window_plan *w) { return w->y.size * w->x.size <= MAX_READS; }

static bool is_possible(const struct window_plan *w, const struct caps *caps)
{
    if (w->p.q->c.groups == 1 && w->v.rc > 1) return false; /* no axis to have vectors on */
    return w->y.taps <= MAX_TAPS && w->x.taps <= MAX_TAPS && is_small(w) && halo_plan_fits(&w->p, caps);
}

/* Is an element read by several threads? */
static bool is_shared(const struct conv *c)
{
    for (u32 a = 2; a < c->rank; a++)
        if (((i32)a == c->xa || (i32)a == c->ya) && c->k[a] > c->stride[a]) return true;
    return false;
}

static struct window_limits limits_of(const struct halo_task *q)
{
    return (struct window_limits){.ty = 32, .tx = 128, .taps = MAX_TAPS, .rows = conv_input_layout(&q->c) == LAYOUT_ROWS && halo_task_has_rows(q)};
}

static bool is_worth_trying(const struct window_plan *w)
{
    const struct conv *c = &w->p.q->c;
    bool rows = conv_input_layout(c) == LAYOUT_ROWS;
    struct window_limits l = limits_of(w->p.q);
    l.small = is_small(w);
    if (w->v.rc > 1 && c->groups % w->v.rc) return false;
    if (w->v.stage ? w->v.inner || (!is_shared(c) && !rows) : !w->v.inner && !c->no_pad) return false;
    return window_plan_is_useful(w, &l);
}

static bool legal(const struct gen_problem *p, const struct sched *s)
{
    const struct window_plan *w = &((const struct facts *)p->facts)->w;
    return (window_plan_is_least(w) || is_worth_trying(w)) && is_possible(w, p->c);
}

static bool least(const struct gen_problem *p, u32 k, struct sched *s)
{
    const struct facts *x = p->facts;
    *s = WINDOW_LEAST_SCHED(&x->pool.q);
    return k == 0;
}

static bool begins(const struct gen_problem *p, const struct sched *s, u32 n)
{
    const struct facts *x = p->facts;
    const struct window_params v = params_of(s);
    const struct window_limits l = limits_of(&x->pool.q);
    return window_begins(&x->pool.q, p->c, &v, &l, n);
}

static double predict(const struct gen_problem *q, const struct sched *s)
{
    const struct facts *f = q->facts;
    const struct window_plan *w = &f->w;
    const struct halo_plan *p = &w->p;
    const struct window_side *y = &w->y, *x = &w->x;
    double taps = (double)p->taps, cells = (double)(w->v.ry * w->v.rx), rc = (double)w->v.rc;
    double loops = taps / (double)(y->taps * x->taps), reads = loops * (double)(y->size * x->size), copies = (double)p->input_copies;
    double bytes = rc * (double)dtype_size(graph_value(p->q->c.g, p->q->c.x)->dtype);
    double load = w->v.stage ? 4 : w->v.inner || p->q->c.no_pad ? 6 : 10, combined = (double)(y->size * w->v.rx * x->taps) + cells * (double)y->taps;
    struct wg_work thread = {.fmas = loops * combined * rc, .moved = (reads + cells + 2 * copies) * bytes};
    thread.instructions = reads * load + cells * ((w->v.out ? 10 : 6) + (f->pool.op.mean ? 10 : 0)) + 20 * copies + 4 * loops + 20;
    return window_plan_seconds(q, w, &thread, cells * rc + (double)w->v.rx * rc + WG_ADDRESSES);
}

const struct gen gen_wg_pool = {
    GEN_FAMILY("wg_pool", 4), .facts = sizeof(struct facts), .analyze = analyze, .view = view,
    .least = least, .begins = begins, .legal = legal, .emit = emit, .predict = predict,
};
