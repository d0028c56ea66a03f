// SPDX-License-Identifier: Apache-2.0
//
// cpu_addr_dw: the inner loops of depthwise convolutions, channels vectorised, on a band that holds one
// block of nr vectors of channels (cpu_band.c). Every element of a register tile's footprint is
// loaded once and added to all accumulators that use it. For the rest of the band's code a block
// is a group of as many input channels.
//
// Or without a band: the input is read in place, pixel after pixel with all their channels,
// and what a footprint has outside of the input is left out. Tiles at both ends of a row have code
// of their own for that; rows are asked one by one.
#include "gen/cpu_band.h"

/* Packed weights: [block][taps][channel]. */
static kval pack_weights(struct band *b)
{
    struct symtab *t = b->m->g->sym;
    struct pack *p = arena_new(b->m->arena, struct pack);
    pack_dim_i(p, t, b->c.groups, 0, b->width);
    for (u32 a = 2; a < b->c.rank; a++) pack_dim_i(p, t, b->c.k[a], a, 1);
    pack_dim_i(p, t, b->width, 0, 1);
    return emit_pack(b->m, b->c.w, p);
}

/* Which tap joins input position `in` with output pixel `out` of the tile along an axis? -1: none.
 */
static i64 tap_between(const struct conv *c, i32 axis, i64 in, i64 out)
{
    i64 d = in - out * c->stride[axis];
    return d >= 0 && d % c->dil[axis] == 0 && d / c->dil[axis] < c->k[axis] ? d / c->dil[axis] : -1;
}

/* Where a footprint begins on an axis of the input, which has n positions; n 0: all of it lies
 * inside. */
struct edge {
    kval first, n;
};

struct taps {
    struct band *b;
    const struct tile *t;
    kval buf, at; /* the band or the input, and the footprint's first element there */
    kval w_at;    /* first weight of the block */
    kval limit;   /* channels from the first on that exist, 0: as many as the vectors hold */
    i64 w_step[MAX_RANK];
    struct edge y, x;
};

/* The element at (r, q) of the footprint to all accumulators. */
static void add_element(const struct taps *x, i64 r, i64 q, i64 j)
{
    struct band *b = x->b;
    struct kir *k = b->m->k;
    kval in = 0;
    for (i64 dy = 0; dy < b->s.ty; dy++)
        for (i64 dx = 0; dx < b->s.tx; dx++) {
            i64 ky = b->ya >= 0 ? tap_between(&b->c, b->ya, r, dy) : 0,
                kx = b->xa >= 0 ? tap_between(&b->c, b->xa, q, dx) : 0;
            if (ky < 0 || kx < 0) continue;
            if (!in) {
                kval at = kir_add_i(k, x->at, j * b->lanes);
                if (b->ya >= 0) at = kir_add(k, at, kir_mul_i(k, b->step[b->ya], r));
                if (b->xa >= 0) at = kir_add(k, at, kir_mul_i(k, b->step[b->xa], q));
                kval limit = x->limit ? kir_add_i(k, x->limit, -j * b->lanes) : 0;
                in = kir_cast(k, b->type,
                              kir_load_n(k, x->buf, kir_ramp(k, at, 1, b->lanes), limit));
            }
            i64 off =
                (b->ya >= 0 ? ky * x->w_step[b->ya] : 0) + (b->xa >= 0 ? kx * x->w_step[b->xa] : 0);
            kval w = kir_load(k, b->wbuf,
                              kir_ramp(k, kir_add_i(k, x->w_at, off + j * b->lanes), 1, b->lanes));
            kval slot = tile_acc(x->t, dy * b->s.tx + dx, j);
            kir_store(k, x->t->acc, slot, kir_fma(k, in, kir_cast(k, b->type, w), kir_load(k, x->t->acc, slot)));
        }
}

/* Input positions of a tile along an axis. */
static i64 footprint(const struct conv *c, i32 axis, i64 pixels)
{
    return axis >= 0 ? (pixels - 1) * c->stride[axis] + (c->k[axis] - 1) * c->dil[axis] + 1 : 1;
}

/* Opens what is done only where position i of the footprint lies inside: 1 if it was opened, 0 if
 * it is not needed, -1: never. */
static int open_inside(struct kir *k, const struct edge *e, i64 i)
{
    i64 always;
    if (!e->n) return 0;
    kval at = kir_add_i(k, e->first, i);
    kval in = gen_is_inside(k, at, e->n);
    if (kir_is_const(k, in, &always)) return always ? 0 : -1;
    kir_if(k, in);
    return 1;
}

static void add_footprint(const struct taps *x)
{
    const struct band *b = x->b;
    struct kir *k = b->m->k;
    i64 rows = footprint(&b->c, b->ya, b->s.ty), cols = footprint(&b->c, b->xa, b->s.tx);
    for (i64 r = 0; r < rows; r++) {
        int row = open_inside(k, &x->y, r);
        for (i64 q = 0; row >= 0 && q < cols; q++) {
            int col = open_inside(k, &x->x, q);
            for (i64 j = 0; col >= 0 && j < x->t->nr; j++) add_element(x, r, q, j);
            if (col > 0) kir_end(k);
        }
        if (row > 0) kir_end(k);
    }
}

/* All taps. */
static void add_taps(struct taps *x)
{
    struct band *b = x->b;
    struct kir *k = b->m->k;
    const struct conv *c = &b->c;
    struct cpu_walk w = {.k = k, .a = x->at, .b = x->w_at};
    i64 size = b->width;
    for (u32 a = c->rank; a-- > 2;) {
        x->w_step[a] = size;
        size *= c->k[a];
    }
    for (u32 a = 2; a < c->rank; a++)
        if (!is_tile_axis(b, a) && c->k[a] > 1) cpu_walk_over(&w, KL_SERIAL, kir_int(k, 0), kir_int(k, c->k[a]), 1, b->step[a], x->w_step[a]);
    x->at = w.a, x->w_at = w.b;
    add_footprint(x);
    cpu_walk_close(&w);
}

static i64 weights_of_block(const struct band *b)
{
    i64 n = b->width;
    for (u32 a = 2; a < b->c.rank; a++) n *= b->c.k[a];
    return n;
}

/* With a band, whose channels are one block. */

static struct tile_out target(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct band *b = p->own;
    struct kir *k = b->m->k;
    struct tile_out o = band_target(b, e->at[CPU_Y], e->at[CPU_X]);
    o.c = kir_mul_i(k, b->group, b->width);
    o.c_end = b->channels ? kir_add(k, o.c, b->channels) : 0;
    return o;
}

static void multiply(struct cpu_contraction *p, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct band *b = p->own;
    struct kir *k = b->m->k;
    kval at = kir_int(k, 0);
    if (b->ya >= 0) at = kir_mul(k, kir_mul_i(k, kir_sub(k, e->at[CPU_Y], b->y0), b->c.stride[b->ya]), b->step[b->ya]);
    if (b->xa >= 0) at = kir_add(k, at, kir_mul(k, kir_mul_i(k, kir_sub(k, e->at[CPU_X], b->x0), b->c.stride[b->xa]), b->step[b->xa]));
    add_taps(&(struct taps){.b = b, .t = t, .buf = b->work, .at = at, .w_at = kir_mul_i(k, b->group, weights_of_block(b))});
}

void dw_init(struct band *b)
{
    b->n_channels = b->c.groups;
    b->c.ic = b->terms = b->width;
    b->c.groups = ceil_div(b->n_channels, b->width);
    b->wbuf = pack_weights(b);
}

void dw_enter(struct band *b, kval block)
{
    struct kir *k = b->m->k;
    b->group = block;
    if (b->n_channels % b->width)
        b->channels = kir_sub(k, kir_int(k, b->n_channels), kir_mul_i(k, block, b->width));
}

void dw_walk(struct band *b)
{
    static const struct cpu_addressing address = {.target = target, .multiply = multiply};
    b->address = &address;
    conv_walk(b, 0, 0);
}

/* Pixels are read in place. */

struct in_place {
    struct band *b;
    struct edge y, x; /* of the tile's footprint */
    struct cpu_contraction blocks; /* all blocks of channels of a tile's pixels */
};

static struct tile_out target_in_place(struct cpu_contraction *p, const struct cpu_piece *e)
{
    const struct in_place *w = p->own;
    struct kir *k = p->m->k;
    struct tile_out o = band_target(w->b, e->at[CPU_Y], e->at[CPU_X]);
    o.c = kir_mul_i(k, e->at[CPU_BLOCK], w->b->width);
    o.c_end = e->is_full ? 0 : kir_int(k, w->b->n_channels);
    return o;
}

static void multiply_in_place(struct cpu_contraction *p, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    const struct in_place *w = p->own;
    struct band *b = w->b;
    struct kir *k = b->m->k;
    const struct conv *c = &b->c;
    kval idx[MAX_RANK];
    for (u32 a = 0; a < MAX_RANK; a++)
        idx[a] = a < c->rank ? kir_mul_i(k, b->pos[a], c->stride[a]) : kir_int(k, 0);
    idx[1] = o->c;
    kval at = emit_offset(b->m, c->x, idx);
    if (b->ya >= 0) at = kir_add(k, at, kir_mul(k, w->y.first, b->step[b->ya]));
    if (b->xa >= 0) at = kir_add(k, at, kir_mul(k, w->x.first, b->step[b->xa]));
    add_taps(&(struct taps){.b = b,
                            .t = t,
                            .buf = b->m->buf[c->x],
                            .at = at,
                            .w_at = kir_mul_i(k, e->at[CPU_BLOCK], weights_of_block(b)),
                            .limit = e->is_full ? 0 : kir_int(k, e->columns),
                            .y = w->y,
                            .x = w->x});
}

static struct edge edge_at(struct band *b, i32 axis, kval pixel)
{
    struct kir *k = b->m->k;
    kval first = kir_mul_i(k, pixel, b->c.stride[axis]);
    return (struct edge){kir_sub(k, first, emit_size(b->m, b->c.pad[axis])),
                         emit_size(b->m, b->c.in[axis])};
}

static void enter_row(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct in_place *w = p->own;
    w->y = edge_at(w->b, w->b->ya, e->at[CPU_Y]);
}

/* Tiles of a row from pixel `from` on, before `to`; a few are written out, as what lies inside is
 * known then. */
static void place_range(struct in_place *w, struct cpu_piece e, kval from, kval to, bool inside)
{
    enum { FEW = 2 };
    struct band *b = w->b;
    struct kir *k = b->m->k;
    i64 lo, hi, tx = b->s.tx;
    bool known = kir_is_const(k, from, &lo) && kir_is_const(k, to, &hi);
    if (known && lo >= hi) return;
    bool few = known && hi - lo <= FEW * tx;
    for (i64 x = few ? lo : 0; x < (few ? hi : 1); x += tx) {
        e.at[CPU_X] = few ? kir_int(k, x) : kir_loop(k, KL_SERIAL, from, to, tx);
        w->x = edge_at(b, b->xa, e.at[CPU_X]);
        if (inside) w->x.n = 0;
        cpu_nest(&w->blocks, &e, cpu_tile);
        if (!few) kir_end(k);
    }
}

/* A row of tiles: those that reach over the input's left end, those inside, and the others. */
static void place_row(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct in_place *w = p->own;
    struct band *b = w->b;
    struct kir *k = b->m->k;
    if (b->xa < 0) {
        cpu_nest(&w->blocks, e, cpu_tile);
        return;
    }
    i64 tx = b->s.tx, step = tx * b->c.stride[b->xa];
    kval zero = kir_int(k, 0), pad = emit_size(b->m, b->c.pad[b->xa]);
    kval room = kir_add(k, emit_size(b->m, b->c.in[b->xa]), pad);
    kval left = kir_div_i(k, kir_add_i(k, pad, step - 1), step); /* tiles */
    kval slack = kir_max(k, kir_add_i(k, room, step - footprint(&b->c, b->xa, tx)), zero);
    kval inner = kir_mul_i(k, kir_div_i(k, slack, step), tx); /* pixels of tiles that end inside */
    left = kir_min(k, kir_mul_i(k, left, tx), b->x1);
    inner = kir_max(k, kir_min(k, inner, b->x1), left);
    place_range(w, *e, zero, left, false);
    place_range(w, *e, left, inner, true);
    place_range(w, *e, inner, b->x1, false);
}

void dw_walk_in_place(struct band *b, kval from, kval to)
{
    static const struct cpu_addressing address = {.target = target_in_place, .multiply = multiply_in_place};
    struct in_place w = {.b = b};
    struct cpu_contraction rows = {.m = b->m, .address = &address, .own = &w, .t = &b->t, .width = b->width, .per = b->per, .bias = b->c.b};
    w.blocks = rows;
    struct cpu_level *l = cpu_level_add(&w.blocks, CPU_BLOCK, from, to, 1); /* the last has vectors for what exists only */
    l->rest = b->n_channels % b->width, l->columns = kir_int(b->m->k, b->n_channels);
    if (b->ya >= 0) cpu_level_add(&rows, CPU_Y, b->y0, b->y1, b->s.ty)->enter = enter_row;
    cpu_nest(&rows, NULL, place_row);
}
