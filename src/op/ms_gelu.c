// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft: activations fused with a bias in front, all composites.
//
//   BiasGelu        gelu(x + bias)                 FastGelu     gelu by tanh (x [+ bias])
//   QuickGelu       x * sigmoid(alpha * x)         BiasAdd      x + bias + skip
//   BiasSplitGelu   (x + bias) halved along the last axis: left * gelu(right)
//   BiasSoftmax     softmax(x + bias)              BiasDropout  x + bias [+ residual], the dropout left out
//   SwiGLU          clamp(gate) * sigmoid(alpha * clamp(gate)) * (clamp(up) + beta)
//   ScaledSiLU      silu(scale * x)                GatedAdd     x + y * gate
#include "op/op.h"

enum kind { BIAS_GELU, FAST_GELU, QUICK_GELU, BIAS_ADD, BIAS_SPLIT_GELU };

struct row {
    enum kind kind;
};

static bool infer(struct graph *g, node_id n, struct err *e)
{
    return op_check_float(g, n, 0, e) && op_same_types(g, n, 0, e) && op_infer_expanded(g, n, e);
}

static value_id gelu(struct graph *g, node_id n, value_id x, bool by_tanh, value_id out)
{
    value_id y = op_node1(g, n, "Gelu", x, out);
    if (by_tanh) attr_set_str(g, op_made(g, y), "approximate", S("tanh"));
    return y;
}

static bool split_gelu(struct graph *g, node_id n, value_id x, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const struct shape s = *op_in_shape(g, &nd, 0);
    u32 last = s.rank - 1;
    i64 c;
    if (!s.rank) return op_invalid(e, g, n, "input of rank 0");
    if (sym_is_const(g->sym, s.dim[last], &c) && c % 2) return op_invalid(e, g, n, "%lld channels do not halve", (long long)c);
    sym half = sym_div(g->sym, s.dim[last], sym_const(g->sym, 2));
    value_id left = op_node_slice(g, n, x, &s, last, sym_const(g->sym, 0), half, 0);
    value_id right = op_node_slice(g, n, x, &s, last, half, half, 0);
    op_node2(g, n, "Mul", left, gelu(g, n, right, false, 0), nd.out.v[0]);
    return true;
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const struct row *row = op_of(g, n)->row;
    enum dtype t = op_in_dtype(g, &nd, 0);
    value_id x = nd.in.v[0], out = nd.out.v[0];
    if (op_has_in(&nd, 1)) x = op_node2(g, n, "Add", x, nd.in.v[1], 0);
    switch (row->kind) {
    case BIAS_GELU: gelu(g, n, x, false, out); return true;
    case FAST_GELU: gelu(g, n, x, true, out); return true;
    case QUICK_GELU: {
        value_id s = op_node_binf(g, n, "Mul", x, t, attr_float(&nd, "alpha", 1.702), 0);
        op_node2(g, n, "Mul", x, op_node1(g, n, "Sigmoid", s, 0), out);
        return true;
    }
    case BIAS_ADD: op_node2(g, n, "Add", x, nd.in.v[2], out); return true;
    case BIAS_SPLIT_GELU: return split_gelu(g, n, x, e);
    }
    unreachable();
}

static void random_bias(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 3), rng_range(r, 1, 4), 2 * rng_range(r, 1, 4)};
    enum dtype t = random_float_type(r);
    value_id in[3];
    random_input(g, "x", t, 3, dim, &in[0]);
    if (self->max_in > 1) random_input(g, "bias", t, 1, &dim[2], &in[1]);
    if (self->max_in > 2) random_input(g, "skip", t, 3, dim, &in[2]);
    random_node(g, self, (u32)i64_min(self->max_in, 3), in, self->max_out);
}

/* BiasSoftmax: x, bias. The bias lacks the axes broadcast_axis .. axis-1 (inner), or has them alone before axis. */

static bool softmax_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    u32 axis;
    if (!op_axis(attr_int(nd, "axis", 1), op_in_shape(g, nd, 0)->rank, &axis))
        return op_invalid(e, g, n, "axis %lld does not exist", (long long)attr_int(nd, "axis", 1));
    return infer(g, n, e);
}

static bool softmax_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const struct shape s = *op_in_shape(g, &nd, 0);
    u32 axis = 0;
    op_axis(attr_int(&nd, "axis", 1), s.rank, &axis);
    value_id x = op_node2(g, n, "Add", nd.in.v[0], nd.in.v[1], 0);
    if (axis + 1 == s.rank) return op_node_softmax(g, n, x, -1, nd.out.v[0]), true;
    struct shape flat = {.known = true, .rank = axis + 1, .dim = {0}};
    for (u32 i = 0; i < axis; i++) flat.dim[i] = s.dim[i];
    flat.dim[axis] = sym_const(g->sym, 1);
    for (u32 i = axis; i < s.rank; i++) flat.dim[axis] = sym_mul(g->sym, flat.dim[axis], s.dim[i]);
    x = op_node_softmax(g, n, op_node_reshape(g, n, x, flat.rank, flat.dim, 0), -1, 0);
    op_node_reshape(g, n, x, s.rank, s.dim, nd.out.v[0]);
    return true;
}

static void random_softmax(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 3), rng_range(r, 1, 3), rng_range(r, 1, 4), rng_range(r, 1, 4)};
    value_id in[2];
    random_input(g, "x", DT_F32, 4, dim, &in[0]);
    random_input(g, "bias", DT_F32, 4, (i64[]){dim[0], 1, 1, dim[3]}, &in[1]);
    random_node(g, self, 2, in, 1);
    attr_set_int(g, g->node.n - 1, "axis", rng_range(r, 2, 3));
    attr_set_int(g, g->node.n - 1, "is_inner_broadcast", 1);
}

/* SwiGLU: gate [, up]; arithmetic in f32, rounded once. */

static bool swiglu_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const struct shape s = *op_in_shape(g, &nd, 0);
    enum dtype t = op_in_dtype(g, &nd, 0), f = t == DT_F64 ? DT_F64 : DT_F32;
    double limit = attr_float(&nd, "limit", 0), alpha = attr_float(&nd, "activation_alpha", 1),
           beta = attr_float(&nd, "activation_beta", 0);
    value_id gate = op_as(g, n, nd.in.v[0], f), up = op_node_input(&nd, 1);
    if (!s.rank) return op_invalid(e, g, n, "input of rank 0");
    if (up) {
        up = op_as(g, n, up, f);
    } else {
        sym half = sym_div(g->sym, s.dim[s.rank - 1], sym_const(g->sym, 2));
        value_id both = gate;
        gate = op_node_slice(g, n, both, &s, s.rank - 1, sym_const(g->sym, 0), half, 0);
        up = op_node_slice(g, n, both, &s, s.rank - 1, half, half, 0);
    }
    if (limit > 0) {
        gate = op_node_binf(g, n, "Min", gate, f, limit, 0);
        up = op_node_binf(g, n, "Min", up, f, limit, 0);
        up = op_node_binf(g, n, "Max", up, f, -limit, 0);
    }
    value_id y = op_node1(g, n, "Swish", gate, 0);
    attr_set_float(g, op_made(g, y), "alpha", alpha);
    if (attr_int(&nd, "round_activation", 0) && t != f) y = op_node_cast(g, n, op_node_cast(g, n, y, t, 0), f, 0);
    if (beta != 0) up = op_node_binf(g, n, "Add", up, f, beta, 0);
    op_node_into(g, n, op_node2(g, n, "Mul", y, up, 0), f, t, nd.out.v[0]);
    return true;
}

static void random_swiglu(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 3), 2 * rng_range(r, 1, 4)};
    enum dtype t = random_float_type(r);
    value_id in[2];
    random_input(g, "gate", t, 2, dim, &in[0]);
    random_input(g, "up", t, 2, dim, &in[1]);
    random_node(g, self, (u32)rng_range(r, 1, 2), in, 1);
    if (rng_range(r, 0, 1)) attr_set_float(g, g->node.n - 1, "limit", 1);
    if (rng_range(r, 0, 1)) attr_set_float(g, g->node.n - 1, "activation_beta", 1);
}

/* BiasDropout: x, bias [, residual [, ratio [, training]]] -> y [, mask] */

static bool dropout_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 training = 0;
    if (op_has_in(nd, 4) && (op_const_ints(g, nd->in.v[4], &training, 1) != 1 || training))
        return op_unsupported(e, g, n, "training (input 4): export the model for inference");
    return op_check_float(g, n, 0, e) && op_infer_expanded(g, n, e);
}

static bool dropout_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    bool skip = op_has_in(&nd, 2);
    const struct shape s = *op_in_shape(g, &nd, 0);
    value_id y = op_node2(g, n, "Add", nd.in.v[0], nd.in.v[1], skip ? 0 : nd.out.v[0]);
    if (skip) op_node2(g, n, "Add", y, nd.in.v[2], nd.out.v[0]);
    if (nd.out.n > 1 && nd.out.v[1]) op_node_expand(g, n, op_const_f(g, DT_BOOL, 1), s.rank, s.dim, nd.out.v[1]);
    return true;
}

/* ScaledSiLU: x [, scale] */

static bool silu_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t = op_in_dtype(g, &nd, 0);
    value_id scale = op_has_in(&nd, 1) ? op_as(g, n, nd.in.v[1], t) : op_const_f(g, t, attr_float(&nd, "alpha", 1));
    value_id z = op_node2(g, n, "Mul", nd.in.v[0], scale, 0);
    op_node2(g, n, "Mul", z, op_node1(g, n, "Sigmoid", z, 0), nd.out.v[0]);
    return true;
}

static void random_silu(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 3), rng_range(r, 1, 4)};
    value_id in[2];
    random_input(g, "x", DT_F32, 2, dim, &in[0]);
    random_input(g, "scale", DT_F32, 0, NULL, &in[1]);
    random_node(g, self, (u32)rng_range(r, 1, 2), in, 1);
    attr_set_float(g, g->node.n - 1, "alpha", 1.5);
}

/* GatedAdd: x, y, gate [, weight of the gate] */

static bool gated_infer(struct graph *g, node_id n, struct err *e)
{
    return op_check_absent(g, n, 3, "a projected gate", e) && infer(g, n, e);
}

static bool gated_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    op_node2(g, n, "Add", nd.in.v[0], op_node2(g, n, "Mul", nd.in.v[1], nd.in.v[2], 0), nd.out.v[0]);
    return true;
}

static void random_gated(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 3), rng_range(r, 1, 4)};
    value_id in[3];
    random_input(g, "x", DT_F32, 2, dim, &in[0]);
    random_input(g, "y", DT_F32, 2, dim, &in[1]);
    random_input(g, "gate", DT_F32, 2, (i64[]){dim[0], 1}, &in[2]);
    random_node(g, self, 3, in, 1);
}

static const struct row bias_gelu = {BIAS_GELU}, fast_gelu = {FAST_GELU}, quick_gelu = {QUICK_GELU},
                        bias_add = {BIAS_ADD}, bias_split_gelu = {BIAS_SPLIT_GELU};

#define OP(op, least, most, i, x, rnd)                                                                                 \
    .name = "com.microsoft::" op, .min_in = least, .max_in = most, .min_out = 1, .max_out = 1, .infer = i, .expand = x, \
    .random = rnd

static const struct op ops[] = {
    {OP("BiasGelu", 2, 2, infer, expand, random_bias), .row = &bias_gelu},
    {OP("FastGelu", 1, 2, infer, expand, random_bias), .row = &fast_gelu},
    {OP("QuickGelu", 1, 1, infer, expand, random_bias), .row = &quick_gelu},
    {OP("BiasAdd", 3, 3, infer, expand, random_bias), .row = &bias_add},
    {OP("BiasSplitGelu", 2, 2, infer, expand, random_bias), .row = &bias_split_gelu},
    {OP("BiasSoftmax", 2, 2, softmax_infer, softmax_expand, random_softmax)},
    {OP("SwiGLU", 1, 2, infer, swiglu_expand, random_swiglu)},
    {OP("ScaledSiLU", 1, 2, infer, silu_expand, random_silu)},
    {OP("GatedAdd", 3, 4, gated_infer, gated_expand, random_gated)},
    {.name = "com.microsoft::BiasDropout",
     .min_in = 2,
     .max_in = 5,
     .min_out = 1,
     .max_out = 2,
     .infer = dropout_infer,
     .expand = dropout_expand,
     .random = random_bias},
};

const struct op_family op_ms_gelu = {ops, countof(ops)};
