// SPDX-License-Identifier: Apache-2.0
//
// How a network was populated: device, limits, sizes, interface, as one line of JSON in the
// database. Populating the same network for the same device with other options is refused, and
// compiling warns; `bench` reads the devices from it.
#include "api/api_model.h"

#include <jansson.h>
#include <stdlib.h>

static void set_text(json_t *o, const char *key, struct str s)
{
    if (s.n) json_object_set_new(o, key, json_stringn(s.p, (size_t)s.n));
}

static void set_sizes(json_t *o, const quern_model *m)
{
    struct buf b = {0};
    for (u32 v = 0; v < m->model->sym.var.n; v++)
        buf_printf(&b, "%s%.*s=%lld", v ? "," : "", STR_ARG(m->model->sym.var.v[v]), (long long)m->model->var[v]);
    set_text(o, "optimize-for", buf_view(&b));
    buf_release(&b);
}

static void set_interface(json_t *o, const quern_model *m)
{
    const struct graph *g = &m->model->graph;
    struct buf b = {0};
    for (u32 k = 0; k < m->model->io.n; k++) {
        const struct value *x =
            graph_value(g, k < g->input.n ? g->input.v[k] : g->output.v[k - g->input.n]);
        struct str l = io_layout_name(m->model->io.v[k].layout);
        buf_printf(&b, "%s%.*s:%s", k ? " " : "", STR_ARG(x->name), dtype_name(x->dtype));
        if (l.n) buf_printf(&b, ":%.*s", STR_ARG(l));
    }
    set_text(o, "interface", buf_view(&b));
    if (m->model->io.n) json_object_set_new(o, "f16-storage", json_boolean(m->model->is_narrow));
    buf_release(&b);
}

static struct str device_of(const struct api_target *t)
{
    return t->dev.name.n ? t->dev.name : str_of(t->driver->name);
}

struct str api_options_key(const quern_model *m, const struct api_target *t, struct arena *a)
{
    return str_fmt(a, "%.*s on %.*s%s%.*s", STR_ARG(m->model->name), STR_ARG(device_of(t)), t->isa.n ? " for " : "", STR_ARG(t->isa));
}

struct str api_options_print(const quern_model *m, const struct api_target *t,
                             const struct cover_opts *c, struct arena *a)
{
    json_t *o = json_object();
    set_text(o, "device", device_of(t));
    set_text(o, "limits", t->dev.limits);
    if (t->dev.n_threads) json_object_set_new(o, "threads", json_integer(t->dev.n_threads));
    if (c->no_fusion) json_object_set_new(o, "fusion", json_false());
    if (c->no_concat) json_object_set_new(o, "memory-concat", json_false());
    set_interface(o, m);
    set_sizes(o, m);
    char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    struct str s = str_dup(a, str_of(text));
    free(text); /* allocated by jansson */
    json_decref(o);
    return s;
}

static struct str get_text(const json_t *o, const char *key, struct arena *a)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? str_dup(a, str_of(s)) : (struct str){0};
}

bool api_options_device(struct str options, struct api_device *d, struct arena *a)
{
    json_error_t je;
    json_t *o = options.n ? json_loadb(options.p, (size_t)options.n, 0, &je) : NULL;
    json_int_t threads = json_integer_value(json_object_get(o, "threads"));
    *d = (struct api_device){.name = get_text(o, "device", a),
                             .limits = get_text(o, "limits", a),
                             .n_threads = threads > 0 && threads < INT32_MAX ? (u32)threads : 0};
    json_decref(o);
    return d->name.n > 0;
}
