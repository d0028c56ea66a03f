// SPDX-License-Identifier: Apache-2.0
//
// quern show: any file quern knows, as text; a kernel's name, in words.
#include "cli.h"

#include <stdio.h>

static int run(struct cli *c)
{
    char *text = NULL;
    quern_status s = quern_show(c->q, c->arg[0], &text);
    if (!s) fputs(text, stdout);
    quern_text_free(text);
    return fail(c, s);
}

const struct cmd cmd_show = {
    .name = "show",
    .summary = "print any file quern knows: model, program, kernel, SPIR-V, database; explain a kernel's name",
    .args = "FILE|NAME",
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
