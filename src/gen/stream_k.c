// SPDX-License-Identifier: Apache-2.0
//
// stream_k: contractions by as many workgroups as the device runs at once, each with the same number of K blocks whatever the number of blocks of results:
// Osama, Merrill, Cecka, Garland and Owens, Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on the GPU, 2023,
// sections 4 and 5 (two-tile stream-K with data-parallel waves). Every workgroup takes its share of the K blocks of the first blocks, which are
// between one and two for each workgroup, then whole blocks.
//
// Workgroups that share a block each leave their sums in a TEMP array. A second grid adds them: the workgroup that began the block, in the
// order of the K blocks. So no workgroup waits for another, and sums do not depend on timing.
#include "gen/contract.h"

enum { MAX_UNITS = 1024, LEAST = 128 /* elements of an operand in a K block */ };

/* Blocks are numbered in the order of the walk, K blocks of all shared blocks one after the other. Workgroup g has those from
   g*each + min(g, more) up to the first one of the next workgroup. */
struct shares {
    struct kir *k;
    kval k_blocks;      /* of a block, at least 1 */
    kval shared, waves; /* shared blocks; whole ones of a workgroup behind them */
    kval each, more;
};

static struct shares shares_of(const struct contraction *p)
{
    struct kir *k = p->m->k;
    kval all = contract_blocks(p), groups = kir_int(k, p->s.stream_k), zero = kir_int(k, 0);
    struct shares s = {.k = k, .k_blocks = kir_max(k, contract_block_k_blocks(p), kir_int(k, 1))};
    s.waves = kir_max(k, kir_add_i(k, kir_div(k, all, groups), -1), zero);
    s.shared = kir_sub(k, all, kir_mul(k, s.waves, groups));
    kval n = kir_mul(k, s.shared, s.k_blocks);
    s.each = kir_div(k, n, groups), s.more = kir_mod(k, n, groups);
    return s;
}

static kval begin_of(const struct shares *s, kval g)
{
    return kir_add(s->k, kir_mul(s->k, g, s->each), kir_min(s->k, g, s->more));
}

/* The workgroup that has a K block. */
static kval owner_of(const struct shares *s, kval k_block)
{
    struct kir *k = s->k;
    kval larger = kir_add_i(k, s->each, 1), n = kir_mul(k, s->more, larger);
    kval each = kir_max(k, s->each, kir_int(k, 1));
    kval behind = kir_add(k, s->more, kir_div(k, kir_sub(k, k_block, n), each));
    return kir_select(k, kir_lt(k, k_block, n), kir_div(k, k_block, larger), behind);
}

/* Where the sums of a workgroup begin: of a block that another one began, or of one that another one ends. */
static kval sums_at(const struct contraction *p, kval group, kval is_begun)
{
    struct kir *k = p->m->k;
    return kir_mul_i(k, kir_add(k, kir_mul_i(k, group, 2), is_begun), p->s.bm * p->s.bn);
}

static kval element_at(const struct contraction *p, kval sums, kval row, kval col, u32 lanes)
{
    struct kir *k = p->m->k;
    return kir_ramp(k, kir_add(k, sums, kir_add(k, kir_mul_i(k, row, p->s.bn), col)), 1, lanes);
}

void stream_k_init(struct contraction *p)
{
    struct kir *k = p->m->k;
    p->partial = kir_alloc(k, KS_TEMP, p->type, 1, kir_int(k, p->s.stream_k * 2 * p->s.bm * p->s.bn));
}

/* Piece i of workgroup g: a part of a block, or a whole one. A workgroup without any has a K block whose sums are not read, so that
   every loop around barriers has an iteration; there are OpenCL implementations that need it. */
static void open_piece(struct contraction *p, const struct shares *s, kval g, kval from, kval to, kval n, kval i)
{
    struct kir *k = p->m->k;
    kval zero = kir_int(k, 0), one = kir_int(k, 1), all = contract_blocks(p);
    kval is_share = kir_lt(k, i, n), is_there = kir_lt(k, i, kir_add(k, n, s->waves));
    kval whole = kir_add(k, s->shared, kir_add(k, kir_mul_i(k, kir_sub(k, i, n), p->s.stream_k), g));
    kval block = kir_select(k, is_share, kir_add(k, kir_div(k, from, s->k_blocks), i), whole);
    block = kir_min(k, block, kir_add_i(k, all, -1));
    kval base = kir_mul(k, block, s->k_blocks);
    p->from = kir_select(k, is_share, kir_max(k, kir_sub(k, from, base), zero), zero);
    kval end = kir_select(k, is_share, kir_min(k, kir_sub(k, to, base), s->k_blocks), kir_select(k, is_there, s->k_blocks, one));
    p->to = kir_min(k, end, p->n_k_blocks);
    p->is_whole = kir_bin(k, KI_AND, is_there, kir_bin(k, KI_EQ, kir_sub(k, end, p->from), s->k_blocks));
    p->sums = sums_at(p, g, kir_select(k, kir_lt(k, zero, p->from), zero, one));
    contract_place(p, block);
}

void stream_k_open(struct contraction *p)
{
    struct kir *k = p->m->k;
    kval zero = kir_int(k, 0), one = kir_int(k, 1), g = kir_grid(k, kir_int(k, p->s.stream_k));
    contract_enter(p);
    struct shares s = shares_of(p);
    kval from = begin_of(&s, g), to = begin_of(&s, kir_add_i(k, g, 1));
    kval n = kir_add_i(k, kir_sub(k, kir_div(k, kir_add_i(k, to, -1), s.k_blocks), kir_div(k, from, s.k_blocks)), 1);
    n = kir_select(k, kir_lt(k, from, to), n, zero);
    kval pieces = kir_max(k, kir_add(k, n, s.waves), kir_min(k, contract_blocks(p), one));
    open_piece(p, &s, g, from, to, n, kir_loop(k, KL_SERIAL, zero, pieces, 1));
}

void stream_k_keep(struct contraction *p, kval row, kval col, kval val)
{
    struct kir *k = p->m->k;
    kir_store(k, p->partial, element_at(p, p->sums, row, col, kir_lanes(k, val)), val);
}

/* The sums of one workgroup, to the registers or added to them. */
static void take(struct contraction *p, const struct wg_share *all, kval reg, kval sums, bool is_first)
{
    struct kir *k = p->m->k;
    for (i64 i = 0; i < wg_share_turns(all); i++) {
        kval row, col, at = kir_int(k, i);
        bool some = wg_share_at(all, i, &row, &col);
        kval v = kir_load(k, p->partial, element_at(p, sums, row, col, all->lanes));
        kir_store(k, reg, at, is_first ? v : kir_add(k, kir_load(k, reg, at), v));
        if (some) kir_end(k);
    }
}

static void add_up(struct contraction *p, const struct wg_share *all, const struct shares *s, kval g, kval base)
{
    struct kir *k = p->m->k;
    kval last = owner_of(s, kir_add_i(k, kir_add(k, base, s->k_blocks), -1)), zero = kir_int(k, 0);
    kval reg = kir_alloc(k, KS_REG, p->type, all->lanes, kir_int(k, wg_share_turns(all)));
    take(p, all, reg, sums_at(p, g, kir_int(k, 1)), true);
    kval other = kir_loop(k, KL_SERIAL, kir_add_i(k, g, 1), kir_add_i(k, last, 1), 1);
    take(p, all, reg, sums_at(p, other, zero), false);
    kir_end(k);
    for (i64 i = 0; i < wg_share_turns(all); i++) {
        kval row, col;
        bool some = wg_share_at(all, i, &row, &col);
        contract_store_whole(p, row, col, kir_load(k, reg, kir_int(k, i)));
        if (some) kir_end(k);
    }
}

/* All threads must have read the shared arrays before K blocks of the next block are copied there. */
void stream_k_close(struct contraction *p)
{
    struct kir *k = p->m->k;
    u32 lanes = gen_static(p->m->g, p->x.n, 0) == 1 ? 1 : (u32)i64_min(4, p->s.bn);
    struct wg_share all = {.g = &p->g, .rows = p->s.bm, .cols = p->s.bn, .lanes = lanes};
    kir_barrier(k);
    kir_end(k);
    kir_end(k);
    kval g = kir_grid(k, kir_int(k, p->s.stream_k));
    wg_enter(&p->g);
    struct shares s = shares_of(p);
    kval from = begin_of(&s, g), to = begin_of(&s, kir_add_i(k, g, 1));
    kval block = kir_div(k, to, s.k_blocks), base = kir_mul(k, block, s.k_blocks);
    kval is_begun = kir_bin(k, KI_LE, from, base), is_left = kir_lt(k, base, to);
    p->is_whole = 0;
    kir_if(k, kir_bin(k, KI_AND, is_begun, is_left));
    contract_place(p, block);
    add_up(p, &all, &s, g, base);
    kir_end(k);
    kir_end(k);
}

/* K blocks are counted in 32 bits: between one and two blocks of a workgroup have fewer, unless blocks are tiny. */
bool stream_k_is_legal(const struct caps *c, i64 bm, i64 bn, i64 bk, i64 split_k)
{
    return split_k == 1 && c->n_threads > 0 && c->n_threads <= MAX_UNITS && i64_min(bm, bn) * bk >= LEAST;
}
