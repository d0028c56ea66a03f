// SPDX-License-Identifier: Apache-2.0
//
// cpu_addr_igemm: convolution as a GEMM whose rows are the output pixels numbered through, of all axes and, with channels last,
// of all images. A register tile is tx rows by nr vectors of output channels, whatever the volume's shape: outputs of 2 x 2 x 2 are one
// tile, so that weights stream by once. Elements of the input are read in place, with channels last or outside, and each is
// spread to all lanes. Where a row's window begins is found once for each tile, by divisions; taps are added to that.
//
// Windows may hang over the input: then each tap asks for each row whether it is inside, and elements of pads are zeros that are never
// read. A tap that no row of the tile has inside is skipped, as at the upper and lower edge, or with large dilations. The terms are walked as [channels, ib at a time][taps][channel]: with ib = all channels are innermost, with few of them planes
// are gone through one after the other. The ib elements of a tap of all rows may be copied first (copy): pads are asked for and types converted
// there, once for all columns of the tile. Several iterations may share the terms (ks); their sums are added in order by a second grid.
//
// A transposed convolution is one of stride 1 for each of its phases (gen/trans.h): rows are positions, tiles of the phases follow each
// other and read the same input, and only the taps that a phase has are gone through. The outputs of a tile lie apart and are found one by one.
//
// Dims: n, spatial axes 2.., output channels in blocks of nr vectors, slices: blocks of ib input channels x taps
// of the first spatial axis that has several; phases.
#include "gen/cpu.h"

enum { MAX_WRITTEN = 128 /* multiply-adds of taps written out together */ };

static bool take(struct igemm *x, const struct task *t)
{
    enum { MOST = 5 /* axes of a transposed one, whose weights have two for each of space */ };
    if (conv_of_any(&x->c, t)) return true;
    x->up = t->n_heavy == 1 && trans_as_conv(&x->trans, &x->c, t);
    if (!x->up || x->c.rank > MOST) return false;
    conv_fit(&x->c, t); /* a row may be of one output: each is stored alone */
    return true;
}

/* No tap of any position of the axis lies outside of the input. */
static bool is_axis_inside(const struct igemm *x, u32 a)
{
    const struct trans_axis *p = &x->trans.ax[a];
    const struct graph *g = x->c.g;
    if (!x->up) return conv_is_inside(&x->c, a);
    i64 lo = gen_static(g, p->q_lo, -1), n = gen_static(g, p->n_q, -1), in = gen_static(g, p->in, -1);
    return lo >= 0 && n >= 0 && in >= 0 && lo + p->lo >= 0 && lo + n - 1 + p->hi < in;
}

bool igemm_of(struct igemm *x, const struct task *t)
{
    struct conv *c = &x->c;
    *x = (struct igemm){0};
    if (!take(x, t)) return false;
    const struct value *in = graph_value(c->g, c->x);
    x->is_last = in->layout == LAYOUT_CLAST;
    bool is_stored = !in->producer && !in->is_const && !in->sdata;
    if (!is_stored || c->rank < 3 || (!x->is_last && in->layout != LAYOUT_ROWS)) return false;
    x->space = conv_space(c);
    x->has_batch = x->space.n < 2;
    x->is_inside = true;
    for (u32 a = 2; a < c->rank; a++) x->is_inside = x->is_inside && is_axis_inside(x, a);
    x->axis = 2;
    while (x->axis + 1 < c->rank && c->k[x->axis] == 1) x->axis++;
    return x->space.n < 2 || (x->space.n == 2 && x->space.g[0].axis == 0 && x->space.g[0].extent == c->out[0]);
}

/* Input channels of a slice, and slices. */
i64 igemm_channels(const struct igemm *x, const struct conv_sched *s) { return s->bk ? s->bk : x->c.ic; }
i64 igemm_slices(const struct igemm *x, const struct conv_sched *s) { return ceil_div(x->c.ic, igemm_channels(x, s)) * x->c.k[x->axis]; }

/* Whole groups of neighbouring channels, in the input or where they are copied to. */
struct tile_product igemm_product(const struct igemm *x, const struct caps *caps, const struct conv_sched *s)
{
    const struct tile_product p[] = {x->up ? tile_multiply_add : conv_product_of_rows(&x->c, caps), conv_product(&x->c, caps)};
    for (u32 i = 0; i < countof(p) && (x->is_last || s->copy); i++)
        if (p[i].terms > 1 && igemm_channels(x, s) % p[i].terms == 0) return p[i];
    return tile_multiply_add;
}

struct walk {            /* one task */
    struct band b;       /* first: the contraction's own */
    const struct tile *t; /* being computed */
    struct igemm x;
    i64 channels, slices;
    bool copies;
    i64 slice_size;      /* elements of a slice's packed weights */
    kval phase[MAX_RANK]; /* transposed: number along each axis */
    kval out[IGEMM_ROWS][MAX_RANK], exists[IGEMM_ROWS]; /* transposed: outputs of the tile's rows; 0: always */
};

/* Packed weights: [group][block of outputs][slice: block of inputs, tap of its axis][other taps][input][nr*lanes], by groups of a DOT
   [group][nr*lanes][input]; transposed ones have
   the phase's first tap of each axis in front of the slices, and the taps that it has of the axis as taps. */
static kval pack_weights(struct walk *w)
{
    struct band *b = &w->b;
    struct symtab *t = b->m->g->sym;
    struct pack *p = arena_new(b->m->arena, struct pack);
    const struct conv *c = &b->c;
    w->slice_size = w->channels * b->width;
    for (u32 a = w->x.axis + 1; a < c->rank; a++) w->slice_size *= c->k[a];
    u32 in = w->x.up ? 0 : 1, out = w->x.up ? 1 : 0;
    b->block_weights = w->slices * w->slice_size;
    if (c->groups > 1) pack_dim_i(p, t, c->groups, 0, w->x.up ? c->ic : c->oc);
    pack_dim_i(p, t, b->n_blocks, out, b->width);
    for (u32 a = 2; w->x.up && a < c->rank; a++) pack_dim_i(p, t, w->x.trans.ax[a].step, a, 1);
    pack_dim_i(p, t, c->ic / w->channels, in, w->channels);
    for (u32 a = 2; a < c->rank; a++) pack_dim_i(p, t, c->k[a], a, w->x.up ? w->x.trans.ax[a].step : 1);
    pack_dim_i(p, t, w->channels / b->group_size, in, b->group_size);
    pack_dim_i(p, t, b->width, out, 1);
    if (b->dot_k > 1) pack_dim_i(p, t, b->group_size, in, 1);
    return emit_pack(b->m, c->w, p);
}

struct rows {            /* of one tile */
    kval base[IGEMM_ROWS]; /* elements from the input's first to the first tap's of channel 0; outside it, too */
    kval first[IGEMM_ROWS][MAX_RANK]; /* input index there, of spatial axes */
    kval inside[IGEMM_ROWS]; /* at the taps opened so far */
};

/* The outputs that row number m stands for. */
static void split_row(const struct walk *w, kval m, kval idx[MAX_RANK])
{
    const struct band *b = &w->b;
    const struct conv *c = &b->c;
    struct kir *k = b->m->k;
    idx[0] = w->x.has_batch ? m : b->pos[0];
    for (u32 a = c->rank; a-- > 2;) {
        bool is_first = a == 2 && !w->x.has_batch;
        kval n = emit_size(b->m, c->out[a]);
        idx[a] = is_first ? m : kir_mod(k, m, n);
        if (!is_first) m = kir_div(k, m, n);
    }
    if (w->x.has_batch) idx[0] = m;
}

/* Transposed: the output of this iteration's phase at a position. Whether it exists is asked where it is not known. */
static void find_output(struct walk *w, i64 p, const kval idx[MAX_RANK], kval is_row)
{
    struct emit *m = w->b.m;
    struct kir *k = m->k;
    struct symtab *t = m->g->sym;
    kval ok = is_row;
    for (u32 a = 0; a < MAX_RANK; a++) w->out[p][a] = a ? kir_int(k, 0) : idx[0];
    for (u32 a = 2; a < w->x.c.rank; a++) {
        const struct trans_axis *x = &w->x.trans.ax[a];
        sym stop = sym_mul(t, sym_add(t, x->q_lo, x->n_q), sym_const(t, x->s));
        kval at = w->out[p][a] = trans_output(m, x, idx[a], w->phase[a]);
        if (gen_static(m->g, x->q_lo, 0) * x->s < x->begin) ok = kir_and(k, ok, kir_bin(k, KI_LE, kir_int(k, 0), at));
        if (gen_static(m->g, sym_sub(t, x->out, stop), -MAX_PHASES) + x->begin < 0) ok = kir_and(k, ok, kir_lt(k, at, emit_size(m, x->out)));
    }
    w->exists[p] = ok;
}

/* Rows behind the last one are the last again. */
static void find_rows(struct walk *w, kval from, struct rows *r)
{
    struct band *b = &w->b;
    const struct conv *c = &b->c;
    struct kir *k = b->m->k;
    kval last = kir_add_i(k, b->x1, -1), idx[MAX_RANK];
    for (i64 p = 0; p < b->s.tx; p++) {
        kval m = kir_add_i(k, from, p);
        split_row(w, p ? kir_min(k, m, last) : m, idx);
        kval at = kir_mul(k, idx[0], b->step[0]);
        for (u32 a = 2; a < c->rank; a++) {
            r->first[p][a] = kir_sub(k, kir_mul_i(k, idx[a], c->stride[a]), emit_size(b->m, c->pad[a]));
            at = kir_add(k, at, kir_mul(k, r->first[p][a], b->step[a]));
        }
        r->base[p] = at, r->inside[p] = kir_const_i(k, DT_BOOL, 1, 1);
        if (w->x.up) find_output(w, p, idx, p ? kir_lt(k, m, b->x1) : 0);
    }
}

/* Taps of an axis: those of the phase. */
static kval tap_count(const struct walk *w, u32 a)
{
    struct kir *k = w->b.m->k;
    return w->x.up ? trans_fact(k, &w->x.trans.ax[a], FACT_TAPS, w->phase[a]) : kir_int(k, w->b.c.k[a]);
}

/* How far along an axis the input of a tap lies from a row's first one. */
static kval tap_distance(const struct walk *w, u32 a, kval tap)
{
    struct kir *k = w->b.m->k;
    const struct trans_axis *x = &w->x.trans.ax[a];
    kval by = kir_mul_i(k, tap, w->b.c.dil[a]);
    return w->x.up ? kir_sub(k, kir_add_i(k, trans_fact(k, x, FACT_OFFSET, w->phase[a]), -x->lo), by) : by;
}

/* At a tap of axis a, so far behind the first. */
static void ask_rows(struct walk *w, struct rows *r, u32 a, kval by)
{
    struct band *b = &w->b;
    struct kir *k = b->m->k;
    if (is_axis_inside(&w->x, a)) return;
    kval end = emit_size(b->m, b->c.in[a]);
    for (i64 p = 0; p < b->s.tx; p++) {
        kval i = kir_add(k, r->first[p][a], by);
        r->inside[p] = kir_bin(k, KI_AND, r->inside[p], gen_is_inside(k, i, end));
    }
}

/* The elements of `in` to scratch memory, as [group of channels][row][channel]; neighbours of a group at once. */
static struct tile_in copy_rows(struct walk *w, const struct tile_in *in)
{
    struct band *b = &w->b;
    struct kir *k = b->m->k;
    i64 n = b->s.tx, group = b->dot_k;
    u32 lanes = w->x.is_last ? (u32)group : 1;
    kval ch = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, w->channels), lanes);
    kval at = kir_add(k, in->at, kir_mul(k, ch, b->c_step)), to = kir_add(k, kir_mul_i(k, kir_div_i(k, ch, group), n * group), kir_mod_i(k, ch, group));
    for (i64 p = 0; p < n; p++) {
        kval x = kir_cast(k, b->band_type, kir_load(k, in->buf, kir_ramp(k, kir_add(k, at, in->px[p]), 1, lanes)));
        if (in->inside) x = kir_select(k, in->inside[p], x, tile_outside(k, in, b->band_type));
        kir_store(k, b->work, kir_ramp(k, kir_add_i(k, to, p * group), 1, lanes), x);
    }
    kir_end(k);
    return (struct tile_in){.buf = b->work, .at = kir_int(k, 0), .x_step = kir_int(k, group), .y_step = kir_int(k, 0)};
}

/* The channels of one tap, which `in` has of all rows. */
static void row_steps(struct walk *w, struct tile_in in, kval w_at)
{
    struct band *b = &w->b;
    struct kir *k = b->m->k;
    i64 n = w->channels / b->dot_k;
    if (w->copies) in = copy_rows(w, &in);
    kval step = w->copies ? kir_int(k, b->s.tx) : b->c_step;
    tile_steps(w->t, in, kir_mul_i(k, step, b->dot_k), conv_weights(b), w_at, n, i64_min(b->s.ku, n));
}

/* The channels of one tap, which lies `by` elements behind the first one. */
static void tap_steps(struct walk *w, const struct rows *r, kval channel, kval by, kval w_at)
{
    struct band *b = &w->b;
    struct kir *k = b->m->k;
    kval px[IGEMM_ROWS], start = kir_mul(k, channel, b->c_step), zero[MAX_RANK];
    for (u32 i = 0; i < MAX_RANK; i++) zero[i] = kir_int(k, 0);
    start = kir_add(k, start, emit_offset(b->m, b->c.x, zero));
    struct tile_in in = {.buf = b->m->buf[b->c.x], .at = start, .px = px};
    if (b->c.fill && !w->x.is_inside) in.outside = emit_value(b->m, b->c.fill, zero);
    in.x_step = in.y_step = kir_int(k, 0);
    kval all = 0, any = 0;
    for (i64 p = 0; p < b->s.tx && !w->x.is_inside; p++) {
        all = kir_and(k, all, r->inside[p]);
        any = any ? kir_bin(k, KI_OR, any, r->inside[p]) : r->inside[p];
    }
    if (b->c.fill) any = 0; /* pads add to the sums */
    if (any) kir_if(k, any);
    if (all) { /* which most tiles are, at most taps */
        kir_if(k, all);
        struct tile_in whole = in;
        whole.at = kir_add(k, start, by), whole.px = r->base;
        row_steps(w, whole, w_at);
        kir_else(k);
    }
    if (w->x.is_inside) in.at = kir_add(k, start, by);
    else in.inside = r->inside;
    for (i64 p = 0; p < b->s.tx; p++)
        px[p] = w->x.is_inside ? r->base[p] : kir_select(k, r->inside[p], kir_add(k, r->base[p], by), zero[0]);
    row_steps(w, in, w_at);
    if (all) kir_end(k);
    if (any) kir_end(k);
}

/* Few terms of neighbouring taps are written out together. */
static bool writes_out(const struct walk *w, u32 a)
{
    const struct band *b = &w->b;
    return a + 1 == b->c.rank && w->x.is_inside && (!w->x.up || trans_same_taps(&w->x.trans.ax[a])) && b->c.k[a] * w->channels * b->s.tx * b->s.nr <= MAX_WRITTEN;
}

/* The terms of slice number `slice` of those that there are; weights have room for all taps. */
static void slice_product(struct walk *w, const struct rows *first, kval slice, kval w_at)
{
    struct band *b = &w->b;
    const struct conv *c = &b->c;
    struct kir *k = b->m->k;
    struct rows r = *first;
    u32 loops = 0, axis = w->x.axis;
    kval taps = kir_max(k, tap_count(w, axis), kir_int(k, 1));
    kval tap = kir_mod(k, slice, taps), part = kir_div(k, slice, taps), by = tap_distance(w, axis, tap);
    i64 size = w->slice_size, n;
    ask_rows(w, &r, axis, by);
    by = kir_mul(k, by, b->step[axis]);
    w_at = kir_add(k, w_at, kir_mul_i(k, w->x.up ? kir_add(k, kir_mul_i(k, part, c->k[axis]), tap) : slice, size));
    for (u32 a = 2; a < c->rank; a++) {
        if (a == axis) continue;
        size /= c->k[a];
        tap = kir_int(k, 0), taps = tap_count(w, a);
        if (!kir_is_const(k, taps, &n) || n != 1) tap = kir_loop(k, writes_out(w, a) ? KL_UNROLL : KL_SERIAL, tap, taps, 1), loops++;
        kval more = tap_distance(w, a, tap);
        ask_rows(w, &r, a, more);
        by = kir_add(k, by, kir_mul(k, more, b->step[a]));
        w_at = kir_add(k, w_at, kir_mul_i(k, tap, size));
    }
    tap_steps(w, &r, kir_add(k, kir_mul_i(k, b->group, c->ic), kir_mul_i(k, part, w->channels)), by, w_at);
    while (loops--) kir_end(k);
}

/* This iteration's share of the slices. */
static void multiply(struct cpu_contraction *p, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct walk *w = p->own;
    struct band *b = &w->b;
    struct kir *k = b->m->k;
    struct rows r;
    i64 ks = b->s.split_k;
    w->t = t;
    kval w_at = w->x.up ? kir_add(k, kir_mul_i(k, b->group, b->n_blocks), e->at[CPU_BLOCK]) : conv_weights_at(b, e->at[CPU_BLOCK]);
    for (u32 a = 2; w->x.up && a < b->c.rank; a++) {
        const struct trans_axis *x = &w->x.trans.ax[a];
        w->phase[a] = trans_phase_of(k, &w->x.trans, b->phase, a);
        w_at = kir_add(k, kir_mul_i(k, w_at, x->step), trans_fact(k, x, FACT_FIRST, w->phase[a]));
    }
    if (w->x.up) w_at = kir_mul_i(k, w_at, b->block_weights);
    find_rows(w, e->at[CPU_X], &r);
    if (w->x.up) o->px = (const kval(*)[MAX_RANK])w->out, o->exists = w->exists;
    kval slices = kir_mul_i(k, tap_count(w, w->x.axis), w->slices / b->c.k[w->x.axis]);
    kval from = kir_div_i(k, kir_mul(k, b->share, slices), ks), to = kir_div_i(k, kir_mul(k, kir_add_i(k, b->share, 1), slices), ks);
    kval slice = kir_loop(k, KL_SERIAL, from, to, 1);
    slice_product(w, &r, slice, w_at);
    kir_end(k);
}

static const struct cpu_addressing igemm = {.open = conv_open, .target = conv_target, .multiply = multiply};

void igemm_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct conv_sched *s)
{
    struct walk *w = arena_new(m->arena, struct walk);
    igemm_of(&w->x, t);
    band_init(&w->b, m, &w->x.c, caps, s);
    band_set_columns(&w->b, conv_column_lanes(&w->x.c, caps));
    band_multiply_by(&w->b, igemm_product(&w->x, caps, s), caps);
    w->b.address = &igemm;
    w->channels = igemm_channels(&w->x, s), w->slices = igemm_slices(&w->x, s), w->copies = s->copy;
    if (w->copies) w->b.size = sym_const(m->g->sym, w->channels * s->tx);
    w->b.wbuf = pack_weights(w);
    conv_may_widen(&w->b, caps);
    emit_args(m);
    emit_stream(m, s->nt);
    conv_in_place(&w->b);
    conv_emit(&w->b, t, caps);
}
