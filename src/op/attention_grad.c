// SPDX-License-Identifier: Apache-2.0
//
// quern::AttentionGrad: gradients of quern::AttentionForward by its inputs (doc/gradients.md), a composite:
//
//   (q, k, v, mask, past_key, past_value, lengths, sinks, y, row_max, row_log_sum, dy) -> (dq, dk, dv, dmask, dpast_key, dpast_value, dsinks)
//
// Inputs as far as the sinks, and attributes, are those of the attention, y, row_max and row_log_sum its outputs, dy the gradient by y. As in
// FlashAttention-2 (Dao 2023, section 3.1), probabilities are computed again from the statistics of their rows (without these inputs, from those of the
// scores), and what the softmax subtracts is one number per row, D. With z the scores q k^T * scale, x the capped ones with the mask, dimensions as in op_attention.h:
//
//   p = exp(x - row_max - row_log_sum)     D = sum over dv of dy * y     dx = p * (dy v^T - D)     dz = dx * (1 - tanh(z / cap)^2)
//   dq = scale * dz k     dk = dz^T (scale * q)     dv = p^T dy     dmask = dx     dsink = - sum of exp(sink - row_max - row_log_sum) * D
//
// Sums over the heads that share keys are those of the products, whose rows are the queries of all of them. Everything is computed in the softmax's type, but
// z, which is rounded as in the attention.
#include "op/op_attention.h"

#include <math.h>

enum { IN_Y = ATT_N_IN, IN_MOST, IN_SUM, IN_DY, N_IN };
enum { OUT_Q, OUT_K, OUT_V, OUT_MASK, OUT_PAST_K, OUT_PAST_V, OUT_SINK, N_OUT };

/* Inputs of gradients, and what they are called. */
static const struct gradient { u32 input; const char *name; } gradients[N_OUT] = {
    {ATT_Q, "Q"}, {ATT_K, "K"}, {ATT_V, "V"}, {ATT_MASK, "attn_mask"}, {ATT_PAST_K, "past_key"}, {ATT_PAST_V, "past_value"}, {ATT_SINK, "the sinks"},
};

static bool results_fit(struct graph *g, node_id n, const struct att_heads *h, struct err *e)
{
    const sym hq = sym_const(g->sym, h->hq), all = att_times(g, h->hq, h->dv);
    const char *axes = h->rank == 3 ? "batch, queries, q_num_heads * head size of V" : "batch, heads of Q, queries, head size of V";
    struct op_wanted y = {"Y", axes, h->rank, {h->b, hq, h->sq, h->dv}, 0}, most = {"row_max", "batch, heads of Q, queries", 3, {h->b, hq, h->sq}, 0};
    if (h->rank == 3) y.dim[1] = h->sq, y.dim[2] = all, y.dim[3] = 0;
    struct op_wanted dy = y, sum = most;
    dy.name = "the gradient of Y", sum.name = "row_log_sum";
    const struct op_wanted *const wanted[] = {&y, &most, &sum, &dy};
    if (op_has_in(graph_node(g, n), IN_MOST) != op_has_in(graph_node(g, n), IN_SUM))
        return op_invalid(e, g, n, "row_max (input %u) and row_log_sum (input %u) belong together", IN_MOST, IN_SUM);
    if (!op_check_present(g, n, IN_Y, e) || !op_check_present(g, n, IN_DY, e)) return false;
    for (u32 k = IN_Y; k < N_IN; k++)
        if (!op_check_float(g, n, k, e) || !op_require_shape(g, n, k, wanted[k - IN_Y], e)) return false;
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct att_heads h;
    if (!att_read(g, n, &h, e) || !att_mask_ok(g, n, &h, e) || !att_others_ok(g, n, &h, e) || !results_fit(g, n, &h, e)) return false;
    for (u32 k = 0; k < N_OUT; k++) {
        const struct node *nd = graph_node(g, n);
        u32 input = gradients[k].input;
        if (k >= nd->out.n || !nd->out.v[k]) continue;
        if (!op_has_in(nd, input)) return op_invalid(e, g, n, "the gradient of %s (output %u) without %s (input %u)", gradients[k].name, k, gradients[k].name, input);
        enum dtype t = op_in_dtype(g, nd, input);
        if (!dtype_is_float(t)) return op_invalid(e, g, n, "the gradient of %s (output %u), which is of type %s", gradients[k].name, k, dtype_name(t));
        const struct shape s = *op_in_shape(g, nd, input);
        op_set_out(g, n, k, t, &s);
    }
    return true;
}

/* Expansion. Values are of the softmax's type, and (b, h, s, d). */

static value_id from_type(const struct att_build *b, value_id v, enum dtype t) { return t == b->h.soft ? v : op_node_cast(b->g, b->n, v, b->h.soft, 0); }

static value_id given(const struct att_build *b, u32 input) { return op_as(b->g, b->n, att_input(b, input), b->h.soft); }

/* (b, h, s, d) of that input, with what lies in the cache in front of it; 0: none. */
static value_id with_past(const struct att_build *b, value_id x, u32 past)
{
    return att_input(b, past) ? op_node_concat(b->g, b->n, 2, (value_id[]){att_input(b, past), x}, 2, 0) : x;
}

static value_id transposed(const struct att_build *b, value_id v) { return op_node_perm(b->g, b->n, v, 4, (const i64[]){0, 1, 3, 2}, 0); }

static value_id matmul(const struct att_build *b, value_id x, value_id y) { return op_node2(b->g, b->n, "MatMul", x, y, 0); }

static value_id queries(const struct att_build *b, value_id v, sym last) { return att_group(b, v, last, false, 0); }

struct gradient_build {
    struct att_build b;
    value_id q, k, v, dy; /* q: scaled */
    value_id most, sum, d; /* of rows */
    value_id p, dx, dz;
};

/* x, 0 for rows without positions, whose scores are all -infinity. most: their greatest */
static value_id of_rows(const struct att_build *b, value_id most, value_id x)
{
    value_id none = op_node_binf(b->g, b->n, "Equal", most, b->h.soft, -INFINITY, 0);
    return op_node_where(b->g, b->n, none, op_const_f(b->g, b->h.soft, 0), x, 0);
}

static value_id sink_of(const struct att_build *b)
{
    const sym one = sym_const(b->g->sym, 1), each[] = {sym_const(b->g->sym, b->h.hq), one, one};
    return op_node_reshape(b->g, b->n, given(b, ATT_SINK), 3, each, 0);
}

/* The statistics, (b, hq, sq, 1), as they are given. */
static void read_rows(struct gradient_build *x, bool may_block)
{
    const struct att_build *b = &x->b;
    struct graph *g = b->g;
    const sym dim[] = {b->h.b, sym_const(g->sym, b->h.hq), b->h.sq, sym_const(g->sym, 1)};
    value_id most = given(b, IN_MOST);
    x->most = op_node_reshape(g, b->n, may_block ? of_rows(b, most, most) : most, 4, dim, 0);
    x->sum = op_node_reshape(g, b->n, may_block ? of_rows(b, most, given(b, IN_SUM)) : given(b, IN_SUM), 4, dim, 0);
}

/* Computed again. */
static void make_rows(struct gradient_build *x, bool may_block, value_id score)
{
    const struct att_build *b = &x->b;
    struct graph *g = b->g;
    const i64 last = -1;
    value_id most = op_node_axes(g, b->n, "ReduceMax", score, &last, 1, 0);
    x->most = may_block ? of_rows(b, most, most) : most;
    value_id sum = op_node_axes(g, b->n, "ReduceSum", op_node1(g, b->n, "Exp", op_node2(g, b->n, "Sub", score, x->most, 0), 0), &last, 1, 0);
    if (att_input(b, ATT_SINK)) sum = op_node2(g, b->n, "Add", sum, op_node1(g, b->n, "Exp", op_node2(g, b->n, "Sub", sink_of(b), x->most, 0), 0), 0);
    x->sum = op_node1(g, b->n, "Log", sum, 0);
    if (may_block) x->sum = of_rows(b, most, x->sum);
}

/* exp(x - most - sum), in this order: the maximum may be so large that it swallows the logarithm. */
static value_id probability(const struct gradient_build *x, value_id score)
{
    struct graph *g = x->b.g;
    node_id n = x->b.n;
    return op_node1(g, n, "Exp", op_node2(g, n, "Sub", op_node2(g, n, "Sub", score, x->most, 0), x->sum, 0), 0);
}

static void read_operands(struct gradient_build *x)
{
    const struct att_build *b = &x->b;
    const struct att_heads *h = &b->h;
    struct graph *g = b->g;
    const i64 last = -1;
    value_id q = att_by_heads(b, att_input(b, ATT_Q), h->hq, h->sq, h->d);
    value_id k = with_past(b, att_by_heads(b, att_input(b, ATT_K), h->hk, h->sk, h->d), ATT_PAST_K);
    value_id v = with_past(b, att_by_heads(b, att_input(b, ATT_V), h->hk, h->sk, h->dv), ATT_PAST_V);
    value_id y = att_by_heads(b, given(b, IN_Y), h->hq, h->sq, h->dv);
    struct att_bias s = att_bias(b);
    struct att_scores z = att_scores(b, &s, q, k);
    x->dy = att_by_heads(b, given(b, IN_DY), h->hq, h->sq, h->dv);
    x->q = from_type(b, att_scaled(b, q, h->t), h->t), x->k = from_type(b, k, h->t), x->v = from_type(b, v, op_in_dtype(g, graph_node(g, b->n), ATT_V));
    if (att_input(b, IN_MOST)) read_rows(x, s.may_block);
    else make_rows(x, s.may_block, z.masked);
    x->d = op_node_axes(g, b->n, "ReduceSum", op_node2(g, b->n, "Mul", x->dy, y, 0), &last, 1, 0);
    x->p = probability(x, z.masked);
    value_id dp = att_group(b, matmul(b, queries(b, x->dy, h->dv), transposed(b, x->v)), h->st, true, 0);
    x->dz = x->dx = op_node2(g, b->n, "Mul", x->p, op_node2(g, b->n, "Sub", dp, x->d, 0), 0);
    if (!z.tanh) return;
    value_id slope = op_node2(g, b->n, "Sub", op_const_f(g, h->soft, 1), op_node2(g, b->n, "Mul", z.tanh, z.tanh, 0), 0);
    x->dz = op_node2(g, b->n, "Mul", x->dx, slope, 0);
}

struct heads_of { i64 heads; sym s, d; };

/* (b, h, s, d), as output `out` in its form and type. */
static void put(const struct att_build *b, value_id v, const struct heads_of *z, u32 out)
{
    struct graph *g = b->g;
    enum dtype t = op_in_dtype(g, graph_node(g, b->n), gradients[out].input);
    value_id y = att_output(b, out);
    if (!y) return;
    if (b->h.rank == 4 || out == OUT_PAST_K || out == OUT_PAST_V) {
        op_node_into(g, b->n, v, b->h.soft, t, y);
        return;
    }
    if (t != b->h.soft) v = op_node_cast(g, b->n, v, t, 0);
    const sym dim[] = {b->h.b, z->s, att_times(g, z->heads, z->d)};
    op_node_reshape(g, b->n, op_node_perm(g, b->n, v, 4, (const i64[]){0, 2, 1, 3}, 0), 3, dim, y);
}

/* The gradient of keys or values of all positions, as those given and those in the cache. */
static void put_keys(const struct att_build *b, value_id v, sym d, u32 out, u32 past)
{
    struct graph *g = b->g;
    const struct att_heads *h = &b->h;
    const struct heads_of now = {h->hk, h->sk, d}, before = {h->hk, h->past, d};
    const struct shape all = {.rank = 4, .dim = {h->b, sym_const(g->sym, h->hk), h->st, d}};
    if (!att_input(b, gradients[past].input)) {
        put(b, v, &now, out);
        return;
    }
    if (att_output(b, out)) put(b, op_node_slice(g, b->n, v, &all, 2, h->past, h->sk, 0), &now, out);
    if (att_output(b, past)) put(b, op_node_slice(g, b->n, v, &all, 2, sym_const(g->sym, 0), h->past, 0), &before, past);
}

/* Of the mask's axes, which count from the last one: summed where it repeats, without the keys behind its last. */
static void put_mask(const struct gradient_build *x)
{
    const struct att_build *b = &x->b;
    struct graph *g = b->g;
    struct shape all = {.rank = 4, .dim = {b->h.b, sym_const(g->sym, b->h.hq), b->h.sq, b->h.st}};
    value_id v = x->dx, out = att_output(b, OUT_MASK);
    i64 axes[4], c;
    u32 n = 0;
    if (!out) return;
    const struct shape m = graph_value(g, att_input(b, ATT_MASK))->shape;
    for (u32 i = 0; i < 3; i++)
        if (i + m.rank < 4 || (sym_is_const(g->sym, m.dim[i + m.rank - 4], &c) && c == 1)) axes[n++] = i, all.dim[i] = sym_const(g->sym, 1);
    if (n) v = op_node_axes(g, b->n, "ReduceSum", v, axes, n, 0);
    if (m.dim[m.rank - 1] != b->h.st) v = op_node_slice(g, b->n, v, &all, 3, sym_const(g->sym, 0), m.dim[m.rank - 1], 0);
    enum dtype t = graph_value(g, att_input(b, ATT_MASK))->dtype;
    if (t != b->h.soft) v = op_node_cast(g, b->n, v, t, 0);
    op_node_reshape(g, b->n, v, m.rank, m.dim, out);
}

/* Rows whose D is 0 add nothing, whatever their probability of the sink: those without positions, and those that it takes as a whole. */
static void put_sink(const struct gradient_build *x)
{
    const struct att_build *b = &x->b;
    struct graph *g = b->g;
    const i64 axes[] = {0, 2, 3};
    const sym hq = sym_const(g->sym, b->h.hq);
    value_id out = att_output(b, OUT_SINK);
    if (!out) return;
    value_id p = probability(x, sink_of(b));
    value_id none = op_node_binf(g, b->n, "Equal", x->d, b->h.soft, 0, 0);
    p = op_node_where(g, b->n, none, op_const_f(g, b->h.soft, 0), op_node2(g, b->n, "Mul", p, x->d, 0), 0);
    value_id v = op_node1(g, b->n, "Neg", op_node_axes(g, b->n, "ReduceSum", p, axes, 3, 0), 0);
    enum dtype t = op_in_dtype(g, graph_node(g, b->n), ATT_SINK);
    if (t != b->h.soft) v = op_node_cast(g, b->n, v, t, 0);
    op_node_reshape(g, b->n, v, 1, &hq, out);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    struct gradient_build x = {.b = {.g = g, .n = n}};
    const struct att_build *b = &x.b;
    const struct att_heads *h = &b->h;
    if (!att_read(g, n, &x.b.h, e)) return false;
    read_operands(&x);
    value_id dz = queries(b, x.dz, h->st);
    if (att_output(b, OUT_Q)) {
        value_id dq = att_scaled(b, att_group(b, matmul(b, dz, x.k), h->d, true, 0), h->soft);
        put(b, dq, &(struct heads_of){h->hq, h->sq, h->d}, OUT_Q);
    }
    if (att_output(b, OUT_K) || att_output(b, OUT_PAST_K)) put_keys(b, matmul(b, transposed(b, dz), queries(b, x.q, h->d)), h->d, OUT_K, OUT_PAST_K);
    if (att_output(b, OUT_V) || att_output(b, OUT_PAST_V)) {
        value_id p = queries(b, x.p, h->st);
        put_keys(b, matmul(b, transposed(b, p), queries(b, x.dy, h->dv)), h->dv, OUT_V, OUT_PAST_V);
    }
    put_mask(&x);
    put_sink(&x);
    return true;
}

/* Statistics that belong to no scores, but leave exponentials small. */
static void random_gradient(const struct op *self, struct graph *g, struct rng *r)
{
    i64 b = rng_range(r, 1, 2), hk = rng_range(r, 1, 2), hq = hk * rng_range(r, 1, 3), d = rng_range(r, 1, 4), dv = rng_range(r, 1, 4), sq = rng_range(r, 1, 4),
        sk = rng_range(r, 1, 5), past = rng_range(r, 0, 1) ? rng_range(r, 1, 3) : 0, st = past + sk;
    bool packed = rng_range(r, 0, 1);
    u32 rank = packed ? 3 : 4;
    enum dtype t = rng_range(r, 0, 3) ? DT_F32 : DT_F64;
    value_id in[N_IN] = {0};
    const i64 q[] = {b, hq, sq, d}, k[] = {b, hk, sk, d}, v[] = {b, hk, sk, dv}, pk[] = {b, hk, past, d}, pv[] = {b, hk, past, dv}, y[] = {b, hq, sq, dv},
              q3[] = {b, sq, hq * d}, k3[] = {b, sk, hk * d}, v3[] = {b, sk, hk * dv}, y3[] = {b, sq, hq * dv}, mask[] = {rng_range(r, 0, 1) ? 1 : hq, sq, st};
    random_input(g, "q", t, rank, packed ? q3 : q, &in[ATT_Q]);
    random_input(g, "k", t, rank, packed ? k3 : k, &in[ATT_K]);
    random_input(g, "v", t, rank, packed ? v3 : v, &in[ATT_V]);
    if (past) random_input(g, "pk", t, 4, pk, &in[ATT_PAST_K]);
    if (past) random_input(g, "pv", t, 4, pv, &in[ATT_PAST_V]);
    i64 kind = rng_range(r, 0, 3);
    if (kind) random_input(g, "mask", kind == 1 ? DT_BOOL : t, kind == 2 ? 3 : 2, kind == 2 ? mask : mask + 1, &in[ATT_MASK]);
    if (rng_range(r, 0, 1)) random_input(g, "sink", t, 1, &hq, &in[ATT_SINK]);
    random_input(g, "y", t, rank, packed ? y3 : y, &in[IN_Y]);
    if (rng_range(r, 0, 1)) {
        in[IN_MOST] = random_const(g, t, 3, y, 2, 3, r);
        in[IN_SUM] = random_const(g, t, 3, y, 0, 1, r);
    }
    random_input(g, "dy", t, rank, packed ? y3 : y, &in[IN_DY]);
    u32 n_out = in[ATT_SINK] && past && kind > 1 ? N_OUT : past && kind > 1 ? OUT_SINK : kind > 1 ? OUT_PAST_K : OUT_MASK;
    node_id n = random_node(g, self, N_IN, in, n_out);
    if (packed) attr_set_int(g, n, "q_num_heads", hq), attr_set_int(g, n, "kv_num_heads", hk);
    attr_set_float(g, n, "scale", 0.125);
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "is_causal", 1);
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "lower_right", 1);
    if (!rng_range(r, 0, 2)) attr_set_float(g, n, "softcap", 2);
    if (!rng_range(r, 0, 2)) attr_set_int(g, n, "left_window_size", rng_range(r, 0, 3));
}

static const struct op ops[] = {
    {.name = "quern::AttentionGrad",
     .attributes = "is_causal:int kv_num_heads:int left_window_size:int lower_right:int "
                   "q_num_heads:int right_window_size:int scale:float softcap:float softmax_precision:int",
     .min_in = 3,
     .max_in = N_IN,
     .min_out = 1,
     .max_out = N_OUT,
     .infer = infer,
     .expand = expand,
     .random = random_gradient},
};

const struct op_family op_attention_grad = {ops, countof(ops)};
