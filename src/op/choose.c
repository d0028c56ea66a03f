// SPDX-License-Identifier: Apache-2.0
//
// quern::Choose(condition, a, b): a if the condition, a scalar, holds, else b. Both have the same
// rank; a size that is not proven equal makes the result's size data-dependent. Replaces an If or a
// Loop whose condition is decided at run time.
#include "op/op.h"

#include <string.h>

/* The size that is a's where the condition, a size of 0 or 1, holds. */
static sym chosen(struct graph *g, node_id n, sym cond, sym a, sym b)
{
    struct symtab *t = g->sym;
    return a == b ? a : op_let(g, n, sym_add(t, b, sym_mul(t, cond, sym_sub(t, a, b))), 0);
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    const struct value *c = graph_value(g, x->in.v[0]), *a = graph_value(g, x->in.v[1]), *b = graph_value(g, x->in.v[2]);
    struct shape to = a->shape;
    bool same = true;
    sym cond = 0;
    if (c->dtype != DT_BOOL || c->shape.rank) return op_invalid(e, g, n, "the condition is no scalar of bool");
    if (a->dtype != b->dtype) return op_invalid(e, g, n, "results of types %s and %s", dtype_name(a->dtype), dtype_name(b->dtype));
    if (a->shape.rank != b->shape.rank)
        return op_unsupported(e, g, n, "results of ranks %u and %u, selected at run time", a->shape.rank,
                              b->shape.rank);
    for (u32 d = 0; d < to.rank; d++) same &= a->shape.dim[d] == b->shape.dim[d];
    if (!same && op_get_syms(g, x, "shape", to.dim, MAX_RANK) != to.rank) {
        struct shape from = b->shape;
        value_id v = op_node_cast(g, n, x->in.v[0], DT_I64, 0);
        if (!op_infer(g, op_made(g, v), e)) return false;
        cond = op_size_of(g, v, 0, graph_node(g, n)->out.v[0], sym_const(g->sym, 1));
        for (u32 d = 0; d < to.rank; d++) to.dim[d] = chosen(g, n, cond, to.dim[d], from.dim[d]);
        op_set_syms(g, n, "shape", to.dim, to.rank);
    }
    op_set_out(g, n, 0, graph_value(g, graph_node(g, n)->in.v[1])->dtype, &to);
    return true;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *from = v->in[elem_i64(DT_BOOL, v->in[0]->data, 0) ? 1 : 2];
    if (tensor_bytes(from) != tensor_bytes(v->out[0])) return err_set(e, ERR_INPUT, "the chosen value has another size");
    if (tensor_bytes(from)) memcpy(v->out[0]->data, from->data, (size_t)tensor_bytes(from));
    return true;
}

/* The one that is not chosen may be smaller. */
static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    const struct shape *to = &graph_value(m->g, n->out.v[0])->shape;
    kval cond = emit_value(m, n->in.v[0], idx), v[2];
    for (u32 i = 0; i < 2; i++) {
        const struct shape *s = &graph_value(m->g, n->in.v[1 + i])->shape;
        kval at[MAX_RANK];
        u32 axes = 0;
        for (u32 d = 0; d < s->rank; d++) {
            bool same = s->dim[d] == to->dim[d];
            at[d] = same ? idx[d] : emit_clamp(m, idx[d], s->dim[d]);
            axes |= same ? 0 : 1u << d;
        }
        v[i] = axes ? emit_clamped(m, n->in.v[1 + i], at, axes) : emit_value(m, n->in.v[1 + i], at);
    }
    u32 lanes = kir_lanes(k, v[0]) > kir_lanes(k, v[1]) ? kir_lanes(k, v[0]) : kir_lanes(k, v[1]);
    return kir_select(k, kir_splat(k, cond, lanes), kir_splat(k, v[0], lanes), kir_splat(k, v[1], lanes));
}

static void random_instance(const struct op *self, struct graph *g, struct rng *r)
{
    static const enum dtype type[] = {DT_F32, DT_I64, DT_BOOL, DT_F16};
    enum dtype t = type[rng_range(r, 0, countof(type) - 1)];
    u32 rank = (u32)rng_range(r, 0, 3);
    i64 dim[3], other[3];
    value_id in[3];
    for (u32 d = 0; d < rank; d++) other[d] = dim[d] = rng_range(r, 1, 6);
    if (rank && rng_range(r, 0, 1)) other[rank - 1] = rng_range(r, 1, 6);
    random_input(g, "c", DT_BOOL, 0, NULL, &in[0]);
    random_input(g, "a", t, rank, dim, &in[1]);
    random_input(g, "b", t, rank, other, &in[2]);
    random_node(g, self, 3, in, 1);
}

static const struct op ops[] = {
    {.name = "quern::Choose",
     .attributes = "shape:strings",
     .props = OP_VIEW,
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .random = random_instance},
};

const struct op_family op_choose = {ops, countof(ops)};
