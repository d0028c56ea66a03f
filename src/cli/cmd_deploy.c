// SPDX-License-Identifier: Apache-2.0
//
// quern deploy: a network over several devices, as a folder or a packed file.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void deploy_flags(const struct cli *c, struct quern_deploy_opts *o)
{
    o->name = opts_text(c, "name");
    o->f16 = opts_flag(c, "f16", false);
    o->fallback = opts_flag(c, "fallback", false);
    o->packed = opts_flag(c, "packed", false);
    o->no_tools = !opts_flag(c, "tools", true);
    o->key = opts_text(c, "key");
}

static int deploy(struct cli *c, quern_model *m, quern_db *db, struct samples *s)
{
    const char *list[MAX_PLACES + 1];
    struct quern_compile_opts compile = QUERN_OPTS(quern_compile_opts);
    struct quern_tune_opts tune = QUERN_OPTS(quern_tune_opts);
    struct quern_target_opts t = QUERN_OPTS(quern_target_opts);
    struct quern_deploy_opts o = QUERN_OPTS(quern_deploy_opts);
    const char *words = opts_words(c, "devices");
    char *text = words ? strdup(words) : NULL;
    int code = split_devices(c, text, list);
    deploy_flags(c, &o);
    compile_options(c, &compile, &t);
    t.devices = NULL; /* the option of that name is another one here */
    compile.prove = opts_flag(c, "prove", true);
    o.compile = &compile;
    o.devices = list, o.allocation_file = opts_text(c, "alloc");
    if (opts_text(c, "calibration")) o.sample = samples_read, o.user = s;
    tune.timeout = opts_number(c, "tune", 0);
    if (tune.timeout > 0) tune.target = &t, o.tune = &tune;
    if (!code) code = fail(c, quern_deploy(m, db, opts_text(c, "output"), &o));
    free(text);
    return s->code ? s->code : code;
}

static int run(struct cli *c)
{
    const char *data = opts_text(c, "calibration");
    quern_db *db = NULL;
    quern_model *m = NULL;
    struct samples s = {0};
    if (!opts_text(c, "output")) return usage_error(c, "-o is missing: the folder in which the deployment's is created");
    if (!opts_text(c, "alloc") && !opts_words(c, "devices")) return usage_error(c, "--alloc is missing: a file with the device of each operator (quern allocate), or --devices with one for all");
    int code = fail(c, open_model(c, c->arg[0], &m));
    if (!code && (opts_text(c, "db") || opts_text(c, "tune"))) code = open_db(c, c->arg[0], ".onnx", &db);
    if (!code && data) code = samples_open(&s, c, m, data, opts_count(c, "samples", 0));
    if (!code) code = deploy(c, m, db, &s);
    samples_close(&s);
    quern_db_close(db);
    quern_model_close(m);
    return code;
}

static const struct opt options[] = {
    OPT_OUTPUT("DIR", "folder in which the deployment's own is created; with --packed the file"),
    {"alloc", 0, OPT_TEXT, "FILE.json", "the device of each operator, by quern allocate or by hand"},
    {"devices", 0, OPT_WORDS, "X64:0,..", "devices with settings (doc/allocation.md); without --alloc the first one runs everything"},
    {"name", 0, OPT_TEXT, "NAME", "of the deployment (default: the network's)"},
    {"calibration", 0, OPT_TEXT, "DIR|FILE.npz", "samples of the inputs, for devices whose tools quantise, as for quern quantize"},
    {"samples", 0, OPT_COUNT, "N", "use only the first N samples (default: all)"},
    {"f16", 0, OPT_FLAG, NULL, "floats are f16 in inputs, outputs and between kernels"},
    {"fallback", 0, OPT_FLAG, NULL, "add a program for the processor to each sub-graph of another device, for where that is missing"},
    {"packed", 0, OPT_FLAG, NULL, "write one file instead of a folder"},
    {"tools", 0, OPT_FLAG, NULL, "run vendors' converters that are on PATH (default; --no-tools: do not)"},
    {"tune", 0, OPT_TIME, "TIME", "tune each sub-graph for this long before"},
    {"key", 'k', OPT_TEXT, "NAME.key", "sign with this private key (quern key)"},
    OPT_DB,
    {"isa", 0, OPT_TEXT, "NAME", "instruction set of X64 devices (default: this processor's)"},
    {"target-env", 0, OPT_TEXT, "vulkan1.N", "newest Vulkan version to target, N 0 to 4"},
    {"coopmat", 0, OPT_FLAG, NULL, "use matrix units if present (default; --no-coopmat: do not)"},
    OPT_INTERFACE,
    OPT_UNTUNED,
    OPT_PROVE,
    OPT_END,
};

const struct cmd cmd_deploy = {
    .name = "deploy",
    .summary = "divide a network over several devices, and write what runs on each",
    .notes = "The folder is described in doc/deployment.md, devices and allocations in doc/allocation.md. quern run runs it.",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
