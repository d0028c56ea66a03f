// SPDX-License-Identifier: Apache-2.0
//
// Threads and memory of an attention kernel's configuration, and its description. A workgroup computes a block of Br queries: the scores of
// Bc keys at a time (a tile of PTr x PTc per thread, along WLPY x WLPX threads), then their contribution to the output (OTr x OTc, along
// WLOY x WLOX). Kernels without an output have no second half; their names repeat the first one there, which is not checked.
#include "lab/config.h"

static i64 at(const struct lab_config *c, enum lab_attention_field f) { return c->v[f]; }
static struct lab_attention computes(const struct lab_config *c) { return lab_attention_of(c->kind, c->part); }
/* The fields of a kernel that belongs to a split attention are those of all its kernels. */
static bool has_output_side(const struct lab_config *c) { return lab_attention_of(c->kind, 0).has_o; }

static double flops(const struct lab_config *c)
{
    struct lab_attention x = computes(c);
    double s = (double)c->s, pairs = x.is_causal ? s * (s + 1) / 2 : s * s;
    return (x.has_o ? 4.0 : 2.0) * (double)c->b * (double)c->h * pairs * (double)c->d;
}

static i64 threads(const struct lab_config *c) { return at(c, LA_WLPY) * at(c, LA_WLPX) * at(c, LA_BLPY) * at(c, LA_BLPX); }

/* Elements: tiles of queries and keys, all queries unless the head is one K block, probabilities, values, statistics of the rows. Subgroups
   of more than 32 threads reduce rows through shared memory in other amounts. */
static i64 shared(const struct lab_config *c, i64 size)
{
    bool is_wide = at(c, LA_W) > 32, has_output = has_output_side(c), has_sums = !has_output && computes(c).has_sums;
    i64 br = at(c, LA_BR), bc = at(c, LA_BC), hd = at(c, LA_HD), n = (br + bc) * at(c, LA_SA);
    if (at(c, LA_SA) != hd) n += hd * br;
    if (at(c, LA_SPP)) n += bc * at(c, LA_SA);
    if (has_output) return size * (n + br * bc + hd * at(c, LA_SB) + 3 * br);
    if (has_sums) return size * (n + (is_wide ? hd : 0));
    return size * (n + (is_wide ? 1 : 3) * br);
}

static i64 registers(const struct lab_config *c)
{
    i64 scores = at(c, LA_PTR) * at(c, LA_PTC), ahead = (at(c, LA_PTR) + at(c, LA_PTC)) * (at(c, LA_RPP) ? 2 : 1);
    if (!has_output_side(c)) return scores + ahead;
    i64 output = at(c, LA_OTR) * at(c, LA_OTC), ahead_o = (at(c, LA_OTR) + at(c, LA_OTC)) * (at(c, LA_RPO) ? 2 : 1);
    return scores + output + i64_max(ahead, ahead_o);
}

/* Checks. */

static bool check_warp(const struct lab_config *c, enum lab_attention_field y, enum lab_attention_field x, struct err *e)
{
    return at(c, y) * at(c, x) == at(c, LA_W) ||
           err_set(e, ERR_INPUT, "'W%d' is not %s%d x %s%d", c->v[LA_W], lab_field(c->kind, y)->tag, c->v[y], lab_field(c->kind, x)->tag,
                   c->v[x]);
}

static bool check_scores(const struct lab_config *c, struct err *e)
{
    static const struct lab_product rows = {LA_BR, LA_PTR, LA_WLPY, LA_BLPY}, columns = {LA_BC, LA_PTC, LA_WLPX, LA_BLPX};
    if (!lab_is_product(c, &rows, e) || !lab_is_product(c, &columns, e) || !check_warp(c, LA_WLPY, LA_WLPX, e)) return false;
    if (at(c, LA_BLPX) != 1)
        return err_set(e, ERR_INPUT, "'BLPX%d': a row of scores is reduced within one subgroup, expected BLPX1", c->v[LA_BLPX]);
    const i64 n = threads(c), sa = at(c, LA_SA);
    const struct lab_tile q = {n, at(c, LA_BR) * sa, "the tile of queries"}, k = {n, at(c, LA_BC) * sa, "the tile of keys"};
    return lab_group_fits((double)n, e) && lab_divides(c, LA_SA, LA_HD, e) && lab_divides(c, LA_BSWQ, LA_PTR, e) &&
           lab_divides(c, LA_WSWQ, LA_BSWQ, e) && lab_divides(c, LA_BSWK, LA_PTC, e) && lab_divides(c, LA_WSWK, LA_BSWK, e) &&
           lab_shares(c, LA_GLWQ, &q, e) && lab_shares(c, LA_GLWK, &k, e);
}

static bool check_output_tile(const struct lab_config *c, struct err *e)
{
    static const struct lab_product rows = {LA_BR, LA_OTR, LA_WLOY, LA_BLOY}, columns = {LA_HD, LA_OTC, LA_WLOX, LA_BLOX};
    const struct lab_tile v = {threads(c), at(c, LA_HD) * at(c, LA_SB), "the tile of values"};
    if (!lab_is_product(c, &rows, e) || !lab_is_product(c, &columns, e) || !check_warp(c, LA_WLOY, LA_WLOX, e)) return false;
    if (at(c, LA_BLOY) * at(c, LA_BLOX) != at(c, LA_BLPY))
        return err_set(e, ERR_INPUT, "'BLOY%d' x BLOX%d subgroups are not the BLPY%d of the scores", c->v[LA_BLOY], c->v[LA_BLOX],
                       c->v[LA_BLPY]);
    return lab_divides(c, LA_SB, LA_BC, e) && lab_divides(c, LA_BSWP, LA_OTR, e) && lab_divides(c, LA_WSWP, LA_BSWP, e) &&
           lab_divides(c, LA_BSWV, LA_OTC, e) && lab_divides(c, LA_WSWV, LA_BSWV, e) && lab_shares(c, LA_GLWV, &v, e);
}

u32 lab_layouts_differ(const struct lab_config *c)
{
    static const u8 pair[][2] = {{LA_PTR, LA_OTR},   {LA_BLPY, LA_BLOY}, {LA_BLPX, LA_BLOX}, {LA_WLPY, LA_WLOY},
                                 {LA_WLPX, LA_WLOX}, {LA_BSWQ, LA_BSWP}, {LA_WSWQ, LA_WSWP}};
    for (i64 i = 0; i < countof(pair); i++)
        if (c->v[pair[i][0]] != c->v[pair[i][1]]) return pair[i][1];
    return LAB_MAX_FIELDS;
}

/* Threads keep their probabilities only if they compute the output of the same queries. */
static bool check_shuffle(const struct lab_config *c, struct err *e)
{
    u32 f = lab_layouts_differ(c);
    if ((!c->v[LA_SHP] && !c->v[LA_SKP]) || f == LAB_MAX_FIELDS) return true;
    return err_set(e, ERR_INPUT, "'%s1' needs the same threads for scores and output, but %s%d differs", c->v[LA_SHP] ? "SHP" : "SKP",
                   lab_field(c->kind, f)->tag, c->v[f]);
}

static bool check(const struct lab_config *c, struct err *e)
{
    if (at(c, LA_HD) != c->d) return err_set(e, ERR_INPUT, "'Hd%d' is not the size of a head, %lld", c->v[LA_HD], (long long)c->d);
    return check_scores(c, e) && (!has_output_side(c) || (check_output_tile(c, e) && check_shuffle(c, e)));
}

/* Description. */

static void put_value(struct buf *b, const struct lab_config *c, const char *name, i64 x, i64 y)
{
    buf_printf(b, "%s (%lld, %lld, %lld", name, (long long)c->b, (long long)c->h, (long long)x);
    if (y) buf_printf(b, ", %lld", (long long)y);
    buf_char(b, ')');
}

static void put_stats(struct buf *b, const struct lab_config *c)
{
    put_value(b, c, "max", c->s, 1);
    put_value(b, c, ", denom", c->s, 1);
}

static void put_product(struct buf *b, const struct lab_config *c)
{
    struct lab_attention x = computes(c);
    buf_printf(b, "computes   %s", lab_kind(c->part ? lab_kind(c->kind)->first + c->part - 1 : c->kind)->what);
    if (x.softcap > 0) buf_printf(b, "; scores %g tanh(score / %g)", x.softcap, x.softcap);
    buf_printf(b, "%s\ninputs     ", x.is_causal ? "; each query attends to keys up to its own" : "");
    put_value(b, c, "q", c->d, c->s);
    put_value(b, c, ", k", c->d, c->s);
    if (x.has_o) put_value(b, c, ", v", c->s, c->d);
    if (x.takes_stats) buf_z(b, ", "), put_stats(b, c);
    buf_z(b, "\noutputs    ");
    if (x.has_stats) put_stats(b, c);
    if (x.has_o) put_value(b, c, "o", c->s, c->d);
    if (x.has_sums) put_value(b, c, x.has_o ? ", row_sum" : "row_sum", c->s, 0);
    buf_char(b, '\n');
}

static void put_group(struct buf *b, const struct lab_config *c)
{
    i64 n = threads(c);
    bool has_output = has_output_side(c), by_keys = !has_output && computes(c).has_sums;
    buf_printf(b, "grid       %lld x %lld x %lld blocks of %s\n", (long long)c->b, (long long)c->h, (long long)ceil_div(c->s, at(c, LA_BR)),
               by_keys ? "keys; rows are keys, columns are queries" : "queries");
    buf_printf(b, "group      %lld threads: %d subgroups of %d\n", (long long)n, c->v[LA_BLPY] * c->v[LA_BLPX], c->v[LA_W]);
    buf_printf(b, "shared     %lld bytes (f32), %lld (16 bits)\n", (long long)shared(c, 4), (long long)shared(c, 2));
    buf_printf(b, "registers  %lld of a thread for sums and operands\n", (long long)registers(c));
    buf_printf(b, "a block of scores: a thread does %lld multiply-adds", (long long)(at(c, LA_PTR) * at(c, LA_PTC) * at(c, LA_HD)));
    if (has_output) buf_printf(b, " and %lld for the output", (long long)(at(c, LA_OTR) * at(c, LA_OTC) * at(c, LA_BC)));
    buf_char(b, '\n');
    if (c->s % at(c, LA_BR) || c->s % at(c, LA_BC)) buf_z(b, "edges      blocks exceed the queries or keys\n");
    buf_printf(b, "processors a schedule of family 'attention': register tiles of %s rows, %s columns%s, blocks of %s rows and %s columns, Un; nothing else\n",
               by_keys ? "PTc" : "PTr", by_keys ? "PTr x WLPY" : "PTc x WLPX", has_output ? ", of the output OTc x WLOX" : "", by_keys ? "Bc" : "Br",
               by_keys ? "Br" : "Bc");
}

const struct lab_config_ops lab_config_attention = {flops, threads, shared, registers, check, put_product, put_group};
