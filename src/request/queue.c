// SPDX-License-Identifier: Apache-2.0
//
// Which task runs next, and when a request is over. Everything here is in the model's monitor, but for callbacks, which are called outside of it by the
// thread that ended the request.
#include "request/request_private.h"

static void push(struct req_device *d, struct req_task t)
{
    *arr_push(&d->a, &d->queue) = t;
    os_monitor_wake(d->model->monitor);
}

void queue_load(struct req_model *m, u32 subgraph, u32 slot)
{
    m->n_loading++;
    push(m->unit[subgraph].slot[slot].device, (struct req_task){NULL, subgraph, slot});
}

static void push_task(struct request *r, u32 subgraph)
{
    struct req_unit *u = &r->model->unit[subgraph];
    push(u->slot[u->active].device, (struct req_task){r, subgraph, u->active});
}

void queue_begin(struct request *r)
{
    const struct meta_model *meta = r->model->meta;
    r->sequence = r->model->n_started++;
    r->n_left = meta->subgraph.n;
    r->n_running = 0;
    r->is_started = r->is_running = true, r->is_over = false;
    r->err = (struct err){0};
    r->begin = trace_now(r->model);
    for (u32 k = 0; k < meta->subgraph.n; k++) r->pending[k] = meta->subgraph.v[k].after.n;
    for (u32 k = 0; k < meta->subgraph.n; k++)
        if (!r->pending[k]) push_task(r, k);
}

static bool is_before(const struct req_task *x, const struct req_task *y)
{
    if (!x->r || !y->r) return !x->r && (y->r || x->subgraph < y->subgraph); /* loads first */
    return x->r->sequence != y->r->sequence ? x->r->sequence < y->r->sequence : x->subgraph < y->subgraph;
}

bool queue_take(struct req_device *d, struct req_task *t)
{
    u32 best = 0;
    if (!d->queue.n) return false;
    for (u32 i = 1; i < d->queue.n; i++)
        if (is_before(&d->queue.v[i], &d->queue.v[best])) best = i;
    *t = d->queue.v[best];
    d->queue.v[best] = d->queue.v[--d->queue.n];
    if (t->r) t->r->n_running++;
    return d->is_busy = true;
}

void queue_again(struct req_model *m, struct req_task t)
{
    t.r->n_running--;
    push_task(t.r, t.subgraph);
}

static void drop_tasks(struct request *r)
{
    for (u32 k = 0; k < r->model->device.n; k++) {
        struct req_device *d = r->model->device.v[k];
        u32 kept = 0;
        for (u32 i = 0; i < d->queue.n; i++)
            if (d->queue.v[i].r != r) d->queue.v[kept++] = d->queue.v[i];
        d->queue.n = kept;
    }
}

void queue_free_model(struct req_model *m)
{
    struct arena a = m->a;
    for (u32 k = 0; k < m->device.n; k++) arena_release(&m->device.v[k]->a);
    meta_close(m->store);
    os_monitor_free(m->monitor);
    os_monitor_free(m->reading);
    arena_release(&m->events.a);
    arena_release(&a); /* with the model */
}

bool queue_free(struct request *r)
{
    struct req_model *m = r->model;
    memory_release(r);
    struct arena a = r->a;
    arena_release(&a);
    return --m->n_requests == 0 && m->is_closing;
}

/* Outside of the monitor. One callback of a request at a time; it may start the request, or cancel it, which calls it again. */
static void call_back(struct request *r)
{
    const i64 self = os_thread_id(), outer = r->callback_thread;
    struct err e = r->err;
    if (!r->done) return;
    r->callback_thread = self;
    os_monitor_leave(r->model->monitor);
    r->done(r->user, r, &e);
    os_monitor_enter(r->model->monitor);
    r->callback_thread = outer;
}

static void end(struct request *r)
{
    struct req_model *m = r->model;
    r->is_ending = true;
    while (r->callback_thread && r->callback_thread != os_thread_id()) os_monitor_wait(m->monitor, -1); /* of the run before */
    r->is_ending = r->is_running = false;
    trace_add(m, (struct req_event){STEP_MODEL, m->meta->name, UINT32_MAX, r->number, r->begin, trace_now(m)});
    call_back(r);
    os_monitor_wake(m->monitor);
    if (r->is_running || r->callback_thread) return;
    r->is_over = true;
    if (r->destroy_later) queue_free(r); /* by a thread of the model, which is not closed then */
}

static void end_if_over(struct request *r)
{
    if (!r->is_running || r->is_ending || r->n_running || (r->n_left && !r->err.code)) return;
    end(r);
}

void queue_finish(struct req_model *m, struct req_task t, const struct err *e)
{
    struct request *r = t.r;
    r->n_running--;
    if (e->code && !r->err.code) {
        r->err = *e;
        drop_tasks(r);
    }
    if (!e->code && !r->err.code) {
        r->n_left--;
        for (u32 k = t.subgraph + 1; k < m->meta->subgraph.n; k++)
            for (u32 i = 0; i < m->meta->subgraph.v[k].after.n; i++)
                if (m->meta->subgraph.v[k].after.v[i] == t.subgraph && --r->pending[k] == 0) push_task(r, k);
    }
    end_if_over(r);
}

void queue_cancel(struct request *r)
{
    if (!r->is_running || r->err.code) return;
    err_set(&r->err, ERR_STOPPED, "the request was cancelled");
    drop_tasks(r);
    end_if_over(r);
}
