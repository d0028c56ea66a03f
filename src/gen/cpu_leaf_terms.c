// SPDX-License-Identifier: Apache-2.0
//
// cpu_leaf_terms: convolution with few output channels whose input lies with channels last (the last layer
// of an image network): a vector holds input channels, so that nothing is turned round and no lane
// idles as long as there are channels enough. An output is a dot product over taps and channels,
// sixteen partial sums of it in the lanes of one accumulator; a register tile is ty x tx pixels x all
// output channels. The lanes are added up at the end, a vector of pixels for each channel is
// collected in scratch, and the epilogue runs along x.
//
// For each tap and vector of channels: oc vectors of weights, ty*tx of pixels, ty*tx*oc
// multiply-adds. Any strides and dilations.
//
// Dims: n, spatial axes 2.. (x innermost), oc output channels, ic input channels.
#include "gen/cpu.h"

/* Of the band, whose tiles are vectors of pixels. */
static struct conv_sched band_sched(const struct conv_sched *own, i64 lanes)
{
    struct conv_sched s = *own;
    s.tx = lanes, s.nr = 1, s.stage = STAGE_PIXELS, s.ku = 1;
    return s;
}

struct dot_tile {
    struct band *b;
    i64 ty, tx, oc;
    i64 n_vec;     /* vectors of input channels, the last perhaps part of one */
    kval y_step, x_step;
    kval rows;     /* sums: [ty][oc][lanes] */
};

static kval acc_at(const struct dot_tile *t, i64 dy, i64 dx, i64 c)
{
    return kir_int(t->b->m->k, (dy * t->tx + dx) * t->oc + c);
}

static void clear(const struct dot_tile *t)
{
    struct band *b = t->b;
    struct kir *k = b->m->k;
    for (i64 i = 0; i < t->ty * t->tx * t->oc; i++)
        kir_store(k, b->t.acc, kir_int(k, i), kir_const_f(k, b->type, b->lanes, 0));
}

/* One vector of channels, the first n of them. */
static void step(const struct dot_tile *t, kval at, kval w_at, i64 n)
{
    struct band *b = t->b;
    struct kir *k = b->m->k;
    kval w[LEAF_COLUMNS], limit = n < (i64)b->lanes ? kir_int(k, n) : 0;
    for (i64 c = 0; c < t->oc; c++)
        w[c] = kir_cast(k, b->type, kir_load(k, b->wbuf, kir_ramp(k, kir_add_i(k, w_at, c * b->lanes),
                                                                  1, b->lanes)));
    for (i64 dy = 0; dy < t->ty; dy++)
        for (i64 dx = 0; dx < t->tx; dx++) {
            kval from = kir_add(k, kir_add(k, at, kir_mul_i(k, t->y_step, dy)),
                                kir_mul_i(k, t->x_step, dx));
            kval x = kir_load_n(k, b->work, kir_ramp(k, from, 1, b->lanes), limit);
            for (i64 c = 0; c < t->oc; c++) {
                kval a = acc_at(t, dy, dx, c);
                kir_store(k, b->t.acc, a, kir_fma(k, w[c], x, kir_load(k, b->t.acc, a)));
            }
        }
}

static void channels(const struct dot_tile *t, kval at, kval w_at)
{
    struct band *b = t->b;
    struct kir *k = b->m->k;
    i64 whole = b->c.ic / b->lanes, per = t->oc * b->lanes, rest = b->c.ic - whole * b->lanes;
    bool loop = t->n_vec > LEAF_VECTORS;
    if (loop) {
        kval v = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), 1);
        step(t, kir_add(k, at, kir_mul_i(k, v, b->lanes)),
             kir_add(k, w_at, kir_mul_i(k, v, per)), b->lanes);
        kir_end(k);
    }
    for (i64 v = loop ? whole : 0; v < t->n_vec; v++)
        step(t, kir_add_i(k, at, v * b->lanes), kir_add_i(k, w_at, v * per),
             v < whole ? b->lanes : rest);
}

/* Loops over the taps, x innermost, then the channels. */
static void product(const struct dot_tile *t, kval at)
{
    struct band *b = t->b;
    struct kir *k = b->m->k;
    struct conv *c = &b->c;
    kval w_at = kir_int(k, 0);
    u32 n_loops = 0;
    i64 per = t->n_vec * t->oc * b->lanes;
    for (u32 i = 0; i < b->n_order; i++) per *= c->k[b->order[i]];
    for (u32 i = 0; i < b->n_order; i++) {
        u32 a = b->order[i];
        per /= c->k[a];
        if (c->k[a] == 1) continue;
        kval tap = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, c->k[a]), 1);
        at = kir_add(k, at,
                     kir_mul(k, kir_mul_i(k, tap, is_tile_axis(b, a) ? c->dil[a] : 1), b->step[a]));
        w_at = kir_add(k, w_at, kir_mul_i(k, tap, per));
        n_loops++;
    }
    channels(t, at, w_at);
    for (u32 i = 0; i < n_loops; i++) kir_end(k);
}

static void collect(const struct dot_tile *t, kval first)
{
    struct band *b = t->b;
    struct kir *k = b->m->k;
    for (i64 dy = 0; dy < t->ty; dy++)
        for (i64 dx = 0; dx < t->tx; dx++)
            for (i64 c = 0; c < t->oc; c++) {
                kval sum = kir_un(k, KI_HADD, kir_load(k, b->t.acc, acc_at(t, dy, dx, c)));
                kir_store(k, t->rows,
                          kir_add_i(k, first, (dy * t->oc + c) * b->lanes + dx), sum);
            }
}

static void store(const struct dot_tile *t, kval y, kval x)
{
    struct band *b = t->b;
    struct kir *k = b->m->k;
    struct tile_out o = band_target(b, y, x);
    for (i64 dy = 0; dy < t->ty; dy++) {
        bool guarded = dy > 0 && !o.y_exact;
        if (guarded) kir_if(k, kir_lt(k, kir_add_i(k, y, dy), o.y_end));
        for (i64 c = 0; c < t->oc; c++) {
            kval at = kir_int(k, (dy * t->oc + c) * b->lanes), ch = kir_int(k, c);
            kval sum = kir_load(k, t->rows, kir_ramp(k, at, 1, b->lanes));
            if (b->c.b)
                sum = kir_add(k, sum, kir_splat(k, kir_cast(k, b->type, emit_value(b->m, b->c.b, &ch)),
                                                b->lanes));
            band_store_pixels(b, &o, dy, 0, c, sum);
        }
        if (guarded) kir_end(k);
    }
}

/* Packed weights: [taps in the band's order][vector of ic][oc][lanes], zeros behind the last channel. */
static kval pack_weights(struct band *b, i64 n_vec)
{
    struct symtab *st = b->m->g->sym;
    struct conv *c = &b->c;
    struct pack *p = arena_new(b->m->arena, struct pack);
    const struct { i64 extent; u32 axis; i64 stride; } tail[] = {
        {n_vec, 1, b->lanes}, {c->oc, 0, 1}, {b->lanes, 1, 1}};
    for (u32 i = 0; i < b->n_order; i++)
        if (b->order[i] >= 2)
            pack_dim_i(p, st, c->k[b->order[i]], b->order[i], 1);
    for (u32 i = 0; i < countof(tail); i++)
        pack_dim_i(p, st, tail[i].extent, tail[i].axis, tail[i].stride);
    return emit_pack(b->m, c->w, p);
}

static void tiles(struct dot_tile *t)
{
    struct band *b = t->b;
    struct kir *k = b->m->k;
    struct conv *c = &b->c;
    kval y = kir_int(k, 0), at = kir_int(k, 0);
    if (b->ya >= 0) {
        y = kir_loop(k, KL_SERIAL, b->y0, b->y1, t->ty);
        at = kir_mul(k, kir_mul_i(k, kir_sub(k, y, b->y0), c->stride[b->ya]), b->step[b->ya]);
    }
    kval x = kir_loop(k, KL_SERIAL, b->x0, b->x1, b->lanes);
    kval sub = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, b->lanes), t->tx);
    clear(t);
    product(t, kir_add(k, at, kir_mul(k, kir_add(k, kir_sub(k, x, b->x0), sub), t->x_step)));
    collect(t, sub);
    kir_end(k);
    store(t, y, x);
    for (u32 i = 0; i < 1u + (b->ya >= 0); i++) kir_end(k);
}

void terms_emit(struct emit *m, const struct task *task, const struct caps *caps, const struct conv_sched *own)
{
    struct band *b = arena_new(m->arena, struct band);
    struct kir *k = m->k;
    struct conv c;
    conv_of(&c, task);
    const struct conv_sched s = band_sched(own, conv_lanes(&c, caps));
    band_init(b, m, &c, caps, &s);
    struct dot_tile t = {.b = b,
                         .ty = s.ty,
                         .tx = own->tx,
                         .oc = b->c.oc,
                         .n_vec = ceil_div(b->c.ic, b->lanes)};
    b->c.by_rows = false; /* its own way of storing */
    b->t.tx = t.tx, b->t.nr = t.oc;
    b->wbuf = pack_weights(b, t.n_vec);
    emit_args(m);
    band_layout(b);
    band_open(b, 1);
    t.rows = kir_alloc(k, KS_WORK, b->type, 1, kir_int(k, t.ty * t.oc * b->lanes));
    b->group = kir_int(k, 0);
    band_fill(b);
    t.x_step = kir_mul_i(k, b->step[b->xa], b->c.stride[b->xa]);
    t.y_step = b->ya >= 0 ? kir_mul_i(k, b->step[b->ya], b->c.stride[b->ya]) : kir_int(k, 0);
    tiles(&t);
    for (u32 i = 0; i < 3; i++) kir_end(k);
}
