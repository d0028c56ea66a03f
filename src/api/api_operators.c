// SPDX-License-Identifier: Apache-2.0
//
// Operators that the library supports, and problems of a model. Declared and documented in
// include/quern.h.
#include "api/api_model.h"

#include "import/import.h"
#include "op/op.h"

#include <string.h>

static const char *form_of(const struct op *op)
{
    return op->props & OP_CALL ? "program" : op->expand ? "composite" : op->props & OP_WHOLE ? "whole" : "element";
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
    const struct op_onnx *onnx = op ? op_onnx_find(str_of(op->name)) : k < 0 ? NULL : model_op_missing(k - n_known());
    if (!op && !onnx) return 0;
    bool replaced = !op && import_replaces(str_of(onnx->name));
    struct quern_operator x = {.size = sizeof x, .name = op ? op->name : onnx->name, .form = op ? form_of(op) : replaced ? "import" : "", .needs = ""};
    x.attributes = op_attributes(str_of(x.name));
    if (op && !(op->props & OP_CALL)) x.types = model_op_types(op), x.needs = model_op_needs(op, x.types);
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

int quern_model_is_random(const quern_model *m) { return m && model_is_random(m->model); }

/* Problems. */

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
    struct import_problems all = {0};
    struct model_opts opts;
    struct quern_model_opts given = {0};
    if (o) memcpy(&given, o, o->size < sizeof given ? o->size : sizeof given);
    const struct model_source source = {.path = path, .follow_links = given.external_data_links != 0};
    bool ok = api_model_opts(&opts, q, &given, &a, e) && model_problems(&all, &a, source, &opts, e);
    if (ok) report(&all, &a, each, user);
    struct quern_report x = {.n_nodes = (int)all.n_nodes, .n_problems = (int)all.n, .n_unchecked = (int)all.n_unchecked};
    size_t size = r->size;
    memcpy(r, &x, size < sizeof x ? size : sizeof x);
    r->size = size;
    arena_release(&a);
    return api_end(q, ok);
}
