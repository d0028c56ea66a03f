// SPDX-License-Identifier: Apache-2.0
//
// qlinear: QLinearConv, QLinearMatMul and the operators on quantised elements of com.microsoft become their operators of f32 between DequantizeLinear and
// QuantizeLinear, so that networks of either form take the same way: integer products, scales folded, bytes between layers. For devices that multiply
// integers. Operators whose scales, zero points or bias are computed keep their form. requires: inferred, not yet expanded. ensures: new nodes are inferred.
#include "pass/pass_linear.h"

/* Inputs of QLinearConv and QLinearMatMul. */
enum { A, A_SCALE, A_ZERO, B, B_SCALE, B_ZERO, Y_SCALE, Y_ZERO, BIAS };

static const struct tensor *content(const struct graph *g, const struct node *x, u32 k) { return op_has_in(x, k) ? graph_value(g, x->in.v[k])->data : NULL; }

static bool has_bytes(const struct graph *g, const struct node *x, u32 k)
{
    enum dtype t = graph_value(g, x->in.v[k])->dtype;
    return t == DT_U8 || t == DT_I8;
}

/* Sums wrap by definition, those of f32 are rounded instead: none can overflow, whatever the elements are. The bias, if there is one, is a constant. */
static bool has_exact_sums(const struct graph *g, const struct node *x, bool conv)
{
    const struct shape *w = op_in_shape(g, x, B);
    i64 terms = 1, n;
    if (w->rank < 2) return false;
    for (u32 k = conv ? 1 : w->rank - 2; k < (conv ? w->rank : w->rank - 1); k++)
        if (!sym_is_const(g->sym, w->dim[k], &n) || __builtin_mul_overflow(terms, n, &terms)) return false;
    return terms <= LINEAR_TERMS && (!op_has_in(x, BIAS) || linear_bias_fits(content(g, x, BIAS), terms));
}

/* Parameters are constants; one for the left operand and the result each. */
static bool is_known(const struct graph *g, const struct node *x)
{
    static const u32 scales[] = {A_SCALE, B_SCALE, Y_SCALE};
    double none;
    if (!has_bytes(g, x, A) || !has_bytes(g, x, B) || !has_bytes(g, x, Y_ZERO)) return false;
    for (u32 i = 0; i < countof(scales); i++) {
        const struct tensor *s = content(g, x, scales[i]);
        if (!s || s->dtype != DT_F32 || s->rank > 1 || !content(g, x, scales[i] + 1)) return false;
        if (scales[i] != B_SCALE && (!linear_number(g, x->in.v[scales[i]], &none) || !linear_number(g, x->in.v[scales[i] + 1], &none))) return false;
    }
    return content(g, x, B_ZERO)->rank <= 1;
}

/* Input k, dequantised by scale and zero point k + 1 and k + 2, which may be vectors along an axis, if both are. 0: one is, the other has a single number. */
static value_id real(struct graph *g, node_id n, u32 k, i64 axis)
{
    const struct node x = *graph_node(g, n);
    const struct tensor *s = content(g, &x, k + 1), *z = content(g, &x, k + 2);
    i64 ns = tensor_count(s), nz = tensor_count(z);
    value_id zero = x.in.v[k + 2];
    if (ns == 1 && nz > 1) return 0;
    if (ns > 1 && nz == 1) {
        struct tensor *all = tensor_new(g->arena, z->dtype, 1, &ns);
        for (i64 i = 0; i < ns; i++) elem_set_i64(z->dtype, all->data, i, elem_i64(z->dtype, z->data, 0));
        zero = graph_add_const(g, S("zero_point"), all);
    }
    value_id y = op_node(g, n, "DequantizeLinear", 3, (value_id[]){x.in.v[k], x.in.v[k + 1], zero}, 0);
    attr_set_int(g, op_made(g, y), "axis", axis);
    return y;
}

/* The bias, by the product of both scales. */
static value_id real_bias(struct graph *g, node_id n)
{
    const struct node x = *graph_node(g, n);
    const struct tensor *right = content(g, &x, B_SCALE);
    struct tensor *s = tensor_new(g->arena, DT_F32, right->rank, right->dim);
    float left = (float)elem_f64(DT_F32, content(g, &x, A_SCALE)->data, 0);
    for (i64 i = 0; i < tensor_count(s); i++) elem_set_f64(DT_F32, s->data, i, (double)(left * (float)elem_f64(DT_F32, right->data, i)));
    value_id y = op_node2(g, n, "DequantizeLinear", x.in.v[BIAS], graph_add_const(g, S("bias_scale"), s), 0);
    attr_set_int(g, op_made(g, y), "axis", 0);
    return y;
}

static bool rewrite_product(struct graph *g, node_id n)
{
    const struct node x = *graph_node(g, n);
    bool conv = str_is(x.op, "QLinearConv");
    u32 rank = graph_value(g, x.in.v[B])->shape.rank;
    if (!is_known(g, &x) || !has_exact_sums(g, &x, conv)) return false;
    value_id w = real(g, n, B, conv ? 0 : (i64)rank - 1);
    if (!w) return false;
    value_id in[3] = {real(g, n, A, 0), w, conv && op_has_in(&x, BIAS) ? real_bias(g, n) : 0};
    value_id y = op_node_same(g, n, conv ? "Conv" : "MatMul", 3, in, NULL, 0);
    graph_node(g, n)->dead = true;
    op_node(g, n, "QuantizeLinear", 3, (value_id[]){y, x.in.v[Y_SCALE], x.in.v[Y_ZERO]}, x.out.v[0]);
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    for (node_id n = 1; n < g->node.n && *ok; n++) {
        struct str op = graph_node(g, n)->op;
        node_id first = g->node.n;
        if (graph_node(g, n)->dead) continue;
        if (str_starts(op, S("com.microsoft::QLinear"))) {
            *ok = op_expand(g, n, e), changed = true;
        } else if ((str_is(op, "QLinearConv") || str_is(op, "QLinearMatMul")) && rewrite_product(g, n)) {
            changed = true;
            for (node_id k = first; k < g->node.n && *ok; k++) *ok = op_infer(g, k, e);
        }
    }
    return changed;
}

const struct pass pass_qlinear = {
    .version = 1,
    .name = "qlinear",
    .summary = "operators on quantised elements become those of f32 between conversions",
    .when = PASS_INTEGER,
    .rank = 101,
    .run = run,
};
