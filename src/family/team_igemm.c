// SPDX-License-Identifier: Apache-2.0
//
// team_igemm: convolutions of any rank, layout, stride, padding, dilation and groups, transposed or not, by workgroups with matrix instructions of warpgroups
// (gen/wgmma.c), as a product whose rows are all outputs of a channel (gen/addr_igemm.c).
//
// Dims: y (m, n) of a conv group, m = batch and pixels, n = its output channels; terms k = taps x input channels.
#include "gen/wgmma.h"
#include "gen/addr_igemm.h"

GEN_PARAMS(WGMMA_PARAMS)

enum { FIND = 40, FIND_VECTOR = 10 /* operations to find the place of an element, of one in a vector */ };

struct own { struct mma_task t; /* first */ struct igemm_address g; };

static bool take(struct own *x, const struct task *t)
{
    struct gemm g;
    if (!igemm_address_of(&x->g, &g, t)) return false;
    bool by_vectors = igemm_is_dense(&x->g, IGEMM_CHANNELS) && x->g.c.ic % 4 == 0;
    mma_task_of(&x->t, &g, by_vectors ? FIND_VECTOR : FIND);
    return graph_value(g.g, g.a)->dtype == graph_value(g.g, g.b)->dtype;
}

static bool analyze(const struct gen_problem *p) { return p->c->is_gpu && take(p->facts, p->t); }

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *v)
{
    struct own x;
    struct contraction p;
    struct mma_leaf l;
    take(&x, t);
    wgmma_contraction(&p, &l, m, &x.t, caps, v);
    igemm_address_open(&x.g, &p, IGEMM_CHANNELS, p.s.bk);
    contract_emit(&p, t, caps);
}

const struct gen gen_team_igemm = {
    .version = 1,
    .name = "team_igemm",
    .revision = 1,
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
