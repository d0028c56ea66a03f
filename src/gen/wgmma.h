// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: contractions by a workgroup whose leaf is a matrix instruction of a warpgroup, several subgroups that work as one and read both operands
// from swizzled shared memory by themselves (wgmma; leaf_mma.c), whatever their addressing: parameters, what is legal, what it costs, and the default.
// A family names the addressing (wgmma_gemm, wgmma_igemm).
//
// K blocks are copied ahead without registers; gm x gn warpgroups stand in a block, each with wm x wn fragments of sums, its only registers. Shared
// memory keeps the order in which operands lie in memory, in panels: lines of 128 bytes, which is what the instruction reads. The products of a K block
// are issued before the next copies are, so that both go on at once.
//
// With `tma` the device itself copies matrices of known sizes, in boxes that the workgroup's first thread asks for (TMA). A shape is one that the
// target lists for warpgroups with the operands' type on both sides; sums are f32 or f16.
#ifndef QUERN_GEN_WGMMA_H
#define QUERN_GEN_WGMMA_H

#include "gen/mma.h"

// clang-format off
#define WGMMA_PARAMS(P)                                                              \
    P(n, "columns of a fragment", 64, 128, 256)                                      \
    P(acc, "bits of a sum", 16, 32)                                                  \
    P(gm, "warpgroups along rows", 1, 2, 4)                                          \
    P(gn, "warpgroups along columns", 1, 2, 4)                                       \
    P(wm, "fragments of a warpgroup along rows", 1, 2)                               \
    P(wn, "fragments of a warpgroup along columns", 1, 2)                            \
    P(bk, "terms of a K block", 64, 128)                                             \
    P(stages, "K blocks in shared memory: all but one are being copied", 2, 3, 4, 5) \
    P(raster, "rows of blocks that are walked column by column", 1, 8, 16)           \
    P(split_k, "workgroups that share the terms of a block", 1, 8)                   \
    P(tma, "1: the device copies operands, in boxes that one thread asks for", 0, 1)
// clang-format on

/* What such families share: their facts are a struct mma_task. */
#define WGMMA_FAMILY                                                                         \
    .version = 1, .param = param, .n_param = N_PARAM, .facts = sizeof(struct mma_task),      \
    .least = wgmma_least, .sure = wgmma_sure, .legal = wgmma_legal, .predict = wgmma_predict
bool wgmma_least(const struct gen_problem *p, u32 k, struct sched *s);
bool wgmma_sure(const struct gen_problem *p, const struct sched *s); /* short sums and boxes are for measurements to choose */
bool wgmma_legal(const struct gen_problem *p, const struct sched *v);
double wgmma_predict(const struct gen_problem *p, const struct sched *v);
void wgmma_emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v, const struct contract_form *f);

#endif
