// SPDX-License-Identifier: Apache-2.0
//
// like: CastLike is Cast to the type of its second operand, which is known and whose elements it does not read. Constants become foldable (PyTorch's exporter
// writes biases and bounds so), and nothing waits for the second operand. requires: inferred.
#include "pass/pass.h"

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    for (node_id n = 1; n < g->node.n; n++) {
        struct node *x = graph_node(g, n);
        if (x->dead || !str_is(x->op, "CastLike")) continue;
        attr_set_int(g, n, "to", dtype_onnx(graph_value(g, x->in.v[1])->dtype));
        x = graph_node(g, n);
        x->op = S("Cast");
        x->in.n = 1;
        changed = true;
    }
    return changed;
}

const struct pass pass_like = {
    .version = 1,
    .name = "like",
    .summary = "conversions to the type of another value name the type",
    .rank = 108,
    .run = run,
};
