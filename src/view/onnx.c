// SPDX-License-Identifier: Apache-2.0
//
// The network as ONNX, for viewers of networks such as Netron: the operator's name, its device and
// sub-graph, its operations and time are the documentation of each node, the sub-graphs properties
// of the model, and all values have types. Other programs read it as the same network.
#include "view/view.h"

#include <math.h>

#include "export/export.h"

static const char *note(const struct view *v, u32 k, struct arena *a)
{
    struct buf b = {0};
    const struct view_time *t = v->time ? &v->time[k] : NULL;
    buf_str(&b, v->x->op.v[k].name);
    if (v->allocation)
        buf_printf(&b, " on %.*s", STR_ARG(v->devices->v[v->allocation->device[k]].name));
    if (v->part_of) buf_printf(&b, ", sub-graph %u", v->part_of[k]);
    buf_printf(&b, "; %.0f operations", view_flops(v, k));
    if (t && isfinite(t->seconds))
        buf_printf(&b, "; %.6g us on %s", t->seconds * 1e6, v->time_device);
    if (t && t->fused_into != UINT32_MAX)
        buf_printf(&b, "; fused into %.*s", STR_ARG(v->x->op.v[t->fused_into].name));
    const char *z = str_z(a, buf_view(&b));
    buf_release(&b);
    return z;
}

static void add_parts(struct map *to, const struct view *v, struct arena *a)
{
    for (u32 p = 0; v->parts && p < v->parts->n; p++) {
        const struct place_part *x = &v->parts->v[p];
        struct buf b = {0};
        buf_printf(&b, "%.*s:", STR_ARG(v->devices->v[x->device].name));
        for (u32 i = 0; i < x->op.n; i++)
            buf_printf(&b, " %.*s", STR_ARG(v->x->op.v[x->op.v[i]].name));
        *map_put(to, str_fmt(a, "sub-graph %u", p), 0) = (u64)(uintptr_t)str_z(a, buf_view(&b));
        buf_release(&b);
    }
}

bool view_onnx(const struct view *v, const char *path, struct err *e)
{
    struct arena a = {0};
    struct export_onnx_notes notes = {0};
    struct graph g;
    map_init(&notes.node, &a);
    map_init(&notes.property, &a);
    graph_clone(&g, &v->x->g, &a);
    for (u32 k = 0; k < v->x->op.n; k++) {
        struct node *n = graph_node(&g, v->x->op.v[k].node);
        const value_id out = node_first_out(n);
        if (!n->name.n) n->name = v->x->op.v[k].name;
        if (out)
            *map_put(&notes.node, graph_value(&g, out)->name, 0) = (u64)(uintptr_t)note(v, k, &a);
    }
    add_parts(&notes.property, v, &a);
    const bool ok = export_onnx_noted(&g, &notes, path, e);
    arena_release(&a);
    return ok;
}
