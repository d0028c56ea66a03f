// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft: normalisations with sums fused in front, composites of ai.onnx's.
//
//   SkipLayerNormalization            LayerNormalization(x + skip [+ bias]), the sum delivered, too
//   SkipSimplifiedLayerNormalization  likewise with RMSNormalization
//   SimplifiedLayerNormalization      RMSNormalization (in the domain ai.onnx, as ONNX Runtime writes it)
//   EmbedLayerNormalization           LayerNormalization(word[ids] + position[..] [+ segment[..]])
//   GroupNorm, SkipGroupNorm          GroupNormalization with channels last by default, SiLU behind
//
// 16-bit floats are normalised in f32 and rounded at the end.
#include "op/op.h"

/* The type that statistics are computed in. */
static enum dtype wide(enum dtype t) { return t == DT_F64 ? DT_F64 : DT_F32; }

static value_id output(const struct node *nd, u32 k) { return k < nd->out.n ? nd->out.v[k] : 0; }

static bool all_floats(const struct graph *g, node_id n, struct err *e)
{
    for (u32 k = 0; k < graph_node(g, n)->in.n; k++)
        if (!op_check_float(g, n, k, e)) return false;
    return true;
}

/* x / sqrt(mean of squares + epsilon) over the axes from `axis` on, of type f; the factor into `factor` if wanted. */
static value_id rms(struct graph *g, node_id n, value_id x, u32 rank, u32 axis, double eps, value_id factor)
{
    enum dtype f = wide(op_in_dtype(g, graph_node(g, n), 0));
    i64 axes[MAX_RANK];
    for (u32 i = axis; i < rank; i++) axes[i - axis] = i;
    value_id mean = op_node_axes(g, n, "ReduceMean", op_node2(g, n, "Mul", x, x, 0), axes, rank - axis, 0);
    value_id root = op_node1(g, n, "Sqrt", op_node_binf(g, n, "Add", mean, f, eps, 0), 0);
    value_id inverse = op_node1(g, n, "Reciprocal", root, 0);
    if (factor) op_node_cast(g, n, inverse, DT_F32, factor);
    return op_node2(g, n, "Mul", x, inverse, 0);
}

/* SkipLayerNormalization: x, skip, gamma [, beta [, bias]]; SkipSimplified..: x, skip, gamma [, bias]
   -> y [, mean [, 1/deviation [, sum]]] */

static bool is_simple(const struct node *nd) { return str_is(nd->op, "com.microsoft::SkipSimplifiedLayerNormalization"); }

static bool skip_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!all_floats(g, n, e) || !op_same_types(g, n, 0, e) || !op_check_rank(g, n, 0, 1, MAX_RANK, e)) return false;
    if (is_simple(nd) && output(nd, 1)) return op_unsupported(e, g, n, "output 1 (mean), which is not defined");
    return op_infer_expanded(g, n, e);
}

static bool skip_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t = op_in_dtype(g, &nd, 0), f = wide(t);
    bool simple = is_simple(&nd);
    u32 rank = op_in_shape(g, &nd, 0)->rank;
    double eps = attr_float(&nd, "epsilon", 1e-12);
    value_id bias = op_node_input(&nd, simple ? 3 : 4), sum_out = output(&nd, 3);
    value_id sum = op_node2(g, n, "Add", nd.in.v[0], nd.in.v[1], bias ? 0 : sum_out);
    if (bias) sum = op_node2(g, n, "Add", sum, bias, sum_out);
    if (simple) {
        value_id y = rms(g, n, f == t ? sum : op_node_cast(g, n, sum, f, 0), rank, rank - 1, eps, output(&nd, 2));
        if (f != t) y = op_node_cast(g, n, y, t, 0);
        op_node2(g, n, "Mul", y, nd.in.v[2], nd.out.v[0]);
        return true;
    }
    value_id in[] = {sum, nd.in.v[2], op_node_input(&nd, 3)};
    value_id y = op_node(g, n, "LayerNormalization", in[2] ? 3 : 2, in, nd.out.v[0]);
    attr_set_float(g, op_made(g, y), "epsilon", eps);
    for (u32 k = 1; k < 3; k++)
        if (output(&nd, k)) node_set_out(g, op_made(g, y), k, nd.out.v[k]);
    return true;
}

static void random_skip(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 3), rng_range(r, 1, 3), rng_range(r, 3, 6)};
    enum dtype t = random_float_type(r);
    value_id in[5];
    bool sum = rng_range(r, 0, 1);
    random_input(g, "x", t, 3, dim, &in[0]);
    random_input(g, "skip", t, 3, dim, &in[1]);
    for (u32 k = 2; k < 5; k++) random_input(g, k == 2 ? "gamma" : k == 3 ? "beta" : "bias", t, 1, &dim[2], &in[k]);
    node_id n = random_node(g, self, (u32)rng_range(r, 3, self->max_in), in, 1);
    attr_set_float(g, n, "epsilon", 1e-2);
    if (!sum) return;
    value_id v = graph_add_value(g, S("sum"));
    node_set_out(g, n, 3, v);
    *arr_push(g->arena, &g->output) = v;
}

/* SimplifiedLayerNormalization: x, scale -> y [, 1/deviation]; y is of the scale's type. */

static bool simplified_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    u32 axis;
    if (!all_floats(g, n, e)) return false;
    if (!op_axis(attr_int(nd, "axis", -1), op_in_shape(g, nd, 0)->rank, &axis))
        return op_invalid(e, g, n, "axis %lld does not exist", (long long)attr_int(nd, "axis", -1));
    return op_infer_expanded(g, n, e);
}

static bool simplified_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype f = wide(op_in_dtype(g, &nd, 0)), v = op_in_dtype(g, &nd, 1);
    u32 rank = op_in_shape(g, &nd, 0)->rank, axis = 0;
    op_axis(attr_int(&nd, "axis", -1), rank, &axis);
    value_id y = rms(g, n, op_as(g, n, nd.in.v[0], f), rank, axis, attr_float(&nd, "epsilon", 1e-5), output(&nd, 1));
    op_node2(g, n, "Mul", f == v ? y : op_node_cast(g, n, y, v, 0), nd.in.v[1], nd.out.v[0]);
    return true;
}

static void random_simplified(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 3), rng_range(r, 1, 3), rng_range(r, 3, 6)};
    value_id in[2];
    random_input(g, "x", rng_range(r, 0, 3) ? DT_F32 : DT_F16, 3, dim, &in[0]);
    random_input(g, "scale", rng_range(r, 0, 3) ? DT_F32 : DT_F16, 1, &dim[2], &in[1]);
    random_node(g, self, 2, in, 1);
    attr_set_float(g, g->node.n - 1, "epsilon", 1e-2);
}

/* EmbedLayerNormalization -> y, number of words of each mask [, sum] */

enum { IDS, SEGMENTS, WORD, POSITION, SEGMENT, GAMMA, BETA, MASK, POSITION_IDS };

static bool embed_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    for (u32 k = WORD; k <= BETA; k++)
        if (!op_check_float(g, n, k, e) || (k != SEGMENT && !op_check_present(g, n, k, e))) return false;
    if (!op_check_rank(g, n, IDS, 2, 2, e) || !op_check_rank(g, n, WORD, 2, 2, e) ||
        !op_check_rank(g, n, POSITION, 2, 2, e) || !op_check_rank(g, n, MASK, 2, 2, e))
        return false;
    if (op_has_in(nd, SEGMENTS) != op_has_in(nd, SEGMENT))
        return op_invalid(e, g, n, "segment ids without a segment embedding, or the other way round");
    if (!op_has_in(nd, POSITION_IDS) &&
        !op_require_at_least(g, n, op_in_shape(g, nd, POSITION)->dim[0], op_in_shape(g, nd, IDS)->dim[1], e, "the embedded positions and the words"))
        return false;
    return op_infer_expanded(g, n, e);
}

static void count_words(struct graph *g, node_id n)
{
    const struct node nd = *graph_node(g, n);
    const struct shape ids = *op_in_shape(g, &nd, IDS);
    i64 one = 1;
    if (!output(&nd, 1)) return;
    if (!op_has_in(&nd, MASK)) {
        op_node_expand(g, n, op_const_f(g, DT_I32, 0), 1, ids.dim, nd.out.v[1]);
        return;
    }
    value_id is_word = op_node_binf(g, n, "Equal", nd.in.v[MASK], op_in_dtype(g, &nd, MASK), 1, 0);
    value_id sum = op_node_axes(g, n, "ReduceSum", op_node_cast(g, n, is_word, DT_I32, 0), &one, 1, nd.out.v[1]);
    attr_set_int(g, op_made(g, sum), "keepdims", 0);
}

static bool embed_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const struct shape ids = *op_in_shape(g, &nd, IDS), pos = *op_in_shape(g, &nd, POSITION);
    value_id x = op_node_gather(g, n, nd.in.v[WORD], nd.in.v[IDS], 0, 0), p;
    if (op_has_in(&nd, POSITION_IDS)) p = op_node_gather(g, n, nd.in.v[POSITION], nd.in.v[POSITION_IDS], 0, 0);
    else p = op_node_slice(g, n, nd.in.v[POSITION], &pos, 0, sym_const(g->sym, 0), ids.dim[1], 0);
    value_id sum = output(&nd, 2), segment = op_node_input(&nd, SEGMENT);
    x = op_node2(g, n, "Add", x, p, segment ? 0 : sum);
    if (segment) x = op_node2(g, n, "Add", x, op_node_gather(g, n, segment, nd.in.v[SEGMENTS], 0, 0), sum);
    value_id y = op_node(g, n, "LayerNormalization", 3, (value_id[]){x, nd.in.v[GAMMA], nd.in.v[BETA]}, nd.out.v[0]);
    attr_set_float(g, op_made(g, y), "epsilon", attr_float(&nd, "epsilon", 1e-12));
    count_words(g, n);
    return true;
}

static void random_embed(const struct op *self, struct graph *g, struct rng *r)
{
    i64 ids[] = {rng_range(r, 1, 2), rng_range(r, 1, 4)}, h = rng_range(r, 3, 6);
    bool segments = rng_range(r, 0, 1), mask = rng_range(r, 0, 1), positions = rng_range(r, 0, 1);
    value_id in[9] = {0};
    in[IDS] = random_const(g, DT_I32, 2, ids, 0, 4, r);
    if (segments) in[SEGMENTS] = random_const(g, DT_I32, 2, ids, 0, 1, r);
    random_input(g, "word", DT_F32, 2, (i64[]){5, h}, &in[WORD]);
    random_input(g, "position", DT_F32, 2, (i64[]){6, h}, &in[POSITION]);
    if (segments) random_input(g, "segment", DT_F32, 2, (i64[]){2, h}, &in[SEGMENT]);
    random_input(g, "gamma", DT_F32, 1, &h, &in[GAMMA]);
    random_input(g, "beta", DT_F32, 1, &h, &in[BETA]);
    if (mask) in[MASK] = random_const(g, DT_I32, 2, ids, 0, 1, r);
    if (positions) in[POSITION_IDS] = random_const(g, DT_I32, 2, ids, 0, 5, r);
    random_node(g, self, positions ? 9 : mask ? 8 : 7, in, 2);
    attr_set_float(g, g->node.n - 1, "epsilon", 1e-2);
}

/* GroupNorm: x, gamma, beta; SkipGroupNorm: x, gamma, beta, skip [, bias] -> y [, sum] */

static bool group_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 act = attr_int(nd, "activation", 0);
    if (act != 0 && act != 1) return op_unsupported(e, g, n, "activation %lld", (long long)act);
    if (attr_int(nd, "groups", 0) < 1) return op_invalid(e, g, n, "groups %lld", (long long)attr_int(nd, "groups", 0));
    return all_floats(g, n, e) && op_check_rank(g, n, 0, 3, MAX_RANK, e) && op_check_rank(g, n, 1, 1, 1, e) &&
           op_check_rank(g, n, 2, 1, 1, e) && op_check_rank(g, n, 3, 2, MAX_RANK, e) && op_infer_expanded(g, n, e);
}

/* Vector of channels along axis 1 of rank `rank`; last: along the last one, where it is already. */
static value_id along(struct graph *g, node_id n, value_id v, u32 rank, bool last)
{
    i64 axes[MAX_RANK];
    for (u32 i = 1; i + 1 < rank; i++) axes[i - 1] = i;
    return last ? v : op_node_axes(g, n, "Unsqueeze", v, axes, rank - 2, 0);
}

/* x + skip [+ bias], in x's layout and type */
static value_id group_sum(struct graph *g, node_id n, bool last)
{
    const struct node nd = *graph_node(g, n);
    const struct shape s = *op_in_shape(g, &nd, 0), sk = *op_in_shape(g, &nd, 3);
    value_id skip = nd.in.v[3], bias = op_node_input(&nd, 4), out = output(&nd, 1);
    if (sk.rank == 2) { /* (n, c) */
        i64 axes[MAX_RANK];
        for (u32 i = 0; i + 2 < s.rank; i++) axes[i] = last ? 1 + i : 2 + i;
        skip = op_node_axes(g, n, "Unsqueeze", skip, axes, s.rank - 2, 0);
    }
    value_id sum = op_node2(g, n, "Add", nd.in.v[0], skip, bias ? 0 : out);
    return bias ? op_node2(g, n, "Add", sum, along(g, n, bias, s.rank, last), out) : sum;
}

static value_id channels(struct graph *g, node_id n, value_id v, u32 rank, bool to_last, value_id out)
{
    i64 perm[MAX_RANK] = {0};
    for (u32 i = 1; i < rank; i++) perm[i] = to_last ? (i + 1 < rank ? i + 1 : 1) : (i == 1 ? rank - 1 : i - 1);
    return op_node_perm(g, n, v, rank, perm, out);
}

/* Scales are per channel. With an unknown number of channels GroupNormalization could take them for
   scales per group, so it gets ones. x: channels first */
static value_id group_normal(struct graph *g, node_id n, value_id x, enum dtype f)
{
    const struct node nd = *graph_node(g, n);
    i64 groups = attr_int(&nd, "groups", 0);
    u32 rank = op_in_shape(g, &nd, 0)->rank;
    value_id gamma = op_as(g, n, nd.in.v[1], f), beta = op_as(g, n, nd.in.v[2], f);
    bool known = sym_is_const(g->sym, op_in_shape(g, &nd, 1)->dim[0], NULL);
    sym size = sym_const(g->sym, groups);
    value_id one = known ? gamma : op_node_expand(g, n, op_const_f(g, f, 1), 1, &size, 0);
    value_id zero = known ? beta : op_node_expand(g, n, op_const_f(g, f, 0), 1, &size, 0);
    x = op_node(g, n, "GroupNormalization", 3, (value_id[]){x, one, zero}, 0);
    attr_set_int(g, op_made(g, x), "num_groups", groups);
    attr_set_float(g, op_made(g, x), "epsilon", attr_float(&nd, "epsilon", 1e-5));
    if (known) return x;
    x = op_node2(g, n, "Mul", x, along(g, n, gamma, rank, false), 0);
    return op_node2(g, n, "Add", x, along(g, n, beta, rank, false), 0);
}

static bool group_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t = op_in_dtype(g, &nd, 0), f = wide(t);
    u32 rank = op_in_shape(g, &nd, 0)->rank;
    bool last = attr_int(&nd, "channels_last", 1);
    value_id x = op_has_in(&nd, 3) ? group_sum(g, n, last) : nd.in.v[0];
    if (f != t) x = op_node_cast(g, n, x, f, 0);
    if (last) x = channels(g, n, x, rank, false, 0);
    x = group_normal(g, n, x, f);
    if (attr_int(&nd, "activation", 0)) x = op_node1(g, n, "Swish", x, 0);
    if (last) x = channels(g, n, x, rank, true, 0);
    op_node_into(g, n, x, f, t, nd.out.v[0]);
    return true;
}

static void random_group(const struct op *self, struct graph *g, struct rng *r)
{
    i64 groups = rng_range(r, 1, 2), c = groups * rng_range(r, 2, 3), a = rng_range(r, 2, 3), b = rng_range(r, 2, 3);
    bool last = rng_range(r, 0, 1);
    value_id in[5];
    random_input(g, "x", DT_F32, 4, last ? (i64[]){1, a, b, c} : (i64[]){1, c, a, b}, &in[0]);
    random_input(g, "gamma", DT_F32, 1, &c, &in[1]);
    random_input(g, "beta", DT_F32, 1, &c, &in[2]);
    random_input(g, "skip", DT_F32, 2, (i64[]){1, c}, &in[3]);
    random_input(g, "bias", DT_F32, 1, &c, &in[4]);
    random_node(g, self, self->max_in == 3 ? 3 : (u32)rng_range(r, 4, 5), in, self->max_out);
    node_id n = g->node.n - 1;
    attr_set_int(g, n, "groups", groups);
    attr_set_int(g, n, "activation", rng_range(r, 0, 1));
    attr_set_int(g, n, "channels_last", last);
    attr_set_float(g, n, "epsilon", 1e-2);
}

#define OP(op, least, most, outs, what)                                                                                \
    {.name = op, .min_in = least, .max_in = most, .min_out = 1, .max_out = outs, .infer = what##_infer,                 \
     .expand = what##_expand, .random = random_##what}

static const struct op ops[] = {
    OP("com.microsoft::SkipLayerNormalization", 3, 5, 4, skip),
    OP("com.microsoft::SkipSimplifiedLayerNormalization", 3, 4, 4, skip),
    OP("SimplifiedLayerNormalization", 2, 2, 2, simplified),
    OP("com.microsoft::GroupNorm", 3, 3, 1, group),
    OP("com.microsoft::SkipGroupNorm", 4, 5, 2, group),
    {.name = "com.microsoft::EmbedLayerNormalization",
     .min_in = 1, /* optional ones precede others */
     .max_in = 9,
     .min_out = 1,
     .max_out = 3,
     .infer = embed_infer,
     .expand = embed_expand,
     .random = random_embed},
};

const struct op_family op_ms_norm = {ops, countof(ops)};
