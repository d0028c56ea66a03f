// SPDX-License-Identifier: Apache-2.0
//
// Threads and memory of a configuration, and its description. Fields that follow from others are checked here and nowhere else; limits of
// devices and families are not.
#include "lab/lab.h"

static i64 bm(const struct lab_config *c) { return c->v[LF_BM]; }
static i64 bn(const struct lab_config *c) { return c->v[LF_BN]; }
static i64 bk(const struct lab_config *c) { return c->v[LF_BK]; }

double lab_flops(const struct lab_config *c)
{
    double f = 2.0 * (double)c->m * (double)c->n * (double)c->k;
    for (u32 i = 0; i < c->n_batch; i++) f *= (double)c->batch[i];
    return f;
}

double lab_name_flops(struct str name, const struct lab_config *like)
{
    struct lab_config c;
    struct buf b = {0};
    if (lab_name_parse(&c, name, &(struct err){0})) return lab_flops(&c);
    lab_name_product(&b, like);
    buf_char(&b, ' ');
    bool is_this = str_starts(name, buf_view(&b));
    buf_release(&b);
    return is_this ? lab_flops(like) : 0;
}

i64 lab_threads(const struct lab_config *c)
{
    return (i64)c->v[LF_WLY] * c->v[LF_WLX] * c->v[LF_BLY] * c->v[LF_BLX] * c->v[LF_LSU];
}

i64 lab_shared(const struct lab_config *c, i64 size)
{
    i64 tiles = (bm(c) + bn(c)) * bk(c) * (c->v[LF_SP] ? 2 : 1), sums = bm(c) * bn(c) * c->v[LF_LSU];
    return size * (c->v[LF_LSU] > 1 ? i64_max(tiles, sums) : tiles);
}

i64 lab_registers(const struct lab_config *c)
{
    i64 tm = c->v[LF_TM], tn = c->v[LF_TN];
    return tm * tn + (tm + tn) * (c->v[LF_RP] ? 2 : 1);
}

/* Checks. */

/* Whether the first field is the product of three others. */
static bool is_product(const struct lab_config *c, enum lab_field whole, enum lab_field x, enum lab_field y,
                       enum lab_field z, struct err *e)
{
    i64 p = (i64)c->v[x] * c->v[y];
    return p * c->v[z] == c->v[whole] || err_set(e, ERR_INPUT, "'%s%d' is not %s%d x %s%d x %s%d", lab_field(whole)->tag, c->v[whole],
                           lab_field(x)->tag, c->v[x], lab_field(y)->tag, c->v[y], lab_field(z)->tag, c->v[z]);
}

static bool divides(const struct lab_config *c, enum lab_field x, enum lab_field whole, struct err *e)
{
    return c->v[whole] % c->v[x] == 0 || err_set(e, ERR_INPUT, "'%s%d' does not divide %s%d", lab_field(x)->tag, c->v[x],
                                                 lab_field(whole)->tag, c->v[whole]);
}

/* Whether all threads together move a tile of that many elements in loads or stores of this width. */
static bool shares(const struct lab_config *c, enum lab_field width, i64 elements, const char *what, struct err *e)
{
    i64 step = lab_threads(c) * c->v[width];
    return elements % step == 0 ||
           err_set(e, ERR_INPUT, "'%s%d': %lld threads x %d elements do not divide %s of %lld", lab_field(width)->tag,
                   c->v[width], (long long)lab_threads(c), c->v[width], what, (long long)elements);
}

static bool check_stores(const struct lab_config *c, struct err *e)
{
    if (c->v[LF_LSU] == 1)
        return c->v[LF_GSW] == 0 || err_set(e, ERR_INPUT, "'GSW%d' with LSU1: K is not split inside the workgroup", c->v[LF_GSW]);
    if (c->v[LF_GSW] == 0) return err_set(e, ERR_INPUT, "'GSW0' with LSU%d: no store of the sums", c->v[LF_LSU]);
    return shares(c, LF_GSW, bm(c) * bn(c), "the block", e);
}

bool lab_config_check(const struct lab_config *c, struct err *e)
{
    enum { MOST_THREADS = 1024 };
    bool ok = is_product(c, LF_BM, LF_TM, LF_WLY, LF_BLY, e) && is_product(c, LF_BN, LF_TN, LF_WLX, LF_BLX, e);
    if (ok && (i64)c->v[LF_WLY] * c->v[LF_WLX] != c->v[LF_W])
        return err_set(e, ERR_INPUT, "'W%d' is not WLY%d x WLX%d", c->v[LF_W], c->v[LF_WLY], c->v[LF_WLX]);
    double threads = (double)c->v[LF_W] * c->v[LF_BLY] * c->v[LF_BLX] * c->v[LF_LSU];
    if (ok && threads > MOST_THREADS) return err_set(e, ERR_INPUT, "%.0f threads of a group are more than %d", threads, MOST_THREADS);
    return ok && divides(c, LF_BSWM, LF_TM, e) && divides(c, LF_BSWN, LF_TN, e) && divides(c, LF_WSWM, LF_BSWM, e) &&
           divides(c, LF_WSWN, LF_BSWN, e) && divides(c, LF_LSU, LF_BK, e) &&
           shares(c, LF_GLWA, bm(c) * bk(c), "the left tile", e) &&
           shares(c, LF_GLWB, bn(c) * bk(c), "the right tile", e) && check_stores(c, e);
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
    buf_printf(b, "\ngroup      %lld threads: %d subgroups of %d\n", (long long)lab_threads(c),
               c->v[LF_BLY] * c->v[LF_BLX] * c->v[LF_LSU], c->v[LF_W]);
    buf_printf(b, "shared     %lld bytes (f32), %lld (16 bits)\n", (long long)lab_shared(c, 4), (long long)lab_shared(c, 2));
    buf_printf(b, "registers  %lld of a thread for sums and operands\n", (long long)lab_registers(c));
    buf_printf(b, "a K block  a thread loads %lld + %lld elements and does %lld multiply-adds\n",
               (long long)(bm(c) * bk(c) / lab_threads(c)), (long long)(bn(c) * bk(c) / lab_threads(c)),
               (long long)((i64)c->v[LF_TM] * c->v[LF_TN] * bk(c) / c->v[LF_LSU]));
    if (c->m % bm(c) || c->n % bn(c) || c->k % bk(c)) buf_z(b, "edges      blocks and K blocks exceed the matrices\n");
}

void lab_explain(struct buf *b, const struct lab_config *c)
{
    struct err e = {0};
    lab_name_print(b, c);
    buf_char(b, '\n');
    bool t = c->v[LF_TRANS];
    buf_z(b, "product    y ");
    put_dims(b, c, c->m, c->n);
    buf_printf(b, " = %s ", t ? "a^T" : "a");
    put_dims(b, c, t ? c->k : c->m, t ? c->m : c->k);
    buf_z(b, " x b ");
    put_dims(b, c, c->k, c->n);
    buf_char(b, '\n');
    if (lab_config_check(c, &e)) put_group(b, c);
    else buf_printf(b, "impossible %s\n", e.msg);
    for (u32 f = 0; f < N_LAB_FIELDS; f++)
        buf_printf(b, "  %-4s %5d  %s\n", lab_field(f)->tag, c->v[f], lab_field(f)->what);
}
