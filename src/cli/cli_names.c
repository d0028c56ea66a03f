// SPDX-License-Identifier: Apache-2.0
//
// Command lines of other tools, under whose names the command may be called. They are
// rewritten word by word into ours, which are then parsed and checked, so all of our options
// are available. Alternative spellings of options are aliases everywhere (cli_opts.c).
//
//   denox NET.onnx [options]                    compile; with --populate: populate
//   denox --bench=DB                            bench
//   denox compile | populate DB | bench | infer | dumpcsv ... (and all commands of ours)
//   vkdt-denox NET.dnx ...                      export --to vkdt
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct line {
    const char **v; /* words after the program's name */
    int n;
};

static void put(struct line *l, const char *word) { l->v[l->n++] = word; }

static bool has_word(int argc, char **argv, const char *option)
{
    size_t n = strlen(option);
    for (int i = 0; i < argc; i++)
        if (!strncmp(argv[i], option, n) && (!argv[i][n] || argv[i][n] == '=')) return true;
    return false;
}

static void put_rest(struct line *l, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) put(l, argv[i]);
}

/* Sizes that denox assumes are those that programs are optimised for: they stay symbolic. */
static void rename_assume(struct line *l)
{
    static const char option[] = "--assume";
    size_t n = sizeof option - 1;
    for (int i = 0; i < l->n; i++) {
        if (strncmp(l->v[i], option, n) || (l->v[i][n] && l->v[i][n] != '=')) continue;
        const char *value = l->v[i] + n + 1;
        bool is_joined = l->v[i][n] == '=';
        l->v[i] = "--optimize-for";
        if (!is_joined) continue;
        memmove(l->v + i + 2, l->v + i + 1, sizeof *l->v * (size_t)(l->n++ - i - 1));
        l->v[i + 1] = value;
    }
}

static bool is_database(const char *path)
{
    static const char magic[] = "SQLite format 3";
    char head[sizeof magic] = {0};
    if (has_suffix(path, ".db")) return true;
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(head, 1, sizeof head, f) : 0;
    if (f) fclose(f);
    return n == sizeof head && !memcmp(head, magic, sizeof magic);
}

static bool has_database(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (argv[i][0] != '-' && is_database(argv[i])) return true;
    return false;
}

/* The value of --name=VALUE, or of --name VALUE, which takes *words words; NULL: neither. */
static const char *long_value(int argc, char **argv, int i, const char *name, int *words)
{
    size_t n = strlen(name);
    *words = 1;
    if (strncmp(argv[i], name, n)) return NULL;
    if (argv[i][n] == '=') return argv[i] + n + 1;
    *words = 2;
    return !argv[i][n] && i + 1 < argc ? argv[i + 1] : NULL;
}

/* Programs are for the GPU unless the command line says otherwise. */
static void put_device(struct line *l, int argc, char **argv)
{
    if (!has_word(argc, argv, "--device")) put(l, "--device=vulkan");
}

/* Without a command: --populate and --bench select one. */
static void put_old(struct line *l, int argc, char **argv)
{
    const char *command = "compile", *db = NULL;
    int words, at = l->n;
    put(l, NULL);
    for (int i = 0; i < argc; i += words) {
        const char *v = long_value(argc, argv, i, "--bench", &words);
        if (v) {
            command = "bench", db = v;
            continue;
        }
        words = 1;
        if (!strcmp(argv[i], "--populate")) command = "populate";
        else put(l, argv[i]);
    }
    l->v[at] = command;
    if (db) put(l, db);
    else put_device(l, argc, argv);
}

/* Its commands with other names here; ours; or none. */
static void put_denox(struct line *l, int argc, char **argv)
{
    const char *w = argv[0];
    bool runs = !strcmp(w, "bench") && !has_database(argc - 1, argv + 1);
    if (runs) put(l, "run"), put(l, "--bench");
    else if (!strcmp(w, "infer")) put(l, "run");
    else if (!strcmp(w, "dumpcsv")) put(l, "db"), put(l, "export");
    else if (cmd_find(w)) put(l, w);
    else {
        put_old(l, argc, argv);
        return;
    }
    if (!strcmp(w, "compile") || !strcmp(w, "populate")) put_device(l, argc, argv);
    put_rest(l, argc - 1, argv + 1);
}

/* Words that need no command are the same under every name. */
static bool stands_alone(int argc, char **argv)
{
    static const char *const words[] = {"--version", "-V", "--help", "-h", "help"};
    for (size_t k = 0; argc && k < sizeof words / sizeof *words; k++)
        if (!strcmp(argv[0], words[k])) return true;
    return argc == 0;
}

const char **names_rewrite(int *argc, char **argv)
{
    enum { MORE = 4 }; /* maximal number of words that a rewriting adds, except values that followed a = */
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    struct line l = {.v = calloc(2 * (size_t)*argc + MORE + 1, sizeof *l.v)};
    if (!l.v) return NULL;
    put(&l, argv[0]);
    int n = *argc - 1;
    if (stands_alone(n, argv + 1)) put_rest(&l, n, argv + 1);
    else if (!strcmp(name, "denox")) put_denox(&l, n, argv + 1), rename_assume(&l);
    else if (!strcmp(name, "vkdt-denox")) {
        put(&l, "export"), put(&l, "--to"), put(&l, "vkdt");
        put_rest(&l, n, argv + 1);
    } else put_rest(&l, n, argv + 1);
    *argc = l.n;
    return l.v;
}
