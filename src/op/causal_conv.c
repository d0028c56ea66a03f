// SPDX-License-Identifier: Apache-2.0
//
// CausalConvWithState (opset 27): a depthwise convolution over the past, a composite. The state, the
// last k - 1 positions of earlier calls or zeros, is put in front of x (b, c, l); the result is
// convolved without pads, and its last k - 1 positions are the next state.
#include "op/op.h"

enum { IN_X, IN_W, IN_BIAS, IN_STATE };

static bool checks(struct graph *g, node_id n, i64 *channels, i64 *kernel, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct str act = attr_str(nd, "activation", "none");
    if (!op_check_float(g, n, IN_X, e) || !op_check_rank(g, n, IN_X, 3, 3, e) || !op_check_rank(g, n, IN_W, 3, 3, e) ||
        !op_check_rank(g, n, IN_STATE, 3, 3, e) || !op_check_rank(g, n, IN_BIAS, 1, 1, e) || !op_same_types(g, n, 0, e))
        return false;
    if (!str_is(act, "none") && !str_is(act, "silu") && !str_is(act, "swish"))
        return op_unsupported(e, g, n, "activation '%.*s'", STR_ARG(act));
    if (!sym_is_const(g->sym, op_in_shape(g, nd, IN_W)->dim[0], channels) ||
        !sym_is_const(g->sym, op_in_shape(g, nd, IN_W)->dim[2], kernel) || *kernel < 1)
        return op_unsupported(e, g, n, "weights of symbolic size");
    return !op_has_in(nd, IN_STATE) ||
           op_sizes_agree(g, op_in_shape(g, nd, IN_STATE)->dim[2], sym_const(g->sym, *kernel - 1)) ||
           op_invalid(e, g, n, "past_state does not hold kernel - 1 = %lld positions", (long long)(*kernel - 1));
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    i64 channels, kernel;
    return checks(g, n, &channels, &kernel, e) && op_infer_expanded(g, n, e);
}

/* x preceded by its past */
static value_id with_past(struct graph *g, node_id n, i64 kernel)
{
    const struct node nd = *graph_node(g, n);
    sym zero = sym_const(g->sym, 0);
    if (kernel == 1) return nd.in.v[IN_X];
    if (op_has_in(&nd, IN_STATE))
        return op_node_concat(g, n, 2, (value_id[]){nd.in.v[IN_STATE], nd.in.v[IN_X]}, 2, 0);
    value_id v = op_node1(g, n, "quern::Pad", nd.in.v[IN_X], 0);
    op_set_syms(g, op_made(g, v), "before", (const sym[]){zero, zero, sym_const(g->sym, kernel - 1)}, 3);
    op_set_syms(g, op_made(g, v), "after", (const sym[]){zero, zero, zero}, 3);
    return v;
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    i64 channels, kernel;
    if (!checks(g, n, &channels, &kernel, e)) return false;
    struct shape s = *op_in_shape(g, &nd, IN_X);
    value_id all = with_past(g, n, kernel), in[3] = {all, nd.in.v[IN_W], op_node_input(&nd, IN_BIAS)};
    bool active = !str_is(attr_str(&nd, "activation", "none"), "none");
    value_id y = op_node(g, n, "Conv", in[2] ? 3 : 2, in, active ? 0 : nd.out.v[0]);
    attr_set_int(g, op_made(g, y), "group", channels);
    if (active) op_node1(g, n, "Swish", y, nd.out.v[0]);
    if (nd.out.n < 2 || !nd.out.v[1]) return true;
    sym length = s.dim[2];
    s.dim[2] = sym_add(g->sym, length, sym_const(g->sym, kernel - 1));
    op_node_slice(g, n, all, &s, 2, length, sym_const(g->sym, kernel - 1), nd.out.v[1]);
    return true;
}

static void random_causal(const struct op *self, struct graph *g, struct rng *r)
{
    static const char *const acts[] = {"none", "silu", "swish"};
    i64 b = rng_range(r, 1, 2), c = rng_range(r, 1, 4), l = rng_range(r, 1, 6), k = rng_range(r, 2, 4);
    const i64 x[] = {b, c, l}, w[] = {c, 1, k}, state[] = {b, c, k - 1};
    value_id in[4] = {0};
    random_input(g, "x", DT_F32, 3, x, &in[IN_X]);
    random_input(g, "w", DT_F32, 3, w, &in[IN_W]);
    if (rng_range(r, 0, 1)) random_input(g, "bias", DT_F32, 1, &c, &in[IN_BIAS]);
    if (rng_range(r, 0, 1)) random_input(g, "state", DT_F32, 3, state, &in[IN_STATE]);
    random_node(g, self, 4, in, (u32)rng_range(r, 1, 2));
    attr_set_str(g, g->node.n - 1, "activation", str_of(acts[rng_range(r, 0, 2)]));
}

static const struct op ops[] = {
    {.name = "CausalConvWithState",
     .min_in = 2,
     .max_in = 4,
     .min_out = 1,
     .max_out = 2,
     .infer = infer,
     .expand = expand,
     .random = random_causal},
};

const struct op_family op_causal_conv = {ops, countof(ops)};
