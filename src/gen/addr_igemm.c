// SPDX-License-Identifier: Apache-2.0
//
// addr_igemm: a convolution as a GEMM of matrices that are never built: Chetlur, Woolley, Vandermersch, Cohen, Tran,
// Catanzaro and Shelhamer, cuDNN: Efficient Primitives for Deep Learning, 2014, section 3.1. Numbers of rows and terms are taken
// apart where an element is read: the pixel of a row once for all K blocks, taps and channels of a term by constants, and not at
// all where a K block is one tap, or all of them.
//
// Outside of the input, and behind the last term, both operands are zeros, so that nothing is branched on.
//
// A transposed convolution is as many of stride 1 as it has phases. They are all multiplied with as many taps; those that a phase
// lacks are zeros, too.
//
// Dims: rows m = n, out[2..] merged; columns oc; packed weights [group][first taps][block of columns][term][column], zeros behind
// the last column and, with IGEMM_LOOPS, behind the last channel.
#include "gen/addr_igemm.h"

enum {
    MAX_RUN = 4,                 /* terms of the input that a thread reads at a time */
    FIND = 40, FIND_VECTOR = 10, /* operations that find an element, one in a vector */
};

/* Taking apart. */

static bool is_stored(const struct value *v) { return !v->producer && !v->is_const && !v->sdata; }

static bool takes_layouts(const struct conv *c)
{
    for (u32 i = 0; i < c->g->output.n; i++)
        if (c->oc * c->groups % layout_block(graph_value(c->g, c->g->output.v[i])->layout)) return false;
    return true;
}

static void product_of(const struct igemm_address *g, struct gemm *x)
{
    const struct conv *c = &g->c;
    struct symtab *st = c->g->sym;
    const struct value *in = graph_value(c->g, c->x), *w = graph_value(c->g, c->w), *out = graph_value(c->g, c->y);
    *x = (struct gemm){.g = c->g, .a = c->x, .b = c->w, .y = c->y, .bias = c->b, .m_axis = -1, .n_axis = 1};
    x->as = &in->shape, x->bs = &w->shape, x->ys = &out->shape;
    x->m = sym_const(st, 1), x->n = sym_const(st, c->oc), x->k = sym_const(st, igemm_terms(g));
    for (u32 a = 0; a < c->rank; a++)
        if (a != 1) x->m = sym_mul(st, x->m, c->out[a]);
    x->type = c->type, x->b_const = true, x->simple = c->simple;
    x->outer = (struct space){.rank = c->rank}; /* an axis that rows or columns are on carries the number */
    if (g->phases > 1) x->outer.g[x->outer.n++] = (struct axis_run){sym_const(st, g->phases), 0};
    if (c->groups > 1) x->outer.g[x->outer.n++] = (struct axis_run){sym_const(st, c->groups), 1};
}

bool igemm_address_of(struct igemm_address *g, struct gemm *x, const struct task *t)
{
    *g = (struct igemm_address){0};
    g->up = !conv_anchor(&g->c, t);
    if (g->up && (t->n_heavy != 1 || !trans_as_conv(&g->trans, &g->c, t))) return false;
    g->phases = g->up ? g->trans.phases : 1;
    if (g->c.fill || !takes_layouts(&g->c)) return false;
    conv_fit(&g->c, t); /* that it is for CPUs, or not, is not asked */
    g->taps = 1;
    for (u32 a = 2; a < g->c.rank; a++) g->taps *= g->c.k[a];
    g->is_stored = is_stored(graph_value(g->c.g, g->c.x));
    g->by_channel = conv_input_layout(&g->c) == LAYOUT_CLAST && g->c.ic * g->c.groups > 1;
    product_of(g, x);
    return true;
}

i64 igemm_terms(const struct igemm_address *g) { return g->taps * g->c.ic; }

i64 igemm_k_block(const struct igemm_address *g, enum igemm_order o, i64 bk) { return o == IGEMM_LOOPS ? bk * g->taps : bk; }

bool igemm_is_dense(const struct igemm_address *g, enum igemm_order o) { return g->by_channel && o == IGEMM_CHANNELS && !g->c.pitched; }

/* Phases of a transposed convolution. */

static const struct igemm_address *merge_in(const struct contraction *p) { return p->address->user; }

/* The phase of the workgroup along an axis. */
static kval phase_of(const struct contraction *p, u32 axis)
{
    const struct igemm_address *g = merge_in(p);
    return trans_phase_of(p->m->k, &g->trans, p->pos[0], axis);
}

static kval fact(const struct contraction *p, u32 axis, enum trans_fact f)
{
    return trans_fact(p->m->k, &merge_in(p)->trans.ax[axis], f, phase_of(p, axis));
}

/* Has the phase any taps? 0: always. */
static kval phase_has_taps(const struct contraction *p)
{
    const struct igemm_address *g = merge_in(p);
    kval ok = 0;
    for (u32 a = 2; g->up && a < g->c.rank; a++) {
        bool lacks = false;
        for (i64 r = 0; r < g->trans.ax[a].s; r++) lacks |= !g->trans.ax[a].phase[r].n;
        if (lacks) ok = kir_and(p->m->k, ok, kir_lt(p->m->k, kir_int(p->m->k, 0), fact(p, a, FACT_TAPS)));
    }
    return ok;
}

/* Terms. */

/* Terms that count channels innermost: a K block within one tap, or of whole taps, is one division for all of it. */
static kval by_channels(const struct igemm_address *g, struct kir *k, i64 bk, kval k_block, struct contract_term *t)
{
    i64 ic = g->c.ic;
    if (ic % bk == 0) {
        t->channel = kir_add(k, kir_mul_i(k, kir_mod_i(k, k_block, ic / bk), bk), t->at);
        return kir_div_i(k, k_block, ic / bk);
    }
    if (bk % ic == 0) {
        t->channel = kir_mod_i(k, t->at, ic);
        return kir_add(k, kir_mul_i(k, k_block, bk / ic), kir_div_i(k, t->at, ic));
    }
    kval n = kir_add(k, kir_mul_i(k, k_block, bk), t->at);
    t->channel = kir_mod_i(k, n, ic);
    return kir_div_i(k, n, ic);
}

static kval by_taps(const struct igemm_address *g, struct kir *k, i64 bk, kval k_block, struct contract_term *t)
{
    i64 taps = g->taps;
    if (bk % taps == 0) {
        t->channel = kir_add(k, kir_mul_i(k, k_block, bk / taps), kir_div_i(k, t->at, taps));
        return kir_mod_i(k, t->at, taps);
    }
    kval n = kir_add(k, kir_mul_i(k, k_block, bk), t->at);
    t->channel = kir_div_i(k, n, taps);
    return kir_mod_i(k, n, taps);
}

static kval term_exists(const struct contraction *p, kval k_block, kval at)
{
    struct kir *k = p->m->k;
    i64 n = igemm_terms(merge_in(p));
    if (n % p->s.bk == 0) return 0;
    return kir_lt(k, kir_add(k, kir_mul_i(k, k_block, p->s.bk), at), kir_int(k, n));
}

static void merge_term_of(const struct contraction *p, kval k_block, kval at, struct contract_term *t)
{
    const struct igemm_address *g = merge_in(p);
    struct kir *k = p->m->k;
    *t = (struct contract_term){.at = at, .ok = term_exists(p, k_block, at)};
    kval tap = g->order == IGEMM_CHANNELS ? by_channels(g, k, p->s.bk, k_block, t) : by_taps(g, k, p->s.bk, k_block, t);
    /* Number of a tap -> its index on every axis, the last one innermost. */
    kval n = tap;
    for (u32 a = g->c.rank; a-- > 2;) {
        t->tap[a] = kir_mod_i(k, n, g->c.k[a]);
        n = kir_div_i(k, n, g->c.k[a]);
    }
}

static u32 merge_loops(const struct contraction *p, kval k_block, i64 written_out, struct contract_term *t)
{
    const struct igemm_address *g = merge_in(p);
    const struct conv *c = &g->c;
    struct kir *k = p->m->k;
    kval zero = kir_int(k, 0), own = zero;
    u32 n = 0;
    if (g->channels > 1) own = kir_loop(k, KL_SERIAL, zero, kir_int(k, g->channels), 1), n++;
    *t = (struct contract_term){.at = own, .channel = kir_add(k, kir_mul_i(k, k_block, g->channels), own)};
    for (u32 a = 2; a < c->rank; a++) {
        bool written = a + 1 == c->rank && c->k[a] <= written_out;
        t->tap[a] = zero;
        if (c->k[a] > 1) t->tap[a] = kir_loop(k, written ? KL_UNROLL : KL_SERIAL, zero, kir_int(k, c->k[a]), 1), n++;
        t->at = kir_add(k, kir_mul_i(k, t->at, c->k[a]), t->tap[a]);
    }
    if (c->ic % g->channels) t->ok = kir_lt(k, t->channel, kir_int(k, c->ic));
    return n;
}

/* Elements. */

/* The pixel of a row: its index on every axis but that of channels. */
static void pixel_of(const struct contraction *p, kval row, kval idx[MAX_RANK])
{
    struct emit *m = p->m;
    const struct conv *c = &merge_in(p)->c;
    for (u32 a = c->rank; a-- > 0;) {
        if (a == 1) continue;
        kval n = emit_size(m, c->out[a]);
        idx[a] = a ? kir_mod(m->k, row, n) : row;
        row = a ? kir_div(m->k, row, n) : row;
    }
}

/* Row i of the block; behind the end, the last. */
static kval row_of(const struct contraction *p, kval i)
{
    struct kir *k = p->m->k;
    kval row = kir_add(k, p->a.first, i);
    if (sym_divides(p->m->g->sym, p->s.bm, p->x.m)) return row;
    return kir_min(k, row, kir_add_i(k, emit_size(p->m, p->x.m), -1));
}

static void merge_row(const struct contraction *p, kval i)
{
    kval idx[MAX_RANK];
    pixel_of(p, row_of(p, i), idx); /* the builder finds it again where it is asked for */
}

/* Index of the input of a term, from an output on, per axis; the condition that it is inside, 0: always. What is in front of the
   input is only asked for elements that exist. */
static kval find_input(const struct contraction *p, const struct contract_term *t, kval idx[MAX_RANK])
{
    const struct igemm_address *g = merge_in(p);
    const struct conv *c = &g->c;
    struct kir *k = p->m->k;
    kval ok = 0, zero = kir_int(k, 0);
    for (u32 a = 2; a < c->rank; a++) {
        kval at = kir_add(k, kir_mul_i(k, idx[a], c->stride[a]), kir_mul_i(k, t->tap[a], g->up ? -c->dil[a] : c->dil[a]));
        if (g->up) at = kir_add(k, at, kir_add_i(k, fact(p, a, FACT_OFFSET), -g->trans.ax[a].lo));
        if (g->up && !trans_same_taps(&g->trans.ax[a])) ok = kir_and(k, ok, kir_lt(k, t->tap[a], fact(p, a, FACT_TAPS)));
        kval n = emit_size(p->m, c->in[a]);
        idx[a] = kir_sub(k, at, emit_size(p->m, c->pad[a]));
        if (!c->free[a]) {
            ok = kir_and(k, ok, kir_bin(k, KI_LE, zero, idx[a]));
            ok = kir_and(k, ok, kir_lt(k, idx[a], n));
        }
        if (!g->is_stored && (!c->free[a] || t->ok)) idx[a] = kir_max(k, kir_min(k, idx[a], kir_add_i(k, n, -1)), zero);
    }
    ok = kir_and(k, ok, t->ok);
    return ok;
}

static kval merge_input(const struct contraction *p, const struct contract_term *t, kval i, u32 lanes)
{
    const struct igemm_address *g = merge_in(p);
    struct kir *k = p->m->k;
    kval idx[MAX_RANK] = {0}, c = t->channel;
    pixel_of(p, row_of(p, i), idx);
    kval ok = find_input(p, t, idx);
    if (!g->is_stored && t->ok) c = kir_min(k, c, kir_int(k, g->c.ic - lanes));
    idx[1] = kir_ramp(k, kir_add(k, kir_mul_i(k, p->pos[1], g->c.ic), c), 1, lanes);
    if (g->is_stored && ok) {
        kval n = kir_select(k, ok, kir_int(k, lanes), kir_int(k, 0));
        return kir_load_n(k, p->m->buf[g->c.x], emit_offset(p->m, g->c.x, idx), n);
    }
    kval v = kir_splat(k, emit_value(p->m, g->c.x, idx), lanes);
    return ok ? kir_select(k, ok, v, kir_const_f(k, kir_dtype(k, v), 1, 0)) : v;
}

/* Are K blocks of whole channels packed as such, with zeros behind the last? The last channel of a conv group must be that of the weights. */
static bool has_zeros(const struct igemm_address *g) { return g->order == IGEMM_LOOPS && !(g->up && g->c.groups > 1); }

static kval merge_weights(const struct contraction *p, const struct contract_term *t, kval k_block, kval i, u32 lanes)
{
    const struct igemm_address *g = merge_in(p);
    struct kir *k = p->m->k;
    i64 n = has_zeros(g) ? round_up(igemm_terms(g), p->s.bk) : igemm_terms(g);
    kval block = p->pos[1], term = kir_add(k, kir_mul_i(k, k_block, p->s.bk), t->at);
    for (u32 a = 2; g->up && a < g->c.rank; a++)
        block = kir_add(k, kir_mul_i(k, block, g->trans.ax[a].step), fact(p, a, FACT_FIRST));
    block = kir_add(k, kir_mul_i(k, block, ceil_div(g->c.oc, p->s.bn)), p->b.number);
    kval at = kir_add(k, kir_mul_i(k, kir_add(k, kir_mul_i(k, block, n), term), p->s.bn), i);
    kval ok = phase_has_taps(p);
    at = kir_ramp(k, at, 1, lanes);
    if (!has_zeros(g)) ok = kir_and(k, ok, term_exists(p, k_block, t->at));
    if (!ok) return kir_load(k, g->packed, at);
    return kir_load_n(k, g->packed, at, kir_select(k, ok, kir_int(k, lanes), kir_int(k, 0)));
}

static kval direct_weights(const struct contraction *p, const struct contract_term *t, kval i, u32 lanes) { return merge_weights(p, t, p->now, i, lanes); }

static kval read(const struct operand *s, kval at, kval i, u32 lanes)
{
    const struct contraction *p = s->p;
    struct contract_term t = {.at = at};
    if (s == &p->b) return merge_weights(p, &t, p->k_block, i, lanes);
    merge_term_of(p, p->k_block, at, &t);
    return merge_input(p, &t, i, lanes);
}

static kval output_index(const struct contraction *p, kval row, kval col, kval idx[MAX_RANK])
{
    const struct igemm_address *g = merge_in(p);
    struct kir *k = p->m->k;
    kval ok = 0;
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = kir_int(k, 0);
    pixel_of(p, row, idx);
    idx[1] = kir_add(k, kir_mul_i(k, p->pos[1], g->c.oc), col);
    for (u32 a = 2; g->up && a < g->c.rank; a++) {
        idx[a] = trans_output(p->m, &g->trans.ax[a], idx[a], phase_of(p, a));
        ok = kir_and(k, ok, kir_bin(k, KI_LE, kir_int(k, 0), idx[a]));
        ok = kir_and(k, ok, kir_lt(k, idx[a], emit_size(p->m, g->trans.ax[a].out)));
    }
    return ok;
}

/* Opening. */

static kval pack_weights(const struct igemm_address *g, const struct contraction *p)
{
    struct pack *w = arena_new(p->m->arena, struct pack);
    u32 in = g->up ? 0 : 1, out = g->up ? 1 : 0; /* axes */
    i64 ic = has_zeros(g) ? round_up(g->c.ic, g->channels) : g->c.ic;
    if (g->c.groups > 1) pack_dim_i(w, g->c.g->sym, g->c.groups, 0, g->up ? g->c.ic : g->c.oc);
    for (u32 a = 2; g->up && a < g->c.rank; a++) pack_dim_i(w, g->c.g->sym, g->trans.ax[a].step, a, 1);
    pack_dim_i(w, g->c.g->sym, ceil_div(g->c.oc, p->s.bn), out, p->s.bn);
    if (g->order != IGEMM_CHANNELS) pack_dim_i(w, g->c.g->sym, ic, in, 1);
    for (u32 a = 2; a < g->c.rank; a++) pack_dim_i(w, g->c.g->sym, g->c.k[a], a, g->up ? g->trans.ax[a].step : 1);
    if (g->order == IGEMM_CHANNELS) pack_dim_i(w, g->c.g->sym, ic, in, 1);
    pack_dim_i(w, g->c.g->sym, p->s.bn, out, 1);
    return emit_pack(p->m, g->c.w, w);
}

i64 igemm_direct_run(const struct igemm_address *g, enum igemm_order o, i64 bk)
{
    i64 n = 1;
    while (igemm_is_dense(g, o) && n < MAX_RUN && g->c.ic % (2 * n) == 0 && bk % (2 * n) == 0) n *= 2;
    return n;
}

void igemm_address_open(struct igemm_address *g, struct contraction *p, enum igemm_order o, i64 bk)
{
    bool side_by_side = igemm_is_dense(g, o);
    g->order = o, g->channels = bk;
    p->s.bk = igemm_k_block(g, o, bk);
    g->form = (struct addressing){.user = g,
                                    .a = {side_by_side, sym_const(p->m->g->sym, side_by_side ? g->c.ic : 1)},
                                    .b = {false, sym_const(p->m->g->sym, p->s.bn)},
                                    .read = read,
                                    .index = output_index,
                                    .direct_run = igemm_direct_run(g, o, bk),
                                    .enter_row = merge_row,
                                    .term = merge_term_of,
                                    .direct_a = merge_input,
                                    .direct_b = direct_weights,
                                    .loops = o == IGEMM_LOOPS ? merge_loops : NULL};
    p->address = &g->form;
    g->packed = pack_weights(g, p);
}

static bool analyze(struct contract_task *c, const struct task *t, struct arena *a)
{
    struct igemm_address *g = arena_new(a, struct igemm_address);
    c->facts = g;
    if (!igemm_address_of(g, &c->x, t)) return false;
    c->find = igemm_is_dense(g, IGEMM_CHANNELS) && g->c.ic % 4 == 0 ? FIND_VECTOR : FIND;
    return true;
}

static void open(const struct contract_task *c, struct contraction *p, const struct task *t)
{
    (void)t;
    igemm_address_open(c->facts, p, IGEMM_CHANNELS, p->s.bk);
}

const struct contract_form contract_igemm = {analyze, open};
