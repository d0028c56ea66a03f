// SPDX-License-Identifier: Apache-2.0
//
// Gather, GatherElements, GatherND: reads at indices that come from data. Negative indices count
// from the end. Constant indices outside the axis are refused; others are clamped, so that data
// never leads outside the input.
#include "op/op.h"

/* Constant indices must be in -dim..dim-1; element i belongs to dim[i % n_dims]. An unknown size is
   large enough by a fact. */
static bool check_indices(struct graph *g, node_id n, const sym *dim, u32 n_dims, struct err *e)
{
    const struct value *x = graph_value(g, graph_node(g, n)->in.v[1]);
    i64 d, least[MAX_RANK] = {0};
    if (!dtype_is_int(x->dtype))
        return op_invalid(e, g, n, "indices of type %s", dtype_name(x->dtype));
    for (i64 i = 0; x->data && i < tensor_count(x->data); i++) {
        i64 at = elem_i64(x->dtype, x->data->data, i);
        if (sym_is_const(g->sym, dim[i % n_dims], &d) && (at < -d || at >= d))
            return op_invalid(e, g, n, "index %lld with size %lld", (long long)at, (long long)d);
        if (at == INT64_MIN || at == INT64_MAX) return op_invalid(e, g, n, "index %lld", (long long)at);
        least[i % n_dims] = i64_max(least[i % n_dims], at < 0 ? -at : at + 1);
    }
    for (u32 a = 0; a < n_dims; a++)
        if (!op_require_at_least(g, n, dim[a], sym_const(g->sym, least[a]), e, "the size that constant indices refer to")) return false;
    return true;
}

/* All three as one map: the source index is the output's, spread over data axes, with some axes
 * from the indices. */
struct gather {
    const struct tensor *index; /* NULL until evaluation */
    i64 data_dim[MAX_RANK];
    u32 axis;    /* Gather, GatherElements; batch dims of GatherND */
    u32 rank;    /* of the data */
    u32 n_index; /* rank of the indices */
    u32 n_tuple; /* GatherND: axes one tuple names */
};

static i64 index_at(const struct gather *p, const i64 *idx, i64 dim)
{
    const struct tensor *t = p->index;
    return op_index(elem_i64(t->dtype, t->data, op_flat(t->rank, t->dim, idx)), dim);
}

static i64 map_gather(const void *par, const i64 *out, i64 *in)
{
    const struct gather *p = par;
    for (u32 a = 0; a < p->axis; a++) in[a] = out[a];
    for (u32 a = p->axis + 1; a < p->rank; a++) in[a] = out[a + p->n_index - 1];
    in[p->axis] = index_at(p, out + p->axis, p->data_dim[p->axis]);
    return 0;
}

static i64 map_elements(const void *par, const i64 *out, i64 *in)
{
    const struct gather *p = par;
    for (u32 a = 0; a < p->rank; a++)
        in[a] = a == p->axis ? index_at(p, out, p->data_dim[a]) : out[a];
    return 0;
}

static i64 map_nd(const void *par, const i64 *out, i64 *in)
{
    const struct gather *p = par;
    i64 at[MAX_RANK];
    u32 n = p->n_index - 1; /* output axes that choose the tuple */
    for (u32 a = 0; a < n; a++) at[a] = out[a];
    for (u32 a = 0; a < p->axis; a++) in[a] = out[a];
    for (u32 j = 0; j < p->n_tuple; j++) {
        at[n] = j;
        in[p->axis + j] = index_at(p, at, p->data_dim[p->axis + j]);
    }
    for (u32 a = p->axis + p->n_tuple; a < p->rank; a++) in[a] = out[n + a - p->axis - p->n_tuple];
    return 0;
}

/* Content, where the indices are known. */
static void fold(struct graph *g, node_id n, op_map_fn *map, struct gather *p)
{
    const struct node *nd = graph_node(g, n);
    const struct value *x = graph_value(g, nd->in.v[1]);
    struct tensor t = {.dtype = DT_I64, .rank = x->shape.rank};
    i64 idx[256];
    i64 count = op_const_ints(g, nd->in.v[1], idx, countof(idx));
    if (count < 0 || !shape_is_static(g->sym, &graph_value(g, nd->in.v[0])->shape, p->data_dim) ||
        !shape_is_static(g->sym, &x->shape, t.dim))
        return;
    for (u32 a = 0; a < p->rank; a++)
        if (p->data_dim[a] == 0) return;
    t.data = idx;
    p->index = &t;
    op_map_sdata(g, n, 0, map, p);
}

static bool read_axis(struct graph *g, node_id n, struct gather *p, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    p->rank = graph_value(g, nd->in.v[0])->shape.rank;
    p->n_index = graph_value(g, nd->in.v[1])->shape.rank;
    i64 axis = attr_int(nd, "axis", 0);
    if (!op_axis(axis, p->rank, &p->axis))
        return op_invalid(e, g, n, "axis %lld with rank %u", (long long)axis, p->rank);
    return check_indices(g, n, graph_value(g, nd->in.v[0])->shape.dim + p->axis, 1, e);
}

static bool gather_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct value *x = graph_value(g, nd->in.v[0]), *index = graph_value(g, nd->in.v[1]);
    struct gather p = {0};
    if (!read_axis(g, n, &p, e)) return false;
    struct shape to = {.known = true, .rank = p.rank + p.n_index - 1};
    if (to.rank > MAX_RANK) return op_unsupported(e, g, n, "rank %u", to.rank);
    for (u32 a = 0; a < p.axis; a++) to.dim[a] = x->shape.dim[a];
    for (u32 a = 0; a < p.n_index; a++) to.dim[p.axis + a] = index->shape.dim[a];
    for (u32 a = p.axis + 1; a < p.rank; a++) to.dim[a + p.n_index - 1] = x->shape.dim[a];
    op_set_out(g, n, 0, x->dtype, &to);
    fold(g, n, map_gather, &p);
    return true;
}

static bool elements_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct value *x = graph_value(g, nd->in.v[0]), *index = graph_value(g, nd->in.v[1]);
    struct gather p = {0};
    i64 c, d;
    if (!read_axis(g, n, &p, e)) return false;
    if (p.rank != p.n_index)
        return op_invalid(e, g, n, "indices of rank %u for data of rank %u", p.n_index, p.rank);
    for (u32 a = 0; a < p.rank; a++) {
        sym have = x->shape.dim[a], want = index->shape.dim[a];
        if (a == p.axis || have == want) continue;
        if (!op_require_at_least(g, n, have, want, e, "axis %u of the data and of the indices", a)) return false;
        if ((sym_is_const(g->sym, sym_sub(g->sym, have, want), &c) && c < 0) || (sym_is_const(g->sym, want, &d) && d < 0))
            return op_invalid(e, g, n, "indices are longer than axis %u", a);
    }
    op_set_out(g, n, 0, x->dtype, &index->shape);
    fold(g, n, map_elements, &p);
    return true;
}

static bool read_nd(const struct graph *g, const struct node *n, struct gather *p)
{
    const struct shape *x = &graph_value(g, n->in.v[0])->shape,
                       *index = &graph_value(g, n->in.v[1])->shape;
    i64 batch = attr_int(n, "batch_dims", 0), tuple;
    if (batch < 0 || index->rank == 0 || batch >= index->rank ||
        !sym_is_const(g->sym, index->dim[index->rank - 1], &tuple) || tuple < 1 ||
        batch + tuple > x->rank)
        return false;
    *p = (struct gather){
        .axis = (u32)batch, .rank = x->rank, .n_index = index->rank, .n_tuple = (u32)tuple};
    return true;
}

static bool nd_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct value *x = graph_value(g, nd->in.v[0]), *index = graph_value(g, nd->in.v[1]);
    struct gather p;
    if (!read_nd(g, nd, &p))
        return op_invalid(e, g, n,
                          "shapes of data and indices and batch_dims do not fit each other");
    for (u32 a = 0; a < p.axis; a++)
        if (!op_require_equal(g, n, x->shape.dim[a], index->shape.dim[a], e, "axis %u of data and of indices", a)) return false;
    struct shape to = {.known = true, .rank = p.n_index - 1 + p.rank - p.axis - p.n_tuple};
    if (to.rank > MAX_RANK) return op_unsupported(e, g, n, "rank %u", to.rank);
    for (u32 a = 0; a + 1 < p.n_index; a++) to.dim[a] = index->shape.dim[a];
    for (u32 a = p.n_index - 1; a < to.rank; a++)
        to.dim[a] = x->shape.dim[a - p.n_index + 1 + p.axis + p.n_tuple];
    if (!check_indices(g, n, x->shape.dim + p.axis, p.n_tuple, e)) return false;
    op_set_out(g, n, 0, x->dtype, &to);
    fold(g, n, map_nd, &p);
    return true;
}

/* Evaluation. */

static bool eval_map(const struct op_eval *v, op_map_fn *map, struct gather *p, struct err *e)
{
    p->index = v->in[1];
    p->rank = v->in[0]->rank;
    p->n_index = v->in[1]->rank;
    for (u32 a = 0; a < p->rank; a++) p->data_dim[a] = v->in[0]->dim[a];
    if (tensor_count(v->in[0]) == 0 && tensor_count(v->out[0]) > 0)
        return err_set(e, ERR_INPUT, "nothing to gather from");
    return op_map_eval(v, map, p);
}

static bool gather_eval(const struct op_eval *v, struct err *e)
{
    struct gather p = {0};
    op_axis(attr_int(v->n, "axis", 0), v->in[0]->rank, &p.axis);
    return eval_map(v, map_gather, &p, e);
}

static bool elements_eval(const struct op_eval *v, struct err *e)
{
    struct gather p = {0};
    op_axis(attr_int(v->n, "axis", 0), v->in[0]->rank, &p.axis);
    return eval_map(v, map_elements, &p, e);
}

static bool nd_eval(const struct op_eval *v, struct err *e)
{
    struct gather p;
    return read_nd(v->g, v->n, &p) && eval_map(v, map_nd, &p, e);
}

/* Lowering. */

static kval gather_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    const struct shape *x = &graph_value(m->g, n->in.v[0])->shape;
    u32 axis, n_index = graph_value(m->g, n->in.v[1])->shape.rank;
    kval src[MAX_RANK];
    op_axis(attr_int(n, "axis", 0), x->rank, &axis);
    for (u32 a = 0; a < x->rank; a++)
        src[a] = a < axis ? idx[a] : a > axis ? idx[a + n_index - 1] : 0;
    src[axis] = emit_index(m, n->in.v[1], idx + axis, x->dim[axis]);
    return emit_clamped(m, n->in.v[0], src, 1u << axis);
}

static kval elements_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    const struct shape *x = &graph_value(m->g, n->in.v[0])->shape;
    u32 axis;
    kval src[MAX_RANK];
    op_axis(attr_int(n, "axis", 0), x->rank, &axis);
    for (u32 a = 0; a < x->rank; a++)
        src[a] = a == axis ? emit_index(m, n->in.v[1], idx, x->dim[a]) : idx[a];
    return emit_clamped(m, n->in.v[0], src, 1u << axis);
}

static kval nd_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    const struct shape *x = &graph_value(m->g, n->in.v[0])->shape;
    struct gather p;
    kval src[MAX_RANK], at[MAX_RANK];
    bool ok = read_nd(m->g, n, &p);
    assert(ok), (void)ok;
    u32 last = p.n_index - 1;
    for (u32 a = 0; a < last; a++) at[a] = idx[a];
    for (u32 a = 0; a < p.rank; a++) {
        at[last] = kir_int(m->k, (i64)a - p.axis);
        if (a < p.axis) src[a] = idx[a];
        else if (a < p.axis + p.n_tuple) src[a] = emit_index(m, n->in.v[1], at, x->dim[a]);
        else src[a] = idx[last + a - p.axis - p.n_tuple];
    }
    return emit_clamped(m, n->in.v[0], src, ((1u << p.n_tuple) - 1) << p.axis);
}

/* Random instances: indices are constants. */

static value_id random_indices(struct graph *g, struct rng *r, struct tensor shape, i64 dim)
{
    struct tensor *t =
        tensor_new(g->arena, rng_range(r, 0, 1) ? DT_I64 : DT_I32, shape.rank, shape.dim);
    for (i64 i = 0; i < tensor_count(t); i++)
        elem_set_i64(t->dtype, t->data, i, rng_range(r, -dim, dim - 1));
    return graph_add_const(g, S("indices"), t);
}

static u32 random_data(struct graph *g, struct rng *r, i64 *dim, value_id *in)
{
    u32 rank = (u32)rng_range(r, 1, 4);
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 6);
    random_input(g, "x", rng_range(r, 0, 3) ? DT_F32 : DT_I32, rank, dim, in);
    return rank;
}

static void random_gather(const struct op *self, struct graph *g, struct rng *r)
{
    value_id in[2];
    i64 dim[4];
    u32 rank = random_data(g, r, dim, &in[0]), axis = (u32)rng_range(r, 0, rank - 1);
    struct tensor t = {.rank = (u32)rng_range(r, 0, 2),
                       .dim = {rng_range(r, 0, 4), rng_range(r, 1, 3)}};
    in[1] = random_indices(g, r, t, dim[axis]);
    attr_set_int(g, random_node(g, self, 2, in, 1), "axis",
                 (i64)axis - (rng_range(r, 0, 1) ? rank : 0));
}

static void random_elements(const struct op *self, struct graph *g, struct rng *r)
{
    value_id in[2];
    i64 dim[4];
    u32 rank = random_data(g, r, dim, &in[0]), axis = (u32)rng_range(r, 0, rank - 1);
    struct tensor t = {.rank = rank};
    for (u32 a = 0; a < rank; a++) t.dim[a] = rng_range(r, 1, a == axis ? 7 : dim[a]);
    in[1] = random_indices(g, r, t, dim[axis]);
    attr_set_int(g, random_node(g, self, 2, in, 1), "axis", axis);
}

static void random_nd(const struct op *self, struct graph *g, struct rng *r)
{
    value_id in[2];
    i64 dim[4];
    u32 rank = random_data(g, r, dim, &in[0]), batch = (u32)rng_range(r, 0, rank - 1);
    struct tensor t = {.rank = batch};
    for (u32 a = 0; a < batch; a++) t.dim[a] = dim[a];
    if (rng_range(r, 0, 1)) t.dim[t.rank++] = rng_range(r, 1, 4);
    t.dim[t.rank++] = rng_range(r, 1, rank - batch);
    i64 least = dim[batch];
    for (u32 a = batch; a < rank; a++) least = i64_min(least, dim[a]);
    in[1] = random_indices(g, r, t, least);
    attr_set_int(g, random_node(g, self, 2, in, 1), "batch_dims", batch);
}

static const struct op ops[] = {
    {.name = "Gather",
     .props = OP_VIEW,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = gather_infer,
     .eval = gather_eval,
     .lower = gather_lower,
     .random = random_gather},
    {.name = "GatherElements",
     .props = OP_SAMPLE | OP_MOVES, /* elements lie anywhere along the axis: loaded one by one, which readers would repeat in their own order */
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = elements_infer,
     .eval = elements_eval,
     .lower = elements_lower,
     .random = random_elements},
    {.name = "GatherND",
     .props = OP_VIEW,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = nd_infer,
     .eval = nd_eval,
     .lower = nd_lower,
     .random = random_nd},
};

const struct op_family op_gather = {ops, countof(ops)};
