// SPDX-License-Identifier: Apache-2.0
//
// halo_store: stores the outputs of a spatial tile. The convolution is bound to the sums and the task's outputs are asked for, so that the epilogue
// runs on the way.
//
// From registers, each thread stores the pixels that it computed; pooling works when it holds whole windows. Through shared memory, all threads
// store their sums there, and each takes any of the outputs: neighbouring threads take neighbours in memory, whatever the layout, and
// the elements of a window come from wherever they are.
#include "gen/halo.h"

enum { MAX_WINDOW = 16 }; /* elements of one of pooling, see takes_windows */

/* A place's channel among those of its phase. */
static kval in_phase(const struct halo *h, kval c)
{
    return h->p->phases > 1 ? kir_mod_i(h->m->k, c, h->p->width) : c;
}

static kval channel_of(const struct halo *h, kval c)
{
    struct kir *k = h->m->k;
    kval first = kir_add(k, kir_mul_i(k, h->group, h->p->oc), kir_mul_i(k, h->block, h->p->width));
    return kir_add(k, first, in_phase(h, c));
}

/* Channels of the conv group from c on that exist. */
static kval channels_rest(const struct halo *h, kval c)
{
    struct kir *k = h->m->k;
    kval first = kir_mul_i(k, h->block, h->p->width);
    return kir_sub(k, kir_int(k, h->p->oc), kir_add(k, first, in_phase(h, c)));
}

/* How many channels of a vector may be loaded and stored where not all of a tile's exist; 0: all.
 */
static kval channel_limit(const struct halo *h, kval c)
{
    return h->p->oc % h->p->width ? channels_rest(h, c) : 0;
}

/* Of channels c and on; 0: none. */
static kval bias_of(const struct halo *h, kval c, u32 lanes)
{
    struct emit *m = h->m;
    if (!h->q->c.b) return 0;
    kval at = kir_ramp(m->k, channel_of(h, c), 1, lanes);
    if (lanes == 1) /* of a channel that does not exist: any bias will do */
        at = kir_min(m->k, at, kir_int(m->k, h->p->oc * h->p->groups - 1));
    emit_limit(m, lanes > 1 ? channel_limit(h, c) : 0);
    kval v = kir_splat(m->k, kir_cast(m->k, h->p->type, emit_value(m, h->q->c.b, &at)), lanes);
    emit_limit(m, 0);
    return v;
}

/* Index of a place of the tile, of pooled outputs in the pooled tile. *ok: condition that it
 * exists, 0: always. */
static void place(const struct halo *h, const kval *at, bool pooled, kval idx[MAX_RANK],
                  kval *ok)
{
    struct kir *k = h->m->k;
    const struct conv *c = &h->q->c;
    *ok = 0;
    for (u32 a = 0; a < MAX_RANK; a++) {
        bool is_y = (i32)a == c->ya, is_x = (i32)a == c->xa;
        idx[a] = a < c->rank ? h->pos[a] : kir_int(k, 0);
        if (a >= c->rank) continue;
        i64 win = pooled && (is_y || is_x) ? h->q->tail.win[a] : 1;
        if (is_y) idx[a] = kir_add(k, kir_div_i(k, h->y0, win), at[AT_Y]);
        if (is_x) idx[a] = kir_add(k, kir_div_i(k, h->x0, win), at[AT_X]);
        if (h->q->up && a >= 2) {
            idx[a] = halo_up_output(h, a, idx[a], at[AT_C]);
            *ok = kir_and(k, *ok, kir_lt(k, kir_int(k, -1), idx[a]));
            *ok = kir_and(k, *ok, kir_lt(k, idx[a], emit_dim(h->m, c->y, a)));
        } else if (is_y || is_x) {
            kval n = pooled ? emit_dim(h->m, h->q->tail.pool, a) : emit_size(h->m, c->out[a]);
            *ok = kir_and(k, *ok, kir_lt(k, idx[a], n));
        }
    }
    idx[1] = channel_of(h, at[AT_C]);
}

/* The place's index and what guards it: opens an `if` where *ok. */
static kval open_place(const struct halo *h, const kval *at, u32 lanes, bool pooled,
                       kval *idx)
{
    struct kir *k = h->m->k;
    kval ok, exists = channels_rest(h, at[AT_C]);
    place(h, at, pooled, idx, &ok);
    if (lanes == 1 || h->p->oc % lanes == 0) ok = kir_and(k, ok, kir_lt(k, kir_int(k, 0), exists));
    idx[1] = kir_ramp(k, idx[1], 1, lanes);
    if (ok) kir_if(k, ok);
    return ok;
}

/* Of a vector within open_place. */
static kval limit_of(const struct halo *h, kval c, u32 lanes)
{
    return lanes > 1 && h->p->oc % lanes ? channel_limit(h, c) : 0;
}

static void store_outputs(const struct halo *h, const kval *at, kval v)
{
    struct emit *m = h->m;
    u32 lanes = kir_lanes(m->k, v);
    kval idx[MAX_RANK], ok = open_place(h, at, lanes, false, idx);
    kval limit = limit_of(h, at[AT_C], lanes);
    if (h->sums.temp) result_store(m, &h->sums, idx, v, limit);
    else conv_tail_store(m, &h->q->tail, h->q->c.y, idx, v, limit);
    if (ok) kir_end(m->k);
}

/* Pooling from registers. */

/* The pooling's operand at one element of the window. */
static kval window_element(const struct halo *h, const kval *at, kval v)
{
    struct kir *k = h->m->k;
    kval idx[MAX_RANK], ok;
    place(h, at, false, idx, &ok);
    idx[1] = kir_ramp(k, idx[1], 1, kir_lanes(k, v));
    return conv_tail_element(h->m, &h->q->tail, h->q->c.y, idx, v, limit_of(h, at[AT_C], kir_lanes(k, v)));
}

static void store_pool(const struct halo *h, const kval *at, const kval *v)
{
    struct kir *k = h->m->k;
    i64 wy = halo_task_window(h->q, h->q->c.ya), wx = halo_task_window(h->q, h->q->c.xa);
    u32 lanes = kir_lanes(k, v[0]);
    kval to[N_AT] = {kir_div_i(k, at[AT_Y], wy), kir_div_i(k, at[AT_X], wx), at[AT_C]}, x[MAX_WINDOW];
    kval idx[MAX_RANK], ok = open_place(h, to, lanes, true, idx);
    for (i64 i = 0; i < wy * wx; i++) {
        kval one[N_AT] = {kir_add_i(k, at[AT_Y], i / wx), kir_add_i(k, at[AT_X], i % wx), at[AT_C]};
        x[i] = window_element(h, one, v[i]);
    }
    kval pooled = conv_tail_pool(h->m, &h->q->tail, x, wy * wx);
    conv_tail_store(h->m, &h->q->tail, h->q->tail.pool, idx, pooled, limit_of(h, at[AT_C], lanes));
    if (ok) kir_end(k);
}

/* Through shared memory. */

kval halo_result(const struct halo *h, const kval *at)
{
    struct kir *k = h->m->k;
    kval pixel = kir_add(k, kir_mul_i(k, at[AT_Y], h->p->tx), at[AT_X]);
    return kir_add(k, kir_mul_i(k, pixel, h->p->result), at[AT_C]);
}

/* The sums of a place, which all threads have stored to the array: `lanes` channels. */
static kval load_sum(const struct halo *h, const kval *at, u32 lanes)
{
    struct kir *k = h->m->k;
    kval from = kir_ramp(k, halo_result(h, at), 1, lanes);
    return kir_cast(k, h->p->type, kir_load(k, h->tile, from));
}

static kval shared_value(struct emit *m, const void *user, const kval *idx)
{
    const struct halo *h = user;
    struct kir *k = m->k;
    i32 y = h->q->c.ya, x = h->q->c.xa;
    const struct kir_ins c = *kir_at(k, idx[1]);
    kval zero = kir_int(k, 0), first = c.op == KI_RAMP ? c.a : idx[1], at[N_AT];
    at[AT_C] = kir_sub(k, first, channel_of(h, zero));
    at[AT_Y] = y < 0 ? zero : kir_sub(k, idx[y], h->y0);
    at[AT_X] = x < 0 ? zero : kir_sub(k, idx[x], h->x0);
    kval v = load_sum(h, at, kir_lanes(k, idx[1]));
    kval bias = h->q->c.b && !h->c->bias_is_in ? kir_cast(k, h->p->type, emit_value(m, h->q->c.b, &idx[1])) : 0;
    return bias ? kir_add(k, v, bias) : v;
}

/* One output's tile: ty rows of tx pixels, channels vec at a time. */
struct out_tile {
    value_id v; /* 0: sums of a split K */
    i64 ty, tx, vec;
    bool pooled, rows;
};

/* The n-th place, in the order of memory. */
static void piece_at(const struct halo *h, const struct out_tile *l, kval n, kval *at)
{
    struct kir *k = h->m->k;
    i64 side = l->rows && h->p->phases > 1 && h->q->c.xa >= 2 ? h->q->trans.ax[h->q->c.xa].s : 1;
    kval pixel, phase = kir_mod_i(k, n, side); /* along x, which is not between those of a row */
    n = kir_div_i(k, n, side);
    if (l->rows) {
        pixel = kir_mod_i(k, n, l->ty * l->tx);
        n = kir_div_i(k, n, l->ty * l->tx);
        phase = kir_add(k, kir_mul_i(k, kir_div_i(k, n, h->p->width), side), phase);
        at[AT_C] = kir_add(k, kir_mul_i(k, phase, h->p->width), kir_mod_i(k, n, h->p->width));
        if (side == 1) at[AT_C] = n;
    } else {
        pixel = kir_div_i(k, n, h->p->tile_oc / l->vec);
        at[AT_C] = kir_mul_i(k, kir_mod_i(k, n, h->p->tile_oc / l->vec), l->vec);
    }
    at[AT_Y] = kir_div_i(k, pixel, l->tx), at[AT_X] = kir_mod_i(k, pixel, l->tx);
}

static void store_piece(const struct halo *h, const struct out_tile *l, kval n)
{
    struct emit *m = h->m;
    u32 lanes = (u32)l->vec;
    kval at[N_AT], idx[MAX_RANK];
    kval v = 0;
    piece_at(h, l, n, at);
    kval ok = open_place(h, at, lanes, l->pooled, idx), limit = limit_of(h, at[AT_C], lanes);
    if (!l->pooled) {
        kval bias = l->v && !h->c->bias_is_in ? bias_of(h, at[AT_C], lanes) : 0;
        v = load_sum(h, at, lanes);
        if (bias) v = kir_add(m->k, v, bias);
        emit_bind(m, h->q->c.y, gen_given, &v);
    }
    emit_limit(m, limit);
    if (l->v) emit_store_n(m, l->v, idx, emit_value(m, l->v, idx), limit);
    else result_store(m, &h->sums, idx, v, limit);
    emit_limit(m, 0);
    if (!l->pooled) emit_bind(m, h->q->c.y, shared_value, h);
    if (ok) kir_end(m->k);
}

static i64 piece_lanes(const struct halo *h, const struct out_tile *l)
{
    i64 vec = 1, size = dtype_size(l->v ? graph_value(h->q->c.g, l->v)->dtype : h->p->type);
    if (l->rows || h->p->oc * h->p->groups == 1) return 1;
    while (vec * 2 <= 16 / size && h->p->width % (vec * 2) == 0) vec *= 2;
    return vec;
}

static void store_value(const struct halo *h, struct out_tile l)
{
    struct kir *k = h->m->k;
    l.rows = l.v && graph_value(h->q->c.g, l.v)->layout == LAYOUT_ROWS;
    l.vec = piece_lanes(h, &l);
    l.ty = h->p->ty / (l.pooled ? halo_task_window(h->q, h->q->c.ya) : 1);
    l.tx = h->p->tx / (l.pooled ? halo_task_window(h->q, h->q->c.xa) : 1);
    i64 n = l.ty * l.tx * h->p->tile_oc / l.vec;
    kval j = kir_loop(k, KL_SERIAL, h->thread, kir_int(k, n), h->p->s.threads);
    store_piece(h, &l, j);
    kir_end(k);
}

void halo_store_shared(const struct halo *h)
{
    struct emit *m = h->m;
    emit_bind(m, h->q->c.y, shared_value, h);
    if (h->sums.temp) store_value(h, (struct out_tile){0});
    for (u32 i = 0; !h->sums.temp && i < m->g->output.n; i++)
        store_value(h, (struct out_tile){.v = m->g->output.v[i], .pooled = h->q->tail.pooled >> i & 1});
    emit_bind(m, h->q->c.y, NULL, NULL);
}

/* The sums of a thread. */

kval halo_sums_open(struct halo *h, kval init)
{
    struct kir *k = h->m->k;
    i64 n = h->p->s.ry * h->p->s.rx;
    u32 lanes = (u32)h->p->s.rc;
    h->c->bias_is_in = !init && h->q->c.b && !h->sums.temp;
    if (h->c->bias_is_in) init = bias_of(h, h->at[AT_C], lanes);
    init = init ? kir_splat(k, init, lanes) : kir_const_f(k, h->p->type, lanes, 0);
    kval acc = kir_alloc(k, KS_REG, h->p->type, lanes, kir_int(k, n));
    for (i64 i = 0; i < n; i++) kir_store(k, acc, kir_int(k, i), init);
    return acc;
}

static kval sum_of(const struct halo *h, kval acc, i64 i) { return kir_load(h->m->k, acc, kir_int(h->m->k, i)); }

static void sum_at(const struct halo *h, i64 i, kval *at)
{
    struct kir *k = h->m->k;
    i64 rx = h->p->s.rx;
    at[AT_Y] = kir_add_i(k, h->at[AT_Y], i / rx);
    at[AT_X] = kir_add_i(k, h->at[AT_X], i % rx);
    at[AT_C] = h->at[AT_C];
}

static void store_windows(const struct halo *h, kval acc)
{
    const struct halo_work *s = &h->p->s;
    i64 wy = halo_task_window(h->q, h->q->c.ya), wx = halo_task_window(h->q, h->q->c.xa);
    kval v[MAX_WINDOW], at[N_AT];
    for (i64 y = 0; y < s->ry; y += wy)
        for (i64 x = 0; x < s->rx; x += wx) {
            for (i64 i = 0; i < wy * wx; i++) v[i] = sum_of(h, acc, (y + i / wx) * s->rx + x + i % wx);
            sum_at(h, y * s->rx + x, at);
            store_pool(h, at, v);
        }
}

void halo_store_sums(const struct halo *h, kval acc)
{
    struct kir *k = h->m->k;
    bool store_shared = h->p->s.store_shared, all_pooled = !h->sums.temp && h->q->tail.all_pooled;
    for (i64 i = 0; i < h->p->s.ry * h->p->s.rx; i++) {
        kval at[N_AT], v = sum_of(h, acc, i);
        sum_at(h, i, at);
        if (store_shared)
            kir_store(k, h->tile, kir_ramp(k, halo_result(h, at), 1, (u32)h->p->s.rc),
                      kir_cast(k, kir_dtype(k, h->tile), v));
        else if (!all_pooled) store_outputs(h, at, v);
    }
    if (store_shared) {
        kir_barrier(k);
        halo_store_shared(h);
    } else if (h->q->tail.pool && !h->sums.temp) {
        store_windows(h, acc);
    }
}
