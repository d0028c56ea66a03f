// SPDX-License-Identifier: Apache-2.0
//
// quern db: maintenance of databases. merge DB OTHER..., stats DB, export
// DB [FILE.csv], prune DB failed|foreign|losers, repair DB -o NEW.db.
#include "cli.h"

#include <stdio.h>
#include <string.h>

static quern_status stats(struct cli *c, quern_db *db)
{
    char *text = NULL;
    quern_status s = quern_db_stats(db, &text);
    if (!s) puts(text);
    quern_text_free(text);
    return s;
}

static quern_status merge(struct cli *c, quern_db *db)
{
    quern_status s = QUERN_OK;
    for (int k = 2; k < c->n_args && !s; k++) {
        int64_t n = 0;
        s = quern_db_merge(db, c->arg[k], &n);
        if (!s) printf("%s: %lld new samples\n", c->arg[k], (long long)n);
    }
    return s;
}

static quern_status export(struct cli *c, quern_db *db)
{
    const char *out = opts_text(c, "output");
    return quern_db_export(db, c->n_args > 2 ? c->arg[2] : out ? out : "-");
}

static quern_status prune(struct cli *c, quern_db *db)
{
    int64_t n = 0;
    quern_status s = quern_db_prune(db, c->arg[2], &n);
    if (!s) printf("%lld trials removed\n", (long long)n);
    return s;
}

static const struct action {
    const char *name;
    int min_args, max_args;
    quern_status (*run)(struct cli *c, quern_db *db);
} actions[] = {{"merge", 3, 64, merge},
               {"stats", 2, 2, stats},
               {"export", 2, 3, export},
               {"prune", 3, 3, prune},
               {"repair", 2, 2, NULL}};

/* The database is damaged and therefore not opened. */
static int repair(struct cli *c)
{
    const char *out = opts_text(c, "output");
    struct quern_db_saved x = QUERN_OPTS(quern_db_saved);
    if (!out) return usage_error(c, "-o is missing: repair writes a new file");
    quern_status s = quern_db_repair(c->q, c->arg[1], out, &x);
    if (s) return fail(c, s);
    printf("%s: %lld tasks, %lld trials, %lld samples\n", out, (long long)x.tasks, (long long)x.trials, (long long)x.samples);
    printf("%lld pages, %lld damaged, %lld of them corrected by their checksums; lost: %lld frames of the log, %lld samples without"
           " their trials\n",
           (long long)x.pages, (long long)x.damaged, (long long)x.corrected, (long long)x.lost_frames, (long long)x.orphans);
    return EXIT_DONE;
}

static bool exists(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f) fclose(f);
    return f != NULL;
}

static int run(struct cli *c)
{
    const struct action *a = NULL;
    quern_db *db = NULL;
    for (size_t k = 0; k < sizeof actions / sizeof *actions; k++)
        if (!strcmp(actions[k].name, c->arg[0])) a = &actions[k];
    if (!a)
        return usage_error(c, "no action '%s', expected merge, stats, export, prune or repair", c->arg[0]);
    if (c->n_args < a->min_args || c->n_args > a->max_args)
        return usage_error(c, "wrong number of arguments for '%s'", a->name);
    if (a->run != merge && !exists(c->arg[1])) {
        fprintf(stderr, "quern: cannot open '%s'\n", c->arg[1]);
        return EXIT_FAILED;
    }
    if (!a->run) return repair(c);
    quern_status s = quern_db_open(c->q, c->arg[1], &db);
    if (!s) s = a->run(c, db);
    int code = fail(c, s);
    quern_db_close(db);
    return code;
}

static const struct opt options[] = {
    OPT_OUTPUT("FILE", "export: FILE.csv (default: standard output); repair: the new database"),
    OPT_END,
};

const struct cmd cmd_db = {
    .name = "db",
    .summary = "merge, inspect, export, prune or repair databases",
    .args = "stats DB | merge DB OTHER... | export DB [FILE.csv] | prune DB failed|foreign|losers | repair DB -o NEW.db",
    .min_args = 2,
    .max_args = 64,
    .options = options,
    .run = run,
};
