// SPDX-License-Identifier: Apache-2.0
//
// A space walked point by point: each is a candidate of the same task, and measured as every candidate is, in a child process, verified,
// beside the reference schedule, remembered at once. Points are taken from the space in pieces as they are asked for.
#include "lab/lab.h"

enum { PIECE = 256 };

struct source { /* candidates that are still to be measured */
    const struct lab_sweep *s;
    struct lab_swept *r;
    const struct task *task;
    struct lab_config *piece;
    u32 n, at;  /* of the piece */
    i64 next;   /* number of the point behind it */
    i64 end;    /* behind the last that was asked for */
    bool is_empty; /* there is no point at all */
};

static bool keep_point(void *user, const struct lab_config *c, i64 number)
{
    struct source *q = user;
    if (number >= q->end) return false;
    q->piece[q->n++] = *c;
    q->next = number + 1;
    return q->n < PIECE;
}

static bool next_point(struct source *q, struct lab_config *c)
{
    if (q->at == q->n) {
        q->n = q->at = 0;
        lab_space_each(q->s->space, q->s->rules, q->next, keep_point, q);
    }
    q->is_empty = q->n == 0 && q->r->n_points == 0;
    if (q->n == 0) return false;
    *c = q->piece[q->at++];
    q->r->n_points++;
    return true;
}

static bool take(const struct source *q, const struct lab_config *c, struct candidate *x, struct err *e)
{
    if (!lab_candidate(x, c, q->s->space->dtype, e)) return false;
    return x->gen->legal(q->task, q->s->caps, &x->sched) ||
           err_set(e, ERR_UNSUPPORTED, "generator '%s': not within the device's limits, or nothing it can emit", x->gen->name);
}

/* The next candidate that the family takes. */
static bool next_candidate(void *user, struct candidate *x)
{
    struct source *q = user;
    struct lab_config c;
    while (next_point(q, &c)) {
        struct err e = {0};
        if (take(q, &c, x, &e)) return true;
        if (q->r->n_refused++) continue;
        lab_name_print(&q->r->why, &c);
        buf_printf(&q->r->why, ": %s", e.msg);
    }
    return false;
}

static bool check_device(const struct lab_sweep *s, const struct task *t, struct err *e)
{
    struct candidate x = {.gen = gen_find(S("group_gemm"))};
    return (x.gen && gen_matches(x.gen, t, s->caps)) ||
           err_set(e, ERR_UNSUPPORTED, "device '%s' has no groups of threads, or cannot do such a product",
                   s->tune->driver->name);
}

static bool sweep(const struct lab_sweep *s, struct lab_swept *r, struct arena *a, struct err *e)
{
    struct symtab st;
    struct task t;
    struct source q = {.s = s, .r = r, .task = &t, .next = s->start, .end = s->max ? s->start + s->max : INT64_MAX};
    symtab_init(&st, a);
    if (!lab_task(&t, a, &st, &s->space->base, s->space->dtype, e) || !check_device(s, &t, e)) return false;
    q.piece = arena_array(a, struct lab_config, PIECE);
    struct tune_opts o = *s->tune;
    const struct tune_source points = {next_candidate, &q};
    o.source = s->search ? NULL : &points;
    o.add_candidates = true;
    struct tune_task one = {.task = &t, .var = arena_array(a, i64, 1), .weight = 1};
    bool ok = tune_run(s->db, &one, 1, &o, &r->tuned, e);
    if (ok && r->n_points && r->n_refused == r->n_points)
        return err_set(e, ERR_NOTHING, "none of %lld points can be taken: %.*s", (long long)r->n_points, STR_ARG(buf_view(&r->why)));
    if (ok && q.is_empty) return err_set(e, ERR_NOTHING, "no point has number %lld or more", (long long)s->start);
    return ok;
}

bool lab_sweep(const struct lab_sweep *s, struct lab_swept *r, struct err *e)
{
    struct arena a = {0};
    *r = (struct lab_swept){0};
    bool ok = sweep(s, r, &a, e);
    arena_release(&a);
    return ok;
}

/* A verified candidate that has a name, given up early or not. */
static bool result_of(struct lab_result *x, const struct lab_sweep *s, const struct trial_row *row, struct arena *a)
{
    struct lab_config c;
    struct buf name = {0};
    bool is_verified = row->status == TRIAL_OK || row->status == TRIAL_SLOW;
    if (!is_verified || !row->n || row->ratio <= 0) return false;
    if (!lab_config_of(&c, &row->cand, &s->space->base, s->space->dtype)) return false;
    lab_name_print(&name, &c);
    *x = (struct lab_result){str_dup(a, buf_view(&name)), 1 / row->ratio, row->ratio * row->reference * 1e3,
                             row->reference * 1e3};
    buf_release(&name);
    return true;
}

bool lab_sweep_results(const struct lab_sweep *s, struct lab_results *r, struct arena *a, struct err *e)
{
    struct symtab st;
    struct task t;
    struct trial_row *rows = NULL;
    struct lab_result x;
    u32 n = 0;
    i64 *none = arena_array(a, i64, 1);
    symtab_init(&st, a);
    if (!lab_task(&t, a, &st, &s->space->base, s->space->dtype, e)) return false;
    i64 task = db_task(s->db, &t, e);
    if (!task || !db_trials(s->db, s->env, task, sizes_text(a, &st, none, &t), a, &rows, &n, e)) return false;
    for (u32 i = 0; i < n; i++)
        if (result_of(&x, s, &rows[i], a)) lab_results_add(r, a, &x);
    return true;
}
