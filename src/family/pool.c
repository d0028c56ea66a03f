// SPDX-License-Identifier: Apache-2.0
//
// pool: windows that slide over an input (max, mean and power pooling), what stands in front and
// behind computed on the way. A step takes a tile of ty rows by tx outputs by nr vectors; the
// vectors run over channels where those are innermost in memory, else along x. Inside the picture
// all taps are written out, every element of the tile's footprint is loaded once and combined with
// all accumulators that use it. Outputs at the border go through the operator's own loops, which
// clamp.
//
// A grid iteration is some rows of tiles of one outer position. Axes in front of the last two are
// never tiled: their taps are loops whose limits are clamped, and so are those of the second last
// where it is at the border or the kernel is large.
#include "gen/nest.h"

enum { MAX_TAPS_X = 32, MAX_UNROLLED = 400 };

// clang-format off
#define PARAMS(P)                                                              \
    P(ty, "rows of outputs per step", 1, 2, 4)                                 \
    P(tx, "outputs of a row per step, with channels innermost", 1, 2, 4, 7, 8) \
    P(nr, "vectors per step", 1, 2, 4)                                         \
    P(yb, "steps in y per grid iteration", 1, 2, 4, 8, 16, 64)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct params, params_of, PARAMS)

struct pool {
    struct emit *m;
    const struct graph *g;
    const struct node *n;
    value_id x, y;
    struct op_window w;
    struct op_pool op;
    struct shape in, out;
    u32 rank, xa;
    i32 ya;     /* -1: one spatial axis only */
    bool clast; /* vectors of channels, else along x */
    bool divides; /* a sum to a mean, as its definition does; else it is multiplied by a reciprocal */
    enum dtype type;
    u32 lanes;
    struct params s;
    kval acc;
    kval idx[MAX_RANK]; /* of the first output of the tile, all scalar */
};

static bool pool_of(struct pool *p, const struct task *t)
{
    const struct graph *g = &t->g;
    *p = (struct pool){.g = g, .ya = -1};
    node_id n = gen_pool_node(t);
    if (!n) return false;
    p->n = graph_node(g, n);
    p->x = p->n->in.v[0], p->y = p->n->out.v[0];
    p->in = graph_value(g, p->x)->shape, p->out = graph_value(g, p->y)->shape;
    p->rank = p->in.rank, p->xa = p->rank - 1;
    p->ya = p->rank > 3 ? (i32)p->rank - 2 : -1;
    p->type = emit_type(graph_value(g, p->y)->dtype);
    op_window_get(g, p->n, &p->w);
    op_of(g, graph_value(g, p->y)->producer)->pool(g, p->n, &p->op);
    p->clast = graph_value(g, g->output.v[0])->layout == LAYOUT_CLAST;
    bool is_known = dtype_is_float(p->type) || (p->op.combine == KI_MAX && dtype_is_int(p->type));
    return is_known && p->w.kernel[p->xa - 2] <= MAX_TAPS_X;
}

/* Lanes of a vector; 1 where the vectors' axis has one element. Bytes fill vectors if nothing else is computed with them, and no vector is in part. */
static u32 lanes_of(const struct pool *p, const struct caps *c)
{
    i64 n = gen_static(p->g, p->out.dim[p->clast ? 1 : p->xa], 0);
    u32 lanes = gen_lanes(c, p->type);
    bool alone = p->g->output.n == 1 && p->g->output.v[0] == p->y && !graph_value(p->g, p->x)->producer;
    if (n == 1) return 1;
    while (alone && p->clast && lanes * (u32)dtype_size(p->type) < c->vector_bytes && n % (2 * lanes) == 0) lanes *= 2;
    return lanes;
}

static bool outputs_fit(const struct pool *p)
{
    for (u32 i = 0; i < p->g->output.n; i++) {
        const struct value *v = graph_value(p->g, p->g->output.v[i]);
        bool rows = v->layout == LAYOUT_ROWS || v->layout == LAYOUT_CLAST;
        if (!rows || !shape_equal(&v->shape, &p->out) ||
            !gen_pointwise_tail(p->g, p->g->output.v[i], p->y))
            return false;
    }
    return true;
}

static bool analyze(const struct gen_problem *q)
{
    struct pool *p = q->facts;
    return !q->c->is_gpu && q->c->vector_bytes >= 8 && q->t->g.output.n > 0 && pool_of(p, q->t) && outputs_fit(p);
}

static i64 kernel_of(const struct pool *p, i32 axis)
{
    return axis < 0 ? 1 : p->w.kernel[axis - 2];
}

/* Copies of the combining instruction in one step. */
static i64 unrolled(const struct pool *p, i64 ty, i64 tx, i64 nr)
{
    return ty * tx * nr * kernel_of(p, (i32)p->xa) * i64_min(kernel_of(p, p->ya), MAX_UNROLLED + 1);
}

static bool rows_unrolled(const struct pool *p)
{
    return p->ya >= 0 && unrolled(p, 1, 1, 1) <= MAX_UNROLLED / 4;
}

/* Emission. */

/* Condition that all taps of n outputs from o on lie inside; 0: always. */
static kval taps_inside(const struct pool *p, u32 axis, kval o, i64 n)
{
    struct kir *k = p->m->k;
    u32 i = axis - 2;
    i64 last = (p->w.kernel[i] - 1) * p->w.dilation[i] + (n - 1) * p->w.stride[i];
    kval start = kir_sub(k, kir_mul_i(k, o, p->w.stride[i]), emit_size(p->m, p->w.begin[i])),
         ok = 0;
    if (gen_static(p->g, p->w.begin[i], 1)) ok = kir_bin(k, KI_LE, kir_int(k, 0), start);
    if (n > 1 || p->w.ceil || gen_static(p->g, p->w.end[i], 1)) {
        kval end = kir_lt(k, kir_add_i(k, start, last), emit_size(p->m, p->in.dim[axis]));
        ok = ok ? kir_bin(k, KI_AND, ok, end) : end;
    }
    return ok;
}

/* A tile of which ty rows are computed; inside: no tap of its rows lies outside. */
struct step {
    i64 ty, tx, nr;
    bool inside;
    kval y_loop, limit;
};

/* Position in the input of tap 0 of the tile's first output. */
static kval first_tap(const struct pool *p, u32 axis)
{
    struct kir *k = p->m->k;
    return kir_sub(k, kir_mul_i(k, p->idx[axis], p->w.stride[axis - 2]),
                   emit_size(p->m, p->w.begin[axis - 2]));
}

/* Which tap joins offset `in` of the footprint with output `out` of the tile? -1: none. */
static i64 tap_between(const struct pool *p, u32 axis, i64 in, i64 out)
{
    u32 i = axis - 2;
    i64 d = in - out * p->w.stride[i];
    return d >= 0 && d % p->w.dilation[i] == 0 && d / p->w.dilation[i] < p->w.kernel[i]
               ? d / p->w.dilation[i]
               : -1;
}

static bool is_met(const struct pool *p, const struct step *s, i64 r, i64 q, i64 dy, i64 dx)
{
    bool y = !s->inside || p->ya < 0 || tap_between(p, (u32)p->ya, r, dy) >= 0;
    return y && tap_between(p, p->xa, q, dx) >= 0;
}

static kval element(const struct pool *p, const kval *at, i64 r, i64 q, i64 j)
{
    struct kir *k = p->m->k;
    kval in[MAX_RANK];
    for (u32 a = 0; a < p->rank; a++) in[a] = at[a];
    if (p->ya >= 0) in[p->ya] = kir_add_i(k, in[p->ya], r);
    in[p->xa] = kir_add_i(k, in[p->xa], q);
    if (p->clast) in[1] = kir_ramp(k, kir_add_i(k, in[1], j * p->lanes), 1, p->lanes);
    else
        in[p->xa] = kir_ramp(k, kir_add_i(k, in[p->xa], j * p->lanes * p->w.stride[p->xa - 2]),
                             p->w.stride[p->xa - 2], p->lanes);
    kval v = kir_splat(k, kir_cast(k, p->type, emit_value(p->m, p->x, in)), p->lanes);
    return p->op.tap ? p->op.tap(k, v, p->op.p) : v;
}

static kval slot(const struct pool *p, const struct step *s, i64 dy, i64 dx, i64 j)
{
    return kir_int(p->m->k, (dy * s->tx + dx) * s->nr + j);
}

static void combine(const struct pool *p, const struct step *s, const kval *at, i64 r, i64 q)
{
    struct kir *k = p->m->k;
    for (i64 j = 0; j < s->nr; j++) {
        kval v = 0;
        for (i64 dy = 0; dy < s->ty; dy++)
            for (i64 dx = 0; dx < s->tx; dx++) {
                if (!is_met(p, s, r, q, dy, dx)) continue;
                v = v ? v : element(p, at, r, q, j);
                kval to = slot(p, s, dy, dx, j);
                kir_store(k, p->acc, to, emit_combine(k, p->op.combine, kir_load(k, p->acc, to), v));
            }
    }
}

/* All taps: axes that are not written out as loops, then the footprint. */
static void accumulate(const struct pool *p, const struct step *s)
{
    struct kir *k = p->m->k;
    kval at[MAX_RANK] = {p->idx[0], p->idx[1]};
    u32 open = 0;
    i64 rows = 1, cols = (s->tx - 1) * p->w.stride[p->xa - 2] +
                         (p->w.kernel[p->xa - 2] - 1) * p->w.dilation[p->xa - 2] + 1;
    for (u32 a = 2; a < p->rank; a++) {
        at[a] = first_tap(p, a);
        if (a == p->xa || ((i32)a == p->ya && s->inside)) continue;
        kval lohi[2];
        op_taps_range(p->m, &p->w, &p->in, a - 2, p->idx[a], false, lohi);
        kval tap = kir_loop(k, KL_SERIAL, lohi[0], lohi[1], 1);
        at[a] = kir_add(k, at[a], kir_mul_i(k, tap, p->w.dilation[a - 2]));
        open++;
    }
    if (p->ya >= 0 && s->inside)
        rows = (s->ty - 1) * p->w.stride[p->ya - 2] +
               (p->w.kernel[p->ya - 2] - 1) * p->w.dilation[p->ya - 2] + 1;
    for (i64 r = 0; r < rows; r++)
        for (i64 q = 0; q < cols; q++) combine(p, s, at, r, q);
    while (open--) kir_end(k);
}

/* What the sum of a mean is multiplied or divided by. */
static kval scale_of(const struct pool *p, const struct step *s)
{
    struct kir *k = p->m->k;
    i64 known = kernel_of(p, (i32)p->xa);
    kval n = 0;
    for (u32 a = 2; a < p->xa; a++) {
        kval r[2];
        if ((i32)a == p->ya && s->inside) {
            known *= p->w.kernel[a - 2];
            continue;
        }
        op_taps_range(p->m, &p->w, &p->in, a - 2, p->idx[a], p->op.count_pad, r);
        kval d = kir_sub(k, r[1], r[0]);
        n = n ? kir_mul(k, n, d) : d;
    }
    if (!n) return kir_const_f(k, p->type, 1, p->divides ? (double)known : 1.0 / (double)known);
    n = kir_cast(k, p->type, kir_max(k, kir_mul_i(k, n, known), kir_int(k, 1)));
    return p->divides ? n : kir_bin(k, KI_DIV, kir_const_f(k, p->type, 1, 1), n);
}

static void store_outputs(const struct pool *p, const kval *idx, kval limit)
{
    for (u32 i = 0; i < p->g->output.n; i++) {
        value_id v = p->g->output.v[i];
        emit_store_n(p->m, v, idx, emit_value(p->m, v, idx), limit);
    }
}

static void finish(const struct pool *p, const struct step *s)
{
    struct kir *k = p->m->k;
    kval scale = p->op.mean ? scale_of(p, s) : 0;
    for (i64 dy = 0; dy < s->ty; dy++)
        for (i64 dx = 0; dx < s->tx; dx++)
            for (i64 j = 0; j < s->nr; j++) {
                kval idx[MAX_RANK], v = kir_load(k, p->acc, slot(p, s, dy, dx, j));
                u32 va = p->clast ? 1 : p->xa;
                for (u32 a = 0; a < p->rank; a++) idx[a] = p->idx[a];
                if (p->ya >= 0) idx[p->ya] = kir_add_i(k, idx[p->ya], dy);
                idx[p->xa] = kir_add_i(k, idx[p->xa], dx);
                idx[va] = kir_ramp(k, kir_add_i(k, idx[va], j * p->lanes), 1, p->lanes);
                v = scale ? kir_bin(k, p->divides ? KI_DIV : KI_MUL, v, scale) : v;
                v = p->op.finish ? p->op.finish(k, v, p->op.p) : v;
                emit_bind(p->m, p->y, gen_given, &v);
                store_outputs(p, idx, s->limit);
                emit_bind(p->m, p->y, NULL, NULL);
            }
}

static void do_step(struct pool *p, const struct step *s)
{
    struct kir *k = p->m->k;
    kval none = kir_splat(k, emit_neutral(p->m, p->op.combine, p->type), p->lanes);
    p->acc = kir_alloc(k, KS_REG, p->type, p->lanes, kir_int(k, s->ty * s->tx * s->nr));
    for (i64 i = 0; i < s->ty * s->tx * s->nr; i++) kir_store(k, p->acc, kir_int(k, i), none);
    emit_limit(p->m, s->limit);
    accumulate(p, s);
    finish(p, s);
    emit_limit(p->m, 0);
}

/* One output, or a vector of channels, by the operator itself. */
static void do_plain(struct pool *p, const struct step *s)
{
    kval idx[MAX_RANK];
    for (u32 a = 0; a < p->rank; a++) idx[a] = p->idx[a];
    if (p->clast) idx[1] = kir_ramp(p->m->k, idx[1], 1, p->lanes);
    emit_limit(p->m, s->limit);
    store_outputs(p, idx, s->limit);
    emit_limit(p->m, 0);
}

typedef void step_fn(struct pool *p, const struct step *s);

static bool is_empty(struct kir *k, kval from, kval to)
{
    i64 d;
    return kir_is_const(k, kir_sub(k, to, from), &d) && d <= 0;
}

/* from + the largest multiple of size up to `to` */
static kval whole(struct kir *k, kval from, kval to, i64 size)
{
    return kir_add(k, from, kir_mul_i(k, kir_div_i(k, kir_sub(k, to, from), size), size));
}

/* Along the vector axis from..to in steps of s.nr vectors, then of one, then the rest of a vector.
 */
static void along(struct pool *p, struct step s, step_fn *fn, kval from, kval to)
{
    struct kir *k = p->m->k;
    u32 va = p->clast ? 1 : p->xa;
    for (i64 nr = s.nr;; nr = 1) {
        kval end = whole(k, from, to, nr * p->lanes);
        if (!is_empty(k, from, end)) {
            s.nr = nr;
            p->idx[va] = kir_loop(k, KL_SERIAL, from, end, nr * p->lanes);
            fn(p, &s);
            kir_end(k);
        }
        from = end;
        if (nr == 1) break;
    }
    if (is_empty(k, from, to)) return;
    s.nr = 1;
    s.limit = kir_sub(k, to, from);
    kir_if(k, kir_lt(k, from, to));
    p->idx[va] = from;
    fn(p, &s);
    kir_end(k);
}

static void channels(struct pool *p, struct step s, step_fn *fn)
{
    along(p, s, fn, kir_int(p->m->k, 0), emit_size(p->m, p->out.dim[1]));
}

/* Loops over the s.ty rows that exist, from p->idx. Returns whether a loop was opened. */
static bool open_rows(struct pool *p, const struct step *s)
{
    struct kir *k = p->m->k;
    if (p->ya < 0 || s->ty == 1) return false;
    kval y = p->idx[p->ya],
         end = kir_min(k, kir_add_i(k, y, s->ty), emit_size(p->m, p->out.dim[p->ya]));
    p->idx[p->ya] = kir_loop(k, KL_SERIAL, y, end, 1);
    return true;
}

/* Outputs x from..to one by one. */
static void plain_row(struct pool *p, struct step s, kval from, kval to)
{
    struct kir *k = p->m->k;
    if (is_empty(k, from, to)) return;
    kval y = p->ya >= 0 ? p->idx[p->ya] : 0;
    bool rows = open_rows(p, &s);
    p->idx[p->xa] = kir_loop(k, KL_SERIAL, from, to, 1);
    s.nr = s.ty = s.tx = 1;
    if (p->clast) channels(p, s, do_plain);
    else do_plain(p, &s);
    kir_end(k);
    if (rows) kir_end(k);
    if (y) p->idx[p->ya] = y;
}

/* A row of tiles, channels innermost. */
static void row_clast(struct pool *p, struct step s, kval y_inside)
{
    struct kir *k = p->m->k;
    kval size = emit_size(p->m, p->out.dim[p->xa]);
    kval x = kir_loop(k, KL_SERIAL, kir_int(k, 0), size, s.tx);
    kval inside = taps_inside(p, p->xa, x, s.tx);
    if (y_inside) inside = inside ? kir_bin(k, KI_AND, inside, y_inside) : y_inside;
    if (inside) kir_if(k, inside);
    p->idx[p->xa] = x;
    channels(p, s, do_step);
    if (inside) {
        kir_else(k);
        plain_row(p, s, x, kir_min(k, kir_add_i(k, x, s.tx), size));
        kir_end(k);
    }
    kir_end(k);
}

/* A row of tiles along x: what is at the border of x one by one. */
static void row_inner(struct pool *p, struct step s)
{
    struct kir *k = p->m->k;
    struct symtab *t = p->g->sym;
    u32 i = p->xa - 2;
    sym stride = sym_const(t, p->w.stride[i]), zero = sym_const(t, 0), size = p->out.dim[p->xa];
    sym span = sym_const(t, (p->w.kernel[i] - 1) * p->w.dilation[i] + 1);
    sym lo = sym_min(t, sym_cdiv(t, p->w.begin[i], stride), size);
    sym room = sym_add(t, sym_sub(t, sym_add(t, p->in.dim[p->xa], p->w.begin[i]), span), stride);
    sym hi = sym_max(t, sym_min(t, sym_div(t, sym_max(t, room, zero), stride), size), lo);
    kval from = emit_size(p->m, lo), to = emit_size(p->m, hi);
    plain_row(p, s, kir_int(k, 0), from);
    along(p, s, do_step, from, to);
    plain_row(p, s, to, emit_size(p->m, size));
}

static void tile_row(struct pool *p, kval y)
{
    struct kir *k = p->m->k;
    struct step s = {.ty = p->s.ty, .tx = p->s.tx, .nr = p->s.nr, .inside = rows_unrolled(p)};
    if (p->ya >= 0) p->idx[p->ya] = y;
    kval inside = s.inside ? taps_inside(p, (u32)p->ya, y, s.ty) : 0;
    if (p->clast) {
        row_clast(p, s, inside);
        return;
    }
    if (inside) kir_if(k, inside);
    row_inner(p, s);
    if (inside) {
        kir_else(k);
        p->idx[p->ya] = y;
        bool rows = open_rows(p, &s);
        s.ty = 1, s.inside = false;
        row_inner(p, s);
        if (rows) kir_end(k);
        kir_end(k);
    }
}

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v)
{
    struct pool p;
    struct kir *k = m->k;
    struct symtab *st = t->g.sym;
    struct space sp = {0};
    u32 group[MAX_RANK];
    kval at[MAX_RANK];
    pool_of(&p, t);
    p.m = m, p.lanes = lanes_of(&p, c), p.divides = c->deterministic;
    p.s = params_of(v);
    sp.rank = p.rank;
    for (u32 a = 0; a < p.rank; a++) {
        if (a == p.xa || (i32)a == p.ya || (a == 1 && p.clast)) continue;
        group[sp.n] = sp.n;
        sp.g[sp.n++] = (struct axis_run){p.out.dim[a], a};
    }
    emit_args(m);
    sym rows = p.ya >= 0 ? p.out.dim[p.ya] : sym_const(st, 1), step = sym_const(st, p.s.ty * p.s.yb);
    kval n_outer = emit_size(m, space_count(&sp, st, 0, sp.n)),
         n_bands = emit_size(m, sym_cdiv(st, rows, step));
    kval outer = kir_grid(k, n_outer), band = kir_grid(k, n_bands);
    space_split(m, &sp, group, sp.n, outer, at);
    space_index(k, &sp, at, p.idx);
    kval from = kir_mul_i(k, band, p.s.ty * p.s.yb);
    kval y = kir_loop(k, KL_SERIAL, from,
                      kir_min(k, kir_add_i(k, from, p.s.ty * p.s.yb), emit_size(m, rows)), p.s.ty);
    tile_row(&p, y);
    for (u32 i = 0; i < 3; i++) kir_end(k);
}

/* Choice. */

static bool is_legal(const struct pool *p, const struct caps *c, struct params v)
{
    if (unrolled(p, v.ty, v.tx, v.nr) > MAX_UNROLLED &&
        (v.ty > 1 || v.tx > 1 || v.nr > 1))
        return false;
    if (!rows_unrolled(p) && v.ty > 1) return false;
    if ((p->ya < 0 && v.yb > 1) || (!p->clast && v.tx > 1)) return false;
    if (v.tx > 1 && v.tx > gen_static(p->g, p->out.dim[p->xa], v.tx)) return false;
    sym vec = p->out.dim[p->clast ? 1 : p->xa];
    if (v.nr > 1 && v.nr * (i64)lanes_of(p, c) > gen_static(p->g, vec, 1 << 20)) return false;
    return v.ty * v.tx * v.nr + 4 <= (i64)i64_max(c->n_vector_regs, 16);
}

static bool legal(const struct gen_problem *p, const struct sched *s) { return is_legal(p->facts, p->c, params_of(s)); }

static double predict(const struct gen_problem *q, const struct sched *s)
{
    const struct pool *p = q->facts;
    const struct caps *c = q->c;
    const struct params v = params_of(s);
    const i64 *var = q->var;
    double lanes = lanes_of(p, c), n = gen_count(p->g, p->y, var), vec = n / lanes;
    double size = (double)gen_eval(p->g, p->out.dim[p->clast ? 1 : p->xa], var);
    double taps = (double)op_window_taps(&p->w), width = lanes * (double)v.nr;
    i64 sx = p->w.stride[p->xa - 2], kx = kernel_of(p, (i32)p->xa), ky = kernel_of(p, p->ya);
    i64 sy = p->ya >= 0 ? p->w.stride[p->ya - 2] : 1;
    /* Loads per output vector, some of them shared; those of strided vectors one by one. */
    double share = (double)(((v.tx - 1) * sx + kx) * ((v.ty - 1) * sy + ky)) /
                   (double)(v.tx * v.ty * kx * ky);
    double loads = taps * (share < 1 ? share : 1) * (p->clast || sx == 1 ? 1 : lanes);
    double waste = size < width ? width / (size + 1) : 1 + 0.3 * width / size;
    double rows = p->ya >= 0 ? (double)gen_eval(p->g, p->out.dim[p->ya], var) : 1;
    double bands = rows / (double)(v.ty * v.yb);
    double idle = p->clast && bands < 2 * c->n_threads ? 1 + 0.2 * c->n_threads : 1;
    double cycles = vec *
                    (loads * 0.6 + taps * 0.5 + 3 + 6.0 / (double)(v.tx * v.ty * v.nr)) *
                    waste * idle;
    double bytes = 4 * (n + gen_count(p->g, p->x, var));
    return 1e-6 + 2e-8 * bands + cycles * q->nest->cycle / i64_max(1, c->n_threads) + 0.3 * bytes * q->nest->line[RATE_DRAM];
}

const struct gen gen_pool = {
    GEN_FAMILY("pool", 4), .facts = sizeof(struct pool), .analyze = analyze, .legal = legal,
    .emit = emit, .predict = predict,
};
