// SPDX-License-Identifier: Apache-2.0
//
// op_identity: Identity, which hands its input on.
#include "op/op.h"

#include <string.h>

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    const struct value *v = graph_value(g, x->in.v[0]);
    struct shape s = v->shape;
    op_set_out(g, n, 0, v->dtype, &s);
    if (x->out.v[0]) op_copy_sdata(g, x->in.v[0], x->out.v[0]);
    return true;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    i64 bytes = tensor_bytes(v->in[0]);
    if (v->out[0] && bytes) memcpy(v->out[0]->data, v->in[0]->data, (size_t)bytes);
    return true;
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    return emit_value(m, n->in.v[0], idx);
}

static void random_instance(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[4] = {rng_range(r, 1, 4), rng_range(r, 1, 4), rng_range(r, 1, 4), rng_range(r, 1, 9)};
    value_id in;
    enum dtype t = (enum dtype)rng_range(r, 1, N_DTYPES - 1);
    random_input(g, "x", t, (u32)rng_range(r, 0, 4), dim, &in);
    random_node(g, self, 1, &in, 1);
}

static const struct op ops[] = {
    {.name = "Identity",
     .props = OP_POINTWISE | OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .random = random_instance},
};

const struct op_family op_identity = {ops, countof(ops)};
