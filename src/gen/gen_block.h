// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: the schedules of group_gemm: parameters, what is legal, what is worth trying,
// what it costs.
#ifndef QUERN_GEN_BLOCK_H
#define QUERN_GEN_BLOCK_H

#include "gen/gen_group_gemm.h"

/* In the order in which a choice of one narrows down the next ones. */
enum {
    B_HALF,
    B_W, B_WLY, B_WLX, /* a subgroup, its threads along rows and columns */
    B_BLY, B_BLX,      /* subgroups */
    B_TM, B_TN,        /* a thread's sums */
    B_BK, B_LSU,       /* terms of a round, teams */
    B_BSWM, B_BSWN, B_WSWM, B_WSWN,
    B_SP, B_RP, B_UN,
    B_PAD, B_SWZ, B_TA, B_GLWA, B_GLWB, B_LC,
    B_GSW, B_RC,
    B_MAP, B_CHUNKS, B_STREAM,
    N_BLOCK
};
enum { SP_NONE, SP_DOUBLE, SP_AHEAD, SP_ASYNC, SP_ASYNC_3 }; /* of sp */

extern const struct gen_param block_param[N_BLOCK];

struct block {
    i64 v[N_BLOCK];
    i64 bm, bn;        /* rows, columns of a group's block */
    i64 team, threads; /* of a team, of all */
};
struct block block_of(const struct sched *s);
enum group_pipe block_pipe(const struct block *s);
i64 block_stages(const struct block *s);
i64 block_shared(const struct block *s, i64 size); /* bytes of shared arrays; size of an operand's element */

struct block_task { /* the product, sizes as far as they are known */
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
double block_seconds(const struct block_task *x, const struct caps *c, const struct block *s);
void block_initial(const struct block_task *x, const struct caps *c, struct sched *out);

#endif
