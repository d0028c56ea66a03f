// SPDX-License-Identifier: Apache-2.0
//
// cpu_addr_dw: the inner loops of depthwise convolutions, channels vectorised, on a band that holds one
// block of nr vectors of channels (cpu_band.c). Every element of a register tile's footprint is
// loaded once and added to all accumulators that use it. For the rest of the band's code a block
// is a group of as many input channels.
//
// Or without a band: the input is read in place, pixel after pixel with all their channels,
// and what a footprint has outside of the input is left out: rows and columns that may lie outside
// are tested. A tile is hundreds of instructions, and compilers take longest for depthwise kernels,
// so there are as few copies as possible: with the registers of AVX-512 one for the tiles at both ends
// of a row, and one for those inside. With fewer registers the tests cost up to a tenth of the time,
// and both ends have code of their own. The last block of channels, where it has fewer, begins earlier,
// so that it is whole and shares the code of the others: some channels are computed twice, which costs
// nothing as long as no vector is added.
//
// Integers are multiplied by DOT where the target has it. Its terms are taps that are neighbours along
// one axis (y, if the window has several rows): the footprint's rows are taken in groups, whose channels
// are interleaved in registers (ZIP), once for all pixels that use the group. Which taps a pixel has in
// a group depends on its row, so weights are packed for each distance, with zeros for what is no tap: of
// two rows, (w0, w1) (w2, 0) for one pixel and (0, w0) (w1, w2) for the one below it.
#include "gen/cpu_band.h"

static bool is_short(enum dtype t) { return t == DT_U8 || t == DT_I8 || t == DT_I16; }

struct dw_product dw_product_of(const struct conv *c, const struct caps *caps)
{
    const enum dtype x = graph_value(c->g, c->x)->dtype, w = graph_value(c->g, c->w)->dtype;
    const i32 axis = c->ya >= 2 && c->k[c->ya] > 1 ? c->ya : c->xa;
    const struct dw_product one = {.terms = 1, .axis = -1, .type = c->type};
    if (axis < 2 || c->k[axis] < 2 || !is_short(x) || !is_short(w) || c->type != DT_I32) return one;
    const struct tile_operands own = {x, w, DT_I32, -1, 0}, wide = {DT_I16, DT_I16, DT_I32, -1, 0};
    if (tile_dot.terms(caps, &own)) return (struct dw_product){tile_dot.terms(caps, &own), axis, x};
    return tile_dot.terms(caps, &wide) ? (struct dw_product){tile_dot.terms(caps, &wide), axis, DT_I16} : one;
}

static bool in_groups(const struct band *b) { return b->dw.terms > 1; }

/* Vectors of weights along an axis: of a DOT one for each distance between a pixel's first tap and the group's last member. */
static i64 taps_along(const struct band *b, u32 a) { return in_groups(b) && (i32)a == b->dw.axis ? b->c.k[a] + b->dw.terms - 1 : b->c.k[a]; }

/* Channels of a step of the packed weights. */
static i64 weights_width(const struct band *b) { return b->overlaps ? b->n_channels : b->width; }

/* Packed weights: [block][taps][channel], [taps][channel] where blocks overlap, of a DOT [block][taps][channel][member], the group's last member
   first: an axis's element (i, j) is tap i - j. */
static kval pack_weights(struct band *b)
{
    struct symtab *t = b->m->g->sym;
    struct pack *p = arena_new(b->m->arena, struct pack);
    if (!b->overlaps) pack_dim_i(p, t, b->c.groups, 0, b->width);
    for (u32 a = 2; a < b->c.rank; a++) pack_dim_i(p, t, taps_along(b, a), a, 1);
    pack_dim_i(p, t, weights_width(b), 0, 1);
    if (in_groups(b)) {
        pack_dim_i(p, t, b->dw.terms, (u32)b->dw.axis, -1);
        if (b->dw.type == DT_I16 && graph_value(b->m->g, b->c.w)->dtype != DT_I16) p->dtype = DT_I16;
    }
    return emit_pack(b->m, b->c.w, p);
}

/* Which tap joins input position `in` with output pixel `out` of the tile along an axis? -1: none.
 */
static i64 tap_between(const struct conv *c, i32 axis, i64 in, i64 out)
{
    i64 d = in - out * c->stride[axis];
    return d >= 0 && d % c->dil[axis] == 0 && d / c->dil[axis] < c->k[axis] ? d / c->dil[axis] : -1;
}

/* Where a footprint begins on an axis of the input, which has n positions; n 0: all of it lies inside. Positions lo..hi-1 of the footprint
   lie inside, whichever tile it is. */
struct edge {
    kval first, n;
    i64 lo, hi;
};

struct taps {
    struct band *b;
    const struct tile *t;
    kval buf, at; /* the band or the input, and the footprint's first element there */
    kval w_at;    /* first weight of the block */
    kval limit;   /* channels from the first on that exist, 0: as many as the vectors hold */
    i64 w_step[MAX_RANK];
    struct edge y, x;
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
                kval limit = x->limit ? kir_add_i(k, x->limit, -j * b->lanes) : 0;
                in = kir_cast(k, b->type,
                              kir_load_n(k, x->buf, kir_ramp(k, at, 1, b->lanes), limit));
            }
            i64 off =
                (b->ya >= 0 ? ky * x->w_step[b->ya] : 0) + (b->xa >= 0 ? kx * x->w_step[b->xa] : 0);
            kval w = kir_load(k, b->wbuf,
                              kir_ramp(k, kir_add_i(k, x->w_at, off + j * b->lanes), 1, b->lanes));
            kval slot = tile_acc(x->t, dy * b->s.tx + dx, j);
            kir_store(k, x->t->acc, slot, kir_fma(k, in, kir_cast(k, b->type, w), kir_load(k, x->t->acc, slot)));
        }
}

/* Input positions of a tile along an axis. */
static i64 footprint(const struct conv *c, i32 axis, i64 pixels)
{
    return axis >= 0 ? (pixels - 1) * c->stride[axis] + (c->k[axis] - 1) * c->dil[axis] + 1 : 1;
}

/* Opens what is done only where position i of the footprint lies inside: 1 if it was opened, 0 if
 * it is not needed, -1: never. */
static int open_inside(struct kir *k, const struct edge *e, i64 i)
{
    i64 always;
    if (!e->n || (i >= e->lo && i < e->hi)) return 0;
    kval at = kir_add_i(k, e->first, i);
    kval in = gen_is_inside(k, at, e->n);
    if (kir_is_const(k, in, &always)) return always ? 0 : -1;
    kir_if(k, in);
    return 1;
}

/* Groups of a DOT. */

/* Walks over the groups of a tile's footprint and the pixels that use them. Along the axis of the DOT positions at distances of the window's dilation form
   a sequence; a group is `terms` members of one that follow each other. */
struct group {
    const struct conv *c;
    const struct dw_product *p;
    i64 ty, tx;
    i64 first, other; /* positions in the footprint: of the first member, and along the tile's other axis */
};

static i32 other_axis(const struct group *g) { return g->p->axis == g->c->ya ? g->c->xa : g->c->ya; }
static i64 pixels_along(const struct group *g, i32 axis) { return axis == g->c->ya ? g->ty : axis == g->c->xa ? g->tx : 1; }

/* Taps of pixel (dy, dx): along the axis of the DOT the first member's, which may be none (below 0, or beyond the last), and along the other axis. false: it
   has none in the group. */
static bool taps_of(const struct group *g, i64 dy, i64 dx, i64 *tap, i64 *across)
{
    const struct conv *c = g->c;
    const i32 a = g->p->axis, o = other_axis(g);
    const i64 along = a == c->ya ? dy : dx, d = g->first - along * c->stride[a];
    *across = o >= 0 ? tap_between(c, o, g->other, a == c->ya ? dx : dy) : 0;
    if (*across < 0 || d % c->dil[a]) return false;
    *tap = d / c->dil[a];
    return *tap > -g->p->terms && *tap < c->k[a];
}

static void each_group(struct group g, void (*visit)(const struct group *g, void *user), void *user)
{
    const i32 a = g.p->axis, o = other_axis(&g);
    const i64 dil = g.c->dil[a], end = footprint(g.c, a, pixels_along(&g, a)), others = footprint(g.c, o, pixels_along(&g, o));
    for (g.other = 0; g.other < others; g.other++)
        for (i64 from = 0; from < dil && from < end; from++)
            for (g.first = from; g.first < end; g.first += dil * g.p->terms) visit(&g, user);
}

static void count_group(const struct group *g, void *user)
{
    struct dw_work *w = user;
    i64 tap, across, dots = 0;
    for (i64 dy = 0; dy < g->ty; dy++)
        for (i64 dx = 0; dx < g->tx; dx++) dots += taps_of(g, dy, dx, &tap, &across);
    w->dots += dots, w->groups += dots > 0;
}

struct dw_work dw_work_of(const struct conv *c, const struct dw_product *p, i64 ty, i64 tx)
{
    struct dw_work w = {0};
    const struct group g = {.c = c, .p = p, .ty = ty, .tx = tx};
    const i32 o = other_axis(&g);
    each_group(g, count_group, &w);
    w.weights = i64_min(w.dots, (c->k[p->axis] + p->terms - 1) * (o >= 0 ? c->k[o] : 1));
    return w;
}

enum { MAX_TERMS = 4 };

/* Is position i of the footprint inside? 0: always. */
static kval is_inside(struct kir *k, const struct edge *e, i64 i)
{
    i64 always;
    if (!e->n) return 0;
    kval in = gen_is_inside(k, kir_add_i(k, e->first, i), e->n);
    return kir_is_const(k, in, &always) && always ? 0 : in;
}

/* `lanes` channels from vector j of the block on, at (r, q) of the footprint. */
static kval load_channels(const struct taps *x, i64 r, i64 q, i64 j, u32 lanes)
{
    const struct band *b = x->b;
    struct kir *k = b->m->k;
    kval at = kir_add_i(k, x->at, j * b->lanes);
    if (b->ya >= 0) at = kir_add(k, at, kir_mul_i(k, b->step[b->ya], r));
    if (b->xa >= 0) at = kir_add(k, at, kir_mul_i(k, b->step[b->xa], q));
    return kir_load_n(k, x->buf, kir_ramp(k, at, 1, lanes), x->limit ? kir_add_i(k, x->limit, -j * b->lanes) : 0);
}

/* The same, of what lies in the pads where that is outside. */
static kval load_or_fill(const struct taps *x, i64 r, i64 q, i64 j, u32 lanes)
{
    const struct band *b = x->b;
    struct kir *k = b->m->k;
    const enum dtype type = kir_dtype(k, x->buf);
    kval in = kir_and(k, is_inside(k, &x->y, r), is_inside(k, &x->x, q)), zero = kir_int(k, 0);
    if (!in) return load_channels(x, r, q, j, lanes);
    kval element = kir_alloc(k, KS_REG, type, lanes, kir_int(k, 1));
    kval fill = b->c.fill ? kir_cast(k, type, emit_value(b->m, b->c.fill, &zero)) : kir_const_f(k, type, 1, 0);
    kir_store(k, element, zero, kir_splat(k, fill, lanes));
    kir_if(k, in);
    kir_store(k, element, zero, load_channels(x, r, q, j, lanes));
    kir_end(k);
    return kir_load(k, element, zero);
}

/* Vectors j, j + 1 ... j + n - 1 of a group, members interleaved, the last first. */
static void load_group(const struct taps *x, const struct group *g, i64 j, i64 n, kval *to)
{
    const struct band *b = x->b;
    struct kir *k = b->m->k;
    const i64 terms = b->dw.terms, dil = b->c.dil[b->dw.axis];
    const bool along_y = b->dw.axis == b->ya;
    const i64 end = footprint(&b->c, b->dw.axis, pixels_along(g, b->dw.axis));
    kval member[MAX_TERMS];
    assert(terms <= MAX_TERMS);
    for (i64 i = 0; i < terms; i++) {
        i64 at = g->first + i * dil; /* behind the footprint's end all weights are zeros: any member will do */
        bool exists = at < end;
        member[terms - 1 - i] = exists ? load_or_fill(x, along_y ? at : g->other, along_y ? g->other : at, j, (u32)(n * b->lanes)) : member[terms - i];
    }
    for (i64 i = 0; i < n; i++) to[i] = kir_cast(k, b->dw.type, kir_interleave(k, member, terms, i, b->lanes));
}

/* A group's vectors of channels: as many in a load as there are, or DOT has terms. */
static void load_vectors(const struct taps *x, const struct group *g, kval *to)
{
    for (i64 j = 0, n; j < x->t->nr; j += n) {
        for (n = 1; 2 * n <= x->b->dw.terms && j + 2 * n <= x->t->nr; n *= 2) {}
        load_group(x, g, j, n, to + j);
    }
}

static void add_group(const struct group *g, void *user)
{
    const struct taps *x = user;
    struct band *b = x->b;
    struct kir *k = b->m->k;
    const i32 o = other_axis(g);
    const i64 lanes = b->lanes * b->dw.terms;
    kval in[TILE_COLUMNS];
    bool is_loaded = false;
    for (i64 dy = 0; dy < g->ty; dy++)
        for (i64 dx = 0; dx < g->tx; dx++) {
            i64 tap, across;
            if (!taps_of(g, dy, dx, &tap, &across)) continue;
            if (!is_loaded) load_vectors(x, g, in);
            is_loaded = true;
            i64 off = (tap + b->dw.terms - 1) * x->w_step[b->dw.axis] + (o >= 0 ? across * x->w_step[o] : 0);
            for (i64 j = 0; j < x->t->nr; j++) {
                kval w = kir_load(k, b->wbuf, kir_ramp(k, kir_add_i(k, x->w_at, off + j * lanes), 1, (u32)lanes)), slot = tile_acc(x->t, dy * g->tx + dx, j);
                kir_store(k, x->t->acc, slot, kir_dot(k, in[j], w, kir_load(k, x->t->acc, slot)));
            }
        }
}

static void add_footprint(const struct taps *x)
{
    const struct band *b = x->b;
    struct kir *k = b->m->k;
    i64 rows = footprint(&b->c, b->ya, b->s.ty), cols = footprint(&b->c, b->xa, b->s.tx);
    for (i64 r = 0; r < rows; r++) {
        int row = open_inside(k, &x->y, r);
        for (i64 q = 0; row >= 0 && q < cols; q++) {
            int col = open_inside(k, &x->x, q);
            for (i64 j = 0; col >= 0 && j < x->t->nr; j++) add_element(x, r, q, j);
            if (col > 0) kir_end(k);
        }
        if (row > 0) kir_end(k);
    }
}

/* All taps. */
static void add_taps(struct taps *x)
{
    struct band *b = x->b;
    struct kir *k = b->m->k;
    const struct conv *c = &b->c;
    struct cpu_walk w = {.k = k, .a = x->at, .b = x->w_at};
    i64 size = weights_width(b) * b->dw.terms;
    for (u32 a = c->rank; a-- > 2;) {
        x->w_step[a] = size;
        size *= taps_along(b, a);
    }
    for (u32 a = 2; a < c->rank; a++)
        if (!is_tile_axis(b, a) && c->k[a] > 1) cpu_walk_over(&w, KL_SERIAL, kir_int(k, 0), kir_int(k, c->k[a]), 1, b->step[a], x->w_step[a]);
    x->at = w.a, x->w_at = w.b;
    if (in_groups(b)) each_group((struct group){.c = c, .p = &b->dw, .ty = b->s.ty, .tx = b->s.tx}, add_group, x);
    else add_footprint(x);
    cpu_walk_close(&w);
}

static i64 weights_of_block(const struct band *b)
{
    i64 n = b->width * b->dw.terms;
    for (u32 a = 2; a < b->c.rank; a++) n *= taps_along(b, a);
    return n;
}

/* With a band, whose channels are one block. */

static struct tile_out target(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct band *b = p->own;
    struct kir *k = b->m->k;
    struct tile_out o = band_target(b, e->at[CPU_Y], e->at[CPU_X]);
    o.c = kir_mul_i(k, b->group, b->width);
    o.c_end = b->channels ? kir_add(k, o.c, b->channels) : 0;
    return o;
}

static void multiply(struct cpu_contraction *p, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct band *b = p->own;
    struct kir *k = b->m->k;
    kval at = kir_int(k, 0);
    if (b->ya >= 0) at = kir_mul(k, kir_mul_i(k, kir_sub(k, e->at[CPU_Y], b->y0), b->c.stride[b->ya]), b->step[b->ya]);
    if (b->xa >= 0) at = kir_add(k, at, kir_mul(k, kir_mul_i(k, kir_sub(k, e->at[CPU_X], b->x0), b->c.stride[b->xa]), b->step[b->xa]));
    add_taps(&(struct taps){.b = b, .t = t, .buf = b->work, .at = at, .w_at = kir_mul_i(k, b->group, weights_of_block(b))});
}

/* Whether vectors of channels are neighbours in memory wherever they begin. */
static bool is_unblocked(const struct graph *g)
{
    bool ok = true;
    for (value_id v = 1; v < g->value.n; v++) ok = ok && layout_block(graph_value(g, v)->layout) == 1;
    return ok;
}

/* One iteration has all blocks, so that no two iterations store the same elements. */
static bool may_overlap(const struct band *b)
{
    i64 rest = b->n_channels % b->width;
    return b->s.stage == STAGE_DIRECT && !b->s.ob && rest && b->n_channels > b->width && b->width - rest < b->per && is_unblocked(b->m->g);
}

void dw_init(struct band *b, const struct caps *caps)
{
    const struct value *x = graph_value(b->m->g, b->c.x);
    b->dw = dw_product_of(&b->c, caps);
    b->n_channels = b->c.groups;
    b->c.ic = b->terms = b->width;
    b->c.groups = ceil_div(b->n_channels, b->width);
    b->overlaps = may_overlap(b);
    if (in_groups(b)) {
        b->t.dot_k = b->dot_k = b->dw.terms, b->band_type = x->dtype;
        while (!x->producer && b->width % (2 * (i64)b->band_lanes) == 0 && 2 * b->band_lanes * dtype_size(b->band_type) <= caps->vector_bytes) b->band_lanes *= 2;
    }
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
    static const struct cpu_addressing address = {.target = target, .multiply = multiply};
    b->address = &address;
    conv_walk(b, 0, 0);
}

/* Pixels are read in place. */

struct in_place {
    struct band *b;
    struct edge y, x; /* of the tile's footprint */
    bool is_compact;  /* both ends of a row share code */
    struct cpu_contraction blocks; /* all blocks of channels of a tile's pixels */
};

/* The first channel of a block. */
static kval first_channel(const struct in_place *w, const struct cpu_piece *e)
{
    const struct band *b = w->b;
    struct kir *k = b->m->k;
    kval c = kir_mul_i(k, e->at[CPU_BLOCK], b->width);
    return b->overlaps ? kir_min(k, c, kir_int(k, b->n_channels - b->width)) : c;
}

static struct tile_out target_in_place(struct cpu_contraction *p, const struct cpu_piece *e)
{
    const struct in_place *w = p->own;
    struct kir *k = p->m->k;
    struct tile_out o = band_target(w->b, e->at[CPU_Y], e->at[CPU_X]);
    o.c = first_channel(w, e);
    o.c_end = e->is_full ? 0 : kir_int(k, w->b->n_channels);
    return o;
}

static void multiply_in_place(struct cpu_contraction *p, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    const struct in_place *w = p->own;
    struct band *b = w->b;
    struct kir *k = b->m->k;
    const struct conv *c = &b->c;
    kval idx[MAX_RANK];
    for (u32 a = 0; a < MAX_RANK; a++)
        idx[a] = a < c->rank ? kir_mul_i(k, b->pos[a], c->stride[a]) : kir_int(k, 0);
    idx[1] = o->c;
    kval at = emit_offset(b->m, c->x, idx);
    if (b->ya >= 0) at = kir_add(k, at, kir_mul(k, w->y.first, b->step[b->ya]));
    if (b->xa >= 0) at = kir_add(k, at, kir_mul(k, w->x.first, b->step[b->xa]));
    add_taps(&(struct taps){.b = b,
                            .t = t,
                            .buf = b->m->buf[c->x],
                            .at = at,
                            .w_at = b->overlaps ? kir_mul_i(k, o->c, b->dw.terms) : kir_mul_i(k, e->at[CPU_BLOCK], weights_of_block(b)),
                            .limit = e->is_full ? 0 : kir_int(k, e->columns),
                            .y = w->y,
                            .x = w->x});
}

static struct edge edge_at(struct band *b, i32 axis, kval pixel)
{
    struct kir *k = b->m->k;
    kval first = kir_mul_i(k, pixel, b->c.stride[axis]);
    return (struct edge){.first = kir_sub(k, first, emit_size(b->m, b->c.pad[axis])), .n = emit_size(b->m, b->c.in[axis])};
}

static void enter_row(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct in_place *w = p->own;
    w->y = edge_at(w->b, w->b->ya, e->at[CPU_Y]);
}

/* All blocks of channels of the tile at pixel x. */
static void place_tile(struct in_place *w, struct cpu_piece e, kval x, const struct edge *known)
{
    e.at[CPU_X] = x;
    w->x = edge_at(w->b, w->b->xa, x);
    w->x.lo = known->lo, w->x.hi = known->hi;
    cpu_nest(&w->blocks, &e, cpu_tile);
}

/* Tiles of a row from pixel `from` on, before `to`; a few are written out, as it is known then which columns lie inside. */
static void place_range(struct in_place *w, const struct cpu_piece *e, kval from, kval to, bool inside)
{
    enum { FEW = 2 };
    struct kir *k = w->b->m->k;
    const struct edge all = {.hi = inside ? INT64_MAX : 0};
    i64 lo, hi, tx = w->b->s.tx;
    bool known = kir_is_const(k, from, &lo) && kir_is_const(k, to, &hi);
    if (known && lo >= hi) return;
    if (known && hi - lo <= (w->is_compact ? 1 : FEW) * tx) {
        for (i64 x = lo; x < hi; x += tx) place_tile(w, *e, kir_int(k, x), &all);
        return;
    }
    kval x = kir_loop(k, KL_SERIAL, from, to, tx);
    place_tile(w, *e, x, &all);
    kir_end(k);
}

/* Tiles before pixel `left`, and those from `right` on, by the same code. false: sizes are not known. */
static bool place_ends(struct in_place *w, const struct cpu_piece *e, kval left, kval right)
{
    struct band *b = w->b;
    struct kir *k = b->m->k;
    i64 l, r, end, pad, size, tx = b->s.tx, stride = b->c.stride[b->xa];
    if (!kir_is_const(k, left, &l) || !kir_is_const(k, right, &r) || !kir_is_const(k, b->x1, &end)) return false;
    if (!kir_is_const(k, emit_size(b->m, b->c.pad[b->xa]), &pad) || !kir_is_const(k, emit_size(b->m, b->c.in[b->xa]), &size)) return false;
    i64 n_left = ceil_div(l, tx), n_right = r < end ? ceil_div(end - r, tx) : 0, n = n_left + n_right;
    if (n == 0) return true;
    i64 first = n_left ? 0 : r, last = n_right ? r + (n_right - 1) * tx : (n_left - 1) * tx;
    const struct edge known = {.lo = pad - first * stride, .hi = size + pad - last * stride};
    if (n == 1 || last - first == (n - 1) * tx || n == 2) {
        kval x = n == 1 ? kir_int(k, first) : kir_loop(k, KL_SERIAL, kir_int(k, first), kir_int(k, last + 1), n == 2 ? last - first : tx);
        place_tile(w, *e, x, &known);
    } else {
        kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, n), 1), at = kir_mul_i(k, i, tx);
        kval is_left = kir_lt(k, i, kir_int(k, n_left));
        place_tile(w, *e, kir_select(k, is_left, at, kir_add_i(k, at, r - n_left * tx)), &known);
    }
    if (n > 1) kir_end(k);
    return true;
}

/* A row of tiles: those that reach over the input's left end, those inside, and the others. */
static void place_parts(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct in_place *w = p->own;
    struct band *b = w->b;
    struct kir *k = b->m->k;
    if (b->xa < 0) {
        cpu_nest(&w->blocks, e, cpu_tile);
        return;
    }
    i64 tx = b->s.tx, step = tx * b->c.stride[b->xa];
    kval zero = kir_int(k, 0), pad = emit_size(b->m, b->c.pad[b->xa]);
    kval room = kir_add(k, emit_size(b->m, b->c.in[b->xa]), pad);
    kval left = kir_div_i(k, kir_add_i(k, pad, step - 1), step); /* tiles */
    kval slack = kir_max(k, kir_add_i(k, room, step - footprint(&b->c, b->xa, tx)), zero);
    kval inner = kir_mul_i(k, kir_div_i(k, slack, step), tx); /* pixels of tiles that end inside */
    left = kir_min(k, kir_mul_i(k, left, tx), b->x1);
    inner = kir_max(k, kir_min(k, inner, b->x1), left);
    bool ends = w->is_compact && place_ends(w, e, left, inner);
    if (!ends) place_range(w, e, zero, left, false);
    place_range(w, e, left, inner, true);
    if (!ends) place_range(w, e, inner, b->x1, false);
}

/* Groups of a DOT: rows of tiles that lie inside have code without tests of rows. */
static void place_row(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct in_place *w = p->own;
    struct band *b = w->b;
    struct kir *k = b->m->k;
    const struct edge y = w->y;
    if (!in_groups(b) || b->ya < 0) {
        place_parts(p, e);
        return;
    }
    kval end = kir_add_i(k, y.first, footprint(&b->c, b->ya, b->s.ty));
    kir_if(k, kir_bin(k, KI_AND, kir_lt(k, kir_int(k, -1), y.first), kir_lt(k, end, kir_add_i(k, y.n, 1))));
    w->y.n = 0;
    place_parts(p, e);
    kir_else(k);
    w->y = y;
    if (b->xa < 0) cpu_nest(&w->blocks, e, cpu_tile);
    else place_range(w, e, kir_int(k, 0), b->x1, false);
    kir_end(k);
}

void dw_walk_in_place(struct band *b, kval from, kval to)
{
    static const struct cpu_addressing address = {.target = target_in_place, .multiply = multiply_in_place};
    enum { COMPACT_FROM = 64 }; /* bytes of vectors */
    struct in_place w = {.b = b, .is_compact = b->lanes * dtype_size(b->type) >= COMPACT_FROM};
    struct cpu_contraction rows = {.m = b->m, .address = &address, .own = &w, .t = &b->t, .width = b->width, .per = b->per, .bias = b->c.b};
    w.blocks = rows;
    struct cpu_level *l = cpu_level_add(&w.blocks, CPU_BLOCK, from, to, 1);
    if (!b->overlaps) l->rest = b->n_channels % b->width, l->columns = kir_int(b->m->k, b->n_channels); /* the last has vectors for what exists only */
    if (b->ya >= 0) cpu_level_add(&rows, CPU_Y, b->y0, b->y1, b->s.ty)->enter = enter_row;
    cpu_nest(&rows, NULL, place_row);
}
