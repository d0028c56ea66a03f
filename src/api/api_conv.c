// SPDX-License-Identifier: Apache-2.0
//
// Convolutions by data sets and named implementations. Declared and documented in include/quern.h.
#include "api/api_model.h"

#include "lab/conv.h"
#include "lab/lab.h"

#include <math.h>
#include <string.h>

struct conv_call {
    struct quern_conv_opts x;
    struct api_job job;
    struct conv_data data;
    struct cache cache;          /* of compiled kernels */
    struct conv_job conv;
    enum conv_pass pass;
    enum conv_act act;
    quern_conv_fn *fn;
    void *user;
    quern *q;
    struct arena arena;
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
    g->conv = (struct conv_job){.name = str_of(x->implementation ? x->implementation : "tuned"), .type = DT_F32, .verify = x->verify != 0,
                                .compare = x->compare != 0, .only_known = x->no_build != 0, .baseline = x->baseline,
                                .warm_up = (u32)x->warm_up, .total = (u32)x->total, .log = &g->q->log};
    return api_float_type(x->type, &g->conv.type, e) && conv_layout(&g->conv.layout, g->conv.name, e);
}

static bool read_rows(struct conv_call *g, const struct log *log, struct err *e)
{
    const char *data = g->x.data ? g->x.data : "cosmoflow";
    if (!conv_data_open(&g->data, &g->arena, data, e)) return false;
    for (u32 i = 0; i < g->data.note.n; i++) log_printf(log, 1, "'%s': %.*s", data, STR_ARG(g->data.note.v[i]));
    struct conv_job *c = &g->conv;
    c->row = g->data.row.v, c->first = (u32)g->x.first;
    c->last = g->x.last && (u32)g->x.last < g->data.row.n ? (u32)g->x.last : g->data.row.n;
    if (c->first >= c->last) return err_set(e, ERR_USAGE, "'%s' has %u rows, row %u does not exist", data, g->data.row.n, c->first);
    for (u32 i = c->first; i < c->last; i++) {
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
    if (!api_job_ask(j, g->q, e)) return false;
    j->t.timeout = g->x.seconds;
    g->conv.search = g->x.seconds > 0 ? &j->t : NULL, g->conv.seed = j->x.seed;
    cache_open(&g->cache, "kernels", &g->arena, &g->q->log);
    g->conv.place = (struct conv_place){.db = db, .cache = &g->cache, .driver = j->target.driver, .dev = j->target.dev, .caps = &j->target.caps,
                                        .lang = j->target.lang, .toolchain = buf_view(&j->target.toolchain), .stop = &g->q->stop};
    g->conv.place.env = db_env(db, buf_view(&j->target.fingerprint), buf_view(&j->target.toolchain), e);
    return g->conv.place.env != 0;
}

/* Results. */

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

static void report(void *user, const struct conv_layer *l)
{
    const struct conv_call *g = user;
    const struct conv_times *t = l->times;
    struct arena a = {0};
    const struct quern_conv_layer x = {.layer = (int)l->index, .name = str_z(&a, l->label), .candidate = str_z(&a, l->candidate),
                                       .implementation = str_z(&a, g->conv.name), .baseline = str_z(&a, l->base),
                                       .ok = l->ok, .base_ok = l->base_ok, .report = str_z(&a, l->report), .n = (int)t->n,
                                       .times = times_of(t->seconds, t->n, t->of),
                                       .base_times = times_of(t->base, l->has_base ? t->n : 0, t->of_base), .ratio = t->ratio.median,
                                       .ratio_low = t->ratio.low, .ratio_high = t->ratio.high, .gflop = conv_row_flops(l->row) * 1e-9,
                                       .gbytes = conv_row_bytes(l->row, g->conv.type) * 1e-9};
    g->fn(g->user, &x);
    arena_release(&a);
}

/* Files. */

static void put_params(struct buf *b, const struct conv_call *g)
{
    const struct quern_conv_opts *x = &g->x;
    const struct conv_job *c = &g->conv;
    buf_printf(b, "csv = %s\nlayers = %u:%u\n", x->data ? x->data : "cosmoflow", c->first, c->last);
    buf_printf(b, "batch = %lld\ndtype = %s\n", (long long)c->row[c->first].batch, dtype_name(c->type));
    buf_printf(b, "device = %s\nthreads = %u\n", c->place.driver->name, c->place.caps->n_threads);
    buf_printf(b, "warm-up iterations = %d\ntotal iterations = %d\n", x->warm_up, x->total ? x->total : CONV_ROUNDS);
    buf_printf(b, "pass = %s\nbias = %d\nactivation = %s\n", conv_pass_name(g->pass), x->bias != 0, conv_act_name(g->act));
    buf_printf(b, "launch wait = %d\nimplementation = %.*s\n", x->launch_wait != 0, STR_ARG(c->name));
    buf_printf(b, "baseline = %s\nenvironment = %.*s\n", x->baseline ? x->baseline : "vendor or reference",
               STR_ARG(buf_view(&g->job.target.fingerprint)));
}

/* The rates that are cached, or are measured now, never assumed ones: what a kernel reaches of a limit is said of the device's own only. Without
   them, ceilings and shares of a limit are left out. */
static void measure_limits(struct conv_call *g, struct conv_run *r)
{
    struct err e = {0};
    struct api_target *t = &g->job.target;
    bool ok = t->caps.rates.ops[RATE_FMA_F32].one > 0 || api_target_measure(t, &e);
    if (ok) r->limit = t->caps.rates;
    else log_printf(&g->q->log, 1, "%s", e.msg);
}

static bool write_files(struct conv_call *g, struct conv_run *r, struct err *e)
{
    const char *dir = g->x.out ? g->x.out
                               : str_fmt(&g->arena, "outputplots/out_%.*s_%lld", STR_ARG(g->conv.name), (long long)g->conv.row[g->conv.first].batch).p;
    struct buf params = {0};
    measure_limits(g, r);
    put_params(&params, g);
    bool ok = conv_write_files(r, dir, buf_view(&params), e);
    buf_release(&params);
    if (ok) log_printf(&g->q->log, 2, "files of this run: %s", dir);
    return ok && (!g->x.plots || !conv_run_is_timed(r) || lab_plot(dir, &g->q->log, e));
}

static bool run(struct conv_call *g, struct err *e)
{
    const struct dev_driver *v = g->conv.place.driver;
    struct conv_layers all;
    if (g->x.launch_wait && g->x.compare)
        log_printf(&g->q->log, 2, v->elapsed ? "times are by the clock of device '%s': they have no latency of launches"
                                             : "device '%s' has no clock of its own: a launch is a call, times have it in them", v->name);
    bool ok = conv_layers_run(&all, &g->conv, &g->arena, e) && (!g->x.compare || write_files(g, &all.run, e));
    if (ok && all.n_bad)
        return err_set(e, ERR_FAILED, "%u of %u layers failed, the first: %.*s", all.n_bad, g->conv.last - g->conv.first, STR_ARG(all.first_bad));
    return ok;
}

quern_status quern_conv(quern_db *db, const struct quern_conv_opts *o, quern_conv_fn *fn, void *user)
{
    if (!db) return QUERN_USAGE;
    struct err *e = api_begin(db->q);
    struct conv_call g = {.fn = fn, .user = user, .q = db->q};
    bool ok = read_options(&g, o, e) && read_rows(&g, &db->q->log, e) && api_job_read(&g.job, db->q, g.x.tune, e) &&
              open_place(&g, &db->db, e);
    if (fn) g.conv.each = report, g.conv.user = &g;
    ok = ok && run(&g, e);
    api_target_close(&g.job.target);
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
