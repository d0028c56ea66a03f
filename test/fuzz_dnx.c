// SPDX-License-Identifier: Apache-2.0
//
// Artifacts: what is read verifies, is written and read again. The content's hashes are not repaired: bytes of
// constants stop most changes, those of the header do not.
#include "art/art.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct plan x, y;
    struct err e = {0};
    struct buf b = {0};
    if (dnx_read(&x, &a, (struct str){(const char *)p, (i64)n}, &e) && dnx_write(&x, &b, &e)) {
        bool ok = dnx_read(&y, &a, buf_view(&b), &e);
        if (!ok) __builtin_trap();
    }
    buf_release(&b);
    arena_release(&a);
    return 0;
}
