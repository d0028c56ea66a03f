// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: schedules of attention by workgroups whose products are those of warpgroups (family/wgmma_attention.c). They are schedules of
// wg_attention with other parameters: a warpgroup has 64 rows, whole rows of scores and of the output, in the order of its fragments.
#ifndef QUERN_GEN_WGMMA_ATTENTION_H
#define QUERN_GEN_WGMMA_ATTENTION_H

#include "gen/wg_attention.h"

// clang-format off
#define WGMMA_ATTENTION_PARAMS(P)                                                                             \
    P(gm, "warpgroups, each with the rows of a fragment", 1, 2, 4)                                            \
    P(bc, "keys of a block", 64, 128, 256)                                                                    \
    P(stages, "blocks of keys and values in shared memory: all but one are being copied", 2, 3, 4)            \
    P(skip, "1: keys that a mask excludes for all rows of the workgroup are found first, and left out", 0, 1) \
    P(split, "keys of a workgroup, at most; 0: all", 0, 128, 256, 512, 1024, 2048, 4096)
// clang-format on

struct wgmma_attention_sched {
    WGMMA_ATTENTION_PARAMS(GEN_PARAM_FIELD)
    struct wg_attention_sched w; /* the same as one of wg_attention; units of 0 columns: the target has no such fragments */
};
/* columns: of the values. Parameters that are not chosen yet are 0. */
struct wgmma_attention_sched wgmma_attention_sched_of(const struct sched *v, const struct caps *c, enum dtype operand, i64 columns);

#endif
