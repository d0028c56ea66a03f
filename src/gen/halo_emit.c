// SPDX-License-Identifier: Apache-2.0
//
// halo_emit: contractions over spatial tiles by workgroups. A workgroup computes a tile of outputs; rows of the contraction are the tile's pixels,
// columns its output channels, terms taps and input channels. A block of input channels, with all taps, is a K block: the input tile with its halo
// is copied to shared memory once (halo_copy.c) and each tap reads it from another place. Outputs are stored from registers, or through
// shared memory, where any thread can take any of them (halo_store.c).
//
// The addressing opens the loops over a K block's terms: taps, outermost axis first, then channels. Addresses of both operands move along.
//
// Dims: n, spatial axes 2.., of which two (y, x) are tiled; ic, oc.
#include "gen/halo.h"
#include "gen/leaf.h"

struct halo *halo_of(const struct contraction *c) { return (struct halo *)c->address->user; }

/* Opening. */

/* Of a transposed convolution: the phases' first taps. */
static void pack_phases(const struct halo *h, struct pack *p)
{
    for (u32 i = 2; h->q->up && i < h->q->c.rank; i++) pack_dim_i(p, h->q->c.g->sym, h->q->trans.ax[i].step, i, 1);
}

static kval pack_weights(struct halo *h)
{
    const struct halo_task *q = h->q;
    const struct halo_plan *s = h->p;
    struct pack *p = arena_new(h->m->arena, struct pack);
    u32 in = q->up ? 0 : 1, out = q->up ? 1 : 0; /* axes */
    bool all = s->phases > 1;
    pack_dim_i(p, h->q->c.g->sym, s->groups, 0, q->up ? s->ic : s->oc);
    if (!all) pack_phases(h, p);
    pack_dim_i(p, h->q->c.g->sym, s->n_wide, out, s->width);
    pack_dim_i(p, h->q->c.g->sym, s->n_in, in, s->terms);
    for (u32 i = 0; i < s->n_order; i++) {
        u32 a = s->order[i];
        pack_dim_i(p, h->q->c.g->sym, q->c.k[a], a, q->up ? q->trans.ax[a].step : 1);
    }
    pack_dim_i(p, h->q->c.g->sym, s->terms, in, 1);
    if (all) pack_phases(h, p);
    pack_dim_i(p, h->q->c.g->sym, s->width, out, 1);
    return emit_pack(h->m, q->c.w, p);
}

static i64 split_k_of(const struct halo *h) { return i64_max(1, h->p->s.split_k); }

static void open_grid(struct halo *h)
{
    struct emit *m = h->m;
    struct kir *k = m->k;
    struct symtab *t = m->g->sym;
    const struct conv *c = &h->q->c;
    struct space outer = conv_outer(c);
    sym one = sym_const(t, 1),
        n = sym_mul(t, space_count(&outer, t, 0, outer.n), sym_const(t, h->p->groups * split_k_of(h)));
    sym ny = c->ya < 0 ? one : sym_cdiv(t, c->out[c->ya], sym_const(t, h->p->ty));
    sym nx = c->xa < 0 ? one : sym_cdiv(t, c->out[c->xa], sym_const(t, h->p->tx));
    kval o = kir_grid(k, emit_size(m, n)), y = kir_grid(k, emit_size(m, ny));
    kval x = kir_grid(k, emit_size(m, sym_mul(t, nx, sym_const(t, h->p->n_out))));
    h->share = kir_mod_i(k, o, split_k_of(h));
    o = kir_div_i(k, o, split_k_of(h));
    h->group = kir_mod_i(k, o, h->p->groups);
    space_at(m, &outer, kir_div_i(k, o, h->p->groups), h->pos);
    h->block = halo_up_open(h, kir_mod_i(k, x, h->p->n_out));
    h->x0 = kir_mul_i(k, kir_div_i(k, x, h->p->n_out), h->p->tx);
    h->y0 = kir_mul_i(k, y, h->p->ty);
}

static void open_arrays(struct halo *h)
{
    struct kir *k = h->m->k;
    bool own = h->p->s.split_k > 1; /* sums are longer than inputs */
    i64 n = i64_max(h->p->n_input * h->p->buffers, own ? 0 : h->p->n_result);
    enum dtype w = h->q->c.w ? graph_value(h->q->c.g, h->q->c.w)->dtype : h->p->type;
    if (n) h->input = kir_alloc(k, KS_SHARED, h->p->cell, 1, kir_int(k, n));
    h->tile = h->input;
    if (own && h->p->n_result)
        h->tile = kir_alloc(k, KS_SHARED, h->p->type, 1, kir_int(k, h->p->n_result));
    n = h->p->n_weights * h->p->buffers;
    if (h->p->s.weights) h->weights = kir_alloc(k, KS_SHARED, w, 1, kir_int(k, n));
    if (!halo_plan_by_registers(h->p)) return;
    n = h->p->input_copies;
    if (n) h->next_input = kir_alloc(k, KS_REG, h->p->cell, (u32)h->p->vec, kir_int(k, n));
    n = h->p->weight_copies;
    if (n) h->next_weights = kir_alloc(k, KS_REG, w, (u32)h->p->w_vec, kir_int(k, n));
}

static void place_thread(struct halo *h)
{
    struct kir *k = h->m->k;
    const struct halo_work *s = &h->p->s;
    kval n = h->thread, rest = kir_div_i(k, n, s->tc);
    h->at[AT_C] = kir_mul_i(k, kir_mod_i(k, n, s->tc), s->rc);
    h->at[AT_X] = kir_mul_i(k, kir_mod_i(k, rest, s->px), s->rx);
    h->at[AT_Y] = kir_mul_i(k, kir_div_i(k, rest, s->px), s->ry);
}

static void open(struct halo *h, u32 subgroup)
{
    struct emit *m = h->m;
    struct workgroup *g = &h->c->g;
    wg_init(g, m, h->p->s.threads, subgroup);
    if (h->q->c.w) h->packed = pack_weights(h);
    emit_args(m);
    h->sums = (struct result){.v = h->q->c.y, .inner = 1, .parts = split_k_of(h)};
    if (h->sums.parts > 1) result_open(m, &h->sums, h->p->type);
    open_grid(h);
    h->sums.part = h->share;
    h->thread = g->t = kir_thread(m->k, 0); /* copies and outputs count threads, whatever their subgroups are */
    if (subgroup) g->sg = g->n > subgroup ? kir_subgroup(m->k, 0) : kir_int(m->k, 0); /* parts are fragments */
    else place_thread(h);
    open_arrays(h);
}

/* A sum of all shares. */
static kval whole_sum(struct emit *m, const void *user, const kval *idx)
{
    const struct halo *h = user;
    kval v = result_load(m, &h->sums, idx);
    if (!h->q->c.b) return v;
    return kir_add(m->k, v, kir_cast(m->k, h->p->type, emit_value(m, h->q->c.b, &idx[1])));
}

/* The addressing. */

void halo_pixel(const struct halo *h, kval row, kval *y, kval *x)
{
    struct kir *k = h->m->k;
    const struct halo_work *s = &h->p->s;
    kval n = kir_div_i(k, row, s->near), part = kir_mod_i(k, n, s->py * s->px);
    kval own = kir_add(k, kir_mul_i(k, kir_div_i(k, n, s->py * s->px), s->near), kir_mod_i(k, row, s->near));
    *y = kir_add(k, kir_mul_i(k, kir_div_i(k, part, s->px), s->ry), kir_div_i(k, own, s->rx));
    *x = kir_add(k, kir_mul_i(k, kir_mod_i(k, part, s->px), s->rx), kir_mod_i(k, own, s->rx));
}

/* An element of the input tile, moved by so many outputs along a tiled axis. */
static kval moved(const struct halo *h, kval at, i32 axis, kval outputs)
{
    return axis < 0 ? at : kir_add(h->m->k, at, kir_mul_i(h->m->k, outputs, h->p->step[axis]));
}

/* Where the input channels of a thread's conv group begin, among those of the tile's groups. */
static kval first_term(const struct halo *h, kval col)
{
    struct kir *k = h->m->k;
    if (h->p->s.groups <= 1) return kir_int(k, 0);
    return kir_mul_i(k, kir_div_i(k, col, h->q->c.oc), h->p->terms);
}

static u32 open_taps(const struct halo *h, struct contract_term *t)
{
    struct kir *k = h->m->k;
    u32 n_loops = 0;
    for (u32 i = 0; i < h->p->n_order; i++) {
        u32 a = h->p->order[i];
        kval n = halo_up_taps(h, a);
        t->tap[a] = kir_int(k, 0);
        t->a = kir_add(k, t->a, kir_mul_i(k, halo_up_base(h, a), h->p->place[a]));
        if (h->q->c.k[a] == 1 && !n) continue;
        enum kir_loop kind = h->p->s.unroll_taps && !n && (i32)a == h->q->c.xa ? KL_UNROLL : KL_SERIAL;
        t->tap[a] = kir_loop(k, kind, kir_int(k, 0), n ? n : kir_int(k, h->q->c.k[a]), 1);
        t->a = kir_add(k, t->a, kir_mul_i(k, t->tap[a], h->p->tap[a]));
        t->b = kir_add(k, t->b, kir_mul_i(k, t->tap[a], h->p->w_tap[a]));
        n_loops++;
    }
    return n_loops;
}

static u32 loops(const struct contraction *c, kval k_block, i64 unroll, struct contract_term *t)
{
    const struct halo *h = halo_of(c);
    struct kir *k = h->m->k;
    kval first = t->col ? first_term(h, t->col) : kir_int(k, 0), channel = halo_first_channel(h, k_block);
    (void)unroll; /* the schedule's own */
    t->a = kir_add(k, halo_tile_at(h, k_block), first), t->b = halo_weights_at(h, k_block);
    if (t->col) t->b = kir_add(k, t->b, t->col);
    if (t->row) {
        kval y, x;
        halo_pixel(h, t->row, &y, &x);
        t->a = moved(h, moved(h, t->a, h->q->c.ya, y), h->q->c.xa, x);
    }
    u32 n = open_taps(h, t);
    t->at = kir_loop(k, h->p->s.unroll_channels ? KL_UNROLL : KL_SERIAL, kir_int(k, 0), kir_int(k, h->p->terms), h->p->s.deep);
    t->channel = kir_add(k, kir_add(k, channel, first), t->at);
    return n + 1;
}

/* Elements of the arrays. Where the term knows the thread's first row and column, the others are a constant number of elements away. */

static kval input_at(const struct operand *s, const struct contract_term *t, kval row)
{
    const struct halo *h = halo_of(s->p);
    struct kir *k = h->m->k;
    kval y, x, y0, x0;
    halo_pixel(h, row, &y, &x);
    if (t->row) {
        halo_pixel(h, t->row, &y0, &x0);
        y = kir_sub(k, y, y0), x = kir_sub(k, x, x0);
    }
    return moved(h, moved(h, kir_add(k, t->a, t->at), h->q->c.xa, x), h->q->c.ya, y);
}

static kval weight_at(const struct operand *s, const struct contract_term *t, kval col)
{
    const struct halo *h = halo_of(s->p);
    struct kir *k = h->m->k;
    if (t->col) col = kir_sub(k, col, t->col);
    return kir_add(k, kir_add(k, t->b, kir_mul_i(k, t->at, h->p->tile_oc)), col);
}

kval halo_input_at(const struct halo *h, u32 axis, kval o, kval tap)
{
    struct kir *k = h->m->k;
    kval at = kir_mul_i(k, o, h->q->c.stride[axis]);
    if (axis < 2) return at;
    i64 dil = h->q->up ? -h->q->c.dil[axis] : h->q->c.dil[axis];
    return kir_add(k, kir_add(k, at, halo_up_base(h, axis)), kir_mul_i(k, tap, dil));
}

/* Channels of a pixel straight from the input. */
static kval direct_input(const struct contraction *c, const struct contract_term *t, kval row, u32 lanes)
{
    const struct halo *h = halo_of(c);
    struct kir *k = h->m->k;
    kval at[MAX_RANK], y, x;
    halo_pixel(h, row, &y, &x);
    for (u32 a = 0; a < h->q->c.rank; a++) {
        kval o = h->pos[a];
        if ((i32)a == h->q->c.ya) o = kir_add(k, h->y0, y);
        if ((i32)a == h->q->c.xa) o = kir_add(k, h->x0, x);
        at[a] = halo_input_at(h, a, o, t->tap[a]);
    }
    struct halo_source s;
    halo_source(h, &s, at, t->channel, lanes);
    return halo_read(h, &s);
}

/* What the leaf sees. */
static void contraction_of(struct halo *h)
{
    const struct halo_plan *p = h->p;
    struct contraction *c = h->c;
    i32 xa = h->q->c.xa;
    h->form = (struct addressing){.user = h, .direct_run = p->s.deep, .direct_a = direct_input, .loops = loops};
    c->m = h->m, c->address = &h->form, c->type = p->type;
    c->s = (struct blocking){.bm = p->ty * p->tx, .bn = p->tile_oc, .bk = p->terms, .threads = p->s.threads, .split_k = split_k_of(h)};
    c->st = (struct staging){.type = p->cell, .a_direct = !p->s.input};
    c->a = (struct operand){.p = c, .at = input_at, .array = h->input, .term_step = 1, .step = xa < 0 ? 0 : p->step[xa]};
    c->b = (struct operand){.p = c, .at = weight_at, .array = p->s.weights ? h->weights : h->packed, .term_step = p->tile_oc, .step = 1};
}

void halo_emit(struct halo *h, struct contraction *c, u32 subgroup, const struct task *t, const struct caps *caps)
{
    h->c = c;
    open(h, subgroup);
    contraction_of(h);
    c->leaf->open(c);
    halo_k_blocks(h);
    c->leaf->store(c);
    for (u32 i = 0; i < 3; i++) kir_end(h->m->k);
    if (h->sums.temp) gen_elementwise_rest(h->m, t, caps, h->q->c.y, whole_sum, h);
}
