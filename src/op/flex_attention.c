// SPDX-License-Identifier: Apache-2.0
//
// The two halves of FlexAttention (domain ai.onnx.preview), between which the importer puts its subgraphs and a softmax, composites:
//
//   quern::FlexScores (q, k)   q (b, hq, sq, d), k (b, hk, sk, d) -> scores (b, hq, sq, sk) = q k^T * scale, of the softmax's type
//   quern::FlexValues (p, v)   p (b, hq, sq, sk), v (b, hk, sk, dv) -> (b, hq, sq, dv) = p v, of v's type
//
// Query heads that share a key head are rows of one matrix, as in Attention.
#include "op/op.h"

#include <math.h>

struct halves {
    i64 hq, hk;
    sym b, sq, sk, d; /* d: of the last axis of input 0 */
    enum dtype t;     /* of the result */
};

static bool is_scores(const struct node *nd) { return str_is(nd->op, "quern::FlexScores"); }

static bool read_halves(struct graph *g, node_id n, struct halves *h, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!op_check_float(g, n, 0, e) || !op_check_float(g, n, 1, e) || !op_check_rank(g, n, 0, 4, 4, e) || !op_check_rank(g, n, 1, 4, 4, e))
        return false;
    const struct shape *x = op_in_shape(g, nd, 0), *y = op_in_shape(g, nd, 1);
    *h = (struct halves){.b = x->dim[0], .sq = x->dim[2], .sk = y->dim[2], .d = x->dim[3], .t = op_in_dtype(g, nd, 1)};
    if (!sym_is_const(g->sym, x->dim[1], &h->hq) || !sym_is_const(g->sym, y->dim[1], &h->hk))
        return op_unsupported(e, g, n, "a symbolic number of heads; give it a value by --set");
    if (h->hk < 1 || h->hq % h->hk)
        return op_invalid(e, g, n, "%lld heads of queries are not a multiple of %lld of keys", (long long)h->hq, (long long)h->hk);
    if (!is_scores(nd)) return true;
    if (!op_sizes_agree(g, x->dim[3], y->dim[3]) || op_in_dtype(g, nd, 0) != h->t)
        return op_invalid(e, g, n, "queries and keys do not fit each other");
    i64 to = attr_int(nd, "softmax_precision", 0);
    h->t = to ? dtype_from_onnx((int)i64_max(0, i64_min(to, 255))) : h->t == DT_F64 ? DT_F64 : DT_F32;
    return dtype_is_float(h->t) || op_unsupported(e, g, n, "attribute 'softmax_precision' = %lld", (long long)to);
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct halves h;
    if (!read_halves(g, n, &h, e)) return false;
    sym last = is_scores(graph_node(g, n)) ? h.sk : op_in_shape(g, graph_node(g, n), 1)->dim[3];
    op_set_out(g, n, 0, h.t, &(struct shape){.rank = 4, .dim = {h.b, sym_const(g->sym, h.hq), h.sq, last}});
    return true;
}

/* (b, hq, sq, last) as (b, hk, hq/hk*sq, last), or back */
static value_id group(struct graph *g, node_id n, const struct halves *h, value_id v, sym last, bool back, value_id out)
{
    const sym dim[4] = {h->b, sym_const(g->sym, back ? h->hq : h->hk),
                        back ? h->sq : sym_mul(g->sym, sym_const(g->sym, h->hq / h->hk), h->sq), last};
    if (h->hq == h->hk && !out) return v;
    return op_node_reshape(g, n, v, 4, dim, out);
}

static value_id scaled(struct graph *g, node_id n, const struct halves *h)
{
    const struct node nd = *graph_node(g, n);
    const struct attr *a = node_attr(&nd, "scale");
    enum dtype t = op_in_dtype(g, &nd, 0);
    i64 d = 0;
    if (a) return op_node_binf(g, n, "Mul", nd.in.v[0], t, attr_float(&nd, "scale", 1), 0);
    if (sym_is_const(g->sym, h->d, &d)) return op_node_binf(g, n, "Mul", nd.in.v[0], t, 1 / sqrt((double)i64_max(1, d)), 0);
    value_id root = op_node1(g, n, "Sqrt", op_node_cast(g, n, op_sym_scalar(g, DT_I64, h->d), DT_F32, 0), 0);
    return op_node2(g, n, "Div", nd.in.v[0], op_node_cast(g, n, root, t, 0), 0);
}

static bool expand_scores(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    struct halves h;
    if (!read_halves(g, n, &h, e)) return false;
    value_id k = op_node_perm(g, n, nd.in.v[1], 4, (const i64[]){0, 1, 3, 2}, 0);
    value_id x = op_node2(g, n, "MatMul", group(g, n, &h, scaled(g, n, &h), h.d, false, 0), k, 0);
    x = group(g, n, &h, x, h.sk, true, 0);
    op_node_into(g, n, x, op_in_dtype(g, &nd, 0), h.t, nd.out.v[0]);
    return true;
}

static bool expand_values(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    struct halves h;
    if (!read_halves(g, n, &h, e)) return false;
    value_id p = group(g, n, &h, op_as(g, n, nd.in.v[0], h.t), h.sk, false, 0);
    value_id y = op_node2(g, n, "MatMul", p, nd.in.v[1], 0);
    group(g, n, &h, y, op_in_shape(g, &nd, 1)->dim[3], true, nd.out.v[0]);
    return true;
}

static void random_halves(const struct op *self, struct graph *g, struct rng *r)
{
    bool scores = str_is(str_of(self->name), "quern::FlexScores");
    i64 b = rng_range(r, 1, 2), hk = rng_range(r, 1, 2), hq = hk * rng_range(r, 1, 2), sq = rng_range(r, 1, 4), sk = rng_range(r, 1, 5),
        d = rng_range(r, 1, 4);
    const i64 x[] = {b, hq, sq, scores ? d : sk}, y[] = {b, hk, sk, d};
    value_id in[2];
    random_input(g, "x", DT_F32, 4, x, &in[0]);
    random_input(g, "y", DT_F32, 4, y, &in[1]);
    node_id n = random_node(g, self, 2, in, 1);
    if (scores && rng_range(r, 0, 1)) attr_set_float(g, n, "scale", 0.5);
}

static const struct op ops[] = {
    {.name = "quern::FlexScores",
     .attributes = "scale:float softmax_precision:int",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand_scores,
     .random = random_halves},
    {.name = "quern::FlexValues",
     .attributes = "softmax_precision:int",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand_values,
     .random = random_halves},
};

const struct op_family op_flex_attention = {ops, countof(ops)};
