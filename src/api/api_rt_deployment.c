// SPDX-License-Identifier: Apache-2.0
//
// Deployments and requests of the public interface. Declared and documented in include/quern.h; request/ runs them.
#include "api/api.h"
#include "request/request.h"

#include <string.h>

struct quern_deployment {
    quern *q;
    struct arena a;
    struct req_model *m;
    const struct meta_model *meta;
    u32 n_users; /* itself, while it is open, and its requests; atomic */
};

struct quern_request {
    quern_deployment *d;
    struct request *r;
    struct err err;              /* of the last call */
    quern_tensor *in, *out;      /* views */
    quern_done_fn *done;
    void *user;
    u32 n_callbacks;             /* that run, one in the other; for their thread */
    bool is_destroyed;           /* in a callback: after it */
};

/* Opening. */

static bool read_devices(struct req_model_opts *m, struct arena *a, const char *const *device, struct err *e)
{
    struct { struct req_override *v; u32 n, cap; } list = {0};
    for (; device && *device; device++) {
        struct req_override x;
        if (!str_cut(str_of(*device), '=', &x.name, &x.device) || !x.name.n || !x.device.n)
            return err_set(e, ERR_USAGE, "'%s' is not of the form INSTANCE=DEVICE, as INTELGPU:0=*llvmpipe*", *device);
        *arr_push(a, &list) = x;
    }
    m->override = list.v, m->n_overrides = list.n;
    return true;
}

static bool open_model(quern_deployment *d, const char *path, const struct quern_deployment_opts *o, struct err *e)
{
    quern *q = d->q;
    struct api_trust t = {q, o->trusted ? o->trusted : q->trusted};
    struct req_model_opts m = {.only_list = o->only_list != 0, .fallback = o->fallback != 0, .threads = api_threads(q, o->threads), .log = q->log, .stop = &q->stop};
    if (o->threads < 0) return err_set(e, ERR_USAGE, "number of threads %d is negative", o->threads);
    if (o->profile < 0 || o->profile > 2) return err_set(e, ERR_USAGE, "profile is %d, expected 0, 1 or 2", o->profile);
    m.profile = (enum req_profile)o->profile;
    if (q->o.require_signature || o->require_signature) m.meta = (struct meta_opts){true, api_check_trust, &t};
    if (!read_devices(&m, &d->a, o->devices, e)) return false;
    d->m = req_model_open(path, &m, e);
    return d->m != NULL;
}

static void release(quern_deployment *d)
{
    if (__atomic_sub_fetch(&d->n_users, 1, __ATOMIC_ACQ_REL)) return;
    arena_release(&d->a);
    mem_free(d);
}

quern_status quern_deployment_open(quern *q, const char *path, const struct quern_deployment_opts *o, quern_deployment **out)
{
    if (!api_given(q, "path out", path, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct quern_deployment_opts opts = {0};
    if (o) memcpy(&opts, o, o->size < sizeof opts ? o->size : sizeof opts);
    quern_deployment *d = mem_alloc(sizeof *d);
    *d = (quern_deployment){.q = q, .n_users = 1};
    bool ok = open_model(d, path, &opts, e);
    if (ok) {
        d->meta = req_model_meta(d->m);
        *out = d;
    } else release(d);
    return api_end(q, ok);
}

void quern_deployment_close(quern_deployment *d)
{
    if (!d) return;
    req_model_close(d->m);
    d->m = NULL;
    release(d);
}

int quern_is_deployment(const char *path) { return path && meta_is_store(path); }

quern_status quern_deployment_pack(quern *q, const char *path, const char *out)
{
    if (!api_given(q, "path out", path, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct meta_store *s = meta_open(path, NULL, e);
    bool ok = s && meta_pack(s, out, e);
    meta_close(s);
    return api_end(q, ok);
}

/* Lists. Texts of meta files are NUL-terminated (str_dup). */

static const char *text_z(struct str s) { return s.p ? s.p : ""; }

const char *quern_deployment_name(const quern_deployment *d) { return d && d->m ? d->meta->name.p : ""; }
int quern_deployment_inputs(const quern_deployment *d) { return d && d->m ? (int)d->meta->input.n : 0; }
int quern_deployment_outputs(const quern_deployment *d) { return d && d->m ? (int)d->meta->output.n : 0; }

quern_status quern_deployment_value(quern_deployment *d, int is_output, int k, struct quern_deployment_value *v)
{
    if (!d || !d->m || !api_given(d->q, "v", v)) return QUERN_USAGE;
    struct err *e = api_begin(d->q);
    struct quern_deployment_value x = {.size = v->size};
    if (k < 0 || k >= (is_output ? quern_deployment_outputs(d) : quern_deployment_inputs(d)))
        return api_end(d->q, err_set(e, ERR_USAGE, "there is no %s %d", is_output ? "output" : "input", k));
    const struct meta_tensor *t = &d->meta->tensor.v[is_output ? d->meta->output.v[k] : d->meta->input.v[k]];
    x.name = t->name.p, x.origin = text_z(t->origin), x.type = (quern_dtype)dtype_onnx(t->dtype), x.rank = (int)t->rank;
    for (u32 i = 0; i < t->rank; i++) {
        i64 n;
        bool is_number = str_to_i64(t->dim[i], &n);
        x.dim[i] = is_number ? n : -1, x.sym[i] = is_number ? NULL : t->dim[i].p;
    }
    memcpy(v, &x, v->size < sizeof x ? v->size : sizeof x);
    return QUERN_OK;
}

/* In the order of the sub-graphs; one is new if no earlier sub-graph has it. */
const char *quern_deployment_device(const quern_deployment *d, int k)
{
    for (u32 i = 0; d && d->m && k >= 0 && i < d->meta->subgraph.n; i++) {
        u32 j = 0;
        while (j < i && !str_eq(d->meta->subgraph.v[j].device, d->meta->subgraph.v[i].device)) j++;
        if (j == i && k-- == 0) return d->meta->subgraph.v[i].device.p;
    }
    return NULL;
}

static const struct meta_subgraph *subgraph_at(const quern_deployment *d, int k)
{
    return d && d->m && k >= 0 && k < (int)d->meta->subgraph.n ? &d->meta->subgraph.v[k] : NULL;
}

int quern_deployment_subgraph(quern_deployment *d, int k, struct quern_subgraph *s)
{
    const struct meta_subgraph *x = subgraph_at(d, k);
    struct req_state_of state;
    if (!x || !s) return 0;
    req_model_state(d->m, (u32)k, &state);
    struct quern_subgraph y = {.size = s->size, .name = x->name.p, .device = x->device.p, .framework = x->framework.p, .target = text_z(x->target),
                               .missing = text_z(x->missing), .why = state.why, .operators = (int)x->op.n, .files = (int)x->file.n, .expected = x->seconds,
                               .runs = state.runs, .seconds = state.runs ? state.seconds / (double)state.runs : 0};
    y.state = state.state == REQ_FALLBACK ? QUERN_SUBGRAPH_FALLBACK : state.state == REQ_READY ? QUERN_SUBGRAPH_READY : QUERN_SUBGRAPH_LISTED;
    memcpy(s, &y, s->size < sizeof y ? s->size : sizeof y);
    return 1;
}

const char *quern_subgraph_operator(const quern_deployment *d, int k, int i)
{
    const struct meta_subgraph *x = subgraph_at(d, k);
    return x && i >= 0 && i < (int)x->op.n ? text_z(x->op.v[i]) : NULL;
}

const char *quern_subgraph_tensor(const quern_deployment *d, int k, int is_output, int i)
{
    const struct meta_subgraph *x = subgraph_at(d, k);
    const u32 n = x ? is_output ? x->out.n : x->in.n : 0;
    if (i < 0 || i >= (int)n) return NULL;
    return text_z(d->meta->tensor.v[is_output ? x->out.v[i] : x->in.v[i]].name);
}

const char *quern_subgraph_file(const quern_deployment *d, int k, int i, const char **role, int64_t *size)
{
    const struct meta_subgraph *x = subgraph_at(d, k);
    if (!x || i < 0 || i >= (int)x->file.n) return NULL;
    if (role) *role = meta_role_name(x->file.v[i].role);
    if (size) *size = x->file.v[i].size;
    return x->file.v[i].path.p;
}

quern_status quern_deployment_trace(quern_deployment *d, const char *path)
{
    if (!d || !d->m || !api_given(d->q, "path", path)) return QUERN_USAGE;
    struct err *e = api_begin(d->q);
    struct buf b = {0};
    (str_ends(str_of(path), S(".svg")) ? req_chart : req_trace)(d->m, &b);
    bool ok = (!b.failed || err_set(e, ERR_SYSTEM, "not enough memory for the trace")) && os_write(path, b.p, b.n, e);
    buf_release(&b);
    return api_end(d->q, ok);
}

/* Requests. */

static struct err *begin(quern_request *r)
{
    mem_prepare();
    r->err = (struct err){0};
    return &r->err;
}

static quern_status end(const quern_request *r, bool ok) { return ok ? QUERN_OK : api_status(r->err.code); }

quern_status quern_request_create(quern_deployment *d, quern_request **out)
{
    if (!d || !d->m || !api_given(d->q, "out", out)) return QUERN_USAGE;
    struct err *e = api_begin(d->q);
    struct request *own = request_create(d->m, e);
    if (!own) return api_end(d->q, false);
    quern_request *r = mem_alloc(sizeof *r);
    *r = (quern_request){.d = d, .r = own};
    r->in = mem_alloc((i64)sizeof *r->in * (d->meta->input.n + 1));
    r->out = mem_alloc((i64)sizeof *r->out * (d->meta->output.n + 1));
    __atomic_add_fetch(&d->n_users, 1, __ATOMIC_RELAXED);
    *out = r;
    return QUERN_OK;
}

static void free_request(quern_request *r)
{
    mem_free(r->in);
    mem_free(r->out);
    release(r->d);
    mem_free(r);
}

void quern_request_destroy(quern_request *r)
{
    if (!r) return;
    bool is_deferred = request_is_in_callback(r->r);
    if (is_deferred) r->is_destroyed = true;
    request_destroy(r->r);
    if (!is_deferred) free_request(r);
}

const char *quern_request_error(const quern_request *r) { return r ? r->err.msg : "the request is NULL"; }

quern_status quern_request_input(quern_request *r, int k, int rank, const int64_t *dim, quern_tensor **t)
{
    if (!r) return QUERN_USAGE;
    struct err *e = begin(r);
    struct tensor x;
    if (!t) return end(r, err_set(e, ERR_USAGE, "'t' is NULL"));
    if (k < 0 || rank < 0 || rank > MAX_RANK) return end(r, err_set(e, ERR_USAGE, "input %d of rank %d: out of range", k, rank));
    if (!request_input(r->r, (u32)k, (u32)rank, dim, &x, e)) return end(r, false);
    r->in[k] = (quern_tensor){.t = x};
    *t = &r->in[k];
    return QUERN_OK;
}

quern_status quern_request_set_input(quern_request *r, int k, const quern_tensor *t)
{
    if (!r) return QUERN_USAGE;
    struct err *e = begin(r);
    if (!t || k < 0) return end(r, err_set(e, ERR_USAGE, "input %d is %s", k, t ? "out of range" : "NULL"));
    return end(r, request_set_input(r->r, (u32)k, &t->t, e));
}

quern_status quern_request_random_inputs(quern_request *r, const char *sizes, uint64_t seed)
{
    enum { USUAL = 256 };
    if (!r) return QUERN_USAGE;
    struct err *e = begin(r);
    struct rng random = rng_seed(seed);
    bool ok = true;
    for (u32 k = 0; k < r->d->meta->input.n && ok; k++) {
        i64 dim[MAX_RANK];
        struct tensor t;
        ok = req_model_sizes(r->d->m, k, sizes, USUAL, dim, e) && request_input(r->r, k, r->d->meta->tensor.v[r->d->meta->input.v[k]].rank, dim, &t, e);
        if (ok) api_fill_random(&t, &random);
    }
    return end(r, ok);
}

quern_status quern_request_output(quern_request *r, int k, quern_tensor **t)
{
    if (!r) return QUERN_USAGE;
    struct err *e = begin(r);
    struct tensor x;
    if (!t || k < 0) return end(r, err_set(e, ERR_USAGE, "output %d is %s", k, t ? "out of range" : "NULL"));
    if (!request_output(r->r, (u32)k, &x, e)) return end(r, false);
    r->out[k] = (quern_tensor){.t = x};
    *t = &r->out[k];
    return QUERN_OK;
}

static bool copy_tensor(struct tensor *to, const struct tensor *from, struct err *e)
{
    const i64 bytes = tensor_bytes(from);
    *to = *from;
    to->data = mem_aligned(i64_max(bytes, 1));
    if (!to->data) return err_set(e, ERR_SYSTEM, "not enough memory for a copy of %lld bytes", (long long)bytes);
    memcpy(to->data, from->data, (size_t)bytes);
    return true;
}

quern_status quern_request_tensor(quern_request *r, const char *name, quern_tensor **t)
{
    if (!r) return QUERN_USAGE;
    struct err *e = begin(r);
    struct tensor own, copy;
    if (!name || !t) return end(r, err_set(e, ERR_USAGE, "%s is NULL", name ? "t" : "name"));
    for (u32 k = 0; k < r->d->meta->tensor.n; k++) {
        if (!str_is(r->d->meta->tensor.v[k].name, name)) continue;
        if (!request_tensor(r->r, k, &own, e) || !copy_tensor(&copy, &own, e)) return end(r, false);
        *t = api_tensor_take(&copy);
        return QUERN_OK;
    }
    return end(r, err_set(e, ERR_USAGE, "no tensor '%s' passes between the sub-graphs (quern show lists those that do)", name));
}

static void call_back(void *user, struct request *own, const struct err *e)
{
    quern_request *r = user;
    r->n_callbacks++;
    r->done(r->user, r, e->code ? api_status(e->code) : QUERN_OK, e->msg);
    if (--r->n_callbacks == 0 && r->is_destroyed) free_request(r);
}

void quern_request_on_done(quern_request *r, quern_done_fn *fn, void *user)
{
    if (!r) return;
    r->done = fn, r->user = user;
    request_on_done(r->r, fn ? call_back : NULL, r);
}

quern_status quern_request_start(quern_request *r) { return r ? end(r, request_start(r->r, begin(r))) : QUERN_USAGE; }

/* The request's error is not touched while it runs: its callback may use it. */
quern_status quern_request_wait(quern_request *r, double seconds, int *done)
{
    struct err e = {0}, result = {0};
    bool is_done = false;
    if (!r) return QUERN_USAGE;
    if (done) *done = 0;
    if (!request_wait(r->r, seconds, &is_done, &result, &e)) {
        r->err = e;
        return api_status(e.code);
    }
    if (done) *done = is_done;
    if (!is_done) return QUERN_OK;
    r->err = result;
    return end(r, result.code == ERR_NONE);
}

quern_status quern_request_run(quern_request *r)
{
    quern_status s = quern_request_start(r);
    return s ? s : quern_request_wait(r, -1, NULL);
}

void quern_request_cancel(quern_request *r)
{
    if (r) request_cancel(r->r);
}
