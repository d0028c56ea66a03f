// SPDX-License-Identifier: Apache-2.0
//
// quern::Repeat: every index of one axis several times in a row, cut to a size: out[.., i, ..] = in[.., i / times, ..].
// Scales and zero points of blocked quantisation are laid along their tensor with it.
#include "op/op.h"

struct repeat {
    u32 axis;
    i64 times;
};

static struct repeat get(const struct node *n)
{
    return (struct repeat){.axis = (u32)attr_int(n, "axis", 0), .times = attr_int(n, "times", 1)};
}

static i64 map(const void *par, const i64 *out, i64 *in)
{
    const struct repeat *p = par;
    for (u32 a = 0; a < MAX_RANK; a++) in[a] = a == p->axis ? out[a] / p->times : out[a];
    return 0;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct repeat p = get(nd);
    struct shape s = *op_in_shape(g, nd, 0);
    sym size;
    if (attr_int(nd, "axis", 0) < 0 || p.axis >= s.rank) return op_invalid(e, g, n, "axis %u does not exist", p.axis);
    if (p.times < 1) return op_invalid(e, g, n, "attribute 'times' = %lld", (long long)p.times);
    if (op_get_syms(g, nd, "size", &size, 1) != 1) return op_invalid(e, g, n, "attribute 'size'");
    if (!op_sizes_agree(g, s.dim[p.axis], sym_cdiv(g->sym, size, sym_const(g->sym, p.times))))
        return op_invalid(e, g, n, "axis %u is not as long as its blocks of %lld", p.axis, (long long)p.times);
    s.dim[p.axis] = size;
    op_set_out(g, n, 0, op_in_dtype(g, nd, 0), &s);
    return true;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    struct repeat p = get(v->n);
    i64 blocks = ceil_div(v->out[0]->dim[p.axis], p.times);
    if (v->in[0]->dim[p.axis] != blocks)
        return err_set(e, ERR_INPUT, "axis %u has %lld blocks, expected %lld", p.axis, (long long)v->in[0]->dim[p.axis], (long long)blocks);
    return op_map_eval(v, map, &p);
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct repeat p = get(n);
    kval at[MAX_RANK];
    for (u32 a = 0; a < op_in_shape(m->g, n, 0)->rank; a++) at[a] = idx[a];
    at[p.axis] = kir_bin(m->k, KI_DIV, idx[p.axis], kir_int(m->k, p.times));
    return emit_value(m, n->in.v[0], at);
}

static void random_instance(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 1, 4), axis = (u32)rng_range(r, 0, rank - 1);
    i64 dim[4], times = rng_range(r, 1, 4);
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, 5);
    value_id in;
    random_input(g, "x", rng_range(r, 0, 1) ? DT_F32 : DT_I4, rank, dim, &in);
    node_id n = random_node(g, self, 1, &in, 1);
    sym size = sym_sub(g->sym, sym_const(g->sym, dim[axis] * times), sym_const(g->sym, rng_range(r, 0, times - 1)));
    attr_set_int(g, n, "axis", axis);
    attr_set_int(g, n, "times", times);
    op_set_syms(g, n, "size", &size, 1);
}

static const struct op ops[] = {
    {.name = "quern::Repeat",
     .attributes = "axis:int size:strings times:int",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .random = random_instance},
};

const struct op_family op_repeat = {ops, countof(ops)};
