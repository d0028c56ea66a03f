// SPDX-License-Identifier: Apache-2.0
//
// Requests: their tensors, starting, waiting, cancelling.
#include "request/request_private.h"

#include <string.h>

struct request *request_create(struct req_model *m, struct err *e)
{
    struct arena a = {0};
    const struct meta_model *meta = m->meta;
    double begin = trace_now(m);
    if (m->o.only_list) return err_set(e, ERR_USAGE, "the deployment was opened for its lists only"), NULL;
    struct request *r = arena_new(&a, struct request);
    *r = (struct request){.model = m};
    r->tensor = arena_array(&a, struct tensor, meta->tensor.n + 1);
    r->memory = arena_array(&a, struct req_memory, meta->tensor.n + 1);
    r->var = arena_array(&a, i64, m->sym.var.n + 1);
    r->pending = arena_array(&a, u32, meta->subgraph.n + 1);
    r->a = a;
    os_monitor_enter(m->monitor);
    r->number = m->n_created++;
    m->n_requests++;
    trace_add(m, (struct req_event){STEP_REQUEST_INIT, meta->name, UINT32_MAX, r->number, begin, trace_now(m)});
    os_monitor_leave(m->monitor);
    return r;
}

bool request_is_in_callback(struct request *r)
{
    os_monitor_enter(r->model->monitor);
    bool is_own = r->callback_thread == os_thread_id();
    os_monitor_leave(r->model->monitor);
    return is_own;
}

struct req_model *request_model(const struct request *r) { return r->model; }

void request_destroy(struct request *r)
{
    if (!r) return;
    struct req_model *m = r->model;
    os_monitor_enter(m->monitor);
    bool is_own = r->callback_thread == os_thread_id(), is_last = false;
    if (is_own) r->destroy_later = true; /* when the callback returns */
    r->done = NULL;
    queue_cancel(r);
    while (!is_own && (r->is_running || r->callback_thread)) os_monitor_wait(m->monitor, -1);
    if (!is_own) is_last = queue_free(r);
    os_monitor_leave(m->monitor);
    if (is_last) queue_free_model(m);
}

/* Tensors. */

static bool is_free(struct request *r, struct err *e)
{
    os_monitor_enter(r->model->monitor);
    bool ok = !r->is_running || err_set(e, ERR_USAGE, "the request is running");
    os_monitor_leave(r->model->monitor);
    return ok;
}

static bool find_input(struct request *r, u32 k, u32 *tensor, struct err *e)
{
    const struct meta_model *meta = r->model->meta;
    if (k >= meta->input.n) return err_set(e, ERR_USAGE, "there is no input %u: '%.*s' has %u", k, STR_ARG(meta->name), meta->input.n);
    *tensor = meta->input.v[k];
    return is_free(r, e);
}

/* Sizes that are numbers are checked at once, the others when the request is started. */
static bool check_input(struct request *r, u32 tensor, const struct tensor *t, struct err *e)
{
    for (u32 v = 0; v < r->model->sym.var.n; v++) r->var[v] = INT64_MIN;
    return shape_check(r->model, tensor, r->var, t, "input", e);
}

bool request_input(struct request *r, u32 k, u32 rank, const i64 *dim, struct tensor *t, struct err *e)
{
    u32 at;
    if (!find_input(r, k, &at, e)) return false;
    bool is_fixed = shape_fixed(r->model, at, t);
    if (!dim && !is_fixed) return err_set(e, ERR_USAGE, "the shape of input '%.*s' is not fixed: its sizes must be given", STR_ARG(r->model->meta->tensor.v[at].name));
    if (dim) {
        t->rank = rank;
        for (u32 d = 0; d < rank && d < MAX_RANK; d++) t->dim[d] = dim[d];
    }
    if (!check_input(r, at, t, e) || !memory_make(r, at, t, e)) return false;
    r->tensor[at] = *t;
    return true;
}

bool request_set_input(struct request *r, u32 k, const struct tensor *t, struct err *e)
{
    u32 at;
    if (!find_input(r, k, &at, e) || !check_input(r, at, t, e)) return false;
    r->tensor[at] = *t;
    return true;
}

bool request_tensor(struct request *r, u32 tensor, struct tensor *t, struct err *e)
{
    if (!is_free(r, e)) return false;
    if (!r->is_started || r->err.code) return err_set(e, ERR_USAGE, "the request has no outputs: it was not run, or failed");
    *t = r->tensor[tensor];
    return true;
}

bool request_output(struct request *r, u32 k, struct tensor *t, struct err *e)
{
    const struct meta_model *meta = r->model->meta;
    if (k >= meta->output.n) return err_set(e, ERR_USAGE, "there is no output %u: '%.*s' has %u", k, STR_ARG(meta->name), meta->output.n);
    return request_tensor(r, meta->output.v[k], t, e);
}

/* Running. */

void request_on_done(struct request *r, request_done_fn *fn, void *user)
{
    os_monitor_enter(r->model->monitor);
    r->done = fn, r->user = user;
    os_monitor_leave(r->model->monitor);
}

bool request_start(struct request *r, struct err *e)
{
    struct req_model *m = r->model;
    if (!is_free(r, e) || !shape_bind(r, e)) return false;
    os_monitor_enter(m->monitor);
    bool ok = !m->is_refusing || err_set(e, ERR_USAGE, "the deployment is closed");
    if (ok) queue_begin(r);
    os_monitor_leave(m->monitor);
    return ok;
}

/* In the monitor: whether this thread is one that others wait for. */
static bool is_of_model(const struct req_model *m)
{
    for (u32 k = 0; k < m->device.n; k++)
        if (m->device.v[k]->thread_id == os_thread_id()) return true;
    return false;
}

bool request_wait(struct request *r, double seconds, bool *is_done, struct err *result, struct err *e)
{
    struct req_model *m = r->model;
    double begin = trace_now(m), until = os_now() + seconds;
    bool ok = true;
    os_monitor_enter(m->monitor);
    *is_done = false;
    if (!r->is_started) ok = err_set(e, ERR_USAGE, "the request was not started");
    else if (is_of_model(m) || r->callback_thread == os_thread_id()) ok = err_set(e, ERR_USAGE, "a callback may not wait: it would hold up its device");
    while (ok && !r->is_over) {
        double left = seconds < 0 ? -1 : until - os_now();
        if (seconds >= 0 && left <= 0) break;
        os_monitor_wait(m->monitor, left);
    }
    if (ok) {
        *is_done = r->is_over;
        *result = r->err;
        trace_add(m, (struct req_event){STEP_WAIT, m->meta->name, UINT32_MAX, r->number, begin, trace_now(m)});
    }
    os_monitor_leave(m->monitor);
    return ok;
}

void request_cancel(struct request *r)
{
    os_monitor_enter(r->model->monitor);
    queue_cancel(r);
    os_monitor_leave(r->model->monitor);
}
