// SPDX-License-Identifier: Apache-2.0
//
// gen_block: the parameters of group_gemm and the rules between them. Names are those under which
// such parameters are known elsewhere: wl, bl threads and subgroups along rows (y) and columns (x);
// bsw, wsw how a thread's rows and columns are strewn over the block (struct group_axis). Rows and
// columns of the block follow from them.
//
// Each rule is asked for as soon as the last parameter that it speaks of has a value. Legal is what
// can be emitted and fits the limits; most of that is not worth trying: blocks far larger than the
// result, fragments in single elements, subgroups of another size than the device's.
#include "gen/gen_block.h"

static const i32 v_bool[] = {0, 1};
static const i32 v_w[] = {8, 16, 32, 64};
static const i32 v_wl[] = {1, 2, 4, 8, 16, 32, 64};
static const i32 v_bl[] = {1, 2, 4, 8, 16};
static const i32 v_t[] = {1, 2, 4, 8, 16};
static const i32 v_bk[] = {1, 2, 4, 8, 16, 32, 64};
static const i32 v_lsu[] = {1, 2, 4, 8, 16};
static const i32 v_sp[] = {SP_NONE, SP_DOUBLE, SP_AHEAD, SP_ASYNC, SP_ASYNC_3};
static const i32 v_un[] = {1, 2, 4, 8, 16, 32, 64};
static const i32 v_pad[] = {0, 4, 8};
static const i32 v_glw[] = {1, 2, 4, 8};
static const i32 v_gsw[] = {0, 1, 2, 4};
static const i32 v_map[] = {0, 1, 2, 4, 8, 16, 32};
static const i32 v_chunks[] = {1, 2, 4, 8, 16};
static const i32 v_stream[] = {0, 1, 2, 4, 8};

// clang-format off
const struct gen_param block_param[N_BLOCK] = {
    [B_HALF] = {"half", "1: shared arrays in the operands' own 16-bit type", v_bool, countof(v_bool)},
    [B_W] = {"w", "threads of a subgroup", v_w, countof(v_w)},
    [B_WLY] = {"wly", "threads of a subgroup along rows", v_wl, countof(v_wl)},
    [B_WLX] = {"wlx", "threads of a subgroup along columns", v_wl, countof(v_wl)},
    [B_BLY] = {"bly", "subgroups of a team along rows", v_bl, countof(v_bl)},
    [B_BLX] = {"blx", "subgroups of a team along columns", v_bl, countof(v_bl)},
    [B_TM] = {"tm", "rows of a thread", v_t, countof(v_t)},
    [B_TN] = {"tn", "columns of a thread", v_t, countof(v_t)},
    [B_BK] = {"bk", "terms per round", v_bk, countof(v_bk)},
    [B_LSU] = {"lsu", "teams of threads that share the terms of a round", v_lsu, countof(v_lsu)},
    [B_BSWM] = {"bswm", "rows of a thread within its subgroup's part", v_t, countof(v_t)},
    [B_BSWN] = {"bswn", "columns of a thread within its subgroup's part", v_t, countof(v_t)},
    [B_WSWM] = {"wswm", "neighbouring rows of a thread", v_t, countof(v_t)},
    [B_WSWN] = {"wswn", "neighbouring columns of a thread", v_t, countof(v_t)},
    [B_SP] = {"sp", "0: copy, then multiply; 1: the next round is fetched meanwhile, to shared arrays "
                    "of its own; 2: to registers; 3, 4: rounds are copied ahead without registers, "
                    "2 and 3 in shared arrays", v_sp, countof(v_sp)},
    [B_RP] = {"rp", "1: fragments of the next term are read before this one's are multiplied", v_bool,
              countof(v_bool)},
    [B_UN] = {"un", "terms written out at once", v_un, countof(v_un)},
    [B_PAD] = {"pad", "elements behind each row of a shared array", v_pad, countof(v_pad)},
    [B_SWZ] = {"swz", "1: the shared array is swizzled", v_bool, countof(v_bool)},
    [B_TA] = {"ta", "1: the left operand's shared array has its terms outside whatever memory has", v_bool,
              countof(v_bool)},
    [B_GLWA] = {"glwa", "elements of a load of the left operand, at most", v_glw, countof(v_glw)},
    [B_GLWB] = {"glwb", "elements of a load of the right operand, at most", v_glw, countof(v_glw)},
    [B_LC] = {"lc", "1: loads are shared out through the whole tile; 0: row by row", v_bool, countof(v_bool)},
    [B_GSW] = {"gsw", "elements of a store of the teams' sums; 0: one team", v_gsw, countof(v_gsw)},
    [B_RC] = {"rc", "1: sums are shared out through the whole block; 0: row by row, or one team", v_bool,
              countof(v_bool)},
    [B_MAP] = {"map", "rows of blocks that are walked column by column; 0, 1: none", v_map, countof(v_map)},
    [B_CHUNKS] = {"chunks", "groups that share the terms of a block", v_chunks, countof(v_chunks)},
    [B_STREAM] = {"stream", "groups of a processor; all of them share all rounds evenly; 0: each has a block", v_stream,
                  countof(v_stream)},
};
// clang-format on

enum {
    MAX_CODE = 8192,    /* multiply-adds written out */
    USUAL_CODE = 2048,
    MAX_COPIED = 128,   /* elements of one operand that a thread copies per round */
    USUAL_THREADS = 512,
    WIDE = 16           /* bytes of a load */
};

struct block block_of(const struct sched *s)
{
    struct block b;
    for (u32 i = 0; i < N_BLOCK; i++) b.v[i] = s->v[i];
    b.bm = b.v[B_TM] * b.v[B_WLY] * b.v[B_BLY];
    b.bn = b.v[B_TN] * b.v[B_WLX] * b.v[B_BLX];
    b.team = b.v[B_W] * b.v[B_BLY] * b.v[B_BLX];
    b.threads = b.team * b.v[B_LSU];
    return b;
}

enum group_pipe block_pipe(const struct block *s)
{
    if (s->v[B_SP] == SP_DOUBLE) return PIPE_DOUBLE;
    if (s->v[B_SP] >= SP_ASYNC) return PIPE_ASYNC;
    return s->v[B_SP] == SP_AHEAD ? PIPE_AHEAD : PIPE_NONE;
}

i64 block_stages(const struct block *s)
{
    static const u8 stages[] = {[SP_NONE] = 1, [SP_DOUBLE] = 2, [SP_AHEAD] = 1, [SP_ASYNC] = 2, [SP_ASYNC_3] = 3};
    return stages[s->v[B_SP]];
}

/* The teams' sums take the place of the operands where they are of one type. */
i64 block_shared(const struct block *s, i64 size)
{
    struct product_sched p = {.bm = s->bm, .bn = s->bn, .bk = s->v[B_BK], .stages = block_stages(s)};
    i64 sum = i64_max(4, size), n = product_shared(&p, s->v[B_PAD]);
    i64 sums = s->v[B_LSU] > 1 ? s->v[B_LSU] * s->bm * s->bn * sum : 0;
    return s->v[B_HALF] ? n * size + sums : i64_max(n * sum, sums);
}

bool block_task_of(struct block_task *x, const struct task *t, const i64 *var)
{
    if (!gemm_of(&x->x, t)) return false;
    x->m = gen_eval(&t->g, x->x.m, var);
    x->n = gen_eval(&t->g, x->x.n, var);
    x->k = gen_eval(&t->g, x->x.k, var);
    x->batch = 1;
    for (u32 i = 0; i < x->x.outer.n; i++) x->batch *= gen_eval(&t->g, x->x.outer.g[i].extent, var);
    x->size = dtype_size(graph_value(&t->g, x->x.a)->dtype);
    x->is_column = gen_static(&t->g, x->x.n, 0) == 1;
    return true;
}

/* Rules of what can be emitted. */

static i64 registers(const struct block *s)
{
    const i64 *v = s->v;
    i64 copied = v[B_SP] == SP_DOUBLE || v[B_SP] == SP_AHEAD ? v[B_BK] * (s->bm + s->bn) / s->threads : 0;
    return v[B_TM] * v[B_TN] + (v[B_RP] + 1) * (v[B_TM] + v[B_TN]) + copied;
}

/* Vectors of `lanes` elements of a tile: one at least for every thread. */
static bool shares(i64 elements, i64 threads, i64 lanes)
{
    return lanes == 1 || elements % (threads * lanes) == 0;
}

static bool fits_shared(const struct block_task *x, const struct caps *c, const struct block *s)
{
    return block_shared(s, x->size) <= c->shared_bytes;
}

static bool fits_threads(const struct caps *c, const struct block *s)
{
    i64 copied = s->v[B_BK] * i64_max(s->bm, s->bn) / s->threads;
    return s->threads <= c->max_group && s->v[B_LSU] <= s->v[B_BK] && copied <= MAX_COPIED;
}

static bool fits_store(const struct block_task *x, const struct block *s)
{
    i64 n = s->v[B_GSW];
    if (s->v[B_LSU] == 1 || n == 0) return s->v[B_LSU] == 1 && n == 0;
    return n <= s->bn && shares(s->bm * s->bn, s->threads, n) && (n == 1 || !x->is_column);
}

/* Terms are added one by one to a sum of full width. */
static bool is_in_order(const i64 *v, u32 p)
{
    if (p == B_LSU || p == B_CHUNKS) return v[p] <= 1;
    return !((p == B_STREAM || p == B_HALF) && v[p]);
}

bool block_fits(const struct block_task *x, const struct caps *c, const struct block *s, u32 p)
{
    const i64 *v = s->v;
    if (c->deterministic && !is_in_order(v, p)) return false;
    switch (p) {
    case B_HALF: return !v[B_HALF] || x->size == 2;
    case B_WLX: return v[B_WLY] * v[B_WLX] == v[B_W];
    case B_BLX: return s->team <= c->max_group;
    case B_TN: return group_has_registers(c, s->team, v[B_TM] * v[B_TN] + v[B_TM] + v[B_TN]);
    case B_LSU: return fits_threads(c, s) && fits_shared(x, c, s);
    case B_BSWM: return v[B_BSWM] <= v[B_TM];
    case B_BSWN: return v[B_BSWN] <= v[B_TN];
    case B_WSWM: return v[B_WSWM] <= v[B_BSWM];
    case B_WSWN: return v[B_WSWN] <= v[B_BSWN];
    case B_SP: return fits_shared(x, c, s);
    case B_RP: return group_has_registers(c, s->threads, registers(s));
    case B_UN: return v[B_TM] * v[B_TN] * i64_min(v[B_UN], v[B_BK] / v[B_LSU]) <= MAX_CODE;
    case B_PAD: return fits_shared(x, c, s);
    case B_TA: return !v[B_TA] || x->x.a_plain;
    case B_GLWA: return v[B_GLWA] * x->size <= WIDE && shares(s->bm * v[B_BK], s->threads, v[B_GLWA]);
    case B_GLWB: return v[B_GLWB] * x->size <= WIDE && shares(s->bn * v[B_BK], s->threads, v[B_GLWB]);
    case B_GSW: return fits_store(x, s);
    case B_RC: return v[B_LSU] > 1 || !v[B_RC];
    case B_STREAM: return !v[B_STREAM] || stream_is_legal(c, s->bm, s->bn, v[B_BK], v[B_CHUNKS]);
    default: return true;
    }
}

bool block_is_legal(const struct block_task *x, const struct caps *c, const struct block *s)
{
    for (u32 p = 0; p < N_BLOCK; p++)
        if (!block_fits(x, c, s, p)) return false;
    return true;
}

/* Rules of what is worth trying. */

/* A block is at most twice too large. */
static bool is_useful(i64 block, i64 least, i64 size) { return block <= least || block < 2 * size; }

static i64 usual_subgroup(const struct caps *c)
{
    return c->subgroup ? i64_max(8, i64_min(c->subgroup, 64)) : 32;
}

static bool is_shape_worth(const struct block_task *x, const struct block *s)
{
    i64 sums = s->v[B_TM] * s->v[B_TN];
    if (!is_useful(s->bn, 16, x->n)) return false;
    if (s->bm > 4 * s->bn && x->n > s->bn) return false;
    if (s->bn > 4 * s->bm && x->m > s->bm) return false;
    return sums <= 128 && (sums >= 4 || x->m * x->n < 4096);
}

static bool is_round_worth(const struct block_task *x, const struct block *s)
{
    i64 bk = s->v[B_BK];
    return is_useful(bk, 16, x->k) && (bk >= 8 || bk >= x->k) && bk * x->size <= 128;
}

i64 block_count(const struct block_task *x, const struct block *s)
{
    return x->batch * ceil_div(x->m, s->bm) * ceil_div(x->n, s->bn);
}

/* More than two teams only where few groups leave the device idle. */
static bool are_teams_worth(const struct block_task *x, const struct caps *c, const struct block *s)
{
    i64 n = s->v[B_LSU];
    if (s->threads < group_least(c) || s->threads > USUAL_THREADS) return false;
    if (n > 1 && (2 * n > s->v[B_BK] || x->k < 4 * s->v[B_BK])) return false;
    return n <= 2 || block_count(x, s) <= 256 || s->team < group_least(c);
}

/* As wide as possible, or half of that. */
static bool is_load_worth(const struct block_task *x, const struct block *s, i64 wide, i64 block, i64 extent,
                          bool is_plain)
{
    i64 most = WIDE / x->size;
    while (most > 1 && (!shares(block * s->v[B_BK], s->threads, most) ||
                        (extent % most && (is_plain || x->k % most))))
        most /= 2;
    return wide <= most && 2 * wide >= most;
}

/* All of a thread's elements in one part, or in parts for each subgroup's. */
static bool is_part_worth(i64 within, i64 n, i64 subgroups)
{
    return within == n || (subgroups > 1 && 2 * within >= i64_min(n, 4));
}

static bool are_chunks_worth(const struct block_task *x, const struct block *s)
{
    i64 chunks = s->v[B_CHUNKS];
    return chunks == 1 || (x->k >= 8 * chunks * s->v[B_BK] && block_count(x, s) <= 256);
}

/* The last wave of blocks would leave some groups idle, and nobody gets less than a few rounds. */
static bool is_stream_worth(const struct block_task *x, const struct caps *c, const struct block *s)
{
    i64 groups = s->v[B_STREAM] * c->n_threads, blocks = block_count(x, s);
    return !groups || (blocks % groups && blocks < 8 * groups && blocks * ceil_div(x->k, s->v[B_BK]) >= 4 * groups);
}

bool block_is_worth(const struct block_task *x, const struct caps *c, const struct block *s, u32 p)
{
    const i64 *v = s->v;
    i64 share = v[B_LSU] ? v[B_BK] / v[B_LSU] : 0;
    switch (p) {
    case B_W: return v[B_W] == usual_subgroup(c);
    case B_BLX: return s->team <= USUAL_THREADS;
    case B_TM: return is_useful(s->bm, 16, x->m) && s->bm <= 256;
    case B_TN: return is_shape_worth(x, s) && s->bn <= 256;
    case B_BK: return is_round_worth(x, s);
    case B_LSU: return are_teams_worth(x, c, s);
    case B_BSWM: return is_part_worth(v[B_BSWM], v[B_TM], v[B_BLY]);
    case B_BSWN: return is_part_worth(v[B_BSWN], v[B_TN], v[B_BLX]);
    case B_WSWM: return v[B_WSWM] <= 4;
    case B_WSWN: return v[B_WSWN] <= 4;
    case B_SP: return v[B_SP] < SP_ASYNC || x->x.a_plain || x->x.b_plain;
    case B_UN: return v[B_UN] <= share && (v[B_UN] >= 4 || v[B_UN] == share) &&
                      v[B_TM] * v[B_TN] * v[B_UN] <= USUAL_CODE;
    case B_PAD: return v[B_PAD] < 8 || v[B_HALF];
    case B_SWZ: return !v[B_SWZ] || !v[B_PAD];
    case B_GLWA: return is_load_worth(x, s, v[B_GLWA], s->bm, x->x.a_plain ? x->k : x->m, x->x.a_plain);
    case B_GLWB: return is_load_worth(x, s, v[B_GLWB], s->bn, x->n, x->x.b_plain);
    case B_LC: return v[B_LC] == 1;
    case B_GSW: return v[B_GSW] != 1 || x->is_column || !shares(s->bm * s->bn, s->threads, 2) || s->bn < 2;
    case B_RC: return v[B_RC] == (v[B_LSU] > 1);
    case B_MAP: return v[B_MAP] == 0 || (v[B_MAP] > 2 && x->m > 2 * s->bm && x->n > s->bn);
    case B_CHUNKS: return are_chunks_worth(x, s);
    case B_STREAM: return is_stream_worth(x, c, s);
    default: return true;
    }
}
