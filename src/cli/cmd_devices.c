// SPDX-License-Identifier: Apache-2.0
//
// quern devices: what is present here, as JSON.
#include "cli.h"

#include <stdio.h>

static int run(struct cli *c)
{
    char *text = NULL;
    quern_status s = quern_devices(c->q, &text);
    if (!s) puts(text);
    quern_text_free(text);
    return fail(c, s);
}

const struct cmd cmd_devices = {
    .name = "devices",
    .summary = "list the devices that are present",
    .args = "",
    .run = run,
};
