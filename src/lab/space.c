// SPDX-License-Identifier: Apache-2.0
//
// The space spanned by value lists, pruned by rules. Fields are chosen in a fixed order and each rule is applied as soon as its fields are
// known, so the product of all lists (up to 10^12) is never enumerated. After the tiles and loads (a `head`) the fields form five parts (a
// `tail`) that no rule couples: points are counted, and skipped, by multiplication.
//
//   head: LSU, BM, BN, TM, TN, WLY, WLX | BK, GLWA, GLWB
//   tail: BSWM, WSWM | BSWN, WSWN | LC, SP, RP | GSW, RC | UN, Map
#include "lab/lab.h"

#include <math.h>

/* Rules. */

struct rules {
    const char *name;
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
    [LAB_RULES_OWN] = {"own", own_thread_tile, own_block_tile, own_threads, own_scatter, own_memory, own_loads,
                       any_banks, own_raster, any_grid},
    [LAB_RULES_DEEPGEN] = {"deepgen", deepgen_thread_tile, deepgen_block_tile, deepgen_threads, deepgen_scatter, deepgen_memory,
                        deepgen_loads, deepgen_banks, deepgen_raster, deepgen_grid},
    [LAB_RULES_2025_06] = {"deepgen-2025-06", deepgen_thread_tile, deepgen_block_tile, deepgen_threads, deepgen_scatter,
                           june_memory, june_loads, any_banks, deepgen_raster, deepgen_grid},
};

const char *lab_rules_name(enum lab_rules r) { return rules[r].name; }

/* Heads. */

enum stage { ST_THREAD, ST_BLOCK, ST_LAYOUT, ST_LOADS, ST_SCATTER, ST_MEMORY, ST_OTHER, ST_CUT, ST_GRID };
static const char *const stage_name[N_LAB_STAGES] = {
    "thread tiles", "block tiles",      "layouts of threads and subgroups", "terms and loads", "scatter",
    "memory",       "stores and loops", "loads of a thread and banks",      "grid"};
/* The keys of a file that a rule concerns. */
static const char *const stage_asks[N_LAB_STAGES] = {
    [ST_THREAD] = "THREAD_SIZE_M x THREAD_SIZE_N that is neither too large nor too long",
    [ST_BLOCK] = "BLOCK_SIZE_M and BLOCK_SIZE_N that do not differ too much",
    [ST_LAYOUT] = ("BLOCK_SIZE_M = THREAD_SIZE_M x WARP_LAYOUT_Y x BLOCK_LAYOUT_Y, BLOCK_SIZE_N = THREAD_SIZE_N x WARP_LAYOUT_X x BLOCK_LAYOUT_X, "
                   "WARP_SIZE = WARP_LAYOUT_Y x WARP_LAYOUT_X, no more threads than a group may have"),
    [ST_LOADS] = "BLOCK_SIZE_K such that each thread's share of a tile is whole loads of GLOB_LOAD_WIDTH_A, GLOB_LOAD_WIDTH_B elements",
    [ST_SCATTER] = "BLOCK_SCATTER_WIDTH_M that divides THREAD_SIZE_M, WARP_SCATTER_WIDTH_M that divides it, and so for N",
    [ST_MEMORY] = "tiles, SHARED_PREFETCH and REG_PREFETCH that leave shared memory and registers enough",
    [ST_OTHER] = "GLOB_STORE_WIDTH that divides each thread's share of a block, BLOCK_MAPPING of no more blocks than M_SIZE has",
    [ST_CUT] = "BLOCK_SIZE_K that gives each thread enough to load, WARP_SCATTER_WIDTH_M, WARP_SCATTER_WIDTH_N that keep threads off each other's banks",
    [ST_GRID] = "fewer blocks of BLOCK_SIZE_M x BLOCK_SIZE_N",
};

enum { N_HEAD = 10, MAX_STEPS = 1 << 28 };
static const enum lab_field head_field[N_HEAD] = {LF_LSU, LF_BM,  LF_BN, LF_TM,   LF_TN,
                                                  LF_WLY, LF_WLX, LF_BK, LF_GLWA, LF_GLWB};

struct walk {
    const struct lab_space *s;
    const struct rules *r;
    struct arena *a; /* for one head */
    struct lab_config c;
    struct lab_count *count;
    i64 skip, number; /* of points: to be skipped; of the next one */
    i64 steps;
    lab_visit *fn; /* NULL: counting only */
    void *user;
};

static bool has(const struct lab_list *l, i64 v)
{
    for (u32 i = 0; i < l->n; i++)
        if (l->v[i] == v) return true;
    return false;
}

/* The subgroups of a workgroup follow from tiles and lanes. */
static bool layout_fits(struct walk *w)
{
    i32 *v = w->c.v;
    i32 ty = v[LF_BM] / v[LF_TM], tx = v[LF_BN] / v[LF_TN];
    if ((i64)v[LF_WLY] * v[LF_WLX] != v[LF_W] || ty % v[LF_WLY] || tx % v[LF_WLX]) return false;
    v[LF_BLY] = ty / v[LF_WLY], v[LF_BLX] = tx / v[LF_WLX];
    return v[LF_BLY] >= 1 && v[LF_BLX] >= 1 && has(&w->s->list[LF_BLY], v[LF_BLY]) && has(&w->s->list[LF_BLX], v[LF_BLX]);
}

/* The elements that a thread loads, rounded down, are a multiple of the load width. */
static bool loads_fit(const struct lab_config *c, enum lab_field tile, enum lab_field width)
{
    i64 n = (i64)c->v[tile] * c->v[LF_BK] / tile_threads(c);
    return c->v[width] <= n && n % c->v[width] == 0;
}

/* Rules that depend only on fields up to this one. */
static bool head_fits(struct walk *w, enum lab_field last)
{
    const struct lab_config *c = &w->c;
    switch ((int)last) {
    case LF_BN: return w->r->block_tile(c);
    case LF_TN: return w->r->thread_tile(c) && w->r->threads(w->s, c);
    case LF_WLX: return layout_fits(w);
    case LF_GLWA: return loads_fit(c, LF_BM, LF_GLWA);
    case LF_GLWB: return loads_fit(c, LF_BN, LF_GLWB);
    default: return true;
    }
}

/* Tails. */

enum { MAX_PART = 3, N_PARTS = 5 };
struct field_part { /* fields coupled only with each other, and the remaining choices */
    u32 n_fields;
    enum lab_field field[MAX_PART];
    struct { struct choice { i32 v[MAX_PART]; } *v; u32 n, cap; } choice;
};
static const struct field_part parts[N_PARTS] = {
    {2, {LF_BSWM, LF_WSWM}, {0}}, {2, {LF_BSWN, LF_WSWN}, {0}}, {3, {LF_LC, LF_SP, LF_RP}, {0}},
    {2, {LF_GSW, LF_RC}, {0}},    {2, {LF_UN, LF_MAP}, {0}},
};

static void set_choice(struct lab_config *c, const struct field_part *p, u32 k)
{
    for (u32 i = 0; i < p->n_fields; i++) c->v[p->field[i]] = p->choice.v[k].v[i];
}

/* A store of the sums of an intra-block split-K: each thread has whole stores. */
static bool store_fits(const struct lab_config *c)
{
    i64 n = (i64)c->v[LF_BM] * c->v[LF_BN] / tile_threads(c);
    return c->v[LF_GSW] >= 1 && c->v[LF_GSW] <= n && n % c->v[LF_GSW] == 0;
}

static bool part_fits(const struct walk *w, u32 part, const struct lab_config *c)
{
    switch (part) {
    case 0: return w->r->scatter(c->v[LF_TM], c->v[LF_BSWM], c->v[LF_WSWM]);
    case 1: return w->r->scatter(c->v[LF_TN], c->v[LF_BSWN], c->v[LF_WSWN]);
    case 2: return w->r->memory(w->s, c);
    case 3: return store_fits(c);
    default: return w->r->raster(w->s, c);
    }
}

static void fill_part(struct walk *w, u32 part, struct field_part *p)
{
    struct lab_config c = w->c;
    const struct lab_list *l = w->s->list;
    u32 n[MAX_PART] = {1, 1, 1};
    for (u32 i = 0; i < p->n_fields; i++) n[i] = l[p->field[i]].n;
    w->steps += n[0] * n[1] * n[2];
    for (u32 k = 0; k < n[0] * n[1] * n[2]; k++) {
        struct choice x = {{l[p->field[0]].v[k / (n[1] * n[2])], l[p->field[1]].v[k / n[2] % n[1]], 0}};
        if (p->n_fields == 3) x.v[2] = l[p->field[2]].v[k % n[2]];
        for (u32 i = 0; i < p->n_fields; i++) c.v[p->field[i]] = x.v[i];
        if (part_fits(w, part, &c)) *arr_push(w->a, &p->choice) = x;
    }
}

/* The cut of one side's scatter. */
static void cut_part(const struct walk *w, struct field_part *p, enum lab_field tile, enum lab_field lanes)
{
    u32 n = 0;
    for (u32 k = 0; k < p->choice.n; k++)
        if (w->r->banks(w->c.v[tile], w->c.v[lanes], p->choice.v[k].v[1])) p->choice.v[n++] = p->choice.v[k];
    p->choice.n = n;
}

static double choices(const struct field_part *p, u32 n)
{
    double all = 1;
    for (u32 i = 0; i < n; i++) all *= p[i].choice.n;
    return all;
}

static void add_stage(struct walk *w, enum stage s, double before, double after)
{
    w->count->stage[s].before += before;
    w->count->stage[s].after += after;
}

static double list_sizes(const struct walk *w, u32 n, const enum lab_field *f)
{
    double all = 1;
    for (u32 i = 0; i < n; i++) all *= w->s->list[f[i]].n;
    return all;
}

/* Points of this head from number w->number on. */
static bool visit_tail(struct walk *w, const struct field_part p[N_PARTS], i64 n)
{
    for (i64 k = w->skip; k < n; k++) {
        struct lab_config c = w->c;
        i64 left = k;
        for (u32 i = N_PARTS; i-- > 0; left /= p[i].choice.n) set_choice(&c, &p[i], (u32)(left % p[i].choice.n));
        if (!w->fn(w->user, &c, w->number++)) return false;
    }
    w->skip = 0;
    return true;
}

static bool end_head(struct walk *w)
{
    struct arena_mark mark = arena_mark(w->a);
    struct field_part p[N_PARTS];
    /* Without intra-block split-K there are no sums to store. */
    for (u32 i = 0; i < N_PARTS; i++) {
        p[i] = parts[i];
        if (i == 3 && w->c.v[LF_LSU] == 1) *arr_push(w->a, &p[i].choice) = (struct choice){{0}};
        else fill_part(w, i, &p[i]);
    }
    double scatter = choices(p, 2), memory = choices(p, 3), other = choices(p, 5);
    add_stage(w, ST_SCATTER, list_sizes(w, 2, p[0].field) * list_sizes(w, 2, p[1].field), scatter);
    add_stage(w, ST_MEMORY, scatter * list_sizes(w, 3, p[2].field), memory);
    double stores = w->c.v[LF_LSU] > 1 ? list_sizes(w, 2, p[3].field) : 1;
    add_stage(w, ST_OTHER, memory * stores * list_sizes(w, 2, p[4].field), other);
    double before = choices(p, N_PARTS), n = 0;
    if (w->r->loads(&w->c)) {
        cut_part(w, &p[0], LF_TM, LF_WLY);
        cut_part(w, &p[1], LF_TN, LF_WLX);
        n = choices(p, N_PARTS);
    }
    add_stage(w, ST_CUT, before, n);
    double left = w->r->grid(&w->c) ? n : 0;
    add_stage(w, ST_GRID, n, left);
    bool go_on = true;
    if (w->fn && left <= (double)w->skip) w->skip -= (i64)left;
    else if (w->fn) go_on = visit_tail(w, p, (i64)left);
    arena_rewind(w->a, mark);
    return go_on;
}

/* Heads below the choices made so far. */
static bool walk_head(struct walk *w, u32 depth)
{
    if (depth == N_HEAD) return end_head(w);
    enum lab_field f = head_field[depth];
    const struct lab_list *l = &w->s->list[f];
    for (u32 i = 0; i < l->n; i++) {
        if (++w->steps > MAX_STEPS) return false;
        w->c.v[f] = l->v[i];
        bool fits = head_fits(w, f);
        if (f == LF_WLX) add_stage(w, ST_LAYOUT, 0, fits);
        if (f == LF_GLWB) add_stage(w, ST_LOADS, 0, fits);
        if (fits && !walk_head(w, depth + 1)) return false;
    }
    return true;
}

/* Points that a file lists. */
static void walk_listed(struct walk *w)
{
    w->number = w->skip;
    for (i64 i = w->skip; w->fn && i < w->s->listed.n; i++)
        if (!w->fn(w->user, &w->s->listed.v[i], w->number++)) return;
}

void lab_space_each(const struct lab_space *s, enum lab_rules r, i64 start, lab_visit *fn, void *user)
{
    struct arena a = {0};
    struct lab_count unused = {0};
    struct walk w = {.s = s, .r = &rules[r], .a = &a, .c = s->base, .count = &unused, .skip = start, .fn = fn,
                     .user = user, .number = start};
    if (s->listed.n) walk_listed(&w);
    else walk_head(&w, 0);
    arena_release(&a);
}

/* Counting. */

static double count_tiles(const struct walk *w, enum lab_field x, enum lab_field y,
                          bool (*fits)(const struct lab_config *c))
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

static bool say_nothing_left(const struct lab_count *c, struct err *e)
{
    u32 s = 0;
    while (s + 1 < N_LAB_STAGES && c->stage[s].after > 0) s++;
    return err_set(e, ERR_NOTHING, "nothing is left of the space: the rule for %s removed the last %.0f of %.0f, it wants %s",
                   c->stage[s].what, c->stage[s].before, c->raw, stage_asks[s]);
}

bool lab_space_count(const struct lab_space *s, enum lab_rules r, struct lab_count *c, struct err *e)
{
    struct arena a = {0};
    struct walk w = {.s = s, .r = &rules[r], .a = &a, .c = s->base, .count = c};
    *c = (struct lab_count){.raw = 1};
    for (u32 k = 0; k < N_LAB_STAGES; k++) c->stage[k].what = stage_name[k];
    for (u32 f = 0; f < N_LAB_FIELDS; f++) c->raw *= s->list[f].n ? s->list[f].n : 1;
    c->n = s->listed.n;
    if (s->listed.n) return true;
    const struct lab_list *l = w.s->list;
    struct lab_stage *st = w.count->stage;
    st[ST_THREAD].before = (double)l[LF_TM].n * l[LF_TN].n;
    st[ST_THREAD].after = count_tiles(&w, LF_TM, LF_TN, w.r->thread_tile);
    st[ST_BLOCK].before = (double)l[LF_BM].n * l[LF_BN].n;
    st[ST_BLOCK].after = count_tiles(&w, LF_BM, LF_BN, w.r->block_tile);
    st[ST_LAYOUT].before = st[ST_THREAD].after * st[ST_BLOCK].after * l[LF_LSU].n * l[LF_WLY].n * l[LF_WLX].n;
    bool all = walk_head(&w, 0);
    arena_release(&a);
    const enum lab_field loads[] = {LF_BK, LF_GLWA, LF_GLWB};
    c->stage[ST_LOADS].before = c->stage[ST_LAYOUT].after * list_sizes(&w, countof(loads), loads);
    c->n = c->stage[ST_GRID].after;
    if (!all) return err_set(e, ERR_UNSUPPORTED, "the lists allow too many combinations of tiles to be counted");
    return c->n > 0 || say_nothing_left(c, e);
}
