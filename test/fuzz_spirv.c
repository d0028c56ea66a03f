// SPDX-License-Identifier: Apache-2.0
//
// Declarations of SPIR-V modules: any bytes are read safely, and reported ranges lie within them.
#include "core/spirv.h"
#include "fuzz.h"

static bool is_within(struct str part, struct str whole)
{
    return !part.n || (part.p >= whole.p && part.p + part.n <= whole.p + whole.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct str module = {(const char *)p, (i64)n};
    struct spirv_info info;
    struct err e = {0};
    if (!spirv_read_info(&info, module, &e)) return 0;
    if (info.push_bytes < 0 || info.shared_bytes < 0 || info.subgroup > 1024) __builtin_trap();
    for (u32 i = 0; i < info.n_entry; i++)
        if (!is_within(info.entry[i].name, module)) __builtin_trap();
    for (u32 i = 0; i < info.n_extension; i++)
        if (!is_within(info.extension[i], module)) __builtin_trap();
    return 0;
}
