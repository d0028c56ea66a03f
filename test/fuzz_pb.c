// SPDX-License-Identifier: Apache-2.0
//
// Tensor files .pb: accepted tensors are written again. The same bytes as files of sequences and
// optional values.
#include "fuzz.h"
#include "io/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    const struct io_format *f = io_find("x.pb");
    struct arena a = {0};
    struct err e = {0};
    struct tensor t = {0};
    struct buf b = {0};
    if (f->read(&t, &a, (struct str){(const char *)p, (i64)n}, &e)) f->write(&b, &t, &e);
    for (int kind = IO_SEQUENCE; kind <= IO_OPTIONAL_SEQUENCE; kind++) {
        struct io_list l;
        if (io_onnx_list(&l, &a, (enum io_list_kind)kind, (struct str){(const char *)p, (i64)n}, &e) && l.n) f->write(&b, &l.v[l.n - 1], &e);
    }
    buf_release(&b);
    arena_release(&a);
    return 0;
}
