// SPDX-License-Identifier: Apache-2.0
//
// .raw: only the elements, row-major, little-endian. The caller
// supplies dtype and shape; the file must have exactly that size.
#include <string.h>

#include "io/io.h"

static bool raw_read(struct tensor *out, struct arena *a, struct str bytes, struct err *e)
{
    i64 size;
    if (out->dtype == DT_NONE) return err_set(e, ERR_USAGE, "a raw file needs a given dtype and shape");
    if (!tensor_size_ok(out->dtype, out->rank, out->dim, &size)) return err_set(e, ERR_INPUT, "tensor too large");
    if (size != bytes.n)
        return err_set(e, ERR_INPUT, "raw file of %lld bytes, expected %lld", (long long)bytes.n, (long long)size);
    out->data = arena_try(a, size, e, "the elements of a raw file");
    if (!out->data) return false;
    if (size) memcpy(out->data, bytes.p, (size_t)size);
    return true;
}

static bool raw_write(struct buf *out, const struct tensor *t, struct err *e)
{
    buf_put(out, t->data, tensor_bytes(t));
    return true;
}

const struct io_format io_raw = {.version = 1, .suffix = ".raw", .read = raw_read, .write = raw_write};
