// SPDX-License-Identifier: Apache-2.0
//
// Types of an imported network's constants, with a correction of invalid ONNX: exporters that fold constants
// (PyTorch's, of batch normalisation into convolutions of bf16) leave them in f32 beside values of f16 or bf16, where
// the operator has one type for both. Such constants are converted to the type of the values, rounded to nearest
// even, as the exporter should have done. Computed values are not converted: there a Cast is missing in the network.
#include "import/import.h"
#include "op/op.h"

static bool is_real(const struct graph *g, value_id v)
{
    enum dtype t = v ? graph_value(g, v)->dtype : DT_NONE;
    return t != DT_NONE && dtype_is_float(t) && !dtype_is_small(t);
}

/* The type of the first computed input. */
static enum dtype computed_type(const struct graph *g, const struct node *n)
{
    for (u32 i = 0; i < n->in.n; i++)
        if (is_real(g, n->in.v[i]) && !graph_value(g, n->in.v[i])->data) return graph_value(g, n->in.v[i])->dtype;
    return DT_NONE;
}

static value_id converted(struct graph *g, value_id v, enum dtype t, struct err *e)
{
    const struct value x = *graph_value(g, v);
    struct tensor *to = tensor_try(g->arena, t, x.data->rank, x.data->dim, e, "constant", x.name);
    if (!to) return 0;
    for (i64 i = 0, n = tensor_count(to); i < n; i++) elem_set_f64(t, to->data, i, elem_f64(x.dtype, x.data->data, i));
    return graph_add_const(g, x.name, to);
}

bool import_fit_types(struct graph *g, node_id n, struct err *e)
{
    const struct op *op = op_of(g, n);
    if (!op || !(op->props & OP_ONE_TYPE)) return true;
    enum dtype t = computed_type(g, graph_node(g, n));
    for (u32 i = 0; t != DT_NONE && i < graph_node(g, n)->in.n; i++) {
        value_id v = graph_node(g, n)->in.v[i];
        if (is_real(g, v) && graph_value(g, v)->data && graph_value(g, v)->dtype != t) {
            value_id to = converted(g, v, t, e);
            if (!to) return false;
            graph_node(g, n)->in.v[i] = to;
        }
    }
    return true;
}
