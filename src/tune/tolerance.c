// SPDX-License-Identifier: Apache-2.0
//
// Tolerances of whole networks, from those of single tasks (check.c).
#include "tune/tune.h"

#include <math.h>

/* Number of convolutions, matmuls and reductions, where errors accumulate. */
static double count_layers(const struct graph *g)
{
    double layers = 1;
    for (node_id n = 1; n < g->node.n; n++)
        if (!graph_node(g, n)->dead &&
            (op_of(g, n)->props & (OP_CONV | OP_MATMUL | OP_REDUCE | OP_HEAVY)))
            layers++;
    return layers;
}

/* In f32, sums dominate the error, and their lengths add up; in smaller types every layer rounds,
   and rounding errors add up like a random walk. */
void network_tolerance(const struct graph *g, enum dtype t, const i64 *var, double *rtol, double *atol)
{
    double layers = count_layers(g);
    check_tolerance(t, graph_depth(g, var) * layers, rtol, atol);
    if (t == DT_F16 || t == DT_BF16) *atol *= sqrt(layers);
}
