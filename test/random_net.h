// SPDX-License-Identifier: Apache-2.0
//
// Random networks for tests: graphs of a few nodes over convolutions, pooling, activations,
// arithmetic, concatenation, padding, resizing, reductions, matmuls and views, with branches that
// rejoin. H and W are symbolic. Equal seeds yield equal networks. For tests that compile and run
// whole graphs.
#ifndef QUERN_RANDOM_NET_H
#define QUERN_RANDOM_NET_H

#include "op/op.h"
#include "sym_mark.h"

#include <math.h>
#include <string.h>

enum net_kind {
    NET_ANY,
    NET_JOINS, /* many concatenations, of different values */
    NET_CONVS, /* many convolutions, of channels in multiples of 8 */
};

struct net {
    struct arena arena;
    struct symtab sym;
    struct graph g;
    struct rng rng;
    struct { value_id *v; u32 n, cap; } have; /* values to go on from */
    enum net_kind kind;
    struct err e;
};

static i64 net_pick(struct net *t, i64 lo, i64 hi) { return rng_range(&t->rng, lo, hi); }

static value_id net_const(struct net *t, u32 rank, const i64 *dim, double size)
{
    struct tensor *x = tensor_new(&t->arena, DT_F32, rank, dim);
    for (i64 i = 0, n = tensor_count(x); i < n; i++) elem_set_f64(DT_F32, x->data, i, (rng_f64(&t->rng) * 2 - 1) * size);
    return graph_add_const(&t->g, S("c"), x);
}

static value_id net_ints(struct net *t, i64 n, const i64 *v)
{
    struct tensor *x = tensor_new(&t->arena, DT_I64, 1, &n);
    for (i64 i = 0; i < n; i++) elem_set_i64(DT_I64, x->data, i, v[i]);
    return graph_add_const(&t->g, S("i"), x);
}

static value_id net_input(struct net *t, const char *name, u32 rank, const sym *dim)
{
    value_id v = graph_add_value(&t->g, str_of(name));
    struct value *x = graph_value(&t->g, v);
    x->dtype = DT_F32;
    x->shape = (struct shape){.known = true, .rank = rank};
    for (u32 i = 0; i < rank; i++) x->shape.dim[i] = dim[i];
    *arr_push(&t->arena, &t->g.input) = v;
    return v;
}

static const struct shape *net_shape(struct net *t, value_id v) { return &graph_value(&t->g, v)->shape; }

static i64 net_dim(struct net *t, value_id v, u32 d) /* -1: symbolic */
{
    i64 c = -1;
    return sym_is_const(&t->sym, net_shape(t, v)->dim[d], &c) ? c : -1;
}

static node_id net_node(struct net *t, const char *op, u32 n, const value_id *in)
{
    return graph_value(&t->g, graph_op(&t->g, op, str_of(op), n, in))->producer;
}

static node_id net_conv(struct net *t, value_id x)
{
    static const i64 channels[] = {1, 3, 4, 8, 9, 16, 20};
    i64 c = net_dim(t, x, 1), kh = net_pick(t, 1, 3), kw = net_pick(t, 0, 3) ? kh : net_pick(t, 1, 3);
    i64 group = c > 1 && net_pick(t, 0, 4) == 0 ? c : 1, m = group > 1 ? group * net_pick(t, 1, 2) : channels[net_pick(t, 0, 6)];
    if (t->kind == NET_CONVS && net_pick(t, 0, 4)) group = 1, m = 8 * net_pick(t, 1, 3);
    i64 w[4] = {m, c / group, kh, kw}, pads[4] = {kh / 2, kw / 2, (kh - 1) / 2, (kw - 1) / 2};
    bool transposed = group == 1 && net_pick(t, 0, 9) == 0;
    if (transposed) w[0] = c, w[1] = m;
    value_id in[3] = {x, net_const(t, 4, w, 1.5 / (double)(1 + kh * kw * c / group) + 0.1), 0};
    if (net_pick(t, 0, 1)) in[2] = net_const(t, 1, &m, 0.5);
    node_id n = net_node(t, transposed ? "ConvTranspose" : "Conv", in[2] ? 3 : 2, in);
    attr_set_ints(&t->g, n, "pads", pads, 4);
    attr_set_int(&t->g, n, "group", group);
    if (net_pick(t, 0, 4) == 0) attr_set_ints(&t->g, n, "strides", (i64[]){2, 2}, 2);
    return n;
}

static node_id net_pool(struct net *t, value_id x)
{
    static const char *const op[] = {"MaxPool", "AveragePool", "GlobalAveragePool"};
    i64 which = net_pick(t, 0, 5) / 2, k = net_pick(t, 2, 3), p = k / 2;
    node_id n = net_node(t, op[which], 1, &x);
    if (which == 2) return n;
    attr_set_ints(&t->g, n, "kernel_shape", (i64[]){k, k}, 2);
    attr_set_ints(&t->g, n, "strides", net_pick(t, 0, 1) ? (i64[]){2, 2} : (i64[]){1, 1}, 2);
    attr_set_ints(&t->g, n, "pads", (i64[]){p, p, p, p}, 4);
    if (which == 1) attr_set_int(&t->g, n, "count_include_pad", net_pick(t, 0, 1));
    return n;
}

static node_id net_unary(struct net *t, value_id x)
{
    static const char *const op[] = {"Relu", "Sigmoid", "Tanh", "Abs", "Neg", "LeakyRelu", "Softplus", "Erf", "HardSwish", "Identity"};
    return net_node(t, op[net_pick(t, 0, countof(op) - 1)], 1, &x);
}

/* Another value of the same shape, otherwise a constant that broadcasts. */
static node_id net_binary(struct net *t, value_id x)
{
    static const char *const op[] = {"Add", "Mul", "Sub", "Max", "Min", "Add"};
    const struct shape *s = net_shape(t, x);
    value_id in[2] = {x, 0};
    for (int i = 0; i < 8 && !in[1]; i++) {
        value_id y = t->have.v[net_pick(t, 0, t->have.n - 1)];
        if (y != x && shape_equal(net_shape(t, y), s)) in[1] = y;
    }
    i64 dim[MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    u32 axis = (u32)net_pick(t, 0, s->rank - 1);
    i64 n = net_dim(t, x, axis);
    if (n > 0) dim[axis] = n;
    if (!in[1]) in[1] = net_pick(t, 0, 3) ? net_const(t, s->rank, dim, 1) : net_const(t, 0, NULL, 1);
    if (net_pick(t, 0, 3) == 0) in[1] = in[0], in[0] = in[0] == x ? t->have.v[t->have.n - 1] : x;
    return net_node(t, op[net_pick(t, 0, countof(op) - 1)], 2, in);
}

static node_id net_concat(struct net *t, value_id x)
{
    const struct shape *s = net_shape(t, x);
    value_id in[3] = {x, x, x};
    u32 n = 1, axis = (u32)net_pick(t, 0, s->rank - 1);
    if (t->kind == NET_JOINS && s->rank > 1 && net_pick(t, 0, 3)) axis = 1;
    for (int i = 0; i < 12 && n < 3; i++) {
        value_id y = t->have.v[net_pick(t, 0, t->have.n - 1)];
        const struct shape *o = net_shape(t, y);
        bool fits = o->rank == s->rank;
        for (u32 d = 0; d < s->rank && fits; d++) fits = d == axis || o->dim[d] == s->dim[d];
        if (t->kind == NET_JOINS) fits = fits && y != in[0] && (n == 1 || y != in[1]);
        if (fits) in[n++] = y;
    }
    if (t->kind == NET_JOINS && n == 1) return net_unary(t, x);
    node_id c = net_node(t, "Concat", n < 2 ? 2 : n, in);
    attr_set_int(&t->g, c, "axis", axis);
    return c;
}

static node_id net_pad(struct net *t, value_id x)
{
    static const char *const mode[] = {"constant", "reflect", "edge"};
    u32 rank = net_shape(t, x)->rank;
    i64 pads[2 * MAX_RANK] = {0};
    for (u32 d = 2; d < rank; d++) pads[d] = net_pick(t, 0, 2), pads[rank + d] = net_pick(t, 0, 2);
    value_id in[2] = {x, net_ints(t, 2 * rank, pads)};
    node_id n = net_node(t, "Pad", 2, in);
    attr_set_str(&t->g, n, "mode", str_of(mode[net_pick(t, 0, 2)]));
    return n;
}

static node_id net_resize(struct net *t, value_id x)
{
    float by = net_pick(t, 0, 2) ? 2 : 0.5f;
    i64 four = 4;
    struct tensor *s = tensor_new(&t->arena, DT_F32, 1, &four);
    for (i64 i = 0; i < 4; i++) elem_set_f64(DT_F32, s->data, i, i < 2 ? 1 : by);
    value_id in[3] = {x, 0, graph_add_const(&t->g, S("s"), s)};
    node_id n = net_node(t, "Resize", 3, in);
    attr_set_str(&t->g, n, "mode", net_pick(t, 0, 1) ? S("nearest") : S("linear"));
    attr_set_str(&t->g, n, "coordinate_transformation_mode", net_pick(t, 0, 1) ? S("asymmetric") : S("half_pixel"));
    if (net_pick(t, 0, 1)) attr_set_str(&t->g, n, "nearest_mode", S("floor"));
    return n;
}

static node_id net_reduce(struct net *t, value_id x)
{
    static const char *const op[] = {"ReduceMean", "ReduceMax", "ReduceSum", "Softmax", "LogSoftmax"};
    i64 which = net_pick(t, 0, 4), axis = net_pick(t, 0, net_shape(t, x)->rank - 1);
    if (which >= 3) {
        node_id n = net_node(t, op[which], 1, &x);
        attr_set_int(&t->g, n, "axis", axis);
        return n;
    }
    i64 axes[2] = {axis, (axis + 1) % net_shape(t, x)->rank};
    value_id a = net_ints(t, net_shape(t, x)->rank > 1 ? net_pick(t, 1, 2) : 1, axes);
    node_id n = net_node(t, op[which], which == 1 ? 2 : 2, (value_id[]){x, a});
    attr_set_int(&t->g, n, "keepdims", net_pick(t, 0, 3) != 0);
    return n;
}

static node_id net_slice(struct net *t, value_id x)
{
    i64 axis = net_pick(t, 0, net_shape(t, x)->rank - 1), from = net_pick(t, 0, 1), to = net_pick(t, 0, 2) ? -1 : INT64_MAX;
    i64 step = net_pick(t, 1, 2);
    value_id in[5] = {x, net_ints(t, 1, &from), net_ints(t, 1, &to), net_ints(t, 1, &axis), net_ints(t, 1, &step)};
    return net_node(t, "Slice", 5, in);
}

static node_id net_move(struct net *t, value_id x)
{
    u32 rank = net_shape(t, x)->rank;
    i64 perm[MAX_RANK];
    if (rank == 4 && net_pick(t, 0, 3) == 0) {
        node_id n = net_node(t, "DepthToSpace", 1, &x);
        attr_set_int(&t->g, n, "blocksize", 2);
        return n;
    }
    for (u32 d = 0; d < rank; d++) perm[d] = d;
    for (u32 d = rank; d > 1; d--) {
        i64 k = net_pick(t, 0, d - 1), was = perm[d - 1];
        perm[d - 1] = perm[k], perm[k] = was;
    }
    node_id n = net_node(t, "Transpose", 1, &x);
    attr_set_ints(&t->g, n, "perm", perm, rank);
    return n;
}

static node_id net_product(struct net *t, value_id x)
{
    u32 rank = net_shape(t, x)->rank;
    i64 k = net_dim(t, x, rank - 1), dim[2] = {k, net_pick(t, 1, 17)};
    if (k < 1 || rank < 2) return net_unary(t, x);
    return net_node(t, "MatMul", 2, (value_id[]){x, net_const(t, 2, dim, 0.7)});
}

static node_id net_norm(struct net *t, value_id x)
{
    i64 c = net_dim(t, x, 1);
    value_id s = net_const(t, 1, &c, 1), b = net_const(t, 1, &c, 1), m = net_const(t, 1, &c, 1), v = net_const(t, 1, &c, 1);
    if (net_pick(t, 0, 2) == 0) return net_node(t, "InstanceNormalization", 3, (value_id[]){x, s, b});
    struct tensor *var = graph_value(&t->g, v)->data;
    for (i64 i = 0; i < c; i++) elem_set_f64(DT_F32, var->data, i, 0.5 + rng_f64(&t->rng));
    return net_node(t, "BatchNormalization", 5, (value_id[]){x, s, b, m, v});
}

static node_id net_split(struct net *t, value_id x)
{
    u32 axis = (u32)net_pick(t, 0, net_shape(t, x)->rank - 1);
    i64 c = net_dim(t, x, axis), part[2] = {1, c - 1};
    if (c < 2) return net_unary(t, x);
    node_id n = net_node(t, "Split", 2, (value_id[]){x, net_ints(t, 2, part)});
    node_set_out(&t->g, n, 1, graph_add_value(&t->g, S("half")));
    attr_set_int(&t->g, n, "axis", axis);
    return n;
}

static node_id net_any(struct net *t, value_id x)
{
    bool image = net_shape(t, x)->rank == 4 && net_dim(t, x, 1) > 0;
    if (t->kind == NET_JOINS && net_pick(t, 0, 2) == 0) return net_concat(t, x);
    if (t->kind == NET_JOINS && image && net_pick(t, 0, 1)) return net_conv(t, x);
    if (t->kind == NET_CONVS && image && net_pick(t, 0, 2)) return net_conv(t, x);
    if (t->kind == NET_CONVS && image && net_pick(t, 0, 3)) return net_pick(t, 0, 1) ? net_binary(t, x) : net_unary(t, x);
    if (t->kind == NET_CONVS && image) return net_pick(t, 0, 1) ? net_pool(t, x) : net_concat(t, x);
    switch (net_pick(t, 0, image ? 19 : 12)) {
    case 0: case 1: case 2: return net_unary(t, x);
    case 3: case 4: case 5: return net_binary(t, x);
    case 6: return net_concat(t, x);
    case 7: case 8: return net_reduce(t, x);
    case 9: return net_slice(t, x);
    case 10: return net_move(t, x);
    case 11: return net_product(t, x);
    case 12: return net_split(t, x);
    case 13: return net_pad(t, x);
    case 14: return net_resize(t, x);
    case 15: return net_norm(t, x);
    case 16: return net_pool(t, x);
    default: return net_conv(t, x);
    }
}

/* Adds one node, if one is possible. */
static void net_grow(struct net *t)
{
    i64 back = net_pick(t, 0, 2) ? 0 : net_pick(t, 0, t->have.n - 1); /* mostly on from the newest */
    struct err e = {0};
    const struct sym_mark known = sym_mark(&t->sym, &t->arena);
    node_id n = net_any(t, t->have.v[t->have.n - 1 - (u32)back]);
    bool ok = op_infer(&t->g, n, &e);
    if (!ok || t->sym.fact.n) { /* nothing that H and W must be for it */
        graph_node(&t->g, n)->dead = true;
        sym_rewind(&t->sym, &known);
        return;
    }
    const struct node *x = graph_node(&t->g, n);
    for (u32 k = 0; k < x->out.n; k++)
        if (net_shape(t, x->out.v[k])->rank > 0) *(arr_push(&t->arena, &t->have)) = x->out.v[k];
}

/* All unused values become outputs, and now and then an inner one, an input, or the same one twice. */
static void net_outputs(struct net *t)
{
    for (u32 i = 0; i < t->have.n; i++) {
        bool inner = graph_is_read(&t->g, t->have.v[i]), input = graph_value(&t->g, t->have.v[i])->producer == 0;
        if (input ? net_pick(t, 0, 9) != 0 : inner && net_pick(t, 0, 7) != 0) continue;
        *arr_push(&t->arena, &t->g.output) = t->have.v[i];
        if (net_pick(t, 0, 15) == 0) *arr_push(&t->arena, &t->g.output) = t->have.v[i];
    }
    if (t->g.output.n == 0) *arr_push(&t->arena, &t->g.output) = t->have.v[t->have.n - 1];
}

static void net_open_as(struct net *t, u64 seed, enum net_kind kind)
{
    *t = (struct net){.rng = rng_seed(seed), .kind = kind};
    symtab_init(&t->sym, &t->arena);
    graph_init(&t->g, &t->arena, &t->sym);
    sym dim[4] = {sym_const(&t->sym, net_pick(t, 1, 2)), sym_const(&t->sym, net_pick(t, 1, 9)), sym_var(&t->sym, S("H")),
                  sym_var(&t->sym, S("W"))};
    *(arr_push(&t->arena, &t->have)) = net_input(t, "x", 4, dim);
    if (net_pick(t, 0, 2) == 0) *(arr_push(&t->arena, &t->have)) = net_input(t, "y", 4, dim);
    for (i64 n = net_pick(t, 3, 15); n > 0; n--) net_grow(t);
    net_outputs(t);
}

static void net_open(struct net *t, u64 seed) { net_open_as(t, seed, NET_ANY); }

static void net_close(struct net *t)
{
    struct arena a = t->arena;
    arena_release(&a);
}

/* Inputs for sizes var[], signed and random. */
__attribute__((unused)) static struct tensor *net_inputs(struct net *t, struct arena *a, const i64 *var)
{
    struct tensor *in = arena_array(a, struct tensor, t->g.input.n);
    for (u32 k = 0; k < t->g.input.n; k++) {
        const struct value *x = graph_value(&t->g, t->g.input.v[k]);
        i64 dim[MAX_RANK];
        shape_eval(&t->sym, &x->shape, var, dim);
        in[k] = *tensor_new(a, x->dtype, x->shape.rank, dim);
        for (i64 i = 0, n = tensor_count(&in[k]); i < n; i++) elem_set_f64(x->dtype, in[k].data, i, x->dtype == DT_U8 ? floor(rng_f64(&t->rng) * 256) : rng_f64(&t->rng) * 2 - 1);
    }
    return in;
}

#endif
