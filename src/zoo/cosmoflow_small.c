// SPDX-License-Identifier: Apache-2.0
//
// CosmoFlow of MLPerf HPC for cubes of 32, small enough for slow devices and the reference
// evaluator.
#include "zoo/zoo.h"

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    cosmoflow(g, &cosmoflow_mlperf, 32, 7);
    return true;
}

const struct zoo zoo_cosmoflow_small = {
    .version = 2,
    .name = "cosmoflow-small",
    .summary = "CosmoFlow of MLPerf HPC, volumes (1,4,32,32,32), random weights",
    .build = build,
};
