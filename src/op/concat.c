// SPDX-License-Identifier: Apache-2.0
//
// Concat: inputs along one axis. Lowering selects by the position on that axis, with the index into
// each part clamped, so every part may be read at any position; parts that a constant position
// cannot be in are omitted. A ramp along the axis stays a ramp if it cannot cross a border between
// parts.
#include "op/op.h"

struct parts {
    u32 axis, n;
    const i64 *from; /* position of each part */
};

static i64 map(const void *par, const i64 *out, i64 *in)
{
    const struct parts *p = par;
    u32 k = p->n - 1;
    for (u32 a = 0; a < MAX_RANK; a++) in[a] = out[a];
    while (k > 0 && out[p->axis] < p->from[k]) k--;
    in[p->axis] -= p->from[k];
    return k;
}

static bool add_size(struct graph *g, node_id n, u32 k, u32 axis, struct shape *to, struct err *e)
{
    const struct shape *s = &graph_value(g, graph_node(g, n)->in.v[k])->shape;
    if (s->rank != to->rank)
        return op_invalid(e, g, n, "input %u has rank %u, input 0 rank %u", k, s->rank, to->rank);
    for (u32 a = 0; a < to->rank; a++) {
        if (a == axis) to->dim[a] = sym_add(g->sym, to->dim[a], s->dim[a]);
        else if (!op_require_equal(g, n, s->dim[a], to->dim[a], e, "axis %u of input %u and of input 0", a, k))
            return false;
    }
    return true;
}

static void fold(struct graph *g, node_id n, u32 axis)
{
    const struct node *nd = graph_node(g, n);
    struct arena scratch = {0};
    i64 *from = arena_array(&scratch, i64, nd->in.n), at = 0, dim[MAX_RANK];
    struct parts p = {.axis = axis, .n = nd->in.n, .from = from};
    bool known = true;
    for (u32 k = 0; known && k < nd->in.n; k++) {
        from[k] = at;
        known = shape_is_static(g->sym, &graph_value(g, nd->in.v[k])->shape, dim);
        at += known ? dim[axis] : 0;
    }
    if (known) op_map_sdata(g, n, 0, map, &p);
    arena_release(&scratch);
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct value *first = graph_value(g, nd->in.v[0]);
    struct shape to = first->shape;
    u32 axis;
    if (!op_axis(attr_int(nd, "axis", 1), to.rank, &axis))
        return op_invalid(e, g, n, "axis %lld with rank %u", (long long)attr_int(nd, "axis", 1),
                          to.rank);
    for (u32 k = 1; k < nd->in.n; k++) {
        if (graph_value(g, nd->in.v[k])->dtype != first->dtype)
            return op_invalid(e, g, n, "input %u has another type than input 0", k);
        if (!add_size(g, n, k, axis, &to, e)) return false;
    }
    op_set_out(g, n, 0, first->dtype, &to);
    fold(g, n, axis);
    return true;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    i64 *from = arena_array(v->scratch, i64, v->n->in.n), at = 0;
    struct parts p = {.n = v->n->in.n, .from = from};
    op_axis(attr_int(v->n, "axis", 1), v->out[0]->rank, &p.axis);
    for (u32 k = 0; k < p.n; k++) {
        from[k] = at;
        at += v->in[k]->dim[p.axis];
    }
    return op_map_eval(v, map, &p);
}

/* A scalar that decides like the ramp idx: its first lane, when no border of a part falls between
 * its lanes. 0: none. */
static kval uniform_position(struct emit *m, const struct node *n, u32 axis, kval idx)
{
    const struct kir_ins ramp = *kir_at(m->k, idx);
    i64 c;
    if (ramp.op != KI_RAMP || ramp.imm.i != 1 || !emit_is_multiple(m->k, ramp.a, ramp.lanes))
        return 0;
    for (u32 k = 0; k < n->in.n; k++) {
        sym d = graph_value(m->g, n->in.v[k])->shape.dim[axis];
        if (!sym_is_const(m->g->sym, d, &c) || c % ramp.lanes) return 0;
    }
    return ramp.a;
}

struct lowering {
    struct emit *m;
    const struct node *n;
    u32 axis;
    const kval *idx;
    kval uniform; /* see uniform_position */
};

/* Element of part k, which begins at `from`. Clamped to the part unless the position is known to be in it. */
static kval lower_part(const struct lowering *l, u32 k, sym from, bool is_certain)
{
    struct emit *m = l->m;
    value_id v = l->n->in.v[k];
    const struct shape *s = &graph_value(m->g, v)->shape;
    kval src[MAX_RANK], at = l->uniform ? l->uniform : l->idx[l->axis];
    u32 lanes = l->uniform ? kir_lanes(m->k, l->idx[l->axis]) : 1;
    for (u32 a = 0; a < s->rank; a++) src[a] = l->idx[a];
    at = kir_bin(m->k, KI_SUB, at, emit_size(m, from));
    if (!is_certain)
        at = emit_clamp(m, at,
                        sym_add(m->g->sym, s->dim[l->axis], sym_const(m->g->sym, 1 - (i64)lanes)));
    src[l->axis] = l->uniform ? kir_ramp(m->k, at, 1, lanes) : at;
    return is_certain ? emit_value(m, v, src) : emit_clamped(m, v, src, 1u << l->axis);
}

/* First and last position of a constant index, scalar or ramp. */
static bool position(const struct emit *m, kval at, i64 *first, i64 *last)
{
    const struct kir_ins i = *kir_at(m->k, at);
    if (i.op == KI_RAMP && i.imm.i == 1 && kir_is_const(m->k, i.a, first)) {
        *last = *first + i.lanes - 1;
        return true;
    }
    *last = 0;
    if (!kir_is_const(m->k, at, first) || kir_lanes(m->k, at) != 1) return false;
    *last = *first;
    return true;
}

/* Whether the position may be in the part from..end-1. */
static bool may_be_in(const struct emit *m, kval at, sym from, sym end)
{
    i64 c, first, last;
    if (from == end) return false;
    if (!position(m, at, &first, &last)) return true;
    if (sym_is_const(m->g->sym, end, &c) && first >= c) return false;
    return !sym_is_const(m->g->sym, from, &c) || last >= c;
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    const struct shape *to = &graph_value(m->g, n->out.v[0])->shape;
    struct lowering l = {.m = m, .n = n, .idx = idx};
    op_axis(attr_int(n, "axis", 1), to->rank, &l.axis);
    l.uniform = uniform_position(m, n, l.axis, idx[l.axis]);
    kval at = l.uniform ? l.uniform : idx[l.axis], v = 0;
    sym *from = arena_array(m->arena, sym, n->in.n + 1);
    u32 n_parts = 0;
    from[0] = sym_const(m->g->sym, 0);
    for (u32 k = 0; k < n->in.n; k++) {
        from[k + 1] = sym_add(m->g->sym, from[k], graph_value(m->g, n->in.v[k])->shape.dim[l.axis]);
        n_parts += may_be_in(m, at, from[k], from[k + 1]);
    }
    for (u32 k = n->in.n; k-- > 0;) {
        if (!may_be_in(m, at, from[k], from[k + 1])) continue;
        kval part = lower_part(&l, k, from[k], n_parts == 1);
        v = v ? kir_select(m->k, kir_bin(m->k, KI_LT, at, emit_size(m, from[k + 1])), part, v) : part;
    }
    return v ? v : emit_zero(m, graph_value(m->g, n->out.v[0])->dtype);
}

static bool join(const struct graph *g, const struct node *n, u32 *axis)
{
    return op_axis(attr_int(n, "axis", 1), graph_value(g, n->out.v[0])->shape.rank, axis);
}

static void random_concat(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 4), axis = (u32)rng_range(r, 0, rank - 1),
        count = (u32)rng_range(r, 1, 4);
    value_id in[4];
    i64 dim[4];
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 5);
    for (u32 k = 0; k < count; k++) {
        dim[axis] = rng_range(r, 0, 9) ? rng_range(r, 1, 9) : 0;
        random_input(g, "x", DT_F32, rank, dim, &in[k]);
    }
    attr_set_int(g, random_node(g, self, count, in, 1), "axis",
                 (i64)axis - (rng_range(r, 0, 1) ? rank : 0));
}

static const struct op ops[] = {
    {.name = "Concat",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 255,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .join = join,
     .random = random_concat},
};

const struct op_family op_concat = {ops, countof(ops)};
