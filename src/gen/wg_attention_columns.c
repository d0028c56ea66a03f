// SPDX-License-Identifier: Apache-2.0
//
// wg_attention_columns: sums of the columns of probabilities, or of any function of scores and what their rows were reduced to (Zhang et al., H2O: heavy-hitter
// oracle, 2023), by workgroups, from scores that are computed once more (as attention_columns.c on processors). A workgroup has a head and a block of bc keys,
// which it copies to shared memory once, and goes through the head's rows in blocks of br: scores by tiles in registers, of which threads sum up their own
// columns. At the end the threads of a column add up their sums. No two workgroups add to one sum, and nothing in memory grows with queries times keys: what rows
// were reduced to is a number per row, in memory or an input.
//
// Rows that a band keeps from all keys of the block are left out, if their masked scores make zeros. Rows beyond the end are the last one again, and are not added.
#include "gen/wg_attention.h"

#include <math.h>

static const struct shape *shape_of(const struct wg_attention *a) { return &graph_value(a->m->g, a->x.columns.in)->shape; }

static sym queries_of(const struct wg_attention *a) { return shape_of(a)->dim[shape_of(a)->rank - 2]; }

/* Several heads are rows of one product. */
static bool is_shared(const struct wg_attention *a) { return queries_of(a) != a->x.scores.m; }

/* All axes but those of queries and keys. */
static struct space heads_of(const struct wg_attention *a)
{
    const struct shape *s = shape_of(a);
    struct space r = {.rank = s->rank};
    for (u32 i = 0; i + 2 < s->rank; i++) r.g[r.n++] = (struct axis_run){s->dim[i], i};
    return r;
}

/* wg_copy.read: rows of a head, whose last block hangs over its end and perhaps that of all heads. */
static kval read_rows(void *user, kval row, kval col)
{
    const struct operand *s = user;
    struct contraction *p = s->p;
    struct kir *k = p->m->k;
    const u32 lanes = s->copy.share.lanes;
    kval term = s->along_k ? col : row, i = s->along_k ? row : col, last = kir_add_i(k, emit_size(p->m, p->x.m), s->along_k ? -1 : -(i64)lanes);
    kval v = p->address->read(s, term, kir_min(k, i, kir_sub(k, last, s->first)), lanes);
    return kir_splat(k, kir_cast(k, p->st.type, v), lanes);
}

void wg_attention_columns_init(struct wg_attention *a)
{
    struct contraction *p = &a->first;
    struct wg_copy *c = &p->a.copy;
    p->s.bk = wg_attention_terms(&a->x, &a->s);
    operand_init(p, &p->b);
    p->b.copy.at = wg_attention_whole_copied_at, p->b.at = wg_attention_whole_at;
    p->s.bk = a->s.sa;
    operand_init(p, &p->a);
    if (!is_shared(a) || sym_divides(a->m->g->sym, a->s.br, queries_of(a))) return;
    c->read = read_rows;
    if (!p->a.along_k) c->share.lanes = wg_lanes(a->m->g, queries_of(a), graph_value(a->m->g, p->a.v)->dtype, c->share.lanes);
}

void wg_attention_columns_open(struct wg_attention *rows)
{
    struct wg_attention *a = rows->columns;
    kval n = emit_size(a->m, attention_rows(&a->x));
    for (u32 i = 0; i < a->x.rows.n; i++) a->reduced[i] = rows->reduced[i] = kir_alloc(a->m->k, KS_TEMP, DT_F32, 1, n);
}

static kval reduced_at(const struct wg_attention *a, kval row)
{
    return kir_add(a->m->k, kir_mul(a->m->k, a->batch, emit_size(a->m, a->x.scores.m)), row);
}

void wg_attention_keep_reduced(struct wg_attention *a, kval row, const kval *at)
{
    for (u32 i = 0; i < a->x.rows.n; i++) kir_store(a->m->k, a->reduced[i], reduced_at(a, row), emit_value(a->m, a->x.rows.red[i].out, at));
}

/* Of a workgroup. */
struct columns {
    struct wg_attention *a;
    kval at[MAX_RANK];   /* index of the head in what columns sum up */
    kval begin, queries; /* first row of the head in the product, number of its rows */
    kval sums;           /* REG: of the thread's columns, vectors */
    kval known[MAX_REDUCE];
};

/* What the head's row was reduced to is bound until attention_forget; its index, key 0. */
static void find_row(struct columns *c, kval query, kval idx[MAX_RANK])
{
    struct wg_attention *a = c->a;
    const u32 last = shape_of(a)->rank - 1;
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = i + 1 < last ? c->at[i] : kir_int(a->m->k, 0);
    idx[last - 1] = query;
    for (u32 i = 0; i < a->x.rows.n; i++) {
        c->known[i] = kir_load(a->m->k, a->reduced[i], reduced_at(a, kir_add(a->m->k, c->begin, query)));
        emit_bind(a->m, a->x.rows.red[i].out, gen_given, &c->known[i]);
    }
}

/* Do masked scores of some row make anything else than zeros? Threads look at every so many rows. */
static kval needs_all_rows(struct columns *c)
{
    struct wg_attention *a = c->a;
    struct emit *m = a->m;
    struct kir *k = m->k;
    kval idx[MAX_RANK], zero = kir_int(k, 0), none = kir_const_i(k, DT_I32, 1, 0), masked = kir_const_f(k, DT_F32, 1, -INFINITY);
    kval found = kir_alloc(k, KS_REG, DT_I32, 1, kir_int(k, 1));
    kir_store(k, found, zero, none);
    find_row(c, kir_loop(k, KL_SERIAL, a->first.g.t, c->queries, a->s.threads), idx);
    emit_bind(m, a->x.score, gen_given, &masked);
    kval is_zero = kir_bin(k, KI_EQ, kir_cast(k, DT_F32, emit_value(m, a->x.columns.in, idx)), kir_const_f(k, DT_F32, 1, 0));
    attention_forget(m, &a->x);
    kir_store(k, found, zero, kir_select(k, is_zero, kir_load(k, found, zero), kir_const_i(k, DT_I32, 1, 1)));
    kir_end(k);
    const struct wg_fold f = {.g = &a->first.g, .op = KI_MAX, .width = a->s.threads, .step = 1, .shared = a->checks};
    return kir_lt(k, none, wg_fold(&f, kir_load(k, found, zero)));
}

/* Of the head those that may attend to some key of the block, by the band. */
static struct attention_span find_rows(struct columns *c)
{
    struct wg_attention *a = c->a;
    struct kir *k = a->m->k;
    const struct op_band *b = &a->x.band;
    struct attention_span rows = {kir_int(k, 0), c->queries};
    if (!a->x.has_band) return rows;
    kval first = a->first.b.first, last = kir_add_i(k, kir_min(k, kir_add_i(k, first, a->s.bc), emit_size(a->m, a->x.scores.n)), -1);
    kval zero = kir_int(k, 0), offset = emit_size(a->m, b->offset), all = needs_all_rows(c);
    if (b->right >= 0) rows.from = kir_max(k, kir_min(k, kir_add_i(k, kir_sub(k, first, offset), -b->right), c->queries), zero);
    if (b->left >= 0) rows.to = kir_max(k, kir_min(k, kir_add_i(k, kir_sub(k, last, offset), b->left + 1), c->queries), zero);
    return (struct attention_span){kir_select(k, all, zero, rows.from), kir_select(k, all, c->queries, rows.to)};
}

/* A block of rows: what its scores make is added to the thread's columns. */
static void add_rows(struct columns *c, kval block)
{
    struct wg_attention *a = c->a;
    struct kir *k = a->m->k;
    const struct fma_leaf *l = &a->scores;
    const bool is_whole = sym_divides(a->m->g->sym, a->s.br, queries_of(a));
    for (i64 i = 0; i < l->row.n; i++) {
        kval idx[MAX_RANK], query = kir_add(k, kir_mul_i(k, block, a->s.br), fma_row(k, l, i)), is_row = kir_lt(k, query, c->queries);
        find_row(c, is_whole ? query : kir_min(k, query, kir_add_i(k, c->queries, -1)), idx);
        for (i64 j = 0; j < fma_vectors(l); j++) {
            kval key = kir_add(k, a->first.b.first, fma_col(k, l, j)), raw = kir_load(k, l->acc, fma_slot(k, l, i, j)), sum = kir_load(k, c->sums, kir_int(k, j));
            kval v = wg_attention_value(a, a->x.columns.in, idx, key, raw, 0);
            if (!is_whole) v = kir_select(k, kir_splat(k, is_row, l->lanes), v, kir_const_f(k, DT_F32, l->lanes, 0));
            kir_store(k, c->sums, kir_int(k, j), kir_add(k, sum, v));
        }
        attention_forget(a->m, &a->x);
    }
}

static struct wg_attention_walk walk_of_rows(struct columns *c, kval block)
{
    struct wg_attention *a = c->a;
    struct contraction *p = &a->first;
    p->a.first = kir_add(a->m->k, c->begin, kir_mul_i(a->m->k, block, a->s.br));
    return (struct wg_attention_walk){p, &p->a, p->a.array, block, wg_attention_terms(&a->x, &a->s) / a->s.sa};
}

static void all_rows(struct columns *c)
{
    struct wg_attention *a = c->a;
    struct kir *k = a->m->k;
    const i64 br = a->s.br;
    const struct attention_span rows = find_rows(c);
    const struct attention_span blocks = {kir_div_i(k, rows.from, br), kir_div_i(k, kir_add_i(k, rows.to, br - 1), br)};
    struct wg_attention_walk w = walk_of_rows(c, blocks.from);
    wg_attention_fetch_first(a, &w, &blocks);
    kval block = kir_loop(k, KL_SERIAL, blocks.from, blocks.to, 1);
    w = walk_of_rows(c, block);
    wg_attention_scores(a, &w);
    if (a->s.sp) {
        w = walk_of_rows(c, kir_min(k, kir_add_i(k, block, 1), kir_add_i(k, blocks.to, -1)));
        wg_attention_fetch(a, &w, kir_int(k, 0));
    }
    add_rows(c, block);
    kir_end(k);
}

/* Arrays, the keys in shared memory, and where the thread stands. */
static void enter(struct columns *c)
{
    struct wg_attention *a = c->a;
    struct contraction *p = &a->first;
    struct kir *k = a->m->k;
    const struct wg_attention_columns_room r = wg_attention_columns_room_of(&a->x, &a->s);
    p->a.array = kir_alloc(k, KS_SHARED, p->st.type, 1, kir_int(k, r.queries));
    p->b.array = kir_alloc(k, KS_SHARED, p->st.type, 1, kir_int(k, r.keys));
    a->held = kir_alloc(k, KS_SHARED, DT_F32, 1, kir_int(k, r.held));
    if (r.checks) a->checks = kir_alloc(k, KS_SHARED, DT_I32, 1, kir_int(k, r.checks));
    p->a.stage = p->b.stage = p->k_block = kir_int(k, 0);
    wg_copy_open(&p->a.copy), wg_copy_open(&p->b.copy);
    p->s.bk = wg_attention_terms(&a->x, &a->s);
    wg_copy_fetch(&p->b.copy);
    wg_copy_put(&p->b.copy, p->b.array);
    p->s.bk = a->s.sa;
    p->leaf->open(p);
    if (a->s.by_units) fma_open(&a->scores, &p->g, DT_F32);
    c->sums = kir_alloc(k, KS_REG, DT_F32, a->scores.lanes, kir_int(k, fma_vectors(&a->scores)));
    for (i64 j = 0; j < fma_vectors(&a->scores); j++) kir_store(k, c->sums, kir_int(k, j), kir_const_f(k, DT_F32, a->scores.lanes, 0));
}

/* The sums of the threads of a column: [thread][column]. */
static void share_sums(struct columns *c)
{
    struct wg_attention *a = c->a;
    struct kir *k = a->m->k;
    const struct wg_attention_sched *s = &a->s;
    kval t = a->first.g.t, subgroup = kir_div_i(k, t, s->w), lane = kir_mod_i(k, t, s->w);
    kval own = kir_add(k, kir_mul_i(k, kir_div_i(k, subgroup, s->blpx), s->wlpy), kir_div_i(k, lane, s->wlpx));
    kir_barrier(k);
    for (i64 j = 0; j < fma_vectors(&a->scores); j++) {
        kval at = kir_add(k, kir_mul_i(k, own, s->bc), fma_col(k, &a->scores, j));
        kir_store(k, a->held, kir_ramp(k, at, 1, a->scores.lanes), kir_load(k, c->sums, kir_int(k, j)));
    }
    kir_barrier(k);
}

static kval sum_of_column(struct columns *c, kval col)
{
    struct wg_attention *a = c->a;
    struct kir *k = a->m->k;
    kval sum = kir_alloc(k, KS_REG, DT_F32, 1, kir_int(k, 1)), zero = kir_int(k, 0);
    kir_store(k, sum, zero, kir_const_f(k, DT_F32, 1, 0));
    kval i = kir_loop(k, KL_SERIAL, zero, kir_int(k, a->s.wlpy * a->s.blpy), 1), v = kir_load(k, a->held, kir_add(k, kir_mul_i(k, i, a->s.bc), col));
    kir_store(k, sum, zero, kir_add(k, kir_load(k, sum, zero), v));
    kir_end(k);
    return kir_load(k, sum, zero);
}

static void store(struct columns *c)
{
    struct wg_attention *a = c->a;
    struct kir *k = a->m->k;
    const struct reduction *r = &a->x.columns;
    const struct result to = {.v = r->out, .inner = graph_value(a->m->g, r->out)->shape.rank - 1};
    const u32 last = shape_of(a)->rank - 1;
    for (i64 i = 0; i < ceil_div(a->s.bc, a->s.threads); i++) {
        kval col = kir_add_i(k, a->first.g.t, i * a->s.threads), key = kir_add(k, a->first.b.first, col), full[MAX_RANK], idx[MAX_RANK];
        kir_if(k, kir_and(k, kir_lt(k, col, kir_int(k, a->s.bc)), kir_lt(k, key, emit_size(a->m, a->x.scores.n))));
        for (u32 d = 0; d < MAX_RANK; d++) full[d] = d + 1 < last ? c->at[d] : kir_int(k, 0);
        full[last] = key;
        row_less_index(a->m, r, full, idx);
        result_store(a->m, &to, idx, sum_of_column(c, col), 0);
        kir_end(k);
    }
}

/* A workgroup has a head and a block of keys. With a causal mask the first blocks have most rows, and come first. */
static void open_grid(struct columns *c)
{
    struct wg_attention *a = c->a;
    struct emit *m = a->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const struct space heads = heads_of(a);
    kval head = kir_grid(k, emit_size(m, space_count(&heads, st, 0, heads.n)));
    kval block = kir_grid(k, emit_size(m, sym_cdiv(st, a->x.scores.n, sym_const(st, a->s.bc)))), all = kir_max(k, emit_size(m, a->x.scores.m), kir_int(k, 1));
    wg_enter(&a->first.g);
    c->queries = emit_size(m, queries_of(a));
    a->batch = is_shared(a) ? kir_div(k, kir_mul(k, head, c->queries), all) : head;
    c->begin = is_shared(a) ? kir_mod(k, kir_mul(k, head, c->queries), all) : kir_int(k, 0);
    space_at(m, &heads, head, c->at);
    space_at(m, &a->x.scores.outer, a->batch, a->first.pos);
    a->first.b.first = kir_mul_i(k, block, a->s.bc);
}

void wg_attention_columns_sum(struct wg_attention *rows)
{
    struct columns c = {.a = rows->columns};
    struct emit *m = rows->m;
    m->g = attention_graph_of(m, rows->x.columns.out);
    open_grid(&c);
    enter(&c);
    all_rows(&c);
    share_sums(&c);
    store(&c);
    for (u32 i = 0; i < 2; i++) kir_end(m->k);
}
