// SPDX-License-Identifier: Apache-2.0
//
// The rules that prune the space of a GEMM's configurations (space.h). After the tiles and loads the fields form five parts that no rule
// couples:
//
//   head: LSU, BM, BN, TM, TN, WLY, WLX | BK, GLWA, GLWB
//   tail: BSWM, WSWM | BSWN, WSWN | LC, SP, RP | GSW, RC | UN, Map
#include "lab/space.h"

/* Rules. */

struct rules {
    bool (*thread_tile)(const struct lab_config *c);
    bool (*block_tile)(const struct lab_config *c);
    bool (*threads)(const struct lab_space *s, const struct lab_config *c);
    bool (*scatter)(i32 tile, i32 block, i32 warp);
    bool (*memory)(const struct lab_space *s, const struct lab_config *c);
    /* The cut: does a thread load enough, does a tile of so many lanes meet the banks well? */
    bool (*loads)(const struct lab_config *c);
    bool (*banks)(i32 tile, i32 lanes, i32 warp);
    bool (*raster)(const struct lab_space *s, const struct lab_config *c);
    bool (*grid)(const struct lab_config *c);
};

/* At least as long as wide, less than three times as long: the quotient rounded down is 1 or 2. */
static bool is_squarish(i32 m, i32 n) { return m / n == 1 || m / n == 2; }
static bool deepgen_thread_tile(const struct lab_config *c) { return is_squarish(c->v[LF_TM], c->v[LF_TN]); }
static bool deepgen_block_tile(const struct lab_config *c) { return is_squarish(c->v[LF_BM], c->v[LF_BN]); }
static i64 tile_threads(const struct lab_config *c)
{
    return (i64)(c->v[LF_BM] / c->v[LF_TM]) * (c->v[LF_BN] / c->v[LF_TN]) * c->v[LF_LSU];
}
static bool deepgen_threads(const struct lab_space *s, const struct lab_config *c) { return tile_threads(c) <= 256; }
static bool deepgen_scatter(i32 tile, i32 block, i32 warp) { return block >= warp && block <= tile; }

/* Elements. Registers are counted with the block's columns in place of the thread's. */
static i64 deepgen_shared(const struct lab_config *c)
{
    i64 n = (i64)(c->v[LF_BM] + c->v[LF_BN]) * c->v[LF_BK] * (c->v[LF_SP] ? 2 : 1);
    return c->v[LF_LSU] > 1 ? i64_max(n, (i64)c->v[LF_LSU] * c->v[LF_BM] * c->v[LF_BN]) : n;
}
static i64 deepgen_registers(const struct lab_config *c) { return (i64)c->v[LF_TM] * c->v[LF_BN] * (c->v[LF_RP] ? 2 : 1); }
static bool deepgen_memory(const struct lab_space *s, const struct lab_config *c)
{
    return deepgen_registers(c) * 4 <= 1024 && deepgen_shared(c) * 4 <= 65536;
}
static bool june_memory(const struct lab_space *s, const struct lab_config *c)
{
    return deepgen_registers(c) <= 1024 && deepgen_shared(c) <= 65536;
}

/* A thread loads no less than four elements of each operand. */
static bool deepgen_loads(const struct lab_config *c)
{
    double bk = c->v[LF_BK], bm = c->v[LF_BM], bn = c->v[LF_BN],
           threads = bm * bn / c->v[LF_TM] / c->v[LF_TN] * c->v[LF_LSU];
    return bk * bm / threads >= 4 && bk * bn / threads >= 4;
}
static bool june_loads(const struct lab_config *c)
{
    return (c->v[LF_BM] <= 128 || c->v[LF_BN] <= 128) && deepgen_loads(c);
}
/* As many pieces of a tile as lanes that would otherwise conflict in 32 banks. */
static bool deepgen_banks(i32 tile, i32 lanes, i32 warp)
{
    i64 pieces = i64_max(1, (i64)lanes * tile / 32);
    return pieces * warp == tile;
}
static bool any_banks(i32 tile, i32 lanes, i32 warp) { return true; }
/* Rows of blocks traversed together do not exceed the number of rows. */
static bool deepgen_raster(const struct lab_space *s, const struct lab_config *c)
{
    return c->m >= (i64)c->v[LF_MAP] * c->v[LF_BM];
}
static bool deepgen_grid(const struct lab_config *c)
{
    return (double)c->m / c->v[LF_BM] * (double)c->n / c->v[LF_BN] < 65535;
}

static bool own_thread_tile(const struct lab_config *c) { return (i64)c->v[LF_TM] * c->v[LF_TN] <= 128; }
static bool own_block_tile(const struct lab_config *c)
{
    i64 bm = c->v[LF_BM], bn = c->v[LF_BN];
    return (bm <= 4 * bn || c->n <= bn) && (bn <= 4 * bm || c->m <= bm);
}
static bool own_threads(const struct lab_space *s, const struct lab_config *c)
{
    return c->v[LF_BM] % c->v[LF_TM] == 0 && c->v[LF_BN] % c->v[LF_TN] == 0 && tile_threads(c) <= s->max_threads;
}
static bool own_scatter(i32 tile, i32 block, i32 warp) { return tile % block == 0 && block % warp == 0; }
static bool own_memory(const struct lab_space *s, const struct lab_config *c)
{
    enum { MOST_REGISTERS = 200 };
    return lab_registers(c) <= MOST_REGISTERS && lab_shared(c, dtype_size(s->dtype)) <= s->max_shared;
}
static bool own_loads(const struct lab_config *c)
{
    i64 step = tile_threads(c), bk = c->v[LF_BK];
    return bk % c->v[LF_LSU] == 0 && bk * c->v[LF_BM] % (step * c->v[LF_GLWA]) == 0 &&
           bk * c->v[LF_BN] % (step * c->v[LF_GLWB]) == 0;
}
/* Or, if there are few, the first of equivalent choices. */
static bool own_raster(const struct lab_space *s, const struct lab_config *c)
{
    return deepgen_raster(s, c) || c->v[LF_MAP] == s->list[LF_MAP].v[0];
}
static bool any_grid(const struct lab_config *c) { return true; }

static const struct rules rules[N_LAB_RULES] = {
    [LAB_RULES_OWN] = {own_thread_tile, own_block_tile, own_threads, own_scatter, own_memory, own_loads,
                       any_banks, own_raster, any_grid},
    [LAB_RULES_DEEPGEN] = {deepgen_thread_tile, deepgen_block_tile, deepgen_threads, deepgen_scatter, deepgen_memory,
                        deepgen_loads, deepgen_banks, deepgen_raster, deepgen_grid},
    [LAB_RULES_2025_06] = {deepgen_thread_tile, deepgen_block_tile, deepgen_threads, deepgen_scatter,
                           june_memory, june_loads, any_banks, deepgen_raster, deepgen_grid},
};

static const struct rules *of(const struct space_choice *x) { return &rules[x->rules]; }

/* The order of choice. */

enum stage { ST_THREAD, ST_BLOCK, ST_LAYOUT, ST_LOADS, ST_SCATTER, ST_MEMORY, ST_OTHER, ST_CUT, ST_GRID, N_STAGES };
static const struct space_stage stages[N_STAGES] = {
    [ST_THREAD] = {"thread tiles", "THREAD_SIZE_M x THREAD_SIZE_N that is neither too large nor too long"},
    [ST_BLOCK] = {"block tiles", "BLOCK_SIZE_M and BLOCK_SIZE_N that do not differ too much"},
    [ST_LAYOUT] = {"layouts of threads and subgroups",
                   "BLOCK_SIZE_M = THREAD_SIZE_M x WARP_LAYOUT_Y x BLOCK_LAYOUT_Y, BLOCK_SIZE_N = THREAD_SIZE_N x WARP_LAYOUT_X x BLOCK_LAYOUT_X, "
                   "WARP_SIZE = WARP_LAYOUT_Y x WARP_LAYOUT_X, no more threads than a group may have"},
    [ST_LOADS] = {"terms and loads", "BLOCK_SIZE_K such that each thread's share of a tile is whole loads of GLOB_LOAD_WIDTH_A, GLOB_LOAD_WIDTH_B elements"},
    [ST_SCATTER] = {"scatter", "BLOCK_SCATTER_WIDTH_M that divides THREAD_SIZE_M, WARP_SCATTER_WIDTH_M that divides it, and so for N"},
    [ST_MEMORY] = {"memory", "tiles, SHARED_PREFETCH and REG_PREFETCH that leave shared memory and registers enough"},
    [ST_OTHER] = {"stores and loops", "GLOB_STORE_WIDTH that divides each thread's share of a block, BLOCK_MAPPING of no more blocks than M_SIZE has"},
    [ST_CUT] = {"loads of a thread and banks",
                "BLOCK_SIZE_K that gives each thread enough to load, WARP_SCATTER_WIDTH_M, WARP_SCATTER_WIDTH_N that keep threads off each other's banks"},
    [ST_GRID] = {"grid", "fewer blocks of BLOCK_SIZE_M x BLOCK_SIZE_N"},
};

static const struct space_head head[] = {
    {LF_LSU, ST_LAYOUT, false}, {LF_BM, ST_LAYOUT, false},  {LF_BN, ST_LAYOUT, false}, {LF_TM, ST_LAYOUT, false},  {LF_TN, ST_LAYOUT, false},
    {LF_WLY, ST_LAYOUT, false}, {LF_WLX, ST_LAYOUT, true},  {LF_BK, ST_LOADS, false},  {LF_GLWA, ST_LOADS, false}, {LF_GLWB, ST_LOADS, true},
};

enum { PART_M, PART_N, PART_PREFETCH, PART_STORE, PART_LOOPS, N_PARTS };
static const struct space_part parts[N_PARTS] = {
    [PART_M] = {2, {LF_BSWM, LF_WSWM}, ST_SCATTER},
    [PART_N] = {2, {LF_BSWN, LF_WSWN}, ST_SCATTER},
    [PART_PREFETCH] = {3, {LF_LC, LF_SP, LF_RP}, ST_MEMORY},
    [PART_STORE] = {2, {LF_GSW, LF_RC}, ST_OTHER},
    [PART_LOOPS] = {2, {LF_UN, LF_MAP}, ST_OTHER},
};

/* The subgroups of a workgroup follow from tiles and lanes. */
static bool layout_fits(struct space_choice *x)
{
    i32 *v = x->c.v;
    i32 ty = v[LF_BM] / v[LF_TM], tx = v[LF_BN] / v[LF_TN];
    if ((i64)v[LF_WLY] * v[LF_WLX] != v[LF_W] || ty % v[LF_WLY] || tx % v[LF_WLX]) return false;
    v[LF_BLY] = ty / v[LF_WLY], v[LF_BLX] = tx / v[LF_WLX];
    return v[LF_BLY] >= 1 && v[LF_BLX] >= 1 && space_has(&x->s->list[LF_BLY], v[LF_BLY]) && space_has(&x->s->list[LF_BLX], v[LF_BLX]);
}

/* The elements that a thread loads, rounded down, are a multiple of the load width. */
static bool loads_fit(const struct lab_config *c, enum lab_field tile, enum lab_field width)
{
    i64 n = (i64)c->v[tile] * c->v[LF_BK] / tile_threads(c);
    return c->v[width] <= n && n % c->v[width] == 0;
}

static bool head_fits(struct space_choice *x, u32 last)
{
    const struct lab_config *c = &x->c;
    switch (last) {
    case LF_BN: return of(x)->block_tile(c);
    case LF_TN: return of(x)->thread_tile(c) && of(x)->threads(x->s, c);
    case LF_WLX: return layout_fits(x);
    case LF_GLWA: return loads_fit(c, LF_BM, LF_GLWA);
    case LF_GLWB: return loads_fit(c, LF_BN, LF_GLWB);
    default: return true;
    }
}

/* A store of the sums of an intra-block split-K: each thread has whole stores. */
static bool store_fits(const struct lab_config *c)
{
    i64 n = (i64)c->v[LF_BM] * c->v[LF_BN] / tile_threads(c);
    return c->v[LF_GSW] >= 1 && c->v[LF_GSW] <= n && n % c->v[LF_GSW] == 0;
}

/* Without intra-block split-K there are no sums to store. */
static bool part_is_used(const struct lab_config *c, u32 part) { return part != PART_STORE || c->v[LF_LSU] > 1; }

static bool part_fits(const struct space_choice *x, u32 part, const struct lab_config *c)
{
    switch (part) {
    case PART_M: return of(x)->scatter(c->v[LF_TM], c->v[LF_BSWM], c->v[LF_WSWM]);
    case PART_N: return of(x)->scatter(c->v[LF_TN], c->v[LF_BSWN], c->v[LF_WSWN]);
    case PART_PREFETCH: return of(x)->memory(x->s, c);
    case PART_STORE: return store_fits(c);
    default: return of(x)->raster(x->s, c);
    }
}

static bool cut(const struct space_choice *x) { return of(x)->loads(&x->c); }

static bool cut_part(const struct space_choice *x, u32 part, const struct lab_config *c)
{
    if (part == PART_M) return of(x)->banks(c->v[LF_TM], c->v[LF_WLY], c->v[LF_WSWM]);
    return part != PART_N || of(x)->banks(c->v[LF_TN], c->v[LF_WLX], c->v[LF_WSWN]);
}

static bool grid_fits(const struct space_choice *x) { return of(x)->grid(&x->c); }

/* Thread and block tiles, which are chosen within layouts. */

static double count_tiles(const struct space_choice *w, enum lab_field x, enum lab_field y, bool (*fits)(const struct lab_config *c))
{
    struct lab_config c = w->c;
    double n = 0;
    for (u32 i = 0; i < w->s->list[x].n; i++)
        for (u32 j = 0; j < w->s->list[y].n; j++) {
            c.v[x] = w->s->list[x].v[i], c.v[y] = w->s->list[y].v[j];
            n += fits(&c);
        }
    return n;
}

static void count_more(const struct space_choice *x, struct lab_count *c)
{
    const struct lab_list *l = x->s->list;
    struct lab_stage *st = c->stage;
    st[ST_THREAD].before = (double)l[LF_TM].n * l[LF_TN].n;
    st[ST_THREAD].after = count_tiles(x, LF_TM, LF_TN, of(x)->thread_tile);
    st[ST_BLOCK].before = (double)l[LF_BM].n * l[LF_BN].n;
    st[ST_BLOCK].after = count_tiles(x, LF_BM, LF_BN, of(x)->block_tile);
    st[ST_LAYOUT].before = st[ST_THREAD].after * st[ST_BLOCK].after * l[LF_LSU].n * l[LF_WLY].n * l[LF_WLX].n;
}

const struct space_rules space_gemm = {
    .n_stages = N_STAGES,
    .stage = stages,
    .n_head = countof(head),
    .head = head,
    .n_parts = N_PARTS,
    .part = parts,
    .head_fits = head_fits,
    .part_is_used = part_is_used,
    .part_fits = part_fits,
    .cut_stage = ST_CUT,
    .cut = cut,
    .cut_part = cut_part,
    .last_stage = ST_GRID,
    .last = grid_fits,
    .count_more = count_more,
};
