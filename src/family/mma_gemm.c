// SPDX-License-Identifier: Apache-2.0
//
// mma_gemm: GEMM by workgroups with matrix instructions (gen/mma.c).
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n).
#include "gen/mma.h"

GEN_PARAMS(MMA_PARAMS)

static bool analyze(const struct gen_problem *p) { return mma_analyze(p, &contract_matrix); }

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v) { mma_emit(m, t, c, v, &contract_matrix); }

const struct gen gen_mma_gemm = {MMA_FAMILY, .name = "mma_gemm", .revision = 7, .analyze = analyze, .emit = emit};
