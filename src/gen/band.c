// SPDX-License-Identifier: Apache-2.0
//
// band: convolutions taken apart, and the band: the input that one grid iteration needs,
// evaluated once per element into scratch memory, with zeros (or what the pads hold) around. Padding, upsampling,
// concatenation, activation and layout are paid here, and the loops that follow need no tests.
//
// The band is [axes in order, x last][channel], or with planes [axes][channel][x].
#include "gen/conv.h"

#include <string.h>

bool sym_is(const struct graph *g, sym s, i64 want)
{
    i64 x;
    return sym_is_const(g->sym, s, &x) && x == want;
}

/* The two innermost axes of pixels that are more than one pixel long. */
static void find_tile_axes(struct conv *c)
{
    c->xa = c->ya = -1;
    for (i32 a = (i32)c->rank - 1; a >= 0; a--) {
        if (a == 1 || sym_is(c->g, c->out[a], 1)) continue;
        if (c->xa < 0) {
            c->xa = a;
        } else {
            c->ya = a ? a : -1;
            return;
        }
    }
}

bool conv_fit(struct conv *c, const struct task *t)
{
    c->simple = true;
    enum layout first = graph_value(c->g, t->g.output.v[0])->layout;
    for (u32 i = 0; i < t->g.output.n; i++) {
        value_id v = t->g.output.v[i];
        enum layout l = graph_value(c->g, v)->layout;
        i64 block = layout_block(l);
        c->simple = c->simple && c->oc * c->groups % block == 0 && l == first && gen_depends(c->g, v, c->y) &&
                    gen_pointwise_tail(c->g, v, c->y) &&
                    shape_equal(&graph_value(c->g, v)->shape, &graph_value(c->g, c->y)->shape);
    }
    c->by_rows = c->simple && (first == LAYOUT_ROWS || c->oc * c->groups == 1);
    /* Rows of one pixel: the channels are what lies densely. */
    if (c->by_rows && c->xa <= 0 && c->oc * c->groups > 1) c->by_rows = false;
    return !(c->by_rows && c->xa < 0);
}

i64 conv_run(const struct conv *c, i64 channels)
{
    const struct value *y = graph_value(c->g, c->g->output.v[0]);
    i64 size = dtype_size(y->dtype), block = layout_block(y->layout);
    if (!c->simple || c->by_rows || c->oc * size % 64) return 0;
    channels = i64_min(channels, c->oc);
    return size * (block > 1 ? i64_min(channels, block) : channels);
}

void conv_window(struct conv *c, const struct graph *g, const struct node *n)
{
    struct op_window w;
    bool is_grad = op_of(g, (node_id)(n - g->node.v))->props & OP_CONV_GRAD;
    *c = (struct conv){.g = g, .x = n->in.v[0], .y = is_grad ? n->in.v[1] : n->out.v[0], .groups = 1};
    const struct value *x = graph_value(g, c->x), *y = graph_value(g, c->y);
    op_window_get(g, n, &w);
    c->rank = x->shape.rank;
    c->no_pad = c->point = true;
    for (u32 a = 0; a < c->rank; a++) {
        c->in[a] = x->shape.dim[a], c->out[a] = y->shape.dim[a];
        c->pad[a] = a < 2 ? sym_const(g->sym, 0) : w.begin[a - 2];
        c->k[a] = a < 2 ? 1 : w.kernel[a - 2];
        c->dil[a] = a < 2 ? 1 : w.dilation[a - 2];
        c->stride[a] = a < 2 ? 1 : w.stride[a - 2];
        bool end_free = a < 2 || sym_is(g, w.end[a - 2], 0);
        c->free[a] = sym_is(g, c->pad[a], 0) && end_free;
        c->no_pad = c->no_pad && c->free[a];
        c->point = c->point && c->k[a] == 1 && c->stride[a] == 1;
    }
    c->point = c->point && c->no_pad;
    c->plain = !x->producer && !x->is_const && x->layout == LAYOUT_CLAST && !x->sdata &&
               (!x->part.whole || x->part.axis == 1);
    c->pitched = x->part.whole != 0;
    c->type = emit_type(op_sum_type(x->dtype));
    find_tile_axes(c);
}

static bool take_any(struct conv *c, const struct graph *g, node_id id)
{
    i64 wd[MAX_RANK];
    if (!id || !(op_of(g, id)->props & OP_CONV)) return false;
    const struct node *n = graph_node(g, id);
    const struct value *wt = graph_value(g, n->in.v[1]);
    bool is_static = shape_is_static(g->sym, &wt->shape, wd);
    if (!wt->is_const || !is_static) return false;
    conv_window(c, g, n);
    c->w = n->in.v[1], c->b = op_has_in(n, 2) ? n->in.v[2] : 0;
    c->fill = op_has_in(n, 3) ? n->in.v[3] : 0;
    c->groups = attr_int(n, "group", 1);
    c->oc = wd[0] / c->groups, c->ic = wd[1];
    return true;
}

bool conv_take(struct conv *c, const struct graph *g, node_id id)
{
    return take_any(c, g, id) && dtype_is_float(c->type);
}

bool conv_anchor(struct conv *c, const struct task *t)
{
    return t->n_heavy == 1 && conv_take(c, &t->g, t->anchor);
}

bool conv_of(struct conv *c, const struct task *t)
{
    return conv_anchor(c, t) && conv_fit(c, t);
}

bool conv_of_any(struct conv *c, const struct task *t)
{
    return t->n_heavy == 1 && take_any(c, &t->g, t->anchor) && conv_fit(c, t);
}

static enum layout layout_behind(const struct graph *g, value_id v, u32 depth)
{
    const struct value *x = graph_value(g, v);
    if (x->producer == 0 || depth > 16) return x->layout;
    const struct node *n = graph_node(g, x->producer);
    for (u32 k = 0; k < n->in.n; k++)
        if (n->in.v[k] && !graph_value(g, n->in.v[k])->is_const &&
            graph_value(g, n->in.v[k])->shape.rank == x->shape.rank)
            return layout_behind(g, n->in.v[k], depth + 1);
    return LAYOUT_ROWS;
}

enum layout conv_input_layout(const struct conv *c) { return layout_behind(c->g, c->x, 0); }

i64 conv_lanes(const struct conv *c, const struct caps *caps)
{
    return gen_lanes(caps, c->type);
}

i64 conv_dot_terms(const struct conv *c, const struct caps *caps)
{
    enum dtype x = graph_value(c->g, c->x)->dtype, w = graph_value(c->g, c->w)->dtype;
    return dtype_size(x) == 1 && c->ic > 1 ? tile_dot_k(caps, x, w, c->type) : 1;
}

bool conv_is_inside(const struct conv *c, u32 a)
{
    i64 pad = gen_static(c->g, c->pad[a], -1), in = gen_static(c->g, c->in[a], -1),
        out = gen_static(c->g, c->out[a], -1);
    if (c->no_pad || a == 0) return true;
    return pad == 0 && in >= 0 && out >= 0 &&
           (out - 1) * c->stride[a] + (c->k[a] - 1) * c->dil[a] < in;
}

bool conv_is_flat(const struct conv *c, const struct conv_sched *s)
{
    if (s->merged) return true;
    bool apart = layout_block(graph_value(c->g, c->x)->layout) > 1; /* the images of a batch do */
    if (apart && !sym_is(c->g, c->in[0], 1)) return false;
    return s->stage == STAGE_DIRECT && c->point && c->simple;
}

struct space conv_space(const struct conv *c)
{
    struct space s, r = {0};
    const value_id stop[] = {c->y, 0};
    if (c->phases) {
        sym n = c->out[0];
        for (u32 a = 2; a < c->rank; a++) n = sym_mul(c->g->sym, n, c->out[a]);
        return (struct space){.rank = c->rank, .n = 1, .g = {{n, c->rank - 1}}};
    }
    space_of(&s, c->g, c->simple ? c->g->output.v[0] : c->y, stop, 1u << 1);
    for (u32 i = 1; c->simple && i < c->g->output.n; i++) {
        struct space o;
        space_of(&o, c->g, c->g->output.v[i], stop, 1u << 1);
        if (o.n > s.n) s = o;
    }
    r.rank = s.rank;
    for (u32 i = 0; i < s.n; i++)
        if (s.g[i].axis != 1) r.g[r.n++] = s.g[i];
    return r;
}

/* The band. */

static i64 round_pitch(const struct band *b)
{
    i64 size = dtype_size(b->band_type);
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
        i64 spare = (i32)a == b->xa ? b->spare_x : b->spare_y;
        b->ext[a] = sym_add(t, scaled(t, sym_sub(t, out, one), c->stride[a]),
                            sym_const(t, (c->k[a] - 1) * c->dil[a] + 1 + spare));
    }
    bool planes = b->s.stage == STAGE_PLANES;
    b->c_step = kir_int(b->m->k, 1);
    if (!planes) size = sym_const(t, round_pitch(b));
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
        kir_store(k, b->work, kir_ramp(k, kir_add_i(k, at, b->terms - b->dot), 1, (u32)b->dot),
                  kir_const_f(k, b->band_type, (u32)b->dot, 0));
    if (b->c.plain && whole > 8 * (i64)b->band_lanes) {
        kval c = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), b->band_lanes);
        copy_channels(b, r, at, idx, c, 0);
        kir_end(k);
    } else { /* written out, so that the choices of a concatenation are known */
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
                        (c->k[b->xa] - 1) * c->dil[b->xa] + 1);
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

/* Vectors of bytes are as long as the channels are many, at least as those of sums. */
static void band_elements(struct band *b, const struct caps *caps)
{
    b->band_type = b->dot > 1 ? graph_value(b->m->g, b->c.x)->dtype : b->type;
    b->band_lanes = b->lanes;
    while (b->dot > 1 && 2 * b->band_lanes <= caps->vector_bytes && 2 * (i64)b->band_lanes <= b->c.ic)
        b->band_lanes *= 2;
}

void band_init(struct band *b, struct emit *m, const struct conv *c, const struct caps *caps,
               const struct conv_sched *s)
{
    struct symtab *st = m->g->sym;
    *b = (struct band){.m = m, .s = *s, .c = *c};
    b->type = b->c.type;
    b->lanes = gen_lanes(caps, b->type);
    b->dot = conv_dot_terms(c, caps);
    b->terms = round_up(c->ic, b->dot);
    band_elements(b, caps);
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
                         .lanes = b->lanes,
                         .type = b->type,
                         .leaf = b->dot > 1 ? &tile_dot : &tile_fma,
                         .dot_k = b->dot,
                         .ahead = s->ahead};
    axis_order(b);
    sym tx = sym_const(st, s->tx), ty = sym_const(st, s->ty);
    b->x_tile = s->tw ? sym_const(st, s->tx * s->tw) : sym_mul(st, sym_cdiv(st, b->x_ext, tx), tx);
    b->y_tile = s->th ? sym_const(st, s->ty * s->th) : sym_mul(st, sym_cdiv(st, b->y_ext, ty), ty);
}

struct space conv_outer(const struct conv *c)
{
    struct space s = {.rank = c->rank};
    for (u32 a = 0; a < c->rank; a++)
        if (a != 1 && (i32)a != c->xa && (i32)a != c->ya)
            s.g[s.n++] = (struct axis_run){c->out[a], a};
    return s;
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
        b->rows = kir_alloc(k, KS_WORK, b->type, 1, kir_int(k, tile_rows_size(&b->t)));
    tile_open(&b->t);
    if (!b->temp && !b->rows) tile_loop_epilogue(&b->t, b->c.y, 1, b->to ? b->to->v : 0);
    if (b->t.leaf == &tile_terms) b->t.collected = kir_alloc(k, KS_WORK, b->type, 1, kir_int(k, tile_collected_size(&b->t)));
}

kval band_open(struct band *b, i64 parts)
{
    struct emit *m = b->m;
    struct kir *k = m->k;
    struct symtab *t = m->g->sym;
    struct space outer = outer_space(b);
    u32 group[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    sym one = sym_const(t, 1), nx = b->s.tw ? sym_cdiv(t, b->x_ext, b->x_tile) : one;
    sym ny = b->s.th ? sym_cdiv(t, b->y_ext, b->y_tile) : one;
    kval part = kir_grid(k, kir_int(k, parts));
    kval row = kir_grid(k, emit_size(m, space_count(&outer, t, 0, outer.n)));
    i64 phases = i64_max(1, b->c.phases);
    kval tile = kir_grid(k, emit_size(m, scaled(t, sym_mul(t, ny, nx), phases)));
    b->phase = kir_mod_i(k, tile, phases), tile = kir_div_i(k, tile, phases);
    kval at[MAX_RANK] = {0}, n_x = emit_size(m, nx), xt = emit_size(m, b->x_tile),
         yt = emit_size(m, b->y_tile);
    space_split(m, &outer, group, outer.n, row, at);
    space_index(k, &outer, at, b->pos);
    b->x0 = kir_mul(k, kir_mod(k, tile, n_x), xt);
    b->y0 = kir_mul(k, kir_div(k, tile, n_x), yt);
    b->x1 = kir_min(k, kir_add(k, b->x0, xt), emit_size(m, b->x_ext));
    b->y1 = kir_min(k, kir_add(k, b->y0, yt), emit_size(m, b->y_ext));
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
