// SPDX-License-Identifier: Apache-2.0
//
// The tuning loop. One contest per task. Each turn goes to the contest with most to gain (its share
// of the program's time, times what the model hopes to save of it, less the longer nothing better
// was found): a few candidates are built together, then each is verified and timed by itself. Where
// the kernels leave processors alone the next ones are built there meanwhile. What cannot win is
// given up early; what may have won is measured again at the end. Everything learnt is in the
// database at once, so a killed run goes on where it was.
#include "tune/tuner.h"

#include <math.h>

enum {
    BATCH = 4,          /* candidates proposed together: each learns from those before them */
    LARGE_BATCH = 8,    /* where building and starting take longer than measuring */
    DEFAULT_CANDIDATES = 256,
    HEATS_PER_TURN = 4,
    POPULATE_CANDIDATES = 32,
    MAX_INTEGER_BYTES = 1 << 28 /* of a task that is verified on integers, too */
};
static const double final_share = 0.18;

/* A trial of which enough is known. Searching goes on to others; measuring a database (no candidates
 * are added) gives each its samples. */
static bool is_settled(const struct tune_opts *o, enum trial_status s, u32 n)
{
    u32 want = tuner_min_samples(o);
    if (o->relative_error > 0) want = (u32)i64_min(want, 3);
    if (s != TRIAL_OK || o->add_candidates) return s != TRIAL_NEW;
    return n >= want;
}

/* checks of a task: odd small sizes where sizes are symbolic, and the sizes it is timed at while
 * the reference is affordable */

static void release_checks(struct tuner *t)
{
    for (u32 i = 0; i < MAX_CHECKS; i++)
        if (t->check[i].task) check_release(&t->check[i]);
    arena_release(&t->check_arena);
    t->n_checks = 0;
    t->timing = NULL;
    t->checks_of = NULL;
}

static bool add_check(struct tuner *t, const struct contest *c, const i64 *var, u64 seed, bool with_reference)
{
    u32 n = t->n_checks;
    t->n_checks += with_reference;
    return check_init_for(&t->check[n], c->t->task, var, t->o->seed + seed, with_reference, &t->caps, t->e);
}

/* Integers, too, where the task's sums are exact with them: a wrong term is seen there that random numbers let pass. */
static bool add_integers(struct tuner *t, const struct contest *c, const i64 *var)
{
    i64 most = task_bytes(c->t->task, var) <= MAX_INTEGER_BYTES ? check_largest_integer(c->t->task, var) : 0;
    return !most || check_init_integers(&t->check[t->n_checks++], c->t->task, var, t->o->seed, most, t->e);
}

static bool add_small_check(struct tuner *t, const struct contest *c, const i64 *value, u64 seed)
{
    const struct symtab *st = c->t->task->g.sym;
    i64 *var = arena_array(&t->check_arena, i64, st->var.n + 1);
    for (u32 v = 0; v < st->var.n; v++) var[v] = value[v % 2];
    if (!check_positive(c->t->task, var) || !task_fits(c->t->task, var)) return true;
    return (t->n_checks || add_integers(t, c, var)) && add_check(t, c, var, seed, true);
}

/* Where nothing smaller is to be had it is verified on what it is timed on. */
static bool make_checks(struct tuner *t, const struct contest *c)
{
    static const i64 small[2][2] = {{37, 43}, {80, 19}};
    if (t->checks_of == c) return true;
    release_checks(t);
    for (u32 i = 0; i < 2 && c->sizes.n > 0; i++)
        if (!add_small_check(t, c, small[i], i)) return false;
    bool is_only = t->n_checks == 0;
    if (is_only && !add_integers(t, c, c->t->var)) return false;
    t->timing = &t->check[t->n_checks];
    if (!add_check(t, c, c->t->var, is_only ? 0 : t->n_checks, is_only)) return false;
    t->checks_of = c;
    return true;
}

/* one candidate */

static u32 batch_of(const struct tuner *t)
{
    if (!t->o->measure) return MAX_HEAT; /* nothing is learnt: the more texts a compiler gets at once, the better */
    return t->o->driver->is_foreign || !t->o->add_candidates ? LARGE_BATCH : BATCH;
}

/* A program that cannot be loaded, or one of whose kernels cannot, is no verdict on the others in it. False: the kernel is alone. */
static bool halve_program(struct tuner *t, struct heat *h, u32 i)
{
    if (!build_halve(&t->builder, h->text, h->building.out, h->n, i, &t->arena, t->e)) return false;
    for (u32 k = 0; k < h->n; k++) h->subject[k].code = h->building.out[k].code;
    trial_close(&h->session); /* its process knows the old one */
    return h->building.out[i].ok;
}

static enum trial_status measure_one(struct tuner *t, struct contest *c, struct heat *h, u32 i, struct buf *why)
{
    enum trial_status st = heat_measure(t, c, h, i, why);
    while (st == TRIAL_LAUNCH && halve_program(t, h, i)) {
        buf_reset(why);
        st = heat_measure(t, c, h, i, why);
    }
    return st;
}

static bool run_one(struct tuner *t, struct contest *c, struct heat *h, u32 i)
{
    struct entrant *x = &c->known.v[h->entrant[i]];
    contest_queue(c, x, false);
    if (!h->building.out[i].ok)
        return entrant_set_status(t, c, x, h->building.out[i].timed_out ? TRIAL_BUILD_TIMEOUT : TRIAL_BUILD,
                          h->building.out[i].message);
    struct buf why = {0};
    enum trial_status st = measure_one(t, c, h, i, &why);
    if (st == TRIAL_NEW) { /* the run's time is over: the next run measures it */
        buf_release(&why);
        return !t->e->code;
    }
    bool ok = entrant_set_status(t, c, x, st, buf_view(&why));
    buf_release(&why);
    c->n_tried++;
    contest_consider(c, x);
    return ok && !t->e->code;
}

static bool run_heat(struct tuner *t, struct contest *c, struct heat *h)
{
    bool ok = true;
    heat_open(t, c, h, HEAT_TRIALS);
    for (u32 i = 0; i < h->n && ok && (i == 0 || !tuner_is_late(t)); i++) ok = run_one(t, c, h, i);
    trial_close(&h->session);
    return ok;
}

/* The heat's only candidate, if it was verified; with all that the heat holds. */
static void take_base(struct contest *c, struct heat *h)
{
    struct entrant *x = &c->known.v[h->entrant[0]];
    if (x->status != TRIAL_OK) return;
    c->base = h->subject[0];
    c->base_arena = h->arena;
    h->arena = (struct arena){0};
    c->base_trial = x->trial;
    c->base_time = (struct stats){.median = x->median};
    x->ratio = x->ratio_low = x->ratio_high = 1;
    x->reference = 0;
    c->best_ratio = 1;
    c->is_ready = true;
}

/* The default candidate: everything else is timed beside it. Where it fails the next generator's
 * takes its place. */
static bool find_base(struct tuner *t, struct contest *c)
{
    struct candidate cand[3];
    u32 n = 0;
    c->is_hopeless = !task_fits(c->t->task, c->t->var);
    if (c->is_hopeless) { /* sizes that are made while running are guesses */
        log_printf(t->o->log, 1, "%.*s: not measured, the operators cannot have the sizes %.*s", STR_ARG(c->label), STR_ARG(c->sizes));
        return true;
    }
    if (gen_default(c->t->task, &t->caps, c->t->var, &cand[n])) n++;
    for (i64 k = 0; gen_at(k) && n < 3; k++) {
        const struct gen *g = gen_at(k);
        if ((n && cand[0].gen == g) || !gen_matches(g, c->t->task, &t->caps)) continue;
        cand[n++] = gen_initial(g, c->t->task, &t->caps, c->t->var);
    }
    for (u32 i = 0; i < n && !c->is_ready && !t->e->code && !stop_is_set(t->o->stop); i++) {
        struct heat h = {.n = 1, .cand = {cand[i]}};
        if (heat_build(t, c, &h) && h.n > 0) {
            contest_mark(c, &cand[i]);
            if (run_heat(t, c, &h)) take_base(c, &h);
        }
        heat_reset(&h);
    }
    c->is_hopeless = !c->is_ready;
    return !t->e->code;
}

/* Ratios of earlier runs refer to earlier bases; what is known is put in relation to the base
 * measured now. */
static void relate(struct contest *c)
{
    c->best_at = -1;
    for (u32 i = 0; i < c->known.n; i++)
        if (c->known.v[i].ratio <= 0 && c->base_time.median > 0)
            c->known.v[i].ratio = c->known.v[i].median / c->base_time.median;
    contest_update_best(c);
    if (c->best_at < 0) c->best_ratio = 1;
}

static void take_given(const struct tune_source *s, struct contest *c, struct heat *h, u32 max)
{
    while (h->n < max && s->next(s->user, &h->cand[h->n]))
        h->n += contest_mark(c, &h->cand[h->n]);
}

/* Listing and predicting all schedules takes a while: done for the tasks that get that far. */
static void propose(struct tuner *t, struct contest *c, struct heat *h, u32 max)
{
    h->n = 0;
    if (t->o->source) {
        take_given(t->o->source, c, h, max);
        c->is_done = h->n == 0;
        return;
    }
    if (!c->is_filled) contest_fill_pool(c, &t->caps, t->o->seed, &t->arena);
    c->is_filled = true;
    h->n = contest_propose(c, &t->search, h->cand, max);
}

static bool next_heat(struct tuner *t, struct contest *c, struct heat *h)
{
    heat_reset(h);
    if (t->o->source) {
        propose(t, c, h, batch_of(t));
        return h->n > 0;
    }
    for (u32 i = 0; i < c->known.n && h->n < batch_of(t);
         i++) /* rows of populate, or of a run that was killed */
        if (!c->known.v[i].is_queued && !is_settled(t->o, c->known.v[i].status, c->known.v[i].n))
            h->cand[h->n++] = c->known.v[i].cand, contest_mark(c, &c->known.v[i].cand);
    u32 limit = t->o->max_candidates ? t->o->max_candidates : DEFAULT_CANDIDATES;
    u32 n = c->n_tried + c->n_queued;
    if (h->n == 0 && t->o->add_candidates && n < limit)
        propose(t, c, h, (u32)i64_min(batch_of(t), limit - n));
    c->is_done = h->n == 0;
    return h->n > 0;
}

/* Processors that the kernels being timed do not use. A foreign device's kernels are built in no time. */
static u32 spare_processors(const struct tuner *t)
{
    i64 spare = (i64)os_n_cpus() - t->caps.n_threads;
    return !t->o->driver->is_foreign && spare > 0 ? (u32)spare : 0;
}

/* The next heat is chosen before this one is measured, so that it can be built meanwhile. */
static bool look_ahead(struct tuner *t, struct contest *c, const struct heat *now)
{
    struct heat *h = &t->heat[now == &t->heat[0]];
    if (!next_heat(t, c, h)) {
        c->is_done = false; /* what is measured now may lead to more */
        return true;
    }
    if (!heat_spell(t, c, h) || !heat_start(t, h, spare_processors(t))) return false;
    t->ahead = h;
    return true;
}

static bool take_turn(struct tuner *t, struct contest *c, bool is_last)
{
    struct heat *h = t->ahead ? t->ahead : &t->heat[0];
    bool was_ahead = t->ahead != NULL;
    t->ahead = NULL;
    if (was_ahead && !build_finish(&h->building, &h->arena, t->e)) return false;
    if (!was_ahead) {
        if (!next_heat(t, c, h)) return true;
        if (!heat_build(t, c, h)) return false;
    }
    if (!is_last && spare_processors(t) && !look_ahead(t, c, h)) return false;
    return run_heat(t, c, h);
}

/* false: the task cannot be fed or evaluated; said once, the run goes on. */
static bool is_checkable(struct tuner *t, struct contest *c)
{
    if (make_checks(t, c)) return true;
    log_printf(t->o->log, 1, "task left out: %s", t->e->msg);
    *t->e = (struct err){.stop = t->e->stop};
    c->is_hopeless = true;
    return false;
}

static bool turn(struct tuner *t, struct contest *c, bool is_last)
{
    if (!is_checkable(t, c)) return true;
    if (c->is_ready) return take_turn(t, c, is_last);
    if (!find_base(t, c)) return false;
    relate(c);
    return !c->is_ready || rival_measure(t, c);
}

/* choosing whose turn it is */

/* Every task of the program gets its default measured first; alternatives wait until what they
   could take over is known to be worth it: they count by their predicted time and a quarter of a
   use. Else the turn goes where most is to be gained: a task's share of the program's time, times
   what its search still hopes to save of it, less the longer it hoped in vain. */
static double promise(const struct contest *c)
{
    if (c->is_hopeless || c->is_done) return -1;
    if (!c->is_ready && c->t->weight > 0) return 1e6 + c->t->weight * c->predicted;
    double seconds = c->is_ready && c->best_at >= 0 ? c->best : c->predicted;
    return (c->t->weight > 0 ? c->t->weight : 0.25) * seconds * c->hope / (1 + (double)c->n_idle / 12);
}

static struct contest *whose_turn(struct tuner *t)
{
    struct contest *best = NULL;
    for (u32 i = 0; i < t->n; i++) {
        double p = promise(&t->contest[i]);
        if (p > 0 && (!best || p > promise(best))) best = &t->contest[i];
    }
    return best;
}

/* Where candidates are given, one of them must have been tried, whatever the reference reaches. */
static bool is_enough(const struct tuner *t)
{
    const struct tune_opts *o = t->o;
    double best = tune_seconds(t);
    if (best <= 0 || (o->source && t->contest[0].n_tried < 2)) return false;
    return (o->stop_at_speedup > 0 && tune_speedup(t) >= o->stop_at_speedup) || best <= o->stop_at_seconds;
}

/* A contest keeps its turn for a while, because making its checks costs more than a trial; but the
 * defaults come first. */
static bool main_loop(struct tuner *t)
{
    double reserve = t->end > 0 && t->o->measure ? (t->end - t->start) * final_share : 0;
    for (;;) {
        struct contest *c = whose_turn(t);
        if (!c) return true;
        u32 n = c->is_ready ? HEATS_PER_TURN : 1;
        for (u32 k = 0; k < n && (t->ahead || promise(c) > 0); k++) {
            if (tuner_deadline(t) > 0 && os_now() >= t->end - reserve) return true;
            if (is_enough(t) || stop_is_set(t->o->stop)) return true;
            if (!turn(t, c, k + 1 == n)) return false;
        }
    }
}

static bool has_finals(const struct contest *c, bool of_program)
{
    return (c->t->weight > 0) == of_program && c->is_ready && c->best_at >= 0;
}

/* Of the program's tasks first, each with an equal share of the time that those before it have left; then of the alternatives. */
static bool run_finals(struct tuner *t, bool of_program)
{
    u32 left = 0;
    for (u32 i = 0; i < t->n; i++) left += has_finals(&t->contest[i], of_program);
    for (u32 i = 0; i < t->n && !tuner_is_late(t); i++) {
        struct contest *c = &t->contest[i];
        double now = os_now();
        if (!has_finals(c, of_program)) continue;
        double end = t->end > 0 ? now + (t->end - now) / left-- : 0;
        if (!is_checkable(t, c)) continue;
        if (!contest_finals(t, c, end) || (of_program && !rival_again(t, c))) return false;
    }
    return true;
}

/* populate: rows and binaries only */
static bool populate(struct tuner *t)
{
    u32 usual = t->o->source ? UINT32_MAX : POPULATE_CANDIDATES, limit = t->o->max_candidates ? t->o->max_candidates : usual;
    for (u32 i = 0; i < t->n; i++) {
        struct contest *c = &t->contest[i];
        struct heat *h = &t->heat[0];
        heat_reset(h);
        if (gen_default(c->t->task, &t->caps, c->t->var, &h->cand[0]) && contest_mark(c, &h->cand[0])) {
            h->n = 1;
            if (!heat_build(t, c, h)) return false;
            t->r->n_built += h->n;
        }
        for (u32 n = 1; n < limit && !c->is_done && !tuner_is_late(t); n += batch_of(t)) {
            heat_reset(h);
            propose(t, c, h, (u32)i64_min(batch_of(t), limit - n));
            if (h->n && !heat_build(t, c, h)) return false;
            t->r->n_built += h->n;
            report_progress(t, c);
        }
    }
    return true;
}

static bool open_device(struct tuner *t)
{
    struct buf fp = {0};
    bool ok = dev_ask(t->o->driver, &t->o->dev, &t->caps, &fp, t->e); /* children open it */
    cache_open(&t->cache, "kernels", &t->arena, t->o->log);
    t->builder = (struct builder){
        .cache = &t->cache, .lang = lang_find(str_of(t->o->driver->lang)), .caps = &t->caps, .may_join = true, .stop = t->o->stop};
    ok = ok && t->builder.lang && t->builder.lang->toolchain(&t->toolchain, &t->caps, t->e);
    t->builder.toolchain = buf_view(&t->toolchain);
    if (ok) t->env = db_env(t->db, buf_view(&fp), t->builder.toolchain, t->e);
    buf_release(&fp);
    return ok && t->env != 0;
}

/* Whatever was going on is given up; what was measured is as good as ever. */
static bool is_stopped(struct tuner *t)
{
    if (!stop_is_set(t->o->stop) || (t->e->code && t->e->code != ERR_STOPPED)) return false;
    *t->e = (struct err){.stop = t->e->stop};
    return t->r->was_stopped = true;
}

static void tell_sandbox(const struct tuner *t)
{
    const char *lacks = os_sandbox_lacks(t->o->driver->is_foreign ? OS_SANDBOX_DEVICE : OS_SANDBOX_MEMORY);
    if (lacks) log_printf(t->o->log, 3, "this system has no %s: candidates run with your rights to files, network and processes", lacks);
    else if (t->o->driver->is_foreign) log_printf(t->o->log, 3, "candidates can write to devices, temporary files and caches only");
    else log_printf(t->o->log, 3, "candidates can use nothing but their own memory");
}

static bool search(struct tuner *t)
{
    bool ok = main_loop(t);
    for (u32 i = 0; i < countof(t->heat); i++) heat_reset(&t->heat[i]);
    t->ahead = NULL;
    return ok && run_finals(t, true) && run_finals(t, false);
}

static bool run(struct tuner *t, const struct tune_task *task)
{
    if (!open_device(t)) return false;
    os_temp_sweep();
    struct shelf shelf = {t->db, t->env, &t->caps, &t->arena, t->e};
    t->contest = arena_array(&t->arena, struct contest, t->n + 1);
    for (u32 i = 0; i < t->n; i++)
        if (!contest_load(&t->contest[i], &task[i], &shelf)) return false;
    if (!contests_past(&t->search, t->contest, t->n, &shelf)) return false;
    if (!t->o->measure) return populate(t) || is_stopped(t);
    tell_sandbox(t);
    for (u32 i = 0; i < t->n; i++) contest_update_best(&t->contest[i]);
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
    for (u32 i = 0; i < countof(t->heat); i++) heat_reset(&t->heat[i]);
    for (u32 i = 0; i < n && t->contest; i++) arena_release(&t->contest[i].base_arena);
    r->memory = t->arena.held;
    release_checks(t);
    buf_release(&t->toolchain);
    arena_release(&t->arena);
    mem_free(t);
    return ok;
}

/* all tasks of the database */

/* Is anything of the task left to measure? */
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
