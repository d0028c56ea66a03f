// SPDX-License-Identifier: Apache-2.0
//
// The tuning loop, with one search per task. Each turn goes to the search of the highest priority:
// the task's share of the program's time, times the expected gain, reduced the longer no
// improvement was found. In a turn a batch of candidates is built together, then each one is
// verified and timed alone. If the timed kernels leave processors idle, the next batch is built on
// them meanwhile. Candidates that cannot win are abandoned early; the best ones are re-measured at
// the end. All results are committed at once, so a killed run can be continued.
#include "tune/tuner.h"
#include "tune/verify.h"

#include <math.h>

enum {
    SMALL_BATCH = 4,          /* candidates per batch: each batch learns from the previous ones */
    LARGE_BATCH = 8,    /* if building and starting take longer than measuring */
    DEFAULT_CANDIDATES = 256,
    BATCHES_PER_TURN = 4,
    POPULATE_CANDIDATES = 32,
    MAX_INTEGER_BYTES = 1 << 28 /* of a task that is verified on integers, too */
};
static const double final_share = 0.18;

/* Whether a trial is known well enough. A search continues with other candidates; measuring a
   database (no candidates are added) takes all samples of each. */
static bool is_settled(const struct tune_opts *o, enum trial_status s, u32 n)
{
    u32 want = tuner_min_samples(o);
    if (o->relative_error > 0) want = (u32)i64_min(want, 3);
    if (s != TRIAL_OK || o->add_candidates) return s != TRIAL_NEW;
    return n >= want;
}

/* Checks of a task: small odd sizes if sizes are symbolic, and the sizes of the measurement while
   the reference is affordable. */

static void release_checks(struct tuner *t)
{
    for (u32 i = 0; i < MAX_CHECKS; i++)
        if (t->check[i].task) check_release(&t->check[i]);
    arena_release(&t->check_arena);
    t->n_checks = 0;
    t->timing = NULL;
    t->checks_of = NULL;
}

static bool add_check(struct tuner *t, const struct task_search *ts, const i64 *var, u64 seed, bool with_reference)
{
    u32 n = t->n_checks;
    t->n_checks += with_reference;
    return check_init_for(&t->check[n], ts->t->task, var, t->o->seed + seed, with_reference, &t->caps, t->e);
}

/* Adds checks on integers if the task's sums are exact on them: they find wrong terms that random
   numbers may hide. Numbered contents show wrong indices in every output of a contraction. */
static bool add_integers(struct tuner *t, const struct task_search *ts, const i64 *var)
{
    static const enum verify_case kind[] = {VERIFY_TAPS, VERIFY_POINTS};
    const struct task *task = ts->t->task;
    i64 most = task_bytes(task, var) <= MAX_INTEGER_BYTES ? check_largest_integer(task, var) : 0;
    if (!most) return true;
    if (!check_init_integers(&t->check[t->n_checks++], task, var, t->o->seed, most, t->e)) return false;
    for (i64 i = 0; i < countof(kind); i++) {
        struct check *c = &t->check[t->n_checks];
        if (!check_init_numbered(c, task, var, kind[i], t->o->seed, t->e)) return false;
        t->n_checks += c->task != NULL;
    }
    return true;
}

static bool add_small_check(struct tuner *t, const struct task_search *ts, const i64 *value, u64 seed)
{
    const struct symtab *st = ts->t->task->g.sym;
    i64 *var = arena_array(&t->check_arena, i64, st->var.n + 1);
    for (u32 v = 0; v < st->var.n; v++) var[v] = value[v % 2];
    if (!check_positive(ts->t->task, var) || !task_fits(ts->t->task, var)) return true;
    return (t->n_checks || add_integers(t, ts, var)) && add_check(t, ts, var, seed, true);
}

/* A task without smaller sizes is verified at the sizes it is timed at. */
static bool make_checks(struct tuner *t, const struct task_search *ts)
{
    static const i64 small[2][2] = {{37, 43}, {80, 19}};
    if (t->checks_of == ts) return true;
    release_checks(t);
    for (u32 i = 0; i < 2 && ts->sizes.n > 0; i++)
        if (!add_small_check(t, ts, small[i], i)) return false;
    bool is_only = t->n_checks == 0;
    if (is_only && !add_integers(t, ts, ts->t->var)) return false;
    t->timing = &t->check[t->n_checks];
    if (!add_check(t, ts, ts->t->var, is_only ? 0 : t->n_checks, is_only)) return false;
    t->checks_of = ts;
    return true;
}

/* Batches. */

static u32 batch_limit(const struct tuner *t)
{
    if (!t->o->measure) return MAX_BATCH; /* no measurements to learn from: large batches build fastest */
    return t->o->driver->is_foreign || !t->o->add_candidates ? LARGE_BATCH : SMALL_BATCH;
}

/* A program that cannot be loaded, or one with a kernel that cannot be, proves nothing about its
   other kernels. false: the kernel is alone in its program. */
static bool halve_program(struct tuner *t, struct batch *b, u32 i)
{
    if (!build_halve(&t->builder, b->text, b->building.out, b->n, i, &t->arena, t->e)) return false;
    for (u32 k = 0; k < b->n; k++) b->subject[k].code = b->building.out[k].code;
    trial_close(&b->session); /* its process has loaded the old program */
    return b->building.out[i].ok;
}

static enum trial_status measure_one(struct tuner *t, struct task_search *ts, struct batch *b, u32 i, struct buf *why)
{
    enum trial_status st = batch_measure(t, ts, b, i, why);
    while (st == TRIAL_LAUNCH && halve_program(t, b, i)) {
        buf_reset(why);
        st = batch_measure(t, ts, b, i, why);
    }
    return st;
}

static bool run_one(struct tuner *t, struct task_search *ts, struct batch *b, u32 i)
{
    struct trial *x = &ts->known.v[b->trial[i]];
    task_search_queue(ts, x, false);
    if (!b->building.out[i].ok)
        return trial_set_status(t, ts, x, b->building.out[i].timed_out ? TRIAL_BUILD_TIMEOUT : TRIAL_BUILD,
                          b->building.out[i].message);
    struct buf why = {0};
    enum trial_status st = measure_one(t, ts, b, i, &why);
    if (st == TRIAL_NEW) { /* the time is over: the next run measures it */
        buf_release(&why);
        return !t->e->code;
    }
    bool ok = trial_set_status(t, ts, x, st, buf_view(&why));
    buf_release(&why);
    ts->n_tried++;
    task_search_consider(ts, x);
    return ok && !t->e->code;
}

static bool run_batch(struct tuner *t, struct task_search *ts, struct batch *b)
{
    bool ok = true;
    batch_open(t, ts, b, BATCH_TRIALS);
    for (u32 i = 0; i < b->n && ok && (i == 0 || !tuner_is_late(t)); i++) ok = run_one(t, ts, b, i);
    trial_close(&b->session);
    return ok;
}

/* Makes the batch's only candidate the base if it was verified, and moves the batch's arena to it. */
static void take_base(struct task_search *ts, struct batch *b)
{
    struct trial *x = &ts->known.v[b->trial[0]];
    if (x->status != TRIAL_OK) return;
    ts->base = b->subject[0];
    ts->base_arena = b->arena;
    b->arena = (struct arena){0};
    ts->base_trial = x->id;
    ts->base_time = (struct stats){.median = x->median};
    x->ratio = x->ratio_low = x->ratio_high = 1;
    x->reference = 0;
    ts->best_ratio = 1;
    ts->is_ready = true;
}

/* Measures the default candidate, beside which all others are timed. If it fails, the next family's
   default replaces it. */
static bool find_base(struct tuner *t, struct task_search *ts)
{
    struct candidate cand[3];
    u32 n = 0;
    ts->is_excluded = !task_fits(ts->t->task, ts->t->var);
    if (ts->is_excluded) { /* data-dependent sizes are guesses */
        log_printf(t->o->log, 1, "%.*s: not measured, the operators cannot have the sizes %.*s", STR_ARG(ts->label), STR_ARG(ts->sizes));
        return true;
    }
    if (gen_default(ts->t->task, &t->caps, ts->t->var, &cand[n])) n++;
    for (i64 k = 0; gen_at(k) && n < 3; k++) {
        const struct gen *g = gen_at(k);
        if ((n && cand[0].gen == g) || !gen_matches(g, ts->t->task, &t->caps)) continue;
        cand[n++] = gen_initial(g, ts->t->task, &t->caps, ts->t->var);
    }
    for (u32 i = 0; i < n && !ts->is_ready && !t->e->code && !stop_is_set(t->o->stop); i++) {
        struct batch b = {.n = 1, .cand = {cand[i]}};
        if (batch_build(t, ts, &b) && b.n > 0) {
            task_search_mark(ts, &cand[i]);
            if (run_batch(t, ts, &b)) take_base(ts, &b);
        }
        batch_reset(&b);
    }
    ts->is_excluded = !ts->is_ready;
    return !t->e->code;
}

/* Filling the pool takes a while, so it is done when a task's first turn needs it. */
static void propose(struct tuner *t, struct task_search *ts, struct batch *b, u32 max)
{
    b->n = 0;
    const struct tune_source *source = t->o->source;
    if (source) {
        while (b->n < max && source->next(source->user, &b->cand[b->n])) b->n += task_search_mark(ts, &b->cand[b->n]);
        ts->is_done = b->n == 0;
        return;
    }
    if (!ts->is_filled) task_search_fill_pool(ts, &t->caps, t->o->seed, &t->arena);
    ts->is_filled = true;
    b->n = task_search_propose(ts, &t->search, b->cand, max);
}

static bool next_batch(struct tuner *t, struct task_search *ts, struct batch *b)
{
    batch_reset(b);
    if (t->o->source) {
        propose(t, ts, b, batch_limit(t));
        return b->n > 0;
    }
    for (u32 i = 0; i < ts->known.n && b->n < batch_limit(t);
         i++) /* rows added by populate, or by a run that was killed */
        if (!ts->known.v[i].is_queued && !is_settled(t->o, ts->known.v[i].status, ts->known.v[i].n))
            b->cand[b->n++] = ts->known.v[i].cand, task_search_mark(ts, &ts->known.v[i].cand);
    u32 limit = t->o->max_candidates ? t->o->max_candidates : DEFAULT_CANDIDATES;
    u32 n = ts->n_tried + ts->n_queued;
    if (b->n == 0 && t->o->add_candidates && n < limit)
        propose(t, ts, b, (u32)i64_min(batch_limit(t), limit - n));
    ts->is_done = b->n == 0;
    return b->n > 0;
}

/* Processors not used by the timed kernels; 0 for foreign devices, whose kernels build quickly. */
static u32 spare_processors(const struct tuner *t)
{
    i64 spare = (i64)os_n_cpus() - t->caps.n_threads;
    return !t->o->driver->is_foreign && spare > 0 ? (u32)spare : 0;
}

/* Chooses the next batch before this one is measured, so that it can be built meanwhile. */
static bool look_ahead(struct tuner *t, struct task_search *ts, const struct batch *now)
{
    struct batch *b = &t->batch[now == &t->batch[0]];
    if (!next_batch(t, ts, b)) {
        ts->is_done = false; /* the current measurements may yield more candidates */
        return true;
    }
    if (!batch_emit(t, ts, b) || !batch_start(t, b, spare_processors(t))) return false;
    t->ahead = b;
    return true;
}

static bool measure_batch(struct tuner *t, struct task_search *ts, bool is_last)
{
    struct batch *b = t->ahead ? t->ahead : &t->batch[0];
    bool was_ahead = t->ahead != NULL;
    t->ahead = NULL;
    if (was_ahead && !build_finish(&b->building, &b->arena, t->e)) return false;
    if (!was_ahead) {
        if (!next_batch(t, ts, b)) return true;
        if (!batch_build(t, ts, b)) return false;
    }
    if (!is_last && spare_processors(t) && !look_ahead(t, ts, b)) return false;
    return run_batch(t, ts, b);
}

/* false: the task cannot be fed or evaluated; reported once, the run continues. */
static bool is_checkable(struct tuner *t, struct task_search *ts)
{
    if (make_checks(t, ts)) return true;
    log_printf(t->o->log, 1, "task skipped: %s", t->e->msg);
    *t->e = (struct err){.stop = t->e->stop};
    ts->is_excluded = true;
    return false;
}

static bool run_turn(struct tuner *t, struct task_search *ts, bool is_last)
{
    if (!is_checkable(t, ts)) return true;
    if (ts->is_ready) return measure_batch(t, ts, is_last);
    if (!find_base(t, ts)) return false;
    /* Ratios of earlier runs refer to earlier bases: rescales those that lack one to the current base. */
    ts->best_at = -1;
    for (u32 i = 0; i < ts->known.n; i++)
        if (ts->known.v[i].ratio <= 0 && ts->base_time.median > 0)
            ts->known.v[i].ratio = ts->known.v[i].median / ts->base_time.median;
    task_search_update_best(ts);
    if (ts->best_at < 0) ts->best_ratio = 1;
    return !ts->is_ready || vendor_measure(t, ts);
}

/* Choice of the next task. */

/* The default of every task of the program is measured first. Alternatives wait until the tasks
   they could replace are known: they count with their predicted time and a quarter of a use.
   Otherwise the priority is the task's share of the program's time, times the expected gain,
   divided by the number of trials without improvement. */
static double priority(const struct task_search *ts)
{
    if (ts->is_excluded || ts->is_done) return -1;
    if (!ts->is_ready && ts->t->weight > 0) return 1e6 + ts->t->weight * ts->predicted;
    double seconds = ts->is_ready && ts->best_at >= 0 ? ts->best : ts->predicted;
    return (ts->t->weight > 0 ? ts->t->weight : 0.25) * seconds * ts->expected_gain / (1 + (double)ts->n_idle / 12);
}

static struct task_search *next_task_search(struct tuner *t)
{
    struct task_search *best = NULL;
    for (u32 i = 0; i < t->n; i++) {
        double p = priority(&t->searches[i]);
        if (p > 0 && (!best || p > priority(best))) best = &t->searches[i];
    }
    return best;
}

/* If candidates come from a source, at least one of them must have been measured, whatever the
   reference reaches. */
static bool is_enough(const struct tuner *t)
{
    const struct tune_opts *o = t->o;
    double best = tune_seconds(t);
    if (best <= 0 || (o->source && t->searches[0].n_tried < 2)) return false;
    return (o->stop_at_speedup > 0 && tune_speedup(t) >= o->stop_at_speedup) || best <= o->stop_at_seconds;
}

/* A search keeps its turn for several batches, because preparing its checks costs more than a
   trial. Defaults come first. */
static bool main_loop(struct tuner *t)
{
    double reserve = t->end > 0 && t->o->measure ? (t->end - t->start) * final_share : 0;
    for (;;) {
        struct task_search *ts = next_task_search(t);
        if (!ts) return true;
        u32 n = ts->is_ready ? BATCHES_PER_TURN : 1;
        for (u32 k = 0; k < n && (t->ahead || priority(ts) > 0); k++) {
            if (tuner_deadline(t) > 0 && os_now() >= t->end - reserve) return true;
            if (is_enough(t) || stop_is_set(t->o->stop)) return true;
            if (!run_turn(t, ts, k + 1 == n)) return false;
        }
    }
}

static bool has_finals(const struct task_search *ts, bool of_program)
{
    return (ts->t->weight > 0) == of_program && ts->is_ready && ts->best_at >= 0;
}

/* Finals of the program's tasks first, each with an equal share of the remaining time, then of the
   alternatives. */
static bool run_finals(struct tuner *t, bool of_program)
{
    u32 left = 0;
    for (u32 i = 0; i < t->n; i++) left += has_finals(&t->searches[i], of_program);
    for (u32 i = 0; i < t->n && !tuner_is_late(t); i++) {
        struct task_search *ts = &t->searches[i];
        double now = os_now();
        if (!has_finals(ts, of_program)) continue;
        double end = t->end > 0 ? now + (t->end - now) / left-- : 0;
        if (!is_checkable(t, ts)) continue;
        if (!task_search_finals(t, ts, end) || (of_program && !vendor_measure_again(t, ts))) return false;
    }
    return true;
}

/* Populate: rows and binaries only. */
static bool populate(struct tuner *t)
{
    u32 usual = t->o->source ? UINT32_MAX : POPULATE_CANDIDATES, limit = t->o->max_candidates ? t->o->max_candidates : usual;
    for (u32 i = 0; i < t->n; i++) {
        struct task_search *ts = &t->searches[i];
        struct batch *b = &t->batch[0];
        batch_reset(b);
        if (gen_default(ts->t->task, &t->caps, ts->t->var, &b->cand[0]) && task_search_mark(ts, &b->cand[0])) {
            b->n = 1;
            if (!batch_build(t, ts, b)) return false;
            t->r->n_built += b->n;
        }
        for (u32 n = 1; n < limit && !ts->is_done && !tuner_is_late(t); n += batch_limit(t)) {
            batch_reset(b);
            propose(t, ts, b, (u32)i64_min(batch_limit(t), limit - n));
            if (b->n && !batch_build(t, ts, b)) return false;
            t->r->n_built += b->n;
            report_progress(t, ts);
        }
    }
    return true;
}

static bool open_device(struct tuner *t)
{
    struct buf fp = {0};
    bool ok = dev_ask(t->o->driver, &t->o->dev, &t->caps, &fp, t->e); /* opened by the children */
    cache_open(&t->cache, "kernels", &t->arena, t->o->log);
    t->builder = (struct builder){
        .cache = &t->cache, .lang = lang_for(str_of(t->o->driver->lang), t->e), .caps = &t->caps, .may_join = true, .stop = t->o->stop};
    ok = ok && t->builder.lang && t->builder.lang->toolchain(&t->toolchain, &t->caps, t->e);
    t->builder.toolchain = buf_view(&t->toolchain);
    if (ok) t->env = db_env(t->db, buf_view(&fp), t->builder.toolchain, t->e);
    buf_release(&fp);
    return ok && t->env != 0;
}

/* Work in progress is dropped; measurements are kept. */
static bool is_stopped(struct tuner *t)
{
    if (!stop_is_set(t->o->stop) || (t->e->code && t->e->code != ERR_STOPPED)) return false;
    *t->e = (struct err){.stop = t->e->stop};
    return t->r->was_stopped = true;
}

static void report_sandbox(const struct tuner *t)
{
    const char *lacks = os_sandbox_lacks(t->o->driver->is_foreign ? OS_SANDBOX_DEVICE : OS_SANDBOX_MEMORY);
    if (lacks) log_printf(t->o->log, 3, "this system has no %s: candidates run with your rights to files, network and processes", lacks);
    else if (t->o->driver->is_foreign) log_printf(t->o->log, 3, "candidates can write to devices, temporary files and caches only");
    else log_printf(t->o->log, 3, "candidates can use nothing but their own memory");
}

static bool search(struct tuner *t)
{
    bool ok = main_loop(t);
    for (u32 i = 0; i < countof(t->batch); i++) batch_reset(&t->batch[i]);
    t->ahead = NULL;
    return ok && run_finals(t, true) && run_finals(t, false);
}

static bool run(struct tuner *t, const struct tune_task *task)
{
    if (!open_device(t)) return false;
    os_temp_sweep();
    struct search_env env = {t->db, t->env, &t->caps, &t->arena, t->e};
    t->searches = arena_array(&t->arena, struct task_search, t->n + 1);
    for (u32 i = 0; i < t->n; i++)
        if (!task_search_load(&t->searches[i], &task[i], &env)) return false;
    if (!search_load_past(&t->search, t->searches, t->n, &env)) return false;
    if (!t->o->measure) return populate(t) || is_stopped(t);
    report_sandbox(t);
    for (u32 i = 0; i < t->n; i++) task_search_update_best(&t->searches[i]);
    bool ok = search(t);
    if (!is_stopped(t) && !ok) return false;
    t->r->speedup = tune_speedup(t);
    report_drift(t);
    if (!report_reach(t)) return false;
    return tuner_knows(t) || report_nothing(t);
}

bool tune_run(struct db *d, const struct tune_task *task, u32 n, const struct tune_opts *o,
              struct tune_result *r, struct err *e)
{
    double all = 0, own = 0;
    bool counted = os_cpu_seconds(&all, &own);
    *r = (struct tune_result){.speedup = 1, .drift = 1};
    struct tuner *t = mem_alloc((i64)sizeof *t);
    *t = (struct tuner){
        .db = d, .o = o, .n = n, .search = {.rng = rng_seed(o->seed)}, .r = r, .e = e, .start = os_now()};
    t->end = o->timeout > 0 ? t->start + o->timeout : 0;
    bool ok = run(t, task);
    if (counted && o->measure) report_others(t, all, own);
    for (u32 i = 0; i < countof(t->batch); i++) batch_reset(&t->batch[i]);
    for (u32 i = 0; i < n && t->searches; i++) arena_release(&t->searches[i].base_arena);
    r->memory = t->arena.held;
    release_checks(t);
    buf_release(&t->toolchain);
    arena_release(&t->arena);
    mem_free(t);
    return ok;
}

/* All tasks of a database. */

/* Whether the task has unfinished measurements. */
static bool has_work(struct db *d, i64 env, const struct db_todo *todo, const struct tune_opts *o,
                     struct err *e)
{
    struct arena a = {0};
    struct trial_row *rows;
    u32 n;
    bool ok = db_trials(d, env, todo->task, todo->sizes, &a, &rows, &n, e), any = false;
    for (u32 i = 0; ok && i < n; i++) any |= !is_settled(o, rows[i].status, rows[i].n);
    arena_release(&a);
    return any;
}

double tune_share(double end, u32 n) { return fmax((end - os_now()) / n, 1e-3); }

bool tune_bench(struct db *d, const struct tune_opts *o, struct tune_result *r, struct err *e)
{
    struct tuner probe = {.db = d, .o = o, .e = e};
    *r = (struct tune_result){.speedup = 1, .drift = 1};
    struct arena a = {0};
    struct db_todo *todo = NULL;
    u32 n = 0, n_tasks = 0;
    bool ok = open_device(&probe) && db_tasks(d, probe.env, &a, &todo, &n, e);
    struct tune_task *tasks = arena_array(&a, struct tune_task, n + 1);
    for (u32 i = 0; i < n && ok; i++) {
        struct err gone = {0};
        if (!has_work(d, probe.env, &todo[i], o, e)) continue;
        if (tune_read_todo(&tasks[n_tasks], &todo[i], &a, &gone)) n_tasks++;
        else log_printf(o->log, 1, "a task of the database cannot be read: %s", gone.msg);
    }
    if (ok && n == 0)
        ok = err_set(e, ERR_NOTHING,
                     "the database lists nothing to measure for this device; populate it first");
    ok = ok && !e->code && (n_tasks == 0 || tune_run(d, tasks, n_tasks, o, r, e));
    buf_release(&probe.toolchain);
    arena_release(&probe.arena);
    arena_release(&a);
    return ok;
}
