// SPDX-License-Identifier: Apache-2.0
//
// Databases and tuning. Declared and documented in include/quern.h.
#include "api/api_model.h"

#include <math.h>
#include <string.h>

quern_status quern_db_open(quern *q, const char *path, quern_db **out)
{
    if (!api_given(q, "path out", path, out)) return QUERN_USAGE;
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

bool api_job_read(struct api_job *j, quern *q, const struct quern_tune_opts *o, struct err *e)
{
    *j = (struct api_job){0};
    struct quern_tune_opts *x = &j->x;
    if (o) memcpy(x, o, o->size < sizeof *x ? o->size : sizeof *x);
    if (x->timeout < 0 || x->min_samples < 0 || x->max_candidates < 0 || x->threads < 0)
        return err_set(e, ERR_USAGE,
                       "time-out, samples, candidates and threads cannot be negative");
    x->threads = api_threads(q, x->threads);
    j->cover = (struct cover_opts){.no_fusion = x->no_fusion, .no_concat = x->no_memory_concat};
    j->t = (struct tune_opts){
        .timeout = x->timeout,
        .min_samples = (u32)x->min_samples,
        .max_candidates = (u32)x->max_candidates,
        .stop_at_speedup = x->stop_at_speedup,
        .relative_error = x->relative_error,
        .seed = x->seed,
        .add_candidates = true,
        .measure = !x->populate_only,
        .stop = &q->stop,
        .log = &q->log,
        .user = q,
    };
    if (q->o.on_event) j->t.progress = send_progress, j->t.event = send_result;
    return true;
}

bool api_job_choose(struct api_job *j, struct err *e)
{
    bool ok = api_target_choose(&j->target, j->x.device, j->x.threads, j->x.target, e);
    j->t.driver = j->target.driver;
    j->t.dev = j->target.dev;
    if (ok && j->t.measure && dev_is_described(&j->t.dev))
        ok = err_set(e, ERR_USAGE, "device '%.*s' is not here, nothing can be measured on it",
                     STR_ARG(j->t.dev.as ? j->t.dev.as->name : j->t.dev.target));
    return ok;
}

/* Costs looked up once; `forced` is made so cheap that the selector cannot do without it. */
struct price_list {
    const struct cover *c;
    struct task_cost *cost; /* per task */
    struct api_costs *costs;
    u32 forced;
};

static const double bonus = 1e6; /* seconds: beyond any program */

static bool listed_price(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    const struct price_list *p = user;
    u32 i = 0;
    while (i < p->c->task.n && p->c->task.v[i] != t) i++;
    if (i == p->c->task.n) return api_cost(p->costs, t, var, c); /* of a body */
    *c = p->cost[i];
    if (i == p->forced) c->seconds -= bonus;
    return c->ok;
}

/* How much slower the best program with this task is than the best of all, which runs the tasks
   used[]; NAN: there is none. changed: cost of what it runs in place of others. */
static double regret(struct price_list *p, u32 task, const i64 *var, double best, const u32 *used,
                     double *changed)
{
    struct arena a = {0};
    struct selection s;
    struct err e = {0};
    u32 n = 0;
    p->forced = task;
    bool ok = plan_select(&s, p->c, var, listed_price, p, &a, &e);
    *changed = 0;
    for (u32 i = 0; i < s.choice.n && ok; i++) {
        u32 t = p->c->region.v[s.choice.v[i].region].task;
        n += t == task;
        *changed += t == NO_TASK || used[t] ? 0 : p->cost[t].seconds;
    }
    double r = ok && n ? s.seconds + bonus * n - best : NAN;
    arena_release(&a);
    return r;
}

static bool has_parts(const struct task *t)
{
    for (value_id v = 1; v < t->g.value.n; v++)
        if (graph_value(&t->g, v)->part.whole) return true;
    return false;
}

/* Predictions may be wrong by a factor, of a task that is chosen in place of another. A task with
   parts comes with others, the whole change is what may be wrong. */
static bool is_rival(struct price_list *p, u32 task, const i64 *var, double best, const u32 *used)
{
    double changed, r = regret(p, task, var, best, used, &changed);
    return r < 0.5 * (has_parts(p->c->task.v[task]) ? changed : p->cost[task].seconds);
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
        .c = c, .costs = costs, .forced = UINT32_MAX, .cost = arena_array(&a, struct task_cost, c->task.n + 1)};
    u32 *uses = arena_array(&a, u32, c->task.n + 1), n = 0;
    for (u32 i = 0; i < c->task.n; i++)
        p.cost[i].ok = api_cost(costs, c->task.v[i], m->var, &p.cost[i]);
    bool ok = plan_select(&s, c, m->var, listed_price, &p, &a, e) && !e->code;
    for (u32 i = 0; i < s.choice.n && ok; i++) {
        u32 task = c->region.v[s.choice.v[i].region].task;
        if (task != NO_TASK) uses[task]++;
    }
    for (u32 i = 0; i < c->task.n && ok; i++) {
        if (task_is_call(c->task.v[i]) || (!uses[i] && !is_rival(&p, i, m->var, s.seconds, uses))) continue;
        tasks[n++] = (struct tune_task){.task = c->task.v[i], .var = m->var, .weight = uses[i]};
    }
    arena_release(&a);
    for (u32 b = 0; b < c->body.n && ok; b++) { /* what bodies run */
        n += worth_measuring(m, costs, c->body.v[b], tasks + n, e);
        ok = !e->code;
    }
    return ok ? n : 0;
}

static u32 count_tasks(const struct cover *c)
{
    u32 n = c->task.n;
    for (u32 b = 0; b < c->body.n; b++) n += count_tasks(c->body.v[b]);
    return n;
}

static u32 choose_tasks(quern_model *m, quern_db *db, struct api_job *j, struct cover *c,
                        struct tune_task *tasks, struct err *e)
{
    struct api_costs costs;
    if (!api_costs_init(&costs, &db->db, &j->target, c, m->var, e))
        return 0;
    return worth_measuring(m, &costs, c, tasks, e);
}

static bool tune_model(quern_db *db, quern_model *m, struct api_job *j, struct err *e)
{
    struct arena a = {0};
    struct cover c;
    struct tune_result r;
    bool ok = api_job_choose(j, e) && api_target_ask(&j->target, e);
    if (ok) api_offer_blocks(&j->cover, &j->target.caps);
    const struct graph *g = ok ? api_lowered(m, &j->target.caps, e) : NULL;
    ok = g && cover_build(&c, g, &a, &j->cover, e);
    struct tune_task *tasks = ok ? arena_array(&a, struct tune_task, count_tasks(&c) + 1) : NULL;
    ok = ok && db_options(&db->db, api_options_key(m, &j->target, &a),
                          api_options_print(m, &j->target, &j->cover, &a), e);
    u32 n = ok ? choose_tasks(m, db, j, &c, tasks, e) : 0;
    ok = ok && !e->code && tune_run(&db->db, tasks, n, &j->t, &r, e);
    api_target_close(&j->target);
    arena_release(&a);
    return ok;
}

/* Whether something can be measured for it here; false with an error: no such target. */
static bool is_here(const struct quern_tune_opts *o, const char *isa, struct err *e)
{
    struct api_target t;
    struct quern_target_opts target = api_target_with(o->target, isa);
    bool ok = api_target_choose(&t, o->device, o->threads, &target, e) && !dev_is_described(&t.dev);
    api_target_close(&t);
    return ok;
}

static bool tune_variant(quern_db *db, quern_model *m, struct quern_tune_opts x, const char *isa, bool measure, struct err *e)
{
    struct api_job j;
    struct quern_target_opts target = api_target_with(x.target, isa);
    x.target = &target;
    bool ok = api_job_read(&j, db->q, &x, e);
    if (ok) j.t.measure = j.t.measure && measure;
    return (ok && tune_model(db, m, &j, e)) || err_prefix(e, "instruction set '%s'", isa);
}

/* Of several instruction sets those that this processor has are measured, each for its share of the time; all are populated. */
static bool tune_variants(quern_db *db, quern_model *m, const struct quern_tune_opts *o, const struct api_isas *isas, bool measure, struct err *e)
{
    const double end = os_now() + o->timeout;
    const char *one[MAX_ISAS];
    u32 n = 0;
    for (u32 i = 0; i < isas->n; i++) {
        bool here = is_here(o, isas->v[i], e);
        if (e->code) return false;
        if (here || !measure || o->populate_only) one[n++] = isas->v[i];
        else log_printf(&db->q->log, 1, "'%s' is not here: nothing is measured for it", isas->v[i]);
    }
    for (u32 i = 0; i < n; i++) {
        struct quern_tune_opts x = *o;
        if (o->timeout > 0) x.timeout = fmax((end - os_now()) / (n - i), 1e-3);
        if (!tune_variant(db, m, x, one[i], measure, e)) return false;
    }
    return n > 0 || err_set(e, ERR_NOTHING, "this processor has none of the instruction sets: nothing can be measured");
}

static quern_status tune(quern_db *db, quern_model *m, const struct quern_tune_opts *o, bool measure)
{
    if (!db || !api_given(db->q, "m", m)) return QUERN_USAGE;
    struct err *e = api_begin(db->q);
    struct arena a = {0};
    struct api_job j;
    struct api_isas isas;
    bool ok = api_job_read(&j, db->q, o, e) && api_isas(&isas, j.x.target, &a, e);
    if (ok) j.t.measure = j.t.measure && measure;
    ok = ok && (isas.n > 1 ? tune_variants(db, m, &j.x, &isas, measure, e) : tune_model(db, m, &j, e));
    arena_release(&a);
    return api_end(db->q, ok);
}

quern_status quern_populate(quern_db *db, quern_model *m, const struct quern_tune_opts *o) { return tune(db, m, o, false); }

quern_status quern_tune(quern_db *db, quern_model *m, const struct quern_tune_opts *o) { return tune(db, m, o, true); }

/* measuring a database: on the device that is asked for, or on each that it was populated for */

static bool bench_target(quern_db *db, struct api_job *j, struct err *e)
{
    struct tune_result r;
    bool ok = api_job_choose(j, e) && tune_bench(&db->db, &j->t, &r, e);
    api_target_close(&j->target);
    return ok;
}

static bool same_device(const struct api_device *a, const struct api_device *b)
{
    return str_eq(a->name, b->name) && str_eq(a->limits, b->limits) && a->n_threads == b->n_threads;
}

/* The devices that models were populated for, each once; how many. */
static u32 known_devices(quern_db *db, struct api_device *d, u32 max, struct arena *a,
                         struct err *e)
{
    struct str *options;
    u32 n_options, n = 0;
    if (!db_all_options(&db->db, a, &options, &n_options, e)) return 0;
    for (u32 i = 0; i < n_options && n < max; i++) {
        u32 k = 0;
        if (!api_options_device(options[i], &d[n], a)) continue;
        while (!same_device(&d[k], &d[n])) k++;
        n += k == n;
    }
    return n;
}

static bool bench_known(quern_db *db, struct api_job *j, struct err *e)
{
    enum { MAX_DEVICES = 64 };
    struct arena a = {0};
    struct api_device d[MAX_DEVICES];
    u32 n = known_devices(db, d, MAX_DEVICES, &a, e);
    double end = os_now() + j->x.timeout;
    int threads = j->x.threads;
    bool ok = !e->code;
    for (u32 k = 0; k < n && ok; k++) {
        j->x.device = str_z(&a, d[k].name);
        j->x.threads = threads ? threads : (int)d[k].n_threads;
        if (j->x.timeout > 0) j->t.timeout = fmax((end - os_now()) / (n - k), 1e-3);
        ok = api_job_choose(j, e);
        j->t.dev.limits = d[k].limits;
        struct tune_result r;
        ok = ok && tune_bench(&db->db, &j->t, &r, e);
        api_target_close(&j->target);
    }
    arena_release(&a);
    return n ? ok : !e->code && bench_target(db, j, e);
}

quern_status quern_bench(quern_db *db, const struct quern_tune_opts *o)
{
    if (!db) return QUERN_USAGE;
    struct err *e = api_begin(db->q);
    struct api_job j;
    bool ok = api_job_read(&j, db->q, o, e);
    j.t.add_candidates = false;
    if (ok) ok = j.x.device ? bench_target(db, &j, e) : bench_known(db, &j, e);
    return api_end(db->q, ok);
}

quern_status quern_db_stats(quern_db *db, char **json)
{
    if (!db || !api_given(db->q, "json", json)) return QUERN_USAGE;
    struct err *e = api_begin(db->q);
    struct buf b = {0};
    bool ok = db_stats(&db->db, &b, e);
    if (ok) *json = api_text(&b);
    else buf_release(&b);
    return api_end(db->q, ok);
}

quern_status quern_db_export(quern_db *db, const char *csv)
{
    if (!db || !api_given(db->q, "csv", csv)) return QUERN_USAGE;
    struct err *e = api_begin(db->q);
    struct buf b = {0};
    bool ok = db_export(&db->db, &b, e) && os_write(csv, b.p, b.n, e);
    buf_release(&b);
    return api_end(db->q, ok);
}

quern_status quern_db_merge(quern_db *db, const char *other, int64_t *n_new)
{
    if (!db || !api_given(db->q, "other n_new", other, n_new)) return QUERN_USAGE;
    struct err *e = api_begin(db->q);
    return api_end(db->q, db_merge(&db->db, other, n_new, e));
}

quern_status quern_db_repair(quern *q, const char *damaged, const char *path, struct quern_db_saved *saved)
{
    struct err *e = api_begin(q);
    struct db_saved s;
    bool ok = db_repair(damaged, path, &s, e);
    const struct quern_db_saved out = {saved->size, s.n_pages, s.n_damaged, s.n_corrected, s.n_lost_frames, s.n_tasks, s.n_trials, s.n_samples, s.n_left};
    memcpy(saved, &out, saved->size < sizeof out ? saved->size : sizeof out);
    return api_end(q, ok);
}

quern_status quern_db_prune(quern_db *db, const char *what, int64_t *n_gone)
{
    if (!db || !api_given(db->q, "what n_gone", what, n_gone)) return QUERN_USAGE;
    struct err *e = api_begin(db->q);
    struct api_target t;
    bool ok = api_target_open(&t, NULL, 0, NULL, e);
    i64 env = ok ? db_env(&db->db, buf_view(&t.fingerprint), buf_view(&t.toolchain), e) : 0;
    ok = ok && env && db_prune(&db->db, str_of(what), env, n_gone, e);
    api_target_close(&t);
    return api_end(db->q, ok);
}
