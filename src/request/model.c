// SPDX-License-Identifier: Apache-2.0
//
// Opening a deployment: its device instances, a thread for each, and its sub-graphs on them; and the way back.
#include "request/request_private.h"

enum { MAX_DEVICES = 256 }; /* threads */

static bool is_processor(struct str framework) { return str_is(framework, "native"); }

/* Devices. */

static const struct req_backend *backend_for(const struct req_model *m, struct str framework)
{
    for (u32 i = 0; i < m->o.n_backends; i++)
        if (m->o.backend[i]->runs(framework)) return m->o.backend[i];
    return NULL;
}

static struct str override_of(const struct req_model *m, struct str name)
{
    for (u32 i = 0; i < m->o.n_overrides; i++)
        if (str_eq(m->o.override[i].name, name)) return m->o.override[i].device;
    return (struct str){0};
}

/* The instance of this name and framework, new if there is none. NULL: nothing runs the framework. */
static struct req_device *device_for(struct req_model *m, struct str name, struct str framework, struct str target)
{
    for (u32 i = 0; i < m->device.n; i++)
        if (str_eq(m->device.v[i]->place.name, name) && str_eq(m->device.v[i]->place.framework, framework)) return m->device.v[i];
    const struct req_backend *b = backend_for(m, framework);
    if (!b) return NULL;
    struct req_device *d = *arr_push(&m->a, &m->device) = arena_new(&m->a, struct req_device);
    *d = (struct req_device){.model = m, .backend = b, .place = {.name = name, .framework = framework, .target = target, .device = override_of(m, name), .a = &m->a}};
    return d;
}

static void find_devices(struct req_model *m)
{
    for (u32 k = 0; k < m->meta->subgraph.n; k++) {
        const struct meta_subgraph *s = &m->meta->subgraph.v[k];
        struct req_slot *x = &m->unit[k].slot[0];
        x->role = META_PROGRAM;
        if (s->missing.n) err_set(&x->err, ERR_UNSUPPORTED, "not complete: %.*s", STR_ARG(s->missing));
        else if (!(x->device = device_for(m, s->device, s->framework, s->target)))
            err_set(&x->err, ERR_UNSUPPORTED, "nothing here runs sub-graphs of '%.*s', device '%.*s'", STR_ARG(s->framework), STR_ARG(s->device));
    }
}

/* One for those that cannot run elsewhere: the first processor of the deployment, or one of its own. */
static void find_fallbacks(struct req_model *m)
{
    struct req_device *d = NULL;
    for (u32 i = 0; i < m->device.n && !d; i++)
        if (is_processor(m->device.v[i]->place.framework)) d = m->device.v[i];
    for (u32 k = 0; k < m->meta->subgraph.n; k++) {
        struct req_slot *x = &m->unit[k].slot[1];
        x->role = META_FALLBACK;
        if (!m->o.fallback || !meta_file_of(&m->meta->subgraph.v[k], META_FALLBACK)) continue;
        if (!d) d = device_for(m, S("fallback"), S("native"), S(""));
        x->device = d;
    }
}

/* Processors are divided among their instances; the first ones get what is left over. */
static void divide_processors(struct req_model *m)
{
    i64 n = 0, k = 0, all = m->o.threads ? m->o.threads : os_n_cpus();
    for (u32 i = 0; i < m->device.n; i++) n += is_processor(m->device.v[i]->place.framework);
    for (u32 i = 0; i < m->device.n; i++)
        if (is_processor(m->device.v[i]->place.framework)) m->device.v[i]->place.threads = i64_max(1, all / n + (k < all % n)), k++;
}

/* Names of devices are looked up before there are threads: drivers may ask children. */
static bool start_devices(struct req_model *m, struct err *e)
{
    if (m->device.n > MAX_DEVICES) return err_set(e, ERR_UNSUPPORTED, "%u device instances, at most %d are possible", m->device.n, MAX_DEVICES);
    for (u32 i = 0; i < m->device.n; i++) {
        struct req_device *d = m->device.v[i];
        if (d->backend->find && !d->backend->find(&d->place, &d->err)) err_set(&d->err, ERR_FAILED, "absent");
    }
    for (u32 i = 0; i < m->device.n; i++) {
        struct req_device *d = m->device.v[i];
        d->thread = os_thread_start(worker_main, d);
        if (!d->thread) return err_set(e, ERR_SYSTEM, "no thread can be started for device '%.*s'", STR_ARG(d->place.name));
    }
    return true;
}

/* Sub-graphs. */

static void wait_for_loads(struct req_model *m)
{
    while (m->n_loading) os_monitor_wait(m->monitor, -1);
}

static const struct err *error_of(const struct req_slot *s) { return s->err.code || !s->device ? &s->err : &s->device->err; }

static void use_fallback(struct req_model *m, u32 k)
{
    struct req_unit *u = &m->unit[k];
    u->active = 1;
    u->is_available = u->slot[1].unit != NULL;
    if (!u->is_available) return;
    log_printf(&m->o.log, 1, "sub-graph '%.*s' runs on the CPU instead of device '%.*s': %s", STR_ARG(m->meta->subgraph.v[k].name),
               STR_ARG(m->meta->subgraph.v[k].device), error_of(&u->slot[0])->msg);
}

/* On their devices, all of these at once, then on the CPU what could not be loaded there. */
static void load_all(struct req_model *m)
{
    u32 n = m->meta->subgraph.n;
    os_monitor_enter(m->monitor);
    for (u32 k = 0; k < n; k++)
        if (m->unit[k].slot[0].device) queue_load(m, k, 0);
    wait_for_loads(m);
    for (u32 k = 0; k < n; k++) {
        struct req_unit *u = &m->unit[k];
        u->is_available = u->slot[0].unit != NULL;
        if (!u->is_available && u->slot[1].device) queue_load(m, k, 1);
    }
    wait_for_loads(m);
    os_monitor_leave(m->monitor);
    for (u32 k = 0; k < n; k++)
        if (!m->unit[k].is_available && m->unit[k].slot[1].device) use_fallback(m, k);
}

static bool are_available(const struct req_model *m, struct err *e)
{
    for (u32 k = 0; k < m->meta->subgraph.n; k++) {
        const struct req_unit *u = &m->unit[k];
        const struct meta_subgraph *s = &m->meta->subgraph.v[k];
        const struct err *own = error_of(&u->slot[0]);
        if (u->is_available) continue;
        if (u->slot[1].device) return err_set(e, own->code, "%s; and its program for the CPU: %s", own->msg, error_of(&u->slot[1])->msg);
        return err_set(e, own->code, "sub-graph '%.*s', device '%.*s': %s%s", STR_ARG(s->name), STR_ARG(s->device), own->msg,
                       m->o.fallback ? " (the deployment has no program for the CPU in its place)"
                                     : meta_file_of(s, META_FALLBACK) ? " (it can run on the CPU if fallback is on)" : "");
    }
    return true;
}

static void copy_opts(struct req_model *m, const struct req_model_opts *o)
{
    static const struct req_backend *const own[] = {&req_backend_program, &req_backend_openvino};
    m->o = *o;
    if (!m->o.n_backends) m->o.backend = own, m->o.n_backends = countof(own);
    struct req_override *v = arena_array(&m->a, struct req_override, o->n_overrides + 1);
    for (u32 i = 0; i < o->n_overrides; i++) v[i] = (struct req_override){str_dup(&m->a, o->override[i].name), str_dup(&m->a, o->override[i].device)};
    m->o.override = v;
}

/* An override for a device that the deployment does not use is a mistake. */
static bool check_overrides(const struct req_model *m, struct err *e)
{
    for (u32 i = 0; i < m->o.n_overrides; i++) {
        bool is_used = false;
        for (u32 k = 0; k < m->meta->subgraph.n; k++) is_used |= str_eq(m->meta->subgraph.v[k].device, m->o.override[i].name);
        if (!is_used) return err_set(e, ERR_USAGE, "no sub-graph is for device '%.*s'", STR_ARG(m->o.override[i].name));
    }
    return true;
}

static bool open_all(struct req_model *m, struct err *e)
{
    m->meta = meta_model_of(m->store);
    m->unit = arena_array(&m->a, struct req_unit, m->meta->subgraph.n + 1);
    if (!shape_parse(m, e) || !check_overrides(m, e)) return false;
    if (m->o.only_list) return true;
    find_devices(m);
    find_fallbacks(m);
    divide_processors(m);
    if (!start_devices(m, e)) return false;
    load_all(m);
    return are_available(m, e);
}

struct req_model *req_model_open(const char *path, const struct req_model_opts *o, struct err *e)
{
    struct meta_store *store = meta_open(path, &o->meta, e);
    struct arena a = {0};
    if (!store) return NULL;
    struct req_model *m = arena_new(&a, struct req_model);
    *m = (struct req_model){.a = a, .store = store, .monitor = os_monitor_new(), .reading = os_monitor_new()};
    copy_opts(m, o);
    m->begin = trace_now(m);
    if (open_all(m, e)) {
        trace_add(m, (struct req_event){STEP_MODEL_INIT, m->meta->name, UINT32_MAX, -1, m->begin, trace_now(m)});
        return m;
    }
    err_prefix(e, "'%s'", path);
    req_model_close(m);
    return NULL;
}

/* In the monitor. */
static u32 n_active(const struct req_model *m)
{
    u32 n = 0;
    for (u32 k = 0; k < m->device.n; k++) n += m->device.v[k]->is_busy || m->device.v[k]->queue.n;
    return n;
}

/* Requests that run end first; none starts any more. */
void req_model_close(struct req_model *m)
{
    if (!m) return;
    os_monitor_enter(m->monitor);
    m->is_refusing = true;
    while (n_active(m)) os_monitor_wait(m->monitor, -1);
    m->is_quitting = true;
    os_monitor_wake(m->monitor);
    os_monitor_leave(m->monitor);
    for (u32 k = 0; k < m->device.n; k++) os_thread_join(m->device.v[k]->thread);
    os_monitor_enter(m->monitor);
    m->is_closing = true;
    bool is_last = m->n_requests == 0;
    os_monitor_leave(m->monitor);
    if (is_last) queue_free_model(m);
}

/* Facts. */

const struct meta_model *req_model_meta(const struct req_model *m) { return m->meta; }

void req_model_state(struct req_model *m, u32 subgraph, struct req_state_of *s)
{
    struct req_unit *u = &m->unit[subgraph];
    *s = (struct req_state_of){.state = REQ_LISTED, .device = m->meta->subgraph.v[subgraph].device, .why = ""};
    if (m->o.only_list) return;
    os_monitor_enter(m->monitor);
    s->state = !u->is_available ? REQ_UNAVAILABLE : u->active ? REQ_FALLBACK : REQ_READY;
    if (u->slot[u->active].device) s->device = u->slot[u->active].device->place.name;
    if (s->state != REQ_READY) s->why = error_of(&u->slot[0])->msg;
    s->runs = u->runs, s->seconds = u->seconds;
    os_monitor_leave(m->monitor);
}

u32 req_model_active(struct req_model *m)
{
    os_monitor_enter(m->monitor);
    u32 n = n_active(m);
    os_monitor_leave(m->monitor);
    return n;
}

void req_trace(struct req_model *m, struct buf *b)
{
    os_monitor_enter(m->monitor);
    trace_print(b, m);
    os_monitor_leave(m->monitor);
}

void req_chart(struct req_model *m, struct buf *b)
{
    os_monitor_enter(m->monitor);
    chart_print(b, m);
    os_monitor_leave(m->monitor);
}
