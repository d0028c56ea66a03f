// SPDX-License-Identifier: Apache-2.0
//
// slices: GatherND whose indices are positions, each running along one axis of the result or along none, moves elements as views do: a part of each axis of the
// data, in the order of the result. Exporters index masks so, by all batches and all keys. Indices must be known to lie inside of the data.
// requires: expanded, inferred.
#include "pass/pass_ramp.h"

struct gathered {
    struct shape data, index, out;
    u32 n;                     /* axes of the data that are indexed, the first ones */
    i32 axis[MAX_RANK];        /* of the result, along which an axis of the data runs; -1: one element */
    sym start[MAX_RANK];       /* elements of each axis of the data */
    sym size[MAX_RANK];
};

/* Axis a of the data, by part a of the indices. */
static bool find_axis(struct graph *g, const struct node *n, u32 a, struct gathered *x)
{
    struct ramp r;
    if (!ramp_of_part(g, n->in.v[1], a, &r)) return false;
    x->axis[a] = -1, x->start[a] = r.base, x->size[a] = sym_const(g->sym, 1);
    for (u32 i = 0; i + 1 < x->index.rank; i++) {
        if (!r.step[i]) continue;
        if (r.step[i] != 1 || x->axis[a] >= 0) return false;
        x->axis[a] = (i32)i, x->size[a] = x->index.dim[i];
    }
    for (u32 b = 0; b < a; b++)
        if (x->axis[a] >= 0 && x->axis[b] == x->axis[a]) return false;
    return ramp_is_inside(g, x->start[a], x->size[a], x->data.dim[a]);
}

static bool find(struct graph *g, const struct node *n, struct gathered *x)
{
    i64 parts;
    if (!str_is(n->op, "GatherND") || attr_int(n, "batch_dims", 0)) return false;
    x->data = graph_value(g, n->in.v[0])->shape, x->index = graph_value(g, n->in.v[1])->shape, x->out = graph_value(g, n->out.v[0])->shape;
    if (!sym_is_const(g->sym, x->index.dim[x->index.rank - 1], &parts) || parts < 1 || parts > x->data.rank) return false;
    x->n = (u32)parts;
    for (u32 a = 0; a < x->n; a++)
        if (!find_axis(g, n, a, x)) return false;
    for (u32 a = x->n; a < x->data.rank; a++) {
        x->axis[a] = (i32)(x->index.rank - 1 + a - x->n), x->start[a] = sym_const(g->sym, 0), x->size[a] = x->data.dim[a];
    }
    return true;
}

/* The axes of the data in the order of the result; those with one element first. false: they are in order. */
static bool order(const struct gathered *x, i64 perm[MAX_RANK])
{
    u32 n = 0;
    bool is_other = false;
    for (i32 to = -1; to < (i32)x->out.rank; to++)
        for (u32 a = 0; a < x->data.rank; a++)
            if (x->axis[a] == to) is_other |= a != n, perm[n++] = a;
    return is_other;
}

static value_id add_views(struct graph *g, node_id id, const struct gathered *x)
{
    i64 perm[MAX_RANK], step[MAX_RANK];
    sym dim[MAX_RANK];
    bool is_moved = order(x, perm);
    value_id v = op_node1(g, id, "quern::Slice", graph_node(g, id)->in.v[0], 0);
    for (u32 a = 0; a < x->data.rank; a++) step[a] = 1;
    op_set_syms(g, op_made(g, v), "start", x->start, x->data.rank);
    op_set_syms(g, op_made(g, v), "size", x->size, x->data.rank);
    attr_set_ints(g, op_made(g, v), "step", step, x->data.rank);
    if (is_moved) v = op_node_perm(g, id, v, x->data.rank, perm, 0);
    for (u32 i = 0; i < x->out.rank; i++) dim[i] = sym_const(g->sym, 1);
    for (u32 a = 0; a < x->data.rank; a++)
        if (x->axis[a] >= 0) dim[x->axis[a]] = x->size[a];
    v = op_node_reshape(g, id, v, x->out.rank, dim, 0);
    return op_node_expand(g, id, v, x->out.rank, x->out.dim, 0);
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    struct gathered x;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++) {
        if (graph_node(g, n)->dead || !find(g, graph_node(g, n), &x)) continue;
        const value_id out = graph_node(g, n)->out.v[0];
        if (graph_is_output(g, out) || !graph_is_read(g, out)) continue;
        const node_id first = g->node.n;
        value_id v = add_views(g, n, &x);
        *ok = op_infer_from(g, first, e);
        graph_replace(g, out, v);
        changed = true;
    }
    return changed;
}

const struct pass pass_slices = {
    .version = 1,
    .name = "slices",
    .summary = "gathering at consecutive positions takes parts of axes",
    .rank = 152,
    .run = run,
};
