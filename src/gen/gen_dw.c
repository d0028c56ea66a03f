// SPDX-License-Identifier: Apache-2.0
//
// gen_dw: the inner loops of depthwise convolutions, channels vectorised, on a band that holds one
// block of nr vectors of channels (gen_band.c). Every element of a register tile's footprint is
// loaded once and added to all accumulators that it meets. For the rest of the band's code a block
// is a group of as many input channels.
#include "gen/gen_conv.h"

/* Packed weights: [block][taps][channel]. */
static kval pack_weights(struct band *b)
{
    struct symtab *t = b->m->g->sym;
    struct pack *p = arena_new(b->m->arena, struct pack);
    p->dim[p->n].extent = sym_const(t, b->c.groups), p->dim[p->n].axis = 0,
    p->dim[p->n++].stride = b->width;
    for (u32 a = 2; a < b->c.rank; a++)
        p->dim[p->n].extent = sym_const(t, b->c.k[a]), p->dim[p->n].axis = a,
        p->dim[p->n++].stride = 1;
    p->dim[p->n].extent = sym_const(t, b->width), p->dim[p->n].axis = 0, p->dim[p->n++].stride = 1;
    return emit_pack(b->m, b->c.w, p);
}

/* Which tap joins input position `in` with output pixel `out` of the tile along an axis? -1: none.
 */
static i64 tap_between(const struct conv *c, i32 axis, i64 in, i64 out)
{
    i64 d = in - out * c->stride[axis];
    return d >= 0 && d % c->dil[axis] == 0 && d / c->dil[axis] < c->k[axis] ? d / c->dil[axis] : -1;
}

struct taps {
    struct band *b;
    kval at, w_at;
    i64 w_step[MAX_RANK];
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
                in = kir_load(k, b->work, kir_ramp(k, at, 1, b->lanes));
            }
            i64 off =
                (b->ya >= 0 ? ky * x->w_step[b->ya] : 0) + (b->xa >= 0 ? kx * x->w_step[b->xa] : 0);
            kval w = kir_load(k, b->wbuf,
                              kir_ramp(k, kir_add_i(k, x->w_at, off + j * b->lanes), 1, b->lanes));
            kval slot = kir_int(k, (dy * b->s.tx + dx) * b->s.nr + j);
            kir_store(k, b->t.acc, slot,
                      kir_fma(k, in, kir_cast(k, b->type, w), kir_load(k, b->t.acc, slot)));
        }
}

static void product(struct band *b, kval at, kval w_at)
{
    struct kir *k = b->m->k;
    struct conv *c = &b->c;
    struct taps x = {.b = b};
    i64 size = b->width;
    u32 loops = 0;
    for (u32 a = c->rank; a-- > 2;) {
        x.w_step[a] = size;
        size *= c->k[a];
    }
    for (u32 a = 2; a < c->rank; a++) {
        if ((i32)a == b->xa || (i32)a == b->ya || c->k[a] == 1) continue;
        kval tap = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, c->k[a]), 1);
        at = kir_add(k, at, kir_mul(k, tap, b->step[a]));
        w_at = kir_add(k, w_at, kir_mul_i(k, tap, x.w_step[a]));
        loops++;
    }
    x.at = at, x.w_at = w_at;
    i64 rows =
        b->ya >= 0 ? (b->s.ty - 1) * c->stride[b->ya] + (c->k[b->ya] - 1) * c->dil[b->ya] + 1 : 1;
    i64 cols =
        b->xa >= 0 ? (b->s.tx - 1) * c->stride[b->xa] + (c->k[b->xa] - 1) * c->dil[b->xa] + 1 : 1;
    for (i64 r = 0; r < rows; r++)
        for (i64 q = 0; q < cols; q++)
            for (i64 j = 0; j < b->s.nr; j++) add_element(&x, r, q, j);
    while (loops--) kir_end(k);
}

static void tile_at(struct band *b, kval y, kval x)
{
    struct emit *m = b->m;
    struct kir *k = m->k;
    struct conv *c = &b->c;
    kval ch = kir_mul_i(k, b->group, b->width), at = kir_int(k, 0);
    kval end = b->channels ? kir_add(k, ch, b->channels) : 0;
    i64 taps = b->width;
    for (u32 a = 2; a < c->rank; a++) taps *= c->k[a];
    tile_clear(&b->t, c->b, ch, end);
    if (b->ya >= 0)
        at = kir_mul(k, kir_mul_i(k, kir_sub(k, y, b->y0), c->stride[b->ya]), b->step[b->ya]);
    if (b->xa >= 0)
        at = kir_add(
            k, at,
            kir_mul(k, kir_mul_i(k, kir_sub(k, x, b->x0), c->stride[b->xa]), b->step[b->xa]));
    product(b, at, kir_mul_i(k, b->group, taps));
    struct tile_out o = band_target(b, y, x);
    o.c = ch, o.c_end = end;
    tile_store(&b->t, &o);
}

void dw_init(struct band *b)
{
    b->n_channels = b->c.groups;
    b->c.ic = b->width;
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
    struct kir *k = b->m->k;
    kval y = b->ya >= 0 ? kir_loop(k, KL_SERIAL, b->y0, b->y1, b->s.ty) : kir_int(k, 0);
    kval x = b->xa >= 0 ? kir_loop(k, KL_SERIAL, b->x0, b->x1, b->s.tx) : kir_int(k, 0);
    tile_at(b, y, x);
    for (i32 i = 0; i < (b->ya >= 0) + (b->xa >= 0); i++) kir_end(k);
}
