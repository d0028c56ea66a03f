// SPDX-License-Identifier: Apache-2.0
//
// quern zoo: quern's built-in networks, as ONNX files.
#include "cli.h"

#include <stdio.h>

static int list(void)
{
    const char *name, *summary = "";
    for (int k = 0; (name = quern_zoo_name(k, &summary)); k++) printf("%-18s %s\n", name, summary);
    return EXIT_DONE;
}

static int run(struct cli *c)
{
    const char *out = opts_text(c, "output");
    quern_model *m = NULL;
    if (c->n_args < 1) return list();
    if (!out) return usage_error(c, "-o is missing");
    quern_status s = quern_model_zoo(c->q, c->arg[0], &m);
    if (!s) s = quern_model_save(m, out);
    int code = fail(c, s);
    quern_model_close(m);
    return code;
}

static const struct opt options[] = {
    OPT_OUTPUT("MODEL.onnx", "the model"),
    OPT_END,
};

const struct cmd cmd_zoo = {
    .name = "zoo",
    .summary = "list or write the built-in networks",
    .args = "[NAME]",
    .max_args = 1,
    .options = options,
    .run = run,
};
