// SPDX-License-Identifier: Apache-2.0
//
// Layers: nodes that multiply activations by constant weights. Weights are quantised symmetrically,
// so that no sum over activations has to be subtracted, with a scale per output channel.
//
// Bias correction. Rounding of weights shifts the mean of an output channel by the sum of the
// weights' errors times the mean of their inputs, which is subtracted from the bias (Nagel et al.
// 2019, Data-free quantization through weight equalization and bias correction, with means from
// calibration runs). Taps in pads count as if they saw the mean, too.
#include "quant/quant.h"

#include <math.h>

enum { X, W, BIAS };
enum { MOST = 127, MOST_REDUCED = 64 }; /* of weights: symmetric, without -128 */

static i64 most_of(const struct quant_layer *l) { return l->is_reduced ? MOST_REDUCED : MOST; }

/* Output channel c of weights: elements (outer, c, inner). */
struct channels {
    i64 n, outer, inner;
};

static struct channels channels_of(const struct tensor *w, u32 axis)
{
    struct channels c = {.n = 1, .outer = 1, .inner = 1};
    if (axis >= w->rank) return c.inner = tensor_count(w), c;
    c.n = w->dim[axis];
    c.outer = i64_product(axis, w->dim);
    c.inner = i64_product(w->rank - axis - 1, w->dim + axis + 1);
    return c;
}

static bool is_f32_const(const struct graph *g, value_id v)
{
    const struct value *x = v ? graph_value(g, v) : NULL;
    return x && x->data && x->dtype == DT_F32 && tensor_count(x->data) > 0;
}

/* The bias, if it has an element per output channel. */
static value_id bias_of(const struct graph *g, const struct node *n, i64 channels)
{
    if (!op_has_in(n, BIAS) || !is_f32_const(g, n->in.v[BIAS])) return 0;
    const struct tensor *t = graph_value(g, n->in.v[BIAS])->data;
    return t->rank == 1 && t->dim[0] == channels ? n->in.v[BIAS] : 0;
}

static u32 weight_axis(const struct graph *g, node_id id, u32 rank)
{
    const struct node *n = graph_node(g, id);
    u32 props = op_of(g, id)->props;
    if (props & OP_CONV) return 0;
    if (props & OP_TRANSPOSED) return attr_int(n, "group", 1) == 1 ? 1 : MAX_RANK;
    if (str_is(n->op, "Gemm")) return attr_int(n, "transB", 0) ? 0 : 1;
    return rank - 1;
}

bool quant_layer_find(const struct graph *g, node_id id, struct quant_layer *l)
{
    const struct node *n = graph_node(g, id);
    bool gemm = str_is(n->op, "Gemm"), known = gemm || op_of(g, id)->props & (OP_MATMUL | OP_CONV | OP_TRANSPOSED);
    if (n->dead || !known || n->in.n < 2 || n->in.n > 3 || !is_f32_const(g, n->in.v[W])) return false;
    const struct value *x = graph_value(g, n->in.v[X]), *w = graph_value(g, n->in.v[W]);
    if (x->is_const || x->dtype != DT_F32 || x->shape.rank < 2 || w->shape.rank < 2) return false;
    *l = (struct quant_layer){.out = n->out.v[0], .x = n->in.v[X], .w = n->in.v[W], .axis = weight_axis(g, id, w->shape.rank)};
    l->bias = bias_of(g, n, channels_of(w->data, l->axis).n);
    return true;
}

static bool is_matmul(const struct graph *g, node_id n) { return op_of(g, n)->props & OP_MATMUL && !str_is(graph_node(g, n)->op, "Gemm"); }

i64 quant_layer_channel_axis(const struct graph *g, const struct quant_layer *l)
{
    node_id id = graph_value(g, l->out)->producer;
    const struct node *n = graph_node(g, id);
    i64 last = graph_value(g, l->x)->shape.rank - 1;
    if (is_matmul(g, id) || l->axis == MAX_RANK) return -1; /* no bias; no channels of its own */
    if (!str_is(n->op, "Gemm")) return op_has_in(n, BIAS) && !l->bias ? -1 : 1;
    bool plain = attr_float(n, "alpha", 1) == 1 && attr_float(n, "beta", 1) == 1;
    return !plain || (op_has_in(n, BIAS) && !l->bias) ? -1 : attr_int(n, "transA", 0) ? 0 : last;
}

/* Index of the input channel that element i of output channel c multiplies. */
static i64 input_channel(const struct graph *g, const struct quant_layer *l, i64 c, i64 i)
{
    const struct tensor *w = graph_value(g, l->w)->data;
    const struct node *n = graph_node(g, graph_value(g, l->out)->producer);
    struct channels s = channels_of(w, l->axis);
    if (l->axis > 0) return i / s.inner; /* (in, out, taps) */
    i64 groups = attr_int(n, "group", 1), taps = w->rank > 2 ? i64_product(w->rank - 2, w->dim + 2) : 1;
    return (groups > 1 ? c / (s.n / groups) * w->dim[1] : 0) + i / taps;
}

/* Of the taps of a transposed convolution, the part that an output element sees on average. */
static double share_of_taps(const struct graph *g, const struct quant_layer *l)
{
    node_id id = graph_value(g, l->out)->producer;
    const i64 *stride;
    i64 n = attr_ints(graph_node(g, id), "strides", &stride);
    return op_of(g, id)->props & OP_TRANSPOSED && n ? 1 / (double)i64_product((u32)n, stride) : 1;
}

/* Element i of output channel c. */
static i64 element(const struct channels *s, i64 c, i64 i) { return (i / s->inner * s->n + c) * s->inner + i % s->inner; }

/* The largest sum of the magnitudes of weights of one sign among four neighbouring input channels, as op_acc16 has them, of a tap. */
static double largest_sum(const struct quant_layer *l, const struct tensor *w, const struct channels *s, i64 c)
{
    enum { GROUP = 8 };
    const float *v = w->data;
    i64 taps = w->rank > 2 ? i64_product(w->rank - 2, w->dim + 2) : 1, terms = s->outer * s->inner / taps;
    double most = 0;
    for (i64 at = 0; at < 2 * round_up(terms, GROUP) / GROUP * taps; at++) { /* two sums of each group */
        double up = 0, down = 0;
        for (i64 i = 0; i < GROUP / 2; i++) {
            i64 term = at / 2 / taps * GROUP + i / 2 * 4 + at % 2 * 2 + i % 2;
            double x = term < terms ? (double)v[element(s, c, term * taps + at / 2 % taps)] : 0;
            *(x > 0 ? &up : &down) += fabs(x);
        }
        most = fmax(most, fmax(up, down));
    }
    return most;
}

/* The scale of a channel: so that its weights, and its bias in the layer's step, fit; reduced, four products of weights with bytes fit i16, too. */
static float channel_scale(const struct quant_layer *l, const struct tensor *w, const struct channels *s, i64 c, double bias)
{
    enum { ROUNDED = 2 }; /* what rounding four weights may add to their sum */
    double most = 0;
    const float *v = w->data;
    for (i64 i = 0; i < s->outer * s->inner; i++) most = fmax(most, fabs((double)v[element(s, c, i)]));
    double scale = fmax(most / (double)most_of(l), bias / 0x1p30);
    if (l->is_reduced && (l->axis == 0 || w->rank == 2)) scale = fmax(scale, largest_sum(l, w, s, c) / (INT16_MAX / UINT8_MAX - ROUNDED));
    return (float)(scale > 0 ? fmax(scale, 0x1p-60) : 1);
}

/* The sum of errors of the weights of channel c, each times the mean of its input. */
static double mean_error(const struct graph *g, const struct quant_layer *l, const struct channels *s, i64 c, const double *mean)
{
    const float *w = graph_value(g, l->w)->data->data;
    double sum = 0, scale = elem_f64(DT_F32, l->scale->data, c);
    for (i64 i = 0; i < s->outer * s->inner; i++) {
        i64 k = element(s, c, i);
        sum += ((double)((const i8 *)l->qw->data)[k] * scale - (double)w[k]) * mean[input_channel(g, l, c, i)];
    }
    return sum * share_of_taps(g, l);
}

static bool allocate(const struct graph *g, struct quant_layer *l, bool has_bias, i64 channels, struct arena *a, struct err *e)
{
    const struct tensor *w = graph_value(g, l->w)->data;
    bool one = l->axis == MAX_RANK;
    l->qw = tensor_try(a, DT_I8, w->rank, w->dim, e, "weights ", graph_value(g, l->w)->name);
    l->scale = tensor_new(a, DT_F32, !one, &channels);
    i64 n = l->bias ? tensor_count(graph_value(g, l->bias)->data) : channels;
    l->qbias = has_bias ? tensor_new(a, DT_I32, 1, &n) : NULL;
    return l->qw != NULL;
}

bool quant_layer_settle(const struct graph *g, struct quant_layer *l, struct quant_step x, const double *mean, struct arena *a,
                        struct err *e)
{
    const struct tensor *w = graph_value(g, l->w)->data, *bias = l->bias ? graph_value(g, l->bias)->data : NULL;
    struct channels s = channels_of(w, l->axis);
    if (!allocate(g, l, l->axis != MAX_RANK && (bias || mean), s.n, a, e)) return false;
    for (i64 c = 0; c < s.n; c++) {
        double b = bias && l->qbias ? elem_f64(DT_F32, bias->data, c) : 0;
        float scale = channel_scale(l, w, &s, c, fabs(b) / (double)x.scale);
        ((float *)l->scale->data)[c] = scale;
        for (i64 i = 0; i < s.outer * s.inner; i++) {
            i64 k = element(&s, c, i);
            double q = rint((double)((const float *)w->data)[k] / (double)scale);
            ((i8 *)l->qw->data)[k] = (i8)fmax(-(double)most_of(l), fmin(q, (double)most_of(l)));
        }
        if (!l->qbias) continue;
        if (mean) b -= mean_error(g, l, &s, c, mean);
        double step = (double)x.scale * (double)scale;
        ((i32 *)l->qbias->data)[c] = (i32)fmax(-0x1p31, fmin(rint(b / step), 0x1p31 - 1));
    }
    return true;
}

/* Batch normalisation y = (x - mean) / sqrt(var + epsilon) * scale + shift, inputs 1 to 4 scale, shift, mean, var. */

enum { BN_INPUTS = 5 };

/* The batch normalisation that alone reads the layer's result; 0: none. */
static node_id find_norm(const struct graph *g, const struct quant_layer *l, const u32 *uses)
{
    if (uses[l->out] != 1) return 0;
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead || !x->in.n || x->in.v[X] != l->out) continue;
        bool fits = str_is(x->op, "BatchNormalization") && x->in.n == BN_INPUTS && x->out.n == 1 && !attr_int(x, "training_mode", 0);
        for (u32 k = 1; k < BN_INPUTS && fits; k++) fits = is_f32_const(g, x->in.v[k]);
        return fits ? n : 0;
    }
    return 0;
}

static double param(const struct graph *g, const struct node *n, u32 k, i64 c)
{
    return elem_f64(DT_F32, graph_value(g, n->in.v[k])->data->data, c);
}

static bool fold_norm(struct graph *g, const struct quant_layer *l, node_id norm, struct err *e)
{
    node_id id = graph_value(g, l->out)->producer;
    const struct node *bn = graph_node(g, norm);
    const struct tensor *w = graph_value(g, l->w)->data, *bias = l->bias ? graph_value(g, l->bias)->data : NULL;
    struct channels s = channels_of(w, l->axis);
    struct tensor *nw = tensor_try(g->arena, DT_F32, w->rank, w->dim, e, "weights ", graph_value(g, l->w)->name);
    struct tensor *nb = tensor_new(g->arena, DT_F32, 1, &s.n);
    for (i64 c = 0; nw && c < s.n; c++) {
        double by = param(g, bn, 1, c) / sqrt(param(g, bn, 4, c) + attr_float(bn, "epsilon", 1e-5));
        double b = bias ? elem_f64(DT_F32, bias->data, c) : 0;
        ((float *)nb->data)[c] = (float)((b - param(g, bn, 3, c)) * by + param(g, bn, 2, c));
        for (i64 i = 0; i < s.outer * s.inner; i++) {
            i64 k = element(&s, c, i);
            ((float *)nw->data)[k] = (float)((double)((const float *)w->data)[k] * by);
        }
    }
    if (!nw) return false;
    value_id in[] = {l->x, graph_add_const(g, graph_value(g, l->w)->name, nw), graph_add_const(g, graph_value(g, l->w)->name, nb)};
    struct node *n = graph_node(g, id);
    while (n->in.n < countof(in)) node_add_in(g, id, 0);
    for (u32 k = 0; k < countof(in); k++) n->in.v[k] = in[k];
    value_id out = graph_node(g, norm)->out.v[0];
    graph_node(g, norm)->dead = true;
    node_set_out(g, id, 0, out);
    return true;
}

bool quant_fold_norms(struct graph *g, struct err *e)
{
    struct arena a = {0};
    u32 *uses = graph_use_counts(g, &a);
    bool ok = true;
    for (node_id n = 1; n < g->node.n && ok; n++) {
        struct quant_layer l;
        bool conv = op_of(g, n)->props & (OP_CONV | OP_TRANSPOSED);
        if (!conv || !quant_layer_find(g, n, &l) || l.axis == MAX_RANK) continue;
        if (op_has_in(graph_node(g, n), BIAS) && !l.bias) continue;
        node_id norm = find_norm(g, &l, uses);
        ok = !norm || fold_norm(g, &l, norm, e);
    }
    arena_release(&a);
    return ok && op_infer_all(g, e);
}
