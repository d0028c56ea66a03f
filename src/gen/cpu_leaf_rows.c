// SPDX-License-Identifier: Apache-2.0
//
// cpu_leaf_rows: convolution with few output channels (the last layer of an image network, a single
// plane): a vector holds pixels of a row, weights are broadcast, so that three channels do not
// leave thirteen lanes idle. The input band is copied to scratch as planes [rows][channel][x]
// (gen/band.c); a register tile is ty rows x xv vectors of pixels x all output channels.
//
// For each tap and input channel: ty*xv loads of pixels, oc scalar weights, ty*xv*oc multiply-adds.
// Needs stride 1 along x.
//
// Dims: n, spatial axes 2.. (x innermost), oc output channels, ic input channels.
#include "gen/cpu.h"

struct lane_tile {
    struct band *b;
    i64 ty, xv, oc;
};

static kval acc_at(const struct lane_tile *t, i64 dy, i64 v, i64 c)
{
    return kir_int(t->b->m->k, (dy * t->xv + v) * t->oc + c);
}

static void clear(const struct lane_tile *t)
{
    struct band *b = t->b;
    struct kir *k = b->m->k;
    for (i64 c = 0; c < t->oc; c++) {
        kval init = kir_const_f(k, b->type, b->lanes, 0), at = kir_int(k, c);
        if (b->c.b)
            init = kir_splat(k, kir_cast(k, b->type, emit_value(b->m, b->c.b, &at)), b->lanes);
        for (i64 i = 0; i < t->ty * t->xv; i++)
            kir_store(k, b->t.acc, kir_int(k, i * t->oc + c), init);
    }
}

static void step(const struct lane_tile *t, kval at, kval w_at, kval y_step)
{
    struct band *b = t->b;
    struct kir *k = b->m->k;
    kval w[LEAF_COLUMNS];
    for (i64 c = 0; c < t->oc; c++) {
        kval one = kir_load(k, b->wbuf, kir_add_i(k, w_at, c));
        w[c] = kir_splat(k, kir_cast(k, b->type, one), b->lanes);
    }
    for (i64 dy = 0; dy < t->ty; dy++)
        for (i64 v = 0; v < t->xv; v++) {
            kval from = kir_add_i(k, kir_add(k, at, kir_mul_i(k, y_step, dy)), v * b->lanes);
            kval x = kir_load(k, b->work, kir_ramp(k, from, 1, b->lanes));
            for (i64 c = 0; c < t->oc; c++) {
                kval a = acc_at(t, dy, v, c);
                kir_store(k, b->t.acc, a, kir_fma(k, w[c], x, kir_load(k, b->t.acc, a)));
            }
        }
}

/* Loops over the taps outside x, the input channels, the taps along x. */
static void product(const struct lane_tile *t, kval at, kval y_step)
{
    struct band *b = t->b;
    struct kir *k = b->m->k;
    struct conv *c = &b->c;
    kval w_at = kir_int(k, 0);
    u32 n_loops = 2;
    i64 kx = c->k[b->xa], per = kx * c->ic * t->oc;
    for (u32 i = b->n_order - 1; i-- > 0; per *= c->k[b->order[i]]) {
        u32 a = b->order[i];
        if (c->k[a] == 1) continue;
        kval tap = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, c->k[a]), 1);
        at = kir_add(k, at,
                     kir_mul(k, kir_mul_i(k, tap, is_tile_axis(b, a) ? c->dil[a] : 1), b->step[a]));
        w_at = kir_add(k, w_at, kir_mul_i(k, tap, per));
        n_loops++;
    }
    kval ch = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, c->ic), 1);
    kval x = kir_loop(k, KL_UNROLL, kir_int(k, 0), kir_int(k, kx), 1);
    at = kir_add(k, kir_add(k, at, kir_mul(k, ch, b->c_step)), kir_mul_i(k, x, c->dil[b->xa]));
    w_at = kir_add(k, kir_add(k, w_at, kir_mul_i(k, ch, kx * t->oc)), kir_mul_i(k, x, t->oc));
    step(t, at, w_at, y_step);
    for (u32 i = 0; i < n_loops; i++) kir_end(k);
}

static void store(const struct lane_tile *t, kval y, kval x)
{
    struct band *b = t->b;
    struct kir *k = b->m->k;
    struct tile_out o = band_target(b, y, x);
    for (i64 dy = 0; dy < t->ty; dy++) {
        bool guarded = dy > 0 && !o.y_exact;
        if (guarded) kir_if(k, kir_lt(k, kir_add_i(k, y, dy), o.y_end));
        for (i64 v = 0; v < t->xv; v++) {
            if (v > 0) kir_if(k, kir_lt(k, kir_add_i(k, x, v * b->lanes), o.x_end));
            for (i64 c = 0; c < t->oc; c++)
                band_store_pixels(b, &o, dy, v * b->lanes, c, kir_load(k, b->t.acc, acc_at(t, dy, v, c)));
            if (v > 0) kir_end(k);
        }
        if (guarded) kir_end(k);
    }
}

/* Packed weights: [taps outside x, in the band's order][ic][taps along x][oc]. */
static kval pack_weights(struct band *b)
{
    struct symtab *st = b->m->g->sym;
    struct conv *c = &b->c;
    struct pack *p = arena_new(b->m->arena, struct pack);
    for (u32 i = 0; i + 1 < b->n_order; i++)
        if (b->order[i] >= 2)
            pack_dim_i(p, st, c->k[b->order[i]], b->order[i], 1);
    pack_dim_i(p, st, c->ic, 1, 1);
    pack_dim_i(p, st, c->k[b->xa], (u32)b->xa, 1);
    pack_dim_i(p, st, c->oc, 0, 1);
    return emit_pack(b->m, c->w, p);
}

void rows_emit(struct emit *m, const struct task *task, const struct caps *caps, const struct conv_sched *s)
{
    struct band *b = arena_new(m->arena, struct band);
    struct kir *k = m->k;
    struct conv c;
    conv_of(&c, task);
    band_init(b, m, &c, caps, s);
    struct lane_tile t = {.b = b, .ty = s->ty, .xv = s->xv, .oc = b->c.oc};
    b->c.by_rows = false; /* its own way of storing */
    b->t.tx = t.xv, b->t.nr = t.oc;
    b->wbuf = pack_weights(b);
    emit_args(m);
    band_layout(b);
    band_open(b, 1);
    b->group = kir_int(k, 0);
    band_fill(b);
    kval y = kir_int(k, 0), at = kir_int(k, 0), y_step = kir_int(k, 0);
    if (b->ya >= 0) y = kir_loop(k, KL_SERIAL, b->y0, b->y1, s->ty);
    kval x = kir_loop(k, KL_SERIAL, b->x0, b->x1, s->tx);
    if (b->ya >= 0) {
        y_step = kir_mul_i(k, b->step[b->ya], b->c.stride[b->ya]);
        at = kir_mul(k, kir_sub(k, y, b->y0), y_step);
    }
    at = kir_add(k, at, kir_sub(k, x, b->x0));
    clear(&t);
    product(&t, at, y_step);
    store(&t, y, x);
    for (u32 i = 0; i < 4u + (b->ya >= 0); i++) kir_end(k);
}
