// SPDX-License-Identifier: Apache-2.0
//
// quern devices: the devices as JSON; conformance test or measured rates of one.
#include "cli.h"

#include <stdio.h>

static quern_status measure(struct cli *c, char **text)
{
    struct quern_target_opts target = QUERN_OPTS(quern_target_opts);
    struct quern_measure_opts o = QUERN_OPTS(quern_measure_opts);
    target.isa = opts_text(c, "isa");
    o.device = opts_text(c, "device"), o.threads = (int)opts_count(c, "threads", 0), o.target = &target;
    return quern_measure(c->q, &o, text);
}

static int run(struct cli *c)
{
    char *text = NULL;
    bool tests = opts_flag(c, "conformance", false), measures = opts_flag(c, "measure", false);
    quern_status s = tests      ? quern_test_conformance(c->q, opts_text(c, "device"), &text)
                     : measures ? measure(c, &text)
                                : quern_devices(c->q, &text);
    if (!s) fputs(text, stdout);
    if (!s && !tests && !measures) putchar('\n');
    quern_text_free(text);
    return fail(c, s);
}

static const struct opt options[] = {
    {"conformance", 0, OPT_FLAG, NULL, "test every scalar operation of one device on difficult values, against the interpreter"},
    {"measure", 0, OPT_FLAG, NULL, "measure how fast one device is: arithmetic, memory, launches; the rates are cached"},
    {"device", 0, OPT_TEXT, "GLOB", "device to test or measure (default: cpu)"},
    OPT_THREADS,
    {"isa", 0, OPT_TEXT, "ISA", "measure with this instruction set (default: the processor's)"},
    OPT_END,
};

const struct cmd cmd_devices = {
    .name = "devices",
    .summary = "list devices, or test or measure one",
    .args = "",
    .options = options,
    .run = run,
};
