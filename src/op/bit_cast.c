// SPDX-License-Identifier: Apache-2.0
//
// BitCast (opset 26): the same bits under another type of the same size. Floats of 16 bits and fewer
// are carried as f32 in kernels, so they are rounded back to their own type before their bits are taken;
// of a NaN only that it is one survives. Bytes other than 0 become true.
#include "op/op.h"

#include <string.h>

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 attr = attr_int(nd, "to", 0);
    enum dtype from = op_in_dtype(g, nd, 0), to = dtype_from_onnx((int)i64_max(0, i64_min(attr, 255)));
    if (to == DT_NONE) return op_unsupported(e, g, n, "attribute 'to' = %lld", (long long)attr);
    if (dtype_bits(to) != dtype_bits(from))
        return op_invalid(e, g, n, "%s and %s have different sizes", dtype_name(from), dtype_name(to));
    const struct shape s = *op_in_shape(g, nd, 0);
    op_set_out(g, n, 0, to, &s);
    if (from != to && dtype_is_int(from) && dtype_is_int(to)) op_fold_cast(g, n, to);
    return true;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    struct tensor *out = v->out[0];
    i64 n = tensor_count(out);
    if (n) memcpy(out->data, v->in[0]->data, (size_t)(n * dtype_size(out->dtype)));
    for (i64 i = 0; i < n && out->dtype == DT_BOOL; i++)
        elem_set_i64(DT_BOOL, out->data, i, ((const u8 *)v->in[0]->data)[i] != 0);
    return true;
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    enum dtype from = op_in_dtype(m->g, n, 0), to = graph_value(m->g, n->out.v[0])->dtype;
    kval v = emit_value(m, n->in.v[0], idx);
    if (from == to) return v;
    v = from == DT_BOOL ? kir_cast(k, DT_U8, v) : emit_narrow(m, from, v);
    if (to == DT_BOOL) return kir_bin(k, KI_NE, kir_bits(k, DT_U8, v), kir_const_i(k, DT_U8, 1, 0));
    return emit_widen(m, to, kir_bits(k, dtype_stored(to), v));
}

/* Bits that become floats are those of small numbers. */
static void random_bits(const struct op *self, struct graph *g, struct rng *r)
{
    static const enum dtype types[5][5] = {{DT_U8, DT_I8, DT_BOOL, DT_F8E4M3FN},
                                           {DT_U4, DT_I4, DT_F4E2M1},
                                           {DT_U16, DT_I16, DT_F16, DT_BF16},
                                           {DT_U32, DT_I32, DT_F32},
                                           {DT_U64, DT_I64, DT_F64}};
    const enum dtype *t = types[rng_range(r, 0, 4)];
    i64 n_types = 3 + (t[3] != DT_NONE), dim[2] = {rng_range(r, 1, 4), rng_range(r, 1, 9)};
    enum dtype from = t[rng_range(r, 0, n_types - 1)], to = t[rng_range(r, 0, n_types - 1)];
    value_id in;
    if (dtype_is_float(to)) {
        struct tensor *x = tensor_new(g->arena, to, 2, dim);
        for (i64 i = 0; i < tensor_count(x); i++) elem_set_f64(to, x->data, i, (double)rng_range(r, -9, 9));
        x->dtype = from;
        if (from == DT_BOOL) /* whose bytes are 0 and 1 */
            for (i64 i = 0; i < tensor_count(x); i++) elem_set_i64(DT_U8, x->data, i, rng_range(r, 0, 1));
        in = graph_add_const(g, S("x"), x);
    } else {
        random_input(g, "x", from, 2, dim, &in);
    }
    random_node(g, self, 1, &in, 1);
    attr_set_int(g, g->node.n - 1, "to", dtype_onnx(to));
}

static const struct op ops[] = {
    {.name = "BitCast",
     .props = OP_POINTWISE | OP_SMALL,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .random = random_bits},
};

const struct op_family op_bit_cast = {ops, countof(ops)};
