// SPDX-License-Identifier: Apache-2.0
//
// Softmax, LogSoftmax, Hardmax and the two losses built on them: composites of reductions and
// pointwise operators. The maximum is subtracted first, so that no exponential overflows and their
// sum is at least 1: its reciprocal is taken once, not a quotient per element.
//
// Before opset 13 the input was taken as a matrix split at `axis` and its rows normalised: over all
// axes from `axis` on. The upgrade marks such nodes with attribute "to_end".
#include "op/op.h"

static bool upgrade(struct graph *g, node_id n, i64 opset, struct err *e)
{
    if (opset >= 13) return true;
    attr_set_int(g, n, "axis", attr_int(graph_node(g, n), "axis", 1));
    attr_set_int(g, n, "to_end", 1);
    return true;
}

/* The axes that are normalised together. */
static bool norm_axes(const struct graph *g, node_id n, i64 axes[MAX_RANK], u32 *count)
{
    const struct node *nd = graph_node(g, n);
    u32 rank = op_in_shape(g, nd, 0)->rank, first;
    if (!op_axis(attr_int(nd, "axis", -1), rank, &first)) return false;
    u32 end = attr_int(nd, "to_end", 0) ? rank : first + 1;
    for (u32 i = first; i < end; i++) axes[i - first] = i;
    *count = end - first;
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    enum dtype t = op_in_dtype(g, nd, 0);
    i64 axes[MAX_RANK];
    u32 count;
    if (!dtype_is_float(t)) return op_unsupported(e, g, n, "type %s", dtype_name(t));
    if (!norm_axes(g, n, axes, &count))
        return op_invalid(e, g, n, "axis %lld does not exist", (long long)attr_int(nd, "axis", -1));
    struct shape s = *op_in_shape(g, nd, 0);
    op_set_out(g, n, 0, t, &s);
    return true;
}

static bool expand_softmax(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    i64 axes[MAX_RANK];
    u32 count = 0;
    norm_axes(g, n, axes, &count);
    value_id x = nd.in.v[0], y = nd.out.v[0];
    value_id max = op_node_axes(g, n, "ReduceMax", x, axes, count, 0);
    value_id d = op_node2(g, n, "Sub", x, max, 0);
    value_id ex = op_node1(g, n, "Exp", d, 0);
    value_id sum = op_node_axes(g, n, "ReduceSum", ex, axes, count, 0);
    if (str_is(nd.op, "Softmax")) op_node2(g, n, "Mul", ex, op_node1(g, n, "Reciprocal", sum, 0), y);
    else op_node2(g, n, "Sub", d, op_node1(g, n, "Log", sum, 0), y);
    return true;
}

/* 1 at the first maximum along one axis, of `size` elements. */
static value_id hardmax(struct graph *g, node_id n, value_id x, i64 axis, sym size, value_id out)
{
    enum dtype t = op_in_dtype(g, graph_node(g, n), 0);
    value_id at = op_node1(g, n, "ArgMax", x, 0);
    attr_set_int(g, op_made(g, at), "axis", axis);
    attr_set_int(g, op_made(g, at), "keepdims", 0);
    value_id in[3] = {at, op_sym_scalar(g, DT_I64, size), op_const_i(g, t, (i64[]){0, 1}, 2)};
    value_id y = op_node(g, n, "OneHot", 3, in, out);
    attr_set_int(g, op_made(g, y), "axis", axis);
    return y;
}

static bool expand_hardmax(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const struct shape s = *op_in_shape(g, &nd, 0);
    i64 axes[MAX_RANK];
    u32 count = 0;
    norm_axes(g, n, axes, &count);
    value_id x = nd.in.v[0], y = nd.out.v[0];
    if (count == 1) return hardmax(g, n, x, axes[0], s.dim[axes[0]], y), true;
    sym size = sym_const(g->sym, 1);
    for (u32 i = 0; i < count; i++) size = sym_mul(g->sym, size, s.dim[axes[i]]);
    value_id flat = op_node1(g, n, "Flatten", x, 0);
    attr_set_int(g, op_made(g, flat), "axis", axes[0]);
    value_id shape = op_node1(g, n, "Shape", x, 0);
    op_node2(g, n, "Reshape", hardmax(g, n, flat, 1, size, 0), shape, y);
    return true;
}

static void random_softmax(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[MAX_RANK];
    u32 rank = (u32)rng_range(r, 1, 4);
    for (u32 i = 0; i < rank; i++) dim[i] = rng_range(r, 1, 7);
    value_id x;
    random_input(g, "x", DT_F32, rank, dim, &x);
    random_node(g, self, 1, &x, 1);
    if (rng_range(r, 0, 3))
        attr_set_int(g, g->node.n - 1, "axis", rng_range(r, -(i64)rank, (i64)rank - 1));
    if (!rng_range(r, 0, 3)) attr_set_int(g, g->node.n - 1, "to_end", 1);
}

/* Losses: x (n, c, d..) log-probabilities, t (n, d..) classes, w (c) weights. */

static bool loss_fits(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *x = op_in_shape(g, nd, 0), *t = op_in_shape(g, nd, 1);
    enum dtype lt = op_in_dtype(g, nd, 1);
    if (!dtype_is_float(op_in_dtype(g, nd, 0)))
        return op_unsupported(e, g, n, "type %s", dtype_name(op_in_dtype(g, nd, 0)));
    if (lt != DT_I32 && lt != DT_I64)
        return op_invalid(e, g, n, "classes of type %s", dtype_name(lt));
    if (x->rank < 2 || t->rank + 1 != x->rank)
        return op_invalid(e, g, n, "classes of rank %u for scores of rank %u", t->rank, x->rank);
    if (!op_has_in(nd, 2)) return true;
    if (op_in_shape(g, nd, 2)->rank != 1 || op_in_dtype(g, nd, 2) != op_in_dtype(g, nd, 0))
        return op_invalid(e, g, n, "weights of rank %u and type %s", op_in_shape(g, nd, 2)->rank,
                          dtype_name(op_in_dtype(g, nd, 2)));
    return true;
}

static bool loss_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct str how = attr_str(nd, "reduction", "mean");
    bool none = str_is(how, "none");
    if (!loss_fits(g, n, e)) return false;
    if (!none && !str_is(how, "sum") && !str_is(how, "mean"))
        return op_invalid(e, g, n, "reduction '%.*s' does not exist", STR_ARG(how));
    const struct shape x = *op_in_shape(g, nd, 0), t = *op_in_shape(g, nd, 1),
                       scalar = {.known = true};
    op_set_out(g, n, 0, op_in_dtype(g, nd, 0), none ? &t : &scalar);
    op_set_out(g, n, 1, op_in_dtype(g, nd, 0), &x);
    return true;
}

static value_id select(struct graph *g, node_id n, value_id cond, value_id a, value_id b)
{
    return op_node(g, n, "Where", 3, (value_id[]){cond, a, b}, 0);
}

/* The weight of every element; 0: all equal. Ignored classes (mask) have weight 0. */
static value_id loss_weight(struct graph *g, node_id n, value_id classes, value_id mask)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t = op_in_dtype(g, &nd, 0);
    value_id w = op_has_in(&nd, 2) ? op_node2(g, n, "Gather", nd.in.v[2], classes, 0) : 0;
    if (!mask) return w;
    if (!w) w = op_const_f(g, t, 1);
    return select(g, n, mask, op_const_f(g, t, 0), w);
}

static value_id total(struct graph *g, node_id n, const char *op, value_id x, value_id out)
{
    value_id v = op_node1(g, n, op, x, out);
    attr_set_int(g, op_made(g, v), "keepdims", 0);
    return v;
}

static void loss_reduce(struct graph *g, node_id n, value_id loss, value_id w)
{
    const struct node nd = *graph_node(g, n);
    struct str how = attr_str(&nd, "reduction", "mean");
    value_id y = nd.out.v[0];
    if (str_is(how, "none")) op_node1(g, n, "Neg", loss, y);
    else if (str_is(how, "sum") || w)
        loss = op_node1(g, n, "Neg", total(g, n, "ReduceSum", loss, 0), str_is(how, "sum") ? y : 0);
    else op_node1(g, n, "Neg", total(g, n, "ReduceMean", loss, 0), y);
    if (w && str_is(how, "mean")) op_node2(g, n, "Div", loss, total(g, n, "ReduceSum", w, 0), y);
}

static bool loss_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const i64 one = 1;
    value_id x = nd.in.v[0], mask = 0;
    if (str_is(nd.op, "SoftmaxCrossEntropyLoss")) {
        x = op_node1(g, n, "LogSoftmax", x, nd.out.n > 1 ? nd.out.v[1] : 0);
        attr_set_int(g, op_made(g, x), "axis", 1);
    }
    value_id t = op_as(g, n, nd.in.v[1], DT_I64);
    if (node_attr(&nd, "ignore_index")) {
        i64 ignore = attr_int(&nd, "ignore_index", 0), zero = 0;
        mask = op_node2(g, n, "Equal", t, op_const_i(g, DT_I64, &ignore, 1), 0);
        t = select(g, n, mask, op_const_i(g, DT_I64, &zero, 1), t);
    }
    value_id loss =
        op_node2(g, n, "GatherElements", x, op_node_axes(g, n, "Unsqueeze", t, &one, 1, 0), 0);
    attr_set_int(g, op_made(g, loss), "axis", 1);
    loss = op_node_axes(g, n, "Squeeze", loss, &one, 1, 0);
    value_id w = loss_weight(g, n, t, mask);
    loss_reduce(g, n, w ? op_node2(g, n, "Mul", loss, w, 0) : loss, w);
    return true;
}

static void random_loss(const struct op *self, struct graph *g, struct rng *r)
{
    static const char *const hows[] = {"none", "sum", "mean"};
    i64 x[MAX_RANK] = {rng_range(r, 1, 4), rng_range(r, 1, 5)}, t[MAX_RANK] = {x[0]},
        classes = x[1];
    u32 rank = (u32)rng_range(r, 2, 4);
    for (u32 i = 2; i < rank; i++) t[i - 1] = x[i] = rng_range(r, 1, 4);
    value_id in[3] = {0};
    random_input(g, "x", DT_F32, rank, x, &in[0]);
    struct tensor *c = tensor_new(g->arena, DT_I64, rank - 1, t);
    for (i64 i = 0; i < tensor_count(c); i++)
        elem_set_i64(DT_I64, c->data, i, rng_range(r, 0, classes - 1));
    in[1] = graph_add_const(g, S("classes"), c);
    if (rng_range(r, 0, 1)) {
        struct tensor *w = tensor_new(g->arena, DT_F32, 1, &classes);
        for (i64 i = 0; i < classes; i++) elem_set_f64(DT_F32, w->data, i, 0.25 + rng_f64(r));
        in[2] = graph_add_const(g, S("weights"), w);
    }
    random_node(g, self, in[2] ? 3 : 2, in, 1);
    attr_set_str(g, g->node.n - 1, "reduction", str_of(hows[rng_range(r, 0, 2)]));
    if (classes > 1 && x[0] > 1 && !rng_range(r, 0, 2)) {
        elem_set_i64(DT_I64, c->data, 0, 1); /* not all are ignored: 0/0 would follow */
        attr_set_int(g, g->node.n - 1, "ignore_index", 0);
    }
}

static const struct op ops[] = {
    {.name = "Softmax",
     .attributes = "to_end:int",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .upgrade = upgrade,
     .infer = infer,
     .expand = expand_softmax,
     .random = random_softmax},
    {.name = "LogSoftmax",
     .attributes = "to_end:int",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .upgrade = upgrade,
     .infer = infer,
     .expand = expand_softmax,
     .random = random_softmax},
    {.name = "Hardmax",
     .attributes = "to_end:int",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .upgrade = upgrade,
     .infer = infer,
     .expand = expand_hardmax,
     .random = random_softmax},
    {.name = "SoftmaxCrossEntropyLoss",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 2,
     .infer = loss_infer,
     .expand = loss_expand,
     .random = random_loss},
    {.name = "NegativeLogLikelihoodLoss",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = loss_infer,
     .expand = loss_expand,
     .random = random_loss},
};

const struct op_family op_softmax = {ops, countof(ops)};
