// SPDX-License-Identifier: Apache-2.0
//
// wg_elementwise: one grid of workgroups over the elements of a value. A thread computes
// pieces of `vec` elements along fused axes e of the index space; threads that follow each other have
// pieces that follow each other, so that what they read together lies together. Three walks:
//
//   flat     pieces are numbered through all rows: any shape, at the price of divisions
//   tiles    a workgroup has `row` pieces along e in several rows along p, so that windows
//            that overlap meet in the cache
//   staged   tiles whose results pass through shared memory: computed along e, stored along p, for
//            views that transpose, so that both sides are walked in the order of memory
//
// Blocked layouts are walked block by block, padding of the last block included.
#include "gen/gen.h"

struct walk {
    struct emit *m;
    const struct wg_elementwise *s;
    value_id v;
    struct space sp;
    u32 e, p;                   /* fused axes of the space; p == e: there is one only */
    u32 rest[MAX_RANK], n_rest; /* the others, outermost first */
    i64 vec;                    /* elements of a piece: no more than a row has */
    i64 threads, row, col;      /* of a workgroup: all, along e, along p */
    kval thread;                /* its number */
    kval n_e, n_p;              /* extents */
    kval at[MAX_RANK];          /* index per fused axis */
    kval e0, p0;                /* first of the workgroup's tile */
    i64 te, tp, pitch;          /* staged: sizes of the tile, elements from one row to the next */
    kval tile;                  /* the shared array; 0: results are stored at once */
};

i64 gen_wg_size(const struct kir *k)
{
    i64 n = 1;
    for (u32 i = 0; i < 3; i++) n *= k->group[i] ? k->group[i] : 1;
    return n;
}

static kval thread_number(struct kir *k)
{
    kval n = kir_int(k, 0);
    for (u32 i = 3; i-- > 0;)
        if (k->group[i] > 1) n = kir_add(k, kir_mul_i(k, n, k->group[i]), kir_thread(k, i));
    return n;
}

/* Pieces: e and p count from the tile's first element. */

static void element(struct walk *x, kval e, kval p, i64 lanes)
{
    struct kir *k = x->m->k;
    kval idx[MAX_RANK];
    x->at[x->e] = kir_ramp(k, kir_add(k, x->e0, e), 1, (u32)lanes);
    space_index(k, &x->sp, x->at, idx);
    kval val = emit_value(x->m, x->v, idx);
    if (!x->tile) {
        emit_store(x->m, x->v, idx, val);
        return;
    }
    val = kir_splat(k, emit_narrow(x->m, graph_value(x->m->g, x->v)->dtype, val), (u32)lanes);
    kval to = kir_add(k, kir_mul_i(k, p, x->pitch), e);
    kir_store(k, x->tile, kir_ramp(k, to, 1, (u32)lanes), val);
}

static i64 pow2_below(i64 n)
{
    i64 p = 1;
    while (p * 2 <= n) p *= 2;
    return p;
}

static kval both(struct kir *k, kval a, kval b) { return kir_bin(k, KI_AND, a, b); }

/* The piece at (e, p), as far as it exists. */
static void piece(struct walk *x, kval e, kval p)
{
    struct kir *k = x->m->k;
    i64 vec = x->vec;
    bool whole = sym_divides(x->m->g->sym, vec, x->sp.g[x->e].extent);
    kval left = kir_sub(k, x->n_e, x->e0), inside = kir_lt(k, e, left);
    if (x->p != x->e) {
        x->at[x->p] = kir_add(k, x->p0, p);
        inside = both(k, inside, kir_lt(k, x->at[x->p], x->n_p));
    }
    kir_if(k, inside);
    if (whole) {
        element(x, e, p, vec);
    } else {
        kval end = kir_add_i(k, e, vec);
        kir_if(k, kir_bin(k, KI_LE, end, left));
        element(x, e, p, vec);
        kir_else(k);
        element(x, kir_loop(k, KL_SERIAL, e, left, 1), p, 1);
        kir_end(k);
        kir_end(k);
    }
    kir_end(k);
}

/* Walks. */

static sym blocks(struct symtab *t, sym n, i64 size) { return sym_cdiv(t, n, sym_const(t, size)); }

static sym extent_of(const struct walk *x, u32 group) { return x->sp.g[group].extent; }

static void walk_flat(struct walk *x)
{
    struct kir *k = x->m->k;
    struct symtab *t = x->m->g->sym;
    sym per_row = blocks(t, extent_of(x, x->e), x->vec), n = per_row;
    u32 other[MAX_RANK], n_other = 0;
    for (u32 i = 0; i < x->sp.n; i++)
        if (i != x->e) other[n_other++] = i, n = sym_mul(t, n, extent_of(x, i));
    kval g = kir_grid(k, emit_size(x->m, blocks(t, n, x->threads * x->s->rep)));
    kval r = kir_loop(k, KL_UNROLL, kir_int(k, 0), kir_int(k, x->s->rep), 1);
    kval sweep = kir_add(k, kir_mul_i(k, g, x->s->rep), r);
    kval i = kir_add(k, kir_mul_i(k, sweep, x->threads), thread_number(k));
    kir_if(k, kir_lt(k, i, emit_size(x->m, n)));
    kval e = i, pieces = emit_size(x->m, per_row);
    if (n_other) {
        e = kir_mod(k, i, pieces);
        space_split(x->m, &x->sp, other, n_other, kir_div(k, i, pieces), x->at);
    }
    x->p = x->e; /* rows are known to exist */
    x->e0 = kir_int(k, 0);
    piece(x, kir_mul_i(k, e, x->vec), kir_int(k, 0));
    kir_end(k);
    kir_end(k);
    kir_end(k);
}

/* Opens the grid over tiles and sets the place of this one. */
static void open_tiles(struct walk *x, i64 te, i64 tp)
{
    struct kir *k = x->m->k;
    struct symtab *t = x->m->g->sym;
    sym n_rest = sym_const(t, 1), rows = n_rest;
    for (u32 i = 0; i < x->n_rest; i++) n_rest = sym_mul(t, n_rest, extent_of(x, x->rest[i]));
    if (x->p != x->e) rows = blocks(t, extent_of(x, x->p), tp);
    /* Nothing but constants and parameters may stand before the innermost grid dimension. */
    kval n_o = emit_size(x->m, n_rest), n_p = emit_size(x->m, rows);
    kval n_e = emit_size(x->m, blocks(t, extent_of(x, x->e), te));
    kval o = kir_grid(k, n_o), gp = kir_grid(k, n_p), ge = kir_grid(k, n_e);
    space_split(x->m, &x->sp, x->rest, x->n_rest, o, x->at);
    x->e0 = kir_mul_i(k, ge, te);
    x->p0 = kir_mul_i(k, gp, tp);
    x->thread = thread_number(k);
}

/* All pieces of the tile: te = row * vec wide, rows along p; where there is only e, further along
 * e. */
static void compute_tile(struct walk *x)
{
    struct kir *k = x->m->k;
    kval zero = kir_int(k, 0), r = kir_loop(k, KL_UNROLL, zero, kir_int(k, x->s->rep), 1);
    kval e = kir_mul_i(k, kir_mod_i(k, x->thread, x->row), x->vec), p = zero;
    if (x->p == x->e) e = kir_add(k, e, kir_mul_i(k, r, x->row * x->vec));
    else p = kir_add(k, kir_div_i(k, x->thread, x->row), kir_mul_i(k, r, x->col));
    piece(x, e, p);
    kir_end(k);
}

static void walk_tiles(struct walk *x)
{
    bool one = x->p == x->e;
    i64 te = x->row * x->vec, tp = x->col * x->s->rep;
    open_tiles(x, one ? te * x->s->rep : te, tp);
    compute_tile(x);
    for (u32 i = 0; i < 3; i++) kir_end(x->m->k);
}

/* The widest store along p: 16 bytes, if every row of the tile begins at a multiple of it. */
static i64 store_width(const struct walk *x)
{
    i64 n = 16 / dtype_size(graph_value(x->m->g, x->v)->dtype);
    while (n > 1 && (x->tp % n || !sym_divides(x->m->g->sym, n, extent_of(x, x->p)))) n /= 2;
    return n;
}

/* The tile from shared memory to the output, along p. */
static void store_tile(struct walk *x)
{
    struct kir *k = x->m->k;
    i64 n = store_width(x), per_e = x->tp / n;
    kval idx[MAX_RANK];
    kval u = kir_loop(k, KL_SERIAL, x->thread, kir_int(k, x->te * per_e), x->threads);
    kval e = kir_div_i(k, u, per_e), p = kir_mul_i(k, kir_mod_i(k, u, per_e), n);
    kval at_e = kir_add(k, x->e0, e), at_p = kir_add(k, x->p0, p);
    kir_if(k, both(k, kir_lt(k, at_e, x->n_e), kir_lt(k, at_p, x->n_p)));
    kval from = kir_add(k, kir_mul_i(k, p, x->pitch), e);
    kval val = kir_load(k, x->tile, kir_ramp(k, from, x->pitch, (u32)n));
    x->at[x->e] = at_e;
    x->at[x->p] = kir_ramp(k, at_p, 1, (u32)n);
    space_index(k, &x->sp, x->at, idx);
    emit_store(x->m, x->v, idx, emit_widen(x->m, graph_value(x->m->g, x->v)->dtype, val));
    kir_end(k);
    kir_end(k);
}

static void walk_staged(struct walk *x)
{
    struct kir *k = x->m->k;
    enum dtype type = graph_value(x->m->g, x->v)->dtype;
    x->te = x->row * x->vec;
    x->tp =
        i64_max(1, i64_min(x->col * x->s->rep, gen_static(x->m->g, extent_of(x, x->p), INT64_MAX)));
    x->pitch = wg_elementwise_pitch(x->te, type);
    open_tiles(x, x->te, x->tp);
    kval size = kir_int(k, x->pitch * x->tp);
    x->tile = kir_alloc(k, KS_SHARED, dtype_stored(type), 1, size);
    compute_tile(x);
    kir_barrier(k);
    store_tile(x);
    for (u32 i = 0; i < 3; i++) kir_end(k);
}

/* Channels in blocks: a thread has a block of one position, the padding of the last one as zeros.
 */
static void walk_blocked(struct walk *x, i64 block)
{
    struct emit *m = x->m;
    struct kir *k = m->k;
    struct symtab *t = m->g->sym;
    const struct shape *s = &graph_value(m->g, x->v)->shape;
    struct space sp = {.rank = s->rank, .n = s->rank};
    u32 group[MAX_RANK];
    kval idx[MAX_RANK];
    for (u32 i = 0; i < s->rank; i++) {
        group[i] = i;
        sp.g[i] = (struct axis_run){i == 1 ? blocks(t, s->dim[1], block) : s->dim[i], i};
    }
    sym n = space_count(&sp, t, 0, sp.n);
    kval g = kir_grid(k, emit_size(m, blocks(t, n, x->threads)));
    kval i = kir_add(k, kir_mul_i(k, g, x->threads), thread_number(k));
    kir_if(k, kir_lt(k, i, emit_size(m, n)));
    space_split(m, &sp, group, sp.n, i, x->at);
    space_index(k, &sp, x->at, idx);
    kval c = kir_mul_i(k, idx[1], block), n_c = emit_dim(m, x->v, 1);
    kir_if(k, kir_bin(k, KI_LE, kir_add_i(k, c, block), n_c));
    idx[1] = kir_ramp(k, c, 1, (u32)block);
    emit_store(m, x->v, idx, emit_value(m, x->v, idx));
    kir_else(k);
    idx[1] = kir_loop(k, KL_SERIAL, c, kir_add_i(k, c, block), 1);
    kir_if(k, kir_lt(k, idx[1], n_c));
    emit_store(m, x->v, idx, emit_value(m, x->v, idx));
    kir_else(k);
    emit_store(m, x->v, idx, emit_zero(m, graph_value(m->g, x->v)->dtype));
    for (u32 end = 0; end < 5; end++) kir_end(k);
}

static void walk_init(struct walk *x, struct emit *m, value_id v, const struct wg_elementwise *s,
                      const value_id *stop)
{
    *x = (struct walk){.m = m, .s = s, .v = v, .threads = gen_wg_size(m->k)};
    space_of(&x->sp, m->g, v, stop, 0);
    u32 n = x->sp.n, axis = s->axis < n ? (u32)s->axis : n - 1;
    x->e = n - 1 - axis;
    x->p = n == 1 ? x->e : axis ? n - 1 : n - 2;
    for (u32 i = 0; i < n; i++)
        if (i != x->e && i != x->p) x->rest[x->n_rest++] = i;
    x->vec = pow2_below(i64_min(s->vec, gen_static(m->g, extent_of(x, x->e), s->vec)));
    x->row = x->p == x->e ? x->threads : i64_min(s->row, x->threads);
    x->col = x->row ? x->threads / x->row : 0;
    x->n_e = emit_size(m, extent_of(x, x->e));
    x->n_p = emit_size(m, extent_of(x, x->p));
}

void gen_wg_elementwise_grid(struct emit *m, value_id v, const struct wg_elementwise *s, const value_id *stop)
{
    struct walk x;
    i64 block = layout_block(graph_value(m->g, v)->layout);
    walk_init(&x, m, v, s, stop);
    if (block > 1) walk_blocked(&x, block);
    else if (!s->row) walk_flat(&x);
    else if (s->stage && x.e != x.sp.n - 1) walk_staged(&x);
    else walk_tiles(&x);
}

i64 wg_elementwise_pitch(i64 row, enum dtype t) { return row + i64_max(1, 4 / dtype_size(t)); }

/* Choice. */

enum { PROBE_LANES = 4 };

double gen_wg_reads(const struct probe *p)
{
    return p->n_dense + 2.0 * p->n_near + 6.0 * (p->n_gather - p->n_near) + 0.2 * p->n_scalar;
}

/* The fused axes along which threads read best; stage: and then store through shared memory. */
static u32 best_axis(const struct task *t, const struct space *sp, value_id v, struct probe *probe,
                     bool *stage)
{
    u32 best = 0;
    double least = 0;
    *probe = (struct probe){0};
    for (u32 axis = 0; axis < sp->n && axis < 3; axis++) {
        struct probe p;
        space_probe(&p, t, sp, v, sp->n - 1 - axis, PROBE_LANES);
        double cost = gen_wg_reads(&p) + (axis ? 2.5 : 1);
        if (axis && cost >= least) continue;
        best = axis;
        least = cost;
        *probe = p;
    }
    *stage = best != 0;
    return best;
}

/* Threads side by side along a row of that many pieces; 0: better without gaps. */
static i64 best_row(i64 pieces, i64 threads)
{
    for (i64 row = i64_min(threads, 64); row >= 16; row /= 2)
        if (round_up(pieces, row) * 8 <= pieces * 9) return row;
    return pieces < 16 && pieces == pow2_below(pieces) ? pieces : 0;
}

void gen_wg_elementwise_default(const struct task *t, value_id v, i64 threads, struct wg_elementwise *s)
{
    struct space sp;
    struct probe p;
    *s = (struct wg_elementwise){.vec = 1, .rep = 1};
    space_of(&sp, &t->g, v, NULL, 0);
    s->axis = best_axis(t, &sp, v, &p, &s->stage);
    sym extent = sp.g[sp.n - 1 - s->axis].extent;
    i64 n = gen_static(&t->g, extent, GEN_NOMINAL),
        widest = 16 / dtype_size(graph_value(&t->g, v)->dtype);
    if (s->stage) { /* tiles of about 32 x 32 */
        i64 other = gen_static(&t->g, sp.g[sp.n - 1].extent, GEN_NOMINAL);
        s->row = other >= 32 ? 32 : 64;
        s->rep = other >= 32 ? i64_max(1, 32 * s->row / threads) : 1;
        return;
    }
    while (!p.n_gather && s->vec * 2 <= i64_min(widest, 8) && s->vec * 2 <= n) s->vec *= 2;
    s->row = sp.n == 1 ? threads : best_row(ceil_div(n, s->vec), threads);
}
