// SPDX-License-Identifier: Apache-2.0
//
// wgmma_attention: what a schedule of attention by warpgroups means in terms of wg_attention. A thread has of the scores and of the output what the
// fragments give it (kernel IR, "A thread's own elements"): of 16 rows of a subgroup two, eight apart, and of every eight columns a pair.
#include "gen/wgmma_attention.h"

enum { WGMMA_ATTENTION_PARAMS(GEN_PARAM_NUMBER) };
GEN_PARAM_READER(struct wgmma_attention_sched, read_sched, WGMMA_ATTENTION_PARAMS)

enum {
    ROWS = 64,  /* of a warpgroup */
    PANEL = 64, /* elements of a line of shared memory, 128 bytes: heads are whole ones */
    LOAD = 8,   /* elements of a copy, 16 bytes */
    DOWN = 8, BESIDE = 4, OWN_ROWS = 2, PAIR = 2 /* threads of a subgroup along rows and columns; rows of one, neighbouring columns */
};

/* The widest listed fragments that divide so many columns: their columns and terms; n 0: there are none. */
static struct caps_matrix widest(const struct caps *c, enum dtype operand, i64 columns)
{
    struct str list = str_of(c->warpgroup_matrix);
    struct caps_matrix x, best = {0};
    while (caps_matrix_next(&list, &x)) {
        bool fits = x.m == ROWS && x.a == operand && x.b == operand && x.c == DT_F32 && x.d == DT_F32 && columns % x.n == 0;
        if (fits && x.n > best.n) best = x;
    }
    return best;
}

static struct mma_leaf unit_of(const struct caps *c, enum dtype operand, i64 gm, i64 columns)
{
    const struct caps_matrix x = widest(c, operand, columns);
    struct mma_leaf l = {.t = {.wm = 1, .wn = x.n ? columns / x.n : 0}, .gm = gm, .gn = 1, .subgroups = c->warpgroup};
    if (x.n) mma_shape(&l.t, operand, DT_F32, x.m, x.n, x.k);
    return l;
}

struct wgmma_attention_sched wgmma_attention_sched_of(const struct sched *v, const struct caps *c, enum dtype operand, i64 columns)
{
    struct wgmma_attention_sched s = read_sched(v);
    struct wg_attention_sched *w = &s.w;
    const i64 subgroups = s.gm * c->warpgroup, all = round_up(columns, PANEL);
    *w = (struct wg_attention_sched){.half = 1, .sa = PANEL, .sb = s.bc, .un = 1, .glwq = LOAD, .glwk = LOAD, .glwv = LOAD, .lcp = 1, .lco = 1, .sub = 1,
                                     .skip = s.skip, .split = s.split, .w = DOWN * BESIDE, .threads = subgroups * DOWN * BESIDE, .br = s.gm * ROWS, .bc = s.bc,
                                     .columns = all, .by_units = true, .by_warpgroups = true, .stages = s.stages};
    w->wlpy = w->wloy = DOWN, w->wlpx = w->wlox = BESIDE, w->blpy = w->bloy = subgroups, w->blpx = w->blox = 1;
    w->ptr = w->otr = OWN_ROWS, w->ptc = s.bc / BESIDE, w->otc = all / BESIDE;
    w->wswq = w->wswp = 1, w->bswq = w->bswp = OWN_ROWS, w->wswk = w->wswv = PAIR, w->bswk = w->ptc, w->bswv = w->otc;
    w->units[0] = unit_of(c, operand, s.gm, s.bc), w->units[1] = unit_of(c, operand, s.gm, all);
    return s;
}
