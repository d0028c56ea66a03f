// SPDX-License-Identifier: Apache-2.0
//
// quern export: conversion of a network or a program to another format. Options
// of a format are passed on unchanged; called as vkdt-denox, the format is vkdt.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct opt options[] = {
    OPT_OUTPUT("PATH", "file (onnx), or folder that the module's folder is created in (vkdt)"),
    {"to", 0, OPT_TEXT, "FORM", "target format: onnx or vkdt"},
    {"opset", 0, OPT_TEXT, "N", "onnx: opset of the model, 13 to 18, in operators of ONNX's own domain alone"},
    {"module-name", 0, OPT_TEXT, "NAME", "vkdt: name of the module, at most 8 characters"},
    {"suffix", 0, OPT_TEXT, "WORD", "vkdt: distinguishes several programs of one module; repeatable"},
    {"preprocessing", 0, OPT_TEXT, "FILE.comp",
     "vkdt: shader from picture to input (default: generated)"},
    {"post-processing", 0, OPT_TEXT, "FILE.comp", "vkdt: shader from output to picture (default: generated)"},
    {"src-dir", 0, OPT_TEXT, "DIR", "vkdt: folder for the sources, instead of the module's"},
    {"shader-dir", 0, OPT_TEXT, "DIR", "vkdt: folder for the kernels"},
    {"weight-dir", 0, OPT_TEXT, "DIR", "vkdt: folder for the weights"},
    {"bin-dir", 0, OPT_TEXT, "DIR", "vkdt: working folder of vkdt, relative to which the weights are found"},
    {"mkdir", 'p', OPT_FLAG, NULL, "vkdt: create missing folders"},
    OPT_SIGNATURE,
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

static int run(struct cli *c)
{
    struct quern_export_opts o = QUERN_OPTS(quern_export_opts);
    o.to = opts_text(c, "to");
    if (!o.to) return usage_error(c, "--to is missing");
    char **list = form_options(c);
    o.option = (const char *const *)list;
    int code = fail(c, quern_export(c->q, c->arg, c->n_args, opts_text(c, "output"), &o));
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
