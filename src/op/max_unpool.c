// SPDX-License-Identifier: Apache-2.0
//
// MaxUnpool: x (n, c, d..) with the positions its maxima were taken from, back to the size before
// pooling; zeros elsewhere. A composite: zeros, ScatterElements over the flattened tensor, and when
// output_shape is given a pad at the end (positions count in the size that kernel, strides and pads
// lead back to, not in output_shape).
#include "op/op.h"

/* The size before pooling, and the wanted one. */
struct sizes {
    struct shape before, out;
};

static bool sizes_read(struct graph *g, node_id n, struct sizes *s, struct err *e)
{
    const struct shape x = *op_in_shape(g, graph_node(g, n), 0);
    struct symtab *t = g->sym;
    struct op_window w;
    i64 count;
    if (!op_window_infer(g, n, NULL, &w, e)) return false;
    s->before = x;
    for (u32 i = 0; i < w.n; i++) {
        sym d = sym_mul(t, sym_sub(t, x.dim[2 + i], sym_const(t, 1)), sym_const(t, w.stride[i]));
        d = sym_add(t, d, sym_const(t, w.kernel[i]));
        s->before.dim[2 + i] = sym_sub(t, d, sym_add(t, w.begin[i], w.end[i]));
    }
    s->out = s->before;
    if (!op_has_in(graph_node(g, n), 2)) return true;
    if (!op_data_sizes(g, n, graph_node(g, n)->in.v[2], s->out.dim, MAX_RANK, &count))
        return op_unsupported(e, g, n, "output_shape is only known at run time");
    return count == x.rank ||
           op_invalid(e, g, n, "output_shape has %lld elements", (long long)count);
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *x = op_in_shape(g, nd, 0), *i = op_in_shape(g, nd, 1);
    struct sizes s;
    i64 c;
    bool same = x->rank == i->rank;
    for (u32 k = 0; same && k < x->rank; k++) same = op_sizes_agree(g, x->dim[k], i->dim[k]);
    if (!same || op_in_dtype(g, nd, 1) != DT_I64)
        return op_invalid(e, g, n, "positions do not fit the input");
    if (!sizes_read(g, n, &s, e)) return false;
    for (u32 k = 0; k < s.out.rank; k++)
        if ((sym_is_const(g->sym, s.out.dim[k], &c) && c < 0) ||
            (sym_is_const(g->sym, s.before.dim[k], &c) && c < 0))
            return op_invalid(e, g, n, "negative size");
    op_set_out(g, n, 0, op_in_dtype(g, graph_node(g, n), 0), &s.out);
    return true;
}

/* A node of one input with a symbolic attribute. */
static value_id shaped(struct graph *g, node_id n, const char *op, value_id x,
                       const struct shape *to, value_id out)
{
    value_id y = op_node1(g, n, op, x, out);
    op_set_syms(g, op_made(g, y), "shape", to->dim, to->rank);
    return y;
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    struct sizes s;
    if (!sizes_read(g, n, &s, e)) return false;
    struct shape flat = {.known = true, .rank = 1, .dim = {shape_count(g->sym, &s.before)}};
    struct shape from = {
        .known = true, .rank = 1, .dim = {shape_count(g->sym, op_in_shape(g, &nd, 0))}};
    value_id in[3] = {
        shaped(g, n, "quern::Expand", op_const_f(g, op_in_dtype(g, &nd, 0), 0), &flat, 0)};
    in[1] = shaped(g, n, "quern::Reshape", nd.in.v[1], &from, 0);
    in[2] = shaped(g, n, "quern::Reshape", nd.in.v[0], &from, 0);
    value_id y = op_node(g, n, "ScatterElements", 3, in, 0);
    bool pad = op_has_in(&nd, 2);
    y = shaped(g, n, "quern::Reshape", y, &s.before, pad ? 0 : nd.out.v[0]);
    if (!pad) return true;
    sym before[MAX_RANK], after[MAX_RANK];
    for (u32 i = 0; i < s.out.rank; i++) {
        before[i] = sym_const(g->sym, 0);
        after[i] = sym_sub(g->sym, s.out.dim[i], s.before.dim[i]);
    }
    node_id p = op_made(g, op_node1(g, n, "quern::Pad", y, nd.out.v[0]));
    op_set_syms(g, p, "before", before, s.out.rank);
    op_set_syms(g, p, "after", after, s.out.rank);
    return true;
}

/* Positions within windows of 2 x 2. */
static void random_unpool(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[4] = {rng_range(r, 1, 2), rng_range(r, 1, 3), rng_range(r, 1, 4), rng_range(r, 1, 4)},
        at[4] = {0};
    i64 want[4] = {dim[0], dim[1], 2 * dim[2] + rng_range(r, 0, 2),
                   2 * dim[3] + rng_range(r, 0, 2)};
    struct tensor *t = tensor_new(g->arena, DT_I64, 4, dim);
    value_id in[3];
    for (i64 i = 0; i < tensor_count(t); i++, op_next(4, dim, at)) {
        i64 row = (at[0] * dim[1] + at[1]) * 2 * dim[2] + 2 * at[2] + rng_range(r, 0, 1);
        elem_set_i64(DT_I64, t->data, i, row * 2 * dim[3] + 2 * at[3] + rng_range(r, 0, 1));
    }
    random_input(g, "x", DT_F32, 4, dim, &in[0]);
    in[1] = graph_add_const(g, S("at"), t);
    in[2] = op_const_i(g, DT_I64, want, 4);
    random_node(g, self, (u32)rng_range(r, 2, 3), in, 1);
    attr_set_ints(g, g->node.n - 1, "kernel_shape", (i64[]){2, 2}, 2);
    attr_set_ints(g, g->node.n - 1, "strides", (i64[]){2, 2}, 2);
}

static const struct op ops[] = {
    {.name = "MaxUnpool",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_unpool},
};

const struct op_family op_max_unpool = {ops, countof(ops)};
