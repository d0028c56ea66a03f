// SPDX-License-Identifier: Apache-2.0
//
// team_gemm: matrix products by workgroups with matrix instructions of warpgroups (gen/wgmma.c).
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n).
#include "gen/wgmma.h"

GEN_PARAMS(WGMMA_PARAMS)

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
    wgmma_contraction(&p, &l, m, &x.t, caps, v);
    contract_matrices(&p, t);
    contract_emit(&p, t, caps);
}

const struct gen gen_team_gemm = {
    .version = 1,
    .name = "team_gemm",
    .revision = 3,
    .param = param,
    .n_param = N_PARAM,
    .sums = SUMS_IN_PARTS,
    .facts = sizeof(struct own),
    .analyze = analyze,
    .match = wgmma_match,
    .initial = wgmma_initial,
    .legal = wgmma_legal,
    .emit = emit,
    .predict = wgmma_predict,
};
