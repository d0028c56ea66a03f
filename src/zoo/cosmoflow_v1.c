// SPDX-License-Identifier: Apache-2.0
//
// CosmoFlow with one channel and seven convolutions for cubes of 128: about 9 million weights, 16 GFLOP.
#include "zoo/zoo.h"

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    cosmoflow(g, &cosmoflow_first, 128, 8);
    return true;
}

const struct zoo zoo_cosmoflow_v1 = {
    .version = 2,
    .name = "cosmoflow-v1",
    .summary = "CosmoFlow of seven convolutions, volumes (1,1,128,128,128), random weights",
    .build = build,
};
