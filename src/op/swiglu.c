// SPDX-License-Identifier: Apache-2.0
//
// SwiGLU (opset 28): Swish(a) * b, a composite.
#include "op/op.h"

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape a = *op_in_shape(g, nd, 0), *b = op_in_shape(g, nd, 1);
    if (!dtype_is_float(op_in_dtype(g, nd, 0)))
        return op_unsupported(e, g, n, "type %s", dtype_name(op_in_dtype(g, nd, 0)));
    if (!op_same_types(g, n, 0, e)) return false;
    for (u32 i = 0; i < a.rank || i < b->rank; i++)
        if (a.rank != b->rank || !op_sizes_agree(g, a.dim[i], b->dim[i]))
            return op_invalid(e, g, n, "both inputs must have the same shape");
    op_set_out(g, n, 0, op_in_dtype(g, nd, 0), &a);
    return true;
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    value_id gate = op_node1(g, n, "Swish", nd.in.v[0], 0);
    attr_set_float(g, op_made(g, gate), "alpha", attr_float(&nd, "alpha", 1));
    op_node2(g, n, "Mul", gate, nd.in.v[1], nd.out.v[0]);
    return true;
}

static void random_glu(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[2] = {rng_range(r, 1, 4), rng_range(r, 1, 9)};
    enum dtype t = random_float_type(r);
    value_id in[2];
    random_input(g, "a", t, 2, dim, &in[0]);
    random_input(g, "b", t, 2, dim, &in[1]);
    random_node(g, self, 2, in, 1);
    if (rng_range(r, 0, 1)) attr_set_float(g, g->node.n - 1, "alpha", 0.5);
}

static const struct op ops[] = {
    {.name = "SwiGLU",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_glu},
};

const struct op_family op_swiglu = {ops, countof(ops)};
