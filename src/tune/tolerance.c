// SPDX-License-Identifier: Apache-2.0
//
// Tolerances: how far results of a kernel, or of a program, may differ from the reference's, derived from the numbers of terms and of roundings between
// input and output. u is the unit roundoff of a type, half the distance from 1 to the next number: 2^-24 for f32, 2^-11 for f16, 2^-8 for bf16. Sources:
// [H] Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002; [HM] Higham & Mary, A New Approach to Probabilistic Rounding Error Analysis,
// SIAM J. Sci. Comput. 41(5), 2019; [HM2] the same, Sharper Probabilistic Backward Error Analysis for Basic Linear Algebra Kernels with Random Data, 42(5), 2020.
//
// Chains. n roundings one after the other multiply a value by a factor of at most 1 + gamma_n, gamma_n = n u / (1 - n u) [H, lemma 3.1]. If they are
// independent with mean zero, the factor is 1 + lambda sqrt(n) u with a probability of at least 1 - 2 exp(-lambda^2 / 2) [HM, theorem 2.4]. Rounding errors
// are spread over -u .. u with a standard deviation of u / sqrt(3): lambda = 2 is 3.5 of them. The lesser bound holds for each side.
//
// - Stored values: the reference rounds every value that a node yields to its type; a kernel may store it, too, or keep it in f32. For n of them on the
//   longest way, the result included, the sides differ by two such chains, relative to the values on the way. These may be larger than the results, where
//   terms cancel: results may be off by that share of twice the largest result, which leaves room for short sums in f16 on matrix units (acc=16 of
//   wgmma_gemm), too. Behind whole networks, whose sums average the errors of many values, by that share of the largest one.
// - The result itself is rounded by both sides: 2 u of it, of subnormal numbers as of the smallest normal one.
// - Arithmetic in f32 (f64) likewise, a rounding for each node; and functions, whose errors in kernels are up to 16 units in the last place, 32 u (the
//   largest bound of OpenCL C's table of single precision functions, of pow and erf).
// - Sums of n terms in f32 (f64): lambda sqrt(n) u times the sum of the terms' magnitudes [HM, theorem 3.1]. Random inputs of both signs make the terms'
//   mean zero: then n terms of magnitude m have sums of about m sqrt(n), and errors, of m n u lambda [HM2], are sqrt(n) u lambda of these. lambda = 8, as many
//   sums are compared: one of 10^9 exceeds it with a probability of 3 * 10^-5.
//
// tf32 keeps 10 bits of the mantissa of each operand. The relative error of an operand is at most u
// = 2^-10 if the mantissa is truncated, as some libraries do, and that of a product of two at most
// 2u + u^2. The signs of the inputs are random, hence the errors of the terms of a sum are
// independent with mean zero. The error of one operand is uniform over 0 .. u with root mean square
// u / sqrt(3), that of a product has sqrt(2/3) u: the standard deviation of a sum's error is that
// fraction of the standard deviation of the sums. The largest of many errors is to the largest of
// as many sums as their standard deviations, hence less than u.
#include "tune/tune.h"

#include <math.h>

/* lambda of chains and of sums; unit roundoffs by which functions are off; see above. */
static const double of_chain = 2, of_sum = 8, of_functions = 32;

/* Nodes on the way. */

/* A fused kernel need not round its intermediate values. Hence kernel and reference may differ by
   one rounding of any value between input and output. Intermediate 8-bit floats count as bf16: only
   values between two of their numbers may round to either. */
static enum dtype graph_precision(const struct graph *g, enum dtype t)
{
    if (!dtype_is_float(t) || dtype_is_small(t)) return t;
    for (value_id v = 1; v < g->value.n; v++) {
        const struct value *x = graph_value(g, v);
        if (!x->producer || graph_node(g, x->producer)->dead) continue;
        const struct node *n = graph_node(g, x->producer);
        if (t == DT_F32 && (attr_int(n, "tf32", 0) || op_digits(n) == 2)) t = DT_TF32; /* digits have 7 bits each, relative to the largest of a block */
        if (dtype_size(t) == 4 && op_digits(n) == 1) t = DT_BF16;
        enum dtype own = dtype_is_small(x->dtype) && dtype_is_float(x->dtype) ? DT_BF16 : x->dtype;
        if (own == DT_BF16 || (own == DT_F16 && t != DT_BF16)) t = own;
    }
    return t;
}

static double node_depth(const struct graph *g, const struct node *x, const i64 *var)
{
    i64 in[MAX_RANK], out[MAX_RANK];
    double n_in = 1, n_out = 1;
    if (!x->in.n || !x->in.v[0]) return 1;
    const struct shape *a = &graph_value(g, x->in.v[0])->shape;
    if (x->in.n > 1 && x->in.v[1] && graph_value(g, x->in.v[1])->shape.rank > 2 &&
        graph_value(g, x->in.v[1])->is_const) {
        if (!shape_eval(g->sym, &graph_value(g, x->in.v[1])->shape, var, in)) return 1;
        for (u32 d = 1; d < graph_value(g, x->in.v[1])->shape.rank; d++) n_in *= (double)in[d];
        return n_in; /* weights (m, c, k...): the sum is over c and k */
    }
    if (!shape_eval(g->sym, a, var, in)) return 1;
    for (u32 k = 0; k < x->out.n; k++) {
        if (!x->out.v[k] || !shape_eval(g->sym, &graph_value(g, x->out.v[k])->shape, var, out))
            continue;
        for (u32 d = 0; d < graph_value(g, x->out.v[k])->shape.rank; d++) n_out *= (double)out[d];
        break;
    }
    for (u32 d = 0; d < a->rank; d++) n_in *= (double)in[d];
    double flops_per = n_out > 0 ? n_in / n_out : 1;
    return flops_per > 1 ? flops_per : 1;
}

static double graph_depth(const struct graph *g, const i64 *var)
{
    double depth = 1;
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead) continue;
        double d = node_depth(g, x, var);
        if (op_of(g, n)->props & (OP_MATMUL | OP_HEAVY | OP_CONV)) {
            double n_out = 1;
            i64 dim[MAX_RANK];
            const struct shape *s = &graph_value(g, node_first_out(x))->shape;
            if (shape_eval(g->sym, s, var, dim))
                for (u32 i = 0; i < s->rank; i++) n_out *= (double)dim[i];
            if (n_out > 0) d = op_flops(g, n, var) / 2 / n_out;
        }
        depth = d > depth ? d : depth;
    }
    return depth;
}

static bool is_rounded(const struct graph *g, value_id v)
{
    enum dtype t = graph_value(g, v)->dtype;
    return dtype_is_float(t) && dtype_size(t) <= 2;
}

struct numerics graph_numerics(const struct graph *g, enum dtype out, const i64 *var)
{
    struct numerics x = {.type = graph_precision(g, out), .terms = graph_depth(g, var)};
    struct arena a = {0};
    i64 *steps = arena_array(&a, i64, g->value.n), *roundings = arena_array(&a, i64, g->value.n); /* per value: on the longest way to it */
    for (node_id n = 1; n < g->node.n; n++) { /* sorted */
        const struct node *node = graph_node(g, n);
        i64 most_steps = 0, most_roundings = 0;
        bool computes = !(op_of(g, n)->props & (OP_VIEW | OP_MOVES));
        if (node->dead) continue;
        for (u32 k = 0; k < node->in.n; k++) most_steps = i64_max(most_steps, steps[node->in.v[k]]), most_roundings = i64_max(most_roundings, roundings[node->in.v[k]]);
        for (u32 k = 0; k < node->out.n; k++) {
            value_id v = node->out.v[k];
            if (!v) continue;
            steps[v] = most_steps + computes, roundings[v] = most_roundings + (computes && is_rounded(g, v));
            x.steps = fmax(x.steps, (double)steps[v]), x.roundings = fmax(x.roundings, (double)roundings[v]);
        }
    }
    arena_release(&a);
    return x;
}

/* Bounds. */

/* Of n roundings one after the other. */
static double chain(double n, double u)
{
    double certain = n * u < 1 ? n * u / (1 - n * u) : INFINITY;
    return fmin(certain, of_chain * sqrt(n) * u);
}

/* amplification: of errors of values on the way, relative to the largest result. */
static void tolerance(const struct numerics *x, double amplification, double *rtol, double *atol)
{
    if (dtype_is_small(x->type) && dtype_is_float(x->type)) {
        /* 8-bit and smaller floats: a value between two numbers of the type may be rounded to either. */
        const struct small_float *f = small_float_of(x->type);
        *rtol = 1.01 * ldexp(1, -f->mantissa);
        *atol = f->mantissa ? 1.01 * ldexp(1, 1 - f->bias - f->mantissa) : 0; /* subnormal numbers */
        return;
    }
    double u = check_unit(x->type), c = check_unit(x->type == DT_F64 ? DT_F64 : DT_F32); /* of stored values, of arithmetic */
    double sums = of_sum * sqrt(fmax(1, x->terms)) * c, arithmetic = 2 * chain(fmax(1, x->steps), c) + of_functions * c;
    *rtol = arithmetic, *atol = arithmetic + sums;
    if (x->type == DT_TF32) *rtol = 2 * 0x1p-10 + 0x1p-20, *atol = 0x1p-10 + sums;
    if (x->type == DT_F16 || x->type == DT_BF16) *rtol += 2 * u, *atol += amplification * 2 * chain(fmax(1, x->roundings), u);
    if (!dtype_is_float(x->type)) *rtol = *atol = 0;
}

double check_least(enum dtype t) { return !dtype_is_float(t) || dtype_is_small(t) ? 0 : ldexp(1, t == DT_F64 ? -1022 : t == DT_F16 ? -14 : -126); }

void check_tolerance(const struct numerics *x, double *rtol, double *atol) { tolerance(x, 2, rtol, atol); }

/* Convolutions, matmuls and reductions, whose errors add up. */
static double count_layers(const struct graph *g)
{
    double layers = 1;
    for (node_id n = 1; n < g->node.n; n++)
        if (!graph_node(g, n)->dead &&
            (op_of(g, n)->props & (OP_CONV | OP_MATMUL | OP_REDUCE | OP_HEAVY)))
            layers++;
    return layers;
}

struct numerics network_numerics(const struct graph *g, enum dtype out, const i64 *var)
{
    struct numerics x = graph_numerics(g, out, var);
    x.terms *= count_layers(g);
    return x;
}

void network_tolerance(const struct numerics *x, double *rtol, double *atol) { tolerance(x, 1, rtol, atol); }
