// SPDX-License-Identifier: Apache-2.0
//
// OneHot: a new axis of the given depth, one value where the position equals the index, the other
// elsewhere. Becomes quern::OneHot, which holds the symbolic depth. Negative indices count from the
// end; an index that names no position leaves all positions off.
#include "op/op.h"

#include <string.h>

/* Values that are known as sizes, at constant indices: repeat_interleave is exported so, as the repeats of a Tile. */
struct places {
    const struct tensor *index;
    i64 depth;
    u32 axis, values; /* the number of that input */
};

/* Whether the position is that of the index. */
static bool is_hot(const struct tensor *index, u32 axis, i64 depth, const i64 *at)
{
    i64 src[MAX_RANK];
    for (u32 a = 0; a < index->rank; a++) src[a] = at[a < axis ? a : a + 1];
    i64 i = elem_i64(index->dtype, index->data, op_flat(index->rank, index->dim, src));
    return (i < 0 ? i + depth : i) == at[axis];
}

static i64 map_place(const void *par, const i64 *out, i64 *in)
{
    const struct places *p = par;
    in[0] = is_hot(p->index, p->axis, p->depth, out);
    return p->values;
}

static bool set_result(struct graph *g, node_id n, u32 values, sym depth, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct shape to = graph_value(g, nd->in.v[0])->shape;
    const struct value *v = graph_value(g, nd->in.v[values]);
    i64 c, axis = attr_int(nd, "axis", -1);
    u32 a;
    if (to.rank == MAX_RANK) return op_unsupported(e, g, n, "rank %u", to.rank + 1);
    if (!op_axis(axis, to.rank + 1, &a))
        return op_invalid(e, g, n, "axis %lld with rank %u", (long long)axis, to.rank);
    if (v->shape.rank != 1 || !sym_is_const(g->sym, v->shape.dim[0], &c) || c != 2)
        return op_invalid(e, g, n, "values are no pair");
    if (sym_is_const(g->sym, depth, &c) && c < 0)
        return op_invalid(e, g, n, "depth %lld", (long long)c);
    for (u32 i = to.rank++; i > a; i--) to.dim[i] = to.dim[i - 1];
    to.dim[a] = depth;
    op_set_out(g, n, 0, v->dtype, &to);
    struct places p = {.index = graph_value(g, nd->in.v[0])->data, .axis = a, .values = values};
    if (p.index && sym_is_const(g->sym, depth, &p.depth)) op_map_sdata(g, n, 0, map_place, &p);
    return true;
}

/* One number; fractions are cut off, as a cast to an integer does. */
static bool read_depth(const struct graph *g, node_id n, sym *depth)
{
    value_id v = graph_node(g, n)->in.v[1];
    struct sym_data d;
    if (!op_sym_content(g, v, 1, &d) || d.n != 1) return false;
    *depth = sym_div(g->sym, d.num[0], sym_const(g->sym, d.den));
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    sym depth;
    if (!read_depth(g, n, &depth))
        return op_unsupported(e, g, n, "the depth is only known at run time");
    return set_result(g, n, 2, depth, e);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    sym depth;
    if (!read_depth(g, n, &depth))
        return op_unsupported(e, g, n, "the depth is only known at run time");
    i64 axis = attr_int(graph_node(g, n), "axis", -1);
    value_id values = graph_node(g, n)->in.v[2];
    node_id to = op_replace(g, n, "quern::OneHot", 1);
    node_add_in(g, to, values);
    attr_set_int(g, to, "axis", axis);
    op_set_syms(g, to, "depth", &depth, 1);
    return true;
}

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    sym depth;
    if (op_get_syms(g, graph_node(g, n), "depth", &depth, 1) != 1)
        return op_invalid(e, g, n, "bad attribute 'depth'");
    return set_result(g, n, 1, depth, e);
}

static bool prim_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *in = v->in[0], *values = v->in[1];
    struct tensor *out = v->out[0];
    i64 idx[MAX_RANK] = {0}, n = tensor_count(out), size = dtype_size(out->dtype);
    u32 axis;
    op_axis(attr_int(v->n, "axis", -1), out->rank, &axis);
    for (i64 i = 0; i < n; i++, op_next(out->rank, out->dim, idx))
        memcpy((char *)out->data + i * size, (const char *)values->data + is_hot(in, axis, out->dim[axis], idx) * size, (size_t)size);
    return true;
}

static kval prim_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    const struct shape *to = &graph_value(m->g, n->out.v[0])->shape;
    kval src[MAX_RANK], one = kir_int(m->k, 1), zero = kir_int(m->k, 0);
    u32 axis;
    op_axis(attr_int(n, "axis", -1), to->rank, &axis);
    for (u32 a = 0; a + 1 < to->rank; a++) src[a] = idx[a < axis ? a : a + 1];
    kval at = kir_cast(m->k, DT_I64, emit_value(m, n->in.v[0], src));
    kval end = kir_bin(m->k, KI_ADD, at, emit_size(m, to->dim[axis]));
    at = kir_select(m->k, kir_bin(m->k, KI_LT, at, zero), end, at);
    kval hot = kir_bin(m->k, KI_EQ, at, idx[axis]);
    kval off = emit_value(m, n->in.v[1], &zero);
    return kir_select(m->k, hot, emit_value(m, n->in.v[1], &one), off);
}

static void random_one_hot(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 0, 3), n_in = self->max_in;
    i64 dim[3], depth = rng_range(r, 1, 5), two = 2;
    value_id in[3];
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 4);
    random_input(g, "x", DT_I64, rank, dim, &in[0]);
    if (n_in == 3) in[1] = op_const_i(g, DT_I64, &depth, 1);
    random_input(g, "values", DT_F32, 1, &two, &in[n_in - 1]);
    node_id n = random_node(g, self, n_in, in, 1);
    sym s = sym_const(g->sym, depth);
    if (n_in == 2) op_set_syms(g, n, "depth", &s, 1);
    attr_set_int(g, n, "axis", rng_range(r, -(i64)rank - 1, rank));
}

static const struct op ops[] = {
    {.name = "OneHot",
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .expand = expand,
     .random = random_one_hot},
    {.name = "quern::OneHot",
     .attributes = "axis:int depth:strings",
     .props = OP_VIEW,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = prim_infer,
     .eval = prim_eval,
     .lower = prim_lower,
     .random = random_one_hot},
};

const struct op_family op_one_hot = {ops, countof(ops)};
