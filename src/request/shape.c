// SPDX-License-Identifier: Apache-2.0
//
// Sizes of a request's tensors: the variables of the model's expressions get their values from the inputs; everything else is compared with them.
#include "request/request_private.h"

#include <string.h>

bool shape_parse(struct req_model *m, struct err *e)
{
    symtab_init(&m->sym, &m->a);
    m->dim = arena_alloc(&m->a, (i64)sizeof *m->dim * (m->meta->tensor.n + 1));
    for (u32 k = 0; k < m->meta->tensor.n; k++)
        for (u32 d = 0; d < m->meta->tensor.v[k].rank; d++) {
            m->dim[k][d] = sym_parse(&m->sym, m->meta->tensor.v[k].dim[d], e);
            if (!m->dim[k][d]) return err_prefix(e, "tensor '%.*s'", STR_ARG(m->meta->tensor.v[k].name));
        }
    return true;
}

bool shape_fixed(const struct req_model *m, u32 tensor, struct tensor *t)
{
    const struct meta_tensor *x = &m->meta->tensor.v[tensor];
    *t = (struct tensor){.dtype = x->dtype, .rank = x->rank};
    for (u32 d = 0; d < x->rank; d++)
        if (!sym_is_const(&m->sym, m->dim[tensor][d], &t->dim[d])) return false;
    return true;
}

/* As the network calls it, if that is known. */
static struct str name_of(const struct meta_tensor *x) { return x->origin.n ? x->origin : x->name; }

bool shape_check(const struct req_model *m, u32 tensor, const i64 *var, const struct tensor *t, const char *what, struct err *e)
{
    const struct meta_tensor *x = &m->meta->tensor.v[tensor];
    if (t->dtype != x->dtype)
        return err_set(e, ERR_USAGE, "%s '%.*s' has type %s, expected %s", what, STR_ARG(name_of(x)), dtype_name(t->dtype), dtype_name(x->dtype));
    if (t->rank != x->rank) return err_set(e, ERR_USAGE, "%s '%.*s' has rank %u, expected %u", what, STR_ARG(name_of(x)), t->rank, x->rank);
    for (u32 d = 0; d < t->rank; d++) {
        i64 want;
        if (t->dim[d] < 0 || !sym_eval(&m->sym, m->dim[tensor][d], var, &want) || want == t->dim[d]) continue;
        return err_set(e, ERR_USAGE, "%s '%.*s': axis %u is %lld, expected %.*s = %lld", what, STR_ARG(name_of(x)), d, (long long)t->dim[d], STR_ARG(x->dim[d]),
                       (long long)want);
    }
    return true;
}

/* Variables that are sizes of an axis first; expressions may bind others. */
static void bind(struct request *r, u32 tensor, bool plain)
{
    const struct symtab *st = &r->model->sym;
    for (u32 d = 0; d < r->tensor[tensor].rank; d++) {
        sym s = r->model->dim[tensor][d];
        i64 size = r->tensor[tensor].dim[d], known;
        const struct sym_node *n = &st->node.v[s];
        if (plain && n->op == SYM_VAR && r->var[n->a] == INT64_MIN) r->var[n->a] = size;
        if (!plain && !sym_eval(st, s, r->var, &known)) sym_solve(st, s, size, r->var);
    }
}

bool shape_bind(struct request *r, struct err *e)
{
    const struct meta_model *meta = r->model->meta;
    for (u32 v = 0; v < r->model->sym.var.n; v++) r->var[v] = INT64_MIN;
    for (u32 k = 0; k < meta->input.n; k++) {
        u32 t = meta->input.v[k];
        const struct meta_tensor *x = &meta->tensor.v[t];
        if (!r->tensor[t].data) return err_set(e, ERR_USAGE, "input '%.*s' was not given", STR_ARG(name_of(x)));
        if (r->tensor[t].rank != x->rank || r->tensor[t].dtype != x->dtype) return shape_check(r->model, t, r->var, &r->tensor[t], "input", e);
        bind(r, t, true);
    }
    for (u32 k = 0; k < meta->input.n; k++) bind(r, meta->input.v[k], false);
    for (u32 k = 0; k < meta->input.n; k++)
        if (!shape_check(r->model, meta->input.v[k], r->var, &r->tensor[meta->input.v[k]], "input", e)) return false;
    return true;
}

bool req_model_sizes(const struct req_model *m, u32 k, const char *sizes, i64 usual, i64 dim[MAX_RANK], struct err *e)
{
    struct arena a = {0};
    u32 t = m->meta->input.v[k];
    i64 *var = arena_array(&a, i64, m->sym.var.n + 1);
    for (u32 v = 0; v < m->sym.var.n; v++) var[v] = usual;
    bool ok = !sizes || sym_parse_sizes(&m->sym, sizes, var, e);
    for (u32 d = 0; d < m->meta->tensor.v[t].rank && ok; d++)
        ok = sym_eval(&m->sym, m->dim[t][d], var, &dim[d]) || err_set(e, ERR_USAGE, "size of input '%.*s' is not known", STR_ARG(m->meta->tensor.v[t].name));
    arena_release(&a);
    return ok;
}
