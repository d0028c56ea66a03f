// SPDX-License-Identifier: Apache-2.0
//
// For larger expansions, beside op_expand.c: nodes that only move elements, whose sizes are
// expressions; and inference of a composite by expanding a copy, so that its semantics are written
// once.
#include "op/op.h"

#include <string.h>

value_id op_node_reshape(struct graph *g, node_id like, value_id v, u32 rank, const sym *dim, value_id out)
{
    value_id y = op_node1(g, like, "quern::Reshape", v, out);
    op_set_syms(g, op_made(g, y), "shape", dim, rank);
    return y;
}

value_id op_node_expand(struct graph *g, node_id like, value_id v, u32 rank, const sym *dim, value_id out)
{
    value_id y = op_node1(g, like, "quern::Expand", v, out);
    op_set_syms(g, op_made(g, y), "shape", dim, rank);
    return y;
}

value_id op_node_perm(struct graph *g, node_id like, value_id v, u32 rank, const i64 *perm, value_id out)
{
    value_id y = op_node1(g, like, "Transpose", v, out);
    attr_set_ints(g, op_made(g, y), "perm", perm, rank);
    return y;
}

value_id op_node_swap(struct graph *g, node_id like, value_id v, u32 rank, u32 a, u32 b, value_id out)
{
    i64 perm[MAX_RANK];
    for (u32 i = 0; i < rank; i++) perm[i] = i;
    perm[a] = b, perm[b] = a;
    return op_node_perm(g, like, v, rank, perm, out);
}

value_id op_node_slice(struct graph *g, node_id like, value_id v, const struct shape *s, u32 axis, sym from, sym size,
                       value_id out)
{
    struct shape to = *s;
    sym start[MAX_RANK];
    i64 step[MAX_RANK];
    for (u32 i = 0; i < s->rank; i++) start[i] = sym_const(g->sym, 0), step[i] = 1;
    start[axis] = from, to.dim[axis] = size;
    value_id y = op_node1(g, like, "quern::Slice", v, out);
    op_set_syms(g, op_made(g, y), "start", start, s->rank);
    op_set_syms(g, op_made(g, y), "size", to.dim, s->rank);
    attr_set_ints(g, op_made(g, y), "step", step, s->rank);
    return y;
}

value_id op_node_concat(struct graph *g, node_id like, u32 n_in, const value_id *in, i64 axis, value_id out)
{
    value_id y = op_node(g, like, "Concat", n_in, in, out);
    attr_set_int(g, op_made(g, y), "axis", axis);
    return y;
}

value_id op_node_softmax(struct graph *g, node_id like, value_id v, i64 axis, value_id out)
{
    value_id y = op_node1(g, like, "Softmax", v, out);
    attr_set_int(g, op_made(g, y), "axis", axis);
    return y;
}

value_id op_node_where(struct graph *g, node_id like, value_id c, value_id a, value_id b, value_id out)
{
    return op_node(g, like, "Where", 3, (value_id[]){c, a, b}, out);
}

value_id op_node_range(struct graph *g, node_id like, enum dtype t, sym n, value_id out)
{
    value_id in[] = {op_const_f(g, t, 0), op_sym_scalar(g, t, n), op_const_f(g, t, 1)};
    return op_node(g, like, "Range", 3, in, out);
}

value_id op_node_gather(struct graph *g, node_id like, value_id v, value_id at, i64 axis, value_id out)
{
    value_id y = op_node2(g, like, "Gather", v, at, out);
    attr_set_int(g, op_made(g, y), "axis", axis);
    return y;
}

value_id op_node_same(struct graph *g, node_id n, const char *op, u32 n_in, const value_id *in, const char *const *without,
                      value_id out)
{
    const struct node nd = *graph_node(g, n);
    while (n_in && !in[n_in - 1]) n_in--;
    value_id y = op_node(g, n, op, n_in, in, out);
    for (u32 i = 0; i < nd.attr.n; i++) {
        bool keep = true;
        for (u32 k = 0; without && without[k]; k++) keep &= !str_is(nd.attr.v[i].name, without[k]);
        if (keep) attr_copy(g, op_made(g, y), &nd.attr.v[i]);
    }
    return y;
}

value_id op_node_input(const struct node *nd, u32 k) { return op_has_in(nd, k) ? nd->in.v[k] : 0; }

value_id op_node_into(struct graph *g, node_id like, value_id v, enum dtype from, enum dtype to, value_id out)
{
    return from == to ? op_node1(g, like, "Identity", v, out) : op_node_cast(g, like, v, to, out);
}

bool op_know(struct graph *g, value_id v, struct err *e)
{
    node_id n = graph_value(g, v)->producer;
    if (graph_value(g, v)->shape.known || !n) return true;
    for (u32 i = 0; i < graph_node(g, n)->in.n; i++) {
        value_id in = graph_node(g, n)->in.v[i];
        if (in && !op_know(g, in, e)) return false;
    }
    return op_infer(g, n, e);
}

/* Sizes of a composite. */

static value_id copy_input(struct graph *to, const struct graph *from, value_id v)
{
    const struct value *x = graph_value(from, v);
    value_id c = graph_find(to, x->name);
    if (c) return c;
    if (x->data) return graph_add_const(to, x->name, x->data);
    c = graph_add_value(to, x->name);
    struct value *y = graph_value(to, c);
    y->dtype = x->dtype, y->shape = x->shape, y->sdata = x->sdata;
    *arr_push(to->arena, &to->input) = c;
    return c;
}

static node_id copy_node(struct graph *to, const struct graph *from, node_id n)
{
    const struct node *nd = graph_node(from, n);
    node_id c = graph_add_node(to, nd->op, nd->name);
    for (u32 i = 0; i < nd->in.n; i++) node_add_in(to, c, nd->in.v[i] ? copy_input(to, from, nd->in.v[i]) : 0);
    for (u32 k = 0; k < nd->out.n; k++)
        node_set_out(to, c, k, nd->out.v[k] ? graph_add_value(to, graph_value(from, nd->out.v[k])->name) : 0);
    for (u32 i = 0; i < nd->attr.n; i++) attr_copy(to, c, &nd->attr.v[i]);
    return c;
}

bool op_infer_expanded(struct graph *g, node_id n, struct err *e)
{
    struct arena a = {0};
    struct graph aside;
    graph_init(&aside, &a, g->sym);
    node_id c = copy_node(&aside, g, n);
    bool ok = op_expand(&aside, c, e);
    const struct node *to = graph_node(g, n), *from = graph_node(&aside, c);
    for (u32 k = 0; ok && k < to->out.n; k++) {
        if (!to->out.v[k]) continue;
        const struct value *x = graph_value(&aside, from->out.v[k]);
        if (!x->shape.known) continue; /* reported by op_infer */
        op_set_out(g, n, k, x->dtype, &x->shape);
        if (x->sdata) op_set_sdata(g, to->out.v[k], x->sdata->num, x->sdata->n, x->sdata->den);
    }
    arena_release(&a);
    return ok;
}

/* Checks. */

bool op_check_float(const struct graph *g, node_id n, u32 k, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!op_has_in(nd, k) || dtype_is_float(op_in_dtype(g, nd, k))) return true;
    return op_unsupported(e, g, n, "input %u of type %s", k, dtype_name(op_in_dtype(g, nd, k)));
}

bool op_check_rank(const struct graph *g, node_id n, u32 k, u32 lo, u32 hi, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!op_has_in(nd, k)) return true;
    u32 r = op_in_shape(g, nd, k)->rank;
    if (r >= lo && r <= hi) return true;
    return op_invalid(e, g, n, "input %u of rank %u", k, r);
}

bool op_check_present(const struct graph *g, node_id n, u32 k, struct err *e)
{
    return op_has_in(graph_node(g, n), k) || op_invalid(e, g, n, "input %u is missing", k);
}

bool op_check_absent(const struct graph *g, node_id n, u32 k, const char *what, struct err *e)
{
    return !op_has_in(graph_node(g, n), k) || op_unsupported(e, g, n, "input %u (%s) is not supported", k, what);
}

/* For `random`. */

value_id random_const(struct graph *g, enum dtype t, u32 rank, const i64 *dim, double lo, double hi, struct rng *r)
{
    struct tensor *x = tensor_new(g->arena, t, rank, dim);
    for (i64 i = 0; i < tensor_count(x); i++) {
        if (dtype_is_float(t)) elem_set_f64(t, x->data, i, lo + (hi - lo) * rng_f64(r));
        else elem_set_i64(t, x->data, i, rng_range(r, (i64)lo, (i64)hi));
    }
    return graph_add_const(g, S("c"), x);
}
