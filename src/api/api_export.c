// SPDX-License-Identifier: Apache-2.0
//
// Export of networks and programs, and the list of formats. Declared and documented in
// include/quern.h.
#include "api/api_model.h"

#include "export/export.h"

struct exports { /* files opened by one call */
    struct arena arena;
    struct os_file *map;
    struct plan *plan;
    const struct plan **list;
    u32 n_plan;
    quern_model *model;
};

const char *quern_exporter(int k, const char **summary)
{
    const struct exporter *x = export_all(k);
    if (x && summary) *summary = x->summary;
    return x ? x->name : NULL;
}

static const struct exporter *find_exporter(const char *to, struct err *e)
{
    const struct exporter *x = export_find(str_of(to));
    struct buf b = {0};
    if (x) return x;
    for (i64 k = 0; export_all(k); k++) buf_printf(&b, "%s%s", k ? ", " : "", export_all(k)->name);
    err_set(e, ERR_USAGE, "no form '%s', there are: %.*s", to ? to : "", STR_ARG(buf_view(&b)));
    buf_release(&b);
    return NULL;
}

static bool open_file(quern *q, struct exports *x, const char *path)
{
    struct os_file *f = &x->map[x->n_plan];
    if (!api_artifact_load(q, f, path, NULL, &q->err)) return false;
    if (api_is_dnx(f)) {
        struct plan *p = &x->plan[x->n_plan];
        x->list[x->n_plan++] = p;
        return api_artifact_read(q, f, p, &x->arena, NULL, &q->err) || err_prefix(&q->err, "'%s'", path);
    }
    os_unmap(f);
    if (x->model) return err_set(&q->err, ERR_USAGE, "'%s': one network at a time", path);
    return quern_model_open(q, path, NULL, &x->model) == QUERN_OK;
}

static bool open_files(quern *q, struct exports *x, const char *const *file, int n)
{
    x->map = arena_array(&x->arena, struct os_file, n);
    x->plan = arena_array(&x->arena, struct plan, n);
    x->list = arena_array(&x->arena, const struct plan *, n);
    for (int k = 0; k < n; k++)
        if (!open_file(q, x, file[k])) return false;
    return true;
}

/* A network for exporters that take programs: made for their target, with results to test it by. */

enum { MAX_SAMPLES = 16, MAX_VALUES = 64 };

struct samples {
    struct export_sample v[MAX_SAMPLES];
    quern_tensor *in[MAX_SAMPLES][MAX_VALUES], *out[MAX_SAMPLES][MAX_VALUES];
    u32 n;
};

static void samples_release(struct samples *s)
{
    for (u32 i = 0; i < MAX_SAMPLES; i++)
        for (u32 k = 0; k < MAX_VALUES; k++) quern_tensor_free(s->in[i][k]), quern_tensor_free(s->out[i][k]);
}

static bool sample_make(struct samples *s, u32 i, quern_model *m, struct arena *a)
{
    u32 n_out = m->model->graph.output.n;
    struct export_sample *x = &s->v[i];
    int n_in = 0;
    if (quern_model_random_inputs(m, NULL, i + 1, s->in[i], MAX_VALUES, &n_in) || quern_model_eval(m, s->in[i], n_in, s->out[i], (int)n_out)) return false;
    *x = (struct export_sample){arena_array(a, const struct tensor *, n_in + 1), arena_array(a, const struct tensor *, n_out + 1),
                                arena_array(a, double, n_out + 1), arena_array(a, double, n_out + 1)};
    for (int k = 0; k < n_in; k++) x->in[k] = &s->in[i][k]->t;
    for (u32 k = 0; k < n_out; k++) x->out[k] = &s->out[i][k]->t;
    return api_tolerances(m, s->in[i], s->out[i], i + 1, x->rtol, x->atol, &m->q->err);
}

static bool samples_make(struct samples *s, quern_model *m, const struct export_job *j, struct arena *a)
{
    const char *text = export_option(j, "samples");
    i64 n = 1;
    if (text && (!str_to_i64(str_of(text), &n) || n < 1 || n > MAX_SAMPLES))
        return err_set(&m->q->err, ERR_USAGE, "--samples %s: a number from 1 to %d", text, MAX_SAMPLES);
    if (m->model->graph.input.n > MAX_VALUES || m->model->graph.output.n > MAX_VALUES)
        return err_set(&m->q->err, ERR_UNSUPPORTED, "more than %d inputs or outputs", MAX_VALUES);
    for (s->n = 0; s->n < n; s->n++)
        if (!sample_make(s, s->n, m, a)) return false;
    return true;
}

/* All sizes of inputs are fixed. */
static bool sizes_are_known(const struct model *m, struct err *e)
{
    for (u32 k = 0; k < m->graph.input.n; k++) {
        const struct value *v = graph_value(&m->graph, m->graph.input.v[k]);
        for (u32 d = 0; d < v->shape.rank; d++) {
            struct buf b = {0};
            if (sym_is_const(&m->sym, v->shape.dim[d], NULL)) continue;
            sym_print(&b, &m->sym, v->shape.dim[d]);
            err_set(e, ERR_USAGE, "axis %u of input '%.*s' is %.*s, but the program has fixed sizes: fix it (--assume NAME=SIZE)", d, STR_ARG(v->name),
                    STR_ARG(buf_view(&b)));
            buf_release(&b);
            return false;
        }
    }
    return true;
}

static bool export_program(quern_model *m, const struct exporter *to, struct export_job *j, struct arena *a, struct err *e)
{
    struct export_target t = {0};
    struct samples *s = arena_new(a, struct samples);
    struct plan *p = arena_new(a, struct plan);
    const struct plan *list[1] = {p};
    bool ok = to->target(j, &t, e) && sizes_are_known(m->model, e) && samples_make(s, m, j, a) && api_program_text(m, t.lang, &t.caps, p, a, e);
    j->plan = list, j->n_plan = 1, j->sample = s->v, j->n_sample = s->n;
    ok = ok && to->write(j, e);
    samples_release(s);
    return ok;
}

static bool export_model(quern_model *m, const struct exporter *to, struct export_job *j, struct err *e)
{
    struct arena a = {0};
    j->graph = &m->model->graph;
    bool ok = to->target ? export_program(m, to, j, &a, e) : to->write(j, e);
    arena_release(&a);
    return ok;
}

quern_status quern_model_export(quern_model *m, const char *path, const struct quern_export_opts *o)
{
    if (!m || !api_given(m->q, "o", o)) return QUERN_USAGE;
    struct err *e = api_begin(m->q);
    const struct exporter *to = find_exporter(o->to, e);
    struct export_job j = {.path = path, .log = &m->q->log, .option = o->option};
    return api_end(m->q, to && export_model(m, to, &j, e));
}

quern_status quern_export(quern *q, const char *const *file, int n_files, const char *path,
                          const struct quern_export_opts *o)
{
    if (!api_given(q, "file o", n_files > 0 ? (const void *)file : "", o)) return QUERN_USAGE;
    for (int k = 0; k < n_files; k++)
        if (!api_given(q, "file[k]", file[k])) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct exports x = {0};
    const struct exporter *to = find_exporter(o->to, e);
    bool ok = to && open_files(q, &x, file, n_files);
    struct export_job j = {.path = path,
                           .plan = x.list,
                           .n_plan = x.n_plan,
                           .log = &q->log,
                           .option = o->option};
    ok = ok && (x.model ? export_model(x.model, to, &j, e) : to->write(&j, e));
    quern_model_close(x.model);
    for (u32 k = 0; k < x.n_plan; k++) os_unmap(&x.map[k]);
    arena_release(&x.arena);
    return api_end(q, ok);
}
