// SPDX-License-Identifier: Apache-2.0
//
// MatMul (NumPy semantics: batches broadcast, 1-d operands are a row or a column) is a primitive
// with property OP_MATMUL; Gemm is Transpose, MatMul, Mul and Add. Operands of 8 bits, which may differ in their
// signs, give i32: the product of the quantised operators without zero points.
//
// Attribute tf32 (quern's own, 1: operands of f32 may be rounded to tf32 wherever that is faster; sums are f32) allows, it does not ask
// for anything: the reference is the exact product, and its tolerance that of such operands.
//
// So does attribute digits (quern's own, 1 or 2), of products with codes of few bits (codes.c): a left operand may be rounded to integers of so many digits
// of 7 bits and a sign or more, times a scale for every row and block of terms, as MatMulNBits with accuracy_level 4 allows.
//
// Dims: b.. batch, i rows of the result, j columns, k summed. Integers are summed with wrapping
// 64-bit arithmetic.
#include "op/op.h"

#include <math.h>

static bool types_fit(const struct graph *g, node_id n, struct err *e)
{
    if (op_in_dtype(g, graph_node(g, n), 0) == DT_BOOL) return op_invalid(e, g, n, "type bool");
    return op_types_fit_weights(g, n, e);
}

i64 op_digits(const struct node *n) { return attr_int(n, "digits", 0); }

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct shape out;
    enum dtype a = op_in_dtype(g, graph_node(g, n), 0), b = op_in_dtype(g, graph_node(g, n), 1);
    bool are_bytes = op_sum_type(a) != a && op_sum_type(b) != b;
    if (attr_int(graph_node(g, n), "tf32", 0) && a != DT_F32) return op_invalid(e, g, n, "attribute 'tf32' with operands of %s", dtype_name(a));
    if (op_digits(graph_node(g, n)) < 0 || op_digits(graph_node(g, n)) > 2 || (op_digits(graph_node(g, n)) && !dtype_is_float(a)))
        return op_invalid(e, g, n, "attribute 'digits' = %lld with operands of %s", (long long)op_digits(graph_node(g, n)), dtype_name(a));
    if ((!are_bytes && !types_fit(g, n, e)) || !op_acc16_fits(g, n, e) || !op_matmul_shape(g, n, 0, 1, &out, e)) return false;
    op_set_out(g, n, 0, op_sum_type(a), &out);
    return true;
}

/* Evaluation. */

struct matmul {
    const struct tensor *a, *b, *y;
    i64 ni, nj, nk;
    i64 sj, sk; /* steps in b along j and k */
    u32 batch;  /* batch axes of y */
};

static void matmul_open(const struct op_eval *v, struct matmul *mm)
{
    const struct tensor *a = v->in[0], *b = v->in[1];
    *mm = (struct matmul){.a = a, .b = b, .y = v->out[0]};
    mm->ni = a->rank > 1 ? a->dim[a->rank - 2] : 1;
    mm->nj = b->rank > 1 ? b->dim[b->rank - 1] : 1;
    mm->nk = a->dim[a->rank - 1];
    mm->sj = 1, mm->sk = mm->nj;
    mm->batch = mm->y->rank - (a->rank > 1) - (b->rank > 1);
}

/* Flat position of batch `at` of y in operand t. */
static i64 batch_offset(const struct matmul *mm, const struct tensor *t, i64 at)
{
    i64 off = 0, scale = 1;
    u32 own = t->rank > 2 ? t->rank - 2 : 0;
    for (u32 i = t->rank > 2 ? t->rank - 2 : t->rank; i < t->rank; i++) scale *= t->dim[i];
    for (u32 i = 0; i < own; i++) {
        i64 size = mm->y->dim[mm->batch - 1 - i], d = t->dim[own - 1 - i];
        if (d != 1) off += at % size * scale;
        scale *= d;
        at /= size;
    }
    return off;
}

static void dot(const struct matmul *mm, i64 y, i64 a, i64 b)
{
    enum dtype t = mm->a->dtype, tb = mm->b->dtype;
    double sum = 0;
    u64 isum = 0;
    for (i64 k = 0; k < mm->nk; k++) {
        if (dtype_is_float(t))
            sum += elem_f64(t, mm->a->data, a + k) * elem_f64(tb, mm->b->data, b + k * mm->sk);
        else
            isum += (u64)elem_i64(t, mm->a->data, a + k) *
                    (u64)elem_i64(tb, mm->b->data, b + k * mm->sk);
    }
    if (dtype_is_float(t)) elem_set_f64(t, mm->y->data, y, sum);
    else elem_set_i64(mm->y->dtype, mm->y->data, y, (i64)isum);
}

static void eval_points(const struct matmul *mm, const i64 *points, i64 n)
{
    for (i64 p = 0; p < n; p++) {
        i64 j = points[p] % mm->nj, i = points[p] / mm->nj % mm->ni,
            b = points[p] / mm->nj / mm->ni;
        dot(mm, points[p], batch_offset(mm, mm->a, b) + i * mm->nk, batch_offset(mm, mm->b, b) + j);
    }
}

static void eval_row(const struct matmul *mm, double *acc, i64 y, i64 a, i64 b)
{
    enum dtype t = mm->a->dtype;
    for (i64 j = 0; j < mm->nj; j++) acc[j] = 0;
    for (i64 k = 0; k < mm->nk; k++) {
        struct op_row row = {acc, 1, mm->b, b + k * mm->sk, 1, mm->nj};
        op_row_add(&row, elem_f64(t, mm->a->data, a + k));
    }
    for (i64 j = 0; j < mm->nj; j++) elem_set_f64(t, mm->y->data, y + j, acc[j]);
}

static bool eval(const struct op_eval *v, struct err *e)
{
    struct matmul mm;
    matmul_open(v, &mm);
    if (v->n_points) return eval_points(&mm, v->points, v->n_points), true;
    double *acc = op_eval_array(v, mm.nj, sizeof *acc, e);
    if (!acc) return false;
    i64 total = tensor_count(mm.y);
    bool is_float = dtype_is_float(mm.a->dtype);
    for (i64 y = 0; y < total; y += mm.nj) {
        i64 row = y / mm.nj, batch = row / mm.ni;
        i64 a = batch_offset(&mm, mm.a, batch) + row % mm.ni * mm.nk,
            b = batch_offset(&mm, mm.b, batch);
        if (is_float) eval_row(&mm, acc, y, a, b);
        for (i64 j = 0; !is_float && j < mm.nj; j++) dot(&mm, y + j, a, b + j);
    }
    return true;
}

/* Lowering. */

/* The index of operand v: batch axes of idx (batch of them) broadcast, then row and column (0: the
 * operand is 1-d). */
static kval operand(struct emit *m, value_id v, u32 batch, const kval *idx, const kval rc[2])
{
    const struct shape *s = &graph_value(m->g, v)->shape;
    kval at[MAX_RANK] = {0};
    u32 own = s->rank > 2 ? s->rank - 2 : 0, last = s->rank - 1;
    i64 c;
    for (u32 i = 0; i < own; i++) {
        bool one = sym_is_const(m->g->sym, s->dim[i], &c) && c == 1;
        at[i] = one ? kir_int(m->k, 0) : idx[batch - own + i];
    }
    if (s->rank > 1) at[last - 1] = rc[0], at[last] = rc[1];
    else at[0] = rc[0] ? rc[0] : rc[1];
    return emit_value(m, v, at);
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    const struct shape *a = op_in_shape(m->g, n, 0), *b = op_in_shape(m->g, n, 1);
    u32 rank = graph_value(m->g, n->out.v[0])->shape.rank, ra = a->rank > 1, rb = b->rank > 1,
        batch = rank - ra - rb;
    enum dtype t = op_sum_type(op_in_dtype(m->g, n, 0)), type = emit_acc_type(m, t);
    struct emit_acc acc;
    emit_acc_open(m, &acc, emit_lanes(m, rank, idx), kir_cast(k, type, emit_neutral(m, KI_ADD, t)));
    kval i = ra ? idx[batch] : 0, j = rb ? idx[rank - 1] : 0;
    kval s = kir_loop(k, KL_SERIAL, kir_int(k, 0), emit_size(m, a->dim[a->rank - 1]), 1);
    kval x = operand(m, n->in.v[0], batch, idx, (kval[]){i, s});
    kval y = operand(m, n->in.v[1], batch, idx, (kval[]){s, j});
    emit_acc_fma(m, &acc, kir_cast(k, type, x), kir_cast(k, type, y));
    kir_end(k);
    return kir_cast(k, emit_type(t), emit_acc_get(m, &acc));
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 y[MAX_RANK], k;
    const struct shape *ys = &graph_value(g, n->out.v[0])->shape, *a = op_in_shape(g, n, 0);
    if (!shape_eval(g->sym, ys, var, y) || !sym_eval(g->sym, a->dim[a->rank - 1], var, &k))
        return 0;
    double f = 2.0 * (double)k;
    for (u32 i = 0; i < ys->rank; i++) f *= (double)y[i];
    return f;
}

static void random_matmul(const struct op *self, struct graph *g, struct rng *r)
{
    i64 a[MAX_RANK], b[MAX_RANK], k = rng_range(r, 0, 15) ? rng_range(r, 1, 9) : 0;
    u32 ra = (u32)rng_range(r, 1, 4), rb = (u32)rng_range(r, 1, 4);
    static const enum dtype ints[] = {DT_I32, DT_I8, DT_U8};
    enum dtype t = rng_range(r, 0, 4) ? random_float_type(r) : ints[rng_range(r, 0, 2)];
    for (u32 i = 0; i < 4; i++) {
        i64 d = rng_range(r, 1, 3),
            one = rng_range(r, 0, 3); /* counted from the last axis: batches broadcast */
        if (i < ra) a[ra - 1 - i] = i < 2 ? rng_range(r, 1, 9) : one == 0 ? 1 : d;
        if (i < rb) b[rb - 1 - i] = i < 2 ? rng_range(r, 1, 9) : one == 1 ? 1 : d;
    }
    a[ra - 1] = b[rb > 1 ? rb - 2 : 0] = k;
    value_id in[2];
    random_input(g, "a", t, ra, a, &in[0]);
    random_input(g, "b", t == DT_U8 ? DT_I8 : t, rb, b, &in[1]);
    random_node(g, self, 2, in, 1);
}

/* Gemm. */

/* Rows and columns of operand `k` after its transposition. */
static bool gemm_operand(const struct graph *g, node_id n, u32 k, sym rc[2], struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *s = op_in_shape(g, nd, k);
    if (s->rank != 2) return op_invalid(e, g, n, "input %u of rank %u", k, s->rank);
    u32 t = attr_int(nd, k ? "transB" : "transA", 0) != 0;
    rc[0] = s->dim[t], rc[1] = s->dim[!t];
    return true;
}

static bool gemm_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    enum dtype t = op_in_dtype(g, nd, 0);
    sym a[2], b[2];
    if (op_sum_type(t) != t) return op_unsupported(e, g, n, "type %s", dtype_name(t));
    if (!types_fit(g, n, e) || !gemm_operand(g, n, 0, a, e) || !gemm_operand(g, n, 1, b, e))
        return false;
    if (!op_sizes_agree(g, a[1], b[0])) 
        return op_invalid(e, g, n, "inner sizes %.*s and %.*s differ", STR_ARG(op_size_text(g, a[1])),
                          STR_ARG(op_size_text(g, b[0])));
    struct shape out = {.known = true, .rank = 2, .dim = {a[0], b[1]}};
    if (op_has_in(nd, 2)) {
        const struct shape *c = op_in_shape(g, nd, 2);
        if (c->rank > 2 || !op_broadcast_to(g, c, &out))
            return op_invalid(e, g, n, "C of shape %.*s does not broadcast to the result, %.*s",
                              STR_ARG(op_shape_text(g, c)), STR_ARG(op_shape_text(g, &out)));
    }
    double alpha = attr_float(nd, "alpha", 1), beta = attr_float(nd, "beta", 1);
    if (!dtype_is_float(t) && (alpha != floor(alpha) || beta != floor(beta)))
        return op_unsupported(e, g, n, "fractional alpha or beta for type %s", dtype_name(t));
    op_set_out(g, n, 0, t, &out);
    return true;
}

static value_id scaled(struct graph *g, node_id n, value_id v, double factor, value_id out)
{
    enum dtype t = op_in_dtype(g, graph_node(g, n), 0);
    return factor == 1 ? v
                       : op_node(g, n, "Mul", 2, (value_id[]){v, op_const_f(g, t, factor)}, out);
}

static value_id transposed(struct graph *g, node_id n, value_id v)
{
    value_id t = op_node(g, n, "Transpose", 1, &v, 0);
    attr_set_ints(g, graph_value(g, t)->producer, "perm", (i64[]){1, 0}, 2);
    return t;
}

static bool gemm_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    value_id a = nd.in.v[0], b = nd.in.v[1], c = nd.in.n > 2 ? nd.in.v[2] : 0, out = nd.out.v[0];
    double alpha = attr_float(&nd, "alpha", 1), beta = attr_float(&nd, "beta", 1);
    if (beta == 0) c = 0;
    if (attr_int(&nd, "transA", 0)) a = transposed(g, n, a);
    if (attr_int(&nd, "transB", 0)) b = transposed(g, n, b);
    value_id y = op_node(g, n, "MatMul", 2, (value_id[]){a, b}, c || alpha != 1 ? 0 : out);
    y = scaled(g, n, y, alpha, c ? 0 : out);
    if (c) op_node(g, n, "Add", 2, (value_id[]){y, scaled(g, n, c, beta, 0)}, out);
    return true;
}

static void random_gemm(const struct op *self, struct graph *g, struct rng *r)
{
    i64 i = rng_range(r, 1, 9), j = rng_range(r, 1, 9), k = rng_range(r, 1, 9),
        ta = rng_range(r, 0, 1), tb = rng_range(r, 0, 1);
    i64 c[2] = {rng_range(r, 0, 1) ? i : 1, rng_range(r, 0, 1) ? j : 1};
    u32 rank = (u32)rng_range(r, 0, 3);
    enum dtype type = random_float_type(r);
    value_id in[3] = {0};
    random_input(g, "a", type, 2, (i64[]){ta ? k : i, ta ? i : k}, &in[0]);
    random_input(g, "b", type, 2, (i64[]){tb ? j : k, tb ? k : j}, &in[1]);
    if (rank < 3) random_input(g, "c", type, rank, c + 2 - rank, &in[2]);
    random_node(g, self, rank < 3 ? 3 : 2, in, 1);
    node_id n = g->node.n - 1;
    attr_set_int(g, n, "transA", ta);
    attr_set_int(g, n, "transB", tb);
    if (rng_range(r, 0, 1)) attr_set_float(g, n, "alpha", 0.5);
    if (rng_range(r, 0, 1)) attr_set_float(g, n, "beta", (double)rng_range(r, -1, 1));
}

static const struct op ops[] = {
    {.name = "MatMul",
     .props = OP_MATMUL | OP_HEAVY | OP_ONE_TYPE,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .flops = flops,
     .random = random_matmul},
    {.name = "Gemm",
     .props = OP_ONE_TYPE,
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = gemm_infer,
     .expand = gemm_expand,
     .random = random_gemm},
};

const struct op_family op_matmul = {ops, countof(ops)};
