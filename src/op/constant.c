// SPDX-License-Identifier: Apache-2.0
//
// op_constant: operators whose elements follow from sizes and scalars: ConstantOfShape, EyeLike,
// Range. (Constant itself is resolved when a network is read.) Sizes may be symbolic; a size
// that depends on the content of activations is made while running.
#include "op/op.h"

#include <math.h>

static i64 int_at(const struct tensor *t, i64 i) { return elem_i64(t->dtype, t->data, i); }
static double float_at(const struct tensor *t, i64 i)
{
    return dtype_is_float(t->dtype) ? elem_f64(t->dtype, t->data, i) : (double)int_at(t, i);
}

static kval literal(struct kir *k, enum dtype t, double f, i64 i)
{
    return dtype_is_float(t) ? kir_const_f(k, emit_type(t), 1, f) : kir_const_i(k, emit_type(t), 1, i);
}

/* ConstantOfShape */

static const struct tensor *fill_value(const struct node *x)
{
    const struct attr *a = node_attr(x, "value");
    return a && a->kind == ATTR_TENSOR && tensor_count(a->t) == 1 ? a->t : NULL;
}

static bool infer_fill(struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    const struct tensor *t = fill_value(x);
    struct shape s = {.known = true};
    sym dim[MAX_RANK];
    i64 rank, count;
    if (node_attr(x, "value") && !t)
        return op_invalid(e, g, n, "attribute 'value' is not one element");
    if (!op_data_sizes(g, n, x->in.v[0], dim, MAX_RANK, &rank))
        return op_unsupported(e, g, n, "input 'shape' is not known");
    s.rank = (u32)rank;
    for (u32 i = 0; i < s.rank; i++) {
        if (sym_is_const(g->sym, dim[i], &count) && count < 0)
            return op_invalid(e, g, n, "negative size in input 'shape'");
        s.dim[i] = dim[i];
    }
    op_set_out(g, n, 0, t ? t->dtype : DT_F32, &s);
    if (!sym_is_const(g->sym, shape_count(g->sym, &s), &count) || count > 64 || !t ||
        dtype_is_float(t->dtype))
        return true;
    sym v[64];
    for (i64 i = 0; i < count; i++) v[i] = sym_const(g->sym, int_at(t, 0));
    op_set_sdata(g, x->out.v[0], v, count, 1);
    return true;
}

static bool eval_fill(const struct op_eval *v, struct err *e)
{
    const struct tensor *t = fill_value(v->n);
    struct tensor *out = v->out[0];
    for (i64 i = 0, n = t ? tensor_count(out) : 0; i < n; i++) {
        if (dtype_is_float(t->dtype))
            elem_set_f64(out->dtype, out->data, i, elem_f64(t->dtype, t->data, 0));
        else elem_set_i64(out->dtype, out->data, i, int_at(t, 0));
    }
    return true;
}

static kval lower_fill(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    const struct tensor *t = fill_value(n);
    if (!t) return kir_const_f(m->k, DT_F32, 1, 0);
    bool is_float = dtype_is_float(t->dtype);
    return literal(m->k, t->dtype, is_float ? float_at(t, 0) : 0, is_float ? 0 : int_at(t, 0));
}

static void random_fill(const struct op *self, struct graph *g, struct rng *r)
{
    static const enum dtype type[] = {DT_F32, DT_I64, DT_I32, DT_BOOL, DT_F16, DT_U8};
    i64 dim[4] = {rng_range(r, 1, 5), rng_range(r, 1, 5), rng_range(r, 0, 5), rng_range(r, 1, 5)};
    value_id shape = op_const_i(g, DT_I64, dim, rng_range(r, 0, 4));
    random_node(g, self, 1, &shape, 1);
    if (!rng_range(r, 0, 2)) return;
    i64 one = 1;
    struct tensor *t = tensor_new(g->arena, type[rng_range(r, 0, countof(type) - 1)], 1, &one);
    if (dtype_is_float(t->dtype)) elem_set_f64(t->dtype, t->data, 0, rng_f64(r) - 0.5);
    else elem_set_i64(t->dtype, t->data, 0, rng_range(r, 0, 1));
    attr_set_tensor(g, g->node.n - 1, "value", t);
}

/* EyeLike */

static bool infer_eye(struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    const struct value *v = graph_value(g, x->in.v[0]);
    enum dtype t = dtype_from_onnx((int)attr_int(x, "dtype", dtype_onnx(v->dtype)));
    if (t == DT_NONE)
        return op_unsupported(e, g, n, "attribute 'dtype' = %d", (int)attr_int(x, "dtype", 0));
    if (v->shape.rank != 2)
        return op_invalid(e, g, n, "input of rank %u, expected 2", v->shape.rank);
    op_set_out(g, n, 0, t, &v->shape);
    return true;
}

static bool eval_eye(const struct op_eval *v, struct err *e)
{
    struct tensor *out = v->out[0];
    i64 k = attr_int(v->n, "k", 0);
    for (i64 y = 0; y < out->dim[0]; y++) {
        i64 x = y + k, at = y * out->dim[1] + x;
        if (x < 0 || x >= out->dim[1]) continue;
        if (dtype_is_float(out->dtype)) elem_set_f64(out->dtype, out->data, at, 1);
        else elem_set_i64(out->dtype, out->data, at, 1);
    }
    return true;
}

static kval lower_eye(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    enum dtype t = graph_value(m->g, n->out.v[0])->dtype;
    kval on =
        kir_bin(k, KI_EQ, kir_bin(k, KI_ADD, idx[0], kir_int(k, attr_int(n, "k", 0))), idx[1]);
    u32 lanes = kir_lanes(k, on);
    return kir_select(k, on, kir_splat(k, literal(k, t, 1, 1), lanes),
                      kir_splat(k, literal(k, t, 0, 0), lanes));
}

static void random_eye(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[2] = {rng_range(r, 1, 6), rng_range(r, 1, 6)};
    value_id in;
    random_input(g, "x", rng_range(r, 0, 1) ? DT_F32 : DT_I32, 2, dim, &in);
    random_node(g, self, 1, &in, 1);
    if (rng_range(r, 0, 1)) attr_set_int(g, g->node.n - 1, "k", rng_range(r, -3, 3));
    if (rng_range(r, 0, 1)) attr_set_int(g, g->node.n - 1, "dtype", dtype_onnx(DT_F64));
}

/* Range */

/* Number of elements from constants of floats; -1: unknown */
static i64 range_const(const struct graph *g, const struct node *x)
{
    double v[3];
    for (u32 i = 0; i < 3; i++) {
        const struct tensor *t = graph_value(g, x->in.v[i])->data;
        if (!t || tensor_count(t) != 1) return -1;
        v[i] = float_at(t, 0);
        if (!isfinite(v[i])) return -1;
    }
    if (v[2] == 0 || fabs((v[1] - v[0]) / v[2]) > 1e9) return -1;
    double n = ceil((v[1] - v[0]) / v[2]);
    return n > 0 ? (i64)n : 0;
}

/* Likewise from contents known in symbols: ceil((limit - start) / delta), at least 0. 0: unknown */
static sym range_symbolic(struct graph *g, const struct sym_data d[3])
{
    struct symtab *t = g->sym;
    i64 step;
    if (!sym_is_const(t, d[2].num[0], &step) || step == 0) return 0;
    sym from = sym_mul(t, d[0].num[0], sym_const(t, d[1].den)),
        to = sym_mul(t, d[1].num[0], sym_const(t, d[0].den));
    sym way = step > 0 ? sym_sub(t, to, from) : sym_sub(t, from, to);
    sym by = sym_const(t, d[0].den * d[1].den * (step > 0 ? step : -step));
    sym n = sym_cdiv(t, sym_mul(t, way, sym_const(t, d[2].den)), by);
    i64 least;
    return sym_lower_bound(t, n, &least) && least >= 0 ? n : sym_max(t, n, sym_const(t, 0));
}

/* Content of a short Range. */
static void fold_range(struct graph *g, node_id n, const struct sym_data d[3], sym count)
{
    struct symtab *t = g->sym;
    i64 c;
    sym v[64];
    if (!sym_is_const(t, count, &c) || c > 64 || d[0].den != 1 || d[2].den != 1) return;
    for (i64 i = 0; i < c; i++)
        v[i] = sym_add(t, d[0].num[0], sym_mul(t, d[2].num[0], sym_const(t, i)));
    op_set_sdata(g, graph_node(g, n)->out.v[0], v, c, 1);
}

/* ceil(way / step) for a data-dependent step of either sign; 0 if it leads away from the limit. */
static sym range_made(struct graph *g, node_id n, const sym v[3])
{
    struct symtab *t = g->sym;
    sym zero = sym_const(t, 0), one = sym_const(t, 1), sum = zero;
    for (int sign = 1; sign >= -1; sign -= 2) {
        sym step = sym_max(t, sym_mul(t, v[2], sym_const(t, sign)), zero),
            way = sym_mul(t, sym_sub(t, v[1], v[0]), sym_const(t, sign));
        sym count = sym_max(t, sym_cdiv(t, way, sym_max(t, step, one)), zero);
        sum = sym_add(t, sum, sym_mul(t, sym_min(t, step, one), count));
    }
    return op_let(g, n, sum, 0);
}

static bool infer_new(struct graph *g, value_id v, struct err *e) { return op_infer(g, graph_value(g, v)->producer, e); }

/* For floats: nodes that compute the count, a data-dependent size. */
static bool range_floats(struct graph *g, node_id n, sym *count, struct err *e)
{
    value_id in[3], out = graph_node(g, n)->out.v[0], v;
    for (u32 i = 0; i < 3; i++) in[i] = graph_node(g, n)->in.v[i];
    if (!infer_new(g, v = op_node2(g, n, "Sub", in[1], in[0], 0), e)) return false;
    if (!infer_new(g, v = op_node2(g, n, "Div", v, in[2], 0), e)) return false;
    if (!infer_new(g, v = op_node1(g, n, "Ceil", v, 0), e)) return false;
    if (!infer_new(g, v = op_node_cast(g, n, v, DT_I64, 0), e)) return false;
    *count = op_size_plus(g, v, out);
    op_set_syms(g, n, "made_size", count, 1);
    return true;
}

/* 0: an error is set. */
static sym range_data(struct graph *g, node_id n, struct err *e)
{
    sym v[3], s = 0;
    i64 count;
    if (op_get_syms(g, graph_node(g, n), "made_size", &s, 1) == 1) return s;
    if (dtype_is_float(graph_value(g, graph_node(g, n)->in.v[0])->dtype)) return range_floats(g, n, &s, e) ? s : 0;
    for (u32 i = 0; i < 3; i++)
        if (!op_data_ints(g, graph_node(g, n)->in.v[i], &v[i], 1, &count) || count != 1)
            return op_invalid(e, g, n, "inputs are not scalars"), 0;
    return range_made(g, n, v);
}

static bool infer_range(struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    enum dtype t = graph_value(g, x->in.v[0])->dtype;
    struct sym_data d[3];
    struct shape s = {.known = true, .rank = 1};
    bool known = true;
    for (u32 i = 0; i < 3; i++) {
        if (graph_value(g, x->in.v[i])->dtype != t)
            return op_invalid(e, g, n, "inputs of different types");
        known = known && op_sym_content(g, x->in.v[i], 1, &d[i]) && d[i].n == 1;
    }
    i64 c = range_const(g, x);
    s.dim[0] = known ? op_let(g, n, range_symbolic(g, d), 0) : c >= 0 ? sym_const(g->sym, c) : 0;
    if (!s.dim[0] && !(s.dim[0] = range_data(g, n, e))) return false;
    op_set_out(g, n, 0, t, &s);
    if (known) fold_range(g, n, d, s.dim[0]);
    return true;
}

static bool eval_range(const struct op_eval *v, struct err *e)
{
    struct tensor *out = v->out[0];
    bool is_float = dtype_is_float(out->dtype);
    for (i64 i = 0; i < out->dim[0]; i++) {
        if (is_float)
            elem_set_f64(out->dtype, out->data, i,
                         float_at(v->in[0], 0) + (double)i * float_at(v->in[2], 0));
        else elem_set_i64(out->dtype, out->data, i, int_at(v->in[0], 0) + i * int_at(v->in[2], 0));
    }
    return true;
}

static kval lower_range(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    kval zero = kir_int(k, 0);
    kval i = kir_cast(k, emit_type(graph_value(m->g, n->out.v[0])->dtype), idx[0]);
    kval start = emit_value(m, n->in.v[0], &zero), delta = emit_value(m, n->in.v[2], &zero);
    return kir_bin(k, KI_ADD, start, kir_bin(k, KI_MUL, i, delta));
}

static void random_range(const struct op *self, struct graph *g, struct rng *r)
{
    static const enum dtype type[] = {DT_F32, DT_I64, DT_I32, DT_F64};
    enum dtype t = type[rng_range(r, 0, countof(type) - 1)];
    double scale = dtype_is_float(t) ? 0.25 : 1;
    value_id in[3];
    double from = (double)rng_range(r, -9, 9), step = (double)rng_range(r, 1, 4),
           way = (double)rng_range(r, -2, 20);
    if (rng_range(r, 0, 1)) step = -step, way = -way;
    in[0] = op_const_f(g, t, from * scale);
    in[1] = op_const_f(g, t, (from + way) * scale);
    in[2] = op_const_f(g, t, step * scale);
    random_node(g, self, 3, in, 1);
}

static const struct op ops[] = {
    {.name = "ConstantOfShape",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = infer_fill,
     .eval = eval_fill,
     .lower = lower_fill,
     .random = random_fill},
    {.name = "EyeLike",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = infer_eye,
     .eval = eval_eye,
     .lower = lower_eye,
     .random = random_eye},
    {.name = "Range",
     .props = OP_VIEW,
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = infer_range,
     .eval = eval_range,
     .lower = lower_range,
     .random = random_range},
};

const struct op_family op_constant = {ops, countof(ops)};
