// SPDX-License-Identifier: Apache-2.0
//
// Sub-graphs of a deployment: each is a network of its own, which quern compiles to a program or a vendor's back end converts.
#include "api/api_deploy.h"

#include <string.h>

static struct str file_name(struct api_deploy *d, u32 k) { return str_fmt(&d->arena, "subgraph_%u", k); }

/* Networks. */

/* The sizes that the whole network is optimised for, as far as the sub-graph has them. */
static bool fit_sizes(struct api_deploy *d, quern_model *m)
{
    const struct symtab *all = d->net.g.sym, *own = &m->model->sym;
    struct buf b = {0};
    for (u32 k = 0; k < own->var.n; k++) {
        const u64 *at = map_get(&all->names, own->var.v[k]);
        if (!at || *at >= d->m->model->n_var || d->m->model->var[*at] < 0) continue;
        buf_printf(&b, "%s%.*s:%lld", b.n ? "," : "", STR_ARG(own->var.v[k]), (long long)d->m->model->var[*at]);
    }
    bool ok = !b.n || quern_model_optimize_for(m, b.p) == QUERN_OK;
    buf_release(&b);
    return ok;
}

static bool open_model(struct api_deploy *d, struct api_part *p, u32 k)
{
    return p->m || (api_model_of(d->q, &p->graph, file_name(d, k).p, d->o.f16 != 0, &p->m) && fit_sizes(d, p->m));
}

bool api_part_open(struct api_deploy *d, u32 k)
{
    struct api_part *p = &d->part[k];
    p->part = &d->parts.v[k];
    p->device = &d->devices.v[p->part->device];
    p->backend = deploy_find(str_of(p->device->kind->name));
    place_part_graph(&p->graph, &d->net, p->part, &d->arena);
    return true;
}

/* Programs. */

static struct str device_of(const struct place_device *x) { return x->device.n ? x->device : str_of(x->kind->device); }

static bool tune(struct api_deploy *d, struct api_part *p, const char *device, int threads)
{
    if (!d->o.tune || !d->db) return true;
    struct quern_tune_opts t = *d->o.tune;
    t.device = device, t.threads = threads;
    return quern_tune(d->db, p->m, &t) == QUERN_OK;
}

static bool compile(struct api_deploy *d, struct api_part *p, const char *device, int threads, quern_program **out)
{
    struct quern_compile_opts c = {0};
    if (d->o.compile) memcpy(&c, d->o.compile, d->o.compile->size < sizeof c ? d->o.compile->size : sizeof c);
    c.size = sizeof c, c.device = device, c.threads = threads, c.keep = 0;
    *out = mem_alloc(sizeof **out);
    (*out)->q = d->q;
    return api_compile(p->m, d->db, &c, true, *out, api_begin(d->q));
}

/* A GPU may be in another machine. */
static bool explain_absent(const struct place_device *x, struct err *e)
{
    const struct err cause = *e;
    if (x->kind->route != PLACE_GPU || x->device.n || (cause.code != ERR_SYSTEM && cause.code != ERR_UNSUPPORTED)) return false;
    return err_set(e, cause.code, "%s; for one that is elsewhere name its architecture, '%.*s=device:%s:..' (quern devices)", cause.msg,
                   STR_ARG(x->name), x->kind->device);
}

/* It runs on any processor like this one. */
static bool is_processor(const struct api_part *p) { return !p->backend && str_is(device_of(p->device), "cpu"); }

bool api_part_compile(struct api_deploy *d, u32 k)
{
    struct api_part *p = &d->part[k];
    const bool has_fallback = d->o.fallback && !is_processor(p);
    if (p->backend && !has_fallback) return true;
    if (!open_model(d, p, k)) return false;
    if (has_fallback && !compile(d, p, "cpu", 0, &p->fallback)) return err_prefix(&d->q->err, "fallback");
    if (p->backend) return true;
    const char *device = str_z(&d->arena, device_of(p->device));
    const int threads = (int)place_device_threads(&d->devices, p->part->device);
    return (tune(d, p, device, threads) && compile(d, p, device, threads, &p->p)) || explain_absent(p->device, &d->q->err);
}

static bool write_program(struct api_deploy *d, u32 k, const quern_program *p, enum meta_role role)
{
    struct meta_subgraph *s = &d->meta.subgraph.v[k];
    const struct str fallback = str_fmt(&d->arena, "%.*s/fallback", STR_ARG(s->name));
    const struct meta_program_files to = {.folder = role == META_FALLBACK ? fallback : s->name, .name = file_name(d, k), .role = role};
    const u32 first = d->files.n;
    if (!meta_program_write(&d->files, &p->plan, &to, &d->arena, &d->q->err)) return false;
    for (u32 i = first; i < d->files.n; i++) *arr_push(&d->arena, &s->file) = d->files.v[i].file;
    return true;
}

/* What runs a program of quern's driver. */
static struct str framework_of(const char *driver) { return str_of(strcmp(driver, "cpu") ? driver : "native"); }

bool api_part_write(struct api_deploy *d, u32 k)
{
    struct api_part *p = &d->part[k];
    struct meta_subgraph *s = &d->meta.subgraph.v[k];
    struct quern_program_facts f = QUERN_OPTS(quern_program_facts);
    const struct dev_driver *driver;
    struct dev_opts opts = {0};
    if (p->fallback && !write_program(d, k, p->fallback, META_FALLBACK)) return false;
    if (!p->p) return true;
    if (!dev_select(str_z(&d->arena, device_of(p->device)), &driver, &opts, &d->q->err) || quern_program_facts(p->p, &f)) return false;
    s->framework = framework_of(driver->name);
    s->target = p->p->plan.isa.n ? p->p->plan.isa : p->p->plan.fingerprint;
    s->seconds = f.seconds;
    return write_program(d, k, p->p, META_PROGRAM);
}

/* Vendors. */

struct sampled { const struct api_part *p; quern *q; };

static quern_status sample(void *user, int k, quern_tensor **in, int n_in)
{
    const struct sampled *s = user;
    if ((u32)k >= s->p->samples.n) return QUERN_NOTHING;
    for (int i = 0; i < n_in; i++) {
        const struct tensor *t = s->p->samples.v[k][i];
        quern_status st = quern_tensor_new(s->q, (quern_dtype)dtype_onnx(t->dtype), (int)t->rank, t->dim, t->data, &in[i]);
        if (st) return st;
    }
    return QUERN_OK;
}

struct quantizer { struct api_deploy *d; u32 k; };

static bool quantize(void *user, struct graph *to, struct arena *a, struct err *e)
{
    const struct quantizer *x = user;
    struct api_part *p = &x->d->part[x->k];
    struct sampled s = {p, x->d->q};
    struct quern_quantize_opts o = QUERN_OPTS(quern_quantize_opts);
    o.activations = "i8", o.full = 1;
    bool ok = open_model(x->d, p, x->k) && (p->quantized || quern_quantize(p->m, sample, &s, &o, &p->quantized) == QUERN_OK);
    if (ok) graph_clone(to, &p->quantized->model->graph, a);
    else *e = x->d->q->err;
    return ok;
}

bool api_part_convert(struct api_deploy *d, u32 k)
{
    struct api_part *p = &d->part[k];
    if (!p->backend) return true;
    struct quantizer x = {d, k};
    const struct deploy_job j = {.module = d->name,
                                 .folder = d->meta.subgraph.v[k].name,
                                 .name = file_name(d, k),
                                 .device = p->device,
                                 .graph = &p->graph,
                                 .samples = &p->samples,
                                 .is_f16 = d->o.f16 != 0,
                                 .quantize = p->samples.n ? quantize : NULL,
                                 .user = &x,
                                 .no_tools = d->o.no_tools != 0,
                                 .log = &d->q->log,
                                 .stop = &d->q->stop,
                                 .arena = &d->arena};
    return p->backend->write(&d->meta.subgraph.v[k], &d->files, &j, &d->q->err);
}

void api_part_close(struct api_part *p)
{
    quern_program_close(p->p);
    quern_program_close(p->fallback);
    quern_model_close(p->quantized);
    quern_model_close(p->m);
}
