// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft: weights of 2, 4 or 8 bits with a scale for every block of elements, packed in bytes, low bits first.
//
//   MatMulNBits           a x w^T [+ bias], w (n, k) = (q - zero) * scale; q (n, blocks, bytes of a block)
//   MatMulBnb4            a x w^T, w (n, k) = table[q] * absmax, of FP4 or NF4, high bits first
//   GatherBlockQuantized  rows of a quantised table
//
// Composites of quern::Unpack, which expands the fields of bytes along the last axis, and of operators that apply the
// scales; constant weights of a product fold when the network is compiled.
#include "op/op.h"

/* quern::Unpack: bytes x (.., m) to fields of `bits` bits, u8 (.., size). Attribute high: the first field is the highest. */

struct fields {
    i64 bits, per; /* fields of a byte */
    bool high;
    sym size;
};

static bool read_fields(const struct graph *g, const struct node *nd, struct fields *f)
{
    f->bits = attr_int(nd, "bits", 0), f->high = attr_int(nd, "high", 0) != 0;
    if (f->bits != 1 && f->bits != 2 && f->bits != 4 && f->bits != 8) return false;
    f->per = 8 / f->bits;
    return op_get_syms(g, nd, "size", &f->size, 1) == 1;
}

static bool unpack_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct fields f;
    struct shape s = *op_in_shape(g, nd, 0);
    i64 size, bytes;
    if (!read_fields(g, nd, &f)) return op_invalid(e, g, n, "bad attributes");
    if (op_in_dtype(g, nd, 0) != DT_U8) return op_invalid(e, g, n, "type %s", dtype_name(op_in_dtype(g, nd, 0)));
    if (!s.rank) return op_invalid(e, g, n, "input of rank 0");
    if (sym_is_const(g->sym, f.size, &size) && sym_is_const(g->sym, s.dim[s.rank - 1], &bytes) &&
        (size < 0 || size > bytes * f.per))
        return op_invalid(e, g, n, "%lld elements of %lld bits in %lld bytes", (long long)size, (long long)f.bits,
                          (long long)bytes);
    s.dim[s.rank - 1] = f.size;
    op_set_out(g, n, 0, DT_U8, &s);
    return true;
}

static bool unpack_eval(const struct op_eval *v, struct err *e)
{
    struct tensor *out = v->out[0];
    const u8 *from = v->in[0]->data;
    u8 *to = out->data;
    i64 bytes = v->in[0]->dim[out->rank - 1], size = out->dim[out->rank - 1], bits = attr_int(v->n, "bits", 8), per = 8 / bits;
    bool high = attr_int(v->n, "high", 0);
    for (i64 i = 0; i < tensor_count(out); i++) {
        i64 row = i / size, at = i % size, k = at % per;
        if (at / per >= bytes) return err_set(e, ERR_INPUT, "fewer bytes than elements"); /* symbolic sizes */
        to[i] = (u8)(from[row * bytes + at / per] >> (bits * (high ? per - 1 - k : k)) & ((1 << bits) - 1));
    }
    return true;
}

static kval unpack_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    u32 last = op_in_shape(m->g, n, 0)->rank - 1;
    i64 bits = attr_int(n, "bits", 8), per = 8 / bits;
    kval at[MAX_RANK], by = kir_bin(k, KI_MOD, idx[last], kir_int(k, per));
    for (u32 i = 0; i <= last; i++) at[i] = idx[i];
    at[last] = emit_clamp(m, kir_bin(k, KI_DIV, idx[last], kir_int(k, per)), op_in_shape(m->g, n, 0)->dim[last]);
    kval x = kir_cast(k, DT_I32, emit_value(m, n->in.v[0], at));
    if (attr_int(n, "high", 0)) by = kir_bin(k, KI_SUB, kir_int(k, per - 1), by);
    by = kir_cast(k, DT_I32, kir_bin(k, KI_MUL, by, kir_int(k, bits)));
    x = kir_bin(k, KI_SHR, x, by);
    return kir_cast(k, DT_U8, kir_bin(k, KI_AND, x, kir_const_i(k, DT_I32, 1, (1 << bits) - 1)));
}

static void random_unpack(const struct op *self, struct graph *g, struct rng *r)
{
    i64 bits = (i64)1 << rng_range(r, 0, 3), per = 8 / bits, dim[] = {rng_range(r, 1, 3), rng_range(r, 1, 4)};
    value_id x = random_const(g, DT_U8, 2, dim, 0, 255, r);
    node_id n = random_node(g, self, 1, &x, 1);
    sym size = sym_const(g->sym, dim[1] * per - rng_range(r, 0, per - 1));
    attr_set_int(g, n, "bits", bits);
    attr_set_int(g, n, "high", rng_range(r, 0, 1));
    op_set_syms(g, n, "size", &size, 1);
}

static value_id unpack(struct graph *g, node_id n, value_id v, i64 bits, bool high, sym size)
{
    value_id y = op_node1(g, n, "quern::Unpack", v, 0);
    attr_set_int(g, op_made(g, y), "bits", bits);
    attr_set_int(g, op_made(g, y), "high", high);
    op_set_syms(g, op_made(g, y), "size", &size, 1);
    return y;
}

/* MatMulNBits: a, q, scales [, zero points [, group of each k [, bias]]] */

enum { NB_A, NB_Q, NB_SCALE, NB_ZERO, NB_GROUP, NB_BIAS };

struct nbits {
    i64 n, k, bits, block, blocks;
    sym sn, sk, sblocks;
    enum dtype t;
};

static void read_nbits(const struct graph *g, node_id id, struct nbits *b)
{
    const struct node *nd = graph_node(g, id);
    *b = (struct nbits){.n = attr_int(nd, "N", 0), .k = attr_int(nd, "K", 0), .bits = attr_int(nd, "bits", 4),
                        .block = attr_int(nd, "block_size", 0), .t = op_in_dtype(g, nd, NB_A)};
    if (b->block > 0) b->blocks = (b->k + b->block - 1) / b->block;
    b->sn = sym_const(g->sym, b->n), b->sk = sym_const(g->sym, b->k), b->sblocks = sym_const(g->sym, b->blocks);
}

static bool holds(const struct graph *g, const struct node *nd, u32 k, i64 count)
{
    i64 c;
    return !op_has_in(nd, k) || !sym_is_const(g->sym, shape_count(g->sym, op_in_shape(g, nd, k)), &c) || c == count;
}

static bool nbits_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct nbits b;
    read_nbits(g, n, &b);
    if (attr_int(nd, "weight_prepacked", 0))
        return op_unsupported(e, g, n, "attribute 'weight_prepacked' = %lld: export the model with weights as ONNX Runtime "
                              "documents them, not packed for a device", (long long)attr_int(nd, "weight_prepacked", 0));
    if (b.bits != 2 && b.bits != 4 && b.bits != 8) return op_unsupported(e, g, n, "attribute 'bits' = %lld", (long long)b.bits);
    if (b.n < 1 || b.k < 1 || b.n > INT32_MAX || b.k > INT32_MAX || b.block < 16 || b.block > 1 << 24 || b.block & (b.block - 1))
        return op_invalid(e, g, n, "attributes N = %lld, K = %lld, block_size = %lld", (long long)b.n, (long long)b.k,
                          (long long)b.block);
    if (op_in_dtype(g, nd, NB_Q) != DT_U8) return op_unsupported(e, g, n, "weights of type %s", dtype_name(op_in_dtype(g, nd, NB_Q)));
    if (!op_check_float(g, n, NB_A, e) || !op_check_float(g, n, NB_SCALE, e) || !op_check_rank(g, n, NB_A, 1, MAX_RANK, e))
        return false;
    i64 zeros = op_has_in(nd, NB_ZERO) && op_in_dtype(g, nd, NB_ZERO) == DT_U8 ? (b.blocks * b.bits + 7) / 8 : b.blocks;
    if (!holds(g, nd, NB_Q, b.n * b.blocks * (b.block * b.bits / 8)))
        return op_unsupported(e, g, n, "weights that do not hold N x K elements of %lld bits", (long long)b.bits);
    if (!holds(g, nd, NB_SCALE, b.n * b.blocks) || !holds(g, nd, NB_ZERO, b.n * zeros) || !holds(g, nd, NB_GROUP, b.k) ||
        !holds(g, nd, NB_BIAS, b.n))
        return op_invalid(e, g, n, "scales, zero points, groups or bias do not fit N = %lld and %lld blocks", (long long)b.n,
                          (long long)b.blocks);
    return op_infer_expanded(g, n, e);
}

/* Per block (n, blocks) -> per element of w, (n, blocks, 1), or (n, k) by the groups. */
static value_id spread(struct graph *g, node_id n, value_id v, const struct nbits *b)
{
    const struct node nd = *graph_node(g, n);
    value_id group = op_node_input(&nd, NB_GROUP);
    sym dim[] = {b->sn, b->sblocks, sym_const(g->sym, 1)};
    if (group) return op_node_gather(g, n, op_node_reshape(g, n, v, 2, dim, 0), group, 1, 0);
    return op_node_reshape(g, n, v, 3, dim, 0);
}

static value_id zero_points(struct graph *g, node_id n, const struct nbits *b)
{
    const struct node nd = *graph_node(g, n);
    value_id z = op_node_input(&nd, NB_ZERO);
    if (!z) return op_const_f(g, b->t, (double)(1 << (b->bits - 1)));
    if (op_in_dtype(g, &nd, NB_ZERO) != DT_U8) return spread(g, n, op_as(g, n, z, b->t), b);
    sym dim[] = {b->sn, sym_const(g->sym, (b->blocks * b->bits + 7) / 8)};
    z = unpack(g, n, op_node_reshape(g, n, z, 2, dim, 0), b->bits, false, b->sblocks);
    return spread(g, n, op_node_cast(g, n, z, b->t, 0), b);
}

static value_id nbits_weights(struct graph *g, node_id n, const struct nbits *b)
{
    const struct node nd = *graph_node(g, n);
    const struct shape whole = {.known = true, .rank = 2, .dim = {b->sn, sym_const(g->sym, b->blocks * b->block)}};
    sym packed[] = {b->sn, b->sblocks, sym_const(g->sym, b->block * b->bits / 8)};
    bool grouped = op_has_in(&nd, NB_GROUP);
    value_id w = op_node_reshape(g, n, nd.in.v[NB_Q], 3, packed, 0);
    w = op_node_cast(g, n, unpack(g, n, w, b->bits, false, sym_const(g->sym, b->block)), b->t, 0);
    for (int late = 0; late < 2; late++) { /* groups are those of elements, blocks those of rows */
        if (late == grouped) {
            w = op_node2(g, n, "Sub", w, zero_points(g, n, b), 0);
            w = op_node2(g, n, "Mul", w, spread(g, n, op_as(g, n, nd.in.v[NB_SCALE], b->t), b), 0);
        }
        if (late) break;
        w = op_node_reshape(g, n, w, 2, whole.dim, 0);
        if (b->blocks * b->block != b->k) w = op_node_slice(g, n, w, &whole, 1, sym_const(g->sym, 0), b->sk, 0);
    }
    return op_node_swap(g, n, w, 2, 0, 1, 0);
}

static bool nbits_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    struct nbits b;
    read_nbits(g, n, &b);
    bool bias = op_has_in(&nd, NB_BIAS);
    value_id y = op_node2(g, n, "MatMul", nd.in.v[NB_A], nbits_weights(g, n, &b), bias ? 0 : nd.out.v[0]);
    if (bias) op_node2(g, n, "Add", y, nd.in.v[NB_BIAS], nd.out.v[0]);
    return true;
}

static void random_nbits(const struct op *self, struct graph *g, struct rng *r)
{
    i64 bits = (i64)2 << rng_range(r, 0, 2), k = rng_range(r, 1, 40), n = rng_range(r, 1, 4), blocks = (k + 15) / 16, kind = rng_range(r, 0, 2);
    value_id in[6] = {0};
    enum dtype t = DT_F32;
    random_input(g, "a", t, 2, (i64[]){rng_range(r, 1, 4), k}, &in[NB_A]);
    in[NB_Q] = random_const(g, DT_U8, 3, (i64[]){n, blocks, 2 * bits}, 0, 255, r);
    in[NB_SCALE] = random_const(g, t, 2, (i64[]){n, blocks}, 0.01, 0.05, r);
    if (kind == 1) in[NB_ZERO] = random_const(g, DT_U8, 2, (i64[]){n, (blocks * bits + 7) / 8}, 0, 255, r);
    if (kind == 2) in[NB_ZERO] = random_const(g, t, 2, (i64[]){n, blocks}, 0, 9, r);
    if (rng_range(r, 0, 3) == 0) in[NB_GROUP] = random_const(g, DT_I32, 1, &k, 0, (double)blocks - 1, r);
    if (rng_range(r, 0, 1)) random_input(g, "bias", t, 1, &n, &in[NB_BIAS]);
    random_node(g, self, in[NB_BIAS] ? 6 : in[NB_GROUP] ? 5 : in[NB_ZERO] ? 4 : 3, in, 1);
    node_id id = g->node.n - 1;
    attr_set_int(g, id, "N", n), attr_set_int(g, id, "K", k);
    attr_set_int(g, id, "bits", bits), attr_set_int(g, id, "block_size", 16);
}

/* MatMulBnb4: a, q, the largest magnitude of each block */

static const double bnb_tables[2][16] = {
    {0, 5.208333333e-03, 2.0 / 3, 1, 1.0 / 3, 0.5, 1.0 / 6, 0.25, -0.0, -5.208333333e-03, -2.0 / 3, -1, -1.0 / 3, -0.5,
     -1.0 / 6, -0.25},
    {-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1},
};

static bool bnb_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 kind = attr_int(nd, "quant_type", 0), rows = attr_int(nd, "N", 0), k = attr_int(nd, "K", 0), block = attr_int(nd, "block_size", 0);
    if (kind != 0 && kind != 1) return op_unsupported(e, g, n, "attribute 'quant_type' = %lld", (long long)kind);
    if (rows < 1 || k < 1 || rows > INT32_MAX || k > INT32_MAX || block < 1 || block > 1 << 24)
        return op_invalid(e, g, n, "attributes N = %lld, K = %lld, block_size = %lld", (long long)rows, (long long)k, (long long)block);
    if (op_in_dtype(g, nd, 1) != DT_U8 || !holds(g, nd, 1, (rows * k + 1) / 2))
        return op_invalid(e, g, n, "weights are not N x K elements of 4 bits");
    if (!holds(g, nd, 2, (rows * k + block - 1) / block)) return op_invalid(e, g, n, "absmax does not have one element per block");
    return op_check_float(g, n, 0, e) && op_check_float(g, n, 2, e) && op_infer_expanded(g, n, e);
}

static bool bnb_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t = op_in_dtype(g, &nd, 0);
    i64 rows = attr_int(&nd, "N", 0), k = attr_int(&nd, "K", 0), block = attr_int(&nd, "block_size", 0), size = 16;
    sym count = sym_const(g->sym, rows * k), bytes = sym_const(g->sym, (rows * k + 1) / 2);
    sym dim[] = {sym_const(g->sym, rows), sym_const(g->sym, k)}, blocks = sym_const(g->sym, (rows * k + block - 1) / block);
    struct tensor *table = tensor_new(g->arena, t, 1, &size);
    for (i64 i = 0; i < size; i++) elem_set_f64(t, table->data, i, bnb_tables[attr_int(&nd, "quant_type", 0)][i]);
    value_id q = unpack(g, n, op_node_reshape(g, n, nd.in.v[1], 1, &bytes, 0), 4, true, count);
    q = op_node_cast(g, n, q, DT_I32, 0);
    q = op_node_gather(g, n, graph_add_const(g, S("table"), table), q, 0, 0);
    value_id at = op_node_binf(g, n, "Div", op_node_range(g, n, DT_I64, count, 0), DT_I64, (double)block, 0);
    value_id max = op_node_reshape(g, n, op_as(g, n, nd.in.v[2], t), 1, &blocks, 0);
    q = op_node2(g, n, "Mul", q, op_node_gather(g, n, max, at, 0, 0), 0);
    q = op_node_reshape(g, n, q, 2, dim, 0);
    if (attr_int(&nd, "transB", 1)) q = op_node_swap(g, n, q, 2, 0, 1, 0);
    op_node2(g, n, "MatMul", nd.in.v[0], q, nd.out.v[0]);
    return true;
}

static void random_bnb(const struct op *self, struct graph *g, struct rng *r)
{
    i64 k = rng_range(r, 1, 20), n = rng_range(r, 1, 4), bytes = (n * k + 1) / 2, blocks = (n * k + 15) / 16;
    value_id in[3];
    random_input(g, "a", DT_F32, 2, (i64[]){rng_range(r, 1, 4), k}, &in[0]);
    in[1] = random_const(g, DT_U8, 1, &bytes, 0, 255, r);
    in[2] = random_const(g, DT_F32, 1, &blocks, 0.5, 2, r);
    node_id id = random_node(g, self, 3, in, 1);
    attr_set_int(g, id, "N", n), attr_set_int(g, id, "K", k);
    attr_set_int(g, id, "block_size", 16), attr_set_int(g, id, "quant_type", rng_range(r, 0, 1));
}

/* GatherBlockQuantized: data, indices, scales [, zero points] */

struct table {
    u32 rank, gather, quantize;
    i64 bits, block;
    bool packed;
    struct shape data; /* unpacked */
};

static bool read_table(struct graph *g, node_id n, struct table *t, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    t->data = *op_in_shape(g, nd, 0), t->rank = t->data.rank;
    t->bits = attr_int(nd, "bits", 4), t->block = attr_int(nd, "block_size", 128);
    t->packed = op_in_dtype(g, nd, 0) == DT_U8 && t->bits < 8;
    if (!dtype_is_int(op_in_dtype(g, nd, 0)))
        return op_unsupported(e, g, n, "data of type %s", dtype_name(op_in_dtype(g, nd, 0)));
    if (t->bits != 2 && t->bits != 4 && t->bits != 8) return op_unsupported(e, g, n, "attribute 'bits' = %lld", (long long)t->bits);
    if (t->block < 1 || t->block > 1 << 24) return op_unsupported(e, g, n, "attribute 'block_size' = %lld", (long long)t->block);
    if (!op_axis(attr_int(nd, "gather_axis", 0), t->rank, &t->gather) ||
        !op_axis(attr_int(nd, "quantize_axis", 1), t->rank, &t->quantize) || t->gather == t->quantize)
        return op_invalid(e, g, n, "axes %lld and %lld for rank %u", (long long)attr_int(nd, "gather_axis", 0),
                          (long long)attr_int(nd, "quantize_axis", 1), t->rank);
    if (t->packed && t->gather == t->rank - 1) return op_invalid(e, g, n, "the packed axis is gathered");
    if (op_in_shape(g, nd, 2)->rank != t->rank) return op_invalid(e, g, n, "scales of another rank than the data");
    sym *last = &t->data.dim[t->rank - 1];
    if (t->packed) *last = sym_mul(g->sym, *last, sym_const(g->sym, 8 / t->bits));
    return true;
}

static bool table_infer(struct graph *g, node_id n, struct err *e)
{
    struct table t;
    return read_table(g, n, &t, e) && op_check_float(g, n, 2, e) && op_infer_expanded(g, n, e);
}

/* Rows of input k, unpacked along the last axis to `last` elements. */
static value_id rows(struct graph *g, node_id n, u32 k, const struct table *t, sym last)
{
    const struct node nd = *graph_node(g, n);
    value_id v = op_node_gather(g, n, nd.in.v[k], nd.in.v[1], t->gather, 0);
    return t->packed && k != 2 ? unpack(g, n, v, t->bits, false, last) : v;
}

static bool table_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    struct table t;
    if (!read_table(g, n, &t, e)) return false;
    enum dtype f = op_in_dtype(g, &nd, 2);
    u32 q = op_in_shape(g, &nd, 1)->rank, axis = t.quantize > t.gather ? t.quantize + q - 1 : t.quantize;
    const struct shape scales = *op_in_shape(g, &nd, 2);
    value_id at = op_node_binf(g, n, "Div", op_node_range(g, n, DT_I64, t.data.dim[t.quantize], 0), DT_I64, (double)t.block, 0);
    value_id w = op_node_cast(g, n, rows(g, n, 0, &t, t.data.dim[t.rank - 1]), DT_I32, 0);
    if (op_has_in(&nd, 3)) {
        value_id z = op_node_gather(g, n, rows(g, n, 3, &t, scales.dim[t.rank - 1]), at, axis, 0);
        w = op_node2(g, n, "Sub", w, op_node_cast(g, n, z, DT_I32, 0), 0);
    } else if (op_in_dtype(g, &nd, 0) == DT_U8) {
        w = op_node_binf(g, n, "Sub", w, DT_I32, (double)(1 << (t.bits - 1)), 0);
    }
    value_id s = op_node_gather(g, n, rows(g, n, 2, &t, 0), at, axis, 0);
    op_node2(g, n, "Mul", op_node_cast(g, n, w, f, 0), s, nd.out.v[0]);
    return true;
}

static void random_table(const struct op *self, struct graph *g, struct rng *r)
{
    i64 bits = (i64)2 << rng_range(r, 0, 2), blocks = rng_range(r, 1, 2), v = rng_range(r, 1, 4), m = rng_range(r, 1, 3);
    value_id in[4];
    in[0] = random_const(g, DT_U8, 2, (i64[]){v, blocks * 2 * bits}, 0, 255, r);
    in[1] = random_const(g, DT_I32, 1, &m, 0, (double)v - 1, r);
    in[2] = random_const(g, DT_F32, 2, (i64[]){v, blocks}, 0.1, 0.5, r);
    in[3] = random_const(g, DT_U8, 2, (i64[]){v, (blocks * bits + 7) / 8}, 0, 255, r);
    node_id id = random_node(g, self, (u32)rng_range(r, 3, 4), in, 1);
    attr_set_int(g, id, "bits", bits), attr_set_int(g, id, "block_size", 16);
    attr_set_int(g, id, "gather_axis", 0), attr_set_int(g, id, "quantize_axis", 1);
}

static const struct op ops[] = {
    {.name = "quern::Unpack",
     .attributes = "bits:int high:int size:strings",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = unpack_infer,
     .eval = unpack_eval,
     .lower = unpack_lower,
     .random = random_unpack},
    {.name = "com.microsoft::MatMulNBits",
     .min_in = 3,
     .max_in = 6,
     .min_out = 1,
     .max_out = 1,
     .infer = nbits_infer,
     .expand = nbits_expand,
     .random = random_nbits},
    {.name = "com.microsoft::MatMulBnb4",
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = bnb_infer,
     .expand = bnb_expand,
     .random = random_bnb},
    {.name = "com.microsoft::GatherBlockQuantized",
     .min_in = 3,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = table_infer,
     .expand = table_expand,
     .random = random_table},
};

const struct op_family op_ms_nbits = {ops, countof(ops)};
