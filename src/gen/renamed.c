// SPDX-License-Identifier: Apache-2.0
//
// renamed: families and parameters that had other names in earlier versions, for texts of candidates that were stored then: databases (which
// are upgraded once), programs, command lines. A rename changes no kernel; a family whose kernels change raises its revision instead.
#include "gen/gen.h"

static const struct { const char *before, *name; } families[] = {
    {"map", "elementwise"},
    {"row", "reduce_row"},
    {"group_map", "wg_elementwise"},
    {"group_row", "wg_reduce"},
    {"group_gemm", "wg_gemm"},
    {"group_gemv", "wg_gemv"},
    {"group_conv", "wg_conv"},
    {"group_dw", "wg_conv_dw"},
    {"group_igemm", "wg_igemm"},
    {"group_grad", "wg_conv_grad"},
    {"group_pool", "wg_pool"},
    {"group_filter", "wg_filter"},
    {"group_outer", "wg_filter_grad"},
    {"group_recurrence", "wg_recurrence"},
    {"matrix_gemm", "mma_gemm"},
    {"matrix_conv", "mma_conv"},
    {"matrix_igemm", "mma_igemm"},
    {"matrix_grad", "mma_conv_grad"},
    {"team_gemm", "wgmma_gemm"},
    {"team_igemm", "wgmma_igemm"},
};

/* family: today's name, NULL: any. The first row that fits counts. */
static const struct { const char *family, *before, *name; } params[] = {
    {"wg_reduce", "chunks", "split"},
    {NULL, "chunks", "split_k"},
    {NULL, "parts", "split_k"},
    {NULL, "ks", "split_k"},
    {NULL, "lsu", "split_k_local"},
    {NULL, "stream", "stream_k"},
    {NULL, "kc", "bk"},
    {NULL, "cb", "bk"},
    {NULL, "ib", "bk"},
    {NULL, "kb", "bk"},
    {"wg_gemm", "map", "raster"},
    {"wgmma_gemm", "boxes", "tma"},
    {"wgmma_igemm", "boxes", "tma"},
    {"wg_filter", "patch", "halo"},
    {"wg_filter_grad", "patch", "halo"},
    {"weighted_filter", "turn", "transpose"},
    {"weighted_filter", "group", "rows"},
    {"recurrence", "team", "split"},
};

static struct str family_name(struct str name)
{
    for (i64 i = 0; i < countof(families); i++)
        if (str_is(name, families[i].before)) return str_of(families[i].name);
    return name;
}

static struct str param_name(struct str family, struct str name)
{
    for (i64 i = 0; i < countof(params); i++)
        if (str_is(name, params[i].before) && (!params[i].family || str_is(family, params[i].family))) return str_of(params[i].name);
    return name;
}

bool candidate_rename(struct buf *b, struct str text)
{
    struct str family = {0}, left = text, word, rest;
    i64 begin = b->n;
    for (bool more = true; more; left = rest) {
        more = str_cut(left, ' ', &word, &rest);
        if (!more) word = left;
        i64 n = 0;
        while (n < word.n && word.p[n] != '.' && word.p[n] != '=') n++;
        struct str name = str_sub(word, 0, n), now = family.n ? param_name(family, name) : family_name(name);
        if (!family.n) family = now;
        buf_str(b, now);
        buf_str(b, str_sub(word, n, word.n));
        if (more) buf_char(b, ' ');
    }
    return !str_eq(str_sub(buf_view(b), begin, b->n), text);
}
