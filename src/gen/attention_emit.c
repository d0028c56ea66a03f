// SPDX-License-Identifier: Apache-2.0
//
// attention_emit: attention on processors. A grid iteration owns a batch, a head and some tiles of rows. It multiplies its rows with the keys, tile by tile,
// into scratch memory, which the second cache holds; then reduces every row where it lies, as reduce_row does; then multiplies what the rows have become
// with the values, through the epilogue to the output. Both products are GEMMs (cpu_addr_matrix.c). Scores are never in memory as a whole: what is kept of
// them grows with the keys, or not at all (attention_online.c), but not with the queries. Keys that a band or a mask excludes for all rows of an iteration are
// left out: their exponentials are zeros. (Rows that have no key at all are as the definition has them.)
//
// Without values, an iteration ends with the statistics of its rows. Sums of columns are a grid of their own (attention_columns.c).
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

static struct gemm_sched gemm_sched_of(const struct attention_sched *s, bool is_second)
{
    return (struct gemm_sched){.mr = s->mr, .nr = is_second ? s->nv : s->nr, .mb = s->mb, .split_k = 1, .pack = true, .right = RIGHT_ONCE, .ku = s->ku};
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

/* May keys be left out? */
static bool has_part(const struct attention_kernel *a) { return a->x.has_band || a->x.has_mask; }

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

/* Keys that some row of the iteration may attend to. */
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
    kval idx[MAX_RANK], zero = kir_int(k, 0), masked = kir_const_f(k, DT_F32, 1, -INFINITY), all = kir_alloc(k, KS_REG, DT_I64, 1, kir_int(k, 1));
    if (!has_part(a)) return;
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

static void find_given(struct attention_kernel *a, kval row, kval idx[MAX_RANK])
{
    attention_find_row(a, row);
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = a->p[i];
}

/* The kernel. */

static const struct cpu_addressing score_tiles = {.find = gemm_find, .multiply = gemm_multiply, .take = gemm_leave};
static const struct cpu_addressing value_tiles = {.target = gemm_target, .find = gemm_find, .multiply = gemm_multiply};

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

static void open_grid(struct attention_kernel *a)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const struct space *outer = &a->x.scores.outer;
    sym mr = sym_const(st, a->s.mr), tiles = sym_cdiv(st, a->x.scores.m, mr), mb = a->first.d.mb ? sym_const(st, a->first.d.mb) : tiles;
    sym rows = sym_mul(st, mb, mr);
    bool has_values = attention_has_values(&a->x);
    kval pos[MAX_RANK], gb = kir_grid(k, emit_size(m, space_count(outer, st, 0, outer->n)));
    kval gm = kir_grid(k, emit_size(m, a->first.d.mb ? sym_cdiv(st, tiles, mb) : sym_const(st, 1)));
    a->batch = gb;
    if (a->s.split) a->part = kir_grid(k, a->n_parts);
    a->n_rows = emit_size(m, rows);
    space_at(m, outer, gb, pos);
    kval m0 = kir_mul(k, gm, a->n_rows), m1 = kir_min(k, kir_add(k, m0, a->n_rows), emit_size(m, a->x.scores.m));
    attention_place(&a->first, pos, m0, m1);
    if (has_values) attention_place(&a->second, pos, m0, m1);
    attention_open_scores(a, rows);
    a->second.left = a->scores, a->second.pitch = a->pitch, a->second.is_given = true;
    if (has_values) gemm_open_arrays(&a->second, rows);
    if (attention_is_online(&a->s)) attention_open_sums(a, rows);
    gemm_pack_left(&a->first);
    a->first.is_given = true;
}

/* Whole rows of scores. */
static void all_keys(struct attention_kernel *a)
{
    struct kir *k = a->m->k;
    struct gemm_kernel *first = &a->first, *second = &a->second;
    kval from = kir_div_i(k, a->from, first->width), to = kir_div_i(k, kir_add_i(k, a->to, first->width - 1), first->width);
    if (a->s.keys == KEYS_PLACE) attention_dot_keys(a, a->from, a->to);
    else attention_product(first, has_part(a) ? from : kir_int(k, 0), has_part(a) ? to : first->n_blocks);
    if (has_part(a)) a->rows.from = a->from, a->rows.count = kir_sub(k, a->to, a->from);
    attention_do_row(a, kir_loop(k, KL_SERIAL, first->m0, first->m1, 1), a->from);
    kir_end(k);
    if (!attention_has_values(&a->x)) return;
    if (has_part(a)) second->is_part = true, second->first = second->c.at = a->from, second->c.len = kir_sub(k, a->to, a->from);
    attention_product(second, kir_int(k, 0), second->n_blocks);
}

/* Blocks of keys, of all or of a part of them. */
static void by_blocks(struct attention_kernel *a)
{
    struct kir *k = a->m->k;
    attention_online(a);
    if (a->s.split) {
        attention_split_store(a);
        return;
    }
    kval row = kir_loop(k, KL_SERIAL, a->first.m0, a->first.m1, 1);
    attention_finish_row(a, row, kir_sub(k, row, a->first.m0));
    kir_end(k);
}

static void pack_keys(struct gemm_kernel *p)
{
    if (p->dot_k > 1 || gemm_is_dense_along_last(p->t, p->x.b, p->lanes)) gemm_pack_once(p);
    else gemm_pack_transposed(p);
}

static void init(struct attention_kernel *a, const struct task *t, const struct caps *c)
{
    const struct gemm_sched s[2] = {gemm_sched_of(&a->s, false), gemm_sched_of(&a->s, true)};
    bool in_place = a->s.values == VALUES_PLACE;
    a->first = (struct gemm_kernel){.m = a->m, .t = t, .x = a->x.scores};
    gemm_init(&a->first, c, &s[0], attention_score_product(&a->x, c));
    a->first.s.ahead = a->s.ahead ? AHEAD_SECOND : 0;
    a->first.c.address = &score_tiles;
    if (!attention_has_values(&a->x)) return;
    a->second = (struct gemm_kernel){.m = a->m, .t = t, .x = a->x.values};
    gemm_init(&a->second, c, &s[1], tile_multiply_add);
    a->second.s.ahead = a->first.s.ahead;
    if (attention_is_online(&a->s)) a->second.c.address = in_place ? &attention_sum_rows : &attention_sum_tiles;
    else a->second.c.address = in_place ? &attention_value_rows : &value_tiles;
}

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

/* The grid of rows: their statistics, and the second product. */
static void sum_rows(struct attention_kernel *a, const struct caps *c)
{
    if (a->s.split) attention_split_open(a);
    open_grid(a);
    attention_open_rows(a, c);
    attention_find_keys(a);
    if (!a->x.rows.n) attention_check_rows(a, find_given, a->x.p);
    if (a->s.split) attention_split_keys(a);
    if (attention_is_online(&a->s)) by_blocks(a);
    else all_keys(a);
    for (u32 i = 0; i < (a->s.split ? 3 : 2); i++) kir_end(a->m->k);
    if (a->s.split) attention_split_merge(a);
}

void attention_emit(struct emit *m, const struct task *t, const struct caps *c, const struct attention_sched *s)
{
    struct attention_kernel *a = arena_new(m->arena, struct attention_kernel);
    const struct graph *all = m->g;
    a->m = m, a->s = *s;
    attention_of(&a->x, t);
    attention_form(&a->x, t, c);
    init(a, t, c);
    emit_args(m);
    const bool packs_values = s->values == VALUES_ONCE && attention_has_values(&a->x);
    if (attention_has_values(&a->x)) m->g = attention_graph_of(m, a->x.values.y);
    if (s->keys == KEYS_ONCE) gemm_open_temps(&a->first);
    if (packs_values) gemm_open_temps(&a->second);
    if (s->keys == KEYS_ONCE && !a->x.scores.b_const) pack_keys(&a->first);
    if (packs_values && !a->x.values.b_const) gemm_pack_once(&a->second);
    if (a->x.columns.out) attention_columns_open(a);
    if (attention_has_rows(&a->x)) sum_rows(a, c);
    m->g = all;
    if (a->x.columns.out) attention_columns_sum(a, c);
    m->g = all;
}
