// SPDX-License-Identifier: Apache-2.0
//
// matrix_grad: the gradient of a convolution's weights by workgroups with matrix instructions (gen/mma.c, gen/addr_grad.c).
//
// Dims: rows m output channels, columns n = input channels and taps, terms k = batch and positions.
#include "gen/mma.h"
#include "gen/addr_grad.h"

GEN_PARAMS(MMA_PARAMS)

enum { FIND = 40 /* operations to find the place of an element */ };

struct own { struct mma_task t; struct grad_address g; };

static bool take(struct own *x, const struct task *t)
{
    if (!grad_address_of(&x->g, t)) return false;
    mma_task_of(&x->t, &x->g.x, FIND);
    return graph_value(&t->g, x->g.x.a)->dtype == graph_value(&t->g, x->g.x.b)->dtype;
}

static bool match(const struct task *t, const struct caps *c)
{
    struct own x;
    return take(&x, t) && mma_matches(&x.t, c);
}

static bool legal(const struct task *t, const struct caps *c, const struct sched *v)
{
    struct own x;
    return mma_fits(c, v) && take(&x, t) && mma_is_legal(&x.t, c, v);
}

static double predict(const struct task *t, const struct caps *c, const struct sched *v, const i64 *var)
{
    struct own x;
    return take(&x, t) ? mma_seconds(&x.t, c, v, var) : 1e9;
}

static void initial(const struct task *t, const struct caps *c, const i64 *var, struct sched *out)
{
    struct own x;
    if (take(&x, t)) mma_initial(&x.t, c, var, out);
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *v)
{
    struct own x;
    struct contraction p;
    struct mma_leaf l;
    take(&x, t);
    mma_contraction(&p, &l, m, &x.t, caps, v);
    grad_address_open(&x.g, &p);
    contract_emit(&p, t, caps);
}

const struct gen gen_matrix_grad = {
    .version = 1,
    .name = "matrix_grad",
    .revision = 1,
    .param = param,
    .n_param = N_PARAM,
    .sums = SUMS_IN_PARTS,
    .match = match,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
