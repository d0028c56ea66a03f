// SPDX-License-Identifier: Apache-2.0
//
// Threads and memory of a GEMM's configuration, and its description. Fields that follow from others are checked here and nowhere else;
// limits of devices and families are not.
#include "lab/config.h"

static i64 bm(const struct lab_config *c) { return c->v[LF_BM]; }
static i64 bn(const struct lab_config *c) { return c->v[LF_BN]; }
static i64 bk(const struct lab_config *c) { return c->v[LF_BK]; }

static double flops(const struct lab_config *c)
{
    double f = 2.0 * (double)c->m * (double)c->n * (double)c->k;
    for (u32 i = 0; i < c->n_batch; i++) f *= (double)c->batch[i];
    return f;
}

static i64 threads(const struct lab_config *c)
{
    return (i64)c->v[LF_WLY] * c->v[LF_WLX] * c->v[LF_BLY] * c->v[LF_BLX] * c->v[LF_LSU];
}

static i64 shared(const struct lab_config *c, i64 size)
{
    i64 tiles = (bm(c) + bn(c)) * bk(c) * (c->v[LF_SP] ? 2 : 1), sums = bm(c) * bn(c) * c->v[LF_LSU];
    return size * (c->v[LF_LSU] > 1 ? i64_max(tiles, sums) : tiles);
}

static i64 registers(const struct lab_config *c)
{
    i64 tm = c->v[LF_TM], tn = c->v[LF_TN];
    return tm * tn + (tm + tn) * (c->v[LF_RP] ? 2 : 1);
}

/* Checks. */

static bool check_stores(const struct lab_config *c, struct err *e)
{
    const struct lab_tile block = {threads(c), bm(c) * bn(c), "the block"};
    if (c->v[LF_LSU] == 1)
        return c->v[LF_GSW] == 0 || err_set(e, ERR_INPUT, "'GSW%d' with LSU1: K is not split inside the workgroup", c->v[LF_GSW]);
    if (c->v[LF_GSW] == 0) return err_set(e, ERR_INPUT, "'GSW0' with LSU%d: no store of the sums", c->v[LF_LSU]);
    return lab_shares(c, LF_GSW, &block, e);
}

static bool check_tiles(const struct lab_config *c, struct err *e)
{
    const struct lab_tile left = {threads(c), bm(c) * bk(c), "the left tile"}, right = {threads(c), bn(c) * bk(c), "the right tile"};
    return lab_divides(c, LF_BSWM, LF_TM, e) && lab_divides(c, LF_BSWN, LF_TN, e) && lab_divides(c, LF_WSWM, LF_BSWM, e) &&
           lab_divides(c, LF_WSWN, LF_BSWN, e) && lab_divides(c, LF_LSU, LF_BK, e) && lab_shares(c, LF_GLWA, &left, e) &&
           lab_shares(c, LF_GLWB, &right, e);
}

static bool check(const struct lab_config *c, struct err *e)
{
    static const struct lab_product rows = {LF_BM, LF_TM, LF_WLY, LF_BLY}, columns = {LF_BN, LF_TN, LF_WLX, LF_BLX};
    if (!lab_is_product(c, &rows, e) || !lab_is_product(c, &columns, e)) return false;
    if ((i64)c->v[LF_WLY] * c->v[LF_WLX] != c->v[LF_W])
        return err_set(e, ERR_INPUT, "'W%d' is not WLY%d x WLX%d", c->v[LF_W], c->v[LF_WLY], c->v[LF_WLX]);
    return lab_group_fits((double)c->v[LF_W] * c->v[LF_BLY] * c->v[LF_BLX] * c->v[LF_LSU], e) && check_tiles(c, e) && check_stores(c, e);
}

/* Description. */

static void put_dims(struct buf *b, const struct lab_config *c, i64 rows, i64 cols)
{
    buf_char(b, '(');
    for (u32 i = 0; i < c->n_batch; i++) buf_printf(b, "%lld, ", (long long)c->batch[i]);
    buf_printf(b, "%lld, %lld)", (long long)rows, (long long)cols);
}

static void put_group(struct buf *b, const struct lab_config *c)
{
    i64 gx = ceil_div(c->n, bn(c)), gy = ceil_div(c->m, bm(c));
    buf_z(b, "grid       ");
    for (u32 i = 0; i < c->n_batch; i++) buf_printf(b, "%lld x ", (long long)c->batch[i]);
    buf_printf(b, "%lld x %lld blocks", (long long)gy, (long long)gx);
    buf_printf(b, "\ngroup      %lld threads: %d subgroups of %d\n", (long long)threads(c),
               c->v[LF_BLY] * c->v[LF_BLX] * c->v[LF_LSU], c->v[LF_W]);
    buf_printf(b, "shared     %lld bytes (f32), %lld (16 bits)\n", (long long)shared(c, 4), (long long)shared(c, 2));
    buf_printf(b, "registers  %lld of a thread for sums and operands\n", (long long)registers(c));
    buf_printf(b, "a K block  a thread loads %lld + %lld elements and does %lld multiply-adds\n",
               (long long)(bm(c) * bk(c) / threads(c)), (long long)(bn(c) * bk(c) / threads(c)),
               (long long)((i64)c->v[LF_TM] * c->v[LF_TN] * bk(c) / c->v[LF_LSU]));
    if (c->m % bm(c) || c->n % bn(c) || c->k % bk(c)) buf_z(b, "edges      blocks and K blocks exceed the matrices\n");
}

static void put_product(struct buf *b, const struct lab_config *c)
{
    bool t = c->v[LF_TRANS];
    buf_z(b, "product    y ");
    put_dims(b, c, c->m, c->n);
    buf_printf(b, " = %s ", t ? "a^T" : "a");
    put_dims(b, c, t ? c->k : c->m, t ? c->m : c->k);
    buf_z(b, " x b ");
    put_dims(b, c, c->k, c->n);
    buf_char(b, '\n');
}

const struct lab_config_ops lab_config_gemm = {flops, threads, shared, registers, check, put_product, put_group};
