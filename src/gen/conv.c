// SPDX-License-Identifier: Apache-2.0
//
// conv: convolutions taken apart: sizes, windows, axes of the tile, and what stands behind.
#include "gen/conv.h"

bool sym_is(const struct graph *g, sym s, i64 want)
{
    i64 x;
    return sym_is_const(g->sym, s, &x) && x == want;
}

/* The two innermost axes of pixels that are more than one pixel long. */
static void find_tile_axes(struct conv *c)
{
    c->xa = c->ya = -1;
    for (i32 a = (i32)c->rank - 1; a >= 0; a--) {
        if (a == 1 || sym_is(c->g, c->out[a], 1)) continue;
        if (c->xa < 0) {
            c->xa = a;
        } else {
            c->ya = a ? a : -1;
            return;
        }
    }
}

bool conv_fit(struct conv *c, const struct task *t)
{
    c->simple = true;
    enum layout first = graph_value(c->g, t->g.output.v[0])->layout;
    for (u32 i = 0; i < t->g.output.n; i++) {
        value_id v = t->g.output.v[i];
        enum layout l = graph_value(c->g, v)->layout;
        i64 block = layout_block(l);
        c->simple = c->simple && c->oc * c->groups % block == 0 && l == first && gen_depends(c->g, v, c->y) &&
                    gen_pointwise_tail(c->g, v, c->y) &&
                    shape_equal(&graph_value(c->g, v)->shape, &graph_value(c->g, c->y)->shape);
    }
    c->by_rows = c->simple && (first == LAYOUT_ROWS || c->oc * c->groups == 1);
    /* Rows of one pixel: the channels are what lies densely. */
    if (c->by_rows && c->xa <= 0 && c->oc * c->groups > 1) c->by_rows = false;
    return !(c->by_rows && c->xa < 0);
}

i64 conv_run(const struct conv *c, i64 channels)
{
    const struct value *y = graph_value(c->g, c->g->output.v[0]);
    i64 size = dtype_size(y->dtype), block = layout_block(y->layout);
    if (!c->simple || c->by_rows || c->oc * size % 64) return 0;
    channels = i64_min(channels, c->oc);
    return size * (block > 1 ? i64_min(channels, block) : channels);
}

void conv_window(struct conv *c, const struct graph *g, const struct node *n)
{
    struct op_window w;
    bool is_grad = op_of(g, (node_id)(n - g->node.v))->props & OP_CONV_GRAD;
    *c = (struct conv){.g = g, .x = n->in.v[0], .y = is_grad ? n->in.v[1] : n->out.v[0], .groups = 1};
    const struct value *x = graph_value(g, c->x), *y = graph_value(g, c->y);
    op_window_get(g, n, &w);
    c->rank = x->shape.rank;
    c->no_pad = c->point = true, c->present = 1;
    for (u32 a = 0; a < c->rank; a++) {
        c->in[a] = x->shape.dim[a], c->out[a] = y->shape.dim[a];
        c->pad[a] = a < 2 ? sym_const(g->sym, 0) : w.begin[a - 2];
        c->k[a] = a < 2 ? 1 : w.kernel[a - 2];
        c->dil[a] = a < 2 ? 1 : w.dilation[a - 2];
        c->stride[a] = a < 2 ? 1 : w.stride[a - 2];
        bool end_free = a < 2 || sym_is(g, w.end[a - 2], 0);
        c->free[a] = sym_is(g, c->pad[a], 0) && end_free;
        c->no_pad = c->no_pad && c->free[a];
        c->point = c->point && c->k[a] == 1 && c->stride[a] == 1;
    }
    c->point = c->point && c->no_pad;
    c->plain = !x->producer && !x->is_const && x->layout == LAYOUT_CLAST && !x->sdata &&
               (!x->part.whole || x->part.axis == 1);
    c->pitched = x->part.whole != 0;
    c->type = emit_type(op_sum_type(x->dtype));
    find_tile_axes(c);
}

static bool take_any(struct conv *c, const struct graph *g, node_id id)
{
    i64 wd[MAX_RANK];
    if (!id || !(op_of(g, id)->props & OP_CONV)) return false;
    const struct node *n = graph_node(g, id);
    const struct value *wt = graph_value(g, n->in.v[1]);
    bool is_static = shape_is_static(g->sym, &wt->shape, wd);
    if (!is_static) return false;
    conv_window(c, g, n);
    c->w = n->in.v[1], c->b = op_has_in(n, 2) ? n->in.v[2] : 0;
    c->fill = op_has_in(n, 3) ? n->in.v[3] : 0;
    c->groups = attr_int(n, "group", 1);
    c->acc16 = op_acc16(n);
    c->oc = wd[0] / c->groups, c->ic = wd[1];
    return true;
}

bool conv_take(struct conv *c, const struct graph *g, node_id id)
{
    return take_any(c, g, id) && dtype_is_float(c->type);
}

bool conv_anchor(struct conv *c, const struct task *t)
{
    return t->n_heavy == 1 && conv_take(c, &t->g, t->anchor);
}

bool conv_anchor_any(struct conv *c, const struct task *t) { return t->n_heavy == 1 && take_any(c, &t->g, t->anchor); }

bool conv_of(struct conv *c, const struct task *t)
{
    return conv_anchor(c, t) && conv_fit(c, t);
}

bool conv_of_any(struct conv *c, const struct task *t)
{
    return conv_anchor_any(c, t) && conv_fit(c, t);
}

static enum layout layout_behind(const struct graph *g, value_id v, u32 depth)
{
    const struct value *x = graph_value(g, v);
    if (x->producer == 0 || depth > 16) return x->layout;
    const struct node *n = graph_node(g, x->producer);
    for (u32 k = 0; k < n->in.n; k++)
        if (n->in.v[k] && !graph_value(g, n->in.v[k])->is_const &&
            graph_value(g, n->in.v[k])->shape.rank == x->shape.rank)
            return layout_behind(g, n->in.v[k], depth + 1);
    return LAYOUT_ROWS;
}

enum layout conv_input_layout(const struct conv *c) { return layout_behind(c->g, c->x, 0); }

i64 conv_lanes(const struct conv *c, const struct caps *caps)
{
    return gen_lanes(caps, c->type);
}

i64 conv_column_lanes(const struct conv *c, const struct caps *caps)
{
    enum { LEAST = 16 /* bytes */ };
    i64 lanes = conv_lanes(c, caps);
    if (conv_product_of_rows(c, caps).terms > 1) return lanes;
    while (lanes * dtype_size(c->type) > LEAST && c->oc <= lanes / 2) lanes /= 2;
    return lanes;
}

static struct tile_operands operands_of(const struct conv *c)
{
    return (struct tile_operands){graph_value(c->g, c->x)->dtype, graph_value(c->g, c->w)->dtype, c->type, c->ic, c->acc16};
}

struct tile_product conv_product(const struct conv *c, const struct caps *caps)
{
    const struct tile_operands o = operands_of(c);
    return c->ic == 1 ? tile_multiply_add : tile_product_of(caps, &o);
}

struct tile_product conv_product_of_rows(const struct conv *c, const struct caps *caps)
{
    const struct tile_operands o = operands_of(c);
    return c->ic == 1 ? tile_multiply_add : tile_product_of_rows(caps, &o);
}

bool conv_is_inside(const struct conv *c, u32 a)
{
    i64 pad = gen_static(c->g, c->pad[a], -1), in = gen_static(c->g, c->in[a], -1),
        out = gen_static(c->g, c->out[a], -1);
    if (c->no_pad || a == 0) return true;
    return pad == 0 && in >= 0 && out >= 0 &&
           (out - 1) * c->stride[a] + (c->k[a] - 1) * c->dil[a] < in;
}

bool conv_is_flat(const struct conv *c, const struct conv_sched *s)
{
    if (s->merged) return true;
    bool apart = layout_block(graph_value(c->g, c->x)->layout) > 1; /* the images of a batch do */
    if (apart && !sym_is(c->g, c->in[0], 1)) return false;
    return s->stage == STAGE_DIRECT && c->point && c->simple;
}

struct space conv_space(const struct conv *c)
{
    struct space s, r = {0};
    const value_id stop[] = {c->y, 0};
    if (c->phases) {
        sym n = c->out[0];
        for (u32 a = 2; a < c->rank; a++) n = sym_mul(c->g->sym, n, c->out[a]);
        return (struct space){.rank = c->rank, .n = 1, .g = {{n, c->rank - 1}}};
    }
    space_of(&s, c->g, c->simple ? c->g->output.v[0] : c->y, stop, 1u << 1);
    for (u32 i = 1; c->simple && i < c->g->output.n; i++) {
        struct space o;
        space_of(&o, c->g, c->g->output.v[i], stop, 1u << 1);
        if (o.n > s.n) s = o;
    }
    r.rank = s.rank;
    for (u32 i = 0; i < s.n; i++)
        if (s.g[i].axis != 1) r.g[r.n++] = s.g[i];
    return r;
}

struct space conv_outer(const struct conv *c)
{
    struct space s = {.rank = c->rank};
    for (u32 a = 0; a < c->rank; a++)
        if (a != 1 && (i32)a != c->xa && (i32)a != c->ya)
            s.g[s.n++] = (struct axis_run){c->out[a], a};
    return s;
}
