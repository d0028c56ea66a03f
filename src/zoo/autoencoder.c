// SPDX-License-Identifier: Apache-2.0
//
// Autoencoder of MLPerf Tiny: detection of anomalies in sounds, five frames of 128 bands through a bottleneck of 8.
#include "zoo/zoo.h"

#include <math.h>

static bool build(struct graph *g, const i64 *sizes, struct err *e)
{
    static const i64 width[] = {640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640};
    struct net n = net_start(g, 34);
    value_id x = net_input(&n, "input", "1 640");
    for (i64 k = 1; k < countof(width); k++) {
        const char *name = str_fmt(g->arena, "dense%lld", (long long)k).p;
        x = net_linear(&n, x, name, width[k - 1], width[k], sqrt(2 / (double)width[k - 1]));
        if (k + 1 < countof(width)) x = net_op(&n, "Relu", net_part(&n, name, "relu"), x, 0);
    }
    net_output(&n, x, "output");
    return true;
}

const struct zoo zoo_autoencoder = {
    .version = 2,
    .name = "autoencoder",
    .summary = "MLPerf Tiny's anomaly detection, autoencoder, (1,640), random weights",
    .build = build,
};
