// SPDX-License-Identifier: Apache-2.0
//
// .pb: one ONNX TensorProto, as in ONNX's test cases. External data is rejected, because the bytes have no folder.
#include <onnx.pb-c.h>

#include "io/io.h"

static bool pb_read(struct tensor *out, struct arena *a, struct str bytes, struct err *e)
{
    Onnx__TensorProto *p = io_onnx_unpack(&onnx__tensor_proto__descriptor, a, bytes, e);
    return p && io_onnx_tensor(out, a, p, NULL, e);
}

static bool pb_write(struct buf *out, const struct tensor *t, struct err *e)
{
    Onnx__TensorProto p;
    struct arena scratch = {0};
    io_onnx_fill(&p, t, &scratch);
    size_t n = onnx__tensor_proto__get_packed_size(&p);
    u8 *bytes = arena_alloc(&scratch, (i64)n);
    onnx__tensor_proto__pack(&p, bytes);
    buf_put(out, bytes, (i64)n);
    arena_release(&scratch);
    return true;
}

const struct io_format io_pb = {.version = 1, .suffix = ".pb", .read = pb_read, .write = pb_write};
