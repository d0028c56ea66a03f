// SPDX-License-Identifier: Apache-2.0
//
// identity: removes nodes without effect (pass_same.c). requires: inferred.
#include "pass/pass.h"

static bool run(struct graph *g, bool *ok, struct err *e) { return pass_drop_same(g); }

const struct pass pass_identity = {
    .version = 1,
    .name = "identity",
    .summary = "removes identity nodes",
    .rank = 110,
    .run = run,
};
