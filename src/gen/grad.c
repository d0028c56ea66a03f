// SPDX-License-Identifier: Apache-2.0
//
// grad: the gradient of a convolution's weights taken apart: the convolution that reads x, whose output is dy, and dy read as if by
// another one, of single pixels.
#include "gen/grad.h"

static bool is_exact(const struct grad *q, const struct node *n)
{
    struct op_window w;
    struct shape x = *op_in_shape(q->g, n, 0), y = x;
    op_window_get(q->g, n, &w);
    op_window_sizes(q->g, &w, &x, &y);
    for (u32 a = 2; a < x.rank; a++)
        if (y.dim[a] != q->x.out[a]) return false;
    return x.dim[0] == q->x.out[0];
}

/* The gradient of the output as the input of a convolution that does nothing. */
static struct conv identity_of(const struct conv *x, const struct value *dy)
{
    struct conv c = *x;
    c.x = x->y, c.ic = x->oc;
    for (u32 a = 0; a < c.rank; a++) {
        c.in[a] = c.out[a];
        c.pad[a] = sym_const(x->g->sym, 0);
        c.k[a] = c.dil[a] = c.stride[a] = 1;
        c.free[a] = true;
    }
    c.no_pad = c.point = true;
    c.plain = !dy->producer && !dy->is_const && dy->layout == LAYOUT_CLAST && !dy->sdata && !dy->part.whole;
    c.pitched = dy->part.whole != 0;
    return c;
}

static bool is_simple(const struct grad *q, const struct task *t)
{
    const struct shape *s = &graph_value(q->g, q->dw)->shape;
    if (q->oc * q->groups == 1) return false; /* vectors may not run along an axis of one element */
    for (u32 i = 0; i < t->g.output.n; i++) {
        value_id v = t->g.output.v[i];
        const struct value *o = graph_value(q->g, v);
        if (q->ic % layout_block(o->layout) || !gen_depends(q->g, v, q->dw) || !gen_pointwise_tail(q->g, v, q->dw) ||
            !shape_equal(&o->shape, s))
            return false;
    }
    return true;
}

bool grad_of(struct grad *q, const struct task *t)
{
    i64 dim[MAX_RANK];
    if (!t->anchor || t->n_heavy != 1 || !(op_of(&t->g, t->anchor)->props & OP_CONV_GRAD)) return false;
    const struct node *n = graph_node(&t->g, t->anchor);
    *q = (struct grad){.g = &t->g, .dw = n->out.v[0], .groups = attr_int(n, "group", 1)};
    if (!shape_is_static(t->g.sym, &graph_value(q->g, q->dw)->shape, dim)) return false;
    conv_window(&q->x, q->g, n);
    q->oc = dim[0] / q->groups, q->ic = dim[1];
    q->x.groups = q->groups, q->x.ic = q->ic, q->x.oc = q->oc, q->x.w = q->x.x;
    if (!dtype_is_float(q->x.type) || q->oc < 1 || q->ic < 1) return false;
    const struct value *dy = graph_value(q->g, q->x.y);
    q->y = identity_of(&q->x, dy);
    q->y_in_rows = !dy->producer && !dy->is_const && !dy->sdata && dy->layout == LAYOUT_ROWS;
    q->exact = is_exact(q, n);
    q->simple = is_simple(q, t);
    q->outer = conv_outer(&q->x);
    const struct conv *c = &q->x;
    if (c->xa >= 0 && c->k[c->xa] > 1) q->tap[q->n_taps++] = (u32)c->xa;
    for (u32 a = c->rank; a-- > 2;)
        if ((i32)a != c->xa && c->k[a] > 1) q->tap[q->n_taps++] = a;
    return true;
}

i64 grad_combos(const struct grad *q, i64 n)
{
    i64 all = 1;
    for (i64 i = 0; i < n; i++) all *= q->x.k[q->tap[i]];
    return all;
}

void grad_join_groups(struct grad *q)
{
    if (q->groups == 1 || q->ic > 1 || q->oc > 1) return;
    q->depthwise = true;
    q->oc = q->x.ic = q->x.oc = q->y.ic = q->y.oc = q->groups;
    q->groups = q->x.groups = q->y.groups = 1;
}
