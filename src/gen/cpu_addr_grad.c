// SPDX-License-Identifier: Apache-2.0
//
// cpu_addr_grad: gradients of convolutions' weights as contractions on processors (cpu_contract.h). For every tap and pair of channels there is a sum over the batch and all positions: a
// GEMM whose terms are positions; rows are taps and input channels, columns output channels; the left operand, the
// input under each tap, is never built.
//
// A grid iteration has some output channels and a share of the positions, taken as bands: the piece of the input that a
// band's positions meet, and the gradient of the output there, are copied to scratch memory (cpu_band.c; the gradient in
// blocks of the tile's width, so that its vectors follow each other) or read in place. Then the register tile
// (tile.c) runs over the band's positions: its pixels are taps times input channels, its columns vectors of output
// channels. Sums of several bands are added up in scratch memory; those of several
// iterations wait in a TEMP array and are added in the order of the positions by a second grid, so that the same input
// gives the same bytes whatever the number of threads.
//
// Where both lie in rows, vectors may run along positions instead (GRAD_ROWS): then neither is transposed, every sum is a vector of
// partial sums, which are added last, and a block's columns are single output channels.
//
// Depthwise convolutions, whose groups have one channel on either side, are one group with one channel of x for each
// channel of y: its vectors are loaded where others' elements are repeated to all lanes.
//
// Dims: n, m channels of y, c channels of x (both of one group), taps k.., positions o...
#include "gen/cpu_band.h"
#include "gen/grad.h"

enum { KU = 2 };

struct work {
    struct emit *m;
    struct grad q;
    struct band x, y;
    struct tile t;
    const struct result *r;
    i64 in_tile;            /* axes of q.tap that are in the tile */
    i64 width, channels;    /* of a block: elements of its sums side by side, output channels */
    i64 mb, n_tiles;        /* blocks per iteration, in all */
    i64 combos, rest;       /* taps in the tile, other taps */
    bool many;              /* bands per iteration: not one */
    bool copies;            /* dy to y_array: [block][row][column][width] */
    bool by_rows;           /* vectors run along positions */
    kval y_array;
    kval sums;              /* [block][other tap][tap of the tile][input channel][width], with many */
    kval part, group, from, to; /* of the positions, of channels; blocks of this iteration */
};

static kval tap_step(const struct work *w, u32 a)
{
    const struct conv *c = &w->q.x;
    i64 dil = is_tile_axis(&w->x, a) || w->x.s.stage == STAGE_DIRECT ? c->dil[a] : 1;
    return kir_mul_i(w->m->k, w->x.step[a], dil);
}

/* Taps of combination i of the tile's axes. */
static void combo_taps(const struct work *w, i64 i, i64 tap[MAX_RANK])
{
    for (i64 j = 0; j < w->in_tile; j++) {
        u32 a = w->q.tap[j];
        tap[a] = i % w->q.x.k[a];
        i /= w->q.x.k[a];
    }
}

/* First element of a band's operand, channel 0 of the group. */
static kval band_first(const struct band *b)
{
    struct kir *k = b->m->k;
    const struct conv *c = &b->c;
    kval idx[MAX_RANK];
    if (b->s.stage != STAGE_DIRECT) return kir_int(k, 0);
    for (u32 a = 0; a < MAX_RANK; a++) idx[a] = a < c->rank ? kir_mul_i(k, b->pos[a], c->stride[a]) : kir_int(k, 0);
    if (b->ya >= 0) idx[b->ya] = kir_mul_i(k, b->y0, c->stride[b->ya]);
    if (b->xa >= 0) idx[b->xa] = kir_mul_i(k, b->x0, c->stride[b->xa]);
    idx[1] = kir_mul_i(k, b->group, c->ic);
    return emit_offset(b->m, c->x, idx);
}

static kval band_array(const struct band *b) { return b->s.stage == STAGE_DIRECT ? b->m->buf[b->c.x] : b->work; }

static kval y_array(const struct work *w) { return w->copies ? w->y_array : w->m->buf[w->q.y.x]; }

/* From one element of dy to the next along an axis, in rows. */
static kval row_step(const struct work *w, u32 a)
{
    const struct shape room = value_room(graph_value(w->q.g, w->q.y.x));
    sym n = sym_const(w->q.g->sym, 1);
    for (u32 i = a + 1; i < room.rank; i++) n = sym_mul(w->q.g->sym, n, room.dim[i]);
    return emit_size(w->m, n);
}

/* From one position of dy to the next along an axis of the band. */
static kval y_step(const struct work *w, i32 a)
{
    struct kir *k = w->m->k;
    if (w->by_rows) return row_step(w, (u32)a);
    if (!w->copies) return w->y.step[a];
    return a == w->x.xa ? kir_int(k, w->width) : kir_mul_i(k, emit_size(w->m, w->x.x_tile), w->width);
}

static kval y_block(const struct work *w, kval block)
{
    struct kir *k = w->m->k;
    kval first = kir_mul_i(k, block, w->channels);
    if (w->by_rows) return kir_add(k, band_first(&w->y), kir_mul(k, first, row_step(w, 1)));
    if (!w->copies) return kir_add(k, band_first(&w->y), first);
    sym n = sym_mul(w->q.g->sym, w->x.x_tile, w->x.y_tile);
    return kir_mul(k, kir_sub(k, block, w->from), kir_mul_i(k, emit_size(w->m, n), w->width));
}

/* From one position to the next along an axis of the band. */
static kval position_step(const struct band *b, i32 a) { return kir_mul_i(b->m->k, b->step[a], b->c.stride[a]); }

/* Adds the products of one row of positions: vectors of them, the last with those that exist. */
static void add_vectors(const struct work *w, const struct tile *t, struct tile_in in, kval y_at)
{
    struct kir *k = w->m->k;
    struct tile own = *t;
    struct vectors v = vectors_over(k, kir_int(k, 0), kir_sub(k, w->x.x1, w->x.x0), t->lanes);
    kval at = in.at;
    while (vectors_next(&v)) {
        in.at = kir_add(k, at, v.at), in.limit = own.limit = v.limit;
        tile_step(&own, &in, y_array(w), kir_add(k, y_at, v.at));
    }
}

/* Likewise one by one. */
static void add_row(const struct work *w, const struct tile *t, struct tile_in in, kval y_at)
{
    if (w->x.xa < 0) {
        tile_step(t, &in, y_array(w), y_at);
        return;
    }
    tile_run(t, &(struct tile_run){.a = in,
                                   .a_step = position_step(&w->x, w->x.xa),
                                   .b = y_array(w),
                                   .b_at = y_at,
                                   .b_step = y_step(w, w->x.xa),
                                   .n = kir_sub(w->m->k, w->x.x1, w->x.x0),
                                   .ku = KU});
}

/* The band's products. */
static void multiply(struct cpu_contraction *p, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    const struct work *w = p->own;
    struct kir *k = w->m->k;
    kval px[GRAD_PIXELS], zero = kir_int(k, 0);
    struct tile_in in = {.buf = band_array(&w->x), .at = band_first(&w->x), .y_step = zero, .x_step = zero, .px = px};
    if (!w->by_rows && e->columns % t->lanes) t->limit = kir_int(k, e->columns);
    if (w->by_rows) t->next = row_step(w, 1);
    for (i64 i = 0; i < w->combos; i++) {
        i64 tap[MAX_RANK] = {0};
        kval at = zero;
        combo_taps(w, i, tap);
        for (i64 j = 0; j < w->in_tile; j++)
            at = kir_add(k, at, kir_mul_i(k, tap_step(w, w->q.tap[j]), tap[w->q.tap[j]]));
        for (i64 j = 0; j < t->tx; j++) px[i * t->tx + j] = kir_add(k, at, kir_mul_i(k, w->x.c_step, j));
    }
    in.at = kir_add(k, in.at, w->q.depthwise ? kir_mul_i(k, e->at[CPU_BLOCK], w->channels) : kir_mul(k, e->at[CPU_X], w->x.c_step));
    for (u32 j = (u32)w->in_tile; j < w->q.n_taps; j++)
        in.at = kir_add(k, in.at, kir_mul(k, tap_step(w, w->q.tap[j]), e->at[CPU_TAP + w->q.tap[j]]));
    kval y_at = y_block(w, e->at[CPU_BLOCK]);
    if (w->x.ya >= 0) {
        kval y = kir_loop(k, KL_SERIAL, zero, kir_sub(k, w->x.y1, w->x.y0), 1);
        in.at = kir_add(k, in.at, kir_mul(k, y, position_step(&w->x, w->x.ya)));
        y_at = kir_add(k, y_at, kir_mul(k, y, y_step(w, w->x.ya)));
    }
    if (w->by_rows) add_vectors(w, t, in, y_at);
    else add_row(w, t, in, y_at);
    if (w->x.ya >= 0) kir_end(k);
}

/* Vector j of a sum, at tap number `combo` of the tile. */
static kval sum_index(const struct work *w, const struct cpu_piece *e, kval combo, kval c, i64 j)
{
    struct kir *k = w->m->k;
    kval at = kir_sub(k, e->at[CPU_BLOCK], w->from);
    for (u32 i = w->q.n_taps; i-- > (u32)w->in_tile;)
        at = kir_add(k, kir_mul_i(k, at, w->q.x.k[w->q.tap[i]]), e->at[CPU_TAP + w->q.tap[i]]);
    at = kir_add(k, kir_mul_i(k, at, w->combos), combo);
    at = kir_add(k, kir_mul_i(k, at, w->q.ic), c);
    return kir_ramp(k, kir_add_i(k, kir_mul_i(k, at, w->width), j * w->t.lanes), 1, w->t.lanes);
}

/* A finished vector: of channels, or partial sums of one; tap: per axis. */
static void finish(const struct work *w, const struct cpu_piece *e, const kval *tap, kval c, i64 j, kval val)
{
    struct emit *m = w->m;
    struct kir *k = m->k;
    u32 lanes = w->by_rows ? 1 : w->t.lanes;
    kval idx[MAX_RANK], at = kir_add_i(k, kir_mul_i(k, e->at[CPU_BLOCK], w->channels), j * lanes);
    i64 left = e->columns - j * lanes;
    kval limit = left < lanes ? kir_int(k, left) : 0;
    if (w->by_rows) val = kir_un(k, KI_HADD, val);
    for (u32 a = 0; a < MAX_RANK; a++) idx[a] = a < w->q.x.rank ? tap[a] : kir_int(k, 0);
    idx[0] = kir_ramp(k, kir_add(k, kir_mul_i(k, w->group, w->q.oc), at), 1, lanes);
    idx[1] = c;
    emit_limit(m, limit);
    result_store(m, w->r, idx, val, limit);
    emit_limit(m, 0);
}

/* What the tile holds goes to the sums, or is finished. */
static void take(struct cpu_contraction *p, const struct tile *t, const struct cpu_piece *e)
{
    const struct work *w = p->own;
    struct kir *k = w->m->k;
    for (i64 row = 0; row < w->combos * t->tx; row++) {
        i64 tap[MAX_RANK] = {0}, combo = row / t->tx;
        kval at[MAX_RANK], ch = kir_add_i(k, e->at[CPU_X], row % t->tx);
        combo_taps(w, combo, tap);
        for (u32 a = 0; a < MAX_RANK; a++) at[a] = kir_add_i(k, e->at[CPU_TAP + a], tap[a]);
        for (i64 j = 0; j < t->nr; j++) {
            kval v = kir_load(k, t->acc, tile_acc(t, row, j));
            if (!w->many) {
                finish(w, e, at, ch, j, v);
                continue;
            }
            kval to = sum_index(w, e, kir_int(k, combo), ch, j);
            kir_store(k, w->sums, to, kir_add(k, kir_load(k, w->sums, to), v));
        }
    }
}

/* Blocks of output channels, the last of which may be narrower; taps from number `first` on; input channels. */
static void add_blocks(struct cpu_contraction *p)
{
    struct work *w = p->own;
    struct cpu_level *l = cpu_level_add(p, CPU_BLOCK, w->from, w->to, 1);
    l->rest = w->q.oc % w->channels, l->columns = kir_int(w->m->k, w->q.oc);
}

static void add_channels(struct cpu_contraction *p, u32 first, i64 tx)
{
    struct work *w = p->own;
    struct kir *k = w->m->k;
    kval zero = kir_int(k, 0);
    for (u32 j = w->q.n_taps; j-- > first;) cpu_level_add(p, CPU_TAP + w->q.tap[j], zero, kir_int(k, w->q.x.k[w->q.tap[j]]), 1);
    struct cpu_level *l = cpu_level_add(p, CPU_X, zero, kir_int(k, w->q.ic), tx);
    l->rest = w->q.ic % tx, l->always = true;
}

/* Something is done for all blocks of the iteration. */
static struct cpu_contraction each_block(const struct cpu_contraction *p)
{
    struct cpu_contraction own = *p;
    own.n_levels = 0;
    add_blocks(&own);
    return own;
}

/* Sums begin as zeros. */
static void clear_block(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct work *w = p->own;
    struct kir *k = w->m->k;
    i64 n = w->combos * w->rest * w->q.ic * w->width;
    kval at = kir_mul_i(k, kir_sub(k, e->at[CPU_BLOCK], w->from), n);
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, n), w->t.lanes);
    kir_store(k, w->sums, kir_ramp(k, kir_add(k, at, i), 1, w->t.lanes), kir_const_f(k, w->t.type, w->t.lanes, 0));
    kir_end(k);
}

static void finish_sums(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct work *w = p->own;
    struct kir *k = w->m->k;
    kval combo = kir_int(k, 0);
    const kval *tap = &e->at[CPU_TAP];
    for (i64 j = w->in_tile; j-- > 0;) combo = kir_add(k, kir_mul_i(k, combo, w->q.x.k[w->q.tap[j]]), tap[w->q.tap[j]]);
    for (i64 j = 0; j < ceil_div(e->columns, p->per); j++)
        finish(w, e, tap, e->at[CPU_X], j, kir_load(k, w->sums, sum_index(w, e, combo, e->at[CPU_X], j)));
}

static void close(struct cpu_contraction *p)
{
    const struct work *w = p->own;
    if (!w->many) return;
    struct cpu_contraction own = each_block(p);
    add_channels(&own, 0, 1);
    cpu_nest(&own, NULL, finish_sums);
}

/* Copying the gradient of the output. */

/* Channels of a block at one position. */
static void copy_channels(const struct work *w, const struct cpu_piece *e, kval *idx, kval to)
{
    struct kir *k = w->m->k;
    kval first = kir_add(k, kir_mul_i(k, w->group, w->q.oc), kir_mul_i(k, e->at[CPU_BLOCK], w->width));
    for (i64 j = 0; j < ceil_div(e->columns, w->t.lanes); j++) {
        i64 left = e->columns - j * w->t.lanes;
        emit_limit(w->m, left < w->t.lanes ? kir_int(k, left) : 0);
        idx[1] = kir_ramp(k, kir_add_i(k, first, j * w->t.lanes), 1, w->t.lanes);
        kval v = kir_splat(k, kir_cast(k, w->t.type, emit_value(w->m, w->q.y.x, idx)), w->t.lanes);
        kir_store(k, w->y_array, kir_ramp(k, kir_add_i(k, to, j * w->t.lanes), 1, w->t.lanes), v);
    }
    emit_limit(w->m, 0);
}

/* A vector of columns of one channel, or the first `limit` of it. */
static void copy_columns(const struct work *w, kval *idx, kval column, kval to, kval limit)
{
    struct kir *k = w->m->k;
    emit_limit(w->m, limit);
    idx[w->x.xa] = kir_ramp(k, kir_add(k, w->x.x0, column), 1, w->t.lanes);
    kval v = kir_splat(k, kir_cast(k, w->t.type, emit_value(w->m, w->q.y.x, idx)), w->t.lanes);
    to = kir_add(k, to, kir_mul_i(k, column, w->width));
    kir_store_n(k, w->y_array, kir_ramp(k, to, w->width, w->t.lanes), v, limit);
    emit_limit(w->m, 0);
}

static void copy_row(const struct work *w, const struct cpu_piece *e, kval *idx, kval to)
{
    struct kir *k = w->m->k;
    kval zero = kir_int(k, 0), n = kir_sub(k, w->x.x1, w->x.x0);
    if (w->x.xa < 2 || conv_input_layout(&w->q.y) != LAYOUT_ROWS) {
        kval i = w->x.xa >= 0 ? kir_loop(k, KL_SERIAL, zero, n, 1) : zero;
        if (w->x.xa >= 0) idx[w->x.xa] = kir_add(k, w->x.x0, i);
        copy_channels(w, e, idx, kir_add(k, to, kir_mul_i(k, i, w->width)));
        if (w->x.xa >= 0) kir_end(k);
        return;
    }
    struct vectors v = vectors_over(k, zero, n, w->t.lanes);
    kval c = kir_loop(k, KL_SERIAL, zero, kir_int(k, e->columns), 1);
    idx[1] = kir_add(k, kir_add(k, kir_mul_i(k, w->group, w->q.oc), kir_mul_i(k, e->at[CPU_BLOCK], w->width)), c);
    to = kir_add(k, to, c);
    while (vectors_next(&v)) copy_columns(w, idx, v.at, to, v.limit);
    kir_end(k);
}

static void copy_block(struct cpu_contraction *p, const struct cpu_piece *e)
{
    const struct work *w = p->own;
    struct kir *k = w->m->k;
    kval idx[MAX_RANK], to = y_block(w, e->at[CPU_BLOCK]), zero = kir_int(k, 0);
    for (u32 a = 0; a < MAX_RANK; a++) idx[a] = w->x.pos[a] ? w->x.pos[a] : zero;
    if (w->x.ya >= 0) {
        kval o = kir_loop(k, KL_SERIAL, zero, kir_sub(k, w->x.y1, w->x.y0), 1);
        idx[w->x.ya] = kir_add(k, w->x.y0, o);
        to = kir_add(k, to, kir_mul(k, o, y_step(w, w->x.ya)));
    }
    copy_row(w, e, idx, to);
    if (w->x.ya >= 0) kir_end(k);
}

/* Bands. */

static sym band_count(const struct work *w)
{
    struct symtab *t = w->m->g->sym;
    sym n = space_count(&w->q.outer, t, 0, w->q.outer.n);
    return sym_mul(t, n, sym_mul(t, bands_across(&w->x), bands_down(&w->x)));
}

static void place_band(struct work *w, struct band *b, kval number)
{
    struct kir *k = w->m->k;
    kval nx = emit_size(w->m, bands_across(b)), ny = emit_size(w->m, bands_down(b)), rows = kir_div(k, number, nx);
    b->group = w->group;
    band_place(b, &w->q.outer, kir_div(k, rows, ny), kir_mod(k, rows, ny), kir_mod(k, number, nx));
}

static void enter_band(struct cpu_contraction *p, kval number)
{
    struct work *w = p->own;
    place_band(w, &w->x, number);
    place_band(w, &w->y, number);
    if (w->x.s.stage != STAGE_DIRECT) band_fill(&w->x);
    if (!w->copies) return;
    struct cpu_contraction own = each_block(p);
    cpu_nest(&own, NULL, copy_block);
}

static void enter_pass(struct cpu_contraction *p, const struct cpu_piece *e) { enter_band(p, e->at[CPU_PASS]); }

static void open_arrays(struct work *w)
{
    struct kir *k = w->m->k;
    struct symtab *t = w->q.g->sym;
    sym n = sym_mul(t, sym_mul(t, w->x.x_tile, w->x.y_tile), sym_const(t, w->mb * w->width));
    if (w->x.s.stage != STAGE_DIRECT) w->x.work = kir_alloc(k, KS_WORK, w->x.band_type, 1, emit_size(w->m, w->x.size));
    if (w->copies) w->y_array = kir_alloc(k, KS_WORK, w->t.type, 1, emit_size(w->m, n));
    i64 sums = w->mb * w->combos * w->rest * w->q.ic * w->width;
    if (w->many) w->sums = kir_alloc(k, KS_WORK, w->t.type, 1, kir_int(k, sums));
    tile_open(&w->t);
}

static u32 open(struct cpu_contraction *p)
{
    struct work *w = p->own;
    struct emit *m = w->m;
    struct kir *k = m->k;
    struct symtab *t = m->g->sym;
    i64 n, parts = p->r.parts;
    sym bands = band_count(w);
    w->many = !sym_is_const(t, bands, &n) || n != parts;
    kval number = kir_grid(k, kir_int(k, parts * w->q.groups)), piece = kir_grid(k, kir_int(k, ceil_div(w->n_tiles, w->mb)));
    w->part = p->r.part = kir_mod_i(k, number, parts), w->group = kir_div_i(k, number, parts);
    w->from = kir_mul_i(k, piece, w->mb);
    w->to = kir_min(k, kir_add_i(k, w->from, w->mb), kir_int(k, w->n_tiles));
    open_arrays(w);
    if (w->many) {
        kval share = emit_size(m, sym_cdiv(t, bands, sym_const(t, parts))), first = kir_mul(k, w->part, share);
        struct cpu_contraction own = each_block(p);
        cpu_nest(&own, NULL, clear_block);
        cpu_level_add(p, CPU_PASS, first, kir_min(k, kir_add(k, first, share), emit_size(m, bands)), 1)->enter = enter_pass;
    } else {
        enter_band(p, w->part);
    }
    add_blocks(p);
    add_channels(p, (u32)w->in_tile, w->t.tx);
    return 2;
}

static const struct cpu_addressing gradients = {.open = open, .multiply = multiply, .take = take, .close = close};

void grad_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct grad_sched *s)
{
    struct work *w = arena_new(m->arena, struct work);
    grad_of(&w->q, t);
    grad_join_groups(&w->q);
    struct conv_sched x = {.ty = 1, .tx = 1, .nr = 1, .th = s->th, .tw = s->tw, .stage = s->stage}, y = x;
    y.stage = STAGE_DIRECT;
    w->m = m, w->copies = s->dy == GRAD_BLOCKS, w->by_rows = s->dy == GRAD_ROWS;
    band_init(&w->x, m, &w->q.x, caps, &x);
    band_init(&w->y, m, &w->q.y, caps, &y);
    w->in_tile = s->taps;
    w->combos = grad_combos(&w->q, s->taps), w->rest = grad_combos(&w->q, w->q.n_taps) / w->combos;
    w->t = (struct tile){.m = m, .ty = w->combos, .tx = s->tx, .nr = s->nr, .leaf = w->by_rows ? &tile_terms : w->q.depthwise ? &tile_channels : &tile_fma, .lanes = w->x.lanes, .type = w->x.type};
    w->width = w->t.nr * w->t.lanes, w->channels = w->by_rows ? w->t.nr : w->width;
    w->n_tiles = ceil_div(w->q.oc, w->channels);
    w->mb = s->mb ? i64_min(s->mb, w->n_tiles) : w->n_tiles;
    emit_args(m);
    /* A tile reads few channels of many positions, which must not fall on the same cache sets. */
    i64 size = dtype_size(w->x.type);
    if (s->stage == STAGE_PIXELS && w->q.x.ic * size % 512 == 0) w->x.terms += 64 / size;
    if (s->stage == STAGE_DIRECT) conv_in_place(&w->x);
    else band_layout(&w->x);
    if (s->dy == GRAD_PLACE) conv_in_place(&w->y);
    struct cpu_contraction p = {.m = m, .address = &gradients, .own = w, .t = &w->t, .width = w->channels, .per = w->by_rows ? 1 : w->t.lanes,
                                .r = {.v = w->q.dw, .inner = 0, .parts = s->split_k}};
    w->r = &p.r;
    cpu_emit(&p, s->split_k > 1 || !w->q.simple, t, caps);
}
