// SPDX-License-Identifier: Apache-2.0
//
// lang_ptx_thread.c: numbers of threads and subgroups in their workgroup.
#include "lang/lang_ptx.h"

enum { WARP = 32 };

pval ptx_thread(struct ptx *s)
{
    static const char *const from[] = {"%tid.x", "%tid.y", "%tid.z"};
    pval all = ptx_int(s, PC_WORD, 0);
    u32 before = 1;
    for (u32 i = 0; i < 3; i++) {
        if (s->k->group[i] <= 1) continue;
        all = ptx_add(s, ptx_times(s, ptx_source(s, PC_WORD, "mov.u32", from[i]), before), all);
        before *= s->k->group[i];
    }
    return all;
}

pval ptx_subgroup(struct ptx *s, bool is_lane)
{
    pval n = ptx_int(s, PC_WORD, gpu_subgroup(s->k, WARP));
    return ptx_divide(s, is_lane ? KI_MOD : KI_DIV, ptx_thread(s), n);
}
