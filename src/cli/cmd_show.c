// SPDX-License-Identifier: Apache-2.0
//
// quern show: any file type of quern, as text; explains a kernel's name.
#include "cli.h"

#include <stdio.h>

/* Opens a model like other commands with these options. */
static quern_status show_model(struct cli *c, const char *path, char **text)
{
    quern_model *m;
    quern_status s = open_model(c, path, &m);
    if (!s) s = quern_model_text(m, text);
    quern_model_close(m);
    return s;
}

static int run(struct cli *c)
{
    char *text = NULL;
    quern_status s = has_model_options(c) ? show_model(c, c->arg[0], &text) : quern_show(c->q, c->arg[0], &text);
    if (!s) fputs(text, stdout);
    quern_text_free(text);
    return fail(c, s);
}

static const struct opt options[] = {OPT_INTERFACE, OPT_SIGNATURE, OPT_END};

const struct cmd cmd_show = {
    .name = "show",
    .summary = "print a model, program, deployment, kernel, SPIR-V module or database; explain a kernel's name",
    .args = "FILE|NAME",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
