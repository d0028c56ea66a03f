// SPDX-License-Identifier: Apache-2.0
//
// team_gemm: matrix products by workgroups with matrix instructions of warpgroups (gen/wgmma.c).
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n).
#include "gen/wgmma.h"

GEN_PARAMS(WGMMA_PARAMS)

struct own { struct mma_task t; };

static bool take(struct own *x, const struct task *t)
{
    struct gemm g;
    if (!gemm_of(&g, t)) return false;
    mma_task_of(&x->t, &g, 0);
    return true;
}

static bool match(const struct task *t, const struct caps *c)
{
    struct own x;
    return take(&x, t) && wgmma_matches(&x.t, c);
}

static bool legal(const struct task *t, const struct caps *c, const struct sched *v)
{
    struct own x;
    return take(&x, t) && wgmma_is_legal(&x.t, c, v);
}

static double predict(const struct task *t, const struct caps *c, const struct sched *v, const i64 *var)
{
    struct own x;
    return take(&x, t) ? wgmma_seconds(&x.t, c, v, var) : 1e9;
}

static void initial(const struct task *t, const struct caps *c, const i64 *var, struct sched *out)
{
    struct own x;
    if (take(&x, t)) wgmma_initial(&x.t, c, var, out);
}

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
    .match = match,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
