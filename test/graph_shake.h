// SPDX-License-Identifier: Apache-2.0
//
// Tolerance for a graph's outputs, element by element: evaluations in which the result of every
// rounding operation is perturbed by a few units in the last place, in random directions, show how
// far a correct program may deviate from the reference. Elements that depend on no such operation
// must be equal, to the sign of a zero; infinities and NaN must be in the same places, and so must
// the index of a NaN as the largest number. Where a discontinuity (a comparison, an index, a
// rounding) depends on rounded values, a perturbed evaluation takes the other side now and then. So
// nothing is known here about operators, except which ones do not round.
#ifndef QUERN_GRAPH_SHAKE_H
#define QUERN_GRAPH_SHAKE_H

#include <math.h>
#include <string.h>

#include "op/op.h"

enum { N_SHAKES = 48, SHAKE_STRONG = 16 /* from this one on by more */ };

struct shake {
    struct arena arena;
    struct graph g;              /* expanded */
    struct tensor *const *in;
    struct tensor **want;        /* per output */
    struct shaken_element { double spread; bool other_class, other_sign; } **element;
    bool other_shape;            /* sizes depend on rounded values, or an evaluation failed */
    u32 n_done;
    struct rng rng;
    double strength;
};

/* classification */

static bool is_view_like(const struct op *op) { return (op->props & (OP_VIEW | OP_SMALL)) != 0; }

/* The expansion of such an operator, quern::Name, is one of them, too. */
static bool is_any_of(const char *name, const char *const *glob, i64 n)
{
    if (str_starts(str_of(name), S("quern::"))) name += strlen("quern::");
    for (i64 i = 0; i < n; i++)
        if (str_glob(str_of(glob[i]), str_of(name))) return true;
    return false;
}

static bool is_half(enum dtype t) { return t == DT_F16 || t == DT_BF16; }

/* Its result is one of its inputs' elements, an index, or decided by comparisons. */
static bool selects(const struct graph *g, node_id n)
{
    static const char *const names[] = {"Neg", "Abs", "Relu", "Max", "Min", "Where", "Clip", "Ceil", "Floor", "Round", "Sign", "Not", "And", "Or", "Xor",
                                        "Equal", "Less*", "Greater*", "Is*", "Identity", "Arg*", "ReduceMax", "ReduceMin", "TopK", "Hardmax", "NonZero",
                                        "Compress", "Unique", "Gather*", "OneHot", "BitCast", "MaxPool", "MaxUnpool", "Choose", "Bit*", "Sym",
                                        "ReverseSequence", "EyeLike", "Range", "NonMaxSuppression", "Shape", "Size", "Trilu", "Tile"};
    const struct node *x = graph_node(g, n);
    const struct op *op = op_of(g, n);
    if (is_view_like(op) || is_any_of(op->name, names, countof(names))) return true;
    if (str_glob(S("*Scatter*"), str_of(op->name))) return str_is(attr_str(x, "reduction", "none"), "none");
    if (!str_is(x->op, "Cast")) return false;
    return !is_half(graph_value(g, x->out.v[0])->dtype);
}

static bool rounds(const struct graph *g, node_id n)
{
    const struct node *x = graph_node(g, n);
    bool floats = false;
    for (u32 k = 0; k < x->in.n; k++) floats |= x->in.v[k] && dtype_is_float(graph_value(g, x->in.v[k])->dtype);
    for (u32 k = 0; k < x->out.n; k++) floats |= x->out.v[k] && dtype_is_float(graph_value(g, x->out.v[k])->dtype);
    return floats && !selects(g, n);
}

/* shaking */

struct shake_type { double eps, big, tiny, max; };

static bool shake_type_of(struct shake_type *s, enum dtype t)
{
    if (t == DT_F32) *s = (struct shake_type){0x1p-23, 1e18, 1.2e-37, 3.4e38};
    else if (t == DT_F64) *s = (struct shake_type){0x1p-44, 1e150, 1e-300, 1.7e308};
    else if (t == DT_F16) *s = (struct shake_type){0x1p-10, 3e4, 6.2e-5, 65504};
    else if (t == DT_BF16) *s = (struct shake_type){0x1p-7, 1e18, 1.2e-37, 3.3e38};
    else return false;
    return true;
}

static double shaken(struct rng *r, const struct shake_type *t, double v, double units, bool is_out)
{
    if (is_out && v == 0) return rng_range(r, 0, 1) ? 0.0 : -0.0;
    if (is_out && isinf(v)) return rng_range(r, 0, 1) ? v : copysign(t->max, v);
    if (!isfinite(v)) return v;
    if (fabs(v) < t->tiny && rng_range(r, 0, 1)) return copysign(0, v);
    if (is_out && fabs(v) > t->big && rng_range(r, 0, 1)) return copysign(INFINITY, v);
    return v * (1 + (rng_f64(r) * 2 - 1) * units * t->eps);
}

static void shake_tensor(struct rng *r, struct tensor *t, double units, bool is_out)
{
    struct shake_type type;
    if (!shake_type_of(&type, t->dtype)) return;
    for (i64 i = 0, n = tensor_count(t); i < n; i++)
        elem_set_f64(t->dtype, t->data, i, shaken(r, &type, elem_f64(t->dtype, t->data, i), units, is_out));
}

/* A sum of two zeros, or the larger of two: the sign is unspecified. */
static void shake_zeros(struct rng *r, struct tensor *t)
{
    for (i64 i = 0, n = tensor_count(t); dtype_is_float(t->dtype) && i < n; i++)
        if (elem_f64(t->dtype, t->data, i) == 0) elem_set_f64(t->dtype, t->data, i, rng_range(r, 0, 1) ? 0.0 : -0.0);
}

/* Terms that windows, padding, masks and interpolation multiply by zero may be omitted, and sums
   have any order: for infinities and overflowing values this yields another result. */
static bool multiplies_zeros(const struct op *op)
{
    static const char *const names[] = {"*Filter*", "*Deform*", "*Roi*", "GridSample*", "*Resize*", "*Upsample*", "*Winograd*", "Col2Im", "AveragePool", "LpPool",
                                        "*AffineGrid*", "*Attention*", "Det", "Inverse", "*Elimination*", "ReduceProd", "CumProd", "CumSum"};
    return op->props & (OP_CONV | OP_TRANSPOSED | OP_CONV_GRAD | OP_FILTER | OP_FILTER_GRAD | OP_SAMPLE | OP_WINDOW | OP_MATMUL | OP_RECURRENT) || is_any_of(op->name, names, countof(names));
}

/* Exponentials and states that grow from step to step overflow inside. */
static double usual_limit(const struct op *op, enum dtype t)
{
    struct shake_type type;
    if (!shake_type_of(&type, t)) return INFINITY;
    return op->props & OP_RECURRENT || str_glob(S("*Attention*"), str_of(op->name)) ? 80 : type.big;
}

static bool has_unusual(const struct op *op, const struct tensor *t)
{
    double limit = t ? usual_limit(op, t->dtype) : 0;
    for (i64 i = 0, n = t && dtype_is_float(t->dtype) ? tensor_count(t) : 0; i < n; i++)
        if (!(fabs(elem_f64(t->dtype, t->data, i)) <= limit)) return true;
    return false;
}

/* In turn, so that many elements all reach their range of values. */
static void shake_anyhow(u32 round, struct tensor *t)
{
    static const double some[] = {NAN, 1, -1e4, 1e4, 0};
    for (i64 i = 0, n = tensor_count(t); i < n; i++) {
        u64 turn = (u64)i + round;
        if (!dtype_is_float(t->dtype)) elem_set_i64(t->dtype, t->data, i, (i64)(turn % 9));
        else if (turn % 6 < countof(some)) elem_set_f64(t->dtype, t->data, i, some[turn % 6]);
    }
}

/* Element of t, broadcast, for index idx of a result of rank r. */
static double broadcast_element(const struct tensor *t, u32 r, const i64 *idx)
{
    i64 at = 0;
    for (u32 d = 0; d < t->rank; d++) at = at * t->dim[d] + (t->dim[d] == 1 ? 0 : idx[r - t->rank + d]);
    return elem_f64(t->dtype, t->data, at);
}

/* Integers that are computed as floats, beyond the exact range of those. */
static void shake_powers(struct rng *r, const struct op *op, struct tensor *t, struct tensor *const *in)
{
    static const char *const names[] = {"Pow", "Shrink"};
    i64 idx[MAX_RANK] = {0};
    if (!is_any_of(op->name, names, countof(names)) || !dtype_is_int(t->dtype)) return;
    double lo = (double)dtype_int_extreme(t->dtype, false), hi = t->dtype == DT_U64 ? 0x1p64 : (double)dtype_int_extreme(t->dtype, true);
    for (i64 i = 0, n = tensor_count(t); i < n; i++, op_next(t->rank, t->dim, idx)) {
        double x = broadcast_element(in[0], t->rank, idx), v = str_is(str_of(op->name), "Pow") ? pow(x, broadcast_element(in[1], t->rank, idx)) : x;
        if (!(v > lo - 1 && v < hi + 1) || fabs(v) > 0x1p24 || fabs(x) > 0x1p24) elem_set_i64(t->dtype, t->data, i, rng_range(r, 0, 99));
    }
}

/* A float out of range of the integer it is converted to: the result is unspecified. */
static void shake_casts(struct rng *r, const struct op *op, struct tensor *t, const struct tensor *in)
{
    if (!is_any_of(op->name, (const char *const[]){"Cast*"}, 1) || !in || !dtype_is_float(in->dtype) || !dtype_is_int(t->dtype)) return;
    double lo = (double)dtype_int_extreme(t->dtype, false), hi = t->dtype == DT_U64 ? 0x1p64 : (double)dtype_int_extreme(t->dtype, true);
    for (i64 i = 0, n = tensor_count(t); i < n && i < tensor_count(in); i++) {
        double v = trunc(elem_f64(in->dtype, in->data, i));
        if (!(v >= lo && (hi > 1e9 ? v < hi : v <= hi))) elem_set_i64(t->dtype, t->data, i, rng_range(r, 0, 99));
    }
}

/* Rounded results whose error is bounded only relative to the input, x * (1 + erf(x)) and the like,
   or to 1: exp(x) - 1. */
static void shake_tail(struct rng *r, const struct op *op, struct tensor *t, const struct tensor *in, double units)
{
    static const char *const names[] = {"*Gelu*"}, *const below_one[] = {"*Elu", "*elu", "Softplus", "Mish"};
    struct shake_type type;
    double most = 0;
    if (op->props & (OP_RECURRENT | OP_SAMPLE) && shake_type_of(&type, t->dtype)) { /* sums of values as large as the bound */
        for (i64 i = 0, n = in ? tensor_count(in) : 0; i < n; i++) most = fmax(most, fabs(elem_f64(in->dtype, in->data, i)));
        for (i64 i = 0, n = tensor_count(t); i < n; i++) most = fmax(most, fabs(elem_f64(t->dtype, t->data, i)));
        if (!(most <= type.big)) shake_anyhow((u32)rng_range(r, 0, 5), t);
        for (i64 i = 0, n = tensor_count(t); i < n && most <= type.big; i++)
            elem_set_f64(t->dtype, t->data, i, elem_f64(t->dtype, t->data, i) + most * (rng_f64(r) * 2 - 1) * units * type.eps);
        return;
    }
    bool of_input = is_any_of(op->name, names, countof(names));
    if (!(of_input || is_any_of(op->name, below_one, countof(below_one))) || !in || tensor_count(t) != tensor_count(in) || !shake_type_of(&type, t->dtype)) return;
    for (i64 i = 0, n = tensor_count(t); i < n; i++) {
        double x = elem_f64(in->dtype, in->data, i), size = of_input ? fabs(x) : x < 0 ? 1 : 0;
        double d = isfinite(x) ? size * (rng_f64(r) * 2 - 1) * units * type.eps : 0;
        elem_set_f64(t->dtype, t->data, i, elem_f64(t->dtype, t->data, i) + d);
    }
}

/* A state that was rounded goes over a step from one round to the next. */
static bool has_steps_inside(const struct node *n)
{
    const struct attr *a = node_attr(n, "activations");
    for (i64 i = 0; a && i < a->n; i++)
        if (str_is(a->strs[i], "ThresholdedRelu")) return true;
    return false;
}

static double units_of(const struct shake *s, const struct op *op)
{
    return s->strength * (op->props & (OP_CONV | OP_TRANSPOSED | OP_CONV_GRAD | OP_HEAVY) ? 32 : 6);
}

static bool shake_node(struct shake *s, node_id n, struct tensor **t, i64 *var, struct arena *a, struct err *e)
{
    const struct node *x = graph_node(&s->g, n);
    const struct op *op = op_of(&s->g, n);
    struct op_eval v = {.g = &s->g, .n = x, .scratch = a, .var = var};
    struct tensor **in = arena_array(a, struct tensor *, x->in.n + 1);
    bool inexact = s->strength > 0 && rounds(&s->g, n), anything = false;
    v.in = in;
    v.out = arena_array(a, struct tensor *, x->out.n + 1);
    for (u32 k = 0; k < x->in.n; k++) {
        in[k] = x->in.v[k] ? t[x->in.v[k]] : NULL;
        anything |= s->strength > 0 && multiplies_zeros(op) && has_unusual(op, in[k]);
        if (!in[k] || !dtype_is_float(in[k]->dtype) || !inexact || is_half(in[k]->dtype)) continue;
        struct tensor *copy = tensor_new(a, in[k]->dtype, in[k]->rank, in[k]->dim);
        if (tensor_bytes(copy)) memcpy(copy->data, in[k]->data, (size_t)tensor_bytes(copy));
        shake_tensor(&s->rng, copy, units_of(s, op), false);
        in[k] = copy;
    }
    for (u32 k = 0; k < x->out.n; k++) {
        i64 dim[MAX_RANK], bytes;
        if (!x->out.v[k]) continue;
        const struct value *y = graph_value(&s->g, x->out.v[k]);
        if (!shape_eval(s->g.sym, &y->shape, var, dim) || !tensor_size_ok(y->dtype, y->shape.rank, dim, &bytes) || bytes > 1 << 24) return false;
        v.out[k] = t[x->out.v[k]] = tensor_new(a, y->dtype, y->shape.rank, dim);
    }
    if (!op->eval || !op->eval(&v, e)) return false;
    for (u32 k = 0; k < x->out.n; k++) {
        if (!v.out[k]) continue;
        if (inexact) shake_tensor(&s->rng, v.out[k], units_of(s, op), true), shake_tail(&s->rng, op, v.out[k], in[0], units_of(s, op));
        else if (s->strength > 0 && !is_view_like(op)) shake_zeros(&s->rng, v.out[k]);
        if (s->strength > 0) shake_casts(&s->rng, op, v.out[k], in[0]), shake_powers(&s->rng, op, v.out[k], in);
        if (anything || (s->strength > 0 && has_steps_inside(x))) shake_anyhow(s->n_done, v.out[k]);
        if (!graph_read_sizes(&s->g, x->out.v[k], v.out[k], var, e)) return false;
    }
    return true;
}

/* Contents of all values, NULL: some evaluation failed. */
static struct tensor **shake_eval(struct shake *s, struct arena *a, struct err *e)
{
    struct tensor **t = arena_array(a, struct tensor *, s->g.value.n + 1);
    i64 *var = arena_array(a, i64, s->g.sym->var.n + 1);
    if (!graph_bind(&s->g, s->in, var, e)) return NULL;
    for (value_id v = 1; v < s->g.value.n; v++) t[v] = graph_value(&s->g, v)->data;
    for (u32 k = 0; k < s->g.input.n; k++) t[s->g.input.v[k]] = s->in[k];
    for (u32 k = 0; k < s->g.made.n; k++)
        if (!graph_read_sizes(&s->g, s->g.made.v[k].v, t[s->g.made.v[k].v], var, e)) return NULL;
    if (!graph_make_sizes(&s->g, var, e)) return NULL;
    for (node_id n = 1; n < s->g.node.n; n++)
        if (!graph_node(&s->g, n)->dead && !shake_node(s, n, t, var, a, e)) return NULL;
    return t;
}

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
    if (a->rank != b->rank || a->dtype != b->dtype) return false;
    for (u32 d = 0; d < a->rank; d++)
        if (a->dim[d] != b->dim[d]) return false;
    return true;
}

static int class_of(double x) { return isnan(x) ? 3 : isinf(x) ? (x > 0 ? 1 : 2) : 0; }

static void note_element(struct shaken_element *x, double want, double now)
{
    if (class_of(want) != class_of(now)) x->other_class = true;
    else if (isfinite(want)) x->spread = fmax(x->spread, fabs(now - want));
    if (!signbit(want) != !signbit(now)) x->other_sign = true;
}

/* Beyond 2^53 numbers of 64 bits are seen as differences of their own. */
static void note_output(struct shaken_element *x, const struct tensor *want, const struct tensor *now)
{
    for (i64 i = 0, n = tensor_count(want); i < n; i++) {
        if (dtype_is_float(want->dtype)) note_element(&x[i], elem_f64(want->dtype, want->data, i), elem_f64(now->dtype, now->data, i));
        else if (elem_i64(want->dtype, want->data, i) != elem_i64(now->dtype, now->data, i)) x[i].spread = 1;
    }
}

static void shake_once(struct shake *s)
{
    struct arena a = {0};
    struct err e = {0};
    s->strength = s->n_done++ < SHAKE_STRONG ? 1 : 6;
    struct tensor **t = shake_eval(s, &a, &e);
    if (!t) s->other_shape = true;
    for (u32 k = 0; t && k < s->g.output.n; k++) {
        const struct tensor *now = t[s->g.output.v[k]];
        if (!same_shape(now, s->want[k])) s->other_shape = true;
        else note_output(s->element[k], s->want[k], now);
    }
    arena_release(&a);
}

static bool shake_open(struct shake *s, const struct graph *g, struct tensor *const *in, struct tensor **want, u64 seed, struct err *e)
{
    *s = (struct shake){.in = in, .want = want, .rng = rng_seed(seed)};
    graph_clone(&s->g, g, &s->arena);
    if (!op_expand_all(&s->g, e)) return false;
    s->element = arena_array(&s->arena, struct shaken_element *, g->output.n + 1);
    for (u32 k = 0; k < g->output.n; k++) s->element[k] = arena_array(&s->arena, struct shaken_element, tensor_count(want[k]) + 1);
    return true;
}

static void shake_close(struct shake *s) { arena_release(&s->arena); }

/* comparison */

static bool is_explained(enum dtype t, const struct shaken_element *x, const struct tensor *want, const struct tensor *got, i64 i)
{
    if (!dtype_is_float(t)) return elem_i64(t, want->data, i) == elem_i64(t, got->data, i) || x->spread > 0;
    double w = elem_f64(t, want->data, i), g = elem_f64(t, got->data, i);
    if (isnan(w) && isnan(g)) return true;
    if (w == g) return !signbit(w) == !signbit(g) || x->other_sign || x->spread > 0;
    if (x->other_class) return true;
    return isfinite(w) && isfinite(g) && x->spread > 0 && fabs(w - g) <= 6 * x->spread + 1e-18;
}

/* First element of output k outside of the range seen so far; -1: none. */
static i64 unexplained(const struct shake *s, const struct tensor *got, u32 k)
{
    for (i64 i = 0, n = tensor_count(got); i < n; i++)
        if (!is_explained(got->dtype, &s->element[k][i], s->want[k], got, i)) return i;
    return -1;
}

static void describe(struct err *e, const struct shake *s, const struct tensor *got, u32 k, i64 i)
{
    const struct tensor *want = s->want[k];
    if (dtype_is_float(got->dtype))
        err_set(e, ERR_FAILED, "output %u, element %lld: %.9g, expected %.9g, at most %.3g from it", k, (long long)i, elem_f64(got->dtype, got->data, i),
                elem_f64(want->dtype, want->data, i), 6 * s->element[k][i].spread);
    else
        err_set(e, ERR_FAILED, "output %u, element %lld: %lld, expected %lld", k, (long long)i, (long long)elem_i64(got->dtype, got->data, i),
                (long long)elem_i64(want->dtype, want->data, i));
}

/* Whether the program's result agrees. got: per output. Repeats perturbed evaluations as often as
   necessary. */
static bool shake_compare(struct shake *s, const struct tensor *got, struct err *e)
{
    for (u32 k = 0; k < s->g.output.n; k++) {
        while (!same_shape(&got[k], s->want[k]) && !s->other_shape) {
            if (s->n_done == N_SHAKES) return err_set(e, ERR_FAILED, "output %u has another shape", k);
            shake_once(s);
        }
        i64 i = 0;
        while (!s->other_shape && (i = unexplained(s, &got[k], k)) >= 0) {
            if (s->n_done == N_SHAKES) return describe(e, s, &got[k], k, i), false;
            shake_once(s);
        }
    }
    return true;
}

/* The program failed: may it have? */
static bool shake_fails(struct shake *s)
{
    while (!s->other_shape && s->n_done < N_SHAKES) shake_once(s);
    return s->other_shape;
}

#endif
