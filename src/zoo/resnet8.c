// SPDX-License-Identifier: Apache-2.0
//
// ResNet-8 of MLPerf Tiny: image classification, pictures of 32 x 32 to ten classes.
#include "zoo/zoo.h"

static value_id block(struct net *n, value_id x, const char *name, const struct zoo_tiny_conv *c)
{
    struct zoo_tiny_conv a = *c, b = *c, s = *c;
    a.name = net_part(n, name, "conv1");
    b.name = net_part(n, name, "conv2"), b.in = c->out, b.stride = 1, b.is_linear = true;
    s.name = net_part(n, name, "shortcut"), s.kernel[0] = s.kernel[1] = 1, s.is_linear = true;
    for (u32 i = 0; i < 2; i++) b.image[i] = (c->image[i] + c->stride - 1) / c->stride;
    value_id y = zoo_tiny_conv(n, zoo_tiny_conv(n, x, &a), &b);
    if (c->stride > 1) x = zoo_tiny_conv(n, x, &s);
    return net_op(n, "Relu", net_part(n, name, "relu"), net_op(n, "Add", net_part(n, name, "add"), y, x), 0);
}

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    struct net n = net_start(g, 33);
    value_id x = net_input(&n, "input", "1 3 32 32");
    x = zoo_tiny_conv(&n, x, &(struct zoo_tiny_conv){.name = "conv0", .in = 3, .out = 16, .kernel = {3, 3}, .stride = 1, .image = {32, 32}});
    i64 channels = 16, image = 32;
    for (i64 k = 0; k < 3; k++) {
        struct zoo_tiny_conv c = {.in = channels, .out = 16 << k, .kernel = {3, 3}, .stride = k ? 2 : 1, .image = {image, image}};
        x = block(&n, x, str_fmt(g->arena, "stack%lld", (long long)k + 1).p, &c);
        channels = c.out, image /= c.stride;
    }
    net_output(&n, zoo_tiny_softmax(&n, x, channels, 10), "output");
    return true;
}

const struct zoo zoo_resnet8 = {
    .version = 2,
    .name = "resnet8",
    .summary = "MLPerf Tiny's image classification, ResNet-8, (1,3,32,32), random weights",
    .build = build,
};
