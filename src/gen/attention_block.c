// SPDX-License-Identifier: Apache-2.0
//
// attention_block: what every grid of attention has of a block of rows: where the rows are, the arrays of their scores, the keys that some of them may attend to, and
// how a row of scores becomes one of p.
#include "gen/attention.h"

#include <math.h>

sym attention_rows(const struct attention *x)
{
    struct symtab *st = x->scores.g->sym;
    return sym_mul(st, space_count(&x->scores.outer, st, 0, x->scores.outer.n), x->scores.m);
}

sym attention_pitch(const struct attention *x, const struct attention_sched *s, u32 lanes)
{
    enum { LINE = 16 }; /* elements */
    struct symtab *st = x->scores.g->sym;
    i64 c, step = attention_width(s, lanes);
    sym width = sym_const(st, step), n = sym_mul(st, sym_cdiv(st, x->scores.n, width), width);
    if (s->split) n = sym_const(st, round_up(s->split, step));
    if (s->nb) n = sym_const(st, s->nb * step);
    if (!sym_is_const(st, n, &c)) return sym_add(st, n, sym_const(st, LINE));
    return sym_const(st, (ceil_div(c, LINE) | 1) * LINE); /* rows of a tile in different sets of the first cache */
}

/* A block. */

const struct graph *attention_graph_of(struct emit *m, value_id y)
{
    struct graph *own = arena_new(m->arena, struct graph);
    *own = *m->g;
    own->output.v = arena_array(m->arena, value_id, m->g->output.n);
    own->output.n = 0;
    for (u32 i = 0; i < m->g->output.n; i++)
        if (gen_depends(m->g, m->g->output.v[i], y)) own->output.v[own->output.n++] = m->g->output.v[i];
    return own;
}

void attention_place(struct gemm_kernel *p, const kval *pos, kval m0, kval m1)
{
    struct symtab *st = p->m->g->sym;
    for (u32 i = 0; i < MAX_RANK; i++) p->pos[i] = pos[i];
    p->m0 = m0, p->m1 = m1, p->part = p->c.at = kir_int(p->m->k, 0);
    p->n = emit_size(p->m, p->x.n), p->k = p->c.len = emit_size(p->m, p->x.k);
    p->n_blocks = emit_size(p->m, sym_cdiv(st, p->x.n, sym_const(st, p->width)));
}

void attention_open_scores(struct attention_kernel *a, sym rows)
{
    struct emit *m = a->m;
    struct symtab *st = m->g->sym;
    sym pitch = attention_pitch(&a->x, &a->s, a->first.lanes);
    a->pitch = a->first.to_pitch = emit_size(m, pitch);
    a->scores = a->first.to = kir_alloc(m->k, KS_WORK, DT_F32, 1, emit_size(m, sym_mul(st, rows, pitch)));
    gemm_open_arrays(&a->first, rows);
}

/* Rows. */

static void store_p(struct rows *r, const void *user, i64 u, kval limit)
{
    const struct attention_kernel *a = user;
    struct kir *k = r->m->k;
    kval idx[MAX_RANK];
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = a->p[i];
    if (r->s.inner < r->s.sp.n) idx[graph_value(r->m->g, a->x.p)->shape.rank - 1] = r->at[r->s.inner];
    kval v = kir_splat(k, kir_cast(k, DT_F32, emit_value(r->m, a->x.p, idx)), r->lanes);
    kir_store_n(k, a->scores, r->pos, v, limit);
}

void attention_do_row(struct attention_kernel *a, kval row, kval at)
{
    struct emit *m = a->m;
    struct rows *r = &a->rows;
    const struct kept raw = {r, a->scores};
    attention_find_row(a, row);
    r->base = kir_add(m->k, kir_mul(m->k, kir_sub(m->k, row, a->first.m0), a->pitch), at);
    emit_bind(m, a->x.scores.y, rows_kept, &raw);
    rows_reduce_all(r);
    if (attention_has_values(&a->x) && !m->bind[a->x.p].fn) rows_visit(r, store_p, a);
    attention_store_statistics(a, row);
    rows_forget(r);
    emit_bind(m, a->x.scores.y, NULL, NULL);
}

void attention_open_space(struct attention_kernel *a, const struct caps *c)
{
    struct rows *r = &a->rows;
    const struct graph *g = a->m->g;
    const struct shape *s = &graph_value(g, a->x.score)->shape;
    const u32 last = s->rank - 1;
    i64 keys = gen_static(g, s->dim[last], -1);
    *r = (struct rows){.m = a->m, .x = a->x.rows, .lanes = keys == 1 ? 1 : gen_lanes(c, DT_F32), .ordered = c->deterministic};
    r->s = (struct row_space){.sp = {.rank = s->rank}};
    for (u32 i = 0; i < s->rank; i++)
        if (i == last || gen_static(g, s->dim[i], 0) != 1) r->s.sp.g[r->s.sp.n++] = (struct axis_run){s->dim[i], i};
    r->s.inner = r->s.sp.n - 1;
    r->s.reduced[r->s.inner] = true;
    r->unroll = keys < 0 || keys >= 4 * (i64)r->lanes ? 4 : 1;
}

void attention_open_rows(struct attention_kernel *a, const struct caps *c)
{
    struct rows *r = &a->rows;
    attention_open_space(a, c);
    r->first = &r->x.red[0];
    if (r->ordered) rows_find_parts(r);
    for (u32 i = 0; i < r->x.n; i++) r->kept[i] = row_is_worth_keeping(&r->x, i) ? a->scores : 0;
}

/* Keys. */

void attention_find_keys(struct attention_kernel *a)
{
    struct attention_span keys = {kir_int(a->m->k, 0), a->first.n};
    a->from = keys.from, a->to = keys.to;
    if (a->x.has_mask) attention_find_unmasked(a);
    if (!a->x.has_band) return;
    attention_band_keys(a->m, &a->x, &(struct attention_span){a->first.m0, a->first.m1}, &keys);
    a->from = keys.from, a->to = keys.to;
}

void attention_check_rows(struct attention_kernel *a, attention_find_fn *find, value_id v)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    kval idx[MAX_RANK], zero = kir_int(k, 0), masked = kir_const_f(k, DT_F32, 1, -INFINITY);
    if (!attention_has_part(a)) return;
    kval all = kir_alloc(k, KS_REG, DT_I64, 1, kir_int(k, 1));
    kir_store(k, all, zero, zero);
    kval row = kir_loop(k, KL_SERIAL, a->first.m0, a->first.m1, 1);
    find(a, row, idx);
    emit_bind(m, a->x.score, gen_given, &masked);
    kval is_zero = kir_bin(k, KI_EQ, kir_cast(k, DT_F32, emit_value(m, v, idx)), kir_const_f(k, DT_F32, 1, 0));
    attention_forget(m, &a->x);
    kir_store(k, all, zero, kir_select(k, is_zero, kir_load(k, all, zero), kir_int(k, 1)));
    kir_end(k);
    kval needs_all = kir_lt(k, zero, kir_load(k, all, zero));
    a->from = kir_select(k, needs_all, zero, a->from);
    a->to = kir_select(k, needs_all, a->first.n, a->to);
}
