// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft: attention as ONNX Runtime's optimiser writes it; composites that use ai.onnx's Attention.
//
//   Attention            x W + bias split into queries, keys and values by heads
//   QAttention           likewise of quantised x and W
//   MultiHeadAttention   queries, keys, values given, apart or packed
#include "op/op_ms.h"

/* Attention: x, weights [, bias [, mask [, past [, bias of scores [, length of past]]]]] -> y [, present]
   QAttention: x, weights, bias, scales [, mask [, zeros [, past]]] */

static bool is_quantised(const struct node *nd) { return str_is(nd->op, "com.microsoft::QAttention"); }

static bool merged_fits(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape x = *op_in_shape(g, nd, 0);
    bool q = is_quantised(nd);
    struct ms_sizes z = {.b = x.dim[0], .s = x.dim[1], .t = x.dim[1], .h = attr_int(nd, "num_heads", 0)};
    const struct op_wanted weights = {"the weights", "channels of the input, those of queries, keys and values", 2, {x.dim[2], 0}, 0};
    if (!op_require_shape(g, n, 1, &weights, e)) return false;
    sym all = op_in_shape(g, nd, 1)->dim[1], d;
    const struct op_wanted bias = {"the bias", "columns of the weights", 1, {all}, 0};
    const i64 *sizes;
    bool given = attr_ints(nd, "qkv_hidden_sizes", &sizes) == 3;
    if (!op_require_shape(g, n, 2, &bias, e) || (!given && !ms_split_ok(g, n, 1, 1, 3 * z.h, &d, e))) return false;
    z.d = given ? ms_num(g, sizes[0] / z.h) : d;
    z.dv = given ? ms_num(g, sizes[2] / z.h) : d;
    u32 k = q ? 8 : 4;
    const struct op_wanted past = {"past", "keys and values, batch, heads, positions, head size", 5, {ms_num(g, 2), z.b, ms_num(g, z.h), 0, z.d}, 0};
    if (!op_require_shape(g, n, k, &past, e)) return false;
    if (op_has_in(nd, k)) z.t = sym_add(g->sym, z.t, op_in_shape(g, nd, k)->dim[3]);
    return ms_mask_ok(g, n, q ? 5 : 3, &z, e) && (q || ms_bias_ok(g, n, 5, &z, e));
}

static bool merged_infer(struct graph *g, node_id n, struct err *e)
{
    static const char *const not_yet[] = {"past_present_share_buffer", "do_rotary", NULL};
    const struct node *nd = graph_node(g, n);
    bool q = is_quantised(nd);
    const i64 *sizes;
    i64 heads = attr_int(nd, "num_heads", 0);
    if (heads < 1 || heads > INT32_MAX) return op_invalid(e, g, n, "num_heads %lld", (long long)heads);
    if (!ms_refuse_attr(g, n, not_yet, e) || !op_check_rank(g, n, 0, 3, 3, e)) return false;
    if (!q && (!op_check_absent(g, n, 6, "the length of a shared cache", e) || !op_check_float(g, n, 0, e))) return false;
    if (attr_ints(nd, "qkv_hidden_sizes", &sizes) == 3) {
        for (u32 i = 0; i < 3; i++)
            if (sizes[i] < 1 || sizes[i] % heads) return op_invalid(e, g, n, "qkv_hidden_sizes for %lld heads", (long long)heads);
        if (sizes[0] != sizes[1]) return op_invalid(e, g, n, "queries and keys of different sizes");
        if (sizes[0] > INT32_MAX || sizes[2] > INT32_MAX) return op_invalid(e, g, n, "qkv_hidden_sizes out of range");
        if (!op_require_equal(g, n, op_in_shape(g, nd, 1)->dim[1], ms_num(g, sizes[0] + sizes[1] + sizes[2]), e, "axis 1 of the weights and the sum of qkv_hidden_sizes"))
            return false;
    }
    return merged_fits(g, n, e) && op_infer_expanded(g, n, e);
}

/* x W + bias, (b, s, all) */
static value_id project(struct ms_att *a)
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
static value_id half_past(struct ms_att *a, value_id past, const struct shape *s, i64 i)
{
    return op_node_reshape(a->g, a->n, op_node_slice(a->g, a->n, past, s, 0, ms_num(a->g, i), ms_num(a->g, 1), 0), 4, s->dim + 1, 0);
}

static bool merged_expand(struct graph *g, node_id n, struct err *e)
{
    struct ms_att a;
    ms_start(&a, g, n);
    bool q = is_quantised(&a.nd);
    const struct shape x = *op_in_shape(g, &a.nd, 0), w = *op_in_shape(g, &a.nd, 1);
    const i64 *sizes;
    sym each = sym_div(g->sym, w.dim[1], ms_num(g, 3)), size[3] = {each, each, each}, at = ms_num(g, 0);
    if (attr_ints(&a.nd, "qkv_hidden_sizes", &sizes) == 3)
        for (u32 i = 0; i < 3; i++) size[i] = ms_num(g, sizes[i]);
    a.type = op_in_dtype(g, &a.nd, q ? 3 : 0);
    a.b = x.dim[0], a.s = a.t = x.dim[1];
    a.dv = sym_div(g->sym, size[2], ms_num(g, a.h));
    const struct shape all = {.known = true, .rank = 3, .dim = {a.b, a.s, w.dim[1]}};
    value_id qkv = project(&a), part[3];
    for (u32 i = 0; i < 3; i++) {
        part[i] = op_node_slice(g, n, qkv, &all, 2, at, size[i], 0);
        part[i] = ms_by_heads(&a, part[i], a.s, a.h, sym_div(g->sym, size[i], ms_num(g, a.h)));
        at = sym_add(g->sym, at, size[i]);
    }
    a.q = part[0], a.k = part[1], a.v = part[2];
    value_id past = op_node_input(&a.nd, q ? 8 : 4), present = ms_output(&a.nd, 1);
    if (past) {
        const struct shape s = *op_in_shape(g, &a.nd, q ? 8 : 4);
        a.past_k = half_past(&a, past, &s, 0), a.past_v = half_past(&a, past, &s, 1);
        a.t = sym_add(g->sym, s.dim[3], a.s);
    }
    if (present) a.present_k = graph_add_value(g, S("present_k")), a.present_v = graph_add_value(g, S("present_v"));
    if (!q) ms_add_bias(&a, 5);
    if (!ms_read_mask(&a, q ? 5 : 3, e)) return false;
    a.causal = attr_int(&a.nd, "unidirectional", 0);
    a.y3 = a.nd.out.v[0];
    ms_attend(&a);
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

enum { M_Q, M_K, M_V, M_BIAS, M_MASK, M_SCORES, M_PAST_K, M_PAST_V, M_LENGTH, M_BEAMS };

/* Input k (b, s, h, count, d) holds queries, keys and values side by side. */
static bool parts_ok(struct graph *g, node_id n, u32 k, i64 count, struct ms_sizes *z, struct err *e)
{
    const struct op_wanted w = {k ? "key" : "query", "batch, positions, num_heads, tensors side by side, head size", 5, {z->b, 0, ms_num(g, z->h), ms_num(g, count), z->d}, 0};
    if (!op_require_shape(g, n, k, &w, e)) return false;
    const struct shape *s = op_in_shape(g, graph_node(g, n), k);
    z->t = s->dim[1], z->d = z->dv = s->dim[4];
    return true;
}

/* Keys and values apart from each other, of rank 3 or, by heads, 4. */
static bool apart_ok(struct graph *g, node_id n, struct ms_sizes *z, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape k = *op_in_shape(g, nd, M_K), v = *op_in_shape(g, nd, M_V);
    bool by_heads = k.rank == 4;
    z->t = k.dim[by_heads ? MS_AT : 1];
    const struct op_wanted key = {"key", "batch, keys, columns of query", 3, {z->b, 0, op_in_shape(g, nd, M_Q)->dim[2]}, 0},
                           value = {"value", "batch, keys, columns", 3, {z->b, z->t, 0}, 0},
                           key4 = {"key", "batch, num_heads, keys, head size of query", 4, {z->b, ms_num(g, z->h), 0, z->d}, 0},
                           value4 = {"value", "batch, num_heads, keys, head size", 4, {z->b, ms_num(g, z->h), z->t, 0}, 0};
    if (!op_require_shape(g, n, M_K, by_heads ? &key4 : &key, e) || !op_require_shape(g, n, M_V, by_heads ? &value4 : &value, e)) return false;
    z->dv = v.dim[3];
    return by_heads || ms_split_ok(g, n, M_V, 2, z->h, &z->dv, e);
}

/* Queries, keys and values; sets the sizes. */
static bool operands_ok(struct graph *g, node_id n, struct ms_sizes *z, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape q = *op_in_shape(g, nd, M_Q);
    u32 rk = op_has_in(nd, M_K) ? op_in_shape(g, nd, M_K)->rank : 0;
    bool packed = q.rank == 5 && !rk && !op_has_in(nd, M_V), half = q.rank == 3 && rk == 5 && !op_has_in(nd, M_V),
         apart = q.rank == 3 && (rk == 3 || rk == 4) && op_has_in(nd, M_V) && op_in_shape(g, nd, M_V)->rank == rk;
    if (!packed && !half && !apart)
        return op_invalid(e, g, n, "query, key and value of ranks that do not go together: expected are 3, 3, 3; 3, 4, 4; 3, 5 (keys and values); or 5 (all)");
    if (packed && op_has_in(nd, M_BIAS)) return op_unsupported(e, g, n, "a bias of packed queries, keys and values");
    z->b = q.dim[0], z->s = q.dim[1];
    if (packed) return parts_ok(g, n, M_Q, 3, z, e);
    if (!ms_split_ok(g, n, M_Q, 2, z->h, &z->d, e)) return false;
    return half ? parts_ok(g, n, M_K, 2, z, e) : apart_ok(g, n, z, e);
}

static bool multi_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct ms_sizes z = {.h = attr_int(nd, "num_heads", 0)};
    sym past, biased = ms_num(g, 0);
    z.hk = z.h;
    if (z.h < 1 || z.h > INT32_MAX) return op_invalid(e, g, n, "num_heads %lld", (long long)z.h);
    if (ms_output(nd, 3)) return op_unsupported(e, g, n, "output 3 (scores)");
    if (!op_check_absent(g, n, M_LENGTH, "the length of a shared cache", e) || !op_check_absent(g, n, M_BEAMS, "the order of beams", e)) return false;
    for (u32 k = M_Q; k <= M_V; k++)
        if (!op_check_float(g, n, k, e) || !op_check_rank(g, n, k, 3, 5, e)) return false;
    if (!operands_ok(g, n, &z, e) || !ms_past_ok(g, n, M_PAST_K, &z, &past, e) || !op_check_rank(g, n, M_BIAS, 1, 1, e)) return false;
    z.t = sym_add(g->sym, z.t, past);
    if (!ms_mask_ok(g, n, M_MASK, &z, e) || !ms_bias_ok(g, n, M_SCORES, &z, e)) return false;
    for (u32 k = M_Q; k <= M_V && op_has_in(nd, M_BIAS); k++)
        if (op_has_in(nd, k) && op_in_shape(g, nd, k)->rank == 3) biased = sym_add(g->sym, biased, op_in_shape(g, nd, k)->dim[2]);
    if (op_has_in(nd, M_BIAS) &&
        !op_require_at_least(g, n, op_in_shape(g, nd, M_BIAS)->dim[0], biased, e, "the elements of the bias and of queries, keys and values"))
        return false;
    return op_infer_expanded(g, n, e);
}

/* Tensor i of x (b, s, h, n, d), by heads. */
static value_id packed_part(struct ms_att *a, u32 k, i64 i)
{
    struct graph *g = a->g;
    const struct shape s = *op_in_shape(g, &a->nd, k);
    const sym dim[] = {s.dim[0], s.dim[1], s.dim[2], s.dim[4]};
    value_id v = op_node_slice(g, a->n, a->nd.in.v[k], &s, 3, ms_num(g, i), ms_num(g, 1), 0);
    return op_node_swap(g, a->n, op_node_reshape(g, a->n, v, 4, dim, 0), 4, 1, 2, 0);
}

/* Input k, of rank 3 with its part of the bias (from `at` on), or of rank 4. */
static value_id given(struct ms_att *a, u32 k, sym *at)
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
    return ms_by_heads(a, x, s.dim[1], a->h, sym_div(g->sym, s.dim[2], ms_num(g, a->h)));
}

static void read_multi(struct ms_att *a)
{
    struct graph *g = a->g;
    const struct shape q = *op_in_shape(g, &a->nd, M_Q);
    sym at = ms_num(g, 0);
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
    a->dv = v.rank == 4 ? v.dim[3] : sym_div(g->sym, v.dim[2], ms_num(g, a->h));
}

static bool multi_expand(struct graph *g, node_id n, struct err *e)
{
    struct ms_att a;
    ms_start(&a, g, n);
    a.type = op_in_dtype(g, &a.nd, M_Q);
    read_multi(&a);
    a.past_k = op_node_input(&a.nd, M_PAST_K), a.past_v = op_node_input(&a.nd, M_PAST_V);
    if (a.past_k) a.t = sym_add(g->sym, a.t, op_in_shape(g, &a.nd, M_PAST_K)->dim[2]);
    ms_add_bias(&a, M_SCORES);
    if (!ms_read_mask(&a, M_MASK, e)) return false;
    a.causal = attr_int(&a.nd, "unidirectional", 0);
    a.present_k = ms_output(&a.nd, 1), a.present_v = ms_output(&a.nd, 2), a.y3 = a.nd.out.v[0];
    ms_attend(&a);
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

static const struct op ops[] = {
    OP_COMPOSITE("com.microsoft::Attention", 2, 7, 2, merged),
    OP_COMPOSITE("com.microsoft::QAttention", 5, 9, 2, merged),
    OP_COMPOSITE("com.microsoft::MultiHeadAttention", 1, 10, 4, multi),
};

const struct op_family op_ms_attention = {ops, countof(ops)};
