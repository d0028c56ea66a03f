// SPDX-License-Identifier: Apache-2.0
//
// QuantizeLinear and DequantizeLinear of whole tensors, as the passes of quantised networks see them.
#include "pass/pass_linear.h"

#include <stdlib.h>

bool linear_number(const struct graph *g, value_id v, double *number)
{
    const struct tensor *t = graph_value(g, v)->data;
    if (!t || tensor_count(t) != 1) return false;
    *number = elem_f64(t->dtype, t->data, 0);
    return true;
}

u32 linear_n_moved(const struct node *n)
{
    static const char *const ops[] = {"Transpose", "Reshape", "quern::Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "quern::Slice", "DepthToSpace", "SpaceToDepth", "MaxPool", "Identity"};
    if (n->out.n != 1) return 0;
    if (str_is(n->op, "Concat")) return n->in.n;
    for (u32 k = 0; k < countof(ops); k++)
        if (str_is(n->op, ops[k])) return 1;
    return 0;
}

i64 linear_most(enum dtype t, i64 zero)
{
    const i64 least = t == DT_U8 ? 0 : -128, most = least + 255;
    return i64_max(zero - least, most - zero);
}

bool linear_find(const struct graph *g, node_id n, const char *op, struct linear *l)
{
    const double least = 1e-30, most = 1e30;
    const struct node *x = n ? graph_node(g, n) : NULL;
    double zero = 0;
    if (!x || x->dead || !str_is(x->op, op) || attr_int(x, "block_size", 0) || attr_int(x, "precision", 0)) return false;
    bool back = str_is(x->op, "DequantizeLinear");
    const struct value *real = graph_value(g, back ? x->out.v[0] : x->in.v[0]), *bytes = graph_value(g, back ? x->in.v[0] : x->out.v[0]);
    l->type = bytes->dtype;
    if (real->dtype != DT_F32 || (l->type != DT_U8 && l->type != DT_I8)) return false;
    if (graph_value(g, x->in.v[LINEAR_SCALE])->dtype != DT_F32 || !linear_number(g, x->in.v[LINEAR_SCALE], &l->scale)) return false;
    if (op_has_in(x, LINEAR_ZERO) && !linear_number(g, x->in.v[LINEAR_ZERO], &zero)) return false;
    l->zero = (i64)zero;
    return l->scale >= least && l->scale <= most;
}

bool linear_bias_fits(const struct tensor *b, i64 terms)
{
    if (!b || b->dtype != DT_I32 || b->rank != 1 || terms > LINEAR_TERMS) return false;
    for (i64 i = 0; i < b->dim[0]; i++)
        if (llabs(elem_i64(DT_I32, b->data, i)) > INT32_MAX - terms * 255 * 255) return false;
    return true;
}
