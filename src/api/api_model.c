// SPDX-License-Identifier: Apache-2.0
//
// Models: import, the zoo, reference evaluation, random inputs. Declared and documented in
// include/quern.h.
#include "api/api_model.h"

#include "export/export.h"
#include "zoo/zoo.h"

#include <string.h>

/* Dumps. */

bool api_wants_dump(const quern *q, const char *stage)
{
    struct str rest = str_of(q->dump), item;
    while (rest.n) {
        str_cut(rest, ',', &item, &rest);
        if (str_is(item, stage) || str_is(item, "all")) return true;
    }
    return false;
}

void api_dump(quern *q, const char *stage, struct str text)
{
    if (!api_wants_dump(q, stage)) return;
    if (!q->dump_dir) {
        log_printf(&q->log, 0, "--- %s\n%.*s", stage, STR_ARG(text));
        return;
    }
    struct arena a = {0};
    struct err e = {0};
    struct str path = str_fmt(&a, "%s/%02u-%s.txt", q->dump_dir, q->n_dumps++, stage);
    if (!os_mkdirs(q->dump_dir, &e) || !os_write(path.p, text.p, text.n, &e))
        log_printf(&q->log, 0, "%s", e.msg);
    arena_release(&a);
}

static void dump_graph(void *user, const char *stage, const struct graph *g)
{
    quern *q = user;
    if (!api_wants_dump(q, stage)) return;
    struct buf b = {0};
    graph_print(&b, g, &(struct graph_text_opts){0});
    api_dump(q, stage, buf_view(&b));
    buf_release(&b);
}

/* Opening. */

/* The options in the compiler's terms; arrays are in the arena. */
bool api_model_opts(struct model_opts *to, quern *q, const struct quern_model_opts *o, struct arena *a, struct err *e)
{
    *to = (struct model_opts){.optimize_for = o->optimize_for, .assume = o->assume, .run_at = o->run_at, .elements = o->elements, .state = o->state,
                              .f32_storage = o->f32_storage != 0, .dump = q->dump ? dump_graph : NULL, .user = q};
    if (o->n_io > 0 && !o->io) return err_set(e, ERR_USAGE, "'io' is NULL");
    if (o->n_constants > 0 && !o->constants) return err_set(e, ERR_USAGE, "'constants' is NULL");
    struct tensor **content = arena_array(a, struct tensor *, i64_max(o->n_constants, 0) + 1);
    struct io_request *io = arena_array(a, struct io_request, i64_max(o->n_io, 0) + 1);
    for (int k = 0; k < o->n_constants; k++) content[k] = o->constants[k] ? &o->constants[k]->t : NULL;
    for (int k = 0; k < o->n_io; k++) {
        const struct quern_io_opts *x = &o->io[k];
        io[k] = (struct io_request){.name = x->name, .is_output = x->is_output != 0, .shape = x->shape, .type = x->type,
                                    .layout = x->layout, .storage = x->storage};
    }
    to->constants = content, to->n_constants = o->n_constants;
    to->constants_in_place = o->constants_in_place != 0;
    to->io = io, to->n_io = o->n_io;
    return true;
}

static quern_model *handle_of(quern *q, struct model *model)
{
    quern_model *m = mem_alloc(sizeof *m);
    *m = (quern_model){.q = q, .model = model};
    return m;
}

static quern_status open_source(quern *q, struct model_source s, const struct quern_model_opts *o, quern_model **out)
{
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct quern_model_opts given = {0};
    struct model_opts opts;
    if (o) memcpy(&given, o, o->size < sizeof given ? o->size : sizeof given);
    s.follow_links = given.external_data_links != 0;
    bool ok = api_model_opts(&opts, q, &given, &a, e) && model_source_open(&s, &a, &opts, e);
    struct model *model = ok ? model_open(&s, &opts, e) : NULL;
    if (model) *out = handle_of(q, model);
    arena_release(&a);
    return api_end(q, model != NULL);
}

quern_status quern_model_open(quern *q, const char *path, const struct quern_model_opts *o,
                              quern_model **out)
{
    if (!api_given(q, "path out", path, out)) return QUERN_USAGE;
    return open_source(q, (struct model_source){.path = path}, o, out);
}

quern_status quern_model_read(quern *q, const void *data, size_t size, const char *name,
                              const struct quern_model_opts *o, quern_model **out)
{
    if (!api_given(q, "data name out", size ? data : "", name, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    if (size > MODEL_MAX_BYTES)
        return api_end(q, err_set(e, ERR_INPUT, "'%s' is larger than %d bytes", name, MODEL_MAX_BYTES));
    struct str bytes = {size ? data : "", (i64)size};
    return open_source(q, (struct model_source){.path = name, .bytes = bytes}, o, out);
}

quern_status quern_file_value(quern *q, const char *path, int is_output, int k, struct quern_file_value *v)
{
    if (!api_given(q, "path v", path, v)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct quern_file_value x = {.size = v->size};
    struct str bytes, name;
    enum io_list_kind kind = IO_TENSOR;
    bool ok = os_read(&a, path, MODEL_MAX_BYTES, &bytes, e) &&
              (import_describe(bytes, is_output != 0, k, &name, &kind, &a, e) || err_prefix(e, "'%s'", path));
    if (ok && name.n >= (i64)sizeof x.name) ok = err_set(e, ERR_UNSUPPORTED, "'%s': name of more than %d bytes", path, (int)sizeof x.name - 1);
    if (ok) {
        if (name.n) memcpy(x.name, name.p, (size_t)name.n);
        x.kind = (quern_kind)kind;
        memcpy(v, &x, v->size < sizeof x ? v->size : sizeof x);
    }
    arena_release(&a);
    return api_end(q, ok);
}

quern_model *api_model_start(quern *q, struct str name)
{
    return handle_of(q, model_new(name, &(struct model_opts){.dump = q->dump ? dump_graph : NULL, .user = q}));
}

quern_status api_model_finish(quern_model *m, bool ok, quern_model **out)
{
    quern *q = m->q;
    ok = ok && model_finish(m->model, &q->err);
    if (ok) *out = m;
    else quern_model_close(m);
    return api_end(q, ok);
}

quern_status quern_model_zoo_sized(quern *q, const char *name, const char *sizes, int is_small, quern_model **out)
{
    if (!api_given(q, "name out", name, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    const struct zoo *z = zoo_find(str_of(name));
    if (!z)
        return api_end(
            q, err_set(e, ERR_USAGE, "no network named '%s'; `quern zoo` lists them", name));
    quern_model *m = api_model_start(q, str_of(name));
    return api_model_finish(m, zoo_build(z, sizes, is_small != 0, &m->model->graph, e), out);
}

quern_status quern_model_zoo(quern *q, const char *name, quern_model **out) { return quern_model_zoo_sized(q, name, NULL, 0, out); }

void quern_model_close(quern_model *m)
{
    if (!m) return;
    model_close(m->model);
    mem_free(m);
}

int quern_model_inputs(const quern_model *m) { return m ? (int)m->model->graph.input.n : 0; }

/* NULL: no such input. */
static const struct value *input_of(const quern_model *m, int k)
{
    if (k < 0 || k >= quern_model_inputs(m)) return NULL;
    return graph_value(&m->model->graph, m->model->graph.input.v[k]);
}

/* Names of values are copied NUL-terminated by graph_add_value. */
const char *quern_model_input_name(const quern_model *m, int k) { return input_of(m, k) ? input_of(m, k)->name.p : NULL; }
quern_dtype quern_model_input_dtype(const quern_model *m, int k)
{
    return input_of(m, k) ? (quern_dtype)dtype_onnx(input_of(m, k)->dtype) : (quern_dtype)0;
}

const char *quern_model_input_layout(const quern_model *m, int k)
{
    struct str name = input_of(m, k) && m->model->io.n ? io_layout_name(m->model->io.v[k].layout) : (struct str){0};
    return name.n ? name.p : "";
}

int quern_model_input_shape(const quern_model *m, int k, int64_t dim[8], const char *text[8])
{
    if (!input_of(m, k) || !dim || !text) return 0;
    struct shape s = value_given(m->model->graph.sym, input_of(m, k));
    for (u32 d = 0; d < s.rank; d++) dim[d] = api_dim(&m->model->sym, s.dim[d], &text[d]);
    return (int)s.rank;
}

quern_status quern_model_optimize_for(quern_model *m, const char *sizes)
{
    if (!m || !api_given(m->q, "sizes", sizes)) return QUERN_USAGE;
    struct err *e = api_begin(m->q);
    return api_end(m->q, model_optimize_for(m->model, sizes, e));
}

quern_status quern_model_save(quern_model *m, const char *path)
{
    if (!m || !api_given(m->q, "path", path)) return QUERN_USAGE;
    struct err *e = api_begin(m->q);
    return api_end(m->q, export_onnx_graph(&m->model->graph, path, e));
}

const char *quern_zoo_name(int k, const char **summary)
{
    const struct zoo *z = zoo_at(k);
    if (z && summary) *summary = z->summary;
    return z ? z->name : NULL;
}

int quern_zoo_size(const char *name, int k, struct quern_zoo_size *s)
{
    const struct zoo *z = name && s ? zoo_find(str_of(name)) : NULL;
    i64 n = 0;
    while (z && z->size && z->size[n].name) n++;
    if (k < 0 || k >= n) return 0;
    struct quern_zoo_size x = {s->size, z->size[k].name, z->size[k].what, z->size[k].real, z->size[k].small};
    memcpy(s, &x, s->size < sizeof x ? s->size : sizeof x);
    return 1;
}

const char *quern_stages(int k, const char **summary)
{
    static const char *const more[][2] = {{"import", "the imported graph"},
                                          {"tasks", "every task of the cover"},
                                          {"kernels", "kernel IR of the program"},
                                          {"code", "source text of the program's kernels"},
                                          {"spirv", "SPIR-V of the program's kernels, by spirv-dis"}};
    const struct pass *p = k > 0 ? pass_at(k - 1) : NULL;
    if (p) {
        if (summary) *summary = p->summary;
        return p->name;
    }
    i64 n = 0;
    while (pass_at(n)) n++;
    i64 i = k == 0 ? 0 : k - n;
    if (i < 0 || i >= countof(more)) return NULL;
    if (summary) *summary = more[i][1];
    return more[i][0];
}

/* Evaluation. */

quern_status quern_model_eval(quern_model *m, quern_tensor *const *in, int n_in, quern_tensor **out,
                              int n_out)
{
    if (!m || !api_given(m->q, "in out", n_in > 0 ? (const void *)in : "", n_out > 0 ? (const void *)out : "")) return QUERN_USAGE;
    struct err *e = api_begin(m->q);
    const struct graph *g = &m->model->graph;
    if (n_in != (int)g->input.n || n_out != (int)g->output.n)
        return api_end(m->q, err_set(e, ERR_USAGE,
                                     "the model has %u inputs and %u outputs, %d and %d were given",
                                     g->input.n, g->output.n, n_in, n_out));
    struct arena a = {0};
    struct tensor **x = arena_array(&a, struct tensor *, g->input.n + 1),
                  **res = arena_array(&a, struct tensor *, g->output.n + 1);
    for (u32 k = 0; k < g->input.n; k++) {
        if (in[k]) x[k] = &in[k]->t;
        else err_set(e, ERR_USAGE, "input '%.*s' is NULL", STR_ARG(graph_value(g, g->input.v[k])->name));
    }
    bool ok = !e->code && graph_eval(g, x, res, &a, NULL, e);
    for (u32 k = 0; k < g->output.n && ok; k++)
        ok = quern_tensor_new(m->q, (quern_dtype)dtype_onnx(res[k]->dtype), (int)res[k]->rank,
                              res[k]->dim, res[k]->data, &out[k]) == QUERN_OK;
    arena_release(&a);
    return api_end(m->q, ok);
}

quern_status quern_model_random_inputs(quern_model *m, const char *sizes, uint64_t seed,
                                       quern_tensor **in, int max, int *n)
{
    if (!m || !api_given(m->q, "in n", max > 0 ? (const void *)in : "", n)) return QUERN_USAGE;
    struct err *e = api_begin(m->q);
    struct arena a = {0};
    i64 *var = arena_array(&a, i64, m->model->sym.var.n + 1);
    bool ok = model_sizes(m->model, sizes, m->model->var, var, e);
    if (ok && (int)m->model->graph.input.n > max)
        ok = err_set(e, ERR_USAGE, "the model has more than %d inputs", max);
    struct rng r = rng_seed(seed);
    *n = 0;
    for (u32 k = 0; k < m->model->graph.input.n && ok; k++) {
        const struct value *v = graph_value(&m->model->graph, m->model->graph.input.v[k]);
        i64 dim[MAX_RANK];
        struct shape s = value_given(&m->model->sym, v);
        ok = shape_eval(&m->model->sym, &s, var, dim) ||
             err_set(e, ERR_USAGE, "size of input '%.*s' is not known", STR_ARG(v->name));
        ok = ok && quern_tensor_new(m->q, (quern_dtype)dtype_onnx(v->dtype), (int)v->shape.rank,
                                    dim, NULL, &in[k]) == QUERN_OK;
        if (ok) api_fill_random(&in[k]->t, &r), *n = (int)k + 1;
    }
    arena_release(&a);
    return api_end(m->q, ok);
}

/* Declarations. */

static void put_declared(struct quern_declared *to, const struct graph *g, value_id v, struct arena *a)
{
    const struct value *x = graph_value(g, v);
    *to = (struct quern_declared){.size = sizeof *to, .name = str_z(a, x->name), .type = (quern_dtype)dtype_onnx(x->dtype), .rank = (int)x->shape.rank};
    for (int d = 0; d < to->rank; d++) to->dim[d] = api_dim(g->sym, x->shape.dim[d], &to->sym[d]);
}

quern_status quern_declared_inputs(quern *q, const char *path, void (*each)(void *user, const struct quern_declared *x), void *user)
{
    if (!api_given(q, "path", path)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    if (!each) return api_end(q, err_set(e, ERR_USAGE, "'each' is NULL"));
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct import_job j = {.g = &g, .interface_only = true};
    symtab_init(&st, &a);
    bool ok = import_run(&j, &a, &st, path, e);
    for (u32 k = 0; ok && k < g.input.n; k++) {
        struct quern_declared x;
        put_declared(&x, &g, g.input.v[k], &a);
        each(user, &x);
    }
    arena_release(&a);
    return api_end(q, ok);
}
