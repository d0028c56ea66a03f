// SPDX-License-Identifier: Apache-2.0
//
// AffineGrid (opset 20), a composite: positions theta (n, s, s+1) applied to a grid of the sizes
// (n, c, d0 .. d(s-1)), s = 2 or 3, for GridSample: y (n, d0 .., s). Coordinates run from -1 to 1,
// over the corners' centres or edges, the last axis first:
//   y = sum over axes a of theta[.., s-1-a] * position along d_a + theta[.., s]
#include "op/op.h"

static bool read_sizes(struct graph *g, node_id n, u32 *s, sym *size, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 count, c;
    if (!op_check_float(g, n, 0, e) || !op_check_rank(g, n, 0, 3, 3, e)) return false;
    if (!op_sym_ints(g, nd->in.v[1], size, 5, &count)) return op_unsupported(e, g, n, "the size is only known at run time");
    *s = (u32)(count - 2);
    if (count != 4 && count != 5) return op_invalid(e, g, n, "a size of %lld axes, expected 4 or 5", (long long)count);
    for (u32 i = 0; i < 2; i++)
        if (!sym_is_const(g->sym, op_in_shape(g, nd, 0)->dim[1 + i], &c) || c != *s + i)
            return op_invalid(e, g, n, "theta must be (n, %u, %u)", *s, *s + 1);
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    u32 s;
    sym size[5];
    return read_sizes(g, n, &s, size, e) && op_infer_expanded(g, n, e);
}

/* Positions along an axis of d elements: (2i + 1) / d - 1, or 2i / (d - 1) - 1 */
static value_id positions(struct graph *g, node_id n, sym d)
{
    enum dtype t = op_in_dtype(g, graph_node(g, n), 0), f = t == DT_F64 ? t : DT_F32;
    struct symtab *st = g->sym;
    sym one = sym_const(st, 1);
    bool corners = attr_int(graph_node(g, n), "align_corners", 0);
    value_id i = op_node_range(g, n, DT_I64, d, 0);
    i = op_node_binf(g, n, "Mul", op_node_cast(g, n, i, f, 0), f, 2, 0);
    if (!corners) i = op_node_binf(g, n, "Add", i, f, 1, 0);
    value_id by = op_sym_scalar(g, DT_I64, corners ? sym_max(st, sym_sub(st, d, one), one) : d);
    i = op_node2(g, n, "Div", i, op_node_cast(g, n, by, f, 0), 0);
    i = op_node_binf(g, n, "Sub", i, f, 1, 0);
    return f == t ? i : op_node_cast(g, n, i, t, 0);
}

/* Column k of theta as (n, 1 .., s). */
static value_id column(struct graph *g, node_id n, u32 s, u32 k)
{
    const struct node nd = *graph_node(g, n);
    const struct shape theta = *op_in_shape(g, &nd, 0);
    struct shape to = {.rank = s + 2};
    value_id v = op_node_slice(g, n, nd.in.v[0], &theta, 2, sym_const(g->sym, k), sym_const(g->sym, 1), 0);
    for (u32 i = 0; i < to.rank; i++) to.dim[i] = sym_const(g->sym, 1);
    to.dim[0] = theta.dim[0], to.dim[s + 1] = theta.dim[1];
    return op_node_reshape(g, n, v, to.rank, to.dim, 0);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    u32 s;
    sym size[5];
    if (!read_sizes(g, n, &s, size, e)) return false;
    value_id y = graph_node(g, n)->out.v[0], sum = column(g, n, s, s);
    for (u32 a = 0; a < s; a++) {
        sym dim[5];
        for (u32 i = 0; i < s + 2; i++) dim[i] = sym_const(g->sym, 1);
        dim[1 + a] = size[2 + a];
        value_id at = op_node_reshape(g, n, positions(g, n, size[2 + a]), s + 2, dim, 0);
        at = op_node2(g, n, "Mul", column(g, n, s, s - 1 - a), at, 0);
        sum = op_node2(g, n, "Add", at, sum, a + 1 == s ? y : 0);
    }
    return true;
}

static void random_affine(const struct op *self, struct graph *g, struct rng *r)
{
    i64 s = rng_range(r, 2, 3), size[5] = {rng_range(r, 1, 2), 3}, theta[3] = {size[0], s, s + 1};
    value_id in[2];
    for (i64 i = 0; i < s; i++) size[2 + i] = rng_range(r, 1, 5);
    random_input(g, "theta", DT_F32, 3, theta, &in[0]);
    in[1] = op_const_i(g, DT_I64, size, s + 2);
    node_id n = random_node(g, self, 2, in, 1);
    attr_set_int(g, n, "align_corners", rng_range(r, 0, 1));
}

static const struct op ops[] = {
    {.name = "AffineGrid",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_affine},
};

const struct op_family op_affine_grid = {ops, countof(ops)};
