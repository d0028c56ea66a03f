// SPDX-License-Identifier: Apache-2.0
//
// quern plot: plots the files of a run, again or if matplotlib was missing.
#include "cli.h"

static int run(struct cli *c) { return fail(c, quern_plot(c->q, c->arg[0])); }

const struct cmd cmd_plot = {
    .name = "plot",
    .summary = "plot the files of a run (doc/conv.md)",
    .args = "DIR",
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
