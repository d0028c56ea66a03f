// SPDX-License-Identifier: Apache-2.0
//
// quern key: signing keys and trusted keys. new NAME, trust FILE [NAME], remove NAME|ID, list, id FILE.
#include "cli.h"

#include <stdio.h>
#include <string.h>

static int print_id(struct cli *c, const char *path)
{
    char id[33];
    int code = fail(c, quern_key_id(c->q, path, id));
    if (!code) printf("%s\n", id);
    return code;
}

static int make(struct cli *c)
{
    char secret[4096], open[4096];
    const char *name = c->arg[1];
    if (snprintf(secret, sizeof secret, "%s.key", name) >= (int)sizeof secret) return usage_error(c, "the name is too long");
    snprintf(open, sizeof open, "%s.pub", name);
    int code = fail(c, quern_key_new(c->q, secret, open));
    if (code) return code;
    if (!opts_flag(c, "json", false))
        fprintf(stderr, "quern: private key in %s: keep it secret; public key in %s: give it to those who should trust it\n", secret, open);
    return print_id(c, open);
}

/* dir/alice.pub -> alice */
static const char *name_of(const char *path, char *name, size_t size)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = strlen(base);
    if (has_suffix(base, ".pub") || has_suffix(base, ".pem")) n -= 4;
    snprintf(name, size, "%.*s", (int)n, base);
    return name;
}

static int trust(struct cli *c)
{
    char name[128];
    return fail(c, quern_key_trust(c->q, c->arg[1], c->n_args > 2 ? c->arg[2] : name_of(c->arg[1], name, sizeof name)));
}

static int distrust(struct cli *c) { return fail(c, quern_key_distrust(c->q, c->arg[1])); }

static int list(struct cli *c)
{
    char *text = NULL;
    int code = fail(c, quern_key_list(c->q, &text));
    if (!code) puts(text);
    quern_text_free(text);
    return code;
}

static int id(struct cli *c) { return print_id(c, c->arg[1]); }

static const struct action {
    const char *name;
    int min_args, max_args;
    int (*run)(struct cli *c);
} actions[] = {{"new", 2, 2, make}, {"trust", 2, 3, trust}, {"remove", 2, 2, distrust}, {"list", 1, 1, list}, {"id", 2, 2, id}};

static int run(struct cli *c)
{
    for (size_t k = 0; k < sizeof actions / sizeof *actions; k++) {
        const struct action *a = &actions[k];
        if (strcmp(a->name, c->arg[0])) continue;
        if (c->n_args >= a->min_args && c->n_args <= a->max_args) return a->run(c);
        return usage_error(c, "wrong number of arguments for '%s'", a->name);
    }
    return usage_error(c, "no action '%s', expected new, trust, remove, list or id", c->arg[0]);
}

static const struct opt options[] = {
    {"trusted", 0, OPT_TEXT, "PATH", "list: a public key, or a folder of *.pem (default: $XDG_CONFIG_HOME/quern/trusted)"},
    OPT_END,
};

const struct cmd cmd_key = {
    .name = "key",
    .summary = "create signing keys and manage trusted keys",
    .args = "new NAME | trust FILE.pub [NAME] | remove NAME|ID | list | id FILE",
    .min_args = 1,
    .max_args = 3,
    .options = options,
    .run = run,
};
