// SPDX-License-Identifier: Apache-2.0
//
// quern sign: adds the signature of a key to a program.
#include "cli.h"

static int run(struct cli *c)
{
    const char *key = opts_text(c, "key");
    if (!key) return usage_error(c, "--key is missing: create one by quern key new NAME");
    return fail(c, quern_sign(c->q, c->arg[0], key, opts_flag(c, "only", false), opts_text(c, "output")));
}

static const struct opt options[] = {
    {"key", 'k', OPT_TEXT, "NAME.key", "the private key, created by quern key new"},
    OPT_OUTPUT("NET.dnx", "the signed program (default: in place)"),
    {"only", 0, OPT_FLAG, NULL, "remove the signatures of other keys"},
    OPT_END,
};

const struct cmd cmd_sign = {
    .name = "sign",
    .summary = "sign a program or a deployment (doc/signing.md)",
    .args = "NET.dnx|DEPLOYMENT",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
