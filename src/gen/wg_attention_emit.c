// SPDX-License-Identifier: Apache-2.0
//
// wg_attention_emit: attention by workgroups (Dao, Fu, Ermon, Rudra & Re, FlashAttention, 2022, algorithm 1; Dao, FlashAttention-2, 2023, for the order of the
// loops). A workgroup copies its rows of queries to shared memory once, and goes through the keys in blocks: scores by tiles in registers, their
// exponentials to shared memory, products of these with the values in registers. A row has the greatest of its scores so far and sums relative to it; a
// block with a greater one first scales the sums. Threads multiply tiles, as those of wg_gemm (leaf_fma.c), or subgroups fragments
// (wg_attention_units.c). K blocks of keys, and then of values, take turns in one shared array, or have one each. Nothing in memory grows with queries
// times keys.
//
// Without values the loop ends with the rows' statistics. With given statistics nothing is scaled: probabilities are computed from scores. Sums of columns are a
// grid of their own (wg_attention_columns.c).
//
// Keys that a band excludes for all rows of a block, or a mask that is read (wg_attention_keys.c), are left out by blocks. Rows beyond the end are the last
// one again and are not stored; keys beyond it have scores of -infinity.
#include "gen/wg_attention.h"

#include <math.h>

/* Operands of the second product. */

static kval p_at(const struct operand *s, const struct contract_term *t, kval i)
{
    const struct contraction *p = s->p;
    struct kir *k = p->m->k;
    kval key = kir_add(k, kir_mul_i(k, p->now, p->s.bk), t->at);
    return kir_add(k, kir_mul_i(k, i, s->step), key);
}

/* Values are those of whole blocks of keys, which may hang over the last one. */
static kval read_values(void *user, kval row, kval col)
{
    const struct operand *s = user;
    struct kir *k = s->p->m->k;
    const u32 lanes = s->copy.share.lanes;
    kval term = s->along_k ? col : row, at = kir_add(k, kir_mul_i(k, s->p->now, s->along_k ? s->copy.share.cols : s->copy.share.rows), term);
    return kir_splat(k, kir_cast(k, s->p->st.type, s->p->address->read(s, at, s->along_k ? row : col, lanes)), lanes);
}

/* The loop over blocks of keys. */

static struct wg_attention_walk walk_of_keys(struct wg_attention *a, kval block)
{
    struct contraction *p = &a->first;
    p->b.first = kir_mul_i(a->m->k, block, a->s.bc);
    return (struct wg_attention_walk){p, &p->b, p->b.array, block, wg_attention_terms(&a->x, &a->s) / a->s.sa};
}

static struct wg_attention_walk walk_of_values(struct wg_attention *a, kval block)
{
    return (struct wg_attention_walk){&a->second, &a->second.b, a->second.b.array, block, a->s.bc / a->s.sb};
}

/* Sums so far, relative to the new maxima. */
static void scale_sums(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const struct fma_leaf *l = &a->sums;
    for (i64 i = 0; i < l->row.n; i++) {
        kval factor = kir_splat(k, kir_load(k, a->factors, fma_row(k, &a->sums, i)), l->lanes);
        for (i64 j = 0; j < fma_vectors(l); j++) {
            kval at = fma_slot(k, &a->sums, i, j);
            kir_store(k, l->acc, at, kir_mul(k, kir_load(k, l->acc, at), factor));
        }
    }
}

/* Of the block behind, or once more of the last one. */
static void fetch_next_keys(struct wg_attention *a, kval block)
{
    struct kir *k = a->m->k;
    kval last = kir_div_i(k, kir_add_i(k, a->keys.to, -1), a->s.bc);
    struct wg_attention_walk next = walk_of_keys(a, kir_min(k, kir_add_i(k, block, 1), last));
    wg_attention_fetch(a, &next, kir_int(k, 0));
}

/* Scores become exponentials, or, with given statistics, probabilities. */
static void do_rows(struct wg_attention *a, kval block) { (a->x.rows.n ? wg_attention_softmax : wg_attention_given)(a, block); }

/* Scores of a block of keys in the threads' tiles. */
static void block_scores(struct wg_attention *a, kval block)
{
    struct wg_attention_walk keys = walk_of_keys(a, block);
    wg_attention_scores(a, &keys);
}

/* Statistics alone. */
static void block_without_values(struct wg_attention *a, kval block)
{
    block_scores(a, block);
    if (a->s.sp) fetch_next_keys(a, block);
    do_rows(a, block);
}

/* Keys and values take turns in one shared array. */
static void block_in_turns(struct wg_attention *a, kval block)
{
    struct kir *k = a->m->k;
    block_scores(a, block);
    struct wg_attention_walk values = walk_of_values(a, block);
    if (a->s.sp) wg_attention_fetch(a, &values, kir_int(k, 0));
    do_rows(a, block);
    if (a->s.sp) fetch_next_keys(a, block);
    wg_attention_walk(a, &values, !a->x.rows.n ? NULL : a->s.by_units ? wg_attention_units_scale : scale_sums);
}

/* Each has its own: three barriers, behind the keys, the scores with the values, and the probabilities. What a barrier makes visible has no reader left
   from the block before that is not behind one of the other two. */
static void block_apart(struct wg_attention *a, kval block)
{
    struct kir *k = a->m->k;
    kval zero = kir_int(k, 0);
    struct wg_attention_walk keys = walk_of_keys(a, block), values = walk_of_values(a, block);
    wg_attention_clear_scores(a);
    if (!a->s.sp) wg_attention_fetch(a, &keys, zero);
    wg_copy_put(&keys.p->b.copy, keys.array);
    kir_barrier(k);
    if (a->s.sp) wg_attention_fetch(a, &values, zero);
    wg_attention_multiply(keys.p, zero);
    wg_attention_units_put_scores(a);
    if (!a->s.sp) wg_attention_fetch(a, &values, zero);
    wg_copy_put(&values.p->b.copy, values.array);
    if (a->s.sp) fetch_next_keys(a, block);
    kir_barrier(k);
    wg_attention_units_take_scores(a);
    do_rows(a, block);
    kir_barrier(k);
    if (a->x.rows.n) wg_attention_units_scale(a);
    wg_attention_multiply(values.p, zero);
}

static void all_keys(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const struct attention_span blocks = {kir_div_i(k, a->keys.from, a->s.bc), kir_div_i(k, kir_add_i(k, a->keys.to, a->s.bc - 1), a->s.bc)};
    struct wg_attention_walk keys = walk_of_keys(a, blocks.from);
    wg_attention_fetch_first(a, &keys, &blocks);
    kval block = kir_loop(k, KL_SERIAL, blocks.from, blocks.to, 1);
    (!attention_has_values(&a->x) ? block_without_values : a->s.apart ? block_apart : block_in_turns)(a, block);
    kir_end(k);
}

/* Behind it. */

/* Every thread of a row has the maximum and the sum; those that have its output read them. */
static void share_statistics(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const struct fma_leaf *l = &a->scores;
    kval sum[WG_ATTENTION_ROWS] = {0};
    if (a->folds && !attention_has_values(&a->x)) kir_barrier(k); /* other threads read the last maxima */
    for (i64 i = 0; i < l->row.n; i++) sum[i] = kir_load(k, a->sum, kir_int(k, i));
    wg_attention_fold(a, KI_ADD, a->folds, sum, l->row.n);
    kir_if(k, kir_bin(k, KI_EQ, a->place, kir_int(k, 0)));
    for (i64 i = 0; i < l->row.n; i++) {
        kir_store(k, a->most_of, fma_row(k, &a->scores, i), kir_load(k, a->most, kir_int(k, i)));
        kir_store(k, a->sum_of, fma_row(k, &a->scores, i), sum[i]);
    }
    kir_end(k);
    kir_barrier(k);
}

/* Statistics of rows that are results, or that sums of columns need, by the first thread of each row of scores. */
static void store_statistics(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    if (!a->x.n_statistics && !a->x.columns.out) return;
    kir_if(k, kir_bin(k, KI_EQ, a->place, kir_int(k, 0)));
    for (i64 i = 0; i < a->scores.row.n; i++) {
        kval row = fma_row(k, &a->scores, i), most = kir_load(k, a->most_of, row), sum = kir_load(k, a->sum_of, row);
        kir_if(k, wg_attention_is_row(a, kir_add(k, a->m0, row)));
        attention_factor(a->m, &a->x, a->row[i].p, &most, &sum);
        attention_store_statistics_at(a->m, &a->x, a->row[i].scores);
        if (a->x.columns.out) wg_attention_keep_reduced(a, kir_add(k, a->m0, row), a->row[i].scores);
        attention_forget(a->m, &a->x);
        kir_end(k);
    }
    kir_end(k);
}

/* By what a row's sums are multiplied: 1, if its statistics were given. */
static kval factor_of(struct wg_attention *a, kval row)
{
    struct kir *k = a->m->k;
    struct attention_row at;
    if (!a->x.rows.n) return kir_const_f(k, DT_F32, 1, 1);
    attention_index_row(a->m, &a->x, a->second.pos, wg_attention_row(a, row), &at);
    kval most = kir_load(k, a->most_of, row), sum = kir_load(k, a->sum_of, row), factor = attention_factor(a->m, &a->x, at.p, &most, &sum);
    attention_forget(a->m, &a->x);
    return factor;
}

static void store_rows(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const struct fma_leaf *l = &a->sums;
    for (i64 i = 0; i < l->row.n; i++) {
        kval row = fma_row(k, &a->sums, i), factor = factor_of(a, row);
        for (i64 j = 0; j < fma_vectors(l); j++)
            wg_attention_store(a, row, fma_col(k, &a->sums, j), kir_load(k, l->acc, fma_slot(k, &a->sums, i, j)), factor);
    }
}

/* The kernel. */

static struct fma_leaf leaf_of_scores(const struct wg_attention_sched *s)
{
    return (struct fma_leaf){.row = {s->ptr, s->wswq, s->bswq, s->wlpy, s->blpy},
                             .col = {s->ptc, s->wswk, s->bswk, s->wlpx, s->blpx},
                             .lanes = (u32)i64_min(4, s->wswk),
                             .unroll = s->un,
                             .ahead = s->rpp};
}

static struct fma_leaf leaf_of_sums(const struct wg_attention_sched *s)
{
    return (struct fma_leaf){.row = {s->otr, s->wswp, s->bswp, s->wloy, s->bloy},
                             .col = {s->otc, s->wswv, s->bswv, s->wlox, s->blox},
                             .lanes = (u32)i64_min(4, s->wswv),
                             .unroll = s->un,
                             .ahead = s->rpo};
}

static struct contraction product_of(const struct wg_attention *a, const struct gemm *x, const struct wg_attention_sched *s)
{
    enum dtype own = graph_value(x->g, x->b)->dtype;
    struct contraction p = {.m = a->m,
                            .x = *x,
                            .s = {.bm = s->br, .threads = s->threads, .stages = 1, .raster = 1, .split_k = 1},
                            .st = {.type = s->half ? own : emit_type(own), .pad = s->pad, .a_as_is = true, .b_as_is = s->by_units, .a_wide = s->glwq},
                            .type = DT_F32,
                            .out_type = DT_F32,
                            .leaf = s->by_units ? &leaf_mma : &leaf_fma};
    if (s->by_warpgroups) wgmma_attention_stage(s, &p);
    return p;
}

/* The product of the scores; the caller initialises its operands. */
static void init_product(struct wg_attention *a, const struct task *t)
{
    struct contraction *p = &a->first;
    struct wg_attention_sched *s = &a->s;
    *p = product_of(a, &a->x.scores, s);
    p->own = s->by_units ? (void *)&s->units[0] : &a->scores, p->s.bn = s->bc;
    p->st.b_wide = s->glwk, p->st.by_rows = !s->lcp;
    wg_init(&p->g, a->m, s->threads, a->s.sub ? a->m->k->subgroup : 0);
    contract_matrices_unpacked(p, t);
}

/* Queries are copied as one K block, and read as several. */
static void init_scores(struct wg_attention *a, const struct task *t)
{
    struct contraction *p = &a->first;
    const struct wg_attention_sched *s = &a->s;
    init_product(a, t);
    p->s.bk = wg_attention_terms(&a->x, s);
    operand_init(p, &p->a);
    if (!s->by_warpgroups) p->a.copy.at = wg_attention_whole_copied_at, p->a.at = wg_attention_whole_at, p->s.bk = s->sa;
    operand_init(p, &p->b);
}

/* The scores once more. */
static void init_columns(struct wg_attention *a, const struct task *t)
{
    struct wg_attention *c = arena_new(a->m->arena, struct wg_attention);
    *c = (struct wg_attention){.m = a->m, .x = a->x, .s = a->s, .scores = a->scores, .pitch = a->pitch};
    init_product(c, t);
    wg_attention_columns_init(c);
    a->columns = c;
}

static void init_output(struct wg_attention *a, const struct task *t)
{
    struct contraction *p = &a->second;
    struct wg_attention_sched *s = &a->s;
    *p = product_of(a, &a->x.values, s);
    p->own = s->by_units ? (void *)&s->units[1] : &a->sums, p->s.bn = s->columns, p->s.bk = s->sb;
    p->st.b_wide = s->glwv, p->st.by_rows = !s->lco;
    p->g = a->first.g;
    contract_matrices_unpacked(p, t);
    operand_init(p, &p->b);
    if (!s->by_warpgroups) p->b.copy.read = read_values;
    p->a = (struct operand){.p = p, .v = p->x.a, .across = p->x.m, .block = s->br, .along_k = true, .term_step = 1, .step = a->pitch, .at = p_at};
    p->y = (struct result){.v = p->x.y, .inner = p->x.n_axis};
}

/* Of operands, and what passes from one product to the other. */
static void open_operands(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const struct wg_attention_room r = wg_attention_room_of(&a->x, &a->s);
    a->first.a.array = kir_alloc(k, KS_SHARED, a->first.st.type, 1, kir_int(k, r.q));
    a->first.b.array = a->second.b.array = kir_alloc(k, KS_SHARED, a->first.st.type, 1, kir_int(k, r.kv));
    if (r.v) a->second.b.array = kir_alloc(k, KS_SHARED, a->first.st.type, 1, kir_int(k, r.v));
    if (r.scores) a->held = kir_alloc(k, KS_SHARED, DT_F32, 1, kir_int(k, r.scores));
    if (!attention_has_values(&a->x)) return;
    a->p = a->second.a.array = r.p ? kir_alloc(k, KS_SHARED, a->s.by_units ? a->first.st.type : DT_F32, 1, kir_int(k, r.p)) : a->held;
    if (a->x.rows.n) a->factors = kir_alloc(k, KS_SHARED, DT_F32, 1, kir_int(k, a->s.br));
}

static void open_arrays(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const struct wg_attention_room r = wg_attention_room_of(&a->x, &a->s);
    const i64 br = a->s.br, n = a->scores.row.n;
    (a->s.by_warpgroups ? wgmma_attention_open : open_operands)(a);
    if (a->x.rows.n) a->most_of = kir_alloc(k, KS_SHARED, DT_F32, 1, kir_int(k, br)), a->sum_of = kir_alloc(k, KS_SHARED, DT_F32, 1, kir_int(k, br));
    if (r.folds) a->folds = kir_alloc(k, KS_SHARED, DT_F32, 1, kir_int(k, r.folds));
    if (r.seen && a->x.has_mask) a->seen = kir_alloc(k, KS_SHARED, DT_I32, 1, kir_int(k, r.seen));
    if (r.checks) a->checks = kir_alloc(k, KS_SHARED, DT_I32, 1, kir_int(k, r.checks));
    if (!a->x.rows.n) return;
    a->most = kir_alloc(k, KS_REG, DT_F32, 1, kir_int(k, n)), a->sum = kir_alloc(k, KS_REG, DT_F32, 1, kir_int(k, n));
    for (i64 i = 0; i < n; i++) {
        kir_store(k, a->most, kir_int(k, i), kir_const_f(k, DT_F32, 1, -INFINITY));
        kir_store(k, a->sum, kir_int(k, i), kir_const_f(k, DT_F32, 1, 0));
    }
}

/* Blocks of rows, of a batch, of a part of the keys. With a band the last ones have most keys, and come first. */
static void open_grid(struct wg_attention *a)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const struct gemm *x = wg_attention_rows_of(&a->x);
    const struct space *outer = &x->outer;
    sym blocks = sym_cdiv(st, x->m, sym_const(st, a->s.br));
    a->batch = kir_grid(k, emit_size(m, space_count(outer, st, 0, outer->n)));
    if (a->s.split) a->part = kir_grid(k, a->n_parts);
    kval block = kir_grid(k, emit_size(m, blocks));
    wg_enter(&a->first.g);
    a->second.g = a->first.g;
    if (a->x.has_band) block = kir_sub(k, kir_add_i(k, emit_size(m, blocks), -1), block);
    a->m0 = kir_mul_i(k, block, a->s.br);
    space_at(m, outer, a->batch, a->first.pos);
    space_at(m, outer, a->batch, a->second.pos);
    a->first.a.first = a->second.a.first = a->m0;
    a->second.b.first = kir_int(k, 0);
    a->first.a.stage = a->first.b.stage = a->second.b.stage = kir_int(k, 0);
}

static void copy_queries(struct wg_attention *a)
{
    struct contraction *p = &a->first;
    wg_copy_open(&p->a.copy), wg_copy_open(&p->b.copy);
    if (attention_has_values(&a->x)) wg_copy_open(&a->second.b.copy);
    p->k_block = kir_int(a->m->k, 0);
    p->s.bk = wg_attention_terms(&a->x, &a->s);
    wg_copy_fetch(&p->a.copy);
    wg_copy_put(&p->a.copy, p->a.array);
    p->s.bk = a->s.sa;
}

/* Queries to shared memory; where the thread stands. */
static void enter(struct wg_attention *a)
{
    struct contraction *p = &a->first;
    struct kir *k = a->m->k;
    open_arrays(a);
    if (!a->s.by_warpgroups) copy_queries(a);
    p->leaf->open(p);
    if (attention_has_values(&a->x)) a->second.leaf->open(&a->second);
    if (a->s.by_units) fma_open(&a->scores, &p->g, DT_F32);
    kval thread = kir_mod_i(k, p->g.t, a->s.w), subgroup = kir_div_i(k, p->g.t, a->s.w);
    a->place = kir_add(k, kir_mul_i(k, kir_mod_i(k, subgroup, a->s.blpx), a->s.wlpx), kir_mod_i(k, thread, a->s.wlpx));
    for (i64 i = 0; i < a->scores.row.n; i++)
        attention_index_row(a->m, &a->x, p->pos, wg_attention_row(a, fma_row(k, &a->scores, i)), &a->row[i]);
}

/* The grid of rows: their statistics, and the second product. */
static void sum_rows(struct wg_attention *a)
{
    const struct wg_attention_sched *s = &a->s;
    const bool has_values = attention_has_values(&a->x);
    if (has_values) a->m->g = attention_graph_of(a->m, a->x.values.y);
    if (s->split) wg_attention_split_open(a);
    open_grid(a);
    enter(a);
    wg_attention_find_keys(a);
    if (s->split) wg_attention_split_keys(a);
    (s->by_warpgroups ? wgmma_attention_keys : all_keys)(a);
    if (a->x.rows.n) share_statistics(a);
    else if (s->by_units) kir_barrier(a->m->k); /* sums may go where probabilities are read */
    if (has_values && s->by_units) (s->by_warpgroups ? wgmma_attention_sums : wg_attention_units_sums)(a);
    if (s->split) wg_attention_split_store(a);
    else if (has_values) store_rows(a);
    if (!s->split && a->x.rows.n) store_statistics(a);
    for (u32 i = 0; i < (s->split ? 3 : 2); i++) kir_end(a->m->k);
    if (s->split) wg_attention_split_merge(a);
}

void wg_attention_emit(struct emit *m, const struct task *t, const struct caps *c, const struct wg_attention_sched *s)
{
    struct wg_attention *a = arena_new(m->arena, struct wg_attention);
    const struct graph *all = m->g;
    *a = (struct wg_attention){.m = m, .s = *s, .scores = leaf_of_scores(s), .sums = leaf_of_sums(s), .pitch = s->bc + s->pad};
    attention_of(&a->x, t);
    attention_form(&a->x, t, c);
    m->k->subgroup = s->sub ? wg_subgroup(c, s->threads) : 0;
    if (s->by_warpgroups) m->k->warpgroup = c->warpgroup;
    init_scores(a, t);
    if (attention_has_values(&a->x)) init_output(a, t);
    if (a->x.columns.out) init_columns(a, t);
    emit_args(m);
    if (a->x.columns.out) wg_attention_columns_open(a);
    if (attention_has_rows(&a->x)) sum_rows(a);
    m->g = all;
    if (a->x.columns.out) wg_attention_columns_sum(a);
    m->g = all;
}
