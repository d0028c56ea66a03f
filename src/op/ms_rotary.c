// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft: RotaryEmbedding (x, positions, cosines, sines), a composite that uses ai.onnx's: pairs of elements are turned by their
// position.
#include "op/op_ms.h"

static bool rotary_infer(struct graph *g, node_id n, struct err *e)
{
    static const char *const not_yet[] = {"is_packed_batching", NULL};
    const struct node *nd = graph_node(g, n);
    if (attr_float(nd, "scale", 1) != 1) return op_unsupported(e, g, n, "attribute 'scale' = %g", attr_float(nd, "scale", 1));
    if (!ms_refuse_attr(g, n, not_yet, e) || !op_check_float(g, n, 0, e) || !op_check_rank(g, n, 0, 3, 4, e) ||
        !op_check_rank(g, n, 1, 1, 2, e) || !op_check_rank(g, n, 2, 2, 2, e))
        return false;
    const struct shape x = *op_in_shape(g, nd, 0), cos = *op_in_shape(g, nd, 2);
    sym s = x.dim[x.rank == 3 ? 1 : 2];
    const struct op_wanted first = {"position_ids", "the first position, or batch, positions", 1, {ms_num(g, 1)}, 0},
                           all = {"position_ids", "batch, positions of the input", 2, {x.dim[0], s}, 0},
                           sin = {"sin_cache", "positions, half of the rotated elements: as cos_cache", 2, {cos.dim[0], cos.dim[1]}, 0};
    if (!op_require_shape(g, n, 1, op_in_shape(g, nd, 1)->rank == 1 ? &first : &all, e) || !op_require_shape(g, n, 3, &sin, e)) return false;
    return op_require_at_least(g, n, cos.dim[0], s, e, "the positions that cos_cache (input 2) has, beside those of the input,") && op_infer_expanded(g, n, e);
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
    OP_COMPOSITE("com.microsoft::RotaryEmbedding", 4, 4, 1, rotary),
};

const struct op_family op_ms_rotary = {ops, countof(ops)};
