// SPDX-License-Identifier: Apache-2.0
//
// Fixture for tests of the importer: handmade ONNX models. Names are separated by spaces: "x y",
// "_" is an omitted one. All memory is in an arena.
#ifndef QUERN_TEST_ONNX_FIXTURE_H
#define QUERN_TEST_ONNX_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <onnx.pb-c.h>

#include "import/import.h"
#include "io/io.h"
#include "op/op.h"

struct onnx_model {
    struct arena a;
    struct symtab st;
    struct graph g;      /* the imported graph */
    struct err e;
    Onnx__ModelProto m;
    i64 opset;           /* of the model; 0: 18 */
    struct { Onnx__NodeProto **v; u32 n, cap; } node;
    struct { Onnx__FunctionProto **v; u32 n, cap; } function;
    struct { Onnx__ValueInfoProto **v; u32 n, cap; } in, out;
    struct { Onnx__TensorProto **v; u32 n, cap; } init;
    struct { Onnx__SparseTensorProto **v; u32 n, cap; } sparse;
};

static inline char *text_of(struct onnx_model *x, struct str s) { return (char *)(uintptr_t)str_z(&x->a, s); }

static inline size_t words(struct onnx_model *x, const char *list, char ***out)
{
    struct str rest = str_of(list), word;
    struct { char **v; u32 n, cap; } all = {0};
    while (rest.n) {
        str_cut(rest, ' ', &word, &rest);
        if (word.n) *arr_push(&x->a, &all) = str_is(word, "_") ? text_of(x, S("")) : text_of(x, word);
    }
    *out = all.v;
    return all.n;
}

static inline void onnx_model_open(struct onnx_model *x)
{
    *x = (struct onnx_model){0};
    symtab_init(&x->st, &x->a);
    graph_init(&x->g, &x->a, &x->st);
    onnx__model_proto__init(&x->m);
}

static inline void onnx_model_close(struct onnx_model *x) { arena_release(&x->a); }

/* op: "Relu", or "domain:Name". */
static inline Onnx__NodeProto *make_node(struct onnx_model *x, const char *op, const char *in, const char *out)
{
    Onnx__NodeProto *p = arena_new(&x->a, Onnx__NodeProto);
    struct str domain, name;
    onnx__node_proto__init(p);
    if (str_cut(str_of(op), ':', &domain, &name)) p->domain = text_of(x, domain);
    else name = str_of(op);
    p->op_type = text_of(x, name);
    p->n_input = words(x, in, &p->input);
    p->n_output = words(x, out, &p->output);
    return p;
}

static inline Onnx__NodeProto *add_node(struct onnx_model *x, const char *op, const char *in, const char *out)
{
    Onnx__NodeProto *p = make_node(x, op, in, out);
    *arr_push(&x->a, &x->node) = p;
    return p;
}

static inline Onnx__AttributeProto *add_attr(struct onnx_model *x, Onnx__NodeProto *n, const char *name)
{
    Onnx__AttributeProto *a = arena_new(&x->a, Onnx__AttributeProto);
    Onnx__AttributeProto **all = arena_array(&x->a, Onnx__AttributeProto *, (i64)n->n_attribute + 1);
    onnx__attribute_proto__init(a);
    a->name = text_of(x, str_of(name));
    for (size_t i = 0; i < n->n_attribute; i++) all[i] = n->attribute[i];
    all[n->n_attribute++] = a;
    n->attribute = all;
    return a;
}

static inline void set_int(struct onnx_model *x, Onnx__NodeProto *n, const char *name, i64 v)
{
    Onnx__AttributeProto *a = add_attr(x, n, name);
    a->has_type = a->has_i = true, a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, a->i = v;
}

static inline void set_float(struct onnx_model *x, Onnx__NodeProto *n, const char *name, double v)
{
    Onnx__AttributeProto *a = add_attr(x, n, name);
    a->has_type = a->has_f = true, a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, a->f = (float)v;
}

static inline void set_ref(struct onnx_model *x, Onnx__NodeProto *n, const char *name, const char *of)
{
    add_attr(x, n, name)->ref_attr_name = text_of(x, str_of(of));
}

static inline Onnx__TensorProto *make_tensor(struct onnx_model *x, const char *name, const struct tensor *t)
{
    Onnx__TensorProto *p = arena_new(&x->a, Onnx__TensorProto);
    io_onnx_fill(p, t, &x->a);
    p->name = text_of(x, str_of(name));
    return p;
}

static inline struct tensor *ints(struct onnx_model *x, i64 n, const i64 *v)
{
    struct tensor *t = tensor_new(&x->a, DT_I64, 1, &n);
    for (i64 i = 0; i < n; i++) elem_set_i64(DT_I64, t->data, i, v[i]);
    return t;
}

static inline void add_ints(struct onnx_model *x, const char *name, i64 n, const i64 *v)
{
    *arr_push(&x->a, &x->init) = make_tensor(x, name, ints(x, n, v));
}

static inline Onnx__ValueInfoProto *make_value(struct onnx_model *x, const char *name, u32 rank, const i64 *dim)
{
    Onnx__ValueInfoProto *p = arena_new(&x->a, Onnx__ValueInfoProto);
    Onnx__TypeProto__Tensor *t = arena_new(&x->a, Onnx__TypeProto__Tensor);
    onnx__value_info_proto__init(p);
    p->name = text_of(x, str_of(name));
    p->type = arena_new(&x->a, Onnx__TypeProto);
    onnx__type_proto__init(p->type);
    onnx__type_proto__tensor__init(t);
    p->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE, p->type->tensor_type = t;
    t->has_elem_type = true, t->elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    t->shape = arena_new(&x->a, Onnx__TensorShapeProto);
    onnx__tensor_shape_proto__init(t->shape);
    t->shape->n_dim = rank;
    t->shape->dim = arena_array(&x->a, Onnx__TensorShapeProto__Dimension *, rank);
    for (u32 i = 0; i < rank; i++) {
        Onnx__TensorShapeProto__Dimension *d = arena_new(&x->a, Onnx__TensorShapeProto__Dimension);
        onnx__tensor_shape_proto__dimension__init(d);
        d->value_case = dim[i] < 0 ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        if (dim[i] < 0) d->dim_param = text_of(x, S("N")); /* the size N */
        else d->dim_value = dim[i];
        t->shape->dim[i] = d;
    }
    return p;
}

static inline void add_input(struct onnx_model *x, const char *name, u32 rank, const i64 *dim)
{
    *arr_push(&x->a, &x->in) = make_value(x, name, rank, dim);
}

static inline void add_output(struct onnx_model *x, const char *name)
{
    Onnx__ValueInfoProto *p = arena_new(&x->a, Onnx__ValueInfoProto);
    onnx__value_info_proto__init(p);
    p->name = text_of(x, str_of(name));
    *arr_push(&x->a, &x->out) = p;
}

static inline Onnx__GraphProto *onnx_model_graph(struct onnx_model *x)
{
    Onnx__GraphProto *g = arena_new(&x->a, Onnx__GraphProto);
    onnx__graph_proto__init(g);
    g->node = x->node.v, g->n_node = x->node.n;
    g->input = x->in.v, g->n_input = x->in.n;
    g->output = x->out.v, g->n_output = x->out.n;
    g->initializer = x->init.v, g->n_initializer = x->init.n;
    g->sparse_initializer = x->sparse.v, g->n_sparse_initializer = x->sparse.n;
    return g;
}

/* Sets a body of the node: the content of *body, which must outlive the serialisation. */
static inline void set_body(struct onnx_model *x, Onnx__NodeProto *n, const char *name, struct onnx_model *body)
{
    Onnx__AttributeProto *a = add_attr(x, n, name);
    a->has_type = true, a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH, a->g = onnx_model_graph(body);
}

static inline struct str onnx_model_bytes(struct onnx_model *x)
{
    Onnx__OperatorSetIdProto *opset = arena_new(&x->a, Onnx__OperatorSetIdProto);
    onnx__operator_set_id_proto__init(opset);
    opset->has_version = true, opset->version = x->opset ? x->opset : 18;
    x->m.has_ir_version = true, x->m.ir_version = 8, x->m.graph = onnx_model_graph(x);
    x->m.functions = x->function.v, x->m.n_functions = x->function.n;
    x->m.n_opset_import = 1;
    x->m.opset_import = arena_new(&x->a, Onnx__OperatorSetIdProto *);
    x->m.opset_import[0] = opset;
    i64 n = (i64)onnx__model_proto__get_packed_size(&x->m);
    u8 *bytes = arena_alloc(&x->a, n + 1);
    onnx__model_proto__pack(&x->m, bytes);
    return (struct str){(const char *)bytes, n};
}

static inline bool onnx_model_import(struct onnx_model *x) { return import_bytes(&x->g, &x->a, &x->st, onnx_model_bytes(x), &x->e); }

/* The import fails with a message that contains this text. */
static inline void onnx_model_fails(struct onnx_model *x, enum err_code code, const char *part)
{
    if (onnx_model_import(x)) fail_msg("imported, expected '%s'", part);
    if (!strstr(x->e.msg, part)) fail_msg("'%s' has no '%s'", x->e.msg, part);
    assert_int_equal(x->e.code, code);
}

/* Evaluates the imported graph: input k is in[k]; want: all elements of all outputs, concatenated. */
static inline void onnx_model_gives(struct onnx_model *x, struct tensor **in, const double *want, i64 n)
{
    struct tensor *out[16];
    i64 at = 0;
    if (!onnx_model_import(x)) fail_msg("%s", x->e.msg);
    assert_true(x->g.output.n <= 16);
    if (!graph_eval(&x->g, in, out, &x->a, NULL, &x->e)) fail_msg("%s", x->e.msg);
    for (u32 k = 0; k < x->g.output.n; k++)
        for (i64 i = 0; i < tensor_count(out[k]); i++, at++) {
            assert_true(at < n);
            double got = dtype_is_float(out[k]->dtype) ? elem_f64(out[k]->dtype, out[k]->data, i) : (double)elem_i64(out[k]->dtype, out[k]->data, i);
            if (!(got - want[at] < 1e-5 && want[at] - got < 1e-5)) fail_msg("element %lld is %g, expected %g", (long long)at, got, want[at]);
        }
    assert_int_equal(at, n);
}

static inline struct tensor *floats(struct onnx_model *x, u32 rank, const i64 *dim, const double *v)
{
    struct tensor *t = tensor_new(&x->a, DT_F32, rank, dim);
    for (i64 i = 0, n = tensor_count(t); i < n; i++) elem_set_f64(DT_F32, t->data, i, v[i]);
    return t;
}

#endif
