// SPDX-License-Identifier: Apache-2.0
//
// Normalisations, all composites: BatchNormalization becomes one multiply-add per element with
// factors computed per channel (constants fold, and fold further into a convolution in front); the
// others subtract a mean and divide by a deviation of the centred values, which loses less than
// E[x^2] - E[x]^2.
//
// 16-bit floats are normalised in f32 and rounded at the end. Dims: (n, c, d0, d1 ...).
#include "op/op.h"

enum { BN_OUTPUTS = 5 };

/* The type that statistics are computed in. */
static enum dtype wide(enum dtype t) { return t == DT_F64 ? DT_F64 : DT_F32; }

static bool float_input(const struct graph *g, node_id n, u32 min_rank, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    for (u32 i = 0; i < nd->in.n; i++)
        if (nd->in.v[i] && !dtype_is_float(op_in_dtype(g, nd, i)))
            return op_unsupported(e, g, n, "input %u of type %s", i,
                                  dtype_name(op_in_dtype(g, nd, i)));
    u32 rank = op_in_shape(g, nd, 0)->rank;
    return rank >= min_rank ? true : op_invalid(e, g, n, "input of rank %u", rank);
}

/* Inputs first ... are vectors of `size` elements. */
static bool vectors(const struct graph *g, node_id n, u32 first, u32 end, sym size, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    for (u32 i = first; i < end; i++) {
        if (!op_has_in(nd, i)) continue;
        const struct shape *s = op_in_shape(g, nd, i);
        i64 d;
        if (s->rank != 1) return op_invalid(e, g, n, "input %u of rank %u", i, s->rank);
        if (sym_is_const(g->sym, sym_sub(g->sym, s->dim[0], size), &d) && d)
            return op_invalid(e, g, n, "input %u does not have one element per channel", i);
    }
    return true;
}

/* (c) -> (c, 1, 1 ...) for an input of rank `rank`. */
static value_id per_channel(struct graph *g, node_id n, value_id v, u32 rank)
{
    i64 axes[MAX_RANK];
    for (u32 i = 1; i + 1 < rank; i++) axes[i - 1] = i;
    return rank <= 2 ? v : op_node_axes(g, n, "Unsqueeze", v, axes, rank - 2, 0);
}

struct stats {
    value_id mean, centred, var;
};

static void statistics(struct graph *g, node_id n, value_id x, const i64 *axes, u32 count,
                       value_id mean_out, struct stats *s)
{
    s->mean = op_node_axes(g, n, "ReduceMean", x, axes, count, mean_out);
    s->centred = op_node2(g, n, "Sub", x, s->mean, 0);
    s->var = op_node_axes(g, n, "ReduceMean", op_node2(g, n, "Mul", s->centred, s->centred, 0),
                          axes, count, 0);
}

/* sqrt(var + epsilon) */
static value_id deviation(struct graph *g, node_id n, value_id var, enum dtype t, double def)
{
    double eps = attr_float(graph_node(g, n), "epsilon", def);
    return op_node1(g, n, "Sqrt", op_node_binf(g, n, "Add", var, t, eps, 0), 0);
}

/* v, of type t if no cast is needed, into `to`; result in out. */
static value_id narrow(struct graph *g, node_id n, value_id v, enum dtype from, enum dtype to,
                       value_id out)
{
    if (from != to) return op_node_cast(g, n, v, to, out);
    return out ? op_node1(g, n, "Identity", v, out) : v;
}

static bool infer_same(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct shape s = *op_in_shape(g, nd, 0);
    op_set_out(g, n, 0, op_in_dtype(g, nd, 0), &s);
    return true;
}

/* BatchNormalization: x, scale, b, mean, var -> y [, running mean, running var] */

/* Before opset 9 scale, shift, mean and variance could have the shape of an image, one number per element. */
static void bn_per_element(struct graph *g, node_id n)
{
    const struct node nd = *graph_node(g, n);
    value_id x = nd.in.v[0], epsilon = op_node2(g, n, "CastLike", op_const_f(g, DT_F32, attr_float(&nd, "epsilon", 1e-5)), x, 0);
    value_id deviation = op_node1(g, n, "Sqrt", op_node2(g, n, "Add", nd.in.v[4], epsilon, 0), 0);
    value_id y = op_node2(g, n, "Div", op_node2(g, n, "Sub", x, nd.in.v[3], 0), deviation, 0);
    graph_node(g, n)->dead = true;
    op_node2(g, n, "Add", op_node2(g, n, "Mul", y, nd.in.v[1], 0), nd.in.v[2], nd.out.v[0]);
}

/* Before opset 14 further outputs meant training: the running statistics and, for the gradient, those of the batch. */
static bool bn_old_outputs(struct graph *g, node_id n, struct err *e)
{
    for (u32 k = 1; k < graph_node(g, n)->out.n; k++) {
        value_id v = graph_node(g, n)->out.v[k];
        if (!v) continue;
        attr_set_int(g, n, "training_mode", 1);
        if (k < 3) continue;
        if (graph_is_output(g, v) || graph_is_read(g, v)) return op_unsupported(e, g, n, "output %u, statistics that are saved for a gradient; export for inference", k);
        graph_value(g, v)->producer = 0;
    }
    if (graph_node(g, n)->out.n > 3) graph_node(g, n)->out.n = 3;
    return true;
}

static bool bn_upgrade(struct graph *g, node_id n, i64 opset, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    bool per_element = opset < 9 && attr_int(nd, "spatial", 1) == 0 && nd->in.n == 5 && nd->out.n;
    attr_remove(g, n, "spatial");
    if (opset < 14 && !bn_old_outputs(g, n, e)) return false;
    if (!per_element) return true;
    if (attr_int(graph_node(g, n), "training_mode", 0))
        return op_unsupported(e, g, n, "training with attribute 'spatial' = 0; export for inference");
    return bn_per_element(g, n), true;
}

static bool bn_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!float_input(g, n, 2, e) || !vectors(g, n, 1, 5, op_in_shape(g, nd, 0)->dim[1], e))
        return false;
    bool training = attr_int(nd, "training_mode", 0);
    for (u32 k = 1; !training && k < nd->out.n; k++)
        if (nd->out.v[k]) return op_invalid(e, g, n, "output %u without training_mode", k);
    struct shape running = {.known = true, .rank = 1, .dim = {op_in_shape(g, nd, 0)->dim[1]}};
    for (u32 k = 1; k < 3; k++) op_set_out(g, n, k, op_in_dtype(g, nd, k + 2), &running);
    return infer_same(g, n, e);
}

/* scale and shift per channel, in type f -> y = x * factor + offset */
static void bn_apply(struct graph *g, node_id n, value_id mean, value_id var, enum dtype f)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t = op_in_dtype(g, &nd, 0);
    u32 rank = op_in_shape(g, &nd, 0)->rank;
    value_id scale = op_as(g, n, nd.in.v[1], f), shift = op_as(g, n, nd.in.v[2], f);
    value_id factor = op_node2(g, n, "Div", scale, deviation(g, n, var, f, 1e-5), 0);
    value_id offset = op_node2(g, n, "Sub", shift, op_node2(g, n, "Mul", mean, factor, 0), 0);
    factor = per_channel(g, n, narrow(g, n, factor, f, t, 0), rank);
    offset = per_channel(g, n, narrow(g, n, offset, f, t, 0), rank);
    op_node2(g, n, "Add", op_node2(g, n, "Mul", nd.in.v[0], factor, 0), offset, nd.out.v[0]);
}

/* out = old * momentum + now * (1 - momentum) */
static void bn_running(struct graph *g, node_id n, u32 k, value_id now, enum dtype f)
{
    const struct node nd = *graph_node(g, n);
    if (k >= nd.out.n || !nd.out.v[k]) return;
    double momentum = attr_float(&nd, "momentum", 0.9);
    value_id a = op_node_binf(g, n, "Mul", op_as(g, n, nd.in.v[k + 2], f), f, momentum, 0);
    value_id b = op_node_binf(g, n, "Mul", now, f, 1 - momentum, 0);
    narrow(g, n, op_node2(g, n, "Add", a, b, 0), f, op_in_dtype(g, &nd, k + 2), nd.out.v[k]);
}

static bool bn_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype f = wide(op_in_dtype(g, &nd, 0));
    if (!attr_int(&nd, "training_mode", 0)) {
        value_id mean = op_as(g, n, nd.in.v[3], f), var = op_as(g, n, nd.in.v[4], f);
        return bn_apply(g, n, mean, var, f), true;
    }
    i64 axes[MAX_RANK] = {0};
    u32 rank = op_in_shape(g, &nd, 0)->rank;
    struct stats s;
    for (u32 i = 2; i < rank; i++) axes[i - 1] = i;
    statistics(g, n, op_as(g, n, nd.in.v[0], f), axes, rank - 1, 0, &s);
    value_id mean = op_node_axes(g, n, "Squeeze", s.mean, axes, rank - 1, 0);
    value_id var = op_node_axes(g, n, "Squeeze", s.var, axes, rank - 1, 0);
    bn_running(g, n, 1, mean, f);
    bn_running(g, n, 2, var, f);
    return bn_apply(g, n, mean, var, f), true;
}

static void random_dims(struct rng *r, u32 rank, i64 *dim)
{
    for (u32 i = 0; i < rank; i++) dim[i] = rng_range(r, i ? 2 : 1, 5);
}

/* A constant vector of values in 0.5 .. 1.5: scales and variances. */
static value_id positive(struct graph *g, i64 n, struct rng *r)
{
    struct tensor *t = tensor_new(g->arena, DT_F32, 1, &n);
    for (i64 i = 0; i < n; i++) elem_set_f64(DT_F32, t->data, i, 0.5 + rng_f64(r));
    return graph_add_const(g, S("positive"), t);
}

static void random_bn(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[MAX_RANK];
    u32 rank = (u32)rng_range(r, 2, 5);
    bool training = rng_range(r, 0, 3) == 0;
    random_dims(r, rank, dim);
    value_id in[5] = {0};
    random_input(g, "x", DT_F32, rank, dim, &in[0]);
    in[1] = positive(g, dim[1], r), in[4] = positive(g, dim[1], r);
    random_input(g, "b", DT_F32, 1, &dim[1], &in[2]);
    random_input(g, "mean", DT_F32, 1, &dim[1], &in[3]);
    random_node(g, self, 5, in, training ? 3 : 1);
    attr_set_int(g, g->node.n - 1, "training_mode", training);
    attr_set_float(g, g->node.n - 1, "epsilon", 1e-3);
}

/* InstanceNormalization: x, scale, b */

static bool in_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    return float_input(g, n, 3, e) && op_same_types(g, n, 0, e) &&
           vectors(g, n, 1, 3, op_in_shape(g, nd, 0)->dim[1], e) && infer_same(g, n, e);
}

/* centred / deviation, in the node's type */
static value_id normalised(struct graph *g, node_id n, const struct stats *s, enum dtype f,
                           double eps)
{
    value_id y = op_node2(g, n, "Div", s->centred, deviation(g, n, s->var, f, eps), 0);
    return narrow(g, n, y, f, op_in_dtype(g, graph_node(g, n), 0), 0);
}

static bool in_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype f = wide(op_in_dtype(g, &nd, 0));
    i64 axes[MAX_RANK];
    u32 rank = op_in_shape(g, &nd, 0)->rank;
    struct stats s;
    for (u32 i = 2; i < rank; i++) axes[i - 2] = i;
    statistics(g, n, op_as(g, n, nd.in.v[0], f), axes, rank - 2, 0, &s);
    value_id y = normalised(g, n, &s, f, 1e-5);
    y = op_node2(g, n, "Mul", y, per_channel(g, n, nd.in.v[1], rank), 0);
    op_node2(g, n, "Add", y, per_channel(g, n, nd.in.v[2], rank), nd.out.v[0]);
    return true;
}

static void random_in(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[MAX_RANK];
    u32 rank = (u32)rng_range(r, 3, 5);
    random_dims(r, rank, dim);
    enum dtype type = random_float_type(r);
    value_id in[3];
    random_input(g, "x", type, rank, dim, &in[0]);
    random_input(g, "scale", type, 1, &dim[1], &in[1]);
    random_input(g, "b", type, 1, &dim[1], &in[2]);
    random_node(g, self, 3, in, 1);
    attr_set_float(g, g->node.n - 1, "epsilon", 1e-2);
}

/* LayerNormalization: x, scale [, b] -> y [, mean, 1/deviation] */

static bool ln_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    u32 axis;
    if (!float_input(g, n, 1, e)) return false;
    struct shape s = *op_in_shape(g, nd, 0);
    if (!op_axis(attr_int(nd, "axis", -1), s.rank, &axis))
        return op_invalid(e, g, n, "axis %lld does not exist", (long long)attr_int(nd, "axis", -1));
    if (attr_int(nd, "stash_type", 1) != 1)
        return op_unsupported(e, g, n, "stash_type %lld", (long long)attr_int(nd, "stash_type", 1));
    for (u32 k = 1; k < nd->in.n; k++)
        if (nd->in.v[k] && !op_broadcast_to(g, op_in_shape(g, nd, k), &s))
            return op_invalid(e, g, n, "input %u, %.*s, does not broadcast to the input, %.*s", k,
                              STR_ARG(op_shape_text(g, op_in_shape(g, nd, k))), STR_ARG(op_shape_text(g, &s)));
    op_set_out(g, n, 0, op_in_dtype(g, nd, 0), &s);
    for (u32 i = axis; i < s.rank; i++) s.dim[i] = sym_const(g->sym, 1);
    op_set_out(g, n, 1, DT_F32, &s);
    op_set_out(g, n, 2, DT_F32, &s);
    return true;
}

/* Output k, wanted or not, in f32. */
static void ln_stat(struct graph *g, node_id n, u32 k, value_id v, enum dtype f)
{
    const struct node *nd = graph_node(g, n);
    if (k < nd->out.n && nd->out.v[k]) narrow(g, n, v, f, DT_F32, nd->out.v[k]);
}

static bool ln_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t = op_in_dtype(g, &nd, 0), f = wide(t);
    i64 axes[MAX_RANK];
    u32 rank = op_in_shape(g, &nd, 0)->rank, axis = 0;
    struct stats s;
    op_axis(attr_int(&nd, "axis", -1), rank, &axis);
    for (u32 i = axis; i < rank; i++) axes[i - axis] = i;
    statistics(g, n, op_as(g, n, nd.in.v[0], f), axes, rank - axis, 0, &s);
    value_id inverse = op_node1(g, n, "Reciprocal", deviation(g, n, s.var, f, 1e-5), 0);
    ln_stat(g, n, 1, s.mean, f);
    ln_stat(g, n, 2, inverse, f);
    value_id y = op_node2(g, n, "Mul", s.centred, inverse, 0);
    bool has_bias = op_has_in(&nd, 2);
    value_id out = f == t ? nd.out.v[0] : 0; /* f16 and bf16 are scaled in f32, too, and rounded once */
    y = op_node2(g, n, "Mul", y, op_as(g, n, nd.in.v[1], f), has_bias ? 0 : out);
    if (has_bias) y = op_node2(g, n, "Add", y, op_as(g, n, nd.in.v[2], f), out);
    if (f != t) op_node_cast(g, n, y, t, nd.out.v[0]);
    return true;
}

static void random_ln(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[MAX_RANK];
    u32 rank = (u32)rng_range(r, 1, 4), axis = (u32)rng_range(r, 0, rank - 1),
        n_in = (u32)rng_range(r, 2, self->max_in);
    random_dims(r, rank, dim);
    dim[axis] = rng_range(r, 3, 6);
    enum dtype type = random_float_type(r);
    value_id in[3];
    random_input(g, "x", type, rank, dim, &in[0]);
    random_input(g, "scale", type, rank - axis, dim + axis, &in[1]);
    if (n_in > 2) random_input(g, "b", type, rank - axis, dim + axis, &in[2]);
    random_node(g, self, n_in, in, (u32)rng_range(r, 1, self->max_out));
    attr_set_int(g, g->node.n - 1, "axis", rng_range(r, 0, 1) ? (i64)axis : (i64)axis - (i64)rank);
    attr_set_float(g, g->node.n - 1, "epsilon", 1e-2);
}

/* RMSNormalization: x, scale */

static bool rms_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!ln_infer(g, n, e)) return false;
    struct shape s = *op_in_shape(g, nd, 0);
    op_set_out(g, n, 0, op_in_dtype(g, nd, 1), &s); /* the scale's type */
    return true;
}

static bool rms_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t = op_in_dtype(g, &nd, 0), f = wide(t);
    i64 axes[MAX_RANK];
    u32 rank = op_in_shape(g, &nd, 0)->rank, axis = 0;
    op_axis(attr_int(&nd, "axis", -1), rank, &axis);
    for (u32 i = axis; i < rank; i++) axes[i - axis] = i;
    value_id x = op_as(g, n, nd.in.v[0], f);
    value_id mean = op_node_axes(g, n, "ReduceMean", op_node2(g, n, "Mul", x, x, 0), axes,
                                 rank - axis, 0);
    value_id y = op_node2(g, n, "Div", x, deviation(g, n, mean, f, 1e-5), 0);
    op_node2(g, n, "Mul", narrow(g, n, y, f, op_in_dtype(g, &nd, 1), 0), nd.in.v[1], nd.out.v[0]);
    return true;
}

/* GroupNormalization: x, scale, b, the latter two per group (opset 18) or per channel (21) */

/* Of a size that is not known: per channel if it is that of the channels. */
static bool is_per_channel(const struct graph *g, const struct node *nd)
{
    i64 n;
    sym size = op_in_shape(g, nd, 1)->dim[0];
    if (!sym_is_const(g->sym, size, &n)) return size == op_in_shape(g, nd, 0)->dim[1];
    return n != attr_int(nd, "num_groups", 0);
}

static bool gn_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 groups = attr_int(nd, "num_groups", 0), c;
    if (!float_input(g, n, 3, e) || !op_same_types(g, n, 0, e)) return false;
    if (groups < 1) return op_invalid(e, g, n, "num_groups %lld", (long long)groups);
    if (sym_is_const(g->sym, op_in_shape(g, nd, 0)->dim[1], &c) && c % groups)
        return op_invalid(e, g, n, "%lld channels in %lld groups", (long long)c, (long long)groups);
    sym size = op_in_shape(g, nd, 1)->rank == 1 && is_per_channel(g, nd)
                   ? op_in_shape(g, nd, 0)->dim[1]
                   : sym_const(g->sym, groups);
    return vectors(g, n, 1, 3, size, e) && infer_same(g, n, e);
}

static bool gn_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype f = wide(op_in_dtype(g, &nd, 0));
    const i64 two = 2, split[3] = {0, attr_int(&nd, "num_groups", 1), -1};
    struct stats s;
    value_id x = op_as(g, n, nd.in.v[0], f), shape = op_node1(g, n, "Shape", nd.in.v[0], 0);
    x = op_node2(g, n, "Reshape", x, op_const_i(g, DT_I64, split, 3), 0);
    statistics(g, n, x, &two, 1, 0, &s);
    bool late = is_per_channel(g, &nd); /* scaled in the shape of x */
    u32 rank = late ? op_in_shape(g, &nd, 0)->rank : 3;
    value_id y = normalised(g, n, &s, f, 1e-5);
    if (late) y = op_node2(g, n, "Reshape", y, shape, 0);
    y = op_node2(g, n, "Mul", y, per_channel(g, n, nd.in.v[1], rank), 0);
    y = op_node2(g, n, "Add", y, per_channel(g, n, nd.in.v[2], rank), late ? nd.out.v[0] : 0);
    if (!late) op_node2(g, n, "Reshape", y, shape, nd.out.v[0]);
    return true;
}

static void random_gn(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[MAX_RANK], groups = rng_range(r, 1, 3);
    u32 rank = (u32)rng_range(r, 3, 5);
    random_dims(r, rank, dim);
    dim[1] = groups * rng_range(r, 1, 3);
    enum dtype type = random_float_type(r);
    value_id in[3];
    random_input(g, "x", type, rank, dim, &in[0]);
    const i64 *size = rng_range(r, 0, 1) ? &groups : &dim[1];
    random_input(g, "scale", type, 1, size, &in[1]);
    random_input(g, "b", type, 1, size, &in[2]);
    random_node(g, self, 3, in, 1);
    attr_set_int(g, g->node.n - 1, "num_groups", groups);
    attr_set_float(g, g->node.n - 1, "epsilon", 1e-2);
}

/* LRN: x / (bias + alpha/size * sum of squares over `size` neighbouring channels)^beta. The sum is
   an average pooling over the channels, made a spatial axis for it. */

static bool lrn_infer(struct graph *g, node_id n, struct err *e)
{
    i64 size = attr_int(graph_node(g, n), "size", 0);
    if (!float_input(g, n, 2, e)) return false;
    if (size < 1 || size > 1 << 20) return op_invalid(e, g, n, "size %lld", (long long)size);
    if (op_in_shape(g, graph_node(g, n), 0)->rank >= MAX_RANK)
        return op_unsupported(e, g, n, "rank %d", MAX_RANK);
    return infer_same(g, n, e);
}

static bool lrn_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t = op_in_dtype(g, &nd, 0), f = wide(t);
    u32 rank = op_in_shape(g, &nd, 0)->rank, s = rank - 1;
    i64 kernel[MAX_RANK], pads[2 * MAX_RANK] = {0}, size = attr_int(&nd, "size", 1), one = 1;
    for (u32 i = 0; i < s; i++) kernel[i] = i ? 1 : size;
    pads[0] = (size - 1) / 2, pads[s] = size / 2;
    value_id x = op_as(g, n, nd.in.v[0], f);
    value_id q = op_node_axes(g, n, "Unsqueeze", op_node2(g, n, "Mul", x, x, 0), &one, 1, 0);
    q = op_node1(g, n, "AveragePool", q, 0);
    attr_set_ints(g, op_made(g, q), "kernel_shape", kernel, s);
    attr_set_ints(g, op_made(g, q), "pads", pads, 2 * s);
    attr_set_int(g, op_made(g, q), "count_include_pad", 1);
    q = op_node_axes(g, n, "Squeeze", q, &one, 1, 0);
    q = op_node_binf(g, n, "Mul", q, f, attr_float(&nd, "alpha", 1e-4), 0);
    q = op_node_binf(g, n, "Add", q, f, attr_float(&nd, "bias", 1), 0);
    q = op_node_binf(g, n, "Pow", q, f, attr_float(&nd, "beta", 0.75), 0);
    value_id y = op_node2(g, n, "Div", x, q, f == t ? nd.out.v[0] : 0);
    if (f != t) op_node_cast(g, n, y, t, nd.out.v[0]);
    return true;
}

static void random_lrn(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[MAX_RANK];
    u32 rank = (u32)rng_range(r, 3, 5);
    random_dims(r, rank, dim);
    value_id x;
    random_input(g, "x", DT_F32, rank, dim, &x);
    random_node(g, self, 1, &x, 1);
    attr_set_int(g, g->node.n - 1, "size", rng_range(r, 1, 6));
    attr_set_float(g, g->node.n - 1, "alpha", 0.5);
}

/* LpNormalization: x / norm along an axis; a norm of zero leaves zeros. */

static bool lp_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    u32 axis;
    i64 p = attr_int(nd, "p", 2);
    if (!float_input(g, n, 1, e)) return false;
    if (p != 1 && p != 2) return op_invalid(e, g, n, "p %lld", (long long)p);
    if (!op_axis(attr_int(nd, "axis", -1), op_in_shape(g, nd, 0)->rank, &axis))
        return op_invalid(e, g, n, "axis %lld does not exist", (long long)attr_int(nd, "axis", -1));
    return infer_same(g, n, e);
}

static bool lp_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t = op_in_dtype(g, &nd, 0);
    i64 axis = attr_int(&nd, "axis", -1);
    const char *op = attr_int(&nd, "p", 2) == 1 ? "ReduceL1" : "ReduceL2";
    value_id norm = op_node_axes(g, n, op, nd.in.v[0], &axis, 1, 0);
    value_id is_zero = op_node_binf(g, n, "Equal", norm, t, 0, 0);
    norm = op_node(g, n, "Where", 3, (value_id[]){is_zero, op_const_f(g, t, 1), norm}, 0);
    op_node2(g, n, "Div", nd.in.v[0], norm, nd.out.v[0]);
    return true;
}

static void random_lp(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[MAX_RANK];
    u32 rank = (u32)rng_range(r, 1, 4);
    random_dims(r, rank, dim);
    value_id x;
    random_input(g, "x", DT_F32, rank, dim, &x);
    random_node(g, self, 1, &x, 1);
    attr_set_int(g, g->node.n - 1, "p", rng_range(r, 1, 2));
    attr_set_int(g, g->node.n - 1, "axis", rng_range(r, -(i64)rank, (i64)rank - 1));
}

/* MeanVarianceNormalization: (x - mean) / (deviation + 1e-9) */

static u32 mvn_axes(const struct node *nd, const i64 **axes)
{
    static const i64 def[] = {0, 2, 3};
    i64 k = attr_ints(nd, "axes", axes);
    if (!node_attr(nd, "axes")) *axes = def, k = 3;
    return (u32)k;
}

static bool mvn_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const i64 *axes;
    u32 count = mvn_axes(nd, &axes), a;
    if (!float_input(g, n, 1, e)) return false;
    if (!count) return op_unsupported(e, g, n, "empty attribute 'axes'");
    for (u32 i = 0; i < count; i++)
        if (!op_axis(axes[i], op_in_shape(g, nd, 0)->rank, &a))
            return op_invalid(e, g, n, "axis %lld does not exist", (long long)axes[i]);
    return infer_same(g, n, e);
}

static bool mvn_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t = op_in_dtype(g, &nd, 0), f = wide(t);
    const i64 *axes;
    u32 count = mvn_axes(&nd, &axes);
    struct stats s;
    statistics(g, n, op_as(g, n, nd.in.v[0], f), axes, count, 0, &s);
    value_id d = op_node_binf(g, n, "Add", op_node1(g, n, "Sqrt", s.var, 0), f, 1e-9, 0);
    value_id y = op_node2(g, n, "Div", s.centred, d, f == t ? nd.out.v[0] : 0);
    if (f != t) op_node_cast(g, n, y, t, nd.out.v[0]);
    return true;
}

static void random_mvn(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[MAX_RANK];
    random_dims(r, 4, dim);
    dim[2] = 4;
    value_id x;
    random_input(g, "x", DT_F32, 4, dim, &x);
    random_node(g, self, 1, &x, 1);
    if (rng_range(r, 0, 1)) attr_set_ints(g, g->node.n - 1, "axes", (i64[]){2, -1}, 2);
}

static const struct op ops[] = {
    {.name = "BatchNormalization",
     .min_in = 5,
     .max_in = 5,
     .min_out = 1,
     .max_out = BN_OUTPUTS,
     .upgrade = bn_upgrade,
     .infer = bn_infer,
     .expand = bn_expand,
     .random = random_bn},
    {.name = "InstanceNormalization",
     .props = OP_ONE_TYPE,
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = in_infer,
     .expand = in_expand,
     .random = random_in},
    {.name = "LayerNormalization",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 3,
     .infer = ln_infer,
     .expand = ln_expand,
     .random = random_ln},
    {.name = "RMSNormalization",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = rms_infer,
     .expand = rms_expand,
     .random = random_ln},
    {.name = "GroupNormalization",
     .props = OP_ONE_TYPE,
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = gn_infer,
     .expand = gn_expand,
     .random = random_gn},
    {.name = "LRN",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = lrn_infer,
     .expand = lrn_expand,
     .random = random_lrn},
    {.name = "LpNormalization",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = lp_infer,
     .expand = lp_expand,
     .random = random_lp},
    {.name = "MeanVarianceNormalization",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = mvn_infer,
     .expand = mvn_expand,
     .random = random_mvn},
};

const struct op_family op_norm = {ops, countof(ops)};
