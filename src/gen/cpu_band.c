// SPDX-License-Identifier: Apache-2.0
//
// cpu_band: the input that one grid iteration of a convolution needs,
// evaluated once per element into scratch memory, with zeros (or what the pads hold) around. Padding, upsampling,
// concatenation, activation and layout are paid here, and the loops that follow need no tests.
//
// The band is [axes in order, x last][channel], or with planes [axes][channel][x].
#include "gen/cpu_band.h"

#include <string.h>

/* Elements from one pixel to the next. Inputs that are computed have pitches of few different lengths, so that kernels of different numbers of
   channels share their code (kir/share.c): the next power of two, and a line more. What is behind the channels is never touched. */
static i64 padded_pitch(const struct band *b)
{
    enum { FEW = 1024 /* bytes, up to which pixels lie one behind the other: the longer way between them would cost more */ };
    i64 size = dtype_size(b->band_type), power = FEW / size;
    if (!b->c.plain && !b->is_inner && b->terms > power) {
        while (power < b->terms) power *= 2;
        return power + 64 / size;
    }
    return b->terms * size % 2048 ? b->terms : b->terms + 64 / size; /* pixels must not fall on the same cache sets */
}

static sym scaled(struct symtab *t, sym n, i64 k) { return sym_mul(t, n, sym_const(t, k)); }

static void axis_order(struct band *b)
{
    for (u32 a = 0; a < b->c.rank; a++)
        if (a != 1 && (i32)a != b->xa) b->order[b->n_order++] = a;
    if (b->xa >= 0) b->order[b->n_order++] = (u32)b->xa;
}

/* Sizes and strides of the scratch band. */
void band_layout(struct band *b)
{
    struct symtab *t = b->m->g->sym;
    struct conv *c = &b->c;
    sym size = sym_const(t, 1), one = size;
    for (u32 a = 0; a < c->rank; a++) {
        b->ext[a] = sym_const(t, a == 0 ? 1 : c->k[a]);
        if (!is_tile_axis(b, a)) continue;
        sym out = (i32)a == b->xa ? b->x_tile : b->y_tile;
        i64 spare = (i32)a == b->xa ? b->spare_x + b->over_x : b->spare_y;
        b->ext[a] = sym_add(t, scaled(t, sym_sub(t, out, one), c->stride[a]),
                            sym_const(t, (c->k[a] - 1) * c->dil[a] + 1 + spare));
    }
    bool planes = b->s.stage == STAGE_PLANES;
    b->c_step = kir_int(b->m->k, 1);
    if (!planes) size = sym_const(t, padded_pitch(b));
    for (u32 i = b->n_order; i-- > 0;) {
        u32 a = b->order[i];
        b->step[a] = emit_size(b->m, size);
        size = sym_mul(t, size, b->ext[a]);
        if (planes && i == b->n_order - 1) {
            b->c_step = emit_size(b->m, size);
            size = scaled(t, size, c->ic);
        }
    }
    b->size = size;
}

/* Filling the band. */

struct row {            /* one row of the band along x */
    kval at;            /* element of its first pixel */
    kval idx[MAX_RANK]; /* of the input: all but x and channel */
    kval lo, hi, n;     /* columns inside the input, and all */
    kval first;         /* input x of column 0 */
};

static void fill_pad(struct band *b, kval from, kval to)
{
    struct kir *k = b->m->k;
    i64 d;
    if (kir_is_const(k, kir_sub(k, to, from), &d) && d <= 0) return;
    kval zero = kir_int(k, 0), v = b->c.fill ? emit_value(b->m, b->c.fill, &zero) : kir_const_f(k, b->band_type, 1, 0);
    v = kir_splat(k, kir_cast(k, b->band_type, v), b->band_lanes);
    kval i = kir_loop(k, KL_SERIAL, from, to, b->band_lanes);
    kir_store_n(k, b->work, kir_ramp(k, i, 1, b->band_lanes), v, kir_sub(k, to, i));
    kir_end(k);
}

static void copy_channels(struct band *b, const struct row *r, kval at, kval *idx, kval c,
                          kval limit)
{
    struct emit *m = b->m;
    struct kir *k = m->k;
    kval base = kir_mul_i(k, b->group, b->c.ic);
    idx[1] = kir_ramp(k, kir_add(k, base, c), 1, b->band_lanes);
    emit_limit(m, b->channels ? kir_sub(k, b->channels, c) : limit);
    kval v = emit_value(m, b->c.x, idx);
    kir_store_n(k, b->work, kir_ramp(k, kir_add(k, at, c), 1, b->band_lanes), kir_cast(k, b->band_type, v),
                limit);
    emit_limit(m, 0);
}

/* The last channels, less than a vector, at the same place in every pixel. Where they lie apart (planes of a picture) one by one: a
 * vector of them would be as many reads and more. */
static void copy_last_channels(struct band *b, const struct row *r, kval at, kval *idx, i64 from)
{
    struct kir *k = b->m->k;
    struct probe p;
    i64 ic = b->c.ic;
    space_probe_channels(&p, b->m->g, b->c.x, from, b->band_lanes);
    if (!p.n_gather || b->c.groups > 1 || b->channels) {
        copy_channels(b, r, at, idx, kir_int(k, from), kir_int(k, ic - from));
        return;
    }
    for (i64 c = from; c < ic; c++) {
        idx[1] = kir_int(k, c);
        kir_store(k, b->work, kir_add_i(k, at, c), kir_cast(k, b->band_type, emit_value(b->m, b->c.x, idx)));
    }
}

/* Few channels, which lie apart (planes of a picture) and fill a group of a DOT or two: vectors along x, interleaved. */
static bool is_interleaved(const struct band *b)
{
    i64 step;
    struct probe p;
    if (b->xa < 2 || b->dot_k < 2 || (b->terms != 2 && b->terms != 4) || b->c.groups > 1 || b->channels) return false;
    if (!kir_is_const(b->m->k, b->step[b->xa], &step) || step != b->terms) return false;
    space_probe_channels(&p, b->m->g, b->c.x, 0, b->band_lanes);
    return p.n_gather > 0;
}

static void copy_interleaved(struct band *b, const struct row *r)
{
    struct emit *m = b->m;
    struct kir *k = m->k;
    kval idx[MAX_RANK], channel[4];
    memcpy(idx, r->idx, sizeof idx);
    struct vectors v = vectors_over(k, r->lo, r->hi, b->band_lanes);
    while (vectors_next(&v)) {
        emit_limit(m, v.limit);
        idx[b->xa] = kir_ramp(k, kir_add(k, r->first, v.at), 1, b->band_lanes);
        for (i64 c = 0; c < b->terms; c++) {
            idx[1] = kir_int(k, c);
            channel[c] = c < b->c.ic ? kir_cast(k, b->band_type, emit_value(m, b->c.x, idx)) : kir_const_f(k, b->band_type, 1, 0);
            channel[c] = kir_splat(k, channel[c], b->band_lanes);
        }
        emit_limit(m, 0);
        const u32 lanes = b->band_lanes * (u32)b->terms;
        kval at = kir_add(k, r->at, kir_mul_i(k, v.at, b->terms));
        kir_store_n(k, b->work, kir_ramp(k, at, 1, lanes), kir_interleave(k, channel, b->terms, 0, b->band_lanes), v.limit ? kir_mul_i(k, v.limit, b->terms) : 0);
    }
}

/* Views choose elements by their channel: constant channels make the choice known. */
static bool has_view(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++)
        if (op_of(g, n)->props & OP_VIEW) return true;
    return false;
}

/* [x][channel]: pixel by pixel. */
static void copy_pixels(struct band *b, const struct row *r)
{
    struct kir *k = b->m->k;
    kval idx[MAX_RANK];
    i64 ic = b->c.ic, whole = ic / b->band_lanes * b->band_lanes;
    memcpy(idx, r->idx, sizeof idx);
    kval col = b->xa >= 0 ? kir_loop(k, KL_SERIAL, r->lo, r->hi, 1) : kir_int(k, 0);
    if (b->xa >= 0) idx[b->xa] = kir_add(k, r->first, col);
    kval at = b->xa >= 0 ? kir_add(k, r->at, kir_mul(k, col, b->step[b->xa])) : r->at;
    if (b->terms > ic) /* zeros behind the last channel; the others of its group are stored over them */
        kir_store(k, b->work, kir_ramp(k, kir_add_i(k, at, b->terms - b->dot_k), 1, (u32)b->dot_k),
                  kir_const_f(k, b->band_type, (u32)b->dot_k, 0));
    i64 longest = (b->c.plain ? 8 : 16) * (i64)b->band_lanes; /* that is written out */
    if (whole > longest && !has_view(b->m->g)) {
        kval c = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), b->band_lanes);
        copy_channels(b, r, at, idx, c, 0);
        kir_end(k);
    } else {
        for (i64 c = 0; c < whole; c += b->band_lanes) copy_channels(b, r, at, idx, kir_int(k, c), 0);
    }
    if (ic > whole) copy_last_channels(b, r, at, idx, whole);
    if (b->xa >= 0) kir_end(k);
}

/* The whole row is one piece in the input and in the band. */
static bool is_one_piece(const struct band *b)
{
    i64 s;
    const struct conv *c = &b->c;
    bool dense = b->xa >= 2 && kir_is_const(b->m->k, b->step[b->xa], &s) && s == c->ic;
    for (u32 a = b->xa >= 0 ? (u32)b->xa + 1 : 0; a < c->rank; a++)
        dense = dense && sym_is(c->g, c->in[a], 1);
    dense = dense && !b->channels && !b->is_inner; /* the block has no channels of padding */
    return dense && c->plain && !c->pitched && c->groups == 1 && b->s.stage == STAGE_PIXELS &&
           !sym_is(c->g, c->in[b->xa], 1);
}

/* limit: first elements, 0: all. Accesses with a mask take longer. */
static void copy_piece_vector(struct band *b, kval from, kval to, kval limit)
{
    struct kir *k = b->m->k;
    kval v = kir_load_n(k, b->m->buf[b->c.x], kir_ramp(k, from, 1, b->band_lanes), limit);
    kir_store_n(k, b->work, kir_ramp(k, to, 1, b->band_lanes), kir_cast(k, b->band_type, v), limit);
}

static void copy_piece(struct band *b, const struct row *r)
{
    struct emit *m = b->m;
    struct kir *k = m->k;
    i64 ic = b->c.ic, step = b->band_lanes;
    kval idx[MAX_RANK];
    memcpy(idx, r->idx, sizeof idx);
    idx[b->xa] = kir_int(k, 0);
    idx[1] = kir_int(k, 0);
    kval from = kir_mul_i(k, r->lo, ic), to = kir_mul_i(k, r->hi, ic);
    kval src = kir_add(k, emit_offset(m, b->c.x, idx), kir_mul_i(k, r->first, ic));
    if (ic % step == 0) {
        kval i = kir_loop(k, KL_SERIAL, from, to, step);
        copy_piece_vector(b, kir_add(k, src, i), kir_add(k, r->at, i), 0);
        kir_end(k);
        return;
    }
    struct vectors v = vectors_over(k, from, to, step);
    while (vectors_next(&v)) copy_piece_vector(b, kir_add(k, src, v.at), kir_add(k, r->at, v.at), v.limit);
}

static void copy_plane_vector(struct band *b, const struct row *r, kval *idx, kval at, kval col,
                              kval limit)
{
    struct emit *m = b->m;
    struct kir *k = m->k;
    emit_limit(m, limit);
    idx[b->xa] = kir_ramp(k, kir_add(k, r->first, col), 1, b->band_lanes);
    kval v = kir_cast(k, b->band_type, emit_value(m, b->c.x, idx));
    kir_store_n(k, b->work, kir_ramp(k, kir_add(k, at, col), 1, b->band_lanes), v, limit);
    emit_limit(m, 0);
}

/* [channel][x]: plane by plane, the row's zeros included. */
static void copy_planes(struct band *b, const struct row *r)
{
    struct kir *k = b->m->k;
    kval idx[MAX_RANK];
    memcpy(idx, r->idx, sizeof idx);
    kval c = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, b->c.ic), 1);
    kval at = kir_add(k, r->at, kir_mul(k, c, b->c_step));
    idx[1] = kir_add(k, kir_mul_i(k, b->group, b->c.ic), c);
    fill_pad(b, at, kir_add(k, at, r->lo));
    struct vectors v = vectors_over(k, r->lo, r->hi, b->band_lanes);
    while (vectors_next(&v)) copy_plane_vector(b, r, idx, at, v.at, v.limit);
    fill_pad(b, kir_add(k, at, r->hi), kir_add(k, at, r->n));
    kir_end(k);
}

static void fill_row(struct band *b, const struct row *r)
{
    struct kir *k = b->m->k;
    if (b->s.stage == STAGE_PLANES) {
        copy_planes(b, r);
        return;
    }
    kval step = b->xa >= 0 ? b->step[b->xa] : kir_int(k, 0);
    if (b->xa >= 2) fill_pad(b, r->at, kir_add(k, r->at, kir_mul(k, r->lo, step)));
    if (is_one_piece(b)) copy_piece(b, r);
    else if (!b->is_inner && is_interleaved(b)) copy_interleaved(b, r);
    else if (!b->is_inner) copy_pixels(b, r);
    if (b->xa >= 0)
        fill_pad(b, kir_add(k, r->at, kir_mul(k, r->hi, step)),
                  kir_add(k, r->at, kir_mul(k, r->n, step)));
}

/* Pads for a row that lies outside of the input. */
static void clear_row(struct band *b, const struct row *r)
{
    struct kir *k = b->m->k;
    if (b->s.stage == STAGE_PIXELS) {
        kval n = b->xa >= 0 ? kir_mul(k, r->n, b->step[b->xa]) : kir_int(k, b->c.ic);
        fill_pad(b, r->at, kir_add(k, r->at, n));
        return;
    }
    kval c = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, b->c.ic), 1);
    kval at = kir_add(k, r->at, kir_mul(k, c, b->c_step));
    fill_pad(b, at, kir_add(k, at, r->n));
    kir_end(k);
}

/* Opens the loop over one axis of the band, adds its index; returns the condition that it lies
 * inside the input (0: always). */
static kval open_axis(struct band *b, u32 a, struct row *r)
{
    struct kir *k = b->m->k;
    struct conv *c = &b->c;
    kval pad = emit_size(b->m, c->pad[a]), n = emit_size(b->m, c->in[a]), pos, end;
    if (a == 0) {
        r->idx[0] = b->pos[0];
        return 0;
    }
    if ((i32)a == b->ya) {
        kval rows = kir_mul_i(
            k, kir_div_i(k, kir_add_i(k, kir_sub(k, b->y1, b->y0), b->s.ty - 1), b->s.ty), b->s.ty);
        end = kir_add_i(k, kir_mul_i(k, kir_add_i(k, rows, -1), c->stride[a]),
                        (c->k[a] - 1) * c->dil[a] + 1);
        kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), end, 1);
        pos = kir_add(k, kir_sub(k, kir_mul_i(k, b->y0, c->stride[a]), pad), i);
        r->at = kir_add(k, r->at, kir_mul(k, i, b->step[a]));
    } else {
        kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, c->k[a]), 1);
        pos = kir_add(k, kir_sub(k, kir_mul_i(k, b->pos[a], c->stride[a]), pad),
                      kir_mul_i(k, i, c->dil[a]));
        r->at = kir_add(k, r->at, kir_mul(k, i, b->step[a]));
    }
    r->idx[a] = pos;
    return gen_is_inside(k, pos, n);
}

void band_fill(struct band *b)
{
    struct kir *k = b->m->k;
    struct conv *c = &b->c;
    struct row r = {.at = kir_int(k, 0)};
    kval ok = 0, zero = kir_int(k, 0);
    u32 n_loops = 0;
    for (u32 i = 0; i < MAX_RANK; i++) r.idx[i] = zero;
    for (u32 a = 0; a < c->rank; a++) {
        if (a == 1 || (i32)a == b->xa) continue;
        kval in = open_axis(b, a, &r);
        n_loops += a != 0;
        ok = ok && in ? kir_bin(k, KI_AND, ok, in) : in ? in : ok;
    }
    r.lo = zero, r.hi = r.n = kir_int(k, 1), r.first = zero;
    if (b->xa >= 0) {
        kval pad = emit_size(b->m, c->pad[b->xa]), x = kir_mul_i(k, b->x0, c->stride[b->xa]);
        kval len = kir_sub(k, b->x1, b->x0);
        len = kir_mul_i(k, kir_div_i(k, kir_add_i(k, len, b->s.tx - 1), b->s.tx), b->s.tx);
        r.first = kir_sub(k, x, pad);
        r.n = kir_add_i(k, kir_mul_i(k, kir_add_i(k, len, -1), c->stride[b->xa]),
                        (c->k[b->xa] - 1) * c->dil[b->xa] + 1 + b->over_x);
        r.lo = kir_min(k, kir_max(k, kir_sub(k, zero, r.first), zero), r.n);
        r.hi = kir_sub(k, emit_size(b->m, c->in[b->xa]), r.first);
        r.hi = kir_max(k, kir_min(k, r.hi, r.n), r.lo);
    }
    if (ok) kir_if(k, ok);
    fill_row(b, &r);
    if (ok) {
        kir_else(k);
        clear_row(b, &r);
        kir_end(k);
    }
    for (u32 i = 0; i < n_loops; i++) kir_end(k);
}

/* Vectors of small elements are as long as the channels are many, at least as those of sums. Not where they are computed: wider vectors of floats would be
   split, and with them those of the instruction, which have as many lanes (kir_legalise). */
void band_multiply_by(struct band *b, struct tile_product p, const struct caps *caps)
{
    const struct value *x = graph_value(b->m->g, b->c.x);
    b->t.leaf = p.leaf, b->t.dot_k = b->dot_k = p.terms, b->group_size = p.group;
    b->terms = round_up(b->c.ic, p.terms);
    if (p.terms == 1) return;
    b->band_type = b->t.left = x->dtype;
    while (!x->producer && 2 * b->band_lanes * dtype_size(b->band_type) <= caps->vector_bytes && 2 * (i64)b->band_lanes <= b->c.ic) b->band_lanes *= 2;
}

void band_init(struct band *b, struct emit *m, const struct conv *c, const struct caps *caps,
               const struct conv_sched *s)
{
    struct symtab *st = m->g->sym;
    *b = (struct band){.m = m, .s = *s, .c = *c};
    b->type = b->c.type;
    b->lanes = gen_lanes(caps, b->type);
    b->dot_k = b->group_size = 1, b->terms = c->ic;
    b->band_type = b->type, b->band_lanes = b->lanes;
    b->per = b->lanes, b->width = s->nr * b->lanes;
    b->n_blocks = ceil_div(b->c.oc, b->width);
    b->is_flat = conv_is_flat(&b->c, s);
    b->xa = b->c.xa, b->ya = b->c.ya;
    sym one = sym_const(st, 1);
    b->x_ext = b->xa >= 0 ? b->c.out[b->xa] : one;
    b->y_ext = b->ya >= 0 ? b->c.out[b->ya] : one;
    if (b->is_flat) {
        b->flat = conv_space(&b->c);
        b->ya = -1, b->y_ext = one;
        b->xa = b->flat.n ? (i32)b->flat.g[b->flat.n - 1].axis : -1;
        b->x_ext = b->flat.n ? b->flat.g[b->flat.n - 1].extent : one;
    }
    b->t = (struct tile){.m = m,
                         .ty = s->ty,
                         .tx = s->tx,
                         .nr = s->nr,
                         .pitch = s->nr,
                         .lanes = b->lanes,
                         .type = b->type,
                         .leaf = &tile_fma,
                         .dot_k = 1,
                         .ahead = s->ahead};
    axis_order(b);
    sym tx = sym_const(st, s->tx), ty = sym_const(st, s->ty);
    b->x_tile = s->tw ? sym_const(st, s->tx * s->tw) : sym_mul(st, sym_cdiv(st, b->x_ext, tx), tx);
    b->y_tile = s->th ? sym_const(st, s->ty * s->th) : sym_mul(st, sym_cdiv(st, b->y_ext, ty), ty);
}

void band_set_columns(struct band *b, i64 lanes)
{
    b->lanes = b->t.lanes = (u32)lanes;
    b->per = lanes, b->width = b->s.nr * lanes;
    b->n_blocks = ceil_div(b->c.oc, b->width);
}

/* Groups of pixels outside the tile. */
static struct space outer_space(const struct band *b)
{
    struct space s = b->is_flat ? b->flat : conv_outer(&b->c);
    s.n -= b->is_flat && s.n;
    return s;
}

void band_alloc(struct band *b)
{
    struct kir *k = b->m->k;
    if (b->size)
        b->work = kir_alloc(k, KS_WORK, b->band_type, 1, emit_size(b->m, b->size));
    if (b->c.by_rows)
        b->rows = kir_alloc(k, KS_WORK, b->type, 1, kir_int(k, b->rows_size ? b->rows_size : tile_rows_size(&b->t)));
    tile_open(&b->t);
    if (!b->temp && !b->rows) tile_loop_epilogue(&b->t, b->c.y, 1, b->to ? b->to->v : 0);
    if (b->t.leaf == &tile_terms && !b->rows) b->t.collected = kir_alloc(k, KS_WORK, b->type, 1, kir_int(k, tile_collected_size(&b->t)));
}

sym bands_across(const struct band *b) { return b->s.tw ? sym_cdiv(b->m->g->sym, b->x_ext, b->x_tile) : sym_const(b->m->g->sym, 1); }

sym bands_down(const struct band *b) { return b->s.th ? sym_cdiv(b->m->g->sym, b->y_ext, b->y_tile) : sym_const(b->m->g->sym, 1); }

void band_place(struct band *b, const struct space *outer, kval row, kval y, kval x)
{
    struct emit *m = b->m;
    struct kir *k = m->k;
    kval xt = emit_size(m, b->x_tile), yt = emit_size(m, b->y_tile);
    space_at(m, outer, row, b->pos);
    b->x0 = kir_mul(k, x, xt), b->y0 = kir_mul(k, y, yt);
    b->x1 = kir_min(k, kir_add(k, b->x0, xt), emit_size(m, b->x_ext));
    b->y1 = kir_min(k, kir_add(k, b->y0, yt), emit_size(m, b->y_ext));
}

kval band_open(struct band *b, i64 parts)
{
    struct emit *m = b->m;
    struct kir *k = m->k;
    struct symtab *t = m->g->sym;
    struct space outer = outer_space(b);
    i64 phases = i64_max(1, b->c.phases);
    kval part = kir_grid(k, kir_int(k, parts));
    kval row = kir_grid(k, emit_size(m, space_count(&outer, t, 0, outer.n)));
    kval tile = kir_grid(k, emit_size(m, scaled(t, sym_mul(t, bands_down(b), bands_across(b)), phases)));
    kval n_x = emit_size(m, bands_across(b));
    b->phase = kir_mod_i(k, tile, phases), tile = kir_div_i(k, tile, phases);
    band_place(b, &outer, row, kir_div(k, tile, n_x), kir_mod(k, tile, n_x));
    band_alloc(b);
    return part;
}

struct tile_out band_target(struct band *b, kval y, kval x)
{
    struct conv *c = &b->c;
    struct tile_out o = {
        .y_axis = b->ya, .x_axis = b->xa, .c_axis = 1, .y_end = b->y1, .x_end = b->x1};
    o.anchor = c->y, o.temp = b->temp, o.rows = b->rows, o.to = b->to;
    o.parts = b->s.split_k, o.part = b->share;
    for (u32 i = 0; i < MAX_RANK; i++)
        o.idx[i] = i < c->rank && i != 1 ? b->pos[i] : kir_int(b->m->k, 0);
    if (b->ya >= 0) o.idx[b->ya] = y;
    if (b->xa >= 0) o.idx[b->xa] = x;
    if (b->to) return o; /* tiles begin anywhere */
    o.y_exact = b->ya >= 0 && gen_static(c->g, b->y_ext, 1) % b->s.ty == 0 &&
                gen_static(c->g, b->y_ext, -1) > 0;
    o.x_exact = b->xa >= 0 && gen_static(c->g, b->x_ext, 1) % b->s.tx == 0 &&
                gen_static(c->g, b->x_ext, -1) > 0;
    return o;
}
