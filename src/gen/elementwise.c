// SPDX-License-Identifier: Apache-2.0
//
// elementwise: one grid over the elements of a value. Three nested ranges: e, the group that is
// vectorised; p, the next group inwards or outwards of it; o, all the others as one row number. A
// grid iteration does ob x pb x ec elements. With e the innermost group in memory this is a plain
// walk; with another one, or a short ec and a longer pb, it is the blocked walk that layout
// conversions and transposes need: both sides are touched in pieces of cache lines. Vectors along e whose elements lie apart in the result are transposed in
// registers, as many as a vector has lanes along p, the innermost group then, and stored as vectors along p.
#include "gen/gen.h"

struct nest {
    struct emit *m;
    struct space sp;
    value_id v, from; /* stored; whose elements: itself, or another value of its shape */
    u32 e, p; /* groups; p == e: none */
    u32 rest[MAX_RANK], n_rest;
    const struct elementwise_sched *s;
    kval at[MAX_RANK];
};

static void store_at(struct nest *x, kval e, kval n)
{
    kval idx[MAX_RANK];
    x->at[x->e] = e;
    space_index(x->m->k, &x->sp, x->at, idx);
    emit_store_n(x->m, x->v, idx, emit_value(x->m, x->from, idx), n);
}

/* The lanes behind the end of a row see zeros: no harm to floats, but integers may be divided by
 * them. */
static bool is_float_only(const struct graph *g)
{
    for (value_id v = 1; v < g->value.n; v++) {
        const struct value *x = graph_value(g, v);
        if (x->producer && !dtype_is_float(x->dtype) && x->dtype != DT_BOOL) return false;
    }
    return true;
}

/* from + the largest multiple of step that fits before to */
static kval whole_steps(struct kir *k, kval from, kval to, i64 step)
{
    kval n = kir_div_i(k, kir_sub(k, to, from), step);
    return kir_add(k, from, kir_mul_i(k, n, step));
}

static bool is_empty(struct kir *k, kval from, kval to)
{
    i64 d;
    return kir_is_const(k, kir_sub(k, to, from), &d) && d <= 0;
}

static void walk_steps(struct nest *x, kval from, kval to, i64 lanes, i64 unroll)
{
    struct kir *k = x->m->k;
    if (is_empty(k, from, to)) return;
    kval e = kir_loop(k, KL_SERIAL, from, to, lanes * unroll);
    for (i64 u = 0; u < unroll; u++)
        store_at(x, kir_ramp(k, kir_add_i(k, e, u * lanes), 1, (u32)lanes), 0);
    kir_end(k);
}

/* Less than a vector, from..to-1, of a row that begins at `begin`. A vector that ends where the row ends computes some elements a
   second time, but needs no mask, and loads dense vectors where lanes behind the end would belong to other rows. */
static void walk_tail(struct nest *x, kval begin, kval from, kval to, i64 lanes)
{
    struct kir *k = x->m->k;
    i64 n;
    if (is_empty(k, from, to)) return;
    if (kir_is_const(k, kir_sub(k, to, begin), &n) && n >= lanes) {
        store_at(x, kir_ramp(k, kir_add_i(k, to, -lanes), 1, (u32)lanes), 0);
        return;
    }
    if (x->e != x->sp.n - 1 || !is_float_only(x->m->g)) {
        walk_steps(x, from, to, 1, 1);
        return;
    }
    kval some = kir_sub(k, to, from);
    kir_if(k, kir_lt(k, from, to));
    emit_limit(x->m, some);
    store_at(x, kir_ramp(k, from, 1, (u32)lanes), some);
    emit_limit(x->m, 0);
    kir_end(k);
}

static void walk_inside(struct nest *x, kval from, kval to)
{
    struct kir *k = x->m->k;
    const kval begin = from;
    i64 lanes = gen_static(x->m->g, x->sp.g[x->e].extent, 0) == 1 ? 1 : x->s->lanes,
        unroll = x->s->unroll;
    if (lanes > 1 && unroll > 1) {
        kval mid = whole_steps(k, from, to, lanes * unroll);
        walk_steps(x, from, mid, lanes, unroll);
        from = mid;
    }
    if (lanes > 1) {
        kval mid = whole_steps(k, from, to, lanes);
        walk_steps(x, from, mid, lanes, 1);
        from = mid;
    }
    if (lanes > 1) walk_tail(x, begin, from, to, lanes);
    else walk_steps(x, from, to, 1, 1);
}

/* A row; its ends one by one, so that clamps and tests that only the ends need drop out of the
 * vectors between. */
static void walk_row(struct nest *x, kval from, kval to)
{
    struct kir *k = x->m->k;
    if (!x->s->edge) {
        walk_inside(x, from, to);
        return;
    }
    kval n = emit_size(x->m, x->sp.g[x->e].extent);
    kval lo = kir_max(k, from, kir_int(k, x->s->edge)),
         hi = kir_min(k, to, kir_add_i(k, n, -x->s->edge));
    walk_steps(x, from, kir_min(k, lo, to), 1, 1);
    walk_inside(x, lo, hi);
    walk_steps(x, kir_max(k, hi, lo), to, 1, 1);
}

static void walk_rows(struct nest *x, kval p_from, kval p_to, kval from, kval to)
{
    kval p = kir_loop(x->m->k, KL_SERIAL, p_from, p_to, 1);
    if (x->p != x->e) x->at[x->p] = p;
    walk_row(x, from, to);
    kir_end(x->m->k);
}

/* Squares. */

enum { MOST_NODES = 8 }; /* computed in a square, whose code is written out for every vector */

/* Does a vector along e lie apart in the result, and may its neighbours along p, the innermost group, be computed with it? */
static bool has_squares(const struct nest *x, sym rows)
{
    const struct graph *g = x->m->g;
    const struct elementwise_sched *s = x->s;
    u32 n = 0;
    for (node_id i = 1; i < g->node.n; i++) {
        if (graph_node(g, i)->dead || !gen_depends(g, x->from, graph_node(g, i)->out.v[0])) continue;
        if (!(op_of(g, i)->props & (OP_POINTWISE | OP_VIEW))) return false;
        n++;
    }
    const i64 np = gen_static(g, rows, -1);
    bool is_word = dtype_size(graph_value(g, x->v)->dtype) == 4, is_wide = s->lanes >= 4 && (!s->pb || s->pb >= s->lanes) && (np < 0 || np >= s->lanes);
    return n <= MOST_NODES && is_word && is_wide && x->e != x->p && x->p == x->sp.n - 1 && s->unroll == 1 && !s->edge;
}

static void store_square(struct nest *x, kval p, kval e)
{
    struct emit *m = x->m;
    struct kir *k = m->k;
    const u32 n = (u32)x->s->lanes;
    kval row[64], idx[MAX_RANK];
    assert(n <= countof(row));
    x->at[x->e] = kir_ramp(k, e, 1, n);
    for (u32 i = 0; i < n; i++) {
        x->at[x->p] = kir_add_i(k, p, i);
        space_index(k, &x->sp, x->at, idx);
        row[i] = kir_splat(k, emit_value(m, x->from, idx), n);
    }
    transpose_vectors(k, row, n);
    x->at[x->p] = kir_ramp(k, p, 1, n);
    for (u32 i = 0; i < n; i++) {
        x->at[x->e] = kir_add_i(k, e, i);
        space_index(k, &x->sp, x->at, idx);
        emit_store(m, x->v, idx, row[i]);
    }
}

/* Is there a whole vector for certain? Then the last one may begin earlier, and computes some elements a second time. */
static bool may_overlap(struct kir *k, kval from, kval to, i64 lanes)
{
    i64 n;
    return kir_is_const(k, kir_sub(k, to, from), &n) && n >= lanes;
}

/* Elements from..to-1 of as many rows as there are lanes, from p on. */
static void walk_squares(struct nest *x, kval p, kval from, kval to)
{
    struct kir *k = x->m->k;
    const i64 lanes = x->s->lanes;
    kval mid = whole_steps(k, from, to, lanes);
    store_square(x, p, kir_loop(k, KL_SERIAL, from, mid, lanes));
    kir_end(k);
    if (is_empty(k, mid, to)) return;
    if (may_overlap(k, from, to, lanes)) {
        store_square(x, p, kir_add_i(k, to, -lanes));
        return;
    }
    x->at[x->p] = kir_loop(k, KL_SERIAL, p, kir_add_i(k, p, lanes), 1);
    walk_tail(x, from, mid, to, lanes);
    kir_end(k);
}

/* Channels in blocks: the padding of the last block is written, too, as zeros. */
static void walk_blocked(struct emit *m, value_id from, value_id v, i64 block)
{
    struct kir *k = m->k;
    struct symtab *t = m->g->sym;
    const struct shape *s = &graph_value(m->g, v)->shape;
    struct space sp = {.rank = s->rank};
    u32 group[MAX_RANK];
    kval at[MAX_RANK], idx[MAX_RANK];
    for (u32 i = 0; i < s->rank; i++) {
        if (i == 1) continue;
        group[sp.n] = sp.n;
        sp.g[sp.n++] = (struct axis_run){s->dim[i], i};
    }
    kval n_rows = emit_size(m, space_count(&sp, t, 0, sp.n)),
         n_blocks = emit_size(m, sym_cdiv(t, s->dim[1], sym_const(t, block)));
    kval row = kir_grid(k, n_rows), b = kir_grid(k, n_blocks);
    space_split(m, &sp, group, sp.n, row, at);
    space_index(k, &sp, at, idx);
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, block), 1);
    idx[1] = kir_add(k, kir_mul_i(k, b, block), i);
    kir_if(k, kir_lt(k, idx[1], emit_dim(m, v, 1)));
    emit_store(m, v, idx, emit_value(m, from, idx));
    kir_else(k);
    emit_store(m, v, idx, kir_const_i(k, emit_type(graph_value(m->g, v)->dtype), 1, 0));
    kir_end(k);
    kir_end(k);
    kir_end(k);
    kir_end(k);
}

/* The index space of `to`, whose elements are those of `from`. */
static void space_between(struct space *sp, const struct graph *g, value_id from, value_id to, const value_id *stop)
{
    const value_id copied[] = {to, 0};
    if (from == to) space_of(sp, g, to, stop, 0);
    else space_of_all(sp, g, (value_id[]){from, to}, 2, graph_value(g, to)->layout, copied, 0);
}

static void nest_init(struct nest *x, const value_id *stop)
{
    space_between(&x->sp, x->m->g, x->from, x->v, stop);
    u32 n = x->sp.n, axis = x->s->axis < n ? (u32)x->s->axis : n - 1;
    x->e = n - 1 - axis;
    x->p = n == 1 ? x->e : axis ? n - 1 : n - 2;
    for (u32 i = 0; i < n; i++)
        if (i != x->e && i != x->p) x->rest[x->n_rest++] = i;
}

static sym rest_count(const struct nest *x)
{
    struct symtab *t = x->m->g->sym;
    sym n = sym_const(t, 1);
    for (u32 i = 0; i < x->n_rest; i++) n = sym_mul(t, n, x->sp.g[x->rest[i]].extent);
    return n;
}

struct range {
    kval from, to;
};

/* The part of 0..n-1 that block number b covers; size 0: all. */
static struct range block_range(struct kir *k, kval b, i64 size, kval n)
{
    if (!size) return (struct range){kir_int(k, 0), n};
    kval from = kir_mul_i(k, b, size);
    return (struct range){from, kir_min(k, kir_add_i(k, from, size), n)};
}

static kval block_count(struct emit *m, sym n, i64 size)
{
    struct symtab *t = m->g->sym;
    return size ? emit_size(m, sym_cdiv(t, n, sym_const(t, size))) : kir_int(m->k, 1);
}

static void walk_all(struct nest x, const value_id *stop)
{
    struct emit *m = x.m;
    struct kir *k = m->k;
    const struct elementwise_sched *s = x.s;
    i64 block = layout_block(graph_value(m->g, x.v)->layout);
    if (block > 1) {
        walk_blocked(m, x.from, x.v, block);
        return;
    }
    nest_init(&x, stop);
    sym ro = rest_count(&x), re = x.sp.g[x.e].extent;
    sym rp = x.p == x.e ? sym_const(m->g->sym, 1) : x.sp.g[x.p].extent;
    /* Nothing but constants and parameters may stand before the innermost grid dimension. */
    kval go = kir_grid(k, block_count(m, ro, s->ob));
    kval gp = kir_grid(k, block_count(m, rp, s->pb));
    kval ge = kir_grid(k, block_count(m, re, s->ec));
    struct range o = block_range(k, go, s->ob, emit_size(m, ro));
    struct range p = block_range(k, gp, s->pb, emit_size(m, rp));
    struct range e = block_range(k, ge, s->ec, emit_size(m, re));
    space_split(m, &x.sp, x.rest, x.n_rest, kir_loop(k, KL_SERIAL, o.from, o.to, 1), x.at);
    bool squares = has_squares(&x, rp), overlap = squares && may_overlap(k, p.from, p.to, s->lanes);
    kval mid = squares ? whole_steps(k, p.from, p.to, s->lanes) : p.from;
    if (squares) {
        walk_squares(&x, kir_loop(k, KL_SERIAL, p.from, mid, s->lanes), e.from, e.to);
        kir_end(k);
    }
    if (overlap && !is_empty(k, mid, p.to)) walk_squares(&x, kir_add_i(k, p.to, -s->lanes), e.from, e.to);
    if (!overlap && !is_empty(k, mid, p.to)) walk_rows(&x, mid, p.to, e.from, e.to);
    for (u32 i = 0; i < 4; i++) kir_end(k);
}

void gen_elementwise_grid(struct emit *m, value_id v, const struct elementwise_sched *s, const value_id *stop)
{
    walk_all((struct nest){.m = m, .v = v, .from = v, .s = s}, stop);
}

/* Lanes for rows of n elements, fewer than a vector has: none that hang over the end. Parts of vectors take longer than scalars. */
static u32 short_lanes(i64 n)
{
    u32 lanes = n >= 4 ? 4 : 1;
    while (lanes >= 4 && 2 * (i64)lanes <= n) lanes *= 2;
    return lanes;
}

/* Instructions and memory operations of a row, per element. step: bytes from one element to the next in the result; those of a vector
   that are not adjacent are stored one by one, and touch the more lines the farther apart they are. */
static i64 row_cost(const struct probe *p, i64 extent, bool is_dense, i64 step, u32 lanes)
{
    enum { NEAR = 2, STEP = 4, ANY = 7 /* also takes the indices apart */, ONE = 1 /* load and store of a scalar */, REST = 8 /* of an element behind the vectors */, LINE = 64 };
    if (is_dense && extent < lanes) lanes = short_lanes(extent);
    i64 gather = NEAR * (i64)p->n_near + STEP * (i64)(p->n_step - p->n_near) + ANY * (i64)(p->n_gather - p->n_step), scatter = is_dense ? 0 : LINE + 2 * i64_min(step, LINE);
    i64 vec = lanes == 1 ? p->n_ins + ONE : p->n_ins + 4 * p->n_dense + ((gather * LINE + scatter) * (i64)lanes) / LINE;
    i64 full = extent / lanes, tail = extent % lanes, rest = tail && full ? vec : (p->n_ins + REST) * tail; /* walk_tail */
    return (vec * full + rest) * 64 / i64_max(1, extent);
}

/* The group along which most loads are dense; the innermost one in memory when there is no
 * difference. */
static u32 best_axis(const struct task *t, const struct space *s, value_id v, u32 lanes)
{
    u32 best = 0;
    i64 best_cost = 0, step = (i64)dtype_size(graph_value(&t->g, v)->dtype);
    for (u32 axis = 0; axis < s->n && axis < 3; axis++) {
        struct probe p;
        u32 g = s->n - 1 - axis;
        i64 extent = gen_static(&t->g, s->g[g].extent, 256);
        space_probe(&p, t, s, v, g, lanes);
        i64 cost = row_cost(&p, extent, !axis, step, lanes);
        step *= extent;
        if (axis && cost >= best_cost) continue;
        best = axis;
        best_cost = cost;
    }
    return best;
}

/* Elements at the ends of a row without which most of its loads become dense; 0: none helps. Sizes
   known now only. p: the probe without, replaced by the better one. */
static i64 best_edge(const struct task *t, const struct space *s, value_id v, u32 group, u32 lanes,
                     struct probe *p)
{
    i64 n = gen_static(&t->g, s->g[group].extent, 0);
    for (i64 edge = 1; edge <= 4 && 2 * edge < (i64)lanes && n >= 2 * (i64)lanes; edge *= 2) {
        struct probe q;
        space_probe_inside(&q, t, s, v, group, lanes, edge);
        if (q.n_gather >= p->n_gather) continue;
        *p = q;
        return edge;
    }
    return 0;
}

/* v: whose elements are stored in that space. */
static void default_of(const struct task *t, const struct caps *c, const struct space *space, value_id v, struct elementwise_sched *s)
{
    const struct space sp = *space;
    struct probe p;
    u32 lanes = gen_lanes(c, graph_value(&t->g, v)->dtype);
    u32 axis = best_axis(t, &sp, v, lanes), e = sp.n - 1 - axis;
    i64 ne = gen_static(&t->g, sp.g[e].extent, 1024);
    if (!axis && ne < lanes) lanes = short_lanes(ne);
    i64 np = sp.n > 1 ? gen_static(&t->g, sp.g[axis ? sp.n - 1 : sp.n - 2].extent, 256) : 1;
    space_probe(&p, t, &sp, v, e, lanes);
    *s = (struct elementwise_sched){.axis = axis, .lanes = lanes, .unroll = 1, .ec = 0, .pb = 1, .ob = 1};
    if (sp.n > 1 && ne <= 4096) /* grid iterations take whole rows then */
        s->edge = best_edge(t, &sp, v, e, lanes, &p);
    bool blocked = (p.n_gather || axis) && !s->edge;
    if (ne > 4096 || sp.n == 1) s->ec = 4096;
    if (blocked && sp.n > 1) { /* transposed: as many rows as a vector is long stay in the cache */
        i64 block = p.n_gather > p.n_step ? 64 : i64_max(16, lanes);
        if (ne > block) s->ec = block; /* whole rows end in a vector that begins earlier */
    }
    i64 per_row = s->ec ? i64_min(s->ec, ne) : ne;
    if (sp.n > 1) s->pb = per_row * np <= 16384 ? 0 : i64_max(1, 4096 / i64_max(1, per_row));
    i64 per_p = per_row * (s->pb ? s->pb : np);
    if (sp.n > 2 && per_p < 4096) s->ob = 4096 / i64_max(1, per_p);
}

void gen_elementwise_default(const struct task *t, const struct caps *c, value_id v, const value_id *stop, struct elementwise_sched *s)
{
    struct space sp;
    space_of(&sp, &t->g, v, stop, 0);
    default_of(t, c, &sp, v, s);
}

void gen_elementwise_copy(struct emit *m, const struct task *t, const struct caps *c, value_id from, value_id to)
{
    struct elementwise_sched s = {.lanes = 1, .unroll = 1, .ec = 1, .pb = 1, .ob = 1}; /* an element of each thread */
    struct space sp;
    space_between(&sp, &t->g, from, to, NULL);
    if (!c->is_gpu) default_of(t, c, &sp, from, &s);
    walk_all((struct nest){.m = m, .v = to, .from = from, .s = &s}, NULL);
}

/* Nothing is merged behind the bound value: where its elements lie is not known here. */
void gen_elementwise_rest(struct emit *m, const struct task *t, const struct caps *c, value_id v,
                  emit_fn *fn, const void *user)
{
    emit_bind(m, v, fn, user);
    for (u32 i = 0; i < t->g.output.n; i++) {
        value_id out = t->g.output.v[i];
        struct elementwise_sched x;
        struct wg_elementwise y;
        if (c->is_gpu) {
            gen_wg_elementwise_default(t, out, gen_wg_size(m->k), &y);
            gen_wg_elementwise_grid(m, out, &y, NULL);
        } else {
            gen_elementwise_default(t, c, out, NULL, &x);
            gen_elementwise_grid(m, out, &x, NULL);
        }
    }
    emit_bind(m, v, NULL, NULL);
}
