// SPDX-License-Identifier: Apache-2.0
//
// Models: import, the zoo, reference evaluation, random inputs. Declared and documented in
// include/quern.h.
#include "api/api_model.h"

#include "export/export.h"
#include "import/import.h"
#include "zoo/zoo.h"

#include <string.h>

enum { DEFAULT_SIZE = 256, MAX_MODEL = 1 << 30 };

/* dumps */

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

/* opening */

static struct str base_name(struct arena *a, const char *path)
{
    struct str s = str_of(path), head, tail;
    while (str_cut(s, '/', &head, &tail)) s = tail;
    i64 end = s.n;
    for (i64 i = s.n - 1; i > 0; i--)
        if (s.p[i] == '.') {
            end = i;
            break;
        }
    return str_dup(a, str_sub(s, 0, end));
}

static bool lower(quern_model *m, struct graph *to, u32 flags, struct err *e)
{
    struct pass_env env = {.dump = m->q->dump ? dump_graph : NULL, .flags = flags, .user = m->q};
    graph_clone(to, &m->graph, &m->arena);
    if (!pass_run_all(to, &env, e)) return false;
    interface_layouts(to, &m->io);
    return true;
}

/* What operators are made of may need facts, too: then sizes before them change. */
static bool lower_all(quern_model *m, struct err *e)
{
    u32 flags = m->is_narrow ? PASS_F16 : 0, known;
    bool ok;
    do {
        known = m->sym.n_noted;
        ok = lower(m, &m->lowered, flags, e) &&
             (!pass_has_integer(&m->graph) || lower(m, &m->integer, flags | PASS_INTEGER, e));
    } while (ok && m->sym.n_noted != known && (ok = op_infer_all(&m->graph, e)));
    m->is_lowered = ok;
    if (m->var && m->n_var < m->sym.var.n) { /* sizes that expansions make */
        i64 *var = arena_array(&m->arena, i64, m->sym.var.n + 1);
        for (u32 v = 0; v < m->sym.var.n; v++) var[v] = v < m->n_var ? m->var[v] : DEFAULT_SIZE;
        graph_guess_sizes(&m->lowered, var, DEFAULT_SIZE);
        for (u32 v = 0; v < m->n_var; v++) var[v] = m->var[v];
        m->var = var;
        m->n_var = m->sym.var.n;
    }
    return ok;
}

const struct graph *api_lowered(quern_model *m, const struct caps *c, struct err *e)
{
    if (!m->is_lowered && !lower_all(m, e)) return NULL;
    bool has = m->integer.node.n && c && caps_has_dot(c, DT_U8, DT_I8, DT_I32);
    return has ? &m->integer : &m->lowered;
}

/* What a value may take at the sizes to be fast at: costs are computed from products of sizes. */
static const i64 max_value_bytes = (i64)1 << 44;

static bool sizes_fit(const quern_model *m, struct err *e)
{
    const struct graph *g = &m->graph;
    for (value_id v = 1; v < g->value.n; v++) {
        const struct value *x = graph_value(g, v);
        i64 dim[MAX_RANK], bytes;
        if (x->data || !x->shape.known || !dtype_size(x->dtype) || !shape_eval(g->sym, &x->shape, m->var, dim)) continue;
        bool negative = false;
        for (u32 d = 0; d < x->shape.rank; d++) negative |= dim[d] < 0;
        if (negative || (tensor_size_ok(x->dtype, x->shape.rank, dim, &bytes) && bytes <= max_value_bytes)) continue;
        struct buf b = {0};
        for (u32 s = 0; s < g->sym->var.n; s++)
            buf_printf(&b, "%s%.*s=%lld", s ? "," : "", STR_ARG(g->sym->var.v[s]), (long long)m->var[s]);
        err_set(e, ERR_USAGE, "sizes to optimize for are too large: '%.*s' would take more than %lld bytes at %.*s",
                STR_ARG(x->name), (long long)max_value_bytes, (int)i64_min(b.n, 300), b.p);
        buf_release(&b);
        return false;
    }
    return true;
}

/* What callers do not say is DEFAULT_SIZE, or near it where facts have it otherwise. */
static bool usual_sizes(quern_model *m, const char *optimize_for, struct err *e)
{
    bool *fixed = arena_array(&m->arena, bool, m->sym.var.n + 1);
    for (u32 v = 0; v < m->sym.var.n; v++) m->var[v] = INT64_MIN;
    if (optimize_for && !api_parse_sizes(&m->sym, optimize_for, m->var, e)) return false;
    for (u32 v = 0; v < m->sym.var.n; v++) {
        fixed[v] = m->var[v] != INT64_MIN;
        if (!fixed[v]) m->var[v] = DEFAULT_SIZE;
    }
    sym_fact_adjust(&m->sym, m->var, fixed);
    return true;
}

static bool model_lower(quern_model *m, const char *optimize_for, struct err *e)
{
    if (m->io.n) { /* its types are in the graph that is lowered, its conversions in the one that callers see */
        if (!interface_types(&m->graph, &m->io, e) || !lower_all(m, e) || !interface_show(&m->graph, &m->io, e)) return false;
    } else if (m->q->dump && !lower_all(m, e)) {
        return false;
    }
    m->var = arena_array(&m->arena, i64, m->sym.var.n + 1);
    m->n_var = m->sym.var.n;
    if (!usual_sizes(m, optimize_for, e)) return false;
    graph_guess_sizes(m->is_lowered ? &m->lowered : &m->graph, m->var, DEFAULT_SIZE);
    return !optimize_for || (api_parse_sizes(&m->sym, optimize_for, m->var, e) && sizes_fit(m, e));
}

static quern_model *model_new(quern *q)
{
    quern_model *m = mem_alloc(sizeof *m);
    m->q = q;
    symtab_init(&m->sym, &m->arena);
    return m;
}

/* A model to import, more than once: from its file, or from memory (then files beside it are
 * refused) when the caller has it there, it comes through a pipe or has constants put in. */
struct source {
    const char *path; /* in memory: for messages */
    struct str bytes; /* p NULL: from the file */
    bool follow_links;
};

static bool source_open(struct source *s, struct arena *a, const struct quern_model_opts *o,
                        struct err *e)
{
    bool is_pipe = !s->bytes.p && str_is(str_of(s->path), "-");
    bool has_elements = o->elements && o->elements[0];
    s->follow_links = o->external_data_links != 0;
    if ((o->n_constants > 0 && !o->constants) || (o->n_io > 0 && !o->io)) return err_set(e, ERR_USAGE, "'%s' is NULL", o->n_io > 0 && !o->io ? "io" : "constants");
    if (o->n_constants <= 0 && !has_elements && !is_pipe) return true;
    struct str bytes = s->bytes;
    if (!bytes.p && !os_read(a, s->path, MAX_MODEL, &bytes, e)) return false;
    if (has_elements && !import_elements(&bytes, a, bytes, o->elements, e)) return err_prefix(e, "'%s'", s->path);
    s->bytes = bytes;
    if (o->n_constants <= 0) return true;
    struct tensor **content = arena_array(a, struct tensor *, o->n_constants);
    for (int k = 0; k < o->n_constants; k++)
        content[k] = o->constants[k] ? &o->constants[k]->t : NULL;
    return import_freeze(&s->bytes, a, bytes, content, o->n_constants, e) ||
           err_prefix(e, "'%s'", s->path);
}

static bool source_import(const struct source *s, struct import_job j, struct arena *a, struct symtab *st, struct err *e)
{
    j.bytes = s->bytes;
    j.follow_links = s->follow_links;
    return import_run(&j, a, st, s->path, e);
}

static bool has_type(const struct interface *f, enum dtype t)
{
    for (u32 k = 0; k < f->n; k++)
        if (f->v[k].dtype == t) return true;
    return false;
}

/* Imported once to see what its sizes are called, and again with the caller's names and numbers. What can only be imported with these
   says what its sizes are called, too. */
static bool choose_interface(quern_model *m, const struct source *s,
                             const struct quern_model_opts *o, struct err *e)
{
    struct arena once = {0};
    struct symtab st;
    struct graph g;
    symtab_init(&st, &once);
    bool ok = source_import(s, (struct import_job){.g = &g}, &once, &st, e);
    if (!ok) {
        struct err again = {0};
        symtab_init(&st, &once);
        ok = source_import(s, (struct import_job){.g = &g, .interface_only = true}, &once, &st, &again);
        if (ok) *e = (struct err){0};
    }
    if (!ok) {
        arena_release(&once);
        return false;
    }
    ok = api_interface(&m->io, &g, o, &m->arena, e) &&
              interface_sizes(&m->io, &g, &m->sym, e);
    m->is_narrow = has_type(&m->io, DT_F16) && !o->f32_storage;
    arena_release(&once);
    return ok || err_prefix(e, "'%s'", s->path);
}

/* Why sizes that callers fixed do not suit the network: what it needs of its sizes when none is fixed, if that says it. */
static void explain_fixed(const quern_model *m, const struct source *s, const char *assume, struct err *e)
{
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err why = {0}, none = {0};
    symtab_init(&st, &a);
    if (source_import(s, (struct import_job){.g = &g}, &a, &st, &none) && !api_assume_fits(&g, &m->io, assume, &why)) *e = why, err_prefix(e, "'%s'", s->path);
    arena_release(&a);
}

static bool model_import(quern_model *m, const struct source *s, const struct quern_model_opts *o, struct err *e)
{
    if (o->n_io > 0 && !choose_interface(m, s, o, e)) return false;
    if (o->assume && !api_assume(&m->sym, o->assume, e)) return false;
    if (!source_import(s, (struct import_job){.g = &m->graph}, &m->arena, &m->sym, e)) {
        if (o->assume || m->io.n) explain_fixed(m, s, o->assume, e);
        return false;
    }
    sym_undefine(&m->sym);
    if (o->assume && !api_assume_check(&m->graph, e)) return false;
    return interface_check(&m->io, &m->graph, e) || err_prefix(e, "'%s'", s->path);
}

static quern_model *model_open(quern *q, const struct source *s, const struct quern_model_opts *o, struct err *e)
{
    quern_model *m = model_new(q);
    m->name = base_name(&m->arena, s->path);
    struct source own = *s; /* constants may lie in it */
    if (s->bytes.p) own.bytes = str_dup(&m->arena, s->bytes);
    if (model_import(m, &own, o, e) && model_lower(m, o->optimize_for, e)) return m;
    quern_model_close(m);
    return NULL;
}

/* Again with the sizes it is to run at assumed, if they do not suit it otherwise; m stays where that does not help. */
static quern_model *open_at(quern *q, quern_model *m, const struct source *s, struct quern_model_opts *o, struct err *e)
{
    struct buf all = {0};
    struct err why = {0}, again = {0};
    if (m && api_assume_fits(&m->graph, NULL, o->run_at, &why)) return m;
    if (o->assume && o->assume[0]) buf_printf(&all, "%s,", o->assume);
    buf_z(&all, o->run_at);
    o->assume = all.p;
    quern_model *fixed = model_open(q, s, o, &again);
    if (fixed && m) quern_model_close(m);
    if (fixed) *e = again;
    buf_release(&all);
    return fixed ? fixed : m;
}

bool api_check_import(struct graph *g, struct arena *a, struct symtab *st, const char *path, const struct quern_model_opts *o,
                      struct import_problems *all, struct err *e)
{
    struct source s = {.path = path};
    if (!source_open(&s, a, o, e) || (o->assume && !api_assume(st, o->assume, e))) return false;
    return source_import(&s, (struct import_job){.g = g, .all = all}, a, st, e);
}

static quern_status open_source(quern *q, struct source s, const struct quern_model_opts *o,
                                quern_model **out)
{
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct quern_model_opts opts = {0};
    quern_model *m = NULL;
    if (o) memcpy(&opts, o, o->size < sizeof opts ? o->size : sizeof opts);
    if (source_open(&s, &a, &opts, e)) {
        m = model_open(q, &s, &opts, e);
        if (opts.run_at && opts.run_at[0]) m = open_at(q, m, &s, &opts, e);
    }
    if (m) *out = m;
    arena_release(&a);
    return api_end(q, m != NULL);
}

quern_status quern_model_open(quern *q, const char *path, const struct quern_model_opts *o,
                              quern_model **out)
{
    if (!api_given(q, "path out", path, out)) return QUERN_USAGE;
    return open_source(q, (struct source){.path = path}, o, out);
}

quern_status quern_model_read(quern *q, const void *data, size_t size, const char *name,
                              const struct quern_model_opts *o, quern_model **out)
{
    if (!api_given(q, "data name out", size ? data : "", name, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    if (size > MAX_MODEL)
        return api_end(q, err_set(e, ERR_INPUT, "'%s' is larger than %d bytes", name, MAX_MODEL));
    struct str bytes = {size ? data : "", (i64)size};
    return open_source(q, (struct source){.path = name, .bytes = bytes}, o, out);
}

quern_status quern_file_value(quern *q, const char *path, int is_output, int k, struct quern_file_value *v)
{
    if (!api_given(q, "path v", path, v)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct quern_file_value x = {.size = v->size};
    struct str bytes, name;
    enum io_list_kind kind = IO_TENSOR;
    bool ok = os_read(&a, path, MAX_MODEL, &bytes, e) &&
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
    quern_model *m = model_new(q);
    m->name = str_dup(&m->arena, name);
    graph_init(&m->graph, &m->arena, &m->sym);
    return m;
}

quern_status api_model_finish(quern_model *m, bool ok, quern_model **out)
{
    quern *q = m->q;
    ok = ok && op_infer_all(&m->graph, &q->err) && model_lower(m, NULL, &q->err);
    if (ok) *out = m;
    else quern_model_close(m);
    return api_end(q, ok);
}

quern_status quern_model_zoo(quern *q, const char *name, quern_model **out)
{
    if (!api_given(q, "name out", name, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    const struct zoo *z = zoo_find(str_of(name));
    if (!z)
        return api_end(
            q, err_set(e, ERR_USAGE, "no network named '%s'; `quern zoo` lists them", name));
    quern_model *m = api_model_start(q, str_of(name));
    return api_model_finish(m, z->build(&m->graph, e), out);
}

void quern_model_close(quern_model *m)
{
    if (!m) return;
    arena_release(&m->arena);
    mem_free(m);
}

int quern_model_inputs(const quern_model *m) { return m ? (int)m->graph.input.n : 0; }

/* NULL: there is none. */
static const struct value *input_of(const quern_model *m, int k)
{
    if (k < 0 || k >= quern_model_inputs(m)) return NULL;
    return graph_value(&m->graph, m->graph.input.v[k]);
}

/* Names of values are copied NUL-terminated by graph_add_value. */
const char *quern_model_input_name(const quern_model *m, int k) { return input_of(m, k) ? input_of(m, k)->name.p : NULL; }
quern_dtype quern_model_input_dtype(const quern_model *m, int k)
{
    return input_of(m, k) ? (quern_dtype)dtype_onnx(input_of(m, k)->dtype) : (quern_dtype)0;
}

const char *quern_model_input_layout(const quern_model *m, int k)
{
    struct str name = input_of(m, k) && m->io.n ? io_layout_name(m->io.v[k].layout) : (struct str){0};
    return name.n ? name.p : "";
}

int quern_model_input_shape(const quern_model *m, int k, int64_t dim[8], const char *text[8])
{
    if (!input_of(m, k) || !dim || !text) return 0;
    struct shape s = value_given(m->graph.sym, input_of(m, k));
    for (u32 d = 0; d < s.rank; d++) dim[d] = api_dim(&m->sym, s.dim[d], &text[d]);
    return (int)s.rank;
}

quern_status quern_model_optimize_for(quern_model *m, const char *sizes)
{
    if (!m || !api_given(m->q, "sizes", sizes)) return QUERN_USAGE;
    struct err *e = api_begin(m->q);
    return api_end(m->q, api_parse_sizes(&m->sym, sizes, m->var, e) && sizes_fit(m, e));
}

quern_status quern_model_save(quern_model *m, const char *path)
{
    if (!m || !api_given(m->q, "path", path)) return QUERN_USAGE;
    struct err *e = api_begin(m->q);
    return api_end(m->q, export_onnx_graph(&m->graph, path, e));
}

const char *quern_zoo_name(int k, const char **summary)
{
    const struct zoo *z = zoo_at(k);
    if (z && summary) *summary = z->summary;
    return z ? z->name : NULL;
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

/* evaluation */

quern_status quern_model_eval(quern_model *m, quern_tensor *const *in, int n_in, quern_tensor **out,
                              int n_out)
{
    if (!m || !api_given(m->q, "in out", n_in > 0 ? (const void *)in : "", n_out > 0 ? (const void *)out : "")) return QUERN_USAGE;
    struct err *e = api_begin(m->q);
    const struct graph *g = &m->graph;
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
    i64 *var = arena_array(&a, i64, m->sym.var.n + 1);
    bool *fixed = arena_array(&a, bool, m->sym.var.n + 1);
    for (u32 v = 0; v < m->sym.var.n; v++) var[v] = INT64_MIN;
    bool ok = !sizes || api_parse_sizes(&m->sym, sizes, var, e);
    for (u32 v = 0; v < m->sym.var.n; v++) {
        fixed[v] = var[v] != INT64_MIN;
        if (!fixed[v]) var[v] = m->var[v];
    }
    sym_fact_adjust(&m->sym, var, fixed);
    if (ok && (int)m->graph.input.n > max)
        ok = err_set(e, ERR_USAGE, "the model has more than %d inputs", max);
    struct rng r = rng_seed(seed);
    *n = 0;
    for (u32 k = 0; k < m->graph.input.n && ok; k++) {
        const struct value *v = graph_value(&m->graph, m->graph.input.v[k]);
        i64 dim[MAX_RANK];
        struct shape s = value_given(&m->sym, v);
        ok = shape_eval(&m->sym, &s, var, dim) ||
             err_set(e, ERR_USAGE, "size of input '%.*s' is not known", STR_ARG(v->name));
        ok = ok && quern_tensor_new(m->q, (quern_dtype)dtype_onnx(v->dtype), (int)v->shape.rank,
                                    dim, NULL, &in[k]) == QUERN_OK;
        if (ok) api_fill_random(&in[k]->t, &r), *n = (int)k + 1;
    }
    arena_release(&a);
    return api_end(m->q, ok);
}
