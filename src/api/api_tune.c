// SPDX-License-Identifier: Apache-2.0
//
// Databases and tuning. Declared and documented in include/quern.h.
#include "api/api_model.h"

#include <string.h>

quern_status quern_db_open(quern *q, const char *path, quern_db **out)
{
    struct err *e = api_begin(q);
    quern_db *d = mem_alloc(sizeof *d);
    d->q = q;
    bool ok = db_open(&d->db, path, e);
    if (ok) *out = d;
    else mem_free(d);
    return api_end(q, ok);
}

void quern_db_close(quern_db *d)
{
    if (!d) return;
    db_close(&d->db);
    mem_free(d);
}

static void send_progress(void *user, const struct tune_progress *p)
{
    quern *q = user;
    struct buf b = {0};
    buf_str(&b, p->what);
    struct quern_event ev = {.kind = QUERN_PROGRESS, .text = b.p ? b.p : "", .done = p->done, .total = p->total,
                             .failures = p->failures, .best = p->best, .seconds_left = p->seconds_left};
    q->o.on_event(q->o.user, &ev);
    buf_release(&b);
}

static void send_result(void *user, struct str json)
{
    quern *q = user;
    struct buf b = {0};
    buf_str(&b, json);
    q->o.on_event(q->o.user, &(struct quern_event){.kind = QUERN_RESULT, .text = b.p ? b.p : ""});
    buf_release(&b);
}

static bool read_opts(quern *q, const struct quern_tune_opts *o, struct tune_opts *t, struct err *e)
{
    struct quern_tune_opts x = {0};
    if (o) memcpy(&x, o, o->size < sizeof x ? o->size : sizeof x);
    if (x.timeout < 0 || x.min_samples < 0 || x.max_candidates < 0 || x.threads < 0)
        return err_set(e, ERR_USAGE, "time-out, samples, candidates and threads cannot be negative");
    *t = (struct tune_opts){
        .driver = api_find_driver(x.device, e), .dev = {.n_threads = (u32)x.threads}, .timeout = x.timeout,
        .min_samples = (u32)x.min_samples, .max_candidates = (u32)x.max_candidates, .stop_at_speedup = x.stop_at_speedup,
        .seed = x.seed, .add_candidates = true, .measure = !x.populate_only, .log = &q->log, .user = q,
    };
    if (q->o.on_event) t->progress = send_progress, t->event = send_result;
    return t->driver != NULL;
}

/* How often the program chosen so far runs each task; alternatives that it does not use weigh nothing. */
static bool weigh(quern_model *m, quern_db *db, const struct tune_opts *o, struct cover *c, struct tune_task *tasks, struct arena *a, struct err *e)
{
    struct api_target t;
    struct api_costs costs;
    struct selection s;
    bool ok = api_target_open(&t, o->driver->name, (int)o->dev.n_threads, e) &&
              api_costs_init(&costs, &db->db, &t, c, m->var, e) && plan_select(&s, c, m->var, api_cost, &costs, a, e);
    for (u32 i = 0; i < c->task.n && ok; i++) tasks[i] = (struct tune_task){.task = c->task.v[i], .var = m->var};
    for (u32 i = 0; i < s.choice.n && ok; i++) tasks[c->region.v[s.choice.v[i].region].task].weight += 1;
    api_target_close(&t);
    return ok;
}

static bool tune_model(quern_db *db, quern_model *m, const struct tune_opts *o, struct err *e)
{
    struct arena a = {0};
    struct cover c;
    struct tune_result r;
    bool ok = cover_build(&c, &m->lowered, &a, NULL, e);
    struct tune_task *tasks = ok ? arena_array(&a, struct tune_task, c.task.n + 1) : NULL;
    struct str sizes = {0};
    struct buf b = {0};
    for (u32 v = 0; v < m->sym.var.n; v++) buf_printf(&b, "%s%.*s=%lld", v ? "," : "", STR_ARG(m->sym.var.v[v]), (long long)m->var[v]);
    sizes = str_dup(&a, buf_view(&b));
    buf_release(&b);
    struct str options = str_fmt(&a, "optimize-for=%.*s", STR_ARG(sizes));
    ok = ok && db_options(&db->db, m->name, options, e);
    ok = ok && weigh(m, db, o, &c, tasks, &a, e) && tune_run(&db->db, tasks, c.task.n, o, &r, e);
    arena_release(&a);
    return ok;
}

quern_status quern_populate(quern_db *db, quern_model *m, const struct quern_tune_opts *o)
{
    struct err *e = api_begin(db->q);
    struct tune_opts t;
    bool ok = read_opts(db->q, o, &t, e);
    t.measure = false;
    return api_end(db->q, ok && tune_model(db, m, &t, e));
}

quern_status quern_tune(quern_db *db, quern_model *m, const struct quern_tune_opts *o)
{
    struct err *e = api_begin(db->q);
    struct tune_opts t;
    return api_end(db->q, read_opts(db->q, o, &t, e) && tune_model(db, m, &t, e));
}

quern_status quern_bench(quern_db *db, const struct quern_tune_opts *o)
{
    struct err *e = api_begin(db->q);
    struct tune_opts t;
    struct tune_result r;
    bool ok = read_opts(db->q, o, &t, e);
    t.add_candidates = false;
    return api_end(db->q, ok && tune_bench(&db->db, &t, &r, e));
}

quern_status quern_db_stats(quern_db *db, char **json)
{
    struct err *e = api_begin(db->q);
    struct buf b = {0};
    bool ok = db_stats(&db->db, &b, e);
    if (ok) *json = api_text(&b);
    else buf_release(&b);
    return api_end(db->q, ok);
}

quern_status quern_db_export(quern_db *db, const char *csv)
{
    struct err *e = api_begin(db->q);
    struct buf b = {0};
    bool ok = db_export(&db->db, &b, e) && os_write(csv, b.p, b.n, e);
    buf_release(&b);
    return api_end(db->q, ok);
}

quern_status quern_db_merge(quern_db *db, const char *other, int64_t *n_new)
{
    struct err *e = api_begin(db->q);
    return api_end(db->q, db_merge(&db->db, other, n_new, e));
}

quern_status quern_db_prune(quern_db *db, const char *what, int64_t *n_gone)
{
    struct err *e = api_begin(db->q);
    struct api_target t;
    bool ok = api_target_open(&t, NULL, 0, e);
    i64 env = ok ? db_env(&db->db, buf_view(&t.fingerprint), buf_view(&t.toolchain), e) : 0;
    ok = ok && env && db_prune(&db->db, str_of(what), env, n_gone, e);
    api_target_close(&t);
    return api_end(db->q, ok);
}
