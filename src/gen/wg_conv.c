// SPDX-License-Identifier: Apache-2.0
//
// wg_conv: what convolutions and windows by workgroups share. A group computes a tile
// of ty rows by tx pixels by oc output channels. Block by block of input channels, the patch of
// input that the tile's taps meet is copied to shared memory once (wg_patch.c), so that the
// halo is read once for all taps. The arithmetic is the family's. Outputs leave from registers, or
// through shared memory where any thread can take any of them (wg_store.c): pooling needs
// that, and outputs with x innermost.
//
// Of a grouped convolution a tile may hold several groups of channels, side by side as they are in
// memory; then all of their input channels are one block.
//
// Dims: n, spatial axes 2.., of which the last two longer than one pixel (y, x) are tiled; ic, oc.
#include "gen/wg_conv.h"

enum { MAX_REACH = 1 << 20 /* of a patch along an axis: larger ones fit nowhere */ };

/* Taking apart. */

/* Of pooling: on the tile's axes only. */
static bool takes_windows(const struct wg_conv *g)
{
    const struct conv *c = &g->c;
    if (!g->tail.pool) return true;
    for (u32 a = 0; a < c->rank; a++) {
        bool tiled = (i32)a == c->xa || (i32)a == c->ya;
        if (g->tail.win[a] != 1 && (!tiled || (g->tail.win[a] != 2 && g->tail.win[a] != 4))) return false;
    }
    return !g->up.is;
}

/* Blocked layouts have channels of padding, which nobody here would write. */
static bool takes_layout(const struct conv *c, value_id v)
{
    return c->oc * c->groups % layout_block(graph_value(c->g, v)->layout) == 0;
}

/* One tap that moves nothing: pixels are merged where all operands allow. An axis that carries
   several has index 0 on the others, see space.c. */
static void flatten(struct conv *c)
{
    if (!c->point || !c->plain) return;
    struct space s = conv_space(c);
    if (!s.n) return;
    for (u32 a = 0; a < c->rank; a++)
        if (a != 1) c->in[a] = c->out[a] = sym_const(c->g->sym, 1);
    for (u32 i = 0; i < s.n; i++) c->in[s.g[i].axis] = c->out[s.g[i].axis] = s.g[i].extent;
    c->xa = (i32)s.g[s.n - 1].axis;
    c->ya = s.n > 1 && s.g[s.n - 2].axis ? (i32)s.g[s.n - 2].axis : -1;
}

bool wg_conv_takes(struct wg_conv *g, const struct task *t)
{
    for (u32 i = 0; i < t->g.output.n; i++)
        if (!takes_layout(&g->c, t->g.output.v[i])) return false;
    return conv_tail_of(&g->tail, &g->c) && takes_windows(g);
}

bool wg_conv_of(struct wg_conv *g, const struct task *t)
{
    *g = (struct wg_conv){0};
    if (!conv_anchor(&g->c, t) && !wg_up_of(g, t)) return false;
    if (!wg_conv_takes(g, t)) return false;
    if (!g->tail.pool) flatten(&g->c);
    return true;
}

/* Planning. */

static i64 gcd(i64 a, i64 b) { return b ? gcd(b, a % b) : a; }

static bool is_tiled(const struct conv *c, u32 a) { return (i32)a == c->xa || (i32)a == c->ya; }

/* Positions of the patch along a tiled axis, for n outputs. Only multiples of the unit are met. */
static i64 reach(struct wg_conv *g, i32 axis, i64 n)
{
    const struct conv *c = &g->c;
    if (axis < 0) return 1;
    i64 s = c->stride[axis], d = c->dil[axis], k = c->k[axis];
    g->unit[axis] = k == 1 ? s : gcd(s, d);
    if (g->up.is) return i64_min(n + g->up.span[axis], MAX_REACH);
    return i64_min(((n - 1) * s + (k - 1) * d) / g->unit[axis] + 1, MAX_REACH);
}

/* Readers whose words fall on the same bank, at most. Words of 16 bytes, eight of them at a time.
 */
static i64 conflicts(const struct wg_conv *g, i64 pixel)
{
    i64 n[8] = {0}, worst = 0, x = g->c.xa;
    i64 step = g->s.apart * (x < 0 ? 1 : g->c.stride[x] / g->unit[x]) * pixel * dtype_size(g->cell);
    for (i64 i = 0; i < i64_min(g->s.readers, 8); i++)
        worst = i64_max(worst, ++n[i * step / 16 % 8]);
    return worst;
}

/* Elements of a pixel, padded where that spreads them over the banks. */
static i64 padded(const struct wg_conv *g, i64 n)
{
    i64 vec = i64_max(1, 16 / dtype_size(g->cell));
    return n % vec == 0 && conflicts(g, n + vec) < conflicts(g, n) ? n + vec : n;
}

i64 wg_power_dividing(i64 most, i64 n)
{
    i64 v = 1;
    while (v * 2 <= most && n % (v * 2) == 0) v *= 2;
    return v;
}

static void plan_axes(struct wg_conv *g)
{
    const struct conv *c = &g->c;
    g->planes = g->taps = 1, g->n_order = 0;
    for (u32 a = 2; a < c->rank; a++) {
        if (is_tiled(c, a)) continue;
        g->order[g->n_order++] = a;
        g->plane[a] = g->up.is ? g->up.span[a] + 1 : c->k[a];
        g->planes *= g->plane[a];
    }
    if (c->ya >= 2) g->order[g->n_order++] = (u32)c->ya;
    if (c->xa >= 2) g->order[g->n_order++] = (u32)c->xa;
    i64 plane = g->rows * g->cols * g->pixel;
    for (u32 i = g->n_order; i-- > 0;) {
        u32 a = g->order[i];
        i64 next = (i32)a == c->xa ? g->pixel : g->cols * g->pixel;
        g->w_tap[a] = g->taps * g->terms * g->s.oc;
        g->taps *= c->k[a];
        g->place[a] = is_tiled(c, a) ? next : plane;
        g->tap[a] = is_tiled(c, a) ? c->dil[a] / g->unit[a] * next : plane;
        if (g->up.is) g->tap[a] = -c->dil[a] * g->place[a];
        if (!is_tiled(c, a)) plane *= g->plane[a];
    }
    if (c->xa >= 0) g->step[c->xa] = c->stride[c->xa] / g->unit[c->xa] * g->pixel;
    if (c->ya >= 0) g->step[c->ya] = c->stride[c->ya] / g->unit[c->ya] * g->cols * g->pixel;
}

/* Channels as the tile sees them, and blocks of them. */
static void plan_channels(struct wg_conv *g)
{
    const struct conv *c = &g->c;
    i64 side = i64_max(1, g->s.groups);
    bool many = side > 1;
    g->groups = many ? 1 : c->groups;
    g->ic = many ? c->ic * c->groups : c->ic, g->oc = many ? c->oc * c->groups : c->oc;
    g->terms = g->s.bk / side;
    g->n_in = many ? 1 : ceil_div(c->ic, g->s.bk);
    wg_up_plan(g);
}

static void plan_copies(struct wg_conv *g)
{
    const struct wg_work *s = &g->s;
    enum dtype w = g->c.w ? graph_value(g->c.g, g->c.w)->dtype : g->type;
    i64 pixels = g->planes * g->rows * g->cols;
    g->n_patch = s->patch ? pixels * g->pixel : 0;
    g->n_weights = g->c.w ? g->taps * g->terms * s->oc : 0;
    g->w_vec = wg_power_dividing(16 / dtype_size(w), g->n_weights);
    g->result = s->oc + (s->oc % 2 ? 0 : i64_max(1, 16 / dtype_size(g->cell)));
    g->n_result = s->store_shared ? s->ty * s->tx * g->result : 0;
    g->buffers = s->pipe == PIPE_DOUBLE ? 2 : 1;
    g->patch_copies = s->patch ? ceil_div(pixels * (s->bk / g->vec), s->threads) : 0;
    g->weight_copies = s->weights ? ceil_div(g->n_weights / g->w_vec, s->threads) : 0;
}

void wg_conv_plan(struct wg_conv *g, const struct wg_work *s)
{
    const struct conv *c = &g->c;
    enum dtype x = graph_value(c->g, c->x)->dtype;
    g->s = *s;
    g->type = emit_type(x);
    g->cell = s->wide ? g->type : x;
    g->by_pixel = conv_input_layout(c) != LAYOUT_ROWS;
    g->vec = g->by_pixel ? wg_power_dividing(16 / dtype_size(x), s->bk) : 1;
    g->rows = reach(g, c->ya, s->ty), g->cols = reach(g, c->xa, s->tx);
    g->pixel = padded(g, s->bk);
    plan_channels(g);
    plan_axes(g);
    plan_copies(g);
}

i64 wg_conv_shared(const struct wg_conv *g)
{
    i64 patch = i64_max(g->n_patch * g->buffers, g->n_result) * dtype_size(g->cell);
    if (g->s.split_k > 1)
        patch = g->n_patch * g->buffers * dtype_size(g->cell) + g->n_result * dtype_size(g->type);
    if (!g->s.weights) return patch;
    i64 weights = g->n_weights * g->buffers;
    return patch + weights * dtype_size(graph_value(g->c.g, g->c.w)->dtype);
}

i64 wg_conv_copies(const struct wg_conv *g) { return g->patch_copies + g->weight_copies; }

bool wg_conv_by_registers(const struct wg_conv *g) { return wg_conv_copies(g) <= GROUP_CONV_COPIES; }

/* Weights of transposed convolutions lie as [input channel][output]: those behind a group are the next one's. */
static bool groups_overlap(const struct wg_conv *g)
{
    return g->groups > 1 && g->ic % g->s.bk;
}

bool wg_conv_fits(const struct wg_conv *g, const struct caps *c)
{
    const struct wg_work *s = &g->s;
    bool staged = s->patch || s->weights;
    if (s->threads > c->max_group || wg_conv_shared(g) > c->shared_bytes) return false;
    if (s->pipe != PIPE_NONE && (g->n_in == 1 || !staged)) return false;
    if (s->pipe != PIPE_NONE && !wg_conv_by_registers(g)) return false;
    if (s->wide && g->type == graph_value(g->c.g, g->c.x)->dtype) return false;
    if (g->tail.ragged && !s->store_shared) return false;
    if (g->up.is && s->groups > 1) return false;
    if (g->up.is && groups_overlap(g)) return false;
    if (s->split_k > 1 && (g->n_in % s->split_k || g->n_in / s->split_k < 2)) return false;
    return s->ty % wg_conv_window(g, g->c.ya) == 0 && s->tx % wg_conv_window(g, g->c.xa) == 0;
}

i64 wg_conv_window(const struct wg_conv *g, i32 axis)
{
    return g->tail.pool && axis >= 0 ? g->tail.win[axis] : 1;
}

bool wg_conv_has_rows(const struct wg_conv *g)
{
    const struct graph *t = g->c.g;
    for (u32 i = 0; i < t->output.n; i++)
        if (graph_value(t, t->output.v[i])->layout == LAYOUT_ROWS) return true;
    return false;
}

i64 wg_conv_size(const struct wg_conv *g, i32 axis)
{
    return axis < 0 ? 1 : gen_static(g->c.g, g->c.out[axis], GEN_NOMINAL);
}

double wg_conv_halo(const struct wg_conv *g)
{
    const struct conv *c = &g->c;
    double n = (double)(g->rows * g->cols);
    if (c->ya >= 0) n *= (double)g->unit[c->ya] / (double)(g->s.ty * c->stride[c->ya]);
    if (c->xa >= 0) n *= (double)g->unit[c->xa] / (double)(g->s.tx * c->stride[c->xa]);
    return n;
}

/* Opening. */

static void pack_dim(const struct wg_conv *g, struct pack *p, i64 n, u32 axis, i64 stride)
{
    p->dim[p->n].extent = sym_const(g->c.g->sym, n);
    p->dim[p->n].axis = axis;
    p->dim[p->n++].stride = stride;
}

static kval pack_weights(struct wg_conv *g)
{
    struct pack *p = arena_new(g->m->arena, struct pack);
    if (g->up.is) {
        wg_up_pack(g, p);
        return emit_pack(g->m, g->c.w, p);
    }
    pack_dim(g, p, g->groups, 0, g->oc);
    pack_dim(g, p, g->n_out, 0, g->s.oc);
    pack_dim(g, p, g->n_in, 1, g->terms);
    for (u32 i = 0; i < g->n_order; i++) pack_dim(g, p, g->c.k[g->order[i]], g->order[i], 1);
    pack_dim(g, p, g->terms, 1, 1);
    pack_dim(g, p, g->s.oc, 0, 1);
    return emit_pack(g->m, g->c.w, p);
}

static i64 chunks_of(const struct wg_conv *g) { return i64_max(1, g->s.split_k); }

static void open_grid(struct wg_conv *g)
{
    struct emit *m = g->m;
    struct kir *k = m->k;
    struct symtab *t = m->g->sym;
    const struct conv *c = &g->c;
    struct space outer = conv_outer(c);
    u32 list[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    kval at[MAX_RANK] = {0};
    sym one = sym_const(t, 1),
        n = sym_mul(t, space_count(&outer, t, 0, outer.n), sym_const(t, g->groups * chunks_of(g)));
    sym ny = c->ya < 0 ? one : sym_cdiv(t, c->out[c->ya], sym_const(t, g->s.ty));
    sym nx = c->xa < 0 ? one : sym_cdiv(t, c->out[c->xa], sym_const(t, g->s.tx));
    kval o = kir_grid(k, emit_size(m, n)), y = kir_grid(k, emit_size(m, ny));
    kval x = kir_grid(k, emit_size(m, sym_mul(t, nx, sym_const(t, g->n_out))));
    g->chunk = kir_mod_i(k, o, chunks_of(g));
    o = kir_div_i(k, o, chunks_of(g));
    g->group = kir_mod_i(k, o, g->groups);
    space_split(m, &outer, list, outer.n, kir_div_i(k, o, g->groups), at);
    space_index(k, &outer, at, g->pos);
    g->block = wg_up_open(g, kir_mod_i(k, x, g->n_out));
    g->x0 = kir_mul_i(k, kir_div_i(k, x, g->n_out), g->s.tx);
    g->y0 = kir_mul_i(k, y, g->s.ty);
}

static void open_arrays(struct wg_conv *g)
{
    struct kir *k = g->m->k;
    bool own = g->s.split_k > 1; /* sums are longer than inputs */
    i64 n = i64_max(g->n_patch * g->buffers, own ? 0 : g->n_result);
    enum dtype w = g->c.w ? graph_value(g->c.g, g->c.w)->dtype : g->type;
    if (n) g->patch = kir_alloc(k, KS_SHARED, g->cell, 1, kir_int(k, n));
    g->left = g->patch;
    if (own && g->n_result)
        g->left = kir_alloc(k, KS_SHARED, g->type, 1, kir_int(k, g->n_result));
    n = g->n_weights * g->buffers;
    if (g->s.weights) g->weights = kir_alloc(k, KS_SHARED, w, 1, kir_int(k, n));
    if (!wg_conv_by_registers(g)) return;
    n = g->patch_copies;
    if (n) g->next_patch = kir_alloc(k, KS_REG, g->cell, (u32)g->vec, kir_int(k, n));
    n = g->weight_copies;
    if (n) g->next_weights = kir_alloc(k, KS_REG, w, (u32)g->w_vec, kir_int(k, n));
}

void wg_conv_open(struct wg_conv *g, struct emit *m)
{
    g->m = m;
    m->k->group[0] = (u32)g->s.threads;
    if (g->c.w) g->packed = pack_weights(g);
    emit_args(m);
    g->sums = (struct result){.v = g->c.y, .inner = 1, .parts = chunks_of(g)};
    if (g->sums.parts > 1) result_open(m, &g->sums, g->type);
    open_grid(g);
    g->sums.part = g->chunk;
    g->thread = kir_thread(m->k, 0);
    open_arrays(g);
}

/* A sum of all chunks. */
static kval whole_sum(struct emit *m, const void *user, const kval *idx)
{
    const struct wg_conv *g = user;
    kval v = result_load(m, &g->sums, idx);
    if (!g->c.b) return v;
    return kir_add(m->k, v, kir_cast(m->k, g->type, emit_value(m, g->c.b, &idx[1])));
}

void wg_conv_close(struct wg_conv *g, const struct task *t, const struct caps *c)
{
    for (u32 i = 0; i < 3; i++) kir_end(g->m->k);
    if (g->sums.temp) gen_elementwise_rest(g->m, t, c, g->c.y, whole_sum, g);
}

/* Taps. */

void wg_conv_taps(const struct wg_conv *g, struct wg_taps *p, bool unroll)
{
    struct kir *k = g->m->k;
    for (u32 i = 0; i < g->n_order; i++) {
        u32 a = g->order[i];
        kval n = wg_up_taps(g, a), base = wg_up_base(g, a);
        p->tap[a] = kir_int(k, 0);
        p->at = kir_add(k, p->at, kir_mul_i(k, base, g->place[a]));
        if (g->c.k[a] == 1 && !n) continue;
        enum kir_loop kind = unroll && !n && (i32)a == g->c.xa ? KL_UNROLL : KL_SERIAL;
        p->tap[a] = kir_loop(k, kind, kir_int(k, 0), n ? n : kir_int(k, g->c.k[a]), 1);
        p->at = kir_add(k, p->at, kir_mul_i(k, p->tap[a], g->tap[a]));
        p->w = kir_add(k, p->w, kir_mul_i(k, p->tap[a], g->w_tap[a]));
        p->n_loops++;
    }
}

kval wg_conv_input_at(const struct wg_conv *g, u32 axis, kval o, kval tap)
{
    struct kir *k = g->m->k;
    kval at = kir_mul_i(k, o, g->c.stride[axis]);
    if (axis < 2) return at;
    i64 dil = g->up.is ? -g->c.dil[axis] : g->c.dil[axis];
    return kir_add(k, kir_add(k, at, wg_up_base(g, axis)), kir_mul_i(k, tap, dil));
}
