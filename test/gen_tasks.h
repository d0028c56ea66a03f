// SPDX-License-Identifier: Apache-2.0
//
// For tests of kernel families: random convolutions, pooling, matmuls and reductions with fused
// prologues and epilogues, sizes known or symbolic, in all layouts. Each builder fills a fixture;
// false: the random choices are incompatible.
#ifndef QUERN_TEST_GEN_TASKS_H
#define QUERN_TEST_GEN_TASKS_H

#include "gen_fixture.h"

/* A pointwise prologue: activation, padding, concatenation. */
static inline value_id random_prologue(struct fixture *b, value_id x, u32 rank, const sym *dim)
{
    switch (pick(b, 0, 5)) {
    case 0: return add_op(b, "Relu", x, 0, 0);
    case 1: {
        sym d[MAX_RANK];
        memcpy(d, dim, sizeof d);
        d[1] = sym_const(&b->sym, pick(b, 1, 20));
        value_id y = add_op(b, "Concat", x, add_input(b, "other", rank, d), 0);
        attr_set_int(&b->g, graph_value(&b->g, y)->producer, "axis", 1);
        return y;
    }
    default: return x;
    }
}

static inline value_id random_epilogue(struct fixture *b, value_id y)
{
    if (!infer_last(b, y)) return y;
    struct shape s = graph_value(&b->g, y)->shape;
    i64 c;
    if (pick(b, 0, 2) == 0) y = add_op(b, "Relu", y, 0, 0);
    if (pick(b, 0, 2) == 0) y = add_op(b, "Add", y, add_input(b, "residual", s.rank, s.dim), 0);
    if (pick(b, 0, 2) == 0 && sym_is_const(&b->sym, s.dim[1], &c)) {
        i64 d[MAX_RANK] = {1, c, 1, 1, 1};
        y = add_op(b, "Mul", y, add_const(b, "scale", s.rank, d), 0);
    }
    if (pick(b, 0, 3) == 0) y = add_op(b, "Sigmoid", y, 0, 0);
    if (pick(b, 0, 3) == 0) y = add_op(b, "Erf", add_op(b, "Tanh", y, 0, 0), 0, 0); /* long */
    return y;
}

/* Less of the output than the pads give. */
static inline void crop_conv(struct fixture *b, value_id y)
{
    sym size[MAX_RANK];
    if (!infer_last(b, y)) return;
    const struct shape s = graph_value(&b->g, y)->shape;
    for (u32 i = 2; i < s.rank; i++) {
        i64 n;
        bool known = sym_eval(&b->sym, s.dim[i], b->var, &n);
        size[i - 2] = known && n > 3 ? sym_sub(&b->sym, s.dim[i], sym_const(&b->sym, pick(b, 0, 3))) : s.dim[i];
    }
    op_window_crop(&b->g, graph_value(&b->g, y)->producer, size);
}

/* three: 3x3, one group, stride 1. */
static inline bool random_conv_like(struct fixture *b, bool three)
{
    u32 s = (u32)pick(b, three ? 2 : 1, 3), rank = s + 2;
    static const i64 some[] = {1, 2, 3, 4, 5, 8, 12, 16, 17, 20, 32, 33}, many[] = {1, 3, 7, 16, 17, 20, 32, 33, 34, 35, 40, 48};
    static const i64 large[countof(some)] = {16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 96, 128};
    const i64 *channels = b->is_large ? large : three ? many : some;
    i64 groups = three || pick(b, 0, 4) ? 1 : pick(b, 2, 3);
    i64 w[MAX_RANK], pads[2 * MAX_RANK], strides[MAX_RANK], dil[MAX_RANK];
    sym dim[MAX_RANK];
    bool point = !three && pick(b, 0, 3) == 0, symbolic = pick(b, 0, 1);
    bool depthwise = !three && pick(b, 0, 5) == 0 && !b->is_large;
    i64 ic = groups * channels[pick(b, 0, groups > 1 ? 4 : countof(some) - 1)];
    w[0] = groups * channels[pick(b, 0, groups > 1 ? 6 : countof(some) - 1)];
    if (depthwise) groups = w[0] = ic = pick(b, 2, 40);
    dim[0] = draw_size(b, 1, 2, 4);
    dim[1] = sym_const(&b->sym, ic);
    for (u32 i = 0; i < s; i++) {
        w[2 + i] = three ? (s == 3 && i == 0 && pick(b, 0, 3) == 0 ? 1 : 3) : point ? 1 : pick(b, 1, s == 3 ? 2 : 3);
        strides[i] = three || (point && pick(b, 0, 2)) ? 1 : pick(b, 1, 2);
        dil[i] = three || pick(b, 0, 3) ? 1 : 2;
        pads[i] = point ? 0 : pick(b, 0, 2), pads[s + i] = point ? 0 : pick(b, 0, 2);
        i64 need = (w[2 + i] - 1) * dil[i] + 1 - pads[i] - pads[s + i];
        dim[2 + i] = size_of(b, i64_max(need, 1) + pick(b, 0, s == 1 ? 40 : i + 1 == s ? 17 : 5), symbolic);
    }
    value_id x = add_input(b, "x", rank, dim);
    x = depthwise && pick(b, 0, 1) ? add_op(b, "Relu", x, 0, 0) : random_prologue(b, x, rank, dim);
    if (graph_value(&b->g, x)->producer) {
        if (!infer_last(b, x)) return false;
        sym_is_const(&b->sym, graph_value(&b->g, x)->shape.dim[1], &ic);
        if (ic % groups) return false;
    }
    w[1] = ic / groups;
    value_id y = add_weighted(b, "Conv", x, rank, w, pick(b, 0, 1) ? w : NULL);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_int(&b->g, n, "group", groups);
    attr_set_ints(&b->g, n, "strides", strides, s);
    attr_set_ints(&b->g, n, "dilations", dil, s);
    attr_set_ints(&b->g, n, "pads", pads, 2 * s);
    if (pick(b, 0, 5) == 0) crop_conv(b, y);
    y = random_epilogue(b, y);
    if (s >= 2 && pick(b, 0, 4) == 0) {
        if (three && pick(b, 0, 1)) *arr_push(&b->arena, &b->g.output) = y;
        y = add_op(b, "MaxPool", y, 0, 0);
        attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "kernel_shape", (i64[]){2, 2, 2}, s);
        attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "strides", (i64[]){2, 2, 2}, s);
    }
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static inline bool random_conv(struct fixture *b) { return random_conv_like(b, false); }

/* Without prologue. Either 1x1 kernels without padding, and sums long enough for several K blocks,
   or depthwise. */
static inline bool random_plain(struct fixture *b, bool depthwise)
{
    static const i64 some[] = {1, 3, 16, 17, 32, 33, 50}, many[] = {1, 5, 8, 33, 64, 100, 290};
    u32 s = (u32)pick(b, 1, 3), rank = s + 2;
    i64 w[MAX_RANK] = {some[pick(b, 0, countof(some) - 1)], many[pick(b, 0, countof(many) - 1)], 1, 1, 1};
    i64 strides[MAX_RANK], dil[MAX_RANK], pads[2 * MAX_RANK] = {0}, channels = depthwise ? w[0] = pick(b, 2, 40) : w[1];
    bool symbolic = pick(b, 0, 3) == 0, strided = pick(b, 0, 1);
    sym dim[MAX_RANK] = {draw_size(b, 1, 2, 6), sym_const(&b->sym, channels)};
    for (u32 i = 0; i < s; i++) {
        strides[i] = strided ? pick(b, 1, 3) : 1, dil[i] = pick(b, 0, 4) ? 1 : 2;
        if (depthwise) w[2 + i] = pick(b, 1, 4), pads[i] = pick(b, 0, 2), pads[s + i] = pick(b, 0, 2);
        i64 need = (w[2 + i] - 1) * dil[i] + 1 - pads[i] - pads[s + i];
        dim[2 + i] = size_of(b, i64_max(need, 1) + pick(b, 0, i + 1 == s ? depthwise ? 24 : 11 : 4), symbolic);
    }
    if (depthwise) w[1] = 1;
    value_id x = add_input(b, "x", rank, dim), bias = pick(b, 0, 1) ? add_const(b, "b", 1, w) : 0;
    value_id y = add_op(b, "Conv", x, add_weights(b, rank, w), bias);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_int(&b->g, n, "group", depthwise ? channels : 1);
    attr_set_ints(&b->g, n, "strides", strides, s);
    attr_set_ints(&b->g, n, "dilations", dil, s);
    attr_set_ints(&b->g, n, "pads", pads, 2 * s);
    *arr_push(&b->arena, &b->g.output) = random_epilogue(b, y);
    return make_task(b);
}

static inline bool random_point(struct fixture *b) { return random_plain(b, false); }
static inline bool random_depthwise(struct fixture *b) { return random_plain(b, true); }

static inline value_id in_front(struct fixture *b, value_id x, u32 rank, const sym *dim)
{
    i64 one[MAX_RANK] = {1, gen_static(&b->g, dim[1], 1), 1, 1, 1};
    switch (pick(b, 0, 3)) {
    case 0: return add_op(b, "Relu", x, 0, 0);
    case 1: return add_op(b, "Mul", x, add_const(b, "scale", rank, one), 0);
    default: return x;
    }
}

/* All nodes, in the order in which they were added; nothing is an output yet. */
static inline bool infer_nodes(struct fixture *b)
{
    for (node_id n = 1; n < b->g.node.n; n++)
        if (!op_infer(&b->g, n, &b->e)) return false;
    return true;
}

static inline value_id behind(struct fixture *b, value_id y)
{
    switch (pick(b, 0, 4)) {
    case 0: return add_op(b, "Sigmoid", y, 0, 0);
    case 1: return infer_nodes(b) ? add_op(b, "Add", y, add_input(b, "other", graph_value(&b->g, y)->shape.rank,
                                                                   graph_value(&b->g, y)->shape.dim), 0) : y;
    default: return y;
    }
}

/* n, channels, spatial axes of at least `least` */
static inline value_id picture(struct fixture *b, u32 rank, i64 channels, const i64 *least, sym *dim)
{
    dim[0] = sym_const(&b->sym, pick(b, 1, 2));
    dim[1] = sym_const(&b->sym, channels);
    for (u32 i = 2; i < rank; i++) {
        bool symbolic = pick(b, 0, 1);
        dim[i] = size_of(b, least[i] + pick(b, 0, rank > 4 ? 2 : 14), symbolic);
    }
    return add_input(b, "x", rank, dim);
}

static inline bool random_pool(struct fixture *b)
{
    static const char *const ops[] = {"MaxPool", "AveragePool", "LpPool"};
    static const i64 channels[] = {1, 3, 8, 16, 17, 37, 64, 72};
    u32 rank = (u32)pick(b, 3, 5), n = rank - 2, kind = (u32)pick(b, 0, 2);
    i64 kernel[MAX_RANK], stride[MAX_RANK], dil[MAX_RANK], pads[2 * MAX_RANK], least[MAX_RANK];
    sym dim[MAX_RANK];
    for (u32 i = 0; i < n; i++) {
        kernel[i] = pick(b, 1, pick(b, 0, 5) ? 3 : 11), stride[i] = pick(b, 1, 3), dil[i] = pick(b, 0, 3) ? 1 : 2;
        pads[i] = pick(b, 0, kernel[i] - 1), pads[n + i] = pick(b, 0, kernel[i] - 1);
        if (pick(b, 0, 2) == 0) pads[i] = pads[n + i] = 0;
        least[2 + i] = (kernel[i] - 1) * dil[i] + 1;
    }
    value_id x = picture(b, rank, channels[pick(b, 0, b->caps.is_gpu ? 7 : 5)], least, dim);
    value_id y = add_op(b, ops[kind], in_front(b, x, rank, dim), 0, 0);
    node_id p = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, p, "kernel_shape", kernel, n);
    attr_set_ints(&b->g, p, "strides", stride, n);
    attr_set_ints(&b->g, p, "dilations", dil, n);
    attr_set_ints(&b->g, p, "pads", pads, 2 * n);
    if (kind == 1) attr_set_int(&b->g, p, "count_include_pad", pick(b, 0, 1));
    if (kind == 2) attr_set_int(&b->g, p, "p", pick(b, 1, 3));
    if (pick(b, 0, 3) == 0) attr_set_int(&b->g, p, "ceil_mode", 1);
    *arr_push(&b->arena, &b->g.output) = behind(b, y);
    return make_task(b);
}

static inline bool random_transpose(struct fixture *b)
{
    static const i64 channels[] = {1, 2, 3, 5, 8, 19};
    u32 rank = (u32)pick(b, 3, 5), n = rank - 2;
    i64 group = pick(b, 0, 3) ? 1 : pick(b, 2, 3), ic = channels[pick(b, 0, 4)], oc = channels[pick(b, 0, 5)];
    i64 wdim[MAX_RANK] = {ic * group, oc}, stride[MAX_RANK], dil[MAX_RANK], pads[2 * MAX_RANK], extra[MAX_RANK];
    i64 least[MAX_RANK];
    sym dim[MAX_RANK];
    for (u32 i = 0; i < n; i++) {
        wdim[2 + i] = pick(b, 1, rank > 4 ? 3 : 5), stride[i] = pick(b, 1, 3), dil[i] = pick(b, 0, 5) ? 1 : 2;
        i64 span = (wdim[2 + i] - 1) * dil[i] + 1;
        pads[i] = pick(b, 0, span / 2), pads[n + i] = pick(b, 0, span / 2);
        extra[i] = pick(b, 0, stride[i] - 1);
        least[2 + i] = 2;
    }
    value_id x = picture(b, rank, ic * group, least, dim), w = add_weights(b, rank, wdim), bias = 0;
    if (pick(b, 0, 1)) bias = add_const(b, "b", 1, (i64[]){oc * group});
    value_id y = add_op(b, "ConvTranspose", in_front(b, x, rank, dim), w, bias);
    node_id p = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, p, "strides", stride, n);
    attr_set_ints(&b->g, p, "dilations", dil, n);
    attr_set_ints(&b->g, p, "pads", pads, 2 * n);
    attr_set_ints(&b->g, p, "output_padding", extra, n);
    attr_set_int(&b->g, p, "group", group);
    *arr_push(&b->arena, &b->g.output) = behind(b, y);
    return make_task(b);
}

/* The gradient of a convolution's weights. */
static inline bool random_grad(struct fixture *b)
{
    static const i64 channels[] = {1, 2, 3, 5, 8, 16, 19, 33};
    struct symtab *t = &b->sym;
    u32 rank = (u32)pick(b, 3, 5), n = rank - 2;
    i64 group = pick(b, 0, 3) ? 1 : pick(b, 2, 3), ic = channels[pick(b, 0, 6)], oc = channels[pick(b, 0, 7)];
    if (pick(b, 0, 7) == 0) group = pick(b, 2, 37), ic = oc = 1;
    i64 kernel[MAX_RANK], stride[MAX_RANK], dil[MAX_RANK], pads[2 * MAX_RANK], least[MAX_RANK];
    sym dim[MAX_RANK], out[MAX_RANK];
    bool padded = pick(b, 0, 2), single = pick(b, 0, 7) == 0; /* single: one position along most axes */
    for (u32 i = 0; i < n; i++) {
        kernel[i] = pick(b, 1, rank > 4 ? 3 : 5), stride[i] = pick(b, 0, 1) ? 1 : pick(b, 2, 3), dil[i] = pick(b, 0, 5) ? 1 : 2;
        i64 span = (kernel[i] - 1) * dil[i] + 1;
        pads[i] = padded ? pick(b, 0, span / 2) : 0, pads[n + i] = padded ? pick(b, 0, span / 2) : 0;
        least[2 + i] = i64_max(1, span - pads[i] - pads[n + i]);
        if (single && pick(b, 0, 3)) stride[i] = 20;
    }
    value_id x = picture(b, rank, ic * group, least, dim);
    out[0] = dim[0], out[1] = sym_const(t, oc * group);
    for (u32 i = 0; i < n; i++) {
        sym room = sym_sub(t, sym_add(t, dim[2 + i], sym_const(t, pads[i] + pads[n + i])), sym_const(t, (kernel[i] - 1) * dil[i] + 1));
        out[2 + i] = sym_add(t, sym_div(t, room, sym_const(t, stride[i])), sym_const(t, 1));
    }
    value_id dy = in_front(b, add_input(b, "dy", rank, out), rank, out);
    value_id dw = add_op(b, "quern::ConvGradWeight", in_front(b, x, rank, dim), dy, 0);
    node_id p = graph_value(&b->g, dw)->producer;
    attr_set_ints(&b->g, p, "kernel_shape", kernel, n);
    attr_set_ints(&b->g, p, "strides", stride, n);
    attr_set_ints(&b->g, p, "dilations", dil, n);
    attr_set_ints(&b->g, p, "pads", pads, 2 * n);
    attr_set_int(&b->g, p, "group", group);
    *arr_push(&b->arena, &b->g.output) = behind(b, dw);
    return make_task(b);
}

/* One operand of a matmul, possibly transposed, possibly with a Relu prologue. */
static inline value_id operand(struct fixture *b, const char *name, u32 rank, const sym *dim, bool constant)
{
    sym d[MAX_RANK];
    i64 c[MAX_RANK], perm[MAX_RANK];
    bool known = true, is_transposed = rank > 1 && pick(b, 0, 3) == 0;
    for (u32 i = 0; i < rank; i++) perm[i] = i, d[i] = dim[i], known = known && sym_is_const(&b->sym, dim[i], &c[i]);
    if (constant && known) return add_const(b, name, rank, c);
    if (is_transposed) {
        d[rank - 1] = dim[rank - 2], d[rank - 2] = dim[rank - 1];
        perm[rank - 1] = rank - 2, perm[rank - 2] = rank - 1;
    }
    value_id x = add_input(b, name, rank, d);
    if (is_transposed) {
        x = add_op(b, "Transpose", x, 0, 0);
        attr_set_ints(&b->g, graph_value(&b->g, x)->producer, "perm", perm, rank);
    }
    return pick(b, 0, 5) ? x : add_op(b, "Relu", x, 0, 0);
}

static inline bool random_gemm(struct fixture *b)
{
    static const i64 sizes[] = {1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 40, 65};
    sym a[MAX_RANK], w[MAX_RANK], n[3];
    u32 ra = (u32)pick(b, 1, 4), rb = (u32)pick(b, 2, 4);
    bool symbolic = pick(b, 0, 2) == 0;
    for (u32 i = 0; i < 3; i++) {
        i64 grow = b->caps.is_gpu && pick(b, 0, 1) ? 3 : 1; /* blocks of groups are larger */
        bool is_var = symbolic && pick(b, 0, 1);
        n[i] = size_of(b, grow * sizes[pick(b, 0, countof(sizes) - 1)], is_var);
    }
    for (u32 i = 0; i < 2; i++) { /* batches, from the last */
        bool is_var = symbolic && pick(b, 0, 1);
        sym d = size_of(b, pick(b, 1, 3), is_var), one = sym_const(&b->sym, 1);
        if (ra > 2 + i) a[ra - 3 - i] = pick(b, 0, 4) ? d : one;
        if (rb > 2 + i) w[rb - 3 - i] = pick(b, 0, 4) ? d : one;
    }
    a[ra - 1] = n[2], w[rb - 2] = n[2], w[rb - 1] = n[1];
    if (ra > 1) a[ra - 2] = n[0];
    value_id right = operand(b, "b", rb, w, pick(b, 0, 1)), left = operand(b, "a", ra, a, false);
    value_id y = add_op(b, "MatMul", left, right, 0);
    if (b->tf32) attr_set_int(&b->g, graph_value(&b->g, y)->producer, "tf32", 1);
    for (node_id i = 1; i < b->g.node.n; i++)
        if (!op_infer(&b->g, i, &b->e)) return false;
    struct shape s = graph_value(&b->g, y)->shape;
    if (pick(b, 0, 1)) y = add_op(b, "Add", y, operand(b, "c", 1, &n[1], true), 0);
    if (pick(b, 0, 2) == 0) y = add_op(b, "Sigmoid", y, 0, 0);
    if (pick(b, 0, 2) == 0) y = add_op(b, "Add", y, add_input(b, "residual", s.rank, s.dim), 0);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

/* Weights (n, k) of a linear layer that are an input, seen as (k, n); some are computed, as NaN of the zeros behind the last. */
static inline value_id linear_weights(struct fixture *b, u32 rank, const sym *dim)
{
    static const i64 perm[2][3] = {{1, 0}, {0, 2, 1}};
    value_id w = add_input(b, "w", rank, dim);
    if (pick(b, 0, 5) == 0) w = add_op(b, "Div", w, add_op(b, "Abs", w, 0, 0), 0);
    w = add_op(b, "Transpose", w, 0, 0);
    attr_set_ints(&b->g, graph_value(&b->g, w)->producer, "perm", perm[rank - 2], rank);
    return w;
}

/* A matmul whose right operand's terms are neighbours in memory. */
static inline bool random_linear(struct fixture *b)
{
    static const i64 sizes[] = {1, 2, 5, 6, 7, 8, 15, 16, 17, 31, 33, 40, 65, 96, 129};
    sym n[3], left[3], right[3];
    bool symbolic = pick(b, 0, 2) == 0;
    u32 rank = (u32)pick(b, 1, 3), batched = rank == 3 && pick(b, 0, 1);
    for (u32 i = 0; i < 3; i++) {
        bool is_var = symbolic && pick(b, 0, 1);
        n[i] = size_of(b, sizes[pick(b, i == 2 ? 6 : 0, countof(sizes) - 1)], is_var);
    }
    left[rank - 1] = n[2];
    if (rank > 1) left[rank - 2] = n[0];
    if (rank > 2) left[0] = sym_const(&b->sym, pick(b, 1, 2));
    right[0] = left[0], right[batched] = n[1], right[batched + 1] = n[2];
    value_id w = linear_weights(b, 2 + batched, right), x = operand(b, "x", rank, left, false);
    value_id y = add_op(b, "MatMul", x, w, 0);
    for (node_id i = 1; i < b->g.node.n; i++)
        if (!op_infer(&b->g, i, &b->e)) return false;
    struct shape s = graph_value(&b->g, y)->shape;
    if (pick(b, 0, 1)) y = add_op(b, "Add", y, operand(b, "c", 1, &n[1], true), 0);
    if (pick(b, 0, 2) == 0) y = add_op(b, "Sigmoid", y, 0, 0);
    if (pick(b, 0, 2) == 0) y = add_op(b, "Add", y, add_input(b, "residual", s.rank, s.dim), 0);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static inline value_id norm(struct fixture *b, value_id x, u32 rank, const sym *dim)
{
    static const char *const reduce[] = {"ReduceMean", "ReduceMax", "ReduceL2", "ReduceSum", "ReduceLogSumExp"};
    i64 axes[MAX_RANK], n = 0, c;
    i64 kind = pick(b, 0, 3);
    if (kind == 0 || (kind == 1 && !sym_is_const(&b->sym, dim[rank - 1], &c))) {
        value_id y = add_op(b, "Softmax", x, 0, 0);
        attr_set_int(&b->g, graph_value(&b->g, y)->producer, "axis", pick(b, 0, rank - 1));
        return y;
    }
    if (kind == 1 || (kind == 2 && rank > 2 && sym_is_const(&b->sym, dim[1], &c))) {
        value_id bias = add_const(b, "b", 1, &c), scale = add_const(b, "s", 1, &c);
        return add_op(b, kind == 1 ? "LayerNormalization" : "InstanceNormalization", x, scale, bias);
    }
    for (u32 i = 0; i < rank; i++)
        if (pick(b, 0, 1)) axes[n++] = i;
    if (!n) axes[n++] = rank - 1;
    struct tensor *t = tensor_new(&b->arena, DT_I64, 1, &n);
    memcpy(t->data, axes, sizeof(i64) * (size_t)n);
    value_id y = add_op(b, reduce[pick(b, 0, 4)], x, graph_add_const(&b->g, S("axes"), t), 0);
    attr_set_int(&b->g, graph_value(&b->g, y)->producer, "keepdims", pick(b, 0, 1));
    return y;
}

static inline bool random_row(struct fixture *b)
{
    static const i64 sizes[] = {1, 2, 3, 5, 7, 16, 17, 32, 40, 70};
    sym dim[MAX_RANK];
    u32 rank = (u32)pick(b, 1, 4);
    bool symbolic = pick(b, 0, 1);
    for (u32 i = 0; i < rank; i++) {
        bool is_var = symbolic && pick(b, 0, 1);
        dim[i] = size_of(b, sizes[pick(b, 0, rank > 2 ? 4 : rank == 2 ? 6 : 9)], is_var);
    }
    if (b->caps.is_gpu) { /* workgroups share longer rows, and more of them */
        bool is_var = symbolic && pick(b, 0, 1);
        sym size = size_of(b, 4 * sizes[pick(b, 0, rank > 2 ? 6 : 9)], is_var);
        dim[pick(b, 0, rank - 1)] = size;
    }
    if (rank > 2) {
        bool is_var = symbolic && pick(b, 0, 1);
        sym size = size_of(b, pick(b, 6, 20), is_var);
        dim[pick(b, 0, rank - 1)] = size;
    }
    value_id x = add_input(b, "x", rank, dim), y = x;
    if (pick(b, 0, 1)) y = add_op(b, "Add", x, add_input(b, "z", rank, dim), 0);
    y = norm(b, y, rank, dim);
    if (pick(b, 0, 1)) y = add_op(b, "Sigmoid", y, 0, 0);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

/* A view of x with another shape. */
static inline value_id add_reshape(struct fixture *b, value_id x, u32 rank, const sym *dim)
{
    value_id y = add_op(b, "quern::Reshape", x, 0, 0);
    op_set_syms(&b->g, graph_value(&b->g, y)->producer, "shape", dim, rank);
    return y;
}

/* A channel shuffle, of a concatenation or not: channels as (groups, rest), transposed. */
static inline bool random_shuffle(struct fixture *b)
{
    static const i64 groups[] = {2, 2, 3, 4, 4, 8}, rests[] = {1, 3, 4, 8, 12, 16, 29, 33, 58};
    const i64 n_groups = groups[pick(b, 0, countof(groups) - 1)], rest = rests[pick(b, 0, countof(rests) - 1)];
    const bool is_back = pick(b, 0, 1), is_joined = pick(b, 0, 1), symbolic = pick(b, 0, 2) == 0;
    sym a = sym_const(&b->sym, is_back ? rest : n_groups), c = sym_const(&b->sym, is_back ? n_groups : rest);
    sym dim[MAX_RANK] = {draw_size(b, 1, 2, 4), sym_mul(&b->sym, a, c)};
    u32 rank = (u32)pick(b, 2, 4);
    for (u32 i = 2; i < rank; i++) dim[i] = size_of(b, pick(b, 1, 6), symbolic);
    sym part[MAX_RANK], apart[MAX_RANK] = {dim[0], a, c}, swapped[MAX_RANK] = {dim[0], c, a};
    i64 perm[MAX_RANK] = {0, 2, 1, 3, 4};
    memcpy(part, dim, sizeof part);
    for (u32 i = 2; i < rank; i++) apart[i + 1] = swapped[i + 1] = dim[i];
    i64 first = pick(b, 1, n_groups * rest - 1);
    if (is_joined) part[1] = sym_const(&b->sym, first);
    value_id x = add_input(b, "x", rank, part), other = 0;
    if (is_joined) {
        part[1] = sym_const(&b->sym, n_groups * rest - first);
        other = add_input(b, "z", rank, part);
        x = add_op(b, "Concat", x, other, 0);
        attr_set_int(&b->g, graph_value(&b->g, x)->producer, "axis", 1);
    }
    if (pick(b, 0, 2) == 0) x = add_op(b, "Tanh", x, 0, 0);
    value_id y = add_op(b, "Transpose", add_reshape(b, x, rank + 1, apart), 0, 0);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "perm", perm, rank + 1);
    y = add_reshape(b, y, rank, dim);
    if (pick(b, 0, 2) == 0) y = add_op(b, "Relu", y, 0, 0);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

/* Without prologue: elements are loaded in place, in vectors if channels are adjacent. */
static inline bool random_plain_conv(struct fixture *b)
{
    static const i64 channels[] = {1, 2, 3, 4, 8, 12, 16, 20, 32};
    u32 s = (u32)pick(b, 1, 3), rank = s + 2;
    i64 groups = pick(b, 0, 3) ? 1 : pick(b, 2, 4), ic = channels[pick(b, 0, 8)], oc = channels[pick(b, 0, 8)];
    i64 w[MAX_RANK] = {groups * oc, ic}, strides[3], dil[3], pads[6], n = groups * oc;
    sym dim[MAX_RANK] = {draw_size(b, 1, 3, 4), sym_const(&b->sym, groups * ic)};
    bool symbolic = pick(b, 0, 2) == 0;
    for (u32 i = 0; i < s; i++) {
        w[2 + i] = pick(b, 1, s == 3 ? 3 : 4), strides[i] = pick(b, 1, 3), dil[i] = pick(b, 0, 2) ? 1 : pick(b, 2, 3);
        pads[i] = pick(b, 0, 2), pads[s + i] = pick(b, 0, 2);
        i64 need = (w[2 + i] - 1) * dil[i] + 1 - pads[i] - pads[s + i];
        dim[2 + i] = size_of(b, i64_max(need, 1) + pick(b, 0, s == 1 ? 40 : i + 1 == s ? 14 : 5), symbolic);
    }
    value_id x = add_input(b, "x", rank, dim), y = add_weighted(b, "Conv", x, rank, w, pick(b, 0, 1) ? &n : NULL);
    node_id node = graph_value(&b->g, y)->producer;
    attr_set_int(&b->g, node, "group", groups);
    attr_set_ints(&b->g, node, "strides", strides, s);
    attr_set_ints(&b->g, node, "dilations", dil, s);
    attr_set_ints(&b->g, node, "pads", pads, 2 * s);
    if (pick(b, 0, 1)) y = add_op(b, pick(b, 0, 1) ? "Relu" : "Sigmoid", y, 0, 0);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

#endif
