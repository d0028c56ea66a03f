// SPDX-License-Identifier: Apache-2.0
//
// Quantisation of a model: runs it and what src/quant makes of it on samples of its inputs. Declared
// and documented in include/quern.h.
//
// Three programs are compiled: the network in f32 with the values to be quantised as outputs, a probe
// that measures the error of each layer alone, and the quantised network. All are models of their own
// that go through the form of an ONNX file, so that what is measured is what is written.
#include "api/api_model.h"

#include "quant/quant.h"

#include <math.h>
#include <string.h>

struct job {
    quern *q;
    quern_model *m;
    struct quern_quantize_opts o;
    struct api_samples samples; /* fn NULL: none */
    struct api_net plain;       /* the network in f32 with everything that is examined as outputs */
    struct arena arena;
    struct quant t;
};

/* noise / signal is the square of a relative error */
struct power { double noise, signal, most; };

static double relative(const struct power *p) { return p->signal > 0 ? sqrt(p->noise / p->signal) : p->noise > 0 ? INFINITY : 0; }

static bool net_open(struct job *j, struct api_net *n, const struct graph *g)
{
    return api_net_open(n, &j->samples, g, j->o.device, j->o.threads, &j->arena);
}

static bool reopen(struct job *j, const struct graph *g, quern_model **m)
{
    return api_model_of(j->q, g, str_z(&j->arena, j->m->model->name), false, m);
}

/* Calibration. */

static bool is_listed(const struct value_list *l, value_id v)
{
    for (u32 k = 0; k < l->n; k++)
        if (l->v[k] == v) return true;
    return false;
}

/* The results of layers that are not outputs. */
static struct value_list hidden_results(struct job *j)
{
    struct value_list l = {0};
    for (u32 k = 0; k < j->t.layer.n; k++)
        if (!is_listed(&j->t.g.output, j->t.layer.v[k].out)) *arr_push(&j->arena, &l) = j->t.layer.v[k].out;
    return l;
}

static bool open_plain(struct job *j)
{
    struct graph *g = arena_new(&j->arena, struct graph);
    struct value_list hidden = hidden_results(j);
    graph_clone(g, &j->t.g, &j->arena);
    for (u32 k = 0; k < hidden.n; k++) *arr_push(&j->arena, &g->output) = hidden.v[k];
    for (value_id v = 1; v < j->t.g.value.n; v++)
        if (j->t.seen[v] && !is_listed(&g->input, v) && !is_listed(&g->output, v)) *arr_push(&j->arena, &g->output) = v;
    return net_open(j, &j->plain, g);
}

static bool see(void *user, int k, struct err *e)
{
    struct job *j = user;
    i64 at;
    if (!api_net_run(&j->plain)) return false;
    for (value_id v = 1; v < j->t.g.value.n; v++)
        if (j->t.seen[v] && !quant_see(j->t.seen[v], api_net_value(&j->plain, v), &j->arena, &at))
            return err_set(e, ERR_INPUT, "element %lld of value '%.*s' is not finite; leave this sample out", (long long)at,
                           STR_ARG(graph_value(&j->t.g, v)->name));
    return true;
}

static bool count(void *user, int k, struct err *e)
{
    struct job *j = user;
    if (!api_net_run(&j->plain)) return false;
    for (value_id v = 1; v < j->t.g.value.n; v++)
        if (j->t.seen[v]) quant_count(j->t.seen[v], api_net_value(&j->plain, v), &j->arena);
    return true;
}

static bool calibrate(struct job *j)
{
    quant_watch(&j->t);
    return open_plain(j) && api_samples_each(&j->samples, see, j) &&
           (!quant_needs_bins(j->t.opts.method) || api_samples_each(&j->samples, count, j)) && quant_settle(&j->t, &j->q->err);
}

/* Errors. */

struct probe_run { const struct job *j; struct api_net net; struct power *own; /* per layer */ };

static bool add_probe(void *user, int k, struct err *e)
{
    struct probe_run *p = user;
    int at = 0;
    if (!api_net_run(&p->net)) return false;
    for (u32 i = 0; i < p->j->t.layer.n; i++) {
        if (p->j->t.layer.v[i].is_float) continue;
        p->own[i].noise += elem_f64(DT_F32, p->net.out[at++]->t.data, 0);
        p->own[i].signal += elem_f64(DT_F32, p->net.out[at++]->t.data, 0);
    }
    return true;
}

/* The error of each layer alone; those beyond the bound stay in f32. */
static bool probe_layers(struct job *j, struct power *own)
{
    struct probe_run p = {.j = j, .own = own};
    struct graph *g = arena_new(&j->arena, struct graph);
    u32 n_float = 0;
    bool ok = quant_write_probe(&j->t, g, &j->q->err) && net_open(j, &p.net, g) && api_samples_each(&j->samples, add_probe, &p);
    api_net_close(&p.net);
    for (u32 k = 0; ok && k < j->t.layer.n; k++) {
        struct quant_layer *l = &j->t.layer.v[k];
        if (j->o.max_error > 0 && !l->is_float) l->is_float = relative(&own[k]) > j->o.max_error;
        n_float += l->is_float;
    }
    if (!ok) return false;
    if (n_float == j->t.layer.n)
        return err_set(&j->q->err, ERR_NOTHING, "the relative error of every layer is above %g: allow a larger one (max-error)", j->o.max_error);
    if (!n_float) return true;
    quant_mark(&j->t);
    return quant_settle(&j->t, &j->q->err);
}

struct comparison {
    const struct job *j;
    struct api_net *plain, net; /* in f32, quantised */
    struct power *power;        /* per output of the quantised one */
};

static bool compare(void *user, int k, struct err *e)
{
    struct comparison *c = user;
    if (!api_net_run(c->plain) || !api_net_run(&c->net)) return false;
    for (int i = 0; i < c->net.n_out; i++) {
        const struct tensor *got = &c->net.out[i]->t, *want = api_net_value(c->plain, c->net.g->output.v[i]);
        if (!dtype_is_float(want->dtype)) continue;
        for (i64 x = 0, n = tensor_count(want); x < n; x++) {
            double w = elem_f64(want->dtype, want->data, x), d = elem_f64(got->dtype, got->data, x) - w;
            c->power[i].noise += d * d, c->power[i].signal += w * w;
            c->power[i].most = fmax(c->power[i].most, fabs(d));
        }
    }
    return true;
}

static void report_outputs(const struct job *j, const struct comparison *c)
{
    for (u32 k = 0; k < j->t.g.output.n; k++) {
        struct str name = graph_value(&j->t.g, j->t.g.output.v[k])->name;
        struct quern_quantized r = {.name = name.p, .op = "", .is_output = 1, .is_quantized = 1, .own = -1};
        r.total = relative(&c->power[k]), r.max_abs = c->power[k].most;
        j->o.report(j->o.report_user, &r);
    }
}

/* c NULL: nothing was run. */
static void report_layers(const struct job *j, const struct comparison *c, const struct power *own)
{
    for (u32 k = 0; k < j->t.layer.n; k++) {
        const struct quant_layer *l = &j->t.layer.v[k];
        const struct node *n = graph_node(&j->t.g, graph_value(&j->t.g, l->out)->producer);
        struct quern_quantized r = {.op = n->op.p, .is_quantized = !l->is_float, .own = own[k].signal > 0 || own[k].noise > 0 ? relative(&own[k]) : -1};
        r.name = n->name.n ? n->name.p : graph_value(&j->t.g, l->out)->name.p;
        if (!c) r.total = r.max_abs = NAN;
        for (int i = 0; c && i < c->net.n_out; i++)
            if (c->net.g->output.v[i] == l->out) r.total = relative(&c->power[i]), r.max_abs = c->power[i].most;
        j->o.report(j->o.report_user, &r);
    }
}

static bool write(const struct job *j, struct graph *g, const value_id *more, u32 n_more)
{
    return (j->t.opts.weights ? quant_write_weights : quant_write)(&j->t, g, more, n_more, &j->q->err);
}

static bool report(struct job *j, const struct power *own)
{
    struct comparison c = {.plain = &j->plain};
    struct graph *g = arena_new(&j->arena, struct graph);
    struct value_list hidden = hidden_results(j);
    bool ok = write(j, g, hidden.v, hidden.n) && net_open(j, &c.net, g);
    c.power = arena_array(&j->arena, struct power, c.net.n_out + 1);
    ok = ok && api_samples_each(&j->samples, compare, &c);
    if (ok) report_layers(j, &c, own), report_outputs(j, &c);
    api_net_close(&c.net);
    return ok;
}

/* The whole. */

/* Layers that the caller keeps in f32. */
static bool keep_layers(struct job *j, struct err *e)
{
    for (const char *const *p = j->o.keep; p && *p; p++) {
        u32 n = 0;
        for (u32 k = 0; k < j->t.layer.n; k++) {
            struct quant_layer *l = &j->t.layer.v[k];
            const struct node *x = graph_node(&j->t.g, graph_value(&j->t.g, l->out)->producer);
            bool fits = str_glob(str_of(*p), x->name.n ? x->name : graph_value(&j->t.g, l->out)->name);
            l->is_float |= fits, n += fits;
        }
        if (!n) return err_set(e, ERR_USAGE, "no layer is named '%s'; the report of a quantisation lists the names", *p);
    }
    quant_mark(&j->t);
    for (u32 k = 0; k < j->t.layer.n; k++)
        if (!j->t.layer.v[k].is_float) return true;
    return err_set(e, ERR_NOTHING, "every layer is to be kept in f32");
}

static bool read_weights(const struct job *j, struct quant_opts *to, struct err *e)
{
    enum { BLOCK = 32, LEAST = 16, MOST = 256 };
    const char *w = j->o.weights;
    to->block = j->o.block ? j->o.block : BLOCK;
    if (!w && (j->o.block || j->o.gptq)) return err_set(e, ERR_USAGE, "blocks (block) and gptq are those of weights alone (weights)");
    if (j->o.gptq && !j->samples.fn) return err_set(e, ERR_USAGE, "gptq needs samples of the inputs");
    if (!w) return true;
    to->weights = str_is(str_of(w), "int4") ? DT_I4 : str_is(str_of(w), "int8") ? DT_I8 : DT_NONE;
    if (!to->weights) return err_set(e, ERR_USAGE, "weights of type '%s', expected int4 or int8", w);
    if (to->block < LEAST || to->block > MOST || to->block & (to->block - 1))
        return err_set(e, ERR_USAGE, "blocks of %lld weights, expected 16, 32, 64, 128 or 256", (long long)to->block);
    if (j->o.method || j->o.activations || j->o.percentile > 0 || j->o.no_bias_correction || j->o.reduce_range || j->o.full)
        return err_set(e, ERR_USAGE, "options of activations do not apply to weights alone (weights)");
    return true;
}

static bool read_opts(struct job *j, struct quant_opts *to, struct err *e)
{
    bool ok = true, is_type = true;
    *to = (struct quant_opts){.percentile = j->o.percentile > 0 ? j->o.percentile : 99.99, .no_correction = j->o.no_bias_correction,
                                .reduce_range = j->o.reduce_range,
                                .full = j->o.full};
    if (j->o.method) to->method = quant_method_parse(str_of(j->o.method), &ok);
    if (j->o.activations) to->is_signed = str_is(str_of(j->o.activations), "i8"), is_type = to->is_signed || str_is(str_of(j->o.activations), "u8");
    if (!ok) return err_set(e, ERR_USAGE, "no calibration method '%s', there are: min-max, entropy, percentile", j->o.method);
    if (!is_type) return err_set(e, ERR_USAGE, "activations of type '%s', expected u8 or i8", j->o.activations);
    if (to->percentile <= 50 || to->percentile > 100)
        return err_set(e, ERR_USAGE, "percentile %g is not between 50 and 100", to->percentile);
    if (!read_weights(j, to, e)) return false;
    if (j->o.max_error < 0 || isnan(j->o.max_error)) return err_set(e, ERR_USAGE, "largest error %g is negative", j->o.max_error);
    return true;
}

static bool see_inputs(void *user, int k, struct err *e)
{
    struct job *j = user;
    if (!api_net_run(&j->plain)) return false;
    for (u32 i = 0; i < j->t.layer.n; i++)
        if (j->t.layer.v[i].squares) quant_gptq_see(&j->t.layer.v[i], api_net_value(&j->plain, j->t.layer.v[i].x));
    return true;
}

/* The network in f32 with the layers' inputs as outputs, on all samples. */
static bool watch_inputs(struct job *j)
{
    if (!quant_gptq_open(&j->t, &j->q->err)) return false;
    for (u32 k = 0; k < j->t.layer.n; k++)
        if (j->t.layer.v[k].squares && !j->t.seen[j->t.layer.v[k].x]) j->t.seen[j->t.layer.v[k].x] = arena_new(&j->arena, struct quant_seen);
    return open_plain(j) && api_samples_each(&j->samples, see_inputs, j);
}

/* Weights alone: samples are only needed for GPTQ and for the errors of results. */
static bool quantize_weights(struct job *j, quern_model **out)
{
    struct graph *g = arena_new(&j->arena, struct graph);
    struct power *own = arena_array(&j->arena, struct power, j->t.layer.n + 1);
    bool ok = (!j->o.gptq || watch_inputs(j)) && quant_weights_settle(&j->t, &j->q->err);
    u32 n_float = 0;
    for (u32 k = 0; ok && k < j->t.layer.n; k++) {
        struct quant_layer *l = &j->t.layer.v[k];
        own[k] = (struct power){l->noise, l->signal, 0};
        if (j->o.max_error > 0 && !l->is_float) l->is_float = relative(&own[k]) > j->o.max_error;
        n_float += l->is_float;
    }
    if (ok && n_float == j->t.layer.n)
        return err_set(&j->q->err, ERR_NOTHING, "the relative error of the weights of every layer is above %g: allow a larger one (max-error)", j->o.max_error);
    if (ok && j->o.report && j->samples.fn) ok = (j->plain.p || open_plain(j)) && report(j, own);
    else if (ok && j->o.report) report_layers(j, NULL, own);
    return ok && write(j, g, NULL, 0) && reopen(j, g, out);
}

static bool quantize(struct job *j, quern_model **out)
{
    struct err *e = &j->q->err;
    struct quant_opts opts;
    struct graph *g = arena_new(&j->arena, struct graph);
    bool ok = read_opts(j, &opts, e) && quant_open(&j->t, &j->m->model->graph, &opts, &j->arena, e) && keep_layers(j, e);
    if (!ok || opts.weights) return ok && quantize_weights(j, out);
    struct power *own = arena_array(&j->arena, struct power, j->t.layer.n + 1);
    ok = ok && calibrate(j);
    if (ok && (j->o.report || j->o.max_error > 0)) ok = probe_layers(j, own);
    if (ok && j->o.report) ok = report(j, own);
    return ok && write(j, g, NULL, 0) && reopen(j, g, out);
}

quern_status quern_quantize(quern_model *m, quern_sample_fn *sample, void *user, const struct quern_quantize_opts *o, quern_model **out)
{
    struct job j = {0};
    if (o) memcpy(&j.o, o, o->size < sizeof j.o ? o->size : sizeof j.o);
    if (!m || !api_given(m->q, "sample out", sample || j.o.weights ? (const void *)"" : NULL, out)) return QUERN_USAGE;
    j.q = m->q, j.m = m;
    api_begin(m->q);
    bool ok = api_samples_open(&j.samples, m, sample, user, &m->q->err) && quantize(&j, out);
    api_net_close(&j.plain);
    arena_release(&j.arena);
    return api_end(m->q, ok);
}
