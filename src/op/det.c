// SPDX-License-Identifier: Apache-2.0
//
// Det: determinants of the matrices of the last two axes, by elimination with a pivot from each
// column. Kernels take one matrix per grid iteration, in scratch memory.
#include "op/op.h"

#include <math.h>

static bool infer(struct graph *g, node_id n, struct err *e)
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

static bool eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[0];
    struct tensor *y = v->out[0];
    i64 n = x->dim[x->rank - 1];
    double *a = arena_array(v->scratch, double, n * n + 1);
    for (i64 i = 0, count = tensor_count(y); i < count; i++) {
        for (i64 k = 0; k < n * n; k++) a[k] = elem_f64(x->dtype, x->data, i * n * n + k);
        elem_set_f64(y->dtype, y->data, i, determinant(a, n));
    }
    return true;
}

struct work {
    struct emit *m;
    struct kir *k;
    enum dtype t;
    kval a, n; /* the matrix, its rows */
};

static kval place(const struct work *w, kval r, kval c) { return kir_add(w->k, kir_bin(w->k, KI_MUL, r, w->n), c); }
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

static void emit_eliminate(const struct work *w, kval c, kval pivot)
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

static kval emit_determinant(const struct work *w)
{
    struct kir *k = w->k;
    struct op_acc det;
    op_acc_open(w->m, &det, 1, kir_const_f(k, w->t, 1, 1));
    kval c = kir_loop(k, KL_SERIAL, kir_int(k, 0), w->n, 1), p = emit_pivot(w, c);
    emit_swap(w, c, p);
    kval pivot = get(w, c, c), sign = kir_select(k, kir_bin(k, KI_EQ, p, c), pivot, kir_un(k, KI_NEG, pivot));
    op_acc_set(w->m, &det, kir_bin(k, KI_MUL, op_acc_get(w->m, &det), sign));
    emit_eliminate(w, c, pivot);
    kir_end(k);
    return op_acc_get(w->m, &det);
}

static void whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    value_id x = n->in.v[0], y = n->out.v[0];
    const struct shape *s = op_in_shape(m->g, n, 0), *o = &graph_value(m->g, y)->shape;
    struct work w = {.m = m, .k = k, .t = op_acc_type(m, op_in_dtype(m->g, n, 0))};
    const bool inside[MAX_RANK] = {0};
    kval idx[MAX_RANK] = {0};
    emit_slices(m, o, inside, idx);
    w.n = emit_dim(m, x, s->rank - 1);
    w.a = kir_alloc(k, KS_WORK, w.t, 1, emit_size(m, sym_mul(m->g->sym, s->dim[s->rank - 1], s->dim[s->rank - 1])));
    kval r = kir_loop(k, KL_SERIAL, kir_int(k, 0), w.n, 1), c = kir_loop(k, KL_SERIAL, kir_int(k, 0), w.n, 1);
    idx[s->rank - 2] = r, idx[s->rank - 1] = c;
    kir_store(k, w.a, place(&w, r, c), kir_cast(k, w.t, emit_value(m, x, idx)));
    kir_end(k);
    kir_end(k);
    emit_store(m, y, idx, kir_cast(k, emit_type(op_in_dtype(m->g, n, 0)), emit_determinant(&w)));
    kir_end(k);
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 dim[MAX_RANK];
    double count = 2.0 / 3;
    const struct shape *s = op_in_shape(g, n, 0);
    if (!shape_eval(g->sym, s, var, dim)) return 0;
    for (u32 i = 0; i < s->rank; i++) count *= (double)dim[i];
    return count * (double)dim[s->rank - 1];
}

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

static const struct op ops[] = {
    {.name = "Det",
     .props = OP_HEAVY | OP_WHOLE,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .whole = whole,
     .flops = flops,
     .random = random_det},
};

const struct op_family op_det = {ops, countof(ops)};
