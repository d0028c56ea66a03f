// SPDX-License-Identifier: Apache-2.0
//
// quern export: conversion of a network or a program to another format. Options
// of a format are passed on unchanged; called as vkdt-denox, the format is vkdt.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct opt options[] = {
    OPT_OUTPUT("PATH", "file (onnx, tflite), folder of the sources (c, vulkan-c), or folder that the module's folder is created in (vkdt)"),
    {"to", 0, OPT_TEXT, "FORM", "target format: onnx, tflite, vkdt, c or vulkan-c"},
    {"opset", 0, OPT_TEXT, "N", "onnx: opset of the model, 13 to 18, in operators of ONNX's own domain alone"},
    {"isa", 0, OPT_TEXT, "ISA", "c: generic (default), armv7e-m, cortex-m55, rv32imac, x86-64 or aarch64"},
    {"prefix", 0, OPT_TEXT, "NAME", "c, vulkan-c: of files and identifiers (default: net; vulkan-c: the network's name)"},
    {"weights", 0, OPT_TEXT, "FILE", "c: weights as a file of this name, passed to the program, instead of arrays; vulkan-c: file (default) or array"},
    {"kernels", 0, OPT_TEXT, "WHERE", "vulkan-c: in C arrays or in files *.spv: array (default) or file"},
    {"threads", 0, OPT_COUNT, "N", "c: the program calls its kernels through a function of the caller, for at most N threads (default: 1, none)"},
    {"samples", 0, OPT_COUNT, "N", "c: inputs with known results in the test, 1 to 16 (default: 1)"},
    {"module-name", 0, OPT_TEXT, "NAME", "vkdt: name of the module, at most 8 characters"},
    {"suffix", 0, OPT_TEXT, "WORD", "vkdt: distinguishes several programs of one module; repeatable"},
    {"preprocessing", 0, OPT_TEXT, "FILE.comp",
     "vkdt: shader from picture to input (default: generated)"},
    {"post-processing", 0, OPT_TEXT, "FILE.comp", "vkdt: shader from output to picture (default: generated)"},
    {"src-dir", 0, OPT_TEXT, "DIR", "vkdt: folder for the sources, instead of the module's"},
    {"shader-dir", 0, OPT_TEXT, "DIR", "vkdt: folder for the kernels"},
    {"weight-dir", 0, OPT_TEXT, "DIR", "vkdt: folder for the weights"},
    {"bin-dir", 0, OPT_TEXT, "DIR", "vkdt: working folder of vkdt, relative to which the weights are found"},
    {"layout", 0, OPT_TEXT, "nchw|nhwc", "tflite: axes of inputs and outputs: the network's (default), or channels last"},
    {"interface", 0, OPT_TEXT, "TYPE", "tflite: type of inputs and outputs that are quantised: f32 (default), int8 or uint8"},
    {"for", 0, OPT_TEXT, "DEVICE", "tflite: edgetpu: refuse what its compiler does not map to the device"},
    {"mkdir", 'p', OPT_FLAG, NULL, "vkdt: create missing folders"},
    OPT_SIGNATURE,
    OPT_INTERFACE,
    OPT_END,
};

static bool is_for_form(const struct opt *o)
{
    for (const struct opt *k = options; k->name; k++)
        if (k == o) return strcmp(k->name, "output") && strcmp(k->name, "to") && strcmp(k->name, "require-signature") && strcmp(k->name, "trusted");
    return false;
}

/* "name=value" words, allocated; the list ends with NULL. */
static char **form_options(const struct cli *c)
{
    char **list = calloc((size_t)c->n_hits + 1, sizeof *list);
    for (int i = 0, n = 0; list && i < c->n_hits; i++) {
        const struct opt_hit *h = &c->hit[i];
        if (!is_for_form(h->opt) || h->is_off) continue;
        size_t size = strlen(h->opt->name) + (h->value ? strlen(h->value) : 0) + 2;
        if (!(list[n] = malloc(size))) break;
        snprintf(list[n++], size, "%s=%s", h->opt->name, h->value ? h->value : "");
    }
    return list;
}

static quern_status export_model(struct cli *c, const char *path, const struct quern_export_opts *o)
{
    quern_model *m;
    quern_status s = open_model(c, c->arg[0], &m);
    if (!s) s = quern_model_export(m, path, o);
    quern_model_close(m);
    return s;
}

static int run(struct cli *c)
{
    struct quern_export_opts o = QUERN_OPTS(quern_export_opts);
    o.to = opts_text(c, "to");
    if (!o.to) return usage_error(c, "--to is missing");
    char **list = form_options(c);
    o.option = (const char *const *)list;
    const char *path = opts_text(c, "output");
    bool is_model = c->n_args == 1 && !is_dnx(c->arg[0]);
    int code = fail(c, is_model ? export_model(c, path, &o) : quern_export(c->q, c->arg, c->n_args, path, &o));
    for (char **p = list; p && *p; p++) free(*p);
    free(list);
    return code;
}

const struct cmd cmd_export = {
    .name = "export",
    .summary = "convert a network or a program to another format",
    .args = "NET...",
    .min_args = 1,
    .max_args = MAX_IO,
    .options = options,
    .run = run,
};
