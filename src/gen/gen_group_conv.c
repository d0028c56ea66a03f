// SPDX-License-Identifier: Apache-2.0
//
// gen_group_conv: what convolutions by groups of threads share. A group computes a tile of ty rows
// by tx pixels by oc output channels. Block by block of input channels, the patch of input that the
// tile's taps meet is copied to shared memory once, so that the halo is read once for all taps;
// what stands in front of the convolution (padding, upsampling, concatenation, activation, layout)
// is paid there. The arithmetic is the family's. Outputs leave from registers, or through shared
// memory where any thread can take any of them: pooling needs that, and outputs with x innermost.
//
// Where the input is a concatenation, blocks of channels that lie in one part only are copied by
// code of their own, without tests.
//
// Dims: n, spatial axes 2.., of which the last two longer than one pixel (y, x) are tiled; ic, oc.
#include "gen/gen_group_conv.h"

enum {
    MAX_COPIES = 8,      /* copies of a thread that are written out; more are a loop */
    MAX_PARTS = 8,       /* of a concatenation */
    MAX_REACH = 1 << 20, /* of a patch along an axis: larger ones fit nowhere */
};

/* Taking apart. */

/* The pooling that stands between v and y. */
static value_id find_pool(const struct graph *g, value_id v, value_id y)
{
    value_id found = 0;
    if (v == y || !gen_depends(g, v, y)) return 0;
    node_id p = graph_value(g, v)->producer;
    if (op_of(g, p)->props & OP_WINDOW) return v;
    const struct node *n = graph_node(g, p);
    for (u32 i = 0; i < n->in.n && !found; i++)
        found = n->in.v[i] ? find_pool(g, n->in.v[i], y) : 0;
    return found;
}

/* Between v and `from` stand pointwise nodes of one shape only, and v sees y through it alone. */
static bool is_pointwise_behind(const struct graph *g, value_id v, value_id from, value_id y)
{
    if (v == from || !gen_depends(g, v, y)) return true;
    node_id p = graph_value(g, v)->producer;
    if (!(op_of(g, p)->props & OP_POINTWISE)) return false;
    if (!shape_equal(&graph_value(g, v)->shape, &graph_value(g, from)->shape)) return false;
    const struct node *n = graph_node(g, p);
    for (u32 i = 0; i < n->in.n; i++)
        if (n->in.v[i] && !is_pointwise_behind(g, n->in.v[i], from, y)) return false;
    return true;
}

/* Windows side by side, on the tile's axes, without padding. */
static bool takes_pool(struct group_conv *g, value_id pool)
{
    const struct conv *c = &g->c;
    node_id p = graph_value(c->g, pool)->producer;
    const struct node *n = graph_node(c->g, p);
    struct op_window w;
    if (!op_of(c->g, p)->pool || n->out.v[0] != pool || (n->out.n > 1 && n->out.v[1])) return false;
    if (!is_pointwise_behind(c->g, n->in.v[0], c->y, c->y)) return false;
    op_window_get(c->g, n, &w);
    for (u32 a = 0; a < c->rank; a++) {
        g->tail.win[a] = a < 2 ? 1 : w.kernel[a - 2];
        if (a < 2 || (w.kernel[a - 2] == 1 && w.stride[a - 2] == 1)) continue;
        if ((i32)a != c->xa && (i32)a != c->ya) return false;
        bool apart = w.stride[a - 2] == w.kernel[a - 2] && w.dilation[a - 2] == 1;
        if (!apart || (w.kernel[a - 2] != 2 && w.kernel[a - 2] != 4)) return false;
    }
    for (u32 i = 0; i < w.n; i++)
        if (!sym_is(c->g, w.begin[i], 0) || !sym_is(c->g, w.end[i], 0)) return false;
    g->tail.pool = pool, g->tail.ragged = w.ceil;
    return true;
}

/* Blocked layouts have channels of padding, which nobody here would write. */
static bool takes_layout(const struct conv *c, value_id v)
{
    i64 channels = c->oc * c->groups;
    switch (graph_value(c->g, v)->layout) {
    case LAYOUT_ROWS:
    case LAYOUT_CLAST: return true;
    case LAYOUT_C8: return channels % 8 == 0;
    case LAYOUT_C16: return channels % 16 == 0;
    case N_LAYOUTS: break;
    }
    unreachable();
}

static bool takes_output(struct group_conv *g, u32 i)
{
    const struct graph *t = g->c.g;
    value_id v = t->output.v[i], pool = find_pool(t, v, g->c.y), from = pool ? pool : g->c.y;
    if (!gen_depends(t, v, g->c.y) || !takes_layout(&g->c, v)) return false;
    if (pool && g->tail.pool && pool != g->tail.pool) return false;
    if (pool && !takes_pool(g, pool)) return false;
    g->tail.pooled |= pool ? 1u << i : 0;
    return shape_equal(&graph_value(t, v)->shape, &graph_value(t, from)->shape) &&
           is_pointwise_behind(t, v, from, g->c.y);
}

/* One tap that moves nothing: pixels are merged where all operands allow. An axis that carries
   several has index 0 on the others, see gen_space.c. */
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

bool group_conv_of(struct group_conv *g, const struct task *t)
{
    *g = (struct group_conv){0};
    if (!conv_anchor(&g->c, t) || t->g.output.n > 32) return false;
    for (u32 i = 0; i < t->g.output.n; i++)
        if (!takes_output(g, i)) return false;
    if (!g->tail.pool) flatten(&g->c);
    return true;
}

/* Planning. */

static i64 gcd(i64 a, i64 b) { return b ? gcd(b, a % b) : a; }

static bool is_tiled(const struct conv *c, u32 a) { return (i32)a == c->xa || (i32)a == c->ya; }

/* Positions of the patch along a tiled axis, for n outputs. Only multiples of the unit are met. */
static i64 reach(struct group_conv *g, i32 axis, i64 n)
{
    const struct conv *c = &g->c;
    if (axis < 0) return 1;
    i64 s = c->stride[axis], d = c->dil[axis], k = c->k[axis];
    g->unit[axis] = k == 1 ? s : gcd(s, d);
    return i64_min(((n - 1) * s + (k - 1) * d) / g->unit[axis] + 1, MAX_REACH);
}

/* Readers whose words fall on the same bank, at most. Words of 16 bytes, eight of them at a time.
 */
static i64 conflicts(const struct group_conv *g, i64 pixel)
{
    i64 n[8] = {0}, worst = 0, x = g->c.xa;
    i64 step = g->s.apart * (x < 0 ? 1 : g->c.stride[x] / g->unit[x]) * pixel * dtype_size(g->cell);
    for (i64 i = 0; i < i64_min(g->s.readers, 8); i++)
        worst = i64_max(worst, ++n[i * step / 16 % 8]);
    return worst;
}

/* Elements of a pixel, padded where that spreads them over the banks. */
static i64 padded(const struct group_conv *g, i64 n)
{
    i64 vec = i64_max(1, 16 / dtype_size(g->cell));
    return n % vec == 0 && conflicts(g, n + vec) < conflicts(g, n) ? n + vec : n;
}

static i64 power_dividing(i64 most, i64 n)
{
    i64 v = 1;
    while (v * 2 <= most && n % (v * 2) == 0) v *= 2;
    return v;
}

static void plan_axes(struct group_conv *g)
{
    const struct conv *c = &g->c;
    g->planes = g->taps = 1, g->n_order = 0;
    for (u32 a = 2; a < c->rank; a++)
        if (!is_tiled(c, a)) g->order[g->n_order++] = a, g->planes *= c->k[a];
    if (c->ya >= 2) g->order[g->n_order++] = (u32)c->ya;
    if (c->xa >= 2) g->order[g->n_order++] = (u32)c->xa;
    i64 plane = g->rows * g->cols * g->pixel;
    for (u32 i = g->n_order; i-- > 0;) {
        u32 a = g->order[i];
        i64 next = (i32)a == c->xa ? g->pixel : g->cols * g->pixel;
        g->w_tap[a] = g->taps * g->s.cb * g->s.oc;
        g->taps *= c->k[a];
        if (is_tiled(c, a)) g->tap[a] = c->dil[a] / g->unit[a] * next;
        else g->tap[a] = plane, plane *= c->k[a];
    }
    if (c->xa >= 0) g->step[c->xa] = c->stride[c->xa] / g->unit[c->xa] * g->pixel;
    if (c->ya >= 0) g->step[c->ya] = c->stride[c->ya] / g->unit[c->ya] * g->cols * g->pixel;
}

void group_conv_plan(struct group_conv *g, const struct group_work *s)
{
    const struct conv *c = &g->c;
    enum dtype x = graph_value(c->g, c->x)->dtype, w = graph_value(c->g, c->w)->dtype;
    g->s = *s;
    g->type = emit_type(x);
    g->cell = s->wide ? g->type : x;
    g->n_in = ceil_div(c->ic, s->cb), g->n_out = ceil_div(c->oc, s->oc);
    g->by_pixel = conv_input_layout(c) != LAYOUT_ROWS;
    g->vec = g->by_pixel ? power_dividing(16 / dtype_size(x), s->cb) : 1;
    g->rows = reach(g, c->ya, s->ty), g->cols = reach(g, c->xa, s->tx);
    g->pixel = padded(g, s->cb);
    plan_axes(g);
    g->n_patch = s->patch ? g->planes * g->rows * g->cols * g->pixel : 0;
    g->n_weights = g->taps * s->cb * s->oc;
    g->w_vec = power_dividing(16 / dtype_size(w), g->n_weights);
    g->result = s->oc + (s->oc % 2 ? 0 : i64_max(1, 16 / dtype_size(g->cell)));
    g->n_result = s->by_shared ? s->ty * s->tx * g->result : 0;
}

static i64 buffers(const struct group_conv *g) { return g->s.pipe == PIPE_DOUBLE ? 2 : 1; }

i64 group_conv_shared(const struct group_conv *g)
{
    i64 patch = i64_max(g->n_patch * buffers(g), g->n_result) * dtype_size(g->cell);
    i64 weights = g->s.weights ? g->n_weights * buffers(g) : 0;
    return patch + weights * dtype_size(graph_value(g->c.g, g->c.w)->dtype);
}

static i64 patch_pieces(const struct group_conv *g)
{
    return g->planes * g->rows * g->cols * (g->s.cb / g->vec);
}

/* Copies that one thread does of a block. */
static i64 patch_copies(const struct group_conv *g)
{
    return ceil_div(patch_pieces(g), g->s.threads);
}

static i64 weight_copies(const struct group_conv *g)
{
    return ceil_div(g->n_weights / g->w_vec, g->s.threads);
}

i64 group_conv_copies(const struct group_conv *g)
{
    return (g->s.patch ? patch_copies(g) : 0) + (g->s.weights ? weight_copies(g) : 0);
}

/* Loads of a thread go to registers, all of them, before the first is stored: they are under way at
 * the same time. */
static bool by_registers(const struct group_conv *g) { return group_conv_copies(g) <= MAX_COPIES; }

bool group_conv_fits(const struct group_conv *g, const struct caps *c)
{
    const struct group_work *s = &g->s;
    bool staged = s->patch || s->weights;
    if (s->threads > c->max_group || group_conv_shared(g) > c->shared_bytes) return false;
    if (s->pipe != PIPE_NONE && (g->n_in == 1 || !staged)) return false;
    if (s->pipe != PIPE_NONE && !by_registers(g)) return false;
    if (s->wide && g->type == graph_value(g->c.g, g->c.x)->dtype) return false;
    if (g->tail.ragged && !s->by_shared) return false;
    return s->ty % group_conv_window(g, g->c.ya) == 0 && s->tx % group_conv_window(g, g->c.xa) == 0;
}

i64 group_conv_window(const struct group_conv *g, i32 axis)
{
    return g->tail.pool && axis >= 0 ? g->tail.win[axis] : 1;
}

i64 group_conv_size(const struct group_conv *g, i32 axis)
{
    return axis < 0 ? 1 : gen_static(g->c.g, g->c.out[axis], GEN_NOMINAL);
}

double group_conv_halo(const struct group_conv *g)
{
    const struct conv *c = &g->c;
    double n = (double)(g->rows * g->cols);
    if (c->ya >= 0) n *= (double)g->unit[c->ya] / (double)(g->s.ty * c->stride[c->ya]);
    if (c->xa >= 0) n *= (double)g->unit[c->xa] / (double)(g->s.tx * c->stride[c->xa]);
    return n;
}

/* Opening. */

static void pack_dim(const struct group_conv *g, struct pack *p, i64 n, u32 axis, i64 stride)
{
    p->dim[p->n].extent = sym_const(g->c.g->sym, n);
    p->dim[p->n].axis = axis;
    p->dim[p->n++].stride = stride;
}

static kval pack_weights(struct group_conv *g)
{
    struct pack *p = arena_new(g->m->arena, struct pack);
    pack_dim(g, p, g->c.groups, 0, g->c.oc);
    pack_dim(g, p, g->n_out, 0, g->s.oc);
    pack_dim(g, p, g->n_in, 1, g->s.cb);
    for (u32 i = 0; i < g->n_order; i++) pack_dim(g, p, g->c.k[g->order[i]], g->order[i], 1);
    pack_dim(g, p, g->s.cb, 1, 1);
    pack_dim(g, p, g->s.oc, 0, 1);
    return emit_pack(g->m, g->c.w, p);
}

static void open_grid(struct group_conv *g)
{
    struct emit *m = g->m;
    struct kir *k = m->k;
    struct symtab *t = m->g->sym;
    const struct conv *c = &g->c;
    struct space outer = conv_outer(c);
    u32 list[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    kval at[MAX_RANK] = {0};
    sym one = sym_const(t, 1),
        n = sym_mul(t, space_count(&outer, t, 0, outer.n), sym_const(t, c->groups));
    sym ny = c->ya < 0 ? one : sym_cdiv(t, c->out[c->ya], sym_const(t, g->s.ty));
    sym nx = c->xa < 0 ? one : sym_cdiv(t, c->out[c->xa], sym_const(t, g->s.tx));
    kval o = kir_grid(k, emit_size(m, n)), y = kir_grid(k, emit_size(m, ny));
    kval x = kir_grid(k, emit_size(m, sym_mul(t, nx, sym_const(t, g->n_out))));
    g->group = kir_mod_i(k, o, c->groups);
    space_split(m, &outer, list, outer.n, kir_div_i(k, o, c->groups), at);
    space_index(k, &outer, at, g->pos);
    g->block = kir_mod_i(k, x, g->n_out);
    g->x0 = kir_mul_i(k, kir_div_i(k, x, g->n_out), g->s.tx);
    g->y0 = kir_mul_i(k, y, g->s.ty);
}

void group_conv_open(struct group_conv *g, struct emit *m)
{
    struct kir *k = m->k;
    enum dtype w = graph_value(g->c.g, g->c.w)->dtype;
    g->m = m;
    k->group[0] = (u32)g->s.threads;
    g->packed = pack_weights(g);
    emit_args(m);
    open_grid(g);
    g->thread = kir_thread(k, 0);
    i64 n = i64_max(g->n_patch * buffers(g), g->n_result);
    if (n) g->patch = kir_alloc(k, KS_SHARED, g->cell, 1, kir_int(k, n));
    n = g->n_weights * buffers(g);
    if (g->s.weights) g->weights = kir_alloc(k, KS_SHARED, w, 1, kir_int(k, n));
    if (!by_registers(g)) return;
    if (g->s.patch)
        g->next_patch = kir_alloc(k, KS_REG, g->cell, (u32)g->vec, kir_int(k, patch_copies(g)));
    if (g->s.weights)
        g->next_weights = kir_alloc(k, KS_REG, w, (u32)g->w_vec, kir_int(k, weight_copies(g)));
}

/* Copying. */

static void also(struct kir *k, kval *all, kval cond)
{
    i64 c;
    if (kir_is_const(k, cond, &c) && c) return;
    *all = *all ? kir_bin(k, KI_AND, *all, cond) : cond;
}

void group_conv_source(const struct group_conv *g, struct group_source *p, const kval *at, kval c,
                       i64 lanes)
{
    struct kir *k = g->m->k;
    const struct conv *v = &g->c;
    *p = (struct group_source){0};
    also(k, &p->ok, kir_lt(k, c, kir_int(k, v->ic)));
    if (v->ic % lanes) p->limit = kir_sub(k, kir_int(k, v->ic), c);
    for (u32 a = 0; a < v->rank; a++) {
        p->idx[a] = kir_sub(k, at[a], emit_size(g->m, v->pad[a]));
        if (a == 1 || (a == 0 && v->xa != 0)) continue;
        also(k, &p->ok, kir_bin(k, KI_LE, kir_int(k, 0), p->idx[a]));
        also(k, &p->ok, kir_lt(k, p->idx[a], emit_size(g->m, v->in[a])));
    }
    p->idx[1] = kir_ramp(k, kir_add(k, kir_mul_i(k, g->group, v->ic), c), 1, (u32)lanes);
}

kval group_conv_value(const struct group_conv *g, const struct group_source *p)
{
    struct kir *k = g->m->k;
    u32 lanes = kir_lanes(k, p->idx[1]);
    emit_limit(g->m, p->limit);
    kval v = kir_splat(k, emit_value(g->m, g->c.x, p->idx), lanes);
    emit_limit(g->m, 0);
    if (!p->limit || (g->c.plain && g->c.ic > 1)) return v;
    kval valid = kir_lt(k, kir_ramp(k, kir_int(k, 0), 1, lanes), kir_splat(k, p->limit, lanes));
    return kir_select(k, valid, v, kir_const_f(k, kir_dtype(k, v), 1, 0));
}

/* One of the pieces of a block that threads copy. */
struct piece {
    kval n;    /* its number */
    kval at;   /* in shared memory */
    i64 slot;  /* register that holds it meanwhile */
    bool late; /* goes to that register */
};

static kval patch_place(const struct group_conv *g, kval n, kval *pixel, kval *part)
{
    struct kir *k = g->m->k;
    i64 parts = g->s.cb / g->vec, pixels = g->planes * g->rows * g->cols;
    *pixel = g->by_pixel ? kir_div_i(k, n, parts) : kir_mod_i(k, n, pixels);
    *part = g->by_pixel ? kir_mod_i(k, n, parts) : kir_div_i(k, n, pixels);
    return kir_add(k, kir_mul_i(k, *pixel, g->pixel), kir_mul_i(k, *part, g->vec));
}

static void put_patch(const struct group_conv *g, const struct piece *p, kval v)
{
    struct kir *k = g->m->k;
    v = kir_cast(k, g->cell, v);
    if (p->late) kir_store(k, g->next_patch, kir_int(k, p->slot), v);
    else kir_store(k, g->patch, kir_ramp(k, p->at, 1, (u32)g->vec), v);
}

static void copy_pixel(const struct group_conv *g, struct piece *p, kval first)
{
    struct kir *k = g->m->k;
    const struct conv *c = &g->c;
    kval pixel, part, at[MAX_RANK], rest;
    p->at = kir_add(k, p->at, patch_place(g, p->n, &pixel, &part));
    kval col = kir_mod_i(k, pixel, g->cols), row = kir_div_i(k, pixel, g->cols);
    rest = kir_div_i(k, row, g->rows);
    row = kir_mod_i(k, row, g->rows);
    for (u32 a = c->rank; a-- > 0;) {
        at[a] = g->pos[a];
        if ((i32)a == c->xa) {
            at[a] = kir_add(k, kir_mul_i(k, g->x0, c->stride[a]), kir_mul_i(k, col, g->unit[a]));
        } else if ((i32)a == c->ya) {
            at[a] = kir_add(k, kir_mul_i(k, g->y0, c->stride[a]), kir_mul_i(k, row, g->unit[a]));
        } else if (a >= 2) {
            kval tap = kir_mul_i(k, kir_mod_i(k, rest, c->k[a]), c->dil[a]);
            at[a] = kir_add(k, kir_mul_i(k, g->pos[a], c->stride[a]), tap);
            rest = kir_div_i(k, rest, c->k[a]);
        }
    }
    struct group_source s;
    group_conv_source(g, &s, at, kir_add(k, first, kir_mul_i(k, part, g->vec)), g->vec);
    if (s.ok) kir_if(k, s.ok);
    put_patch(g, p, group_conv_value(g, &s));
    if (!s.ok) return;
    kir_else(k);
    put_patch(g, p, kir_const_f(k, g->cell, (u32)g->vec, 0));
    kir_end(k);
}

/* Weights of a block lie together in the packed array. */
static kval block_weights(const struct group_conv *g, kval block)
{
    struct kir *k = g->m->k;
    kval n = kir_add(k, kir_mul_i(k, g->group, g->n_out), g->block);
    return kir_mul_i(k, kir_add(k, kir_mul_i(k, n, g->n_in), block), g->n_weights);
}

static void copy_weights(const struct group_conv *g, struct piece *p, kval from)
{
    struct kir *k = g->m->k;
    u32 lanes = (u32)g->w_vec;
    kval at = kir_mul_i(k, p->n, lanes);
    kval v = kir_load(k, g->packed, kir_ramp(k, kir_add(k, from, at), 1, lanes));
    if (p->late) kir_store(k, g->next_weights, kir_int(k, p->slot), v);
    else kir_store(k, g->weights, kir_ramp(k, kir_add(k, p->at, at), 1, lanes), v);
}

/* Emits fn for the pieces of this thread: number thread, thread + threads ... below n. */
typedef void piece_fn(const struct group_conv *g, struct piece *p, kval arg);

static void each_piece(const struct group_conv *g, i64 n, struct piece p, piece_fn *fn, kval arg)
{
    struct kir *k = g->m->k;
    i64 copies = ceil_div(n, g->s.threads);
    if (copies > MAX_COPIES) {
        p.n = kir_loop(k, KL_SERIAL, g->thread, kir_int(k, n), g->s.threads);
        fn(g, &p, arg);
        kir_end(k);
        return;
    }
    for (i64 i = 0; i < copies; i++) {
        struct piece one = p;
        one.slot = i;
        one.n = kir_add_i(k, g->thread, i * g->s.threads);
        bool whole = (i + 1) * g->s.threads <= n;
        if (!whole) kir_if(k, kir_lt(k, one.n, kir_int(k, n)));
        fn(g, &one, arg);
        if (!whole) kir_end(k);
    }
}

/* Channels at which another part of a concatenation in front of the convolution begins. */
static u32 find_parts(const struct group_conv *g, i64 *begin)
{
    const struct graph *t = g->c.g;
    value_id v = g->c.x;
    u32 n = 0;
    i64 sum = 0, d;
    if (g->c.groups > 1) return 0;
    for (u32 depth = 0; depth < 16; depth++) {
        const struct value *x = graph_value(t, v);
        if (!x->producer || !(op_of(t, x->producer)->props & (OP_VIEW | OP_POINTWISE))) return 0;
        const struct node *nd = graph_node(t, x->producer);
        bool joins = nd->in.n > 1 && op_of(t, x->producer)->props & OP_VIEW;
        for (u32 i = 0; joins && i < nd->in.n; i++) {
            const struct shape *s = nd->in.v[i] ? &graph_value(t, nd->in.v[i])->shape : NULL;
            joins =
                s && s->rank == g->c.rank && sym_is_const(t->sym, s->dim[1], &d) && n < MAX_PARTS;
            if (joins && sum) begin[n++] = sum;
            sum += joins ? d : 0;
        }
        if (joins && sum == g->c.ic) return n;
        v = nd->in.v[0], n = 0, sum = 0;
        if (!v || graph_value(t, v)->shape.rank != g->c.rank) return 0;
    }
    return 0;
}

/* Blocks lo .. hi-1; within, the block's number is known to lie there. */
static void copy_range(const struct group_conv *g, struct piece p, kval block, const i64 *range)
{
    struct kir *k = g->m->k;
    kval b = kir_min(k, kir_max(k, block, kir_int(k, range[0])), kir_int(k, range[1] - 1));
    each_piece(g, patch_pieces(g), p, copy_pixel, kir_mul_i(k, b, g->s.cb));
}

static void copy_patch(const struct group_conv *g, struct piece p, kval block)
{
    struct kir *k = g->m->k;
    i64 begin[MAX_PARTS], edge[2 * MAX_PARTS + 2] = {0};
    u32 n_begin = find_parts(g, begin), n = 1;
    for (u32 i = 0; i < n_begin; i++) {
        i64 e[2] = {begin[i] / g->s.cb, ceil_div(begin[i], g->s.cb)};
        for (u32 j = 0; j < 2; j++)
            if (e[j] > edge[n - 1] && e[j] < g->n_in) edge[n++] = e[j];
    }
    edge[n] = g->n_in;
    for (u32 i = 0; i < n; i++) {
        if (i + 1 < n) kir_if(k, kir_lt(k, block, kir_int(k, edge[i + 1])));
        copy_range(g, p, block, edge + i);
        if (i + 1 < n) kir_else(k);
    }
    for (u32 i = 1; i < n; i++) kir_end(k);
}

/* Where the buffers of a block begin. */
static kval buffer_of(const struct group_conv *g, kval block, i64 size)
{
    struct kir *k = g->m->k;
    return g->s.pipe == PIPE_DOUBLE ? kir_mul_i(k, kir_mod_i(k, block, 2), size) : kir_int(k, 0);
}

/* From memory, to registers where these take all of it, else to shared memory. */
static void load_block(const struct group_conv *g, kval block)
{
    struct piece p = {.late = by_registers(g), .at = buffer_of(g, block, g->n_patch)};
    if (g->s.patch) copy_patch(g, p, block);
    p.at = buffer_of(g, block, g->n_weights);
    if (g->s.weights)
        each_piece(g, g->n_weights / g->w_vec, p, copy_weights, block_weights(g, block));
}

static void land_pixel(const struct group_conv *g, struct piece *p, kval to)
{
    struct kir *k = g->m->k;
    kval pixel, part, at = kir_add(k, to, patch_place(g, p->n, &pixel, &part));
    kval v = kir_load(k, g->next_patch, kir_int(k, p->slot));
    kir_store(k, g->patch, kir_ramp(k, at, 1, (u32)g->vec), v);
}

static void land_weights(const struct group_conv *g, struct piece *p, kval to)
{
    struct kir *k = g->m->k;
    kval at = kir_add(k, to, kir_mul_i(k, p->n, g->w_vec));
    kval v = kir_load(k, g->next_weights, kir_int(k, p->slot));
    kir_store(k, g->weights, kir_ramp(k, at, 1, (u32)g->w_vec), v);
}

/* Registers to shared memory. */
static void land_block(const struct group_conv *g, kval block)
{
    struct piece p = {0};
    if (!by_registers(g)) return;
    if (g->s.patch) each_piece(g, patch_pieces(g), p, land_pixel, buffer_of(g, block, g->n_patch));
    if (g->s.weights)
        each_piece(g, g->n_weights / g->w_vec, p, land_weights, buffer_of(g, block, g->n_weights));
}

static void do_step(struct group_conv *g, kval block, group_step *step, void *user)
{
    struct kir *k = g->m->k;
    struct group_block b = {.first = kir_mul_i(k, block, g->s.cb),
                            .patch = buffer_of(g, block, g->n_patch),
                            .weights = g->s.weights ? buffer_of(g, block, g->n_weights)
                                                    : block_weights(g, block)};
    step(g, user, &b);
}

static void blocks_in_turn(struct group_conv *g, group_step *step, void *user)
{
    struct kir *k = g->m->k;
    bool staged = g->s.patch || g->s.weights, many = g->n_in > 1;
    kval b = many ? kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, g->n_in), 1) : kir_int(k, 0);
    load_block(g, b);
    land_block(g, b);
    if (staged) kir_barrier(k);
    do_step(g, b, step, user);
    if (staged && (many || g->n_result)) kir_barrier(k);
    if (many) kir_end(k);
}

void group_conv_blocks(struct group_conv *g, group_step *step, void *user)
{
    struct kir *k = g->m->k;
    if (g->s.pipe == PIPE_NONE) {
        blocks_in_turn(g, step, user);
        return;
    }
    load_block(g, kir_int(k, 0));
    land_block(g, kir_int(k, 0));
    kir_barrier(k);
    kval b = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, g->n_in), 1);
    kval next = kir_add_i(k, b, 1), more = kir_lt(k, next, kir_int(k, g->n_in));
    kir_if(k, more);
    load_block(g, next);
    kir_end(k);
    do_step(g, b, step, user);
    if (g->s.pipe == PIPE_AHEAD) kir_barrier(k);
    kir_if(k, more);
    land_block(g, next);
    kir_end(k);
    kir_barrier(k);
    kir_end(k);
}
