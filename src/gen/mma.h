// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: contractions by a workgroup whose leaf is a matrix instruction of subgroups (leaf_mma.c), whatever their addressing: parameters,
// what is legal, what it costs, and the default. A family names the addressing (mma_gemm, mma_igemm, mma_conv_grad).
//
// A shape of fragments is one that the target lists with the operands' type on both sides; sums are f32 or f16. Operands of f32 that may be rounded to
// tf32 have one where tf32 has; they lie in shared memory as they are and are rounded when fragments are loaded.
#ifndef QUERN_GEN_MMA_H
#define QUERN_GEN_MMA_H

#include "gen/leaf.h"

// clang-format off
#define MMA_PARAMS(P)                                                                                                                                 \
    P(m, "rows of a fragment", 4, 8, 16, 32)                                                                                                          \
    P(n, "columns of a fragment", 4, 8, 16, 32)                                                                                                       \
    P(k, "terms of a fragment", 2, 4, 8, 16, 32)                                                                                                      \
    P(acc, "bits of a sum", 16, 32)                                                                                                                   \
    P(gm, "subgroups along rows", 1, 2, 4)                                                                                                            \
    P(gn, "subgroups along columns", 1, 2, 4)                                                                                                         \
    P(wm, "fragments of a subgroup along rows", 1, 2, 4)                                                                                              \
    P(wn, "fragments of a subgroup along columns", 1, 2, 4)                                                                                           \
    P(bk, "terms of a K block", 16, 32, 64)                                                                                                           \
    P(pipe, "0: copy, then multiply; 1: the next K block is fetched to registers meanwhile; 2: and has shared arrays of its own; 3, 4: K blocks are " \
            "copied ahead without registers, 2 and 3 in shared arrays", PIPE_NONE, PIPE_AHEAD, PIPE_DOUBLE, PIPE_ASYNC, PIPE_ASYNC + 1)               \
    P(rp, "1: a step's fragments are read before the last one's are multiplied", 0, 1)                                                                \
    P(swz, "1: the shared array is swizzled, else its rows are padded", 0, 1)                                                                         \
    P(raster, "rows of blocks that are walked column by column", 1, 8)                                                                                \
    P(split_k, "workgroups that share the terms of a block", 1, 8)                                                                                    \
    P(stream_k, "workgroups of a multiprocessor, which share all K blocks evenly; 0: each has a block", 0, 1, 2, 4)
// clang-format on

struct mma_sched {
    MMA_PARAMS(GEN_PARAM_FIELD)
    i64 subgroup;
    i64 units; /* processors */
};

/* A task as matrix instructions see it: both operands have one type. */
struct mma_task {
    struct contract_task c;
    enum dtype operand; /* of fragments: that of both operands, or tf32 */
};
bool mma_task_of(struct mma_task *x, const struct contract_form *f, const struct task *t, struct arena *a);

/* What such families share: their facts are a struct mma_task. */
#define MMA_FAMILY                                                                           \
    .version = 1, .param = param, .n_param = N_PARAM, .facts = sizeof(struct mma_task),      \
    .least = mma_least, .sure = mma_sure, .legal = mma_legal, .predict = mma_predict
bool mma_analyze(const struct gen_problem *p, const struct contract_form *f);
bool mma_least(const struct gen_problem *p, u32 k, struct sched *s);
bool mma_sure(const struct gen_problem *p, const struct sched *s); /* short sums are for measurements to choose */
bool mma_legal(const struct gen_problem *p, const struct sched *v);
double mma_predict(const struct gen_problem *p, const struct sched *v);
void mma_emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v, const struct contract_form *f);

#endif
