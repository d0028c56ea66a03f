// SPDX-License-Identifier: Apache-2.0
//
// The U-Net of Open Image Denoise: four levels, each halved by a maximum pool; on the way up
// nearest doubling and concatenation with what was there on the way down (the decoder's tensor
// first). All convolutions 3x3 with zero padding and ReLU, but the last one without. Padding to a
// multiple of 16 by the border and cropping at the end make any size work.
#include "zoo/zoo.h"

static value_id conv(struct net *n, value_id x, const char *name, i64 in, i64 out)
{
    return net_conv_relu(
        n, x, &(struct net_conv){.name = name, .in = in, .out = out, .size = 3, .pad = 1});
}

/* Doubles x and appends skip. */
static value_id join(struct net *n, value_id x, value_id skip, const char *name)
{
    const char *up = str_fmt(n->g->arena, "up%s", name).p,
               *cat = str_fmt(n->g->arena, "concat%s", name).p;
    return net_concat(n, net_up(n, x, up), skip, cat);
}

void unet_oidn(struct graph *g, const struct unet_oidn *c, u64 seed)
{
    struct net n = net_start(g, seed);
    value_id size, in = net_pad_to(&n, net_input(&n, "input", "1 3 H W"), 16, &size);
    value_id x = conv(&n, in, "enc_conv0", 3, c->ec1);
    value_id pool1 = net_pool(&n, conv(&n, x, "enc_conv1", c->ec1, c->ec1), "pool1", 2, 2, 0);
    value_id pool2 = net_pool(&n, conv(&n, pool1, "enc_conv2", c->ec1, c->ec2), "pool2", 2, 2, 0);
    value_id pool3 = net_pool(&n, conv(&n, pool2, "enc_conv3", c->ec2, c->ec3), "pool3", 2, 2, 0);
    value_id pool4 = net_pool(&n, conv(&n, pool3, "enc_conv4", c->ec3, c->ec4), "pool4", 2, 2, 0);
    x = conv(&n, pool4, "enc_conv5a", c->ec4, c->ec5);
    x = conv(&n, x, "enc_conv5b", c->ec5, c->ec5);
    x = conv(&n, join(&n, x, pool3, "4"), "dec_conv4a", c->ec5 + c->ec3, c->dc4);
    x = conv(&n, x, "dec_conv4b", c->dc4, c->dc4);
    x = conv(&n, join(&n, x, pool2, "3"), "dec_conv3a", c->dc4 + c->ec2, c->dc3);
    x = conv(&n, x, "dec_conv3b", c->dc3, c->dc3);
    x = conv(&n, join(&n, x, pool1, "2"), "dec_conv2a", c->dc3 + c->ec1, c->dc2a);
    x = conv(&n, x, "dec_conv2b", c->dc2a, c->dc2b);
    x = conv(&n, join(&n, x, in, "1"), "dec_conv1a", c->dc2b + 3, c->dc1a);
    x = conv(&n, x, "dec_conv1b", c->dc1a, c->dc1b);
    x = net_conv(
        &n, x,
        &(struct net_conv){.name = "dec_conv0", .in = c->dc1b, .out = 3, .size = 3, .pad = 1});
    net_output(&n, net_crop(&n, x, size), "output");
}
