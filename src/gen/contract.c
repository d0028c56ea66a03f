// SPDX-License-Identifier: Apache-2.0
//
// contract: the engine of contractions by workgroups. All threads copy the bk columns of the left operand and bk rows of the right one that are a K
// block to shared memory, where the leaf multiplies them. The prologue of an operand is evaluated while it is copied, once per block. An operand
// need not be staged: then threads read it from memory where they multiply it.
//
// With few results and many terms several workgroups share the terms of a block (split-K). Their sums go to a TEMP array, which a second grid adds
// up. The bias is added to whole sums, or sums begin with it.
//
// Nothing branches inside a K block: rows and columns behind the end are clamped to the last ones, terms behind the end are zeros.
#include "gen/leaf.h"

/* Operands. */

sym contract_operand_blocks(const struct contraction *p, bool is_a)
{
    return sym_cdiv(p->m->g->sym, is_a ? p->x.m : p->x.n, sym_const(p->m->g->sym, is_a ? p->s.bm : p->s.bn));
}

sym contract_k_blocks(const struct contraction *p)
{
    return sym_cdiv(p->m->g->sym, p->x.k, sym_const(p->m->g->sym, p->s.bk));
}

static kval read_operand(void *user, kval row, kval col)
{
    const struct operand *s = user;
    struct kir *k = s->p->m->k;
    kval v = s->p->address->read(s, s->along_k ? col : row, s->along_k ? row : col, s->copy.share.lanes);
    return kir_splat(k, kir_cast(k, s->p->st.type, v), s->copy.share.lanes);
}

kval operand_at(void *operand, kval term, kval i)
{
    const struct operand *s = operand;
    struct kir *k = s->p->m->k;
    kval stage = kir_add_i(k, kir_mul_i(k, s->stage, s->size), s->base);
    if (s->p->st.panel) {
        kval *inner = s->term_step == 1 ? &term : &i;
        stage = kir_add(k, stage, kir_mul_i(k, kir_div_i(k, *inner, s->p->st.panel), s->panel_step));
        *inner = kir_mod_i(k, *inner, s->p->st.panel);
    }
    kval at = kir_add(k, stage, kir_mul_i(k, term, s->term_step));
    return kir_add(k, at, kir_mul_i(k, i, s->step));
}

static kval copy_at(void *user, kval row, kval col)
{
    struct operand *s = user;
    return operand_at(s, s->along_k ? col : row, s->along_k ? row : col);
}

static void lay_panels(struct operand *s, bool terms_inside)
{
    struct contraction *p = s->p;
    i64 lines = terms_inside ? s->block : p->s.bk;
    assert(p->st.pad == 0 && (terms_inside ? p->s.bk : s->block) % p->st.panel == 0);
    s->term_step = terms_inside ? 1 : p->st.panel;
    s->step = terms_inside ? p->st.panel : 1;
    s->panel_step = lines * p->st.panel;
    s->size = s->block * p->s.bk;
}

static void operand_init(struct contraction *p, struct operand *s)
{
    bool is_a = s == &p->a;
    *s = (struct operand){.p = p,
                       .v = is_a ? p->x.a : p->x.b,
                       .across = is_a ? p->x.m : p->x.n,
                       .block = is_a ? p->s.bm : p->s.bn,
                       .along_k = (is_a ? p->address->a : p->address->b).along_k};
    bool terms_inside = (is_a ? p->st.a_as_is : p->st.b_as_is) && s->along_k;
    s->term_step = terms_inside ? 1 : s->block + p->st.pad;
    s->step = terms_inside ? p->s.bk + p->st.pad : 1;
    s->size = terms_inside ? s->block * s->step : p->s.bk * s->term_step;
    i64 rows = s->along_k ? s->block : p->s.bk, cols = s->along_k ? p->s.bk : s->block;
    if (p->st.panel) lay_panels(s, terms_inside);
    i64 most = i64_min(i64_min(cols, i64_max(1, rows * cols / p->g.n)), is_a ? p->st.a_wide : p->st.b_wide);
    enum dtype type = graph_value(p->m->g, s->v)->dtype;
    s->copy = (struct group_copy){.share = {.g = &p->g,
                                            .rows = rows,
                                            .cols = cols,
                                            .lanes = group_lanes(p->m->g, (is_a ? p->address->a : p->address->b).n, type, (u32)most),
                                            .by_rows = p->st.by_rows},
                                  .type = p->st.type,
                                  .read = read_operand,
                                  .at = copy_at,
                                  .user = s,
                                  .col_step = s->along_k ? s->term_step : s->step};
}

static void init(struct contraction *p)
{
    struct emit *m = p->m;
    operand_init(p, &p->a);
    operand_init(p, &p->b);
    emit_args(m);
    p->y = (struct result){.v = p->x.y, .inner = p->x.n_axis, .parts = p->s.split_k};
    if (!p->x.simple || p->s.split_k > 1) result_open(m, &p->y, p->type);
    if (p->s.stream_k) stream_k_init(p);
}

/* K blocks. */

static void fetch(struct contraction *p, kval k_block)
{
    p->k_block = k_block;
    if (!p->st.a_direct) group_copy_fetch(&p->a.copy);
    if (!p->st.b_direct) group_copy_fetch(&p->b.copy);
}

static void put(struct contraction *p, kval stage)
{
    p->a.stage = p->b.stage = stage;
    if (!p->st.a_direct) group_copy_put(&p->a.copy, p->array);
    if (!p->st.b_direct) group_copy_put(&p->b.copy, p->array);
}

/* K block r, which is in a stage. */
static void multiply(struct contraction *p, kval r, kval stage)
{
    p->now = r;
    p->a.stage = p->b.stage = stage;
    p->leaf->multiply(p);
}

/* The first K block, which need not exist. */
static void fetch_first(struct contraction *p)
{
    struct kir *k = p->m->k;
    bool exists = gen_static(p->m->g, p->x.k, 0) > 0 && p->s.split_k == 1; /* stream-K has no piece without K blocks */
    if (!exists) kir_if(k, kir_lt(k, p->from, p->to));
    fetch(p, p->from);
    if (p->s.pipe == PIPE_DOUBLE) put(p, kir_int(k, 0));
    if (!exists) kir_end(k);
}

/* Number of the K block `ahead` after r, or the last. */
static kval k_block_after(struct contraction *p, kval r, i64 ahead)
{
    struct kir *k = p->m->k;
    return kir_min(k, kir_add_i(k, r, ahead), kir_add_i(k, p->to, -1));
}

static void copy_async(struct contraction *p, kval k_block, kval stage)
{
    p->k_block = k_block;
    p->a.stage = p->b.stage = stage;
    if (p->st.tma) {
        contract_copy_boxes(p);
        return;
    }
    if (!p->st.a_direct) group_copy_async(&p->a.copy, p->array);
    if (!p->st.b_direct) group_copy_async(&p->b.copy, p->array);
}

/* All stages but one are being copied to while one is multiplied. Behind the barrier no thread reads the stage that is copied to next. */
static void k_blocks_async(struct contraction *p)
{
    struct kir *k = p->m->k;
    i64 ahead = p->s.stages - 1;
    for (i64 i = 0; i < ahead; i++) {
        kir_if(k, kir_lt(k, p->from, p->to));
        copy_async(p, k_block_after(p, p->from, i), kir_int(k, i));
        kir_end(k);
        if (i + 1 < ahead) kir_await(k, ahead);
    }
    kval r = kir_loop(k, KL_SERIAL, p->from, p->to, 1), i = kir_sub(k, r, p->from);
    kir_await(k, ahead - 1);
    kir_barrier(k);
    if (p->st.copies_last) multiply(p, r, kir_mod_i(k, i, p->s.stages));
    copy_async(p, k_block_after(p, r, ahead), kir_mod_i(k, kir_add_i(k, i, ahead), p->s.stages));
    if (!p->st.copies_last) multiply(p, r, kir_mod_i(k, i, p->s.stages));
    kir_end(k);
    kir_await(k, 0);
}

/* The next K block is fetched to registers while this one is multiplied. */
static void k_blocks_double(struct contraction *p)
{
    struct kir *k = p->m->k;
    fetch_first(p);
    kir_barrier(k);
    kval r = kir_loop(k, KL_SERIAL, p->from, p->to, 1), i = kir_sub(k, r, p->from);
    fetch(p, k_block_after(p, r, 1));
    multiply(p, r, kir_mod_i(k, i, 2));
    put(p, kir_mod_i(k, kir_add_i(k, i, 1), 2));
    kir_barrier(k);
    kir_end(k);
}

static void k_blocks_single(struct contraction *p)
{
    struct kir *k = p->m->k;
    kval zero = kir_int(k, 0);
    if (p->s.pipe == PIPE_AHEAD) fetch_first(p);
    kval r = kir_loop(k, KL_SERIAL, p->from, p->to, 1);
    if (p->s.pipe == PIPE_NONE) fetch(p, r);
    kir_barrier(k);
    put(p, zero);
    kir_barrier(k);
    if (p->s.pipe == PIPE_AHEAD) fetch(p, k_block_after(p, r, 1));
    multiply(p, r, zero);
    kir_end(k);
}

/* Nothing is staged. */
static void k_blocks_direct(struct contraction *p)
{
    struct kir *k = p->m->k;
    p->k_block = kir_loop(k, KL_SERIAL, p->from, p->to, 1);
    multiply(p, p->k_block, kir_int(k, 0));
    kir_end(k);
}

/* What belongs to the rows of a that a thread copies is computed once, for all K blocks. */
static void enter_rows(struct contraction *p)
{
    const struct group_share *s = &p->a.copy.share;
    i64 whole = s->rows * s->cols / (s->lanes * p->g.n); /* turns that all threads have */
    if (p->st.a_direct || !p->address->enter_row) return;
    for (i64 i = 0; i < whole; i++) {
        kval row, col;
        group_share_at(s, i, &row, &col);
        p->address->enter_row(p, p->a.along_k ? row : col);
    }
}

static void k_blocks(struct contraction *p)
{
    enter_rows(p);
    if (p->st.a_direct && p->st.b_direct) k_blocks_direct(p);
    else if (p->s.pipe == PIPE_ASYNC) k_blocks_async(p);
    else if (p->s.pipe == PIPE_DOUBLE) k_blocks_double(p);
    else k_blocks_single(p);
}

/* Storing. */

/* Is i below size, which its block may hang over? 0: always. */
static kval is_inside(struct contraction *p, kval i, sym size, i64 block)
{
    struct kir *k = p->m->k;
    if (sym_divides(p->m->g->sym, block, size)) return 0;
    return kir_lt(k, i, emit_size(p->m, size));
}

static kval both(struct kir *k, kval a, kval b) { return a && b ? kir_bin(k, KI_AND, a, b) : a ? a : b; }

/* Of the columns at idx, which the limit is set for. */
static kval bias_at(struct emit *m, const struct contraction *p, const kval *idx, kval val)
{
    if (!p->x.bias || p->bias_is_in) return val;
    kval v = kir_cast(m->k, p->type, emit_value(m, p->x.bias, &idx[p->x.n_axis]));
    return kir_add(m->k, val, kir_splat(m->k, v, kir_lanes(m->k, val)));
}

static kval whole_sum(struct emit *m, const void *user, const kval *idx)
{
    const struct contraction *p = user;
    return bias_at(m, p, idx, result_load(m, &p->y, idx));
}

static void store(struct contraction *p, kval row, kval col, kval val)
{
    struct kir *k = p->m->k;
    u32 lanes = kir_lanes(k, val);
    kval idx[MAX_RANK];
    row = kir_add(k, p->a.first, row);
    col = kir_add(k, p->b.first, col);
    kval a = is_inside(p, row, p->x.m, p->s.bm), b = is_inside(p, col, p->x.n, p->s.bn);
    kval is_any = p->address->index(p, row, col, idx), is_there = both(k, both(k, a, b), is_any);
    bool is_whole = sym_divides(p->m->g->sym, lanes, p->x.n);
    idx[p->x.n_axis] = kir_ramp(k, idx[p->x.n_axis], 1, lanes);
    if (is_there) kir_if(k, is_there);
    kval limit = is_whole ? 0 : kir_sub(k, emit_size(p->m, p->x.n), col);
    emit_limit(p->m, limit);
    if (!p->y.temp) val = bias_at(p->m, p, idx, val);
    result_store(p->m, &p->y, idx, val, limit);
    emit_limit(p->m, 0);
    if (is_there) kir_end(k);
}

void contract_store(struct contraction *p, kval row, kval col, kval val)
{
    struct kir *k = p->m->k;
    if (p->is_whole) kir_if(k, p->is_whole);
    store(p, row, col, val);
    if (!p->is_whole) return;
    kir_else(k);
    stream_k_keep(p, row, col, val);
    kir_end(k);
}

kval contract_bias(struct contraction *p, kval col, u32 lanes)
{
    struct kir *k = p->m->k;
    kval idx[MAX_RANK], n = emit_size(p->m, p->x.n);
    col = kir_add(k, p->b.first, col);
    if (lanes == 1) col = kir_min(k, col, kir_add_i(k, n, -1));
    p->address->index(p, kir_int(k, 0), col, idx);
    kval at = kir_ramp(k, idx[p->x.n_axis], 1, lanes);
    emit_limit(p->m, lanes > 1 && !sym_divides(p->m->g->sym, p->s.bn, p->x.n) ? kir_sub(k, n, col) : 0);
    kval v = kir_splat(k, kir_cast(k, p->type, emit_value(p->m, p->x.bias, &at)), lanes);
    emit_limit(p->m, 0);
    return v;
}

bool contract_begins_with_bias(struct contraction *p)
{
    p->bias_is_in = p->x.bias && !p->s.stream_k && p->s.split_k == 1;
    return p->bias_is_in;
}

/* The grid. */

static sym block_count(const struct contraction *p)
{
    return sym_mul(p->m->g->sym, contract_operand_blocks(p, true), contract_operand_blocks(p, false));
}

static sym batch_count(const struct contraction *p)
{
    return space_count(&p->x.outer, p->m->g->sym, 0, p->x.outer.n);
}

kval contract_blocks(const struct contraction *p)
{
    return emit_size(p->m, sym_mul(p->m->g->sym, batch_count(p), block_count(p)));
}

kval contract_block_k_blocks(const struct contraction *p) { return emit_size(p->m, contract_k_blocks(p)); }

/* Number `at` of a batch's blocks, walked column by column within each `raster` rows of them. */
static void walk_blocks(struct contraction *p, kval at, kval *row, kval *col)
{
    struct kir *k = p->m->k;
    kval rows = emit_size(p->m, contract_operand_blocks(p, true)), cols = emit_size(p->m, contract_operand_blocks(p, false));
    kval area = kir_mul_i(k, cols, p->s.raster);
    kval first = kir_mul_i(k, kir_div(k, at, area), p->s.raster);
    kval height = kir_min(k, kir_sub(k, rows, first), kir_int(k, p->s.raster));
    at = kir_mod(k, at, area);
    *row = kir_add(k, first, kir_mod(k, at, height));
    *col = kir_div(k, at, height);
}

static void operand_place(struct operand *s, kval number)
{
    s->number = number;
    s->first = kir_mul_i(s->p->m->k, number, s->block);
}

static void place(struct contraction *p, kval batch, kval row, kval col)
{
    const u32 all[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    const struct space *outer = &p->x.outer;
    kval at[MAX_RANK] = {0};
    space_split(p->m, outer, all, outer->n, batch, at);
    space_index(p->m->k, outer, at, p->pos);
    operand_place(&p->a, row);
    operand_place(&p->b, col);
}

void contract_place(struct contraction *p, kval number)
{
    struct kir *k = p->m->k;
    kval batch = kir_int(k, 0), row, col;
    if (p->x.outer.n) {
        kval n = emit_size(p->m, block_count(p));
        batch = kir_div(k, number, n), number = kir_mod(k, number, n);
    }
    walk_blocks(p, number, &row, &col);
    place(p, batch, row, col);
}

static void arrays_open(struct contraction *p)
{
    struct kir *k = p->m->k;
    i64 a = p->st.a_direct ? 0 : p->s.stages * p->a.size, b = p->st.b_direct ? 0 : p->s.stages * p->b.size;
    p->a.base = 0, p->b.base = a;
    kval n = kir_int(k, i64_max(a + b, p->st.least));
    if (a + b + p->st.least == 0) return;
    p->array = p->st.swizzled ? kir_alloc_swizzled(k, p->st.type, n) : kir_alloc(k, KS_SHARED, p->st.type, 1, n);
    if (p->n_out) p->out = kir_alloc(k, KS_SHARED, p->out_type, 1, kir_int(k, p->n_out));
}

void contract_enter(struct contraction *p)
{
    group_enter(&p->g);
    p->n_k_blocks = contract_block_k_blocks(p);
    arrays_open(p);
    if (p->s.pipe == PIPE_ASYNC) return;
    if (!p->st.a_direct) group_copy_open(&p->a.copy);
    if (!p->st.b_direct) group_copy_open(&p->b.copy);
}

/* The K blocks of one share of a split K. */
static void open_share(struct contraction *p, kval share)
{
    struct kir *k = p->m->k;
    struct symtab *st = p->m->g->sym;
    kval part = emit_size(p->m, sym_cdiv(st, contract_k_blocks(p), sym_const(st, p->s.split_k)));
    p->from = kir_int(k, 0), p->to = p->n_k_blocks;
    if (p->s.split_k == 1) return;
    p->y.part = share;
    p->from = kir_mul(k, share, part);
    p->to = kir_min(k, p->n_k_blocks, kir_add(k, p->from, part));
}

/* A workgroup has a block, or a share of its K blocks. */
static void open_blocks(struct contraction *p)
{
    struct emit *m = p->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    kval row, col;
    kval batch = kir_grid(k, emit_size(m, sym_mul(st, batch_count(p), sym_const(st, p->s.split_k))));
    if (p->s.raster > 1) {
        walk_blocks(p, kir_grid(k, emit_size(m, block_count(p))), &row, &col);
    } else {
        row = kir_grid(k, emit_size(m, contract_operand_blocks(p, true)));
        col = kir_grid(k, emit_size(m, contract_operand_blocks(p, false)));
    }
    contract_enter(p);
    open_share(p, kir_mod_i(k, batch, p->s.split_k));
    place(p, kir_div_i(k, batch, p->s.split_k), row, col);
}

static void open(struct contraction *p)
{
    if (p->s.stream_k) stream_k_open(p);
    else open_blocks(p);
}

static void close(struct contraction *p, const struct task *t, const struct caps *caps)
{
    if (p->s.stream_k) stream_k_close(p);
    else
        for (u32 i = 0; i < (p->s.raster > 1 ? 2u : 3u); i++) kir_end(p->m->k);
    if (p->y.temp) gen_map_rest(p->m, t, caps, p->x.y, whole_sum, p);
}

void contract_emit(struct contraction *p, const struct task *t, const struct caps *caps)
{
    init(p);
    open(p);
    p->leaf->open(p);
    k_blocks(p);
    p->leaf->store(p);
    close(p, t, caps);
}

/* Choice. */

i64 blocking_shared(const struct blocking *s, i64 pad)
{
    i64 lines = i64_max(s->bm, s->bk) * (i64_min(s->bm, s->bk) + pad) +
                i64_max(s->bn, s->bk) * (i64_min(s->bn, s->bk) + pad);
    return s->stages * lines;
}

/* A block is at most twice too large. */
static bool is_block_useful(i64 block, i64 least, i64 size)
{
    return block <= least || block < 2 * size;
}

bool blocking_is_useful(const struct gemm *x, const struct blocking *s)
{
    i64 m = gen_eval(x->g, x->m, NULL), n = gen_eval(x->g, x->n, NULL),
        k = gen_eval(x->g, x->k, NULL);
    if (s->raster > 1 && (m <= s->bm * 2 || n <= s->bn)) return false;
    if (s->split_k > 1 && (k < 8 * s->split_k * s->bk || m * n > 256 * s->bm * s->bn)) return false;
    i64 blocks = ceil_div(m, s->bm) * ceil_div(n, s->bn); /* of a batch */
    if (s->stream_k && blocks * ceil_div(k, s->bk) < s->stream_k) return false;
    return is_block_useful(s->bm, 16, m) && is_block_useful(s->bn, 16, n) &&
           is_block_useful(s->bk, 16, k);
}

double blocking_seconds(const struct gemm *x, const struct caps *c, const struct blocking *s,
                       double work, const i64 *var)
{
    double m = (double)gen_eval(x->g, x->m, var), n = (double)gen_eval(x->g, x->n, var),
           k = (double)gen_eval(x->g, x->k, var), batch = 1;
    double size = (double)dtype_size(graph_value(x->g, x->a)->dtype);
    for (u32 i = 0; i < x->outer.n; i++) batch *= (double)gen_eval(x->g, x->outer.g[i].extent, var);
    double blocks = batch * (double)ceil_div((i64)m, s->bm) * (double)ceil_div((i64)n, s->bn),
           k_blocks = (double)ceil_div((i64)k, s->bk), splits = (double)s->split_k;
    double area = (double)(s->bm * s->bn), edges = (double)(s->bm + s->bn);
    double copied = blocks * k_blocks * (double)s->bk * edges;
    double missed = s->raster > 1 ? 0.2 : 0.25; /* of what is copied, by the caches */
    /* Copying an element takes some operations. */
    struct group_load load = {
        .groups = s->stream_k ? (double)s->stream_k : blocks * splits,
        .threads = s->threads,
        .flops = 2 * work * blocks * k_blocks * (double)s->bk * area + 6 * copied,
        .bytes = missed * copied * size + size * batch * (m * k + k * n + m * n),
        .barriers = k_blocks * (s->stream_k ? blocks / (double)s->stream_k : 1 / splits) * (s->stages > 1 ? 1 : 2)};
    double later = s->stream_k ? 16 * (double)s->stream_k * area : x->simple && s->split_k == 1 ? 0 : 8 * splits * batch * m * n;
    double rest = later > 0 ? 4e-6 + later / gen_byte_rate(c) : 0;
    return group_seconds(c, &load) * (s->pipe ? 0.95 : 1) + rest;
}
