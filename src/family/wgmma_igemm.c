// SPDX-License-Identifier: Apache-2.0
//
// wgmma_igemm: convolutions of any rank, layout, stride, padding, dilation and groups, transposed or not, by workgroups with matrix instructions of warpgroups
// (gen/wgmma.c), as a GEMM whose rows are all outputs of a channel (gen/addr_igemm.c).
//
// Dims: y (m, n) of a conv group, m = batch and pixels, n = its output channels; terms k = taps x input channels.
#include "gen/wgmma.h"

GEN_PARAMS(WGMMA_PARAMS)

static bool analyze(const struct gen_problem *p) { return mma_analyze(p, &contract_igemm); }

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v) { wgmma_emit(m, t, c, v, &contract_igemm); }

const struct gen gen_wgmma_igemm = {WGMMA_FAMILY, .name = "wgmma_igemm", .revision = 1, .sums = SUMS_IN_PARTS, .analyze = analyze, .emit = emit};
