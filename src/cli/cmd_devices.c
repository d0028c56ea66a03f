// SPDX-License-Identifier: Apache-2.0
//
// quern devices: the devices as JSON; the driver errors of one.
#include "cli.h"

#include <stdio.h>

static int run(struct cli *c)
{
    char *text = NULL;
    bool examine = opts_flag(c, "examine", false);
    quern_status s = examine ? quern_examine(c->q, opts_text(c, "device"), &text) : quern_devices(c->q, &text);
    if (!s) fputs(text, stdout);
    if (!s && !examine) putchar('\n');
    quern_text_free(text);
    return fail(c, s);
}

static const struct opt options[] = {
    {"examine", 0, OPT_FLAG, NULL, "test every scalar operation of one device on difficult values, against the interpreter"},
    {"device", 0, OPT_TEXT, "GLOB", "device to examine (default: cpu)"},
    OPT_END,
};

const struct cmd cmd_devices = {
    .name = "devices",
    .summary = "list devices, or examine one",
    .args = "",
    .options = options,
    .run = run,
};
