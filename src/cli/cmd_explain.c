// SPDX-License-Identifier: Apache-2.0
//
// quern explain: for each dispatch the selected
// kernel, its alternatives, and their costs.
#include "cli.h"

#include <stdio.h>

static int run(struct cli *c)
{
    char *text = NULL;
    quern_status s = quern_explain(c->q, c->arg[0], &text);
    if (!s) fputs(text, stdout);
    quern_text_free(text);
    return fail(c, s);
}

static const struct opt options[] = {OPT_SIGNATURE, OPT_END};

const struct cmd cmd_explain = {
    .name = "explain",
    .summary = "print the selected kernels of a program and their alternatives",
    .args = "NET.dnx",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
