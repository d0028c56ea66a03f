// SPDX-License-Identifier: Apache-2.0
//
// The shapes of convolutions and matrix products, for Conv and MatMul and for their quantised
// variants, which have another order of inputs.
#include "op/op.h"

static bool channels_fit(struct graph *g, node_id n, const i64 *w, u32 bias, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 c, b, group = attr_int(nd, "group", 1);
    if (group < 1 || w[0] % group)
        return op_invalid(e, g, n, "group %lld for %lld output channels", (long long)group,
                          (long long)w[0]);
    bool known = sym_is_const(g->sym, op_in_shape(g, nd, 0)->dim[1], &c);
    if (!known) return op_unsupported(e, g, n, "the number of channels is not known");
    if (c % group || c / group != w[1])
        return op_invalid(e, g, n,
                          "%lld input channels in %lld groups do not fit a weight for %lld",
                          (long long)c, (long long)group, (long long)w[1]);
    if (!op_has_in(nd, bias)) return true;
    const struct shape *s = op_in_shape(g, nd, bias);
    if (s->rank != 1 || (sym_is_const(g->sym, s->dim[0], &b) && b != w[0]))
        return op_invalid(e, g, n, "bias does not have %lld elements", (long long)w[0]);
    return op_require_equal(g, n, s->dim[0], sym_const(g->sym, w[0]), e, "the elements of the bias and the output channels");
}

bool op_conv_shape(struct graph *g, node_id n, u32 weight, u32 bias, struct shape *out,
                   struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape x = *op_in_shape(g, nd, 0), *ws = op_in_shape(g, nd, weight);
    struct op_window w;
    i64 dim[MAX_RANK];
    if (x.rank < 3 || ws->rank != x.rank)
        return op_invalid(e, g, n, "weight of rank %u for an input of rank %u", ws->rank, x.rank);
    if (!shape_is_static(g->sym, ws, dim))
        return op_unsupported(e, g, n, "the weight's shape is not constant");
    if (!op_window_infer(g, n, dim + 2, &w, e) || !channels_fit(g, n, dim, bias, e)) return false;
    attr_set_int(g, n, "group", attr_int(graph_node(g, n), "group", 1));
    *out =
        (struct shape){.known = true, .rank = x.rank, .dim = {x.dim[0], sym_const(g->sym, dim[0])}};
    return op_window_out(g, n, &w, &x, out, e);
}

i64 op_acc16(const struct node *n) { return attr_int(n, "acc16", 0); }

bool op_acc16_fits(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 v = op_acc16(nd);
    if (!v) return true;
    if (op_in_dtype(g, nd, 0) != DT_U8 || op_in_dtype(g, nd, 1) != DT_I8) return op_invalid(e, g, n, "attribute 'acc16' for other types than u8 and i8");
    return v == 2 || v == 4 || v == 8 || op_invalid(e, g, n, "attribute 'acc16' of %lld, not 2, 4 or 8", (long long)v);
}

bool op_is_promise(struct str attribute) { return str_is(attribute, "acc16") || str_is(attribute, "most") || str_is(attribute, "quern_appends"); }

enum dtype op_sum_type(enum dtype t) { return t == DT_U8 || t == DT_I8 || t == DT_I16 ? DT_I32 : t; }

bool op_matmul_shape(struct graph *g, node_id n, u32 ia, u32 ib, struct shape *out, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape a = *op_in_shape(g, nd, ia), b = *op_in_shape(g, nd, ib);
    struct shape ba = {.known = true, .rank = a.rank > 2 ? a.rank - 2 : 0}, bb = ba;
    if (!a.rank || !b.rank) return op_invalid(e, g, n, "a scalar operand");
    bb.rank = b.rank > 2 ? b.rank - 2 : 0;
    for (u32 i = 0; i < ba.rank; i++) ba.dim[i] = a.dim[i];
    for (u32 i = 0; i < bb.rank; i++) bb.dim[i] = b.dim[i];
    if (!op_broadcast(g, &ba, &bb, out)) 
        return op_invalid(e, g, n, "batch sizes of %.*s and %.*s do not broadcast", STR_ARG(op_shape_text(g, &a)),
                          STR_ARG(op_shape_text(g, &b)));
    if (!op_sizes_agree(g, a.dim[a.rank - 1], b.dim[b.rank > 1 ? b.rank - 2 : 0]))
        return op_invalid(e, g, n, "inner sizes of %.*s and %.*s differ", STR_ARG(op_shape_text(g, &a)),
                          STR_ARG(op_shape_text(g, &b)));
    if (a.rank > 1) out->dim[out->rank++] = a.dim[a.rank - 2];
    if (b.rank > 1) out->dim[out->rank++] = b.dim[b.rank - 1];
    return true;
}
