// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: the schedules of wg_gemm: parameters, what is legal, what is worth trying,
// what it costs.
#ifndef QUERN_GEN_BLOCK_H
#define QUERN_GEN_BLOCK_H

#include "gen/contract.h"

enum { SP_NONE, SP_DOUBLE, SP_AHEAD, SP_ASYNC, SP_ASYNC_3 }; /* of sp */

/* In the order in which a choice of one narrows down the next ones. wl, bl: threads of a subgroup and subgroups; y, x: along rows and columns. */
// clang-format off
#define BLOCK_PARAMS(P)                                                                                                                         \
    P(half, "1: shared arrays in the operands' own 16-bit type", 0, 1)                                                                          \
    P(w, "threads of a subgroup", 8, 16, 32, 64)                                                                                                \
    P(wly, "threads of a subgroup along rows", 1, 2, 4, 8, 16, 32, 64)                                                                          \
    P(wlx, "threads of a subgroup along columns", 1, 2, 4, 8, 16, 32, 64)                                                                       \
    P(bly, "subgroups along rows, of one such part", 1, 2, 4, 8, 16)                                                                            \
    P(blx, "subgroups along columns, of one such part", 1, 2, 4, 8, 16)                                                                         \
    P(tm, "rows of a thread", 1, 2, 4, 8, 16)                                                                                                   \
    P(tn, "columns of a thread", 1, 2, 4, 8, 16)                                                                                                \
    P(bk, "terms of a K block", 1, 2, 4, 8, 16, 32, 64)                                                                                         \
    P(split_k_local, "parts of the workgroup that share the terms of a K block (intra-block split-K)", 1, 2, 4, 8, 16)                          \
    P(bswm, "rows of a thread within its subgroup's part", 1, 2, 4, 8, 16)                                                                      \
    P(bswn, "columns of a thread within its subgroup's part", 1, 2, 4, 8, 16)                                                                   \
    P(wswm, "neighbouring rows of a thread", 1, 2, 4, 8, 16)                                                                                    \
    P(wswn, "neighbouring columns of a thread", 1, 2, 4, 8, 16)                                                                                 \
    P(sp, "0: copy, then multiply; 1: the next K block is fetched meanwhile, to shared arrays of its own; 2: to registers; 3, 4: K blocks are " \
          "copied ahead without registers, 2 and 3 in shared arrays", SP_NONE, SP_DOUBLE, SP_AHEAD, SP_ASYNC, SP_ASYNC_3)                       \
    P(rp, "1: fragments of the next term are read before this one's are multiplied", 0, 1)                                                      \
    P(un, "terms written out at once", 1, 2, 4, 8, 16, 32, 64)                                                                                  \
    P(pad, "elements behind each row of a shared array", 0, 4, 8)                                                                               \
    P(swz, "1: the shared array is swizzled", 0, 1)                                                                                             \
    P(ta, "1: the left operand's shared array has its terms outside whatever memory has", 0, 1)                                                 \
    P(glwa, "elements of a load of the left operand, at most", 1, 2, 4, 8)                                                                      \
    P(glwb, "elements of a load of the right operand, at most", 1, 2, 4, 8)                                                                     \
    P(lc, "1: loads are shared out through the whole tile; 0: row by row", 0, 1)                                                                \
    P(gsw, "elements of a store when the parts' sums are added; 0: split_k_local is 1", 0, 1, 2, 4)                                             \
    P(rc, "1: sums are shared out through the whole block; 0: row by row, or split_k_local is 1", 0, 1)                                         \
    P(raster, "rows of blocks that are walked column by column; 0, 1: none", 0, 1, 2, 4, 8, 16, 32)                                             \
    P(split_k, "workgroups that share the terms of a block", 1, 2, 4, 8, 16)                                                                    \
    P(stream_k, "workgroups of a multiprocessor, which share all K blocks evenly; 0: each has a block", 0, 1, 2, 4, 8)
// clang-format on
enum { BLOCK_PARAMS(GEN_PARAM_NUMBER) N_PARAM };

extern const struct gen_param block_param[N_PARAM];

struct block {
    BLOCK_PARAMS(GEN_PARAM_FIELD)
    i64 bm, bn;        /* rows, columns of a workgroup's block */
    i64 slice_threads, threads; /* of a slice of K, of all */
};
struct block block_of(const struct sched *s);
struct blocking block_blocking(const struct block *s, const struct caps *c);
i64 block_shared(const struct block *s, const struct caps *c, i64 size); /* bytes of shared arrays; size of an operand's element */

struct block_task { /* the GEMM, sizes as far as they are known */
    struct gemm x;
    i64 m, n, k, batch, size; /* size: bytes of an operand's element */
    bool is_column;           /* one column */
};
i64 block_count(const struct block_task *x, const struct block *s); /* of all batches */
bool block_task_of(struct block_task *x, const struct task *t, const i64 *var);

/* Rules about parameter p and those before it: can it be emitted; is it worth trying? */
bool block_fits(const struct block_task *x, const struct caps *c, const struct block *s, u32 p);
bool block_is_worth(const struct block_task *x, const struct caps *c, const struct block *s, u32 p);
bool block_is_legal(const struct block_task *x, const struct caps *c, const struct block *s);
double block_predict(const struct gen_problem *p, const struct sched *v); /* its facts: a struct block_task */

#endif
