// SPDX-License-Identifier: Apache-2.0
//
// Archives of arrays .npz, stored and deflated.
#include "fuzz.h"
#include "io/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct err e = {0};
    struct io_npz z = {0};
    io_npz_read(&z, &a, (struct str){(const char *)p, (i64)n}, &e);
    arena_release(&a);
    return 0;
}
