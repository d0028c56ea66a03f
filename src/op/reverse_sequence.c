// SPDX-License-Identifier: Apache-2.0
//
// ReverseSequence: reverses the first len[b] elements along the time axis of each batch entry.
// Lengths come from data and are limited to the axis.
#include "op/op.h"

struct axes {
    u32 batch, time, rank;
};

static bool read_axes(const struct graph *g, const struct node *n, struct axes *p)
{
    p->rank = graph_value(g, n->in.v[0])->shape.rank;
    return op_axis(attr_int(n, "batch_axis", 1), p->rank, &p->batch) &&
           op_axis(attr_int(n, "time_axis", 0), p->rank, &p->time) && p->batch != p->time;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct value *x = graph_value(g, nd->in.v[0]), *len = graph_value(g, nd->in.v[1]);
    struct axes p;
    if (!read_axes(g, nd, &p))
        return op_invalid(e, g, n, "bad attribute 'batch_axis' or 'time_axis'");
    if (len->shape.rank != 1 || len->shape.dim[0] != x->shape.dim[p.batch] ||
        !dtype_is_int(len->dtype))
        return op_invalid(e, g, n, "lengths do not fit the batch axis");
    op_set_out(g, n, 0, x->dtype, &x->shape);
    return true;
}

struct reverse {
    struct axes axes;
    const struct tensor *len;
    i64 time; /* length of the time axis */
};

static i64 map(const void *par, const i64 *out, i64 *in)
{
    const struct reverse *p = par;
    i64 len = i64_min(p->time, elem_i64(p->len->dtype, p->len->data, out[p->axes.batch])),
        t = out[p->axes.time];
    for (u32 a = 0; a < p->axes.rank; a++) in[a] = out[a];
    in[p->axes.time] = t < len ? len - 1 - t : t;
    return 0;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    struct reverse p = {.len = v->in[1]};
    bool ok = read_axes(v->g, v->n, &p.axes);
    assert(ok), (void)ok;
    p.time = v->in[0]->dim[p.axes.time];
    return op_map_eval(v, map, &p);
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct axes p;
    kval src[MAX_RANK];
    bool ok = read_axes(m->g, n, &p);
    assert(ok), (void)ok;
    for (u32 a = 0; a < p.rank; a++) src[a] = idx[a];
    kval len = kir_cast(m->k, DT_I64, emit_value(m, n->in.v[1], &idx[p.batch])), t = idx[p.time];
    len = kir_bin(m->k, KI_MIN, len, emit_dim(m, n->in.v[0], p.time));
    kval back = kir_bin(m->k, KI_SUB, kir_bin(m->k, KI_SUB, len, kir_int(m->k, 1)), t);
    src[p.time] = kir_select(m->k, kir_bin(m->k, KI_LT, t, len), back, t);
    return emit_value(m, n->in.v[0], src);
}

static void random_reverse(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 2, 4);
    i64 dim[4], batch = rng_range(r, 0, 1);
    value_id in[2];
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 6);
    random_input(g, "x", DT_F32, rank, dim, &in[0]);
    random_input(g, "len", DT_I64, 1, &dim[batch], &in[1]);
    node_id n = random_node(g, self, 2, in, 1);
    attr_set_int(g, n, "batch_axis", batch);
    attr_set_int(g, n, "time_axis", 1 - batch);
}

static const struct op ops[] = {
    {.name = "ReverseSequence",
     .props = OP_VIEW,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .random = random_reverse},
};

const struct op_family op_reverse_sequence = {ops, countof(ops)};
