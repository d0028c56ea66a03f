// SPDX-License-Identifier: Apache-2.0
//
// ResNet-50 v1.5: the stride of a bottleneck is in its 3x3 convolution. Batch norms are separate
// nodes with seeded statistics, so that their folding is part of the compilation; the last one of
// each branch is small, to bound the sums of 16 blocks.
#include "zoo/zoo.h"

struct block {
    i64 in, mid, stride;
    bool has_shortcut; /* a 1x1 convolution if sizes change */
};

static const char *sub(struct net *n, const char *name, const char *part)
{
    return str_fmt(n->g->arena, "%s.%s", name, part).p;
}

static value_id conv_bn(struct net *n, value_id x, const struct net_conv *c, double scale)
{
    struct net_conv k = *c;
    k.no_bias = true;
    return net_batch_norm(n, net_conv(n, x, &k), sub(n, c->name, "bn"), c->out, scale);
}

static value_id conv_bn_relu(struct net *n, value_id x, const struct net_conv *c)
{
    return net_op(n, "Relu", sub(n, c->name, "relu"), conv_bn(n, x, c, 1), 0);
}

static value_id bottleneck(struct net *n, value_id x, const char *name, const struct block *b)
{
    i64 out = 4 * b->mid;
    value_id y = conv_bn_relu(
        n, x,
        &(struct net_conv){.name = sub(n, name, "conv1"), .in = b->in, .out = b->mid, .size = 1});
    y = conv_bn_relu(n, y,
                     &(struct net_conv){.name = sub(n, name, "conv2"),
                                        .in = b->mid,
                                        .out = b->mid,
                                        .size = 3,
                                        .stride = b->stride,
                                        .pad = 1});
    y = conv_bn(
        n, y,
        &(struct net_conv){.name = sub(n, name, "conv3"), .in = b->mid, .out = out, .size = 1},
        0.3);
    if (b->has_shortcut)
        x = conv_bn(n, x,
                    &(struct net_conv){.name = sub(n, name, "downsample"),
                                       .in = b->in,
                                       .out = out,
                                       .size = 1,
                                       .stride = b->stride},
                    0.7);
    return net_op(n, "Relu", sub(n, name, "relu"), net_op(n, "Add", sub(n, name, "add"), y, x), 0);
}

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    static const i64 blocks[] = {3, 4, 6, 3};
    struct net n = net_start(g, 4);
    value_id x = net_input(&n, "input", "1 3 224 224");
    x = conv_bn_relu(
        &n, x,
        &(struct net_conv){.name = "conv1", .in = 3, .out = 64, .size = 7, .stride = 2, .pad = 3});
    x = net_pool(&n, x, "maxpool", 3, 2, 1);
    i64 channels = 64;
    for (i64 layer = 0; layer < 4; layer++) {
        for (i64 k = 0; k < blocks[layer]; k++) {
            struct block b = {.in = channels,
                              .mid = 64 << layer,
                              .stride = k == 0 && layer > 0 ? 2 : 1,
                              .has_shortcut = k == 0};
            x = bottleneck(
                &n, x, str_fmt(g->arena, "layer%lld.%lld", (long long)layer + 1, (long long)k).p,
                &b);
            channels = 4 * b.mid;
        }
    }
    net_output(&n, net_classify(&n, x, channels, 1000), "output");
    return true;
}

const struct zoo zoo_resnet50 = {
    .version = 2,
    .name = "resnet50",
    .summary = "ResNet-50 v1.5, (1,3,224,224), batch norms not folded, random weights",
    .build = build,
};
