// SPDX-License-Identifier: Apache-2.0
//
// Covers of one graph for several devices, joined into one cover for the selector: every form is
// on a device, and copies between devices are regions without nodes, as conversions between
// layouts are. The selection is then the placement of minimal total time, exact as far as the
// selector's search is.
//
// A copy is in the row-major form, because layouts differ between devices. The selector converts
// a value by one region only, so a region exists for each form that a device makes and each form
// that another one needs: it costs the conversion to rows there, the copy, and the conversion
// from rows here. A conversion that no single device's cover offers costs nothing: sub-graphs
// are compiled as networks of their own, whose kernels read and write rows at their borders. The
// total is thus a lower bound, not an estimate.
//
// Costs belong to regions, not to tasks: equal tasks have different ones on different devices.
#include "plan/plan.h"

#include <math.h>

struct form_list {
    struct form *v;
    u32 n, cap;
};

struct joiner {
    struct cover *out;
    const struct plan_on_device *on;
    u32 n;
    struct arena *a;
    plan_copy_fn *copy;
    void *user;
    struct form_list *made, *needed; /* per value: forms on all devices */
};

static void list_form(struct arena *a, struct form_list *l, struct form f)
{
    for (u32 i = 0; i < l->n; i++)
        if (form_equal(l->v[i], f)) return;
    *arr_push(a, l) = f;
}

static struct form *place_forms(struct joiner *j, const struct form *from, u32 n, u32 device,
                                u32 first_join)
{
    struct form *to = arena_array(j->a, struct form, n + 1);
    for (u32 i = 0; i < n; i++) {
        to[i] = from[i];
        to[i].device = device + 1;
        if (to[i].join) to[i].join += first_join;
    }
    return to;
}

static void add_device(struct joiner *j, u32 d)
{
    const struct cover *c = j->on[d].c;
    const u32 first_join = j->out->join.n;
    for (u32 k = 0; k < c->join.n; k++) *arr_push(j->a, &j->out->join) = c->join.v[k];
    for (u32 k = 0; k < c->region.n; k++) {
        struct region r = c->region.v[k];
        if (isinf(j->on[d].seconds[k])) continue;
        r.in = place_forms(j, r.in, r.n_in, d, first_join);
        r.out = place_forms(j, r.out, r.n_out, d, first_join);
        r.task = NO_TASK, r.map_back = NULL, r.seconds = j->on[d].seconds[k];
        *arr_push(j->a, &j->out->region) = r;
        for (u32 i = 0; i < r.n_in; i++) list_form(j->a, &j->needed[r.in[i].v], r.in[i]);
        for (u32 i = 0; i < r.n_out && r.n_nodes; i++)
            if (!r.out[i].join) list_form(j->a, &j->made[r.out[i].v], r.out[i]);
    }
}

/* Between layouts of one device; 0 if its cover has none. */
static double conversion(const struct joiner *j, struct form from, enum layout to)
{
    const struct cover *c = from.device ? j->on[from.device - 1].c : NULL;
    double least = INFINITY;
    for (u32 k = 0; c && k < c->region.n && from.layout != to; k++) {
        const struct region *r = &c->region.v[k];
        if (r->n_nodes || r->in[0].v != from.v || r->in[0].layout != from.layout) continue;
        if (r->out[0].layout == to) least = fmin(least, j->on[from.device - 1].seconds[k]);
    }
    return isinf(least) ? 0 : least;
}

static void add_copy(struct joiner *j, struct form from, struct form to)
{
    struct form rows = to;
    struct region r = {.n_in = 1, .n_out = 1, .task = NO_TASK};
    rows.layout = LAYOUT_ROWS;
    r.in = arena_new(j->a, struct form), r.out = arena_new(j->a, struct form);
    *r.in = from, *r.out = to;
    r.seconds = j->copy(j->user, from.v, from.device, to.device);
    r.seconds += conversion(j, from, LAYOUT_ROWS) + conversion(j, rows, to.layout);
    *arr_push(j->a, &j->out->region) = r;
}

static void add_copies(struct joiner *j, value_id v)
{
    const struct value *x = graph_value(j->out->g, v);
    if (x->is_const) return;
    if (!x->producer) list_form(j->a, &j->made[v], (struct form){v, x->layout, 0, 0});
    for (u32 i = 0; i < j->made[v].n; i++)
        for (u32 k = 0; k < j->needed[v].n; k++)
            if (j->made[v].v[i].device != j->needed[v].v[k].device)
                add_copy(j, j->made[v].v[i], j->needed[v].v[k]);
}

void plan_devices_cover(struct cover *out, const struct plan_on_device *on, u32 n,
                        plan_copy_fn *copy, void *user, struct arena *a)
{
    const struct graph *g = on[0].c->g;
    struct joiner j = {.out = out, .on = on, .n = n, .a = a, .copy = copy, .user = user};
    *out = (struct cover){.g = g, .arena = a};
    j.made = arena_array(a, struct form_list, g->value.n);
    j.needed = arena_array(a, struct form_list, g->value.n);
    for (u32 d = 0; d < n; d++) add_device(&j, d);
    for (u32 k = 0; k < g->output.n; k++) {
        const value_id v = g->output.v[k];
        list_form(a, &j.needed[v], (struct form){v, graph_value(g, v)->layout, 0, 0});
    }
    for (u32 k = 0; k < g->made.n; k++) {
        const value_id v = g->made.v[k].v;
        if (v) list_form(a, &j.needed[v], (struct form){v, graph_value(g, v)->layout, 0, 0});
    }
    for (value_id v = 1; v < g->value.n; v++) add_copies(&j, v);
}
