// SPDX-License-Identifier: Apache-2.0
//
// row: tasks with reductions taken apart. When all reductions run over the same axes of values
// of one shape, and what lies between them is pointwise, a family may do everything for a row at
// once (`fused`); else it does one reduction at a time.
#include "gen/row.h"

#include <string.h>

/* The values behind v, bound ones excepted, are pointwise on v's shape or on that of the
 * reductions' results. */
static bool is_aligned(const struct row_task *x, value_id v, u32 depth)
{
    const struct graph *g = x->g;
    const struct value *val = graph_value(g, v);
    bool on_way = false;
    for (u32 i = 0; i < x->n; i++) {
        if (v == x->red[i].out) return true;
        on_way = on_way || gen_depends(g, v, x->red[i].out);
    }
    if (!on_way) return true;
    if (!(op_of(g, val->producer)->props & OP_POINTWISE) || depth > 60) return false;
    const struct shape *full = &graph_value(g, x->red[0].in)->shape,
                       *less = &graph_value(g, x->red[0].out)->shape;
    if (!shape_equal(&val->shape, less) &&
        !(x->red[0].r.keepdims && shape_equal(&val->shape, full)))
        return false;
    const struct node *n = graph_node(g, val->producer);
    for (u32 i = 0; i < n->in.n; i++)
        if (n->in.v[i] && !is_aligned(x, n->in.v[i], depth + 1)) return false;
    return true;
}

static bool is_fused(const struct row_task *x, const struct task *t)
{
    const struct graph *g = x->g;
    const struct reduction *a = &x->red[0];
    for (u32 i = 1; i < x->n; i++) {
        const struct reduction *b = &x->red[i];
        bool same = a->r.n_axes == b->r.n_axes && a->r.keepdims == b->r.keepdims &&
                    !memcmp(a->r.axis, b->r.axis, sizeof a->r.axis[0] * a->r.n_axes) &&
                    shape_equal(&graph_value(g, a->in)->shape, &graph_value(g, b->in)->shape);
        if (!same || !is_aligned(x, b->in, 0)) return false;
    }
    const struct shape *full = &graph_value(g, a->in)->shape,
                       *less = &graph_value(g, a->out)->shape;
    for (u32 i = 0; i < t->g.output.n; i++) {
        value_id v = t->g.output.v[i];
        const struct value *o = graph_value(g, v);
        bool fits = shape_equal(&o->shape, less) || (a->r.keepdims && shape_equal(&o->shape, full));
        if (!fits || !is_aligned(x, v, 0) || o->layout == LAYOUT_C8 || o->layout == LAYOUT_C16)
            return false;
    }
    return true;
}

bool row_of(struct row_task *x, const struct task *t)
{
    *x = (struct row_task){.g = &t->g};
    if (t->anchor) return false;
    for (node_id n = 1; n < t->g.node.n; n++) {
        const struct op *op = op_of(&t->g, n);
        const struct node *nd = graph_node(&t->g, n);
        if (op->props & (OP_WHOLE | OP_HEAVY)) return false;
        if (!(op->props & OP_REDUCE)) continue;
        struct reduction r = {.node = n, .in = nd->in.v[0], .out = nd->out.v[0]};
        if (x->n == MAX_REDUCE || !op->reduce(&t->g, nd, &r.r)) return false;
        x->red[x->n++] = r;
    }
    x->fused = x->n && is_fused(x, t);
    return x->n > 0;
}

double row_length(const struct row_task *x, const i64 *var)
{
    double n = gen_count(x->g, x->red[0].in, var), rows = gen_count(x->g, x->red[0].out, var);
    return rows > 0 ? n / rows : n;
}

bool row_is_float_only(const struct graph *g)
{
    for (value_id v = 1; v < g->value.n; v++)
        if (!dtype_is_float(graph_value(g, v)->dtype) && graph_value(g, v)->dtype != DT_BOOL)
            return false;
    return true;
}

bool row_is_worth_keeping(const struct row_task *x, u32 i)
{
    value_id v = x->red[i].in;
    if (!graph_value(x->g, v)->producer) return false;
    for (node_id n = 1; n < x->g->node.n; n++) {
        const struct node *nd = graph_node(x->g, n);
        for (u32 k = 0; n != x->red[i].node && k < nd->in.n; k++)
            if (nd->in.v[k] == v) return true;
    }
    return false;
}

bool row_may_be_vector(const struct row_task *x)
{
    const struct graph *g = x->g;
    for (u32 i = 0; i < x->n; i++)
        if (!dtype_is_float(graph_value(g, x->red[i].in)->dtype) || !dtype_is_float(graph_value(g, x->red[i].out)->dtype)) return false;
    for (value_id v = 1; v < g->value.n; v++) {
        enum dtype t = graph_value(g, v)->dtype;
        if (!dtype_is_float(t) && t != DT_BOOL && dtype_size(t) > 4) return false;
    }
    return true;
}

bool row_computes(const struct row_task *x)
{
    for (u32 i = 0; i < x->n; i++)
        if (row_is_worth_keeping(x, i)) return true;
    return false;
}

/* Space. */

/* That of an input of v's shape, or of the largest of its rank, of which v may be a view: parts of a concatenation. */
static enum layout dense_layout(const struct row_task *x, value_id v)
{
    const struct graph *g = x->g;
    const struct shape *s = &graph_value(g, v)->shape;
    enum layout best = LAYOUT_ROWS;
    double most = 1;
    for (u32 i = 0; i < g->input.n; i++) {
        const struct value *in = graph_value(g, g->input.v[i]);
        if (in->shape.rank != s->rank || (in->layout != LAYOUT_ROWS && in->layout != LAYOUT_CLAST)) continue;
        if (shape_equal(&in->shape, s)) return in->layout;
        double n = gen_count(g, g->input.v[i], NULL);
        if (n > most) most = n, best = in->layout;
    }
    return best;
}

static bool is_reduced(const struct op_reduce *r, u32 axis)
{
    for (u32 i = 0; i < r->n_axes; i++)
        if (r->axis[i] == axis) return true;
    return false;
}

/* Channels behind the axes that they are reduced with are not in their place. */
static enum layout space_layout(const struct row_task *x, const struct reduction *red)
{
    bool may_permute = is_reduced(&red->r, 1) && red->r.axis[red->r.n_axes - 1] > 1;
    return x->ordered && may_permute ? LAYOUT_ROWS : dense_layout(x, red->in);
}

value_id row_waiting_room(const struct row_task *x)
{
    const struct reduction *last = &x->red[x->n - 1];
    if (!x->fused || x->g->output.n != 1 || !row_is_worth_keeping(x, x->n - 1)) return 0;
    for (u32 i = 0; i + 1 < x->n; i++)
        if (x->red[i].in == last->in) return 0; /* it is kept already */
    value_id v = x->g->output.v[0];
    const struct value *out = graph_value(x->g, v), *in = graph_value(x->g, last->in);
    bool fits = shape_equal(&out->shape, &in->shape) && out->dtype == in->dtype && out->layout == space_layout(x, &x->red[0]);
    return fits && emit_type(out->dtype) == out->dtype ? v : 0;
}

void row_space_of(struct row_space *s, const struct row_task *x, const struct reduction *red)
{
    const struct graph *g = x->g;
    const struct shape *in = &graph_value(g, red->in)->shape;
    value_id v[MAX_REDUCE + 16], stop[MAX_REDUCE + 1] = {0};
    u32 n = 0, set = 0, rank = in->rank;
    *s = (struct row_space){.sp.rank = rank};
    for (u32 i = 0; i < red->r.n_axes; i++) set |= 1u << red->r.axis[i];
    for (u32 i = 0; i < x->n; i++) v[n++] = x->red[i].in, stop[i] = x->red[i].out;
    for (u32 i = 0; i < g->output.n && n < countof(v); i++)
        if (graph_value(g, g->output.v[i])->shape.rank == rank) v[n++] = g->output.v[i];
    bool merge = x->fused && red->r.keepdims && g->output.n <= 16;
    enum layout l = space_layout(x, red);
    if (merge) {
        space_of_all(&s->sp, g, v, n, l, stop, set);
    } else {
        u32 order[MAX_RANK];
        layout_order(l, rank, order);
        for (u32 i = 0; i < rank; i++)
            if (gen_static(g, in->dim[order[i]], 0) != 1)
                s->sp.g[s->sp.n++] = (struct axis_run){in->dim[order[i]], order[i]};
    }
    s->inner = s->sp.n;
    for (u32 i = 0; i < s->sp.n; i++) {
        s->reduced[i] = is_reduced(&red->r, s->sp.g[i].axis) && rank;
        if (s->reduced[i]) s->inner = i;
    }
    u32 last = s->sp.n - 1;
    s->across = s->sp.n && !s->reduced[last] && gen_static(g, s->sp.g[last].extent, 0) != 1;
}

void row_less_index(struct emit *m, const struct reduction *red, const kval full[MAX_RANK],
                    kval idx[MAX_RANK])
{
    u32 n = 0, rank = graph_value(m->g, red->in)->shape.rank;
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = kir_int(m->k, 0);
    for (u32 a = 0; a < rank; a++) {
        bool gone = is_reduced(&red->r, a);
        if (!gone) idx[n++] = full[a];
        else if (red->r.keepdims) n++;
    }
}

kval row_dense_index(struct emit *m, value_id v, const kval *idx)
{
    const struct shape *s = &graph_value(m->g, v)->shape;
    kval at = kir_int(m->k, 0);
    for (u32 i = 0; i < s->rank; i++)
        at = kir_add(m->k, kir_mul(m->k, at, emit_size(m, s->dim[i])), idx[i]);
    return at;
}
