// SPDX-License-Identifier: Apache-2.0
//
// The thread of a device instance: opens the device, loads sub-graphs and runs tasks, one at a time, until the model is closed. Everything that a back end
// does happens in this thread, so back ends need not be reentrant, and a GPU's context stays with its thread.
#include "request/request_private.h"

#include <string.h>

static u32 index_of(const struct req_device *d)
{
    u32 k = 0;
    while (d->model->device.v[k] != d) k++;
    return k;
}

static void note(struct req_device *d, enum req_step step, struct str what, i64 request, double begin, double end)
{
    os_monitor_enter(d->model->monitor);
    trace_add(d->model, (struct req_event){step, what, index_of(d), request, begin, end});
    os_monitor_leave(d->model->monitor);
}

/* Loading. */

static bool read_file(void *user, const struct meta_file *f, struct str *bytes, struct err *e)
{
    struct req_model *m = user;
    os_monitor_enter(m->reading);
    bool ok = meta_store_read(m->store, f, bytes, e);
    os_monitor_leave(m->reading);
    return ok;
}

static bool open_device(struct req_device *d, struct err *e)
{
    if (!d->handle && !d->err.code) d->handle = d->backend->open(&d->place, &d->err);
    if (!d->handle && !d->err.code) err_set(&d->err, ERR_FAILED, "cannot be opened");
    return d->handle || err_set(e, d->err.code, "%s", d->err.msg);
}

/* A failure is kept, also one of a run after which the other slot is used: it is not tried again. */
static bool load(struct req_device *d, u32 subgraph, struct req_slot *s, struct err *e)
{
    struct req_model *m = d->model;
    const struct meta_subgraph *x = &m->meta->subgraph.v[subgraph];
    struct req_source source = {m->meta, x, s->role, read_file, m, m->o.profile == REQ_LAYERS};
    double begin = trace_now(m);
    if (s->unit && !s->err.code) return true;
    struct err why = s->err.code ? s->err : (struct err){.stop = m->o.stop};
    if (!why.code && open_device(d, &why)) s->unit = d->backend->load(d->handle, &source, &why);
    if (!s->unit) err_set(&why, ERR_FAILED, "cannot be loaded");
    if (why.code && why.code != ERR_STOPPED) s->err = why;
    if (why.code) return err_set(e, why.code, "sub-graph '%.*s' on device '%.*s': %s", STR_ARG(x->name), STR_ARG(d->place.name), why.msg);
    note(d, STEP_SUBGRAPH_INIT, x->name, -1, begin, trace_now(m));
    return true;
}

/* Running. */

struct run {
    struct req_device *d;
    struct request *r;
    const struct meta_subgraph *s;
    struct tensor *in, *out;
    struct arena a;
    double begin, end;
};

static bool is_known(const struct tensor *t)
{
    bool ok = true;
    for (u32 d = 0; d < t->rank && ok; d++) ok = t->dim[d] >= 0;
    return ok;
}

static bool place_outputs(struct run *x, const struct req_slot *s, struct err *e)
{
    if (!x->d->backend->dims(s->unit, x->in, x->out, e)) return false;
    for (u32 k = 0; k < x->s->out.n; k++) {
        if (!shape_check(x->r->model, x->s->out.v[k], x->r->var, &x->out[k], "output", e)) return false;
        x->out[k].data = NULL;
        if (is_known(&x->out[k]) && !memory_make(x->r, x->s->out.v[k], &x->out[k], e)) return false;
    }
    return true;
}

/* Outputs whose sizes were known only now are in memory of the run: they are copied. */
static bool keep_outputs(struct run *x, struct err *e)
{
    struct req_model *m = x->r->model;
    for (u32 k = 0; k < x->s->out.n; k++) {
        u32 t = x->s->out.v[k];
        struct tensor own = x->out[k];
        if (!shape_check(m, t, x->r->var, &own, "output", e)) return false;
        if (own.data != x->r->memory[t].p) {
            double begin = trace_now(m);
            if (!memory_make(x->r, t, &own, e)) return false;
            if (tensor_bytes(&own)) memcpy(own.data, x->out[k].data, (size_t)tensor_bytes(&own));
            note(x->d, STEP_COPY, m->meta->tensor.v[t].name, x->r->number, begin, trace_now(m));
        }
        own.narrow = NULL;
        x->r->tensor[t] = own;
    }
    return true;
}

static void note_run(struct run *x, const struct req_report *p)
{
    struct req_model *m = x->r->model;
    u32 at = index_of(x->d);
    double layer = x->begin + p->in;
    os_monitor_enter(m->monitor);
    trace_add(m, (struct req_event){STEP_SUBGRAPH, x->s->name, at, x->r->number, x->begin, x->end});
    if (p->in > 0) trace_add(m, (struct req_event){STEP_FROM_INPUT, x->s->name, at, x->r->number, x->begin, x->begin + p->in});
    for (u32 k = 0; k < p->n_layers && m->o.profile; k++) {
        trace_add(m, (struct req_event){STEP_LAYER, str_dup(&m->events.a, str_of(p->layer[k].name)), at, x->r->number, layer, layer + p->layer[k].seconds});
        layer += p->layer[k].seconds;
    }
    if (p->out > 0) trace_add(m, (struct req_event){STEP_TO_OUTPUT, x->s->name, at, x->r->number, x->end - p->out, x->end});
    struct req_unit *u = &m->unit[x->s - m->meta->subgraph.v];
    u->runs++;
    u->seconds += x->end - x->begin;
    os_monitor_leave(m->monitor);
}

static bool run(struct run *x, struct req_slot *s, struct err *e)
{
    struct req_report report = {0};
    const struct req_model *m = x->r->model;
    x->in = arena_array(&x->a, struct tensor, x->s->in.n + 1);
    x->out = arena_array(&x->a, struct tensor, x->s->out.n + 1);
    for (u32 k = 0; k < x->s->in.n; k++) x->in[k] = x->r->tensor[x->s->in.v[k]];
    if (!place_outputs(x, s, e)) return false;
    x->begin = trace_now(m);
    bool ok = x->d->backend->run(s->unit, x->in, x->out, &x->a, &report, e);
    x->end = trace_now(m);
    if (ok) note_run(x, &report);
    return ok && keep_outputs(x, e);
}

static bool is_of_device(const struct err *e) { return e->code != ERR_INPUT && e->code != ERR_USAGE && e->code != ERR_STOPPED; }

/* In the monitor: whether the sub-graph's other slot can be tried; from now on it is used. */
static bool fall_back(struct req_device *d, u32 subgraph, struct req_slot *failed, const struct err *e)
{
    struct req_model *m = d->model;
    struct req_unit *u = &m->unit[subgraph];
    bool can = m->o.fallback && failed == &u->slot[0] && u->slot[1].device && is_of_device(e);
    if (can && u->active == 0) {
        u->active = 1;
        u->slot[0].err = *e;
        log_printf(&m->o.log, 1, "sub-graph '%.*s' runs on the CPU from now on: device '%.*s' failed: %s", STR_ARG(m->meta->subgraph.v[subgraph].name),
                   STR_ARG(d->place.name), e->msg);
    }
    return can;
}

static void run_task(struct req_device *d, struct req_task t)
{
    struct req_model *m = d->model;
    struct req_unit *u = &m->unit[t.subgraph];
    struct req_slot *s = &u->slot[t.slot];
    struct run x = {.d = d, .r = t.r, .s = &m->meta->subgraph.v[t.subgraph]};
    struct err e = {.stop = m->o.stop};
    if (stop_is_set(m->o.stop)) err_set(&e, ERR_STOPPED, "stopped");
    bool is_loaded = !e.code && load(d, t.subgraph, s, &e), ok = is_loaded && run(&x, s, &e);
    if (!ok && !e.code) err_set(&e, ERR_FAILED, "failed");
    arena_release(&x.a);
    os_monitor_enter(m->monitor);
    if (!ok && fall_back(d, t.subgraph, s, &e)) {
        queue_again(m, t);
        return;
    }
    if (!ok && is_loaded && e.code != ERR_STOPPED) err_prefix(&e, "sub-graph '%.*s' on device '%.*s'", STR_ARG(x.s->name), STR_ARG(d->place.name));
    queue_finish(m, t, &e);
}

static void load_task(struct req_device *d, struct req_task t)
{
    struct req_model *m = d->model;
    struct err e = {.stop = m->o.stop};
    load(d, t.subgraph, &m->unit[t.subgraph].slot[t.slot], &e);
    os_monitor_enter(m->monitor);
    m->n_loading--;
    os_monitor_wake(m->monitor);
}

static void unload_all(struct req_device *d)
{
    struct req_model *m = d->model;
    for (u32 k = 0; k < m->meta->subgraph.n; k++)
        for (u32 i = 0; i < 2; i++) {
            struct req_slot *s = &m->unit[k].slot[i];
            if (s->device == d && s->unit) d->backend->unload(s->unit), s->unit = NULL;
        }
    if (d->handle) d->backend->close(d->handle);
    d->handle = NULL;
}

void worker_main(void *user)
{
    struct req_device *d = user;
    struct req_model *m = d->model;
    struct req_task t;
    os_monitor_enter(m->monitor);
    d->thread_id = os_thread_id();
    os_monitor_wake(m->monitor);
    while (queue_take(d, &t) || !m->is_quitting) {
        if (!d->is_busy) {
            os_monitor_wait(m->monitor, -1);
            continue;
        }
        os_monitor_leave(m->monitor);
        if (t.r) run_task(d, t); /* enters it again */
        else load_task(d, t);
        d->is_busy = false;
        os_monitor_wake(m->monitor);
    }
    os_monitor_leave(m->monitor);
    unload_all(d);
}
