// SPDX-License-Identifier: Apache-2.0
//
// attention_columns: sums of the columns of probabilities, or of any function of scores and what their rows were reduced to (Zhang et al., H2O: heavy-hitter
// oracle, 2023), from scores that are computed once more, by a grid behind that of the rows. An iteration owns a head and all keys, or a part of them, and
// goes through the head's rows, block by block, so that no two iterations add to one sum, and sums have the order of the rows. Its memory grows with its keys
// alone. What rows were reduced to is in memory: a number per row and reduction; or it is an input.
//
// One grid for all, with sums of columns beside those of rows, would need final statistics where rows are computed: whole rows of scores, and
// sums of columns for each block of rows, which grow with queries times keys.
#include "gen/attention.h"

void attention_columns_open(struct attention_kernel *a)
{
    struct emit *m = a->m;
    kval rows = emit_size(m, attention_rows(&a->x));
    for (u32 i = 0; i < a->x.rows.n; i++) a->reduced[i] = kir_alloc(m->k, KS_TEMP, DT_F32, 1, rows);
}

static const struct shape *shape_of(const struct attention_kernel *a) { return &graph_value(a->m->g, a->x.columns.in)->shape; }

/* All axes but those of queries and keys. */
static struct space heads_of(const struct attention_kernel *a)
{
    const struct shape *s = shape_of(a);
    struct space r = {.rank = s->rank};
    for (u32 i = 0; i + 2 < s->rank; i++) r.g[r.n++] = (struct axis_run){s->dim[i], i};
    return r;
}

/* attention_find_fn: a row, with its reductions; what columns sum up has the indices of the scores. */
static void find_row(struct attention_kernel *a, kval row, kval idx[MAX_RANK])
{
    struct kir *k = a->m->k;
    struct rows *r = &a->rows;
    attention_find_row(a, row);
    for (u32 i = 0; i < a->x.rows.n; i++) {
        kval at = kir_add(k, kir_mul(k, a->batch, emit_size(a->m, a->x.scores.m)), row);
        a->known[i] = kir_load(k, a->reduced[i], at);
        emit_bind(a->m, a->x.rows.red[i].out, gen_given, &a->known[i]);
    }
    if (r->s.inner < r->s.sp.n) r->at[r->s.inner] = kir_int(k, 0);
    rows_index(r, idx);
}

static void add_element(struct rows *r, const void *user, i64 u, kval limit)
{
    const struct attention_kernel *a = user;
    struct kir *k = r->m->k;
    kval idx[MAX_RANK];
    rows_index(r, idx);
    kval v = kir_splat(k, kir_cast(k, DT_F32, emit_value(r->m, a->x.columns.in, idx)), r->lanes);
    kval at = kir_ramp(k, kir_add(k, kir_sub(k, r->from, a->first_column), r->number), 1, r->lanes);
    kir_store_n(k, a->columns, at, kir_add(k, kir_load_n(k, a->columns, at, limit), v), limit);
}

/* Keys from..to-1 of the iteration's rows. */
static void do_block(struct attention_kernel *a, kval from, kval to)
{
    struct kir *k = a->m->k;
    struct gemm_kernel *first = &a->first;
    struct rows *r = &a->rows;
    const struct kept raw = {r, a->scores};
    kval idx[MAX_RANK];
    first->to_first = from;
    attention_product(first, kir_div_i(k, from, first->width), kir_div_i(k, kir_add_i(k, to, first->width - 1), first->width));
    r->from = from, r->count = kir_sub(k, to, from);
    kval row = kir_loop(k, KL_SERIAL, first->m0, first->m1, 1);
    find_row(a, row, idx);
    r->base = kir_mul(k, kir_sub(k, row, first->m0), a->pitch);
    emit_bind(a->m, a->x.scores.y, rows_kept, &raw);
    rows_visit(r, add_element, a);
    attention_forget(a->m, &a->x);
    kir_end(k);
}

/* A block of rows. */
static void do_rows(struct attention_kernel *a, const struct attention_span *part)
{
    struct kir *k = a->m->k;
    const i64 width = a->first.width;
    gemm_pack_left(&a->first);
    attention_find_keys(a);
    attention_check_rows(a, find_row, a->x.columns.in);
    kval from = kir_max(k, kir_mul_i(k, kir_div_i(k, a->from, width), width), part->from), to = kir_min(k, a->to, part->to);
    if (a->s.nb) {
        const i64 size = a->s.nb * width;
        kval at = kir_loop(k, KL_SERIAL, from, to, size);
        do_block(a, at, kir_min(k, kir_add_i(k, at, size), to));
    } else {
        kir_if(k, kir_lt(k, from, to));
        do_block(a, from, to);
    }
    kir_end(k);
}

static void clear(struct attention_kernel *a, kval n)
{
    struct kir *k = a->m->k;
    const u32 lanes = a->first.lanes;
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), n, lanes);
    kir_store(k, a->columns, kir_ramp(k, i, 1, lanes), kir_const_f(k, DT_F32, lanes, 0));
    kir_end(k);
}

static void store(struct attention_kernel *a, const kval *pos, const struct attention_span *part)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    const struct reduction *c = &a->x.columns;
    const struct result to = {.v = c->out, .inner = graph_value(m->g, c->out)->shape.rank - 1};
    const u32 lanes = a->first.lanes, last = shape_of(a)->rank - 1;
    kval full[MAX_RANK], idx[MAX_RANK];
    struct vectors v = vectors_over(k, part->from, part->to, lanes);
    for (u32 i = 0; i < MAX_RANK; i++) full[i] = i + 1 < last ? pos[i] : kir_int(k, 0), idx[i] = kir_int(k, 0);
    while (vectors_next(&v)) {
        full[last] = kir_ramp(k, v.at, 1, lanes);
        row_less_index(m, c, full, idx);
        kval sum = kir_load_n(k, a->columns, kir_ramp(k, kir_sub(k, v.at, part->from), 1, lanes), v.limit);
        emit_limit(m, v.limit);
        result_store(m, &to, idx, sum, v.limit);
        emit_limit(m, 0);
    }
}

/* Of the keys, in whole blocks of columns; n: how many an iteration has at most. */
static struct attention_span part_of(struct attention_kernel *a, kval number, sym n)
{
    struct kir *k = a->m->k;
    kval each = emit_size(a->m, n), keys = emit_size(a->m, a->x.scores.n), from = kir_mul(k, number, each);
    return (struct attention_span){from, kir_min(k, kir_add(k, from, each), keys)};
}

void attention_columns_sum(struct attention_kernel *a, const struct caps *c)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    struct gemm_kernel *first = &a->first;
    const struct space heads = heads_of(a);
    const sym queries = shape_of(a)->dim[shape_of(a)->rank - 2], width = sym_const(st, first->width), mr = sym_const(st, a->s.mr);
    const sym n = a->s.split ? sym_const(st, round_up(a->s.split, first->width)) : sym_mul(st, sym_cdiv(st, a->x.scores.n, width), width);
    const sym rows = sym_mul(st, first->d.mb ? sym_const(st, first->d.mb) : sym_cdiv(st, queries, mr), mr);
    kval at[MAX_RANK], pos[MAX_RANK], head, one = kir_int(k, 1), own = emit_size(m, queries);
    m->g = attention_graph_of(m, a->x.columns.out);
    head = kir_grid(k, emit_size(m, space_count(&heads, st, 0, heads.n)));
    kval number = kir_grid(k, emit_size(m, a->s.split ? sym_cdiv(st, a->x.scores.n, n) : sym_const(st, 1)));
    const struct attention_span part = part_of(a, number, n);
    bool is_shared = queries != a->x.scores.m; /* several heads are rows of one product */
    kval all = kir_max(k, emit_size(m, a->x.scores.m), one);
    a->batch = is_shared ? kir_div(k, kir_mul(k, head, own), all) : head;
    kval begin = is_shared ? kir_mod(k, kir_mul(k, head, own), all) : kir_int(k, 0), end = kir_add(k, begin, own), step = kir_max(k, emit_size(m, rows), one);
    space_at(m, &heads, head, at);
    space_at(m, &a->x.scores.outer, a->batch, pos);
    first->is_given = false, first->static_m = gen_static(m->g, queries, -1);
    attention_place(first, pos, begin, end);
    attention_open_scores(a, rows);
    first->is_given = true;
    attention_open_rows(a, c);
    a->columns = kir_alloc(k, KS_WORK, DT_F32, 1, emit_size(m, n));
    a->first_column = part.from;
    clear(a, emit_size(m, n));
    kval block = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_div(k, kir_add(k, own, kir_add_i(k, step, -1)), step), 1);
    first->m0 = kir_add(k, begin, kir_mul(k, block, step)), first->m1 = kir_min(k, kir_add(k, first->m0, step), end);
    do_rows(a, &part);
    kir_end(k);
    store(a, at, &part);
    for (u32 i = 0; i < 2; i++) kir_end(k);
}
