// SPDX-License-Identifier: Apache-2.0
//
// CumSum and CumProd: running sums and products along one axis. Both become quern::CumSum, which
// holds the axis and whether it multiplies ("product"); its kernel takes one line along the axis per
// grid iteration and keeps the result so far in a register.
#include "op/op.h"

static bool read_axis(const struct graph *g, node_id id, i64 *axis)
{
    u32 a;
    return op_const_ints(g, graph_node(g, id)->in.v[1], axis, 1) == 1 &&
           op_axis(*axis, graph_value(g, graph_node(g, id)->in.v[0])->shape.rank, &a);
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct value *x = graph_value(g, graph_node(g, n)->in.v[0]);
    i64 axis;
    if (op_const_ints(g, graph_node(g, n)->in.v[1], &axis, 1) != 1)
        return op_unsupported(e, g, n, "the axis is only known at run time");
    if (!read_axis(g, n, &axis))
        return op_invalid(e, g, n, "axis %lld with rank %u", (long long)axis, x->shape.rank);
    op_set_out(g, n, 0, x->dtype, &x->shape);
    return true;
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 axis, exclusive = attr_int(nd, "exclusive", 0), reverse = attr_int(nd, "reverse", 0);
    bool product = str_is(nd->op, "CumProd");
    if (!read_axis(g, n, &axis)) return op_invalid(e, g, n, "bad axis");
    node_id to = op_replace(g, n, "quern::CumSum", 1);
    attr_set_int(g, to, "axis", axis);
    attr_set_int(g, to, "exclusive", exclusive);
    attr_set_int(g, to, "reverse", reverse);
    if (product) attr_set_int(g, to, "product", 1);
    return true;
}

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    const struct value *x = graph_value(g, graph_node(g, n)->in.v[0]);
    u32 a;
    if (!op_axis(attr_int(graph_node(g, n), "axis", 0), x->shape.rank, &a))
        return op_invalid(e, g, n, "bad attribute 'axis'");
    if (x->dtype == DT_BOOL) return op_invalid(e, g, n, "type bool");
    op_set_out(g, n, 0, x->dtype, &x->shape);
    return true;
}

struct line {
    u32 axis;
    bool exclusive, reverse, product;
};

static struct line read_line(const struct node *n, u32 rank)
{
    struct line l = {.exclusive = attr_int(n, "exclusive", 0),
                     .reverse = attr_int(n, "reverse", 0),
                     .product = attr_int(n, "product", 0)};
    op_axis(attr_int(n, "axis", 0), rank, &l.axis);
    return l;
}

/* The result of one element, from the start of its line. */
static bool prim_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *in = v->in[0];
    struct line l = read_line(v->n, in->rank);
    i64 idx[MAX_RANK] = {0}, n = tensor_count(in), dim = in->rank ? in->dim[l.axis] : 1;
    for (i64 i = 0; i < n; i++, op_next(in->rank, in->dim, idx)) {
        i64 src[MAX_RANK], isum = l.product, from = l.reverse ? idx[l.axis] + l.exclusive : 0;
        i64 to = l.reverse ? dim : idx[l.axis] + !l.exclusive;
        double sum = l.product;
        for (u32 a = 0; a < in->rank; a++) src[a] = idx[a];
        for (src[l.axis] = from; src[l.axis] < to; src[l.axis]++) {
            i64 at = op_flat(in->rank, in->dim, src);
            double f = dtype_is_float(in->dtype) ? elem_f64(in->dtype, in->data, at) : 0;
            u64 k = dtype_is_float(in->dtype) ? 0 : (u64)elem_i64(in->dtype, in->data, at);
            sum = l.product ? sum * f : sum + f;
            isum = (i64)(l.product ? (u64)isum * k : (u64)isum + k);
        }
        if (dtype_is_float(in->dtype)) elem_set_f64(in->dtype, v->out[0]->data, i, sum);
        else elem_set_i64(in->dtype, v->out[0]->data, i, isum);
    }
    return true;
}

static void prim_whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    value_id v = n->in.v[0];
    const struct value *x = graph_value(m->g, v);
    struct line l = read_line(n, x->shape.rank);
    bool inside[MAX_RANK] = {0};
    kval idx[MAX_RANK], zero = kir_int(k, 0), dim = emit_dim(m, v, l.axis);
    enum dtype t = m->acc_f64 && dtype_is_float(x->dtype) ? DT_F64 : emit_type(x->dtype);
    inside[l.axis] = true;
    emit_slices(m, &x->shape, inside, idx);
    kval sum = kir_alloc(k, KS_REG, t, 1, kir_int(k, 1));
    kir_store(k, sum, zero, emit_neutral(m, l.product ? KI_MUL : KI_ADD, t));
    kval i = kir_loop(k, KL_SERIAL, zero, dim, 1);
    idx[l.axis] = l.reverse ? kir_bin(k, KI_SUB, kir_bin(k, KI_SUB, dim, kir_int(k, 1)), i) : i;
    kval before = kir_load(k, sum, zero);
    kval after = kir_bin(k, l.product ? KI_MUL : KI_ADD, before, kir_cast(k, t, emit_value(m, v, idx)));
    kir_store(k, sum, zero, after);
    emit_store(m, n->out.v[0], idx, kir_cast(k, emit_type(x->dtype), l.exclusive ? before : after));
    kir_end(k);
    kir_end(k);
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 dim[MAX_RANK];
    double count = 1;
    const struct shape *s = &graph_value(g, n->in.v[0])->shape;
    if (!shape_eval(g->sym, s, var, dim)) return 0;
    for (u32 a = 0; a < s->rank; a++) count *= (double)dim[a];
    return count;
}

static void random_cumsum(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 4);
    i64 dim[4], axis = rng_range(r, -(i64)rank, rank - 1);
    value_id in[2];
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 6);
    random_input(g, "x", rng_range(r, 0, 3) ? DT_F32 : DT_I32, rank, dim, &in[0]);
    in[1] = self->max_in == 2 ? op_const_i(g, DT_I64, &axis, 1) : 0;
    node_id n = random_node(g, self, self->max_in, in, 1);
    if (self->max_in == 1) attr_set_int(g, n, "axis", axis);
    attr_set_int(g, n, "exclusive", rng_range(r, 0, 1));
    attr_set_int(g, n, "reverse", rng_range(r, 0, 1));
    if (self->max_in == 1) attr_set_int(g, n, "product", rng_range(r, 0, 1));
}

static const struct op ops[] = {
    {.name = "CumSum",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_cumsum},
    {.name = "CumProd",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_cumsum},
    {.name = "quern::CumSum",
     .attributes = "axis:int exclusive:int product:int reverse:int",
     .props = OP_HEAVY | OP_WHOLE,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = prim_infer,
     .eval = prim_eval,
     .whole = prim_whole,
     .flops = flops,
     .random = random_cumsum},
};

const struct op_family op_cumsum = {ops, countof(ops)};
