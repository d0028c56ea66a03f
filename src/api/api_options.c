// SPDX-License-Identifier: Apache-2.0
//
// How a network was populated (tune/populated.c): device, limits, sizes, interface.
#include "api/api_model.h"

static struct str model_sizes_text(const struct model *m, struct arena *a)
{
    struct buf b = {0};
    for (u32 v = 0; v < m->sym.var.n; v++)
        buf_printf(&b, "%s%.*s=%lld", v ? "," : "", STR_ARG(m->sym.var.v[v]), (long long)m->var[v]);
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

static struct str interface_text(const struct model *m, struct arena *a)
{
    const struct graph *g = &m->graph;
    struct buf b = {0};
    for (u32 k = 0; k < m->io.n; k++) {
        const struct value *x = graph_value(g, k < g->input.n ? g->input.v[k] : g->output.v[k - g->input.n]);
        struct str l = io_layout_name(m->io.v[k].layout);
        buf_printf(&b, "%s%.*s:%s", k ? " " : "", STR_ARG(x->name), dtype_name(x->dtype));
        if (l.n) buf_printf(&b, ":%.*s", STR_ARG(l));
    }
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

static struct str device_of(const struct api_target *t)
{
    return t->dev.name.n ? t->dev.name : str_of(t->driver->name);
}

struct str api_options_key(const quern_model *m, const struct api_target *t, struct arena *a)
{
    return str_fmt(a, "%.*s on %.*s%s%.*s", STR_ARG(m->model->name), STR_ARG(device_of(t)), t->isa.n ? " for " : "", STR_ARG(t->isa));
}

struct str api_options_print(const quern_model *m, const struct api_target *t, const struct cover_opts *c, struct arena *a)
{
    const struct populated p = {.device = device_of(t), .limits = t->dev.limits, .interface = interface_text(m->model, a),
                                .sizes = model_sizes_text(m->model, a), .n_threads = t->dev.n_threads, .no_fusion = c->no_fusion,
                                .no_concat = c->no_concat, .is_narrow = m->model->is_narrow};
    return populated_print(&p, a);
}
