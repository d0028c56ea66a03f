// SPDX-License-Identifier: Apache-2.0
//
// Unique: the distinct elements, or slices along an axis, of a tensor; their number is a size computed at run time. The input is
// treated as rows (n, m), of one element each if no axis is given.
//
// quern::UniqueFirst returns for every row the first row equal to it, quern::UniqueRank the index of the distinct row, in order
// of value or of appearance. Gather and ScatterElements select and count the distinct rows. Both primitives compare every row
// with every other one. NaNs are equal to each other and are ordered after all numbers.
#include "op/op.h"

#include <string.h>

static bool is_sorted(const struct node *n) { return attr_int(n, "sorted", 1); }

static bool has_axis(const struct graph *g, node_id n, u32 *axis)
{
    const struct node *x = graph_node(g, n);
    *axis = 0;
    return node_attr(x, "axis") && op_axis(attr_int(x, "axis", 0), graph_value(g, x->in.v[0])->shape.rank, axis);
}

/* Rows (n, m) of the input, and the number of rows. */
static value_id build_rows(struct graph *g, node_id n, sym *count)
{
    value_id x = graph_node(g, n)->in.v[0];
    const struct shape s = graph_value(g, x)->shape;
    i64 perm[MAX_RANK];
    u32 axis, k = 1;
    sym dim[2] = {shape_count(g->sym, &s), sym_const(g->sym, 1)};
    if (has_axis(g, n, &axis)) {
        dim[0] = s.dim[axis];
        perm[0] = axis;
        for (u32 a = 0; a < s.rank; a++) {
            if (a == axis) continue;
            perm[k++] = a;
            dim[1] = sym_mul(g->sym, dim[1], s.dim[a]);
        }
        x = op_node_perm(g, n, x, s.rank, perm, 0);
    }
    *count = dim[0];
    return op_node_reshape(g, n, x, 2, dim, 0);
}

struct found {
    value_id rows, first, is_first;
    sym count;
};

static bool build_first(struct graph *g, node_id n, struct found *f, struct err *e)
{
    u32 from = g->node.n;
    f->rows = build_rows(g, n, &f->count);
    f->first = op_node1(g, n, "quern::UniqueFirst", f->rows, 0);
    f->is_first = graph_add_value(g, S("is_first"));
    node_set_out(g, op_made(g, f->first), 1, f->is_first);
    for (node_id k = from; k < g->node.n; k++)
        if (!op_infer(g, k, e)) return false;
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct value *x = graph_value(g, graph_node(g, n)->in.v[0]);
    struct shape to = {.known = true, .rank = 1}, one = to, all = to;
    enum dtype t = x->dtype;
    struct found f;
    u32 axis;
    if (node_attr(graph_node(g, n), "axis")) {
        to = x->shape;
        if (!has_axis(g, n, &axis)) return op_invalid(e, g, n, "bad attribute 'axis'");
    }
    if (op_get_syms(g, graph_node(g, n), "made_size", one.dim, 1) != 1) {
        if (!build_first(g, n, &f, e) || !op_count_nonzero(g, n, f.is_first, &one.dim[0], e)) return false;
        op_set_syms(g, n, "made_size", one.dim, 1);
    }
    x = graph_value(g, graph_node(g, n)->in.v[0]);
    all.dim[0] = has_axis(g, n, &axis) ? x->shape.dim[axis] : shape_count(g->sym, &x->shape);
    to.dim[axis] = one.dim[0];
    op_set_out(g, n, 0, t, &to);
    op_set_out(g, n, 1, DT_I64, &one);
    op_set_out(g, n, 2, DT_I64, &all);
    op_set_out(g, n, 3, DT_I64, &one);
    return true;
}

static value_id filled(struct graph *g, node_id n, i64 v, sym count)
{
    return op_node_expand(g, n, op_const_i(g, DT_I64, &v, 1), 1, &count, 0);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    struct found f;
    value_id out[4] = {0}, rank, place, at, x = graph_node(g, n)->in.v[0];
    u32 axis;
    sym size, all = shape_count(g->sym, &graph_value(g, x)->shape);
    i64 sorted = is_sorted(graph_node(g, n));
    for (u32 k = 0; k < graph_node(g, n)->out.n; k++) out[k] = graph_node(g, n)->out.v[k];
    if (op_get_syms(g, graph_node(g, n), "made_size", &size, 1) != 1 || !build_first(g, n, &f, e)) return false;
    rank = op_node2(g, n, "quern::UniqueRank", f.rows, f.first, out[2]);
    attr_set_int(g, op_made(g, rank), "sorted", sorted);
    place = op_node1(g, n, "NonZero", f.is_first, 0);
    op_set_syms(g, op_made(g, place), "made_size", &size, 1);
    at = op_node_reshape(g, n, place, 1, &size, sorted ? 0 : out[1]);
    if (sorted) {
        value_id to = op_node2(g, n, "Gather", rank, at, 0);
        at = op_node(g, n, "ScatterElements", 3, (value_id[]){filled(g, n, 0, size), to, at}, out[1]);
    }
    if (out[3]) {
        op_node(g, n, "ScatterElements", 3, (value_id[]){filled(g, n, 0, size), rank, filled(g, n, 1, f.count)}, out[3]);
        attr_set_str(g, op_made(g, out[3]), "reduction", S("add"));
    }
    if (!out[0]) return true;
    if (!has_axis(g, n, &axis)) x = op_node_reshape(g, n, x, 1, &all, 0);
    op_node2(g, n, "Gather", x, at, out[0]);
    attr_set_int(g, op_made(g, out[0]), "axis", axis);
    return true;
}

/* Comparison of rows. */

static int compare(const struct tensor *t, i64 a, i64 b)
{
    for (i64 k = 0, m = t->dim[1]; k < m; k++) {
        i64 i = a * m + k, j = b * m + k;
        if (dtype_is_float(t->dtype)) {
            double x = elem_f64(t->dtype, t->data, i), y = elem_f64(t->dtype, t->data, j);
            if (x < y || (x == x && y != y)) return -1;
            if (x > y || (y == y && x != x)) return 1;
        } else if (dtype_kind(t->dtype) == DK_UINT) {
            u64 x = (u64)elem_i64(t->dtype, t->data, i), y = (u64)elem_i64(t->dtype, t->data, j);
            if (x != y) return x < y ? -1 : 1;
        } else {
            i64 x = elem_i64(t->dtype, t->data, i), y = elem_i64(t->dtype, t->data, j);
            if (x != y) return x < y ? -1 : 1;
        }
    }
    return 0;
}

/* a < b, NaN last */
static kval is_less(struct kir *k, kval a, kval b)
{
    kval less = kir_lt(k, a, b);
    if (!dtype_is_float(kir_dtype(k, a))) return less;
    return kir_bin(k, KI_OR, less, kir_bin(k, KI_AND, kir_un(k, KI_ISNAN, b), kir_un(k, KI_NOT, kir_un(k, KI_ISNAN, a))));
}

/* Register `order` becomes -1, 0 or 1: how row a is to row b. Bool counts as an integer. */
static void emit_compare(struct emit *m, value_id rows, kval a, kval b, kval order)
{
    struct kir *k = m->k;
    kval zero = kir_int(k, 0), x, y;
    kir_store(k, order, zero, zero);
    kval i = kir_loop(k, KL_SERIAL, zero, emit_dim(m, rows, 1), 1);
    x = emit_value(m, rows, (kval[]){a, i});
    y = emit_value(m, rows, (kval[]){b, i});
    if (kir_dtype(k, x) == DT_BOOL) x = kir_cast(k, DT_I32, x), y = kir_cast(k, DT_I32, y);
    kval old = kir_load(k, order, zero);
    kval now = kir_select(k, is_less(k, x, y), kir_int(k, -1), kir_select(k, is_less(k, y, x), kir_int(k, 1), zero));
    kir_store(k, order, zero, kir_select(k, kir_bin(k, KI_EQ, old, zero), now, old));
    kir_end(k);
}

/* quern::UniqueFirst: (n, m) -> first (n), is_first (n) */

static bool first_infer(struct graph *g, node_id n, struct err *e)
{
    const struct value *x = graph_value(g, graph_node(g, n)->in.v[0]);
    struct shape to = {.known = true, .rank = 1};
    if (x->shape.rank != 2) return op_invalid(e, g, n, "input of rank %u, expected 2", x->shape.rank);
    to.dim[0] = x->shape.dim[0];
    op_set_out(g, n, 0, DT_I64, &to);
    op_set_out(g, n, 1, DT_BOOL, &to);
    return true;
}

static bool first_eval(const struct op_eval *v, struct err *e)
{
    for (i64 i = 0; i < v->in[0]->dim[0]; i++) {
        i64 j = 0;
        while (j < i && compare(v->in[0], j, i)) j++;
        if (v->out[0]) elem_set_i64(DT_I64, v->out[0]->data, i, j);
        if (v->n->out.n > 1 && v->out[1]) elem_set_i64(DT_BOOL, v->out[1]->data, i, i == j);
    }
    return true;
}

static void first_whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    kval zero = kir_int(k, 0), one = kir_int(k, 1), i = kir_grid(k, emit_dim(m, n->in.v[0], 0));
    kval first = kir_alloc(k, KS_REG, DT_I64, 1, one), order = kir_alloc(k, KS_REG, DT_I64, 1, one);
    kir_store(k, first, zero, i);
    kval j = kir_loop(k, KL_SERIAL, zero, i, 1);
    emit_compare(m, n->in.v[0], j, i, order);
    kval same = kir_bin(k, KI_EQ, kir_load(k, order, zero), zero), old = kir_load(k, first, zero);
    kir_store(k, first, zero, kir_select(k, same, kir_min(k, old, j), old));
    kir_end(k);
    kval at = kir_load(k, first, zero);
    if (emit_wants(m, n, 0)) emit_store(m, n->out.v[0], &i, at);
    if (n->out.n > 1 && emit_wants(m, n, 1)) emit_store(m, n->out.v[1], &i, kir_bin(k, KI_EQ, at, i));
    kir_end(k);
}

/* quern::UniqueRank: rows (n, m), first (n) -> rank (n) */

static bool rank_infer(struct graph *g, node_id n, struct err *e)
{
    const struct value *x = graph_value(g, graph_node(g, n)->in.v[0]), *first = graph_value(g, graph_node(g, n)->in.v[1]);
    if (x->shape.rank != 2 || first->shape.rank != 1 || first->dtype != DT_I64) return op_invalid(e, g, n, "bad inputs");
    op_set_out(g, n, 0, DT_I64, &first->shape);
    return true;
}

static bool rank_eval(const struct op_eval *v, struct err *e)
{
    for (i64 i = 0, n = v->in[0]->dim[0]; i < n; i++) {
        i64 rank = 0, first = elem_i64(DT_I64, v->in[1]->data, i);
        for (i64 j = 0; j < n; j++)
            rank += elem_i64(DT_I64, v->in[1]->data, j) == j && (is_sorted(v->n) ? compare(v->in[0], j, i) < 0 : j < first);
        elem_set_i64(DT_I64, v->out[0]->data, i, rank);
    }
    return true;
}

static void rank_whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    kval zero = kir_int(k, 0), one = kir_int(k, 1), i = kir_grid(k, emit_dim(m, n->in.v[0], 0));
    kval rank = kir_alloc(k, KS_REG, DT_I64, 1, one), order = kir_alloc(k, KS_REG, DT_I64, 1, one);
    kval first = emit_value(m, n->in.v[1], &i);
    kir_store(k, rank, zero, zero);
    kval j = kir_loop(k, KL_SERIAL, zero, emit_dim(m, n->in.v[0], 0), 1), before;
    if (is_sorted(n)) {
        emit_compare(m, n->in.v[0], j, i, order);
        before = kir_lt(k, kir_load(k, order, zero), zero);
    } else {
        before = kir_lt(k, j, first);
    }
    before = kir_bin(k, KI_AND, before, kir_bin(k, KI_EQ, emit_value(m, n->in.v[1], &j), j));
    kir_store(k, rank, zero, kir_add(k, kir_load(k, rank, zero), kir_cast(k, DT_I64, before)));
    kir_end(k);
    emit_store(m, n->out.v[0], &i, kir_load(k, rank, zero));
    kir_end(k);
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 d[MAX_RANK];
    return shape_eval(g->sym, &graph_value(g, n->in.v[0])->shape, var, d) ? (double)d[0] * (double)d[0] * (double)d[1] : 0;
}

static enum dtype random_type(struct rng *r)
{
    static const enum dtype t[] = {DT_F32, DT_I64, DT_I32, DT_BOOL, DT_U8};
    return t[rng_range(r, 0, countof(t) - 1)];
}

static void random_unique(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 3);
    i64 dim[3];
    value_id v;
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 6);
    random_input(g, "x", random_type(r), rank, dim, &v);
    node_id n = random_node(g, self, 1, &v, (u32)rng_range(r, 1, 4));
    attr_set_int(g, n, "sorted", rng_range(r, 0, 1));
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "axis", rng_range(r, -(i64)rank, rank - 1));
}

static void random_first(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[2] = {rng_range(r, 1, 9), rng_range(r, 1, 3)}, first[9];
    value_id in[2];
    random_input(g, "rows", random_type(r), 2, dim, &in[0]);
    for (i64 i = 0; i < dim[0]; i++) first[i] = rng_range(r, 0, i);
    if (self->max_in == 2) in[1] = op_const_i(g, DT_I64, first, dim[0]);
    node_id n = random_node(g, self, self->max_in, in, self->max_out);
    if (self->max_in == 2) attr_set_int(g, n, "sorted", rng_range(r, 0, 1));
}

static const struct op ops[] = {
    {.name = "Unique",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 4,
     .infer = infer,
     .expand = expand,
     .random = random_unique},
    {.name = "quern::UniqueFirst",
     .props = OP_HEAVY | OP_WHOLE,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 2,
     .infer = first_infer,
     .eval = first_eval,
     .whole = first_whole,
     .flops = flops,
     .random = random_first},
    {.name = "quern::UniqueRank",
     .attributes = "sorted:int",
     .props = OP_HEAVY | OP_WHOLE,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = rank_infer,
     .eval = rank_eval,
     .whole = rank_whole,
     .flops = flops,
     .random = random_first},
};

const struct op_family op_unique = {ops, countof(ops)};
