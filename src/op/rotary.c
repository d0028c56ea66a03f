// SPDX-License-Identifier: Apache-2.0
//
// RotaryEmbedding (opset 23), a composite: pairs (x1, x2) of a head's elements are rotated by an
// angle per position, (cos x1 - sin x2, sin x1 + cos x2). Dimensions: b batch, s sequence, h heads,
// d size of a head; the first r = rotary_embedding_dim elements are rotated (all by default), the
// others kept. Pairs are neighbours (interleaved), or an element of the first and one of the second
// half. Tables of cosines and sines are (positions, r/2) with positions (b, s), else (b, s, r/2).
#include "op/op.h"

enum { IN_X, IN_COS, IN_SIN, IN_IDS };

struct rotary {
    u32 head_axis;        /* of x, once it has rank 4: 1 or 2 */
    struct shape x, s;    /* as given; of rank 4 */
    i64 r;                /* rotated elements of a head */
    bool interleaved, all;
};

static bool split_heads(struct graph *g, node_id n, struct rotary *t, struct err *e)
{
    i64 heads = attr_int(graph_node(g, n), "num_heads", 0), c;
    if (heads < 1 || heads > INT32_MAX) return op_invalid(e, g, n, "an input of rank 3 needs attribute num_heads");
    if (sym_is_const(g->sym, t->x.dim[2], &c) && c % heads)
        return op_invalid(e, g, n, "%lld columns are not a multiple of %lld heads", (long long)c, (long long)heads);
    t->head_axis = 2;
    t->s = (struct shape){.known = true, .rank = 4, .dim = {t->x.dim[0], t->x.dim[1], sym_const(g->sym, heads),
                          sym_div(g->sym, t->x.dim[2], sym_const(g->sym, heads))}};
    return true;
}

static bool read_rotary(struct graph *g, node_id n, struct rotary *t, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 d;
    *t = (struct rotary){.head_axis = 1, .x = *op_in_shape(g, nd, IN_X), .interleaved = attr_int(nd, "interleaved", 0)};
    t->s = t->x;
    if (t->x.rank != 3 && t->x.rank != 4) return op_invalid(e, g, n, "input of rank %u", t->x.rank);
    if (t->x.rank == 3 && !split_heads(g, n, t, e)) return false;
    if (!sym_is_const(g->sym, t->s.dim[3], &d)) return op_unsupported(e, g, n, "heads of a symbolic size");
    t->r = attr_int(nd, "rotary_embedding_dim", 0);
    if (!t->r) t->r = d;
    t->all = t->r == d;
    if (t->r < 2 || t->r > d || t->r % 2)
        return op_invalid(e, g, n, "%lld rotated elements of heads of %lld", (long long)t->r, (long long)d);
    return true;
}

static bool tables_fit(struct graph *g, node_id n, const struct rotary *t, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    bool ids = op_has_in(nd, IN_IDS);
    for (u32 k = IN_COS; k <= IN_SIN; k++) {
        const struct shape *s = op_in_shape(g, nd, k);
        if (s->rank != (ids ? 2 : 3) || !op_sizes_agree(g, s->dim[s->rank - 1], sym_const(g->sym, t->r / 2)))
            return op_invalid(e, g, n, "input %u must be (%s, %lld)", k, ids ? "positions" : "batch, sequence",
                              (long long)(t->r / 2));
    }
    if (ids && (op_in_shape(g, nd, IN_IDS)->rank != 2 || !dtype_is_int(op_in_dtype(g, nd, IN_IDS))))
        return op_invalid(e, g, n, "position_ids must be integers (batch, sequence)");
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct rotary t;
    const struct node *nd = graph_node(g, n);
    enum dtype type = op_in_dtype(g, nd, IN_X);
    if (!dtype_is_float(type)) return op_unsupported(e, g, n, "type %s", dtype_name(type));
    for (u32 k = IN_COS; k <= IN_SIN; k++)
        if (op_in_dtype(g, nd, k) != type) return op_invalid(e, g, n, "input %u is not %s", k, dtype_name(type));
    if (!read_rotary(g, n, &t, e) || !tables_fit(g, n, &t, e)) return false;
    op_set_out(g, n, 0, type, &t.x);
    return true;
}

static value_id part(struct graph *g, node_id n, value_id x, const struct shape *s, i64 start, i64 size, i64 step)
{
    const struct op_part p = {3, sym_const(g->sym, start), sym_const(g->sym, size), step};
    return op_node_part(g, n, x, s, &p, 0);
}

/* Cosines or sines broadcast to the pairs: (b, 1, s, r/2) or (b, s, 1, r/2). */
static value_id table(struct graph *g, node_id n, u32 k, const struct rotary *t)
{
    const struct node nd = *graph_node(g, n);
    const i64 axis = t->head_axis;
    value_id v = nd.in.v[k];
    if (op_has_in(&nd, IN_IDS)) v = op_node2(g, n, "Gather", v, nd.in.v[IN_IDS], 0);
    return op_node_axes(g, n, "Unsqueeze", v, &axis, 1, 0);
}

/* Both halves of the rotated pairs as one. */
static value_id joined(struct graph *g, node_id n, const struct rotary *t, value_id re, value_id im)
{
    const i64 last = -1;
    sym dim[4] = {t->s.dim[0], t->s.dim[1], t->s.dim[2], sym_const(g->sym, t->r)};
    if (!t->interleaved) return op_node_concat(g, n, 2, (value_id[]){re, im}, 3, 0);
    re = op_node_axes(g, n, "Unsqueeze", re, &last, 1, 0);
    im = op_node_axes(g, n, "Unsqueeze", im, &last, 1, 0);
    return op_node_reshape(g, n, op_node_concat(g, n, 2, (value_id[]){re, im}, 4, 0), 4, dim, 0);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    struct rotary t;
    if (!read_rotary(g, n, &t, e)) return false;
    i64 half = t.r / 2, step = t.interleaved ? 2 : 1, d = 0;
    value_id x = nd.in.v[IN_X], y = nd.out.v[0];
    if (t.x.rank == 3) x = op_node_reshape(g, n, x, 4, t.s.dim, 0);
    value_id x1 = part(g, n, x, &t.s, 0, half, step), x2 = part(g, n, x, &t.s, t.interleaved ? 1 : half, half, step);
    value_id c = table(g, n, IN_COS, &t), s = table(g, n, IN_SIN, &t);
    value_id s2 = op_node2(g, n, "Mul", s, x2, 0), re = op_node2(g, n, "Sub", op_node2(g, n, "Mul", c, x1, 0), s2, 0);
    value_id c2 = op_node2(g, n, "Mul", c, x2, 0), im = op_node2(g, n, "Add", op_node2(g, n, "Mul", s, x1, 0), c2, 0);
    value_id v = joined(g, n, &t, re, im);
    sym_is_const(g->sym, t.s.dim[3], &d);
    if (!t.all) v = op_node_concat(g, n, 2, (value_id[]){v, part(g, n, x, &t.s, t.r, d - t.r, 1)}, 3, 0);
    return op_node_reshape(g, n, v, t.x.rank, t.x.dim, y), true;
}

static void random_rotary(const struct op *self, struct graph *g, struct rng *r)
{
    i64 b = rng_range(r, 1, 2), s = rng_range(r, 1, 4), h = rng_range(r, 1, 3), half = rng_range(r, 1, 3),
        d = 2 * half + (rng_range(r, 0, 1) ? rng_range(r, 0, 3) : 0), ids[8];
    bool packed = rng_range(r, 0, 1), by_id = rng_range(r, 0, 1);
    value_id in[4] = {0};
    const i64 x4[] = {b, h, s, d}, x3[] = {b, s, h * d}, t3[] = {b, s, half}, t2[] = {6, half};
    random_input(g, "x", DT_F32, packed ? 3 : 4, packed ? x3 : x4, &in[IN_X]);
    random_input(g, "cos", DT_F32, by_id ? 2 : 3, by_id ? t2 : t3, &in[IN_COS]);
    random_input(g, "sin", DT_F32, by_id ? 2 : 3, by_id ? t2 : t3, &in[IN_SIN]);
    for (i64 i = 0; i < b * s; i++) ids[i] = rng_range(r, 0, 5);
    if (by_id) {
        const i64 dim[2] = {b, s};
        struct tensor *t = tensor_new(g->arena, DT_I64, 2, dim);
        for (i64 i = 0; i < b * s; i++) elem_set_i64(DT_I64, t->data, i, ids[i]);
        in[IN_IDS] = graph_add_const(g, S("ids"), t);
    }
    node_id n = random_node(g, self, by_id ? 4 : 3, in, 1);
    if (packed) attr_set_int(g, n, "num_heads", h);
    attr_set_int(g, n, "interleaved", rng_range(r, 0, 1));
    if (d != 2 * half || rng_range(r, 0, 1)) attr_set_int(g, n, "rotary_embedding_dim", 2 * half);
}

static const struct op ops[] = {
    {.name = "RotaryEmbedding",
     .min_in = 3,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_rotary},
};

const struct op_family op_rotary = {ops, countof(ops)};
