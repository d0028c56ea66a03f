// SPDX-License-Identifier: Apache-2.0
//
// tail: what stands behind a convolution. Outputs are pointwise in its elements, or in those of one pooling whose windows lie side
// by side without padding, so that a kernel with a window's elements in registers can pool and store them. Several outputs may be
// wanted: in a network with skip connections the convolution's own stand beside the pooling's.
#include "gen/conv.h"

/* The last pooling between v and y. */
static value_id find_pool(const struct graph *g, value_id v, value_id y)
{
    for (node_id n = g->node.n; n-- > 1;) {
        const struct node *x = graph_node(g, n);
        if (x->dead || !(op_of(g, n)->props & OP_WINDOW) || x->out.v[0] == y) continue;
        if (x->out.v[0] && gen_depends(g, v, x->out.v[0]) && gen_depends(g, x->out.v[0], y)) return x->out.v[0];
    }
    return 0;
}

static bool takes_pool(struct conv_tail *t, const struct conv *c, value_id pool)
{
    node_id p = graph_value(c->g, pool)->producer;
    const struct node *n = graph_node(c->g, p);
    struct op_window w;
    if (!op_of(c->g, p)->pool || n->out.v[0] != pool || (n->out.n > 1 && n->out.v[1])) return false;
    if (!gen_pointwise_behind(c->g, n->in.v[0], c->y, c->y)) return false;
    op_window_get(c->g, n, &w);
    for (u32 a = 0; a < c->rank; a++) {
        t->win[a] = a < 2 ? 1 : w.kernel[a - 2];
        bool is_none = a < 2 || (w.kernel[a - 2] == 1 && w.stride[a - 2] == 1);
        if (!is_none && (w.stride[a - 2] != w.kernel[a - 2] || w.dilation[a - 2] != 1)) return false;
    }
    for (u32 i = 0; i < w.n; i++)
        if (!sym_is(c->g, w.begin[i], 0) || !sym_is(c->g, w.end[i], 0)) return false;
    t->pool = pool, t->ragged = w.ceil;
    return true;
}

static bool takes_output(struct conv_tail *t, const struct conv *c, u32 i)
{
    const struct graph *g = c->g;
    value_id v = g->output.v[i], pool = find_pool(g, v, c->y), from = pool ? pool : c->y;
    if (!gen_depends(g, v, c->y) || (pool && t->pool && pool != t->pool)) return false;
    if (pool && !takes_pool(t, c, pool)) return false;
    t->pooled |= pool ? 1u << i : 0;
    t->all_pooled &= pool != 0;
    return shape_equal(&graph_value(g, v)->shape, &graph_value(g, from)->shape) && gen_pointwise_behind(g, v, from, c->y);
}

bool conv_tail_of(struct conv_tail *t, const struct conv *c)
{
    *t = (struct conv_tail){.all_pooled = true};
    if (c->g->output.n > 32) return false;
    for (u32 i = 0; i < c->g->output.n; i++)
        if (!takes_output(t, c, i)) return false;
    return true;
}

kval conv_tail_element(struct emit *m, const struct conv_tail *t, value_id y, const kval *idx, kval v, kval limit)
{
    const struct node *n = graph_node(m->g, graph_value(m->g, t->pool)->producer);
    struct op_pool p = {0};
    op_of(m->g, graph_value(m->g, t->pool)->producer)->pool(m->g, n, &p);
    emit_bind(m, y, gen_given, &v);
    emit_limit(m, limit);
    kval x = emit_value(m, n->in.v[0], idx);
    emit_limit(m, 0);
    emit_bind(m, y, NULL, NULL);
    return p.tap ? p.tap(m->k, x, p.p) : x;
}

kval conv_tail_pool(struct emit *m, const struct conv_tail *t, const kval *x, i64 n)
{
    struct kir *k = m->k;
    node_id node = graph_value(m->g, t->pool)->producer;
    struct op_pool p = {0};
    op_of(m->g, node)->pool(m->g, graph_node(m->g, node), &p);
    kval sum = x[0];
    if (p.combine == KI_MAX) sum = emit_combine(k, KI_MAX, kir_splat(k, emit_neutral(m, KI_MAX, kir_dtype(k, sum)), kir_lanes(k, sum)), sum);
    for (i64 i = 1; i < n; i++) sum = emit_combine(k, p.combine, sum, x[i]);
    if (p.mean) sum = kir_mul(k, sum, kir_const_f(k, kir_dtype(k, sum), kir_lanes(k, sum), 1.0 / (double)n));
    return p.finish ? p.finish(k, sum, p.p) : sum;
}

void conv_tail_store(struct emit *m, const struct conv_tail *t, value_id of, const kval *idx, kval v, kval limit)
{
    bool pooled = t->pool && of == t->pool;
    emit_bind(m, of, gen_given, &v);
    emit_limit(m, limit);
    for (u32 i = 0; i < m->g->output.n; i++) {
        value_id out = m->g->output.v[i];
        if ((t->pooled >> i & 1) == pooled) emit_store_n(m, out, idx, emit_value(m, out, idx), limit);
    }
    emit_limit(m, 0);
    emit_bind(m, of, NULL, NULL);
}
