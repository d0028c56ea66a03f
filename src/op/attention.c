// SPDX-License-Identifier: Apache-2.0
//
// Attention (opset 23): softmax(q k^T * scale + bias) v by heads, a composite of two matrix
// products and a softmax between them. Dimensions are those of op_attention.h, and what comes before
// the softmax is in op_attention.c.
//
// A row with no position left is zero, which is decided by the bias, not by the scores. The softmax
// is computed in f32 at least.
//
// quern::Attention: likewise with one more input, a number per head of queries (hq), its sink: one
// more term of the sum of each row's exponentials, to which no value belongs.
//
// quern::AttentionForward: likewise; its outputs are those that quern::AttentionGrad reads, y and two
// statistics of rows (b, hq, sq), of the softmax's type: the greatest score, and the logarithm of the
// sum of exp(score - greatest). Their sum is the row's log-sum-exp; apart, a large score does not
// swallow the logarithm.
//
// quern::Band: whether key j may be attended to by query i, from i + o - left to i + o + right
// (-1: unbounded), o the symbolic offset plus, with an input, that of the batch.
#include "op/op_attention.h"

#include <math.h>

enum { OUT_Y, OUT_K, OUT_V, OUT_SCORES, N_OUT };
enum { OUT_MOST = 1, OUT_SUM, N_FORWARD }; /* of quern::AttentionForward */

static bool is_forward(const struct node *nd) { return str_is(nd->op, "quern::AttentionForward"); }

/* Outputs of either kind, 0: not wanted. */
static value_id common_output(const struct att_build *b, u32 k) { return is_forward(graph_node(b->g, b->n)) ? 0 : att_output(b, k); }

static value_id forward_output(const struct att_build *b, u32 k) { return is_forward(graph_node(b->g, b->n)) ? att_output(b, k) : 0; }

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct att_heads h;
    if (!att_read(g, n, &h, e) || !att_mask_ok(g, n, &h, e) || !att_others_ok(g, n, &h, e)) return false;
    const struct node *nd = graph_node(g, n);
    i64 mode = attr_int(nd, "qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3) return op_invalid(e, g, n, "qk_matmul_output_mode %lld", (long long)mode);
    enum dtype tv = op_in_dtype(g, nd, ATT_V);
    sym hq = sym_const(g->sym, h.hq), hk = sym_const(g->sym, h.hk);
    struct shape y = {.rank = 4, .dim = {h.b, hq, h.sq, h.dv}};
    if (h.rank == 3) y = (struct shape){.rank = 3, .dim = {h.b, h.sq, att_times(g, h.hq, h.dv)}};
    op_set_out(g, n, OUT_Y, h.t, &y);
    if (is_forward(nd)) {
        const struct shape rows = {.rank = 3, .dim = {h.b, hq, h.sq}};
        op_set_out(g, n, OUT_MOST, h.soft, &rows);
        op_set_out(g, n, OUT_SUM, h.soft, &rows);
        return true;
    }
    op_set_out(g, n, OUT_K, h.t, &(struct shape){.rank = 4, .dim = {h.b, hk, h.st, h.d}});
    op_set_out(g, n, OUT_V, tv, &(struct shape){.rank = 4, .dim = {h.b, hk, h.st, h.dv}});
    op_set_out(g, n, OUT_SCORES, h.t, &(struct shape){.rank = 4, .dim = {h.b, hq, h.sq, h.st}});
    return true;
}

/* Appended to the cache's content; becomes output k, if requested. */
static value_id with_past(const struct att_build *b, value_id x, u32 past, u32 k)
{
    value_id old = att_input(b, past), out = common_output(b, k);
    if (old) return op_node_concat(b->g, b->n, 2, (value_id[]){old, x}, 2, out);
    return out ? op_node1(b->g, b->n, "Identity", x, out) : x;
}

/* Zeros the rows of p that have no position left. */
static value_id unblocked(const struct att_build *b, const struct att_bias *s, value_id p)
{
    struct graph *g = b->g;
    const i64 last = -1;
    if (!s->may_block) return p;
    value_id bias = att_allowed(b, s, s->added ? s->added : op_const_f(g, b->h.soft, 0));
    value_id most = op_node_axes(g, b->n, "ReduceMax", bias, &last, 1, 0);
    value_id none = op_node_binf(g, b->n, "Equal", most, b->h.soft, -INFINITY, 0);
    return op_node_where(g, b->n, none, op_const_f(g, b->h.soft, 0), p, 0);
}

/* x, of the softmax's type, is output qk_matmul_output if that is its mode */
static void show_scores(const struct att_build *b, i64 mode, value_id x)
{
    value_id out = common_output(b, OUT_SCORES);
    if (out && attr_int(graph_node(b->g, b->n), "qk_matmul_output_mode", 0) == mode)
        op_node_cast(b->g, b->n, x, b->h.t, out);
}

/* Of the rows, (b, hq, sq, 1): the greatest score, and the sum of exponentials of the differences from it. */
struct rows { value_id most, sum; };

/* The statistics are outputs, if requested; of a row without positions -inf and 0. */
static void show_rows(const struct att_build *b, const struct att_bias *s, const struct rows *r)
{
    struct graph *g = b->g;
    value_id most = forward_output(b, OUT_MOST), sum = forward_output(b, OUT_SUM);
    const sym dim[] = {b->h.b, sym_const(g->sym, b->h.hq), b->h.sq};
    if (most) op_node_reshape(g, b->n, r->most, 3, dim, most);
    if (!sum) return;
    value_id x = op_node1(g, b->n, "Log", r->sum, 0);
    if (s->may_block) {
        value_id none = op_node_binf(g, b->n, "Equal", r->most, b->h.soft, -INFINITY, 0);
        x = op_node_where(g, b->n, none, op_const_f(g, b->h.soft, 0), x, 0);
    }
    op_node_reshape(g, b->n, x, 3, dim, sum);
}

/* Along the keys. With sinks, written so that keys are all that is reduced: the maximum is that of the scores, and where a sink exceeds
   it by so much that its exponential overflows, all probabilities are 0. */
static value_id softmax(const struct att_build *b, const struct att_bias *s, value_id x)
{
    struct graph *g = b->g;
    value_id sink = att_input(b, ATT_SINK);
    const i64 last = -1;
    const sym one = sym_const(g->sym, 1), each[] = {sym_const(g->sym, b->h.hq), one, one};
    if (!sink && !forward_output(b, OUT_MOST) && !forward_output(b, OUT_SUM)) {
        x = op_node1(g, b->n, "Softmax", x, 0);
        attr_set_int(g, op_made(g, x), "axis", 3);
        return x;
    }
    if (sink) sink = op_node_reshape(g, b->n, op_as(g, b->n, sink, b->h.soft), 3, each, 0);
    struct rows r = {.most = op_node_axes(g, b->n, "ReduceMax", x, &last, 1, 0)};
    value_id exps = op_node1(g, b->n, "Exp", op_node2(g, b->n, "Sub", x, r.most, 0), 0), own = 0;
    if (sink) own = op_node1(g, b->n, "Exp", op_node2(g, b->n, "Sub", sink, r.most, 0), 0);
    r.sum = op_node_axes(g, b->n, "ReduceSum", exps, &last, 1, 0);
    if (sink) r.sum = op_node2(g, b->n, "Add", r.sum, own, 0);
    show_rows(b, s, &r);
    return op_node2(g, b->n, "Mul", exps, op_node1(g, b->n, "Reciprocal", r.sum, 0), 0);
}

/* Probabilities (b, hq, sq, st) of the queries' type. */
static value_id probabilities(const struct att_build *b, value_id q, value_id k)
{
    struct graph *g = b->g;
    struct att_bias s = att_bias(b);
    struct att_scores x = att_scores(b, &s, q, k);
    show_scores(b, 0, x.product);
    show_scores(b, 1, x.capped);
    show_scores(b, 2, x.masked);
    value_id p = unblocked(b, &s, softmax(b, &s, x.masked));
    show_scores(b, 3, p);
    return b->h.t == b->h.soft ? p : op_node_cast(g, b->n, p, b->h.t, 0);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    struct att_build b = {.g = g, .n = n};
    struct att_heads *h = &b.h;
    if (!att_read(g, n, h, e)) return false;
    value_id q = att_by_heads(&b, att_input(&b, ATT_Q), h->hq, h->sq, h->d);
    value_id k = att_by_heads(&b, att_input(&b, ATT_K), h->hk, h->sk, h->d);
    value_id v = att_by_heads(&b, att_input(&b, ATT_V), h->hk, h->sk, h->dv), y = att_output(&b, OUT_Y);
    bool same = op_in_dtype(g, graph_node(g, n), ATT_V) == h->t;
    k = with_past(&b, k, ATT_PAST_K, OUT_K);
    v = with_past(&b, v, ATT_PAST_V, OUT_V);
    if (!same) v = op_node_cast(g, n, v, h->t, 0);
    value_id p = att_group(&b, probabilities(&b, q, k), h->st, false, 0);
    if (!y) return true;
    if (h->rank == 4 && h->hq == h->hk) return op_node2(g, n, "MatMul", p, v, y), true;
    p = att_group(&b, op_node2(g, n, "MatMul", p, v, 0), h->dv, true, h->rank == 4 ? y : 0);
    if (h->rank == 4) return true;
    p = op_node_perm(g, n, p, 4, (const i64[]){0, 2, 1, 3}, 0);
    op_node_reshape(g, n, p, 3, (const sym[]){h->b, h->sq, att_times(g, h->hq, h->dv)}, y);
    return true;
}

static void random_mask(struct graph *g, struct rng *r, const i64 *score, value_id *out)
{
    u32 rank = (u32)rng_range(r, 1, 4);
    i64 dim[4];
    for (u32 i = 0; i < rank; i++) dim[i] = score[4 - rank + i];
    for (u32 i = 0; i + 2 < rank; i++)
        if (rng_range(r, 0, 1)) dim[i] = 1;
    if (dim[rank - 1] > 1 && !rng_range(r, 0, 2)) dim[rank - 1]--;
    random_input(g, "mask", rng_range(r, 0, 1) ? DT_BOOL : DT_F32, rank, dim, out);
}

static void random_lengths(struct graph *g, struct rng *r, i64 batch, i64 most, value_id *out)
{
    i64 v[4];
    for (i64 i = 0; i < batch; i++) v[i] = rng_range(r, 1, most);
    *out = op_const_i(g, DT_I64, v, batch);
}

static void random_attributes(const struct op *self, struct graph *g, node_id n, struct rng *r)
{
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "is_causal", 1);
    if (!rng_range(r, 0, 2)) attr_set_float(g, n, "scale", 0.375);
    if (!rng_range(r, 0, 2)) attr_set_float(g, n, "softcap", 2);
    if (!rng_range(r, 0, 2)) attr_set_int(g, n, "left_window_size", rng_range(r, 0, 3));
    if (!rng_range(r, 0, 2)) attr_set_int(g, n, "right_window_size", rng_range(r, 0, 3));
    if (self->max_in == ATT_N_IN && rng_range(r, 0, 1)) attr_set_int(g, n, "lower_right", 1);
    i64 mode = rng_range(r, 0, 3);
    if (!str_is(str_of(self->name), "quern::AttentionForward")) attr_set_int(g, n, "qk_matmul_output_mode", mode);
}

static void random_attention(const struct op *self, struct graph *g, struct rng *r)
{
    i64 b = rng_range(r, 1, 2), hk = rng_range(r, 1, 2), hq = hk * rng_range(r, 1, 3), d = rng_range(r, 1, 4),
        dv = rng_range(r, 1, 4), sq = rng_range(r, 1, 4), sk = rng_range(r, 1, 5), past = rng_range(r, 0, 3);
    bool packed = rng_range(r, 0, 1), cached = rng_range(r, 0, 1);
    value_id in[ATT_N_IN] = {0};
    const i64 q[] = {b, hq, sq, d}, k[] = {b, hk, sk, d}, v[] = {b, hk, sk, dv}, pk[] = {b, hk, past, d},
              pv[] = {b, hk, past, dv}, q3[] = {b, sq, hq * d}, k3[] = {b, sk, hk * d}, v3[] = {b, sk, hk * dv};
    random_input(g, "q", DT_F32, packed ? 3 : 4, packed ? q3 : q, &in[ATT_Q]);
    random_input(g, "k", DT_F32, packed ? 3 : 4, packed ? k3 : k, &in[ATT_K]);
    random_input(g, "v", DT_F32, packed ? 3 : 4, packed ? v3 : v, &in[ATT_V]);
    if (cached && past) random_input(g, "pk", DT_F32, 4, pk, &in[ATT_PAST_K]);
    if (cached && past) random_input(g, "pv", DT_F32, 4, pv, &in[ATT_PAST_V]);
    if (rng_range(r, 0, 1))
        random_mask(g, r, (const i64[]){b, hq, sq, sk + (in[ATT_PAST_K] ? past : 0)}, &in[ATT_MASK]);
    if (!cached && rng_range(r, 0, 1)) random_lengths(g, r, b, sk, &in[ATT_LENGTHS]);
    if (self->max_in == ATT_N_IN) random_input(g, "sink", DT_F32, 1, &hq, &in[ATT_SINK]);
    node_id n = random_node(g, self, self->max_in, in, rng_range(r, 0, 1) ? self->max_out : 1);
    if (packed) attr_set_int(g, n, "q_num_heads", hq), attr_set_int(g, n, "kv_num_heads", hk);
    random_attributes(self, g, n, r);
}

/* quern::Band */

static bool band_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct shape s = {.rank = 2};
    sym size[2], offset;
    if (op_get_syms(g, nd, "size", size, 2) != 2 || op_get_syms(g, nd, "offset", &offset, 1) != 1)
        return op_invalid(e, g, n, "bad attributes");
    s.dim[0] = size[0], s.dim[1] = size[1];
    if (op_has_in(nd, 0)) {
        if (op_in_shape(g, nd, 0)->rank != 1 || !dtype_is_int(op_in_dtype(g, nd, 0)))
            return op_invalid(e, g, n, "offsets are no vector of integers");
        s = (struct shape){.rank = 4, .dim = {op_in_shape(g, nd, 0)->dim[0], sym_const(g->sym, 1), size[0], size[1]}};
    }
    op_set_out(g, n, 0, DT_BOOL, &s);
    return true;
}

static bool band_eval(const struct op_eval *v, struct err *e)
{
    struct tensor *out = v->out[0];
    const struct tensor *lengths = v->n->in.n ? v->in[0] : NULL;
    i64 offset, left = attr_int(v->n, "left", -1), right = attr_int(v->n, "right", -1);
    if (!op_eval_syms(v, "offset", &offset, 1, e)) return false;
    i64 rows = out->dim[out->rank - 2], cols = out->dim[out->rank - 1];
    for (i64 i = 0; i < tensor_count(out); i++) {
        i64 o = offset + (lengths ? elem_i64(lengths->dtype, lengths->data, i / (rows * cols)) : 0);
        i64 ahead = i % cols - i / cols % rows - o;
        elem_set_i64(DT_BOOL, out->data, i, (left < 0 || -ahead <= left) && (right < 0 || ahead <= right));
    }
    return true;
}

static kval band_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    u32 rank = graph_value(m->g, n->out.v[0])->shape.rank;
    i64 left = attr_int(n, "left", -1), right = attr_int(n, "right", -1);
    sym offset = 0;
    op_get_syms(m->g, n, "offset", &offset, 1);
    kval o = emit_size(m, offset);
    if (rank == 4) o = kir_bin(k, KI_ADD, o, kir_cast(k, DT_I64, emit_value(m, n->in.v[0], idx)));
    kval at = kir_bin(k, KI_ADD, idx[rank - 2], o), j = idx[rank - 1];
    kval yes = kir_bin(k, KI_LE, kir_int(k, 0), kir_int(k, 0));
    if (left >= 0) yes = kir_compare_index(k, KI_LE, kir_bin(k, KI_SUB, at, kir_int(k, left)), j);
    if (right < 0) return yes;
    kval no_later = kir_compare_index(k, KI_LE, j, kir_bin(k, KI_ADD, at, kir_int(k, right)));
    return left >= 0 ? kir_bin(k, KI_AND, yes, no_later) : no_later;
}

static bool band_band(const struct graph *g, const struct node *n, struct op_band *b)
{
    *b = (struct op_band){.left = attr_int(n, "left", -1), .right = attr_int(n, "right", -1)};
    return !n->in.n && op_get_syms((struct graph *)g, n, "offset", &b->offset, 1) == 1;
}

static void random_band(const struct op *self, struct graph *g, struct rng *r)
{
    sym size[2] = {sym_const(g->sym, rng_range(r, 1, 5)), sym_const(g->sym, rng_range(r, 1, 6))},
        offset = sym_const(g->sym, rng_range(r, -2, 3));
    value_id lengths = 0;
    if (rng_range(r, 0, 1)) random_lengths(g, r, rng_range(r, 1, 3), 4, &lengths);
    node_id n = random_node(g, self, lengths ? 1 : 0, &lengths, 1);
    op_set_syms(g, n, "size", size, 2);
    op_set_syms(g, n, "offset", &offset, 1);
    attr_set_int(g, n, "left", rng_range(r, -1, 3));
    attr_set_int(g, n, "right", rng_range(r, -1, 3));
}

static const struct op ops[] = {
    {.name = "Attention",
     .min_in = 3,
     .max_in = ATT_SINK,
     .min_out = 1,
     .max_out = N_OUT,
     .infer = infer,
     .expand = expand,
     .random = random_attention},
    {.name = "quern::Attention",
     .attributes = "is_causal:int kv_num_heads:int left_window_size:int lower_right:int "
                   "q_num_heads:int qk_matmul_output_mode:int right_window_size:int scale:float softcap:float softmax_precision:int",
     .min_in = 3,
     .max_in = ATT_N_IN,
     .min_out = 1,
     .max_out = N_OUT,
     .infer = infer,
     .expand = expand,
     .random = random_attention},
    {.name = "quern::AttentionForward",
     .attributes = "is_causal:int kv_num_heads:int left_window_size:int lower_right:int "
                   "q_num_heads:int right_window_size:int scale:float softcap:float softmax_precision:int",
     .min_in = 3,
     .max_in = ATT_N_IN,
     .min_out = 1,
     .max_out = N_FORWARD,
     .infer = infer,
     .expand = expand,
     .random = random_attention},
    {.name = "quern::Band",
     .attributes = "left:int offset:strings right:int size:strings",
     .min_in = 0,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .props = OP_VIEW,
     .infer = band_infer,
     .eval = band_eval,
     .lower = band_lower,
     .band = band_band,
     .random = random_band},
};

const struct op_family op_attention = {ops, countof(ops)};
