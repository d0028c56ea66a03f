// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft: attention as ONNX Runtime's optimiser and the exporters of decoders write it; composites that use
// ai.onnx's Attention and RotaryEmbedding.
//
//   Attention            x W + bias split into queries, keys and values by heads
//   QAttention           likewise of quantised x and W
//   MultiHeadAttention   queries, keys, values given, apart or packed
//   GroupQueryAttention  fewer heads of keys and values, causal, a cache that may be longer than what is in it, rotated by
//                        position
//   RotaryEmbedding      turns pairs of elements by their position
//
// Masks of numbers add mask_filter_value where they are 0. Dimensions: b batch, s queries, l keys given, t = past + l
// keys attended to, h heads, hk of keys and values, d size of a head.
#include "op/op.h"

#include <math.h>

enum { HEADS = 1, AT = 2, SIZE = 3 }; /* axes of (b, h, s, d) */

static value_id output(const struct node *nd, u32 k) { return k < nd->out.n ? nd->out.v[k] : 0; }

static sym num(const struct graph *g, i64 v) { return sym_const(g->sym, v); }

static bool refuse_attr(const struct graph *g, node_id n, const char *const *names, struct err *e)
{
    for (; *names; names++)
        if (attr_int(graph_node(g, n), *names, 0)) return op_unsupported(e, g, n, "attribute '%s'", *names);
    return true;
}

/* Attention operands: 4-d (b, h, s, d). */
struct att {
    struct graph *g;
    node_id n;
    struct node nd;      /* the node as it was */
    value_id q, k, v;
    value_id bias;       /* added to the scores, float; 0: none */
    value_id allowed;    /* bool; 0: all */
    value_id past_k, past_v;
    value_id present_k, present_v; /* outputs; 0: not wanted */
    value_id y3;         /* output (b, s, h*d) */
    sym b, s, t;         /* batch, queries, keys attended to */
    i64 h;
    sym dv;              /* of a head of values */
    enum dtype type;
    bool causal;
};

static void start(struct att *a, struct graph *g, node_id n)
{
    *a = (struct att){.g = g, .n = n, .nd = *graph_node(g, n)};
    a->h = attr_int(&a->nd, "num_heads", 0);
}

/* (b, s, h*d) -> (b, h, s, d) */
static value_id by_heads(struct att *a, value_id x, sym s, i64 heads, sym d)
{
    const sym dim[] = {a->b, s, num(a->g, heads), d};
    return op_node_swap(a->g, a->n, op_node_reshape(a->g, a->n, x, 4, dim, 0), 4, 1, 2, 0);
}

static value_id masked_scores(struct att *a)
{
    struct graph *g = a->g;
    if (!a->allowed) return a->bias;
    if (!a->bias) return a->allowed;
    return op_node_where(g, a->n, a->allowed, a->bias, op_const_f(g, a->type, -INFINITY), 0);
}

/* The node Attention of ai.onnx and the conversion of its output. */
static void attend(struct att *a)
{
    struct graph *g = a->g;
    value_id in[] = {a->q, a->k, a->v, masked_scores(a), a->past_k, a->past_v};
    u32 n_in = a->past_k ? 6 : in[3] ? 4 : 3;
    value_id y = op_node(g, a->n, "Attention", n_in, in, 0);
    node_id n = op_made(g, y);
    double scale = attr_float(&a->nd, "scale", 0), cap = attr_float(&a->nd, "softcap", 0);
    if (a->present_k) node_set_out(g, n, 1, a->present_k);
    if (a->present_v) node_set_out(g, n, 2, a->present_v);
    if (scale != 0) attr_set_float(g, n, "scale", scale);
    if (cap != 0) attr_set_float(g, n, "softcap", cap);
    if (a->causal) attr_set_int(g, n, "is_causal", 1);
    const sym dim[] = {a->b, a->s, sym_mul(g->sym, num(g, a->h), a->dv)};
    op_node_reshape(g, a->n, op_node_swap(g, a->n, y, 4, 1, 2, 0), 3, dim, a->y3);
}

/* Masks. */

/* Whether key j is below (from: not below) the number of its batch, (b, 1, 1, t). */
static value_id below(struct att *a, value_id lengths, bool from)
{
    struct graph *g = a->g;
    value_id v = op_node1(g, a->n, "quern::Band", lengths, 0);
    const sym size[] = {num(g, 1), a->t}, before = num(g, -1);
    op_set_syms(g, op_made(g, v), "size", size, 2);
    op_set_syms(g, op_made(g, v), "offset", &before, 1);
    attr_set_int(g, op_made(g, v), "left", -1);
    attr_set_int(g, op_made(g, v), "right", 0);
    return from ? op_node1(g, a->n, "Not", v, 0) : v;
}

/* mask_filter_value where not kept */
static void filter(struct att *a, value_id keep)
{
    struct graph *g = a->g;
    double value = attr_float(&a->nd, "mask_filter_value", -10000);
    value_id low = op_const_f(g, a->type, value), add = op_node_where(g, a->n, keep, op_const_f(g, a->type, 0), low, 0);
    a->bias = a->bias ? op_node2(g, a->n, "Add", a->bias, add, 0) : add;
}

/* A raw mask (b, t) or (b, s, t), lengths (b), or ends and starts (2b). */
static bool mask_ok(const struct graph *g, node_id n, u32 k, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!op_has_in(nd, k)) return true;
    const struct shape *s = op_in_shape(g, nd, k);
    if (dtype_kind(op_in_dtype(g, nd, k)) == DK_FLOAT) return op_invalid(e, g, n, "mask of type %s", dtype_name(op_in_dtype(g, nd, k)));
    return (s->rank >= 1 && s->rank <= 3) || op_unsupported(e, g, n, "mask (input %u) of rank %u", k, s->rank);
}

static bool read_mask(struct att *a, u32 k, struct err *e)
{
    struct graph *g = a->g;
    if (!op_has_in(&a->nd, k)) return true;
    const struct shape m = *op_in_shape(g, &a->nd, k);
    value_id v = a->nd.in.v[k];
    i64 axes[] = {1, 2};
    if (m.rank > 1) {
        value_id keep = op_node2(g, a->n, "Greater", v, op_const_f(g, op_in_dtype(g, &a->nd, k), 0), 0);
        filter(a, op_node_axes(g, a->n, "Unsqueeze", keep, axes, m.rank == 2 ? 2 : 1, 0));
        return true;
    }
    i64 ratio = 0;
    for (i64 r = 1; r <= 2; r++)
        if (!ratio && sym_mul(g->sym, num(g, r), a->b) == m.dim[0]) ratio = r;
    i64 c, b;
    if (!ratio && !(sym_is_const(g->sym, m.dim[0], &c) && sym_is_const(g->sym, a->b, &b))) ratio = 1; /* by name */
    if (!ratio)
        return op_unsupported(e, g, a->n, "a mask (input %u) of rank 1 that has neither one nor two elements per batch", k);
    if (ratio == 1) return filter(a, below(a, v, false)), true;
    value_id ends = op_node_slice(g, a->n, v, &m, 0, num(g, 0), a->b, 0), starts = op_node_slice(g, a->n, v, &m, 0, a->b, a->b, 0);
    value_id behind = below(a, starts, true), before = below(a, ends, false);
    filter(a, op_node2(g, a->n, "And", before, behind, 0));
    return true;
}

static void add_bias(struct att *a, u32 k)
{
    if (op_has_in(&a->nd, k)) a->bias = a->nd.in.v[k];
}

/* Attention: x, weights [, bias [, mask [, past [, bias of scores [, length of past]]]]] -> y [, present]
   QAttention: x, weights, bias, scales [, mask [, zeros [, past]]] */

static bool is_quantised(const struct node *nd) { return str_is(nd->op, "com.microsoft::QAttention"); }

static bool merged_infer(struct graph *g, node_id n, struct err *e)
{
    static const char *const not_yet[] = {"past_present_share_buffer", "do_rotary", NULL};
    const struct node *nd = graph_node(g, n);
    bool q = is_quantised(nd);
    const i64 *sizes;
    i64 heads = attr_int(nd, "num_heads", 0);
    if (heads < 1 || heads > INT32_MAX) return op_invalid(e, g, n, "num_heads %lld", (long long)heads);
    if (!refuse_attr(g, n, not_yet, e) || !op_check_rank(g, n, 0, 3, 3, e) || !op_check_rank(g, n, 1, 2, 2, e) ||
        !op_check_rank(g, n, q ? 8 : 4, 5, 5, e) || !mask_ok(g, n, q ? 5 : 3, e))
        return false;
    if (!q && (!op_check_absent(g, n, 6, "the length of a shared cache", e) || !op_check_float(g, n, 0, e))) return false;
    if (attr_ints(nd, "qkv_hidden_sizes", &sizes) == 3) {
        for (u32 i = 0; i < 3; i++)
            if (sizes[i] < 1 || sizes[i] % heads) return op_invalid(e, g, n, "qkv_hidden_sizes for %lld heads", (long long)heads);
        if (sizes[0] != sizes[1]) return op_invalid(e, g, n, "queries and keys of different sizes");
        if (sizes[0] > INT32_MAX || sizes[2] > INT32_MAX) return op_invalid(e, g, n, "qkv_hidden_sizes out of range");
        if (!op_require_equal(g, n, op_in_shape(g, nd, 1)->dim[1], num(g, sizes[0] + sizes[1] + sizes[2]), e, "axis 1 of the weights and the sum of qkv_hidden_sizes"))
            return false;
    }
    if (op_has_in(nd, q ? 8 : 4) &&
        !op_require_equal(g, n, op_in_shape(g, nd, q ? 8 : 4)->dim[0], num(g, 2), e, "axis 0 of past, of keys and values, and 2"))
        return false;
    return op_infer_expanded(g, n, e);
}

/* x W + bias, (b, s, all) */
static value_id project(struct att *a)
{
    struct graph *g = a->g;
    if (is_quantised(&a->nd)) {
        static const u32 from[] = {0, 1, 3, 4, 6, 7, 2};
        value_id in[7];
        for (u32 i = 0; i < 7; i++) in[i] = op_node_input(&a->nd, from[i]);
        return op_node(g, a->n, "com.microsoft::MatMulIntegerToFloat", 7, in, 0);
    }
    value_id y = op_node2(g, a->n, "MatMul", a->nd.in.v[0], a->nd.in.v[1], 0);
    return op_has_in(&a->nd, 2) ? op_node2(g, a->n, "Add", y, a->nd.in.v[2], 0) : y;
}

/* past (2, b, h, p, d), half i */
static value_id half_past(struct att *a, value_id past, const struct shape *s, i64 i)
{
    return op_node_reshape(a->g, a->n, op_node_slice(a->g, a->n, past, s, 0, num(a->g, i), num(a->g, 1), 0), 4, s->dim + 1, 0);
}

static bool merged_expand(struct graph *g, node_id n, struct err *e)
{
    struct att a;
    start(&a, g, n);
    bool q = is_quantised(&a.nd);
    const struct shape x = *op_in_shape(g, &a.nd, 0), w = *op_in_shape(g, &a.nd, 1);
    const i64 *sizes;
    sym each = sym_div(g->sym, w.dim[1], num(g, 3)), size[3] = {each, each, each}, at = num(g, 0);
    if (attr_ints(&a.nd, "qkv_hidden_sizes", &sizes) == 3)
        for (u32 i = 0; i < 3; i++) size[i] = num(g, sizes[i]);
    a.type = op_in_dtype(g, &a.nd, q ? 3 : 0);
    a.b = x.dim[0], a.s = a.t = x.dim[1];
    a.dv = sym_div(g->sym, size[2], num(g, a.h));
    const struct shape all = {.known = true, .rank = 3, .dim = {a.b, a.s, w.dim[1]}};
    value_id qkv = project(&a), part[3];
    for (u32 i = 0; i < 3; i++) {
        part[i] = op_node_slice(g, n, qkv, &all, 2, at, size[i], 0);
        part[i] = by_heads(&a, part[i], a.s, a.h, sym_div(g->sym, size[i], num(g, a.h)));
        at = sym_add(g->sym, at, size[i]);
    }
    a.q = part[0], a.k = part[1], a.v = part[2];
    value_id past = op_node_input(&a.nd, q ? 8 : 4), present = output(&a.nd, 1);
    if (past) {
        const struct shape s = *op_in_shape(g, &a.nd, q ? 8 : 4);
        a.past_k = half_past(&a, past, &s, 0), a.past_v = half_past(&a, past, &s, 1);
        a.t = sym_add(g->sym, s.dim[3], a.s);
    }
    if (present) a.present_k = graph_add_value(g, S("present_k")), a.present_v = graph_add_value(g, S("present_v"));
    if (!q) add_bias(&a, 5);
    if (!read_mask(&a, q ? 5 : 3, e)) return false;
    a.causal = attr_int(&a.nd, "unidirectional", 0);
    a.y3 = a.nd.out.v[0];
    attend(&a);
    if (!present) return true;
    i64 first = 0;
    value_id kv[] = {op_node_axes(g, n, "Unsqueeze", a.present_k, &first, 1, 0),
                     op_node_axes(g, n, "Unsqueeze", a.present_v, &first, 1, 0)};
    op_node_concat(g, n, 2, kv, 0, present);
    return true;
}

static void random_merged(const struct op *self, struct graph *g, struct rng *r)
{
    struct node named = {.op = str_of(self->name)};
    bool q = is_quantised(&named), past = rng_range(r, 0, 1);
    i64 b = rng_range(r, 1, 2), s = rng_range(r, 1, 3), h = rng_range(r, 1, 2), d = rng_range(r, 1, 3), c = rng_range(r, 1, 4),
        p = rng_range(r, 1, 3), all = 3 * h * d, kind = rng_range(r, 0, 3);
    i64 t = past ? p + s : s, raw[] = {b, t}, cube[] = {b, s, t};
    value_id in[9] = {0}, mask = 0;
    if (kind == 1) mask = random_const(g, DT_I32, 2, raw, 0, 1, r);
    if (kind == 2) mask = random_const(g, DT_I32, 3, cube, 0, 1, r);
    if (kind == 3) mask = random_const(g, DT_I32, 1, &b, 1, (double)t, r);
    random_input(g, "x", q ? DT_U8 : DT_F32, 3, (i64[]){b, s, c}, &in[0]);
    random_input(g, "w", q ? DT_I8 : DT_F32, 2, (i64[]){c, all}, &in[1]);
    random_input(g, "b", DT_F32, 1, &all, &in[2]);
    if (q) {
        in[3] = op_const_f(g, DT_F32, 0.25), in[4] = op_const_f(g, DT_F32, 0.25);
        in[6] = random_const(g, DT_U8, 0, NULL, 0, 9, r), in[7] = random_const(g, DT_I8, 0, NULL, 0, 9, r);
    }
    in[q ? 5 : 3] = mask;
    if (past) random_input(g, "past", DT_F32, 5, (i64[]){2, b, h, p, d}, &in[q ? 8 : 4]);
    node_id n = random_node(g, self, q ? 9 : 5, in, (u32)rng_range(r, 1, 2));
    attr_set_int(g, n, "num_heads", h);
    attr_set_int(g, n, "unidirectional", rng_range(r, 0, 1));
}

/* MultiHeadAttention */

/* Input k (b, s, h, count, d) holds queries, keys and values side by side. */
static bool parts_ok(struct graph *g, node_id n, u32 k, i64 count, struct err *e)
{
    const struct shape s = *op_in_shape(g, graph_node(g, n), k);
    return op_require_equal(g, n, s.dim[3], num(g, count), e, "axis 3 of input %u and the tensors in it", k) &&
           op_require_equal(g, n, s.dim[2], num(g, attr_int(graph_node(g, n), "num_heads", 0)), e, "axis 2 of input %u and the heads", k);
}

enum { M_Q, M_K, M_V, M_BIAS, M_MASK, M_SCORES, M_PAST_K, M_PAST_V, M_LENGTH, M_BEAMS };

static bool multi_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 heads = attr_int(nd, "num_heads", 0);
    if (heads < 1 || heads > INT32_MAX) return op_invalid(e, g, n, "num_heads %lld", (long long)heads);
    if (output(nd, 3)) return op_unsupported(e, g, n, "output 3 (scores)");
    if (!op_check_absent(g, n, M_LENGTH, "the length of a shared cache", e) ||
        !op_check_absent(g, n, M_BEAMS, "the order of beams", e) || !mask_ok(g, n, M_MASK, e))
        return false;
    for (u32 k = M_Q; k <= M_V; k++)
        if (!op_check_float(g, n, k, e) || !op_check_rank(g, n, k, 3, 5, e)) return false;
    u32 rq = op_in_shape(g, nd, M_Q)->rank, rk = op_has_in(nd, M_K) ? op_in_shape(g, nd, M_K)->rank : 0;
    bool packed = rq == 5 && !rk && !op_has_in(nd, M_V), half = rq == 3 && rk == 5 && !op_has_in(nd, M_V),
         apart = rq == 3 && (rk == 3 || rk == 4) && op_has_in(nd, M_V) && op_in_shape(g, nd, M_V)->rank == rk;
    if (!packed && !half && !apart) return op_invalid(e, g, n, "queries, keys and values of ranks that do not go together");
    if (packed && op_has_in(nd, M_BIAS)) return op_unsupported(e, g, n, "a bias of packed queries, keys and values");
    for (u32 k = M_PAST_K; k <= M_PAST_V; k++)
        if (!op_check_rank(g, n, k, 4, 4, e)) return false;
    if (op_has_in(nd, M_PAST_K) != op_has_in(nd, M_PAST_V)) return op_invalid(e, g, n, "past_key and past_value belong together");
    if ((packed && !parts_ok(g, n, M_Q, 3, e)) || (half && !parts_ok(g, n, M_K, 2, e)) || !op_check_rank(g, n, M_BIAS, 1, 1, e)) return false;
    sym biased = num(g, 0);
    for (u32 k = M_Q; k <= M_V && op_has_in(nd, M_BIAS); k++)
        if (op_has_in(nd, k) && op_in_shape(g, nd, k)->rank == 3) biased = sym_add(g->sym, biased, op_in_shape(g, nd, k)->dim[2]);
    if (op_has_in(nd, M_BIAS) &&
        !op_require_at_least(g, n, op_in_shape(g, nd, M_BIAS)->dim[0], biased, e, "the elements of the bias and of queries, keys and values"))
        return false;
    return op_infer_expanded(g, n, e);
}

/* Tensor i of x (b, s, h, n, d), by heads. */
static value_id packed_part(struct att *a, u32 k, i64 i)
{
    struct graph *g = a->g;
    const struct shape s = *op_in_shape(g, &a->nd, k);
    const sym dim[] = {s.dim[0], s.dim[1], s.dim[2], s.dim[4]};
    value_id v = op_node_slice(g, a->n, a->nd.in.v[k], &s, 3, num(g, i), num(g, 1), 0);
    return op_node_swap(g, a->n, op_node_reshape(g, a->n, v, 4, dim, 0), 4, 1, 2, 0);
}

/* Input k, of rank 3 with its part of the bias (from `at` on), or of rank 4. */
static value_id given(struct att *a, u32 k, sym *at)
{
    struct graph *g = a->g;
    const struct shape s = *op_in_shape(g, &a->nd, k);
    value_id x = a->nd.in.v[k];
    if (s.rank == 4) return x;
    if (op_has_in(&a->nd, M_BIAS)) {
        const struct shape all = *op_in_shape(g, &a->nd, M_BIAS);
        x = op_node2(g, a->n, "Add", x, op_node_slice(g, a->n, a->nd.in.v[M_BIAS], &all, 0, *at, s.dim[2], 0), 0);
        *at = sym_add(g->sym, *at, s.dim[2]);
    }
    return by_heads(a, x, s.dim[1], a->h, sym_div(g->sym, s.dim[2], num(g, a->h)));
}

static void read_multi(struct att *a)
{
    struct graph *g = a->g;
    const struct shape q = *op_in_shape(g, &a->nd, M_Q);
    sym at = num(g, 0);
    a->b = q.dim[0], a->s = q.dim[1];
    if (q.rank == 5) {
        a->t = a->s, a->dv = q.dim[4];
        a->q = packed_part(a, M_Q, 0), a->k = packed_part(a, M_Q, 1), a->v = packed_part(a, M_Q, 2);
        return;
    }
    const struct shape k = *op_in_shape(g, &a->nd, M_K);
    a->q = given(a, M_Q, &at);
    a->t = k.dim[k.rank == 4 ? 2 : 1];
    if (k.rank == 5) {
        a->k = packed_part(a, M_K, 0), a->v = packed_part(a, M_K, 1), a->dv = k.dim[4];
        return;
    }
    const struct shape v = *op_in_shape(g, &a->nd, M_V);
    a->k = given(a, M_K, &at), a->v = given(a, M_V, &at);
    a->dv = v.rank == 4 ? v.dim[3] : sym_div(g->sym, v.dim[2], num(g, a->h));
}

static bool multi_expand(struct graph *g, node_id n, struct err *e)
{
    struct att a;
    start(&a, g, n);
    a.type = op_in_dtype(g, &a.nd, M_Q);
    read_multi(&a);
    a.past_k = op_node_input(&a.nd, M_PAST_K), a.past_v = op_node_input(&a.nd, M_PAST_V);
    if (a.past_k) a.t = sym_add(g->sym, a.t, op_in_shape(g, &a.nd, M_PAST_K)->dim[2]);
    add_bias(&a, M_SCORES);
    if (!read_mask(&a, M_MASK, e)) return false;
    a.causal = attr_int(&a.nd, "unidirectional", 0);
    a.present_k = output(&a.nd, 1), a.present_v = output(&a.nd, 2), a.y3 = a.nd.out.v[0];
    attend(&a);
    return true;
}

static void random_multi(const struct op *self, struct graph *g, struct rng *r)
{
    i64 b = rng_range(r, 1, 2), s = rng_range(r, 1, 3), l = rng_range(r, 1, 3), h = rng_range(r, 1, 2), d = rng_range(r, 1, 3),
        p = rng_range(r, 1, 3), kind = rng_range(r, 0, 3), all = 3 * h * d;
    bool past = kind == 0 && rng_range(r, 0, 1);
    value_id in[8] = {0};
    if (kind == 1) {
        random_input(g, "qkv", DT_F32, 5, (i64[]){b, s, h, 3, d}, &in[M_Q]), l = s;
    } else {
        random_input(g, "q", DT_F32, 3, (i64[]){b, s, h * d}, &in[M_Q]);
        if (kind == 2) random_input(g, "kv", DT_F32, 5, (i64[]){b, l, h, 2, d}, &in[M_K]);
        else if (kind == 3) random_input(g, "k", DT_F32, 4, (i64[]){b, h, l, d}, &in[M_K]);
        else random_input(g, "k", DT_F32, 3, (i64[]){b, l, h * d}, &in[M_K]);
        if (kind == 3) random_input(g, "v", DT_F32, 4, (i64[]){b, h, l, d}, &in[M_V]);
        if (kind == 0) random_input(g, "v", DT_F32, 3, (i64[]){b, l, h * d}, &in[M_V]);
        if (kind == 0) random_input(g, "bias", DT_F32, 1, &all, &in[M_BIAS]);
    }
    i64 t = past ? p + l : l, mask[] = {b, t};
    if (rng_range(r, 0, 1)) in[M_MASK] = random_const(g, DT_I32, 2, mask, 0, 1, r);
    if (rng_range(r, 0, 1)) random_input(g, "scores", DT_F32, 4, (i64[]){1, h, s, t}, &in[M_SCORES]);
    if (past) random_input(g, "pk", DT_F32, 4, (i64[]){b, h, p, d}, &in[M_PAST_K]);
    if (past) random_input(g, "pv", DT_F32, 4, (i64[]){b, h, p, d}, &in[M_PAST_V]);
    node_id n = random_node(g, self, 8, in, past ? 3 : 1);
    attr_set_int(g, n, "num_heads", h);
    if (rng_range(r, 0, 1)) attr_set_float(g, n, "scale", 0.5);
}

/* GroupQueryAttention */

enum {
    G_Q, G_K, G_V, G_PAST_K, G_PAST_V, G_LAST, G_TOTAL, G_COS, G_SIN, G_IDS, G_SCORES, G_SINK, G_K_SCALE, G_V_SCALE,
    G_Q_NORM, G_K_NORM, G_VALID,
};

static bool group_infer(struct graph *g, node_id n, struct err *e)
{
    static const char *const not_yet[] = {"sliding_window_cache", "qk_output", NULL};
    static const char *const kinds[] = {"k_quant_type", "v_quant_type"};
    const struct node *nd = graph_node(g, n);
    i64 h = attr_int(nd, "num_heads", 0), hk = attr_int(nd, "kv_num_heads", 0);
    if (h < 1 || hk < 1 || h > INT32_MAX || h % hk)
        return op_invalid(e, g, n, "%lld heads of queries, %lld of keys", (long long)h, (long long)hk);
    if (!refuse_attr(g, n, not_yet, e)) return false;
    for (u32 i = 0; i < 2; i++)
        if (!str_is(attr_str(nd, kinds[i], "NONE"), "NONE")) return op_unsupported(e, g, n, "a quantised cache ('%s')", kinds[i]);
    if (output(nd, 3)) return op_unsupported(e, g, n, "output 3 (scores)");
    if (op_has_in(nd, G_K) != op_has_in(nd, G_V) || op_has_in(nd, G_PAST_K) != op_has_in(nd, G_PAST_V) ||
        op_has_in(nd, G_Q_NORM) != op_has_in(nd, G_K_NORM))
        return op_invalid(e, g, n, "of keys and values one is missing");
    if (!op_check_float(g, n, G_Q, e) || !op_check_present(g, n, G_LAST, e)) return false;
    for (u32 k = G_Q; k <= G_V; k++)
        if (!op_check_rank(g, n, k, 3, 3, e)) return false;
    for (u32 k = G_PAST_K; k <= G_PAST_V; k++)
        if (!op_check_float(g, n, k, e) || !op_check_rank(g, n, k, 4, 4, e)) return false;
    if (attr_int(nd, "do_rotary", 0) && (!op_check_present(g, n, G_COS, e) || !op_check_present(g, n, G_SIN, e) ||
                                         !op_check_rank(g, n, G_COS, 2, 2, e)))
        return false;
    return op_infer_expanded(g, n, e);
}

struct gqa {
    struct att a;
    i64 hk;
    sym d, past;         /* of a head; keys that the cache has room for */
    value_id before;     /* i64 (b): keys that were there before these */
};

/* Number of keys before this step in each batch: last + 1 minus the new ones, none for a first
   prompt, padded or not. */
static value_id keys_before(struct gqa *q)
{
    struct graph *g = q->a.g;
    node_id n = q->a.n;
    const struct shape s = *op_in_shape(g, &q->a.nd, G_LAST);
    value_id last = op_node_cast(g, n, q->a.nd.in.v[G_LAST], DT_I64, 0), now = op_node_input(&q->a.nd, G_VALID);
    if (s.rank != 1) last = op_node_reshape(g, n, last, 1, &q->a.b, 0); /* (b, 1) is written, too */
    now = now ? op_node_cast(g, n, now, DT_I64, 0) : op_sym_scalar(g, DT_I64, q->a.s);
    last = op_node2(g, n, "Sub", op_node_binf(g, n, "Add", last, DT_I64, 1, 0), now, 0);
    return op_node_binf(g, n, "Max", last, DT_I64, 0, 0);
}

/* The cache (b, hk, p, d) with the new keys (b, hk, s, d) inserted after each batch's own: (b, hk,
   t, d). */
static value_id cached(struct gqa *q, value_id past, value_id now, value_id out)
{
    struct graph *g = q->a.g;
    node_id n = q->a.n;
    const i64 column = 1, last = 2;
    if (!past) return out ? op_node1(g, n, "Identity", now, out) : now;
    value_id both = op_node_swap(g, n, op_node_concat(g, n, 2, (value_id[]){past, now}, AT, 0), 4, 1, 2, 0);
    value_id j = op_node_range(g, n, DT_I64, q->a.t, 0), from = op_node_axes(g, n, "Unsqueeze", q->before, &column, 1, 0);
    value_id ahead = op_node2(g, n, "Sub", j, from, 0); /* (b, t): position among the new ones */
    value_id ends = op_node2(g, n, "Less", ahead, op_sym_scalar(g, DT_I64, q->a.s), 0);
    value_id is_new = op_node2(g, n, "And", op_node_binf(g, n, "GreaterOrEqual", ahead, DT_I64, 0, 0), ends, 0);
    value_id new_at = op_node2(g, n, "Add", ahead, op_sym_scalar(g, DT_I64, q->past), 0);
    value_id at = op_node_axes(g, n, "Unsqueeze", op_node_where(g, n, is_new, new_at, j, 0), &last, 1, 0);
    value_id y = op_node2(g, n, "GatherND", both, at, 0);
    attr_set_int(g, op_made(g, y), "batch_dims", 1);
    return op_node_swap(g, n, y, 4, 1, 2, out);
}

/* Queries or keys with h heads, normalised and rotated by the attributes. */
static value_id rotated(struct gqa *q, value_id x, u32 norm, value_id ids)
{
    struct graph *g = q->a.g;
    const struct node *nd = &q->a.nd;
    if (op_has_in(nd, norm)) {
        double eps = attr_float(nd, norm == G_Q_NORM ? "q_norm_epsilon" : "k_norm_epsilon", attr_float(nd, "qk_norm_epsilon", 1e-6));
        x = op_node2(g, q->a.n, "RMSNormalization", x, op_as(g, q->a.n, nd->in.v[norm], q->a.type), 0);
        attr_set_float(g, op_made(g, x), "epsilon", eps);
    }
    if (!ids) return x;
    value_id in[] = {x, op_as(g, q->a.n, nd->in.v[G_COS], q->a.type), op_as(g, q->a.n, nd->in.v[G_SIN], q->a.type), ids};
    i64 half;
    x = op_node(g, q->a.n, "RotaryEmbedding", 4, in, 0);
    attr_set_int(g, op_made(g, x), "interleaved", attr_int(nd, "rotary_interleaved", 0));
    if (sym_is_const(g->sym, op_in_shape(g, nd, G_COS)->dim[1], &half)) attr_set_int(g, op_made(g, x), "rotary_embedding_dim", 2 * half);
    return x;
}

/* Positions of the queries, (b, s); 0: no rotation. */
static value_id positions(struct gqa *q)
{
    struct graph *g = q->a.g;
    const i64 column = 1;
    const sym dim[] = {q->a.b, q->a.s};
    if (!attr_int(&q->a.nd, "do_rotary", 0)) return 0;
    if (op_has_in(&q->a.nd, G_IDS)) return op_node_expand(g, q->a.n, q->a.nd.in.v[G_IDS], 2, dim, 0);
    value_id from = op_node_axes(g, q->a.n, "Unsqueeze", q->before, &column, 1, 0);
    return op_node2(g, q->a.n, "Add", from, op_node_range(g, q->a.n, DT_I64, q->a.s, 0), 0);
}

static void split_qkv(struct gqa *q)
{
    struct graph *g = q->a.g;
    const struct shape s = *op_in_shape(g, &q->a.nd, G_Q);
    struct att *a = &q->a;
    a->b = s.dim[0], a->s = s.dim[1];
    if (op_has_in(&a->nd, G_K)) {
        q->d = sym_div(g->sym, s.dim[2], num(g, a->h));
        a->q = by_heads(a, a->nd.in.v[G_Q], a->s, a->h, q->d);
        a->k = by_heads(a, a->nd.in.v[G_K], op_in_shape(g, &a->nd, G_K)->dim[1], q->hk, q->d);
        a->v = by_heads(a, a->nd.in.v[G_V], op_in_shape(g, &a->nd, G_V)->dim[1], q->hk, q->d);
        return;
    }
    q->d = sym_div(g->sym, s.dim[2], num(g, a->h + 2 * q->hk));
    sym wide = sym_mul(g->sym, num(g, a->h), q->d), narrow = sym_mul(g->sym, num(g, q->hk), q->d);
    value_id x = a->nd.in.v[G_Q];
    a->q = by_heads(a, op_node_slice(g, a->n, x, &s, 2, num(g, 0), wide, 0), a->s, a->h, q->d);
    a->k = by_heads(a, op_node_slice(g, a->n, x, &s, 2, wide, narrow, 0), a->s, q->hk, q->d);
    a->v = by_heads(a, op_node_slice(g, a->n, x, &s, 2, sym_add(g->sym, wide, narrow), narrow, 0), a->s, q->hk, q->d);
}

/* Keys in the cache after this step: as declared by the model, or the cache's size plus the new
   ones. */
static sym keys_after(struct gqa *q)
{
    struct graph *g = q->a.g;
    sym total, all;
    i64 count, c;
    if (!op_has_in(&q->a.nd, G_PAST_K)) return q->a.s;
    q->past = op_in_shape(g, &q->a.nd, G_PAST_K)->dim[AT];
    all = sym_add(g->sym, q->past, q->a.s);
    if (!op_has_in(&q->a.nd, G_TOTAL) || !op_sym_ints(g, q->a.nd.in.v[G_TOTAL], &total, 1, &count) || count != 1) return all;
    if (sym_is_const(g->sym, sym_sub(g->sym, total, q->past), &c)) return c > 0 ? total : q->past;
    return sym_max(g->sym, total, q->past);
}

static value_id group_band(struct gqa *q)
{
    struct graph *g = q->a.g;
    i64 window = attr_int(&q->a.nd, "local_window_size", -1);
    if (!attr_int(&q->a.nd, "causal", 1)) {
        value_id last = op_node_reshape(g, q->a.n, q->a.nd.in.v[G_LAST], 1, &q->a.b, 0);
        return below(&q->a, op_node_binf(g, q->a.n, "Add", op_node_cast(g, q->a.n, last, DT_I64, 0), DT_I64, 1, 0), false);
    }
    value_id v = op_node1(g, q->a.n, "quern::Band", q->before, 0);
    const sym size[] = {q->a.s, q->a.t}, zero = num(g, 0);
    op_set_syms(g, op_made(g, v), "size", size, 2);
    op_set_syms(g, op_made(g, v), "offset", &zero, 1);
    attr_set_int(g, op_made(g, v), "left", window > 0 ? window - 1 : -1);
    attr_set_int(g, op_made(g, v), "right", 0);
    return v;
}

/* Appends a key and a value of zeros, whose score is 0 or the head's sink: the softmax's share for
   no key. */
static void add_sink(struct gqa *q)
{
    struct att *a = &q->a;
    struct graph *g = a->g;
    const sym one = num(g, 1), extra[] = {a->b, num(g, q->hk), one, q->d}, row[] = {a->b, num(g, a->h), a->s, a->t},
              column[] = {a->b, num(g, a->h), a->s, one}, each[] = {one, num(g, a->h), one, one};
    if (!op_has_in(&a->nd, G_SINK) && attr_int(&a->nd, "smooth_softmax", 0) <= 0) return;
    value_id zero = op_node_expand(g, a->n, op_const_f(g, a->type, 0), 4, extra, 0);
    value_id score = op_const_f(g, a->type, 0);
    if (op_has_in(&a->nd, G_SINK)) score = op_node_reshape(g, a->n, op_as(g, a->n, a->nd.in.v[G_SINK], a->type), 4, each, 0);
    value_id bias = a->bias ? a->bias : op_const_f(g, a->type, 0);
    if (a->allowed) bias = op_node_where(g, a->n, a->allowed, bias, op_const_f(g, a->type, -INFINITY), 0);
    bias = op_node_expand(g, a->n, bias, 4, row, 0);
    score = op_node_expand(g, a->n, score, 4, column, 0);
    a->bias = op_node_concat(g, a->n, 2, (value_id[]){bias, score}, SIZE, 0), a->allowed = 0;
    a->k = op_node_concat(g, a->n, 2, (value_id[]){a->k, zero}, AT, 0);
    a->v = op_node_concat(g, a->n, 2, (value_id[]){a->v, zero}, AT, 0);
    a->t = sym_add(g->sym, a->t, one);
}

static bool group_expand(struct graph *g, node_id n, struct err *e)
{
    struct gqa q = {.hk = 0};
    struct att *a = &q.a;
    start(a, g, n);
    q.hk = attr_int(&a->nd, "kv_num_heads", 0);
    a->type = op_in_dtype(g, &a->nd, G_Q);
    split_qkv(&q);
    a->dv = q.d;
    a->t = keys_after(&q);
    q.before = keys_before(&q);
    value_id ids = positions(&q);
    a->q = rotated(&q, a->q, G_Q_NORM, ids);
    a->k = rotated(&q, a->k, G_K_NORM, ids);
    a->k = cached(&q, op_node_input(&a->nd, G_PAST_K), a->k, output(&a->nd, 1));
    a->v = cached(&q, op_node_input(&a->nd, G_PAST_V), a->v, output(&a->nd, 2));
    a->allowed = group_band(&q);
    add_bias(a, G_SCORES);
    add_sink(&q);
    a->y3 = a->nd.out.v[0];
    attend(a);
    return true;
}

static void random_group(const struct op *self, struct graph *g, struct rng *r)
{
    i64 b = rng_range(r, 1, 2), s = rng_range(r, 1, 3), hk = rng_range(r, 1, 2), h = hk * rng_range(r, 1, 2),
        d = 2 * rng_range(r, 1, 2), p = rng_range(r, 1, 3), last = p + s - 1;
    bool past = rng_range(r, 0, 1), packed = rng_range(r, 0, 1), rotary = rng_range(r, 0, 1);
    value_id in[12] = {0};
    random_input(g, "q", DT_F32, 3, (i64[]){b, s, packed ? (h + 2 * hk) * d : h * d}, &in[G_Q]);
    if (!packed) random_input(g, "k", DT_F32, 3, (i64[]){b, s, hk * d}, &in[G_K]);
    if (!packed) random_input(g, "v", DT_F32, 3, (i64[]){b, s, hk * d}, &in[G_V]);
    if (past) random_input(g, "pk", DT_F32, 4, (i64[]){b, hk, p, d}, &in[G_PAST_K]);
    if (past) random_input(g, "pv", DT_F32, 4, (i64[]){b, hk, p, d}, &in[G_PAST_V]);
    in[G_LAST] = random_const(g, DT_I32, 1, &b, (double)(past ? s - 1 : s - 1), (double)(past ? last : s - 1), r);
    i64 total = past ? p + s : s;
    in[G_TOTAL] = op_const_i(g, DT_I32, &total, 1);
    if (rotary) random_input(g, "cos", DT_F32, 2, (i64[]){8, d / 2}, &in[G_COS]);
    if (rotary) random_input(g, "sin", DT_F32, 2, (i64[]){8, d / 2}, &in[G_SIN]);
    if (rng_range(r, 0, 3) == 0) random_input(g, "sink", DT_F32, 1, &h, &in[G_SINK]);
    node_id n = random_node(g, self, 12, in, 3);
    attr_set_int(g, n, "num_heads", h), attr_set_int(g, n, "kv_num_heads", hk);
    attr_set_int(g, n, "do_rotary", rotary);
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "local_window_size", rng_range(r, 1, 3));
    if (rng_range(r, 0, 3) == 0) attr_set_float(g, n, "softcap", 2);
}

/* RotaryEmbedding: x, positions, cosines, sines */

static bool rotary_infer(struct graph *g, node_id n, struct err *e)
{
    static const char *const not_yet[] = {"is_packed_batching", NULL};
    const struct node *nd = graph_node(g, n);
    if (attr_float(nd, "scale", 1) != 1) return op_unsupported(e, g, n, "attribute 'scale' = %g", attr_float(nd, "scale", 1));
    if (!refuse_attr(g, n, not_yet, e) || !op_check_float(g, n, 0, e) || !op_check_rank(g, n, 0, 3, 4, e) ||
        !op_check_rank(g, n, 1, 1, 2, e) || !op_check_rank(g, n, 2, 2, 2, e))
        return false;
    return op_infer_expanded(g, n, e);
}

static bool rotary_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const struct shape x = *op_in_shape(g, &nd, 0), ids = *op_in_shape(g, &nd, 1), table = *op_in_shape(g, &nd, 2);
    sym bs[] = {x.dim[0], x.dim[x.rank == 3 ? 1 : 2]};
    enum dtype t = op_in_dtype(g, &nd, 0);
    i64 heads = attr_int(&nd, "num_heads", 0), dim = attr_int(&nd, "rotary_embedding_dim", 0), half, all;
    value_id at = op_node_cast(g, n, nd.in.v[1], DT_I64, 0);
    if (ids.rank == 1) /* the first one's position */
        at = op_node_expand(g, n, op_node2(g, n, "Add", at, op_node_range(g, n, DT_I64, bs[1], 0), 0), 2, bs, 0);
    value_id in[] = {nd.in.v[0], op_as(g, n, nd.in.v[2], t), op_as(g, n, nd.in.v[3], t), at};
    value_id y = op_node(g, n, "RotaryEmbedding", 4, in, nd.out.v[0]);
    attr_set_int(g, op_made(g, y), "interleaved", attr_int(&nd, "interleaved", 0));
    attr_set_int(g, op_made(g, y), "rotary_embedding_dim", dim);
    if (!heads && x.rank == 3) { /* heads are as large as the rotated part */
        if (!sym_is_const(g->sym, table.dim[1], &half) || !sym_is_const(g->sym, x.dim[2], &all) || half < 1 || all % (2 * half))
            return op_unsupported(e, g, n, "the number of heads is not known; attribute 'num_heads' would say it");
        heads = all / (2 * half);
    }
    if (x.rank == 3) attr_set_int(g, op_made(g, y), "num_heads", heads);
    return true;
}

static void random_rotary(const struct op *self, struct graph *g, struct rng *r)
{
    i64 b = rng_range(r, 1, 2), s = rng_range(r, 1, 3), h = rng_range(r, 1, 2), half = rng_range(r, 1, 3), one = 1;
    bool four = rng_range(r, 0, 1);
    i64 ids[] = {b, s};
    value_id in[4];
    random_input(g, "x", DT_F32, four ? 4 : 3, four ? (i64[]){b, h, s, 2 * half} : (i64[]){b, s, h * 2 * half}, &in[0]);
    in[1] = rng_range(r, 0, 1) ? random_const(g, DT_I64, 2, ids, 0, 5, r) : random_const(g, DT_I64, 1, &one, 0, 3, r);
    random_input(g, "cos", DT_F32, 2, (i64[]){6, half}, &in[2]);
    random_input(g, "sin", DT_F32, 2, (i64[]){6, half}, &in[3]);
    node_id n = random_node(g, self, 4, in, 1);
    attr_set_int(g, n, "interleaved", rng_range(r, 0, 1));
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "num_heads", h);
}

static const struct op ops[] = {
    OP_COMPOSITE("com.microsoft::Attention", 2, 7, 2, merged),
    OP_COMPOSITE("com.microsoft::QAttention", 5, 9, 2, merged),
    OP_COMPOSITE("com.microsoft::MultiHeadAttention", 1, 10, 4, multi),
    OP_COMPOSITE("com.microsoft::GroupQueryAttention", 1, 17, 4, group),
    OP_COMPOSITE("com.microsoft::RotaryEmbedding", 4, 4, 1, rotary),
};

const struct op_family op_ms_attention = {ops, countof(ops)};
