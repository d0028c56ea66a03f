// SPDX-License-Identifier: Apache-2.0
//
// Databases and tuning. Declared and documented in include/quern.h.
#include "api/api_model.h"

#include <math.h>
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
    struct quern_event ev = {.kind = QUERN_PROGRESS,
                             .text = b.p ? b.p : "",
                             .done = p->done,
                             .total = p->total,
                             .failures = p->failures,
                             .best = p->best,
                             .seconds_left = p->seconds_left};
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
        return err_set(e, ERR_USAGE,
                       "time-out, samples, candidates and threads cannot be negative");
    *t = (struct tune_opts){
        .dev = {.n_threads = (u32)x.threads},
        .timeout = x.timeout,
        .min_samples = (u32)x.min_samples,
        .max_candidates = (u32)x.max_candidates,
        .stop_at_speedup = x.stop_at_speedup,
        .seed = x.seed,
        .add_candidates = true,
        .measure = !x.populate_only,
        .log = &q->log,
        .user = q,
    };
    if (q->o.on_event) t->progress = send_progress, t->event = send_result;
    return dev_select(x.device, &t->driver, &t->dev, e);
}

/* Costs looked up once; `forced` is made so cheap that the selector cannot do without it. */
struct price_list {
    const struct cover *c;
    struct task_cost *cost; /* per task */
    u32 forced;
};

static const double bonus = 1e6; /* seconds: beyond any program */

static bool listed_price(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    const struct price_list *p = user;
    u32 i = 0;
    while (p->c->task.v[i] != t) i++;
    *c = p->cost[i];
    if (i == p->forced) c->seconds -= bonus;
    return c->ok;
}

/* How much slower the best program with this task is than the best of all; NAN: there is none. */
static double regret(struct price_list *p, u32 task, const i64 *var, double best)
{
    struct arena a = {0};
    struct selection s;
    struct err e = {0};
    u32 n = 0;
    p->forced = task;
    bool ok = plan_select(&s, p->c, var, listed_price, p, &a, &e);
    for (u32 i = 0; i < s.choice.n && ok; i++)
        n += p->c->region.v[s.choice.v[i].region].task == task;
    double r = ok && n ? s.seconds + bonus * n - best : NAN;
    arena_release(&a);
    return r;
}

/* The tasks worth measuring: those of the program that looks best, weighed by how often it runs
   them, and alternatives that predictions (wrong by a factor sometimes) do not rule out. Returns
   their number. */
static u32 worth_measuring(quern_model *m, struct api_costs *costs, struct cover *c,
                           struct tune_task *tasks, struct err *e)
{
    struct arena a = {0};
    struct selection s;
    struct price_list p = {
        .c = c, .forced = UINT32_MAX, .cost = arena_array(&a, struct task_cost, c->task.n + 1)};
    u32 *uses = arena_array(&a, u32, c->task.n + 1), n = 0;
    for (u32 i = 0; i < c->task.n; i++)
        p.cost[i].ok = api_cost(costs, c->task.v[i], m->var, &p.cost[i]);
    bool ok = plan_select(&s, c, m->var, listed_price, &p, &a, e);
    for (u32 i = 0; i < s.choice.n && ok; i++) uses[c->region.v[s.choice.v[i].region].task]++;
    for (u32 i = 0; i < c->task.n && ok; i++) {
        if (!uses[i] && !(regret(&p, i, m->var, s.seconds) < 0.5 * p.cost[i].seconds)) continue;
        tasks[n++] = (struct tune_task){.task = c->task.v[i], .var = m->var, .weight = uses[i]};
    }
    arena_release(&a);
    return ok ? n : 0;
}

static u32 choose_tasks(quern_model *m, quern_db *db, const struct tune_opts *o, struct cover *c,
                        struct tune_task *tasks, struct err *e)
{
    struct api_target t = {.driver = o->driver, .dev = o->dev};
    struct api_costs costs;
    u32 n = 0;
    if (api_target_ask(&t, e) &&
        api_costs_init(&costs, &db->db, &t, c, m->var, e))
        n = worth_measuring(m, &costs, c, tasks, e);
    api_target_close(&t);
    return n;
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
    for (u32 v = 0; v < m->sym.var.n; v++)
        buf_printf(&b, "%s%.*s=%lld", v ? "," : "", STR_ARG(m->sym.var.v[v]), (long long)m->var[v]);
    sizes = str_dup(&a, buf_view(&b));
    buf_release(&b);
    struct str options = str_fmt(&a, "optimize-for=%.*s", STR_ARG(sizes));
    ok = ok && db_options(&db->db, m->name, options, e);
    u32 n = ok ? choose_tasks(m, db, o, &c, tasks, e) : 0;
    ok = ok && !e->code && tune_run(&db->db, tasks, n, o, &r, e);
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
