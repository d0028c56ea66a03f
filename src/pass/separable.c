// SPDX-License-Identifier: Apache-2.0
//
// separable: interpolation along several axes is one along each of them, where the values in between are few beside the results
// or spare many reads: enlarging by LARGE or more, cubic and antialiased filters. An element then has taps of one axis instead of
// the product of all, and only the first step, on the smaller image, reads neighbours along x that lie where no vector has them.
// requires: expanded, inferred. Values are f32 or f64, which are not rounded noticeably in between.
#include "pass/pass.h"

enum { LARGE = 4 };

/* By how much an axis is enlarged, at least, if that is known: whether it is `times` or more. */
static bool enlarges(const struct graph *g, const struct op_resize *r, u32 a, i64 times)
{
    i64 num, den;
    return sym_is_const(g->sym, r->num[a], &num) && sym_is_const(g->sym, r->den[a], &den) && num >= times * den;
}

/* The axis to interpolate along first, less than rank; rank: all at once. Innermost axes first, unless that axis is made smaller. */
static u32 first_axis(const struct graph *g, const struct op_resize *r)
{
    u32 n = 0, last = r->rank, first = r->rank;
    bool is_large = true;
    for (u32 a = 0; a < r->rank; a++) {
        if (op_resize_same(r, a)) continue;
        if (!n++) first = a;
        last = a, is_large = is_large && enlarges(g, r, a, LARGE);
    }
    if (n < 2 || r->coord == COORD_TF_CROP || (!is_large && r->mode != RESIZE_CUBIC && !r->antialias)) return r->rank;
    return enlarges(g, r, last, 1) ? last : first;
}

static void keep_axis(struct op_resize *r, u32 a, const struct graph *g)
{
    r->out[a] = r->in[a];
    r->num[a] = r->den[a] = sym_const(g->sym, 1);
}

static bool split(struct graph *g, node_id n, bool *ok, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    struct op_resize r, one, rest;
    if (!op_resize_get(g, graph_node(g, n), &r)) return false;
    u32 axis = first_axis(g, &r);
    if (axis == r.rank) return false;
    one = rest = r;
    for (u32 a = 0; a < r.rank; a++) keep_axis(a == axis ? &rest : &one, a, g);
    rest.in[axis] = rest.out[axis] = r.out[axis];
    const char *name = op_of(g, n)->name;
    value_id between = op_node1(g, n, name, nd.in.v[0], 0);
    op_resize_put(g, op_made(g, between), &one);
    *ok = op_infer(g, op_made(g, between), e);
    graph_node(g, n)->in.v[0] = between;
    op_resize_put(g, n, &rest);
    *ok = *ok && op_infer(g, n, e);
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead || !(op_of(g, n)->props & OP_SAMPLE) || !str_is(x->op, "quern::Resize")) continue;
        enum dtype t = graph_value(g, x->out.v[0])->dtype;
        if (t == DT_F32 || t == DT_F64) changed |= split(g, n, ok, e);
    }
    return changed;
}

const struct pass pass_separable = {
    .version = 1,
    .name = "separable",
    .summary = "interpolates along one axis after the other",
    .rank = 149,
    .run = run,
};
