// SPDX-License-Identifier: Apache-2.0
//
// Sizes that a model is optimised for: those the caller names, others by default.
#include "model/model.h"

enum { DEFAULT_SIZE = 256 };

/* Limit for a value at these sizes, because costs are computed from products of sizes. */
static const i64 max_value_bytes = (i64)1 << 44;

static bool are_small_enough(const struct model *m, struct err *e)
{
    const struct graph *g = &m->graph;
    for (value_id v = 1; v < g->value.n; v++) {
        const struct value *x = graph_value(g, v);
        i64 dim[MAX_RANK], bytes;
        if (x->data || !x->shape.known || !dtype_size(x->dtype) || !shape_eval(g->sym, &x->shape, m->var, dim)) continue;
        bool negative = false;
        for (u32 d = 0; d < x->shape.rank; d++) negative |= dim[d] < 0;
        if (negative || (tensor_size_ok(x->dtype, x->shape.rank, dim, &bytes) && bytes <= max_value_bytes)) continue;
        struct buf b = {0};
        for (u32 s = 0; s < g->sym->var.n; s++)
            buf_printf(&b, "%s%.*s=%lld", s ? "," : "", STR_ARG(g->sym->var.v[s]), (long long)m->var[s]);
        err_set(e, ERR_USAGE, "sizes to optimize for are too large: '%.*s' would take more than %lld bytes at %.*s",
                STR_ARG(x->name), (long long)max_value_bytes, (int)i64_min(b.n, 300), b.p);
        buf_release(&b);
        return false;
    }
    return true;
}

bool model_sizes(const struct model *m, const char *text, const i64 *usual, i64 *var, struct err *e)
{
    struct arena a = {0};
    bool *fixed = arena_array(&a, bool, m->sym.var.n + 1);
    for (u32 v = 0; v < m->sym.var.n; v++) var[v] = INT64_MIN;
    bool ok = !text || sym_parse_sizes(&m->sym, text, var, e);
    for (u32 v = 0; v < m->sym.var.n; v++) {
        fixed[v] = var[v] != INT64_MIN;
        if (!fixed[v]) var[v] = usual ? usual[v] : DEFAULT_SIZE;
    }
    sym_fact_adjust(&m->sym, var, fixed);
    arena_release(&a);
    return ok;
}

bool model_default_sizes(struct model *m, const char *optimize_for, struct err *e)
{
    m->var = arena_array(&m->arena, i64, m->sym.var.n + 1);
    m->n_var = m->sym.var.n;
    if (!model_sizes(m, optimize_for, NULL, m->var, e)) return false;
    graph_guess_sizes(m->lowered_as & LOWERED_FLOATS ? &m->lowered : &m->graph, m->var, DEFAULT_SIZE);
    return !optimize_for || model_optimize_for(m, optimize_for, e);
}

void model_add_sizes(struct model *m)
{
    if (!m->var || m->n_var >= m->sym.var.n) return;
    i64 *var = arena_array(&m->arena, i64, m->sym.var.n + 1);
    for (u32 v = 0; v < m->sym.var.n; v++) var[v] = v < m->n_var ? m->var[v] : DEFAULT_SIZE;
    graph_guess_sizes(&m->lowered, var, DEFAULT_SIZE);
    for (u32 v = 0; v < m->n_var; v++) var[v] = m->var[v];
    m->var = var;
    m->n_var = m->sym.var.n;
}

bool model_optimize_for(struct model *m, const char *sizes, struct err *e)
{
    return sym_parse_sizes(&m->sym, sizes, m->var, e) && are_small_enough(m, e);
}
