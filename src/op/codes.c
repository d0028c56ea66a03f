// SPDX-License-Identifier: Apache-2.0
//
// quern::Dequantize: constant weights in few bits, as the right operand of a matmul:
//
//   out[k, n] = (q[k, n] - zero[k / block, n]) * scale[k / block, n]
//
// Inputs: q (k, n), codes of u2, u4, u8, i8, or floats of 4 to 8 bits; scale (blocks, n), a float; zero (blocks, n), u8, which floats
// have not. Attributes: block, terms of a sum with one scale; offset, the zero point of all where there is no input for it; to, the type
// of the result. Passes write it (pass/codes.c), models do not. It is not folded (OP_KEPT): matmuls read the codes, which take a quarter
// or less of the memory of the numbers that they stand for.
#include "op/op.h"

enum { Q, SCALE, ZERO };

bool op_is_code(enum dtype t) { return t == DT_U2 || t == DT_U4 || t == DT_U8 || t == DT_I8 || (dtype_is_small(t) && dtype_is_float(t)); }

static struct op_codes codes_of(const struct graph *g, const struct node *n)
{
    return (struct op_codes){.q = n->in.v[Q], .scale = n->in.v[SCALE], .zero = op_has_in(n, ZERO) ? n->in.v[ZERO] : 0,
                             .block = attr_int(n, "block", 0), .offset = attr_int(n, "offset", 0), .type = op_in_dtype(g, n, Q)};
}

bool op_codes_get(const struct graph *g, node_id id, struct op_codes *c)
{
    const struct node *n = id ? graph_node(g, id) : NULL;
    if (!n || !str_is(n->op, "quern::Dequantize")) return false;
    *c = codes_of(g, n);
    for (u32 k = 0; k < n->in.n; k++)
        if (n->in.v[k] && !graph_value(g, n->in.v[k])->is_const) return false;
    return true;
}

static bool infer(struct graph *g, node_id id, struct err *e)
{
    const struct node *n = graph_node(g, id);
    const struct op_codes c = codes_of(g, n);
    const struct shape *q = op_in_shape(g, n, Q);
    i64 to = attr_int(n, "to", dtype_onnx(DT_F32));
    enum dtype t = dtype_from_onnx((int)i64_max(0, i64_min(to, 255)));
    if (!op_is_code(c.type)) return op_invalid(e, g, id, "codes of type %s", dtype_name(c.type));
    if (t != DT_F32 && t != DT_F16 && t != DT_BF16) return op_invalid(e, g, id, "attribute 'to' = %lld", (long long)to);
    if (q->rank != 2 || c.block < 1) return op_invalid(e, g, id, "codes of rank %u in blocks of %lld", q->rank, (long long)c.block);
    if (dtype_is_float(c.type) && (c.zero || c.offset)) return op_invalid(e, g, id, "codes of type %s with a zero point", dtype_name(c.type));
    if (!op_check_float(g, id, SCALE, e)) return false;
    if (c.zero && op_in_dtype(g, n, ZERO) != DT_U8) return op_invalid(e, g, id, "zero points of type %s", dtype_name(op_in_dtype(g, n, ZERO)));
    for (u32 k = SCALE; k <= ZERO; k++) {
        if (!op_has_in(n, k)) continue;
        const struct shape *s = op_in_shape(g, n, k);
        if (s->rank != 2 || !op_sizes_agree(g, s->dim[0], sym_cdiv(g->sym, q->dim[0], sym_const(g->sym, c.block))) ||
            !op_sizes_agree(g, s->dim[1], q->dim[1]))
            return op_invalid(e, g, id, "input %u does not fit blocks of %lld", k, (long long)c.block);
    }
    struct shape out = *q;
    op_set_out(g, id, 0, t, &out);
    return true;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    const struct op_codes c = codes_of(v->g, v->n);
    const struct tensor *q = v->in[Q], *s = v->in[SCALE], *z = c.zero ? v->in[ZERO] : NULL;
    struct tensor *out = v->out[0];
    i64 terms = q->dim[0], columns = q->dim[1];
    for (i64 k = 0; k < terms; k++)
        for (i64 n = 0; n < columns; n++) {
            i64 at = k / c.block * columns + n;
            double zero = z ? elem_f64(DT_U8, z->data, at) : (double)c.offset, code = elem_f64(q->dtype, q->data, k * columns + n);
            elem_set_f64(out->dtype, out->data, k * columns + n, (code - zero) * elem_f64(s->dtype, s->data, at));
        }
    return true;
}

static u32 widest(const struct kir *k, kval a, kval b, kval c)
{
    u32 n = kir_lanes(k, a);
    if (kir_lanes(k, b) > n) n = kir_lanes(k, b);
    return c && kir_lanes(k, c) > n ? kir_lanes(k, c) : n;
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    const struct op_codes c = codes_of(m->g, n);
    kval at[MAX_RANK] = {kir_div_i(k, idx[0], c.block), idx[1]};
    kval q = kir_cast(k, DT_F32, emit_value(m, c.q, idx)), s = kir_cast(k, DT_F32, emit_value(m, c.scale, at));
    kval z = c.zero ? kir_cast(k, DT_F32, emit_value(m, c.zero, at)) : 0;
    u32 lanes = widest(k, q, s, z);
    if (!z && c.offset) z = kir_const_f(k, DT_F32, lanes, (double)c.offset);
    if (z) q = kir_sub(k, kir_splat(k, q, lanes), kir_splat(k, z, lanes));
    return kir_mul(k, kir_splat(k, q, lanes), kir_splat(k, s, lanes));
}

static void random_codes(const struct op *self, struct graph *g, struct rng *r)
{
    static const enum dtype types[] = {DT_U2, DT_U4, DT_U8, DT_I8, DT_F4E2M1, DT_F8E4M3FN}, scales[] = {DT_F32, DT_F16, DT_BF16};
    enum dtype t = types[rng_range(r, 0, countof(types) - 1)], s = scales[rng_range(r, 0, countof(scales) - 1)];
    i64 k = rng_range(r, 1, 9), n = rng_range(r, 1, 9), block = rng_range(r, 1, 4), blocks = ceil_div(k, block);
    value_id in[3];
    bool is_float = dtype_is_float(t);
    double most = is_float ? 2 : (double)((1 << dtype_bits(t)) - 1) / (t == DT_I8 ? 2 : 1);
    in[Q] = random_const(g, t, 2, (i64[]){k, n}, is_float || t == DT_I8 ? -most : 0, most, r);
    in[SCALE] = random_const(g, s, 2, (i64[]){blocks, n}, -0.5, 0.5, r);
    in[ZERO] = random_const(g, DT_U8, 2, (i64[]){blocks, n}, 0, 15, r);
    bool has_zeros = rng_range(r, 0, 1) && !is_float;
    i64 offset = rng_range(r, 0, 1) && !is_float ? rng_range(r, 0, 15) : 0;
    node_id id = random_node(g, self, has_zeros ? 3 : 2, in, 1);
    attr_set_int(g, id, "block", block);
    if (!has_zeros && offset) attr_set_int(g, id, "offset", offset);
}

static const struct op ops[] = {
    {.name = "quern::Dequantize",
     .attributes = "block:int offset:int to:int",
     .props = OP_VIEW | OP_KEPT,
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .random = random_codes},
};

const struct op_family op_codes = {ops, countof(ops)};
