// SPDX-License-Identifier: Apache-2.0
//
// quantised: brings quantised values into the form that integer products read: u8, stored once, with nothing but quantised values between layers.
// For devices that multiply integers. requires: inferred, not yet expanded. ensures: new nodes are inferred. All rules are exact:
//
//   i8 with zero point z is u8 with zero point z + 128, for values that only DequantizeLinear reads.
//   QuantizeLinear of values that are moved or of which the largest is taken quantises them before: it is monotone, element by element.
//   QuantizeLinear of DequantizeLinear with the same scale and zero point has no effect: k*scale/scale differs from k, at most 255, by less than half.
//
// Scales and zero points are constants, one for the whole tensor.
#include "pass/pass_linear.h"

/* Whether only DequantizeLinear reads v, bytes with that zero point. */
static bool only_dequantised(const struct graph *g, value_id v, i64 zero)
{
    struct linear l;
    if (graph_is_output(g, v)) return false;
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        for (u32 k = 0; k < x->in.n && !x->dead; k++)
            if (x->in.v[k] == v && (k > 0 || !linear_find(g, n, "DequantizeLinear", &l) || l.zero != zero)) return false;
    }
    return true;
}

static bool shift_zero(struct graph *g, node_id n, i64 zero, struct err *e)
{
    value_id z = op_const_f(g, DT_U8, (double)zero + 128);
    if (graph_node(g, n)->in.n > LINEAR_ZERO) graph_node(g, n)->in.v[LINEAR_ZERO] = z;
    else node_add_in(g, n, z);
    attr_remove(g, n, "output_dtype");
    return op_infer(g, n, e);
}

/* i8 becomes u8. */
static bool become_unsigned(struct graph *g, node_id n, bool *ok, struct err *e)
{
    struct linear l;
    if (!linear_find(g, n, "QuantizeLinear", &l) || l.type != DT_I8) return false;
    value_id v = graph_node(g, n)->out.v[0];
    if (!only_dequantised(g, v, l.zero)) return false;
    *ok = shift_zero(g, n, l.zero, e);
    for (node_id i = 1; i < g->node.n && *ok; i++)
        if (!graph_node(g, i)->dead && graph_node(g, i)->in.n && graph_node(g, i)->in.v[0] == v) *ok = shift_zero(g, i, l.zero, e);
    return true;
}

static node_id maker(const struct graph *g, value_id v) { return v ? graph_value(g, v)->producer : 0; }

/* Quantises what it has been dequantised from. */
static bool cancel(struct graph *g, node_id n)
{
    struct linear q, d;
    const struct node *x = graph_node(g, n);
    if (!linear_find(g, n, "QuantizeLinear", &q)) return false;
    node_id p = maker(g, x->in.v[0]);
    if (graph_is_output(g, x->out.v[0]) || !linear_find(g, p, "DequantizeLinear", &d)) return false;
    if (q.type != d.type || q.scale != d.scale || q.zero != d.zero) return false;
    graph_replace(g, x->out.v[0], graph_node(g, p)->in.v[0]);
    graph_node(g, n)->dead = true;
    return true;
}

static bool all_dequantised(const struct graph *g, node_id n)
{
    const struct node *x = graph_node(g, n);
    struct linear l;
    for (u32 k = 0; k < linear_n_moved(x); k++)
        if (!linear_find(g, maker(g, x->in.v[k]), "DequantizeLinear", &l)) return false;
    return true;
}

/* Quantises the operands of a move instead of its result, which nothing else reads. */
static bool quantise_before(struct graph *g, node_id n, const u32 *uses, bool *ok, struct err *e)
{
    struct linear l;
    if (!linear_find(g, n, "QuantizeLinear", &l)) return false;
    const struct node q = *graph_node(g, n);
    node_id m = maker(g, q.in.v[0]);
    if (!m || graph_node(g, m)->dead || !linear_n_moved(graph_node(g, m)) || uses[q.in.v[0]] != 1 || !all_dequantised(g, m)) return false;
    const struct node x = *graph_node(g, m);
    node_id first = g->node.n;
    value_id *in = arena_array(g->arena, value_id, x.in.n), zero = op_node_input(&q, LINEAR_ZERO);
    if (!zero) zero = op_const_f(g, l.type, 0);
    for (u32 k = 0; k < x.in.n; k++) {
        in[k] = x.in.v[k];
        if (k < linear_n_moved(&x)) in[k] = op_node(g, n, "QuantizeLinear", 3, (value_id[]){in[k], q.in.v[LINEAR_SCALE], zero}, 0);
    }
    graph_node(g, n)->dead = graph_node(g, m)->dead = true;
    op_node_same(g, m, op_of(g, m)->name, x.in.n, in, NULL, q.out.v[0]);
    for (node_id k = first; k < g->node.n && *ok; k++) *ok = op_infer(g, k, e);
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false, again = true;
    for (node_id n = 1; n < g->node.n && *ok; n++) changed |= become_unsigned(g, n, ok, e);
    while (again && *ok) {
        struct arena a = {0};
        const u32 *uses = graph_use_counts(g, &a);
        again = false;
        for (node_id n = 1, end = g->node.n; n < end && *ok; n++) again |= cancel(g, n) || quantise_before(g, n, uses, ok, e);
        changed |= again;
        arena_release(&a);
    }
    return changed;
}

const struct pass pass_quantised = {
    .version = 1,
    .name = "quantised",
    .summary = "quantised values are u8 and stay quantised where they are moved",
    .when = PASS_INTEGER,
    .rank = 103,
    .run = run,
};
