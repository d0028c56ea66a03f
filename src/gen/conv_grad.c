// SPDX-License-Identifier: Apache-2.0
//
// conv_grad: the gradient of a convolution with respect to its weights, on processors with caches: for every tap and
// pair of channels a sum over the batch and all positions. It is a matrix product whose terms are positions: rows are
// taps and input channels, columns output channels; the left operand, the input under each tap, is never built.
//
// A grid iteration has some output channels and a share of the positions, taken as bands: the piece of the input that a
// band's positions meet, and the gradient of the output there, are copied to scratch memory (gen_band.c; the gradient in
// blocks of the tile's width, so that its vectors follow each other) or read where they lie. Then the register tile (gen_tile.c) runs over the band's positions: its pixels are taps times input channels,
// its columns vectors of output channels. Sums of several bands are added up in scratch memory; those of several
// iterations wait in a TEMP array and are added in the order of the positions by a second grid, so that the same input
// gives the same bytes whatever the number of threads.
//
// Depthwise convolutions, whose groups have one channel on either side, are one group of which each channel of y meets one of
// x: its vectors are loaded where others' elements are repeated to all lanes.
//
// Dims: n, m channels of y, c channels of x (both of one group), taps k.., positions o...
#include "gen/gen_grad.h"

#include <math.h>

enum { P_TX, P_TAPS, P_NR, P_TH, P_TW, P_MB, P_PARTS, P_STAGE, P_COPY, N_PARAM };
enum { KU = 2, MAX_PIXELS = 32 };

static const i32 v_tx[] = {1, 2, 3, 4, 6, 8, 12, 14, 28};
static const i32 v_taps[] = {0, 1, 2, 3};
static const i32 v_nr[] = {1, 2, 3, 4, 6};
static const i32 v_th[] = {0, 1, 2, 4, 8, 16, 32};
static const i32 v_tw[] = {0, 16, 64, 256};
static const i32 v_mb[] = {0, 1, 2, 4, 8};
static const i32 v_parts[] = {1, 2, 4, 8, 16, 32, 64};
static const i32 v_stage[] = {STAGE_DIRECT, STAGE_PIXELS, STAGE_PLANES};
static const i32 v_copy[] = {0, 1};

static const struct gen_param param[N_PARAM] = {
    [P_TX] = {"tx", "input channels of the register tile", v_tx, countof(v_tx)},
    [P_TAPS] = {"taps", "axes, innermost first, whose taps are all in the register tile", v_taps, countof(v_taps)},
    [P_NR] = {"nr", "vectors of output channels of the register tile", v_nr, countof(v_nr)},
    [P_TH] = {"th", "rows of positions of a band, 0 = all", v_th, countof(v_th)},
    [P_TW] = {"tw", "columns of positions of a band, 0 = all", v_tw, countof(v_tw)},
    [P_MB] = {"mb", "blocks of output channels per grid iteration, 0 = all", v_mb, countof(v_mb)},
    [P_PARTS] = {"parts", "summands of a result: shares of the bands", v_parts, countof(v_parts)},
    [P_STAGE] = {"stage", "input: 0 where it lies, 1 copied with channels innermost, 2 copied in planes", v_stage,
                 countof(v_stage)},
    [P_COPY] = {"copy", "gradient of the output: 0 where it lies, 1 copied in blocks", v_copy, countof(v_copy)},
};

static bool take_apart(struct grad *q, const struct task *t)
{
    if (!grad_of(q, t)) return false;
    grad_join_groups(q);
    return true;
}

static bool match(const struct task *t, const struct caps *c)
{
    struct grad q;
    return !c->is_gpu && c->vector_bytes >= 8 && take_apart(&q, t);
}

/* Emission. */

struct work {
    struct emit *m;
    struct grad q;
    struct band x, y;
    struct tile t;
    struct result r;
    i64 in_tile;            /* axes of q.tap that are in the tile */
    i64 width, mb, n_tiles; /* of a block of output channels; blocks per iteration, in all */
    i64 combos, rest;       /* taps in the tile, other taps */
    bool many;              /* bands per iteration: not one */
    bool copies;            /* dy to y_array: [block][row][column][width] */
    kval y_array;
    kval sums;              /* [block][other tap][tap of the tile][input channel][width], with many */
    kval part, group, from, to; /* of the positions, of channels; blocks of this iteration */
    kval outer[MAX_RANK];   /* per axis outside the tile: its tap */
};

struct columns { kval block; i64 nr, n; }; /* vectors of a block, and channels of them that exist */

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

/* From one position of dy to the next along an axis of the band. */
static kval y_step(const struct work *w, i32 a)
{
    struct kir *k = w->m->k;
    if (!w->copies) return w->y.step[a];
    return a == w->x.xa ? kir_int(k, w->width) : kir_mul_i(k, emit_size(w->m, w->x.x_tile), w->width);
}

static kval y_block(const struct work *w, kval block)
{
    struct kir *k = w->m->k;
    if (!w->copies) return kir_add(k, band_first(&w->y), kir_mul_i(k, block, w->width));
    sym n = sym_mul(w->q.g->sym, w->x.x_tile, w->x.y_tile);
    return kir_mul(k, kir_sub(k, block, w->from), kir_mul_i(k, emit_size(w->m, n), w->width));
}

/* From one position to the next along an axis of the band. */
static kval position_step(const struct band *b, i32 a) { return kir_mul_i(b->m->k, b->step[a], b->c.stride[a]); }

/* Depthwise: every channel of the gradient with its own of the input, beside each other. */
static void step_channels(const struct tile *t, const struct tile_in *in, kval y, kval y_at)
{
    struct kir *k = t->m->k;
    for (i64 j = 0; j < t->nr; j++) {
        kval to = kir_ramp(k, kir_add_i(k, y_at, j * t->lanes), 1, t->lanes), limit = t->limit ? kir_add_i(k, t->limit, -j * t->lanes) : 0;
        kval v = kir_cast(k, t->type, kir_load_n(k, y, to, limit));
        for (i64 p = 0; p < t->ty * t->tx; p++) {
            kval from = kir_add_i(k, kir_add(k, in->at, in->px[p]), j * t->lanes), at = kir_int(k, p * t->nr + j);
            kval x = kir_cast(k, t->type, kir_load_n(k, in->buf, kir_ramp(k, from, 1, t->lanes), limit));
            kir_store(k, t->acc, at, kir_fma(k, x, v, kir_load(k, t->acc, at)));
        }
    }
}

static void step(const struct work *w, const struct tile *t, const struct tile_in *in, kval y_at)
{
    if (w->q.depthwise) step_channels(t, in, y_array(w), y_at);
    else tile_step(t, in, y_array(w), y_at);
}

/* Adds the products of one row of positions to the tile's accumulators: KU at a time, then one at a time. */
static void add_row(const struct work *w, const struct tile *t, struct tile_in in, kval y_at)
{
    struct kir *k = w->m->k;
    kval zero = kir_int(k, 0), at = in.at;
    if (w->x.xa < 0) {
        step(w, t, &in, y_at);
        return;
    }
    kval n = kir_sub(k, w->x.x1, w->x.x0), whole = kir_mul_i(k, kir_div_i(k, n, KU), KU);
    kval x_step = position_step(&w->x, w->x.xa), row_step = y_step(w, w->x.xa);
    for (u32 part = 0; part < 2; part++) {
        i64 none, u = part ? 1 : KU;
        kval lo = part ? whole : zero, hi = part ? n : whole;
        if (kir_is_const(k, kir_sub(k, hi, lo), &none) && none <= 0) continue;
        kval i = kir_loop(k, KL_SERIAL, lo, hi, u);
        for (i64 v = 0; v < u; v++) {
            kval o = kir_add_i(k, i, v);
            in.at = kir_add(k, at, kir_mul(k, o, x_step));
            step(w, t, &in, kir_add(k, y_at, kir_mul(k, o, row_step)));
        }
        kir_end(k);
    }
}

/* The band's products for channels from c on of the input. */
static void product(const struct work *w, const struct tile *t, const struct columns *cols, kval c)
{
    struct kir *k = w->m->k;
    kval px[MAX_PIXELS], zero = kir_int(k, 0);
    struct tile_in in = {.buf = band_array(&w->x), .at = band_first(&w->x), .y_step = zero, .x_step = zero, .px = px};
    for (i64 i = 0; i < w->combos; i++) {
        i64 tap[MAX_RANK] = {0};
        kval at = zero;
        combo_taps(w, i, tap);
        for (i64 j = 0; j < w->in_tile; j++)
            at = kir_add(k, at, kir_mul_i(k, tap_step(w, w->q.tap[j]), tap[w->q.tap[j]]));
        for (i64 j = 0; j < t->tx; j++) px[i * t->tx + j] = kir_add(k, at, kir_mul_i(k, w->x.c_step, j));
    }
    in.at = kir_add(k, in.at, w->q.depthwise ? kir_mul_i(k, cols->block, w->width) : kir_mul(k, c, w->x.c_step));
    for (u32 j = (u32)w->in_tile; j < w->q.n_taps; j++)
        in.at = kir_add(k, in.at, kir_mul(k, tap_step(w, w->q.tap[j]), w->outer[w->q.tap[j]]));
    kval y_at = y_block(w, cols->block);
    if (w->x.ya >= 0) {
        kval o = kir_loop(k, KL_SERIAL, zero, kir_sub(k, w->x.y1, w->x.y0), 1);
        in.at = kir_add(k, in.at, kir_mul(k, o, position_step(&w->x, w->x.ya)));
        y_at = kir_add(k, y_at, kir_mul(k, o, y_step(w, w->x.ya)));
    }
    add_row(w, t, in, y_at);
    if (w->x.ya >= 0) kir_end(k);
}

/* Vector j of a sum, at tap number `combo` of the tile. */
static kval sum_index(const struct work *w, const struct columns *cols, kval combo, kval c, i64 j)
{
    struct kir *k = w->m->k;
    kval at = kir_sub(k, cols->block, w->from);
    for (u32 i = w->q.n_taps; i-- > (u32)w->in_tile;)
        at = kir_add(k, kir_mul_i(k, at, w->q.x.k[w->q.tap[i]]), w->outer[w->q.tap[i]]);
    at = kir_add(k, kir_mul_i(k, at, w->combos), combo);
    at = kir_add(k, kir_mul_i(k, at, w->q.ic), c);
    return kir_ramp(k, kir_add_i(k, kir_mul_i(k, at, w->width), j * w->t.lanes), 1, w->t.lanes);
}

/* A finished vector; tap: per axis. */
static void finish(const struct work *w, const struct columns *cols, const kval *tap, kval c, i64 j, kval val)
{
    struct emit *m = w->m;
    struct kir *k = m->k;
    kval idx[MAX_RANK], at = kir_add_i(k, kir_mul_i(k, cols->block, w->width), j * w->t.lanes);
    i64 left = cols->n - j * w->t.lanes;
    kval limit = left < w->t.lanes ? kir_int(k, left) : 0;
    for (u32 a = 0; a < MAX_RANK; a++) idx[a] = a < w->q.x.rank ? tap[a] : kir_int(k, 0);
    idx[0] = kir_ramp(k, kir_add(k, kir_mul_i(k, w->group, w->q.oc), at), 1, w->t.lanes);
    idx[1] = c;
    emit_limit(m, limit);
    result_store(m, &w->r, idx, val, limit);
    emit_limit(m, 0);
}

/* What the tile holds goes to the sums, or is finished. */
static void take(const struct work *w, const struct tile *t, const struct columns *cols, kval c)
{
    struct kir *k = w->m->k;
    for (i64 p = 0; p < w->combos * t->tx; p++) {
        i64 tap[MAX_RANK] = {0}, combo = p / t->tx;
        kval at[MAX_RANK], ch = kir_add_i(k, c, p % t->tx);
        combo_taps(w, combo, tap);
        for (u32 a = 0; a < MAX_RANK; a++) at[a] = w->outer[a] ? w->outer[a] : kir_int(k, tap[a]);
        for (i64 j = 0; j < t->nr; j++) {
            kval v = kir_load(k, t->acc, kir_int(k, p * t->nr + j));
            if (!w->many) {
                finish(w, cols, at, ch, j, v);
                continue;
            }
            kval to = sum_index(w, cols, kir_int(k, combo), ch, j);
            kir_store(k, w->sums, to, kir_add(k, kir_load(k, w->sums, to), v));
        }
    }
}

/* Loops over the taps of axes from..: those outside the tile, or all. Returns how many. */
static u32 open_taps(struct work *w, u32 from)
{
    u32 n = 0;
    for (u32 j = w->q.n_taps; j-- > from; n++) {
        u32 a = w->q.tap[j];
        w->outer[a] = kir_loop(w->m->k, KL_SERIAL, kir_int(w->m->k, 0), kir_int(w->m->k, w->q.x.k[a]), 1);
    }
    return n;
}

static void close_taps(struct work *w, u32 n)
{
    for (u32 i = 0; i < n; i++) kir_end(w->m->k);
    for (u32 a = 0; a < MAX_RANK; a++) w->outer[a] = 0;
}

static void tile_at(struct work *w, const struct columns *cols, kval c, i64 tx)
{
    struct tile t = w->t;
    t.tx = tx, t.nr = cols->nr;
    if (cols->n % t.lanes) t.limit = kir_int(w->m->k, cols->n);
    tile_clear(&t, 0, 0, 0);
    product(w, &t, cols, c);
    take(w, &t, cols, c);
}

/* A block of output channels of the band: tiles over taps and input channels. */
static void add_block(struct work *w, const struct columns *cols)
{
    struct kir *k = w->m->k;
    i64 tx = w->t.tx, whole = w->q.ic / tx * tx;
    u32 n = open_taps(w, (u32)w->in_tile);
    tile_at(w, cols, kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), tx), tx);
    kir_end(k);
    if (whole < w->q.ic) tile_at(w, cols, kir_int(k, whole), w->q.ic - whole);
    close_taps(w, n);
}

/* Sums begin as zeros. */
static void clear_block(struct work *w, const struct columns *cols)
{
    struct kir *k = w->m->k;
    i64 n = w->combos * w->rest * w->q.ic * w->width;
    kval at = kir_mul_i(k, kir_sub(k, cols->block, w->from), n);
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, n), w->t.lanes);
    kir_store(k, w->sums, kir_ramp(k, kir_add(k, at, i), 1, w->t.lanes), kir_const_f(k, w->t.type, w->t.lanes, 0));
    kir_end(k);
}

static void finish_block(struct work *w, const struct columns *cols)
{
    struct kir *k = w->m->k;
    u32 n = open_taps(w, 0);
    kval c = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, w->q.ic), 1), combo = kir_int(k, 0), tap[MAX_RANK];
    for (u32 a = 0; a < MAX_RANK; a++) tap[a] = w->outer[a] ? w->outer[a] : kir_int(k, 0);
    for (i64 j = w->in_tile; j-- > 0;) combo = kir_add(k, kir_mul_i(k, combo, w->q.x.k[w->q.tap[j]]), tap[w->q.tap[j]]);
    for (i64 j = 0; j < cols->nr; j++) finish(w, cols, tap, c, j, kir_load(k, w->sums, sum_index(w, cols, combo, c, j)));
    kir_end(k);
    close_taps(w, n);
}

/* All blocks of this iteration; the last of all may be narrower. */
static void each_block(struct work *w, void (*fn)(struct work *, const struct columns *))
{
    struct kir *k = w->m->k;
    i64 whole = w->q.oc / w->width, rest = w->q.oc % w->width;
    kval to = rest ? kir_min(k, w->to, kir_int(k, whole)) : w->to;
    fn(w, &(struct columns){kir_loop(k, KL_SERIAL, w->from, to, 1), w->t.nr, w->width});
    kir_end(k);
    if (!rest) return;
    kir_if(k, kir_lt(k, kir_int(k, whole), w->to));
    fn(w, &(struct columns){kir_int(k, whole), ceil_div(rest, w->t.lanes), rest});
    kir_end(k);
}

/* Copying the gradient of the output. */

/* Channels of a block at one position. */
static void copy_channels(const struct work *w, const struct columns *cols, kval *idx, kval to)
{
    struct kir *k = w->m->k;
    kval first = kir_add(k, kir_mul_i(k, w->group, w->q.oc), kir_mul_i(k, cols->block, w->width));
    for (i64 j = 0; j < cols->nr; j++) {
        i64 left = cols->n - j * w->t.lanes;
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

static void copy_row(const struct work *w, const struct columns *cols, kval *idx, kval to)
{
    struct kir *k = w->m->k;
    kval zero = kir_int(k, 0), n = kir_sub(k, w->x.x1, w->x.x0);
    if (w->x.xa < 2 || conv_input_layout(&w->q.y) != LAYOUT_ROWS) {
        kval i = w->x.xa >= 0 ? kir_loop(k, KL_SERIAL, zero, n, 1) : zero;
        if (w->x.xa >= 0) idx[w->x.xa] = kir_add(k, w->x.x0, i);
        copy_channels(w, cols, idx, kir_add(k, to, kir_mul_i(k, i, w->width)));
        if (w->x.xa >= 0) kir_end(k);
        return;
    }
    kval whole = kir_mul_i(k, kir_div_i(k, n, w->t.lanes), w->t.lanes), c = kir_loop(k, KL_SERIAL, zero, kir_int(k, cols->n), 1);
    idx[1] = kir_add(k, kir_add(k, kir_mul_i(k, w->group, w->q.oc), kir_mul_i(k, cols->block, w->width)), c);
    to = kir_add(k, to, c);
    copy_columns(w, idx, kir_loop(k, KL_SERIAL, zero, whole, w->t.lanes), to, 0);
    kir_end(k);
    kir_if(k, kir_lt(k, whole, n));
    copy_columns(w, idx, whole, to, kir_sub(k, n, whole));
    kir_end(k);
    kir_end(k);
}

static void copy_block(struct work *w, const struct columns *cols)
{
    struct kir *k = w->m->k;
    kval idx[MAX_RANK], to = y_block(w, cols->block), zero = kir_int(k, 0);
    for (u32 a = 0; a < MAX_RANK; a++) idx[a] = w->x.pos[a] ? w->x.pos[a] : zero;
    if (w->x.ya >= 0) {
        kval o = kir_loop(k, KL_SERIAL, zero, kir_sub(k, w->x.y1, w->x.y0), 1);
        idx[w->x.ya] = kir_add(k, w->x.y0, o);
        to = kir_add(k, to, kir_mul(k, o, y_step(w, w->x.ya)));
    }
    copy_row(w, cols, idx, to);
    if (w->x.ya >= 0) kir_end(k);
}

/* Bands. */

static sym bands_across(const struct band *b) { return b->s.tw ? sym_cdiv(b->m->g->sym, b->x_ext, b->x_tile) : sym_const(b->m->g->sym, 1); }

static sym bands_down(const struct band *b) { return b->s.th ? sym_cdiv(b->m->g->sym, b->y_ext, b->y_tile) : sym_const(b->m->g->sym, 1); }

static sym band_count(const struct work *w)
{
    struct symtab *t = w->m->g->sym;
    sym n = space_count(&w->q.outer, t, 0, w->q.outer.n);
    return sym_mul(t, n, sym_mul(t, bands_across(&w->x), bands_down(&w->x)));
}

static void place_band(struct work *w, struct band *b, kval number)
{
    const u32 all[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct emit *m = w->m;
    struct kir *k = m->k;
    kval at[MAX_RANK] = {0}, nx = emit_size(m, bands_across(b)), ny = emit_size(m, bands_down(b));
    kval x = kir_mod(k, number, nx), y = kir_mod(k, kir_div(k, number, nx), ny);
    kval xt = emit_size(m, b->x_tile), yt = emit_size(m, b->y_tile);
    space_split(m, &w->q.outer, all, w->q.outer.n, kir_div(k, kir_div(k, number, nx), ny), at);
    space_index(k, &w->q.outer, at, b->pos);
    b->group = w->group;
    b->x0 = kir_mul(k, x, xt), b->y0 = kir_mul(k, y, yt);
    b->x1 = kir_min(k, kir_add(k, b->x0, xt), emit_size(m, b->x_ext));
    b->y1 = kir_min(k, kir_add(k, b->y0, yt), emit_size(m, b->y_ext));
}

static void add_band(struct work *w, kval number)
{
    place_band(w, &w->x, number);
    place_band(w, &w->y, number);
    if (w->x.s.stage != STAGE_DIRECT) band_fill(&w->x);
    if (w->copies) each_block(w, copy_block);
    each_block(w, add_block);
}

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

static void grid(struct work *w, i64 parts)
{
    struct emit *m = w->m;
    struct kir *k = m->k;
    struct symtab *t = m->g->sym;
    i64 n;
    sym bands = band_count(w);
    w->many = !sym_is_const(t, bands, &n) || n != parts;
    kval number = kir_grid(k, kir_int(k, parts * w->q.groups)), piece = kir_grid(k, kir_int(k, ceil_div(w->n_tiles, w->mb)));
    w->part = w->r.part = kir_mod_i(k, number, parts), w->group = kir_div_i(k, number, parts);
    w->from = kir_mul_i(k, piece, w->mb);
    w->to = kir_min(k, kir_add_i(k, w->from, w->mb), kir_int(k, w->n_tiles));
    open_arrays(w);
    if (!w->many) {
        add_band(w, w->part);
    } else {
        kval share = emit_size(m, sym_cdiv(t, bands, sym_const(t, parts))), first = kir_mul(k, w->part, share);
        each_block(w, clear_block);
        add_band(w, kir_loop(k, KL_SERIAL, first, kir_min(k, kir_add(k, first, share), emit_size(m, bands)), 1));
        kir_end(k);
        each_block(w, finish_block);
    }
    kir_end(k);
    kir_end(k);
}

static i64 combos_of(const struct grad *q, i64 taps)
{
    i64 n = 1;
    for (i64 i = 0; i < taps; i++) n *= q->x.k[q->tap[i]];
    return n;
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    struct work *w = arena_new(m->arena, struct work);
    const i32 *v = s->v;
    take_apart(&w->q, t);
    struct conv_sched x = {.ty = 1, .tx = 1, .nr = 1, .th = v[P_TH], .tw = v[P_TW], .stage = v[P_STAGE]}, y = x;
    y.stage = STAGE_DIRECT;
    w->m = m, w->copies = v[P_COPY];
    band_init(&w->x, m, &w->q.x, caps, &x);
    band_init(&w->y, m, &w->q.y, caps, &y);
    w->in_tile = v[P_TAPS];
    w->combos = combos_of(&w->q, v[P_TAPS]), w->rest = combos_of(&w->q, w->q.n_taps) / w->combos;
    w->t = (struct tile){.m = m, .ty = w->combos, .tx = v[P_TX], .nr = v[P_NR], .lanes = w->x.lanes, .type = w->x.type};
    w->width = w->t.nr * w->t.lanes, w->n_tiles = ceil_div(w->q.oc, w->width);
    w->mb = v[P_MB] ? i64_min(v[P_MB], w->n_tiles) : w->n_tiles;
    emit_args(m);
    /* A tile meets few channels of many positions, which must not fall on the same cache sets. */
    if (v[P_STAGE] == STAGE_PIXELS && w->q.x.ic * dtype_size(w->x.type) % 512 == 0) w->x.terms += 64 / dtype_size(w->x.type);
    if (v[P_STAGE] == STAGE_DIRECT) conv_in_place(&w->x);
    else band_layout(&w->x);
    if (!w->copies) conv_in_place(&w->y);
    w->r = (struct result){.v = w->q.dw, .inner = 0, .parts = v[P_PARTS]};
    if (v[P_PARTS] > 1 || !w->q.simple) result_open(m, &w->r, w->t.type);
    grid(w, v[P_PARTS]);
    if (w->r.temp) gen_map_rest(m, t, caps, w->q.dw, result_load, &w->r);
}

/* Choice. */

struct sizes { /* behind a schedule, for given sizes */
    double combos, taps, terms;   /* of the tile, of the kernel; positions of a band */
    double bands, blocks, tiles;  /* in all; of output channels; of taps and input channels */
    double x_band, y_band, sums;  /* elements in scratch memory */
};

static i64 extent(const struct grad *q, i32 a, const i64 *var) { return a < 0 ? 1 : i64_max(1, gen_eval(q->g, q->x.out[a], var)); }

static struct sizes sizes_of(const struct grad *q, const struct caps *caps, const i32 *v, const i64 *var)
{
    i64 lanes = gen_lanes(caps, q->x.type), nx = extent(q, q->x.xa, var), ny = extent(q, q->x.ya, var);
    i64 tw = v[P_TW] ? i64_min(v[P_TW], nx) : nx, th = v[P_TH] ? i64_min(v[P_TH], ny) : ny;
    i64 width = v[P_NR] * lanes;
    struct sizes z = {.combos = (double)combos_of(q, v[P_TAPS]), .taps = (double)combos_of(q, q->n_taps), .terms = (double)(tw * th)};
    z.bands = (double)(ceil_div(nx, tw) * ceil_div(ny, th));
    z.x_band = (double)q->x.ic;
    for (u32 i = 0; i < q->outer.n; i++) z.bands *= (double)i64_max(1, gen_eval(q->g, q->outer.g[i].extent, var));
    for (u32 a = 2; a < q->x.rank; a++) {
        const struct conv *c = &q->x;
        i64 n = (i32)a == c->xa ? tw : (i32)a == c->ya ? th : 0;
        z.x_band *= n ? (double)((n - 1) * c->stride[a] + (c->k[a] - 1) * c->dil[a] + 1) : (double)c->k[a];
    }
    z.blocks = (double)ceil_div(q->oc, width), z.tiles = z.taps / z.combos * (double)ceil_div(q->ic, v[P_TX]);
    double channels = (v[P_MB] ? fmin(v[P_MB], z.blocks) : z.blocks) * (double)width;
    z.y_band = z.terms * channels, z.sums = channels * z.taps * (double)q->ic;
    return z;
}

/* Whatever the sizes of the images are. */
static bool is_sane(const struct grad *q, const struct caps *caps, const i32 *v)
{
    i64 lanes = gen_lanes(caps, q->x.type), blocks = ceil_div(q->oc, v[P_NR] * lanes);
    if (v[P_TAPS] > (i32)q->n_taps) return false;
    i64 pixels = combos_of(q, v[P_TAPS]) * v[P_TX];
    if (pixels > MAX_PIXELS || !tile_is_legal(caps, pixels, v[P_NR]) || v[P_TX] > q->ic) return false;
    if (v[P_NR] > 1 && (v[P_NR] - 1) * lanes >= q->oc) return false;
    if (v[P_MB] && (v[P_MB] >= blocks || (v[P_MB] > 1 && ceil_div(blocks, v[P_MB] / 2) == ceil_div(blocks, v[P_MB])))) return false;
    if (v[P_STAGE] == STAGE_DIRECT && !(q->x.plain && q->x.no_pad && q->exact)) return false;
    if (!v[P_COPY] && !q->y.plain) return false;
    if (v[P_STAGE] == STAGE_PLANES && (q->depthwise || q->x.xa < 2 || (q->ic == 1 && q->x.plain))) return false;
    return (q->x.ya >= 0 || v[P_TH] == 0) && (q->x.xa >= 0 || v[P_TW] == 0);
}

static bool is_legal(const struct grad *q, const struct caps *caps, const i32 *v)
{
    if (!is_sane(q, caps, v)) return false;
    struct sizes z = sizes_of(q, caps, v, NULL);
    i64 nx = extent(q, q->x.xa, NULL), ny = extent(q, q->x.ya, NULL), threads = i64_max(1, caps->n_threads);
    if ((v[P_TW] && v[P_TW] >= nx) || (v[P_TH] && v[P_TH] >= ny)) return false;
    if (v[P_PARTS] > 1 && (v[P_PARTS] > z.bands || v[P_PARTS] > 8 * threads)) return false;
    double bytes = 4 * (z.x_band + z.y_band);
    bool least = (v[P_TH] == 1 || ny == 1) && (v[P_TW] == v_tw[1] || nx <= v_tw[1]);
    return least || bytes <= 2 * (double)caps->l2_bytes + 1e5;
}

static bool legal(const struct task *t, const struct caps *caps, const struct sched *s)
{
    struct grad q;
    return take_apart(&q, t) && is_legal(&q, caps, s->v);
}

/* Cycles to copy an element to a band. */
static double copy_cycles(const struct conv *c, i64 stage)
{
    bool clast = conv_input_layout(c) == LAYOUT_CLAST;
    if (stage == STAGE_DIRECT) return 0;
    if (stage == STAGE_PLANES) return clast ? 2 : 0.2;
    return clast || c->ic == 1 ? 0.3 : 1.6;
}

/* In blocks; columns that lie side by side are strewn, short rows of them come from many pages. */
static double block_cycles(const struct grad *q, const i32 *v, const i64 *var)
{
    if (!v[P_COPY]) return 0;
    if (conv_input_layout(&q->y) == LAYOUT_CLAST) return 0.3;
    return v[P_TW] && v[P_TW] * 4 < 256 && extent(q, q->x.xa, var) >= 64 ? 5 : 2.6;
}

/* Of a position, where inputs are repeated to all lanes, or loaded for each. */
static double step_cycles(const struct grad *q, double pixels, i64 nr)
{
    if (!q->depthwise) return tile_step_cycles((i64)pixels, nr);
    return fmax(4, (pixels + 1) * (double)nr / 2) + 0.3;
}

static double seconds(const struct grad *q, const struct caps *caps, const i32 *v, const i64 *var)
{
    double lanes = gen_lanes(caps, q->x.type), hz = gen_flop_rate(caps) / (4 * gen_lanes(caps, DT_F32));
    struct sizes z = sizes_of(q, caps, v, var);
    double pixels = z.combos * v[P_TX], pieces = v[P_MB] ? ceil(z.blocks / v[P_MB]) : 1, parts = v[P_PARTS];
    double share = ceil(z.bands / parts), blocks = fmin(z.blocks, v[P_MB] ? v[P_MB] : z.blocks);
    double tile = z.terms * (step_cycles(q, pixels, v[P_NR]) + 0.4) + pixels * v[P_NR] * 2 + 40;
    double ic_waste = (double)q->ic / ((double)v[P_TX] * ceil((double)q->ic / v[P_TX]));
    double y_bytes = z.terms * v[P_NR] * lanes * 4, l1 = (double)caps->l1_bytes;
    if (!v[P_COPY] && q->oc * q->groups * 4 % 512 == 0) l1 /= (double)i64_min(q->oc * q->groups, 1024) / 128; /* few sets */
    if (y_bytes > l1 * 0.6) tile *= 1.15;
    if (4 * (z.x_band + z.y_band + z.sums) > (double)caps->l2_bytes * 0.7) tile *= 1.2;
    double band = blocks * z.tiles * tile * (0.3 + 0.7 * ic_waste) + z.x_band * copy_cycles(&q->x, v[P_STAGE]) +
                  z.y_band * block_cycles(q, v, var) + 300;
    double stored = parts > 1 ? 0.5 : z.combos > 9 ? 6 : 1.6; /* tiles of few channels and many taps store to lines far apart */
    double ends = z.sums * stored + 500, rounds = ceil(parts * pieces * (double)q->groups / i64_max(1, caps->n_threads));
    double rest = parts > 1 || !q->simple ? (parts * 0.3 + 1.6) * z.sums * pieces * (double)q->groups / i64_max(1, caps->n_threads) : 0;
    return 2e-6 + (rounds * (share * band + ends) + rest) / hz;
}

static double predict(const struct task *t, const struct caps *caps, const struct sched *s, const i64 *var)
{
    struct grad q;
    return take_apart(&q, t) ? seconds(&q, caps, s->v, var) : 1;
}

struct choice { struct grad q; const struct caps *caps; const i64 *var; };

static double cost(const void *user, const struct sched *s)
{
    const struct choice *c = user;
    return is_legal(&c->q, c->caps, s->v) ? seconds(&c->q, c->caps, s->v, c->var) : 0;
}

static void initial(const struct task *t, const struct caps *caps, const i64 *var, struct sched *out)
{
    struct choice c = {.caps = caps, .var = var};
    take_apart(&c.q, t);
    bool found = gen_best(&(struct gen_search){param, 0, N_PARAM, cost, &c}, out);
    assert(found);
}

const struct gen gen_conv_grad = {
    .version = 1,
    .name = "conv_grad",
    .revision = 3,
    .param = param,
    .n_param = N_PARAM,
    .match = match,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
