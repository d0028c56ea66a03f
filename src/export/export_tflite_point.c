// SPDX-License-Identifier: Apache-2.0
//
// Elementwise operators and normalised exponentials. In i8 some operators have one scale for their
// result (LOGISTIC, TANH, SOFTMAX, LOG_SOFTMAX); a QUANTIZE follows if the network has another one.
#include "export/export_tflite.h"

#include <math.h>

static u32 rank_of(const struct tfl *t, value_id v) { return graph_value(&t->g, v)->shape.rank; }

/* Input k, broadcast to the result, in its layout; a constant of f32 is rounded to i8 if the node
 * computes so. */
static tfl_id operand(struct tfl *t, const struct node *n, u32 k, enum tfl_layout l)
{
    tfl_id x = tfl_in_wide(t, n, k, l, rank_of(t, node_first_out(n)));
    return x && t->is_q && tfl_at(t, x)->data ? tfl_quant_const(t, x, NULL) : x;
}

/* Constants of f32 are rounded on demand only: one number is exact in 8 bits, several are not. */
bool tfl_operands_can(struct tfl *t, const struct node *n)
{
    for (u32 k = 0; k < n->in.n; k++) {
        value_id v = tfl_of(t, n->in.v[k]);
        const struct tensor *c = graph_value(&t->g, v)->data;
        bool is_i8 = t->v[v].q.n == 1 && graph_value(&t->g, v)->dtype != DT_I32;
        if (c && !is_i8 && tensor_count(c) > 1 && !t->rounds_constants) return false;
    }
    return true;
}

/* One input. */

static void unary_options(struct tfl *t, const struct node *n)
{
    enum tfl_code c = (enum tfl_code)t->row(n->op)->code;
    if (c == TFL_EXP) tfl_options(t, "Exp", "%s", "");
    if (c == TFL_ABS) tfl_options(t, "Abs", "%s", "");
    if (c == TFL_NEG) tfl_options(t, "Neg", "%s", "");
    if (c == TFL_COS) tfl_options(t, "Cos", "%s", "");
    if (c == TFL_HARD_SWISH) tfl_options(t, "HardSwish", "%s", "");
    if (c == TFL_LEAKY_RELU)
        tfl_options(t, "LeakyRelu", "\"alpha\":%.9g", attr_float(n, "alpha", 0.01));
    if (c == TFL_GELU)
        tfl_options(t, "Gelu", "\"approximate\":%s",
                    str_is(attr_str(n, "approximate", "none"), "tanh") ? "true" : "false");
}

/* The scale that an operator has for its results; n 0: any. */
static struct tfl_quant own_scale(struct tfl *t, enum tfl_code c)
{
    if (c == TFL_LOGISTIC || c == TFL_SOFTMAX) return tfl_quant_one(t->a, 1.0 / 256, -128);
    if (c == TFL_TANH) return tfl_quant_one(t->a, 1.0 / 128, 0);
    if (c == TFL_LOG_SOFTMAX) return tfl_quant_one(t->a, 16.0 / 256, 127);
    return (struct tfl_quant){0};
}

bool tfl_unary(struct tfl *t, const struct node *n)
{
    enum tfl_code c = (enum tfl_code)t->row(n->op)->code;
    enum tfl_layout l = tfl_layout_of(t, n->out.v[0]);
    struct tfl_quant q = own_scale(t, c);
    tfl_id x = tfl_in(t, n, 0, l);
    if (!x) return false;
    tfl_id y = tfl_out_q(t, n, 0, l, q.n ? &q : NULL);
    tfl_emit(t, c, y, 1, &x);
    unary_options(t, n);
    return tfl_settle(t, n, 0, l, y);
}

bool tfl_reciprocal(struct tfl *t, const struct node *n)
{
    enum tfl_layout l = tfl_layout_of(t, n->out.v[0]);
    tfl_id x = tfl_in(t, n, 0, l), one = tfl_float(t, 1);
    if (!x) return false;
    tfl_emit(t, TFL_DIV, tfl_out(t, n, 0, l), 2, (tfl_id[]){one, x});
    tfl_options(t, "Div", "%s", "");
    return true;
}

bool tfl_cast(struct tfl *t, const struct node *n)
{
    enum tfl_layout l = tfl_layout_of(t, n->out.v[0]);
    tfl_id x = tfl_in(t, n, 0, l);
    if (!x) return false;
    tfl_emit(t, TFL_CAST, tfl_out(t, n, 0, l), 1, &x);
    tfl_options(t, "Cast", "%s", "");
    return true;
}

/* Two and three inputs. */

static const char *binary_options(enum tfl_code c)
{
    switch ((int)c) {
    case TFL_ADD: return "Add";
    case TFL_SUB: return "Sub";
    case TFL_MUL: return "Mul";
    case TFL_DIV: return "Div";
    default: return NULL;
    }
}

/* The exponent of POW has the type of the base, f32 or i32. */
static tfl_id exponent(struct tfl *t, const struct node *n, tfl_id base, tfl_id x)
{
    enum tfl_type type = tfl_at(t, base)->type;
    if (type != TFL_F32 && type != TFL_I32)
        return tfl_refuse(t, n, "a base that is neither f32 nor i32"), 0;
    if (tfl_at(t, x)->type == type) return x;
    if (type == TFL_I32) return tfl_refuse(t, n, "an exponent of another type than the base"), 0;
    tfl_id y = tfl_like(t, x, "cast", tfl_at(t, x)->rank, tfl_at(t, x)->dim);
    tfl_at(t, y)->type = type;
    tfl_emit(t, TFL_CAST, y, 1, &x);
    tfl_options(t, "Cast", "%s", "");
    return y;
}

bool tfl_binary(struct tfl *t, const struct node *n)
{
    enum tfl_code c = (enum tfl_code)t->row(n->op)->code;
    enum tfl_layout l = tfl_layout_of(t, n->out.v[0]);
    tfl_id a = operand(t, n, 0, l), b = a ? operand(t, n, 1, l) : 0;
    if (b && c == TFL_POW) b = exponent(t, n, a, b);
    if (!b) return false;
    tfl_emit(t, c, tfl_out(t, n, 0, l), 2, (tfl_id[]){a, b});
    if (c == TFL_POW) tfl_options(t, "Pow", "%s", "");
    else if (c == TFL_MAXIMUM || c == TFL_MINIMUM) tfl_options(t, "MaximumMinimum", "%s", "");
    else if (binary_options(c))
        tfl_options(t, binary_options(c), "\"activation\":\"%s\"", tfl_activation(n));
    return true;
}

bool tfl_compare(struct tfl *t, const struct node *n)
{
    static const struct {
        enum tfl_code c;
        const char *options;
    } names[] = {
        {TFL_EQUAL, "Equal"}, {TFL_GREATER, "Greater"},      {TFL_GREATER_EQUAL, "GreaterEqual"},
        {TFL_LESS, "Less"},   {TFL_LESS_EQUAL, "LessEqual"},
    };
    enum tfl_code c = (enum tfl_code)t->row(n->op)->code;
    enum tfl_layout l = tfl_layout_of(t, n->out.v[0]);
    tfl_id a = operand(t, n, 0, l), b = a ? operand(t, n, 1, l) : 0;
    if (!b) return false;
    tfl_emit(t, c, tfl_out(t, n, 0, l), 2, (tfl_id[]){a, b});
    for (i64 k = 0; k < countof(names); k++)
        if (names[k].c == c) tfl_options(t, names[k].options, "%s", "");
    return true;
}

bool tfl_where(struct tfl *t, const struct node *n)
{
    enum tfl_layout l = tfl_layout_of(t, n->out.v[0]);
    tfl_id in[3];
    for (u32 k = 0; k < countof(in); k++)
        if (!(in[k] = operand(t, n, k, l))) return false;
    tfl_emit(t, TFL_SELECT_V2, tfl_out(t, n, 0, l), countof(in), in);
    tfl_options(t, "SelectV2", "%s", "");
    return true;
}

bool tfl_prelu(struct tfl *t, const struct node *n)
{
    enum tfl_layout l = tfl_layout_of(t, n->out.v[0]);
    tfl_id x = operand(t, n, 0, l), slope = x ? operand(t, n, 1, l) : 0;
    if (!slope) return false;
    tfl_emit(t, TFL_PRELU, tfl_out(t, n, 0, l), 2, (tfl_id[]){x, slope});
    return true;
}

/* Bounds. */

/* Bound k of Clip: a number, or in i8 its place in the scale q. 0: an error; *is_idle: no bound
 * there. */
static tfl_id bound(struct tfl *t, const struct node *n, u32 k, const struct tfl_quant *q,
                    bool *is_idle)
{
    const char *attr = k == 1 ? "min" : "max";
    double v = k == 1 ? -INFINITY : INFINITY;
    value_id given = op_node_input(n, k);
    enum dtype d = graph_value(&t->g, n->out.v[0])->dtype;
    *is_idle = false;
    if (given && !tfl_content(t, given)) {
        if (!t->is_q) return tfl_in(t, n, k, TFL_ROWS);
        return tfl_refuse(t, n, "a bound that is not constant"), 0;
    }
    v = given ? tfl_real(t, given, 0) : attr_float(n, attr, v);
    if (isinf(v)) return *is_idle = true, 0;
    if (!t->is_q) return d == DT_F32 ? tfl_float(t, v) : tfl_in(t, n, k, TFL_ROWS);
    double at = rint(v / (double)q->scale[0]) + (double)q->zero[0];
    if (k == 1 ? at <= -128 : at >= 127) return *is_idle = true, 0;
    i8 *p = arena_new(t->a, i8);
    *p = (i8)fmax(-128, fmin(127, at));
    tfl_id x = tfl_constant(t, "bound", TFL_I8, 0, NULL, p);
    tfl_at(t, x)->q = *q;
    return x;
}

bool tfl_clip(struct tfl *t, const struct node *n)
{
    enum tfl_layout l = tfl_layout_of(t, n->out.v[0]);
    const struct tfl_quant *q = &t->v[tfl_of(t, n->out.v[0])].q;
    tfl_id x = tfl_in(t, n, 0, l), b[2];
    bool is_idle[2];
    if (x && t->is_q) x = tfl_requantize(t, x, q, 0);
    for (u32 k = 0; k < 2 && x; k++)
        if (!(b[k] = bound(t, n, k + 1, q, &is_idle[k])) && !is_idle[k]) return false;
    if (!x) return false;
    for (u32 k = 0; k < 2; k++) {
        if (is_idle[k]) continue;
        tfl_id y = tfl_like(t, x, "clipped", tfl_at(t, x)->rank, tfl_at(t, x)->dim);
        tfl_emit(t, k ? TFL_MINIMUM : TFL_MAXIMUM, y, 2, (tfl_id[]){x, b[k]});
        tfl_options(t, "MaximumMinimum", "%s", "");
        x = y;
    }
    return tfl_settle(t, n, 0, l, x);
}

/* HardSigmoid: max(0, min(1, alpha x + beta)), in i8 as min(6, max(0, x + 3)) / 6. */

bool tfl_hard_sigmoid_can(struct tfl *t, const struct node *n)
{
    return fabs(attr_float(n, "alpha", 0.2) - 1.0 / 6) < 1e-6 &&
           fabs(attr_float(n, "beta", 0.5) - 0.5) < 1e-6;
}

static bool hard_sigmoid_stored(struct tfl *t, const struct node *n, tfl_id x, enum tfl_layout l)
{
    struct tfl_quant q = tfl_quant_range(t->a, 0, 6);
    tfl_id three = tfl_quant_const(t, tfl_float(t, 3), NULL),
           sixth = tfl_quant_const(t, tfl_float(t, 1.0 / 6), NULL);
    tfl_id sum = tfl_like(t, x, "sum", tfl_at(t, x)->rank, tfl_at(t, x)->dim);
    tfl_at(t, sum)->q = q;
    tfl_emit(t, TFL_ADD, sum, 2, (tfl_id[]){x, three});
    tfl_options(t, "Add", "\"activation\":\"RELU6\"");
    tfl_emit(t, TFL_MUL, tfl_out(t, n, 0, l), 2, (tfl_id[]){sum, sixth});
    tfl_options(t, "Mul", "%s", "");
    return true;
}

bool tfl_hard_sigmoid(struct tfl *t, const struct node *n)
{
    enum tfl_layout l = tfl_layout_of(t, n->out.v[0]);
    tfl_id x = tfl_in(t, n, 0, l);
    if (!x) return false;
    if (t->is_q) return hard_sigmoid_stored(t, n, x, l);
    const struct tfl_tensor from = *tfl_at(t, x);
    tfl_id alpha = tfl_float(t, attr_float(n, "alpha", 0.2)),
           beta = tfl_float(t, attr_float(n, "beta", 0.5)), one = tfl_float(t, 1);
    tfl_id product = tfl_like(t, x, "scaled", from.rank, from.dim),
           sum = tfl_like(t, x, "sum", from.rank, from.dim);
    tfl_emit(t, TFL_MUL, product, 2, (tfl_id[]){x, alpha});
    tfl_options(t, "Mul", "%s", "");
    tfl_emit(t, TFL_ADD, sum, 2, (tfl_id[]){product, beta});
    tfl_options(t, "Add", "\"activation\":\"RELU\"");
    tfl_emit(t, TFL_MINIMUM, tfl_out(t, n, 0, l), 2, (tfl_id[]){sum, one});
    tfl_options(t, "MaximumMinimum", "%s", "");
    return true;
}

/* x times the logistic function of alpha x */

bool tfl_swish_can(struct tfl *t, const struct node *n)
{
    return fabs(attr_float(n, "alpha", 1) - 1) <= 0;
}

bool tfl_swish(struct tfl *t, const struct node *n)
{
    enum tfl_layout l = tfl_layout_of(t, n->out.v[0]);
    struct tfl_quant q = own_scale(t, TFL_LOGISTIC);
    tfl_id x = tfl_in(t, n, 0, l), argument = x;
    if (!x) return false;
    const struct tfl_tensor from = *tfl_at(t, x);
    if (!tfl_swish_can(t, n)) {
        tfl_id alpha = tfl_float(t, attr_float(n, "alpha", 1));
        argument = tfl_like(t, x, "scaled", from.rank, from.dim);
        tfl_emit(t, TFL_MUL, argument, 2, (tfl_id[]){x, alpha});
        tfl_options(t, "Mul", "%s", "");
    }
    tfl_id gate = tfl_like(t, x, "gate", from.rank, from.dim);
    if (t->is_q) tfl_at(t, gate)->q = q;
    tfl_emit(t, TFL_LOGISTIC, gate, 1, &argument);
    tfl_emit(t, TFL_MUL, tfl_out(t, n, 0, l), 2, (tfl_id[]){x, gate});
    tfl_options(t, "Mul", "%s", "");
    return true;
}

/* Softmax and LogSoftmax, of the last axis in TFLite. */

bool tfl_softmax(struct tfl *t, const struct node *n)
{
    enum tfl_code c = str_is(n->op, "Softmax") ? TFL_SOFTMAX : TFL_LOG_SOFTMAX;
    enum tfl_layout l = tfl_layout_of(t, n->out.v[0]);
    struct tfl_quant q = own_scale(t, c);
    u32 rank = rank_of(t, n->in.v[0]), axis = 0;
    i64 swap[MAX_RANK];
    if (rank == 0 || !op_axis(attr_int(n, "axis", -1), rank, &axis))
        return tfl_refuse(t, n, "no axis");
    tfl_id x = tfl_in(t, n, 0, l);
    if (!x) return false;
    axis = tfl_axis(axis, rank, l);
    for (u32 k = 0; k < rank; k++) swap[k] = k == axis ? rank - 1 : k == rank - 1 ? axis : k;
    bool is_last = axis == rank - 1;
    if (!is_last) x = tfl_transpose(t, x, swap, 0);
    tfl_id y = tfl_out_q(t, n, 0, l, &q), to = y;
    if (!is_last) to = tfl_like(t, y, "swapped", rank, tfl_at(t, x)->dim);
    tfl_emit(t, c, to, 1, &x);
    tfl_options(t, c == TFL_SOFTMAX ? "Softmax" : "LogSoftmax", "%s",
                c == TFL_SOFTMAX ? "\"beta\":1" : "");
    if (!is_last) tfl_transpose(t, to, swap, y);
    return tfl_settle(t, n, 0, l, y);
}
