// SPDX-License-Identifier: Apache-2.0
//
// scatter: ScatterND and ScatterElements that replace whole slices of the data, as writes to caches of keys and values do (index_copy, index_put,
// slice_scatter), choose each slice where it is read. quern::ScatterMap tells which update each slice takes, the last one of several, or -1; quern::Replace
// chooses by it. That moves elements only, so it becomes part of the kernels that read it (attention reads a cache in place) instead of copying the data; where
// a kernel stores it, it is vectorised like any other. The map is as long as the indexed axes; all writes with the same indices share it (the caches of all
// layers). Positions that are known to be one behind the other are a concatenation.
//
// Left to the operators' own kernels: reductions, and slices of a few elements, for which the map is as long as the data.
// requires: expanded, inferred.
#include "pass/pass_ramp.h"

enum { LEAST_SLICE = 16 /* elements of a slice */ };

struct write {
    struct shape data;
    value_id x, u;    /* data, updates */
    value_id index;   /* (t.., n_axes): positions along the axes */
    u32 axis, n_axes; /* that are indexed: axis .. axis + n_axes - 1 of the data */
    sym count;        /* of updates */
    bool is_block;    /* they are none, or one behind the other along a single axis, */
    sym first;        /* the first one there */
};

static const struct shape *shape_of(const struct graph *g, value_id v) { return &graph_value(g, v)->shape; }

static sym count_of(struct graph *g, const struct shape *s, u32 from, u32 to)
{
    sym n = sym_const(g->sym, 1);
    for (u32 a = from; a < to; a++) n = sym_mul(g->sym, n, s->dim[a]);
    return n;
}

static bool is_long(struct graph *g, const struct write *w)
{
    i64 slice;
    sym size = sym_mul(g->sym, count_of(g, &w->data, 0, w->axis), count_of(g, &w->data, w->axis + w->n_axes, w->data.rank));
    return !sym_is_const(g->sym, size, &slice) || slice >= LEAST_SLICE;
}

/* Whether the indices, positions along an axis of the data (NULL: unknown), grow by 1 along their axis `along` only, from one that may be counted from the
   end. */
static void find_block(struct graph *g, const struct ramp *r, u32 rank, u32 along, struct write *w)
{
    const sym size = w->data.dim[w->axis];
    i64 first;
    w->is_block = w->count == sym_const(g->sym, 0), w->first = w->count;
    if (w->is_block || !r) return;
    for (u32 a = 0; a < rank; a++)
        if (r->step[a] != (a == along && !ramp_is_one(g, w->count))) return;
    w->first = sym_is_const(g->sym, r->base, &first) && first < 0 ? sym_add(g->sym, size, r->base) : r->base;
    w->is_block = ramp_is_inside(g, w->first, w->count, size);
}

static bool find_nd(struct graph *g, const struct node *n, struct write *w)
{
    const struct shape index = *shape_of(g, n->in.v[1]);
    const u32 last = index.rank - 1;
    struct ramp r;
    i64 n_axes;
    if (!sym_is_const(g->sym, index.dim[last], &n_axes)) return false;
    w->index = n->in.v[1], w->n_axes = (u32)n_axes, w->count = count_of(g, &index, 0, last);
    find_block(g, last == 1 && n_axes == 1 && ramp_of_part(g, w->index, 0, &r) ? &r : NULL, last, 0, w);
    return w->is_block || is_long(g, w);
}

/* Of a constant that is the same along all axes but this one, its elements along this axis; 0: it is not. */
static value_id constant_index(struct graph *g, const struct tensor *t, u32 axis)
{
    const i64 inner = i64_product(t->rank - axis - 1, t->dim + axis + 1), n = t->dim[axis], count = tensor_count(t);
    struct tensor *row = count ? tensor_new(g->arena, t->dtype, 1, &n) : NULL;
    for (i64 i = 0; i < count; i++) {
        const i64 k = i / inner % n, at = elem_i64(t->dtype, t->data, i);
        if (i < n * inner && i % inner == 0) elem_set_i64(t->dtype, row->data, k, at);
        else if (elem_i64(t->dtype, row->data, k) != at) return 0;
    }
    return row ? graph_add_const(g, S("indices"), row) : 0;
}

/* What is repeated along all axes but this one; 0: nothing. */
static value_id repeated_index(struct graph *g, value_id v, u32 axis)
{
    if (graph_value(g, v)->data) return constant_index(g, graph_value(g, v)->data, axis);
    node_id n = graph_value(g, v)->producer;
    if (!n || !str_is(graph_node(g, n)->op, "quern::Expand")) return 0;
    const value_id from = graph_node(g, n)->in.v[0];
    const struct shape *s = shape_of(g, from), *to = shape_of(g, v);
    for (u32 a = 0; a < to->rank; a++) {
        const sym all = to->dim[a], own = a + s->rank < to->rank ? 0 : s->dim[a + s->rank - to->rank];
        const bool is_one = !own || ramp_is_one(g, own);
        if (a == axis ? own != all && !(is_one && ramp_is_one(g, all)) : !is_one) return 0;
    }
    return from;
}

static bool find_elements(struct graph *g, const struct node *n, struct write *w)
{
    const struct shape index = *shape_of(g, n->in.v[1]);
    struct ramp r;
    if (!op_axis(attr_int(n, "axis", 0), w->data.rank, &w->axis)) return false;
    for (u32 a = 0; a < index.rank; a++)
        if (a != w->axis && index.dim[a] != w->data.dim[a]) return false;
    w->n_axes = 1, w->count = index.dim[w->axis];
    find_block(g, ramp_of(g, n->in.v[1], &r) ? &r : NULL, index.rank, w->axis, w);
    w->index = !w->is_block && is_long(g, w) ? repeated_index(g, n->in.v[1], w->axis) : 0;
    return w->is_block || w->index;
}

static bool find(struct graph *g, node_id n, struct write *w)
{
    const struct node *nd = graph_node(g, n);
    const bool is_nd = str_is(nd->op, "ScatterND");
    if (nd->dead || !(is_nd || str_is(nd->op, "ScatterElements")) || !str_is(attr_str(nd, "reduction", "none"), "none")) return false;
    *w = (struct write){.data = *shape_of(g, nd->in.v[0]), .x = nd->in.v[0], .u = nd->in.v[2]};
    return is_nd ? find_nd(g, nd, w) : find_elements(g, nd, w);
}

/* The data before the block, the updates, and the data behind it. */
static void add_parts(struct graph *g, node_id n, const struct write *w, value_id out)
{
    const sym zero = sym_const(g->sym, 0), behind = sym_add(g->sym, w->first, w->count), rest = sym_sub(g->sym, w->data.dim[w->axis], behind);
    value_id part[3];
    u32 n_parts = 0;
    if (w->first != zero) part[n_parts++] = op_node_slice(g, n, w->x, &w->data, w->axis, zero, w->first, 0);
    if (w->count != zero) part[n_parts++] = w->u;
    if (rest != zero) part[n_parts++] = op_node_slice(g, n, w->x, &w->data, w->axis, behind, rest, 0);
    if (n_parts > 1) op_node_concat(g, n, n_parts, part, w->axis, out);
    else op_node_reshape(g, n, part[0], w->data.rank, w->data.dim, out);
}

static value_id add_map(struct graph *g, node_id n, const struct write *w)
{
    const sym tuples[] = {w->count, sym_const(g->sym, w->n_axes)};
    value_id map = op_node1(g, n, "quern::ScatterMap", op_node_reshape(g, n, w->index, 2, tuples, 0), 0);
    op_set_syms(g, op_made(g, map), "sizes", w->data.dim + w->axis, w->n_axes);
    return w->n_axes == 1 ? map : op_node_reshape(g, n, map, w->n_axes, w->data.dim + w->axis, 0);
}

/* The updates with one axis for their numbers. */
static value_id add_updates(struct graph *g, node_id n, const struct write *w)
{
    const u32 rank = w->data.rank - w->n_axes + 1;
    sym dim[MAX_RANK];
    for (u32 a = 0; a < rank; a++) dim[a] = a < w->axis ? w->data.dim[a] : a == w->axis ? w->count : w->data.dim[a + w->n_axes - 1];
    return shape_of(g, w->u)->rank == rank ? w->u : op_node_reshape(g, n, w->u, rank, dim, 0);
}

static void add_choice(struct graph *g, node_id n, const struct write *w, value_id out)
{
    value_id map = add_map(g, n, w), updates = add_updates(g, n, w);
    out = op_node(g, n, "quern::Replace", 3, (value_id[]){w->x, map, updates}, out);
    attr_set_int(g, op_made(g, out), "axis", w->axis);
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    struct write w;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++) {
        if (graph_node(g, n)->dead || !find(g, n, &w)) continue;
        const node_id added = g->node.n;
        const value_id out = graph_node(g, n)->out.v[0];
        graph_node(g, n)->dead = true;
        if (w.is_block) add_parts(g, n, &w, out);
        else add_choice(g, n, &w, out);
        *ok = op_infer_from(g, added, e);
        changed = true;
    }
    return changed;
}

const struct pass pass_scatter = {
    .version = 1,
    .name = "scatter",
    .summary = "slices that are replaced are chosen where they are read",
    .rank = 153,
    .run = run,
};
