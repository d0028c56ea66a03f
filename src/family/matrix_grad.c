// SPDX-License-Identifier: Apache-2.0
//
// matrix_grad: the gradient of a convolution's weights by workgroups with matrix instructions (gen/mma.c, gen/addr_grad.c).
//
// Dims: rows m output channels, columns n = input channels and taps, terms k = batch and positions.
#include "gen/mma.h"
#include "gen/addr_grad.h"

GEN_PARAMS(MMA_PARAMS)

enum { FIND = 40 /* operations to find the place of an element */ };

struct own { struct mma_task t; /* first */ struct grad_address g; };

static bool take(struct own *x, const struct task *t)
{
    if (!grad_address_of(&x->g, t)) return false;
    mma_task_of(&x->t, &x->g.x, FIND);
    return graph_value(&t->g, x->g.x.a)->dtype == graph_value(&t->g, x->g.x.b)->dtype;
}

static bool analyze(const struct gen_problem *p) { return p->c->is_gpu && take(p->facts, p->t); }

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
    .facts = sizeof(struct own),
    .analyze = analyze,
    .match = mma_match,
    .initial = mma_initial,
    .legal = mma_legal,
    .emit = emit,
    .predict = mma_predict,
};
