// SPDX-License-Identifier: Apache-2.0
//
// narrow: stores a network of f32 in f16, activations and weights, where that is safe;
// kernels still compute in f32, since f16 is only a storage format. On request (PASS_F16).
// requires: primitives, sorted, inferred. ensures: no conversions to the same type.
//
// As in mixed-precision training: matmuls and convolutions read and write f16; reductions and
// operators on whole tensors keep f32, as a sum of many terms or a square may overflow f16;
// everything else follows its inputs and keeps f32 if one of them does. A constant beside an
// activation that f16 cannot represent precisely (an epsilon, a mask of -1e38) keeps f32, too.
#include "pass/pass.h"

#include <math.h>

struct narrower {
    struct graph *g;
    u32 n_values;   /* before the pass */
    bool *was_f32;  /* per value of those */
    value_id *half; /* per value: its f16 form, 0: none yet */
    value_id *full; /* per value: its f32 form */
    struct err *e;
    bool failed;
};

enum { F16_MIN_EXP = -14 };
static const double f16_max = 65504;

/* weights: small ones may vanish beside the large ones that they are added to. */
static bool fits_f16(const struct tensor *t, bool is_weight)
{
    for (i64 i = 0, n = tensor_count(t); i < n; i++) {
        double x = fabs(elem_f64(t->dtype, t->data, i));
        if (isfinite(x) && x > f16_max) return false;
        if (!is_weight && x != 0 && x < ldexp(1, F16_MIN_EXP)) return false;
    }
    return true;
}

static bool is_wide(const struct narrower *p, value_id v)
{
    return v < p->n_values && p->was_f32[v] && graph_value(p->g, v)->dtype == DT_F32;
}

static bool consts_fit(const struct narrower *p, const struct node *x, bool are_weights)
{
    for (u32 k = 0; k < x->in.n; k++) {
        const struct value *v = x->in.v[k] ? graph_value(p->g, x->in.v[k]) : NULL;
        if (v && v->data && v->dtype == DT_F32 && !fits_f16(v->data, are_weights)) return false;
    }
    return true;
}

/* Whether all operands of the node's computation come from f16. */
static bool follows_f16(const struct narrower *p, const struct node *x)
{
    bool any = false;
    for (u32 k = 0; k < x->in.n; k++) {
        const struct value *v = x->in.v[k] ? graph_value(p->g, x->in.v[k]) : NULL;
        if (!v || v->is_const) continue;
        if (v->dtype == DT_F32) return false;
        any |= v->dtype == DT_F16;
    }
    return any;
}

static bool is_narrow(const struct narrower *p, node_id n)
{
    const struct node *x = graph_node(p->g, n);
    u32 props = op_of(p->g, n)->props;
    if (props & (OP_CONV | OP_MATMUL | OP_TRANSPOSED)) return consts_fit(p, x, true);
    if (props & (OP_REDUCE | OP_HEAVY | OP_WHOLE)) return false;
    if (!(props & (OP_POINTWISE | OP_VIEW | OP_WINDOW | OP_SAMPLE))) return false;
    return follows_f16(p, x) && consts_fit(p, x, false);
}

static value_id convert(struct narrower *p, value_id v, enum dtype to)
{
    value_id c = op_node_cast(p->g, 0, v, to, 0);
    graph_node(p->g, op_made(p->g, c))->name =
        str_fmt(p->g->arena, "%.*s/Cast", STR_ARG(graph_value(p->g, v)->name));
    p->failed |= !op_infer(p->g, op_made(p->g, c), p->e);
    return c;
}

static value_id const_half(struct narrower *p, value_id v)
{
    const struct value x = *graph_value(p->g, v);
    struct tensor *t = tensor_try(p->g->arena, DT_F16, x.data->rank, x.data->dim, p->e, "f16 of ", x.name);
    p->failed |= !t;
    if (!t) return v;
    for (i64 i = 0, n = tensor_count(t); i < n; i++)
        elem_set_f64(DT_F16, t->data, i, elem_f64(DT_F32, x.data->data, i));
    return graph_add_const(p->g, x.name, t);
}

static value_id as_half(struct narrower *p, value_id v)
{
    if (!is_wide(p, v)) return v;
    if (!p->half[v])
        p->half[v] = graph_value(p->g, v)->data ? const_half(p, v) : convert(p, v, DT_F16);
    return p->half[v];
}

static value_id as_full(struct narrower *p, value_id v)
{
    bool is_half = v < p->n_values && p->was_f32[v] && graph_value(p->g, v)->dtype == DT_F16;
    if (!is_half) return v;
    if (!p->full[v]) p->full[v] = convert(p, v, DT_F32);
    return p->full[v];
}

static bool touches_f32(const struct narrower *p, const struct node *x)
{
    for (u32 k = 0; k < x->in.n + x->out.n; k++) {
        value_id v = k < x->in.n ? x->in.v[k] : x->out.v[k - x->in.n];
        if (v && v < p->n_values && p->was_f32[v]) return true;
    }
    return false;
}

/* conversions from f16 to f32 that the network does not need any more */
static bool is_widening(const struct narrower *p, node_id n)
{
    const struct node *x = graph_node(p->g, n);
    return str_is(x->op, "Cast") && graph_value(p->g, x->in.v[0])->dtype == DT_F16 &&
           graph_value(p->g, x->out.v[0])->dtype == DT_F32;
}

static bool narrow_node(struct narrower *p, node_id n)
{
    bool half = is_narrow(p, n);
    for (u32 k = 0; k < graph_node(p->g, n)->in.n; k++) {
        value_id v = graph_node(p->g, n)->in.v[k];
        if (!v) continue;
        v = half ? as_half(p, v) : as_full(p, v);
        graph_node(p->g, n)->in.v[k] = v;
    }
    if (half && is_widening(p, n)) attr_set_int(p->g, n, "to", dtype_onnx(DT_F16));
    p->failed |= !op_infer(p->g, n, p->e);
    return half;
}

/* Outputs keep their type, also if the same value is an output twice. */
static void widen_outputs(struct narrower *p)
{
    struct value_list *out = &p->g->output;
    for (u32 k = 0; k < out->n; k++) {
        value_id v = out->v[k], full = as_full(p, v);
        if (full == v) continue;
        for (u32 i = k; i < out->n; i++)
            if (out->v[i] == v) out->v[i] = full;
        graph_swap_names(p->g, v, full);
    }
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    struct arena tmp = {0};
    u32 n_nodes = g->node.n;
    bool changed = false;
    struct narrower p = {.g = g, .n_values = g->value.n, .e = e};
    p.was_f32 = arena_array(&tmp, bool, g->value.n);
    p.half = arena_array(&tmp, value_id, g->value.n);
    p.full = arena_array(&tmp, value_id, g->value.n);
    for (value_id v = 1; v < g->value.n; v++) p.was_f32[v] = graph_value(g, v)->dtype == DT_F32;
    for (node_id n = 1; n < n_nodes && !p.failed; n++)
        if (!graph_node(g, n)->dead && touches_f32(&p, graph_node(g, n)))
            changed |= narrow_node(&p, n);
    if (!p.failed) widen_outputs(&p);
    arena_release(&tmp);
    *ok = !p.failed;
    if (*ok && changed) pass_drop_same(g);
    return changed;
}

const struct pass pass_narrow = {
    .version = 1,
    .name = "narrow",
    .summary = "stores values in f16 where that is safe",
    .when = PASS_F16,
    .once = true, /* nodes left in f32 would be visited again */
    .rank = 200,
    .run = run,
};
