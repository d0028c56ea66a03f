// SPDX-License-Identifier: Apache-2.0
//
// JSON in the node-link form of networkx (networkx.node_link_graph): nodes in topological order,
// each with its facts under "data", as the graphs of OptimaV2 have them.
#include "view/view.h"

struct writer {
    struct buf *b;
    const struct view *v;
    struct arena a;
    bool is_first;
};

static void put_fields(struct buf *b, const struct view_fields *f)
{
    buf_char(b, '{');
    for (u32 k = 0; k < f->n; k++) {
        const struct view_field *x = &f->v[k];
        buf_printf(b, "%s\"%s\": ", k ? ", " : "", x->key);
        switch (x->kind) {
        case FIELD_TEXT: buf_json_str(b, x->text); break;
        case FIELD_INT: buf_printf(b, "%lld", (long long)x->i); break;
        case FIELD_FLOAT: buf_f64(b, x->f); break;
        case FIELD_JSON: buf_str(b, x->text); break;
        default: unreachable();
        }
    }
    buf_char(b, '}');
}

static void put_node(void *user, bool is_op, u32 k)
{
    struct writer *w = user;
    struct arena_mark m = arena_mark(&w->a);
    struct view_fields f = {0};
    buf_z(w->b, w->is_first ? "\n  {\"id\": " : ",\n  {\"id\": ");
    w->is_first = false;
    if (is_op) view_op_fields(&f, w->v, k, &w->a);
    else view_tensor_fields(&f, w->v, k, &w->a);
    buf_json_str(w->b, is_op ? w->v->x->op.v[k].name : w->v->x->tensor.v[k].name);
    buf_z(w->b, ", \"data\": ");
    put_fields(w->b, &f);
    buf_char(w->b, '}');
    arena_rewind(&w->a, m);
}

static void put_edge(void *user, u32 op, u32 tensor, bool is_out)
{
    struct writer *w = user;
    const struct str a = w->v->x->tensor.v[tensor].name, b = w->v->x->op.v[op].name;
    buf_z(w->b, w->is_first ? "\n  {\"source\": " : ",\n  {\"source\": ");
    w->is_first = false;
    buf_json_str(w->b, is_out ? b : a);
    buf_z(w->b, ", \"target\": ");
    buf_json_str(w->b, is_out ? a : b);
    buf_char(w->b, '}');
}

void view_json(struct buf *b, const struct view *v)
{
    struct writer w = {.b = b, .v = v, .is_first = true};
    struct view_fields f = {0};
    view_net_fields(&f, v, &w.a);
    buf_z(b, "{\"directed\": true, \"multigraph\": false, \"graph\": ");
    put_fields(b, &f);
    buf_z(b, ",\n \"nodes\": [");
    view_each(v, put_node, &w);
    buf_z(b, "],\n \"edges\": [");
    w.is_first = true;
    view_each_edge(v, put_edge, &w);
    buf_z(b, "]}\n");
    arena_release(&w.a);
}
