// SPDX-License-Identifier: Apache-2.0
//
// op_cast: conversion of element types. As in NumPy: floats become integers by truncation, then
// wrap to the width; integers wrap; anything but zero is true; conversion to a shorter float rounds
// to nearest even and overflows to infinity. A conversion to f16 or bf16 rounds inside kernels,
// too, although such values are carried as f32: the network asks for it.
//
// Floats of 8 bits and fewer: attributes `saturate` (what is too large becomes the largest number, else NaN or
// infinity) and `round_mode` (f8e8m0 only: up, down, nearest), as ONNX's tables say.
#include "op/op.h"

#include <math.h>

/* The requested type; DT_NONE: unsupported. */
static enum dtype target(const struct graph *g, const struct node *x)
{
    if (str_is(x->op, "CastLike")) return graph_value(g, x->in.v[1])->dtype;
    return dtype_from_onnx((int)attr_int(x, "to", 0));
}

static struct small_rule rule_of(const struct node *x)
{
    struct str round = attr_str(x, "round_mode", "up");
    struct small_rule r = {.saturate = attr_int(x, "saturate", 1) != 0};
    r.round = str_is(round, "down") ? SMALL_DOWN : str_is(round, "nearest") ? SMALL_NEAREST : SMALL_UP;
    return r;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    enum dtype to = target(g, x);
    if (to == DT_NONE)
        return op_unsupported(e, g, n, "attribute 'to' = %d: elements of type %s", (int)attr_int(x, "to", 0),
                              dtype_onnx_name((int)attr_int(x, "to", 0)));
    op_set_out(g, n, 0, to, &graph_value(g, x->in.v[0])->shape);
    op_fold_cast(g, n, to);
    return true;
}

/* Truncates; outside of i64 the result is that of u64, wrapped. */
static i64 to_int(double v)
{
    if (v != v) return 0;
    if (v >= 9223372036854775808.0) return v < 18446744073709551616.0 ? (i64)(u64)v : -1;
    return v <= -9223372036854775808.0 ? INT64_MIN : (i64)v;
}

static float int_to_f32(enum dtype t, i64 v) { return t == DT_U64 ? (float)(u64)v : (float)v; }

static bool eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *a = v->in[0];
    struct tensor *out = v->out[0];
    struct small_rule r = rule_of(v->n);
    if (out->dtype == DT_F32 && (a->dtype == DT_F16 || a->dtype == DT_BF16)) { /* weights, often gigabytes */
        halves_to_f32(a->dtype, a->data, tensor_count(a), out->data);
        return true;
    }
    for (i64 i = 0, n = tensor_count(a); i < n; i++) {
        bool is_float = dtype_is_float(a->dtype);
        double f = is_float ? elem_f64(a->dtype, a->data, i) : 0;
        i64 k = is_float ? 0 : elem_i64(a->dtype, a->data, i);
        if (out->dtype == DT_BOOL) elem_set_i64(DT_BOOL, out->data, i, is_float ? f != 0 : k != 0);
        else if (dtype_is_small(out->dtype) && dtype_is_float(out->dtype))
            ((u8 *)out->data)[i] = small_from_f32(out->dtype, is_float ? f32_to_odd(f) : int_to_f32(a->dtype, k), r);
        else if (!dtype_is_float(out->dtype))
            elem_set_i64(out->dtype, out->data, i, is_float ? to_int(f) : k);
        else if (is_float) elem_set_f64(out->dtype, out->data, i, f);
        else
            elem_set_f64(out->dtype, out->data, i, a->dtype == DT_U64 ? (double)(u64)k : (double)k);
    }
    return true;
}

/* Integers are reached through a signed type that holds the value, so that negative numbers wrap
 * instead of being undefined. */
static kval float_to_int(struct kir *k, enum dtype to, kval v)
{
    if (to == DT_U64) {
        kval zero = kir_const_f(k, kir_dtype(k, v), kir_lanes(k, v), 0);
        kval plus = kir_cast(k, DT_U64, kir_bin(k, KI_MAX, zero, v));
        kval minus = kir_cast(k, DT_U64, kir_cast(k, DT_I64, kir_bin(k, KI_MIN, zero, v)));
        return kir_bin(k, KI_ADD, plus, minus);
    }
    enum dtype via = to == DT_I64 || to == DT_U32 ? DT_I64 : DT_I32;
    return kir_cast(k, to, kir_cast(k, via, v));
}

/* f32_to_odd */
static kval to_odd(struct kir *k, kval v)
{
    kval f = kir_cast(k, DT_F32, v), back = kir_cast(k, DT_F64, f), bits = kir_bits(k, DT_U32, f);
    kval one = kir_const_i(k, DT_U32, 1, 1), zero = kir_const_i(k, DT_U32, 1, 0);
    kval is_even = kir_bin(k, KI_EQ, kir_bin(k, KI_AND, bits, one), zero);
    /* no NaN, either */
    kval is_finite = kir_bin(k, KI_LT, kir_un(k, KI_ABS, f), kir_const_f(k, DT_F32, 1, INFINITY));
    kval is_low = kir_bin(k, KI_LT, kir_un(k, KI_ABS, back), kir_un(k, KI_ABS, v));
    kval is_high = kir_bin(k, KI_LT, kir_un(k, KI_ABS, v), kir_un(k, KI_ABS, back));
    kval odd = kir_select(k, is_low, kir_bin(k, KI_ADD, bits, one), bits);
    odd = kir_select(k, is_high, kir_bin(k, KI_SUB, bits, one), odd);
    return kir_bits(k, DT_F32, kir_select(k, kir_bin(k, KI_AND, is_even, is_finite), odd, bits));
}

static kval to_small(struct emit *m, enum dtype to, kval v, struct small_rule r)
{
    bool is_float = dtype_is_float(kir_dtype(m->k, v));
    if (!dtype_is_float(to)) return emit_wrap(m, to, is_float ? float_to_int(m->k, DT_I32, v) : v);
    if (kir_dtype(m->k, v) == DT_F64) v = to_odd(m->k, v);
    return emit_widen(m, to, emit_narrow_by(m, to, v, r));
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    enum dtype to = graph_value(m->g, n->out.v[0])->dtype;
    kval v = emit_value(m, n->in.v[0], idx);
    if (dtype_is_small(to)) return to_small(m, to, v, rule_of(n));
    if (dtype_is_float(kir_dtype(k, v)) && dtype_is_int(to)) return float_to_int(k, to, v);
    return kir_cast(k, emit_type(to), kir_cast(k, to, v));
}

static void random_instance(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[3] = {rng_range(r, 1, 5), rng_range(r, 1, 5), rng_range(r, 1, 9)};
    value_id in[2];
    enum dtype from = (enum dtype)rng_range(r, 1, N_DTYPES - 1),
               to = (enum dtype)rng_range(r, 1, N_DTYPES - 1);
    u32 rank = (u32)rng_range(r, 0, 3);
    random_input(g, "x", from, rank, dim, &in[0]);
    if (self->min_in == 2) in[1] = op_const_i(g, to, (i64[]){1}, 1);
    random_node(g, self, self->min_in, in, 1);
    if (self->min_in == 1) attr_set_int(g, g->node.n - 1, "to", dtype_onnx(to));
}

#define COMMON                                                                                     \
    .props = OP_POINTWISE | OP_SMALL, .min_out = 1, .max_out = 1, .infer = infer, .eval = eval,               \
    .lower = lower, .random = random_instance

static const struct op ops[] = {
    {.name = "Cast", .min_in = 1, .max_in = 1, COMMON},
    {.name = "CastLike", .min_in = 2, .max_in = 2, COMMON},
};

const struct op_family op_cast = {ops, countof(ops)};
