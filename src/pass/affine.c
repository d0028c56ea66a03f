// SPDX-License-Identifier: Apache-2.0
//
// affine: folds a constant scale or offset per channel after a convolution, transposed
// or not, into its weights and bias (removing batch normalisation), an integer offset
// into the bias of a convolution of bytes. Products are rounded to the weights' type once,
// from double. requires: expanded, inferred. The
// convolution's weights are constant and its output has no other user.
#include "pass/pass.h"

struct affine {
    enum { AF_MUL, AF_ADD, AF_SUB, AF_DIV } kind;
    const struct tensor *c;
};

/* Whether t has one number per channel of a value of that rank, or a single one. */
static bool per_channel(const struct tensor *t, u32 rank, i64 channels)
{
    if (tensor_count(t) == 1) return t->rank <= rank;
    if (t->rank > rank || t->rank + 1 < rank) return false;
    u32 axis = t->rank - (rank - 1); /* axis 1 of the value */
    for (u32 d = 0; d < t->rank; d++)
        if (t->dim[d] != (d == axis ? channels : 1)) return false;
    return true;
}

static bool match_kind(struct str op, bool const_first, enum dtype t, struct affine *f)
{
    if (str_is(op, "Mul") && dtype_is_float(t)) f->kind = AF_MUL;
    else if (str_is(op, "Add")) f->kind = AF_ADD;
    else if (str_is(op, "Sub") && !const_first) f->kind = AF_SUB;
    else if (str_is(op, "Div") && !const_first && dtype_is_float(t)) f->kind = AF_DIV;
    else return false;
    return true;
}

/* The pointwise node after value v that applies a constant per channel. */
static node_id find_affine(const struct graph *g, value_id v, i64 channels, struct affine *f)
{
    node_id found = 0;
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead) continue;
        for (u32 k = 0; k < x->in.n; k++) {
            if (x->in.v[k] != v) continue;
            if (found) return 0; /* a second user */
            found = n;
        }
    }
    if (graph_is_output(g, v)) return 0;
    if (!found || graph_node(g, found)->in.n != 2) return 0;
    const struct node *x = graph_node(g, found);
    u32 other = x->in.v[0] == v;
    if (x->in.v[other] == v) return 0;
    const struct value *c = graph_value(g, x->in.v[other]), *out = graph_value(g, v);
    if (!c->data || !per_channel(c->data, out->shape.rank, channels)) return 0;
    f->c = c->data;
    return match_kind(x->op, other == 0, out->dtype, f) ? found : 0;
}

static double number(const struct tensor *t, i64 channel)
{
    return elem_f64(t->dtype, t->data, tensor_count(t) == 1 ? 0 : channel);
}

/* Weights are (output channels, input channels of a group, taps ..), transposed (input channels, output channels of a group, taps ..). */
static bool is_transposed(const struct graph *g, node_id n) { return op_of(g, n)->props & OP_TRANSPOSED; }

static i64 output_channels(const struct graph *g, node_id n)
{
    const struct tensor *w = graph_value(g, graph_node(g, n)->in.v[1])->data;
    return is_transposed(g, n) ? w->dim[1] * attr_int(graph_node(g, n), "group", 1) : w->dim[0];
}

/* 0: out of memory. */
static value_id scaled_weights(struct graph *g, node_id n, const struct affine *f)
{
    value_id w = graph_node(g, n)->in.v[1];
    const struct tensor *t = graph_value(g, w)->data;
    struct tensor *r = tensor_try(g->arena, t->dtype, t->rank, t->dim, NULL, "", S(""));
    if (!r) return 0;
    bool transposed = is_transposed(g, n);
    i64 rows = transposed ? t->dim[0] * t->dim[1] : t->dim[0], per = tensor_count(t) / rows; /* of one output channel */
    i64 outputs = t->dim[1], inputs = t->dim[0] / attr_int(graph_node(g, n), "group", 1); /* transposed: of a group */
    struct arena scratch = {0};
    double *row = arena_array(&scratch, double, per);
    for (i64 k = 0; k < rows; k++) {
        double c = number(f->c, transposed ? k / outputs / inputs * outputs + k % outputs : k);
        elems_f64(t->dtype, t->data, k * per, per, row);
        for (i64 i = 0; i < per; i++) row[i] = f->kind == AF_MUL ? row[i] * c : row[i] / c;
        elems_set_f64(r->dtype, r->data, k * per, per, row);
    }
    arena_release(&scratch);
    return graph_add_const(g, graph_value(g, w)->name, r);
}

static value_id new_bias(struct graph *g, const struct node *conv, i64 channels,
                         const struct affine *f)
{
    value_id b = conv->in.n > 2 ? conv->in.v[2] : 0;
    const struct value *w = graph_value(g, conv->in.v[1]);
    struct tensor *r = tensor_new(g->arena, graph_value(g, conv->out.v[0])->dtype, 1, &channels);
    for (i64 i = 0; i < channels; i++) {
        double x = b ? number(graph_value(g, b)->data, i) : 0, c = number(f->c, i);
        switch (f->kind) {
        case AF_MUL: x *= c; break;
        case AF_ADD: x += c; break;
        case AF_SUB: x -= c; break;
        case AF_DIV: x /= c; break;
        }
        if (dtype_is_float(r->dtype)) elem_set_f64(r->dtype, r->data, i, x);
        else elem_set_i64(r->dtype, r->data, i, (i64)x); /* wraps */
    }
    return graph_add_const(g, w->name, r);
}

static bool fold_one(struct graph *g, node_id n)
{
    struct node *conv = graph_node(g, n);
    const struct value *w = graph_value(g, conv->in.v[1]);
    bool has_bias = conv->in.n > 2 && conv->in.v[2];
    if (!w->data || (has_bias && !graph_value(g, conv->in.v[2])->data))
        return false;
    i64 channels = output_channels(g, n);
    if (channels == 0 || tensor_count(w->data) == 0) return false;
    struct affine f;
    node_id behind = find_affine(g, conv->out.v[0], channels, &f);
    if (!behind) return false;
    bool scales = f.kind == AF_MUL || f.kind == AF_DIV;
    value_id bias = has_bias || !scales ? new_bias(g, conv, channels, &f) : 0;
    value_id scaled = scales ? scaled_weights(g, n, &f) : 0;
    if (scales && !scaled) return false;
    if (scales) conv->in.v[1] = scaled;
    if (bias && conv->in.n > 2) conv->in.v[2] = bias;
    else if (bias) node_add_in(g, n, bias);
    struct node *x = graph_node(g, behind);
    value_id out = x->out.v[0];
    x->dead = true;
    node_set_out(g, n, 0, out);
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    for (node_id n = 1; n < g->node.n; n++) {
        if (graph_node(g, n)->dead || !(op_of(g, n)->props & (OP_CONV | OP_TRANSPOSED))) continue;
        while (fold_one(g, n)) changed = true;
    }
    return changed;
}

const struct pass pass_affine = {
    .version = 1,
    .name = "affine",
    .summary = "folds scales and offsets per channel into convolution weights",
    .rank = 140,
    .run = run,
};
