// SPDX-License-Identifier: Apache-2.0
//
// Replaces FlexAttention of domain ai.onnx.preview, whose attributes score_mod and prob_mod are graphs, by its nodes
// with theirs between them. Names of a subgraph get a prefix of the node's own; names of the enclosing graph stay.
#include <string.h>

#include <onnx.pb-c.h>

#include "import/import.h"
#include "io/io.h"

enum { MAX_NODES = 1 << 20, MAX_ATTRS = 100 };

struct flex {
    struct arena *a;
    struct { Onnx__NodeProto **v; u32 n, cap; } nodes;
    u32 n_flex;
    struct str prefix;
    struct map names; /* of the subgraph -> struct str * */
    struct err *e;
};

static char *own(struct flex *x, struct str s) { return (char *)(uintptr_t)str_z(x->a, s); }

static Onnx__NodeProto *add(struct flex *x, const char *domain, const char *op, u32 n_in, char *const *in, char *out)
{
    Onnx__NodeProto *p = arena_new(x->a, Onnx__NodeProto);
    onnx__node_proto__init(p);
    p->domain = own(x, str_of(domain)), p->op_type = own(x, str_of(op));
    p->name = own(x, str_fmt(x->a, "%.*s%s", STR_ARG(x->prefix), op));
    p->input = arena_array(x->a, char *, n_in), p->output = arena_array(x->a, char *, 1);
    for (u32 i = 0; i < n_in; i++) p->input[i] = in[i];
    p->n_input = n_in, p->n_output = 1, p->output[0] = out;
    *arr_push(x->a, &x->nodes) = p;
    return p;
}

static char *fresh(struct flex *x, const char *name) { return own(x, str_fmt(x->a, "%.*s%s", STR_ARG(x->prefix), name)); }

static const Onnx__AttributeProto *find(const Onnx__NodeProto *p, const char *name)
{
    for (size_t i = 0; i < p->n_attribute; i++)
        if (p->attribute[i]->name && !strcmp(p->attribute[i]->name, name)) return p->attribute[i];
    return NULL;
}

static void attribute(struct flex *x, Onnx__NodeProto *to, const Onnx__AttributeProto *a)
{
    Onnx__AttributeProto **v = arena_array(x->a, Onnx__AttributeProto *, (i64)to->n_attribute + 1);
    for (size_t i = 0; i < to->n_attribute; i++) v[i] = to->attribute[i];
    v[to->n_attribute++] = (Onnx__AttributeProto *)(uintptr_t)a;
    to->attribute = v;
}

static void define(struct flex *x, const char *name, const char *as)
{
    struct str *s = arena_new(x->a, struct str);
    *s = str_of(as);
    if (name && name[0]) map_put(&x->names, str_of(name), (u64)(uintptr_t)s);
}

static char *renamed(struct flex *x, char *name)
{
    const u64 *to = name ? map_get(&x->names, str_of(name)) : NULL;
    return to ? own(x, *(const struct str *)(uintptr_t)*to) : name;
}

/* An initializer of the subgraph, as a node. */
static void add_constant(struct flex *x, Onnx__TensorProto *t)
{
    Onnx__AttributeProto *a = arena_new(x->a, Onnx__AttributeProto);
    onnx__attribute_proto__init(a);
    a->name = own(x, S("value")), a->t = t;
    a->has_type = 1, a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    attribute(x, add(x, "", "Constant", 0, NULL, renamed(x, t->name)), a);
}

static bool copy(struct flex *x, const Onnx__NodeProto *from)
{
    Onnx__NodeProto *p = arena_new(x->a, Onnx__NodeProto);
    *p = *from;
    for (size_t i = 0; i < p->n_attribute; i++)
        if (p->attribute[i]->g || p->attribute[i]->n_graphs)
            return err_set(x->e, ERR_UNSUPPORTED, "control flow inside a subgraph of FlexAttention '%.*s'", STR_ARG(x->prefix));
    p->input = arena_array(x->a, char *, (i64)p->n_input), p->output = arena_array(x->a, char *, (i64)p->n_output);
    for (size_t i = 0; i < p->n_input; i++) p->input[i] = renamed(x, from->input[i]);
    for (size_t i = 0; i < p->n_output; i++) p->output[i] = renamed(x, from->output[i]);
    p->name = fresh(x, from->name ? from->name : "");
    *arr_push(x->a, &x->nodes) = p;
    return x->nodes.n < MAX_NODES || err_set(x->e, ERR_UNSUPPORTED, "subgraphs of FlexAttention expand to too many nodes");
}

/* The result of the subgraph `which` for `in`; `in` itself without one. NULL: error. */
static char *modified(struct flex *x, const Onnx__NodeProto *node, const char *which, char *in)
{
    const Onnx__AttributeProto *a = find(node, which);
    const Onnx__GraphProto *g = a ? a->g : NULL;
    if (!a) return in;
    if (!g || g->n_input != 1 || g->n_output != 1 || !g->output[0]->name || g->n_sparse_initializer) {
        err_set(x->e, ERR_INPUT, "FlexAttention '%.*s': %s is not a graph of one input and one output", STR_ARG(x->prefix), which);
        return NULL;
    }
    map_init(&x->names, x->a);
    struct str part = str_fmt(x->a, "%s/", which);
    for (size_t i = 0; i < g->n_initializer; i++) define(x, g->initializer[i]->name, fresh(x, str_z(x->a, str_fmt(x->a, "%.*s%s", STR_ARG(part), g->initializer[i]->name))));
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++)
            define(x, g->node[i]->output[k], fresh(x, str_z(x->a, str_fmt(x->a, "%.*s%s", STR_ARG(part), g->node[i]->output[k]))));
    define(x, g->input[0]->name, in);
    for (size_t i = 0; i < g->n_initializer; i++) add_constant(x, g->initializer[i]);
    for (size_t i = 0; i < g->n_node; i++)
        if (!copy(x, g->node[i])) return NULL;
    return renamed(x, g->output[0]->name);
}

static bool expand(struct flex *x, const Onnx__NodeProto *p)
{
    if (p->n_input != 3 || p->n_output != 1) return err_set(x->e, ERR_INPUT, "FlexAttention with %d inputs and %d outputs", (int)p->n_input, (int)p->n_output);
    if (p->n_attribute > MAX_ATTRS) return err_set(x->e, ERR_INPUT, "FlexAttention with %d attributes", (int)p->n_attribute);
    struct str name = str_of(p->name && p->name[0] ? p->name : p->output[0]);
    x->prefix = str_fmt(x->a, "%.*s#flex%u/", STR_ARG(name), ++x->n_flex);
    Onnx__NodeProto *scores = add(x, "ai.quern", "FlexScores", 2, p->input, fresh(x, "scores"));
    for (size_t i = 0; i < p->n_attribute; i++)
        if (!p->attribute[i]->g) attribute(x, scores, p->attribute[i]);
    char *v = modified(x, p, "score_mod", scores->output[0]);
    if (!v) return false;
    add(x, "", "Softmax", 1, &v, fresh(x, "probs"));
    v = modified(x, p, "prob_mod", fresh(x, "probs"));
    if (!v) return false;
    add(x, "ai.quern", "FlexValues", 2, (char *[]){v, p->input[2]}, p->output[0]);
    return true;
}

bool import_flex(struct Onnx__GraphProto *g, struct arena *a, struct err *e)
{
    struct flex x = {.a = a, .e = e};
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *p = g->node[i];
        bool is_flex = str_is(str_of(p->op_type), "FlexAttention") && str_is(str_of(p->domain), "ai.onnx.preview");
        if (!is_flex) *arr_push(a, &x.nodes) = g->node[i];
        else if (!expand(&x, p)) return false;
    }
    if (x.n_flex) g->node = x.nodes.v, g->n_node = x.nodes.n;
    return true;
}
