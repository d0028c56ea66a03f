// SPDX-License-Identifier: Apache-2.0
//
// Graphs in QDQ form: standard operators of ONNX, opset 13 and later, which ONNX Runtime and quern
// turn into kernels of integers.
#include "quant/quant.h"

struct writer {
    const struct quant *t;
    struct graph *g;
    value_id *pair;   /* per value of the network: its dequantised form; 0: not made yet */
    struct { value_id scale, zero; } *step; /* per value at the end of a chain of equal scales */
};

static void writer_start(struct writer *w, const struct quant *t, struct graph *to, struct arena *work)
{
    u32 n = t->g.value.n;
    graph_clone(to, &t->g, t->arena);
    *w = (struct writer){.t = t, .g = to, .pair = arena_array(work, value_id, n)};
    w->step = arena_alloc(work, (i64)sizeof *w->step * n);
}

static struct str name_of(const struct writer *w, value_id v, const char *suffix)
{
    return str_fmt(w->g->arena, "%.*s_%s", STR_ARG(graph_value(w->g, v)->name), suffix);
}

static value_id scalar(struct writer *w, value_id of, const char *suffix, enum dtype t, double v)
{
    struct tensor *x = tensor_new(w->g->arena, t, 0, NULL);
    elem_set_f64(t, x->data, 0, v);
    return graph_add_const(w->g, name_of(w, of, suffix), x);
}

static void make_step(struct writer *w, value_id end)
{
    if (w->step[end].scale) return;
    struct quant_step s = quant_value_step(w->t, end);
    w->step[end].scale = scalar(w, end, "scale", DT_F32, (double)s.scale);
    w->step[end].zero = scalar(w, end, "zero_point", w->t->opts.is_signed ? DT_I8 : DT_U8, (double)s.zero);
}

/* A node named as its result, whose name is unique: ONNX Runtime requires that of nodes, too. */
static value_id add_node(struct writer *w, const char *op, struct str name, u32 n, const value_id *in)
{
    value_id v = graph_op(w->g, op, name, n, in);
    const struct value *x = graph_value(w->g, v);
    graph_node(w->g, x->producer)->name = x->name;
    return v;
}

static value_id end_of(const struct writer *w, value_id v)
{
    while (w->t->same[v] != v) v = w->t->same[v];
    return v;
}

static value_id dequantized(struct writer *w, value_id v)
{
    if (w->pair[v]) return w->pair[v];
    value_id end = end_of(w, v);
    make_step(w, end);
    value_id scale = w->step[end].scale, zero = w->step[end].zero;
    value_id q = add_node(w, "QuantizeLinear", name_of(w, v, "quantized"), 3, (value_id[]){v, scale, zero});
    return w->pair[v] = add_node(w, "DequantizeLinear", name_of(w, v, "dequantized"), 3, (value_id[]){q, scale, zero});
}

/* The network's output v becomes the dequantised form of the value that it was. */
static void quantize_output(struct writer *w, value_id v)
{
    struct value *x = graph_value(w->g, v);
    node_id n = x->producer;
    u32 k = x->out_index;
    if (w->pair[v] || !n) return;
    value_id real = graph_add_value(w->g, name_of(w, v, "real"));
    node_set_out(w->g, n, k, real);
    make_step(w, end_of(w, v));
    value_id scale = w->step[end_of(w, v)].scale, zero = w->step[end_of(w, v)].zero;
    value_id q = add_node(w, "QuantizeLinear", name_of(w, v, "quantized"), 3, (value_id[]){real, scale, zero});
    node_id back = graph_add_node(w->g, S("DequantizeLinear"), name_of(w, v, "dequantized"));
    node_add_in(w->g, back, q), node_add_in(w->g, back, scale), node_add_in(w->g, back, zero);
    node_set_out(w->g, back, 0, v);
    w->pair[v] = v;
}

/* A constant of a layer, v in the network, with a scale per element of an axis; no zero point but 0. */
static value_id constant(struct writer *w, value_id like, struct tensor *q, struct tensor *scale, u32 axis)
{
    struct tensor *zero = tensor_new(w->g->arena, q->dtype, scale->rank, scale->dim);
    value_id in[] = {graph_add_const(w->g, name_of(w, like, "quantized"), q), graph_add_const(w->g, name_of(w, like, "scale"), scale),
                     graph_add_const(w->g, name_of(w, like, "zero_point"), zero)};
    value_id v = add_node(w, "DequantizeLinear", name_of(w, like, "dequantized"), countof(in), in);
    if (scale->rank) attr_set_int(w->g, graph_value(w->g, v)->producer, "axis", axis);
    return v;
}

/* Of a bias: the product of the scales of activation and weights. */
static struct tensor *bias_scale(const struct writer *w, const struct quant_layer *l)
{
    float x = quant_value_step(w->t, l->x).scale;
    struct tensor *s = tensor_new(w->g->arena, DT_F32, 1, l->qbias->dim);
    for (i64 c = 0; c < s->dim[0]; c++) ((float *)s->data)[c] = x * ((const float *)l->scale->data)[c];
    return s;
}

/* Gives node n, the layer or a copy of it, its quantised inputs. */
static void quantize_layer(struct writer *w, const struct quant_layer *l, node_id n)
{
    value_id x = dequantized(w, l->x), weights = constant(w, l->w, l->qw, l->scale, l->axis), bias = 0;
    if (l->qbias) bias = constant(w, l->bias ? l->bias : l->w, l->qbias, bias_scale(w, l), 0);
    while (bias && graph_node(w->g, n)->in.n < 3) node_add_in(w->g, n, 0);
    struct node *x_node = graph_node(w->g, n);
    x_node->in.v[0] = x, x_node->in.v[1] = weights;
    if (bias) x_node->in.v[2] = bias;
}

bool quant_write(const struct quant *t, struct graph *to, const value_id *more, u32 n_more, struct err *e)
{
    struct arena work = {0};
    struct writer w;
    node_id end = t->g.node.n;
    writer_start(&w, t, to, &work);
    for (u32 k = 0; k < t->g.output.n && t->opts.full; k++)
        if (t->is_pair[t->g.output.v[k]]) quantize_output(&w, t->g.output.v[k]);
    for (node_id n = 1; n < end; n++)
        for (u32 k = 0; k < graph_node(&t->g, n)->in.n; k++) {
            if (t->role[n] == QUANT_LAYER || !quant_reads(t, n, k)) continue;
            value_id v = dequantized(&w, graph_node(&t->g, n)->in.v[k]);
            graph_node(to, n)->in.v[k] = v;
        }
    for (u32 k = 0; k < t->layer.n; k++)
        if (!t->layer.v[k].is_float) quantize_layer(&w, &t->layer.v[k], graph_value(&t->g, t->layer.v[k].out)->producer);
    for (u32 k = 0; k < n_more; k++) *arr_push(to->arena, &to->output) = more[k];
    arena_release(&work);
    return op_infer_all(to, e);
}

/* The probe. */

static void add_output(struct writer *w, value_id v) { *arr_push(w->g->arena, &w->g->output) = v; }

static value_id sum_of_squares(struct writer *w, value_id v, struct str name)
{
    value_id s = add_node(w, "ReduceSumSquare", name, 1, &v);
    attr_set_int(w->g, graph_value(w->g, s)->producer, "keepdims", 0);
    return s;
}

static void probe_layer(struct writer *w, const struct quant_layer *l)
{
    node_id like = graph_value(&w->t->g, l->out)->producer;
    const struct node from = *graph_node(w->g, like);
    value_id y = add_node(w, from.op.p, name_of(w, l->out, "probe"), from.in.n, from.in.v);
    node_id n = graph_value(w->g, y)->producer;
    for (u32 k = 0; k < from.attr.n; k++) attr_copy(w->g, n, &from.attr.v[k]);
    quantize_layer(w, l, n);
    value_id difference = add_node(w, "Sub", name_of(w, l->out, "difference"), 2, (value_id[]){y, l->out});
    add_output(w, sum_of_squares(w, difference, name_of(w, l->out, "noise")));
    add_output(w, sum_of_squares(w, l->out, name_of(w, l->out, "signal")));
}

bool quant_write_probe(const struct quant *t, struct graph *to, struct err *e)
{
    struct arena work = {0};
    struct writer w;
    writer_start(&w, t, to, &work);
    to->output.n = 0;
    for (u32 k = 0; k < t->layer.n; k++)
        if (!t->layer.v[k].is_float) probe_layer(&w, &t->layer.v[k]);
    arena_release(&work);
    return op_infer_all(to, e);
}
