// SPDX-License-Identifier: Apache-2.0
//
// wgmma_gemm: GEMM by workgroups with matrix instructions of warpgroups (gen/wgmma.c).
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n).
#include "gen/wgmma.h"

GEN_PARAMS(WGMMA_PARAMS)

static bool analyze(const struct gen_problem *p) { return mma_analyze(p, &contract_matrix); }

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v) { wgmma_emit(m, t, c, v, &contract_matrix); }

const struct gen gen_wgmma_gemm = {WGMMA_FAMILY, .name = "wgmma_gemm", .revision = 3, .sums = SUMS_IN_PARTS, .analyze = analyze, .emit = emit};
