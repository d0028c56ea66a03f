// SPDX-License-Identifier: Apache-2.0
//
// Inputs with exact sums. With small integers a kernel that adds and multiplies has exact outputs
// in any order of summation. A term that is missing, doubled or wrong changes the output to another
// integer, whereas the tolerance for random inputs, which grows with the number of terms, would not
// detect it. Kernels with fewer multiplications than terms (Winograd) compute with fractions; their
// outputs must round to the right integer.
//
// A task qualifies if its plain kernel only adds, multiplies, selects and moves floats, its
// literals are integers, and all values stay in the range in which their type represents every
// integer. Sums of narrow types are bounded with high probability, by independent signs. Inputs are
// seeded, so the result is reproducible.
#include "tune/tune.h"

#include <math.h>

enum { MOST = 3 };
static const double exact_sums = 0x1p20; /* leaves a factor of 16 below 2^24 for the transforms of Winograd */
static const double likely = 8;          /* standard deviations of a sum */

double check_exact_up_to(enum dtype t, bool tf32)
{
    return t == DT_F16 || (tf32 && t == DT_F32) ? 0x1p11 : t == DT_BF16 ? 0x1p8 : t == DT_I8 ? 127 : t == DT_U8 ? 255 : 0x1p24;
}

double check_unit(enum dtype t)
{
    return t == DT_F64 ? 0x1p-53 : t == DT_F16 ? 0x1p-11 : t == DT_BF16 ? 0x1p-8 : dtype_is_float(t) ? 0x1p-24 : 0;
}

void check_fill_integers(struct tensor *t, i64 most, struct rng *r)
{
    i64 least = dtype_kind(t->dtype) == DK_UINT ? 0 : -most;
    for (i64 i = 0, n = tensor_count(t); i < n; i++) elem_set_f64(t->dtype, t->data, i, (double)rng_range(r, least, most));
}

/* Operators. */

static bool is_integer(double v) { return isinf(v) || v == floor(v); }

/* Comparisons of floats may be searches in sorted inputs. */
static bool keeps_integers(const struct kir *k, const struct kir_ins *i)
{
    if (i->op == KI_EQ || i->op == KI_NE || i->op == KI_LT || i->op == KI_LE) return !dtype_is_float(kir_dtype(k, i->a));
    if (!dtype_is_float((enum dtype)i->dtype)) return true;
    switch (i->op) {
    case KI_CONST: return is_integer(i->imm.f);
    case KI_LOAD: case KI_STORE: case KI_BUF: case KI_ALLOC:
    case KI_SPLAT: case KI_LANE: case KI_HALVES: case KI_ZIP: case KI_CAST: case KI_SELECT:
    case KI_ADD: case KI_SUB: case KI_MUL: case KI_FMA: case KIR_DOTS: case KI_NEG: case KI_ABS: case KI_MIN: case KI_MAX:
    case KI_FLOOR: case KI_CEIL: case KI_TRUNC: case KI_RINT:
        return true;
    case KIR_NO_OP: case KI_PARAM: case KI_THREAD: case KI_SUBGROUP: case KI_RAMP: case KIR_HORIZONTAL: case KI_BITS:
    case KI_NOT: case KIR_FUNCTIONS: case KIR_CLASSIFYING: case KI_DIV: case KI_MOD: case KI_POW: case KIR_LOGIC:
    case KIR_SHIFTS: case KIR_COMPARISONS: case KI_TILE: case KI_PREFETCH: case KIR_CONTROL: case KIR_SYNC: case KIR_COLLECTIVES:
        return false;
    default: unreachable();
    }
}

static bool are_integers(const struct tensor *t)
{
    for (i64 i = 0, n = dtype_is_float(t->dtype) ? tensor_count(t) : 0; i < n; i++)
        if (!is_integer(elem_f64(t->dtype, t->data, i))) return false;
    return true;
}

static bool is_exact(const struct graph *g)
{
    struct arena a = {0};
    struct emit m;
    struct kir k;
    bool ok = true;
    for (value_id v = 1; v < g->value.n && ok; v++) {
        const struct value *x = graph_value(g, v);
        ok = !(dtype_is_small(x->dtype) && dtype_is_float(x->dtype)) && (!x->data || are_integers(x->data)) && !(x->producer && op_digits(graph_node(g, x->producer)));
    }
    ok = ok && op_plain_kernel(&m, &k, g, &a);
    for (u32 i = 0; ok && i < k.ins.n; i++) ok = keeps_integers(&k, &k.ins.v[i]);
    arena_release(&a);
    return ok;
}

/* Ranges. */

struct range { double certain, likely; }; /* bounds of the absolute value: certain, and with high probability */

static double elements(const struct graph *g, value_id v, const i64 *var)
{
    i64 dim[MAX_RANK];
    const struct shape *s = v ? &graph_value(g, v)->shape : NULL;
    return s && shape_eval(g->sym, s, var, dim) ? (double)i64_product(s->rank, dim) : 0;
}

static struct range sum_of(double terms, struct range x) { return (struct range){terms * x.certain, fmin(terms, likely * sqrt(terms)) * x.likely}; }

static struct range product_of(struct range a, struct range b) { return (struct range){a.certain * b.certain, a.likely * b.likely}; }

/* The range of a node's outputs; false: the operator is not one whose sums are known here. */
static bool range_of(struct range *out, const struct graph *g, node_id n, const struct range *of, const i64 *var)
{
    const struct node *x = graph_node(g, n);
    const struct op *op = op_of(g, n);
    double n_in = elements(g, x->in.n ? x->in.v[0] : 0, var), n_out = elements(g, node_first_out(x), var);
    struct range sum = {0}, product = {1, 1};
    struct op_reduce r;
    struct op_pool p;
    for (u32 k = 0; k < x->in.n; k++) {
        if (!x->in.v[k]) continue;
        struct range b = of[x->in.v[k]];
        sum = (struct range){sum.certain + b.certain, sum.likely + b.likely};
        product = product_of(product, (struct range){fmax(b.certain, 1), fmax(b.likely, 1)});
    }
    if (!n_in || !n_out) return false;
    if (op->props & (OP_MATMUL | OP_CONV | OP_TRANSPOSED | OP_CONV_GRAD | OP_FILTER | OP_FILTER_GRAD)) {
        struct range terms = sum_of(op_flops(g, n, var) / 2 / n_out + 1, product_of(of[x->in.v[0]], of[x->in.v[1]]));
        *out = (struct range){terms.certain + sum.certain, terms.likely + sum.likely};
    } else if (op->props & OP_REDUCE && op->reduce(g, x, &r)) {
        *out = r.combine == KI_ADD ? sum_of(n_in / n_out, sum) : sum;
        return r.combine == KI_ADD || r.combine == KI_MIN || r.combine == KI_MAX;
    } else if (op->props & OP_WINDOW) {
        struct op_window w;
        op->pool(g, x, &p);
        op_window_get(g, x, &w);
        *out = p.combine == KI_ADD ? sum_of((double)op_window_taps(&w), sum) : sum;
    } else if (op->props & OP_POINTWISE) {
        *out = (struct range){fmax(sum.certain, product.certain), fmax(sum.likely, product.likely)};
    } else {
        *out = sum;
        return (op->props & (OP_VIEW | OP_MOVES)) != 0;
    }
    return true;
}

static bool holds_integers(const struct range *r, enum dtype t, bool is_out)
{
    if (!dtype_is_float(t)) return r->certain < 0x1p31;
    return r->certain <= exact_sums && (is_out || r->likely <= check_exact_up_to(t, false));
}

static bool fits(const struct graph *g, const i64 *var, i64 most)
{
    struct arena a = {0};
    struct range *of = arena_array(&a, struct range, g->value.n);
    bool ok = true;
    for (value_id v = 1; v < g->value.n; v++) {
        const struct value *x = graph_value(g, v);
        if (!x->producer) of[v].certain = of[v].likely = x->data ? tensor_largest(x->data) : (double)most;
    }
    for (node_id n = 1; n < g->node.n && ok; n++) {
        const struct node *x = graph_node(g, n);
        struct range r;
        if (x->dead) continue;
        ok = range_of(&r, g, n, of, var);
        for (u32 k = 0; k < x->out.n && ok; k++) {
            value_id v = x->out.v[k];
            bool is_out = false;
            for (u32 o = 0; o < g->output.n; o++) is_out |= g->output.v[o] == v;
            if (v) of[v] = r, ok = holds_integers(&r, graph_value(g, v)->dtype, is_out);
        }
    }
    arena_release(&a);
    return ok;
}

i64 check_largest_integer(const struct task *t, const i64 *var)
{
    const struct graph *g = &t->g;
    i64 most = MOST;
    if (task_is_call(t) || !is_exact(g)) return 0;
    while (most > 0 && !fits(g, var, most)) most--;
    return most;
}
