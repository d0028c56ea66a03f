// SPDX-License-Identifier: Apache-2.0
//
// mma_conv_grad: the gradient of a convolution's weights by workgroups with matrix instructions (gen/mma.c, gen/addr_grad.c).
//
// Dims: rows m output channels, columns n = input channels and taps, terms k = batch and positions.
#include "gen/mma.h"

GEN_PARAMS(MMA_PARAMS)

static bool analyze(const struct gen_problem *p) { return mma_analyze(p, &contract_grad); }

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v) { mma_emit(m, t, c, v, &contract_grad); }

const struct gen gen_mma_conv_grad = {MMA_FAMILY, .name = "mma_conv_grad", .revision = 1, .sums = SUMS_IN_PARTS, .analyze = analyze, .emit = emit};
