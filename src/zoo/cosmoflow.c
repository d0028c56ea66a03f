// SPDX-License-Identifier: Apache-2.0
//
// CosmoFlow of MLPerf HPC for cubes of 128: about 9 million weights, 69 GFLOP.
#include "zoo/zoo.h"

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    cosmoflow(g, &cosmoflow_mlperf, 128, 6);
    return true;
}

const struct zoo zoo_cosmoflow = {
    .version = 2,
    .name = "cosmoflow",
    .summary = "CosmoFlow of MLPerf HPC, volumes (1,4,128,128,128), random weights",
    .build = build,
};
