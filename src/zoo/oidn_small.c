// SPDX-License-Identifier: Apache-2.0
//
// The U-Net of Open Image Denoise, small size: 316,579 parameters.
#include "zoo/zoo.h"

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    const struct unet_oidn c = {.ec1 = 32,
                                .ec2 = 32,
                                .ec3 = 32,
                                .ec4 = 32,
                                .ec5 = 32,
                                .dc4 = 64,
                                .dc3 = 64,
                                .dc2a = 64,
                                .dc2b = 32,
                                .dc1a = 32,
                                .dc1b = 32};
    unet_oidn(g, &c, 2);
    return true;
}

const struct zoo zoo_oidn_small = {
    .version = 2,
    .name = "oidn-small",
    .summary = "the small variant of oidn, (1,3,H,W), random weights",
    .build = build,
};
