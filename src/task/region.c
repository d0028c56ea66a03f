// SPDX-License-Identifier: Apache-2.0
//
// Tasks of a cover, each once, and regions that are no more than a copy to another layout.
#include "task/grow.h"

u32 cover_add_task(struct cover *c, struct map *known, struct task *t)
{
    u64 *at = map_get(known, t->text);
    if (at) return (u32)*at;
    *(arr_push(c->arena, &c->task)) = t;
    map_put(known, t->text, c->task.n - 1);
    return c->task.n - 1;
}

bool cover_conversion(struct cover *c, struct map *known, struct region *r, struct err *e)
{
    struct arena *a = c->arena;
    struct task *t = arena_new(a, struct task);
    const struct value *x = graph_value(c->g, r->in[0].v);
    struct graph *g = arena_new(a, struct graph);
    graph_init(g, a, c->g->sym);
    value_id in = graph_add_value(g, S("x"));
    graph_value(g, in)->dtype = x->dtype, graph_value(g, in)->shape = x->shape;
    *(arr_push(a, &g->input)) = in;
    value_id out = graph_op(g, "Identity", S("copy"), 1, &in);
    *(arr_push(a, &g->output)) = out;
    node_id copy = graph_value(g, out)->producer;
    if (!op_infer(g, copy, e)) return false;
    if (!r->in[0].join) graph_value(g, in)->part = x->part; /* a cache in place */
    if (!r->out[0].join) graph_value(g, out)->part = x->part;
    enum layout *layout = arena_array(a, enum layout, g->value.n);
    layout[in] = r->in[0].layout, layout[out] = r->out[0].layout;
    if (!task_make(t, g, a, &copy, 1, &out, 1, layout, NULL, e)) return false;
    r->map_back = arena_array(a, value_id, t->g.value.n);
    for (value_id k = 1; k < t->g.value.n; k++) r->map_back[k] = r->in[0].v;
    r->task = cover_add_task(c, known, t);
    return true;
}
