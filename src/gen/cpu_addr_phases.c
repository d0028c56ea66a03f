// SPDX-License-Identifier: Apache-2.0
//
// cpu_addr_phases: transposed convolution phase by phase (gen/trans.h), each an ordinary convolution
// of stride 1 with few taps. A grid iteration takes a range of positions q on every spatial axis
// (one q on axes in front of the last two), copies the input that all phases need to scratch with
// zeros around, and runs the register tile over it phase by phase.
//
// Weights are packed [group][block of output channels][first tap per axis][t per axis][input
// channel][nr*lanes], zeros where a phase has fewer taps; those are never read.
#include "gen/cpu.h"

enum { KU = 2 };

static bool outputs_fit(const struct trans *c)
{
    enum layout first = graph_value(c->g, c->g->output.v[0])->layout;
    for (u32 i = 0; i < c->g->output.n; i++) {
        value_id v = c->g->output.v[i];
        const struct value *o = graph_value(c->g, v);
        if (o->layout != first || !shape_equal(&o->shape, &graph_value(c->g, c->y)->shape) ||
            !gen_depends(c->g, v, c->y) || !gen_pointwise_tail(c->g, v, c->y))
            return false;
    }
    return first == LAYOUT_ROWS || first == LAYOUT_CLAST;
}

/* Likewise with outputs that tiles can store. */
bool phases_of(struct trans *c, const struct task *t)
{
    const struct graph *g = &t->g;
    if (!g->output.n || !trans_of(c, t) || c->phases > MAX_PHASES) return false;
    /* Vectors may not run along an axis of one element. */
    bool thin = gen_static(g, c->ax[c->rank - 1].out, 2) == 1, single = c->oc * c->groups == 1;
    c->clast = (graph_value(g, g->output.v[0])->layout == LAYOUT_CLAST || thin) && !single;
    return !(thin && single) && outputs_fit(c);
}

struct work {
    struct emit *m;
    struct trans c;
    struct tile t;
    i64 th, tw, ob, n_blocks, width;
    kval wbuf, band, rows, group, n;
    kval q0[MAX_RANK], q1[MAX_RANK]; /* positions of this iteration */
    sym ext[MAX_RANK];               /* of the band */
    kval step[MAX_RANK];             /* elements of the band from one position to the next */
};

static kval pack_weights(struct work *b)
{
    const struct trans *c = &b->c;
    struct symtab *t = c->g->sym;
    struct pack *p = arena_new(b->m->arena, struct pack);
    pack_dim_i(p, t, c->groups, 0, c->ic);
    pack_dim_i(p, t, b->n_blocks, 1, b->width);
    for (u32 a = 2; a < c->rank; a++)
        pack_dim_i(p, t, c->ax[a].step, a, 1);
    for (u32 a = 2; a < c->rank; a++)
        pack_dim_i(p, t, c->ax[a].n_max, a, c->ax[a].step);
    pack_dim_i(p, t, c->ic, 0, 1);
    pack_dim_i(p, t, b->width, 1, 1);
    return emit_pack(b->m, c->w, p);
}

static void lay_band(struct work *b)
{
    const struct trans *c = &b->c;
    struct symtab *t = c->g->sym;
    sym size = sym_const(t, c->ic);
    for (u32 a = c->rank; a-- > 2;) {
        sym q = sym_const(t, a + 2 == c->rank ? b->th : 1);
        if (a + 1 == c->rank)
            q = sym_add(t, b->tw ? sym_const(t, b->tw * b->t.tx) : c->ax[a].n_q,
                        sym_const(t, b->t.tx - 1));
        b->ext[a] = sym_add(t, q, sym_const(t, c->ax[a].hi - c->ax[a].lo));
        b->step[a] = emit_size(b->m, size);
        size = sym_mul(t, size, b->ext[a]);
    }
    b->band = kir_alloc(b->m->k, KS_WORK, c->type, 1, emit_size(b->m, size));
}

/* Input position of the band's first element along an axis. */
static kval band_start(const struct work *b, u32 a)
{
    return kir_add_i(b->m->k, b->q0[a], b->c.ax[a].lo);
}

static void clear_row(struct work *b, kval at, kval n)
{
    struct kir *k = b->m->k;
    kval zero = kir_const_f(k, b->c.type, b->t.lanes, 0);
    kval whole = kir_mul_i(k, kir_div_i(k, n, b->t.lanes), b->t.lanes);
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), whole, b->t.lanes);
    kir_store(k, b->band, kir_ramp(k, kir_add(k, at, i), 1, b->t.lanes), zero);
    kir_end(k);
    kir_store_n(k, b->band, kir_ramp(k, kir_add(k, at, whole), 1, b->t.lanes), zero,
                kir_sub(k, n, whole));
}

static void copy_vector(struct work *b, kval *idx, u32 axis, kval at, i64 step, kval limit)
{
    struct kir *k = b->m->k;
    kval from = idx[axis], v;
    emit_limit(b->m, limit);
    idx[axis] = kir_ramp(k, from, 1, b->t.lanes);
    v = kir_splat(k, kir_cast(k, b->c.type, emit_value(b->m, b->c.x, idx)), b->t.lanes);
    at = kir_ramp(k, at, step, b->t.lanes);
    if (limit) kir_store_n(k, b->band, at, v, limit);
    else kir_store(k, b->band, at, v);
    emit_limit(b->m, 0);
    idx[axis] = from;
}

/* Elements from..to along an axis, the first one's place being `at` - from*step. */
static void copy_along(struct work *b, kval *idx, u32 axis, kval from, kval to, kval at, i64 step)
{
    struct kir *k = b->m->k;
    kval first = idx[axis];
    struct vectors v = vectors_over(k, kir_int(k, 0), kir_sub(k, to, from), b->t.lanes);
    while (vectors_next(&v)) {
        idx[axis] = kir_add(k, kir_add(k, first, from), v.at);
        copy_vector(b, idx, axis, kir_add(k, at, kir_mul_i(k, v.at, step)), step, v.limit);
    }
    idx[axis] = first;
}

bool phases_read_clast(const struct trans *c)
{
    value_id v = c->x;
    for (u32 i = 0; i < 16 && graph_value(c->g, v)->producer; i++)
        v = graph_node(c->g, graph_value(c->g, v)->producer)->in.v[0];
    return graph_value(c->g, v)->layout == LAYOUT_CLAST;
}

/* The elements of a row of the band that exist. idx: the row, input channel 0 of the group. */
static void copy_row(struct work *b, kval *idx, kval at)
{
    struct kir *k = b->m->k;
    u32 xa = b->c.rank - 1;
    kval zero = kir_int(k, 0), start = band_start(b, xa), ext = emit_size(b->m, b->ext[xa]),
         channel = idx[1];
    kval lo = kir_max(k, start, zero),
         hi = kir_min(k, kir_add(k, start, ext), emit_size(b->m, b->c.ax[xa].in));
    kval first = kir_add(k, at, kir_mul_i(k, kir_sub(k, lo, start), b->c.ic));
    if (phases_read_clast(&b->c)) {
        kval x = kir_loop(k, KL_SERIAL, lo, hi, 1);
        idx[xa] = x;
        copy_along(b, idx, 1, zero, kir_int(k, b->c.ic),
                   kir_add(k, at, kir_mul_i(k, kir_sub(k, x, start), b->c.ic)), 1);
        kir_end(k);
        return;
    }
    kir_if(k, kir_lt(k, lo, hi));
    kval ch = kir_loop(k, KL_SERIAL, zero, kir_int(k, b->c.ic), 1);
    idx[1] = kir_add(k, channel, ch);
    idx[xa] = zero;
    copy_along(b, idx, xa, lo, hi, kir_add(k, first, ch), b->c.ic);
    kir_end(k);
    kir_end(k);
}

static void fill_band(struct work *b)
{
    struct kir *k = b->m->k;
    const struct trans *c = &b->c;
    kval idx[MAX_RANK] = {b->n, kir_mul_i(k, b->group, c->ic)}, at = kir_int(k, 0), inside = 0;
    for (u32 a = 2; a + 1 < c->rank; a++) {
        kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), emit_size(b->m, b->ext[a]), 1);
        idx[a] = kir_add(k, band_start(b, a), i);
        at = kir_add(k, at, kir_mul(k, i, b->step[a]));
        kval ok = gen_is_inside(k, idx[a], emit_size(b->m, c->ax[a].in));
        inside = inside ? kir_bin(k, KI_AND, inside, ok) : ok;
    }
    clear_row(
        b, at,
        emit_size(b->m, sym_mul(c->g->sym, b->ext[c->rank - 1], sym_const(c->g->sym, c->ic))));
    if (inside) kir_if(k, inside);
    copy_row(b, idx, at);
    if (inside) kir_end(k);
    for (u32 a = 2; a + 1 < c->rank; a++) kir_end(k);
}

/* What a copy of the tiles' code is for: a phase of every axis. */
static void phase_of(const struct trans *c, i64 copy, const struct trans_phase *ph[MAX_RANK])
{
    for (u32 a = c->rank; a-- > 2; copy /= c->ax[a].s) ph[a] = &c->ax[a].phase[copy % c->ax[a].s];
}

/* All taps of a phase. */
static void multiply(struct cpu_contraction *p, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct work *b = p->own;
    struct kir *k = b->m->k;
    const struct trans *c = &b->c;
    const struct trans_phase *ph[MAX_RANK];
    kval at = kir_int(k, 0), w_at = kir_add(k, kir_mul_i(k, b->group, b->n_blocks), e->at[CPU_BLOCK]);
    i64 first = 0, scale = c->ic * b->width, taps[MAX_RANK];
    phase_of(c, e->copy, ph);
    for (u32 a = 2; a < c->rank; a++) {
        if (!ph[a]->n) return;
        first = first * c->ax[a].step + ph[a]->first;
        w_at = kir_mul_i(k, w_at, c->ax[a].step);
        kval rel = kir_add_i(k, kir_sub(k, e->at[CPU_TAP + a], b->q0[a]), ph[a]->off - c->ax[a].lo);
        at = kir_add(k, at, kir_mul(k, rel, b->step[a]));
    }
    for (u32 a = c->rank; a-- > 2;) {
        taps[a] = scale;
        scale *= c->ax[a].n_max;
    }
    struct cpu_walk w = {.k = k, .a = at, .b = kir_mul_i(k, kir_add_i(k, w_at, first), scale)};
    for (u32 a = 2; a < c->rank; a++)
        if (ph[a]->n > 1) cpu_walk_over(&w, KL_SERIAL, kir_int(k, 0), kir_int(k, ph[a]->n), -c->ax[a].d, b->step[a], taps[a]);
    struct tile_in in = {.buf = b->band, .at = w.a, .x_step = b->step[c->rank - 1], .y_step = kir_int(k, 0)};
    tile_steps(t, in, kir_int(k, 1), b->wbuf, w.b, c->ic, c->ic > 4 ? KU : 0);
    cpu_walk_close(&w);
}

static struct tile_out target(struct cpu_contraction *p, const struct cpu_piece *e)
{
    const struct work *b = p->own;
    struct kir *k = b->m->k;
    const struct trans *c = &b->c;
    const struct trans_phase *ph[MAX_RANK];
    u32 xa = c->rank - 1;
    phase_of(c, e->copy, ph);
    struct tile_out o = {.y_axis = -1,
                         .x_axis = (i32)xa,
                         .c_axis = 1,
                         .x_step = c->ax[xa].s,
                         .c = kir_add(k, kir_mul_i(k, b->group, c->oc), kir_mul_i(k, e->at[CPU_BLOCK], b->width)),
                         .c_end = c->oc % b->width ? kir_mul_i(k, kir_add_i(k, b->group, 1), c->oc) : 0,
                         .x_end = emit_size(b->m, c->ax[xa].out),
                         .anchor = c->y,
                         .rows = b->rows};
    for (u32 a = 0; a < MAX_RANK; a++) o.idx[a] = kir_int(k, 0);
    o.idx[0] = b->n;
    for (u32 a = 2; a < c->rank; a++) o.idx[a] = kir_add_i(k, kir_mul_i(k, e->at[CPU_TAP + a], c->ax[a].s), ph[a]->lead);
    /* The next iteration's outputs are its own. */
    kval stop = kir_add_i(k, kir_mul_i(k, b->q1[xa], c->ax[xa].s), ph[xa]->lead);
    o.x_end = kir_min(k, o.x_end, stop);
    return o;
}

/* Positions of a phase whose outputs exist, within the iteration. */
static void place_positions(struct cpu_contraction *p, const struct cpu_piece *e, struct cpu_level *l)
{
    const struct work *b = p->own;
    struct kir *k = b->m->k;
    struct symtab *t = b->m->g->sym;
    const struct trans_phase *ph[MAX_RANK];
    u32 a = (u32)l->axis - CPU_TAP;
    const struct trans_axis *x = &b->c.ax[a];
    phase_of(&b->c, e->copy, ph);
    sym end = sym_cdiv(t, sym_sub(t, x->out, sym_const(t, ph[a]->lead)), sym_const(t, x->s));
    l->from = kir_max(k, b->q0[a], kir_int(k, ceil_div(-ph[a]->lead, x->s)));
    l->to = kir_min(k, b->q1[a], emit_size(b->m, end));
}

/* Positions of iteration number i along an axis, `size` (0: all) of them. */
static void set_range(struct work *b, u32 a, kval i, i64 size)
{
    struct kir *k = b->m->k;
    const struct trans_axis *x = &b->c.ax[a];
    sym stop = sym_add(b->c.g->sym, x->q_lo, x->n_q);
    kval lo = emit_size(b->m, x->q_lo), hi = emit_size(b->m, stop);
    b->q0[a] = size ? kir_add(k, lo, kir_mul_i(k, i, size)) : lo;
    b->q1[a] = size ? kir_min(k, kir_add_i(k, b->q0[a], size), hi) : hi;
}

/* Opens the grid: parts and outer axes, rows, tiles along x. Returns the number of the part. */
static kval open_grid(struct work *b, i64 parts)
{
    struct emit *m = b->m;
    struct kir *k = m->k;
    const struct trans *c = &b->c;
    struct symtab *t = c->g->sym;
    u32 xa = c->rank - 1;
    sym one = sym_const(t, 1),
        outer = sym_mul(t, graph_value(c->g, c->x)->shape.dim[0], sym_const(t, parts));
    sym wide = sym_const(t, i64_max(1, b->tw * b->t.tx));
    for (u32 a = 2; a + 2 < c->rank; a++) outer = sym_mul(t, outer, c->ax[a].n_q);
    kval n0 = emit_size(m, outer),
         n1 = emit_size(m, xa > 2 ? sym_cdiv(t, c->ax[xa - 1].n_q, sym_const(t, b->th)) : one);
    kval n2 = emit_size(m, b->tw ? sym_cdiv(t, c->ax[xa].n_q, wide) : one);
    kval i = kir_grid(k, n0), y = kir_grid(k, n1), x = kir_grid(k, n2);
    kval part = kir_mod_i(k, i, parts);
    i = kir_div_i(k, i, parts);
    for (u32 a = xa - 1; a-- > 2;) {
        kval size = emit_size(m, c->ax[a].n_q);
        set_range(b, a, kir_mod(k, i, size), 1);
        i = kir_div(k, i, size);
    }
    b->n = i;
    if (xa > 2) set_range(b, xa - 1, y, b->th);
    set_range(b, xa, x, b->tw * b->t.tx);
    return part;
}

static u32 open(struct cpu_contraction *p)
{
    struct work *b = p->own;
    struct kir *k = b->m->k;
    const struct trans *c = &b->c;
    i64 parts = ceil_div(b->n_blocks, b->ob);
    kval part = open_grid(b, parts * c->groups);
    b->group = kir_div_i(k, part, parts);
    lay_band(b);
    if (!c->clast) b->rows = kir_alloc(k, KS_WORK, c->type, 1, kir_int(k, tile_rows_size(&b->t)));
    tile_open(&b->t);
    if (!b->rows) tile_loop_epilogue(&b->t, c->y, 1, 0);
    fill_band(b);
    kval from = kir_mul_i(k, kir_mod_i(k, part, parts), b->ob);
    cpu_level_add(p, CPU_BLOCK, from, kir_min(k, kir_add_i(k, from, b->ob), kir_int(k, b->n_blocks)), 1);
    cpu_level_add(p, CPU_PART, 0, 0, 1)->copies = c->phases;
    for (u32 a = 2; a < c->rank; a++) cpu_level_add(p, CPU_TAP + a, 0, 0, a + 1 == c->rank ? b->t.tx : 1)->place = place_positions;
    return 3;
}

void phases_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct phases_sched *v)
{
    static const struct cpu_addressing phases = {.open = open, .target = target, .multiply = multiply};
    struct work *b = arena_new(m->arena, struct work);
    phases_of(&b->c, t);
    b->m = m, b->th = v->th, b->tw = v->tw;
    b->t = (struct tile){.m = m, .ty = 1, .tx = v->tx, .nr = v->nr, .leaf = &tile_fma, .lanes = gen_lanes(caps, b->c.type), .type = b->c.type};
    b->width = b->t.nr * b->t.lanes;
    b->n_blocks = ceil_div(b->c.oc, b->width);
    b->ob = v->ob ? i64_min(v->ob, b->n_blocks) : b->n_blocks;
    b->wbuf = pack_weights(b);
    emit_args(m);
    cpu_emit(&(struct cpu_contraction){.m = m, .address = &phases, .own = b, .t = &b->t, .width = b->width, .per = b->t.lanes, .bias = b->c.b}, false, t, caps);
}
