// SPDX-License-Identifier: Apache-2.0
//
// Compress and NonZero: the size of the result depends on data, which no compiled program can have.
// Both are handled where that data is constant: Compress becomes a Gather at the chosen indices,
// NonZero a constant.
#include "op/op.h"

static const struct tensor *constant(const struct graph *g, value_id v)
{
    return graph_value(g, v)->data;
}

static i64 count_true(const struct tensor *t)
{
    i64 n = 0;
    for (i64 i = 0; i < tensor_count(t); i++) n += elem_f64(t->dtype, t->data, i) != 0;
    return n;
}

/* Compress. axis -1 stands for the flattened input. */

struct compress {
    struct shape in; /* after flattening */
    u32 axis;
    bool flat;
};

static bool read_compress(struct graph *g, node_id n, struct compress *c, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct tensor *t = constant(g, nd->in.v[1]);
    i64 d;
    *c =
        (struct compress){.in = graph_value(g, nd->in.v[0])->shape, .flat = !node_attr(nd, "axis")};
    if (!t) return op_unsupported(e, g, n, "the condition is only known at run time");
    if (c->flat) {
        sym count = shape_count(g->sym, &c->in);
        c->in = (struct shape){.known = true, .rank = 1, .dim = {count}};
    }
    if (!op_axis(attr_int(nd, "axis", 0), c->in.rank, &c->axis))
        return op_invalid(e, g, n, "bad attribute 'axis'");
    if (t->rank != 1 || (sym_is_const(g->sym, c->in.dim[c->axis], &d) && t->dim[0] > d))
        return op_invalid(e, g, n, "the condition does not fit the axis");
    return true;
}

static bool compress_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct compress c;
    if (!read_compress(g, n, &c, e)) return false;
    c.in.dim[c.axis] = sym_const(g->sym, count_true(constant(g, nd->in.v[1])));
    op_set_out(g, n, 0, graph_value(g, nd->in.v[0])->dtype, &c.in);
    return true;
}

static bool compress_expand(struct graph *g, node_id n, struct err *e)
{
    const struct tensor *t = constant(g, graph_node(g, n)->in.v[1]);
    value_id in[2] = {graph_node(g, n)->in.v[0]}, out = graph_node(g, n)->out.v[0];
    struct compress c;
    i64 count = count_true(t), at = 0;
    if (!read_compress(g, n, &c, e)) return false;
    struct tensor *index = tensor_new(g->arena, DT_I64, 1, &count);
    for (i64 i = 0; i < t->dim[0]; i++)
        if (elem_i64(t->dtype, t->data, i)) elem_set_i64(DT_I64, index->data, at++, i);
    if (c.flat) {
        in[0] = op_node(g, n, "quern::Reshape", 1, in, 0);
        op_set_syms(g, graph_value(g, in[0])->producer, "shape", c.in.dim, 1);
    }
    in[1] = graph_add_const(g, S("indices"), index);
    op_node(g, n, "Gather", 2, in, out);
    attr_set_int(g, graph_value(g, out)->producer, "axis", c.axis);
    return true;
}

static void random_compress(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 3), axis = (u32)rng_range(r, 0, rank - 1);
    i64 dim[3], total = 1;
    bool flat = rng_range(r, 0, 1);
    value_id in[2];
    for (u32 a = 0; a < rank; a++) total *= dim[a] = rng_range(r, 1, 5);
    i64 length = rng_range(r, 0, flat ? total : dim[axis]);
    struct tensor *t = tensor_new(g->arena, DT_BOOL, 1, &length);
    for (i64 i = 0; i < length; i++) elem_set_i64(DT_BOOL, t->data, i, rng_range(r, 0, 1));
    random_input(g, "x", DT_F32, rank, dim, &in[0]);
    in[1] = graph_add_const(g, S("condition"), t);
    node_id n = random_node(g, self, 2, in, 1);
    if (!flat) attr_set_int(g, n, "axis", (i64)axis - (rng_range(r, 0, 1) ? rank : 0));
}

/* NonZero. */

static bool nonzero_infer(struct graph *g, node_id n, struct err *e)
{
    const struct tensor *t = constant(g, graph_node(g, n)->in.v[0]);
    if (!t) return op_unsupported(e, g, n, "the size of the result depends on data");
    struct shape to = {.known = true, .rank = 2};
    to.dim[0] = sym_const(g->sym, t->rank);
    to.dim[1] = sym_const(g->sym, count_true(t));
    op_set_out(g, n, 0, DT_I64, &to);
    return true;
}

static bool nonzero_expand(struct graph *g, node_id n, struct err *e)
{
    const struct tensor *t = constant(g, graph_node(g, n)->in.v[0]);
    value_id out = graph_node(g, n)->out.v[0], v;
    i64 count = count_true(t), at = 0, idx[MAX_RANK] = {0};
    struct tensor *found = tensor_new(g->arena, DT_I64, 2, (i64[]){t->rank, count});
    for (i64 i = 0; i < tensor_count(t); i++, op_next(t->rank, t->dim, idx)) {
        if (elem_f64(t->dtype, t->data, i) == 0) continue;
        for (u32 a = 0; a < t->rank; a++) elem_set_i64(DT_I64, found->data, a * count + at, idx[a]);
        at++;
    }
    v = graph_add_const(g, S("nonzero"), found);
    op_node(g, n, "Identity", 1, &v, out);
    return true;
}

static void random_nonzero(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 3);
    i64 dim[3];
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 4);
    struct tensor *t = tensor_new(g->arena, DT_F32, rank, dim);
    for (i64 i = 0; i < tensor_count(t); i++)
        elem_set_f64(DT_F32, t->data, i, (double)rng_range(r, -1, 1));
    value_id v = graph_add_const(g, S("x"), t);
    random_node(g, self, 1, &v, 1);
}

static const struct op ops[] = {
    {.name = "Compress",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = compress_infer,
     .expand = compress_expand,
     .random = random_compress},
    {.name = "NonZero",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = nonzero_infer,
     .expand = nonzero_expand,
     .random = random_nonzero},
};

const struct op_family op_compress = {ops, countof(ops)};
