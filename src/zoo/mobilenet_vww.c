// SPDX-License-Identifier: Apache-2.0
//
// MobileNetV1, width 0.25, of MLPerf Tiny: visual wake words, pictures of 96 x 96 to two classes.
#include "zoo/zoo.h"

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    static const struct { i64 out, stride; } rows[] = {{16, 1}, {32, 2}, {32, 1}, {64, 2}, {64, 1}, {128, 2}, {128, 1},
                                                        {128, 1}, {128, 1}, {128, 1}, {128, 1}, {256, 2}, {256, 1}};
    struct net n = net_start(g, 32);
    i64 channels = 8, image = 48;
    value_id x = net_input(&n, "input", "1 3 96 96");
    x = zoo_tiny_conv(&n, x, &(struct zoo_tiny_conv){.name = "conv0", .in = 3, .out = channels, .kernel = {3, 3}, .stride = 2, .image = {96, 96}});
    for (i64 k = 0; k < countof(rows); k++) {
        x = zoo_tiny_separable(&n, x, str_fmt(g->arena, "block%lld", (long long)k + 1).p,
                               &(struct zoo_tiny_conv){.in = channels, .out = rows[k].out, .kernel = {3, 3}, .stride = rows[k].stride, .image = {image, image}});
        channels = rows[k].out, image /= rows[k].stride;
    }
    net_output(&n, zoo_tiny_softmax(&n, x, channels, 2), "output");
    return true;
}

const struct zoo zoo_mobilenet_vww = {
    .version = 2,
    .name = "mobilenet-vww",
    .summary = "MLPerf Tiny's visual wake words, MobileNetV1 0.25, (1,3,96,96), random weights",
    .build = build,
};
