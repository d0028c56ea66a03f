// SPDX-License-Identifier: Apache-2.0
//
// blocking: what a division of a contraction into blocks costs, whatever its leaf and addressing.
#include "gen/contract.h"

#include <math.h>

static const double storing = 6; /* of an element of the result */
static const double raster_misses = 0.16;

i64 blocking_shared(const struct blocking *s, i64 pad)
{
    i64 lines = i64_max(s->bm, s->bk) * (i64_min(s->bm, s->bk) + pad) +
                i64_max(s->bn, s->bk) * (i64_min(s->bn, s->bk) + pad);
    return s->stages * lines;
}

bool blocking_fits_size(i64 block, i64 least, i64 size)
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
    return blocking_fits_size(s->bm, 16, m) && blocking_fits_size(s->bn, 16, n) &&
           blocking_fits_size(s->bk, 16, k);
}

struct wg_facts blocking_facts(const struct gen_problem *p, const struct gemm *x, const struct blocking *s, double a, double b)
{
    const i64 *var = p->var;
    double m = (double)gen_eval(x->g, x->m, var), n = (double)gen_eval(x->g, x->n, var), k = (double)gen_eval(x->g, x->k, var), batch = 1;
    double size = (double)dtype_size(graph_value(x->g, x->a)->dtype), bm = (double)s->bm, bn = (double)s->bn, bk = (double)s->bk;
    for (u32 i = 0; i < x->outer.n; i++) batch *= (double)gen_eval(x->g, x->outer.g[i].extent, var);
    a += gen_problem_front(p, 0), b += x->b_const ? 0 : gen_problem_front(p, 1); /* weights of convolutions are packed apart */
    double blocks = batch * (double)ceil_div((i64)m, s->bm) * (double)ceil_div((i64)n, s->bn), k_blocks = (double)ceil_div((i64)k, s->bk);
    double workgroups = s->stream_k ? (double)s->stream_k : blocks * (double)s->split_k, pieces = s->stream_k ? blocks / workgroups + 1 : 1;
    double sums = s->stream_k ? 4 * workgroups * bm * bn : x->simple && s->split_k == 1 ? 0 : 2 * (double)s->split_k * batch * m * n;
    return (struct wg_facts){.workgroups = workgroups,
                             .threads = s->threads,
                             .ilp = WG_COPY_ILP,
                             .steps = ceil(blocks * k_blocks / workgroups),
                             .step = {.fmas = bm * bn * bk,
                                      .instructions = bk * (bm * a + bn * b),
                                      .moved = 2 * bk * (bm + bn) * size,
                                      .barriers = s->stages > 1 ? 1 : 2},
                             .rest = {.instructions = storing * pieces * bm * bn},
                             .ahead = s->pipe != PIPE_NONE,
                             .bytes = size * batch * (m * k + k * n + m * n),
                             .requested = size * blocks * k_blocks * bk * (bm + bn),
                             .misses = s->raster > 1 ? raster_misses : 0,
                             .later = 4 * sums,
                             .n_later = sums > 0};
}
