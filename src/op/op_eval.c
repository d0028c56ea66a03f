// SPDX-License-Identifier: Apache-2.0
//
// op_eval: the reference evaluator. Runs a graph node by node on host tensors with each operator's
// `eval`. Every other way to compute is compared with this one, so nothing here is clever.
// Composites are expanded on a clone first. Contents of intermediate values live on the heap and
// are released after their last use, because networks are evaluated whole.
#include "op/op.h"

#include <string.h>

/* Binding of symbolic sizes. */

static bool input_fits(const struct graph *g, value_id v, const struct tensor *t, struct err *e)
{
    const struct value *x = graph_value(g, v);
    if (t->dtype != x->dtype)
        return err_set(e, ERR_INPUT, "wrong type of input '%.*s': %s, expected %s",
                       STR_ARG(x->name), dtype_name(t->dtype), dtype_name(x->dtype));
    if (t->rank != x->shape.rank)
        return err_set(e, ERR_INPUT, "wrong rank of input '%.*s': %u, expected %u",
                       STR_ARG(x->name), t->rank, x->shape.rank);
    return true;
}

/* What sizes of one variable bind; later also sums, where the others of their variables are bound. */
static bool bind_dims(const struct graph *g, const struct value *v, const struct tensor *t, bool sums,
                      i64 *var)
{
    bool any = false;
    struct shape s = value_given(g->sym, v);
    for (u32 i = 0; i < s.rank; i++)
        if (sums || g->sym->node.v[s.dim[i]].op == SYM_VAR) any |= sym_solve(g->sym, s.dim[i], t->dim[i], var);
    return any;
}

/* The first input that names a variable of a fact. */
static const struct value *input_with(const struct graph *g, const struct sym_fact *f)
{
    for (u32 v = 0; v < g->sym->var.n; v++) {
        if (!sym_has_var(g->sym, f->a, v) && !sym_has_var(g->sym, f->b, v)) continue;
        for (u32 k = 0; k < g->input.n; k++) {
            const struct value *x = graph_value(g, g->input.v[k]);
            const struct shape *s = x->given ? x->given : &x->shape;
            for (u32 d = 0; d < s->rank; d++)
                if (sym_has_var(g->sym, s->dim[d], v)) return x;
        }
    }
    return NULL;
}

bool graph_facts_hold(const struct graph *g, const i64 *var, struct err *e)
{
    const struct sym_fact *f = sym_fact_broken(g->sym, var);
    struct buf b = {0};
    if (!f) return true;
    const struct value *in = input_with(g, f);
    sym_fact_explain(&b, g->sym, f, var);
    err_set(e, ERR_INPUT, "%s%.*s%s%.*s", in ? "input '" : "", STR_ARG(in ? in->name : S("")), in ? "': " : "", STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

static bool dims_fit(const struct graph *g, value_id v, const struct tensor *t, const i64 *var,
                     struct err *e)
{
    const struct value *x = graph_value(g, v);
    for (u32 i = 0; i < t->rank; i++) {
        i64 want;
        if (!sym_eval(g->sym, x->shape.dim[i], var, &want))
            return err_set(e, ERR_INPUT, "cannot determine size %u of input '%.*s'", i,
                           STR_ARG(x->name));
        if (want != t->dim[i])
            return err_set(e, ERR_INPUT, "wrong size %u of input '%.*s': %lld, expected %lld", i,
                           STR_ARG(x->name), (long long)t->dim[i], (long long)want);
    }
    return true;
}

static bool bind_more(const struct graph *g, struct tensor *const *in, i64 *var, bool whole, struct err *e)
{
    bool more = true;
    for (u32 k = 0; k < g->input.n; k++) {
        if (!input_fits(g, g->input.v[k], in[k], e)) return false;
        bind_dims(g, graph_value(g, g->input.v[k]), in[k], false, var);
    }
    while (more) {
        more = false;
        for (u32 k = 0; k < g->input.n; k++) more |= bind_dims(g, graph_value(g, g->input.v[k]), in[k], true, var);
    }
    if (whole && !graph_facts_hold(g, var, e)) return false;
    for (u32 k = 0; k < g->input.n; k++)
        if (!dims_fit(g, g->input.v[k], in[k], var, e)) return false;
    return true;
}

bool graph_bind(const struct graph *g, struct tensor *const *in, i64 *var, struct err *e)
{
    for (u32 i = 0; i < g->sym->var.n; i++) var[i] = INT64_MIN;
    return bind_more(g, in, var, true, e);
}

bool graph_read_sizes(const struct graph *g, value_id v, const struct tensor *t, i64 *var, struct err *e)
{
    bool any = false;
    for (u32 k = 0; k < g->made.n; k++) {
        const struct made_size *m = &g->made.v[k];
        if (m->v != v || !v || !t || var[m->var] != INT64_MIN) continue;
        if (m->at >= tensor_count(t))
            return err_set(e, ERR_INPUT, "value '%.*s' has %lld elements, but a size is computed from element %lld", STR_ARG(graph_value(g, v)->name),
                           (long long)tensor_count(t), (long long)m->at);
        i64 x = elem_i64(t->dtype, t->data, m->at);
        var[m->var] = made_size_take(m, x);
        any = true;
        if (var[m->var] != INT64_MIN) continue;
        var[m->var] = x;
        return made_size_fails(g, k, var, e);
    }
    return !any || (graph_make_sizes(g, var, e) && graph_facts_hold(g, var, e));
}

/* Evaluation. */

struct run {
    struct graph g;     /* expanded clone */
    struct arena arena; /* of the clone and of the tensors' heads */
    struct tensor **t;  /* per value: content, NULL: not computed yet, or released */
    u32 *uses;          /* per value: how often it is still needed */
    i64 *var;
    u32 n_var;          /* entries of var */
    const struct graph_eval_opts *opts;
    node_id last; /* the node that opts->points is for */
    struct arena *results; /* the caller's */
    bool *is_result;       /* per value: it is computed there */
};

static void impossible(struct run *r, node_id n, const struct value *x, struct err *e)
{
    struct buf b = {0};
    for (u32 d = 0; d < x->shape.rank; d++) {
        i64 size;
        buf_z(&b, d ? ", " : "");
        sym_print(&b, r->g.sym, x->shape.dim[d]);
        if (!sym_is_const(r->g.sym, x->shape.dim[d], NULL) && sym_eval(r->g.sym, x->shape.dim[d], r->var, &size))
            buf_printf(&b, " (%lld)", (long long)size);
    }
    op_invalid(e, &r->g, n, "'%.*s' of sizes [%.*s]: one is negative, or they are too large", STR_ARG(x->name), STR_ARG(buf_view(&b)));
    buf_release(&b);
}

/* In memory that drop_use frees, or the caller's, of results. */
static struct tensor *make_out(struct run *r, node_id n, value_id v, struct err *e)
{
    const struct value *x = graph_value(&r->g, v);
    struct tensor *t = arena_new(r->is_result[v] ? r->results : &r->arena, struct tensor);
    i64 bytes;
    t->dtype = x->dtype;
    t->rank = x->shape.rank;
    bool ok = shape_eval(r->g.sym, &x->shape, r->var, t->dim);
    ok = ok && tensor_size_ok(t->dtype, t->rank, t->dim, &bytes);
    if (!ok) {
        impossible(r, n, x, e);
        return NULL;
    }
    if (r->is_result[v]) return (t->data = arena_try(r->results, bytes + 64, e, "output '%.*s'", STR_ARG(x->name))) ? t : NULL;
    t->data = mem_aligned(bytes + 64);
    if (t->data) return t;
    err_set(e, ERR_SYSTEM, "not enough memory for '%.*s': %lld bytes", STR_ARG(x->name), (long long)bytes);
    return NULL;
}

static void drop_use(struct run *r, value_id v)
{
    if (!v || --r->uses[v] || !graph_value(&r->g, v)->producer) return;
    mem_free(r->t[v]->data);
    r->t[v] = NULL;
}

void *op_eval_array(const struct op_eval *v, i64 n, i64 elem_size, struct err *e)
{
    struct str op = v->n->op, name = v->n->name;
    return arena_try(v->scratch, n * elem_size, e, "intermediate results of %.*s '%.*s'", STR_ARG(op), STR_ARG(name));
}

/* A node that runs graphs determines the sizes of its outputs itself. */
static bool eval_call(struct run *r, node_id n, struct err *e)
{
    const struct node *x = graph_node(&r->g, n);
    struct arena scratch = {0};
    struct op_call c;
    if (!op_call_get(&r->g, x, &c)) return op_invalid(e, &r->g, n, "the bodies do not fit the node");
    struct tensor **in = arena_array(&scratch, struct tensor *, x->in.n + 1), **out = arena_array(&scratch, struct tensor *, c.n_out + 2);
    for (u32 i = 0; i < x->in.n; i++) in[i] = x->in.v[i] ? r->t[x->in.v[i]] : NULL;
    bool ok = op_of(&r->g, n)->call(&r->g, x, in, r->var, r->n_var, out, &scratch, e);
    for (u32 k = x->out.n; ok && k-- > 0;) ok = graph_read_sizes(&r->g, x->out.v[k], out[k], r->var, e);
    for (u32 k = 0; ok && k < x->out.n; k++) {
        if (!x->out.v[k]) continue;
        struct tensor *t = r->t[x->out.v[k]] = make_out(r, n, x->out.v[k], e);
        ok = t && (tensor_bytes(t) == tensor_bytes(out[k]) || err_set(e, ERR_INPUT, "output %u has another size than expected", k));
        if (ok && tensor_bytes(t)) memcpy(t->data, out[k]->data, (size_t)tensor_bytes(t));
    }
    arena_release(&scratch);
    if (!ok) return false;
    for (u32 i = 0; i < x->in.n; i++) drop_use(r, x->in.v[i]);
    return true;
}

static bool eval_node(struct run *r, node_id n, struct err *e)
{
    const struct node *x = graph_node(&r->g, n);
    if (op_of(&r->g, n)->props & OP_CALL) return eval_call(r, n, e);
    struct arena scratch = {0};
    struct op_eval v = {.g = &r->g, .n = x, .scratch = &scratch, .var = r->var};
    struct tensor **in = arena_array(&scratch, struct tensor *, x->in.n + 1);
    v.out = arena_array(&scratch, struct tensor *, x->out.n + 1);
    v.in = in;
    if (n == r->last && r->opts) v.points = r->opts->points, v.n_points = r->opts->n_points;
    for (u32 i = 0; i < x->in.n; i++) in[i] = x->in.v[i] ? r->t[x->in.v[i]] : NULL;
    bool ok = true;
    for (u32 k = 0; ok && k < x->out.n; k++)
        if (x->out.v[k])
            ok = (v.out[k] = r->t[x->out.v[k]] = make_out(r, n, x->out.v[k], e)) != NULL;
    if (ok) ok = op_of(&r->g, n)->eval(&v, e);
    if (ok && r->opts && r->opts->computed) r->opts->computed(r->opts->user, x, in, v.out);
    for (u32 k = 0; ok && r->g.made.n && k < x->out.n; k++) ok = graph_read_sizes(&r->g, x->out.v[k], v.out[k], r->var, e);
    arena_release(&scratch);
    if (!ok) return false;
    for (u32 i = 0; i < x->in.n; i++) drop_use(r, x->in.v[i]);
    return true;
}

static bool eval_nodes(struct run *r, struct err *e)
{
    for (node_id n = 1; n < r->g.node.n; n++)
        if (!graph_node(&r->g, n)->dead) r->last = n;
    for (node_id n = 1; n < r->g.node.n; n++) {
        if (graph_node(&r->g, n)->dead) continue;
        if (!mem_check(e, "evaluating ", graph_node(&r->g, n)->name) || !eval_node(r, n, e))
            return e->code ? false : op_invalid(e, &r->g, n, "cannot evaluate");
    }
    return true;
}

static bool prepare(struct run *r, const struct graph *g, struct tensor *const *in, struct err *e)
{
    u32 n_known = g->sym->var.n; /* expansions may name sizes that they make */
    graph_clone(&r->g, g, &r->arena);
    if (!op_expand_all(&r->g, e)) return false;
    r->n_var = g->sym->var.n;
    r->var = arena_array(&r->arena, i64, g->sym->var.n + 1);
    const i64 *known = r->opts ? r->opts->var : NULL;
    for (u32 i = 0; i < g->sym->var.n; i++) r->var[i] = known && i < n_known ? known[i] : INT64_MIN;
    if (!bind_more(&r->g, in, r->var, !known, e)) return false;
    r->t = arena_array(&r->arena, struct tensor *, r->g.value.n);
    r->is_result = arena_array(&r->arena, bool, r->g.value.n);
    for (u32 k = 0; k < r->g.output.n; k++) r->is_result[r->g.output.v[k]] = graph_value(&r->g, r->g.output.v[k])->producer != 0;
    r->uses = graph_use_counts(&r->g, &r->arena);
    for (value_id v = 1; v < r->g.value.n; v++) r->t[v] = graph_value(&r->g, v)->data;
    for (u32 k = 0; k < r->g.input.n; k++) r->t[r->g.input.v[k]] = in[k];
    for (u32 k = 0; k < r->g.made.n; k++)
        /* of inputs and constants */
        if (!graph_read_sizes(&r->g, r->g.made.v[k].v, r->t[r->g.made.v[k].v], r->var, e)) return false;
    return graph_make_sizes(&r->g, r->var, e);
}

/* Inputs, constants, and a value that is more than one output, are copied: callers may change each. */
static bool take_outputs(struct run *r, struct tensor **out, struct err *e)
{
    for (u32 k = 0; k < r->g.output.n; k++) {
        const value_id v = r->g.output.v[k];
        struct tensor *t = r->t[v];
        bool is_first = true;
        for (u32 i = 0; i < k; i++) is_first &= r->g.output.v[i] != v;
        if (r->is_result[v] && is_first) {
            out[k] = t;
            continue;
        }
        out[k] = tensor_try(r->results, t->dtype, t->rank, t->dim, e, "output ", graph_value(&r->g, r->g.output.v[k])->name);
        if (!out[k]) return false;
        if (tensor_bytes(t)) memcpy(out[k]->data, t->data, (size_t)tensor_bytes(t));
    }
    return true;
}

bool graph_eval(const struct graph *g, struct tensor *const *in, struct tensor **out,
                struct arena *a, const struct graph_eval_opts *o, struct err *e)
{
    struct run r = {.opts = o, .results = a};
    bool ok = prepare(&r, g, in, e) && eval_nodes(&r, e);
    ok = ok && take_outputs(&r, out, e);
    for (value_id v = 1; r.t && v < r.g.value.n; v++)
        if (r.t[v] && graph_value(&r.g, v)->producer && !r.is_result[v]) mem_free(r.t[v]->data);
    arena_release(&r.arena);
    return ok;
}
