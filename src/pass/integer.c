// SPDX-License-Identifier: Apache-2.0
//
// integer: turns a convolution or matmul of two dequantised operands (as exported by quantisers) into one of
// integers, followed by a multiplication by the scales. For devices that have instructions for it; elsewhere
// dequantised operands are faster. Scales can be factored out of the sum: the left operand has one, the
// right one may have one per column (output channel). A bias that was quantised by the product of both
// scales, as quantisers do, is added to the integer sums. These are exact, and short enough not to
// overflow. requires: inferred, not yet expanded, constants not yet folded. ensures: new nodes are inferred.
//
//   sum of (a - za) * sa * (b - zb) * sb = sa * sb * (sum of (a - za) * (b - zb))
#include "pass/pass_linear.h"

enum { X, SCALE, ZERO, BIAS = 2, MAX_TERMS = 1 << 16 }; /* inputs; maximal number of terms 255 * 128 in a sum */

struct side { /* of a matmul or convolution */
    value_id x, scale, zero; /* zero 0: none */
    bool is_vector;          /* one scale per column */
};

static i64 count_of(const struct graph *g, value_id v)
{
    i64 dim[MAX_RANK];
    const struct shape *s = &graph_value(g, v)->shape;
    return shape_is_static(g->sym, s, dim) ? i64_product(s->rank, dim) : -1;
}

/* Whether v was dequantised, with one scale, or (axis >= 0) with one per index of that axis. */
static bool find_side(const struct graph *g, value_id v, i64 axis, struct side *s)
{
    node_id p = graph_value(g, v)->producer;
    if (!p || !str_is(graph_node(g, p)->op, "DequantizeLinear")) return false;
    const struct node *n = graph_node(g, p);
    const struct value *x = graph_value(g, n->in.v[X]);
    u32 own;
    if ((x->dtype != DT_U8 && x->dtype != DT_I8) || graph_value(g, v)->dtype != DT_F32) return false;
    if (graph_value(g, n->in.v[SCALE])->dtype != DT_F32 || attr_int(n, "block_size", 0)) return false;
    *s = (struct side){.x = n->in.v[X], .scale = n->in.v[SCALE], .zero = op_has_in(n, ZERO) ? n->in.v[ZERO] : 0};
    s->is_vector = count_of(g, s->scale) != 1;
    if (s->zero && !s->is_vector && count_of(g, s->zero) != 1) return false;
    if (!s->is_vector) return true;
    return graph_value(g, s->scale)->shape.rank == 1 && op_axis(attr_int(n, "axis", 1), x->shape.rank, &own) &&
           (i64)own == axis;
}

struct product {
    struct side a, b;
    value_id bias;
    i64 terms; /* of a sum */
    bool conv, is_transposed; /* the right operand is stored transposed */
};

/* The summed axes, with a maximal length. */
static bool is_short(const struct graph *g, const struct node *n, struct product *p)
{
    i64 dim[MAX_RANK], terms = 1;
    const struct shape *s = op_in_shape(g, n, 1);
    if (p->conv) {
        if (!shape_is_static(g->sym, s, dim)) return false;
        for (u32 i = 1; i < s->rank && terms < MAX_TERMS; i++) terms *= dim[i];
    } else if (!sym_is_const(g->sym, s->dim[s->rank - (p->is_transposed ? 1 : 2)], &terms)) {
        return false;
    }
    p->terms = terms;
    return terms < MAX_TERMS;
}

static bool find_product(const struct graph *g, node_id id, struct product *p)
{
    const struct node *n = graph_node(g, id);
    bool gemm = str_is(n->op, "Gemm"), matmul = op_of(g, id)->props & OP_MATMUL;
    *p = (struct product){.conv = op_of(g, id)->props & OP_CONV};
    if (n->dead || (!p->conv && !gemm && !matmul)) return false;
    u32 rank = op_in_shape(g, n, 1)->rank;
    if (rank < 2 || op_in_shape(g, n, 0)->rank < 2) return false;
    if (gemm && (attr_int(n, "transA", 0) || attr_float(n, "alpha", 1) != 1 || attr_float(n, "beta", 1) != 1))
        return false;
    p->is_transposed = gemm && attr_int(n, "transB", 0);
    p->bias = op_has_in(n, BIAS) ? n->in.v[BIAS] : 0;
    i64 columns = p->conv || p->is_transposed ? 0 : rank - 1;
    return find_side(g, n->in.v[0], -1, &p->a) && find_side(g, n->in.v[1], columns, &p->b) && is_short(g, n, p);
}

static bool all_zero(const struct tensor *t)
{
    for (i64 i = 0; t && i < tensor_count(t); i++)
        if (elem_i64(t->dtype, t->data, i)) return false;
    return t != NULL;
}

/* Whether the numbers s, one per column or one for all, are the products of both operands' scales. */
static bool is_scale_of(const struct graph *g, const struct tensor *s, const struct product *p, i64 columns)
{
    const struct tensor *right = graph_value(g, p->b.scale)->data;
    double left;
    if (!s || s->dtype != DT_F32 || !right || !linear_number(g, p->a.scale, &left)) return false;
    i64 n = tensor_count(s), m = tensor_count(right);
    if ((n != 1 && n != columns) || (m != 1 && m != columns)) return false;
    for (i64 i = 0; i < columns; i++) {
        float want = (float)left * (float)elem_f64(DT_F32, right->data, m > 1 ? i : 0);
        if ((float)elem_f64(DT_F32, s->data, n > 1 ? i : 0) != want) return false;
    }
    return true;
}

/* The i32 that the bias was dequantised from by the product of the operands' scales, if sums with it cannot overflow; 0: it was not. */
static value_id integer_bias(const struct graph *g, const struct product *p)
{
    node_id at = p->bias ? graph_value(g, p->bias)->producer : 0;
    if (!at || !str_is(graph_node(g, at)->op, "DequantizeLinear")) return 0;
    const struct node *n = graph_node(g, at);
    const struct tensor *b = graph_value(g, n->in.v[X])->data;
    if (!linear_bias_fits(b, p->terms) || attr_int(n, "block_size", 0)) return 0;
    if (op_has_in(n, ZERO) && !all_zero(graph_value(g, n->in.v[ZERO])->data)) return 0;
    return is_scale_of(g, graph_value(g, n->in.v[SCALE])->data, p, b->dim[0]) ? n->in.v[X] : 0;
}

static value_id transposed(struct graph *g, node_id n, value_id v)
{
    value_id t = op_node1(g, n, "Transpose", v, 0);
    attr_set_ints(g, op_made(g, t), "perm", (i64[]){1, 0}, 2);
    return t;
}

/* A vector per output channel of a convolution, along axis 1. */
static value_id along_channels(struct graph *g, node_id n, value_id v, u32 rank)
{
    i64 axes[MAX_RANK];
    for (u32 i = 0; i + 2 < rank; i++) axes[i] = 1 + i;
    return op_node_axes(g, n, "Unsqueeze", v, axes, rank - 2, 0);
}

static bool rewrite(struct graph *g, node_id id, const struct product *p, struct err *e)
{
    const struct node n = *graph_node(g, id);
    node_id first = g->node.n;
    u32 rank = op_in_shape(g, &n, 1)->rank;
    value_id b = p->is_transposed ? transposed(g, id, p->b.x) : p->b.x, scale = p->b.scale, whole = integer_bias(g, p), bias = whole ? 0 : p->bias;
    graph_node(g, id)->dead = true;
    value_id y = op_node(g, id, p->conv ? "ConvInteger" : "MatMulInteger", 4, (value_id[]){p->a.x, b, p->a.zero, p->b.zero}, 0);
    for (u32 i = 0; p->conv && i < n.attr.n; i++) attr_copy(g, op_made(g, y), &n.attr.v[i]);
    if (whole) y = op_node2(g, id, "Add", y, p->conv ? along_channels(g, id, whole, rank) : whole, 0);
    if (p->conv && p->b.is_vector) scale = along_channels(g, id, scale, rank);
    if (p->conv && bias) bias = along_channels(g, id, bias, rank);
    scale = op_node2(g, id, "Mul", p->a.scale, scale, 0);
    y = op_node2(g, id, "Mul", op_node_cast(g, id, y, DT_F32, 0), scale, bias ? 0 : n.out.v[0]);
    if (bias) op_node2(g, id, "Add", y, bias, n.out.v[0]);
    for (node_id k = first; k < g->node.n; k++)
        if (!op_infer(g, k, e)) return false;
    return true;
}

/* Of the quantised operators. */
static bool is_quantised(const struct graph *g, node_id n)
{
    static const char *const ops[] = {"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "com.microsoft::QLinearConv",
                                      "com.microsoft::MatMulIntegerToFloat", "com.microsoft::DynamicQuantizeMatMul", "com.microsoft::QGemm"};
    for (u32 k = 0; k < countof(ops); k++)
        if (str_is(graph_node(g, n)->op, ops[k])) return true;
    return false;
}

bool pass_has_integer(const struct graph *g)
{
    struct product p;
    for (node_id n = 1; n < g->node.n; n++)
        if (!graph_node(g, n)->dead && (is_quantised(g, n) || find_product(g, n, &p))) return true;
    return false;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    struct product p;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++) {
        if (graph_node(g, n)->dead || !find_product(g, n, &p)) continue;
        *ok = rewrite(g, n, &p, e);
        changed = true;
    }
    return changed;
}

const struct pass pass_integer = {
    .version = 1,
    .name = "integer",
    .summary = "matmuls of dequantised operands become integer matmuls",
    .when = PASS_INTEGER,
    .rank = 105,
    .run = run,
};
