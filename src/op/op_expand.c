// SPDX-License-Identifier: Apache-2.0
//
// For expansions of composite operators. New nodes have no types or shapes until the expansion is
// complete (op_expand infers them then), so an expansion uses the types and shapes of the node it
// replaces.
#include "op/op.h"

value_id op_node1(struct graph *g, node_id like, const char *op, value_id a, value_id out)
{
    return op_node(g, like, op, 1, &a, out);
}

value_id op_node2(struct graph *g, node_id like, const char *op, value_id a, value_id b,
                  value_id out)
{
    return op_node(g, like, op, 2, (value_id[]){a, b}, out);
}

value_id op_node_part(struct graph *g, node_id like, value_id x, const struct shape *s,
                      const struct op_part *p, value_id out)
{
    sym start[MAX_RANK], size[MAX_RANK];
    i64 step[MAX_RANK];
    for (u32 a = 0; a < s->rank; a++)
        start[a] = sym_const(g->sym, 0), size[a] = s->dim[a], step[a] = 1;
    start[p->axis] = p->start, size[p->axis] = p->size, step[p->axis] = p->step;
    value_id v = op_node1(g, like, "quern::Slice", x, out);
    op_set_syms(g, op_made(g, v), "start", start, s->rank);
    op_set_syms(g, op_made(g, v), "size", size, s->rank);
    attr_set_ints(g, op_made(g, v), "step", step, s->rank);
    return v;
}

value_id op_node_axes(struct graph *g, node_id like, const char *op, value_id x, const i64 *axes,
                      u32 n_axes, value_id out)
{
    return op_node2(g, like, op, x, op_const_i(g, DT_I64, axes, n_axes), out);
}

value_id op_node_cast(struct graph *g, node_id like, value_id x, enum dtype t, value_id out)
{
    value_id v = op_node1(g, like, "Cast", x, out);
    attr_set_int(g, op_made(g, v), "to", dtype_onnx(t));
    return v;
}

value_id op_node_binf(struct graph *g, node_id like, const char *op, value_id a, enum dtype t,
                      double b, value_id out)
{
    return op_node2(g, like, op, a, op_const_f(g, t, b), out);
}

node_id op_made(const struct graph *g, value_id v) { return graph_value(g, v)->producer; }

value_id op_as(struct graph *g, node_id like, value_id x, enum dtype t)
{
    return graph_value(g, x)->dtype == t ? x : op_node_cast(g, like, x, t, 0);
}
