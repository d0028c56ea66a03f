// SPDX-License-Identifier: Apache-2.0
//
// TopK: the k largest or smallest elements along an axis with their positions. Becomes quern::TopK,
// which holds the symbolic k. The result is always sorted; ties go to the lower position; NaN
// counts as larger than every number.
//
// The kernel processes one line per grid iteration and k times selects the first element after the
// previous one in that total order: k passes over the line, without memory for the selected
// elements.
#include "op/op.h"

static bool set_result(struct graph *g, node_id n, sym k, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct value *x = graph_value(g, nd->in.v[0]);
    struct shape to = x->shape;
    i64 c, d, axis = attr_int(nd, "axis", -1);
    u32 a;
    if (!op_axis(axis, to.rank, &a))
        return op_invalid(e, g, n, "axis %lld with rank %u", (long long)axis, to.rank);
    if (x->dtype == DT_BOOL) return op_invalid(e, g, n, "type bool");
    if (sym_is_const(g->sym, k, &c) && (c < 0 || (sym_is_const(g->sym, to.dim[a], &d) && c > d)))
        return op_invalid(e, g, n, "k is %lld", (long long)c);
    if (!op_require_at_least(g, n, to.dim[a], k, e, "axis %u and k", a)) return false;
    to.dim[a] = sym_current(g->sym, k);
    op_set_out(g, n, 0, x->dtype, &to);
    op_set_out(g, n, 1, DT_I64, &to);
    return true;
}

/* A data-dependent k is at most the size of the axis. */
static bool read_k(struct graph *g, node_id n, sym *k)
{
    i64 count;
    u32 a;
    const struct shape *s = &graph_value(g, graph_node(g, n)->in.v[0])->shape;
    if (!op_data_ints(g, graph_node(g, n)->in.v[1], k, 1, &count) || count != 1) return false;
    if (op_is_made(g, *k) && op_axis(attr_int(graph_node(g, n), "axis", -1), s->rank, &a)) *k = op_let(g, n, *k, s->dim[a]);
    return true;
}

/* k was an attribute before opset 10. */
static bool upgrade(struct graph *g, node_id n, i64 opset, struct err *e)
{
    i64 k = attr_int(graph_node(g, n), "k", 0);
    if (opset < 10 && graph_node(g, n)->in.n == 1) {
        node_add_in(g, n, op_const_i(g, DT_I64, &k, 1));
        attr_remove(g, n, "k");
    }
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    sym k;
    if (!read_k(g, n, &k)) return op_unsupported(e, g, n, "k is only known at run time");
    return set_result(g, n, k, e);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    sym k;
    const struct node *nd = graph_node(g, n);
    i64 axis = attr_int(nd, "axis", -1), largest = attr_int(nd, "largest", 1);
    if (!read_k(g, n, &k)) return op_unsupported(e, g, n, "k is only known at run time");
    node_id to = op_replace(g, n, "quern::TopK", 1);
    op_set_syms(g, to, "k", &k, 1);
    attr_set_int(g, to, "axis", axis);
    attr_set_int(g, to, "largest", largest);
    return true;
}

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    sym k;
    if (op_get_syms(g, graph_node(g, n), "k", &k, 1) != 1)
        return op_invalid(e, g, n, "bad attribute 'k'");
    return set_result(g, n, k, e);
}

/* Evaluation: the number of preceding elements is an element's place in the result. */

static bool is_less(const struct tensor *t, i64 a, i64 b)
{
    switch (dtype_kind(t->dtype)) {
    case DK_UINT: return (u64)elem_i64(t->dtype, t->data, a) < (u64)elem_i64(t->dtype, t->data, b);
    case DK_INT:
    case DK_BOOL: return elem_i64(t->dtype, t->data, a) < elem_i64(t->dtype, t->data, b);
    case DK_FLOAT: break;
    case DK_NONE: unreachable();
    }
    double x = elem_f64(t->dtype, t->data, a), y = elem_f64(t->dtype, t->data, b);
    return x < y || (x == x && y != y);
}

static void copy_elem(struct tensor *to, i64 at, const struct tensor *from, i64 i)
{
    if (dtype_is_float(to->dtype))
        elem_set_f64(to->dtype, to->data, at, elem_f64(from->dtype, from->data, i));
    else elem_set_i64(to->dtype, to->data, at, elem_i64(from->dtype, from->data, i));
}

static void place(const struct op_eval *v, i64 *idx, u32 axis, bool largest)
{
    const struct tensor *x = v->in[0];
    i64 self = idx[axis], at = op_flat(x->rank, x->dim, idx), before = 0;
    for (i64 i = 0; i < x->dim[axis]; i++) {
        idx[axis] = i;
        i64 other = op_flat(x->rank, x->dim, idx);
        bool wins = largest ? is_less(x, at, other) : is_less(x, other, at);
        bool ties = !is_less(x, at, other) && !is_less(x, other, at);
        before += wins || (ties && i < self);
    }
    idx[axis] = before;
    for (u32 k = 0; k < v->n->out.n; k++) {
        struct tensor *out = v->out[k];
        if (!out || before >= out->dim[axis]) continue;
        if (k == 0) copy_elem(out, op_flat(out->rank, out->dim, idx), x, at);
        else elem_set_i64(DT_I64, out->data, op_flat(out->rank, out->dim, idx), self);
    }
    idx[axis] = self;
}

static bool prim_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[0];
    i64 idx[MAX_RANK] = {0}, n = tensor_count(x);
    u32 axis;
    op_axis(attr_int(v->n, "axis", -1), x->rank, &axis);
    for (i64 i = 0; i < n; i++, op_next(x->rank, x->dim, idx))
        place(v, idx, axis, attr_int(v->n, "largest", 1));
    return true;
}

/* Whether a precedes b by value. NaN is the largest. */
static kval is_before(struct kir *k, kval a, kval b, bool largest)
{
    kval less = largest ? kir_bin(k, KI_LT, b, a) : kir_bin(k, KI_LT, a, b);
    if (!dtype_is_float(kir_dtype(k, a))) return less;
    kval nan_a = kir_un(k, KI_ISNAN, a), nan_b = kir_un(k, KI_ISNAN, b);
    kval first = largest ? kir_bin(k, KI_AND, nan_a, kir_un(k, KI_NOT, nan_b))
                         : kir_bin(k, KI_AND, nan_b, kir_un(k, KI_NOT, nan_a));
    return kir_bin(k, KI_OR, less, first);
}

/* Registers of one line: the element taken last and the best one after it so far. */
struct state {
    kval last, last_at, best, best_at;
};

/* Considers element x at position i: the best so far unless it precedes the last one or follows the
   best. */
static void consider(struct emit *m, const struct state *s, kval x, kval i, bool largest)
{
    struct kir *k = m->k;
    kval zero = kir_int(k, 0);
    kval last = kir_load(k, s->last, zero), last_at = kir_load(k, s->last_at, zero);
    kval best = kir_load(k, s->best, zero), best_at = kir_load(k, s->best_at, zero);
    kval fresh = kir_bin(k, KI_LT, last_at, zero), none = kir_bin(k, KI_LT, best_at, zero);
    kval tie_behind = kir_bin(k, KI_AND, kir_un(k, KI_NOT, is_before(k, x, last, largest)),
                              kir_bin(k, KI_LT, last_at, i));
    kval behind =
        kir_bin(k, KI_OR, fresh, kir_bin(k, KI_OR, is_before(k, last, x, largest), tie_behind));
    kval better =
        kir_bin(k, KI_AND, behind, kir_bin(k, KI_OR, none, is_before(k, x, best, largest)));
    kir_store(k, s->best, zero, kir_select(k, better, x, best));
    kir_store(k, s->best_at, zero, kir_select(k, better, i, best_at));
}

static void prim_whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    value_id v = n->in.v[0];
    const struct value *x = graph_value(m->g, v);
    bool inside[MAX_RANK] = {0}, largest = attr_int(n, "largest", 1);
    kval idx[MAX_RANK], src[MAX_RANK], zero = kir_int(k, 0), one = kir_int(k, 1),
                                       none = kir_int(k, -1);
    enum dtype t = emit_type(x->dtype);
    sym count = 0;
    u32 axis;
    op_axis(attr_int(n, "axis", -1), x->shape.rank, &axis);
    op_get_syms(m->g, n, "k", &count, 1);
    inside[axis] = true;
    emit_slices(m, &x->shape, inside, idx);
    struct state s = {kir_alloc(k, KS_REG, t, 1, one), kir_alloc(k, KS_REG, DT_I64, 1, one),
                      kir_alloc(k, KS_REG, t, 1, one), kir_alloc(k, KS_REG, DT_I64, 1, one)};
    kir_store(k, s.last, zero, emit_zero(m, x->dtype));
    kir_store(k, s.last_at, zero, none);
    idx[axis] = kir_loop(k, KL_SERIAL, zero, emit_size(m, count), 1);
    kir_store(k, s.best, zero, emit_zero(m, x->dtype));
    kir_store(k, s.best_at, zero, none);
    for (u32 a = 0; a < x->shape.rank; a++) src[a] = idx[a];
    src[axis] = kir_loop(k, KL_SERIAL, zero, emit_dim(m, v, axis), 1);
    consider(m, &s, emit_value(m, v, src), src[axis], largest);
    kir_end(k);
    kval best = kir_load(k, s.best, zero),
         at = kir_load(k, s.best_at, zero);
    if (emit_wants(m, n, 0)) emit_store(m, n->out.v[0], idx, best);
    if (emit_wants(m, n, 1)) emit_store(m, n->out.v[1], idx, at);
    kir_store(k, s.last, zero, best);
    kir_store(k, s.last_at, zero, at);
    kir_end(k);
    kir_end(k);
}

static void random_topk(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 4);
    i64 dim[4], axis = rng_range(r, -(i64)rank, rank - 1), k;
    value_id in[2];
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 6);
    k = rng_range(r, 0, dim[axis < 0 ? axis + rank : axis]);
    random_input(g, "x", rng_range(r, 0, 1) ? DT_F32 : DT_I32, rank, dim, &in[0]);
    in[1] = self->max_in == 2 ? op_const_i(g, DT_I64, &k, 1) : 0;
    node_id n = random_node(g, self, self->max_in, in, 2);
    sym s = sym_const(g->sym, k);
    if (self->max_in == 1) op_set_syms(g, n, "k", &s, 1);
    attr_set_int(g, n, "axis", axis);
    attr_set_int(g, n, "largest", rng_range(r, 0, 1));
}

static const struct op ops[] = {
    {.name = "TopK",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 2,
     .upgrade = upgrade,
     .infer = infer,
     .expand = expand,
     .random = random_topk},
    {.name = "quern::TopK",
     .attributes = "axis:int k:strings largest:int",
     .props = OP_HEAVY | OP_WHOLE,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 2,
     .infer = prim_infer,
     .eval = prim_eval,
     .whole = prim_whole,
     .random = random_topk},
};

const struct op_family op_topk = {ops, countof(ops)};
