// SPDX-License-Identifier: Apache-2.0
//
// Deployment of a network over several devices: from a model and an allocation to files. Declared and documented in include/quern.h. The steps have
// the names that OptimaV2 gave them; kernels are compiled after the division into sub-graphs, because operators are fused within one.
#include "api/api_deploy.h"

#include <string.h>

/* Inputs. */

static bool read_devices(struct api_deploy *d, struct err *e)
{
    u32 n = 0;
    while (d->o.devices && d->o.devices[n]) n++;
    if (!n && !d->o.allocation && !d->o.allocation_file) return err_set(e, ERR_USAGE, "neither devices nor an allocation is given");
    return place_devices_parse(&d->devices, d->o.devices, n, &d->arena, e);
}

static bool allocate(struct api_deploy *d, struct err *e)
{
    if (!read_devices(d, e)) return false;
    if (d->o.allocation || d->o.allocation_file)
        return place_allocation_read(&d->allocation, &d->net, &d->devices, d->o.allocation, d->o.allocation_file, &d->arena, e);
    d->allocation.device = arena_array(&d->arena, u32, d->net.op.n + 1); /* the first */
    for (u32 k = 0; k < d->net.op.n; k++)
        if (!place_can_run(&d->devices.v[0], &d->net, k, e)) return err_prefix(e, "operator '%.*s'", STR_ARG(d->net.op.v[k].name));
    return true;
}

/* The description. */

static struct str dim_text(struct api_deploy *d, sym s)
{
    struct buf b = {0};
    sym_print(&b, d->net.g.sym, s);
    struct str text = str_dup(&d->arena, buf_view(&b));
    buf_release(&b);
    return text;
}

/* Tensor of the deployment for a value that passes between sub-graphs or to the caller; added at its first use. */
static u32 add_tensor(struct api_deploy *d, value_id v)
{
    const struct value *x = graph_value(&d->net.g, v);
    const struct str name = d->net.tensor.v[d->net.tensor_of[v]].name;
    for (u32 k = 0; k < d->meta.tensor.n; k++)
        if (str_eq(d->meta.tensor.v[k].name, name)) return k;
    struct meta_tensor *t = arr_push(&d->arena, &d->meta.tensor);
    *t = (struct meta_tensor){.name = name, .origin = x->name, .dtype = x->dtype, .rank = x->shape.rank};
    if (d->o.f16 && dtype_is_float(t->dtype)) t->dtype = DT_F16;
    for (u32 i = 0; i < t->rank; i++) t->dim[i] = dim_text(d, x->shape.dim[i]);
    return d->meta.tensor.n - 1;
}

static void describe_part(struct api_deploy *d, u32 k)
{
    const struct place_part *p = &d->parts.v[k];
    struct meta_subgraph *s = arr_push(&d->arena, &d->meta.subgraph);
    *s = (struct meta_subgraph){.name = str_fmt(&d->arena, "Subgraph_%u", k), .device = d->devices.v[p->device].name};
    for (u32 i = 0; i < p->op.n; i++) *arr_push(&d->arena, &s->op) = d->net.op.v[p->op.v[i]].name;
    for (u32 i = 0; i < p->in.n; i++) *arr_push(&d->arena, &s->in) = add_tensor(d, p->in.v[i]);
    for (u32 i = 0; i < p->out.n; i++) *arr_push(&d->arena, &s->out) = add_tensor(d, p->out.v[i]);
    for (u32 i = 0; i < p->after.n; i++) *arr_push(&d->arena, &s->after) = p->after.v[i];
}

static void describe(struct api_deploy *d)
{
    const struct graph *g = &d->net.g;
    d->meta.name = d->name;
    for (u32 k = 0; k < g->input.n; k++) *arr_push(&d->arena, &d->meta.input) = add_tensor(d, g->input.v[k]);
    for (u32 k = 0; k < d->parts.n; k++) describe_part(d, k);
    for (u32 k = 0; k < g->output.n; k++) *arr_push(&d->arena, &d->meta.output) = add_tensor(d, g->output.v[k]);
}

/* Steps. */

typedef bool part_fn(struct api_deploy *d, u32 k);

static bool each_part(struct api_deploy *d, part_fn *fn)
{
    for (u32 k = 0; k < d->parts.n; k++)
        if (!fn(d, k)) return err_prefix(&d->q->err, "sub-graph %u on %.*s", k, STR_ARG(d->devices.v[d->parts.v[k].device].name));
    return true;
}

static bool step_initialise(struct api_deploy *d) { return place_net_open(&d->net, d->m->model, &d->arena, &d->q->err); }
static bool step_allocate(struct api_deploy *d) { return allocate(d, &d->q->err); }

static bool step_split(struct api_deploy *d)
{
    if (!place_split(&d->parts, &d->net, &d->allocation, &d->arena, &d->q->err)) return false;
    d->part = arena_array(&d->arena, struct api_part, d->parts.n + 1);
    describe(d);
    return each_part(d, api_part_open);
}

static bool step_compile(struct api_deploy *d) { return each_part(d, api_part_compile); }
static bool step_samples(struct api_deploy *d) { return api_deploy_samples(d); }
static bool step_export(struct api_deploy *d) { return each_part(d, api_part_write); }
static bool step_convert(struct api_deploy *d) { return each_part(d, api_part_convert); }

static const struct { const char *name; bool (*run)(struct api_deploy *d); } steps[] = {
    {"initialise graph module", step_initialise},
    {"allocate kernel", step_allocate},
    {"split", step_split},
    {"compile", step_compile},
    {"extract representative dataset", step_samples},
    {"export to runtime", step_export},
    {"convert onnx", step_convert},
};

static void send_step(const struct api_deploy *d, i64 k)
{
    const struct quern_event ev = {.kind = QUERN_PROGRESS, .text = steps[k].name, .done = k, .total = countof(steps), .seconds_left = -1};
    if (d->q->o.on_event) d->q->o.on_event(d->q->o.user, &ev);
}

static bool run_steps(struct api_deploy *d)
{
    for (i64 k = 0; k < countof(steps); k++) {
        double start = os_now();
        send_step(d, k);
        api_begin(d->q);
        if (!mem_check(&d->q->err, steps[k].name, S("")) || !steps[k].run(d)) return err_prefix(&d->q->err, "%s", steps[k].name);
        log_printf(&d->q->log, 2, "%s: %.2f s", steps[k].name, os_now() - start);
    }
    return true;
}

static void report_missing(const struct api_deploy *d)
{
    for (u32 k = 0; k < d->meta.subgraph.n; k++) {
        const struct meta_subgraph *s = &d->meta.subgraph.v[k];
        if (s->missing.n) log_printf(&d->q->log, 1, "%.*s (%.*s) cannot run yet: %.*s", STR_ARG(s->name), STR_ARG(s->device), STR_ARG(s->missing));
    }
}

/* A part of a path. */
static bool is_name(struct str s) { return s.n > 0 && s.n < 200 && s.p[0] != '.' && !memchr(s.p, '/', (size_t)s.n) && !memchr(s.p, 0, (size_t)s.n); }

/* Nothing is left of what cannot be signed. */
static bool write_signed(const struct api_deploy *d, const char *path, struct err *e)
{
    u8 secret[SIGN_KEY_BYTES] = {0};
    if (d->o.key && !api_read_key(secret, d->o.key, true, true, e)) return false;
    bool is_written = (d->o.packed ? meta_write_packed : meta_write_folder)(path, &d->meta, &d->files, e);
    bool ok = is_written && (!d->o.key || meta_sign(path, secret, false, NULL, e));
    sign_forget(secret);
    if (is_written && !ok) os_remove_tree(path);
    return ok;
}

static bool deploy(struct api_deploy *d, const char *path)
{
    struct err *e = &d->q->err;
    d->name = d->o.name ? str_dup(&d->arena, str_of(d->o.name)) : d->m->model->name;
    if (!is_name(d->name)) return err_set(e, ERR_USAGE, "'%.*s' cannot be the name of a folder: name the deployment", STR_ARG(d->name));
    const char *to = d->o.packed ? path : str_fmt(&d->arena, "%s/%.*s", path, STR_ARG(d->name)).p;
    if (!d->o.packed && os_exists(to)) return err_set(e, ERR_USAGE, "'%s' exists already", to);
    if (!run_steps(d) || (!d->o.packed && !os_mkdirs(path, e)) || !write_signed(d, to, e)) return false;
    report_missing(d);
    return true;
}

quern_status quern_deploy(quern_model *m, quern_db *db, const char *path, const struct quern_deploy_opts *o)
{
    if (!m || !api_given(m->q, "path", path)) return QUERN_USAGE;
    struct api_deploy d = {.q = m->q, .m = m, .db = db};
    if (o) memcpy(&d.o, o, o->size < sizeof d.o ? o->size : sizeof d.o);
    api_begin(m->q);
    bool ok = deploy(&d, path);
    for (u32 k = 0; d.part && k < d.parts.n; k++) api_part_close(&d.part[k]);
    arena_release(&d.arena);
    return api_end(m->q, ok);
}
