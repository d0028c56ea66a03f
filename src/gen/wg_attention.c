// SPDX-License-Identifier: Apache-2.0
//
// wg_attention: what a schedule of attention by workgroups means: blocks, tiles of the threads and shared arrays. The rows of a block and the columns of the
// values are divided among the same threads twice, for the scores and for the output; the second division follows from the first and from wlox, blox.
#include "gen/wg_attention.h"

enum { WG_ATTENTION_PARAMS(GEN_PARAM_NUMBER) };
GEN_PARAM_READER(struct wg_attention_sched, read_sched, WG_ATTENTION_PARAMS)

/* Columns of a thread, of n in all: whole vectors if they are several; 0: too many. */
static i64 columns_of_thread(i64 n)
{
    static const i64 sizes[] = {1, 2, 3, 4, 6, 8, 12, 16};
    for (u32 i = 0; i < countof(sizes); i++)
        if (sizes[i] >= n) return sizes[i];
    return 0;
}

struct wg_attention_sched wg_attention_sched_of(const struct sched *v, i64 columns)
{
    struct wg_attention_sched s = read_sched(v);
    i64 subgroups = s.blpy * s.blpx;
    s.w = s.wlpy * s.wlpx;
    s.threads = s.w * subgroups;
    s.br = s.ptr * s.wlpy * s.blpy, s.bc = s.ptc * s.wlpx * s.blpx;
    if (!s.wlox || !s.blox || !columns) return s; /* not chosen yet, or there are no values */
    s.wloy = s.w % s.wlox ? 0 : s.w / s.wlox;
    s.bloy = subgroups % s.blox ? 0 : subgroups / s.blox;
    if (s.wloy && s.bloy && s.br % (s.wloy * s.bloy) == 0) s.otr = s.br / (s.wloy * s.bloy);
    s.otc = columns_of_thread(ceil_div(columns, s.wlox * s.blox));
    s.columns = s.otc * s.wlox * s.blox;
    return s;
}

i64 wg_attention_terms(const struct attention *x, const struct wg_attention_sched *s) { return round_up(gen_static(x->scores.g, x->scores.k, 1), s->sa); }

struct wg_attention_room wg_attention_room_of(const struct attention *x, const struct wg_attention_sched *s)
{
    i64 threads = s->wlpx * s->blpx, terms = wg_attention_terms(x, s);
    if (s->by_warpgroups)
        return (struct wg_attention_room){.q = s->br * terms,
                                          .kv = s->stages * s->bc * terms,
                                          .v = s->stages * s->bc * s->columns,
                                          .rows = 2 * s->br,
                                          .seen = s->skip ? s->br * threads : 0};
    const bool has_values = attention_has_values(x), checks = !x->rows.n && (x->has_band || (x->has_mask && s->skip));
    i64 keys = i64_max(s->sa * (s->bc + s->pad), s->bc * (s->sa + s->pad));
    i64 values = has_values ? i64_max(s->sb * (s->columns + s->pad), s->columns * (s->sb + s->pad)) : 0;
    return (struct wg_attention_room){.q = i64_max(s->br * (terms + s->pad), terms * (s->br + s->pad)),
                                      .kv = s->apart ? keys : i64_max(keys, values),
                                      .v = s->apart ? values : 0,
                                      .p = !has_values || (s->by_units && !s->half) ? 0 : s->br * (s->bc + s->pad),
                                      .scores = s->by_units ? s->br * (i64_max(s->bc, s->columns) + s->pad) : 0,
                                      .rows = x->rows.n ? (has_values ? 3 : 2) * s->br : 0,
                                      .folds = s->sub || !x->rows.n ? 0 : s->br * threads,
                                      .seen = s->skip ? s->br * threads : 0,
                                      .checks = checks ? s->br : 0};
}

static i64 rows_bytes(const struct attention *x, const struct wg_attention_sched *s)
{
    const struct wg_attention_room r = wg_attention_room_of(x, s);
    const i64 size = s->half ? 2 : 4;
    return size * (r.q + r.kv + r.v) + (s->by_units ? size : 4) * r.p + 4 * (r.scores + r.rows + r.folds + r.checks + (x->has_mask ? r.seen : 0));
}

struct wg_attention_columns_room wg_attention_columns_room_of(const struct attention *x, const struct wg_attention_sched *s)
{
    const i64 terms = wg_attention_terms(x, s);
    return (struct wg_attention_columns_room){.keys = i64_max(s->bc * (terms + s->pad), terms * (s->bc + s->pad)),
                                              .queries = i64_max(s->br * (s->sa + s->pad), s->sa * (s->br + s->pad)),
                                              .held = s->by_units ? s->br * (s->bc + s->pad) : s->wlpy * s->blpy * s->bc,
                                              .checks = x->has_band ? s->threads : 0};
}

i64 wg_attention_columns_bytes(const struct attention *x, const struct wg_attention_sched *s)
{
    const struct wg_attention_columns_room r = wg_attention_columns_room_of(x, s);
    return (s->half ? 2 : 4) * (r.keys + r.queries) + 4 * (r.held + r.checks);
}

i64 wg_attention_shared_bytes(const struct attention *x, const struct wg_attention_sched *s)
{
    i64 rows = attention_has_rows(x) ? rows_bytes(x, s) : 0;
    return x->columns.out ? i64_max(rows, wg_attention_columns_bytes(x, s)) : rows;
}
