// SPDX-License-Identifier: Apache-2.0
//
// Tensor files .png: accepted tensors are written again.
#include "fuzz.h"
#include "io/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    const struct io_format *f = io_find("x.png");
    struct arena a = {0};
    struct err e = {0};
    struct tensor t = {0};
    struct buf b = {0};
    if (f->read(&t, &a, (struct str){(const char *)p, (i64)n}, &e)) f->write(&b, &t, &e);
    buf_release(&b);
    arena_release(&a);
    return 0;
}
