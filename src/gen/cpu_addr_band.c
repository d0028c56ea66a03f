// SPDX-License-Identifier: Apache-2.0
//
// cpu_addr_band: addressings of convolutions by taps and channels. Pixels come straight from the input (no padding, channels last), or from a band that
// the iteration copied to scratch first (cpu_band.c). Tiles that hang over the end compute on zeros (scratch) or on the last pixel again (in place) and store
// only what exists.
//
// Three orders of the terms, each with its leaf: taps, then channels (tile_fma, tile_dot); channels, then taps along x, whose pixels are neighbours in a
// band of planes (tile_rows); taps, then vectors of channels (tile_terms). The latter are for few output channels.
#include "gen/cpu.h"

enum { MAX_WRITTEN = 12 /* steps of few channels that are written out for the taps along x */ };

/* Taps of a convolution in the order of the band, without the last n axes. */
static void pack_taps(struct band *b, struct pack *p, u32 without)
{
    for (u32 i = 0; i + without < b->n_order; i++)
        if (b->order[i] >= 2) pack_dim_i(p, b->m->g->sym, b->c.k[b->order[i]], b->order[i], 1);
}

static i64 dilation(const struct band *b, u32 a)
{
    return is_tile_axis(b, a) || b->s.stage == STAGE_DIRECT ? b->c.dil[a] : 1;
}

/* Opens the loop over the taps of an axis, if it has several. */
static void walk_taps(const struct band *b, struct cpu_walk *w, enum kir_loop kind, u32 a, i64 w_step)
{
    struct kir *k = b->m->k;
    if (b->c.k[a] > 1) cpu_walk_over(w, kind, kir_int(k, 0), kir_int(k, b->c.k[a]), dilation(b, a), b->step[a], w_step);
}

/* Element of the first pixel of the tile at (y, x). */
static kval tile_start(struct band *b, kval y, kval x)
{
    struct kir *k = b->m->k;
    struct conv *c = &b->c;
    kval idx[MAX_RANK];
    if (b->s.stage != STAGE_DIRECT) {
        kval at = kir_int(k, 0);
        if (b->ya >= 0)
            at = kir_mul(k, kir_mul_i(k, kir_sub(k, y, b->y0), c->stride[b->ya]), b->step[b->ya]);
        if (b->xa >= 0)
            at = kir_add(
                k, at,
                kir_mul(k, kir_mul_i(k, kir_sub(k, x, b->x0), c->stride[b->xa]), b->step[b->xa]));
        return at;
    }
    for (u32 i = 0; i < MAX_RANK; i++)
        idx[i] = i < c->rank ? kir_mul_i(k, b->pos[i], c->stride[i]) : kir_int(k, 0);
    if (b->ya >= 0) idx[b->ya] = kir_mul_i(k, y, c->stride[b->ya]);
    if (b->xa >= 0) idx[b->xa] = kir_mul_i(k, x, c->stride[b->xa]);
    idx[1] = kir_mul_i(k, b->group, c->ic);
    return emit_offset(b->m, c->x, idx);
}

/* The pixels of a tile. */
static struct tile_in tile_pixels(struct band *b, const struct cpu_piece *e)
{
    struct kir *k = b->m->k;
    kval zero = kir_int(k, 0);
    return (struct tile_in){.buf = b->s.stage == STAGE_DIRECT ? b->m->buf[b->c.x] : b->work,
                            .at = tile_start(b, e->at[CPU_Y], e->at[CPU_X]),
                            .x_step = b->xa >= 0 ? kir_mul_i(k, b->step[b->xa], b->c.stride[b->xa]) : zero,
                            .y_step = b->ya >= 0 ? kir_mul_i(k, b->step[b->ya], b->c.stride[b->ya]) : zero};
}

/* Taps, then channels. */

/* Packed weights: [group][block][taps in the band's order][channel][nr*lanes]; for a DOT [group of channels][nr*lanes][channel], zeros
 * behind the last channel. */
kval conv_pack(struct band *b)
{
    struct symtab *t = b->m->g->sym;
    struct conv *c = &b->c;
    struct pack *p = arena_new(b->m->arena, struct pack);
    if (c->groups > 1) pack_dim_i(p, t, c->groups, 0, c->oc);
    pack_dim_i(p, t, b->n_blocks, 0, b->width);
    pack_taps(b, p, 0);
    pack_dim_i(p, t, b->terms / b->group_size, 1, b->group_size);
    pack_dim_i(p, t, b->width, 0, 1);
    if (b->dot_k > 1) pack_dim_i(p, t, b->group_size, 1, 1);
    b->address = &cpu_band, b->block_weights = b->terms * b->width;
    for (u32 a = 2; a < c->rank; a++) b->block_weights *= c->k[a];
    return emit_pack(b->m, c->w, p);
}

/* How many axes of taps are loops: the others follow each other in memory like channels and make one long run with them. */
static u32 looped_axes(const struct band *b, i64 *run, kval *step)
{
    struct kir *k = b->m->k;
    const struct conv *c = &b->c;
    u32 n = b->n_order;
    i64 s;
    *run = b->terms, *step = b->c_step;
    if (b->s.stage == STAGE_PLANES && b->xa >= 2) {
        if (b->terms > 1 || c->k[b->xa] == 1) return n;
        *run = c->k[b->xa], *step = kir_int(k, c->dil[b->xa]);
        return n - 1;
    }
    for (; n > 0; n--) {
        u32 a = b->order[n - 1];
        bool follows = kir_is_const(k, b->step[a], &s) && s * dilation(b, a) == *run;
        if (c->k[a] > 1 && !follows) break;
        *run *= c->k[a];
    }
    return n;
}

/* Loops over taps, then channels, so that terms are added in the same order however the input lies. */
static void add_taps(struct band *b, const struct tile *t, struct tile_in in, kval w_at)
{
    struct kir *k = b->m->k;
    struct conv *c = &b->c;
    struct cpu_walk w = {.k = k, .a = in.at, .b = w_at};
    i64 run, after[MAX_RANK + 1];
    kval step;
    u32 n_taps = looped_axes(b, &run, &step);
    i64 n = run, terms = run / b->dot_k;
    for (u32 i = n_taps; i-- > 0;) {
        after[i] = n * b->width;
        n *= c->k[b->order[i]];
    }
    for (u32 i = 0; i < n_taps; i++) {
        u32 a = b->order[i];
        bool written = b->s.stage == STAGE_PLANES && (i32)a == b->xa && run * c->k[a] <= MAX_WRITTEN;
        walk_taps(b, &w, written ? KL_UNROLL : KL_SERIAL, a, after[i]);
    }
    in.at = w.a;
    tile_steps(t, in, kir_mul_i(k, step, b->dot_k), conv_weights(b), w.b, terms, terms > 4 ? b->s.ku : 0);
    cpu_walk_close(&w);
}

/* Offsets of a tile's pixels with those that do not exist moved onto the last that does. */
static void clamp_pixels(struct band *b, const struct tile_in *in, const struct cpu_piece *e, kval *px)
{
    struct kir *k = b->m->k;
    for (i64 dy = 0; dy < b->s.ty; dy++)
        for (i64 dx = 0; dx < b->s.tx; dx++) {
            kval at = kir_int(k, 0);
            if (b->ya >= 0) {
                kval last = kir_add_i(k, kir_sub(k, b->y1, e->at[CPU_Y]), -1);
                at = kir_mul(k, kir_min(k, kir_int(k, dy), last), in->y_step);
            }
            if (b->xa >= 0) {
                kval last = kir_add_i(k, kir_sub(k, b->x1, e->at[CPU_X]), -1);
                at = kir_add(k, at, kir_mul(k, kir_min(k, kir_int(k, dx), last), in->x_step));
            }
            px[dy * b->s.tx + dx] = at;
        }
}

static void multiply(struct cpu_contraction *p, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct band *b = p->own;
    struct kir *k = b->m->k;
    kval px[64], w_at = conv_weights_at(b, e->at[CPU_BLOCK]);
    struct tile_in in = tile_pixels(b, e);
    kval full = b->s.stage == STAGE_DIRECT ? tile_full(t, o) : 0;
    if (full) kir_if(k, full);
    add_taps(b, t, in, w_at);
    if (!full) return;
    kir_else(k);
    clamp_pixels(b, &in, e, px);
    in.px = px;
    add_taps(b, t, in, w_at);
    kir_end(k);
}

const struct cpu_addressing cpu_band = {.open = conv_open, .target = conv_target, .multiply = multiply};

void gen_conv_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct conv_sched *s)
{
    struct band *b = arena_new(m->arena, struct band);
    struct conv c;
    conv_of_any(&c, t);
    band_init(b, m, &c, caps, s);
    band_set_columns(b, conv_column_lanes(&c, caps));
    band_multiply_by(b, conv_product_of_rows(&c, caps), caps);
    b->wbuf = conv_pack(b);
    conv_may_widen(b, caps);
    emit_args(m);
    emit_stream(m, s->nt);
    if (s->stage == STAGE_DIRECT) conv_in_place(b);
    else band_layout(b);
    conv_emit(b, t, caps);
}

/* Few output channels: all of them are one block, of single columns. */

static u32 open_columns(struct cpu_contraction *p)
{
    struct band *b = p->own;
    band_open(b, 1);
    b->group = kir_int(b->m->k, 0);
    band_fill(b);
    conv_levels(p, 0, 0);
    return 3;
}

struct columns {
    const struct tile_leaf *leaf;
    enum conv_stage stage;
    struct cpu_addressing address;
    kval (*pack)(struct band *b);
};

static void emit_columns(struct emit *m, const struct task *t, const struct caps *caps, const struct conv_sched *own, const struct columns *x)
{
    struct band *b = arena_new(m->arena, struct band);
    struct conv_sched s = *own;
    struct conv c;
    conv_of(&c, t);
    bool along_x = x->leaf == &tile_rows;
    s.tx = conv_lanes(&c, caps) * (along_x ? own->xv : 1), s.nr = 1, s.stage = x->stage;
    band_init(b, m, &c, caps, &s);
    b->c.by_rows = false; /* leaves store along x */
    b->t.tx = along_x ? own->xv : own->tx, b->t.nr = b->t.pitch = c.oc, b->t.leaf = x->leaf, b->t.bias = c.b;
    b->per = 1, b->width = c.oc, b->n_blocks = 1, b->address = &x->address;
    b->wbuf = x->pack(b);
    emit_args(m);
    band_layout(b);
    conv_emit(b, t, caps);
}

/* Channels, then taps along x: the input in planes. */

/* Packed weights: [taps outside x, in the band's order][ic][taps along x][oc]. */
static kval pack_planes(struct band *b)
{
    struct symtab *st = b->m->g->sym;
    struct pack *p = arena_new(b->m->arena, struct pack);
    pack_taps(b, p, 1);
    pack_dim_i(p, st, b->c.ic, 1, 1);
    pack_dim_i(p, st, b->c.k[b->xa], (u32)b->xa, 1);
    pack_dim_i(p, st, b->c.oc, 0, 1);
    return emit_pack(b->m, b->c.w, p);
}

static void multiply_planes(struct cpu_contraction *p, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct band *b = p->own;
    struct kir *k = b->m->k;
    const struct conv *c = &b->c;
    struct tile_in in = tile_pixels(b, e);
    struct cpu_walk w = {.k = k, .a = in.at, .b = kir_int(k, 0)};
    i64 kx = c->k[b->xa], per = kx * c->ic * c->oc;
    for (u32 i = b->n_order - 1; i-- > 0; per *= c->k[b->order[i]]) walk_taps(b, &w, KL_SERIAL, b->order[i], per);
    kval ch = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, c->ic), 1), x = kir_loop(k, KL_UNROLL, kir_int(k, 0), kir_int(k, kx), 1);
    in.at = kir_add(k, kir_add(k, w.a, kir_mul(k, ch, b->c_step)), kir_mul_i(k, x, c->dil[b->xa])), in.x_step = kir_int(k, t->lanes);
    tile_step(t, &in, b->wbuf, kir_add(k, kir_add(k, w.b, kir_mul_i(k, ch, kx * c->oc)), kir_mul_i(k, x, c->oc)));
    w.n_loops += 2;
    cpu_walk_close(&w);
}

void conv_emit_planes(struct emit *m, const struct task *t, const struct caps *caps, const struct conv_sched *s)
{
    static const struct columns planes = {
        &tile_rows, STAGE_PLANES, {.open = open_columns, .target = conv_target, .multiply = multiply_planes}, pack_planes};
    emit_columns(m, t, caps, s, &planes);
}

/* Taps, then vectors of channels. */

/* Packed weights: [taps in the band's order][vector of ic][oc][lanes], zeros behind the last channel. */
static kval pack_vectors(struct band *b)
{
    struct symtab *st = b->m->g->sym;
    struct pack *p = arena_new(b->m->arena, struct pack);
    pack_taps(b, p, 0);
    pack_dim_i(p, st, ceil_div(b->c.ic, b->lanes), 1, b->lanes);
    pack_dim_i(p, st, b->c.oc, 0, 1);
    pack_dim_i(p, st, b->lanes, 1, 1);
    return emit_pack(b->m, b->c.w, p);
}

/* Where the rows of a tile begin in the band. */
static void enter_row(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct band *b = p->own;
    b->row = tile_start(b, e->at[CPU_Y], b->x0);
}

static u32 open_vectors(struct cpu_contraction *p)
{
    struct band *b = p->own;
    u32 n = open_columns(p);
    b->row = kir_int(b->m->k, 0);
    if (b->ya >= 0) p->level[0].enter = enter_row;
    return n;
}

static void multiply_vectors(struct cpu_contraction *p, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct band *b = p->own;
    struct kir *k = b->m->k;
    const struct conv *c = &b->c;
    struct tile_in in = tile_pixels(b, e);
    kval x = kir_add(k, kir_sub(k, e->at[CPU_X], b->x0), e->at[CPU_PART]);
    struct cpu_walk w = {.k = k, .a = kir_add(k, b->row, kir_mul(k, x, in.x_step)), .b = kir_int(k, 0)};
    i64 whole = c->ic / t->lanes, rest = c->ic % t->lanes, n = ceil_div(c->ic, t->lanes), size = t->nr * t->lanes, per = n * size;
    for (u32 i = 0; i < b->n_order; i++) per *= c->k[b->order[i]];
    for (u32 i = 0; i < b->n_order; i++) {
        per /= c->k[b->order[i]];
        walk_taps(b, &w, KL_SERIAL, b->order[i], per);
    }
    in.at = w.a;
    tile_steps(t, in, kir_int(k, t->lanes), b->wbuf, w.b, whole, n > CONV_VECTORS);
    in.at = kir_add_i(k, w.a, whole * t->lanes), in.limit = kir_int(k, rest);
    if (rest) tile_step(t, &in, b->wbuf, kir_add_i(k, w.b, whole * size));
    cpu_walk_close(&w);
}

static void collect(struct cpu_contraction *p, const struct tile *t, const struct cpu_piece *e) { tile_collect(t, e->at[CPU_PART]); }

void conv_emit_vectors(struct emit *m, const struct task *t, const struct caps *caps, const struct conv_sched *s)
{
    static const struct columns vectors = {
        &tile_terms, STAGE_PIXELS, {.open = open_vectors, .target = conv_target, .multiply = multiply_vectors, .take = collect}, pack_vectors};
    emit_columns(m, t, caps, s, &vectors);
}
