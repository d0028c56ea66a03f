// SPDX-License-Identifier: Apache-2.0
//
// blocking: what a division of a contraction into blocks costs, whatever its leaf and addressing.
#include "gen/contract.h"

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
    struct wg_load load = {
        .groups = s->stream_k ? (double)s->stream_k : blocks * splits,
        .threads = s->threads,
        .flops = 2 * work * blocks * k_blocks * (double)s->bk * area + 6 * copied,
        .bytes = missed * copied * size + size * batch * (m * k + k * n + m * n),
        .barriers = k_blocks * (s->stream_k ? blocks / (double)s->stream_k : 1 / splits) * (s->stages > 1 ? 1 : 2)};
    double later = s->stream_k ? 16 * (double)s->stream_k * area : x->simple && s->split_k == 1 ? 0 : 8 * splits * batch * m * n;
    double rest = later > 0 ? 4e-6 + later / gen_byte_rate(c) : 0;
    return wg_seconds(c, &load) * (s->pipe ? 0.95 : 1) + rest;
}
