// SPDX-License-Identifier: Apache-2.0
//
// block: the parameters of wg_gemm and the rules between them. Names are those under which
// such parameters are known elsewhere: wl, bl threads and subgroups along rows (y) and columns (x);
// bsw, wsw how a thread's rows and columns are strewn over the block (struct fma_axis). Rows and
// columns of the block follow from them.
//
// Each rule is asked for as soon as the last parameter that it speaks of has a value. Legal is what
// can be emitted and fits the limits; most of that is not worth trying: blocks far larger than the
// result, fragments in single elements, subgroups of another size than the device's.
#include "gen/block.h"


const struct gen_param block_param[N_PARAM] = {BLOCK_PARAMS(GEN_PARAM_ROW)};

enum {
    MAX_CODE = 8192,    /* multiply-adds written out */
    USUAL_CODE = 2048,
    MAX_COPIED = 128,   /* elements of one operand that a thread copies per K block */
    USUAL_THREADS = 512,
    WIDE = 16           /* bytes of a load */
};

GEN_PARAM_READER(struct block, read_block, BLOCK_PARAMS)

struct block block_of(const struct sched *s)
{
    struct block b = read_block(s);
    b.bm = b.tm * b.wly * b.bly;
    b.bn = b.tn * b.wlx * b.blx;
    b.slice_threads = b.w * b.bly * b.blx;
    b.threads = b.slice_threads * b.split_k_local;
    return b;
}

struct blocking block_blocking(const struct block *s, const struct caps *c)
{
    static const struct { u8 pipe, stages; } of[] = {[SP_NONE] = {PIPE_NONE, 1},   [SP_DOUBLE] = {PIPE_DOUBLE, 2}, [SP_AHEAD] = {PIPE_AHEAD, 1},
                                                     [SP_ASYNC] = {PIPE_ASYNC, 2}, [SP_ASYNC_3] = {PIPE_ASYNC, 3}};
    return (struct blocking){.bm = s->bm,
                             .bn = s->bn,
                             .bk = s->bk,
                             .threads = s->threads,
                             .pipe = (enum wg_pipe)of[s->sp].pipe,
                             .stages = of[s->sp].stages,
                             .raster = i64_max(1, s->raster),
                             .split_k = s->split_k,
                             .stream_k = s->stream_k * c->n_threads};
}

/* The slices' sums take the place of the operands where they are of one type. */
i64 block_shared(const struct block *s, const struct caps *c, i64 size)
{
    struct blocking p = block_blocking(s, c);
    i64 sum = i64_max(4, size), n = blocking_shared(&p, s->pad);
    i64 sums = s->split_k_local > 1 ? s->split_k_local * s->bm * s->bn * sum : 0;
    return s->half ? n * size + sums : i64_max(n * sum, sums);
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
    i64 copied = s->sp == SP_DOUBLE || s->sp == SP_AHEAD ? s->bk * (s->bm + s->bn) / s->threads : 0;
    return s->tm * s->tn + (s->rp + 1) * (s->tm + s->tn) + copied;
}

/* Vectors of `lanes` elements of a tile: one at least for every thread. */
static bool shares(i64 elements, i64 threads, i64 lanes)
{
    return lanes == 1 || elements % (threads * lanes) == 0;
}

static bool fits_shared(const struct block_task *x, const struct caps *c, const struct block *s)
{
    return block_shared(s, c, x->size) <= c->shared_bytes;
}

static bool fits_threads(const struct caps *c, const struct block *s)
{
    i64 copied = s->bk * i64_max(s->bm, s->bn) / s->threads;
    return s->threads <= c->max_group && s->split_k_local <= s->bk && copied <= MAX_COPIED;
}

static bool fits_store(const struct block_task *x, const struct block *s)
{
    i64 n = s->gsw;
    if (s->split_k_local == 1 || n == 0) return s->split_k_local == 1 && n == 0;
    return n <= s->bn && shares(s->bm * s->bn, s->threads, n) && (n == 1 || !x->is_column);
}

/* Terms are added one by one to a sum of full width. */
static bool is_in_order(const struct block *s, u32 p)
{
    switch (p) {
    case P_split_k_local: return s->split_k_local <= 1;
    case P_split_k: return s->split_k <= 1;
    case P_stream_k: return !s->stream_k;
    case P_half: return !s->half;
    default: return true;
    }
}

bool block_fits(const struct block_task *x, const struct caps *c, const struct block *s, u32 p)
{
    if (c->deterministic && !is_in_order(s, p)) return false;
    switch (p) {
    case P_half: return !s->half || x->size == 2;
    case P_wlx: return s->wly * s->wlx == s->w;
    case P_blx: return s->slice_threads <= c->max_group;
    case P_tn: return wg_has_registers(c, s->slice_threads, s->tm * s->tn + s->tm + s->tn);
    case P_split_k_local: return fits_threads(c, s) && fits_shared(x, c, s);
    case P_bswm: return s->bswm <= s->tm;
    case P_bswn: return s->bswn <= s->tn;
    case P_wswm: return s->wswm <= s->bswm;
    case P_wswn: return s->wswn <= s->bswn;
    case P_sp: return fits_shared(x, c, s);
    case P_rp: return wg_has_registers(c, s->threads, registers(s));
    case P_un: return s->tm * s->tn * i64_min(s->un, s->bk / s->split_k_local) <= MAX_CODE;
    case P_pad: return fits_shared(x, c, s);
    case P_ta: return !s->ta || x->x.a_plain;
    case P_glwa: return s->glwa * x->size <= WIDE && shares(s->bm * s->bk, s->threads, s->glwa);
    case P_glwb: return s->glwb * x->size <= WIDE && shares(s->bn * s->bk, s->threads, s->glwb);
    case P_gsw: return fits_store(x, s);
    case P_rc: return s->split_k_local > 1 || !s->rc;
    case P_stream_k: return !s->stream_k || stream_k_is_legal(c, s->bm, s->bn, s->bk, s->split_k);
    default: return true;
    }
}

bool block_is_legal(const struct block_task *x, const struct caps *c, const struct block *s)
{
    for (u32 p = 0; p < N_PARAM; p++)
        if (!block_fits(x, c, s, p)) return false;
    return true;
}

/* Rules of what is worth trying. */

static i64 usual_subgroup(const struct caps *c)
{
    return c->subgroup ? i64_max(8, i64_min(c->subgroup, 64)) : 32;
}

static bool is_shape_worth(const struct block_task *x, const struct block *s)
{
    i64 sums = s->tm * s->tn;
    if (!blocking_fits_size(s->bn, 16, x->n)) return false;
    if (s->bm > 4 * s->bn && x->n > s->bn) return false;
    if (s->bn > 4 * s->bm && x->m > s->bm) return false;
    return sums <= 128 && (sums >= 4 || x->m * x->n < 4096);
}

static bool is_block_k_worth(const struct block_task *x, const struct block *s)
{
    i64 bk = s->bk;
    return blocking_fits_size(bk, 16, x->k) && (bk >= 8 || bk >= x->k) && bk * x->size <= 128;
}

i64 block_count(const struct block_task *x, const struct block *s)
{
    return x->batch * ceil_div(x->m, s->bm) * ceil_div(x->n, s->bn);
}

/* More than two slices only where few workgroups leave the device idle. */
static bool is_slicing_worth(const struct block_task *x, const struct caps *c, const struct block *s)
{
    i64 n = s->split_k_local;
    if (s->threads < wg_least(c) || s->threads > USUAL_THREADS) return false;
    if (n > 1 && (2 * n > s->bk || x->k < 4 * s->bk)) return false;
    return n <= 2 || block_count(x, s) <= 256 || s->slice_threads < wg_least(c);
}

/* As wide as possible, or half of that. */
static bool is_load_worth(const struct block_task *x, const struct block *s, i64 wide, i64 block, i64 extent,
                          bool is_plain)
{
    i64 most = WIDE / x->size;
    while (most > 1 && (!shares(block * s->bk, s->threads, most) ||
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
    i64 chunks = s->split_k;
    return chunks == 1 || (x->k >= 8 * chunks * s->bk && block_count(x, s) <= 256);
}

/* The last wave of blocks would leave some workgroups idle, and each has at least a few K blocks. */
static bool is_stream_worth(const struct block_task *x, const struct caps *c, const struct block *s)
{
    i64 groups = s->stream_k * c->n_threads, blocks = block_count(x, s);
    return !groups || (blocks % groups && blocks < 8 * groups && blocks * ceil_div(x->k, s->bk) >= 4 * groups);
}

bool block_is_worth(const struct block_task *x, const struct caps *c, const struct block *s, u32 p)
{
    i64 share = s->split_k_local ? s->bk / s->split_k_local : 0;
    switch (p) {
    case P_w: return s->w == usual_subgroup(c);
    case P_blx: return s->slice_threads <= USUAL_THREADS;
    case P_tm: return blocking_fits_size(s->bm, 16, x->m) && s->bm <= 256;
    case P_tn: return is_shape_worth(x, s) && s->bn <= 256;
    case P_bk: return is_block_k_worth(x, s);
    case P_split_k_local: return is_slicing_worth(x, c, s);
    case P_bswm: return is_part_worth(s->bswm, s->tm, s->bly);
    case P_bswn: return is_part_worth(s->bswn, s->tn, s->blx);
    case P_wswm: return s->wswm <= 4;
    case P_wswn: return s->wswn <= 4;
    case P_sp: return s->sp < SP_ASYNC || x->x.a_plain || x->x.b_plain;
    case P_un: return s->un <= share && (s->un >= 4 || s->un == share) &&
                      s->tm * s->tn * s->un <= USUAL_CODE;
    case P_pad: return s->pad < 8 || s->half;
    case P_swz: return !s->swz || !s->pad;
    case P_glwa: return is_load_worth(x, s, s->glwa, s->bm, x->x.a_plain ? x->k : x->m, x->x.a_plain);
    case P_glwb: return is_load_worth(x, s, s->glwb, s->bn, x->n, x->x.b_plain);
    case P_lc: return s->lc == 1;
    case P_gsw: return s->gsw != 1 || x->is_column || !shares(s->bm * s->bn, s->threads, 2) || s->bn < 2;
    case P_rc: return s->rc == (s->split_k_local > 1);
    case P_raster: return s->raster == 0 || (s->raster > 2 && x->m > 2 * s->bm && x->n > s->bn);
    case P_split_k: return are_chunks_worth(x, s);
    case P_stream_k: return is_stream_worth(x, c, s);
    default: return true;
    }
}
