// SPDX-License-Identifier: Apache-2.0
//
// Packed deployments: files of an accepted header are inside the bytes.
#include "art/meta_file.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct err e = {0};
    struct meta_packed_list l;
    struct str bytes = {(const char *)p, (i64)n};
    if (meta_packed_read(&l, &a, bytes, &e)) {
        for (u32 i = 0; i < l.n; i++) {
            struct str f = l.v[i].bytes;
            if (f.n < 0 || f.p < bytes.p || f.p + f.n > bytes.p + bytes.n || !meta_path_is_valid(l.v[i].name)) __builtin_trap();
        }
    } else if (!e.code) __builtin_trap();
    arena_release(&a);
    return 0;
}
