// SPDX-License-Identifier: Apache-2.0
//
// The registry of commands, and help generated from their tables.
#include "cli.h"

#include <stdio.h>
#include <string.h>

#define X(name) extern const struct cmd cmd_##name;
#include "cmd.inc"
#undef X

static const struct cmd *const commands[] = {
#define X(name) &cmd_##name,
#include "cmd.inc"
#undef X
    NULL,
};

static const struct opt common[] = {
    {"json", 0, OPT_FLAG, NULL, "events and results as JSON objects, one a line"},
    {"quiet", 'q', OPT_FLAG, NULL, "errors only"},
    {"verbose", 'v', OPT_FLAG, NULL, "more messages"},
    {"dump", 'd', OPT_TEXT, "STAGE,STAGE", "print the results of these stages (-d list lists them)"},
    {"dump-dir", 0, OPT_TEXT, "DIR", "put dumps into files there"},
    {"help", 'h', OPT_FLAG, NULL, "this text"},
    OPT_END,
};

const struct opt *opts_common(void) { return common; }

const struct cmd *cmd_at(int k)
{
    return k < (int)(sizeof commands / sizeof *commands) ? commands[k] : NULL;
}

const struct cmd *cmd_find(const char *name)
{
    for (int k = 0; commands[k]; k++)
        if (!strcmp(commands[k]->name, name)) return commands[k];
    return NULL;
}

void help_print(void)
{
    printf("usage: quern COMMAND [options]\n\n"
           "Compiles neural networks to the fastest native kernels measured on the device.\n\ncommands:\n");
    for (int k = 0; commands[k]; k++)
        printf("  %-10s %s\n", commands[k]->name, commands[k]->summary);
    printf("\nquern COMMAND --help lists a command's options, quern -d list the stages to dump; quern --version.\n"
           "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing measured or chosen.\n");
}

static void print_option(const struct opt *o)
{
    char left[64];
    int n = o->letter ? snprintf(left, sizeof left, "-%c, ", o->letter)
                      : snprintf(left, sizeof left, "    ");
    snprintf(left + n, sizeof left - (size_t)n, "--%s%s%s", o->name, o->arg ? " " : "",
             o->arg ? o->arg : "");
    printf("  %-34s %s\n", left, o->help ? o->help : "");
}

void help_command(const struct cmd *c)
{
    printf("usage: quern %s%s%s [options]\n\n%s\n", c->name, *c->args ? " " : "", c->args, c->summary);
    printf("%s%s\noptions:\n", c->notes ? c->notes : "", c->notes ? "\n" : "");
    for (const struct opt *o = c->options; o && o->name; o++) print_option(o);
    for (const struct opt *o = common; o->name; o++) print_option(o);
}

int help_stages(void)
{
    const char *name, *summary;
    for (int k = 0; (name = quern_stages(k, &summary)); k++) printf("%-12s %s\n", name, summary);
    return EXIT_DONE;
}
