// SPDX-License-Identifier: Apache-2.0
//
// taps: taps of a convolution's window that meet nothing but padding, wherever the window lies, are cut off, as those of large
// dilations on small images are (atrous pyramids of segmentation networks). Rows of taps at either end of an axis can be: the
// window becomes smaller by them, and the padding by as much.
// requires: expanded, inferred. The sizes of input and output and the padding are known; weights are constant, padding is zero.
#include "pass/pass.h"

/* Taps first..last of an axis are kept. */
struct range { i64 first, last; };

struct axis { i64 in, out, kernel, stride, dilation, begin, end; };

/* Does a tap meet the input at any position of the window? */
static bool meets(const struct axis *x, i64 tap)
{
    i64 at = tap * x->dilation - x->begin; /* in the input, of output 0 */
    i64 o = at < 0 ? ceil_div(-at, x->stride) : 0; /* the first output whose input is not in front */
    return o < x->out && at + o * x->stride < x->in;
}

/* No padding becomes negative. One tap stays even if none meets the input. */
static struct range range_of(const struct axis *x)
{
    struct range r = {0, x->kernel - 1};
    while (r.first < r.last && !meets(x, r.first) && x->begin >= (r.first + 1) * x->dilation) r.first++;
    while (r.first < r.last && !meets(x, r.last) && x->end >= (x->kernel - r.last) * x->dilation) r.last--;
    return r;
}

static bool axis_of(const struct graph *g, const struct node *n, const struct op_window *w, u32 i, struct axis *x)
{
    const struct shape *in = &graph_value(g, n->in.v[0])->shape, *out = &graph_value(g, n->out.v[0])->shape;
    *x = (struct axis){.kernel = w->kernel[i], .stride = w->stride[i], .dilation = w->dilation[i]};
    return sym_is_const(g->sym, in->dim[2 + i], &x->in) && sym_is_const(g->sym, out->dim[2 + i], &x->out) &&
           sym_is_const(g->sym, w->begin[i], &x->begin) && sym_is_const(g->sym, w->end[i], &x->end) && x->begin >= 0;
}

/* Returns whether the window became smaller. */
static bool cut(struct graph *g, node_id n, bool *ok, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    struct op_window w;
    struct axis axis[MAX_RANK];
    i64 pads[2 * MAX_RANK], kernel[MAX_RANK];
    value_id weights = nd.in.v[1];
    struct shape s = graph_value(g, weights)->shape;
    u32 first_new = g->node.n;
    op_window_get(g, graph_node(g, n), &w);
    for (u32 i = 0; i < w.n; i++)
        if (!axis_of(g, &nd, &w, i, &axis[i])) return false;
    for (u32 i = 0; i < w.n; i++) {
        const struct axis x = axis[i];
        const struct range r = range_of(&x);
        kernel[i] = r.last - r.first + 1;
        pads[i] = x.begin - r.first * x.dilation, pads[w.n + i] = x.end - (x.kernel - 1 - r.last) * x.dilation;
        if (kernel[i] == x.kernel) continue;
        sym size = sym_const(g->sym, kernel[i]);
        weights = op_node_slice(g, n, weights, &s, 2 + i, sym_const(g->sym, r.first), size, 0);
        s.dim[2 + i] = size;
    }
    if (weights == nd.in.v[1]) return false;
    for (node_id k = first_new; k < g->node.n && *ok; k++) *ok = op_infer(g, k, e);
    graph_node(g, n)->in.v[1] = weights;
    attr_set_ints(g, n, "kernel_shape", kernel, w.n);
    attr_set_ints(g, n, "pads", pads, 2 * w.n);
    *ok = *ok && op_infer(g, n, e);
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead || !(op_of(g, n)->props & OP_CONV) || node_attr(x, "ends") || op_has_in(x, 3)) continue;
        if (graph_value(g, x->in.v[1])->is_const) changed |= cut(g, n, ok, e);
    }
    return changed;
}

const struct pass pass_taps = {
    .version = 1,
    .name = "taps",
    .summary = "cuts off taps of convolutions that meet nothing but padding",
    .rank = 144,
    .run = run,
};
