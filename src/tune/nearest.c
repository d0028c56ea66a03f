// SPDX-License-Identifier: Apache-2.0
//
// Schedules for tasks that were never measured: the fastest legal schedule of the nearest measured
// task. The tasks of the database are parsed once; their candidates are read on demand, so that
// queries for a few tasks are cheap.
//
// A near task is not enough: a tile for large matrices wastes most of its work on small ones. The
// expected ratio to the default is
//
//   measured ratio there x predicted ratio here / predicted ratio there
//
// Unless it is below 1, the default is kept.
#include "tune/search.h"

#include <math.h>

struct timed { struct candidate cand; double seconds; };

struct known_task {
    struct db_todo todo;
    struct tune_task task;
    struct timed base;               /* the candidate all others were timed beside; gen NULL: unknown */
    struct { struct timed *v; u32 n, cap; } timed; /* fastest first; read on demand */
    bool is_read;
};

bool known_load(struct known *k, struct db *d, i64 env, struct arena *a, struct err *e)
{
    struct db_todo *todo = NULL;
    u32 n = 0;
    *k = (struct known){.d = d, .env = env, .a = a};
    if (!db_tasks(d, env, a, &todo, &n, e)) return false;
    k->v = arena_array(a, struct known_task, n + 1);
    for (u32 i = 0; i < n; i++) {
        struct known_task *x = &k->v[k->n];
        x->todo = todo[i];
        k->n += tune_read_todo(&x->task, &todo[i], a, &(struct err){0}); /* others use an older vocabulary */
    }
    return true;
}

/* Inserts by time, then by order of measurement; the task's own choice comes first. */
static void put_timed(struct arena *a, struct known_task *x, struct timed r, bool is_choice)
{
    u32 at = x->timed.n;
    arr_push(a, &x->timed);
    for (; at > 0 && (is_choice || x->timed.v[at - 1].seconds > r.seconds); at--) x->timed.v[at] = x->timed.v[at - 1];
    x->timed.v[at] = r;
}

static bool read_timed(const struct known *k, struct known_task *x, struct err *e)
{
    struct trial_row *row = NULL;
    u32 n = 0;
    if (x->is_read) return true;
    x->is_read = true;
    if (!db_trials(k->d, k->env, x->todo.task, x->todo.sizes, k->a, &row, &n, e)) return false;
    double reference = tune_reference_seconds(row, n);
    const struct trial_row *choice = tune_choice(row, n);
    for (u32 i = 0; i < n; i++) {
        if (row[i].status != TRIAL_OK || row[i].n == 0) continue;
        struct timed r = {row[i].cand, tune_row_seconds(&row[i], reference)};
        if (row[i].ratio <= 0 && !x->base.cand.gen) x->base = r;
        if (&row[i] != choice) put_timed(k->a, x, r, false);
    }
    if (choice) put_timed(k->a, x, (struct timed){choice->cand, tune_row_seconds(choice, reference)}, true);
    return true;
}

/* The fastest legal one. */
static const struct timed *first_legal(const struct known_task *x, const struct known_for *f)
{
    for (u32 i = 0; i < x->timed.n; i++)
        if (gen_matches(x->timed.v[i].cand.gen, f->task, f->caps) && gen_legal(&x->timed.v[i].cand, f->task, f->caps)) return &x->timed.v[i];
    return NULL;
}

/* Index of the nearest task not yet considered; k->n: none. */
static u32 next_nearest(const struct known *k, const double *distance, const bool *seen)
{
    u32 at = k->n;
    for (u32 i = 0; i < k->n; i++)
        if (!seen[i] && distance[i] < INFINITY && (at == k->n || distance[i] < distance[at])) at = i;
    return at;
}

static bool search(const struct known *k, const struct known_for *f, struct arena *tmp, struct known_found *out, struct err *e)
{
    double *distance = arena_array(tmp, double, k->n + 1);
    bool *seen = arena_array(tmp, bool, k->n + 1);
    for (u32 i = 0; i < k->n; i++) {
        const struct tune_task *x = &k->v[i].task;
        distance[i] = f->distance ? f->distance(f->user, x->task) : task_distance(x->task, x->var, f->task, f->var);
    }
    for (u32 i; (i = next_nearest(k, distance, seen)) < k->n; seen[i] = true) {
        if (!read_timed(k, &k->v[i], e)) return false;
        const struct timed *r = first_legal(&k->v[i], f);
        if (!r) continue;
        const struct timed *base = k->v[i].base.cand.gen ? &k->v[i].base : NULL;
        *out = (struct known_found){.task = &k->v[i].task, .cand = r->cand, .seconds = r->seconds, .distance = distance[i]};
        if (base) out->base = base->cand, out->ratio = r->seconds / base->seconds;
        return true;
    }
    return false;
}

bool known_nearest(const struct known *k, const struct known_for *f, struct known_found *out, struct err *e)
{
    struct arena tmp = {0};
    bool found = search(k, f, &tmp, out, e);
    arena_release(&tmp);
    return found;
}

static double predicted_ratio(const struct candidate *c, const struct candidate *base, const struct tune_task *t, const struct caps *caps)
{
    double p = gen_predict(c, t->task, caps, t->var), q = gen_predict(base, t->task, caps, t->var);
    return p > 0 && q > 0 ? p / q : 1;
}

bool known_improves(const struct known_found *found, const struct known_for *f, const struct candidate *now)
{
    const struct tune_task here = {f->task, f->var, 1};
    if (!found->base.gen) return false;
    double there = predicted_ratio(&found->cand, &found->base, found->task, f->caps);
    return found->ratio * predicted_ratio(&found->cand, now, &here, f->caps) / there < 1;
}
