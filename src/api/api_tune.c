// SPDX-License-Identifier: Apache-2.0
//
// Databases and tuning. Declared and documented in include/quern.h.
#include "api/api_model.h"

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

/* Selects the device; closed by api_target_close. */
static bool choose_device(struct api_job *j, struct err *e)
{
    bool ok = api_target_choose(&j->target, j->x.device, j->x.threads, j->x.target, e);
    j->t.driver = j->target.driver;
    j->t.dev = j->target.dev;
    if (ok && j->t.measure && dev_is_described(&j->t.dev))
        ok = err_set(e, ERR_USAGE, "device '%.*s' is not here, nothing can be measured on it",
                     STR_ARG(j->t.dev.as ? j->t.dev.as->name : j->t.dev.target));
    struct dev_opts used = j->t.dev;
    if (ok) api_use_attached(j->t.user, j->t.driver, &used);
    if (ok && j->t.measure && used.attached)
        ok = err_set(e, ERR_UNSUPPORTED,
                     "the device is the caller's (quern_vulkan_attach), which the processes that "
                     "measure cannot use: tune in a context without it");
    return ok;
}

bool api_job_ask(struct api_job *j, quern *q, struct err *e)
{
    if (!choose_device(j, e) || !api_target_ask(&j->target, e)) return false;
    api_target_rates(&j->target, q);
    return true;
}

static bool tune_model(quern_db *db, quern_model *m, struct api_job *j, struct err *e)
{
    struct arena a = {0};
    struct cover c;
    struct tune_result r;
    bool ok = api_job_ask(j, db->q, e);
    const struct plan_target on = api_plan_target(&j->target, &db->db);
    const struct graph *g = ok ? model_lowered(m->model, &j->target.caps, e) : NULL;
    ok = g && plan_cover(&c, g, j->cover, &on, &a, e);
    struct tune_task *tasks = ok ? arena_array(&a, struct tune_task, plan_count_tasks(&c) + 1) : NULL;
    ok = ok && db_options(&db->db, api_options_key(m, &j->target, &a),
                          api_options_print(m, &j->target, &j->cover, &a), e);
    u32 n = ok ? plan_tasks_to_tune(tasks, &c, m->model->var, &on, e) : 0;
    ok = ok && !e->code && tune_run(&db->db, tasks, n, &j->t, &r, e);
    api_target_close(&j->target);
    arena_release(&a);
    return ok;
}

/* Whether the target can be measured here; false with an error: no such target. */
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

/* Of several instruction sets, those of this processor are measured, each for its share of the
   time; all are populated. */
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
        if (o->timeout > 0) x.timeout = tune_share(end, n - i);
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

/* Measures a database, on the requested device or on each one it was populated for. */

static bool bench_target(quern_db *db, struct api_job *j, struct err *e)
{
    struct tune_result r;
    bool ok = choose_device(j, e) && tune_bench(&db->db, &j->t, &r, e);
    api_target_close(&j->target);
    return ok;
}

static bool bench_known(quern_db *db, struct api_job *j, struct err *e)
{
    struct arena a = {0};
    struct populated *d;
    u32 n = 0;
    bool ok = db_devices(&db->db, &a, &d, &n, e);
    double end = os_now() + j->x.timeout;
    int threads = j->x.threads;
    for (u32 k = 0; k < n && ok; k++) {
        j->x.device = str_z(&a, d[k].device);
        j->x.threads = threads ? threads : (int)d[k].n_threads;
        if (j->x.timeout > 0) j->t.timeout = tune_share(end, n - k);
        ok = choose_device(j, e);
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
