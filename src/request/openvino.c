// SPDX-License-Identifier: Apache-2.0
//
// The back end for blobs of OpenVINO, by its C library (dev/dev_openvino.h). Sizes are numbers, and tensors are used in place: OpenVINO gets the memory of
// the request's. Its enumerations of types differ between versions, so tensors take the type of the blob's own ports, and bytes are compared.
#include "dev/dev_openvino.h"
#include "request/request.h"

#include <stdio.h>

enum { MAX_DEVICE = 64 };

struct choice { char device[MAX_DEVICE]; i64 threads; };

struct device {
    struct openvino o;
    void *core;
    char name[MAX_DEVICE], version[100];
};

struct port { int type; struct tensor t; /* sizes alone */ };

struct unit {
    struct arena a;
    struct device *device;
    void *compiled, *request;
    struct { struct port *v; u32 n, cap; } in, out;
};

static bool runs(struct str framework) { return str_is(framework, "openvino"); }

/* The library is looked for when the device is opened, in its thread. */
static bool find(struct req_place *p, struct err *e)
{
    struct choice *c = arena_new(p->a, struct choice);
    p->choice = c;
    c->threads = p->threads;
    if (p->device.n >= MAX_DEVICE) return err_set(e, ERR_USAGE, "'%.*s' is no device of OpenVINO", STR_ARG(p->device));
    if (p->device.n) snprintf(c->device, sizeof c->device, "%.*s", STR_ARG(p->device)); /* OpenVINO's name: "GPU.1" */
    else if (!openvino_device(p->name, c->device, sizeof c->device)) return err_set(e, ERR_UNSUPPORTED, "OpenVINO has no device '%.*s'", STR_ARG(p->name));
    return true;
}

static void close_device(void *device)
{
    struct device *d = device;
    if (d->core) d->o.core_free(d->core);
    openvino_close(&d->o);
    mem_free(d);
}

static bool start(struct device *d, const struct choice *c, struct err *e)
{
    char threads[32];
    if (openvino_fails(&d->o, d->o.core_create(&d->core), "starting", e)) return false;
    openvino_version_text(&d->o, d->version, sizeof d->version);
    if (!openvino_has_device(&d->o, d->core, d->name)) return err_set(e, ERR_SYSTEM, "OpenVINO %s finds no device %s here", d->version, d->name);
    if (c->threads <= 0 || !str_is(str_of(d->name), "CPU")) return true;
    snprintf(threads, sizeof threads, "%lld", (long long)c->threads);
    return !openvino_fails(&d->o, d->o.set_property(d->core, d->name, "INFERENCE_NUM_THREADS", threads, NULL), "setting the number of threads", e);
}

static void *open_place(const struct req_place *p, struct err *e)
{
    const struct choice *c = p->choice;
    struct device *d = mem_alloc(sizeof *d);
    *d = (struct device){0};
    snprintf(d->name, sizeof d->name, "%s", c->device);
    if (openvino_open(&d->o, e) && start(d, c, e)) return d;
    close_device(d);
    return NULL;
}

static void unload(void *unit)
{
    struct unit *u = unit;
    const struct openvino *o = &u->device->o;
    if (u->request) o->request_free(u->request);
    if (u->compiled) o->compiled_free(u->compiled);
    arena_release(&u->a);
    mem_free(u);
}

/* Sizes and type of a port. */
static bool read_port(const struct openvino *o, struct port *x, void *port, struct err *e)
{
    openvino_shape s = {0};
    if (openvino_fails(o, o->port_type(port, &x->type), "reading a type", e) || openvino_fails(o, o->port_shape(port, &s), "reading sizes", e)) return false;
    bool ok = s.rank >= 0 && s.rank <= MAX_RANK;
    for (i64 i = 0; ok && i < s.rank; i++) x->t.dim[i] = s.dims[i];
    x->t.rank = ok ? (u32)s.rank : 0;
    o->shape_free(&s);
    return ok || err_set(e, ERR_INPUT, "a tensor of the blob has %lld axes", (long long)s.rank);
}

static bool read_ports(struct unit *u, bool is_output, u32 wanted, struct err *e)
{
    const struct openvino *o = &u->device->o;
    size_t n = 0;
    if (openvino_fails(o, (is_output ? o->n_outputs : o->n_inputs)(u->compiled, &n), "counting tensors", e)) return false;
    if (n != wanted) return err_set(e, ERR_INPUT, "the blob has %zu %s, the sub-graph %u", n, is_output ? "outputs" : "inputs", wanted);
    for (size_t k = 0; k < n; k++) {
        void *port = NULL;
        struct port *x = is_output ? arr_push(&u->a, &u->out) : arr_push(&u->a, &u->in);
        *x = (struct port){0};
        if (openvino_fails(o, (is_output ? o->output : o->input)(u->compiled, k, &port), "finding a tensor", e)) return false;
        bool ok = read_port(o, x, port, e);
        o->port_free(port);
        if (!ok) return false;
    }
    return true;
}

/* Importing chooses the precision again: devices prefer f16 and bf16 unless they are told; bf16 is less than what f16 promises. */
static bool keep_f32(struct unit *u, const struct req_source *s, struct err *e)
{
    const struct device *d = u->device;
    bool has_f32 = str_is(str_of(d->name), "CPU");
    for (u32 k = 0; k < s->subgraph->in.n; k++) has_f32 |= s->model->tensor.v[s->subgraph->in.v[k]].dtype == DT_F32;
    for (u32 k = 0; k < s->subgraph->out.n; k++) has_f32 |= s->model->tensor.v[s->subgraph->out.v[k]].dtype == DT_F32;
    return !has_f32 || !openvino_fails(&d->o, d->o.set_property(d->core, d->name, "INFERENCE_PRECISION_HINT", "f32", NULL), "setting the precision", e);
}

static bool read_blob(struct unit *u, const struct req_source *s, struct err *e)
{
    const struct openvino *o = &u->device->o;
    const struct meta_file *f = meta_file_of(s->subgraph, META_BLOB);
    struct str bytes;
    if (!f) return err_set(e, ERR_UNSUPPORTED, "its blob is not there: %.*s", STR_ARG(s->subgraph->missing.n ? s->subgraph->missing : S("deploy again")));
    if (!s->read(s->user, f, &bytes, e) || !keep_f32(u, s, e)) return false;
    if (openvino_fails(o, o->import_model(u->device->core, bytes.p, (size_t)bytes.n, u->device->name, &u->compiled), "importing the blob", e))
        return err_set(e, ERR_UNSUPPORTED, "%s; it was made for %.*s, here is OpenVINO %s: deploy again", e->msg, STR_ARG(s->subgraph->target), u->device->version);
    return read_ports(u, false, s->subgraph->in.n, e) && read_ports(u, true, s->subgraph->out.n, e) &&
           !openvino_fails(o, o->request_create(u->compiled, &u->request), "making a request", e);
}

static void *load(void *device, const struct req_source *s, struct err *e)
{
    struct unit *u = mem_alloc(sizeof *u);
    *u = (struct unit){.device = device};
    if (s->role == META_PROGRAM && read_blob(u, s, e)) {
        for (u32 k = 0; k < u->in.n; k++) u->in.v[k].t.dtype = s->model->tensor.v[s->subgraph->in.v[k]].dtype;
        for (u32 k = 0; k < u->out.n; k++) u->out.v[k].t.dtype = s->model->tensor.v[s->subgraph->out.v[k]].dtype;
        return u;
    }
    if (!e->code) err_set(e, ERR_UNSUPPORTED, "OpenVINO runs blobs only");
    unload(u);
    return NULL;
}

static bool dims(void *unit, const struct tensor *in, struct tensor *out, struct err *e)
{
    struct unit *u = unit;
    for (u32 k = 0; k < u->in.n; k++) {
        bool same = in[k].rank == u->in.v[k].t.rank;
        for (u32 i = 0; same && i < in[k].rank; i++) same = in[k].dim[i] == u->in.v[k].t.dim[i];
        if (!same) return err_set(e, ERR_INPUT, "input %u has other sizes than the blob was compiled for", k);
    }
    for (u32 k = 0; k < u->out.n; k++) {
        void *data = out[k].data;
        out[k] = u->out.v[k].t;
        out[k].data = data;
    }
    return true;
}

/* The request uses the tensor's memory from now on. */
static bool bind(struct unit *u, bool is_output, u32 k, const struct tensor *t, struct err *e)
{
    const struct openvino *o = &u->device->o;
    const struct port *x = is_output ? &u->out.v[k] : &u->in.v[k];
    openvino_shape s = {x->t.rank, (i64 *)(uintptr_t)x->t.dim};
    void *tensor = NULL;
    size_t bytes = 0;
    if (openvino_fails(o, o->tensor_create(x->type, s, t->data, &tensor), "using a tensor", e)) return false;
    bool ok = !openvino_fails(o, o->tensor_bytes(tensor, &bytes), "using a tensor", e) &&
              (bytes == (size_t)tensor_bytes(t) || err_set(e, ERR_INPUT, "%s %u of the blob has %zu bytes, the tensor %lld", is_output ? "output" : "input", k, bytes,
                                                           (long long)tensor_bytes(t))) &&
              !openvino_fails(o, (is_output ? o->set_output : o->set_input)(u->request, k, tensor), "using a tensor", e);
    o->tensor_free(tensor);
    return ok;
}

static bool run(void *unit, const struct tensor *in, struct tensor *out, struct arena *a, struct req_report *report, struct err *e)
{
    struct unit *u = unit;
    *report = (struct req_report){0};
    if (!dims(unit, in, out, e)) return false;
    for (u32 k = 0; k < u->out.n; k++)
        if (!out[k].data && !(out[k].data = arena_try(a, tensor_bytes(&out[k]), e, "output %u", k))) return false;
    for (u32 k = 0; k < u->in.n; k++)
        if (!bind(u, false, k, &in[k], e)) return false;
    for (u32 k = 0; k < u->out.n; k++)
        if (!bind(u, true, k, &out[k], e)) return false;
    return !openvino_fails(&u->device->o, u->device->o.request_infer(u->request), "running", e);
}

const struct req_backend req_backend_openvino = {
    .name = "openvino",
    .runs = runs,
    .find = find,
    .open = open_place,
    .close = close_device,
    .load = load,
    .unload = unload,
    .dims = dims,
    .run = run,
};
