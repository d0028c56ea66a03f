// SPDX-License-Identifier: Apache-2.0
//
// Weights alone in few bits: those of MatMul and Gemm become i4 or i8 with a scale per block of terms of a sum and column (quant_block.c), and activations
// stay as they are. Written as DequantizeLinear with blocks, opset 21, in front of the product.
#include "quant/quant.h"

#include <math.h>

static bool alloc(const struct quant *t, struct quant_layer *l, struct err *e)
{
    const struct value *w = graph_value(&t->g, l->w);
    i64 dim[2] = {w->data->dim[0], w->data->dim[1]};
    dim[quant_terms_axis(l)] = ceil_div(dim[quant_terms_axis(l)], t->opts.block);
    l->qw = tensor_try(t->arena, t->opts.weights, 2, w->data->dim, e, "codes of ", w->name);
    l->scale = l->qw ? tensor_try(t->arena, DT_F32, 2, dim, e, "scales of ", w->name) : NULL;
    return l->scale != NULL;
}

/* The weights, by terms and columns; NULL: not enough memory, or they are not finite. */
static float *take_weights(const struct quant *t, const struct quant_layer *l, struct arena *a, struct err *e)
{
    const struct value *w = graph_value(&t->g, l->w);
    i64 terms = w->data->dim[quant_terms_axis(l)], columns = w->data->dim[1 - quant_terms_axis(l)];
    float *to = arena_try(a, terms * columns * (i64)sizeof *to, e, "weights");
    for (i64 i = 0; to && i < terms * columns; i++) {
        to[i] = ((const float *)w->data->data)[quant_weight_at(l, i / columns, i % columns)];
        if (!isfinite(to[i])) return err_set(e, ERR_INPUT, "weights '%.*s' are not finite", STR_ARG(w->name)), NULL;
    }
    return to;
}

static void add_errors(const struct quant *t, struct quant_layer *l, i64 terms, i64 columns)
{
    const float *w = graph_value(&t->g, l->w)->data->data;
    for (i64 k = 0; k < terms; k++)
        for (i64 n = 0; n < columns; n++) {
            i64 at = quant_weight_at(l, k, n);
            double q = (double)elem_i64(l->qw->dtype, l->qw->data, at) * (double)*quant_scale_at(l, k / t->opts.block, n);
            l->noise += pow(q - (double)w[at], 2), l->signal += (double)w[at] * (double)w[at];
        }
}

static bool settle(const struct quant *t, struct quant_layer *l, struct err *e)
{
    struct arena a = {0};
    bool ok = alloc(t, l, e);
    float *w = ok ? take_weights(t, l, &a, e) : NULL;
    ok = w != NULL;
    i64 terms = ok ? l->qw->dim[quant_terms_axis(l)] : 0, columns = ok ? l->qw->dim[1 - quant_terms_axis(l)] : 0, block = t->opts.block;
    if (ok && l->squares) ok = quant_gptq_round(t, l, w, terms, columns, e);
    for (i64 k = 0; ok && !l->squares && k < terms; k++) {
        if (k % block == 0) quant_weights_scale(l, w, k, block, columns);
        for (i64 n = 0; n < columns; n++) quant_weights_round(l, w, k, n, block, columns);
    }
    if (ok) add_errors(t, l, terms, columns);
    arena_release(&a);
    return ok;
}

bool quant_weights_settle(struct quant *t, struct err *e)
{
    for (u32 k = 0; k < t->layer.n; k++)
        if (!settle(t, &t->layer.v[k], e)) return false;
    return true;
}

bool quant_write_weights(const struct quant *t, struct graph *to, const value_id *more, u32 n_more, struct err *e)
{
    graph_clone(to, &t->g, t->arena);
    for (u32 k = 0; k < t->layer.n; k++) {
        const struct quant_layer *l = &t->layer.v[k];
        if (l->is_float) continue;
        struct str name = graph_value(to, l->w)->name;
        value_id in[] = {graph_add_const(to, str_fmt(to->arena, "%.*s_codes", STR_ARG(name)), l->qw),
                         graph_add_const(to, str_fmt(to->arena, "%.*s_scale", STR_ARG(name)), l->scale)};
        value_id v = graph_op(to, "DequantizeLinear", str_fmt(to->arena, "%.*s_dequantized", STR_ARG(name)), countof(in), in);
        node_id n = graph_value(to, v)->producer;
        graph_node(to, n)->name = graph_value(to, v)->name; /* unique, as ONNX Runtime requires */
        attr_set_int(to, n, "axis", quant_terms_axis(l));
        attr_set_int(to, n, "block_size", t->opts.block);
        graph_node(to, graph_value(to, l->out)->producer)->in.v[1] = v;
    }
    for (u32 k = 0; k < n_more; k++) *arr_push(to->arena, &to->output) = more[k];
    return op_infer_all(to, e);
}
