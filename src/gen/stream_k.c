// SPDX-License-Identifier: Apache-2.0
//
// stream_k: products by as many groups as the device runs at once, each with the same number of rounds
// whatever the number of blocks: Osama, Merrill, Cecka, Garland and Owens, Stream-K: Work-centric Parallel Decomposition for
// Dense Matrix-Matrix Multiplication on the GPU, 2023, sections 4 and 5 (two-tile stream-K with data-parallel waves). Every group
// takes its share of the rounds of the first blocks, between one and two for each group, then whole blocks.
//
// Where groups meet inside a block each leaves its sums in a TEMP array, and a second grid adds them: by the group that began the
// block, in the order of the rounds. So nobody waits for anybody, and sums do not depend on who was first.
#include "gen/contract.h"

enum { MAX_UNITS = 1024, LEAST = 128 /* elements of an operand in a round */ };

/* Blocks are numbered in the order of the walk; rounds of shared blocks are numbered through, group g has
   g*each + min(g, more) and those behind up to the next group's. */
struct shares {
    struct kir *k;
    kval rounds;        /* of a block, at least 1 */
    kval shared, waves; /* blocks that are shared; whole ones of a group behind them */
    kval each, more;
};

static struct shares shares_of(const struct contraction *p)
{
    struct kir *k = p->m->k;
    kval all = contract_blocks(p), groups = kir_int(k, p->s.stream_k), zero = kir_int(k, 0);
    struct shares s = {.k = k, .rounds = kir_max(k, contract_block_k_blocks(p), kir_int(k, 1))};
    s.waves = kir_max(k, kir_add_i(k, kir_div(k, all, groups), -1), zero);
    s.shared = kir_sub(k, all, kir_mul(k, s.waves, groups));
    kval n = kir_mul(k, s.shared, s.rounds);
    s.each = kir_div(k, n, groups), s.more = kir_mod(k, n, groups);
    return s;
}

static kval begin_of(const struct shares *s, kval g)
{
    return kir_add(s->k, kir_mul(s->k, g, s->each), kir_min(s->k, g, s->more));
}

/* The group that has a round. */
static kval owner_of(const struct shares *s, kval round)
{
    struct kir *k = s->k;
    kval larger = kir_add_i(k, s->each, 1), n = kir_mul(k, s->more, larger);
    kval each = kir_max(k, s->each, kir_int(k, 1));
    kval behind = kir_add(k, s->more, kir_div(k, kir_sub(k, round, n), each));
    return kir_select(k, kir_lt(k, round, n), kir_div(k, round, larger), behind);
}

/* Where the sums of a group begin: of a block that another one began, or of one that another one ends. */
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

/* Piece i of group g: a part of a block, or a whole one. Behind its last piece, which happens to groups without any: a round whose
   sums nobody reads, so that every loop around barriers has an iteration; there are OpenCL implementations that need it. */
static void open_piece(struct contraction *p, const struct shares *s, kval g, kval from, kval to, kval n, kval i)
{
    struct kir *k = p->m->k;
    kval zero = kir_int(k, 0), one = kir_int(k, 1), all = contract_blocks(p);
    kval is_share = kir_lt(k, i, n), is_there = kir_lt(k, i, kir_add(k, n, s->waves));
    kval whole = kir_add(k, s->shared, kir_add(k, kir_mul_i(k, kir_sub(k, i, n), p->s.stream_k), g));
    kval block = kir_select(k, is_share, kir_add(k, kir_div(k, from, s->rounds), i), whole);
    block = kir_min(k, block, kir_add_i(k, all, -1));
    kval base = kir_mul(k, block, s->rounds);
    p->from = kir_select(k, is_share, kir_max(k, kir_sub(k, from, base), zero), zero);
    kval end = kir_select(k, is_share, kir_min(k, kir_sub(k, to, base), s->rounds), kir_select(k, is_there, s->rounds, one));
    p->to = kir_min(k, end, p->n_rounds);
    p->is_whole = kir_bin(k, KI_AND, is_there, kir_bin(k, KI_EQ, kir_sub(k, end, p->from), s->rounds));
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
    kval n = kir_add_i(k, kir_sub(k, kir_div(k, kir_add_i(k, to, -1), s.rounds), kir_div(k, from, s.rounds)), 1);
    n = kir_select(k, kir_lt(k, from, to), n, zero);
    kval pieces = kir_max(k, kir_add(k, n, s.waves), kir_min(k, contract_blocks(p), one));
    open_piece(p, &s, g, from, to, n, kir_loop(k, KL_SERIAL, zero, pieces, 1));
}

void stream_k_keep(struct contraction *p, kval row, kval col, kval val)
{
    struct kir *k = p->m->k;
    kir_store(k, p->partial, element_at(p, p->sums, row, col, kir_lanes(k, val)), val);
}

/* One group's sums of the block, a vector a turn, to the registers or added to what is there. */
static void take(struct contraction *p, const struct group_share *all, kval reg, kval sums, bool is_first)
{
    struct kir *k = p->m->k;
    for (i64 i = 0; i < group_share_turns(all); i++) {
        kval row, col, at = kir_int(k, i);
        bool some = group_share_at(all, i, &row, &col);
        kval v = kir_load(k, p->partial, element_at(p, sums, row, col, all->lanes));
        kir_store(k, reg, at, is_first ? v : kir_add(k, kir_load(k, reg, at), v));
        if (some) kir_end(k);
    }
}

static void add_up(struct contraction *p, const struct group_share *all, const struct shares *s, kval g, kval base)
{
    struct kir *k = p->m->k;
    kval last = owner_of(s, kir_add_i(k, kir_add(k, base, s->rounds), -1)), zero = kir_int(k, 0);
    kval reg = kir_alloc(k, KS_REG, p->type, all->lanes, kir_int(k, group_share_turns(all)));
    take(p, all, reg, sums_at(p, g, kir_int(k, 1)), true);
    kval other = kir_loop(k, KL_SERIAL, kir_add_i(k, g, 1), kir_add_i(k, last, 1), 1);
    take(p, all, reg, sums_at(p, other, zero), false);
    kir_end(k);
    for (i64 i = 0; i < group_share_turns(all); i++) {
        kval row, col;
        bool some = group_share_at(all, i, &row, &col);
        contract_store(p, row, col, kir_load(k, reg, kir_int(k, i)));
        if (some) kir_end(k);
    }
}

/* Behind a block everybody must have read the shared arrays before the next one's rounds are copied there. */
void stream_k_close(struct contraction *p)
{
    struct kir *k = p->m->k;
    u32 lanes = gen_static(p->m->g, p->x.n, 0) == 1 ? 1 : (u32)i64_min(4, p->s.bn);
    struct group_share all = {.g = &p->g, .rows = p->s.bm, .cols = p->s.bn, .lanes = lanes};
    kir_barrier(k);
    kir_end(k);
    kir_end(k);
    kval g = kir_grid(k, kir_int(k, p->s.stream_k));
    group_enter(&p->g);
    struct shares s = shares_of(p);
    kval from = begin_of(&s, g), to = begin_of(&s, kir_add_i(k, g, 1));
    kval block = kir_div(k, to, s.rounds), base = kir_mul(k, block, s.rounds);
    kval is_begun = kir_bin(k, KI_LE, from, base), is_left = kir_lt(k, base, to);
    p->is_whole = 0;
    kir_if(k, kir_bin(k, KI_AND, is_begun, is_left));
    contract_place(p, block);
    add_up(p, &all, &s, g, base);
    kir_end(k);
    kir_end(k);
}

/* Rounds are counted in 32 bits: between one and two blocks of a group have fewer, as long as blocks are not tiny. */
bool stream_k_is_legal(const struct caps *c, i64 bm, i64 bn, i64 bk, i64 chunks)
{
    return chunks == 1 && c->n_threads > 0 && c->n_threads <= MAX_UNITS && i64_min(bm, bn) * bk >= LEAST;
}
