// SPDX-License-Identifier: Apache-2.0
//
// codes: constant weights of matmuls that a model stores in few bits stay in them: MatMulNBits, and MatMul and Gemm whose right operand is a
// DequantizeLinear of constants, perhaps transposed or converted to another float, become MatMul of quern::Dequantize, whose kernels convert what they load. The codes have a scale,
// and a zero point or none, for every block of terms of a sum and every column; a scale per column or for all weights is repeated. Signed codes of 2 and
// 4 bits become unsigned ones. Where MatMulNBits allows to round its left operand to 8 bits (accuracy_level 4), the product may, too
// (attribute digits). Where each term has a group of its own (g_idx), the left operand's columns are put into the groups' order.
// Weights that exporters spell as (codes - zeros) * scales become the same (pass_spelled.c). Others, and weights so small that they stay in a cache, are
// folded to floats as any constant.
// requires: inferred, not yet expanded, constants not yet folded; behind `integer`. ensures: new nodes are inferred.
#include "pass/pass_codes.h"
#include "pass/pass_linear.h"

#include <math.h>

enum { MAX_MOVES = 8 };
enum { X, SCALE, ZERO };                                   /* inputs of DequantizeLinear */
enum { NB_A, NB_Q, NB_SCALE, NB_ZERO, NB_GROUP, NB_BIAS }; /* of MatMulNBits */
enum { LEVEL_INT8 = 4, DIGITS = 1 }; /* of its accuracy_level: activations may be rounded to 8 bits, a digit and a sign */

/* DequantizeLinear. */

struct dequantized {      /* constant */
    const struct tensor *q, *scale, *zero; /* zero NULL: 0 */
    bool is_transposed;   /* q: (columns, terms) */
    i64 terms, columns;
    i64 block;            /* terms with one scale */
    bool per_column;      /* else one scale for all columns */
    enum dtype to;
};

/* Which scales there are: one, one per column, or one per column and block of terms. */
static bool find_scales(const struct node *n, struct dequantized *d)
{
    const struct tensor *s = d->scale;
    i64 size = attr_int(n, "block_size", 0);
    u32 axis, terms = d->is_transposed ? 1 : 0;
    d->block = d->terms;
    if (tensor_count(s) == 1) return true;
    if (!op_axis(attr_int(n, "axis", 1), d->q->rank, &axis)) return false;
    d->per_column = true;
    if (!size) return axis != terms && s->rank == 1 && s->dim[0] == d->columns;
    d->block = size;
    return axis == terms && s->rank == 2;
}

/* The node that makes *v, behind transpositions and conversions to another float, and what these read. */
static const struct node *moved_from(const struct graph *g, value_id *v, bool *is_transposed)
{
    for (u32 i = 0;; i++) {
        const struct node *n = graph_value(g, *v)->producer ? graph_node(g, graph_value(g, *v)->producer) : NULL;
        const i64 *perm;
        bool transposes = n && str_is(n->op, "Transpose"), casts = n && str_is(n->op, "Cast");
        if (i == MAX_MOVES || (!transposes && !casts)) return n;
        if (transposes && (graph_value(g, *v)->shape.rank != 2 || (attr_ints(n, "perm", &perm) == 2 && perm[0] != 1))) return NULL;
        if (transposes) *is_transposed = !*is_transposed;
        *v = n->in.v[0];
    }
}

/* Of the operand v, which is (columns, terms) if it is transposed. */
static bool find_dequantized(struct graph *g, value_id v, bool is_transposed, struct dequantized *d)
{
    *d = (struct dequantized){.to = graph_value(g, v)->dtype, .is_transposed = is_transposed};
    const struct node *n = moved_from(g, &v, &d->is_transposed);
    const struct value *x = graph_value(g, v);
    if (!n || !str_is(n->op, "DequantizeLinear") || x->shape.rank != 2 || !codes_stand_for(d->to)) return false;
    if (x->dtype != d->to && x->dtype != DT_F32) return false; /* rounded to fewer bits in between */
    const struct node nd = *n;
    d->q = codes_content(g, nd.in.v[X], g->arena), d->scale = d->q ? codes_content(g, nd.in.v[SCALE], g->arena) : NULL;
    if (!d->scale || d->q->rank != 2) return false;
    if (op_has_in(&nd, ZERO) && !(d->zero = codes_content(g, nd.in.v[ZERO], g->arena))) return false;
    d->terms = d->q->dim[d->is_transposed], d->columns = d->q->dim[!d->is_transposed];
    if (tensor_count(d->q) < CODES_MIN_ELEMENTS || !find_scales(&nd, d) || !codes_block(d->block, d->terms)) return false;
    return !d->zero || tensor_count(d->zero) == tensor_count(d->scale);
}

/* Of the codes' type as it is stored, and what is added to codes and zero points. */
static bool find_type(const struct dequantized *d, enum dtype *type, i64 *shift)
{
    enum dtype t = d->q->dtype;
    *type = t, *shift = 0;
    if (dtype_is_float(t)) return op_is_code(t) && t != DT_F8E8M0 && (!d->zero || tensor_largest(d->zero) == 0);
    if (t == DT_I4 || t == DT_I2 || t == DT_I8) {
        *type = t == DT_I4 ? DT_U4 : t == DT_I2 ? DT_U2 : DT_U8;
        *shift = (i64)1 << (dtype_bits(t) - 1);
    }
    return op_is_code(*type);
}

/* Of a block of the result and a column: element of the scales and zero points. */
static i64 scale_at(const struct dequantized *d, const struct codes *c, i64 block, i64 column)
{
    i64 own = block * c->block / d->block, blocks = ceil_div(d->terms, d->block);
    if (!d->per_column) return 0;
    return d->is_transposed ? column * blocks + own : own * d->columns + column;
}

static bool read_dequantized(struct graph *g, const struct dequantized *d, struct codes *c, struct err *e)
{
    enum dtype type;
    i64 shift;
    *c = (struct codes){.to = d->to};
    if (!find_type(d, &type, &shift)) unreachable(); /* asked before */
    if (!codes_alloc(c, g, type, d->terms, d->columns, d->block, e)) return false;
    for (i64 k = 0; k < c->terms; k++)
        for (i64 n = 0; n < c->columns; n++) {
            i64 from = d->is_transposed ? n * c->terms + k : k * c->columns + n, to = k * c->columns + n;
            if (dtype_is_float(type)) ((u8 *)c->q->data)[to] = ((const u8 *)d->q->data)[from];
            else elem_set_i64(type, c->q->data, to, elem_i64(d->q->dtype, d->q->data, from) + shift);
        }
    for (i64 b = 0; b < c->blocks; b++)
        for (i64 n = 0; n < c->columns; n++) {
            i64 from = scale_at(d, c, b, n), to = b * c->columns + n;
            ((float *)c->scale->data)[to] = (float)elem_f64(d->scale->dtype, d->scale->data, from);
            ((u8 *)c->zero->data)[to] = (u8)((d->zero && !dtype_is_float(type) ? elem_i64(d->zero->dtype, d->zero->data, from) : 0) + shift);
        }
    return true;
}

/* Whether v is dequantised, and moved perhaps: products of two such operands are integer ones (integer.c) where devices multiply those. */
static bool is_dequantized(const struct graph *g, value_id v)
{
    node_id p = graph_value(g, v)->producer;
    for (u32 i = 0; p && i < MAX_MOVES && linear_n_moved(graph_node(g, p)); i++) p = graph_value(g, graph_node(g, p)->in.v[0])->producer;
    return p && str_is(graph_node(g, p)->op, "DequantizeLinear");
}

static bool is_finite(const struct tensor *t)
{
    for (i64 i = 0; i < tensor_count(t); i++)
        if (!isfinite(elem_f64(t->dtype, t->data, i))) return false;
    return true;
}

/* The node's right operand is w, of terms and columns in this order. */
static void set_right(struct graph *g, node_id id, value_id w)
{
    graph_node(g, id)->in.v[1] = w;
    if (node_attr(graph_node(g, id), "transB")) attr_set_int(g, id, "transB", 0);
}

static bool rewrite_product(struct graph *g, node_id id, bool *ok, struct err *e)
{
    const struct node *n = graph_node(g, id);
    bool is_gemm = str_is(n->op, "Gemm");
    struct dequantized d;
    struct codes c;
    enum dtype type;
    i64 shift;
    if (!is_gemm && !(op_of(g, id)->props & OP_MATMUL)) return false;
    const value_id v = n->in.v[1];
    const bool is_transposed = is_gemm && attr_int(n, "transB", 0);
    if (is_dequantized(g, n->in.v[0])) return false;
    if (find_dequantized(g, v, is_transposed, &d)) {
        if (!find_type(&d, &type, &shift) || !is_finite(d.scale)) return false;
        *ok = read_dequantized(g, &d, &c, e);
    } else if (!codes_spelled(g, v, is_transposed, &c, ok, e)) return false;
    value_id w = *ok ? codes_add(g, id, &c, e) : 0;
    *ok = w != 0;
    if (w) set_right(g, id, w);
    return *ok;
}

/* MatMulNBits. */

struct nbits {
    const struct tensor *q, *scale, *zero, *group; /* (columns, blocks, bytes), (columns, blocks), likewise (or packed as q is), (terms) */
    i64 terms, columns, bits, block, blocks;
    i64 *order; /* terms by their groups; NULL: as they are */
    enum dtype to;
};

/* The terms in the order of their groups, each of which must have as many as a block. */
static bool order_terms(struct graph *g, struct nbits *b)
{
    i64 *next = arena_array(g->arena, i64, b->blocks);
    b->order = arena_array(g->arena, i64, b->terms);
    for (i64 k = 0; k < b->blocks; k++) next[k] = k * b->block;
    for (i64 k = 0; k < b->terms; k++) {
        i64 group = elem_i64(b->group->dtype, b->group->data, k);
        if (group < 0 || group >= b->blocks || next[group] == i64_min(b->terms, (group + 1) * b->block)) return false;
        b->order[next[group]++] = k;
    }
    return true;
}

static i64 field(const u8 *p, i64 bits, i64 i) { return p[i * bits / 8] >> i * bits % 8 & ((1 << bits) - 1); }

/* Zero point of a column's block; -1: a float that is no code. */
static i64 zero_of(const struct nbits *b, i64 column, i64 block)
{
    if (!b->zero) return (i64)1 << (b->bits - 1);
    if (b->zero->dtype == DT_U8) return field((const u8 *)b->zero->data + column * ((b->blocks * b->bits + 7) / 8), b->bits, block);
    double z = elem_f64(b->zero->dtype, b->zero->data, column * b->blocks + block);
    return z >= 0 && z < (double)((i64)1 << b->bits) && z == floor(z) ? (i64)z : -1;
}

static bool find_nbits(struct graph *g, node_id id, struct nbits *b)
{
    const struct node n = *graph_node(g, id);
    if (!str_is(n.op, "com.microsoft::MatMulNBits")) return false;
    *b = (struct nbits){.terms = attr_int(&n, "K", 0), .columns = attr_int(&n, "N", 0), .bits = attr_int(&n, "bits", 4),
                        .block = attr_int(&n, "block_size", 0), .to = op_in_dtype(g, &n, NB_A)};
    b->blocks = ceil_div(b->terms, b->block);
    if (b->terms * b->columns < CODES_MIN_ELEMENTS || !codes_stand_for(b->to)) return false;
    b->q = codes_content(g, n.in.v[NB_Q], g->arena), b->scale = b->q ? codes_content(g, n.in.v[NB_SCALE], g->arena) : NULL;
    if (!b->scale || !is_finite(b->scale)) return false;
    if (op_has_in(&n, NB_ZERO) && !(b->zero = codes_content(g, n.in.v[NB_ZERO], g->arena))) return false;
    if (op_has_in(&n, NB_GROUP) && (!(b->group = codes_content(g, n.in.v[NB_GROUP], g->arena)) || !order_terms(g, b))) return false;
    for (i64 i = 0; i < b->columns * b->blocks; i++)
        if (zero_of(b, i / b->blocks, i % b->blocks) < 0) return false;
    return true;
}

static bool read_nbits(struct graph *g, const struct nbits *b, struct codes *c, struct err *e)
{
    const enum dtype type = b->bits == 2 ? DT_U2 : b->bits == 4 ? DT_U4 : DT_U8;
    u8 rounded[8]; /* scales are of the activations' type first */
    *c = (struct codes){.to = b->to};
    if (!codes_alloc(c, g, type, b->terms, b->columns, b->block, e)) return false;
    for (i64 n = 0; n < b->columns; n++) {
        const u8 *column = (const u8 *)b->q->data + n * b->blocks * (b->block * b->bits / 8); /* blocks are whole bytes */
        for (i64 k = 0; k < b->terms; k++) ((u8 *)c->q->data)[k * b->columns + n] = (u8)field(column, b->bits, b->order ? b->order[k] : k);
        for (i64 at = 0; at < c->blocks; at++) {
            i64 own = at * c->block / b->block;
            elem_set_f64(b->to, rounded, 0, elem_f64(b->scale->dtype, b->scale->data, n * b->blocks + own));
            ((float *)c->scale->data)[at * b->columns + n] = (float)elem_f64(b->to, rounded, 0);
            ((u8 *)c->zero->data)[at * b->columns + n] = (u8)zero_of(b, n, own);
        }
    }
    return true;
}

static bool rewrite_nbits(struct graph *g, node_id id, bool *ok, struct err *e)
{
    struct nbits b;
    struct codes c;
    if (!find_nbits(g, id, &b)) return false;
    const struct node n = *graph_node(g, id);
    node_id first = g->node.n;
    bool has_bias = op_has_in(&n, NB_BIAS);
    value_id a = n.in.v[NB_A], w = read_nbits(g, &b, &c, e) ? codes_add(g, id, &c, e) : 0;
    *ok = w != 0;
    if (!w) return false;
    graph_node(g, id)->dead = true;
    if (b.order) a = op_node_gather(g, id, a, op_const_i(g, DT_I64, b.order, b.terms), (i64)op_in_shape(g, &n, NB_A)->rank - 1, 0);
    value_id y = op_node2(g, id, "MatMul", a, w, has_bias ? 0 : n.out.v[0]);
    if (attr_int(&n, "accuracy_level", 0) == LEVEL_INT8) attr_set_int(g, op_made(g, y), "digits", DIGITS);
    if (has_bias) op_node2(g, id, "Add", y, n.in.v[NB_BIAS], n.out.v[0]);
    *ok = op_infer_from(g, first, e);
    return *ok;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    bool changed = false;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++)
        if (!graph_node(g, n)->dead) changed |= rewrite_product(g, n, ok, e) || (*ok && rewrite_nbits(g, n, ok, e));
    return changed;
}

const struct pass pass_codes = {
    .version = 1,
    .name = "codes",
    .summary = "constant weights of few bits stay codes that kernels convert",
    .rank = 106,
    .run = run,
};
