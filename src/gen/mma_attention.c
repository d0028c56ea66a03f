// SPDX-License-Identifier: Apache-2.0
//
// mma_attention: what a schedule of attention by matrix units means in terms of wg_attention: blocks, and how threads divide them where they have scores
// and the output, in vectors along a row.
#include "gen/mma_attention.h"

enum { MMA_ATTENTION_PARAMS(GEN_PARAM_NUMBER) };
GEN_PARAM_READER(struct mma_attention_sched, read_sched, MMA_ATTENTION_PARAMS)

enum { PAD = 8, LOAD = 16 /* bytes */, VECTOR = 4 /* lanes */ };

static i64 divide(i64 x, i64 by) { return by && x % by == 0 ? x / by : 0; }

/* A subgroup has whole rows of scores: wlpx threads side by side. */
static void divide_scores(struct wg_attention_sched *w, i64 subgroups)
{
    w->wlpy = divide(w->w, w->wlpx), w->blpy = subgroups, w->blpx = 1;
    w->ptr = divide(w->br, w->wlpy * subgroups), w->ptc = divide(w->bc, w->wlpx);
    w->wswq = w->bswq = 1;
    w->wswk = w->bswk = i64_min(VECTOR, w->ptc);
}

/* Of the output as many threads as there are vectors in a row, or a part of it. */
static void divide_output(struct wg_attention_sched *w, i64 subgroups)
{
    if (!w->columns) return; /* not known yet, or there are no values */
    i64 across = w->columns % VECTOR ? 0 : wg_power_dividing(w->threads, w->columns / VECTOR);
    w->wlox = i64_min(across, w->w), w->blox = divide(across, w->wlox);
    w->wloy = divide(w->w, w->wlox), w->bloy = divide(subgroups, w->blox);
    w->otr = divide(w->br, w->wloy * w->bloy), w->otc = divide(w->columns, across);
    w->wswp = w->bswp = 1;
    w->wswv = w->bswv = VECTOR;
}

struct mma_attention_sched mma_attention_sched_of(const struct sched *v, enum dtype operand, i64 columns, i64 subgroup)
{
    struct mma_attention_sched s = read_sched(v);
    struct wg_attention_sched *w = &s.w;
    const i64 subgroups = s.gm * s.gn, load = LOAD / i64_max(1, dtype_size(operand)), column = s.gn * s.n;
    *w = (struct wg_attention_sched){.half = dtype_size(operand) == 2, .wlpx = s.wlpx, .sa = s.sa, .sb = s.sb, .sp = s.sp, .un = 1, .pad = PAD, .glwq = load,
                                     .glwk = load, .glwv = load, .lcp = 1, .lco = 1, .sub = 1, .skip = s.skip, .split = s.split, .apart = s.kv == 2, .w = subgroup,
                                     .threads = subgroup * subgroups, .br = s.gm * s.wm * s.m, .bc = s.gn * s.wn * s.n, .by_units = true};
    w->columns = column ? round_up(columns, column) : 0;
    divide_scores(w, subgroups);
    divide_output(w, subgroups);
    for (u32 i = 0; i < 2; i++) {
        w->units[i] = (struct mma_leaf){.t = {.wm = s.wm, .wn = i ? divide(w->columns, column) : s.wn}, .gm = s.gm, .gn = s.gn, .subgroups = 1, .ahead = s.rp};
        mma_shape(&w->units[i].t, operand, DT_F32, s.m, s.n, s.k);
    }
    return s;
}
