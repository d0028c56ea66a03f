// SPDX-License-Identifier: Apache-2.0
//
// cpu_addr_phases: transposed convolution phase by phase (gen/trans.h), each an ordinary convolution
// of stride 1 with few taps. A grid iteration takes a range of positions q on every spatial axis
// (one q on axes in front of the last two), whose band (cpu_band.c) holds the input that all phases need,
// and runs the register tile over it phase by phase.
//
// Outputs whose innermost axis is x: those of neighbouring positions of one phase lie apart, so tiles of all phases of x follow each other and leave their
// sums in a small array [channel][x]; the epilogue and its stores then run along whole rows of it, whatever the stride.
//
// Few output channels leave most lanes idle: a step may take a vector of input channels instead (tile_terms.c).
//
// Weights are packed [group][block of output channels][first tap per axis][t per axis][input
// channel][nr*lanes], by groups of a DOT [group][nr*lanes][channel], by vectors of channels [vector][output channel][channel], zeros where a phase has fewer taps; those are never read.
#include "gen/cpu.h"

enum { KU = 2 };

static bool outputs_fit(const struct trans *c)
{
    enum layout first = graph_value(c->g, c->g->output.v[0])->layout;
    for (u32 i = 0; i < c->g->output.n; i++) {
        value_id v = c->g->output.v[i];
        const struct value *o = graph_value(c->g, v);
        if (o->layout != first || !shape_equal(&o->shape, &graph_value(c->g, c->y)->shape) ||
            !gen_depends(c->g, v, c->y) || !gen_pointwise_tail(c->g, v, c->y))
            return false;
    }
    return first == LAYOUT_ROWS || first == LAYOUT_CLAST;
}

/* Likewise with outputs that tiles can store. */
bool phases_of(struct trans *c, const struct task *t)
{
    const struct graph *g = &t->g;
    if (!g->output.n || !trans_of(c, t) || c->phases > MAX_PHASES) return false;
    /* Vectors may not run along an axis of one element. */
    bool thin = gen_static(g, c->ax[c->rank - 1].out, 2) == 1, single = c->oc * c->groups == 1;
    c->clast = (graph_value(g, g->output.v[0])->layout == LAYOUT_CLAST || thin) && !single;
    return !(thin && single) && outputs_fit(c);
}

struct work {
    struct band b;                   /* first: the contraction's own. Its convolution is of stride 1 over positions */
    struct trans c;
    kval q0[MAX_RANK], q1[MAX_RANK]; /* positions of this iteration */
    bool by_rows;                    /* outputs are stored along x, from b.rows */
    i64 pitch;                       /* of its channels */
    i64 per_tap;                     /* packed weights of a tap */
};

static i64 x_phases(const struct work *w) { return w->c.ax[w->c.rank - 1].s; }

static bool by_terms(const struct band *b) { return b->t.leaf == &tile_terms; }

static kval pack_weights(struct work *w)
{
    const struct band *b = &w->b;
    const struct trans *c = &w->c;
    struct symtab *t = c->g->sym;
    struct pack *p = arena_new(b->m->arena, struct pack);
    pack_dim_i(p, t, c->groups, 0, c->ic);
    pack_dim_i(p, t, b->n_blocks, 1, b->width);
    for (u32 a = 2; a < c->rank; a++)
        pack_dim_i(p, t, c->ax[a].step, a, 1);
    for (u32 a = 2; a < c->rank; a++)
        pack_dim_i(p, t, c->ax[a].n_max, a, c->ax[a].step);
    i64 group = by_terms(b) ? b->lanes : b->dot_k;
    pack_dim_i(p, t, ceil_div(b->terms, group), 0, group);
    pack_dim_i(p, t, b->width, 1, 1);
    if (group > 1) pack_dim_i(p, t, group, 0, 1);
    w->per_tap = round_up(b->terms, group) * b->width;
    return emit_pack(b->m, c->w, p);
}

bool phases_by_terms(const struct trans *c, const struct caps *caps)
{
    return !c->clast && c->groups == 1 && c->oc <= TILE_COLUMNS && c->ic >= (i64)gen_lanes(caps, c->type) && phases_read_clast(c);
}

bool phases_read_clast(const struct trans *c)
{
    value_id v = c->x;
    for (u32 i = 0; i < 16 && graph_value(c->g, v)->producer; i++)
        v = graph_node(c->g, graph_value(c->g, v)->producer)->in.v[0];
    return graph_value(c->g, v)->layout == LAYOUT_CLAST;
}

/* What a copy of the tiles' code is for: a phase of every axis. */
static void phase_of(const struct trans *c, i64 copy, const struct trans_phase *ph[MAX_RANK])
{
    for (u32 a = c->rank; a-- > 2; copy /= c->ax[a].s) ph[a] = &c->ax[a].phase[copy % c->ax[a].s];
}

/* The channels of one tap. */
static void add_channels(const struct band *b, const struct tile *t, struct tile_in in, kval w_at)
{
    struct kir *k = b->m->k;
    i64 terms = b->terms / b->dot_k, whole = b->c.ic / b->lanes, rest = b->c.ic % b->lanes;
    if (!by_terms(b)) {
        tile_steps(t, in, kir_mul_i(k, b->c_step, b->dot_k), b->wbuf, w_at, terms, terms > 4 ? KU : 0);
        return;
    }
    tile_steps(t, in, kir_int(k, b->lanes), b->wbuf, w_at, whole, whole > CONV_VECTORS);
    in.at = kir_add_i(k, in.at, whole * b->lanes), in.limit = kir_int(k, rest);
    if (rest) tile_step(t, &in, b->wbuf, kir_add_i(k, w_at, whole * b->lanes * b->width));
}

/* All taps of a phase. */
static void multiply(struct cpu_contraction *p, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct work *x = p->own;
    struct band *b = &x->b;
    struct kir *k = b->m->k;
    const struct trans *c = &x->c;
    const struct trans_phase *ph[MAX_RANK];
    kval at = kir_int(k, 0), w_at = kir_add(k, kir_mul_i(k, b->group, b->n_blocks), e->at[CPU_BLOCK]);
    i64 first = 0, scale = x->per_tap, taps[MAX_RANK];
    phase_of(c, e->copy, ph);
    for (u32 a = 2; a < c->rank; a++) {
        if (!ph[a]->n) return;
        first = first * c->ax[a].step + ph[a]->first;
        w_at = kir_mul_i(k, w_at, c->ax[a].step);
        kval rel = kir_add_i(k, kir_sub(k, e->at[CPU_TAP + a], x->q0[a]), ph[a]->off - c->ax[a].lo);
        at = kir_add(k, at, kir_mul(k, rel, b->step[a]));
    }
    for (u32 a = c->rank; a-- > 2;) {
        taps[a] = scale;
        scale *= c->ax[a].n_max;
    }
    struct cpu_walk w = {.k = k, .a = at, .b = kir_mul_i(k, kir_add_i(k, w_at, first), scale)};
    for (u32 a = 2; a < c->rank; a++)
        if (ph[a]->n > 1) cpu_walk_over(&w, KL_SERIAL, kir_int(k, 0), kir_int(k, ph[a]->n), -c->ax[a].d, b->step[a], taps[a]);
    struct tile_in in = {.buf = b->work, .at = w.a, .x_step = b->step[c->rank - 1], .y_step = kir_int(k, 0)};
    add_channels(b, t, in, w.b);
    cpu_walk_close(&w);
}

static struct tile_out target(struct cpu_contraction *p, const struct cpu_piece *e)
{
    const struct work *x = p->own;
    const struct band *b = &x->b;
    struct kir *k = b->m->k;
    const struct trans *c = &x->c;
    const struct trans_phase *ph[MAX_RANK];
    u32 xa = c->rank - 1;
    phase_of(c, e->copy, ph);
    struct tile_out o = {.y_axis = -1,
                         .x_axis = (i32)xa,
                         .c_axis = 1,
                         .x_step = c->ax[xa].s,
                         .c = kir_add(k, kir_mul_i(k, b->group, c->oc), kir_mul_i(k, e->at[CPU_BLOCK], b->width)),
                         .c_end = c->oc % b->width ? kir_mul_i(k, kir_add_i(k, b->group, 1), c->oc) : 0,
                         .x_end = emit_size(b->m, c->ax[xa].out),
                         .anchor = c->y};
    for (u32 a = 0; a < MAX_RANK; a++) o.idx[a] = kir_int(k, 0);
    o.idx[0] = b->pos[0];
    for (u32 a = 2; a < c->rank; a++) o.idx[a] = kir_add_i(k, kir_mul_i(k, e->at[CPU_TAP + a], c->ax[a].s), ph[a]->lead);
    /* The next iteration's outputs are its own. */
    kval stop = kir_add_i(k, kir_mul_i(k, x->q1[xa], c->ax[xa].s), ph[xa]->lead);
    o.x_end = kir_min(k, o.x_end, stop);
    return o;
}

/* Positions of a phase whose outputs exist, within the iteration. */
static void place_positions(struct cpu_contraction *p, const struct cpu_piece *e, struct cpu_level *l)
{
    const struct work *w = p->own;
    struct emit *m = w->b.m;
    struct kir *k = m->k;
    struct symtab *t = m->g->sym;
    const struct trans_phase *ph[MAX_RANK];
    u32 a = (u32)l->axis - CPU_TAP;
    const struct trans_axis *x = &w->c.ax[a];
    phase_of(&w->c, w->by_rows ? e->copy * x_phases(w) : e->copy, ph);
    sym end = sym_cdiv(t, sym_sub(t, x->out, sym_const(t, ph[a]->lead)), sym_const(t, x->s));
    l->from = kir_max(k, w->q0[a], kir_int(k, ceil_div(-ph[a]->lead, x->s)));
    l->to = kir_min(k, w->q1[a], emit_size(m, end));
}

/* The iteration's positions, which the band counts from the first one. */
static void find_positions(struct work *w)
{
    const struct band *b = &w->b;
    struct kir *k = b->m->k;
    for (u32 a = 2; a < w->c.rank; a++) {
        bool is_x = (i32)a == b->xa, is_y = (i32)a == b->ya;
        kval lo = emit_size(b->m, w->c.ax[a].q_lo), from = is_x ? b->x0 : is_y ? b->y0 : b->pos[a];
        w->q0[a] = kir_add(k, lo, from);
        w->q1[a] = kir_add(k, lo, is_x ? b->x1 : is_y ? b->y1 : kir_add_i(k, from, 1));
    }
}

/* The sums of a phase of x to the array of rows. */
static void take(struct cpu_contraction *p, const struct tile *t, const struct cpu_piece *e)
{
    const struct work *w = p->own;
    const struct band *b = &w->b;
    struct kir *k = b->m->k;
    i64 step = x_phases(w), phase = e->copy % step;
    if (!by_terms(b)) {
        tile_transpose(t, b->rows, phase, step, w->pitch, i64_min(b->width, w->c.oc));
        return;
    }
    for (i64 x = 0; x < t->tx; x++)
        for (i64 j = 0; j < t->nr; j++)
            kir_store(k, b->rows, kir_int(k, j * w->pitch + x * step + phase), kir_un(k, KI_HADD, kir_load(k, t->acc, tile_acc(t, x, j))));
}

/* The outputs of channel c of a tile, x from..to-1, through the epilogue. at: in the array of rows, of the one of index 0. */
static void store_row(const struct cpu_contraction *p, kval idx[MAX_RANK], kval at, kval from, kval to)
{
    const struct work *w = p->own;
    const struct band *b = &w->b;
    struct emit *m = b->m;
    struct kir *k = m->k;
    const struct result r = {.v = w->c.y, .inner = 1};
    u32 xa = w->c.rank - 1, lanes = b->lanes;
    kval bias = p->bias && p->bias_last ? kir_cast(k, b->type, emit_value(m, p->bias, &idx[1])) : 0;
    struct vectors v = vectors_over(k, from, to, lanes);
    while (vectors_next(&v)) {
        kval sum = kir_load_n(k, b->rows, kir_ramp(k, kir_add(k, at, v.at), 1, lanes), v.limit);
        if (bias) sum = kir_add(k, sum, kir_splat(k, bias, lanes));
        idx[xa] = kir_ramp(k, v.at, 1, lanes);
        emit_limit(m, v.limit);
        result_store(m, &r, idx, sum, v.limit);
        emit_limit(m, 0);
    }
}

/* Behind all phases of x of a tile of positions, whose outputs are neighbours. */
static void store_rows(struct cpu_contraction *p, const struct cpu_piece *e)
{
    const struct work *w = p->own;
    const struct band *b = &w->b;
    struct kir *k = b->m->k;
    const struct trans *c = &w->c;
    const struct trans_phase *ph[MAX_RANK];
    u32 xa = c->rank - 1;
    const struct trans_axis *x = &c->ax[xa];
    kval idx[MAX_RANK], q = e->at[CPU_TAP + xa], end = kir_min(k, kir_add_i(k, q, p->t->tx), w->q1[xa]);
    kval origin = kir_add_i(k, kir_mul_i(k, q, x->s), -x->begin), stop = kir_add_i(k, kir_mul_i(k, end, x->s), -x->begin);
    kval first = kir_mul_i(k, e->at[CPU_BLOCK], b->width), n = kir_int(k, b->width);
    phase_of(c, e->copy * x->s, ph);
    if (c->oc % b->width) n = kir_min(k, n, kir_sub(k, kir_int(k, c->oc), first));
    for (u32 a = 0; a < MAX_RANK; a++) idx[a] = kir_int(k, 0);
    idx[0] = b->pos[0];
    for (u32 a = 2; a < xa; a++) idx[a] = kir_add_i(k, kir_mul_i(k, e->at[CPU_TAP + a], c->ax[a].s), ph[a]->lead);
    kval ch = kir_loop(k, KL_SERIAL, kir_int(k, 0), n, 1), at = kir_sub(k, kir_mul_i(k, ch, w->pitch), origin);
    idx[1] = kir_add(k, kir_add(k, kir_mul_i(k, b->group, c->oc), first), ch);
    store_row(p, idx, at, kir_max(k, origin, kir_int(k, 0)), kir_min(k, stop, emit_size(b->m, x->out)));
    kir_end(k);
}

/* Levels of phases and positions. */
static void add_levels(struct cpu_contraction *p)
{
    const struct work *w = p->own;
    const struct trans *c = &w->c;
    u32 xa = c->rank - 1;
    i64 tx = p->t->tx;
    cpu_level_add(p, CPU_PART, 0, 0, 1)->copies = w->by_rows ? c->phases / x_phases(w) : c->phases;
    for (u32 a = 2; a < xa; a++) cpu_level_add(p, CPU_TAP + a, 0, 0, 1)->place = place_positions;
    if (w->by_rows) {
        cpu_level_add(p, CPU_TAP + xa, w->q0[xa], w->q1[xa], tx)->leave = store_rows;
        cpu_level_add(p, CPU_PART, 0, 0, 1)->copies = x_phases(w);
    } else {
        cpu_level_add(p, CPU_TAP + xa, 0, 0, tx)->place = place_positions;
    }
}

static u32 open(struct cpu_contraction *p)
{
    struct work *w = p->own;
    struct band *b = &w->b;
    struct kir *k = b->m->k;
    const struct trans *c = &w->c;
    i64 ob = b->s.ob ? i64_min(b->s.ob, b->n_blocks) : b->n_blocks, parts = ceil_div(b->n_blocks, ob);
    kval part = band_open(b, parts * c->groups);
    b->group = kir_div_i(k, part, parts);
    find_positions(w);
    band_fill(b);
    kval from = kir_mul_i(k, kir_mod_i(k, part, parts), ob);
    cpu_level_add(p, CPU_BLOCK, from, kir_min(k, kir_add_i(k, from, ob), kir_int(k, b->n_blocks)), 1);
    add_levels(p);
    return 3;
}

/* Groups of neighbouring channels, of a band of pixels; the last group of a convolution in groups would hold weights of the next one. */
struct tile_product phases_product(const struct trans *c, const struct caps *caps)
{
    const struct tile_operands o = {graph_value(c->g, c->x)->dtype, graph_value(c->g, c->w)->dtype, c->type, c->ic, 0};
    struct tile_product p = tile_product_of(caps, &o);
    return c->ic > 1 && phases_read_clast(c) && (c->groups == 1 || c->ic % p.terms == 0) ? p : tile_multiply_add;
}

/* The convolution whose window is all that any phase reads. */
static void band_conv(const struct work *w, struct conv *c, const struct task *t)
{
    struct trans same;
    trans_as_conv(&same, c, t);
    c->phases = 0, c->by_rows = !w->c.clast;
    c->xa = (i32)c->rank - 1, c->ya = c->rank > 3 ? (i32)c->rank - 2 : -1;
    for (u32 a = 2; a < c->rank; a++) c->k[a] = w->c.ax[a].hi - w->c.ax[a].lo + 1, c->dil[a] = 1;
}

/* Vectors of input channels instead of output channels: all of these are one block, of single columns. */
static void multiply_by_terms(struct band *b)
{
    b->t.leaf = &tile_terms, b->t.nr = b->t.pitch = b->c.oc;
    b->per = 1, b->width = b->c.oc, b->n_blocks = 1;
}

void phases_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct phases_sched *v)
{
    static const struct cpu_addressing phases = {.open = open, .target = target, .multiply = multiply},
                                       by_rows = {.open = open, .target = target, .multiply = multiply, .take = take};
    struct work *w = arena_new(m->arena, struct work);
    struct band *b = &w->b;
    struct conv c;
    phases_of(&w->c, t);
    band_conv(w, &c, t);
    enum conv_stage stage = phases_read_clast(&w->c) ? STAGE_PIXELS : STAGE_PLANES;
    band_init(b, m, &c, caps, &(struct conv_sched){.ty = 1, .tx = v->tx, .nr = i64_max(1, v->nr), .th = v->th, .tw = v->tw, .ob = v->ob, .stage = stage});
    if (v->nr) band_multiply_by(b, phases_product(&w->c, caps), caps);
    else multiply_by_terms(b);
    w->by_rows = c.by_rows, w->pitch = v->tx * x_phases(w);
    b->rows_size = w->pitch * b->width;
    b->over_x = w->by_rows ? 0 : v->tx - 1; /* tiles of a phase may begin behind the first position */
    b->wbuf = pack_weights(w);
    emit_args(m);
    band_layout(b);
    struct cpu_contraction p = {.m = m, .address = w->by_rows ? &by_rows : &phases, .own = w, .t = &b->t, .width = b->width, .per = b->per,
                                .bias = w->c.b, .bias_last = by_terms(b)};
    cpu_emit(&p, false, t, caps);
}
