// SPDX-License-Identifier: Apache-2.0
//
// Networks made of a model's graph, run on samples of the model's inputs that the caller provides. They are models of their own that go through
// the form of an ONNX file, so that what is measured is what is written.
#include "api/api_model.h"

#include "export/export.h"

bool api_model_of(quern *q, const struct graph *g, const char *name, bool is_f16, quern_model **m)
{
    static const struct quern_io_opts f16[] = {{.type = "f16"}, {.type = "f16", .is_output = 1}};
    struct quern_model_opts o = QUERN_OPTS(quern_model_opts);
    struct buf b = {0};
    if (is_f16) o.io = f16, o.n_io = countof(f16);
    bool ok = export_onnx_bytes(g, &b, &q->err) && quern_model_read(q, b.p, (size_t)b.n, name, &o, m) == QUERN_OK;
    buf_release(&b);
    return ok;
}

void api_print_sizes(struct buf *b, const quern_model *m, quern_tensor *const *in, int n_in)
{
    for (int k = 0; k < n_in; k++) {
        int64_t dim[MAX_RANK];
        const char *text[MAX_RANK];
        int rank = quern_model_input_shape(m, k, dim, text);
        for (int d = 0; d < rank && rank == quern_tensor_rank(in[k]); d++)
            if (dim[d] < 0 && *text[d]) buf_printf(b, "%s%s:%lld", b->n ? "," : "", text[d], (long long)quern_tensor_dims(in[k])[d]);
    }
}

/* Samples. */

static void sample_release(struct api_samples *s)
{
    for (int k = 0; k < API_MAX_INPUTS; k++) quern_tensor_free(s->in[k]), s->in[k] = NULL;
}

/* *end: there is none. */
static bool sample_read(struct api_samples *s, int k, bool *end)
{
    struct err *e = &s->m->q->err;
    quern_status st = s->fn(s->user, k, s->in, s->n_in);
    *end = st == QUERN_NOTHING;
    if (*end) return k > 0 || err_set(e, ERR_INPUT, "no calibration data: at least one sample of every input is needed");
    if (st) return err_set(e, st == QUERN_STOPPED ? ERR_STOPPED : ERR_INPUT, "sample %d of the calibration data cannot be read", k);
    for (int i = 0; i < s->n_in; i++)
        if (!s->in[i]) return err_set(e, ERR_USAGE, "sample %d has no tensor for input '%s'", k, quern_model_input_name(s->m, i));
    return mem_check(e, "calibrating", S(""));
}

bool api_samples_open(struct api_samples *s, quern_model *m, quern_sample_fn *fn, void *user, struct err *e)
{
    *s = (struct api_samples){.m = m, .fn = fn, .user = user, .n_in = quern_model_inputs(m)};
    return s->n_in <= API_MAX_INPUTS || err_set(e, ERR_UNSUPPORTED, "more than %d inputs", API_MAX_INPUTS);
}

bool api_samples_each(struct api_samples *s, api_sample_fn *fn, void *user)
{
    bool ok = true, end = false;
    for (int k = 0; ok && !end && (!s->n || k < s->n); k++) {
        api_begin(s->m->q);
        ok = sample_read(s, k, &end);
        if (ok && end) s->n = k;
        else if (ok) ok = fn(user, k, &s->m->q->err) || err_prefix(&s->m->q->err, "sample %d", k);
        sample_release(s);
    }
    return ok;
}

/* Networks. */

/* Kernels are selected for the sizes of the sample at hand. */
static bool fit_sizes(const struct api_samples *s, quern_model *m)
{
    struct buf b = {0};
    api_print_sizes(&b, m, s->in, s->n_in);
    bool ok = !b.n || quern_model_optimize_for(m, b.p) == QUERN_OK;
    buf_release(&b);
    return ok;
}

static bool first_sizes(struct api_samples *s, quern_model *m)
{
    bool end, ok = sample_read(s, 0, &end) && fit_sizes(s, m);
    sample_release(s);
    return ok;
}

bool api_net_open(struct api_net *n, struct api_samples *s, const struct graph *g, const char *device, int threads, struct arena *a)
{
    struct quern_compile_opts c = QUERN_OPTS(quern_compile_opts);
    c.device = device, c.threads = threads;
    *n = (struct api_net){.s = s, .g = g, .n_out = (int)g->output.n, .out = arena_array(a, quern_tensor *, g->output.n + 1)};
    return api_model_of(s->m->q, g, str_z(a, s->m->model->name), false, &n->m) && first_sizes(s, n->m) && quern_compile(n->m, NULL, &c, &n->p) == QUERN_OK;
}

static void outputs_release(struct api_net *n)
{
    for (int k = 0; n->out && k < n->n_out; k++) quern_tensor_free(n->out[k]), n->out[k] = NULL;
}

bool api_net_run(struct api_net *n)
{
    outputs_release(n);
    return quern_run(n->p, n->s->in, n->s->n_in, n->out, n->n_out) == QUERN_OK;
}

const struct tensor *api_net_value(const struct api_net *n, value_id v)
{
    for (int k = 0; k < n->n_out; k++)
        if (n->g->output.v[k] == v) return &n->out[k]->t;
    for (int k = 0; k < n->s->n_in; k++)
        if (n->g->input.v[k] == v) return &n->s->in[k]->t;
    unreachable();
}

void api_net_close(struct api_net *n)
{
    outputs_release(n);
    quern_program_close(n->p);
    quern_model_close(n->m);
    *n = (struct api_net){0};
}
