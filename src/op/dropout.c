// SPDX-License-Identifier: Apache-2.0
//
// Dropout, a composite. Outside of training it returns x, and the mask is true everywhere. In training random elements are dropped,
// the others multiplied by 1 / (1 - ratio). The choice follows from the seed (0 if there is none) as in ONNX's reference
// implementation, NumPy's MT19937, so that the mask is a constant. Sizes must be known for that.
//
//   x, ratio?, training_mode? -> y [, mask]
#include "op/op.h"

enum { MAX_MASK = 1 << 28 /* elements */ };

/* Not known to be off, and elements may be dropped. */
static bool is_training(const struct graph *g, const struct node *x)
{
    i64 on;
    return op_has_in(x, 2) && !(op_const_ints(g, x->in.v[2], &on, 1) == 1 && !on);
}

/* false: only known at run time */
static bool read_ratio(const struct graph *g, const struct node *x, double *ratio)
{
    *ratio = 0.5;
    if (!op_has_in(x, 1)) return true;
    const struct tensor *t = graph_value(g, x->in.v[1])->data;
    if (!t || tensor_count(t) != 1 || !dtype_is_float(t->dtype)) return false;
    return *ratio = elem_f64(t->dtype, t->data, 0), true;
}

static bool training_ok(const struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    double ratio;
    i64 on, dim[MAX_RANK], bytes;
    const struct shape *s = op_in_shape(g, x, 0);
    if (!read_ratio(g, x, &ratio)) return op_unsupported(e, g, n, "in training with a ratio that is only known at run time");
    if (!(ratio >= 0 && ratio < 1)) return op_invalid(e, g, n, "ratio %g, expected 0 to below 1", ratio);
    if (ratio == 0) return true;
    if (op_const_ints(g, x->in.v[2], &on, 1) != 1) return op_unsupported(e, g, n, "input 'training_mode' is only known at run time");
    if (!shape_is_static(g->sym, s, dim))
        return op_unsupported(e, g, n, "in training with sizes that are not known: fix them with --input-shape, or export for inference");
    if (!tensor_size_ok(DT_U8, s->rank, dim, &bytes) || bytes > MAX_MASK) return op_unsupported(e, g, n, "in training on more than 2^28 elements");
    return true;
}

/* Below opset 10 the mask has the type of x. */
static bool upgrade(struct graph *g, node_id n, i64 opset, struct err *e)
{
    const struct node *x = graph_node(g, n);
    if (opset >= 10 || x->out.n < 2 || !x->out.v[1] || !x->in.n) return true;
    value_id like = x->in.v[0], out = x->out.v[1], mask = graph_add_value(g, S("mask"));
    node_set_out(g, n, 1, mask);
    op_node2(g, n, "CastLike", mask, like, out);
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    struct shape s = *op_in_shape(g, x, 0);
    bool training = is_training(g, x);
    if (training && !training_ok(g, n, e)) return false;
    op_set_out(g, n, 0, op_in_dtype(g, x, 0), &s);
    op_set_out(g, n, 1, DT_BOOL, &s);
    if (!training && x->out.v[0]) op_copy_sdata(g, x->in.v[0], x->out.v[0]);
    return true;
}

/* Matsumoto and Nishimura, Mersenne Twister: a 623-dimensionally equidistributed uniform pseudo-random number generator, 1998, with the
   initialisation of 2002. */
enum { MT_N = 624, MT_M = 397 };
struct twister { u32 v[MT_N], at; };

static void twister_seed(struct twister *t, u32 seed)
{
    for (u32 i = 0; i < MT_N; i++) {
        t->v[i] = seed;
        seed = 1812433253u * (seed ^ seed >> 30) + i + 1;
    }
    t->at = MT_N;
}

static void twist(struct twister *t)
{
    for (u32 i = 0; i < MT_N; i++) {
        u32 y = (t->v[i] & 0x80000000u) | (t->v[(i + 1) % MT_N] & 0x7fffffffu);
        t->v[i] = t->v[(i + MT_M) % MT_N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    t->at = 0;
}

static u32 twister_next(struct twister *t)
{
    if (t->at == MT_N) twist(t);
    u32 y = t->v[t->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* 53 bits, from 0 to below 1 */
static double twister_uniform(struct twister *t)
{
    double high = twister_next(t) >> 5, low = twister_next(t) >> 6;
    return (high * 67108864 + low) / 9007199254740992.0;
}

/* mask: kept elements; factor: multiplier of x. */
static bool make_mask(struct graph *g, node_id n, double ratio, value_id *mask, value_id *factor, struct err *e)
{
    const struct node *x = graph_node(g, n);
    enum dtype t = op_in_dtype(g, x, 0);
    u32 rank = op_in_shape(g, x, 0)->rank;
    i64 dim[MAX_RANK];
    struct twister random;
    twister_seed(&random, (u32)attr_int(x, "seed", 0));
    shape_is_static(g->sym, op_in_shape(g, x, 0), dim);
    struct tensor *m = tensor_try(g->arena, DT_BOOL, rank, dim, e, "its mask", S(""));
    struct tensor *f = m ? tensor_try(g->arena, t, rank, dim, e, "its mask", S("")) : NULL;
    if (!f) return false;
    for (i64 i = 0, count = tensor_count(m); i < count; i++) {
        bool kept = twister_uniform(&random) >= ratio;
        elem_set_i64(DT_BOOL, m->data, i, kept);
        elem_set_f64(t, f->data, i, kept ? 1 / (1 - ratio) : 0);
    }
    *mask = graph_add_const(g, S("mask"), m);
    *factor = graph_add_const(g, S("factor"), f);
    return true;
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    const struct node x = *graph_node(g, n);
    value_id y = x.out.v[0], kept = x.out.n > 1 ? x.out.v[1] : 0, mask, factor;
    double ratio = 0;
    if (is_training(g, &x) && !read_ratio(g, &x, &ratio)) return op_unsupported(e, g, n, "ratio is only known at run time");
    if (ratio > 0) {
        if (!make_mask(g, n, ratio, &mask, &factor, e)) return false;
        if (y) op_node2(g, n, "Mul", x.in.v[0], factor, y);
        if (kept) op_node1(g, n, "Identity", mask, kept);
        return true;
    }
    if (y) op_node1(g, n, "Identity", x.in.v[0], y);
    if (!kept) return true;
    value_id shape = op_node1(g, n, "Shape", x.in.v[0], 0), all = op_const_f(g, DT_BOOL, 1);
    op_node2(g, n, "Expand", all, shape, kept);
    return true;
}

static void random_dropout(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[4] = {rng_range(r, 1, 4), rng_range(r, 1, 4), rng_range(r, 1, 4), rng_range(r, 1, 9)};
    u32 n_out = (u32)rng_range(r, 1, 2);
    value_id in[3] = {0};
    u32 rank = (u32)rng_range(r, 1, 4);
    random_input(g, "x", random_float_type(r), rank, dim, &in[0]);
    if (rng_range(r, 0, 1)) in[1] = op_const_f(g, DT_F32, 0.25 * (double)rng_range(r, 0, 3));
    if (rng_range(r, 0, 1)) in[2] = op_const_i(g, DT_BOOL, (i64[]){rng_range(r, 0, 1)}, 1);
    node_id n = random_node(g, self, 3, in, n_out);
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "seed", rng_range(r, 0, 99));
}

static const struct op ops[] = {
    {.name = "Dropout", .props = OP_SMALL, .min_in = 1, .max_in = 3, .min_out = 1, .max_out = 2, .upgrade = upgrade, .infer = infer, .expand = expand, .random = random_dropout},
};

const struct op_family op_dropout = {ops, countof(ops)};
