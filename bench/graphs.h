// SPDX-License-Identifier: Apache-2.0
//
// The rows of bench/rows.py as networks: bench/graphs.txt, written by bench/graphs.py, and the
// default tasks of a network.
#ifndef QUERN_BENCH_GRAPHS_H
#define QUERN_BENCH_GRAPHS_H

#include "pass/pass.h"
#include "plan/plan.h"

struct bench_row {
    struct str group, name; /* "conv", "resnet50 64,56,56>64 1x1" */
    struct graph *g;        /* inferred */
};
typedef bool bench_row_fn(void *user, const struct bench_row *r, struct err *e); /* false: an error */

/* One row: a line "GROUP: NAME", then a network in text. */
static inline bool bench_read_row(struct str text, struct arena *a, bench_row_fn *fn, void *user, struct err *e)
{
    struct bench_row r = {.g = arena_new(a, struct graph)};
    struct symtab *st = arena_new(a, struct symtab);
    struct str line;
    symtab_init(st, a);
    if (!str_cut(text, '\n', &line, &text) || !str_cut(line, ':', &r.group, &r.name)) return err_set(e, ERR_INPUT, "no line 'GROUP: NAME'");
    r.group = str_trim(r.group), r.name = str_trim(r.name);
    if (!graph_parse(r.g, a, st, text, e) || !op_infer_all(r.g, e)) return err_prefix(e, "%.*s", STR_ARG(r.name));
    return fn(user, &r, e);
}

/* All rows in the order of the file; a row's memory is released after it, unless it is the caller's
   arena. */
static inline bool bench_each_row(const char *path, struct arena *keep, bench_row_fn *fn, void *user, struct err *e)
{
    struct arena file = {0};
    struct str text, row;
    bool ok = os_read(&file, path, 1 << 24, &text, e);
    while (ok && text.n) {
        struct arena own = {0};
        struct str rest = {0};
        if (!str_cut(text, '#', &row, &rest)) row = text;
        text = rest;
        if (str_trim(row).n) ok = bench_read_row(row, keep ? keep : &own, fn, user, e) || err_prefix(e, "%s", path);
        arena_release(&own);
    }
    arena_release(&file);
    return ok;
}

/* The heavy tasks of the program selected with an empty database. The graph is inferred. */

typedef void bench_task_fn(void *user, struct task *t);

static inline bool bench_price(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    const struct caps *caps = user;
    *c = (struct task_cost){0};
    c->ok = gen_default(t, caps, var, &c->best);
    if (c->ok) c->seconds = gen_predict(&c->best, t, caps, var);
    return c->ok;
}

static inline bool bench_each_task(struct graph *g, const struct caps *caps, const i64 *var, bench_task_fn *fn, void *user, struct err *e)
{
    struct cover *c = arena_new(g->arena, struct cover);
    struct caps own = *caps;
    struct selection s;
    if (!pass_run_all(g, NULL, e) || !cover_build(c, g, g->arena, NULL, e) || !plan_select(&s, c, var, bench_price, &own, g->arena, e)) return false;
    for (u32 i = 0; i < s.choice.n; i++) {
        u32 t = c->region.v[s.choice.v[i].region].task;
        if (t != NO_TASK && c->task.v[t]->anchor) fn(user, c->task.v[t]);
    }
    return true;
}

#endif
