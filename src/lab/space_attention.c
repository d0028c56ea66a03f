// SPDX-License-Identifier: Apache-2.0
//
// The rules that prune the space of attention's configurations (space.h). Scores and output are tiled by the same threads, so the fields of
// one half follow those of the other; only prefetching, unrolling and shuffles are free of them:
//
//   head: PTr, PTc, OTr, OTc, Br, Bc | Sa, Sb, GLWQ, GLWK, GLWV | BLPY, BLPX, WLPY, WLPX | BSWQ, BSWK, WSWQ, WSWK | and so for the output
//   tail: SPP, RPP, RPO, Un, SHP, SKP
//
// Kernels without an output choose the first half alone. Their lists for the other one have a single value, and the fields, which names
// have nevertheless, repeat those of the scores.
#include "lab/config.h"
#include "lab/space.h"

enum stage { ST_TILES, ST_LOADS, ST_LAYOUT_P, ST_SCATTER_P, ST_LAYOUT_O, ST_SCATTER_O, ST_MEMORY, N_STAGES };
static const struct space_stage stages[N_STAGES] = {
    [ST_TILES] = {"tiles of threads and blocks",
                  "Br and Bc of no more than all queries, Br/PTr x Bc/PTc = Br/OTr x Hd/OTc threads, no more than a group may have"},
    [ST_LOADS] = {"terms and loads", "Slice1 and Slice2 such that each thread's share of a tile is whole loads of GLOB_LOAD_WIDTH_Q, _K, _V elements"},
    [ST_LAYOUT_P] = {"layouts of the scores", "BLOCK_LAYOUT_P_X = 1, Br = PTr x WARP_LAYOUT_P_Y x BLOCK_LAYOUT_P_Y, Bc = PTc x WARP_LAYOUT_P_X, "
                                              "WARP_SIZE = WARP_LAYOUT_P_Y x WARP_LAYOUT_P_X"},
    [ST_SCATTER_P] = {"scatter of the scores", "BLOCK_SCATTER_WIDTH_Q that divides PTr, WARP_SCATTER_WIDTH_Q that divides it and, by deepgen's "
                                               "rules, keeps threads off each other's banks; and so for K and PTc"},
    [ST_LAYOUT_O] = {"layouts of the output", "Br = OTr x WARP_LAYOUT_O_Y x BLOCK_LAYOUT_O_Y, Hd = OTc x WARP_LAYOUT_O_X x BLOCK_LAYOUT_O_X, "
                                              "WARP_SIZE = WARP_LAYOUT_O_Y x WARP_LAYOUT_O_X"},
    [ST_SCATTER_O] = {"scatter of the output", "BLOCK_SCATTER_WIDTH_P that divides OTr, WARP_SCATTER_WIDTH_P that divides it and, by deepgen's "
                                               "rules, keeps threads off each other's banks; and so for V and OTc"},
    [ST_MEMORY] = {"memory and shuffles", "tiles and prefetches that leave shared memory and registers enough"},
};

static const struct space_head head[] = {
    {LA_PTR, ST_TILES, false},      {LA_PTC, ST_TILES, false},      {LA_OTR, ST_TILES, false},      {LA_OTC, ST_TILES, false},
    {LA_BR, ST_TILES, false},       {LA_BC, ST_TILES, true},        {LA_SA, ST_LOADS, false},       {LA_SB, ST_LOADS, false},
    {LA_GLWQ, ST_LOADS, false},     {LA_GLWK, ST_LOADS, false},     {LA_GLWV, ST_LOADS, true},      {LA_BLPY, ST_LAYOUT_P, false},
    {LA_BLPX, ST_LAYOUT_P, false},  {LA_WLPY, ST_LAYOUT_P, false},  {LA_WLPX, ST_LAYOUT_P, true},   {LA_BSWQ, ST_SCATTER_P, false},
    {LA_BSWK, ST_SCATTER_P, false}, {LA_WSWQ, ST_SCATTER_P, false}, {LA_WSWK, ST_SCATTER_P, true},  {LA_BLOY, ST_LAYOUT_O, false},
    {LA_BLOX, ST_LAYOUT_O, false},  {LA_WLOY, ST_LAYOUT_O, false},  {LA_WLOX, ST_LAYOUT_O, true},   {LA_BSWP, ST_SCATTER_O, false},
    {LA_BSWV, ST_SCATTER_O, false}, {LA_WSWP, ST_SCATTER_O, false}, {LA_WSWV, ST_SCATTER_O, true},
};
static const struct space_part parts[] = {{6, {LA_SPP, LA_RPP, LA_RPO, LA_UN, LA_SHP, LA_SKP}, ST_MEMORY}};

static bool is_own(const struct space_choice *x) { return x->rules == LAB_RULES_OWN; }
static bool has_output(const struct space_choice *x) { return lab_kind(x->c.kind)->computes.has_o; }
static i64 at(const struct space_choice *x, enum lab_attention_field f) { return x->c.v[f]; }

/* Tiles. Quotients are rounded down, so that tiles that do not divide a block may pass here; their layouts do not. */

static i64 score_threads(const struct space_choice *x) { return (at(x, LA_BR) / at(x, LA_PTR)) * (at(x, LA_BC) / at(x, LA_PTC)); }

static bool tiles_fit(struct space_choice *x)
{
    enum { DEEPGEN_MOST_THREADS = 256 };
    i64 n = score_threads(x), hd = at(x, LA_HD), most = is_own(x) ? x->s->max_threads : DEEPGEN_MOST_THREADS;
    if (at(x, LA_BR) > x->c.s || at(x, LA_BC) > x->c.s || n < 1 || n > most) return false;
    if (has_output(x)) return n == (at(x, LA_BR) / at(x, LA_OTR)) * (hd / at(x, LA_OTC));
    i64 columns = hd * at(x, LA_PTC);
    if (at(x, LA_BR) % at(x, LA_PTR) || at(x, LA_BC) % at(x, LA_PTC) || columns % at(x, LA_BC)) return false;
    if (columns / at(x, LA_BC) > LAB_MOST) return false;
    x->c.v[LA_OTR] = x->c.v[LA_PTR], x->c.v[LA_OTC] = (i32)(columns / at(x, LA_BC));
    return true;
}

/* The load width is at most what a thread loads of a tile; by the own rules it divides that. */
static bool loads_fit(const struct space_choice *x, i64 elements, enum lab_attention_field width)
{
    i64 step = score_threads(x) * at(x, width);
    return is_own(x) ? elements % step == 0 : elements >= step;
}

static bool values_fit(const struct space_choice *x)
{
    if (!has_output(x)) return true;
    return loads_fit(x, at(x, LA_HD) * at(x, LA_SB), LA_GLWV) && (!is_own(x) || at(x, LA_BC) % at(x, LA_SB) == 0);
}

/* Layouts. */

static bool layout_p_fits(const struct space_choice *x)
{
    return at(x, LA_WLPY) * at(x, LA_WLPX) == at(x, LA_W) && at(x, LA_BLPX) == 1 &&
           at(x, LA_BLPY) * at(x, LA_WLPY) * at(x, LA_PTR) == at(x, LA_BR) && at(x, LA_WLPX) * at(x, LA_PTC) == at(x, LA_BC);
}

static bool layout_o_fits(struct space_choice *x)
{
    i32 *v = x->c.v;
    if (has_output(x))
        return at(x, LA_WLOY) * at(x, LA_WLOX) == at(x, LA_W) && at(x, LA_BLOY) * at(x, LA_WLOY) * at(x, LA_OTR) == at(x, LA_BR) &&
               at(x, LA_BLOX) * at(x, LA_WLOX) * at(x, LA_OTC) == at(x, LA_HD);
    v[LA_BLOY] = v[LA_BLPY], v[LA_BLOX] = v[LA_BLPX], v[LA_WLOY] = v[LA_WLPY], v[LA_WLOX] = v[LA_WLPX];
    return true;
}

/* The adjacent elements of a thread, before those of the next subgroup and of the next block of subgroups. */
struct scatter { enum lab_attention_field tile, block, warp, lanes; };
static const struct scatter scatters[] = {
    {LA_PTR, LA_BSWQ, LA_WSWQ, LA_WLPY}, {LA_PTC, LA_BSWK, LA_WSWK, LA_WLPX}, {LA_OTR, LA_BSWP, LA_WSWP, LA_WLOY}, {LA_OTC, LA_BSWV, LA_WSWV, LA_WLOX}};

/* As many pieces of a tile as lanes that would otherwise conflict in that many banks. */
static bool banks_fit(const struct space_choice *x, const struct scatter *s, i64 banks)
{
    i64 tile = at(x, s->tile), block = at(x, s->block), warp = at(x, s->warp);
    i64 most = at(x, s->lanes) * tile * (4 / dtype_size(x->s->dtype)) / banks;
    return (tile / block) * (block / warp) == i64_max(1, most);
}

static bool all_fit(const struct space_choice *x, u32 n, i64 banks)
{
    for (u32 i = 0; i < n; i++)
        if (!banks_fit(x, &scatters[i], banks)) return false;
    return true;
}

static bool scatter_fits(const struct space_choice *x, const struct scatter *s)
{
    i64 tile = at(x, s->tile), block = at(x, s->block), warp = at(x, s->warp);
    return is_own(x) ? tile % block == 0 && block % warp == 0 : block <= tile && warp <= block;
}

/* The first n scatters, of which all but the last two are known to fit. deepgen counts 32 banks, for subgroups of 64 threads 32 or 64, the
   same for all; not for kernels without an output. */
static bool scatters_fit(const struct space_choice *x, u32 n)
{
    if (!scatter_fits(x, &scatters[n - 2]) || !scatter_fits(x, &scatters[n - 1])) return false;
    return is_own(x) || !has_output(x) || all_fit(x, n, 32) || (at(x, LA_W) > 32 && all_fit(x, n, 64));
}

static bool scatter_o_fits(struct space_choice *x)
{
    i32 *v = x->c.v;
    if (has_output(x)) return scatters_fit(x, countof(scatters));
    v[LA_BSWP] = v[LA_BSWQ], v[LA_WSWP] = v[LA_WSWQ];
    v[LA_BSWV] = v[LA_BSWK] < v[LA_OTC] ? v[LA_BSWK] : v[LA_OTC];
    v[LA_WSWV] = v[LA_WSWK] < v[LA_BSWV] ? v[LA_WSWK] : v[LA_BSWV];
    return true;
}

static bool head_fits(struct space_choice *x, u32 last)
{
    switch (last) {
    case LA_BC: return tiles_fit(x);
    case LA_SA: return !is_own(x) || at(x, LA_HD) % at(x, LA_SA) == 0;
    case LA_GLWQ: return loads_fit(x, at(x, LA_BR) * at(x, LA_SA), LA_GLWQ);
    case LA_GLWK: return loads_fit(x, at(x, LA_BC) * at(x, LA_SA), LA_GLWK);
    case LA_GLWV: return values_fit(x);
    case LA_WLPX: return layout_p_fits(x);
    case LA_WSWK: return scatters_fit(x, 2);
    case LA_WLOX: return layout_o_fits(x);
    case LA_WSWV: return scatter_o_fits(x);
    default: return true;
    }
}

static bool part_fits(const struct space_choice *x, u32 part, const struct lab_config *c)
{
    enum { MOST_REGISTERS = 200, DEEPGEN_SHARED = 65536 };
    i64 bytes = lab_config_attention.shared(c, dtype_size(x->s->dtype));
    if ((c->v[LA_SHP] || c->v[LA_SKP]) && lab_layouts_differ(c) < LAB_MAX_FIELDS) return false;
    if (!is_own(x)) return bytes <= DEEPGEN_SHARED;
    return bytes <= x->s->max_shared && lab_config_attention.registers(c) <= MOST_REGISTERS;
}

const struct space_rules space_attention = {
    .n_stages = N_STAGES,
    .stage = stages,
    .n_head = countof(head),
    .head = head,
    .n_parts = countof(parts),
    .part = parts,
    .head_fits = head_fits,
    .part_fits = part_fits,
};
