// SPDX-License-Identifier: Apache-2.0
//
// contract_emit: the engine of contractions by workgroups. All threads copy the bk columns of the left operand and bk rows of the right one that are a K
// block to shared memory, where the leaf multiplies them. The prologue of an operand is evaluated while it is copied, once per block. An operand
// need not be staged: then threads read it from memory where they multiply it.
//
// With few results and many terms several workgroups share the terms of a block (split-K). Their sums go to a TEMP array, which a second grid adds
// up. The bias is added to whole sums, or sums begin with it.
//
// Nothing branches inside a K block: rows and columns behind the end are clamped to the last ones, terms behind the end are zeros.
#include "gen/leaf.h"

/* K blocks. */

static void fetch(struct contraction *p, kval k_block)
{
    p->k_block = k_block;
    if (!p->st.a_direct) wg_copy_fetch(&p->a.copy);
    if (!p->st.b_direct) wg_copy_fetch(&p->b.copy);
}

static void put(struct contraction *p, kval stage)
{
    p->a.stage = p->b.stage = stage;
    if (!p->st.a_direct) wg_copy_put(&p->a.copy, p->array);
    if (!p->st.b_direct) wg_copy_put(&p->b.copy, p->array);
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
    if (!p->st.a_direct) wg_copy_async(&p->a.copy, p->array);
    if (!p->st.b_direct) wg_copy_async(&p->b.copy, p->array);
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
    const struct wg_share *s = &p->a.copy.share;
    i64 whole = s->rows * s->cols / (s->lanes * p->g.n); /* turns that all threads have */
    if (p->st.a_direct || !p->address->enter_row) return;
    for (i64 i = 0; i < whole; i++) {
        kval row, col;
        wg_share_at(s, i, &row, &col);
        p->address->enter_row(p, p->a.along_k ? row : col);
    }
}

/* Storing. */

void contract_store(struct contraction *p, kval row, kval col, kval val)
{
    struct kir *k = p->m->k;
    if (p->is_whole) kir_if(k, p->is_whole);
    contract_store_whole(p, row, col, val);
    if (!p->is_whole) return;
    kir_else(k);
    stream_k_keep(p, row, col, val);
    kir_end(k);
}

/* The grid. */

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
    kval batch = kir_grid(k, emit_size(m, sym_mul(st, contract_batch_count(p), sym_const(st, p->s.split_k))));
    if (p->s.raster > 1) {
        contract_walk(p, kir_grid(k, emit_size(m, contract_block_count(p))), &row, &col);
    } else {
        row = kir_grid(k, emit_size(m, contract_operand_blocks(p, true)));
        col = kir_grid(k, emit_size(m, contract_operand_blocks(p, false)));
    }
    contract_enter(p);
    open_share(p, kir_mod_i(k, batch, p->s.split_k));
    contract_place_at(p, kir_div_i(k, batch, p->s.split_k), row, col);
}

void contract_emit(struct contraction *p, const struct task *t, const struct caps *caps)
{
    struct emit *m = p->m;
    operand_init(p, &p->a);
    operand_init(p, &p->b);
    emit_args(m);
    p->y = (struct result){.v = p->x.y, .inner = p->x.n_axis, .parts = p->s.split_k};
    if (!p->x.simple || p->s.split_k > 1) result_open(m, &p->y, p->type);
    if (p->s.stream_k) stream_k_init(p);
    if (p->s.stream_k) stream_k_open(p);
    else open_blocks(p);
    p->leaf->open(p);
    enter_rows(p);
    if (p->st.a_direct && p->st.b_direct) k_blocks_direct(p);
    else if (p->s.pipe == PIPE_ASYNC) k_blocks_async(p);
    else if (p->s.pipe == PIPE_DOUBLE) k_blocks_double(p);
    else k_blocks_single(p);
    p->leaf->store(p);
    if (p->s.stream_k) stream_k_close(p);
    else
        for (u32 i = 0; i < (p->s.raster > 1 ? 2u : 3u); i++) kir_end(p->m->k);
    if (p->y.temp) gen_elementwise_rest(p->m, t, caps, p->x.y, contract_whole_sum, p);
}
