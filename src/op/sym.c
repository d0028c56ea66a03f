// SPDX-License-Identifier: Apache-2.0
//
// op_sym: quern::Sym, a scalar whose value is a size known in symbols (attribute `value`,
// "H*W//4"), of ONNX type `to`. Expansions use it where a size takes part in arithmetic on
// elements, as in a mean over H and W.
#include "op/op.h"

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    enum dtype t = dtype_from_onnx((int)attr_int(x, "to", dtype_onnx(DT_I64)));
    struct shape scalar = {.known = true};
    sym s = sym_parse(g->sym, attr_str(x, "value", ""), e);
    if (!s) return false;
    if (!dtype_is_int(t) && !dtype_is_float(t)) return op_invalid(e, g, n, "attribute 'to'");
    op_set_out(g, n, 0, t, &scalar);
    op_set_sdata(g, x->out.v[0], &s, 1, 1);
    return true;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    i64 size;
    sym s = sym_parse(v->g->sym, attr_str(v->n, "value", ""), e);
    if (!s) return false;
    if (!sym_eval(v->g->sym, s, v->var, &size))
        return err_set(e, ERR_INPUT, "cannot determine the size '%.*s'",
                       STR_ARG(attr_str(v->n, "value", "")));
    elem_set_i64(v->out[0]->dtype, v->out[0]->data, 0, size);
    return true;
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct err e = {0};
    sym s = sym_parse(m->g->sym, attr_str(n, "value", ""), &e);
    assert(s); /* infer parsed it */
    return kir_cast(m->k, emit_type(graph_value(m->g, n->out.v[0])->dtype), emit_size(m, s));
}

static void random_instance(const struct op *self, struct graph *g, struct rng *r)
{
    static const enum dtype t[] = {DT_I64, DT_I32, DT_F32, DT_F16};
    random_node(g, self, 0, NULL, 1);
    node_id n = g->node.n - 1;
    attr_set_int(g, n, "to", dtype_onnx(t[rng_range(r, 0, countof(t) - 1)]));
    attr_set_str(g, n, "value", str_fmt(g->arena, "%d//3+min(4,7)", (int)rng_range(r, 0, 90)));
}

static const struct op ops[] = {
    {.name = "quern::Sym",
     .attributes = "to:int value:string",
     .props = OP_POINTWISE | OP_VIEW,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .random = random_instance},
};

const struct op_family op_sym = {ops, countof(ops)};
