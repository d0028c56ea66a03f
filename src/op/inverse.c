// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft::Inverse: the inverses of the square matrices in the last two axes, by Gauss-Jordan elimination with the
// largest element of a column as its pivot, of (matrix | unit matrix) in memory of the kernel's own. A matrix that has no
// inverse gives infinities or NaN.
#include "op/op.h"

#include <math.h>
#include <string.h>

static bool infer(struct graph *g, node_id n, struct err *e)
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

static bool eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[0];
    struct tensor *y = v->out[0];
    i64 n = x->dim[x->rank - 1], count = tensor_count(x);
    double *a = arena_array(v->scratch, double, 2 * n * n + 1);
    for (i64 from = 0; n && from < count; from += n * n) {
        memset(a, 0, (size_t)(2 * n * n) * sizeof *a);
        for (i64 i = 0; i < n * n; i++) a[i / n * 2 * n + i % n] = elem_f64(x->dtype, x->data, from + i);
        for (i64 i = 0; i < n; i++) a[i * 2 * n + n + i] = 1;
        eliminate(a, n);
        for (i64 i = 0; i < n * n; i++) elem_set_f64(y->dtype, y->data, from + i, a[i / n * 2 * n + n + i % n]);
    }
    return true;
}

struct work {
    struct kir *k;
    enum dtype t;
    kval a, n, wide; /* (matrix | unit matrix), its rows and columns */
};

static kval place(const struct work *w, kval r, kval c) { return kir_add(w->k, kir_bin(w->k, KI_MUL, r, w->wide), c); }
static kval get(const struct work *w, kval r, kval c) { return kir_load(w->k, w->a, place(w, r, c)); }

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

static void emit_eliminate(const struct work *w, kval c)
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

static void whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    const struct shape *s = op_in_shape(m->g, n, 0);
    struct symtab *st = m->g->sym;
    struct work w = {.k = k, .t = op_acc_type(m, op_in_dtype(m->g, n, 0))};
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
    emit_eliminate(&w, c);
    kir_end(k);
    kval r = kir_loop(k, KL_SERIAL, zero, w.n, 1), i = kir_loop(k, KL_SERIAL, zero, w.n, 1);
    idx[s->rank - 2] = r, idx[s->rank - 1] = i;
    emit_store(m, n->out.v[0], idx, kir_cast(k, emit_type(op_in_dtype(m->g, n, 0)), get(&w, r, kir_add(k, i, w.n))));
    kir_end(k);
    kir_end(k);
    kir_end(k);
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 dim[MAX_RANK];
    double count = 4;
    const struct shape *s = op_in_shape(g, n, 0);
    if (!shape_eval(g->sym, s, var, dim)) return 0;
    for (u32 i = 0; i < s->rank; i++) count *= (double)dim[i];
    return count * (double)dim[s->rank - 1];
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

static const struct op ops[] = {
    {.name = "com.microsoft::Inverse",
     .props = OP_HEAVY | OP_WHOLE,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .whole = whole,
     .flops = flops,
     .random = random_inverse},
};

const struct op_family op_inverse = {ops, countof(ops)};
