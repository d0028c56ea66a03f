// SPDX-License-Identifier: Apache-2.0
//
// cpu_contract: the engine of contractions on processors. Loops are data: a kernel's levels say what they count, from the outermost on; for every register
// tile sums begin with the bias, or with what an earlier pass over the terms left; the addressing adds the products; then sums are stored through the
// epilogue, or kept for the next pass, or left as summands for a second grid (split-K).
//
// Rows and columns left over at the ends get tiles of their own size where an addressing says so, so that no size is a bad one; else the last tile hangs over
// and stores what exists. Of rows whose number is not known that may be a tile of half the height.
#include "gen/cpu_contract.h"

/* Loops. */

struct cpu_level *cpu_level_add(struct cpu_contraction *p, enum cpu_axis axis, kval from, kval to, i64 step)
{
    assert(p->n_levels < countof(p->level));
    struct cpu_level *l = &p->level[p->n_levels++];
    *l = (struct cpu_level){.axis = axis, .from = from, .to = to, .step = step};
    return l;
}

static void descend(struct cpu_contraction *p, u32 depth, const struct cpu_piece *e, cpu_body *body);

static void enter(struct cpu_contraction *p, u32 depth, const struct cpu_piece *e, cpu_body *body)
{
    const struct cpu_level *l = &p->level[depth];
    if (l->enter) l->enter(p, e);
    descend(p, depth + 1, e, body);
    if (l->leave) l->leave(p, e);
}

/* Position of the last piece, if it is smaller: of the iteration's rows, or of all columns. */
static kval last_piece(const struct cpu_contraction *p, const struct cpu_level *l)
{
    struct kir *k = p->m->k;
    if (l->columns) return kir_div_i(k, l->columns, p->width);
    return kir_add(k, l->from, kir_mul_i(k, kir_div_i(k, kir_sub(k, l->to, l->from), l->step), l->step));
}

/* Rows left over whose number is not known: the lower of two tiles that they fit. */
static void enter_unknown(struct cpu_contraction *p, u32 depth, const struct cpu_piece *last, cpu_body *body)
{
    struct kir *k = p->m->k;
    const struct cpu_level *l = &p->level[depth];
    struct cpu_piece e = *last;
    const bool has_both = l->half && l->half < l->rest - 1;
    e.rows = l->half ? l->half : l->rest, e.is_over = e.rows > 1;
    if (has_both) kir_if(k, kir_lt(k, kir_sub(k, l->to, e.at[l->axis]), kir_int(k, l->half + 1)));
    enter(p, depth, &e, body);
    if (!has_both) return;
    kir_else(k);
    e.rows = l->rest, e.is_over = true;
    enter(p, depth, &e, body);
    kir_end(k);
}

static void descend(struct cpu_contraction *p, u32 depth, const struct cpu_piece *outer, cpu_body *body)
{
    struct kir *k = p->m->k;
    struct cpu_level *l = &p->level[depth];
    struct cpu_piece e = *outer;
    if (depth == p->n_levels) {
        body(p, outer);
        return;
    }
    if (l->copies) {
        for (i64 i = 0; i < l->copies; i++) {
            e.copy = outer->copy * l->copies + i;
            enter(p, depth, &e, body);
        }
        return;
    }
    if (l->place) l->place(p, &e, l);
    kval last = l->rest ? last_piece(p, l) : 0, whole = l->columns && last ? kir_min(k, l->to, last) : last;
    e.at[l->axis] = kir_loop(k, KL_SERIAL, l->from, whole ? whole : l->to, l->step);
    enter(p, depth, &e, body);
    kir_end(k);
    if (!l->rest) return;
    if (!l->always) kir_if(k, kir_lt(k, last, l->to));
    e.at[l->axis] = last;
    if (l->axis == CPU_BLOCK) e.columns = l->rest, e.is_full = !l->is_unknown && l->rest % p->per == 0;
    else e.rows = l->rest;
    if (l->axis != CPU_BLOCK && l->is_unknown) enter_unknown(p, depth, &e, body);
    else enter(p, depth, &e, body);
    if (!l->always) kir_end(k);
}

void cpu_nest(struct cpu_contraction *p, const struct cpu_piece *outer, cpu_body *body)
{
    struct cpu_piece all = {.rows = p->t->tx, .columns = p->width, .is_full = true};
    for (u32 i = 0; i < N_CPU_AXES; i++) all.at[i] = kir_int(p->m->k, 0);
    descend(p, 0, outer ? outer : &all, body);
}

/* Tiles. */

static void begin_with_bias(struct cpu_contraction *p, struct tile *t, const struct tile_out *o)
{
    struct kir *k = p->m->k;
    i64 at;
    value_id bias = p->bias_last ? 0 : p->bias;
    bool always = !bias || !p->has_shares || (kir_is_const(k, p->at, &at) && at == 0);
    if (!always) kir_if(k, kir_lt(k, p->at, kir_int(k, 1)));
    tile_clear(t, bias, o->c, o->c_end);
    if (always) return;
    kir_else(k);
    tile_clear(t, 0, 0, 0);
    kir_end(k);
}

/* A pass goes on from the sums of the one before, so that all terms of a result are added in their order however many passes there are. */
static void begin(struct cpu_contraction *p, struct tile *t, const struct tile_out *o, const struct tile_out *kept)
{
    struct kir *k = p->m->k;
    if (!p->sums) {
        begin_with_bias(p, t, o);
        return;
    }
    kir_if(k, kir_lt(k, p->first, p->at));
    tile_resume(t, kept);
    kir_else(k);
    begin_with_bias(p, t, o);
    kir_end(k);
}

/* Asks for the sums that the next tile goes on from. */
static void prefetch_sums(struct cpu_contraction *p, const struct tile *t, const struct tile_out *kept)
{
    struct tile_out next = *kept;
    if (next.x_axis < 0) return;
    next.idx[next.x_axis] = kir_add_i(p->m->k, next.idx[next.x_axis], p->t->tx);
    tile_prefetch(t, &next);
}

/* The results are stored, or kept for the next pass. */
static void finish(struct cpu_contraction *p, const struct tile *t, const struct tile_out *o, const struct tile_out *kept)
{
    struct kir *k = p->m->k;
    if (!p->sums || p->r.temp) {
        tile_store(t, o);
        return;
    }
    kir_if(k, kir_lt(k, kir_add(k, p->at, p->len), p->end));
    tile_store(t, kept);
    kir_else(k);
    tile_store(t, o);
    kir_end(k);
}

void cpu_tile(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct tile t = *p->t;
    t.tx = e->rows, t.nr = ceil_div(e->columns, p->per);
    struct tile_out o = {0};
    if (p->address->target) o = p->address->target(p, e);
    if (p->address->take) {
        if (p->address->find) p->address->find(p, e);
        begin_with_bias(p, &t, &o);
        if (t.leaf->begin) t.leaf->begin(&t);
        p->address->multiply(p, &t, e, &o);
        if (t.leaf->end) t.leaf->end(&t);
        p->address->take(p, &t, e);
        return;
    }
    struct tile_out kept = o;
    kept.temp = p->sums;
    if (p->address->find) p->address->find(p, e);
    begin(p, &t, &o, &kept);
    if (p->sums && !e->is_over) prefetch_sums(p, &t, &kept);
    if (t.leaf->begin) t.leaf->begin(&t);
    p->address->multiply(p, &t, e, &o);
    if (t.leaf->end) t.leaf->end(&t);
    finish(p, &t, &o, &kept);
}

/* The kernel. */

/* Of an element of the TEMP array, all summands. */
static kval whole_sum(struct emit *m, const void *user, const kval *idx)
{
    const struct cpu_contraction *p = user;
    kval sum = result_load(m, &p->r, idx);
    if (!p->bias_last || !p->bias) return sum;
    kval bias = kir_cast(m->k, p->t->type, emit_value(m, p->bias, &idx[p->r.inner]));
    return kir_add(m->k, sum, kir_splat(m->k, bias, kir_lanes(m->k, sum)));
}

void cpu_emit(struct cpu_contraction *p, bool is_apart, const struct task *t, const struct caps *caps)
{
    if (is_apart) result_open(p->m, &p->r, p->t->type);
    u32 n = p->address->open(p);
    cpu_nest(p, NULL, cpu_tile);
    if (p->address->close) p->address->close(p);
    while (n--) kir_end(p->m->k);
    if (is_apart) gen_elementwise_rest(p->m, t, caps, p->r.v, whole_sum, p);
}

/* Walks. */

kval cpu_walk_over(struct cpu_walk *w, enum kir_loop kind, kval from, kval to, i64 scale, kval step, i64 b_step)
{
    struct kir *k = w->k;
    kval i = kir_loop(k, kind, from, to, 1);
    kval by = kir_mul(k, kir_mul_i(k, i, scale < 0 ? -scale : scale), step);
    w->a = scale < 0 ? kir_sub(k, w->a, by) : kir_add(k, w->a, by);
    w->b = kir_add(k, w->b, kir_mul_i(k, i, b_step));
    w->n_loops++;
    return i;
}

void cpu_walk_close(struct cpu_walk *w)
{
    for (; w->n_loops; w->n_loops--) kir_end(w->k);
}
