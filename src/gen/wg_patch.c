// SPDX-License-Identifier: Apache-2.0
//
// wg_patch: the input of convolutions and windows by workgroups, on its way to shared
// memory. All threads copy the patch of input of a block of channels, and its weights; what stands
// in front (padding, upsampling, concatenation, activation, layout) is paid there, once per element
// of the patch. Copies and arithmetic take turns as the schedule says (enum wg_pipe).
//
// Where the input is a concatenation, blocks of channels that lie in one part only are copied by
// code of their own, without tests.
#include "gen/wg_conv.h"

enum {
    MAX_PARTS = 8,  /* of a concatenation */
};

static i64 patch_pieces(const struct wg_conv *g)
{
    return g->planes * g->rows * g->cols * (g->s.bk / g->vec);
}

/* One element of the input. */

kval wg_conv_outside(const struct wg_conv *g, enum dtype t, u32 lanes)
{
    struct kir *k = g->m->k;
    if (!g->outside) return kir_const_f(k, t, lanes, 0);
    return kir_splat(k, kir_cast(k, t, g->outside), lanes);
}

void wg_conv_source(const struct wg_conv *g, struct wg_source *p, const kval *at, kval c,
                       i64 lanes)
{
    struct kir *k = g->m->k;
    const struct conv *v = &g->c;
    *p = (struct wg_source){0};
    p->ok = kir_and(k, p->ok, kir_lt(k, c, kir_int(k, g->ic)));
    if (g->ic % lanes) p->limit = kir_sub(k, kir_int(k, g->ic), c);
    for (u32 a = 0; a < v->rank; a++) {
        p->idx[a] = kir_sub(k, at[a], emit_size(g->m, v->pad[a]));
        if (a == 1 || (a == 0 && v->xa != 0)) continue;
        p->ok = kir_and(k, p->ok, kir_bin(k, KI_LE, kir_int(k, 0), p->idx[a]));
        p->ok = kir_and(k, p->ok, kir_lt(k, p->idx[a], emit_size(g->m, v->in[a])));
    }
    p->idx[1] = kir_ramp(k, kir_add(k, kir_mul_i(k, g->group, g->ic), c), 1, (u32)lanes);
}

kval wg_conv_value(const struct wg_conv *g, const struct wg_source *p)
{
    struct kir *k = g->m->k;
    u32 lanes = kir_lanes(k, p->idx[1]);
    emit_limit(g->m, p->limit);
    kval v = kir_splat(k, emit_value(g->m, g->c.x, p->idx), lanes);
    emit_limit(g->m, 0);
    if (!p->limit || (g->c.plain && g->ic * g->groups > 1)) return v;
    kval valid = kir_lt(k, kir_ramp(k, kir_int(k, 0), 1, lanes), kir_splat(k, p->limit, lanes));
    return kir_select(k, valid, v, kir_const_f(k, kir_dtype(k, v), 1, 0));
}

/* Copying. */

/* One of the pieces of a block that threads copy. */
struct piece {
    kval n;    /* its number */
    kval at;   /* in shared memory */
    i64 slot;  /* register that holds it meanwhile */
    bool late; /* goes to that register */
};

static kval patch_place(const struct wg_conv *g, kval n, kval *pixel, kval *part)
{
    struct kir *k = g->m->k;
    i64 parts = g->s.bk / g->vec, pixels = g->planes * g->rows * g->cols;
    *pixel = g->by_pixel ? kir_div_i(k, n, parts) : kir_mod_i(k, n, pixels);
    *part = g->by_pixel ? kir_mod_i(k, n, parts) : kir_div_i(k, n, pixels);
    return kir_add(k, kir_mul_i(k, *pixel, g->pixel), kir_mul_i(k, *part, g->vec));
}

static void put_patch(const struct wg_conv *g, const struct piece *p, kval v)
{
    struct kir *k = g->m->k;
    v = kir_cast(k, g->cell, v);
    if (p->late) kir_store(k, g->next_patch, kir_int(k, p->slot), v);
    else kir_store(k, g->patch, kir_ramp(k, p->at, 1, (u32)g->vec), v);
}

static void copy_pixel(const struct wg_conv *g, struct piece *p, kval first)
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
            i64 apart = g->up.is ? 1 : c->dil[a];
            kval tap = kir_mul_i(k, kir_mod_i(k, rest, g->plane[a]), apart);
            at[a] = kir_add(k, kir_mul_i(k, g->pos[a], c->stride[a]), tap);
            rest = kir_div_i(k, rest, g->plane[a]);
        }
    }
    struct wg_source s;
    wg_conv_source(g, &s, at, kir_add(k, first, kir_mul_i(k, part, g->vec)), g->vec);
    if (s.ok) kir_if(k, s.ok);
    put_patch(g, p, wg_conv_value(g, &s));
    if (!s.ok) return;
    kir_else(k);
    put_patch(g, p, wg_conv_outside(g, g->cell, (u32)g->vec));
    kir_end(k);
}

kval wg_conv_weights(const struct wg_conv *g, kval block)
{
    struct kir *k = g->m->k;
    kval n = wg_up_first(g, g->group);
    n = kir_add(k, kir_mul_i(k, n, g->n_wide), g->block);
    return kir_mul_i(k, kir_add(k, kir_mul_i(k, n, g->n_in), block), g->n_weights);
}

static void copy_weights(const struct wg_conv *g, struct piece *p, kval from)
{
    struct kir *k = g->m->k;
    u32 lanes = (u32)g->w_vec;
    kval at = kir_mul_i(k, p->n, lanes);
    kval v = kir_load(k, g->packed, kir_ramp(k, kir_add(k, from, at), 1, lanes));
    if (p->late) kir_store(k, g->next_weights, kir_int(k, p->slot), v);
    else kir_store(k, g->weights, kir_ramp(k, kir_add(k, p->at, at), 1, lanes), v);
}

/* Emits fn for the pieces of this thread: number thread, thread + threads ... below n. */
typedef void piece_fn(const struct wg_conv *g, struct piece *p, kval arg);

static void each_piece(const struct wg_conv *g, i64 n, struct piece p, piece_fn *fn, kval arg)
{
    struct kir *k = g->m->k;
    i64 copies = ceil_div(n, g->s.threads);
    if (copies > GROUP_CONV_COPIES) {
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
static u32 find_parts(const struct wg_conv *g, i64 *begin)
{
    const struct graph *t = g->c.g;
    value_id v = g->c.x;
    u32 n = 0;
    i64 sum = 0, d;
    if (g->groups > 1) return 0;
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
        if (joins && sum == g->ic) return n;
        v = nd->in.v[0], n = 0, sum = 0;
        if (!v || graph_value(t, v)->shape.rank != g->c.rank) return 0;
    }
    return 0;
}

/* Does every block of outputs need the input channels of the same number, and only those? */
static bool by_outputs(const struct wg_conv *g) { return g->s.groups > 1; }

static kval first_channel(const struct wg_conv *g, kval block)
{
    return kir_mul_i(g->m->k, by_outputs(g) ? g->block : block, g->s.bk);
}

/* Blocks lo .. hi-1; within, the block's number is known to lie there. */
static void copy_range(const struct wg_conv *g, struct piece p, kval block, const i64 *range)
{
    struct kir *k = g->m->k;
    kval b = kir_min(k, kir_max(k, block, kir_int(k, range[0])), kir_int(k, range[1] - 1));
    each_piece(g, patch_pieces(g), p, copy_pixel, kir_mul_i(k, b, g->s.bk));
}

static void copy_patch(const struct wg_conv *g, struct piece p, kval block)
{
    struct kir *k = g->m->k;
    i64 n_blocks = by_outputs(g) ? g->n_out : g->n_in;
    if (by_outputs(g)) block = g->block;
    i64 begin[MAX_PARTS], edge[2 * MAX_PARTS + 2] = {0};
    u32 n_begin = find_parts(g, begin), n = 1;
    for (u32 i = 0; i < n_begin; i++) {
        i64 e[2] = {begin[i] / g->s.bk, ceil_div(begin[i], g->s.bk)};
        for (u32 j = 0; j < 2; j++)
            if (e[j] > edge[n - 1] && e[j] < n_blocks) edge[n++] = e[j];
    }
    edge[n] = n_blocks;
    for (u32 i = 0; i < n; i++) {
        if (i + 1 < n) kir_if(k, kir_lt(k, block, kir_int(k, edge[i + 1])));
        copy_range(g, p, block, edge + i);
        if (i + 1 < n) kir_else(k);
    }
    for (u32 i = 1; i < n; i++) kir_end(k);
}

/* Where the buffers of a block begin. */
static kval buffer_of(const struct wg_conv *g, kval block, i64 size)
{
    struct kir *k = g->m->k;
    return g->s.pipe == PIPE_DOUBLE ? kir_mul_i(k, kir_mod_i(k, block, 2), size) : kir_int(k, 0);
}

/* From memory, to registers where these take all of it, else to shared memory. */
static void load_block(const struct wg_conv *g, kval block)
{
    struct piece p = {.late = wg_conv_by_registers(g), .at = buffer_of(g, block, g->n_patch)};
    if (g->s.patch) copy_patch(g, p, block);
    p.at = buffer_of(g, block, g->n_weights);
    if (g->s.weights)
        each_piece(g, g->n_weights / g->w_vec, p, copy_weights, wg_conv_weights(g, block));
}

static void land_pixel(const struct wg_conv *g, struct piece *p, kval to)
{
    struct kir *k = g->m->k;
    kval pixel, part, at = kir_add(k, to, patch_place(g, p->n, &pixel, &part));
    kval v = kir_load(k, g->next_patch, kir_int(k, p->slot));
    kir_store(k, g->patch, kir_ramp(k, at, 1, (u32)g->vec), v);
}

static void land_weights(const struct wg_conv *g, struct piece *p, kval to)
{
    struct kir *k = g->m->k;
    kval at = kir_add(k, to, kir_mul_i(k, p->n, g->w_vec));
    kval v = kir_load(k, g->next_weights, kir_int(k, p->slot));
    kir_store(k, g->weights, kir_ramp(k, at, 1, (u32)g->w_vec), v);
}

/* Registers to shared memory. */
static void land_block(const struct wg_conv *g, kval block)
{
    struct piece p = {0};
    if (!wg_conv_by_registers(g)) return;
    if (g->s.patch) each_piece(g, patch_pieces(g), p, land_pixel, buffer_of(g, block, g->n_patch));
    if (g->s.weights)
        each_piece(g, g->n_weights / g->w_vec, p, land_weights, buffer_of(g, block, g->n_weights));
}

static void do_step(struct wg_conv *g, kval block, wg_step *step, void *user)
{
    struct wg_block b = {.first = first_channel(g, block),
                            .patch = buffer_of(g, block, g->n_patch),
                            .weights = g->s.weights ? buffer_of(g, block, g->n_weights)
                                                    : wg_conv_weights(g, block)};
    step(g, user, &b);
}

/* The blocks of this group's chunk. */
static kval first_block(const struct wg_conv *g)
{
    i64 chunks = i64_max(1, g->s.split_k);
    return kir_mul_i(g->m->k, g->chunk, g->n_in / chunks);
}

static kval last_block(const struct wg_conv *g)
{
    return kir_add_i(g->m->k, first_block(g), g->n_in / i64_max(1, g->s.split_k));
}

static void blocks_in_turn(struct wg_conv *g, wg_step *step, void *user)
{
    struct kir *k = g->m->k;
    bool staged = g->s.patch || g->s.weights, many = g->n_in > 1;
    kval b = many ? kir_loop(k, KL_SERIAL, first_block(g), last_block(g), 1) : kir_int(k, 0);
    load_block(g, b);
    land_block(g, b);
    if (staged) kir_barrier(k);
    do_step(g, b, step, user);
    if (staged && (many || g->n_result)) kir_barrier(k);
    if (many) kir_end(k);
}

void wg_conv_blocks(struct wg_conv *g, wg_step *step, void *user)
{
    struct kir *k = g->m->k;
    if (g->s.pipe == PIPE_NONE) {
        blocks_in_turn(g, step, user);
        return;
    }
    kval from = first_block(g), to = last_block(g);
    load_block(g, from);
    land_block(g, from);
    kir_barrier(k);
    kval b = kir_loop(k, KL_SERIAL, from, to, 1);
    kval next = kir_add_i(k, b, 1), more = kir_lt(k, next, to);
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
