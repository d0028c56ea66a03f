// SPDX-License-Identifier: Apache-2.0
//
// Shape and Size: the sizes of a tensor as integers. Their content is always known as symbolic
// expressions, so shape arithmetic built on them folds away; the kernels exist for graphs that
// deliver sizes as outputs.
#include "op/op.h"

struct range {
    u32 from, to;
};

/* The axes Shape lists: attributes start and end, clamped. */
static struct range shape_range(const struct node *n, u32 rank)
{
    i64 r = rank, from = attr_int(n, "start", 0), to = attr_int(n, "end", r);
    from = i64_max(0, i64_min(r, from < 0 ? from + r : from));
    to = i64_max(from, i64_min(r, to < 0 ? to + r : to));
    return (struct range){(u32)from, (u32)to};
}

static bool shape_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct shape in = graph_value(g, nd->in.v[0])->shape, out = {.known = true, .rank = 1};
    struct range r = shape_range(nd, in.rank);
    out.dim[0] = sym_const(g->sym, r.to - r.from);
    op_set_out(g, n, 0, DT_I64, &out);
    op_set_sdata(g, nd->out.v[0], in.dim + r.from, r.to - r.from, 1);
    return true;
}

static bool shape_eval_node(const struct op_eval *v, struct err *e)
{
    struct range r = shape_range(v->n, v->in[0]->rank);
    for (u32 a = r.from; a < r.to; a++)
        elem_set_i64(DT_I64, v->out[0]->data, a - r.from, v->in[0]->dim[a]);
    return true;
}

static kval shape_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct range r = shape_range(n, graph_value(m->g, n->in.v[0])->shape.rank);
    kval v = r.to > r.from ? emit_dim(m, n->in.v[0], r.to - 1) : kir_int(m->k, 0);
    for (u32 a = r.to; a-- > r.from + 1;) {
        kval before = kir_bin(m->k, KI_LT, idx[0], kir_int(m->k, a - r.from));
        v = kir_select(m->k, before, emit_dim(m, n->in.v[0], a - 1), v);
    }
    return v;
}

static bool size_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    sym count = shape_count(g->sym, &graph_value(g, nd->in.v[0])->shape);
    struct shape out = {.known = true};
    op_set_out(g, n, 0, DT_I64, &out);
    op_set_sdata(g, nd->out.v[0], &count, 1, 1);
    return true;
}

static bool size_eval(const struct op_eval *v, struct err *e)
{
    elem_set_i64(DT_I64, v->out[0]->data, 0, tensor_count(v->in[0]));
    return true;
}

static kval size_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    return emit_size(m, shape_count(m->g->sym, &graph_value(m->g, n->in.v[0])->shape));
}

static void random_size(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[4] = {rng_range(r, 1, 4), rng_range(r, 0, 5), rng_range(r, 1, 6), 2};
    value_id in[1];
    random_input(g, "x", DT_F32, (u32)rng_range(r, 0, 4), dim, &in[0]);
    random_node(g, self, 1, in, 1);
}

static void random_shape(const struct op *self, struct graph *g, struct rng *r)
{
    random_size(self, g, r);
    node_id n = g->node.n - 1;
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "start", rng_range(r, -5, 5));
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "end", rng_range(r, -5, 5));
}

static const struct op ops[] = {
    {.name = "Shape",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = shape_infer,
     .eval = shape_eval_node,
     .lower = shape_lower,
     .random = random_shape},
    {.name = "Size",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = size_infer,
     .eval = size_eval,
     .lower = size_lower,
     .random = random_size},
};

const struct op_family op_shape = {ops, countof(ops)};
