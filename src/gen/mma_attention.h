// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: schedules of attention by workgroups whose products are those of matrix units (family/mma_attention.c). They are schedules of
// wg_attention with other parameters: fragments say what a block is, and threads divide it among them as its size demands.
#ifndef QUERN_GEN_MMA_ATTENTION_H
#define QUERN_GEN_MMA_ATTENTION_H

#include "gen/wg_attention.h"

// clang-format off
#define MMA_ATTENTION_PARAMS(P)                                                                   \
    P(m, "rows of a fragment", 4, 8, 16, 32)                                                      \
    P(n, "columns of a fragment", 4, 8, 16, 32)                                                   \
    P(k, "terms of a fragment", 2, 4, 8, 16, 32)                                                  \
    P(gm, "subgroups along queries", 1, 2, 4, 8)                                                  \
    P(gn, "subgroups along keys, and along columns of the values", 1, 2, 4)                       \
    P(wm, "fragments of a subgroup along queries", 1, 2, 4)                                       \
    P(wn, "fragments of a subgroup along keys", 1, 2, 4, 8, 16)                                   \
    P(wlpx, "threads of a subgroup along keys, where it has rows of scores", 1, 2, 4, 8, 16, 32)  \
    P(sa, "scores: terms of a K block, of the head's size", 16, 32, 64, 128)                      \
    P(sb, "output: terms of a K block, of the block's keys", 8, 16, 32, 64, 128)                  \
    P(kv, "shared arrays: 1: keys and values take turns; 2: each has its own, of whole blocks, and fewer barriers", 1, 2) \
    WG_ATTENTION_AHEAD(P)                                                                         \
    P(rp, "1: a step's fragments are read before the last one's are multiplied", 0, 1)            \
    WG_ATTENTION_KEYS(P)
// clang-format on

struct mma_attention_sched {
    MMA_ATTENTION_PARAMS(GEN_PARAM_FIELD)
    struct wg_attention_sched w; /* the same as one of wg_attention; sizes that do not come out even are 0 in it */
};
/* columns: of the values, 0: there are none. Parameters that are not chosen yet are 0. */
struct mma_attention_sched mma_attention_sched_of(const struct sched *v, enum dtype operand, i64 columns, i64 subgroup);

#endif
