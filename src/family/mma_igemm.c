// SPDX-License-Identifier: Apache-2.0
//
// mma_igemm: convolutions of any rank, layout, stride, padding, dilation and groups, transposed or not, by workgroups with matrix instructions
// (gen/mma.c), as a GEMM whose rows are all outputs of a channel (gen/addr_igemm.c). Where mma_conv copies the input tile with its halo once for
// all taps, this family reads an element once per tap, but has no tiles that hang over the ends of rows.
//
// Dims: y (m, n) of a conv group, m = batch and pixels, n = its output channels; terms k = taps x input channels.
#include "gen/mma.h"

GEN_PARAMS(MMA_PARAMS)

static bool analyze(const struct gen_problem *p) { return mma_analyze(p, &contract_igemm); }

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v) { mma_emit(m, t, c, v, &contract_igemm); }

const struct gen gen_mma_igemm = {MMA_FAMILY, .name = "mma_igemm", .revision = 2, .sums = SUMS_IN_PARTS, .analyze = analyze, .emit = emit};
