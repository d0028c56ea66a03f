// SPDX-License-Identifier: Apache-2.0
//
// halo_copy: the staging of spatial tiles. For each block of channels all threads copy the input tile with its halo, and the weights; the prologue
// (padding, upsampling, concatenation, activation, layout) is evaluated there, once per element. Copies and arithmetic take turns as the
// schedule says (enum wg_pipe).
//
// Where the input is a concatenation, blocks of channels that lie in one part only are copied by
// code of their own, without tests.
#include "gen/halo.h"
#include "gen/leaf.h"

enum {
    MAX_PARTS = 8,  /* of a concatenation */
};

static i64 input_pieces(const struct halo *h)
{
    return h->p->planes * h->p->rows * h->p->cols * (h->p->s.bk / h->p->vec);
}

/* One element of the input. */

kval halo_outside(const struct halo *h, enum dtype t, u32 lanes)
{
    struct kir *k = h->m->k;
    if (!h->outside) return kir_const_f(k, t, lanes, 0);
    return kir_splat(k, kir_cast(k, t, h->outside), lanes);
}

void halo_source(const struct halo *h, struct halo_source *p, const kval *at, kval c, i64 lanes)
{
    struct kir *k = h->m->k;
    const struct conv *v = &h->q->c;
    *p = (struct halo_source){0};
    p->ok = kir_and(k, p->ok, kir_lt(k, c, kir_int(k, h->p->ic)));
    if (h->p->ic % lanes) p->limit = kir_sub(k, kir_int(k, h->p->ic), c);
    for (u32 a = 0; a < v->rank; a++) {
        p->idx[a] = kir_sub(k, at[a], emit_size(h->m, v->pad[a]));
        if (a == 1 || (a == 0 && v->xa != 0)) continue;
        p->ok = kir_and(k, p->ok, kir_bin(k, KI_LE, kir_int(k, 0), p->idx[a]));
        p->ok = kir_and(k, p->ok, kir_lt(k, p->idx[a], emit_size(h->m, v->in[a])));
    }
    p->idx[1] = kir_ramp(k, kir_add(k, kir_mul_i(k, h->group, h->p->ic), c), 1, (u32)lanes);
}

kval halo_value(const struct halo *h, const struct halo_source *p)
{
    struct kir *k = h->m->k;
    u32 lanes = kir_lanes(k, p->idx[1]);
    emit_limit(h->m, p->limit);
    kval v = kir_splat(k, emit_value(h->m, h->q->c.x, p->idx), lanes);
    emit_limit(h->m, 0);
    if (!p->limit || (h->q->c.plain && h->p->ic * h->p->groups > 1)) return v;
    kval valid = kir_lt(k, kir_ramp(k, kir_int(k, 0), 1, lanes), kir_splat(k, p->limit, lanes));
    return kir_select(k, valid, v, kir_const_f(k, kir_dtype(k, v), 1, 0));
}

kval halo_read(const struct halo *h, const struct halo_source *p)
{
    struct kir *k = h->m->k;
    enum dtype type = h->p->type;
    u32 lanes = kir_lanes(k, p->idx[1]);
    if (!p->ok) return kir_cast(k, type, halo_value(h, p));
    kval reg = kir_alloc(k, KS_REG, type, lanes, kir_int(k, 1)), zero = kir_int(k, 0);
    kir_store(k, reg, zero, halo_outside(h, type, lanes));
    kir_if(k, p->ok);
    kir_store(k, reg, zero, kir_cast(k, type, halo_value(h, p)));
    kir_end(k);
    return kir_load(k, reg, zero);
}

/* Copying. */

/* One of the pieces of a block that threads copy. */
struct piece {
    kval n;    /* its number */
    kval at;   /* in shared memory */
    i64 slot;  /* register that holds it meanwhile */
    bool late; /* goes to that register */
};

static kval piece_place(const struct halo *h, kval n, kval *pixel, kval *part)
{
    struct kir *k = h->m->k;
    i64 parts = h->p->s.bk / h->p->vec, pixels = h->p->planes * h->p->rows * h->p->cols;
    *pixel = h->p->by_pixel ? kir_div_i(k, n, parts) : kir_mod_i(k, n, pixels);
    *part = h->p->by_pixel ? kir_mod_i(k, n, parts) : kir_div_i(k, n, pixels);
    return kir_add(k, kir_mul_i(k, *pixel, h->p->pixel), kir_mul_i(k, *part, h->p->vec));
}

static void put_input(const struct halo *h, const struct piece *p, kval v)
{
    struct kir *k = h->m->k;
    v = kir_cast(k, h->p->cell, v);
    if (p->late) kir_store(k, h->next_input, kir_int(k, p->slot), v);
    else kir_store(k, h->input, kir_ramp(k, p->at, 1, (u32)h->p->vec), v);
}

static void copy_pixel(const struct halo *h, struct piece *p, kval first)
{
    struct kir *k = h->m->k;
    const struct conv *c = &h->q->c;
    kval pixel, part, at[MAX_RANK], rest;
    p->at = kir_add(k, p->at, piece_place(h, p->n, &pixel, &part));
    kval col = kir_mod_i(k, pixel, h->p->cols), row = kir_div_i(k, pixel, h->p->cols);
    rest = kir_div_i(k, row, h->p->rows);
    row = kir_mod_i(k, row, h->p->rows);
    for (u32 a = c->rank; a-- > 0;) {
        at[a] = h->pos[a];
        if ((i32)a == c->xa) {
            at[a] = kir_add(k, kir_mul_i(k, h->x0, c->stride[a]), kir_mul_i(k, col, h->p->unit[a]));
        } else if ((i32)a == c->ya) {
            at[a] = kir_add(k, kir_mul_i(k, h->y0, c->stride[a]), kir_mul_i(k, row, h->p->unit[a]));
        } else if (a >= 2) {
            i64 apart = h->q->up ? 1 : c->dil[a];
            kval tap = kir_mul_i(k, kir_mod_i(k, rest, h->p->plane[a]), apart);
            at[a] = kir_add(k, kir_mul_i(k, h->pos[a], c->stride[a]), tap);
            rest = kir_div_i(k, rest, h->p->plane[a]);
        }
    }
    struct halo_source s;
    halo_source(h, &s, at, kir_add(k, first, kir_mul_i(k, part, h->p->vec)), h->p->vec);
    if (s.ok) kir_if(k, s.ok);
    put_input(h, p, halo_value(h, &s));
    if (!s.ok) return;
    kir_else(k);
    put_input(h, p, halo_outside(h, h->p->cell, (u32)h->p->vec));
    kir_end(k);
}

/* Where the packed weights of a block begin. */
static kval weights_of(const struct halo *h, kval block)
{
    struct kir *k = h->m->k;
    kval n = halo_up_first(h, h->group);
    n = kir_add(k, kir_mul_i(k, n, h->p->n_wide), h->block);
    return kir_mul_i(k, kir_add(k, kir_mul_i(k, n, h->p->n_in), block), h->p->n_weights);
}

static void copy_weights(const struct halo *h, struct piece *p, kval from)
{
    struct kir *k = h->m->k;
    u32 lanes = (u32)h->p->w_vec;
    kval at = kir_mul_i(k, p->n, lanes);
    kval v = kir_load(k, h->packed, kir_ramp(k, kir_add(k, from, at), 1, lanes));
    if (p->late) kir_store(k, h->next_weights, kir_int(k, p->slot), v);
    else kir_store(k, h->weights, kir_ramp(k, kir_add(k, p->at, at), 1, lanes), v);
}

/* Emits fn for the pieces of this thread: number thread, thread + threads ... below n. */
typedef void piece_fn(const struct halo *h, struct piece *p, kval arg);

static void each_piece(const struct halo *h, i64 n, struct piece p, piece_fn *fn, kval arg)
{
    struct kir *k = h->m->k;
    i64 copies = ceil_div(n, h->p->s.threads);
    if (copies > HALO_COPIES) {
        p.n = kir_loop(k, KL_SERIAL, h->thread, kir_int(k, n), h->p->s.threads);
        fn(h, &p, arg);
        kir_end(k);
        return;
    }
    for (i64 i = 0; i < copies; i++) {
        struct piece one = p;
        one.slot = i;
        one.n = kir_add_i(k, h->thread, i * h->p->s.threads);
        bool whole = (i + 1) * h->p->s.threads <= n;
        if (!whole) kir_if(k, kir_lt(k, one.n, kir_int(k, n)));
        fn(h, &one, arg);
        if (!whole) kir_end(k);
    }
}

/* Channels at which another part of a concatenation in front of the convolution begins. */
static u32 find_parts(const struct halo *h, i64 *begin)
{
    const struct graph *t = h->q->c.g;
    value_id v = h->q->c.x;
    u32 n = 0;
    i64 sum = 0, d;
    if (h->p->groups > 1) return 0;
    for (u32 depth = 0; depth < 16; depth++) {
        const struct value *x = graph_value(t, v);
        if (!x->producer || !(op_of(t, x->producer)->props & (OP_VIEW | OP_POINTWISE))) return 0;
        const struct node *nd = graph_node(t, x->producer);
        bool joins = nd->in.n > 1 && op_of(t, x->producer)->props & OP_VIEW;
        for (u32 i = 0; joins && i < nd->in.n; i++) {
            const struct shape *s = nd->in.v[i] ? &graph_value(t, nd->in.v[i])->shape : NULL;
            joins =
                s && s->rank == h->q->c.rank && sym_is_const(t->sym, s->dim[1], &d) && n < MAX_PARTS;
            if (joins && sum) begin[n++] = sum;
            sum += joins ? d : 0;
        }
        if (joins && sum == h->p->ic) return n;
        v = nd->in.v[0], n = 0, sum = 0;
        if (!v || graph_value(t, v)->shape.rank != h->q->c.rank) return 0;
    }
    return 0;
}

/* Does every block of outputs need the input channels of the same number, and only those? */
static bool by_outputs(const struct halo *h) { return h->p->s.groups > 1; }

kval halo_first_channel(const struct halo *h, kval block)
{
    return kir_mul_i(h->m->k, by_outputs(h) ? h->block : block, h->p->s.bk);
}

/* Blocks lo .. hi-1; within, the block's number is known to lie there. */
static void copy_range(const struct halo *h, struct piece p, kval block, const i64 *range)
{
    struct kir *k = h->m->k;
    kval b = kir_min(k, kir_max(k, block, kir_int(k, range[0])), kir_int(k, range[1] - 1));
    each_piece(h, input_pieces(h), p, copy_pixel, kir_mul_i(k, b, h->p->s.bk));
}

static void copy_input(const struct halo *h, struct piece p, kval block)
{
    struct kir *k = h->m->k;
    i64 n_blocks = by_outputs(h) ? h->p->n_out : h->p->n_in;
    if (by_outputs(h)) block = h->block;
    i64 begin[MAX_PARTS], edge[2 * MAX_PARTS + 2] = {0};
    u32 n_begin = find_parts(h, begin), n = 1;
    for (u32 i = 0; i < n_begin; i++) {
        i64 e[2] = {begin[i] / h->p->s.bk, ceil_div(begin[i], h->p->s.bk)};
        for (u32 j = 0; j < 2; j++)
            if (e[j] > edge[n - 1] && e[j] < n_blocks) edge[n++] = e[j];
    }
    edge[n] = n_blocks;
    for (u32 i = 0; i < n; i++) {
        if (i + 1 < n) kir_if(k, kir_lt(k, block, kir_int(k, edge[i + 1])));
        copy_range(h, p, block, edge + i);
        if (i + 1 < n) kir_else(k);
    }
    for (u32 i = 1; i < n; i++) kir_end(k);
}

/* Where the buffers of a block begin. */
static kval buffer_of(const struct halo *h, kval block, i64 size)
{
    struct kir *k = h->m->k;
    return h->p->s.pipe == PIPE_DOUBLE ? kir_mul_i(k, kir_mod_i(k, block, 2), size) : kir_int(k, 0);
}

/* From memory, to registers where these take all of it, else to shared memory. */
static void load_block(const struct halo *h, kval block)
{
    struct piece p = {.late = halo_plan_by_registers(h->p), .at = buffer_of(h, block, h->p->n_input)};
    if (h->p->s.input) copy_input(h, p, block);
    p.at = buffer_of(h, block, h->p->n_weights);
    if (h->p->s.weights)
        each_piece(h, h->p->n_weights / h->p->w_vec, p, copy_weights, weights_of(h, block));
}

static void land_pixel(const struct halo *h, struct piece *p, kval to)
{
    struct kir *k = h->m->k;
    kval pixel, part, at = kir_add(k, to, piece_place(h, p->n, &pixel, &part));
    kval v = kir_load(k, h->next_input, kir_int(k, p->slot));
    kir_store(k, h->input, kir_ramp(k, at, 1, (u32)h->p->vec), v);
}

static void land_weights(const struct halo *h, struct piece *p, kval to)
{
    struct kir *k = h->m->k;
    kval at = kir_add(k, to, kir_mul_i(k, p->n, h->p->w_vec));
    kval v = kir_load(k, h->next_weights, kir_int(k, p->slot));
    kir_store(k, h->weights, kir_ramp(k, at, 1, (u32)h->p->w_vec), v);
}

/* Registers to shared memory. */
static void land_block(const struct halo *h, kval block)
{
    struct piece p = {0};
    if (!halo_plan_by_registers(h->p)) return;
    if (h->p->s.input) each_piece(h, input_pieces(h), p, land_pixel, buffer_of(h, block, h->p->n_input));
    if (h->p->s.weights)
        each_piece(h, h->p->n_weights / h->p->w_vec, p, land_weights, buffer_of(h, block, h->p->n_weights));
}

kval halo_tile_at(const struct halo *h, kval block) { return buffer_of(h, block, h->p->n_input); }

kval halo_weights_at(const struct halo *h, kval block)
{
    return h->p->s.weights ? buffer_of(h, block, h->p->n_weights) : weights_of(h, block);
}

static void multiply(struct halo *h, kval block)
{
    h->c->now = block;
    h->c->leaf->multiply(h->c);
}

/* The blocks of the workgroup's share. */
static kval first_block(const struct halo *h)
{
    i64 shares = i64_max(1, h->p->s.split_k);
    return kir_mul_i(h->m->k, h->share, h->p->n_in / shares);
}

static kval last_block(const struct halo *h)
{
    return kir_add_i(h->m->k, first_block(h), h->p->n_in / i64_max(1, h->p->s.split_k));
}

static void blocks_in_turn(struct halo *h)
{
    struct kir *k = h->m->k;
    bool staged = h->p->s.input || h->p->s.weights, many = h->p->n_in > 1;
    kval b = many ? kir_loop(k, KL_SERIAL, first_block(h), last_block(h), 1) : kir_int(k, 0);
    load_block(h, b);
    land_block(h, b);
    if (staged) kir_barrier(k);
    multiply(h, b);
    if (staged && (many || h->p->n_result)) kir_barrier(k);
    if (many) kir_end(k);
}

void halo_k_blocks(struct halo *h)
{
    struct kir *k = h->m->k;
    if (h->p->s.pipe == PIPE_NONE) {
        blocks_in_turn(h);
        return;
    }
    kval from = first_block(h), to = last_block(h);
    load_block(h, from);
    land_block(h, from);
    kir_barrier(k);
    kval b = kir_loop(k, KL_SERIAL, from, to, 1);
    kval next = kir_add_i(k, b, 1), more = kir_lt(k, next, to);
    kir_if(k, more);
    load_block(h, next);
    kir_end(k);
    multiply(h, b);
    if (h->p->s.pipe == PIPE_AHEAD) kir_barrier(k);
    kir_if(k, more);
    land_block(h, next);
    kir_end(k);
    kir_barrier(k);
    kir_end(k);
}
