// SPDX-License-Identifier: Apache-2.0
//
// wg_store: how the outputs of convolutions by workgroups get to memory. The
// convolution is bound to what the family computed and the task's outputs are asked for, so that
// everything behind it runs on the way.
//
// From registers, each thread stores the pixels that it computed; pooling works when it holds whole
// windows. Through shared memory, the tile is left there by all threads, and each takes any of the
// outputs: neighbouring threads take neighbours in memory, whatever the layout, and the elements of
// a window come from wherever they are.
#include "gen/wg_conv.h"

enum { MAX_WINDOW = 16 }; /* elements of one of pooling, see takes_windows */

/* A place's channel among those of its phase. */
static kval in_phase(const struct wg_conv *g, kval c)
{
    return g->up.tile > 1 ? kir_mod_i(g->m->k, c, g->width) : c;
}

static kval channel_of(const struct wg_conv *g, kval c)
{
    struct kir *k = g->m->k;
    kval first = kir_add(k, kir_mul_i(k, g->group, g->oc), kir_mul_i(k, g->block, g->width));
    return kir_add(k, first, in_phase(g, c));
}

/* Channels of the group from c on that exist. */
static kval channels_left(const struct wg_conv *g, kval c)
{
    struct kir *k = g->m->k;
    kval first = kir_mul_i(k, g->block, g->width);
    return kir_sub(k, kir_int(k, g->oc), kir_add(k, first, in_phase(g, c)));
}

/* How many channels of a vector may be loaded and stored where not all of a tile's exist; 0: all.
 */
static kval channel_limit(const struct wg_conv *g, kval c)
{
    return g->oc % g->width ? channels_left(g, c) : 0;
}

kval wg_conv_bias(const struct wg_conv *g, kval c, u32 lanes)
{
    struct emit *m = g->m;
    if (!g->c.b) return 0;
    kval at = kir_ramp(m->k, channel_of(g, c), 1, lanes);
    if (lanes == 1) /* of a channel that does not exist: any bias will do */
        at = kir_min(m->k, at, kir_int(m->k, g->oc * g->groups - 1));
    emit_limit(m, lanes > 1 ? channel_limit(g, c) : 0);
    kval v = kir_splat(m->k, kir_cast(m->k, g->type, emit_value(m, g->c.b, &at)), lanes);
    emit_limit(m, 0);
    return v;
}

/* Index of a place of the tile, of pooled outputs in the pooled tile. *ok: condition that it
 * exists, 0: always. */
static void place(const struct wg_conv *g, const kval *at, bool pooled, kval idx[MAX_RANK],
                  kval *ok)
{
    struct kir *k = g->m->k;
    const struct conv *c = &g->c;
    *ok = 0;
    for (u32 a = 0; a < MAX_RANK; a++) {
        bool is_y = (i32)a == c->ya, is_x = (i32)a == c->xa;
        idx[a] = a < c->rank ? g->pos[a] : kir_int(k, 0);
        if (a >= c->rank) continue;
        i64 win = pooled && (is_y || is_x) ? g->tail.win[a] : 1;
        if (is_y) idx[a] = kir_add(k, kir_div_i(k, g->y0, win), at[AT_Y]);
        if (is_x) idx[a] = kir_add(k, kir_div_i(k, g->x0, win), at[AT_X]);
        if (g->up.is && a >= 2) {
            idx[a] = wg_up_output(g, a, idx[a], at[AT_C]);
            *ok = kir_and(k, *ok, kir_lt(k, kir_int(k, -1), idx[a]));
            *ok = kir_and(k, *ok, kir_lt(k, idx[a], emit_dim(g->m, c->y, a)));
        } else if (is_y || is_x) {
            kval n = pooled ? emit_dim(g->m, g->tail.pool, a) : emit_size(g->m, c->out[a]);
            *ok = kir_and(k, *ok, kir_lt(k, idx[a], n));
        }
    }
    idx[1] = channel_of(g, at[AT_C]);
}

/* The place's index and what guards it: opens an `if` where *ok. */
static kval open_place(const struct wg_conv *g, const kval *at, u32 lanes, bool pooled,
                       kval *idx)
{
    struct kir *k = g->m->k;
    kval ok, exists = channels_left(g, at[AT_C]);
    place(g, at, pooled, idx, &ok);
    if (lanes == 1 || g->oc % lanes == 0) ok = kir_and(k, ok, kir_lt(k, kir_int(k, 0), exists));
    idx[1] = kir_ramp(k, idx[1], 1, lanes);
    if (ok) kir_if(k, ok);
    return ok;
}

/* Of a vector within open_place. */
static kval limit_of(const struct wg_conv *g, kval c, u32 lanes)
{
    return lanes > 1 && g->oc % lanes ? channel_limit(g, c) : 0;
}

void wg_conv_store(const struct wg_conv *g, const kval *at, kval v)
{
    struct emit *m = g->m;
    u32 lanes = kir_lanes(m->k, v);
    kval idx[MAX_RANK], ok = open_place(g, at, lanes, false, idx);
    kval limit = limit_of(g, at[AT_C], lanes);
    if (g->sums.temp) result_store(m, &g->sums, idx, v, limit);
    else conv_tail_store(m, &g->tail, g->c.y, idx, v, limit);
    if (ok) kir_end(m->k);
}

/* Pooling from registers. */

/* The pooling's operand at one element of the window. */
static kval window_element(const struct wg_conv *g, const kval *at, kval v)
{
    struct kir *k = g->m->k;
    kval idx[MAX_RANK], ok;
    place(g, at, false, idx, &ok);
    idx[1] = kir_ramp(k, idx[1], 1, kir_lanes(k, v));
    return conv_tail_element(g->m, &g->tail, g->c.y, idx, v, limit_of(g, at[AT_C], kir_lanes(k, v)));
}

void wg_conv_store_pool(const struct wg_conv *g, const kval *at, const kval *v)
{
    struct kir *k = g->m->k;
    i64 wy = wg_conv_window(g, g->c.ya), wx = wg_conv_window(g, g->c.xa);
    u32 lanes = kir_lanes(k, v[0]);
    kval to[N_AT] = {kir_div_i(k, at[AT_Y], wy), kir_div_i(k, at[AT_X], wx), at[AT_C]}, x[MAX_WINDOW];
    kval idx[MAX_RANK], ok = open_place(g, to, lanes, true, idx);
    for (i64 i = 0; i < wy * wx; i++) {
        kval one[N_AT] = {kir_add_i(k, at[AT_Y], i / wx), kir_add_i(k, at[AT_X], i % wx), at[AT_C]};
        x[i] = window_element(g, one, v[i]);
    }
    kval pooled = conv_tail_pool(g->m, &g->tail, x, wy * wx);
    conv_tail_store(g->m, &g->tail, g->tail.pool, idx, pooled, limit_of(g, at[AT_C], lanes));
    if (ok) kir_end(k);
}

/* Through shared memory. */

kval wg_conv_result(const struct wg_conv *g, const kval *at)
{
    struct kir *k = g->m->k;
    kval pixel = kir_add(k, kir_mul_i(k, at[AT_Y], g->s.tx), at[AT_X]);
    return kir_add(k, kir_mul_i(k, pixel, g->result), at[AT_C]);
}

/* What all threads left at a place, `lanes` channels. */
static kval load_left(const struct wg_conv *g, const kval *at, u32 lanes)
{
    struct kir *k = g->m->k;
    kval from = kir_ramp(k, wg_conv_result(g, at), 1, lanes);
    return kir_cast(k, g->type, kir_load(k, g->left, from));
}

static kval shared_value(struct emit *m, const void *user, const kval *idx)
{
    const struct wg_conv *g = user;
    struct kir *k = m->k;
    i32 y = g->c.ya, x = g->c.xa;
    const struct kir_ins c = *kir_at(k, idx[1]);
    kval zero = kir_int(k, 0), first = c.op == KI_RAMP ? c.a : idx[1], at[N_AT];
    at[AT_C] = kir_sub(k, first, channel_of(g, zero));
    at[AT_Y] = y < 0 ? zero : kir_sub(k, idx[y], g->y0);
    at[AT_X] = x < 0 ? zero : kir_sub(k, idx[x], g->x0);
    kval v = load_left(g, at, kir_lanes(k, idx[1]));
    kval bias = g->c.b && !g->bias_is_in ? kir_cast(k, g->type, emit_value(m, g->c.b, &idx[1])) : 0;
    return bias ? kir_add(k, v, bias) : v;
}

/* One output's tile: ty rows of tx pixels, channels vec at a time. */
struct leaving {
    value_id v; /* 0: sums of a chunk */
    i64 ty, tx, vec;
    bool pooled, rows;
};

/* The n-th place, in the order of memory. */
static void leaving_place(const struct wg_conv *g, const struct leaving *l, kval n, kval *at)
{
    struct kir *k = g->m->k;
    i64 side = l->rows && g->up.tile > 1 && g->c.xa >= 2 ? g->up.t.ax[g->c.xa].s : 1;
    kval pixel, phase = kir_mod_i(k, n, side); /* along x, which is not between those of a row */
    n = kir_div_i(k, n, side);
    if (l->rows) {
        pixel = kir_mod_i(k, n, l->ty * l->tx);
        n = kir_div_i(k, n, l->ty * l->tx);
        phase = kir_add(k, kir_mul_i(k, kir_div_i(k, n, g->width), side), phase);
        at[AT_C] = kir_add(k, kir_mul_i(k, phase, g->width), kir_mod_i(k, n, g->width));
        if (side == 1) at[AT_C] = n;
    } else {
        pixel = kir_div_i(k, n, g->s.oc / l->vec);
        at[AT_C] = kir_mul_i(k, kir_mod_i(k, n, g->s.oc / l->vec), l->vec);
    }
    at[AT_Y] = kir_div_i(k, pixel, l->tx), at[AT_X] = kir_mod_i(k, pixel, l->tx);
}

static void leave_one(const struct wg_conv *g, const struct leaving *l, kval n)
{
    struct emit *m = g->m;
    u32 lanes = (u32)l->vec;
    kval at[N_AT], idx[MAX_RANK];
    kval v = 0;
    leaving_place(g, l, n, at);
    kval ok = open_place(g, at, lanes, l->pooled, idx), limit = limit_of(g, at[AT_C], lanes);
    if (!l->pooled) {
        kval bias = l->v && !g->bias_is_in ? wg_conv_bias(g, at[AT_C], lanes) : 0;
        v = load_left(g, at, lanes);
        if (bias) v = kir_add(m->k, v, bias);
        emit_bind(m, g->c.y, gen_given, &v);
    }
    emit_limit(m, limit);
    if (l->v) emit_store_n(m, l->v, idx, emit_value(m, l->v, idx), limit);
    else result_store(m, &g->sums, idx, v, limit);
    emit_limit(m, 0);
    if (!l->pooled) emit_bind(m, g->c.y, shared_value, g);
    if (ok) kir_end(m->k);
}

static i64 leaving_vec(const struct wg_conv *g, const struct leaving *l)
{
    i64 vec = 1, size = dtype_size(l->v ? graph_value(g->c.g, l->v)->dtype : g->type);
    if (l->rows || g->oc * g->groups == 1) return 1;
    while (vec * 2 <= 16 / size && g->width % (vec * 2) == 0) vec *= 2;
    return vec;
}

static void leave(const struct wg_conv *g, struct leaving l)
{
    struct kir *k = g->m->k;
    l.rows = l.v && graph_value(g->c.g, l.v)->layout == LAYOUT_ROWS;
    l.vec = leaving_vec(g, &l);
    l.ty = g->s.ty / (l.pooled ? wg_conv_window(g, g->c.ya) : 1);
    l.tx = g->s.tx / (l.pooled ? wg_conv_window(g, g->c.xa) : 1);
    i64 n = l.ty * l.tx * g->s.oc / l.vec;
    kval j = kir_loop(k, KL_SERIAL, g->thread, kir_int(k, n), g->s.threads);
    leave_one(g, &l, j);
    kir_end(k);
}

void wg_conv_store_shared(const struct wg_conv *g)
{
    struct emit *m = g->m;
    emit_bind(m, g->c.y, shared_value, g);
    if (g->sums.temp) leave(g, (struct leaving){0});
    for (u32 i = 0; !g->sums.temp && i < m->g->output.n; i++)
        leave(g, (struct leaving){.v = m->g->output.v[i], .pooled = g->tail.pooled >> i & 1});
    emit_bind(m, g->c.y, NULL, NULL);
}

/* The sums of a thread. */

static void place_thread(const struct wg_conv *g, struct wg_cells *t)
{
    struct kir *k = g->m->k;
    kval n = g->thread, rest = kir_div_i(k, n, t->tc);
    t->at[AT_C] = kir_mul_i(k, kir_mod_i(k, n, t->tc), t->rc);
    t->at[AT_X] = kir_mul_i(k, kir_mod_i(k, rest, t->px), t->rx);
    t->at[AT_Y] = kir_mul_i(k, kir_div_i(k, rest, t->px), t->ry);
}

void wg_cells_open(struct wg_conv *g, struct wg_cells *t, kval init)
{
    struct kir *k = g->m->k;
    u32 lanes = (u32)t->rc;
    place_thread(g, t);
    g->bias_is_in = !init && g->c.b && !g->sums.temp;
    if (g->bias_is_in) init = wg_conv_bias(g, t->at[AT_C], lanes);
    init = init ? kir_splat(k, init, lanes) : kir_const_f(k, g->type, lanes, 0);
    t->acc = kir_alloc(k, KS_REG, g->type, lanes, kir_int(k, t->ry * t->rx));
    for (i64 i = 0; i < t->ry * t->rx; i++) kir_store(k, t->acc, kir_int(k, i), init);
}

static kval cell_value(const struct wg_conv *g, const struct wg_cells *t, i64 i) { return kir_load(g->m->k, t->acc, kir_int(g->m->k, i)); }

static void cell_place(const struct wg_conv *g, const struct wg_cells *t, i64 i, kval *at)
{
    at[AT_Y] = kir_add_i(g->m->k, t->at[AT_Y], i / t->rx);
    at[AT_X] = kir_add_i(g->m->k, t->at[AT_X], i % t->rx);
    at[AT_C] = t->at[AT_C];
}

static void store_windows(const struct wg_conv *g, const struct wg_cells *t)
{
    i64 wy = wg_conv_window(g, g->c.ya), wx = wg_conv_window(g, g->c.xa);
    kval v[MAX_WINDOW], at[N_AT];
    for (i64 y = 0; y < t->ry; y += wy)
        for (i64 x = 0; x < t->rx; x += wx) {
            for (i64 i = 0; i < wy * wx; i++)
                v[i] = cell_value(g, t, (y + i / wx) * t->rx + x + i % wx);
            cell_place(g, t, y * t->rx + x, at);
            wg_conv_store_pool(g, at, v);
        }
}

void wg_cells_store(const struct wg_conv *g, const struct wg_cells *t)
{
    struct kir *k = g->m->k;
    bool store_shared = g->s.store_shared;
    kval at[N_AT];
    bool all_pooled = !g->sums.temp && g->tail.all_pooled;
    for (i64 i = 0; i < t->ry * t->rx; i++) {
        kval v = cell_value(g, t, i);
        cell_place(g, t, i, at);
        if (store_shared)
            kir_store(k, g->left, kir_ramp(k, wg_conv_result(g, at), 1, (u32)t->rc),
                      kir_cast(k, kir_dtype(k, g->left), v));
        else if (!all_pooled) wg_conv_store(g, at, v);
    }
    if (store_shared) {
        kir_barrier(k);
        wg_conv_store_shared(g);
    } else if (g->tail.pool && !g->sums.temp) {
        store_windows(g, t);
    }
}
