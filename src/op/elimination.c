// SPDX-License-Identifier: Apache-2.0
//
// Det and com.microsoft::Inverse, of the square matrices in the last two axes: elimination with the largest element of each
// column as its pivot (Golub, Van Loan: Matrix Computations, 3.4), for inverses in Gauss and Jordan's form on (matrix | unit
// matrix). Kernels take one matrix per grid iteration, in scratch memory. A matrix that has no inverse gives infinities or NaN.
#include "op/op.h"

#include <math.h>
#include <string.h>

/* Det, evaluated. */

static bool det_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct shape s = *op_in_shape(g, nd, 0);
    enum dtype t = op_in_dtype(g, nd, 0);
    if (!dtype_is_float(t)) return op_unsupported(e, g, n, "type %s", dtype_name(t));
    if (s.rank < 2 || !op_sizes_agree(g, s.dim[s.rank - 1], s.dim[s.rank - 2]))
        return op_invalid(e, g, n, "the last two axes are no square matrix");
    s.rank -= 2;
    op_set_out(g, n, 0, t, &s);
    return true;
}

/* Of the matrix a of n rows, which is overwritten. */
static double determinant(double *a, i64 n)
{
    double det = 1;
    for (i64 c = 0; c < n; c++) {
        i64 p = c;
        for (i64 r = c + 1; r < n; r++)
            if (fabs(a[r * n + c]) > fabs(a[p * n + c])) p = r;
        for (i64 k = c; k < n && p != c; k++) {
            double x = a[p * n + k];
            a[p * n + k] = a[c * n + k], a[c * n + k] = x;
        }
        double pivot = a[c * n + c];
        det *= p == c ? pivot : -pivot;
        if (pivot == 0) return 0;
        for (i64 r = c + 1; r < n; r++)
            for (i64 k = n; k-- > c;) a[r * n + k] -= a[r * n + c] / pivot * a[c * n + k];
    }
    return det;
}

static bool det_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[0];
    struct tensor *y = v->out[0];
    i64 n = x->dim[x->rank - 1];
    double *a = op_eval_array(v, n * n, sizeof *a, e);
    for (i64 i = 0, count = tensor_count(y); a && i < count; i++) {
        for (i64 k = 0; k < n * n; k++) a[k] = elem_f64(x->dtype, x->data, i * n * n + k);
        elem_set_f64(y->dtype, y->data, i, determinant(a, n));
    }
    return a != NULL;
}

/* Inverse, evaluated. */

static bool inverse_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct shape s = *op_in_shape(g, nd, 0);
    if (!op_check_float(g, n, 0, e)) return false;
    if (s.rank < 2 || !op_sizes_agree(g, s.dim[s.rank - 1], s.dim[s.rank - 2])) return op_invalid(e, g, n, "no square matrices");
    op_set_out(g, n, 0, op_in_dtype(g, nd, 0), &s);
    return true;
}

/* a: (n, 2n) */
static void eliminate(double *a, i64 n)
{
    for (i64 c = 0; c < n; c++) {
        i64 p = c;
        for (i64 r = c + 1; r < n; r++)
            if (fabs(a[r * 2 * n + c]) > fabs(a[p * 2 * n + c])) p = r;
        for (i64 i = 0; i < 2 * n; i++) {
            double x = a[p * 2 * n + i];
            a[p * 2 * n + i] = a[c * 2 * n + i], a[c * 2 * n + i] = x;
        }
        double pivot = a[c * 2 * n + c];
        for (i64 i = 0; i < 2 * n; i++) a[c * 2 * n + i] /= pivot;
        for (i64 r = 0; r < n; r++) {
            double f = a[r * 2 * n + c];
            for (i64 i = 0; r != c && i < 2 * n; i++) a[r * 2 * n + i] -= f * a[c * 2 * n + i];
        }
    }
}

static bool inverse_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[0];
    struct tensor *y = v->out[0];
    i64 n = x->dim[x->rank - 1], count = tensor_count(x);
    double *a = op_eval_array(v, 2 * n * n, sizeof *a, e);
    if (!a) return false;
    for (i64 from = 0; n && from < count; from += n * n) {
        memset(a, 0, (size_t)(2 * n * n) * sizeof *a);
        for (i64 i = 0; i < n * n; i++) a[i / n * 2 * n + i % n] = elem_f64(x->dtype, x->data, from + i);
        for (i64 i = 0; i < n; i++) a[i * 2 * n + n + i] = 1;
        eliminate(a, n);
        for (i64 i = 0; i < n * n; i++) elem_set_f64(y->dtype, y->data, from + i, a[i / n * 2 * n + n + i % n]);
    }
    return true;
}

/* Operands of a kernel. */
struct work {
    struct kir *k;
    enum dtype t;
    kval a, n, wide; /* the matrix, or (matrix | unit matrix); its rows and columns */
};

static kval place(const struct work *w, kval r, kval c) { return kir_add(w->k, kir_bin(w->k, KI_MUL, r, w->wide), c); }
static kval get(const struct work *w, kval r, kval c) { return kir_load(w->k, w->a, place(w, r, c)); }

/* The row at or below c with the largest element in column c. */
static kval emit_pivot(const struct work *w, kval c)
{
    struct kir *k = w->k;
    kval zero = kir_int(k, 0), best = kir_alloc(k, KS_REG, DT_I64, 1, kir_int(k, 1));
    kir_store(k, best, zero, c);
    kval r = kir_loop(k, KL_SERIAL, kir_add_i(k, c, 1), w->n, 1), old = kir_load(k, best, zero);
    kval larger = kir_bin(k, KI_LT, kir_un(k, KI_ABS, get(w, old, c)), kir_un(k, KI_ABS, get(w, r, c)));
    kir_store(k, best, zero, kir_select(k, larger, r, old));
    kir_end(k);
    return kir_load(k, best, zero);
}

static void emit_swap(const struct work *w, kval c, kval p)
{
    struct kir *k = w->k;
    kval i = kir_loop(k, KL_SERIAL, c, w->n, 1), x = get(w, p, i), y = get(w, c, i);
    kir_store(k, w->a, place(w, p, i), y);
    kir_store(k, w->a, place(w, c, i), x);
    kir_end(k);
}

static void emit_clear_below(const struct work *w, kval c, kval pivot)
{
    struct kir *k = w->k;
    kval none = kir_bin(k, KI_EQ, pivot, kir_const_f(k, w->t, 1, 0)), below = kir_add_i(k, c, 1);
    kval by = kir_select(k, none, kir_const_f(k, w->t, 1, 1), pivot);
    kval r = kir_loop(k, KL_SERIAL, below, w->n, 1), f = kir_bin(k, KI_DIV, get(w, r, c), by);
    kval i = kir_loop(k, KL_SERIAL, below, w->n, 1);
    kir_store(k, w->a, place(w, r, i), kir_sub(k, get(w, r, i), kir_bin(k, KI_MUL, f, get(w, c, i))));
    kir_end(k);
    kir_end(k);
}

static kval emit_determinant(struct emit *m, const struct work *w)
{
    struct kir *k = w->k;
    struct emit_acc det;
    emit_acc_open(m, &det, 1, kir_const_f(k, w->t, 1, 1));
    kval c = kir_loop(k, KL_SERIAL, kir_int(k, 0), w->n, 1), p = emit_pivot(w, c);
    emit_swap(w, c, p);
    kval pivot = get(w, c, c), sign = kir_select(k, kir_bin(k, KI_EQ, p, c), pivot, kir_un(k, KI_NEG, pivot));
    emit_acc_set(m, &det, kir_bin(k, KI_MUL, emit_acc_get(m, &det), sign));
    emit_clear_below(w, c, pivot);
    kir_end(k);
    return emit_acc_get(m, &det);
}

static void det_whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    value_id x = n->in.v[0], y = n->out.v[0];
    const struct shape *s = op_in_shape(m->g, n, 0), *o = &graph_value(m->g, y)->shape;
    struct work w = {.k = k, .t = emit_acc_type(m, op_in_dtype(m->g, n, 0))};
    const bool inside[MAX_RANK] = {0};
    kval idx[MAX_RANK] = {0};
    emit_slices(m, o, inside, idx);
    w.n = w.wide = emit_dim(m, x, s->rank - 1);
    w.a = kir_alloc(k, KS_WORK, w.t, 1, emit_size(m, sym_mul(m->g->sym, s->dim[s->rank - 1], s->dim[s->rank - 1])));
    kval r = kir_loop(k, KL_SERIAL, kir_int(k, 0), w.n, 1), c = kir_loop(k, KL_SERIAL, kir_int(k, 0), w.n, 1);
    idx[s->rank - 2] = r, idx[s->rank - 1] = c;
    kir_store(k, w.a, place(&w, r, c), kir_cast(k, w.t, emit_value(m, x, idx)));
    kir_end(k);
    kir_end(k);
    emit_store(m, y, idx, kir_cast(k, emit_type(op_in_dtype(m->g, n, 0)), emit_determinant(m, &w)));
    kir_end(k);
}

static void emit_load_matrix(const struct work *w, struct emit *m, value_id x, kval *idx, u32 rank)
{
    struct kir *k = w->k;
    kval zero = kir_int(k, 0), r = kir_loop(k, KL_SERIAL, zero, w->n, 1), c = kir_loop(k, KL_SERIAL, zero, w->n, 1);
    idx[rank - 2] = r, idx[rank - 1] = c;
    kir_store(k, w->a, place(w, r, c), kir_cast(k, w->t, emit_value(m, x, idx)));
    kval unit = kir_select(k, kir_bin(k, KI_EQ, r, c), kir_const_f(k, w->t, 1, 1), kir_const_f(k, w->t, 1, 0));
    kir_store(k, w->a, place(w, r, kir_add(k, c, w->n)), unit);
    kir_end(k);
    kir_end(k);
}

/* Rows p and c change places, the one that is c then is divided by its pivot. */
static void emit_pivot_row(const struct work *w, kval c, kval p)
{
    struct kir *k = w->k;
    kval zero = kir_int(k, 0), pivot = kir_alloc(k, KS_REG, w->t, 1, kir_int(k, 1));
    kir_store(k, pivot, zero, get(w, p, c));
    kval i = kir_loop(k, KL_SERIAL, zero, w->wide, 1), x = get(w, p, i), y = get(w, c, i);
    kir_store(k, w->a, place(w, p, i), y);
    kir_store(k, w->a, place(w, c, i), kir_bin(k, KI_DIV, x, kir_load(k, pivot, zero)));
    kir_end(k);
}

static void emit_clear_others(const struct work *w, kval c)
{
    struct kir *k = w->k;
    kval zero = kir_int(k, 0), f = kir_alloc(k, KS_REG, w->t, 1, kir_int(k, 1));
    kval r = kir_loop(k, KL_SERIAL, zero, w->n, 1), own = kir_bin(k, KI_EQ, r, c);
    kir_store(k, f, zero, kir_select(k, own, kir_const_f(k, w->t, 1, 0), get(w, r, c)));
    kval i = kir_loop(k, KL_SERIAL, zero, w->wide, 1);
    kval less = kir_bin(k, KI_MUL, kir_load(k, f, zero), get(w, c, i));
    kir_store(k, w->a, place(w, r, i), kir_sub(k, get(w, r, i), less));
    kir_end(k);
    kir_end(k);
}

static void inverse_whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    const struct shape *s = op_in_shape(m->g, n, 0);
    struct symtab *st = m->g->sym;
    struct work w = {.k = k, .t = emit_acc_type(m, op_in_dtype(m->g, n, 0))};
    bool inside[MAX_RANK] = {0};
    kval idx[MAX_RANK] = {0}, zero = kir_int(k, 0);
    inside[s->rank - 1] = inside[s->rank - 2] = true;
    emit_slices(m, s, inside, idx);
    sym size = s->dim[s->rank - 1], two = sym_const(st, 2);
    w.n = emit_size(m, size), w.wide = emit_size(m, sym_mul(st, two, size));
    w.a = kir_alloc(k, KS_WORK, w.t, 1, emit_size(m, sym_mul(st, two, sym_mul(st, size, size))));
    emit_load_matrix(&w, m, n->in.v[0], idx, s->rank);
    kval c = kir_loop(k, KL_SERIAL, zero, w.n, 1);
    emit_pivot_row(&w, c, emit_pivot(&w, c));
    emit_clear_others(&w, c);
    kir_end(k);
    kval r = kir_loop(k, KL_SERIAL, zero, w.n, 1), i = kir_loop(k, KL_SERIAL, zero, w.n, 1);
    idx[s->rank - 2] = r, idx[s->rank - 1] = i;
    emit_store(m, n->out.v[0], idx, kir_cast(k, emit_type(op_in_dtype(m->g, n, 0)), get(&w, r, kir_add(k, i, w.n))));
    kir_end(k);
    kir_end(k);
    kir_end(k);
}

static double elimination_flops(const struct graph *g, const struct node *n, const i64 *var, double per)
{
    i64 dim[MAX_RANK];
    const struct shape *s = op_in_shape(g, n, 0);
    if (!shape_eval(g->sym, s, var, dim)) return 0;
    for (u32 i = 0; i < s->rank; i++) per *= (double)dim[i];
    return per * (double)dim[s->rank - 1];
}

static double det_flops(const struct graph *g, const struct node *n, const i64 *var) { return elimination_flops(g, n, var, 2.0 / 3); }
static double inverse_flops(const struct graph *g, const struct node *n, const i64 *var) { return elimination_flops(g, n, var, 4); }

static void random_det(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 2, 4);
    i64 dim[4];
    value_id x;
    for (u32 i = 0; i < rank; i++) dim[i] = rng_range(r, 1, 4);
    dim[rank - 1] = dim[rank - 2];
    random_input(g, "x", DT_F32, rank, dim, &x);
    random_node(g, self, 1, &x, 1);
}

/* Large diagonals, so that arithmetic in another order gives the same. */
static void random_inverse(const struct op *self, struct graph *g, struct rng *r)
{
    i64 b = rng_range(r, 1, 3), n = rng_range(r, 1, 4), dim[] = {b, n, n};
    struct tensor *t = tensor_new(g->arena, DT_F32, 3, dim);
    for (i64 i = 0; i < tensor_count(t); i++)
        elem_set_f64(DT_F32, t->data, i, rng_f64(r) - 0.5 + (i / n % n == (i + 1) % n % n ? 3 : 0));
    value_id x = graph_add_const(g, S("x"), t);
    random_node(g, self, 1, &x, 1);
}

#define SQUARE(op, kind)                                                                                                  \
    {.name = op, .props = OP_HEAVY | OP_WHOLE, .min_in = 1, .max_in = 1, .min_out = 1, .max_out = 1, .infer = kind##_infer, \
     .eval = kind##_eval, .whole = kind##_whole, .flops = kind##_flops, .random = random_##kind}

static const struct op ops[] = {SQUARE("Det", det), SQUARE("com.microsoft::Inverse", inverse)};

const struct op_family op_elimination = {ops, countof(ops)};
