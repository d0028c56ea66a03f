// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_arith.c: operators on one lane, including 64-bit integers that may be pairs of words.
#include "lang/lang_spirv.h"

u32 spv_bin(struct spv *s, enum spirv_op op, enum spv_reg r, const u32 arg[2])
{
    if (spv_is_pair(s, r)) return spv_pair_bin(s, op, arg);
    return spv_op2(s, op, r, arg);
}

u32 spv_test(struct spv *s, enum spirv_op op, enum spv_reg r, const u32 arg[2])
{
    return spv_is_pair(s, r) ? spv_pair_test(s, op, arg[0], arg[1]) : spv_bin(s, op, SR_BOOL, arg);
}

u32 spv_choose(struct spv *s, enum spv_reg r, const u32 arg[3])
{
    if (spv_is_pair(s, r)) return spv_pair_choose(s, arg[0], arg[1], arg[2]);
    return spv_select(s, r, arg);
}
