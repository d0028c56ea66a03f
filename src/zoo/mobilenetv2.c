// SPDX-License-Identifier: Apache-2.0
//
// MobileNetV2, width 1: inverted residuals (1x1 up, 3x3 per channel, 1x1 down without activation),
// values clipped to 0..6.
#include "zoo/zoo.h"

static const char *sub(struct net *n, const char *name, const char *part)
{
    return str_fmt(n->g->arena, "%s.%s", name, part).p;
}

static value_id conv_bn(struct net *n, value_id x, const struct net_conv *c)
{
    struct net_conv k = *c;
    k.no_bias = true;
    return net_batch_norm(n, net_conv(n, x, &k), sub(n, c->name, "bn"), c->out, 1);
}

static value_id scalar(struct net *n, const char *name, double v)
{
    struct tensor *t = net_floats(n, 0, NULL);
    elem_set_f64(DT_F32, t->data, 0, v);
    return graph_add_const(n->g, str_of(name), t);
}

static value_id conv_bn_clip(struct net *n, value_id x, const struct net_conv *c)
{
    const char *name = sub(n, c->name, "clip");
    value_id in[] = {conv_bn(n, x, c), scalar(n, sub(n, name, "min"), 0),
                     scalar(n, sub(n, name, "max"), 6)};
    return graph_op(n->g, "Clip", str_of(name), 3, in);
}

struct block {
    i64 in, out, expand, stride;
};

static value_id inverted_residual(struct net *n, value_id x, const char *name,
                                  const struct block *b)
{
    i64 mid = b->in * b->expand;
    value_id y = x;
    if (b->expand > 1)
        y = conv_bn_clip(
            n, y,
            &(struct net_conv){.name = sub(n, name, "expand"), .in = b->in, .out = mid, .size = 1});
    struct net_conv depthwise = {.name = sub(n, name, "depthwise"),
                                 .in = mid,
                                 .out = mid,
                                 .size = 3,
                                 .stride = b->stride,
                                 .pad = 1,
                                 .groups = mid};
    y = conv_bn_clip(n, y, &depthwise);
    y = conv_bn(
        n, y,
        &(struct net_conv){.name = sub(n, name, "project"), .in = mid, .out = b->out, .size = 1});
    return b->in == b->out && b->stride == 1 ? net_op(n, "Add", sub(n, name, "add"), x, y) : y;
}

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    static const struct {
        i64 expand, out, count, stride;
    } rows[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    struct net n = net_start(g, 5);
    value_id x = net_input(&n, "input", "1 3 224 224");
    x = conv_bn_clip(
        &n, x,
        &(struct net_conv){.name = "conv0", .in = 3, .out = 32, .size = 3, .stride = 2, .pad = 1});
    i64 channels = 32, index = 0;
    for (i64 r = 0; r < countof(rows); r++)
        for (i64 k = 0; k < rows[r].count; k++) {
            struct block b = {.in = channels,
                              .out = rows[r].out,
                              .expand = rows[r].expand,
                              .stride = k == 0 ? rows[r].stride : 1};
            x = inverted_residual(&n, x, str_fmt(g->arena, "block%lld", (long long)++index).p, &b);
            channels = b.out;
        }
    x = conv_bn_clip(&n, x,
                     &(struct net_conv){.name = "head", .in = channels, .out = 1280, .size = 1});
    net_output(&n, net_classify(&n, x, 1280, 1000), "output");
    return true;
}

const struct zoo zoo_mobilenetv2 = {
    .version = 2,
    .name = "mobilenetv2",
    .summary = "MobileNetV2, (1,3,224,224), batch norms not folded, random weights",
    .build = build,
};
