// SPDX-License-Identifier: Apache-2.0
//
// The six-level U-Net of vkdt's denoiser: 1,023,692 parameters. One convolution and a maximum pool
// per level on the way down, two convolutions on the way up; 12 output channels (a 2x2 block of RGB
// per pixel), cropped to the input's size.
#include "zoo/zoo.h"

enum { LEVELS = 6 };

static value_id conv(struct net *n, value_id x, const char *name, i64 in, i64 out)
{
    return net_conv(n, x,
                    &(struct net_conv){.name = name, .in = in, .out = out, .size = 3, .pad = 1});
}

static const char *level_name(struct net *n, const char *what, i64 level)
{
    return str_fmt(n->g->arena, "%s%lld", what, (long long)level).p;
}

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    static const i64 down[LEVELS + 1] = {3, 32, 48, 64, 80, 112, 112},
                                   up[LEVELS] = {112, 80, 64, 48, 16, 12};
    struct net n = net_start(g, 3);
    value_id size, skip[LEVELS + 1];
    skip[0] = net_pad_to(&n, net_input(&n, "input", "1 3 H W"), 64, &size);
    for (i64 k = 0; k < LEVELS; k++) {
        value_id x = conv(&n, skip[k], level_name(&n, "enc", k), down[k], down[k + 1]);
        x = net_op(&n, "Relu", level_name(&n, "enc_relu", k), x, 0);
        skip[k + 1] = net_pool(&n, x, level_name(&n, "pool", k), 2, 2, 0);
    }
    value_id x = skip[LEVELS];
    i64 channels = down[LEVELS];
    for (i64 k = 0; k < LEVELS; k++) {
        i64 from = LEVELS - 1 - k;
        x = net_concat(&n, net_up(&n, x, level_name(&n, "up", k)), skip[from],
                       level_name(&n, "concat", k));
        x = conv(&n, x, level_name(&n, "dec", k), channels + down[from], up[k]);
        x = net_op(&n, "Relu", level_name(&n, "dec_relu", k), x, 0);
        x = conv(&n, x, level_name(&n, "con", k), up[k], up[k]);
        if (k < LEVELS - 1) x = net_op(&n, "Relu", level_name(&n, "con_relu", k), x, 0);
        channels = up[k];
    }
    net_output(&n, net_crop(&n, x, size), "output");
    return true;
}

const struct zoo zoo_vkdt_unet = {
    .version = 2,
    .name = "vkdt-unet",
    .summary = "vkdt's six-level U-Net, (1,3,H,W) to (1,12,H,W), random weights",
    .build = build,
};
