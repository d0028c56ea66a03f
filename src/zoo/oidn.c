// SPDX-License-Identifier: Apache-2.0
//
// The U-Net of Open Image Denoise, base size: 914,627 parameters.
#include "zoo/zoo.h"

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    const struct unet_oidn c = {.ec1 = 32,
                                .ec2 = 48,
                                .ec3 = 64,
                                .ec4 = 80,
                                .ec5 = 96,
                                .dc4 = 112,
                                .dc3 = 96,
                                .dc2a = 64,
                                .dc2b = 64,
                                .dc1a = 64,
                                .dc1b = 32};
    unet_oidn(g, &c, 1);
    return true;
}

const struct zoo zoo_oidn = {
    .version = 2,
    .name = "oidn",
    .summary = "Open Image Denoise's U-Net, (1,3,H,W), random weights",
    .build = build,
};
