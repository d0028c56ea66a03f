// SPDX-License-Identifier: Apache-2.0
//
// Convolutions by data sets and named implementations. Declared and documented in include/quern.h.
#include "api/api_model.h"

#include "lab/conv.h"
#include "tune/verify.h"
#include "lab/lab.h"

#include <math.h>
#include <string.h>

struct conv_call {
    struct quern_conv_opts x;
    struct api_job job;
    struct conv_data data;
    struct cache cache;          /* of compiled kernels */
    struct conv_place place;
    struct conv_run run;         /* content of the files */
    struct str name;             /* of the implementation */
    enum layout layout;
    enum conv_pass pass;
    enum conv_act act;
    u32 first, last;
    quern_conv_fn *fn;
    void *user;
    quern *q;
    struct arena arena;
    u32 n_bad;                   /* layers */
    struct buf first_bad;        /* reason of the first one */
};

/* The current layer. */
struct layer {
    struct conv_call *g;
    struct arena arena;
    struct symtab st;
    struct task task;
    const i64 *var;
    const struct conv_row *row;  /* as in the data set */
    struct conv_row work;        /* as computed, see conv_row_computed */
    struct candidate candidate;
    struct subject subject;
    struct conv_base base;
    bool has_base, ok, base_ok;
    struct buf text, label, report;
};

/* Options. */

static bool read_options(struct conv_call *g, const struct quern_conv_opts *o, struct err *e)
{
    struct quern_conv_opts *x = &g->x;
    if (o) memcpy(x, o, o->size < sizeof *x ? o->size : sizeof *x);
    if (x->first < 0 || x->last < 0 || (x->last && x->last <= x->first))
        return err_set(e, ERR_USAGE, "rows %d to %d: the first is after the last", x->first, x->last);
    if (x->batch < 0 || x->batch > CONV_MAX_SIZE || x->warm_up < 0 || x->total < 0 || x->seconds < 0)
        return err_set(e, ERR_USAGE, "batch, rounds and seconds cannot be negative");
    if (!api_baseline_check(x->baseline, e)) return false;
    if (!x->verify && !x->compare) return err_set(e, ERR_USAGE, "nothing to do: neither to be verified nor to be timed");
    if (x->plots && !x->compare) return err_set(e, ERR_USAGE, "plots are of times: without a comparison there are none");
    if (x->no_build && x->seconds > 0) return err_set(e, ERR_USAGE, "a search builds kernels, which is not to be done");
    if (!conv_pass_read(&g->pass, x->pass, e) || !conv_act_read(&g->act, x->activation, e)) return false;
    if (g->pass && (x->bias || g->act)) return err_set(e, ERR_USAGE, "bias and activation are of convolutions, not of their gradients");
    g->run.type = DT_F32;
    g->name = str_of(x->implementation ? x->implementation : "tuned");
    return api_float_type(x->type, &g->run.type, e) && conv_layout(&g->layout, g->name, e);
}

static bool read_rows(struct conv_call *g, const struct log *log, struct err *e)
{
    const char *data = g->x.data ? g->x.data : "cosmoflow";
    if (!conv_data_open(&g->data, &g->arena, data, e)) return false;
    for (u32 i = 0; i < g->data.note.n; i++) log_printf(log, 1, "'%s': %.*s", data, STR_ARG(g->data.note.v[i]));
    g->first = (u32)g->x.first;
    g->last = g->x.last && (u32)g->x.last < g->data.row.n ? (u32)g->x.last : g->data.row.n;
    if (g->first >= g->last) return err_set(e, ERR_USAGE, "'%s' has %u rows, row %u does not exist", data, g->data.row.n, g->first);
    for (u32 i = g->first; i < g->last; i++) {
        struct conv_row *r = &g->data.row.v[i];
        r->pass = g->pass, r->has_bias = g->x.bias != 0, r->act = g->act;
        if (g->x.batch) r->batch = g->x.batch;
        if (!conv_row_check(r, e)) return err_prefix(e, "row %u with batch %lld", i, (long long)r->batch);
    }
    return true;
}

static bool open_place(struct conv_call *g, struct db *db, struct err *e)
{
    struct api_job *j = &g->job;
    if (!api_job_choose(j, e) || !api_target_ask(&j->target, e)) return false;
    j->t.timeout = g->x.seconds;
    cache_open(&g->cache, "kernels", &g->arena, &g->q->log);
    g->place = (struct conv_place){.db = db, .cache = &g->cache, .driver = j->target.driver, .dev = j->target.dev, .caps = &j->target.caps,
                                   .lang = j->target.lang, .toolchain = buf_view(&j->target.toolchain), .stop = &g->q->stop};
    g->place.env = db_env(db, buf_view(&j->target.fingerprint), buf_view(&j->target.toolchain), e);
    return g->place.env != 0;
}

/* One layer. */

static void note_bad(struct layer *l, const char *who, struct str why)
{
    struct conv_call *g = l->g;
    if (g->n_bad++ == 0) buf_printf(&g->first_bad, "%.*s: %s: %.*s", STR_ARG(buf_view(&l->label)), who, STR_ARG(why));
    buf_printf(&l->report, "%s: %.*s\n", who, STR_ARG(why));
}

static bool find_candidate(struct layer *l, struct err *e)
{
    struct conv_call *g = l->g;
    const struct conv_place *p = &g->place;
    if (!conv_row_computed(&l->work, l->row, e) ||
        !conv_row_task(&l->task, &l->arena, &l->st, &l->work, g->run.type, g->layout, e))
        return false;
    if (g->x.seconds > 0 && !conv_tune(p, &l->task, g->name, &g->job.t, e)) return false;
    if (!conv_choose(&l->candidate, p, &l->task, g->name, e)) return false;
    candidate_print(&l->text, &l->candidate);
    return conv_build(&l->subject, p, &l->task, &l->candidate, g->x.no_build, &l->arena, e);
}

/* Verifies a kernel and reports errors. */
static bool check_subject(struct layer *l, const struct subject *s, const char *who, bool *ok, struct err *e)
{
    struct verify_report r;
    const struct verify_opts o = {.trial = {.driver = l->g->place.driver, .dev = l->g->place.dev, .timeout = conv_timeout(&l->task, l->var), .stop = &l->g->q->stop},
                                      .seed = l->g->job.x.seed,
                                      .growth = s == &l->subject ? gen_growth(&l->candidate) : 0};
    if (!verify_contraction(&r, &l->task, l->var, s, &o, e)) return false;
    buf_printf(&l->report, "%s:\n", who);
    verify_print(&l->report, &r);
    conv_print_seed(&l->report, &r);
    *ok = r.ok;
    if (!r.ok) note_bad(l, who, verify_verdict(&r, &l->arena));
    return true;
}

static bool time_layer(struct layer *l, struct conv_result *r, struct err *e)
{
    const struct conv_call *g = l->g;
    const struct conv_pair pair = {.subject = &l->subject, .base = l->has_base ? &l->base.subject : NULL, .warm_up = (u32)g->x.warm_up,
                                   .total = (u32)g->x.total, .seed = g->job.x.seed};
    return conv_profile(&r->times, &g->place, &l->task, &pair, &l->g->arena, e);
}

static bool work(struct layer *l, struct conv_result *r, struct err *e)
{
    const struct conv_call *g = l->g;
    if (!find_candidate(l, e)) return false;
    l->ok = true;
    const struct conv_base_opts base = {.want = g->x.baseline, .only_known = g->x.no_build, .log = &g->q->log};
    if (g->x.compare)
        l->has_base = l->base_ok = conv_find_base(&l->base, &g->place, &l->task, &l->work, g->run.type, g->layout, &base, &l->arena, e);
    if (e->code) return false;
    if (g->x.verify && !check_subject(l, &l->subject, str_z(&l->arena, g->name), &l->ok, e)) return false;
    if (g->x.verify && l->base.by_library && !check_subject(l, &l->base.subject, str_z(&l->arena, l->base.name), &l->base_ok, e)) return false;
    l->has_base &= l->base_ok; /* a wrong baseline is dropped */
    return !g->x.compare || !l->ok || time_layer(l, r, e);
}

static struct quern_conv_times times_of(const double *v, u32 n, struct stats s)
{
    struct quern_conv_times t = {.median = s.median * 1e3, .low = s.low * 1e3, .high = s.high * 1e3};
    double sum = 0, squares = 0;
    for (u32 i = 0; i < n; i++) {
        double ms = v[i] * 1e3;
        sum += ms;
        t.min = i ? fmin(t.min, ms) : ms, t.max = fmax(t.max, ms);
    }
    if (n) t.mean = sum / n;
    for (u32 i = 0; i < n; i++) squares += (v[i] * 1e3 - t.mean) * (v[i] * 1e3 - t.mean);
    if (n > 1) t.deviation = sqrt(squares / (n - 1));
    return t;
}

static const char *text_of(struct layer *l, const struct buf *b) { return str_z(&l->arena, buf_view(b)); }

static void report(struct layer *l, const struct conv_result *r)
{
    const struct conv_call *g = l->g;
    const struct conv_times *t = &r->times;
    const struct quern_conv_layer x = {.layer = (int)r->layer, .name = text_of(l, &l->label), .candidate = text_of(l, &l->text),
                                       .implementation = str_z(&l->arena, g->name), .baseline = str_z(&l->arena, l->base.name),
                                       .ok = l->ok, .base_ok = l->base_ok, .report = text_of(l, &l->report), .n = (int)t->n,
                                       .times = times_of(t->seconds, t->n, t->of),
                                       .base_times = times_of(t->base, l->has_base ? t->n : 0, t->of_base), .ratio = t->ratio.median,
                                       .ratio_low = t->ratio.low, .ratio_high = t->ratio.high, .gflop = conv_row_flops(l->row) * 1e-9,
                                       .gbytes = conv_row_bytes(l->row, g->run.type) * 1e-9};
    if (g->fn) g->fn(g->user, &x);
}

/* A failing layer does not stop the others. false: the database or the system failed. */
static bool run_layer(struct conv_call *g, u32 k, struct err *e)
{
    struct layer l = {.g = g, .row = &g->data.row.v[k]};
    struct conv_result *r = arr_push(&g->arena, &g->run.result);
    struct err why = {0};
    *r = (struct conv_result){.layer = k, .row = l.row};
    l.var = arena_array(&l.arena, i64, 1);
    symtab_init(&l.st, &l.arena);
    conv_row_label(&l.label, l.row);
    bool done = work(&l, r, &why);
    bool is_cut = stop_is_set(&g->q->stop) && (!done || !l.ok); /* stopped before any result */
    if (is_cut) g->run.result.n--, why = (struct err){0};
    else if (!done) {
        l.ok = false;
        note_bad(&l, str_z(&l.arena, g->name), str_of(why.msg));
    }
    if (l.has_base && !is_cut) r->base = str_dup(&g->arena, l.base.name);
    if (!is_cut) report(&l, r);
    buf_release(&l.text);
    buf_release(&l.label);
    buf_release(&l.report);
    arena_release(&l.arena);
    return why.code != ERR_SYSTEM || err_set(e, why.code, "%s", why.msg);
}

/* Files. */

static void put_params(struct buf *b, const struct conv_call *g)
{
    const struct quern_conv_opts *x = &g->x;
    buf_printf(b, "csv = %s\nlayers = %u:%u\n", x->data ? x->data : "cosmoflow", g->first, g->last);
    buf_printf(b, "batch = %lld\ndtype = %s\n", (long long)g->data.row.v[g->first].batch, dtype_name(g->run.type));
    buf_printf(b, "device = %s\nthreads = %u\n", g->place.driver->name, g->place.caps->n_threads);
    buf_printf(b, "warm-up iterations = %d\ntotal iterations = %d\n", x->warm_up, x->total ? x->total : CONV_ROUNDS);
    buf_printf(b, "pass = %s\nbias = %d\nactivation = %s\n", conv_pass_name(g->pass), g->x.bias != 0, conv_act_name(g->act));
    buf_printf(b, "launch wait = %d\nimplementation = %.*s\n", x->launch_wait != 0, STR_ARG(g->name));
    buf_printf(b, "baseline = %s\nenvironment = %.*s\n", x->baseline ? x->baseline : "vendor or reference",
               STR_ARG(buf_view(&g->job.target.fingerprint)));
}

/* The rates that are cached, or are measured now. Without them, the files lack the columns that need them. */
static void measure_limits(struct conv_call *g)
{
    struct err e = {0};
    struct api_target *t = &g->job.target;
    bool ok = t->caps.rates.ops[RATE_FMA_F32].one > 0 || api_target_measure(t, &e);
    if (!ok) log_printf(&g->q->log, 1, "%s", e.msg);
    g->run.limit = t->caps.rates;
}

static bool write_files(struct conv_call *g, struct err *e)
{
    const char *dir = g->x.out ? g->x.out
                               : str_fmt(&g->arena, "outputplots/out_%.*s_%lld", STR_ARG(g->name), (long long)g->data.row.v[g->first].batch).p;
    struct buf params = {0};
    measure_limits(g);
    put_params(&params, g);
    bool ok = conv_write_files(&g->run, dir, buf_view(&params), e);
    buf_release(&params);
    if (ok) log_printf(&g->q->log, 2, "files of this run: %s", dir);
    return ok && (!g->x.plots || !conv_run_is_timed(&g->run) || lab_plot(dir, &g->q->log, e));
}

static bool run(struct conv_call *g, struct err *e)
{
    const struct dev_driver *v = g->place.driver;
    bool ok = true;
    g->run.implementation = g->name;
    if (g->x.launch_wait && g->x.compare)
        log_printf(&g->q->log, 2, v->elapsed ? "times are by the clock of device '%s': they have no latency of launches"
                                             : "device '%s' has no clock of its own: a launch is a call, times have it in them", v->name);
    for (u32 k = g->first; k < g->last && ok && !stop_is_set(&g->q->stop); k++) ok = run_layer(g, k, e);
    if (ok && g->run.result.n == 0 && stop_is_set(&g->q->stop)) return err_set(e, ERR_STOPPED, "stopped before a layer was done");
    ok = ok && (!g->x.compare || write_files(g, e));
    if (ok && g->n_bad)
        return err_set(e, ERR_FAILED, "%u of %u layers failed, the first: %.*s", g->n_bad, g->last - g->first,
                       STR_ARG(buf_view(&g->first_bad)));
    return ok;
}

quern_status quern_conv(quern_db *db, const struct quern_conv_opts *o, quern_conv_fn *fn, void *user)
{
    if (!db) return QUERN_USAGE;
    struct err *e = api_begin(db->q);
    struct conv_call g = {.fn = fn, .user = user, .q = db->q};
    bool ok = read_options(&g, o, e) && read_rows(&g, &db->q->log, e) && api_job_read(&g.job, db->q, g.x.tune, e) &&
              open_place(&g, &db->db, e) && run(&g, e);
    api_target_close(&g.job.target);
    buf_release(&g.first_bad);
    arena_release(&g.arena);
    return api_end(db->q, ok);
}

const char *quern_conv_implementation(int k, const char **summary)
{
    const struct conv_impl *x = k >= 0 ? conv_impl_at((u32)k) : NULL;
    if (x && summary) *summary = x->what;
    return x ? x->name : NULL;
}

const char *quern_conv_data(int k)
{
    struct str text;
    return k >= 0 ? conv_data_at((u32)k, &text) : NULL;
}
