// SPDX-License-Identifier: Apache-2.0
//
// Supported types and required device features of operators.
//
// The types of an operator are not listed anywhere: they are those for which random instances of
// it, the same as in tests, can be inferred and expanded. Required device features are found by
// emitting such instances for devices that lack one.
#include "model/model.h"

#include "lang/lang.h"
#include "op/op.h"

enum { N_SEEDS = 16, N_NEEDS = 6, NEEDS_F64 = 1, NEEDS_I64 = 2 };

/* The tensor converted to another type. */
static struct tensor *converted(struct arena *a, const struct tensor *x, enum dtype t)
{
    struct tensor *y = tensor_new(a, t, x->rank, x->dim);
    for (i64 i = 0; i < tensor_count(x); i++) {
        bool from_float = dtype_is_float(x->dtype);
        double f = from_float ? elem_f64(x->dtype, x->data, i) : (double)elem_i64(x->dtype, x->data, i);
        if (dtype_is_float(t)) elem_set_f64(t, y->data, i, f);
        else elem_set_i64(t, y->data, i, (i64)f);
    }
    return y;
}

/* The type under test: of the node's first input, otherwise of its attribute. */
static enum dtype main_type(const struct graph *g)
{
    const struct node *n = graph_node(g, 1);
    for (u32 k = 0; k < n->in.n; k++)
        if (n->in.v[k]) return graph_value(g, n->in.v[k])->dtype;
    return DT_NONE;
}

static void change_type(struct graph *g, struct arena *a, enum dtype from, enum dtype to)
{
    for (value_id v = 1; v < g->value.n; v++) {
        struct value *x = graph_value(g, v);
        if (x->dtype != from || x->producer) continue;
        if (x->data) x->data = converted(a, x->data, to);
        x->dtype = to;
    }
}

/* Makes an instance in g with its type replaced; DT_NONE: unchanged. Returns its type, DT_NONE:
   refused. */
static enum dtype make_instance(struct graph *g, struct arena *a, struct symtab *st, const struct op *op, u64 seed, enum dtype to)
{
    struct err e = {0};
    struct rng r = rng_seed(seed);
    symtab_init(st, a);
    graph_init(g, a, st);
    op->random(op, g, &r);
    enum dtype from = main_type(g);
    if (from != DT_NONE && to != DT_NONE) change_type(g, a, from, to);
    if ((from == DT_NONE && to != DT_NONE) || !op_infer_all(g, &e) || !op_expand_all(g, &e)) return DT_NONE;
    return from == DT_NONE ? graph_value(g, g->output.v[0])->dtype : to != DT_NONE ? to : from;
}

/* Whether a device without f64 or 64-bit integers can run it, by SPIR-V, the only language for
   devices without the latter. */
static bool runs_without(const struct kir *k, struct arena *a, u32 lacks)
{
    struct caps c = {.is_gpu = true, .max_group = 256, .subgroup = 32, .max_push = 128, .max_bind = 64, .spirv = 15, .has_f16 = true, .has_i8 = true,
                     .has_i16 = true, .has_rte_f16 = true, .has_nan = true, .has_f64 = !(lacks & NEEDS_F64), .has_i64 = !(lacks & NEEDS_I64)};
    struct buf text = {0}, module = {0};
    struct err e = {0};
    const struct lang *l = lang_find(S("spirv"));
    bool ok = lang_render(&text, l, k, &c, a, &e) && l->build(&module, buf_view(&text), &c, 10, &e);
    buf_release(&module);
    buf_release(&text);
    return ok;
}

/* Whether inputs or outputs have type f64, whatever the main type. */
static bool has_doubles(const struct graph *g)
{
    for (u32 k = 0; k < g->input.n + g->output.n; k++)
        if (graph_value(g, k < g->input.n ? g->input.v[k] : g->output.v[k - g->input.n])->dtype == DT_F64) return true;
    return false;
}

/* Device features that an instance of f32, or another universally available type, requires. */
static u32 instance_needs(const struct op *op, u64 seed, u64 types)
{
    static const enum dtype plain[] = {DT_F32, DT_I32, DT_U8, DT_BOOL, DT_I8};
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct kir k;
    struct emit m;
    enum dtype t = DT_NONE;
    u32 needs = 0;
    for (int i = 0; t == DT_NONE && i < countof(plain); i++)
        if (types >> dtype_onnx(plain[i]) & 1) t = plain[i];
    if (t != DT_NONE && make_instance(&g, &a, &st, op, seed, t) == t && !has_doubles(&g) && op_plain_kernel(&m, &k, &g, &a) &&
        runs_without(&k, &a, 0)) {
        if (!runs_without(&k, &a, NEEDS_F64)) needs |= NEEDS_F64;
        if (!runs_without(&k, &a, NEEDS_I64)) needs |= NEEDS_I64;
    }
    arena_release(&a);
    return needs;
}

const char *model_op_needs(const struct op *op, u64 types)
{
    static const char *const text[] = {"", "f64", "i64", "f64 i64"};
    u32 needs = 0;
    for (u64 seed = 1; op->random && seed <= N_NEEDS; seed++) needs |= instance_needs(op, seed, types);
    return text[needs];
}

u64 model_op_types(const struct op *op)
{
    u64 types = 0;
    for (u64 seed = 1; op->random && seed <= N_SEEDS; seed++)
        for (int t = DT_NONE; t < N_DTYPES; t++) {
            struct arena a = {0};
            struct symtab st;
            struct graph g;
            enum dtype found = make_instance(&g, &a, &st, op, seed, (enum dtype)t);
            if (found != DT_NONE) types |= (u64)1 << dtype_onnx(found);
            arena_release(&a);
        }
    return types;
}

const struct op_onnx *model_op_missing(i64 k)
{
    const struct op_onnx *x;
    for (i64 i = 0; (x = op_onnx_all(i)); i++)
        if (!op_find(str_of(x->name)) && k-- == 0) return x;
    return NULL;
}
