// SPDX-License-Identifier: Apache-2.0
//
// Attention (opset 23): softmax(q k^T * scale + bias) v by heads, a composite of two matrix
// products and a softmax between them. Dimensions:
//
//   b   batch          hq, hk  heads of the queries, of keys and values (hq a multiple of hk)
//   sq  queries        sk      keys given; st = past + sk keys attended
//   d   size of a head of queries and keys, dv of values
//
// Inputs are (b, h, s, d) or (b, s, h*d). Queries that share a key head are rows of one matrix:
// (b, hq, sq, d) is read as (b, hk, hq/hk*sq, d), so keys and values are never repeated.
//
// Positions that may not be attended to are chosen by Where instead of adding an infinity, and
// quern::Band tells them from the indices. A row with no position left is zero, which is decided by
// the bias, not by the scores. The softmax is computed in f32 at least.
//
// quern::Attention: likewise with one more input, a number per head of queries (hq), its sink: one
// more term of the sum of each row's exponentials, to which no value belongs.
//
// quern::Band: whether key j may be attended to by query i, from i + o - left to i + o + right
// (-1: unbounded), o the symbolic offset plus, with an input, that of the batch.
#include "op/op.h"

#include <math.h>

enum { IN_Q, IN_K, IN_V, IN_MASK, IN_PAST_K, IN_PAST_V, IN_LENGTHS, IN_SINK, N_IN };
enum { OUT_Y, OUT_K, OUT_V, OUT_SCORES };

struct heads {
    u32 rank;                 /* of the inputs: 3 or 4 */
    i64 hq, hk;
    sym b, sq, sk, past, st, d, dv;
    enum dtype t, soft;       /* of the queries; of the softmax */
};

static sym product(struct graph *g, i64 a, sym b) { return sym_mul(g->sym, sym_const(g->sym, a), b); }

/* Size of a head along the last axis of a (b, s, h*d) input. */
static bool head_size(struct graph *g, node_id n, u32 input, i64 heads, sym *d, struct err *e)
{
    sym all = op_in_shape(g, graph_node(g, n), input)->dim[2];
    i64 c;
    if (sym_is_const(g->sym, all, &c) && c % heads)
        return op_invalid(e, g, n, "%c (input %u) has %lld columns, which is no multiple of %lld heads", "QKV"[input], input, (long long)c,
                          (long long)heads);
    *d = sym_div(g->sym, all, sym_const(g->sym, heads));
    return true;
}

static bool packed_heads(struct graph *g, node_id n, struct heads *h, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *q = op_in_shape(g, nd, IN_Q), *k = op_in_shape(g, nd, IN_K);
    h->hq = attr_int(nd, "q_num_heads", 0), h->hk = attr_int(nd, "kv_num_heads", 0);
    if (h->hq < 1 || h->hk < 1 || h->hq > INT32_MAX || h->hk > INT32_MAX)
        return op_invalid(e, g, n, "inputs of rank 3 need attributes q_num_heads and kv_num_heads");
    h->b = q->dim[0], h->sq = q->dim[1], h->sk = k->dim[1];
    if (!head_size(g, n, IN_Q, h->hq, &h->d, e)) return false;
    const struct op_wanted keys = {"K", "batch, keys, kv_num_heads * head size of Q", 3, {h->b, 0, product(g, h->hk, h->d)}, 0},
                           values = {"V", "batch, keys, kv_num_heads * head size", 3, {h->b, h->sk, 0}, 0};
    return op_require_shape(g, n, IN_K, &keys, e) && op_require_shape(g, n, IN_V, &values, e) && head_size(g, n, IN_V, h->hk, &h->dv, e);
}

static bool split_heads(struct graph *g, node_id n, struct heads *h, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *q = op_in_shape(g, nd, IN_Q), *k = op_in_shape(g, nd, IN_K),
                       *v = op_in_shape(g, nd, IN_V);
    h->b = q->dim[0], h->sq = q->dim[2], h->sk = k->dim[2], h->d = q->dim[3], h->dv = v->dim[3];
    if (!sym_is_const(g->sym, q->dim[1], &h->hq) || !sym_is_const(g->sym, k->dim[1], &h->hk))
        return op_unsupported(e, g, n, "a symbolic number of heads; give it a value by --set");
    const struct op_wanted keys = {"K", "batch, heads, keys, head size of Q", 4, {h->b, 0, 0, h->d}, 0},
                           values = {"V", "batch, heads of K, keys, head size", 4, {h->b, k->dim[1], h->sk, 0}, 0};
    return op_require_shape(g, n, IN_K, &keys, e) && op_require_shape(g, n, IN_V, &values, e);
}

static bool read_past(struct graph *g, node_id n, struct heads *h, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    bool has_k = op_has_in(nd, IN_PAST_K), has_v = op_has_in(nd, IN_PAST_V);
    h->past = sym_const(g->sym, 0);
    if (has_k != has_v) return op_invalid(e, g, n, "past_key and past_value belong together");
    if (has_k && op_has_in(nd, IN_LENGTHS))
        return op_invalid(e, g, n, "nonpad_kv_seqlen and past_key exclude each other");
    if (has_k && op_in_shape(g, nd, IN_PAST_K)->rank == 4) h->past = op_in_shape(g, nd, IN_PAST_K)->dim[2];
    sym hk = sym_const(g->sym, h->hk);
    const struct op_wanted keys = {"past_key", "batch, heads of K, positions, head size of K", 4, {h->b, hk, 0, h->d}, 0},
                           values = {"past_value", "batch, heads of V, positions of past_key, head size of V", 4, {h->b, hk, h->past, h->dv}, 0};
    if (!op_require_shape(g, n, IN_PAST_K, &keys, e) || !op_require_shape(g, n, IN_PAST_V, &values, e)) return false;
    h->st = sym_add(g->sym, h->past, h->sk);
    return true;
}

static bool read_types(struct graph *g, node_id n, struct heads *h, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    for (u32 k = IN_Q; k <= IN_V; k++)
        if (!dtype_is_float(op_in_dtype(g, nd, k)))
            return op_unsupported(e, g, n, "input %u of type %s", k, dtype_name(op_in_dtype(g, nd, k)));
    h->t = op_in_dtype(g, nd, IN_Q);
    if (op_in_dtype(g, nd, IN_K) != h->t)
        return op_invalid(e, g, n, "queries and keys of different types");
    i64 to = attr_int(nd, "softmax_precision", 0);
    h->soft = to ? dtype_from_onnx((int)i64_max(0, i64_min(to, 255))) : h->t;
    if (!dtype_is_float(h->soft))
        return op_invalid(e, g, n, "attribute 'softmax_precision' = %lld", (long long)to);
    if (h->soft != DT_F64) h->soft = DT_F32;
    return true;
}

static bool read_heads(struct graph *g, node_id n, struct heads *h, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    *h = (struct heads){.rank = op_in_shape(g, nd, IN_Q)->rank};
    if ((h->rank != 3 && h->rank != 4) || op_in_shape(g, nd, IN_K)->rank != h->rank ||
        op_in_shape(g, nd, IN_V)->rank != h->rank)
        return op_invalid(e, g, n, "queries, keys and values must all be of rank 3 or all of rank 4");
    if (!read_types(g, n, h, e)) return false;
    if (!(h->rank == 3 ? packed_heads(g, n, h, e) : split_heads(g, n, h, e))) return false;
    if (h->hk < 1 || h->hq % h->hk)
        return op_invalid(e, g, n, "%lld heads of queries are not a multiple of %lld of keys",
                          (long long)h->hq, (long long)h->hk);
    return read_past(g, n, h, e);
}

/* Axes of a mask count from the last one. */
static bool mask_fits(struct graph *g, node_id n, const struct heads *h, struct err *e)
{
    static const char *const axes[] = {"keys", "queries, keys", "q_num_heads, queries, keys", "batch, q_num_heads, queries, keys"};
    const sym all[4] = {h->b, sym_const(g->sym, h->hq), h->sq, 0};
    if (!op_has_in(graph_node(g, n), IN_MASK)) return true;
    const struct shape m = *op_in_shape(g, graph_node(g, n), IN_MASK);
    enum dtype t = op_in_dtype(g, graph_node(g, n), IN_MASK);
    i64 room;
    if (t != DT_BOOL && !dtype_is_float(t))
        return op_unsupported(e, g, n, "attn_mask of type %s; cast it to bool or to the type of the queries",
                              dtype_name(t));
    if (m.rank < 1 || m.rank > 4) return op_invalid(e, g, n, "attn_mask (input %u) of rank %u, expected 1 to 4", IN_MASK, m.rank);
    struct op_wanted w = {.name = "attn_mask", .axes = axes[m.rank - 1], .rank = m.rank, .may_be_one = 7};
    for (u32 i = 0; i < m.rank; i++) w.dim[i] = all[4 - m.rank + i];
    if (!op_require_shape(g, n, IN_MASK, &w, e)) return false;
    if (sym_is_const(g->sym, sym_sub(g->sym, h->st, m.dim[m.rank - 1]), &room) && room < 0)
        return op_invalid(e, g, n, "attn_mask (input %u) is %.*s, longer by %lld than the %.*s keys of past_key and K together", IN_MASK, STR_ARG(op_shape_text(g, &m)),
                          (long long)-room, STR_ARG(op_size_text(g, h->st)));
    return true;
}

static bool others_fit(struct graph *g, node_id n, const struct heads *h, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct op_wanted lengths = {"nonpad_kv_seqlen", "batch", 1, {h->b}, 0}, sinks = {"the sinks", "heads of Q", 1, {sym_const(g->sym, h->hq)}, 0};
    if (op_has_in(nd, IN_LENGTHS) && !dtype_is_int(op_in_dtype(g, nd, IN_LENGTHS)))
        return op_invalid(e, g, n, "nonpad_kv_seqlen of type %s, expected integers", dtype_name(op_in_dtype(g, nd, IN_LENGTHS)));
    return op_require_shape(g, n, IN_LENGTHS, &lengths, e) && op_check_float(g, n, IN_SINK, e) && op_require_shape(g, n, IN_SINK, &sinks, e);
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct heads h;
    if (!read_heads(g, n, &h, e) || !mask_fits(g, n, &h, e) || !others_fit(g, n, &h, e)) return false;
    const struct node *nd = graph_node(g, n);
    i64 mode = attr_int(nd, "qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3) return op_invalid(e, g, n, "qk_matmul_output_mode %lld", (long long)mode);
    enum dtype tv = op_in_dtype(g, nd, IN_V);
    sym hq = sym_const(g->sym, h.hq), hk = sym_const(g->sym, h.hk);
    struct shape y = {.rank = 4, .dim = {h.b, hq, h.sq, h.dv}};
    if (h.rank == 3) y = (struct shape){.rank = 3, .dim = {h.b, h.sq, product(g, h.hq, h.dv)}};
    op_set_out(g, n, OUT_Y, h.t, &y);
    op_set_out(g, n, OUT_K, h.t, &(struct shape){.rank = 4, .dim = {h.b, hk, h.st, h.d}});
    op_set_out(g, n, OUT_V, tv, &(struct shape){.rank = 4, .dim = {h.b, hk, h.st, h.dv}});
    op_set_out(g, n, OUT_SCORES, h.t, &(struct shape){.rank = 4, .dim = {h.b, hq, h.sq, h.st}});
    return true;
}

/* Expansion. */

struct build {
    struct graph *g;
    node_id n;
    struct heads h;
};

static value_id wanted(const struct build *b, u32 k)
{
    const struct node *nd = graph_node(b->g, b->n);
    return k < nd->out.n ? nd->out.v[k] : 0;
}

static value_id input(const struct build *b, u32 k)
{
    const struct node *nd = graph_node(b->g, b->n);
    return op_has_in(nd, k) ? nd->in.v[k] : 0;
}

/* (b, s, h*d) -> (b, h, s, d); others unchanged. */
static value_id by_heads(const struct build *b, value_id x, i64 heads, sym s, sym d)
{
    const sym dim[4] = {b->h.b, s, sym_const(b->g->sym, heads), d};
    if (b->h.rank == 4) return x;
    x = op_node_reshape(b->g, b->n, x, 4, dim, 0);
    return op_node_perm(b->g, b->n, x, 4, (const i64[]){0, 2, 1, 3}, 0);
}

/* Appended to the cache's content; becomes output k, if requested. */
static value_id with_past(const struct build *b, value_id x, u32 past, u32 k)
{
    value_id old = input(b, past), out = wanted(b, k);
    if (old) return op_node_concat(b->g, b->n, 2, (value_id[]){old, x}, 2, out);
    return out ? op_node1(b->g, b->n, "Identity", x, out) : x;
}

static value_id and_of(const struct build *b, value_id x, value_id y)
{
    return x && y ? op_node2(b->g, b->n, "And", x, y, 0) : x ? x : y;
}

/* The mask, padded along the keys: false, or -inf. */
static value_id padded_mask(const struct build *b)
{
    struct graph *g = b->g;
    value_id m = input(b, IN_MASK);
    if (!m) return 0;
    const struct shape s = graph_value(g, m)->shape;
    enum dtype t = graph_value(g, m)->dtype;
    sym zero = sym_const(g->sym, 0), before[4] = {zero, zero, zero, zero}, after[4];
    for (u32 i = 0; i < 4; i++) after[i] = zero;
    if (t != DT_BOOL) m = op_as(g, b->n, m, b->h.soft);
    sym room = sym_sub(g->sym, b->h.st, s.dim[s.rank - 1]);
    if (room == zero) return m;
    after[s.rank - 1] = sym_max(g->sym, room, zero);
    struct tensor *c = tensor_new(g->arena, t == DT_BOOL ? DT_BOOL : b->h.soft, 0, NULL);
    if (t != DT_BOOL) elem_set_f64(b->h.soft, c->data, 0, -INFINITY);
    m = op_node2(g, b->n, "quern::Pad", m, graph_add_const(g, S("masked"), c), 0);
    op_set_syms(g, op_made(g, m), "before", before, s.rank);
    op_set_syms(g, op_made(g, m), "after", after, s.rank);
    return m;
}

static value_id band(const struct build *b, value_id lengths, sym rows, sym offset, i64 left, i64 right)
{
    struct graph *g = b->g;
    value_id v = op_node(g, b->n, "quern::Band", lengths ? 1 : 0, &lengths, 0);
    op_set_syms(g, op_made(g, v), "size", (const sym[]){rows, b->h.st}, 2);
    op_set_syms(g, op_made(g, v), "offset", &offset, 1);
    attr_set_int(g, op_made(g, v), "left", left);
    attr_set_int(g, op_made(g, v), "right", right);
    return v;
}

/* What may be attended to by position: causal, windows, lengths of the batch. 0: all. */
static value_id by_position(const struct build *b)
{
    const struct node *nd = graph_node(b->g, b->n);
    struct symtab *t = b->g->sym;
    i64 left = attr_int(nd, "left_window_size", -1), right = attr_int(nd, "right_window_size", -1);
    value_id lengths = input(b, IN_LENGTHS), near = 0;
    if (attr_int(nd, "is_causal", 0)) right = 0;
    sym offset = lengths ? sym_sub(t, sym_const(t, 0), b->h.sq) : b->h.past;
    if (left >= 0 || right >= 0) near = band(b, lengths, b->h.sq, offset, left, right);
    if (!lengths || right == 0) return near; /* a causal one ends with the last query, which is the length */
    return and_of(b, near, band(b, lengths, sym_const(t, 1), sym_const(t, -1), -1, 0));
}

struct bias {
    value_id allowed, added; /* bool, float of the softmax's type; 0: none */
    bool may_block;          /* a row may have no position left */
};

static struct bias read_bias(const struct build *b)
{
    const struct node *nd = graph_node(b->g, b->n);
    value_id mask = padded_mask(b);
    bool is_bool = mask && graph_value(b->g, input(b, IN_MASK))->dtype == DT_BOOL;
    struct bias s = {.allowed = and_of(b, is_bool ? mask : 0, by_position(b)), .added = is_bool ? 0 : mask};
    s.may_block = mask || input(b, IN_LENGTHS) || attr_int(nd, "left_window_size", -1) >= 0;
    return s;
}

/* x where allowed, else -inf */
static value_id allowed(const struct build *b, const struct bias *s, value_id x)
{
    if (!s->allowed) return x;
    return op_node_where(b->g, b->n, s->allowed, x, op_const_f(b->g, b->h.soft, -INFINITY), 0);
}

/* Zeros the rows of p that have no position left. */
static value_id unblocked(const struct build *b, const struct bias *s, value_id p)
{
    struct graph *g = b->g;
    const i64 last = -1;
    if (!s->may_block) return p;
    value_id bias = allowed(b, s, s->added ? s->added : op_const_f(g, b->h.soft, 0));
    value_id most = op_node_axes(g, b->n, "ReduceMax", bias, &last, 1, 0);
    value_id none = op_node_binf(g, b->n, "Equal", most, b->h.soft, -INFINITY, 0);
    return op_node_where(g, b->n, none, op_const_f(g, b->h.soft, 0), p, 0);
}

/* x, of the softmax's type, is output qk_matmul_output if that is its mode */
static void show_scores(const struct build *b, i64 mode, value_id x)
{
    value_id out = wanted(b, OUT_SCORES);
    if (out && attr_int(graph_node(b->g, b->n), "qk_matmul_output_mode", 0) == mode)
        op_node_cast(b->g, b->n, x, b->h.t, out);
}

static value_id soft_cap(const struct build *b, value_id x)
{
    double cap = attr_float(graph_node(b->g, b->n), "softcap", 0);
    if (!(cap > 0)) return x;
    x = op_node_binf(b->g, b->n, "Div", x, b->h.soft, cap, 0);
    return op_node_binf(b->g, b->n, "Mul", op_node1(b->g, b->n, "Tanh", x, 0), b->h.soft, cap, 0);
}

/* q * scale; 1/sqrt(d) by default, which may be symbolic */
static value_id scaled(const struct build *b, value_id q)
{
    struct graph *g = b->g;
    const struct attr *a = node_attr(graph_node(g, b->n), "scale");
    enum dtype t = b->h.t;
    i64 d;
    if (a) return op_node_binf(g, b->n, "Mul", q, t, a->f, 0);
    if (sym_is_const(g->sym, b->h.d, &d))
        return op_node_binf(g, b->n, "Mul", q, t, 1 / sqrt((double)i64_max(1, d)), 0);
    value_id root = op_node1(g, b->n, "Sqrt", op_node_cast(g, b->n, op_sym_scalar(g, DT_I64, b->h.d), DT_F32, 0), 0);
    return op_node2(g, b->n, "Div", q, op_node_cast(g, b->n, root, t, 0), 0);
}

/* (b, hq, sq, x) as (b, hk, hq/hk*sq, x), or back */
static value_id group(const struct build *b, value_id v, sym last, bool back, value_id out)
{
    struct graph *g = b->g;
    i64 each = b->h.hq / b->h.hk;
    const sym dim[4] = {b->h.b, sym_const(g->sym, back ? b->h.hq : b->h.hk),
                        back ? b->h.sq : product(g, each, b->h.sq), last};
    if (each == 1 && !out) return v;
    if (each == 1) return op_node1(g, b->n, "Identity", v, out);
    return op_node_reshape(g, b->n, v, 4, dim, out);
}

/* Along the keys. With sinks, written so that keys are all that is reduced: the maximum is that of the scores, and where a sink exceeds
   it by so much that its exponential overflows, all probabilities are 0. */
static value_id softmax(const struct build *b, value_id x)
{
    struct graph *g = b->g;
    value_id sink = input(b, IN_SINK);
    const i64 last = -1;
    const sym one = sym_const(g->sym, 1), each[] = {sym_const(g->sym, b->h.hq), one, one};
    if (!sink) {
        x = op_node1(g, b->n, "Softmax", x, 0);
        attr_set_int(g, op_made(g, x), "axis", 3);
        return x;
    }
    sink = op_node_reshape(g, b->n, op_as(g, b->n, sink, b->h.soft), 3, each, 0);
    value_id most = op_node_axes(g, b->n, "ReduceMax", x, &last, 1, 0);
    value_id exps = op_node1(g, b->n, "Exp", op_node2(g, b->n, "Sub", x, most, 0), 0);
    value_id own = op_node1(g, b->n, "Exp", op_node2(g, b->n, "Sub", sink, most, 0), 0);
    value_id sum = op_node2(g, b->n, "Add", op_node_axes(g, b->n, "ReduceSum", exps, &last, 1, 0), own, 0);
    return op_node2(g, b->n, "Mul", exps, op_node1(g, b->n, "Reciprocal", sum, 0), 0);
}

/* Probabilities (b, hq, sq, st) of the queries' type. */
static value_id probabilities(const struct build *b, value_id q, value_id k)
{
    struct graph *g = b->g;
    struct bias s = read_bias(b);
    value_id kt = op_node_perm(g, b->n, k, 4, (const i64[]){0, 1, 3, 2}, 0);
    value_id x = op_node2(g, b->n, "MatMul", group(b, scaled(b, q), b->h.d, false, 0), kt, 0);
    x = group(b, x, b->h.st, true, 0);
    if (b->h.t != b->h.soft) x = op_node_cast(g, b->n, x, b->h.soft, 0);
    show_scores(b, 0, x);
    x = soft_cap(b, x);
    show_scores(b, 1, x);
    if (s.added) x = op_node2(g, b->n, "Add", x, s.added, 0);
    x = allowed(b, &s, x);
    show_scores(b, 2, x);
    x = unblocked(b, &s, softmax(b, x));
    show_scores(b, 3, x);
    return b->h.t == b->h.soft ? x : op_node_cast(g, b->n, x, b->h.t, 0);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    struct build b = {.g = g, .n = n};
    struct heads *h = &b.h;
    if (!read_heads(g, n, h, e)) return false;
    value_id q = by_heads(&b, input(&b, IN_Q), h->hq, h->sq, h->d);
    value_id k = by_heads(&b, input(&b, IN_K), h->hk, h->sk, h->d);
    value_id v = by_heads(&b, input(&b, IN_V), h->hk, h->sk, h->dv), y = wanted(&b, OUT_Y);
    bool same = op_in_dtype(g, graph_node(g, n), IN_V) == h->t;
    k = with_past(&b, k, IN_PAST_K, OUT_K);
    v = with_past(&b, v, IN_PAST_V, OUT_V);
    if (!same) v = op_node_cast(g, n, v, h->t, 0);
    value_id p = group(&b, probabilities(&b, q, k), h->st, false, 0);
    if (!y) return true;
    if (h->rank == 4 && h->hq == h->hk) return op_node2(g, n, "MatMul", p, v, y), true;
    p = group(&b, op_node2(g, n, "MatMul", p, v, 0), h->dv, true, h->rank == 4 ? y : 0);
    if (h->rank == 4) return true;
    p = op_node_perm(g, n, p, 4, (const i64[]){0, 2, 1, 3}, 0);
    op_node_reshape(g, n, p, 3, (const sym[]){h->b, h->sq, product(g, h->hq, h->dv)}, y);
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

static void random_attributes(struct graph *g, node_id n, struct rng *r)
{
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "is_causal", 1);
    if (!rng_range(r, 0, 2)) attr_set_float(g, n, "scale", 0.375);
    if (!rng_range(r, 0, 2)) attr_set_float(g, n, "softcap", 2);
    if (!rng_range(r, 0, 2)) attr_set_int(g, n, "left_window_size", rng_range(r, 0, 3));
    if (!rng_range(r, 0, 2)) attr_set_int(g, n, "right_window_size", rng_range(r, 0, 3));
    attr_set_int(g, n, "qk_matmul_output_mode", rng_range(r, 0, 3));
}

static void random_attention(const struct op *self, struct graph *g, struct rng *r)
{
    i64 b = rng_range(r, 1, 2), hk = rng_range(r, 1, 2), hq = hk * rng_range(r, 1, 3), d = rng_range(r, 1, 4),
        dv = rng_range(r, 1, 4), sq = rng_range(r, 1, 4), sk = rng_range(r, 1, 5), past = rng_range(r, 0, 3);
    bool packed = rng_range(r, 0, 1), cached = rng_range(r, 0, 1);
    value_id in[N_IN] = {0};
    const i64 q[] = {b, hq, sq, d}, k[] = {b, hk, sk, d}, v[] = {b, hk, sk, dv}, pk[] = {b, hk, past, d},
              pv[] = {b, hk, past, dv}, q3[] = {b, sq, hq * d}, k3[] = {b, sk, hk * d}, v3[] = {b, sk, hk * dv};
    random_input(g, "q", DT_F32, packed ? 3 : 4, packed ? q3 : q, &in[IN_Q]);
    random_input(g, "k", DT_F32, packed ? 3 : 4, packed ? k3 : k, &in[IN_K]);
    random_input(g, "v", DT_F32, packed ? 3 : 4, packed ? v3 : v, &in[IN_V]);
    if (cached && past) random_input(g, "pk", DT_F32, 4, pk, &in[IN_PAST_K]);
    if (cached && past) random_input(g, "pv", DT_F32, 4, pv, &in[IN_PAST_V]);
    if (rng_range(r, 0, 1))
        random_mask(g, r, (const i64[]){b, hq, sq, sk + (in[IN_PAST_K] ? past : 0)}, &in[IN_MASK]);
    if (!cached && rng_range(r, 0, 1)) random_lengths(g, r, b, sk, &in[IN_LENGTHS]);
    if (self->max_in == N_IN) random_input(g, "sink", DT_F32, 1, &hq, &in[IN_SINK]);
    node_id n = random_node(g, self, self->max_in, in, rng_range(r, 0, 1) ? 4 : 1);
    if (packed) attr_set_int(g, n, "q_num_heads", hq), attr_set_int(g, n, "kv_num_heads", hk);
    random_attributes(g, n, r);
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
    if (left >= 0) yes = kir_bin(k, KI_LE, kir_bin(k, KI_SUB, at, kir_int(k, left)), j);
    if (right < 0) return yes;
    kval no_later = kir_bin(k, KI_LE, j, kir_bin(k, KI_ADD, at, kir_int(k, right)));
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
     .max_in = IN_SINK,
     .min_out = 1,
     .max_out = 4,
     .infer = infer,
     .expand = expand,
     .random = random_attention},
    {.name = "quern::Attention",
     .min_in = 3,
     .max_in = N_IN,
     .min_out = 1,
     .max_out = 4,
     .infer = infer,
     .expand = expand,
     .random = random_attention},
    {.name = "quern::Band",
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
