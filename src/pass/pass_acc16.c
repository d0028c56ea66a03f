// SPDX-License-Identifier: Apache-2.0
//
// pass_acc16: proves that sums of products of bytes fit i16. Values are u8, so that a sum is largest where all positive weights multiply the largest value
// and the others 0, and least likewise: both bounds follow from the weights. Weights of 7 bits, as quantisers write them for processors whose products of
// bytes saturate (`reduce_range`), and values up to 127 make sums of two products fit whatever they are.
#include "pass/pass_acc16.h"
#include "pass/pass_linear.h"

#include <math.h>

enum { X, W, PAD = 3, DEPTH = 16, MOST = 8 /* terms of a sum */ };

struct bounds { double low, high; };

static struct bounds bounds_of_elements(const struct tensor *t)
{
    struct bounds b = {HUGE_VAL, -HUGE_VAL};
    for (i64 i = 0; i < tensor_count(t); i++) {
        double x = elem_f64(t->dtype, t->data, i);
        b = (struct bounds){fmin(b.low, x), fmax(b.high, x)};
    }
    return b;
}

static struct bounds bounds_of(const struct graph *g, value_id v, u32 depth);

/* Of n's first input, and of all others that n moves elements of. */
static struct bounds bounds_of_inputs(const struct graph *g, const struct node *n, u32 depth)
{
    struct bounds b = bounds_of(g, n->in.v[0], depth);
    for (u32 k = 1; k < linear_n_moved(n); k++) {
        const struct bounds x = bounds_of(g, n->in.v[k], depth);
        b = (struct bounds){fmin(b.low, x.low), fmax(b.high, x.high)};
    }
    return b;
}

/* Of a pointwise function of n's first input, which has bounds b. Sums of f32 are rounded as theirs is, which keeps their order. */
static struct bounds bounds_of_result(const struct graph *g, const struct node *n, struct bounds b)
{
    double c, low = -HUGE_VAL, high;
    bool has_constant = n->in.n == 2 && linear_number(g, n->in.v[1], &c);
    if (str_is(n->op, "Round")) return (struct bounds){rint(b.low), rint(b.high)};
    if (has_constant && (str_is(n->op, "quern::Min") || str_is(n->op, "Min"))) return (struct bounds){fmin(b.low, c), fmin(b.high, c)};
    if (has_constant && (str_is(n->op, "quern::Max") || str_is(n->op, "Max"))) return (struct bounds){fmax(b.low, c), fmax(b.high, c)};
    if (has_constant && str_is(n->op, "Add")) return (struct bounds){(double)(float)(b.low + c), (double)(float)(b.high + c)};
    if (str_is(n->op, "Clip") && op_has_in(n, 2) && linear_number(g, n->in.v[2], &high)) {
        if (op_has_in(n, 1) && !linear_number(g, n->in.v[1], &low)) return (struct bounds){-HUGE_VAL, high};
        return (struct bounds){fmin(fmax(b.low, low), high), fmin(fmax(b.high, low), high)};
    }
    return (struct bounds){-HUGE_VAL, HUGE_VAL};
}

/* Of v, of u8 or a float. What does not fit u8 becomes any of them; a NaN has no defined result. */
static struct bounds bounds_of(const struct graph *g, value_id v, u32 depth)
{
    const struct value *x = graph_value(g, v);
    const struct bounds all = x->dtype == DT_U8 ? (struct bounds){0, UINT8_MAX} : (struct bounds){-HUGE_VAL, HUGE_VAL};
    if (x->data) return bounds_of_elements(x->data);
    if (!x->producer || !depth--) return all;
    const struct node *n = graph_node(g, x->producer);
    enum dtype from = n->in.n ? op_in_dtype(g, n, 0) : DT_NONE;
    if (from != DT_U8 && from != DT_F32) return all;
    struct bounds b = bounds_of_inputs(g, n, depth);
    if (!linear_n_moved(n) && !str_is(n->op, "Cast")) b = bounds_of_result(g, n, b);
    if (x->dtype == DT_U8) b.high = ceil(b.high);
    return x->dtype == DT_U8 && !(b.low >= 0 && b.high <= UINT8_MAX) ? all : b;
}

struct weights { /* [row][term][tap][column]: sums are over terms */
    const i8 *v;
    i64 rows, terms, inner;
};

/* Sums of the weights of each sign, of `most` terms of those from `from` on (op_acc16), at most `limit`? */
static bool fits(const struct weights *w, const i8 *v, i64 from, i64 most, double largest)
{
    for (i64 half = 0; half < 2; half++) {
        i64 up = 0, down = 0;
        for (i64 i = 0; i < most; i++) {
            i64 at = from + i / 2 * 4 + 2 * half + i % 2, x = at < w->terms ? v[at * w->inner] : 0;
            *(x > 0 ? &up : &down) += x;
        }
        if ((double)up * largest > INT16_MAX || (double)down * largest < INT16_MIN) return false;
    }
    return true;
}

static bool all_fit(const struct weights *w, i64 most, double largest)
{
    for (i64 r = 0; r < w->rows; r++)
        for (i64 i = 0; i < w->inner; i++)
            for (i64 from = 0; from < w->terms; from += 2 * most)
                if (!fits(w, w->v + r * w->terms * w->inner + i, from, most, largest)) return false;
    return true;
}

i64 acc16_of(const struct graph *g, node_id id)
{
    const struct node *n = graph_node(g, id);
    bool conv = op_of(g, id)->props & OP_CONV, matmul = op_of(g, id)->props & OP_MATMUL;
    double pad = 0;
    if (!conv && !matmul) return 0;
    const struct value *x = graph_value(g, n->in.v[X]), *b = graph_value(g, n->in.v[W]);
    if (x->dtype != DT_U8 || b->dtype != DT_I8 || !b->data || b->data->rank < 2 || (matmul && b->data->rank != 2)) return 0;
    if (conv && op_has_in(n, PAD) && !linear_number(g, n->in.v[PAD], &pad)) return 0;
    const struct tensor *t = b->data;
    struct weights w = {t->data, t->dim[0], t->dim[1], i64_product(t->rank - 2, t->dim + 2)};
    if (matmul) w = (struct weights){t->data, 1, t->dim[0], t->dim[1]};
    double most_x = fmax(pad, bounds_of(g, n->in.v[X], DEPTH).high);
    if (w.terms < 2) return 0; /* depthwise */
    for (i64 most = MOST; most > 1; most /= 2)
        if (all_fit(&w, most, most_x)) return most;
    return 0;
}
