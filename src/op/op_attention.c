// SPDX-License-Identifier: Apache-2.0
//
// Attention and its gradient: what they share.
//
// Queries that share a key head are rows of one matrix: (b, hq, sq, d) is read as (b, hk, hq/hk*sq, d), so keys and values are never repeated.
//
// Positions that may not be attended to are chosen by Where instead of adding an infinity, and quern::Band tells them from the indices.
#include "op/op_attention.h"

#include <math.h>

sym att_times(struct graph *g, i64 a, sym b) { return sym_mul(g->sym, sym_const(g->sym, a), b); }

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

static bool packed_heads(struct graph *g, node_id n, struct att_heads *h, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *q = op_in_shape(g, nd, ATT_Q), *k = op_in_shape(g, nd, ATT_K);
    h->hq = attr_int(nd, "q_num_heads", 0), h->hk = attr_int(nd, "kv_num_heads", 0);
    if (h->hq < 1 || h->hk < 1 || h->hq > INT32_MAX || h->hk > INT32_MAX)
        return op_invalid(e, g, n, "inputs of rank 3 need attributes q_num_heads and kv_num_heads");
    h->b = q->dim[0], h->sq = q->dim[1], h->sk = k->dim[1];
    if (!head_size(g, n, ATT_Q, h->hq, &h->d, e)) return false;
    const struct op_wanted keys = {"K", "batch, keys, kv_num_heads * head size of Q", 3, {h->b, 0, att_times(g, h->hk, h->d)}, 0},
                           values = {"V", "batch, keys, kv_num_heads * head size", 3, {h->b, h->sk, 0}, 0};
    return op_require_shape(g, n, ATT_K, &keys, e) && op_require_shape(g, n, ATT_V, &values, e) && head_size(g, n, ATT_V, h->hk, &h->dv, e);
}

static bool split_heads(struct graph *g, node_id n, struct att_heads *h, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *q = op_in_shape(g, nd, ATT_Q), *k = op_in_shape(g, nd, ATT_K),
                       *v = op_in_shape(g, nd, ATT_V);
    h->b = q->dim[0], h->sq = q->dim[2], h->sk = k->dim[2], h->d = q->dim[3], h->dv = v->dim[3];
    if (!sym_is_const(g->sym, q->dim[1], &h->hq) || !sym_is_const(g->sym, k->dim[1], &h->hk))
        return op_unsupported(e, g, n, "a symbolic number of heads; give it a value by --set");
    const struct op_wanted keys = {"K", "batch, heads, keys, head size of Q", 4, {h->b, 0, 0, h->d}, 0},
                           values = {"V", "batch, heads of K, keys, head size", 4, {h->b, k->dim[1], h->sk, 0}, 0};
    return op_require_shape(g, n, ATT_K, &keys, e) && op_require_shape(g, n, ATT_V, &values, e);
}

static bool read_past(struct graph *g, node_id n, struct att_heads *h, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    bool has_k = op_has_in(nd, ATT_PAST_K), has_v = op_has_in(nd, ATT_PAST_V);
    h->past = sym_const(g->sym, 0);
    if (has_k != has_v) return op_invalid(e, g, n, "past_key and past_value belong together");
    if (has_k && op_has_in(nd, ATT_LENGTHS))
        return op_invalid(e, g, n, "nonpad_kv_seqlen and past_key exclude each other");
    if (has_k && op_in_shape(g, nd, ATT_PAST_K)->rank == 4) h->past = op_in_shape(g, nd, ATT_PAST_K)->dim[2];
    sym hk = sym_const(g->sym, h->hk);
    const struct op_wanted keys = {"past_key", "batch, heads of K, positions, head size of K", 4, {h->b, hk, 0, h->d}, 0},
                           values = {"past_value", "batch, heads of V, positions of past_key, head size of V", 4, {h->b, hk, h->past, h->dv}, 0};
    if (!op_require_shape(g, n, ATT_PAST_K, &keys, e) || !op_require_shape(g, n, ATT_PAST_V, &values, e)) return false;
    h->st = sym_add(g->sym, h->past, h->sk);
    return true;
}

static bool read_types(struct graph *g, node_id n, struct att_heads *h, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    for (u32 k = ATT_Q; k <= ATT_V; k++)
        if (!dtype_is_float(op_in_dtype(g, nd, k)))
            return op_unsupported(e, g, n, "input %u of type %s", k, dtype_name(op_in_dtype(g, nd, k)));
    h->t = op_in_dtype(g, nd, ATT_Q);
    if (op_in_dtype(g, nd, ATT_K) != h->t)
        return op_invalid(e, g, n, "queries and keys of different types");
    i64 to = attr_int(nd, "softmax_precision", 0);
    h->soft = to ? dtype_from_onnx((int)i64_max(0, i64_min(to, 255))) : h->t;
    if (!dtype_is_float(h->soft))
        return op_invalid(e, g, n, "attribute 'softmax_precision' = %lld", (long long)to);
    if (h->soft != DT_F64) h->soft = DT_F32;
    return true;
}

bool att_read(struct graph *g, node_id n, struct att_heads *h, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    *h = (struct att_heads){.rank = op_in_shape(g, nd, ATT_Q)->rank};
    if ((h->rank != 3 && h->rank != 4) || op_in_shape(g, nd, ATT_K)->rank != h->rank ||
        op_in_shape(g, nd, ATT_V)->rank != h->rank)
        return op_invalid(e, g, n, "queries, keys and values must all be of rank 3 or all of rank 4");
    if (!read_types(g, n, h, e)) return false;
    if (!(h->rank == 3 ? packed_heads(g, n, h, e) : split_heads(g, n, h, e))) return false;
    if (h->hk < 1 || h->hq % h->hk)
        return op_invalid(e, g, n, "%lld heads of queries are not a multiple of %lld of keys",
                          (long long)h->hq, (long long)h->hk);
    return read_past(g, n, h, e);
}

/* Axes of a mask count from the last one. */
bool att_mask_ok(struct graph *g, node_id n, const struct att_heads *h, struct err *e)
{
    static const char *const axes[] = {"keys", "queries, keys", "q_num_heads, queries, keys", "batch, q_num_heads, queries, keys"};
    const sym all[4] = {h->b, sym_const(g->sym, h->hq), h->sq, 0};
    if (!op_has_in(graph_node(g, n), ATT_MASK)) return true;
    const struct shape m = *op_in_shape(g, graph_node(g, n), ATT_MASK);
    enum dtype t = op_in_dtype(g, graph_node(g, n), ATT_MASK);
    i64 room;
    if (t != DT_BOOL && !dtype_is_float(t))
        return op_unsupported(e, g, n, "attn_mask of type %s; cast it to bool or to the type of the queries",
                              dtype_name(t));
    if (m.rank < 1 || m.rank > 4) return op_invalid(e, g, n, "attn_mask (input %u) of rank %u, expected 1 to 4", ATT_MASK, m.rank);
    struct op_wanted w = {.name = "attn_mask", .axes = axes[m.rank - 1], .rank = m.rank, .may_be_one = 7};
    for (u32 i = 0; i < m.rank; i++) w.dim[i] = all[4 - m.rank + i];
    if (!op_require_shape(g, n, ATT_MASK, &w, e)) return false;
    if (sym_is_const(g->sym, sym_sub(g->sym, h->st, m.dim[m.rank - 1]), &room) && room < 0)
        return op_invalid(e, g, n, "attn_mask (input %u) is %.*s, longer by %lld than the %.*s keys of past_key and K together", ATT_MASK, STR_ARG(op_shape_text(g, &m)),
                          (long long)-room, STR_ARG(op_size_text(g, h->st)));
    return true;
}

bool att_others_ok(struct graph *g, node_id n, const struct att_heads *h, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct op_wanted lengths = {"nonpad_kv_seqlen", "batch", 1, {h->b}, 0}, sinks = {"the sinks", "heads of Q", 1, {sym_const(g->sym, h->hq)}, 0};
    if (op_has_in(nd, ATT_LENGTHS) && !dtype_is_int(op_in_dtype(g, nd, ATT_LENGTHS)))
        return op_invalid(e, g, n, "nonpad_kv_seqlen of type %s, expected integers", dtype_name(op_in_dtype(g, nd, ATT_LENGTHS)));
    return op_require_shape(g, n, ATT_LENGTHS, &lengths, e) && op_check_float(g, n, ATT_SINK, e) && op_require_shape(g, n, ATT_SINK, &sinks, e);
}

/* Expansion. */

value_id att_output(const struct att_build *b, u32 k)
{
    const struct node *nd = graph_node(b->g, b->n);
    return k < nd->out.n ? nd->out.v[k] : 0;
}

value_id att_input(const struct att_build *b, u32 k)
{
    const struct node *nd = graph_node(b->g, b->n);
    return op_has_in(nd, k) ? nd->in.v[k] : 0;
}

value_id att_by_heads(const struct att_build *b, value_id x, i64 heads, sym s, sym d)
{
    const sym dim[4] = {b->h.b, s, sym_const(b->g->sym, heads), d};
    if (b->h.rank == 4) return x;
    x = op_node_reshape(b->g, b->n, x, 4, dim, 0);
    return op_node_perm(b->g, b->n, x, 4, (const i64[]){0, 2, 1, 3}, 0);
}

static value_id and_of(const struct att_build *b, value_id x, value_id y)
{
    return x && y ? op_node2(b->g, b->n, "And", x, y, 0) : x ? x : y;
}

/* The mask, padded along the keys: false, or -inf. */
static value_id padded_mask(const struct att_build *b)
{
    struct graph *g = b->g;
    value_id m = att_input(b, ATT_MASK);
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

static value_id band(const struct att_build *b, value_id lengths, sym rows, sym offset, i64 left, i64 right)
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
static value_id by_position(const struct att_build *b)
{
    const struct node *nd = graph_node(b->g, b->n);
    struct symtab *t = b->g->sym;
    i64 left = attr_int(nd, "left_window_size", -1), right = attr_int(nd, "right_window_size", -1);
    value_id lengths = att_input(b, ATT_LENGTHS), near = 0;
    if (attr_int(nd, "is_causal", 0)) right = 0;
    sym offset = lengths ? sym_sub(t, sym_const(t, 0), b->h.sq) : attr_int(nd, "lower_right", 0) ? sym_sub(t, b->h.st, b->h.sq) : b->h.past;
    if (left >= 0 || right >= 0) near = band(b, lengths, b->h.sq, offset, left, right);
    if (!lengths || right == 0) return near; /* a causal one ends with the last query, which is the length */
    return and_of(b, near, band(b, lengths, sym_const(t, 1), sym_const(t, -1), -1, 0));
}

static bool has_key_for_each(const struct att_build *b)
{
    i64 more;
    return sym_is_const(b->g->sym, sym_sub(b->g->sym, b->h.st, b->h.sq), &more) && more >= 0;
}

struct att_bias att_bias(const struct att_build *b)
{
    const struct node *nd = graph_node(b->g, b->n);
    value_id mask = padded_mask(b);
    bool is_bool = mask && graph_value(b->g, att_input(b, ATT_MASK))->dtype == DT_BOOL;
    struct att_bias s = {.allowed = and_of(b, is_bool ? mask : 0, by_position(b)), .added = is_bool ? 0 : mask};
    bool may_leave_none = mask || att_input(b, ATT_LENGTHS) || attr_int(nd, "left_window_size", -1) >= 0 || (attr_int(nd, "lower_right", 0) && !has_key_for_each(b));
    s.may_block = may_leave_none && (s.allowed || s.added);
    return s;
}

value_id att_allowed(const struct att_build *b, const struct att_bias *s, value_id x)
{
    if (!s->allowed) return x;
    return op_node_where(b->g, b->n, s->allowed, x, op_const_f(b->g, b->h.soft, -INFINITY), 0);
}

value_id att_scaled(const struct att_build *b, value_id x, enum dtype t)
{
    struct graph *g = b->g;
    const struct attr *a = node_attr(graph_node(g, b->n), "scale");
    i64 d;
    if (a) return op_node_binf(g, b->n, "Mul", x, t, a->f, 0);
    if (sym_is_const(g->sym, b->h.d, &d))
        return op_node_binf(g, b->n, "Mul", x, t, 1 / sqrt((double)i64_max(1, d)), 0);
    value_id root = op_node1(g, b->n, "Sqrt", op_node_cast(g, b->n, op_sym_scalar(g, DT_I64, b->h.d), DT_F32, 0), 0);
    return op_node2(g, b->n, "Div", x, op_node_cast(g, b->n, root, t, 0), 0);
}

value_id att_group(const struct att_build *b, value_id v, sym last, bool back, value_id out)
{
    struct graph *g = b->g;
    i64 each = b->h.hq / b->h.hk;
    const sym dim[4] = {b->h.b, sym_const(g->sym, back ? b->h.hq : b->h.hk),
                        back ? b->h.sq : att_times(g, each, b->h.sq), last};
    if (each == 1 && !out) return v;
    if (each == 1) return op_node1(g, b->n, "Identity", v, out);
    return op_node_reshape(g, b->n, v, 4, dim, out);
}

static void soft_cap(const struct att_build *b, struct att_scores *s)
{
    double cap = attr_float(graph_node(b->g, b->n), "softcap", 0);
    s->capped = s->product;
    if (!(cap > 0)) return;
    s->tanh = op_node1(b->g, b->n, "Tanh", op_node_binf(b->g, b->n, "Div", s->product, b->h.soft, cap, 0), 0);
    s->capped = op_node_binf(b->g, b->n, "Mul", s->tanh, b->h.soft, cap, 0);
}

struct att_scores att_scores(const struct att_build *b, const struct att_bias *s, value_id q, value_id k)
{
    struct graph *g = b->g;
    struct att_scores x = {0};
    value_id kt = op_node_perm(g, b->n, k, 4, (const i64[]){0, 1, 3, 2}, 0);
    x.product = op_node2(g, b->n, "MatMul", att_group(b, att_scaled(b, q, b->h.t), b->h.d, false, 0), kt, 0);
    x.product = att_group(b, x.product, b->h.st, true, 0);
    if (b->h.t != b->h.soft) x.product = op_node_cast(g, b->n, x.product, b->h.soft, 0);
    soft_cap(b, &x);
    x.masked = att_allowed(b, s, s->added ? op_node2(g, b->n, "Add", x.capped, s->added, 0) : x.capped);
    return x;
}
