// SPDX-License-Identifier: Apache-2.0
//
// Operators that the library supports, and problems of a model. Declared and documented in
// include/quern.h.
//
// The types of an operator are not listed anywhere: they are those for which random instances of
// it, the same as in tests, can be inferred and expanded. Required device features are found by
// emitting such instances for devices that lack one.
#include "api/api_model.h"

#include "import/import.h"
#include "lang/lang.h"
#include "op/op.h"

#include <string.h>

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
static u32 instance_needs(const struct op *op, u64 seed, uint64_t types)
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

static const char *needs_of(const struct op *op, uint64_t types)
{
    static const char *const text[] = {"", "f64", "i64", "f64 i64"};
    u32 needs = 0;
    for (u64 seed = 1; op->random && seed <= N_NEEDS; seed++) needs |= instance_needs(op, seed, types);
    return text[needs];
}

static uint64_t types_of(const struct op *op)
{
    uint64_t types = 0;
    for (u64 seed = 1; op->random && seed <= N_SEEDS; seed++)
        for (int t = DT_NONE; t < N_DTYPES; t++) {
            struct arena a = {0};
            struct symtab st;
            struct graph g;
            enum dtype found = make_instance(&g, &a, &st, op, seed, (enum dtype)t);
            if (found != DT_NONE) types |= (uint64_t)1 << dtype_onnx(found);
            arena_release(&a);
        }
    return types;
}

static const char *form_of(const struct op *op)
{
    return op->props & OP_CALL ? "program" : op->expand ? "composite" : op->props & OP_WHOLE ? "whole" : "element";
}

/* The k-th operator of ONNX that is not supported. */
static const struct op_onnx *missing(i64 k)
{
    const struct op_onnx *x;
    for (i64 i = 0; (x = op_onnx_all(i)); i++)
        if (!op_find(str_of(x->name)) && k-- == 0) return x;
    return NULL;
}

static i64 n_known(void)
{
    i64 n = 0;
    while (op_all(n)) n++;
    return n;
}

int quern_operator_at(int k, struct quern_operator *o)
{
    if (!o) return 0;
    const struct op *op = k < 0 ? NULL : op_all(k);
    const struct op_onnx *onnx = op ? op_onnx_find(str_of(op->name)) : k < 0 ? NULL : missing(k - n_known());
    if (!op && !onnx) return 0;
    bool replaced = !op && import_replaces(str_of(onnx->name));
    struct quern_operator x = {.size = sizeof x, .name = op ? op->name : onnx->name, .form = op ? form_of(op) : replaced ? "import" : "", .needs = ""};
    if (op && !(op->props & OP_CALL)) x.types = types_of(op), x.needs = needs_of(op, x.types);
    if (onnx) x.opset = onnx->first, x.changed = onnx->last, x.removed = onnx->gone;
    size_t size = o->size;
    memcpy(o, &x, size < sizeof x ? size : sizeof x);
    o->size = size;
    return 1;
}

const char *quern_dtype_text(quern_dtype t)
{
    enum dtype d = (int)t < 0 ? DT_NONE : dtype_from_onnx((int)t);
    return d == DT_NONE ? NULL : dtype_name(d);
}

int quern_model_is_random(const quern_model *m)
{
    if (!m) return 0;
    for (node_id n = 1; n < m->model->graph.node.n; n++)
        if (!graph_node(&m->model->graph, n)->dead && op_of(&m->model->graph, n)->props & OP_RANDOM) return 1;
    return 0;
}

/* Problems. */

/* A pass may refuse a model that was imported without a problem. */
static void check_passes(quern *q, const char *path, const struct quern_model_opts *o, struct arena *a, struct import_problems *all)
{
    quern_model *m = NULL;
    bool ok = quern_model_open(q, path, o, &m) == QUERN_OK;
    if (ok) ok = model_lowered(m->model, NULL, &q->err) != NULL;
    if (!ok) import_note(all, a, S(""), S(""), &q->err);
    quern_model_close(m);
}

static void report(const struct import_problems *all, struct arena *a,
                 void (*each)(void *user, const struct quern_problem *p), void *user)
{
    for (u32 k = 0; k < all->n; k++) {
        const struct import_problem *p = &all->v[k];
        struct quern_problem x = {.node = str_z(a, p->node), .op = str_z(a, p->op), .why = str_z(a, p->why), .help = str_z(a, p->help)};
        if (each) each(user, &x);
    }
}

quern_status quern_model_problems(quern *q, const char *path, const struct quern_model_opts *o,
                                  void (*each)(void *user, const struct quern_problem *p), void *user, struct quern_report *r)
{
    if (!api_given(q, "path r", path, r)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct import_problems all = {0};
    struct quern_model_opts opts = QUERN_OPTS(quern_model_opts);
    if (o) memcpy(&opts, o, o->size < sizeof opts ? o->size : sizeof opts);
    opts.size = sizeof opts;
    symtab_init(&st, &a);
    bool ok = api_check_import(q, &g, &a, &st, path, &opts, &all, e);
    if (!ok && e->code == ERR_UNSUPPORTED) import_note(&all, &a, S(""), S(""), e), ok = true;
    if (ok && !all.n) check_passes(q, path, &opts, &a, &all);
    if (ok) report(&all, &a, each, user);
    struct quern_report x = {.n_nodes = (int)all.n_nodes, .n_problems = (int)all.n, .n_unchecked = (int)all.n_unchecked};
    size_t size = r->size;
    memcpy(r, &x, size < sizeof x ? size : sizeof x);
    r->size = size;
    arena_release(&a);
    return api_end(q, ok);
}
