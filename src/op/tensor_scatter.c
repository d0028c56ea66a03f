// SPDX-License-Identifier: Apache-2.0
//
// TensorScatter (opset 24): a cache (b, ..., max, ...) with an update (b, ..., s, ...) written over
// positions w[b] .. w[b]+s-1 of one axis, in mode circular modulo max. Kernels gather: an element
// comes from the update where its distance from w[b] is below s, else from the cache, so the
// operator fuses like any other that only chooses elements.
#include "op/op.h"

enum { IN_CACHE, IN_UPDATE, IN_START };

static bool read_axis(const struct graph *g, const struct node *nd, u32 *axis, bool *circular)
{
    struct str mode = attr_str(nd, "mode", "linear");
    *circular = str_is(mode, "circular");
    return op_axis(attr_int(nd, "axis", -2), op_in_shape(g, nd, IN_CACHE)->rank, axis) && *axis > 0 &&
           (*circular || str_is(mode, "linear"));
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape s = *op_in_shape(g, nd, IN_CACHE), *u = op_in_shape(g, nd, IN_UPDATE);
    enum dtype t = op_in_dtype(g, nd, IN_CACHE);
    u32 axis;
    bool circular;
    i64 room;
    if (!read_axis(g, nd, &axis, &circular)) return op_invalid(e, g, n, "attribute 'axis' or 'mode'");
    if (op_in_dtype(g, nd, IN_UPDATE) != t)
        return op_invalid(e, g, n, "an update of type %s for a cache of %s", dtype_name(op_in_dtype(g, nd, IN_UPDATE)),
                          dtype_name(t));
    for (u32 i = 0; i < s.rank || i < u->rank; i++)
        if (s.rank != u->rank || (i != axis && !op_sizes_agree(g, s.dim[i], u->dim[i])))
            return op_invalid(e, g, n, "the update does not fit the cache");
    if (sym_is_const(g->sym, sym_sub(g->sym, s.dim[axis], u->dim[axis]), &room) && room < 0)
        return op_invalid(e, g, n, "the update is longer than the cache by %lld", (long long)-room);
    if (op_has_in(nd, IN_START) && (op_in_shape(g, nd, IN_START)->rank != 1 || !dtype_is_int(op_in_dtype(g, nd, IN_START))))
        return op_invalid(e, g, n, "write_indices must be a vector of integers");
    if (op_has_in(nd, IN_START) &&
        !op_require_equal(g, n, op_in_shape(g, nd, IN_START)->dim[0], s.dim[0], e, "the number of write_indices and the cache's first axis"))
        return false;
    op_set_out(g, n, 0, t, &s);
    return true;
}

/* A position, wrapped to 0 .. max-1 if circular. */
static i64 distance(i64 at, i64 start, i64 max, bool circular)
{
    i64 d = (i64)((u64)at - (u64)start);
    return circular && max > 0 ? (d % max + max) % max : d;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *cache = v->in[IN_CACHE], *u = v->in[IN_UPDATE],
                        *start = v->n->in.n > IN_START ? v->in[IN_START] : NULL;
    struct tensor *out = v->out[0];
    u32 axis;
    bool circular;
    i64 idx[MAX_RANK] = {0}, from[MAX_RANK], n = tensor_count(out);
    read_axis(v->g, v->n, &axis, &circular);
    for (i64 i = 0; i < n; i++, op_next(out->rank, out->dim, idx)) {
        i64 w = start ? elem_i64(start->dtype, start->data, idx[0]) : 0;
        i64 d = distance(idx[axis], w, out->dim[axis], circular);
        bool is_new = d >= 0 && d < u->dim[axis];
        for (u32 a = 0; a < out->rank; a++) from[a] = a == axis && is_new ? d : idx[a];
        const struct tensor *x = is_new ? u : cache;
        i64 at = op_flat(x->rank, x->dim, from);
        if (dtype_is_float(out->dtype)) elem_set_f64(out->dtype, out->data, i, elem_f64(x->dtype, x->data, at));
        else elem_set_i64(out->dtype, out->data, i, elem_i64(x->dtype, x->data, at));
    }
    return true;
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    const struct shape *s = op_in_shape(m->g, n, IN_CACHE), *u = op_in_shape(m->g, n, IN_UPDATE);
    u32 axis;
    bool circular;
    kval from[MAX_RANK];
    read_axis(m->g, n, &axis, &circular);
    kval max = emit_size(m, sym_max(m->g->sym, s->dim[axis], sym_const(m->g->sym, 1))), d = idx[axis];
    if (op_has_in(n, IN_START)) d = kir_sub(k, d, kir_cast(k, DT_I64, emit_value(m, n->in.v[IN_START], idx)));
    if (circular) d = kir_bin(k, KI_MOD, kir_add(k, kir_bin(k, KI_MOD, d, max), max), max);
    kval is_new = kir_bin(k, KI_LT, d, emit_size(m, u->dim[axis]));
    is_new = kir_bin(k, KI_AND, kir_bin(k, KI_LE, kir_int(k, 0), d), is_new);
    for (u32 a = 0; a < s->rank; a++) from[a] = a == axis ? emit_clamp(m, d, u->dim[axis]) : idx[a];
    kval old = emit_value(m, n->in.v[IN_CACHE], idx);
    return kir_select(k, is_new, emit_clamped(m, n->in.v[IN_UPDATE], from, 1u << axis), old);
}

static void random_cache(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 2, 4), axis = (u32)rng_range(r, 1, rank - 1);
    i64 dim[4], part[4], start[3];
    bool circular = rng_range(r, 0, 1);
    value_id in[3] = {0};
    for (u32 i = 0; i < rank; i++) part[i] = dim[i] = rng_range(r, 1, i ? 6 : 3);
    part[axis] = rng_range(r, 1, dim[axis]);
    for (i64 i = 0; i < dim[0]; i++) start[i] = rng_range(r, 0, circular ? 2 * dim[axis] : dim[axis] - part[axis]);
    static const enum dtype types[] = {DT_F32, DT_F32, DT_I32, DT_F8E5M2};
    enum dtype t = types[rng_range(r, 0, countof(types) - 1)];
    random_input(g, "cache", t, rank, dim, &in[IN_CACHE]);
    random_input(g, "update", t, rank, part, &in[IN_UPDATE]);
    if (rng_range(r, 0, 2)) in[IN_START] = op_const_i(g, DT_I64, start, dim[0]);
    node_id n = random_node(g, self, in[IN_START] ? 3 : 2, in, 1);
    attr_set_int(g, n, "axis", rng_range(r, 0, 1) ? (i64)axis : (i64)axis - rank);
    if (circular) attr_set_str(g, n, "mode", S("circular"));
}

static const struct op ops[] = {
    {.name = "TensorScatter",
     .props = OP_SMALL,
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .random = random_cache},
};

const struct op_family op_tensor_scatter = {ops, countof(ops)};
