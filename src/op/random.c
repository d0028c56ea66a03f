// SPDX-License-Identifier: Apache-2.0
//
// RandomUniform, RandomNormal, their variants with the shape of another tensor, Bernoulli and
// Multinomial. All are composites of quern::Random: numbers in [0, 1) that are a hash (splitmix64) of a
// seed and of the element's position, so that kernels need no state and every run produces the same
// numbers. Without attribute 'seed' the seed is a hash of the name of the node's output: nodes differ,
// runs do not. For other numbers in each run, make them an input.
//
// Normal numbers are computed from two uniform ones (Box and Muller), choices as the largest of
// logits plus Gumbel noise.
#include "op/op.h"

#include <math.h>
#include <string.h>

enum kind { UNIFORM, NORMAL, BERNOULLI, MULTINOMIAL };

struct row {
    enum kind kind;
    bool like; /* the shape is that of input 0 */
};

static const struct row *row_of(const struct node *nd) { return op_find(nd->op)->row; }

static bool result_type(const struct graph *g, node_id n, enum dtype *t, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct row *r = row_of(nd);
    i64 def = r->kind == MULTINOMIAL ? dtype_onnx(DT_I32) : r->like ? dtype_onnx(op_in_dtype(g, nd, 0)) : dtype_onnx(DT_F32);
    i64 to = attr_int(nd, "dtype", def);
    *t = dtype_from_onnx((int)i64_max(0, i64_min(to, 255)));
    bool ok = r->kind == BERNOULLI ? *t != DT_NONE : r->kind == MULTINOMIAL ? dtype_is_int(*t) : dtype_is_float(*t);
    return ok || op_unsupported(e, g, n, "attribute 'dtype' = %lld", (long long)to);
}

static bool result_shape(struct graph *g, node_id n, struct shape *s, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const i64 *dim;
    *s = (struct shape){.known = true};
    if (row_of(nd)->like) return *s = *op_in_shape(g, nd, 0), true;
    i64 rank = attr_ints(nd, "shape", &dim);
    if (rank > MAX_RANK) return op_invalid(e, g, n, "rank %lld", (long long)rank);
    for (i64 i = 0; i < rank; i++) {
        if (dim[i] < 0) return op_invalid(e, g, n, "size %lld", (long long)dim[i]);
        s->dim[s->rank++] = sym_const(g->sym, dim[i]);
    }
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    enum dtype t;
    struct shape s;
    enum kind kind = row_of(nd)->kind;
    if (kind >= BERNOULLI && !op_check_float(g, n, 0, e)) return false;
    if (!result_type(g, n, &t, e) || !result_shape(g, n, &s, e)) return false;
    i64 count = attr_int(nd, "sample_size", 1);
    if (kind == MULTINOMIAL && (s.rank != 2 || count < 1)) return op_invalid(e, g, n, "input of rank %u, sample_size %lld", s.rank, (long long)count);
    if (kind == MULTINOMIAL) s.dim[1] = sym_const(g->sym, count);
    op_set_out(g, n, 0, t, &s);
    return true;
}

/* Uniform numbers of shape s; streams of one node differ. */
static value_id uniform(struct graph *g, node_id n, const struct shape *s, enum dtype t, i64 stream)
{
    const struct node nd = *graph_node(g, n);
    u32 bits = f32_bits((float)attr_float(&nd, "seed", 0));
    struct str name = graph_value(g, nd.out.v[0])->name;
    u64 seed = node_attr(&nd, "seed") ? bits : hash_u64(name.p, name.n);
    value_id v = op_node(g, n, "quern::Random", 0, NULL, 0);
    op_set_syms(g, op_made(g, v), "shape", s->dim, s->rank);
    attr_set_int(g, op_made(g, v), "to", dtype_onnx(t));
    attr_set_int(g, op_made(g, v), "seed", (i64)(seed + (u64)stream * 0x632be59bd9b4e019u));
    return v;
}

/* a + b * v, cast to the type of the result */
static bool scaled(struct graph *g, node_id n, value_id v, enum dtype f, double a, double b)
{
    enum dtype t = DT_NONE;
    struct err e = {0};
    result_type(g, n, &t, &e);
    value_id out = graph_node(g, n)->out.v[0];
    v = op_node_binf(g, n, "Mul", v, f, b, 0);
    v = op_node_binf(g, n, "Add", v, f, a, f == t ? out : 0);
    if (f != t) op_node_cast(g, n, v, t, out);
    return true;
}

/* -log(1 - u): u is below 1 */
static value_id exponential(struct graph *g, node_id n, const struct shape *s, enum dtype f, i64 stream)
{
    value_id u = uniform(g, n, s, f, stream), v = op_node2(g, n, "Sub", op_const_f(g, f, 1), u, 0);
    return op_node1(g, n, "Neg", op_node1(g, n, "Log", v, 0), 0);
}

static bool normal(struct graph *g, node_id n, const struct shape *s, enum dtype f)
{
    const struct node nd = *graph_node(g, n);
    value_id r = op_node_binf(g, n, "Mul", exponential(g, n, s, f, 1), f, 2, 0);
    value_id angle = op_node_binf(g, n, "Mul", uniform(g, n, s, f, 2), f, 6.283185307179586, 0);
    value_id cosine = op_node1(g, n, "Cos", angle, 0), v = op_node2(g, n, "Mul", op_node1(g, n, "Sqrt", r, 0), cosine, 0);
    return scaled(g, n, v, f, attr_float(&nd, "mean", 0), attr_float(&nd, "scale", 1));
}

static bool multinomial(struct graph *g, node_id n, enum dtype t)
{
    const struct node nd = *graph_node(g, n);
    const struct shape x = *op_in_shape(g, &nd, 0);
    enum dtype f = op_in_dtype(g, &nd, 0) == DT_F64 ? DT_F64 : DT_F32;
    struct shape s = {.known = true, .rank = 3, .dim = {x.dim[0], sym_const(g->sym, attr_int(&nd, "sample_size", 1)), x.dim[1]}};
    const i64 one = 1;
    value_id e = exponential(g, n, &s, f, 1); /* 0 where u is: the logarithm is -inf, the noise infinite */
    value_id noise = op_node1(g, n, "Neg", op_node1(g, n, "Log", e, 0), 0);
    value_id logit = op_node_axes(g, n, "Unsqueeze", op_as(g, n, nd.in.v[0], f), &one, 1, 0);
    value_id v = op_node1(g, n, "ArgMax", op_node2(g, n, "Add", logit, noise, 0), t == DT_I64 ? nd.out.v[0] : 0);
    attr_set_int(g, op_made(g, v), "axis", 2);
    attr_set_int(g, op_made(g, v), "keepdims", 0);
    if (t != DT_I64) op_node_cast(g, n, v, t, nd.out.v[0]);
    return true;
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t, f;
    struct shape s;
    if (!result_type(g, n, &t, e) || !result_shape(g, n, &s, e)) return false;
    f = t == DT_F64 ? DT_F64 : DT_F32;
    double low = attr_float(&nd, "low", 0);
    switch (row_of(&nd)->kind) {
    case UNIFORM: return scaled(g, n, uniform(g, n, &s, f, 0), f, low, attr_float(&nd, "high", 1) - low);
    case NORMAL: return normal(g, n, &s, f);
    case MULTINOMIAL: return multinomial(g, n, t);
    case BERNOULLI: break;
    }
    f = op_in_dtype(g, &nd, 0) == DT_F64 ? DT_F64 : DT_F32;
    value_id p = op_as(g, n, nd.in.v[0], f), v = op_node2(g, n, "Less", uniform(g, n, &s, f, 0), p, 0);
    op_node_cast(g, n, v, t, nd.out.v[0]);
    return true;
}

static void random_like(const struct op *self, struct graph *g, struct rng *r)
{
    const struct row *row = self->row;
    i64 dim[2] = {rng_range(r, 1, 4), rng_range(r, 1, 7)};
    value_id in = 0;
    if (row->kind == MULTINOMIAL) { /* one class has all the weight: no noise decides */
        struct tensor *t = tensor_new(g->arena, DT_F32, 2, dim);
        for (i64 i = 0; i < dim[0]; i++) elem_set_f64(DT_F32, t->data, i * dim[1] + rng_range(r, 0, dim[1] - 1), 400);
        in = graph_add_const(g, S("x"), t);
    } else if (row->kind == BERNOULLI) { /* certainties */
        struct tensor *t = tensor_new(g->arena, DT_F32, 2, dim);
        for (i64 i = 0; i < tensor_count(t); i++) elem_set_f64(DT_F32, t->data, i, (double)rng_range(r, 0, 1));
        in = graph_add_const(g, S("x"), t);
    } else if (row->like) {
        random_input(g, "x", DT_F32, 2, dim, &in);
    }
    node_id n = random_node(g, self, row->like, &in, 1);
    if (!row->like) attr_set_ints(g, n, "shape", dim, 2);
    if (rng_range(r, 0, 1)) attr_set_float(g, n, "seed", (double)rng_range(r, 0, 99));
    if (row->kind == UNIFORM) attr_set_float(g, n, "low", -2);
    if (row->kind == MULTINOMIAL) attr_set_int(g, n, "sample_size", rng_range(r, 1, 4));
}

/* quern::Random */

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct shape s = {.known = true};
    i64 rank = op_get_syms(g, nd, "shape", s.dim, MAX_RANK), to = attr_int(nd, "to", 0);
    if (to != dtype_onnx(DT_F32) && to != dtype_onnx(DT_F64)) return op_invalid(e, g, n, "bad attribute 'to'");
    if (rank < 0 && node_attr(nd, "shape")) return op_invalid(e, g, n, "bad attribute 'shape'");
    s.rank = rank < 0 ? 0 : (u32)rank;
    op_set_out(g, n, 0, dtype_from_onnx((int)to), &s);
    return true;
}

static const u64 golden = 0x9e3779b97f4a7c15u, mix_a = 0xbf58476d1ce4e5b9u, mix_b = 0x94d049bb133111ebu;

static bool prim_eval(const struct op_eval *v, struct err *e)
{
    struct tensor *out = v->out[0];
    u64 seed = (u64)attr_int(v->n, "seed", 0);
    for (i64 i = 0; i < tensor_count(out); i++) {
        u64 z = seed + ((u64)i + 1) * golden;
        z = (z ^ (z >> 30)) * mix_a;
        z = (z ^ (z >> 27)) * mix_b;
        elem_set_f64(out->dtype, out->data, i, (double)((z ^ (z >> 31)) >> 40) / (1 << 24));
    }
    return true;
}

static kval mixed(struct kir *k, kval z, i64 by)
{
    return kir_bin(k, KI_XOR, z, kir_bin(k, KI_SHR, z, kir_const_i(k, DT_U64, 1, by)));
}

static kval prim_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    const struct value *o = graph_value(m->g, n->out.v[0]);
    kval at = kir_int(k, 0);
    for (u32 a = 0; a < o->shape.rank; a++)
        at = kir_add(k, kir_bin(k, KI_MUL, at, emit_size(m, o->shape.dim[a])), idx[a]);
    kval z = kir_cast(k, DT_U64, kir_add_i(k, at, 1));
    z = kir_bin(k, KI_MUL, z, kir_const_i(k, DT_U64, 1, (i64)golden));
    z = kir_bin(k, KI_ADD, z, kir_const_i(k, DT_U64, 1, attr_int(n, "seed", 0)));
    z = kir_bin(k, KI_MUL, mixed(k, z, 30), kir_const_i(k, DT_U64, 1, (i64)mix_a));
    z = kir_bin(k, KI_MUL, mixed(k, z, 27), kir_const_i(k, DT_U64, 1, (i64)mix_b));
    z = kir_bin(k, KI_SHR, mixed(k, z, 31), kir_const_i(k, DT_U64, 1, 40));
    z = kir_cast(k, o->dtype, kir_cast(k, DT_I32, z));
    return kir_bin(k, KI_MUL, z, kir_const_f(k, o->dtype, 1, 1.0 / (1 << 24)));
}

static void random_random(const struct op *self, struct graph *g, struct rng *r)
{
    node_id n = random_node(g, self, 0, NULL, 1);
    sym dim[3];
    i64 rank = rng_range(r, 0, 3);
    for (i64 i = 0; i < rank; i++) dim[i] = sym_const(g->sym, rng_range(r, 1, 5));
    op_set_syms(g, n, "shape", dim, rank);
    attr_set_int(g, n, "to", dtype_onnx(rng_range(r, 0, 2) ? DT_F32 : DT_F64));
    attr_set_int(g, n, "seed", (i64)rng_u64(r));
}

static const struct row uniform_row = {UNIFORM, false}, normal_row = {NORMAL, false}, uniform_like = {UNIFORM, true},
                        normal_like = {NORMAL, true}, bernoulli = {BERNOULLI, true}, multinomial_row = {MULTINOMIAL, true};

#define RANDOM(onnx, inputs, what)                                                                              \
    {                                                                                                                  \
        .name = onnx, .props = OP_RANDOM, .min_in = inputs, .max_in = inputs, .min_out = 1,            \
        .max_out = 1, .infer = infer, .expand = expand, .random = random_like, .row = &what                            \
    }

static const struct op ops[] = {
    RANDOM("RandomUniform", 0, uniform_row),
    RANDOM("RandomUniformLike", 1, uniform_like),
    RANDOM("RandomNormal", 0, normal_row),
    RANDOM("RandomNormalLike", 1, normal_like),
    RANDOM("Bernoulli", 1, bernoulli),
    RANDOM("Multinomial", 1, multinomial_row),
    {.name = "quern::Random",
     .attributes = "seed:int shape:strings to:int",
     .props = OP_RANDOM,
     .min_in = 0,
     .max_in = 0,
     .min_out = 1,
     .max_out = 1,
     .infer = prim_infer,
     .eval = prim_eval,
     .lower = prim_lower,
     .random = random_random},
};

const struct op_family op_random = {ops, countof(ops)};
