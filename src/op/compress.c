// SPDX-License-Identifier: Apache-2.0
//
// Compress and NonZero: the size of the result depends on data. If that data is constant, Compress becomes a Gather at the selected
// indices and NonZero a constant. Otherwise the size is computed at run time, and Compress is a Gather at the indices that NonZero
// returns.
//
// NonZero counts in blocks of the flattened input. The sum of the counts is the size; their exclusive prefix sum is the
// first position of each block, so that all blocks are written in parallel.
#include "op/op.h"

/* The content that determines node n's size; NULL: unknown, or unknown when the size was named. */
static const struct tensor *constant(const struct graph *g, node_id n, value_id v)
{
    return node_attr(graph_node(g, n), "made_size") ? NULL : graph_value(g, v)->data;
}

static i64 count_true(const struct tensor *t)
{
    i64 n = 0;
    for (i64 i = 0; i < tensor_count(t); i++) n += elem_f64(t->dtype, t->data, i) != 0;
    return n;
}

/* Compress. axis -1 stands for the flattened input. */

enum { BLOCK = 256 }; /* elements */

/* Nodes that count the nonzero elements of each block of x. */
static bool count_blocks(struct graph *g, node_id n, value_id x, value_id *flat, value_id *blocks, struct err *e)
{
    sym count = shape_count(g->sym, &graph_value(g, x)->shape);
    *flat = op_node1(g, n, "quern::Reshape", x, 0);
    op_set_syms(g, op_made(g, *flat), "shape", &count, 1);
    if (!op_infer(g, op_made(g, *flat), e)) return false;
    *blocks = op_node1(g, n, "quern::CountNonZero", *flat, 0);
    return op_infer(g, op_made(g, *blocks), e);
}

bool op_count_nonzero(struct graph *g, node_id n, value_id x, sym *size, struct err *e)
{
    value_id flat, blocks, total;
    if (!count_blocks(g, n, x, &flat, &blocks, e)) return false;
    total = op_node_axes(g, n, "ReduceSum", blocks, (i64[]){0}, 1, 0);
    if (!op_infer(g, op_made(g, total), e)) return false;
    *size = op_size_of(g, total, 0, node_first_out(graph_node(g, n)), shape_count(g->sym, &graph_value(g, x)->shape));
    return true;
}

/* The size of node n that is the number of elements of x that are not zero: made at the first call, and known from attribute "made_size". */
static bool count_size(struct graph *g, node_id n, value_id x, sym *size, struct err *e)
{
    if (op_get_syms(g, graph_node(g, n), "made_size", size, 1) == 1) return true;
    if (!op_count_nonzero(g, n, x, size, e)) return false;
    op_set_syms(g, n, "made_size", size, 1);
    return true;
}

struct compress {
    struct shape in; /* after flattening */
    u32 axis;
    bool flat;
};

static bool read_compress(struct graph *g, node_id n, struct compress *c, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct tensor *t = constant(g, n, nd->in.v[1]);
    i64 d;
    *c =
        (struct compress){.in = graph_value(g, nd->in.v[0])->shape, .flat = !node_attr(nd, "axis")};
    const struct value *cond = graph_value(g, nd->in.v[1]);
    if (c->flat) {
        sym count = shape_count(g->sym, &c->in);
        c->in = (struct shape){.known = true, .rank = 1, .dim = {count}};
    }
    if (!op_axis(attr_int(nd, "axis", 0), c->in.rank, &c->axis))
        return op_invalid(e, g, n, "bad attribute 'axis'");
    if (cond->shape.rank != 1 || (t && sym_is_const(g->sym, c->in.dim[c->axis], &d) && t->dim[0] > d))
        return op_invalid(e, g, n, "the condition does not fit the axis");
    return true;
}

static bool compress_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct compress c;
    if (!read_compress(g, n, &c, e)) return false;
    const struct tensor *t = constant(g, n, nd->in.v[1]);
    if (t) c.in.dim[c.axis] = sym_const(g->sym, count_true(t));
    else if (!count_size(g, n, nd->in.v[1], &c.in.dim[c.axis], e)) return false;
    op_set_out(g, n, 0, graph_value(g, graph_node(g, n)->in.v[0])->dtype, &c.in);
    return true;
}

static value_id flat_input(struct graph *g, node_id n, const struct compress *c)
{
    value_id x = graph_node(g, n)->in.v[0];
    if (!c->flat) return x;
    x = op_node1(g, n, "quern::Reshape", x, 0);
    op_set_syms(g, op_made(g, x), "shape", c->in.dim, 1);
    return x;
}

/* Gathers the indices that NonZero returns for the condition. */
static bool compress_data(struct graph *g, node_id n, const struct compress *c, struct err *e)
{
    value_id out = graph_node(g, n)->out.v[0], x = flat_input(g, n, c), at;
    sym size;
    if (!count_size(g, n, graph_node(g, n)->in.v[1], &size, e)) return false;
    at = op_node1(g, n, "NonZero", graph_node(g, n)->in.v[1], 0);
    op_set_syms(g, op_made(g, at), "made_size", &size, 1);
    at = op_node1(g, n, "quern::Reshape", at, 0);
    op_set_syms(g, op_made(g, at), "shape", &size, 1);
    op_node2(g, n, "Gather", x, at, out);
    attr_set_int(g, op_made(g, out), "axis", c->axis);
    return true;
}

static bool compress_expand(struct graph *g, node_id n, struct err *e)
{
    const struct tensor *t = constant(g, n, graph_node(g, n)->in.v[1]);
    value_id in[2] = {graph_node(g, n)->in.v[0]}, out = graph_node(g, n)->out.v[0];
    struct compress c;
    if (!read_compress(g, n, &c, e)) return false;
    if (!t) return compress_data(g, n, &c, e);
    i64 count = count_true(t), at = 0;
    struct tensor *index = tensor_try(g->arena, DT_I64, 1, &count, e, "its indices", S(""));
    if (!index) return false;
    for (i64 i = 0; i < t->dim[0]; i++)
        if (elem_i64(t->dtype, t->data, i)) elem_set_i64(DT_I64, index->data, at++, i);
    in[0] = flat_input(g, n, &c);
    in[1] = graph_add_const(g, S("indices"), index);
    op_node(g, n, "Gather", 2, in, out);
    attr_set_int(g, graph_value(g, out)->producer, "axis", c.axis);
    return true;
}

static void random_compress(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 3), axis = (u32)rng_range(r, 0, rank - 1);
    i64 dim[3], total = 1;
    bool flat = rng_range(r, 0, 1);
    value_id in[2];
    for (u32 a = 0; a < rank; a++) total *= dim[a] = rng_range(r, 1, 5);
    i64 length = rng_range(r, 0, flat ? total : dim[axis]);
    struct tensor *t = tensor_new(g->arena, DT_BOOL, 1, &length);
    for (i64 i = 0; i < length; i++) elem_set_i64(DT_BOOL, t->data, i, rng_range(r, 0, 1));
    random_input(g, "x", DT_F32, rank, dim, &in[0]);
    in[1] = graph_add_const(g, S("condition"), t);
    node_id n = random_node(g, self, 2, in, 1);
    if (!flat) attr_set_int(g, n, "axis", (i64)axis - (rng_range(r, 0, 1) ? rank : 0));
}

/* NonZero. */

static bool nonzero_infer(struct graph *g, node_id n, struct err *e)
{
    const struct tensor *t = constant(g, n, graph_node(g, n)->in.v[0]);
    struct shape to = {.known = true, .rank = 2};
    to.dim[0] = sym_const(g->sym, graph_value(g, graph_node(g, n)->in.v[0])->shape.rank);
    if (t) to.dim[1] = sym_const(g->sym, count_true(t));
    else if (!count_size(g, n, graph_node(g, n)->in.v[0], &to.dim[1], e)) return false;
    op_set_out(g, n, 0, DT_I64, &to);
    return true;
}

static bool nonzero_data(struct graph *g, node_id n, struct err *e)
{
    value_id x = graph_node(g, n)->in.v[0], out = graph_node(g, n)->out.v[0], flat, blocks, at;
    const struct shape s = graph_value(g, x)->shape;
    sym size;
    if (!count_size(g, n, x, &size, e) || !count_blocks(g, n, x, &flat, &blocks, e)) return false;
    at = op_node1(g, n, "quern::CumSum", blocks, 0);
    attr_set_int(g, op_made(g, at), "exclusive", 1);
    op_node2(g, n, "quern::NonZero", flat, at, out);
    op_set_syms(g, op_made(g, out), "dims", s.dim, s.rank);
    op_set_syms(g, op_made(g, out), "count", &size, 1);
    return true;
}

static bool nonzero_expand(struct graph *g, node_id n, struct err *e)
{
    const struct tensor *t = constant(g, n, graph_node(g, n)->in.v[0]);
    value_id out = graph_node(g, n)->out.v[0], v;
    if (!t) return nonzero_data(g, n, e);
    i64 count = count_true(t), at = 0, idx[MAX_RANK] = {0};
    struct tensor *found = tensor_try(g->arena, DT_I64, 2, (i64[]){t->rank, count}, e, "its indices", S(""));
    if (!found) return false;
    for (i64 i = 0; i < tensor_count(t); i++, op_next(t->rank, t->dim, idx)) {
        if (elem_f64(t->dtype, t->data, i) == 0) continue;
        for (u32 a = 0; a < t->rank; a++) elem_set_i64(DT_I64, found->data, a * count + at, idx[a]);
        at++;
    }
    v = graph_add_const(g, S("nonzero"), found);
    op_node(g, n, "Identity", 1, &v, out);
    return true;
}

/* A condition of the data's own, now and then all false. */
static void random_data(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 3);
    i64 dim[3];
    value_id v;
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 9);
    if (rng_range(r, 0, 4) == 0) dim[rank - 1] = 300;
    random_input(g, "x", rng_range(r, 0, 1) ? DT_F32 : DT_BOOL, rank, dim, &v);
    random_node(g, self, 1, &v, 1);
}

static void random_nonzero(const struct op *self, struct graph *g, struct rng *r)
{
    if (rng_range(r, 0, 1)) return random_data(self, g, r);
    u32 rank = (u32)rng_range(r, 1, 3);
    i64 dim[3];
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 4);
    struct tensor *t = tensor_new(g->arena, DT_F32, rank, dim);
    for (i64 i = 0; i < tensor_count(t); i++)
        elem_set_f64(DT_F32, t->data, i, (double)rng_range(r, -1, 1));
    value_id v = graph_add_const(g, S("x"), t);
    random_node(g, self, 1, &v, 1);
}

/* quern::CountNonZero: out[b] = number of nonzero elements of x[b*BLOCK ...]. */

static bool blocks_infer(struct graph *g, node_id n, struct err *e)
{
    const struct value *x = graph_value(g, graph_node(g, n)->in.v[0]);
    if (x->shape.rank != 1) return op_invalid(e, g, n, "input of rank %u, expected 1", x->shape.rank);
    struct shape to = {.known = true, .rank = 1, .dim = {sym_cdiv(g->sym, x->shape.dim[0], sym_const(g->sym, BLOCK))}};
    op_set_out(g, n, 0, DT_I64, &to);
    return true;
}

static bool is_set(const struct tensor *t, i64 i)
{
    return dtype_is_float(t->dtype) ? elem_f64(t->dtype, t->data, i) != 0 : elem_i64(t->dtype, t->data, i) != 0;
}

static bool blocks_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[0];
    struct tensor *out = v->out[0];
    for (i64 i = 0, n = tensor_count(x); i < n; i++)
        if (is_set(x, i)) elem_set_i64(DT_I64, out->data, i / BLOCK, elem_i64(DT_I64, out->data, i / BLOCK) + 1);
    return true;
}

/* Opens the loop over the elements of block b, and gives whether the element is set. */
static kval open_block(struct emit *m, value_id x, kval b, kval *i)
{
    struct kir *k = m->k;
    kval from = kir_mul_i(k, b, BLOCK), to = kir_min(k, kir_add_i(k, from, BLOCK), emit_dim(m, x, 0));
    *i = kir_loop(k, KL_SERIAL, from, to, 1);
    kval v = emit_value(m, x, i);
    enum dtype t = kir_dtype(k, v);
    if (t == DT_BOOL) return v;
    return kir_bin(k, KI_NE, v, dtype_is_float(t) ? kir_const_f(k, t, 1, 0) : kir_const_i(k, t, 1, 0));
}

static void blocks_whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    kval zero = kir_int(k, 0), i, b = kir_grid(k, emit_dim(m, n->out.v[0], 0));
    kval sum = kir_alloc(k, KS_REG, DT_I64, 1, kir_int(k, 1));
    kir_store(k, sum, zero, zero);
    kval on = open_block(m, n->in.v[0], b, &i);
    kir_store(k, sum, zero, kir_add(k, kir_load(k, sum, zero), kir_cast(k, DT_I64, on)));
    kir_end(k);
    emit_store(m, n->out.v[0], &b, kir_load(k, sum, zero));
    kir_end(k);
}

static double blocks_flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 dim[MAX_RANK];
    return shape_eval(g->sym, &graph_value(g, n->in.v[0])->shape, var, dim) ? (double)dim[0] : 0;
}

static void random_blocks(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim = rng_range(r, 1, 3) * rng_range(r, 1, 300);
    value_id v;
    random_input(g, "x", rng_range(r, 0, 1) ? DT_F32 : DT_I32, 1, &dim, &v);
    random_node(g, self, 1, &v, 1);
}

/* quern::NonZero: the indices, over axes of sizes `dims`, of the elements that are not zero; those of block b begin at column at[b]. */

static bool find_infer(struct graph *g, node_id n, struct err *e)
{
    struct shape to = {.known = true, .rank = 2};
    sym dim[MAX_RANK];
    i64 rank = op_get_syms(g, graph_node(g, n), "dims", dim, MAX_RANK);
    if (rank < 0 || op_get_syms(g, graph_node(g, n), "count", &to.dim[1], 1) != 1) return op_invalid(e, g, n, "bad attributes");
    to.dim[0] = sym_const(g->sym, rank);
    op_set_out(g, n, 0, DT_I64, &to);
    return true;
}

static bool find_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[0];
    struct tensor *out = v->out[0];
    i64 dim[MAX_RANK], idx[MAX_RANK] = {0}, at = 0;
    u32 rank = (u32)out->dim[0];
    if (!op_eval_syms(v, "dims", dim, MAX_RANK, e)) return false;
    for (i64 i = 0, n = tensor_count(x); i < n; i++, op_next(rank, dim, idx)) {
        if (!is_set(x, i) || at == out->dim[1]) continue;
        for (u32 a = 0; a < rank; a++) elem_set_i64(DT_I64, out->data, a * out->dim[1] + at, idx[a]);
        at++;
    }
    return true;
}

static void find_whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    sym dim[MAX_RANK];
    i64 rank = op_get_syms(m->g, n, "dims", dim, MAX_RANK);
    kval zero = kir_int(k, 0), i, b = kir_grid(k, emit_dim(m, n->in.v[1], 0)), at = kir_alloc(k, KS_REG, DT_I64, 1, kir_int(k, 1));
    kir_store(k, at, zero, emit_value(m, n->in.v[1], &b));
    kir_if(k, open_block(m, n->in.v[0], b, &i));
    kval idx[2] = {0, kir_load(k, at, zero)};
    for (i64 a = rank; a-- > 0;) {
        kval d = emit_size(m, dim[a]);
        idx[0] = kir_int(k, a);
        emit_store(m, n->out.v[0], idx, a ? kir_mod(k, i, d) : i);
        if (a) i = kir_div(k, i, d);
    }
    kir_store(k, at, zero, kir_add_i(k, idx[1], 1));
    kir_end(k);
    kir_end(k);
    kir_end(k);
}

/* Constant content, so that count and beginnings agree with it. */
/* So few elements that tasks keep the constants' content, which the count belongs to. */
static void random_find(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[2] = {rng_range(r, 1, 4), rng_range(r, 1, 16)}, n = dim[0] * dim[1], count = 0, at[4] = {0};
    struct tensor *t = tensor_new(g->arena, DT_I32, 1, &n);
    for (i64 i = 0; i < n; i++) {
        if (i % BLOCK == 0) at[i / BLOCK] = count;
        i64 x = rng_range(r, -1, 1);
        elem_set_i64(DT_I32, t->data, i, x);
        count += x != 0;
    }
    value_id in[2] = {graph_add_const(g, S("x"), t), op_const_i(g, DT_I64, at, (n + BLOCK - 1) / BLOCK)};
    node_id node = random_node(g, self, 2, in, 1);
    sym s[3] = {sym_const(g->sym, dim[0]), sym_const(g->sym, dim[1]), sym_const(g->sym, count)};
    op_set_syms(g, node, "dims", s, 2);
    op_set_syms(g, node, "count", &s[2], 1);
}

static const struct op ops[] = {
    {.name = "Compress",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = compress_infer,
     .expand = compress_expand,
     .random = random_compress},
    {.name = "NonZero",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = nonzero_infer,
     .expand = nonzero_expand,
     .random = random_nonzero},
    {.name = "quern::CountNonZero",
     .attributes = "axis:int exclusive:int",
     .props = OP_HEAVY | OP_WHOLE,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = blocks_infer,
     .eval = blocks_eval,
     .whole = blocks_whole,
     .flops = blocks_flops,
     .random = random_blocks},
    {.name = "quern::NonZero",
     .attributes = "count:strings dims:strings",
     .props = OP_HEAVY | OP_WHOLE,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = find_infer,
     .eval = find_eval,
     .whole = find_whole,
     .flops = blocks_flops,
     .random = random_find},
};

const struct op_family op_compress = {ops, countof(ops)};
