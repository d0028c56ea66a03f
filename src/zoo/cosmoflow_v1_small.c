// SPDX-License-Identifier: Apache-2.0
//
// CosmoFlow with one channel and seven convolutions for cubes of 64, small enough for slow devices
// and the reference evaluator.
#include "zoo/zoo.h"

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    cosmoflow(g, &cosmoflow_first, 64, 9);
    return true;
}

const struct zoo zoo_cosmoflow_v1_small = {
    .version = 2,
    .name = "cosmoflow-v1-small",
    .summary = "CosmoFlow of seven convolutions, volumes (1,1,64,64,64), random weights",
    .build = build,
};
