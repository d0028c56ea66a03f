// SPDX-License-Identifier: Apache-2.0
//
// op_identity: operators that hand their input on: Identity, and Dropout, which does nothing
// outside of training. The optional second output of Dropout is the mask of what was kept:
// everything.
#include "op/op.h"

#include <string.h>

/* Not known to be off, and elements may be dropped. */
static bool is_training(const struct graph *g, const struct node *x)
{
    i64 on;
    struct sym_data ratio;
    if (x->in.n < 3 || !x->in.v[2] || (op_const_ints(g, x->in.v[2], &on, 1) == 1 && !on))
        return false;
    bool known = op_sym_content(g, x->in.v[1], 1, &ratio) && ratio.n == 1;
    return !known || !sym_is_const(g->sym, ratio.num[0], &on) || on;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    const struct value *v = graph_value(g, x->in.v[0]);
    if (is_training(g, x)) return op_unsupported(e, g, n, "input 'training_mode' is not false");
    struct shape s = v->shape;
    op_set_out(g, n, 0, v->dtype, &s);
    op_set_out(g, n, 1, DT_BOOL, &s);
    if (x->out.v[0]) op_copy_sdata(g, x->in.v[0], x->out.v[0]);
    return true;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    i64 bytes = tensor_bytes(v->in[0]);
    if (v->out[0] && bytes) memcpy(v->out[0]->data, v->in[0]->data, (size_t)bytes);
    if (v->n->out.n < 2 || !v->out[1]) return true;
    for (i64 i = 0, n = tensor_count(v->out[1]); i < n; i++)
        elem_set_i64(DT_BOOL, v->out[1]->data, i, 1);
    return true;
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    return out == 1 ? kir_const_i(m->k, DT_BOOL, 1, 1) : emit_value(m, n->in.v[0], idx);
}

static void random_instance(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[4] = {rng_range(r, 1, 4), rng_range(r, 1, 4), rng_range(r, 1, 4), rng_range(r, 1, 9)};
    value_id in;
    enum dtype t = self->max_out > 1 ? DT_F32 : (enum dtype)rng_range(r, 1, N_DTYPES - 1);
    random_input(g, "x", t, (u32)rng_range(r, 0, 4), dim, &in);
    random_node(g, self, 1, &in, (u32)rng_range(r, 1, self->max_out));
}

#define COMMON                                                                                     \
    .props = OP_POINTWISE | OP_VIEW, .min_in = 1, .min_out = 1, .infer = infer, .eval = eval,      \
    .lower = lower, .random = random_instance

static const struct op ops[] = {
    {.name = "Identity", .max_in = 1, .max_out = 1, COMMON},
    {.name = "Dropout", .max_in = 3, .max_out = 2, COMMON},
};

const struct op_family op_identity = {ops, countof(ops)};
