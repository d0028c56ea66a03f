// SPDX-License-Identifier: Apache-2.0
//
// Kernel IR as text to SPIR-V: every verified kernel becomes a readable module, or is refused.
#include "core/spirv.h"
#include "fuzz.h"
#include "lang/lang.h"

static const struct caps caps = {.is_gpu = true,
                                 .has_fma = true,
                                 .max_group = 1024,
                                 .shared_bytes = 32 << 10,
                                 .max_push = 128,
                                 .has_subgroup = true,
                                 .has_f16 = true,
                                 .has_f64 = true,
                                 .has_i8 = true,
                                 .has_i16 = true,
                                 .has_i64 = true,
                                 .spirv = 16,
                                 .spirv_flags = "nonsemantic"};

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct str text = {(const char *)p, (i64)n};
    struct spirv_info info;
    struct buf module = {0};
    struct err e = {0};
    if (lang_find(S("spirv"))->build(&module, text, &caps, 10, &e) &&
        !spirv_read_info(&info, buf_view(&module), &e))
        __builtin_trap();
    buf_release(&module);
    return 0;
}
