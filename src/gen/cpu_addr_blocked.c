// SPDX-License-Identifier: Apache-2.0
//
// cpu_addr_blocked: direct convolution of an input whose channels lie in blocks, (n, c/8, h, w, 8) or by
// 16. Pixels are read in place: a register tile of tx pixels along x by nr vectors of output
// channels walks over the taps, the blocks of input channels, and the channels of a block, each
// element spread from memory to all lanes. What a tile reads of a block are a few whole cache lines
// in a row, whatever the number of channels: no copy to scratch memory, and no pixels that fall on
// the same sets of a cache, as with channels last. Georganas et al. 2018, "Anatomy of
// High-Performance Deep Learning Convolutions on SIMD Architectures", sections II.B to II.E; Zhang
// et al. 2018, "High Performance Zero-Memory Overhead Direct Convolutions".
//
// Padding is never read. Rows of taps outside the input are left out by the loops' bounds. Along x
// most tiles lie inside; the first and the last have code of their own without the pixels that a tap
// has outside, and where those are not known before sizes are bound, elements are replaced by zeros
// one by one. Channels of padding are not read either, whatever they hold.
//
// Dims: n, spatial axes 2.., output channels in blocks of nr vectors, input channels in blocks.
#include "gen/cpu.h"

i64 conv_in_block(const struct conv *c) { return layout_block(graph_value(c->g, c->x)->layout); }

/* The input lies in memory in blocks, of which every group has whole ones. */
bool blocked_of(struct conv *c, const struct task *t)
{
    if (!conv_of_any(c, t) || c->fill) return false;
    const struct value *x = graph_value(c->g, c->x);
    i64 block = conv_in_block(c);
    bool stored = !x->producer && !x->is_const && !x->sdata;
    return stored && block > 1 && (c->groups == 1 || c->ic % block == 0);
}

/* Groups are whole: channels of padding are never read. */
struct tile_product blocked_product(const struct conv *c, const struct caps *caps)
{
    struct tile_product p = conv_product(c, caps);
    return c->ic % p.terms == 0 && conv_in_block(c) % p.terms == 0 ? p : tile_multiply_add;
}

struct walk {             /* one task */
    struct band b;        /* first: the contraction's own */
    const struct tile *t; /* being computed */
    i64 block;            /* channels of a block of the input */
    i64 taps;             /* in all */
    kval lo[MAX_RANK], hi[MAX_RANK]; /* taps of an axis that lie inside: of the tile */
};

/* Packed weights: [group][block of outputs][taps, x last][block of inputs][input][nr*lanes], by groups of a DOT [group][nr*lanes][input]. */
static kval pack_weights(struct walk *x)
{
    struct band *b = &x->b;
    struct symtab *t = b->m->g->sym;
    struct pack *p = arena_new(b->m->arena, struct pack);
    const struct conv *c = &b->c;
    if (c->groups > 1) pack_dim_i(p, t, c->groups, 0, c->oc);
    pack_dim_i(p, t, b->n_blocks, 0, b->width);
    for (u32 pass = 0; pass < 2; pass++)
        for (u32 a = 2; a < c->rank; a++)
            if (((i32)a == b->xa) == (pass == 1)) pack_dim_i(p, t, c->k[a], a, 1);
    pack_dim_i(p, t, ceil_div(c->ic, x->block), 1, x->block);
    pack_dim_i(p, t, x->block / b->group_size, 1, b->group_size);
    pack_dim_i(p, t, b->width, 0, 1);
    if (b->group_size > 1) pack_dim_i(p, t, b->group_size, 1, 1);
    b->block_weights = round_up(c->ic, x->block) * b->width * x->taps;
    return emit_pack(b->m, c->w, p);
}

/* What the pixels of a tile are, before the taps along x. */
enum where {
    WHERE_INSIDE, /* all of them, at every tap */
    WHERE_KNOWN,  /* the tile stands at a known place */
    WHERE_ASKED,  /* each is tested */
};
struct pixels {
    enum where where;
    i64 known;        /* WHERE_KNOWN: the tile's first output along x */
    kval first;       /* its input along x at the first tap, which may lie outside */
    kval at;          /* element of the input there */
};

/* Elements of the packed weights of one tap. */
static i64 tap_size(const struct walk *x) { return round_up(x->b.c.ic, x->block) * x->b.width; }

/* Input channels of one tap, block by block, the element of the first at in.at. */
static void channel_steps(struct walk *x, struct tile_in in, kval w_at)
{
    struct band *b = &x->b;
    struct kir *k = b->m->k;
    i64 whole = b->c.ic / x->block, rest = b->c.ic % x->block / b->dot_k, n = x->block / b->dot_k, size = x->block * b->width;
    kval at = in.at, step = kir_int(k, b->dot_k);
    if (whole) {
        kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), 1);
        in.at = kir_add(k, at, kir_mul(k, i, x->b.c_step));
        tile_steps(x->t, in, step, conv_weights(b), kir_add(k, w_at, kir_mul_i(k, i, size)), n, i64_min(b->s.ku, n));
        kir_end(k);
    }
    if (!rest) return;
    in.at = kir_add(k, at, kir_mul_i(k, x->b.c_step, whole));
    tile_steps(x->t, in, step, conv_weights(b), kir_add_i(k, w_at, whole * size), rest, i64_min(b->s.ku, rest));
}

/* A tap along x of a tile whose place is known: without the pixels that lie outside. */
static void known_tap(struct walk *x, const struct pixels *p, struct tile_in in, i64 tap, kval w_at)
{
    struct band *b = &x->b;
    struct kir *k = b->m->k;
    const struct conv *c = &b->c;
    u32 a = (u32)b->xa, some = 0;
    kval px[64];
    i64 end = gen_static(c->g, c->in[a], 0), out = gen_static(c->g, b->x_ext, 0);
    i64 from = p->known * c->stride[a] - gen_static(c->g, c->pad[a], 0) + tap * c->dil[a];
    for (i64 dx = 0; dx < b->s.tx; dx++) {
        i64 at = from + dx * c->stride[a];
        bool is_in = b->is_flat || (at >= 0 && at < end);
        px[dx] = is_in && p->known + dx < out ? kir_mul_i(k, in.x_step, dx) : 0;
        some += px[dx] != 0;
    }
    in.px = px;
    in.at = kir_add(k, p->at, kir_mul_i(k, b->step[a], tap * c->dil[a]));
    if (some) channel_steps(x, in, w_at);
}

/* Every pixel moved to one that exists, and whether it was there. Flat ones have no taps. */
static void ask_pixels(struct walk *x, const struct pixels *p, kval tap, kval *px, kval *inside)
{
    struct band *b = &x->b;
    struct kir *k = b->m->k;
    u32 a = (u32)b->xa;
    kval end = emit_size(b->m, b->is_flat ? b->x_ext : b->c.in[a]);
    for (i64 dx = 0; dx < b->s.tx; dx++) {
        kval at = kir_add_i(k, kir_add(k, p->first, kir_mul_i(k, tap, b->c.dil[a])), dx * b->c.stride[a]);
        kval low = kir_max(k, at, kir_int(k, 0)), last = kir_add_i(k, end, -1);
        inside[dx] = gen_is_inside(k, at, end);
        px[dx] = kir_mul(k, kir_sub(k, kir_min(k, low, last), p->first), b->step[a]);
    }
}

/* The taps along x. */
static void row_of_taps(struct walk *x, const struct pixels *p, kval w_at)
{
    struct band *b = &x->b;
    struct kir *k = b->m->k;
    i64 taps = b->xa >= 0 ? b->c.k[b->xa] : 1;
    struct tile_in in = {.buf = b->m->buf[b->c.x], .at = p->at};
    in.y_step = kir_int(k, 0);
    in.x_step = b->xa >= 0 ? kir_mul_i(k, b->step[b->xa], b->c.stride[b->xa]) : kir_int(k, 0);
    if (p->where == WHERE_KNOWN) {
        for (i64 tap = 0; tap < taps; tap++)
            known_tap(x, p, in, tap, kir_add_i(k, w_at, tap * tap_size(x)));
        return;
    }
    kval px[64], inside[64];
    kval tap = taps > 1 ? kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, taps), 1) : kir_int(k, 0);
    if (p->where == WHERE_ASKED) {
        ask_pixels(x, p, tap, px, inside);
        in.px = px, in.inside = inside;
    } else if (taps > 1) {
        in.at = kir_add(k, p->at, kir_mul(k, kir_mul_i(k, tap, b->c.dil[b->xa]), b->step[b->xa]));
    }
    channel_steps(x, in, kir_add(k, w_at, kir_mul_i(k, tap, tap_size(x))));
    if (taps > 1) kir_end(k);
}

/* All taps, each with all channels. */
static void all_taps(struct walk *x, struct pixels p, kval block)
{
    struct band *b = &x->b;
    struct kir *k = b->m->k;
    const struct conv *c = &b->c;
    i64 size = tap_size(x) * (b->xa >= 0 ? c->k[b->xa] : 1), after[MAX_RANK];
    kval w_at = conv_weights_at(b, block);
    struct cpu_walk w = {.k = k, .a = p.at, .b = w_at};
    for (u32 a = c->rank; a-- > 2;)
        if ((i32)a != b->xa) after[a] = size, size *= c->k[a];
    for (u32 a = 2; a < c->rank; a++)
        if ((i32)a != b->xa && x->hi[a]) cpu_walk_over(&w, KL_SERIAL, x->lo[a], x->hi[a], c->dil[a], b->step[a], after[a]);
    p.at = w.a;
    row_of_taps(x, &p, w.b);
    cpu_walk_close(&w);
}

/* The taps of axis a that lie inside for the output at `at`; hi 0: there is one, and it does. Returns
 * the input's index at the first tap. */
static kval axis_taps(struct walk *x, u32 a, kval at)
{
    struct band *b = &x->b;
    struct kir *k = b->m->k;
    const struct conv *c = &b->c;
    kval zero = kir_int(k, 0), n = kir_int(k, c->k[a]);
    kval first = kir_sub(k, kir_mul_i(k, at, c->stride[a]), emit_size(b->m, c->pad[a]));
    x->lo[a] = zero, x->hi[a] = n;
    if (conv_is_inside(c, a)) {
        if (c->k[a] == 1) x->hi[a] = 0;
        return first;
    }
    i64 d = c->dil[a];
    kval before = kir_max(k, kir_sub(k, zero, first), zero),
         behind = kir_max(k, kir_sub(k, emit_size(b->m, c->in[a]), first), zero);
    x->lo[a] = kir_min(k, kir_div_i(k, kir_add_i(k, before, d - 1), d), n);
    x->hi[a] = kir_min(k, kir_div_i(k, kir_add_i(k, behind, d - 1), d), n);
    return first;
}

/* Does the tile at the known output `at` lie inside at every tap, with all its pixels? */
static bool lies_inside(const struct band *b, i64 at)
{
    const struct conv *c = &b->c;
    i64 first = at * c->stride[b->xa] - gen_static(c->g, c->pad[b->xa], 0),
        last = first + (b->s.tx - 1) * c->stride[b->xa] + (c->k[b->xa] - 1) * c->dil[b->xa];
    if (b->is_flat) return at + b->s.tx <= gen_static(c->g, b->x_ext, 0);
    return first >= 0 && last < gen_static(c->g, c->in[b->xa], 0);
}

/* Which tiles along x lie inside, where that is known. */
struct ends {
    i64 n;             /* tiles, 0: not known, or others than the first and last lie outside, too */
    bool first, last;  /* these do */
};

static struct ends ends_of(const struct band *b)
{
    const struct conv *c = &b->c;
    i64 out = gen_static(c->g, b->x_ext, 0), n = ceil_div(out, b->s.tx);
    struct ends e = {0};
    bool known = out > 0 && gen_static(c->g, c->in[b->xa], -1) >= 0 && gen_static(c->g, c->pad[b->xa], -1) >= 0;
    if (!known) return e;
    for (i64 i = 1; i < n - 1; i++)
        if (!lies_inside(b, i * b->s.tx)) return e;
    return (struct ends){n, !lies_inside(b, 0), !lies_inside(b, (n - 1) * b->s.tx)};
}

/* One of the places, chosen by tests that are nested: returns how many were opened. */
static u32 known_end(struct walk *x, struct pixels p, kval x_at, kval block, i64 tile)
{
    struct kir *k = x->b.m->k;
    p.where = WHERE_KNOWN, p.known = tile * x->b.s.tx;
    kir_if(k, kir_bin(k, KI_EQ, x_at, kir_int(k, p.known)));
    all_taps(x, p, block);
    kir_else(k);
    return 1;
}

static void by_ends(struct walk *x, struct pixels p, kval x_at, kval block, struct ends e)
{
    u32 open = 0;
    bool more = e.n > (e.first || e.n == 1) + (e.last && e.n > 1);
    if (e.n == 1) {
        if (e.first) p.where = WHERE_KNOWN, p.known = 0;
        all_taps(x, p, block);
        return;
    }
    if (e.first) open += known_end(x, p, x_at, block, 0);
    if (e.last && more) open += known_end(x, p, x_at, block, e.n - 1);
    if (!more) p.where = WHERE_KNOWN, p.known = (e.n - 1) * x->b.s.tx;
    all_taps(x, p, block);
    while (open--) kir_end(x->b.m->k);
}

static void multiply(struct cpu_contraction *p, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct walk *x = p->own;
    struct band *b = &x->b;
    struct kir *k = b->m->k;
    kval y = e->at[CPU_Y], x_at = e->at[CPU_X], block = e->at[CPU_BLOCK];
    const struct conv *c = &b->c;
    struct pixels q = {.where = WHERE_INSIDE};
    x->t = t;
    q.at = kir_mul(k, kir_mul_i(k, b->group, c->ic / x->block), x->b.c_step);
    for (u32 a = 0; a < c->rank; a++) {
        if (a == 1) continue;
        kval at = (i32)a == b->xa ? x_at : (i32)a == b->ya ? y : b->pos[a];
        kval first = axis_taps(x, a, at);
        if ((i32)a == b->xa) q.first = first;
        q.at = kir_add(k, q.at, kir_mul(k, first, b->step[a]));
    }
    struct ends ends = b->xa >= 0 ? ends_of(b) : (struct ends){.n = 1};
    if (ends.n) {
        by_ends(x, q, x_at, block, ends);
        return;
    }
    i64 reach = (b->s.tx - 1) * c->stride[b->xa] + (c->k[b->xa] - 1) * c->dil[b->xa];
    kval end = emit_size(b->m, b->is_flat ? b->x_ext : c->in[b->xa]);
    kir_if(k, kir_bin(k, KI_AND, kir_bin(k, KI_LE, kir_int(k, 0), q.first),
                      kir_lt(k, kir_add_i(k, q.first, reach), end)));
    all_taps(x, q, block);
    kir_else(k);
    q.where = WHERE_ASKED;
    all_taps(x, q, block);
    kir_end(k);
}

static const struct cpu_addressing blocked = {.open = conv_open, .target = conv_target, .multiply = multiply};

void blocked_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct conv_sched *s)
{
    struct walk *x = arena_new(m->arena, struct walk);
    struct conv c;
    blocked_of(&c, t);
    band_init(&x->b, m, &c, caps, s);
    band_multiply_by(&x->b, blocked_product(&c, caps), caps);
    x->b.address = &blocked;
    x->block = conv_in_block(&c), x->taps = 1;
    for (u32 a = 2; a < c.rank; a++) x->taps *= c.k[a];
    x->b.wbuf = pack_weights(x);
    conv_may_widen(&x->b, caps);
    emit_args(m);
    conv_in_place(&x->b);
    conv_emit(&x->b, t, caps);
}
