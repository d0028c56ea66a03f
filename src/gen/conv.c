// SPDX-License-Identifier: Apache-2.0
//
// conv: convolution as a matrix product whose left operand is never built. A grid iteration
// computes a band of output rows, a range of x, and some blocks of output channels, in register
// tiles of ty x tx pixels by nr vectors of channels; weights are packed block by block in the order
// in which the steps read them.
//
// Pixels come straight from the input (no padding, channels last), or from a band that the
// iteration copied to scratch first (band.c). Tiles that hang over the end compute on zeros
// (scratch) or on the last pixel again (direct) and store only what exists.
//
// Dims: n, spatial axes 2.., output channels split in blocks of nr vectors, taps, input channels.
#include "gen/conv.h"

/* Strides of the input where it lies, channels last. */
void conv_in_place(struct band *b)
{
    struct symtab *t = b->m->g->sym;
    const struct shape room = value_room(graph_value(b->m->g, b->c.x));
    sym size = room.dim[1];
    b->c_step = kir_int(b->m->k, 1);
    for (u32 a = b->c.rank; a-- > 0;) {
        if (a == 1) continue;
        b->step[a] = emit_size(b->m, size);
        size = sym_mul(t, size, b->c.in[a]);
    }
}

/* Packed weights: [group][block][taps in the band's order][channel][nr*lanes]; for a DOT [group of channels][nr*lanes][channel], zeros
 * behind the last channel. */
kval conv_pack(struct band *b)
{
    struct symtab *t = b->m->g->sym;
    struct conv *c = &b->c;
    struct pack *p = arena_new(b->m->arena, struct pack);
    if (c->groups > 1) pack_dim_i(p, t, c->groups, 0, c->oc);
    pack_dim_i(p, t, b->n_blocks, 0, b->width);
    for (u32 pass = 0; pass < 2; pass++)
        for (u32 a = 2; a < c->rank; a++)
            if (((i32)a == b->xa) == (pass == 1)) pack_dim_i(p, t, c->k[a], a, 1);
    pack_dim_i(p, t, b->terms / b->dot, 1, b->dot);
    pack_dim_i(p, t, b->width, 0, 1);
    if (b->dot > 1) pack_dim_i(p, t, b->dot, 1, 1);
    return emit_pack(b->m, c->w, p);
}

/* The product. */

enum { MAX_WRITTEN = 12 /* steps of few channels that are written out for the taps along x */ };

static i64 dilation(const struct band *b, u32 a)
{
    return is_tile_axis(b, a) || b->s.stage == STAGE_DIRECT ? b->c.dil[a] : 1;
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
static void product(struct band *b, struct tile_in in, kval w_at)
{
    struct kir *k = b->m->k;
    struct conv *c = &b->c;
    u32 n_loops = 0;
    i64 run, after[MAX_RANK + 1];
    kval at = in.at, step;
    u32 n_taps = looped_axes(b, &run, &step);
    i64 n = run;
    for (u32 i = n_taps; i-- > 0;) {
        after[i] = n * b->width;
        n *= c->k[b->order[i]];
    }
    for (u32 i = 0; i < n_taps; i++) {
        u32 a = b->order[i];
        if (c->k[a] == 1) continue;
        bool written = b->s.stage == STAGE_PLANES && (i32)a == b->xa && run * c->k[a] <= MAX_WRITTEN;
        kval tap = kir_loop(k, written ? KL_UNROLL : KL_SERIAL, kir_int(k, 0), kir_int(k, c->k[a]), 1);
        at = kir_add(k, at, kir_mul(k, kir_mul_i(k, tap, dilation(b, a)), b->step[a]));
        w_at = kir_add(k, w_at, kir_mul_i(k, tap, after[i]));
        n_loops++;
    }
    in.at = at;
    i64 terms = run / b->dot;
    tile_steps(&b->t, in, kir_mul_i(k, step, b->dot), b->wbuf, w_at, terms, terms > 4 ? b->s.ku : 0);
    for (u32 i = 0; i < n_loops; i++) kir_end(k);
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

/* Offsets of a tile's pixels with those that do not exist moved onto the last that does. */
static void clamp_pixels(struct band *b, const struct tile_in *in, kval y, kval x, kval *px)
{
    struct kir *k = b->m->k;
    for (i64 dy = 0; dy < b->s.ty; dy++)
        for (i64 dx = 0; dx < b->s.tx; dx++) {
            kval at = kir_int(k, 0);
            if (b->ya >= 0) {
                kval last = kir_add_i(k, kir_sub(k, b->y1, y), -1);
                at = kir_mul(k, kir_min(k, kir_int(k, dy), last), in->y_step);
            }
            if (b->xa >= 0) {
                kval last = kir_add_i(k, kir_sub(k, b->x1, x), -1);
                at = kir_add(k, at, kir_mul(k, kir_min(k, kir_int(k, dx), last), in->x_step));
            }
            px[dy * b->s.tx + dx] = at;
        }
}

/* Multiply-adds of one tile into its accumulators. */
static void tile_product(struct band *b, kval y, kval x, kval block, const struct tile_out *o)
{
    struct kir *k = b->m->k;
    struct conv *c = &b->c;
    kval px[64];
    i64 per_block = b->terms * b->width;
    for (u32 a = 2; a < c->rank; a++) per_block *= c->k[a];
    kval w_at = kir_mul_i(k, kir_add(k, kir_mul_i(k, b->group, b->n_blocks), block), per_block);
    struct tile_in in = {.buf = b->s.stage == STAGE_DIRECT ? b->m->buf[c->x] : b->work,
                         .at = tile_start(b, y, x)};
    in.x_step = b->xa >= 0 ? kir_mul_i(k, b->step[b->xa], c->stride[b->xa]) : kir_int(k, 0);
    in.y_step = b->ya >= 0 ? kir_mul_i(k, b->step[b->ya], c->stride[b->ya]) : kir_int(k, 0);
    kval full = b->s.stage == STAGE_DIRECT ? tile_full(&b->t, o) : 0;
    if (full) kir_if(k, full);
    product(b, in, w_at);
    if (full) {
        kir_else(k);
        clamp_pixels(b, &in, y, x, px);
        in.px = px;
        product(b, in, w_at);
        kir_end(k);
    }
}

static void tile_at(struct band *b, kval y, kval x, kval block)
{
    struct emit *m = b->m;
    struct kir *k = m->k;
    struct conv *c = &b->c;
    kval ch = kir_add(k, kir_mul_i(k, b->group, c->oc),
                      kir_mul_i(k, block, b->width)); /* first output channel */
    kval end = kir_mul_i(k, kir_add_i(k, b->group, 1), c->oc);
    bool ragged = c->oc % b->width != 0;
    tile_clear(&b->t, b->s.split_k > 1 ? 0 : c->b, ch, ragged ? end : 0);
    struct tile_out o = band_target(b, y, x);
    o.c = ch, o.c_end = ragged ? end : 0;
    if (b->product) b->product(b, y, x, block, &o);
    else tile_product(b, y, x, block, &o);
    tile_store(&b->t, &o);
}

void conv_walk(struct band *b, kval from, kval to)
{
    struct kir *k = b->m->k;
    kval zero = kir_int(k, 0), block = 0, y = zero, x = zero;
    if (b->s.order == 0) block = kir_loop(k, KL_SERIAL, from, to, 1);
    if (b->ya >= 0) y = kir_loop(k, KL_SERIAL, b->y0, b->y1, b->s.ty);
    if (b->xa >= 0) x = kir_loop(k, KL_SERIAL, b->x0, b->x1, b->s.tx);
    if (b->s.order == 1) block = kir_loop(k, KL_SERIAL, from, to, 1);
    tile_at(b, y, x, block);
    for (u32 i = 0; i < 1u + (b->ya >= 0) + (b->xa >= 0); i++) kir_end(k);
}

static void conv_grid(struct band *b)
{
    struct kir *k = b->m->k;
    i64 ob = b->s.ob ? i64_min(b->s.ob, b->n_blocks) : b->n_blocks,
        parts = ceil_div(b->n_blocks, ob);
    i64 ks = i64_max(1, b->s.split_k);
    kval part = band_open(b, b->c.groups * parts * ks);
    b->share = kir_mod_i(k, part, ks), part = kir_div_i(k, part, ks);
    b->group = kir_div_i(k, part, parts);
    if (b->s.stage != STAGE_DIRECT) band_fill(b);
    kval from = kir_mul_i(k, kir_mod_i(k, part, parts), ob);
    conv_walk(b, from, kir_min(k, kir_add_i(k, from, ob), kir_int(k, b->n_blocks)));
    for (u32 i = 0; i < 3; i++) kir_end(k);
}

/* Sums of what iterations left that shared the terms begin with the bias here. */
static kval load_temp(struct emit *m, const void *user, const kval *idx)
{
    const struct band *b = user;
    const struct result r = {.v = b->c.y, .inner = 1, .temp = b->temp, .parts = b->s.split_k};
    kval v = kir_cast(m->k, b->type, result_load(m, &r, idx));
    if (b->s.split_k <= 1 || !b->c.b) return v;
    kval bias = kir_cast(m->k, b->type, emit_value(m, b->c.b, &idx[1]));
    return kir_add(m->k, v, kir_splat(m->k, bias, kir_lanes(m->k, v)));
}

void conv_emit_grids(struct band *b, const struct task *t, const struct caps *caps)
{
    struct emit *m = b->m;
    bool is_apart = !b->c.simple || b->s.split_k > 1;
    if (is_apart) {
        struct result r = {.v = b->c.y, .inner = 1, .parts = b->s.split_k};
        result_open(m, &r, b->type);
        b->temp = r.temp;
    }
    conv_grid(b);
    if (is_apart) gen_elementwise_rest(m, t, caps, b->c.y, load_temp, b);
}

void gen_conv_emit(struct emit *m, const struct task *t, const struct caps *caps,
                   const struct conv_sched *s)
{
    struct band *b = arena_new(m->arena, struct band);
    struct conv c;
    conv_of_any(&c, t);
    band_init(b, m, &c, caps, s);
    b->wbuf = conv_pack(b);
    emit_args(m);
    emit_stream(m, s->nt);
    if (s->stage == STAGE_DIRECT) conv_in_place(b);
    else band_layout(b);
    conv_emit_grids(b, t, caps);
}
