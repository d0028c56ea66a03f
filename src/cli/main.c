// SPDX-License-Identifier: Apache-2.0
//
// The entry: finds the command, parses its options, opens a context, runs, reports
// the result. Each command is a file of its own; nothing here knows one by name.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *command_name(const void *list, int k)
{
    const struct cmd *c = cmd_at(k);
    return c ? c->name : NULL;
}

static int unknown_command(const char *word)
{
    const char *near = nearest(word, command_name, NULL);
    fprintf(stderr, "quern: no command '%s'", word);
    if (near) fprintf(stderr, ", did you mean '%s'?", near);
    else fprintf(stderr, ", see quern --help");
    fprintf(stderr, "\n");
    return EXIT_USAGE;
}

static int run_help(int argc, const char **argv)
{
    if (argc < 1) {
        help_print();
        return EXIT_DONE;
    }
    const struct cmd *c = cmd_find(argv[0]);
    if (!c) return unknown_command(argv[0]);
    help_command(c);
    return EXIT_DONE;
}

/* Words without a command. -1: none. */
static int run_alone(int argc, const char **argv)
{
    if (argc < 2) {
        help_print();
        return EXIT_USAGE;
    }
    const char *w = argv[1];
    if (!strcmp(w, "--help") || !strcmp(w, "-h") || !strcmp(w, "help"))
        return run_help(argc - 2, argv + 2);
    if (!strcmp(w, "--version") || !strcmp(w, "-V")) {
        printf("quern %s\n", quern_version());
        return EXIT_DONE;
    }
    if (!strcmp(w, "-d") && argc > 2 && !strcmp(argv[2], "list")) return help_stages();
    return -1;
}

static int run_command(struct cli *c)
{
    struct quern_opts o = QUERN_OPTS(quern_opts);
    o.on_event = progress_event;
    o.log_level = opts_flag(c, "quiet", false) ? 0 : opts_flag(c, "verbose", false) ? 3 : 2;
    o.dump = opts_text(c, "dump");
    o.dump_dir = opts_text(c, "dump-dir");
    o.require_signature = opts_flag(c, "require-signature", false);
    o.trusted = opts_text(c, "trusted");
    if (o.dump && !strcmp(o.dump, "list")) return help_stages();
    o.user = c->progress = progress_open(c);
    c->q = c->progress ? quern_open(&o) : NULL;
    int code = EXIT_FAILED;
    if (c->q) {
        stop_watch(c->q);
        code = c->cmd->run(c);
        stop_unwatch();
        if (stop_signal()) code = EXIT_SIGNAL + stop_signal();
    } else fprintf(stderr, "quern: out of memory\n");
    quern_close(c->q);
    progress_close(c->progress);
    return code;
}

static int run_line(int argc, const char **argv)
{
    int code = run_alone(argc, argv);
    if (code >= 0) return code;
    struct cli c = {.cmd = cmd_find(argv[1])};
    if (!c.cmd) return unknown_command(argv[1]);
    if (!opts_parse(&c, argc - 2, argv + 2)) code = EXIT_USAGE;
    else if (opts_flag(&c, "help", false)) help_command(c.cmd), code = EXIT_DONE;
    else if (c.n_args < c.cmd->min_args) code = usage_error(&c, "%s is missing", c.cmd->args);
    else if (c.n_args > c.cmd->max_args)
        code = usage_error(&c, "unexpected argument '%s'", c.arg[c.cmd->max_args]);
    else code = run_command(&c);
    opts_release(&c);
    return code;
}

int main(int argc, char **argv)
{
    const char **words = names_rewrite(&argc, argv);
    int code = words ? run_line(argc, words) : EXIT_FAILED;
    free(words);
    if (fflush(stdout) && code == EXIT_DONE) {
        perror("quern: standard output");
        code = EXIT_FAILED;
    }
    return code;
}
