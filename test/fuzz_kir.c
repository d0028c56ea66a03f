// SPDX-License-Identifier: Apache-2.0
//
// Kernel IR as text: what parses verifies, and prints to text that parses again.
#include "fuzz.h"
#include "kir/kir.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct kir k = {0}, again = {0};
    struct err e = {0};
    struct buf b = {0};
    if (kir_parse(&k, &a, (struct str){(const char *)p, (i64)n}, &e)) {
        kir_print(&b, &k);
        if (!kir_parse(&again, &a, buf_view(&b), &e)) __builtin_trap();
    }
    buf_release(&b);
    arena_release(&a);
    return 0;
}
