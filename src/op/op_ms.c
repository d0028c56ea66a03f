// SPDX-License-Identifier: Apache-2.0
//
// The attention operators of com.microsoft: what they share. Masks of numbers add mask_filter_value where they are 0.
#include "op/op_ms.h"

#include <math.h>

value_id ms_output(const struct node *nd, u32 k) { return k < nd->out.n ? nd->out.v[k] : 0; }

sym ms_num(const struct graph *g, i64 v) { return sym_const(g->sym, v); }

bool ms_refuse_attr(const struct graph *g, node_id n, const char *const *names, struct err *e)
{
    for (; *names; names++)
        if (attr_int(graph_node(g, n), *names, 0)) return op_unsupported(e, g, n, "attribute '%s'", *names);
    return true;
}

void ms_start(struct ms_att *a, struct graph *g, node_id n)
{
    *a = (struct ms_att){.g = g, .n = n, .nd = *graph_node(g, n), .left = -1};
    a->h = attr_int(&a->nd, "num_heads", 0);
}

value_id ms_by_heads(struct ms_att *a, value_id x, sym s, i64 heads, sym d)
{
    const sym dim[] = {a->b, s, ms_num(a->g, heads), d};
    return op_node_swap(a->g, a->n, op_node_reshape(a->g, a->n, x, 4, dim, 0), 4, 1, 2, 0);
}

static value_id masked_scores(struct ms_att *a)
{
    struct graph *g = a->g;
    if (!a->allowed) return a->bias;
    if (!a->bias) return a->allowed;
    return op_node_where(g, a->n, a->allowed, a->bias, op_const_f(g, a->type, -INFINITY), 0);
}

value_id ms_attend(struct ms_att *a)
{
    struct graph *g = a->g;
    value_id in[] = {a->q, a->k, a->v, masked_scores(a), a->past_k, a->past_v, 0, a->sink};
    u32 n_in = a->sink ? 8 : a->past_k ? 6 : in[3] ? 4 : 3;
    value_id y = op_node(g, a->n, a->sink ? "quern::Attention" : "Attention", n_in, in, 0);
    node_id n = op_made(g, y);
    double scale = attr_float(&a->nd, "scale", 0), cap = attr_float(&a->nd, "softcap", 0);
    if (a->present_k) node_set_out(g, n, 1, a->present_k);
    if (a->present_v) node_set_out(g, n, 2, a->present_v);
    if (scale != 0) attr_set_float(g, n, "scale", scale);
    if (cap != 0) attr_set_float(g, n, "softcap", cap);
    if (a->causal) attr_set_int(g, n, "is_causal", 1);
    if (a->left >= 0) attr_set_int(g, n, "left_window_size", a->left);
    const sym dim[] = {a->b, a->s, sym_mul(g->sym, ms_num(g, a->h), a->dv)};
    return op_node_reshape(g, a->n, op_node_swap(g, a->n, y, 4, 1, 2, 0), 3, dim, a->y3);
}

void ms_add_sink(struct ms_att *a, u32 k)
{
    struct graph *g = a->g;
    if (op_has_in(&a->nd, k)) a->sink = a->nd.in.v[k];
    else if (attr_int(&a->nd, "smooth_softmax", 0) > 0) a->sink = op_node_expand(g, a->n, op_const_f(g, a->type, 0), 1, (const sym[]){ms_num(g, a->h)}, 0);
}

value_id ms_normalised(struct ms_att *a, value_id x, u32 k, double epsilon)
{
    if (!op_has_in(&a->nd, k)) return x;
    x = op_node2(a->g, a->n, "RMSNormalization", x, op_as(a->g, a->n, a->nd.in.v[k], a->type), 0);
    attr_set_float(a->g, op_made(a->g, x), "epsilon", epsilon);
    return x;
}

value_id ms_rotated(struct ms_att *a, value_id x, u32 k, value_id ids)
{
    struct graph *g = a->g;
    i64 half;
    if (!ids) return x;
    value_id in[] = {x, op_as(g, a->n, a->nd.in.v[k], a->type), op_as(g, a->n, a->nd.in.v[k + 1], a->type), ids};
    x = op_node(g, a->n, "RotaryEmbedding", 4, in, 0);
    attr_set_int(g, op_made(g, x), "interleaved", attr_int(&a->nd, "rotary_interleaved", 0));
    if (sym_is_const(g->sym, op_in_shape(g, &a->nd, k)->dim[1], &half)) attr_set_int(g, op_made(g, x), "rotary_embedding_dim", 2 * half);
    return x;
}

/* Masks. */

value_id ms_below(struct ms_att *a, value_id lengths, bool from)
{
    struct graph *g = a->g;
    value_id v = op_node1(g, a->n, "quern::Band", lengths, 0);
    const sym size[] = {ms_num(g, 1), a->t}, before = ms_num(g, -1);
    op_set_syms(g, op_made(g, v), "size", size, 2);
    op_set_syms(g, op_made(g, v), "offset", &before, 1);
    attr_set_int(g, op_made(g, v), "left", -1);
    attr_set_int(g, op_made(g, v), "right", 0);
    return from ? op_node1(g, a->n, "Not", v, 0) : v;
}

/* mask_filter_value where not kept */
static void filter(struct ms_att *a, value_id keep)
{
    struct graph *g = a->g;
    double value = attr_float(&a->nd, "mask_filter_value", -10000);
    value_id low = op_const_f(g, a->type, value), add = op_node_where(g, a->n, keep, op_const_f(g, a->type, 0), low, 0);
    a->bias = a->bias ? op_node2(g, a->n, "Add", a->bias, add, 0) : add;
}

bool ms_mask_ok(struct graph *g, node_id n, u32 k, const struct ms_sizes *z, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!op_has_in(nd, k)) return true;
    const struct shape *s = op_in_shape(g, nd, k);
    const struct op_wanted raw = {"the mask", "batch, keys of past and present", 2, {z->b, z->t}, 0},
                           cube = {"the mask", "batch, queries, keys of past and present", 3, {z->b, z->s, z->t}, 0};
    if (dtype_kind(op_in_dtype(g, nd, k)) == DK_FLOAT)
        return op_invalid(e, g, n, "the mask (input %u) is of type %s; an additive one is attention_bias", k, dtype_name(op_in_dtype(g, nd, k)));
    if (s->rank == 1) return true; /* read_mask */
    if (s->rank == 2 || s->rank == 3) return op_require_shape(g, n, k, s->rank == 2 ? &raw : &cube, e);
    return op_unsupported(e, g, n, "a mask (input %u) of rank %u; supported are (batch, keys), (batch, queries, keys), and lengths (batch)", k, s->rank);
}

bool ms_bias_ok(struct graph *g, node_id n, u32 k, const struct ms_sizes *z, struct err *e)
{
    const struct op_wanted w = {"attention_bias", "batch, num_heads, queries, keys of past and present", 4, {z->b, ms_num(g, z->h), z->s, z->t}, 3};
    return op_check_float(g, n, k, e) && op_require_shape(g, n, k, &w, e);
}

bool ms_past_ok(struct graph *g, node_id n, u32 k, const struct ms_sizes *z, sym *past, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    bool has = op_has_in(nd, k);
    *past = ms_num(g, 0);
    if (has != op_has_in(nd, k + 1)) return op_invalid(e, g, n, "past_key (input %u) and past_value (input %u) belong together", k, k + 1);
    if (!op_check_float(g, n, k, e) || !op_check_float(g, n, k + 1, e)) return false;
    if (has && op_in_shape(g, nd, k)->rank == 4) *past = op_in_shape(g, nd, k)->dim[MS_AT];
    const struct op_wanted keys = {"past_key", "batch, heads, positions, head size", 4, {z->b, ms_num(g, z->hk), 0, z->d}, 0},
                           values = {"past_value", "batch, heads, positions of past_key, head size", 4, {z->b, ms_num(g, z->hk), *past, z->dv}, 0};
    return op_require_shape(g, n, k, &keys, e) && op_require_shape(g, n, k + 1, &values, e);
}

bool ms_split_ok(struct graph *g, node_id n, u32 k, u32 axis, i64 heads, sym *d, struct err *e)
{
    sym all = op_in_shape(g, graph_node(g, n), k)->dim[axis];
    i64 c;
    *d = sym_div(g->sym, all, ms_num(g, heads));
    if (!sym_is_const(g->sym, all, &c) || c % heads == 0) return true;
    return op_invalid(e, g, n, "axis %u of input %u is %lld, which is no multiple of %lld heads", axis, k, (long long)c, (long long)heads);
}

bool ms_read_mask(struct ms_att *a, u32 k, struct err *e)
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
        if (!ratio && sym_mul(g->sym, ms_num(g, r), a->b) == m.dim[0]) ratio = r;
    i64 c = 0, b = 0;
    if (!ratio && !(sym_is_const(g->sym, m.dim[0], &c) && sym_is_const(g->sym, a->b, &b))) ratio = 1; /* by name */
    if (!ratio)
        return op_unsupported(e, g, a->n, "a mask (input %u) of rank 1 with %lld elements; supported are one or two for each of %lld sequences", k, (long long)c, (long long)b);
    if (ratio == 1) return filter(a, ms_below(a, v, false)), true;
    value_id ends = op_node_slice(g, a->n, v, &m, 0, ms_num(g, 0), a->b, 0), starts = op_node_slice(g, a->n, v, &m, 0, a->b, a->b, 0);
    value_id behind = ms_below(a, starts, true), before = ms_below(a, ends, false);
    filter(a, op_node2(g, a->n, "And", before, behind, 0));
    return true;
}

void ms_add_bias(struct ms_att *a, u32 k)
{
    if (op_has_in(&a->nd, k)) a->bias = a->nd.in.v[k];
}
