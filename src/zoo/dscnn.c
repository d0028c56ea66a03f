// SPDX-License-Identifier: Apache-2.0
//
// DS-CNN of MLPerf Tiny: keyword spotting, 49 frames of 10 coefficients, a convolution of 10 x 4 and four depthwise separable ones.
#include "zoo/zoo.h"

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    struct net n = net_start(g, 31);
    value_id x = net_input(&n, "input", "1 1 49 10");
    x = zoo_tiny_conv(&n, x, &(struct zoo_tiny_conv){.name = "conv0", .in = 1, .out = 64, .kernel = {10, 4}, .stride = 2, .image = {49, 10}});
    for (i64 k = 1; k <= 4; k++)
        x = zoo_tiny_separable(&n, x, str_fmt(g->arena, "block%lld", (long long)k).p,
                               &(struct zoo_tiny_conv){.in = 64, .out = 64, .kernel = {3, 3}, .stride = 1, .image = {25, 5}});
    net_output(&n, zoo_tiny_softmax(&n, x, 64, 12), "output");
    return true;
}

const struct zoo zoo_dscnn = {
    .version = 2,
    .name = "dscnn",
    .summary = "MLPerf Tiny's keyword spotting, DS-CNN, (1,1,49,10), random weights",
    .build = build,
};
