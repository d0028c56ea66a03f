// SPDX-License-Identifier: Apache-2.0
//
// The runtime half of the public interface: contexts, tensors, programs. Declared and documented in
// include/quern.h.
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

/* Contexts. */

static void send_log(void *user, int level, struct str text)
{
    quern *q = user;
    struct buf b = {0};
    buf_str(&b, text);
    q->o.on_event(q->o.user,
                  &(struct quern_event){.kind = QUERN_LOG, .level = level, .text = b.p ? b.p : ""});
    buf_release(&b);
}

static char *copy_z(const char *z)
{
    if (!z) return NULL;
    char *p = mem_alloc((i64)strlen(z) + 1);
    memcpy(p, z, strlen(z));
    return p;
}

quern *quern_open(const struct quern_opts *o)
{
    mem_prepare();
    quern *q = mem_aligned(sizeof *q);
    if (!q) return NULL;
    if (o) memcpy(&q->o, o, o->size < sizeof q->o ? o->size : sizeof q->o);
    q->dump = copy_z(q->o.dump), q->dump_dir = copy_z(q->o.dump_dir), q->trusted = copy_z(q->o.trusted);
    q->log =
        (struct log){.line = q->o.on_event ? send_log : NULL, .user = q, .level = q->o.log_level};
    return q;
}

void quern_close(quern *q)
{
    if (!q) return;
    mem_free(q->dump);
    mem_free(q->dump_dir);
    mem_free(q->trusted);
    dev_vulkan_detach(q->attached);
    arena_release(&q->needs);
    mem_free(q);
}

const char *quern_error(const quern *q) { return q ? q->err.msg : "the context is NULL"; }

void quern_stop(quern *q)
{
    if (q) __atomic_store_n(&q->stop.is_set, 1, __ATOMIC_RELAXED);
}

void quern_resume(quern *q)
{
    if (q) __atomic_store_n(&q->stop.is_set, 0, __ATOMIC_RELAXED);
}

const char *quern_version(void) { return QUERN_VERSION; }

struct err *api_begin(quern *q)
{
    q->err = (struct err){.stop = &q->stop};
    mem_prepare();
    return &q->err;
}

bool api_given(quern *q, const char *names, ...)
{
    struct str rest = str_of(names), name;
    va_list ap;
    if (!q) return false;
    struct err *e = api_begin(q);
    va_start(ap, names);
    for (bool more = true, ok = true; more && ok;) {
        more = str_cut(rest, ' ', &name, &rest);
        ok = va_arg(ap, const void *) != NULL || err_set(e, ERR_USAGE, "'%.*s' is NULL", STR_ARG(name));
    }
    va_end(ap);
    return e->code == ERR_NONE;
}

quern_status api_status(enum err_code code)
{
    switch (code) {
    case ERR_USAGE: return QUERN_USAGE;
    case ERR_NOTHING: return QUERN_NOTHING;
    case ERR_UNSUPPORTED: return QUERN_UNSUPPORTED;
    case ERR_INPUT: return QUERN_INPUT;
    case ERR_SYSTEM: return QUERN_SYSTEM;
    case ERR_STOPPED: return QUERN_STOPPED;
    case ERR_NONE:
    case ERR_FAILED: return QUERN_FAILED;
    default: unreachable();
    }
}

quern_status api_end(quern *q, bool ok) { return ok ? QUERN_OK : api_status(q->err.code); }

/* More threads than processors only take memory, or hit system limits. */
int api_threads(quern *q, int threads)
{
    enum { PER_PROCESSOR = 8, ALWAYS = 64 };
    int most = (int)i64_max(ALWAYS, (i64)PER_PROCESSOR * os_n_cpus());
    if (threads <= most) return threads;
    log_printf(&q->log, 1, "%d threads are too many for %d processors: %d are used", threads, os_n_cpus(), most);
    return most;
}

char *api_text(struct buf *b)
{
    char *p = mem_alloc(b->n + 1);
    if (b->n) memcpy(p, b->p, (size_t)b->n);
    buf_release(b);
    return p;
}

/* Tensors. */

quern_tensor *api_tensor_take(const struct tensor *t)
{
    quern_tensor *x = mem_alloc(sizeof *x);
    *x = (quern_tensor){.t = *t, .owns = true};
    return x;
}

static bool tensor_describe(struct tensor *t, quern_dtype dt, int rank, const int64_t *dim,
                            i64 *bytes, struct err *e)
{
    *t = (struct tensor){.dtype = dtype_from_onnx((int)dt), .rank = (u32)rank};
    if (t->dtype == DT_NONE) return err_set(e, ERR_USAGE, "no element type has number %d", (int)dt);
    if (rank < 0 || rank > MAX_RANK)
        return err_set(e, ERR_USAGE, "rank %d is not in 0..%d", rank, MAX_RANK);
    for (int d = 0; d < rank; d++) t->dim[d] = dim[d];
    if (!tensor_size_ok(t->dtype, t->rank, t->dim, bytes))
        return err_set(e, ERR_USAGE, "a size is negative or the tensor too large");
    return mem_is_addressable(*bytes) || err_set(e, ERR_USAGE, "a tensor of %lld bytes does not fit into a process of %d bits", (long long)*bytes, (int)sizeof(void *) * 8);
}

bool api_array(struct tensor *t, i64 *bytes, const struct quern_array *a, struct err *e)
{
    if (!tensor_describe(t, a->type, a->rank, a->dim, bytes, e)) return false;
    t->data = a->data;
    return true;
}

quern_status quern_tensor_new(quern *q, quern_dtype t, int rank, const int64_t *dim,
                              const void *data, quern_tensor **out)
{
    if (!api_given(q, "dim out", rank > 0 ? (const void *)dim : "", out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct tensor x;
    i64 bytes;
    if (!tensor_describe(&x, t, rank, dim, &bytes, e)) return api_end(q, false);
    x.data = mem_aligned(i64_max(bytes, 64));
    if (!x.data)
        return api_end(q, err_set(e, ERR_SYSTEM, "not enough memory for a tensor of %lld bytes",
                                  (long long)bytes));
    if (data) memcpy(x.data, data, (size_t)bytes);
    *out = api_tensor_take(&x);
    return QUERN_OK;
}

quern_status quern_tensor_view(quern *q, quern_dtype t, int rank, const int64_t *dim, void *data,
                               quern_tensor **out)
{
    if (!api_given(q, "dim out", rank > 0 ? (const void *)dim : "", out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct tensor x;
    i64 bytes;
    if (!tensor_describe(&x, t, rank, dim, &bytes, e)) return api_end(q, false);
    if (!data && bytes) return api_end(q, err_set(e, ERR_USAGE, "a view needs memory"));
    x.data = data;
    *out = api_tensor_take(&x);
    (*out)->owns = false;
    return QUERN_OK;
}

quern_status quern_tensor_cast(quern *q, const quern_tensor *t, quern_dtype to, quern_tensor **out)
{
    if (!api_given(q, "t out", t, out)) return QUERN_USAGE;
    quern_tensor *x = NULL;
    quern_status s = quern_tensor_new(q, to, (int)t->t.rank, t->t.dim, NULL, &x);
    if (s) return s;
    enum dtype from = t->t.dtype, want = x->t.dtype;
    bool is_float = dtype_is_float(from) || dtype_is_float(want);
    for (i64 i = 0, n = tensor_count(&t->t); i < n; i++) {
        if (is_float) elem_set_f64(want, x->t.data, i, elem_f64(from, t->t.data, i));
        else elem_set_i64(want, x->t.data, i, elem_i64(from, t->t.data, i));
    }
    *out = x;
    return QUERN_OK;
}

quern_dtype quern_tensor_dtype(const quern_tensor *t)
{
    return t ? (quern_dtype)dtype_onnx(t->t.dtype) : (quern_dtype)0;
}
int quern_tensor_rank(const quern_tensor *t) { return t ? (int)t->t.rank : 0; }
const int64_t *quern_tensor_dims(const quern_tensor *t) { return t ? t->t.dim : NULL; }
void *quern_tensor_data(const quern_tensor *t) { return t ? t->t.data : NULL; }
int64_t quern_tensor_count(const quern_tensor *t) { return t ? tensor_count(&t->t) : 0; }

/* Programs. */

/* The default driver of a program: the first one that runs its language. */
static const char *usual_driver(const struct plan *p)
{
    i64 n;
    const struct dev_driver *const *all = dev_all(&n);
    for (i64 i = 0; i < n && p->bin.n; i++)
        if (str_is(p->bin.v[0].lang, all[i]->lang)) return all[i]->name;
    return NULL;
}

void api_use_attached(const quern *q, const struct dev_driver *v, struct dev_opts *o)
{
    bool is_meant = q->attached && !strcmp(v->name, "vulkan") && !dev_is_described(o) &&
                    o->index == 0 &&
                    (!o->name.n || str_glob(o->name, dev_vulkan_attached_name(q->attached)));
    o->attached = is_meant ? q->attached : NULL;
}

bool api_program_start(quern_program *p, const char *device, int threads, struct err *e)
{
    const struct dev_driver *v;
    struct dev_opts opts = {.n_threads = (u32)threads};
    if (threads < 0) return err_set(e, ERR_USAGE, "number of threads %d is negative", threads);
    if (!dev_select(device ? device : usual_driver(&p->plan), &v, &opts, e)) return false;
    api_use_attached(p->q, v, &opts);
    p->dev = v->open(&opts, e);
    if (!p->dev) return false;
    p->rt = rt_load(&p->plan, p->dev, e);
    return p->rt != NULL;
}

bool api_is_started(const quern_program *p, struct err *e)
{
    return p->rt || err_set(e, ERR_USAGE, "program '%.*s' is for a device that is not here: it can be saved, not run", STR_ARG(p->plan.model));
}

quern_status quern_program_open(quern *q, const char *path, const struct quern_run_opts *o,
                                quern_program **out)
{
    if (!api_given(q, "path out", path, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct quern_run_opts opts = {0};
    if (o) memcpy(&opts, o, o->size < sizeof opts ? o->size : sizeof opts);
    quern_program *p = mem_alloc(sizeof *p);
    p->q = q;
    bool ok = p->is_opened = api_artifact_open(q, &p->file, &p->plan, &p->arena, path, &opts, e);
    ok = ok && api_program_start(p, opts.device, api_threads(q, opts.threads), e);
    if (ok) *out = p;
    else quern_program_close(p);
    return api_end(q, ok);
}

void quern_program_close(quern_program *p)
{
    if (!p) return;
    if (p->keep) p->keep->end(p->keep, &p->plan);
    if (p->rt) rt_unload(p->rt);
    if (p->dev) p->dev->driver->close(p->dev);
    arena_release(&p->arena);
    os_unmap(&p->file);
    mem_free(p);
}

int quern_program_inputs(const quern_program *p) { return p ? (int)p->plan.input.n : 0; }
int quern_program_outputs(const quern_program *p) { return p ? (int)p->plan.output.n : 0; }

/* The k-th; NULL: no such input. */
static const struct plan_io *input_at(const quern_program *p, int k) { return k >= 0 && k < quern_program_inputs(p) ? &p->plan.input.v[k] : NULL; }
static const struct plan_io *output_at(const quern_program *p, int k) { return k >= 0 && k < quern_program_outputs(p) ? &p->plan.output.v[k] : NULL; }

/* Names in the arena are NUL-terminated (str_dup). */
const char *quern_program_input_name(const quern_program *p, int k)
{
    return input_at(p, k) ? input_at(p, k)->name.p : NULL;
}
const char *quern_program_output_name(const quern_program *p, int k)
{
    return output_at(p, k) ? output_at(p, k)->name.p : NULL;
}
quern_dtype quern_program_input_dtype(const quern_program *p, int k)
{
    return input_at(p, k) ? (quern_dtype)dtype_onnx(input_at(p, k)->dtype) : (quern_dtype)0;
}

/* Layouts in the arena, too; an empty one may be NULL. */
static const char *layout_z(const struct plan_io *io) { return io && io->layout.n ? io->layout.p : ""; }

const char *quern_program_input_layout(const quern_program *p, int k)
{
    return layout_z(input_at(p, k));
}

const char *quern_program_output_layout(const quern_program *p, int k)
{
    return layout_z(output_at(p, k));
}

i64 api_dim(const struct symtab *st, sym s, const char **text)
{
    i64 c;
    const struct sym_node *n = &st->node.v[s];
    *text = NULL;
    if (sym_is_const(st, s, &c)) return c;
    *text = n->op == SYM_VAR ? st->var.v[n->a].p : "";
    return -1;
}

int quern_program_input_shape(const quern_program *p, int k, int64_t dim[8], const char *text[8])
{
    const struct plan_io *io = input_at(p, k);
    if (!io || !dim || !text) return 0;
    for (u32 d = 0; d < io->rank; d++) dim[d] = api_dim(&p->plan.sym, io->dim[d], &text[d]);
    return (int)io->rank;
}

quern_dtype quern_program_output_dtype(const quern_program *p, int k)
{
    return output_at(p, k) ? (quern_dtype)dtype_onnx(output_at(p, k)->dtype) : (quern_dtype)0;
}

static const char *size_text(quern_program *p, sym s)
{
    struct buf b = {0};
    sym_print(&b, &p->plan.sym, s);
    struct str text = str_dup(&p->arena, buf_view(&b));
    buf_release(&b);
    return text.p;
}

int quern_program_output_shape(quern_program *p, int k, int64_t dim[8], const char *text[8])
{
    const struct plan_io *io = output_at(p, k);
    if (!io || !dim || !text) return 0;
    if (!p->output_sizes) p->output_sizes = arena_array(&p->arena, const char *, (i64)p->plan.output.n * MAX_RANK);
    for (u32 d = 0; d < io->rank; d++) {
        const char **kept = &p->output_sizes[k * MAX_RANK + (int)d];
        dim[d] = api_dim(&p->plan.sym, io->dim[d], &text[d]);
        if (dim[d] >= 0 || *text[d]) continue;
        if (!*kept) *kept = size_text(p, io->dim[d]);
        text[d] = *kept;
    }
    return (int)io->rank;
}

/* A size made by the run (-1) is limited by the given one. */
bool api_output_check(const quern_program *p, u32 k, const struct tensor *given,
                      const struct tensor *want, struct err *e)
{
    const struct plan_io *io = &p->plan.output.v[k];
    bool same = given->dtype == want->dtype && given->rank == want->rank;
    for (u32 d = 0; d < want->rank && same; d++) same = given->dim[d] == want->dim[d] || want->dim[d] < 0;
    return same ||
           err_set(e, ERR_USAGE, "the tensor given for output '%.*s' has another type or shape",
                   STR_ARG(io->name));
}

bool api_counts_check(const quern_program *p, int n_in, int n_out, struct err *e)
{
    u32 n_i = p->plan.input.n, n_o = p->plan.output.n;
    return (n_in == (int)n_i && n_out == (int)n_o) ||
           err_set(e, ERR_USAGE, "the program has %u inputs and %u outputs, %d and %d were given", n_i, n_o, n_in, n_out);
}

bool api_depends_on_data(const struct tensor *t)
{
    for (u32 d = 0; d < t->rank; d++)
        if (t->dim[d] < 0) return true;
    return false;
}

bool api_output_place(const quern_program *p, u32 k, struct tensor *res, const quern_tensor *given, struct err *e)
{
    if (given) {
        if (!api_output_check(p, k, &given->t, res, e)) return false;
        *res = given->t; /* its shape is the capacity if the run makes a size */
    } else if (!api_depends_on_data(res)) {
        res->data = mem_aligned(i64_max(tensor_bytes(res), 64));
        if (!res->data) return err_set(e, ERR_SYSTEM, "not enough memory for an output");
    }
    return true;
}

/* The memory of an output with a data-dependent size belongs to the run: copies it. */
static bool keep_output(struct tensor *t, struct err *e)
{
    void *own = mem_aligned(i64_max(tensor_bytes(t), 64));
    if (!own) return err_set(e, ERR_SYSTEM, "not enough memory for an output");
    if (tensor_bytes(t)) memcpy(own, t->data, (size_t)tensor_bytes(t));
    t->data = own;
    return true;
}

bool api_output_deliver(struct tensor *res, bool is_made, bool ok, quern_tensor **out, struct err *e)
{
    if (*out && ok && is_made) memcpy((*out)->t.dim, res->dim, sizeof res->dim);
    if (*out) return ok;
    if (ok && is_made) ok = keep_output(res, e);
    if (ok) *out = api_tensor_take(res);
    else if (!is_made) mem_free(res->data);
    return ok;
}

quern_status quern_run(quern_program *p, quern_tensor *const *in, int n_in, quern_tensor **out,
                       int n_out)
{
    if (!p || !api_given(p->q, "in out", n_in > 0 ? (const void *)in : "", n_out > 0 ? (const void *)out : "")) return QUERN_USAGE;
    struct err *e = api_begin(p->q);
    u32 n_i = p->plan.input.n, n_o = p->plan.output.n;
    if (!api_is_started(p, e) || !api_counts_check(p, n_in, n_out, e)) return api_end(p->q, false);
    struct arena a = {0};
    struct tensor *x = arena_array(&a, struct tensor, n_i + 1),
                  *res = arena_array(&a, struct tensor, n_o + 1);
    for (u32 k = 0; k < n_i; k++) {
        if (in[k]) x[k] = in[k]->t;
        else err_set(e, ERR_USAGE, "input '%.*s' is NULL", STR_ARG(p->plan.input.v[k].name));
    }
    bool *made = arena_array(&a, bool, n_o + 1);
    bool ok = !e->code && rt_output_dims(p->rt, x, res, e);
    for (u32 k = 0; k < n_o && ok; k++) made[k] = api_depends_on_data(&res[k]);
    for (u32 k = 0; k < n_o && ok; k++) ok = api_output_place(p, k, &res[k], out[k], e);
    ok = ok && rt_run(p->rt, x, res, &a, e);
    for (u32 k = 0; k < n_o; k++) ok = api_output_deliver(&res[k], made[k], ok, &out[k], e);
    arena_release(&a);
    if (ok && p->keep) p->keep->start(p->keep, &p->plan);
    return api_end(p->q, ok);
}

void quern_profile(quern_program *p, int on)
{
    if (p && p->rt) rt_profile(p->rt, on != 0);
}

int quern_profile_steps(const quern_program *p, struct quern_step *steps, int max)
{
    if (!p || !p->rt || (max > 0 && !steps)) return 0;
    struct rt_times t = rt_profile_times(p->rt);
    for (u32 i = 0; i < t.n && (int)i < max; i++) {
        const struct plan_dispatch *d = &p->plan.dispatch.v[i];
        steps[i] = (struct quern_step){.label = d->label.p,
                                       .layer = d->layer.n ? d->layer.p : d->label.p,
                                       .operators = d->ops.n ? d->ops.p : "",
                                       .kernel = d->entry.p,
                                       .task = d->task.p,
                                       .seconds = t.seconds[i],
                                       .flops = t.flops[i],
                                       .bytes = t.bytes[i]};
    }
    return (int)t.n;
}

double quern_program_seconds(const quern_program *p) { return p && p->rt ? rt_seconds(p->rt) : 0; }

int64_t quern_program_memory(const quern_program *p) { return p && p->rt ? rt_memory_used(p->rt) : 0; }

/* Random inputs. */

void api_fill_random(struct tensor *t, struct rng *r)
{
    i64 n = tensor_count(t);
    bool is_float = dtype_is_float(t->dtype);
    for (i64 i = 0; i < n; i++) {
        if (is_float) elem_set_f64(t->dtype, t->data, i, t->dtype == DT_F8E8M0 ? rng_f64(r) : rng_f64(r) * 2 - 1);
        else
            elem_set_i64(t->dtype, t->data, i,
                         t->dtype == DT_BOOL ? (i64)(rng_u64(r) & 1) : rng_range(r, 0, 9));
    }
}

quern_status quern_program_random_inputs(quern_program *p, const char *sizes, uint64_t seed,
                                         quern_tensor **in, int max, int *n)
{
    if (!p || !api_given(p->q, "in n", max > 0 ? (const void *)in : "", n)) return QUERN_USAGE;
    struct err *e = api_begin(p->q);
    const struct symtab *st = &p->plan.sym;
    struct arena a = {0};
    i64 *var = arena_array(&a, i64, st->var.n + 1);
    bool *fixed = arena_array(&a, bool, st->var.n + 1);
    for (u32 v = 0; v < st->var.n; v++) var[v] = INT64_MIN;
    bool ok = !sizes || sym_parse_sizes(st, sizes, var, e);
    for (u32 v = 0; v < st->var.n; v++) {
        i64 usual = p->plan.var.v[v].optimised_for;
        fixed[v] = var[v] != INT64_MIN;
        if (!fixed[v]) var[v] = usual == INT64_MIN ? 256 : usual;
    }
    sym_fact_adjust(st, var, fixed);
    if (ok && (int)p->plan.input.n > max)
        ok = err_set(e, ERR_USAGE, "the program has more than %d inputs", max);
    struct rng r = rng_seed(seed);
    *n = 0;
    for (u32 k = 0; k < p->plan.input.n && ok; k++) {
        const struct plan_io *io = &p->plan.input.v[k];
        i64 dim[MAX_RANK] = {0};
        for (u32 d = 0; d < io->rank && ok; d++)
            ok = sym_eval(st, io->dim[d], var, &dim[d]) ||
                 err_set(e, ERR_USAGE, "size of input '%.*s' is not known", STR_ARG(io->name));
        ok = ok && quern_tensor_new(p->q, (quern_dtype)dtype_onnx(io->dtype), (int)io->rank, dim,
                                    NULL, &in[k]) == QUERN_OK;
        if (ok) api_fill_random(&in[k]->t, &r), *n = (int)k + 1;
    }
    arena_release(&a);
    return api_end(p->q, ok);
}
