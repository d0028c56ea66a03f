// SPDX-License-Identifier: Apache-2.0
//
// Matrix products: FULLY_CONNECTED for constant weights, BATCH_MATMUL otherwise. Weights of i8 with
// a scale per column become a CONV_2D of 1x1 instead, because FULLY_CONNECTED has such scales in
// recent versions of TFLite only, and the Edge TPU's compiler knows none of those. Where the left
// operand is a picture made flat, its channels are last in TFLite, and the rows of the weights are
// permuted instead of the picture.
#include "export/export_tflite.h"

struct dense {
    value_id x, w, bias; /* bias 0: none */
    bool is_columns;     /* w is (n, k) instead of (k, n) */
    i64 m, k, n;
};

static void dims(const struct tfl *t, value_id v, i64 d[MAX_RANK]) { tfl_dims(t, v, TFL_ROWS, d); }
static u32 rank_of(const struct tfl *t, value_id v) { return graph_value(&t->g, v)->shape.rank; }

/* The left operand as (m, k); *is_flat: k counts the channels of a picture last. */
static tfl_id left(struct tfl *t, const struct dense *d, bool *is_flat)
{
    const struct tfl_value *v = &t->v[tfl_of(t, d->x)];
    enum tfl_form f = tfl_form_of(t, d->x);
    for (u32 k = 0; k < N_TFL_FORMS; k++) *is_flat |= v->id[k][TFL_FLAT] != 0;
    tfl_id x = tfl_get(t, d->x, f, *is_flat ? TFL_FLAT : TFL_ROWS);
    if (!x || rank_of(t, d->x) == 2) return x;
    return tfl_reshape(t, x, 2, (i64[]){d->m, d->k}, 0);
}

/* (n, k) */
static tfl_id weights(struct tfl *t, const struct dense *d, bool is_flat)
{
    const i64 *flat = t->v[tfl_of(t, d->x)].flat;
    struct tfl_order o = {.n_to = 2, .to = {d->n, d->k}};
    i64 c = is_flat ? flat[0] : 1, hw = d->k / c;
    o.rank = 3;
    if (d->is_columns)
        o.dim[0] = d->n, o.dim[1] = c, o.dim[2] = hw, o.perm[0] = 0, o.perm[1] = 2, o.perm[2] = 1;
    else o.dim[0] = c, o.dim[1] = hw, o.dim[2] = d->n, o.perm[0] = 2, o.perm[1] = 1, o.perm[2] = 0;
    return tfl_weights(t, d->w, &o);
}

/* y as a 1x1 convolution of a picture of m x 1 */
static void pointwise_conv(struct tfl *t, const struct node *n, const struct dense *d,
                           const tfl_id in[3], tfl_id y)
{
    tfl_id x = tfl_reshape(t, in[0], 4, (i64[]){1, d->m, 1, d->k}, 0);
    struct tfl_tensor *w = tfl_at(t, in[1]);
    w->rank = 4;
    w->dim[0] = d->n, w->dim[1] = w->dim[2] = 1, w->dim[3] = d->k;
    tfl_id wide = tfl_like(t, y, "wide", 4, (i64[]){1, d->m, 1, d->n});
    tfl_emit(t, TFL_CONV_2D, wide, 3, (tfl_id[]){x, in[1], in[2]});
    tfl_options(t, "Conv",
                "\"padding\":\"VALID\",\"stride_w\":1,\"stride_h\":1,\"activation\":\"%s\"",
                tfl_activation(n));
    tfl_reshape(t, wide, tfl_at(t, y)->rank, tfl_at(t, y)->dim, y);
}

static bool fully_connected(struct tfl *t, const struct node *n, const struct dense *d)
{
    bool is_flat = false;
    tfl_id in[3] = {left(t, d, &is_flat)};
    if (in[0]) in[1] = weights(t, d, is_flat);
    if (in[1]) in[2] = tfl_bias(t, d->bias, d->n, in[0], in[1]);
    if (!in[2]) return false;
    tfl_id y = tfl_out(t, n, 0, TFL_ROWS);
    if (t->is_q && tfl_at(t, in[1])->q.n > 1) return pointwise_conv(t, n, d, in, y), true;
    u32 rank = tfl_at(t, y)->rank;
    tfl_id flat = rank == 2 ? y : tfl_like(t, y, "rows", 2, (i64[]){d->m, d->n});
    tfl_emit(t, TFL_FULLY_CONNECTED, flat, d->bias || t->is_q ? 3 : 2, in);
    tfl_options(t, "FullyConnected", "\"activation\":\"%s\"", tfl_activation(n));
    if (flat != y) tfl_reshape(t, flat, rank, tfl_at(t, y)->dim, y);
    return true;
}

/* Gemm, as tfl_prepare leaves it: constant weights, alpha and beta 1, a bias per column. */

bool tfl_gemm_can(struct tfl *t, const struct node *n)
{
    return tfl_is_symmetric(t, n->in.v[1], attr_int(n, "transB", 0) ? 0 : 1);
}

bool tfl_gemm(struct tfl *t, const struct node *n)
{
    i64 x[MAX_RANK], y[MAX_RANK];
    struct dense d = {.x = n->in.v[0],
                      .w = n->in.v[1],
                      .bias = op_node_input(n, 2),
                      .is_columns = attr_int(n, "transB", 0)};
    dims(t, d.x, x);
    dims(t, n->out.v[0], y);
    d.m = x[0], d.k = x[1], d.n = y[1];
    return fully_connected(t, n, &d);
}

/* MatMul */

static bool is_dense(const struct tfl *t, const struct node *n)
{
    return tfl_content(t, n->in.v[1]) && rank_of(t, n->in.v[1]) == 2;
}

bool tfl_matmul_can(struct tfl *t, const struct node *n)
{
    if (is_dense(t, n)) return tfl_is_symmetric(t, n->in.v[1], 1);
    return t->v[tfl_of(t, n->in.v[0])].q.n == 1 && t->v[tfl_of(t, n->in.v[1])].q.n == 1;
}

/* Operand k with two axes at least. */
static tfl_id operand(struct tfl *t, const struct node *n, u32 k)
{
    i64 d[MAX_RANK];
    tfl_id x = tfl_in(t, n, k, TFL_ROWS);
    dims(t, n->in.v[k], d);
    if (!x || rank_of(t, n->in.v[k]) != 1) return x;
    return tfl_reshape(t, x, 2, k ? (i64[]){d[0], 1} : (i64[]){1, d[0]}, 0);
}

static bool batch_matmul(struct tfl *t, const struct node *n)
{
    tfl_id a = operand(t, n, 0), b = a ? operand(t, n, 1) : 0;
    if (!b) return false;
    tfl_id y = tfl_out(t, n, 0, TFL_ROWS), to = y;
    u32 rank = tfl_at(t, y)->rank, full = (u32)i64_max(tfl_at(t, a)->rank, tfl_at(t, b)->rank);
    if (full > 5) return tfl_refuse(t, n, "%u axes", full);
    if (rank != full) {
        const struct tfl_tensor out = *tfl_at(t, y);
        i64 d[MAX_RANK];
        u32 from = 0;
        bool has_row = rank_of(t, n->in.v[0]) > 1, has_column = rank_of(t, n->in.v[1]) > 1;
        for (u32 k = 0; k + 2 < full; k++) d[k] = out.dim[from++];
        d[full - 2] = has_row ? out.dim[from++] : 1;
        d[full - 1] = has_column ? out.dim[from] : 1;
        to = tfl_like(t, y, "wide", full, d);
    }
    tfl_emit(t, TFL_BATCH_MATMUL, to, 2, (tfl_id[]){a, b});
    tfl_options(t, "BatchMatMul", "%s", "");
    if (to != y) tfl_reshape(t, to, rank, tfl_at(t, y)->dim, y);
    return true;
}

bool tfl_matmul(struct tfl *t, const struct node *n)
{
    i64 w[MAX_RANK], x[MAX_RANK];
    if (!is_dense(t, n)) return batch_matmul(t, n);
    struct dense d = {.x = n->in.v[0], .w = n->in.v[1]};
    dims(t, d.w, w);
    dims(t, d.x, x);
    d.k = w[0], d.n = w[1];
    d.m = i64_product(rank_of(t, d.x), x) / d.k;
    return fully_connected(t, n, &d);
}
