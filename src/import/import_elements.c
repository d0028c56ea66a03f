// SPDX-License-Identifier: Apache-2.0
//
// Inputs of an ONNX model that are sequences or optional values, with numbers of
// elements from the caller: input 'x' of three elements becomes the inputs x[0], x[1]
// and x[2] and a node that constructs the sequence; an optional value with content is
// its content, one without content a node that constructs it. Names of sizes are
// local to each element, since the elements of a sequence may differ in their sizes.
#include <string.h>

#include <onnx.pb-c.h>

#include "import/import.h"
#include "io/io.h"

enum { MAX_ELEMS = 4096, NONE = -1 };

enum io_list_kind import_kind(const struct Onnx__TypeProto *t, const struct Onnx__TypeProto **elem)
{
    bool is_optional = false;
    *elem = t;
    if (t && t->value_case == ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE && t->optional_type) {
        is_optional = true;
        *elem = t = t->optional_type->elem_type;
    }
    if (!t || t->value_case != ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE || !t->sequence_type)
        return is_optional ? IO_OPTIONAL : IO_TENSOR;
    *elem = t->sequence_type->elem_type;
    return is_optional ? IO_OPTIONAL_SEQUENCE : IO_SEQUENCE;
}

struct rewriter {
    Onnx__GraphProto *g;
    struct arena *a;
    struct { Onnx__ValueInfoProto **v; u32 n, cap; } in;
    struct { Onnx__NodeProto **v; u32 n, cap; } node;
    struct err *e;
};

static bool bad_number(struct rewriter *r, const char *name, const char *why)
{
    return err_set(r->e, ERR_USAGE, "number of elements of input '%s': %s", name, why);
}

/* An element's type: without the names of its sizes if it is one of several. */
static Onnx__TypeProto *type_of(struct rewriter *r, const Onnx__TypeProto *from, bool is_content)
{
    if (is_content || !from->tensor_type->shape) return (Onnx__TypeProto *)(uintptr_t)from;
    Onnx__TypeProto *t = arena_new(r->a, Onnx__TypeProto);
    *t = *from;
    t->tensor_type = arena_new(r->a, Onnx__TypeProto__Tensor);
    *t->tensor_type = *from->tensor_type;
    Onnx__TensorShapeProto *s = t->tensor_type->shape = arena_new(r->a, Onnx__TensorShapeProto);
    *s = *from->tensor_type->shape;
    s->dim = arena_array(r->a, Onnx__TensorShapeProto__Dimension *, (i64)s->n_dim + 1);
    for (size_t k = 0; k < s->n_dim; k++) {
        s->dim[k] = from->tensor_type->shape->dim[k];
        if (s->dim[k]->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM) continue;
        s->dim[k] = arena_new(r->a, Onnx__TensorShapeProto__Dimension);
        onnx__tensor_shape_proto__dimension__init(s->dim[k]);
    }
    return t;
}

static void add_input(struct rewriter *r, char *name, const Onnx__TypeProto *elem, bool is_content)
{
    Onnx__ValueInfoProto *p = arena_new(r->a, Onnx__ValueInfoProto);
    onnx__value_info_proto__init(p);
    p->name = name;
    p->type = type_of(r, elem, is_content);
    *arr_push(r->a, &r->in) = p;
}

static Onnx__NodeProto *add_node(struct rewriter *r, const char *op, char *out, i64 n_in)
{
    Onnx__NodeProto *p = arena_new(r->a, Onnx__NodeProto);
    onnx__node_proto__init(p);
    p->op_type = (char *)(uintptr_t)op;
    p->output = arena_array(r->a, char *, 1), p->n_output = 1;
    p->output[0] = out;
    p->input = arena_array(r->a, char *, n_in + 1), p->n_input = (size_t)n_in;
    return *arr_push(r->a, &r->node) = p;
}

static bool replace(struct rewriter *r, const Onnx__ValueInfoProto *p, i64 n)
{
    const Onnx__TypeProto *elem;
    enum io_list_kind kind = import_kind(p->type, &elem);
    bool is_list = kind == IO_SEQUENCE || kind == IO_OPTIONAL_SEQUENCE;
    if (kind == IO_TENSOR) return bad_number(r, p->name, "it is neither a sequence nor an optional value");
    if (!elem || elem->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !elem->tensor_type)
        return err_set(r->e, ERR_UNSUPPORTED, "graph input '%s' has elements that are not tensors", p->name);
    if (elem->tensor_type->shape && elem->tensor_type->shape->n_dim > MAX_RANK)
        return err_set(r->e, ERR_UNSUPPORTED, "rank over 8: elements of graph input '%s'", p->name);
    if (n == NONE && kind == IO_SEQUENCE) return bad_number(r, p->name, "a sequence has 0 or more");
    if (n == NONE) return add_node(r, "Optional", p->name, 0), true;
    if (!is_list && n != 1) return bad_number(r, p->name, "an optional tensor has 1 or none");
    if (!is_list) return add_input(r, p->name, elem, true), true;
    Onnx__NodeProto *make = add_node(r, n ? "SequenceConstruct" : "SequenceEmpty", p->name, n);
    for (i64 i = 0; i < n; i++) {
        make->input[i] = (char *)(uintptr_t)str_fmt(r->a, "%s[%lld]", p->name, (long long)i).p;
        add_input(r, make->input[i], elem, false);
    }
    return true;
}

/* "x:3,o:none" into counts[] of the graph's inputs. */
static bool read_counts(struct rewriter *r, const char *text, i64 *counts)
{
    struct str rest = str_of(text), item, name, value;
    while (rest.n) {
        str_cut(rest, ',', &item, &rest);
        if (!str_trim(item).n) continue;
        bool ok = str_cut(item, ':', &name, &value) || str_cut(item, '=', &name, &value);
        size_t k = 0;
        i64 n = NONE;
        name = str_trim(name), value = str_trim(value);
        ok = ok && name.n && (str_is(value, "none") || (str_to_i64(value, &n) && n >= 0 && n <= MAX_ELEMS));
        if (!ok)
            return err_set(r->e, ERR_USAGE, "number of elements '%.*s' is not of the form NAME:NUMBER (0 to %d) or NAME:none",
                           STR_ARG(item), MAX_ELEMS);
        while (k < r->g->n_input && !str_eq(str_of(r->g->input[k]->name), name)) k++;
        if (k == r->g->n_input) return err_set(r->e, ERR_USAGE, "number of elements: the network has no input '%.*s'", STR_ARG(name));
        counts[k] = n;
    }
    return true;
}

bool import_elements(struct str *out, struct arena *a, struct str model, const char *text, struct err *e)
{
    enum { NOT_SAID = -2 };
    Onnx__ModelProto *p = io_onnx_unpack(&onnx__model_proto__descriptor, a, model, e);
    if (!p) return false;
    if (!p->graph) return err_set(e, ERR_INPUT, "model without a graph");
    struct rewriter r = {.g = p->graph, .a = a, .e = e};
    i64 *counts = arena_array(a, i64, (i64)p->graph->n_input + 1);
    for (size_t k = 0; k < p->graph->n_input; k++) counts[k] = NOT_SAID;
    if (!read_counts(&r, text, counts)) return false;
    for (size_t k = 0; k < p->graph->n_input; k++) {
        if (counts[k] == NOT_SAID) *arr_push(a, &r.in) = p->graph->input[k];
        else if (!replace(&r, p->graph->input[k], counts[k])) return false;
    }
    for (size_t k = 0; k < p->graph->n_node; k++) *arr_push(a, &r.node) = p->graph->node[k];
    p->graph->input = r.in.v, p->graph->n_input = r.in.n;
    p->graph->node = r.node.v, p->graph->n_node = r.node.n;
    size_t size = onnx__model_proto__get_packed_size(p);
    u8 *bytes = arena_alloc(a, (i64)size);
    onnx__model_proto__pack(p, bytes);
    *out = (struct str){(const char *)bytes, (i64)size};
    return true;
}

bool import_describe(struct str model, bool is_output, i64 k, struct str *name, enum io_list_kind *kind, struct arena *a,
                     struct err *e)
{
    const Onnx__TypeProto *elem;
    const Onnx__ModelProto *p = io_onnx_unpack(&onnx__model_proto__descriptor, a, model, e);
    if (!p) return false;
    if (!p->graph) return err_set(e, ERR_INPUT, "model without a graph");
    size_t n = is_output ? p->graph->n_output : p->graph->n_input;
    if (k < 0 || (u64)k >= n)
        return err_set(e, ERR_USAGE, "the network has no %s %lld", is_output ? "output" : "input", (long long)k);
    const Onnx__ValueInfoProto *v = is_output ? p->graph->output[k] : p->graph->input[k];
    *name = str_dup(a, str_of(v->name));
    *kind = import_kind(v->type, &elem);
    return true;
}
