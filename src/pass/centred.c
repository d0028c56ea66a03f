// SPDX-License-Identifier: Apache-2.0
//
// centred: convolutions of i32 whose operands are bytes less their zero points become those of i16. Weights of u8 with a zero point far from 128 do not fit
// bytes without it; their differences, at most 255, fit i16, of which devices that multiply integers add two products per lane, whereas products of i32 take
// several instructions. Sums are the same i32. requires: expanded, constants folded, inferred. ensures: new nodes are inferred.
#include "pass/pass_linear.h"

enum { X, W };

static bool is_byte(const struct graph *g, value_id v) { return graph_value(g, v)->dtype == DT_U8 || graph_value(g, v)->dtype == DT_I8; }

/* The bytes that v, i32, was computed from, and the constant that was subtracted; 0: it was computed from something else. */
static value_id bytes_of(const struct graph *g, value_id v, i64 *zero)
{
    node_id n = graph_value(g, v)->producer;
    double number = 0;
    if (n && str_is(graph_node(g, n)->op, "Sub")) {
        const struct node *x = graph_node(g, n);
        if (!linear_number(g, x->in.v[1], &number)) return 0;
        n = graph_value(g, x->in.v[0])->producer;
    }
    *zero = (i64)number;
    if (!n || !str_is(graph_node(g, n)->op, "Cast") || *zero < -128 || *zero > 255) return 0;
    return is_byte(g, graph_node(g, n)->in.v[0]) ? graph_node(g, n)->in.v[0] : 0;
}

/* Constant weights as i16; 0: they do not fit, or there is no memory. */
static value_id short_weights(struct graph *g, value_id v)
{
    const struct tensor *w = graph_value(g, v)->data;
    if (!w || w->dtype != DT_I32) return 0;
    struct tensor *t = tensor_try(g->arena, DT_I16, w->rank, w->dim, NULL, "weights", S(""));
    for (i64 i = 0, n = t ? tensor_count(w) : 0; i < n; i++) {
        i64 x = elem_i64(DT_I32, w->data, i);
        if (x < INT16_MIN || x > INT16_MAX) return 0;
        elem_set_i64(DT_I16, t->data, i, x);
    }
    return t ? graph_add_const(g, graph_value(g, v)->name, t) : 0;
}

/* Largest magnitude of the weights; at least that of bytes less a zero point within their range, so that equal layers remain equal. */
static i64 most_of_weights(const struct tensor *w) { return i64_max(255, (i64)tensor_largest(w)); }

static bool shorten(struct graph *g, node_id n, bool *ok, struct err *e)
{
    const struct node x = *graph_node(g, n);
    i64 zero;
    if (!(op_of(g, n)->props & OP_CONV) || graph_value(g, x.out.v[0])->dtype != DT_I32 || graph_value(g, x.in.v[X])->dtype != DT_I32) return false;
    value_id bytes = bytes_of(g, x.in.v[X], &zero), w = bytes ? short_weights(g, x.in.v[W]) : 0, in[3] = {0, w, op_node_input(&x, 2)};
    node_id first = g->node.n;
    if (!w) return false;
    i64 most[2] = {linear_most(graph_value(g, bytes)->dtype, zero), most_of_weights(graph_value(g, w)->data)};
    in[X] = op_node_cast(g, n, bytes, DT_I16, 0);
    if (zero) in[X] = op_node_binf(g, n, "Sub", in[X], DT_I16, (double)zero, 0);
    graph_node(g, n)->dead = true;
    attr_set_ints(g, op_made(g, op_node_same(g, n, "Conv", 3, in, NULL, x.out.v[0])), "most", most, 2);
    for (node_id i = first; i < g->node.n && *ok; i++) *ok = op_infer(g, i, e);
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++)
        if (!graph_node(g, n)->dead) changed |= shorten(g, n, ok, e);
    return changed;
}

const struct pass pass_centred = {
    .version = 2,
    .name = "centred",
    .summary = "convolutions of bytes less zero points that do not fit bytes become those of i16",
    .when = PASS_INTEGER,
    .rank = 158,
    .run = run,
};
