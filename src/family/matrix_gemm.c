// SPDX-License-Identifier: Apache-2.0
//
// matrix_gemm: matrix products by workgroups with matrix instructions (gen/mma.c).
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n).
#include "gen/mma.h"

GEN_PARAMS(MMA_PARAMS)

struct own { struct mma_task t; /* first */ };

static bool take(struct own *x, const struct task *t)
{
    struct gemm g;
    if (!gemm_of(&g, t)) return false;
    mma_task_of(&x->t, &g, 0);
    return true;
}

static bool analyze(const struct gen_problem *p) { return p->c->is_gpu && take(p->facts, p->t); }

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *v)
{
    struct own x;
    struct contraction p;
    struct mma_leaf l;
    take(&x, t);
    mma_contraction(&p, &l, m, &x.t, caps, v);
    contract_matrices(&p, t);
    contract_emit(&p, t, caps);
}

const struct gen gen_matrix_gemm = {
    .version = 1,
    .name = "matrix_gemm",
    .revision = 7,
    .param = param,
    .n_param = N_PARAM,
    .facts = sizeof(struct own),
    .analyze = analyze,
    .match = mma_match,
    .initial = mma_initial,
    .legal = mma_legal,
    .emit = emit,
    .predict = mma_predict,
};
