// SPDX-License-Identifier: Apache-2.0
//
// Copies of graphs and subgraphs. Both share the symbol table and the content of constants with
// the original (which must live as long); names, attributes and symbolic content are copied.
#include <string.h>

#include "ir/ir.h"

/* A node without its edges. */
static node_id copy_node(struct graph *to, const struct node *from)
{
    node_id n = graph_add_node(to, from->op, from->name);
    for (u32 k = 0; k < from->attr.n; k++) attr_copy(to, n, &from->attr.v[k]);
    return n;
}

static const struct sym_data *copy_sdata(struct arena *a, const struct sym_data *from)
{
    if (!from) return NULL;
    struct sym_data *d = arena_new(a, struct sym_data);
    *d = *from;
    d->num = arena_array(a, sym, from->n);
    if (from->n) memcpy(d->num, from->num, (size_t)from->n * sizeof *d->num);
    return d;
}

/* A value without its producer. */
static value_id copy_value(struct graph *to, const struct value *from)
{
    value_id id = graph_add_value(to, from->name);
    struct value *v = graph_value(to, id);
    v->dtype = from->dtype;
    v->shape = from->shape;
    if (from->given) value_set_given(to, id, from->given);
    v->layout = from->layout;
    v->part = from->part;
    v->data = from->data;
    v->is_const = from->is_const;
    v->sdata = copy_sdata(to->arena, from->sdata);
    return id;
}

void graph_clone(struct graph *to, const struct graph *from, struct arena *a)
{
    graph_init(to, a, from->sym);
    for (value_id v = 1; v < from->value.n; v++) {
        value_id id = copy_value(to, graph_value(from, v));
        assert(id == v);
        to->value.v[id].producer = from->value.v[v].producer;
        to->value.v[id].out_index = from->value.v[v].out_index;
        to->value.v[id].shares = from->value.v[v].shares;
    }
    for (node_id n = 1; n < from->node.n; n++) {
        const struct node *f = graph_node(from, n);
        node_id id = copy_node(to, f);
        struct node *t = graph_node(to, id);
        t->dead = f->dead;
        for (u32 k = 0; k < t->attr.n; k++) {
            if (t->attr.v[k].kind != ATTR_GRAPH) continue;
            t->attr.v[k].graph = arena_new(a, struct graph);
            graph_clone(t->attr.v[k].graph, f->attr.v[k].graph, a);
        }
        for (u32 k = 0; k < f->in.n; k++) *arr_push(a, &t->in) = f->in.v[k];
        for (u32 k = 0; k < f->out.n; k++) *arr_push(a, &t->out) = f->out.v[k];
    }
    for (u32 k = 0; k < from->input.n; k++) *arr_push(a, &to->input) = from->input.v[k];
    for (u32 k = 0; k < from->output.n; k++) *arr_push(a, &to->output) = from->output.v[k];
    for (u32 k = 0; k < from->made.n; k++) *arr_push(a, &to->made) = from->made.v[k];
}

struct extractor {
    struct graph *to;
    const struct graph *from;
    struct arena *a;
    value_id *new_id;        /* per old value: its copy, 0 = none yet */
    struct value_list back;  /* per new value: the old one; [0] unused */
    u8 *inside;              /* per old value: made by an extracted node */
};

/* The copy of an old value; an external value becomes an input at its first use. */
static value_id extract_value(struct extractor *x, value_id old)
{
    if (!old) return 0;
    if (x->new_id[old]) return x->new_id[old];
    const struct value *v = graph_value(x->from, old);
    value_id id = copy_value(x->to, v);
    x->new_id[old] = id;
    assert(x->back.n == id);
    *arr_push(x->a, &x->back) = old;
    if (!v->is_const && !x->inside[old]) *arr_push(x->a, &x->to->input) = id;
    return id;
}

static void extract_node(struct extractor *x, node_id old)
{
    const struct node *f = graph_node(x->from, old);
    node_id n = copy_node(x->to, f);
    for (u32 k = 0; k < f->in.n; k++) node_add_in(x->to, n, extract_value(x, f->in.v[k]));
    for (u32 k = 0; k < f->out.n; k++) node_set_out(x->to, n, k, extract_value(x, f->out.v[k]));
}

void graph_extract(struct graph *to, const struct graph *from, struct arena *a, const node_id *nodes, u32 n,
                   const value_id *out, u32 n_out, value_id **map_back)
{
    struct arena scratch = {0};
    struct extractor x = {.to = to, .from = from, .a = a};
    x.new_id = arena_array(&scratch, value_id, from->value.n);
    x.inside = arena_array(&scratch, u8, from->value.n);
    graph_init(to, a, from->sym);
    arr_push(a, &x.back);
    for (u32 k = 0; k < n; k++) {
        const struct node *f = graph_node(from, nodes[k]);
        for (u32 o = 0; o < f->out.n; o++) x.inside[f->out.v[o]] = 1;
    }
    for (u32 k = 0; k < n; k++) extract_node(&x, nodes[k]);
    for (u32 k = 0; k < n_out; k++) *arr_push(a, &to->output) = extract_value(&x, out[k]);
    if (map_back) *map_back = x.back.v;
    arena_release(&scratch);
}
