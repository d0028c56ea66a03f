// SPDX-License-Identifier: Apache-2.0
//
// Slices of the microbenchmarks' arrays: a memory level is measured on as much as fills a part of it. Workgroups that share the level divide that part,
// others have one each; all slices together lie within the array, whose size a device may limit.
#include "tune/rates.h"

enum { GROUPS_PER_UNIT = 8 /* of a GPU */ };

i64 micro_groups(const struct caps *c, bool has_many) { return i64_max(1, c->n_threads) * (c->is_gpu && has_many ? GROUPS_PER_UNIT : 1); }

static bool is_shared(const struct caps *c, enum rate_level level) { return level >= (c->is_gpu ? RATE_L2 : RATE_L3); }

i64 micro_level_bytes(const struct caps *c, enum rate_level level, i64 array)
{
    switch (level) {
    case RATE_L1: return c->l1_bytes / 2;
    case RATE_L2: return c->l2_bytes / 2;
    case RATE_L3: return c->l3_bytes / 8;
    case RATE_DRAM: return array;
    case N_RATE_LEVELS:
    default: unreachable();
    }
}

struct micro_slice micro_slice_of(const struct caps *c, enum rate_level level, enum micro_access access, i64 array, bool all)
{
    const bool shares = is_shared(c, level);
    const i64 arrays = access == MICRO_COPY ? 2 : 1, step = micro_memory_step(c), groups = all ? micro_groups(c, shares) : 1;
    i64 share = micro_level_bytes(c, level, array) / (level == RATE_DRAM ? 1 : arrays) / (shares ? groups : 1);
    i64 beyond = level == RATE_L3 && !c->is_gpu && share ? 2 * c->l2_bytes : 0, room = array / groups / 4 / step * step;
    i64 n = i64_max(share, beyond) / 4 / step * step;
    if (!n && level == RATE_L1 && arrays * 4 * step <= c->l1_bytes) n = step; /* a workgroup reads no less: as much as all of a processor's cache */
    return (struct micro_slice){groups, i64_min(n, room)};
}
